"""What solvers do with vectors on the GPU: operations on rows, and steps of their methods queued ahead of the host."""

from __future__ import annotations

from typing import Any

from akx.backends.cuda.device.memory import DeviceArray
from akx.backends.cuda.vectors.operations import VectorOperations

__all__ = ["CudaVectorWork"]


class CudaVectorWork(VectorOperations):
    """The operations, and the queues; see :class:`akx.backends.vectors.Vectors`."""

    revision = 1

    def step_queue(self, program: Any, coefficients: Any, V: DeviceArray, diagonal: DeviceArray | None = None) -> Any:
        """Steps of conjugate gradients on V = [p, w, r, x, ...], queued ahead of the host.

        `diagonal` (n,): of a preconditioner.
        """
        from akx.backends.cuda.vectors.conjugate import StepQueue

        return StepQueue(self, V, program, coefficients, diagonal)

    def block_queue(self, program: Any, W: DeviceArray, x: DeviceArray, s: int) -> Any:
        from akx.backends.cuda.vectors.conjugate import BlockQueue

        return BlockQueue(self, W, x, s, program)

    def rows_queue(self, W: DeviceArray, allowed: float, most: int) -> Any:
        from akx.backends.cuda.vectors.arnoldi import RowsQueue

        return RowsQueue(self, W, allowed, most)
