"""Cost model of `sweep` on the CPU, bytes and flops: k times the matrix and the vectors, unless a cache has all."""

from __future__ import annotations

from akx.backends.cpu.cost import stored_bytes
from akx.backends.host import HostDevice
from akx.backends.variant import Variant
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.cost.counts import Traffic

__all__ = ["traffic"]


def traffic(plan: Plan, matrix: Matrix, device: HostDevice, other: Variant | None) -> Traffic:
    """Bytes and flops of a call; `other` is the variant of another package that the plan has, if any."""
    once = stored_bytes(plan, matrix) if other is None else other.stored_bytes(matrix)
    vector = matrix.n * matrix.dtype.itemsize
    resident = once + 2 * vector <= 0.8 * device.l3_bytes
    moved = 0.0 if plan.partitioner == "natural" else 3.0 * vector * (plan.k + 1)
    return Traffic(
        matrix_bytes=once * (1 if resident else plan.k),
        vector_bytes=plan.k * vector * (2 if resident else 3) + vector + moved,
        flops=2.0 * matrix.nnz * plan.k,
        cache_bytes=(once + 2 * vector) * plan.k,
        synchronisations=float(plan.k * (plan.threads - 1)),
    )
