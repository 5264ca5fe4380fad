"""Breadth-first levels, and reverse Cuthill-McKee, by all cores: what :mod:`akx.partition.levels` finds, to the bit.

One thread goes through the levels. Where one is wide the others help, and each has rows that follow one another:

1. it lists the neighbours that no level has yet, in the order in which it finds them;
2. of all lists, thread after thread, it takes the rows that are its own by their number, each where it comes first;
3. it writes those that were taken from its list behind those of the threads before it.

So a level comes as one thread would have found it, however many there are. The others only do what they are told: none
of them decides where to go on, so that they cannot part.
Cost: O(n + nnz) for each search; each thread reads all lists, 4 bytes for each entry that leads on.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from akx.backends.cpu.jit import jit, jit_inner  # before Numba, which it imports sooner

# isort: split
import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu.system_calls import acquire, give_way, publish
from akx.core.numba_jit import named_threads
from akx.core.parallel import is_alone
from akx.core.process import available_cores
from akx.partition.adjacency import symmetrized, unsigned_pattern
from akx.partition.base import IndexArray
from akx.partition.levels import levels, rcm

__all__ = ["ordered_rows"]

#: Words between counters of two threads; looks before one that waits makes way for others.
_LINE, _LOOKS = 16, 2_000
#: Entries from which on threads are worth it, threads at most, and rows of a level that one does alone.
_WORTH, _MOST, _ALONE = 2_000_000, 16, 1_500
#: Searches that look for a better start, beside the first one, as in :mod:`akx.partition.levels`.
_TRIES = 5
#: What the first thread tells the others.
_END, _LEVEL, _CLEAR = 0, 1, 2


def ordered_rows(indptr: IndexArray, indices: IndexArray, order: str, threads: int = 0) -> NDArray[np.int64]:
    """``permutation[new] = old``, (n,), by "levels" or "rcm", of the pattern of A + A^T.

    `indptr` (n+1,) and `indices` (nnz,), int32 or int64. `threads`: as many as there are cores by default, where the
    pattern is large; the order is the same.
    """
    usual = 1 if indices.size < _WORTH else min(named_threads() or _MOST, _MOST, available_cores())
    running = 1 if is_alone() else threads or usual
    if running == 1:
        return levels(indptr, indices).permutation if order == "levels" else rcm(indptr, indices)
    pointer, columns = symmetrized(*unsigned_pattern(indptr, indices))
    n = pointer.size - 1
    found, seen, counts = np.empty(n, columns.dtype), np.zeros(n, np.uint8), np.empty(n, columns.dtype)
    listed, taken = np.empty(columns.size, columns.dtype), np.empty(columns.size, np.uint8)
    words = np.zeros(_LINE * (running + 1), np.int64)
    arrays = (pointer, columns, found, seen, counts, listed, taken, words)
    _order_all(pointer[:2], columns[:0], *arrays[2:], False, _ALONE, 0, 0)  # compiled by one thread
    part = partial(_order_all, *arrays, order == "rcm", _ALONE)
    with ThreadPoolExecutor(running - 1) as pool:
        try:
            for thread in range(1, running):
                pool.submit(part, thread, running)
        except BaseException as failure:  # no more threads can be started; Ctrl-C
            words[: _LINE * running : _LINE] = 1  # those that wait go on, and find that they are told to end
            if isinstance(failure, RuntimeError):
                return ordered_rows(indptr, indices, order, 1)
            raise
        part(0, running)
    permutation = found.astype(np.int64)
    return permutation if order == "levels" else np.ascontiguousarray(permutation[::-1])


@jit
def _order_all(
    indptr: Any,
    indices: Any,
    order: Any,
    seen: Any,
    counts: Any,
    listed: Any,
    taken: Any,
    words: Any,
    by_degree: bool,
    alone: int,
    thread: int,
    threads: int,
) -> None:
    """What one thread of so many does; of none nothing is done."""
    if threads == 0:
        return
    arrays = (indptr, indices, order, seen, counts, listed, taken, words)
    if thread > 0:
        _help(arrays, thread, threads)
        return
    n, filled, epoch = indptr.shape[0] - 1, 0, 0
    for i in range(n):
        if seen[i] != 0:
            continue
        others = False
        for e in range(indptr[i], indptr[i + 1]):
            others |= indices[e] != i
        if not others:
            continue
        start = i
        row: Any = i
        best_depth, best_width = 0, 0
        for _ in range(_TRIES + 1 if indptr[i + 1] - indptr[i] > 1 else 0):
            count, depth, width, last, epoch = _search(arrays, False, alone, threads, row, filled, epoch)
            better = depth > best_depth or (depth == best_depth and width < best_width)
            if better:
                start, best_depth, best_width = row, depth, width
                least = np.int64(n + 1)
                for t in range(last, filled + count):
                    v = np.int64(order[t])
                    degree = np.int64(indptr[v + 1] - indptr[v])
                    if degree < least:
                        least, row = degree, v
            epoch = _clear(arrays, alone, threads, filled, filled + count, epoch)
            if not better or depth <= 1:
                break
        count, depth, width, last, epoch = _search(arrays, by_degree, alone, threads, start, filled, epoch)
        filled += count
    for i in range(n):
        if seen[i] == 0:
            order[filled] = i
            filled += 1
    _tell(words, threads, _END, 0, 0, False, epoch)


@jit_inner
def _help(arrays: Any, thread: int, threads: int) -> None:
    """What the first thread asks of the others, until there is no more."""
    order, seen, words = arrays[2], arrays[3], arrays[7]
    told, epoch = words[threads * _LINE :], 0
    while True:
        epoch = _meet(words, thread, threads, epoch)
        what, begin, end, by_degree = told[0], told[1], told[2], told[3] != 0
        if what == _END:
            return
        if what == _CLEAR:
            for t in range(begin + (end - begin) * thread // threads, begin + (end - begin) * (thread + 1) // threads):
                seen[order[t]] = 0
            epoch = _meet(words, thread, threads, epoch)
        else:
            _, epoch = _level(arrays, by_degree, thread, threads, begin, end, epoch)


@jit_inner
def _tell(words: Any, threads: int, what: int, begin: int, end: int, by_degree: Any, epoch: int) -> int:
    """The others begin with this; the number of the next meeting. They have read the last by now, and met behind it."""
    told = words[threads * _LINE :]
    told[0], told[1], told[2], told[3] = what, begin, end, by_degree
    return _meet(words, 0, threads, epoch)


@jit_inner
def _clear(arrays: Any, alone: int, threads: int, begin: int, end: int, epoch: int) -> int:
    """No level has rows order[begin:end] any more; the number of the next meeting."""
    order, seen, words = arrays[2], arrays[3], arrays[7]
    together = end - begin > alone
    if together:
        epoch = _tell(words, threads, _CLEAR, begin, end, False, epoch)
    for t in range(begin, begin + (end - begin) // threads if together else end):
        seen[order[t]] = 0
    return _meet(words, 0, threads, epoch) if together else epoch


@jit_inner
def _meet(words: Any, thread: int, threads: int, epoch: int) -> int:
    """All threads have come here when this returns; the number of the next meeting."""
    publish(words, np.uintp(thread * _LINE), epoch + 1)
    for other in range(threads):
        looks = 0
        while acquire(words, np.uintp(other * _LINE)) < epoch + 1:
            looks += 1
            if looks > _LOOKS:
                give_way()
    return epoch + 1


@jit_inner
def _search(arrays: Any, by_degree: Any, alone: int, threads: int, start: int, filled: int, epoch: int) -> Any:
    """Search one component from `start` into order[filled:].

    Returns its rows, its levels, the rows of its widest level, where its last one begins, and the next meeting.
    """
    indptr, indices, order, seen, _, listed, _, words = arrays
    order[filled], seen[start] = start, 1
    begin, end, depth, width, last = filled, filled + 1, 0, 0, filled
    while begin < end:
        if end - begin > alone:
            epoch = _tell(words, threads, _LEVEL, begin, end, by_degree, epoch)
            more, epoch = _level(arrays, by_degree, 0, threads, begin, end, epoch)
        else:
            tail = end
            for place in range(begin, end):
                v, first = np.int64(order[place]), tail
                for e in range(indptr[v], indptr[v + 1]):
                    u = indices[e]
                    if seen[u] == 0:
                        seen[u] = 1
                        order[tail] = u
                        tail += 1
                if by_degree:
                    _sort_by_degree(indptr, order, first, tail, listed, 0)
            more = tail - end
        depth, width, last = depth + 1, max(width, end - begin), begin
        begin, end = end, end + more
    return end - filled, depth, width, last, epoch


@jit_inner
def _level(arrays: Any, by_degree: Any, thread: int, threads: int, begin: int, end: int, epoch: int) -> Any:
    """The level behind order[begin:end]: how many rows it has, and the next meeting."""
    indptr, indices, order, seen, counts, listed, taken, words = arrays
    own, n = thread * _LINE, indptr.shape[0] - 1
    low = begin + (end - begin) * thread // threads
    high = begin + (end - begin) * (thread + 1) // threads
    total = np.int64(0)
    for place in range(low, high):
        v = np.int64(order[place])
        total += np.int64(indptr[v + 1] - indptr[v])
    words[own + 1] = total
    epoch = _meet(words, thread, threads, epoch)
    first = np.int64(0)
    for t in range(thread):
        first += words[t * _LINE + 1]
    at = first
    for place in range(low, high):  # 1. candidates
        v, before = np.int64(order[place]), at
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            if seen[u] == 0:
                listed[at] = u
                at += 1
        counts[place] = at - before
    words[own + 2], words[own + 3] = first, at
    epoch = _meet(words, thread, threads, epoch)
    least, most = n * thread // threads, n * (thread + 1) // threads
    for t in range(threads):  # 2. each where it comes first
        for e in range(words[t * _LINE + 2], words[t * _LINE + 3]):
            u = np.int64(listed[e])
            if least <= u < most:
                taken[e] = seen[u] == 0
                seen[u] = 1
    epoch = _meet(words, thread, threads, epoch)
    found = np.int64(0)
    for e in range(first, at):
        found += taken[e]
    words[own + 4] = found
    epoch = _meet(words, thread, threads, epoch)
    to: Any = np.int64(end)
    more = np.int64(0)
    for t in range(threads):
        to += words[t * _LINE + 4] if t < thread else 0
        more += words[t * _LINE + 4]
    item: Any = first
    for place in range(low, high):  # 3. behind those of the threads before
        run, of_row = to, item
        for _ in range(counts[place]):
            if taken[item]:
                order[to] = listed[item]
                to += 1
            item += 1
        if by_degree:
            _sort_by_degree(indptr, order, run, to, listed, of_row)
    return more, _meet(words, thread, threads, epoch)


@jit_inner
def _sort_by_degree(indptr: Any, order: Any, first: Any, stop: Any, spare: Any, at: Any) -> None:
    """Sort order[first:stop] by degree, stably: by insertion, and by merging from 48 on, with as much of spare[at:].

    Nothing is allocated: a thread that failed here would be waited for.
    """
    count, size = stop - first, np.int64(48)
    for low in range(first, stop, size):
        for s in range(low + 1, min(low + size, stop)):
            v, t = order[s], s
            degree = indptr[np.int64(v) + 1] - indptr[v]
            while t > low and indptr[np.int64(order[t - 1]) + 1] - indptr[order[t - 1]] > degree:
                order[t] = order[t - 1]
                t -= 1
            order[t] = v
    while size < count:
        for s in range(count):
            spare[at + s] = order[first + s]
        for low in range(0, count, 2 * size):
            middle, high = min(low + size, count), min(low + 2 * size, count)
            left, right = low, middle
            for s in range(low, high):
                takes_left = right == high
                if left < middle and right < high:
                    v, u = np.int64(spare[at + left]), np.int64(spare[at + right])
                    takes_left = indptr[v + 1] - indptr[v] <= indptr[u + 1] - indptr[u]
                if takes_left:
                    order[first + s] = spare[at + left]
                    left += 1
                else:
                    order[first + s] = spare[at + right]
                    right += 1
        size *= 2
