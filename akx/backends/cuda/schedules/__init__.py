"""The schedules on NVIDIA GPUs, a package each: ``options <- layout <- cost <- schedule``, and the kernels."""
