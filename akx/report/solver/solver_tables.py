"""What ``akx solve`` and ``akx tune --for`` say: what a solver did, and which s it takes from now on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console

from akx.report.tables import print_pairs, print_rows
from akx.report.units import count, counted, duration, ratio

if TYPE_CHECKING:
    from akx.solvers import SolveStats
    from akx.solvers.tuning import SolverTuning

__all__ = ["print_solution", "print_solver_tuning"]


def print_solution(
    stats: SolveStats, matrix: str, console: Console, *, device: str | None, preconditioner: tuple[str, float] | None
) -> None:
    """What a solver did; of a preconditioner its name, and the seconds that it took to make."""
    first = stats.residuals[0] if stats.residuals else float("nan")
    ca = stats.method.startswith("ca_") and stats.s
    spent = ", ".join(f"{phase} {duration(t)}" for phase, t in sorted(stats.seconds.items()) if phase != "total")
    passes = f"{counted(stats.products, 'product')} in {counted(stats.matrix_passes, 'pass')} over the matrix"
    pairs = [
        ("matrix", matrix),
        *([] if device is None else [("device", device)]),
        ("method", f"{stats.method}, s = {_spread(stats.s)}, {stats.basis} basis" if ca else stats.method),
        *(
            [("preconditioner", f"{preconditioner[0]}, made in {duration(preconditioner[1])}")]
            if preconditioner is not None
            else []
        ),
        ("answer", _answer(stats)),
        ("residual", f"{stats.residual:.3e} (at the start {first:.3e}, asked for {stats.target:.3e})"),
        ("steps", f"{count(stats.iterations)}: {passes}"),
        ("time", f"{duration(stats.seconds.get('total', float('nan')))} ({spent})"),
    ]
    print_pairs(pairs, console)


def _answer(stats: SolveStats) -> str:
    """Whether it converged, and why it ended."""
    if not stats.converged:
        return f"NOT CONVERGED: {stats.reason}".replace(": not converged", "")
    return stats.reason if stats.reason.startswith("converged") else f"converged: {stats.reason}"


def _spread(s: list[int]) -> str:
    return f"{s[0]}" if min(s) == max(s) else f"{min(s)} to {max(s)}"


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
