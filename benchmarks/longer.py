"""Would a longer search have found more? Searches of 30 and 60 trials, a long one, and their plans timed in turns.

    python -m benchmarks.longer                          the brick, the shell and rail_20209 on this CPU
    python -m benchmarks.longer --matrix wang4 --k 8     one, into the same file
    python -m benchmarks.longer --backend cuda --processes 6       on a GPU, six searches side by side
    python -m benchmarks.longer --table                  print the table from the file

Recordings (:mod:`benchmarks.samplers`) hold whole spaces of a CPU, but parts of a GPU's, around a plan that was known
to be good. Here nothing is known: each search has the whole space, no database and a seed of its own. The figure is the
*share*: seconds of the fastest of the three plans over those of each, compared round by round in one run. That the long
search found the optimum is not said: it had more trials, as many as its seconds allow, and did not stop where nothing
got better.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from akx.backends.host import default_threads
from akx.core.plan import Plan
from akx.tuner import Settings, measure, tune
from akx.tuner.measure import Precision
from benchmarks import markdown, planned, samplers, solving
from benchmarks.calls import calls_of
from benchmarks.contest import compile_kernels
from benchmarks.predicted import origin_of

__all__ = ["compared", "main", "table"]

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "tuner.md"
_FOLDER = Path(__file__).resolve().parent / "results"
_RESULTS = {"cpu": _FOLDER / "longer.json", "cuda": _FOLDER / "longer_h100.json"}
_MATRICES = {
    "cpu": (("brick", 8), ("shell", 4), ("rail_20209", 16)),
    "cuda": (
        ("brick", 16),
        ("wang4", 8),
        ("tetrahedra", 8),
        ("G3_circuit", 8),
        ("delaunay", 8),
        ("memplus", 8),
    ),
}
#: Trials of the short searches, and the most that a long one may have in its seconds.
_TRIALS, _MANY = (30, 60), 600
_TURNS = Precision(relative=0.002, seconds=8.0, rounds_min=21, rounds_max=401, sample_seconds=2e-3)

Json = dict[str, Any]
#: Matrix, k, backend, trials or None, seed.
Search = tuple[str, int, str, int | None, int]


def compared(found: Sequence[Json], precision: Precision = _TURNS) -> Json:
    """Time the plans of searches for one matrix in turns.

    Parameters
    ----------
    found : sequence of dict
        As :func:`_searched` returns them.
    precision : Precision
        Of the comparison.

    Returns
    -------
    dict
        ``matrix``, ``rows``, ``nnz``, ``k`` and ``searches`` [{``allowed``, ``trials``, ``seconds``, ``plan``,
        ``call_seconds``, ``spread``, ``share``}, ...]; ``allowed`` are trials, null for the long search.
    """
    name, k, backend = found[0]["matrix"], found[0]["k"], found[0]["backend"]
    matrix = samplers.made(name)
    plans = list(dict.fromkeys(Plan.from_json(one["plan"]) for one in found))
    timings = dict(zip(plans, measure.interleave(calls_of(backend, matrix, k, plans), precision), strict=True))
    fastest = min(timings.values(), key=lambda one: one.seconds)
    searches = []
    for one in found:
        plan = Plan.from_json(one["plan"])
        searches.append(
            {
                "allowed": one["allowed"],
                "trials": one["trials"],
                "seconds": one["seconds"],
                "plan": plan.label(),
                "call_seconds": timings[plan].seconds,
                "spread": timings[plan].spread,
                "share": measure.paired_ratio(fastest, timings[plan]).seconds,
            }
        )
    return {"matrix": name, "rows": matrix.n, "nnz": matrix.nnz, "k": k, "searches": searches}


def _searched(seconds: float, search: Search) -> Json:
    """One search, of so many trials or, where that is None, of so many seconds."""
    name, k, backend, trials, seed = search
    matrix = samplers.made(name)
    if backend == "cpu":
        compile_kernels(str(matrix.dtype), default_threads())
    most = trials or _MANY
    settings = Settings(trials=most, seconds=seconds, patience=most, seed=seed)
    found = tune(matrix, k, backend=backend, settings=settings, db=False, name=name)
    return {
        "matrix": name,
        "k": k,
        "backend": backend,
        "allowed": trials,
        "trials": len(found.trials),
        "seconds": found.tuning_seconds,
        "plan": found.plan.to_json(),
    }


def table(document: Json) -> str:
    """A line for each matrix, and what they come to."""
    head = ["matrix", "k", *(f"{trials} trials" for trials in _TRIALS), "long search", "its trials", "seconds"]
    body, shares = [], []
    for entry in document["matrices"]:
        by_trials = {one["allowed"]: one for one in entry["searches"]}
        shares.append([by_trials[trials]["share"] for trials in (*_TRIALS, None)])
        body.append(
            [
                entry["matrix"],
                str(entry["k"]),
                *(f"{share:.2f}" for share in shares[-1]),
                str(by_trials[None]["trials"]),
                ", ".join(f"{by_trials[trials]['seconds']:.0f}" for trials in (*_TRIALS, None)),
            ]
        )
    body.append(["median", "", *(f"{median(column):.2f}" for column in zip(*shares, strict=True)), "", ""])
    body.append(["least", "", *(f"{min(column):.2f}" for column in zip(*shares, strict=True)), "", ""])
    return f"{solving.origin(document, document['matrices'])}.\n\n{markdown.rows(head, body, left=(0,))}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, compare and write; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.longer", description="Short searches and a long one.")
    parser.add_argument("--backend", default="cpu", choices=sorted(_MATRICES))
    parser.add_argument("--processes", type=int, default=1, help="searches at a time, on a GPU")
    parser.add_argument("--matrix", help="of the gallery, or a real one; a few of them by default")
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=300.0, help="most that any search may take")
    parser.add_argument("--table", action="store_true", help="print the table from the file")
    parser.add_argument("-o", "--output", type=Path, help="a file of results; one for each backend by default")
    parser.add_argument("--docs", type=Path, help="the page with the table; docs/tuner.md with the file by default")
    options = parser.parse_args(arguments)
    default = _RESULTS[options.backend]
    options.output = options.output or default
    if options.processes > 1 and options.backend == "cpu":
        parser.error("on a CPU searches go one after another: they would take one another's cores")
    if not options.table:
        wanted = _MATRICES[options.backend] if options.matrix is None else ((options.matrix, options.k),)
        budgets = [None, *reversed(_TRIALS)]  # the longest first
        searches = [
            (name, k, options.backend, trials, seed) for seed, trials in enumerate(budgets) for name, k in wanted
        ]
        origin = origin_of(options.backend)
        one = partial(_searched, options.seconds)
        if options.processes > 1:
            with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=1) as pool:
                results = pool.map(one, searches, chunksize=1)
        else:
            results = [one(search) for search in searches]
        for name, k in wanted:
            found = compared([result for result in results if (result["matrix"], result["k"]) == (name, k)])
            said = ", ".join(f"{search['share']:.2f}" for search in found["searches"])
            print(f"{name} k = {k}: {said}", file=sys.stderr, flush=True)
            known = planned.known(options.output, "matrices")
            solving.keep(options.output, known, "matrices", found, origin, of=("matrix", "k"))
    page = markdown.page_for(options.output, options.docs, usual=default, page=_PAGE)
    markdown.show(table(json.loads(options.output.read_text())), options.output.stem, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
