"""How good is the tuner? Measure the whole feasible space of the brick at k = 8; compare the tuned plan with the best.

    python -m benchmarks.exhaustive                      into benchmarks/results/exhaustive_brick.json (half an hour)
    python -m benchmarks.exhaustive --seconds 300        stop the search of the whole space after that

`akx tune` runs first, with its default settings and no database. Then every feasible plan is measured, none dropped
early. At last the tuned plan and the best one found are timed in turns, through the public call; `ratio` is the tuned
plan's median over the best one's, 1 where they are the same plan.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks import record
from benchmarks.clock import Settings, Timing, interleave
from benchmarks.contest import compile_kernels, start_vector
from benchmarks.gallery import CONSTANT, GALLERY, small

__all__ = ["compare", "main"]

_RESULTS = Path(__file__).resolve().parent / "results"
#: Plans listed in the file, fastest first.
_LISTED = 25


def compare(
    name: str,
    matrix: sparse.csr_array,
    k: int,
    *,
    threads: int,
    seconds: float | None = None,
    tune_seconds: float | None = None,
    settings: Settings | None = None,
) -> dict[str, Any]:
    """Tune, search everything, and time both plans in turns.

    Parameters
    ----------
    name : str
        What to call the matrix.
    matrix : csr_array, shape (n, n)
        The matrix.
    k : int
        Powers.
    threads : int
        Most threads.
    seconds : float, optional
        Most seconds for the whole space; no limit by default.
    tune_seconds : float, optional
        Budget of the tuner; its default by default.
    settings : Settings, optional
        Of the last comparison.

    Returns
    -------
    dict
        ``matrix``, ``rows``, ``nnz``, ``k``, ``dtype``, ``space`` (plans looked at), ``feasible`` (plans measured),
        ``complete`` (nothing was left), ``tuning_seconds``, ``search_seconds``, ``tuned`` and ``best`` {``plan``,
        ``seconds``, ``spread``}, ``ratio``, ``trials`` of both, ``rank`` of the tuned plan in the search, ``plans``.
    """
    import akx
    from akx.tuner import exhaustive, tune

    canonical = akx.Matrix.from_any(matrix)
    compile_kernels(str(canonical.dtype), threads)
    begin = time.perf_counter()
    tuned = tune(canonical, k, threads=threads, seconds=tune_seconds, db=False, name=name)
    between = time.perf_counter()
    found = exhaustive(canonical, k, threads=threads, seconds=seconds, include=[tuned.plan], name=name)
    end = time.perf_counter()
    timings = _in_turns(akx, matrix, k, {"tuned": tuned.plan, "best": found.plan}, settings)
    measured = sorted((t for t in found.trials if t.state == "complete" and t.seconds), key=lambda t: t.seconds or 0.0)
    rank = next((i for i, trial in enumerate(measured, start=1) if trial.plan == tuned.plan), None)
    return {
        "matrix": name,
        "rows": canonical.n,
        "nnz": canonical.nnz,
        "k": k,
        "dtype": str(canonical.dtype),
        "space": found.counts.complete + found.counts.pruned + found.counts.failed,
        "feasible": found.counts.complete,
        "complete": found.stopped == "space exhausted",
        "tuning_seconds": between - begin,
        "search_seconds": end - between,
        "tuned": _figures(tuned.plan, timings["tuned"]),
        "best": _figures(found.plan, timings["best"]),
        "ratio": timings["tuned"].seconds / timings["best"].seconds,
        "trials": {"tune": tuned.counts.to_json(), "exhaustive": found.counts.to_json()},
        "rank": rank,
        "plans": [{"plan": t.plan.label(), "seconds": t.seconds, "spread": t.spread} for t in measured[:_LISTED]],
    }


def _figures(plan: Any, timing: Timing) -> dict[str, Any]:
    return {"plan": plan.label(), "seconds": timing.seconds, "spread": timing.spread}


def _in_turns(
    akx: Any, matrix: sparse.csr_array, k: int, plans: dict[str, Any], settings: Settings | None
) -> dict[str, Timing]:
    """Times of `plans` in one run; one measurement for all where they are the same."""
    x = start_vector(matrix.shape[0], matrix.dtype)
    powers = np.zeros((k + 1, matrix.shape[0]), dtype=matrix.dtype)
    operators = {plan: akx.MatrixPowers(matrix, k, plan=plan) for plan in plans.values()}
    names = {plan: str(number) for number, plan in enumerate(operators)}
    calls = {names[plan]: partial(run, x, out=powers.T) for plan, run in operators.items()}
    wanted = settings or Settings(seconds=10.0, rounds_min=15, rounds_max=61)
    timings = interleave(calls, wanted, keep=tuple(calls))
    return {name: timings[names[plan]] for name, plan in plans.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison, write its file, and return the exit code: 1 where the tuner missed by more than 5 %."""
    from akx.backends.host import resolve_threads

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.exhaustive", description="The tuner against everything."
    )
    parser.add_argument("--matrix", default="brick", choices=sorted(GALLERY | CONSTANT))
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seconds", type=float, help="most seconds for the whole space")
    parser.add_argument("--tune-seconds", type=float, help="budget of the tuner instead of its default")
    parser.add_argument("-o", "--output", type=Path, help="default: benchmarks/results/exhaustive_MATRIX.json")
    parser.add_argument("--small", action="store_true", help="the reduced matrix, to try the harness; needs -o")
    options = parser.parse_args(arguments)
    if options.small and options.output is None:
        parser.error("--small is for trying: give it a file of its own with -o")
    threads = resolve_threads(options.threads)
    matrix = small(options.matrix) if options.small else (GALLERY | CONSTANT)[options.matrix]()
    origin = record.provenance(threads)
    found = compare(
        options.matrix, matrix, options.k, threads=threads, seconds=options.seconds, tune_seconds=options.tune_seconds
    )
    output = options.output or _RESULTS / f"exhaustive_{options.matrix}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({**origin, **found}, indent=1) + "\n")
    print(
        f"{output}: {found['feasible']} plans; tuned {found['tuned']['seconds'] * 1e3:.3f} ms, "
        f"best {found['best']['seconds'] * 1e3:.3f} ms, ratio {found['ratio']:.3f}",
        file=sys.stderr,
    )
    return 0 if found["ratio"] <= 1.05 else 1


if __name__ == "__main__":
    sys.exit(main())
