"""``akx plans list``, ``show`` and ``rm``: the plans themselves."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from akx.cli.options import Database, Json
from akx.cli.output import data_console, note
from akx.cli.plans.common import PlanId, PlanIdOrNone, check_either, counted_plans, counted_timings, emit
from akx.report.units import ID_DIGITS, duration, half_width, ratio

if TYPE_CHECKING:
    from akx.plandb import PlanRecord

__all__ = ["list_plans", "remove_plan", "show_plan"]


def list_plans(
    db: Database = None,
    every: Annotated[bool, typer.Option("--all", help="Also those shipped with akx, stale ones included.")] = False,
    as_json: Json = False,
) -> int:
    """List the plans of the project, the user and the system; with --all those shipped with akx, too."""
    # The order is that of a lookup. The JSON object has those shipped in any case, but for the stale ones.
    from akx.plandb import PlanDatabase, aged, stale_fields
    from akx.plandb.layers import SHIPPED

    with PlanDatabase(db) as database:
        found = database.entries()
    entries = [entry for entry in found if every or entry[0] != SHIPPED or not stale_fields(entry[1])]
    hidden = len(found) - len(entries)
    if as_json:
        plans = [_summary(layer, record) for layer, record in entries]
        return emit(database, plans=plans, hidden=hidden)
    shipped = [] if every else [record for layer, record in found if layer == SHIPPED]
    entries = [entry for entry in entries if every or entry[0] != SHIPPED]
    if shipped:
        patterns = {record.key.fingerprint for record in shipped}
        matrices = "1 matrix" if len(patterns) == 1 else f"{len(patterns)} matrices"
        note(f"{counted_plans(len(shipped))} for {matrices} shipped with akx left out; --all lists them too")
    if not entries:
        note(f"no plans of yours yet in {database.path}; `akx tune FILE` makes one")
        return 0
    from akx.report.tables import print_rows

    rows = [
        (
            record.id[:ID_DIGITS],
            record.matrix_name or "-",
            str(record.key.k),
            record.key.basis,
            record.key.dtype,
            duration(record.seconds),
            ratio(record.speedup),
            record.plan.label(),
            layer + _mark(record),
        )
        for layer, record in entries
    ]
    columns = {
        "id": "left", "matrix": "left", "k": "right", "basis": "left", "dtype": "left", "time": "right",
        "speed-up": "right", "plan": "left", "layer": "left",
    }  # fmt: skip
    print_rows(columns, rows, data_console())
    reasons = Counter(reason for _, record in entries if not stale_fields(record) for reason in aged(record))
    for reason, number in reasons.items():
        note(f"{counted_plans(number)} aged: {reason}; used after one check and a race with the prediction")
    return 0


def show_plan(plan_id: PlanId, db: Database = None, as_json: Json = False) -> int:
    """Show one plan with its key, its figures and where it comes from."""
    from akx.plandb import PlanDatabase, aged, stale_fields
    from akx.report.plans.plan_summary import read_summaries

    with PlanDatabase(db) as database:
        layer, record = database.entry(plan_id)
        summary = None if as_json else read_summaries(database, [(layer, record)])[0]
    if summary is None:
        return emit(
            database,
            record=record.to_json(),
            stale=stale_fields(record),
            aged=aged(record),
            provisional=record.provisional,
        )
    from akx.report.plans.plan_facts import plan_environment, plan_facts
    from akx.report.tables import print_pairs

    console = data_console()
    facts = [("matrix", record.matrix_name or "-"), ("plan", record.plan.label()), *plan_facts(summary)]
    print_pairs([(name, str(value)) for name, value in facts], console)
    console.print()
    ends = [("run-off", f"{duration(one.seconds)}{half_width(one.spread)}  {one.label}") for one in summary.finalists]
    print_pairs([*((name, str(value)) for name, value in plan_environment(summary)), *ends], console)
    return 0


def remove_plan(
    plan_id: PlanIdOrNone = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Every plan of the user's that this akx never uses again.")
    ] = False,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Remove one plan, or every stale one, and the trials of its search; or one timing of solvers."""
    from akx.plandb import PlanDatabase, SolverTiming

    check_either("one plan is removed, or all stale ones", plan_id, "--stale", stale)
    if plan_id is None:
        return _remove_stale(db, as_json=as_json)
    with PlanDatabase(db) as database:
        found = database.remove(plan_id)
    if as_json:
        return emit(database, removed=found.id)
    name = found.matrix_name or "unnamed matrix"
    if isinstance(found, SolverTiming):
        note(f"removed timing {found.id[:ID_DIGITS]} ({name}, {found.key.solver})")
    else:
        note(f"removed plan {found.id[:ID_DIGITS]} ({name}, k = {found.key.k})")
    return 0


def _remove_stale(db: str | None, *, as_json: bool) -> int:
    from akx.plandb import PlanDatabase, SolverTiming

    with PlanDatabase(db) as database:
        removed = database.remove_stale()
    if as_json:
        ids = [record.id for record in removed]
        return emit(database, removed=ids)
    timings = sum(isinstance(one, SolverTiming) for one in removed)
    also = f" and {counted_timings(timings, 'stale ')}" if timings else ""
    note(f"removed {counted_plans(len(removed) - timings, 'stale ')}{also} of {database.path}")
    return 0


def _mark(record: PlanRecord) -> str:
    from akx.plandb import aged, stale_fields

    if stale_fields(record):
        return " (stale)"
    return (" (aged)" if aged(record) else "") + (f", provisional ({record.provisional})" if record.provisional else "")


def _summary(layer: str, record: PlanRecord) -> dict[str, Any]:
    from akx.plandb import aged, stale_fields

    return {
        "id": record.id,
        "layer": layer,
        "matrix": record.matrix_name,
        "fingerprint": record.key.fingerprint,
        "k": record.key.k,
        "basis": record.key.basis,
        "dtype": record.key.dtype,
        "device": record.key.device_class,
        "seconds": record.seconds,
        "speedup": record.speedup,
        "label": record.plan.label(),
        "created": record.created,
        "stale": stale_fields(record),
        "aged": aged(record),
        "provisional": record.provisional,
    }
