"""Results as text and tables for people; what scripts read is the JSON beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from akx.core.errors import shown
from akx.plandb.layers import USER, origin
from akx.report.units import BEYOND_BOUND, ID_DIGITS, count, counted, duration, half_width, over_untuned, ratio, share

if TYPE_CHECKING:
    from akx.core.matrix import Features
    from akx.report.comparison.bench import BenchResult
    from akx.report.doctor.check import Check
    from akx.report.matrix.advice import Advice
    from akx.report.plans.verification import Verification
    from akx.tuner import TuneResult

__all__ = [
    "print_advice",
    "print_bench",
    "print_checks",
    "print_features",
    "print_pairs",
    "print_rows",
    "print_tuning",
    "print_verifications",
]


#: The most characters of a cell of a table, and of a value or a line by itself.
_CELL, _LINE = 200, 2000


def _print(table: Table, console: Console) -> None:
    """Print a table; without the blanks that fill its last column where nobody looks at a terminal."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)


def print_pairs(pairs: Iterable[tuple[str, str]], console: Console) -> None:
    """A list of names and values in two columns."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(Text(shown(name, _CELL)), Text(shown(value, _LINE)))
    _print(grid, console)


def print_rows(columns: Mapping[str, str], rows: Iterable[Sequence[str]], console: Console) -> None:
    """A table; `columns` maps each heading to ``"left"`` or ``"right"``."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading, side in columns.items():
        table.add_column(heading, justify="right" if side == "right" else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(cell, _CELL)) for cell in row))
    _print(table, console)


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


def print_features(file: str, features: Features, console: Console) -> None:
    """What ``akx info`` says of the structure."""
    f = features
    print_pairs(
        [
            ("matrix", file),
            ("rows", count(f.rows)),
            ("entries", f"{count(f.nnz)} ({f.dtype})"),
            ("row lengths", f"{f.row_min} to {count(f.row_max)}, mean {f.row_mean:.2f}, deviation {f.row_std:.2f}"),
            ("empty rows", count(f.empty_rows)),
            ("bandwidth", f"{count(f.bandwidth)}, profile {count(f.profile)}"),
            ("levels", f"{count(f.level_count)}, the widest of {counted(f.level_width_max, 'row')}"),
            ("components", count(f.components)),
            (
                "symmetry",
                f"pattern {'symmetric' if f.pattern_symmetric else 'not symmetric'}, values "
                f"{'not symmetric' if f.value_symmetry == 'none' else f.value_symmetry}",
            ),
            ("blocks", f"{f.block_size} x {f.block_size}, {share(f.block_fill)} full"),
            ("diagonals", f"{count(f.diagonal_count)}, {share(f.diagonal_fill)} full"),
        ],
        console,
    )


def print_advice(advice: Sequence[Advice], console: Console) -> None:
    """What ``akx info`` suggests."""
    print_pairs([(item.topic, item.text) for item in advice], console)


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
        console.print(Text(shown(f"note: {text}", _LINE)))


def print_verifications(found: Sequence[Verification], console: Console) -> None:
    """What ``akx plans verify`` says: a line for each plan, and why where one does not hold or is aged."""
    from akx.plandb import aged

    rows = []
    for one in found:
        key, speedup = one.record.key, "-" if one.speedup is None else ratio(one.speedup)
        rows.append(
            (
                one.record.id[:ID_DIGITS],
                str(key.k),
                key.basis,
                "-" if one.seconds is None else duration(one.seconds),
                duration(one.record.seconds),
                speedup + half_width(one.spread),
                ratio(one.record.speedup),
                one.state,
                one.record.plan.label(),
            )
        )
    columns = {
        "id": "left", "k": "right", "basis": "left", "time now": "right", "time then": "right",
        "speed-up now": "right", "speed-up then": "right", "state": "left", "plan": "left",
    }  # fmt: skip
    print_rows(columns, rows, console)
    said: dict[str, list[str]] = {}
    for one in found:
        reasons = [f"aged: {'; '.join(why)}"] if (why := aged(one.record)) else []
        for text in [*reasons, *([f"{one.state}: {one.reason}"] if one.reason else [])]:
            said.setdefault(text, []).append(one.record.id[:ID_DIGITS])
    for text, ids in said.items():
        console.print(Text(shown(f"{', '.join(ids)} {text}", _LINE)), soft_wrap=True)


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
            grid.add_row(Text(shown(name, _CELL)), mark, Text(shown(text, _LINE)))
        _print(grid, console)


_MARKS = {
    "ok": Text("ok", style="green"),
    "missing": Text("missing", style="yellow"),
    "problem": Text("problem", style="bold red"),
}


def _with_hint(check: Check) -> str:
    return f"{check.found}; {check.hint}" if check.hint else check.found
