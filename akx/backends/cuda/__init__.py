"""Schedules on NVIDIA GPUs; the kernels are in the ``.cu`` and ``.cuh`` files beside the modules."""
