"""Warm start: plans of the database with which a search begins. They are tried, and never used unmeasured.

1. like      tuned for this very problem on like devices (:func:`akx.tuner.fallback.answer.like_plans`)
2. pattern   tuned for the same pattern under another key: the kernels of yesterday, another k, type or basis. The
             distance is that of the keys::

                 1/8 [revisions differ] + 1/8 [it is aged] + 1/4 [the basis differs] + 1/4 [the index type differs]
                     + 1/2 [the type differs] + |k| + |start vectors| + 1 [another device] (1/4 where it is like)

             k may differ by a factor of four, types are both real or both complex. Of plans that are equally far the
             newer comes first.
3. similar   tuned for similar matrices. The features that tell a likely plan are kept with it
             (:mod:`akx.plandb.record`)::

                 rows, nnz, row_mean   known, or nearly
                 bandwidth             max |i - j|: the first and last entry of each row
                 block_size            of dense blocks: up to five passes over an eighth of the indices
                 diagonals             distinct offsets j - i: one pass over the indices

             The last two take as long as one or two products each, once for a search. The distance::

                 2 |row_mean| + 1/2 |rows| + 1/2 |bandwidth| + 1/4 |diagonals| + 2 [block_size differs]
                     + |k| + |start vectors| + 1 [another device] (1/4 where it is like and not the same)

             Beyond a distance of 6 nothing is similar.

Each |.| is that of the base-2 logarithm of the ratio.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from operator import itemgetter
from typing import Any

import numpy as np

from akx.backends.device_similarity import device_similarity
from akx.backends.selection import backend_of
from akx.core.errors import DatabaseError, MissingDependencyError, PlanError, brief
from akx.core.features import dense_block_size
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.plandb import PlanDatabase, PlanKey, PlanRecord, aged, mismatch
from akx.tuner.fallback.answer import fitted, like_plans
from akx.tuner.fallback.nearest import may_fit, nearest_in
from akx.tuner.space import Space, is_baseline

__all__ = [
    "LIKE",
    "NO_WARM_START",
    "PATTERN",
    "SIMILAR",
    "WarmStart",
    "carried_over",
    "distance",
    "features_of",
    "key_distance",
    "pattern_plans",
    "similar_plans",
    "warm_start_of",
]

#: Origins of trials.
LIKE, PATTERN, SIMILAR = "like", "pattern", "similar"
#: Plans of each kind that are tried at most; and plans that are read for those of similar matrices.
_MOST, _READ = 3, 12
#: k of a plan and that of the search may differ by these factors.
_PATTERN_K_RATIO, _SIMILAR_K_RATIO = 4, 2
#: Distances of keys for the same pattern: of what differs, of other revisions and of aged plans.
_DIFFERENT = {"basis": 0.25, "index_type": 0.25, "dtype": 0.5}
_OTHER_REVISION, _AGED = 0.125, 0.125
#: Distances of devices: of like ones, and of others.
_LIKE_DEVICE, _OTHER_DEVICE = 0.25, 1.0
#: Distances of matrices: the farthest, of an octave of each feature, and of other dense blocks.
_FARTHEST = 6.0
_WEIGHTS = {"row_mean": 2.0, "rows": 0.5, "bandwidth": 0.5, "diagonals": 0.25}
_OTHER_BLOCKS = 2.0
_MEMO = "akx.tuner.features"
#: Up to so many entries all rows are looked at for dense blocks, else a run of them that holds whole blocks of 1 to 6.
_ALL_ENTRIES, _ALIGNED = 1 << 19, 60


@dataclass(frozen=True)
class WarmStart:
    """What is tried before the search comes up with plans of its own, within its budgets.

    `like` is first behind the baseline, `pattern` after the predicted plan, and `similar` after that.
    """

    like: tuple[Plan, ...] = ()
    similar: tuple[Plan, ...] = ()
    pattern: tuple[Plan, ...] = ()

    def to_json(self) -> dict[str, list[dict[str, Any]]]:
        """``{"like": [...], "pattern": [...], "similar": [...]}``, for a recording."""
        return {name: [plan.to_json() for plan in getattr(self, name)] for name in (LIKE, PATTERN, SIMILAR)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> WarmStart:
        """From an object with :meth:`to_json`'s names, which may lack them. Raises PlanError where they are wrong."""
        lists = {name: data.get(name, []) for name in (LIKE, PATTERN, SIMILAR)}
        if not all(isinstance(plans, list) for plans in lists.values()):
            raise PlanError("seeds are no lists of plans", found=brief(lists))
        return WarmStart(**{name: tuple(Plan.from_json(plan) for plan in plans) for name, plans in lists.items()})


#: A search that begins with nothing that anybody has measured.
NO_WARM_START = WarmStart()


def warm_start_of(db: PlanDatabase | None, key: PlanKey, space: Space, matrix: Matrix) -> WarmStart:
    """What the database knows for a search: feasible plans; nothing without one, nothing of one that cannot be read.

    The features of the matrix, which are kept with its plan, are known from here on.
    """
    if db is None:
        return NO_WARM_START
    features_of(matrix)
    try:
        records = db.of_pattern(key.fingerprint)
    except (DatabaseError, MissingDependencyError):
        return NO_WARM_START
    found = like_plans(records, key, backend=space.backend, threads=space.threads)
    like = _feasible(dict.fromkeys(space.inside(one.plan) for one in found), space, matrix)
    pattern = _feasible((plan for plan in pattern_plans(records, key, space) if plan not in like), space, matrix)
    similar = _feasible(similar_plans(db, key, space, matrix), space, matrix)
    return WarmStart(like, similar, pattern)


def _feasible(plans: Iterable[Plan], space: Space, matrix: Matrix) -> tuple[Plan, ...]:
    """The first few of some plans that can be tried here, or the nearest that can, of the first of twice as many."""
    found: dict[Plan, None] = {}
    for plan in islice(plans, 2 * _MOST):
        near = plan if _is_feasible(plan, space, matrix) else nearest_in(space, plan, matrix)
        found |= {} if near is None else {near: None}
    return tuple(found)[:_MOST]


def _is_feasible(plan: Plan, space: Space, matrix: Matrix) -> bool:
    """Whether a plan can be tried here; one that nobody can tell of cannot."""
    try:
        return space.feasible(plan, matrix) is None
    except Exception:  # an unknown schedule, or one that fails on what is in the plan
        return False


def key_distance(key: PlanKey, other: PlanKey) -> float:
    """How far a plan for the same pattern under another key is from a call; infinite where it is of no use."""
    ratio = max(key.k, other.k) / min(key.k, other.k)
    if key.fingerprint != other.fingerprint or ratio > _PATTERN_K_RATIO or key.value_kind != other.value_kind:
        return math.inf
    far = sum(price for name, price in _DIFFERENT.items() if getattr(key, name) != getattr(other, name))
    far += math.log2(ratio) + abs(math.log2(key.start_vectors / other.start_vectors))
    return far + _device_distance(key.device_class, other.device_class)


def pattern_plans(records: Iterable[PlanRecord], key: PlanKey, space: Space) -> list[Plan]:
    """Plans of the space that were tuned for the pattern under other keys, nearest first, each once.

    A plan under this very key is left out, and so is one of a like device alone. Some may be infeasible.
    """
    found = []
    for record in records:
        far, differ = key_distance(key, record.key), mismatch(key, record)
        far += _OTHER_REVISION * ("revisions" in differ) + _AGED * bool(aged(record))
        is_like = (
            differ == ["device_class"] and device_similarity(key.device_class, record.key.device_class) is not None
        )
        if differ and not is_like and far < math.inf:
            found.append((far, -datetime.fromisoformat(record.created).timestamp(), record.id, record))
    found.sort(key=itemgetter(0, 1, 2))
    moved = (carried_over(record.plan, record.key.device_class, space) for *_, record in found)
    return list(dict.fromkeys(plan for plan in moved if plan is not None))


def features_of(matrix: Matrix) -> Mapping[str, float]:
    """The features of a matrix, by which similar ones are found; computed once for a pattern."""
    found: Mapping[str, float] | None = matrix.pattern_cache.get(_MEMO)
    if found is None:
        from akx.core import features

        found = {
            "rows": matrix.n,
            "nnz": matrix.nnz,
            "row_mean": round(matrix.nnz / matrix.n, 4),
            "bandwidth": int(features.extent(matrix.indptr, matrix.indices)[0]),
            "block_size": _block_size(matrix),
            "diagonals": int(features.count_diagonals(matrix.indptr, matrix.indices)),
        }
        matrix.pattern_cache[_MEMO] = found
    return found


def _block_size(matrix: Matrix) -> int:
    """The size of the dense blocks, by the rows in the middle where there are many."""
    indptr, indices = matrix.indptr, matrix.indices
    if matrix.nnz > _ALL_ENTRIES:
        first = matrix.n // 2 - matrix.n // 2 % _ALIGNED
        begin, end = int(indptr[first]), int(indptr[min(matrix.n, first + matrix.n // 8 // _ALIGNED * _ALIGNED)])
        indptr, indices = np.clip(indptr, begin, end) - indptr.dtype.type(begin), indices[begin:end]
        indptr.flags.writeable = False  # as a matrix's: compiled code is for arrays of one kind
    return dense_block_size(indptr, indices)[0] if indices.size else 1


def distance(features: Mapping[str, float], key: PlanKey, theirs: Mapping[str, float], other: PlanKey) -> float:
    """How far a plan for another matrix is from a call; infinite where a feature is not known."""
    if not {*_WEIGHTS, "block_size"} <= theirs.keys():
        return math.inf
    far = sum(weight * _octaves(features[name], theirs[name]) for name, weight in _WEIGHTS.items())
    far += _octaves(key.k, other.k) + _octaves(key.start_vectors, other.start_vectors)
    far += _OTHER_BLOCKS * (features["block_size"] != theirs["block_size"])
    return far + _device_distance(key.device_class, other.device_class)


def carried_over(plan: Plan, device_class: str, space: Space) -> Plan | None:
    """A plan of another matrix, k and device as one of this space; None where it has no place in it.

    All powers in one pass stay all powers in one pass, other numbers become the nearest choice that there is. What may
    give way may still be no choice of the space (:mod:`akx.tuner.fallback.nearest`).
    """
    if plan.backend != space.backend or plan.schedule not in space.parameters:
        return None
    depth = space.k if plan.k_per_pass == plan.k else min(plan.k_per_pass, space.k)
    choices = [int(choice) for choice in space.choices(plan.schedule, "k_per_pass")]
    if choices:
        depth = min(choices, key=lambda choice: (abs(choice - depth), choice))
    try:
        moved = plan.replace(k=space.k, k_per_pass=depth)
    except PlanError:
        return None
    if backend_of(space.backend).uses_threads:
        moved = fitted(moved, device_class, space.threads)
    return space.inside(moved) if may_fit(space, moved) else None


def similar_plans(db: PlanDatabase, key: PlanKey, space: Space, matrix: Matrix) -> tuple[Plan, ...]:
    """Plans of the most similar matrices in the database, nearest first: three at most, none of them a baseline.

    Other kinds of numbers, and k beyond a factor of two, are not similar. A database that cannot be read has none.
    """
    least, most = -(-key.k // _SIMILAR_K_RATIO), _SIMILAR_K_RATIO * key.k
    try:
        known = db.with_features(key, backend=space.backend, least=least, most=most)
    except (DatabaseError, MissingDependencyError):
        return ()
    if not known:
        return ()
    features = features_of(matrix)
    ranked = sorted(
        ((distance(features, key, one.features or {}, one.key), one.id, one) for one in known), key=itemgetter(0, 1)
    )
    near = [record for far, _, record in ranked if far <= _FARTHEST][:_READ]
    moved = (carried_over(record.plan, record.key.device_class, space) for record in near)
    found = dict.fromkeys(plan for plan in moved if plan is not None and not is_baseline(plan))
    return tuple(found)[:_MOST]


def _octaves(one: float, other: float) -> float:
    """|log2| of the ratio of two numbers that are not negative, one being added to each: a bandwidth may be 0."""
    if one < 0 or other < 0:
        return math.inf
    return abs(math.log2((one + 1) / (other + 1)))


def _device_distance(one: str, other: str) -> float:
    """Of two device classes."""
    if one == other:
        return 0.0
    return _OTHER_DEVICE if device_similarity(one, other) is None else _LIKE_DEVICE
