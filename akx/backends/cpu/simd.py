"""Short vectors for Numba: a value type of 64 bytes (8 doubles, 16 floats) and the few operations kernels need.

LLVM's auto-vectoriser does not see through the accumulators of a sliced-ELL or diagonal kernel, so the kernels say what
they mean: ``acc = fma_gather(acc, values, x, base, index, p)``. The vectors are LLVM vectors and legal on every
processor: one AVX-512 register, two AVX2 registers, four NEON registers. Nothing here checks bounds.

Complex numbers go through the same operations: a vector of them is the (re, im) pairs as they lie in memory, one load
brings both numbers of an entry of x, and sums are kept in the form of :class:`SumType`. Against loops over complex
scalars, as the compiler makes them, that is 1.4 to 1.9 times as fast for CSR, 1.4 to 2.5 times for sliced ELL, 2.7 to
3.5 times for diagonals and 3.4 to 4.7 times for blocks (Zen 4, one thread, matrices of the second-level cache).
"""

from __future__ import annotations

from typing import Any

import akx.backends.cpu.jit  # noqa: F401 - before Numba, which it imports sooner

# isort: split
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from akx.backends.cpu.simd_ir import (
    BITS,
    I32,
    I64,
    SumType,
    VectorType,
    accumulate,
    address_of,
    align_of,
    broadcast,
    entry_type,
    gather_entries,
    is_vectorisable,
    load_numbers,
    load_vector,
    offsets_of,
    pair_of,
    plain_type,
    scatter_entries,
    shuffle,
    sum_type,
    total_of,
    vector_type,
)

__all__ = [
    "SumType",
    "VectorType",
    "add",
    "fence",
    "fma",
    "fma_block",
    "fma_gather",
    "fold",
    "gather",
    "load",
    "prefetch",
    "scatter",
    "scatter_block",
    "splat",
    "store",
    "store_some",
    "stream",
    "up_to",
    "zero",
    "zero_block",
    "zero_of",
]


@intrinsic
def zero(typingctx: Any, like: Any) -> Any:
    """The empty sum of products of vectors of the array `like`; for real entries it is a vector."""
    if not is_vectorisable(like):
        return None
    kind = sum_type(VectorType(like.dtype))

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(kind), None)

    return kind(like), generate


@intrinsic
def zero_of(typingctx: Any, like: Any, lanes: Any) -> Any:
    """As :func:`zero`, for vectors of a few lanes; `lanes` is a number written out in the kernel."""
    if not is_vectorisable(like) or not isinstance(lanes, types.IntegerLiteral):
        return None
    kind = sum_type(VectorType(like.dtype, lanes.literal_value))

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(kind), None)

    return kind(like, lanes), generate


@intrinsic
def load(typingctx: Any, array: Any, i: Any) -> Any:
    """array[i : i + lanes]."""
    if not is_vectorisable(array):
        return None
    kind = VectorType(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return load_vector(context, builder, signature.args[0], args[0], args[1], kind)

    return kind(array, types.uintp), generate


@intrinsic
def gather(typingctx: Any, array: Any, base: Any, index: Any, p: Any) -> Any:
    """array[base + index[p + lane]] in every lane."""
    if not is_vectorisable(array):
        return None
    kind = VectorType(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        offsets = offsets_of(context, builder, signature.args[2], args[2], args[3], kind, 1)
        start = address_of(context, builder, signature.args[0], args[0], args[1])
        return gather_entries(builder, start, offsets, kind)

    return kind(array, types.uintp, index, types.uintp), generate


@intrinsic
def up_to(typingctx: Any, value: Any, length: Any, p: Any, step: Any) -> Any:
    """value[lane] where step < length[p + lane], else 0, for a vector; step and lengths of 64 bits."""
    if not isinstance(value, VectorType):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = args[0].type
        lengths = load_numbers(context, builder, signature.args[1], args[1], args[2], value.lanes)
        keep = builder.icmp_unsigned("<", broadcast(builder, args[3], value.lanes), lengths)
        if vector.count != value.lanes:  # the two numbers of complex entries
            keep = shuffle(builder, keep, keep, [i // 2 for i in range(vector.count)])
        return builder.select(keep, args[0], ir.Constant(vector, None))

    return value(value, length, types.uintp, types.uintp), generate


@intrinsic
def splat(typingctx: Any, array: Any, i: Any) -> Any:
    """array[i] in every lane."""
    if not is_vectorisable(array):
        return None
    kind = VectorType(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = address_of(context, builder, signature.args[0], args[0], args[1])
        entry = builder.load(builder.bitcast(address, entry_type(kind.dtype).as_pointer()))
        entry.align = align_of(kind.dtype)
        if isinstance(entry.type, ir.VectorType):
            return shuffle(builder, entry, entry, [0, 1] * kind.lanes)
        return builder.bitcast(broadcast(builder, entry, kind.lanes), vector_type(kind))

    return kind(array, types.uintp), generate


@intrinsic
def store(typingctx: Any, array: Any, i: Any, value: Any) -> Any:
    """array[i : i + lanes] = value, a vector or a sum."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = address_of(context, builder, signature.args[0], args[0], args[1])
        vector = total_of(builder, args[2])
        instruction = builder.store(vector, builder.bitcast(address, vector.type.as_pointer()))
        instruction.align = align_of(signature.args[0].dtype)
        return context.get_dummy_value()

    return types.void(array, types.uintp, value), generate


@intrinsic
def stream(typingctx: Any, array: Any, i: Any, value: Any) -> Any:
    """As :func:`store`, for a whole line of the array that begins there; it goes past the caches. See :func:`fence`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = address_of(context, builder, signature.args[0], args[0], args[1])
        vector = total_of(builder, args[2])
        instruction = builder.store(vector, builder.bitcast(address, vector.type.as_pointer()))
        instruction.align = BITS // 8
        instruction.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(I32, 1)]))
        return context.get_dummy_value()

    return types.void(array, types.uintp, value), generate


@intrinsic
def fence(typingctx: Any) -> Any:
    """What was streamed before is there for others before anything stored after it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def store_some(typingctx: Any, array: Any, i: Any, value: Any, count: Any) -> Any:
    """array[i : i + count] = value[:count], a vector or a sum, for count <= lanes."""
    kind = plain_type(value)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = address_of(context, builder, signature.args[0], args[0], args[1])
        offsets = ir.Constant(ir.VectorType(I64, kind.lanes), list(range(kind.lanes)))
        scatter_entries(builder, total_of(builder, args[2]), kind, address, offsets, args[3])
        return context.get_dummy_value()

    return types.void(array, types.uintp, value, types.uintp), generate


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, lane by lane, c a sum; real numbers are rounded once."""
    if not isinstance(a, VectorType):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return accumulate(builder, *args)

    return c(a, a, c), generate


@intrinsic
def fma_gather(typingctx: Any, total: Any, values: Any, x: Any, base: Any, index: Any, p: Any) -> Any:
    """total[lane] + values[p + lane] * x[base + index[p + lane]] for every lane of the sum `total`."""
    if not isinstance(total, VectorType | SumType):
        return None
    kind = plain_type(total)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = load_vector(context, builder, signature.args[1], args[1], args[5], kind)
        offsets = offsets_of(context, builder, signature.args[4], args[4], args[5], kind, 1)
        start = address_of(context, builder, signature.args[2], args[2], args[3])
        return accumulate(builder, value, gather_entries(builder, start, offsets, kind), args[0])

    return total(total, values, x, types.uintp, index, types.uintp), generate


@intrinsic
def add(typingctx: Any, a: Any, b: Any) -> Any:
    """a + b of two sums, lane by lane."""
    if not isinstance(a, VectorType | SumType):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if isinstance(a, VectorType):
            return builder.fadd(*args)
        return pair_of(builder, *(builder.fadd(*(builder.extract_value(v, part) for v in args)) for part in (0, 1)))

    return a(a, a), generate


@intrinsic
def fold(typingctx: Any, pair: Any) -> Any:
    """The complex sum of one lane that a sum of two lanes adds up to."""
    if not isinstance(pair, SumType) or pair.vector.lanes != 2:
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        halves = []
        for part in (0, 1):
            both = builder.extract_value(args[0], part)
            halves.append(builder.fadd(*(shuffle(builder, both, both, lane) for lane in ([0, 1], [2, 3]))))
        return pair_of(builder, *halves)

    return SumType(VectorType(pair.vector.dtype, 1))(pair), generate


@intrinsic
def scatter(typingctx: Any, array: Any, base: Any, index: Any, p: Any, value: Any, count: Any) -> Any:
    """array[base + index[p + lane]] = value[lane] for the lanes below count (indices distinct); value may be a sum."""
    kind = plain_type(value)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        offsets = load_numbers(context, builder, signature.args[2], args[2], args[3], kind.lanes)
        start = address_of(context, builder, signature.args[0], args[0], args[1])
        scatter_entries(builder, total_of(builder, args[4]), kind, start, offsets, args[5])
        return context.get_dummy_value()

    return types.void(array, types.uintp, index, types.uintp, value, types.uintp), generate


@intrinsic
def prefetch(typingctx: Any, array: Any, i: Any) -> Any:
    """Ask for the cache line of array[i] in the second-level cache; harmless beyond the end."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = address_of(context, builder, signature.args[0], args[0], args[1])
        pointer = builder.bitcast(address, ir.IntType(8).as_pointer())
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [pointer.type, I32, I32, I32]), "llvm.prefetch.p0"
        )
        read, second_level, data = (ir.Constant(I32, number) for number in (0, 2, 1))
        builder.call(function, [pointer, read, second_level, data])
        return context.get_dummy_value()

    return types.void(array, types.uintp), generate


@intrinsic
def zero_block(typingctx: Any, like: Any, shape: Any) -> Any:
    """A tuple of empty sums, as many as the tuple `shape` has elements."""
    if not is_vectorisable(like) or not isinstance(shape, types.BaseTuple):
        return None
    kind = sum_type(VectorType(like.dtype))
    result = types.UniTuple(kind, len(shape))

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        nothing = ir.Constant(context.get_value_type(kind), None)
        return context.make_tuple(builder, result, [nothing] * len(shape))

    return result(like, shape), generate


@intrinsic
def fma_block(typingctx: Any, sums: Any, values: Any, p: Any, x: Any, base: Any, index: Any, q: Any) -> Any:
    """One block column step of block sliced ELL: sums[r] += values[p + (c m + r) lanes + lane] * x[base + m i + c].

    m = len(sums) is the block size, i = index[q + lane]; the m gathers of x share one index load.
    """
    if not isinstance(sums, types.UniTuple):
        return None
    kind, m = plain_type(sums.dtype), len(sums)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        accumulators = cgutils.unpack_tuple(builder, args[0])
        offsets = offsets_of(context, builder, signature.args[5], args[5], args[6], kind, m)
        start = address_of(context, builder, signature.args[3], args[3], args[4])
        for c in range(m):
            column = builder.gep(start, [ir.Constant(I64, c)])
            entries = gather_entries(builder, column, offsets, kind)
            for r in range(m):
                at = builder.add(args[2], ir.Constant(I64, (c * m + r) * kind.lanes))
                value = load_vector(context, builder, signature.args[1], args[1], at, kind)
                accumulators[r] = accumulate(builder, value, entries, accumulators[r])
        return context.make_tuple(builder, signature.return_type, accumulators)

    return sums(sums, values, types.uintp, x, types.uintp, index, types.uintp), generate


@intrinsic
def scatter_block(typingctx: Any, array: Any, base: Any, sums: Any, count: Any) -> Any:
    """array[base + m lane + r] = sums[r][lane] for the lanes below count, m = len(sums)."""
    if not isinstance(sums, types.UniTuple):
        return None
    kind, m = plain_type(sums.dtype), len(sums)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        offsets = ir.Constant(ir.VectorType(I64, kind.lanes), [m * lane for lane in range(kind.lanes)])
        start = address_of(context, builder, signature.args[0], args[0], args[1])
        for r, value in enumerate(cgutils.unpack_tuple(builder, args[2])):
            row = builder.gep(start, [ir.Constant(I64, r)])
            scatter_entries(builder, total_of(builder, value), kind, row, offsets, args[3])
        return context.get_dummy_value()

    return types.void(array, types.uintp, sums, types.uintp), generate
