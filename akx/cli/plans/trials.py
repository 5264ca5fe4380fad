"""``akx plans trials`` and ``timings``: what was measured to find plans, and to choose solvers."""

from __future__ import annotations

from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from akx.cli.options import Database, Json
from akx.cli.output import data_console, note
from akx.cli.plans.common import PlanIdOrNone, check_either, emit
from akx.report.units import ID_DIGITS, duration

if TYPE_CHECKING:
    from akx.plandb import PlanKey, SolverTiming, TrialRecord

__all__ = ["list_timings", "list_trials"]

_TRIAL_COLUMNS = {
    "created": "left", "": "left", "median": "right", "samples": "right", "clock": "right", "state": "left",
    "plan": "left", "why": "left",
}  # fmt: skip


def list_trials(
    plan_id: PlanIdOrNone = None,
    every: Annotated[bool, typer.Option("--all", help="Every trial in the database, also of killed searches.")] = False,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """List every trial of the searches behind one plan, also those that failed, and why; with --json every sample."""
    from akx.plandb import PlanDatabase

    check_either("trials are listed of one plan or of all searches", plan_id, "--all", every)
    if plan_id is None:
        return _list_every_trial(db, as_json=as_json)
    with PlanDatabase(db) as database:
        record = database.get(plan_id)
        trials = database.trials_behind(record)
    if as_json:
        rows = [trial.to_json() for trial in trials]
        return emit(database, id=record.id, trials=rows)
    if not trials:
        note(f"{database.path} has no trials for plan {record.id[:ID_DIGITS]}; they stay where it was tuned")
        return 0
    from akx.report.tables import print_rows

    rows_of_text = [_trial_row(trial, is_plan=trial.plan == record.plan) for trial in trials]
    print_rows(_TRIAL_COLUMNS, rows_of_text, data_console())
    return 0


def _list_every_trial(db: str | None, *, as_json: bool) -> int:
    from akx.plandb import PlanDatabase
    from akx.plandb.key import search_key

    with PlanDatabase(db) as database:
        found = database.all_trials()
        winners = {(search_key(record.key).id, record.plan) for record in database.list()}
    if as_json:
        rows = [_of_key(key) | trial.to_json() for key, trial in found]
        return emit(database, id=None, trials=rows)
    if not found:
        note(f"no trials yet in {database.path}; `akx tune FILE` makes some")
        return 0
    from akx.report.tables import print_rows

    rows_of_text = [
        (key.fingerprint[:ID_DIGITS], str(key.k), *_trial_row(trial, is_plan=(key.id, trial.plan) in winners))
        for key, trial in found
    ]
    print_rows({"matrix": "left", "k": "right", **_TRIAL_COLUMNS}, rows_of_text, data_console())
    return 0


def _trial_row(trial: TrialRecord, *, is_plan: bool) -> tuple[str, ...]:
    """A row for the columns of trials; a star marks the plan itself."""
    return (
        datetime.fromisoformat(trial.created).astimezone(UTC).strftime("%Y-%m-%d %H:%M"),
        "*" if is_plan else "",
        duration(median(trial.seconds) if trial.seconds else None),
        str(len(trial.seconds)),
        "-" if trial.clock_hz is None else f"{trial.clock_hz / 1e9:.2f} GHz",
        trial.state,
        trial.plan.label(),
        trial.reason,
    )


def _of_key(key: PlanKey) -> dict[str, Any]:
    return {
        "key_id": key.id,
        "fingerprint": key.fingerprint,
        "k": key.k,
        "basis": key.basis,
        "dtype": key.dtype,
        "start_vectors": key.start_vectors,
        "device": key.device_class,
    }


def list_timings(db: Database = None, as_json: Json = False) -> int:
    """List what steps of solvers took, by which they are chosen."""
    from akx.plandb import PlanDatabase
    from akx.report.plans.plan_facts import best_s

    with PlanDatabase(db) as database:
        found = database.timings()
    if as_json:
        rows = [{"layer": layer, **one.to_json(), "stale": one.is_stale, "aged": one.aged} for layer, one in found]
        return emit(database, timings=rows)
    if not found:
        note(
            f"no timings of solvers yet in {database.path}; `akx tune FILE --for ca-cg` makes some, as does `akx solve`"
        )
        return 0
    from akx.report.tables import print_rows

    columns = ("id", "matrix", "dtype", "basis", "asked for", "a step", "layer")
    rows_of_text = [
        (
            one.id[:ID_DIGITS],
            one.matrix_name or one.key.fingerprint[:ID_DIGITS],
            one.key.dtype,
            one.key.basis,
            _asked(one),
            best_s(one) if one.is_choice else _compared(one),
            layer + (" (stale)" if one.is_stale else " (aged)" if one.aged else ""),
        )
        for layer, one in found
    ]
    print_rows(dict.fromkeys(columns, "left"), rows_of_text, data_console())
    return 0


def _asked(timing: SolverTiming) -> str:
    """What was to be found out, such as ``"ca_cg: best s"`` or ``"gmres: s = 8, restart 20"``."""
    key = timing.key
    asked = [f"{key.solver}: " + ("best s" if timing.is_choice else f"s = {key.asked_s or 'auto'}")]
    asked += [f"restart {key.restart}"] if key.restart else []
    return ", ".join(asked + ([f"M {key.preconditioner}"] if key.preconditioner else []))


def _compared(timing: SolverTiming) -> str:
    steps = (f"{name} {'of no use' if step is None else duration(step)}" for name, step in timing.seconds.items())
    return ", ".join(steps)
