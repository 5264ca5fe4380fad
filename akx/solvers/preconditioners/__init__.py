"""Preconditioners: Jacobi, Chebyshev polynomials, and static sparse approximate inverses.

Each is a SciPy LinearOperator, for any classic solver; what can be made part of the matrix, for the
communication-avoiding ones, says so by its `folds`, and :func:`solve_folded` gives it to them.
"""

from __future__ import annotations

from akx.solvers.folding import solve_folded
from akx.solvers.preconditioners.base import Preconditioner
from akx.solvers.preconditioners.jacobi import Jacobi, jacobi
from akx.solvers.preconditioners.polynomial import Chebyshev, chebyshev
from akx.solvers.preconditioners.spai import SPAI, spai

__all__ = ["SPAI", "Chebyshev", "Jacobi", "Preconditioner", "chebyshev", "jacobi", "solve_folded", "spai"]
