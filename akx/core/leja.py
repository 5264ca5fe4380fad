"""Shifts in modified Leja order, conjugate pairs kept together, and the capacity of a set of points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from akx.core.errors import ArgumentError, ArgumentTypeError, brief

__all__ = ["are_paired", "as_points", "capacity", "leja_order", "pair_steps"]

#: Imaginary parts below this, relative to the largest point, count as rounding errors.
_ROUNDING = 1e-12


def leja_order(points: ArrayLike, *, pairs: bool | None = None) -> NDArray[Any]:
    """Points (m,), real or complex, in modified Leja order, (m,): float64 where all are real, else complex128.

    The first point is the largest in modulus; each further one maximises the product of its distances from those before
    it. With `pairs` (by default where every complex point has its conjugate), a complex point, imaginary part positive
    first, is followed by its conjugate at once, so that both can be done in real arithmetic. Products are kept as sums
    of logarithms, and so can neither overflow nor underflow. Of a point given several times, each repetition joins a
    further round after all distinct points. Ties go to the larger real, then the larger imaginary part.

    Source: L. Reichel, Newton interpolation at Leja points, BIT 30 (1990); Z. Bai, D. Hu, L. Reichel, A Newton basis
    GMRES implementation, IMA J. Numer. Anal. 14 (1994).
    """
    z = as_points(points)
    paired = are_paired(z)
    if pairs and not paired:
        raise ArgumentError("complex points are not in conjugate pairs", found=str(z))
    keep = paired if pairs is None else pairs
    if keep:  # of each pair the one above the real axis, of which rounding errors are no part
        z = np.where(abs(z.imag) <= _ROUNDING * abs(z).max(initial=0.0), z.real, z)
        z = z[z.imag >= 0]
    # Distinct points round by round: np.unique sorts by real part, then imaginary part.
    distinct, counts = np.unique(z, return_counts=True)
    rounds = [_leja_distinct(distinct[counts > done], keep) for done in range(int(counts.max()))]
    ordered = np.concatenate(rounds)
    return np.real(ordered) if not np.any(ordered.imag) else ordered


def capacity(points: ArrayLike) -> float:
    """An estimate of the capacity of the set that the points fill: the geometric mean of their distances.

    For a single point, its modulus; 1 where that is zero too. The capacity of an interval is a quarter of its length,
    that of a disc its radius.
    """
    z = np.unique(as_points(points))
    if z.size == 1:
        return float(abs(z[0])) or 1.0
    distance = abs(z[:, None] - z[None, :])
    off = distance[~np.eye(z.size, dtype=bool)]
    return float(np.exp(np.mean(np.log(off))))


def _leja_distinct(points: NDArray[Any], pairs: bool) -> NDArray[Any]:
    """Distinct points (with `pairs`: of the closed upper half-plane) in Leja order, conjugates added."""
    z = np.asarray(points[::-1], dtype=complex)  # descending: argmax takes the first of equals
    left = np.ones(z.size, dtype=bool)
    log_product = np.zeros(z.size)
    ordered: list[complex] = []
    score = abs(z)
    for _ in range(z.size):
        best = int(np.argmax(np.where(left, score, -np.inf)))
        left[best] = False
        chosen = [z[best], z[best].conj()] if pairs and z[best].imag > 0 else [z[best]]
        ordered += chosen
        for t in chosen:
            log_product += np.log(np.maximum(abs(z - t), np.finfo(float).tiny))
        # Equal up to rounding counts as equal, so that the order does not hang on the last bit.
        score = np.round(log_product, 11)
    return np.array(ordered)


def pair_steps(points: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each shift its real part and the factor of v_{j-1}: Im(t)^2 for the second of a pair, else 0."""
    size = points.size
    factor = np.zeros(size)
    j = 0
    while j < size:
        t = points[j]
        if t.imag == 0:
            j += 1
            continue
        if j + 1 == size or abs(points[j + 1] - t.conjugate()) > _ROUNDING * max(abs(t), 1e-300) * 10:
            raise ArgumentError(
                "a complex shift is not followed by its conjugate", found=str(points), hint="pass order='leja'"
            )
        factor[j + 1] = t.imag**2
        j += 2
    return np.real(points).astype(np.float64), factor


def are_paired(z: NDArray[Any]) -> bool:
    """Whether the points are a conjugation-invariant multiset, up to rounding errors."""
    tolerance = _ROUNDING * float(abs(z).max(initial=0.0))
    above, below = z[z.imag > tolerance], z[z.imag < -tolerance].conj()
    if above.size != below.size:
        return False
    left = list(below)
    for t in above:
        near = min(range(len(left)), key=lambda i: abs(left[i] - t))
        if abs(left.pop(near) - t) > 100 * tolerance:
            return False
    return True


def as_points(values: ArrayLike) -> NDArray[Any]:
    z = np.atleast_1d(np.asarray(values))
    if z.ndim != 1 or z.size == 0 or z.dtype.kind not in "iufc":
        raise ArgumentTypeError("shifts are not a list of numbers", expected="a 1-D array", found=brief(values))
    z = z.astype(complex)
    if not np.all(np.isfinite(z)):
        raise ArgumentError("a shift is not finite", found=str(z))
    return z
