"""A preconditioner for a solver that has no room for one: it becomes part of the matrix."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from akx.core.errors import ArgumentError
from akx.core.matrix import Matrix
from akx.operator.lookup import derived
from akx.solvers.system import Answer

__all__ = ["form_for", "part_of", "solve_with"]

#: Preconditioners for a solver, for the message.
_FOR = {"ca_cg": "jacobi, of a real positive diagonal,", "ca_bicgstab": "jacobi or spai"}


def solve_with(solver: Callable[..., Any], A: Any, b: Any, x0: Any, M: Any, **options: Any) -> Answer:
    """Solve A x = b by `solver` on the matrix that M makes of A; see :mod:`akx.solvers.preconditioners`.

    Raises
    ------
    ArgumentError
        Where M cannot be made part of a matrix; for ca_cg, of one that stays Hermitian.
    """
    name = solver.__name__
    form = form_for(name, M)
    if form is None:
        kept = name == "ca_cg" and getattr(M, "folds", False)
        raise ArgumentError(
            f"{name} takes no preconditioner that cannot be made part of the matrix{' and keep it Hermitian' * kept}",
            expected=f"{_FOR[name]} of akx.solvers.preconditioners",
            found=type(M).__name__,
            hint=f"use akx.solvers.{name.removeprefix('ca_')}",
        )
    answer: Answer = import_module("akx.solvers.preconditioners").solve_folded(solver, A, b, x0, M=form, **options)
    return answer


def form_for(name: str, M: Any) -> Any:
    """The form of M that is made part of the matrix for the solver of that name; None where there is none."""
    if not getattr(M, "folds", False):
        return None
    if name != "ca_cg":
        return M
    find = getattr(M, "for_hermitian", None)
    return None if find is None else find()


def part_of(M: Any, matrix: Matrix) -> Matrix:
    """L A R for a preconditioner that folds, made once while what is prepared for it is kept."""
    if getattr(M, "serial", None) is None:
        return M.apply_to(matrix)  # type: ignore[no-any-return]
    return derived(matrix, f"with preconditioner {M.serial}", lambda: M.apply_to(matrix))
