"""Krylov solvers, classic and communication-avoiding, with SciPy's manners; see the modules for the algorithms.

``SOLVERS`` maps the name of every solver to its function. Each solver is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from akx.solvers.stats import SolveStats

#: Solvers by name, the classic one of each family before the communication-avoiding one, in modules of their names.
_NAMES = ("cg", "ca_cg", "gmres", "ca_gmres", "bicgstab", "ca_bicgstab")
_HOMES = {name: f"akx.solvers.{name}" for name in _NAMES if find_spec(f"akx.solvers.{name}") is not None}

__all__ = ["SOLVERS", "SolveStats", "solve", *_HOMES]


def __getattr__(name: str) -> Any:
    # The functions have the names of their modules, and importing a submodule binds the module here: functions win.
    if name == "SOLVERS":
        value: Any = {each: getattr(import_module(home), each) for each, home in _HOMES.items()}
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name == "solve":
        value = import_module("akx.solvers.auto").solve
    else:
        raise AttributeError(f"module 'akx.solvers' has no attribute {name!r}")
    globals()[name] = value
    return value
