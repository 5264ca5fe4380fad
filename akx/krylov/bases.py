"""Which polynomial basis a communication-avoiding solver uses, from the Ritz values of an ordinary cycle.

Newton: the Ritz values as shifts in modified Leja order, scaled by their capacity (Bai, Hu, Reichel 1994; Hoemmen 2010,
sec. 3.3 and 7.3). Chebyshev: the interval of real Ritz values, widened a little on both sides, or an ellipse around
complex ones (Joubert, Carey 1992). Monomial: A over the largest Ritz value's modulus, so that vectors do not grow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from akx.core.arguments import check_count, numbers_of, unknown_name
from akx.core.basis import Basis, chebyshev, newton
from akx.core.errors import ArgumentError
from akx.core.spectrum import Ellipse

__all__ = ["CHOICES", "basis_from_ritz", "check_basis"]

#: What ``basis=`` of a solver may be.
CHOICES = ("auto", "newton", "chebyshev", "monomial")
_MARGIN, _LEAST = 0.05, 1e-3


def check_basis(kind: Any) -> None:
    """Raise ArgumentError or ArgumentTypeError where ``basis=`` is none of :data:`CHOICES`."""
    if not isinstance(kind, str) or kind not in CHOICES:
        raise unknown_name("basis", kind, CHOICES)


def basis_from_ritz(kind: str, ritz: ArrayLike, s: int, *, real: bool = True) -> Basis:
    """A basis of s steps in which the vectors of a matrix with such eigenvalues stay independent for long.

    Parameters
    ----------
    kind : str
        ``"newton"`` or ``"auto"``, ``"chebyshev"``, ``"monomial"``; with one step they are the same but for a factor.
    ritz : array_like, shape (m,)
        Approximate eigenvalues, as of H[:-1] of Arnoldi's process: one at the least, all finite.
    s : int
        Steps, at least 1.
    real : bool
        Whether vectors are real, so that coefficients are to be: complex values come in conjugate pairs then, of which
        the one with a positive imaginary part counts.

    Raises
    ------
    ArgumentError, ArgumentTypeError
    """
    points = numbers_of(ritz, "ritz")
    if not points.size or not np.isfinite(points).all():
        found = "no value" if not points.size else f"{points.size - int(np.isfinite(points).sum())} that are not"
        raise ArgumentError("ritz has no eigenvalues to go by", expected="one or more, all finite", found=found)
    return basis_of(kind, points, s, real=real)


def basis_of(kind: str, ritz: ArrayLike, s: int, *, real: bool = True) -> Basis:
    """The same for solvers: no eigenvalues, and such as are not finite, say nothing."""
    check_basis(kind)
    s = check_count("s", s)
    points = numbers_of(ritz, "ritz").astype(complex).reshape(-1)
    size = float(np.abs(points).max(initial=0.0))
    if not (size > np.finfo(float).tiny and np.isfinite(points).all()):
        size, points = 1.0, np.ones(1, dtype=complex)
    if kind == "monomial" or s == 1:
        return Basis("monomial", np.full(s, 1.0 / size), np.zeros(s), np.zeros(s))
    if real and not np.all(points.imag == 0):
        # Keep one of each pair, and put its exact conjugate beside it.
        above = points[points.imag > 1e-14 * size]
        above = above if above.size else points[points.imag < -1e-14 * size].conj()
        points = np.concatenate([points[np.abs(points.imag) <= 1e-14 * size].real, above, above.conj()])
    if np.all(points.imag == 0):
        points = points.real
    if kind in ("auto", "newton"):
        return newton(points, s, scale="capacity" if np.unique(points).size > 1 else size, real=real)
    if not np.iscomplexobj(points):
        low, high = float(points.min()), float(points.max())
        wide = max(_MARGIN * (high - low), _LEAST * size)
        return chebyshev(s, (low - wide, high + wide))
    center = complex(points.mean()) if not real else complex(0.5 * (points.real.min() + points.real.max()))
    off = points - center
    p, q = float(np.abs(off.real).max()), float(np.abs(off.imag).max())
    p = p if p + q > 0 else _LEAST * size  # one point
    grow = np.sqrt(2.0) * (1.0 + _MARGIN)  # an ellipse through the corners of the box encloses all of it
    return chebyshev(s, ellipse=Ellipse(center, grow * p, grow * q))
