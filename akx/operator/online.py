"""Calls of an operator that are tuned as they are made, by :mod:`akx.tuner.online.calls`."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from akx.backends.schedule import Coefficients, Program
from akx.backends.selection import backend_of, plan_threads
from akx.core.arguments import unknown_name
from akx.core.errors import ArgumentError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.operator.matrix_values import Values
from akx.operator.planner import Asked, Call, Choice, Choices, Planner
from akx.operator.tiers import FIXED, setting
from akx.tuner.trial.problem import BASIS_KINDS

if TYPE_CHECKING:
    from akx.tuner.online.calls import Online

__all__ = ["ONLINE", "Held", "Tuned", "check_tune", "make_online", "reason_against_online"]

#: What ``tune=`` may be.
ONLINE = "online"


def check_tune(tune: Any, *, plan: Plan | None = None, budget: int | None = None) -> None:
    """Raise :class:`ArgumentError` for a way to tune that there is not, or that does not go with the rest."""
    if tune is None:
        return
    if tune != ONLINE:
        raise unknown_name("way to tune", tune, (ONLINE,))
    if plan is not None:
        raise ArgumentError(
            "a plan that is given is not tuned", found=f"tune={tune!r} and a plan", hint="leave one out"
        )
    if budget is not None:
        raise ArgumentError(
            "calls within a memory budget cannot be tuned online",
            found=f"tune={tune!r} and memory_budget={budget}",
            hint="tune them beforehand: akx.tune, or `akx tune`",
        )


def reason_against_online(planner: Planner, call: Call, program: Program | None = None) -> str:
    """Why calls of this kind, by this program, are not tuned as they are made; "" where they are."""
    asked: Asked = planner.asked
    if program is not None and backend_of(call[2]).has_own_memory and not program.is_recordable:
        return "not there for plans that stream the matrix"
    if setting() == FIXED:
        return f"AKX_PREPARE={FIXED} holds the plan"
    if asked.basis not in BASIS_KINDS:
        return f"of the basis {asked.basis!r} nothing is known to compare with"
    return ""


class Held:
    """The programs of an operator, for one kind of call, for :class:`akx.tuner.online.exploration.Exploration`."""

    def __init__(self, prepared: Any, call: Call) -> None:
        self._prepared: Callable[[], Any] = weakref.ref(prepared)
        self._call = call

    def matrix(self) -> Matrix:
        """The matrix of now, in the type of the calls."""
        prepared = self._prepared()
        if prepared is None:
            raise ReferenceError("the operator is gone")
        found: Matrix = prepared.values.of(self._call[0])
        return found

    def _do(self, name: str, *arguments: Any) -> None:
        prepared = self._prepared()
        if prepared is not None:
            with prepared.lock:
                getattr(prepared, name)(*arguments)

    def hold(self, plan: Plan, program: Program, given: Matrix) -> bool:
        """Have a candidate, which gets new values from now on; not where `given` is not the matrix of now."""
        prepared = self._prepared()
        if prepared is None:
            return False
        with prepared.lock:
            is_of_now = prepared.values.waiting is None and self.matrix() is given
            if is_of_now:
                prepared.hold(self._call[0], plan, program)
            return is_of_now

    def let_go(self, plan: Plan) -> None:
        """Forget a candidate that is nobody's plan."""
        self._do("let_go")

    def adopt(self, plan: Plan, program: Program, source: str, seconds: float) -> None:
        """Have calls run on this plan from now on."""
        self._do("adopt", self._call, Choice(plan, source, seconds), program)

    def settled(self) -> None:
        """Have calls run without a detour."""
        self._do("forget_ready", self._call)


def make_online(prepared: Any, call: Call, plan: Plan, program: Program) -> Online:
    """What does calls of a kind from now on, beginning with this plan."""
    from akx.tuner.online.candidates import Candidates  # with all of a search, which other operators do without

    kind: type[Online]
    if backend_of(call[2]).has_own_memory:
        from akx.tuner.online.gpu_calls import Queued as kind
    else:
        from akx.tuner.online.calls import Online as kind

    planner: Planner = prepared.planner
    dtype, vectors, backend = call
    candidates = Candidates(
        prepared.values.of(dtype),
        planner.asked.k,
        basis=planner.asked.basis,
        start_vectors=vectors,
        backend=backend,
        threads=plan_threads(backend, planner.threads),
        device=planner.device(backend),
        database=planner.database,
    )
    return kind(candidates, Held(prepared, call), plan, program)


class Tuned(ABC):
    """The part of :class:`akx.operator.prepared.Prepared` that has candidates; attributes are those of the whole."""

    values: Values
    choices: Choices
    programs: dict[tuple[np.dtype[Any], Plan], Program]
    stale: set[tuple[np.dtype[Any], Plan]]
    ready: dict[tuple[Any, Any, str], Any]
    online: dict[Call, Online]

    @property
    @abstractmethod
    def planner(self) -> Planner:
        """Who chooses the plans."""

    @abstractmethod
    def for_call(self, dtype: np.dtype[Any], vectors: int, backend: str) -> tuple[Program, Coefficients]:
        """What does calls with so many start vectors of a type on a backend, and the coefficients to give it."""

    def for_solver(self, dtype: np.dtype[Any], vectors: int, backend: str) -> tuple[Program, Coefficients]:
        """The same for who may record calls with other work: the program itself, where it can be recorded."""
        call = (dtype, vectors, backend)
        found, coefficients = self.for_call(*call)
        own, _ = self.own_program(found, call)
        return (own if own.is_recordable else found), coefficients

    def own_program(self, found: Program, call: Call) -> tuple[Program, Online | None]:
        """The program behind what does calls of a kind, and what tunes them while they are made, if anything does."""
        online = self.online.get(call)
        return (found, None) if online is None or found is not online else (online.program, online)

    def for_capture(self, dtype: np.dtype[Any], vectors: int, backend: str) -> tuple[Program, Coefficients] | None:
        """What is ready for a call and stays its program: it comes into a graph of the caller's. None if nothing is."""
        call = (dtype, vectors, backend)
        if (found := self.ready.get(call)) is None:
            return None
        own, online = self.own_program(found[0], call)
        if online is not None:
            online.end("a call was captured")
            self.forget_ready(call)
            self.ready[call] = own, found[1]
        return own, found[1]

    def _online(self, call: Call, program: Program) -> Program:
        """What tunes calls of a kind while it does them; the program itself where nothing is to be tried."""
        plan, found = self.choices.made[call].plan, self.online.get(call)
        if found is None:
            if reason_against_online(self.planner, call, program):
                return program
            found = self.online[call] = make_online(self, call, plan, program)
        for key in [key for key in self.stale if key[0] == call[0] and key in self._tried()]:
            self.programs[key].update_values(self.values.of(call[0]).data)
            self.stale.discard(key)
        found.on(plan, program, lambda plan, own: self.programs.get((call[0], plan)) is own)
        return program if found.is_over else found

    def _tried(self) -> set[tuple[np.dtype[Any], Plan]]:
        """Those of `programs` that are candidates."""
        return {(call[0], plan) for call, one in self.online.items() if (plan := one.candidate_plan) is not None}

    def hold(self, dtype: np.dtype[Any], plan: Plan, program: Program) -> None:
        """Have a candidate among the programs, with the values of now."""
        self.programs[dtype, plan] = program
        self.stale.discard((dtype, plan))

    def let_go(self) -> None:
        """Forget candidates that have lost."""
        ready = self.ready
        self._forget_unused()
        self.ready = ready

    def adopt(self, call: Call, choice: Choice, program: Program) -> None:
        """Have calls of a kind run on the plan that was a candidate."""
        self.programs[call[0], choice.plan] = program
        self.choices.put(call, choice)
        self.let_go()
        found = self.ready.get(call)
        self.forget_ready(call)
        if found is not None:
            self.ready[call] = found

    def forget_ready(self, call: Call) -> None:
        """Have what the next call of a kind needs looked up by it."""
        for key in [key for key in self.ready if key == call or (key[2] == call[2] and type(key[1]) is not int)]:
            self.ready.pop(key, None)  # calls with arrays on a device too

    def _forget_unused(self) -> None:
        """Forget programs that no chosen plan has any more, and which are ready."""
        used = {(dtype, choice.plan) for (dtype, _, _), choice in self.choices.made.items()} | self._tried()
        self.programs = {key: program for key, program in self.programs.items() if key in used}
        self.ready = {}
