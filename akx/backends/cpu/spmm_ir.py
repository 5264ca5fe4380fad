"""The source of what :mod:`akx.backends.cpu.spmm` compiles: powers of four, eight or sixteen vectors at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["LANES", "Source"]

#: Vectors of a row.
LANES = 8


class Source:
    """The functions in LLVM's own language, by its builder: what is written here in Python is done by them.

    A number is one real, or two side by side; a `lane` is one number, a `row` eight, of four vectors four. Of sixteen
    vectors there are two rows for each row of A, which is a list of them therefore.
    """

    def __init__(self, number: np.dtype[Any], index: int, recurs: bool, lanes: int) -> None:
        from llvmlite import ir

        self.ir, self.recurs = ir, recurs
        self.lanes = min(lanes, LANES)
        self.halves = range(lanes // self.lanes)
        self.parts = 2 if number.kind == "c" else 1  # of a number
        self.octets = number.itemsize // self.parts
        self.real = ir.DoubleType() if self.octets == 8 else ir.FloatType()
        self.row, self.lane = (ir.VectorType(self.real, self.parts * count) for count in (self.lanes, 1))
        self.int, self.index = ir.IntType(64), ir.IntType(8 * index)
        self.module = ir.Module()

    def text(self) -> str:
        self.write("bring", 3, 2, self.bring)
        self.write("spread", 4, 3, self.spread)
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
        whole = self.do.and_(n, self.number(-self.lanes))

        def eight(i: Any) -> tuple[()]:
            for h in self.halves:
                of_half = columns[h * self.lanes : (h + 1) * self.lanes]
                rows = self.turned([self.load(self.row, column, i, of=self.lane) for column in of_half])
                for r, row in enumerate(rows):
                    self.store(row, x, self.half(self.do.add(i, self.number(r)), h))
            return ()

        def one(i: Any) -> tuple[()]:
            for h in self.halves:
                row = self.none()
                for q in range(self.lanes):
                    row = self.put(row, self.load(self.lane, columns[h * self.lanes + q], i), q)
                self.store(row, x, self.half(i, h))
            return ()

        self.loop(self.number(0), whole, eight, step=self.lanes)
        self.loop(whole, n, one)

    def spread(self, n: Any, vectors: Any, stride: Any, apart: Any, start: Any, v: Any, x: Any) -> None:
        """v (vectors, n).T = x = start (n, vectors), rows of which are `stride` bytes apart; x has 0 in other lanes."""
        columns, there = self.columns(vectors, apart, v), self.there(vectors)

        def rows(i: Any) -> list[Any]:
            begin = self.do.add(start, self.do.mul(i, stride))
            found = [self.load(self.row, begin, self.number(h), there=there[h]) for h in self.halves]
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
        """columns[q][i] = number q of rows(i), i < n; where columns are the same the first of them counts."""
        whole = self.do.and_(n, self.number(-self.lanes))

        def eight(i: Any) -> tuple[()]:
            made = [rows(self.do.add(i, self.number(r))) for r in range(self.lanes)]
            turned = [values for half in zip(*made, strict=True) for values in self.turned(list(half))]
            for column, values in reversed(list(zip(columns, turned, strict=True))):
                self.store(values, column, i, of=self.lane)
            return ()

        def one(i: Any) -> tuple[()]:
            values = rows(i)
            for q, column in reversed(list(enumerate(columns))):
                self.store(self.get(values[q // self.lanes], q % self.lanes), column, i)
            return ()

        self.loop(self.number(0), whole, eight, step=self.lanes)
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
        for q in range(self.lanes * len(self.halves)):
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
            signs = self.ir.Constant(self.row, [-1.0, 1.0] * self.lanes)
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
        for d in (one for one in (1, 2, 4) if one < self.lanes):
            first = [lane if not lane & d else self.lanes + lane - d for lane in range(self.lanes)]
            second = [lane + d if not lane & d else self.lanes + lane for lane in range(self.lanes)]
            turned = list(rows)
            for r in (r for r in range(self.lanes) if not r & d):
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

    def there(self, vectors: Any) -> list[Any]:
        """Which parts of the rows are of a vector."""
        numbers = self.ir.VectorType(self.int, self.row.count)
        count = self.do.insert_element(self.ir.Constant(numbers, self.ir.Undefined), vectors, self.place(0))
        zeros = self.ir.Constant(self.ir.VectorType(self.ir.IntType(32), self.row.count), None)
        counts = self.do.shuffle_vector(count, count, zeros)
        lanes = [[h * self.lanes + part // self.parts for part in range(self.row.count)] for h in self.halves]
        return [self.do.icmp_signed("<", self.ir.Constant(numbers, one), counts) for one in lanes]

    def load(self, kind: Any, address: Any, i: Any, of: Any = None, there: Any = None) -> Any:
        """Element i of an array, and others behind it where the array is `of` a smaller kind; of what is `there`."""
        place = self.do.inttoptr(self.element(of or kind, address, i), kind.as_pointer())
        if there is not None:
            name = f"llvm.masked.load.v{kind.count}f{8 * self.octets}.p0v{kind.count}f{8 * self.octets}"
            given = [place.type, self.ir.IntType(32), there.type, kind]
            kinds = self.ir.FunctionType(kind, given)
            load = self.module.globals.get(name) or self.ir.Function(self.module, kinds, name)
            return self.do.call(load, [place, self.place(self.octets), there, self.ir.Constant(kind, None)])
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
