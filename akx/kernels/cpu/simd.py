"""Short vectors for Numba: a value type of 64 bytes (8 doubles, 16 floats) and the few operations kernels need.

LLVM's auto-vectoriser does not see through the accumulators of a sliced-ELL or diagonal kernel, so the kernels say what
they mean: ``acc = fma(load(values, p), gather(x, base, index, p), acc)``. The vectors are LLVM vectors and legal on
every processor: one AVX-512 register, two AVX2 registers, four NEON registers. Nothing here checks bounds.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding as llvm
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

__all__ = [
    "VectorType",
    "add",
    "fma",
    "fma_block",
    "gather",
    "load",
    "prefetch",
    "scatter",
    "scatter_block",
    "store",
    "store_some",
    "zero",
    "zero_block",
]

_BITS = 512
_I1, _I32, _I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)


class VectorType(types.Type):  # type: ignore[misc]
    """The Numba type of a short vector of `dtype`; 512 bits wide."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        self.lanes = _BITS // dtype.bitwidth
        super().__init__(name=f"akx.Vector({dtype} x {self.lanes})")


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: VectorType) -> None:
        super().__init__(manager, kind, _vector(kind))


def _scalar(dtype: types.Float) -> ir.Type:
    return ir.DoubleType() if dtype.bitwidth == 64 else ir.FloatType()


def _vector(kind: VectorType) -> ir.VectorType:
    return ir.VectorType(_scalar(kind.dtype), kind.lanes)


def _is_vectorisable(array: Any) -> bool:
    return isinstance(array, types.Array) and isinstance(array.dtype, types.Float)


def _address(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index], inbounds=True)


def _load_at(context: Any, builder: Any, kind: Any, array: Any, index: Any, lanes: int) -> Any:
    """An unaligned load of `lanes` consecutive elements of an array."""
    address = _address(context, builder, kind, array, index)
    element = context.get_data_type(kind.dtype)
    value = builder.load(builder.bitcast(address, ir.VectorType(element, lanes).as_pointer()))
    value.align = kind.dtype.bitwidth // 8
    return value


def _splat(builder: Any, value: Any, lanes: int) -> Any:
    kind = ir.VectorType(value.type, lanes)
    undefined = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes))


def _pointers(builder: Any, base: Any, offsets: Any, lanes: int, itemsize: int) -> Any:
    """The vector of addresses base + itemsize * offsets, for offsets a vector of 64-bit integers."""
    start = _splat(builder, builder.ptrtoint(base, _I64), lanes)
    scale = ir.Constant(ir.VectorType(_I64, lanes), [itemsize] * lanes)
    addresses = builder.add(start, builder.mul(offsets, scale))
    return builder.inttoptr(addresses, ir.VectorType(base.type, lanes))


def _gathers_in_hardware() -> bool:
    """Whether the gather instruction beats separate loads: not on AMD's Zen, by a factor of 1.35 (Zen 4)."""
    name = config.CPU_NAME or llvm.get_host_cpu_name()
    return not str(name).startswith("znver")


def _call_gather(builder: Any, start: Any, offsets: Any, vector: Any, itemsize: int) -> Any:
    """The vector of the elements at start + offsets; offsets as :func:`_offsets` gives them."""
    lanes, bits = vector.count, itemsize * 8
    if isinstance(offsets, list):
        result = ir.Constant(vector, ir.Undefined)
        for lane, offset in enumerate(offsets):
            element = builder.load(builder.gep(start, [offset], inbounds=True))
            result = builder.insert_element(result, element, ir.Constant(_I32, lane))
        return result
    pointers = _pointers(builder, start, offsets, lanes, itemsize)
    mask = ir.VectorType(_I1, lanes)
    signature = ir.FunctionType(vector, [pointers.type, _I32, mask, vector])
    function = cgutils.get_or_insert_function(
        builder.module, signature, f"llvm.masked.gather.v{lanes}f{bits}.v{lanes}p0"
    )
    return builder.call(
        function,
        [pointers, ir.Constant(_I32, itemsize), ir.Constant(mask, [1] * lanes), ir.Constant(vector, ir.Undefined)],
    )


def _offsets(context: Any, builder: Any, kind: Any, array: Any, index: Any, lanes: int, scale: int) -> Any:
    """scale * array[index + lane] for every lane, in 64 bits: a vector, or a list where gathers are separate loads."""
    if _gathers_in_hardware():
        numbers = _load_at(context, builder, kind, array, index, lanes)
        wide = ir.VectorType(_I64, lanes)
        offsets = numbers if numbers.type == wide else builder.zext(numbers, wide)
        return offsets if scale == 1 else builder.mul(offsets, ir.Constant(wide, [scale] * lanes))
    first = _address(context, builder, kind, array, index)
    result = []
    for lane in range(lanes):
        number = builder.load(builder.gep(first, [ir.Constant(_I64, lane)], inbounds=True))
        offset = number if number.type == _I64 else builder.zext(number, _I64)
        result.append(offset if scale == 1 else builder.mul(offset, ir.Constant(_I64, scale)))
    return result


def _call_scatter(builder: Any, value: Any, pointers: Any, mask: Any, itemsize: int) -> None:
    lanes, bits = value.type.count, itemsize * 8
    signature = ir.FunctionType(ir.VoidType(), [value.type, pointers.type, _I32, mask.type])
    function = cgutils.get_or_insert_function(
        builder.module, signature, f"llvm.masked.scatter.v{lanes}f{bits}.v{lanes}p0"
    )
    builder.call(function, [value, pointers, ir.Constant(_I32, itemsize), mask])


def _first_lanes(builder: Any, count: Any, lanes: int) -> Any:
    """The mask of the lanes below `count`."""
    numbers = ir.Constant(ir.VectorType(_I64, lanes), list(range(lanes)))
    return builder.icmp_unsigned("<", numbers, _splat(builder, count, lanes))


def _call_fma(builder: Any, a: Any, b: Any, c: Any, kind: VectorType) -> Any:
    vector = _vector(kind)
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(vector, [vector] * 3),
        f"llvm.fma.v{kind.lanes}f{kind.dtype.bitwidth}",
    )
    return builder.call(function, [a, b, c])


@intrinsic
def zero(typingctx: Any, like: Any) -> Any:
    """The zero vector of the element type of the array `like`."""
    if not _is_vectorisable(like):
        return None
    kind = VectorType(like.dtype)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(_vector(kind), [0.0] * kind.lanes)

    return kind(like), generate


@intrinsic
def load(typingctx: Any, array: Any, i: Any) -> Any:
    """array[i : i + lanes]."""
    if not _is_vectorisable(array):
        return None
    kind = VectorType(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _load_at(context, builder, signature.args[0], args[0], args[1], kind.lanes)

    return kind(array, types.uintp), generate


@intrinsic
def store(typingctx: Any, array: Any, i: Any, value: Any) -> Any:
    """array[i : i + lanes] = value."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature.args[0], args[0], args[1])
        instruction = builder.store(args[2], builder.bitcast(address, args[2].type.as_pointer()))
        instruction.align = signature.args[0].dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.uintp, value), generate


@intrinsic
def store_some(typingctx: Any, array: Any, i: Any, value: Any, count: Any) -> Any:
    """array[i : i + count] = value[:count], for count <= lanes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[2]
        address = _address(context, builder, signature.args[0], args[0], args[1])
        offsets = ir.Constant(ir.VectorType(_I64, kind.lanes), list(range(kind.lanes)))
        itemsize = kind.dtype.bitwidth // 8
        pointers = _pointers(builder, address, offsets, kind.lanes, itemsize)
        _call_scatter(builder, args[2], pointers, _first_lanes(builder, args[3], kind.lanes), itemsize)
        return context.get_dummy_value()

    return types.void(array, types.uintp, value, types.uintp), generate


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, lane by lane, rounded once."""
    if not isinstance(a, VectorType):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _call_fma(builder, args[0], args[1], args[2], signature.args[0])

    return a(a, a, a), generate


@intrinsic
def add(typingctx: Any, a: Any, b: Any) -> Any:
    """a + b, lane by lane."""
    if not isinstance(a, VectorType):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fadd(args[0], args[1])

    return a(a, a), generate


@intrinsic
def gather(typingctx: Any, x: Any, base: Any, index: Any, p: Any) -> Any:
    """x[base + index[p + lane]] for every lane."""
    if not _is_vectorisable(x):
        return None
    kind = VectorType(x.dtype)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        offsets = _offsets(context, builder, signature.args[2], args[2], args[3], kind.lanes, 1)
        start = _address(context, builder, signature.args[0], args[0], args[1])
        return _call_gather(builder, start, offsets, _vector(kind), kind.dtype.bitwidth // 8)

    return kind(x, types.uintp, index, types.uintp), generate


@intrinsic
def scatter(typingctx: Any, array: Any, base: Any, index: Any, p: Any, value: Any, count: Any) -> Any:
    """array[base + index[p + lane]] = value[lane] for the lanes below count (indices distinct)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[4]
        numbers = _load_at(context, builder, signature.args[2], args[2], args[3], kind.lanes)
        wide = ir.VectorType(_I64, kind.lanes)
        offsets = numbers if numbers.type == wide else builder.zext(numbers, wide)
        itemsize = kind.dtype.bitwidth // 8
        start = _address(context, builder, signature.args[0], args[0], args[1])
        pointers = _pointers(builder, start, offsets, kind.lanes, itemsize)
        _call_scatter(builder, args[4], pointers, _first_lanes(builder, args[5], kind.lanes), itemsize)
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
    """A tuple of zero vectors, as many as the tuple `shape` has elements."""
    if not _is_vectorisable(like) or not isinstance(shape, types.BaseTuple):
        return None
    kind = VectorType(like.dtype)
    result = types.UniTuple(kind, len(shape))

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        nothing = ir.Constant(_vector(kind), [0.0] * kind.lanes)
        return context.make_tuple(builder, result, [nothing] * len(shape))

    return result(like, shape), generate


@intrinsic
def fma_block(typingctx: Any, sums: Any, values: Any, p: Any, x: Any, base: Any, index: Any, q: Any) -> Any:
    """One block column step of block sliced ELL: sums[r] += values[p + (c m + r) lanes + lane] * x[base + m i + c].

    m = len(sums) is the block size, i = index[q + lane]; the m gathers of x share one index load.
    """
    if not isinstance(sums, types.UniTuple):
        return None
    kind, m = sums.dtype, len(sums)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        accumulators = cgutils.unpack_tuple(builder, args[0])
        offsets = _offsets(context, builder, signature.args[5], args[5], args[6], kind.lanes, m)
        start = _address(context, builder, signature.args[3], args[3], args[4])
        for c in range(m):
            column = builder.gep(start, [ir.Constant(_I64, c)])
            entries = _call_gather(builder, column, offsets, _vector(kind), kind.dtype.bitwidth // 8)
            for r in range(m):
                at = builder.add(args[2], ir.Constant(_I64, (c * m + r) * kind.lanes))
                value = _load_at(context, builder, signature.args[1], args[1], at, kind.lanes)
                accumulators[r] = _call_fma(builder, value, entries, accumulators[r], kind)
        return context.make_tuple(builder, signature.return_type, accumulators)

    return sums(sums, values, types.uintp, x, types.uintp, index, types.uintp), generate


@intrinsic
def scatter_block(typingctx: Any, array: Any, base: Any, sums: Any, count: Any) -> Any:
    """array[base + m lane + r] = sums[r][lane] for the lanes below count, m = len(sums)."""
    if not isinstance(sums, types.UniTuple):
        return None
    kind, m = sums.dtype, len(sums)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        itemsize = kind.dtype.bitwidth // 8
        offsets = ir.Constant(ir.VectorType(_I64, kind.lanes), [m * lane for lane in range(kind.lanes)])
        start = _address(context, builder, signature.args[0], args[0], args[1])
        mask = _first_lanes(builder, args[3], kind.lanes)
        for r, value in enumerate(cgutils.unpack_tuple(builder, args[2])):
            row = builder.gep(start, [ir.Constant(_I64, r)])
            pointers = _pointers(builder, row, offsets, kind.lanes, itemsize)
            _call_scatter(builder, value, pointers, mask, itemsize)
        return context.get_dummy_value()

    return types.void(array, types.uintp, sums, types.uintp), generate
