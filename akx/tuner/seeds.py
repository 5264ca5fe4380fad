"""Plans from the database with which a search begins: those of like devices, and those of similar matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from akx.errors import DatabaseError, MissingDependencyError, PlanError
from akx.matrix import Matrix
from akx.plan import Plan
from akx.plandb import PlanDatabase, PlanKey
from akx.tuner.ladder import like_plans
from akx.tuner.similar import features_of, similar_plans
from akx.tuner.space import Space

__all__ = ["LIKE", "NO_SEEDS", "SIMILAR", "Seeds", "known_seeds"]

#: Origins of trials.
LIKE, SIMILAR = "like", "similar"
#: Plans of like devices that are tried at most.
_LIKE_PLANS = 3


@dataclass(frozen=True)
class Seeds:
    """What is tried before the search comes up with plans of its own, within its budgets.

    Attributes
    ----------
    like : tuple of Plan
        Tuned for this very problem on like devices: tried first behind the baseline.
    similar : tuple of Plan
        Tuned for similar matrices: tried after the predicted plan.
    """

    like: tuple[Plan, ...] = ()
    similar: tuple[Plan, ...] = ()

    def to_json(self) -> dict[str, list[dict[str, Any]]]:
        """``{"like": [...], "similar": [...]}``, for a recording."""
        return {LIKE: [plan.to_json() for plan in self.like], SIMILAR: [plan.to_json() for plan in self.similar]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Seeds:
        """From an object with :meth:`to_json`'s names, which may lack them. Raises PlanError where they are wrong."""
        lists = [data.get(name, []) for name in (LIKE, SIMILAR)]
        if not all(isinstance(plans, list) for plans in lists):
            raise PlanError("seeds are no lists of plans", found=repr(lists)[:80])
        like, similar = (tuple(Plan.from_json(plan) for plan in plans) for plans in lists)
        return Seeds(like, similar)


#: A search that begins with nothing that anybody has measured.
NO_SEEDS = Seeds()


def known_seeds(db: PlanDatabase | None, key: PlanKey, space: Space, matrix: Matrix) -> Seeds:
    """What the database knows for a search: feasible plans; nothing without one, nothing of one that cannot be read.

    The features of the matrix, which are kept with its plan, are known from here on.
    """
    if db is None:
        return NO_SEEDS
    features_of(matrix)
    try:
        records = db.of_pattern(key.fingerprint)
    except (DatabaseError, MissingDependencyError):
        return NO_SEEDS
    found = like_plans(records, key, backend=space.backend, threads=space.threads)
    like = tuple(dict.fromkeys(space.inside(one.plan) for one in found))[: 2 * _LIKE_PLANS]
    similar = similar_plans(db, key, space, matrix)
    feasible = [tuple(plan for plan in plans if _is_feasible(plan, space, matrix)) for plans in (like, similar)]
    return Seeds(feasible[0][:_LIKE_PLANS], feasible[1])


def _is_feasible(plan: Plan, space: Space, matrix: Matrix) -> bool:
    """Whether a plan can be tried here; one that nobody can tell of cannot."""
    try:
        return space.feasible(plan, matrix) is None
    except Exception:  # an unknown schedule, or one that fails on what is in the plan
        return False
