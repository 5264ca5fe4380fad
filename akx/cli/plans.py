"""``akx plans``: what the database holds, and how to carry it from machine to machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from akx.cli.inputs import check_powers, check_seconds, load_matrix, open_database
from akx.cli.output import data_console, emit_json, note
from akx.cli.run import EXIT_UNMET
from akx.core.errors import ArgumentError
from akx.plandb import PlanDatabase, SolverTiming, aged, stale_fields
from akx.plandb.layers import SHIPPED
from akx.report.units import ID_DIGITS, counted, duration, half_width, ratio

if TYPE_CHECKING:
    from akx.plandb import PlanKey, PlanRecord, TrialRecord

__all__ = [
    "PLANS_SCHEMA",
    "export_plans",
    "import_plans",
    "list_plans",
    "list_timings",
    "list_trials",
    "remove_plan",
    "show_plan",
    "verify_plans",
]

#: Version of the JSON objects of ``akx plans ... --json``.
PLANS_SCHEMA = 2

_TRIAL_COLUMNS = {
    "created": "left",
    "": "left",
    "median": "right",
    "samples": "right",
    "clock": "right",
    "state": "left",
    "plan": "left",
    "why": "left",
}


def list_plans(db: str | None, *, every: bool, as_json: bool) -> int:
    """Print every plan with its layer, in the order of a lookup; those shipped in a line, and in full where `every`.

    The JSON object has those shipped in any case, but for the stale ones.
    """
    with PlanDatabase(db) as database:
        found = database.entries()
    entries = [entry for entry in found if every or entry[0] != SHIPPED or not stale_fields(entry[1])]
    hidden = len(found) - len(entries)
    if as_json:
        plans = [_summary(layer, record) for layer, record in entries]
        emit_json({"schema": PLANS_SCHEMA, "db": str(database.path), "plans": plans, "hidden": hidden})
        return 0
    shipped = [] if every else [record for layer, record in found if layer == SHIPPED]
    entries = [entry for entry in entries if every or entry[0] != SHIPPED]
    if shipped:
        patterns = {record.key.fingerprint for record in shipped}
        matrices = "1 matrix" if len(patterns) == 1 else f"{len(patterns)} matrices"
        note(f"{_plans(len(shipped))} for {matrices} shipped with akx left out; --all lists them too")
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
        "id": "left",
        "matrix": "left",
        "k": "right",
        "basis": "left",
        "dtype": "left",
        "time": "right",
        "speed-up": "right",
        "plan": "left",
        "layer": "left",
    }
    print_rows(columns, rows, data_console())
    reasons = Counter(reason for _, record in entries if not stale_fields(record) for reason in aged(record))
    for reason, number in reasons.items():
        note(f"{_plans(number)} aged: {reason}; used after one check and a race with the prediction")
    return 0


def _mark(record: PlanRecord) -> str:
    if stale_fields(record):
        return " (stale)"
    return (" (aged)" if aged(record) else "") + (f", provisional ({record.provisional})" if record.provisional else "")


def show_plan(plan_id: str, db: str | None, *, as_json: bool) -> int:
    """Print one plan with its key, figures and provenance."""
    from akx.report.plans.plan_summary import read_stories

    with PlanDatabase(db) as database:
        layer, record = database.entry(plan_id)
        story = None if as_json else read_stories(database, [(layer, record)])[0]
    if story is None:
        stale, why = stale_fields(record), aged(record)
        told = {"record": record.to_json(), "stale": stale, "aged": why, "provisional": record.provisional}
        emit_json({"schema": PLANS_SCHEMA, "db": str(database.path), **told})
        return 0
    from akx.report.plans.plan_facts import plan_environment, plan_facts
    from akx.report.tables import print_pairs

    console = data_console()
    facts = [("matrix", record.matrix_name or "-"), ("plan", record.plan.label()), *plan_facts(story)]
    print_pairs([(name, str(value)) for name, value in facts], console)
    console.print()
    ends = [("run-off", f"{duration(one.seconds)}{half_width(one.spread)}  {one.label}") for one in story.finalists]
    print_pairs([*((name, str(value)) for name, value in plan_environment(story)), *ends], console)
    return 0


def list_trials(plan_id: str | None, db: str | None, *, every: bool, as_json: bool) -> int:
    """Print every trial of the searches for the key of a plan, or in the database, in the order they were made."""
    _check_either("trials are listed of one plan or of all searches", plan_id, "--all", every)
    if plan_id is None:
        return _list_every_trial(db, as_json=as_json)
    with PlanDatabase(db) as database:
        record = database.get(plan_id)
        trials = database.trials_behind(record)
    if as_json:
        rows = [trial.to_json() for trial in trials]
        emit_json({"schema": PLANS_SCHEMA, "db": str(database.path), "id": record.id, "trials": rows})
        return 0
    if not trials:
        note(f"{database.path} has no trials for plan {record.id[:ID_DIGITS]}; they stay where it was tuned")
        return 0
    from akx.report.tables import print_rows

    rows_of_text = [_trial_row(trial, is_plan=trial.plan == record.plan) for trial in trials]
    print_rows(_TRIAL_COLUMNS, rows_of_text, data_console())
    return 0


def _list_every_trial(db: str | None, *, as_json: bool) -> int:
    from akx.plandb.key import search_key

    with PlanDatabase(db) as database:
        found = database.all_trials()
        winners = {(search_key(record.key).id, record.plan) for record in database.list()}
    if as_json:
        rows = [_of_key(key) | trial.to_json() for key, trial in found]
        emit_json({"schema": PLANS_SCHEMA, "db": str(database.path), "id": None, "trials": rows})
        return 0
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


def list_timings(db: str | None, *, as_json: bool) -> int:
    """Print what steps of solvers took, with layers, in the order of a lookup."""
    from akx.report.plans.plan_facts import best_s

    with PlanDatabase(db) as database:
        found = database.timings()
    if as_json:
        rows = [{"layer": layer, **one.to_json(), "stale": one.is_stale, "aged": one.aged} for layer, one in found]
        emit_json({"schema": PLANS_SCHEMA, "db": str(database.path), "timings": rows})
        return 0
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


def export_plans(target: Path, plan_ids: Sequence[str], db: str | None, *, as_json: bool) -> int:
    """Write the plans with these ids as text, of any layer; where there are none, all of the user's."""
    with PlanDatabase(db) as database:
        written = database.export(target, plan_ids or None)
    if as_json:
        emit_json({"schema": PLANS_SCHEMA, "db": str(database.path), "file": str(target), "exported": written})
    else:
        note(f"wrote {_plans(written)}{'' if plan_ids else f' of {database.path}'} to {target}")
    return 0


def import_plans(source: Path, db: str | None, *, as_json: bool) -> int:
    """Merge the plans of a text file into the user's; the better of two for one key stays."""
    with PlanDatabase(db) as database:
        report = database.import_(source)
    if as_json:
        emit_json({"schema": PLANS_SCHEMA, "db": str(database.path), "file": str(source), **report.to_json()})
    else:
        note(
            f"{source}: {report.added} added, {report.replaced} replaced by better ones, "
            f"{report.kept} kept as they were, {report.unchanged} there already"
            f"{f'; {_timings(report.timings)} taken' if report.timings else ''}"
        )
    return 0


def remove_plan(plan_id: str | None, db: str | None, *, stale: bool, as_json: bool) -> int:
    """Remove one of the user's plans with its trials, or one timing; or all that are stale."""
    _check_either("one plan is removed, or all stale ones", plan_id, "--stale", stale)
    if plan_id is None:
        return _remove_stale(db, as_json=as_json)
    with PlanDatabase(db) as database:
        found = database.remove(plan_id)
    if as_json:
        emit_json({"schema": PLANS_SCHEMA, "db": str(database.path), "removed": found.id})
        return 0
    name = found.matrix_name or "unnamed matrix"
    if isinstance(found, SolverTiming):
        note(f"removed timing {found.id[:ID_DIGITS]} ({name}, {found.key.solver})")
    else:
        note(f"removed plan {found.id[:ID_DIGITS]} ({name}, k = {found.key.k})")
    return 0


def _remove_stale(db: str | None, *, as_json: bool) -> int:
    with PlanDatabase(db) as database:
        removed = database.remove_stale()
    if as_json:
        ids = [record.id for record in removed]
        emit_json({"schema": PLANS_SCHEMA, "db": str(database.path), "removed": ids})
        return 0
    timings = sum(isinstance(one, SolverTiming) for one in removed)
    also = f" and {_timings(timings, 'stale ')}" if timings else ""
    note(f"removed {_plans(len(removed) - timings, 'stale ')}{also} of {database.path}")
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
    from akx.report.plans.verification import BAD, SKIPPED, recheck_plans

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
    bad, skipped = [one for one in found if one.state in BAD], sum(one.state == SKIPPED for one in found)
    if as_json:
        plans = [one.to_json() for one in found]
        totals = {"bad": len(bad), "verified": len(found) - skipped}
        emit_json({"schema": PLANS_SCHEMA, "db": str(database.path), "file": file, "plans": plans, **totals})
    elif found:
        from akx.report.tables import print_rechecks

        print_rechecks(found, data_console())
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
        why = f"{_plans(skipped)} for {file}{powers} {'is' if skipped == 1 else 'are'} not for here (see why)"
    return f"nothing was verified: {why}; `akx tune {file}{'' if k is None else f' --k {k}'}` makes one"


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
        "aged": aged(record),
        "provisional": record.provisional,
    }


def _check_either(what: str, plan_id: str | None, option: str, given: bool) -> None:
    """Refuse a plan's id together with the option that takes its place, and neither of them."""
    if (plan_id is None) is not given:
        found = "neither" if plan_id is None else "both"
        raise ArgumentError(what, expected=f"ID or {option}", found=found, hint="akx plans list --all shows the ids")


def _plans(number: int, kind: str = "") -> str:
    return counted(number, f"{kind}plan")


def _timings(number: int, kind: str = "") -> str:
    return f"{counted(number, f'{kind}timing')} of solvers"


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
