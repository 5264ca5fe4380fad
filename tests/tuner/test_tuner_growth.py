"""Real schedules whose spaces grow: a search with more to choose from goes on from what was tried with less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import scipy.sparse as sp

from akx.backends.cpu.schedules.ghost import options as ghost_options
from akx.backends.cpu.schedules.wavefront import options as wavefront_options
from akx.backends.schedule import Parameter
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.plandb import PlanDatabase
from akx.tuner import Settings, TuneResult, tune
from akx.tuner.history.trial import EARLIER

_QUICK = Settings(trials=14, patience=1000, seconds=30.0)


@pytest.fixture
def matrix() -> Matrix:
    n = 120
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    return Matrix.from_any(sp.csr_array(sp.kronsum(line, line)))


def tried(result: TuneResult) -> set[Plan]:
    return {trial.plan for trial in result.trials if trial.is_own}


def gone_on_from(result: TuneResult) -> set[Plan]:
    return {trial.plan for trial in result.trials if trial.origin == EARLIER}


def test_more_choices_and_one_more_parameter_cost_no_trial(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = PlanDatabase(tmp_path / "plans.sqlite", layers=())

    def search() -> TuneResult:
        return tune(matrix, 4, threads=2, db=db, settings=_QUICK, retune=True)

    blocks = ghost_options._BLOCKS
    monkeypatch.setattr(ghost_options, "_BLOCKS", blocks[:1])
    first = search()
    assert len(tried(first)) > 3  # of which schedules depends on what else the machine does

    space = wavefront_options.space

    def longer(*arguments: Any) -> tuple[Parameter, ...]:
        return (*space(*arguments), Parameter("lag", (0, 1), 0, "rounds of slack"))

    monkeypatch.setattr(ghost_options, "_BLOCKS", blocks)
    monkeypatch.setattr(wavefront_options, "space", longer)
    second = search()
    known = {(plan.schedule, plan.label()) for plan in gone_on_from(second) | tried(second)}
    missed = [plan for plan in tried(first) if not any(_same(plan, label) for label in known)]
    assert missed == []
    assert len(gone_on_from(second)) >= len(tried(first)) - 2, "but for baselines, which are measured again"
    assert not tried(second) & gone_on_from(second)


def _same(plan: Plan, known: tuple[str, str]) -> bool:
    """Whether a plan is the known one, which may say what the new parameter is by default."""
    schedule, label = known
    return plan.schedule == schedule and (label == plan.label() or label.replace(" lag=0", "") == plan.label())
