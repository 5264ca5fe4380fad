"""The pool's budget and what it keeps, with a driver that hands out numbers."""

from __future__ import annotations

from itertools import count

import pytest

import akx
from akx.device.cuda import memory
from akx.device.cuda.memory import MemoryPool
from akx.errors import ArgumentError, ArgumentTypeError, DeviceMemoryError


@pytest.fixture
def freed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What went back to the driver."""
    addresses, given_back = count(1), list[int]()

    def release(self: MemoryPool) -> None:
        given_back.extend(address for some in self._free.values() for address in some)
        self._free.clear()
        self.kept = 0

    monkeypatch.setattr(MemoryPool, "_allocate", lambda self, size: next(addresses))
    monkeypatch.setattr(MemoryPool, "_release", release)
    memory.memory_pool.cache_clear()
    return given_back


def test_no_more_than_the_budget(freed: list[int]) -> None:
    pool = MemoryPool("8K")
    assert pool.budget == 8192
    first = pool.take(4096)
    pool.take(4000)
    with pytest.raises(DeviceMemoryError, match=r"budget is spent, expected at most 8192 bytes.*AKX_GPU_MEMORY"):
        pool.take(1)
    pool.give(*first)
    assert (pool.used, pool.kept) == (4096, 4096)
    pool.take(512)  # what is kept in another size goes back first
    assert freed == [first[0]]
    assert (pool.used, pool.kept) == (4608, 0)
    pool.budget = None
    pool.take(2**40)


def test_what_is_kept_is_given_out_again_until_it_is_trimmed(freed: list[int]) -> None:
    pool = MemoryPool()
    first = pool.take(1000)
    pool.give(*first)
    assert pool.take(1024) == first
    pool.give(*first)
    pool.budget = 4096
    assert not freed
    pool.budget = 512  # less than what is kept
    assert freed == [first[0]]
    pool.trim()
    assert freed == [first[0]]


@pytest.mark.parametrize(
    ("value", "error"), [("much", ArgumentError), (0, ArgumentError), (-1, ArgumentError), (1.5, ArgumentTypeError)]
)
def test_a_budget_is_a_number_of_bytes(value: object, error: type[Exception]) -> None:
    pool = MemoryPool(4096)
    with pytest.raises(error, match="bytes"):
        pool.budget = value  # type: ignore[assignment]
    assert pool.budget == 4096


def test_the_environment_says_the_budget(freed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKX_GPU_MEMORY", "2G")
    assert akx.memory_pool().budget == 2**31
    assert akx.memory_pool() is memory.memory_pool()
    akx.memory_pool().budget = "1G"
    assert memory.memory_pool().budget == 2**30
    memory.memory_pool.cache_clear()
    monkeypatch.setenv("AKX_GPU_MEMORY", "all of it")
    with pytest.raises(ArgumentError, match="'all of it'; AKX_GPU_MEMORY is wrong"):
        akx.memory_pool()
    memory.memory_pool.cache_clear()
    monkeypatch.delenv("AKX_GPU_MEMORY")
    assert akx.memory_pool().budget is None


def test_trimming_an_empty_pool_needs_no_gpu() -> None:
    MemoryPool().trim()
