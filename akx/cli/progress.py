"""A search under way, on stderr: a bar on a terminal, a line per new best plan elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from akx.cli.output import note, status_console
from akx.report.units import counted, duration, ratio, share

if TYPE_CHECKING:
    from rich.console import Console

    from akx.tuner import Progress

__all__ = ["progress"]


@contextmanager
def progress(*, as_json: bool) -> Iterator[Callable[[Progress], None]]:
    """What to call with each :class:`~akx.tuner.Progress`: a bar on a terminal, a line per new best elsewhere."""
    console = status_console()
    if console.is_terminal:
        with _bar(console) as report:
            yield report
    elif as_json:
        yield lambda _: None
    else:
        yield _line_per_best()


@contextmanager
def _bar(console: Console) -> Iterator[Callable[[Progress], None]]:
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[trials]}", markup=False),
        TextColumn("{task.fields[best]}", markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task("tuning", total=1.0, trials="", best="")

        def report(state: Progress) -> None:
            bar.update(
                task,
                description=f"tuning: {state.phase}",
                completed=state.fraction,
                trials=_done_so_far(state),
                best=_best_so_far(state),
            )

        yield report


def _done_so_far(state: Progress) -> str:
    if state.phase == "compile":
        return f"{state.trials} of {counted(state.trials_budget, 'piece')} of akx's own code"
    return counted(state.trials, "trial") if state.trials else ""


def _best_so_far(state: Progress) -> str:
    if state.best_seconds is None:
        return ""
    return f"best {duration(state.best_seconds)}, {ratio(state.speedup)}, {share(state.roofline_share)} of roofline"


def _line_per_best() -> Callable[[Progress], None]:
    best, compiles = float("inf"), False

    def report(state: Progress) -> None:
        nonlocal best, compiles
        if state.phase == "compile" and not compiles:
            compiles = True
            note(f"compiling {counted(state.trials_budget, 'piece')} of akx's own code, which are kept, on all cores")
        if state.phase == "done" or state.best_seconds is None or state.best_plan is None:
            return
        if state.best_seconds >= 0.99 * best:
            return
        best = state.best_seconds
        note(f"{state.elapsed:6.1f} s  {_best_so_far(state)}  {state.best_plan.label()}")

    return report
