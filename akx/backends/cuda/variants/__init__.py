"""The SpMV variants on NVIDIA GPUs: how entries are laid out, and which threads take which rows."""
