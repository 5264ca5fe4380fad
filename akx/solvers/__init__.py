"""Krylov solvers, classic and communication-avoiding, with SciPy's manners; see the modules for the algorithms.

``SOLVERS`` maps the name of every solver to its function. The functions have the names of their modules, and are
imported when they are asked for: in this package each of those names is the function, whatever is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from akx.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from akx.solvers.auto import solve
    from akx.solvers.bicgstab import bicgstab
    from akx.solvers.ca_bicgstab import ca_bicgstab
    from akx.solvers.ca_cg import ca_cg
    from akx.solvers.ca_gmres import ca_gmres
    from akx.solvers.cg import cg
    from akx.solvers.gmres import gmres
    from akx.solvers.solver import Solver
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
    "cg",
    "gmres",
    "solve",
    "tune_for",
]

#: The classic one of each family before the communication-avoiding one.
_NAMES = ("cg", "ca_cg", "gmres", "ca_gmres", "bicgstab", "ca_bicgstab")


class _Solvers(Mapping[str, Callable[..., Any]]):
    """Solvers by name."""

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name not in _NAMES:
            raise KeyError(name)
        home = f"{__name__}.{name}"
        found: Callable[..., Any] | None = getattr(sys.modules.get(home), name, None)  # None while it is imported, too
        return getattr(import_module(home), name) if found is None else found

    def __contains__(self, name: object) -> bool:
        return name in _NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


SOLVERS: Mapping[str, Callable[..., Any]] = _Solvers()


__getattr__ = lazy_names(
    __name__,
    {
        **{name: f"{__name__}.{name}" for name in _NAMES},
        "solve": f"{__name__}.auto",
        "Solver": f"{__name__}.solver",
        "SolveStats": f"{__name__}.stats",
        **dict.fromkeys(("SolverTuning", "tune_for"), f"{__name__}.tuning"),
    },
)
