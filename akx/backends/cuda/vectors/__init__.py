"""Dense work of solvers on rows of vectors, and their steps queued ahead of the host."""
