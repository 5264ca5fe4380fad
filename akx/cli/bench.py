"""``akx bench``: the tuned plan beside SciPy, MKL and plain products, in one run."""

from __future__ import annotations

from typing import Annotated

import typer

from akx.cli.exit_codes import EXIT_INTERRUPTED
from akx.cli.inputs import load_matrix, matrix_name, open_database
from akx.cli.options import (
    REQUESTED,
    Backend,
    Database,
    Dtype,
    File,
    Fraction,
    Json,
    MemoryBudget,
    Seconds,
    Threads,
    Trials,
    ValueErrorAllowed,
    Variable,
)
from akx.cli.output import data_console, emit_json, note
from akx.cli.progress import progress
from akx.core.errors import ArgumentError, brief

__all__ = ["bench"]

SeveralPowers = Annotated[
    str, typer.Option("--k", metavar="K[,K...]", help="Number of powers; several, separated by commas.")
]


def bench(
    file: File,
    k: SeveralPowers = "8",
    backend: Backend = "auto",
    dtype: Dtype = None,
    trials: Trials = None,
    seconds: Seconds = None,
    threads: Threads = None,
    db: Database = None,
    variable: Variable = None,
    memory_budget: MemoryBudget = None,
    fraction: Fraction = None,
    value_error: ValueErrorAllowed = None,
    as_json: Json = False,
) -> int:
    """Time the tuned plan beside SciPy and MKL, or cuSPARSE on a GPU, and akx's own plain products, in one run."""
    powers = _parse_powers(k)
    from akx.backends.host import resolve_threads
    from akx.report.comparison.bench import BenchResult, bench_power
    from akx.tuner import tune

    threads = resolve_threads(threads)
    name, database = matrix_name(file), open_database(db)
    matrix = load_matrix(file, dtype=dtype, variable=variable)
    matrix = matrix.with_value_error(value_error or 0.0)
    measured, device = [], ""
    within_budget = memory_budget is not None or fraction is not None
    for power in powers:
        with progress(as_json=as_json) as report:
            tuned = tune(
                matrix,
                power,
                backend=backend,
                threads=threads,
                trials=trials,
                seconds=seconds,
                db=database,
                name=name,
                callback=report,
                memory_budget=memory_budget,
                fraction=fraction,
            )
        if tuned.interrupted:
            note("interrupted while tuning; the best plan so far is kept, nothing was compared")
            return EXIT_INTERRUPTED
        device = tuned.device
        measured.append(bench_power(matrix, tuned, threads, within_budget=within_budget))
    result = BenchResult(
        name,
        matrix.n,
        matrix.nnz,
        matrix.dtype.name,
        matrix.fingerprint,
        device,
        threads,
        tuple(measured),
        within_budget,
        matrix.value_error,
    )
    if as_json:
        emit_json(result.to_json())
    else:
        from akx.report.command_tables import print_bench

        print_bench(result, file, data_console())
    return 0


def _parse_powers(text: str) -> tuple[int, ...]:
    """The numbers in ``"1,2,4"``, each at least 1, in the order given and each once. Raises :class:`ArgumentError`."""
    try:
        powers = [int(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(
            "--k is not a list of numbers",
            expected="integers separated by commas",
            found=brief(text),
            hint="try --k 4,8",
        ) from None
    return tuple(dict.fromkeys(REQUESTED["k"].check(k) for k in powers))
