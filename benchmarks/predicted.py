"""How good is the plan of an untuned call? It, plain products and the best on record, timed in turns.

    python -m benchmarks.predicted FOLDER                into benchmarks/results/predicted.json (15 s for each)
    python -m benchmarks.predicted --again FILE          the problems of a result file once more, without recordings
    python -m benchmarks.predicted --recordings FOLDER -o FILE       of recordings alone, without their device
    python -m benchmarks.predicted --table               print the table from the file

FOLDER has recordings of whole spaces (`python -m benchmarks.samplers FOLDER --record`). The fastest of hundreds of
noisy measurements owes some of its speed to luck, so the plans that were fastest then are measured again, in one run
with the predicted one, with plain CSR and with the best plain products on record. The figure is the *share*: seconds of
the fastest of them all over those of the predicted plan, the median of ratios taken round by round. A virtual machine
may for some seconds have its cores far from one another, when plans of two threads take twice as long where these
exchange much: such times are waited for to pass (:mod:`benchmarks.calm`), all is measured three times, minutes apart,
and the median counts. The machine should be calibrated (`akx doctor --calibrate`); the file says whether it was.

Recordings of a GPU are measured on one of its kind, by its clock, in one go with every plan prepared in three places of
memory, since where arrays lie makes some percent, also between two programs of one plan; some of them with `--matrix`,
beside those that are in the file, where these are of the same commit and machine.

With --recordings nothing is timed: the figures are those on record, of searches and whole spaces alike, of any device,
whose facts are in the recording. The share is then that of the best on record, and of a plan that is not on record
there is none. The figures to predict with are derived ones, so that the plans are the same on every machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from akx import Matrix
from akx.backends.device_lock import device_lock
from akx.backends.host import default_threads
from akx.backends.selection import device_of
from akx.core.plan import Plan
from akx.cost.calibration import find_calibration
from akx.tuner import Recording, measure, predict
from akx.tuner.history.trial import COMPLETE
from akx.tuner.measure import Precision
from akx.tuner.model.predict import predicted
from akx.tuner.space import build_space, is_baseline
from benchmarks import gpu, markdown, record, solving
from benchmarks.calls import in_places
from benchmarks.calm import Calm, calm_on
from benchmarks.samplers import load, matrix_of, model_of, read
from benchmarks.steps_gpu import parsed

__all__ = ["Known", "compare", "look_up", "main", "origin_of", "recorded_table", "short", "table"]

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "tuner.md"
_RESULTS = Path(__file__).resolve().parent / "results" / "predicted.json"
#: Plans that were fastest on record, of all and of plain products, which take part.
_FASTEST, _PLAIN = 4, 2
_TURNS = Precision(relative=0.002, seconds=4.0, rounds_min=15, rounds_max=201, sample_seconds=2e-3)
_PASSES = {"cpu": 3, "cuda": 1}

#: What labels of plans may lack in a table: defaults, and what is the same for all.
_USUAL = {
    *("natural", "threads=1", "split=contiguous", "block=256", "blocks_per_sm=1", "vectors=1"),
    *("once=False", "sigma=1", "pad=4", "ahead=2"),
    *("held_slices=0", "held_slots=1", "depth=1", "keep=24", "x=shared", "cluster=1", "waves=1"),
}

Json = dict[str, Any]


@dataclass(frozen=True)
class Known:
    """What a recording, or an earlier comparison, knows of a problem.

    Attributes
    ----------
    name : str
        Of the matrix.
    backend : str
    k, threads : int
    candidates : tuple of Plan
        Those that were fastest, of all plans and of plain products.
    plans : int
        On record.
    whole : bool
        Whether these are all there are.
    """

    name: str
    backend: str
    k: int
    threads: int
    candidates: tuple[Plan, ...]
    plans: int
    whole: bool

    @staticmethod
    def of_recording(recording: Recording) -> Known:
        """What is on record."""
        done = sorted(
            (one.trial for one in recording.trials.values() if one.trial.state == COMPLETE),
            key=lambda trial: trial.seconds or 0.0,
        )
        best = [trial.plan for trial in done][:_FASTEST]
        sweeps = [trial.plan for trial in done if is_baseline(trial.plan)][:_PLAIN]
        return Known(
            str(recording.matrix_name),
            str(recording.header["backend"]),
            recording.key.k,
            int(recording.header["threads"]),
            (*best, *sweeps),
            len(recording.trials),
            recording.exhaustive,
        )

    @staticmethod
    def of_entry(entry: Json, threads: int) -> Known:
        """What a result file says of one matrix."""
        labels = entry.get("candidates") or [entry[what]["plan"] for what in ("fastest", "baseline")]
        plans = tuple(parsed(label, entry["k"]) for label in labels)
        return Known(entry["matrix"], plans[0].backend, entry["k"], threads, plans, entry["plans"], entry["whole"])


def compare(known: Known, matrix: Matrix, calm: Calm, precision: Precision = _TURNS) -> Json:
    """Time the predicted plan of one problem against the best that are known, one plan once.

    Returns
    -------
    dict
        ``matrix``, ``rows``, ``nnz``, ``k``, ``plans`` on record, whether that is the ``whole`` space, whether the
        times were ``calm``, ``share`` and ``baseline_share`` (seconds of the fastest over those of the
        predicted plan, and of the fastest plain products over the same; ``baseline_most``: the upper end of the 95 %
        interval of the latter), ``csr_share``, ``candidates`` (what was fastest on record) and ``predicted``,
        ``fastest``, ``baseline`` {``plan``, ``seconds``, ``spread``, ``ratio`` to the predicted plan}.
    """
    k, threads, backend = known.k, known.threads, known.backend
    space = build_space(matrix, k, device_of(backend), backend=backend, threads=threads, start_vectors=1)
    predicted = space.inside(predict(matrix, k, backend=backend, threads=threads))
    plain = space.inside(_csr(matrix, k, threads) if backend == "cpu" else _csr_of_gpu(matrix, k))
    candidates = [space.inside(plan) for plan in known.candidates]
    plans = list(dict.fromkeys([predicted, plain, *candidates]))
    with device_lock(device_of(backend)).alone() as is_alone:
        if not is_alone:
            print(f"{known.name}: beside another process", file=sys.stderr, flush=True)
        found, was_calm = in_places(backend, matrix, k, plans, calm, precision)
        timings = dict(zip(plans, found, strict=True))
    ratios = {plan: measure.paired_ratio(timings[plan], timings[predicted]) for plan in plans}

    def figures(plan: Plan) -> Json:
        return {
            "plan": plan.label(),
            "seconds": timings[plan].seconds,
            "spread": timings[plan].spread,
            "ratio": ratios[plan].seconds,
        }

    def fastest(some: Iterable[Plan]) -> Plan:
        return min(some, key=lambda plan: ratios[plan].seconds)

    first, base = fastest(plans), fastest(filter(is_baseline, plans))
    return {
        "matrix": known.name,
        "rows": matrix.n,
        "nnz": matrix.nnz,
        "k": k,
        "plans": known.plans,
        "whole": known.whole,
        "calm": was_calm,
        "share": ratios[first].seconds,
        "baseline_share": ratios[base].seconds,
        "baseline_most": ratios[base].high,
        "csr_share": ratios[plain].seconds,
        "candidates": [plan.label() for plan in candidates],
        "predicted": figures(predicted),
        "fastest": figures(first),
        "baseline": figures(base),
    }


def _csr(matrix: Matrix, k: int, threads: int) -> Plan:
    return Plan("cpu", "sweep", "csr", k=k, threads=threads)


def _csr_of_gpu(matrix: Matrix, k: int) -> Plan:
    from akx.backends.cuda.device.facts import cuda_device
    from akx.backends.cuda.schedules.sweep.search import preferred

    variant = next(one for one in preferred(matrix, cuda_device()) if one.startswith("csr-"))
    return Plan("cuda", "sweep", variant, k=k)


def _middle(several: list[Json]) -> Json:
    """The measurement with the median share of those in calm times, and the shares of all of these."""
    counted = [one for one in several if one["calm"]] or several
    ordered = sorted(counted, key=lambda one: float(one["share"]))
    return {**ordered[(len(ordered) - 1) // 2], "shares": [one["share"] for one in counted]}


def look_up(recording: Recording, matrix: Matrix) -> Json:
    """What is on record of the plan that is predicted for the recorded device.

    Returns
    -------
    dict
        ``matrix``, ``rows``, ``nnz``, ``k``, ``plans`` on record, ``seconds_to_predict``, ``share`` (seconds of the
        fastest over those of the predicted plan), ``baseline_share`` (of the fastest over the fastest plain products),
        ``over_baseline`` (speed-up of the predicted plan over these), and ``predicted``, ``fastest``, ``baseline``
        {``plan``, ``seconds``, ``modelled``}; null where the predicted plan is not on record.
    """
    model = model_of(recording, matrix)
    begin = time.perf_counter()
    plan = predicted(model)
    seconds = time.perf_counter() - begin
    space = build_space(
        matrix,
        model.space.k,
        model.space.device,
        backend=model.space.backend,
        threads=model.space.threads,
        start_vectors=model.start_vectors,
    )
    found = recording.trials.get(space.inside(plan))
    taken = None if found is None else found.trial.seconds
    best, baseline = recording.best, recording.baseline
    assert best is not None
    assert baseline is not None

    def figures(one: Plan, measured: float | None) -> Json:
        return {"plan": one.label(), "seconds": measured, "modelled": model.seconds(one)}

    return {
        "matrix": recording.matrix_name,
        "rows": matrix.n,
        "nnz": matrix.nnz,
        "k": recording.key.k,
        "plans": len(recording.trials),
        "seconds_to_predict": seconds,
        "share": None if taken is None else (best.seconds or 0.0) / taken,
        "baseline_share": (best.seconds or 0.0) / (baseline.seconds or 1.0),
        "over_baseline": None if taken is None else (baseline.seconds or 0.0) / taken,
        "predicted": figures(space.inside(plan), taken),
        "fastest": figures(best.plan, best.seconds),
        "baseline": figures(baseline.plan, baseline.seconds),
    }


def recorded_table(document: Json) -> str:
    """A line for each matrix, and the median and least of the shares; all times are of the recorded device.

    ``left out``: with constants fitted on the other matrices, from the present ones on (:mod:`benchmarks.prices`).
    """
    head = ["matrix", "k", "predicted", "us", "of the best on record", "left out", "over the best plain products"]
    head += ["best on record", "plain products, of the best", "predicted in, s"]
    entries = document["predictions"]

    def share(value: float | None, form: str) -> str:
        return "not on record" if value is None else format(value, form)

    def left_out(entry: Json) -> str:
        found = entry.get("left_out")
        return "" if found is None else share(found["share"], ".0%")

    body = [
        [
            entry["matrix"],
            str(entry["k"]),
            short(entry["predicted"]["plan"]),
            share(entry["predicted"]["seconds"] and 1e6 * entry["predicted"]["seconds"], ".1f"),
            share(entry["share"], ".0%"),
            left_out(entry),
            share(entry["over_baseline"], ".2f"),
            short(entry["fastest"]["plan"]),
            f"{entry['baseline_share']:.0%}",
            f"{entry['seconds_to_predict']:.2f}",
        ]
        for entry in entries
    ]
    for what, of in (("median", np.median), ("least", np.min)):
        known = [[entry[name] for entry in entries if entry[name] is not None] for name in ("share", "over_baseline")]
        plain = float(of([entry["baseline_share"] for entry in entries]))
        others = [entry["left_out"]["share"] for entry in entries if entry.get("left_out")]
        unseen = [one for one in others if one is not None]
        shares = [f"{of(known[0]):.0%}", f"{of(unseen):.0%}" if unseen else "", f"{of(known[1]):.2f}"]
        body.append([what, "", "", "", *shares, "", f"{plain:.0%}", ""])
    origin = f"Recorded on {document['recorded_on']}; predicted with commit {document['commit'][:10]}, not calibrated."
    return f"{origin}\n\n{markdown.rows(head, body, left=(0, 2, 7))}"


def short(label: str) -> str:
    """A plan's label without what is the same in all of a backend's, and what a plan does not use."""
    where, *words = label.split()
    backend, _, plan = where.partition("/")
    left_out = _USUAL - (set() if backend == "cuda" else {"threads=1"})
    one_by_one = plan.startswith("sweep/")
    kept = (word for word in words if word not in left_out and not (one_by_one and word.startswith("k=")))
    return " ".join((plan, *kept))


def table(document: Json) -> str:
    """A line for each matrix, and the median and least of the shares."""
    head = ["matrix", "k", "plans", "predicted", "ms", "of the optimum", "over plain CSR"]
    head.append("over the best plain products")
    entries = document["predictions"]
    body = [
        [
            entry["matrix"],
            str(entry["k"]),
            str(entry["plans"]) + ("" if entry["whole"] else " of a part"),
            entry["predicted"]["plan"],
            f"{entry['predicted']['seconds'] * 1e3:.3f}",
            f"{entry['share']:.0%}" + ("" if entry["calm"] else " (not calm)"),
            f"{entry['csr_share']:.2f}",
            _reached(entry["baseline_share"], entry.get("baseline_most")),
        ]
        for entry in entries
    ]

    def column(name: str) -> list[float]:
        return [float(entry[name]) for entry in entries]

    for what, of in (("median", np.median), ("least", np.min)):
        shares = [float(of(column(name))) for name in ("share", "csr_share", "baseline_share")]
        body.append([what, "", "", "", "", f"{shares[0]:.0%}", f"{shares[1]:.2f}", f"{shares[2]:.3f}"])
    known = "calibrated" if document["calibrated"] else "not calibrated"
    text = markdown.rows(head, body, left=(0, 3))
    return f"{solving.origin(document, [document])}; {known}.\n\n{text}"


def _known(options: argparse.Namespace, parser: argparse.ArgumentParser) -> list[Known]:
    """What is known of the problems asked for: by recordings in a folder, or by the result file."""
    if options.again is not None:
        document = json.loads(options.again.read_text())
        threads = int(document["machine"]["threads"])
        known = [Known.of_entry(entry, threads) for entry in document["predictions"]]
    else:
        paths = sorted(options.folder.glob("*.jsonl")) if options.folder is not None else []
        if not paths:
            parser.error(f"no recordings in {options.folder}")
        known = [Known.of_recording(read(path)) for path in paths]
    return [one for one in known if not options.matrix or one.name in options.matrix]


def _reached(ratio: float, most: float | None) -> str:
    """A ratio, and where it is below one how far its interval goes."""
    return f"{ratio:.3f}" + (f" (to {most:.3f})" if most is not None and ratio < 1.0 else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, write and print; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predicted", description="Plans of untuned calls.")
    parser.add_argument("folder", type=Path, nargs="?", help="of recordings")
    parser.add_argument("--recordings", type=Path, help="of recordings that are looked up, and no plan timed")
    parser.add_argument("--matrix", action="append", metavar="NAME", help="only these; others in the file stay")
    parser.add_argument("--again", type=Path, metavar="FILE", help="problems of a result file instead, and their best")
    parser.add_argument("--table", action="store_true", help="print the table from the file")
    parser.add_argument("-o", "--output", type=Path, default=_RESULTS)
    parser.add_argument("--docs", type=Path, help="the page with the table; docs/tuner.md with the file by default")
    options = parser.parse_args(arguments)
    if options.recordings is not None:
        return _looked_up(sorted(options.recordings.glob("*.jsonl")), options.output, options.docs)
    if not options.table:
        known = _known(options, parser)
        backends = {one.backend for one in known}
        if len(backends) != 1:
            parser.error(
                f"problems of one backend are compared, and these are of {', '.join(sorted(backends)) or 'none'}"
            )
        backend = backends.pop()
        calibrated = find_calibration(device_of(backend).device_class) is not None
        found: dict[tuple[str, int], list[Json]] = {}
        calm = calm_on(backend, most=1)
        for problem in known * _PASSES[backend]:
            matrix = load(problem.name)
            if matrix is None:
                print(f"{problem.name}: no such matrix here", file=sys.stderr)
                continue
            one = compare(problem, matrix, calm)
            found.setdefault((problem.name, problem.k), []).append(one)
            said = f"{one['matrix']}: {one['share']:.0%}, {one['baseline_share']:.3f} of the best plain products"
            print(said, file=sys.stderr, flush=True)
        if not found:
            parser.error("nothing to compare")
        entries = [_middle(several) for several in found.values()]
        origin = origin_of(backend)
        if options.matrix and options.output.exists():
            names, there = {entry["matrix"] for entry in entries}, json.loads(options.output.read_text())
            if any(there.get(what) != origin.get(what) for what in ("machine", "commit")):
                parser.error(f"{options.output} has figures of another commit or machine: name another file")
            others = there["predictions"]
            entries = sorted(
                [*entries, *(one for one in others if one["matrix"] not in names)], key=lambda one: str(one["matrix"])
            )
        document = {**origin, "calibrated": calibrated, "predictions": entries}
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    document = json.loads(options.output.read_text())
    if "recorded_on" in document:
        markdown.show(recorded_table(document), options.output.stem, options.docs)
        return 0
    page = markdown.page_for(options.output, options.docs, usual=_RESULTS, page=_PAGE)
    markdown.show(table(document), options.output.stem, page)
    return 0


def origin_of(backend: str) -> Json:
    """Machine, versions, commit and date of a run on a backend that starts now."""
    return dict(record.provenance(default_threads())) if backend == "cpu" else gpu.origin_of_table(1)


def _looked_up(paths: list[Path], output: Path, page: Path | None) -> int:
    """Predict for recorded problems, and write and show what is on record of it; 1 where a matrix is not at hand."""
    entries, devices, missing = [], {}, 0
    for path in paths:
        recording = read(path)
        matrix = matrix_of(recording)
        if matrix is None:
            missing += 1
            print(f"{path}: no such matrix here", file=sys.stderr)
            continue
        entries.append(look_up(recording, matrix))
        devices[recording.header["device"]["name"]] = None
        share = entries[-1]["share"]
        said = "not on record" if share is None else f"{share:.0%}"
        print(f"{entries[-1]['matrix']}: {said}", file=sys.stderr, flush=True)
    if not entries:
        print("nothing to look up", file=sys.stderr)
        return 1
    head = {name: record.provenance(default_threads())[name] for name in ("commit", "date")}
    document = {**head, "recorded_on": ", ".join(devices), "calibrated": False, "predictions": entries}
    output.write_text(json.dumps(document, indent=1) + "\n")
    markdown.show(recorded_table(document), output.stem, page)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
