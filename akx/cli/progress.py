"""A search or a solve under way, on stderr: what changes on a terminal, a line for each step ahead elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from akx.cli.output import note, status_console
from akx.report.units import counted, duration, ratio, share

if TYPE_CHECKING:
    from rich.console import Console

    from akx.core.matrix import Matrix
    from akx.tuner import Progress

__all__ = ["progress", "watched"]

#: Seconds between two looks at the residual: each costs a product where the solver tells x.
_PAUSE = 0.25


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


@contextmanager
def watched(matrix: Matrix, b: Any, backend: str, *, as_json: bool) -> Iterator[Callable[[Any], None] | None]:
    """What to call with each x (or relative residual): a line that changes on a terminal, one a digit elsewhere.

    Nothing where steps are queued ahead, as on a GPU: it would wait for the host after each.
    """
    from akx.backends.selection import backend_of

    console = status_console()
    if backend_of(backend).queues:
        with console.status("solving on the GPU") if console.is_terminal else nullcontext():
            yield None
    elif console.is_terminal:
        with console.status("solving") as line:
            yield _Residual(matrix, b, line.update)
    elif as_json:
        yield None
    else:
        yield _Residual(matrix, b, note, each_digit=True)


class _Residual:
    """A callback that computes the relative residual now and then, and says it."""

    def __init__(self, matrix: Matrix, b: Any, say: Callable[[str], object], *, each_digit: bool = False) -> None:
        import numpy as np

        self._norm = np.linalg.norm
        self._A, self._b, self._size = matrix.to_scipy(), b, float(np.linalg.norm(b)) or 1.0
        self._say, self._each_digit = say, each_digit
        self._begin = self._last = time.perf_counter()
        self._said = float("inf")

    def __call__(self, value: Any) -> None:
        now = time.perf_counter()
        if now - self._last < _PAUSE:
            return
        residual = (
            float(self._norm(self._b - self._A @ value)) / self._size if getattr(value, "ndim", 0) else float(value)
        )
        self._last = time.perf_counter()
        if self._each_digit and not residual <= 0.1 * self._said:
            return
        self._said = residual
        self._say(f"{now - self._begin:6.1f} s  relative residual {residual:.2e}")
