"""The small least-squares problem of GMRES, min ||beta e_1 - H y||, by Givens rotations, one column of H after another.

H of shape (j+1, j) is upper Hessenberg. Each column meets the rotations of those before it and gets one more that
removes its last entry; the last entry of the rotated right-hand side g is then, in modulus, the least residual with
that column included (Saad, Schultz 1986, sec. 3.2). About 6 j operations on numbers of Python for column j, which are
faster than NumPy's on numbers one by one. Everything is done in double precision.
"""

from __future__ import annotations

from math import hypot
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["HessenbergQR"]

#: A column whose independent part is smaller than this, relative to it, depends on those before it.
_DEPENDENT = 10 * float(np.finfo(float).eps)
#: Most that rounding errors in H, times y, may be, relative to the right-hand side.
_RULED = 1e-3


class HessenbergQR:
    """H = Q R, column by column, and g = Q^H beta e_1.

    Parameters
    ----------
    beta : float
        Norm of the residual that the cycle begins with.

    Attributes
    ----------
    columns : list of (j+2,) arrays
        The columns of H as they came, j = 0, 1, ...
    residual : float
        The least residual with the columns so far.
    """

    def __init__(self, beta: float) -> None:
        self.columns: list[NDArray[Any]] = []
        self._rotated: list[list[Any]] = []
        self._cosines: list[float] = []
        self._sines: list[Any] = []
        self._g: list[Any] = [beta]
        self.residual = beta

    @property
    def size(self) -> int:
        """Columns so far."""
        return len(self.columns)

    def append(self, column: NDArray[Any]) -> float:
        """Add column j, (j+2,), float64 or complex128; the residual's norm with it."""
        self.columns.append(column)
        h = column.tolist()
        j = len(h) - 2
        above = h[0]
        for i in range(j):
            c, s, below = self._cosines[i], self._sines[i], h[i + 1]
            h[i] = c * above + s * below
            above = c * below - s.conjugate() * above
        c, s, h[j] = _rotation(above, h[j + 1])
        self._rotated.append(h[: j + 1])
        self._cosines.append(c)
        self._sines.append(s)
        g = self._g
        last = g[j]
        g[j] = c * last
        g.append(-s.conjugate() * last)
        if abs(h[j]) > _DEPENDENT * max(map(abs, h)):
            self.residual = abs(g[-1])
        else:  # the column depends on those before it and takes nothing off
            self.residual = abs(last)
        return self.residual

    def matrix(self) -> NDArray[Any]:
        """H, (j+1, j)."""
        H = np.zeros((self.size + 1, self.size), dtype=np.result_type(np.float64, *self.columns))
        for j, column in enumerate(self.columns):
            H[: j + 2, j] = column
        return H

    def ritz(self) -> NDArray[np.complex128]:
        """The eigenvalues of the leading square part of H."""
        return np.linalg.eigvals(self.matrix()[:-1]).astype(complex)

    def solve(self) -> NDArray[Any]:
        """y, (j,): the least-squares solution, without directions that rounding errors would rule."""
        j, eps = self.size, float(np.finfo(float).eps)
        R = np.zeros((j, j), dtype=np.result_type(np.float64, *self.columns))
        for i, column in enumerate(self._rotated):
            R[: i + 1, i] = column
        g = np.array(self._g[:j], dtype=R.dtype)
        if np.abs(np.diagonal(R)).min(initial=1.0) > 0:
            y = np.asarray(np.linalg.solve(R, g))
            if eps * float(np.linalg.norm(R)) * float(np.linalg.norm(y)) <= _RULED * float(np.linalg.norm(g)):
                return y
        return np.asarray(np.linalg.lstsq(R, g, rcond=eps / _RULED)[0])


def _rotation(f: Any, g: Any) -> tuple[float, Any, Any]:
    """c real, s and r with [c, s; -s*, c] [f; g] = [r; 0]."""
    size, other = abs(f), abs(g)
    if other == 0.0:
        return 1.0, 0.0, f
    if size == 0.0:
        return 0.0, g.conjugate() / other, other
    length = hypot(size, other)
    phase = f / size
    return size / length, phase * g.conjugate() / length, phase * length
