"""What every command prints with ``--json`` is frozen in a golden file of the command's name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from akx.cli.app import app
from cli.golden import FOLDER


def _with_json(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The names of the commands that know ``--json``, of all groups."""
    for name, one in getattr(command, "commands", {}).items():
        yield from _with_json(one, (*path, name))
    if any("--json" in parameter.opts for parameter in command.params):
        yield "_".join(path)


def test_every_command_with_json_has_a_golden_file() -> None:
    names = set(_with_json(typer.main.get_command(app)))
    assert {"tune", "solve", "plans_list", "plans_rm"} <= names
    assert {name for name in names if not (FOLDER / f"{name}.json").is_file()} == set()
