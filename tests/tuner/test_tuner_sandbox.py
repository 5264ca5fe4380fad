"""Candidates run first where they can do no harm."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from akx.backends.host import host_device
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner.history.trial import FAILED, PRUNED
from akx.tuner.measure import Precision
from akx.tuner.sandbox import Sandbox
from akx.tuner.space import build_space
from akx.tuner.trial.bench import Bench
from akx.tuner.trial.problem import Problem
from akx.tuner.warmup.compile_ahead import CompileAhead


@pytest.fixture
def problem(make_matrix: Callable[..., Matrix]) -> Problem:
    return Problem(make_matrix(), 2)


def test_one_process_answers_for_many_plans(problem: Problem) -> None:
    sandbox = Sandbox(problem)
    try:
        assert sandbox.reason_against(Plan("cpu", "sweep", "csr", k=2)) is None
        process: Any = sandbox._process
        assert sandbox.reason_against(Plan("cpu", "sweep", "nonsense", k=2)) is None  # the trial will say why not
        assert sandbox.reason_against(Plan("cpu", "sweep", "sell", k=2)) is None
        assert sandbox._process is process
    finally:
        sandbox.close()
    assert process.returncode == 0


def test_a_lost_process_is_a_reason_and_the_next_plan_gets_another(problem: Problem) -> None:
    sandbox = Sandbox(problem, command=[sys.executable, "-c", "import os; os.read(0, 99); os._exit(3)"])
    for _ in range(2):
        assert "was lost" in (sandbox.reason_against(Plan("cpu", "sweep", "csr", k=2)) or "")
        assert sandbox._process is None


def test_a_process_that_hangs_is_ended(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("akx.tuner.sandbox._START", 0.5)
    sandbox = Sandbox(problem, command=[sys.executable, "-c", "import time; time.sleep(600)"], patience=0.5)
    assert "did not answer within 1 s" in (sandbox.reason_against(Plan("cpu", "sweep", "csr", k=2)) or "")
    assert sandbox._process is None
    begin = time.monotonic()
    assert "within 0.25 s" in (sandbox.reason_against(Plan("cpu", "sweep", "csr", k=2), 0.25) or "")
    assert time.monotonic() - begin < 3.5  # two of them for its end


def test_a_plan_that_was_not_given_the_time_has_not_failed(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that ends while a candidate gets ready does not wait for it, and does not call it broken."""
    monkeypatch.setattr("akx.tuner.sandbox._START", 0.1)
    space = build_space(problem.matrix, 2, host_device(), threads=1)
    bench = Bench(problem, space, precision=Precision(), race=1.5, keep=0)
    hangs, dies = "import time; time.sleep(600)", "import os; os.read(0, 99); os._exit(3)"
    monkeypatch.setattr(space.schedules["sweep"], "may_crash", True, raising=False)
    plan = space.plan("sweep", {})
    for program, patience, state in ((hangs, 0.05, PRUNED), (hangs, 60.0, FAILED), (dies, 60.0, FAILED)):
        command = [sys.executable, "-c", program]
        make = partial(Sandbox, command=command, patience=0.3)
        bench._compile_ahead, bench.patience = CompileAhead(problem, make=make), patience
        assert bench.try_plan(plan, number=0, origin="estimate", best=None).state == state
