"""Plans within a memory budget: what is in the space, what is predicted, what is refused; and tuning on a GPU."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx.backends import registry
from akx.backends.cuda import timing as gpu
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.device.runtime import cuda_missing
from akx.backends.cuda.schedules.stream import rows as stream_rows
from akx.backends.memory_budget import within
from akx.backends.schedule import Program
from akx.backends.selection import backend_of
from akx.core.errors import ArgumentError, BudgetError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.plandb import default_database
from akx.tuner import plan_key, predict
from akx.tuner import space as spaces
from akx.tuner.history.result import TuneResult
from akx.tuner.search import outcome as outcomes
from akx.tuner.search import tune as tuning
from akx.tuner.space import Space, build_space, is_baseline
from akx.tuner.trial.bench import Bench

GPU = CudaDevice("test", 0, (9, 0), 132, 232448, 233472, 65536, 2**25, 2**36, 10**9, 1e12)


class Held(Program):
    """A program that has what a test gives it."""

    nbytes = host_nbytes = 0

    def __init__(self, **members: Any) -> None:
        self.__dict__.update(members)

    def run(self, x: Any, out: Any, coefficients: Any) -> None:
        raise NotImplementedError

    def update_values(self, data: Any) -> None:
        raise NotImplementedError


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    offsets = [-41, -40, -1, 0, 1, 40]
    A = sp.diags_array([1.0, 2.0, 3.0, -4.0, 5.0, 6.0], offsets=offsets, shape=(20_011, 20_011), format="csr")
    return Matrix.from_any(A)


def csr_bytes(matrix: Matrix) -> int:
    return 12 * matrix.nnz + 4 * (matrix.n + 1)


def space_of(matrix: Matrix, budget: int, k: int = 6) -> Space:
    return build_space(matrix, k, within(GPU, budget), backend="cuda", threads=1)


def usable(space: Space, matrix: Matrix) -> list[Plan]:
    """The baselines that there is room for."""
    return [plan for plan in space.baselines(matrix) if space.feasible(plan, matrix) is None]


def test_a_small_budget_leaves_what_streams(matrix: Matrix) -> None:
    budget = csr_bytes(matrix) // 4
    space = space_of(matrix, budget)
    feasible = {
        name: [p for p in space.plans(name) if space.feasible(p, matrix) is None] for name in ("sweep", "stream")
    }
    assert not feasible["sweep"]
    assert feasible["stream"]
    for plan in feasible["stream"][:: max(1, len(feasible["stream"]) // 40)]:
        assert plan.typed.budget == budget
        window = stream_rows.window_of(plan, matrix, GPU)
        assert window is not None
        assert window.nbytes + 3 * 6 * 8 <= budget
    baselines = usable(space, matrix)
    assert len(baselines) == len([plan for plan in space.baselines(matrix) if plan.schedule == "stream"])
    assert baselines
    assert all(plan.partitioner == "natural" and plan.typed.ahead == 4 for plan in baselines)
    assert all(plan.schedule == "stream" and plan.k_per_pass == 1 for plan in baselines)


def test_a_large_budget_leaves_sweeps_too(matrix: Matrix) -> None:
    space = space_of(matrix, 8 * csr_bytes(matrix))
    baselines = usable(space, matrix)
    assert {plan.schedule for plan in baselines} == {"sweep", "stream"}
    assert predict(matrix, 6, within(GPU, 8 * csr_bytes(matrix)), backend="cuda").schedule == "sweep"


def test_without_a_budget_nothing_streams(matrix: Matrix) -> None:
    space = build_space(matrix, 6, GPU, backend="cuda", threads=1)
    assert all(plan.schedule == "sweep" for plan in space.baselines(matrix))
    assert not any(space.feasible(plan, matrix) is None for plan in space.plans("stream"))
    streamed = Plan("cuda", "stream", "sell16-2", "natural", 6, 1, options={"fraction": 0.25})
    assert not is_baseline(streamed)


def test_the_predicted_plan_keeps_within_the_budget(matrix: Matrix) -> None:
    for share in (2, 4, 8):
        device = within(GPU, csr_bytes(matrix) // share)
        plan = predict(matrix, 6, device, backend="cuda")
        assert plan.schedule == "stream"
        assert plan.typed.budget == device.budget
        assert registry.get("cuda", "stream").feasible(plan, matrix, device) is None
        assert registry.get("cuda", "stream").feasible(plan, matrix, GPU) is None


def test_too_small_a_budget_says_what_would_do(matrix: Matrix) -> None:
    with pytest.raises(BudgetError, match="at least") as refusal:
        predict(matrix, 6, within(GPU, 1000), backend="cuda")
    least = int(re.findall(r"at least (\d+) bytes", str(refusal.value))[0])
    assert predict(matrix, 6, within(GPU, least), backend="cuda").k_per_pass == 1
    with pytest.raises(BudgetError):
        predict(matrix, 6, within(GPU, least - 1), backend="cuda")


def shuffled(matrix: Matrix) -> Matrix:
    """The matrix with its rows and columns in a random order: only RCM finds its band again."""
    order = np.random.default_rng(3).permutation(matrix.n)
    return Matrix.from_any(sp.csr_array(matrix.to_scipy())[order][:, order])


@pytest.mark.parametrize("mixed", [False, True])
def test_what_is_said_to_be_enough_is_enough_to_tune(
    matrix: Matrix, mixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = shuffled(matrix) if mixed else matrix
    least = registry.get("cuda", "stream").least_budget(given, 6, GPU)  # type: ignore[attr-defined]
    for budget in (least, 251_271):
        space = space_of(given, budget)
        found = usable(space, given)
        assert found
        assert all(is_baseline(plan) for plan in found)
        assert len(found) <= 24
    assert not usable(space_of(given, least - 1), given)

    class Begun(Exception):
        """Measuring has begun."""

    def begin(*_: Any) -> Any:
        raise Begun

    monkeypatch.setattr(tuning, "bench_for", begin)
    for module in (tuning, spaces):
        monkeypatch.setattr(module, "place_of", lambda *_: ("cuda", 1, GPU))
    for budget in (least, 251_271):
        with pytest.raises(Begun):
            akx.tune(given, 6, backend="cuda", memory_budget=budget, db=False)
    with pytest.raises(BudgetError, match=f"at least {least} bytes"):
        akx.tune(given, 6, backend="cuda", memory_budget=least - 1, db=False)


def test_a_streamed_baseline_may_have_its_rows_in_another_order(matrix: Matrix) -> None:
    found = usable(space_of(shuffled(matrix), 251_271), shuffled(matrix))
    assert {plan.partitioner for plan in found} == {"rcm"}


def test_several_start_vectors_come_together_where_there_is_room(matrix: Matrix) -> None:
    device = within(GPU, csr_bytes(matrix) // 2)
    one = predict(matrix, 6, device, backend="cuda")
    assert one.typed.vectors == 1
    for b, width in ((2, 2), (3, 2), (8, 8)):
        plan = predict(matrix, 6, device, backend="cuda", start_vectors=b)
        assert plan.typed.vectors == width
        assert plan.k_per_pass == 6
        assert registry.get("cuda", "stream").feasible(plan, matrix, device) is None
    least = registry.get("cuda", "stream").least_budget(matrix, 6, GPU)  # type: ignore[attr-defined]
    narrow = predict(matrix, 6, within(GPU, least), backend="cuda", start_vectors=8)
    assert (narrow.k_per_pass, narrow.typed.vectors) == (1, 1)


def test_a_plan_for_more_is_refused(matrix: Matrix) -> None:
    schedule, budget = registry.get("cuda", "stream"), csr_bytes(matrix) // 4
    plan = predict(matrix, 6, within(GPU, budget), backend="cuda")
    assert schedule.feasible(plan, matrix, within(GPU, budget)) is None
    assert "budget" in (schedule.feasible(plan, matrix, within(GPU, budget - 8)) or "")
    assert schedule.feasible(plan, matrix, within(GPU, budget + 8)) is None


def test_keys_of_budgets_differ_and_those_without_are_as_they_were(matrix: Matrix) -> None:
    keys = [
        plan_key(matrix, 6, backend="cuda", device=device) for device in (GPU, within(GPU, 10**6), within(GPU, 10**7))
    ]
    assert len({key.id for key in keys}) == 3
    assert keys[0].mismatch(keys[1]) == keys[1].mismatch(keys[2]) == ["device_class"]
    assert keys[0].device_class == GPU.device_class
    assert "budget" not in keys[0].device_class


def test_a_budget_is_not_for_the_cpu(matrix: Matrix) -> None:
    A = matrix.to_scipy()
    for call in (
        lambda: akx.tune(A, 2, backend="cpu", memory_budget="1G", db=False),
        lambda: akx.MatrixPowers(A, 2, backend="cpu", fraction=0.25),
        lambda: akx.matrix_powers(A, np.ones(matrix.n), 2, backend="cpu", memory_budget=10**6),
    ):
        with pytest.raises(ArgumentError, match="for the GPU"):
            call()


def test_a_call_within_a_budget_goes_through_the_arrays_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[Any] = []
    mark = SimpleNamespace(record=lambda _: None, synchronize=lambda: None, seconds_since=lambda _: 6.0)
    monkeypatch.setattr(gpu, "default_stream", lambda: SimpleNamespace(synchronize=lambda: None))
    monkeypatch.setattr(gpu, "Event", lambda: mark)
    monkeypatch.setattr(gpu, "pinned", np.zeros)
    monkeypatch.setattr(gpu, "send", lambda to, *_: moved.append(to))
    monkeypatch.setattr(gpu, "bring_rows", lambda _to, _pitch, source, *_: moved.append(source))
    for name in ("empty", "to_device"):
        monkeypatch.setattr(gpu, name, lambda *_: pytest.fail("another pair of vectors on the device"))
    pair = SimpleNamespace(pointer=1, nbytes=80), SimpleNamespace(pointer=2, nbytes=320)

    def staged(vectors: int) -> Any:
        assert vectors == 2
        return pair

    program = Held(staged=staged, run=lambda x, out, _: moved.append((x, out)))
    call = gpu.HostCall(program, np.ones((2, 5)), np.zeros((4, 2, 5)), SimpleNamespace())  # type: ignore[arg-type]
    assert call.timed(2) == 3.0
    assert moved == [1, pair, 2] * 2


@pytest.mark.parametrize(
    ("backend", "mib", "kept"), [("cuda", 400, 2), ("cpu", 400, 2), ("cuda", 1100, 1), ("cpu", 1100, 0)]
)
def test_page_locked_memory_counts_among_what_is_kept(backend: str, mib: int, kept: int) -> None:
    """The best is kept however large it is where a GPU's memory has it; the host's has the matrix already."""
    bench = Bench.__new__(Bench)
    bench._kept, bench.keep, bench._backend = {}, 5, backend_of(backend)
    plans = [Plan("cuda", "stream", "sell-1", k=k) for k in range(1, 5)]
    for seconds, plan in enumerate(plans):
        bench._retain(plan, Held(nbytes=1000, host_nbytes=mib * 2**20), 1.0 + seconds)
    assert list(bench._kept) == plans[:kept]


def test_the_note_on_a_budget_names_the_baseline(matrix: Matrix) -> None:
    fields = {field.name: None for field in dataclasses.fields(TuneResult)}
    result = TuneResult(**{**fields, "backend": "cuda", "notes": ("x",), "baseline_name": "sweep/csr-1 threads=1"})  # type: ignore[arg-type]
    assert outcomes.with_budget(result, None) is result
    note, last = outcomes.with_budget(result, 5).notes
    assert last == "x"
    assert "budget of 5 bytes" in note
    assert "the baseline is plain products, sweep/csr-1" in note
    streamed = dataclasses.replace(result, baseline_name="stream/sell-1 k_per_pass=1")
    assert "the baseline is streamed products, stream/sell-1" in outcomes.with_budget(streamed, 5).notes[0]


@pytest.mark.cuda
@pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))
class TestOnTheGpu:
    @pytest.fixture(autouse=True)
    def _no_plans_of_the_user(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("AKX_DB", str(tmp_path / "plans.sqlite"))

    def powers(self, A: Any, x: Any, k: int) -> Any:
        V = [x]
        for _ in range(k):
            V.append(A @ V[-1])
        return np.stack(V, axis=-1)

    def test_tuning_and_calls_within_a_fraction(self, matrix: Matrix) -> None:
        A = sp.csr_array(matrix.to_scipy()) / 100
        budget = csr_bytes(matrix) // 4
        result = akx.tune(A, 6, fraction=0.25, seconds=10, trials=40)
        assert result.plan.schedule == "stream"
        assert result.plan.typed.budget == budget
        assert result.baseline_plan is not None
        assert is_baseline(result.baseline_plan)
        assert result.baseline_plan.schedule == "stream"
        assert f"budget {budget} bytes" in result.device
        assert any("streamed products" in note for note in result.notes)
        assert result.counts.failed == 0, result.reasons
        if not any(record.provisional for record in default_database().list()):  # as where other tests disturb it
            again = akx.tune(A, 6, memory_budget=budget)
            assert again.reused
            assert again.plan == result.plan
        x = np.random.default_rng(0).standard_normal(matrix.n)
        P = akx.MatrixPowers(A, 6, memory_budget=budget)
        assert P.plan == result.plan
        assert "tuned" in P.explain(measure=True)
        np.testing.assert_allclose(P(x), self.powers(A, x, 6), rtol=1e-12, atol=1e-12)
        other = akx.MatrixPowers(A, 6, memory_budget=budget + 4096)
        assert "predicted" in other.explain(measure=False)
        np.testing.assert_allclose(other(x), P(x), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(akx.matrix_powers(A, x, 6, fraction=0.25), P(x), rtol=0, atol=0)
        held = next(iter(P._prepared.programs.values()))
        assert held.nbytes <= budget

    def test_a_budget_that_everything_fits(self, matrix: Matrix) -> None:
        A = sp.csr_array(matrix.to_scipy()) / 100
        result = akx.tune(A, 6, fraction=10, seconds=10, trials=30, db=False)
        assert result.seconds <= result.baseline_seconds

    def test_too_small(self, matrix: Matrix) -> None:
        with pytest.raises(BudgetError, match="at least"):
            akx.tune(matrix, 6, memory_budget=1000, db=False)
        with pytest.raises(BudgetError, match="at least"):
            akx.MatrixPowers(matrix, 6, memory_budget=1000)
        with pytest.raises(BudgetError, match="does not keep within"):
            akx.MatrixPowers(matrix, 6, memory_budget="1M", plan=Plan("cuda", "sweep", "csr-1", k=6))
