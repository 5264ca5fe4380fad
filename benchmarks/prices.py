"""What counts of work cost: the errors of the prices in ``akx/cost/BACKEND.json``, and new prices for it.

    python -m benchmarks.prices cuda FOLDER              errors over all recordings of FOLDER; nothing is written
    python -m benchmarks.prices cuda FOLDER --fit        and the prices that fit these recordings best
    python -m benchmarks.prices cpu FOLDER --fit         and the prices of formats, measured here (10 to 20 s)
    python -m benchmarks.prices cuda FOLDER --write      into the file: errors, and what was fitted with its date
    python -m benchmarks.prices cuda FOLDER --left-out FILE      add what is predicted for families left out to FILE

Recordings are those of `benchmarks/recordings`, or others (`python -m benchmarks.samplers`); no device is needed. The
error is of every plan that was timed, with the prices of the file: what a calibration knows of the machine is left
aside. FILE is one of `python -m benchmarks.predicted --recordings`.

A GPU's fit is of the logarithm of modelled over measured seconds, least squares with a soft bound on what lies far out,
over the faster plans of each way to work (products one after another, parts in the order given, parts in the order of
METIS, ghost zones, fronts): a plan that takes three times as long as the best on record, or the best of its kind, tells
nothing of use. Prices are held to their present values by a twentieth of a logarithm, since some of them hardly show in
any recording. A processor's formats are timed one by one, as ``akx doctor --calibrate`` does.

A family (:data:`FAMILIES`) is left out as a whole: with grids of 9 and 27 points in a fit, one of 7 is no new matrix.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from akx.backends.host import host_device
from akx.core.plan import Plan
from akx.cost.coefficients import coefficients, coefficients_file
from akx.cost.device_model import format_cost
from akx.tuner import Recording, read_recording
from akx.tuner.history.trial import COMPLETE, Trial
from akx.tuner.model.calibrate import calibrate
from akx.tuner.model.predict import Model
from benchmarks.predicted import look_up
from benchmarks.samplers import matrix_of, model_of

__all__ = ["CONSTANTS", "FAMILIES", "Problem", "errors_of", "fit", "main", "timed", "written"]


def _of(section: str, names: str) -> tuple[tuple[Any, str], ...]:
    return tuple((coefficients("cuda", section), name) for name in names.split())


#: The sections of a GPU's prices that are fitted together, and the names in each.
_FITTED = {
    "sweep": "warp_cycles shuffle_cycles load_cycles staged_load_cycles line_cycles cache_wait_cycles "
    "memory_wait_cycles join_cycles crowded_warp_cycles second_round_cycles later_warp_cycles "
    "slice_search_cycles memory_bytes_share cache_bytes_share",
    "block_local": "values_cycles slice_cycles shared_wait_cycles global_wait_cycles halo_wait_cycles flag_cycles "
    "meeting_cycles kept_cache_share gathered_sectors_share partial_result_bytes later_slice_wait_ratio",
    "ghost": "pass_begin_cycles",
    "wavefront": "step_cycles slot_cycles shared_slots_cycles diagonals_cycles shared_diagonals_cycles spilled_cycles "
    "late_cycles ask_cycles",
    "bandwidth": "memory_share cache_share",
}
#: Where a price is, and its name.
CONSTANTS = tuple(one for section, names in _FITTED.items() for one in _of(section, names))
#: Matrices of one kind, of the gallery with either sort of values; any other is a family of its own.
FAMILIES = (
    {"9-point", "27-point", "7-point", "pentadiagonal"},
    {"brick", "shell", "tetrahedra", "bcsstk16", "bcsstk18"},
    {"delaunay", "ct2010"},
)
#: By backend and section, the kinds of plans that it prices.
_PRICED = {
    "cuda": {
        "sweep": ("sweep",),
        "block_local": ("resident", "ghost"),
        "ghost": ("ghost",),
        "wavefront": ("wavefront",),
        "diagonals": ("diagonals",),
    },
    "cpu": {"variants": ("sweep", "ghost", "wavefront")},
}
#: Plans of each kind that take part, and how much longer than the fastest of them they may take.
_PLANS, _SLOWEST = 24, 3.0
#: METIS is not asked for a prediction beyond so many entries.
_CUT = 400_000
_PRIOR, _FAR_OUT, _EVALUATIONS = 0.05, 0.08, 12

Json = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """A recorded problem: its model, and the plans that take part in a fit with their seconds and weights."""

    recording: Recording
    model: Model
    plans: tuple[tuple[Plan, float, float], ...]


def timed(recording: Recording, model: Model) -> Problem:
    """The faster plans of each kind, the fastest with the largest weights; kinds weigh the same."""
    kinds: dict[str, list[Trial]] = {}
    for one in recording.trials.values():
        kind = _kind(one.trial.plan, model)
        if kind and one.trial.seconds is not None:
            kinds.setdefault(kind, []).append(one.trial)
    found = []
    best = min((trial.seconds or math.inf for trials in kinds.values() for trial in trials), default=math.inf)
    for kind, trials in kinds.items():
        ordered = sorted((trial.seconds or math.inf, trial.plan.label(), trial.plan) for trial in trials)
        least = ordered[0][0]
        most = _SLOWEST * (least if kind == "sweep" else best)
        chosen = [(plan, seconds) for seconds, _, plan in ordered if seconds < most][:_PLANS]
        found += [(plan, seconds, least / seconds / math.sqrt(max(len(chosen), 6))) for plan, seconds in chosen]
    return Problem(recording, model, tuple(found))


def _kind(plan: Plan, model: Model) -> str:
    """What a plan is fitted with; empty where it takes no part."""
    if plan.schedule == "sweep":
        return "sweep" if plan.typed.block == 256 and plan.variant != "rows16" else ""
    if plan.schedule == "resident" and plan.variant != "dia":
        if plan.partitioner == "natural":
            return "natural" if plan.typed.depth == 1 else ""
        small = model.matrix.nnz <= _CUT and plan.typed.depth <= 4
        return "metis" if small and plan.typed.blocks_per_sm == 1 else ""
    if plan.schedule == "wavefront" and plan.partitioner == "natural":
        return "wavefront"
    whole = plan.schedule == "ghost" and plan.k_per_pass == plan.k and plan.typed.cluster == 1
    return "ghost" if whole and plan.partitioner == "natural" else ""


def fit(problems: Sequence[Problem]) -> NDArray[np.float64]:
    """The prices that fit best, in the order of :data:`CONSTANTS`."""
    now = _now()

    def residuals(steps: NDArray[np.float64]) -> NDArray[np.float64]:
        with _constants(now * np.exp(steps)):
            off = [
                weight * math.log(problem.model.seconds(plan) / seconds)
                for problem in problems
                for plan, seconds, weight in problem.plans
            ]
        return np.concatenate([off, _PRIOR * steps])

    start = np.zeros(now.size)
    limits = (-2.0, 2.0)
    found = least_squares(
        residuals, start, bounds=limits, loss="soft_l1", f_scale=_FAR_OUT, diff_step=0.02, max_nfev=_EVALUATIONS
    )
    return np.asarray(now * np.exp(found.x), dtype=np.float64)


@contextmanager
def _constants(values: NDArray[np.float64]) -> Iterator[None]:
    """With these prices in the place of those in the file."""
    before = [getattr(module, name) for module, name in CONSTANTS]
    try:
        for (module, name), value in zip(CONSTANTS, values, strict=True):
            setattr(module, name, float(value))
        yield
    finally:
        for (module, name), value in zip(CONSTANTS, before, strict=True):
            setattr(module, name, value)


def _left_out(problems: Mapping[str, Problem], name: str) -> Json:
    """What is predicted for one problem with prices fitted on all but its family."""
    left = _family(name)
    values = fit([problem for other, problem in problems.items() if _family(other) != left])
    with _constants(values):
        found = look_up(problems[name].recording, problems[name].model.matrix)
    return {"plan": found["predicted"]["plan"], "share": found["share"]}


def _family(name: str) -> set[str]:
    plain = name.removesuffix("-constant")
    return next((family for family in FAMILIES if plain in family), {plain})


def errors_of(problems: Sequence[Problem]) -> dict[str, Json]:
    """By kind of plans, of predicted over measured seconds of all that were timed: how many, median and worst."""
    ratios: dict[str, list[float]] = {}
    for problem in problems:
        for one in problem.recording.trials.values():
            trial, is_large = one.trial, problem.model.matrix.nnz > _CUT
            if trial.state != COMPLETE or not trial.seconds or (is_large and trial.plan.partitioner == "metis"):
                continue
            ratio = problem.model.seconds(trial.plan) / trial.seconds
            if math.isfinite(ratio):
                kind = "diagonals" if trial.plan.variant == "dia" and trial.plan.schedule == "resident" else None
                ratios.setdefault(kind or trial.plan.schedule, []).append(ratio)
    found = {}
    for kind, several in sorted(ratios.items()):
        logarithms = np.log(several)
        found[kind] = {
            "plans": len(several),
            "median_ratio": round(float(np.median(several)), 3),
            "median_factor": round(float(np.exp(np.median(np.abs(logarithms)))), 3),
            "worst_ratio": round(several[int(np.argmax(np.abs(logarithms)))], 3),
        }
    return found


def written(document: Json, backend: str, problems: Mapping[str, Problem], fitted: Mapping[str, Json]) -> Json:
    """The file of a backend with these errors, and with what was `fitted`: by section, values and where and when."""
    recordings = [one.recording for one in problems.values()]
    constants = _FITTED if backend == "cuda" and fitted else {}
    values = [fitted[section]["values"][name] for section, names in constants.items() for name in names.split()]
    with _constants(np.array(values) if values else _now()):
        errors = errors_of([_with_formats(one, fitted) for one in problems.values()])
    recorded = {
        "matrices": sorted(problems),
        "dates": sorted({str(one.header["created"])[:10] for one in recordings}),
        "devices": sorted({str(one.header["device"]["name"]) for one in recordings}),
    }
    sections = {name: {**section, **fitted.get(name, {})} for name, section in document["sections"].items()}
    for name, kinds in _PRICED[backend].items():
        error = {kind: errors[kind] for kind in kinds if kind in errors}
        unknown = "" if error else "no plan of this kind is recorded"
        sections[name] = {**sections[name], "error": error or None, "error_unknown": unknown}
    return {**document, "errors_over": recorded, "sections": sections}


def _with_formats(problem: Problem, fitted: Mapping[str, Json]) -> Problem:
    """The problem with a processor's formats as fitted, if they are."""
    if "variants" not in fitted:
        return problem
    formats = {name: format_cost(one["cost"]) for name, one in fitted["variants"]["values"].items()}
    return replace(problem, model=replace(problem.model, figures=replace(problem.model.figures, formats=formats)))


def _now() -> NDArray[np.float64]:
    return np.array([float(getattr(section, name)) for section, name in CONSTANTS])


def _fitted_on(problems: Mapping[str, Problem]) -> dict[str, Json]:
    """The sections of a GPU with what fits these problems best, rounded to three digits."""
    values = iter(fit(list(problems.values())))
    devices = sorted({str(problem.recording.header["device"]["name"]) for problem in problems.values()})
    found = {}
    for section, names in _FITTED.items():
        made = {name: float(f"{next(values):.3g}") for name in names.split()}
        facts = {"fitted": _today(), "device": ", ".join(devices), "matrices": sorted(problems)}
        found[section] = {**facts, "values": {**vars(coefficients("cuda", section)), **made}}
    return found


def _measured_here() -> dict[str, Json]:
    """The section of a processor's formats, as measured on this one; what differs by bytes and vectors stays."""
    values = {name: dict(one) for name, one in vars(coefficients("cpu", "variants")).items()}
    for name, cost in calibrate("cpu").one_thread.formats.items():
        if name in values:
            seconds = {f"{what}_seconds": float(f"{price:.3g}") for what, price in asdict(cost).items()}
            values[name]["cost"] = seconds
    matrices = "made for it (akx.tuner.model.calibrate)"
    return {"variants": {"fitted": _today(), "device": host_device().name, "matrices": matrices, "values": values}}


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _text(document: Json) -> str:
    """JSON with the innermost objects and lists on a line each, where they fit."""

    def joined(found: re.Match[str]) -> str:
        line = " ".join(found[0].split()).replace("{ ", "{").replace(" }", "}").replace("[ ", "[").replace(" ]", "]")
        return line if len(line) <= 100 else found[0]

    return re.sub(r"\{[^{}\[\]]*\}|\[[^{}\[\]]*\]", joined, json.dumps(document, indent=1)) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Look at recordings, fit, print and write; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prices", description="What counts of work cost.")
    parser.add_argument("backend", choices=sorted(_PRICED))
    parser.add_argument("folder", type=Path, help="of recordings of that backend")
    parser.add_argument("--fit", action="store_true", help="new prices: of a GPU on the recordings, of a CPU by timing")
    parser.add_argument("--write", action="store_true", help="write the file of the backend, or -o")
    parser.add_argument("-o", "--output", type=Path, help="the file to write, in the place of the backend's")
    parser.add_argument("--left-out", type=Path, help="of benchmarks.predicted, to add to (GPU)")
    options = parser.parse_args(arguments)
    problems: dict[str, Problem] = {}
    for path in sorted(options.folder.glob("*.jsonl")):
        recording = read_recording(path)
        matrix = matrix_of(recording)
        if matrix is None or recording.header["backend"] != options.backend:
            print(f"{path}: no such matrix here, or of another backend", file=sys.stderr)
            continue
        model = model_of(recording, matrix)
        is_fitted = options.backend == "cuda"
        problems[recording.matrix_name] = timed(recording, model) if is_fitted else Problem(recording, model, ())
    if not problems:
        parser.error(f"no recordings in {options.folder}")
    file = coefficients_file(options.backend)
    document = json.loads(file.read_text())
    fitted: dict[str, Json] = {}
    if options.fit:
        fitted = _fitted_on(problems) if options.backend == "cuda" else _measured_here()
    for section, new in fitted.items():
        for name, value in new["values"].items():
            if value != document["sections"][section]["values"][name]:
                print(f"{section:12s} {name:24s} {document['sections'][section]['values'][name]} -> {value}")
    document = written(document, options.backend, problems, fitted)
    for section in _PRICED[options.backend]:
        print(f"{section:12s} {json.dumps(document['sections'][section]['error'])}")
    if options.write:
        (options.output or file).write_text(_text(document))
    if options.left_out is not None:
        predicted = json.loads(options.left_out.read_text())
        for entry in predicted["predictions"]:
            if entry["matrix"] in problems:
                entry["left_out"] = _left_out(problems, entry["matrix"])
                print(f"{entry['matrix']}: {entry['left_out']}", file=sys.stderr, flush=True)
        options.left_out.write_text(json.dumps(predicted, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
