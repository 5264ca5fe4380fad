"""Where the entries of a matrix are: counts on a coarse grid, as text for a terminal or a pipe.

Cell (r, c) of a grid of R x C counts the entries with row * R // n = r and column * C // n = c; one pass. In a terminal
a character of Braille shows 2 x 4 cells, about as high as wide, a dot where a cell has any entry; in plain text one
character is a cell, the heavier the fuller the cell. A picture needs the plot extra.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import njit

__all__ = ["braille", "cell_counts", "plain", "text_grid"]

#: Most characters in a line of a picture in text, however wide the terminal is.
_MOST_WIDTH = 64
#: Dots of a Braille character, by row and column, as bits of its code point; the first of them all.
_BITS, _BRAILLE = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]]), 0x2800
#: From a cell with few of its places filled to a full one.
_MARKS = ".:+*#"


def cell_counts(indptr: NDArray[Any], indices: NDArray[Any], rows: int, columns: int) -> NDArray[np.int64]:
    """Entries in each cell of a grid over the matrix.

    Parameters
    ----------
    indptr, indices : (n+1,) and (nnz,) arrays of integers
        CSR pattern of a square matrix, n at least 1.
    rows, columns : int
        Cells in each direction, at least 1; more than n give some without places.

    Returns
    -------
    (rows, columns) array of int64
    """
    counts = np.zeros((rows, columns), dtype=np.int64)
    n = indptr.size - 1
    _count(indptr, indices, np.arange(n, dtype=np.int64) * columns // n, counts)
    return counts


def text_grid(n: int, width: int, *, dots: bool) -> tuple[int, int]:
    """Rows and columns of the grid that suits a picture of an n x n matrix in lines of `width` characters.

    As many as there are rows at most, so that no cell is without places; whole characters where there are dots.
    """
    characters = max(1, min(width, _MOST_WIDTH))
    if dots:
        side = min(2 * characters, n)
        return side, side
    columns = min(characters, n)
    return (columns if n <= characters // 2 else max(1, columns // 2)), columns


def braille(counts: NDArray[np.int64]) -> list[str]:
    """Lines of Braille, a dot for each cell that has an entry."""
    rows, columns = counts.shape
    filled = np.zeros((-(-rows // 4) * 4, -(-columns // 2) * 2), dtype=np.int64)
    filled[:rows, :columns] = counts > 0
    tiles = filled.reshape(filled.shape[0] // 4, 4, filled.shape[1] // 2, 2)
    codes = _BRAILLE + np.einsum("arbc,rc->ab", tiles, _BITS)
    return ["".join(map(chr, line)) for line in codes]


def plain(counts: NDArray[np.int64], n: int) -> list[str]:
    """Lines of ASCII, a character for each cell: blank where it is empty, and one of ``.:+*#`` by how full it is.

    Each mark stands for a factor of ten: ``#`` for more than a tenth of the places of a cell, ``.`` for a
    ten-thousandth or less.
    """
    rows, columns = counts.shape
    high = np.diff(-(-np.arange(rows + 1) * n // rows))
    wide = np.diff(-(-np.arange(columns + 1) * n // columns))
    share = counts / np.maximum(np.outer(high, wide), 1)
    with np.errstate(divide="ignore"):
        heavy = np.ceil(np.log10(share) + len(_MARKS) - 1 - 1e-9)
    index = np.clip(heavy, 0, len(_MARKS) - 1)
    marks = np.where(counts > 0, np.array(list(_MARKS))[np.nan_to_num(index, neginf=0.0).astype(int)], " ")
    return ["".join(line) for line in marks]


@njit(nogil=True, cache=True)
def _count(indptr: Any, indices: Any, cell: Any, counts: Any) -> None:
    n, rows = indptr.size - 1, counts.shape[0]
    for i in range(n):
        line = counts[i * rows // n]
        for p in range(indptr[i], indptr[i + 1]):
            line[cell[indices[p]]] += 1
