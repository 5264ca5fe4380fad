"""Plans that were tuned for other values, and the nearest to them that fit; on a GPU that is not there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.backends import registry
from akx.backends.cuda.device.facts import CudaDevice
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.operator import planner
from akx.plandb import PlanDatabase, PlanRecord
from akx.tuner import plan_key, space
from akx.tuner.candidates.warm_start import warm_start_of
from akx.tuner.fallback import answer as ladder
from akx.tuner.fallback.nearest import changes, may_fit, nearest, nearest_in
from akx.tuner.history.kept import usable
from akx.tuner.space import build_space

H100 = CudaDevice("H100", 0, (9, 0), 132, 232_448, 233_472, 65_536, 50 * 2**20, 80 * 2**30, 1_980_000_000, 3.35e12)
LIKE = replace(H100, name="H200", memory_bytes=139 * 2**30)
#: As it is found for a 9-point grid with few different values: 108 registers for slices where those are in full.
TABLE = Plan(
    "cuda", "wavefront", "sell16-1", k=8, k_per_pass=8,
    options={"block": 512, "held_slots": 9, "helpers": 128, "slack": 1, "slices": 2, "stored": "table"},
)  # fmt: skip


def nine_points(values: Callable[[int], Any], side: int = 200) -> Matrix:
    line = sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(side, side))
    made = sp.csr_array(sp.kron(line, line))
    made.data = values(made.nnz)
    return Matrix.from_any(made)


@pytest.fixture(scope="module")
def general() -> Matrix:
    return nine_points(np.random.default_rng(3).random)


def test_one_option_gives_way_and_the_schedule_stays(general: Matrix) -> None:
    few = nine_points(lambda count: np.arange(count) % 5 + 0.1)
    schedule = registry.get("cuda", "wavefront")
    assert schedule.feasible(TABLE, few, H100) is None
    assert "registers for slices" in str(schedule.feasible(TABLE, general, H100))
    found = nearest(TABLE, general, H100, 1)
    assert found is not None
    assert found == TABLE.replace(options={**TABLE.options, "stored": "full", "slack": 0})
    assert schedule.against(found, general, H100) is None  # type: ignore[attr-defined]
    assert changes(TABLE, found) == "slack=0, stored=full"


def test_values_in_half_the_bytes_where_the_error_is_allowed(general: Matrix) -> None:
    found = nearest(TABLE, general.with_value_error(6e-8), H100, 1)
    assert found == TABLE.replace(options={**TABLE.options, "stored": "half"})


def test_where_the_chip_is_smaller_more_gives_way_and_of_equals_what_is_fewer_places_away(general: Matrix) -> None:
    small = replace(H100, registers_per_sm=H100.registers_per_sm // 2)
    found = nearest(TABLE, general, small, 1)
    assert found is not None
    assert registry.get("cuda", "wavefront").feasible(found, general, small) is None
    assert (found.schedule, found.variant, found.partitioner) == ("wavefront", "sell16-1", "natural")
    fewer = TABLE.replace(options={**TABLE.options, "held_slots": 14, "slack": 0})
    found = nearest(fewer, general, H100, 1)  # any number of fewer slots is priced alike, as long as not all are held
    assert found is not None
    assert changes(fewer, found) == "held_slots=9, stored=full"


def test_none_where_nobody_knows_what_may_give_way(general: Matrix) -> None:
    hubs = Plan("cuda", "sweep", "no such", k=8)
    assert nearest(hubs, general, H100, 1) is None
    assert nearest(TABLE.replace(schedule="no such", options={}), general, H100, 1) is None
    assert nearest(TABLE.replace(variant="sell16-3"), general, H100, 1) is None  # the variant stays
    none = replace(H100, shared_per_block=1024)
    assert nearest(TABLE, general, none, 1) is None
    there = build_space(general, 8, H100, backend="cuda", threads=1, start_vectors=1)
    assert nearest_in(there, TABLE.replace(options={**TABLE.options, "colour": "blue"}), general) is None
    assert nearest_in(there, TABLE.replace(k=9), general) is None
    assert may_fit(there, TABLE)
    assert not may_fit(there, TABLE.replace(partitioner="metis"))


# ------------------------------------------------------------------------------------------------ who asks for it


@pytest.fixture
def db(tmp_path: Path) -> PlanDatabase:
    return PlanDatabase(tmp_path / "plans.sqlite", layers=())


def record(matrix: Matrix, device: CudaDevice = H100) -> PlanRecord:
    return PlanRecord(plan_key(matrix, 8, backend="cuda", device=device), TABLE, 1e-3, "sweep/csr-1", 2e-3)


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch, db: PlanDatabase) -> Callable[[Matrix], Any]:
    """What an operator on the GPU chooses for a matrix."""
    for module in (planner, space):
        monkeypatch.setattr(module, "device_of", lambda _: H100)

    def chosen(matrix: Matrix) -> Any:
        return planner.Planner(planner.Asked(8, "monomial", db=db, backend="cuda")).choose(matrix, 1, "cuda")

    return chosen


def test_a_call_has_the_nearest_to_the_plan_of_the_database(
    general: Matrix, db: PlanDatabase, choose: Callable[[Matrix], Any]
) -> None:
    db.put(record(general))
    found = choose(general)
    assert found.plan == TABLE.replace(options={**TABLE.options, "stored": "full", "slack": 0})
    assert not found.is_predicted
    assert found.source.startswith("tuned on ")
    assert "for other values; this is the nearest plan that fits (slack=0, stored=full; there 108 reg" in found.source
    allowed = choose(general.with_value_error(6e-8))
    assert allowed.plan.options["stored"] == "half"
    few = choose(nine_points(lambda count: np.arange(count) % 5 + 0.1))
    assert few.plan == TABLE
    assert "nearest" not in few.source


def test_a_plan_of_a_like_device_is_raced_as_the_nearest_that_fits(
    general: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = plan_key(general, 8, backend="cuda", device=LIKE)
    raced = []

    def race(like: Any, predicted: Plan, call: Any) -> tuple[ladder.Answer, float]:
        raced.append(like)
        return ladder.Answer(like.plan, True, f"{like.where}, measured"), 0.0

    monkeypatch.setattr(ladder, "_answer", race)
    monkeypatch.setattr(ladder, "_VERDICTS", {})
    monkeypatch.setattr("akx.backends.cuda.device.pool.memory_pool", lambda: SimpleNamespace(budget=None))
    predicted = Plan("cuda", "sweep", "csr-1", k=8)
    found = ladder.believed([record(general)], predicted, general, key, device=LIKE, threads=1)
    assert [like.plan for like in raced] == [found.plan], found.why
    assert found.plan == TABLE.replace(options={**TABLE.options, "stored": "full", "slack": 0})
    assert found.why.endswith("as nearly as it fits (slack=0, stored=full), measured")


@pytest.mark.parametrize("field", ["device_class", "k", "this very key"])
def test_a_search_begins_with_the_nearest(general: Matrix, db: PlanDatabase, field: str) -> None:
    there = record(general, H100 if field == "k" else LIKE)
    if field == "k":
        there = replace(there, key=replace(there.key, k=4), plan=TABLE.replace(k=4, k_per_pass=4))
    db.put(there)
    asked = plan_key(general, 8, backend="cuda", device=LIKE if field == "this very key" else H100)
    spaces = build_space(general, 8, H100, backend="cuda", threads=1, start_vectors=1)
    found = warm_start_of(db, asked, spaces, general)
    seeds = {"device_class": found.like, "k": found.pattern, "this very key": ()}[field]
    if field == "this very key":  # it is no answer, and no seed; the search is given the nearest
        assert usable(there, general, H100, 1) is None
        near = nearest_in(spaces, TABLE, general)
        assert near is not None
        seeds = (near,)
    assert [plan.schedule for plan in seeds] == ["wavefront"]
    assert seeds[0].options["stored"] == "full"
    assert spaces.feasible(seeds[0], general) is None


def test_a_plan_that_would_be_stored_otherwise_is_no_answer_of_a_search(general: Matrix) -> None:
    parts = Plan("cuda", "resident", "1x1-1", k=8, k_per_pass=8, options={"block": 512, "x": "global"})
    there = replace(record(general), plan=parts)
    assert usable(there, general, H100, 1) is there
    table = replace(there, plan=parts.replace(options={**parts.options, "stored": "table"}))
    assert registry.get("cuda", "resident").feasible(table.plan, general, H100) is None
    assert usable(table, general, H100, 1) is None
