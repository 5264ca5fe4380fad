"""The Hermitian part (M + M^H) / 2 of a matrix on the device, from its rows and its columns.

Kernels: ``hermitian.cuh``. The pattern is that of M and M^H together; an entry that cancels stays in it, as zero.
Bytes: M twice, and the result; the indices once more to count.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.memory import DeviceArray, empty, zeros
from akx.backends.cuda.matrix import transpose
from akx.backends.cuda.program import C_TYPES
from akx.core.errors import InfeasibleError

__all__ = ["Compressed", "hermitian_part"]

_SOURCE = Path(__file__).with_name("hermitian.cu")
_BLOCK, _WARP = 256, 32

#: Pointer, index and values of compressed rows or columns: (n + 1,) and (nnz,) of uint32, (nnz,).
Compressed = tuple[DeviceArray, DeviceArray, DeviceArray]


def hermitian_part(rows: Compressed, columns: Compressed) -> Compressed:
    """The rows of (M + M^H) / 2.

    `rows`, `columns`: M by rows and by columns, ascending in each. Raises :class:`InfeasibleError` where it might have
    2**32 entries.
    """
    if 2 * rows[1].size >= 2**32:
        raise InfeasibleError("the matrix is too large for the device", hint="use backend='cpu'")
    n, kind = rows[0].size - 1, rows[2].dtype
    macros: dict[str, int | str] = {"AKX_VALUE": C_TYPES[kind.name]}
    kernel = load(_SOURCE, macros, device=cuda_device()).kernel("merge_each")
    grid, null = -(-n * _WARP // _BLOCK), np.uint64(0)
    start = zeros(n + 1, np.uint32)
    given: list[Any] = [np.uint32(n), *rows, *columns, start]
    kernel.launch(grid, _BLOCK, [*given, null, null])
    transpose.running_sums(start)
    entries = int(start.view(n, (1,)).get()[0])
    index, values = empty(entries, np.uint32), empty(entries, kind)
    kernel.launch(grid, _BLOCK, [*given, index, values])
    return start, index, values
