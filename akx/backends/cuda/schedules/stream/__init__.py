"""`stream` on the GPU: the matrix comes from host memory through a window on the device."""
