"""Garbage collection switched off for a while: where a clock runs, or freed memory would spoil a recording."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["nothing_collected"]


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Hold the collector of reference cycles back within the block; what has no names left is freed all the same."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
