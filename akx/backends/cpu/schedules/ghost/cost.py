"""Cost model of `ghost` on the CPU, bytes and flops: the matrix with its ghost zones, by how far rows reach."""

from __future__ import annotations

from akx.backends.cpu.cost import bytes_per_entry, front_share
from akx.backends.cpu.layout import ordered
from akx.backends.cpu.schedules.ghost.layout import MOST_ROWS
from akx.backends.host import HostDevice
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.cost.counts import Traffic
from akx.partition.ball_growth import ball_sizes, closure_and_work

__all__ = ["HOPELESS", "closure", "matrix_bytes", "redundancy", "traffic"]

#: Compact blocks are hopeless whose closures are so many times larger than they may be.
HOPELESS = 2.0


def traffic(plan: Plan, matrix: Matrix, device: HostDevice) -> Traffic:
    """Bytes and flops of a call."""
    once = matrix_bytes(plan, matrix)
    vector = matrix.n * matrix.dtype.itemsize
    passes = -(-plan.k // plan.k_per_pass)
    done = redundancy(plan, matrix) if plan.partitioner == "natural" else 1.5
    everything = once * done + (plan.k + 1) * vector
    resident = everything <= 0.8 * device.l3_bytes
    return Traffic(
        matrix_bytes=once * done * (1.0 if resident else passes),
        vector_bytes=vector * (plan.k * (1 if resident else 2) + 2 * passes * done),
        flops=2.0 * matrix.nnz * plan.k * done,
        redundancy=done,
        cache_bytes=(once + 4 * vector) * plan.k * done,
        synchronisations=float(passes * (plan.threads - 1)),
    )


def redundancy(plan: Plan, matrix: Matrix) -> float:
    """Estimate for row blocks in natural order: half the front on either side, shrinking to nothing in the pass."""
    blocks = max(1.0, matrix_bytes(plan, matrix) / plan.block_bytes)
    if blocks <= 1.0:
        return 1.0
    return 1.0 + 0.5 * (plan.k_per_pass - 1) * front_share(matrix, "natural") * blocks


def closure(plan: Plan, matrix: Matrix) -> float:
    """Estimate, by the growth of balls, of the rows that compact blocks read in a pass over those they own."""
    blocks = max(1.0, matrix_bytes(plan, matrix) / plan.block_bytes)
    own = matrix.n / blocks
    most = min(matrix.n, int(2 * HOPELESS * MOST_ROWS * own) + 1)
    key = ("akx.backends.cpu.balls", most)
    if key not in matrix.pattern_cache:
        pattern = ordered(matrix, "natural").pattern
        matrix.pattern_cache[key] = ball_sizes(pattern.indptr, pattern.indices, most)
    return closure_and_work(matrix.pattern_cache[key], own, plan.k_per_pass + 1)[0]


def matrix_bytes(plan: Plan, matrix: Matrix) -> float:
    """Modelled bytes of the matrix, as in natural order: blocks leave most rows beside their own."""
    return bytes_per_entry(plan.replace(partitioner="natural"), matrix) * matrix.nnz
