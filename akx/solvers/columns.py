"""Several right-hand sides as callers give them, the worst of what became of them, and what solved ones tell of others.

Where A x_i = b_i has been solved and b is near to sum c_i b_i, sum c_i x_i is a good first guess for it (Fischer 1998):
equal and dependent columns take hardly a step. Whether they are near is told by their inner products, which are
computed once for all: m n multiplications for each of m columns.

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
from akx.core.errors import ArgumentError, ArgumentTypeError
from akx.operator.start_vectors import is_on_device
from akx.solvers.arguments import GivenVector, misfit

__all__ = ["Columns", "Solved", "columns_in", "worst"]

#: Solved columns help one of which they leave less than this part.
_NEAR = 0.5
#: Directions of right-hand sides, scaled, whose part is smaller than this are left out.
_NEW = 1e-6


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
    """What solved columns tell of others, by the inner products of right-hand sides B (n, m) of the host."""

    def __init__(self, B: NDArray[Any]) -> None:
        B = B if B.dtype.char in "fdFD" else B.astype(complex if B.dtype.kind == "c" else float)
        with np.errstate(all="ignore"):
            G = NumpyVectors(B.dtype).gram(B.T)
            sizes = np.sqrt(G.diagonal().real)
            self._sizes, self._cosines = sizes, G / np.outer(sizes, sizes)
        self._x: dict[int, NDArray[Any]] = {}

    def add(self, j: int, x: NDArray[Any]) -> None:
        """Column j has the solution x."""
        if 0 < self._sizes[j] < np.inf:
            self._x[j] = x

    def guess_for(self, j: int) -> NDArray[Any] | None:
        """The combination of solutions whose right-hand side is nearest to column j; None where it is not near."""
        known = list(self._x)
        if not known or not 0 < self._sizes[j] < np.inf:
            return None
        cosines = self._cosines[known, j]
        parts = np.linalg.lstsq(self._cosines[np.ix_(known, known)], cosines, rcond=_NEW)[0]
        if not 1 - np.vdot(parts, cosines).real < _NEAR**2:
            return None
        parts *= self._sizes[j] / self._sizes[known]
        return np.asarray(sum(part * self._x[i] for part, i in zip(parts, known, strict=True)))
