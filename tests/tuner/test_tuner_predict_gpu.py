"""Plans of untuned calls on a GPU, by the facts of some: none is needed, since nothing is measured or prepared."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from nightly import mostly_nightly

from akx.backends import registry
from akx.backends.cuda.cost.model import gathered_share, in_cache, longest_row, multiply_cycles, touched_lines
from akx.backends.cuda.device.compile import ROOT
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.schedules.ghost import layout as ghost_layout
from akx.backends.cuda.schedules.ghost import schedule as ghost
from akx.backends.cuda.schedules.resident import layout as resident_layout
from akx.backends.cuda.schedules.resident import schedule as resident
from akx.backends.cuda.schedules.sweep import cost as sweep_work
from akx.backends.cuda.schedules.sweep import layout as sweep_layout
from akx.backends.cuda.schedules.sweep import schedule as sweep
from akx.backends.cuda.schedules.sweep.cost import csr_work, sell_work
from akx.backends.cuda.schedules.wavefront import cost as wavefront_work
from akx.backends.cuda.schedules.wavefront import schedule as wavefront
from akx.backends.cuda.schedules.wavefront import strips as wavefront_strips
from akx.backends.cuda.variants import diagonals, vbell
from akx.backends.memory_budget import within
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.cost.counts import Work
from akx.formats.base import pattern_of
from akx.partition.halo import halo_sizes, halos
from akx.tuner import predict
from akx.tuner.model.figures import derived_figures
from akx.tuner.model.predict import Model, predicted
from akx.tuner.space import Space, build_space, is_baseline

H100 = CudaDevice("H100", 0, (9, 0), 132, 232_448, 233_472, 65_536, 50 * 2**20, 80 * 2**30, 1_980_000_000, 3.35e12)
A100 = CudaDevice("A100", 0, (8, 0), 108, 166_912, 167_936, 65_536, 40 * 2**20, 40 * 2**30, 1_410_000_000, 1.56e12)
RTX = CudaDevice("RTX 4090", 0, (8, 9), 128, 101_376, 102_400, 65_536, 72 * 2**20, 24 * 2**30, 2_520_000_000, 1.01e12)
DEVICES = pytest.mark.parametrize("gpu", mostly_nightly([H100, A100, RTX]), ids=lambda gpu: gpu.name)


def bands(n: int, *offsets: int) -> sp.csr_array:
    values = [1.0 / (1 + abs(offset)) for offset in offsets]
    return sp.csr_array(sp.diags_array(values, offsets=list(offsets), shape=(n, n)))


def pentadiagonal(n: int = 100_000) -> sp.csr_array:
    return bands(n, -2, -1, 0, 1, 2)


def dense_blocks(nodes: int = 12_000, wide: int = 15) -> sp.csr_array:
    """Dense blocks of 3 x 3, `wide` in a row."""
    return sp.csr_array(sp.kron(bands(nodes, *range(-(wide // 2), wide - wide // 2)), np.ones((3, 3))))


def grid(side: int) -> sp.csr_array:
    """A 5-point grid."""
    line = bands(side, -1, 0, 1)
    return sp.csr_array(sp.kron(line, sp.eye_array(side)) + sp.kron(sp.eye_array(side), line))


def planes(side: int) -> sp.csr_array:
    """A 7-point grid."""
    line, one = bands(side, -1, 0, 1), sp.eye_array(side)
    return sp.csr_array(sp.kron(grid(side), one) + sp.kron(sp.eye_array(side * side), line))


def skewed(n: int = 30_000, longest: int = 5000) -> sp.csr_array:
    """Rows of 8 entries, and some of thousands."""
    rng = np.random.default_rng(5)
    lengths = np.full(n, 8)
    lengths[rng.integers(0, n, 12)] = longest
    row = np.repeat(np.arange(n), lengths)
    return sp.csr_array((np.ones(row.size), (row, rng.integers(0, n, row.size))), shape=(n, n))


def anywhere(n: int, per_row: int) -> sp.csr_array:
    rng = np.random.default_rng(6)
    row = np.repeat(np.arange(n), per_row)
    return sp.csr_array((np.ones(row.size), (row, rng.integers(0, n, row.size))), shape=(n, n))


def arrow(n: int, *, row: bool, column: bool) -> sp.csr_array:
    """A tridiagonal matrix with a full row, or a full column."""
    full, none = np.ones(n), np.zeros(0)
    at = np.full(n, n // 2)
    rows = np.concatenate([at if row else none, np.arange(n) if column else none])
    columns = np.concatenate([np.arange(n) if row else none, at if column else none])
    more = sp.coo_array((np.ones(rows.size), (rows.astype(int), columns.astype(int))), shape=(n, n))
    return sp.csr_array(bands(n, -1, 0, 1) + more + sp.diags_array(full))


def shuffled(made: sp.csr_array) -> sp.csr_array:
    order = np.random.default_rng(7).permutation(made.shape[0])
    return sp.csr_array(made[order][:, order])


def plan_of(made: Any, k: int, gpu: CudaDevice = H100, vectors: int = 1) -> Plan:
    return predict(Matrix.from_any(made), k, gpu, backend="cuda", start_vectors=vectors)


def model_of(matrix: Matrix, k: int, gpu: CudaDevice = H100, vectors: int = 1, **figures: float) -> Model:
    schedules = {schedule.name: schedule for schedule in registry.schedules("cuda")}
    known = replace(derived_figures(gpu, 1), **figures)
    return Model(matrix, Space("cuda", k, 1, gpu, schedules, {}), known, vectors)


def lay_out(plan: Plan, matrix: Matrix, gpu: CudaDevice) -> None:
    """What preparing the plan does on the host."""
    assert registry.get("cuda", plan.schedule).feasible(plan, matrix, gpu) is None
    if plan.schedule == "ghost":
        ghost_layout.lay_out_ghost(matrix, plan, gpu)
    elif plan.schedule == "wavefront":
        wavefront_strips.front_of(matrix, plan, gpu)
    elif plan.schedule == "sweep":
        name, _, lanes = plan.variant.partition("-")
        if name == "vbell":
            vbell.laid_out(matrix, int(lanes))
        elif name != "csr":
            sweep.lay_out(matrix, plan)
    elif plan.variant == diagonals.DIA:
        diagonals.lay_out(matrix, plan, gpu)
    else:
        resident_layout.lay_out_resident(matrix, plan, gpu)


# ---------------------------------------------------------------------------------------------------- what is chosen


@DEVICES
def test_rows_of_very_different_lengths_get_partitions(gpu: CudaDevice) -> None:
    """Whoever gives lanes to a row waits for the longest one."""
    plan = plan_of(skewed(), 8, gpu)
    assert (plan.schedule, plan.variant) == ("sweep", "pcsr")


def test_of_paddings_that_promise_the_same_the_widest_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    made = skewed()

    def chosen(**seconds: float) -> int:
        def work(plan: Plan, *_: object) -> Work:
            wide = seconds.get(f"pad{plan.typed.pad}", 9.0)
            return Work(launches=0, chain=100.0 * (wide if plan.variant == "pcsr" else 9.0))

        monkeypatch.setattr(sweep.SCHEDULE, "work", work, raising=False)
        plan = plan_of(made, 8)
        assert plan.variant == "pcsr"
        return plan.typed.pad

    assert chosen(pad4=1.0, pad8=1.02) == 8
    assert chosen(pad4=1.0, pad8=1.04) == 4
    assert chosen(pad4=1.02, pad8=1.0) == 8


@pytest.mark.parametrize("gpu", [H100, A100], ids=lambda gpu: gpu.name)
def test_dense_blocks_that_fit_the_chip_stay_there(gpu: CudaDevice) -> None:
    plan = plan_of(dense_blocks(18_000, 23), 16, gpu)
    assert (plan.schedule, plan.partitioner) == ("resident", "natural")
    assert plan.variant.startswith("3x3-")
    assert plan.typed.depth == 1


@pytest.mark.parametrize("gpu", [H100, A100], ids=lambda gpu: gpu.name)
def test_a_narrow_band_takes_its_ghosts_along(gpu: CudaDevice) -> None:
    plan = plan_of(pentadiagonal(), 16, gpu)
    assert (plan.schedule, plan.partitioner, plan.k_per_pass) == ("ghost", "natural", 16)


def test_a_small_grid_in_no_order_is_cut_by_metis_and_exchanges_seldom() -> None:
    plan = plan_of(shuffled(grid(200)), 8)
    assert (plan.schedule, plan.partitioner) == ("resident", "metis")
    assert plan.typed.depth > 1


def test_lines_of_a_grid_are_diagonals() -> None:
    plan = plan_of(bands(400_000, -700, -1, 0, 1, 700), 16)
    assert (plan.schedule, plan.variant) == ("resident", diagonals.DIA)


def test_a_grid_that_does_not_fit_the_chip_is_a_front() -> None:
    """But for one whose levels are no grid's, and for GPUs of a kind on which it never ran."""
    made = planes(120)
    plan = plan_of(made, 8)
    assert (plan.schedule, plan.partitioner, plan.typed.stored) == ("wavefront", "natural", "table")
    assert plan.typed.held_slots == 7
    for capability in ((8, 0), (12, 0)):
        assert plan_of(made, 8, replace(H100, compute_capability=capability)).schedule != "wavefront"
    assert not wavefront.SCHEDULE.heuristic_plans(Matrix.from_any(shuffled(made)), H100, 8)
    uneven = sp.block_diag([grid(300), bands(200_000, *range(-20, 21))], format="csr")
    assert not wavefront.SCHEDULE.heuristic_plans(Matrix.from_any(uneven), H100, 8)


@pytest.mark.parametrize("near", [None, 30])
def test_lines_that_read_all_over_themselves_are_no_grid_for_strips(near: int | None) -> None:
    """Each row reads the lines next to its own, and four more of its own, anywhere or near: strips read one another."""
    lines, width = 150, 2000
    rng = np.random.default_rng(9)
    row = np.repeat(np.arange(lines * width), 4)
    place, line = row % width, row // width
    other = rng.integers(0, width, row.size) if near is None else place + rng.integers(-near, near + 1, row.size)
    inside = sp.csr_array((np.ones(row.size), (row, line * width + np.clip(other, 0, width - 1))))
    made = sp.csr_array(bands(lines * width, -width, 0, width) + inside)
    assert not wavefront.SCHEDULE.heuristic_plans(Matrix.from_any(made), H100, 8)
    assert wavefront.SCHEDULE.heuristic_plans(Matrix.from_any(bands(lines * width, -width, -1, 0, 1, width)), H100, 8)


def test_fronts_that_are_offered_hold_all_slots_or_are_in_full_and_have_wide_and_many_levels() -> None:
    """Values in full: with the most slack fewest slots fit, and with each there is a plan that can be laid out."""
    numbers = np.random.default_rng(10)
    made = planes(100)
    made.data = numbers.random(made.nnz)
    matrix = Matrix.from_any(made)
    every = wavefront.SCHEDULE.heuristic_plans(matrix, H100, 8)
    offered = [one for one in every if one.variant != "dia"]
    assert {(plan.k_per_pass, plan.typed.slack) for plan in offered} >= {(8, 0), (8, 1), (8, 2), (4, 0), (4, 1), (4, 2)}
    for plan in offered:  # few registers wait: fewer slots are held where more would
        assert plan.typed.held_slots > 1
        assert wavefront_strips.spilled(plan, matrix, H100) <= 8, plan.label()
    assert plan_of(made, 8) in every
    for plan in offered[:3]:
        lay_out(plan, matrix, H100)
    fewer = replace(H100, shared_per_block=100_000)
    less = wavefront.SCHEDULE.heuristic_plans(matrix, fewer, 8)
    assert 0 < len(less) < len(every)
    for plan in less:
        lay_out(plan, matrix, fewer)
    for narrow in (bands(400_000, -60, -1, 0, 1, 60), bands(400_000, -30_000, -1, 0, 1, 30_000)):
        assert not wavefront.SCHEDULE.heuristic_plans(Matrix.from_any(narrow), H100, 8)


def test_slots_in_shared_memory_are_dear() -> None:
    matrix = Matrix.from_any(planes(60))
    model = model_of(matrix, 8)
    held = wavefront.SCHEDULE.heuristic_plans(matrix, H100, 8)[0]
    near = held.replace(options={**held.options, "held_slots": 6})
    assert 1.1 < model.seconds(near) / model.seconds(held) < 1.3  # 1.16 in the mean of 11 pairs on record (7-point)


def test_values_of_others_are_dear_and_those_of_levels_more() -> None:
    """Lines of a grid of five points: with two warps that ask, each thread asks for three times what six would."""
    matrix = Matrix.from_any(bands(400_000, -700, -1, 0, 1, 700))
    plan = wavefront.SCHEDULE.heuristic_plans(matrix, H100, 16)[0]
    few, many = (plan.replace(options={**plan.options, "helpers": helpers}) for helpers in (256, 128))
    model = model_of(matrix, 16)
    assert wavefront_work.asks(few, matrix, H100) < wavefront_work.asks(many, matrix, H100)
    assert model.seconds(few) < model.seconds(many)
    levels = many.replace(partitioner="levels")
    assert wavefront_work.asks(levels, matrix, H100) >= wavefront_work.asks(many, matrix, H100)
    assert model.seconds(levels) > model.seconds(many)


def test_one_power_is_a_sweep() -> None:
    for made in (pentadiagonal(), dense_blocks(), grid(100)):
        assert plan_of(made, 1).schedule == "sweep"
        made.data = np.random.default_rng(11).random(made.nnz)
        assert is_baseline(plan_of(made, 1))


def test_values_are_stored_in_few_bytes_where_that_is_sure_to_be_the_same_and_promises_much() -> None:
    """A 27-point grid on the chip of an H100, and lines far beyond the L2 of an A100: numbers, float32, as they are.

    The A100 has a quarter of its L2, for a matrix of a quarter of the rows.
    """
    line = bands(64, -1, 0, 1)
    stencil = sp.csr_array(sp.kron(sp.kron(line, line), line))
    lines = bands(1_000_000, -100_000, -1, 0, 1, 100_000)  # too far for 16 bits
    quarter = replace(A100, l2_bytes=A100.l2_bytes // 4)
    wide = ("wavefront",) * 3  # with few bytes on the chip it is as fast
    for made, gpu, schedules in ((stencil, H100, wide), (lines, quarter, ("sweep",) * 3)):
        random = np.random.default_rng(12).random(made.nnz)
        given = ((made.data, "table"), (random.astype(np.float32), "half"), (random, "full"))
        for (values, stored), schedule in zip(given, schedules, strict=True):
            made.data = values.astype(float)
            plan = plan_of(made, 8, gpu)
            assert (plan.schedule, plan.typed.stored) == (schedule, stored)


def test_far_beyond_the_caches_it_is_a_sweep_or_a_front() -> None:
    """As a matrix of 5 10^7 entries on an H100: here the chip is a thirtieth of one, and its memory as slow."""
    small = replace(
        H100, sms=16, shared_per_block=48 * 1024, shared_per_sm=49 * 1024, l2_bytes=2**20, memory_bandwidth_hint=4e11
    )
    assert plan_of(anywhere(200_000, 8), 16, small).schedule == "sweep"
    lines = bands(300_000, -3000, -1, 0, 1, 3000)
    lines.data = np.random.default_rng(14).random(lines.nnz)
    assert plan_of(lines, 4, small).schedule == "wavefront"
    assert is_baseline(plan_of(lines, 4, replace(small, compute_capability=(8, 0))))


@DEVICES
@pytest.mark.parametrize("made", [sp.eye_array(1), sp.eye_array(7), bands(40, -1, 0, 1), sp.csr_array((9, 9))])
def test_a_tiny_matrix_gets_a_plan_that_works(made: Any, gpu: CudaDevice) -> None:
    for k in (1, 2, 5, 100):
        lay_out(plan_of(made, k, gpu), Matrix.from_any(sp.csr_array(made)), gpu)


def test_several_start_vectors_share_a_sweep_and_take_turns_on_a_chip() -> None:
    """A sweep reads the matrix once for all of them; parts make as many rounds as there are vectors."""
    matrix = Matrix.from_any(dense_blocks(60_000, 23))
    one, eight = model_of(matrix, 16), model_of(matrix, 16, vectors=8)
    plain, parts = Plan("cuda", "sweep", "csr-16", k=16), resident.SCHEDULE.heuristic_plans(matrix, H100, 16)[0]
    assert eight.seconds(plain) < 4 * one.seconds(plain)
    assert eight.seconds(parts) > 7 * one.seconds(parts)
    lay_out(predicted(eight), matrix, H100)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
def test_every_type_gets_a_plan_that_fits(dtype: str) -> None:
    for made in (skewed(), dense_blocks(), pentadiagonal(), shuffled(grid(120))):
        matrix = Matrix.from_any(made.astype(dtype))
        lay_out(predict(matrix, 8, H100, backend="cuda"), matrix, H100)


def test_within_a_memory_budget_it_streams() -> None:
    matrix = Matrix.from_any(pentadiagonal())
    assert predict(matrix, 8, within(H100, matrix.nbytes // 4), backend="cuda").schedule == "stream"
    assert is_baseline(predict(matrix, 8, within(H100, 40 * matrix.nbytes), backend="cuda"))


# -------------------------------------------------------------------------------------------- what is offered unseen

OFFERED = {
    "a band": lambda: pentadiagonal(30_000),
    "a wide band": lambda: bands(20_000, *range(-20, 21)),
    "a grid": lambda: grid(150),
    "a grid in no order": lambda: shuffled(grid(120)),
    "a wide grid": lambda: grid(400),
    "planes": lambda: planes(40),
    "dense blocks": lambda: dense_blocks(3000, 9),
    "skewed rows": lambda: skewed(8000, 2000),
    "anywhere": lambda: anywhere(6000, 9),
    "a full row": lambda: arrow(20_000, row=True, column=False),
    "a full column": lambda: arrow(20_000, row=False, column=True),
    "an arrow": lambda: arrow(4000, row=True, column=True),
    "empty rows": lambda: sp.block_diag([anywhere(2000, 5), sp.csr_array((3000, 3000)), grid(40)], format="csr"),
    "dense": lambda: sp.csr_array(np.random.default_rng(8).random((300, 300))),
}


@DEVICES
@pytest.mark.parametrize("name", OFFERED)
def test_whatever_is_offered_can_be_laid_out_and_lies_in_the_space(name: str, gpu: CudaDevice) -> None:
    matrix = Matrix.from_any(OFFERED[name]())
    for k in (3, 40):
        space = build_space(matrix, k, gpu, backend="cuda", threads=1)
        model = model_of(matrix, k, gpu)
        for schedule in (sweep.SCHEDULE, resident.SCHEDULE, ghost.SCHEDULE, wavefront.SCHEDULE):
            for plan in schedule.heuristic_plans(matrix, gpu, k):
                assert space.values(plan) is not None, plan.label()
                assert 0.0 < model.seconds(plan) < 1.0, plan.label()
                if plan.schedule != "sweep" or k == 3:
                    lay_out(plan, matrix, gpu)


def test_predicting_cuts_nothing_and_is_the_same_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("METIS was asked")

    monkeypatch.setattr("akx.partition.metis.metis_partition", never)
    made = shuffled(grid(150))
    assert len({plan_of(made, 8) for _ in range(3)}) == 1


def test_a_schedule_that_cannot_say_what_it_offers_offers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    for schedule in (resident.SCHEDULE, ghost.SCHEDULE):
        monkeypatch.setattr(schedule, "heuristic_plans", broken, raising=False)
    assert plan_of(pentadiagonal(), 16).schedule == "sweep"
    monkeypatch.setattr(sweep.SCHEDULE, "work", broken, raising=False)
    assert is_baseline(plan_of(pentadiagonal(), 16))


# --------------------------------------------------------------------------------------------------------- the model


def test_seconds_are_those_of_the_work_at_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = Matrix.from_any(bands(50, 0))
    rates = {"slow_bandwidth": 1e12, "last_level_bandwidth": 2e12, "synchronisation": 1e-6, "barrier": 2e-6}
    model = model_of(matrix, 4, **rates)
    reached, near, clock = 0.85, 2 * 0.6, H100.clock_hz
    cases = [
        (Work(loaded_bytes=1e9, launches=0), 1e9 / 1e12 / reached),
        (Work(memory_bytes=4e9, cache_bytes=4e9, launches=0), 4e9 / 1e12 / reached),
        (Work(memory_bytes=1e9, cache_bytes=4e9, launches=0), 4e9 / 1e12 / near),
        (Work(cycles=3e6, memory_bytes=4e6 / clock * 1e12 * reached, launches=0), 5e6 / clock),
        (Work(chain=7e6, cycles=3e6, launches=0), 10e6 / clock),
        (Work(launches=3, barriers=5), 13e-6),
    ]
    for work, seconds in cases:
        monkeypatch.setattr(sweep.SCHEDULE, "work", lambda *_, found=work: found, raising=False)
        assert model.seconds(Plan("cuda", "sweep", "csr-1", k=4)) == pytest.approx(seconds)


def test_dear_exchanges_make_it_a_sweep_and_dear_kernels_none() -> None:
    matrix = Matrix.from_any(dense_blocks())
    assert predicted(model_of(matrix, 16)).schedule == "resident"
    assert predicted(model_of(matrix, 16, barrier=1e-3)).schedule == "sweep"
    tiny = Matrix.from_any(shuffled(grid(40)))
    assert predicted(model_of(tiny, 16, synchronisation=1e-3)).schedule != "sweep"


def test_another_schedule_must_promise_a_clear_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = Matrix.from_any(pentadiagonal(1000))

    def priced(gain: float) -> Plan:
        monkeypatch.setattr(sweep.SCHEDULE, "work", lambda *_: Work(chain=1e6, launches=0), raising=False)
        for schedule in (resident.SCHEDULE, ghost.SCHEDULE):
            monkeypatch.setattr(schedule, "work", lambda *_: Work(chain=1e6 / gain, launches=0), raising=False)
        return predicted(model_of(matrix, 8))

    assert is_baseline(priced(1.1))
    assert not is_baseline(priced(1.2))


def test_more_lanes_for_longer_rows_and_a_chain_of_their_loads() -> None:
    """On a matrix that fits the caches a product takes what its longest row waits for, four slots a lane at a time."""
    matrix = Matrix.from_any(bands(3000, *range(-120, 120)))
    model = model_of(matrix, 8)
    waits = [csr_work(matrix, H100, 8, 1, lanes, 8).chain / 8 for lanes in (2, 8, 32)]
    assert waits == pytest.approx([30 * 570, 8 * 570, 2 * 570])  # of 120, 30 and 8 slots
    seconds = {lanes: model.seconds(Plan("cuda", "sweep", f"csr-{lanes}", k=8)) for lanes in (2, 8, 32)}
    assert seconds[2] > 1.5 * seconds[8] > 2 * seconds[32]
    assert predicted(model).variant in ("csr-32", "csr-16") or not is_baseline(predicted(model))


def test_a_slower_memory_takes_longer() -> None:
    matrix = Matrix.from_any(anywhere(2_000_000, 4))
    plan = Plan("cuda", "sweep", "csr-1", k=4)
    assert model_of(matrix, 4, A100).seconds(plan) > 1.5 * model_of(matrix, 4, H100).seconds(plan)


def test_numbers_of_8_bytes_are_slow_where_there_are_few_units_for_them() -> None:
    double, single = np.dtype(np.float64), np.dtype(np.float32)
    assert multiply_cycles(RTX, double) > 10 * multiply_cycles(H100, double)
    assert multiply_cycles(RTX, single) == multiply_cycles(H100, single)
    assert multiply_cycles(H100, np.dtype(np.complex128)) == 4 * multiply_cycles(H100, double)


# ---------------------------------------------------------------------------------------------------------- the counts


def test_how_x_is_gathered() -> None:
    assert gathered_share(Matrix.from_any(anywhere(200_000, 8))) > 0.9
    assert gathered_share(Matrix.from_any(pentadiagonal())) < 0.1
    assert gathered_share(Matrix.from_any(sp.csr_array((50, 50)))) == 0.0


def test_lines_that_a_load_asks_for() -> None:
    diagonal, random = Matrix.from_any(sp.eye_array(4096, format="csr")), Matrix.from_any(anywhere(200_000, 8))
    for lanes in (0, 1):
        assert touched_lines(diagonal, lanes) == 1 / 16  # 32 entries that lie side by side
    assert touched_lines(diagonal, 8) == 1 / 4  # of four rows, each with one entry
    assert min(touched_lines(random, lanes) for lanes in (0, 1, 4, 32)) > 0.95
    blocks = Matrix.from_any(dense_blocks())  # 45 entries a row: of the second 32 there are 13
    assert touched_lines(blocks, 32) > 1.5 * touched_lines(blocks, 8)
    single = Matrix.from_any(sp.eye_array(4096, format="csr", dtype=np.float32))
    assert touched_lines(single, 1) == 1 / 32


def test_a_million_rows_and_no_entries_take_no_time() -> None:
    matrix = Matrix.from_any(sp.csr_array((1_000_000, 1_000_000)))
    plans = sweep.SCHEDULE.heuristic_plans(matrix, H100, 8)
    assert not any(plan.variant.startswith("vbell") for plan in plans)
    before = time.process_time()
    assert all(0 < model_of(matrix, 8).seconds(plan) < 1 for plan in plans)
    assert touched_lines(matrix, 4) == 0
    assert time.process_time() - before < 5


def test_wide_and_narrow_gathers() -> None:
    wide = Matrix.from_any(pentadiagonal().astype(np.complex128))
    assert gathered_share(wide) > gathered_share(Matrix.from_any(pentadiagonal()))


def test_what_the_cache_has_of_something() -> None:
    shares = [in_cache(share * H100.l2_bytes, H100) for share in (0.0, 0.5, 0.72, 0.76, 9.0)]
    assert shares == pytest.approx([1.0, 1.0, 0.5, 0.0, 0.0])


def _chain(rows: int, gpu: CudaDevice, lanes: int = 8, k: int = 3) -> float:
    """Cycles of a power that products in CSR wait, of rows of 8 entries."""
    matrix = Matrix.from_any(bands(rows, *range(-3, 5)))
    return csr_work(matrix, gpu, k, 1, lanes, 8).chain / k


@pytest.mark.parametrize(("gpu", "held"), [(H100, 64), (A100, 64), (RTX, 48)], ids=lambda one: str(one))
def test_warps_that_find_no_room_begin_when_others_end(gpu: CudaDevice, held: int) -> None:
    """Up to 25 a multiprocessor cost nothing, then each a little; one too many costs as much as a warp takes."""
    rows = 4 * gpu.sms  # of a warp on every multiprocessor, with 8 lanes a row
    assert _chain(rows, gpu) == _chain(25 * rows, gpu) == pytest.approx(570)  # of one load
    crowded = _chain(held * rows, gpu) - _chain(rows, gpu)
    assert crowded == pytest.approx(30 * (held - 25))
    late = _chain(held * rows + 4, gpu) - _chain(held * rows, gpu)
    assert late == pytest.approx(650, rel=0.01)
    assert _chain(2 * held * rows, gpu) - _chain(held * rows + 4, gpu) == pytest.approx(20 * held, rel=0.01)


def test_as_many_slots_wait_together_as_the_kernels_ask_for() -> None:
    source = next(ROOT.rglob("sweep.cuh")).read_text()
    assert f" TOGETHER = {sweep_work._TOGETHER_IN_LANE};" in source


def test_a_long_row_hides_a_second_round() -> None:
    lengths = np.full(50_000, 8)
    lengths[7] = 4000
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths)
    matrix = Matrix.from_any(sp.csr_array((np.ones(indices.size), indices, indptr), shape=(50_000, 50_000)))
    assert csr_work(matrix, H100, 1, 1, 8, 8).chain == pytest.approx(4000 / 8 / 4 * 570)


def test_a_warp_of_slices_has_to_find_its_own() -> None:
    matrix = Matrix.from_any(bands(4096, *range(-3, 5)))
    slices = sell_work(matrix, H100, 2, 1, 8, slots=matrix.nnz, bits=16, order=False, value=8)
    assert slices.chain - csr_work(matrix, H100, 2, 1, 8, 8).chain == pytest.approx(2 * 20, rel=0.02)


def test_a_row_has_as_many_lanes_as_the_device_has_room_for() -> None:
    """With rows of 16 entries four slots a lane at most, where there are few; more rows a warp, the more there are."""

    def lanes(rows: int) -> int:
        matrix = Matrix.from_any(bands(rows, *range(-8, 8)))
        schedules = {"sweep": sweep.SCHEDULE}
        model = Model(matrix, Space("cuda", 8, 1, H100, schedules, {}), derived_figures(H100, 1))
        return int(predicted(model).variant.split("-")[1])

    few, some, many = (lanes(rows) for rows in (4_000, 60_000, 2_000_000))
    assert few >= 4
    assert few > some > many
    assert many == 1


def test_the_longest_row() -> None:
    assert longest_row(Matrix.from_any(skewed(1000, 300))) > 250
    assert longest_row(Matrix.from_any(sp.csr_array((5, 5)))) == 0


@pytest.mark.parametrize("made", [grid(30), shuffled(grid(20)), anywhere(500, 6), arrow(400, row=True, column=True)])
def test_sizes_of_halos_are_those_of_halos(made: sp.csr_array) -> None:
    pattern = pattern_of(Matrix.from_any(made))
    n = pattern.indptr.size - 1
    cuts = np.array([0, n // 5, n // 5 + 1, n // 2, n])
    part = np.repeat(np.arange(4), np.diff(cuts))
    listed = halos(pattern.indptr, pattern.indices, part, 4)
    halo, neighbours, span = halo_sizes(pattern.indptr, pattern.indices, cuts)
    assert np.array_equal(halo, listed.halo)
    assert np.array_equal(neighbours, np.diff(listed.neighbour_ptr))
    reached = [listed.rows[a:b] for a, b in zip(listed.ptr[:-1], listed.ptr[1:], strict=True)]
    assert np.array_equal(span, [int(rows.max()) - int(rows.min()) + 1 for rows in reached])


@pytest.mark.parametrize(("variant", "each"), [("sell-1", 14.0), ("csr-2", 4.0), ("pcsr", 14.0), ("rows16", 0.0)])
def test_to_look_values_up_has_a_price(variant: str, each: float) -> None:
    """A table saves bytes and costs cycles, but where these are hidden by what there is to do with products."""
    matrix, plain = Matrix.from_any(planes(60)), registry.get("cuda", "sweep")
    full = Plan("cuda", "sweep", variant, k=8, k_per_pass=1)
    done, looked = (plain.work(full.replace(options={"stored": way}), matrix, H100, 2) for way in ("full", "table"))
    assert looked.memory_bytes + looked.cache_bytes < done.memory_bytes + done.cache_bytes
    assert bool(looked.cycles > done.cycles) is (each > 0)
    if variant in ("sell-1", "csr-2"):
        slots = sweep_layout.slots_in(matrix, sweep_layout.SELL, 4, 1) if variant == "sell-1" else matrix.nnz
        price = 8 * 2 * each * slots / 32 / H100.sms
        assert 0.5 * price < looked.cycles - done.cycles < 1.001 * price  # lines of values are fewer as well
