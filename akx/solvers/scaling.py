"""Systems of extreme scale, solved in units in which no square overflows or underflows.

The solvers take squares of norms, and BiCGStab fourth powers: of the entries of b, and twice those of A. Beyond an
eighth of the range of exponents these leave the range of numbers before a solve is done. With powers of two, which
change no digit,

    A = 2^e A',    b = 2^f b',    x = 2^(f - e) x',    b - A x = 2^f (b' - A' x'),

A' and b' having a largest entry between 1/2 and 1; e and f are zero where A and b are not extreme, as nearly always,
and then nothing is done. A first guess that is too large counts for f too: the residual begins as large as A x0. Where
entries of A are so far apart that some would vanish or lose digits nobody says that there is no solution, and e is zero
where there is an M, with which the system may be an ordinary one.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Units", "eps_of", "exponent_of", "is_extreme", "keeps_all", "norm_of", "scaled", "units_of"]

#: Exponents beyond this part of the largest of a type are extreme; a guess may exceed b by this part of it.
_EXTREME, _EXCESS = 8, 4


class Units(NamedTuple):
    """The exponents of two e and f, by which the caller's A and b are larger than those that are worked on."""

    matrix: int = 0
    rhs: int = 0

    def __bool__(self) -> bool:
        return bool(self.matrix or self.rhs)

    @property
    def solution(self) -> int:
        """The exponent of x."""
        return self.rhs - self.matrix

    def norm(self, value: float) -> float:
        """A residual's norm as the caller knows it; Inf where that is too large for a float."""
        return value if self.rhs == 0 else _ldexp(value, self.rhs)

    def own(self, value: float) -> float:
        """The inverse of :meth:`norm`."""
        return value if self.rhs == 0 else _ldexp(value, -self.rhs)

    def note(self) -> str:
        """For the record of a solve."""
        return f"solved for A / 2^{self.matrix} and b / 2^{self.rhs}: squares of theirs leave the range of numbers"


#: The caller's own.
_PLAIN = Units()


def units_of(matrix: int | None, rhs: int | None, guess: int | None, dtype: np.dtype[Any]) -> Units:
    """The units for a system whose A, b and x0 have largest entries of these exponents (:func:`exponent_of`)."""
    if rhs is None:
        return _PLAIN  # the solution is zero
    size = rhs
    if guess is not None and matrix is not None:
        size = min(max(rhs, matrix + guess), rhs + _most_exponent(dtype) // _EXCESS)
    found = [e if e is not None and is_extreme(e, dtype) else 0 for e in (matrix, size)]
    return Units(*found) if any(found) else _PLAIN


def is_extreme(exponent: int, dtype: np.dtype[Any]) -> bool:
    """Whether squares of numbers of that exponent are to be kept away from."""
    return abs(exponent) > _most_exponent(dtype) // _EXTREME


@lru_cache(maxsize=8)
def _most_exponent(dtype: np.dtype[Any]) -> int:
    return int(np.finfo(dtype).maxexp)


@lru_cache(maxsize=8)
def eps_of(dtype: np.dtype[Any]) -> float:
    """The unit of rounding of a type, as NumPy has it."""
    return float(np.finfo(dtype).eps)


def exponent_of(v: Any) -> int | None:
    """The least e with entries below 2^e in modulus, of a number or the parts of an array's; None for zeros."""
    if isinstance(v, float):  # NumPy's are too
        return math.frexp(v)[1] if v else None
    parts = _parts(np.asarray(v)).reshape(-1)
    largest = max(parts.max(initial=0), -parts.min(initial=0))
    return int(np.frexp(largest)[1]) if largest > 0 else None


def scaled(v: NDArray[Any], exponent: int) -> NDArray[Any]:
    """2^exponent v, a new array of the type of v, real or complex; Inf where that is too large."""
    out = np.empty(v.shape, dtype=v.dtype)
    with np.errstate(over="ignore", under="ignore"):
        np.ldexp(_parts(np.ascontiguousarray(v)), np.int32(exponent), out=_parts(out))
    return out


def keeps_all(v: NDArray[Any], exponent: int) -> bool:
    """Whether 2^exponent v, for a negative one, has all entries that are not zero as normal numbers."""
    sizes = np.abs(_parts(v))
    least = sizes.min(where=sizes > 0, initial=np.inf)
    return bool(np.frexp(least)[1] + exponent > np.finfo(v.dtype).minexp)


def norm_of(v: NDArray[Any]) -> float:
    """||v||, whatever the size of its entries; Inf only where it is too large for a float."""
    exponent = exponent_of(v)
    if exponent is None or not np.isfinite(v).all():
        return float("nan" if np.isnan(v).any() else np.abs(v).max(initial=0))
    return _ldexp(float(np.linalg.norm(scaled(v, -exponent))), exponent)


def _parts(v: NDArray[Any]) -> NDArray[Any]:
    """Real numbers as they are, complex ones as two."""
    return v.view(v.real.dtype) if v.dtype.kind == "c" else v


def _ldexp(value: float, exponent: int) -> float:
    with np.errstate(over="ignore", under="ignore"):
        return float(np.ldexp(value, exponent))
