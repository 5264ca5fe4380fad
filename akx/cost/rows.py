"""Row statistics for cost models: uneven lengths, branches, entries of x that are far apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from akx.core.matrix import Matrix

__all__ = [
    "GATHERED",
    "SECTOR",
    "SLICE",
    "branches",
    "gathered_share",
    "is_scattered",
    "missed",
    "sampled_slices",
    "surprises",
    "uneven_rows",
]

#: Bytes that come from a GPU's L2 at a time, and rows of a slice.
SECTOR, SLICE = 32, 32
#: Slices that are looked at.
_SAMPLE = 512
#: Where a pattern keeps :func:`gathered_share`, before the bytes of a value.
GATHERED = "akx.cost.gathered"

#: Between these multiples of what it has room for a core forgets more and more of the branches that it has seen.
_FORGETTING = 2.0 ** np.array([-0.5, 0.5])
#: Entries of a row that are a branch each; of those behind them every eighth.
_EACH = 8
#: Bytes of a line of a core's caches. Places at which entries are looked at, and how many there for each line that the
#: cache has.
_LINE, _PLACES, _LOOKED_AT = 64, 8, 16
#: Rows after which lengths that come again are foreseen.
_LONGEST_PERIOD = 8
#: Share of the way from rows that read x in order to those that read it anywhere, in sectors over entries, from which
#: on columns are anywhere. In float64 it lies at 0.5: a triangulation numbered at random has 0.89, a graph 0.97, a
#: circuit 0.24, grids 0.2 and less.
_SCATTERED = 1.0 / 3.0
_MEMO, _MEMO_BRANCHES, _MEMO_MISSED = "akx.tuner.model.rows", "akx.tuner.branches", "akx.tuner.missed"


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


def sampled_slices(matrix: Matrix, most: int = _SAMPLE) -> NDArray[np.int64]:
    """Some slices of 32 rows, evenly spaced."""
    slices = -(-matrix.n // SLICE)
    return np.unique(np.linspace(0, max(slices - 1, 0), max(1, min(most, slices))).astype(np.int64))


def gathered_share(matrix: Matrix) -> float:
    """Sectors of x that a slice of 32 rows reads over its entries, about; memoised with the pattern.

    Near 1 where columns are anywhere, 1/8 and less where rows that follow each other read what lies side by side.
    """
    key = (GATHERED, matrix.dtype.itemsize)
    if key not in matrix.pattern_cache:
        per_sector, sectors, entries = max(1, SECTOR // matrix.dtype.itemsize), 0, 0
        for s in sampled_slices(matrix):
            begin, end = matrix.indptr[s * SLICE], matrix.indptr[min((s + 1) * SLICE, matrix.n)]
            columns = matrix.indices[int(begin) : int(end)]
            sectors += np.unique(columns // per_sector).size
            entries += columns.size
        matrix.pattern_cache[key] = sectors / max(entries, 1)
    return float(matrix.pattern_cache[key])


def is_scattered(matrix: Matrix, cache_bytes: int) -> bool:
    """Whether rows read x anywhere, and caches of so many bytes do not hold it: most entries wait for x."""
    in_order = matrix.dtype.itemsize / SECTOR
    bar = in_order + _SCATTERED * (1.0 - in_order)
    return matrix.n * matrix.dtype.itemsize > cache_bytes and gathered_share(matrix) >= bar


def branches(matrix: Matrix) -> float:
    """Branches of a product in CSR, about: one for each entry of a row up to some, then one for several; memoised."""
    found: float | None = matrix.pattern_cache.get(_MEMO_BRANCHES)
    if found is None:
        lengths = np.diff(matrix.indptr)
        short = np.minimum(lengths, _EACH)
        found = float(lengths.size + short.sum() + (lengths - short).sum() / _EACH)
        matrix.pattern_cache[_MEMO_BRANCHES] = found
    return found


def surprises(matrix: Matrix, threads: int, foreseen: float) -> float:
    """Rows whose ends the processor does not foresee, of all threads.

    A core that has room for so many branches (`foreseen`) remembers where loops ended in the last product, and products
    come again and again. One of 2022 (Zen 4) knows the ends of 20,000 rows of 1 to 8 entries, and a tenth of those of
    40,000; of rows of 10 to 80 those of 5,000, and none of 20,000.
    """
    least, most = foreseen * _FORGETTING
    forgotten = np.log(max(branches(matrix) / threads / least, 1.0)) / np.log(most / least)
    return float(uneven_rows(matrix) * min(1.0, forgotten))


def missed(matrix: Matrix, cache_bytes: int, vectors: int = 1) -> float:
    """Entries whose entry of x is not in a cache of so many bytes, over all; memoised with the pattern.

    Of several vectors, their entries lie side by side.

    The cache has what was read last: an entry misses if nothing of its line was read in the last so many entries, as
    many as it takes to fill the cache. That is looked at for some runs of entries, in the order of the rows, as if the
    cache had x alone; of a cache whose size is not known nothing is.
    """
    size = matrix.dtype.itemsize * vectors
    if matrix.n * size <= cache_bytes or cache_bytes < _LINE or matrix.nnz == 0:
        return 0.0
    key = (_MEMO_MISSED, cache_bytes, size)
    if key not in matrix.pattern_cache:
        room, per_line = max(1, cache_bytes // _LINE), max(1, _LINE // size)
        run = min(matrix.nnz, _LOOKED_AT * room)
        shares = []
        for begin in np.unique(np.linspace(0, matrix.nnz - run, _PLACES).astype(np.int64)):
            lines = np.asarray(matrix.indices[begin : begin + run]) // per_line
            order = np.argsort(lines, kind="stable")
            is_again = lines[order[1:]] == lines[order[:-1]]
            since = np.full(run, run)  # entries since one of the same line
            since[order[1:][is_again]] = np.diff(order)[is_again]
            first = np.flatnonzero(since == run)
            filled = int(first[room - 1]) + 1 if first.size >= room else run
            shares.append(float(np.mean(since[min(filled, run // 2) :] >= filled)))
        matrix.pattern_cache[key] = float(np.mean(shares))
    return float(matrix.pattern_cache[key])
