"""Where the eigenvalues are: a few Arnoldi steps, or Lanczos steps for a Hermitian matrix.

m steps from a random unit vector q_1 give an orthonormal Q and a small matrix H with A Q_m = Q_{m+1} H; the eigenvalues
of its leading m x m part, the Ritz values, approach the outer eigenvalues of A first. Both orthogonalise twice
against all earlier vectors, so m is meant to be small (20): 2 m^2 n multiply-adds and m products.

Of a Hermitian matrix an interval is derived: an outer Ritz value theta with unit eigenvector s of H has an eigenvalue
within h_{m+1,m} |s_m| of it, and the interval is widened by that (Zhou, Li 2011) and by a margin, then cut to the
Gershgorin discs where the entries are known. Of any other matrix, an ellipse with the centre in the middle of the
Ritz values and the least capacity (p + q) / 2 among a fan of aspect ratios that encloses them, widened by a margin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from akx.core.arguments import check_count
from akx.core.errors import ArgumentError, ArgumentTypeError, brief

__all__ = ["Ellipse", "Spectrum", "estimate_spectrum"]

#: How much wider than the Ritz values an interval (on each side) or an ellipse is made.
_MARGIN = 0.05
#: The least half-width of a domain, relative to the largest Ritz value.
_LEAST_WIDTH = 1e-3
#: Aspect ratios tried for an ellipse.
_ASPECTS = 127


@dataclass(frozen=True)
class Ellipse:
    """An ellipse with its axes along the real and the imaginary axis; a segment where one semi-axis is zero.

    Attributes
    ----------
    center : complex
        Its centre d; real for real matrices.
    semi_real, semi_imag : float
        Semi-axes p and q along the real and the imaginary axis, not both zero.
    """

    center: complex
    semi_real: float
    semi_imag: float

    def __post_init__(self) -> None:
        p, q = float(self.semi_real), float(self.semi_imag)
        if not (np.isfinite(self.center) and np.isfinite(p + q) and p >= 0 and q >= 0 and p + q > 0):
            expected = "finite, semi-axes >= 0 and not both zero"
            found = f"centre {self.center}, semi-axes {p} and {q}"
            hint = "give an interval lo < hi, or an ellipse that encloses the spectrum"
            raise ArgumentError("ellipse is degenerate", expected=expected, found=found, hint=hint)

    @property
    def focal_squared(self) -> float:
        """f^2 = p^2 - q^2: the foci are d +- f; negative where they lie above and below the centre."""
        return (self.semi_real - self.semi_imag) * (self.semi_real + self.semi_imag)

    def contains(self, points: ArrayLike, slack: float = 1e-12) -> NDArray[np.bool_]:
        """Which of the points lie in the ellipse or on it."""
        z = np.asarray(points, dtype=complex) - self.center
        p, q, f = self.semi_real, self.semi_imag, np.sqrt(complex(self.focal_squared))
        # The sum of the distances from the foci is at most the longer axis.
        return np.asarray(abs(z - f) + abs(z + f) <= 2 * max(p, q) * (1 + slack))


@dataclass(frozen=True, eq=False)
class Spectrum:
    """An estimate of the spectrum.

    Attributes
    ----------
    ritz : (m,) array of float64 (Hermitian) or complex128
        Ritz values, sorted by real, then imaginary part; of a real matrix they come in exact conjugate pairs.
    hermitian : bool
        Whether the matrix was taken as Hermitian (real symmetric).
    interval : (float, float)
        A widened interval of the real parts, lo < hi; of a Hermitian matrix it is meant to enclose the spectrum.
    ellipse : Ellipse
        A widened ellipse around the Ritz values; of a Hermitian matrix the interval.
    exhausted : bool
        The steps ended early on an invariant subspace: the Ritz values are eigenvalues up to rounding errors.
    """

    ritz: NDArray[Any]
    hermitian: bool
    interval: tuple[float, float]
    ellipse: Ellipse
    exhausted: bool


def estimate_spectrum(
    matrix: Any,
    n: int | None = None,
    *,
    steps: int = 20,
    symmetric: bool | None = None,
    dtype: DTypeLike | None = None,
    seed: int = 0,
) -> Spectrum:
    """Estimate the spectrum of a matrix by a few Arnoldi or Lanczos steps.

    Parameters
    ----------
    matrix : Matrix, SciPy sparse array, dense array, or function
        The matrix, or a function that maps x (n,) to A x; for that one `n`, and the `dtype` of x (float64 by default).
    steps : int
        Steps, at least 1; never more than n are done.
    symmetric : bool, optional
        Take it as Hermitian (real symmetric). Default: test ``A x == A^H x`` on a random vector, up to rounding errors;
        a function is not taken as Hermitian.
    seed : int
        Of the start vector; the same seed gives the same estimate.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        For impossible arguments, and where a product is not finite.
    """
    steps = check_count("steps", steps)
    A = matrix.to_scipy() if hasattr(matrix, "to_scipy") else matrix
    operator = A.__matmul__ if hasattr(A, "shape") else A
    if not callable(operator):
        raise ArgumentTypeError("matrix is neither a matrix nor a function", found=type(matrix).__name__)
    size = A.shape[0] if hasattr(A, "shape") else n
    if size is None or size < 1:
        raise ArgumentError("number of rows is not known", expected="n >= 1 beside a function", found=brief(n))
    if hasattr(A, "shape") and A.shape != (size, size):
        raise ArgumentError("matrix is not square", found=str(A.shape))
    kind = np.dtype(A.dtype if hasattr(A, "dtype") else dtype or np.float64)
    kind = np.dtype(np.float64) if kind.kind in "iub" else kind
    wide = np.dtype(np.complex128 if kind.kind == "c" else np.float64)
    rng = np.random.default_rng(seed)
    start = rng.standard_normal(size)
    start = start + 1j * rng.standard_normal(size) if wide.kind == "c" else start
    with np.errstate(over="ignore", invalid="ignore"):
        if symmetric is None:
            symmetric = hasattr(A, "shape") and _is_hermitian(A, start)
        H, exhausted = _arnoldi(operator, start, min(int(steps), size), kind, symmetric)
    if symmetric:
        theta, s = np.linalg.eigh(H[:-1])
        residual = abs(H[-1, -1]) * abs(s[-1])
        interval = _interval(theta, residual, _gershgorin(A) if hasattr(A, "shape") else None)
        half = 0.5 * (interval[1] - interval[0])
        return Spectrum(theta, True, interval, Ellipse(interval[0] + half, half, 0.0), exhausted)
    ritz = np.linalg.eigvals(H[:-1]).astype(complex)
    ritz = ritz[np.lexsort((ritz.imag, ritz.real))]
    return Spectrum(ritz, False, _interval(ritz.real, np.zeros(ritz.size), None), _enclose(ritz), exhausted)


def _arnoldi(
    operator: Callable[[Any], Any], start: NDArray[Any], steps: int, kind: np.dtype[Any], hermitian: bool
) -> tuple[NDArray[Any], bool]:
    """The (m+1, m) matrix H, m <= steps (Lanczos: made tridiagonal), and whether an invariant subspace was found."""
    Q = np.zeros((steps + 1, start.size), dtype=start.dtype)
    H = np.zeros((steps + 1, steps), dtype=start.dtype)
    Q[0] = start / np.linalg.norm(start)
    rounding = 100 * float(np.finfo(kind).eps)
    largest = 0.0
    for j in range(steps):
        w = np.asarray(operator(Q[j].astype(kind))).astype(start.dtype).reshape(-1)
        if w.size != start.size:
            raise ArgumentError("product has a wrong length", expected=str(start.size), found=str(w.size))
        if not np.all(np.isfinite(w)):
            raise ArgumentError("a product with the matrix is not finite", hint="scale the matrix, or use float64")
        largest = max(largest, float(np.linalg.norm(w)))
        for _ in range(2):  # classical Gram-Schmidt, twice
            h = Q[: j + 1].conj() @ w
            w -= h @ Q[: j + 1]
            H[: j + 1, j] += h
        length = float(np.linalg.norm(w))
        if length <= rounding * largest:
            return _tidy(H[: j + 2, : j + 1], hermitian), True
        H[j + 1, j] = length
        Q[j + 1] = w / length
    return _tidy(H, hermitian), False


def _tidy(H: NDArray[Any], hermitian: bool) -> NDArray[Any]:
    if not hermitian:
        return H
    m = H.shape[1]
    off, T = np.real(np.diagonal(H, -1)), np.zeros((m + 1, m))
    for part, entries in ((T, np.real(np.diagonal(H))), (T[1:], off), (T[:, 1:], off[:-1])):
        np.fill_diagonal(part, entries)
    return T


def _interval(
    theta: NDArray[np.float64], residual: NDArray[np.float64], bounds: tuple[float, float] | None
) -> tuple[float, float]:
    lo, hi = float((theta - residual).min()), float((theta + residual).max())
    margin = _MARGIN * (hi - lo)
    lo, hi = lo - margin, hi + margin
    if bounds is not None:  # all eigenvalues are within the Gershgorin bounds for certain
        lo, hi = max(lo, bounds[0]), min(hi, bounds[1])
    least = _LEAST_WIDTH * (float(abs(theta).max()) or 1.0)
    if hi - lo < 2 * least:
        middle = 0.5 * (lo + hi)
        lo, hi = middle - least, middle + least
    return lo, hi


def _enclose(points: NDArray[Any]) -> Ellipse:
    """A thin ellipse around the points, widened."""
    x, y = points.real, points.imag
    d = complex(0.5 * (x.min() + x.max()), 0.5 * (y.min() + y.max()))
    x, y = abs(x - d.real), abs(y - d.imag)
    best: tuple[float, float] = (float(x.max()), 0.0) if not y.any() else (np.inf, np.inf)
    if y.any() and not x.any():
        best = (0.0, float(y.max()))
    for angle in np.linspace(0, np.pi / 2, _ASPECTS + 2)[1:-1]:
        size = float(np.hypot(x / np.cos(angle), y / np.sin(angle)).max())
        if size * (np.cos(angle) + np.sin(angle)) < sum(best):
            best = (size * float(np.cos(angle)), size * float(np.sin(angle)))
    p, q = ((1 + 2 * _MARGIN) * v for v in best)
    least = _LEAST_WIDTH * (float(abs(points).max()) or 1.0)
    return Ellipse(d if d.imag else d.real, max(p, least if p >= q else 0.0), max(q, least if q > p else 0.0))


def _is_hermitian(A: Any, x: NDArray[Any]) -> bool:
    forward, backward = np.asarray(A @ x), np.asarray(A.T @ x.conj()).conj()
    return bool(np.all(abs(forward - backward) <= 1e-12 * np.asarray(abs(A) @ abs(x))))


def _gershgorin(A: Any) -> tuple[float, float]:
    """Bounds of the eigenvalues of a Hermitian matrix: a_ii -+ sum over j != i of |a_ij|."""
    diagonal = np.real(np.asarray(A.diagonal())).astype(np.float64)
    radius = np.asarray(abs(A).astype(np.float64).sum(axis=1)).reshape(-1) - abs(diagonal)
    return float((diagonal - radius).min()), float((diagonal + radius).max())
