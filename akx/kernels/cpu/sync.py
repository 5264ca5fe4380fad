"""Synchronisation of threads: progress counters with acquire and release, calls handed from thread to thread, a spin.

Each thread counts the tasks it has finished in a cache line of its own; a thread that needs the results of another
waits until that counter is high enough. Release on the counter makes the vector entries written before it visible to
whoever acquires it. A waiting thread looks again and again, and after a while gives its core away each time, so that
more threads than cores are slow but never stuck. (No pause instruction: in a virtual machine it traps.)

The system may put a thread that it wakes on the core of the one that woke it and leave both there, since each of them
always gives way to the other: a call then takes as long as on one thread, and a good deal more. So a thread that waits
says which core it is on, and a member that waits for one that has said in the same call that it is on that core too
moves to one that it may run on and where none of the team was seen last; where there is none, as with more threads than
cores, it stays. Its affinity is as before at once. The caller's thread is never moved.

Calls. Thread 0 is the caller's; the others are members of a team (:mod:`akx.kernels.cpu.team`). A member that has done
its part of a call does not return to the interpreter at once: it listens here for the next call of the same job, for
some tenths of a millisecond. Handing it a call is then a store that it sees within 0.1 us, where waking a sleeping
thread and two hand-overs of the interpreter lock take 45 us (2 cores of a Zen 4 VM), the price of several products of
a small matrix. All of it happens in `calls`, an int64 array of :func:`call_words` words:

====================  ================================================================================================
line t                tasks that thread t has finished, counted on from call to call; the core where it last waited,
                      plus 1, and, 16 bits higher, the call in which that was
line T + t            meetings that thread t has come to
line 2T + t           the last call that thread t has finished
line 3T               the gate: members that listen. The caller takes all of them at once or none, by one
                      compare-and-swap; a member whose time is up takes itself off in the same way
line 3T + 1           number of the last call handed out, or -1: everybody leave; addresses of its x and result; b, n
====================  ================================================================================================
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from akx.kernels.cpu.jit import jit

__all__ = ["LINE", "array_at", "arrays_of", "begin", "call_words", "dismiss", "finish", "meet", "publish", "wait_for"]

#: Counters lie this many 8-byte words apart, two cache lines, so that prefetching neighbours does not share them.
LINE = 16
_SPINS = 2000
#: Words of a set of cores as the system has it, 64 cores in each.
_CORES = 16
#: Where the number of the call begins in a thread's word of its core.
_CALL = 16
#: A member listens for so many looks (about 1 ns each), then for so many more that each offer the core to others first.
_LOOKS, _OFFERS = 20_000, 1_000


def _word(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index], inbounds=True)


@intrinsic
def _acquire(typingctx: Any, counters: Any, i: Any) -> Any:
    """counters[i], loaded atomically with acquire ordering."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_word(context, builder, signature.args[0], args[0], args[1]), "acquire", 8)

    return types.int64(counters, types.uintp), generate


@intrinsic
def publish(typingctx: Any, counters: Any, i: Any, value: Any) -> Any:
    """counters[i] = value, stored atomically with release ordering."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _word(context, builder, signature.args[0], args[0], args[1])
        builder.store_atomic(args[2], address, "release", 8)
        return context.get_dummy_value()

    return types.void(counters, types.uintp, types.int64), generate


@intrinsic
def _swap_if(typingctx: Any, counters: Any, i: Any, old: Any, new: Any) -> Any:
    """Make counters[i] `new` if it is `old`, atomically; whether it was."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _word(context, builder, signature.args[0], args[0], args[1])
        pair = builder.cmpxchg(address, args[2], args[3], "acq_rel", "acquire")
        return builder.extract_value(pair, 1)

    return types.boolean(counters, types.uintp, types.int64, types.int64), generate


@intrinsic
def _add(typingctx: Any, counters: Any, i: Any, value: Any) -> Any:
    """counters[i] += value, atomically."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.atomic_rmw("add", _word(context, builder, signature.args[0], args[0], args[1]), args[2], "acq_rel")
        return context.get_dummy_value()

    return types.void(counters, types.uintp, types.int64), generate


@intrinsic
def _pointer(typingctx: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


@intrinsic
def _give_way(typingctx: Any) -> Any:
    """Offer the core to another thread where the system has a call for it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if sys.platform != "win32":
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.IntType(32), []), "sched_yield"
            )
            builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _core(typingctx: Any) -> Any:
    """The core that this thread is on, or -1 where the system does not say."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if sys.platform != "linux":
            return ir.Constant(ir.IntType(32), -1)
        return builder.call(_system_call(builder, "sched_getcpu", []), [])

    return types.int32(), generate


@intrinsic
def _get_affinity(typingctx: Any, cores: Any) -> Any:
    """Put the cores that this thread may run on into `cores`, (_CORES,) uint64; 0, or -1 where that fails."""
    return types.int32(cores), _affinity("sched_getaffinity")


@intrinsic
def _set_affinity(typingctx: Any, cores: Any) -> Any:
    """Have this thread run on one of `cores`, (_CORES,) uint64, from now on; 0, or -1 where that fails."""
    return types.int32(cores), _affinity("sched_setaffinity")


def _affinity(name: str) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if sys.platform != "linux":
            return ir.Constant(ir.IntType(32), -1)
        size = ir.IntType(context.address_size)
        array = context.make_array(signature.args[0])(context, builder, args[0])
        cores = builder.bitcast(array.data, cgutils.voidptr_t)
        call = _system_call(builder, name, [ir.IntType(32), size, cgutils.voidptr_t])
        return builder.call(call, [ir.Constant(ir.IntType(32), 0), ir.Constant(size, 8 * _CORES), cores])

    return generate


def _system_call(builder: Any, name: str, arguments: list[Any]) -> Any:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.IntType(32), arguments), name)


@jit
def _say_core(calls: Any, thread: int) -> Any:
    """Leave word of the core that this thread is on in the call at hand; that word, or 0 where the system says none."""
    core, at = _core(), np.uintp(thread * LINE + 1)
    if core < 0 or core >= 64 * _CORES:
        return 0
    word = (_acquire(calls, np.uintp(calls.size - LINE)) << _CALL) + core + 1
    if _acquire(calls, at) != word:  # others look at this line again and again
        publish(calls, at, word)
    return word


@jit
def _make_way(calls: Any, thread: int, other: int) -> None:
    """Let others have this core; where `other`, which is waited for, waited on it in this call, a member moves away."""
    word = _say_core(calls, thread)
    if thread == 0 or word == 0 or _acquire(calls, np.uintp(other * LINE + 1)) != word or not _move(calls):
        _give_way()
    else:
        _say_core(calls, thread)


@jit
def _move(calls: Any) -> bool:
    """Go to a core that is allowed and where no thread of the team was last; False where there is none."""
    allowed = np.zeros(_CORES, dtype=np.uint64)
    if _get_affinity(allowed) != 0:
        return False
    free = allowed.copy()
    for one in range(calls.size // LINE // 3):
        taken = (_acquire(calls, np.uintp(one * LINE + 1)) & ((1 << _CALL) - 1)) - 1
        if 0 <= taken < 64 * _CORES:
            free[taken // 64] &= ~(np.uint64(1) << np.uint64(taken % 64))
    if not free.any() or _set_affinity(free) != 0:
        return False
    _set_affinity(allowed)
    return True


@jit
def wait_for(calls: Any, thread: int, other: int, i: Any, value: Any) -> None:
    """Return when calls[i] >= value, which thread `other` sees to, or when the call is given up."""
    spins = 0
    while _acquire(calls, i) < value:
        spins += 1
        if spins > _SPINS:
            _make_way(calls, thread, other)
            if _acquire(calls, np.uintp(calls.size - LINE)) < 0:
                return


@jit
def meet(calls: Any, thread: int, threads: int, value: int) -> None:
    """Wait until every thread has come here for the `value`-th time: a barrier by one counter per thread."""
    publish(calls, np.uintp((threads + thread) * LINE), value)
    for other in range(threads):
        wait_for(calls, thread, other, np.uintp((threads + other) * LINE), value)


def call_words(threads: int) -> int:
    """Size of `calls`; begins as zeros."""
    return LINE * (3 * threads + 2)


def dismiss(calls: NDArray[np.int64]) -> None:
    """Let all who listen return, for good; a call that is going on is given up: nobody waits for anybody any more."""
    calls[calls.size - LINE] = -1


@jit
def begin(calls: Any, thread: int, threads: int, sent: bool, x: Any, out: Any) -> Any:
    """The number of the call to do, or 0: the caller found somebody not listening, and nothing has happened.

    calls : see the module; thread 0 hands x (b, n) and out to the others, who wait here for the first call.
    sent : the members are sure to come, as they were sent by other means.
    """
    if sent:  # else nobody knows better before somebody has to wait: to ask the system may take longer than a call
        _say_core(calls, thread)
    if thread > 0:
        first, looks = np.uintp((3 * threads + 1) * LINE), 0
        while True:
            now = _acquire(calls, first)
            if now != 0:
                return max(now, 0)
            looks += 1
            if looks > _SPINS:
                _make_way(calls, thread, 0)
    gate, last = np.uintp(3 * threads * LINE), np.uintp((3 * threads + 1) * LINE)
    if not sent and not _swap_if(calls, gate, threads - 1, 0):
        return 0
    calls[last + np.uintp(1)], calls[last + np.uintp(2)] = x.ctypes.data, out.ctypes.data
    calls[last + np.uintp(3)], calls[last + np.uintp(4)] = x.shape[0], x.shape[1]
    number = calls[last] + 1
    publish(calls, last, number)
    return number


@jit
def array_at(address: int, size: int, like: Any) -> Any:
    """The flat array of so many entries at an address, of the type of `like`; who calls keeps it alive."""
    return carray(_pointer(address), (size,), like.dtype)


@jit
def arrays_of(calls: Any, threads: int, powers: int, x: Any, out: Any) -> Any:
    """x (b, n) and out, flat, of the call at hand, for a member; the arguments give the types."""
    word = (3 * threads + 1) * LINE
    b, n = calls[word + 3], calls[word + 4]
    return (
        carray(_pointer(calls[word + 1]), (b, n), x.dtype),
        carray(_pointer(calls[word + 2]), (powers * b * n,), out.dtype),
    )


@jit
def finish(calls: Any, thread: int, threads: int, number: int) -> Any:
    """Thread 0 waits for all: 0, or -1 where the call was given up. A member listens: the next call, or 0 to return."""
    gate, last = np.uintp(3 * threads * LINE), np.uintp((3 * threads + 1) * LINE)
    if thread == 0:
        for other in range(1, threads):
            wait_for(calls, thread, other, np.uintp((2 * threads + other) * LINE), number)
        return min(_acquire(calls, last), 0)
    _add(calls, gate, 1)
    publish(calls, np.uintp((2 * threads + thread) * LINE), number)
    looks = 0
    while True:
        now = _acquire(calls, last)
        if now != number:
            return max(now, 0)
        looks += 1
        if looks > _LOOKS:
            _make_way(calls, thread, 0)
            if looks > _LOOKS + _OFFERS:
                listening = _acquire(calls, gate)
                if listening > 0 and _swap_if(calls, gate, listening, listening - 1):
                    if _acquire(calls, last) == number:
                        return 0
                    _add(calls, gate, 1)  # the call was handed out before; who took themselves off were others
