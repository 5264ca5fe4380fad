"""Products of eight vectors at once, by machine code that LLVM makes without Numba, in a tenth of a second.

For rows i of A in CSR, X (n, 8) with the entries of the vectors side by side, and V (b, n), b <= 8, each contiguous:

    Y[i, :] = sum_p A.data[p] X[A.indices[p], :],   V[:, i] = Y[i, :b]

SciPy's product of blocks leaves Y alone, and to turn it afterwards takes as long as the product. Here eight rows are in
registers, and are turned there. Sums have the order that SciPy's have, and no multiply-add is contracted, so that each
vector has the bits that SciPy's product of it alone gives. A compiler may have contracted those of SciPy (GCC does on
aarch64), so that the bits of some rows are compared first; where they differ there is no machine code.

Memory moved for each row, in words: 3/2 and 8 read for each entry of A (the 8 from a near cache where the bandwidth of
A is small), 8 written to Y and b to V.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.device.forks import ForkSafeLock
from akx.operator.results import new_result, turn

__all__ = ["LANES", "block_code", "block_powers", "fits_blocks"]

#: Vectors at once.
LANES = 8
_TYPES = {np.dtype(np.float64): "double", np.dtype(np.float32): "float"}
_INDICES = {np.dtype(np.int32): "i32", np.dtype(np.int64): "i64"}
#: Multiplications of less than a tenth of a second.
_SHORT = 300_000_000
_LOCK = ForkSafeLock()
#: What machine code lives in, as long as the process.
_ENGINES: list[Any] = []


def fits_blocks(A: tuple[NDArray[Any], ...], dtype: np.dtype[Any]) -> bool:
    """Whether there is machine code for A = (indptr, indices, data) and vectors of a type, where there is LLVM."""
    indptr, indices, data = A
    if dtype not in _TYPES or data.dtype != dtype or indices.dtype not in _INDICES or indptr.dtype != indices.dtype:
        return False
    return all(array.flags.c_contiguous and array.flags.aligned for array in A)


def block_code(A: tuple[NDArray[Any], ...]) -> Any:
    """The machine code for arrays that :func:`fits_blocks` holds of; None without any that has SciPy's bits."""
    _, indices, data = A
    with _LOCK:
        return _compiled(data.dtype, indices.dtype)


def block_powers(code: Any, A: tuple[NDArray[Any], ...], powers: NDArray[Any]) -> None:
    """powers[1:] = A powers[0], A^2 powers[0], ..., (k+1, b, n) with b of 8 at most, each vector contiguous."""
    count, vectors, n = powers.shape
    pair = new_result((2, n, LANES), powers.dtype)
    pair[0, :, vectors:] = 0
    turn(powers[0], pair[0, :, :vectors])
    x, y = (array.ctypes.data for array in pair)
    of_A, out, (behind, apart, _) = [array.ctypes.data for array in A], powers.ctypes.data, powers.strides
    if A[1].size * LANES * (count - 1) < _SHORT:
        code(n, vectors, count - 1, apart, behind, *of_A, x, y, out + behind)
        return
    for j in range(1, count):  # Ctrl-C comes in between
        code(n, vectors, 1, apart, behind, *of_A, x, y, out + j * behind)
        x, y = y, x


@cache
def _compiled(number: np.dtype[Any], index: np.dtype[Any]) -> Any:
    """The machine code for types; None without LLVM, and where SciPy gives other bits."""
    try:
        return _made(number, index)
    except (ImportError, OSError, RuntimeError):  # RuntimeError: of an LLVM that reads another language
        return None


def _made(number: np.dtype[Any], index: np.dtype[Any]) -> Any:
    from llvmlite import binding as llvm

    for begin in ("initialize", "initialize_native_target", "initialize_native_asmprinter"):
        try:
            getattr(llvm, begin)()
        except RuntimeError:  # newer ones have begun by themselves
            continue
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    module = llvm.parse_assembly(_source(_TYPES[number], _INDICES[index]))
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _ENGINES.append(engine)
    kinds = [ctypes.c_int64] * 5 + [ctypes.c_void_p] * 6
    code = ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address("rows"))
    return code if _has_the_bits_of_scipy(code, number, index) else None


def _has_the_bits_of_scipy(code: Any, number: np.dtype[Any], index: np.dtype[Any]) -> bool:
    """Whether the products of some random rows, eight at a time and one at a time, have the bits of SciPy's."""
    rng, n = np.random.default_rng(0), 3 * LANES + 3
    A = sp.csr_array((n, n), dtype=number)
    A.indptr, A.indices = np.arange(0, n * n + 1, n, dtype=index), np.tile(np.arange(n, dtype=index), n)
    A.data = rng.uniform(-1, 1, n * n).astype(number)
    powers = np.zeros((2, LANES, n), dtype=number)
    powers[0] = rng.uniform(-1, 1, (LANES, n))
    block_powers(code, (A.indptr, A.indices, A.data), powers)
    return all(np.array_equal(A @ v, w) for v, w in zip(*powers, strict=True))


def _source(number: str, index: str) -> str:
    """The function for some powers: rows 0 .. n - 1, eight at a time, then one at a time.

    `apart` and `behind` are bytes from a vector to the next, and from a power to the next.
    """
    vector, size = f"<{LANES} x {number}>", 8 if number == "double" else 4
    widened = "bitcast i64 {0} to i64" if index == "i64" else "sext i32 {0} to i64"
    lines = [
        "define void @rows(i64 %n, i64 %b, i64 %powers, i64 %apart, i64 %behind,",
        "  ptr %indptr, ptr %indices, ptr %data, ptr %X.0, ptr %Y.0, ptr %V.0) {",
        "entry:",
        f"  %whole = and i64 %n, -{LANES}",
        "  br label %power",
        "power:",
        "  %done = phi i64 [1, %entry], [%done.next, %next]",
        "  %X = phi ptr [%X.0, %entry], [%Y, %next]",
        "  %Y = phi ptr [%Y.0, %entry], [%X, %next]",
        "  %V = phi ptr [%V.0, %entry], [%V.next, %next]",
        "  br label %eight",
        "eight:",
        "  %i = phi i64 [0, %power], [%i.next, %eight.done]",
        "  %more = icmp slt i64 %i, %whole",
        "  br i1 %more, label %row0.begin, label %one",
    ]
    for r in range(LANES):
        after = f"row{r + 1}.begin" if r + 1 < LANES else "turned"
        lines += [
            f"row{r}.begin:",
            f"  %i{r} = add i64 %i, {r}",
            *_row(f"{r}", vector, index, number, size, widened, after),
        ]
    rows = [f"%s{r}" for r in range(LANES)]
    lines.append("turned:")
    for d in (1, 2, 4):
        turned = list(rows)
        for r in range(LANES):
            if r & d:
                continue
            first = [lane if not lane & d else LANES + lane - d for lane in range(LANES)]
            second = [lane + d if not lane & d else LANES + lane for lane in range(LANES)]
            for place, picks in ((r, first), (r + d, second)):
                name = f"%t{d}.{place}"
                mask = ", ".join(f"i32 {pick}" for pick in picks)
                lines.append(f"  {name} = shufflevector {vector} {rows[r]}, {vector} {rows[r + d]}, <8 x i32> <{mask}>")
                turned[place] = name
        rows = turned
    lines += [f"  %column = getelementptr {number}, ptr %V, i64 %i", "  br label %put0"]
    for q in range(LANES):
        after = f"put{q + 1}" if q + 1 < LANES else "eight.done"
        lines += [
            f"put{q}:",
            f"  %is{q} = icmp slt i64 {q}, %b",
            f"  br i1 %is{q}, label %do{q}, label %eight.done",
            f"do{q}:",
            f"  %o{q} = mul i64 %apart, {q}",
            f"  %a{q} = getelementptr i8, ptr %column, i64 %o{q}",
            f"  store {vector} {rows[q]}, ptr %a{q}, align {size}",
            f"  br label %{after}",
        ]
    lines += [
        "eight.done:",
        f"  %i.next = add i64 %i, {LANES}",
        "  br label %eight",
        "one:",
        "  %j = phi i64 [%whole, %eight], [%j.next, %one.done]",
        "  %left = icmp slt i64 %j, %n",
        "  br i1 %left, label %rowx.begin, label %next",
        "rowx.begin:",
        "  %ix = add i64 %j, 0",
        *_row("x", vector, index, number, size, widened, "last"),
        "last:",
        "  %place = getelementptr " + number + ", ptr %V, i64 %j",
        "  br label %lane",
        "lane:",
        "  %q = phi i64 [0, %last], [%q.next, %lane]",
        f"  %entry.q = extractelement {vector} %sx, i64 %q",
        "  %offset = mul i64 %apart, %q",
        "  %at = getelementptr i8, ptr %place, i64 %offset",
        f"  store {number} %entry.q, ptr %at, align {size}",
        "  %q.next = add i64 %q, 1",
        "  %lanes = icmp slt i64 %q.next, %b",
        "  br i1 %lanes, label %lane, label %one.done",
        "one.done:",
        "  %j.next = add i64 %j, 1",
        "  br label %one",
        "next:",
        "  %V.next = getelementptr i8, ptr %V, i64 %behind",
        "  %done.next = add i64 %done, 1",
        "  %goes_on = icmp slt i64 %done, %powers",
        "  br i1 %goes_on, label %power, label %end",
        "end:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _row(r: str, vector: str, index: str, number: str, size: int, widened: str, after: str) -> list[str]:
    """%sR = row %iR of A times X, also in Y."""
    octets = 8 if index == "i64" else 4
    return [
        f"  %pp{r} = getelementptr {index}, ptr %indptr, i64 %i{r}",
        f"  %pq{r} = getelementptr {index}, ptr %pp{r}, i64 1",
        f"  %p{r}.n = load {index}, ptr %pp{r}, align {octets}",
        f"  %e{r}.n = load {index}, ptr %pq{r}, align {octets}",
        f"  %p{r} = {widened.format(f'%p{r}.n')}",
        f"  %e{r} = {widened.format(f'%e{r}.n')}",
        f"  br label %row{r}.loop",
        f"row{r}.loop:",
        f"  %k{r} = phi i64 [%p{r}, %row{r}.begin], [%k{r}.next, %row{r}.body]",
        f"  %s{r} = phi {vector} [zeroinitializer, %row{r}.begin], [%s{r}.next, %row{r}.body]",
        f"  %go{r} = icmp slt i64 %k{r}, %e{r}",
        f"  br i1 %go{r}, label %row{r}.body, label %row{r}.end",
        f"row{r}.body:",
        f"  %da{r} = getelementptr {number}, ptr %data, i64 %k{r}",
        f"  %d{r} = load {number}, ptr %da{r}, align {size}",
        f"  %ca{r} = getelementptr {index}, ptr %indices, i64 %k{r}",
        f"  %c{r}.n = load {index}, ptr %ca{r}, align {octets}",
        f"  %c{r} = {widened.format(f'%c{r}.n')}",
        f"  %xa{r} = getelementptr {vector}, ptr %X, i64 %c{r}",
        f"  %x{r} = load {vector}, ptr %xa{r}, align {size}",
        f"  %d{r}.1 = insertelement {vector} poison, {number} %d{r}, i32 0",
        f"  %d{r}.8 = shufflevector {vector} %d{r}.1, {vector} poison, <{LANES} x i32> zeroinitializer",
        f"  %m{r} = fmul {vector} %d{r}.8, %x{r}",
        f"  %s{r}.next = fadd {vector} %s{r}, %m{r}",
        f"  %k{r}.next = add i64 %k{r}, 1",
        f"  br label %row{r}.loop",
        f"row{r}.end:",
        f"  %ya{r} = getelementptr {vector}, ptr %Y, i64 %i{r}",
        f"  store {vector} %s{r}, ptr %ya{r}, align {size}",
        f"  br label %{after}",
    ]
