"""Loops over the rows of a layout, shared among threads: they compute nothing that another share needs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from akx.partition.pieces import is_alone

__all__ = ["in_shares"]

#: Chunks or slices in a share at least: starting a thread takes as long as laying out so many.
_LEAST = 64


def in_shares(function: Callable[..., Any], count: int, threads: int, *arguments: Any) -> list[Any]:
    """function(*arguments, first, last) for shares first..last of range(count), and what each of them gave, in order.

    Parameters
    ----------
    function : callable
        Compiled without the GIL.
    count : int
        Chunks, slices, groups of rows.
    threads : int
        The caller's included.
    """
    used = 1 if is_alone() else max(1, min(threads, count // _LEAST))
    ends = [count * share // used for share in range(used + 1)]
    if used == 1:
        return [function(*arguments, 0, count)]
    with ThreadPoolExecutor(used - 1) as others:
        rest = [others.submit(function, *arguments, first, last) for first, last in pairwise(ends[1:])]
        return [function(*arguments, 0, ends[1]), *(one.result() for one in rest)]
