"""``akx plans``: what the database holds, and how to carry it from machine to machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from akx.cli.guard import EXIT_UNMET
from akx.cli.load import check_powers, check_seconds, load_matrix, open_database
from akx.cli.output import data_console, emit_json, note
from akx.plandb import PlanDatabase, stale_fields
from akx.report.text import ID_DIGITS, count, duration, ratio

if TYPE_CHECKING:
    from akx.plandb import PlanRecord

__all__ = [
    "PLANS_SCHEMA",
    "export_plans",
    "import_plans",
    "list_plans",
    "list_trials",
    "remove_plan",
    "show_plan",
    "verify_plans",
]

#: Version of the JSON objects of ``akx plans ... --json``.
PLANS_SCHEMA = 1


def list_plans(db: str | None, *, as_json: bool) -> int:
    """Print every plan that a lookup can find with its layer, in the order of a lookup."""
    with PlanDatabase(db) as database:
        entries = database.entries()
    if as_json:
        plans = [_summary(layer, record) for layer, record in entries]
        emit_json({"schema": PLANS_SCHEMA, "db": str(database.path), "plans": plans})
        return 0
    if not entries:
        note(f"no plans yet in {database.path}; `akx tune FILE` makes one")
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
            layer + (" (stale)" if stale_fields(record) else ""),
        )
        for layer, record in entries
    ]
    columns = {
        "id": "left",
        "matrix": "left",
        "k": "right",
        "basis": "left",
        "dtype": "left",
        "seconds": "right",
        "speed-up": "right",
        "plan": "left",
        "layer": "left",
    }
    print_rows(columns, rows, data_console())
    return 0


def show_plan(plan_id: str, db: str | None, *, as_json: bool) -> int:
    """Print one plan with its key, figures and provenance."""
    with PlanDatabase(db) as database:
        record = database.get(plan_id)
    stale = stale_fields(record)
    if as_json:
        emit_json({"schema": PLANS_SCHEMA, "db": str(database.path), "record": record.to_json(), "stale": stale})
        return 0
    from akx.report.tables import print_pairs

    trials = ", ".join(f"{number} {state}" for state, number in record.trials.items()) or "none recorded"
    state = f"stale, never used again: {', '.join(stale)} changed" if stale else "current"
    pairs = [
        ("id", record.id),
        ("matrix", record.matrix_name or "-"),
        ("plan", record.plan.label()),
        ("seconds", f"{duration(record.seconds)}, {ratio(record.speedup)} over {record.baseline_name}"),
        ("baseline", duration(record.baseline_seconds)),
        ("preparing", duration(record.prepare_seconds)),
        ("tuning", f"{duration(record.tuning_seconds)} ({trials})"),
        ("created", record.created),
        ("state", state),
        *((f"key {name}", str(value)) for name, value in record.key.to_json().items()),
        *((f"from {name}", str(value)) for name, value in sorted(record.provenance.items())),
    ]
    print_pairs(pairs, data_console())
    return 0


def list_trials(plan_id: str, db: str | None, *, as_json: bool) -> int:
    """Print every trial of the searches for the key of a plan, in the order in which they were made."""
    with PlanDatabase(db) as database:
        record = database.get(plan_id)
        trials = database.trials(record.key)
    if as_json:
        rows = [trial.to_json() for trial in trials]
        emit_json({"schema": PLANS_SCHEMA, "db": str(database.path), "id": record.id, "trials": rows})
        return 0
    if not trials:
        note(f"{database.path} has no trials for plan {record.id[:ID_DIGITS]}; they stay where it was tuned")
        return 0
    from statistics import median

    from akx.report.tables import print_rows

    columns = {"seconds": "right", "samples": "right", "clock": "right", "state": "left", "plan": "left", "why": "left"}
    print_rows(
        columns,
        [
            (
                duration(median(trial.seconds) if trial.seconds else None),
                str(len(trial.seconds)),
                "-" if trial.clock_hz is None else f"{trial.clock_hz / 1e9:.2f} GHz",
                trial.state,
                trial.plan.label(),
                trial.reason,
            )
            for trial in trials
        ],
        data_console(),
    )
    return 0


def export_plans(target: Path, db: str | None, *, as_json: bool) -> int:
    """Write the user's plans as text."""
    with PlanDatabase(db) as database:
        written = database.export(target)
    if as_json:
        emit_json({"schema": PLANS_SCHEMA, "db": str(database.path), "file": str(target), "exported": written})
    else:
        note(f"wrote {count(written)} plans of {database.path} to {target}")
    return 0


def import_plans(source: Path, db: str | None, *, as_json: bool) -> int:
    """Merge the plans of a text file into the user's; the faster of two for one key stays."""
    with PlanDatabase(db) as database:
        report = database.import_(source)
    if as_json:
        emit_json({"schema": PLANS_SCHEMA, "db": str(database.path), "file": str(source), **report.to_json()})
    else:
        note(
            f"{source}: {report.added} added, {report.replaced} replaced by faster ones, "
            f"{report.kept} kept as they were, {report.unchanged} there already"
        )
    return 0


def remove_plan(plan_id: str, db: str | None, *, as_json: bool) -> int:
    """Remove one of the user's plans."""
    with PlanDatabase(db) as database:
        record = database.remove(plan_id)
    if as_json:
        emit_json({"schema": PLANS_SCHEMA, "db": str(database.path), "removed": record.id})
    else:
        note(f"removed plan {record.id[:ID_DIGITS]} ({record.matrix_name or 'unnamed matrix'}, k = {record.key.k})")
    return 0


def verify_plans(
    file: str,
    db: str | None,
    *,
    k: int | None,
    plan_id: str | None,
    dtype: str | None,
    variable: str | None,
    seconds: float | None,
    as_json: bool,
) -> int:
    """Run the plans for a matrix again; exit code 3 where one is slower than it was, wrong, or cannot be run."""
    if k is not None:
        check_powers(k)
    check_seconds(seconds)
    from akx.report.recheck import BAD, recheck_plans

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
    for number, one in enumerate(recheck_plans(matrix, entries, **given), 1):
        found.append(one)
        if not as_json:
            note(f"{number} of {len(entries)}: {one.record.plan.label()}: {one.state}")
    bad = [one for one in found if one.state in BAD]
    if as_json:
        plans = [one.to_json() for one in found]
        emit_json({"schema": PLANS_SCHEMA, "db": str(database.path), "file": file, "plans": plans, "bad": len(bad)})
    elif not found:
        note(f"{database.path} has no plan for {file}; `akx tune {file}` makes one")
    else:
        from akx.report.tables import print_rechecks

        print_rechecks(found, data_console())
    return EXIT_UNMET if bad else 0


def _summary(layer: str, record: PlanRecord) -> dict[str, Any]:
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
    }
