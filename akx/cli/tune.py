"""``akx tune``: a progress bar on stderr while measuring, then the plan and its figures on stdout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from akx.cli.inputs import (
    check_amount,
    check_error,
    check_powers,
    check_seconds,
    load_matrix,
    matrix_name,
    open_database,
)
from akx.cli.output import data_console, emit_json, note, status_console
from akx.cli.run import EXIT_INTERRUPTED
from akx.core.errors import ArgumentError
from akx.report.units import counted, duration, ratio, share

if TYPE_CHECKING:
    from akx.tuner import Progress

__all__ = ["TuneRequest", "progress", "refuse", "run_tune"]

#: Powers where nothing is said.
_POWERS = 8


@dataclass(frozen=True)
class TuneRequest:
    """The options of ``akx tune`` as they were given, None where they were not."""

    file: str
    k: int | None = None
    backend: str = "auto"
    basis: str | None = None
    dtype: str | None = None
    trials: int | None = None
    seconds: float | None = None
    threads: int | None = None
    db: str | None = None
    retune: bool = False
    fresh: bool = False
    variable: str | None = None
    memory_budget: str | None = None
    fraction: float | None = None
    value_error: float | None = None
    solver: str | None = None
    storage: str | None = None
    calls: int | None = None
    seed: int | None = None
    record: Path | None = None
    exhaustive: bool = False
    replay: bool = False


def run_tune(request: TuneRequest, *, as_json: bool) -> int:
    """Tune, print, and return the exit code: 0, or 130 where Ctrl-C ended the search early."""
    if request.replay:
        from akx.cli.replay import run_replay

        return run_replay(request, as_json=as_json)
    k = check_powers(_POWERS if request.k is None else request.k)
    check_amount("--threads", request.threads, 2)
    check_amount("--trials", request.trials, 100)
    check_amount("--calls", request.calls, 1000)
    check_seconds(request.seconds)
    check_error(request.value_error)
    from akx.tuner import exhaustive, tune

    if request.solver is not None:
        return _run_tune_for(request, as_json=as_json)
    if request.exhaustive:
        _refuse_with_exhaustive(request)
    database = None if request.exhaustive else open_database(request.db)
    if database is not None:
        database.exists()  # a server that does not answer is no place to keep a plan: before the matrix is read
    matrix = load_matrix(request.file, dtype=request.dtype, variable=request.variable)
    with progress(as_json=as_json) as report:
        same: dict[str, Any] = {
            "basis": "monomial" if request.basis is None else request.basis,
            "backend": request.backend,
            "threads": request.threads,
            "seconds": request.seconds,
            "seed": request.seed,
            "name": matrix_name(request.file),
            "callback": report,
            "value_error": request.value_error,
            "record": request.record,
        }
        if request.exhaustive:
            result = exhaustive(matrix, k, **same)
        else:
            result = tune(
                matrix,
                k,
                **same,
                trials=request.trials,
                db=database,
                retune=request.retune,
                fresh=request.fresh,
                memory_budget=request.memory_budget,
                fraction=request.fraction,
                calls=request.calls,
                storage=request.storage,
            )
    if as_json:
        emit_json(result.to_json())
    else:
        from akx.report.tables import print_tuning

        print_tuning(result, request.file, data_console())
    if result.interrupted:
        rest = "the rest was not measured" if request.exhaustive else "run the same command to search on"
        note(f"interrupted: this is the best plan so far; {rest}")
        return EXIT_INTERRUPTED
    return 0


def refuse(mode: str, options: Iterable[tuple[str, object, str]]) -> None:
    """Refuse each of some options that is given (neither None nor False); they come with the reason why."""
    for option, value, why in options:
        if value is not None and value is not False:
            raise ArgumentError(f"{option} has no meaning with {mode}: {why}", hint=f"leave {option} out")


def _refuse_with_exhaustive(request: TuneRequest) -> None:
    kept, every = "no plan is looked up or kept", "every plan is measured"
    refuse(
        "--exhaustive",
        (
            ("--trials", request.trials, every),
            ("--calls", request.calls, every),
            ("--retune", request.retune, kept),
            ("--fresh", request.fresh, kept),
            ("--db", request.db, kept),
            ("--storage", request.storage, "every plan is measured here"),
            ("--memory-budget", request.memory_budget, "it measures without one"),
            ("--fraction", request.fraction, "it measures without a memory budget"),
        ),
    )


def _run_tune_for(request: TuneRequest, *, as_json: bool) -> int:
    """``--for``: the steps per pass of a solver, each with tuned matrix powers."""
    refuse(
        "--for",
        (
            ("--k", request.k, "the powers of a pass are what is tuned"),
            ("--memory-budget", request.memory_budget, "a solver does not stream the matrix"),
            ("--fraction", request.fraction, "a solver does not stream the matrix"),
            ("--value-error", request.value_error, "a solver has the values as they are"),
            ("--storage", request.storage, "trials are shared of one k alone"),
            ("--fresh", request.fresh, "its searches go on from what was tried"),
            ("--calls", request.calls, "its passes are tuned to be used in many solves"),
            ("--seed", request.seed, "it makes several searches"),
            ("--record", request.record, "it makes several searches"),
            ("--exhaustive", request.exhaustive, "it makes several searches"),
        ),
    )
    from akx.solvers import tune_for
    from akx.solvers.symmetry import is_hermitian

    assert request.solver is not None
    matrix = load_matrix(request.file, dtype=request.dtype, variable=request.variable)
    if request.solver == "ca-cg" and not is_hermitian(matrix):
        kind = "Hermitian" if matrix.dtype.kind == "c" else "symmetric"
        raise ArgumentError(
            f"--for ca-cg needs a {kind} matrix", found="one that is not", hint="tune --for ca-gmres or ca-bicgstab"
        )
    with progress(as_json=as_json) as report:
        found = tune_for(
            matrix,
            request.solver,
            backend=request.backend,
            basis="auto" if request.basis is None else request.basis,
            threads=request.threads,
            trials=request.trials,
            seconds=request.seconds,
            db=open_database(request.db),
            retune=request.retune,
            name=matrix_name(request.file),
            callback=report,
        )
    if as_json:
        emit_json(found.to_json())
    else:
        from akx.report.solver.solver_tables import print_solver_tuning

        print_solver_tuning(found, request.file, data_console())
    return 0


@contextmanager
def progress(*, as_json: bool) -> Iterator[Callable[[Progress], None]]:
    """What to call with each :class:`~akx.tuner.Progress`: a bar on a terminal, a line per new best elsewhere."""
    console = status_console()
    if console.is_terminal:
        with _bar(console) as report:
            yield report
    elif as_json:
        yield lambda _: None
    else:
        yield _line_per_best()


@contextmanager
def _bar(console: object) -> Iterator[Callable[[Progress], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    assert isinstance(console, Console)
    bar = Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[trials]}", markup=False),
        TextColumn("{task.fields[best]}", markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task("tuning", total=1.0, trials="", best="")

        def report(state: Progress) -> None:
            bar.update(
                task,
                description=f"tuning: {state.phase}",
                completed=state.fraction,
                trials=_done_so_far(state),
                best=_best_so_far(state),
            )

        yield report


def _done_so_far(state: Progress) -> str:
    if state.phase == "compile":
        return f"{state.trials} of {counted(state.trials_budget, 'piece')} of akx's own code"
    return counted(state.trials, "trial") if state.trials else ""


def _best_so_far(state: Progress) -> str:
    if state.best_seconds is None:
        return ""
    return f"best {duration(state.best_seconds)}, {ratio(state.speedup)}, {share(state.roofline_share)} of roofline"


def _line_per_best() -> Callable[[Progress], None]:
    best, compiles = float("inf"), False

    def report(state: Progress) -> None:
        nonlocal best, compiles
        if state.phase == "compile" and not compiles:
            compiles = True
            note(f"compiling {counted(state.trials_budget, 'piece')} of akx's own code, which are kept, on all cores")
        if state.phase == "done" or state.best_seconds is None or state.best_plan is None:
            return
        if state.best_seconds >= 0.99 * best:
            return
        best = state.best_seconds
        note(f"{state.elapsed:6.1f} s  {_best_so_far(state)}  {state.best_plan.label()}")

    return report
