"""What ``akx tune --for`` says: a line for each s, and which one the solver takes from now on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console

from akx.report.tables import print_pairs, print_rows
from akx.report.units import duration, ratio

if TYPE_CHECKING:
    from akx.solvers.tuning import SolverTuning

__all__ = ["print_solver_tuning"]


def print_solver_tuning(found: SolverTuning, file: str, console: Console) -> None:
    """The s that was found, and what was measured of all."""
    best = f"s = {found.s}, {duration(found.seconds)} a step" if math.isfinite(found.seconds) else "no basis is of use"
    if math.isfinite(found.classic_seconds) and math.isfinite(found.seconds):
        best += f", {ratio(found.classic_seconds / found.seconds)} over {found.solver.removeprefix('ca_')}"
    print_pairs(
        [("matrix", file), ("solver", f"{found.solver} on the {found.backend}, {found.basis} basis"), ("best", best)],
        console,
    )
    if found.candidates:
        rows = [
            (
                str(one.s),
                duration(one.seconds) if math.isfinite(one.seconds) else "no use",
                duration(one.powers_seconds),
                f"{one.share:.0%}",
                one.plan.label(),
            )
            for one in found.candidates
        ]
        console.print()
        columns = {"s": "right", "step": "right", "of it powers": "right", "used": "right", "plan": "left"}
        print_rows(columns, rows, console)
    console.print()
    known = (
        "found in the database; --retune measures again" if found.reused else f"took {duration(found.tuning_seconds)}"
    )
    kept = "the solver takes it by itself" if found.kept else "not kept"
    print_pairs([("tuning", known), ("kept", kept), *(("also", line) for line in found.notes)], console)
