"""The columns of a sparse matrix on the device, from its rows; or the other way round.

The entries of A^T in the order of its rows are those of A number source[0], source[1], ...; `source` is (nnz,). Within
a row of A^T they ascend, so that there is one order, whatever order the threads came in: counts and places are found by
atomics of integers, and each row is sorted afterwards. Kernels: ``transpose.cuh``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.memory import DeviceArray, empty, zeros
from akx.backends.cuda.program import C_TYPES

__all__ = ["counted", "rows_of", "running_sums", "take", "transposed"]

_SOURCE = Path(__file__).with_name("transpose.cu")
_BLOCK, _WARP = 256, 32
#: Numbers summed by a block: CHUNK of the kernels, four for each thread.
_CHUNK = 4 * _BLOCK
#: Threads that sort one long row, and entries from which on a row is one.
_LONG, _LONG_ROW = 1024, 2048
#: Bytes of shared memory: of a sum, (33,) numbers; of a team.
_SUM_BYTES, _TEAM_BYTES = 256, 1024


def transposed(pointer: DeviceArray, index: DeviceArray, columns: int) -> tuple[DeviceArray, DeviceArray]:
    """Pointer and source of the transpose.

    `pointer`, `index` (rows + 1,) and (nnz,) DeviceArray of uint32: of the matrix. `pointer, source` (columns + 1,) and
    (nnz,) DeviceArray of uint32: queued, not waited for.
    """
    entries = np.uint32(index.size)
    blocks = max(1, -(-index.size // _BLOCK))
    found = counted(index, columns + 1)
    running_sums(found)
    following, source = empty(columns + 1, np.uint32), empty(index.size, np.uint32)
    following.copy_from(found)
    _kernel("scatter_entries").launch(blocks, _BLOCK, [entries, index, following, source])
    far = zeros(columns + 1, np.uint32)
    one_each = -(-columns * _WARP // _BLOCK)
    _kernel("sort_rows").launch(one_each, _BLOCK, [np.uint32(columns), found, source, np.uint32(_LONG_ROW), far])
    _kernel("sort_long_rows").launch(cuda_device().sms, _LONG, [found, source, far], shared=_TEAM_BYTES)
    return found, source


def counted(index: DeviceArray, columns: int) -> DeviceArray:
    """Entries of each of so many columns, uint32."""
    found = zeros(columns, np.uint32)
    blocks = max(1, -(-index.size // _BLOCK))
    _kernel("count_entries").launch(blocks, _BLOCK, [np.uint32(index.size), index, found])
    return found


def running_sums(numbers: DeviceArray) -> None:
    """Each of (m,) numbers, uint32, becomes the sum of those before it; all of them add up to less than 2**32."""
    chunks = -(-numbers.size // _CHUNK)
    totals = empty(chunks, np.uint32)
    count = np.uint32(numbers.size)
    _kernel("sum_in_chunks").launch(chunks, _BLOCK, [count, numbers, totals], shared=_SUM_BYTES)
    _kernel("sum_of_chunks").launch(1, _BLOCK, [np.uint32(chunks), totals], shared=_SUM_BYTES)
    _kernel("add_to_chunks").launch(-(-numbers.size // _BLOCK), _BLOCK, [count, numbers, totals])


def rows_of(pointer: DeviceArray, entries: int) -> DeviceArray:
    """The row of each of `entries` entries, uint32, from the pointer of their rows, (rows + 1,)."""
    found, rows = empty(entries, np.uint32), pointer.size - 1
    _kernel("find_rows").launch(-(-rows * _WARP // _BLOCK), _BLOCK, [np.uint32(rows), pointer, found])
    return found


def take(values: DeviceArray, source: DeviceArray) -> DeviceArray:
    """``values[source]``, for values of uint32 or of a type of matrices."""
    found = empty(source.size, values.dtype)
    kernel = _kernel("take_each", values.dtype)
    kernel.launch(max(1, -(-source.size // _BLOCK)), _BLOCK, [np.uint32(source.size), source, values, found])
    return found


def _kernel(name: str, dtype: Any = np.uint32) -> Any:
    macros: dict[str, int | str] = {"AKX_VALUE": C_TYPES.get(np.dtype(dtype).name, "u32"), "AKX_LONG": _LONG}
    return load(_SOURCE, macros, device=cuda_device()).kernel(name)
