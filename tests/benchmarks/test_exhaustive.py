"""The comparison of the tuner with the whole space: which plans meet in the last run, and what is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from pretended import Seconds

import akx
import akx.tuner
from akx.core.plan import Plan
from benchmarks import clock, exhaustive
from benchmarks.clock import Settings
from benchmarks.gallery import small

QUICK = Settings(seconds=0.0, rounds_min=3, rounds_max=3, sample_seconds=1e-4, warm_seconds=0.0, pause_seconds=0.0)
TUNED = Plan("cpu", "wavefront", "csr16", k=4, k_per_pass=4, block_bytes=1024)
BETTER = TUNED.replace(block_bytes=2048)

time = Seconds()


@pytest.fixture(autouse=True)
def _in_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "time", time)


@dataclass
class Counts:
    complete: int
    pruned: int = 2
    failed: int = 1

    def to_json(self) -> dict[str, int]:
        return {"complete": self.complete, "pruned": self.pruned, "failed": self.failed}


@dataclass
class Fake:
    """A tuner whose plans sleep: the tuned one 4 ms, the better one 2 ms."""

    best: Plan
    included: list[Plan] = field(default_factory=list)

    def tune(self, *args: Any, **kwargs: Any) -> SimpleNamespace:
        return SimpleNamespace(plan=TUNED, counts=Counts(7))

    def exhaustive(self, *args: Any, include: list[Plan], **kwargs: Any) -> SimpleNamespace:
        self.included = include
        trials = [
            SimpleNamespace(plan=TUNED, state="complete", seconds=4e-3, spread=0.01),
            SimpleNamespace(plan=BETTER, state="complete", seconds=2e-3, spread=0.01),
            SimpleNamespace(plan=BETTER.replace(threads=2), state="pruned", seconds=1e-3, spread=None),
        ]
        return SimpleNamespace(plan=self.best, counts=Counts(2), stopped="space exhausted", trials=trials)


def powers(A: Any, k: int, *, plan: Plan) -> Any:
    return lambda x, out: time.sleep(4e-3 if plan == TUNED else 2e-3)


def compared(monkeypatch: pytest.MonkeyPatch, best: Plan) -> tuple[Fake, dict[str, Any]]:
    fake = Fake(best)
    monkeypatch.setattr(exhaustive, "compile_kernels", lambda dtype, threads: 0)
    monkeypatch.setattr(akx.tuner, "tune", fake.tune)
    monkeypatch.setattr(akx.tuner, "exhaustive", fake.exhaustive)
    monkeypatch.setitem(akx.__dict__, "MatrixPowers", powers)
    return fake, exhaustive.compare("brick", small("brick"), 4, threads=2, settings=QUICK)


def test_tuned_plan_and_the_best_are_timed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, found = compared(monkeypatch, BETTER)
    assert fake.included == [TUNED]
    assert found["best"]["plan"] == BETTER.label()
    assert found["tuned"]["plan"] == TUNED.label()
    assert found["ratio"] == found["tuned"]["seconds"] / found["best"]["seconds"] == pytest.approx(2.0)
    assert (found["space"], found["feasible"], found["complete"], found["rank"]) == (5, 2, True, 2)
    assert [plan["plan"] for plan in found["plans"]] == [BETTER.label(), TUNED.label()]


def test_the_same_plan_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = compared(monkeypatch, TUNED)
    assert found["ratio"] == 1.0
    assert found["tuned"] == found["best"]
