"""Options that several commands have: each with its type, its help and its check."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer

__all__ = [
    "BACKEND_METAVAR",
    "Backend",
    "BasisName",
    "Database",
    "Dtype",
    "DtypeName",
    "File",
    "Fraction",
    "Json",
    "MemoryBudget",
    "Powers",
    "Seconds",
    "Threads",
    "Trials",
    "ValueErrorAllowed",
    "Variable",
    "either_spelling",
    "known_backend",
]


class BasisName(StrEnum):
    MONOMIAL = "monomial"
    NEWTON = "newton"
    CHEBYSHEV = "chebyshev"


class DtypeName(StrEnum):
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"


def either_spelling(names: tuple[str, ...]) -> Callable[[str | None], str | None]:
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
_NAMED = ("auto", "cpu", "cuda")
BACKEND_METAVAR = f"<{'|'.join(_NAMED)}>"


def known_backend(given: str) -> str:
    """The callback of ``--backend``; a name that is none of akx's is looked for in other packages."""
    if given not in _NAMED:
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
        "--time", metavar="SECONDS", help="Seconds to spend, compiling included; by default 30, with a GPU 60."
    ),
]
Backend = Annotated[
    str,
    typer.Option(
        "--backend",
        metavar=BACKEND_METAVAR,
        callback=known_backend,
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
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
