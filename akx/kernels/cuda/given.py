"""Sparse matrices that callers have on the device: checked, put in canonical order and digested there.

What a caller has (:class:`akx._parts.Parts`) becomes a :class:`DeviceMatrix`: the canonical CSR of
:mod:`akx.matrix`, copied, with rows, columns and values on the device. The host is told a few numbers. Its own arrays
are copied from there once, when something asks for them: a layout that the host makes, a partition, SciPy.

    CSR   columns that ascend already are taken as they are; others are transposed twice, which sorts them
    CSC   transposed
    COO   by columns, then by rows, each as a transposition does it
    all   entries at one place are added up, in the order in which they were given

Matrices with 2^31 rows or entries and more, values that are not of the four types (integers, bool, half precision),
and those that the device has no room for once more, are copied to the host, and become its.

Bytes, for canonical CSR of 32-bit indices: all arrays read and written once, and once more read to look at them; a
digest reads the pattern once (a thread has 16 KiB), a content check all arrays.
"""

from __future__ import annotations

import math
import struct
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from akx._canonical import check_finite, check_shape, target_dtype
from akx._parts import Parts, parts_of
from akx._pattern import LEAF, LEAF_DIGEST, PERSON, Pattern
from akx.device.cuda import interchange
from akx.device.cuda.compile import load
from akx.device.cuda.facts import cuda_device
from akx.device.cuda.memory import DeviceArray, empty, pinned, to_device
from akx.device.cuda.runtime import cuda_missing
from akx.errors import ArgumentTypeError, DeviceMemoryError, MatrixError
from akx.kernels.cuda.transpose import rows_of, running_sums, take, transposed
from akx.matrix import Matrix

__all__ = ["Arrays", "DeviceMatrix", "Given", "canonical", "there"]

_SOURCE = Path(__file__).with_name("given.cu")
_DIGEST = Path(__file__).with_name("digest.cu")
_BLOCK, _WARP = 256, 32
#: Threads of a block that digests, few so that all multiprocessors have some; blocks of one that sums, for each.
_DIGESTING, _SUMMING = 32, 8
_WORDS = LEAF // 4
_MOST = 2**31
#: The numbers of types that the kernels know.
_INDICES = {"int32": 0, "uint32": 1, "int64": 2, "uint64": 3}
_VALUES = {"float32": 0, "float64": 1, "complex64": 2, "complex128": 3}
_NAMES = {"csr": ("data", "indices", "indptr"), "csc": ("data", "indices", "indptr"), "coo": ("data", "row", "col")}
_AGAIN = "build it again from its entries"
_DESCENDING = "row pointers (indptr) are not ascending from 0"
#: BLAKE2b's initial vector (RFC 7693).
_INITIAL = np.array(
    [
        0x6A09E667F3BCC908,
        0xBB67AE8584CAA73B,
        0x3C6EF372FE94F82B,
        0xA54FF53A5F1D36F1,
        0x510E527FADE682D1,
        0x9B05688C2B3E6C1F,
        0x1F83D9ABFB41BD6B,
        0x5BE0CD19137E2179,
    ],
    dtype=np.uint64,
)


class Arrays(NamedTuple):
    """A canonical matrix on the device: row pointers (n+1,) and columns (nnz,), both uint32, and values (nnz,)."""

    pointer: DeviceArray
    column: DeviceArray
    data: DeviceArray


class DeviceMatrix(Matrix):
    """A canonical matrix on the device. Its arrays of the host are copied from there when they are asked for.

    Attributes
    ----------
    on_device : Arrays
    """

    def __init__(
        self, arrays: Arrays, *, pattern_cache: dict[Any, Any], largest: float, value_error: float = 0.0
    ) -> None:
        self.n, self.nnz = arrays.pointer.size - 1, arrays.column.size
        self.dtype = arrays.data.dtype
        self.on_device = arrays
        self.largest, self.value_error = largest, value_error
        self.cache = {}
        self.pattern_cache = pattern_cache
        pattern_cache.setdefault("akx.pattern", _Pattern(arrays.pointer, arrays.column))

    @cached_property
    def indptr(self) -> NDArray[Any]:  # type: ignore[override]
        """Of the host, as all its arrays."""
        return self.pattern.indptr

    @cached_property
    def indices(self) -> NDArray[Any]:  # type: ignore[override]
        return self.pattern.indices

    @cached_property
    def data(self) -> NDArray[Any]:  # type: ignore[override]
        return _fetched(self.on_device.data)

    @property
    def index_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int32)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.on_device)

    @property
    def held(self) -> tuple[Any, ...]:
        known = [self.__dict__.get(name) for name in ("indptr", "indices", "data")]
        return (*self.on_device, *(array for array in known if array is not None))

    def alias(self, value_error: float | None = None) -> DeviceMatrix:
        allowed = self.value_error if value_error is None else value_error
        return DeviceMatrix(self.on_device, pattern_cache=self.pattern_cache, largest=self.largest, value_error=allowed)

    def in_type(self, dtype: np.dtype[Any]) -> Matrix:
        data = empty(self.nnz, dtype)
        _gather(self.on_device.data, data)
        found = self.with_data(data)
        if not math.isfinite(found.largest):  # a narrower type may be too small for them
            check_finite(found.indptr, found.indices, found.data, self.dtype)
        return found

    def with_data(self, data: DeviceArray) -> DeviceMatrix:
        """The same pattern with other values on the device, which are neither copied nor checked."""
        arrays, cache = self.on_device._replace(data=data), self.pattern_cache
        return DeviceMatrix(arrays, pattern_cache=cache, largest=_largest(data), value_error=self.value_error)

    def with_pattern_of(self, other: Matrix) -> Matrix:
        known: Arrays | None = other.on_device
        if known is None:
            return super().with_pattern_of(other)
        arrays, cache = known._replace(data=self.on_device.data), other.pattern_cache
        return DeviceMatrix(arrays, pattern_cache=cache, largest=self.largest, value_error=self.value_error)


class _Pattern(Pattern):
    """A pattern on the device, digested there; the host's arrays come from there once."""

    def __init__(self, pointer: DeviceArray, index: DeviceArray) -> None:
        self._pointer, self._index = pointer, index
        self.n, self.nnz = pointer.size - 1, index.size

    @cached_property
    def indptr(self) -> NDArray[Any]:  # type: ignore[override]
        """Of the host."""
        return _fetched(self._pointer).view(np.int32)

    @cached_property
    def indices(self) -> NDArray[Any]:  # type: ignore[override]
        return _fetched(self._index).view(np.int32)

    def _of_leaves(self) -> bytes:
        of_rows, of_columns = (-(-count // _WORDS) for count in (self.n, self.nnz))
        leaves = of_rows + of_columns
        found = empty((leaves, LEAF_DIGEST // 8), np.uint64)
        numbers = [np.uint32(number) for number in (leaves, of_rows, self.n, self.nnz)]
        arrays = [self._pointer, self._index, to_device(_leaf_key()), found]
        kernel = load(_DIGEST, {}, device=cuda_device()).kernel("digest_leaves")
        kernel.launch(-(-leaves // _DIGESTING), _DIGESTING, [*numbers, *arrays])
        return found.get().tobytes()


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
        """Of the values."""
        return self.on_device[0].dtype

    @property
    def nnz(self) -> int:
        """Entries that there is room for."""
        return self.on_device[0].size

    @property
    def nbytes(self) -> int:
        """Of all arrays."""
        return sum(array.nbytes for array in self.on_device)

    def token(self) -> tuple[Any, ...]:
        """A hashable token that differs whenever the content does: :func:`akx.matrix.content_token` for the device."""
        arrays = self.on_device
        sums = _checksums(arrays)
        self.release()
        kinds = ((array.dtype.str, array.shape) for array in arrays)
        return ("device", self.format, self.shape, *((*kind, found) for kind, found in zip(kinds, sums, strict=True)))

    def release(self) -> None:
        """Let the streams of the owner wait for what was queued here."""
        interchange.release({stream for _, stream in self._read})

    def to_scipy(self) -> Any:
        """A copy in host memory."""
        first, second, third = (_fetched(array) for array in self.on_device)
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
    """The canonical matrix of what a caller has on the device; see :meth:`akx.matrix.Matrix.from_any`."""
    check_shape(given.shape)
    target = target_dtype(given.dtype, dtype)
    data, *places = given.on_device
    for array, name in zip(places, _NAMES[given.format][1:], strict=True):
        if array.dtype.kind not in "iu":
            raise ArgumentTypeError(
                f"{name} of the matrix is not made of integers", expected="int32 or int64", found=str(array.dtype)
            )
    is_small = given.shape[0] < _MOST - 1 and data.size < _MOST and all(array.size < _MOST for array in places)
    is_known = data.dtype.name in _VALUES and all(array.dtype.name in _INDICES for array in places)
    if is_small and is_known:
        try:
            arrays = _in_order(given, target, drops=explicit_zeros == "drop")
            largest = _largest(arrays.data)
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
    found = _zeros(2)
    _launch("look_at_each_row", n * _WARP, [np.uint32(n), np.uint32(nnz), start, column, found])
    is_broken, is_unsorted = (bool(one) for one in found.get())
    if is_broken:
        raise _broken(_DESCENDING)
    data = data.view(0, (nnz,))
    if given.format == "csr" and not is_unsorted:
        values = empty(nnz, target)
        _gather(data, values)
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
        _launch("mark_first_entries", n * _WARP, [np.uint32(n), pointer, column, mark])
        begin = _listed(mark, nnz)
        count = begin.size - 1
        values = empty(count, target)
        _gather(data, values, begin, source)
        pointer, column = take(mark, pointer), take(column, begin.view(0, (count,)))
    if drops and values.size:
        count = values.size
        mark = empty(count + 1, np.uint32)
        _launch("mark_other_entries", count, [_type_of(values), np.uint32(count), values, mark])
        begin = _listed(mark, count)
        kept = begin.view(0, (begin.size - 1,))
        pointer, column, values = take(mark, pointer), take(column, kept), take(values, kept)
    return Arrays(pointer, column, values)


def _listed(mark: DeviceArray, count: int) -> DeviceArray:
    """Where the marked ones of `count` are, and `count`; `mark`, of one more, becomes the sums before each."""
    mark.view(count, (1,)).fill_bytes(0)
    running_sums(mark)
    begin = empty(int(mark.view(count, (1,)).get()[0]) + 1, np.uint32)
    _launch("list_marked_entries", count + 1, [np.uint32(count), mark, begin])
    return begin


def _narrowed(array: DeviceArray, limit: int, wrong: str) -> DeviceArray:
    """Indices in 32 bits, all below `limit`, else it is broken in that way."""
    out = empty(array.size, np.uint32)
    if array.size:
        found = _zeros(2)
        numbers = [np.uint32(_INDICES[array.dtype.name]), np.uint64(array.size), np.uint64(limit)]
        _launch("narrow_index", array.size, [*numbers, array, out, found])
        if any(found.get()):
            raise _broken(wrong)
    return out


def _gather(
    data: DeviceArray, values: DeviceArray, begin: DeviceArray | None = None, source: DeviceArray | None = None
) -> None:
    """Queue the values, each the sum of some of the data, in another type where theirs is another."""
    if values.size:
        none = np.uint64(0)
        where = [none if one is None else one for one in (begin, source)]
        numbers = [_type_of(data), _type_of(values), np.uint32(values.size)]
        _launch("gather_values", values.size, [*numbers, *where, data, values])


def _broken(what: str) -> MatrixError:
    return MatrixError(f"matrix is broken: {what}", hint=_AGAIN)


# ---------------------------------------------------------------------------------------------------- what is counted


def _largest(data: DeviceArray) -> float:
    """The largest magnitude of a real or imaginary part; not finite where one is not. Waits for the device."""
    if not data.size:
        return 0.0
    found = _zeros(1)
    _launch("measure_values", _threads(data.size), [_type_of(data), np.uint64(data.size), data, found])
    return float(found.get().view(np.float64)[0])


def _checksums(arrays: list[DeviceArray]) -> list[int]:
    """The checksum of the bytes of each array. Waits for the device."""
    found = _zeros(len(arrays))
    for number, array in enumerate(arrays):
        if array.size:
            width = min(8, array.dtype.itemsize)
            count = array.nbytes // width
            arguments = [np.uint32(width), np.uint64(count), array, found.view(number, (1,))]
            _launch("sum_all_words", _threads(count), arguments)
    return [int(one) for one in found.get()]


def _leaf_key() -> NDArray[np.uint64]:
    """BLAKE2b's parameter block of leaf 0, no last one, over the initial vector."""
    block = struct.pack("<BBBBIQBB14x16x16s", LEAF_DIGEST, 0, 0, 2, LEAF, 0, 0, LEAF_DIGEST, PERSON)
    found: NDArray[np.uint64] = _INITIAL ^ np.frombuffer(block, "<u8")
    return found


def _zeros(count: int) -> DeviceArray:
    found = empty(count, np.uint64)
    found.fill_bytes(0)
    return found


def _threads(count: int) -> int:
    """Threads for a kernel that goes through so many in turns."""
    return min(count, _SUMMING * cuda_device().sms * _BLOCK)


def _fetched(array: DeviceArray) -> NDArray[Any]:
    """A read-only copy in host memory, page-locked where there is such, so that it comes by one transfer."""
    try:
        found = array.get(pinned(array.shape, array.dtype)) if array.nbytes else np.empty(array.shape, array.dtype)
    except DeviceMemoryError:
        found = array.get()
    found.flags.writeable = False
    return found


def _type_of(array: DeviceArray) -> np.uint32:
    return np.uint32(_VALUES[array.dtype.name])


def _launch(name: str, threads: int, arguments: list[Any]) -> None:
    """Queue a kernel with so many threads."""
    load(_SOURCE, {}, device=cuda_device()).kernel(name).launch(-(-threads // _BLOCK), _BLOCK, arguments)
