"""Does tuning choose the same tomorrow? Ten tunings of one matrix, and all their plans timed in turns.

    python -m benchmarks.repeat                          bcsstk16, wang4 and the brick at k = 8 (a quarter of an hour)
    python -m benchmarks.repeat --matrix shell --k 4     one, into the same file
    python -m benchmarks.repeat --table                  print the table from the file
    python -m benchmarks.repeat --backend cuda           on a GPU (half an hour)
    python -m benchmarks.repeat --backend cuda --processes 10      ten tunings side by side
    python -m benchmarks.repeat --record FOLDER          with every trial of every search in a file

Each tuning has its own seed, the default settings and no database. On a GPU they may be processes of their own, which
measure in turns with one another: each gets fewer trials in its time than it would alone. The figure is the
*difference*: seconds of the slowest plan that any of them chose over those of the fastest, less one, all measured again
in one run, and compared round by round. Each plan is prepared several times for that and timed in each place of memory
that it gets so, since on a GPU the place alone makes some percent; `PLACES` says how many, and the file too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from akx.backends.host import default_threads
from akx.core.plan import Plan
from akx.tuner import measure, tune
from akx.tuner.measure import Measurement, Precision
from benchmarks import markdown, planned, samplers, solving
from benchmarks.calls import calls_of
from benchmarks.contest import compile_kernels
from benchmarks.predicted import origin_of

__all__ = ["PLACES", "main", "repeated", "table"]

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "tuner.md"
_FOLDER = Path(__file__).resolve().parent / "results"
_RESULTS = {"cpu": _FOLDER / "repeat.json", "cuda": _FOLDER / "repeat_h100.json"}
_MATRICES = {
    "cpu": (("bcsstk16", 8), ("wang4", 8), ("brick", 8)),
    "cuda": (("brick", 16), ("tetrahedra", 8), ("wang4", 8)),
}
_TIMES = 10
#: Places of memory in which the plans are compared, and the precision in each.
PLACES = 5
_TURNS = Precision(relative=0.002, seconds=5.0, rounds_min=41, rounds_max=41, sample_seconds=2e-3)

Json = dict[str, Any]


def repeated(
    name: str,
    k: int,
    times: int,
    precision: Precision = _TURNS,
    *,
    backend: str = "cpu",
    processes: int = 1,
    folder: Path | None = None,
) -> Json:
    """Tune so many times, then time the plans in turns.

    Parameters
    ----------
    name : str
        Of the gallery, or of a real matrix.
    k, times : int
        Powers, and tunings.
    precision : Precision
        Of the comparison in each place.
    backend : str
    processes : int
        How many of the tunings are under way at a time, on a GPU, each in a process of its own.
    folder : Path, optional
        Where each search leaves a recording.

    Returns
    -------
    dict
        ``matrix``, ``rows``, ``nnz``, ``k``, ``processes``, ``places``, fastest first ``plans`` [{``plan``, ``times``
        chosen, ``seconds``, ``spread``, ``ratio``, ``in_places``: seconds in each}, ...], ``difference``, and of the
        tunings ``tuning_seconds`` and ``trials``, in order.
    """
    matrix = samplers.made(name)
    one = partial(_tuned, name, k, backend, folder)
    if processes > 1:
        with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=1) as pool:
            results = pool.map(one, range(times), chunksize=1)
    else:
        results = [one(seed) for seed in range(times)]
    chosen = Counter(Plan.from_json(plan) for plan, _, _ in results)
    timings, in_places = _timed(partial(calls_of, backend, matrix, k, list(chosen)), precision)
    plans = [
        {
            "plan": plan.label(),
            "times": count,
            "seconds": found.seconds,
            "spread": found.spread,
            "ratio": measure.paired_ratio(found, timings[0]).seconds,
            "in_places": places,
        }
        for (plan, count), found, places in zip(chosen.items(), timings, in_places, strict=True)
    ]
    plans.sort(key=lambda entry: entry["ratio"])
    return {
        "matrix": name,
        "rows": matrix.n,
        "nnz": matrix.nnz,
        "k": k,
        "processes": processes,
        "places": PLACES,
        "plans": plans,
        "difference": plans[-1]["ratio"] / plans[0]["ratio"] - 1.0,
        "tuning_seconds": [seconds for _, seconds, _ in results],
        "trials": [trials for _, _, trials in results],
    }


def _timed(prepared: Callable[[], list[Any]], precision: Precision) -> tuple[list[Measurement], list[list[float]]]:
    """All rounds of all places for each plan, and its seconds in each place; nothing is freed in between."""
    held = []
    found: list[list[Measurement]] = []
    for _ in range(PLACES):
        held.append(prepared())
        found.append(measure.interleave(held[-1], precision))
    each = list(zip(*found, strict=True))
    together = [Measurement.of([seconds for one in plan for seconds in one.samples]) for plan in each]
    return together, [[one.seconds for one in plan] for plan in each]


def _tuned(name: str, k: int, backend: str, folder: Path | None, seed: int) -> tuple[str, float, int]:
    """The plan of one tuning, its seconds and its trials."""
    matrix = samplers.made(name)
    if backend == "cpu":
        compile_kernels(str(matrix.dtype), default_threads())
    record = None if folder is None else folder / f"{name}-{k}-{seed}.jsonl"
    found = tune(matrix, k, backend=backend, seed=seed, db=False, name=name, record=record)
    return found.plan.to_json(), found.tuning_seconds, len(found.trials)


def table(document: Json) -> str:
    """A line for each matrix."""
    head = ["matrix", "k", "tunings", "plans chosen", "slowest over fastest", "tuning, s"]
    body = [
        [
            entry["matrix"],
            str(entry["k"]),
            str(len(entry["tuning_seconds"])),
            ", ".join(f"{plan['times']} x {plan['plan']}" for plan in entry["plans"]),
            f"{entry['difference']:+.1%}",
            f"{min(entry['tuning_seconds']):.1f} to {max(entry['tuning_seconds']):.1f}",
        ]
        for entry in document["tunings"]
    ]
    text = markdown.rows(head, body, left=(0, 3))
    return f"{solving.origin(document, document['tunings'])}.\n\n{text}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune, compare and write; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.repeat", description="Ten tunings of one matrix.")
    parser.add_argument("--backend", default="cpu", choices=sorted(_MATRICES))
    parser.add_argument("--processes", type=int, default=1, help="tunings at a time, on a GPU")
    parser.add_argument("--matrix", help="of the gallery, or a real one; three of them by default")
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--times", type=int, default=_TIMES)
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="keep every trial of every search there")
    parser.add_argument("--table", action="store_true", help="print the table from the file")
    parser.add_argument("-o", "--output", type=Path, help="a file of results; one for each backend by default")
    parser.add_argument("--docs", type=Path, help="the page with the table; docs/tuner.md with the file by default")
    options = parser.parse_args(arguments)
    default = _RESULTS[options.backend]
    options.output = options.output or default
    if options.processes > 1 and options.backend == "cpu":
        parser.error("on a CPU tunings go one after another: they would take one another's cores")
    if not options.table:
        wanted = _MATRICES[options.backend] if options.matrix is None else ((options.matrix, options.k),)
        for name, k in wanted:
            origin = origin_of(options.backend)
            found = repeated(
                name,
                k,
                options.times,
                backend=options.backend,
                processes=options.processes,
                folder=options.record,
            )
            print(f"{name}: {found['difference']:+.1%}, {len(found['plans'])} plans", file=sys.stderr, flush=True)
            known = planned.known(options.output, "tunings")
            solving.keep(options.output, known, "tunings", found, origin, of=("matrix", "k"))
    page = markdown.page_for(options.output, options.docs, usual=default, page=_PAGE)
    markdown.show(table(json.loads(options.output.read_text())), options.output.stem, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
