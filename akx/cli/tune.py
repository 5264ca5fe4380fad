"""``akx tune``: the plan and its figures on stdout, once all is measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from akx.cli.exit_codes import EXIT_INTERRUPTED
from akx.cli.inputs import (
    check_amount,
    check_error,
    check_powers,
    check_seconds,
    load_matrix,
    matrix_name,
    open_database,
    refuse,
)
from akx.cli.output import data_console, emit_json, note
from akx.cli.progress import progress
from akx.core.errors import ArgumentError

__all__ = ["TuneRequest", "run_tune"]

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
        return _run_replay(request, as_json=as_json)
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


def _run_replay(request: TuneRequest, *, as_json: bool) -> int:
    """Search over a recording, print what was found, and return the exit code 0."""
    fixed, nothing = "the recording says it", "nothing is measured and nothing is kept"
    refuse(
        "--replay",
        (
            ("--k", request.k, fixed),
            ("--backend", None if request.backend == "auto" else request.backend, fixed),
            ("--basis", request.basis, fixed),
            ("--dtype", request.dtype, fixed),
            ("--threads", request.threads, fixed),
            ("--variable", request.variable, fixed),
            ("--memory-budget", request.memory_budget, fixed),
            ("--fraction", request.fraction, fixed),
            ("--value-error", request.value_error, fixed),
            ("--for", request.solver, "it searches for one plan"),
            ("--db", request.db, nothing),
            ("--retune", request.retune, nothing),
            ("--fresh", request.fresh, nothing),
            ("--record", request.record, nothing),
            ("--storage", request.storage, "it searches alone"),
            ("--exhaustive", request.exhaustive, nothing),
        ),
    )
    check_amount("--trials", request.trials, 100)
    check_amount("--calls", request.calls, 1000)
    check_seconds(request.seconds)
    from akx.tuner import replay

    found = replay(request.file, trials=request.trials, seconds=request.seconds, seed=request.seed, calls=request.calls)
    if as_json:
        emit_json(found.to_json())
    else:
        from akx.report.tuning.replay_tables import print_replay

        print_replay(found, data_console())
    return 0
