"""What the device finds of the lengths and ends of rows is what the host finds; by the kernels' own text there."""

from __future__ import annotations

import shutil
from typing import Any

import host_engine
import numpy as np
import pytest
import scipy.sparse as sp
from program_on_host import Device
from test_cuda_layouts import H100

from akx.backends.cuda import row_lengths as lengths
from akx.backends.cuda.device.facts import cuda_missing
from akx.backends.cuda.device.memory import to_device
from akx.backends.cuda.matrix import transpose
from akx.core import features
from akx.core.matrix import Matrix
from akx.formats import pcsr, sell
from akx.formats.base import Pattern, pattern_of

on_the_host = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
on_a_gpu = pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Device:
    found = Device(H100, tmp_path_factory.mktemp("lengths"), "lengths", "transpose")
    found.install(monkeypatch, found.threads.folder, [lengths, transpose])
    return found


def rows_of_lengths(given: Any, seed: int = 0) -> Any:
    """Rows of these lengths, with columns anywhere."""
    rng, n = np.random.default_rng(seed), len(given)
    index = [np.sort(rng.choice(n, int(length), replace=False)) for length in given]
    pointer = np.concatenate([[0], np.cumsum(given)])
    return sp.csr_array((np.ones(pointer[-1]), np.concatenate([*index, []]).astype(int), pointer), shape=(n, n))


def patterns() -> dict[str, Any]:
    """One row, rows without entries, a long one, a power law, a band, whole windows and more."""
    rng = np.random.default_rng(3)
    power = np.minimum(1 + (1.0 / rng.random(1500) ** 0.7).astype(int), 1500)
    return {
        "one": sp.csr_array(np.ones((1, 1))),
        "nothing": sp.csr_array((70, 70)),
        "band": sp.csr_array(sp.diags_array([1.0, 1.0, 1.0], offsets=[-40, 0, 3], shape=(1100, 1100))),
        "power law": rows_of_lengths(power),
        "some empty": rows_of_lengths(rng.integers(0, 4, 1024)),
        "a long row": rows_of_lengths([1] * 60 + [90] + [0] * 30),
        "a row that begins with a partition": rows_of_lengths([1] * 256 + [600] + [2] * 400),
    }


def there(A: Any, send: Any) -> tuple[Pattern, list[Any]]:
    pattern = pattern_of(Matrix.from_any(A))
    return pattern, [send(np.ascontiguousarray(one, np.uint32)) for one in (pattern.indptr, pattern.indices)]


def is_the_hosts(A: Any, send: Any) -> None:
    """All numbers, the order of rows, and where slices, rows and partitions begin."""
    pattern, arrays = there(A, send)
    found = lengths.measured(*arrays)
    length = np.diff(pattern.indptr.astype(np.int64))
    dtype = np.dtype(np.float64)
    for sigma in (1, 1024):
        assert found.slots[sigma] == sell.sell_slots(pattern, dtype, sigma, chunk=32)
        assert found.far[sigma] is not sell.sell_fits(pattern, dtype, sigma, 16, chunk=32)
    for pad, total in found.padded.items():
        assert total == pcsr._starts(pattern, pad)[-1]
    assert found.dealt == {lanes: int((-(-length // lanes) * lanes).sum()) for lanes in (1, 2, 4, 8)}
    assert (found.longest, found.shortest, found.empty) == (length.max(), length.min(), (length == 0).sum())
    assert found.squares == (length**2).sum()
    signed = pattern.indptr.astype(np.int64), pattern.indices.astype(np.int64)
    assert (max(found.below, found.above), found.profile) == features.extent(*signed)
    rows = np.flatnonzero(length)
    first, last = signed[1][signed[0][rows]], signed[1][signed[0][rows + 1] - 1]
    assert found.reach == int((np.maximum(last, rows) - np.minimum(first, rows)).max(initial=0))
    for sigma in (32, 1024):
        order = lengths.order_in_windows(arrays[0], sigma)
        expected = np.zeros(order.size, np.uint32)
        expected[: pattern.rows] = sell.order_of(pattern, sigma)
        np.testing.assert_array_equal(order.get(), expected)
        starts, slots = lengths.starts_of_slices(arrays[0], order)
        np.testing.assert_array_equal(starts.get(), sell.starts_of(pattern, sigma, 32))
        assert slots == sell.sell_slots(pattern, dtype, sigma, chunk=32)
    for pad in (1, 8):
        begin, used = lengths.starts_of_rows(arrays[0], pad)
        row, split = lengths.partitions_of(begin, -(-used // 256), 256)
        for one, wanted in zip((begin.get(), row.get(), *split), pcsr.cuts_of(pattern, pad), strict=True):
            np.testing.assert_array_equal(one, wanted)
    columns = transpose.counted(arrays[1], pattern.rows).get()
    np.testing.assert_array_equal(columns, np.bincount(pattern.indices, minlength=pattern.rows))
    in_units, _ = lengths.starts_of_rows(arrays[0], 16, 16)
    np.testing.assert_array_equal(16 * in_units.get(), pcsr._starts(pattern, 16))


@on_the_host
@pytest.mark.parametrize("name", patterns())
def test_it_is_the_hosts(device: Device, name: str) -> None:
    device.threads.order = 7
    is_the_hosts(patterns()[name], host_engine.to_device)


@on_the_host
def test_columns_of_a_slice_may_be_too_far_apart(device: Device) -> None:
    """In the order of rows; sorted, where a long row with far columns comes into another slice."""
    begin = np.concatenate([np.arange(0, 128, 2), [128, 131]])
    columns = np.tile([7, 65_542], 64)
    last = [65_543, 65_600, 70_000]
    for index, far in (
        (columns, {1: False, 1024: False}),
        (np.append(columns, last), {1: False, 1024: True}),
        (np.where(np.arange(128) == 9, 65_543, columns), {1: True, 1024: True}),
    ):
        pointer = begin if index.size > 128 else begin[:-1]
        arrays = (host_engine.to_device(one.astype(np.uint32)) for one in (pointer, index))
        assert lengths.measured(*arrays).far == far


@on_a_gpu
@pytest.mark.cuda
@pytest.mark.parametrize("name", patterns())
def test_it_is_the_hosts_on_a_gpu(name: str) -> None:
    is_the_hosts(patterns()[name], to_device)
