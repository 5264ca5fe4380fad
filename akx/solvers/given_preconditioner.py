"""Preconditioners as callers give them: operators, diagonals, and code of others that makes vectors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from akx.core.arguments import converted
from akx.core.errors import AkxError, ArgumentTypeError

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator


__all__ = [
    "AppliesAnywhere",
    "by_foreign",
    "diagonal_of",
    "is_operator",
    "makes_new_arrays",
    "operator_of",
    "products_of",
    "real_if_told",
]


@runtime_checkable
class AppliesAnywhere(Protocol):
    """What a preconditioner has that is given vectors where they are, on the GPU too."""

    def apply(self, r: Any, out: Any) -> None:
        """out = M r; see :meth:`akx.solvers.preconditioners.Preconditioner.apply`."""


def diagonal_of(M: Any) -> NDArray[Any] | None:
    """The entries of M as it was given, (n,), where it is a diagonal matrix; None where it is not known to be one.

    A preconditioner of akx says so itself; a sparse matrix of SciPy shows it. Any other operator may do as it likes.
    """
    if _is_ours(M):
        entries: NDArray[Any] | None = M.entries
        return entries
    if not issparse(M) or M.nnz > M.shape[0]:
        return None
    found = M.tocoo()
    return np.asarray(M.diagonal()) if np.array_equal(found.row, found.col) else None


def products_of(M: Any) -> int:
    """Products with A in an application of M; 0 where it is not of akx, and may do what it likes."""
    return int(M.products) if _is_ours(M) else 0


def _is_ours(M: Any) -> bool:
    """Whether M is a preconditioner of akx; those are imported by who makes one."""
    base = sys.modules.get("akx.solvers.preconditioners.base")
    return base is not None and isinstance(M, base.Preconditioner)


def is_operator(A: Any) -> bool:
    """Whether it is an operator of SciPy, whose module nobody else has to import: it takes longer than a solve."""
    linalg = sys.modules.get("scipy.sparse.linalg")
    return linalg is not None and isinstance(A, linalg.LinearOperator)


@lru_cache(maxsize=1)
def _operator_of_matrix() -> type:
    """SciPy's operator of a matrix, as it makes one of sparse and dense ones."""
    from scipy.sparse.linalg import aslinearoperator

    return type(aslinearoperator(np.eye(1)))


def operator_of(M: Any) -> LinearOperator:
    from scipy.sparse.linalg import aslinearoperator

    try:
        if not is_operator(M):
            found = M.aspreconditioner() if hasattr(M, "aspreconditioner") else converted(M)  # PyAMG's
            M = M if found is None else found
        return aslinearoperator(M)
    except AkxError:
        raise
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            "M is no matrix and no operator",
            expected="a sparse matrix, an array, a LinearOperator or what akx.solvers.preconditioners makes",
            found=type(M).__name__,
            hint="pass scipy.sparse.linalg.LinearOperator(A.shape, matvec=M)" if callable(M) else None,
        ) from error


def makes_new_arrays(M: Any) -> bool:
    """Whether M is known to return new arrays and to leave its argument alone: a matrix, or code of akx itself.

    A subclass of akx's may do as it likes.
    """
    return type(M) is _operator_of_matrix() or type(M).__module__.partition(".")[0] == __name__.partition(".")[0]


def by_foreign(make: Callable[[Any], Any], v: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """What code of others makes of v, a copy: it may return its argument, or one buffer of its own each time.

    It gets a copy too, which it may write to, return and keep.
    """
    return np.array(real_if_told(make(v.copy()), dtype), dtype=dtype, order="C")


def real_if_told(found: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """What M has made, (n,); an error where it is complex and M was said to be real, as `dtype` shows."""
    made = np.asarray(found).reshape(-1)
    if made.dtype.kind == "c" and dtype.kind != "c":
        raise ArgumentTypeError(
            "M has made a complex vector of a real one",
            expected=str(dtype),
            found=str(made.dtype),
            hint="give the LinearOperator its type, as dtype=complex",
        )
    return made
