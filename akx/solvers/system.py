"""The linear system A x = b as every solver sees it: checked once, one type, one place, products counted.

SciPy's meanings: a solve has converged when ||b - A x|| <= max(rtol ||b||, atol); x has the shape of b, (n,) or (n, 1),
and the common type of A, b and x0; ``info`` is 0 for a converged solve, the number of iterations where they ran out,
and negative for a breakdown. A zero right-hand side has the solution zero.

Vectors of a solver are rows: an array W of shape (m, n), C-contiguous, holds m vectors, each contiguous; so does what
:class:`akx.MatrixPowers` fills.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from akx.basis import Basis
from akx.errors import ArgumentError, ArgumentTypeError, MatrixError
from akx.matrix import Matrix
from akx.operator import MatrixPowers
from akx.plan import Plan
from akx.solvers.stats import SolveStats

__all__ = ["Answer", "System", "make_system"]

#: What a solver returns: x and info, and the record of the solve where it was asked for.
Answer = tuple[Any, int] | tuple[Any, int, SolveStats]


@dataclass
class System:
    """A x = b.

    Attributes
    ----------
    matrix : Matrix
        A, in `dtype`.
    b, x : (n,) arrays of `dtype`
        Right-hand side, and the first guess, a copy that the solver may work on.
    M : LinearOperator or None
        The preconditioner, an approximation of A^-1.
    target : float
        The residual's norm to be reached: max(rtol ||b||, atol).
    zero_guess : bool
        Whether x is zero, so that b is its residual.
    shape : tuple of int
        Of the x that the caller gets.
    stats : SolveStats
    begun : float
        When the system was made, on :func:`time.perf_counter`.
    """

    matrix: Matrix
    b: NDArray[Any]
    x: NDArray[Any]
    M: LinearOperator | None
    norm_b: float
    target: float
    zero_guess: bool
    shape: tuple[int, ...]
    stats: SolveStats
    callback: Callable[[Any], object] | None = None
    threads: int | None = None
    db: Any = None
    _operators: dict[tuple[int, str], MatrixPowers] = field(default_factory=dict)
    begun: float = field(default_factory=time.perf_counter)
    _pair: NDArray[Any] | None = None

    @property
    def n(self) -> int:
        """Rows."""
        return self.matrix.n

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of all vectors."""
        return self.matrix.dtype

    def rows(self, count: int) -> NDArray[Any]:
        """Room for so many vectors, shape (count, n), not filled."""
        return np.empty((count, self.n), dtype=self.dtype)

    def operator(self, k: int, kind: str = "monomial", plan: Plan | None = None) -> MatrixPowers:
        """The operator for k steps of bases of a kind; made once, with the tuned plan where there is one."""
        found = self._operators.get((k, kind))
        if found is None:
            with self.stats.phase("setup"):
                basis: Any = kind if kind == "monomial" else _placeholder(k, kind)
                found = MatrixPowers(self.matrix, k, basis=basis, plan=plan, threads=self.threads, db=self.db)
            self._operators[k, kind] = found
        return found

    def product(self, v: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
        """out = A v, counted and timed; both (n,), contiguous, not the same.

        Where `out` is the row behind `v` in one array nothing is copied.
        """
        operator = self.operator(1)
        with self.stats.phase("matrix"):
            both = _following(v, out)
            if both is not None:
                operator(v, out=both.T)
            else:
                if self._pair is None:
                    self._pair = self.rows(2)
                operator(v, out=self._pair.T)
                out[:] = self._pair[1]
        self.stats.products += 1
        self.stats.matrix_passes += 1
        return out

    def powers(self, block: NDArray[Any], out: NDArray[Any], basis: Basis, plan: Plan | None = None) -> NDArray[Any]:
        """The bases of all start vectors of a step in one pass over the matrix, counted and timed.

        Parameters
        ----------
        block : (b, n) array
            Start vectors.
        out : (s+1, b, n) array, C-contiguous
            ``out[j, i]`` becomes p_j(A) block[i].
        basis : Basis
            Of s steps.
        """
        operator = self.operator(basis.k, basis.kind, plan)
        with self.stats.phase("matrix"):
            if block.shape[0] == 1:
                operator(block[0], out=out[:, 0].T, basis=basis)
            else:
                operator(block.T, out=out.transpose(2, 1, 0), basis=basis)
        self.stats.products += basis.k * block.shape[0]
        self.stats.matrix_passes += 1
        return out

    def precondition(self, r: NDArray[Any]) -> NDArray[Any]:
        """M r, a new array; r itself without a preconditioner."""
        if self.M is None:
            return r
        with self.stats.phase("precondition"):
            found: NDArray[Any] = np.ascontiguousarray(self.M.matvec(r), dtype=self.dtype).reshape(-1)
        return found

    def residual(self, x: NDArray[Any], out: NDArray[Any]) -> float:
        """out = b - A x, by a product that is counted; its norm."""
        self.product(x, out)
        with self.stats.phase("vectors"):
            np.subtract(self.b, out, out=out)
            return float(np.linalg.norm(out))

    def say(self, value: Any) -> None:
        """Call the caller's callback, if there is one."""
        if self.callback is not None:
            self.callback(value)

    def finish(self, x: NDArray[Any], *, info: int, reason: str, iterations: int, return_stats: bool) -> Answer:
        """The answer, after the true residual was computed: ``info == 0`` is never said for one above the target.

        Parameters
        ----------
        info : int
            What the solver thinks: 0 converged, > 0 iterations ran out, < 0 breakdown.
        reason : str
            In words.
        """
        stats = self.stats
        stats.residual = self.residual(x, self.rows(1)[0])
        stats.residuals.append(stats.residual)
        stats.target, stats.iterations = self.target, iterations
        stats.converged = bool(stats.residual <= self.target)
        if info == 0 and not stats.converged:
            raise AssertionError(f"{stats.method} took an unconverged answer for a converged one")  # a defect of ours
        if stats.converged:
            info = 0
        stats.reason = reason
        stats.seconds["total"] = time.perf_counter() - self.begun
        answer = x.reshape(self.shape)
        return (answer, info, stats) if return_stats else (answer, info)


def make_system(
    method: str,
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    threads: int | None = None,
    db: Any = None,
) -> System:
    """Check the arguments that all solvers share.

    Parameters
    ----------
    method : str
        For the record.
    A : sparse matrix or array, shape (n, n), or Matrix
        LinearOperators have no entries to block, and are refused.
    b : array_like, shape (n,) or (n, 1)
    x0 : array_like of the same shape, optional
        Zero by default.
    rtol, atol : float
        Not negative.
    M : sparse matrix, array or LinearOperator, shape (n, n), optional
    callback : callable, optional
    threads, db
        As for :class:`akx.MatrixPowers`.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError
    """
    if isinstance(A, LinearOperator):
        raise ArgumentTypeError(
            "A is a LinearOperator, which has no entries to block",
            expected="a sparse matrix",
            hint="use scipy.sparse.linalg for operators without a matrix",
        )
    matrix = Matrix.from_any(A)
    right = np.asarray(b)
    if right.dtype.kind not in "biufc":
        raise ArgumentTypeError("b is not numeric", found=str(right.dtype))
    if right.shape not in ((matrix.n,), (matrix.n, 1)):
        raise ArgumentError("b does not fit A", expected=f"({matrix.n},) or ({matrix.n}, 1)", found=str(right.shape))
    guess = None if x0 is None else np.asarray(x0)
    if guess is not None and guess.size != matrix.n:
        raise ArgumentError("x0 does not fit A", expected=f"({matrix.n},)", found=str(guess.shape))
    if callback is not None and not callable(callback):
        raise ArgumentTypeError("callback cannot be called", found=type(callback).__name__)
    for name, value in (("rtol", rtol), ("atol", atol)):
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not float(value) >= 0:
            raise ArgumentError(f"{name} is out of range", expected="a number >= 0", found=repr(value))
    dtype = _common(matrix.dtype, right, guess)
    if dtype != matrix.dtype:
        matrix = matrix.with_values(matrix.data.astype(dtype))
    right = np.array(right.reshape(-1), dtype=dtype)
    if not np.isfinite(right).all():
        raise ArgumentError("b is not finite", expected="no NaN or Inf")
    start = np.zeros(matrix.n, dtype=dtype) if guess is None else np.array(guess.reshape(-1), dtype=dtype)
    if not np.isfinite(start).all():
        raise ArgumentError("x0 is not finite", expected="no NaN or Inf")
    with np.errstate(over="ignore"):
        norm = float(np.linalg.norm(right))
    if not np.isfinite(norm) or (norm == 0.0 and right.any()):
        raise ArgumentError(
            "the norm of b cannot be represented", found=f"{norm} in {dtype}", hint="scale b, and x with it"
        )
    stats = SolveStats(method=method, target=max(float(rtol) * norm, float(atol)))
    inverse = None if M is None else aslinearoperator(M)
    if inverse is not None and inverse.shape != (matrix.n, matrix.n):
        raise MatrixError("M does not fit A", expected=f"({matrix.n}, {matrix.n})", found=str(inverse.shape))
    shape = np.asarray(b).shape
    is_zero = not np.any(start)
    return System(matrix, right, start, inverse, norm, stats.target, is_zero, shape, stats, callback, threads, db)


def _common(of_matrix: np.dtype[Any], b: NDArray[Any], x0: NDArray[Any] | None) -> np.dtype[Any]:
    """SciPy's rule: single precision only where all are, integers count as double."""
    types = [of_matrix, *(a.dtype if a.dtype.kind in "fc" else np.dtype(float) for a in (b, x0) if a is not None)]
    found = np.result_type(*types)
    return found if found in (np.float32, np.float64, np.complex64, np.complex128) else np.dtype(complex)


def _following(v: NDArray[Any], out: NDArray[Any]) -> NDArray[Any] | None:
    """The two rows as one (2, n) array where `out` follows `v` in memory, else None."""
    if v.__array_interface__["data"][0] + v.nbytes != out.__array_interface__["data"][0]:
        return None
    owner = v.base
    if not isinstance(owner, np.ndarray) or not owner.flags.c_contiguous or out.base is not owner:
        return None
    flat = owner.reshape(-1)
    first = (v.__array_interface__["data"][0] - owner.__array_interface__["data"][0]) // v.itemsize
    return flat[first : first + 2 * v.size].reshape(2, v.size)


def _placeholder(k: int, kind: str) -> Basis:
    """A basis of a kind whose coefficients do not matter: each call brings its own."""
    zeros = np.zeros(k)
    return Basis(kind, np.ones(k), zeros, zeros)
