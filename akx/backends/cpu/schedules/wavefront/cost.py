"""Cost model of `wavefront` on the CPU, bytes and flops: the matrix once per pass where the live front fits a cache."""

from __future__ import annotations

from akx.backends.cpu.cost import front_share, stored_bytes
from akx.backends.host import HostDevice
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.cost.counts import Traffic

__all__ = ["traffic"]


def traffic(plan: Plan, matrix: Matrix, device: HostDevice) -> Traffic:
    """Bytes and flops of a call."""
    once = stored_bytes(plan, matrix)
    vector = matrix.n * matrix.dtype.itemsize
    everything = once + (plan.k + 1) * vector
    passes = -(-plan.k // plan.k_per_pass)
    moved = 0.0 if plan.partitioner == "natural" else 3.0 * vector * (plan.k + 1)
    share = front_share(matrix, plan.partitioner) / 2
    fronts = plan.threads if plan.typed.split == "contiguous" else 1
    live = min(1.0, fronts * share * plan.k_per_pass) * everything + fronts * plan.k_per_pass * plan.block_bytes
    cache = max(device.l3_bytes, plan.threads * device.l2_bytes)
    reread = 1.0 if live <= 0.8 * cache else float(plan.k_per_pass)
    resident = everything <= 0.8 * device.l3_bytes
    blocks = everything / max(plan.block_bytes, 1)
    shared = plan.typed.split == "interleaved"
    return Traffic(
        matrix_bytes=once * (1.0 if resident else min(passes * reread, float(plan.k))),
        vector_bytes=vector * (plan.k * (1 if resident else 2) + passes) + moved,
        flops=2.0 * matrix.nnz * plan.k,
        cache_bytes=(once + 2 * vector) * plan.k,
        synchronisations=(blocks * plan.k if shared else 2.0 * plan.k) * (plan.threads - 1),
    )
