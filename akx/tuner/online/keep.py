"""What a search beside calls has found, in the database: others use it from then on, and go on from there."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
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

__all__ = ["Found", "put"]


@dataclass(frozen=True)
class Found:
    """The plan of calls.

    Attributes
    ----------
    plan : Plan
    gain : float
        Seconds of the first plan over those of this one.
    spent : float
        Seconds that it has cost.
    stopped : str
        Why the search has ended; "" while it goes on.
    is_provisional : bool
        Whether there was more to try.
    """

    plan: Plan
    gain: float
    spent: float
    stopped: str
    is_provisional: bool


def put(
    database: PlanDatabase,
    key: Any,
    matrix: Matrix,
    found: Found,
    ledger: Ledger,
    first: Plan,
    old: PlanRecord | None,
) -> None:
    """Put it there, unless somebody else has put one meanwhile that is better founded.

    `first` is the plan that calls began with; `old` the record that it came from, where there was one.
    """
    plan, seconds = found.plan, ledger[first].seconds or math.inf
    own = tuple(trial for trial in ledger.trials if trial.is_own)
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
        "stopped": found.stopped,
        "starved": found.is_provisional,
        "online": True,
    }
    record = PlanRecord(
        key,
        plan,
        seconds / found.gain,
        name,
        before,
        tuning_seconds=found.spent,
        provenance=provenance,
        trials=Counts.of(own).to_json(),
    )
    known = {first, *(trial.plan for trial in ledger.trials)}

    def stays(there: PlanRecord) -> bool:
        if there.plan in known:
            return False
        return there.better_than(record) or (bool(record.provisional) and not there.provisional)

    with suppress(DatabaseError):
        database.put(record, unless=stays)
