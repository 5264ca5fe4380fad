"""What is ready for one matrix, as far as its calls are tuned while they are made (:mod:`akx.operator.online`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from akx.backends.schedule import Coefficients, Program
from akx.core.plan import Plan
from akx.operator.matrix_values import Values
from akx.operator.online import make_online, reason_against_online
from akx.operator.planner import Call, Choice, Choices, Planner

if TYPE_CHECKING:
    from akx.tuner.online.calls import Online

__all__ = ["Tuned"]


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
