"""The commands of ``akx``, in the order of ``akx --help``. A command imports what it needs when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from akx.cli.bench import bench
from akx.cli.doctor import doctor
from akx.cli.info import info
from akx.cli.plans import plans
from akx.cli.report import report
from akx.cli.solve import solve
from akx.cli.tune import tune

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


app.command("tune")(tune)
app.command("info")(info)
app.command("bench")(bench)
app.command("solve")(solve)
app.command("report")(report)
app.command("doctor")(doctor)
