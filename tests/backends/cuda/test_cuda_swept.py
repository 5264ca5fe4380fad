"""Variants of the GPU's `sweep` and what they store values as: the kernels themselves on the host, and on a GPU.

On the host they are the CUDA text, compiled by g++ (host_engine.py); `hubs` has a file of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import host_engine
import numpy as np
import pytest
import scipy.sparse as sp
from nightly import mostly_nightly
from program_on_host import Device, poisoned_powers
from test_contract import DTYPES, KINDS, make_coefficients, make_matrix, random_numbers
from test_cuda import run_twice
from test_cuda_layouts import H100

from akx.backends import reference, registry
from akx.backends.cuda import row_lengths as lengths
from akx.backends.cuda.device.facts import cuda_missing
from akx.backends.cuda.matrix import transpose
from akx.backends.cuda.schedules.sweep import schedule as sweep
from akx.backends.cuda.value_compression.encodings import FULL, HALF, STORED, TABLE, error_of
from akx.backends.cuda.variants import hot_columns as hubs
from akx.backends.cuda.variants import slots, swept, translate, vbell
from akx.backends.cuda.variants.hot_columns import HUBS
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner.space import build_space, is_baseline

#: One of each layout, and of each way to sum rows up.
NAMES = ("csr-1", "csr-8", "csr-32", "sell-1", "sell-4", "sell16-2", "sell16-8", "pcsr", "rows16", HUBS)
BLOCKS = ("vbell-1", "vbell-2", "vbell-8")
#: Those with blocks of one size.
FIXED = ("pcsr", "rows16", HUBS)
LAYOUTS = ("csr-4", "sell16-2", "pcsr", "rows16", HUBS, "vbell-1", "vbell-4")


def blocks_of_mixed_sizes(nodes: int, dtype: str, seed: int = 0, most: int = 6, entries: int = 9) -> Matrix:
    """Nodes of 1 to `most` unknowns, each with some others, in dense blocks; a few without any but their own."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most + 1, nodes)
    row = np.repeat(np.arange(nodes), entries)
    column = np.clip(row + rng.integers(-9, 10, row.size), 0, nodes - 1)
    keep = rng.random(nodes) < 0.9
    near = sp.csr_array((np.ones(row.size), (row, column)), shape=(nodes, nodes))
    near = sp.csr_array(sp.diags_array(keep.astype(float)) @ near + sp.eye_array(nodes))
    spread = sp.csr_array((np.ones(sizes.sum()), (np.arange(sizes.sum()), np.repeat(np.arange(nodes), sizes))))
    A = sp.csr_array(spread @ near @ spread.T)
    A.data = random_numbers(rng, A.nnz, dtype) / 8
    return Matrix.from_any(A.astype(dtype))


def storable(matrix: Matrix, way: str) -> Matrix:
    """The pattern with values that can be stored so."""
    rng = np.random.default_rng(matrix.nnz)
    if way == TABLE:
        return matrix.with_values(random_numbers(rng, 40, matrix.dtype.name)[rng.integers(0, 40, matrix.nnz)])
    if way == HALF:
        narrow = {"float64": "float32", "complex128": "complex64"}[matrix.dtype.name]
        return matrix.with_values(matrix.data.astype(narrow).astype(matrix.dtype))
    return matrix


def ways_for(dtype: str) -> tuple[str, ...]:
    return STORED if dtype in ("float64", "complex128") else (FULL, TABLE)


def plan_of(variant: str, k: int, way: str = FULL, **options: Any) -> Plan:
    room = {"hubs": 1} if variant == HUBS else {}
    return Plan("cuda", "sweep", variant, k=k, k_per_pass=1, options={"stored": way, **room, **options})


# ------------------------------------------------------------------------------------------------------- on the host

on_the_host = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("swept")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, libraries: Path) -> Device:
    sources = ("sweep", "slots", "lengths", "transpose", "vbell", "hubs", "hubs_layout", "translate")
    found = Device(SimpleNamespace(sms=2), libraries, *sources)
    found.install(monkeypatch, libraries, [sweep, slots, lengths, transpose, swept, vbell, hubs, translate])
    monkeypatch.setattr(translate, "_LARGE", 128)
    monkeypatch.setattr(hubs, "THREADS", 96)
    return found


def check(device: Device, matrix: Matrix, plan: Plan, turn: int = 0, vectors: int = 0) -> Any:
    """The program, which is right for so many start vectors, one to three by default."""
    rng = np.random.default_rng(turn)
    basis = ("chebyshev", "newton", "monomial")[turn % 3]
    coefficients = make_coefficients(basis, plan.k, matrix.dtype.name, rng)
    x = random_numbers(rng, (vectors or 1 + turn % 3, matrix.n), matrix.dtype.name)
    program = made(plan, matrix, device)
    assert reference.error_ratio(matrix, poisoned_powers(device, program, x, coefficients), x, coefficients) <= 1, (
        plan.label()
    )
    return program


def made(plan: Plan, matrix: Matrix, device: Device) -> Any:
    if plan.variant == HUBS:
        return hubs.HubsProgram(matrix, plan, device.facts, plan.options["stored"])
    if plan.variant.startswith("vbell"):
        return vbell.made_on_device(matrix, plan, device.facts, str(plan.options["stored"]))
    return sweep._SweepProgram(matrix, plan, device.facts, str(plan.options["stored"]))


def fits(matrix: Matrix, plan: Plan) -> bool:
    return registry.get("cuda", "sweep").feasible(plan.replace(options={}), matrix, H100) is None


@on_the_host
@pytest.mark.parametrize("dtype", mostly_nightly(["float64", "complex64"], ["complex64"]))
@pytest.mark.parametrize("kind", KINDS)
def test_every_layout_is_right_on_the_host(device: Device, kind: str, dtype: str) -> None:
    tried = 0
    for turn, n in enumerate((1, 37, 300)):
        for variant in (*NAMES, *BLOCKS):
            way = ways_for(dtype)[len(variant) % len(ways_for(dtype))]  # all ways are below
            matrix, plan = storable(make_matrix(kind, n, dtype, turn), way), plan_of(variant, 1 + turn, way)
            if fits(matrix, plan):
                check(device, matrix, plan, turn, vectors=2)
                tried += 1
    assert tried >= 20


@on_the_host
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", LAYOUTS)
def test_every_way_to_store_values_is_right_on_the_host(device: Device, variant: str, dtype: str) -> None:
    for turn, way in enumerate(ways_for(dtype)):
        most = 2 if variant == "vbell-4" else 6  # of many sizes lanes make too many zeros
        matrix = storable(blocks_of_mixed_sizes(60, dtype, seed=turn, most=most), way)
        plan = plan_of(
            variant, 3, way, once=turn == 1, **({} if variant in FIXED else {"block": (256, 512, 128)[turn]})
        )
        program = check(device, matrix, plan, turn)
        names = {"half": {"float64": "float", "complex128": "cfloat"}.get(dtype), "table": "u16"}
        assert device.loaded[-1]["AKX_STORED"] == (names.get(way) or device.loaded[-1]["AKX_VALUE"])
        assert program.stored_error == 0


@on_the_host
@pytest.mark.parametrize("variant", ["csr-1", "csr-8", "sell-1", "sell16-4", "rows16"])
def test_rows_of_many_slots_a_lane_on_the_host(device: Device, variant: str) -> None:
    """Fours of slots, and what is left of them: none, one, two or three."""
    for entries in (1, 4, 9, 24, 70):
        matrix = blocks_of_mixed_sizes(40, "float64", seed=entries, entries=entries)
        check(device, matrix, plan_of(variant, 2, once=entries == 9, early=entries == 24), entries)


@on_the_host
@pytest.mark.parametrize("variant", LAYOUTS)
def test_values_with_an_error_that_is_allowed_on_the_host(device: Device, variant: str) -> None:
    plain = blocks_of_mixed_sizes(50, "float64", seed=3)
    allowed = plain.with_value_error(1e-6)
    program = check_with_error(device, allowed, plan_of(variant, 3, HALF))
    assert 0 < program.stored_error == error_of(allowed, HALF) <= 2.0**-24


def check_with_error(device: Device, matrix: Matrix, plan: Plan) -> Any:
    rng = np.random.default_rng(8)
    coefficients = make_coefficients("monomial", plan.k, "float64", rng)
    x = random_numbers(rng, (1, matrix.n), "float64")
    program = made(plan, matrix, device)
    found = poisoned_powers(device, program, x, coefficients)
    narrow = matrix.with_values(matrix.data.astype(np.float32).astype(np.float64))
    assert reference.error_ratio(narrow, found, x, coefficients) <= 1  # the powers of what is stored
    assert reference.error_ratio(matrix, found, x, coefficients) > 1  # and of nothing else
    return program


@on_the_host
@pytest.mark.parametrize("way", STORED)
@pytest.mark.parametrize("variant", ["csr-4", "sell16-2", "pcsr", HUBS, "vbell-4"])
def test_new_values_on_the_host(device: Device, variant: str, way: str) -> None:
    """From the host and from the device; of more kinds than a table has, they are in full from then on."""
    first = storable(blocks_of_mixed_sizes(40, "float64", seed=1), way)
    rng = np.random.default_rng(5)
    x, coefficients = random_numbers(rng, (2, first.n), "float64"), make_coefficients("newton", 2, "float64", rng)
    for send in (np.asarray, host_engine.to_device):
        program = made(plan_of(variant, 2, way), first, device)
        poisoned_powers(device, program, x, coefficients)
        again = first.with_values(np.roll(first.data, 7))
        for other, as_planned in ((again, True), (first.with_values(rng.standard_normal(first.nnz)), way == FULL)):
            program.update_values(send(other.data))
            assert program.is_as_planned == as_planned
            found = poisoned_powers(device, program, x, coefficients)
            assert reference.error_ratio(other, found, x, coefficients) <= 1
        program.update_values(send(again.data))  # in full from here on
        assert reference.error_ratio(again, poisoned_powers(device, program, x, coefficients), x, coefficients) <= 1


@on_the_host
@pytest.mark.parametrize("variant", LAYOUTS)
def test_a_matrix_that_l2_keeps_some_of_and_steps_that_begin_early_on_the_host(device: Device, variant: str) -> None:
    matrix = blocks_of_mixed_sizes(60, "float64", seed=2, most=2)
    for options, how in (({"once": True}, 1), ({"once": True, "keep": 8, "early": True}, 2), ({"early": True}, 0)):
        device.threads.early = []
        check(device, matrix, plan_of(variant, 3, **options), vectors=1)
        assert device.loaded[-1]["AKX_ONCE"] == how
        told = [early for name, early in device.threads.early if name in ("gather", "step", "join")]
        calls, early = np.array(told).reshape(3, -1), "early" in options
        assert calls.shape[1] >= 3
        assert calls[:, 1:].all() == calls[:, 1:].any() == early
        assert not calls[:, 0].any()  # it comes after whatever was queued before: new values, say


def test_the_share_that_l2_keeps_is_that_of_values_and_columns(device: Device) -> None:
    matrix = make_matrix("band", 300_000, "float64", 0)
    for variant, column in (("csr-1", 4.0), ("sell16-1", 2.0)):
        program = made(plan_of(variant, 2, once=True, keep=8), matrix, device)
        share = 256 * 8 * 2**20 / (matrix.nnz * (8 + column))
        assert 0.9 * share - 1 <= int(program.kept(program._before[-1])) <= share + 1 < 256
        assert int(made(plan_of(variant, 2, once=True), matrix, device).kept()) == 0
        assert int(made(plan_of(variant, 2, once=True, keep=32), matrix, device).kept()) == 256


@on_the_host
def test_no_entries_at_all_on_the_host(device: Device) -> None:
    matrix = Matrix.from_any(sp.csr_array((40, 40)))
    for variant in ("csr-2", "sell-1", "pcsr", HUBS):
        for way in (FULL, HALF, TABLE):
            program = check(device, matrix, plan_of(variant, 2, way), 1)
            program.update_values(host_engine.to_device(matrix.data))


# --------------------------------------------------------------------------------------------------- what is offered


def test_blocks_are_offered_where_there_are_some() -> None:
    schedule = registry.get("cuda", "sweep")

    def variants(matrix: Matrix) -> set[str]:
        parameters = {one.name: one for one in schedule.space(matrix, H100, 4)}
        return {str(choice) for choice in parameters["variant"].choices}

    assert {"vbell-1", "vbell-2"} <= variants(blocks_of_mixed_sizes(2000, "float64"))
    assert not [one for one in variants(make_matrix("band", 4000, "float64", 0)) if one.startswith("vbell")]
    offered = schedule.heuristic_plans(blocks_of_mixed_sizes(2000, "float64"), H100, 4)
    assert any(plan.variant.startswith("vbell") for plan in offered)


def test_plain_products_have_values_in_full() -> None:
    matrix = storable(blocks_of_mixed_sizes(2000, "float64"), TABLE)
    schedule = registry.get("cuda", "sweep")
    starts = schedule.starts(matrix, H100, 4)
    assert starts
    assert {plan.options["stored"] for plan in starts} == {TABLE}
    assert len({plan.variant.split("-")[0] for plan in starts}) == len(starts)
    assert not any(is_baseline(plan) for plan in starts)
    space = build_space(matrix, 4, H100, backend="cuda", threads=1)
    assert all(is_baseline(plan) for plan in space.baselines(matrix))
    assert all(plan.typed.stored == FULL for plan in space.baselines(matrix))
    assert schedule.starts(matrix.with_values(np.random.default_rng(1).standard_normal(matrix.nnz)), H100, 4) == ()


def test_what_passes_l2_is_offered_where_the_matrix_may_be_larger() -> None:
    schedule = registry.get("cuda", "sweep")
    small, large = make_matrix("band", 3000, "float64", 0), make_matrix("band", 1_500_000, "float64", 0)
    older = replace(H100, compute_capability=(8, 0))

    def names(matrix: Matrix, device: Any) -> set[str]:
        return {one.name for one in schedule.space(matrix, device, 4)}

    assert names(large, H100) - names(small, H100) == {"keep"}
    assert names(large, H100) - names(large, older) == {"early"}
    for device in (H100, older):
        early = device is H100
        offers = schedule.heuristic_plans(large, device, 4)
        passing = [one.options for one in offers if one.variant.startswith(("sell", "pcsr"))]
        assert len(passing) >= 9
        assert all((one["once"], one["keep"]) == (True, 16) for one in passing)
        assert not any(one.typed.keep for one in offers if one.variant.startswith("csr"))
        assert all(one.typed.early == early for one in offers)
        starts = schedule.starts(large, device, 4)
        assert all((one.options["keep"], one.typed.early) == (16, early) for one in starts)
        assert len(starts) == 2
        assert all(is_baseline(one) for one in starts)
    assert not any(plan.typed.keep or plan.typed.once for plan in schedule.heuristic_plans(small, H100, 4))
    assert all(plan.typed.early for plan in schedule.heuristic_plans(small, H100, 4))


def test_what_stays_in_l2_is_not_counted_again() -> None:
    schedule, matrix = registry.get("cuda", "sweep"), make_matrix("band", 1_500_000, "float64", 0)
    older = replace(H100, compute_capability=(8, 0))
    passing = plan_of("sell16-1", 8, once=True)
    kept, early = (passing.replace(options={**passing.options, **one}) for one in ({"keep": 16}, {"early": True}))
    assert schedule.feasible(kept, matrix, H100) is None
    refused = passing.replace(options={**passing.options, "once": False, "keep": 16})
    assert "once=True" in (schedule.feasible(refused, matrix, H100) or "")
    full, less = (schedule.traffic(plan, matrix, H100).matrix_bytes for plan in (passing, kept))
    assert full - less == 7 * 16 * 2**20
    whole, part, soon = (schedule.work(plan, matrix, H100, 1) for plan in (passing, kept, early))
    assert part.memory_bytes < whole.memory_bytes == soon.memory_bytes
    assert soon.launches < whole.launches == part.launches
    assert schedule.waste(kept, matrix, H100) is schedule.waste(early, matrix, H100) is None
    assert "8.0" in (schedule.waste(early, matrix, older) or "")
    assert "of 0." in (schedule.waste(kept, make_matrix("band", 3000, "float64", 0), H100) or "")


@pytest.mark.parametrize("way", [HALF, TABLE])
def test_what_cannot_be_stored_so_is_not_tried_and_fewer_bytes_are_counted(way: str) -> None:
    schedule, pattern = registry.get("cuda", "sweep"), blocks_of_mixed_sizes(2000, "float64")
    matrix = storable(pattern, way)
    for variant in ("csr-4", "sell-1", "vbell-1"):
        plan, full = plan_of(variant, 4, way), plan_of(variant, 4)
        assert schedule.waste(plan, matrix, H100) is None
        assert "the same as full" in (schedule.waste(plan, pattern, H100) or "")
        narrow, wide = (schedule.traffic(one, matrix, H100).cache_bytes for one in (plan, full))
        assert narrow < wide - 4 * (8 - {HALF: 4, TABLE: 2}[way]) * 0.99 * matrix.nnz
        assert schedule.work(plan, matrix, H100, 1).cache_bytes < schedule.work(full, matrix, H100, 1).cache_bytes
        assert schedule.traffic(plan, pattern, H100) == schedule.traffic(full, pattern, H100)


# --------------------------------------------------------------------------------------------------------- on a GPU

on_a_gpu = pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", [*NAMES[:-1], HUBS, "vbell-1", "vbell-2", "vbell-4", "vbell-8"])
def test_variants_are_right(variant: str, dtype: str) -> None:
    room = {"hubs": 32} if variant == HUBS else {}
    most = {"vbell-2": 3, "vbell-4": 2, "vbell-8": 1}.get(variant, 6)  # of many sizes lanes make many zeros
    tried = set()
    for turn, (way, nodes) in enumerate((way, nodes) for way in ways_for(dtype) for nodes in (301, 3011)):
        matrix = storable(blocks_of_mixed_sizes(nodes, dtype, seed=turn, most=most, entries=24), way)
        block = {} if variant in FIXED else {"block": (128, 256, 512)[turn % 3]}
        passing = {"once": turn % 2 == 1, "keep": (0, 8)[turn % 4 == 3], "early": turn % 3 > 0}
        plan = plan_of(variant, 4, way, **passing, **room, **block)
        if not fits(matrix, plan):
            continue
        tried.add(way)
        rng = np.random.default_rng(turn)
        x = random_numbers(rng, (1 + turn % 3, matrix.n), dtype)
        coefficients = make_coefficients(("monomial", "chebyshev")[turn % 2], 4, dtype, rng)
        found = run_twice(plan, matrix, x, coefficients)
        assert reference.reference(matrix, x, coefficients).error_ratio(found) <= 1, plan.label()
    assert tried == {*ways_for(dtype)}


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("way", STORED)
@pytest.mark.parametrize("variant", ["csr-4", "sell16-2", "pcsr", HUBS, "vbell-4"])
def test_new_values(variant: str, way: str) -> None:
    from akx.backends.cuda.device.memory import to_device

    room = {"hubs": 32} if variant == HUBS else {}
    first = storable(blocks_of_mixed_sizes(1500, "float64", seed=1, most=2), way)
    rng = np.random.default_rng(5)
    x, coefficients = random_numbers(rng, (1, first.n), "float64"), make_coefficients("newton", 3, "float64", rng)
    places: tuple[Callable[[Any], Any], ...] = (np.asarray, to_device)
    for place in places:
        program = registry.get("cuda", "sweep").prepare(first, plan_of(variant, 3, way, **room))
        for other in (first.with_values(np.roll(first.data, 7)), first.with_values(rng.standard_normal(first.nnz))):
            program.update_values(place(other.data))
            found = np.full((4, *x.shape), np.nan)
            program.run(x, found, coefficients)
            assert reference.reference(other, x, coefficients).error_ratio(found) <= 1


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("variant", LAYOUTS)
def test_steps_that_begin_early_have_the_same_bits(variant: str) -> None:
    """Blocks of a step that run beside the step before, again and again; values that come right before a call."""
    from akx.backends.cuda.device.memory import empty, to_device

    n, rng = 60_001, np.random.default_rng(3)
    most = 2 if variant == "vbell-4" else 6
    first = blocks_of_mixed_sizes(n // 3, "float64", seed=1, most=most, entries=24)
    x = random_numbers(rng, (1, first.n), "float64")
    coefficients = make_coefficients("chebyshev", 12, "float64", rng)
    room = {"hubs": 32} if variant == HUBS else {}
    values = [to_device(np.roll(first.data, turn)) for turn in range(12)]
    given, found = to_device(x), []
    for options in ({}, {"once": True, "keep": 8}, {"early": True}, {"once": True, "keep": 8, "early": True}):
        program = registry.get("cuda", "sweep").prepare(first, plan_of(variant, 12, **options, **room))
        outs = [empty((13, *x.shape), np.float64) for _ in values]
        for _ in range(3):  # queued, recorded, and by the graph
            for data, out in zip(values, outs, strict=True):
                out.fill_bytes(255)
                program.update_values(data)
                program.run(given, out, coefficients)
        found.append([out.get() for out in outs])
    wanted = reference.reference(first.with_values(np.roll(first.data, 11)), x, coefficients)
    assert wanted.error_ratio(found[0][11]) <= 1
    for other in found[1:]:
        assert [one.tobytes() for one in other] == [one.tobytes() for one in found[0]]
