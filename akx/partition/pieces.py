"""Work on pieces of a range side by side: compiled loops that let others run."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_pieces"]

#: Threads at most.
_MOST = 16

Found = TypeVar("Found")


def in_pieces(work: Callable[[int, int], Found], count: int, least: int) -> list[Found]:
    """What `work` finds from one number to another, for pieces of `least` or more that together are 0 to `count`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    pieces = max(1, min(count // max(least, 1), cores, _MOST))
    if pieces == 1:
        return [work(0, count)]
    cuts = [count * piece // pieces for piece in range(pieces + 1)]
    with ThreadPoolExecutor(pieces) as pool:
        return list(pool.map(work, cuts[:-1], cuts[1:]))
