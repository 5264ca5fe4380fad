"""How the ghost zones of a matrix grow with the number of steps: what doing k steps without a word would cost.

For blocks of a partition, from the rows at distance d of each block (:mod:`akx.partition.ghost`):

    ghosts(j)     = foreign rows within j steps of a block, of all blocks, over the rows of the matrix
    redundancy(j) = sum_{d < j} (j - d) nnz(D_d) / (j nnz(D_0))        flops done over flops needed

One pass for the most steps gives both for all numbers of steps below. Where a partition would take long, compact blocks
are estimated by the growth of balls (:mod:`akx.partition.ball_growth`) instead.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from akx.core.errors import InfeasibleError, MissingDependencyError
from akx.partition.base import Partition, order_by_part
from akx.partition.cuts import cut_rows
from akx.report.units import count, counted, size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from akx.core.matrix import Matrix
    from akx.partition.ghost import GhostZones

__all__ = ["BLOCK_BYTES", "GhostCurve", "GhostGrowth", "ghost_growth"]

#: Bytes of the matrix that a block holds, about: half of a core's cache of the usual size.
BLOCK_BYTES = 512 * 1024
#: Fewest blocks, so that there is something to see of a small matrix.
_FEWEST = 4
#: Rows of all blocks with their ghosts, over those of the matrix, beyond which nobody would take them.
_MOST_ROWS = 4.0
#: Entries up to which METIS takes no more than a few seconds, and up to which levels, RCM and ghost zones together do.
_MOST_METIS, _MOST_ZONES = 2_000_000, 16_000_000


@dataclass(frozen=True)
class GhostCurve:
    """One way to cut the matrix: ghosts and redundancy (see the head of this module) for 1, 2, ... steps."""

    name: str
    ghosts: tuple[float, ...]
    redundancy: tuple[float, ...]


@dataclass(frozen=True)
class GhostGrowth:
    """What was found: the number of blocks, the curves, and what was left out and why."""

    blocks: int
    curves: tuple[GhostCurve, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """``{"blocks": ..., "curves": [{"name": ..., "ghosts": ..., "redundancy": ...}, ...], "notes": ...}``."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return found


def ghost_growth(matrix: Matrix, k: int, blocks: int | None = None) -> GhostGrowth:
    """Ghost rows and redundant work for 1 .. k steps, on rows in their order, by levels and RCM, and on compact blocks.

    Parameters
    ----------
    matrix : Matrix
    k : int
        Most steps, at least 1.
    blocks : int, optional
        Blocks to cut the matrix into, at least 1 and as many as it has rows at most; some of :data:`BLOCK_BYTES` each
        by default.
    """
    blocks = min(blocks or max(_FEWEST, round(matrix.nbytes / BLOCK_BYTES)), max(1, matrix.n))
    if matrix.nnz == 0:
        return GhostGrowth(blocks, (), ("The matrix has no entries, and so no ghosts.",))
    curves: list[GhostCurve] = []
    notes: list[str] = []
    if matrix.nnz <= _MOST_ZONES:
        partition = Partition(None, cut_rows(matrix.indptr, blocks))
        curves.append(_zones(matrix, partition, k, "rows in their order, cut by work", notes))
        curves.append(_zones(matrix, _by_levels(matrix, blocks), k, "rows by levels, cut by work", notes))
        curves.append(_zones(matrix, _by_rcm(matrix, blocks), k, "rows by RCM, cut by work", notes))
    else:
        notes.append(f"Blocks of rows in any order: left out for more than {count(_MOST_ZONES)} entries.")
    estimate = _estimate(matrix, blocks, k)
    reason = _without_metis(matrix, estimate)
    if not reason:
        try:
            from akx.partition.metis import metis_partition

            part = metis_partition(matrix.indptr, matrix.indices, blocks)
            curves.append(_zones(matrix, order_by_part(part, blocks), k, "compact blocks by METIS", notes))
        except MissingDependencyError as problem:
            reason = str(problem)
    if reason:
        curves.append(estimate)
        instead = "they are estimated from how fast balls grow around eight rows of the matrix"
        if not estimate.ghosts:
            instead = "balls around eight rows of the matrix grow too fast for an estimate"
        notes.append(f"Compact blocks by METIS: left out, {reason}; {instead}.")
    each = size(matrix.nbytes / blocks)
    notes.insert(0, f"{counted(blocks, 'block')} of about {each} of the matrix each.")
    return GhostGrowth(blocks, tuple(curve for curve in curves if curve.ghosts), tuple(notes))


def _without_metis(matrix: Matrix, estimate: GhostCurve) -> str:
    """Why METIS is not asked; "" where it is. On graphs without locality it takes long, and finds nothing."""
    if matrix.nnz > _MOST_METIS:
        return f"since it would take long for more than {count(_MOST_METIS)} entries"
    if not estimate.ghosts or estimate.ghosts[0] > 1:
        return "since one step would take more ghosts than a block has rows"
    return ""


def _by_levels(matrix: Matrix, blocks: int) -> Partition:
    """Rows in the order of breadth-first levels, cut into blocks of like work."""
    from akx.partition.levels import levels

    return _in_order(matrix, levels(matrix.indptr, matrix.indices).permutation, blocks)


def _by_rcm(matrix: Matrix, blocks: int) -> Partition:
    """Rows in reverse Cuthill-McKee order, cut into blocks of like work."""
    from akx.partition.levels import rcm

    return _in_order(matrix, rcm(matrix.indptr, matrix.indices), blocks)


def _in_order(matrix: Matrix, permutation: NDArray[np.int64], blocks: int) -> Partition:
    indptr = np.zeros(matrix.n + 1, dtype=matrix.indptr.dtype)
    np.cumsum(np.diff(matrix.indptr)[permutation], out=indptr[1:])
    return Partition(permutation, cut_rows(indptr, blocks))


def _within(matrix: Matrix, partition: Partition, steps: int) -> GhostZones | None:
    """The ghost zones, where they hold no more than `_MOST_ROWS` times the rows."""
    from akx.partition.ghost import ghost_zones

    try:
        return ghost_zones(matrix.indptr, matrix.indices, partition, steps, most_rows=_MOST_ROWS)
    except InfeasibleError:
        return None


def _zones(matrix: Matrix, partition: Partition, k: int, name: str, notes: list[str]) -> GhostCurve:
    """A curve as far as the ghost zones are within bounds."""
    zones = _within(matrix, partition, k)
    if zones is None:
        steps = 1
        while steps < k and (more := _within(matrix, partition, steps)) is not None:
            zones, steps = more, 2 * steps
    steps = 0 if zones is None else zones.k
    if steps < k:
        past = f"only to {counted(steps, 'step')}" if steps else "left out"
        notes.append(
            f"{name[0].upper()}{name[1:]}: {past}; blocks and ghosts would soon hold more than {_MOST_ROWS:g} times "
            "the rows of the matrix."
        )
    if zones is None:
        return GhostCurve(name, (), ())
    each = [zones.within(j) for j in range(1, steps + 1)]
    ghosts = (int(one.fetched.sum()) / matrix.n for one in each)
    return GhostCurve(name, tuple(ghosts), tuple(one.redundancy for one in each))


def _estimate(matrix: Matrix, blocks: int, k: int) -> GhostCurve:
    """Compact blocks by the growth of balls, as far as balls were grown."""
    from akx.partition.adjacency import unsigned_pattern
    from akx.partition.ball_growth import ball_sizes, closure_and_work

    own = matrix.n / blocks
    most = min(matrix.n, int(2 * _MOST_ROWS * own) + 1)
    sizes = ball_sizes(*unsigned_pattern(matrix.indptr, matrix.indices), most)
    ghosts, work = [], []
    for j in range(1, k + 1):
        grown = closure_and_work(sizes, own, j + 1)[0]
        if grown * own >= sizes[-1] and sizes[-1] < matrix.n:
            break
        ghosts.append(grown - 1)
        work.append(closure_and_work(sizes, own, j)[1])
    return GhostCurve("compact blocks, estimated", tuple(ghosts), tuple(work))
