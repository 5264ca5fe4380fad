"""Large arrays to the device and back without one: piece by piece, in buffers that are used again and again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device.fake_driver import FakeDriver, seen

from akx.backends.cuda.device import memory, pool, uploads


class OutOfMemory(int):
    name = "CUDA_ERROR_OUT_OF_MEMORY"


@pytest.mark.parametrize("bytes_more", [0, 8, 24])
def test_an_array_goes_in_pieces(monkeypatch: pytest.MonkeyPatch, bytes_more: int) -> None:
    """Whole ones and the rest of one; behind the work so far, which may use that memory; and there on return."""
    driver = FakeDriver()
    driver.install(monkeypatch)
    for name, value in {"_PIECE": 32, "_THREADS": 1, "_spare": []}.items():
        monkeypatch.setattr(uploads, name, value)
    monkeypatch.setattr(memory, "LARGE", 64)
    values = np.arange((7 * 32 + bytes_more) // 8, dtype=float)
    array = memory.empty(values.shape, values.dtype)
    array.fill_bytes(1)
    driver.log.clear()
    array.set(values)
    np.testing.assert_array_equal(seen(array.pointer, values.size), values)
    assert driver.log.count("cuMemcpyHtoDAsync") == 7 + bool(bytes_more)
    driver.log.clear()
    array.set(values[::-1])
    np.testing.assert_array_equal(seen(array.pointer, values.size), values[::-1])
    assert "cuMemHostAlloc" not in driver.log  # buffers are kept
    locked = pool.pinned(values.shape, values.dtype)
    locked[:] = 2 * values
    driver.log.clear()
    array.set(locked)  # which the device reads by itself
    assert driver.log.count("cuMemcpyHtoDAsync") == 1
    np.testing.assert_array_equal(seen(array.pointer, values.size), 2 * values)


@pytest.mark.parametrize("way", ["upload", "download"])
def test_threads_share_the_pieces(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte is sent once, whatever their number; what goes wrong in one of them is raised."""
    sent: list[tuple[int, int]] = []

    class Buffers:
        def send(self, pointer: int, address: int, sizes: Any, behind: Any) -> None:
            if pointer == 999:
                raise ValueError("out of order")
            sent.extend(sizes)

        fetch = send

    spare: list[Any] = []
    changed = {"_PIECE": 32, "_Buffers": Buffers, "_spare": spare, "Mark": lambda stream: None}
    for name, value in changed.items():
        monkeypatch.setattr(uploads, name, value)
    monkeypatch.setattr(uploads, "default_stream", lambda: None)
    copy = getattr(uploads, way)
    for threads in (1, 3, 8):
        sent.clear()
        monkeypatch.setattr(uploads, "default_threads", lambda threads=threads: threads)
        copy(0, np.zeros(1000, np.uint8))
        assert sorted(sent) == [(place, min(32, 1000 - place)) for place in range(0, 1000, 32)]
    made = set(spare)
    assert len(made) == 8
    with pytest.raises(ValueError, match="out of order"):
        copy(999, np.zeros(1000, np.uint8))
    assert set(spare) == made  # none is lost


@pytest.mark.parametrize("bytes_more", [0, 8, 24])
def test_an_array_comes_back_in_pieces(monkeypatch: pytest.MonkeyPatch, bytes_more: int) -> None:
    """Behind the work so far; and there on return, in memory that is not page-locked, and at once where it is."""
    driver = FakeDriver()
    driver.install(monkeypatch)
    for name, value in {"_PIECE": 32, "_THREADS": 1, "_spare": []}.items():
        monkeypatch.setattr(uploads, name, value)
    monkeypatch.setattr(memory, "LARGE_BACK", 64)
    values = np.arange((7 * 32 + bytes_more) // 8, dtype=float)
    array, other = (memory.empty(values.shape, values.dtype) for _ in range(2))
    other.set(values)
    array.copy_from(other)
    driver.log.clear()
    np.testing.assert_array_equal(array.get(), values)
    assert driver.log.count("cuMemcpyDtoHAsync") == 7 + bool(bytes_more)
    locked = pool.pinned(values.shape, values.dtype)
    driver.log.clear()
    assert array.get(locked) is locked
    assert driver.log.count("cuMemcpyDtoHAsync") == 1
    np.testing.assert_array_equal(locked, values)


@pytest.mark.parametrize("most", [0, 3])
def test_without_page_locked_memory_an_array_goes_as_it_is(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Or with as many buffers as there are: a smaller host is slower, and nothing is refused or left over."""
    driver = FakeDriver()
    driver.install(monkeypatch)
    for name, value in {"_PIECE": 32, "_spare": [], "default_threads": lambda: 4}.items():
        monkeypatch.setattr(uploads, name, value)
    monkeypatch.setattr(memory, "LARGE", 64)
    lock, left = driver.cuMemHostAlloc, list(range(most))

    def refuse(size: int, flags: int) -> Any:
        return lock(size, flags) if left and left.pop() is not None else (OutOfMemory(2), 0)

    monkeypatch.setattr(driver, "cuMemHostAlloc", refuse)
    values = np.arange(64.0)
    array = memory.empty(values.shape, values.dtype)
    uploads.default_stream()
    driver.log.clear()
    array.set(values)
    np.testing.assert_array_equal(seen(array.pointer, values.size), values)
    assert driver.log.count("cuMemcpyHtoDAsync") == (16 if most else 1)
    assert driver.log.count("cuStreamCreate") == len(uploads._spare) == most // 2
