"""Plans for the same pattern under another key: where a search begins, and never used unmeasured.

What was tuned for this very matrix with a schedule of yesterday is the best guess there is; next comes what was tuned
for it in another basis or type, for another k or number of start vectors, or on another device. The distance is that of
the keys::

    1/8 [revisions differ] + 1/8 [it is aged] + 1/4 [the basis differs] + 1/4 [the index type differs]
        + 1/2 [the type differs] + |k| + |start vectors| + 1 [the device is not like] (or 1/4 where it is like)

each |.| being that of the base-2 logarithm of the ratio. k may differ by a factor of four, types are both real or both
complex. Of plans that are equally far the newer comes first. A key that differs in a like device alone is that of
:func:`akx.tuner.fallback.answer.like_plans`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from operator import itemgetter

from akx.backends.device_similarity import likeness
from akx.core.plan import Plan
from akx.plandb import PlanKey, PlanRecord, aged, mismatch
from akx.tuner.candidates.similar_matrices import carried_over
from akx.tuner.space import Space

__all__ = ["key_distance", "pattern_plans"]

#: The k of a plan and that of the search may differ by this factor.
_K_RATIO = 4
_DIFFERENT = {"basis": 0.25, "index_type": 0.25, "dtype": 0.5}
_OTHER_REVISION, _AGED = 0.125, 0.125
_LIKE_DEVICE, _OTHER_DEVICE = 0.25, 1.0


def key_distance(key: PlanKey, other: PlanKey) -> float:
    """How far a plan for the same pattern under another key is from a call; infinite where it is of no use."""
    ratio = max(key.k, other.k) / min(key.k, other.k)
    if key.fingerprint != other.fingerprint or ratio > _K_RATIO or key.value_kind != other.value_kind:
        return math.inf
    far = sum(price for name, price in _DIFFERENT.items() if getattr(key, name) != getattr(other, name))
    far += math.log2(ratio) + abs(math.log2(key.start_vectors / other.start_vectors))
    if key.device_class != other.device_class:
        far += _OTHER_DEVICE if likeness(key.device_class, other.device_class) is None else _LIKE_DEVICE
    return far


def pattern_plans(records: Iterable[PlanRecord], key: PlanKey, space: Space) -> list[Plan]:
    """Plans that were tuned for the pattern under other keys, nearest first, each once.

    Parameters
    ----------
    records : iterable of PlanRecord
        Of the pattern.
    key : PlanKey
        Of the call. A plan under this very key is left out, and so is one of a like device alone.
    space : Space
        In which the plans have to lie. Whether they are feasible is not known yet.
    """
    found = []
    for record in records:
        far, differ = key_distance(key, record.key), mismatch(key, record)
        far += _OTHER_REVISION * ("revisions" in differ) + _AGED * bool(aged(record))
        is_like = differ == ["device_class"] and likeness(key.device_class, record.key.device_class) is not None
        if differ and not is_like and far < math.inf:
            found.append((far, -datetime.fromisoformat(record.created).timestamp(), record.id, record))
    found.sort(key=itemgetter(0, 1, 2))
    moved = (carried_over(record.plan, record.key.device_class, space) for *_, record in found)
    return list(dict.fromkeys(plan for plan in moved if plan is not None))
