"""Clusters and waves of blocks for `ghost`: how they are laid out, how many the device takes, and a likely cut.

:func:`likely_cut` models a call of k steps in passes of d steps, with clusters of so many blocks in so many waves, from
the growth of balls (:mod:`akx.partition.ball_growth`; `closure`, `work`):

    (k / d) closure (matrix + 2 x) / memory bandwidth  +  k + 1 results / memory bandwidth
        +  work k nnz / (entries that the multiprocessors do a second)  +  an exchange for each step and wave

and takes the least where closures, matrix and x, fit the multiprocessors' registers and shared memory. It is where
tuning begins, no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.variants.block_local.layout import CLUSTER, STATIC, shared_limit
from akx.backends.cuda.variants.block_local.program import load_kernel, macros
from akx.backends.cuda.variants.block_local.shapes import is_listed, shape_of
from akx.backends.cuda.variants.options import HELD_SLOTS, WAVES
from akx.backends.pattern_cache import per_pattern
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.base import pattern_of
from akx.formats.block_local import WARP, Nodes, Shape
from akx.partition.ball_growth import ball_sizes, closure_and_work
from akx.partition.clusters import Clusters

__all__ = [
    "WITH_CLUSTERS",
    "Cut",
    "active_windows",
    "cluster_nodes",
    "clusters_at_once",
    "likely_closure_and_work",
    "likely_cut",
    "on_device",
]

#: The least compute capability with clusters.
WITH_CLUSTERS = (9, 0)
#: Ghosts of blocks as partitioners make them, over those of balls.
_LESS_COMPACT = 1.3
#: Seen on an H100: entries a multiprocessor does in a cycle, share of the bandwidth hint, seconds of an exchange and of
#: a wave, the share of the multiprocessors that clusters of 4 and 8 leave idle, places over what must fit.
_ENTRIES_PER_CYCLE, _BANDWIDTH, _EXCHANGE, _WAVE, _IDLE, _UNEVEN = 3.5, 0.85, 0.5e-6, 2e-6, 0.09, 1.25
_THREADS, _HELD_SLICES = 512, 2
#: Modelled seconds, over those of plain products, that a cut must stay below.
_WORTH = 0.85


def cluster_nodes(found: Clusters) -> Nodes:
    """The lists of the blocks of clusters, with room for x that is the same in all blocks of a cluster."""
    longest = np.diff(found.ptr).reshape(-1, found.size).max(axis=1, initial=0)
    return Nodes(
        found.rows,
        found.ptr,
        found.computed,
        found.own,
        found.border,
        found.sends.reshape(-1),
        2 * found.send_ptr,
        found.before,
        # One place more than there are nodes; even, since what follows x is copied 16 bytes at a time.
        np.repeat(longest // 2 * 2 + 2, found.size),
        found.taken,
    )


def active_windows(found: Clusters, shape: Shape, steps: int) -> NDArray[np.uint32]:
    """Slices of each block that each of `steps` steps computes, first * 2^16 + last + 1, shape (blocks, steps)."""
    k, per_node, per_slice = found.low.shape[1], shape.bc // shape.br, WARP // shape.lanes
    low = found.low[:, k - steps :] * per_node // per_slice
    high = -(-found.high[:, k - steps :] * per_node // per_slice)
    if int(high.max(initial=0)) >= 2**16:
        raise InfeasibleError(f"a block has {int(high.max())} slices, more than 16 bits count")
    return np.ascontiguousarray(low << 16 | high, dtype=np.uint32)


def clusters_at_once(plan: Plan, device: CudaDevice) -> int:
    """Clusters for which there are multiprocessors."""
    return max(1, device.sms * int(plan.typed.blocks_per_sm) // int(plan.typed.cluster))


def on_device(matrix: Matrix, plan: Plan, device: CudaDevice) -> int:
    """Clusters that the device takes at once: those of 4 and 8 blocks do not come out even with its multiprocessors.

    Raises :class:`InfeasibleError` where it takes not even one.
    """
    size, per_sm = plan.typed.cluster, plan.typed.blocks_per_sm
    if size == 1:
        return clusters_at_once(plan, device)
    shape, limit = shape_of(plan), shared_limit(plan, device) - STATIC
    listed, vectors = is_listed(matrix, shape.bc), plan.typed.vectors
    given = macros(shape, matrix.dtype, vectors, mode=CLUSTER, stream=False, blocks=per_sm, listed=listed)
    found = load_kernel(given).most_clusters(size, WARP * shape.warps, limit)
    if found == 0:
        raise InfeasibleError(
            "no cluster fits the device",
            expected=f"{size} blocks of {WARP * shape.warps} threads at once",
            found=f"{limit} bytes of shared memory each",
            hint="take smaller clusters",
        )
    return min(found, clusters_at_once(plan, device))


@dataclass(frozen=True)
class Cut:
    """Where tuning `ghost` begins."""

    cluster: int
    waves: int
    depth: int
    partitioners: tuple[str, ...]
    held_slices: int
    held_slots: int


def likely_closure_and_work(matrix: Matrix, count: int, depth: int) -> tuple[float, float]:
    """Rows computed over own ones, and redundancy, of so many clusters with compact shapes in `depth` steps."""
    closure, work = closure_and_work(_balls(matrix), matrix.n / count, depth)
    return 1.0 + _LESS_COMPACT * (closure - 1.0), 1.0 + _LESS_COMPACT * (work - 1.0)


@per_pattern
def _balls(matrix: Matrix) -> Any:
    pattern = pattern_of(matrix)
    return ball_sizes(pattern.indptr, pattern.indices, max(1, pattern.rows // 4))


def likely_cut(matrix: Matrix, device: CudaDevice, sizes: tuple[int, ...], depths: tuple[int, ...]) -> Cut:
    """Of these sizes of clusters and steps per pass, the largest being k, what the model likes best, and waves."""
    return _likely_cut(matrix, device, sizes, depths, matrix.dtype.itemsize)


@per_pattern
def _likely_cut(matrix: Matrix, device: CudaDevice, sizes: tuple[int, ...], depths: tuple[int, ...], size: int) -> Cut:
    width = matrix.nnz / max(matrix.n, 1)
    slots = min(HELD_SLOTS, key=lambda one: (abs(one - width), one))
    entry, vector = size + 2.0, float(matrix.n * size)
    chip = device.shared_per_block + _HELD_SLICES * slots * _THREADS * entry
    bandwidth = _BANDWIDTH * (device.memory_bandwidth_hint or 1e12)
    k, found = max(depths), Cut(1, 1, depths[-1], ("natural", "metis"), 0, 1)
    # A cut that is hardly faster than plain products is not worth the time it takes to make.
    least = _WORTH * k * (matrix.nnz * entry + 2 * vector) / bandwidth
    for cluster, waves, depth in product(sizes, WAVES, depths):
        used = device.sms * (1.0 - _IDLE) if cluster > 2 else float(device.sms)
        count, passes = waves * int(used / cluster), -(-k // depth)
        if not 1 <= count <= matrix.n:
            continue
        closure, work = likely_closure_and_work(matrix, count, depth)
        held = closure * (matrix.nnz * entry + 2 * vector)
        if held * _UNEVEN > waves * used * chip:
            continue
        seconds = (passes * held + (k + passes) * vector) / bandwidth
        seconds += work * k * matrix.nnz / (_ENTRIES_PER_CYCLE * used * device.clock_hz)
        seconds += waves * (passes * _WAVE + (k * _EXCHANGE if cluster > 1 else 0.0))
        if seconds < least:
            least = seconds
            alone = cluster == waves == 1
            orders = ("natural", "metis") if alone else ("metis", "natural")
            found = Cut(cluster, waves, depth, orders, 0 if alone else _HELD_SLICES, 1 if alone else slots)
    return found
