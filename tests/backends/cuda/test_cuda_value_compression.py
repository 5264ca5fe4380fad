"""What values are stored as: the same bits again in each way; and a program on the host that is given new ones."""

from __future__ import annotations

import ctypes
import itertools
import re
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import host_engine
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numbers
from nightly import mostly_nightly
from nvcc import KERNELS, named
from program_on_host import Call, Device, drops_all_graphs, widens_narrow_values
from test_contract import make_matrix, random_numbers
from test_cuda_stream import GPU
from test_cuda_wavefront_layout import DTYPES, NARROW, NOT_FULL, make, storable

from akx.backends import registry
from akx.backends.cuda.device.memory import DeviceArray
from akx.backends.cuda.program import C_TYPES
from akx.backends.cuda.schedules.wavefront import program as wavefront_program
from akx.backends.cuda.schedules.wavefront import schedule as wavefront
from akx.backends.cuda.schedules.wavefront import strips as wavefront_strips
from akx.backends.cuda.value_compression import encodings as stored
from akx.backends.cuda.value_compression import program as stored_program
from akx.backends.cuda.value_compression.encodings import (
    FULL,
    HALF,
    STORED,
    TABLE,
    Values,
    encoded,
    stored_bytes,
    table_bytes,
    ways_of,
)
from akx.backends.cuda.variants.block_local import program as parts
from akx.core import parallel
from akx.core.errors import DeviceError, DeviceMemoryError, InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from akx.formats.block_local import Shape
from benchmarks.gallery import stencil


def parts_of(data: Any) -> Any:
    """Real numbers, two of a complex one."""
    flat = np.ascontiguousarray(data)
    return flat.view(flat.real.dtype)


def different(data: Any) -> int:
    """How many there are, told apart by their bits, zero among them in any case."""
    return len({one.tobytes() for one in data} | {bytes(data.dtype.itemsize)})


def decoded(found: Values, dtype: Any) -> Any:
    """What the kernel computes with."""
    if found.stored.dtype != np.uint16:
        return found.stored.astype(dtype)
    place, rest = np.divmod(found.stored.astype(int), np.dtype(dtype).itemsize)
    assert not rest.any()
    return found.table[place]


def right(data: Any, way: str, room: int | None = None) -> Values:
    """The values stored that way, which are the same bit for bit."""
    before = data.tobytes()
    found = encoded(data, way, room)
    assert found is not None
    assert found.stored.shape == data.shape
    assert found.stored.itemsize == stored_bytes(way, data.dtype)
    assert found.table.dtype == data.dtype
    if way == TABLE:
        most = 2**16 // data.dtype.itemsize
        assert found.stored.dtype == np.uint16
        assert found.table.size == (room or -(-different(data) // 64) * 64) <= most
        assert not any(found.table[0].tobytes() + found.table[different(data) :].tobytes())  # zero, and padding
        assert different(found.table) == different(data)  # each is there once
    else:
        assert found.stored.dtype == (NARROW[data.dtype.name] if way == HALF else data.dtype)
        assert found.table.size == 0
    assert decoded(found, data.dtype).tobytes() == data.tobytes() == before
    return found


def is_half(data: Any) -> bool:
    """Whether a number of half the bytes has the value of each."""
    with np.errstate(all="ignore"):
        both = parts_of(data)
        return data.dtype.name in NARROW and both.astype(np.float32).astype(both.dtype).tobytes() == both.tobytes()


# ------------------------------------------------------------------------------------------------- values and bits


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_of_a_value(dtype: str) -> None:
    size = np.dtype(dtype).itemsize
    assert [stored_bytes(way, np.dtype(dtype)) for way in STORED] == [size, size // 2, 2]


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_values(dtype: str) -> None:
    nothing = np.zeros(0, dtype)
    for way in STORED:
        if way == HALF and dtype not in NARROW:
            assert encoded(nothing, way) is None
        else:
            right(nothing, way)
    matrix = make_matrix("empty", 33, dtype, 0)
    assert ways_of(matrix)[TABLE] == 64 * np.dtype(dtype).itemsize


@pytest.mark.parametrize("dtype", DTYPES)
def test_full_values_are_those_given(dtype: str) -> None:
    data = random_numbers(np.random.default_rng(0), 1000, dtype)
    assert right(data, FULL).stored is data


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_two_zeros_are_two_values(dtype: str) -> None:
    zeros = np.array([0.0, -0.0, 1.0, 0.0, -0.0], dtype)
    if np.dtype(dtype).kind == "c":
        zeros = np.append(zeros, [complex(0, -0.0), complex(-0.0, -0.0), complex(-0.0, 0), complex(0, 0)]).astype(dtype)
    for way in STORED:
        if way != HALF or dtype in NARROW:
            right(zeros, way)
    found = right(zeros, TABLE)
    assert found.stored[0] == found.stored[3] == 0
    assert found.stored[1] == found.stored[4] != 0


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(
    ("value", "fits"),
    [
        *((0.1, False), (0.5, True), (1 / 3, False), (2.0**24, True), (2.0**24 + 1, False), (1 + 2.0**-23, True)),
        *((2.0**128 - 2.0**104, True), (2.0**128, False), (-1e300, False), (float(np.finfo(np.float64).max), False)),
        # Subnormal ones, of both types.
        *((2.0**-126, True), (2.0**-149, True), (-3 * 2.0**-149, True), (2.0**-150, False), (1e-40, False)),
        *((2.0**-127 + 2.0**-149, True), (2.0**-127 + 2.0**-150, False), (1e-310, False), (2.0**-1074, False)),
    ],
)
def test_half_the_bytes_where_that_is_exact(value: float, fits: bool, dtype: str) -> None:
    """Among values that fit; of a complex one each part for itself."""
    both = [complex(value, 1.5), complex(-0.25, value), complex(value, -value)]
    for one in [value] if dtype == "float64" else both:
        data = np.array([0.25, -0.0, one, 4.0], dtype)
        if fits:
            right(data, HALF)
        else:
            assert encoded(data, HALF) is None
        right(data, TABLE)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_small_types_have_no_half(dtype: str) -> None:
    assert encoded(np.ones(3, dtype), HALF) is None


def test_what_does_not_fit_is_no_error() -> None:
    """Neither a warning nor what NumPy was told to raise."""
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for value in (1e300, 1e-310, 1e-42, 0.1, -1e39):
            for dtype in ("float64", "complex128"):
                assert encoded(np.array([1.0, value], dtype), HALF) is None
                right(np.array([1.0, value], dtype), TABLE)


# --------------------------------------------------------------------------------------------------------- tables


def many(count: int, dtype: str, seed: int = 0) -> Any:
    """So many different values, none of them zero."""
    return (np.random.default_rng(seed).permutation(count) + 1).astype(dtype) / np.dtype(dtype).type(7)


@pytest.mark.parametrize("dtype", DTYPES)
def test_as_many_different_values_as_there_are_places(dtype: str) -> None:
    """One of which is zero, wanted or not; each value comes more than once."""
    size = np.dtype(dtype).itemsize
    most = 2**16 // size
    data = np.tile(many(most - 1, dtype), 2)
    found = right(data, TABLE)
    assert found.table.size == most
    assert found.stored.max() == 2**16 - size
    right(np.append(data, np.zeros(3, dtype)), TABLE)
    assert encoded(np.append(data, -np.zeros(1, dtype)), TABLE) is None
    assert encoded(many(most, dtype), TABLE) is None
    assert encoded(np.append(many(most, dtype), data), TABLE) is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("count", "places"), [(0, 64), (1, 64), (63, 64), (64, 128), (127, 128), (128, 192)])
def test_places_of_a_table(count: int, places: int, dtype: str) -> None:
    assert right(np.tile(many(count, dtype), 3), TABLE).table.size == places


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_table_of_given_size(dtype: str) -> None:
    """It stays as it is, with few values too; in what does not fit there is no part that does."""
    for room in (64, 128, 2**16 // np.dtype(dtype).itemsize):
        for count in (0, 1, room // 2, room - 1):
            assert right(many(count, dtype), TABLE, room).table.size == room
        for count in (room, room + 1, 2 * room):
            assert encoded(many(count, dtype), TABLE, room) is None
    right(np.ones(5, dtype), FULL, 64)


def test_a_table_of_values_that_are_not_next_to_one_another() -> None:
    data = many(300, "float64")
    found = encoded(data[::3], TABLE)
    assert found is not None
    assert decoded(found, data.dtype).tobytes() == data[::3].tobytes()


def from_bits(words: Any, dtype: str) -> Any:
    return np.asarray(words, dtype=np.uint64).view(dtype)


def alike() -> Iterator[tuple[str, Any]]:
    """Values of which a hash may take many for one another."""
    few, lots = np.arange(1, 4096, dtype=np.uint64), np.arange(1, 8192, dtype=np.uint64)
    one = np.uint64(np.array(1.0).view(np.uint64))
    yield "low bits", from_bits(one + lots, "float64")
    yield "subnormal", from_bits(lots, "float64")
    yield "powers of two", 2.0 ** np.arange(-1022, 1024)
    yield "both signs of them", np.concatenate([2.0 ** np.arange(-1074, 1024), -(2.0 ** np.arange(-1074, 1024))])
    yield "whole numbers", np.arange(1.0, 8192.0)
    yield "middle bits", from_bits(one + (lots << np.uint64(20)), "float64")
    narrow = np.arange(1, 16384, dtype=np.uint32)
    yield "low bits of float32", (np.uint32(0x3F800000) + narrow).view(np.float32)
    yield "high bits of float32", (narrow << np.uint32(18)).view(np.float32)
    real, other = np.arange(1.0, 65.0), 2.0 ** np.arange(-32, 31)
    for dtype in ("complex64", "complex128"):
        pairs = (real[:, None] + 1j * other).ravel().astype(dtype)
        yield f"pairs {dtype}", pairs
        yield f"pairs and the other way round {dtype}", np.append(pairs[:2000], (1j * pairs[:2000].conj()))
        yield f"imaginary {dtype}", (1j * np.arange(1, 4096)).astype(dtype)
        yield f"real and imaginary {dtype}", np.append(other, 1j * other[:, None] * real[1::4]).astype(dtype)
    # Words that the multiplier of the hash brings to one slot, the first or the last: the next free one is behind it.
    inverse = pow(int(stored._SCATTER), -1, 2**64)
    for high in (0, 0xFFFFFF << 40):
        words = [(high | int(j)) * inverse % 2**64 for j in lots]
        yield f"one slot {high:x}", from_bits(words, "float64")
        two = np.zeros((few.size, 2), dtype=np.uint64)
        two[:, 1] = words[: few.size]
        yield f"one slot of pairs {high:x}", from_bits(two.ravel(), "complex128")


@pytest.mark.parametrize(("name", "data"), [pytest.param(name, data, id=name) for name, data in alike()])
def test_values_that_are_alike(name: str, data: Any) -> None:
    """In this order, in another, and several times; one more than there is room for is noticed."""
    count = different(data)
    assert data.size > 300
    rng = np.random.default_rng(0)
    for one in (data, data[::-1].copy(), rng.permutation(np.tile(data, 2))):
        right(one, TABLE)
        right(one, TABLE, count)
        assert encoded(one, TABLE, count - 1) is None


@st.composite
def any_values(draw: st.DrawFn) -> Any:
    """Few or many, all of them at random or of a few kinds; infinite ones and NaN too."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    narrow = np.dtype(NARROW.get(dtype.name, dtype.name))
    with np.errstate(all="ignore"):
        of = draw(st.sampled_from([numbers.from_dtype(dtype), numbers.from_dtype(narrow), st.integers(-40, 40)]))
        kinds = draw(st.lists(of, min_size=1, max_size=150))
        chosen = draw(st.lists(st.integers(0, len(kinds) - 1), max_size=300))
        return np.array([kinds[i] for i in chosen], dtype=dtype)


@settings(max_examples=300, deadline=None)
@given(any_values(), st.sampled_from(STORED), st.sampled_from([None, 64, 100]))
def test_any_values(data: Any, way: str, room: int | None) -> None:
    """The same bits, and no way where there is none."""
    has_nan = bool(np.isnan(data).any())
    fits = {FULL: True, HALF: is_half(data) and not has_nan, TABLE: different(data) <= (room or 2**16)}[way]
    if fits:
        right(data, way, room)
    else:
        assert encoded(data, way, room) is None


# ----------------------------------------------------------------------------------------------------- of a matrix


def test_the_ways_of_a_matrix() -> None:
    matrix = Matrix.from_any(sp.csr_array(stencil((9, 7), 5, constant=True)))
    assert ways_of(matrix) == {FULL: 0, HALF: 0, TABLE: 64 * 8}
    assert list(ways_of(matrix)) == list(STORED)
    assert [table_bytes(matrix, way) for way in STORED] == [0, 0, 512]
    rng = np.random.default_rng(0)
    assert ways_of(matrix.with_values(rng.random(matrix.nnz))) == {FULL: 0, TABLE: -(-(matrix.nnz + 1) // 64) * 512}
    assert ways_of(matrix.with_values(rng.random(matrix.nnz).astype("f4"))) == {FULL: 0, TABLE: 5 * 256}
    large = Matrix.from_any(sp.csr_array(stencil((60, 50), 5)))
    assert large.nnz > 2**16 // 8
    assert ways_of(large.with_values(rng.random(large.nnz))) == {FULL: 0}
    assert ways_of(large.with_values(rng.random(large.nnz).astype("f4").astype("f8"))) == {FULL: 0, HALF: 0}
    assert ways_of(large.with_values(many(8191, "float64")[rng.integers(0, 8191, large.nnz)]))[TABLE] <= 2**16
    assert table_bytes(large.with_values(rng.random(large.nnz)), TABLE) == 0


def test_ways_are_found_once_for_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(stored, "encoded", lambda data, way, **how: asked.append(way) or encoded(data, way, **how))
    matrix = Matrix.from_any(sp.csr_array(stencil((9, 7), 5, constant=True)))
    assert ways_of(matrix) is ways_of(matrix)
    assert asked == list(STORED)
    other = matrix.with_values(matrix.data * 0.1)
    assert HALF not in ways_of(other)
    assert HALF in ways_of(matrix)
    assert asked == 2 * list(STORED)


# ------------------------------------------------------------------------------------- a program without a device

SCHEDULE: Any = registry.get("cuda", "wavefront")
SMALL = replace(GPU, sms=3)
OPTIONS: dict[str, Option] = {"slices": 1, "held_slots": 3, "block": 256, "helpers": 128, "slack": 0}


def plan_of(way: str, k: int = 4, **options: Option) -> Plan:
    return Plan("cuda", "wavefront", "sell16-2", "natural", k, k, options={**OPTIONS, **options, "stored": way})


def matrix_of(dtype: str, seed: int = 0) -> Matrix:
    A = sp.csr_array(stencil((31, 12), 9))
    A.data = random_numbers(np.random.default_rng(seed), A.nnz, "complex128")
    return Matrix.from_any((A if np.dtype(dtype).kind == "c" else A.real).astype(dtype))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Device:
    return wavefront_device(monkeypatch, tmp_path)


def wavefront_device(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Device:
    found = Device(SMALL, folder, "wavefront")
    found.install(monkeypatch, folder, [wavefront, wavefront_program])
    return found


def called(matrix: Matrix, plan: Plan) -> Call:
    """The program on the device, called again and again with the same arrays."""
    return Call(SCHEDULE.prepare(matrix, plan), matrix)


@pytest.mark.parametrize("source", ["host", "device"])
@pytest.mark.parametrize(("way", "dtype"), NOT_FULL)
def test_new_values_are_stored_as_the_old_ones_while_they_can_be(
    device: Device, way: str, dtype: str, source: str
) -> None:
    """Then in full, by other kernels and graphs, and so it stays."""

    def send(data: Any) -> Any:
        return host_engine.to_device(data) if source == "device" else data

    matrix = storable(matrix_of(dtype), way, 0)
    call = called(matrix, plan_of(way))
    program, full = call.program, C_TYPES[dtype]
    call.is_right(matrix)
    before, graphs, kernels, arrays = program.nbytes, dict(program._graphs), dict(program.kernels), program._values
    assert [graph is not None for graph in graphs.values()] == [True]
    for seed in (2, 3):
        fresh = storable(matrix_of(dtype, seed), way, seed)
        assert fresh.data.tobytes() != matrix.data.tobytes()
        program.update_values(send(fresh.data))
        call.is_right(fresh, 2)
        assert (dict(program._graphs), program.kernels, program._values) == (graphs, kernels, arrays)
        assert program.nbytes == before  # the map is there from the beginning
    assert [given["AKX_STORED"] == full for given in device.loaded] == [False]
    other = matrix_of(dtype, 9)
    assert encoded(other.data, way, program._tabled or None) is None
    program.update_values(send(other.data))
    assert not program._graphs
    assert program.kernels
    assert not [kernel for kernel in program.kernels.values() if kernel in kernels.values()]
    assert [given["AKX_STORED"] == full for given in device.loaded] == [False, True]
    call.is_right(other)
    added = program._values.nbytes - arrays.nbytes
    places = wavefront_strips.front_of(matrix, plan_of(way), SMALL).entry.size
    assert added == places * (np.dtype(dtype).itemsize - stored_bytes(way, np.dtype(dtype)))
    assert program.nbytes == before + added
    graphs = dict(program._graphs)
    for fresh in (matrix, matrix_of(dtype, 10)):
        program.update_values(send(fresh.data))
        call.is_right(fresh, 2)
    assert dict(program._graphs) == graphs
    assert len(device.loaded) == 2
    assert program.nbytes == before + added


@pytest.mark.parametrize("way", [FULL, HALF, TABLE])
def test_the_host_places_values_where_the_device_has_no_memory_for_the_map(
    device: Device, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spent(*given: Any) -> Any:
        raise DeviceMemoryError("there is none")

    matrix = storable(matrix_of("float64"), way, 0)
    plan = plan_of(way)
    there = SCHEDULE.prepare(matrix, plan)
    monkeypatch.setattr(wavefront_program, "to_device", spent)
    call = called(matrix, plan)
    assert (call.program.entry, there.entry is None) == (None, False)
    assert call.program.nbytes == there.nbytes - there.entry.nbytes
    call.is_right(matrix)


def test_graphs_of_other_arrays_are_dropped_too(device: Device) -> None:
    matrix, other = storable(matrix_of("float64"), TABLE, 0), matrix_of("float64", 9)
    call = called(matrix, plan_of(TABLE))
    drops_all_graphs(call, matrix, other)


def test_new_values_have_the_room_of_the_table_that_there_is(device: Device) -> None:
    """150 values have 192 places: others may be 191, and zero."""
    matrix = storable(matrix_of("float64"), TABLE, 0)
    call, rng = called(matrix, plan_of(TABLE)), np.random.default_rng(3)
    assert call.program._tabled == 192
    for count, stays in ((191, True), (3, True), (191, True), (192, False)):
        data = np.resize(many(count, "float64", count), matrix.nnz)
        fresh = matrix.with_values(rng.permutation(data) / 200)
        call.program.update_values(fresh.data)
        assert (call.program._values.dtype == np.uint16) == stays
        call.is_right(fresh)


def test_narrow_values_of_the_device_are_widened(device: Device) -> None:
    matrix = storable(matrix_of("complex128"), HALF, 0)
    call = called(matrix, plan_of(HALF))
    widens_narrow_values(call, matrix)


@pytest.mark.parametrize("dtype", DTYPES)
def test_full_values_go_as_they_did(device: Device, dtype: str) -> None:
    matrix = matrix_of(dtype)
    call = called(matrix, plan_of(FULL))
    call.is_right(matrix)
    for seed, send in ((1, np.asarray), (2, host_engine.to_device)):
        fresh = matrix_of(dtype, seed)
        call.program.update_values(send(fresh.data))
        call.is_right(fresh)
    assert len(device.loaded) == 1


def test_new_values_that_cannot_be_had_change_nothing(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory for them in full, or no kernel: the program goes on with the old ones, and takes new ones later."""

    def fails(*given: Any, **named: Any) -> Any:
        raise DeviceError("there is none")

    matrix, other = storable(matrix_of("float64"), TABLE, 0), matrix_of("float64", 9)
    call = called(matrix, plan_of(TABLE))
    call.is_right(matrix)
    before = {
        name: value if isinstance(value, DeviceArray) else copy(value) for name, value in vars(call.program).items()
    }
    sends, send = itertools.count(), stored_program.to_device
    for module, name, fake in (
        (stored_program, "to_device", lambda values: send(values) if next(sends) == 0 else fails()),  # then in full
        (wavefront_program, "load", fails),
    ):
        with monkeypatch.context() as broken:
            broken.setattr(module, name, fake)
            with pytest.raises(DeviceError, match="there is none"):
                call.program.update_values(other.data)
        now = vars(call.program)
        assert now.keys() == before.keys()
        assert now["_values"] is call.program._arrays[-1]
        assert all(
            now[name] == before[name] for name in ("_way", "_stored", "_tabled", "kernels", "_graphs", "_arrays")
        )
        call.is_right(matrix)
        assert call.program.is_as_planned
    call.program.update_values(other.data)
    call.is_right(other)
    assert not call.program.is_as_planned


def large(dtype: str) -> Matrix:
    """A matrix of more different values than a table has."""
    matrix = Matrix.from_any(sp.csr_array(stencil((61, 60), 5)).astype(dtype))
    return matrix.with_values(random_numbers(np.random.default_rng(0), matrix.nnz, dtype))


def test_ways_to_store_values_that_a_search_has() -> None:
    """A plan says which it would take for any values; a search has no use for those that these cannot be stored in."""
    small = matrix_of("float64")
    why = {HALF: "values are not the same in half the bytes", TABLE: "too many values are different"}
    for matrix, ways in ((small, (FULL, TABLE)), (large("float64"), (FULL,)), (storable(small, HALF, 0), STORED)):
        found = {parameter.name: parameter.choices for parameter in SCHEDULE.space(matrix, SMALL, 4)}
        assert found["stored"] == ways
        for way in STORED:
            assert SCHEDULE.feasible(plan_of(way), matrix, SMALL) is None
            wasted = None if way in ways else f"stored={way} is the same as full here: {why[way]}"
            assert SCHEDULE.waste(plan_of(way, block=128), matrix, SMALL) == wasted
            model = SCHEDULE.traffic(plan_of(way if way in ways else FULL), matrix, SMALL)
            assert SCHEDULE.traffic(plan_of(way), matrix, SMALL) == model


@pytest.mark.parametrize(("way", "dtype"), mostly_nightly([pair for pair in NOT_FULL if pair != (TABLE, "float32")]))
def test_values_that_a_plan_cannot_store_as_it_says_are_stored_in_full(device: Device, way: str, dtype: str) -> None:
    """From the first on, and so it stays: as with new values of a program that had others."""
    matrix = large(dtype)
    call = called(matrix, plan_of(way))
    call.is_right(matrix)
    assert call.program._values.dtype == matrix.dtype
    assert [given["AKX_STORED"] for given in device.loaded] == [C_TYPES[dtype]]
    for fresh in (storable(matrix, way, 0), matrix):
        call.program.update_values(fresh.data)
        call.is_right(fresh)
    assert len(device.loaded) == 1
    assert wavefront_strips.front_of(matrix, plan_of(way), SMALL) is wavefront_strips.front_of(
        matrix, plan_of(FULL), SMALL
    )


@pytest.mark.parametrize("way", [HALF, TABLE])
def test_values_in_full_have_to_fit_the_registers(device: Device, way: str) -> None:
    """What is feasible for values that can be stored so need not be for others."""
    plan, in_full = (plan_of(one, held_slots=9) for one in (way, FULL))
    matrix, few = large("complex128"), storable(large("complex128"), way, 0)
    assert SCHEDULE.feasible(plan, few, SMALL) is None
    reason = SCHEDULE.feasible(plan, matrix, SMALL)
    assert reason == SCHEDULE.feasible(in_full, matrix, SMALL) == SCHEDULE.feasible(in_full, few, SMALL)
    assert "registers for slices do not fit" in reason
    with pytest.raises(InfeasibleError, match="registers for slices do not fit"):
        SCHEDULE.prepare(matrix, plan)


@pytest.mark.parametrize("helpers", [{}, {"helpers": 128}, {"helpers": 256}])
def test_helpers_of_a_program(device: Device, helpers: dict[str, Option]) -> None:
    """Without a word about them there are as many as the plan was found feasible for."""
    matrix = matrix_of("float64")
    options = {name: value for name, value in OPTIONS.items() if name != "helpers"}
    plan = plan_of(FULL).replace(options={**options, **helpers})
    assert SCHEDULE.feasible(plan, matrix, SMALL) is None
    called(matrix, plan).is_right(matrix)
    assert device.loaded[0]["AKX_HELPERS"] == helpers.get("helpers", 128)


@pytest.mark.parametrize(("way", "dtype"), NOT_FULL)
def test_a_front_has_room_for_full_values_later(way: str, dtype: str) -> None:
    """New values may have to be stored in full: a front that does not fit so is refused at once."""
    matrix = storable(matrix_of(dtype), way, 0)
    # Near slots of all powers: with full values these take more than a table does.
    plan = plan_of(way, held_slots=0)
    size, stored = matrix.dtype.itemsize, stored_bytes(way, matrix.dtype)
    front = wavefront_strips.front_of(matrix, plan, SMALL)
    full, now = front.shared(4, size, size, 0), front.shared(4, size, stored, table_bytes(matrix, way))
    assert now < full
    needed = full + wavefront_strips.STATIC
    assert wavefront_strips.front_of(matrix, plan, replace(SMALL, shared_per_block=needed)) is front
    with pytest.raises(InfeasibleError, match=rf"found {full} bytes"):
        wavefront_strips.front_of(matrix, plan, replace(SMALL, shared_per_block=needed - 1))


def test_types_of_one_pattern_have_fronts_of_their_own() -> None:
    """Offsets are in bytes; values of one size share a front, as they do however they are stored."""
    matrix = matrix_of("float64")
    others = (matrix.with_values(matrix.data.astype(dtype)) for dtype in DTYPES)
    fronts = [wavefront_strips.front_of(other, plan_of(FULL), SMALL) for other in others]
    assert [int(front.meta[0, 0, 4 + 4 + 16 + 1] & 0xFFFF) for front in fronts] == [4, 8, 8, 16]  # of the second row
    assert fronts[1] is fronts[2]
    assert wavefront_strips.front_of(matrix, plan_of(TABLE), SMALL) is not fronts[1]  # only the last one is kept
    assert wavefront_strips.front_of(matrix, plan_of(FULL), SMALL) is wavefront_strips.front_of(
        matrix, plan_of(TABLE), SMALL
    )


def test_a_front_has_room_for_its_table(device: Device) -> None:
    """Which is larger than what it saves where few values are stored in it."""
    matrix = matrix_of("float32")
    plan = plan_of(TABLE)
    assert table_bytes(matrix, TABLE) > 2000 * 4
    front = wavefront_strips.front_of(matrix, plan, SMALL)
    now = front.shared(4, 4, 2, table_bytes(matrix, TABLE))
    assert now > front.shared(4, 4, 4, 0)
    for less, dtype in ((0, "uint16"), (1, "float32")):  # without room for it values are in full
        device.facts = replace(SMALL, shared_per_block=now + wavefront_strips.STATIC - less)
        call = called(matrix, plan)
        call.is_right(matrix)
        assert call.program._values.dtype == dtype
    # Which is known before anything is laid out, where much is missing.
    full = front.shared(4, 4, 4, 0)
    assert full > table_bytes(matrix, TABLE)
    tight = replace(SMALL, shared_per_block=full + wavefront_strips.STATIC)
    assert SCHEDULE.feasible(plan, matrix, tight) is None
    plan = plan_of(TABLE, block=128)  # a warp for each slice: none of these is to waste
    assert SCHEDULE.waste(plan, matrix, SMALL) is None
    assert SCHEDULE.waste(plan, matrix, tight) == "stored=table is the same as full here: their table does not fit"
    tight = replace(SMALL, shared_per_block=full + wavefront_strips.STATIC - 1)
    with pytest.raises(InfeasibleError, match=rf"found {full} bytes"):
        wavefront_strips.front_of(matrix, plan, tight)


@pytest.mark.parametrize("variant", ["sell16-1", "sell16-4"])
@pytest.mark.parametrize("name", ["9-point", "7-point", "epidemic", "band"])
def test_what_a_front_takes_at_least(name: str, variant: str) -> None:
    """No more than its layout does, which is known much later; and not much less."""
    roomy = replace(SMALL, shared_per_block=2**24)
    for slices, held, slack, powers in ((1, 0, 0, 1), (2, 3, 1, 4), (4, 1, 2, 6), (3, 9, 0, 2)):
        for way, dtype in ((FULL, "float32"), (FULL, "complex128"), (HALF, "float64"), (TABLE, "float64")):
            matrix = storable(make(name, dtype), way, 0) if way != FULL else make(name, dtype)
            plan = plan_of(way, powers, slices=slices, held_slots=held, slack=slack).replace(variant=variant)
            least, front = (
                wavefront_strips.least_shape(matrix, plan, roomy),
                wavefront_strips.front_of(matrix, plan, roomy),
            )
            for one in ("lag", "ring", "slices", "room"):
                assert getattr(least, one) == getattr(front, one)
            assert least.fetched <= front.fetched
            assert least.near_slots <= front.near_slots
            below, taken = (wavefront_strips.shared_bytes(shape, plan, matrix) for shape in (least, front))
            assert 0.6 * taken < below <= taken
            tight = replace(SMALL, shared_per_block=below + wavefront_strips.STATIC)
            assert "shared ones" not in str(SCHEDULE.feasible(plan, matrix, tight))
            tight = replace(SMALL, shared_per_block=below + wavefront_strips.STATIC - 1)
            assert SCHEDULE.feasible(plan, matrix, tight) is not None or way == TABLE


def pairs() -> dict[tuple[str, str], Any]:
    """What `wavefront` and `resident` call a value and what it may be stored as, with the type of the latter."""
    front = wavefront_strips.front_of(matrix_of("float64"), plan_of(FULL), SMALL)
    shape, found = Shape(1, 1, 1, 8, 0, 1), {}
    for dtype, way in product(map(np.dtype, DTYPES), STORED):
        if (few := encoded(np.ones(3, dtype), way)) is None:
            continue
        word = np.dtype(np.uint32) if way == TABLE else few.stored.dtype
        for macros, kind in (
            (wavefront_program.macros(front, dtype, few.stored.dtype, 4, 8, 128), few.stored.dtype),
            (parts.macros(shape, dtype, 1, mode=0, stream=False, stored=few.stored.dtype), word),
        ):
            found[str(macros["AKX_VALUE"]), str(macros["AKX_STORED"])] = kind
    return found


def test_words_of_the_kernels() -> None:
    """Types that values are stored as are those that the kernels widen; real numbers need no word."""
    source = named("stored.cuh").read_text()
    used = pairs()
    assert {value for value, _ in used} == set(C_TYPES.values())
    assert {stored for _, stored in used} - set(C_TYPES.values()) == {"u16", "u32"}
    assert set(re.findall(r"bool is_offset<(\w+)> = true;", source)) == {"u16", "u32"}
    assert {(value, stored) for value, stored in used if value != stored in ("cfloat", "cdouble")} == set(
        re.findall(r"template <> .* widened<(\w+), (\w+)>\(const", source)
    )


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_stored_values_are_widened(tmp_path: Path) -> None:
    """Each as all kernels do it, bit for bit; what is above an offset is no part of it."""
    target = tmp_path / "stored.so"
    source = Path(__file__).with_name("on_host") / "stored.cpp"
    command = ["g++", "-std=c++17", "-O1", "-fPIC", "-shared", "-Wall", "-Wno-unknown-pragmas", "-Werror"]
    command += ["-iquote", str(KERNELS)]
    subprocess.run([*command, "-o", str(target), str(source)], check=True)
    library, rng = ctypes.CDLL(str(target)), np.random.default_rng(0)
    types = {name: np.dtype(dtype) for dtype, name in C_TYPES.items()}
    for (value, stored_as), kind in pairs().items():
        dtype = types[value]
        if kind.kind == "u":
            table = many(2**16 // dtype.itemsize, dtype.name)
            number = rng.integers(0, table.size, 999)
            given, wanted = (number * dtype.itemsize).astype(kind), table[number]
            if kind.itemsize > 2:
                given |= rng.integers(1, 4, given.size).astype(kind) << kind.type(16)
                table = np.append(table, np.full(3 * table.size, np.nan, dtype))
        else:
            table, given = np.zeros(0, dtype), random_numbers(rng, 999, kind.name)
            wanted = given.astype(dtype)
        found = np.empty(wanted.size, dtype)
        widen = getattr(library, f"widened_{value}_{stored_as}")
        widen(*(ctypes.c_void_p(array.ctypes.data) for array in (table, given, found)), ctypes.c_size_t(found.size))
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("pieces", [2, 3, 16])
def test_pieces_side_by_side_are_as_one(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers, the same table, and as little where there is no way; whatever the threads."""
    rng = np.random.default_rng(pieces)
    found = []
    for dtype in DTYPES:
        for kinds in (1, 3, 100, 400):
            data = rng.choice(many(kinds, dtype), 3000)
            data[:2000] = np.sort(data[:2000])  # values that only some pieces have
            found.append(
                (dtype, data, {room: encoded(data, TABLE, room) for room in (None, 64, 128)}, encoded(data, HALF))
            )
    wide = np.append(np.zeros(3000), [2.0**-149, 2.0**-150])
    assert encoded(wide, HALF) is None
    entry = np.where(rng.random(5000) < 0.2, 0, rng.integers(1, 3001, 5000)).astype(np.uint32)
    columns = rng.integers(0, 65_536, 5000).astype(np.uint16)
    asked: list[int] = []
    whole = stored.in_pieces
    monkeypatch.setattr(
        stored, "in_pieces", lambda work, count, *least: asked.append(count) or whole(work, count, *least)
    )
    monkeypatch.setattr(stored, "_PIECE", 7)
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    monkeypatch.setattr(parallel, "available_cores", lambda: pieces)
    assert len(whole(lambda begin, end: (begin, end), 3001, 7)) == pieces
    assert whole(lambda begin, end: (begin, end), 6, 7) == [(0, 6)]
    assert encoded(wide, HALF) is None
    for dtype, data, tables, half in found:
        for room, before in tables.items():
            now = encoded(data, TABLE, room)
            assert (now is None) == (before is None)
            if now is not None and before is not None:
                assert now.stored.tobytes() == before.stored.tobytes()
                assert now.table.tobytes() == before.table.tobytes()
                right(data, TABLE, room)
        assert (encoded(data, HALF) is None) == (half is None)
        laid = stored.placed(data, entry)
        assert laid.tobytes() == np.append(data[:1] * 0, data)[entry].tobytes()
        assert laid.dtype == np.dtype(dtype)
        some = tables[None]
        assert some is not None
        words = stored.placed_words(some.stored, entry, columns)
        assert np.array_equal(words & 0xFFFF, np.append(np.uint16(0), some.stored)[entry])
        assert np.array_equal(words >> 16, columns)
    assert 3000 in asked
    assert 5000 in asked
