"""The types of short vectors, and the LLVM code of which their operations are made (:mod:`akx.backends.cpu.simd`)."""

from __future__ import annotations

from typing import Any

import akx.backends.cpu.jit  # noqa: F401 - before Numba, which it imports sooner

# isort: split
from llvmlite import binding as llvm
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import models, register_model

__all__ = [
    "BITS",
    "I32",
    "I64",
    "SumType",
    "VectorType",
    "accumulate",
    "address_of",
    "align_of",
    "broadcast",
    "entry_type",
    "gather_entries",
    "is_vectorisable",
    "load_numbers",
    "load_vector",
    "offsets_of",
    "pair_of",
    "plain_type",
    "scatter_entries",
    "shuffle",
    "sum_type",
    "total_of",
    "vector_type",
]

BITS = 512
I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)


class VectorType(types.Type):  # type: ignore[misc]
    """The Numba type of a short vector of `dtype`, 512 bits wide unless told; complex entries lie as (re, im) pairs."""

    def __init__(self, dtype: types.Float | types.Complex, lanes: int = 0) -> None:
        self.dtype = dtype
        self.lanes = lanes or BITS // dtype.bitwidth
        super().__init__(name=f"akx.Vector({dtype} x {self.lanes})")


class SumType(types.Type):  # type: ignore[misc]
    """The Numba type of a sum of products of complex vectors, kept as two vectors of reals until it is stored.

    The first adds up v x number by number, (re re, im im) of each entry; the second v and x swapped, (re im, im re). A
    step is one shuffle and two multiply-adds, and the four numbers of an entry become two only once, in
    :func:`total_of`.
    """

    def __init__(self, vector: VectorType) -> None:
        self.vector = vector
        super().__init__(name=f"akx.Sum({vector.dtype} x {vector.lanes})")


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: VectorType) -> None:
        super().__init__(manager, kind, vector_type(kind))


@register_model(SumType)
class _SumModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: SumType) -> None:
        super().__init__(manager, kind, ir.LiteralStructType([vector_type(kind.vector)] * 2))


def _is_complex(dtype: Any) -> bool:
    return isinstance(dtype, types.Complex)


def _itemsize(dtype: Any) -> int:
    return int(dtype.bitwidth) // 8


def align_of(dtype: Any) -> int:
    """Bytes that an entry is aligned to: those of a real number."""
    return _itemsize(dtype) // (2 if _is_complex(dtype) else 1)


def entry_type(dtype: Any) -> ir.Type:
    """What one load brings an entry as: a number, two doubles, or, for two floats, eight bytes called a double."""
    return {32: ir.FloatType(), 64: ir.DoubleType(), 128: ir.VectorType(ir.DoubleType(), 2)}[dtype.bitwidth]


def vector_type(kind: VectorType) -> ir.VectorType:
    real = ir.DoubleType() if align_of(kind.dtype) == 8 else ir.FloatType()
    return ir.VectorType(real, kind.lanes * _itemsize(kind.dtype) // align_of(kind.dtype))


def sum_type(kind: VectorType) -> VectorType | SumType:
    """The type in which products of vectors of `kind` add up."""
    return SumType(kind) if _is_complex(kind.dtype) else kind


def is_vectorisable(array: Any) -> bool:
    return isinstance(array, types.Array) and isinstance(array.dtype, types.Float | types.Complex)


def address_of(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index], inbounds=True)


def load_vector(context: Any, builder: Any, array_kind: Any, array: Any, index: Any, kind: VectorType) -> Any:
    """An unaligned load of `kind.lanes` consecutive entries of an array."""
    address = address_of(context, builder, array_kind, array, index)
    value = builder.load(builder.bitcast(address, vector_type(kind).as_pointer()))
    value.align = align_of(kind.dtype)
    return value


def load_numbers(context: Any, builder: Any, kind: Any, array: Any, index: Any, lanes: int) -> Any:
    """`lanes` consecutive integers of an array, in 64 bits."""
    address, integer = address_of(context, builder, kind, array, index), context.get_data_type(kind.dtype)
    numbers = builder.load(builder.bitcast(address, ir.VectorType(integer, lanes).as_pointer()))
    numbers.align = _itemsize(kind.dtype)
    wide = ir.VectorType(I64, lanes)
    return numbers if numbers.type == wide else builder.zext(numbers, wide)


def shuffle(builder: Any, a: Any, b: Any, picks: list[int]) -> Any:
    """The vector of the elements of a and b, numbered through, that `picks` names."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(picks)), picks))


def broadcast(builder: Any, value: Any, lanes: int) -> Any:
    kind = ir.VectorType(value.type, lanes)
    undefined = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(I32, 0))
    return shuffle(builder, one, undefined, [0] * lanes)


def _pointers(builder: Any, base: Any, offsets: Any, lanes: int, itemsize: int) -> Any:
    """The vector of addresses base + itemsize * offsets, for offsets a vector of 64-bit integers."""
    start = broadcast(builder, builder.ptrtoint(base, I64), lanes)
    scale = ir.Constant(ir.VectorType(I64, lanes), [itemsize] * lanes)
    addresses = builder.add(start, builder.mul(offsets, scale))
    return builder.inttoptr(addresses, ir.VectorType(base.type, lanes))


def _gathers_in_hardware(kind: VectorType) -> bool:
    """Whether the gather instruction beats separate loads: not on AMD's Zen, by a factor of 1.35 (Zen 4).

    There is none for entries of 128 bits, and no gain for less than a whole vector.
    """
    name = config.CPU_NAME or llvm.get_host_cpu_name()
    whole = kind.lanes * kind.dtype.bitwidth == BITS
    return whole and kind.dtype.bitwidth <= 64 and not str(name).startswith("znver")


def gather_entries(builder: Any, start: Any, offsets: Any, kind: VectorType) -> Any:
    """The vector of the entries at start + offsets; offsets as :func:`offsets_of` gives them."""
    entry, lanes = entry_type(kind.dtype), kind.lanes
    start = builder.bitcast(start, entry.as_pointer())
    if isinstance(offsets, list):
        entries = []
        for offset in offsets:
            entries.append(builder.load(builder.gep(start, [offset], inbounds=True)))
            entries[-1].align = align_of(kind.dtype)
        return builder.bitcast(_join(builder, entries), vector_type(kind))
    pointers = _pointers(builder, start, offsets, lanes, _itemsize(kind.dtype))
    mask, vector = ir.VectorType(I1, lanes), ir.VectorType(entry, lanes)
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(vector, [pointers.type, I32, mask, vector]),
        f"llvm.masked.gather.v{lanes}f{kind.dtype.bitwidth}.v{lanes}p0",
    )
    align, everywhere = ir.Constant(I32, align_of(kind.dtype)), ir.Constant(mask, [1] * lanes)
    found = builder.call(function, [pointers, align, everywhere, ir.Constant(vector, ir.Undefined)])
    return builder.bitcast(found, vector_type(kind))


def _join(builder: Any, entries: list[Any]) -> Any:
    """The entries, numbers or vectors of two, in one vector; vectors are joined pair by pair."""
    if not isinstance(entries[0].type, ir.VectorType):
        result = ir.Constant(ir.VectorType(entries[0].type, len(entries)), ir.Undefined)
        for lane, entry in enumerate(entries):
            result = builder.insert_element(result, entry, ir.Constant(I32, lane))
        return result
    while len(entries) > 1:
        both = list(range(2 * entries[0].type.count))
        entries = [shuffle(builder, a, b, both) for a, b in zip(entries[::2], entries[1::2], strict=True)]
    return entries[0]


def offsets_of(context: Any, builder: Any, kind: Any, array: Any, index: Any, vector: VectorType, scale: int) -> Any:
    """scale * array[index + lane] for every lane, in 64 bits: a vector, or a list where gathers are separate loads."""
    lanes = vector.lanes
    if _gathers_in_hardware(vector):
        offsets = load_numbers(context, builder, kind, array, index, lanes)
        return offsets if scale == 1 else builder.mul(offsets, ir.Constant(offsets.type, [scale] * lanes))
    first = address_of(context, builder, kind, array, index)
    result = []
    for lane in range(lanes):
        number = builder.load(builder.gep(first, [ir.Constant(I64, lane)], inbounds=True))
        offset = number if number.type == I64 else builder.zext(number, I64)
        result.append(offset if scale == 1 else builder.mul(offset, ir.Constant(I64, scale)))
    return result


def scatter_entries(builder: Any, value: Any, kind: VectorType, start: Any, offsets: Any, count: Any) -> None:
    """start[offsets[lane]] = value[lane] for the lanes below `count`; offsets a vector of 64-bit integers."""
    lanes, align = kind.lanes, align_of(kind.dtype)
    if _is_complex(kind.dtype):  # pairs of numbers go one by one
        start = builder.bitcast(start, entry_type(kind.dtype).as_pointer())
        for lane, item in enumerate(_entries(builder, value, kind)):
            at = ir.Constant(I64, lane)
            with builder.if_then(builder.icmp_unsigned("<", at, count), likely=True):
                address = builder.gep(start, [builder.extract_element(offsets, at)], inbounds=True)
                builder.store(item, address).align = align
        return
    pointers = _pointers(builder, start, offsets, lanes, _itemsize(kind.dtype))
    numbers = ir.Constant(ir.VectorType(I64, lanes), list(range(lanes)))
    mask = builder.icmp_unsigned("<", numbers, broadcast(builder, count, lanes))
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [value.type, pointers.type, I32, mask.type]),
        f"llvm.masked.scatter.v{lanes}f{kind.dtype.bitwidth}.v{lanes}p0",
    )
    builder.call(function, [value, pointers, ir.Constant(I32, align), mask])


def _entries(builder: Any, value: Any, kind: VectorType) -> list[Any]:
    """The entries of a vector, each as :func:`entry_type` has it."""
    if kind.dtype.bitwidth == 128:
        return [shuffle(builder, value, value, [2 * lane, 2 * lane + 1]) for lane in range(kind.lanes)]
    numbers = builder.bitcast(value, ir.VectorType(entry_type(kind.dtype), kind.lanes))
    return [builder.extract_element(numbers, ir.Constant(I32, lane)) for lane in range(kind.lanes)]


def _call_fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    vector = a.type
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(vector, [vector] * 3),
        f"llvm.fma.v{vector.count}f{64 if vector.element == ir.DoubleType() else 32}",
    )
    return builder.call(function, [a, b, c])


def accumulate(builder: Any, v: Any, x: Any, total: Any) -> Any:
    """total + v x: a vector for real entries, the two vectors of :class:`SumType` for complex ones."""
    if isinstance(total.type, ir.VectorType):
        return _call_fma(builder, v, x, total)
    swapped = shuffle(builder, x, x, [i ^ 1 for i in range(x.type.count)])
    parts = builder.extract_value(total, 0), builder.extract_value(total, 1)
    return pair_of(builder, _call_fma(builder, v, x, parts[0]), _call_fma(builder, v, swapped, parts[1]))


def pair_of(builder: Any, first: Any, second: Any) -> Any:
    nothing = ir.Constant(ir.LiteralStructType([first.type] * 2), ir.Undefined)
    return builder.insert_value(builder.insert_value(nothing, first, 0), second, 1)


def total_of(builder: Any, value: Any) -> Any:
    """The vector that a sum stands for: re re - im im and re im + im re of each complex entry. A vector is its own."""
    if isinstance(value.type, ir.VectorType):
        return value
    straight, crossed = builder.extract_value(value, 0), builder.extract_value(value, 1)
    count = straight.type.count
    picks = [i + part for i in range(0, count, 2) for part in (0, count)]
    first = shuffle(builder, straight, crossed, picks)
    second = shuffle(builder, straight, crossed, [i + 1 for i in picks])
    return _call_fma(builder, second, ir.Constant(second.type, [-1.0, 1.0] * (count // 2)), first)


def plain_type(kind: VectorType | SumType) -> VectorType:
    """The type of the vectors that add up in a sum."""
    return kind.vector if isinstance(kind, SumType) else kind
