"""The rows of a matrix by levels, and the matrix in that order: made on the device, where there is one.

The order is that of :func:`akx.partition.levels.levels`, to the bit, in one cooperative launch (``level_order.cuh``);
P A P^T is a matrix of the device, like any (``permuted.cuh``). The host is told the number of levels.

Bytes: of each search, of which there are four or five, three times the pattern; 28 a row besides. Of P A P^T 16 an
entry. A level takes some microseconds at least.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import cuda_device, cuda_missing
from akx.backends.cuda.device.memory import DeviceArray, empty, to_device, zeros
from akx.backends.cuda.matrix.device_matrix import Arrays, DeviceMatrix, sent_pattern
from akx.backends.cuda.matrix.transpose import rows_of, running_sums, take, transposed
from akx.backends.pattern_cache import per_pattern
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.partition.level_order import LevelOrder, is_shallow
from akx.partition.levels import levels
from akx.partition.permutation import permute

__all__ = [
    "FEWEST",
    "KNOWN",
    "Permuted",
    "by_levels",
    "ordered_there",
    "permuted",
    "rows_by_levels",
    "sent",
    "sent_by_levels",
]

_ORDERING, _PERMUTING = (Path(__file__).with_name(f"{name}.cu") for name in ("level_order", "permuted"))
_BLOCK, _WARP = 256, 32
#: Threads of a block that orders, and rows of a level up to which one goes on alone.
_THREADS, _ALONE = 512, 1024
#: Words of the kernel's state, and where it says what it has found.
_STATE, _LEVELS, _REFUSED = 16, 8, 11
#: Parts that are not connected, at most: each takes a tenth of a millisecond.
_MOST_COMPONENTS = 4096
#: Levels, at most: each takes 8 microseconds or more, in up to six searches (a path of a million rows: half a minute).
_MOST_LEVELS = 1 << 14
#: A graph with fewer levels is no mesh: an order by levels brings little that is read together near.
FEWEST = 24
#: Where a pattern that is in the order of its levels has these.
KNOWN = "akx.backends.cuda.matrix.level_order.known"
#: Where a matrix has itself in that order.
_BY_LEVELS = "akx.backends.cuda.matrix.level_order.by_levels"


def by_levels(matrix: Matrix) -> Matrix:
    """P A P^T by levels, kept with A: on the device where A is, or where there is one; its levels are known.

    Raises :class:`InfeasibleError` where there are too few levels or too many, or indices of 64 bits.
    """
    if matrix.on_device is not None or cuda_missing() is None:
        return sent_by_levels(matrix).matrix
    found: Matrix | None = matrix.cache.get(_BY_LEVELS)
    if found is None:
        permutation, level_ptr = rows_by_levels(matrix)
        indptr, indices, entries = permute(matrix.indptr, matrix.indices, permutation)
        known = {KNOWN: LevelOrder(level_ptr, 0)}
        found = Matrix(indptr, indices, matrix.data[entries], pattern_cache=known, value_error=matrix.value_error)
        matrix.cache[_BY_LEVELS] = found
    return found


def sent_by_levels(matrix: Matrix, *, keep: bool = True) -> Permuted:
    """The same on the device, with all that leads there; with `keep` it is kept with A, else no longer."""
    found: Permuted | None = matrix.cache.get(_BY_LEVELS)
    if found is None:
        permutation, level_ptr = rows_by_levels(matrix)
        there = matrix if matrix.on_device is not None else sent(matrix)
        found = permuted(there, to_device(permutation.astype(np.uint32)))
        found.matrix.pattern_cache[KNOWN] = LevelOrder(level_ptr, 0)
    if keep:
        matrix.cache[_BY_LEVELS] = found
    else:
        matrix.cache.pop(_BY_LEVELS, None)
    return found


def sent(matrix: Matrix) -> DeviceMatrix:
    """A matrix of the host on the device; nothing is known of it there."""
    arrays = Arrays(*sent_pattern(matrix), to_device(matrix.data))
    return DeviceMatrix(arrays, pattern_cache={}, largest=matrix.largest, value_error=matrix.value_error)


@per_pattern
def rows_by_levels(matrix: Matrix) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows by levels, ``order[new] = old``, (n,), and where levels end, (levels + 1,); found where the matrix is.

    Raises :class:`InfeasibleError` where there are too few levels or too many, or indices of 64 bits.
    """
    few = InfeasibleError("breadth-first levels are too few, too many, or in many parts", expected=f"at least {FEWEST}")
    if matrix.index_dtype != np.int32:
        raise InfeasibleError("orders on the device have indices of 32 bits")
    if matrix.on_device is not None or cuda_missing() is None:
        there = ordered_there(*(sent_pattern(matrix) if matrix.on_device is None else matrix.on_device[:2]))
        if there is None:
            raise few
        return there.order.get().astype(np.int64), there.level_ptr
    if is_shallow(matrix.indptr, matrix.indices, FEWEST // 2):
        raise few
    found = levels(matrix.indptr, matrix.indices)
    return found.permutation, found.level_ptr


class Permuted(NamedTuple):
    """P A P^T on the device: ``order[new] = old``, ``place[old] = new``, and which entry of A each entry is."""

    matrix: DeviceMatrix
    order: DeviceArray
    place: DeviceArray
    source: DeviceArray


class _Ordered(NamedTuple):
    """``order[new] = old``, (n,), on the device, and where levels end, (levels + 1,)."""

    order: DeviceArray
    level_ptr: NDArray[np.int64]


def ordered_there(
    pointer: DeviceArray,
    column: DeviceArray,
    fewest: int = FEWEST,
    components: int = _MOST_COMPONENTS,
    deepest: int = _MOST_LEVELS,
) -> _Ordered | None:
    """The rows of a canonical pattern by levels; None where there are too few or many, or too many parts of the graph.

    `pointer`, `column` (n + 1,) and (nnz,) DeviceArray of uint32. `fewest`: levels that half of all rows have to make.
    `deepest`: levels from which on there are too many.
    """
    n = pointer.size - 1
    across = _transposed_where_another(pointer, column)
    kernel = load(_ORDERING, {"AKX_THREADS": _THREADS, "AKX_ALONE": _ALONE}, device=cuda_device()).kernel(
        "order_by_levels"
    )
    blocks = max(1, min(kernel.most_blocks(_THREADS), 2 * cuda_device().sms, -(-n // _THREADS)))
    kept, ends, state = (zeros(count, np.uint32) for count in (n, n + 2, _STATE))
    order, counts, sums = empty(n, np.uint32), empty(n, np.uint32), empty(blocks, np.uint32)
    arguments = [np.uint32(n), pointer, column, *across, kept, order, counts, ends, sums, state, zeros(3, np.uint64)]
    kernel.launch(
        blocks, _THREADS, [*arguments, np.uint32(fewest), np.uint32(components), np.uint32(deepest)], cooperative=True
    )
    told = state.get()
    if told[_REFUSED]:
        return None
    return _Ordered(order, ends.view(0, (int(told[_LEVELS]) + 1,)).get().astype(np.int64))


def _transposed_where_another(pointer: DeviceArray, column: DeviceArray) -> list[Any]:
    """Pointer and columns of A^T; two null pointers where they are those of A."""
    n, none = pointer.size - 1, np.uint64(0)
    across, source = transposed(pointer, column, n)
    rows = take(rows_of(pointer, column.size), source)
    same = zeros(1, np.uint32)
    for one, other in ((pointer, across), (column, rows)):
        if one.size:
            arguments = [np.uint32(one.size), one, other, same]
            _permuting("tell_difference").launch(-(-one.size // _BLOCK), _BLOCK, arguments)
    return [across, rows] if same.get()[0] else [none, none]


def permuted(matrix: Matrix, order: DeviceArray) -> Permuted:
    """A matrix that is on the device in an order, ``order[new] = old``, (n,), DeviceArray of uint32."""
    arrays: Arrays = matrix.on_device
    pointer, column, data = arrays
    n, rows = matrix.n, np.uint32(matrix.n)
    place, start = empty(n, np.uint32), empty(n + 1, np.uint32)
    _permuting("invert_order").launch(-(-n // _BLOCK), _BLOCK, [rows, order, place])
    _permuting("measure_rows").launch(-(-(n + 1) // _BLOCK), _BLOCK, [rows, order, pointer, start])
    is_long = longest_of(start) > _WARP
    running_sums(start)
    made, source = empty(column.size, np.uint32), empty(column.size, np.uint32)
    keys: Any = empty(column.size, np.uint64) if is_long else np.uint64(0)
    arguments = [rows, order, place, pointer, column, start, made, source, keys]
    _permuting("permute_rows").launch(-(-n * _WARP // _BLOCK), _BLOCK, arguments)
    values = take(data, source) if column.size else data
    found = Arrays(start, made, values)
    cache: dict[Any, Any] = {}
    there = DeviceMatrix(found, pattern_cache=cache, largest=matrix.largest, value_error=matrix.value_error)
    return Permuted(there, order, place, source)


def longest_of(lengths: DeviceArray) -> int:
    """The largest of some numbers of uint32."""
    found = zeros(1, np.uint32)
    _permuting("find_longest").launch(-(-lengths.size // _BLOCK), _BLOCK, [np.uint32(lengths.size), lengths, found])
    return int(found.get()[0])


def _permuting(name: str) -> Any:
    return load(_PERMUTING, {}, device=cuda_device()).kernel(name)
