"""One measurement at a time on a device, among the processes and threads of one user on one host.

Who measures holds the lock of the device, an empty file on which the operating system keeps a lock; preparing and
compiling go on beside it. The system frees the lock of a process that dies, however it dies. Taking and leaving it
costs some microseconds.

Waiting is told of after a few seconds. Who has waited for two minutes, or for a quarter of what a tuning may take, goes
on without the lock, with a warning: a measurement takes seconds, so that the holder is likely stopped or stuck; and
figures of the tuner are ratios of calls timed in turn, which a neighbour slows alike. An error would cost the plan, the
disturbance costs precision. A measurement that need not be made (:meth:`DeviceLock.in_passing`) waits for a moment,
says nothing and is not made beside another.

Files are in ``AKX_LOCK_DIR``, else in a folder of the user's in ``/tmp``, whatever folders a session or a job has for
itself (``XDG_RUNTIME_DIR``, ``TMPDIR``). Processes in containers see one another only where they share that folder.
Where there are no such locks (Windows), nobody waits.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from akx.backends.device import Device
from akx.core.errors import AkxWarning
from akx.core.fork_safety import ForkSafeLock

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["DeviceBusyWarning", "DeviceLock", "device_lock"]

#: Seconds of waiting after which it is told of, and after which one goes on without the lock.
_TOLD, _PATIENCE = 3.0, 120.0
#: Seconds that are waited for a lock that was not to be had in that time before.
_STUCK_PATIENCE = 0.1
#: Seconds between two looks at a lock that is held.
_PAUSE = 2e-3
_DIGITS = 10
#: Where all users of a POSIX system may write.
_TEMPORARY = "/tmp"


class DeviceBusyWarning(AkxWarning):
    """Another process measures on the same device, or the lock that would tell cannot be used."""


class DeviceLock:
    """The lock of one device.

    Parameters
    ----------
    identity : str
        What the device is called on this host: see :attr:`akx.backends.device.Device.identity`.
    patience : float
        Seconds after which one goes on without the lock.
    """

    def __init__(self, identity: str, *, patience: float = _PATIENCE) -> None:
        self.identity = identity
        self.patience = patience
        self.path = _folder() / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.lock"
        self._descriptor: int | None = None
        self._is_stuck = self._is_busy = False
        self._is_broken = fcntl is None
        self._forget()
        _LOCKS.add(self)

    def _forget(self) -> None:
        """Begin anew, as a process does that was forked: it holds no lock of its parent's."""
        self._turn = threading.RLock()
        self._depth = 0

    @contextlib.contextmanager
    def alone(self, patience: float | None = None) -> Iterator[bool]:
        """While it lasts nobody else measures on the device; gives whether that is sure. A thread may nest it.

        Parameters
        ----------
        patience : float, optional
            Seconds after which one goes on without the lock, where that is less than the lock's own.
        """
        patience = self.patience if patience is None else min(patience, self.patience)
        deadline = time.monotonic() + (_STUCK_PATIENCE if self._is_stuck else patience)
        turn = self._turn
        if not turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
            _tell(f"goes on beside another thread that has been measuring on {self.identity} for a long time")
            yield False
            return
        try:
            if self._depth:
                yield True
                return
            is_locked = self._take(deadline, patience)
            with self._holding(is_locked):
                yield is_locked
        finally:
            turn.release()

    @contextlib.contextmanager
    def in_passing(self, patience: float) -> Iterator[bool]:
        """The same for a measurement that need not be made: gives whether it may be.

        Nobody is told of anything, and nobody who comes later goes on without the lock because it was not to be had
        here. Where there are no locks it may be made.

        Parameters
        ----------
        patience : float
            Seconds after which it may not; a tenth of a second where the lock was not to be had the last time.
        """
        deadline = time.monotonic() + (min(_STUCK_PATIENCE, patience) if self._is_busy else patience)
        turn = self._turn
        if not turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
            self._is_busy = True
            yield False
            return
        try:
            if self._depth:
                yield True
                return
            is_locked, is_free = False, True
            if not self._is_broken:
                with contextlib.suppress(OSError):  # there are no locks: whoever needs one will say so
                    is_locked = is_free = self._wait(deadline)
            if not is_free:
                self._is_busy = True
                yield False
                return
            with self._holding(is_locked):
                yield True
        finally:
            turn.release()

    @contextlib.contextmanager
    def _holding(self, is_locked: bool) -> Iterator[None]:
        """What is done within the lock, if there is one; it is given back at the end."""
        self._depth = 1
        try:
            yield
        finally:
            self._depth = 0
            if is_locked and self._descriptor is not None:
                with contextlib.suppress(OSError):
                    fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def _take(self, deadline: float, patience: float) -> bool:
        """Lock the file, or give up at the deadline; whether it is locked."""
        if self._is_broken:
            return False
        told = time.monotonic() + _TOLD

        def tell() -> None:
            nonlocal told
            if time.monotonic() >= told:
                told = float("inf")
                _tell(f"waits for {self._holder()}, which is measuring on {self.identity}", deeper=2)

        try:
            if self._wait(deadline, tell):
                return True
        except OSError as error:
            self._give_up(error)
            return False
        if not self._is_stuck:
            about = f"{self._holder()}, which has been measuring on {self.identity} for {patience:.0f} s"
            _tell(f"goes on beside {about}; end it if it is stuck")
        self._is_stuck = True
        return False

    def _wait(self, deadline: float, meanwhile: Callable[[], None] = lambda: None) -> bool:
        """Lock the file, or give up at the deadline; whether it is locked. Raises as :meth:`_try`."""
        while not self._try():
            if time.monotonic() >= deadline:
                return False
            meanwhile()
            time.sleep(_PAUSE)
        return True

    def _try(self) -> bool:
        """Lock the file where nobody holds it; whether it is locked. Raises OSError where that cannot be done."""
        while True:
            try:
                descriptor = self._open()
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_nlink == 0:  # removed meanwhile: who comes next has another file
                    continue
            except OSError as error:
                if self._descriptor is None or error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                return False
            self._is_stuck = self._is_busy = False
            with contextlib.suppress(OSError):  # who holds it is for messages alone: a full disk may forget it
                os.pwrite(descriptor, b"%*d\n" % (_DIGITS, os.getpid()), 0)
            return True

    def _open(self) -> int:
        """The file, made anew where somebody has removed it."""
        if self._descriptor is not None:
            if os.fstat(self._descriptor).st_nlink:
                return self._descriptor
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)
        folder = self.path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder == _own_folder() and folder.lstat().st_uid != os.getuid():
            raise OSError(errno.EPERM, "the folder is another user's")
        self._descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        return self._descriptor

    def _holder(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            if self._descriptor is not None:
                return f"process {int(os.pread(self._descriptor, _DIGITS, 0))}"
        return "another process"

    def _give_up(self, error: OSError) -> None:
        self._is_broken = True
        _tell(f"cannot keep others from measuring at the same time: {self.path}: {error.strerror}; set AKX_LOCK_DIR")


def device_lock(device: Device) -> DeviceLock:
    """The lock of a device: one object for each in this process."""
    identity = device.identity
    with _MAKING:
        place = identity, _folder()
        if place not in _KEPT:
            _KEPT[place] = DeviceLock(identity)
        return _KEPT[place]


_MAKING = ForkSafeLock()
_KEPT: dict[tuple[str, Path], DeviceLock] = {}
_LOCKS: weakref.WeakSet[DeviceLock] = weakref.WeakSet()


def _folder() -> Path:
    """Where lock files are; a folder of temporary files is one of this user's own."""
    given = os.environ.get("AKX_LOCK_DIR", "").strip()
    return Path(given) if given else _own_folder()


def _own_folder() -> Path:
    """One for all sessions and jobs of a user, whatever folders of its own each of them is given."""
    shared = os.name == "posix" and os.access(_TEMPORARY, os.W_OK | os.X_OK)
    folder = _TEMPORARY if shared else tempfile.gettempdir()
    return Path(folder) / f"akx-locks-{os.getuid() if hasattr(os, 'getuid') else 0}"


def _tell(what: str, deeper: int = 0) -> None:
    """Warn whoever asked for the lock; `deeper` is how many more calls there are in between."""
    warnings.warn(f"this process {what}", DeviceBusyWarning, stacklevel=4 + deeper)


def _after_fork() -> None:
    for lock in list(_LOCKS):
        lock._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
