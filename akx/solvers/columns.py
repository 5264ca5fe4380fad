"""Several right-hand sides as callers give them, the worst of what became of them, and what solved ones tell of others.

Where A x_i = b_i has been solved and b is near to sum c_i b_i, sum c_i x_i is a good first guess for it (Fischer 1998):
equal and dependent columns take hardly a step. The b_i are made orthonormal as they come, and the x_i with them: 4 m n
multiplications for the m-th column, and 2 m vectors of n words.

Source: P. F. Fischer, Projection techniques for iterative solution of Ax = b with successive right-hand sides, Comput.
Methods Appl. Mech. Engrg. 163 (1998) 193-204.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from akx.backends.selection import array_backend, backend_of
from akx.core.errors import ArgumentError
from akx.operator.start_vectors import is_on_device
from akx.solvers.arguments import GivenVector, misfit

__all__ = ["Columns", "Solved", "columns_in", "worst"]

#: Solved columns help one of which they leave less than this part.
_NEAR = 0.5
#: A column is of use to others where those before leave this part of it.
_NEW = 1e-2


def columns_in(b: Any) -> int | None:
    """m for a right-hand side of shape (n, m), m != 1; None for any other, and for what is no array."""
    if is_on_device(b):
        shape = backend_of(array_backend()).interchange().shape_of(b)
    elif issparse(b) or (isinstance(b, (list, tuple)) and (not b or np.ndim(b[0]) == 0)):
        return None
    else:
        try:
            shape = np.shape(b)
        except ValueError:  # ragged: told by who reads it
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
                raise ArgumentError(f"{name} is not finite", expected="no NaN or Inf", found=f"in {self.dtype}")
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


class Solved:
    """What solved columns tell of others: rows q_i, orthonormal, and y_i with A y_i = q_i, about."""

    def __init__(self) -> None:
        self._q: list[NDArray[Any]] = []
        self._y: list[NDArray[Any]] = []

    def add(self, b: NDArray[Any], x: NDArray[Any]) -> None:
        """A x = b, about."""
        size = float(np.linalg.norm(b))
        if not 0 < size < np.inf:
            return
        q, y = b / size, x / size
        for other, known in zip(self._q, self._y, strict=True):
            c = np.vdot(other, q)
            q, y = q - c * other, y - c * known
        left = float(np.linalg.norm(q))
        if left > _NEW:
            self._q.append(q / left)
            self._y.append(y / left)

    def guess_for(self, b: NDArray[Any]) -> NDArray[Any] | None:
        """The combination of solutions that is nearest to that for b; None where it is not near."""
        if not self._q:
            return None
        size = float(np.linalg.norm(b))
        parts = [np.vdot(q, b) for q in self._q]
        left = np.linalg.norm(b - sum(c * q for c, q in zip(parts, self._q, strict=True)))
        if not 0 < left + size < np.inf or left >= _NEAR * size:
            return None
        found = sum(c * y for c, y in zip(parts, self._y, strict=True))
        return np.asarray(found)
