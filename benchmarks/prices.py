"""Cycles of the GPU's kernels, fitted on recordings, and what is predicted for a matrix that the fit has not seen.

    python -m benchmarks.prices FOLDER                   print the constants that fit all recordings of FOLDER best
    python -m benchmarks.prices FOLDER -o FILE           and add what was predicted for matrices left out to FILE

FILE is one of `python -m benchmarks.predicted --recordings`. The constants are those of
`sweep_work`, `parts_work` and `ghost_offers`; in the
code they are rounded. A fit is of the logarithm of modelled over measured seconds, least squares with a soft bound on
what lies far out, over the faster plans of each way to work (products one after another, parts in the order given,
parts in the order of METIS, ghost zones): a plan that takes three times as long as the best on record, or the best of
its kind, tells nothing of use. Constants are held to their present values by a twentieth of a logarithm, since some of
them hardly show in any recording.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from akx.backends.cuda.schedules.ghost import cost as ghost_offers
from akx.backends.cuda.schedules.sweep import cost as sweep_work
from akx.backends.cuda.variants.block_local import cost as parts_work
from akx.core.plan import Plan
from akx.tuner import Recording, read_recording
from akx.tuner.history.result import Trial
from akx.tuner.model.predict import Model
from benchmarks.predicted import look_up
from benchmarks.samplers import load, model_of

__all__ = ["CONSTANTS", "Problem", "fit", "main", "timed"]

#: Where a constant is, and its name.
CONSTANTS = (
    *(
        (sweep_work, name)
        for name in ("_WARP", "_SHUFFLE", "_LOAD", "_STAGED_LOAD", "_TOUCH", "_NEAR", "_FAR", "_JOIN")
    ),
    *((sweep_work, name) for name in ("_CROWDED", "_LIFE", "_LATER", "_FOUND", "_OF_MEMORY", "_OF_CACHE")),
    *((parts_work, name) for name in ("_VALUES", "_SLICE", "_NEAR", "_GLOBAL", "_HALO", "_FLAG", "_MEET")),
    *((parts_work, name) for name in ("_KEPT", "_GATHERED", "_PARTIAL", "_ALONE")),
    (ghost_offers, "_BEGIN"),
    *(
        (import_module("akx.tuner.model.seconds"), name) for name in ("_REACHED", "_REACHED_NEAR")
    ),  # it has such a function
)
#: Plans of each kind that take part, and how much longer than the fastest of them they may take.
_PLANS, _SLOWEST = 24, 3.0
#: METIS is not asked for a prediction beyond so many entries.
_CUT = 400_000
_PRIOR, _FAR_OUT, _EVALUATIONS = 0.05, 0.08, 12

Json = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """A recorded problem: its model, and the plans that take part with their seconds and weights."""

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
    whole = plan.schedule == "ghost" and plan.k_per_pass == plan.k and plan.typed.cluster == 1
    return "ghost" if whole and plan.partitioner == "natural" else ""


def fit(problems: Sequence[Problem]) -> NDArray[np.float64]:
    """The constants that fit best, in the order of :data:`CONSTANTS`."""
    now = np.array([float(getattr(module, name)) for module, name in CONSTANTS])

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
    """With these constants in the place of those in the code."""
    before = [getattr(module, name) for module, name in CONSTANTS]
    try:
        for (module, name), value in zip(CONSTANTS, values, strict=True):
            setattr(module, name, float(value))
        yield
    finally:
        for (module, name), value in zip(CONSTANTS, before, strict=True):
            setattr(module, name, value)


def _left_out(problems: Mapping[str, Problem], name: str) -> Json:
    """What is predicted for one problem with constants fitted on the others."""
    values = fit([problem for other, problem in problems.items() if other != name])
    with _constants(values):
        found = look_up(problems[name].recording, problems[name].model.matrix)
    return {"plan": found["predicted"]["plan"], "share": found["share"]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit and print; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prices", description="Cycles of the GPU's kernels.")
    parser.add_argument("folder", type=Path, help="of recordings of a GPU")
    parser.add_argument("-o", "--output", type=Path, help="of benchmarks.predicted, to add to")
    options = parser.parse_args(arguments)
    problems: dict[str, Problem] = {}
    for path in sorted(options.folder.glob("*.jsonl")):
        recording = read_recording(path)
        matrix = load(recording.matrix_name)
        if matrix is None or recording.header["backend"] != "cuda":
            print(f"{path}: no such matrix here, or not of a GPU", file=sys.stderr)
            continue
        problems[recording.matrix_name] = timed(recording, model_of(recording, matrix))
    if not problems:
        parser.error(f"no recordings in {options.folder}")
    for (module, name), value in zip(CONSTANTS, fit(list(problems.values())), strict=True):
        place = module.__name__.rpartition(".")[2]
        print(f"{place:12s} {name:14s} {getattr(module, name):8.2f} in the code, {value:8.2f} fits best")
    if options.output is not None:
        document = json.loads(options.output.read_text())
        for entry in document["predictions"]:
            if entry["matrix"] in problems:
                entry["left_out"] = _left_out(problems, entry["matrix"])
                print(f"{entry['matrix']}: {entry['left_out']}", file=sys.stderr, flush=True)
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
