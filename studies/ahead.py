"""What it is worth that plans are got ready ahead of a search: trials a second with processes for it and without.

    python -m studies.ahead                    two matrices, tuned twice each (some three minutes)
    python -m studies.ahead --table            print the table from the file

For each matrix two searches with the same seed, default settings and no database, one without processes ahead and one
with as many as the machine has room for; both begin with an empty store of kernels, and behind a short search. Of each:
trials, what ended it, seconds, and seconds of a call of the plan that was found, by the clock of its own run-off.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

from akx.tuner import tune
from akx.tuner.search import preparation
from akx.tuner.warmup import compile_ahead
from benchmarks import gpu, markdown, samplers, solving

__all__ = ["compare", "main", "table"]

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "tuner.md"
_RESULTS = Path(__file__).resolve().parent / "results" / "ahead_h100.json"
_MATRICES = (("wang4", 8), ("brick", 16))
#: Seconds of a search before the two, for what the host compiles once.
_FIRST = 8.0

Json = dict[str, Any]


def compare(name: str, k: int, seed: int = 0) -> Json:
    """The two searches of one matrix: ``alone`` and ``ahead``, with ``processes`` of the latter."""
    matrix = samplers.made(name)
    found: Json = {"matrix": name, "rows": matrix.n, "nnz": matrix.nnz, "k": k}
    real = compile_ahead.processes_ahead

    def none(*given: Any) -> int:
        return 0

    def some(*given: Any) -> int:
        found["processes"] = real(*given)
        return int(found["processes"])

    with mock.patch.object(preparation, "processes_ahead", none):
        tune(matrix, k, backend="cuda", seconds=_FIRST, db=False)
    for what, ahead in (("alone", none), ("ahead", some)):
        with (
            tempfile.TemporaryDirectory() as store,
            mock.patch.dict(os.environ, {"AKX_CUBIN_DIR": store}),
            mock.patch.dict("akx.backends.cuda.device.compile._modules", clear=True),
            mock.patch.object(preparation, "processes_ahead", ahead),
        ):
            result = tune(matrix, k, backend="cuda", seed=seed, db=False, name=name)
        own = [trial for trial in result.trials if trial.elapsed is not None]
        found[what] = {
            "trials": len(own),
            "tuning_seconds": result.tuning_seconds,
            "stopped": result.stopped,
            "seconds": result.seconds,
            "spread": result.spread,
            "plan": result.plan.label(),
            "trial_seconds": median(trial.elapsed or 0.0 for trial in own),
            "prepare_seconds": median(trial.prepare_seconds or 0.0 for trial in own),
            "timing_seconds": median(trial.timing_seconds or 0.0 for trial in own),
        }
        print(f"{name}, {what}: {found[what]}", file=sys.stderr, flush=True)
    return found


def table(document: Json) -> str:
    """A line for each search."""
    head = ["matrix", "k", "processes ahead", "trials", "seconds", "a trial, s", "of it timing, s", "found, us"]
    body = [
        [
            entry["matrix"],
            str(entry["k"]),
            str(entry["processes"] if what == "ahead" else 0),
            str(entry[what]["trials"]),
            f"{entry[what]['tuning_seconds']:.1f}",
            f"{entry[what]['trial_seconds']:.2f}",
            f"{entry[what]['timing_seconds']:.2f}",
            f"{1e6 * entry[what]['seconds']:.1f}",
        ]
        for entry in document["searches"]
        for what in ("alone", "ahead")
    ]
    return f"{solving.origin(document, [document])}.\n\n{markdown.rows(head, body)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, compare and write; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m studies.ahead", description="Plans that are got ready ahead.")
    parser.add_argument("--matrix", help="of the gallery, or a real one; two of them by default")
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--table", action="store_true", help="print the table from the file")
    parser.add_argument("-o", "--output", type=Path, default=_RESULTS)
    parser.add_argument("--docs", type=Path, help="the page with the table; docs/tuner.md with the file by default")
    options = parser.parse_args(arguments)
    if not options.table:
        document = gpu.origin_of_table(1)
        document["searches"] = []
        for name, k in _MATRICES if options.matrix is None else ((options.matrix, options.k),):
            document["searches"].append(compare(name, k))
            options.output.write_text(json.dumps(document, indent=1) + "\n")
    page = markdown.page_for(options.output, options.docs, usual=_RESULTS, page=_PAGE)
    markdown.show(table(json.loads(options.output.read_text())), options.output.stem, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
