"""Calls of an operator that are tuned as they are made: what :mod:`akx.tuner.online.calls` needs of it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from akx.backends.schedule import Program
from akx.backends.selection import backend_of, plan_threads
from akx.core.arguments import unknown_name
from akx.core.errors import ArgumentError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.operator.planner import Asked, Call, Choice, Planner
from akx.operator.tiers import FIXED, setting
from akx.tuner.trial.problem import BASIS_KINDS

if TYPE_CHECKING:
    from akx.tuner.online.calls import Online

__all__ = ["ONLINE", "Held", "check_tune", "make_online", "reason_against_online"]

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
    """The programs of an operator, for one kind of call: a :class:`akx.tuner.online.exploration.Holder`."""

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
