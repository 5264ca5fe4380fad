"""Vector work of the host by NumPy alone: for solves that are over before compiled code would be there.

It gives way to another one for good, in the middle of a solve too: vectors are NumPy's arrays in both. Inner products
go through vectors in pieces for which BLAS starts no threads of its own: on a busy machine these wait for one another.
Updates go through pieces that stay in a cache, with what is made on the way. Of squares that overflow ``np.vdot`` says
nothing, unlike ``dot``: callers look at the norm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from akx.backends.householder import orthonormal_rows
from akx.backends.vectors import HostVectors, Vectors

__all__ = ["NumpyBlocks", "NumpyVectors"]

#: Entries of a piece of one vector, in inner products and in updates, and multiplications of a piece of several.
_PIECE, _PASS, _WORK = 10_000, 32768, 200_000
#: For what ``matmul`` would warn of.
_quietly = np.errstate(over="ignore", invalid="ignore")
_matmul = _quietly(np.matmul)


class NumpyVectors(HostVectors):
    """The operations, for vectors of one type.

    `dtype`: float32, float64, complex64 or complex128.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self._is_real = self.dtype.kind == "f"

    def give_way(self, other: Vectors) -> None:
        """Have `other` do everything from now on."""
        names = (name for name in vars(NumpyVectors) if not name.startswith("_"))
        self.__dict__.update({name: getattr(other, name) for name in names if callable(getattr(other, name, None))})

    def following(self, v: NDArray[Any], w: NDArray[Any]) -> NDArray[Any] | None:
        """None: nothing here is quicker with two vectors in one array."""
        return None

    def norm(self, v: NDArray[Any]) -> float:
        if self._is_real and v.size <= _PIECE:
            return math.sqrt(np.vdot(v, v))
        return math.sqrt(_dot(v, v).real)

    def add(self, x: NDArray[Any], factor: complex, v: NDArray[Any]) -> None:
        factor = factor.real if self._is_real else complex(factor)
        if x.size <= _PASS:
            x += factor * v
            return
        for piece in _pieces(x.size, _PASS):
            x[piece] += factor * v[piece]

    def over(self, W: NDArray[Any]) -> NumpyBlocks:
        return NumpyBlocks(W)

    def gram(self, W: NDArray[Any], first: int = 0) -> NDArray[Any]:
        found = _products(W[first:], W)
        return found if first else (found + found.conj().T) / 2

    @_quietly
    def combine(self, C: NDArray[Any], W: NDArray[Any], out: NDArray[Any], *, add: bool = False) -> NDArray[Any]:
        C = C.astype(self.dtype, copy=False)
        for piece in _pieces(W.shape[1], _WORK // max(1, C.size)):
            made = C @ W[:, piece]
            out[:, piece] = out[:, piece] + made if add else made
        return out

    @_quietly
    def advance(self, C: NDArray[Any], W: NDArray[Any], x: NDArray[Any]) -> None:
        C = C.astype(self.dtype, copy=False)
        for piece in _pieces(x.size, _WORK // max(1, C.size)):
            made = C @ W[:, piece]
            x[piece] += made[0]
            W[: len(C) - 1, piece] = made[1:]

    def dot(self, V: NDArray[Any], i: int, j: int) -> complex:
        v, w = V[i], V[j]
        if self._is_real and v.size <= _PIECE:
            return float(np.vdot(v, w))
        return _dot(v, w)

    def descend(self, V: NDArray[Any], alpha: complex) -> float:
        r = V[2]
        if self._is_real and r.size <= _PIECE:
            r -= alpha.real * V[1]
            return float(np.vdot(r, r))
        self.add(r, -alpha, V[1])
        return _dot(r, r).real

    def turn(self, V: NDArray[Any], alpha: complex, beta: complex, u: int) -> None:
        if self._is_real:
            alpha, beta = alpha.real, beta.real
        p, x, v = V[0], V[3], V[u]
        if p.size <= _PASS:
            x += alpha * p
            p *= beta
            p += v
            return
        for piece in _pieces(p.size, _PASS):
            part = p[piece]
            x[piece] += alpha * part
            part *= beta
            part += v[piece]


class NumpyBlocks:
    """The operations of orthogonalisation on the rows of W (m, n), C-contiguous."""

    def __init__(self, W: NDArray[Any]) -> None:
        self.W = W

    def products(self, k: int, s: int) -> NDArray[Any]:
        """conj(W[:k+s]) W[k:k+s]^T, (k+s, s), in float64 or complex128."""
        return _products(self.W[: k + s], self.W[k : k + s])

    @_quietly
    def replace(self, k: int, s: int, F: NDArray[Any], *, check: bool = False) -> NDArray[Any]:
        """Rows k .. k+s-1 become F^T W[:k+s], F (k+s, s); with `check`, the products of the new ones."""
        upper = F.T.astype(self.W.dtype, copy=False)
        for piece in _pieces(self.W.shape[1], _WORK // max(1, F.size)):
            self.W[k : k + s, piece] = upper @ self.W[: k + s, piece]
        return self.products(k, s) if check else np.zeros((k + s, s))

    @_quietly
    def add(self, y: NDArray[Any], x: NDArray[Any]) -> None:
        """x (n,) += sum_j y[j] W[j], y (j,)."""
        y = y.astype(self.W.dtype, copy=False)
        for piece in _pieces(x.size, _WORK // max(1, y.size)):
            x[piece] += y @ self.W[: y.size, piece]

    def is_zero(self, k: int) -> bool:
        """Whether all entries of row k are zero."""
        return not self.W[k].any()

    def factorise(self, k: int, s: int) -> NDArray[Any]:
        """Rows k .. k+s-1 become orthonormal by Householder reflections; the triangle (s, s)."""
        self.W[k : k + s], upper = orthonormal_rows(self.W[k : k + s])
        return upper


def _pieces(n: int, size: int) -> Iterator[slice]:
    size = max(size, 64)
    return (slice(start, start + size) for start in range(0, n, size))


def _dot(v: NDArray[Any], w: NDArray[Any]) -> complex:
    """<v, w>, the first conjugated; pieces are added up in double precision."""
    n, is_real = v.size, v.dtype.kind != "c"
    if n <= _PIECE:
        return float(np.vdot(v, w)) if is_real else complex(np.vdot(v, w))
    if not is_real:
        return sum((np.vdot(v[piece], w[piece]).item() for piece in _pieces(n, _PIECE)), 0.0)
    count = -(-n // _PIECE)
    size, left = divmod(n, count)
    whole = n - left
    each = _matmul(v[:whole].reshape(count, 1, size), w[:whole].reshape(count, size, 1))
    return sum(each.reshape(-1).tolist(), float(np.vdot(v[whole:], w[whole:])) if left else 0.0)


@_quietly
def _products(V: NDArray[Any], W: NDArray[Any]) -> NDArray[Any]:
    """conj(V) W^T in float64 or complex128."""
    total = np.zeros((len(V), len(W)), dtype=np.result_type(V.dtype, np.float64))
    for piece in _pieces(V.shape[1], _WORK // max(1, total.size)):
        total += V[:, piece].conj() @ W[:, piece].T
    return total
