"""What the commands of ``akx plans`` share: the argument ID, the JSON object, words for numbers of things."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from akx.cli.output import emit_json
from akx.core.errors import ArgumentError
from akx.report.units import counted

if TYPE_CHECKING:
    from akx.plandb import PlanDatabase

__all__ = ["PLANS_SCHEMA", "PlanId", "PlanIdOrNone", "check_either", "counted_plans", "counted_timings", "emit"]

#: Version of the JSON objects of ``akx plans ... --json``.
PLANS_SCHEMA = 2

_OF_PLAN = "Number of a plan, as `akx plans list --all` shows it."
PlanId = Annotated[str, typer.Argument(metavar="ID", help=_OF_PLAN)]
PlanIdOrNone = Annotated[str | None, typer.Argument(metavar="ID", help=_OF_PLAN, show_default=False)]


def emit(database: PlanDatabase, **found: Any) -> int:
    """Print the JSON object of a command, and return the exit code 0."""
    emit_json({"schema": PLANS_SCHEMA, "db": str(database.path), **found})
    return 0


def check_either(what: str, plan_id: str | None, option: str, given: bool) -> None:
    """Refuse a plan's id together with the option that takes its place, and neither of them."""
    if (plan_id is None) is not given:
        found = "neither" if plan_id is None else "both"
        raise ArgumentError(what, expected=f"ID or {option}", found=found, hint="akx plans list --all shows the ids")


def counted_plans(number: int, kind: str = "") -> str:
    return counted(number, f"{kind}plan")


def counted_timings(number: int, kind: str = "") -> str:
    return f"{counted(number, f'{kind}timing')} of solvers"
