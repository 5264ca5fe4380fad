"""A preconditioner for a solver that has no room for one: it becomes part of the matrix."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from akx.errors import ArgumentError
from akx.solvers.system import Answer

__all__ = ["solve_with"]


def solve_with(solver: Callable[..., Any], A: Any, b: Any, x0: Any, M: Any, **options: Any) -> Answer:
    """Solve A x = b by `solver` on the matrix that M makes of A; see :mod:`akx.solvers.preconditioners`.

    Raises
    ------
    ArgumentError
        Where M cannot be made part of a matrix.
    """
    name = solver.__name__
    if not getattr(M, "folds", False):
        raise ArgumentError(
            f"{name} takes no preconditioner that cannot be made part of the matrix",
            expected="jacobi or spai of akx.solvers.preconditioners",
            found=type(M).__name__,
            hint=f"use akx.solvers.{name.removeprefix('ca_')}",
        )
    answer: Answer = import_module("akx.solvers.preconditioners").solve_folded(solver, A, b, x0, M=M, **options)
    return answer
