"""Code that is compiled in the background: while it is on its way, calls go on with plain products.

What a prepared call needs takes Numba half a minute where nothing is compiled yet. So the call at which preparing has
paid asks whether the code is there (:func:`look`): notes beside Numba's cache tell. Where it is not, one process of low
priority compiles it; the calls of this process go on meanwhile, and look whether it has (:class:`Coming`). Of several
processes that need the same code one compiles it, and the others wait for its lock.

Who asked for preparing (``AKX_PREPARE=always`` or ``fixed``, :class:`akx.MatrixPowers`, :class:`akx.solvers.Solver`)
waits for the compiler.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scipy.sparse import eye_array

from akx.backends.selection import HOST
from akx.core.errors import CompileError
from akx.core.matrix import Matrix
from akx.core.numba_jit import is_loaded
from akx.operator.freshness import Summing
from akx.operator.tiers import ALWAYS

if TYPE_CHECKING:
    from akx.core.plan import Plan
    from akx.tuner.warmup.host_code import Job, Warmup

__all__ = [
    "Coming",
    "aside",
    "check_code",
    "check_first",
    "compiled_in_background",
    "is_noted",
    "look",
    "notes_of",
    "summing_by",
]

#: What every first call compiles beside its plan: features, prediction, checks.
_FIRST = ("first calls",)
#: Bytes of a matrix's values from which a team reads it beside a device, with so many for each thread of at most so
#: many; bytes that calls read without one before its code is compiled, and have read; and whether that is there.
_LEAST_READ, _OF_A_THREAD, _READERS, _PAYS = 1 << 20, 1 << 18, 16, 1 << 30
_read, _has_team = 0, False
#: What sums by a team, once it is imported.
_sums_of: Any = None
#: How far such processes stand back behind others that want a core.
_NICE = 10

_local = threading.local()
#: By process, and the note that is to come.
_at_work: dict[tuple[int, Path], Warmup] = {}


class Coming(Exception):
    """What is to be prepared needs code that is being compiled; ``is_coming()``: it still is."""

    def __init__(self, is_coming: Callable[[], bool]) -> None:
        super().__init__("code is being compiled")
        self.is_coming = is_coming


@contextlib.contextmanager
def compiled_in_background() -> Iterator[None]:
    """Within, this thread does not wait for the compiler: :class:`Coming` is raised instead."""
    before, _local.is_allowed = getattr(_local, "is_allowed", False), True
    try:
        yield
    finally:
        _local.is_allowed = before


def check_first(matrix: Matrix, k: int, vectors: int) -> None:
    """Before anything is planned: raise :class:`Coming` where its code is yet to come, and nobody is to wait for it."""
    if getattr(_local, "is_allowed", False):
        look((_FIRST, "akx.operator.call", "call_once", k), matrix, vectors)


def check_code(plan: Plan, matrix: Matrix, vectors: int) -> None:
    """The same before a plan is laid out."""
    if getattr(_local, "is_allowed", False) and plan.backend == HOST:
        from akx.tuner.warmup.host_code import job_of

        look(job_of(plan), matrix, vectors)


def look(job: Job, matrix: Matrix, vectors: int = 1) -> None:
    """Raise :class:`Coming` where the code of a job is yet to come: it is compiled from now on."""
    from akx.tuner.warmup.host_code import Warmup

    code, *call = job
    note, _ = notes = notes_of(code, matrix)
    if note is None or is_noted(notes):
        return
    work = _at_work.get((os.getpid(), note))
    if work is None:
        work = _at_work[os.getpid(), note] = Warmup(matrix, vectors, count=1)
        work.want([(code, __name__, "aside", [list(code), *call])])
        threading.Thread(target=_end, args=(work,), name="akx-background", daemon=True).start()
    if not work.is_there(code):
        raise Coming(lambda: not work.is_there(code))


def summing_by(threads: int, nbytes: int) -> Summing | None:
    """What forms checksums of a matrix while a device works, by at most so many threads; `nbytes` are of its values.

    That is a team whose threads listen for the next call (:mod:`akx.backends.cpu.checksums`), once its code is there;
    None before, and for few.
    """
    global _read, _has_team
    count = min(threads, _READERS, nbytes // _OF_A_THREAD)
    if count < 2 or nbytes < _LEAST_READ:
        return None
    if not _has_team:
        _read += nbytes
        if _read < _PAYS:
            return None
        from akx.tuner.warmup.host_code import TEAM

        try:
            if notes_of(TEAM[0], _smallest())[0] is None:  # each process would compile it
                _read -= 1 << 60
                return None
            look(TEAM, _smallest())
        except (Coming, CompileError):
            return None
        _has_team = True
        if is_loaded():
            _bring_team()
        else:  # to import Numba takes as long as hundreds of calls
            threading.Thread(target=_bring_team, name="akx-background", daemon=True).start()
    return None if _sums_of is None else partial(_sums_of, threads=1 << (count.bit_length() - 1))  # few teams


def _bring_team() -> None:
    global _sums_of
    _sums_of = import_module("akx.backends.cpu.checksums").sums_of


@cache
def _smallest() -> Matrix:
    """What code is compiled for that is the same for all matrices."""
    return Matrix.from_any(eye_array(1, format="csr"))


def notes_of(code: tuple[str, ...], matrix: Matrix) -> tuple[Path | None, ...]:
    """The notes of which one says that code is compiled for a matrix of these types; None where none are kept."""
    from akx.tuner.warmup.gpu_code import note_of
    from akx.tuner.warmup.host_code import ALL

    return note_of(code, matrix), note_of(ALL, matrix)


def is_noted(notes: tuple[Path | None, ...]) -> bool:
    """Whether one of them is there; also where none are kept."""
    return any(note is None or note.exists() for note in notes)


def _end(work: Warmup) -> None:
    """No process waits for more to do."""
    work.wait(math.inf)
    work.close()


@atexit.register
def _end_all() -> None:
    """A process that another one of this kind was forked from ends its own."""
    for (process, _), work in list(_at_work.items()):
        if process == os.getpid():
            work.close()


def aside(argument: Any, matrix: Matrix, vectors: int) -> None:
    """Do a job in a process of its own, unless another one has done it by the time that it may begin."""
    from akx.tuner.warmup.gpu_code import alone, note_of
    from akx.tuner.warmup.host_code import run_job

    code, module, name, given = argument
    os.environ["AKX_PREPARE"] = ALWAYS
    if hasattr(os, "nice"):
        os.nice(_NICE)
    note = note_of(tuple(code), matrix)
    if note is None:
        return
    with alone(note, wait=True):
        if note.exists():
            return
        if not run_job(module, name, given, matrix, vectors):
            raise RuntimeError("it cannot be compiled")
        note.touch()
