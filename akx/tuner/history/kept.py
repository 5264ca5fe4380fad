"""Results in the plan database: a plan found again as a result, and a result kept as a plan with its trials.

A plan gives way only to one that was compared with it: what a search without a run-off found, or one that never came to
measure the plan that is there, is not kept in its place; nor is one whose run-off was disturbed. Searches for one key
may overlap; which plan stays is decided in the transaction that writes it.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from typing import Any

from akx.backends import registry
from akx.backends.selection import backend_of
from akx.core.errors import AkxError, DatabaseError, PlanError
from akx.core.matrix import Matrix
from akx.core.options import unknown_option
from akx.core.plan import Plan
from akx.plandb import PlanDatabase, PlanKey, PlanRecord, made_with
from akx.plandb.bundle import keep_aside
from akx.plandb.record import FEATURES
from akx.tuner import measure
from akx.tuner.history.result import FEW_CALLS, Counts, TuneResult, Untuned
from akx.tuner.history.trial_log import TrialLog

__all__ = ["is_enough", "is_final", "keep", "leave", "made_here", "reuse", "usable"]


def usable(record: PlanRecord | None, matrix: Matrix, device: Any, threads: int) -> PlanRecord | None:
    """The record that the database has for a call, where its plan works here with so many threads at most.

    None also where the plan names an unknown schedule, is infeasible, or would store these values otherwise than those
    that it was tuned for: it is then as good as not there.
    """
    return record if record is not None and _works(record.plan, matrix, device, threads) else None


def _works(plan: Plan, matrix: Matrix, device: Any, threads: int) -> bool:
    if plan.threads > threads or unknown_option(plan.backend, plan.schedule, plan.options):
        return False
    try:
        schedule = registry.get(plan.backend, plan.schedule)
        here = replace(device, cores=threads)
        if schedule.feasible(plan, matrix, here) is not None:
            return False
        return not (schedule.waste(plan, matrix, here) or "").startswith("stored=")  # was tuned for other values
    except AkxError:
        return False


def is_enough(record: PlanRecord, calls: int | None) -> bool:
    """Whether a plan will do for that many calls, None being any number: not where it was sought for fewer only."""
    if record.provenance.get("stopped") != FEW_CALLS:
        return True
    sought = record.provenance.get("calls")
    return calls is not None and isinstance(sought, int) and calls <= sought


def is_final(db: PlanDatabase, record: PlanRecord) -> bool:
    """Whether a plan is not to be improved: it is not provisional, or what replaced it could not be kept."""
    if record.provisional:
        try:
            db.check_writable()
        except DatabaseError:
            return True
    return not record.provisional


def reuse(
    db: PlanDatabase, record: PlanRecord, layer: str, matrix: Matrix, device: Any, threads: int, start: float
) -> TuneResult:
    """A record of :func:`usable`, found in `layer`, as the result of a call that began at `start`."""
    said, plan = record.provenance, record.plan
    notes = [f"tuned on {record.created[:10]} in {record.tuning_seconds:.1f} s"]
    if record.provisional:  # where none can be kept in its place
        notes.append(f"the plan is provisional ({record.provisional}), and the database cannot be written")
    if said.get("stopped") == FEW_CALLS:
        few = "1 call" if said.get("calls") == 1 else f"{said.get('calls')} calls"
        notes.append(f"that search was for {few}, too few to search on")
    baseline = None
    with suppress(PlanError):
        baseline = Plan.from_json(said.get("baseline_plan", {}))
        is_alike = (baseline.backend, baseline.k) == (plan.backend, record.key.k)
        if not is_alike or not _works(baseline, matrix, device, threads):
            baseline = None
    spread, baseline_spread = _spreads(said.get("spreads"))
    return TuneResult(
        matrix_name=record.matrix_name,
        **TuneResult.problem(matrix, record.key),
        backend=plan.backend,
        threads=threads,
        plan=plan,
        seconds=record.seconds,
        spread=spread,
        baseline_name=record.baseline_name,
        baseline_plan=baseline,
        baseline_seconds=record.baseline_seconds,
        baseline_spread=baseline_spread,
        tuning_seconds=measure.now() - start,
        prepare_seconds=record.prepare_seconds,
        counts=Counts(**{state: record.trials.get(state, 0) for state in ("complete", "pruned", "failed")}),
        reused=True,
        layer=layer,
        db=str(db.path),
        stopped="reused",
        notes=tuple(notes),
        untuned=Untuned.of_record(record),
    )


def _spreads(given: object) -> tuple[float, float]:
    """Those of the best plan and of its baseline; 0 for what is no number, since others may have written it."""
    pair = given if isinstance(given, list) and len(given) == 2 else (0.0, 0.0)
    best, baseline = (float(one) if isinstance(one, (int, float)) and 0 <= one < 1e300 else 0.0 for one in pair)
    return best, baseline


def keep(
    db: PlanDatabase,
    key: PlanKey,
    result: TuneResult,
    log: TrialLog,
    old: PlanRecord | None = None,
    *,
    before: PlanRecord | None = None,
    features: Mapping[str, float] | None = None,
) -> TuneResult:
    """Put a result into the database, and what is left of its trials.

    Parameters
    ----------
    db, key, result : PlanDatabase, PlanKey, TuneResult
        Where to, and what the search for the key found.
    log : TrialLog
        Of its trials; those of others are theirs to keep.
    old : PlanRecord, optional
        A usable one that is there: it stays where the search was interrupted, or its run-off disturbed and that of the
        old one was not.
    before : PlanRecord, optional
        The one that was there when the search began, usable or not: it has been compared, or is of no use. Another,
        which another search has kept meanwhile, stays where it was not in this run-off and is the better one.
    features : mapping of str to float, optional
        Of the matrix, by which searches for similar ones find the plan (:mod:`akx.tuner.candidates.warm_start`).

    Returns
    -------
    TuneResult
        The same; with a note where it was not kept, so that it is not lost with the database.
    """
    if old is not None and (result.interrupted or (result.disturbed and not old.is_crude)):
        why = "did not end" if result.interrupted else "was disturbed"
        stays = f"the database keeps the plan it had, {old.plan.label()}: the search that was to replace it {why}"
        return _with_trials(result.noted(stays), log)
    record = _record(key, result, features)
    known = {finalist.plan for finalist in result.finalists} | (set() if before is None else {before.plan})
    try:
        better = db.put(record, unless=lambda there: there.plan not in known and there.better_than(record))
    except DatabaseError as error:
        return result.noted(_not_kept(record, error))
    if better is not None:
        stays = f"the database keeps the plan of another search, {better.plan.label()}, {better.speedup:.2f}x"
        result = result.noted(stays)
    elif record.provisional:
        goes_on = f"the plan is provisional ({record.provisional}): it is used, and the next tuning goes on from it"
        result = result.noted(goes_on)
    if db.above and (layer := db.find(key).layer) in [above.name for above in db.above]:
        hidden = f"the {layer} layer has a plan for this key, which goes before the one kept now"
        result = result.noted(f"{hidden}; export the new one there (akx plans export), or remove the other")
    return _with_trials(result, log)


def leave(result: TuneResult, log: TrialLog) -> TuneResult:
    """The result of a search that ended before the predicted plan was tried: its trials are kept, its plan is not.

    It would stand between every later call and a plan that nobody has measured, and that may be better.
    """
    text = "too few calls to measure more than plain products: the plan is not kept, and calls go on as untuned ones"
    return _with_trials(replace(result, db=None).noted(text), log)


def _with_trials(result: TuneResult, log: TrialLog) -> TuneResult:
    """The result, with a note where what is left of its trials cannot be put into the database."""
    try:
        log.end()
    except DatabaseError as error:
        return result.noted(f"the plan is kept, its trials are not: {error}")
    return result


def _record(key: PlanKey, result: TuneResult, features: Mapping[str, float] | None) -> PlanRecord:
    """What is kept: the plan, its figures, and where they come from."""
    baseline, untuned = result.baseline_plan, result.untuned
    provenance = {
        **({} if features is None else {FEATURES: dict(features)}),  # first, where readers look for them
        **made_here(result.plan, result.device),
        "matrix": {"rows": result.rows, "nnz": result.nnz},
        "baseline_plan": None if baseline is None else baseline.to_json(),
        "spreads": [result.spread, result.baseline_spread],
        "finalists": [finalist.to_json() for finalist in result.finalists],
        "roofline": None if result.roofline is None else result.roofline.to_json(),
        "stopped": result.stopped,
        "interrupted": result.interrupted,
        "disturbed": result.disturbed,
        "starved": result.starved,
        "calls": result.calls,
        "untried": dict(result.untried),
        "untuned": None if untuned is None else {"seconds": untuned.seconds, "plan": untuned.plan.to_json()},
    }
    return PlanRecord(
        key=key,
        plan=result.plan,
        seconds=result.seconds,
        baseline_name=result.baseline_name,
        baseline_seconds=result.baseline_seconds,
        prepare_seconds=result.prepare_seconds,
        tuning_seconds=result.tuning_seconds,
        matrix_name=result.matrix_name,
        provenance=provenance,
        trials=result.counts.to_json(),
    )


def _not_kept(record: PlanRecord, error: DatabaseError) -> str:
    """What became of a plan that the database did not take."""
    file = keep_aside(record)
    if file is None:
        return f"the plan could not be kept: {error}; it is {json.dumps(record.plan.to_json())}"
    return f"the plan could not be kept: {error}; it is in {file}, from where `akx plans import {file}` takes it"


def made_here(plan: Plan, device: str) -> dict[str, object]:
    """Machine, kernel sources and versions behind figures that were measured here."""
    made, versions = made_with(plan), {"python": platform.python_version()}
    for package in ("akx", "numpy", "numba", *backend_of(plan.backend).packages):
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    machine = {"system": platform.platform(), "device": device}
    return {"machine": machine, **made, "versions": versions | made["versions"]}
