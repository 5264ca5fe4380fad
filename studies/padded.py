"""What padding rows and fetching ahead are worth on a GPU: plain products in padded CSR, from recordings.

    python -m studies.padded FOLDER     into studies/results/h100_padded.json; studies.literature shows it

The recordings are those of :mod:`benchmarks.samplers`, of parts of a GPU's space that are measured whole. Of `pcsr`
(M. Mehri Dehnavi, McGill 2012, ch. 3) with rows padded to multiples of n and so many partitions on their way, they have
the seconds of k products; each figure is that of the fastest block and way to pass L2, values as they are.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from akx.tuner import Recording, read_recording
from akx.tuner.history.trial import COMPLETE
from benchmarks import markdown, record

__all__ = ["RESULTS", "main", "products", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "h100_padded.json"
_VARIANT = "pcsr"

Json = dict[str, Any]


def products(recording: Recording) -> dict[tuple[int, int], float]:
    """By padding and partitions on their way, the seconds of a product."""
    found: dict[tuple[int, int], float] = {}
    for one in recording.trials.values():
        plan, seconds = one.trial.plan, one.trial.seconds
        if one.trial.state != COMPLETE or seconds is None:
            continue
        if (plan.schedule, plan.variant, plan.typed.stored) != ("sweep", _VARIANT, "full"):
            continue
        place = plan.typed.pad, plan.typed.ahead
        found[place] = min(seconds / plan.k, found.get(place, seconds))
    return found


def entry(recording: Recording) -> Json | None:
    """One matrix; None where its rows were not measured both as they are and padded to multiples of four."""
    found, matrix = products(recording), recording.header["matrix"]
    if not {(1, 2), (4, 2)} <= found.keys():
        return None
    rows = [{"pad": pad, "ahead": ahead, "seconds": found[pad, ahead]} for pad, ahead in sorted(found)]
    return {
        "matrix": matrix["name"],
        "rows": matrix["rows"],
        "nnz": matrix["nnz"],
        "k": recording.key.k,
        "recorded": recording.header["created"][:10],
        "products": rows,
    }


def table(document: Json) -> str:
    """Microseconds of a product, and the gain of padding and of fetching ahead, by matrix."""
    head = ["matrix", "a row", "n = 1, us", "n = 2", "n = 4", "n = 8", "ahead 1", "ahead 2", "ahead 3", "ahead 4"]
    body = []
    for one in document["matrices"]:
        found = {(row["pad"], row["ahead"]): row["seconds"] for row in one["products"]}

        def gain(slow: tuple[int, int], fast: tuple[int, int], found: dict[tuple[int, int], float] = found) -> str:
            return f"{found[slow] / found[fast]:.2f}" if {slow, fast} <= found.keys() else ""

        body.append(
            [
                one["matrix"],
                f"{one['nnz'] / one['rows']:.1f}",
                f"{found[1, 2] * 1e6:.1f}",
                *(gain((1, 2), (pad, 2)) for pad in (2, 4, 8)),
                *(gain((4, 1), (4, ahead)) for ahead in (1, 2, 3, 4)),
            ]
        )
    return markdown.rows(head, body)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read, write and print; the exit code is 1 where no recording has what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m studies.padded", description="Padded CSR from recordings.")
    parser.add_argument("folder", type=Path, help="of recordings of one GPU")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    recordings = [read_recording(path) for path in sorted(options.folder.glob("*.jsonl"))]
    entries = [found for found in map(entry, recordings) if found is not None]
    if not entries:
        print(f"no recording in {options.folder} has padded CSR", file=sys.stderr)
        return 1
    devices = dict.fromkeys(str(one.header["device"]["name"]) for one in recordings)
    origin = record.provenance(1)
    document = {"recorded_on": ", ".join(devices), "commit": origin["commit"], "matrices": entries}
    options.output.write_text(json.dumps(document, indent=1) + "\n")
    print(table(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
