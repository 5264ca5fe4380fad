"""Work on pieces of a range side by side: compiled loops that let others run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from akx._numba import named_threads
from akx._process import available_cores

__all__ = ["in_pieces"]

#: Threads at most.
_MOST = 16

Found = TypeVar("Found")


def in_pieces(work: Callable[[int, int], Found], count: int, least: int) -> list[Found]:
    """What `work` finds from one number to another, for pieces of `least` or more that together are 0 to `count`.

    There are no more of them than this process has cores, and than ``NUMBA_NUM_THREADS`` says.
    """
    pieces = min(count // max(least, 1), named_threads() or _MOST, _MOST)
    pieces = min(pieces, available_cores()) if pieces > 1 else 1
    if pieces == 1:
        return [work(0, count)]
    cuts = [count * piece // pieces for piece in range(pieces + 1)]
    with ThreadPoolExecutor(pieces) as pool:
        return list(pool.map(work, cuts[:-1], cuts[1:]))
