"""Render the figures of the GPU as Markdown, into docs/cuda.md between two comment lines.

    python -m benchmarks.gpu_table            rewrite them
    python -m benchmarks.gpu_table --check    exit code 1 where the page is not what the results say

The figures are those of h100.json, h100_irregular.json, h100_real.json and exhaustive_brick_gpu.json in
benchmarks/results/; none is typed by hand. The second and third are written by :mod:`benchmarks.gpu` as well:

    python -m benchmarks.gpu --no-stream --k 8 --only G3_circuit delaunay tetrahedra -o .../h100_irregular.json
    python -m benchmarks.gpu --no-stream --k 8 --tune-seconds 6 --only NAMES rmat -o .../h100_real.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.gpu import RESULTS
from benchmarks.markdown import replace_block, rows

__all__ = ["main", "powers_table", "search_text", "streams_table"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cuda.md"
SEARCH = RESULTS.with_name("exhaustive_brick_gpu.json")
#: More tables of powers: what is said before each, and the file.
OTHERS = (
    ("Matrices whose rows come in no order, or nearly so", RESULTS.with_name("h100_irregular.json")),
    ("Real matrices, and the R-MAT graph, which has no structure to use", RESULTS.with_name("h100_real.json")),
)
_BASELINES = {"cusparse_alg1": "cuSPARSE 1", "cusparse_alg2": "cuSPARSE 2"}

Json = dict[str, Any]


def powers_table(document: Json) -> str:
    """Microseconds of a step for every matrix and k, beside every baseline; means at the end of each k."""
    others = sorted({name for one in document["powers"] for name in one["baselines"]} - set(_BASELINES))
    names = {**_BASELINES, **{name: f"`{name}`" for name in others}}
    head = ["k", "matrix", *names.values(), "own `sweep`", "tuned", "spread", "over cuSPARSE", "schedule", "tuned in"]
    body = []
    for k in sorted({one["k"] for one in document["powers"]}, reverse=True):
        mine = [one for one in document["powers"] if one["k"] == k]
        for one in mine:
            times = [_step(one["baselines"].get(name), k) for name in names] + [_step(one["sweep"], k)]
            best, took = one["best"], f"{one['tuning_seconds']:.0f} s"
            gained = f"**{one['speedup']:.2f}**"
            way = f"`{best['schedule']}`, `{best['variant']}`"
            body.append([str(k), one["matrix"], *times, _step(best["seconds"], k), f"{best['spread']:.1%}"])
            body[-1] += [gained, way, took]
        mean = record.geometric_mean([one["speedup"] for one in mine])
        body.append([str(k), "*geometric mean*", *[""] * (len(names) + 3), f"**{mean:.2f}**", "", ""])
    return rows(head, body, left=(1, len(head) - 2))


def streams_table(document: Json) -> str:
    """The best k of every matrix that was streamed."""
    head = [
        "matrix",
        "k",
        "streamed products, ms",
        "`stream`, ms",
        "a whole call, ms",
        "speed-up",
        "bound",
        "of it",
        "chunks",
    ]
    body = []
    for name in dict.fromkeys(one["matrix"] for one in document["stream"]):
        best = max((one for one in document["stream"] if one["matrix"] == name), key=lambda one: one["speedup"])
        times = [best["baseline_seconds"], best["seconds"], best.get("call_seconds")]
        body.append([name, str(best["k"]), *("" if time is None else f"{time * 1e3:.2f}" for time in times)])
        body[-1] += [f"**{best['speedup']:.2f}**", f"{best['bound']:.2f}", f"{best['speedup'] / best['bound']:.0%}"]
        body[-1].append(str(best["chunks"]))
    return rows(head, body)


def search_text(found: Json) -> str:
    """What a search of the whole space found, beside the tuner."""
    tuned, best, sampled, tried = found["tuned"], found["best"], found["sampled"], found["tried_by"]
    searched = [f"`{name}` ({tried.get(name, 0):,})" for name in found["schedules"]]
    measured = sum(tried.get(name, 0) for name in found["schedules"])
    listed = found["listed"] - sum(sampled.values())
    left = ", ".join(f'{count:,} for "{reason}"' for reason, count in found["left_out"].items())
    drawn = "".join(
        f" Of {count} plans of `{name}` that were drawn at random {tried.get(name, 0)} were measured as well."
        for name, count in sampled.items()
    )
    return (
        f"`{found['matrix']}`, k = {found['k']}, default settings, an empty store of compiled code: `akx tune` took "
        f"{found['tuning_seconds']:.0f} s and {found['tuning_trials']} trials, and found `{tuned['plan']}`, "
        f"{tuned['seconds'] * 1e6:.1f} us a call. A search measured {'all' if measured == listed else f'{measured:,}'} "
        f"of the {listed:,} plans of {' and '.join(searched)} that can be laid out and could win; left out were {left}."
        f"{drawn} The best in turns with "
        f"the tuned plan: `{best['plan']}`, {best['seconds'] * 1e6:.1f} us. The tuned plan takes {found['ratio']:.3f} "
        "times the best one's time."
    )


def block(document: Json, search: Json | None, others: Sequence[tuple[str, Json]] = ()) -> str:
    """Everything between the comment lines."""
    commits = _commits(document)
    origin = f"{document['machine']['gpu']}, cuSPARSE {document['versions']['cusparse']}, float64, one start vector"
    parts = [
        f"{origin}; microseconds of a step, medians, the load of the matrix included (commits {commits}).",
        powers_table(document),
        *(text for title, other in others for text in (f"{title} (commits {_commits(other)}):", powers_table(other))),
        "Beyond a budget of a quarter of the matrix, the best of the k tried, over streamed products in the same run:",
        streams_table(document),
        "The bound (thesis eq. 6.2) adds the bytes of both directions, which the bus carries at the same time: more "
        "than all of it can be had. A whole call is `P(x)` with NumPy arrays, by the host's clock.",
    ]
    return "\n\n".join([*parts, *([search_text(search)] if search is not None else [])])


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite or check the page; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_table", description="Figures as Markdown.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--search", type=Path, default=SEARCH)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 where it is out of date")
    options = parser.parse_args(arguments)
    document = record.load(options.results)
    if document is None:
        parser.error(f"{options.results} is not there yet: run make gpu-bench where there is a GPU")
    search = json.loads(options.search.read_text()) if options.search.exists() else None
    others = [(title, json.loads(path.read_text())) for title, path in OTHERS if path.exists()]
    old = options.page.read_text()
    new = replace_block(old, "gpu", block(document, search, others))
    if new != old and not options.check:
        options.page.write_text(new)
    if new != old:
        print(f"{options.page}: {'out of date' if options.check else 'written'}", file=sys.stderr)
    return 1 if options.check and new != old else 0


def _commits(document: Json) -> str:
    found = dict.fromkeys(one.get("commit", document["commit"])[:10] for one in document["powers"])
    return ", ".join(found)


def _step(seconds: float | None, k: int) -> str:
    return "" if seconds is None else f"{seconds / k * 1e6:.2f}"


if __name__ == "__main__":
    sys.exit(main())
