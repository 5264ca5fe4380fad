"""The plans of the user, and the layers around them: project, system, shipped with akx."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from akx.core.errors import AkxError
from akx.core.numba_jit import is_writable
from akx.report.doctor.check import Check
from akx.report.units import count, counted, size

if TYPE_CHECKING:
    from akx.plandb import PlanDatabase, ShippedPlans

__all__ = ["plan_layers"]


def plan_layers(db: str | None) -> Iterator[Check]:
    """The user's plans, then the layers around them in the order of a lookup."""
    from akx.plandb import PlanDatabase, project_plans, shipped_plans, system_plans
    from akx.plandb.layers import PROJECT_VARIABLE, SYSTEM_VARIABLE

    name = "plans"
    try:
        with PlanDatabase(db) as database:
            yield _user_plans(name, database)
    except AkxError as error:
        found = error.what if error.found is None else f"{error.what}: {error.found}"
        yield Check(name, "problem", found, error.hint or "")
    yield from _layers("project plans", PROJECT_VARIABLE, project_plans(), "no .akx/plans here or above")
    yield from _layers("system plans", SYSTEM_VARIABLE, system_plans(), "no place for them on this system")
    shipped = shipped_plans()
    total, problems = len(shipped.records()), shipped.problems
    if problems:
        yield Check("shipped plans", "problem", f"{counted(total, 'plan')}; {'; '.join(problems)}", "install akx again")
    else:
        yield Check("shipped plans", "ok", f"{counted(total, 'plan')} in {shipped.directory}")


def _layers(name: str, variable: str, layers: Sequence[ShippedPlans], none: str) -> Iterator[Check]:
    """The layers of a project or of the system: one line for each that is there, or one that says that none is."""
    given = os.environ.get(variable)
    if given is not None and not given.strip():
        yield Check(name, "ok", f"turned off: {variable} is empty")
        return
    there = [layer for layer in layers if os.path.isdir(layer.directory) or layer.problems]
    for layer in there:
        found = f"{counted(len(layer.records()), 'plan')} in {layer.directory}"
        if layer.problems:
            hint = "correct or remove these files; the others are used"
            yield Check(name, "problem", f"{found}; {'; '.join(layer.problems)}", hint)
        else:
            yield Check(name, "ok", found)
    if there:
        return
    if given is not None:
        yield Check(name, "problem", f"{layers[0].directory} is not there", f"make it, or unset {variable}")
    else:
        yield Check(name, "ok", f"none: {', '.join(str(layer.directory) for layer in layers) or none}")


def _user_plans(name: str, database: PlanDatabase) -> Check:
    from akx.plandb.layers import USER
    from akx.plandb.tables import MOST_TRIALS

    path = database.path
    if database.exists():
        where = size(path.stat().st_size) if isinstance(path, Path) else database.describe()[1]
        timings = sum(layer == USER for layer, _ in database.timings())
        timed = f", {counted(timings, 'timing')} of solvers" if timings else ""
        bound = f"trials of searches are the last {count(MOST_TRIALS)} at most, plans stay until `akx plans rm`"
        return Check(name, "ok", f"{path}: {counted(len(database.list()), 'plan')}{timed}, {where}; {bound}")
    if not isinstance(path, Path):
        if database.is_writable():
            return Check(name, "ok", f"{path}: no tables yet, the first `akx tune` makes them")
        return Check(name, "problem", f"{path}: no tables, and no right to make them", "ask for CREATE on the schema")
    folder = next(parent for parent in path.parents if parent.exists())
    if is_writable(folder):
        return Check(name, "ok", f"{path}: not there yet, the first `akx tune` makes it")
    hint = "pass --db PATH or set AKX_DB to a file in a writable directory"
    return Check(name, "problem", f"{path}: cannot be made, {folder} is not writable", hint)
