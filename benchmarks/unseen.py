"""Is a call that nobody tuned as fast as the best plain products? Every matrix of the gallery and every real one.

    python -m benchmarks.unseen                      all of them at k = 8 (ten minutes)
    python -m benchmarks.unseen --only delaunay --k 4    one, into the same file
    python -m benchmarks.unseen --backend cuda       on a GPU, into unseen_h100.json
    python -m benchmarks.unseen --table              print the table from the file

Recordings (:mod:`benchmarks.predicted`) know how far the best plan is, for some matrices. Here the predicted plan
meets plain products for all matrices, in the order of the rows. Those that a search has for its baseline, every variant
that fits, on all threads and with default options, are looked at briefly; then all that differ from the fastest two,
and from the predicted plan if it is one, in another option or number of threads. The fastest two of the former and the
fastest of the latter are timed in turns with the predicted plan, anew, since the fastest of many short timings owes
some of its speed to luck. Figures are *ratios*: seconds of the fastest baseline, and of the fastest with other options,
over those of the predicted plan, compared round by round. Where the first is less than one a user would have been
better off without a prediction; the second is what tuning plain products alone would bring. How far a plan may be from
itself says a second program of the predicted plan, its *twin*, whose arrays lie elsewhere.

All matrices are gone through three times, on a GPU once in three places of memory, and the median is shown. What a
virtual machine is short of for the time being, cores of its own or such as share a cache, is waited for
(:mod:`benchmarks.calm`). Processes with a matrix each may measure side by side.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from akx.backends.device_lock import device_lock
from akx.backends.host import default_threads
from akx.backends.selection import device_of
from akx.core.errors import AkxError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner import measure
from akx.tuner.measure import Measurement, Precision
from akx.tuner.model.predict import predict
from akx.tuner.space import Space, build_space, is_baseline
from benchmarks import gpu, markdown, matrices, planned, record, solving
from benchmarks.calls import calls_of, in_places
from benchmarks.calm import Calm, calm_on
from benchmarks.predicted import short

__all__ = ["RESULTS", "compared", "main", "table"]

_FOLDER = Path(__file__).resolve().parent / "results"
RESULTS = {"cpu": _FOLDER / "unseen.json", "cuda": _FOLDER / "unseen_h100.json"}
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "tuner.md"
_TURNS = Precision(relative=0.002, seconds=4.0, rounds_min=15, rounds_max=201, sample_seconds=2e-3)
_BRIEF = Precision(relative=0.01, seconds=1.0, rounds_min=5, rounds_max=31)
#: Baselines that meet the predicted plan, the fastest in a brief look.
_RIVALS = 2
_TIMES = {"cpu": 3, "cuda": 1}

Json = dict[str, Any]


def compared(matrix: Matrix, k: int, calm: Calm, precision: Precision = _TURNS, backend: str = "cpu") -> Json:
    """Time the predicted plan and the fastest plain products in turns.

    Returns
    -------
    dict
        ``predicted`` {``plan``, ``seconds``, ``spread``}; ``baseline`` and ``tuned``, the fastest plain products with
        default options and with others, each with ``ratio`` to the predicted plan and ``high``, the upper end of its 95
        % interval, too; ``twin``, the ratio of a second program of the predicted plan; ``looked_at``, what was looked
        at in brief with its seconds; and whether it was ``calm``. Where nothing else fits, the twin is the baseline.
    """
    threads = default_threads() if backend == "cpu" else 1
    device = device_of(backend)
    space = build_space(matrix, k, device, backend=backend, threads=threads, start_vectors=1)
    chosen = _used(space, matrix)
    defaults = _seconds(space, matrix, space.baselines(matrix))
    around = _around(space, [*_fastest(defaults, _RIVALS), chosen])
    others = _seconds(space, matrix, [plan for plan in around if plan not in defaults])
    first, rest = (
        _fastest({plan: found[plan] for plan in found if plan != chosen}, _RIVALS) for found in (defaults, others)
    )
    plans = [chosen, chosen, *first, *rest[:1]]
    with device_lock(device).alone() as is_alone:
        if not is_alone:
            print("beside another process", file=sys.stderr, flush=True)
        timings, was_calm = in_places(backend, matrix, k, plans, calm, precision)
    found = [_figures(plan, one, timings[0]) for plan, one in zip(plans, timings, strict=True)]
    ours, twin, *rivals = found
    return {
        "predicted": {name: ours[name] for name in ("plan", "seconds", "spread")},
        "twin": twin["ratio"],
        "baseline": min(rivals[: len(first)], key=lambda one: float(one["ratio"]), default=twin),
        "tuned": rivals[-1] if rest else None,
        "looked_at": {plan.label(): float(f"{seconds:.4g}") for plan, seconds in (defaults | others).items()},
        "calm": was_calm,
    }


def _figures(plan: Plan, timing: Measurement, ours: Measurement) -> Json:
    ratio = measure.paired_ratio(timing, ours)
    said = {"plan": plan.label(), "seconds": timing.seconds, "spread": timing.spread}
    return {**said, "ratio": ratio.seconds, "high": ratio.high}


def _fastest(seconds: Mapping[Plan, float], most: int) -> list[Plan]:
    return sorted(seconds, key=lambda plan: seconds[plan])[:most]


def _used(space: Space, matrix: Matrix) -> Plan:
    """The plan that a call uses: the predicted one, and plain products where that cannot be prepared."""
    asked: Json = {"backend": space.backend, "threads": space.threads}
    plan = predict(matrix, space.k, **asked)
    try:
        calls_of(space.backend, matrix, space.k, [plan])
    except AkxError:
        plan = predict(matrix, space.k, **asked, plain=True)
    return space.inside(plan)


def _around(space: Space, plans: Iterable[Plan]) -> list[Plan]:
    """Plain products that differ from one of some plans in an option or the number of threads, and these themselves."""
    near = (one for plan in plans for one in (plan, *space.along(plan)) if one.variant == plan.variant)
    return list(dict.fromkeys(filter(is_baseline, near)))


def _seconds(space: Space, matrix: Matrix, plans: Iterable[Plan]) -> dict[Plan, float]:
    """Seconds of the feasible ones of some plans, timed in turns in brief."""
    fitting = [plan for plan in plans if space.feasible(plan, matrix) is None]
    if not fitting:
        return {}
    calls = calls_of(space.backend, matrix, space.k, fitting)
    for call in calls:
        call()
    with device_lock(device_of(space.backend)).alone():
        found = measure.interleave(calls, _BRIEF)
    return {plan: one.seconds for plan, one in zip(fitting, found, strict=True)}


def table(document: Json) -> str:
    """A line for each matrix, the least ratio first."""
    head = ["matrix", "k", "predicted", "ms", "twin", "baseline", "ratio", "least", "most", "other options", "ratio"]
    entries = sorted(document["matrices"], key=lambda entry: (entry["baseline"]["ratio"], entry["matrix"]))
    body = [
        [
            entry["matrix"],
            str(entry["k"]),
            short(entry["predicted"]["plan"]),
            f"{1e3 * entry['predicted']['seconds']:.3f}",
            f"{entry['twin']:.3f}",
            short(entry["baseline"]["plan"]),
            f"{entry['baseline']['ratio']:.3f}" + ("" if entry["calm"] else " (not calm)"),
            f"{min(entry['ratios']):.3f}",
            f"{max(entry['ratios']):.3f}",
            *(
                ["", ""]
                if entry["tuned"] is None
                else [short(entry["tuned"]["plan"]), f"{entry['tuned']['ratio']:.3f}"]
            ),
        ]
        for entry in entries
    ]
    return f"{solving.origin(document, entries)}.\n\n{markdown.rows(head, body, left=(0, 2, 5, 9))}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Predict, measure and write; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unseen", description="Predictions beside products.")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of the gallery, or real ones; all by default")
    parser.add_argument("--backend", default="cpu", choices=sorted(_TIMES))
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--times", type=int, help="that all are measured; 3 by default, 1 on a GPU")
    parser.add_argument("--table", action="store_true", help="print the table from the file")
    parser.add_argument("--merge", nargs="+", type=Path, default=[], help="files of other processes, into this one")
    parser.add_argument("-o", "--output", type=Path, help="unseen.json or unseen_h100.json of the results by default")
    parser.add_argument("--docs", type=Path, help="the page with the table; docs/tuner.md with the usual file")
    options = parser.parse_args(arguments)
    backend, usual = options.backend, RESULTS[options.backend]
    output = usual if options.output is None else options.output
    document, runs = planned.known(output, "matrices"), dict[str, list[Json]]()
    for path in options.merge:
        document = _merged(document, json.loads(path.read_text()))
        solving.save(output, document)
    if not options.table and not options.merge:
        origin = dict(record.provenance(default_threads())) if backend == "cpu" else gpu.origin_of_table(1)
        calm = calm_on(backend)
        for case in matrices.select(options.only) * (options.times or _TIMES[backend]):
            try:
                matrix = Matrix.from_any(case.load())
            except (AkxError, ValueError):  # a sample for readers
                continue
            found = compared(matrix, options.k, calm, backend=backend)
            runs.setdefault(case.name, []).append(found)
            said = f"{case.name}: {found['baseline']['ratio']:.3f}, {found['predicted']['plan']}"
            print(said, file=sys.stderr, flush=True)
            entry = {"matrix": case.name, "k": options.k, **_middle(runs[case.name])}
            document = solving.keep(output, document, "matrices", entry, origin, of=("matrix", "k"))
    page = markdown.page_for(output, options.docs, usual=usual, page=_PAGE)
    markdown.show(table(document), output.stem, page)
    return 0


def _middle(measured: Sequence[Json]) -> Json:
    """The measurement with the median ratio of those in calm times, and the ratios of all of these."""
    several = sorted(
        [one for one in measured if one["calm"]] or measured, key=lambda one: float(one["baseline"]["ratio"])
    )
    ratios, twins = [one["baseline"]["ratio"] for one in several], [one["twin"] for one in several]
    return {**several[len(several) // 2], "ratios": ratios, "twins": twins}


def _merged(document: Json, other: Json) -> Json:
    """The document with the entries of another in the place of the same."""
    new = {(entry["matrix"], entry["k"]) for entry in other["matrices"]}
    kept = [entry for entry in document["matrices"] if (entry["matrix"], entry["k"]) not in new]
    return {**other, "matrices": [*kept, *other["matrices"]]}


if __name__ == "__main__":
    sys.exit(main())
