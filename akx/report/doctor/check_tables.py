"""What ``akx doctor`` says: one line per check, in groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from akx.core.errors import shown
from akx.report.doctor.check import Check
from akx.report.tables import LONGEST_CELL, LONGEST_LINE, print_table

__all__ = ["print_checks"]

_MARKS = {
    "ok": Text("ok", style="green"),
    "missing": Text("missing", style="yellow"),
    "problem": Text("problem", style="bold red"),
}


def print_checks(groups: Mapping[str, Sequence[Check]], console: Console) -> None:
    """What ``akx doctor`` says: one line per check, in groups."""
    first = True
    for title, checks in groups.items():
        if not first:
            console.print()
        first = False
        console.print(Text(title, style="bold"))
        rows = [(f"  {check.name}", _MARKS[check.state], _with_hint(check)) for check in checks]
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, min_width=14)
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for name, mark, text in rows:
            grid.add_row(Text(shown(name, LONGEST_CELL)), mark, Text(shown(text, LONGEST_LINE)))
        print_table(grid, console)


def _with_hint(check: Check) -> str:
    return f"{check.found}; {check.hint}" if check.hint else check.found
