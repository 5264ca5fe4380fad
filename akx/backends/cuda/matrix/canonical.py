"""Sparse matrices that callers have on the device: checked, and put in canonical order there.

What a caller has (`Parts`) becomes a `DeviceMatrix`: the
canonical CSR of :mod:`akx.core.matrix`, copied, with rows, columns and values on the device.

    CSR   columns that ascend already are taken as they are; others are transposed twice, which sorts them
    CSC   transposed
    COO   by columns, then by rows, each as a transposition does it
    all   entries at one place are added up, in the order in which they were given

Matrices with 2^31 rows or entries and more, values that are not of the four types (integers, bool, half precision),
and those that the device has no room for once more, are copied to the host, and become its.

Bytes, for canonical CSR of 32-bit indices: all arrays read and written once, and once more read to look at them.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from akx.backends.cuda.device import interchange
from akx.backends.cuda.device.memory import DeviceArray, empty, to_device, zeros
from akx.backends.cuda.device.runtime import cuda_missing
from akx.backends.cuda.matrix.content import INDICES, VALUES, sums_of
from akx.backends.cuda.matrix.device_matrix import Arrays, DeviceMatrix, fetched, gather, largest_of, launch, type_of
from akx.backends.cuda.matrix.transpose import rows_of, running_sums, take, transposed
from akx.core.canonical import check_finite, check_shape, target_dtype
from akx.core.device_arrays import Parts, parts_of
from akx.core.errors import ArgumentTypeError, DeviceMemoryError, MatrixError
from akx.core.matrix import Matrix

__all__ = ["Given", "canonical", "sent", "there"]

_WARP = 32
_MOST = 2**31
#: Bytes of a matrix of the host from which on it is sent as it is.
_SENT = 4 << 20
_NAMES = {"csr": ("data", "indices", "indptr"), "csc": ("data", "indices", "indptr"), "coo": ("data", "row", "col")}
_AGAIN = "build it again from its entries"
_DESCENDING = "row pointers (indptr) are not ascending from 0"


def there(A: Any) -> Given | None:
    """What a caller has on the device, to be read by this module; None of a matrix of the host, or of none.

    Of a matrix of another library it is None too where akx has no GPU to work with: that library takes it to the host.
    """
    parts = parts_of(A)
    if parts is None or isinstance(parts, Given):
        return parts
    if not parts.is_tuple and cuda_missing() is not None:
        return None
    return Given(parts.format, parts.shape, parts.arrays, parts.owner, parts.is_tuple)


def sent(A: Any) -> Given | None:
    """A matrix of SciPy, as it is, in arrays of the device; None of one that the host has read as soon.

    What the host would do to see whether it has changed, and to put it in order, takes several times as long.
    """
    names = _NAMES.get(A.format)
    if names is None or len(A.shape) != 2 or A.nnz * (A.dtype.itemsize + 4) < _SENT:
        return None
    places = [*A.coords] if A.format == "coo" and hasattr(A, "coords") else [getattr(A, name) for name in names[1:]]
    arrays = [np.ascontiguousarray(one) for one in (A.data, *places)]
    are_known = arrays[0].dtype.name in VALUES and all(one.dtype.name in INDICES for one in arrays[1:])
    if not are_known or not all(one.dtype.isnative for one in arrays):
        return None
    try:
        first, second, third = (to_device(one) for one in arrays)
    except DeviceMemoryError:
        return None
    return Given(A.format, A.shape, (first, second, third), A)


class Given(Parts):
    """A caller's matrix on the device, as it is now: read, and ordered behind the work of its streams."""

    @cached_property
    def _read(self) -> list[tuple[DeviceArray, int]]:
        """Each array, contiguous, and the stream that its owner uses it on."""
        names = (f"{name} of the matrix" for name in _NAMES[self.format])
        return [interchange.array_of(one, name) for one, name in zip(self.arrays, names, strict=True)]

    @property
    def on_device(self) -> list[DeviceArray]:
        """Data, indices and indptr; of COO data, rows and columns."""
        return [array for array, _ in self._read]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values; nothing is queued for that."""
        return interchange.dtype_of(self.arrays[0])

    @property
    def nnz(self) -> int:
        """Entries that there is room for."""
        return self.on_device[0].size

    @property
    def nbytes(self) -> int:
        """Of all arrays."""
        return sum(array.nbytes for array in self.on_device)

    def token(self) -> tuple[Any, ...]:
        """A hashable token that differs whenever the content does: `content_token` for the device."""
        arrays = self.on_device
        sums = sums_of(arrays)
        self.release()
        kinds = ((array.dtype.str, array.shape) for array in arrays)
        return ("device", self.format, self.shape, *((*kind, found) for kind, found in zip(kinds, sums, strict=True)))

    def release(self) -> None:
        """Let the streams of the owner wait for what was queued here."""
        interchange.release({stream for _, stream in self._read})

    def to_scipy(self) -> Any:
        """A copy in host memory."""
        first, second, third = (fetched(array) for array in self.on_device)
        try:
            if self.format == "coo":
                return sp.coo_array((first, (second, third)), shape=self.shape)
            make = sp.csr_array if self.format == "csr" else sp.csc_array
            return make((first, second, third), shape=self.shape)
        except ValueError as error:
            raise MatrixError("matrix is broken", found=str(error), hint=_AGAIN) from error


def canonical(
    given: Given,
    *,
    dtype: DTypeLike | None = None,
    explicit_zeros: Literal["keep", "drop"] = "keep",
    value_error: float = 0.0,
) -> Matrix:
    """The canonical matrix of what a caller has on the device; see :meth:`akx.core.matrix.Matrix.from_any`."""
    check_shape(given.shape)
    target = target_dtype(given.dtype, dtype)
    data, *places = given.on_device
    for array, name in zip(places, _NAMES[given.format][1:], strict=True):
        if array.dtype.kind not in "iu":
            raise ArgumentTypeError(
                f"{name} of the matrix is not made of integers", expected="int32 or int64", found=str(array.dtype)
            )
    is_small = given.shape[0] < _MOST - 1 and data.size < _MOST and all(array.size < _MOST for array in places)
    is_known = data.dtype.name in VALUES and all(array.dtype.name in INDICES for array in places)
    if is_small and is_known:
        try:
            arrays = _in_order(given, target, drops=explicit_zeros == "drop")
            largest = largest_of(arrays.data)
            given.release()
            made = DeviceMatrix(arrays, pattern_cache={}, largest=largest, value_error=value_error)
            if not math.isfinite(largest):
                check_finite(made.indptr, made.indices, made.data, given.dtype)
            return made
        except DeviceMemoryError:
            pass  # there may be room for a layout of it, but not for a copy beside
    return Matrix.from_any(given.to_scipy(), dtype=dtype, explicit_zeros=explicit_zeros, value_error=value_error)


# --------------------------------------------------------------------------------------------------------- in order


def _in_order(given: Given, target: np.dtype[Any], *, drops: bool) -> Arrays:
    """Canonical arrays of it, none of which is the caller's."""
    data, *places = given.on_device
    n = given.shape[0]
    if given.format == "coo":
        if not data.size == places[0].size == places[1].size:
            sizes = [array.size for array in (data, *places)]
            raise MatrixError(
                "matrix is broken: arrays are not of one size", expected="data, row and col alike", found=str(sizes)
            )
        rows = _narrowed(places[0], n, "row indices are out of range")
        columns = _narrowed(places[1], n, "column indices are out of range")
        return _summed(*_sorted(rows, columns, n), data, target, drops)
    index, pointer = places
    room = min(data.size, index.size)
    nnz = int(pointer.view(n, (1,)).get()[0]) if pointer.size == n + 1 else -1
    if nnz > room:
        raise _broken("row pointers (indptr) point behind the last entry")
    if nnz < 0:
        raise _broken(_DESCENDING)
    start = _narrowed(pointer, nnz + 1, _DESCENDING)
    column = _narrowed(index.view(0, (nnz,)), n, "indices are out of range")
    found = zeros(2, np.uint64)
    launch("look_at_each_row", n * _WARP, [np.uint32(n), np.uint32(nnz), start, column, found])
    is_broken, is_unsorted = (bool(one) for one in found.get())
    if is_broken:
        raise _broken(_DESCENDING)
    data = data.view(0, (nnz,))
    if given.format == "csr" and not is_unsorted:
        values = empty(nnz, target)
        gather(data, values)
        return Arrays(start, column, values) if not drops else _summed(start, column, None, data, target, drops)
    line = rows_of(start, nnz) if nnz else empty(0, np.uint32)
    if given.format == "csr":
        return _summed(*_sorted(line, column, n), data, target, drops)
    pointer, source = transposed(start, column, n)  # the caller's columns ascend, and stay so in each row
    return _summed(pointer, take(line, source), source, data, target, drops)


def _sorted(rows: DeviceArray, columns: DeviceArray, n: int) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    """Pointer, columns and source of entries by row, then by column, then in the order in which they were given."""
    _, by_column = transposed(rows, columns, n)
    pointer, by_row = transposed(columns, take(rows, by_column), n)
    source = take(by_column, by_row)
    return pointer, take(columns, source), source


def _summed(
    pointer: DeviceArray,
    column: DeviceArray,
    source: DeviceArray | None,
    data: DeviceArray,
    target: np.dtype[Any],
    drops: bool,
) -> Arrays:
    """Entries at one place added up, and those that are zero left out where that is asked for."""
    nnz, n = column.size, pointer.size - 1
    values = empty(nnz, target)
    if nnz:
        mark = empty(nnz + 1, np.uint32)
        launch("mark_first_entries", n * _WARP, [np.uint32(n), pointer, column, mark])
        begin = _listed(mark, nnz)
        count = begin.size - 1
        values = empty(count, target)
        gather(data, values, begin, source)
        pointer, column = take(mark, pointer), take(column, begin.view(0, (count,)))
    if drops and values.size:
        count = values.size
        mark = empty(count + 1, np.uint32)
        launch("mark_other_entries", count, [type_of(values), np.uint32(count), values, mark])
        begin = _listed(mark, count)
        kept = begin.view(0, (begin.size - 1,))
        pointer, column, values = take(mark, pointer), take(column, kept), take(values, kept)
    return Arrays(pointer, column, values)


def _listed(mark: DeviceArray, count: int) -> DeviceArray:
    """Where the marked ones of `count` are, and `count`; `mark`, of one more, becomes the sums before each."""
    mark.view(count, (1,)).fill_bytes(0)
    running_sums(mark)
    begin = empty(int(mark.view(count, (1,)).get()[0]) + 1, np.uint32)
    launch("list_marked_entries", count + 1, [np.uint32(count), mark, begin])
    return begin


def _narrowed(array: DeviceArray, limit: int, wrong: str) -> DeviceArray:
    """Indices in 32 bits, all below `limit`, else it is broken in that way."""
    out = empty(array.size, np.uint32)
    if array.size:
        found = zeros(2, np.uint64)
        numbers = [np.uint32(INDICES[array.dtype.name]), np.uint64(array.size), np.uint64(limit)]
        launch("narrow_index", array.size, [*numbers, array, out, found])
        if any(found.get()):
            raise _broken(wrong)
    return out


def _broken(what: str) -> MatrixError:
    return MatrixError(f"matrix is broken: {what}", hint=_AGAIN)
