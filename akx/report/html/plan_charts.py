"""The charts of a report page: speed-ups, roofline, ghosts, and the progress of a search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from akx.report.html.svg_charts import Axis, Chart, Series, bar_chart, line_chart
from akx.report.matrix.ghost_growth import GhostGrowth
from akx.report.plans.plan_summary import Group, PlanSummary
from akx.report.units import duration, ratio

__all__ = ["ghost_chart", "progress_chart", "redundancy_chart", "roofline_chart", "speedup_chart"]

#: Colours of what a search is made of, and of a ceiling, which no plan has.
_BEST, _TRIAL, _BASELINE, _LOST, _CEILING = 0, 1, 2, 4, 7
_STEPS = Axis("steps without a word between blocks", whole=True)


def speedup_chart(group: Group) -> Chart:
    """The best plan of each schedule over the baseline, for each k."""
    bars = [
        (
            power_label(summary),
            {name: summary.record.baseline_seconds / s for name, (s, _) in summary.by_schedule.items()},
        )
        for summary in group.summaries
    ]
    y = Axis("speed-up over the baseline", show=_times)
    return bar_chart(f"Speed-up by schedule and k: {group.name}", "powers k", y, bars, line=1.0)


def roofline_chart(group: Group) -> Chart | None:
    """Measured points below their bounds, alone where a bound was found to be none; None where no record has any."""
    found = [(summary, summary.roofline) for summary in group.summaries]
    points = [(summary, roofline) for summary, roofline in found if roofline is not None]
    if not points:
        return None
    left = min(roofline.intensity for _, roofline in points) / 2
    right = max(roofline.intensity for _, roofline in points) * 2
    series = []
    for place, (summary, roofline) in enumerate(points):
        colour = place % _CEILING
        name, limit = power_label(summary), roofline.limit
        label = f"{name}: {_rate(roofline.rate)} at {roofline.intensity:.3g} flops per byte"
        bound = f"{name}: at most {_rate(roofline.bound_rate)}, by {limit}"
        series.append(Series(f"{name}, measured", ((roofline.intensity, roofline.rate, label),), "dots", colour))
        if not roofline.is_beyond:
            above = ((roofline.intensity, roofline.bound_rate, bound),)
            series.append(Series(f"{name}, bound by {limit}", above, "marks", colour))
    ceilings = sorted({r.bandwidth for _, r in points if r.bandwidth is not None and not r.is_beyond}, reverse=True)
    for bandwidth in ceilings[:1]:  # measured anew in every run: the fastest is nearest to what the memory can do
        ends = ((left, bandwidth * left, ""), (right, bandwidth * right, ""))
        series.append(Series(f"memory at {bandwidth / 1e9:.3g} GB/s", ends, "dash", _CEILING))
    x = Axis("flops per byte of slow memory, by the model", is_log=True)
    y = Axis("flop/s", is_log=True, show=lambda value: _rate(value).removesuffix("flop/s"))
    return line_chart(f"Roofline: {group.name}", x, y, series)


def ghost_chart(growth: GhostGrowth) -> Chart:
    """Foreign rows that blocks need, over the rows of the matrix."""
    percents = [(curve.name, [100 * share for share in curve.ghosts]) for curve in growth.curves]
    y = Axis("ghost rows, % of the rows of the matrix", from_zero=True)
    return line_chart("Ghost rows by number of steps", _STEPS, y, _by_steps(percents, "%"))


def redundancy_chart(growth: GhostGrowth, summaries: Sequence[PlanSummary]) -> Chart:
    """Flops done over flops needed, and the same of the plans by their models."""
    series = _by_steps([(curve.name, curve.redundancy) for curve in growth.curves])
    plans = tuple(
        (summary.record.plan.k_per_pass, summary.redundancy, f"{summary.record.plan.label()}: {summary.redundancy:.3g}")
        for summary in summaries
        if summary.redundancy is not None
    )
    series.append(Series("plans of the database, by their models", plans, "marks", _BASELINE))
    return line_chart("Redundant work by number of steps", _STEPS, Axis("flops done over flops needed"), series)


def _by_steps(curves: Iterable[tuple[str, Sequence[float]]], unit: str = "") -> list[Series]:
    """Values for 1, 2, ... steps."""
    return [
        Series(name, tuple((j, v, f"{j} steps: {v:.3g}{unit}") for j, v in enumerate(values, 1)), "dotted line", place)
        for place, (name, values) in enumerate(curves)
    ]


def progress_chart(summary: PlanSummary) -> Chart | None:
    """Trials in the order in which they were made; None where none was timed."""
    timed = summary.scaled
    if not timed:
        return None
    last, baseline = len(summary.trials), summary.record.baseline_seconds
    trials = tuple(
        (number, seconds, f"trial {number}: {duration(seconds)}, {trial.plan.label()}")
        for number, trial, seconds in timed
    )
    lowest = list(accumulate((seconds for _, _, seconds in timed), min))
    best = tuple((number, seconds, "") for (number, _, _), seconds in zip(timed, lowest, strict=True))
    lost = tuple(
        (number, 0.0, f"trial {number} {trial.state}: {trial.reason or trial.plan.label()}")
        for number, trial in enumerate(summary.trials, 1)
        if trial.state != "complete"
    )
    ends = ((1.0, baseline, ""), (float(last), baseline, ""))
    series = [
        Series("complete trials", trials, "dots", _TRIAL),
        Series("best so far", (*best, (float(last), lowest[-1], "")), "step", _BEST),
        Series("baseline" if summary.is_by_trials else "baseline, of the run-off", ends, "dash", _BASELINE),
        Series("pruned or failed: infeasible, dropped as too slow, or wrong", lost, "feet", _LOST),
    ]
    x = Axis("trial", whole=True)
    y = Axis("seconds a call", is_log=True, show=_short_duration)
    return line_chart(f"Progress of the search, k = {summary.record.key.k}", x, y, series)


def power_label(summary: PlanSummary) -> str:
    """``k = 8``, and whether the plan is of no use any more."""
    return f"k = {summary.record.key.k}" + ("" if summary.is_current else " (stale)")


def _times(value: float) -> str:
    return ratio(value) if value < 100 else f"{value:.0f}x"


def _rate(value: float) -> str:
    """``2.5e9`` as ``2.5 Gflop/s``."""
    for factor, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}flop/s"
    return f"{value:.3g} flop/s"


def _short_duration(seconds: float) -> str:
    """``0.002`` as ``2 ms``."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if seconds >= 0.9999 * factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds:.1g} s"
