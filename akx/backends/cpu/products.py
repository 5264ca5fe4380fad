"""y = A x for a range of rows of one block, one loop per layout: what every CPU schedule is made of.

``product(m, w, x, y, first, last, shift, soon, lines)`` makes rows first <= i < last of the matrix `m`; `first` is a
multiple of the format's `align`, `last` too or the number of rows. All vectors lie in one flat array `w`: entry j of x
is w[x + j], entry i of y goes to w[y + i - shift]. (Slicing an array costs compiled code some 50 ns of reference
counting, which a task of half a microsecond would feel.) Columns and rows of a matrix of stacked local blocks are
numbered within the block, whose first row is `shift`; else shift is 0. While a unit (chunk, slice) is done, `lines`
cache lines of the values from slot `soon` on are asked for: a wavefront's next block comes from memory while the block
at hand is computed with.

All but real CSR goes through short vectors (:mod:`akx.backends.cpu.simd`), of real or of complex entries. Which loop is
compiled is decided by the class of `m` and the type of its values, at compile time; the loops are those of
:mod:`akx.backends.cpu.variants`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from akx.backends.cpu.variants import by_arrays  # before Numba, which it imports sooner

# isort: split
import numpy as np
from numba import types
from numba.extending import overload

__all__ = ["combine", "product", "slots"]

#: Nothing but compiled code calls them: no code for calls from C; Numba makes none for Python.
_ALONE = {"no_cfunc_wrapper": True}


def product(m: Any, w: Any, x: Any, y: Any, first: Any, last: Any, shift: Any, soon: Any, lines: Any) -> None:
    """w[y + i - shift] = (A x)[i] for first <= i < last; compiled code only."""
    raise NotImplementedError("product is for compiled code")


def slots(m: Any, row: Any) -> Any:
    """The slot of the values where the unit of `row` begins; compiled code only."""
    raise NotImplementedError("slots is for compiled code")


def combine(w: Any, x: Any, before: Any, y: Any, count: Any, a: Any, b: Any, c: Any) -> None:
    """y = a y + b x + c before, `count` entries of each from w[y], w[x], w[before] on: the basis recurrence."""
    raise NotImplementedError("combine is for compiled code")


@overload(product, jit_options=_ALONE)
def _product(
    m: Any, w: Any, x: Any, y: Any, first: Any, last: Any, shift: Any, soon: Any, lines: Any
) -> Callable[..., None] | None:
    layout = by_arrays(m.instance_class) if isinstance(m, types.NamedTuple) else None
    if layout is None:
        return None
    is_complex = isinstance(m.types[m.fields.index("values")].dtype, types.Complex)
    return layout.loop_of_complex if is_complex and layout.loop_of_complex is not None else layout.loop


@overload(slots, jit_options=_ALONE)
def _slots(m: Any, row: Any) -> Callable[..., Any] | None:
    layout = by_arrays(m.instance_class) if isinstance(m, types.NamedTuple) else None
    return None if layout is None else layout.slot_of


@overload(combine, jit_options=_ALONE)
def _combine(w: Any, x: Any, before: Any, y: Any, count: Any, a: Any, b: Any, c: Any) -> Callable[..., None]:
    def loop(w: Any, x: Any, before: Any, y: Any, count: Any, a: Any, b: Any, c: Any) -> None:
        u, v, t = np.uintp(x), np.uintp(y), np.uintp(before)
        if c != 0:
            for i in range(np.uintp(count)):
                w[v + i] = a * w[v + i] + b * w[u + i] + c * w[t + i]
        elif b != 0:
            for i in range(np.uintp(count)):
                w[v + i] = a * w[v + i] + b * w[u + i]
        elif a != 1:
            for i in range(np.uintp(count)):
                w[v + i] = a * w[v + i]

    return loop
