"""The space of `sweep` on the CPU: every variant, order of the rows and number of threads."""

from __future__ import annotations

from akx.device.host import HostDevice
from akx.kernels.base import Parameter
from akx.kernels.cpu.choices import common_parameters
from akx.matrix import Matrix

__all__ = ["space"]


def space(matrix: Matrix, device: HostDevice, k: int) -> tuple[Parameter, ...]:
    """The tuning parameters (:meth:`akx.kernels.base.Schedule.space`)."""
    return common_parameters(matrix, device)
