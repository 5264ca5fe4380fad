"""Rows of A without entries, or with zeros alone: where b is not zero there, a look tells that no solution is.

    ||b - A x|| >= ||b_E||    for every x, E being such rows

Memory: A's row pointers and values are read, once for a matrix; b in these rows, once for a solve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from akx.solvers.scaling import norm_of
from akx.solvers.stats import BOUND, Notice

if TYPE_CHECKING:
    from akx.solvers.system import System

__all__ = ["EMPTY_ROWS", "why_unsolvable"]

#: In the cache of a matrix, these rows; None for none.
EMPTY_ROWS = "akx.solvers.empty_rows"


def why_unsolvable(system: System) -> str:
    """That there is no solution, where b is above the target in empty rows of A; of a matrix of the host alone."""
    given = system.given
    if given.on_device is not None:
        return ""
    if EMPTY_ROWS not in given.cache:
        entries = np.diff(given.indptr)
        if not given.data.all():
            entries = np.diff(np.append(0, np.cumsum(given.data != 0))[given.indptr])
        given.cache[EMPTY_ROWS] = None if entries.all() else np.flatnonzero(entries == 0)
    rows = given.cache[EMPTY_ROWS]
    bound = 0.0 if rows is None else norm_of(system.work.to_host(system.b)[rows])
    if not bound > system.target:
        return ""
    system.stats.notes.append(Notice(f"{BOUND} {system.units.norm(bound):.3e}"))
    return "the system is singular and inconsistent: it has no solution, as A has empty rows"
