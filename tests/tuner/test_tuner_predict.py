"""Predictions: cheap, careful, and the same every time."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import scipy.sparse as sp

from akx.backends import registry
from akx.backends.cpu import device_model as rates
from akx.backends.cpu.variants import VARIANTS
from akx.backends.host import HostDevice
from akx.backends.schedule import Traffic
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.cost.device_model import Figures, FormatCost
from akx.cost.rows import branches, missed, surprises, uneven_rows
from akx.tuner import predict
from akx.tuner.model import figures as machine
from akx.tuner.model.figures import derived_figures, measured_figures
from akx.tuner.model.predict import Model
from akx.tuner.space import Space, build_space, is_baseline

_PREDICT = sys.modules["akx.tuner.model.predict"]  # the package has a function of that name
LARGE_CACHE = HostDevice("large cache", 2, 32 * 1024, 2**20, 2**30)
SMALL_CACHE = HostDevice("small cache", 2, 32 * 1024, 2**14, 2**15)


@pytest.fixture
def large() -> Matrix:
    """A tridiagonal matrix beyond the small cache."""
    n = 20_000
    return Matrix.from_any(sp.diags_array([np.ones(n - 1), np.ones(n), np.ones(n - 1)], offsets=[-1, 0, 1]))


def test_within_the_cache_it_is_the_plain_sweep(world: Any, large: Matrix) -> None:
    assert is_baseline(predict(large, 8, LARGE_CACHE))


def test_beyond_the_cache_it_is_what_promises_a_clear_gain(world: Any, large: Matrix) -> None:
    plan = predict(large, 8, SMALL_CACHE)
    assert (plan.schedule, plan.k_per_pass, plan.partitioner) == ("front", 8, "natural")


def test_one_power_is_a_plain_sweep(world: Any, large: Matrix) -> None:
    assert is_baseline(predict(large, 1, SMALL_CACHE))


def test_what_is_infeasible_is_not_predicted(make_world: Any, large: Matrix) -> None:
    make_world(infeasible=lambda plan: "no" if plan.schedule == "front" else None)
    assert is_baseline(predict(large, 8, SMALL_CACHE))
    make_world(infeasible=lambda plan: "never")
    with pytest.raises(InfeasibleError, match="never"):
        predict(large, 8, SMALL_CACHE)


def test_a_small_gain_is_in_doubt(world: Any, large: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    front = registry.get("cpu", "front")
    sweep = registry.get("cpu", "sweep")

    def slightly_better(plan: Plan, matrix: Matrix, device: Any) -> Traffic:
        plain = sweep.traffic(plan.replace(schedule="sweep"), matrix, device)
        return Traffic(plain.matrix_bytes / 1.1, plain.vector_bytes / 1.1, plain.flops)

    monkeypatch.setattr(front, "traffic", slightly_better)
    assert is_baseline(predict(large, 8, SMALL_CACHE))


def test_a_model_that_fails_is_no_gain(world: Any, large: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(plan: Plan, matrix: Matrix, device: Any) -> Traffic:
        raise ZeroDivisionError

    monkeypatch.setattr(registry.get("cpu", "front"), "traffic", broken)
    assert is_baseline(predict(large, 8, SMALL_CACHE))


def test_nothing_is_measured_or_prepared(world: Any, large: Matrix) -> None:
    plans = {predict(large, 8, SMALL_CACHE) for _ in range(3)}
    assert len(plans) == 1
    assert world.prepared == []
    assert world.calls == 0
    assert world.looked == 6  # for the formats that fit, once for each schedule
    predict(large, 8, LARGE_CACHE)
    assert world.looked == 7  # within the cache no schedule but the sweep is thought of


def test_a_schedule_without_an_untuned_plan(world: Any, large: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a sweep is chosen from its space; such another schedule is not predicted."""
    for schedule in registry.schedules("cpu"):
        monkeypatch.setattr(schedule, "untuned", lambda k, threads: None)
    plan = predict(large, 8, SMALL_CACHE)
    assert is_baseline(plan)
    assert world.looked > 0


def test_threads_are_kept_to(world: Any, large: Matrix) -> None:
    assert predict(large, 8, SMALL_CACHE, threads=1).threads == 1
    assert predict(large, 8, SMALL_CACHE, threads=2).threads == 2


def test_a_small_matrix_gets_one_thread_where_waiting_costs_more(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = registry.get("cpu", "sweep")

    def waiting(plan: Plan, matrix: Matrix, device: Any) -> Traffic:
        waits = float(plan.k * (plan.threads - 1))
        return Traffic(12.0 * matrix.nnz, 8.0 * matrix.n, 2.0 * matrix.nnz, synchronisations=waits)

    monkeypatch.setattr(sweep, "traffic", waiting)
    tiny = Matrix.from_any(sp.eye_array(10, format="csr"))
    large = Matrix.from_any(sp.eye_array(2_000_000, format="csr"))
    assert predict(tiny, 8, LARGE_CACHE).threads == 1
    assert predict(large, 8, LARGE_CACHE).threads == 2


# ---------------------------------------------------------------------------------------------------- the model


@pytest.fixture
def model(world: Any, large: Matrix) -> Model:
    space = build_space(large, 8, SMALL_CACHE, threads=2)
    figures = Figures(10e9, 20e9, 100e9, 5e9, 1e-6, 2**15)
    return Model(large, space, figures)


def test_seconds_are_the_longest_part_and_the_waiting(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = model.space.default("sweep")
    cases = {
        "memory": (Traffic(9e9, 1e9, 1.0, 1.0, 1.0), 1.0),
        "cache": (Traffic(1.0, 1.0, 1.0, 1.0, 300e9), 3.0),
        "arithmetic": (Traffic(1.0, 1.0, 10e9, 1.0, 1.0), 2.0),
        "waiting": (Traffic(9e9, 1e9, 1.0, 1.0, 1.0, 500_000), 1.5),
    }
    for traffic, seconds in cases.values():
        monkeypatch.setattr(model.space.schedules["sweep"], "traffic", lambda *_, found=traffic: found)
        assert model.seconds(plan) == pytest.approx(seconds)
        assert model.seconds(plan.replace(threads=1)) == pytest.approx(
            2 * seconds if traffic.synchronisations == 0 else 2.5
        )


def test_start_vectors_share_the_matrix(model: Model, large: Matrix, world: Any) -> None:
    plan = model.space.default("sweep")
    four = Model(large, model.space, model.figures, 4)
    one_traffic = model.traffic(plan)
    assert one_traffic is not None
    parts = four.parts(one_traffic, four.figures)
    assert parts["memory"] == pytest.approx((one_traffic.matrix_bytes + 4 * one_traffic.vector_bytes) / 10e9)
    assert parts["arithmetic"] == pytest.approx(4 * one_traffic.flops / 5e9)


@pytest.mark.parametrize(("vectors", "groups", "lanes"), [(8, 1, 8), (9, 2, 8), (33, 3, 16), (33, 5, 8)])
def test_groups_of_vectors_have_the_matrix_at_once(vectors: int, groups: int, lanes: int) -> None:
    """It comes once for each, and threads share the groups: two take as long as one, three as four."""
    width = 9 if lanes == 16 else 5
    offsets = list(range(-(width // 2), width // 2 + 1))
    large = Matrix.from_any(sp.diags_array([1.0] * width, offsets=offsets, shape=(20_000, 20_000), format="csr"))
    plan, prices = Plan("cpu", "sweep", "csr", k=8, threads=2), {"csr": FormatCost(3e-6, 7e-6)}
    known = replace(derived_figures(LARGE_CACHE, 2), formats=prices, waking=0.0, synchronisation=0.0)
    near = replace(LARGE_CACHE, l1_bytes=2**30)
    one, some = (Model(large, build_space(large, 8, near, threads=2), known, b) for b in (1, vectors))
    alone, together = one.traffic(plan), some.traffic(plan)
    assert alone is not None
    assert together is not None
    assert together.matrix_bytes == groups * alone.matrix_bytes
    price, one_price = VARIANTS["csr"].together[lanes], VARIANTS["csr"].cost
    assert one_price is not None
    work = 8 * 3e-6 / one_price.slot * (price.slot * large.nnz + price.row * large.n)
    assert some.seconds(plan) == pytest.approx(-(-groups // 2) * work, rel=0.05)
    assert some.seconds(plan.replace(threads=1)) == pytest.approx(groups * work, rel=0.05)


def test_many_vectors_of_a_matrix_without_structure_are_done_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    made = sp.random_array((5000, 5000), density=4e-3, rng=np.random.default_rng(0), format="csr")
    matrix = Matrix.from_any(made)
    known = derived_figures(LARGE_CACHE, 2)
    monkeypatch.setattr(_PREDICT, "figures_of", lambda device, threads: known)
    plans = {b: predict(matrix, 8, LARGE_CACHE, start_vectors=b, threads=2) for b in (1, 2, 16, 64)}
    for b, plan in plans.items():
        is_in_groups = (plan.schedule, plan.variant, plan.partitioner) == ("sweep", "csr", "natural")
        assert is_in_groups == (b >= 16), b


@pytest.mark.parametrize(("slot", "variant"), [(0.07e-9, "csr"), (0.03e-9, "dia")])
def test_another_format_has_to_be_clearly_better_than_groups(
    slot: float, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen vectors of two threads, 0.75 ns an entry for each eight: diagonals of 0.094 ns would take as long."""
    offsets = [-2, -1, 0, 1, 2]
    matrix = Matrix.from_any(sp.diags_array([1.0] * 5, offsets=offsets, shape=(5_000, 5_000), format="csr"))
    prices = {"csr": FormatCost(0.36e-9, 0.0), "dia": FormatCost(slot, 0.0)}
    known = replace(derived_figures(LARGE_CACHE, 2), formats=prices, foreseen=1e5)
    monkeypatch.setattr(_PREDICT, "figures_of", lambda device, threads: known)
    monkeypatch.setitem(VARIANTS["csr"].together, 8, FormatCost(0.75e-9, 0.0))
    near = replace(LARGE_CACHE, l1_bytes=2**30, l2_bytes=2**30)
    assert predict(matrix, 8, near, start_vectors=16, threads=2).variant == variant


def test_within_a_budget_powers_go_back_while_all_else_comes(model: Model) -> None:
    """The link does 10 GB/s in both directions together and 6 in one: what goes mostly one way takes longer."""
    figures = replace(model.figures, slow_bandwidth=10e9, last_level_bandwidth=10e9, link_one_way=6e9)
    limited = Model(model.matrix, replace(model.space, device=SimpleNamespace(budget=10**6)), figures)
    powers = float(8 * model.matrix.n * 8)

    def memory(matrix_bytes: float, vector_bytes: float) -> float:
        return limited.parts(Traffic(matrix_bytes, vector_bytes, 1.0), figures)["memory"]

    assert memory(3 * powers, powers) == pytest.approx(3 * powers / 6e9)
    assert memory(0.0, 1.1 * powers) == pytest.approx(powers / 6e9)
    assert memory(powers, powers) == pytest.approx(2 * powers / 10e9)
    free = Model(model.matrix, replace(model.space, device=SimpleNamespace(budget=0)), figures)
    assert free.parts(Traffic(3 * powers, powers, 1.0), figures)["memory"] == pytest.approx(4 * powers / 10e9)


def test_the_last_level_cache_is_faster_for_what_fits_it() -> None:
    figures = Figures(10e9, 20e9, 100e9, 5e9, 1e-6, 1000)
    assert figures.bandwidth(700) == 20e9
    assert figures.bandwidth(5000) == 10e9


def test_roofline(model: Model) -> None:
    plan = model.space.default("sweep")
    traffic = model.traffic(plan)
    assert traffic is not None
    bound = traffic.bytes / 10e9
    found = model.roofline(plan, 2 * bound)
    assert found is not None
    assert found.share == pytest.approx(0.5)
    assert found.limit == "memory"
    assert found.bytes == traffic.bytes


def test_roofline_is_against_the_measured_ceiling(model: Model, large: Matrix) -> None:
    plan = model.space.default("sweep")
    faster = Figures(20e9, 40e9, 100e9, 5e9, 1e-6, 2**15)
    ceiling = Model(large, model.space, model.figures, 1, faster)
    low, high = model.roofline(plan, 1.0), ceiling.roofline(plan, 1.0)
    assert low is not None
    assert high is not None
    assert high.share == pytest.approx(low.share / 2)
    assert ceiling.seconds(plan) == model.seconds(plan)


def test_figures_grow_with_threads() -> None:
    device = HostDevice("eight", 8, 32 * 1024, 2**20, 2**25)
    one, eight = derived_figures(device, 1), derived_figures(device, 8)
    assert eight.slow_bandwidth > one.slow_bandwidth
    assert eight.flops == 8 * one.flops
    assert one.synchronisation == 0.0 < eight.synchronisation


def test_measured_figures_are_plausible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_measure", inspect.unwrap(machine._measure))  # not what other tests have found
    device = HostDevice("here", 2, 32 * 1024, 2**18, 2**22)
    found = measured_figures(device, 1)
    assert 1e8 < found.slow_bandwidth <= found.last_level_bandwidth <= found.cache_bandwidth < 1e13
    again = measured_figures(device, 1)
    assert again.slow_bandwidth >= found.slow_bandwidth
    assert again.cache_bandwidth >= found.cache_bandwidth


def test_real_schedules_have_a_prediction(make_matrix: Callable[..., Matrix]) -> None:
    matrix = make_matrix()
    plan = predict(matrix, 4)
    assert is_baseline(plan)
    assert registry.get(plan.backend, plan.schedule).feasible(plan, matrix, LARGE_CACHE) is None
    assert isinstance(build_space(matrix, 4, LARGE_CACHE, threads=2), Space)


# ------------------------------------------------------------------------------------------- formats and their prices


def _dense_blocks(nodes: int) -> sp.csr_array:
    rng = np.random.default_rng(3)
    graph = sp.random_array((nodes, nodes), density=12 / nodes, rng=rng) + sp.eye_array(nodes)
    return sp.csr_array(sp.kron(graph, np.ones((3, 3))))


def _mixed_nodes(nodes: int) -> sp.csr_array:
    """Nodes of 1 to 6 unknowns."""
    rng = np.random.default_rng(3)
    graph = sp.random_array((nodes, nodes), density=9 / nodes, rng=rng) + sp.eye_array(nodes)
    sizes = rng.choice([1, 2, 3, 6], nodes, p=[0.1, 0.1, 0.1, 0.7])
    spread = sp.csr_array((np.ones(sizes.sum()), (np.arange(sizes.sum()), np.repeat(np.arange(nodes), sizes))))
    return sp.csr_array(spread @ graph @ spread.T)


def _uneven_rows(n: int) -> sp.csr_array:
    """Rows of 1 to 60 entries, anywhere."""
    rng = np.random.default_rng(4)
    lengths = rng.integers(1, 61, n)
    rows = np.repeat(np.arange(n), lengths)
    return sp.csr_array((np.ones(rows.size), (rows, rng.integers(0, n, rows.size))), shape=(n, n))


def _diagonals(n: int) -> sp.csr_array:
    return sp.csr_array(sp.diags_array([1.0] * 5, offsets=[-300, -1, 0, 1, 300], shape=(n, n)))


@pytest.mark.parametrize(
    ("made", "device", "ahead"),
    [
        (lambda: _uneven_rows(20_000), SMALL_CACHE, True),
        (lambda: _uneven_rows(20_000), LARGE_CACHE, False),
        (lambda: _uneven_rows(20_000).astype(complex), SMALL_CACHE, True),
        (lambda: _diagonals(20_000), SMALL_CACHE, False),
        (lambda: _diagonals(20_000).astype(complex), SMALL_CACHE, False),
        (lambda: sp.csr_array((20_000, 20_000)), SMALL_CACHE, False),
    ],
)
def test_x_that_is_read_anywhere_and_lies_in_no_near_cache_is_asked_for_ahead(
    made: Callable[[], Any], device: HostDevice, ahead: bool
) -> None:
    plan = predict(Matrix.from_any(made()), 8, device, threads=2)
    assert (plan.variant == "csr-ahead") is ahead
    assert registry.get("cpu", plan.schedule).feasible(plan, Matrix.from_any(made()), device) is None
    assert not ahead or (is_baseline(plan) and plan.threads == 2)


@pytest.mark.parametrize(
    ("made", "variants"),
    [
        (_dense_blocks(1000), {"bell", "bell16"}),
        (_mixed_nodes(1000), {"inode", "inode16"}),
        (_diagonals(20_000), {"dia"}),
        (_uneven_rows(3000), {"sell", "sell16"}),
    ],
)
def test_the_format_follows_the_pattern(made: sp.csr_array, variants: set[str]) -> None:
    matrix = Matrix.from_any(made)
    plan = predict(matrix, 8, LARGE_CACHE)
    assert is_baseline(plan)
    assert plan.variant in variants
    assert registry.get("cpu", "sweep").feasible(plan, matrix, LARGE_CACHE) is None
    if plan.variant.startswith("sell"):
        assert plan.typed.sigma > 1  # unsorted, rows so uneven are mostly padding


def test_what_is_read_again_lies_in_the_memory_that_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond all cores' own caches and within the last level, for one thread and for many; far beyond it at last."""
    sizes: list[int] = []

    def rate(pool: Any, threads: int, size: int) -> float:
        sizes.append(threads * size)
        return 1e9

    monkeypatch.setattr(rates, "_read_rate", rate)
    for device, threads in ((HostDevice("many", 64, 2**15, 2**20, 2**28), 64), (LARGE_CACHE, 1), (LARGE_CACHE, 2)):
        sizes.clear()
        machine._measure(device, threads)
        own, last, slow = sizes
        assert own <= threads * device.l2_bytes // 2
        assert 2 * threads * device.l2_bytes < last <= 0.75 * device.l3_bytes
        assert slow >= min(3 * device.l3_bytes, 2**30) > last


def test_without_prices_it_is_plain_csr(monkeypatch: pytest.MonkeyPatch) -> None:
    known = derived_figures(LARGE_CACHE, 2)
    monkeypatch.setattr(_PREDICT, "figures_of", lambda device, threads: replace(known, formats={}))
    assert predict(Matrix.from_any(_diagonals(20_000)), 8, LARGE_CACHE).variant == "csr"


def test_a_format_that_promises_little_is_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    known = derived_figures(LARGE_CACHE, 2)
    matrix = Matrix.from_any(_diagonals(20_000))

    def priced(share: float, foreseen: float) -> str:
        csr = FormatCost(1e-9, 0.0)
        formats = {"csr": csr, "dia": FormatCost(share * csr.slot, 0.0)}
        found = replace(known, formats=formats, foreseen=foreseen)
        monkeypatch.setattr(_PREDICT, "figures_of", lambda device, threads: found)
        return predict(matrix, 8, LARGE_CACHE).variant

    assert priced(0.99, 1e5) == "csr"
    assert priced(0.95, 1e5) == "dia"
    guess = known.foreseen  # all are guesses, or some, in a calibration of an older akx
    assert priced(0.95, guess) == "csr"
    assert priced(0.85, guess) == "dia"


#: What numbers take beside those of 8 bytes, in CSR, in sliced ELL and in diagonals.
SIZES = [
    (np.float64, (1.0, 1.0, 1.0)),
    (np.complex64, (1.0, 1.0, 1.0)),
    (np.float32, (1.0, 0.9, 0.9)),
    (np.complex128, (1.15, 1.35, 1.6)),
]


@pytest.mark.parametrize(("dtype", "sizes"), SIZES)
@pytest.mark.parametrize("vectors", [1, 2])
def test_work_is_slots_and_rows_at_their_prices(dtype: Any, sizes: tuple[float, ...], vectors: int) -> None:
    """For each thread, start vector and 8 bytes of a value; of half-empty diagonals, padding is paid for as well."""
    full = sp.csr_array(_diagonals(20_000))
    half = sp.csr_array(sp.diags_array(np.arange(full.shape[0]) % 2.0) @ full)
    half.eliminate_zeros()
    prices = {"csr": FormatCost(3e-6, 7e-6), "dia": FormatCost(2e-6, 5e-6)}
    known = replace(derived_figures(LARGE_CACHE, 2), formats=prices, waking=0.0, synchronisation=0.0)
    for made, stored in ((full, 1.0), (half, 2.0)):
        matrix = Matrix.from_any(made.astype(dtype))
        model = Model(matrix, build_space(matrix, 8, LARGE_CACHE, threads=2), known, vectors)
        plan = Plan("cpu", "sweep", "csr", k=8, threads=2)
        products = 8 * vectors
        assert model.seconds(plan) == pytest.approx(products * sizes[0] * (3e-6 * matrix.nnz + 7e-6 * matrix.n) / 2)
        assert model.seconds(plan.replace(threads=1)) == pytest.approx(2 * model.seconds(plan))
        slots = stored * matrix.nnz
        expected = products * sizes[2] * (2e-6 * slots + 5e-6 * matrix.n) / 2
        assert model.seconds(plan.replace(variant="dia")) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(
    ("variant", "dtype", "size"),
    [
        *(("inode16", *one) for one in ((np.float32, 1.1), (np.complex64, 1.0), (np.complex128, 1.2))),
        *(("bell", *one) for one in ((np.float32, 0.75), (np.complex64, 1.0), (np.complex128, 1.55))),
        *(("sell16", *one) for one in ((np.float32, 0.9), (np.complex128, 1.35))),
    ],
)
def test_numbers_of_other_sizes_take_what_they_were_measured_to(variant: str, dtype: Any, size: float) -> None:
    matrix = Matrix.from_any(_dense_blocks(200).astype(dtype))
    prices = {variant: FormatCost(3e-6, 7e-6)}
    known = replace(derived_figures(LARGE_CACHE, 1), formats=prices, waking=0.0, synchronisation=0.0)
    model = Model(matrix, build_space(matrix, 8, LARGE_CACHE, threads=1), known)
    plan, sweep = Plan("cpu", "sweep", variant, k=8, threads=1), cast(Any, registry.get("cpu", "sweep"))
    slots = sweep.padding(plan, matrix) * matrix.nnz
    assert model.seconds(plan) == pytest.approx(8 * size * (3e-6 * slots + 7e-6 * matrix.n))


def _of_lengths(lengths: Any) -> Matrix:
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths)
    return Matrix.from_any(sp.csr_array((np.ones(indices.size), indices, indptr), shape=(lengths.size,) * 2))


def test_rows_whose_ends_cannot_be_foreseen() -> None:
    rng = np.random.default_rng(6)
    assert uneven_rows(_of_lengths(rng.integers(1, 9, 20_000))) == pytest.approx(20_000 * 7 / 8, rel=0.02)
    for period in ([4, 5], [20, 20, 8], [1, 2, 3, 4, 5, 6, 7, 8], [3]):
        assert uneven_rows(_of_lengths(np.tile(period, 600))) == 0, period
    assert uneven_rows(_of_lengths(np.tile(np.arange(1, 10), 100))) > 700, "longer than what is looked at"
    assert uneven_rows(_of_lengths(np.repeat([2, 3], 500))) == 1
    assert uneven_rows(_of_lengths(np.array([1]))) == 0
    matrix = _of_lengths(rng.integers(1, 9, 20_000))
    rows, seen = uneven_rows(matrix), branches(matrix)
    assert seen == matrix.nnz + matrix.n  # one for each entry and row
    assert branches(_of_lengths(np.array([0, 8, 40, 3, *[0] * 36]))) == 40 + 0 + 8 + (8 + 32 / 8) + 3
    assert surprises(matrix, 1, 2 * seen) == surprises(matrix, 2, seen) == 0.0  # half of it for each
    assert surprises(matrix, 1, seen) == surprises(matrix, 2, seen / 2) == pytest.approx(rows / 2)
    assert surprises(matrix, 1, seen / 1.2) == pytest.approx(rows * (0.5 + np.log2(1.2)))
    assert surprises(matrix, 1, seen / 2) == rows


def _anywhere(n: int, wide: int, dtype: Any = np.float64) -> Matrix:
    """Rows of 8 entries within `wide` columns around the diagonal."""
    columns = (np.arange(n)[:, None] + np.random.default_rng(7).integers(0, wide, (n, 8))) % n
    indptr = np.arange(0, 8 * n + 1, 8)
    return Matrix.from_any(sp.csr_array((np.ones(8 * n, dtype), columns.ravel(), indptr), shape=(n, n)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_entries_of_x_that_the_nearest_cache_does_not_have(dtype: Any) -> None:
    """Of columns anywhere it has what share of x it holds; of those near the diagonal all but each line's first."""
    n, size = 20_000, np.dtype(dtype).itemsize
    for cache in (n * size // 16, n * size // 4, n * size // 2):
        assert missed(_anywhere(n, n, dtype), cache) == pytest.approx(1 - cache / (n * size), abs=0.04)
    assert missed(_anywhere(n, n, dtype), n * size) == 0.0
    near = missed(_anywhere(n, 64, dtype), n * size // 16)
    assert 0 < near < 2 * size / 64 / 8
    assert missed(Matrix.from_any(sp.csr_array((n, n))), 1024) == 0.0
    assert missed(_anywhere(n, n, dtype), 0) == 0.0, "a cache whose size nobody knows"


def test_a_cache_that_least_recently_used_lines_leave_misses_as_often_as_is_said() -> None:
    """The rule of thumb beside a cache that is gone through entry by entry."""
    rng = np.random.default_rng(8)
    graph = sp.csr_array(sp.random_array((5000, 5000), density=2e-3, rng=rng))
    for matrix in (_anywhere(6000, 6000), _anywhere(6000, 1500), Matrix.from_any(graph)):
        room, held, misses = 128, dict[int, None](), 0
        for line in (np.asarray(matrix.indices) // 8).tolist():
            misses += line not in held
            held.pop(line, None)
            held[line] = None
            if len(held) > room:
                held.pop(next(iter(held)))
        assert missed(matrix, 64 * room) == pytest.approx(misses / matrix.nnz, abs=0.05)


@pytest.mark.parametrize(("dtype", "sizes"), SIZES)
def test_rows_of_changing_length_rows_in_sorted_windows_and_x_read_anywhere_cost_more(
    dtype: Any, sizes: tuple[float, ...]
) -> None:
    """The former as much for numbers of any size: it is a branch that is missed. So do entries far from the core."""
    device = replace(LARGE_CACHE, l1_bytes=4096)
    matrix = Matrix.from_any(_uneven_rows(3000).astype(dtype))
    prices = {
        "csr": FormatCost(3e-6, 7e-6, uneven=4e-6, scattered=9e-6),
        "sell": FormatCost(2e-6, 5e-6, sorted=1e-6, scattered=8e-6),
    }
    known = replace(derived_figures(device, 2), formats=prices, waking=0.0, synchronisation=0.0, foreseen=40_000)
    model = Model(matrix, build_space(matrix, 8, device, threads=2), known)
    plan = Plan("cpu", "sweep", "csr", k=8, threads=1)
    far = missed(matrix, 4096) * matrix.nnz
    assert far > 0.2 * matrix.nnz
    assert 0 < surprises(matrix, 1, 40_000) < uneven_rows(matrix)
    work = sizes[0] * (3e-6 * matrix.nnz + 7e-6 * matrix.n) + 4e-6 * surprises(matrix, 1, 40_000) + 9e-6 * far
    assert model.seconds(plan) == pytest.approx(8 * work)
    for sigma, price in ((1, 5e-6), (256, 6e-6)):
        plan = Plan("cpu", "sweep", "sell", k=8, threads=1, options={"sigma": sigma})
        slots = registry.get("cpu", "sweep").padding(plan, matrix) * matrix.nnz  # type: ignore[attr-defined]
        assert model.seconds(plan) == pytest.approx(8 * (sizes[1] * (2e-6 * slots + price * matrix.n) + 8e-6 * far))


@pytest.mark.parametrize(
    ("variant", "sigma", "n", "largest"),
    [
        ("csr", 1, 1000, 1.0),
        ("sell", 1, 1001, 2 * 504 / 1001),  # 63 and 62 chunks of 8 rows, of which the last is not full
        ("sell", 256, 3312, 2 * 1776 / 3312),  # 6 whole windows and 1776 rows, better than 7 and 1520
        ("sell", 256, 1000, 1.024),  # 512 and 488
        ("dia", 1, 1000, 1.024),  # 512 and 488
    ],
)
def test_a_thread_that_has_more_rows_takes_longer(variant: str, sigma: int, n: int, largest: float) -> None:
    """Shares are whole windows, chunks and slices."""
    matrix = Matrix.from_any(_diagonals(n))
    prices = {name: FormatCost(3e-6, 0.0) for name in ("csr", "sell", "dia")}
    known = replace(derived_figures(LARGE_CACHE, 2), formats=prices, waking=0.0, synchronisation=0.0)
    model = Model(matrix, build_space(matrix, 8, LARGE_CACHE, threads=2), known)
    options = {"sigma": sigma} if variant == "sell" else {}
    two = Plan("cpu", "sweep", variant, k=8, threads=2, options=options)
    assert model.seconds(two) == pytest.approx(model.seconds(two.replace(threads=1)) / 2 * largest, rel=1e-12)


@pytest.mark.parametrize("vectors", [1, 2])
def test_what_no_core_can_hold_is_read_from_the_last_level_cache_once_a_pass(vectors: int) -> None:
    """Beside the work, as the two sides of a right angle; without columns the longer of both takes all the time.

    The matrix comes once for all start vectors.
    """
    matrix = Matrix.from_any(_diagonals(3000))
    same = FormatCost(3e-10, 1e-9)
    known = replace(derived_figures(LARGE_CACHE, 2), waking=0.0, synchronisation=0.0, last_level_bandwidth=2e9)
    known = replace(known, formats=dict.fromkeys(("csr", "csr16", "dia"), same))
    plan = Plan("cpu", "sweep", "csr", k=8, threads=1)

    def seconds(device: HostDevice, variant: str) -> float:
        space = build_space(matrix, 8, device, threads=2)
        return Model(matrix, space, known, vectors).seconds(plan.replace(variant=variant))

    def moved(variant: str) -> float:
        traffic = registry.get("cpu", "sweep").traffic(plan.replace(variant=variant), matrix, small)
        return traffic.cache_bytes + (vectors - 1) * 8 * 2 * 8 * matrix.n

    work = vectors * 8 * (3e-10 * matrix.nnz + 1e-9 * matrix.n)
    own = replace(LARGE_CACHE, l2_bytes=2**24)
    assert seconds(own, "csr") == seconds(own, "csr16") == pytest.approx(work)
    small = replace(LARGE_CACHE, l2_bytes=2**15)
    share = 1 - 2**15 / (matrix.nbytes + vectors * 9 * 8 * matrix.n)
    assert 0.5 < share < 1
    near = 2 * share * moved("csr") / 2e9  # of one thread at the bandwidth of one
    assert seconds(small, "csr") == pytest.approx(np.hypot(work, near))
    assert work < seconds(small, "csr16") < seconds(small, "csr")
    assert work < seconds(small, "dia") == pytest.approx(2 * share * moved("dia") / 2e9)
    two = replace(plan, threads=2), replace(small, l2_bytes=2**16)
    several = Model(matrix, build_space(matrix, 8, two[1], threads=2), known, vectors)
    shares = [1 - threads * 2**16 / several.working_set for threads in (1, 2)]
    assert [several._beyond(one) for one in (plan, two[0])] == pytest.approx(shares), "each has its own cache"


@pytest.mark.parametrize(
    ("sell", "dia", "variant"),
    [
        (5e-10, 5.1e-10, "dia"),
        (5e-10, 5.3e-10, "sell"),
        (9.6e-10, 9.7e-10, "dia"),
        (9.6e-10, 9.85e-10, "sell"),  # the other would be less than 1.02 times as fast as CSR
    ],
)
def test_of_formats_that_promise_the_same_the_one_that_moves_least_is_taken(
    monkeypatch: pytest.MonkeyPatch, sell: float, dia: float, variant: str
) -> None:
    matrix = Matrix.from_any(_diagonals(2000))
    prices = {"csr": 1e-9, "sell": sell, "dia": dia}  # of an entry
    sweep: Any = registry.get("cpu", "sweep")
    padding = {name: sweep.padding(Plan("cpu", "sweep", name, k=8), matrix) for name in prices}
    formats = {name: FormatCost(price / padding[name], 0.0) for name, price in prices.items()}
    known = replace(derived_figures(LARGE_CACHE, 2), formats=formats, waking=0.0, synchronisation=0.0, foreseen=1e5)
    monkeypatch.setattr(_PREDICT, "figures_of", lambda device, threads: known)
    assert predict(matrix, 8, LARGE_CACHE).variant == variant


@pytest.mark.parametrize(
    ("prices", "variant"),
    [
        ({"csr": 1e-9, "csr16": 1.04e-9}, "csr16"),
        ({"csr": 1e-9, "csr16": 1.06e-9}, "csr"),
        ({"csr": 1e-9, "sell": 5e-10, "sell16": 5.2e-10}, "sell16"),
        ({"csr": 1e-9, "sell": 5e-10, "sell16": 5.3e-10}, "sell"),
        ({"csr": 1e-9, "csr16": 1e-9, "sell": 9.9e-10}, "csr16"),  # not worth another layout
        ({"csr": 1e-9, "csr16": 1.04e-9, "sell": 9.9e-10}, "csr16"),  # nor is it beside a slower one
        ({"csr": 1e-9, "csr16": 9.6e-10, "sell16": 9.6e-10}, "csr16"),  # nor beside a faster one
    ],
)
def test_indices_of_16_bits_are_used_unless_they_are_clearly_slower(
    monkeypatch: pytest.MonkeyPatch, prices: dict[str, float], variant: str
) -> None:
    formats = {name: FormatCost(price, 0.0) for name, price in prices.items()}
    known = replace(derived_figures(LARGE_CACHE, 2), formats=formats, waking=0.0, synchronisation=0.0, foreseen=1e5)
    monkeypatch.setattr(_PREDICT, "figures_of", lambda device, threads: known)
    assert predict(Matrix.from_any(_diagonals(2000)), 8, LARGE_CACHE).variant == variant


@pytest.mark.parametrize("cores", [8, 64, 128])
def test_many_cores_are_used_for_what_takes_long(cores: int) -> None:
    device = HostDevice("many cores", cores, 32 * 1024, 2**20, 2**28)
    assert predict(Matrix.from_any(_diagonals(200_000)), 8, device, threads=cores).threads == cores


@pytest.mark.parametrize("broken", ["space", "padding"])
def test_a_schedule_that_cannot_say_what_there_is_offers_nothing(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = HostDevice("middling cache", 2, 32 * 1024, 2**18, 2**21)

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(registry.get("cpu", "wavefront"), broken, fails, raising=True)
    plan = predict(Matrix.from_any(_diagonals(200_000)), 8, device)
    assert (plan.schedule, plan.variant) == ("sweep", "dia")


def test_beyond_the_cache_a_schedule_is_tried_in_every_format() -> None:
    device = HostDevice("middling cache", 2, 32 * 1024, 2**18, 2**21)
    plan = predict(Matrix.from_any(_diagonals(200_000)), 8, device)
    assert (plan.schedule, plan.variant, plan.partitioner) == ("wavefront", "dia", "natural")
