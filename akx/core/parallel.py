"""Loops over a range in pieces, by several threads: compiled loops that release the interpreter.

What is prepared beside calls of a user (:mod:`akx.tuner.online.exploration`) leaves the other cores to these: its
thread does all pieces, with the same result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from itertools import pairwise
from typing import TypeVar

from akx.core.numba_jit import named_threads
from akx.core.process import available_cores

__all__ = ["alone", "in_pieces", "is_alone"]

#: Threads at most.
_MOST = 16

Found = TypeVar("Found")

_IS_ALONE: ContextVar[bool] = ContextVar("akx.alone", default=False)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Within, this thread has no help: what is shared among threads it does by itself."""
    before = _IS_ALONE.set(True)
    try:
        yield
    finally:
        _IS_ALONE.reset(before)


def is_alone() -> bool:
    """Whether this thread has no help."""
    return _IS_ALONE.get()


def in_pieces(work: Callable[[int, int], Found], count: int, least: int, *, threads: int | None = None) -> list[Found]:
    """What `work` finds from one number to another, for pieces of `least` or more that together are 0 to `count`.

    There are no more of them than `threads`, the caller's included; by default than this process has cores, and than
    ``NUMBA_NUM_THREADS`` says.
    """
    pieces = min(count // max(least, 1), threads or min(named_threads() or _MOST, _MOST))
    if pieces > 1 and threads is None:
        pieces = min(pieces, available_cores())
    if pieces <= 1 or is_alone():
        return [work(0, count)]
    first, *others = pairwise(count * piece // pieces for piece in range(pieces + 1))
    with ThreadPoolExecutor(len(others)) as pool:
        rest = [pool.submit(work, *piece) for piece in others]
        return [work(*first), *(one.result() for one in rest)]
