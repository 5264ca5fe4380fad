"""Which plan a call gets, and why, in words.

The one that the caller gave; else that of the database for exactly this call, which has to prove itself where it is
aged; else that of a like device, where it is faster than the predicted one; else the predicted one
(:mod:`akx.tuner.fallback.answer`); never is one tuned unasked. A plan of the database that does not work here gives way
to the nearest that can (:mod:`akx.tuner.fallback.nearest`), else to the predicted one, and that to plain products.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from akx.backends import registry
from akx.backends.host import resolve_threads
from akx.backends.memory_budget import within
from akx.backends.schedule import Program
from akx.backends.selection import device_of, plan_threads, resolve_backend
from akx.core.errors import AkxError, DeviceError, InfeasibleError
from akx.core.matrix import Matrix
from akx.core.options import unknown_option
from akx.core.plan import Plan
from akx.plandb import FIELD_MEANINGS, Lookup, PlanDatabase, PlanKey, aged, database_of
from akx.plandb.layers import origin
from akx.tuner import plan_key, predict
from akx.tuner.fallback.answer import Answer, believed, limited, renewed
from akx.tuner.fallback.nearest import changes, nearest

__all__ = ["Asked", "Call", "Choice", "Choices", "Here", "Planner", "reason_against"]

#: Threads for each core beyond which a given plan is refused: they would wait for one another, and need memory.
_THREADS_PER_CORE = 16

#: What tells calls from one another: the type of their vectors, how many there are, and the backend.
Call = tuple[np.dtype[Any], int, str]
#: The program of a plan where there is one already, else None.
Here = Callable[[Plan], Program | None]


@dataclass(frozen=True)
class Choice:
    """A plan and where it came from, in words.

    `seconds` are those of a call, where it was tuned; `program` is that of the plan, where it was prepared on the way,
    for whoever keeps programs; `spent` seconds went into measuring.
    """

    plan: Plan
    source: str
    seconds: float | None = None
    is_predicted: bool = False
    program: Program | None = None
    spent: float = 0.0


@dataclass(frozen=True)
class Asked:
    """What plans are chosen for, beside the matrix, as it was asked for of :class:`akx.MatrixPowers`.

    `basis` is its kind, `budget` bytes of the device's memory.
    """

    k: int
    basis: str
    plan: Plan | None = None
    threads: int | None = None
    db: Any = None
    backend: str = "auto"
    budget: int | None = None
    tune: str | None = None


class Planner:
    """Chooses plans, by what was asked for and by what the process decides in which it is.

    `threads` are the most of the host, `home` the backend of vectors of the host, `given` the caller's plan, with no
    more threads than there are.
    """

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.threads = resolve_threads(asked.threads)
        self.home = resolve_backend(asked.backend) if asked.plan is None else asked.plan.backend
        self.database = database_of(asked.db)
        self.given = asked.plan if asked.plan is None or asked.threads is None else limited(asked.plan, self.threads)
        if self.given is not None:
            _check_given(self.given)

    def device(self, backend: str) -> Any:
        """The device of a backend, as plans within the budget see it."""
        return within(device_of(backend), self.asked.budget)

    def place(self, backend: str) -> str:
        """What a plan is chosen for besides the matrix: a copy elsewhere keeps it where this is the same."""
        return f"{self.device(backend).device_class}, {plan_threads(backend, self.threads)} threads"

    def choose(self, matrix: Matrix, vectors: int, backend: str, here: Here = lambda plan: None) -> Choice:
        """The plan for so many start vectors of the matrix's type; `here` gives programs that the caller has."""
        if self.given is not None:
            return Choice(self.given, "given by the caller")
        arguments, own = self._arguments(vectors, backend), isinstance(self.asked.db, PlanDatabase)
        key, exact = (plan_key(one, self.asked.k, **arguments) for one in (matrix, matrix.with_value_error(0.0)))
        if exact == key:  # nothing here stores values with an error, so results have none
            matrix = matrix.with_value_error(0.0)
        lookup, told = self.database.find(key), ""
        chosen, reason = self._tuned(lookup, matrix, backend)
        misfits = [(lookup, reason)]
        if chosen is None and exact != key:  # what was tuned for values as they are is right with an allowance too
            told = _unused_for_allowance(lookup, reason)
            key, lookup = exact, self.database.find(exact)
            chosen, reason = self._tuned(lookup, matrix, backend)
            misfits.append((lookup, reason))
            told = told if chosen is None else f", with values as they are{told}"
        if chosen is None:
            found = (self._nearest(*misfit, matrix, vectors, backend) for misfit in misfits)
            chosen, lookup = next((one for one in found if one[0] is not None), (None, lookup))
        if chosen is not None:
            chosen = self._renewed(lookup, chosen, matrix, key, arguments, here)
        if not own:
            self.database.close()  # lookups are rare, open files are few
        if chosen is None:
            source = f"predicted, not tuned ({lookup.explain()}); tune it with `akx tune` or akx.tune"
            if reason is not None:
                source = f"predicted, not tuned: the plan in the database does not work here ({reason})"
            plan = predict(matrix, self.asked.k, **arguments)
            chosen = self._of_like_device(lookup, plan, matrix, key, here) or Choice(plan, source, is_predicted=True)
        return replace(chosen, source=chosen.source + told)

    def instead(
        self,
        choice: Choice,
        problem: AkxError,
        matrix: Matrix,
        vectors: int,
        backend: str,
        here: Here = lambda plan: None,
    ) -> Choice | None:
        """What takes the place of a plan that cannot be prepared, by the problem; None where nothing does."""
        if not choice.is_predicted:
            if self.given is not None or isinstance(problem, DeviceError):
                return None
            again = self.choose(matrix, vectors, backend, here)  # it was chosen for other values
            if again.plan == choice.plan:  # what costs little to ask has not told
                told = f"predicted, not tuned: the plan in the database does not work here ({problem.what})"
                plan = predict(matrix, self.asked.k, **self._arguments(vectors, backend))
                again = Choice(plan, told, is_predicted=True)
            return None if again.plan == choice.plan else again
        if choice.plan.traits.is_plain or choice.plan.traits.streams:
            return None
        plan = predict(matrix, self.asked.k, **self._arguments(vectors, backend), plain=True)
        why = f"{choice.plan.label()} cannot be prepared ({problem.what}), so these are plain products"
        return Choice(plan, f"{choice.source}; {why}", is_predicted=True)

    def _arguments(self, vectors: int, backend: str) -> dict[str, Any]:
        """What a plan is looked up by, and predicted for, beside the matrix and k."""
        return {
            "basis": self.asked.basis,
            "start_vectors": vectors,
            "backend": backend,
            "threads": self.threads,
            "device": None if self.asked.budget is None else self.device(backend),
        }

    def _tuned(self, lookup: Lookup, matrix: Matrix, backend: str) -> tuple[Choice | None, str | None]:
        """The plan that was found; None where there is none, or where it does not work here, with the reason."""
        record = lookup.record
        if record is None:
            return None, None
        # a record may come from a folder of others: whatever it says, no more threads than there are for this call
        tuned = limited(record.plan, plan_threads(backend, self.threads))
        reason = reason_against(tuned, matrix, self.device(backend))
        if reason is not None:
            return None, reason
        gain = record.baseline_seconds / record.seconds
        source = f"tuned on {record.created[:10]}, {origin(lookup.layer)}: {gain:.2f}x over {record.baseline_name}"
        return Choice(tuned, source, record.seconds), None

    def _nearest(
        self, lookup: Lookup, reason: str | None, matrix: Matrix, vectors: int, backend: str
    ) -> tuple[Choice | None, Lookup]:
        """The nearest to the plan that was found and does not work here, by the reason; None where there is neither."""
        record, threads = lookup.record, plan_threads(backend, self.threads)
        if record is None or reason is None:
            return None, lookup
        plan = nearest(limited(record.plan, threads), matrix, self.device(backend), threads, vectors)
        if plan is None:
            return None, lookup
        tuned = f"tuned on {record.created[:10]}, {origin(lookup.layer)}, for other values"
        told = f"{tuned}; this is the nearest plan that fits ({changes(record.plan, plan)}; there {reason})"
        return Choice(plan, told), lookup

    def _renewed(
        self, lookup: Lookup, chosen: Choice, matrix: Matrix, key: PlanKey, arguments: Mapping[str, Any], here: Here
    ) -> Choice:
        """The plan that was found; or, where it is aged and does not hold out here, the predicted one."""
        record = lookup.record
        why = [] if record is None else aged(record)
        if record is None or not why:
            return chosen
        backend = chosen.plan.backend
        if self.asked.budget is not None:  # no room for two
            return replace(chosen, source=f"{chosen.source}; aged ({'; '.join(why)})")
        begin = time.perf_counter()
        answer = renewed(
            record,
            chosen.plan,
            lambda: predict(matrix, self.asked.k, **arguments),
            matrix,
            key,
            device=self.device(backend),
            threads=plan_threads(backend, self.threads),
            prepared=here,
        )
        if not answer.is_like:
            return _answered(answer, begin)
        source = f"{chosen.source}; aged ({'; '.join(why)}), {answer.why}"
        return replace(chosen, source=source, program=answer.program, spent=time.perf_counter() - begin)

    def _of_like_device(
        self, lookup: Lookup, predicted: Plan, matrix: Matrix, key: PlanKey, here: Here
    ) -> Choice | None:
        """The plan for another basis or k or of a like device, or the predicted one that beat it; None without any."""
        backend = predicted.backend
        if self.asked.budget is not None or not lookup.mismatches:
            return None
        begin = time.perf_counter()
        answer = believed(
            [record for record, _ in lookup.mismatches],
            predicted,
            matrix,
            key,
            device=self.device(backend),
            threads=plan_threads(backend, self.threads),
            prepared=here,
        )
        return _answered(answer, begin) if answer.why else None


class Choices:
    """The plans that were `made` so far, by call, and those `brought` by a pickle, with the place of each."""

    def __init__(self, planner: Planner, brought: Mapping[Call, tuple[Choice, str]] | None = None) -> None:
        self.planner = planner
        self.made: dict[Call, Choice] = {}
        self.brought = dict(brought or {})

    def of(self, call: Call, matrix: Callable[[], Matrix], here: Here) -> Choice:
        """The choice for a call, made now or before; now with what was prepared on the way."""
        found = self.made.get(call)
        if found is None:
            brought, place = self.brought.pop(call, (None, ""))
            if brought is None or place != self.planner.place(call[2]):
                brought = self.planner.choose(matrix(), call[1], call[2], here)
            found = self.put(call, brought)
        return found

    def put(self, call: Call, choice: Choice) -> Choice:
        """Have a choice from now on, and return it; what was prepared on the way is not kept here."""
        self.made[call] = replace(choice, program=None, spent=0.0)
        return choice

    def to_take_along(self) -> dict[Call, tuple[Choice, str]]:
        """Those to be brought to a copy."""
        return {**self.brought, **{call: (one, self.planner.place(call[2])) for call, one in self.made.items()}}


def _answered(answer: Answer, begin: float) -> Choice:
    """What the ladder answered, where it was asked for another plan than the tuned one."""
    told = f"predicted, not tuned ({answer.why}); tune it with `akx tune` or akx.tune"
    source = answer.why if answer.is_like else told
    spent = time.perf_counter() - begin
    return Choice(answer.plan, source, None, not answer.is_like, answer.program, spent)


def _check_given(plan: Plan) -> None:
    """Raise InfeasibleError for a plan with options that nobody knows, or threads that would only wait for cores."""
    reason = unknown_option(plan.backend, plan.schedule, plan.options)
    hint, cores = "tune the matrix, or pass plan=None", os.cpu_count() or 1
    if plan.threads > _THREADS_PER_CORE * cores:
        reason, hint = f"{plan.threads} threads are too many for {cores} cores", f"pass threads={cores}"
    if reason is not None:
        raise InfeasibleError(f"plan {plan.label()} is not feasible: {reason}", hint=hint)


def reason_against(plan: Plan, matrix: Matrix, device: Any) -> str | None:
    """Why a plan of this matrix does not work here, by what costs little; the rest is found when it is prepared."""
    try:
        schedule = registry.get(plan.backend, plan.schedule)
        unknown = unknown_option(plan.backend, plan.schedule, plan.options)
        return unknown or schedule.reason_at_once(plan, matrix, device)
    except AkxError as error:
        return str(error)


def _unused_for_allowance(lookup: Lookup, reason: str | None) -> str:
    """What became of the plan for exactly the error that is allowed, where there is one: why it is not used."""
    if reason is not None:
        return f"; the plan for the error that is allowed does not work here ({reason})"
    if all(names != ["revisions"] for _, names in lookup.mismatches):
        return ""
    return f"; the plan for the error that is allowed is not used: it is for {FIELD_MEANINGS['revisions']}"
