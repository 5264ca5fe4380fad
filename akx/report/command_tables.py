"""What commands say to people, once they are done."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from akx.core.errors import shown
from akx.plandb.layers import USER, origin
from akx.report.tables import LONGEST_CELL, LONGEST_LINE, print_line, print_pairs, print_rows, print_table
from akx.report.units import (
    BEYOND_BOUND,
    ID_DIGITS,
    count,
    counted,
    duration,
    half_width,
    over_untuned,
    ratio,
    share,
)  # fmt: skip

if TYPE_CHECKING:
    from akx.report.comparison.bench import BenchResult
    from akx.report.doctor.check import Check
    from akx.report.plans.verification import Verification
    from akx.solvers import SolveStats
    from akx.solvers.tuning import SolverTuning
    from akx.tuner import ReplayResult, TuneResult

__all__ = [
    "print_bench",
    "print_checks",
    "print_replay",
    "print_solution",
    "print_solver_tuning",
    "print_tuning",
    "print_verifications",
]

_MARKS = {
    "ok": Text("ok", style="green"),
    "missing": Text("missing", style="yellow"),
    "problem": Text("problem", style="bold red"),
}


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


def print_replay(found: ReplayResult, console: Console) -> None:
    """The plan chosen beside the best on record, the steps of the search, and what the recording does not have."""
    recording, key, counts = found.recording, found.recording.key, found.counts
    whole = ", the whole space" if recording.exhaustive else ""
    name = recording.matrix_name or f"unnamed matrix {key.fingerprint[:12]}"
    made = f"{counts.complete} complete, {counts.pruned} pruned, {counts.failed} failed; seed {found.settings.seed}"
    why = "infeasible: the whole space was measured" if recording.exhaustive else "which count as infeasible"
    missing = (
        f"{count(found.missing)} of the plans asked for, {why}" if found.missing else "none of the plans asked for"
    )
    print_pairs(
        [
            ("recording", f"{recording.path}: {counted(len(recording.trials), 'plan')}{whole}"),
            ("matrix", f"{name}, {key.dtype}"),
            ("device", key.device_class),
            ("powers", f"k = {key.k}, {key.basis} basis"),
            ("baseline", f"{found.baseline.plan.label()}: {duration(found.baseline.seconds)}"),
            ("best on record", f"{found.optimum.plan.label()}: {duration(found.optimum.seconds)}"),
            ("plan", f"{found.plan.label()}: {duration(found.seconds)}"),
            ("share", f"{share(found.share)} of the best on record, {ratio(found.speedup)} over the baseline"),
            (
                "search",
                f"{duration(found.search_seconds)} ({made}), ended by: {found.stopped}",
            ),
            ("not on record", missing),
            *(("note", text) for text in found.notes),
        ],
        console,
    )
    if found.steps:
        console.print()
        rows = [(count(step.trials), duration(step.seconds), share(step.share)) for step in found.steps]
        print_rows({"trials": "right", "after": "right", "share": "right"}, rows, console)


def print_solution(
    stats: SolveStats, matrix: str, console: Console, *, device: str | None, preconditioner: tuple[str, float] | None
) -> None:
    """What a solver did; of a preconditioner its name, and the seconds that it took to make."""
    first = stats.residuals[0] if stats.residuals else float("nan")
    ca = stats.method.startswith("ca_") and stats.s
    spent = ", ".join(f"{phase} {duration(t)}" for phase, t in sorted(stats.seconds.items()) if phase != "total")
    passes = f"{counted(stats.products, 'product')} in {counted(stats.matrix_passes, 'pass')} over the matrix"
    pairs = [
        ("matrix", matrix),
        *([] if device is None else [("device", device)]),
        ("method", f"{stats.method}, s = {_spread(stats.s)}, {stats.basis} basis" if ca else stats.method),
        *(
            [("preconditioner", f"{preconditioner[0]}, made in {duration(preconditioner[1])}")]
            if preconditioner is not None
            else []
        ),
        ("answer", _answer(stats)),
        *([("columns", _columns(stats))] if stats.columns else []),
        ("residual", f"{stats.residual:.3e} (at the start {first:.3e}, asked for {stats.target:.3e})"),
        ("steps", f"{count(stats.iterations)}: {passes}"),
        ("time", f"{duration(stats.seconds.get('total', float('nan')))} ({spent})"),
    ]
    print_pairs(pairs, console)


def _answer(stats: SolveStats) -> str:
    """Whether it converged, and why it ended."""
    if not stats.converged:
        return f"NOT CONVERGED: {stats.reason}".replace(": not converged", "")
    return stats.reason if stats.reason.startswith("converged") else f"converged: {stats.reason}"


def _columns(stats: SolveStats) -> str:
    """How many right-hand sides there were; what else is told is of the worst."""
    solved = sum(record.converged for record in stats.columns)
    return f"{count(solved)} of {count(len(stats.columns))} converged; residual and steps are of the worst"


def _spread(s: list[int]) -> str:
    return f"{s[0]}" if min(s) == max(s) else f"{min(s)} to {max(s)}"


def print_solver_tuning(found: SolverTuning, file: str, console: Console) -> None:
    """The s that was found, and what was measured of all."""
    best = f"s = {found.s}, {duration(found.seconds)} a step" if math.isfinite(found.seconds) else "no basis is of use"
    if math.isfinite(found.classic_seconds) and math.isfinite(found.seconds):
        best += f", {ratio(found.classic_seconds / found.seconds)} over {found.solver.removeprefix('ca_')}"
    print_pairs(
        [("matrix", file), ("solver", f"{found.solver} on the {found.backend}, {found.basis} basis"), ("best", best)],
        console,
    )
    if found.candidates:
        rows = [
            (
                str(one.s),
                duration(one.seconds) if math.isfinite(one.seconds) else "no use",
                duration(one.powers_seconds),
                f"{one.share:.0%}",
                one.plan.label(),
            )
            for one in found.candidates
        ]
        console.print()
        columns = {"s": "right", "step": "right", "of it powers": "right", "used": "right", "plan": "left"}
        print_rows(columns, rows, console)
    console.print()
    known = (
        "found in the database; --retune measures again" if found.reused else f"took {duration(found.tuning_seconds)}"
    )
    kept = "the solver takes it by itself" if found.kept else "not kept"
    print_pairs([("tuning", known), ("kept", kept), *(("also", line) for line in found.notes)], console)


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
        print_line(f"{', '.join(ids)} {text}", console)


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
