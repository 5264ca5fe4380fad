"""Graph partitioning by METIS: parts of equal weight with a small edge cut, on the pattern of A + A^T.

The graph is handed to METIS in its own index type, without a copy where it has it already (pymetis reads NumPy arrays
through the buffer protocol; Python lists would cost a hundred times the memory). A fixed seed makes the result
reproducible. The edge cut stands for the surface of the parts, and so for their ghost zones.

METIS bisects again and again. Where one half has fewer vertices than it is to have parts, METIS prints complaints to
stdout. So it is not asked for parts of fewer than two rows, and no vertex weighs more than a part should.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from akx.core.errors import ArgumentError
from akx.partition.adjacency import off_diagonal, symmetrized, unsigned_pattern
from akx.partition.base import ROW_FLOPS, IndexArray
from akx.partition.cuts import even_cuts

__all__ = ["flop_weights", "metis_partition"]


def metis_partition(
    indptr: IndexArray, indices: IndexArray, parts: int, *, weights: ArrayLike | None = None, seed: int = 0
) -> NDArray[np.int32]:
    """Part numbers of the rows, by METIS.

    Parameters
    ----------
    indptr, indices : (n+1,) and (nnz,) arrays of int32 or int64
        CSR pattern of A, symmetric or not.
    parts : int
        Parts wanted, at least 1. With n or more, each row is a part of its own; with more than n / 2, parts are rows
        that follow one another.
    weights : (n,) array of integers >= 0, optional
        What is balanced; default: the flops of a row, ``2 nnz_row + 5``.
    seed : int
        Of METIS's random numbers; the same seed gives the same parts.

    Returns
    -------
    part : (n,) array of int32
        0 <= part < parts. A part may be empty. :func:`akx.partition.base.order_by_part` makes a partition of it.
    """
    pointer, columns = unsigned_pattern(indptr, indices)
    n = pointer.size - 1
    vertex_weights = flop_weights(pointer) if weights is None else checked_weights(weights, n)
    count = checked_parts(parts)
    if count == 1 or n <= 1:
        return np.zeros(n, dtype=np.int32)
    if count >= n:
        return np.arange(n, dtype=np.int32)
    if 2 * count > n:
        cuts = even_cuts(np.concatenate(([0.0], np.cumsum(vertex_weights, dtype=np.float64))), count)
        return np.repeat(np.arange(count, dtype=np.int32), np.diff(cuts))
    import pymetis

    kind = np.dtype(pymetis.zero_copy_dtype())
    graph = off_diagonal(*symmetrized(pointer, columns))
    adjacency = pymetis.CSRAdjacency(*(np.ascontiguousarray(a.view(f"i{a.itemsize}"), dtype=kind) for a in graph))
    result = pymetis.part_graph(
        count,
        adjacency,
        vweights=np.ascontiguousarray(_bounded(vertex_weights, count), dtype=kind),
        options=pymetis.Options(seed=int(seed), numbering=0),
    )
    return np.asarray(result.vertex_part).astype(np.int32)


def _bounded(weights: NDArray[np.int64], parts: int) -> NDArray[np.int64]:
    """Weights of at least 1, none above the share of a part: a heavier row fills a part alone, however heavy it is.

    Where the m heaviest rows fill a part each, the share is that of the others in parts - m parts.
    """
    bounded: NDArray[np.int64] = np.maximum(weights, 1)
    if int(bounded.max()) * parts <= int(bounded.sum()):
        return bounded
    heaviest = np.sort(bounded)[::-1][:parts]
    others = bounded.sum() - np.concatenate(([0], np.cumsum(heaviest[:-1])))
    shares = -(-others // np.arange(parts, 0, -1))
    most = int(shares[int(np.argmax(heaviest <= shares))])
    return bounded.clip(max=most)


def flop_weights(indptr: NDArray[Any]) -> NDArray[np.int64]:
    """Flops of each row in one step, ``2 nnz_row + 5``, shape (n,)."""
    return 2 * np.diff(indptr).astype(np.int64) + ROW_FLOPS


def checked_parts(parts: int) -> int:
    """`parts` as an int. Raises :class:`ArgumentError` where it is not an integer >= 1."""
    if isinstance(parts, bool) or int(parts) != parts or parts < 1:
        raise ArgumentError("number of parts is out of range", expected="an integer >= 1", found=repr(parts))
    return int(parts)


def checked_weights(weights: ArrayLike, n: int) -> NDArray[np.int64]:
    """`weights` as int64, ones where all are zero. Raises :class:`ArgumentError` where they are not n integers >= 0."""
    array = np.asarray(weights)
    if array.shape != (n,) or array.dtype.kind not in "iu" or (n and int(array.min()) < 0):
        raise ArgumentError(
            "row weights are malformed", expected=f"{n} integers >= 0", found=f"{array.dtype} of shape {array.shape}"
        )
    return array.astype(np.int64) if array.any() else np.ones(n, dtype=np.int64)
