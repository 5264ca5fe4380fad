"""akx's own code for a GPU's plans, as jobs for processes that compile; and the notes that code is compiled.

What cuts a matrix into parts and lays it out for a GPU runs on the host, in some eighty functions that Numba compiles
when they are first called, half a minute in all. So the first search on a machine has a phase for that, outside its
seconds: processes (:mod:`akx.tuner.warmup.host_code`) go through the plans of a schedule each, with a small part of the
matrix, since what is compiled depends on types, not on sizes. They launch and measure nothing.

A note beside Numba's cache says that a piece of code is compiled, for these sources and types on this processor.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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
from akx.tuner.space import Space, build_space

__all__ = ["Code", "Job", "alone", "compile_for", "layout_jobs", "note_of", "part_of", "shares_of"]

#: What is compiled at once, such as schedule, variant, order of the rows.
Code = tuple[str, ...]
#: A piece of code, a function by its module and name, and what it is called with before the matrix and start vectors.
Job = tuple[Code, str, str, Any]

#: Rows and entries of the part of the matrix, at most; and rows without which there is too little to lay out.
_MOST_ROWS, _MOST_ENTRIES, _LEAST_ROWS = 6_000, 400_000, 1_000
#: Multiprocessors, at least, of the GPU for which that part is laid out.
_LEAST_SMS = 8
_DIGITS = 20
_PACKAGE = Path(__file__).resolve().parents[2]


def layout_jobs(matrix: Matrix, k: int, device: Any) -> tuple[Matrix, list[Job]]:
    """The part of a matrix that layouts are compiled with, and a job for each share; none where it is too small."""
    part = part_of(matrix)
    if part.n < _LEAST_ROWS:
        return part, []
    # As many rows to a multiprocessor as in the whole: with fewer, some of what a search needs is infeasible.
    small = replace(device, sms=max(min(device.sms, _LEAST_SMS), device.sms * part.n // matrix.n))
    shares = shares_of(device.backend)
    return part, [((name, str(share)), __name__, "compile_share", (name, share, k, small)) for name, share in shares]


def shares_of(backend: str) -> list[tuple[str, int]]:
    """Schedules whose layouts are compiled so, each as often as processes begin with it; the most urgent ones first."""
    urgent = sorted(registry.schedules(backend), key=lambda schedule: schedule.layout_turn)
    most = max((schedule.layout_shares for schedule in urgent), default=0)
    return [(one.name, place) for place in range(most) for one in urgent if place < one.layout_shares]


def compile_share(asked: tuple[str, int, int, Any], matrix: Matrix, start_vectors: int) -> None:
    """Do one job of :func:`layout_jobs`; raises where it cannot be done in full, or another process is at it."""
    name, share, k, device = asked
    note = note_of((name, str(share)), matrix)
    if note is not None:
        with alone(note) as mine:
            if not (mine and compile_for(name, share, matrix, k, start_vectors, device)):
                raise RuntimeError(f"not all of {name} is compiled")


def compile_for(name: str, share: int, matrix: Matrix, k: int, start_vectors: int, device: Any) -> bool:
    """Go through all plans of a schedule: what they should cost, and their layouts.

    The order depends on the `share`: what another process has compiled by then need not be. Whatever cannot be done
    with this matrix is left out. Returns whether a plan was laid out in each order of the rows.
    """
    orders: set[str] = set()
    with suppress(Exception):
        where: dict[str, Any] = {"backend": device.backend, "threads": 1, "start_vectors": start_vectors}
        space = build_space(matrix, k, device, keep=name.__eq__, **where)
        schedule, limited = space.schedules[name], space.device
        begun: list[Plan] = []
        for ask in (schedule.heuristic_plans, schedule.starts):
            with suppress(Exception):
                begun += [space.inside(plan) for plan in ask(matrix, limited, k) or ()]
        plans = _plans(space, name, share, begun)
        for plan in plans:
            with suppress(Exception):
                schedule.traffic(plan, matrix, limited)
            with suppress(Exception):
                schedule.work(plan, matrix, limited, start_vectors)
            with suppress(Exception):
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


def part_of(matrix: Matrix) -> Matrix:
    """The first rows and columns of a matrix: the same types, and the same kind of pattern, in milliseconds."""
    rows = min(matrix.n, _MOST_ROWS)
    rows = max(1, min(rows, int(np.searchsorted(matrix.indptr, _MOST_ENTRIES, side="right")) - 1))
    entries = int(matrix.indptr[rows])
    inside = matrix.indices[:entries] < rows
    before = np.concatenate(([0], np.cumsum(inside)))
    indptr = before[matrix.indptr[: rows + 1]].astype(matrix.indptr.dtype)
    indices, data = matrix.indices[:entries][inside], matrix.data[:entries][inside]
    return Matrix(indptr, indices, data, pattern_cache={}, value_error=matrix.value_error)


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
    return Path(folder) / f"akx-{_digest(*what, *types, _sources(), *processor)[:_DIGITS]}.compiled"


@lru_cache(maxsize=1)
def _sources() -> str:
    """A digest of what Numba goes by when it takes something from its cache, of all files that may be in it."""
    files = ((path, path.stat()) for path in sorted(_PACKAGE.rglob("*.py")))
    told = [f"{path} {about.st_mtime_ns} {about.st_size}" for path, about in files]
    return _digest(metadata.version("numba"), platform.python_version(), *told)


def _digest(*of: object) -> str:
    return hashlib.sha256("\0".join(map(str, of)).encode()).hexdigest()


@contextmanager
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
