"""From blocks of rows to each thread's list of tasks: the order of (block, power) pairs and the waits between threads.

Block b at power j needs, at power j - 1, every block that its rows read: blocks low[b] .. high[b]. The lists come from
playing the schedule: in each round every thread takes, of its own blocks in its own order, the highest power that is
ready, counting what other threads finished at least `lag` rounds ago. The highest power first keeps a block's matrix
data in use until all its powers are done, which is the wavefront; `lag` rounds of slack keep threads from waiting for a
task that is only just done. Since a task follows what it needs in the play, the lists cannot deadlock.

With powers per pass = 1 the same play gives plain products one after another. Cost: O(blocks * k * (high - low)).
Source: diagonal order of levels and powers (Alappat et al., TPDS 2023); blocks, readiness and point-to-point waits
ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu.jit import jit, jit_inner
from akx.backends.cpu.task_loop import Tasks

__all__ = ["ascending", "mirrored", "schedule_tasks"]

IntArray = NDArray[np.int64]


def ascending(owner: IntArray, threads: int) -> tuple[IntArray, IntArray]:
    """Every thread takes its blocks from the first to the last: (order, order_ptr)."""
    order = np.argsort(owner, kind="stable").astype(np.int64)
    return order, np.searchsorted(owner[order], np.arange(threads + 1)).astype(np.int64)


def mirrored(owner: IntArray, threads: int) -> tuple[IntArray, IntArray]:
    """As :func:`ascending`, but even threads take their blocks from the last to the first.

    For contiguous shares: threads 2i and 2i+1 then begin where their shares meet, and give each other early what the
    other needs; with two threads none has to wait at the end.
    """
    order, pointer = ascending(owner, threads)
    for thread in range(0, threads, 2):
        share = slice(int(pointer[thread]), int(pointer[thread + 1]))
        order[share] = order[share][::-1].copy()
    return order, pointer


def schedule_tasks(
    cuts: IntArray,
    low: IntArray,
    high: IntArray,
    owner: IntArray,
    order: IntArray,
    order_ptr: IntArray,
    *,
    k: int,
    k_per_pass: int,
    lag: int,
) -> Tasks:
    """The tasks of all threads.

    `cuts` (blocks+1,): block b is rows cuts[b] .. cuts[b+1]-1. `low`, `high` (blocks,): first and last block whose rows
    block b reads, inclusive; low[b] <= b <= high[b]. `owner` (blocks,): thread that makes block b. `order`, `order_ptr`
    (blocks,) and (threads+1,): blocks of thread t in the order it takes them: order[order_ptr[t]:order_ptr[t+1]]. `k`,
    `k_per_pass`, `lag`: powers, powers per pass over the matrix, and rounds of slack between threads (>= 0).
    """
    blocks, threads = owner.size, order_ptr.size - 1
    thread_ptr = np.diff(order_ptr) * k
    pointer = np.zeros(threads + 1, dtype=np.int64)
    np.cumsum(thread_ptr, out=pointer[1:])
    block, power = np.empty(blocks * k, dtype=np.int64), np.empty(blocks * k, dtype=np.int64)
    _play(low, high, owner, order, order_ptr, k, k_per_pass, lag, pointer, block, power)
    wait_ptr, wait_thread, wait_count = _waits(low, high, owner, pointer, block, power, k)
    soon_first, soon_last = _soon(cuts, pointer, block, power, k_per_pass)
    first, last = cuts[block], cuts[block + 1]
    return Tasks(pointer, first, last, power, soon_first, soon_last, wait_ptr, wait_thread, wait_count)


@jit_inner
def _ready(low: Any, high: Any, owner: Any, made: Any, b: int, j: int, thread: int, now: int, lag: int) -> bool:
    """Whether all that block b needs for power j is there: own blocks made, others' made `lag` rounds ago."""
    if j == 1:
        return True
    for n in range(high[b], low[b] - 1, -1):
        when = made[j - 1, n]
        if when < 0 or (owner[n] != thread and when + lag >= now):
            return False
    return True


@jit
def _play(
    low: Any,
    high: Any,
    owner: Any,
    order: Any,
    order_ptr: Any,
    k: int,
    depth: int,
    lag: int,
    pointer: Any,
    block: Any,
    power: Any,
) -> None:
    threads = order_ptr.size - 1
    made = np.full((k + 1, owner.size), -1, np.int64)
    taken = np.zeros((threads, k + 1), np.int64)
    written = np.zeros(threads, np.int64)
    begin = np.zeros(threads, np.int64)
    left = owner.size * k
    now = 0
    while left > 0:
        for t in range(threads):
            count = order_ptr[t + 1] - order_ptr[t]
            if begin[t] >= k:
                continue
            end = min(begin[t] + depth, k)
            for j in range(end, begin[t], -1):
                if taken[t, j] == count:
                    if j == end and j > 0:
                        begin[t] = end
                        break
                    continue
                b = order[order_ptr[t] + taken[t, j]]
                if j > begin[t] + 1 and taken[t, j - 1] <= taken[t, j]:
                    continue
                if _ready(low, high, owner, made, b, j, t, now, lag):
                    made[j, b] = now
                    taken[t, j] += 1
                    place = pointer[t] + written[t]
                    block[place], power[place] = b, j
                    written[t] += 1
                    left -= 1
                    break
        now += 1


@jit
def _soon(cuts: Any, pointer: Any, block: Any, power: Any, depth: int) -> Any:
    """For each task, the share of the thread's next new block to fetch during it.

    A new block is read from memory by the first power of a pass; the tasks between two such share the rows evenly.
    """
    first, last = np.zeros(block.size, np.int64), np.zeros(block.size, np.int64)
    for t in range(pointer.size - 1):
        start = pointer[t]
        while start < pointer[t + 1]:
            stop = start
            while stop < pointer[t + 1] and (power[stop] - 1) % depth != 0:
                stop += 1
            if stop < pointer[t + 1]:
                begin, rows = cuts[block[stop]], cuts[block[stop] + 1] - cuts[block[stop]]
                for s in range(start, stop):
                    first[s] = begin + rows * (s - start) // (stop - start)
                    last[s] = begin + rows * (s + 1 - start) // (stop - start)
            start = stop + 1
    return first, last


@jit
def _waits(low: Any, high: Any, owner: Any, pointer: Any, block: Any, power: Any, k: int) -> Any:
    """For each task and other thread, the count it must have reached, where not already waited for."""
    threads = pointer.size - 1
    number = np.zeros((k + 1, owner.size), np.int64)
    for t in range(threads):
        for s in range(pointer[t], pointer[t + 1]):
            number[power[s], block[s]] = s - pointer[t] + 1
    wait_ptr = np.zeros(block.size + 1, np.int64)
    room = 1024
    who, count = np.empty(room, np.int64), np.empty(room, np.int64)
    size = 0
    needed = np.zeros(threads, np.int64)
    for t in range(threads):
        known = np.zeros(threads, np.int64)
        for s in range(pointer[t], pointer[t + 1]):
            b, j = block[s], power[s]
            if j > 1:
                needed[:] = 0
                for n in range(low[b], high[b] + 1):
                    needed[owner[n]] = max(needed[owner[n]], number[j - 1, n])
                for other in range(threads):
                    if other != t and needed[other] > known[other]:
                        known[other] = needed[other]
                        if size == room:
                            room *= 2
                            who, count = _longer(who, room), _longer(count, room)
                        who[size], count[size] = other, needed[other]
                        size += 1
            wait_ptr[s + 1] = size
    return wait_ptr, who[:size].copy(), count[:size].copy()


@jit_inner
def _longer(array: Any, room: int) -> Any:
    result = np.empty(room, np.int64)
    for i in range(array.size):  # a slice takes ten times as long to compile: its error would be a text
        result[i] = array[i]
    return result
