"""Krylov solvers, classic and communication-avoiding, with SciPy's manners; see the modules for the algorithms.

``SOLVERS`` maps the name of every solver to its function. The functions have the names of their modules, and are
imported when they are asked for: in this package each of those names is the function, whatever is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from akx.core.lazy_names import lazy_names
from akx.solvers.registry import NAMES, SOLVERS

if TYPE_CHECKING:
    from akx.solvers.bicgstab import bicgstab
    from akx.solvers.ca_bicgstab import ca_bicgstab
    from akx.solvers.ca_cg import ca_cg
    from akx.solvers.ca_gmres import ca_gmres
    from akx.solvers.ca_minres import ca_minres
    from akx.solvers.cg import cg
    from akx.solvers.gmres import gmres
    from akx.solvers.minres import minres
    from akx.solvers.solver import Solver
    from akx.solvers.solving import solve
    from akx.solvers.stats import SolveStats
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
    "ca_minres",
    "cg",
    "gmres",
    "minres",
    "solve",
    "tune_for",
]

_HOMES = {"solve": "solving", "Solver": "solver", "SolveStats": "stats", "SolverTuning": "tuning", "tune_for": "tuning"}

__getattr__ = lazy_names(
    __name__, {name: f"{__name__}.{home}" for name, home in ({name: name for name in NAMES} | _HOMES).items()}
)
