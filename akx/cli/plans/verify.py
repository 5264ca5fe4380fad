"""``akx plans verify``: the plans for a matrix, run again; exit code 3 where one is slower, wrong, or cannot be run."""

from __future__ import annotations

from typing import Annotated

import typer

from akx.cli.exit_codes import EXIT_UNMET
from akx.cli.inputs import load_matrix, open_database
from akx.cli.options import REQUESTED, Database, Dtype, File, Json, Variable
from akx.cli.output import data_console, note
from akx.cli.plans.common import counted_plans, emit
from akx.report.units import ID_DIGITS

__all__ = ["verify_plans"]


def verify_plans(
    file: File,
    k: Annotated[
        int | None,
        typer.Option("--k", metavar="K", callback=REQUESTED["k"].check, help="Only plans for so many powers."),
    ] = None,
    plan_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Only this plan, as `akx plans list --all` shows it.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--time",
            metavar="SECONDS",
            callback=REQUESTED["seconds"].check,
            help="Most seconds of timing for a plan; 3 by default.",
        ),
    ] = None,
    dtype: Dtype = None,
    db: Database = None,
    variable: Variable = None,
    as_json: Json = False,
) -> int:
    """Run the plans for a matrix again: are they right, and as fast beside their baselines as when they were tuned?"""
    from akx.report.plans.verification import BAD, SKIPPED, verifications

    database = open_database(db)
    matrix = load_matrix(file, dtype=dtype, variable=variable)
    with database:
        wanted = None if plan_id is None else database.get(plan_id).id
        entries = [
            (layer, record)
            for layer, record in database.entries(matrix.fingerprint)
            if k in (None, record.key.k) and wanted in (None, record.id)
        ]
    given = {} if seconds is None else {"seconds": seconds}
    found = []
    for number, one in enumerate(verifications(matrix, entries, **given), 1):
        found.append(one)
        if not as_json:
            note(f"{number} of {len(entries)}: {one.record.plan.label()}: {one.state}")
    bad, skipped = [one for one in found if one.state in BAD], sum(one.state == SKIPPED for one in found)
    if as_json:
        plans = [one.to_json() for one in found]
        totals = {"bad": len(bad), "verified": len(found) - skipped}
        emit(database, file=file, plans=plans, **totals)
    elif found:
        from akx.report.command_tables import print_verifications

        print_verifications(found, data_console())
    if skipped == len(found):
        note(_nothing_verified(file, k, wanted, skipped))
    return EXIT_UNMET if bad else 0


def _nothing_verified(file: str, k: int | None, plan_id: str | None, skipped: int) -> str:
    """Why no plan was run again, and what to do."""
    if plan_id is not None and not skipped:
        begin = plan_id[:ID_DIGITS]
        return f"nothing was verified: plan {begin} is for another matrix or k; akx plans show {begin}"
    powers = "" if k is None else f" and k = {k}"
    if not skipped:
        why = f"there is no plan for {file}{powers}"
    else:
        why = f"{counted_plans(skipped)} for {file}{powers} {'is' if skipped == 1 else 'are'} not for here (see why)"
    return f"nothing was verified: {why}; `akx tune {file}{'' if k is None else f' --k {k}'}` makes one"
