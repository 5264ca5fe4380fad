"""The pool's budget and what it keeps, with a driver that hands out numbers."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import akx
from akx.backends.cuda.device import memory
from akx.backends.cuda.device.pool import MemoryPool, memory_pool
from akx.backends.cuda.device.singleton import Once
from akx.core.errors import ArgumentError, ArgumentTypeError, DeviceError, DeviceMemoryError


class Driver:
    """Memory of a device as numbers; ``live``, as the runtime gives it."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.freed: list[int] = []
        self.answer: list[str] = []  # results other than success, of the next allocations
        self.on_free: Any = None
        self.driver = SimpleNamespace(cuMemAlloc=self.allocate, cuMemFree=self.free, CUdeviceptr=int)

    def allocate(self, size: int) -> tuple[Any, int]:
        name = self.answer.pop(0) if self.answer else "CUDA_SUCCESS"

        class Code(int):
            pass

        code: Any = Code(name != "CUDA_SUCCESS")
        code.name = name
        self.asked.append(size)
        return code, 1000 + len(self.asked)

    def free(self, address: int) -> None:
        self.freed.append(address)
        if self.on_free is not None:
            self.on_free()

    def call(self, name: str) -> tuple[int, int]:
        return (77, 100)

    def active(self) -> Driver:
        return self

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    found = Driver()
    monkeypatch.setattr("akx.backends.cuda.device.pool.runtime", lambda: found)
    return found


@pytest.fixture
def no_pool_yet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept = memory_pool._made
    memory_pool.forget()
    yield
    memory_pool._made = kept


def test_no_more_than_the_budget(driver: Driver) -> None:
    pool = MemoryPool("8K")
    assert pool.budget == 8192
    first = pool.take(4096)
    pool.take(4000)
    with pytest.raises(DeviceMemoryError, match=r"budget is spent, expected at most 8192 bytes.*AKX_GPU_MEMORY"):
        pool.take(1)
    pool.give(*first)
    assert (pool.used, pool.kept) == (4096, 4096)
    pool.take(512)  # what is kept in another size goes back first
    assert driver.freed == [first[0]]
    assert (pool.used, pool.kept) == (4608, 0)
    pool.budget = None
    pool.take(2**40)


def test_what_is_kept_is_given_out_again_until_it_is_trimmed(driver: Driver) -> None:
    pool = MemoryPool()
    first = pool.take(1000)
    pool.give(*first)
    assert pool.take(1024) == first
    pool.give(*first)
    pool.budget = 4096
    assert not driver.freed
    pool.budget = 512  # less than what is kept
    assert driver.freed == [first[0]]
    pool.trim()
    assert driver.freed == [first[0]]


def test_a_budget_that_was_lowered_holds_for_what_comes_back(driver: Driver) -> None:
    pool = MemoryPool()
    large = pool.take(2**20)
    pool.budget = "64K"
    assert (pool.used, driver.freed) == (2**20, [])
    pool.give(*large)
    with pytest.raises(DeviceMemoryError):
        pool.take(2**20)
    assert driver.freed == [large[0]]
    assert (pool.used, pool.kept) == (0, 0)


def test_memory_that_comes_back_while_other_is_freed_is_not_lost(driver: Driver) -> None:
    """The collector may run within any call; what it finds is freed or kept, once."""
    pool = MemoryPool()
    arrays = [pool.take(512 << i) for i in range(6)]
    late = arrays[3:]
    for array in arrays[:3]:
        pool.give(*array)
    driver.on_free = lambda: late and pool.give(*late.pop())
    pool.trim()
    driver.on_free = None
    assert sorted(driver.freed) == [address for address, _ in arrays[:3]]
    assert {pool.take(512 << i)[0] for i in range(3, 6)} == {address for address, _ in arrays[3:]}
    assert (pool.used, pool.kept) == (512 * (8 + 16 + 32), 0)


def test_memory_of_an_array_comes_back_without_a_step_in_which_a_handler_could_raise(
    driver: Driver, no_pool_yet: None
) -> None:
    array = memory.empty(100, np.float64)
    pool = memory_pool()
    assert pool.used == 1024
    steps: list[str] = []
    sys.setprofile(lambda frame, event, arg: steps.append(frame.f_code.co_name) if event == "call" else None)
    del array
    sys.setprofile(None)
    assert steps == []
    assert (pool.used, pool.kept) == (0, 1024)
    assert pool.take(1000)[1] == 1024
    assert pool.kept == 0


def test_an_interrupted_trim_leaves_nothing_that_was_freed(driver: Driver) -> None:
    pool = MemoryPool()
    arrays = [pool.take(512) for _ in range(3)]
    for array in arrays:
        pool.give(*array)

    def interrupt() -> None:
        raise KeyboardInterrupt

    driver.on_free = interrupt
    with pytest.raises(KeyboardInterrupt):
        pool.trim()
    driver.on_free = None
    again = {pool.take(512)[0] for _ in range(3)}
    assert not again & set(driver.freed)


def test_an_exact_pool_asks_for_every_array_and_keeps_none(driver: Driver) -> None:
    pool = MemoryPool(exact=True)
    first = pool.take(1001)
    assert (driver.asked, first[1]) == ([1001], 1001)
    pool.give(*first)
    assert (pool.used, pool.kept, driver.freed) == (0, 0, [first[0]])
    assert pool.take(1001)[0] != first[0]


def test_out_of_memory_is_told_from_other_failures(driver: Driver) -> None:
    pool = MemoryPool()
    kept = pool.take(512)
    pool.give(*kept)
    driver.answer = ["CUDA_ERROR_OUT_OF_MEMORY"]
    pool.take(4096)  # once what was kept is free
    assert driver.freed == [kept[0]]
    driver.answer = ["CUDA_ERROR_OUT_OF_MEMORY"]
    with pytest.raises(DeviceMemoryError, match="out of memory, expected 8192 bytes, found 77 free"):
        pool.take(8192)
    driver.answer = ["CUDA_ERROR_LAUNCH_FAILED"]
    with pytest.raises(DeviceError, match="allocating memory") as found:
        pool.take(8192)
    assert not isinstance(found.value, DeviceMemoryError)
    assert pool.used == 4096


@pytest.mark.parametrize(
    ("value", "error"), [("much", ArgumentError), (0, ArgumentError), (-1, ArgumentError), (1.5, ArgumentTypeError)]
)
def test_a_budget_is_a_number_of_bytes(value: Any, error: type[Exception]) -> None:
    pool = MemoryPool(4096)
    with pytest.raises(error, match="bytes"):
        pool.budget = value
    assert pool.budget == 4096


def test_the_environment_says_the_budget(no_pool_yet: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKX_GPU_MEMORY", "2G")
    assert akx.memory_pool().budget == 2**31
    assert akx.memory_pool() is memory_pool()
    akx.memory_pool().budget = "1G"
    assert memory_pool().budget == 2**30
    memory_pool.forget()
    monkeypatch.setenv("AKX_GPU_MEMORY", "all of it")
    with pytest.raises(ArgumentError, match="'all of it'; AKX_GPU_MEMORY is wrong"):
        akx.memory_pool()
    memory_pool.forget()
    monkeypatch.delenv("AKX_GPU_MEMORY")
    monkeypatch.setenv("AKX_GPU_POOL", "off")
    assert akx.memory_pool().budget is None
    assert akx.memory_pool().exact
    memory_pool.forget()
    monkeypatch.setenv("AKX_GPU_POOL", "sometimes")
    with pytest.raises(ArgumentError, match="AKX_GPU_POOL is wrong, expected on or off"):
        akx.memory_pool()


def test_trimming_an_empty_pool_needs_no_gpu() -> None:
    MemoryPool().trim()


def test_threads_that_come_first_together_get_the_same() -> None:
    made = []
    together = threading.Barrier(4)

    @Once
    def one() -> object:
        """Something."""
        time.sleep(0.05)
        made.append(object())
        return made[-1]

    def get(_: int) -> object:
        together.wait()
        return one()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(get, range(4)))) == len(made) == 1
    assert one.__doc__ == "Something."
    one.forget()
    assert one() is made[1]
