"""The compiled main loop of `ghost`: a thread's blocks, each for several powers with no word to its neighbours."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu.jit import jit, jit_into
from akx.backends.cpu.products import combine, product
from akx.backends.cpu.task_loop import bring
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
    turn,
)

__all__ = ["GhostBlocks", "run_ghost"]


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
def run_ghost(
    m: Any,
    blocks: Any,
    depth: int,
    longest: int,
    local: Any,
    a: Any,
    b: Any,
    c: Any,
    x: Any,
    out: Any,
    calls: Any,
    thread: int,
    sent: bool,
) -> Any:
    """Do all ghost blocks of one thread, `depth` powers per pass; call after call as
    :func:`akx.backends.cpu.task_loop.run_tasks`.

    out: flat, (k+1, b, n). local: flat, (parts, depth + 2, b, longest) workspace; of a part's vectors the first is
    v_{-1} and the second v_0 of the pass.
    """
    parts, k = part_count(calls), a.size
    number = begin(calls, thread, sent, x, out)
    if number <= 0:
        return False
    total = 1 + (k + depth - 1) // depth
    while number > 0:
        part, idle = first_part(calls, thread), 0
        while part >= 0:
            idle += 1
            if hold(calls, thread, number, part):
                at = position(calls, number, part)
                if at < total and thread > 0:
                    x, out = arrays_of(calls, k + 1, x, out)
                vectors, n = x.shape
                stride = vectors * longest
                home = part * (depth + 2) * stride
                while at < total and (at == 0 or all_reached(calls, number, at)):
                    if at == 0:
                        bring(x, out, blocks.fetch[:0], out, n * part // parts, n * (part + 1) // parts)
                        local[home : home + (depth + 2) * stride] = 0  # rows outside the closure are made, never used
                    else:
                        done = (at - 1) * depth
                        steps = min(depth, k - done)
                        for g in range(blocks.thread_ptr[part], blocks.thread_ptr[part + 1]):
                            _ghost_block(
                                m, blocks, g, depth, steps, done, local, home, stride, longest, out, vectors, n, a, b, c
                            )
                    at += 1
                    advanced(calls, number, part, at, total)
                    idle = 0
                let_go(calls, thread, number, part)
            part = turn(calls, thread, number, part, idle)
        number = finish(calls, thread, number)
    return number == 0


@jit_into
def _ghost_block(
    m: Any,
    blocks: Any,
    g: int,
    depth: int,
    steps: int,
    done: int,
    local: Any,
    home: int,
    stride: int,
    longest: int,
    out: Any,
    vectors: int,
    n: int,
    a: Any,
    b: Any,
    c: Any,
) -> None:
    """Powers done + 1 .. done + steps of block g: fetch, step by step, and the own rows back."""
    skipped = depth - steps
    three = False
    for s in range(steps):
        three = three or c[done + s] != 0
    f, length = np.uintp(blocks.fetch_ptr[g]), np.uintp(blocks.fetch_ptr[g + 1] - blocks.fetch_ptr[g])
    for v in range(vectors):
        older, start = np.uintp(home + v * longest), np.uintp(home + stride + v * longest)
        source = np.uintp((done * vectors + v) * n)
        for i in range(length):
            local[start + i] = out[source + np.uintp(blocks.fetch[f + i])]
        if three and done:
            source = np.uintp(((done - 1) * vectors + v) * n)
            for i in range(length):
                local[older + i] = out[source + np.uintp(blocks.fetch[f + i])]
    for s in range(steps):
        j, row = done + s, blocks.row[g]
        first, last = blocks.first[g, s + skipped], blocks.last[g, s + skipped]
        for v in range(vectors):
            x = home + (s + 1) * stride + v * longest
            y = x + stride
            product(m, local, x, y, row + first, row + last, row, 0, 0)
            if a[j] != 1 or b[j] != 0 or c[j] != 0:
                combine(local, x + first, x - stride + first, y + first, last - first, a[j], b[j], c[j])
    own = np.uintp(blocks.own_first[g])
    for s in range(steps):
        for v in range(vectors):
            target = np.uintp(((done + s + 1) * vectors + v) * n)
            start = np.uintp(home + (s + 2) * stride + v * longest)
            for i in range(own, np.uintp(blocks.own_last[g])):
                out[target + np.uintp(blocks.fetch[f + i])] = local[start + i]
