"""An NVIDIA GPU: its facts, context, memory, compiler, launches and clocks.

The only package of akx that imports pycuda and ``cuda.*``, and each only when it is needed: nothing here is imported by
``import akx``. The work is split between the two as each does it best. ``cuda.bindings`` gives the primary context
(shared with CuPy and PyTorch in the same process), memory, events, graphs, NVRTC, and launches with attributes
(cooperative, clusters); pycuda gives the plain launches. Where pycuda is not installed, plain launches go through
``cuda.bindings`` as well.
"""
