"""From any SciPy sparse matrix to canonical CSR: the checks, the type rules, the conversion.

SciPy does the conversions; what is added here is that index arrays are checked before compiled code follows them, that
the flags SciPy caches on the user's matrix are not believed (they go stale when arrays are changed in place), and that
nothing is done to the user's own arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from akx.core.errors import ArgumentError, ArgumentTypeError, MatrixError, brief
from akx.core.parallel import in_pieces

__all__ = [
    "LARGE_PIECE",
    "canonical_csr",
    "check_finite",
    "check_indices",
    "check_shape",
    "check_value_error",
    "copy_of",
    "fit_index_type",
    "read_only",
    "shared_csr",
    "target_dtype",
    "trim",
]

_SUPPORTED = tuple(np.dtype(t) for t in (np.float32, np.float64, np.complex64, np.complex128))
_SUPPORTED_NAMES = "float32, float64, complex64 or complex128"
_INT32_LIMIT = 2**31
#: Numbers that a thread copies, or looks at, at least.
LARGE_PIECE = 1 << 22


def check_shape(shape: tuple[int, ...]) -> None:
    """Raise :class:`MatrixError` where `shape` is not (n, n) with n >= 1."""
    if len(shape) != 2:
        raise MatrixError("matrix is not two-dimensional", expected="shape (n, n)", found=f"shape {tuple(shape)}")
    rows, columns = (int(s) for s in shape)
    if rows != columns:
        least = min(rows, columns)
        expected = "as many columns as rows"
        hint = f"powers need a square matrix: pass A[:{least}, :{least}], or A.T @ A for least squares"
        raise MatrixError("matrix is not square", expected=expected, found=f"{rows} x {columns}", hint=hint)
    if rows == 0:
        raise MatrixError("matrix is empty", expected="at least one row", found="0 x 0")


def check_value_error(value: Any) -> float:
    """The largest relative error of a stored value as a float of Python; raises where it is none, or not in [0, 1)."""
    expected = "a number of at least 0 and less than 1"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ArgumentTypeError("value_error is not a number", expected=expected, found=brief(value))
    if not 0 <= value < 1:  # NaN neither
        hint = "try 6e-8, which float32 keeps for float64; 0 is exact"
        raise ArgumentError("value_error is out of range", expected=expected, found=brief(value), hint=hint)
    return float(value)


def target_dtype(found: np.dtype[Any], wanted: DTypeLike | None) -> np.dtype[Any]:
    """The value type to convert to: `wanted`, else by the rules of :meth:`Matrix.from_any`."""
    if wanted is not None:
        try:
            target = np.dtype(wanted).newbyteorder("=")
        except TypeError as error:
            raise ArgumentTypeError(
                "dtype is not a NumPy type", expected=_SUPPORTED_NAMES, found=brief(wanted)
            ) from error
        if target not in _SUPPORTED:
            raise ArgumentError("dtype is not supported", expected=_SUPPORTED_NAMES, found=str(target))
        if found.kind == "c" and target.kind != "c":
            expected = f"real values for dtype {target}"
            raise MatrixError(
                "matrix is complex", expected=expected, found=str(found), hint="ask for complex128, or pass A.real"
            )
        if found.kind in "biufc":
            return target
    native = found.newbyteorder("=")
    if native in _SUPPORTED:
        return native
    if native.kind in "biu":
        return np.dtype(np.float64)
    if native == np.float16:
        return np.dtype(np.float32)
    double = "complex128" if native.kind == "c" else "float64"
    hint = f"convert it with A.astype(numpy.{double}); digits beyond double precision are lost"
    advice = hint if native.kind in "fc" else "convert it with A.astype(numpy.float64)"
    raise MatrixError("matrix has an unsupported dtype", expected=_SUPPORTED_NAMES, found=str(found), hint=advice)


def canonical_csr(A: Any, target: np.dtype[Any]) -> sp.csr_array:
    """CSR with sorted unique columns and values of `target`, sharing no memory with `A` and leaving `A` as it was.

    Another thread may change `A` at any moment: what is checked, and given to compiled code, is a copy.
    """
    shape = tuple(int(s) for s in A.shape)
    check_shape(shape)
    A = _plain(A)
    kind = target if A.dtype.kind != "b" else A.dtype  # bool duplicates are or-ed by SciPy, and only as bool
    if A.format in ("csr", "csc", "bsr"):
        csr = _compressed(A, kind, shape)
    elif A.format == "dia":
        csr = sp.dia_array((A.data.astype(kind), np.array(A.offsets)), shape=shape).tocsr()
        _check_compressed(csr.indptr, csr.indices, csr.data, *shape)
    else:
        values, row, column = (np.array(part) for part in (A.data, A.row, A.col))
        _check_coordinates(row, column, shape)
        csr = sp.coo_array((values.astype(kind, copy=False), (row, column)), shape=shape).tocsr()
    csr.sum_duplicates()
    return csr if csr.dtype == target else csr.astype(target)


def shared_csr(A: Any, target: np.dtype[Any], *, drops: bool) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None:
    """Row pointers, columns and values in the memory of `A`, to which nobody writes; None where it is not canonical."""
    if A.format != "csr" or A.dtype != target or A.indptr.dtype != np.int32 or A.indices.dtype != np.int32:
        return None
    indptr, indices, data = (np.asarray(array)[:] for array in (A.indptr, A.indices, A.data))
    rows, columns = A.shape
    _check_compressed(indptr, indices, data, rows, columns)
    is_plain = all(array.flags.c_contiguous and array.flags.aligned for array in (indptr, indices, data))
    fits = is_plain and indices.size == data.size == indptr[-1]
    if not fits or (drops and not data.all()):
        return None
    is_canonical = sp.csr_array((data, indices, indptr), shape=A.shape, copy=False).has_canonical_format
    return (indptr, indices, data) if is_canonical else None


def _compressed(A: Any, kind: np.dtype[Any], shape: tuple[int, ...]) -> sp.csr_array:
    """CSR of CSR, CSC or BSR."""
    indptr = np.array(A.indptr)
    stored = slice(int(indptr[-1]) if indptr.size else 0)
    indices, data = copy_of(A.indices[stored]), A.data[stored]
    if A.format == "csr":
        data = copy_of(data, kind)
    else:  # CSC is converted below, by one look at each value
        data = data.astype(kind, copy=A.format != "csc")
    if A.format == "bsr":
        _check_compressed(
            indptr, indices, data, *(size // step for size, step in zip(shape, data.shape[1:], strict=True))
        )
        return sp.bsr_array((data, indices, indptr), shape=shape).tocsr()
    _check_compressed(indptr, indices, data, *shape)  # which is square
    make = sp.csr_array if A.format == "csr" else sp.csc_array
    return make((data, indices, indptr), shape=shape, copy=False).tocsr()


def copy_of(array: NDArray[Any], dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
    """A copy of (m,) numbers, perhaps in another type; of many by several threads, since new memory comes slowly."""
    if array.size < 2 * LARGE_PIECE:
        return np.array(array, dtype=dtype)
    made = np.empty(array.size, dtype=dtype or array.dtype)

    def fill(first: int, last: int) -> None:
        made[first:last] = array[first:last]

    in_pieces(fill, array.size, LARGE_PIECE)
    return made


def _are_within(indices: NDArray[Any], end: int) -> bool:
    """Whether all of some indices lie from 0 to before an end."""

    def of_part(first: int, last: int) -> bool:
        part = indices[first:last]
        return bool(0 <= part.min() <= part.max() < end)

    return all(in_pieces(of_part, indices.size, LARGE_PIECE))


def _plain(A: Any) -> Any:
    """`A` itself, or CSR or COO of LIL, DOK and whatever else SciPy has."""
    if A.format == "lil":
        if any(len(columns) != len(values) for columns, values in zip(A.rows, A.data, strict=True)):
            raise MatrixError("matrix is broken: a row has not as many values as columns", hint="build it again")
        return A.tocsr(copy=True)
    return A if A.format in ("csr", "csc", "bsr", "dia", "coo") else A.tocoo(copy=True)


def check_indices(A: Any) -> None:
    """Raise :class:`MatrixError` where the index arrays of a SciPy sparse matrix would lead compiled code astray."""
    shape = tuple(int(s) for s in A.shape)
    if A.format in ("csr", "csc"):
        _check_compressed(A.indptr, A.indices, A.data, *(shape if A.format == "csr" else shape[::-1]))
    elif A.format == "bsr":
        rows, columns = A.blocksize
        _check_compressed(A.indptr, A.indices, A.data, shape[0] // rows, shape[1] // columns)
    elif A.format == "coo" and len(shape) == 2:
        _check_coordinates(A.row, A.col, shape)


def _check_compressed(indptr: Any, indices: Any, data: Any, major: int, minor: int) -> None:
    """Refuse index arrays that would make compiled code read outside its arrays."""
    problem = None
    if indptr.size != major + 1 or (indptr.size and indptr[0] != 0) or np.any(indptr[1:] < indptr[:-1]):
        problem = "row pointers (indptr) are not ascending from 0"
    elif indptr[-1] > min(indices.size, data.shape[0]):
        problem = "row pointers (indptr) point behind the last entry"
    elif indptr[-1] and not _are_within(indices[: indptr[-1]], minor):
        problem = "indices are out of range"
    if problem:
        raise MatrixError(
            f"matrix is broken: {problem}", hint="rebuild it from its entries with scipy.sparse.coo_array"
        )


def _check_coordinates(row: Any, column: Any, shape: tuple[int, ...]) -> None:
    for index, size, name in ((row, shape[0], "row"), (column, shape[1], "column")):
        if index.size and not 0 <= index.min() <= index.max() < size:
            raise MatrixError(
                f"matrix is broken: {name} indices are out of range",
                expected=f"0 to {size - 1}",
                found=f"{index.min()} to {index.max()}",
                hint="build it again with the right shape",
            )


def fit_index_type(indptr: NDArray[Any], indices: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both arrays as int32 where max(n, nnz) < 2**31, else as int64."""
    n, nnz = indptr.size - 1, int(indptr[-1])
    kind = np.int32 if max(n, nnz) < _INT32_LIMIT else np.int64
    return np.ascontiguousarray(indptr.astype(kind, copy=False)), trim(indices.astype(kind, copy=False), nnz)


def trim(array: NDArray[Any], size: int) -> NDArray[Any]:
    """The first `size` items, contiguous, not holding on to a longer buffer behind them."""
    first = array[:size]
    owner = array if array.base is None else array.base
    return np.ascontiguousarray(first) if getattr(owner, "nbytes", 0) == first.nbytes else first.copy()


def check_finite(indptr: NDArray[Any], indices: NDArray[Any], data: NDArray[Any], source: np.dtype[Any]) -> float:
    """The largest magnitude of a real or imaginary part; `source` is the type before conversion.

    Raises :class:`MatrixError` with the first place of a NaN or Inf.
    """
    parts = data.view(data.real.dtype) if data.dtype.kind == "c" else data

    def of_part(first: int, last: int) -> Any:
        part = parts[first:last]
        return np.maximum(part.max(initial=0), -part.min(initial=0))  # NaN where there is one

    largest = np.max(in_pieces(of_part, parts.size, LARGE_PIECE))
    if np.isfinite(largest):
        return float(largest)
    finite = np.isfinite(data)
    first = int(np.argmin(finite))
    row = int(np.searchsorted(indptr, first, side="right")) - 1
    count = int(data.size - np.count_nonzero(finite))
    value = data[first]
    hint = "find such entries with numpy.isfinite(A.tocoo().data) and repair or remove them"
    if np.isinf(value) and np.dtype(data.dtype).itemsize < np.dtype(source).itemsize:
        hint = f"the value may be too large for {data.dtype}: ask for double precision, or scale the matrix"
    found = f"{value} at row {row}, column {int(indices[first])}" + (f" and {count - 1} more" if count > 1 else "")
    raise MatrixError("matrix is not finite", expected="finite values", found=found, hint=hint)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory, not to be written to; Numba compiles a function once for such arrays, and once for others."""
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array
