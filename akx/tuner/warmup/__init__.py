"""Code compiled before a search needs it: Numba's for the host, nvcc's for a GPU, and plans likely to come next."""
