"""`resident` on the GPU: the matrix stays on the multiprocessors, and only the halo of x is exchanged."""
