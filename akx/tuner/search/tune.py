"""Tuning as its users call it: from a matrix to a plan in the database.

:func:`tune` looks the plan up first; without one it makes sure that the result can be kept, searches, and keeps it.
:func:`exhaustive` measures the whole feasible space, to show what a search has missed.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial, wraps
from itertools import islice
from typing import Any, Literal, ParamSpec

from akx.backends import registry
from akx.backends.device_lock import device_lock
from akx.backends.memory_budget import budgeted_backend, resolve_budget, within
from akx.backends.selection import backend_of, is_usable
from akx.core.arguments import check_count, unknown_name
from akx.core.errors import AkxError, ArgumentError, ArgumentTypeError, brief
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from akx.core.progress import working
from akx.plandb import PlanDatabase, PlanDatabaseWarning, PlanKey, PlanRecord, aged, default_database
from akx.tuner import measure
from akx.tuner.candidates.initial_candidates import foreseen
from akx.tuner.candidates.warm_start import features_of, warm_start_of
from akx.tuner.history.kept import is_enough, is_final, keep, leave, reuse, usable
from akx.tuner.history.result import FEW_CALLS, Progress, Trial, TuneResult
from akx.tuner.history.trial_log import NO_HISTORY, TrialLog, earlier_trials
from akx.tuner.model.figures import ceiling_of, figures_of, measured_figures
from akx.tuner.model.predict import Model, budget_error
from akx.tuner.request import Settings, TuneRequest
from akx.tuner.search.outcome import as_result, faster_of, with_budget, with_calls, with_value_error
from akx.tuner.search.search import Outcome, Search
from akx.tuner.search.shared_study import SharedStudy, join_study
from akx.tuner.space import Space, build_space, place_of, plan_key, resolve_backend
from akx.tuner.trace.writer import Recorder, recording_to
from akx.tuner.trial.bench import Bench
from akx.tuner.trial.problem import BASIS_KINDS, Problem
from akx.tuner.warmup.compile_ahead import processes_ahead
from akx.tuner.warmup.host_code import Warmup, job_of, precompiling

__all__ = ["exhaustive", "tune"]

_P = ParamSpec("_P")

#: Share of the time that is waited for another process which measures on the device, before each timing.
_WAIT = 0.25
#: A machine that became slower by less is not told of.
_SLOWER = 1.25
#: Arguments of a request that its settings have in them.
_IN_SETTINGS: Mapping[str, Any] = dict.fromkeys(("trials", "seconds", "seed", "calls", "value_error"))
#: Share of the time that the host's plan gets where a GPU's is tuned as well.
_HOST_SHARE = 1 / 3
#: One trial's timing takes at most this fraction of the time there is.
_TRIALS_IN_TIME = 50
#: Seconds of a tuning from which on processes that get plans ready pay for their start.
_WORTH_PROCESSES = 10.0
#: Seconds between two looks at whether the code of the first baseline is there.
_LOOK = 1.0


def _told(tuning: Callable[_P, TuneResult]) -> Callable[_P, TuneResult]:
    """Without a callback, what it is at is said where that takes long (:mod:`akx.core.progress`)."""

    @wraps(tuning)
    def tell(*args: _P.args, **options: _P.kwargs) -> TuneResult:
        if options.get("callback") is not None:
            return tuning(*args, **options)
        with working("tuning") as under_way:
            options["callback"] = _Words(under_way)
            return tuning(*args, **options)

    return tell


class _Words:
    """A callback that says how far a tuning is; it has no use for the roofline, which takes a model of the plan."""

    wants_roofline = False

    def __init__(self, under_way: working) -> None:
        self._under_way = under_way

    def __call__(self, state: Progress) -> None:
        self._under_way.what = state.words


@_told
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
    """The best plan for a matrix on this machine: from the database, or by measuring.

    Parameters
    ----------
    matrix : scipy.sparse matrix or array of any format, shape (n, n), or Matrix
        The matrix, in the dtype that is to be tuned for.
    k : int
        Powers, at least 1.
    basis : str
        ``"monomial"``, ``"newton"`` or ``"chebyshev"``.
    start_vectors : int
        Start vectors per call, at least 1.
    backend : str
        ``"auto"`` or a backend's name. Where there is a GPU, ``"auto"`` tunes for the host in a third of the time and
        for the GPU in the rest, keeps both plans and returns the faster; the GPU's is timed with the vectors in its
        memory.
    threads : int, optional
        Most threads to use; a number other than the machine's cores is part of the plan's key.
    trials : int, optional
        Most trials (80).
    seconds : float, optional
        Most seconds of the search (30 for the host, 60 where there is a GPU to tune for); a trial under way is
        finished. akx's own code is compiled before, once on a machine, on all cores, in as many seconds at most.
    db : PlanDatabase or path, optional
        Where plans are looked up and kept: the user's database by default, which :func:`akx.matrix_powers` asks as
        well. ``False`` does neither.
    retune : bool
        Search even where there is a plan. That plan is measured as well, and stays unless the search runs to its end
        and finds a better one. What earlier searches have tried is not tried again. A plan that is provisional, since
        its search was interrupted, disturbed or had too little time, is searched on from in any case.
    seed : int, optional
        Of start vectors and sampler (0).
    name : str
        What to call the matrix in the database.
    callback : callable, optional
        Called with a :class:`Progress` after each trial and phase. What it raises ends the tuning. Without one akx says
        itself how far it is, unless :func:`akx.progress` is off.
    space_filter : callable, optional
        Plans for which it returns false are not tried (baselines always are). The database is then neither read nor
        written, since a plan from a part of the space is not the best plan.
    settings : Settings, optional
        Everything else about the search; `trials`, `seconds` and `seed` override it where given.
    memory_budget : int or str, optional
        Bytes of the GPU's memory that a plan may take, vectors included, e.g. ``"512M"`` or ``"80GiB"``; see
        `parse_bytes`. Vectors are then at home in the host's memory, the baseline is plain
        products, streamed or not, and the plan is kept for exactly this budget. For the backend ``"cuda"``, which it
        also means.
    fraction : float, optional
        The same as a fraction of the bytes of the matrix in CSR; the smaller of the two counts.
    value_error : float, optional
        Largest relative error of a stored value, at least 0 and less than 1: plans for the GPU may store the entries in
        half the bytes where each is off by no more; see :class:`akx.MatrixPowers`. By default that of `matrix` where it
        is an :class:`akx.Matrix`, else 0: exact. What a plan computes is compared with a bound that has the error in it
        with which that plan stores these values, if any, and no more of the allowance. The best plan is kept for
        exactly this allowance, beside that for exact values, which takes part in the search. The CPU has values in
        full, and so have float32 and complex64: no effect there.
    storage : str, path-like or optuna.storages.BaseStorage, optional
        Where several workers share their trials, each with a device of its own: the path of a journal in a shared
        directory, the URL of a PostgreSQL server, or a storage of Optuna. A plan that another worker on a device of
        the same class has tried, or is at, is not tried here; budgets count what is tried here. Each worker has a
        run-off of its own. A search that was broken off goes on where it was.
    calls : int, optional
        How often the kernel will run, in all. No more time is then spent than further search could win in so many
        calls: for few, the baseline or the predicted plan is taken without a search. Where not even the predicted plan
        was measured no plan is kept, so that calls go on as untuned ones. A plan that was sought for few calls is
        sought again where more are to come.
    record : str or os.PathLike, optional
        A file to which every trial is written as it ends, as lines of JSON (:mod:`akx.tuner.trace.recording`), for
        :func:`akx.tuner.replay` and other studies. A recording of the same problem that is there already is continued.
        Nothing is recorded where the plan comes from the database. A search that is recorded begins anew, as with
        `fresh`: what is tried in it is in the file.
    fresh : bool
        As `retune`, and everything is tried again. Without it a search goes on from the trials that the database has of
        earlier ones for exactly this key, such as one that was killed (:mod:`akx.tuner.history.trial_log`); not where
        there is a `storage`, which has the trials of the study.

    Returns
    -------
    TuneResult
        Its speed-up is at least 1: where nothing beats the baseline, the baseline is the plan.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        An argument makes no sense.
    MatrixError
        The matrix is dense, not square, empty or not finite.
    DatabaseError
        The database cannot be written, or the storage not be used; raised before any time is spent on tuning.
    InfeasibleError
        Not even a plain sweep works.
    BudgetError
        Nothing keeps within the memory budget; the message says the least that would do.
    KeyboardInterrupt
        Before anything was measured; later it ends the search and the best so far is kept.
    """
    request = TuneRequest(
        k=k,
        basis=basis,
        start_vectors=start_vectors,
        backend=backend,
        threads=threads,
        trials=trials,
        seconds=seconds,
        db=db,
        retune=retune,
        seed=seed,
        name=name,
        callback=callback,
        space_filter=space_filter,
        settings=settings,
        memory_budget=memory_budget,
        fraction=fraction,
        value_error=value_error,
        storage=storage,
        calls=calls,
        record=record,
        fresh=fresh,
    )
    return _tune(matrix, request)


def _tune(matrix: Any, request: TuneRequest) -> TuneResult:
    """Look the plan up, or search for it, for the one backend of a request, or for each that ``"auto"`` stands for."""
    start = measure.now()
    matrix = Matrix.from_any(matrix, value_error=request.value_error)
    budget = resolve_budget(matrix, request.memory_budget, request.fraction)
    request = replace(request, backend=budgeted_backend(request.backend, budget))
    places = _automatic() if request.backend == "auto" else ()
    if len(places) > 1:
        return _tune_for_each(matrix, replace(request, settings=request.settings_on(request.backend)), places, start)
    wanted = request.settings_on(resolve_backend(request.backend))
    case = _case(matrix, request, wanted, budget, start)
    kept = case.db
    if kept is not None:
        case = _with_known_plan(case, kept)
        if case.is_answered:
            return _reused(case, kept)
        kept.check_writable()
    others = join_study(request.storage, case.key)
    result = _searched(case, others)
    if request.callback is not None:
        request.callback(_last_progress(result, wanted))
    return result


def _tune_for_each(matrix: Matrix, request: TuneRequest, backends: Sequence[str], start: float) -> TuneResult:
    """The faster plan of several backends, the host first, which gets a third of the time; all plans are kept."""
    if request.record is not None:
        raise ArgumentError(
            "a recording is of one backend", found="backend 'auto' with a GPU", hint="name one: cpu or cuda"
        )
    wanted = request.settings
    assert wanted is not None
    own, *others = backends
    shares = _HOST_SHARE, (1 - _HOST_SHARE) / len(others)
    of_host, rest = (
        replace(request, settings=replace(wanted, seconds=share * wanted.seconds), **_IN_SETTINGS) for share in shares
    )
    best = _tune(matrix, replace(of_host, backend=own))
    for backend in others:
        if best.interrupted:
            best = replace(best, notes=(*best.notes, f"the {backend} backend was not tuned"))
            continue
        try:
            other = _tune(matrix, replace(rest, backend=backend))
        except AkxError as failure:  # the best plan so far is kept by now
            notes = (*best.notes, f"the {backend} backend was not tuned: {failure}")
            best = replace(best, tuning_seconds=measure.now() - start, notes=notes)
        else:
            best = faster_of(best, other, start)
    return best if best.interrupted else with_calls(best, wanted.calls)


@dataclass(frozen=True)
class _Case:
    """A request on one backend: whose plan it asks for, and what is known of that.

    Attributes
    ----------
    request, wanted : TuneRequest, Settings
        As asked for, and how the search spends its budget.
    matrix : Matrix
        With the error that its values may have on this backend.
    key, exact_key : PlanKey
        Of the plan, and of that for values as they are.
    backend, threads, device, budget
        The backend's name, most threads of a plan, the device, and bytes of its memory that a plan may take.
    db : PlanDatabase or None
        Where plans are looked up and kept.
    start : float
        When tuning began.
    record, known : PlanRecord or None
        What the database has for the key, and the same where the plan can be used here.
    layer : str
        Of the database where it was found.
    """

    request: TuneRequest
    wanted: Settings
    matrix: Matrix
    key: PlanKey
    exact_key: PlanKey
    backend: str
    threads: int
    device: Any
    budget: int | None
    db: PlanDatabase | None
    start: float
    record: PlanRecord | None = None
    known: PlanRecord | None = None
    layer: str = ""

    @property
    def is_answered(self) -> bool:
        """Whether the plan of the database is the answer, and nothing has to be measured."""
        old, request = self.known, self.request
        if old is None or self.db is None or request.retune or request.fresh:
            return False
        return not aged(old) and is_enough(old, self.wanted.calls) and is_final(self.db, old)

    def told(self, result: TuneResult) -> TuneResult:
        """The result with notes on the error of stored values, on the memory budget and on the calls."""
        result = with_budget(with_value_error(result, self.matrix, self.device), self.budget)
        return with_calls(result, self.wanted.calls)


def _case(matrix: Matrix, request: TuneRequest, wanted: Settings, budget: int | None, start: float) -> _Case:
    k, start_vectors = check_count("k", request.k), check_count("start_vectors", request.start_vectors)
    if request.basis not in BASIS_KINDS:
        raise unknown_name("basis", request.basis, BASIS_KINDS)
    request = replace(request, k=k, start_vectors=start_vectors)
    label, used, device = place_of(request.backend, request.threads)
    device = within(device, budget)
    same: dict[str, Any] = {"basis": request.basis, "start_vectors": start_vectors, "backend": label, "threads": used}
    matrix, key, exact = _keyed(matrix, k, **same, device=device)
    db = _database(request.db, request.space_filter)
    return _Case(request, wanted, matrix, key, exact, label, used, device, budget, db, start)


def _with_known_plan(case: _Case, db: PlanDatabase) -> _Case:
    with warnings.catch_warnings():
        # A database that cannot even be read is an error later on, and not a warning before it.
        warnings.simplefilter("ignore", PlanDatabaseWarning)
        found = db.find(case.key)
    known = usable(found.record, case.matrix, case.device, case.threads)
    return replace(case, record=found.record, known=known, layer=found.layer)


def _reused(case: _Case, db: PlanDatabase) -> TuneResult:
    """The plan of the database as a result."""
    assert case.known is not None
    result = case.told(reuse(db, case.known, case.layer, case.matrix, case.device, case.threads, case.start))
    if case.request.record is not None:
        note = "nothing was measured, so nothing was recorded; --retune (retune=True) measures again"
        result = replace(result, notes=(*result.notes, note))
    if case.request.callback is not None:
        case.request.callback(_last_progress(result, case.wanted))
    return result


def _searched(case: _Case, others: SharedStudy | None) -> TuneResult:
    """Search, with processes that compile beside it, and keep what was found."""
    request, wanted, matrix, device = case.request, case.wanted, case.matrix, case.device
    k, vectors = request.k, request.start_vectors
    compiles_ahead = backend_of(case.backend).compiles_ahead and wanted.seconds >= _WORTH_PROCESSES
    with (
        precompiling(matrix, k, vectors, device, wanted=compiles_ahead) as compilation,
        closing(_warmup(matrix, vectors, case.backend, case.threads, wanted)) as warmup,
    ):
        space = build_space(matrix, k, device, backend=case.backend, threads=case.threads, start_vectors=vectors)
        given = _given(case, space)
        warm_start = warm_start_of(case.db, case.exact_key, space, matrix)
        if case.budget is not None and all(space.feasible(one, matrix) is not None for one in space.baselines(matrix)):
            raise budget_error(space, matrix, "not even one product at a time fits")
        problem = Problem(matrix, k, basis=request.basis, start_vectors=vectors, seed=wanted.seed)
        model = _model(matrix, space, vectors, wanted.seconds, warmup)
        _compile(warmup, compilation, foreseen(model, warm_start, given), wanted, request.callback)
        bench = _bench(problem, space, wanted, warmup)
        if not warmup.has_all:
            bench.end_when_settled(warmup.close)
        if compilation is not None:
            bench.end_when_settled(compilation.close)
        options = {"given": given, "warm_start": warm_start, "others": others}
        return _searched_and_kept(case, bench, model, space, options)


def _searched_and_kept(case: _Case, bench: Bench, model: Model, space: Space, options: Mapping[str, Any]) -> TuneResult:
    """Search from here on; every trial is recorded and kept as it ends, and the result at the end."""
    request, wanted, key = case.request, case.wanted, case.key
    begin = measure.now()
    anew = request.fresh or request.record is not None or options["others"] is not None
    history = NO_HISTORY if anew else earlier_trials(case.db, key)
    log = None if case.db is None else TrialLog(case.db, key)
    try:
        with recording_to(
            request.record, "search", request.name, key, model, wanted, options["warm_start"]
        ) as recorder:
            more = {"start": begin, "callback": request.callback, "keep": request.space_filter, "history": history}
            outcome = _search(bench, model, wanted, recorder, log, **options, **more)
            result = case.told(_as_result(outcome, case.matrix, key, space, case.start, request.name, case.db))
            if recorder is not None:
                result = recorder.end(result)
        if case.db is None or log is None:
            return result
        of_few = result.stopped == FEW_CALLS and result.plan == result.baseline_plan and case.known is None
        if of_few and all(trial.origin != "predicted" for trial in result.trials):
            return leave(result, log)
        features = features_of(case.matrix)
        return keep(case.db, key, result, log, case.known, before=case.record, features=features)
    finally:
        if log is not None:
            log.leave()


def _given(case: _Case, space: Space) -> list[Plan]:
    """Plans that are tried in any case: that of the database, and that for values as they are."""
    exact = None
    if case.db is not None and case.key != case.exact_key:
        exact = usable(case.db.find(case.exact_key).record, case.matrix, case.device, case.threads)
    return [space.inside(record.plan) for record in (case.known, exact) if record is not None]


def _as_result(
    outcome: Outcome, matrix: Matrix, key: PlanKey, space: Space, start: float, name: str, db: PlanDatabase | None
) -> TuneResult:
    model = partial(_model, matrix, space, key.start_vectors)
    return as_result(outcome, matrix, key, space, start, name=name, db=db, model=model)


@_told
def exhaustive(
    matrix: Any,
    k: int,
    *,
    basis: str = "monomial",
    start_vectors: int = 1,
    backend: str = "auto",
    threads: int | None = None,
    seconds: float | None = None,
    include: Iterable[Plan] = (),
    seed: int | None = None,
    name: str = "",
    callback: Callable[[Progress], object] | None = None,
    space_filter: Callable[[Plan], bool] | None = None,
    choices: Mapping[str, Mapping[str, Sequence[Option]]] | None = None,
    settings: Settings | None = None,
    value_error: float | None = None,
    record: str | os.PathLike[str] | None = None,
) -> TuneResult:
    """Measure the whole feasible space, with neither racing nor sampling, and keep nothing.

    Parameters
    ----------
    matrix, k, basis, start_vectors, backend, threads, seed, name, callback, space_filter, settings, value_error, record
        As for :func:`tune`.
    seconds : float, optional
        Most seconds; no limit by default.
    include : iterable of Plan
        Plans that take part in the run-off in any case, e.g. that of :func:`tune`, so that they are compared with the
        optimum in the same minute: see :attr:`TuneResult.finalists`.
    choices : mapping of str to mapping of str to sequence, optional
        By schedule and parameter, the only choices that are measured: a part of a space that is too large, in which a
        recording answers for every plan (``{"resident": {"block": (512, 1024)}}``). The space of the recording is this
        part.

    Returns
    -------
    TuneResult
        Its ``trials`` are all plans that were measured.

    Raises
    ------
    ArgumentError
        As :func:`tune`, and where there is no such choice, or none is left of a baseline.
    """
    start = measure.now()
    matrix, given = Matrix.from_any(matrix, value_error=value_error), tuple(include)
    base = (settings or Settings()).but(seed=seed)
    wanted = replace(base, calls=None, trials=2**31 - 1, seconds=math.inf if seconds is None else seconds)
    k, start_vectors = check_count("k", k), check_count("start_vectors", start_vectors)
    label, used, device = place_of(backend, threads)
    same: dict[str, Any] = {"basis": basis, "start_vectors": start_vectors, "backend": label, "threads": used}
    matrix, key, _ = _keyed(matrix, k, **same, device=device)
    space = build_space(matrix, k, device, backend=label, threads=used, start_vectors=start_vectors)
    if choices is not None:
        space = space.part(choices)
        if not space.baselines(matrix):
            raise ArgumentError(
                "the choices leave no plain product to compare with",
                expected="sweep with rows in the order given and values in full",
                hint="leave the defaults of sweep among its choices",
            )
    problem = Problem(matrix, k, basis=basis, start_vectors=start_vectors, seed=wanted.seed)
    bench = _bench(problem, space, wanted)
    model = _model(matrix, space, start_vectors, wanted.seconds)
    kind = "exhaustive" if space_filter is None and choices is None else "part"
    with recording_to(record, kind, name, key, model, wanted) as recorder:
        options: dict[str, Any] = {"start": start, "callback": callback, "keep": space_filter, "given": given}
        outcome = _search(bench, model, wanted, recorder, None, everything=True, **options)
        result = with_value_error(_as_result(outcome, matrix, key, space, start, name, None), matrix, device)
        return result if recorder is None else recorder.end(result)


def _keyed(matrix: Matrix, k: int, **where: Any) -> tuple[Matrix, PlanKey, PlanKey]:
    """The matrix with the error that its values may have there, the key of its plan, and that for values as they are.

    Where nothing stores values with an error results have none, and are judged so.
    """
    exact = matrix.with_value_error(0.0)
    key, of_exact = plan_key(matrix, k, **where), plan_key(exact, k, **where)
    return (exact if key == of_exact else matrix), key, of_exact


def _automatic() -> tuple[str, ...]:
    """What ``"auto"`` tunes for on this machine, the host first."""
    return tuple(name for name in registry.backends() if backend_of(name).is_automatic and is_usable(name))


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


def _warmup(matrix: Matrix, start_vectors: int, backend: str, threads: int, wanted: Settings) -> Warmup:
    """Where code is compiled; it begins with what all teams of threads share. Nothing, where that is not worth it."""
    worth = backend_of(backend).compiles_first and wanted.seconds >= _WORTH_PROCESSES and measure.is_real_time()
    warmup = Warmup(matrix, start_vectors, count=None if worth else 0)
    if threads > 1:
        warmup.want_team()
    return warmup


def _compile(
    warmup: Warmup,
    compilation: Warmup | None,
    plans: Iterable[Plan],
    wanted: Settings,
    callback: Callable[[Progress], object] | None,
) -> None:
    """The phase before a search: compile what it begins with, for as long as the search may take at most."""
    begin = measure.now()

    def report(done: int, total: int) -> None:
        if callback is not None and total:
            callback(Progress("compile", done, total, measure.now() - begin, wanted.seconds))

    if compilation is not None and wanted.calls is None:  # for few calls the first baseline may be all
        compilation.wait(wanted.seconds, report)
    if warmup.has_all:
        return
    most = wanted.trials if wanted.calls is None else 1
    foreseen_plans = list(islice(plans, most))
    warmup.want(map(job_of, foreseen_plans))
    warmup.wait(wanted.seconds, report)
    first = next(iter(foreseen_plans), None)
    while first is not None and warmup.is_coming(first) and measure.now() - begin < 2 * wanted.seconds:
        warmup.wait_for_one(_LOOK)  # nothing can be tried without it, and to begin with it here would take longer


def _model(
    matrix: Matrix, space: Space, start_vectors: int, seconds: float = math.inf, warmup: Warmup | None = None
) -> Model:
    """`seconds`: what the tuning may take, a share of which is waited for the device at most."""
    with _alone(space.device, seconds, warmup)():
        measured = measured_figures(space.device, space.threads)
    figures = figures_of(space.device, space.threads)
    ceiling = ceiling_of(measured, figures, space.device, space.threads)
    return Model(matrix, space, figures, start_vectors, ceiling)


def _bench(problem: Problem, space: Space, wanted: Settings, warmup: Warmup | None = None) -> Bench:
    seconds = min(wanted.precision.seconds, wanted.seconds / _TRIALS_IN_TIME)
    precision = replace(wanted.precision, seconds=seconds)
    alone = _alone(space.device, wanted.seconds, warmup)
    ahead, backend = 0, backend_of(space.backend)
    if backend.may_crash and not space.device.budget and wanted.seconds >= _WORTH_PROCESSES:
        ahead = processes_ahead(problem, backend.free_bytes())
    return Bench(
        problem,
        space,
        precision=precision,
        race=wanted.race,
        keep=wanted.finalists + 1,
        alone=alone,
        ahead=ahead,
        warmup=warmup,
    )


def _search(
    bench: Bench,
    model: Model,
    wanted: Settings,
    recorder: Recorder | None,
    log: TrialLog | None,
    **options: Any,
) -> Outcome:
    """Search, alone on the device while it is timed and with every trial recorded; then let go of the programs."""

    def record(trial: Trial, nbytes: int) -> None:
        for keeper in (recorder, log):
            if keeper is not None:
                keeper.trial(trial, nbytes)

    try:
        found = Search(bench, model, wanted, record=record, alone=bench.alone, **options).run()
        if bench.slowed >= _SLOWER:
            note = f"the machine became {bench.slowed:.1f}x slower during the search; trials behind that are scaled"
            found = replace(found, notes=(*found.notes, note))
        return found
    finally:
        bench.close()


def _alone(device: Any, seconds: float, warmup: Warmup | None = None) -> Callable[[], AbstractContextManager[object]]:
    """What is entered for a timing, in a tuning that may take so long."""
    alone = partial(device_lock(device).alone, _WAIT * seconds)

    @contextmanager
    def aside() -> Iterator[None]:
        with warmup.aside() if warmup is not None else nullcontext(), alone():
            yield

    return aside


def _last_progress(result: TuneResult, wanted: Settings) -> Progress:
    return Progress(
        phase="done",
        trials=sum(trial.is_own for trial in result.trials),
        trials_budget=wanted.trials,
        elapsed=result.tuning_seconds,
        seconds_budget=wanted.seconds,
        best_plan=result.plan,
        best_seconds=result.seconds,
        baseline_seconds=result.baseline_seconds,
        roofline_share=None if result.roofline is None else result.roofline.share,
    )
