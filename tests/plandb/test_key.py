"""Keys: every field counts, nothing heavy is imported, revisions are as declared, and what ages a plan is named."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import akx
from akx.core.errors import PlanError
from akx.core.plan import Plan
from akx.plandb import FIELD_MEANINGS, PlanKey, key_of_plan, made_with, revisions_of
from akx.plandb import key as keys
from akx.plandb import make_key as key_of
from akx.plandb.key import aged_of, search_key

from .samples import make_key, make_plan, of_search

_OTHER: dict[str, Any] = {"k": 9, "start_vectors": 2, "ranks": 2, "transpose": True}
_PACKAGE = Path(next(iter(akx.__path__)))


def aged_by(plan: Plan, provenance: dict[str, Any]) -> list[str]:
    return aged_of(plan.backend, plan.schedule, provenance)


@pytest.mark.parametrize("name", [field.name for field in fields(PlanKey)])
def test_every_field_is_a_mismatch_and_another_id(name: str) -> None:
    key, other = make_key(), make_key(**{name: _OTHER.get(name, "other")})
    assert key.mismatch(other) == [name]
    assert other.mismatch(key) == [name]
    assert key.id != other.id
    assert name in FIELD_MEANINGS


def test_what_differs_is_told_by_both_values() -> None:
    key = make_key(device_class="cpu/Zen/2 cores/L2 1 MiB", dtype="float64", k=8)
    cases = {
        "another device (Xeon, L2 2 MiB, here Zen, L2 1 MiB)": make_key(device_class="cpu/Xeon/2 cores/L2 2 MiB", k=8),
        "another k (4, here 8), another number of threads (1, here all)": make_key(
            device_class=f"{key.device_class}/1 threads", k=4
        ),
        "another memory budget (9 bytes, here none)": make_key(device_class=f"{key.device_class}/budget 9 bytes", k=8),
    }
    for told, other in cases.items():
        assert keys.difference(other, key, key.mismatch(other)) == told
    near, far = make_key(device_class="cpu/Zen/2 cores/L2 4 MiB"), make_key(device_class="cuda/Zen/2 cores/L2 1 MiB")
    assert 0 == keys.device_distance(key, key) < keys.device_distance(near, key) < keys.device_distance(far, key)


def test_mismatches_are_named_together_in_order() -> None:
    assert make_key().mismatch(make_key(7, dtype="float32", ranks=2)) == ["fingerprint", "dtype", "ranks"]
    assert make_key().mismatch(make_key()) == []


def test_ids_do_not_run_fields_together() -> None:
    assert make_key(dtype="ab", index_type="c").id != make_key(dtype="a", index_type="bc").id


def test_json_round_trip() -> None:
    key = make_key(basis="Čebyšëv ☃")
    assert PlanKey.from_json(json.loads(json.dumps(key.to_json()))) == key
    assert len(key.id) == 32
    assert int(key.id, 16) >= 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "'k' is out of range"),
        ({"k": True}, "'k' is out of range"),
        ({"k": 2.0}, "'k' is out of range"),
        ({"k": 2**63}, "'k' is out of range"),
        ({"start_vectors": -1}, "'start_vectors' is out of range"),
        ({"dtype": ""}, "'dtype' is not a name"),
        ({"dtype": None}, "'dtype' is not a name"),
        ({"basis": "\udc80"}, "'basis' is not a name"),
        ({"revisions": 1}, "'revisions' is not a name"),
        ({"transpose": 1}, "'transpose' is not true or false"),
        ({"ranks": 0}, "'ranks' is out of range"),
    ],
)
def test_wrong_fields_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make_key(**change)


def test_unknown_and_missing_fields_are_named() -> None:
    data = make_key().to_json()
    with pytest.raises(PlanError, match="colour"):
        PlanKey.from_json({**data, "colour": "red"})
    data.pop("basis")
    with pytest.raises(PlanError, match="basis"):
        PlanKey.from_json(data)
    with pytest.raises(PlanError, match="list"):
        PlanKey.from_json([])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["revisions", "returns", "transpose", "ranks"])
def test_what_is_as_by_default_is_left_out_of_the_id(name: str) -> None:
    """So that a key stays the same when there is more that can be asked for."""
    key = of_search(**{name: _OTHER.get(name, "other")})
    assert name not in of_search().to_json()
    assert key.to_json()[name] == _OTHER.get(name, "other")
    assert PlanKey.from_json(key.to_json()) == key
    assert PlanKey.from_json(of_search().to_json() | {name: getattr(PlanKey, name)}) == of_search()
    assert of_search().id == "cb5855d4a7501d9b12144fcad01d4927"


def test_plans_are_kept_under_the_revisions_of_their_schedule_and_variant(
    revise: Callable[..., None],
) -> None:
    plan = make_plan()
    key = key_of_plan(of_search(), plan)
    assert key.revisions == revisions_of(plan) == "plan 1, wavefront 1, sell16 1"
    assert search_key(key) == of_search()
    revise("cpu/wavefront", revision=3)
    assert key_of_plan(key, plan) == key, "it has its own"
    assert revisions_of(plan) == "plan 1, wavefront 3, sell16 1"
    revise("cpu/wavefront", variants={"sell16": 2})
    assert revisions_of(plan) == "plan 1, wavefront 1, sell16 2"
    assert revisions_of(make_plan(variant="csr", schedule="unheard of")) == "plan 1, unheard of 1, csr 1"
    revise("cuda/sweep", variants={"csr": 4, "sell16-8": 5})
    found = [revisions_of(make_plan(backend="cuda", schedule="sweep", variant=one)) for one in _VARIANTS]
    assert [one.rpartition(" ")[2] for one in found] == ["4", "4", "1", "5"]


_VARIANTS = ("csr-8", "csr-32", "sell16-4", "sell16-8")


def test_what_a_plan_is_made_with_ages_it_where_it_differs(
    revise: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan()
    made = made_with(plan)
    assert aged_by(plan, made) == aged_by(plan, {}) == aged_by(plan, {"versions": None}) == []
    releases = {"numba": "0.61.2"}
    monkeypatch.setattr(keys, "_releases", lambda backend: releases)
    assert aged_by(plan, {"versions": {"numba": "0.61.0"}}) == [], "the minor version decides"
    assert aged_by(plan, {"versions": {"numba": "0.60.2"}}) == ["numba 0.60, now 0.61"]
    releases["numba"] = ""
    assert aged_by(plan, {"versions": {"numba": "0.60.2"}}) == [], "nobody knows"
    revise("cpu/wavefront", tokens="f" * 16, equal=("e" * 16,))
    assert aged_by(plan, {"kernels": made["kernels"]}) == ["other kernel sources"]
    assert aged_by(plan, {"kernels": "f" * 16}) == aged_by(plan, {"kernels": "e" * 16}) == []
    other = make_plan(schedule="ghost")
    assert aged_by(other, {"kernels": made_with(other)["kernels"]}) == [], "of another schedule nothing has changed"


def test_make_key_takes_the_matrix_and_the_device_as_they_are() -> None:
    matrix: Any = SimpleNamespace(fingerprint="abc", dtype="float32", index_dtype="int64")
    device: Any = SimpleNamespace(device_class="cpu/x", cores=4)
    key = key_of(matrix, 3, basis="newton", start_vectors=2, device=device)
    assert (key.fingerprint, key.dtype, key.index_type, key.basis) == ("abc", "float32", "int64", "newton")
    assert (key.k, key.start_vectors, key.device_class) == (3, 2, "cpu/x")
    assert key.revisions == ""
    assert key_of(matrix, 3, device=device, threads=4).device_class == "cpu/x"
    assert key_of(matrix, 3, device=device, threads=1).mismatch(key_of(matrix, 3, device=device)) == ["device_class"]


def test_a_lookup_imports_neither_compiler_nor_tuner(tmp_path: Path) -> None:
    program = (
        "import json, sys\n"
        "from akx.plandb import PlanDatabase, PlanKey, aged, key_of_plan, shipped_plans, stale_fields\n"
        "key = PlanKey('f', 'd', 'i', 'b', 8, 1, 'c')\n"
        "assert not any(stale_fields(record) for record in shipped_plans().records())\n"
        "assert [aged(record) for record in shipped_plans().records()]\n"
        f"print(PlanDatabase({str(tmp_path / 'plans.sqlite')!r}).find(key).explain())\n"
        "print(json.dumps(sorted({'numba', 'llvmlite', 'optuna', 'sqlalchemy'} & set(sys.modules))))\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=_PACKAGE.parent, check=True)
    first, second = done.stdout.splitlines()
    assert first == "no plan for this matrix"
    assert json.loads(second) == []
