"""Jacobi: M = D^-1, D the diagonal of A. Folded into the matrix by scaling it costs nothing.

symmetric    A' = D^-1/2 A D^-1/2, b' = D^-1/2 b, x = D^-1/2 y: a Hermitian A with a positive diagonal stays Hermitian,
             and definite if it was. Its residual is D^-1/2 (b - A x), which is not that of the original system.
right        A' = A D^-1, b' = b, x = D^-1 y: any A with any diagonal; the residual is that of the original system.

Conjugate gradients on the symmetric form take the same steps as conjugate gradients with M (Saad 2003, sec. 9.2.1). The
scaled matrix has the pattern of A, so that plans tuned for A serve it too. Where a diagonal entry is zero, 1 stands for
it. An application moves 3 n words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.selection import array_backend, backend_of
from akx.core.arguments import unknown_name
from akx.core.errors import ArgumentError
from akx.core.matrix import Matrix
from akx.solvers.preconditioners.base import Preconditioner
from akx.solvers.symmetry import is_hermitian, real_diagonal

__all__ = ["SIDES", "Jacobi", "jacobi", "of_entries"]

#: What ``side=`` of :func:`jacobi` may be.
SIDES = ("auto", "symmetric", "right")


class Jacobi(Preconditioner):
    """M = D^-1; made by :func:`jacobi`, or of the entries of M, ``inverse``, where a caller has them.

    Attributes
    ----------
    diagonal : (n,) array
        D, without zeros; not finite where an entry of M that was given is zero.
    side : str
        ``"symmetric"`` or ``"right"``: the form in which it is folded.
    """

    name = "jacobi"
    folds = True
    _on_gpu: dict[np.dtype[Any], Any]
    _sides: dict[str, Jacobi]

    def __init__(
        self, diagonal: NDArray[Any], side: str, notes: tuple[str, ...], inverse: NDArray[Any] | None = None
    ) -> None:
        super().__init__(diagonal.size, diagonal.dtype, notes)
        self.diagonal, self._given = diagonal, inverse
        self.side = side
        self.keeps_residual = side == "right"
        self.hermitian = not np.any(diagonal.imag)
        with np.errstate(over="ignore"):
            self._inverse = 1 / diagonal if inverse is None else inverse
        self._right = 1 / np.sqrt(diagonal.real).astype(diagonal.dtype) if side == "symmetric" else self._inverse
        if side == "symmetric":
            self.residual_scale = float(np.sqrt(diagonal.size / diagonal.real.sum(dtype=np.float64)))
        if not np.isfinite(self._inverse).all():
            raise ArgumentError(
                "an entry of the diagonal is too small to divide by",
                found=f"{diagonal[~np.isfinite(self._inverse)][0]} in {diagonal.dtype}",
                hint="scale the matrix, or use another preconditioner",
            )

    def _unprepared(self) -> dict[str, Any]:
        return {"_on_gpu": {}, "_sides": {}}

    @property
    def entries(self) -> NDArray[Any]:
        """Those of M, (n,): 1 / D."""
        return self._inverse

    def apply_to(self, A: Any) -> Matrix:
        """The scaled matrix, of the pattern and dtype of `A`; reads and writes its values once."""
        matrix = self._checked(A)
        right = self._right
        # Both factors at once would overflow in places where the two scalings, one after the other, do not.
        values = matrix.data * right[matrix.indices]
        if self.side == "symmetric":
            values *= np.repeat(right, np.diff(matrix.indptr))
        return matrix.with_values(values.astype(matrix.dtype, copy=False))

    def for_hermitian(self) -> Jacobi | None:
        """The symmetric form, whatever the form at hand; None where the diagonal is not real and positive."""
        if self.side == "symmetric":
            return self
        return self.on_side("symmetric") if _is_positive(self.diagonal) else None

    def on_side(self, side: str) -> Jacobi:
        """The same M in a form, made once; for the symmetric one its diagonal is real and positive."""
        if side == self.side:
            return self
        if side not in self._sides:
            self._sides[side] = Jacobi(self.diagonal, side, self.notes, self._given)
        return self._sides[side]

    def rhs(self, b: NDArray[Any]) -> NDArray[Any]:
        """D^-1/2 b in the symmetric form, b in the right one; (n,)."""
        return b * self._right if self.side == "symmetric" else b

    def solution(self, y: NDArray[Any]) -> NDArray[Any]:
        """D^-1/2 y in the symmetric form, D^-1 y in the right one; (n,), a new array."""
        return np.asarray(y * self._right)

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(x.reshape(-1) * self._inverse)

    def _apply_on_device(self, r: Any, out: Any) -> bool:
        if np.result_type(self.dtype, r.dtype) != r.dtype:
            return False
        if r.dtype not in self._on_gpu:
            self._on_gpu[r.dtype] = backend_of(array_backend()).scaling(self._inverse.astype(r.dtype))
        self._on_gpu[r.dtype].apply(r, out)
        return True

    def _rmatvec(self, x: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(x.reshape(-1) * self._inverse.conj())


def of_entries(entries: NDArray[Any]) -> Jacobi:
    """The diagonal matrix M of these entries, (n,), all finite, in the form from the right."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return Jacobi(1 / entries, "right", (), entries)


def jacobi(A: Any, *, side: str = "auto") -> Jacobi:
    """The diagonal of A as a preconditioner.

    Parameters
    ----------
    A : sparse matrix or array, shape (n, n), or Matrix
    side : str
        How it is folded into the matrix: ``"symmetric"`` needs a real positive diagonal; ``"right"`` any; ``"auto"``
        is symmetric where A is Hermitian, up to rounding errors, with a positive diagonal. ``ca_cg`` takes the
        symmetric form in any case.

    Returns
    -------
    Jacobi

    Raises
    ------
    ArgumentError
        An unknown side, or a symmetric one of a diagonal that is not real and positive.
    MatrixError
        Where A is no square sparse matrix.
    """
    if side not in SIDES:
        raise unknown_name("side", side, SIDES)
    matrix = Matrix.from_any(A, value_error=0.0)
    diagonal = real_diagonal(np.array(matrix.diagonal()))
    missing = int(np.count_nonzero(diagonal == 0))
    diagonal[diagonal == 0] = 1
    positive = _is_positive(diagonal)
    if side == "symmetric" and not positive:
        raise ArgumentError(
            "the diagonal is not real and positive", hint="use side='right', which asks for nothing of the diagonal"
        )
    if side == "auto":
        side = "symmetric" if positive and is_hermitian(matrix) else "right"
    notes = (f"{missing} of {matrix.n} diagonal entries are zero; 1 stands for them",) if missing else ()
    return Jacobi(diagonal, side, notes)


def _is_positive(diagonal: NDArray[Any]) -> bool:
    """Whether all entries are real, positive and finite."""
    return bool(np.all(diagonal.real > 0) and np.isfinite(diagonal).all()) and not np.any(diagonal.imag)
