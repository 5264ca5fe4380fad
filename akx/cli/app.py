"""The commands and their options: what ``akx --help`` shows. Bodies are imported when a command runs, not before."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

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
plans_app = typer.Typer(
    help="The plans of the project, the user and the system, and those shipped with akx.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(plans_app, name="plans")


class BasisName(StrEnum):
    MONOMIAL = "monomial"
    NEWTON = "newton"
    CHEBYSHEV = "chebyshev"


class PrecondName(StrEnum):
    JACOBI = "jacobi"
    CHEBYSHEV = "chebyshev"
    SPAI = "spai"


class SolverBasisName(StrEnum):
    AUTO = "auto"
    MONOMIAL = "monomial"
    NEWTON = "newton"
    CHEBYSHEV = "chebyshev"


class DtypeName(StrEnum):
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"


_METHODS = ("auto", "cg", "ca_cg", "gmres", "ca_gmres", "bicgstab", "ca_bicgstab")
_TUNED_SOLVERS = ("ca-cg", "ca-gmres", "ca-bicgstab")


def _either_spelling(names: tuple[str, ...]) -> Callable[[str | None], str | None]:
    """The callback of an option that takes one of some names, with hyphens or with underscores."""
    known = {name.replace("-", "_"): name for name in names}

    def named(given: str | None) -> str | None:
        if given is None:
            return None
        if (found := known.get(given.replace("-", "_"))) is None:
            raise typer.BadParameter(f"{given!r} is not one of {', '.join(map(repr, names))}")
        return found

    return named


#: Those of akx; there may be others of other packages.
_BACKENDS = ("auto", "cpu", "cuda")


def _known_backend(given: str) -> str:
    """The callback of ``--backend``; a name that is none of akx's is looked for in other packages."""
    if given not in _BACKENDS:
        from akx.backends.selection import BACKENDS

        if BACKENDS.get(given) is None:
            raise typer.BadParameter(f"{given!r} is not one of {', '.join(map(repr, ('auto', *BACKENDS.names())))}")
    return given


File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Matrix Market (.mtx, .mtx.gz), Harwell-Boeing, Rutherford-Boeing, .npz, .mat; a .tar.gz or .zip of one.",
        show_default=False,
    ),
]
Powers = Annotated[int, typer.Option("--k", help="Number of powers.")]
Variable = Annotated[str | None, typer.Option("--variable", help="Name of the matrix in a .mat file or an archive.")]
Dtype = Annotated[DtypeName | None, typer.Option("--dtype", help="Value type; by default that of the file.")]
Threads = Annotated[
    int | None, typer.Option("--threads", help="Most threads to use; by default NUMBA_NUM_THREADS, else all cores.")
]
Trials = Annotated[int | None, typer.Option("--trials", help="Most plans to try; by default the tuner decides.")]
Seconds = Annotated[
    float | None,
    typer.Option(
        "--time",
        metavar="SECONDS",
        help="Seconds to spend, compiling included; by default 30, with a GPU 60.",
    ),
]
Calls = Annotated[
    int | None,
    typer.Option(
        "--calls",
        metavar="N",
        help="How often the kernel will run: no more time is spent than so many calls can pay back.",
    ),
]
Backend = Annotated[
    str,
    typer.Option(
        "--backend",
        metavar=f"<{'|'.join(_BACKENDS)}>",
        callback=_known_backend,
        help="Where to run; auto tries all there are.",
    ),
]
Database = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="PATH|URL",
        help="Plan database: a file, or a server as postgresql://user@host/database; by default AKX_DB, else in the "
        "user's data.",
    ),
]
MemoryBudget = Annotated[
    str | None,
    typer.Option(
        "--memory-budget",
        metavar="BYTES",
        help="Most bytes of the GPU's memory, vectors included, e.g. 512M, 2G, 80GiB; what does not fit is streamed.",
    ),
]
Fraction = Annotated[
    float | None,
    typer.Option("--fraction", help="The same, as a fraction of the bytes of the matrix in CSR; the smaller counts."),
]
ValueErrorAllowed = Annotated[
    float | None,
    typer.Option(
        "--value-error",
        metavar="E",
        help="Largest relative error of a stored value, e.g. 6e-8: a GPU may then keep float64 in float32; 0 is exact.",
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
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]


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
            callback=_either_spelling(_TUNED_SOLVERS),
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


@app.command("info")
def info(
    file: File,
    k: Powers = 8,
    dtype: Dtype = None,
    variable: Variable = None,
    spy: Annotated[
        Path | None,
        typer.Option(
            "--spy", metavar="PATH", help="Write a picture of the entries, e.g. as .png or .svg (plot extra)."
        ),
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device",
            metavar="NAME",
            help="What products would do on a known device: part of its name, or all; may be given again.",
        ),
    ] = None,
    blocks: Annotated[
        int | None,
        typer.Option("--blocks", metavar="N", min=1, help="Blocks to show ghost zones of; by default of 512 KiB each."),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option("--slots", metavar="N", min=1, help="Slots of a packet of the FPGA, 5 by default."),
    ] = None,
    clock: Annotated[
        float | None,
        typer.Option("--clock", metavar="MHZ", min=1e-6, help="Clock of the FPGA, which takes a packet a cycle."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Show the structure of a matrix, what it suggests, and what to expect of layouts, ghost zones and devices."""
    from akx.cli.info import run_info

    return run_info(
        file,
        k,
        dtype=None if dtype is None else dtype.value,
        variable=variable,
        spy=spy,
        devices=device or (),
        blocks=blocks,
        slots=slots,
        clock=clock,
        as_json=as_json,
    )


@app.command("bench")
def bench(
    file: File,
    k: Annotated[
        str, typer.Option("--k", metavar="K[,K...]", help="Number of powers; several, separated by commas.")
    ] = "8",
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
    from akx.cli.bench import BenchRequest, run_bench

    request = BenchRequest(
        file=file,
        powers=k,
        backend=backend,
        dtype=None if dtype is None else dtype.value,
        trials=trials,
        seconds=seconds,
        threads=threads,
        db=db,
        variable=variable,
        memory_budget=memory_budget,
        fraction=fraction,
        value_error=value_error,
    )
    return run_bench(request, as_json=as_json)


@app.command("solve")
def solve(
    file: File,
    rhs: Annotated[
        str,
        typer.Option("--rhs", metavar="FILE|ones|random", help="Right-hand side: a Matrix Market vector, or by name."),
    ] = "ones",
    method: Annotated[
        str,
        typer.Option(
            "--method",
            metavar=f"<{'|'.join(_METHODS)}>",
            callback=_either_spelling(_METHODS),
            help="Solver; auto goes by the matrix, and by what is known to be faster.",
        ),
    ] = "auto",
    backend: Annotated[
        str,
        typer.Option(
            "--backend",
            metavar=f"<{'|'.join(_BACKENDS)}>",
            callback=_known_backend,
            help="Where to solve; auto takes a GPU, if there is one with room, from a million entries on.",
        ),
    ] = "auto",
    precond: Annotated[PrecondName | None, typer.Option("--precond", help="Preconditioner.")] = None,
    tau: Annotated[
        float, typer.Option("--tau", help="Of spai: 0 keeps the diagonal, 1 the pattern of the matrix.")
    ] = 0.9,
    degree: Annotated[int, typer.Option("--degree", help="Of chebyshev: products for each use of it.")] = 4,
    rtol: Annotated[float, typer.Option("--rtol", help="Residual to reach, relative to that of x = 0.")] = 1e-8,
    atol: Annotated[float, typer.Option("--atol", help="Residual to reach, absolute.")] = 0.0,
    maxiter: Annotated[
        int | None,
        typer.Option(
            "--maxiter", help="Most steps of all methods together; with --method gmres or ca_gmres most restart cycles."
        ),
    ] = None,
    restart: Annotated[int | None, typer.Option("--restart", help="Steps of gmres between restarts.")] = None,
    s: Annotated[
        int | None, typer.Option("--s", help="Most steps for each pass over the matrix; by default the solver decides.")
    ] = None,
    basis: Annotated[SolverBasisName, typer.Option("--basis", help="Kind of polynomial basis.")] = SolverBasisName.AUTO,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PATH", help="Where x goes, as a Matrix Market vector.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="PATH", help="Where a picture of the residuals goes (plot extra).")
    ] = None,
    dtype: Dtype = None,
    threads: Threads = None,
    db: Database = None,
    variable: Variable = None,
    as_json: Json = False,
) -> int:
    """Solve A x = b, and say how good the answer is. Exit code 3 where it is not as good as asked for."""
    from akx.cli.solve import SolveRequest, run_solve

    request = SolveRequest(
        file=file,
        rhs=rhs,
        method=method,
        backend=backend,
        precond=None if precond is None else precond.value,
        tau=tau,
        degree=degree,
        rtol=rtol,
        atol=atol,
        maxiter=maxiter,
        restart=restart,
        s=s,
        basis=basis.value,
        dtype=None if dtype is None else dtype.value,
        threads=threads,
        db=db,
        variable=variable,
        output=output,
        plot=plot,
    )
    return run_solve(request, as_json=as_json)


_OF_PLAN = "Number of a plan, as `akx plans list --all` shows it."
PlanId = Annotated[str, typer.Argument(metavar="ID", help=_OF_PLAN)]
PlanIdOrNone = Annotated[str | None, typer.Argument(metavar="ID", help=_OF_PLAN, show_default=False)]


@plans_app.command("list")
def plans_list(
    db: Database = None,
    every: Annotated[bool, typer.Option("--all", help="Also those shipped with akx, stale ones included.")] = False,
    as_json: Json = False,
) -> int:
    """List the plans of the project, the user and the system; with --all those shipped with akx, too."""
    from akx.cli.plans import list_plans

    return list_plans(db, every=every, as_json=as_json)


@plans_app.command("show")
def plans_show(plan_id: PlanId, db: Database = None, as_json: Json = False) -> int:
    """Show one plan with its key, its figures and where it comes from."""
    from akx.cli.plans import show_plan

    return show_plan(plan_id, db, as_json=as_json)


@plans_app.command("trials")
def plans_trials(
    plan_id: PlanIdOrNone = None,
    every: Annotated[bool, typer.Option("--all", help="Every trial in the database, also of killed searches.")] = False,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """List every trial of the searches behind one plan, also those that failed, and why; with --json every sample."""
    from akx.cli.plans import list_trials

    return list_trials(plan_id, db, every=every, as_json=as_json)


@plans_app.command("timings")
def plans_timings(db: Database = None, as_json: Json = False) -> int:
    """List what steps of solvers took, by which they are chosen."""
    from akx.cli.plans import list_timings

    return list_timings(db, as_json=as_json)


@plans_app.command("verify")
def plans_verify(
    file: File,
    k: Annotated[int | None, typer.Option("--k", metavar="K", help="Only plans for so many powers.")] = None,
    plan_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Only this plan, as `akx plans list --all` shows it.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--time", metavar="SECONDS", help="Most seconds of timing for a plan; 3 by default.")
    ] = None,
    dtype: Dtype = None,
    db: Database = None,
    variable: Variable = None,
    as_json: Json = False,
) -> int:
    """Run the plans for a matrix again: are they right, and as fast beside their baselines as when they were tuned?"""
    from akx.cli.plans import verify_plans

    return verify_plans(
        file,
        db,
        k=k,
        plan_id=plan_id,
        dtype=None if dtype is None else dtype.value,
        variable=variable,
        seconds=seconds,
        as_json=as_json,
    )


@plans_app.command("export")
def plans_export(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, as text (JSON).")],
    plan_ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id", metavar="ID", help="Only this plan, as `akx plans list --all` shows it; may be given again."
        ),
    ] = None,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Write plans, by default all of the user's, to a text file, such as .akx/plans/NAME.json of a project."""
    from akx.cli.plans import export_plans

    return export_plans(target, plan_ids or [], db, as_json=as_json)


@plans_app.command("import")
def plans_import(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="File that `akx plans export` wrote.")],
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Add the plans of a text file to the database."""
    from akx.cli.plans import import_plans

    return import_plans(source, db, as_json=as_json)


@plans_app.command("rm")
def plans_rm(
    plan_id: PlanIdOrNone = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Every plan of the user's that this akx never uses again.")
    ] = False,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Remove one plan, or every stale one, and the trials of its search; or one timing of solvers."""
    from akx.cli.plans import remove_plan

    return remove_plan(plan_id, db, stale=stale, as_json=as_json)


@app.command("report")
def report(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="Matrix whose plans to report; by default every plan, but for those shipped with akx.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Where the page goes; by default NAME.report.html here."),
    ] = None,
    dtype: Annotated[DtypeName | None, typer.Option("--dtype", help="Only plans for values of this type.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Without FILE: also the plans shipped with akx.")] = False,
    db: Database = None,
    variable: Variable = None,
    as_json: Json = False,
) -> int:
    """Write what the database knows of its plans, and why they are the plans, as one HTML page."""
    from akx.cli.report import write_report

    return write_report(
        file,
        db,
        output=output,
        dtype=None if dtype is None else dtype.value,
        variable=variable,
        every=every,
        as_json=as_json,
    )


@app.command("doctor")
def doctor(
    db: Database = None,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="First measure this machine, once, so that untuned calls get better plans."),
    ] = False,
    warm: Annotated[
        bool,
        typer.Option("--warm", help="Only compile all of akx's own code for the CPU, on all cores; once on a machine."),
    ] = False,
    as_json: Json = False,
) -> int:
    """Say what is installed, what is missing and how to get it, and what akx sees of this machine."""
    from akx.cli.doctor import run_doctor

    return run_doctor(db, calibrate=calibrate, warm=warm, as_json=as_json)
