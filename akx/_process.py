"""What a Python process of akx's own is started with, and the memory that there is for it.

The program is a function of akx that is called by name, so that no script of the user runs again: it needs no guard of
its ``__main__``, and nothing of this process but its environment and where it imports from.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

__all__ = ["available_bytes", "command", "environment"]

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


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


def available_bytes() -> int:
    """Bytes of the host's memory that are free, or could be, for this process; 0 where nothing says so."""
    found = _free_in_host()
    with contextlib.suppress(OSError, ValueError, IndexError):  # a container's limit, where there is one
        most = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        for line in (_CGROUP / "memory.stat").read_text().splitlines():
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
