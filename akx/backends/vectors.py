"""The base class of vector work: what solvers do with vectors, on whatever backend.

Vectors are rows of C-contiguous (m, n) arrays in the memory of the backend. Where work on them is queued
(:attr:`Vectors.on_device`) they are none of NumPy's arrays, and solvers take the queues at the end; else they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_ROWS", "HostVectors", "Vectors"]

#: Rows that an array may have.
MOST_ROWS = 64


class Vectors(ABC):
    """The operations, for vectors of one type; made once per solve by :meth:`akx.backends.base.Backend.vectors`.

    Attributes
    ----------
    backend : str
        Whose these are; powers are computed there.
    dtype : dtype
        float32, float64, complex64 or complex128.
    revision : int
        Raised when choices of solvers would be made anew (:mod:`akx.backends.revisions`).
    on_device : bool
        Whether vectors are in a device's memory, and work on them is queued.
    """

    backend: str
    dtype: np.dtype[Any]
    revision: int = 1
    on_device: bool = False

    @abstractmethod
    def rows(self, count: int, n: int) -> Any:
        """Room for so many vectors, shape (count, n), not filled."""

    @abstractmethod
    def from_host(self, v: NDArray[Any]) -> Any:
        """A host array as one of the backend; `v` itself where it is that."""

    @abstractmethod
    def to_host(self, v: Any) -> NDArray[Any]:
        """A host array with what is in `v`; `v` itself where it is that."""

    @abstractmethod
    def taken(self, v: Any, factor: float = 1.0) -> Any:
        """factor v, rounded, a new vector of this precision; v may be of another one, real as these or complex."""

    @abstractmethod
    def following(self, v: Any, w: Any) -> Any:
        """The two vectors as one (2, n) array where `w` follows `v` in memory, else None."""

    @abstractmethod
    def norm(self, v: Any) -> float:
        """The length of a vector."""

    @abstractmethod
    def divide(self, v: Any, by: float) -> None:
        """v /= by."""

    @abstractmethod
    def add(self, x: Any, factor: complex, v: Any) -> None:
        """x += factor v."""

    @abstractmethod
    def remain(self, b: Any, w: Any) -> float:
        """w = b - w; its norm."""

    @abstractmethod
    def over(self, W: Any) -> Any:
        """The operations of orthogonalisation on the rows of W: products, replace, add, is_zero, factorise."""

    @abstractmethod
    def gram(self, W: Any, first: int = 0) -> NDArray[Any]:
        """Inner products of rows `first`, first + 1, ... of W (m, n) with all rows, (m - first, m)."""

    @abstractmethod
    def combine(self, C: NDArray[Any], W: Any, out: Any, *, add: bool = False) -> Any:
        """out (q, n) = C (q, m) W (m, n), or out += C W; `out` shares no memory with W."""

    @abstractmethod
    def advance(self, C: NDArray[Any], W: Any, x: Any) -> None:
        """x (n,) += C[0] W, and rows q - 1 of W become C[q] W for q = 1 .. len(C) - 1, all of the old W."""

    @abstractmethod
    def dot(self, V: Any, i: int, j: int) -> complex:
        """<v_i, v_j> of rows of V, real for real vectors."""

    @abstractmethod
    def descend(self, V: Any, alpha: complex) -> float:
        """r -= alpha w of V = [p, w, r, x, ...]; the new <r, r>."""

    @abstractmethod
    def turn(self, V: Any, alpha: complex, beta: complex, u: int) -> None:
        """x += alpha p, then p = v_u + beta p, of V = [p, w, r, x, ...]."""

    # Where work is queued.

    def step_queue(self, program: Any, coefficients: Any, V: Any, diagonal: Any = None) -> Any:
        """Steps of conjugate gradients on V = [p, w, r, x, ...], queued ahead of the host."""
        self._not_queued()

    def block_queue(self, program: Any, W: Any, x: Any, s: int) -> Any:
        """Blocks of s steps of them on W = [P, A P, v_0 .. v_s], queued ahead of the host."""
        self._not_queued()

    def rows_queue(self, W: Any, allowed: float, most: int) -> Any:
        """Steps of Arnoldi's process in the rows of W, queued ahead of the host."""
        self._not_queued()

    def advance_block(self, C: NDArray[Any], moved: NDArray[Any], W: Any, x: Any) -> None:
        """The end of a block of s steps of conjugate gradients, on W = [P, A P, v_0 .. v_s] (3 s + 1, n)."""
        self._not_queued()

    def _not_queued(self) -> NoReturn:
        raise NotImplementedError(f"the backend {self.backend} does not queue work on vectors")


class HostVectors(Vectors):
    """What is the same for all vector work of the host, where vectors are NumPy's arrays."""

    backend = "cpu"

    def rows(self, count: int, n: int) -> NDArray[Any]:
        """Room for so many vectors, shape (count, n), not filled."""
        return np.empty((count, n), dtype=self.dtype)

    def from_host(self, v: NDArray[Any]) -> NDArray[Any]:
        """`v` itself: this is the host."""
        return v

    def to_host(self, v: NDArray[Any]) -> NDArray[Any]:
        """`v` itself: this is the host."""
        return v

    def taken(self, v: NDArray[Any], factor: float = 1.0) -> NDArray[Any]:
        """factor v, rounded, a new vector of this precision."""
        with np.errstate(over="ignore", under="ignore"):
            found: NDArray[Any] = np.multiply(v, factor, dtype=np.result_type(v, self.dtype))
            return found.astype(self.dtype, copy=False)

    def divide(self, v: NDArray[Any], by: float) -> None:
        """v /= by."""
        v /= by

    def remain(self, b: NDArray[Any], w: NDArray[Any]) -> float:
        """w = b - w; its norm."""
        np.subtract(b, w, out=w)
        return self.norm(w)
