"""Constants of a model, fitted on what it should say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from akx.core.plan import Plan
from benchmarks import prices


@pytest.fixture
def constants(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two of them, that make up the seconds of a plan with so many powers, and of so many threads."""
    made = SimpleNamespace(per_power=1.0, per_thread=1.0)
    monkeypatch.setattr(prices, "CONSTANTS", ((made, "per_power"), (made, "per_thread")))
    return made


def problem(constants: Any, per_power: float, per_thread: float) -> prices.Problem:
    model: Any = SimpleNamespace(
        seconds=lambda plan: constants.per_power * plan.k + constants.per_thread * plan.threads
    )
    plans = [Plan("cuda", "sweep", "csr-1", k=k, threads=threads) for k in (1, 4, 9) for threads in (1, 5)]
    measured = tuple((plan, per_power * plan.k + per_thread * plan.threads, 1.0) for plan in plans)
    recording: Any = None
    return prices.Problem(recording, model, measured)


def test_what_was_put_in_is_found(constants: Any) -> None:
    found = prices.fit([problem(constants, 2.0, 0.5)])
    assert found == pytest.approx([2.0, 0.5], rel=0.02)
    assert (constants.per_power, constants.per_thread) == (1.0, 1.0)  # as before


def test_what_shows_in_no_plan_stays_as_it_is(constants: Any) -> None:
    one = problem(constants, 2.0, 0.0)
    still: Any = SimpleNamespace(seconds=lambda plan: constants.per_power * plan.k)
    found = prices.fit([prices.Problem(one.recording, still, one.plans)])
    assert found == pytest.approx([2.0, 1.0], rel=0.02)


def test_every_constant_is_in_the_code() -> None:
    for module, name in prices.CONSTANTS:
        assert np.isfinite(getattr(module, name)), name


def test_without_recordings_there_is_nothing_to_fit(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        prices.main([str(tmp_path)])
