"""Contiguous row blocks of equal work.

The work of rows 0 .. i-1 is the prefix w(i) = e * indptr[i] + r * i, with e units per entry and r units per row. Cuts
are put at the row boundaries nearest to equal shares of w(n), and no block is empty.

For k steps a block also does the redundant flops of its ghost zone (thesis ch. 6). Where the pattern is given,
:func:`cut_rows` counts them: the share of each block is lowered by the ghost flops it was found to have, and again.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.errors import ArgumentError, InfeasibleError
from akx.partition.base import ROW_FLOPS, IndexArray, Partition
from akx.partition.ghost import ghost_zones

__all__ = ["cut_rows", "cut_rows_by_bytes", "even_cuts", "even_cuts_of"]

#: Rounds of lowering the shares of blocks by their ghost flops.
_BALANCE_ROUNDS = 5
#: Rows in all closures, over n, beyond which ghost flops are not balanced.
_MOST_CLOSURE = 32.0


def cut_rows(
    indptr: IndexArray,
    blocks: int,
    *,
    k: int = 1,
    indices: IndexArray | None = None,
    boundaries: NDArray[Any] | None = None,
) -> NDArray[np.int64]:
    """Cut the rows into contiguous blocks of equal flops.

    Parameters
    ----------
    indptr : (n+1,) array of int32 or int64
        CSR row pointers, in the order to be cut.
    blocks : int
        Blocks wanted, at least 1; there are fewer where there are fewer rows (or boundaries).
    k : int
        Steps each block does alone.
    indices : (nnz,) array, optional
        CSR columns. With k > 1, the redundant flops of each block's ghost zone are balanced too.
    boundaries : (m,) sorted array of integers, optional
        The only row numbers where a cut may be, such as the pointers of levels; 0 and n are understood.

    Returns
    -------
    cuts : (blocks' + 1,) array of int64
        Increasing, from 0 to n, blocks' <= blocks; no block is empty.
    """
    pointer = np.asarray(indptr)
    n = pointer.size - 1
    work = 2.0 * pointer.astype(np.float64) + ROW_FLOPS * np.arange(n + 1)
    cuts = even_cuts(work, blocks, boundaries=boundaries)
    if indices is None or k == 1 or cuts.size < 3:
        return cuts
    best, best_flops = cuts, np.inf
    for _ in range(_BALANCE_ROUNDS):
        try:
            zones = ghost_zones(indptr, indices, Partition(None, cuts), k, most_rows=_MOST_CLOSURE)
        except InfeasibleError:  # no locality: the zones are everything, and balancing them is no use
            return best
        flops = 2.0 * zones.products + ROW_FLOPS * zones.active_counts.sum(axis=1)
        if float(flops.max()) < best_flops:
            best, best_flops = cuts, float(flops.max())
        if float(flops.max()) <= 1.01 * float(flops.mean()):
            break
        ghosts = flops - k * np.diff(work[cuts])
        shares = np.maximum(flops.mean() - ghosts, 0.05 * flops.mean())
        cuts = even_cuts(work, cuts.size - 1, shares=shares, boundaries=boundaries)
    return best


def cut_rows_by_bytes(
    indptr: IndexArray, bytes_per_entry: float, bytes_per_row: float, target: float, *, boundaries: Any = None
) -> NDArray[np.int64]:
    """Cut the rows into as few contiguous blocks of equal bytes as fit a target; see :func:`cut_rows`.

    Parameters
    ----------
    bytes_per_entry, bytes_per_row : float
        Bytes a block takes for each entry (value and index) and for each row (pointer, vectors).
    target : float
        The most bytes a block may take. A single row (or stretch between boundaries) that takes more is a block alone.
    """
    if not target > 0:
        raise ArgumentError("target of a block is out of range", expected="bytes > 0", found=repr(target))
    pointer = np.asarray(indptr)
    size = bytes_per_entry * pointer.astype(np.float64) + bytes_per_row * np.arange(pointer.size)
    # As few blocks as a greedy filling needs, first of even size; the greedy ones where an even one is too large.
    places = _places(size.size - 1, boundaries)
    prefix, last = size[places], max(places.size - 1, 1)
    chosen = [0]
    while chosen[-1] < last:
        fit = int(np.searchsorted(prefix, prefix[chosen[-1]] + target, side="right")) - 1
        chosen.append(min(max(fit, chosen[-1] + 1), last))
    greedy = places[np.array(chosen)]
    even = even_cuts(size, greedy.size - 1, boundaries=boundaries)
    bytes_of = np.diff(size[even])
    return even if float(bytes_of.max()) <= max(target, float(np.diff(size[greedy]).max())) else greedy


def even_cuts(
    work: NDArray[np.float64],
    blocks: int,
    *,
    shares: NDArray[np.float64] | None = None,
    boundaries: NDArray[Any] | None = None,
) -> NDArray[np.int64]:
    """Cuts of 0 .. n nearest to equal (or the given) shares of a non-decreasing prefix sum `work`; no block is empty.

    Parameters
    ----------
    work : (n+1,) array of float64
        ``work[i]`` is the work of rows 0 .. i-1.
    blocks, boundaries
        As of :func:`cut_rows`.
    shares : (blocks,) array of float64, optional
        The work of each block, up to a common factor. Only where all `blocks` blocks can be had.
    """
    if isinstance(blocks, bool) or int(blocks) != blocks or blocks < 1:
        raise ArgumentError("number of blocks is out of range", expected="an integer >= 1", found=repr(blocks))
    places = None if boundaries is None else _places(work.size - 1, boundaries)  # all
    prefix = work if places is None else work[places]
    count, last = min(int(blocks), max(prefix.size - 1, 1)), prefix.size - 1
    portions = np.ones(count) if shares is None or shares.size != count else shares
    ends = prefix[0] + (prefix[-1] - prefix[0]) * (np.cumsum(portions)[:-1] / portions.sum())
    right = np.clip(np.searchsorted(prefix, ends), 1, last)
    nearest = np.where(ends - prefix[right - 1] < prefix[right] - ends, right - 1, right)
    cuts = _apart(nearest, count, last)
    return cuts if places is None else places[cuts]


def _apart(nearest: NDArray[np.int64], count: int, last: int) -> NDArray[np.int64]:
    """Cuts with 0 and `last`, and no empty block: inner cut t is at least t places from the start and from others."""
    step = np.arange(1, count)
    nearest = np.maximum.accumulate(np.maximum(nearest, step) - step) + step
    nearest = np.minimum(nearest, last - (count - step))
    return np.concatenate(([0], nearest, [last])).astype(np.int64)


def even_cuts_of(work: Callable[[NDArray[np.int64]], NDArray[np.float64]], rows: int, blocks: int) -> NDArray[np.int64]:
    """As :func:`even_cuts`, of a prefix sum of which some are asked for, twice: about sqrt(rows blocks) each time."""
    count = min(blocks, max(rows, 1))
    step = max(1, isqrt(rows // count))
    places = np.minimum(np.arange(-(-rows // step) + 1) * step, rows)
    coarse = work(places)
    ends = coarse[0] + (coarse[-1] - coarse[0]) * (np.arange(1.0, count) / count)
    before = places[np.clip(np.searchsorted(coarse, ends), 1, max(places.size - 1, 1)) - 1]
    near = np.minimum(before[:, None] + np.arange(step + 1), rows)
    prefix = work(near.ravel()).reshape(near.shape)
    right = np.clip(1 + (prefix[:, 1:] < ends[:, None]).sum(axis=1), 1, step)  # of the step behind `before`
    around = (np.take_along_axis(prefix, (right + at)[:, None], axis=1)[:, 0] for at in (-1, 0))
    last, following = around
    right += before
    return _apart(np.where(ends - last < following - ends, right - 1, right), count, rows)


def _places(n: int, boundaries: NDArray[Any] | None) -> NDArray[np.int64]:
    if boundaries is None:
        return np.arange(n + 1, dtype=np.int64)
    inner = np.asarray(boundaries, dtype=np.int64)
    if inner.size and (inner[0] < 0 or inner[-1] > n or np.any(inner[1:] < inner[:-1])):
        raise ArgumentError("boundaries are malformed", expected=f"sorted row numbers from 0 to {n}")
    places = np.concatenate(([0], inner, [n]))
    return places[np.concatenate(([True], places[1:] != places[:-1]))]  # sorted already: np.unique would hash
