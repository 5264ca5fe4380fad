"""The whole of :func:`akx.tune` on a recorded machine: its device, figures and clock, trials answered from the file.

:func:`akx.tuner.replay` searches over a recording without a matrix. Here the matrix is there, and the space, the models
and the database are the real ones of today, asked for the recorded device. A plan that is not in the record is a pruned
trial, "not in the recording", whatever it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import pytest

from akx.backends.cuda import timing
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.host import HostDevice
from akx.backends.schedule import Parameter
from akx.core.plan import Plan
from akx.cost.device_model import Figures, FormatCost
from akx.tuner import Recording, measure, space
from akx.tuner.history.trial import FAILED, Trial
from akx.tuner.search import outcome, preparation
from akx.tuner.search import tune as tuning
from akx.tuner.space import Space, build_space
from akx.tuner.trace.recording import RecordedTrial
from akx.tuner.trace.simulation import UNKNOWN, RecordedBench, RecordedClock
from akx.tuner.trial.problem import Problem


class Replay:
    """The recorded world.

    Attributes
    ----------
    recording : Recording
        The record, of :mod:`benchmarks.record_tuning`.
    asked : list of Plan
        Plans that were tried.
    verified : Counter of Plan
        How often each was run and checked after its trial.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.known: Mapping[Plan, RecordedTrial] = recording.trials
        self.asked: list[Plan] = []
        self.verified: Counter[Plan] = Counter()
        self.clock = RecordedClock()
        self.spoilt: Callable[[Plan], str | None] = lambda plan: None
        header = recording.header
        facts = {name: tuple(v) if isinstance(v, list) else v for name, v in header["device"].items()}
        self.device = (CudaDevice if header["backend"] == "cuda" else HostDevice)(**facts)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        header = self.recording.header
        known, figures = (_figures(header["model"][name]) for name in ("figures", "ceiling"))
        monkeypatch.setattr(measure, "_CLOCK", ContextVar("recorded", default=self.clock))
        monkeypatch.setattr(space, "device_of", lambda backend: self.device)
        monkeypatch.setattr(space, "plan_threads", lambda backend, threads=None: header["threads"])
        monkeypatch.setattr(preparation, "measured_figures", lambda device, threads: figures)
        monkeypatch.setattr(preparation, "figures_of", lambda device, threads: known)
        monkeypatch.setattr(tuning, "build_space", self.space)
        monkeypatch.setattr(tuning, "precompiling", lambda *args, **options: nullcontext(None))
        monkeypatch.setattr(outcome, "_cold_prepare_seconds", lambda space, matrix, plan, fallback: fallback)
        monkeypatch.setattr(timing, "free_bytes", lambda: 0)
        monkeypatch.setattr(tuning, "Problem", _Unsolved)
        monkeypatch.setattr(preparation, "Bench", lambda problem, space, **_: _Bench(self, space, problem.matrix))

    def space(self, *args: Any, **options: Any) -> Space:
        """The space as it was: what has been added to it since was not measured."""
        today = build_space(*args, **options)
        parameters = {
            schedule: tuple(Parameter(one["name"], tuple(one["choices"]), one["default"], "") for one in held)
            for schedule, held in self.recording.header["space"].items()
        }
        return replace(today, parameters=parameters)


def _figures(held: Mapping[str, Any]) -> Figures:
    return Figures(**{**held, "formats": {name: FormatCost(**cost) for name, cost in held["formats"].items()}})


class _Unsolved(Problem):
    """A call without what must come out: none is made here."""

    def __init__(self, matrix: Any, k: int, *, basis: str, start_vectors: int, seed: int) -> None:
        self._begin(matrix, k, basis, start_vectors, seed)


class _Bench(RecordedBench):
    """Tells the world what it was asked, and spoils what the world wants spoilt."""

    def __init__(self, world: Replay, space: Space, matrix: Any) -> None:
        super().__init__(world.known, space, world.clock, race=1.5, matrix=matrix)
        self._world = world

    def try_plan(self, plan: Plan, *, number: int, origin: str, best: float | None) -> Trial:
        self._world.asked.append(plan)
        spoilt = self._world.spoilt(plan)
        trial = super().try_plan(plan, number=number, origin=origin, best=best)
        return Trial(number, plan, origin, FAILED, spoilt, prepare_seconds=trial.prepare_seconds) if spoilt else trial

    def run_verified(self, plan: Plan, program: Plan) -> float:
        self._world.verified[plan] += 1
        return super().run_verified(plan, program)


def without(recording: Recording, dropped: Callable[[Trial], bool]) -> Recording:
    """The record without some of its trials."""
    runs = (replace(run, trials=tuple(one for one in run.trials if not dropped(one.trial))) for run in recording.runs)
    return replace(recording, runs=tuple(runs))


__all__ = ["UNKNOWN", "Replay", "without"]
