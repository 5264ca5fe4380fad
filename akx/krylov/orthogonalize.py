"""Orthonormal rows: blocks of vectors, or one vector, against all before and each other.

W of shape (m, n) holds vectors as rows; the first k are orthonormal, Q. A block V of s rows behind them becomes, with C
of shape (k, s) and R upper triangular, V^T = Q^T C + Q_new^T R (block classical Gram-Schmidt, with CholQR within the
block; one row is a block of one). One pass over memory brings C = conj(Q) V^T and G = conj(V) V^T. By Pythagoras the
part of V that is orthogonal to Q has the Gram matrix G - C^H C = R^H R, so that the pass that subtracts Q^T C also
divides by R (BCGS-PIP; Carson, Lund, Rozloznik, Thomas 2021). Where that matrix is not safely positive definite, V is
projected first and factorised by Householder reflections.

Let delta be a bound of how far Q is from orthonormal, and kappa of how much shorter than V its independent parts are,
from R scaled by the norms of V. The new rows then lose about kappa delta + kappa^2 eps. Where that is less than
sqrt(eps), they are taken as they are: GMRES needs independent vectors, not orthogonality to the last bit (Giraud,
Langou 2002). Where it is more, the pass that makes the new rows also computes their products, so that the loss is
known, and where it is too large all is done again (BCGS2, CholQR2).

Memory movement, in words: two passes that read (k + s) n, the second one writing s n; a third of the second kind where
the loss was too large. Flops: 4 (k + s) s n, 2 (k + s) s n more to measure the loss
(:mod:`akx.backends.cpu.vectors.orthogonalisation`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import jit_later

__all__ = ["Block", "Orthogonalizer", "condition_of_block", "condition_of_columns", "invert_upper"]

#: Vectors as rows: a NumPy array, or a DeviceArray.
Rows = Any

_ROUNDS = 5
#: Most that rounding errors in G - C^H C may be, relative to its least eigenvalue, for R to be taken from it.
_SAFE = 1e-2


@dataclass(frozen=True)
class Block:
    """How a block of s rows V is made of the orthonormal ones: V^T = Q^T C + Q_new^T R.

    C (k, s); R (s, s), upper triangular; norms (s,), lengths of the rows of V. The block ends, with a smaller s, before
    the first row that is zero or not finite.
    """

    C: NDArray[Any]
    R: NDArray[Any]
    norms: NDArray[np.float64]


class Orthogonalizer:
    """Makes the rows of W, (m, n), orthonormal in place from the first to the last.

    They may be `loss` from it, by default sqrt(eps) of their type. `work` is that of the backend that W is on, by
    default the host's. The attribute ``loss`` is the estimate of what they are so far; it is 0 for a new basis.
    """

    def __init__(self, W: Rows, loss: float | None = None, work: Any = None) -> None:
        self.W = W
        if work is None:
            from akx.backends.cpu.vectors.orthogonalisation import BlockWork

            self.work: Any = BlockWork(W)
        else:
            self.work = work.over(W)
        self.eps = float(np.finfo(W.dtype).eps)
        self.allowed = self.eps**0.5 if loss is None else max(loss, 20 * self.eps)
        self.loss = 0.0

    def append(self, k: int) -> tuple[NDArray[Any], float]:
        """Row k becomes orthonormal to those before it: c (k,) and r.

        r is 0 where the row depends on those before it, up to rounding errors, or is zero, and then of no use. It is
        not finite where the row is not.
        """
        block = self.append_block(k, 1)
        if block.norms.size == 0:
            return np.zeros(k, dtype=block.C.dtype), 0.0 if self.work.is_zero(k) else float("nan")
        r = float(np.real(block.R[0, 0]))
        return block.C[:, 0], r if r > 10 * self.eps * block.norms[0] else 0.0

    def append_block(self, k: int, s: int) -> Block:
        """Rows k .. k+s-1 become orthonormal to those before them and to each other.

        Rows that depend on those before them up to rounding errors become some rows orthogonal to them, and the
        diagonal of R is tiny there: look at :func:`condition_of_block` before using them.
        """
        kind = np.dtype(np.complex128 if self.W.dtype.kind == "c" else np.float64)
        C, R = np.zeros((k, s), dtype=kind), np.eye(s, dtype=kind)
        both = self.work.products(k, s)
        norms = lengths = np.sqrt(np.maximum(np.real(np.diagonal(both[k:])), 0.0))
        good = np.isfinite(lengths) & (lengths > 0)
        if not good.all():
            first = int(np.argmin(good))
            return self.append_block(k, first) if first else Block(C[:, :0], R[:0, :0], norms[:0])
        for turn in range(_ROUNDS):
            part, G = both[:k], both[k:]
            if turn > 0:
                loss = max(float(np.abs(part).max(initial=0.0)), float(np.abs(G - np.eye(s)).max()))
                if loss <= self.allowed:
                    break
                lengths = np.sqrt(np.real(np.diagonal(G)))
            upper = _cholesky(G - part.conj().T @ part, lengths)
            kappa = np.inf if upper is None else float(np.linalg.norm(invert_upper(upper / lengths)))
            loss = kappa * self.loss + self.eps * kappa**2
            if upper is not None and self.eps * kappa**2 < _SAFE:
                inverse = invert_upper(upper)
                both = self.work.replace(k, s, np.concatenate([-part @ inverse, inverse]), check=loss > self.allowed)
            else:
                upper = self._project(k, s, part).astype(kind)
                both = self.work.products(k, s)
            C = C + part @ R
            R = upper @ R
            if loss <= self.allowed or not np.isfinite(both).all():
                break
        self.loss = max(self.loss, loss)
        return Block(C, R, norms)

    def _project(self, k: int, s: int, C: NDArray[Any]) -> NDArray[Any]:
        """Rows k .. k+s-1 minus Q^T C, orthonormal by Householder reflections; R with a real diagonal >= 0."""
        for j, c in enumerate(C.T):
            self.work.add(-c, self.W[k + j])
        upper: NDArray[Any] = self.work.factorise(k, s)
        return upper


def condition_of_columns(T: NDArray[Any], norms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Condition numbers (s,) of ``T[:j+1, :j+1] / norms[:j+1]``, T (s, s) upper triangular, in the Frobenius norm.

    That is within a factor of s of the usual one; Inf from the first column that is zero or not finite.
    """
    found = np.full(norms.size, np.inf)
    _conditions(T, norms, found)
    return found


def condition_of_block(block: Block, k: int) -> NDArray[np.float64]:
    """The same (s,) of q_k and v_1 .. v_{j+1}, q_k being the row, of length 1, that the block was made of."""
    found = np.full(block.norms.size + 1, np.inf)
    _conditions_with(block.C, block.R, block.norms, k, found)
    return found[1:]


@jit_later
def _conditions_with(C: Any, R: Any, norms: Any, k: int, found: Any) -> None:
    s = norms.size
    T, lengths = np.zeros((s + 1, s + 1), dtype=R.dtype), np.ones(s + 1)
    T[0, 0] = 1
    for j in range(s):
        lengths[j + 1] = norms[j]
        T[0, j + 1] = C[k, j]
        for i in range(j + 1):
            T[i + 1, j + 1] = R[i, j]
    _conditions(T, lengths, found)


@jit_later
def _conditions(T: Any, norms: Any, found: Any) -> None:
    """:func:`condition_of_columns`; the inverse of a leading part is the leading part of the inverse."""
    s = norms.size
    inverse = np.zeros_like(T)
    own = other = 0.0
    for j in range(s):
        if not (np.isfinite(norms[j]) and norms[j] > 0 and abs(T[j, j]) > 0):
            return
        for i in range(j + 1):
            own += (abs(T[i, j]) / norms[j]) ** 2
        if not np.isfinite(own):
            return
        for i in range(j, -1, -1):
            value = T.dtype.type(1 if i == j else 0)
            for q in range(i + 1, j + 1):
                value -= T[i, q] * inverse[q, j]
            inverse[i, j] = value / T[i, i]
            other += (abs(inverse[i, j]) * norms[i]) ** 2
        found[j] = np.sqrt(own * other) if np.isfinite(other) else np.inf


def _cholesky(S: NDArray[Any], lengths: NDArray[np.float64]) -> NDArray[Any] | None:
    """R with S = R^H R; None where S is not positive definite. Scaled by the lengths of rows."""
    if not np.isfinite(S).all():
        return None
    try:
        lower = np.linalg.cholesky(S / np.outer(lengths, lengths))
    except np.linalg.LinAlgError:
        return None
    return np.asarray(lower.conj().T * lengths)


def invert_upper(R: NDArray[Any]) -> NDArray[Any]:
    """The inverse of an upper triangle, (s, s), by back substitution; exact zeros below."""
    inverse = np.zeros_like(R)
    _invert(R, inverse)
    return inverse


@jit_later
def _invert(R: Any, inverse: Any) -> None:
    for j in range(R.shape[0]):
        for i in range(j, -1, -1):
            value = R.dtype.type(1 if i == j else 0)
            for q in range(i + 1, j + 1):
                value -= R[i, q] * inverse[q, j]
            inverse[i, j] = value / R[i, i]
