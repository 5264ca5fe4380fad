"""What ``akx bench`` says: the plan and all others, one table for each k."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from akx.core.errors import shown
from akx.report.tables import LONGEST_LINE, print_pairs, print_rows
from akx.report.units import counted, duration, ratio

if TYPE_CHECKING:
    from akx.report.comparison.bench import BenchResult

__all__ = ["print_bench"]


def print_bench(result: BenchResult, file: str, console: Console) -> None:
    """What ``akx bench`` says: one table per k, the fastest first."""
    shape = f"{counted(result.rows, 'row')}, {counted(result.nnz, 'entry')}, {result.dtype}"
    print_pairs(
        [("matrix", f"{file}: {shape}"), ("device", f"{result.device}, {counted(result.threads, 'thread')}")], console
    )
    for power in result.powers:
        console.print()
        rows = [
            (
                row.name,
                f"k = {power.k}",
                duration(row.seconds),
                f"+-{100 * row.spread:.1f}%",
                ratio(power.baseline_seconds / row.seconds),
                row.detail,
            )
            for row in sorted(power.rows, key=lambda row: row.seconds)
        ]
        heading = f"over {power.baseline_name}"
        print_rows(
            {"code": "left", "powers": "left", "median": "right", "spread": "right", heading: "right", "how": "left"},
            rows,
            console,
        )
    for text in result.notes:
        console.print(Text(shown(f"note: {text}", LONGEST_LINE)))
