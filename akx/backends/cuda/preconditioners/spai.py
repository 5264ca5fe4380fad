"""The sparse approximate inverse on the device: what :mod:`akx.solvers.preconditioners.columns` computes on the host.

Everything is done there: A comes as it is, in CSR, and M goes back in CSR.

1. the columns of A (:mod:`akx.backends.cuda.matrix.transpose`), and a power of two that scales each of them;
2. the pattern of M by `factor`, or the one that is given;
3. how many entries the columns J of each local problem have, and from that, by sorting, its n1 and n2;
4. the local problems, class by class, the largest first;
5. the rows of M.

A class is a number of threads that solve one problem, and of bytes that they have for it. Problems of up to 8 KiB are a
warp's, several of which share a block; those that fit the shared memory of a block are solved by 256 threads, others by
512, in device memory. There a block keeps its place for one problem after another: the workspace grows with the
number of blocks, two for each multiprocessor, not with that of columns, and no launch has to be cut in batches. Less
memory means fewer blocks. (The thesis, sec. 5.3.2, gives every column of a launch a place for the largest problem, and
cuts the columns into launches; its warps orthogonalise by Gram-Schmidt, in device memory.)

Bytes: A with nnz entries of w bytes is there twice, (8 + 2 w) nnz, with 4 nnz for where entries come from; M likewise;
28 for each row besides. Flops: 2 n2^2 (n1 - n2/3) for each column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.memory import DeviceArray, empty, to_device, zeros
from akx.backends.cuda.matrix import transpose
from akx.backends.cuda.preconditioners.hermitian import hermitian_part
from akx.backends.cuda.program import C_TYPES
from akx.core.errors import BudgetError, InfeasibleError
from akx.core.matrix import Matrix

__all__ = ["CLASSES", "Inverse", "approximate_inverse"]

_SOURCE = Path(__file__).with_name("spai.cu")
_BLOCK, _WARP = 256, 32
#: Blocks for each multiprocessor that work in device memory.
_OUTSIDE = 2
#: Shared memory that a block of one team keeps for itself: TEAM_BYTES of the kernels.
_TEAM_BYTES = 1024
_KIB = 1024
#: Threads of a team, bytes for its problem (0: all the shared memory there is), and whether that is shared memory.
CLASSES = (
    (32, 1 * _KIB, True),
    (32, 2 * _KIB, True),
    (32, 4 * _KIB, True),
    (32, 8 * _KIB, True),
    (256, 16 * _KIB, True),
    (256, 32 * _KIB, True),
    (256, 64 * _KIB, True),
    (256, 0, True),
    (512, 1024 * _KIB, False),
    (512, 8 * 1024 * _KIB, False),
    (512, 64 * 1024 * _KIB, False),
    (512, 2**62, False),
)
#: Bytes of shared memory that counting in classes takes.
_COUNTING = 16 * len(CLASSES)
_NULL = np.uint64(0)


@dataclass(frozen=True)
class Inverse:
    """What was found, on the host.

    `indptr`, `indices`, `data`: M in CSR, of the matrix's type: columns ascending, all values finite, as
    :class:`akx.Matrix` has it. `misfit` (n,) float64: ||A m_k - e_k||^2. `largest`: the largest n1 and n2. `lost`,
    `empty`: entries beyond the range of numbers, for which 0 stands, and columns without an entry other than 0.
    """

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[Any]
    misfit: NDArray[np.float64]
    largest: tuple[int, int]
    lost: int
    empty: int


def approximate_inverse(
    matrix: Matrix,
    *,
    factor: float = 0.0,
    pattern: tuple[NDArray[Any], NDArray[Any]] | None = None,
    symmetric: bool = False,
    memory: int | None = None,
    told: Callable[[str], object] | None = None,
) -> Inverse:
    """M in a pattern taken from A, or in one that is given.

    `factor`: m_ik may be other than zero where |a_ik| > factor max_j |a_ij|, and on the diagonal. `pattern` ((n + 1,),
    (nnz of M,)) arrays of integers: instead of `factor`: pointer and rows, ascending in each column. `symmetric`: of
    what was found, (M + M^H) / 2 is the answer. `memory`: most bytes of device memory that local problems may take,
    which do not fit shared memory; by default a quarter of the device's. `told`: called with the name of each part of
    the work when it has been queued. Raises :class:`BudgetError` where one local problem does not fit `memory`. Raises
    :class:`DeviceMemoryError` where the device has not that much left. Raises :class:`InfeasibleError` where A and M
    have 2**32 entries or more.
    """
    n, kind = matrix.n, matrix.dtype
    if matrix.nnz + n >= 2**32 or n >= 2**31 or (pattern is not None and pattern[1].size >= 2**32):
        raise InfeasibleError("the matrix is too large for the device", hint="use backend='cpu'")
    memory = cuda_device().memory_bytes // 4 if memory is None else memory
    warps, count = _blocks_of_warps(n), np.uint32(n)
    say = told or (lambda part: None)

    # 1. A by rows and by columns
    start, row, values, sizes, most, scale = _columns_of(matrix, say)
    say("columns of A")

    # 2. the pattern of M
    if pattern is None:
        kept_start, kept = _large_entries(n, kind, [count, start, row, values, sizes, most, np.float64(factor)])
    else:
        kept_start, kept = _numbers(pattern[0]), _numbers(pattern[1])
    del sizes, most
    say("pattern")

    # 3. sizes of the local problems
    need, n1 = empty(n, np.uint64), empty(n, np.uint32)
    where = [start, row]
    _kernel("count_reached", kind).launch(warps, _BLOCK, [count, start, kept_start, kept, need])
    following = empty(n, np.uint64)
    _in_classes("measure_columns", kind, n, need, memory, [*where, kept_start, kept, n1, following])
    rows, columns = n1.get(), np.diff(kept_start.get())
    say("sizes")

    # 4. the local problems
    result, misfit, odd = empty(kept.size, kind), empty(n, np.float64), empty(2, np.uint32)
    odd.fill_bytes(0)
    tolerance = np.float64(10 * float(np.finfo(np.float64).eps) * float(np.sqrt(max(1, rows.max()))))
    solving = [*where, values, scale, kept_start, kept, n1, tolerance, result, misfit, odd]
    _in_classes("solve_columns", kind, n, following, memory, solving)
    del values, row, start, where, solving
    say("local problems")

    # 5. the rows of M
    pointer, source = transpose.transposed(kept_start, kept, n)
    index = transpose.take(transpose.rows_of(kept_start, kept.size), source)
    data = transpose.take(result, source)
    if symmetric:
        pointer, index, data = hermitian_part((pointer, index, data), (kept_start, kept, result))
    say("rows of M")
    lost, without = (int(number) for number in odd.get())
    largest = int(rows.max()), int(columns.max())
    narrow = max(n, index.size) < 2**31
    indptr, indices = (one.get().view(np.int32) if narrow else one.get().astype(np.int64) for one in (pointer, index))
    found = Inverse(indptr, indices, data.get(), misfit.get(), largest, lost, without)
    say("copy M")
    return found


def _columns_of(matrix: Matrix, say: Callable[[str], object]) -> tuple[Any, ...]:
    """A by columns: pointer, rows, values, their sizes (null where real); and the largest size of each row and column.

    The largest of a column is rounded to the power of two that scales it.
    """
    n, kind, warps = matrix.n, matrix.dtype, _blocks_of_warps(matrix.n)
    by_row, column = _numbers(matrix.indptr), _numbers(matrix.indices)
    values = to_device(matrix.data)
    say("copy A")
    is_complex = kind.kind == "c"
    sizes: Any = to_device(np.abs(matrix.data.astype(np.complex128))) if is_complex else _NULL
    most, scale = empty(n, np.float64), empty(n, np.float64)
    _kernel("largest_sizes", kind).launch(warps, _BLOCK, [np.uint32(n), by_row, values, sizes, most, _NULL])
    start, source = transpose.transposed(by_row, column, n)
    row = transpose.take(transpose.rows_of(by_row, matrix.nnz), source)
    values = transpose.take(values, source)
    sizes = transpose.take(sizes, source) if is_complex else _NULL
    _kernel("largest_sizes", kind).launch(warps, _BLOCK, [np.uint32(n), start, values, sizes, _NULL, scale])
    return start, row, values, sizes, most, scale


def _large_entries(n: int, kind: np.dtype[Any], given: list[Any]) -> tuple[DeviceArray, DeviceArray]:
    """Pointer and rows of the entries that the pattern of M has, counted first and then listed."""
    start, warps = zeros(n + 1, np.uint32), _blocks_of_warps(n)
    _kernel("keep_entries", kind).launch(warps, _BLOCK, [*given, start, _NULL])
    transpose.running_sums(start)
    kept = empty(int(start.view(n, (1,)).get()[0]), np.uint32)
    _kernel("keep_entries", kind).launch(warps, _BLOCK, [*given, start, kept])
    return start, kept


def _blocks_of_warps(n: int) -> int:
    """Blocks in which each of n rows or columns has a warp."""
    return -(-n * _WARP // _BLOCK)


def _in_classes(name: str, kind: np.dtype[Any], n: int, need: DeviceArray, memory: int, arguments: list[Any]) -> None:
    """Queue a kernel for all columns, class by class of the bytes they `need`, those that need most first."""
    device = cuda_device()
    shared = device.shared_per_block - _TEAM_BYTES
    limits = to_device(np.array([bytes_ or shared for _, bytes_, _ in CLASSES], dtype=np.uint64))
    classes, blocks = np.uint32(len(CLASSES)), -(-n // _BLOCK)
    count, most = empty(len(CLASSES), np.uint32), empty(len(CLASSES), np.uint64)
    count.fill_bytes(0)
    most.fill_bytes(0)
    given = [np.uint32(n), need, classes, limits]
    _kernel("count_in_classes", kind).launch(blocks, _BLOCK, [*given, count, most], shared=_COUNTING)
    counts, largest = count.get().astype(np.int64), most.get()
    if int(largest.max()) > memory and any(counts[c] and not CLASSES[c][2] for c in range(len(CLASSES))):
        raise _too_large(need, memory)
    first = np.concatenate([[0], np.cumsum(counts)])
    following, columns = to_device(first[:-1].astype(np.uint32)), empty(n, np.uint32)
    _kernel("list_by_class", kind).launch(blocks, _BLOCK, [*given, following, columns], shared=_COUNTING)
    for c in reversed(range(len(CLASSES))):
        if counts[c] == 0:
            continue
        team, _, inside = CLASSES[c]
        own = columns.view(int(first[c]), (int(counts[c]),))
        room = -(-int(largest[c]) // 16) * 16
        head: list[Any] = [np.uint32(counts[c]), own, np.uint64(room)]
        kernel = _kernel(name, kind, team)
        if inside:
            teams = _BLOCK // _WARP if team == _WARP else 1
            bytes_ = teams * room + (_TEAM_BYTES if team > _WARP else 0)
            grid = -(-int(counts[c]) // teams)
            kernel.launch(grid, teams * team, [*head, _NULL, _NULL, *arguments], shared=bytes_)
        else:
            working = max(1, min(int(counts[c]), _OUTSIDE * device.sms, memory // room))
            places, queue = empty(working * room, np.uint8), empty(1, np.uint32)
            queue.fill_bytes(0)
            kernel.launch(working, team, [*head, places, queue, *arguments], shared=_TEAM_BYTES)


def _too_large(need: DeviceArray, memory: int) -> BudgetError:
    wanted = need.get()
    widest = int(np.argmax(wanted))
    found = int(wanted[widest])
    return BudgetError(
        f"the local problem of column {widest} does not fit the memory given to them",
        expected=f"{memory} bytes or less",
        found=f"{found} bytes" if found < 2**62 else "more than can be counted",
        hint="lower tau, pass most=100 or so to bound the entries of a column, or raise memory",
    )


def _numbers(array: NDArray[Any]) -> DeviceArray:
    """Indices on the device, as uint32."""
    return to_device(array.view(np.uint32) if array.dtype == np.int32 else array.astype(np.uint32))


def _kernel(name: str, kind: np.dtype[Any], team: int = _WARP) -> Any:
    macros: dict[str, int | str] = {"AKX_VALUE": C_TYPES[kind.name], "AKX_TEAM": team}
    return load(_SOURCE, macros, device=cuda_device()).kernel(name)
