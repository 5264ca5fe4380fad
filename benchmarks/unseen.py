"""Is a call that nobody tuned as fast as the best plain products? Every matrix of the gallery and every real one.

    python -m benchmarks.unseen                      all of them at k = 8 (ten minutes)
    python -m benchmarks.unseen --only delaunay --k 4    one, into the same file
    python -m benchmarks.unseen --table              print the table from the file

Recordings (:mod:`benchmarks.predicted`) know how far the best plan is, for some matrices. Here the predicted plan is
timed in turns with plain products in every variant that fits, on all threads and in the order of the rows, for all
matrices. The figure is the *ratio*: seconds of the fastest plain products over those of the predicted plan, compared
round by round in one run; where that is less than one, a user would have been better off without a prediction. All
matrices are gone through three times, and the median of the three is shown. What a virtual machine is short of for the
time being, cores of its own or such as share a cache, is waited for (:mod:`benchmarks.calm`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from akx.device.host import default_threads, host_device
from akx.errors import AkxError
from akx.matrix import Matrix
from akx.tuner import measure
from akx.tuner.measure import Precision
from akx.tuner.predict import predict
from akx.tuner.space import build_space
from benchmarks import markdown, matrices, planned, record, solving
from benchmarks.calls import calls_of
from benchmarks.calm import Calm

__all__ = ["RESULTS", "compared", "main", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "unseen.json"
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "tuner.md"
_TURNS = Precision(relative=0.005, seconds=4.0, rounds_min=11, rounds_max=101, sample_seconds=2e-3)

Json = dict[str, Any]


def compared(matrix: Matrix, k: int, calm: Calm, precision: Precision = _TURNS) -> Json:
    """Time the predicted plan and plain products in turns.

    Returns
    -------
    dict
        ``predicted`` and ``plain``, the fastest of the others, each {``plan``, ``seconds``, ``spread``}, ``ratio``, and
        ``variants`` timed, and whether it was ``calm``.
    """
    threads = default_threads()
    space = build_space(matrix, k, host_device(), backend="cpu", threads=threads)
    chosen = space.inside(predict(matrix, k, backend="cpu", threads=threads))
    plain = [plan for plan in space.baselines(matrix) if space.feasible(plan, matrix) is None and plan != chosen]
    calls = calls_of("cpu", matrix, k, [chosen, *plain])
    for call in calls:
        call()
    (ours, *others), was_calm = calm.timed(calls, precision)
    best, found = min(zip(plain, others, strict=True), key=lambda pair: pair[1].seconds)
    return {
        "predicted": {"plan": chosen.label(), "seconds": ours.seconds, "spread": ours.spread},
        "plain": {"plan": best.label(), "seconds": found.seconds, "spread": found.spread},
        "ratio": measure.paired_ratio(found, ours).seconds,
        "variants": [plan.variant for plan in plain],
        "calm": was_calm,
    }


def table(document: Json) -> str:
    """A line for each matrix, the least ratio first."""
    head = ["matrix", "k", "predicted", "ms", "best other plain products", "ms", "ratio", "least", "most"]
    entries = sorted(document["matrices"], key=lambda entry: (entry["ratio"], entry["matrix"]))
    body = [
        [
            entry["matrix"],
            str(entry["k"]),
            entry["predicted"]["plan"],
            f"{1e3 * entry['predicted']['seconds']:.3f}",
            entry["plain"]["plan"],
            f"{1e3 * entry['plain']['seconds']:.3f}",
            f"{entry['ratio']:.2f}" + ("" if entry.get("calm", True) else " (not calm)"),
            f"{min(entry['ratios']):.2f}",
            f"{max(entry['ratios']):.2f}",
        ]
        for entry in entries
    ]
    return f"{solving.origin(document, entries)}.\n\n{markdown.rows(head, body, left=(0, 2, 4))}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Predict, measure and write; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unseen", description="Predictions beside products.")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of the gallery, or real ones; all by default")
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--times", type=int, default=3, help="that all are measured")
    parser.add_argument("--table", action="store_true", help="print the table from the file")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, help="the page with the table; docs/tuner.md with the usual file")
    options = parser.parse_args(arguments)
    origin, runs = dict(record.provenance(default_threads())), dict[str, list[Json]]()
    document = planned.known(options.output, "matrices")
    calm = Calm(default_threads())
    for _ in range(0 if options.table else options.times):
        for case in matrices.select(options.only):
            try:
                matrix = Matrix.from_any(case.load())
            except (AkxError, ValueError):  # a sample for readers
                continue
            found = compared(matrix, options.k, calm)
            runs.setdefault(case.name, []).append(found)
            print(f"{case.name}: {found['ratio']:.2f}, {found['predicted']['plan']}", file=sys.stderr, flush=True)
    for name, measured in runs.items():
        several = [found for found in measured if found["calm"]] or measured
        middle = sorted(several, key=lambda found: found["ratio"])[len(several) // 2]
        ratios = [found["ratio"] for found in several]
        entry = {"matrix": name, "k": options.k, **middle, "ratios": ratios}
        document = solving.keep(options.output, document, "matrices", entry, origin, of=("matrix", "k"))
    page = markdown.page_for(options.output, options.docs, usual=RESULTS, page=_PAGE)
    markdown.show(table(document), options.output.stem, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
