"""``akx plans verify``: plans that hold, that are slower than they were, wrong, or not for here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.io import mmwrite

from akx.backends import registry
from akx.backends.cuda.device import facts, runtime
from akx.backends.schedule import TimedCall
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.plandb import PlanDatabase, PlanRecord
from akx.report.plans import verification
from akx.tuner import measure, plan_key
from cli.golden import check_shape
from cli.running import Ran


@pytest.fixture
def matrix(tmp_path: Path) -> Matrix:
    """A matrix, in a file beside the database."""
    A = sp.csr_array(sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(3000, 3000)))
    mmwrite(tmp_path / "line.mtx", A)
    return Matrix.from_any(A)


def _record(matrix: Matrix, k: int, *, speedup: float = 1.0, plan: Plan | None = None, **key: Any) -> PlanRecord:
    baseline = Plan("cpu", "sweep", "csr", k=k)
    return PlanRecord(
        replace(plan_key(matrix, k, backend="cpu"), **key),
        plan or baseline,
        1e-3,
        "sweep/csr threads=1",
        speedup * 1e-3,
        matrix_name="line",
        provenance={"baseline_plan": baseline.to_json()},
    )


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., None]:
    def put(*records: PlanRecord) -> None:
        with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as database:
            for record in records:
                database.put(record)

    return put


def verify(akx: Callable[..., Ran], tmp_path: Path, *arguments: Any) -> Ran:
    return akx("plans", "verify", tmp_path / "line.mtx", "--time", "0.05", *arguments)


def test_a_plan_that_was_tuned_holds(akx: Callable[..., Ran], matrix: Matrix, tmp_path: Path) -> None:
    assert akx("tune", tmp_path / "line.mtx", "--k", 4, "--time", 2, "--trials", 4, "--backend", "cpu").code == 0
    ran = verify(akx, tmp_path, "--json")
    (plan,) = [one for one in ran.json["plans"] if one["layer"] == "user"]
    assert plan["state"] in ("holds", "slower")  # a machine with neighbours
    assert plan["error"] <= 1
    assert plan["seconds"] > 0
    check_shape("plans_verify.json", ran.json | {"plans": [plan | {"baseline_seconds": 1.0, "spread": 0.1}]})


def test_the_speed_up_is_what_is_compared(
    akx: Callable[..., Ran], matrix: Matrix, put: Callable[..., None], tmp_path: Path
) -> None:
    other = Plan("cpu", "sweep", "sell", k=3)
    brief = replace(_record(matrix, 2), seconds=1e-9, baseline_seconds=1e-9)
    put(brief, _record(matrix, 3, plan=other, speedup=50.0))
    ran = verify(akx, tmp_path, "--json")
    assert ran.code == 3
    assert ran.json["bad"] == 1
    plans = {one["k"]: one for one in ran.json["plans"]}
    assert (plans[2]["state"], plans[2]["speedup"]) == ("holds", 1.0)  # it is its own baseline, however long it takes
    assert "times as long as when it was tuned" in plans[2]["reason"]
    assert plans[3]["state"] == "slower"
    assert "50.00x when it was tuned" in plans[3]["reason"]
    assert plans[3]["speedup"] == pytest.approx(plans[3]["baseline_seconds"] / plans[3]["seconds"], rel=0.5)
    assert [one["k"] for one in verify(akx, tmp_path, "--json", "--k", 2).json["plans"]] == [2]
    one = verify(akx, tmp_path, "--json", "--id", plans[3]["id"][:14])
    assert [plan["id"] for plan in one.json["plans"]] == [plans[3]["id"]]
    text = verify(akx, tmp_path)
    assert text.code == 3
    assert plans[3]["id"][:12] in text.out
    assert "slower: " in text.out
    assert "2 of 2" in text.err


def test_a_wrong_result_and_one_that_cannot_be(
    akx: Callable[..., Ran],
    matrix: Matrix,
    put: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(
        _record(matrix, 2, plan=Plan("cpu", "sweep", "csr", k=2)),
        _record(matrix, 3, plan=Plan("cpu", "sweep", "nonsense", k=3)),
        _record(matrix, 4, plan=Plan("cpu", "sweep", "sell", k=4)),
    )
    found = registry.get

    def get(backend: str, schedule: str) -> Any:
        chosen = found(backend, schedule)

        class Off(type(chosen)):  # type: ignore[misc]
            def prepare(self, of: Matrix, plan: Plan) -> Any:
                program = chosen.prepare(of, plan)
                if plan.variant == "sell":
                    run = program.run

                    def wrong(x: Any, out: Any, coefficients: Any) -> None:
                        run(x, out, coefficients)
                        out[1, 0, 7] *= 1 + 1e-9

                    program.run = wrong
                return program

        return Off()

    monkeypatch.setattr(registry, "get", get)
    ran = verify(akx, tmp_path, "--json")
    assert ran.code == 3
    states = {one["k"]: (one["state"], one["reason"]) for one in ran.json["plans"]}
    assert states[2][0] == "holds"
    assert states[3][0] == "failed"
    assert "nonsense" in states[3][1]
    assert states[4][0] == "wrong"
    assert "times its bound" in states[4][1]


def test_plans_for_other_places_are_left_alone(
    akx: Callable[..., Ran], matrix: Matrix, put: Callable[..., None], tmp_path: Path
) -> None:
    single = Matrix.from_any(matrix.to_scipy().astype(np.float32))
    put(
        _record(matrix, 2, revisions="other"),
        _record(matrix, 3, device_class="cpu/Other/64 cores"),
        _record(single, 4),
        _record(matrix, 5, device_class=plan_key(matrix, 5, backend="cpu").device_class + "/1 threads"),
        _record(Matrix.from_any(sp.eye_array(9)), 6),
    )
    ran = verify(akx, tmp_path, "--json")
    assert ran.code == 0
    found = {one["k"]: (one["state"], one["reason"]) for one in ran.json["plans"]}
    assert set(found) == {2, 3, 4, 5}
    assert found[2] == ("skipped", "stale, never used again: revisions changed")
    assert found[3] == ("skipped", "for another device: cpu/Other/64 cores")
    assert found[4][0] == "skipped"
    assert "give --dtype float32" in found[4][1]
    assert found[5][0] == "holds"
    assert ran.json["verified"] == 1
    assert verify(akx, tmp_path, "--json", "--dtype", "float32", "--k", 4).json["plans"][0]["state"] == "holds"
    none = verify(akx, tmp_path, "--k", 3)
    assert none.code == 0
    assert "nothing was verified: 1 plan for" in none.err
    assert "--k 3` makes one" in none.err


def test_a_plan_for_a_gpu_without_the_packages_for_it(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)  # as where it is not installed
    for kept in (runtime.driver, runtime.runtime, facts.cuda_device):
        getattr(kept, "cache_clear", lambda: None)()
    plan = Plan("cuda", "sweep", "csr-1", k=2)
    (found,) = verification.verifications(
        matrix, [("user", _record(matrix, 2, plan=plan, device_class="cuda/Some GPU"))]
    )
    assert found.state == "skipped"
    assert "the CUDA backend is not installed; pip install 'akx[cuda]'" in found.reason
    assert "another device" not in found.reason


def test_nothing_to_verify_and_mistakes(akx: Callable[..., Ran], matrix: Matrix, tmp_path: Path) -> None:
    ran = verify(akx, tmp_path)
    assert (ran.code, ran.out) == (0, "")
    assert "akx tune" in ran.err
    assert not (tmp_path / "plans.sqlite").exists(), "looking must not make a file"
    for arguments in (["--k", 0], ["--id", "zzzz"]):
        assert verify(akx, tmp_path, *arguments).code == 2
    assert akx("plans", "verify", tmp_path / "no.mtx").code == 2


def test_a_baseline_that_cannot_be_run_is_told(matrix: Matrix) -> None:
    record = replace(_record(matrix, 2, plan=Plan("cpu", "sweep", "sell", k=2), speedup=2.0), provenance={})
    (found,) = verification.verifications(matrix, [("user", record)], seconds=0.05)
    assert (found.state, found.speedup) == ("holds", None)
    assert "baseline cannot be run" in found.reason


class Scripted(TimedCall):
    """A call that takes what a list says, one sample after another; on its clock each takes a second."""

    time = 0.0

    def __init__(self, *seconds: float) -> None:
        self.seconds, self.asked = list(seconds), 0

    def __call__(self) -> None:
        """Nothing: `timed` is asked."""

    def timed(self, batch: int) -> float:
        Scripted.time += 1.0
        self.asked += 1
        return self.seconds[min(self.asked, len(self.seconds)) - 1]


def test_rounds_that_are_disturbed_are_taken_again(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    """The baseline takes five times as long in the first five rounds as when it was run alone before."""
    interleave = measure.interleave
    alone = iter([2e-3, 1e-3])

    def scripted(calls: Any, precision: Any, **options: Any) -> Any:
        if len(calls) == 1:
            return interleave([Scripted(next(alone))], precision, **options)
        return interleave([Scripted(2e-3), Scripted(*[1e-3] * 3, *[5e-3] * 5, 1e-3)], precision, **options)

    monkeypatch.setattr(measure, "interleave", scripted)
    monkeypatch.setattr(measure, "now", lambda: Scripted.time)
    monkeypatch.setattr(measure, "is_real_time", lambda: False)
    monkeypatch.setattr(measure, "pause", lambda seconds: None)
    record = _record(matrix, 2, plan=Plan("cpu", "sweep", "sell", k=2), speedup=0.5)
    (found,) = verification.verifications(matrix, [("user", record)], seconds=18.0)
    assert (found.seconds, found.baseline_seconds, found.speedup) == (2e-3, 1e-3, 0.5)


def test_a_plan_that_asks_for_more_than_there_is_costs_nothing(
    akx: Callable[..., Ran], matrix: Matrix, put: Callable[..., None], tmp_path: Path
) -> None:
    crowded = _record(matrix, 2, plan=Plan("cpu", "sweep", "csr", k=2, threads=4000))
    beside = Plan("cpu", "sweep", "csr", k=3, threads=4000).to_json()
    put(
        crowded,
        replace(
            _record(matrix, 3, plan=Plan("cpu", "sweep", "sell", k=3), speedup=2.0),
            provenance={"baseline_plan": beside},
        ),
        _record(matrix, 10**6),
        _record(matrix, 4, start_vectors=2**31 - 1),
        _record(matrix, 5, plan=Plan("cpu", "sweep", "csr", k=5, options={"colour": "blue"})),
    )
    ran = verify(akx, tmp_path, "--json")
    found = {one["k"]: (one["state"], one["reason"]) for one in ran.json["plans"]}
    assert found[2][0] == found[4][0] == found[10**6][0] == "skipped"
    assert "4000 threads" in found[2][1]
    assert found[3] == ("holds", "its baseline cannot be run here, so that nothing is compared")
    assert "more than 1000 powers" in found[10**6][1]
    assert "its vectors take" in found[4][1]
    assert found[5][0] == "failed"
    assert "no option 'colour'" in found[5][1]
