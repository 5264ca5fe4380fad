"""akx's own code for a GPU's plans, compiled on several cores before a search needs it.

What cuts a matrix into parts and lays it out for a GPU runs on the host, in functions that Numba compiles when they are
first called: some eighty, one after another, half a minute in all. Done as they come up that is half of the first
search on a machine. So that search begins with processes that go through the plans of a schedule each, with a small
part of the matrix: what is compiled depends on types, not on sizes. What they have compiled is in Numba's cache when
the search, or a process in which plans run first (:mod:`akx.tuner.canary`), asks for it. They launch and measure
nothing, and leave a note beside Numba's cache that it is done, for these sources and types on this processor.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import njit

from akx.device.host import host_device
from akx.matrix import Matrix
from akx.plan import Option, Plan
from akx.plandb.keys import kernel_hash
from akx.tuner import processes
from akx.tuner.space import Space, build_space

__all__ = ["Precompilation", "compile_for", "part_of", "precompiling"]

#: Schedules whose layouts are compiled so, and how many processes begin with one, each with another order of the rows;
#: those whose code a search needs first, or for longest, come first.
_SHARES = {"resident": 2, "wavefront": 2, "ghost": 2, "sweep": 1}
#: Cores that are left to the search.
_OTHER_CORES = 2
#: Rows and entries of the part of the matrix, at most.
_MOST_ROWS, _MOST_ENTRIES = 6_000, 400_000
#: Multiprocessors, at least, of the GPU for which that part is laid out.
_LEAST_SMS = 8
_DIGITS = 20


class Precompilation:
    """Processes that compile, until they are done or closed.

    Parameters
    ----------
    matrix : Matrix
        What the search is for.
    k, start_vectors : int
        Its powers, and its start vectors.
    device : CudaDevice
        The GPU; nothing is asked of it.
    cores : int, optional
        Of the host; by default those of this process.
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
        command: Sequence[str] | None = None,
    ) -> None:
        cores = host_device().cores if cores is None else cores
        shares = [(name, place) for place in range(max(_SHARES.values())) for name in _SHARES if place < _SHARES[name]]
        notes = {share: _note_of(*share, matrix, device) for share in shares}
        wanted = [share for share, note in notes.items() if note is not None and not note.exists()]
        self._processes: list[subprocess.Popen[bytes]] = []
        count = max(0, min(len(wanted), cores - _OTHER_CORES))
        if count == 0:
            return
        part = part_of(matrix)
        # As many rows to a multiprocessor as in the whole: with fewer, some of what a search needs is infeasible.
        sms = max(min(device.sms, _LEAST_SMS), device.sms * part.n // matrix.n)
        message = {"matrix": (part.indptr, part.indices, part.data), "k": k, "vectors": start_vectors}
        message |= {"device": device, "smaller": replace(device, sms=sms)}
        for place in range(count):
            try:
                process = subprocess.Popen(
                    command or processes.command(__name__),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=processes.environment(),
                )
            except OSError:  # then the search compiles as it goes
                break
            self._processes.append(process)
            mine = {**message, "shares": wanted[place::count]}
            # A process reads when it is up, which takes a second.
            threading.Thread(target=_tell, args=(process, mine), name="akx-precompile", daemon=True).start()

    @property
    def count(self) -> int:
        """Processes that were started."""
        return len(self._processes)

    def wait(self, seconds: float) -> bool:
        """Wait until all are done, for so long at most; whether they are."""
        try:
            for process in self._processes:
                process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """End what is still at work."""
        for process in self._processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def precompiling(matrix: Matrix, k: int, start_vectors: int, device: Any, *, wanted: bool) -> Iterator[None]:
    """Processes compile beside what is done within, where that is `wanted` and was not done before."""
    work = Precompilation(matrix, k, start_vectors, device) if wanted else None
    try:
        yield
    finally:
        if work is not None:
            work.close()


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


def compile_for(name: str, share: int, matrix: Matrix, k: int, start_vectors: int, device: Any) -> None:
    """Go through the plans of a schedule: what it offers, what its plans should cost, and their layouts.

    All of them, in an order that depends on the `share`: what another process has compiled by then need not be.
    Whatever cannot be done with this matrix is left out: the search compiles it when it needs it.
    """
    from akx.kernels.cuda.layouts import lay_out

    with contextlib.suppress(Exception):
        space = build_space(
            matrix, k, device, backend=device.backend, threads=1, start_vectors=start_vectors, keep=name.__eq__
        )
        schedule: Any = space.schedules[name]
        limited = space.device
        begun: list[Plan] = []
        for what in ("offers", "starts"):
            with contextlib.suppress(Exception):
                begun += [space.inside(plan) for plan in getattr(schedule, what)(matrix, limited, k)]
        for plan in _plans(space, name, share, begun):
            with contextlib.suppress(Exception):
                schedule.traffic(plan, matrix, limited)
            with contextlib.suppress(Exception):
                schedule.work(plan, matrix, limited, start_vectors)
            with contextlib.suppress(Exception):
                if space.feasible(plan, matrix) is None:
                    lay_out(plan, matrix, limited)


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


def _note_of(name: str, share: int, matrix: Matrix, device: Any) -> Path | None:
    """The file beside Numba's cache that says that this is done; None where nothing is kept, or compiled."""
    folder = getattr(getattr(_compiled, "stats", None), "cache_path", None)
    if folder is None:
        return None
    types = (matrix.dtype.name, matrix.indptr.dtype.name, matrix.indices.dtype.name)
    where = (numba.__version__, platform.python_version(), host_device().name)
    of = (name, share, *types, kernel_hash(device.backend), *where)
    digest = hashlib.sha256("\0".join(map(str, of)).encode()).hexdigest()[:_DIGITS]
    return Path(folder) / f"akx-{digest}.compiled"


def _tell(process: subprocess.Popen[bytes], message: Any) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError, ValueError):  # it was ended meanwhile
        processes.send(process.stdin, message)
        process.stdin.close()


def main() -> None:
    """Compile what is asked for, and end."""
    processes.end_with_parent()
    message = processes.receive(sys.stdin.buffer)
    matrix = Matrix(*message["matrix"], pattern_cache={})
    for name, share in message["shares"]:
        compile_for(name, share, matrix, message["k"], message["vectors"], message["smaller"])
        note = _note_of(name, share, matrix, message["device"])
        if note is not None:
            with contextlib.suppress(OSError):
                note.parent.mkdir(parents=True, exist_ok=True)
                note.touch()
