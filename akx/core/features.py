"""Structure features of a sparse matrix: what schedules, the predictor and ``akx info`` go by.

The passes are linear in the entries (:mod:`akx.core.structure`) and together read the indices about fifteen times, the
values twice: about a second for 20 million entries.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Features", "compute_features", "dense_block_size"]

#: An aligned block counts as dense where at least this share of the cells of all touched blocks is filled.
_DENSE = 0.95
_BLOCK_SIZES = (6, 5, 4, 3, 2)
_SWEEPS = 4


@dataclass(frozen=True)
class Features:
    """Structure of a canonical matrix of n rows.

    Attributes
    ----------
    rows, nnz : int
        Rows, and entries including explicit zeros.
    dtype : str
        Value type: ``"float32"``, ``"float64"``, ``"complex64"`` or ``"complex128"``.
    row_min, row_max : int
        Entries of the shortest and of the longest row.
    row_mean, row_std : float
        Mean and standard deviation (over the population) of the entries per row.
    empty_rows : int
        Rows without an entry.
    bandwidth : int
        max |i - j| over the entries.
    profile : int
        sum_i max(0, i - first column of row i).
    components : int
        Connected components of the graph of A + A^T.
    level_count, level_width_max : int
        Breadth-first levels from a good root, those of each component after those of the component before, and the
        rows in the widest.
    pattern_symmetric : bool
        Whether (j, i) is an entry wherever (i, j) is.
    value_symmetry : str
        ``"symmetric"``, ``"skew"``, ``"hermitian"`` (complex only, and preferred to symmetric) or ``"none"``, exactly,
        without a tolerance.
    block_size : int
        The largest b in 1..6 for which the aligned b x b blocks that hold an entry are at least 95% full: unknowns that
        share a node and are numbered together.
    block_fill : float
        Share of the cells of those blocks that hold an entry, 1.0 for b = 1.
    diagonal_count : int
        Distinct offsets j - i.
    diagonal_fill : float
        nnz / (diagonal_count * n), 0.0 without entries.
    """

    rows: int
    nnz: int
    dtype: str
    row_min: int
    row_max: int
    row_mean: float
    row_std: float
    empty_rows: int
    bandwidth: int
    profile: int
    components: int
    level_count: int
    level_width_max: int
    pattern_symmetric: bool
    value_symmetry: str
    block_size: int
    block_fill: float
    diagonal_count: int
    diagonal_fill: float

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types, keyed by the attribute names."""
        return asdict(self)


def compute_features(indptr: NDArray[Any], indices: NDArray[Any], data: NDArray[Any]) -> Features:
    """Features of the canonical CSR arrays of an n x n matrix, n >= 1.

    Parameters
    ----------
    indptr, indices : (n+1,) and (nnz,) arrays of int32 or int64
        The pattern, columns ascending and unique within a row.
    data : (nnz,) array of float32, float64, complex64 or complex128
        The values.
    """
    from akx.core import structure as _structure

    n, nnz = indptr.size - 1, indices.size
    lengths = np.diff(indptr)
    bandwidth, profile = _structure.extent(indptr, indices)
    pattern, same, skew, hermitian = _structure.symmetry(indptr, indices, data)
    if pattern:
        tptr, tind = np.empty(0, dtype=indptr.dtype), np.empty(0, dtype=indices.dtype)
    else:
        tptr, tind = _structure.transpose_pattern(indptr, indices)
    components, level_count, level_width = _structure.level_structure(indptr, indices, tptr, tind, _SWEEPS)
    block_size, block_fill = dense_block_size(indptr, indices)
    diagonals = int(_structure.count_diagonals(indptr, indices))
    return Features(
        rows=n,
        nnz=nnz,
        dtype=data.dtype.name,
        row_min=int(lengths.min()),
        row_max=int(lengths.max()),
        row_mean=nnz / n,
        row_std=float(np.std(lengths)),
        empty_rows=int(n - np.count_nonzero(lengths)),
        bandwidth=int(bandwidth),
        profile=int(profile),
        components=int(components),
        level_count=int(level_count),
        level_width_max=int(level_width),
        pattern_symmetric=bool(pattern),
        value_symmetry=_value_symmetry(data.dtype, same, skew, hermitian),
        block_size=block_size,
        block_fill=block_fill,
        diagonal_count=diagonals,
        diagonal_fill=nnz / (diagonals * n) if diagonals else 0.0,
    )


def _value_symmetry(dtype: np.dtype[Any], same: bool, skew: bool, hermitian: bool) -> str:
    if dtype.kind == "c" and hermitian:
        return "hermitian"
    if same:
        return "symmetric"
    return "skew" if skew else "none"


def dense_block_size(indptr: NDArray[Any], indices: NDArray[Any]) -> tuple[int, float]:
    from akx.core import structure as _structure

    n, nnz = indptr.size - 1, indices.size
    for size in _BLOCK_SIZES:
        if size > n or nnz == 0:
            continue
        limit = int(nnz / _DENSE)
        cells = int(_structure.block_cells(indptr, indices, size, limit))
        if cells <= limit:
            return size, nnz / cells
    return 1, 1.0
