"""Measure matrix powers: every matrix and k, all contestants interleaved in one run, into a result file.

    python -m benchmarks.powers                          everything, into benchmarks/results/cpu.json
    python -m benchmarks.powers --only brick --k 8       one matrix, merged into the file
    python -m benchmarks.powers --missing                what the file does not have yet
    python -m benchmarks.powers --only gallery           a group: gallery or real
    python -m benchmarks.powers --vectors                by number of start vectors, into vectors.json, and its table

After every (matrix, k) the file is written anew, so a run that is stopped loses nothing. With the default budgets a
matrix with all five k takes about two minutes on two cores.

With ``--vectors``, k = 8 and the values general: SciPy's loop, which keeps all blocks of vectors (n, b), beside first
calls of ``akx.matrix_powers`` (plain products, as if preparing never paid), ``akx.MatrixPowers`` that makes its result
and one that is given it. Nothing is tuned, what a user's clock shows around the public call counts, and all of them
take turns. Where a result has more than a gigabyte a number of vectors is left out. Some 20 seconds a matrix.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy import sparse

import akx
from akx.operator import tiers
from benchmarks import each, markdown, record, solving
from benchmarks.answer import general
from benchmarks.clock import Settings, interleave
from benchmarks.contest import AkxContest, ContestMaker
from benchmarks.matrices import Case, select

__all__ = ["RESULTS", "VECTORS", "main", "measure", "run", "vectors", "vectors_table"]

RESULTS = Path(__file__).resolve().parent / "results" / "cpu.json"
POWERS = (1, 2, 4, 8, 16)
_BEST = "akx"
#: By number of start vectors: the file, the numbers, powers, the most bytes of a result, and how long is measured.
VECTORS = RESULTS.with_name("vectors.json")
_COUNTS, _K, _MOST_BYTES, _TURNS = (1, 2, 3, 4, 8, 16, 32, 64), 8, 1 << 30, Settings(seconds=1.5, rounds_max=200)
_PAGE = RESULTS.parents[2] / "docs" / "benchmarks.md"


def measure(
    case: Case, matrix: sparse.csr_array, k: int, make: ContestMaker, settings: Settings | None = None
) -> dict[str, Any]:
    """The entry of one matrix and k, as :mod:`benchmarks.record` has it.

    Parameters
    ----------
    case : Case
        Name and group.
    matrix : csr_array, shape (n, n)
        The matrix.
    k : int
        Powers.
    make : ContestMaker
        Makes the contestants.
    settings : Settings, optional
        How long to measure.
    """
    contest = make(case.name, matrix, k, reordered=case.reordered)
    error = contest.error()
    calls = {**contest.baselines, **contest.extras}
    if contest.best is not None:
        calls[_BEST] = contest.best
    best_name = _BEST if contest.best is not None else "sweep"
    timings = interleave(calls, settings, keep=(best_name, "sweep"))
    baselines = {name: timings[name].seconds for name in contest.baselines}
    best = timings[best_name]
    entry = {
        "matrix": case.name,
        "group": case.group,
        "rows": int(matrix.shape[0]),
        "nnz": int(matrix.nnz),
        "k": k,
        "dtype": str(matrix.dtype),
        "baselines": baselines,
        "best": {
            "schedule": contest.schedule,
            "variant": contest.variant,
            "seconds": best.seconds,
            "spread": best.spread,
        },
        "speedup": min(baselines.values()) / best.seconds,
        "prepare_seconds": contest.prepare_seconds,
        "error": error,
        "plan": contest.plan,
        "tuning_seconds": contest.tuning_seconds,
    }
    return entry | {name: timings[name].seconds for name in contest.extras}


def run(
    cases: Sequence[Case],
    powers: Sequence[int],
    output: Path,
    make: ContestMaker,
    *,
    threads: int,
    settings: Settings | None = None,
    missing: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> int:
    """Measure `cases` for each k of `powers` into `output`; returns the number of measurements that failed.

    Raises
    ------
    ValueError
        `output` is not a result file, or one of another machine.
    """
    origin = record.provenance(threads)
    document = record.merge(record.load(output), origin, [])
    had = {(entry["matrix"], entry["k"]) for entry in document["powers"]} if missing else set()
    failures = 0
    for case in cases:
        wanted = [k for k in powers if (case.name, k) not in had]
        if not wanted:
            continue
        begin = time.perf_counter()
        try:
            matrix = case.load()
        except ValueError as reason:
            say(f"{case.name}: left out, {reason}")
            continue
        say(f"{case.name}: {matrix.shape[0]:,} rows, {matrix.nnz:,} entries")
        for k in wanted:
            try:
                entry = measure(case, matrix, k, make, settings)
                document = record.merge(document, origin, [entry])
                record.save(output, document)
            except Exception as error:  # one failure must not cost the other matrices their hour
                failures += 1
                say(f"  k = {k:2d}  FAILED: {type(error).__name__}: {error}")
                continue
            say(f"  k = {k:2d}  {_line(entry)}")
        say(f"  {time.perf_counter() - begin:.0f} s")
    return failures


def vectors(case: Case, counts: Sequence[int] = _COUNTS, settings: Settings = _TURNS) -> dict[str, Any] | None:
    """The entry of one matrix: by number of start vectors, seconds and spread of each contestant, and SciPy's over it.

    Raises ArithmeticError where one of akx's differs from SciPy's result by more than rounding.
    """
    try:
        A = general(case.load())
    except ValueError:
        return None
    n, found, operator = A.shape[0], [], akx.MatrixPowers(A, _K, backend="cpu")
    for count in counts:
        if n * count * (_K + 1) * A.dtype.itemsize > _MOST_BYTES:
            break
        X = np.random.default_rng(1).uniform(0.5, 1.5, (n, count))[:, slice(None) if count > 1 else 0]
        out = operator(X)
        calls = {
            "scipy": partial(_loop, A, X),
            "first": partial(akx.matrix_powers, A, X, _K),
            "prepared": partial(operator, X),
            "out": partial(operator, X, out=out),
        }
        with _plain():
            exact = calls["scipy"]()[-1]
            scale = np.abs(exact).max(initial=np.finfo(float).tiny)
            for name in ("first", "prepared", "out"):
                if not np.abs(calls[name]()[..., -1] - exact).max() <= 1e-10 * scale:  # type: ignore[index]
                    raise ArithmeticError(f"{name} is wrong")
            timings = interleave(calls, settings, keep=tuple(calls))
        scipy = timings["scipy"].seconds
        times = {name: {"seconds": one.seconds, "spread": one.spread} for name, one in timings.items()}
        found.append({"vectors": count, "times": times, **{name: scipy / timings[name].seconds for name in _OURS}})
    return {"matrix": case.name, "rows": n, "nnz": int(A.nnz), "k": _K, "plan": operator.plan.label(), "by": found}


_OURS = ("first", "prepared", "out")


def _loop(A: sparse.csr_array, X: np.ndarray[Any, Any]) -> list[Any]:
    V = [X]
    for _ in range(_K):
        V.append(A @ V[-1])
    return V


@contextmanager
def _plain() -> Iterator[None]:
    """Within, no rent is ever over: first calls stay what they are."""

    def goes_on(rent: tiers.Rent, k: int, vectors: int = 1, **_: bool) -> bool:
        rent.calls += 1
        return True

    with mock.patch.object(tiers.Rent, "goes_on", goes_on), mock.patch.dict(os.environ, AKX_PREPARE=tiers.AUTO):
        yield


def vectors_table(document: dict[str, Any]) -> str:
    """A line for each matrix: how many times as fast as SciPy, first calls / prepared / with out; means and least."""
    counts = sorted({one["vectors"] for entry in document["vectors"] for one in entry["by"]})
    body, columns = [], {count: list[dict[str, float]]() for count in counts}
    for entry in document["vectors"]:
        by = {one["vectors"]: one for one in entry["by"]}
        for count, one in by.items():
            columns[count].append(one)
        cells = [" / ".join(f"{by[b][name]:.2f}" for name in _OURS) if b in by else "" for b in counts]
        body.append([entry["matrix"], f"{entry['rows']:,}", f"{entry['nnz']:,}", *cells])
    for word, of in (("mean", record.geometric_mean), ("least", min)):
        cells = [" / ".join(f"{of([one[name] for one in columns[b]]):.2f}" for name in _OURS) for b in counts]
        body.append([word, "", "", *cells])
    head = ["matrix", "rows", "entries", *(f"b = {count}" for count in counts)]
    return f"{solving.origin(document, document['vectors'])}.\n\n{markdown.rows(head, body)}"


def _line(entry: dict[str, Any]) -> str:
    times = "  ".join(f"{name} {seconds * 1e3:.3f}" for name, seconds in entry["baselines"].items())
    best = entry["best"]
    return f"{times}  akx {best['seconds'] * 1e3:.3f} ms  {entry['speedup']:.2f}x  {entry['plan']}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, and return the exit code: 1 where a measurement failed, 2 for a bad argument."""
    from akx.backends.host import resolve_threads

    given = list(sys.argv[1:] if arguments is None else arguments)
    if "--vectors" in given:
        given.remove("--vectors")
        return each.run(
            given, vectors, vectors_table, name="powers --vectors", description="Matrix powers by start vectors.",
            entries="vectors", results=VECTORS, page=_PAGE,
        )  # fmt: skip
    parser = argparse.ArgumentParser(prog="python -m benchmarks.powers", description="Measure matrix powers.")
    parser.add_argument("--matrices", "--only", nargs="+", metavar="NAME", help="matrices, or the groups gallery, real")
    parser.add_argument("--k", nargs="+", type=int, default=list(POWERS), metavar="K", help="numbers of powers")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, help="result file to merge into")
    parser.add_argument("--threads", type=int, help="threads of every contestant (default: all)")
    parser.add_argument("--tune-seconds", type=float, default=12.0, help="time budget of tuning for each k")
    parser.add_argument("--seconds", type=float, default=Settings.seconds, help="time of measuring for each k")
    parser.add_argument("--db", help="take plans from this database, and keep new ones there")
    parser.add_argument("--missing", action="store_true", help="only what the file does not have yet")
    parser.add_argument("--small", action="store_true", help="the gallery in its reduced form, to try the harness")
    options = parser.parse_args(given)
    if min(options.k) < 1:
        parser.error("--k needs numbers from 1 on")
    try:
        cases = select(options.matrices, reduced=options.small)
    except KeyError as unknown:
        parser.error(f"no matrix {unknown}; python -m benchmarks.gallery lists those of the gallery")
    if options.small and options.output == RESULTS:
        parser.error("--small is for trying: give it a file of its own with -o")
    threads = resolve_threads(options.threads)
    make = AkxContest(threads, options.tune_seconds, options.db)
    settings = Settings(seconds=options.seconds)

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        failures = run(
            cases, options.k, options.output, make,
            threads=threads, settings=settings, missing=options.missing, say=say,
        )  # fmt: skip
    except ValueError as problem:
        parser.error(str(problem))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
