"""Atomic words, the clock, sleep and affinity of a thread, for compiled code: what Numba has no call for."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import akx.backends.cpu.jit  # noqa: F401 - before Numba, which it imports sooner

# isort: split
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = [
    "CORE_WORDS",
    "acquire",
    "add",
    "current_core",
    "get_affinity",
    "give_way",
    "now",
    "pointer",
    "publish",
    "set_affinity",
    "sleep",
    "swap_if",
]

#: Words of a set of cores as the system has it, 64 cores in each.
CORE_WORDS = 16


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
def swap_if(typingctx: Any, counters: Any, i: Any, old: Any, new: Any) -> Any:
    """Make counters[i] `new` if it is `old`, atomically; whether it was."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _word(context, builder, signature.args[0], args[0], args[1])
        pair = builder.cmpxchg(address, args[2], args[3], "acq_rel", "acquire")
        return builder.extract_value(pair, 1)

    return types.boolean(counters, types.uintp, types.int64, types.int64), generate


@intrinsic
def add(typingctx: Any, counters: Any, i: Any, value: Any) -> Any:
    """counters[i] += value, atomically; what it was before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        at = _word(context, builder, signature.args[0], args[0], args[1])
        return builder.atomic_rmw("add", at, args[2], "acq_rel")

    return types.int64(counters, types.uintp, types.int64), generate


@intrinsic
def pointer(typingctx: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


@intrinsic
def give_way(typingctx: Any) -> Any:
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
def now(typingctx: Any) -> Any:
    """Nanoseconds of a clock that only goes forward; 0 on Windows."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        if sys.platform == "win32":
            return ir.Constant(word, 0)
        moment = cgutils.alloca_once(builder, ir.ArrayType(word, 2))
        call = _system_call(builder, "clock_gettime", [ir.IntType(32), cgutils.voidptr_t])
        clock = ir.Constant(ir.IntType(32), time.CLOCK_MONOTONIC)
        builder.call(call, [clock, builder.bitcast(moment, cgutils.voidptr_t)])
        both = builder.load(moment)
        seconds = builder.mul(builder.extract_value(both, 0), ir.Constant(word, 1_000_000_000))
        return builder.add(seconds, builder.extract_value(both, 1))

    return types.int64(), generate


@intrinsic
def sleep(typingctx: Any, nanoseconds: Any) -> Any:
    """Let the thread sleep for so many nanoseconds, fewer than 10^9, or until a signal comes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if sys.platform != "win32":
            word = ir.IntType(64)
            moment = cgutils.alloca_once(builder, ir.ArrayType(word, 2))
            builder.store(ir.Constant(ir.ArrayType(word, 2), [0, 0]), moment)
            zero, one = ir.Constant(ir.IntType(32), 0), ir.Constant(ir.IntType(32), 1)
            builder.store(args[0], builder.gep(moment, [zero, one]))
            call = _system_call(builder, "nanosleep", [cgutils.voidptr_t, cgutils.voidptr_t])
            builder.call(call, [builder.bitcast(moment, cgutils.voidptr_t), ir.Constant(cgutils.voidptr_t, None)])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def current_core(typingctx: Any) -> Any:
    """The core that this thread is on, or -1 where the system does not say."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if sys.platform != "linux":
            return ir.Constant(ir.IntType(32), -1)
        return builder.call(_system_call(builder, "sched_getcpu", []), [])

    return types.int32(), generate


@intrinsic
def get_affinity(typingctx: Any, cores: Any) -> Any:
    """Put the cores that this thread may run on into `cores`, (CORE_WORDS,) uint64; 0, or -1 where that fails."""
    return types.int32(cores), _affinity("sched_getaffinity")


@intrinsic
def set_affinity(typingctx: Any, cores: Any) -> Any:
    """Have this thread run on one of `cores`, (CORE_WORDS,) uint64, from now on; 0, or -1 where that fails."""
    return types.int32(cores), _affinity("sched_setaffinity")


def _affinity(name: str) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if sys.platform != "linux":
            return ir.Constant(ir.IntType(32), -1)
        size = ir.IntType(context.address_size)
        array = context.make_array(signature.args[0])(context, builder, args[0])
        cores = builder.bitcast(array.data, cgutils.voidptr_t)
        call = _system_call(builder, name, [ir.IntType(32), size, cgutils.voidptr_t])
        return builder.call(call, [ir.Constant(ir.IntType(32), 0), ir.Constant(size, 8 * CORE_WORDS), cores])

    return generate


def _system_call(builder: Any, name: str, arguments: list[Any]) -> Any:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.IntType(32), arguments), name)
