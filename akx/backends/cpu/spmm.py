"""Powers of four, eight or sixteen vectors at once, by machine code of LLVM without Numba, made in a tenth of a second.

For rows i of A in CSR, X (n, 8) with the entries of the vectors side by side, and W (b, n), b <= 8, each contiguous:

    Y[i, :] = a sum_p A.data[p] X[A.indices[p], :] + b X[i, :] + c Z[i, :],   W[:, i] = Y[i, :b]

where Z is X of the power before, whose place Y takes. Without a basis it is the sum alone. Products of blocks as others
have them leave Y alone, and to turn it afterwards takes as long as the product. Here eight rows are in registers, and
are turned there. Of sixteen vectors, two sums go along a row of A; of four, all is half as wide. What is in lanes
without a vector does not matter.

Sums have the order that SciPy's have, and no multiply-add is contracted, so that each vector has the bits that SciPy's
product of it alone gives. A compiler may have contracted those of SciPy (GCC does on aarch64), so that the bits of some
rows are compared first: :func:`group_code` tells.

Memory moved for each row, in words: 3/2 and 8 read for each entry of A (the 8 from a near cache where the bandwidth of
A is small), 8 written to Y and b to W.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.backends.cpu.spmm_ir import LANES, Source
from akx.backends.result_pool import turn
from akx.core.fork_safety import ForkSafeLock

__all__ = [
    "LANES",
    "LEAST",
    "Code",
    "coefficient_rows",
    "fits_groups",
    "group_code",
    "group_powers",
    "lanes_for",
    "work_size",
]

#: Start vectors from which groups pay.
LEAST = 3
#: Entries of a row from which sixteen at once are faster (4 to 60 entries a row, one core of 2023): 1.4 to 2.2 times.
_LONG = 8
#: Bytes of a cache line.
_LINE = 64
_NUMBERS = tuple(np.dtype(t) for t in (np.float32, np.float64, np.complex64, np.complex128))
_INDICES = (4, 8)
#: Multiplications of less than a tenth of a second.
_SHORT = 300_000_000
_LOCK = ForkSafeLock()
#: What machine code lives in, as long as the process.
_ENGINES: list[Any] = []

Arrays = tuple[NDArray[Any], ...]


class Code(NamedTuple):
    """Machine code for numbers and indices of a type.

    `bring`, `spread`, `steps`: put vectors side by side; put them apart as well, of which the entries were side by
    side; do powers of them. `lanes`: vectors of a group. `is_exact`: whether the bits are those of SciPy's product.
    """

    bring: Any
    spread: Any
    steps: Any
    lanes: int
    is_exact: bool


def fits_groups(A: Arrays, dtype: np.dtype[Any]) -> bool:
    """Whether there is machine code for A = (indptr, indices, data) and vectors of a type, where there is LLVM."""
    indptr, indices, data = A
    if dtype not in _NUMBERS or data.dtype != dtype or indices.itemsize not in _INDICES:
        return False
    return indptr.dtype == indices.dtype and all(array.flags.c_contiguous and array.flags.aligned for array in A)


def group_code(A: Arrays, *, recurs: bool = False, lanes: int = LANES) -> Code | None:
    """The machine code for arrays that :func:`fits_groups` holds of, 4, 8 or 16 lanes; None without LLVM."""
    _, indices, data = A
    with _LOCK:
        return _compiled(data.dtype, indices.itemsize, recurs, lanes)


def lanes_for(entries: int, rows: int, vectors: int, threads: int) -> int:
    """Vectors of a group, where threads share the groups: four where there are no more, sixteen where every thread has
    more than eight.

    Two sums at a time take little longer than one, which waits for each addition; not so where rows are short.
    """
    if vectors <= LANES // 2:
        return LANES // 2
    return 2 * LANES if vectors > LANES * threads and entries >= _LONG * rows else LANES


def group_powers(
    code: Code,
    A: Arrays,
    powers: NDArray[Any],
    work: NDArray[Any],
    coefficients: NDArray[Any] | None = None,
    start: NDArray[Any] | None = None,
) -> None:
    """powers[1:] from powers[0], (k+1, b, n), each vector contiguous, as many at a time as `code` has lanes.

    work (work_size,) is scratch. coefficients are as :func:`coefficient_rows` has them; `code` is then what recurs.
    Where start (b, n) is given, in any order in memory, powers[0] becomes that first; vectors in the columns of an
    array in C order are read once.
    """
    count, vectors, n = powers.shape
    behind, apart, _ = powers.strides
    of_A, begin, out = [array.ctypes.data for array in A], work.ctypes.data, powers.ctypes.data
    skipped = -begin % _LINE // work.itemsize  # a row of eight numbers lies in as few cache lines as it can
    pair = begin + skipped * work.itemsize, begin + (skipped + n * code.lanes) * work.itemsize
    factors, size = (0, 0) if coefficients is None else (coefficients.ctypes.data, coefficients.strides[0])
    where = 0
    if start is not None and _is_side_by_side(start, powers):
        where = start.ctypes.data
    elif start is not None and start.ctypes.data != out:
        turn(start.T, powers[0])
    at_once = count - 1 if A[1].size * LANES * (count - 1) < _SHORT else 1  # Ctrl-C comes in between
    for first in range(0, vectors, code.lanes):
        (x, y), some, to = pair, min(vectors - first, code.lanes), out + first * apart
        if coefficients is not None:
            work[skipped + n * code.lanes : skipped + 2 * n * code.lanes] = 0
        if start is not None and where:
            code.spread(n, some, start.strides[1], apart, where + first * start.itemsize, to, x)
        else:
            code.bring(n, some, apart, to, x)
        for j in range(0, count - 1, at_once):
            last = count - 2 - j
            code.steps(n, some, at_once, last, apart, behind, *of_A, x, y, to + (j + 1) * behind, factors + j * size)
            x, y = y, x


def _is_side_by_side(start: NDArray[Any], powers: NDArray[Any]) -> bool:
    """Whether the entries of a row are, and of the type of powers."""
    return start.strides[0] == start.itemsize and start.dtype == powers.dtype and start.flags.aligned


def work_size(n: int, dtype: np.dtype[Any], lanes: int = LANES) -> int:
    """Numbers of scratch for a group of vectors (n,)."""
    return 2 * n * lanes + _LINE // dtype.itemsize


def coefficient_rows(basis: Any, k: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """(k, 3): a, b, c of each power, c of the first 0, of a basis or of coefficients."""
    rows = np.stack([np.asarray(one)[:k].astype(dtype) for one in (basis.a, basis.b, basis.c)], axis=1)
    rows[0, 2] = 0
    return np.ascontiguousarray(rows)


@cache
def _compiled(number: np.dtype[Any], index: int, recurs: bool, lanes: int) -> Code | None:
    """The machine code for types; None without LLVM."""
    try:
        return _made(number, index, recurs, lanes)
    except (ImportError, OSError, RuntimeError):  # RuntimeError: of an LLVM that reads another language
        return None


def _made(number: np.dtype[Any], index: int, recurs: bool, lanes: int) -> Code:
    from llvmlite import binding as llvm

    for begin in ("initialize", "initialize_native_target", "initialize_native_asmprinter"):
        try:
            getattr(llvm, begin)()
        except RuntimeError:  # newer ones have begun by themselves
            continue
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    module = llvm.parse_assembly(Source(number, index, recurs, lanes).text())
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _ENGINES.append(engine)

    def function(name: str, numbers: int, arrays: int) -> Any:
        kinds = [ctypes.c_int64] * numbers + [ctypes.c_void_p] * arrays
        return ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address(name))

    code = Code(function("bring", 3, 2), function("spread", 4, 3), function("steps", 6, 7), lanes, is_exact=True)
    return code._replace(is_exact=_has_the_bits_of_scipy(code, number, index, recurs))


def _has_the_bits_of_scipy(code: Code, number: np.dtype[Any], index: int, recurs: bool) -> bool:
    """Whether the products of some random rows, eight at a time and one at a time, have the bits of SciPy's."""
    rng, n = np.random.default_rng(0), 3 * LANES + 3

    def some(*shape: int) -> NDArray[Any]:
        numbers = rng.uniform(-1, 1, shape) + (1j * rng.uniform(-1, 1, shape) if number.kind == "c" else 0)
        return numbers.astype(number)

    A = sp.csr_array((n, n), dtype=number)
    A.indptr, A.indices = (array.astype(f"i{index}") for array in (np.arange(0, n * n + 1, n), np.arange(n * n) % n))
    A.data, powers = some(n * n), np.zeros((2, code.lanes, n), dtype=number)
    powers[0] = some(code.lanes, n)
    plain = np.array([[1, 0, 0]], dtype=number) if recurs else None
    work = np.empty(work_size(n, number, code.lanes), dtype=number)
    group_powers(code, (A.indptr, A.indices, A.data), powers, work, plain)
    return all(np.array_equal(A @ v, w) for v, w in zip(*powers, strict=True))
