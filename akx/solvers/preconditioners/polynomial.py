"""A Chebyshev polynomial as preconditioner: M = q(A), q of degree d, so that 1 - t q(t) is small on the spectrum.

The best residual polynomial on an interval, or nearly so on an ellipse, that is 1 at 0 is a Chebyshev polynomial of
degree d + 1, p(t) = P_{d+1}(t) / P_{d+1}(0), with the P_j of `chebyshev` (Saad 2003, sec. 12.3). Then
q(t) = (1 - p(t)) / t, and its coefficients c in the basis P_0 .. P_d follow from the matrix B of the recurrence,
t [P_0 .. P_d] = [P_0 .. P_{d+1}] B:

    B c = e_0 - e_{d+1} / P_{d+1}(0)      (d+2 equations, d+1 unknowns, consistent).

An application is one call of the matrix powers kernel with k = d, which reads the matrix once where its plan blocks,
and a combination c^T V of d + 1 vectors: n (d + 2) words besides. On a GPU both are done there.

Where the lower end of the spectrum is not known to be far from 0, the interval is [hi / (4 (d+1)^2), hi]. The
eigenvalues of A q(A) are then in (0, 2), and the smallest is about 1.5 (d+1)^2 times lambda_min / hi.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.selection import array_backend, backend_of
from akx.backends.vectors import MOST_ROWS
from akx.core.arguments import check_count
from akx.core.basis import Basis
from akx.core.basis import chebyshev as chebyshev_basis
from akx.core.errors import ArgumentError, brief
from akx.core.matrix import Matrix
from akx.core.spectrum import Ellipse, Spectrum, estimate_spectrum
from akx.operator import MatrixPowers
from akx.solvers.preconditioners.base import QUEUEING, Preconditioner, device_rows
from akx.solvers.symmetry import is_hermitian

__all__ = ["Chebyshev", "chebyshev"]

#: The interval reaches down to hi / (_REACH (degree + 1)^2) where less is known.
_REACH = 4.0
#: Lanczos steps for the interval of a Hermitian matrix: 20 cost as much as three quarters of all of CG for the 7-point
#: Laplacian of 80^3, and save none of its steps; at most 2% for bodyy5, bcsstk16 and bcsstk18, scaled.
_LANCZOS = 10


class Chebyshev(Preconditioner):
    """M = q(A); made by :func:`chebyshev`.

    Attributes
    ----------
    degree : int
        Of q: products with A in an application.
    domain : Ellipse
        Where 1 - t q(t) is small; an interval where one semi-axis is zero.
    coefficients : (degree + 1,) array
        Of q in `basis`.
    basis : Basis
    """

    name = "chebyshev"
    _on_host: MatrixPowers | None
    _rooms: list[NDArray[Any]]  # for the powers, none of them in use: each call takes one or makes one
    _on_gpu: dict[np.dtype[Any], tuple[MatrixPowers, Any, Any]]

    def __init__(self, matrix: Matrix, degree: int, domain: Ellipse, *, hermitian: bool, **options: Any) -> None:
        super().__init__(matrix.n, matrix.dtype)
        self.degree = self.products = degree
        self.domain = domain
        self.hermitian = hermitian
        longer = chebyshev_basis(degree + 1, ellipse=domain)
        self.basis = longer.head(degree)
        self.coefficients = _inverse(longer)
        self._weights = self.coefficients.astype(matrix.dtype)
        self._matrix, self._options = matrix, options

    def _unprepared(self) -> dict[str, Any]:
        return {"_on_host": None, "_rooms": [], "_on_gpu": {}}

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        vector = np.asarray(x).reshape(-1)
        if vector.dtype.kind == "c" and self.dtype.kind != "c":
            return np.asarray(self._matvec(vector.real) + 1j * self._matvec(vector.imag))
        if self._on_host is None:
            self._on_host = MatrixPowers(self._matrix, self.degree, basis=self.basis, **self._options)
            self._on_host.looks_for_overflow = False  # a solver sees what came of it
        try:
            room = self._rooms.pop()
        except IndexError:
            room = np.empty((self.degree + 1, self._matrix.n), dtype=self.dtype)
        self._on_host(vector.astype(self.dtype, copy=False), out=room.T)
        found = np.asarray(self._weights @ room)
        self._rooms.append(room)
        return found

    def _apply_on_device(self, r: Any, out: Any) -> bool:
        """One call of the matrix powers kernel on the GPU in the type of r, and one combination of its rows."""
        if np.result_type(self.dtype, r.dtype) != r.dtype:
            return False
        n, rows = self.shape[0], self.degree + 1
        with QUEUEING:
            if r.dtype not in self._on_gpu:
                if rows > MOST_ROWS:
                    return False
                options = {**self._options, "backend": array_backend()}
                operator = MatrixPowers(self._matrix, self.degree, basis=self.basis, dtype=r.dtype, **options)
                work = backend_of(array_backend()).vectors(r.dtype, n, None)
                self._on_gpu[r.dtype] = operator, device_rows((rows, 1, n), r.dtype), work
            operator, V, work = self._on_gpu[r.dtype]
            program, coefficients = operator.program(1)
            program.run(r.reshape(1, n), V, coefficients)
            work.combine(self._weights[None, :].astype(r.dtype), V.reshape(rows, n), out.reshape(1, n))
        return True

    def polynomial(self, t: NDArray[Any]) -> NDArray[Any]:
        """q(t) at points."""
        values = _values(chebyshev_basis(self.degree + 1, ellipse=self.domain), np.asarray(t))
        return np.asarray(np.tensordot(self.coefficients, values[: self.degree + 1], axes=1))


def chebyshev(
    A: Any, degree: int = 4, interval: tuple[float, float] | None = None, *, threads: int | None = None, db: Any = None
) -> Chebyshev:
    """A polynomial of A as a preconditioner.

    Parameters
    ----------
    A : sparse matrix or array, shape (n, n), or Matrix
        Its eigenvalues are to lie on one side of the imaginary axis: definite, where it is Hermitian.
    degree : int
        Of the polynomial, at least 1: so many products each time M is applied.
    interval : (float, float), optional
        Real, lo < hi, without 0: where the eigenvalues are. A Hermitian M is definite as long as no eigenvalue lies on
        the side of the interval that is away from 0. Default: from an estimate of the spectrum.
    threads, db
        As for :class:`akx.MatrixPowers`.

    Returns
    -------
    Chebyshev

    Raises
    ------
    ArgumentError
        A degree below 1, an interval that holds 0, or a spectrum that seems to lie on both sides of 0.
    """
    degree = check_count("degree", degree)
    matrix = Matrix.from_any(A, value_error=0.0)
    hermitian = is_hermitian(matrix)
    if interval is None:
        known: dict[str, Any] = {"steps": _LANCZOS, "symmetric": True} if hermitian else {}
        domain = _domain(estimate_spectrum(matrix, **known), int(degree))
    else:
        low, high = (float(v) for v in interval)
        if not (np.isfinite([low, high]).all() and low < high and low * high > 0):
            raise ArgumentError("interval is out of range", expected="lo < hi, both of one sign", found=brief(interval))
        domain = Ellipse(0.5 * (low + high), 0.5 * (high - low), 0.0)
    return Chebyshev(matrix, int(degree), domain, hermitian=hermitian, threads=threads, db=db)


def _domain(spectrum: Spectrum, degree: int) -> Ellipse:
    """An interval or ellipse without 0 around what is known of the spectrum."""
    ellipse = spectrum.ellipse
    center = complex(ellipse.center)
    far = 1.0 + 1.0 / (_REACH * (degree + 1) ** 2)  # 0 is to be at least this far from the centre, in semi-axes
    if abs(np.sqrt(center**2 - ellipse.focal_squared)) > 0 and not ellipse.contains([0.0], slack=far - 1.0)[0]:
        return ellipse
    real = np.asarray(spectrum.ritz).real
    side = float(np.sign(real.sum()))
    if center.imag or side == 0 or not np.all(side * real > 0):
        raise ArgumentError(
            "the spectrum seems to lie on both sides of 0, where no Chebyshev polynomial is of use",
            found=f"Ritz values from {real.min():.3g} to {real.max():.3g}",
            hint="pass interval=(lo, hi) if this is not so, or use another preconditioner",
        )
    high = max(side * v for v in spectrum.interval)
    low = high / (_REACH * (degree + 1) ** 2)
    return Ellipse(side * 0.5 * (low + high), 0.5 * (high - low), ellipse.semi_imag)


def _inverse(basis: Basis) -> NDArray[Any]:
    """The coefficients c of q(t) = (1 - P_{d+1}(t) / P_{d+1}(0)) / t in P_0 .. P_d."""
    d = basis.k - 1
    B = basis.matrix()
    at_zero = _values(basis, np.zeros(1, dtype=B.dtype))[-1, 0]
    right = np.zeros(d + 2, dtype=B.dtype)
    right[0] = 1.0
    right[d + 1] = -1.0 / at_zero
    found: NDArray[Any] = np.linalg.lstsq(B, right, rcond=None)[0]
    return found


def _values(basis: Basis, t: NDArray[Any]) -> NDArray[Any]:
    """P_0 .. P_k at points t, shape (k+1, ...)."""
    values = [np.ones_like(t, dtype=np.result_type(t, basis.a))]
    for j in range(basis.k):
        following = basis.a[j] * t * values[j] + basis.b[j] * values[j]
        values.append(following + basis.c[j] * values[j - 1] if j else following)
    return np.stack(values)
