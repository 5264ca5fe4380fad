"""A part of a space that is too large to be measured whole: few choices of each parameter, around plans that matter.

The spaces of a GPU have millions of plans. A part has, of each schedule, every feasible plan that can be made of some
choices, as many as :data:`MOST` allows: those of the plan that `akx tune` once found (``tuning_db/``), those of the
predicted plan, where neither is of this schedule those of the first plan that it wants tried, and then, parameter by
parameter in turn, the next one to these. Plain products have all variants, and the defaults beside. So the neighbours
of nearly every plan are in the part too, and a search in a recording of it goes as it would in the whole space.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path

from akx.backends.schedule import Parameter
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from akx.tuner.space import Space

__all__ = ["MOST", "Choices", "feasible_plans", "portion", "shipped_plan"]

_SHIPPED = Path(__file__).resolve().parents[1] / "tuning_db"
#: Most feasible plans of the part, of a schedule with a plan that is known to be good and of each other one.
MOST = (140, 45)
#: Most combinations for each feasible plan that is wanted: where most are infeasible, no more are looked at.
_LOOKED_AT = 16

Choices = dict[str, dict[str, tuple[Option, ...]]]


def shipped_plan(bundle: str, name: str, k: int) -> Plan | None:
    """The plan of ``tuning_db/BUNDLE.json`` for a matrix by name; None where it has none."""
    path = _SHIPPED / f"{bundle}.json"
    rows = json.loads(path.read_text())["records"] if path.exists() else []
    found = (row["plan"] for row in rows if row["matrix_name"] == name and row["key"]["k"] == k)
    return next((Plan.from_json(plan) for plan in found), None)


def portion(space: Space, matrix: Matrix, good: Iterable[Plan], most: tuple[int, int] = MOST) -> Choices:
    """Choices for :meth:`akx.tuner.space.Space.part`.

    Parameters
    ----------
    space : Space
    matrix : Matrix
    good : iterable of Plan
        The plans around which the part is; those outside the space are left out.
    most : tuple of int
        Feasible plans of a schedule with such a plan, and of each other one.
    """
    anchors: dict[str, list[dict[str, Option]]] = {}
    for plan in good:
        values = space.values(plan)
        if values is not None:
            anchors.setdefault(plan.schedule, []).append(values)
    found: Choices = {}
    for schedule, parameters in space.parameters.items():
        held = anchors.get(schedule)
        first = [_first(space, matrix, schedule)] if held is None else held
        chosen = {one.name: tuple(dict.fromkeys(values[one.name] for values in first)) for one in parameters}
        if schedule == space.plain:  # baselines are of the defaults
            chosen = {one.name: tuple(dict.fromkeys((one.default, *chosen[one.name]))) for one in parameters}
            chosen["variant"] = space.choices(schedule, "variant")
        found[schedule] = _grown(space, matrix, schedule, chosen, most[held is None])
    return found


def feasible_plans(space: Space, matrix: Matrix, schedule: str, chosen: Mapping[str, Sequence[Option]]) -> set[Plan]:
    """The feasible plans of some choices of each parameter of a schedule."""
    plans = {space.plan(schedule, dict(zip(chosen, values, strict=True))) for values in product(*chosen.values())}
    return {plan for plan in plans if _is_feasible(space, plan, matrix)}


def _first(space: Space, matrix: Matrix, schedule: str) -> dict[str, Option]:
    offering = space.schedules[schedule]
    starts = offering.starts(matrix, space.device, space.k)
    inside = (space.values(space.inside(plan)) for plan in starts)
    found = next((values for values in inside if values is not None), None)
    return found or {one.name: one.default for one in space.parameters[schedule]}


def _grown(
    space: Space, matrix: Matrix, schedule: str, chosen: dict[str, tuple[Option, ...]], most: int
) -> dict[str, tuple[Option, ...]]:
    """The choices with more of each parameter in turn, up to `most` feasible plans."""
    open_still = [one for one in space.parameters[schedule] if len(one.choices) > 1]
    here = feasible_plans(space, matrix, schedule, chosen)
    while open_still:
        for parameter in list(open_still):
            choice = _next(parameter, chosen[parameter.name])
            more = {**chosen, parameter.name: (*chosen[parameter.name], choice)} if choice is not None else chosen
            if choice is None or math.prod(map(len, more.values())) > _LOOKED_AT * most:
                open_still.remove(parameter)
                continue
            new = feasible_plans(space, matrix, schedule, {**more, parameter.name: (choice,)}) - here
            if len(here) + len(new) > most:
                open_still.remove(parameter)
                continue
            chosen, here = more, here | new
    return chosen


def _next(parameter: Parameter, taken: Sequence[Option]) -> Option | None:
    """The choice that is nearest to the first of those taken and not among them; None where there is none."""
    at = parameter.choices.index(taken[0])
    left = [choice for choice in parameter.choices if choice not in taken]
    return min(left, key=lambda choice: abs(parameter.choices.index(choice) - at), default=None)


def _is_feasible(space: Space, plan: Plan, matrix: Matrix) -> bool:
    try:
        return space.feasible(plan, matrix) is None
    except Exception:  # a trial would say so
        return False
