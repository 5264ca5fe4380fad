"""One HTML page of what a database knows of its plans: no script, and nothing from outside of it.

The page is a heading with a table of all plans, the ghosts of the matrix where there is one, and for each group of
plans (:class:`akx.report.plans.plan_summary.Group`) its charts, and each plan with why it is the plan.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from akx.report.html import plan_charts
from akx.report.html.elements import Markup, element, join
from akx.report.html.style import STYLE
from akx.report.html.svg_charts import Chart
from akx.report.matrix.ghost_growth import GhostGrowth
from akx.report.plans.plan_facts import explain_roofline, explain_search, plan_environment, plan_facts, value_text
from akx.report.plans.plan_summary import Group, PlanSummary, group_summaries
from akx.report.units import ID_DIGITS, count, counted, duration, ratio

__all__ = ["Subject", "report_page"]

#: Reasons of trials that are told.
_MOST_REASONS = 12


@dataclass(frozen=True)
class Subject:
    """What a page is of: the name of the matrix or of the database, the database, the file, and rows and entries."""

    title: str
    db: str
    file: str | None = None
    size: tuple[int, int] | None = None


def report_page(
    subject: Subject, summaries: Sequence[PlanSummary], growth: GhostGrowth | None, *, version: str, written: datetime
) -> str:
    """The page as text, of at least one plan, by this `version` of akx; `growth` is of the matrix in the file."""
    groups = group_summaries(summaries)
    title = f"akx report: {subject.title}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"),
        element("title", title),
        element("style", STYLE),
    )
    where = f"{subject.file}, plans of {subject.db}" if subject.file is not None else f"plans of {subject.db}"
    if subject.size is not None:
        where += f"; {counted(subject.size[0], 'row')}, {counted(subject.size[1], 'entry')}"
    when = written.isoformat(sep=" ", timespec="seconds")
    header = element("header", element("h1", title), element("p", where), class_="top")
    body = [
        header,
        element("section", element("h2", "Plans"), _overview(groups)),
        None if growth is None else _ghosts(growth, summaries),
        *(_group(group) for group in groups),
        element("footer", element("p", f"Written by akx {version} with Python {platform.python_version()}, {when}.")),
    ]
    page = element("html", head, element("body", element("main", *body)), lang="en")
    return f"<!doctype html>\n{page}\n"


def _overview(groups: Sequence[Group]) -> Markup:
    rows = []
    for group in groups:
        for summary in group.summaries:
            key, record = summary.record.key, summary.record
            link = element("a", record.id[:ID_DIGITS], href=f"#{_anchor(summary)}")
            rows.append(
                (link, group.name, key.k, key.basis, key.dtype, key.device_class, duration(record.seconds),
                 ratio(record.speedup), summary.layer, summary.state.partition(",")[0])
            )  # fmt: skip
    names = ("plan", "matrix", "k", "basis", "dtype", "device", "seconds", "speed-up", "layer", "state")
    return _table(names, rows, numbers=("k", "seconds", "speed-up"))


def _ghosts(growth: GhostGrowth, summaries: Sequence[PlanSummary]) -> Markup:
    parts: list[object] = [element("h2", "Ghosts and redundant work by number of steps")]
    notes = [element("p", note) for note in growth.notes]
    if not growth.curves:
        return element("section", *parts, *notes)
    explained = (
        "A block that does j steps alone needs the rows within j steps of its own (its ghosts), and computes most of "
        "them again. A plan's mark stands at its steps in one pass over the matrix; 1 is no redundant work."
    )
    parts += [element("p", explained), *notes, _figure(plan_charts.ghost_chart(growth))]
    parts.append(_figure(plan_charts.redundancy_chart(growth, summaries)))
    names = ["steps"]
    for curve in growth.curves:
        names += [f"ghosts: {curve.name}", f"redundancy: {curve.name}"]
    rows = []
    for j in range(max(len(curve.ghosts) for curve in growth.curves)):
        cells: list[object] = [j + 1]
        for curve in growth.curves:
            known = j < len(curve.ghosts)
            cells += [f"{100 * curve.ghosts[j]:.3g}%", f"{curve.redundancy[j]:.3f}"] if known else ["-", "-"]
        rows.append(tuple(cells))
    parts.append(_details("The same in figures", _table(tuple(names), rows, numbers=tuple(names))))
    return element("section", *parts)


def _group(group: Group) -> Markup:
    shape = group.size
    what = group.what if shape is None else f"{counted(shape[0], 'row')}, {counted(shape[1], 'entry')}; {group.what}"
    speedups = "The best plan of each schedule, over the baseline of its k."
    if not any(summary.trials for summary in group.summaries):
        speedups += " The database has no trials of these plans (they were imported, or shipped): only they are shown."
    roofline = plan_charts.roofline_chart(group)
    parts = [
        element("h2", group.name),
        element("p", what),
        element("h3", "Speed-ups by schedule and k"),
        element("p", speedups),
        _figure(plan_charts.speedup_chart(group)),
        _details("The same in figures", _schedules(group)),
        element("h3", "Roofline"),
    ]
    if roofline is None:
        parts.append(element("p", "Left out: no record of these plans has the figures of a roofline."))
    else:
        parts += [element("p", explain_roofline(group)), _figure(roofline)]
    return element("section", *parts, *(_plan(summary) for summary in group.summaries))


def _schedules(group: Group) -> Markup:
    rows = [
        (
            plan_charts.power_label(summary),
            name,
            duration(seconds),
            ratio(summary.record.baseline_seconds / seconds),
            label,
        )
        for summary in group.summaries
        for name, (seconds, label) in summary.by_schedule.items()
    ]
    names = ("powers", "schedule", "best", "speed-up", "plan")
    return _table(names, rows, numbers=("best", "speed-up"))


def _plan(summary: PlanSummary) -> Markup:
    progress = plan_charts.progress_chart(summary)
    parts = [
        element("h3", f"{plan_charts.power_label(summary)}: {summary.record.plan.label()}"),
        _pairs(plan_facts(summary)),
        _finalists(summary),
        _reasons(summary),
    ]
    if progress is not None:
        parts += [element("h4", "The search"), element("p", explain_search(summary)), _figure(progress)]
    parts.append(_details("Environment", _pairs(plan_environment(summary))))
    return element("article", *parts, id=_anchor(summary))


def _finalists(summary: PlanSummary) -> Markup | None:
    if not summary.finalists:
        return None
    rows = [
        (
            duration(one.seconds),
            "-" if one.spread is None else f"{100 * one.spread:.1f}%",
            "-" if one.rounds is None else count(one.rounds),
            ratio(summary.record.baseline_seconds / one.seconds),
            one.label,
        )
        for one in summary.finalists
    ]
    table = _table(("median", "+-", "rounds", "speed-up", "plan"), rows, numbers=("median", "+-", "rounds", "speed-up"))
    title = "The run-off"
    if summary.is_by_trials:
        title = f"The best trials, {'without a run-off' if summary.is_interrupted else 'the run-off was disturbed'}"
    return join([element("h4", title), table])


def _reasons(summary: PlanSummary) -> Markup | None:
    found = summary.reasons
    if not found:
        return None
    rows: list[tuple[object, ...]] = [
        (count(times), state, value_text(reason)) for state, reason, times in found[:_MOST_REASONS]
    ]
    if rest := found[_MOST_REASONS:]:
        rows.append((count(sum(times for _, _, times in rest)), "", f"for {count(len(rest))} other reasons"))
    table = _table(("trials", "became", "why"), rows, numbers=("trials",), wide="why")
    return join([element("h4", "Pruned and failed trials"), table])


def _anchor(summary: PlanSummary) -> str:
    return f"plan-{summary.record.id}"


def _figure(chart: Chart) -> Markup:
    legend = [
        element("li", element("span", class_=f"key {css}" + (" dashed" if dashed else ""), aria_hidden="true"), name)
        for name, css, dashed in chart.legend
    ]
    return element(
        "figure",
        element("div", chart.svg, class_="scroll", tabindex=0),
        element("figcaption", element("ul", *legend, class_="legend")),
    )


def _details(summary: str, content: Markup) -> Markup:
    return element("details", element("summary", summary), content)


def _pairs(pairs: Sequence[tuple[str, object]]) -> Markup:
    return element("dl", *(join([element("dt", name), element("dd", value)]) for name, value in pairs))


def _table(
    names: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: Sequence[str] = (), wide: str = ""
) -> Markup:
    kinds = ["number" if name in numbers else "wide" if name == wide else None for name in names]
    head = [element("th", name, scope="col", class_=kind) for name, kind in zip(names, kinds, strict=True)]
    body = [
        element("tr", *(element("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)))
        for row in rows
    ]
    table = element("table", element("thead", element("tr", *head)), element("tbody", *body))
    return element("div", table, class_="scroll", tabindex=0)
