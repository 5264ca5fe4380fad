"""Task lists: every (block, power) once, nothing before what it needs, no deadlock, waits that are enough."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from akx.backends.cpu.task_graph import ascending, mirrored, schedule_tasks
from akx.backends.cpu.task_loop import Tasks


def make(blocks: int, threads: int, k: int, depth: int, lag: int, reach: int, interleaved: bool, seed: int):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    number = np.arange(blocks)
    low = np.maximum(number - rng.integers(0, reach + 1, blocks), 0)
    high = np.minimum(number + rng.integers(0, reach + 1, blocks), blocks - 1)
    owner = number % threads if interleaved else number * threads // max(blocks, 1)
    order, pointer = (ascending if interleaved else mirrored)(owner.astype(np.int64), threads)
    cuts = np.arange(blocks + 1, dtype=np.int64) * 10
    tasks = schedule_tasks(cuts, low, high, owner, order, pointer, k=k, k_per_pass=depth, lag=lag)
    return tasks, low, high, owner


def play(tasks: Tasks, low: np.ndarray, high: np.ndarray, k: int, turns: list[int]) -> None:
    """Run the lists with the threads' speeds given by `turns`, by the waits alone, and check what each task needs."""
    threads = tasks.thread_ptr.size - 1
    done = np.zeros(threads, dtype=int)
    made = {(0, b) for b in range(low.size)}
    for turn in itertools.cycle(turns):
        moved = False
        for thread in [turn % threads, *range(threads)]:
            s = tasks.thread_ptr[thread] + done[thread]
            if s == tasks.thread_ptr[thread + 1]:
                continue
            waits = range(tasks.wait_ptr[s], tasks.wait_ptr[s + 1])
            if any(done[tasks.wait_thread[q]] < tasks.wait_count[q] for q in waits):
                continue
            block, power = int(tasks.first[s]) // 10, int(tasks.power[s])
            assert all((power - 1, b) in made for b in range(low[block], high[block] + 1)), "a task ran too early"
            assert (power, block) not in made, "a task ran twice"
            made.add((power, block))
            done[thread] += 1
            moved = True
            break
        if not moved:
            break
    assert len(made) == low.size * (k + 1), "deadlock, or a task is missing"


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    blocks=st.integers(1, 24),
    threads=st.integers(1, 5),
    k=st.integers(1, 6),
    lag=st.integers(0, 3),
    reach=st.integers(0, 30),
    interleaved=st.booleans(),
    seed=st.integers(0, 1000),
    turns=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    data=st.data(),
)
def test_any_interleaving_of_threads_is_right(
    blocks: int,
    threads: int,
    k: int,
    lag: int,
    reach: int,
    interleaved: bool,
    seed: int,
    turns: list[int],
    data: st.DataObject,
) -> None:
    depth = data.draw(st.integers(1, k))
    tasks, low, high, _ = make(blocks, threads, k, depth, lag, reach, interleaved, seed)
    play(tasks, low, high, k, turns)


def test_wavefront_takes_the_highest_power_that_is_ready() -> None:
    tasks, *_ = make(6, 1, 3, 3, 0, 0, False, 0)  # blocks that need only themselves: all powers of each at once
    assert tasks.power.tolist() == [1, 2, 3] * 6


def test_one_power_per_pass_is_a_sweep() -> None:
    tasks, *_ = make(6, 1, 3, 1, 0, 2, False, 0)
    assert tasks.power.tolist() == [1] * 6 + [2] * 6 + [3] * 6


@pytest.mark.parametrize("threads", [2, 4])
def test_mirrored_fronts_start_where_shares_meet(threads: int) -> None:
    tasks, *_ = make(8 * threads, threads, 2, 2, 0, 1, False, 0)
    starts = tasks.first[tasks.thread_ptr[:-1]] // 10
    for pair in range(0, threads, 2):
        assert starts[pair] + 1 == starts[pair + 1] == 8 * (pair + 1)


def test_waits_are_few_for_contiguous_shares() -> None:
    tasks, *_ = make(200, 2, 8, 8, 0, 1, False, 0)
    assert tasks.wait_thread.size <= 2 * 8
