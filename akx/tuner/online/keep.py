"""What a search beside calls has found, in the database: others use it from then on, and go on from there."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

from akx.core.errors import DatabaseError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.plandb import PlanDatabase, PlanRecord
from akx.plandb.record import FEATURES
from akx.tuner.candidates.warm_start import features_of
from akx.tuner.history.kept import made_here
from akx.tuner.history.ledger import Ledger
from akx.tuner.history.result import Counts

__all__ = ["put"]


def put(
    database: PlanDatabase,
    key: Any,
    matrix: Matrix,
    plan: Plan,
    ledger: Ledger,
    old: PlanRecord | None,
    *,
    first: Plan,
    gain: float,
    spent: float,
    stopped: str,
    is_provisional: bool,
) -> None:
    """Put the plan of calls there, unless somebody else has put one meanwhile that is better founded.

    Calls began with the plan `first`, which came from the record `old` where there was one. The plan found takes the
    seconds of that over `gain`, and it has cost `spent` seconds to find. `stopped` says why the search has ended, and
    `is_provisional` whether there was more to try.
    """
    seconds = ledger[first].seconds or math.inf
    name, before = f"{first.schedule}/{first.variant} threads={first.threads}", seconds
    plain: object = first.to_json()
    untuned: object = {"seconds": seconds, "plan": plain}
    if old is not None:  # it has gained already
        name, before = old.baseline_name, seconds * old.speedup
        plain, untuned = old.provenance.get("baseline_plan"), old.provenance.get("untuned")
    provenance = {
        FEATURES: dict(features_of(matrix)),
        **made_here(plan, key.device_class),
        "matrix": {"rows": matrix.n, "nnz": matrix.nnz},
        "baseline_plan": plain,
        "untuned": untuned,
        "stopped": stopped,
        "starved": is_provisional,
        "online": True,
    }
    counts = Counts.of(tuple(trial for trial in ledger.trials if trial.is_own)).to_json()
    made: dict[str, Any] = {"tuning_seconds": spent, "provenance": provenance, "trials": counts}
    record = PlanRecord(key, plan, seconds / gain, name, before, **made)
    known = {first, *(trial.plan for trial in ledger.trials)}

    def stays(there: PlanRecord) -> bool:
        if there.plan in known:
            return False
        return there.better_than(record) or (bool(record.provisional) and not there.provisional)

    with suppress(DatabaseError):
        database.put(record, unless=stays)
