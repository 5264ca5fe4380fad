"""`wavefront` on the GPU: blocks of rows run diagonally through the powers."""
