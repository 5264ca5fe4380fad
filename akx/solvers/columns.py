"""Several right-hand sides as callers give them, the worst of what became of them, and what solved ones tell of others.

Where A x_i = b_i has been solved and b is near to sum c_i b_i, sum c_i x_i is a good first guess for it (Fischer 1998):
equal and dependent columns take hardly a step. Whether they are near is told by inner products with the last 16 solved
ones: 16 n multiplications for each column.

Source: P. F. Fischer, Projection techniques for iterative solution of Ax = b with successive right-hand sides, Comput.
Methods Appl. Mech. Engrg. 163 (1998) 193-204.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu.vectors.numpy_vectors import NumpyVectors
from akx.backends.selection import array_backend, backend_of
from akx.core.arguments import numbers_of
from akx.core.errors import AkxError, ArgumentTypeError
from akx.operator.lookup import canonical
from akx.operator.start_vectors import is_on_device
from akx.solvers.arguments import GivenVector, misfit, not_finite
from akx.solvers.scaling import norm_of

__all__ = ["Columns", "Solved", "columns_in", "read_once", "worst"]

#: Solved columns help one of which they leave less than this part.
_NEAR = 0.5
#: Directions of right-hand sides, scaled, whose part is smaller than this are left out.
_NEW = 1e-6
#: Solved columns that others are compared with: the last ones.
_KEPT = 16


def columns_in(b: Any) -> int | None:
    """m for a right-hand side of shape (n, m), m != 1; None for any other, and for what is no array."""
    if is_on_device(b):
        shape = backend_of(array_backend()).interchange().shape_of(b)
    else:
        try:
            shape = b.shape if isinstance(b, np.ndarray) else numbers_of(b, "b").shape
        except ArgumentTypeError:  # told by who reads it
            return None
    return shape[1] if len(shape) == 2 and shape[1] != 1 else None


def worst(infos: list[int]) -> int:
    """The least one where that is negative, a breakdown; else the largest."""
    least = min(infos, default=0)
    return least if least < 0 else max(infos, default=0)


class Columns(GivenVector):
    """Several vectors of the caller's, of the host or on the device, for a matrix of a shape; a copy of the latter."""

    def __init__(self, v: Any, name: str, shape: tuple[int, ...]) -> None:
        super().__init__(v, name)
        if len(self.shape) != 2 or (len(shape) == 2 and self.shape[0] != shape[0]):
            raise misfit(name, shape[0], self.shape)
        self.given = v
        if not self.on_device:
            if not np.isfinite(self.v).all():
                raise not_finite(name, self.v)
            return
        if self.shape[1]:
            interchange = backend_of(array_backend()).interchange()
            start, _ = interchange.start_of(v, self.shape[0])
            block = interchange.block_of(v, start, self.dtype, name)
            self.v = interchange.copy_of(block, start.stream) if block.pointer == start.pointer else block
            interchange.hand_over(start)

    def column(self, j: int) -> Any:
        """One of them, (n,), where they are."""
        return self.v[j] if self.on_device else self.v[:, j]


def read_once(A: Any, right: Columns, asked: dict[str, Any]) -> Any:
    """The canonical matrix of A, as each solve would read it; A where that cannot be, which the first column tells."""
    is_asked = right.on_device or asked["backend"] == array_backend()
    try:
        if is_asked:
            backend_of(array_backend()).expect(A)
        return canonical(A, threads=asked["threads"], on_device=is_asked)
    except AkxError:
        return A


class Solved:
    """What the last solved columns tell of others, by inner products of the right-hand sides B (n, m) of the host."""

    def __init__(self, B: NDArray[Any]) -> None:
        self._B, self._dtype = B, np.dtype(complex if B.dtype.kind == "c" else float)
        self._kept: list[tuple[NDArray[Any], float, Any]] = []  # b / |b|, |b| and x
        self._G = np.zeros((0, 0), self._dtype)  # their inner products
        self._at: tuple[int, NDArray[Any], float, NDArray[Any]] | None = None  # the column looked at last

    def add(self, j: int, x: NDArray[Any] | None) -> None:
        """Column j has the solution x; None where that is not known yet."""
        v, size, c = self._look(j)
        if not 0 < size < np.inf:
            return
        G = np.block([[self._G, c[:, None]], [c.conj()[None], np.ones((1, 1))]])
        first = max(0, len(G) - _KEPT)
        self._kept, self._G, self._at = [*self._kept, (v, size, x)][first:], G[first:, first:], None

    def guess_for(self, j: int) -> NDArray[Any] | None:
        """The combination of solutions whose right-hand side is nearest to column j; None where it is not near."""
        parts = self._parts(j)
        if parts is None:
            return None
        size = self._look(j)[1]
        with np.errstate(all="ignore"):
            found = sum(part * (size / of) * x for part, (_, of, x) in zip(parts, self._kept, strict=True))
            guess = np.asarray(found).astype(self._kept[0][2].dtype)
        return guess if np.isfinite(guess).all() else None

    def is_near(self, j: int) -> bool:
        """Whether a combination of the right-hand sides that were added is near to column j."""
        return self._parts(j) is not None

    def _parts(self, j: int) -> NDArray[Any] | None:
        """How much of each, over their norms, is in the nearest one; None where it is not near."""
        _, size, c = self._look(j)
        if not self._kept or not 0 < size < np.inf:
            return None
        parts = np.linalg.lstsq(self._G, c, rcond=_NEW)[0]
        return parts if 1 - np.vdot(parts, c).real < _NEAR**2 else None

    def _look(self, j: int) -> tuple[NDArray[Any], float, NDArray[Any]]:
        """b / |b| for column j, |b|, and the inner products of the kept ones with it."""
        if self._at is None or self._at[0] != j:
            b: NDArray[Any] = np.array(self._B[:, j], dtype=self._dtype)
            size, work = norm_of(b), NumpyVectors(self._dtype)
            v = np.divide(b, size or 1.0)
            pairs: Any = [(u, v) for u, *_ in self._kept]
            self._at = j, v, size, np.array([work.dot(pair, 0, 1) for pair in pairs], dtype=self._dtype)
        return self._at[1:]
