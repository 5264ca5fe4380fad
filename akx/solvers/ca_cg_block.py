"""What communication-avoiding CG does in coordinates: s steps with small matrices, and Ritz values from coefficients.

Nothing here touches a vector of n entries. All of it is in double precision, whatever the vectors are in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal

from akx.basis import Basis
from akx.kernels.cpu.jit import jit
from akx.solvers.bases import basis_from_ritz

__all__ = ["Block", "Shifts", "block_steps", "recurrence_matrix"]

#: An inner product counts where it is at least this power of eps times the sum of its terms' moduli: 2e-7 in double
#: precision. Errors let further copies of converged Ritz values come sooner, and each costs a step: with 2e-9 / 2e-8 /
#: 2e-7 / 2e-6 and s = 8, 662_bus takes 1.15 / 1.11 / 1.08 / 1.05 times the steps of CG, nasa4704 1.15 / 1.11 / 1.07 /
#: 1.03, and bcsstk16 blocks of 6.7 / 4.6 / 3.9 / 3.4 steps on average.
_TRUST = 0.425
#: Coefficients that are kept: the largest Ritz values of so many steps have long settled.
_KEPT = 128


@dataclass(frozen=True)
class Block:
    """Steps done in coordinates of a basis of m vectors.

    Attributes
    ----------
    made : int
        Steps.
    C : (3, m) array
        Coordinates of the change of x, of the new p and of the new r.
    norms, alphas, betas : (made,) arrays of float64
        The residual's norm after each step, and the step's coefficients.
    """

    made: int
    C: NDArray[Any]
    norms: NDArray[np.float64]
    alphas: NDArray[np.float64]
    betas: NDArray[np.float64]


def recurrence_matrix(basis: Basis, dtype: Any) -> NDArray[Any]:
    """T (m, m), m = 2 s + 1, with A W^T q = W^T T q for W = [p_0 p, p_0 r, .., p_{s-1} r, p_s p] and degrees below s.

    The columns of p_s(A) p and p_{s-1}(A) r are zero: no step asks for them.
    """
    s, B = basis.k, basis.matrix()
    T = np.zeros((2 * s + 2, 2 * s + 2), dtype=np.result_type(dtype, B.dtype))
    T[::2, : 2 * s : 2] = B
    T[1::2, 1 : 2 * s - 2 : 2] = B[:, : s - 1]
    return np.ascontiguousarray(T[:-1, :-1])


def block_steps(G: NDArray[Any], T: NDArray[Any], most: int, target: float, eps: float) -> Block:
    """Up to `most` steps of CG from p' = e_0, r' = e_1.

    They end where the residual's norm is at most `target`, and before a step whose inner products cannot be trusted.

    Parameters
    ----------
    G, T : (m, m) arrays of float64 or complex128
        The Gram matrix, and :func:`recurrence_matrix`.
    eps : float
        Relative rounding error of the vectors.
    """
    trust = eps**_TRUST
    kind = np.result_type(G, T)
    C = np.zeros((3, G.shape[0]), dtype=kind)
    history = np.zeros((3, max(most, 1)))
    made = _steps(G.astype(kind, copy=False), T.astype(kind, copy=False), most, target**2, trust, C, history)
    return Block(made, C, np.sqrt(history[0, :made]), history[1, :made], history[2, :made])


@jit
def _form(G: Any, a: Any, b: Any) -> Any:
    """The real part of <a, b>_G, and the sum of its terms' moduli."""
    value, size = 0.0, 0.0
    for i in range(a.size):
        if a[i] != 0:
            for j in range(b.size):
                term = np.conj(a[i]) * G[i, j] * b[j]
                value += term.real
                size += abs(term)
    return value, size


@jit
def _steps(G: Any, T: Any, most: int, goal: float, trust: float, C: Any, history: Any) -> int:
    """The steps; C (3, m) zeros at first, history (3, most): gamma, alpha, beta of each."""
    m = G.shape[0]
    x, p, r = C[0], C[1], C[2]
    p[0], r[1] = 1.0, 1.0
    q = np.zeros_like(x)
    trial = np.zeros_like(x)
    gamma = G[1, 1].real
    for step in range(most):
        for i in range(m):
            q[i] = 0
            for j in range(m):
                q[i] += T[i, j] * p[j]
        curvature, size = _form(G, p, q)
        if not curvature > trust * size:
            return step
        alpha = gamma / curvature
        for i in range(m):
            trial[i] = r[i] - alpha * q[i]
        after, size = _form(G, trial, trial)
        if not after > trust * size:
            return step
        beta = after / gamma
        for i in range(m):
            x[i] += alpha * p[i]
            r[i] = trial[i]
            p[i] = r[i] + beta * p[i]
        history[0, step], history[1, step], history[2, step] = after, alpha, beta
        gamma = after
        if gamma <= goal:
            return step + 1
    return most


class Shifts:
    """Ritz values from the coefficients of CG's first steps, and the bases made of them."""

    def __init__(self, kind: str, *, real: bool) -> None:
        self.kind = kind
        self.largest = 0.0
        self._real = real
        self._alphas: list[float] = []
        self._betas: list[float] = []
        self._is_open = True
        self._used = 0
        self._bases: dict[int, Basis] = {}

    def add(self, alphas: Any, betas: Any) -> None:
        """Coefficients of steps that follow those before."""
        if self._is_open:
            self._alphas += [float(a) for a in alphas]
            self._betas += [float(b) for b in betas]
            self._is_open = len(self._alphas) < _KEPT

    def close(self) -> None:
        """The directions have begun anew: what follows is not of the same Lanczos matrix."""
        self._is_open = False

    def ritz(self) -> NDArray[np.float64]:
        """The eigenvalues of the Lanczos matrix, ascending."""
        a, b = np.array(self._alphas), np.array(self._betas)
        diagonal = 1 / a
        diagonal[1:] += b[:-1] / a[:-1]
        found: NDArray[np.float64] = eigvalsh_tridiagonal(diagonal, np.sqrt(b[:-1]) / a[:-1])
        return found

    def basis(self, s: int) -> Basis:
        """A basis of s steps, renewed when twice as many coefficients are known, or no more are to come."""
        count = len(self._alphas)
        if count >= 2 * self._used or not self._used:
            self._used, self._bases = count, {}
        if s not in self._bases:
            values = self.ritz() if count else np.ones(1)
            self.largest = float(values[-1])
            self._bases[s] = basis_from_ritz(self.kind, values, s, real=self._real)
        return self._bases[s]
