"""What the tunings took whose plans are shipped: seconds of `akx.tune` at default settings, from the records.

    python -m benchmarks.tunings             from tuning_db/ into benchmarks/results/tunings.json and docs/tuner.md
    python -m benchmarks.tunings --table     print the table from the file

A tuning was made with nothing prepared and nothing known of its matrix but, at most, plans for another k (see
:mod:`benchmarks.shipped`). Its seconds are all that the call took, run-off and last preparation included. On a GPU
several went side by side and measured one at a time, so that they waited for one another.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from akx.plandb import PlanRecord
from akx.plandb.bundle import read_bundle
from benchmarks import markdown, record

__all__ = ["LIMITS", "main", "summary", "table"]

_ROOT = Path(__file__).resolve().parents[1]
_SHIPPED, _PAGE = _ROOT / "tuning_db", _ROOT / "docs" / "tuner.md"
_RESULTS = Path(__file__).resolve().parent / "results" / "tunings.json"
#: Seconds within which a matrix of at most so many entries is to be tuned, by backend.
LIMITS, _ENTRIES = {"cpu": 30.0, "cuda": 60.0}, 10_000_000

Json = dict[str, Any]


def summary(records: Sequence[PlanRecord]) -> Json:
    """Of plans of one device: ``seconds`` {``median``, ``high``, ``most``} of matrices that count, those ``above``."""
    limit = LIMITS[records[0].key.backend]
    within = [one for one in records if one.provenance["matrix"]["nnz"] <= _ENTRIES]
    seconds = [one.tuning_seconds for one in within]
    above = [one for one in within if one.tuning_seconds > limit]
    days = sorted(one.created[:10] for one in records)
    return {
        "device": records[0].key.device_class,
        "dates": [days[0], days[-1]],
        "plans": len(records),
        "within": len(within),
        "entries": max(one.provenance["matrix"]["nnz"] for one in within),
        "limit": limit,
        "seconds": {"median": median(seconds), "high": float(np.quantile(seconds, 0.9)), "most": max(seconds)},
        "above": [
            {"matrix": one.matrix_name, "k": one.key.k, "seconds": one.tuning_seconds}
            for one in sorted(above, key=lambda one: -one.tuning_seconds)
        ],
    }


def table(document: Json) -> str:
    """A line for each device."""
    head = ["device", "made", "tunings", "largest, entries", "limit, s", "median", "nine of ten below", "most", "above"]
    body = []
    for entry in document["devices"]:
        first, last = entry["dates"]
        seconds = entry["seconds"]
        above = ", ".join(f"{one['matrix']} k = {one['k']}: {one['seconds']:.1f}" for one in entry["above"])
        body.append(
            [
                entry["device"],
                first if first == last else f"{first} to {last}",
                str(entry["within"]),
                f"{entry['entries'] / 1e6:.1f} million",
                f"{entry['limit']:.0f}",
                f"{seconds['median']:.1f}",
                f"{seconds['high']:.1f}",
                f"{seconds['most']:.1f}",
                above or "none",
            ]
        )
    return markdown.rows(head, body, left=(0, 1, 8))


def main(arguments: Sequence[str] | None = None) -> int:
    """Summarise and write; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tunings", description="What tunings took.")
    parser.add_argument("--bundle", type=Path, action="append", help="by default all of tuning_db/")
    parser.add_argument("--table", action="store_true", help="print the table from the file")
    parser.add_argument("-o", "--output", type=Path, default=_RESULTS)
    parser.add_argument("--docs", type=Path, help="the page with the table; docs/tuner.md with the file by default")
    options = parser.parse_args(arguments)
    if not options.table:
        bundles = options.bundle or sorted(_SHIPPED.glob("*.json"))
        devices = [summary(read_bundle(path).records) for path in bundles]
        options.output.write_text(json.dumps({**record.provenance(1), "devices": devices}, indent=1) + "\n")
    page = markdown.page_for(options.output, options.docs, usual=_RESULTS, page=_PAGE)
    markdown.show(table(json.loads(options.output.read_text())), options.output.stem, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
