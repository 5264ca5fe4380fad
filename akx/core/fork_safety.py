"""What a forked child must not inherit: locks that threads of the parent hold, and the locks of files.

A child has the thread that forked and no other, so a lock that another thread held would never be let go of. Every lock
of akx is a :class:`ForkSafeLock`, which a child finds free. What such a lock guards is right at every moment: it is
changed in one assignment, or marked as missing first.

A file's lock belongs to the open file, which a child shares with its parent: it would last until both have closed it.
:func:`lock_file` and :func:`unlock_file` see to that.

The compiler's locks are Numba's, and what they guard is half made while they are held. So a fork waits for them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import weakref
from typing import Any

if sys.platform != "win32":
    import fcntl

__all__ = ["ForkSafeLock", "lock_file", "unlock_file"]

#: Seconds that a fork waits for a compilation in another thread.
_PATIENCE = 60.0

_RLock: Any = type(threading.RLock())


class ForkSafeLock(_RLock):  # type: ignore[misc]
    """A ``threading.RLock`` that a forked child finds free, unless the thread that forked holds it."""

    def __init__(self) -> None:
        _LOCKS.add(self)

    def _free(self) -> None:
        """In a child: let go of what a thread of the parent holds."""
        if self.acquire(blocking=False):
            self.release()
        else:
            self._at_fork_reinit()


_LOCKS: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()
#: Files that are locked: the descriptor of each, and what tells it from a later file of that number.
_FILES: dict[int, tuple[int, int]] = {}
#: Where the compiler has its locks, in the order in which it takes them, and those that a fork holds.
_COMPILERS = (
    ("numba.core.compiler_lock", ("global_compiler_lock", "_lock")),
    ("llvmlite.binding.ffi", ("lib", "_lock", "_lock")),
)
_COMPILING = threading.local()


def lock_file(descriptor: int, *, wait: bool = False) -> None:
    """Take the lock of an open file for this process alone.

    Raises BlockingIOError where another holds it, unless that is waited for, and OSError on a file system without
    locks. Windows has but locks that are waited for.
    """
    if sys.platform == "win32":
        import msvcrt

        if wait:
            msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
    else:
        _FILES[descriptor] = _identity(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BaseException:
            _FILES.pop(descriptor, None)
            raise


def unlock_file(descriptor: int) -> None:
    """Let go of the lock, before the file is closed: children that have the file open do not keep it."""
    if sys.platform != "win32" and descriptor in _FILES:
        del _FILES[descriptor]
        with contextlib.suppress(OSError):  # there was none
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _before() -> None:
    _COMPILING.locks = []
    for module, path in _COMPILERS:
        lock: Any = sys.modules.get(module)
        for name in path:
            lock = getattr(lock, name, None)
        if lock is not None and lock.acquire(timeout=_PATIENCE):
            _COMPILING.locks.append(lock)


def _after() -> None:
    while held := getattr(_COMPILING, "locks", None):
        held.pop().release()


def _in_child() -> None:
    _after()
    for lock in list(_LOCKS):
        lock._free()
    while _FILES:  # the file is the parent's: here its number stands for none
        descriptor, identity = _FILES.popitem()
        with contextlib.suppress(OSError):
            if _identity(descriptor) == identity:
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, descriptor, inheritable=False)
                os.close(nothing)
    if sys.version_info < (3, 12):
        _renew_cached_properties()


def _renew_cached_properties() -> None:
    """Until Python 3.12 a cached property has a lock, which is held while any object's value is computed."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("akx.")]
    kinds = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    for value in [value for kind in kinds for value in vars(kind).values()]:
        if isinstance(value, functools.cached_property) and hasattr(value, "lock"):
            value.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
