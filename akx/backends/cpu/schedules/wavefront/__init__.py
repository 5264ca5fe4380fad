"""`wavefront` on the CPU: blocks run diagonally through the powers."""
