"""What is known of a matrix before anything is measured: structure, storage of formats, ghost zones, bounds."""
