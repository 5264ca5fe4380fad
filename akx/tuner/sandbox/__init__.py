"""A process of its own for candidates that may crash or hang the GPU, and how to talk to it."""
