"""What ghost zones make a GPU do, in the model: as many blocks as are laid out, and prices near what was measured."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from test_cuda_block_local import h100, make

from akx.backends import registry
from akx.backends.cuda.schedules.ghost import cost as ghost_offers
from akx.backends.cuda.schedules.ghost import layout as ghost_layout
from akx.backends.cuda.schedules.ghost import schedule as ghost
from akx.backends.cuda.variants.block_local.shapes import filled_rows, shape_of
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from akx.cost.counts import Work
from akx.plandb import PlanRecord
from akx.plandb.bundle import read_bundle
from akx.tuner.model.figures import derived_figures
from akx.tuner.model.predict import Model
from akx.tuner.space import Space
from benchmarks.samplers import load

_BUNDLE = Path(__file__).resolve().parents[3] / "tuning_db" / "cuda-nvidia-h100.json"


def plan_of(order: str = "natural", k: int = 8, depth: int | None = None, **options: Option) -> Plan:
    return Plan("cuda", "ghost", "1x1-1", order, k, k if depth is None else depth, options={"block": 256, **options})


def blocks_of(plan: Plan, matrix: Matrix, **facts: int) -> int:
    cut, clusters = ghost_offers._likely_cut(plan, matrix, h100(**facts))
    blocks = round(filled_rows(matrix, shape_of(plan).bc) / float(cut.own[0]))
    assert blocks == clusters * plan.typed.cluster
    return blocks


def work_of(plan: Plan, matrix: Matrix, **facts: int) -> Work:
    return ghost_offers.work(plan, matrix, h100(**facts), 1)


@cache
def cube(side: int) -> Matrix:
    line, one = sp.diags_array([1.0, 2.0, 1.0], offsets=[-1, 0, 1], shape=(side, side)), sp.eye_array(side)
    plane = sp.kron(line, one) + sp.kron(one, line)
    return Matrix.from_any(sp.csr_array(sp.kron(plane, one) + sp.kron(sp.eye_array(side * side), line)))


@cache
def band(rows: int = 20_000) -> Matrix:
    return Matrix.from_any(sp.diags_array([1.0, 2.0, 4.0, 2.0, 1.0], offsets=[-2, -1, 0, 1, 2], shape=(rows, rows)))


@pytest.mark.parametrize("order", ["natural", "metis"])
@pytest.mark.parametrize("depth", [2, 4, 8])
@pytest.mark.parametrize("name", ["cube", "band", "delaunay", "mc2depi"])
def test_as_many_blocks_are_priced_as_are_laid_out(name: str, depth: int, order: str) -> None:
    """Within a factor of two of those that are laid out, and just these where their zones have been made."""
    source = cube(24) if name == "cube" else band() if name == "band" else make(name, "float64")
    matrix = Matrix.from_any(source.to_scipy())  # with nothing known of its pattern
    plan = plan_of(order, 8, depth)
    likely = blocks_of(plan, matrix)
    laid_out, _, _ = ghost_layout.lay_out_ghost(matrix, plan, h100())
    blocks = laid_out.parts.parts.size
    assert blocks / 2 <= likely <= 2 * blocks
    assert blocks_of(plan, matrix) == blocks


def test_blocks_that_would_be_nothing_but_ghosts_cost_what_fewer_cost() -> None:
    """In two waves as in one: such a matrix has some blocks, of many on a multiprocessor, and most have none."""
    matrix = cube(24)
    one, two = (work_of(plan_of("metis", waves=waves), matrix) for waves in (1, 2))
    assert blocks_of(plan_of("metis"), matrix) < 132
    assert one == two
    assert work_of(plan_of("metis", depth=2), matrix).chain < one.chain  # more and smaller blocks do less each


def test_zones_that_were_refused_are_not_guessed_again() -> None:
    """Once a matrix has been laid out in fewer blocks than were asked for, these are what is priced."""
    matrix, plan = cube(24), plan_of("metis", 8, 4, blocks_per_sm=4)
    laid_out, _, _ = ghost_layout.lay_out_ghost(matrix, plan, h100())
    assert laid_out.parts.parts.size < 4 * 132
    assert blocks_of(plan, matrix) == laid_out.parts.parts.size


def test_the_price_of_rows_as_they_come_does_not_depend_on_what_was_asked_before() -> None:
    for source in (cube(24), make("shell", "float64")):
        for depth in (2, 4, 8):
            plan = plan_of("natural", 8, depth)
            matrices = [Matrix.from_any(source.to_scipy()) for _ in range(2)]
            ghost.SCHEDULE.traffic(plan, matrices[1], h100())
            assert work_of(plan, matrices[0]) == work_of(plan, matrices[1])


@pytest.mark.parametrize(("order", "sms", "kib"), [("natural", 4, 24), ("metis", 4, 24), ("metis", 16, 96)])
def test_plans_that_would_be_refused_have_no_price(order: str, sms: int, kib: int) -> None:
    """Blocks that do not fit, and of which smaller ones would be nothing but ghosts."""
    matrix, plan = Matrix.from_any(cube(24).to_scipy()), plan_of(order, 8)
    room = {"sms": sms, "shared_per_block": kib * 1024, "shared_per_sm": (kib + 1) * 1024}
    with pytest.raises(InfeasibleError):
        work_of(plan, matrix, **room)  # before anything is known of the pattern, and after
    with pytest.raises(InfeasibleError):
        ghost_layout.lay_out_ghost(matrix, plan, h100(**room))
    with pytest.raises(InfeasibleError):
        work_of(plan, matrix, **room)


def test_plans_whose_larger_blocks_do_not_fit_are_refused_without_their_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    """To make zones takes seconds where matrices are large, and smaller blocks have been refused."""
    plan, made, real = plan_of("natural", 8), [], ghost_layout.ghost_zones

    def zones(indptr: Any, indices: Any, partition: Any, *given: Any, **more: Any) -> Any:
        made.append(partition.blocks)
        return real(indptr, indices, partition, *given, **more)

    monkeypatch.setattr(ghost_layout, "ghost_zones", zones)
    matrix = Matrix.from_any(cube(24).to_scipy())  # with nothing known of its pattern
    room = {"sms": 16, "shared_per_block": 24 * 1024, "shared_per_sm": 25 * 1024}
    for _ in range(2):
        with pytest.raises(InfeasibleError, match="larger blocks would not fit"):
            work_of(plan, matrix, **room)
    assert set(made) == {16}
    with pytest.raises(InfeasibleError):
        ghost_layout.lay_out_ghost(matrix, plan, h100(**room))


def test_blocks_that_do_not_fit_are_more_and_come_one_after_another() -> None:
    matrix, plan = band(100_000), plan_of(k=4)
    room = 16 * 1024
    whole, cut = (work_of(plan, matrix, sms=20, shared_per_block=n, shared_per_sm=n + 1024) for n in (8 * room, room))
    assert blocks_of(plan, matrix, sms=20, shared_per_block=8 * room, shared_per_sm=8 * room + 1024) == 20
    assert blocks_of(plan, matrix, sms=20, shared_per_block=room, shared_per_sm=room + 1024) > 20
    assert cut.chain > whole.chain


def test_a_full_matrix_has_few_blocks() -> None:
    """Each has all rows: no more blocks than closures may have times the rows of the matrix."""
    rows = np.repeat(np.arange(90), 90)
    full = Matrix.from_any(sp.csr_array((np.ones(8100), (rows, np.tile(np.arange(90), 90))), shape=(90, 90)))
    for order in ("natural", "metis"):
        assert (
            blocks_of(plan_of(order), full)
            == ghost_layout.lay_out_ghost(full, plan_of(order), h100())[0].parts.parts.size
        )
        assert np.isfinite(work_of(plan_of(order), full).cycles)


def test_a_matrix_of_one_row() -> None:
    one = Matrix.from_any(sp.csr_array([[2.0]]))
    for order in ("natural", "metis"):
        assert blocks_of(plan_of(order, waves=8), one) == 1
        assert work_of(plan_of(order, waves=8), one) == work_of(plan_of(order), one)


def test_steps_of_clusters_take_longer_and_passes_begin() -> None:
    matrix = band()
    alone, together = (work_of(plan_of(cluster=size), matrix) for size in (1, 2))
    assert together.chain > alone.chain
    halves = work_of(plan_of(depth=4), matrix)
    assert halves.chain > alone.chain
    assert halves.launches == 2


def test_vectors_one_after_another_take_as_often_what_one_takes() -> None:
    matrix, plan = band(), plan_of(cluster=2)
    one, three = (ghost_offers.work(plan, matrix, h100(), vectors) for vectors in (1, 3))
    assert three.chain == pytest.approx(3 * one.chain)
    assert three.cycles == pytest.approx(3 * one.cycles)


#: Plans that were tuned since the fit and are priced beyond it, each until the model is mended.
_MISPRICED = {("ct2010", 4): "priced 1.58 times what it takes; why is not known"}


def _tuned() -> list[Any]:
    found = []
    for one in read_bundle(_BUNDLE).records:
        if one.plan.schedule == "ghost":
            why = _MISPRICED.get((one.matrix_name, one.key.k))
            marks = [] if why is None else [pytest.mark.xfail(reason=why, strict=True)]
            found.append(pytest.param(one, marks=marks, id=f"{one.matrix_name}-{one.key.k}"))
    return found


@pytest.mark.parametrize("record", _tuned())
def test_tuned_plans_are_priced_near_what_they_take(record: PlanRecord) -> None:
    """Fitted on these and 368 others; those in the order of METIS were priced 0.41 to 0.85 of it before."""
    made = load(record.matrix_name)
    if made is None:
        pytest.skip(f"{record.matrix_name} is not at hand")
    matrix, k = Matrix.from_any(made), record.key.k
    schedules = {schedule.name: schedule for schedule in registry.schedules("cuda")}
    model = Model(matrix, Space("cuda", k, 1, h100(), schedules, {}), derived_figures(h100(), 1), 1)
    assert 1 / 1.35 < model.seconds(record.plan) / record.seconds < 1.35
