"""The compiled main loop of `sweep` and `wavefront`: a thread's list of tasks.

Memory movement of :func:`run_tasks`, per task (rows first..last at power j): the block's matrix data once from
wherever it lies, x = v_{j-1} (and v_{j-2} where the basis has three terms) from the cache it was just written to, y =
v_j written once. All start vectors of the call pass over a sub-block of the matrix while it is in the nearest cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu import simd
from akx.backends.cpu.jit import jit, jit_inner, jit_into
from akx.backends.cpu.products import combine, product, slots
from akx.backends.cpu.thread_sync import (
    advanced,
    all_reached,
    arrays_of,
    begin,
    finish,
    first_part,
    hold,
    let_go,
    part_count,
    position,
    reached,
    turn,
)

__all__ = ["Tasks", "bring", "run_tasks"]


class Tasks(NamedTuple):
    """What each part does, in order, and what it waits for; as many parts as the plan has threads.

    Part t does tasks thread_ptr[t] .. thread_ptr[t+1]-1: task s makes rows first[s] <= i < last[s] of power power[s].
    Before it, for q in wait_ptr[s] .. wait_ptr[s+1]-1, part wait_thread[q] must have finished wait_count[q] tasks.
    During it, the matrix data of rows soon_first[s] <= i < soon_last[s] are fetched, which the part needs next.
    All arrays are int64.
    """

    thread_ptr: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    power: NDArray[np.int64]
    soon_first: NDArray[np.int64]
    soon_last: NDArray[np.int64]
    wait_ptr: NDArray[np.int64]
    wait_thread: NDArray[np.int64]
    wait_count: NDArray[np.int64]


@jit_inner
def _collect(source: Any, start: int, order: Any, begin: int, end: int, target: Any, row: int) -> None:
    """target[row + i] = source[start + order[i]] for begin <= i < end.

    Random reads from beyond the near cache: asking for them 48 ahead takes a third to a half off (1,000,000 Delaunay
    points in RCM order, 2.2 to 1.45 ms a vector on two cores).
    """
    most = np.uintp(max(end - 1, 0))
    for i in range(np.uintp(begin), np.uintp(end)):
        simd.prefetch(source, np.uintp(start) + np.uintp(order[min(i + np.uintp(48), most)]))
        target[np.uintp(row) + i] = source[np.uintp(start) + np.uintp(order[i])]


@jit_into
def _step(
    m: Any, w: Any, stride: int, j: int, v: int, first: int, last: int, a: Any, b: Any, c: Any, soon: int, lines: int
) -> None:
    """Rows first..last of power j of start vector v, the recurrence included; powers are `stride` entries apart."""
    y = j * stride + v
    x = y - stride
    product(m, w, x, y, first, last, 0, soon, lines)
    if a[j - 1] != 1 or b[j - 1] != 0 or c[j - 1] != 0:
        before = max(x - stride, v)
        combine(w, x + first, before + first, y + first, last - first, a[j - 1], b[j - 1], c[j - 1])


@jit_inner
def bring(x: Any, out: Any, order: Any, work: Any, start: int, end: int) -> None:
    """Rows start..end of power 0, in `out` and, in the order of the partition, in `work`."""
    vectors, n = x.shape
    there = x.ctypes.data == out.ctypes.data  # a solver's basis goes on from its last vector
    for v in range(vectors):
        row = np.uintp(v * n)
        if not there:
            for i in range(np.uintp(start), np.uintp(end)):
                out[row + i] = x[v, i]
        if order.size:
            _collect(x[v], 0, order, start, end, work, v * n)


@jit_inner
def _is_ready(calls: Any, number: int, tasks: Any, part: int, at: int, count: int) -> bool:
    """Whether others have done what step `at` of a part needs: first x, then `count` tasks, then the way back."""
    if at == 0:
        return True
    if at > count:
        for other in range(tasks.thread_ptr.size - 1):
            if not reached(calls, number, other, tasks.thread_ptr[other + 1] - tasks.thread_ptr[other] + 1):
                return False
        return True
    if at == 1 and not all_reached(calls, number, 1):
        return False
    s = tasks.thread_ptr[part] + at - 1
    for q in range(tasks.wait_ptr[s], tasks.wait_ptr[s + 1]):
        if not reached(calls, number, tasks.wait_thread[q], tasks.wait_count[q] + 1):
            return False
    return True


@jit_into
def _do_task(
    m: Any, tasks: Any, s: int, unit: int, group: int, w: Any, vectors: int, n: int, a: Any, b: Any, c: Any
) -> None:
    """Task s for all start vectors, sub-block by sub-block."""
    stride = vectors * n
    j, first, last = tasks.power[s], tasks.first[s], tasks.last[s]
    plain = vectors == 1 and a[j - 1] == 1 and b[j - 1] == 0 and c[j - 1] == 0
    soon, lines = 0, 0
    if tasks.soon_last[s] > tasks.soon_first[s]:
        soon = slots(m, tasks.soon_first[s])
        units = (last - first + unit - 1) // unit
        wanted = (slots(m, tasks.soon_last[s]) - soon) * m.values.itemsize // 64
        lines = (wanted + units - 1) // units
    while first < last:
        stop = last if plain else min(first + group, last)
        ahead = soon + (first - tasks.first[s]) // unit * lines * (64 // m.values.itemsize)
        for v in range(vectors):
            _step(m, w, stride, j, v * n, first, stop, a, b, c, ahead, lines if v == 0 else 0)
        first = stop


@jit
def run_tasks(
    m: Any,
    tasks: Any,
    unit: int,
    group: int,
    work: Any,
    order: Any,
    place: Any,
    a: Any,
    b: Any,
    c: Any,
    x: Any,
    out: Any,
    calls: Any,
    thread: int,
    sent: bool,
) -> Any:
    """Do all tasks of one thread; a member of a team for call after call. False where nothing was done, or not all.

    m: the matrix as laid out; unit, group: rows per unit of the format and per sub-block; x (b, n); out and work flat,
    (k+1, b, n); out[0] becomes x, where it is not x itself. In natural order `order` and `place` are empty and `work`
    is not used; else `work` holds the powers in the order of the partition, order[new] = old and place[old] = new.
    a, b, c (k,). calls, thread, sent: see :mod:`akx.backends.cpu.thread_sync`.
    """
    parts = part_count(calls)
    number = begin(calls, thread, sent, x, out)
    if number <= 0:
        return False
    while number > 0:
        part, idle = first_part(calls, thread), 0
        while part >= 0:
            idle += 1
            if hold(calls, thread, number, part):
                first, at = tasks.thread_ptr[part], position(calls, number, part)
                count = tasks.thread_ptr[part + 1] - first
                total = count + (2 if order.size else 1)
                if at < total and thread > 0:
                    x, out = arrays_of(calls, a.size + 1, x, out)
                if order.size == 0:
                    work = out
                vectors, n = x.shape
                start, end = n * part // parts, n * (part + 1) // parts
                while at < total and _is_ready(calls, number, tasks, part, at, count):
                    if at == 0:
                        bring(x, out, order, work, start, end)
                    elif at <= count:
                        _do_task(m, tasks, first + at - 1, unit, group, work, vectors, n, a, b, c)
                    else:
                        for row in range(vectors, (a.size + 1) * vectors):
                            _collect(work, row * n, place, start, end, out, row * n)
                    at += 1
                    advanced(calls, number, part, at, total)
                    idle = 0
                let_go(calls, thread, number, part)
            part = turn(calls, thread, number, part, idle)
        number = finish(calls, thread, number)
    return number == 0
