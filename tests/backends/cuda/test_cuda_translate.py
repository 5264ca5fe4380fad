"""Patterns into slices on the device: to the bit those of the host, by the kernels' own text there; and on a GPU."""

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
from nvcc import complaints, named, needs_nvcc
from program_on_host import Call, Device
from test_contract import make_coefficients
from test_cuda_layouts import H100
from test_cuda_swept import blocks_of_mixed_sizes, plan_of, storable

import akx
import akx.formats.vbell
from akx.backends import reference, registry
from akx.backends.cuda.device.compile import compile_cubin, compiler_name, options_for
from akx.backends.cuda.device.facts import cuda_missing
from akx.backends.cuda.device.memory import DeviceArray
from akx.backends.cuda.schedules.sweep import schedule as sweeps
from akx.backends.cuda.value_compression import program as stored_program
from akx.backends.cuda.value_compression.encodings import FULL, HALF, STORED, TABLE, placed
from akx.backends.cuda.variants import slots, swept, translate, vbell
from akx.backends.cuda.variants.translate import DeviceVbell, Refusal
from akx.backends.schedule import check_feasible
from akx.core.basis import monomial
from akx.core.errors import BudgetError, DeviceMemoryError, InfeasibleError, MatrixError
from akx.core.matrix import Matrix
from akx.formats.base import Pattern
from akx.formats.natural_blocks import natural_nodes
from akx.formats.vbell import VbellArrays, lay_out
from akx.operator.planner import Asked, Planner, reason_against
from akx.operator.prepared import Prepared
from akx.operator.recurrence import Recurrence

LANES = (1, 2, 4, 8)
ORDERS = (0, 1, 12345)
on_a_gpu = pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))
on_the_host = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


# ---------------------------------------------------------------------------------------------------------- patterns


def spread(sizes: Any, near: Any) -> Any:
    """Dense blocks where `near` has entries, of nodes with these sizes."""
    of = np.repeat(np.arange(len(sizes)), sizes)
    S = sp.csr_array((np.ones(of.size), (np.arange(of.size), of)), shape=(of.size, len(sizes)))
    return sp.csr_array(S @ sp.csr_array(near) @ S.T)


def chain(nodes: int, width: int = 1) -> Any:
    reach = range(-width, width + 1)
    return sp.diags_array([np.ones(nodes)] * len(reach), offsets=list(reach), shape=(nodes, nodes))


def without(A: Any, share: float, rng: np.random.Generator) -> Any:
    """The pattern without some of its entries."""
    A = A.tocoo()
    keep = rng.random(A.nnz) >= share
    return sp.csr_array((A.data[keep], (A.coords[0][keep], A.coords[1][keep])), shape=A.shape)


def mixed_sizes(rng: np.random.Generator) -> Any:
    near = chain(90, 2) + sp.random_array((90, 90), density=0.02, rng=rng)  # unsymmetric
    return spread(rng.integers(1, 7, 90), near)


def dropped_entries(rng: np.random.Generator) -> Any:
    return without(spread(np.tile([3, 3, 4, 6], 25), chain(100, 2)), 0.02, rng)


def nearly_loose(rng: np.random.Generator) -> Any:
    """Rows that share seven tenths of their columns, or one less."""
    A = np.zeros((120, 120))
    for node in range(0, 120, 2):
        columns = rng.permutation(120)[: rng.integers(9, 12)]
        A[node, columns] = A[node + 1, columns[:7]] = 1
    return sp.csr_array(A)


def rows_alike_and_columns_not(rng: np.random.Generator) -> Any:
    """Nodes of rows that are the same, beside rows that read some of their columns alone."""
    A = spread(rng.integers(2, 6, 40), chain(40)).tolil()
    for row in range(0, A.shape[0], 17):
        A[row, rng.integers(0, A.shape[0], 3)] = 1
    return sp.csr_array(A)


def graded(rng: np.random.Generator) -> Any:
    lengths = rng.integers(0, 4, 500) + (rng.random(500) < 0.05) * rng.integers(0, 90, 500)
    rows = np.repeat(np.arange(500), lengths)
    A = sp.csr_array((np.ones(rows.size), (rows, rng.integers(0, 500, rows.size))), shape=(500, 500))
    A.sum_duplicates()
    return A


def dense_row_and_column(rng: np.random.Generator) -> Any:
    """Rows of more than a thousand entries, one like the other, one like none."""
    A = spread(rng.integers(1, 4, 600), chain(600)).tolil()
    A[5, :], A[6, :], A[:, 77] = 1, 1, 1
    A[500, : A.shape[0] // 2] = 1
    return sp.csr_array(A)


def long_runs(rng: np.random.Generator) -> Any:
    """Thousands of rows that are the same, thousands that are empty, and runs of 7 to 30 in between."""
    pieces = [np.tile(rng.choice(60, 3, replace=False), (1500, 1)), np.zeros((1700, 0), int)]
    pieces += [np.tile(rng.choice(60, 4, replace=False), (length, 1)) for length in range(7, 31)]
    pieces += [np.zeros((9, 0), int)]
    rows = [piece for group in pieces for piece in group]
    lengths = [len(row) for row in rows]
    columns = np.concatenate([np.sort(row) for row in rows])
    n = len(rows)
    return sp.csr_array((np.ones(columns.size), columns, np.append(0, np.cumsum(lengths))), shape=(n, n))


def many_kinds(rng: np.random.Generator) -> Any:
    """Counts of blocks that have more than 32 bits together."""
    near = sp.lil_array(chain(400).tocsr())
    for row in range(0, 400, 40):
        near[row, rng.random(400) < rng.random()] = 1
    return spread(rng.integers(1, 7, 400), near)


def at_the_limit(rng: np.random.Generator) -> Any:
    """Pairs of rows that share seven tenths of their columns exactly, and are better off as loose nodes."""
    A = np.zeros((120, 120))
    for node in range(0, 120, 2):
        first = 2 * rng.permutation(60)[:5]
        columns = np.ravel([first, first + 1], order="F")
        A[node, columns] = A[node + 1, columns[:7]] = 1
    return sp.csr_array(A)


PATTERNS: dict[str, Callable[[np.random.Generator], Any]] = {
    "mixed sizes": mixed_sizes,
    "dropped entries": dropped_entries,
    "nearly loose": nearly_loose,
    "at the limit": at_the_limit,
    "rows alike, columns not": rows_alike_and_columns_not,
    "no nodes": lambda rng: sp.csr_array(sp.random_array((300, 300), density=0.02, rng=rng)),
    "graded": graded,
    "dense row and column": dense_row_and_column,
    "empty rows": lambda rng: sp.csr_array(
        sp.diags_array((rng.random(330) < 0.7).astype(float)) @ spread([3] * 110, chain(110))
    ),
    "long runs": long_runs,
    "many kinds": many_kinds,
    "full": lambda rng: sp.csr_array(np.ones((83, 83))),
    "one row": lambda rng: sp.csr_array(np.ones((1, 1))),
    "one empty row": lambda rng: sp.csr_array((1, 1)),
    "no entries": lambda rng: sp.csr_array((1000, 1000)),
}


def parts_of(A: Any) -> tuple[Any, Any]:
    A = sp.csr_array(A)
    A.eliminate_zeros()
    A.sort_indices()
    return A.indptr.astype(np.uint32), A.indices.astype(np.uint32)


def of_host(pointer: Any, index: Any, lanes: int) -> tuple[VbellArrays, Any]:
    pattern = Pattern(pointer, index, pointer.size - 1)
    nodes = natural_nodes(pattern)
    return lay_out(pattern, nodes, translate.shape_of(lanes)), nodes


def is_the_hosts(A: Any, lanes: int, to_device: Callable[[Any], Any]) -> DeviceVbell:
    """The translation, every array of which is the host's to the bit."""
    pointer, index = parts_of(A)
    found = translate.translated(to_device(pointer), to_device(index), lanes)
    assert isinstance(found, DeviceVbell), found
    arrays, nodes = of_host(pointer, index, lanes)
    for name in ("head", "first", "column", "entry"):
        expected, own = getattr(arrays, name), getattr(found, name).get()
        assert (own.dtype, own.shape) == (np.uint32, expected.shape), name
        np.testing.assert_array_equal(own, expected, err_msg=name)
    assert (found.nodes, found.blocks) == (nodes.cuts.size - 1, nodes.blocks)
    assert (found.slices, found.slots) == (arrays.head.shape[0], arrays.entry.size)
    if lanes == LANES[0]:
        _are_the_hosts(nodes, translate.found_nodes(to_device(pointer), to_device(index)))
    return found


def _are_the_hosts(nodes: Any, found: Any) -> None:
    """Nodes without slices."""
    for name in ("cuts", "of", "counts", "blocks", "slots"):
        expected, own = getattr(nodes, name), getattr(found, name)
        np.testing.assert_array_equal(own, expected, err_msg=name)
        assert np.asarray(own).dtype == np.asarray(expected).dtype


def set_window(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    for module in (translate, akx.formats.vbell):
        monkeypatch.setattr(module, "WINDOW", rows)


# --------------------------------------------------------------------------------------------------------- on the host


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("translate")


@pytest.fixture
def device(built: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Blocks of few threads, so that small matrices have several chunks; any padding is allowed."""
    for name, threads in (("_LARGE", 64), ("_BLOCK", 64), ("_PLACING", 64)):
        monkeypatch.setattr(translate, name, threads)
    monkeypatch.setattr(translate, "_MOST_PADDING", 1e9)
    return host_engine.install(monkeypatch, built, (translate,), sms=3)


@on_the_host
@pytest.mark.parametrize("name", PATTERNS)
def test_the_arrays_are_the_hosts(device: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    A = PATTERNS[name](np.random.default_rng(3))
    for turn, lanes in enumerate(LANES):
        set_window(monkeypatch, max((65_536, 100, 37, 4)[turn], A.shape[0] // 80))
        device.order = ORDERS[turn % 3]
        is_the_hosts(A, lanes, host_engine.to_device)


@on_the_host
@pytest.mark.parametrize("seed", range(3))
def test_the_arrays_of_random_nodes_are_the_hosts(device: Any, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(6):
        nodes = int(rng.integers(1, 70))
        near = sp.random_array((nodes, nodes), density=float(rng.choice([0.02, 0.1, 0.3])), rng=rng)
        A = spread(rng.integers(1, rng.integers(2, 9), nodes), near + 0.5 * sp.eye_array(nodes))
        set_window(monkeypatch, int(rng.choice([1, 9, 64, 4096])))
        device.order = int(rng.choice(ORDERS))
        is_the_hosts(
            without(A, float(rng.choice([0.0, 0.03, 0.2])), rng), int(rng.choice(LANES)), host_engine.to_device
        )


@on_the_host
def test_blocks_as_large_as_those_of_a_gpu(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host_engine.install(monkeypatch, built, (translate,), sms=1)
    is_the_hosts(mixed_sizes(np.random.default_rng(4)), 1, host_engine.to_device)


@on_the_host
def test_the_patterns_are_what_they_are_for(device: Any) -> None:
    """Loose nodes win where entries were dropped, keys of many kinds take more than a word, and runs are long."""
    rng = np.random.default_rng(3)
    kinds = {}
    for name in PATTERNS:
        pointer, index = parts_of(PATTERNS[name](rng))
        runs = translate._Runs(*map(host_engine.to_device, (pointer, index)))
        nodes = natural_nodes(Pattern(pointer, index, pointer.size - 1))
        exact, loose = (int(one) for one in runs.counted.get()[:2])
        kinds[name] = (nodes.cuts.size - 1 == exact, nodes.cuts.size - 1 == loose)
        if name == "many kinds":
            differs = np.bitwise_or.reduce(nodes.counts ^ nodes.counts[0], axis=0)
            assert sum(int(one).bit_length() for one in differs) + 3 > 32
    assert kinds["dropped entries"] == kinds["at the limit"] == (False, True)
    assert kinds["mixed sizes"] == (True, True)
    assert kinds["rows alike, columns not"] == (True, False)


@on_the_host
def test_the_host_reads_once_where_nodes_are_exact(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, get = [], DeviceArray.get
    monkeypatch.setattr(DeviceArray, "get", lambda self: reads.append(self.size) or get(self))
    for made, launches, times in ((mixed_sizes, 9, 1), (dropped_entries, 14, 3)):
        reads.clear()
        device.launches.clear()
        translate.translated(*map(host_engine.to_device, parts_of(made(np.random.default_rng(3)))), 1)
        assert (len(device.launches), len(reads), max(reads)) == (launches, times, translate._COUNTED)


@on_the_host
def test_sums_of_slices_have_64_bits(device: Any) -> None:
    totals = np.random.default_rng(0).integers(0, 2**31, (3, 200)).astype(np.uint64)
    held, found = host_engine.to_device(totals), host_engine.empty(3, np.uint64)
    kernel = translate.load(translate._SOURCE, {}, device=device).kernel("add_slices_up")
    kernel.launch(1, 64, [np.uint32(200), held, found], shared=256)
    np.testing.assert_array_equal(held.get(), np.cumsum(totals, axis=1) - totals)
    np.testing.assert_array_equal(found.get(), totals.sum(axis=1))
    assert found.get().min() > 2**32


@on_the_host
def test_what_is_not_laid_out_says_why(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translate, "_MOST_PADDING", 2.0)
    A = spread(np.random.default_rng(0).integers(1, 7, 300), chain(300))
    pointer, index = parts_of(A)
    matrix = Matrix.from_any(A)
    refused = 0
    for lanes in LANES:
        found = translate.translated(host_engine.to_device(pointer), host_engine.to_device(index), lanes)
        assert found.slots == vbell.slots(matrix, lanes)
        reason = vbell.reason_against(matrix, lanes)
        refused += reason is not None
        assert (found.reason if isinstance(found, Refusal) else None) == reason
    assert 0 < refused < len(LANES)


def test_reasons_by_numbers_alone() -> None:
    assert translate.reason_of(2**31, 9, 9) == "more rows than 31 bits number"
    assert translate.reason_of(9, 2**31, 2**32) == translate.reason_of(9, 2**32, 0) == "more than 2**32 slots"
    assert translate.reason_of(9, 1000, 6097) == "padding would make it more than 2 times as large"
    assert translate.reason_of(9, 1000, 6096) is translate.reason_of(2**31 - 1, 2**32 - 1, 2**32 - 1) is None
    huge: Any = [SimpleNamespace(size=size) for size in (2**31 + 1, 2**32)]
    assert translate.translated(huge[0], huge[0], 1) == Refusal("more rows than 31 bits number")
    assert translate.translated(SimpleNamespace(size=9), huge[1], 1) == Refusal("more than 2**32 slots")


@on_the_host
def test_no_rows_at_all(device: Any) -> None:
    found = translate.translated(host_engine.to_device(np.zeros(1, np.uint32)), host_engine.empty(0, np.uint32), 1)
    assert isinstance(found, DeviceVbell)
    assert (found.slices, found.slots, found.nodes, device.launches) == (0, 0, 0, [])


# ------------------------------------------------------------------------------------------------------------ programs


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, built: Path) -> Device:
    found = Device(H100, built, "vbell", "translate")
    found.install(monkeypatch, built, [sweeps, slots, swept, vbell, translate])
    monkeypatch.setattr(translate, "_LARGE", 128)
    return found


def fresh(matrix: Matrix) -> Matrix:
    """The matrix, of which nothing is known."""
    return Matrix(matrix.indptr, matrix.indices, matrix.data, pattern_cache={}, value_error=matrix.value_error)


def decoded(program: Any, way: str) -> Any:
    """The values of a program, in their places; a table may be in any order."""
    stored = program._values.get()
    if way == TABLE:
        table = program._table.get()
        return table[stored.astype(np.int64) // table.itemsize]
    return stored.astype(program.dtype)


@on_the_host
@pytest.mark.parametrize("way", STORED)
def test_a_program_is_laid_out_without_a_pass_of_the_host(
    programs: Device, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    matrix = storable(blocks_of_mixed_sizes(120, "float64", seed=2), way)
    arrays, _ = of_host(matrix.indptr.view(np.uint32), matrix.indices.view(np.uint32), 1)
    for name in ("nodes_of", "lay_out", "sizes_of"):
        monkeypatch.delattr(vbell, name)
    program: Any = registry.get("cuda", "sweep").prepare(fresh(matrix), plan_of("vbell-1", 3, way))
    np.testing.assert_array_equal(decoded(program, way), placed(matrix.data, arrays.entry))
    held = [arrays.head, arrays.first, arrays.column, arrays.entry, program._values, program._table]
    assert program.nbytes == sum(one.nbytes for one in held) + 3 * 3 * 8
    call = Call(program, matrix)
    call.is_right(matrix)
    again = matrix.with_values(np.roll(matrix.data, 5))
    for send in (np.asarray, host_engine.to_device):
        program.update_values(send(again.data))
        call.is_right(again)
        program.update_values(send(matrix.data))
        call.is_right(matrix)
    assert program.is_as_planned


def spent(*given: Any) -> Any:
    raise DeviceMemoryError("there is none")


@on_the_host
@pytest.mark.parametrize("way", STORED)
def test_values_of_the_host_where_the_device_has_no_memory_for_them(
    programs: Device, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    matrix = storable(blocks_of_mixed_sizes(60, "float64", seed=3), way)
    program: Any = registry.get("cuda", "sweep").prepare(matrix, plan_of("vbell-1", 2, way))
    call = Call(program, matrix)
    call.is_right(matrix)
    placed_by_host = []
    monkeypatch.setattr(stored_program, "placed", lambda *given: placed_by_host.append(1) or placed(*given))
    again, other = (matrix.with_values(np.roll(matrix.data, shift)) for shift in (5, 9))
    program.update_values(other.data)
    call.is_right(other)
    assert not placed_by_host
    monkeypatch.setattr(stored_program, "to_device", spent)
    program.update_values(again.data)
    call.is_right(again)
    assert program.is_as_planned
    assert placed_by_host


@on_the_host
@pytest.mark.parametrize("way", STORED)
@pytest.mark.parametrize("spends", ["translated", "empty"])
def test_the_host_lays_out_what_the_device_has_no_memory_for(
    programs: Device, monkeypatch: pytest.MonkeyPatch, spends: str, way: str
) -> None:
    """For the translation, or for the values beside the map: then as one whose map has made room."""
    matrix = storable(blocks_of_mixed_sizes(120, "float64", seed=2), way)
    schedule, plan = registry.get("cuda", "sweep"), plan_of("vbell-1", 3, way)
    other: Any = schedule.prepare(fresh(matrix), plan)
    monkeypatch.setattr(stored_program if spends == "empty" else vbell, spends, spent)
    program: Any = schedule.prepare(fresh(matrix), plan)
    np.testing.assert_array_equal(decoded(program, way), decoded(other, way))
    held = other.nbytes - other._places.nbytes
    other.make_room()
    assert other.nbytes == program.nbytes == held
    again = matrix.with_values(np.roll(matrix.data, 5))
    for one in (program, other):
        call = Call(one, matrix)
        for send in (np.asarray, host_engine.to_device):
            call.is_right(matrix)
            one.update_values(send(again.data))
            call.is_right(again)
            one.update_values(send(matrix.data))
        assert one.is_as_planned
        assert one._places.nbytes == 4 * one._values.size  # it came with values of the device
    unfit = blocks_of_mixed_sizes(400, "float64", seed=2)
    with pytest.raises(InfeasibleError, match="padding would make it"):
        schedule.prepare(unfit, plan_of("vbell-8", 2))


@on_the_host
def test_an_operator_has_its_blocks_laid_out_on_the_device(programs: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that is given, or was tuned: nothing looks for nodes on the host."""
    matrix = blocks_of_mixed_sizes(120, "float64", seed=2)
    schedule = registry.get("cuda", "sweep")
    for name in ("nodes_of", "lay_out", "sizes_of"):
        monkeypatch.delattr(vbell, name)
    plan = plan_of("vbell-1", 3)
    monkeypatch.setattr("akx.operator.planner.device_of", lambda backend: H100)
    assert reason_against(plan, fresh(matrix), H100) is None
    assert reason_against(plan_of("vbell-1", 3, sigma=1024), fresh(matrix), H100) is not None
    seen: list[Any] = []
    prepare = schedule.prepare
    monkeypatch.setattr(schedule, "prepare", lambda *given: seen.append(prepare(*given)) or seen[-1])
    A = sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.n, matrix.n))
    operator = akx.MatrixPowers(A, 3, plan=plan, backend="cuda")
    program = operator._prepared.program(np.dtype(np.float64), 1)
    assert seen == [program]
    call = Call(program, matrix)
    call.is_right(matrix)


@on_the_host
def test_what_only_new_values_need_makes_room_in_a_budget(programs: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = blocks_of_mixed_sizes(120, "float64", seed=2)
    plan = plan_of("vbell-1", 3)
    program: Any = registry.get("cuda", "sweep").prepare(fresh(matrix), plan)
    asked = Asked(3, "monomial", plan)
    prepared = Prepared(matrix, Planner(asked), Recurrence(monomial(3), matrix.dtype))
    vectors = 5 * matrix.n * 8
    budget = program.nbytes + vectors
    prepared.planner.asked = replace(asked, budget=budget)
    prepared.check_budget(plan, program, matrix.dtype, 1)
    assert program._places.nbytes > 0
    prepared.planner.asked = replace(asked, budget=budget - 1)
    prepared.check_budget(plan, program, matrix.dtype, 1)
    assert program._places.nbytes == 0
    prepared.planner.asked = replace(asked, budget=program.nbytes + vectors - 1)
    with pytest.raises(BudgetError):
        prepared.check_budget(plan, program, matrix.dtype, 1)


@on_the_host
def test_indices_of_64_bits_are_laid_out_too(programs: Device) -> None:
    narrow = blocks_of_mixed_sizes(60, "float64", seed=3)
    wide = Matrix(narrow.indptr.astype(np.int64), narrow.indices.astype(np.int64), narrow.data, pattern_cache={})
    program: Any = registry.get("cuda", "sweep").prepare(wide, plan_of("vbell-2", 2))
    Call(program, narrow).is_right(narrow)


@on_the_host
def test_values_of_other_types_and_numbers(programs: Device) -> None:
    matrix = blocks_of_mixed_sizes(60, "float32", seed=3)
    program: Any = registry.get("cuda", "sweep").prepare(matrix, plan_of("vbell-1", 2))
    call = Call(program, matrix)
    wide = matrix.data.astype(np.float64) * 2
    program.update_values(wide)
    call.is_right(matrix.with_values(wide.astype(np.float32)))
    with pytest.raises(MatrixError, match="do not fit the pattern"):
        program.update_values(wide[1:])


@on_the_host
def test_a_program_without_entries(programs: Device) -> None:
    matrix = Matrix.from_any(sp.csr_array((40, 40)))
    for way in (FULL, HALF, TABLE):
        program: Any = registry.get("cuda", "sweep").prepare(fresh(matrix), plan_of("vbell-2", 2, way))
        Call(program, matrix).is_right(matrix)
        program.update_values(matrix.data)


@on_the_host
def test_an_infeasible_plan_is_refused_with_the_words_of_the_host(
    programs: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule, plan = registry.get("cuda", "sweep"), plan_of("vbell-8", 2)
    matrix = blocks_of_mixed_sizes(400, "float64", seed=2)
    with pytest.raises(InfeasibleError) as of_the_host:
        check_feasible(schedule, plan, matrix, H100)
    for name in ("nodes_of", "lay_out", "sizes_of"):
        monkeypatch.delattr(vbell, name)
    unseen = fresh(matrix)
    for _ in range(2):  # the second time the host knows
        with pytest.raises(InfeasibleError, match="padding would make it") as found:
            schedule.prepare(unseen, plan)
        assert str(found.value) == str(of_the_host.value)
    assert schedule.feasible(plan, unseen, H100) is not None
    with pytest.raises(InfeasibleError, match="sigma is for sliced ELL"):
        schedule.prepare(fresh(matrix), plan_of("vbell-1", 2, sigma=1024))


# ----------------------------------------------------------------------------------------------------------- compiling


@needs_nvcc
def test_the_source_compiles_for_gpus_without_spills(tmp_path: Path) -> None:
    assert not (text := complaints([(named("translate.cu"), {})], tmp_path, ["-Xptxas", "-warn-spills"])), text


def test_nvrtc_takes_the_source_too() -> None:
    if not (compiler_name() or "").startswith("NVRTC"):
        pytest.skip("NVRTC is not installed")
    assert compile_cubin(named("translate.cu"), options_for({}), "sm_90")


# ------------------------------------------------------------------------------------------------------------ on a GPU


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("threads", [64, 1024])
@pytest.mark.parametrize("name", PATTERNS)
def test_translated_on_a_gpu(monkeypatch: pytest.MonkeyPatch, name: str, threads: int) -> None:
    """With blocks of few threads, so that there are several chunks of rows, and with those that are used."""
    from akx.backends.cuda.device.memory import to_device

    monkeypatch.setattr(translate, "_LARGE", threads)
    monkeypatch.setattr(translate, "_MOST_PADDING", 1e9)
    A = PATTERNS[name](np.random.default_rng(3))
    for lanes, window in ((1, 65_536), (4, 37)):
        set_window(monkeypatch, window)
        is_the_hosts(A, lanes, to_device)


def of_benchmarks(name: str) -> Any:
    from benchmarks import elements, products

    return products.wind() if name == "wind" else getattr(elements, name)()


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("name", ["brick", "shell", "tetrahedra", "wind"])
def test_the_arrays_of_the_gallery_on_a_gpu(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The same arrays, time after time, and again where entries were dropped, so that nodes are loose."""
    from akx.backends.cuda.device.memory import to_device

    monkeypatch.setattr(translate, "_MOST_PADDING", 1e9)
    A = of_benchmarks(name)
    for lanes in (1, 1, 2, 8):
        is_the_hosts(A, lanes, to_device)
    is_the_hosts(without(A, 0.02, np.random.default_rng(0)), 1, to_device)


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("way", STORED)
def test_programs_of_the_gallery_on_a_gpu(way: str) -> None:
    for name in ("brick", "wind"):
        matrix = storable(Matrix.from_any(of_benchmarks(name)), way)
        program: Any = registry.get("cuda", "sweep").prepare(fresh(matrix), plan_of("vbell-1", 3, way))
        assert program.is_as_planned
        for other in (matrix, matrix.with_values(np.roll(matrix.data, 7))):
            program.update_values(other.data)
            x = np.random.default_rng(1).standard_normal((1, matrix.n))
            coefficients = make_coefficients("monomial", 3, "float64", np.random.default_rng(2))
            found = np.full((4, 1, matrix.n), np.nan)
            program.run(x, found, coefficients)
            assert reference.error_ratio(other, found, x, coefficients) <= 1
