"""A lock that a forked child finds free: whoever held it is a thread of the parent, and not there."""

from __future__ import annotations

import os
import threading
from types import TracebackType

__all__ = ["ForkSafeLock"]


class ForkSafeLock:
    """A reentrant lock of one process; after a fork the child has one of its own."""

    def __init__(self) -> None:
        self._lock, self._pid = threading.RLock(), os.getpid()

    def acquire(self, timeout: float = -1) -> bool:
        """Take it, waiting for so many seconds at most; -1 for as long as it takes. Gives whether it was had."""
        if self._pid != os.getpid():
            self._lock, self._pid = threading.RLock(), os.getpid()  # a child begins with one thread
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        """Let go of it."""
        self._lock.release()

    def __enter__(self) -> ForkSafeLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
