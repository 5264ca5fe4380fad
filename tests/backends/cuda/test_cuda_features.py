"""What the device finds of a pattern for prices is what the host finds, to the bit; by the kernels' own text there."""

from __future__ import annotations

import gc
import shutil
import weakref
from dataclasses import replace
from typing import Any

import host_engine
import numpy as np
import pytest
import scipy.sparse as sp
from program_on_host import Device
from test_cuda_layouts import H100
from test_cuda_lengths import rows_of_lengths

from akx.backends.cuda import row_lengths as lengths
from akx.backends.cuda.cost import model as work
from akx.backends.cuda.device.facts import cuda_missing
from akx.backends.cuda.device.memory import DeviceArray, to_device
from akx.backends.cuda.matrix import device_matrix, features, transpose
from akx.backends.cuda.matrix.device_matrix import Arrays, DeviceMatrix
from akx.backends.cuda.matrix.features import LANES, OnDevice
from akx.backends.cuda.schedules.resident import search
from akx.backends.cuda.variants import diagonals, slots, translate
from akx.core.matrix import Matrix, Pattern
from akx.formats.base import pattern_of
from akx.formats.blocked import Blocked, full_blocks
from akx.formats.natural_blocks import _ALIKE, _likeness
from akx.formats.slice_diagonals import diagonals_of
from akx.formats.supervariables import _twins
from akx.operator.matrix_values import _add_arrays
from akx.partition.halo import halo_sizes
from akx.partition.level_order import _closure, _lines, _next_to
from akx.partition.wavefront_blocks import _reach
from akx.tuner import predict

on_the_host = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
on_a_gpu = pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("features")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, built: Any) -> Device:
    found = Device(H100, built, "features", "transpose")
    found.install(monkeypatch, built, [features, transpose])
    return found


@pytest.fixture
def predicting(monkeypatch: pytest.MonkeyPatch, built: Any) -> Device:
    found = Device(H100, built, "features", "transpose", "lengths", "slots", "translate", "canonical")
    found.install(monkeypatch, built, [features, transpose, lengths, slots, translate, device_matrix])
    for name, few in {"_BLOCK": 32, "_PER_PART": 1, "_PER_SLICE": 1}.items():  # each thread takes its time here
        monkeypatch.setattr(features, name, few)
    monkeypatch.setattr(translate, "_LARGE", 128)
    return found


def patterns() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    line = sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(13, 13))
    power = np.minimum(1 + (1.0 / rng.random(500) ** 0.8).astype(int), 500)
    return {
        "one": np.ones((1, 1)),
        "nothing": sp.csr_array((70, 70)),
        "a full row": rows_of_lengths([2] * 30 + [100] + [0] * 69),
        "power law": rows_of_lengths(power),
        "some empty": rows_of_lengths(rng.integers(0, 4, 260)),
        "band": sp.diags_array([1.0, 1.0, 1.0], offsets=[-40, 0, 3], shape=(331, 331)),
        "tridiagonal": sp.diags_array([1.0, 1.0], offsets=[0, 1], shape=(90, 90)),
        "grid": sp.kron(line, sp.eye_array(13)) + sp.kron(sp.eye_array(13), line),
        "nodes of 2": sp.kron(line, np.ones((2, 2))),
        "nodes of 6": sp.kron(sp.kron(line, line), np.ones((6, 6))),
        "nearly nodes of 3": sp.csr_array(
            sp.kron(line, np.ones((3, 3))) - sp.csr_array(([1.0], ([38], [36])), (39, 39))
        ),
    }


def hosts(A: Any) -> tuple[Matrix, Any]:
    A = sp.csr_array(A)
    A.eliminate_zeros()
    A.indptr, A.indices = A.indptr.astype(np.int64), A.indices.astype(np.int64)
    matrix = Matrix.from_any(A)
    return matrix, pattern_of(matrix)


def is_the_hosts(A: Any, send: Any) -> None:
    matrix, pattern = hosts(A)
    there = OnDevice(*(send(np.ascontiguousarray(one, np.uint32)) for one in (pattern.indptr, pattern.indices)))
    n, slices = matrix.n, -(-matrix.n // 32)
    length, row = np.diff(matrix.indptr), np.repeat(np.arange(matrix.n), np.diff(matrix.indptr))
    some = np.arange(0, slices, 2)
    inside = np.isin(row // 32, some)
    for per in (0, 4):
        key = matrix.indices // per if per else matrix.indices - row + n
        wanted = np.unique((row // 32 * 2 * n + key)[inside]).size
        assert features.different_keys(there, some, per) == (wanted, inside.sum())
    lines, entries = features.lines_of_loads(there, some, 8, int(length.max()))
    assert entries == inside.sum()
    place = np.arange(row.size) - matrix.indptr[row]
    for lanes, count in lines.items():
        in_rows = (row // (32 // max(lanes, 1)) * (n + 1) + place // max(lanes, 1))[inside]
        load = in_rows if lanes else np.arange(entries) // 32
        assert count == np.unique(load * n + matrix.indices[inside] // 8).size
    few = np.unique(np.linspace(0, n - 1, 50).astype(np.int64))
    alike = _likeness(pattern.indptr, pattern.indices) >= _ALIKE
    assert features.count_alike(there, few[1:]) == np.count_nonzero(alike[few[1:]])
    assert features.count_twins(there, few) == _twins(pattern.indptr, pattern.indices, few)
    assert (features.starts_at(there, np.append(few, n)) == matrix.indptr[np.append(few, n)]).all()
    for rows in (few, few[::2], np.arange(n // 3, n), few[:0]):
        for one, other in zip(
            features.rows_of(there, rows), (length[rows], matrix.indices[np.isin(row, rows)]), strict=True
        ):
            np.testing.assert_array_equal(one, other)
    for parts in (1, 3, 17, 40):
        cuts = np.unique(np.linspace(0, n, parts + 1).astype(np.int64))
        found = features.parts_read(there, cuts)
        for one, other in zip(found[:3], halo_sizes(pattern.indptr, pattern.indices, cuts), strict=True):
            np.testing.assert_array_equal(one, other)
        for lanes in LANES:
            wanted = np.add.reduceat(-(-length // lanes), cuts[:-1])
            np.testing.assert_array_equal(found.slots[lanes], wanted)
    sizes = features.full_blocks(there)
    assert sizes == {size for size in (2, 3, 6) if full_blocks(pattern, size) is not None}
    for size in sizes:
        nodes, expected = features.blocks_of_nodes(there, size), full_blocks(pattern, size)
        assert expected is not None
        np.testing.assert_array_equal(nodes.pointer.get(), expected.pattern.indptr)
        np.testing.assert_array_equal(nodes.column.get(), expected.pattern.indices)
    blocks = np.sort(np.random.default_rng(1).integers(0, 6, n).astype(np.uint32))
    blocks = np.unique(blocks, return_inverse=True)[1].astype(np.uint32)
    for ascend in (False, True):
        begin = np.searchsorted(blocks, np.arange(int(blocks[-1]) + 1))
        assert features.blocks_read(there, begin) == _reach(matrix.indptr, matrix.indices, blocks, 0, matrix.n, ascend)
    known = diagonals_of(pattern)
    for own, expected in zip(features.extents(there), known.extents, strict=True):
        np.testing.assert_array_equal(own, expected)
    is_one, uneven, beyond, far = features.line_faults(there)
    starts = _lines(matrix.indptr, matrix.indices)
    size = np.diff(starts)
    assert is_one == (size.size == 1)
    assert uneven == (not (size[:-1] == size[0]).all() or size[-1] > size[0])
    if not uneven:
        assert beyond == (not _next_to(matrix.indptr, matrix.indices, starts))
    distant = np.abs(matrix.indices - row) > 1
    assert far == np.minimum(matrix.indices, row)[distant].min(initial=n)
    levels = np.diff(_closure(matrix.indptr, matrix.indices))
    assert levels.size <= far + 2 or not (levels[:-1] == 1).all()  # which wavefront_offers relies on
    counts = np.bincount(matrix.indices, minlength=n)
    given = send(counts.astype(np.uint32))
    for most in (1, n // 3 + 1, n):
        assert features.largest_counts(given, matrix.nnz, most) == np.sort(counts)[::-1][:most].sum()


@on_the_host
@pytest.mark.parametrize("name", patterns())
def test_it_is_the_hosts(device: Device, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device.threads.order = 7
    monkeypatch.setattr(features, "_WORDS", 40)  # bits of some parts at a time
    monkeypatch.setattr(features, "_LONG", 16)
    is_the_hosts(patterns()[name], host_engine.to_device)


@on_the_host
def test_columns_with_more_entries_than_are_counted(device: Device) -> None:
    counts = np.array([5, 9000, 0, 4095, 4096, 4097, 1, 1], np.uint32)
    there, total = host_engine.to_device(counts), int(counts.sum())
    for most in range(1, 9):
        assert features.largest_counts(there, total, most) == np.sort(counts)[::-1][:most].sum()


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("name", patterns())
def test_a_gpu_finds_the_same(name: str) -> None:
    is_the_hosts(patterns()[name], to_device)


# ------------------------------------------------------------------------------------------------------- predictions


def on_device(A: Any, send: Any) -> DeviceMatrix:
    """A matrix that the host has never seen."""
    matrix = Matrix.from_any(sp.csr_array(A))
    arrays = [send(np.ascontiguousarray(one, np.uint32)) for one in (matrix.indptr, matrix.indices)]
    return DeviceMatrix(Arrays(*arrays, send(matrix.data)), pattern_cache={}, largest=matrix.largest)


def came_down(matrix: DeviceMatrix) -> set[str]:
    """What the host has of a matrix on the device."""
    return {name for held in (matrix, matrix.pattern) for name in ("indptr", "indices", "data") if name in vars(held)}


def predicted_patterns() -> dict[str, Any]:
    """Columns anywhere, and near by; some that all read; nodes; grids, of which levels are looked at."""
    rng = np.random.default_rng(4)
    n = 1500
    row, col = np.repeat(np.arange(n), 4), rng.integers(0, n, 4 * n)
    near = np.clip(row + rng.integers(-60, 60, row.size), 0, n - 1)
    hubs = np.where(rng.random(row.size) < 0.5, rng.integers(0, 200, row.size) * 7, col)

    def made(columns: Any) -> Any:
        return sp.csr_array((rng.random(row.size) + 0.5, (row, columns)), shape=(n, n))

    line, one = sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(40, 40)), sp.eye_array(40)
    grids = sp.kron(line, one) + sp.kron(one, line), sp.kron(line, line)
    return {
        "anywhere": made(col),
        "near": made(near),
        "hubs": made(hubs),
        "nodes": sp.kron(made(near)[:300, :300], np.ones((3, 3))),
        **dict(zip(("5 points", "9 points"), grids, strict=True)),
    }


def predicts_the_same(name: str, send: Any) -> None:
    """As the host, of a matrix whose entries stay where they are."""
    A = predicted_patterns()[name]
    there, here = on_device(A, send), Matrix.from_any(sp.csr_array(A))
    plans = []
    for k, vectors in ((8, 1), (4, 2)):
        plans.append([predict(matrix, k, H100, backend="cuda", start_vectors=vectors) for matrix in (there, here)])
    same = set(there.pattern_cache) & set(here.pattern_cache)
    assert len(same) > 10
    for key in same:  # all that was found on the way
        one, other = there.pattern_cache[key], here.pattern_cache[key]
        if isinstance(one, (int, float, bool, str, np.ndarray)):
            np.testing.assert_array_equal(one, other, str(key))
    assert all(one == other for one, other in plans)
    held: dict[Any, int] = {}
    _add_arrays(held, there.pattern_cache)  # counts bytes, and brings nothing
    assert held
    is_grid = "points" in name  # strips of a grid ask how long rows are
    assert came_down(there) <= ({"indptr"} if is_grid else set())


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns that are small, as if they were large: METIS is not worth a thought, and few rows tell."""
    monkeypatch.setattr(search, "_SOON_CUT", 0)
    monkeypatch.setattr(diagonals, "_SAMPLE", 5)
    monkeypatch.setattr(work, "_SAMPLE", 9)


@on_the_host
@pytest.mark.parametrize("name", predicted_patterns())
def test_a_prediction_is_the_hosts_and_no_entry_comes_down(predicting: Device, looked_at: None, name: str) -> None:
    predicts_the_same(name, host_engine.to_device)


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("name", predicted_patterns())
def test_a_prediction_on_a_gpu(looked_at: None, name: str) -> None:
    predicts_the_same(name, to_device)


@on_the_host
def test_a_matrix_of_the_host_is_sent_to_be_looked_at(predicting: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones, once; what is found is known of it, and nothing of the device is kept."""
    monkeypatch.setattr(features, "cuda_missing", lambda: None)
    monkeypatch.setattr(features, "cuda_device", lambda ordinal=0: H100)
    A = sp.csr_array(predicted_patterns()["nodes"])
    small, sent = Matrix.from_any(A), Matrix.from_any(A)
    expected = predict(small, 8, H100, backend="cuda")
    monkeypatch.setattr(features, "_WORTH_SENDING", A.nnz)
    looked, copied = [], features.copied
    monkeypatch.setattr(features, "copied", lambda *given: looked.append(copied(*given)) or looked[-1])
    assert predict(sent, 8, H100, backend="cuda") == expected
    assert predict(sent, 8, H100, backend="cuda") == expected
    assert [one.on_device is not None for one in looked] == [True, False]
    there = weakref.ref(looked[0])
    del looked[:]
    gc.collect()
    assert there() is None
    known = [one for one in sent.pattern_cache.values() if not isinstance(one, Pattern)]
    assert len(known) > 30
    held = [item for one in known for item in (one if isinstance(one, (tuple, list)) else [one])]
    assert not any(isinstance(one, (DeviceArray, Blocked, OnDevice)) for one in held)
    for key in set(small.pattern_cache) & set(sent.pattern_cache):
        if isinstance(small.pattern_cache[key], (int, float, str)):
            assert small.pattern_cache[key] == sent.pattern_cache[key], key
    assert features.copied(sent, replace(H100, budget=1 << 30)) is sent
