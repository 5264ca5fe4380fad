"""Options that several commands have: each with its type, its help and its check."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from enum import StrEnum
from typing import Annotated, Any

import typer

from akx.tuner.request import CommandOption, TuneRequest

__all__ = [
    "BACKEND_METAVAR",
    "REQUESTED",
    "Backend",
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
    "request_parameters",
]


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
Variable = Annotated[str | None, typer.Option("--variable", help="Name of the matrix in a .mat file or an archive.")]
Dtype = Annotated[DtypeName | None, typer.Option("--dtype", help="Value type; by default that of the file.")]
#: What a tuning request says of the options that a command line gives, by field.
REQUESTED: dict[str, CommandOption] = {one.name: one.metadata["option"] for one in fields(TuneRequest) if one.metadata}


def _requested(name: str) -> Any:
    """The option of a field of a tuning request: its flag, its help, and the check of its range."""
    option, is_backend = REQUESTED[name], name == "backend"
    return typer.Option(
        option.flag,
        metavar=BACKEND_METAVAR if is_backend else option.metavar,
        callback=known_backend if is_backend else option.check,
        help=option.help,
    )


def request_parameters() -> Iterator[inspect.Parameter]:
    """The fields of a tuning request as parameters of a command; None is what was not given."""
    for held in fields(TuneRequest):
        if held.metadata:
            option = REQUESTED[held.name]
            kind: Any = option.kind
            has_default = held.name == "backend" or kind is bool
            yield inspect.Parameter(
                held.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=held.default if has_default else None,
                annotation=Annotated[kind if has_default else kind | None, _requested(held.name)],
            )


Powers = Annotated[int, typer.Option("--k", callback=REQUESTED["k"].check, help="Number of powers.")]
Threads = Annotated[int | None, _requested("threads")]
Trials = Annotated[int | None, _requested("trials")]
Seconds = Annotated[float | None, _requested("seconds")]
Backend = Annotated[str, _requested("backend")]
Database = Annotated[str | None, _requested("db")]
MemoryBudget = Annotated[str | None, _requested("memory_budget")]
Fraction = Annotated[float | None, _requested("fraction")]
ValueErrorAllowed = Annotated[float | None, _requested("value_error")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
