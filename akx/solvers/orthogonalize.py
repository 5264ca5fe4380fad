r"""Orthonormal rows: one vector after another by classical Gram-Schmidt, or blocks of vectors against all before.

W of shape (m, n) holds vectors as rows; the first k are orthonormal, Q. A single row w behind them becomes

    w = Q^T c + r q,    c = conj(Q) w,

(CGS), and a block V of s rows behind them, with C of shape (k, s) and R upper triangular,

    V^T = Q^T C + Q_new^T R

(block classical Gram-Schmidt, with CholQR within the block). Both need the sums of products of all rows with the new
ones, C = conj(Q) V^T and G = conj(V) V^T, in one pass: by Pythagoras the part of V that is orthogonal to Q has the Gram
matrix G - C^H C = R^H R, so that the pass that subtracts Q^T C also divides by R (BCGS-PIP; Carson, Lund, Rozloznik,
Thomas 2021). Where that matrix is not safely positive definite, V is projected first and factorised by Householder
reflections; where what is left is too far from orthonormal, all of it is done again (BCGS2, CholQR2).

When is it done again? Let delta be a bound of how far Q is from orthonormal, and kappa of how much shorter than V its
independent parts are, from R scaled by the norms of V. The new rows then lose about kappa delta + kappa^2 eps, and
another round is only worth its time where that is more than sqrt(eps): GMRES needs independent vectors and the residual
estimate to a few digits, not orthogonality to the last bit (Giraud, Langou 2002). From the second round on the loss is
measured, not estimated: it is what the products show.

Memory movement, in words: a round reads (k + s) n twice and writes s n. Flops: 4 (k + s) s n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs

__all__ = ["Block", "Orthogonalizer", "condition_of_columns", "gram"]

_ROUNDS = 5
#: Entries of each row that are worked on at a time where a block is replaced in place.
_CHUNK = 8192


@dataclass(frozen=True)
class Block:
    """How a block of s rows V is made of the orthonormal ones: V^T = Q^T C + Q_new^T R.

    Attributes
    ----------
    C : (k, s) array of float64 or complex128
    R : (s, s) array, upper triangular
    norms : (s,) array of float64
        Lengths of the rows of V.

    The block ends, with a smaller s, before the first row that is zero or not finite.
    """

    C: NDArray[Any]
    R: NDArray[Any]
    norms: NDArray[np.float64]


class Orthogonalizer:
    """Makes the rows of W orthonormal from the first to the last.

    Parameters
    ----------
    W : (m, n) array, C-contiguous
        Changed in place.
    loss : float, optional
        How far from orthonormal rows may be; sqrt(eps) of their type by default.

    Attributes
    ----------
    loss : float
        The estimate of how far the rows so far are from orthonormal; set it to 0 when a new basis is begun.
    """

    def __init__(self, W: NDArray[Any], loss: float | None = None) -> None:
        self.W = W
        self.eps = float(np.finfo(W.dtype).eps)
        self.allowed = self.eps**0.5 if loss is None else loss
        self.loss = 0.0

    def append(self, k: int) -> tuple[NDArray[Any], float]:
        """Row k becomes orthonormal to those before it.

        Returns
        -------
        c : (k,) array
        r : float
            0 where the row depends on those before it, up to rounding errors; it is then not normalised.
        """
        Q, w = self.W[:k], self.W[k]
        before = _length(w)
        c = np.zeros(k, dtype=_wide(self.W.dtype))
        length, floor = before, 10 * self.eps * before
        for _ in range(_ROUNDS):
            part = (Q @ w.conj()).conj()
            w -= part @ Q
            c += part
            last, length = length, _length(w)
            if not length > floor:  # NaN too
                return c, 0.0 if np.isfinite(length) else length
            loss = (self.loss * float(np.linalg.norm(part)) + self.eps * last) / length
            if loss <= self.allowed:
                break
        self.loss = max(self.loss, loss)
        w /= length
        return c, length

    def append_block(self, k: int, s: int) -> Block:
        """Rows k .. k+s-1 become orthonormal to those before them and to each other.

        Rows that depend on those before them up to rounding errors become some rows orthogonal to them, and the
        diagonal of R is tiny there: look at :func:`condition_of_columns` before using them.
        """
        W, kind = self.W, _wide(self.W.dtype)
        C, R = np.zeros((k, s), dtype=kind), np.eye(s, dtype=kind)
        norms = np.zeros(s)
        for turn in range(_ROUNDS):
            both = gram(W[: k + s], W[k : k + s])
            part, G = both[:k], both[k:]
            lengths = np.sqrt(np.real(np.diagonal(G)))
            if turn == 0:
                good = np.isfinite(lengths) & (lengths > 0)
                if not good.all():
                    first = int(np.argmin(good))
                    return self.append_block(k, first) if first else Block(C[:, :0], R[:0, :0], norms[:0])
                norms = lengths
            else:
                off = max(float(np.abs(part).max(initial=0.0)), float(np.abs(G - np.eye(s)).max()))
                if off <= self.allowed:
                    self.loss = max(self.loss, off)
                    break
            upper = _cholesky(G - part.conj().T @ part, lengths)
            kappa = np.inf if upper is None else _inverse_norm(upper / lengths)
            if upper is not None and self.eps * kappa**2 < 1e-2:
                inverse = _invert(upper)
                _replace(W[: k + s], np.concatenate([-part @ inverse, inverse]), s)
                loss = kappa * self.loss + self.eps * kappa**2
            else:
                W[k : k + s] -= part.T.astype(W.dtype) @ W[:k]
                rows, upper = np.linalg.qr(W[k : k + s].T)
                W[k : k + s] = rows.T
                upper = upper.astype(kind)
                loss = np.inf
            C += part @ R
            R = upper @ R
            if loss <= self.allowed or not np.isfinite(R).all():
                self.loss = max(self.loss, loss)
                break
        return Block(C, R, norms)


def condition_of_columns(T: NDArray[Any], norms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Condition numbers of the leading columns of a triangle, each column divided by the norm of what it came from.

    Parameters
    ----------
    T : (s, s) array, upper triangular
    norms : (s,) array

    Returns
    -------
    (s,) array
        Entry j is that of ``T[:j+1, :j+1] / norms[:j+1]`` in the Frobenius norm, which is within a factor of s of the
        usual one; Inf from the first column that is zero or not finite.
    """
    found = np.full(norms.size, np.inf)
    diagonal = np.abs(np.diagonal(T))
    bad = ~(np.isfinite(norms) & (norms > 0) & np.isfinite(T).all(axis=0) & (diagonal > 0))
    s = int(np.argmax(bad)) if bad.any() else norms.size
    if s:
        X = T[:s, :s] / norms[:s]
        with np.errstate(over="ignore", invalid="ignore"):
            inverse = _invert(X)
            # The inverse of a leading part is the leading part of the inverse.
            squares = [np.cumsum(np.sum(np.abs(Y) ** 2, axis=0)) for Y in (X, inverse)]
            found[:s] = np.sqrt(squares[0] * squares[1])
    found[np.isnan(found)] = np.inf
    return found


def gram(W: NDArray[Any], V: NDArray[Any]) -> NDArray[Any]:
    """conj(W) V^T, (m, s), in float64 or complex128, of rows (m, n) and (s, n), each C-contiguous; no copies."""
    (multiply,) = get_blas_funcs(("gemm",), (W,))
    found = multiply(1.0, W.T, V.T, trans_a=2 if W.dtype.kind == "c" else 1)
    return np.ascontiguousarray(found, dtype=_wide(W.dtype))


def _replace(W: NDArray[Any], combination: NDArray[Any], s: int) -> None:
    """The last s rows of W (m, n) become combination^T W, combination of shape (m, s)."""
    factors = np.ascontiguousarray(combination.T, dtype=W.dtype)
    for first in range(0, W.shape[1], _CHUNK):
        part = W[:, first : first + _CHUNK]
        part[-s:] = factors @ part


def _cholesky(S: NDArray[Any], lengths: NDArray[np.float64]) -> NDArray[Any] | None:
    """R with S = R^H R; None where S is not positive definite. Scaled by the lengths of rows."""
    if not (np.isfinite(S).all() and (lengths > 0).all()):
        return None
    try:
        lower = np.linalg.cholesky(S / np.outer(lengths, lengths))
    except np.linalg.LinAlgError:
        return None
    return np.asarray(lower.conj().T * lengths)


def _invert(R: NDArray[Any]) -> NDArray[Any]:
    """The inverse of an upper triangle, (s, s), by back substitution; exact zeros below."""
    s = R.shape[0]
    inverse = np.zeros_like(R)
    for j in range(s):
        inverse[j, j] = 1 / R[j, j]
        inverse[:j, j] = -inverse[:j, :j] @ R[:j, j] * inverse[j, j]
    return inverse


def _inverse_norm(R: NDArray[Any]) -> float:
    return float(np.linalg.norm(_invert(R)))


def _length(w: NDArray[Any]) -> float:
    return float(np.sqrt(np.real(np.vdot(w, w))))


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.complex128 if dtype.kind == "c" else np.float64)
