"""The small least-squares problem of GMRES, min ||beta e_1 - H y||, by Givens rotations, one column of H after another.

H of shape (j+1, j) is upper Hessenberg. Each column meets the rotations of those before it and gets one more that
removes its last entry; the last entry of the rotated right-hand side g is then, in modulus, the least residual with
that column included (Saad, Schultz 1986, sec. 3.2). Everything is done in double precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.numba_jit import jit_later

__all__ = ["HessenbergQR", "new_columns"]

#: A column whose independent part is smaller than this, relative to it, depends on those before it.
_DEPENDENT = 10 * float(np.finfo(float).eps)
#: Most that rounding errors in H, times y, may be, relative to the right-hand side.
_RULED = 1e-3


class HessenbergQR:
    """H = Q R, column by column, and g = Q^H beta e_1, beta being the norm of the residual that a cycle begins with.

    There will be about `room` columns; so far there are `size`, with the least `residual`.
    """

    def __init__(self, beta: float, room: int = 32) -> None:
        self.size, self.residual = 0, beta
        self._H = np.zeros((room + 1, room))
        self._R, self._cosines, self._sines = np.zeros((room, room)), np.zeros(room), np.zeros(room)
        self._g = np.zeros(room + 1)
        self._g[0] = beta

    def append(self, column: NDArray[Any]) -> float:
        """Add column j, (j+2,), float64 or complex128; the residual's norm with it."""
        j = self.size
        if j == len(self._R) or self._is_narrower(column):
            self._grow(max(len(self._R), 2 * j), np.result_type(self._H, column))
        self._H[: j + 2, j] = column
        self.residual = _append(self._H, self._R, self._cosines, self._sines, self._g, j)
        self.size = j + 1
        return self.residual

    def extend(self, columns: NDArray[Any], target: float, most: int) -> NDArray[np.float64]:
        """Add at most so many of columns j, j+1, ... until the residual is `target` or less; its norms with each.

        columns (j+1+count, count), float64 or complex128: column i has j+i+2 entries, zeros behind.
        """
        j, count = self.size, min(most, columns.shape[1])
        if j + count > len(self._R) or self._is_narrower(columns):
            self._grow(max(len(self._R), j + count), np.result_type(self._H, columns))
        found = np.empty(count)
        added = _extend(self._H, self._R, self._cosines, self._sines, self._g, j, columns, target, found)
        self.size, self.residual = j + added, float(found[added - 1])
        return found[:added]

    def _is_narrower(self, columns: NDArray[Any]) -> bool:
        return columns.dtype.kind == "c" and self._H.dtype.kind != "c"

    def _grow(self, room: int, kind: Any) -> None:
        """Room for so many columns of a type."""
        for name, shape in (("_H", (room + 1, room)), ("_R", (room, room)), ("_sines", (room,)), ("_g", (room + 1,))):
            old = getattr(self, name)
            new = np.zeros(shape, dtype=kind)
            new[tuple(slice(extent) for extent in old.shape)] = old
            setattr(self, name, new)
        self._cosines = np.append(self._cosines, np.zeros(room - len(self._cosines)))

    @property
    def stored(self) -> NDArray[Any]:
        """H and room for further columns, not to be written to."""
        return self._H

    def matrix(self) -> NDArray[Any]:
        """H, (j+1, j)."""
        return self._H[: self.size + 1, : self.size].copy()

    def ritz(self) -> NDArray[np.complex128]:
        """The eigenvalues of the leading square part of H."""
        return np.linalg.eigvals(self.matrix()[:-1]).astype(complex)

    def solve(self) -> NDArray[Any]:
        """y, (j,): the least-squares solution, without directions that rounding errors would rule."""
        j, eps = self.size, float(np.finfo(float).eps)
        R, g = self._R[:j, :j].copy(), self._g[:j].copy()
        if np.abs(np.diagonal(R)).min(initial=1.0) > 0:
            y = np.asarray(np.linalg.solve(R, g))
            if eps * float(np.linalg.norm(R)) * float(np.linalg.norm(y)) <= _RULED * float(np.linalg.norm(g)):
                return y
        return np.asarray(np.linalg.lstsq(R, g, rcond=eps / _RULED)[0])


@jit_later
def _append(H: Any, R: Any, cosines: Any, sines: Any, g: Any, j: int) -> float:
    """Rotate column j of H into R and g; the least residual with it."""
    above, largest = H[0, j], 0.0
    for i in range(j):
        c, s, below = cosines[i], sines[i], H[i + 1, j]
        R[i, j] = c * above + s * below
        above = c * below - np.conj(s) * above
        largest = max(largest, abs(R[i, j]))
    # c real, s and r with [c, s; -s*, c] [above; last] = [r; 0]
    last = H[j + 1, j]
    size, other = abs(above), abs(last)
    length = np.hypot(size, other)
    if other == 0.0:
        cosines[j], sines[j], R[j, j] = 1.0, 0.0, above
    elif size == 0.0:
        cosines[j], sines[j], R[j, j] = 0.0, np.conj(last) / other, other
    else:
        phase = above / size
        cosines[j], sines[j], R[j, j] = size / length, phase * np.conj(last) / length, phase * length
    before = g[j]
    g[j] = cosines[j] * before
    g[j + 1] = -np.conj(sines[j]) * before
    if abs(R[j, j]) > _DEPENDENT * max(largest, abs(R[j, j])):
        return float(abs(g[j + 1]))
    return float(abs(before))  # the column depends on those before it and takes nothing off


@jit_later
def _extend(H: Any, R: Any, cosines: Any, sines: Any, g: Any, j: int, columns: Any, target: float, found: Any) -> int:
    """Columns into H from the j-th on, each rotated, until the residual is small enough; how many."""
    for i in range(found.size):
        for q in range(j + i + 2):
            H[q, j + i] = columns[q, i]
        found[i] = _append(H, R, cosines, sines, g, j + i)
        if found[i] <= target:
            return i + 1
    return int(found.size)


def new_columns(H: NDArray[Any], C: NDArray[Any], R: NDArray[Any], B: NDArray[Any], count: int) -> NDArray[Any]:
    """The next `count` columns of H, of which k are there: ([C; R] B - [H; 0] C_s) R_s^-1, (k + 1 + count, count).

    By them A times the last of k + 1 orthonormal rows, and times those made of a block of s: of its vectors
    [v_1, .., v_s] are Q^T C + Q_new^T R, C (k + 1, s), R (s, s), and A V_s = V_{s+1} B, v_0 being the last of the rows.
    """
    k = len(C) - 1
    kind = np.result_type(H, R, B)
    new = np.zeros((k + 1 + count, count), dtype=kind)
    H, C, R, B = (np.ascontiguousarray(part, dtype=kind) for part in (H, C, R, B))
    _fill_columns(H, k, C, R, B, new)
    return new


@jit_later
def _fill_columns(H: Any, k: int, C: Any, R: Any, B: Any, new: Any) -> None:
    """new (k+1+count, count): column after column, since those before are what R_s^-1 takes away."""
    count = new.shape[1]
    for j in range(count):
        # A v_j by the orthonormal rows: sum_i B[i, j] v_i, v_0 being row k and v_i those of column i - 1 of [C; R]
        for i in range(j + 2):
            b = B[i, j]
            if b == 0:
                continue
            if i == 0:
                new[k, j] += b
            else:
                for q in range(k + 1):
                    new[q, j] += C[q, i - 1] * b
                for q in range(i):
                    new[k + 1 + q, j] += R[q, i - 1] * b
        # less A times what v_j has of the rows before: H for those before k, the new columns for the others
        scale = new.dtype.type(1)
        if j > 0:
            for q in range(k):
                for i in range(q + 2):
                    new[i, j] -= H[i, q] * C[q, j - 1]
            for i in range(k + 2):
                new[i, j] -= new[i, 0] * C[k, j - 1]
            for q in range(j - 1):
                for i in range(k + q + 3):
                    new[i, j] -= new[i, q + 1] * R[q, j - 1]
            scale = R[j - 1, j - 1]
        for i in range(k + j + 2):
            new[i, j] /= scale
