"""From the command line's FILE and options to checked arguments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from akx.core.errors import ArgumentError, FileFormatError

if TYPE_CHECKING:
    from akx.core.matrix import Matrix
    from akx.plandb import PlanDatabase

_ENDINGS = re.compile(r"(\.(mtx|npz|mat|hb|rb|tar|tgz|[rcpi][suhzr][ae]))?(\.(gz|bz2|xz))?$", re.IGNORECASE)

__all__ = [
    "check_amount",
    "load_matrix",
    "matrix_name",
    "open_database",
]


def matrix_name(file: str) -> str:
    """The name under which a file's plan is kept: the file's name without folders and without its known endings."""
    name = Path(file).name
    return _ENDINGS.sub("", name) or name


def check_amount(option: str, value: int | None, example: int) -> None:
    """Refuse an `option` that is given and below 1."""
    if value is not None and value < 1:
        raise ArgumentError(
            f"{option} is out of range", expected="an integer >= 1", found=str(value), hint=f"try {option} {example}"
        )


def open_database(path: str | None) -> PlanDatabase:
    """The plan database; a place where there can be none is an error now, not a warning later.

    A server that does not answer is a matter of the moment: who only looks plans up can do without, with a warning.
    """
    from akx.plandb import PlanDatabase

    database = PlanDatabase(path)
    if isinstance(database.path, Path):
        database.exists()
    return database


def load_matrix(file: str, *, dtype: str | None = None, variable: str | None = None) -> Matrix:
    """The canonical matrix in `file`."""
    from akx.core.io import read_matrix
    from akx.core.matrix import Matrix

    try:
        return Matrix.from_any(read_matrix(file, variable=variable), dtype=dtype)
    except FileFormatError as error:
        if _is_recording(file):
            raise FileFormatError(
                f"{file} is the recording of a tuning run, no matrix",
                hint="akx tune --replay searches over it with no device",
            ) from error
        raise


def _is_recording(file: str) -> bool:
    try:
        with open(file, "rb") as stream:
            return stream.read(64).replace(b" ", b"").startswith(b'{"akx":"recording"')
    except OSError:
        return False
