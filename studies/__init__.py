"""Questions about the design that were answered once, by a measurement; see README.md. Not tested and not packaged."""
