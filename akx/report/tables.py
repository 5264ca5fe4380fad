"""Tables for people in one look, and what ``akx tune`` says; what scripts read is the JSON beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from akx.core.errors import shown
from akx.plandb.layers import USER, origin
from akx.report.units import BEYOND_BOUND, count, counted, duration, half_width, over_untuned, ratio, share

if TYPE_CHECKING:
    from akx.tuner import TuneResult

__all__ = [
    "LONGEST_CELL",
    "LONGEST_LINE",
    "print_line",
    "print_pairs",
    "print_rows",
    "print_table",
    "print_tuning",
]


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


def print_tuning(result: TuneResult, file: str, console: Console) -> None:
    """What ``akx tune`` says: the plan, the schedules' best, what it cost and when that is paid back."""
    best = f"{duration(result.seconds)}{half_width(result.spread)}, {ratio(result.speedup)} over the baseline"
    if result.roofline is not None:
        best += f", {share(result.roofline.share)} of the roofline ({result.roofline.limit})"
    shape = f"{counted(result.rows, 'row')}, {counted(result.nnz, 'entry')}, {result.dtype}"
    print_pairs(
        [
            ("matrix", f"{file}: {shape}"),
            ("device", result.device),
            ("powers", f"k = {result.k}, {result.basis} basis"),
            ("baseline", f"{result.baseline_name}: {duration(result.baseline_seconds)}"),
            ("plan", result.plan.label()),
            ("best", best),
        ],
        console,
    )
    if result.schedules:
        console.print()
        _print_schedules(result, console)
    console.print()
    notes = [*result.notes, *_failures(result)]
    if result.roofline is not None and result.roofline.share > 1:
        notes.append(f"the plan is {BEYOND_BOUND}")
    print_pairs([*_tuning_cost(result), *(("note", text) for text in notes)], console)


def _failures(result: TuneResult) -> list[str]:
    """The most frequent reason why candidates failed: a plan that was not measured is not a plan that lost."""
    reasons = result.reasons.get("failed", {})
    if not reasons:
        return []
    reason, times = next(iter(reasons.items()))
    return [f"{count(times)} of {counted(result.counts.failed, 'failed trial')}: {reason}"]


def _print_schedules(result: TuneResult, console: Console) -> None:
    final = {finalist.plan: finalist.seconds for finalist in result.finalists}
    # A machine may have become slower by the run-off: what was not in it is told beside the baseline of the trials.
    of_baseline = [trial.seconds for trial in result.trials if trial.plan == result.baseline_plan and trial.seconds]
    scale = result.baseline_seconds / min(of_baseline) if of_baseline else 1.0
    found = [(final.get(trial.plan, scale * (trial.seconds or math.inf)), trial.plan) for trial in result.schedules]
    rows = [
        (plan.schedule, duration(seconds), ratio(result.baseline_seconds / seconds), plan.label())
        for seconds, plan in sorted(found, key=lambda pair: pair[0])
    ]
    print_rows({"schedule": "left", "best": "right", "speed-up": "right", "plan": "left"}, rows, console)


def _tuning_cost(result: TuneResult) -> list[tuple[str, str]]:
    counts = result.counts
    trials = f"{counts.complete} complete, {counts.pruned} pruned, {counts.failed} failed"
    where = result.db or "no database"
    spent = duration(result.tuning_seconds)
    if result.reused:
        found = f"from {where}" if result.layer in ("", USER) else origin(result.layer)
        pairs = [("reused", f"{found}; looked up in {spent}; --retune measures again")]
    else:
        kept = f"kept in {where}" if result.db else "not kept"
        pairs = [("tuning", f"{spent} ({trials}), ended by: {result.stopped}; {kept}")]
    calls = result.break_even_calls
    paid = _why_the_baseline(result)
    if calls is not None:
        paid = f"over the baseline: {ratio(result.speedup)}, paid back after {counted(calls, 'call')}"
    if calls is not None and result.calls is not None:
        paid += f", of {count(result.calls)} to come"
    pairs += [("preparing", duration(result.prepare_seconds)), ("gain", paid)]
    untuned = result.untuned
    if untuned is not None:
        same = untuned.plan == result.plan
        pairs.append(("", over_untuned(untuned.speedup, untuned.break_even_calls, is_same=same)))
    return pairs


def _why_the_baseline(result: TuneResult) -> str:
    """Why nothing is gained: only a search that ran to its end has tried what there is to try."""
    from akx.tuner.history.result import FEW_CALLS
    from akx.tuner.space import is_baseline

    if result.reused:
        return "nothing was gained, the baseline is the plan"
    if result.interrupted:
        return "nothing had beaten the baseline when the search was interrupted, so it is the plan"
    if result.stopped == FEW_CALLS and all(is_baseline(trial.plan) for trial in result.trials):
        return "too few calls to search on: nothing was tried but the baseline, so it is the plan"
    return "nothing beat the baseline, so it is the plan"
