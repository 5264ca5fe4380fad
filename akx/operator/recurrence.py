"""The coefficients of v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1} as programs take them, and the type of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from akx.backends.program import Coefficients, as_coefficients
from akx.core.basis import Basis
from akx.core.errors import ArgumentError, ArgumentTypeError

__all__ = ["Recurrence"]

_DTYPES = tuple(np.dtype(t) for t in (np.float32, np.float64, np.complex64, np.complex128))


class Recurrence:
    """The basis of an operator, for a matrix of a type; coefficients are made once for each type of vectors."""

    def __init__(self, basis: Basis, matrix: np.dtype[Any]) -> None:
        self.basis = basis
        self._matrix = matrix
        self._types: dict[np.dtype[Any] | None, np.dtype[Any]] = {}
        self._made: dict[np.dtype[Any], Coefficients] = {}
        self._last: tuple[Basis, np.dtype[Any], Coefficients] | None = None

    def result_dtype(self, x: np.dtype[Any] | None = None) -> np.dtype[Any]:
        """The common type of the matrix, the basis, and a start vector if there is one; remembered."""
        dtype = self._types.get(x)
        if dtype is not None:
            return dtype
        types: list[Any] = [self._matrix] + ([] if x is None else [x])
        if any(np.iscomplexobj(v) for v in (self.basis.a, self.basis.b, self.basis.c)):
            types.append(np.complex64)
        dtype = np.result_type(*types)
        if dtype not in _DTYPES:
            raise ArgumentTypeError(
                "start vector has an unsupported type",
                expected="a real or complex number of at most double precision",
                found=str(x),
                hint="convert it with x.astype(float)",
            )
        self._types[x] = dtype
        return dtype

    def coefficients(self, dtype: np.dtype[Any]) -> Coefficients:
        """Those of the operator's basis."""
        found = self._made.get(dtype)
        if found is None:
            found = self._made[dtype] = as_coefficients(self.basis.a, self.basis.b, self.basis.c, dtype)
        return found

    def coefficients_of(self, basis: Basis, dtype: np.dtype[Any]) -> Coefficients:
        """Those of a basis given with a call; the last ones are remembered, since a solver asks for them again."""
        if self._last is None or self._last[0] is not basis or self._last[1] != dtype:
            if not isinstance(basis, Basis):
                raise ArgumentTypeError("basis is not a Basis", found=type(basis).__name__)
            if basis.k != self.basis.k:
                raise ArgumentError("basis is for another k", expected=f"{self.basis.k} steps", found=f"{basis.k}")
            if not basis.is_real and dtype.kind != "c":
                raise ArgumentTypeError("basis is complex and the vectors are real", expected="a real basis")
            self._last = basis, dtype, as_coefficients(basis.a, basis.b, basis.c, dtype)
        return self._last[2]
