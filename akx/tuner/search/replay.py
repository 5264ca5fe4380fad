"""A search over recorded trials: the same code as :func:`akx.tuner.tune`, with no device and no matrix.

What it is for: how good are a budget, a seed, a sampler, the seeds of a search? Each is tried on the same figures in
less than a second. The measure is the *share*: seconds of the fastest plan on record over those of the plan chosen.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from akx.core.errors import FileFormatError
from akx.core.plan import Plan
from akx.tuner import measure
from akx.tuner.candidates.sampler import Sampler, Suggesting
from akx.tuner.history.result import Counts, Finalist
from akx.tuner.history.trial import Progress, Trial
from akx.tuner.request import Settings
from akx.tuner.search.search import Search
from akx.tuner.space import Space
from akx.tuner.trace.recording import Recording, read_recording
from akx.tuner.trace.simulation import RecordedSpace, recorded_world

__all__ = ["REPLAY_SCHEMA", "ReplayResult", "Step", "replay"]

#: Version of the JSON form of a replay. Raised whenever a field changes its meaning or goes.
REPLAY_SCHEMA = 1


@dataclass(frozen=True)
class Step:
    """A new best of a search: after so many trials and seconds, its share of the fastest plan on record."""

    trials: int
    seconds: float
    share: float


@dataclass(frozen=True)
class ReplayResult:
    """What a search over recorded trials found.

    Attributes
    ----------
    plan, seconds
        The plan chosen, and its seconds per call on record.
    optimum, baseline : Trial
        The fastest complete trial on record, and the fastest of a baseline.
    trials, finalists, stopped, notes
        Of this search, as in :class:`akx.tuner.history.result.TuneResult`.
    missing : int
        Plans that the search asked for and the recording does not have: they count as infeasible.
    search_seconds : float
        What the search would have taken, run-off included.
    steps : tuple of Step
        How the best so far came about.
    """

    recording: Recording
    settings: Settings
    plan: Plan
    seconds: float
    optimum: Trial
    baseline: Trial
    trials: tuple[Trial, ...]
    finalists: tuple[Finalist, ...]
    missing: int
    stopped: str
    search_seconds: float
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Seconds of the fastest plan on record over those of the plan chosen: 1 is as good as can be."""
        return _share(self.optimum, self.seconds)

    @property
    def speedup(self) -> float:
        """Seconds of the baseline over those of the plan chosen, both on record."""
        return (self.baseline.seconds or 0.0) / self.seconds

    @property
    def counts(self) -> Counts:
        """Numbers of trials by state."""
        return Counts.of(self.trials)

    def to_json(self) -> dict[str, Any]:
        """One object of JSON types: the contract of ``akx tune --replay FILE --json``."""
        found, key = self.recording, self.recording.key
        return {
            "schema": REPLAY_SCHEMA,
            "recording": {
                "path": found.path,
                "runs": len(found.runs),
                "plans": len(found.trials),
                "exhaustive": found.exhaustive,
                "lost": found.lost,
            },
            "matrix": dict(found.header["matrix"]),
            "k": key.k,
            "basis": key.basis,
            "start_vectors": key.start_vectors,
            "device": key.device_class,
            "settings": {name: getattr(self.settings, name) for name in ("trials", "seconds", "seed", "calls")},
            "best": _plan_json(self.plan, self.seconds),
            "optimum": _plan_json(self.optimum.plan, self.optimum.seconds),
            "baseline": _plan_json(self.baseline.plan, self.baseline.seconds),
            "share": self.share,
            "speedup": self.speedup,
            "trials": self.counts.to_json(),
            "missing": self.missing,
            "stopped": self.stopped,
            "search_seconds": self.search_seconds,
            "steps": [asdict(one) for one in self.steps],
            "finalists": [finalist.to_json() for finalist in self.finalists],
            "notes": list(self.notes),
        }


def replay(
    recording: Recording | str | os.PathLike[str],
    *,
    trials: int | None = None,
    seconds: float | None = None,
    seed: int | None = None,
    calls: int | None = None,
    settings: Settings | None = None,
    callback: Callable[[Progress], object] | None = None,
    sampler: Callable[[Space, int], Suggesting] = Sampler,
) -> ReplayResult:
    """Search over recorded trials. Nothing is measured, and nothing is kept.

    Parameters
    ----------
    recording : Recording or path
        Of :func:`akx.tuner.read_recording`, or the file that it reads. That of :func:`akx.tuner.exhaustive` answers for
        every plan; others for those that some search has tried.
    trials, seconds, seed, calls, settings, callback
        As for :func:`akx.tuner.tune`; seconds are those of the recorded machine.
    sampler : callable
        Makes the sampler of a space and a seed (:class:`akx.tuner.candidates.sampler.Suggesting`).

    Returns
    -------
    ReplayResult
        The same for the same arguments, whatever the machine.

    Raises
    ------
    FileMissingError, FileFormatError
        The file is not there, or no recording, or without a complete trial of a baseline.
    ArgumentError
        A budget makes no sense.
    """
    found = recording if isinstance(recording, Recording) else read_recording(recording)
    base = (settings or Settings()).on(found.header["backend"])
    wanted = base.but(trials=trials, seconds=seconds, seed=seed, calls=calls)
    optimum, baseline = found.best, found.baseline
    if optimum is None or baseline is None:
        raise FileFormatError(
            f"{found.path} has nothing to search",
            expected="a complete trial of a baseline at least",
            found=f"{len(found.trials)} trials",
            hint="record a run that comes to its end",
        )
    bench, model = recorded_world(found, wanted.race)
    steps: list[Step] = []

    def watch(progress: Progress) -> None:
        best = progress.best_seconds
        if best is not None and (not steps or _share(optimum, best) > steps[-1].share):
            steps.append(Step(progress.trials, progress.elapsed, _share(optimum, best)))
        if callback is not None:
            callback(progress)

    with measure.on_clock(bench.clock):
        start = bench.clock.now()
        search = Search(bench, model, wanted, start=start, callback=watch, sampler=sampler, warm_start=found.warm_start)
        outcome = search.run()
    chosen = found.trials[outcome.best.plan].trial
    assert isinstance(bench.space, RecordedSpace)
    return ReplayResult(
        recording=found,
        settings=wanted,
        plan=chosen.plan,
        seconds=chosen.seconds or outcome.best.seconds,
        optimum=optimum,
        baseline=baseline,
        trials=outcome.trials,
        finalists=outcome.finalists,
        missing=len(bench.space.missing),
        stopped=outcome.stopped,
        search_seconds=bench.clock.now(),
        steps=tuple(steps),
        notes=outcome.notes,
    )


def _share(optimum: Trial, seconds: float) -> float:
    return min(1.0, (optimum.seconds or 0.0) / seconds)


def _plan_json(plan: Plan, seconds: float | None) -> dict[str, Any]:
    return {"seconds": seconds, "schedule": plan.schedule, "label": plan.label(), "plan": plan.to_json()}
