"""What every preconditioner offers: M as an operator, and the same M folded into the matrix where that can be done.

A communication-avoiding solver computes s powers of one matrix. A preconditioner between two products would need s
powers of a product of two, so such solvers make M part of the matrix beforehand where that can be done:

    A' = L A R,    A' y = L b,    x = R y,

with R = M, L = I for a preconditioner from the right (the residual b - A x is then the same), or L = R = D^-1/2 for
symmetric scaling, which keeps a Hermitian matrix Hermitian.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse.linalg import LinearOperator

from akx.backends.selection import array_backend, backend_of
from akx.core.errors import ArgumentError
from akx.core.fork_safety import ForkSafeLock
from akx.core.matrix import Matrix

__all__ = ["QUEUEING", "Preconditioner", "device_rows"]

#: Held while the work of one application is queued on the GPU: the vectors between its parts are those of the object.
QUEUEING = ForkSafeLock()
#: What tells preconditioners from one another, as no address does.
_SERIALS = count()


class Preconditioner(LinearOperator):  # type: ignore[misc]
    """An approximation M of A^-1, shape (n, n).

    As a SciPy LinearOperator (``M @ r``) it is what classic solvers take, SciPy's included. Several threads may apply
    one M at once. What follows is for solvers that need it within the matrix.

    Attributes
    ----------
    name : str
        Of the kind: ``"jacobi"``, ``"chebyshev"``, ``"spai"``.
    folds, keeps_residual : bool
        Whether :meth:`apply_to` can be called; whether the folded system has the residual of the original one, L = I.
    residual_scale : float
        ||L r|| / ||r|| of a residual whose folded form L r has entries of one size, as it has after many steps.
    products : int
        Products with A in an application, which solvers count in their record.
    hermitian : bool
        Whether M is Hermitian, so that conjugate gradients may use it.
    notes : tuple of str
        What a user should know: entries of the diagonal that are zero, local problems that were singular.
    """

    name = ""
    folds = False
    keeps_residual = True
    residual_scale = 1.0
    hermitian = False
    products = 0

    def __init__(self, n: int, dtype: DTypeLike, notes: tuple[str, ...] = ()) -> None:
        super().__init__(np.dtype(dtype), (n, n))
        self.notes = notes
        self._serial = next(_SERIALS)
        self.__dict__.update(self._unprepared())

    def _unprepared(self) -> dict[str, Any]:
        """Attributes that are made when they are first used, as they begin; no copy and no pickle has them."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name not in {"_serial", *self._unprepared()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = state | self._unprepared() | {"_serial": next(_SERIALS)}
        if hasattr(LinearOperator, "__setstate__"):  # SciPy 1.18 has a module among the attributes
            super().__setstate__(state)
        else:
            self.__dict__.update(state)

    @property
    def entries(self) -> NDArray[Any] | None:
        """Those of the diagonal of M, (n,), where it has no others; else None."""
        return None

    def apply(self, r: Any, out: Any) -> None:
        """out = M r, where the vectors are: (n,) arrays of NumPy or of the GPU, of one type and not the same memory.

        On the GPU the work is queued; where M has nothing of its own for it, r is copied to the host and M r back.
        """
        if isinstance(r, np.ndarray):
            out[:] = np.asarray(self.matvec(r)).reshape(-1)
        elif not self._apply_on_device(r, out):
            out.set(np.asarray(self.matvec(r.get()), dtype=out.dtype).reshape(-1))

    def _apply_on_device(self, r: Any, out: Any) -> bool:
        """Queue out = M r on the GPU, or return False where that cannot be done there."""
        return False

    def apply_to(self, A: Any) -> Matrix:
        """L A R. Raises :class:`ArgumentError` for a preconditioner that is no matrix."""
        raise ArgumentError(
            f"the {self.name} preconditioner cannot be made part of the matrix",
            expected="jacobi, block_jacobi of small blocks, or spai",
            hint="pass it as M of a solver, which does without",
        )

    @property
    def serial(self) -> int | None:
        """What no other preconditioner has, a copy neither; None for a subclass of others, which may do as it likes."""
        is_own = type(self).__module__.partition(".")[0] == __name__.partition(".")[0]
        return self._serial if is_own else None

    def for_hermitian(self) -> Preconditioner | None:
        """The same M in a form whose L A R is Hermitian where A is; None where there is none."""
        return None

    def rhs(self, b: NDArray[Any]) -> NDArray[Any]:
        """L b: the right-hand side of the folded system; (n,)."""
        return b

    def solution(self, y: NDArray[Any]) -> NDArray[Any]:
        """R y: the x that belongs to a solution of the folded system; (n,), a new array."""
        return np.asarray(self.matvec(y)).reshape(-1)

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return np.stack([np.asarray(self._matvec(x)).reshape(-1) for x in X.T], axis=1)

    def _checked(self, A: Any) -> Matrix:
        """`A` as a Matrix of this preconditioner's size."""
        matrix = Matrix.from_any(A, value_error=0.0)
        if matrix.n != self.shape[0]:
            raise ArgumentError("preconditioner does not fit A", expected=f"{matrix.shape}", found=f"{self.shape}")
        return matrix


def device_rows(shape: tuple[int, ...], dtype: DTypeLike) -> Any:
    """Room for vectors on the GPU, not filled."""
    return backend_of(array_backend()).empty(shape, dtype)
