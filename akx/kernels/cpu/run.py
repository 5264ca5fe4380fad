"""The two compiled main loops: a thread's list of tasks, and a thread's ghost blocks.

Memory movement of :func:`run_tasks`, per task (rows first..last at power j): the block's matrix data once from
wherever it lies, x = v_{j-1} (and v_{j-2} where the basis has three terms) from the cache it was just written to, y =
v_j written once. All start vectors of the call pass over a sub-block of the matrix while it is in the nearest cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.kernels.cpu.jit import jit
from akx.kernels.cpu.products import combine, product
from akx.kernels.cpu.sync import LINE, publish, wait_for

__all__ = ["GhostBlocks", "Tasks", "run_ghost", "run_tasks"]


class Tasks(NamedTuple):
    """What each thread does, in order, and what it waits for.

    Thread t does tasks thread_ptr[t] .. thread_ptr[t+1]-1: task s makes rows first[s] <= i < last[s] of power power[s].
    Before it, for q in wait_ptr[s] .. wait_ptr[s+1]-1, thread wait_thread[q] must have finished wait_count[q] tasks.
    All arrays are int64.
    """

    thread_ptr: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    power: NDArray[np.int64]
    wait_ptr: NDArray[np.int64]
    wait_thread: NDArray[np.int64]
    wait_count: NDArray[np.int64]


class GhostBlocks(NamedTuple):
    """Blocks with their ghost zones, stacked; block g has local rows row[g] .. row[g+1]-1 of the stacked matrix.

    The local vector of block g has fetch_ptr[g+1] - fetch_ptr[g] entries, entry i being row fetch[fetch_ptr[g] + i] of
    the matrix. Step s (1..depth) makes local rows first[g, s-1] <= i < last[g, s-1]; the rows the block owns are the
    local rows own_first[g] <= i < own_last[g].
    """

    row: NDArray[np.int64]
    fetch_ptr: NDArray[np.int64]
    fetch: NDArray[np.uint32]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    own_first: NDArray[np.int64]
    own_last: NDArray[np.int64]
    thread_ptr: NDArray[np.int64]


@jit
def _meet(counters: Any, thread: int, threads: int, value: int) -> None:
    """Wait until every thread has come here for the `value`-th time: a barrier by one counter per thread."""
    publish(counters, np.uintp((threads + thread) * LINE), value)
    for other in range(threads):
        wait_for(counters, np.uintp((threads + other) * LINE), value)


@jit
def _share(n: int, thread: int, threads: int) -> tuple[int, int]:
    return n * thread // threads, n * (thread + 1) // threads


@jit
def _steps(m: Any, start: Any, w: Any, j: int, v: int, first: int, last: int, a: Any, b: Any, c: Any) -> None:
    """Rows first..last of power j of start vector v, the recurrence included."""
    x = start[v] if j == 1 else w[j - 1, v]
    y = w[j, v]
    product(m, x, y, first, last, 0)
    if a[j - 1] != 1 or b[j - 1] != 0 or c[j - 1] != 0:
        before = start[v] if j <= 2 else w[j - 2, v]
        combine(x, before, y, first, last, a[j - 1], b[j - 1], c[j - 1])


@jit
def run_tasks(
    m: Any,
    tasks: Any,
    group: int,
    x: Any,
    out: Any,
    work: Any,
    order: Any,
    place: Any,
    a: Any,
    b: Any,
    c: Any,
    counters: Any,
    thread: int,
) -> None:
    """Do all tasks of one thread.

    m: the matrix as laid out; group: rows per sub-block; x (b, n); out (k+1, b, n), out[0] becomes x. In natural order
    `order` and `place` are empty and `work` is out; else `work` (k+1, b, n) holds the powers in the order of the
    partition, order[new] = old and place[old] = new. a, b, c (k,); counters: int64, zero, 2 LINE words per thread.
    """
    threads = tasks.thread_ptr.size - 1
    begin, end = _share(x.shape[1], thread, threads)
    vectors = x.shape[0]
    start = x
    if order.size:
        start = work[0]
        for v in range(vectors):
            for i in range(np.uintp(begin), np.uintp(end)):
                start[v, i] = x[v, np.uintp(order[i])]
        _meet(counters, thread, threads, 1)
    base = tasks.thread_ptr[thread]
    for s in range(base, tasks.thread_ptr[thread + 1]):
        for q in range(tasks.wait_ptr[s], tasks.wait_ptr[s + 1]):
            wait_for(counters, np.uintp(tasks.wait_thread[q] * LINE), tasks.wait_count[q])
        j, row = tasks.power[s], tasks.first[s]
        while row < tasks.last[s]:
            stop = min(row + group, tasks.last[s])
            for v in range(vectors):
                _steps(m, start, work, j, v, row, stop, a, b, c)
            row = stop
        publish(counters, np.uintp(thread * LINE), s - base + 1)
    for v in range(vectors):
        for i in range(np.uintp(begin), np.uintp(end)):
            out[0, v, i] = x[v, i]
    if order.size:
        _meet(counters, thread, threads, 2)
        for j in range(1, out.shape[0]):
            for v in range(vectors):
                for i in range(np.uintp(begin), np.uintp(end)):
                    out[j, v, i] = work[j, v, np.uintp(place[i])]


@jit
def run_ghost(
    m: Any, blocks: Any, depth: int, x: Any, out: Any, local: Any, a: Any, b: Any, c: Any, counters: Any, thread: int
) -> None:
    """Do all ghost blocks of one thread, `depth` powers per pass.

    local: (threads, depth + 2, b, longest) workspace; local[t, 0] holds v_{-1} and local[t, 1] v_0 of the pass.
    """
    threads = blocks.thread_ptr.size - 1
    vectors, k = x.shape[0], out.shape[0] - 1
    begin, end = _share(x.shape[1], thread, threads)
    for v in range(vectors):
        for i in range(np.uintp(begin), np.uintp(end)):
            out[0, v, i] = x[v, i]
    w = local[thread]
    done, met = 0, 0
    while done < k:
        if done:
            met += 1
            _meet(counters, thread, threads, met)
        steps = min(depth, k - done)
        skipped = depth - steps
        three = False
        for s in range(steps):
            three = three or c[done + s] != 0
        for g in range(blocks.thread_ptr[thread], blocks.thread_ptr[thread + 1]):
            f, length = blocks.fetch_ptr[g], blocks.fetch_ptr[g + 1] - blocks.fetch_ptr[g]
            for v in range(vectors):
                source = x[v] if done == 0 else out[done, v]
                for i in range(np.uintp(length)):
                    w[1, v, i] = source[np.uintp(blocks.fetch[np.uintp(f) + i])]
                if three and done:
                    for i in range(np.uintp(length)):
                        w[0, v, i] = out[done - 1, v, np.uintp(blocks.fetch[np.uintp(f) + i])]
            for s in range(steps):
                j = done + s
                first, last = blocks.first[g, s + skipped], blocks.last[g, s + skipped]
                for v in range(vectors):
                    product(m, w[s + 1, v], w[s + 2, v], blocks.row[g] + first, blocks.row[g] + last, blocks.row[g])
                    if a[j] != 1 or b[j] != 0 or c[j] != 0:
                        combine(w[s + 1, v], w[s, v], w[s + 2, v], first, last, a[j], b[j], c[j])
            own = np.uintp(blocks.own_first[g])
            for s in range(steps):
                for v in range(vectors):
                    y = out[done + s + 1, v]
                    for i in range(own, np.uintp(blocks.own_last[g])):
                        y[np.uintp(blocks.fetch[np.uintp(f) + i])] = w[s + 2, v, i]
        done += steps
