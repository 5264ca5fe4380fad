"""Result arrays: transposed, and used again once callers drop them.

The system hands out memory of megabytes page by page, each at the first access to it. That takes longer than the
products that fill it, where there are many start vectors. So the memory of a result stays when its last view is gone.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["KEPT_BYTES", "forget", "new_result", "rows_of", "turn"]

#: Bytes of a result from which its memory stays, and those that stay in all.
_LEAST_BYTES, KEPT_BYTES = 1 << 20, 1 << 29
#: Vectors up to which all entries are turned at once, and entries that are turned at once else.
_FEW, _TURNED = 8, 4096
#: The collector may give memory back at any moment, in any thread: single operations, and no lock.
_KEPT: deque[NDArray[np.uint8]] = deque(maxlen=4)


class _Memory:
    """What a result is a view of; when it goes, so that no view is left, its memory stays."""

    __slots__ = ("_octets",)

    def __init__(self, octets: NDArray[np.uint8]) -> None:
        self._octets = octets

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._octets.__array_interface__

    def __del__(self) -> None:
        if _KEPT is not None and self._octets.size <= KEPT_BYTES:  # it is None while Python ends
            _KEPT.append(self._octets)
            with suppress(IndexError):  # another thread makes room as well
                while sum(one.size for one in list(_KEPT)) > KEPT_BYTES:
                    _KEPT.popleft()


def new_result(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array of any content, C-contiguous."""
    nbytes = prod(shape) * dtype.itemsize
    if nbytes < _LEAST_BYTES:
        return np.empty(shape, dtype=dtype)
    memory = _Memory(_taken(nbytes))
    return np.asarray(memory).view(dtype).reshape(shape)


def turn(rows: NDArray[Any], into: NDArray[Any]) -> None:
    """into = rows.T, in pieces that stay in the nearest cache, where lines are read once."""
    few = min(rows.shape)
    if few <= _FEW:
        into[...] = rows.T
        return
    step = max(_TURNED // few, 32)
    for first in range(0, max(rows.shape), step):
        piece = slice(first, first + step)
        if into.shape[0] == few:
            into[:, piece] = rows[piece].T
        else:
            into[piece] = rows[:, piece].T


def rows_of(vectors: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Vectors (b, n) of a type, each contiguous; themselves where they are so."""
    if vectors.shape[0] <= _FEW or vectors.flags.c_contiguous:
        return np.ascontiguousarray(vectors, dtype=dtype)
    rows = np.empty(vectors.shape, dtype=dtype)
    turn(vectors.T, rows)
    return rows


def forget() -> None:
    """Free the memory that stays."""
    _KEPT.clear()


def _taken(nbytes: int) -> NDArray[np.uint8]:
    for _ in range(len(_KEPT)):
        try:
            one = _KEPT.popleft()
        except IndexError:  # another thread has it
            break
        if one.size == nbytes:
            return one
        _KEPT.append(one)
    return np.empty(nbytes, dtype=np.uint8)
