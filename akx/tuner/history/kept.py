"""Results in the plan database: a plan found again as a result, and a result kept as a plan with its trials.

A plan gives way only to one that was compared with it: what a search without a run-off found, or one that never came to
measure the plan that is there, is not kept in its place; nor is one whose run-off was disturbed. Searches for one key
may overlap; which plan stays is decided in the transaction that writes it.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
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
    """The record that the database has for a call, where its plan works.

    Parameters
    ----------
    record : PlanRecord, optional
        What was found.
    matrix : Matrix
        The matrix.
    device : HostDevice or CudaDevice
        This machine's.
    threads : int
        Most threads.

    Returns
    -------
    PlanRecord or None
        None also where the plan names an unknown schedule, takes more threads or is infeasible: it is then as good as
        not there.
    """
    if record is None:
        return None
    return record if _works(record.plan, matrix, device, threads) else None


def _works(plan: Plan, matrix: Matrix, device: Any, threads: int) -> bool:
    """Whether a plan that others may have written can be run here, with so many threads at most."""
    if plan.threads > threads or unknown_option(plan.backend, plan.schedule, plan.options):
        return False
    try:
        schedule = registry.get(plan.backend, plan.schedule)
        return schedule.feasible(plan, matrix, replace(device, cores=threads)) is None
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
    if not record.provisional:
        return True
    try:
        db.check_writable()
    except DatabaseError:
        return True
    return False


def reuse(
    db: PlanDatabase, record: PlanRecord, layer: str, matrix: Matrix, device: Any, threads: int, start: float
) -> TuneResult:
    """A record of :func:`usable`, found in `layer`, as the result of a call that began at `start`."""
    key = record.key
    notes = [f"tuned on {record.created[:10]} in {record.tuning_seconds:.1f} s"]
    if record.provisional:  # where none can be kept in its place
        notes.append(f"the plan is provisional ({record.provisional}), and the database cannot be written")
    if record.provenance.get("stopped") == FEW_CALLS:
        sought = record.provenance.get("calls")
        few = "1 call" if sought == 1 else f"{sought} calls"
        notes.append(f"that search was for {few}, too few to search on")
    baseline = None
    best_spread, baseline_spread = _spreads(record.provenance.get("spreads"))
    try:
        baseline = Plan.from_json(record.provenance.get("baseline_plan", {}))
    except PlanError:
        baseline = None
    if baseline is not None and (
        (baseline.backend, baseline.k) != (record.plan.backend, key.k) or not _works(baseline, matrix, device, threads)
    ):
        baseline = None
    counts = Counts(**{state: record.trials.get(state, 0) for state in ("complete", "pruned", "failed")})
    return TuneResult(
        matrix_name=record.matrix_name,
        rows=matrix.n,
        nnz=matrix.nnz,
        dtype=key.dtype,
        index_type=key.index_type,
        fingerprint=key.fingerprint,
        k=key.k,
        basis=key.basis,
        start_vectors=key.start_vectors,
        backend=record.plan.backend,
        device=key.device_class,
        threads=threads,
        plan=record.plan,
        seconds=record.seconds,
        spread=best_spread,
        baseline_name=record.baseline_name,
        baseline_plan=baseline,
        baseline_seconds=record.baseline_seconds,
        baseline_spread=baseline_spread,
        tuning_seconds=measure.now() - start,
        prepare_seconds=record.prepare_seconds,
        counts=counts,
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
    db : PlanDatabase
        Where to.
    key : PlanKey
        Of the call.
    result : TuneResult
        What the search found.
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
        return _with_trials(replace(result, notes=(*result.notes, stays)), log)
    record = PlanRecord(
        key=key,
        plan=result.plan,
        seconds=result.seconds,
        baseline_name=result.baseline_name,
        baseline_seconds=result.baseline_seconds,
        prepare_seconds=result.prepare_seconds,
        tuning_seconds=result.tuning_seconds,
        matrix_name=result.matrix_name,
        provenance=_features(features) | _provenance(result) | _sought_for_more(result, old),
        trials=result.counts.to_json(),
    )
    try:
        better = db.put(record, unless=lambda there: _stays(there, record, result, before))
        if better is not None:
            stays = f"the database keeps the plan of another search, {better.plan.label()}, {better.speedup:.2f}x"
            result = replace(result, notes=(*result.notes, stays))
        elif record.provisional:
            goes_on = f"the plan is provisional ({record.provisional}): it is used, and the next tuning goes on from it"
            result = replace(result, notes=(*result.notes, goes_on))
    except DatabaseError as error:
        return replace(result, notes=(*result.notes, _not_kept(record, error)))
    return _with_trials(replace(result, notes=(*result.notes, *_hidden(db, key))), log)


def leave(result: TuneResult, log: TrialLog) -> TuneResult:
    """The result of a search that ended before the predicted plan was tried: its trials are kept, its plan is not.

    It would stand between every later call and a plan that nobody has measured, and that may be better.
    """
    text = "too few calls to measure more than plain products: the plan is not kept, and calls go on as untuned ones"
    return _with_trials(replace(result, db=None, notes=(*result.notes, text)), log)


def _with_trials(result: TuneResult, log: TrialLog) -> TuneResult:
    """The result, with a note where what is left of its trials cannot be put into the database."""
    try:
        log.end()
    except DatabaseError as error:
        return replace(result, notes=(*result.notes, f"the plan is kept, its trials are not: {error}"))
    return result


def _features(features: Mapping[str, float] | None) -> dict[str, object]:
    """First in the provenance, where :mod:`akx.plandb.record` looks for them."""
    return {} if features is None else {FEATURES: dict(features)}


def _hidden(db: PlanDatabase, key: PlanKey) -> list[str]:
    """A note where a layer that goes before the user's has a plan for the key as well."""
    if not db.above:
        return []
    layer = db.find(key).layer
    names = [above.name for above in db.above]
    if layer not in names:
        return []
    what = f"the {layer} layer has a plan for this key, which goes before the one kept now"
    return [f"{what}; export the new one there (akx plans export), or remove the other"]


def _sought_for_more(result: TuneResult, old: PlanRecord | None) -> dict[str, object]:
    """How far the search behind `old` went, where the new one was for fewer calls: it has measured that plan too."""
    if (
        result.stopped != FEW_CALLS
        or old is None
        or old.provenance.get("interrupted")
        or not is_enough(old, result.calls)
    ):
        return {}
    return {name: old.provenance[name] for name in ("stopped", "calls") if name in old.provenance}


def _not_kept(record: PlanRecord, error: DatabaseError) -> str:
    """What became of a plan that the database did not take."""
    file = keep_aside(record)
    if file is None:
        return f"the plan could not be kept: {error}; it is {json.dumps(record.plan.to_json())}"
    return f"the plan could not be kept: {error}; it is in {file}, from where `akx plans import {file}` takes it"


def _stays(there: PlanRecord, record: PlanRecord, result: TuneResult, before: PlanRecord | None) -> bool:
    """Whether it is not for `record` to replace a plan that another search has kept since this one began."""
    known = [finalist.plan for finalist in result.finalists]
    if there.plan in known or (before is not None and there.plan == before.plan):
        return False
    return there.better_than(record)


def made_here(plan: Plan, device: str) -> dict[str, object]:
    """Machine, kernel sources and versions behind figures that were measured here."""
    versions = {"python": platform.python_version()}
    packages = ("akx", "numpy", "numba", *backend_of(plan.backend).packages)
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    made = made_with(plan)
    machine = {"system": platform.platform(), "device": device}
    return {"machine": machine, **made, "versions": versions | made["versions"]}


def _provenance(result: TuneResult) -> dict[str, object]:
    """Where the figures of a record come from."""
    return {
        **made_here(result.plan, result.device),
        "matrix": {"rows": result.rows, "nnz": result.nnz},
        "baseline_plan": None if result.baseline_plan is None else result.baseline_plan.to_json(),
        "spreads": [result.spread, result.baseline_spread],
        "finalists": [finalist.to_json() for finalist in result.finalists],
        "roofline": None if result.roofline is None else result.roofline.to_json(),
        "stopped": result.stopped,
        "interrupted": result.interrupted,
        "disturbed": result.disturbed,
        "starved": result.starved,
        "calls": result.calls,
        "untried": dict(result.untried),
        "untuned": None
        if result.untuned is None
        else {"seconds": result.untuned.seconds, "plan": result.untuned.plan.to_json()},
    }
