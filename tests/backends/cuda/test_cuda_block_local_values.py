"""`resident` with values stored in other ways than in full, and given new ones, by its kernel on the host."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import host_engine
import numpy as np
import pytest
import scipy.sparse as sp
from nightly import mostly_nightly
from program_on_host import Call, Device, drops_all_graphs, widens_narrow_values
from test_contract import random_numbers
from test_cuda_block_local import large, make, small_gpu
from test_cuda_wavefront_layout import NOT_FULL, storable

from akx.backends import registry
from akx.backends.cuda import program as programs
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.program import C_TYPES
from akx.backends.cuda.schedules.resident import layout as resident_layout
from akx.backends.cuda.schedules.resident import schedule as resident
from akx.backends.cuda.value_compression import new_values as values
from akx.backends.cuda.value_compression import on_device as stored_values
from akx.backends.cuda.value_compression import program as stored_program
from akx.backends.cuda.value_compression.encodings import (
    FULL,
    HALF,
    TABLE,
    encoded,
    in_full,
    table_bytes,
    way_of,
    ways_of,
)
from akx.backends.cuda.variants.block_local import exchange
from akx.backends.cuda.variants.block_local import layout as block_layout
from akx.backends.cuda.variants.block_local import layout_on_device as parts_layout
from akx.backends.cuda.variants.block_local import program as parts
from akx.backends.cuda.variants.block_local.layout import slot_bytes
from akx.backends.cuda.variants.block_local.program import PartsProgram
from akx.core.errors import DeviceError, DeviceMemoryError, InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from benchmarks.gallery import stencil

SCHEDULE: Any = registry.get("cuda", "resident")
OPTIONS: dict[str, Option] = {"block": 256, "held_slices": 1, "held_slots": 2}
#: Layouts: the order of rows, and options.
LAYOUTS: list[tuple[str, dict[str, Option]]] = [
    ("natural", {}),
    ("metis", {"depth": 2, "vectors": 2}),
    ("natural", {"x": "global", "blocks_per_sm": 2}),
    ("metis", {"results": "staged", "vectors": 2}),
]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Device:
    return resident_device(monkeypatch, tmp_path)


def resident_device(monkeypatch: pytest.MonkeyPatch, folder: Path, *modules: Any) -> Device:
    found = Device(small_gpu(3, 11_000), folder, "parts")
    found.install(monkeypatch, folder, [parts, resident, *modules])
    return found


def plan_of(way: str, order: str = "natural", k: int = 4, **options: Option) -> Plan:
    return Plan("cuda", "resident", "1x1-2", order, k, k, options={**OPTIONS, **options, "stored": way})


def matrix_of(dtype: str, seed: int = 0) -> Matrix:
    """A grid, with values as many as there are entries, of all bits of their type."""
    A = sp.csr_array(stencil((19, 13), 9))
    A.data = random_numbers(np.random.default_rng(seed), A.nnz, "complex128") / 3
    return Matrix.from_any((A if np.dtype(dtype).kind == "c" else A.real).astype(dtype))


def prepared(matrix: Matrix, plan: Plan) -> Any:
    assert SCHEDULE.feasible(plan, matrix, resident.cuda_device()) is None
    return SCHEDULE.prepare(matrix, plan)


def needed(matrix: Matrix, plan: Plan) -> int:
    """Bytes of shared memory that a block takes without any slots."""
    with pytest.raises(InfeasibleError, match="x does not fit") as refusal:
        resident_layout.lay_out_resident(matrix, plan, small_gpu(3, 100))
    return int(refusal.value.found.split()[0])


def facts_for(matrix: Matrix, plan: Plan) -> CudaDevice:
    """A device with room for a few slots of each part, so that they are in registers, in shared memory, and in neither.

    Where values are in full there is room for at least one slot.
    """
    per_sm, room = plan.typed.blocks_per_sm, needed(matrix, plan) + 1_100
    return replace(small_gpu(3, room), shared_per_sm=per_sm * (room + 1024))


def sent(data: Any, source: str) -> Any:
    return host_engine.to_device(data) if source == "device" else data


def state_of(program: Any) -> dict[str, Any]:
    """What a program has: the objects themselves, and what is in those that can be changed."""
    found = dict(vars(program))
    return found | {f"in {name}": one.copy() for name, one in found.items() if isinstance(one, (list, dict))}


def is_same(now: dict[str, Any], before: dict[str, Any]) -> bool:
    return now.keys() == before.keys() and all(
        now[name] == one if name.startswith("in ") or isinstance(one, float) else now[name] is one
        for name, one in before.items()
    )


@pytest.mark.parametrize("source", ["host", "device"])
@pytest.mark.parametrize(("order", "options"), mostly_nightly(LAYOUTS))
@pytest.mark.parametrize(("way", "dtype"), NOT_FULL)
def test_new_values_are_stored_as_the_old_ones_while_they_can_be(
    device: Device, way: str, dtype: str, order: str, options: dict[str, Option], source: str
) -> None:
    """Then in full, in another layout, by other kernels and graphs, and so it stays."""
    plan, full = plan_of(way, order, **options), C_TYPES[dtype]
    matrix = storable(matrix_of(dtype), way, 0)
    device.facts = facts_for(matrix, plan)
    call = Call(prepared(matrix, plan), matrix, 3)
    program = call.program
    assert program.is_as_planned
    call.is_right(matrix)
    assert [graph is not None for graph in program._graphs.values()] == [True]
    before, was, sizes = program.nbytes, state_of(program), list(program.kernels)
    for seed in (2, 3):
        fresh = storable(matrix_of(dtype, seed), way, seed)
        assert fresh.data.tobytes() != matrix.data.tobytes()
        program.update_values(sent(fresh.data, source))
        call.is_right(fresh, 2)
        assert is_same(state_of(program), was)
        assert program.nbytes == before  # the map is there from the beginning
    assert {given["AKX_STORED"] == full for given in device.loaded} == {False}
    assert {given["AKX_HELD_SLICES"] for given in device.loaded} == {1}
    other, count = matrix_of(dtype, 9), len(device.loaded)
    assert encoded(other.data, way, program._tabled or None) is None
    program.update_values(sent(other.data, source))
    assert not program.is_as_planned
    assert not program._graphs
    assert list(program.kernels) == sizes  # before the next call asks for them
    assert len(device.loaded) == 2 * count == 2 * len(sizes)
    assert {given["AKX_STORED"] for given in device.loaded[count:]} == {full}
    assert {given["AKX_HELD_SLICES"] for given in device.loaded[count:]} == {1}  # there are registers enough
    assert program._laid_out is not was["_laid_out"]
    held = set(map(id, program._arrays))
    assert not held & set(map(id, was["in _arrays"]))
    of_layout = [program._values, program._columns, program._table, program._flags, *program._tables]
    of_layout += program._stage if plan.typed.results == "staged" else program._ring
    assert {id(array) for array in (*of_layout, *program._active.values())} == held  # all else is given back
    call.is_right(other)
    whole = prepared(other, in_full(plan)).nbytes
    assert program.nbytes == whole
    now = state_of(program)
    for fresh in (matrix, matrix_of(dtype, 10)):
        program.update_values(sent(fresh.data, source))
        call.is_right(fresh, 2)
    assert is_same(state_of(program), now)
    assert not program.is_as_planned
    assert len(device.loaded) == 2 * count
    assert program.nbytes == whole


@pytest.mark.parametrize(("order", "options"), LAYOUTS)
def test_tiers_of_the_program(device: Device, order: str, options: dict[str, Option]) -> None:
    """The layouts here have slots in all places, and fewer that are nowhere on the chip where they take less."""
    for way, dtype in NOT_FULL:
        matrix, plan, fars = storable(matrix_of(dtype), way, 0), plan_of(way, order, **options), []
        device.facts = facts_for(matrix, plan)
        bare = in_full(plan).replace(options={**in_full(plan).options, "held_slices": 0, "held_slots": 1})
        for one in (plan, bare):
            laid_out = prepared(matrix, one)._laid_out
            assert laid_out.parts.parts["nears"].any()
            fars.append(laid_out.parts.far_slots)
        assert 0 < fars[0] < fars[1]


def test_graphs_of_other_arrays_are_dropped_too(device: Device) -> None:
    matrix, other = storable(matrix_of("float64"), TABLE, 0), matrix_of("float64", 9)
    call = Call(prepared(matrix, plan_of(TABLE)), matrix)
    drops_all_graphs(call, matrix, other)


@pytest.mark.parametrize("source", ["host", "device"])
def test_new_values_have_the_room_of_the_table_that_there_is(device: Device, source: str) -> None:
    """150 values have 192 places: others may be 191, and zero."""
    matrix = storable(matrix_of("float64"), TABLE, 0)
    call, rng = Call(prepared(matrix, plan_of(TABLE)), matrix), np.random.default_rng(3)
    assert call.program._tabled == 192
    for count, stays in ((191, True), (3, True), (191, True), (192, False)):
        fresh = matrix.with_values(rng.permutation(np.resize(rng.standard_normal(count), matrix.nnz)) / 3)
        call.program.update_values(sent(fresh.data, source))
        assert call.program.is_as_planned == stays
        assert call.program._values.dtype == ("uint32" if stays else "float64")
        call.is_right(fresh)


def test_kernels_made_later_are_those_of_the_values_in_full(device: Device) -> None:
    """For other numbers of start vectors; with far slots, of which there were none before."""
    matrix, other = storable(matrix_of("float64"), TABLE, 0), matrix_of("float64", 9)
    plan = plan_of(TABLE, vectors=2)
    device.facts = small_gpu(3, needed(matrix, plan) + 18 * 128)
    call = Call(program := prepared(matrix, plan), matrix)
    call.is_right(matrix)
    program.update_values(other.data)
    call.is_right(other)
    assert [given["AKX_STREAM"] for given in device.loaded] == [0, 1]
    for vectors in (2, 3):
        Call(program, matrix, vectors).is_right(other)
    assert [given["AKX_VECTORS"] for given in device.loaded] == [1, 1, 2]
    assert device.loaded[2] == device.loaded[1] | {"AKX_VECTORS": 2}


def test_narrow_values_of_the_device_are_widened(device: Device) -> None:
    device.facts = small_gpu(3, 16_000)
    matrix = storable(matrix_of("complex128"), HALF, 0)
    call = Call(prepared(matrix, plan_of(HALF)), matrix)
    widens_narrow_values(call, matrix)


def test_dense_blocks_in_half_the_bytes(device: Device) -> None:
    """Blocks of three rows, and of three rows and six columns."""
    device.facts = small_gpu(3, 40_000)
    for name, variant in (("brick", "3x3-4"), ("shell", "3x6-1")):
        plan = plan_of(HALF, held_slots=1).replace(variant=variant)
        matrix, other = storable(make(name, "float64"), HALF, 0), make(name, "float64", 5)
        call = Call(prepared(matrix, plan), matrix)
        call.is_right(matrix)
        call.program.update_values(other.data)
        assert not call.program.is_as_planned
        call.is_right(other)


FAILURES: dict[str, Callable[[pytest.MonkeyPatch, Callable[..., Any]], None]] = {
    "to_device": lambda broken, fails: broken.setattr(programs, "to_device", fails),
    "empty": lambda broken, fails: broken.setattr(programs, "empty", fails),
    "load": lambda broken, fails: broken.setattr(parts, "load", fails),
    "layout": lambda broken, fails: broken.setattr(resident_layout, "lay_out_resident", fails),
    "parts": lambda broken, fails: broken.setattr(block_layout, "lay_out", fails),
    "feasible": lambda broken, fails: broken.setattr(resident, "check_feasible", fails),
}


@pytest.mark.parametrize("error", [DeviceError, DeviceMemoryError, InfeasibleError])
@pytest.mark.parametrize("name", FAILURES)
def test_new_values_that_cannot_be_had_change_nothing(
    device: Device, name: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No memory for them in full, or no kernel: the program goes on with the old ones, and takes new ones later."""

    def fails(*given: Any, **named: Any) -> Any:
        raise error("there is none")

    matrix, other = storable(matrix_of("float64"), TABLE, 0), matrix_of("float64", 9)
    call = Call(prepared(matrix, plan_of(TABLE)), matrix)
    call.is_right(matrix)
    before, nbytes = state_of(call.program), call.program.nbytes
    for _ in range(2):
        with monkeypatch.context() as broken:
            FAILURES[name](broken, fails)
            with pytest.raises(error, match="there is none"):
                call.program.update_values(other.data)
        assert is_same(state_of(call.program), before)
        assert call.program.nbytes == nbytes
        call.is_right(matrix)
        assert call.program.is_as_planned
    fresh = storable(matrix, TABLE, 7)
    call.program.update_values(fresh.data)
    call.is_right(fresh)
    assert is_same(state_of(call.program), before)
    call.program.update_values(other.data)
    call.is_right(other)
    assert not call.program.is_as_planned


def test_each_array_in_full_that_cannot_be_had_changes_nothing(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of them too."""
    matrix, other = storable(matrix_of("float64"), HALF, 0), matrix_of("float64", 9)
    call = Call(prepared(matrix, plan_of(HALF, "metis", depth=2)), matrix)
    call.is_right(matrix)
    before = state_of(call.program)
    for there in range(20):
        left = [there]

        def send(array: Any, left: list[int] = left) -> Any:
            if not left[0]:
                raise DeviceMemoryError("there is none")
            left[0] -= 1
            return host_engine.to_device(array)

        def have(shape: Any, dtype: Any, left: list[int] = left) -> Any:
            return send(np.zeros(shape, dtype), left)

        with monkeypatch.context() as broken:
            broken.setattr(programs, "to_device", send)
            broken.setattr(exchange, "empty", have)
            broken.setattr(stored_program, "empty", have)
            try:
                call.program.update_values(other.data)
            except DeviceMemoryError:
                assert is_same(state_of(call.program), before)
                call.is_right(matrix, 1)
            else:
                break
    assert there == len(call.program._arrays) - 1 > 7  # columns are made on the device
    call.is_right(other)


#: What new values need of the memory of the device before they are stored.
NEEDED = {
    "the values": (stored_program, "to_device"),
    "what they are stored as": (stored_values, "empty"),
    "offsets": (stored_values, "to_device"),
    "the map": (values, "to_device"),
}


@pytest.mark.parametrize("source", ["host", "device"])
@pytest.mark.parametrize("what", NEEDED)
@pytest.mark.parametrize("way", [HALF, TABLE])
def test_without_memory_for_new_values_the_host_stores_them(
    device: Device, way: str, what: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other error is told of, and changes nothing."""
    matrix = storable(matrix_of("float64"), way, 0)
    call = Call(prepared(matrix, plan_of(way)), matrix)
    call.program.make_room()  # the map too is to be asked for
    call.is_right(matrix)
    before, nbytes, asked = state_of(call.program), call.program.nbytes, []
    fresh, other = storable(matrix_of("float64", 2), way, 2), matrix_of("float64", 9)

    def fails(*given: Any, **named: Any) -> Any:
        asked.append(what)
        raise error("there is none")

    for error in (DeviceError, DeviceMemoryError):
        asked.clear()
        with monkeypatch.context() as broken:
            broken.setattr(*NEEDED[what], fails)
            if error is DeviceError and (what, source) != ("the values", "device") and (what, way) != ("offsets", HALF):
                with pytest.raises(DeviceError, match="there is none"):
                    call.program.update_values(sent(fresh.data, source))
                assert is_same(state_of(call.program), before)
                call.is_right(matrix)
            else:
                call.program.update_values(sent(fresh.data, source))
                call.is_right(fresh)
                call.program.update_values(sent(matrix.data, source))
        assert call.program.nbytes == nbytes or not asked
    call.program.update_values(sent(other.data, source))
    call.is_right(other)
    assert not call.program.is_as_planned


@pytest.mark.parametrize("way", [FULL, HALF, TABLE])
def test_the_host_lays_out_what_the_device_has_no_memory_for(
    device: Device, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns and entries are the same, and so are values; new ones are placed there once the map has come."""

    def spent(*given: Any) -> Any:
        raise DeviceMemoryError("there is none")

    matrix, fresh = (storable(matrix_of("float64", seed), way, seed) for seed in (0, 2))
    there = prepared(matrix, plan_of(way))
    monkeypatch.setattr(parts_layout, "empty", spent)
    call = Call(prepared(matrix, plan_of(way)), matrix)
    assert (call.program.entry, there.entry is None) == (None, False)
    assert call.program.nbytes == there.nbytes - there.entry.nbytes
    np.testing.assert_array_equal(call.program._columns.get(), there._columns.get())
    call.is_right(matrix)
    for source in ("host", "device"):
        call.program.update_values(sent(fresh.data, source))
        call.is_right(fresh)
        call.program.update_values(sent(matrix.data, source))
        call.is_right(matrix)


@pytest.mark.parametrize("way", [FULL, HALF, TABLE])
def test_values_of_another_number_change_nothing(device: Device, way: str) -> None:
    matrix = matrix_of("float64") if way == FULL else storable(matrix_of("float64"), way, 0)
    call = Call(prepared(matrix, plan_of(way)), matrix)
    call.is_right(matrix)
    before = state_of(call.program)
    for count in (matrix.nnz - 1, matrix.nnz + 1, 0):
        with pytest.raises(ValueError, match="fit the pattern"):
            call.program.update_values(np.full(count, 0.1))
        assert is_same(state_of(call.program), before)
    call.is_right(matrix)


@pytest.mark.parametrize("way", [FULL, HALF, TABLE])
def test_values_that_are_not_finite_are_taken_as_they_are(device: Device, way: str) -> None:
    """Whoever does not want them looks before: from GPU memory nobody may have, and all ways agree on that."""
    matrix = matrix_of("float64") if way == FULL else storable(matrix_of("float64"), way, 0)
    call, other = Call(prepared(matrix, plan_of(way)), matrix), matrix_of("float64", 9)
    data = other.data.copy()
    data[7] = np.nan
    call.program.update_values(data)
    assert data.flags.writeable
    assert np.isnan(host_engine.seen(call.program._values)).sum() == 1
    call.program.update_values(other.data)
    call.is_right(other)


def test_a_program_does_not_hold_the_matrix_it_was_made_of(device: Device) -> None:
    """Its values would be there as long as it is, and counted by nobody."""
    for way in (FULL, HALF, TABLE):
        matrix = storable(matrix_of("float64"), HALF if way == FULL else way, 0)
        data, values = matrix.data, weakref.ref(matrix)
        program = prepared(matrix, plan_of(way))
        held = sys.getrefcount(data)
        del matrix
        gc.collect()
        assert values() is None
        assert sys.getrefcount(data) < held
        program.update_values(matrix_of("float64", 9).data)


@pytest.mark.parametrize(("order", "options"), LAYOUTS[:2])
@pytest.mark.parametrize(("way", "dtype"), [pair for pair in NOT_FULL if pair != (TABLE, "float32")])
def test_values_that_a_plan_cannot_store_as_it_says_are_stored_in_full(
    device: Device, way: str, dtype: str, order: str, options: dict[str, Option]
) -> None:
    """From the first on, and so it stays: as with new values of a program with others."""
    matrix, plan = large(dtype), plan_of(way, order, **options)
    device.facts = small_gpu(6, 227 * 1024)
    assert way not in ways_of(matrix)
    call = Call(prepared(matrix, plan), matrix)
    call.is_right(matrix, 1)
    assert call.program._values.dtype == matrix.dtype
    assert call.program.is_as_planned
    assert call.program.nbytes == prepared(matrix, in_full(plan)).nbytes
    assert {given["AKX_STORED"] for given in device.loaded} == {C_TYPES[dtype]}
    assert {given["AKX_HELD_SLICES"] for given in device.loaded} == {plan.typed.held_slices}
    count = len(device.loaded)
    fresh = storable(matrix, way, 0)
    call.program.update_values(fresh.data)
    call.is_right(fresh, 1)
    assert call.program._values.dtype == matrix.dtype
    assert len(device.loaded) == count


def test_slots_that_full_values_have_no_registers_for(device: Device) -> None:
    """A plan that holds as many as there is room for, by words, goes on without them."""
    matrix, other = storable(matrix_of("complex128"), TABLE, 0), matrix_of("complex128", 9)
    device.facts = small_gpu(3, 16_000)
    plan = plan_of(TABLE, held_slices=2, held_slots=5, block=1024)
    assert SCHEDULE.feasible(plan, matrix, device.facts) is None
    reason = SCHEDULE.feasible(plan.replace(options={**plan.options, "stored": FULL}), matrix, device.facts)
    assert "registers for slots do not fit" in reason
    call = Call(prepared(matrix, plan), matrix)
    call.is_right(matrix)
    call.program.update_values(other.data)
    call.is_right(other)
    assert [given["AKX_HELD_SLICES"] for given in device.loaded] == [2, 0]


@pytest.mark.parametrize("x", ["shared", "global"])
def test_a_table_that_does_not_fit_is_not_used(device: Device, x: str) -> None:
    """One byte of shared memory less than it takes, and values are in full."""
    matrix, plan = matrix_of("float64"), plan_of(TABLE, x=x)
    assert table_bytes(matrix, TABLE) > 2000 * 8
    room = needed(matrix, plan)
    for less, dtype in ((0, "uint32"), (1, "float64")):
        device.facts = small_gpu(3, room - less)
        call = Call(prepared(matrix, plan), matrix)
        call.is_right(matrix)
        assert call.program._values.dtype == dtype
        assert call.program.is_as_planned == (less == 0)  # a search passes over it
        call.program.update_values(other := matrix_of("float64", 9).data)
        call.is_right(matrix.with_values(other))
    device.facts = small_gpu(3, room - table_bytes(matrix, TABLE) - 1)  # and where x does not fit, there is no way
    for way in (TABLE, FULL):
        with pytest.raises(InfeasibleError, match="x does not fit"):
            prepared(matrix, plan_of(way, x=x))


def test_what_is_read_in_each_step_is_counted_as_it_is_stored(device: Device) -> None:
    """The share of it that L2 keeps is larger where it takes less; in full it is another one."""
    matrix, found = storable(matrix_of("float64"), TABLE, 0), []
    device.facts, keep = facts_for(matrix, plan_of(TABLE)), 2_000 / 2**20
    for way in (FULL, TABLE):
        plan = plan_of(way)
        laid_out, _ = resident_layout.lay_out_resident(matrix, plan, device.facts)
        plan = plan.replace(options={**plan.options, "keep": keep})
        far = laid_out.parts.far_slots * slot_bytes(laid_out.parts.shape, matrix.dtype, way_of(plan))
        found.append(PartsProgram(matrix, laid_out, plan, (4,), {}, 1, way, lambda data: found[0]))
        assert found[-1]._share.of(0) == min(16, round(16 * 2_000 / far))
    whole, program = found
    assert 0 < whole._share.of(0) < program._share.of(0) < 16
    program.update_values(matrix_of("float64", 9).data)
    assert program._share.of(0) == whole._share.of(0)
