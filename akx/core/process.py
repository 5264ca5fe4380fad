"""What a process of akx's own is started with; cores, memory and folders that there are, and threads that help.

The program is a function of akx that is called by name, so that no script of the user runs again: it needs no guard of
its ``__main__``, and nothing of this process but its environment and where it imports from.
"""

from __future__ import annotations

import contextlib
import operator
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from akx.core.errors import ArgumentError, ArgumentTypeError, brief
from akx.core.numba_jit import most_threads, named_threads, own_temporary_folder

__all__ = [
    "available_bytes",
    "available_cores",
    "beside",
    "command",
    "control_groups",
    "default_threads",
    "environment",
    "resolve_threads",
    "share_out",
    "shipped_folder",
    "user_folder",
]

_T = TypeVar("_T")
_PACKAGE = Path(__file__).resolve().parents[1]
#: The home of those that have none.
_NOWHERE = Path("/nonexistent/akx")
_MEMINFO = Path("/proc/meminfo")
#: Threads that wait for work, by process and name.
_CREWS: dict[tuple[int, str], _Crew] = {}
#: Where version 2 control groups are mounted, and the file that says in which of them this process is.
_CGROUPS, _OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def command(module: str, executable: str | None = None) -> list[str]:
    """What runs ``main(parent)`` of a module of akx; Ctrl-C is for whoever starts it, who ends it."""
    begin = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    return [executable or sys.executable, "-c", f"{begin}; from {module} import main; main({os.getpid()})"]


def environment() -> dict[str, str]:
    """That of this process, in which what is imported here is imported there."""
    here = ""
    with contextlib.suppress(OSError):  # a current directory that is gone has nothing to import
        here = os.getcwd()
    path = os.pathsep.join(filter(None, (folder or here for folder in sys.path)))
    return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def control_groups(root: Path | None = None, own: Path | None = None) -> list[Path]:
    """Folders of the control groups (version 2) whose limits hold for this process: the outermost, then those in it.

    A container sees its own group as the outermost, or has a path that is not there.
    """
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = (own or _OWN_CGROUP).read_text().splitlines()
    path = next((line[3:] for line in lines if line.startswith("0::")), "")
    names = [name for name in path.split("/") if name not in ("", ".", "..")]
    return [(root or _CGROUPS).joinpath(*names[:depth]) for depth in range(len(names) + 1)]


def shipped_folder() -> Path:
    """Where what is measured on real hardware comes with akx: inside the package, or beside it in a checkout."""
    inside, beside = _PACKAGE / "tuning_db", _PACKAGE.parent / "tuning_db"
    is_checkout = (_PACKAGE.parent / "pyproject.toml").is_file()
    return beside if is_checkout and beside.is_dir() and not inside.is_dir() else inside


def user_folder(kind: str) -> Path:
    """The folder of akx for the user's ``"data"`` or ``"cache"``; without a home, one for temporary files.

    Where there is none of these either it is one that is not there, of which whoever writes to it says so.
    """
    import platformdirs

    with contextlib.suppress(RuntimeError):  # no home; some releases leave a "~" as it is
        folder = Path(getattr(platformdirs, f"user_{kind}_path")("akx", appauthor=False))
        if folder.is_absolute():
            return folder
    return own_temporary_folder("akx") or _NOWHERE


def beside(name: str, work: Callable[[], None], others: int, stop: Callable[[], None]) -> None:
    """Do `work` here and by as many other threads as are free or can be started; when this is left, none is at it.

    The work here begins at once, and a thread that comes when it is over finds nothing left to do: `work` takes what
    is left, piece by piece, and `stop` leaves nothing. Threads ``akx-NAME`` of this process are kept, since to start
    one takes a tenth of a millisecond; a forked child has its own.
    """
    begun, ended = list[None](), list[BaseException | None]()
    signs: SimpleQueue[None] = SimpleQueue()

    def join() -> None:
        begun.append(None)
        error = None
        try:
            work()
        except BaseException as caught:
            error = caught
        ended.append(error)
        signs.put(None)

    def wait() -> None:
        while len(ended) < len(begun):
            signs.get()

    crew = _crew(name)
    try:
        for _ in range(others):
            if not crew.send(join, others):
                break
        work()
    finally:
        try:
            stop()
        finally:
            try:
                wait()
            finally:  # after Ctrl-C too
                wait()
    for error in ended:
        if error is not None:
            raise error


class _Crew:
    """Threads that wait for work, each at a queue of its own."""

    def __init__(self, name: str) -> None:
        self._name, self._count = name, 0
        self._idle: deque[SimpleQueue[Callable[[], None]]] = deque()

    def send(self, work: Callable[[], None], most: int) -> bool:
        """Whether a thread does the work: one that waits, else a new one where there are fewer than `most`."""
        try:
            self._idle.pop().put(work)
        except IndexError:
            if self._count >= most:
                return False
            name, inbox = f"akx-{self._name}_{self._count}", SimpleQueue[Callable[[], None]]()
            inbox.put(work)
            try:
                threading.Thread(target=_serve, args=(inbox, self._idle), name=name, daemon=True).start()
            except RuntimeError:  # no more threads can be started
                return False
            self._count += 1
        return True


def _serve(inbox: SimpleQueue[Callable[[], None]], idle: deque[SimpleQueue[Callable[[], None]]]) -> None:
    while True:
        inbox.get()()
        idle.append(inbox)


def _crew(name: str) -> _Crew:
    found = _CREWS.get((os.getpid(), name))
    if found is None:
        for other in [key for key in list(_CREWS) if key[0] != os.getpid()]:
            _CREWS.pop(other, None)
        found = _CREWS[os.getpid(), name] = _Crew(name)
    return found


def share_out(name: str, parts: Iterable[_T], do: Callable[[_T], None], workers: int) -> None:
    """``do(part)`` for all parts, here and by threads ``akx-NAME`` (:func:`beside`), at most so many workers.

    When this is left, by an error or Ctrl-C too, none of them is at it.
    """
    left = deque(parts)
    workers = min(workers, len(left))

    def work() -> None:
        while True:
            try:
                part = left.popleft()
            except IndexError:  # there are no more
                return
            do(part)

    if workers > 1:
        beside(name, work, workers - 1, left.clear)
    else:
        work()


def available_cores() -> int:
    """The cores of this process: those that it may run on, and whose time its quota pays for."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else (os.cpu_count() or 1)
    return min(cores, _quota_cores() or cores)


def _quota_cores(root: Path | None = None, own: Path | None = None) -> int | None:
    """Whole cores that the quota of this process's control group (version 2) pays for, or None where there is none.

    Threads that wait for one another are stopped all together once a quota is used up, so a fraction does not count.
    A quota of any group above holds as well.
    """
    found: list[int] = []
    for group in control_groups(root, own):
        try:
            quota, period = (group / "cpu.max").read_text().split()
            found.append(max(1, int(quota) // int(period)))
        except (OSError, ValueError, ZeroDivisionError):
            continue  # no file, or "max": no limit here
    return min(found, default=None)


def default_threads() -> int:
    """Threads used where the caller does not say: ``NUMBA_NUM_THREADS`` if set, else the cores of this process."""
    return named_threads() or _cores()


@lru_cache(maxsize=1)
def _cores() -> int:
    """Those that there were when they were first asked for."""
    return available_cores()


def resolve_threads(threads: int | None) -> int:
    """`threads` checked, or the default where it is None.

    Raises :class:`ArgumentTypeError` where it is no integer. Raises :class:`ArgumentError` where it is below 1, or more
    than any processor has.
    """
    if threads is None:
        return default_threads()
    try:
        number = operator.index(threads)
    except TypeError:
        number = None
    if number is None or isinstance(threads, bool):
        raise ArgumentTypeError("threads is not a number", expected="an integer >= 1", found=brief(threads))
    if not 1 <= number <= most_threads():
        expected = f"an integer from 1 to {most_threads()}"
        raise ArgumentError("threads is out of range", expected=expected, found=brief(threads))
    return number


def available_bytes() -> int:
    """Bytes of the host's memory that are free, or could be, for this process; 0 where nothing says so."""
    found = _free_in_host()
    for group in control_groups():
        with contextlib.suppress(OSError, ValueError, IndexError):  # no file, or "max": no limit here
            most = int((group / "memory.max").read_text())
            used = int((group / "memory.current").read_text())
            for line in (group / "memory.stat").read_text().splitlines():
                if line.startswith("inactive_file "):
                    used -= int(line.split()[1])
            found = min(found or most, max(1, most - used))
    return found


def _free_in_host() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    with contextlib.suppress(OSError, ValueError, AttributeError):  # no sysconf on Windows
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 0
