"""Does tuning choose the same tomorrow? Ten tunings of one matrix, and all their plans timed in turns.

    python -m benchmarks.repeat                          bcsstk16, wang4 and the brick at k = 8 (a quarter of an hour)
    python -m benchmarks.repeat --matrix shell --k 4     one, into the same file
    python -m benchmarks.repeat --table                  print the table from the file

Each tuning has its own seed, the default settings and no database. The figure is the *difference*: seconds of the
slowest plan that any of them chose over those of the fastest, less one, all measured again in one run, and compared
round by round.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from akx import Matrix, MatrixPowers
from akx.device.host import default_threads
from akx.tuner import measure, tune
from akx.tuner.measure import Precision
from benchmarks import markdown, record, solving
from benchmarks.contest import compile_kernels, start_vector
from benchmarks.gallery import GALLERY

__all__ = ["main", "repeated", "table"]

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "tuner.md"
_RESULTS = Path(__file__).resolve().parent / "results" / "repeat.json"
_MATRICES = (("bcsstk16", 8), ("wang4", 8), ("brick", 8))
_TIMES = 10
_TURNS = Precision(relative=0.002, seconds=20.0, rounds_min=21, rounds_max=401, sample_seconds=2e-3)

Json = dict[str, Any]


def repeated(name: str, matrix: sparse.csr_array, k: int, times: int, precision: Precision = _TURNS) -> Json:
    """Tune so many times, then time the plans in turns.

    Returns
    -------
    dict
        ``matrix``, ``rows``, ``nnz``, ``k``, fastest first ``plans`` [{``plan``, ``times`` chosen, ``seconds``,
        ``spread``, ``ratio``}, ...], ``difference``, and of the tunings ``tuning_seconds`` and ``trials``, in order.
    """
    canonical = Matrix.from_any(matrix)
    compile_kernels(str(canonical.dtype), default_threads())
    results = [tune(canonical, k, backend="cpu", seed=seed, db=False, name=name) for seed in range(times)]
    chosen = Counter(result.plan for result in results)
    x = start_vector(matrix.shape[0], matrix.dtype)
    powers = np.zeros((k + 1, matrix.shape[0]), dtype=matrix.dtype)
    calls = {
        plan.label(): partial(MatrixPowers(canonical, k, plan=plan, backend="cpu"), x, out=powers.T) for plan in chosen
    }
    timings = measure.interleave(list(calls.values()), precision)
    plans = [
        {
            "plan": plan.label(),
            "times": count,
            "seconds": found.seconds,
            "spread": found.spread,
            "ratio": measure.paired_ratio(found, timings[0]).seconds,
        }
        for (plan, count), found in zip(chosen.items(), timings, strict=True)
    ]
    plans.sort(key=lambda entry: entry["ratio"])
    return {
        "matrix": name,
        "rows": canonical.n,
        "nnz": canonical.nnz,
        "k": k,
        "plans": plans,
        "difference": plans[-1]["ratio"] / plans[0]["ratio"] - 1.0,
        "tuning_seconds": [result.tuning_seconds for result in results],
        "trials": [len(result.trials) for result in results],
    }


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
    parser.add_argument("--matrix", help="of the gallery, or a real one; three of them by default")
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--times", type=int, default=_TIMES)
    parser.add_argument("--table", action="store_true", help="print the table from the file")
    parser.add_argument("-o", "--output", type=Path, default=_RESULTS)
    parser.add_argument("--docs", type=Path, help="the page with the table; docs/tuner.md with the file by default")
    options = parser.parse_args(arguments)
    if not options.table:
        wanted = _MATRICES if options.matrix is None else ((options.matrix, options.k),)
        for name, k in wanted:
            matrix = GALLERY[name]() if name in GALLERY else solving.load(name)
            origin = record.provenance(default_threads())
            entry = {**repeated(name, matrix, k, options.times), "commit": origin["commit"], "date": origin["date"]}
            print(f"{name}: {entry['difference']:+.1%}, {len(entry['plans'])} plans", file=sys.stderr, flush=True)
            known = json.loads(options.output.read_text())["tunings"] if options.output.exists() else []
            others = [one for one in known if (one["matrix"], one["k"]) != (name, k)]
            document = {**origin, "tunings": [*others, entry]}
            options.output.write_text(json.dumps(document, indent=1) + "\n")
    page = _PAGE if options.docs is None and options.output == _RESULTS else options.docs
    markdown.show(table(json.loads(options.output.read_text())), "repeat", page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
