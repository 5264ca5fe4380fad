"""``akx doctor``: what is there, what is missing, and how to get it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from akx.cli.exit_codes import EXIT_INPUT
from akx.cli.options import Database, Json
from akx.cli.output import data_console, emit_json, note, status_console
from akx.report.units import counted, duration

if TYPE_CHECKING:
    from akx.core.matrix import Matrix

__all__ = ["DOCTOR_SCHEMA", "doctor"]

#: Version of the JSON object of ``akx doctor --json``.
DOCTOR_SCHEMA = 1

#: Types of values for which all code is compiled, the most frequent first.
_TYPES = ("float64", "float32", "complex128", "complex64")
#: Points of a side of the grid whose plans need all code between them, rows of its dense blocks, and powers.
_SIDE, _BLOCK, _POWERS = 48, 3, 4
#: Seconds in which everything has come.
_LONG = 24 * 3600.0


def doctor(
    db: Database = None,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="First measure this machine, once, so that untuned calls get better plans."),
    ] = False,
    warm: Annotated[
        bool,
        typer.Option("--warm", help="Only compile all of akx's own code for the CPU, on all cores; once on a machine."),
    ] = False,
    as_json: Json = False,
) -> int:
    """Say what is installed, what is missing and how to get it, and what akx sees of this machine."""
    if warm:
        return _warm(as_json=as_json)
    from akx.report.doctor.checks import inspect_environment

    if calibrate:
        _calibrate()
    groups = inspect_environment(db)
    problems = sum(check.state == "problem" for checks in groups.values() for check in checks)
    if as_json:
        emit_json(
            {
                "schema": DOCTOR_SCHEMA,
                "healthy": problems == 0,
                "problems": problems,
                "checks": {title: [check.to_json() for check in checks] for title, checks in groups.items()},
            }
        )
    else:
        from akx.report.command_tables import print_checks

        console = data_console()
        print_checks(groups, console)
        console.print()
        console.print("everything akx needs is there" if problems == 0 else f"{problems} to look at")
    return EXIT_INPUT if problems else 0


def _calibrate() -> None:
    """Measure and keep; says what it does on stderr. Raises :class:`akx.core.errors.AkxError` where that fails."""
    from akx.backends import registry
    from akx.backends.selection import is_usable
    from akx.cost.calibration import check_writable
    from akx.tuner.model.calibrate import calibrate

    check_writable()
    for backend in registry.backends():
        if is_usable(backend):
            note(f"measuring the {backend}, which should have nothing else to do")
            found = calibrate(backend)
            note(f"{found.device_class}: kept in {found.save()}")


def _warm(*, as_json: bool) -> int:
    """Compile what is not there yet, on all cores. Ctrl-C ends it; what was compiled by then is kept."""
    from akx.backends.selection import BACKENDS, device_of, is_usable
    from akx.solvers.registry import NAMES
    from akx.solvers.vector_work import compiling_job
    from akx.tuner.online.dry_run import job
    from akx.tuner.warmup.host_code import Warmup, every_plan, job_of

    begin, pieces = time.perf_counter(), 0
    devices = [device_of(one.name) for one in BACKENDS if is_usable(one.name)]
    with _bar(as_json) as report:
        for dtype in _TYPES:
            matrix = _grid(dtype)
            with contextlib.closing(Warmup(matrix)) as warmup:
                if warmup.has_all:
                    continue
                warmup.want_team()
                warmup.want(job_of(plan) for plan in every_plan(matrix, _POWERS))
                warmup.want([*map(compiling_job, NAMES), *(job(_POWERS, device) for device in devices)])
                pieces += warmup.wait(_LONG, partial(report, dtype))
                warmup.leave_note_of_all()
    seconds = time.perf_counter() - begin
    if as_json:
        emit_json({"schema": DOCTOR_SCHEMA, "compiled": pieces, "seconds": seconds})
    elif pieces:
        data_console().print(f"compiled {counted(pieces, 'piece')} of akx's own code in {duration(seconds)}")
    else:
        data_console().print("all of akx's own code is compiled")
    return 0


def _grid(dtype: str) -> Matrix:
    """Five points on a square grid, each entry a dense block: for it a plan of every variant is feasible."""
    import numpy as np
    import scipy.sparse as sp

    from akx.core.matrix import Matrix

    line = sp.diags_array([[-1.0] * (_SIDE - 1), [2.5] * _SIDE, [-1.0] * (_SIDE - 1)], offsets=[-1, 0, 1])
    points = sp.kronsum(line, line)
    blocks = np.ones((_BLOCK, _BLOCK)) + _BLOCK * np.eye(_BLOCK)
    return Matrix.from_any(sp.csr_array(sp.kron(points, blocks), dtype=dtype))


@contextlib.contextmanager
def _bar(as_json: bool) -> Iterator[Callable[[str, int, int], object]]:
    """What to call with the type of values, and how many pieces are done of how many: a bar on a terminal."""
    console = status_console()
    if not console.is_terminal:
        told: set[str] = set()

        def tell(dtype: str, done: int, total: int) -> None:
            if dtype not in told and not as_json:
                told.add(dtype)
                note(f"compiling {counted(total, 'piece')} of akx's own code for {dtype}, on all cores")

        yield tell
        return
    from rich.progress import Progress

    with Progress(console=console, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def report(dtype: str, done: int, total: int) -> None:
            if dtype not in tasks:
                tasks[dtype] = bar.add_task(f"compiling for {dtype}")
            bar.update(tasks[dtype], completed=done, total=total)

        yield report
