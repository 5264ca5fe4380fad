"""Whether the plans of a file may have changed since a moment: cheap enough to ask on every call.

Changes by this process are counted; those by others show in the file or in its write-ahead log (size or time).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Hashable
from pathlib import Path

from akx.core.fork_safety import ForkSafeLock

__all__ = ["count_change", "file_stamp", "generation", "is_settled"]

_CHANGES: Counter[Hashable] = Counter()
_LOCK = ForkSafeLock()
#: Nanoseconds within which two changes may have the same time: clocks of file systems are coarse, some of a second.
_COARSE = 2_000_000_000


def count_change(place: Hashable) -> None:
    """Say that this process has changed the plans of the file or on the server at `place`."""
    with _LOCK:
        _CHANGES[place] += 1


def generation(place: Hashable) -> int:
    """How often this process has changed the plans at `place`; well below a microsecond."""
    return _CHANGES[place]


def file_stamp(path: Path) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What differs after another process has changed the file or its log; some microseconds.

    An empty log counts as none: SQLite makes and removes those as the file is opened and closed.
    """
    return _stamp(path), _stamp(f"{path}-wal")


def _stamp(path: str | Path) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return (status.st_ino, status.st_size, status.st_mtime_ns) if status.st_size else ()


def is_settled(stamp: tuple[tuple[int, ...], ...]) -> bool:
    """Whether the next change is sure to give another stamp: the last one was long enough ago, by our own clock."""
    latest = time.time_ns() - _COARSE
    return all(part[2] < latest for part in stamp if part)
