"""Point-to-point synchronisation of threads: progress counters with acquire and release, and a spin.

Each thread counts the tasks it has finished in a cache line of its own; a thread that needs the results of another
waits until that counter is high enough. Release on the counter makes the vector entries written before it visible to
whoever acquires it. A waiting thread looks again and again, and after a while gives its core away each time, so that
more threads than cores are slow but never stuck. (No pause instruction: in a virtual machine it traps.)
"""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from akx.kernels.cpu.jit import jit

__all__ = ["LINE", "acquire", "publish", "wait_for"]

#: Counters lie this many 8-byte words apart, two cache lines, so that prefetching neighbours does not share them.
LINE = 16
_SPINS = 2000


def _word(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index], inbounds=True)


@intrinsic
def acquire(typingctx: Any, counters: Any, i: Any) -> Any:
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


@jit
def wait_for(counters: Any, i: Any, value: Any) -> None:
    """Return when counters[i] >= value."""
    spins = 0
    while acquire(counters, i) < value:
        spins += 1
        if spins > _SPINS:
            _give_way()
