"""The problem that trials are run on, and the judge of their results.

The start vectors are random and the coefficients typical of the basis kind: which of them vanish matters to the time.
Where powers of A would leave the range of the dtype, A is scaled by a power of two, through the coefficients.

The reference and its componentwise bound (:mod:`akx.backends.reference`) are computed once. A result passes where
|w - ref| <= bound in every entry, the output having been filled with NaN before, so that an entry that nobody wrote
cannot pass. Where the matrix allows an error of stored values, the bound is still that of values as they are; a second,
wider one is formed when the first plan is judged that really stores them with an error, for just that error.

Where a reference would take too long, one program is compared with another that is trusted (:class:`Comparison`). With
the absolute powers m_{j+1} = |a_j| |A| m_j + |b_j| m_j + |c_j| m_{j-1}, m_0 = |x|, any order of summation is off by
((1 + gamma)^j - 1) m_j at most (:mod:`akx.backends.reference`; gamma is that of the longest row), and m is what the
trusted program itself computes of |A|, |x| and the absolute coefficients: so the bound costs one call. A program that
stores values with a relative error of d has A + E, |E| <= d |A|: ((1 + gamma + d)^j - 1) m_j, to first order
j (gamma + d) m_j. Two programs with d and d' may differ by j (2 gamma + d + d') m_j.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.reference import by_rows, reference, widened
from akx.backends.schedule import Coefficients, as_coefficients
from akx.core.arguments import unknown_name
from akx.core.errors import VerificationError
from akx.core.matrix import Matrix
from akx.core.parallel import in_pieces

__all__ = ["BASIS_KINDS", "Comparison", "Problem", "typical_coefficients"]

#: Entries compared at once.
_PIECE = 32 * 1024
#: And by a thread at least.
_SHARE = 1 << 21
#: Powers are scaled where their exponents would leave this share of the range of the dtype.
_SCALED = 0.4
#: A bound of relative errors beyond this says nothing; what its terms of second order and the errors of m may add.
_LOOSEST, _SLACK = 0.05, 1.1
_SAYS_NOTHING = "results cannot be compared: the bound of their rounding errors says nothing"
#: The least of bounds.
_LEAST = np.finfo(np.float64).tiny

BASIS_KINDS = ("monomial", "newton", "chebyshev")


class Problem:
    """One call to be made by every candidate: matrix, start vectors, coefficients, output, and what must come out.

    Parameters
    ----------
    matrix, k
        The matrix, and powers.
    basis : str
        ``"monomial"``, ``"newton"`` or ``"chebyshev"``.
    start_vectors, seed : int
        Start vectors per call, and where they come from.

    Attributes
    ----------
    x : (b, n) array
        Start vectors.
    out : (k+1, b, n) array
        Where every candidate writes.
    coefficients : Coefficients
        Of the recurrence.
    """

    def __init__(
        self, matrix: Matrix, k: int, *, basis: str = "monomial", start_vectors: int = 1, seed: int = 0
    ) -> None:
        self._begin(matrix, k, basis, start_vectors, seed)
        wanted = reference(matrix, self.x, self.coefficients)
        self._expected = wanted.powers.reshape(-1)
        # Where the bound is zero (v_0 = x, rows without entries) the least of differences is far beyond it.
        self._bound = np.maximum(wanted.bound, _LEAST, out=wanted.bound).reshape(-1)
        self._wider: tuple[float, NDArray[np.float64]] | None = None

    def _begin(self, matrix: Matrix, k: int, basis: str, start_vectors: int, seed: int) -> None:
        """The call itself: everything but the right answer."""
        self.matrix, self.k = matrix, k
        self.x = _start_vectors(matrix, start_vectors, seed)
        self.coefficients = typical_coefficients(matrix, k, basis)
        self.out = np.zeros((k + 1, start_vectors, matrix.n), dtype=matrix.dtype)

    def close(self) -> None:
        """Let go of all vectors, whoever still knows the problem."""
        nothing = self.x[:0].copy()
        self.x, self.out, self._expected, self._bound, self._wider = nothing, nothing, nothing, nothing.real, None

    def poison(self) -> None:
        """Fill the output with NaN, so that what is not written shows."""
        self.out.fill(np.nan)

    def error(self, stored_error: float = 0.0) -> float:
        """Largest error of the output over its bound: at most 1 passes, NaN where an entry is NaN or infinite.

        `stored_error` is the largest relative error of a value as the program that wrote the output has it
        (:func:`akx.backends.registry.stored_error`). The first time that it is not 0 takes about as long as the
        reference took, and one more array as large as the bound, which is kept.
        """
        return self._largest(self._bound if stored_error == 0 else self._bound_with(stored_error))

    def _bound_with(self, stored_error: float) -> NDArray[np.float64]:
        """The bound for a program that stores values with an error, which is the same for all that do."""
        if self._wider is None or self._wider[0] != stored_error:
            self._wider = None  # before there are two
            expected, exact = self._expected.reshape(self.out.shape), self._bound.reshape(self.out.shape)
            wider = widened(self.matrix, expected, exact, self.coefficients, stored_error).reshape(-1)
            self._wider = stored_error, np.maximum(wider, _LEAST, out=wider)
        return self._wider[1]

    def _largest(self, bound: NDArray[Any]) -> float:
        """Piece by piece, so that the differences stay in cache: five passes over the output in all, by threads."""
        out = self.out.reshape(-1)

        def of_part(first: int, last: int) -> float:
            worst = 0.0
            with np.errstate(over="ignore", invalid="ignore"):
                for begin in range(first, last, _PIECE):
                    piece = slice(begin, min(begin + _PIECE, last))
                    error = np.abs(out[piece] - self._expected[piece])
                    error /= bound[piece]
                    largest = float(error.max())
                    if not math.isfinite(largest) and not np.isfinite(out[piece]).all():
                        return math.nan
                    worst = max(worst, largest)
            return worst

        found = in_pieces(of_part, out.size, _SHARE)
        return math.nan if any(map(math.isnan, found)) else max(found)


class Comparison(Problem):
    """A call whose right answer is that of a trusted program.

    Run that program, then :meth:`trust`; give it :meth:`absolute_values`, run it for the problem of :meth:`magnitudes`,
    give it back its own, then :meth:`bound_by`; from then on :meth:`error` judges others. Before that it finds no fault
    with anything. Of arrays as large as the output there are three: what is trusted, the bound, and the output.
    """

    _is_bound, _trusted_error = False, 0.0

    def __init__(
        self, matrix: Matrix, k: int, *, basis: str = "monomial", start_vectors: int = 1, seed: int = 0
    ) -> None:
        self._begin(matrix, k, basis, start_vectors, seed)

    def magnitudes(self) -> Comparison:
        """The problem of |x| and the absolute coefficients: with |A|, its powers are m."""
        dtype, own, other = self.matrix.dtype, self.coefficients, Comparison.__new__(Comparison)
        other.matrix, other.k = self.matrix, self.k
        other.x = np.abs(self.x).astype(dtype)
        other.coefficients = as_coefficients(np.abs(own.a), np.abs(own.b), np.abs(own.c), dtype)
        other.out = np.zeros(self.out.shape, dtype=dtype)
        return other

    def absolute_values(self) -> NDArray[Any]:
        """The values of |A|, shape (nnz,), in the matrix's type."""
        values: NDArray[Any] = np.abs(self.matrix.data).astype(self.matrix.dtype, copy=False)
        return values

    def trust(self, stored_error: float = 0.0) -> None:
        """Take the output for right, as far as it can be where values are stored with an error.

        Raises VerificationError where it is not even finite.
        """
        if not np.isfinite(self.out).all():
            raise VerificationError("results cannot be compared: those that others are compared with are not finite")
        self._expected, self._trusted_error = self.out.reshape(-1), stored_error
        self.out = np.zeros(self.out.shape, dtype=self.out.dtype)

    def bound_by(self, magnitudes: NDArray[Any]) -> None:
        """Form the bound of the difference of two right answers from m as computed, (k+1, b, n).

        Raises VerificationError where it would say nothing: m is not finite, rows are so long that single precision is
        lost, or the trusted program stores values too far off.
        """
        dtype = self.matrix.dtype
        longest = int(np.diff(self.matrix.indptr).max(initial=0)) + 4
        info = np.finfo(dtype)
        self._gamma = gamma = longest * float(info.eps) / 2 * (4.0 if dtype.kind == "c" else 1.0)
        if self.k * (gamma + self._trusted_error) > _LOOSEST or not np.isfinite(magnitudes).all():
            raise VerificationError(_SAYS_NOTHING)
        # Of what is lost below the smallest number, as far as scaled powers can make it grow.
        least = 4.0 * longest * self.k * float(np.ldexp(info.tiny, int(_SCALED * info.maxexp)))
        bound = np.ascontiguousarray(magnitudes.real)
        for j in range(1, self.k + 1):
            bound[j] *= _SLACK * 2.0 * j * gamma
        bound[0] = 0.0  # v_0 is x itself
        self._bound = np.maximum(bound, bound.dtype.type(least), out=bound).reshape(-1)
        self._is_bound = True

    def error(self, stored_error: float = 0.0) -> float:
        """As of a :class:`Problem`, beside the trusted answer; 0 while there is nothing to compare with.

        Raises VerificationError where values are stored so far off that the bound says nothing.
        """
        if not self._is_bound:
            return 0.0
        if self.k * (self._gamma + stored_error) > _LOOSEST:
            raise VerificationError(_SAYS_NOTHING)
        # The bound is 2 gamma times what does not depend on errors of values.
        return self._largest(self._bound) / (1.0 + (self._trusted_error + stored_error) / (2.0 * self._gamma))


def typical_coefficients(matrix: Matrix, k: int, basis: str) -> Coefficients:
    """Coefficients of shape (k,) in the matrix's dtype, zero where those of the basis kind are always zero."""
    if basis not in BASIS_KINDS:
        raise unknown_name("basis", basis, BASIS_KINDS)
    ones, sums = np.ones(matrix.n), list[float]()
    by_rows(matrix, lambda _, A: sums.append(float((abs(A) @ ones).max())))
    radius = max(sums) or 1.0
    a, b, c = np.ones(k), np.zeros(k), np.zeros(k)
    exponent = int(np.frexp(radius)[1])
    if abs(exponent) * k > _SCALED * np.finfo(matrix.dtype).maxexp:
        a *= np.ldexp(1.0, -exponent)
    if basis == "newton":
        # Pairs of conjugate shifts t +- is, in real arithmetic: the second step of a pair has c = s^2.
        b[:] = -a * radius * np.linspace(-0.5, 0.5, k)
        c[1::2] = (0.1 * a[1::2] * radius) ** 2
    elif basis == "chebyshev":
        a[:] = 2.0 / radius
        a[0] = 1.0 / radius
        b[:] = -0.125 * a * radius
        c[1:] = -1.0
    return as_coefficients(a, b, c, matrix.dtype)


def _start_vectors(matrix: Matrix, count: int, seed: int) -> NDArray[Any]:
    random = np.random.default_rng(seed)
    x = random.uniform(-1.0, 1.0, (count, matrix.n))
    if matrix.dtype.kind == "c":
        return (x + 1j * random.uniform(-1.0, 1.0, x.shape)).astype(matrix.dtype)
    return x.astype(matrix.dtype)
