"""Corrections of a solution, made in single precision for residuals in double (:mod:`akx.solvers.mixed`).

Residuals and corrections are in a unit, a power of two of about the size of the residual that they begin from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from akx.backends.selection import backend_of
from akx.core.matrix import Matrix
from akx.solvers.bicgstab_steps import Recurrence
from akx.solvers.ca_cg_block import ritz_of
from akx.solvers.cg import steps_of
from akx.solvers.folding import translated
from akx.solvers.scaling import eps_of, exponent_of
from akx.solvers.stats import SolveStats
from akx.solvers.system import Rows, System, make_system
from akx.solvers.vector_work import make_work

__all__ = ["CalledSolver", "OfBiCGStab", "OfCG", "Solve"]

#: ``solve(A, b, x0, options, callback)``: x, info and the record.
Solve: TypeAlias = Callable[[Any, Any, Any, dict[str, Any], Any], tuple[Any, int, SolveStats]]

#: A correction takes the residual down to this part of it, by a recurrence that goes on to a larger one; the last one
#: to this part of the target.
_PART, _PART_OF_RECURRENCE, _SAFETY = 1e-3, 1e-2, 0.9
#: Part of n that there may be steps; a condition, times eps, that is too much.
_SHARE, _CONDITION = 8, 1 / 32
#: How often bicgstab may begin anew with r~ = r.
_TRIES = 2
#: Steps after which the condition is looked at, again when they are so many times more, and at the most; of these as
#: many as make a matrix that is not symmetric.
_LOOK, _MORE, _LAST_LOOK, _LAST_DENSE = 32, 1.5, 2000, 250


class Corrections:
    """What makes corrections of a system in single precision; `x` and `norm` are those before the last one."""

    part = _PART

    def __init__(
        self,
        system: System,
        single: Matrix,
        solve: Solve,
        options: dict[str, Any],
        callback: Callable[[Any], object] | None,
        cycle: int,
    ) -> None:
        self.system, self.single, self.solve, self.options = system, single, solve, options
        self.callback, self.cycle, self.method = callback, cycle, system.stats.method
        where = system.work.backend
        self.work = make_work(where, single.dtype, system.n, system.threads, plain=not system.on_device)
        self.left, self.cycles = system.n // _SHARE, 0  # steps that it may take, and cycles that it took
        self.x, self.norm, self.unit = system.x, math.inf, 1.0

    def correct(self, x: Rows, r: Rows, norm: float, left: int) -> tuple[Rows, int, SolveStats]:
        """See :func:`akx.solvers.folding.corrected`."""
        self.x, self.norm = x, norm
        if not math.isfinite(norm):
            return x, 1, SolveStats(method=self.method, reason="the residual is not finite")
        left = min(self.left, left * self.cycle)
        d, info, stats = self._solve(r, norm, left)
        if info > 0 and stats.iterations >= self.left:
            info, stats.reason = -1, f"not done in the {self.system.n // _SHARE} steps that it may take"
        self.left -= stats.iterations
        self.cycles += -(-stats.iterations // self.cycle)
        more = self.system.rows(1)[0]
        more[:] = x
        self.system.work.add(more, 1.0, d)
        return more, info, stats

    def _solve(self, r: Rows, norm: float, most: int) -> tuple[Rows, int, SolveStats]:
        """d in double precision for the residual r, by so many steps at most; info and record."""
        raise NotImplementedError

    def goal(self) -> float:
        """The norm that the residual is to come to, over the unit."""
        return max(self.part * self.norm, _SAFETY * self.system.target) / self.unit

    def unit_of(self, norm: float) -> float:
        """A power of two of about that size."""
        return math.ldexp(1.0, exponent_of(norm) or 0)

    def given(self, r: Rows) -> Any:
        """A vector of single precision as callers give one."""
        system = self.system
        if not system.on_device or system.like is None:
            return self.work.to_host(r)
        return backend_of(system.work.backend).interchange().answer_like(system.like, r, (system.n,))

    def say(self) -> Callable[[Any], object] | None:
        """The callback for what is solved for the residual at hand."""
        if self.callback is None:
            return None
        system, unit = self.system, self.unit
        x = system.work.to_host(self.x)
        return translated(self.callback, lambda y: unit * y, x, self.norm / system.norm_b, system.like)

    def end(self) -> None:
        """Give back what was borrowed."""


class CalledSolver(Corrections):
    """By a solver that is called for each."""

    def _solve(self, r: Rows, norm: float, most: int) -> tuple[Rows, int, SolveStats]:
        system, unit = self.system, self.unit_of(norm)
        self.unit = unit
        most = max(1, most // self.cycle)
        options = {**self.options, "rtol": 0.0, "atol": self.goal(), "maxiter": most}
        y, info, stats = self.solve(self.single, self.given(self.work.taken(r, 1 / unit)), None, options, self.say())
        stats.residuals = [unit * one for one in stats.residuals]
        if system.on_device and system.like is not None:
            interchange = backend_of(system.work.backend).interchange()
            y = interchange.vector_of(y, system.n, self.single.dtype, "d")
        else:
            y = self.work.from_host(y)
        return system.work.taken(y, unit), info, stats


class OfRecurrence(Corrections):
    """By a recurrence that goes on from one to the next, in the unit of the first."""

    within: System
    part = _PART_OF_RECURRENCE
    _look = _LOOK

    def _solve(self, r: Rows, norm: float, most: int) -> tuple[Rows, int, SolveStats]:
        is_first, why = not hasattr(self, "within"), ""
        if is_first:
            self.unit = self.unit_of(norm)
        r = self.work.taken(r, 1 / self.unit)
        if is_first:
            given = {one: self.options[one] for one in ("M", "threads", "db", "backend")}
            within = self.within = make_system(self.method, self.single, self.given(r), rtol=0.0, **given)
            within.stats.residuals.append(norm / self.unit)
        within, stats = self.within, self.within.stats
        before = SolveStats(**{**vars(stats), "seconds": dict(stats.seconds)})
        done, first = before.iterations + most, len(stats.residuals) - is_first
        within.callback = self.say()
        why = self.begin(most) if is_first else self.replace(r, norm / self.unit)
        goal = self.goal()
        self.aim(goal)
        while not why and self.known() > goal:
            within.ended(self.settle)
            if stats.iterations >= done:
                break
            why = self.step()
        self.settle()
        x = self.taken_x()
        leg = SolveStats(
            method=self.method,
            reason=why or ("converged" if self.known() <= goal else "the steps ran out"),
            iterations=stats.iterations - before.iterations,
            residuals=[self.unit * one for one in stats.residuals[first:]],
            products=stats.products - before.products,
            matrix_passes=stats.matrix_passes - before.matrix_passes,
            seconds={phase: spent - before.seconds.get(phase, 0.0) for phase, spent in stats.seconds.items()},
        )
        d = self.system.work.taken(x, math.ldexp(self.unit, within.units.solution))
        x[:] = 0
        return d, -1 if why else int(self.known() > goal), leg

    def begin(self, most: int) -> str:
        """Begin at the right-hand side of `within`; why that cannot be, or nothing."""
        raise NotImplementedError

    def replace(self, r: Rows, norm: float) -> str:
        """Go on with r as the residual; why not, or nothing."""
        raise NotImplementedError

    def step(self) -> str:
        """One step; why it cannot be done, or nothing."""
        raise NotImplementedError

    def known(self) -> float:
        """The norm of the residual, by the recurrence."""
        raise NotImplementedError

    def aim(self, goal: float) -> None:
        """Say what :meth:`known` is to come to."""

    def taken_x(self) -> Rows:
        """The row of x."""
        raise NotImplementedError

    def settle(self) -> None:
        """Take what was queued."""

    def too_much(self, alphas: list[Any], betas: list[Any]) -> str:
        """That the condition is too much for single precision, by the coefficients so far, looked at now and then."""
        if not self._look <= len(alphas) <= _LAST_LOOK:
            return ""
        self._look = int(_MORE * len(alphas))
        condition = _condition(alphas, betas)
        if condition * eps_of(self.single.dtype) <= _CONDITION:
            return ""
        return f"a condition of {condition:.0e} is too much for it"

    def end(self) -> None:
        if hasattr(self, "within"):
            self.within.release()


class OfCG(OfRecurrence):
    """Conjugate gradients, on V = [p, w, r, x] and u."""

    def begin(self, most: int) -> str:
        V = self.V = self.within.rows(4 if self.within.M is None else 5)
        V[2], V[3] = self.within.b, self.within.x
        self.steps = steps_of(self.within, V, most)
        return self.steps.begin(self.norm / self.unit)

    def replace(self, r: Rows, norm: float) -> str:
        return self.steps.replace(r, norm)

    def step(self) -> str:
        if why := self.too_much(self.steps.alphas, self.steps.betas):
            return why
        return self.steps.step()

    def known(self) -> float:
        return self.steps.norm

    def aim(self, goal: float) -> None:
        self.within.target = goal  # where what is queued ahead ends

    def taken_x(self) -> Rows:
        return self.V[3]

    def settle(self) -> None:
        self.steps.settle()


class OfBiCGStab(OfRecurrence):
    """BiCGStab."""

    def begin(self, most: int) -> str:
        self.state, self.tries = Recurrence(self.within), _TRIES
        return ""

    def replace(self, r: Rows, norm: float) -> str:
        self.state.go_on_from(r)
        return ""

    def step(self) -> str:
        if why := self.too_much(self.state.alphas, self.state.betas):
            return why
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            trouble = self.state.step()
        if trouble:
            self.tries -= 1
            if trouble == "overflow" or self.tries < 0:
                return "bicgstab broke down"
            self.state.begin()
            return ""
        self.within.stats.iterations = self.state.steps
        self.within.stats.residuals.append(self.state.norm)
        self.within.tell(self.state.x)
        return ""

    def known(self) -> float:
        return self.state.norm

    def taken_x(self) -> Rows:
        return self.state.x


def _condition(alphas: list[Any], betas: list[Any]) -> float:
    """Of the Lanczos matrix of so many steps of conjugate gradients, or of that of BiCG: by moduli of Ritz values."""
    a, b = np.array(alphas), np.array(betas)
    if (a.real > 0).all() and (b.real > 0).all() and not (a.imag.any() or b.imag.any()):
        values = ritz_of(a.real, b.real, ends=True)
    elif len(a) > _LAST_DENSE:
        return 1.0
    else:
        diagonal = 1 / a
        diagonal[1:] += b[:-1] / a[:-1]
        T = np.diag(diagonal) + np.diag(np.ones(len(a) - 1), 1) + np.diag(b[:-1] / a[:-1] ** 2, -1)
        values = np.abs(np.linalg.eigvals(T)) if np.isfinite(T).all() else np.zeros(1)
    return float(values.max() / values.min()) if values.min() > 0 else math.inf
