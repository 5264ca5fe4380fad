"""Similar matrices: plans for other patterns with which a search may begin. They are never used unmeasured.

The features of a matrix that tell a likely plan and cost little are kept with its plan
(:mod:`akx.plandb.record`)::

    rows, nnz, row_mean      known, or nearly
    bandwidth                max |i - j|: the first and last entry of each row
    block_size               of dense blocks: up to five passes over the indices of an eighth of the rows, in the middle
    diagonals                distinct offsets j - i: one pass over the indices

The last two take about as long as one or two products each (in the order of 10 ms for 5 to 10 million entries), all of
them once for each search that is kept. Of two matrices the distance is a weighted sum
of the logarithms of ratios, by what changes the best plan: the entries of a row count most, its size hardly::

    2 |row_mean| + 1/2 |rows| + 1/2 |bandwidth| + 1/4 |diagonals| + 2 [block_size differs]
        + |k| + |start vectors| + 1 [the device is not like] (or 1/4 where it is like and not the same)

each |.| being that of the base-2 logarithm of the ratio. Beyond a distance of 6 nothing is similar.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from akx.backends.device_similarity import likeness
from akx.backends.selection import backend_of
from akx.core.errors import DatabaseError, MissingDependencyError, PlanError
from akx.core.features import dense_block_size
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.plandb import PlanDatabase, PlanKey
from akx.plandb.record import Sketch
from akx.tuner.fallback.answer import fitted
from akx.tuner.space import Space, is_baseline

__all__ = ["carried_over", "distance", "features_of", "similar_plans"]

#: Seeds at most, and plans that are read for them.
_SEEDS, _READ = 3, 12
#: The k of a plan and that of the search may differ by this factor.
_K_RATIO = 2
_FARTHEST = 6.0
_WEIGHTS = {"row_mean": 2.0, "rows": 0.5, "bandwidth": 0.5, "diagonals": 0.25}
_OTHER_BLOCKS, _LIKE_DEVICE, _OTHER_DEVICE = 2.0, 0.25, 1.0
_MEMO = "akx.tuner.candidates.similar_matrices"
#: Up to so many entries all rows are looked at for dense blocks, else a run of them that holds whole blocks of 1 to 6.
_ALL_ENTRIES, _ALIGNED = 1 << 19, 60


def features_of(matrix: Matrix) -> Mapping[str, float]:
    """The features of a matrix, by which similar ones are found; computed once for a pattern.

    Returns
    -------
    mapping of str to float
        ``rows``, ``nnz``, ``row_mean``, ``bandwidth``, ``block_size``, ``diagonals``.
    """
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


def distance(features: Mapping[str, float], key: PlanKey, other: Sketch) -> float:
    """How far a plan for another matrix is from a call; infinite where a feature is not known."""
    theirs = other.features
    if not {*_WEIGHTS, "block_size"} <= theirs.keys():
        return math.inf
    far = sum(weight * _octaves(features[name], theirs[name]) for name, weight in _WEIGHTS.items())
    far += _octaves(key.k, other.k) + _octaves(key.start_vectors, other.start_vectors)
    far += _OTHER_BLOCKS * (features["block_size"] != theirs["block_size"])
    if key.device_class != other.device_class:
        far += _OTHER_DEVICE if likeness(key.device_class, other.device_class) is None else _LIKE_DEVICE
    return far


def carried_over(plan: Plan, device_class: str, space: Space) -> Plan | None:
    """A plan of another matrix, k and device as one of this space; None where it has no place in it.

    All powers in one pass stay all powers in one pass, other numbers become the nearest choice that there is.
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
    moved = space.inside(moved)
    return None if space.values(moved) is None else moved


def similar_plans(db: PlanDatabase, key: PlanKey, space: Space, matrix: Matrix) -> tuple[Plan, ...]:
    """Plans of the most similar matrices in the database, nearest first: three at most, none of them a baseline.

    Parameters
    ----------
    db : PlanDatabase
        One that cannot be read has none.
    key : PlanKey
        Of the call: other kinds of numbers, and k beyond a factor of two, are not similar.
    space : Space
        In which the plans have to lie.
    matrix : Matrix
    """
    least, most = -(-key.k // _K_RATIO), _K_RATIO * key.k
    try:
        sketches = db.sketches(key, backend=space.backend, least=least, most=most)
        if not sketches:
            return ()
        features = features_of(matrix)
        ranked = sorted((distance(features, key, sketch), sketch.id) for sketch in sketches)
        near = [identifier for far, identifier in ranked if far <= _FARTHEST][:_READ]
        records = db.with_ids(near)
    except (DatabaseError, MissingDependencyError):
        return ()
    moved = (carried_over(record.plan, record.key.device_class, space) for record in records)
    found = dict.fromkeys(plan for plan in moved if plan is not None and not is_baseline(plan))
    return tuple(found)[:_SEEDS]


def _octaves(one: float, other: float) -> float:
    """|log2| of the ratio of two numbers that are not negative, one being added to each: a bandwidth may be 0."""
    if one < 0 or other < 0:
        return math.inf
    return abs(math.log2((one + 1) / (other + 1)))
