"""Krylov solvers, classic and communication-avoiding, with SciPy's manners; see the modules for the algorithms.

``SOLVERS`` maps the name of every solver to its function. The functions have the names of their modules: all of them
are imported here, so that in this package each of those names is the function, whatever is imported afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from akx._lazy import lazy_names
from akx.solvers.auto import solve
from akx.solvers.bicgstab import bicgstab
from akx.solvers.ca_bicgstab import ca_bicgstab
from akx.solvers.ca_cg import ca_cg
from akx.solvers.ca_gmres import ca_gmres
from akx.solvers.cg import cg
from akx.solvers.gmres import gmres
from akx.solvers.solver import Solver
from akx.solvers.stats import SolveStats

if TYPE_CHECKING:
    from akx.solvers.tuning import SolverTuning, tune_for

__all__ = [
    "SOLVERS",
    "SolveStats",
    "Solver",
    "SolverTuning",
    "bicgstab",
    "ca_bicgstab",
    "ca_cg",
    "ca_gmres",
    "cg",
    "gmres",
    "solve",
    "tune_for",
]

#: Solvers by name, the classic one of each family before the communication-avoiding one.
SOLVERS: dict[str, Callable[..., Any]] = {
    solver.__name__: solver for solver in (cg, ca_cg, gmres, ca_gmres, bicgstab, ca_bicgstab)
}

#: With a search, which no solve needs.
__getattr__ = lazy_names(__name__, dict.fromkeys(("SolverTuning", "tune_for"), "akx.solvers.tuning"))
