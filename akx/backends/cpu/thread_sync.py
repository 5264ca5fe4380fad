"""Synchronisation of threads: parts of a call, who holds them, how far they have come, and how threads wait.

A job is cut into as many *parts* as its plan has threads, and each part into steps that are done in order. What a part
does, and so every bit of a result, depends on the plan alone; how many threads run, and which of them does a part, does
not matter. Each part counts the steps it has done in a cache line of its own. A step that needs the results of other
parts is ready when those counters are high enough. Release on the counter makes the vector entries written before it
visible to whoever acquires it.

Who runs. Thread 0 is the caller's; the others are members of a team (:mod:`akx.backends.cpu.thread_team`). Of the
members `running - 1` take part in a row of calls; thread t has parts t T // running to (t + 1) T // running - 1 of T. A
thread holds a part while it does its steps. The system may not let a member run: on a busy machine it comes
milliseconds late. The caller waits for a tenth of a millisecond, or not at all where its own parts are done, then does
steps of parts that nobody holds, one part at a time, and lets go of them for a member that comes later.

How a thread waits. It looks again and again, then offers its core to others between looks, then sleeps between looks,
an eighth of the time it has waited so far. So more threads than cores are slow but never stuck, and none spins for
ever. (No pause instruction: in a virtual machine it traps. On Windows, where there is no clock here, a thread only
looks, and the caller does others' parts after a million looks.)

The system may put a thread that it wakes on the core of the one that woke it and leave both there, since each of them
always gives way to the other: a call then takes as long as on one thread, and a good deal more. So a thread that waits
says which core it is on, and a member that waits for one that has said in the same call that it is on that core too
moves to one that it may run on and where none of the team was seen last; where there is none, as with more threads than
cores, it stays. Its affinity is as before at once. The caller's thread is never moved.

Calls. A member that has done its part of a call does not return to the interpreter at once: it listens here for the
next call of the same job, for some tenths of a millisecond. Handing it a call is then a store that it sees within 0.1
us, where waking a sleeping thread and two hand-overs of the interpreter lock take 45 us (2 cores of a Zen 4 VM), the
price of several products of a small matrix. All of it happens in `calls`, an int64 array of T parts:

====================  ================================================================================================
line p                steps of part p that are done: the call's number << 32, plus the steps, or _FULL when all are
line t, word 1        the core where thread t last waited, plus 1, and, 16 bits higher, the call in which that was
line T + p            who holds part p: the call's number << 16, plus the thread + 1, or 0 where nobody does
line 2T + t           when thread t began to wait, 0 where it does not; how long it has waited in this call; ns; of the
                      caller, whether it has run out of patience in this call
line 3T               the gate: members that have stopped listening
line 3T + 1           number of the last call handed out, or -1: everybody leave; addresses of its x and result; b, n;
                      threads that are running
====================  ================================================================================================
"""

from __future__ import annotations

from typing import Any

from akx.backends.cpu.jit import jit, jit_inner  # before Numba, which it imports sooner

# isort: split
import numpy as np
from numba import carray
from numpy.typing import NDArray

from akx.backends.cpu.system_calls import (
    CORE_WORDS,
    acquire,
    add,
    current_core,
    get_affinity,
    give_way,
    now,
    pointer,
    publish,
    set_affinity,
    sleep,
    swap_if,
)

__all__ = [
    "LINE",
    "advanced",
    "all_reached",
    "array_at",
    "arrays_of",
    "begin",
    "dismiss",
    "finish",
    "first_part",
    "hold",
    "is_dismissed",
    "let_go",
    "new_calls",
    "next_piece",
    "part_count",
    "position",
    "reached",
    "then_undone",
    "turn",
    "undone",
    "waited",
]

#: Counters lie this many 8-byte words apart, two cache lines, so that prefetching neighbours does not share them.
LINE = 16
#: Looks before a thread that waits makes way for others, and the nanoseconds after which it sleeps between looks.
_SPINS, _AWAKE = 1_000, 50_000
#: Nanoseconds that the caller waits before it does the parts of members that have not come; most that a thread sleeps.
_PATIENCE, _LONGEST_SLEEP = 100_000, 1_000_000
#: Where the number of the call begins in the words of a part's steps and of who holds it; steps of a part that is done.
_STEPS, _HOLDER, _FULL = 32, 16, (1 << 32) - 1
#: Calls of a row: their numbers have to fit beside the steps.
_MOST_CALLS = 1 << 30
#: Where the number of the call begins in a thread's word of its core.
_CALL = 16
#: A member listens for so many looks (about 1 ns each), then for so many more that each offer the core to others first.
_LOOKS, _OFFERS = 20_000, 1_000


@jit
def _say_core(calls: Any, thread: int) -> Any:
    """Leave word of the core that this thread is on in the call at hand; that word, or 0 where the system says none."""
    core, at = current_core(), np.uintp(thread * LINE + 1)
    if core < 0 or core >= 64 * CORE_WORDS:
        return 0
    word = (acquire(calls, np.uintp(calls.size - LINE)) << _CALL) + core + 1
    if acquire(calls, at) != word:  # others look at this line again and again
        publish(calls, at, word)
    return word


@jit
def _make_way(calls: Any, thread: int, other: int) -> None:
    """Let others have this core; where `other`, which is waited for, waited on it in this call, a member moves away."""
    word = _say_core(calls, thread)
    if thread == 0 or word == 0 or acquire(calls, np.uintp(other * LINE + 1)) != word or not _move(calls):
        give_way()
    else:
        _say_core(calls, thread)


@jit
def _move(calls: Any) -> bool:
    """Go to a core that is allowed and where no thread of the team was last; False where there is none."""
    allowed = np.zeros(CORE_WORDS, dtype=np.uint64)
    if get_affinity(allowed) != 0:
        return False
    free = allowed.copy()
    for one in range(calls.size // LINE // 3):
        taken = (acquire(calls, np.uintp(one * LINE + 1)) & ((1 << _CALL) - 1)) - 1
        if 0 <= taken < 64 * CORE_WORDS:
            free[taken // 64] &= ~(np.uint64(1) << np.uint64(taken % 64))
    if not free.any() or set_affinity(free) != 0:
        return False
    set_affinity(allowed)
    return True


@jit_inner
def _wait(calls: Any, thread: int, other: int, since: Any) -> None:
    """Wait a little, once more, for `other`; waiting has gone on since that time."""
    past = now() - since
    if past <= _AWAKE:
        _make_way(calls, thread, other)
    else:
        sleep(min(past // 8, _LONGEST_SLEEP))


def new_calls(parts: int, running: int) -> NDArray[np.int64]:
    """`calls` for a row of calls of so many parts, by so many threads."""
    calls = np.zeros(LINE * (3 * parts + 2), dtype=np.int64)
    calls[calls.size - LINE + 5] = running
    return calls


def dismiss(calls: NDArray[np.int64]) -> None:
    """Let all who listen return, for good; a call that is going on is given up: nobody waits for anybody any more."""
    calls[calls.size - LINE] = -1


def is_dismissed(calls: NDArray[np.int64]) -> bool:
    """Whether :func:`dismiss` was called."""
    return bool(calls[calls.size - LINE] == -1)


def waited(calls: NDArray[np.int64]) -> int:
    """Nanoseconds that the caller has waited for others in the last call, apart from moments."""
    return int(calls[2 * part_count(calls) * LINE + 1])


@jit
def part_count(calls: Any) -> Any:
    """The number of parts of a job."""
    return (calls.size // LINE - 2) // 3


@jit_inner
def first_part(calls: Any, thread: int) -> Any:
    """The first part that a thread has; the next thread's first is the one behind its last."""
    return thread * part_count(calls) // calls[calls.size - LINE + 5]


@jit
def begin(calls: Any, thread: int, sent: bool, x: Any, out: Any) -> Any:
    """The number of the call to do, or 0: the caller found somebody not listening, and nothing has happened.

    calls : see the module; thread 0 hands x (b, n) and out to the others, who wait here for the first call.
    sent : the members come, as they were sent by other means.
    """
    parts, alone = part_count(calls), calls[calls.size - LINE + 5] == 1
    if sent and not alone:  # else nobody knows better before one has to wait: to ask may take longer than a call
        _say_core(calls, thread)
    gate, last = np.uintp(calls.size - 2 * LINE), np.uintp(calls.size - LINE)
    if thread > 0:
        looks, since = 0, now()
        while True:
            number = acquire(calls, last)
            if number != 0:
                return max(number, 0)
            looks += 1
            if looks > _SPINS:
                _wait(calls, thread, 0, since)
    if calls[last] < 0 or (not sent and (acquire(calls, gate) != 0 or calls[last] == _MOST_CALLS)):
        return 0
    number = calls[last] + 1
    if alone:  # every call is the first, or their numbers would not fit
        number = 1
        for part in range(parts):
            calls[part * LINE] = 0
    calls[last + np.uintp(1)], calls[last + np.uintp(2)] = x.ctypes.data, out.ctypes.data
    calls[last + np.uintp(3)], calls[last + np.uintp(4)] = x.shape[0], x.shape[1]
    calls[2 * parts * LINE] = calls[2 * parts * LINE + 1] = calls[2 * parts * LINE + 2] = 0
    for part in range(parts):
        publish(calls, np.uintp((parts + part) * LINE), (number << _HOLDER) + (part < first_part(calls, 1)))
    publish(calls, last, number)
    return number


@jit
def hold(calls: Any, thread: int, number: int, part: int) -> Any:
    """Whether this thread holds the part from now on, or did before."""
    at, nobody = np.uintp((part_count(calls) + part) * LINE), number << _HOLDER
    holder = acquire(calls, at)
    return holder == nobody + thread + 1 or (holder == nobody and swap_if(calls, at, nobody, nobody + thread + 1))


@jit_inner
def let_go(calls: Any, thread: int, number: int, part: int) -> None:
    """The caller lets go of a part that is a member's; others keep what they hold."""
    if thread == 0 and part >= first_part(calls, 1):
        publish(calls, np.uintp((part_count(calls) + part) * LINE), number << _HOLDER)


@jit_inner
def position(calls: Any, number: int, part: int) -> Any:
    """Steps of a part that are done in this call."""
    return max(acquire(calls, np.uintp(part * LINE)) - (number << _STEPS), 0)


@jit_inner
def reached(calls: Any, number: int, part: int, steps: int) -> Any:
    """Whether so many steps of a part are done, and their results can be read."""
    return acquire(calls, np.uintp(part * LINE)) >= (number << _STEPS) + steps


@jit_inner
def all_reached(calls: Any, number: int, steps: int) -> bool:
    """Whether so many steps of all parts are done."""
    done = True
    for part in range(part_count(calls)):
        done = done and reached(calls, number, part, steps)
    return done


@jit
def advanced(calls: Any, number: int, part: int, steps: int, total: int) -> None:
    """Let others know that so many steps of all of a part's are done."""
    publish(calls, np.uintp(part * LINE), (number << _STEPS) + (steps if steps < total else _FULL))


@jit
def turn(calls: Any, thread: int, number: int, part: int, idle: int) -> int:
    """The part that a thread that could not go on with `part` is to try next, after a while if need be; -1: none.

    idle : tries since the last step that this thread has done, 0 where the last has done one.
    """
    parts, own = part_count(calls), np.uintp(2 * part_count(calls) * LINE + thread * LINE)
    first, end = first_part(calls, thread), first_part(calls, thread + 1)
    since = np.int64(0)
    if idle == 0:
        _count_wait(calls, own)
    if idle > _SPINS:
        if acquire(calls, np.uintp(calls.size - LINE)) < 0:
            return -1
        since = calls[own]
        if since == 0:
            since = calls[own] = now()
    found = _unfinished(calls, number, part, first, end)
    if thread == 0 and end < parts:
        if (since != 0 and now() - since > _PATIENCE) or idle > 1000 * _SPINS:
            calls[own + np.uintp(2)] = 1
        if found < 0 or calls[own + np.uintp(2)] != 0:
            found = _unfinished(calls, number, part, 0, parts)
    if found < 0:
        _count_wait(calls, own)
    elif since != 0:
        other = _unfinished(calls, number, part, 0, parts)
        running = calls[calls.size - LINE + 5]
        _wait(calls, thread, ((max(other, 0) + 1) * running - 1) // parts, since)
    return found


@jit_inner
def _count_wait(calls: Any, own: Any) -> None:
    """A thread whose words are at `own` no longer waits."""
    if calls[own] != 0:
        calls[own + np.uintp(1)] += now() - calls[own]
        calls[own] = 0


@jit_inner
def _unfinished(calls: Any, number: int, part: int, first: int, end: int) -> int:
    """The next part behind `part`, in a circle, of first .. end - 1 that is not done; -1 where there is none."""
    count = end - first
    for step in range(1, count + 1):
        one = first + (part - first + step) % count
        if not reached(calls, number, one, _FULL):
            return one
    return -1


@jit
def finish(calls: Any, thread: int, number: int) -> Any:
    """Behind all parts. Thread 0: 0, or -1 where the call was given up. A member listens: the next call, or 0."""
    gate, last = np.uintp(calls.size - 2 * LINE), np.uintp(calls.size - LINE)
    if thread == 0:
        return min(acquire(calls, last), 0)
    looks = 0
    while True:
        now = acquire(calls, last)
        if now != number:
            return max(now, 0)
        looks += 1
        if looks > _LOOKS:
            _make_way(calls, thread, 0)
            if looks > _LOOKS + _OFFERS:
                add(calls, gate, 1)
                if acquire(calls, last) == number:
                    return 0
                add(calls, gate, -1)  # the call was handed out before


@jit_inner
def undone(calls: Any, thread: int, number: int, part: int) -> Any:
    """The call and the part, of one step, that this thread does next, and holds: `part` or one that is not done.

    Where there is none, what :func:`finish` says instead of the call, 0 or -1.
    """
    idle = 0
    while number > 0:
        while part >= 0:
            idle += 1
            if hold(calls, thread, number, part) and position(calls, number, part) == 0:
                return number, part
            part = turn(calls, thread, number, part, idle)
        number = finish(calls, thread, number)
        part, idle = first_part(calls, thread), 0
    return number, part


@jit_inner
def then_undone(calls: Any, thread: int, number: int, part: int) -> Any:
    """As :func:`undone`, behind a part of one step that this thread has done."""
    advanced(calls, number, part, 1, 1)
    let_go(calls, thread, number, part)
    return undone(calls, thread, number, turn(calls, thread, number, part, 0))


@jit
def next_piece(counters: Any, i: int) -> Any:
    """The number of a piece that no other thread gets, by counters[i], which begins at 0."""
    return add(counters, np.uintp(i), 1)


@jit_inner
def array_at(address: int, size: int, like: Any) -> Any:
    """The flat array of so many entries at an address, of the type of `like`; who calls keeps it alive."""
    return carray(pointer(address), (size,), like.dtype)


@jit_inner
def arrays_of(calls: Any, powers: int, x: Any, out: Any) -> Any:
    """x (b, n) and out, flat, of the call at hand, for a member that holds a part; the arguments give the types."""
    word = calls.size - LINE
    b, n = calls[word + 3], calls[word + 4]
    return (
        carray(pointer(calls[word + 1]), (b, n), x.dtype),
        carray(pointer(calls[word + 2]), (powers * b * n,), out.dtype),
    )
