"""The contestants: they must agree with one another and with plain products, and be what the record says they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import akx
from akx.backends.host import host_device
from akx.core.errors import InfeasibleError
from akx.core.plan import Plan
from akx.tuner.space import build_space
from benchmarks.contest import AkxContest, Contest, check_agreement, compile_kernels, start_vector
from benchmarks.gallery import small


@pytest.mark.parametrize("wrong", [1.0 + 1e-6, np.nan])
def test_a_contestant_that_differs_is_refused_by_name(wrong: float) -> None:
    last = np.zeros(5)

    def leave(factor: float) -> None:
        last[...] = np.arange(5) * factor

    check_agreement({"scipy": lambda: leave(1.0), "mkl": lambda: leave(1.0 + 1e-12)}, last)
    with pytest.raises(ArithmeticError, match="mkl and scipy differ"):
        check_agreement({"scipy": lambda: leave(1.0), "mkl": lambda: leave(wrong)}, last)


def test_a_contestant_that_does_nothing_is_refused() -> None:
    last = np.ones(5)
    with pytest.raises(ArithmeticError, match="idle"):
        check_agreement({"scipy": lambda: last.fill(2.0), "idle": lambda: None}, last)


@pytest.fixture(scope="module")
def contest() -> Contest:
    return AkxContest(threads=2, tune_seconds=0.5, compile_first=False)("rmat", small("rmat"), 3, reordered=True)


def test_every_contestant_computes_the_same_powers(contest: Contest) -> None:
    matrix = small("rmat")
    x = start_vector(512, matrix.dtype)
    expected = matrix @ (matrix @ (matrix @ x))
    calls = {**contest.baselines, **({} if contest.best is None else {"akx": contest.best})}
    assert {"scipy", "sweep"} <= set(calls)
    for call in calls.values():
        operands = (
            call.args if isinstance(call.args[0], np.ndarray) else ()
        )  # partial(run, x, out), partial(op, x, out=V)
        out = operands[1] if len(operands) > 1 else call.keywords["out"].T
        out[...] = np.nan
        call()
        assert out[3] == pytest.approx(expected, rel=1e-12, abs=1e-14)


def test_every_variant_of_every_schedule_runs_before_any_budget_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: set[tuple[str, str]] = set()

    def powers(matrix: Any, k: int, *, plan: Plan) -> Any:
        def call(x: Any) -> None:
            ran.add((plan.schedule, plan.variant))
            if plan.schedule == "ghost":
                raise InfeasibleError("not this one")

        return call

    monkeypatch.setitem(akx.__dict__, "MatrixPowers", powers)
    compile_kernels.__wrapped__("float64", 2)
    space = build_space(akx.Matrix.from_any(small("brick")), 4, host_device(), threads=2)
    assert ran >= {(name, str(variant)) for name in space.schedules for variant in space.choices(name, "variant")}


def test_the_record_of_a_contest(contest: Contest) -> None:
    assert 0 <= contest.error() <= 1
    assert contest.prepare_seconds >= 0
    assert contest.tuning_seconds > 0
    assert contest.plan.startswith(f"cpu/{contest.schedule}/{contest.variant}")
    assert (contest.best is None) == (contest.schedule == "sweep" and "natural" in contest.plan)
    assert set(contest.extras) == {"sweep_reordered"}


def test_the_reordered_sweep_is_a_sweep_of_the_same_matrix(contest: Contest) -> None:
    call = contest.extras["sweep_reordered"]
    matrix = small("rmat")
    x = start_vector(512, matrix.dtype)
    call()
    powers = call.keywords["out"].T
    assert np.sort(call.args[0]) == pytest.approx(np.sort(x))
    expected = matrix @ (matrix @ (matrix @ x))
    assert np.sort(powers[3]) == pytest.approx(np.sort(expected), rel=1e-12, abs=1e-14)
