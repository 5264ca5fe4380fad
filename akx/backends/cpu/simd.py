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
from llvmlite import binding as llvm
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

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

_BITS = 512
_I1, _I32, _I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)


class VectorType(types.Type):  # type: ignore[misc]
    """The Numba type of a short vector of `dtype`, 512 bits wide unless told; complex entries lie as (re, im) pairs."""

    def __init__(self, dtype: types.Float | types.Complex, lanes: int = 0) -> None:
        self.dtype = dtype
        self.lanes = lanes or _BITS // dtype.bitwidth
        super().__init__(name=f"akx.Vector({dtype} x {self.lanes})")


class SumType(types.Type):  # type: ignore[misc]
    """The Numba type of a sum of products of complex vectors, kept as two vectors of reals until it is stored.

    The first adds up v x number by number, (re re, im im) of each entry; the second v and x swapped, (re im, im re). A
    step is one shuffle and two multiply-adds, and the four numbers of an entry become two only once, in :func:`_total`.
    """

    def __init__(self, vector: VectorType) -> None:
        self.vector = vector
        super().__init__(name=f"akx.Sum({vector.dtype} x {vector.lanes})")


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: VectorType) -> None:
        super().__init__(manager, kind, _vector(kind))


@register_model(SumType)
class _SumModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: SumType) -> None:
        super().__init__(manager, kind, ir.LiteralStructType([_vector(kind.vector)] * 2))


def _is_complex(dtype: Any) -> bool:
    return isinstance(dtype, types.Complex)


def _itemsize(dtype: Any) -> int:
    return int(dtype.bitwidth) // 8


def _align(dtype: Any) -> int:
    """Bytes that an entry is aligned to: those of a real number."""
    return _itemsize(dtype) // (2 if _is_complex(dtype) else 1)


def _entry(dtype: Any) -> ir.Type:
    """What one load brings an entry as: a number, two doubles, or, for two floats, eight bytes called a double."""
    return {32: ir.FloatType(), 64: ir.DoubleType(), 128: ir.VectorType(ir.DoubleType(), 2)}[dtype.bitwidth]


def _vector(kind: VectorType) -> ir.VectorType:
    real = ir.DoubleType() if _align(kind.dtype) == 8 else ir.FloatType()
    return ir.VectorType(real, kind.lanes * _itemsize(kind.dtype) // _align(kind.dtype))


def _sum(kind: VectorType) -> VectorType | SumType:
    """The type in which products of vectors of `kind` add up."""
    return SumType(kind) if _is_complex(kind.dtype) else kind


def _is_vectorisable(array: Any) -> bool:
    return isinstance(array, types.Array) and isinstance(array.dtype, types.Float | types.Complex)


def _address(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index], inbounds=True)


def _load_vector(context: Any, builder: Any, array_kind: Any, array: Any, index: Any, kind: VectorType) -> Any:
    """An unaligned load of `kind.lanes` consecutive entries of an array."""
    address = _address(context, builder, array_kind, array, index)
    value = builder.load(builder.bitcast(address, _vector(kind).as_pointer()))
    value.align = _align(kind.dtype)
    return value


def _load_numbers(context: Any, builder: Any, kind: Any, array: Any, index: Any, lanes: int) -> Any:
    """`lanes` consecutive integers of an array, in 64 bits."""
    address, integer = _address(context, builder, kind, array, index), context.get_data_type(kind.dtype)
    numbers = builder.load(builder.bitcast(address, ir.VectorType(integer, lanes).as_pointer()))
    numbers.align = _itemsize(kind.dtype)
    wide = ir.VectorType(_I64, lanes)
    return numbers if numbers.type == wide else builder.zext(numbers, wide)


def _shuffle(builder: Any, a: Any, b: Any, picks: list[int]) -> Any:
    """The vector of the elements of a and b, numbered through, that `picks` names."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_I32, len(picks)), picks))


def _splat(builder: Any, value: Any, lanes: int) -> Any:
    kind = ir.VectorType(value.type, lanes)
    undefined = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
    return _shuffle(builder, one, undefined, [0] * lanes)


def _pointers(builder: Any, base: Any, offsets: Any, lanes: int, itemsize: int) -> Any:
    """The vector of addresses base + itemsize * offsets, for offsets a vector of 64-bit integers."""
    start = _splat(builder, builder.ptrtoint(base, _I64), lanes)
    scale = ir.Constant(ir.VectorType(_I64, lanes), [itemsize] * lanes)
    addresses = builder.add(start, builder.mul(offsets, scale))
    return builder.inttoptr(addresses, ir.VectorType(base.type, lanes))


def _gathers_in_hardware(kind: VectorType) -> bool:
    """Whether the gather instruction beats separate loads: not on AMD's Zen, by a factor of 1.35 (Zen 4).

    There is none for entries of 128 bits, and no gain for less than a whole vector.
    """
    name = config.CPU_NAME or llvm.get_host_cpu_name()
    whole = kind.lanes * kind.dtype.bitwidth == _BITS
    return whole and kind.dtype.bitwidth <= 64 and not str(name).startswith("znver")


def _call_gather(builder: Any, start: Any, offsets: Any, kind: VectorType) -> Any:
    """The vector of the entries at start + offsets; offsets as :func:`_offsets` gives them."""
    entry, lanes = _entry(kind.dtype), kind.lanes
    start = builder.bitcast(start, entry.as_pointer())
    if isinstance(offsets, list):
        entries = []
        for offset in offsets:
            entries.append(builder.load(builder.gep(start, [offset], inbounds=True)))
            entries[-1].align = _align(kind.dtype)
        return builder.bitcast(_join(builder, entries), _vector(kind))
    pointers = _pointers(builder, start, offsets, lanes, _itemsize(kind.dtype))
    mask, vector = ir.VectorType(_I1, lanes), ir.VectorType(entry, lanes)
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(vector, [pointers.type, _I32, mask, vector]),
        f"llvm.masked.gather.v{lanes}f{kind.dtype.bitwidth}.v{lanes}p0",
    )
    align, everywhere = ir.Constant(_I32, _align(kind.dtype)), ir.Constant(mask, [1] * lanes)
    found = builder.call(function, [pointers, align, everywhere, ir.Constant(vector, ir.Undefined)])
    return builder.bitcast(found, _vector(kind))


def _join(builder: Any, entries: list[Any]) -> Any:
    """The entries, numbers or vectors of two, in one vector; vectors are joined pair by pair."""
    if not isinstance(entries[0].type, ir.VectorType):
        result = ir.Constant(ir.VectorType(entries[0].type, len(entries)), ir.Undefined)
        for lane, entry in enumerate(entries):
            result = builder.insert_element(result, entry, ir.Constant(_I32, lane))
        return result
    while len(entries) > 1:
        both = list(range(2 * entries[0].type.count))
        entries = [_shuffle(builder, a, b, both) for a, b in zip(entries[::2], entries[1::2], strict=True)]
    return entries[0]


def _offsets(context: Any, builder: Any, kind: Any, array: Any, index: Any, vector: VectorType, scale: int) -> Any:
    """scale * array[index + lane] for every lane, in 64 bits: a vector, or a list where gathers are separate loads."""
    lanes = vector.lanes
    if _gathers_in_hardware(vector):
        offsets = _load_numbers(context, builder, kind, array, index, lanes)
        return offsets if scale == 1 else builder.mul(offsets, ir.Constant(offsets.type, [scale] * lanes))
    first = _address(context, builder, kind, array, index)
    result = []
    for lane in range(lanes):
        number = builder.load(builder.gep(first, [ir.Constant(_I64, lane)], inbounds=True))
        offset = number if number.type == _I64 else builder.zext(number, _I64)
        result.append(offset if scale == 1 else builder.mul(offset, ir.Constant(_I64, scale)))
    return result


def _scatter(builder: Any, value: Any, kind: VectorType, start: Any, offsets: Any, count: Any) -> None:
    """start[offsets[lane]] = value[lane] for the lanes below `count`; offsets a vector of 64-bit integers."""
    lanes, align = kind.lanes, _align(kind.dtype)
    if _is_complex(kind.dtype):  # pairs of numbers go one by one
        start = builder.bitcast(start, _entry(kind.dtype).as_pointer())
        for lane, item in enumerate(_entries(builder, value, kind)):
            at = ir.Constant(_I64, lane)
            with builder.if_then(builder.icmp_unsigned("<", at, count), likely=True):
                address = builder.gep(start, [builder.extract_element(offsets, at)], inbounds=True)
                builder.store(item, address).align = align
        return
    pointers = _pointers(builder, start, offsets, lanes, _itemsize(kind.dtype))
    numbers = ir.Constant(ir.VectorType(_I64, lanes), list(range(lanes)))
    mask = builder.icmp_unsigned("<", numbers, _splat(builder, count, lanes))
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [value.type, pointers.type, _I32, mask.type]),
        f"llvm.masked.scatter.v{lanes}f{kind.dtype.bitwidth}.v{lanes}p0",
    )
    builder.call(function, [value, pointers, ir.Constant(_I32, align), mask])


def _entries(builder: Any, value: Any, kind: VectorType) -> list[Any]:
    """The entries of a vector, each as :func:`_entry` has it."""
    if kind.dtype.bitwidth == 128:
        return [_shuffle(builder, value, value, [2 * lane, 2 * lane + 1]) for lane in range(kind.lanes)]
    numbers = builder.bitcast(value, ir.VectorType(_entry(kind.dtype), kind.lanes))
    return [builder.extract_element(numbers, ir.Constant(_I32, lane)) for lane in range(kind.lanes)]


def _call_fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    vector = a.type
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(vector, [vector] * 3),
        f"llvm.fma.v{vector.count}f{64 if vector.element == ir.DoubleType() else 32}",
    )
    return builder.call(function, [a, b, c])


def _accumulate(builder: Any, v: Any, x: Any, total: Any) -> Any:
    """total + v x: a vector for real entries, the two vectors of :class:`SumType` for complex ones."""
    if isinstance(total.type, ir.VectorType):
        return _call_fma(builder, v, x, total)
    swapped = _shuffle(builder, x, x, [i ^ 1 for i in range(x.type.count)])
    parts = builder.extract_value(total, 0), builder.extract_value(total, 1)
    return _pair(builder, _call_fma(builder, v, x, parts[0]), _call_fma(builder, v, swapped, parts[1]))


def _pair(builder: Any, first: Any, second: Any) -> Any:
    nothing = ir.Constant(ir.LiteralStructType([first.type] * 2), ir.Undefined)
    return builder.insert_value(builder.insert_value(nothing, first, 0), second, 1)


def _total(builder: Any, value: Any) -> Any:
    """The vector that a sum stands for: re re - im im and re im + im re of each complex entry. A vector is its own."""
    if isinstance(value.type, ir.VectorType):
        return value
    straight, crossed = builder.extract_value(value, 0), builder.extract_value(value, 1)
    count = straight.type.count
    picks = [i + part for i in range(0, count, 2) for part in (0, count)]
    first = _shuffle(builder, straight, crossed, picks)
    second = _shuffle(builder, straight, crossed, [i + 1 for i in picks])
    return _call_fma(builder, second, ir.Constant(second.type, [-1.0, 1.0] * (count // 2)), first)


def _plain(kind: VectorType | SumType) -> VectorType:
    """The type of the vectors that add up in a sum."""
    return kind.vector if isinstance(kind, SumType) else kind


@intrinsic
def zero(typingctx: Any, like: Any) -> Any:
    """The empty sum of products of vectors of the array `like`; for real entries it is a vector."""
    if not _is_vectorisable(like):
        return None
    kind = _sum(VectorType(like.dtype))

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(kind), None)

    return kind(like), generate


@intrinsic
def zero_of(typingctx: Any, like: Any, lanes: Any) -> Any:
    """As :func:`zero`, for vectors of a few lanes; `lanes` is a number written out in the kernel."""
    if not _is_vectorisable(like) or not isinstance(lanes, types.IntegerLiteral):
        return None
    kind = _sum(VectorType(like.dtype, lanes.literal_value))

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(kind), None)

    return kind(like, lanes), generate


@intrinsic
def load(typingctx: Any, array: Any, i: Any) -> Any:
    """array[i : i + lanes]."""
    if not _is_vectorisable(array):
        return None
    kind = VectorType(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _load_vector(context, builder, signature.args[0], args[0], args[1], kind)

    return kind(array, types.uintp), generate


@intrinsic
def gather(typingctx: Any, array: Any, base: Any, index: Any, p: Any) -> Any:
    """array[base + index[p + lane]] in every lane."""
    if not _is_vectorisable(array):
        return None
    kind = VectorType(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        offsets = _offsets(context, builder, signature.args[2], args[2], args[3], kind, 1)
        start = _address(context, builder, signature.args[0], args[0], args[1])
        return _call_gather(builder, start, offsets, kind)

    return kind(array, types.uintp, index, types.uintp), generate


@intrinsic
def up_to(typingctx: Any, value: Any, length: Any, p: Any, step: Any) -> Any:
    """value[lane] where step < length[p + lane], else 0, for a vector; step and lengths of 64 bits."""
    if not isinstance(value, VectorType):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = args[0].type
        lengths = _load_numbers(context, builder, signature.args[1], args[1], args[2], value.lanes)
        keep = builder.icmp_unsigned("<", _splat(builder, args[3], value.lanes), lengths)
        if vector.count != value.lanes:  # the two numbers of complex entries
            keep = _shuffle(builder, keep, keep, [i // 2 for i in range(vector.count)])
        return builder.select(keep, args[0], ir.Constant(vector, None))

    return value(value, length, types.uintp, types.uintp), generate


@intrinsic
def splat(typingctx: Any, array: Any, i: Any) -> Any:
    """array[i] in every lane."""
    if not _is_vectorisable(array):
        return None
    kind = VectorType(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature.args[0], args[0], args[1])
        entry = builder.load(builder.bitcast(address, _entry(kind.dtype).as_pointer()))
        entry.align = _align(kind.dtype)
        if isinstance(entry.type, ir.VectorType):
            return _shuffle(builder, entry, entry, [0, 1] * kind.lanes)
        return builder.bitcast(_splat(builder, entry, kind.lanes), _vector(kind))

    return kind(array, types.uintp), generate


@intrinsic
def store(typingctx: Any, array: Any, i: Any, value: Any) -> Any:
    """array[i : i + lanes] = value, a vector or a sum."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature.args[0], args[0], args[1])
        vector = _total(builder, args[2])
        instruction = builder.store(vector, builder.bitcast(address, vector.type.as_pointer()))
        instruction.align = _align(signature.args[0].dtype)
        return context.get_dummy_value()

    return types.void(array, types.uintp, value), generate


@intrinsic
def stream(typingctx: Any, array: Any, i: Any, value: Any) -> Any:
    """As :func:`store`, for a whole line of the array that begins there; it goes past the caches. See :func:`fence`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature.args[0], args[0], args[1])
        vector = _total(builder, args[2])
        instruction = builder.store(vector, builder.bitcast(address, vector.type.as_pointer()))
        instruction.align = _BITS // 8
        instruction.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(_I32, 1)]))
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
    kind = _plain(value)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature.args[0], args[0], args[1])
        offsets = ir.Constant(ir.VectorType(_I64, kind.lanes), list(range(kind.lanes)))
        _scatter(builder, _total(builder, args[2]), kind, address, offsets, args[3])
        return context.get_dummy_value()

    return types.void(array, types.uintp, value, types.uintp), generate


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, lane by lane, c a sum; real numbers are rounded once."""
    if not isinstance(a, VectorType):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _accumulate(builder, *args)

    return c(a, a, c), generate


@intrinsic
def fma_gather(typingctx: Any, total: Any, values: Any, x: Any, base: Any, index: Any, p: Any) -> Any:
    """total[lane] + values[p + lane] * x[base + index[p + lane]] for every lane of the sum `total`."""
    if not isinstance(total, VectorType | SumType):
        return None
    kind = _plain(total)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = _load_vector(context, builder, signature.args[1], args[1], args[5], kind)
        offsets = _offsets(context, builder, signature.args[4], args[4], args[5], kind, 1)
        start = _address(context, builder, signature.args[2], args[2], args[3])
        return _accumulate(builder, value, _call_gather(builder, start, offsets, kind), args[0])

    return total(total, values, x, types.uintp, index, types.uintp), generate


@intrinsic
def add(typingctx: Any, a: Any, b: Any) -> Any:
    """a + b of two sums, lane by lane."""
    if not isinstance(a, VectorType | SumType):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if isinstance(a, VectorType):
            return builder.fadd(*args)
        return _pair(builder, *(builder.fadd(*(builder.extract_value(v, part) for v in args)) for part in (0, 1)))

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
            halves.append(builder.fadd(*(_shuffle(builder, both, both, lane) for lane in ([0, 1], [2, 3]))))
        return _pair(builder, *halves)

    return SumType(VectorType(pair.vector.dtype, 1))(pair), generate


@intrinsic
def scatter(typingctx: Any, array: Any, base: Any, index: Any, p: Any, value: Any, count: Any) -> Any:
    """array[base + index[p + lane]] = value[lane] for the lanes below count (indices distinct); value may be a sum."""
    kind = _plain(value)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        offsets = _load_numbers(context, builder, signature.args[2], args[2], args[3], kind.lanes)
        start = _address(context, builder, signature.args[0], args[0], args[1])
        _scatter(builder, _total(builder, args[4]), kind, start, offsets, args[5])
        return context.get_dummy_value()

    return types.void(array, types.uintp, index, types.uintp, value, types.uintp), generate


@intrinsic
def prefetch(typingctx: Any, array: Any, i: Any) -> Any:
    """Ask for the cache line of array[i] in the second-level cache; harmless beyond the end."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature.args[0], args[0], args[1])
        pointer = builder.bitcast(address, ir.IntType(8).as_pointer())
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [pointer.type, _I32, _I32, _I32]), "llvm.prefetch.p0"
        )
        read, second_level, data = (ir.Constant(_I32, number) for number in (0, 2, 1))
        builder.call(function, [pointer, read, second_level, data])
        return context.get_dummy_value()

    return types.void(array, types.uintp), generate


@intrinsic
def zero_block(typingctx: Any, like: Any, shape: Any) -> Any:
    """A tuple of empty sums, as many as the tuple `shape` has elements."""
    if not _is_vectorisable(like) or not isinstance(shape, types.BaseTuple):
        return None
    kind = _sum(VectorType(like.dtype))
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
    kind, m = _plain(sums.dtype), len(sums)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        accumulators = cgutils.unpack_tuple(builder, args[0])
        offsets = _offsets(context, builder, signature.args[5], args[5], args[6], kind, m)
        start = _address(context, builder, signature.args[3], args[3], args[4])
        for c in range(m):
            column = builder.gep(start, [ir.Constant(_I64, c)])
            entries = _call_gather(builder, column, offsets, kind)
            for r in range(m):
                at = builder.add(args[2], ir.Constant(_I64, (c * m + r) * kind.lanes))
                value = _load_vector(context, builder, signature.args[1], args[1], at, kind)
                accumulators[r] = _accumulate(builder, value, entries, accumulators[r])
        return context.make_tuple(builder, signature.return_type, accumulators)

    return sums(sums, values, types.uintp, x, types.uintp, index, types.uintp), generate


@intrinsic
def scatter_block(typingctx: Any, array: Any, base: Any, sums: Any, count: Any) -> Any:
    """array[base + m lane + r] = sums[r][lane] for the lanes below count, m = len(sums)."""
    if not isinstance(sums, types.UniTuple):
        return None
    kind, m = _plain(sums.dtype), len(sums)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        offsets = ir.Constant(ir.VectorType(_I64, kind.lanes), [m * lane for lane in range(kind.lanes)])
        start = _address(context, builder, signature.args[0], args[0], args[1])
        for r, value in enumerate(cgutils.unpack_tuple(builder, args[2])):
            row = builder.gep(start, [ir.Constant(_I64, r)])
            _scatter(builder, _total(builder, value), kind, row, offsets, args[3])
        return context.get_dummy_value()

    return types.void(array, types.uintp, sums, types.uintp), generate
