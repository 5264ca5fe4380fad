"""A Python process of akx's own beside this one: what it imports, how the two talk, and when it ends.

They talk through pipes, in pickles, each behind its length. The program is a function of akx that is called by name,
so that no script of the user runs again; it ends soon after the process that started it, however that was.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from typing import IO, Any

__all__ = ["command", "end_with_parent", "environment", "receive", "send"]

#: Seconds between two looks at whether the process that started it is there.
_LOOK = 1.0
_LENGTH = 8


def command(module: str) -> list[str]:
    """What runs ``main()`` of a module of akx; Ctrl-C is for whoever starts it, who ends it."""
    program = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); from {module} import main; main()"
    return [sys.executable, "-c", program]


def environment() -> dict[str, str]:
    """That of this process, in which what is imported here is imported there."""
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def send(pipe: IO[bytes], value: Any) -> None:
    """Write a pickle of anything."""
    text = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(len(text).to_bytes(_LENGTH, "little") + text)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """What :func:`send` wrote at the other end. Raises EOFError where nothing more comes."""
    head = pipe.read(_LENGTH)
    if len(head) < _LENGTH:
        raise EOFError
    size = int.from_bytes(head, "little")
    text = pipe.read(size)
    if len(text) < size:
        raise EOFError
    return pickle.loads(text)


def end_with_parent() -> None:
    """End this process, whatever it does then, soon after the one that started it has ended, however that was."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.kill(os.getpid(), signal.SIGKILL)
