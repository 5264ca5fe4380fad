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
from dataclasses import replace
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
from akx.core.options import traits
from akx.core.plan import Option, Plan
from akx.core.progress import working
from akx.plandb import PlanDatabase, PlanDatabaseWarning, PlanKey, aged, default_database
from akx.tuner import measure
from akx.tuner.candidates.initial_candidates import foreseen
from akx.tuner.candidates.similar_matrices import features_of
from akx.tuner.candidates.warm_start import known_seeds
from akx.tuner.history.kept import is_enough, is_final, keep, leave, reuse, usable
from akx.tuner.history.result import FEW_CALLS, TIME_BUDGET, Counts, Progress, Trial, TuneResult, Untuned
from akx.tuner.history.trial_log import NO_HISTORY, TrialLog, earlier_trials
from akx.tuner.model.calibration import ceiling_of, figures_of
from akx.tuner.model.figures import measured_figures
from akx.tuner.model.predict import Model, budget_error
from akx.tuner.request import Settings
from akx.tuner.search.search import Outcome, Search
from akx.tuner.search.shared_study import join_study
from akx.tuner.space import NATURAL, Space, build_space, place_of, plan_key, resolve_backend
from akx.tuner.trace.writer import Recorder, recording_to
from akx.tuner.trial.bench import Bench
from akx.tuner.trial.problem import BASIS_KINDS, Problem
from akx.tuner.warmup.compile_ahead import processes_ahead
from akx.tuner.warmup.gpu_code import Precompilation, precompiling
from akx.tuner.warmup.host_code import Warmup, job_of

__all__ = ["exhaustive", "tune"]

_P = ParamSpec("_P")

#: Share of the time that is waited for another process which measures on the device, before each timing.
_WAIT = 0.25
#: A machine that became slower by less is not told of.
_SLOWER = 1.25
#: What a note says of too few calls.
_NOT_PAID = "not pay back what tuning cost"
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
    start = measure.now()
    matrix = Matrix.from_any(matrix, value_error=value_error)
    budget = resolve_budget(matrix, memory_budget, fraction)
    backend = budgeted_backend(backend, budget)
    places = _automatic() if backend == "auto" else ()
    base = (settings or Settings()).on(backend if len(places) > 1 else resolve_backend(backend))
    wanted = base.but(trials=trials, seconds=seconds, seed=seed, calls=calls)
    if len(places) > 1:
        if record is not None:
            raise ArgumentError(
                "a recording is of one backend", found="backend 'auto' with a GPU", hint="name one: cpu or cuda"
            )
        again: dict[str, Any] = {"basis": basis, "start_vectors": start_vectors, "threads": threads, "db": db}
        again |= {"retune": retune, "name": name, "callback": callback, "space_filter": space_filter}
        again |= {"storage": storage, "fresh": fresh}
        own, *beside = places
        shares = _HOST_SHARE, (1 - _HOST_SHARE) / len(beside)
        of_host, rest = (replace(wanted, seconds=share * wanted.seconds) for share in shares)
        best = tune(matrix, k, backend=own, settings=of_host, **again)
        for place in beside:
            if best.interrupted:
                best = replace(best, notes=(*best.notes, f"the {place} backend was not tuned"))
                continue
            try:
                other = tune(matrix, k, backend=place, settings=rest, **again)
            except AkxError as failure:  # the best plan so far is kept by now
                notes = (*best.notes, f"the {place} backend was not tuned: {failure}")
                best = replace(best, tuning_seconds=measure.now() - start, notes=notes)
            else:
                best = _faster(best, other, start)
        return best if best.interrupted else _with_calls(best, wanted.calls)
    k, start_vectors = check_count("k", k), check_count("start_vectors", start_vectors)
    if basis not in BASIS_KINDS:
        raise unknown_name("basis", basis, BASIS_KINDS)
    label, used, device = place_of(backend, threads)
    device = within(device, budget)
    same: dict[str, Any] = {"basis": basis, "start_vectors": start_vectors, "backend": label, "threads": used}
    matrix, key, exact = _keyed(matrix, k, **same, device=device)
    kept, before, old, layer = _database(db, space_filter), None, None, ""
    if kept is not None:
        with warnings.catch_warnings():
            # A database that cannot even be read is an error below, and not a warning before it.
            warnings.simplefilter("ignore", PlanDatabaseWarning)
            lookup = kept.find(key)
            before, layer = lookup.record, lookup.layer
        old = usable(before, matrix, device, used)
        is_good = old is not None and not aged(old) and is_enough(old, wanted.calls) and is_final(kept, old)
        if old is not None and is_good and not (retune or fresh):
            reused = _with_value_error(reuse(kept, old, layer, matrix, device, used, start), matrix, device)
            reused = _with_calls(_with_budget(reused, budget), wanted.calls)
            if record is not None:
                note = "nothing was measured, so nothing was recorded; --retune (retune=True) measures again"
                reused = replace(reused, notes=(*reused.notes, note))
            if callback is not None:
                callback(_last_progress(reused, wanted))
            return reused
        kept.check_writable()
    others = join_study(storage, key)
    compiles_ahead = backend_of(label).compiles_ahead and wanted.seconds >= _WORTH_PROCESSES
    with (
        precompiling(matrix, k, start_vectors, device, wanted=compiles_ahead) as compilation,
        closing(_warmup(matrix, start_vectors, label, used, wanted)) as warmup,
    ):
        space = build_space(matrix, k, device, backend=label, threads=used, start_vectors=start_vectors)
        of_exact = None if kept is None or key == exact else usable(kept.find(exact).record, matrix, device, used)
        given = [space.inside(record.plan) for record in (old, of_exact) if record is not None]
        seeds = known_seeds(kept, exact, space, matrix)
        if budget is not None and all(space.feasible(plan, matrix) is not None for plan in space.baselines(matrix)):
            raise budget_error(space, matrix, "not even one product at a time fits")
        problem = Problem(matrix, k, basis=basis, start_vectors=start_vectors, seed=wanted.seed)
        model = _model(matrix, space, start_vectors, wanted.seconds, warmup)
        _compile(warmup, compilation, foreseen(model, seeds, given), wanted, callback)
        bench = _bench(problem, space, wanted, warmup)
        if not warmup.has_all:
            bench.end_when_settled(warmup.close)
        if compilation is not None:
            bench.end_when_settled(compilation.close)
        begin = measure.now()
        anew = fresh or record is not None or others is not None
        history = NO_HISTORY if anew else earlier_trials(kept, key)
        log = None if kept is None else TrialLog(kept, key)
        try:
            with recording_to(record, "search", name, key, model, wanted, seeds) as recorder:
                options: dict[str, Any] = {"start": begin, "callback": callback, "keep": space_filter, "given": given}
                options |= {"others": others, "seeds": seeds, "history": history}
                outcome = _search(bench, model, wanted, recorder, log, **options)
                result = _result(outcome, matrix, key, space, start, name=name, db=kept)
                result = _with_calls(_with_budget(_with_value_error(result, matrix, device), budget), wanted.calls)
                if recorder is not None:
                    result = recorder.end(result)
            if kept is not None and log is not None:
                of_few = result.stopped == FEW_CALLS and result.plan == result.baseline_plan and old is None
                if of_few and all(trial.origin != "predicted" for trial in result.trials):
                    result = leave(result, log)
                else:
                    result = keep(kept, key, result, log, old, before=before, features=features_of(matrix))
        finally:
            if log is not None:
                log.leave()
    if callback is not None:
        callback(_last_progress(result, wanted))
    return result


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
        result = _with_value_error(_result(outcome, matrix, key, space, start, name=name, db=None), matrix, device)
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


def _faster(one: TuneResult, other: TuneResult, start: float) -> TuneResult:
    """The result of the two that takes less time per call, with a note on the other."""
    best, rest = (one, other) if one.seconds <= other.seconds else (other, one)
    note = (
        f"the best plan of the {rest.backend} backend takes {rest.seconds * 1e3:.3f} ms and is kept as well: arrays of "
        "the host are computed on the cpu, arrays of the device on the device, unless a backend is named"
    )
    return replace(best, tuning_seconds=measure.now() - start, notes=(*best.notes, note))


def _with_budget(result: TuneResult, budget: int | None) -> TuneResult:
    """The result with a note on the memory budget that it is for, and on what it was compared with."""
    if budget is None:
        return result
    kind = "streamed" if traits(result.backend, result.baseline_name.partition("/")[0]).streams else "plain"
    note = (
        f"memory budget of {budget} bytes: vectors in the host's memory, the baseline is {kind} products, "
        f"{result.baseline_name}"
    )
    return replace(result, notes=(note, *result.notes))


def _with_value_error(result: TuneResult, matrix: Matrix, device: Any) -> TuneResult:
    """The result with the error that its plan stores values with, and a note on it, where it does so."""
    plan = result.plan
    off = registry.stored_error(registry.get(plan.backend, plan.schedule), plan, matrix, device)
    if not off:
        return result
    note = (
        f"values are stored in half the bytes, with a relative error of at most {off:.3g} of the "
        f"{matrix.value_error:g} allowed; the baseline has them as they are"
    )
    return replace(result, stored_error=off, notes=(note, *result.notes))


def _with_calls(result: TuneResult, calls: int | None) -> TuneResult:
    """The result for so many calls, with a note where they do not pay for it."""
    even = result.break_even_calls
    notes = tuple(note for note in result.notes if _NOT_PAID not in note)  # of another time that it took
    if calls is not None and even is not None and even > calls:
        few = "1 call does" if calls == 1 else f"{calls} calls do"
        notes = (*notes, f"{few} {_NOT_PAID}, {even} do")
    return replace(result, calls=calls, notes=notes)


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
    compilation: Precompilation | None,
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


def _result(
    outcome: Outcome,
    matrix: Matrix,
    key: PlanKey,
    space: Space,
    start: float,
    *,
    name: str,
    db: PlanDatabase | None,
) -> TuneResult:
    best, baseline = outcome.best, outcome.baseline
    tried = next((trial.prepare_seconds for trial in outcome.trials if trial.plan == best.plan), None)
    prepare, roofline, untuned = tried if tried is not None else 0.0, None, None
    try:
        if not outcome.interrupted and not (outcome.stopped == FEW_CALLS and best.plan == baseline.plan):
            prepare = _cold_prepare_seconds(space, matrix, best.plan, prepare)
        model = _model(matrix, space, key.start_vectors)
        roofline = model.roofline(best.plan, best.seconds)
        untuned = _untuned(outcome, model)
    except KeyboardInterrupt:  # the plan is found: what is said of it ends here, and it is kept
        pass
    name_of_baseline = f"{baseline.plan.schedule}/{baseline.plan.variant} threads={baseline.plan.threads}"
    if baseline.plan.traits.streams:
        order = "" if baseline.plan.partitioner == NATURAL else f" {baseline.plan.partitioner}"
        name_of_baseline = f"{baseline.plan.schedule}/{baseline.plan.variant}{order} k_per_pass=1"
    return TuneResult(
        matrix_name=name,
        rows=matrix.n,
        nnz=matrix.nnz,
        dtype=key.dtype,
        index_type=key.index_type,
        fingerprint=key.fingerprint,
        k=key.k,
        basis=key.basis,
        start_vectors=key.start_vectors,
        backend=space.backend,
        device=key.device_class,
        threads=space.threads,
        plan=best.plan,
        seconds=best.seconds,
        spread=best.spread,
        baseline_name=name_of_baseline,
        baseline_plan=baseline.plan,
        baseline_seconds=baseline.seconds,
        baseline_spread=baseline.spread,
        tuning_seconds=measure.now() - start,
        prepare_seconds=prepare,
        counts=Counts.of(tuple(trial for trial in outcome.trials if trial.is_own)),
        trials=outcome.trials,
        finalists=outcome.finalists,
        db=None if db is None else str(db.path),
        interrupted=outcome.interrupted,
        disturbed=outcome.disturbed,
        starved=outcome.starved,
        stopped=outcome.stopped,
        roofline=roofline,
        notes=outcome.notes,
        untried=outcome.untried,
        untuned=None if untuned is None else Untuned(*untuned, best.seconds, spent_seconds=0.0),
    )


def _untuned(outcome: Outcome, model: Model) -> tuple[Plan, float] | None:
    """The plan of an untuned call and its seconds in the run-off, or those of its trial by the baseline's in both."""
    own = {trial.plan: trial for trial in outcome.trials if trial.is_own}
    plan = next((trial.plan for trial in own.values() if trial.origin == "predicted"), None)
    if plan is None:
        cut = outcome.interrupted or outcome.stopped in (FEW_CALLS, TIME_BUDGET)
        if cut and all(trial.origin == "baseline" for trial in own.values()):
            return None  # nobody has come to think of it, which takes time
        try:
            plan = model.space.inside(model.predicted())
        except AkxError:
            return None
    final = {one.plan: one.seconds for one in (*outcome.finalists, outcome.best, outcome.baseline)}
    if plan in final:
        return plan, final[plan]
    took = {trial.plan: trial.seconds for trial in own.values() if trial.seconds}  # those dropped early too
    seconds, before = took.get(plan), took.get(outcome.baseline.plan)
    return (plan, seconds * outcome.baseline.seconds / before) if seconds and before else None


def _cold_prepare_seconds(space: Space, matrix: Matrix, plan: Plan, fallback: float) -> float:
    """Seconds to prepare a plan for a matrix of which nothing is memoised; the code is compiled by now."""
    cold = Matrix(matrix.indptr, matrix.indices, matrix.data, pattern_cache={}, value_error=matrix.value_error)
    begin = measure.now()
    try:
        space.schedules[plan.schedule].prepare(cold, plan)
    except Exception:
        return fallback
    return measure.now() - begin


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
