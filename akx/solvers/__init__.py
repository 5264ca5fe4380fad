"""Krylov solvers, classic and communication-avoiding, with SciPy's manners; see the modules for the algorithms."""

from __future__ import annotations

from akx.solvers.stats import SolveStats

__all__ = ["SolveStats"]
