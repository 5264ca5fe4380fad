"""Preconditioners: Jacobi, its blocks, Chebyshev polynomials, and static sparse approximate inverses.

Each is a SciPy LinearOperator, for any solver; what communication-avoiding ones are to make part of the matrix says so
by its `folds`, and :func:`solve_folded` gives it to them.
"""

from __future__ import annotations

from akx.solvers.folding import solve_folded
from akx.solvers.preconditioners.base import Preconditioner
from akx.solvers.preconditioners.block_jacobi import BlockJacobi, BlockLU, block_jacobi
from akx.solvers.preconditioners.jacobi import Jacobi, jacobi
from akx.solvers.preconditioners.polynomial import Chebyshev, chebyshev
from akx.solvers.preconditioners.spai import SPAI, spai

__all__ = [
    "SPAI",
    "BlockJacobi",
    "BlockLU",
    "Chebyshev",
    "Jacobi",
    "Preconditioner",
    "block_jacobi",
    "chebyshev",
    "jacobi",
    "solve_folded",
    "spai",
]
