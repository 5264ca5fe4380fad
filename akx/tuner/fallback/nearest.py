"""The nearest plan that fits, in place of one that does not: tuned for other values, another k or a like device.

Schedule, variant, order of the rows and threads stay. Which parameters may give way the schedule declares
(`Schedule.gives_way`); a choice that this matrix does not have at all, such as a table of values that are all
different, gives way to every other. Of the plans that fit the nearest changes the fewest of the others; of those that
change as many it is the one that the model (:mod:`akx.tuner.model.seconds`) takes for the fastest, and of equally fast
ones the one whose choices are the fewest places away.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

from akx.backends import registry
from akx.core.errors import AkxError
from akx.core.matrix import Matrix
from akx.core.options import unknown_option
from akx.core.plan import Option, Plan
from akx.tuner.model.figures import figures_of
from akx.tuner.model.seconds import Model
from akx.tuner.space import Space, build_space

__all__ = ["changes", "may_fit", "nearest", "nearest_in"]

#: Parameters that may change beside those that have to.
_MOST_CHANGED = 3


def nearest(plan: Plan, matrix: Matrix, device: Any, threads: int, start_vectors: int = 1) -> Plan | None:
    """The nearest plan that fits; None where the schedule is not known here, or nothing near fits.

    Parameters
    ----------
    plan : Plan
        One that does not fit.
    matrix : Matrix
    device : HostDevice or CudaDevice
    threads : int
        Of the host at most that a plan may use.
    start_vectors : int
        Of a call.
    """
    try:
        if not registry.get(plan.backend, plan.schedule).gives_way:
            return None
        space = build_space(
            matrix,
            plan.k,
            device,
            backend=plan.backend,
            threads=threads,
            start_vectors=start_vectors,
            keep=lambda name: name == plan.schedule,
        )
        return nearest_in(space, plan, matrix, start_vectors)
    except AkxError:
        return None


def nearest_in(space: Space, plan: Plan, matrix: Matrix, start_vectors: int = 1) -> Plan | None:
    """The same among the plans of a space."""
    is_of_space = (plan.backend, plan.k) == (space.backend, space.k) and plan.schedule in space.parameters
    if not is_of_space or unknown_option(plan.backend, plan.schedule, plan.options):
        return None
    model = Model(matrix, space, figures_of(space.device, space.threads), start_vectors)
    for near in _rings(space, plan):
        fitting = {one: model.seconds(one) for one in near if space.feasible(one, matrix) is None}
        if fitting:
            best = min(fitting, key=lambda one: (fitting[one], near[one]))
            return best if fitting[best] < math.inf else None
    return None


def may_fit(space: Space, plan: Plan) -> bool:
    """Whether a plan is in the space, but for options that this matrix does not have and that may give way."""
    has_to = set(space.schedules[plan.schedule].gives_way) & set(_has_to(space, plan, _values(space, plan)))
    left = {name: value for name, value in plan.options.items() if name not in has_to}
    return space.values(plan.replace(options=left)) is not None


def changes(plan: Plan, near: Plan) -> str:
    """What differs in the nearest plan, in words: ``"slack=0, stored=full"``."""
    powers = [] if near.k_per_pass == plan.k_per_pass else [f"{near.k_per_pass} powers per pass"]
    before = plan.traits.defaults | dict(plan.options)
    return ", ".join(powers + [f"{name}={value}" for name, value in near.options.items() if before.get(name) != value])


def _values(space: Space, plan: Plan) -> dict[str, Any]:
    """What the plan chooses of each parameter of its schedule."""
    held = space.parameters[plan.schedule]
    return {one.name: plan.options.get(one.name, getattr(plan, one.name, one.default)) for one in held}


def _has_to(space: Space, plan: Plan, values: dict[str, Any]) -> list[str]:
    """Parameters that have no such choice."""
    return [one.name for one in space.parameters[plan.schedule] if values[one.name] not in one.choices]


def _rings(space: Space, plan: Plan) -> Iterator[dict[Plan, int]]:
    """Plans that differ in none, one, two, ... of what may give way, beside what has to; and by how many places."""
    gives_way = space.schedules[plan.schedule].gives_way
    held, values = {one.name: one for one in space.parameters[plan.schedule]}, _values(space, plan)
    has_to = _has_to(space, plan, values)
    if not set(gives_way).issuperset(has_to):
        return
    free = [name for name in gives_way if name in held and name not in has_to]
    for count in range(min(_MOST_CHANGED, len(free)) + 1):
        found: dict[Plan, int] = {}
        for changed in combinations(free, count):
            others = [[one for one in held[name].choices if one != values[name]] for name in changed]
            for chosen in product(*(held[name].choices for name in has_to), *others):
                instead: dict[str, Option] = dict(zip((*has_to, *changed), chosen, strict=True))
                near = space.plan(plan.schedule, {"threads": plan.threads, **values, **instead})
                at = {name: held[name].choices.index for name in changed}
                found[near] = sum(abs(at[name](instead[name]) - at[name](values[name])) for name in changed)
        yield found
