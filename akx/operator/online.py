"""Calls of an operator that are tuned as they are made: what :mod:`akx.tuner.online` needs of it.

Only calls with vectors of the host: those of a GPU are queued, and what one has taken nobody knows before it is over.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from akx._given import unknown_name
from akx.device.choose import backend_of, plan_threads
from akx.errors import ArgumentError
from akx.kernels.base import Program
from akx.matrix import Matrix
from akx.operator.planner import Asked, Call, Choice, Planner
from akx.operator.tiers import FIXED, setting
from akx.plan import Plan
from akx.tuner.verify import BASIS_KINDS

if TYPE_CHECKING:
    from akx.tuner.online import Online

__all__ = ["ONLINE", "Held", "check_tune", "make_online", "reason_against_online"]

#: What ``tune=`` may be.
ONLINE = "online"


def check_tune(tune: Any, *, plan: Plan | None = None, backend: str = "auto", budget: int | None = None) -> None:
    """Raise :class:`ArgumentError` for a way to tune that there is not, or that does not go with the rest."""
    if tune is None:
        return
    if tune != ONLINE:
        raise unknown_name("way to tune", tune, (ONLINE,))
    if plan is not None:
        raise ArgumentError(
            "a plan that is given is not tuned", found=f"tune={tune!r} and a plan", hint="leave one out"
        )
    if budget is not None or (backend != "auto" and backend_of(backend).has_own_memory):
        raise ArgumentError(
            "calls on a GPU cannot be tuned online yet",
            expected="backend='auto' or 'cpu', and no memory budget",
            found=f"backend={backend!r}",
            hint="tune them beforehand: akx.tune, or `akx tune`",
        )


def reason_against_online(planner: Planner, call: Call) -> str:
    """Why calls of this kind are not tuned as they are made; "" where they are."""
    asked: Asked = planner.asked
    if backend_of(call[2]).has_own_memory:
        return "not there yet for calls on a GPU"
    if setting() == FIXED:
        return f"AKX_PREPARE={FIXED} holds the plan"
    if asked.basis not in BASIS_KINDS:
        return f"of the basis {asked.basis!r} nothing is known to compare with"
    return ""


class Held:
    """The programs of an operator, for one kind of call: a :class:`akx.tuner.online.Holder`."""

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

    def hold(self, plan: Plan, program: Program) -> None:
        """Have a candidate, which gets new values from now on."""
        self._do("hold", self._call[0], plan, program)

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
    from akx.tuner.candidates import Candidates  # with all of a search, which other operators do without
    from akx.tuner.online import Online

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
    return Online(candidates, Held(prepared, call), plan, program)
