"""Files that a command writes: refused before the work where they cannot be, or would overwrite what it reads."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from akx.core.errors import ArgumentError

__all__ = ["cannot_be_written", "check_picture", "check_target"]


def check_target(option: str, target: Path | None, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse a file, named by `option`, that cannot be written, or that would take the place of one of `inputs`.

    What the folder says to a new file is found out by making one, which is gone at once: permissions do not tell all.
    """
    if target is None:
        return
    folder = target.parent
    if os.path.exists(target) and not os.path.isfile(target):
        kind = "a folder" if os.path.isdir(target) else "no plain file"
        raise ArgumentError(f"{option} is {kind}", found=str(target), hint="name a file in a folder that is there")
    if not os.path.isdir(folder):
        raise ArgumentError(f"no folder {folder} for {target.name}", hint=f"make it, or give another {option}")
    for given in inputs:
        with suppress(OSError):
            if target.samefile(given):
                raise ArgumentError(f"{option} would overwrite its input", found=str(target), hint="give another name")
    if os.path.exists(target) and not os.access(target, os.W_OK):
        raise ArgumentError(
            f"{option} may not be written", found=f"{target}, read-only", hint=f"give another {option}, or allow it"
        )
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{target.name}.", suffix=".new"):
            pass
    except OSError as error:
        raise cannot_be_written(target, option, error) from error


def check_picture(option: str, target: Path | None, inputs: Iterable[str | Path] = ()) -> None:
    """As :func:`check_target`, and refuse a name whose ending does not say which format it is."""
    if target is not None and not target.suffix and not os.path.isdir(target):
        raise ArgumentError(
            f"{option} is a name without an ending", found=str(target), hint="end the name in .png or .svg"
        )
    check_target(option, target, inputs)


def cannot_be_written(target: Path, option: str, error: OSError) -> ArgumentError:
    """The error of akx for one of the system's."""
    return ArgumentError(
        f"{target} cannot be written",
        found=error.strerror or str(error),
        hint=f"give another {option}, in a folder where you may write",
    )
