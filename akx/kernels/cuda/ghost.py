"""`ghost` on the GPU: each block takes its ghost zone along and does k_per_pass steps with no word to the others.

v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}. One launch per pass, no barrier between blocks. A block fetches x on its
closure (nodes at distance <= k_per_pass), keeps it in shared memory, and in step j computes the nodes at distance <=
k_per_pass - j: a prefix of its list, nearest first. Matrix slots are in registers and shared memory as in `resident`.

Flops: 2 nnz k redundancy. Traffic: matrix and x once per pass with their ghosts, k results. Blocks per multiprocessor
from 1 to 8 as the thesis tunes it; where a block does not fit, there are more and smaller ones. Source: Demmel,
Hoemmen, Mohiyuddin and Yelick (IPDPS 2008), algorithm PA1; Mehri Dehnavi 2012, ch. 6.
"""

from __future__ import annotations

import numpy as np

from akx.device.cuda.facts import CudaDevice, cuda_device
from akx.errors import InfeasibleError
from akx.formats.parts import Shape
from akx.kernels.base import Parameter, Program, Traffic, check_feasible
from akx.kernels.cuda.parts import (
    ALONE,
    BLOCKS,
    HELD_SLICES,
    HELD_SLOTS,
    VECTORS,
    LaidOut,
    PartsProgram,
    active_slices,
    choice_reason,
    fitting_block,
    fitting_variants,
    holding,
    lay_out_parts,
    nodes_of,
    padding,
    shape_of,
    slices_per_part,
    waste,
    zone_nodes,
)
from akx.matrix import Matrix
from akx.partition.base import Partition, order_by_part
from akx.partition.ghost import GhostZones, ghost_zones
from akx.partition.rows import even_cuts
from akx.plan import Option, Plan

__all__ = ["SCHEDULE", "Ghost", "lay_out_ghost"]

_PARTITIONERS = ("natural", "metis")
BLOCKS_PER_SM = (1, 2, 3, 4, 6, 8)
THREADS = (128, *BLOCKS)
_OPTIONS: dict[str, tuple[Option, ...]] = {
    "block": THREADS,
    "held_slices": HELD_SLICES,
    "held_slots": HELD_SLOTS,
    "blocks_per_sm": BLOCKS_PER_SM,
    "vectors": VECTORS,
}
#: Closures may hold at most this many times the nodes of the matrix.
_MOST_ROWS = 4.0
#: Times that the number of blocks is raised where a block does not fit.
_REPARTITIONS = 3


class Ghost:
    """See the module."""

    name = "ghost"
    backend = "cuda"
    description = "blocks with ghost zones do k steps each on their own, in shared memory"

    def space(self, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Parameter, ...]:
        variants = fitting_variants(matrix)
        passes = tuple(dict.fromkeys(max(1, -(-k // p)) for p in (1, 2, 3, 4) if p <= k))
        return (
            Parameter("variant", variants, variants[0], "dense block and lanes per block row"),
            Parameter("partitioner", _PARTITIONERS, "natural", "how rows are cut into blocks"),
            Parameter("k_per_pass", passes, passes[-1], "powers done per launch"),
            Parameter("blocks_per_sm", BLOCKS_PER_SM, 1, "blocks on a multiprocessor at a time"),
            Parameter("block", THREADS, self._block(matrix, device, variants[0]), "threads per block"),
            Parameter("held_slices", HELD_SLICES, 0, "slices of a warp in registers"),
            Parameter("held_slots", HELD_SLOTS, 1, "slots of each of them in registers"),
            Parameter("vectors", VECTORS, 1, "start vectors at a time"),
        )

    def starts(self, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
        """Plans that a search should begin with, beside the defaults: all powers in one launch, one or two blocks."""

        def reason(plan: Plan) -> str | None:
            return self.feasible(plan, matrix, device) or self.waste(plan, matrix, device)

        variant = fitting_variants(matrix)[0]
        plans = []
        for blocks in (1, 2):
            options: dict[str, Option] = {
                "block": self._block(matrix, device, variant, blocks),
                "blocks_per_sm": blocks,
            }
            whole = Plan(self.backend, self.name, variant, k=k, k_per_pass=k, options=options)
            plans.append(holding(whole, reason))
        return tuple(plan for plan in plans if plan is not None)

    @staticmethod
    def _block(matrix: Matrix, device: CudaDevice, variant: str, blocks: int = 1) -> int:
        shape = shape_of(Plan("cuda", "ghost", variant, k=1, k_per_pass=1))
        slices = slices_per_part(matrix, shape, device.sms * blocks, 1.0)
        return min(512 // blocks, fitting_block(slices, THREADS))

    def feasible(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        if plan.partitioner not in _PARTITIONERS:
            return f"no partitioner {plan.partitioner!r} here, expected one of {', '.join(_PARTITIONERS)}"
        blocks = plan.option("blocks_per_sm", 1)
        reason = choice_reason(plan, matrix, device, _OPTIONS, int(blocks))
        if reason is not None:
            return reason
        vectors = int(plan.option("vectors", 1))
        x = 2.0 * matrix.n * matrix.dtype.itemsize * vectors / device.sms
        if x > 8 * device.shared_per_sm:
            return f"x takes {x:.0f} bytes per multiprocessor: too many blocks, one after another"
        return None

    def waste(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        """What a feasible plan has no use for; there is one without, that is the same and cheaper."""
        parts = device.sms * int(plan.option("blocks_per_sm", 1))
        return waste(plan, matrix, parts, THREADS, _MOST_ROWS)

    def traffic(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> Traffic:
        shape, size = shape_of(plan), matrix.dtype.itemsize
        once = matrix.nnz * padding(matrix, shape.lanes, shape.bc) * (size + 2.0 / (shape.br * shape.bc))
        passes = -(-plan.k // plan.k_per_pass)
        blocks = device.sms * int(plan.option("blocks_per_sm", 1))
        key = ("akx.kernels.cuda.redundancy", plan.partitioner, shape.bc, blocks, plan.k_per_pass)
        if key not in matrix.pattern_cache:
            try:
                matrix.pattern_cache[key] = _zones(matrix, plan.partitioner, shape, blocks, plan.k_per_pass).redundancy
            except InfeasibleError:
                matrix.pattern_cache[key] = 2.0 * _MOST_ROWS
        redundancy = float(matrix.pattern_cache[key])
        vector = float(matrix.n * size)
        return Traffic(
            matrix_bytes=once * redundancy * passes,
            vector_bytes=vector * (plan.k + 1.0 + 2 * (passes - 1)),
            flops=2.0 * matrix.nnz * plan.k * redundancy,
            redundancy=redundancy,
            cache_bytes=once * redundancy * passes + vector * (plan.k + 1.0),
            synchronisations=float(passes),
        )

    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        device = cuda_device()
        check_feasible(self, plan, matrix, device)
        laid_out, zones, steps = lay_out_ghost(matrix, plan, device)
        active = {depth: active_slices(zones, shape_of(plan), depth) for depth in set(steps)}
        return PartsProgram(matrix, laid_out, plan, steps, active, int(plan.option("blocks_per_sm", 1)))


def lay_out_ghost(matrix: Matrix, plan: Plan, device: CudaDevice) -> tuple[LaidOut, GhostZones, tuple[int, ...]]:
    """The matrix in blocks with ghost zones, the zones, and the steps of each pass. Raises InfeasibleError."""
    shape, depth = shape_of(plan), plan.k_per_pass
    per_sm, vectors = int(plan.option("blocks_per_sm", 1)), int(plan.option("vectors", 1))
    limit = min(device.shared_per_block, device.shared_per_sm // per_sm - 1024)
    blocks = device.sms * per_sm
    steps = (depth,) * (plan.k // depth) + ((plan.k % depth,) if plan.k % depth else ())
    blocks = _most_blocks(matrix, plan.partitioner, shape, blocks, depth)
    for attempt in range(_REPARTITIONS + 1):
        zones = _zones(matrix, plan.partitioner, shape, blocks, depth)
        try:
            laid_out = lay_out_parts(
                matrix, zone_nodes(zones, nodes_of(matrix, shape.bc)), shape, ALONE, plan.k, vectors, limit
            )
        except InfeasibleError:
            if attempt == _REPARTITIONS:
                raise
        else:
            return laid_out, zones, steps
        blocks *= 2
    raise InfeasibleError("a block does not fit the shared memory")  # pragma: no cover - raised above


def _most_blocks(matrix: Matrix, partitioner: str, shape: Shape, blocks: int, depth: int) -> int:
    """`blocks`, halved until the ghost zones are not many times the blocks: small matrices leave some SMs idle."""
    while blocks > 1:
        try:
            _zones(matrix, partitioner, shape, blocks, depth)
        except InfeasibleError:
            blocks //= 2
        else:
            break
    return blocks


def _zones(matrix: Matrix, partitioner: str, shape: Shape, blocks: int, depth: int) -> GhostZones:
    """Ghost zones of the nodes; memoised with the pattern. Raises InfeasibleError where they are too large."""
    key = ("akx.kernels.cuda.ghost", partitioner, shape.bc, blocks, depth)
    if key not in matrix.pattern_cache:
        node = nodes_of(matrix, shape.bc)
        assert node is not None
        indptr, indices = (a.view(f"i{a.itemsize}") for a in (node.indptr, node.indices))
        if partitioner == "metis" and blocks > 1:
            from akx.partition.graph import metis_partition

            partition = order_by_part(metis_partition(indptr, indices, min(blocks, node.rows)))
        else:
            partition = Partition(None, even_cuts(node.indptr.astype(np.float64) + np.arange(node.rows + 1), blocks))
        try:
            matrix.pattern_cache[key] = ghost_zones(indptr, indices, partition, depth, most_rows=_MOST_ROWS)
        except InfeasibleError as refusal:
            matrix.pattern_cache[key] = refusal  # to be found out once
    zones: GhostZones | InfeasibleError = matrix.pattern_cache[key]
    if isinstance(zones, InfeasibleError):
        raise zones.with_traceback(None)
    return zones


SCHEDULE = Ghost()
