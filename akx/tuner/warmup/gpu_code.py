"""akx's own code for a GPU's plans, compiled on several cores before a search needs it.

What cuts a matrix into parts and lays it out for a GPU runs on the host, in functions that Numba compiles when they are
first called: some eighty, one after another, half a minute in all. So the first search on a machine has a phase for
that, outside its seconds: processes go through the plans of a schedule each, with a small part of the matrix, since
what is compiled depends on types, not on sizes. What they have compiled is in Numba's cache when the search, or a
process in which plans run first (:mod:`akx.tuner.sandbox`), asks for it.

They launch and measure nothing, give way to whoever else wants a core, and end before the run-off at the latest. Each
leaves a note beside Numba's cache that its share is done, for these sources and types on this processor; while it is at
work it holds a lock there, so that of several searches on a machine one has it done.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from akx.backends import registry
from akx.backends.host import host_device
from akx.core.fork_safety import lock_file, unlock_file
from akx.core.matrix import Matrix
from akx.core.numba_jit import njit
from akx.core.plan import Option, Plan
from akx.tuner import sandbox
from akx.tuner.space import Space, build_space

__all__ = ["Precompilation", "alone", "compile_for", "note_of", "part_of", "precompiling", "shares_of"]

#: Bytes that a process takes of the host's memory, about.
_HOST = 400 * 2**20
#: Rows and entries of the part of the matrix, at most; and rows without which there is too little to lay out.
_MOST_ROWS, _MOST_ENTRIES, _LEAST_ROWS = 6_000, 400_000, 1_000
#: Multiprocessors, at least, of the GPU for which that part is laid out.
_LEAST_SMS = 8
#: Seconds between two looks at them.
_LOOK = 0.1
#: How far the processes stand back behind others that want a core.
_NICE = 10
_DIGITS = 20
_PACKAGE = Path(__file__).resolve().parents[2]


class Precompilation:
    """Processes that compile, until they are done or closed.

    None are started where it is done, where nothing is kept, or where cores or memory are few.

    Parameters
    ----------
    matrix : Matrix
        What the search is for.
    k, start_vectors : int
        Its powers, and its start vectors.
    device : CudaDevice
        The GPU; nothing is asked of it.
    cores, host_bytes : int, optional
        Of the host, and of its memory that is free; by default as the system says.
    command : sequence of str, optional
        The process; by default this module.
    """

    def __init__(
        self,
        matrix: Matrix,
        k: int,
        start_vectors: int,
        device: Any,
        *,
        cores: int | None = None,
        host_bytes: int | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        cores = host_device().cores if cores is None else cores
        host_bytes = sandbox.available_bytes() if host_bytes is None else host_bytes
        wanted = [share for share in shares_of(device.backend) if _is_wanted(note_of(share, matrix))]
        count = min(len(wanted), cores - sandbox.SPARED_CORES, int(sandbox.SHARE * host_bytes / _HOST))
        if count <= 0:
            return
        part = part_of(matrix)
        if part.n < _LEAST_ROWS:
            return
        # As many rows to a multiprocessor as in the whole: with fewer, some of what a search needs is infeasible.
        sms = max(min(device.sms, _LEAST_SMS), device.sms * part.n // matrix.n)
        message = {"matrix": (part.indptr, part.indices, part.data), "value_error": part.value_error, "k": k}
        message |= {"vectors": start_vectors, "device": replace(device, sms=sms)}
        try:
            for place in range(count):
                process = subprocess.Popen(
                    command or sandbox.command(__name__),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=sandbox.environment(),
                )
                self._processes.append(process)
                mine = {**message, "shares": wanted[place::count]}
                # A process reads when it is up, which takes a second.
                threading.Thread(target=_tell, args=(process, mine), name="akx-precompile", daemon=True).start()
        except BaseException:
            self.close()
            raise

    @property
    def count(self) -> int:
        """Processes that were started."""
        return len(self._processes)

    def wait(self, seconds: float, report: Callable[[int, int], object] = lambda done, total: None) -> bool:
        """Wait until all are done, for so long at most; whether they are.

        `report` is called with how many of them are done, and of how many, now and then.
        """
        deadline = time.monotonic() + seconds
        while True:
            done = sum(process.poll() is not None for process in self._processes)
            report(done, self.count)
            left = deadline - time.monotonic()
            if done == self.count or left <= 0:
                return done == self.count
            time.sleep(min(_LOOK, left))

    def close(self) -> None:
        """End what is still at work."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()


@contextlib.contextmanager
def precompiling(
    matrix: Matrix, k: int, start_vectors: int, device: Any, *, wanted: bool
) -> Iterator[Precompilation | None]:
    """Processes compile beside what is done within, where that is `wanted` and was not done before.

    What keeps them from being started is no error: then the search compiles as it goes.
    """
    work: Precompilation | None = None
    if wanted:
        with contextlib.suppress(Exception):
            work = Precompilation(matrix, k, start_vectors, device)
    if work is None or work.count == 0:
        yield None
        return
    try:
        with sandbox.unmistakable_files():
            yield work
    finally:
        work.close()


def shares_of(backend: str) -> list[tuple[str, int]]:
    """Schedules whose layouts are compiled so, each as often as processes begin with it; the most urgent ones first."""
    urgent = sorted(registry.schedules(backend), key=lambda schedule: schedule.layout_turn)
    most = max((schedule.layout_shares for schedule in urgent), default=0)
    return [(one.name, place) for place in range(most) for one in urgent if place < one.layout_shares]


def part_of(matrix: Matrix) -> Matrix:
    """The first rows and columns of a matrix: the same types, and the same kind of pattern, in milliseconds."""
    rows = min(matrix.n, _MOST_ROWS)
    rows = max(1, min(rows, int(np.searchsorted(matrix.indptr, _MOST_ENTRIES, side="right")) - 1))
    entries = int(matrix.indptr[rows])
    inside = matrix.indices[:entries] < rows
    before = np.concatenate(([0], np.cumsum(inside)))
    indptr = before[matrix.indptr[: rows + 1]].astype(matrix.indptr.dtype)
    return Matrix(
        indptr,
        matrix.indices[:entries][inside],
        matrix.data[:entries][inside],
        pattern_cache={},
        value_error=matrix.value_error,
    )


def compile_for(name: str, share: int, matrix: Matrix, k: int, start_vectors: int, device: Any) -> bool:
    """Go through the plans of a schedule: what it offers, what its plans should cost, and their layouts.

    All of them, in an order that depends on the `share`: what another process has compiled by then need not be.
    Whatever cannot be done with this matrix is left out: the search compiles it when it needs it.

    Returns
    -------
    bool
        Whether a plan was laid out in each order of the rows.
    """
    orders: set[str] = set()
    with contextlib.suppress(Exception):
        space = build_space(
            matrix, k, device, backend=device.backend, threads=1, start_vectors=start_vectors, keep=name.__eq__
        )
        schedule = space.schedules[name]
        limited = space.device
        begun: list[Plan] = []
        for ask in (schedule.offers, schedule.starts):
            with contextlib.suppress(Exception):
                begun += [space.inside(plan) for plan in ask(matrix, limited, k) or ()]
        plans = _plans(space, name, share, begun)
        for plan in plans:
            with contextlib.suppress(Exception):
                schedule.traffic(plan, matrix, limited)
            with contextlib.suppress(Exception):
                schedule.work(plan, matrix, limited, start_vectors)
            with contextlib.suppress(Exception):
                if space.feasible(plan, matrix) is None:
                    schedule.lay_out(plan, matrix, limited)
                    orders.add(plan.partitioner)
        return orders == {plan.partitioner for plan in plans}
    return False


def _plans(space: Space, name: str, share: int, begun: Sequence[Plan]) -> list[Plan]:
    """The defaults in each order of the rows and each variant, then what is one choice from these or from `begun`.

    One order after another, each share with another one first.
    """
    names = space.choices(name, "partitioner")
    orders: list[dict[str, Option]] = [{"partitioner": order} for order in names] or [{}]
    defaults = [space.plan(name, order) for order in orders]
    variants = [{"variant": variant} for variant in space.choices(name, "variant")]
    each = [space.plan(name, {**order, **variant}) for variant in variants for order in orders]
    near = [other for plan in (*defaults, *begun) for other in space.neighbours(plan)]
    first = names[share : share + 1]
    return sorted(dict.fromkeys([*defaults, *begun, *each, *near]), key=lambda plan: plan.partitioner not in first)


@njit(cache=True)
def _compiled() -> None:
    """Only to know where Numba keeps what it compiles."""


def note_of(what: tuple[object, ...], matrix: Matrix) -> Path | None:
    """The file beside Numba's cache that says that `what` is compiled for a matrix of these types.

    None where nothing is kept, or compiled.
    """
    compiled = getattr(_compiled, "compiled", _compiled)  # it takes its own place when it is asked for
    folder = getattr(getattr(compiled, "stats", None), "cache_path", None)
    if folder is None:
        return None
    types = (matrix.dtype.name, matrix.indptr.dtype.name, matrix.indices.dtype.name, matrix.value_error > 0)
    processor = (host_device().name, os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES"))
    of = (*what, *types, _sources(), *processor)
    digest = hashlib.sha256("\0".join(map(str, of)).encode()).hexdigest()[:_DIGITS]
    return Path(folder) / f"akx-{digest}.compiled"


@lru_cache(maxsize=1)
def _sources() -> str:
    """A digest of what Numba goes by when it takes something from its cache, of all files that may be in it."""
    files = ((path, path.stat()) for path in sorted(_PACKAGE.rglob("*.py")))
    of = [metadata.version("numba"), platform.python_version()]
    of += [f"{path} {about.st_mtime_ns} {about.st_size}" for path, about in files]
    return hashlib.sha256("\0".join(of).encode()).hexdigest()


def _is_wanted(note: Path | None) -> bool:
    try:
        return note is not None and not note.exists()
    except OSError:
        return False


def _tell(process: subprocess.Popen[bytes], message: Any) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError, ValueError):  # it was ended meanwhile
        try:
            sandbox.send(process.stdin, message)
        finally:
            process.stdin.close()


@contextlib.contextmanager
def alone(note: Path, *, wait: bool = False) -> Iterator[bool]:
    """Whether no other process is at what the note is of, unless that is waited for; none begins with it within."""
    note.parent.mkdir(parents=True, exist_ok=True)
    with note.with_suffix(".lock").open("a") as file:
        try:
            lock_file(file.fileno(), wait=wait)
        except BlockingIOError:
            yield False
            return
        except OSError:  # a file system without locks
            pass
        try:
            yield True
        finally:
            unlock_file(file.fileno())


def main(parent: int | None = None) -> None:
    """Compile what is asked for, and end; `parent` is the process that asks."""
    sandbox.end_with_parent(parent)
    if hasattr(os, "nice"):
        os.nice(_NICE)
    with contextlib.suppress(EOFError, OSError), sandbox.unmistakable_files():
        message = sandbox.receive(sys.stdin.buffer)
        matrix = Matrix(*message["matrix"], pattern_cache={}, value_error=message["value_error"])
        for name, share in message["shares"]:
            note = note_of((name, share), matrix)
            if note is None:
                return
            with alone(note) as mine:
                if mine and compile_for(name, share, matrix, message["k"], message["vectors"], message["device"]):
                    note.touch()
