"""What is timed is timed alone on the device; what is prepared, compiled or checked is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from akx.core.plan import Plan
from akx.tuner import exhaustive, tune
from akx.tuner.search import preparation


@pytest.mark.parametrize("function", [tune, exhaustive])
def test_timings_are_alone_and_nothing_else_is(
    function: Any, make_world: Any, matrix: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = entered = 0
    patience: list[float] = []

    class Lock:
        @contextmanager
        def alone(self, seconds: float) -> Iterator[bool]:
            nonlocal held, entered
            patience.append(seconds)
            held, entered = held + 1, entered + 1
            yield True
            held -= 1

    prepared_within, runs = [], {True: 0, False: 0}

    def prepare_cost(plan: Plan) -> float:
        prepared_within.append(held > 0)
        return 1e-3

    def cost(plan: Plan) -> float:
        runs[held > 0] += 1
        return 1e-3

    monkeypatch.setattr(preparation, "device_lock", lambda device: Lock())
    world = make_world(cost=cost, prepare_cost=prepare_cost)
    options = {"db": False, "trials": 12, "seconds": 20.0} if function is tune else {"seconds": 0.5}
    result = function(matrix, 8, **options)
    timed = sum(trial.seconds is not None for trial in result.trials)
    assert timed > 5
    assert not any(prepared_within)
    assert runs[False] <= len(world.prepared) + 1, "a program is run once to be checked, the winner twice"
    assert runs[True] > 5 * timed
    assert entered >= timed + 1
    assert held == 0
    # Another process is waited for in a share of the time that there is; for the roofline, when all is done, as usual.
    assert patience[0] == patience[1] == options["seconds"] / 4  # type: ignore[operator]
    assert set(patience) <= {patience[0], float("inf")}
