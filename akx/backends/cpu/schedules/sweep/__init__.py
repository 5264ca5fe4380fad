"""`sweep` on the CPU: k products one after another."""
