"""Plans that were tuned for nearly the same key, as they may run here: of like devices, another basis, another k."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from akx.backends.device_similarity import device_similarity, threads_of_class
from akx.backends.selection import backend_of
from akx.core.plan import Plan
from akx.plandb import PlanKey, PlanRecord, aged, mismatch

__all__ = ["Like", "fitted", "like_plans", "limited"]

#: How far another basis is, beside the distance of devices and the octaves of k; and the most that k may differ by.
_OTHER_BASIS, _K_RATIO = 0.25, 2


@dataclass(frozen=True)
class Like:
    """A plan that was tuned for the same key on a like device, in another basis, for another k, or several of these.

    `plan` is as it may run here, with the threads there are, for the k of the call; `record` is where it comes from;
    `distance` is that of the devices (:mod:`akx.backends.device_similarity`), 0 where it is the same; and `differ` has
    the fields of the key that do, none where the plan is aged. `instead`: what was changed for it to fit here, if it
    is the nearest that does.
    """

    plan: Plan
    record: PlanRecord
    distance: float
    differ: tuple[str, ...] = ("device_class",)
    instead: str = ""

    @property
    def where(self) -> str:
        """Where it comes from, as a part of a sentence: the plan ..."""
        told = [] if self.differ else [f"of the database, aged ({'; '.join(aged(self.record))})"]
        if "basis" in self.differ:
            told.append(f"for the {self.record.key.basis} basis")
        if "k" in self.differ:
            told.append(f"for k = {self.record.key.k}")
        if "device_class" in self.differ:
            told.append(f"of a like device ({self.record.key.device_class})")
        if self.instead:
            told.append(f"as nearly as it fits ({self.instead})")
        return " ".join(told)

    @property
    def farness(self) -> float:
        """By which several are ordered."""
        octaves = abs(math.log2(self.plan.k / self.record.key.k))
        return self.distance + (_OTHER_BASIS if "basis" in self.differ else 0.0) + octaves


def limited(plan: Plan, threads: int) -> Plan:
    """`plan` with at most so many threads, and without what only several have a use for where one is left."""
    if plan.threads <= threads:
        return plan
    options = {name: value for name, value in plan.options.items() if threads > 1 or name not in plan.traits.shared}
    return plan.replace(threads=threads, options=options)


def fitted(plan: Plan, device_class: str, threads: int) -> Plan:
    """A plan that was tuned for a device class, for so many threads: where it used all there were, all there are."""
    if plan.threads == threads_of_class(device_class):
        plan = plan.replace(threads=max(plan.threads, threads))
    return limited(plan, threads)


def like_plans(
    records: Iterable[PlanRecord], key: PlanKey, *, backend: str, threads: int, others: bool = False
) -> list[Like]:
    """The plans that were tuned on like devices for a key that differs in the device class alone.

    With `others` also those for other bases, and for other k within a factor of two, on like devices and on this one.
    `records` are of the pattern; a plan may use so many threads of the host. The nearest device comes first, then the
    larger speed-up; each plan once. Whether they are feasible is not known yet.
    """
    found: list[Like] = []
    may_differ = {"device_class", "basis", "k"} if others else {"device_class"}
    for record in records:
        differ = tuple(mismatch(key, record))
        if record.plan.backend != backend or not differ or not may_differ.issuperset(differ):
            continue
        if max(key.k, record.key.k) > _K_RATIO * min(key.k, record.key.k):
            continue
        distance = device_similarity(key.device_class, record.key.device_class) if "device_class" in differ else 0.0
        if distance is not None:
            plan = _for_powers(record.plan, key.k)
            plan = fitted(plan, record.key.device_class, threads) if backend_of(backend).uses_threads else plan
            found.append(Like(plan, record, distance, differ))
    found.sort(key=lambda like: (like.farness, -like.record.speedup, like.record.id))
    nearest: dict[Plan, Like] = {}
    for like in found:
        nearest.setdefault(like.plan, like)
    return list(nearest.values())


def _for_powers(plan: Plan, k: int) -> Plan:
    """`plan` for another number of powers: all in one pass where they were, else as many in a pass, at most k."""
    if plan.k == k:
        return plan
    return plan.replace(k=k, k_per_pass=k if plan.k_per_pass == plan.k > 1 else min(plan.k_per_pass, k))
