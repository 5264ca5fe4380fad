"""`Layout`, the base class of CPU variants; each module beside has one, with its compiled loops.

``loop(m, w, x, y, first, last, shift, soon, lines)`` makes rows first <= i < last of the matrix laid out as `m`
(:mod:`akx.backends.cpu.products` says what the others are; `soon` and `lines` may be ignored, as `csr` does).
``slot_of(m, row)`` is the slot where the values of the first unit (chunk, slice) begin that begins at `row` or later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.formats.base import Format, Pattern

__all__ = ["Given", "Known", "Layout"]

#: A padded format may store at most this many slots per entry.
MOST_PADDING = 2.0
_TOO_FAR = "columns of one chunk lie more than 65,535 apart"


@dataclass(frozen=True)
class Known:
    """What was found out about a pattern in one order of its rows, once: counts and shapes of its layouts.

    `memo`: where it is kept. `name`: of the order. `threads`: that may count.
    """

    memo: dict[Any, Any]
    name: str
    threads: int = 1

    def of(self, what: str, *parameters: Any, make: Callable[[], Any]) -> Any:
        """What :meth:`make` gave the first time."""
        key = (f"akx.backends.cpu.{what}", self.name, *parameters)
        if key not in self.memo:
            self.memo[key] = make()
        return self.memo[key]


@dataclass(frozen=True)
class Given:
    """What is to be laid out, and how.

    `dtype`: of values. `bits`: of an index. `sigma`, `block`: rows of a sorting window and of a dense block, 1 for
    none. `known`: what has been found out about it.
    """

    pattern: Pattern
    dtype: np.dtype[Any]
    bits: int
    sigma: int
    block: int
    known: Known


class Layout(ABC):
    """A format with its loop: what a variant is, but for the width of its indices, which `Given.bits` has.

    `name`: of the variant; that with 16-bit indices is called by it and 16. `arrays`: of :attr:`Format.arrays`, by
    which compiled code knows the layout. `loop`, `slot_of`: to be compiled. `loop_of_complex`: for complex values,
    where it is another. `sorts`: whether rows may be sorted within windows, by option ``sigma``. `has_blocks`: whether
    it is of dense blocks, which another order of the rows breaks up. `pads_by_order`: whether it may be padded less in
    another order of the rows. `is_symmetric`: whether one value is stored for two entries, that are equal; values then
    lie in no order of the rows, and what can be laid out depends on them. `reason_against_zones`: why local matrices of
    ghost zones are not laid out so; "" where they are.
    """

    name: str
    arrays: type
    loop: Callable[..., None]
    slot_of: Callable[..., Any]
    loop_of_complex: Callable[..., None] | None = None
    sorts = False
    has_blocks = False
    pads_by_order = False
    is_symmetric = False
    reason_against_zones = ""

    def reason_against(self, given: Given) -> str | None:
        """None where it can be laid out, else why not."""
        reason = self.misfit(given)
        if reason is not None:
            return reason
        if self.slots(given) > self.room(given):
            return f"padding would make it more than {MOST_PADDING:g} times as large"
        return None if given.bits > 16 or self.is_near(given) else _TOO_FAR

    def misfit(self, given: Given) -> str | None:
        """Why it cannot be laid out, whatever the padding and the columns; None where it can."""
        return None

    def is_near(self, given: Given) -> bool:
        """Whether indices of these bits hold the columns of every chunk, relative to a base."""
        return True

    def slots(self, given: Given) -> int:
        """Values stored, padding included; more than there is :meth:`room` for where it is too many."""
        return given.pattern.nnz

    def room(self, given: Given) -> int:
        """Slots that it may have: so many times the entries, and something for the last rows."""
        return int(MOST_PADDING * given.pattern.nnz) + self.tail(given)

    def tail(self, given: Given) -> int:
        """Slots that the last rows may be padded with."""
        return 0

    @abstractmethod
    def lay_out(self, given: Given) -> Format:
        """The format, with values of zero; the caller has asked :meth:`reason_against`."""

    def lay_out_zones(self, given: Given, begins: NDArray[np.int64]) -> Format:
        """The same of local matrices, one below the other: g has rows begins[g] to begins[g + 1], the last is the end.

        Columns are numbered within a local matrix: that of row i itself is i - begins[g]. Rows up to the next multiple
        of 64 are empty, and so may be whole units: they count against :meth:`room`.
        """
        return self.lay_out(given)

    @abstractmethod
    def bytes_per_entry(self, given: Given) -> float:
        """Modelled bytes of matrix data per entry, padding left out: exact for CSR."""

    def padding(self, given: Given) -> float:
        """Values stored for each entry, at least 1."""
        return max(1.0, self.slots(given) / max(given.pattern.nnz, 1))

    def multiplied(self, given: Given) -> float:
        """Values multiplied for each entry: those stored, by default."""
        return self.padding(given)

    def rows_together(self, given: Given) -> int:
        """Rows that a thread has all or none of."""
        return 1

    def starts(self, arrays: Any) -> NDArray[Any] | None:
        """Where units of the arrays begin, in slots of the format's own: `start`, which those have that pad units."""
        return getattr(arrays, "start", None)

    def padding_reach(self, arrays: Any, columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """The least and the greatest column that each unit reads, padding included, each (units,).

        None where padding reads only entries of x that its unit reads anyway.
        """
        return None


def rows_per(given: Given) -> float:
    """Rows for each entry."""
    return given.pattern.rows / max(given.pattern.nnz, 1)
