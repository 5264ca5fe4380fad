"""The search space: what each schedule says of itself, put together, and walked.

A schedule gives a tuple of discrete parameters (:class:`akx.backends.schedule.Parameter`); a plan is a schedule and one
choice of each. The space knows no parameter's meaning: it only fixes the number of threads where a schedule leaves it
open, drops choices beyond the threads or the powers allowed, and tells which choices are neighbours: next to one
another in the order given where the choices are numbers, any other one where they are names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, product
from typing import Any

from akx.backends import registry
from akx.backends.schedule import Parameter, Schedule
from akx.backends.selection import device_of, plan_threads, resolve_backend
from akx.core.errors import ArgumentError, brief
from akx.core.matrix import Matrix
from akx.core.options import traits, unknown_option
from akx.core.plan import FULL, Option, Plan
from akx.plandb import PlanKey, make_key

__all__ = [
    "NATURAL",
    "Costs",
    "Space",
    "build_space",
    "is_baseline",
    "is_numeric",
    "least_bytes",
    "place_of",
    "plan_key",
    "resolve_backend",
]

#: What each of some plans costs, in any measure.
Costs = Callable[[Sequence[Plan]], Sequence[float]]

NATURAL = "natural"
#: Fields of a plan where its schedule has no parameter of the name.
_FIELDS = {"partitioner": NATURAL, "k_per_pass": 1, "block_bytes": 0}


def is_baseline(plan: Plan) -> bool:
    """Whether a plan is plain products one after another, rows in the order the user gave, values as they are.

    Within a memory budget these may be streamed: the matrix is sent once for each product, its rows in any order, since
    there may be no room for that of the user. All of its rows are the GPU's, and all of its entries are sent.
    """
    declared = plan.traits
    if declared.streams:
        return plan.k_per_pass == 1 and plan.typed.budget and not plan.typed.share and plan.typed.stored == FULL
    return declared.is_plain and plan.partitioner == NATURAL and plan.typed.stored == FULL


def is_numeric(parameter: Parameter) -> bool:
    """Whether the choices are numbers, so that their order means something."""
    return all(isinstance(choice, (int, float)) and not isinstance(choice, bool) for choice in parameter.choices)


def plan_key(
    matrix: Any,
    k: int,
    *,
    basis: str = "monomial",
    start_vectors: int = 1,
    backend: str = "auto",
    threads: int | None = None,
    device: Any = None,
) -> PlanKey:
    """The key under which :func:`tune` keeps the plan of a call with these arguments, and with what `matrix` allows."""
    label, used, here = place_of(backend, threads, device)
    return make_key(
        Matrix.from_any(matrix),
        k,
        basis=basis,
        start_vectors=start_vectors,
        device=here,
        threads=used,
        backend=label,
    )


def place_of(backend: str, threads: int | None, device: Any = None) -> tuple[str, int, Any]:
    """The backend, the threads of the host that its plans may use, and its device: this machine's by default."""
    label = resolve_backend(backend)
    return label, plan_threads(label, threads), device_of(label) if device is None else device


@dataclass(frozen=True)
class Space:
    """Every plan that may be tried for one matrix, k and device, with `threads` at most.

    `device` is as the schedules see it, with `threads` cores; `schedules` are in the order of the registry, and
    `parameters` those of each, choices already limited.
    """

    backend: str
    k: int
    threads: int
    device: Any
    schedules: Mapping[str, Schedule]
    parameters: Mapping[str, tuple[Parameter, ...]]
    #: By what was asked for: a search asks several times for most plans, and checks each that it makes.
    _made: dict[tuple[Any, ...], Plan] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def plain(self) -> str | None:
        """The schedule of plain products, by name, where there is one."""
        return next((name for name in self.schedules if traits(self.backend, name).is_plain), None)

    @cached_property
    def streamed(self) -> str | None:
        """The schedule that keeps within any memory budget, by name, where there is one."""
        return next((name for name in self.schedules if traits(self.backend, name).streams), None)

    def plan(self, schedule: str, values: Mapping[str, Option]) -> Plan:
        """The plan of one choice of each parameter; those not given keep their defaults."""
        key = (schedule, *((name, type(value), value) for name, value in values.items()))  # 1 == True == 1.0
        if key not in self._made:
            defaults = {parameter.name: parameter.default for parameter in self.parameters[schedule]}
            chosen: dict[str, Option] = {"threads": self.threads, **defaults, **values}
            self._made[key] = Plan.from_parameters(self.backend, schedule, self.k, chosen)
        return self._made[key]

    def values(self, plan: Plan) -> dict[str, Option] | None:
        """The choices that make `plan`, or None where it lies outside the space.

        An option that the plan does not mention has its default.
        """
        if plan.schedule not in self.parameters or plan.backend != self.backend or plan.k != self.k:
            return None
        chosen: dict[str, Option] = {}
        for parameter in self.parameters[plan.schedule]:
            value = plan.options.get(parameter.name, getattr(plan, parameter.name, parameter.default))
            if value not in parameter.choices:
                return None
            chosen[parameter.name] = value
        fields = {"threads": self.threads, **_FIELDS}
        is_same = all(name in chosen or getattr(plan, name) == value for name, value in fields.items())
        named = (name in chosen and name not in fields and name != "variant" for name in plan.options)
        return chosen if is_same and all(named) else None

    def inside(self, plan: Plan) -> Plan:
        """The plan of the space that says the same as `plan`, every option spelt out; `plan` itself where none does."""
        values = self.values(plan)
        return plan if values is None else self.plan(plan.schedule, values)

    def default(self, schedule: str) -> Plan:
        """The plan of a schedule's defaults."""
        return self.plan(schedule, {})

    def choices(self, schedule: str, name: str) -> tuple[Option, ...]:
        """The choices of one parameter, empty where the schedule has none of that name."""
        return next((p.choices for p in self.parameters[schedule] if p.name == name), ())

    def plans(self, schedule: str | None = None) -> Iterator[Plan]:
        """Every plan, of one schedule or of all in order, each once."""
        for name, parameters in self.parameters.items():
            if schedule not in (None, name):
                continue
            seen = set()
            for choice in product(*(parameter.choices for parameter in parameters)):
                plan = self.plan(name, {p.name: value for p, value in zip(parameters, choice, strict=True)})
                if plan not in seen:
                    seen.add(plan)
                    yield plan

    def neighbours(self, plan: Plan) -> tuple[Plan, ...]:
        """Plans that differ from `plan` in one parameter, nearest first; empty where it lies outside the space."""
        values, changes = self.values(plan) or {}, []
        for one in self.parameters[plan.schedule] if values else ():
            at = one.choices.index(values[one.name])
            others = (at + 1, at - 1) if is_numeric(one) else (i for i in range(len(one.choices)) if i != at)
            changes += [{one.name: one.choices[i]} for i in others if 0 <= i < len(one.choices)]
        return self._changed(plan, changes)

    def along(self, plan: Plan) -> tuple[Plan, ...]:
        """Plans that differ from `plan` in one parameter, whatever the choice; empty where it lies outside.

        To a choice of a number that lies far off there may be no way of single places, each better than the one before.
        """
        held = self.parameters.get(plan.schedule, ())
        return self._changed(plan, ({one.name: choice} for one in held for choice in one.choices))

    def around(self, plan: Plan) -> tuple[Plan, ...]:
        """Plans that differ from `plan` in one or two parameters, whatever the choices; empty where it lies outside."""
        held = [one for one in self.parameters.get(plan.schedule, ()) if len(one.choices) > 1]
        pairs = list(combinations(held, 2)) if len(held) > 1 else [tuple(held)]
        chosen = ((pair, choice) for pair in pairs for choice in product(*(one.choices for one in pair)))
        changes = ({one.name: value for one, value in zip(pair, choice, strict=True)} for pair, choice in chosen)
        return self._changed(plan, changes)

    def _changed(self, plan: Plan, changes: Iterable[Mapping[str, Option]]) -> tuple[Plan, ...]:
        """Other plans than `plan`, each once, with these choices changed; empty where it lies outside the space."""
        values = self.values(plan)
        if values is None:
            return ()
        found = dict.fromkeys(self.plan(plan.schedule, {**values, **one}) for one in changes)
        found.pop(plan, None)
        return tuple(found)

    def least(self, plan: Plan, costs: Costs, fixed: Iterable[str] = ()) -> Plan:
        """Go down from `plan` to a plan of less cost until no change of one or two parameters, but `fixed`, helps.

        All choices of a parameter are looked at, so that a dear one between two others is no wall.
        """
        kept, here = set(fixed), plan
        names = [one.name for one in self.parameters[plan.schedule] if one.name not in kept and len(one.choices) > 1]
        steps: list[tuple[str, ...]] = [*((name,) for name in names), *combinations(names, 2)]
        found, left = costs([here])[0], list(steps)
        while left:
            step = left.pop(0)
            values = self.values(here) or {}
            around = product(*(self.choices(plan.schedule, name) for name in step))
            near = [self.plan(plan.schedule, {**values, **dict(zip(step, chosen, strict=True))}) for chosen in around]
            taken = list(costs(near))
            at = min(range(len(near)), key=taken.__getitem__)
            if taken[at] < found:
                here, found = near[at], taken[at]
                left = [other for other in steps if other != step]
        return here

    def part(self, choices: Mapping[str, Mapping[str, Sequence[Option]]]) -> Space:
        """The same with fewer choices by schedule and parameter; a default that is not left gives way to the first.

        Raises :class:`ArgumentError` where there is no such schedule, parameter or choice, or none is left.
        """
        parameters = dict(self.parameters)
        for schedule, given in choices.items():
            if schedule not in parameters:
                raise ArgumentError(
                    "unknown schedule", expected=f"one of {', '.join(parameters)}", found=brief(schedule)
                )
            names = [one.name for one in parameters[schedule]]
            if unknown := set(given) - set(names):
                expected = f"one of {', '.join(names)}"
                raise ArgumentError(f"unknown parameter of {schedule}", expected=expected, found=brief(min(unknown)))
            parameters[schedule] = tuple(_reduced(one, given.get(one.name)) for one in parameters[schedule])
        return replace(self, parameters=parameters)

    def holds(self, plan: Plan) -> bool:
        """Whether a plan can be looked at without being asked for; it can where the space is no record."""
        return self.values(plan) is not None

    def feasible(self, plan: Plan, matrix: Matrix) -> str | None:
        """None where the plan can be prepared and wastes nothing, else the schedule's reason why not to try it.

        With a memory budget also where the matrix and its vectors take more, whatever the schedule.
        """
        budget = self.device.budget
        if budget and not plan.traits.streams and least_bytes(matrix, self.k) > budget:
            return f"matrix and vectors take more than the memory budget of {budget} bytes"
        schedule = self.schedules[plan.schedule]
        reason = unknown_option(plan.backend, plan.schedule, plan.options)
        reason = reason or schedule.feasible(plan, matrix, self.device)
        return schedule.waste(plan, matrix, self.device) if reason is None else reason

    def baselines(self, matrix: Matrix) -> tuple[Plan, ...]:
        """The plans that stand for the baseline: each variant of the plain products, natural order, other defaults.

        Streamed ones are in each way to move, and only those that are feasible: each in the first order of the rows for
        which there is room, with the default of chunks on their way, else with one.
        """
        plans: list[Plan] = []
        if self.plain is not None and self.plain in self.parameters:
            natural = NATURAL in self.choices(self.plain, "partitioner")
            fixed: dict[str, Option] = {"partitioner": NATURAL} if natural else {}
            variants = self.choices(self.plain, "variant")
            plans += [self.plan(self.plain, {**fixed, "variant": variant}) for variant in variants]
        if self.streamed is not None and self.streamed in self.parameters and self.device.budget:
            plans += self._streamed_baselines(self.streamed, matrix)
        return tuple(dict.fromkeys(plan for plan in plans if is_baseline(plan)))

    def _streamed_baselines(self, name: str, matrix: Matrix) -> Iterator[Plan]:
        frugal: dict[str, Option] = {"ahead": 1} if 1 in self.choices(name, "ahead") else {}
        full: dict[str, Option] = {"stored": FULL} if FULL in self.choices(name, "stored") else {}
        orders = self.choices(name, "partitioner")
        sparing = [{"partitioner": order, **fewer} for order in orders for fewer in ({}, frugal)]
        moves, variants = self.choices(name, "move"), self.choices(name, "variant")
        for move, variant in product(moves, variants):
            fixed: dict[str, Option] = {"k_per_pass": 1, "move": move, "variant": variant, **full}
            plans = (self.plan(name, {**fixed, **chosen}) for chosen in sparing)
            found = next((plan for plan in plans if self.feasible(plan, matrix) is None), None)
            if found is not None:
                yield found


def least_bytes(matrix: Matrix, k: int, start_vectors: int = 1) -> int:
    """Bytes that a program with the matrix on the device takes at least, vectors included: values, x and V."""
    return matrix.dtype.itemsize * (matrix.nnz + (k + 2) * start_vectors * matrix.n)


def build_space(
    matrix: Matrix,
    k: int,
    device: Any,
    *,
    backend: str = "auto",
    threads: int,
    start_vectors: int | None = None,
    keep: Callable[[str], bool] | None = None,
) -> Space:
    """The space of every schedule of a backend, or of those to `keep`, for one matrix and k.

    Plans use `threads` threads at most, and take no more than `start_vectors` vectors at a time, of which there may be
    any number by default: those that take more are the same.
    """
    name = resolve_backend(backend)
    limited = replace(device, cores=threads)
    schedules = {s.name: s for s in registry.schedules(name) if keep is None or keep(s.name)}
    limits = {"threads": threads, "k_per_pass": k, "vectors": start_vectors}
    parameters = {
        label: tuple(_limited(p, limits.get(p.name)) for p in schedule.space(matrix, limited, k))
        for label, schedule in schedules.items()
    }
    return Space(name, k, threads, limited, schedules, parameters)


def _reduced(parameter: Parameter, choices: Sequence[Option] | None) -> Parameter:
    """The parameter with these choices alone, in its own order; with all where None are given."""
    if choices is None:
        return parameter
    left = tuple(choice for choice in parameter.choices if choice in choices)
    if not left or len(left) != len(set(choices)):
        wrong = [choice for choice in choices if choice not in parameter.choices]
        found = brief(wrong[0]) if wrong else "no choice"
        raise ArgumentError(f"no choice of {parameter.name}", expected=f"some of {parameter.choices}", found=found)
    return replace(parameter, choices=left, default=parameter.default if parameter.default in left else left[0])


def _limited(parameter: Parameter, limit: int | None) -> Parameter:
    """The parameter without the choices beyond `limit`; `limit` itself is the one choice where none is left."""
    if limit is None:
        return parameter
    choices = tuple(c for c in parameter.choices if not isinstance(c, (int, float)) or c <= limit) or (limit,)
    default = parameter.default if parameter.default in choices else choices[-1]
    return replace(parameter, choices=choices, default=default)
