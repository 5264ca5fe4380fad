"""A sparse matrix as preconditioner, whoever made it: M r is a product with it, and A M a sparse matrix.

An application moves M and two vectors. Part of the matrix it costs nothing but the entries that A M has more than A.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.backends.selection import array_backend
from akx.core.matrix import Matrix
from akx.operator import MatrixPowers
from akx.solvers.preconditioners.base import QUEUEING, Preconditioner, device_rows
from akx.solvers.preconditioners.product import Product

__all__ = ["SparseM"]


class SparseM(Preconditioner):
    """M as a sparse matrix.

    Attributes
    ----------
    M : scipy.sparse.csr_array
        It, read-only.
    """

    name = "sparse"
    folds = True
    _product: Product | None
    _on_gpu: dict[np.dtype[Any], tuple[MatrixPowers, Any]]

    def __init__(
        self, matrix: Matrix, *, hermitian: bool = False, threads: int | None = None, notes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(matrix.n, matrix.dtype, notes)
        self.matrix = matrix
        self.M = matrix.to_scipy()
        self.hermitian = hermitian
        self._threads = threads

    def _unprepared(self) -> dict[str, Any]:
        return {"_product": None, "_on_gpu": {}}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "M"}  # which `matrix` has

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state | {"M": state["matrix"].to_scipy()})

    @property
    def nnz(self) -> int:
        """Entries of M."""
        return self.matrix.nnz

    def product(self, A: Any) -> sp.csr_array:
        """A M as a sparse matrix; :meth:`fill` says what that costs."""
        found = sp.csr_array(self._checked(A).to_scipy() @ self.M)
        found.sum_duplicates()
        return found

    def fill(self, A: Any) -> float:
        """Entries of A M over those of A and M together: below 1, one product with A M reads less than two."""
        return float(self.product(A).nnz / (self._checked(A).nnz + self.nnz))

    def apply_to(self, A: Any) -> Matrix:
        """A M, in the dtype of `A` and M together."""
        return Matrix.from_any(self.product(A))

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        vector = np.asarray(x).reshape(-1)
        if np.result_type(self.dtype, vector.dtype) != self.dtype:
            return np.asarray(self.M @ vector)
        if self._product is None:
            self._product = Product(self.matrix, self._threads)
        return self._product(vector)

    def _apply_on_device(self, r: Any, out: Any) -> bool:
        """One product on the GPU, in the type of r; one vector is copied before it and one behind."""
        if np.result_type(self.dtype, r.dtype) != r.dtype:
            return False
        with QUEUEING:
            if r.dtype not in self._on_gpu:
                operator = MatrixPowers(self.matrix, 1, dtype=r.dtype, backend=array_backend())
                self._on_gpu[r.dtype] = operator, device_rows((2, 1, self.shape[0]), r.dtype)
            operator, pair = self._on_gpu[r.dtype]
            program, coefficients = operator.program(1)
            program.run(r.reshape(1, self.shape[0]), pair, coefficients)
            out[:] = pair[1][0]
        return True

    def _rmatvec(self, x: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(self.M.conj().T @ x.reshape(-1))
