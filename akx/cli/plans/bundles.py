"""``akx plans export`` and ``import``: plans as text, to carry them from machine to machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from akx.cli.options import Database, Json
from akx.cli.output import note
from akx.cli.plans.common import counted_plans, counted_timings, emit

__all__ = ["export_plans", "import_plans"]


def export_plans(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, as text (JSON).")],
    plan_ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id", metavar="ID", help="Only this plan, as `akx plans list --all` shows it; may be given again."
        ),
    ] = None,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Write plans, by default all of the user's, to a text file, such as .akx/plans/NAME.json of a project."""
    from akx.plandb import PlanDatabase

    with PlanDatabase(db) as database:
        written = database.export(target, plan_ids or None)
    if as_json:
        emit(database, file=str(target), exported=written)
    else:
        note(f"wrote {counted_plans(written)}{'' if plan_ids else f' of {database.path}'} to {target}")
    return 0


def import_plans(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="File that `akx plans export` wrote.")],
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Add the plans of a text file to the database."""
    from akx.plandb import PlanDatabase

    with PlanDatabase(db) as database:
        report = database.import_(source)
    if as_json:
        emit(database, file=str(source), **report.to_json())
    else:
        note(
            f"{source}: {report.added} added, {report.replaced} replaced by better ones, "
            f"{report.kept} kept as they were, {report.unchanged} there already"
            f"{f'; {counted_timings(report.timings)} taken' if report.timings else ''}"
        )
    return 0
