"""Large arrays to the device without one: piece by piece, in buffers that are filled again when they have been read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device.fake_driver import FakeDriver, seen

from akx.device.cuda import memory, uploads


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
    locked = memory.pinned(values.shape, values.dtype)
    locked[:] = 2 * values
    driver.log.clear()
    array.set(locked)  # which the device reads by itself
    assert driver.log.count("cuMemcpyHtoDAsync") == 1
    np.testing.assert_array_equal(seen(array.pointer, values.size), 2 * values)


def test_threads_share_the_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte is sent once, whatever their number; what goes wrong in one of them is raised."""
    sent: list[tuple[int, int]] = []

    class Buffers:
        def send(self, pointer: int, address: int, nbytes: int, pieces: Any, behind: Any) -> None:
            if nbytes == 999:
                raise ValueError("out of order")
            sent.extend((place, min(32, nbytes - place)) for place in pieces)

    spare: list[Any] = []
    for name, value in {"_PIECE": 32, "_Buffers": Buffers, "_spare": spare, "Mark": lambda stream: None}.items():
        monkeypatch.setattr(uploads, name, value)
    monkeypatch.setattr(uploads, "default_stream", lambda: None)
    for threads in (1, 3, 8):
        sent.clear()
        monkeypatch.setattr(uploads, "default_threads", lambda threads=threads: threads)
        uploads.upload(0, np.zeros(1000, np.uint8))
        assert sorted(sent) == [(place, min(32, 1000 - place)) for place in range(0, 1000, 32)]
    made = set(spare)
    assert len(made) == 8
    with pytest.raises(ValueError, match="out of order"):
        uploads.upload(0, np.zeros(999, np.uint8))
    assert set(spare) == made  # none is lost


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
