"""Results in the plan database: a plan found again as a result, and a result kept as a plan with its trials."""

from __future__ import annotations

import platform
from dataclasses import replace
from importlib import metadata

from akx.device.host import HostDevice
from akx.errors import AkxError, DatabaseError, PlanError
from akx.kernels import registry
from akx.matrix import Matrix
from akx.plan import Plan
from akx.plandb import PlanDatabase, PlanKey, PlanRecord, TrialRecord
from akx.tuner import measure
from akx.tuner.result import Counts, TuneResult

__all__ = ["keep", "reuse"]


def reuse(
    db: PlanDatabase, key: PlanKey, matrix: Matrix, device: HostDevice, threads: int, start: float
) -> TuneResult | None:
    """The result that the database has for a key, or None.

    Parameters
    ----------
    db : PlanDatabase
        Where to look.
    key : PlanKey
        Of the call.
    matrix : Matrix
        The matrix.
    device : HostDevice
        This machine.
    threads : int
        Most threads.
    start : float
        When the call began, on the clock of :func:`akx.tuner.measure.now`.

    Returns
    -------
    TuneResult or None
        None also where the plan found names an unknown schedule or is infeasible: it is then as good as not there.
    """
    record = db.find(key).record
    if record is None:
        return None
    try:
        schedule = registry.get(record.plan.backend, record.plan.schedule)
        if schedule.feasible(record.plan, matrix, replace(device, cores=threads)) is not None:
            return None
    except AkxError:
        return None
    baseline = None
    spreads = record.provenance.get("spreads")
    best_spread, baseline_spread = spreads if isinstance(spreads, list) and len(spreads) == 2 else (0.0, 0.0)
    try:
        baseline = Plan.from_json(record.provenance.get("baseline_plan", {}))
    except PlanError:
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
        spread=float(best_spread),
        baseline_name=record.baseline_name,
        baseline_plan=baseline,
        baseline_seconds=record.baseline_seconds,
        baseline_spread=float(baseline_spread),
        tuning_seconds=measure.now() - start,
        prepare_seconds=record.prepare_seconds,
        counts=counts,
        reused=True,
        db=str(db.path),
        stopped="reused",
        notes=(f"tuned on {record.created[:10]} in {record.tuning_seconds:.1f} s",),
    )


def keep(db: PlanDatabase, key: PlanKey, result: TuneResult) -> TuneResult:
    """Put a result and its trials into the database.

    Returns
    -------
    TuneResult
        The same; with a note where it could not be kept, so that it is not lost with the database.
    """
    record = PlanRecord(
        key=key,
        plan=result.plan,
        seconds=result.seconds,
        baseline_name=result.baseline_name,
        baseline_seconds=result.baseline_seconds,
        prepare_seconds=result.prepare_seconds,
        tuning_seconds=result.tuning_seconds,
        matrix_name=result.matrix_name,
        provenance=_provenance(result),
        trials=result.counts.to_json(),
    )
    rows = [TrialRecord(trial.plan, trial.samples, trial.state, trial.reason) for trial in result.trials]
    try:
        db.put(record)
        db.add_trials(key, rows)
    except DatabaseError as error:
        return replace(result, notes=(*result.notes, f"the plan could not be kept: {error}"))
    return result


def _provenance(result: TuneResult) -> dict[str, object]:
    """Where the figures of a record come from."""
    versions = {"python": platform.python_version()}
    for package in ("akx", "numpy", "numba"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "machine": {"system": platform.platform(), "device": result.device},
        "versions": versions,
        "matrix": {"rows": result.rows, "nnz": result.nnz},
        "baseline_plan": None if result.baseline_plan is None else result.baseline_plan.to_json(),
        "spreads": [result.spread, result.baseline_spread],
        "finalists": [finalist.to_json() for finalist in result.finalists],
        "roofline": None if result.roofline is None else result.roofline.to_json(),
        "stopped": result.stopped,
        "interrupted": result.interrupted,
    }
