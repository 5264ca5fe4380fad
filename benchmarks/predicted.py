"""How good is the plan of an untuned call? It, plain products and the best on record, timed in turns.

    python -m benchmarks.predicted FOLDER                into benchmarks/results/predicted.json (15 s for each)
    python -m benchmarks.predicted --table               print the table from the file

FOLDER has recordings of whole spaces (`python -m benchmarks.samplers FOLDER --record`). The fastest of hundreds of
noisy measurements owes some of its speed to luck, so the plans that were fastest then are measured again, in one run
with the predicted one, with plain CSR and with the best plain products on record. The figure is the *share*: seconds of
the fastest of them all over those of the predicted plan, the median of ratios taken round by round. A virtual machine
may for some seconds have its cores far from one another, when plans of two threads take twice as long where these
exchange much; so all is measured three times, minutes apart, and the median counts. The machine should be calibrated
(`akx doctor --calibrate`); the file says whether it was.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from akx import Matrix, MatrixPowers
from akx.device.host import default_threads, host_device
from akx.plan import Plan
from akx.tuner import Recording, measure, predict, read_recording
from akx.tuner.calibration import find_calibration
from akx.tuner.measure import Precision
from akx.tuner.result import COMPLETE
from akx.tuner.space import is_baseline
from benchmarks import markdown, record, solving
from benchmarks.contest import start_vector
from benchmarks.samplers import load

__all__ = ["compare", "main", "table"]

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "tuner.md"
_RESULTS = Path(__file__).resolve().parent / "results" / "predicted.json"
#: Plans that were fastest on record, of all and of plain products, which take part.
_FASTEST, _PLAIN = 4, 2
_TURNS = Precision(relative=0.002, seconds=4.0, rounds_min=15, rounds_max=201, sample_seconds=2e-3)
_PASSES = 3

Json = dict[str, Any]


def compare(recording: Recording, matrix: Matrix, precision: Precision = _TURNS) -> Json:
    """Time the predicted plan of one recorded problem against the best on record.

    Returns
    -------
    dict
        ``matrix``, ``rows``, ``nnz``, ``k``, ``share`` and ``baseline_share`` (seconds of the fastest over those of the
        predicted plan, and of the fastest plain products over the same), ``csr_share``, and ``predicted``,
        ``fastest``, ``baseline`` {``plan``, ``seconds``, ``spread``, ``ratio`` to the predicted plan}.
    """
    k, threads = recording.key.k, int(recording.header["threads"])
    predicted = predict(matrix, k, backend="cpu", threads=threads)
    done = sorted(
        (one.trial for one in recording.trials.values() if one.trial.state == COMPLETE),
        key=lambda trial: trial.seconds or 0.0,
    )
    plain = Plan("cpu", "sweep", "csr", k=k, threads=threads)
    best = [trial.plan for trial in done][:_FASTEST]
    sweeps = [trial.plan for trial in done if is_baseline(trial.plan)][:_PLAIN]
    plans = {plan.label(): plan for plan in (predicted, plain, *best, *sweeps)}
    x = start_vector(matrix.n, matrix.dtype)
    powers = np.zeros((k + 1, matrix.n), dtype=matrix.dtype)
    calls = {
        label: partial(MatrixPowers(matrix, k, plan=plan, backend="cpu"), x, out=powers.T)
        for label, plan in plans.items()
    }
    timings = dict(zip(calls, measure.interleave(list(calls.values()), precision), strict=True))
    ratios = {label: measure.paired_ratio(timings[label], timings[predicted.label()]).seconds for label in plans}

    def figures(label: str) -> Json:
        return {
            "plan": label,
            "seconds": timings[label].seconds,
            "spread": timings[label].spread,
            "ratio": ratios[label],
        }

    def fastest(labels: Any) -> Json:
        return figures(min(labels, key=lambda label: ratios[label]))

    found, first = figures(predicted.label()), fastest(plans)
    base = fastest(label for label, plan in plans.items() if is_baseline(plan))
    return {
        "matrix": recording.matrix_name,
        "rows": matrix.n,
        "nnz": matrix.nnz,
        "k": k,
        "share": first["ratio"],
        "baseline_share": base["ratio"],
        "csr_share": ratios[plain.label()],
        "predicted": found,
        "fastest": first,
        "baseline": base,
    }


def _middle(several: list[Json]) -> Json:
    """The measurement with the median share, and the shares of all."""
    ordered = sorted(several, key=lambda one: float(one["share"]))
    return {**ordered[len(ordered) // 2], "shares": [one["share"] for one in several]}


def table(document: Json) -> str:
    """A line for each matrix, and the median and least of the shares."""
    head = ["matrix", "k", "predicted", "ms", "of the optimum", "over plain CSR", "over the best plain products"]
    entries = document["predictions"]
    body = [
        [
            entry["matrix"],
            str(entry["k"]),
            entry["predicted"]["plan"],
            f"{entry['predicted']['seconds'] * 1e3:.3f}",
            f"{entry['share']:.0%}",
            f"{entry['csr_share']:.2f}",
            f"{entry['baseline_share']:.2f}",
        ]
        for entry in entries
    ]

    def column(name: str) -> list[float]:
        return [float(entry[name]) for entry in entries]

    for what, of in (("median", np.median), ("least", np.min)):
        shares = [float(of(column(name))) for name in ("share", "csr_share", "baseline_share")]
        body.append([what, "", "", "", f"{shares[0]:.0%}", f"{shares[1]:.2f}", f"{shares[2]:.2f}"])
    known = "calibrated" if document["calibrated"] else "not calibrated"
    text = markdown.rows(head, body, left=(0, 2))
    return f"{solving.origin(document, [document])}; {known}.\n\n{text}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, write and print; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predicted", description="Plans of untuned calls.")
    parser.add_argument("folder", type=Path, nargs="?", help="of recordings")
    parser.add_argument("--table", action="store_true", help="print the table from the file")
    parser.add_argument("-o", "--output", type=Path, default=_RESULTS)
    parser.add_argument("--docs", type=Path, help="the page with the table; docs/tuner.md with the file by default")
    options = parser.parse_args(arguments)
    if not options.table:
        paths = sorted(options.folder.glob("*.jsonl")) if options.folder is not None else []
        if not paths:
            parser.error(f"no recordings in {options.folder}")
        calibrated = find_calibration(host_device().device_class) is not None
        found: dict[Path, list[Json]] = {}
        for path in paths * _PASSES:
            recording = read_recording(path)
            matrix = load(recording.matrix_name)
            if matrix is None or recording.header["backend"] != "cpu":
                print(f"{path}: no such matrix here, or not of a CPU", file=sys.stderr)
                continue
            one = compare(recording, matrix)
            found.setdefault(path, []).append(one)
            said = f"{one['matrix']}: {one['share']:.0%}, {one['baseline_share']:.2f} of the best plain products"
            print(said, file=sys.stderr, flush=True)
        if not found:
            parser.error("nothing to compare")
        entries = [_middle(several) for several in found.values()]
        document = {**record.provenance(default_threads()), "calibrated": calibrated, "predictions": entries}
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    page = _PAGE if options.docs is None and options.output == _RESULTS else options.docs
    markdown.show(table(json.loads(options.output.read_text())), "predicted", page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
