"""A canonical matrix on the device: rows, columns and values there, digested there.

The host is told a few numbers. Its own arrays are copied from there once, when something asks for them: a layout that
the host makes, a partition, SciPy.

Bytes: a digest reads the pattern once (a thread has 16 KiB), the largest magnitude the values.
"""

from __future__ import annotations

import math
import struct
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.memory import DeviceArray, empty, to_device, zeros
from akx.backends.cuda.matrix.content import VALUES
from akx.core.canonical import check_finite
from akx.core.fingerprint import LEAF, LEAF_DIGEST, PERSON, Pattern
from akx.core.matrix import Matrix

__all__ = ["PATTERN", "Arrays", "DeviceMatrix", "fetched", "gather", "largest_of", "launch", "sent_pattern", "type_of"]

_SOURCE = Path(__file__).with_name("canonical.cu")
_DIGEST = Path(__file__).with_name("digest.cu")
_BLOCK = 256
#: Where a matrix has its pattern.
PATTERN = "akx.pattern"
#: Threads of a block that digests, few so that all multiprocessors have some; blocks of one that sums, for each.
_DIGESTING, _SUMMING = 32, 8
_WORDS = LEAF // 4
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


def sent_pattern(matrix: Matrix) -> tuple[DeviceArray, DeviceArray]:
    """Row pointers and columns of a matrix of the host, of 32 bits each, on the device, as :class:`Arrays` has them."""
    return to_device(matrix.indptr.view(np.uint32)), to_device(matrix.indices.view(np.uint32))


class DeviceMatrix(Matrix):
    """A canonical matrix on the device. Its arrays of the host are copied from there when they are asked for."""

    def __init__(
        self, arrays: Arrays, *, pattern_cache: dict[Any, Any], largest: float, value_error: float = 0.0
    ) -> None:
        self.n, self.nnz = arrays.pointer.size - 1, arrays.column.size
        self.dtype = arrays.data.dtype
        self.on_device = arrays
        self.largest, self.value_error = largest, value_error
        self.cache = {}
        self.pattern_cache = pattern_cache
        pattern_cache.setdefault(PATTERN, _Pattern(arrays.pointer, arrays.column))

    @cached_property
    def indptr(self) -> NDArray[Any]:  # type: ignore[override]
        """Of the host, as all its arrays."""
        return self.pattern.indptr

    @cached_property
    def indices(self) -> NDArray[Any]:  # type: ignore[override]
        return self.pattern.indices

    @cached_property
    def data(self) -> NDArray[Any]:  # type: ignore[override]
        return fetched(self.on_device.data)

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

    @cached_property
    def _diagonal(self) -> DeviceArray:
        found = empty(self.n, self.dtype)
        launch("take_the_diagonal", self.n, [type_of(found), np.uint32(self.n), *self.on_device, found])
        return found

    def diagonal(self) -> NDArray[Any]:
        return self._diagonal.get()

    def is_hermitian_there(self, tolerance: float) -> bool:
        found = zeros(1, np.uint64)
        if self.nnz:
            numbers = type_of(self._diagonal), np.uint32(self.n), np.uint32(self.nnz), np.float64(tolerance)
            launch("compare_with_mirrors", self.nnz, [*numbers, *self.on_device, self._diagonal, found])
        return not found.get()[0]

    def in_type(self, dtype: np.dtype[Any]) -> Matrix:
        data = empty(self.nnz, dtype)
        gather(self.on_device.data, data)
        found = self.with_data(data)
        if not math.isfinite(found.largest):  # a narrower type may be too small for them
            check_finite(found.indptr, found.indices, found.data, self.dtype)
        return found

    def with_data(self, data: DeviceArray) -> DeviceMatrix:
        """The same pattern with other values on the device, which are neither copied nor checked."""
        arrays, cache = self.on_device._replace(data=data), self.pattern_cache
        return DeviceMatrix(arrays, pattern_cache=cache, largest=largest_of(data), value_error=self.value_error)

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
        return fetched(self._pointer).view(np.int32)

    @cached_property
    def indices(self) -> NDArray[Any]:  # type: ignore[override]
        return fetched(self._index).view(np.int32)

    def _of_leaves(self) -> bytes:
        of_rows, of_columns = (-(-count // _WORDS) for count in (self.n, self.nnz))
        leaves = of_rows + of_columns
        found = empty((leaves, LEAF_DIGEST // 8), np.uint64)
        numbers = [np.uint32(number) for number in (leaves, of_rows, self.n, self.nnz)]
        arrays = [self._pointer, self._index, to_device(_leaf_key()), found]
        kernel = load(_DIGEST, {}, device=cuda_device()).kernel("digest_leaves")
        kernel.launch(-(-leaves // _DIGESTING), _DIGESTING, [*numbers, *arrays])
        return found.get().tobytes()


def gather(
    data: DeviceArray, values: DeviceArray, begin: DeviceArray | None = None, source: DeviceArray | None = None
) -> None:
    """Queue the values, each the sum of some of the data, in another type where theirs is another."""
    if values.size:
        none = np.uint64(0)
        where = [none if one is None else one for one in (begin, source)]
        numbers = [type_of(data), type_of(values), np.uint32(values.size)]
        launch("gather_values", values.size, [*numbers, *where, data, values])


def largest_of(data: DeviceArray) -> float:
    """The largest magnitude of a real or imaginary part; not finite where one is not. Waits for the device."""
    if not data.size:
        return 0.0
    found = zeros(1, np.uint64)
    launch("measure_values", threads_for(data.size), [type_of(data), np.uint64(data.size), data, found])
    return float(found.get().view(np.float64)[0])


def _leaf_key() -> NDArray[np.uint64]:
    """BLAKE2b's parameter block of leaf 0, no last one, over the initial vector."""
    block = struct.pack("<BBBBIQBB14x16x16s", LEAF_DIGEST, 0, 0, 2, LEAF, 0, 0, LEAF_DIGEST, PERSON)
    found: NDArray[np.uint64] = _INITIAL ^ np.frombuffer(block, "<u8")
    return found


def threads_for(count: int) -> int:
    """Threads for a kernel that goes through so many in turns."""
    return min(count, _SUMMING * cuda_device().sms * _BLOCK)


def fetched(array: DeviceArray) -> NDArray[Any]:
    """A read-only copy in host memory; to page-lock that would take several times as long as the transfer saves."""
    found = array.get()
    found.flags.writeable = False
    return found


def type_of(array: DeviceArray) -> np.uint32:
    """The number of the type of values."""
    return np.uint32(VALUES[array.dtype.name])


def launch(name: str, threads: int, arguments: list[Any]) -> None:
    """Queue a kernel with so many threads."""
    load(_SOURCE, {}, device=cuda_device()).kernel(name).launch(-(-threads // _BLOCK), _BLOCK, arguments)
