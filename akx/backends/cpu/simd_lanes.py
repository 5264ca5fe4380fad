"""Operations between the lanes of short vectors (:mod:`akx.backends.cpu.simd`), and of some of them; of reals only."""

from __future__ import annotations

from typing import Any

import akx.backends.cpu.jit  # noqa: F401 - before Numba, which it imports sooner

# isort: split
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from akx.backends.cpu.simd_ir import I64, VectorType, address_of, align_of, broadcast, load_numbers, shuffle

__all__ = ["add_at", "below", "total"]


@intrinsic
def below(typingctx: Any, value: Any, count: Any) -> Any:
    """value[lane] for the lanes below `count`, 0 in the others."""
    if not isinstance(value, VectorType):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        numbers = ir.Constant(ir.VectorType(I64, value.lanes), list(range(value.lanes)))
        keep = builder.icmp_unsigned("<", numbers, broadcast(builder, args[1], value.lanes))
        return builder.select(keep, args[0], ir.Constant(args[0].type, None))

    return value(value, types.uintp), generate


@intrinsic
def total(typingctx: Any, value: Any) -> Any:
    """The sum of all lanes: of halves, of halves of these, and so on."""
    if not isinstance(value, VectorType):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector, count = args[0], value.lanes
        while count > 1:
            count //= 2
            halves = [shuffle(builder, vector, vector, list(range(at, at + count))) for at in (0, count)]
            vector = builder.fadd(*halves)
        return builder.extract_element(vector, ir.Constant(I64, 0))

    return value.dtype(value), generate


@intrinsic
def add_at(typingctx: Any, array: Any, base: Any, index: Any, p: Any, value: Any, count: Any) -> Any:
    """array[base + index[p + lane]] += value[lane] for the lanes below `count`, one after another."""
    if not isinstance(value, VectorType):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        offsets = load_numbers(context, builder, signature.args[2], args[2], args[3], value.lanes)
        start = address_of(context, builder, signature.args[0], args[0], args[1])
        for lane in range(value.lanes):
            at = ir.Constant(I64, lane)
            with builder.if_then(builder.icmp_unsigned("<", at, args[5]), likely=True):
                address = builder.gep(start, [builder.extract_element(offsets, at)], inbounds=True)
                before = builder.load(address)
                before.align = align_of(value.dtype)
                added = builder.fadd(before, builder.extract_element(args[4], at))
                builder.store(added, address).align = align_of(value.dtype)
        return context.get_dummy_value()

    return types.void(array, types.uintp, index, types.uintp, value, types.uintp), generate
