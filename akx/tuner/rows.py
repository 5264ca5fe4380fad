"""What prices want to know of the rows of a matrix."""

from __future__ import annotations

import numpy as np

from akx.kernels.cuda.work import SECTOR, gathered_share
from akx.matrix import Matrix

__all__ = ["is_scattered", "surprises", "uneven_rows"]

#: Uneven rows of which a core foresees half. One of 2020 (Zen 3) remembers where the rows of 12,000 end, and next to
#: none of 24,000, where these are of 1 to 8 entries each.
_REMEMBERED = 10_000
#: Rows after which lengths that come again are foreseen.
_LONGEST_PERIOD = 8
#: Share of the way from rows that read x in order to those that read it anywhere, in sectors over entries, from which
#: on columns are anywhere. In float64 it lies at 0.5: a triangulation numbered at random has 0.89, a graph 0.97, a
#: circuit 0.24, grids 0.2 and less.
_SCATTERED = 1.0 / 3.0
_MEMO = "akx.tuner.rows"


def uneven_rows(matrix: Matrix) -> int:
    """Rows that have not as many entries as the row before; counted once for a pattern.

    Where lengths come again after 2 to 8 rows, as those of nodes with several unknowns, a processor has learnt them:
    then those that differ from the row so far back. The least of these numbers counts.
    """
    found: int | None = matrix.pattern_cache.get(_MEMO)
    if found is None:
        lengths = np.diff(matrix.indptr)
        periods = range(1, min(_LONGEST_PERIOD, lengths.size) + 1)
        found = min(int(np.count_nonzero(lengths[back:] != lengths[:-back])) for back in periods)
        matrix.pattern_cache[_MEMO] = found
    return found


def is_scattered(matrix: Matrix, cache_bytes: int) -> bool:
    """Whether rows read x anywhere, and caches of so many bytes do not hold it: most entries wait for x."""
    in_order = matrix.dtype.itemsize / SECTOR
    bar = in_order + _SCATTERED * (1.0 - in_order)
    return matrix.n * matrix.dtype.itemsize > cache_bytes and gathered_share(matrix) >= bar


def surprises(matrix: Matrix, threads: int = 1) -> float:
    """Rows whose ends the processor does not foresee, of all threads: few where each thread has few uneven rows.

    A core remembers where loops ended some thousand times before, and products come again and again.
    """
    rows = uneven_rows(matrix)
    return rows * rows / (rows + _REMEMBERED * threads) if rows else 0.0
