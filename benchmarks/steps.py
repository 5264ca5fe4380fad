"""Time of a step: communication-avoiding solvers beside classic ones, akx's and SciPy's, on the gallery.

    python -m benchmarks.steps                       every matrix and method, into benchmarks/results/steps.json
    python -m benchmarks.steps --only shell --method cg
    python -m benchmarks.steps --table               the table of docs/solvers.md from the file
    python -m benchmarks.steps --backend cuda -o benchmarks/results/solving_h100.json --docs docs/cuda.md

A step is one product of cg and gmres (restarted after 30), two of bicgstab. Its time is the slope between a short and a
long solve of the same system, so that what is paid once is left out: setup, the first steps of a communication-avoiding
solver, the last residual. The long solve of cg ends before the residual has come to its last digits, where no solver
would go on; where that leaves no slope to be seen, the figure is that of whole solves, from the first step to the last,
divided by their steps, and the table says so. Contestants take turns, forwards and backwards; in a turn, of a second or
more on a GPU, the slope is the median of those of pairs of solves. A figure is the median of the rounds, a ratio the
median of the ratios of each round. Plans are tuned first, into a database of their own (``--db``): s and the matrix
powers of a communication-avoiding solver (:func:`akx.solvers.tune_for`), single products for the classic ones.

For cg the gallery's matrices that are positive definite as they are; for gmres and bicgstab their nonsymmetric versions
and those that are not symmetric: the upper triangle times 1.2 and the lower one times 0.8.

What is a contestant depends on the backend: :data:`BACKENDS` has a function for each, which gives, by name, a callable
that solves with so many steps at most and returns the seconds that counted and the steps that were done.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

import akx.solvers
from akx.core.errors import AkxError
from akx.core.garbage_collection import nothing_collected
from akx.core.matrix import Matrix
from akx.tuner import tune
from akx.tuner.measure import Measurement, median, now, paired_ratio
from benchmarks import markdown, record, solving
from benchmarks.gallery import GALLERY

__all__ = [
    "BACKENDS",
    "DEFINITE",
    "IRREGULAR",
    "OTHERS",
    "Contestant",
    "Runner",
    "compare",
    "main",
    "slope",
    "system_of",
    "table",
]

#: Matrices for cg; those that come in no useful order are listed apart.
DEFINITE = ("9-point", "7-point", "brick", "shell", "27-point", "pentadiagonal")
#: More of them for methods without symmetry.
OTHERS = ("mc2depi",)
IRREGULAR = ("tetrahedra",)
METHODS = ("cg", "gmres", "bicgstab")
#: Blocks of the short solve after its first steps.
_BLOCKS = 2
_ROUNDS = 5
_SKEW = 0.2
_ROOT = Path(__file__).resolve().parents[1]
_RESULTS = _ROOT / "benchmarks" / "results" / "steps.json"
_PAGE = _ROOT / "docs" / "solvers.md"

Json = dict[str, Any]
#: ``run(limit)``: seconds without setup, steps, and what is to be noted.
Runner = Callable[[int], tuple[float, int, Json]]


@dataclass(frozen=True)
class Contestant:
    """One solver for one system.

    Attributes
    ----------
    name : str
        ``"cg"``, ``"ca_cg"``, ...
    by : str
        Whose it is: ``"akx"``, ``"SciPy"``, ``"CuPy"``.
    run : callable
        ``run(limit)`` solves with at most so many steps (restart cycles of gmres) and returns seconds without setup,
        steps done, and what is to be noted, ``s`` among it.
    """

    name: str
    by: str
    run: Runner

    @property
    def label(self) -> str:
        return f"{self.name} ({self.by})"


def system_of(name: str, method: str) -> tuple[sparse.csr_array, Any]:
    """A matrix of the gallery, nonsymmetric where the method is for such, and a random right-hand side."""
    A = sparse.csr_array(GALLERY[name]())
    if method != "cg" and name not in OTHERS:
        rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
        A.data *= 1 + _SKEW * np.sign(A.indices - rows)
    return A, np.random.default_rng(0).standard_normal(A.shape[0])


def cpu_contestants(
    name: str, method: str, A: Any, b: Any, *, threads: int, db: Path, seconds: float, lengths: tuple[int, int]
) -> list[Contestant]:
    """akx's classic and communication-avoiding solver with tuned plans, and SciPy's."""
    matrix = Matrix.from_any(A)
    tune(matrix, 1, threads=threads, seconds=seconds, db=db, backend="cpu")
    akx.solvers.tune_for(matrix, f"ca_{method}", threads=threads, seconds=5 * seconds, db=db)
    return [
        Contestant(method, "akx", _ours(method, matrix, b, threads=threads, db=db)),
        Contestant(f"ca_{method}", "akx", _ours(f"ca_{method}", matrix, b, threads=threads, db=db)),
        Contestant(method, "SciPy", _scipys(method, A, b)),
    ]


def cuda_contestants(
    name: str, method: str, A: Any, b: Any, *, threads: int, db: Path, seconds: float, lengths: tuple[int, int]
) -> list[Contestant]:
    """akx's classic and communication-avoiding solver on the GPU, and CuPy's."""
    from benchmarks import steps_gpu

    given = {"db": db, "seconds": seconds, "lengths": lengths}
    return [Contestant(*found) for found in steps_gpu.runners(name, method, A, b, **given)]


def _ours(name: str, A: Any, b: Any, **options: Any) -> Runner:
    def run(limit: int) -> tuple[float, int, Json]:
        given = {**options, "restart": solving.RESTART} if name.endswith("gmres") else options
        _, _, stats = akx.solvers.SOLVERS[name](A, b, rtol=0.0, maxiter=limit, return_stats=True, **given)
        noted = {"s": max(stats.s[1:], default=0), "notes": stats.notes[:5], "reason": stats.reason}
        noted["phases"] = {phase: spent for phase, spent in stats.seconds.items() if phase != "total"}
        return stats.seconds["total"] - stats.seconds.get("setup", 0.0), stats.iterations, noted

    return run


def _scipys(method: str, A: Any, b: Any) -> Runner:
    solver = getattr(linalg, method)

    def run(limit: int) -> tuple[float, int, Json]:
        steps = 0

        def count(_: Any) -> None:
            nonlocal steps
            steps += 1

        options: Json = {"restart": solving.RESTART, "callback_type": "pr_norm"} if method == "gmres" else {}
        begin = now()
        solver(A, b, rtol=0.0, maxiter=limit, callback=count, **options)
        return now() - begin, steps, {}

    return run


#: Backend -> who takes part.
BACKENDS: dict[str, Callable[..., list[Contestant]]] = {"cpu": cpu_contestants, "cuda": cuda_contestants}
#: Fewest steps of the short solve, steps more of the long one, and cycles of both of gmres, before it is at its last
#: digits. On a GPU the short one has all that is made once: graphs, in three cycles, and bases from 128 coefficients.
_LENGTHS = {"cpu": (0, 64, (2, 4)), "cuda": (192, 1024, (3, 12))}
#: Fewest steps from the short solve to the last digits that make a slope; else whole solves are timed.
_APART = 64
#: A residual, as a part of the first one, up to which solvers go on.
_USEFUL = 1e-13
#: Pairs of solves in one sample, at least, and seconds until more are made: a GPU's steps are short.
_PAIRS = {"cpu": (1, 0.0), "cuda": (4, 1.0)}


def compare(
    name: str, method: str, *, backend: str = "cpu", threads: int = 2, db: Path, seconds: float, rounds: int = _ROUNDS
) -> Json:
    """One entry: seconds of a step by contestant, and ``ratio`` of the best classic solver to the other kind."""
    A, b = system_of(name, method)
    least, more, cycles = _LENGTHS[backend]
    whole = False
    if method == "cg":
        useful = useful_steps(A, b, least + more, backend)
        whole = useful < least + _APART
        least, more = (0, useful) if whole else (least, min(more, useful - least))
    elif method == "gmres" and backend == "cuda":
        cycles = cycles[0], useful_cycles(A, b, *cycles, backend)
    given: Json = {"threads": threads, "db": db, "seconds": seconds, "lengths": (least, least + more)}
    contestants = BACKENDS[backend](name, method, A, b, **given)
    lengths, notes = zip(*(_lengths(one, method, least, more, cycles, whole) for one in contestants), strict=True)
    samples: list[list[float]] = [[] for _ in contestants]
    with nothing_collected():
        for turn in range(rounds):
            order = range(len(contestants)) if turn % 2 == 0 else reversed(range(len(contestants)))
            for i in order:
                samples[i].append(slope(contestants[i].run, *lengths[i], *_PAIRS[backend]))
    found = [Measurement.of(times) for times in samples]
    ca = next(i for i, one in enumerate(contestants) if one.name.startswith("ca_"))
    best = min((i for i in range(len(found)) if i != ca), key=lambda i: found[i].seconds)
    own = next(i for i, one in enumerate(contestants) if one.by == "akx" and i != ca)
    return {
        "matrix": name,
        "method": method,
        "backend": backend,
        "rows": A.shape[0],
        "nnz": int(A.nnz),
        "steps": {
            one.label: {"seconds": time.seconds, "spread": time.spread, **note}
            for one, time, note in zip(contestants, found, notes, strict=True)
        },
        "whole_solves": whole,
        "best_classic": contestants[best].label,
        "ratio": paired_ratio(found[best], found[ca]).seconds,
        "ratio_own": paired_ratio(found[own], found[ca]).seconds,
    }


def useful_steps(A: Any, b: Any, most: int, backend: str) -> int:
    """Steps of CG after which the residual is 1e-13 of what it was, at most so many; 96 where it needs less."""
    _, _, stats = akx.solvers.cg(A, b, rtol=_USEFUL, maxiter=most, backend=backend, return_stats=True)
    return max(stats.iterations if stats.converged else most, 96)


def useful_cycles(A: Any, b: Any, first: int, most: int, backend: str) -> int:
    """Whole cycles of GMRES before the residual is 1e-13 of what it was, at most so many, and more than `first`."""
    given = {"restart": solving.RESTART, "maxiter": most, "backend": backend, "return_stats": True}
    _, _, stats = akx.solvers.gmres(A, b, rtol=_USEFUL, **given)
    return max(first + 1, stats.iterations // solving.RESTART)


def _lengths(
    one: Contestant, method: str, least: int, more: int, cycles: tuple[int, int], whole: bool
) -> tuple[tuple[int, int], Json]:
    """Limits of the short and the long solve, both a whole number of blocks, after one that compiles everything.

    Where `whole` solves of cg are timed, the short one has no steps.
    """
    if method == "gmres":
        _, _, note = one.run(3)
        return cycles, note
    _, _, note = one.run(64)
    s = int(note.get("s") or 1)
    if whole:
        return (0, more // s * s), note
    short = max(2 + _BLOCKS, -(-least // s)) * s
    return (short, short + -(-more // s) * s), note


def slope(run: Runner, short: int, long: int, pairs: int, seconds: float) -> float:
    """Seconds of a step: the median of so many pairs of solves of two lengths, more where these take less time.

    Where `short` is 0 there is no short solve, and a step has its share of what is made once.

    Raises
    ------
    RuntimeError
        Where the long solve has no more steps than the short one.
    """
    found: list[float] = []
    end = now() + seconds
    while len(found) < pairs or now() < end:
        less, few, _ = run(short) if short else (0.0, 0, {})
        more, many, _ = run(long)
        if many <= few:
            raise RuntimeError(f"{many} steps where {few} were short: the solve came to its end")
        found.append((more - less) / (many - few))
    return median(found)


def table(document: Json) -> str:
    """The table of the page."""
    parts = [f"{solving.origin(document, document['steps'])}. Milliseconds a step."]
    for backend in sorted({entry["backend"] for entry in document["steps"]}):
        for method in METHODS:
            entries = [e for e in document["steps"] if (e["backend"], e["method"]) == (backend, method)]
            if entries:
                parts.append(_table_of(method, entries))
    return "\n\n".join(parts)


def _table_of(method: str, entries: Sequence[Mapping[str, Any]]) -> str:
    labels = list(dict.fromkeys(label for entry in entries for label in entry["steps"]))
    body, counted = [], []
    for entry in entries:
        times = [entry["steps"].get(label) for label in labels]
        s = next(found["s"] for label, found in entry["steps"].items() if label.startswith("ca_"))
        figures = ["" if time is None else f"{time['seconds'] * 1e3:.3g}" for time in times]
        mark = " (whole solves)" if entry.get("whole_solves") else ""
        body.append([entry["matrix"] + mark, str(s), *figures, f"{entry['ratio']:.2f}", f"{entry['ratio_own']:.2f}"])
        if entry["matrix"] not in IRREGULAR:
            counted.append(entry)
    mean = [record.geometric_mean(e[what] for e in counted) for what in ("ratio", "ratio_own")]
    apart = ", ".join(name for name in IRREGULAR if any(e["matrix"] == name for e in entries))
    last = f"geometric mean{f' without {apart}' if apart else ''}"
    body.append([last, "", *("" for _ in labels), *(f"{value:.2f}" for value in mean)])
    head = ["matrix", "s", *labels, "best classic / ca", f"{method} (akx) / ca"]
    return markdown.rows(head, body)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, write the file and the table; the exit code is 1 where something could not be timed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steps", description="Time of a step of solvers.")
    parser.add_argument("--only", action="append", metavar="MATRIX")
    parser.add_argument("--method", action="append", choices=METHODS, help="cg and gmres by default")
    parser.add_argument("--backend", choices=sorted(BACKENDS), default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=12.0, help="for tuning, of each plan")
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    parser.add_argument("--db", type=Path, help="where tuned plans are kept; a new one by default")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    parser.add_argument("-o", "--output", type=Path, default=_RESULTS)
    parser.add_argument("--docs", type=Path, default=_PAGE)
    options = parser.parse_args(arguments)
    document = json.loads(options.output.read_text()) if options.output.exists() else {"steps": []}
    if options.backend == "cuda" and not options.table:
        from benchmarks.gpu import origin_of_table

        origin: Json = origin_of_table(options.threads)
    else:
        origin = dict(record.provenance(options.threads))
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        db = options.db or Path(folder) / "plans.sqlite"
        given: Json = {"backend": options.backend, "threads": options.threads, "db": db, "seconds": options.seconds}
        for method in () if options.table else options.method or ("cg", "gmres"):
            for name in options.only or (*DEFINITE, *(() if method == "cg" else OTHERS), *IRREGULAR):
                try:
                    entry = compare(name, method, rounds=options.rounds, **given)
                except (AkxError, RuntimeError) as problem:
                    failures += 1
                    print(f"{name} {method}: {type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
                    continue
                times = ", ".join(f"{label} {t['seconds'] * 1e3:.3g}" for label, t in entry["steps"].items())
                print(f"{name} {method}: {times} ms a step, ratio {entry['ratio']:.2f}", file=sys.stderr, flush=True)
                entry |= {"commit": origin["commit"], "date": origin["date"]}
                kept = [e for e in document["steps"] if _key(e) != _key(entry)]
                document = {**origin, "steps": sorted([*kept, entry], key=_order)}
                solving.save(options.output, document)
    if options.docs.exists() and document["steps"]:
        options.docs.write_text(markdown.replace_block(options.docs.read_text(), "steps", table(document)))
    return 1 if failures else 0


def _key(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    return entry["backend"], entry["method"], entry["matrix"]


def _order(entry: Mapping[str, Any]) -> tuple[str, int, int]:
    names = (*DEFINITE, *OTHERS, *IRREGULAR)
    return entry["backend"], METHODS.index(entry["method"]), names.index(entry["matrix"])


if __name__ == "__main__":
    sys.exit(main())
