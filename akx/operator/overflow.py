"""Calls that overflow: some of them look for it, and the first that finds it warns.

An entry i of v_j that is not finite makes one of v_{j+1} so in each row with an entry in column i: 0 * Inf is NaN. So
the last vector tells of all, but for columns without entries; its sum is not finite where it is not.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.errors import AkxWarning

__all__ = ["OverflowWatch", "is_looked_at", "levels_to_caller"]

#: Entries of a vector that are looked at in every call, and one of how many calls looks at more: what another core has
#: just written takes a tenth of a short call to read.
_NOTHING, _EVERY = 2_000, 64
#: Indices that are made 64-bit numbers at once, as NumPy does with those that it follows.
_AT_ONCE = 1 << 20


def is_looked_at(entries: int, calls: int) -> bool:
    """Whether all vectors of a call are looked at: where they are short, else those of the first call and one of 64."""
    return entries <= _NOTHING or calls % _EVERY == 1


class OverflowWatch:
    """What looks for an overflow in the results of an operator, and warns once: then it `looks` no more."""

    def __init__(self, matrix: Any, k: int) -> None:  # with n rows, and indices of columns
        self.looks = True
        self._n, self._k, self._pattern = matrix.n, k, matrix.pattern
        self._calls = 0
        self._on_device: Any = None

    def is_due(self, vectors: int) -> bool:
        """Whether this call is to look for an overflow: all where vectors are short, else the first and one of 64."""
        if not self.looks:
            return False
        self._calls += 1
        return is_looked_at(self._n * vectors, self._calls)

    def look(self, powers: NDArray[Any]) -> None:
        """Warn, once, where an entry of V is not finite and those of x are."""
        last, empty = powers[-1], self._empty_columns
        if last.size <= _NOTHING and not empty.size and isfinite(abs(np.vdot(last, last))):  # quicker than a sum
            return
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.add.reduce(last, axis=None)
        if isfinite(total.real + total.imag) and not (empty.size and not np.isfinite(powers[..., empty]).all()):
            return
        finite = [bool(np.isfinite(v).all()) for v in powers]
        if finite[0] and not all(finite):
            self._warn(finite.index(False), powers.dtype)

    def look_on_device(self, powers: Callable[[], Any], stream: Any) -> None:
        """Warn, once, of an overflow in an earlier call, and see to it that some of the calls are looked at.

        `powers` gives V, where it is needed; `stream` is that of the call.
        """
        if not self.looks:
            return
        calls, watch = self._calls, self._on_device
        self._calls = calls + 1
        if watch is None:
            from akx.backends.selection import array_backend, backend_of

            watch = self._on_device = backend_of(array_backend()).finite_watch(self._k + 1)
        first = watch.first
        if first:  # else there is none, or x itself was not finite
            self._on_device = None
            self._warn(first, powers().dtype)
        elif calls % _EVERY == 0:
            watch.look(powers(), stream)

    def _warn(self, power: int, dtype: np.dtype[Any]) -> None:
        self.looks = False
        warnings.warn(
            f"V overflows in {dtype}: power {power} of {self._k} is the first that is not finite; "
            "use a basis scaled to the matrix (basis='newton' or 'chebyshev'), or scale the matrix",
            AkxWarning,
            stacklevel=levels_to_caller(),
        )

    @cached_property
    def _empty_columns(self) -> NDArray[Any]:
        """Columns without entries; the pattern is always the same."""
        indices, is_empty = self._pattern.indices, np.ones(self._n, dtype=np.bool_)
        for begin in range(0, indices.size, _AT_ONCE):
            is_empty[indices[begin : begin + _AT_ONCE]] = False
        return np.flatnonzero(is_empty)


def levels_to_caller() -> int:
    """For a warning, from the function that calls this: how far up the caller of akx is."""
    frame, levels = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "akx":
        frame, levels = frame.f_back, levels + 1
    return levels
