"""What tuning costs while calls are made: a minute of calls with `tune="online"`, over a plan that was tuned before.

    python -m benchmarks.online                           six matrices, half an hour with their tunings
    python -m benchmarks.online --only brick --reduced --seconds 2 -o FILE     a look at one of them
    python -m benchmarks.online --table                   print the table from the file

`V = P(x, out=V)` at k = 8, k + 1 vectors of doubles, each call timed as a user would. The plan that is compared with is
found by :func:`akx.tune` in its usual time, which is not counted; the other object begins with an empty database. The
machine may change within a minute: so the calls are made in pieces, and behind each the tuned plan has a share of the
time, while nothing is prepared. `over` is the seconds of all calls of the one over what as many calls take by the
other, piece by piece; `last` that of the last quarter.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import akx
from akx.device.host import default_threads
from akx.plandb import PlanDatabase
from benchmarks import each
from benchmarks.contest import compile_kernels
from benchmarks.matrices import Case

__all__ = ["main", "measured", "table"]

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "tuner.md"
_RESULTS = Path(__file__).resolve().parent / "results" / "online.json"
_MATRICES = ("pentadiagonal", "brick", "tetrahedra", "rmat", "bcsstk16", "wang4")
_K, _SECONDS, _PIECES = 8, 60.0, 24
#: Of each piece the tuned plan has so much again.
_SHARE = 0.25

Json = dict[str, Any]


def measured(case: Case, seconds: float = _SECONDS) -> Json:
    """The entry of a matrix: calls, ``over``, that of the ``first`` and ``last`` quarter, plans, what was tried."""
    A = case.load()
    n = A.shape[0]
    compile_kernels(str(A.dtype), default_threads())
    x, out = np.random.default_rng(0).standard_normal(n), np.empty((n, _K + 1), order="F")
    with tempfile.TemporaryDirectory() as folder:
        known, empty = (PlanDatabase(Path(folder) / name, layers=()) for name in ("tuned.db", "online.db"))
        akx.tune(A, _K, backend="cpu", db=known)
        tuned, online = akx.MatrixPowers(A, _K, db=known), akx.MatrixPowers(A, _K, db=empty, tune="online")
        begun = online.plan.label()
        _calls(tuned, x, out, 0.1)
        pieces = []
        for _ in range(_PIECES):
            took, calls = _calls(online, x, out, seconds / _PIECES)
            _await_steps()
            beside, others = _calls(tuned, x, out, _SHARE * seconds / _PIECES)
            pieces.append((took, calls, beside / others))
        (search,) = online._prepared.online.values()
        return {
            "matrix": case.name,
            "rows": n,
            "nnz": int(A.nnz),
            "k": _K,
            "seconds": sum(took for took, _, _ in pieces),
            "calls": sum(calls for _, calls, _ in pieces),
            "over": _over(pieces),
            "first": _over(pieces[: _PIECES // 4]),
            "last": _over(pieces[-_PIECES // 4 :]),
            "plans": {"begun": begun, "ended": online.plan.label(), "tuned": tuned.plan.label()},
            "tried": dict(search.tried),
            "spent": search.budget.spent,
        }


def _over(pieces: Sequence[tuple[float, int, float]]) -> float:
    """Seconds of the calls over those of as many with the tuned plan."""
    return sum(took for took, _, _ in pieces) / sum(calls * one for _, calls, one in pieces)


def _calls(P: Any, x: Any, out: Any, seconds: float) -> tuple[float, int]:
    """Seconds of calls, made one after another for so long, and how many these were."""
    begin, calls = time.perf_counter(), 0
    while True:
        P(x, out=out)
        calls += 1
        took = time.perf_counter() - begin
        if took >= seconds:
            return took, calls


def _await_steps() -> None:
    for thread in threading.enumerate():
        if thread.name == "akx-online":
            thread.join()


def table(document: Json) -> str:
    """The Markdown table."""
    lines = [
        "| matrix | entries | calls | over the tuned plan | in the first quarter | in the last | tried | cost |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in document.get("online", []):
        lines.append(
            f"| {one['matrix']} | {one['nnz']:,} | {one['calls']:,} | {one['over']:.3f} | {one['first']:.3f} | "
            f"{one['last']:.3f} | {sum(one['tried'].values())} | {one['spent'] / one['seconds']:.1%} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; the exit code is 0."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--seconds", type=float, default=_SECONDS)
    options, rest = parser.parse_known_args(arguments)
    return each.run(
        rest, partial(measured, seconds=options.seconds), table, name="online",
        description="Tuning while calls are made.", entries="online", results=_RESULTS, page=_PAGE, usual=_MATRICES,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
