"""Which sampler finds good plans in few trials, and in little time? Replays of recorded searches, with no device.

    python -m benchmarks.samplers FOLDER --record --seconds 1500     record whole spaces on this CPU in that time
    python -m benchmarks.samplers FOLDER --record --backend cuda --matrix brick      a part of a GPU's space of one
    python -m benchmarks.samplers FOLDER --again                     measure the best on record of each once more
    python -m benchmarks.samplers FOLDER                             compare, into benchmarks/results/samplers.json
    python -m benchmarks.samplers FOLDER --table                     print the table from the file

The fastest of hundreds of plans that were measured one after another owes much of its speed to luck, on a machine where
one plan takes 5 to 20 % more or less from time to time. So those within a quarter of the best are measured again, in
turns with one another, in calm times (:mod:`benchmarks.calm`); the recording with these figures in the place of its own
is what is compared.

A GPU's spaces have millions of plans: what is recorded there is every feasible plan of a part
(:mod:`benchmarks.portion`). Several processes may record side by side, each a matrix of its own; they measure one at a
time.

Every sampler takes the place of Optuna's TPE in the search of :mod:`akx.tuner.search.search`, between the same seeds
and the same plans near the best. It is given the same trials (``--trials``), however long they take, and then the same
time (``--time``), for up to 160 trials, twice as many as a search has by default: seconds of the recorded machine,
compilations, run-off and all, but nothing for what a sampler thinks. A search that stops for want of progress is not
let. ``local`` suggests nothing: what is left are neighbours (hill climbing) and what is estimated to gain most.
``alone`` in a name: nothing but this makes suggestions behind the seeds, so that ``local alone`` is plain hill
climbing, which goes on at random from where it can climb no further. ``tpe, no estimates`` is the search without what
is estimated to gain most by the Gaussian process of :mod:`akx.tuner.surrogate`. Optuna's own GP sampler needs PyTorch
and has not been tried.

The figure is the *share*: seconds of the fastest plan on record over those of the plan that the search chose, for each
recording the median over seeds. ``predicted`` is that of the plan that an untuned call takes: where the matrix is at
hand, of the model as it is now, with the calibration that is there for the recorded device, and searches begin with
that plan; else of the model that was recorded.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from akx.backends import registry
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.device_lock import device_lock
from akx.backends.host import HostDevice, default_threads
from akx.backends.selection import device_of
from akx.core.errors import AkxError, ArgumentError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner import Recording, Settings, exhaustive, predict, read_recording, replay
from akx.tuner.candidates.proposals import Proposals
from akx.tuner.candidates.sampler import Sampler, Suggesting
from akx.tuner.history.ledger import Ledger
from akx.tuner.history.trial import COMPLETE, Trial
from akx.tuner.measure import Precision
from akx.tuner.model.figures import derived_figures, figures_of
from akx.tuner.model.predict import Model
from akx.tuner.model.predict import predicted as predicted_plan
from akx.tuner.space import Space, build_space, is_baseline
from akx.tuner.trace.recording import RecordedTrial, Run
from benchmarks import markdown, portion, record, solving
from benchmarks.calls import calls_of
from benchmarks.calm import Calm, calm_on
from benchmarks.gallery import CONSTANT, GALLERY
from benchmarks.steps_gpu import parsed

__all__ = [
    "SAMPLERS",
    "TIMES",
    "TRIALS",
    "LocalOnly",
    "Random",
    "compare",
    "corrected",
    "load",
    "made",
    "main",
    "matrix_of",
    "measured_again",
    "model_of",
    "modelled",
    "read",
    "recorded_device",
    "shares_of",
    "table",
]

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "tuner.md"
_RESULTS = Path(__file__).resolve().parent / "results" / "samplers.json"
_LONGER = _RESULTS.with_name("longer_h100.json")
#: What is recorded, by backend: names of the gallery and of real matrices, and k.
_SPACES_OF_CPU = (
    ("bcsstk16", 8),
    ("wang4", 8),
    ("pentadiagonal", 8),
    ("memplus", 8),
    ("brick", 8),
    ("bcsstk18", 4),
    ("dw8192", 8),
    ("rail_20209", 16),
    ("ct2010", 8),
    ("helmholtz_2D", 8),
    ("PGPgiantcompo", 4),
    ("27-point", 4),
    ("shell", 4),
    ("9-point", 8),
    ("7-point", 8),
    ("mc2depi", 8),
    ("tetrahedra", 8),
    ("delaunay", 8),
    ("rmat", 8),
)
_SPACES_OF_GPU = (
    *((name, 16) for name in ("brick", "shell", "27-point", "9-point", "7-point", "mc2depi", "pentadiagonal")),
    *((name, 8) for name in ("tetrahedra", "delaunay", "rmat", "G3_circuit")),
    *((name, 8) for name in ("ct2010", "bcsstk16", "wang4", "memplus", "dw8192")),
)
_SPACES = {"cpu": _SPACES_OF_CPU, "cuda": _SPACES_OF_GPU}
#: Of ``tuning_db/``, around whose plans a part of a GPU's space is.
_BUNDLE = "cuda-nvidia-h100"
#: Trials of a search, and its seconds by backend; and what share it is to reach with few and with more (on nine
#: recordings of ten).
TRIALS = (30, 60)
TIMES = {"cpu": (10.0, 30.0), "cuda": (20.0, 60.0)}
_GOALS = (0.95, 0.97)
_PREDICTED = 0.85
_SEEDS = 5
#: Trials at most of a search that has so many seconds: where trials take milliseconds it would come to the whole space.
_MOST_IN_TIME = 160
#: What is measured again: plans that take at most so many times as long as the best on record, and so many of them.
_CLOSE, _MOST_CLOSE = 1.25, 40
#: Until all are known that take at most so many times as long as the best, but not more often than that.
_NO_SLOWER, _MOST_TURNS = 1.02, 5
_AGAIN = Precision(relative=0.01, seconds=6.0, rounds_min=11, rounds_max=41, sample_seconds=2e-3)
_NEVER = 10**9
_ENDLESS = 1e6

Json = dict[str, Any]
Making = Callable[[Space, int], Suggesting]


class LocalOnly:
    """No suggestions."""

    def __init__(self, space: Space, seed: int) -> None:
        pass

    def suggest(self, done: Ledger, refuse: Callable[[Plan], bool]) -> Plan | None:
        """None."""
        return None

    def tell(self, outcome: Trial) -> None:
        """Nothing is learnt."""


class Random:
    """Plans of the space, each with the same chance."""

    def __init__(self, space: Space, seed: int) -> None:
        self._order = list(space.plans())
        np.random.default_rng(seed).shuffle(self._order)  # type: ignore[arg-type]

    def suggest(self, done: Ledger, refuse: Callable[[Plan], bool]) -> Plan | None:
        """The next one that is new."""
        while self._order:
            plan = self._order.pop()
            if plan not in done and not refuse(plan):
                return plan
        return None

    def tell(self, outcome: Trial) -> None:
        """Nothing is learnt."""


#: What else proposes plans in a search, methods of :class:`Proposals` that return a plan or None, or a list of plans.
_OTHERS = ("_near_best", "_near_rival", "_promising", "beside")
#: By name: who suggests, and which of the others do so too.
SAMPLERS: dict[str, tuple[Making, tuple[str, ...]]] = {
    "tpe": (Sampler, _OTHERS),
    "random": (Random, _OTHERS),
    "local": (LocalOnly, _OTHERS),
    "tpe, no estimates": (Sampler, ("_near_best", "_near_rival", "beside")),
    "tpe alone": (Sampler, ()),
    "random alone": (Random, ()),
    "local alone": (LocalOnly, ("_near_best",)),
}


def shares_of(
    recording: Recording,
    making: Making,
    *,
    others: Sequence[str] = _OTHERS,
    seeds: int,
    trials: int = _NEVER,
    seconds: float = _ENDLESS,
) -> list[float]:
    """The share of the chosen plan for each seed, after so many trials or seconds; `others` propose plans as well."""
    settings = Settings(trials=trials, seconds=seconds, patience=_NEVER)
    with _silent(name for name in _OTHERS if name not in others):
        return [replay(recording, settings=settings, seed=seed, sampler=making).share for seed in range(seeds)]


@contextmanager
def _silent(names: Iterable[str]) -> Iterator[None]:
    """Have these methods of :class:`Proposals` propose nothing."""
    usual = {name: getattr(Proposals, name) for name in names}
    try:
        for name in usual:
            setattr(Proposals, name, _nothing if name == "beside" else _nobody)
        yield
    finally:
        for name, method in usual.items():
            setattr(Proposals, name, method)


def _nobody(proposals: Proposals) -> None:
    return None


def _nothing(proposals: Proposals) -> list[Plan]:
    return []


def recorded_device(recording: Recording) -> Any:
    """The device of a recording, by its facts."""
    facts = {**recording.header["device"]}
    if recording.header["backend"] != "cuda":
        return HostDevice(**facts)
    return CudaDevice(**{**facts, "compute_capability": tuple(facts["compute_capability"])})


def model_of(recording: Recording, matrix: Matrix) -> Model:
    """The model of a recorded problem with derived figures, in which no schedule has been asked for its space."""
    backend, threads = recording.header["backend"], int(recording.header["threads"])
    device = replace(recorded_device(recording), cores=threads)
    schedules = {schedule.name: schedule for schedule in registry.schedules(backend)}
    space = Space(backend, recording.key.k, threads, device, schedules, {})
    return Model(matrix, space, derived_figures(device, threads), recording.key.start_vectors)


def modelled(recording: Recording, matrix: Matrix) -> Recording:
    """The recording with what the model says of its plans now, and the plan that it predicts."""
    header, device = recording.header, recorded_device(recording)
    threads, vectors = int(header["threads"]), recording.key.start_vectors
    space = build_space(
        matrix, recording.key.k, device, backend=header["backend"], threads=threads, start_vectors=vectors
    )
    model = Model(matrix, space, figures_of(space.device, threads), vectors)
    predicted = space.inside(predicted_plan(model)).to_json()

    def anew(run: Run) -> Run:
        said = (replace(one, model_seconds=_finite(model.seconds(one.trial.plan))) for one in run.trials)
        return replace(run, header={**run.header, "predicted": predicted}, trials=tuple(said))

    return replace(recording, runs=tuple(anew(run) for run in recording.runs))


def _finite(seconds: float) -> float | None:
    return seconds if np.isfinite(seconds) else None


def made(name: str) -> Matrix:
    """A matrix of the gallery or a real one. Raises FileNotFoundError where it is not at hand."""
    make = (GALLERY | CONSTANT).get(name)
    return Matrix.from_any(make() if make is not None else solving.load(name))


def load(name: str) -> Matrix | None:
    """A matrix of the gallery or a real one; None where it is not at hand."""
    try:
        return made(name)
    except FileNotFoundError:
        return None


def matrix_of(recording: Recording) -> Matrix | None:
    """The matrix that was recorded; None where it is not at hand.

    Where plans store values in a table, coefficients of the gallery were constant.
    """
    name = recording.matrix_name
    plans = (one.trial.plan for run in recording.runs for one in run.trials)
    is_constant = f"{name}-constant" in CONSTANT and any(plan.options.get("stored") == "table" for plan in plans)
    return load(f"{name}-constant" if is_constant else name)


def measured_again(recording: Recording, matrix: Matrix, calm: Calm, precision: Precision = _AGAIN) -> Json:
    """Time those that are close to the best on record, the predicted plan and the baseline once more, in turns.

    What the machine's speed has changed by is told by the baseline, which nobody picked for having been fast in one
    measurement of many: `pace`. Where others are the best on record then, they are measured as well, again beside the
    baseline, until all are known that are no slower than the best.

    Returns
    -------
    dict
        ``created``, ``of`` (when the recording was made), whether times were ``calm``, and ``plans`` [{``plan``,
        ``seconds``, ``spread``, ``samples``, ``before``, ``pace``}, ...].
    """
    done = [one.trial for one in recording.trials.values() if one.trial.state == COMPLETE and one.trial.seconds]
    done.sort(key=lambda trial: trial.seconds or 0.0)
    base = next(trial for trial in done if is_baseline(trial.plan))
    predicted = recording.trials.get(Plan.from_json(recording.header["predicted"]))
    more = [base] if predicted is None or predicted.trial not in done else [base, predicted.trial]
    found: dict[Plan, Json] = {}
    was_calm, best = True, done[0].seconds or 0.0
    for _ in range(_MOST_TURNS):
        close = [one for one in done if one.plan not in found and (one.seconds or 0.0) <= _CLOSE * best][:_MOST_CLOSE]
        trials = list({trial.plan: trial for trial in (*close, *more)}.values())
        calls = calls_of(recording.header["backend"], matrix, recording.key.k, [trial.plan for trial in trials])
        timings, calmly = calm.timed(calls, precision)
        del calls  # and their programs
        was_calm = was_calm and calmly
        times = dict(zip((trial.plan for trial in trials), timings, strict=True))
        pace = times[base.plan].seconds / (base.seconds or 1.0)
        for trial in trials:
            one = times[trial.plan]
            found[trial.plan] = {
                "plan": trial.plan.to_json(),
                "seconds": one.seconds,
                "spread": one.spread,
                "samples": [float(f"{sample:.6g}") for sample in one.samples],
                "before": trial.seconds,
                "pace": pace,
            }
        best = min(one["seconds"] / one["pace"] for one in found.values())
        if all(one.plan in found for one in done if (one.seconds or 0.0) <= _NO_SLOWER * best):
            break
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return {"created": created, "of": recording.header["created"], "calm": was_calm, "plans": list(found.values())}


def corrected(recording: Recording, again: Json) -> Recording:
    """The recording with what was measured again, brought to the speed that the machine had then.

    Raises ArgumentError where that is of another recording.
    """
    if again["of"] != recording.header["created"]:
        raise ArgumentError(
            "what was measured again is of another recording",
            expected=f"one of {recording.header['created']}",
            found=str(again["of"]),
            hint="remove the .again.json file, and measure again with --again",
        )
    known = {Plan.from_json(one["plan"]): one for one in again["plans"]}

    def anew(one: RecordedTrial) -> RecordedTrial:
        found = known.get(one.trial.plan)
        if found is None or one.trial.seconds is None:
            return one
        pace = found["pace"]
        samples = tuple(sample / pace for sample in found["samples"])
        return replace(
            one, trial=replace(one.trial, seconds=found["seconds"] / pace, spread=found["spread"], samples=samples)
        )

    return replace(recording, runs=tuple(replace(run, trials=tuple(map(anew, run.trials))) for run in recording.runs))


def read(path: Path) -> Recording:
    """A recording, with what was measured again where there is that."""
    recording, again = read_recording(path), path.with_suffix(".again.json")
    return corrected(recording, json.loads(again.read_text())) if again.exists() else recording


def predicted_share(recording: Recording) -> float | None:
    """The share of the plan that was predicted; None where it was not measured."""
    found, best = recording.trials.get(Plan.from_json(recording.header["predicted"])), recording.best
    if found is None or found.trial.seconds is None or best is None or best.seconds is None:
        return None
    return best.seconds / found.trial.seconds


def compare(
    paths: Iterable[Path],
    seeds: int = _SEEDS,
    names: Sequence[str] = tuple(SAMPLERS),
    trials: Sequence[int] = TRIALS,
    times: Sequence[float] | None = None,
    processes: int = 1,
) -> Json:
    """Entries by recording, with the samplers' shares after so many trials, and after so many seconds.

    Recordings are of one backend, whose :data:`TIMES` are the seconds by default; each is gone through by one of the
    processes.
    """
    paths = list(paths)
    heads = [read_recording(path).header for path in paths]
    backends = {head["backend"] for head in heads}
    if len(backends) > 1:
        raise ArgumentError(
            "recordings are of several backends", found=", ".join(sorted(backends)), hint="compare those of one"
        )
    wanted = tuple(times) if times else next((TIMES[backend] for backend in backends), ())
    work = partial(_compared, seeds=seeds, names=tuple(names), trials=tuple(trials), times=wanted)
    entries = []
    with _mapping(processes) as each:
        for entry in each(work, paths):
            print(f"{entry['matrix']} k = {entry['k']}: {_line(entry)}", file=sys.stderr, flush=True)
            entries.append(entry)
    return {
        "recorded_on": ", ".join(sorted({f"{head['device']['name']}, {head['threads']} threads" for head in heads})),
        "recorded": sorted({str(head["created"])[:10] for head in heads}),
        "trials": list(trials),
        "times": list(wanted),
        "seeds": seeds,
        "recordings": entries,
    }


@contextmanager
def _mapping(processes: int) -> Iterator[Callable[..., Iterable[Json]]]:
    """`map` in this process, or in several."""
    if processes == 1:
        yield map
        return
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=1) as pool:
        yield partial(pool.imap, chunksize=1)


def _compared(path: Path, *, seeds: int, names: Sequence[str], trials: Sequence[int], times: Sequence[float]) -> Json:
    """The entry of one recording."""
    recording = read(path)
    matrix = matrix_of(recording)
    if matrix is not None:
        recording = modelled(recording, matrix)
    best, baseline = recording.best, recording.baseline
    assert best is not None
    assert baseline is not None
    entry: Json = {
        "matrix": recording.header["matrix"]["name"],
        "k": recording.key.k,
        "device": recording.key.device_class,
        "plans": len(recording.trials),
        "whole": recording.exhaustive,
        "best": {"plan": best.plan.label(), "seconds": best.seconds},
        "baseline_share": (best.seconds or 0.0) / (baseline.seconds or 1.0),
        "predicted": {
            "plan": Plan.from_json(recording.header["predicted"]).label(),
            "share": predicted_share(recording),
            "anew": matrix is not None,
        },
        "shares": {},
        "shares_in_time": {},
    }
    for name in names:
        making, others = SAMPLERS[name]
        same: Json = {"others": others, "seeds": seeds}
        entry["shares"][name] = {str(n): shares_of(recording, making, trials=n, **same) for n in trials}
        entry["shares_in_time"][name] = {
            f"{limit:g}": shares_of(recording, making, trials=_MOST_IN_TIME, seconds=limit, **same) for limit in times
        }
    return entry


def _line(entry: Json) -> str:
    return ", ".join(
        f"{name} " + "/".join(f"{share:.2f}" for share in _medians(entry, name)) for name in entry["shares"]
    )


def _medians(entry: Json, name: str) -> list[float]:
    """Of a sampler's shares over the seeds: after few trials and more, then in little time and more."""
    found = [*entry["shares"][name].values(), *entry.get("shares_in_time", {}).get(name, {}).values()]
    return [float(np.median(shares)) for shares in found]


def table(document: Json) -> str:
    """Shares by recording and sampler, with so many trials and seconds, and how many recordings reach what is asked.

    Files that were made before there were seconds have no columns of them.
    """
    entries = document["recordings"]
    names = list(entries[0]["shares"])
    given = [*(str(n) for n in document["trials"]), *(f"{limit:g} s" for limit in document.get("times", ()))]
    head = ["matrix", "k", "plans", "baseline", "predicted", *(f"{name}, {one}" for name in names for one in given)]
    body = []
    for entry in entries:
        medians = [median for name in names for median in _medians(entry, name)]
        predicted = entry["predicted"]["share"]
        body.append(
            [
                entry["matrix"],
                str(entry["k"]),
                str(entry["plans"]) + ("" if entry["whole"] else " of a part"),
                f"{entry['baseline_share']:.2f}",
                "" if predicted is None else f"{predicted:.2f}",
                *(f"{share:.2f}" for share in medians),
            ]
        )
    reached = [
        sum(_medians(entry, name)[place] >= _GOALS[place % len(_GOALS)] for entry in entries)
        for name in names
        for place in range(len(given))
    ]
    known = [entry["predicted"]["share"] for entry in entries if entry["predicted"]["share"] is not None]
    body.append(
        [
            f"reach {' and '.join(f'{least:.0%}' for least in _GOALS)}",
            "",
            "",
            "",
            f"median {float(np.median(known)):.2f}" if known else "",
            *(f"{count} of {len(entries)}" for count in reached),
        ]
    )
    seeds = "one seed" if document["seeds"] == 1 else f"medians of {document['seeds']} seeds"
    origin = (
        f"Recorded on {document['recorded_on']}, {' and '.join(document['recorded'])}; replayed by commit "
        f"{document['commit'][:10]}, {document['date'][:10]}; {seeds}"
    )
    return f"{origin}.\n\n{markdown.rows(head, body)}"


def record_spaces(
    folder: Path, seconds: float, each: float, backend: str = "cpu", names: Sequence[str] | None = None
) -> int:
    """Record whole spaces, or a GPU's parts, until the time is up; those that are there already are left alone.

    Returns how many were not recorded, or not to their end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    failures = 0
    for name, k in _SPACES[backend]:
        path = folder / f"{name}-{k}.jsonl"
        left = min(each, end - time.monotonic())
        if path.exists() or left <= 0 or (names and name not in names):
            continue
        try:
            matrix = made(name)
            part = {} if backend == "cpu" else _part(matrix, name, k)
            found = exhaustive(matrix, k, backend=backend, name=name, record=path, seconds=left, **part)
        except AkxError as problem:
            failures += 1
            print(f"{name}: {type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
            continue
        failures += found.stopped != "space exhausted"
        print(f"{path}: {len(found.trials)} plans, {found.stopped}", file=sys.stderr, flush=True)
    return failures


def _part(matrix: Matrix, name: str, k: int) -> Json:
    """The part of this GPU's space that is recorded, and the predicted plan, for :func:`akx.tuner.exhaustive`."""
    space = build_space(matrix, k, device_of("cuda"), backend="cuda", threads=1, start_vectors=1)
    plans = [portion.shipped_plan(_BUNDLE, name, k), predict(matrix, k, backend="cuda"), *_of_long_searches(name, k)]
    good = [space.inside(plan) for plan in plans if plan is not None]
    return {"choices": portion.portion(space, matrix, good), "include": good}


def _of_long_searches(name: str, k: int) -> list[Plan]:
    """What searches in the whole space of a GPU ended with (:mod:`benchmarks.longer`)."""
    entries = json.loads(_LONGER.read_text())["matrices"] if _LONGER.exists() else []
    searches = [entry["searches"] for entry in entries if (entry["matrix"], entry["k"]) == (name, k)]
    return [parsed(label, k) for label in dict.fromkeys(one["plan"] for found in searches for one in found)]


def _again(paths: Sequence[Path]) -> None:
    """Measure the best on record again, beside each recording; what is there already is left alone."""
    calms: dict[str, Calm] = {}
    for path in (path for path in paths if not path.with_suffix(".again.json").exists()):
        recording = read_recording(path)
        matrix = matrix_of(recording)
        if matrix is None:
            print(f"{path}: no such matrix here", file=sys.stderr)
            continue
        backend = str(recording.header["backend"])
        calm = calms.setdefault(backend, calm_on(backend, most=1))
        with device_lock(device_of(backend)).alone() as is_alone:
            if not is_alone:
                print(f"{path.name}: beside another process", file=sys.stderr, flush=True)
            found = measured_again(recording, matrix, calm)
        path.with_suffix(".again.json").write_text(json.dumps(found, indent=1) + "\n")
        said = "" if found["calm"] else ", not calm"
        print(f"{path.name}: {len(found['plans'])} plans again{said}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record or compare; the exit code is 1 where something failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.samplers", description="Samplers on recorded searches.")
    parser.add_argument("folder", type=Path, help="of recordings")
    parser.add_argument("--record", action="store_true", help="record into the folder")
    parser.add_argument("--again", action="store_true", help="measure the best on record once more, in turns")
    parser.add_argument("--backend", default="cpu", choices=sorted(_SPACES), help="for recording")
    parser.add_argument("--matrix", action="append", help="for recording: only these")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for recording")
    parser.add_argument("--each", type=float, default=600.0, help="seconds for one recording")
    parser.add_argument("--seeds", type=int, default=_SEEDS)
    parser.add_argument(
        "--trials", type=int, nargs=2, default=TRIALS, metavar=("FEW", "MORE"), help="of a search; 30 and 60 by default"
    )
    parser.add_argument(
        "--time",
        type=float,
        nargs=2,
        metavar=("LITTLE", "MORE"),
        help="seconds of a search, on the recorded machine; 10 and 30 by default, 20 and 60 on a GPU",
    )
    parser.add_argument("--sampler", action="append", choices=sorted(SAMPLERS), help="all of them by default")
    parser.add_argument("--processes", type=int, default=1, help="that compare side by side")
    parser.add_argument("--table", action="store_true", help="compare nothing, print the table")
    parser.add_argument("-o", "--output", type=Path, default=_RESULTS)
    parser.add_argument("--docs", type=Path, help="the page with the table; docs/tuner.md with the file by default")
    options = parser.parse_args(arguments)
    if options.record:
        return 1 if record_spaces(options.folder, options.seconds, options.each, options.backend, options.matrix) else 0
    if not options.table:
        paths = sorted(options.folder.glob("*.jsonl"))
        if not paths:
            parser.error(f"no recordings in {options.folder}")
        if options.again:
            _again(paths)
            return 0
        names = options.sampler or tuple(SAMPLERS)
        found = compare(paths, options.seeds, names, options.trials, options.time, options.processes)
        options.output.write_text(json.dumps({**record.provenance(default_threads()), **found}, indent=1) + "\n")
    page = markdown.page_for(options.output, options.docs, usual=_RESULTS, page=_PAGE)
    markdown.show(table(json.loads(options.output.read_text())), options.output.stem, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
