"""Tuning as its users call it: from a request to a plan in the database.

1. request   :class:`akx.tuner.request.TuneRequest`, for the one backend it names or for each that ``"auto"`` stands for
2. case      the keys of the plan, the device, and what the database has; a plan that answers is the result
3. space     every plan that may be tried, with a model of their seconds and a bench to try them on
4. search    :class:`akx.tuner.search.search.Search`: candidates, trials, run-off
5. keep      the plan and its trials go into the database (:mod:`akx.tuner.history.kept`)
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal

from akx.backends import registry
from akx.backends.memory_budget import budgeted_backend, resolve_budget, within
from akx.backends.selection import BACKENDS, backend_of, is_usable
from akx.core.arguments import check_count, unknown_name
from akx.core.errors import AkxError, ArgumentError, ArgumentTypeError, brief
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.plandb import PlanDatabase, PlanDatabaseWarning, PlanKey, PlanRecord, aged, default_database
from akx.tuner import measure
from akx.tuner.candidates.initial_candidates import foreseen
from akx.tuner.candidates.warm_start import features_of, warm_start_of
from akx.tuner.fallback.nearest import nearest_in
from akx.tuner.history.kept import is_enough, is_final, keep, leave, reuse, usable
from akx.tuner.history.result import FEW_CALLS, TuneResult
from akx.tuner.history.trial import Progress
from akx.tuner.history.trial_log import NO_HISTORY, TrialLog, earlier_trials
from akx.tuner.model.predict import Model, budget_error
from akx.tuner.request import Settings, TuneRequest
from akx.tuner.search.outcome import faster_of, with_budget, with_calls, with_value_error
from akx.tuner.search.preparation import (
    WORTH_PROCESSES,
    bench_for,
    compile_first,
    is_large,
    keys_of,
    model_of,
    said_by,
    search_on,
    spared,
    warmup_for,
)
from akx.tuner.search.shared_study import SharedStudy, join_study
from akx.tuner.space import Space, build_space, place_of, resolve_backend
from akx.tuner.trace.writer import recording_to
from akx.tuner.trial.bench import Bench
from akx.tuner.trial.problem import BASIS_KINDS, Problem
from akx.tuner.warmup.host_code import precompiling

__all__ = ["tune"]

#: Arguments of a request that its settings have in them.
_IN_SETTINGS: Mapping[str, Any] = dict.fromkeys(("trials", "seconds", "seed", "calls", "value_error"))
#: Share of the time that the host's plan gets where a GPU's is tuned as well.
_HOST_SHARE = 1 / 3


def tune(
    matrix: Any,
    k: int,
    *,
    basis: str = "monomial",
    start_vectors: int = 1,
    backend: str = "auto",
    threads: int | None = None,
    trials: int | None = None,
    seconds: float | None = None,
    db: PlanDatabase | str | os.PathLike[str] | Literal[False] | None = None,
    retune: bool = False,
    seed: int | None = None,
    name: str = "",
    callback: Callable[[Progress], object] | None = None,
    space_filter: Callable[[Plan], bool] | None = None,
    settings: Settings | None = None,
    memory_budget: int | str | None = None,
    fraction: float | None = None,
    value_error: float | None = None,
    storage: Any = None,
    calls: int | None = None,
    record: str | os.PathLike[str] | None = None,
    fresh: bool = False,
) -> TuneResult:
    """The best plan for a matrix on this machine, known or measured; :class:`akx.tuner.request.TuneRequest` says more.

    Parameters
    ----------
    matrix : scipy.sparse matrix or array of any format, shape (n, n), or Matrix
        In the dtype that is to be tuned for. With a million entries it is not copied: nobody may write to it meanwhile.
    k, start_vectors : int
        Powers, and start vectors per call; each at least 1.
    basis, backend : str
        ``"monomial"``, ``"newton"`` or ``"chebyshev"``; a backend's name, or ``"auto"``: the host, and the GPU where
        there is one, of which the faster plan is returned.
    threads : int, optional
        Most threads to use; a number other than the machine's cores is part of the plan's key.
    trials, seconds, seed : int, float and int, optional
        Most trials (80); most seconds of the search (30; 60 with a GPU); the seed of start vectors and sampler (0).
    db, name : PlanDatabase or path, and str, optional
        Where plans are looked up and kept (the user's by default; ``False``: nowhere), and the matrix's name there.
    retune, fresh : bool
        Search on even where there is a plan; and try again what earlier searches have tried.
    callback : callable, optional
        Called with a :class:`Progress` after each trial and phase. What it raises ends the tuning.
    space_filter : callable, optional
        Plans for which it returns false are not tried (plain products all are, and may win); no database is used.
    settings : Settings, optional
        Everything else about the search; `trials`, `seconds`, `seed` and `calls` override it where given.
    memory_budget, fraction : int or str, and float, optional
        Bytes of the GPU's memory that a plan may take, e.g. ``"512M"``; or as a fraction of the matrix's bytes in CSR.
    value_error : float, optional
        Largest relative error of a stored value, at least 0 and less than 1; that of `matrix` by default, else 0.
    storage : str, path-like or optuna.storages.BaseStorage, optional
        Where workers share their trials: a journal's path, the URL of a PostgreSQL server, or a storage of Optuna.
    calls : int, optional
        How often the kernel will run, in all: no more time is spent than so many calls could win.
    record : str or os.PathLike, optional
        A file to which every trial is written as it ends, for :func:`akx.tuner.replay`.

    Returns
    -------
    TuneResult
        Its speed-up is at least 1: where nothing beats the baseline, the baseline is the plan.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError
        An argument makes no sense; the matrix is dense, not square, empty or not finite.
    DatabaseError
        The database cannot be written, or the storage not be used; raised before any time is spent on tuning.
    InfeasibleError, BudgetError
        Not even a plain sweep works; nothing keeps within the memory budget (the message says the least that would do).
    KeyboardInterrupt
        Before anything was measured; later it ends the search and the best so far is kept.
    """
    arguments = {name: value for name, value in locals().items() if name != "matrix"}
    with spared(matrix), said_by(callback) as arguments["callback"]:
        return _tune(matrix, TuneRequest(**arguments))


def _tune(matrix: Any, request: TuneRequest) -> TuneResult:
    """Look the plan up, or search for it, for the one backend of a request, or for each that ``"auto"`` stands for."""
    if is_large(matrix) and not isinstance(matrix, Matrix):
        own = Matrix.from_any(matrix, value_error=request.value_error, copy=False)
        try:
            return _tune(own, request)
        finally:
            own.pattern_cache.clear()  # orders of its rows are large, and nobody else has the matrix
    start = measure.now()
    matrix = Matrix.from_any(matrix, value_error=request.value_error)
    budget = resolve_budget(matrix, request.memory_budget, request.fraction)
    request = replace(request, backend=budgeted_backend(request.backend, budget))
    automatic = (name for name in registry.backends() if backend_of(name).is_automatic and is_usable(name))
    backends = tuple(automatic) if request.backend == "auto" else ()  # the host first
    if len(backends) > 1:
        return _tune_for_each(matrix, request, backends, start)
    case = _case_of(matrix, request, budget, start)
    if (db := case.db) is not None:
        case = case.with_known_plan(db)
        if case.is_answered:
            return case.done(case.reused(db))
        db.check_writable()
    others = join_study(request.storage, case.key)
    return case.done(_searched(case, others))


def _tune_for_each(matrix: Matrix, request: TuneRequest, backends: Sequence[str], start: float) -> TuneResult:
    """The faster plan of several backends, the host first, which gets a third of the time; all plans are kept."""
    if request.record is not None:
        raise ArgumentError(
            "a recording is of one backend",
            found="backend 'auto' with a GPU",
            hint=f"name one: {' or '.join(BACKENDS.own)}",
        )
    wanted = request.settings_on("auto")
    own, *others = backends
    shares = _HOST_SHARE, (1 - _HOST_SHARE) / len(others)
    of_host, rest = (
        replace(request, settings=replace(wanted, seconds=share * wanted.seconds), **_IN_SETTINGS) for share in shares
    )
    best = _tune(matrix, replace(of_host, backend=own))
    for backend in others:
        if best.interrupted:
            best = best.noted(f"the {backend} backend was not tuned")
            continue
        try:
            other = _tune(matrix, replace(rest, backend=backend))
        except AkxError as failure:  # the best plan so far is kept by now
            best = replace(best, tuning_seconds=measure.now() - start)
            best = best.noted(f"the {backend} backend was not tuned: {failure}")
        else:
            best = faster_of(best, other, start)
    return best if best.interrupted else with_calls(best, wanted.calls)


@dataclass(frozen=True)
class _Case:
    """A request on one backend: whose plan it asks for, and what is known of that.

    The matrix has the error that its values may have on this backend, and `exact_key` is that for values as they are;
    `record` is what the database has for the key, and `known` the same where the plan can be used here.
    """

    request: TuneRequest
    settings: Settings
    matrix: Matrix
    key: PlanKey
    exact_key: PlanKey
    backend: str
    threads: int
    device: Any
    memory_budget: int | None
    db: PlanDatabase | None
    start: float
    record: PlanRecord | None = None
    known: PlanRecord | None = None
    layer: str = ""

    def with_known_plan(self, db: PlanDatabase) -> _Case:
        """The same with what the database has."""
        with warnings.catch_warnings():
            # A database that cannot even be read is an error later on, and not a warning before it.
            warnings.simplefilter("ignore", PlanDatabaseWarning)
            found = db.find(self.key)
        return replace(self, record=found.record, known=self.usable(found.record), layer=found.layer)

    def usable(self, record: PlanRecord | None) -> PlanRecord | None:
        """The record where its plan works here."""
        return usable(record, self.matrix, self.device, self.threads)

    @property
    def is_answered(self) -> bool:
        """Whether the plan of the database is the answer, and nothing has to be measured."""
        old, request = self.known, self.request
        if old is None or self.db is None or request.retune or request.fresh:
            return False
        return not aged(old) and is_enough(old, self.settings.calls) and is_final(self.db, old)

    def reused(self, db: PlanDatabase) -> TuneResult:
        """The plan of the database as a result."""
        assert self.known is not None
        result = reuse(db, self.known, self.layer, self.matrix, self.device, self.threads, self.start)
        if self.request.record is None:
            return self.told(result)
        note = "nothing was measured, so nothing was recorded; --retune (retune=True) measures again"
        return self.told(result).noted(note)

    def told(self, result: TuneResult) -> TuneResult:
        """The result with notes on the error of stored values, on the memory budget and on the calls."""
        result = with_budget(with_value_error(result, self.matrix, self.device), self.memory_budget)
        return with_calls(result, self.settings.calls)

    def done(self, result: TuneResult) -> TuneResult:
        """The result, told to the callback."""
        if self.request.callback is not None:
            last = Progress(
                phase="done",
                trials=sum(trial.is_own for trial in result.trials),
                trials_budget=self.settings.trials,
                elapsed=result.tuning_seconds,
                seconds_budget=self.settings.seconds,
                best_plan=result.plan,
                best_seconds=result.seconds,
                baseline_seconds=result.baseline_seconds,
                roofline_share=None if result.roofline is None else result.roofline.share,
            )
            self.request.callback(last)
        return result


def _case_of(matrix: Matrix, request: TuneRequest, memory_budget: int | None, start: float) -> _Case:
    k, start_vectors = check_count("k", request.k), check_count("start_vectors", request.start_vectors)
    if request.basis not in BASIS_KINDS:
        raise unknown_name("basis", request.basis, BASIS_KINDS)
    settings = request.settings_on(resolve_backend(request.backend))
    request = replace(request, k=k, start_vectors=start_vectors)
    backend, threads, device = place_of(request.backend, request.threads)
    device = within(device, memory_budget)
    where = {"basis": request.basis, "start_vectors": start_vectors, "backend": backend, "threads": threads}
    matrix, key, exact = keys_of(matrix, k, **where, device=device)
    db = _database(request.db, request.space_filter)
    return _Case(request, settings, matrix, key, exact, backend, threads, device, memory_budget, db, start)


def _database(db: object, space_filter: object) -> PlanDatabase | None:
    """The database that `db` stands for, or None where plans are neither looked up nor kept."""
    if db is not None and db is not False and not isinstance(db, (PlanDatabase, str, os.PathLike)):
        raise ArgumentTypeError(
            "db is no plan database",
            expected="a PlanDatabase, a path, None for the user's, or False for none",
            found=brief(db),
        )
    if db is False or space_filter is not None:
        return None
    if db is None:
        return default_database()
    return db if isinstance(db, PlanDatabase) else PlanDatabase(db)


def _searched(case: _Case, others: SharedStudy | None) -> TuneResult:
    """Prepare a search, with processes that compile beside it, and search."""
    request, settings, matrix, device = case.request, case.settings, case.matrix, case.device
    k, vectors = request.k, request.start_vectors
    compiles_ahead = backend_of(case.backend).compiles_ahead and settings.seconds >= WORTH_PROCESSES
    with (
        precompiling(matrix, k, vectors, device, wanted=compiles_ahead) as compilation,
        closing(warmup_for(matrix, vectors, case.backend, case.threads, settings)) as warmup,
    ):
        space = build_space(matrix, k, device, backend=case.backend, threads=case.threads, start_vectors=vectors)
        given = _given(case, space)
        warm_start = warm_start_of(case.db, case.exact_key, space, matrix)
        is_tight = case.memory_budget is not None
        if is_tight and all(space.feasible(one, matrix) is not None for one in space.baselines(matrix)):
            raise budget_error(space, matrix, "not even one product at a time fits")
        problem = Problem(matrix, k, basis=request.basis, start_vectors=vectors, seed=settings.seed)
        model = model_of(matrix, space, vectors, settings.seconds, warmup)
        compile_first(warmup, compilation, foreseen(model, warm_start, given), settings, request.callback)
        bench = bench_for(problem, space, settings, warmup)
        if not warmup.has_all:
            bench.end_when_settled(warmup.close)
        if compilation is not None:
            bench.end_when_settled(compilation.close)
        with closing(problem):
            return _search_and_keep(case, bench, model, given=given, warm_start=warm_start, others=others)


def _given(case: _Case, space: Space) -> list[Plan]:
    """Plans that are tried in any case: that of the database, that for values as they are, or the nearest to each."""
    exact = case.db.find(case.exact_key).record if case.db is not None and case.key != case.exact_key else None
    found = []
    for record in (case.record, exact):
        known = case.usable(record)
        if known is not None:
            found.append(space.inside(known.plan))
        elif record is not None and (near := nearest_in(space, record.plan, case.matrix, case.request.start_vectors)):
            found.append(near)
    return found


def _search_and_keep(case: _Case, bench: Bench, model: Model, **options: Any) -> TuneResult:
    """Search; every trial is recorded and kept as it ends, and the result at the end."""
    request, settings, key, db = case.request, case.settings, case.key, case.db
    begin = measure.now()
    anew = request.fresh or request.record is not None or options["others"] is not None
    log = None if db is None else TrialLog(db, key)
    options |= {"callback": request.callback, "keep": request.space_filter}
    options["history"] = NO_HISTORY if anew else earlier_trials(db, key)
    describe = request.record, "search", request.name, key, model, settings, options["warm_start"]
    try:
        with recording_to(*describe) as recorder:
            options |= {"log": log, "since": case.start, "name": request.name, "db": db}
            result = case.told(search_on(bench, model, settings, key, recorder, start=begin, **options))
            if recorder is not None:
                result = recorder.end(result)
        if db is None or log is None:
            return result
        of_few = result.stopped == FEW_CALLS and result.plan == result.baseline_plan and case.known is None
        if of_few and all(trial.origin != "predicted" for trial in result.trials):
            return leave(result, log)
        features = features_of(case.matrix)
        return keep(db, key, result, log, case.known, before=case.record, features=features)
    finally:
        if log is not None:
            log.leave()
