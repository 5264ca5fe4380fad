"""What tuning costs while calls are made: a minute of calls with `tune="online"`, over a plan that was tuned before.

    python -m benchmarks.online                           six matrices, a quarter of an hour with their tunings
    python -m benchmarks.online --only brick --seconds 10 -o FILE              a look at one of them
    python -m benchmarks.online --tuned plans.db          keep the plans that are tuned before, for the next time
    python -m benchmarks.online --backend cuda            with vectors in GPU memory, into a file of its own; needs CuPy
    python -m benchmarks.online --table                   print the table from the file

`V = P(x, out=V)` at k = 8, k + 1 vectors of doubles, each call timed as a user would, the first one too: on both sides
it lays the matrix out. The plan that is compared with is found by :func:`akx.tune` in its usual time, which is not
counted; the other object begins with an empty database. Code is compiled before, as on any machine that has run akx for
a while. The machine may change within a minute: so the calls are made in pieces, each until nothing is prepared beside
it, and behind it the tuned plan has a share of the time. `over` is the seconds of all calls of the one over what as
many calls take by the other, piece by piece; `spread` is how far the tuned plan's own seconds were apart, quartile to
quartile, from piece to piece.

On a GPU calls are queued one after another, and a piece ends when the device is done.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import akx
from akx.backends.selection import device_of
from akx.plandb import PlanDatabase
from akx.tuner.online.dry_run import job
from akx.tuner.online.threads import NAME
from akx.tuner.warmup.host_code import Warmup, every_plan, job_of
from benchmarks import each, solving
from benchmarks.matrices import Case

__all__ = ["main", "measured", "table"]

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "tuner.md"
_RESULTS = Path(__file__).resolve().parent / "results" / "online.json"
_MATRICES = ("pentadiagonal", "brick", "tetrahedra", "rmat", "bcsstk16", "wang4")
_K, _SECONDS, _PIECES = 8, 60.0, 24
#: Of each piece the tuned plan has so much again.
_SHARE = 0.25
#: Calls that are queued on a GPU between two looks at the clock, and seconds of a piece without looks at the device.
_QUEUED = 64

Json = dict[str, Any]


def measured(case: Case, seconds: float = _SECONDS, tuned_before: Path | None = None, backend: str = "cpu") -> Json:
    """The entry of a matrix: calls, ``over``, that of the ``first`` and ``last`` quarter, plans, what was tried."""
    A = case.load()
    x, out, wait = _vectors(A.shape[0], backend)
    _compile(akx.Matrix.from_any(A), backend)
    with tempfile.TemporaryDirectory() as folder:
        known = PlanDatabase(tuned_before or Path(folder) / "tuned.db", layers=())
        empty = PlanDatabase(Path(folder) / "online.db", layers=())
        akx.tune(A, _K, backend=backend, db=known)
        tuned = akx.MatrixPowers(A, _K, backend=backend, db=known)
        online = akx.MatrixPowers(A, _K, backend=backend, db=empty, tune="online")
        begun = online.plan.label()
        once, _ = _calls(tuned, x, out, 0.0, wait)
        first, _ = _calls(online, x, out, 0.0, wait)
        _calls(tuned, x, out, 0.1, wait)
        (search,) = online._prepared.online.values()
        pieces = []
        for _ in range(_PIECES):
            took, calls = _until_alone(online, x, out, seconds / _PIECES, wait)
            with _aside(search):
                beside, others = _calls(tuned, x, out, _SHARE * seconds / _PIECES, wait)
            pieces.append((took, calls, beside / others))
        own = sorted(one for _, _, one in pieces)
        return {
            "matrix": case.name,
            "backend": backend,
            "rows": A.shape[0],
            "nnz": int(A.nnz),
            "k": _K,
            "seconds": first + sum(took for took, _, _ in pieces),
            "calls": 1 + sum(calls for _, calls, _ in pieces),
            "over": _over(pieces, first, once),
            "first": _over(pieces[: _PIECES // 4], first, once),
            "last": _over(pieces[-_PIECES // 4 :]),
            "pieces": [round(_over([piece]), 4) for piece in pieces],
            "spread": (own[3 * _PIECES // 4] - own[_PIECES // 4]) / own[_PIECES // 2],
            "tuned_seconds": own[_PIECES // 2],
            "plans": {"begun": begun, "ended": online.plan.label(), "tuned": tuned.plan.label()},
            "tried": dict(search.tried),
            "spent": search.budget.spent,
        }


def _compile(matrix: akx.Matrix, backend: str = "cpu") -> None:
    """Compile all that calls and searches may need, as ``akx doctor --warm`` does."""
    with contextlib.closing(Warmup(matrix)) as warmup:
        if not warmup.has_all:
            warmup.want_team()
            warmup.want([job(_K, device_of(backend)), *map(job_of, every_plan(matrix, _K))])
            warmup.wait(3600.0)
            if backend == "cpu":
                warmup.leave_note_of_all()


def _vectors(n: int, backend: str) -> tuple[Any, Any, Callable[[], object]]:
    """x and V, and what waits for the device."""
    x = np.random.default_rng(0).standard_normal(n)
    if backend == "cpu":
        return x, np.empty((n, _K + 1), order="F"), lambda: None
    import cupy

    return cupy.asarray(x), cupy.empty((n, _K + 1), order="F"), cupy.cuda.get_current_stream().synchronize


def _over(pieces: Sequence[tuple[float, int, float]], first: float = 0.0, once: float = 0.0) -> float:
    """Seconds of the calls over those of as many with the tuned plan; `first` and `once` are those of first calls."""
    others = sum(calls * one for _, calls, one in pieces)
    return (first + sum(took for took, _, _ in pieces)) / (once + others)


def _calls(P: Any, x: Any, out: Any, seconds: float, wait: Callable[[], object]) -> tuple[float, int]:
    """Seconds of calls, made one after another for so long, and how many these were."""
    begin, calls, took = time.perf_counter(), 0, 0.0
    while not calls or took < seconds:
        for _ in range(_QUEUED if calls and not isinstance(x, np.ndarray) else 1):
            P(x, out=out)
            calls += 1
        wait()
        took = time.perf_counter() - begin
    return took, calls


def _until_alone(P: Any, x: Any, out: Any, seconds: float, wait: Callable[[], object]) -> tuple[float, int]:
    """The same, and on until nothing is prepared beside them: what that disturbs are these calls."""
    took, calls = _calls(P, x, out, seconds, wait)
    while any(thread.name == NAME for thread in threading.enumerate()):
        more, others = _calls(P, x, out, 0.0, wait)
        took, calls = took + more, calls + others
    return took, calls


def _aside(search: Any) -> contextlib.AbstractContextManager[None]:
    """Nothing is compiled within."""
    warmup = vars(search._candidates).get("warmup")
    return contextlib.nullcontext() if warmup is None else warmup.aside()


def table(document: Json) -> str:
    """The Markdown table."""
    lines = [
        f"{solving.origin(document, document['online'])}.",
        "",
        "| matrix | entries | calls | over the tuned plan | in the first quarter | in the last | "
        "spread | tried | cost |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in document.get("online", []):
        lines.append(
            f"| {one['matrix']} | {one['nnz']:,} | {one['calls']:,} | {one['over']:.3f} | {one['first']:.3f} | "
            f"{one['last']:.3f} | {one['spread']:.1%} | {sum(one['tried'].values())} | "
            f"{one['spent'] / one['seconds']:.1%} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; the exit code is 0."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--seconds", type=float, default=_SECONDS)
    parser.add_argument("--tuned", type=Path)
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    options, rest = parser.parse_known_args(arguments)
    one = partial(measured, seconds=options.seconds, tuned_before=options.tuned, backend=options.backend)
    gpu = options.backend != "cpu"
    return each.run(
        rest, one, table, name="online", description="Tuning while calls are made.", entries="online",
        results=_RESULTS.with_stem("online_gpu") if gpu else _RESULTS, page=_PAGE, usual=_MATRICES, gpu=gpu,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
