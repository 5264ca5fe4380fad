"""Cost model of plans on any GPU: bytes by tier, cycles and waits.

`traffic` knows the bytes that must move. On a GPU that alone does not tell plans apart: a row that is long waits for
its own loads, lanes that have nothing to do issue all the same, and a step that everyone waits for has a price whatever
its size. :class:`akx.cost.counts.Work` has these too; :mod:`akx.tuner.model.predict` makes seconds of it:

    seconds = loaded / memory bandwidth + sqrt(transfers^2 + cycles^2) + chain
              + launches x price of one + barriers x price of one

Transfers are the longer of memory and L2. They and the instructions of other warps hide one another, but for a part
(the root of squares lies between their sum and the larger one). What waits for itself, the longest row, is hidden by
nothing: it may come last.

The cycles are those of ``akx/cost/cuda.json``, fitted on an H100 and rounded. Bytes, clock and multiprocessors are
those of the device at hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.matrix import features
from akx.backends.cuda.row_lengths import measured_rows
from akx.backends.pattern_cache import fact
from akx.core.matrix import Matrix
from akx.cost import rows
from akx.cost.coefficients import coefficients
from akx.cost.rows import SECTOR, SLICE, sampled_slices

__all__ = [
    "SECTOR",
    "gathered_share",
    "in_cache",
    "longest_row",
    "multiply_cycles",
    "sampled_lengths",
    "touched_lines",
]

_COST = coefficients("cuda", "cache")

#: Compute capabilities whose multiprocessors have units for numbers of 8 bytes in plenty; others have two.
_DOUBLE = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0))
#: Slices of 32 rows that are looked at at most, and entries, where lines are counted.
_SAMPLE, _ENTRIES = 512, 40_000
#: Bytes of a line of L1.
_LINE = 128


def in_cache(size: float, device: CudaDevice) -> float:
    """The share of what is read again and again that L2 has: all up to two thirds of its size, soon nothing.

    It has what was read last, which of data that are gone through in turns is what comes last again. Blocks of 3 x 3 in
    36.5, 37.3 and 38.5 MB took 8.4, 12.1 and 17.3 us a product on an H100 (50 MiB).
    """
    over = _COST.nothing_share - size / max(device.l2_bytes, 1)
    return float(min(max(over / (_COST.nothing_share - _COST.whole_share), 0.0), 1.0))


def multiply_cycles(device: CudaDevice, dtype: np.dtype[Any]) -> float:
    """Cycles that a multiprocessor takes for 32 multiply-adds."""
    real = 4.0 if dtype.kind == "c" else 1.0
    single = dtype.itemsize // (2 if dtype.kind == "c" else 1) == 4
    return real * (0.5 if single else 1.0 if device.compute_capability in _DOUBLE else 16.0)


def longest_row(matrix: Matrix) -> int:
    """Entries of the longest row; a fact of the pattern."""

    def found() -> int:
        known = measured_rows(matrix)
        return int(np.diff(matrix.indptr).max(initial=0)) if known is None else known.longest

    return fact(matrix, ("akx.backends.cuda.longest",), found)


def sampled_lengths(matrix: Matrix) -> NDArray[np.int64]:
    """Entries of the rows of some slices of 32 rows, evenly spaced, shape (slices, 32); memoised with the pattern."""
    key = ("akx.backends.cuda.row_lengths",)
    if key not in matrix.pattern_cache:
        first = np.minimum(sampled_slices(matrix)[:, None] * SLICE + np.arange(SLICE + 1), matrix.n)
        there = features.of(matrix)
        at = matrix.indptr[first].astype(np.int64) if there is None else features.starts_at(there, first)
        matrix.pattern_cache[key] = np.diff(at, axis=1)
    found: NDArray[np.int64] = matrix.pattern_cache[key]
    return found


def gathered_share(matrix: Matrix) -> float:
    """As :func:`akx.cost.rows.gathered_share`, on the device where the matrix has been looked at there."""
    key, there = (rows.GATHERED, matrix.dtype.itemsize), features.of(matrix)
    if there is not None and key not in matrix.pattern_cache:
        per_sector = max(1, SECTOR // matrix.dtype.itemsize)
        sectors, entries = features.different_keys(there, sampled_slices(matrix), per_sector)
        matrix.pattern_cache[key] = sectors / max(entries, 1)
    return rows.gathered_share(matrix)


def touched_lines(matrix: Matrix, lanes: int) -> float:
    """Lines of x that a load of a warp asks for, over the entries that it is for; memoised with the pattern.

    1/16 where 32 entries of 8 bytes lie side by side in x, 1 where each has a line of its own. With `lanes` threads a
    row a load has so many entries of 32 / `lanes` rows; with none it has 32 entries as they are stored.
    """
    key = ("akx.backends.cuda.touched", lanes, matrix.dtype.itemsize)
    if key not in matrix.pattern_cache:
        most = int(min(_SAMPLE, _ENTRIES * matrix.n / max(matrix.nnz, 1) / SLICE))
        there, per_line = features.of(matrix), max(1, _LINE // matrix.dtype.itemsize)
        if there is not None:  # of all numbers of lanes at once
            counts, entries = features.lines_of_loads(
                there, sampled_slices(matrix, most), per_line, longest_row(matrix)
            )
            for one, lines in counts.items():
                matrix.pattern_cache[(*key[:1], one, *key[2:])] = lines / max(entries, 1)
            return float(matrix.pattern_cache[key])
        looked_at = (sampled_slices(matrix, most)[:, None] * SLICE + np.arange(SLICE)).ravel()
        begin, end = (matrix.indptr[np.minimum(looked_at + one, matrix.n)].astype(np.int64) for one in (0, 1))
        before = np.concatenate([[0], np.cumsum(end - begin)])
        row = np.repeat(np.arange(looked_at.size), end - begin)
        place = np.arange(before[-1]) - before[row]
        line = matrix.indices[begin[row] + place].astype(np.int64) // per_line
        load = (
            row // (SLICE // lanes) * (int((end - begin).max(initial=0)) + 1) + place // lanes
            if lanes
            else (np.arange(before[-1]) // SLICE)
        )
        lines = np.unique(load * (matrix.n + 1) + line).size
        matrix.pattern_cache[key] = lines / max(before[-1], 1)
    return float(matrix.pattern_cache[key])
