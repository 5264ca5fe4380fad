"""Candidates for calls that are tuned as they are made: which plan comes next, prepared and checked, and what is kept.

The parts of a search (:mod:`akx.tuner.search.search`) for whoever has calls of a user in place of a bench. What has to
be compiled first comes later, when a process that stands back behind all others has done it. An order of the rows may
take long to be found: orders come one by one, each when its price is there; before, plans in it are not in the space.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from typing import Any

from akx.backends import registry
from akx.backends.base import TrialVectors
from akx.backends.selection import HOST
from akx.core.errors import AkxError, CapturingError, DatabaseError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.plandb import PlanDatabase, aged
from akx.tuner import measure
from akx.tuner.candidates.proposals import Proposals
from akx.tuner.candidates.warm_start import warm_start_of
from akx.tuner.history.kept import is_enough, is_final, usable
from akx.tuner.history.ledger import Ledger
from akx.tuner.history.result import EXHAUSTED, NO_IMPROVEMENT
from akx.tuner.history.trial import COMPLETE, FAILED, PRUNED, Trial, fault_of
from akx.tuner.history.trial_log import TrialLog, as_measured_here, earlier_trials, without_figures
from akx.tuner.model.figures import figures_of
from akx.tuner.model.seconds import Model
from akx.tuner.online.dry_run import NoSampler, job
from akx.tuner.online.first_runs import Asked, Candidate, FirstRuns, knowing
from akx.tuner.online.keep import put
from akx.tuner.request import Settings
from akx.tuner.space import NATURAL, build_space, plan_key
from akx.tuner.warmup.host_code import Code, Warmup, code_of

__all__ = ["LITTLE_MEMORY", "REUSED", "Candidate", "Candidates"]

#: Seconds of preparing a plan, about: of any, for an entry, and for an entry in a new order.
_PLAN, _ENTRY, _ORDER = 5e-3, 3e-8, 3e-6
#: Seconds before the first one: of thinking, for an entry of that, and for one and a power of what must come out.
_BEGIN, _BEGIN_ENTRY, _CHECKED = 0.02, 1e-8, 1e-8
#: A plan that took less than this share of a call on another day is tried again.
_BETTER = 0.99
#: Code that this process has run: it is loaded.
_LOADED: set[Code] = set()
#: How far processes that compile stand back.
_NICE = 19
#: Plans that wait for their code at a time; nothing more is thought of then.
_PUT_OFF = 4
#: Why there are no candidates where the database has a plan that a search has found; and how many a search tries.
REUSED, LITTLE_MEMORY, _TRIAL_BUDGET = "reused", "too little memory", "trial budget"


class Candidates:
    """The plans that are tried for one kind of call, one after another. For one thread at a time.

    What they find out of the pattern is theirs until the end: the matrix gets what a plan needs that has won.

    The matrix is in the type of the calls, the basis given by its kind. The database is looked into, and trials and the
    best plan go there. `ended` says why there are no more candidates, `price` how many seconds the next one takes at
    least, `waits` whether nothing comes before another process has compiled its code. `given` is the matrix whose
    values the last candidate was prepared with; the ledger of trials is None before the first step.
    """

    def __init__(
        self,
        matrix: Matrix,
        k: int,
        *,
        basis: str,
        start_vectors: int,
        backend: str,
        threads: int,
        device: Any,
        database: PlanDatabase,
    ) -> None:
        self.waits = False
        self.ended, self.price = "", _BEGIN + _BEGIN_ENTRY * matrix.nnz
        self._prices: list[float] = []
        self.ledger: Ledger | None = None
        self._known = {"akx.pattern": matrix.pattern, **matrix.pattern_cache}
        self.given, self._matrix = matrix, knowing(matrix.with_value_error(0.0), self._known)
        self._k, self._basis, self._vectors = k, basis, start_vectors
        self._backend, self._threads, self._device = backend, threads, device
        self._db, self._settings = database, Settings()
        self._log: TrialLog | None = None
        self._first_runs = FirstRuns(self._matrix, k, basis, start_vectors, backend)
        self._stream: Iterator[tuple[str, Plan]] = iter(())
        self._later: list[tuple[str, Plan]] = []
        self._passed: set[Plan] = set()

    @cached_property
    def warmup(self) -> Warmup:
        """What compiles, in a process; it is begun with in the first step."""
        return Warmup(self._matrix, self._vectors, count=1 if measure.is_real_time() else 0, nice=_NICE)

    def end_processes(self) -> None:
        """End what compiles, and where candidates run first."""
        if "warmup" in vars(self):
            self.warmup.close()
        self._first_runs.end()

    @property
    def vectors(self) -> TrialVectors:
        """Those of first runs."""
        return self._first_runs.vectors

    @property
    def nbytes(self) -> int:
        """Bytes of what results are compared with."""
        return self._first_runs.nbytes

    def close(self) -> None:
        """Let go of everything but the trials; those that the database does not have are put there."""
        self.ended = self.ended or "closed"
        self.end_processes()
        if self._log is not None:
            self._log.leave()
        self._stream, self._later = iter(()), []

    def forget(self) -> None:
        """Let go of what only candidates have needed to know of the pattern, when no step is under way."""
        self._known.clear()
        self._known.update(self.given.pattern_cache)

    # ------------------------------------------------------------------------------------------------ what comes

    def next(self, incumbent: Plan, seconds: float, left: float, matrix: Matrix) -> Candidate | None:
        """The next candidate, ready to run; None where it came to nothing, or there is not the time for more.

        Calls run on the `incumbent`, and take so many `seconds`; so many are `left` to be spent. The `matrix` has the
        values of now. Raises :class:`akx.CapturingError` where it has to wait for the end of a capture; then ask again.
        """
        self.waits = False
        if self.ledger is None and self._first_runs.lack_memory():
            self.ended = LITTLE_MEMORY
            return None
        if matrix is not self.given:
            self.given, self._matrix = matrix, knowing(matrix.with_value_error(0.0), self._known)
            self._first_runs.forget(self._matrix)
        if self.ledger is None:
            thinking = job(self._k, self._device)
            if not self.warmup.is_there(thinking[0]):
                self.warmup.want([thinking])
                self.waits = True
                return None
            self.ledger = self._set_up(incumbent, seconds)
            return None  # each of these is a step of its own
        if not self._first_runs.is_known and not self.ended:
            self._first_runs.problem  # noqa: B018 - it is found out
            self.price = self._usual_price()
            return None
        ledger = self.ledger
        while not self.ended:
            if len(ledger.trials) > self._settings.trials:
                self.ended = _TRIAL_BUDGET
                break
            if len(self._later) >= _PUT_OFF and all(self._is_coming(plan) for _, plan in self._later):
                self.waits = True
                return None
            try:
                origin, plan = self._proposed(ledger)
            except CapturingError:
                self._propose(ledger)  # a generator that has raised has nothing more
                raise
            if plan is None:
                if self._later:
                    self.waits = True
                    return None
                if not self._widen(ledger, left):
                    return None
                continue
            self._passed.add(plan)  # so that it does not come again
            if plan in ledger or plan.partitioner not in self._orders:
                continue
            if self._proposals.is_no_better(plan, ledger.best_seconds or seconds):
                continue
            if not self._is_coming(plan):
                return self._prepared(origin, plan, seconds)
            self._later.append((origin, plan))
        return None

    def _is_coming(self, plan: Plan) -> bool:
        """Whether the code of a plan is yet to come, by another process."""
        return self._backend == HOST and self.warmup.is_coming(plan)

    def _set_up(self, incumbent: Plan, seconds: float) -> Ledger:
        """Look into the database, and begin with what is there."""
        where: dict[str, Any] = {"backend": self._backend, "threads": self._threads}
        arguments = {"basis": self._basis, "start_vectors": self._vectors, **where}
        self._key = key = plan_key(self._matrix, self._k, **arguments)
        self._space = space = build_space(self._matrix, self._k, self._device, start_vectors=self._vectors, **where)
        self._first, ledger = space.inside(incumbent), Ledger(space)
        begun = Trial(0, self._first, "predicted", COMPLETE, "", seconds, 0.0, samples=(seconds,))
        ledger.add(begun)
        old = usable(self._db.find(key).record, self._matrix, self._device, self._threads)
        if old is not None and not aged(old) and is_enough(old, None) and is_final(self._db, old):
            self.ended = REUSED
            return ledger
        self._old = old if old is not None and space.inside(old.plan) == self._first else None
        self._log = TrialLog(self._db, key)
        self._log.trial(begun)
        self._warm_start = warm_start_of(self._db, key, space, self._matrix)
        self._figures = figures_of(space.device, space.threads)
        names = [order for name in space.parameters for order in space.choices(name, "partitioner")]
        self._orders: list[str] = list(dict.fromkeys((NATURAL, self._first.partitioner)))
        self._all_orders = list(dict.fromkeys((*self._orders, *map(str, names))))
        for run in earlier_trials(self._db, key).runs:
            for trial in as_measured_here(run, {self._first: seconds}) or without_figures(run):
                if trial.plan in ledger or space.values(trial.plan) is None:
                    continue
                if trial.state == COMPLETE and (trial.seconds or math.inf) < _BETTER * seconds:  # on another day
                    self._later.append((trial.origin, trial.plan))
                    self._orders = list(dict.fromkeys((*self._orders, trial.plan.partitioner)))
                else:
                    ledger.add(replace(trial, number=len(ledger.trials)))
        self._propose(ledger)
        self.price = self._k * _CHECKED * self._matrix.nnz
        return ledger

    def _propose(self, ledger: Ledger) -> None:
        """Begin anew with plans in the orders that there are by now; what was tried is not tried again."""
        space = self._space
        choices = {name: space.choices(name, "partitioner") for name in space.parameters}
        left = {name: [one for one in orders if one in self._orders] for name, orders in choices.items()}
        held = {name: own for name, own in space.parameters.items() if left[name] or not choices[name]}
        part = replace(space, parameters=held).part({name: {"partitioner": left[name]} for name in held if left[name]})
        model = Model(self._matrix, part, self._figures, self._vectors)
        settings = self._settings
        self._proposals = Proposals(
            model,
            ledger,
            seed=settings.seed,
            keep=lambda plan: plan.partitioner in self._orders,
            avoid=self._passed.__contains__,
            sampler=lambda space, seed: NoSampler(),
            warm_start=self._warm_start,
            seconds=lambda: settings.seconds,
        )
        plain = (("baseline", plan) for plan in islice(self._proposals.baselines(), int(self._backend == HOST)))
        near = [plan for plan in self._proposals.threads_of(self._first) if space.values(plan) is not None]
        threads = (("threads", plan) for plan in near)  # others may have the cores
        self._stream = chain(plain, threads, self._proposals.search())

    def _proposed(self, ledger: Ledger) -> tuple[str, Plan | None]:
        """Who asks, and the plan: first what was put off, where its code is there by now."""
        for one in self._later:
            if not self._is_coming(one[1]):
                self._later.remove(one)
                return one
        return ("", None) if self._has_settled(ledger) else next(self._stream, ("", None))

    def _has_settled(self, ledger: Ledger) -> bool:
        return ledger.since_progress >= self._settings.patience and not self._proposals.beside()

    def _widen(self, ledger: Ledger, left: float) -> bool:
        """Let plans in one more order of the rows come, where there is the time to find it."""
        order = next((name for name in self._all_orders if name not in self._orders), None)
        if order is None:
            self.ended = NO_IMPROVEMENT if self._has_settled(ledger) else EXHAUSTED
            return False
        self.price = _PLAN + _ORDER * self._matrix.nnz
        if self.price > left:
            return False
        self.price = self._usual_price()
        self._orders.append(order)
        self._passed = {plan for _, plan in self._later}
        self._propose(ledger)
        return True

    def _prepared(self, origin: str, plan: Plan, seconds: float) -> Candidate | None:
        begin, known = measure.now(), Asked(self._known)
        try:
            expected = self._proposals.expected_seconds(plan)
            schedule = self._space.schedules[plan.schedule]
            if lost := self._first_runs.reason_to_fear(plan, schedule):
                self.tell(Trial(-1, plan, origin, FAILED, lost, prepare_seconds=measure.now() - begin))
                return None
            program = schedule.prepare(knowing(self._matrix, known), plan)
            program.ready(self._vectors)
            problem = self._first_runs.problem
            code = code_of(plan)
            if self._backend == HOST and measure.is_real_time() and code not in _LOADED:
                program.run(problem.x, problem.out, problem.coefficients)  # else a call waits for its code
                _LOADED.add(code)
            problem.poison()
        except CapturingError:
            self._later.append((origin, plan))
            raise
        except Exception as failure:  # of whatever kind: calls have their plan
            is_ours = isinstance(failure, AkxError)
            self.tell(Trial(-1, plan, origin, PRUNED if is_ours else FAILED, str(failure), prepare_seconds=0.0))
            return None
        finally:
            self._known.update(known)
        return Candidate(plan, origin, program, problem, expected or seconds, measure.now() - begin, needed=known)

    def took(self, seconds: float) -> None:
        """Take note of what a candidate has cost beside calls: the next is expected to cost as much."""
        self._prices.append(seconds)
        self.price = self._usual_price()

    def _usual_price(self) -> float:
        return sum(self._prices) / len(self._prices) if self._prices else _PLAN + _ENTRY * self._matrix.nnz

    def put_back(self, candidate: Candidate) -> None:
        """Let a candidate that was prepared with other values come again."""
        self._later.append((candidate.origin, candidate.plan))

    # ------------------------------------------------------------------------------------------------ what came of it

    def check(self, candidate: Candidate) -> str:
        """Why the result of the first run is wrong; "" where it is right."""
        plan, space = candidate.plan, self._space
        stored = registry.stored_error(space.schedules[plan.schedule], plan, self._matrix, space.device)
        candidate.error = candidate.problem.error(stored)
        return fault_of(candidate.error)

    def tell(self, trial: Trial) -> None:
        """Take a trial that has ended."""
        ledger = self.ledger
        if ledger is None:
            return
        trial = replace(trial, number=len(ledger.trials))
        ledger.add(trial)
        self._proposals.learn(trial)
        if self._log is not None:
            self._log.trial(trial)

    def keep(self, plan: Plan, gain: float, spent: float) -> None:
        """Put the plan of calls into the database; provisional, until the candidates have come to their end."""
        ledger = self.ledger
        if ledger is None or self.ended == REUSED:
            return
        plan = self._space.inside(plan)
        if plan == self._first and not self.ended:
            return
        is_provisional = self.ended not in (NO_IMPROVEMENT, EXHAUSTED, _TRIAL_BUDGET)
        told: dict[str, Any] = {"first": self._first, "gain": gain, "spent": spent, "stopped": self.ended}
        put(self._db, self._key, self._matrix, plan, ledger, self._old, **told, is_provisional=is_provisional)
        if self._log is not None:
            with suppress(DatabaseError):
                self._log.end()
