"""Loops over the rows of a layout, shared among threads: they compute nothing that another share needs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from akx.core.parallel import in_pieces

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
    return in_pieces(partial(function, *arguments), count, _LEAST, threads=threads)
