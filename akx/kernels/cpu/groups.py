"""Powers of eight vectors at once, or sixteen, by machine code that LLVM makes without Numba, in a tenth of a second.

For rows i of A in CSR, X (n, 8) with the entries of the vectors side by side, and W (b, n), b <= 8, each contiguous:

    Y[i, :] = a sum_p A.data[p] X[A.indices[p], :] + b X[i, :] + c Z[i, :],   W[:, i] = Y[i, :b]

where Z is X of the power before, whose place Y takes. Without a basis it is the sum alone. Products of blocks as others
have them leave Y alone, and to turn it afterwards takes as long as the product. Here eight rows are in registers, and
are turned there. Of sixteen vectors, two sums go along a row of A. Lanes without a vector do what the last one does.

Sums have the order that SciPy's have, and no multiply-add is contracted, so that each vector has the bits that SciPy's
product of it alone gives. A compiler may have contracted those of SciPy (GCC does on aarch64), so that the bits of some
rows are compared first: :func:`group_code` tells.

Memory moved for each row, in words: 3/2 and 8 read for each entry of A (the 8 from a near cache where the bandwidth of
A is small), 8 written to Y and b to W.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.device.forks import ForkSafeLock
from akx.device.results import turn

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

#: Vectors at once, and from how many on that pays.
LANES, LEAST = 8, 3
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

    Attributes
    ----------
    bring, spread, steps : callable
        Put vectors side by side; put them apart as well, of which the entries were side by side; do powers of them.
    lanes : int
        Vectors of a group.
    is_exact : bool
        Whether the bits are those of SciPy's product.
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
    """The machine code for arrays that :func:`fits_groups` holds of, 8 or 16 lanes; None without LLVM."""
    _, indices, data = A
    with _LOCK:
        return _compiled(data.dtype, indices.itemsize, recurs, lanes)


def lanes_for(entries: int, rows: int, vectors: int, threads: int) -> int:
    """Vectors of a group, where threads share the groups: sixteen where every thread has more than eight.

    Two sums at a time take little longer than one, which waits for each addition; not so where rows are short.
    """
    return 2 * LANES if vectors > LANES * threads and entries >= _LONG * rows else LANES


def group_powers(
    code: Code,
    A: Arrays,
    powers: NDArray[Any],
    work: NDArray[Any],
    coefficients: NDArray[Any] | None = None,
    start: NDArray[Any] | None = None,
) -> None:
    """powers[1:] from powers[0], (k+1, b, n), each vector contiguous, as many as `code` has lanes at most.

    work (work_size,) is scratch. coefficients are as :func:`coefficient_rows` has them; `code` is then what recurs.
    Where start (b, n) is given, in any order in memory, powers[0] becomes that first; vectors in the columns of an
    array in C order are read once.
    """
    count, vectors, n = powers.shape
    behind, apart, _ = powers.strides
    skipped = -work.ctypes.data % _LINE // work.itemsize  # a row of eight numbers lies in as few cache lines as it can
    pair = work[skipped : skipped + 2 * n * code.lanes].reshape(2, n, code.lanes)
    of_A, (x, y) = [array.ctypes.data for array in A], [array.ctypes.data for array in pair]
    out, factors, size = powers.ctypes.data, 0, 0
    if coefficients is not None:
        pair[1] = 0
        factors, size = coefficients.ctypes.data, coefficients.strides[0]
    if start is not None and _is_side_by_side(start, powers, code.lanes):
        code.spread(n, start.strides[1], apart, start.ctypes.data, out, x)
    else:
        if start is not None and start.ctypes.data != out:
            turn(start.T, powers[0])
        code.bring(n, vectors, apart, out, x)
    at_once = count - 1 if A[1].size * LANES * (count - 1) < _SHORT else 1  # Ctrl-C comes in between
    for j in range(0, count - 1, at_once):
        last = count - 2 - j
        code.steps(n, vectors, at_once, last, apart, behind, *of_A, x, y, out + (j + 1) * behind, factors + j * size)
        x, y = y, x


def _is_side_by_side(start: NDArray[Any], powers: NDArray[Any], lanes: int) -> bool:
    """Whether the entries of a whole group are, and of the type of powers."""
    is_whole = start.shape[0] == lanes and start.strides[0] == start.itemsize
    return is_whole and start.dtype == powers.dtype and start.flags.aligned


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
    module = llvm.parse_assembly(_Source(number, index, recurs, lanes // LANES).text())
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _ENGINES.append(engine)

    def function(name: str, numbers: int, arrays: int) -> Any:
        kinds = [ctypes.c_int64] * numbers + [ctypes.c_void_p] * arrays
        return ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address(name))

    code = Code(function("bring", 3, 2), function("spread", 3, 3), function("steps", 6, 7), lanes, is_exact=True)
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


class _Source:
    """The functions in LLVM's own language, by its builder: what is written here in Python is done by them.

    A number is one real, or two side by side; a `lane` is one number, a `row` eight. Of sixteen vectors there are two
    rows for each row of A, which is a list of them therefore.
    """

    def __init__(self, number: np.dtype[Any], index: int, recurs: bool, halves: int) -> None:
        from llvmlite import ir

        self.ir, self.recurs, self.halves = ir, recurs, range(halves)
        self.parts = 2 if number.kind == "c" else 1  # of a number
        self.octets = number.itemsize // self.parts
        self.real = ir.DoubleType() if self.octets == 8 else ir.FloatType()
        self.row, self.lane = (ir.VectorType(self.real, self.parts * count) for count in (LANES, 1))
        self.int, self.index = ir.IntType(64), ir.IntType(8 * index)
        self.module = ir.Module()

    def text(self) -> str:
        self.write("bring", 3, 2, self.bring)
        self.write("spread", 3, 3, self.spread)
        self.write("steps", 6, 7, self.steps)
        return str(self.module)

    def write(self, name: str, numbers: int, arrays: int, body: Callable[..., None]) -> None:
        """A function of 64-bit numbers and addresses, which are such numbers too."""
        kind = self.ir.FunctionType(self.ir.VoidType(), [self.int] * (numbers + arrays))
        function = self.ir.Function(self.module, kind, name)
        self.do = self.ir.IRBuilder(function.append_basic_block())
        body(*function.args)
        self.do.ret_void()

    def bring(self, n: Any, vectors: Any, apart: Any, v: Any, x: Any) -> None:
        """x (n, lanes) = v (vectors, n).T"""
        columns = self.columns(vectors, apart, v)
        whole = self.do.and_(n, self.number(-LANES))

        def eight(i: Any) -> tuple[()]:
            for h in self.halves:
                of_half = columns[h * LANES : (h + 1) * LANES]
                rows = self.turned([self.load(self.row, column, i, of=self.lane) for column in of_half])
                for r, row in enumerate(rows):
                    self.store(row, x, self.half(self.do.add(i, self.number(r)), h))
            return ()

        def one(i: Any) -> tuple[()]:
            for h in self.halves:
                row = self.none()
                for q in range(LANES):
                    row = self.put(row, self.load(self.lane, columns[h * LANES + q], i), q)
                self.store(row, x, self.half(i, h))
            return ()

        self.loop(self.number(0), whole, eight, step=LANES)
        self.loop(whole, n, one)

    def spread(self, n: Any, stride: Any, apart: Any, start: Any, v: Any, x: Any) -> None:
        """v (lanes, n).T = x (n, lanes) = start (n, lanes), rows of which are `stride` bytes apart."""
        columns = self.columns(self.number(LANES * len(self.halves)), apart, v)

        def rows(i: Any) -> list[Any]:
            begin = self.do.add(start, self.do.mul(i, stride))
            found = [self.load(self.row, begin, self.number(h)) for h in self.halves]
            self.store_all(found, x, i)
            return found

        self.fill(columns, n, rows)

    def steps(
        self, n: Any, vectors: Any, count: Any, last: Any, apart: Any, behind: Any,
        indptr: Any, indices: Any, data: Any, x: Any, y: Any, v: Any, factors: Any,
    ) -> None:  # fmt: skip
        """`count` powers of x, (n, lanes), into x and y by turns, and into v (count, vectors, n).

        No other power is made from number `last`, which leaves all of x and y but a row of it as they are.
        """

        def power(j: Any, x: Any, y: Any, v: Any) -> tuple[Any, ...]:
            here = self.do.mul(j, self.number(3))
            basis = [self.element(self.lane, factors, self.do.add(here, self.number(q))) for q in range(3)]
            a, b, c = (self.factor(address) for address in basis) if self.recurs else ((), (), ())
            is_needed = self.do.icmp_signed("<", j, last)

            def rows(i: Any) -> list[Any]:
                def add(p: Any, *totals: Any) -> tuple[Any, ...]:
                    entries = self.load_all(x, self.load_index(indices, p))
                    factor = self.factor(self.element(self.lane, data, p))
                    return tuple(
                        self.do.fadd(total, self.times(factor, one)) for total, one in zip(totals, entries, strict=True)
                    )

                first, end = self.load_index(indptr, i), self.load_index(indptr, self.do.add(i, self.number(1)))
                totals = self.loop(first, end, add, *(self.ir.Constant(self.row, None) for _ in self.halves))
                if self.recurs:
                    totals = tuple(self.times(a, total) for total in totals)
                    for factor, of in ((b, x), (c, y)):
                        more = [self.times(factor, one) for one in self.load_all(of, i)]
                        totals = tuple(map(self.do.fadd, totals, more))
                self.store_all(totals, y, self.do.select(is_needed, i, self.number(0)))
                return list(totals)

            self.fill(self.columns(vectors, apart, v), n, rows)
            return y, x, self.do.add(v, behind)

        self.loop(self.number(0), count, power, x, y, v)

    # -------------------------------------------------------------------------------------------- what these are of

    def fill(self, columns: list[Any], n: Any, rows: Callable[[Any], list[Any]]) -> None:
        """columns[q][i] = number q of rows(i), i < n"""
        whole = self.do.and_(n, self.number(-LANES))

        def eight(i: Any) -> tuple[()]:
            made = [rows(self.do.add(i, self.number(r))) for r in range(LANES)]
            turned = [values for half in zip(*made, strict=True) for values in self.turned(list(half))]
            for column, values in zip(columns, turned, strict=True):
                self.store(values, column, i, of=self.lane)
            return ()

        def one(i: Any) -> tuple[()]:
            values = rows(i)
            for q, column in enumerate(columns):
                self.store(self.get(values[q // LANES], q % LANES), column, i)
            return ()

        self.loop(self.number(0), whole, eight, step=LANES)
        self.loop(whole, n, one)

    def half(self, i: Any, h: int) -> Any:
        """Which row of an array the half of row i is."""
        return self.do.add(self.do.mul(i, self.number(len(self.halves))), self.number(h))

    def load_all(self, address: Any, i: Any) -> list[Any]:
        return [self.load(self.row, address, self.half(i, h)) for h in self.halves]

    def store_all(self, rows: Sequence[Any], address: Any, i: Any) -> None:
        for h, row in enumerate(rows):
            self.store(row, address, self.half(i, h))

    def columns(self, vectors: Any, apart: Any, v: Any) -> list[Any]:
        """Where the vectors of a group are, of which the last one stands for those that are missing."""
        last = self.do.sub(vectors, self.number(1))
        found = []
        for q in range(LANES * len(self.halves)):
            is_there = self.do.icmp_signed("<", self.number(q), last)
            place = self.do.select(is_there, self.number(q), last)
            found.append(self.do.add(v, self.do.mul(apart, place)))
        return found

    def factor(self, address: Any) -> tuple[Any, ...]:
        """A number in all lanes; of a complex one the real part, and the imaginary one with the signs of a product."""
        parts = [self.load(self.real, address, self.number(part)) for part in range(self.parts)]
        firsts = [self.do.insert_element(self.none(), one, self.place(0)) for one in parts]
        splats = [self.shuffled(one, [0] * self.row.count) for one in firsts]
        if self.parts == 2:
            signs = self.ir.Constant(self.row, [-1.0, 1.0] * LANES)
            splats[1] = self.do.fmul(splats[1], signs)
        return tuple(splats)

    def times(self, factor: Sequence[Any], row: Any) -> Any:
        """factor times row: (f r - g s, f s + g r) where factor = f + i g and row = r + i s."""
        product = self.do.fmul(factor[0], row)
        if self.parts == 2:
            swapped = self.shuffled(row, [place ^ 1 for place in range(self.row.count)])
            product = self.do.fadd(product, self.do.fmul(factor[1], swapped))
        return product

    def turned(self, rows: list[Any]) -> list[Any]:
        """Row q of what comes back has lane q of each row."""
        for d in (1, 2, 4):
            first = [lane if not lane & d else LANES + lane - d for lane in range(LANES)]
            second = [lane + d if not lane & d else LANES + lane for lane in range(LANES)]
            turned = list(rows)
            for r in (r for r in range(LANES) if not r & d):
                for place, picks in ((r, first), (r + d, second)):
                    lanes = [self.parts * pick + part for pick in picks for part in range(self.parts)]
                    turned[place] = self.shuffled(rows[r], lanes, rows[r + d])
            rows = turned
        return rows

    def loop(self, first: Any, last: Any, body: Callable[..., Any], *carried: Any, step: int = 1) -> tuple[Any, ...]:
        """carried = body(i, *carried) for i in range(first, last, step)"""
        do, before = self.do, self.do.block
        head, inside, after = (do.append_basic_block() for _ in range(3))
        do.branch(head)
        do.position_at_end(head)
        i, *values = (do.phi(one.type) for one in (first, *carried))
        do.cbranch(do.icmp_signed("<", i, last), inside, after)
        do.position_at_end(inside)
        new = body(i, *values)
        new = (do.add(i, self.number(step)), *new)
        for phi, begin, again in zip((i, *values), (first, *carried), new, strict=True):
            phi.add_incoming(begin, before)
            phi.add_incoming(again, do.block)
        do.branch(head)
        do.position_at_end(after)
        return tuple(values)

    def number(self, value: int) -> Any:
        return self.ir.Constant(self.int, value)

    def none(self) -> Any:
        return self.ir.Constant(self.row, self.ir.Undefined)

    def shuffled(self, row: Any, lanes: Sequence[int], other: Any = None) -> Any:
        mask = self.ir.Constant(self.ir.VectorType(self.ir.IntType(32), len(lanes)), list(lanes))
        return self.do.shuffle_vector(row, self.none() if other is None else other, mask)

    def element(self, kind: Any, address: Any, i: Any) -> Any:
        """The address of element i of an array."""
        size = self.octets * getattr(kind, "count", 1) if kind is not self.index else kind.width // 8
        return self.do.add(address, self.do.mul(i, self.number(size)))

    def load(self, kind: Any, address: Any, i: Any, of: Any = None) -> Any:
        """Element i of an array, and others behind it where the array is `of` a smaller kind."""
        place = self.do.inttoptr(self.element(of or kind, address, i), kind.as_pointer())
        return self.do.load(place, align=self.octets if kind is not self.index else kind.width // 8)

    def load_index(self, address: Any, i: Any) -> Any:
        found = self.load(self.index, address, i)
        return found if self.index.width == 64 else self.do.zext(found, self.int)

    def store(self, value: Any, address: Any, i: Any, of: Any = None) -> None:
        """Element i of an array becomes a value, and others behind it where the array is `of` a smaller kind."""
        place = self.do.inttoptr(self.element(of or value.type, address, i), value.type.as_pointer())
        self.do.store(value, place, align=self.octets)

    def get(self, row: Any, q: int) -> Any:
        """Number q."""
        return self.shuffled(row, [self.parts * q + part for part in range(self.parts)])

    def put(self, row: Any, number: Any, q: int) -> Any:
        """The row with another number q."""
        for part in range(self.parts):
            one = self.do.extract_element(number, self.place(part))
            row = self.do.insert_element(row, one, self.place(self.parts * q + part))
        return row

    def place(self, lane: int) -> Any:
        return self.ir.Constant(self.ir.IntType(32), lane)
