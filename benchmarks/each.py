"""A benchmark of the host that measures one matrix after another, each into the entry of a file that has its name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from akx.backends.host import default_threads
from benchmarks import markdown, matrices, planned, record, solving
from benchmarks.gpu_receipt import device
from benchmarks.matrices import Case

__all__ = ["run"]

Json = dict[str, Any]


def run(
    arguments: Sequence[str] | None,
    measured: Callable[[Case], Json | None],
    table: Callable[[Json], str],
    *,
    name: str,
    description: str,
    entries: str,
    results: Path,
    page: Path,
    usual: Sequence[str] | None = None,
    select: Callable[..., list[Case]] = matrices.select,
    gpu: bool = False,
) -> int:
    """Parse the command line, measure and write, and show the table; the exit code is 0.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command line; that of the process by default.
    measured : callable
        The entry of a matrix, with its name as ``matrix``; None where it is none to measure.
    table : callable
        Of the document, for the page.
    name, description : str
        Of the command.
    entries : str
        The list in the file.
    results, page : Path
        The usual file, and the page that has its table.
    usual : sequence of str, optional
        Names that are measured by default; all by default.
    select : callable
        The cases of some names, ``reduced`` or not; those of the gallery and the real matrices by default.
    gpu : bool
        Whether the file names the GPU.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of the gallery, or real ones")
    parser.add_argument("--reduced", action="store_true", help="the gallery in its small form, to try the harness")
    parser.add_argument("--table", action="store_true", help="print the table from the file")
    parser.add_argument("-o", "--output", type=Path, default=results)
    parser.add_argument("--docs", type=Path, help=f"the page with the table; docs/{page.name} with the usual file")
    options = parser.parse_args(arguments)
    origin = dict(record.provenance(default_threads()))
    if gpu:
        origin["machine"] |= {"gpu": (device() or {}).get("name", "a GPU")}
    document = planned.known(options.output, entries)
    for case in () if options.table else select(options.only or usual, reduced=options.reduced):
        entry = measured(case)
        if entry is not None:
            print(entry, file=sys.stderr, flush=True)
            document = solving.keep(options.output, document, entries, entry, origin)
    shown = markdown.page_for(options.output, options.docs, usual=results, page=page)
    markdown.show(table(document), options.output.stem, shown)
    return 0
