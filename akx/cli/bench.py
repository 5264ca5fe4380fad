"""``akx bench``: the tuned plan beside SciPy, MKL and plain products, in one run."""

from __future__ import annotations

from dataclasses import dataclass

from akx.cli.inputs import (
    check_amount,
    check_error,
    check_powers,
    check_seconds,
    load_matrix,
    matrix_name,
    open_database,
)
from akx.cli.output import data_console, emit_json, note
from akx.cli.run import EXIT_INTERRUPTED
from akx.cli.tune import progress
from akx.core.errors import ArgumentError, brief

__all__ = ["BenchRequest", "parse_powers", "run_bench"]


@dataclass(frozen=True)
class BenchRequest:
    """The options of ``akx bench`` as they were given."""

    file: str
    powers: str = "8"
    backend: str = "auto"
    dtype: str | None = None
    trials: int | None = None
    seconds: float | None = None
    threads: int | None = None
    db: str | None = None
    variable: str | None = None
    memory_budget: str | None = None
    fraction: float | None = None
    value_error: float | None = None


def parse_powers(text: str) -> tuple[int, ...]:
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
    return tuple(dict.fromkeys(check_powers(k) for k in powers))


def run_bench(request: BenchRequest, *, as_json: bool) -> int:
    """Tune where no plan is known, measure, print, and return the exit code."""
    powers = parse_powers(request.powers)
    check_amount("--threads", request.threads, 2)
    check_amount("--trials", request.trials, 100)
    check_seconds(request.seconds)
    check_error(request.value_error)
    from akx.backends.cpu.device import resolve_threads
    from akx.report.comparison.bench import BenchResult, bench_power
    from akx.tuner import tune

    threads = resolve_threads(request.threads)
    name, database = matrix_name(request.file), open_database(request.db)
    matrix = load_matrix(request.file, dtype=request.dtype, variable=request.variable)
    matrix = matrix.with_value_error(request.value_error or 0.0)
    measured, device = [], ""
    within_budget = request.memory_budget is not None or request.fraction is not None
    for k in powers:
        with progress(as_json=as_json) as report:
            tuned = tune(
                matrix,
                k,
                backend=request.backend,
                threads=request.threads,
                trials=request.trials,
                seconds=request.seconds,
                db=database,
                name=name,
                callback=report,
                memory_budget=request.memory_budget,
                fraction=request.fraction,
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
        from akx.report.tables import print_bench

        print_bench(result, request.file, data_console())
    return 0
