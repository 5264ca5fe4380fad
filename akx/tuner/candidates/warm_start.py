"""Plans of the database with which a search begins: of like devices, for the same pattern, for similar matrices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from akx.core.errors import DatabaseError, MissingDependencyError, PlanError, brief
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.plandb import PlanDatabase, PlanKey
from akx.tuner.candidates.same_pattern import pattern_plans
from akx.tuner.candidates.similar_matrices import features_of, similar_plans
from akx.tuner.fallback.answer import like_plans
from akx.tuner.space import Space

__all__ = ["LIKE", "NO_SEEDS", "PATTERN", "SIMILAR", "Seeds", "known_seeds"]

#: Origins of trials.
LIKE, PATTERN, SIMILAR = "like", "pattern", "similar"
#: Plans of like devices, and for the same pattern, that are tried at most.
_MOST = 3


@dataclass(frozen=True)
class Seeds:
    """What is tried before the search comes up with plans of its own, within its budgets.

    Attributes
    ----------
    like : tuple of Plan
        Tuned for this very problem on like devices: tried first behind the baseline.
    similar : tuple of Plan
        Tuned for similar matrices: tried after those for the same pattern.
    pattern : tuple of Plan
        Tuned for the same pattern under another key, such as another k or the kernels of yesterday: tried after the
        predicted plan.
    """

    like: tuple[Plan, ...] = ()
    similar: tuple[Plan, ...] = ()
    pattern: tuple[Plan, ...] = ()

    def to_json(self) -> dict[str, list[dict[str, Any]]]:
        """``{"like": [...], "pattern": [...], "similar": [...]}``, for a recording."""
        return {name: [plan.to_json() for plan in getattr(self, name)] for name in (LIKE, PATTERN, SIMILAR)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Seeds:
        """From an object with :meth:`to_json`'s names, which may lack them. Raises PlanError where they are wrong."""
        lists = {name: data.get(name, []) for name in (LIKE, PATTERN, SIMILAR)}
        if not all(isinstance(plans, list) for plans in lists.values()):
            raise PlanError("seeds are no lists of plans", found=brief(lists))
        return Seeds(**{name: tuple(Plan.from_json(plan) for plan in plans) for name, plans in lists.items()})


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
    like = _feasible(dict.fromkeys(space.inside(one.plan) for one in found), space, matrix)
    pattern = _feasible((plan for plan in pattern_plans(records, key, space) if plan not in like), space, matrix)
    similar = tuple(plan for plan in similar_plans(db, key, space, matrix) if _is_feasible(plan, space, matrix))
    return Seeds(like, similar, pattern)


def _feasible(plans: Iterable[Plan], space: Space, matrix: Matrix) -> tuple[Plan, ...]:
    """The first few of some plans that can be tried here, of the first of twice as many."""
    return tuple(plan for plan in islice(plans, 2 * _MOST) if _is_feasible(plan, space, matrix))[:_MOST]


def _is_feasible(plan: Plan, space: Space, matrix: Matrix) -> bool:
    """Whether a plan can be tried here; one that nobody can tell of cannot."""
    try:
        return space.feasible(plan, matrix) is None
    except Exception:  # an unknown schedule, or one that fails on what is in the plan
        return False
