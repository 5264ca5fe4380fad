"""Tables for people in one look; what scripts read is the JSON beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from akx.core.errors import shown

__all__ = ["LONGEST_CELL", "LONGEST_LINE", "print_line", "print_pairs", "print_rows", "print_table"]


#: The most characters of a cell of a table, and of a value or a line by itself.
LONGEST_CELL, LONGEST_LINE = 200, 2000


def print_table(table: Table, console: Console) -> None:
    """Print a table; without the blanks that fill its last column where nobody looks at a terminal."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)


def print_line(text: str, console: Console) -> None:
    """One line of text, cut where it is very long."""
    console.print(Text(shown(text, LONGEST_LINE)), soft_wrap=True)


def print_pairs(pairs: Iterable[tuple[str, str]], console: Console) -> None:
    """A list of names and values in two columns."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(Text(shown(name, LONGEST_CELL)), Text(shown(value, LONGEST_LINE)))
    print_table(grid, console)


def print_rows(columns: Mapping[str, str], rows: Iterable[Sequence[str]], console: Console) -> None:
    """A table; `columns` maps each heading to ``"left"`` or ``"right"``."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading, side in columns.items():
        table.add_column(heading, justify="right" if side == "right" else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(cell, LONGEST_CELL)) for cell in row))
    print_table(table, console)
