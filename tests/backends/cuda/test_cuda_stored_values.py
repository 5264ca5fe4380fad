"""Kernels that store new values: on a GPU, on the host by threads in several orders, and every one compiled.

What is stored is compared with what the host stores by itself
(:func:`akx.backends.cuda.value_compression.encodings.encoded`), bit for bit.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import host_engine
import numpy as np
import pytest
from nvcc import complaints, named, needs_nvcc
from test_contract import random_numbers

from akx.backends.cuda.device.facts import cuda_missing
from akx.backends.cuda.program import C_TYPES
from akx.backends.cuda.value_compression import new_values as values
from akx.backends.cuda.value_compression import on_device as stored_values
from akx.backends.cuda.value_compression.encodings import HALF, TABLE, encoded

DTYPES = ("float32", "float64", "complex64", "complex128")
HALVES = {"float64": "float", "complex128": "cfloat"}
PAIRS = [(kept, given) for kept in DTYPES for given in values.GIVEN[kept]]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stored_values")


@pytest.fixture(
    params=[
        pytest.param("host", marks=pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")),
        pytest.param(
            "gpu",
            marks=[pytest.mark.cuda, pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))],
        ),
    ]
)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, libraries: Path) -> Any:
    """Where kernels run; `order` of threads may be set, which a GPU does not look at."""
    return Real() if request.param == "gpu" else host_engine.install(monkeypatch, libraries, (stored_values, values))


class Real:
    """A GPU."""

    order = 0


def send(array: Any) -> Any:
    return stored_values.to_device(np.ascontiguousarray(array))


def wide(data: Any, dtype: str) -> Any:
    return data.astype(dtype)


def check_table(device: Any, data: Any, dtype: str, room: int) -> Any:
    """The stored values and the table, which depends on the values alone."""
    whole = wide(data, dtype)
    by_host, tables = encoded(whole, TABLE, room), []
    given = send(data)
    for device.order in (0, 1, 7):
        found = stored_values.tabled(given, np.dtype(dtype), room)
        assert (found is None) == (by_host is None)
        if found is None:
            continue
        offsets, table = found[0].get(), found[1]
        assert offsets.dtype == np.uint16
        assert (table.size, table.dtype) == (room, np.dtype(dtype))
        place, rest = np.divmod(offsets.astype(int), table.itemsize)
        assert not rest.any()
        assert table[place].tobytes() == whole.tobytes()
        kinds = {one.tobytes() for one in whole} | {bytes(table.itemsize)}
        assert {one.tobytes() for one in table[: len(kinds)]} == kinds  # each once
        assert not any(table[0].tobytes() + table[len(kinds) :].tobytes())
        tables.append((offsets.tobytes(), table.tobytes()))
    assert len(set(tables)) <= 1
    return tables


def kinds_of(count: int, dtype: str, seed: int = 0) -> Any:
    """So many different values, none of them zero."""
    return (np.random.default_rng(seed).permutation(count) + 1).astype(dtype) / np.dtype(dtype).type(7)


@pytest.mark.parametrize(("dtype", "given"), PAIRS)
def test_values_in_a_table(device: Any, dtype: str, given: str) -> None:
    rng = np.random.default_rng(0)
    for kinds, size, room in ((1, 1, 64), (3, 257, 64), (63, 700, 64), (64, 700, 64), (100, 256, 128), (600, 512, 128)):
        data = rng.permutation(np.resize(random_numbers(rng, kinds, given) / 3, size))
        assert bool(check_table(device, data, dtype, room)) == (min(kinds, size) < room)
    assert check_table(device, np.zeros(0, given), dtype, 64)
    assert check_table(device, np.zeros(70, given), dtype, 64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_told_apart_by_their_bits(device: Any, dtype: str) -> None:
    """Both zeros, of each part; parts that are each other's; infinite ones, and NaN of two kinds."""
    some = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, np.copysign(np.nan, -1), 1e-45, 5e-324]
    if np.dtype(dtype).kind == "c":
        pairs = np.array([(a, b) for a in some for b in some])
        data = np.ascontiguousarray(pairs.astype(np.dtype(dtype).type(0).real.dtype)).view(dtype).reshape(-1)
    else:
        data = np.array(some, dtype)
    data = np.random.default_rng(1).permutation(np.tile(data, 3))
    assert check_table(device, data, dtype, 128)


@pytest.mark.parametrize("dtype", DTYPES)
def test_as_many_values_as_there_are_places(device: Any, dtype: str) -> None:
    """One more is noticed, wherever it is; a table may be as large as 64 KB."""
    for room in (64, 2**16 // np.dtype(dtype).itemsize):
        data = kinds_of(room - 1, dtype)
        assert check_table(device, np.append(data, np.zeros(3, dtype)), dtype, room)
        for one in (np.append(data, -np.zeros(1, dtype)), np.append(-np.zeros(1, dtype), data)):
            assert not check_table(device, one, dtype, room)
    assert not check_table(device, kinds_of(3000, dtype), dtype, 64)


@pytest.mark.parametrize("part", [1, 1j])
def test_words_of_pairs(device: Any, part: complex) -> None:
    """Twice as many words as values, and one in many values."""
    room = 128
    both = (kinds_of(127, "float64") + 1j * kinds_of(127, "float64", 1) * np.pi) * part
    assert check_table(device, np.tile(both, 2), "complex128", room)
    one = part * (2.5 + 1j * kinds_of(127, "float64"))
    assert check_table(device, np.append(one, 0), "complex128", room)
    assert not check_table(device, np.append(one, 1), "complex128", room)
    assert not check_table(device, kinds_of(400, "float64") * (1 + 1j), "complex128", room)


def test_words_that_begin_at_one_slot(device: Any) -> None:
    """The next free one is behind it, and the first of all behind the last."""
    inverse = pow(0x9E3779B97F4A7C15, -1, 2**64)
    for high in (0, 0xFFFFFF << 40):
        words = [(high | j) * inverse % 2**64 for j in range(1, 100)]
        data = np.array(words, np.uint64)
        pairs = np.stack([data, data[::-1]], axis=1).reshape(-1)
        assert check_table(device, np.tile(data.view("f8"), 3), "float64", 128)
        assert check_table(device, np.tile(pairs.view("c16"), 2), "complex128", 128)


@pytest.mark.parametrize(("dtype", "given"), [(dtype, given) for dtype, given in PAIRS if dtype in HALVES])
def test_values_in_half_their_bytes(device: Any, dtype: str, given: str) -> None:
    """The same where they are, else with the error that the host finds too."""
    rng = np.random.default_rng(2)
    wide_values = random_numbers(rng, 700, given) / 3
    narrow = {"float64": "float32", "complex128": "complex64"}
    cases = [wide_values.astype(narrow.get(given, given)).astype(given), wide_values, wide_values[:0], wide_values[:1]]
    large, small = wide_values.copy(), wide_values.copy()
    large[500], small[500] = (1e300, 1e-300) if given in narrow else (3e38, 1e-45)
    cases += [large, small, np.array([0.0, -0.0, np.inf, -np.inf, 2.0**-149, 2.0**127], given)]
    for data in cases:
        whole = wide(data, dtype)
        for device.order in (0, 1, 7):
            stored, error = stored_values.halved(send(data), np.dtype(dtype))
            with np.errstate(all="ignore"):
                assert stored.get().tobytes() == whole.astype(narrow[dtype]).tobytes()
            for allowed in (0.0, 6e-8, 0.5):
                by_host = encoded(whole, HALF, value_error=allowed)
                assert (error <= allowed) == (by_host is not None)
                if by_host is not None:
                    np.testing.assert_allclose(error, by_host.error, rtol=1e-12)
    for wrong in (np.nan, complex(1.0, np.nan)):
        if not isinstance(wrong, complex) or np.dtype(given).kind == "c":
            spoilt = wide_values.copy()
            spoilt[300] = wrong
            assert stored_values.halved(send(spoilt), np.dtype(dtype))[1] == np.inf


@pytest.mark.parametrize("word", ["uint16", "uint32"])
def test_places_of_offsets(device: Any, word: str) -> None:
    """Alone, or with what is in the upper half already; padding is zero."""
    rng = np.random.default_rng(3)
    for places, count in ((1, 3), (700, 500), (256, 256), (0, 2)):
        entry = rng.integers(0, count + 1, places).astype(np.uint32)
        stored = rng.integers(0, 2**16, count).astype(np.uint16)
        before = rng.integers(0, np.iinfo(word).max, max(places, 1), dtype=word)
        held = send(before)
        stored_values.place_offsets(send(stored), send(entry), held)
        offsets = np.append(np.uint16(0), stored)[entry].astype(word)
        upper = before & np.array(2**32 - 2**16).astype(word)
        assert np.array_equal(held.get()[:places], upper[:places] | offsets)
        assert np.array_equal(held.get()[places:], before[places:])


@pytest.mark.parametrize("room", [64, 65, 128, 4096, 8192, 16384])
def test_sets_have_slots_to_spare(room: int) -> None:
    assert 4 * room <= 1 << stored_values._bits_for(room - 1) < 8 * room


@needs_nvcc
def test_every_instance_compiles(tmp_path: Path, is_nightly: bool) -> None:
    """All pairs of types in the nightly run, on every push those of values that come in the type that is kept."""
    source = named("stored_values.cu")
    pairs = PAIRS if is_nightly else [(kept, given) for kept, given in PAIRS if kept == given]
    jobs = [(source, {"AKX_VALUE": C_TYPES[kept], "AKX_GIVEN": C_TYPES[given]}) for kept, given in pairs]
    jobs += [
        (source, {**macros, "AKX_HALF": HALVES[kept]})
        for (kept, _), (_, macros) in zip(pairs, list(jobs), strict=True)
        if kept in HALVES
    ]
    assert not (text := complaints(jobs, tmp_path, [])), text
