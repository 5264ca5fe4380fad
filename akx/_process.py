"""What a Python process of akx's own is started with, and the cores, the memory and the folders that there are for it.

The program is a function of akx that is called by name, so that no script of the user runs again: it needs no guard of
its ``__main__``, and nothing of this process but its environment and where it imports from.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from akx._numba import own_temporary_folder

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = [
    "available_bytes",
    "available_cores",
    "command",
    "control_groups",
    "environment",
    "forget_threads",
    "kept_threads",
    "share_out",
    "user_folder",
]

_T = TypeVar("_T")
#: The home of those that have none.
_NOWHERE = Path("/nonexistent/akx")
_MEMINFO = Path("/proc/meminfo")
#: By process and name.
_THREADS: dict[tuple[int, str], ThreadPoolExecutor] = {}
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


def kept_threads(name: str, most: int) -> ThreadPoolExecutor:
    """Threads ``akx-NAME`` of this process that wait for work, `most` of them: to start some takes a tenth of a
    millisecond each. A forked child has its own.
    """
    found = _THREADS.get((os.getpid(), name))
    if found is None:
        from concurrent.futures import ThreadPoolExecutor

        for other in [key for key in list(_THREADS) if key[0] != os.getpid()]:
            _THREADS.pop(other, None)
        found = _THREADS[os.getpid(), name] = ThreadPoolExecutor(most, thread_name_prefix=f"akx-{name}")
    return found


def forget_threads(name: str) -> None:
    """Have others the next time: with these goes what is still in their queue."""
    _THREADS.pop((os.getpid(), name), None)


#: Threads for products, at most so many; they are started as they are needed.
_PRODUCTS, _MOST_THREADS = "products", 64


def share_out(parts: Iterable[_T], do: Callable[[_T], None], workers: int) -> None:
    """``do(part)`` for all parts, here and by other threads, as many workers as can be started.

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
        _beside(work, workers - 1, left.clear)
    else:
        work()


def _beside(work: Callable[[], None], others: int, stop: Callable[[], None]) -> None:
    """Do `work` here and by other threads; `stop` lets those that are at it find nothing more to do."""
    from concurrent.futures import Future, wait

    futures: list[Future[None]] = [Future() for _ in range(others)]
    pool = kept_threads(_PRODUCTS, _MOST_THREADS)
    try:
        try:
            for future in futures:
                pool.submit(_do, work, future)
        except RuntimeError:  # no more threads can be started
            forget_threads(_PRODUCTS)  # one that is still in its queue goes with it
        work()
    finally:
        stop()
        begun = [future for future in futures if not future.cancel()]
        try:
            wait(begun)
        finally:  # after Ctrl-C too
            wait(begun)
    for future in begun:
        future.result()


def _do(work: Callable[[], None], future: Future[None]) -> None:
    """Do the work of a future that nobody has cancelled."""
    if future.set_running_or_notify_cancel():
        try:
            work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)


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
