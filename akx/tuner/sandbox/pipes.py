"""A Python process of akx's own beside this one: what it imports, how the two talk, and when it ends.

They talk through pipes, in pickles, each behind its length. A process ends soon after the one that started it, however
that was. What it is started with is in :mod:`akx.core.process`.

Several of them compile the same functions at the same time, and may be ended while they write. Numba numbers the files
of its cache, and writes that a file belongs to a signature before it writes the file. So a file of two processes, or
one that is left of older sources, could be taken for another: with :func:`unmistakable_files` no name occurs twice.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from typing import IO, Any

from akx.core.process import available_bytes, command, environment

__all__ = [
    "SHARE",
    "SPARED_CORES",
    "available_bytes",
    "command",
    "end_with_parent",
    "environment",
    "receive",
    "send",
    "unmistakable_files",
]

#: Share of the memory that is free, and cores left to the search, that bound how many there may be of a kind.
SHARE, SPARED_CORES = 0.25, 2
#: Seconds between two looks at whether the process that started it is there.
_LOOK = 1.0
_LENGTH = 8
_NAME_BITS = 62


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


def end_with_parent(parent: int | None = None) -> None:
    """End this process, whatever it does then, soon after the one that started it has ended, however that was.

    `parent` is its number; by default that of now, which is another one's where it has ended already.
    """
    threading.Thread(target=_watch, args=(os.getppid() if parent is None else parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


@contextlib.contextmanager
def unmistakable_files() -> Iterator[None]:
    """What Numba compiles within is kept in files with names of their own, whoever else compiles it by then.

    Numba's cache looks names up in its index, so that it finds them as it finds its own.
    """
    from numba.core import caching

    kind: Any = getattr(caching, "IndexDataCacheFile", None)
    usual = getattr(kind, "_data_name", None)
    if usual is None:  # another Numba, which names them in another way
        yield
        return
    kind._data_name = lambda file, number: usual(file, number + secrets.randbits(_NAME_BITS))
    try:
        yield
    finally:
        kind._data_name = usual
