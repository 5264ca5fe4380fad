"""What the caches and the link of a GPU do: the kernels that ask read what they should, on the host and on a GPU."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from host_engine import install
from host_engine import to_device as given
from nvcc import complaints, named, needs_nvcc

from akx.backends.cuda.cost import rates
from akx.backends.cuda.device import memory
from akx.backends.cuda.device.compile import compile_cubin, compiler_name, options_for
from akx.backends.cuda.device.facts import cuda_device, cuda_missing
from akx.tuner.model.figures import derived_figures, measured_figures

_THREADS = 1024


@pytest.fixture(params=["host", pytest.param("gpu", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A GPU, or its kernels on the host; `given` puts an array on either."""
    if request.param == "gpu":
        if cuda_missing() is not None:
            pytest.skip(str(cuda_missing()))
        monkeypatch.setattr(sys.modules[__name__], "given", memory.to_device)
        return cuda_device()
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    facts = install(monkeypatch, tmp_path, (rates,), sms=3)
    facts.order = 12345
    return facts


def poisoned(device: Any) -> Any:
    return given(np.full((device.sms, _THREADS), 0xDEADBEEF, dtype=np.uint32))


@pytest.mark.parametrize("words", [1, 700, 2500])
def test_all_of_the_data_is_read_every_turn(device: Any, words: int) -> None:
    rng = np.random.default_rng(words)
    values = rng.integers(0, 2**32, (words * device.sms, 4), dtype=np.uint32)
    sums, turns = poisoned(device), 2 * device.sms
    rates.read_shared_cache(device, given(values), turns, sums)
    found = sums.get().astype(np.uint64)
    for block in range(device.sms):  # each has read all parts twice
        assert int(found[block].sum()) % 2**32 == 2 * int(values.astype(np.uint64).sum()) % 2**32
    by_thread = values.reshape(device.sms, words, 4).astype(np.uint64).sum(axis=(0, 2))
    expected = np.bincount(np.arange(words) % _THREADS, weights=(2 * by_thread).astype(float), minlength=_THREADS)
    np.testing.assert_array_equal(found[0], expected.astype(np.uint64) % 2**32)


@pytest.mark.parametrize("turns", [1, 3, 10])
def test_every_thread_reads_its_words_of_shared_memory(device: Any, turns: int) -> None:
    sums = poisoned(device)
    rates.read_shared_memory(device, turns, sums)
    words = 2048
    places = (np.arange(_THREADS)[:, None] + _THREADS * np.arange(turns)) % words
    expected = (4 * places + 6).sum(axis=1).astype(np.uint32)
    np.testing.assert_array_equal(sums.get(), np.broadcast_to(expected, (device.sms, _THREADS)))


def test_rates_are_bytes_a_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As many as the kernels are told to read, where that takes a quarter of a second."""
    queued: list[Any] = []
    monkeypatch.setattr(rates, "_least", lambda queue: queue() or 0.25)

    def array(shape: Any, dtype: Any) -> Any:
        def copy_from(other: Any) -> None:
            queued.append(("copy", other.shape))

        return SimpleNamespace(shape=shape, fill_bytes=lambda value: None, copy_from=copy_from)

    monkeypatch.setattr(rates, "empty", array)
    monkeypatch.setattr(rates, "read_shared_cache", lambda device, data, turns, sums: queued.append((data, turns)))
    monkeypatch.setattr(rates, "read_shared_memory", lambda device, turns, sums: queued.append((None, turns)))
    device = SimpleNamespace(sms=7, l2_bytes=2**20)
    assert rates.memory_rate(3000) == 4 * 2 * 3000
    assert queued.pop() == ("copy", 3000)
    found = rates.cache_rate(device)
    data, turns = queued.pop()
    words = data.shape[0]
    assert words % 7 == 0
    assert 0.4 * 2**20 < 16 * words <= 0.5 * 2**20
    assert found == 4 * 16 * words * turns
    found = rates.shared_memory_rate(device)
    assert found == 4 * 16 * 7 * 1024 * queued.pop()[1]


@needs_nvcc
def test_the_source_compiles(tmp_path: Path) -> None:
    assert not (text := complaints([(named("rates.cu"), {})], tmp_path, ["-Xptxas", "-warn-spills"])), text


def test_nvrtc_takes_the_source_too() -> None:
    if not (compiler_name() or "").startswith("NVRTC"):
        pytest.skip("NVRTC is not installed")
    assert compile_cubin(named("rates.cu"), options_for({}), "sm_90")


@pytest.mark.cuda
def test_rates_of_a_gpu_are_in_the_order_of_its_memories() -> None:
    if cuda_missing() is not None:
        pytest.skip(str(cuda_missing()))
    device = cuda_device()
    found, guess = measured_figures(device, 1), derived_figures(device, 1)
    assert 0.3 * guess.slow_bandwidth < found.slow_bandwidth < found.last_level_bandwidth < found.cache_bandwidth
    assert found.cache_bandwidth < 256.0 * device.sms * device.clock_hz  # twice what shared memory can do
    one_way, both = rates.link_rates()
    assert 1e9 < one_way <= both <= 2.1 * one_way
    assert both < found.slow_bandwidth
