"""What each way to lay a matrix out stores: fill ratios, bytes an entry, and the product that a bandwidth allows.

By counting over the pattern; nothing is laid out. With v bytes a value, 4 an index, e entries and n rows::

    fill             = entries / values stored, padding included
    bytes an entry   = (values x v + indices x 4 + pointers x 4) / entries
    bound            = 2 entries x bandwidth / (bytes + 2 n v)              x and y moved once
    far bound        = 2 entries x bandwidth / (bytes + loads of x x v)     x moved for every index

The layouts, and where their rules are from:

* csr: rows as they are, which is also padded CSR of factor 1 and blocks of 1 x 1.
* pcsr-m: rows padded to a multiple of m, with a word for every row and for each partition of 256 values (M. Mehri
  Dehnavi, McGill 2012, ch. 3). Empty rows take nothing there.
* ell: all rows as long as the longest. sell-C: chunks of C rows as long as the longest of each; sell-C-w: rows sorted
  by length in windows of w before, with a row number for each. sell-64-65536 is as in S. Rennich, Block SpMV on GPU
  (NVIDIA).
* hyb: ELL of K columns, the rest as (row, column, value). A K-th column is added while max(n / 3, 4096) rows or more
  have K entries: N. Bell, M. Garland, Efficient sparse matrix-vector multiplication on CUDA (NVR-2008-004), whose ELL
  is three times as fast as triples.
* dia: every diagonal with an entry, n values long. sliced dia: slices of 32 rows with their own diagonals.
* blocks-b: b x b blocks from row and column 0 on, one index for each and a pointer for a row of blocks; full blocks
  take 8 + 4 / b^2 bytes an entry and load 8 / b more of x (Rennich).
* nodes: the natural blocks of the matrix, of r x c values where nodes have r and c unknowns, 1 to 6 of them, one index
  for each, and a pointer and a first row for each node (:mod:`akx.formats.natural_blocks`); only where there are such
  nodes.

Cost: a few passes over the entries; sorting rows takes rows x log of the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse._sparsetools import csr_count_blocks

from akx.core.features import count_diagonals
from akx.core.numba_jit import njit

if TYPE_CHECKING:
    from akx.formats.natural_blocks import Nodes

__all__ = ["BLOCKS", "FACTORS", "FormatStorage", "format_storages", "hybrid_width"]

#: Padding factors of padded CSR, sides of blocks.
FACTORS, BLOCKS = (2, 4, 8, 16), (2, 3, 4, 5, 6)
#: Rows of a chunk of sliced ELL, and rows of a window that are sorted (1: none).
_SLICED = ((32, 1), (32, 1024), (64, 65536))
#: Values of a partition of padded CSR, rows of a slice of diagonals.
_PARTITION, _SLICE = 256, 32
_INDEX = 4
#: Bell and Garland: how much faster ELL is than triples, and the fewest rows for which it pays.
_FASTER, _FEWEST = 3, 4096
#: Sliced diagonals are counted up to so many values for each entry.
_MOST_STORED = 8


@dataclass(frozen=True)
class FormatStorage:
    """One layout of one matrix, by the names at the head of this module.

    `values` are those stored, padding included, of `itemsize` bytes; `nbytes` are all bytes stored, of values, indices
    and pointers; `loads` the entries of x that a product loads where it keeps none.
    """

    name: str
    rows: int
    entries: int
    itemsize: int
    values: int
    nbytes: int
    loads: int

    @property
    def fill(self) -> float:
        """Entries over values stored; 1 where nothing is stored."""
        return self.entries / self.values if self.values else 1.0

    @property
    def bytes_per_entry(self) -> float:
        """Bytes stored for each entry of the matrix; 0 without entries."""
        return self.nbytes / self.entries if self.entries else 0.0

    @property
    def moved(self) -> int:
        """Bytes of a product that moves x and y once."""
        return self.nbytes + 2 * self.rows * self.itemsize

    @property
    def far_moved(self) -> int:
        """Bytes of a product that moves x for every index, as Rennich counts them: without y."""
        return self.nbytes + self.loads * self.itemsize

    def bound(self, bandwidth: float) -> float:
        """Gflop/s that a `bandwidth` in bytes a second allows, two flops an entry, with x moved once."""
        return 2.0 * self.entries * bandwidth / self.moved / 1e9

    def far_bound(self, bandwidth: float) -> float:
        """The same with x moved for every index."""
        return 2.0 * self.entries * bandwidth / self.far_moved / 1e9 if self.far_moved else 0.0


def format_storages(
    indptr: NDArray[Any], indices: NDArray[Any], itemsize: int, nodes: Nodes | None = None
) -> tuple[FormatStorage, ...]:
    """Every layout of a pattern.

    Parameters
    ----------
    indptr, indices : (n+1,) and (nnz,) arrays of integers
        CSR pattern of a square matrix, n at least 1, columns ascending in each row.
    itemsize : int
        Bytes of a value.
    nodes : Nodes, optional
        The natural nodes of the pattern, for what their blocks take.

    Returns
    -------
    tuple of FormatStorage
        In the order of the head of this module; sliced diagonals only where they take at most eight values an entry.
    """
    n, entries = indptr.size - 1, int(indices.size)
    lengths = np.diff(indptr).astype(np.int64)

    def layout(name: str, values: int, other: int, loads: int | None = None) -> FormatStorage:
        """With `other` bytes beside the values; x is loaded for every value unless said."""
        return FormatStorage(
            name, n, entries, itemsize, values, values * itemsize + other, values if loads is None else loads
        )

    pointers = _INDEX * (n + 1)
    found = [layout("csr", entries, _INDEX * entries + pointers)]
    for factor in FACTORS:
        values = int((-(-lengths // factor) * factor).sum())
        partitions = -(-values // _PARTITION)
        found.append(layout(f"pcsr-{factor}", values, _INDEX * (values + partitions) + pointers))
    longest = int(lengths.max())
    found.append(layout("ell", n * longest, _INDEX * n * longest))
    for chunk, window in _SLICED:
        values = chunk * int(_chunk_widths(lengths, chunk, window).sum())
        chunks = -(-n // chunk)
        more = _INDEX * (chunks + 1) + (_INDEX * n if window > 1 else 0)
        name = f"sell-{chunk}" if window == 1 else f"sell-{chunk}-{window}"
        found.append(layout(name, values, _INDEX * values + more))
    width = hybrid_width(lengths)
    triples = int(np.maximum(lengths - width, 0).sum())
    found.append(layout("hyb", n * width + triples, _INDEX * (n * width + 2 * triples)))
    diagonals = int(count_diagonals(indptr, indices))
    found.append(layout("dia", n * diagonals, _INDEX * diagonals))
    sliced = _sliced_diagonals(indptr, indices, _MOST_STORED * entries)
    if sliced <= _MOST_STORED * entries:
        found.append(layout("sliced dia", sliced, _INDEX * (sliced // _SLICE + -(-n // _SLICE) + 1)))
    for side in BLOCKS:
        blocks = int(csr_count_blocks(n, n, side, side, indptr, indices))
        other = _INDEX * (blocks + -(-n // side) + 1)
        found.append(layout(f"blocks-{side}", blocks * side * side, other, blocks * side))
    if nodes is not None and nodes.sizes.size < n:
        columns = int(nodes.counts.sum(axis=0, dtype=np.int64) @ np.arange(1, nodes.counts.shape[1] + 1))
        other = _INDEX * (nodes.blocks + 2 * (nodes.sizes.size + 1))
        found.append(layout("nodes", nodes.slots, other, columns))
    return tuple(found)


def hybrid_width(lengths: NDArray[Any]) -> int:
    """Columns of the ELL part of hybrid ELL, by the rule of Bell and Garland; 0 for fewer than 4096 rows.

    Parameters
    ----------
    lengths : (n,) array of integers
        Entries of each row.
    """
    enough = max(-(-lengths.size // _FASTER), _FEWEST)
    reaching = lengths.size - np.cumsum(np.bincount(lengths))  # rows with more than K entries, for K = 0, 1, ...
    return int(np.count_nonzero(reaching >= enough))


def _chunk_widths(lengths: NDArray[np.int64], chunk: int, window: int) -> NDArray[np.int64]:
    """The longest row of each chunk; rows sorted by length within windows before, unless `window` is 1.

    By rising length: as chunks divide windows, that gives the chunks of falling length from the other end.
    """
    size = max(chunk, window)
    padded = np.zeros(-(-lengths.size // size) * size, dtype=np.int64)
    padded[: lengths.size] = lengths
    if window > 1:
        padded = np.sort(padded.reshape(-1, size), axis=1).ravel()
    widths: NDArray[np.int64] = padded.reshape(-1, chunk).max(axis=1)
    return widths


@njit(nogil=True, cache=True)
def _sliced_diagonals(indptr: Any, indices: Any, most: Any) -> Any:
    """Values of slices of 32 rows with their own diagonals; counting stops beyond `most`."""
    n = indptr.size - 1
    last = np.full(2 * n, -1, np.int64)  # the last slice with an entry on each diagonal
    values = 0
    for i in range(n):
        part = i // _SLICE
        for p in range(indptr[i], indptr[i + 1]):
            offset = indices[p] - i + n
            if last[offset] != part:
                last[offset] = part
                values += _SLICE
        if values > most:
            break
    return values
