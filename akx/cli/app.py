"""The commands of ``akx``, in the order of ``akx --help``. A command imports what it needs when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from akx.cli.bench import bench
from akx.cli.doctor import doctor
from akx.cli.info import info
from akx.cli.options import (
    Backend,
    BasisName,
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
    either_spelling,
)
from akx.cli.plans import plans
from akx.cli.report import report
from akx.cli.solve import solve

__all__ = ["app"]

_EPILOG = (
    "Data goes to stdout, status to stderr. Exit codes: 0 done, 2 bad input (one line on stderr says the cure), "
    "3 solve did not converge, 130 interrupted, 1 a defect of akx. With --json, stdout holds exactly one JSON object, "
    "errors included. --debug anywhere shows tracebacks."
)

app = typer.Typer(
    name="akx",
    help="Matrix powers [x, Ax, ..., A^k x] of a sparse matrix for much less than k products: measure, keep, reuse.",
    epilog=_EPILOG,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(plans, name="plans")


_TUNED_SOLVERS = ("ca-cg", "ca-gmres", "ca-bicgstab")

Calls = Annotated[
    int | None,
    typer.Option(
        "--calls",
        metavar="N",
        help="How often the kernel will run: no more time is spent than so many calls can pay back.",
    ),
]
Storage = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="PATH|URL",
        help="Share trials with other workers on the same matrix and kind of device: a journal in a shared directory, "
        "or postgresql://user@host/database.",
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        from akx import __version__

        typer.echo(f"akx {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks (also AKX_DEBUG=1).")] = False,
) -> None:
    # --debug is taken out of the arguments by akx.cli.run, so that it works anywhere on the line.
    del version, debug


@app.command("tune")
def tune(
    file: File,
    k: Annotated[int | None, typer.Option("--k", help="Number of powers; 8 by default.")] = None,
    backend: Backend = "auto",
    basis: Annotated[
        BasisName | None,
        typer.Option("--basis", help="Kind of polynomial basis; monomial by default, with --for the solver's own."),
    ] = None,
    dtype: Dtype = None,
    trials: Trials = None,
    seconds: Seconds = None,
    threads: Threads = None,
    db: Database = None,
    retune: Annotated[bool, typer.Option("--retune", help="Search on even where a plan is known.")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Search anew: try again what earlier searches have tried as well.")
    ] = False,
    solver: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar=f"<{'|'.join(_TUNED_SOLVERS)}>",
            callback=either_spelling(_TUNED_SOLVERS),
            help="Tune the steps per pass of a solver instead, which then takes them by itself.",
        ),
    ] = None,
    variable: Variable = None,
    memory_budget: MemoryBudget = None,
    fraction: Fraction = None,
    value_error: ValueErrorAllowed = None,
    storage: Storage = None,
    calls: Calls = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Of the search; 0 by default.")] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="PATH", help="Write every trial to a file, as lines of JSON, to be replayed."),
    ] = None,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Measure every feasible plan, to the end, and keep none.")
    ] = False,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="FILE is what --record wrote: search over it, with no device and no matrix."),
    ] = False,
    as_json: Json = False,
) -> int:
    """Find the fastest plan for a matrix on this machine, and keep it."""
    from akx.cli.tune import TuneRequest, run_tune

    request = TuneRequest(
        file=file,
        k=k,
        backend=backend,
        basis=None if basis is None else basis.value,
        dtype=None if dtype is None else dtype.value,
        trials=trials,
        seconds=seconds,
        threads=threads,
        db=db,
        retune=retune,
        fresh=fresh,
        variable=variable,
        memory_budget=memory_budget,
        fraction=fraction,
        value_error=value_error,
        solver=solver,
        storage=storage,
        calls=calls,
        seed=seed,
        record=record,
        exhaustive=exhaustive,
        replay=replay,
    )
    return run_tune(request, as_json=as_json)


app.command("info")(info)
app.command("bench")(bench)
app.command("solve")(solve)
app.command("report")(report)
app.command("doctor")(doctor)
