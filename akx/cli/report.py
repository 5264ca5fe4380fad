"""``akx report``: what the database knows of its plans, as one HTML page."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from akx.cli.inputs import load_matrix, matrix_name, open_database
from akx.cli.options import Database, DtypeName, Json, Variable
from akx.cli.output import emit_json, note
from akx.cli.output_files import cannot_be_written, check_target
from akx.core.errors import ArgumentError
from akx.report.units import count

__all__ = ["REPORT_SCHEMA", "report"]

#: Version of the JSON object of ``akx report --json``.
REPORT_SCHEMA = 1


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
    if file is None and variable is not None:
        raise ArgumentError("--variable names a matrix in a file", found="no FILE", hint="give the FILE too")
    if file is not None and every:
        raise ArgumentError("--all has no meaning with FILE: plans for it are all there", hint="leave --all out")
    database = open_database(db)
    place = database.path
    stem = place.stem if isinstance(place, Path) else place.name
    name = stem if file is None else matrix_name(file)
    target = Path(f"{name}.report.html") if output is None else output
    inputs = [*([place] if isinstance(place, Path) else []), *([] if file is None else [Path(file)])]
    check_target("--output", target, inputs)
    matrix = None if file is None else load_matrix(file, dtype=dtype, variable=variable)
    from akx.plandb.layers import SHIPPED
    from akx.report.plans.plan_summary import read_summaries

    with database:
        entries = database.entries(None if matrix is None else matrix.fingerprint)
        known = [(layer, record) for layer, record in entries if dtype in (None, record.key.dtype)]
        wanted = [entry for entry in known if file is not None or every or entry[0] != SHIPPED]
        summaries = read_summaries(database, wanted)
    written = None
    if summaries:
        import akx
        from akx.core.io import write_whole
        from akx.report.html.page import Subject, report_page
        from akx.report.matrix.ghost_growth import ghost_growth

        growth = None if matrix is None else ghost_growth(matrix, max(summary.record.key.k for summary in summaries))
        size = None if matrix is None else (matrix.n, matrix.nnz)
        subject = Subject(name, str(database.path), file, size)
        now = datetime.now().astimezone()
        page = report_page(subject, summaries, growth, version=akx.__version__, written=now)
        try:
            write_whole(target, page.encode())
        except OSError as error:
            raise cannot_be_written(target, "--output", error) from error
        written = str(target)
    if as_json:
        found = {"db": str(database.path), "file": file, "output": written, "plans": len(summaries)}
        emit_json({"schema": REPORT_SCHEMA, **found})
    elif written is not None:
        note(
            f"wrote {written}: {count(len(summaries))} {'plan' if len(summaries) == 1 else 'plans'} of {database.path}"
        )
    else:
        of = "" if dtype is None else f" of {dtype} values"
        what = f"no plan{of} for {file}" if file is not None else f"no plans{of} yet"
        others = f"; --all takes the {count(len(known))} shipped with akx" if known else ""
        note(f"{database.path} has {what}; `akx tune {'FILE' if file is None else file}` makes one{others}")
    return 0
