"""Does the model put plans in the right order? Recorded plans by what it promises, beside what they took.

    tar xJf benchmarks/recordings/h100.tar.xz -C /tmp
    python -m benchmarks.ranks /tmp/h100                 into benchmarks/results/ranks_h100.json and docs/tuner.md
    python -m benchmarks.ranks --table                   print the tables from the file

Nothing is timed, and no device is needed: seconds are those on record, prices those of the model as it is now with
figures derived from the recorded device's facts (:func:`benchmarks.samplers.model_of`). For each recording: Spearman's
rank correlation of promised and measured seconds over all plans that were timed, and the *share*, seconds of the
fastest of them over those of the fastest among the 1, 5 and 20 of them that promise most: what a search that measures
so many first would have, but for those that cannot be prepared. Of shares the mean is geometric. For each schedule:
promised over measured seconds, the median over plans, and how far they are off, e to the mean absolute logarithm. The
cycles in the model were fitted on these recordings, among others.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from akx.backends.host import default_threads
from akx.tuner import Recording
from akx.tuner.model.predict import Model
from benchmarks import markdown, record
from benchmarks.samplers import matrix_of, model_of, read

__all__ = ["FIRST", "main", "prices", "ranked", "table"]

_RESULTS = Path(__file__).resolve().parent / "results" / "ranks_h100.json"
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "tuner.md"
#: Plans that a search might measure first.
FIRST = (1, 5, 20)

Json = dict[str, Any]


def prices(recording: Recording, model: Model) -> list[tuple[str, float, float]]:
    """Schedule, promised and measured seconds of every plan that was timed and that the model has a price for."""
    found = []
    for one in recording.trials.values():
        promised = model.seconds(one.trial.plan) if one.trial.seconds is not None else np.inf
        if one.trial.seconds is not None and np.isfinite(promised):
            found.append((one.trial.plan.schedule, float(promised), float(one.trial.seconds)))
    return found


def ranked(priced: Sequence[tuple[str, float, float]]) -> Json:
    """``correlation`` of the ranks and ``shares`` {number of plans measured first: share}, of two plans or more."""
    promised, measured = (np.array([one[i] for one in priced]) for i in (1, 2))
    first = measured[np.argsort(promised, kind="stable")]
    return {
        "plans": len(priced),
        "correlation": float(spearmanr(promised, measured).statistic),
        "shares": {str(count): float(measured.min() / first[:count].min()) for count in FIRST},
    }


def _by_schedule(priced: Sequence[tuple[str, float, float]]) -> list[Json]:
    found = []
    for schedule in sorted({one[0] for one in priced}):
        ratios = np.log([promised / measured for name, promised, measured in priced if name == schedule])
        figures = {"median": float(np.exp(np.median(ratios))), "off": float(np.exp(np.abs(ratios).mean()))}
        found.append({"schedule": schedule, "plans": int(ratios.size), **figures})
    return found


def table(document: Json) -> str:
    """A line for each recording and for all; then one for each schedule."""
    head = ["matrix", "k", "plans", "rank correlation", *(f"best of the first {count}" for count in FIRST)]
    entries = document["recordings"]
    body = [
        [
            entry["matrix"],
            str(entry["k"]),
            str(entry["plans"]),
            f"{entry['correlation']:.2f}",
            *(f"{entry['shares'][str(count)]:.0%}" for count in FIRST),
        ]
        for entry in entries
    ]
    means = (np.exp(fmean(np.log(entry["shares"][str(count)]) for entry in entries)) for count in FIRST)
    correlation = fmean(entry["correlation"] for entry in entries)
    body.append(["mean", "", "", f"{correlation:.2f}", *(f"{one:.0%}" for one in means)])
    lines = [
        [one["schedule"], str(one["plans"]), f"{one['median']:.2f}", f"{one['off']:.2f}"]
        for one in document["schedules"]
    ]
    of = markdown.rows(head, body)
    by = markdown.rows(["schedule", "plans", "promised over measured", "off by a factor of"], lines)
    return f"Recorded on {document['recorded_on']}; model of commit {document['commit'][:10]}.\n\n{of}\n\n{by}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Price, write and print; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranks", description="Does the model order plans?")
    parser.add_argument("folder", type=Path, nargs="?", help="of recordings")
    parser.add_argument("--table", action="store_true", help="print the tables from the file")
    parser.add_argument("-o", "--output", type=Path, default=_RESULTS)
    parser.add_argument("--docs", type=Path, help="the page with the tables; docs/tuner.md with the file by default")
    options = parser.parse_args(arguments)
    if not options.table:
        if options.folder is None:
            parser.error("a folder of recordings is needed, or --table")
        entries, everything, devices = [], [], {}
        for path in sorted(options.folder.glob("*.jsonl")):
            recording = read(path)
            matrix = matrix_of(recording)
            if matrix is None:
                print(f"{path}: no such matrix here", file=sys.stderr)
                continue
            priced = prices(recording, model_of(recording, matrix))
            if len(priced) < 2:
                print(f"{path}: fewer than two plans were timed", file=sys.stderr)
                continue
            everything += priced
            devices[recording.header["device"]["name"]] = None
            entries.append({"matrix": recording.matrix_name, "k": recording.key.k, **ranked(priced)})
            print(f"{recording.matrix_name}: {entries[-1]}", file=sys.stderr, flush=True)
        if not entries:
            parser.error(f"nothing to order in {options.folder}")
        document = {
            **record.provenance(default_threads()),
            "recorded_on": ", ".join(devices),
            "recordings": entries,
            "schedules": _by_schedule(everything),
        }
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    document = json.loads(options.output.read_text())
    page = markdown.page_for(options.output, options.docs, usual=_RESULTS, page=_PAGE)
    markdown.show(table(document), options.output.stem, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
