"""A recorded tuning run as a bench: what :mod:`akx.tuner.worker` measures on hardware, answered from a file.

:class:`Replay` installs it: the tuner then sees the recorded device, its figures, the space, and a clock that goes on
by what the recorded trials took. A plan that is not in the record is a failed trial, "not in the record", whatever it
is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest

from akx.device.cuda.facts import CudaDevice
from akx.device.host import HostDevice
from akx.kernels.base import Parameter
from akx.matrix import Matrix
from akx.plan import Plan
from akx.tuner import measure, tuning
from akx.tuner.machine import Figures
from akx.tuner.proposals import Proposals
from akx.tuner.result import COMPLETE, FAILED, PRUNED, Trial
from akx.tuner.space import Space, build_space
from benchmarks.record_tuning import plan_of

UNKNOWN = "not in the record"


class Replay:
    """The recorded world.

    Attributes
    ----------
    document : dict
        The record, of :mod:`benchmarks.record_tuning`.
    asked : list of Plan
        Plans that were tried.
    verified : Counter of Plan
        How often each was run and checked after its trial.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.asked: list[Plan] = []
        self.verified: Counter[Plan] = Counter()
        self.time = 1000.0
        self.spoilt: Callable[[Plan], str | None] = lambda plan: None
        facts = {name: tuple(v) if isinstance(v, list) else v for name, v in document["device"].items()}
        self.device = (CudaDevice if document["backend"] == "cuda" else HostDevice)(**facts)

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> None:
        self.time += seconds

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        document = self.document
        figures = Figures(**document["figures"])
        liked = [plan_of(document, one["plan"]) for one in document["trials"] if one["origin"] == "model"]
        monkeypatch.setattr(measure, "now", self.now)
        monkeypatch.setattr(measure, "pause", self.wait)
        monkeypatch.setattr(tuning, "device_of", lambda backend: self.device)
        monkeypatch.setattr(tuning, "plan_threads", lambda backend, threads=None: document["threads"])
        monkeypatch.setattr(tuning, "measured_figures", lambda device, threads: figures)
        monkeypatch.setattr(tuning, "build_space", self.space)
        monkeypatch.setattr(tuning, "_cold_prepare_seconds", lambda space, matrix, plan, fallback: fallback)
        monkeypatch.setattr(tuning, "Bench", lambda problem, space, **_: RecordedBench(self, space, problem.matrix))
        # What the models like best is what they liked within a second of the recorded machine's time.
        monkeypatch.setattr(Proposals, "_liked", lambda proposals, names: liked)

    def space(self, *args: Any, **options: Any) -> Space:
        """The space as it was: what has been added to it since was not measured."""
        today = build_space(*args, **options)
        parameters = {
            schedule: tuple(
                Parameter(name, tuple(one["choices"]), one["default"], "as recorded") for name, one in held.items()
            )
            for schedule, held in self.document["space"].items()
        }
        return replace(today, parameters=parameters)

    def known(self) -> dict[Plan, dict[str, Any]]:
        """The recorded trials by plan; of a plan that was tried twice the first."""
        found: dict[Plan, dict[str, Any]] = {}
        for one in [*self.document["trials"], *self.document["others"]]:
            found.setdefault(plan_of(self.document, one["plan"]), one)
        return found


class RecordedBench:
    """What the search asks of :class:`akx.tuner.worker.Bench`."""

    def __init__(self, world: Replay, space: Space, matrix: Matrix) -> None:
        self.world, self.space, self.matrix = world, space, matrix
        self._known = world.known()

    def nbytes(self, plan: Plan) -> int:
        return 0

    def try_plan(self, plan: Plan, *, number: int, origin: str, best: float | None) -> Trial:
        self.world.asked.append(plan)
        reason = self.space.feasible(plan, self.matrix)
        if reason is not None:
            return Trial(number, plan, origin, PRUNED, reason)
        one = self._known.get(plan)
        if one is None:
            return Trial(number, plan, origin, FAILED, UNKNOWN)
        self.world.time += one["elapsed"]
        spoilt = self.world.spoilt(plan)
        if spoilt:
            return Trial(number, plan, origin, FAILED, spoilt, prepare_seconds=one["prepare_seconds"])
        names = ("state", "reason", "seconds", "spread", "prepare_seconds", "error")
        return Trial(number, plan, origin, **{name: one[name] for name in names}, samples=tuple(one["samples"]))

    def anchor_on(self, plan: Plan, seconds: float) -> None:
        assert self._known[plan]["state"] == COMPLETE

    def program(self, plan: Plan) -> Plan:
        assert self._known[plan]["state"] == COMPLETE
        return plan

    def call(self, program: Plan) -> RecordedCall:
        return RecordedCall(self.world, self._known[program]["samples"])

    def run_verified(self, program: Plan) -> float:
        self.world.verified[program] += 1
        return float(self._known[program]["error"])

    def forget(self, plan: Plan) -> None:
        pass

    def close(self) -> None:
        pass


class RecordedCall:
    """Takes as long as the recorded samples, one after another and over again."""

    def __init__(self, world: Replay, samples: list[float]) -> None:
        self._world, self._samples = world, cycle(samples)

    def __call__(self) -> None:
        self._world.time += next(self._samples)

    def timed(self, batch: int) -> float:
        seconds = next(self._samples)
        self._world.time += batch * seconds
        return seconds


def without(document: dict[str, Any], dropped: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The record without some of its trials."""
    lists = {name: [one for one in document[name] if not dropped(one)] for name in ("trials", "others")}
    return {**document, **lists}


__all__ = ["UNKNOWN", "RecordedBench", "RecordedCall", "Replay", "without"]
