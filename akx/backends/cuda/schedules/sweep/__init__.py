"""`sweep` on the GPU: k products one after another."""
