"""Parts of a matrix that stay on the multiprocessors for several steps: what `resident` and `ghost` share."""
