"""Which polynomial basis a communication-avoiding solver uses, from the Ritz values of an ordinary cycle.

Newton: the Ritz values as shifts in modified Leja order, scaled by their capacity (Bai, Hu, Reichel 1994; Hoemmen 2010,
sec. 3.3 and 7.3). Chebyshev: the interval of real Ritz values, widened a little on both sides, or an ellipse around
complex ones (Joubert, Carey 1992). Monomial: A over the largest Ritz value's modulus, so that vectors do not grow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.arguments import unknown_name
from akx.core.basis import Basis, chebyshev, newton
from akx.core.spectrum import Ellipse

__all__ = ["CHOICES", "basis_from_ritz", "check_basis"]

#: What ``basis=`` of a solver may be.
CHOICES = ("auto", "newton", "chebyshev", "monomial")
_MARGIN = 0.05


def check_basis(kind: Any) -> None:
    """Raise ArgumentError or ArgumentTypeError where ``basis=`` is none of :data:`CHOICES`."""
    if kind not in CHOICES:
        raise unknown_name("basis", kind, CHOICES)


def basis_from_ritz(kind: str, ritz: NDArray[Any], s: int, *, real: bool) -> Basis:
    """A basis of s >= 1 steps from Ritz values, (m,), of which complex ones count in pairs where vectors are `real`.

    `kind` is one of :data:`CHOICES`, ``"auto"`` being Newton.
    """
    check_basis(kind)
    points = np.asarray(ritz, dtype=complex).reshape(-1)
    size = float(np.abs(points).max(initial=0.0))
    if size == 0.0 or not np.isfinite(points).all():
        size, points = 1.0, np.ones(1, dtype=complex)
    if kind == "monomial" or s == 1:
        return Basis("monomial", np.full(s, 1.0 / size), np.zeros(s), np.zeros(s))
    if real and not np.all(points.imag == 0):
        # Keep one of each pair, and put its exact conjugate beside it.
        above = points[points.imag > 1e-14 * size]
        points = np.concatenate([points[np.abs(points.imag) <= 1e-14 * size].real, above, above.conj()])
    if np.all(points.imag == 0):
        points = points.real
    if kind in ("auto", "newton"):
        return newton(points, s, scale="capacity" if np.unique(points).size > 1 else size, real=real)
    if not np.iscomplexobj(points):
        low, high = float(points.min()), float(points.max())
        wide = max(_MARGIN * (high - low), 1e-3 * size)
        return chebyshev(s, (low - wide, high + wide))
    center = complex(points.mean()) if not real else complex(0.5 * (points.real.min() + points.real.max()))
    off = points - center
    p, q = float(np.abs(off.real).max()), float(np.abs(off.imag).max())
    grow = np.sqrt(2.0) * (1.0 + _MARGIN)  # an ellipse through the corners of the box encloses all of it
    return chebyshev(s, ellipse=Ellipse(center, grow * p, grow * q))
