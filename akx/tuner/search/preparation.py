"""What a search needs before it begins: keys, the code of what is tried first, the model, the bench; and its run."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from itertools import islice
from numbers import Integral
from typing import Any

from akx.backends.device_lock import device_lock
from akx.backends.selection import backend_of
from akx.core.disk_cache import HOST_CODE
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.core.progress import working
from akx.plandb import PlanDatabase, PlanKey
from akx.tuner import measure
from akx.tuner.history.result import TuneResult
from akx.tuner.history.trial import Progress, Trial
from akx.tuner.history.trial_log import TrialLog
from akx.tuner.model.figures import ceiling_of, figures_of, measured_figures
from akx.tuner.model.predict import Model
from akx.tuner.request import Settings
from akx.tuner.search.outcome import as_result
from akx.tuner.search.search import Search
from akx.tuner.space import Space, plan_key
from akx.tuner.trace.writer import Recorder
from akx.tuner.trial.bench import Bench
from akx.tuner.trial.problem import Problem
from akx.tuner.warmup.compile_ahead import processes_ahead
from akx.tuner.warmup.host_code import Warmup, job_of

__all__ = [
    "bench_for",
    "compile_first",
    "is_large",
    "keys_of",
    "model_of",
    "said_by",
    "search_on",
    "spared",
    "warmup_for",
]

#: Seconds of a tuning from which on processes that get plans ready pay for their start.
WORTH_PROCESSES = 10.0
#: Share of the time that is waited for another process which measures on the device, before each timing.
_WAIT = 0.25
#: A machine that became slower by less is not told of.
_SLOWER = 1.25
#: One trial's timing takes at most this fraction of the time there is.
_TRIALS_IN_TIME = 50
#: Entries of a matrix of which no copy is made that can be spared.
_LARGE = 1_000_000
#: Seconds between two looks at whether the code of the first baseline is there.
_LOOK = 1.0


class _Words:
    """A callback that says how far a tuning is; it has no use for the roofline, which takes a model of the plan."""

    wants_roofline = False

    def __init__(self, under_way: working) -> None:
        self._under_way = under_way

    def __call__(self, state: Progress) -> None:
        self._under_way.what = state.words


@contextmanager
def said_by(callback: Callable[[Progress], object] | None) -> Iterator[Callable[[Progress], object]]:
    """The callback of a tuning; without one akx says itself what it is at where that takes long."""
    if callback is not None:
        yield callback
        return
    with working("tuning") as under_way:
        yield _Words(under_way)


def is_large(matrix: Any) -> bool:
    """Whether copies of a matrix are to be spared; of what is none, no."""
    entries = getattr(matrix, "nnz", 0)
    return isinstance(entries, Integral) and int(entries) >= _LARGE


@contextmanager
def spared(matrix: Any) -> Iterator[None]:
    """Free behind the block what a search of a large matrix left in cycles: its parts know each other.

    And bound what it and others before it have left on disk.
    """
    try:
        yield
    finally:
        if is_large(matrix):
            gc.collect()
        _bound_host_code()


@lru_cache(maxsize=1)
def _bound_host_code() -> None:
    """Remove machine code that was used longest ago, where there is too much; once in a process."""
    HOST_CODE.make_room()


def keys_of(matrix: Matrix, k: int, **where: Any) -> tuple[Matrix, PlanKey, PlanKey]:
    """The matrix with the error that its values may have there, the key of its plan, and that for values as they are.

    Where nothing stores values with an error results have none, and are judged so.
    """
    exact = matrix.with_value_error(0.0)
    key, of_exact = plan_key(matrix, k, **where), plan_key(exact, k, **where)
    return (exact if key == of_exact else matrix), key, of_exact


def warmup_for(matrix: Matrix, start_vectors: int, backend: str, threads: int, wanted: Settings) -> Warmup:
    """Where code is compiled; it begins with what all teams of threads share. Nothing, where that is not worth it."""
    worth = backend_of(backend).compiles_first and wanted.seconds >= WORTH_PROCESSES and measure.is_real_time()
    warmup = Warmup(matrix, start_vectors, count=None if worth else 0)
    if threads > 1:
        warmup.want_team()
    return warmup


def compile_first(
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
    first = list(islice(plans, most))
    warmup.want(map(job_of, first))
    warmup.wait(wanted.seconds, report)
    while first and warmup.is_coming(first[0]) and measure.now() - begin < 2 * wanted.seconds:
        warmup.wait_for_one(_LOOK)  # nothing can be tried without it, and to begin with it here would take longer


def model_of(
    matrix: Matrix, space: Space, start_vectors: int, seconds: float = math.inf, warmup: Warmup | None = None
) -> Model:
    """The model of a space, of a tuning that may take so long: a share of that is waited for the device at most."""
    with _alone(space.device, seconds, warmup)():
        measured = measured_figures(space.device, space.threads)
    figures = figures_of(space.device, space.threads)
    ceiling = ceiling_of(measured, figures, space.device, space.threads)
    return Model(matrix, space, figures, start_vectors, ceiling)


def bench_for(problem: Problem, space: Space, wanted: Settings, warmup: Warmup | None = None) -> Bench:
    """Where plans of a problem are tried."""
    seconds = min(wanted.precision.seconds, wanted.seconds / _TRIALS_IN_TIME)
    ahead, backend = 0, backend_of(space.backend)
    if backend.may_crash and not space.device.budget and wanted.seconds >= WORTH_PROCESSES:
        ahead = processes_ahead(problem, backend.free_bytes())
    return Bench(
        problem,
        space,
        precision=replace(wanted.precision, seconds=seconds),
        race=wanted.race,
        keep=wanted.finalists + 1,
        alone=_alone(space.device, wanted.seconds, warmup),
        ahead=ahead,
        warmup=warmup,
    )


def search_on(
    bench: Bench,
    model: Model,
    settings: Settings,
    key: PlanKey,
    recorder: Recorder | None,
    *,
    log: TrialLog | None = None,
    since: float,
    name: str,
    db: PlanDatabase | None = None,
    **options: Any,
) -> TuneResult:
    """What a search finds in a tuning that began at `since`; every trial is recorded, and goes into the log."""

    def record(trial: Trial, nbytes: int) -> None:
        for keeper in (recorder, log):
            if keeper is not None:
                keeper.trial(trial, nbytes)

    try:
        found = Search(bench, model, settings, record=record, alone=bench.alone, **options).run()
        if bench.slowed >= _SLOWER:
            note = f"the machine became {bench.slowed:.1f}x slower during the search; trials behind that are scaled"
            found = replace(found, notes=(*found.notes, note))
    finally:
        bench.close()
    again = partial(model_of, model.matrix, bench.space, key.start_vectors)
    return as_result(found, model.matrix, key, bench.space, since, name=name, db=db, model=again)


def _alone(device: Any, seconds: float, warmup: Warmup | None = None) -> Callable[[], AbstractContextManager[object]]:
    """What is entered for a timing, in a tuning that may take so long."""
    alone = partial(device_lock(device).alone, _WAIT * seconds)

    @contextmanager
    def aside() -> Iterator[None]:
        with warmup.aside() if warmup is not None else nullcontext(), alone():
            yield

    return aside
