"""How the plan database is: for ``akx doctor`` and for error reports. Looks only; changes nothing."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from akx.core.errors import DatabaseError, MissingDependencyError
from akx.plandb.database import PlanDatabase
from akx.plandb.layers import USER, PlanLayer
from akx.plandb.layout import SCHEMA_VERSION

__all__ = ["DatabaseStatus", "LayerStatus", "database_status"]


@dataclass(frozen=True)
class LayerStatus:
    """The state of a read-only layer.

    Attributes
    ----------
    name : str
        ``"project"``, ``"system"`` or ``"shipped"``.
    place : str
        The directory of its files; "" where it has none.
    exists : bool
        Whether the directory is there.
    plans : int
    problems : tuple of str
        What is wrong with its files, one line each.
    """

    name: str
    place: str
    exists: bool
    plans: int
    problems: tuple[str, ...]

    @staticmethod
    def of(layer: PlanLayer) -> LayerStatus:
        """The state of `layer`."""
        plans, folder = len(layer.records()), getattr(layer, "directory", None)
        problems = tuple(getattr(layer, "problems", ()))
        return LayerStatus(layer.name, str(folder or ""), folder is None or os.path.isdir(folder), plans, problems)

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types."""
        return {**asdict(self), "problems": list(self.problems)}


@dataclass(frozen=True)
class DatabaseStatus:
    """The state of a plan database.

    Attributes
    ----------
    path : str
        A file, or a server's URL without passwords.
    exists : bool
        False where the first ``akx tune`` will make it.
    writable : bool
        Whether it, or the nearest directory above it that exists, may be written; the tables, on a server.
    layout, current_layout : int
        The layout of the file (0 where there is none) and the one this akx writes.
    journal : str
        SQLite's journal mode, ``"wal"`` where readers and a writer do not block each other; or which server it is.
    plans, shipped : int
        The user's plans, and those of the read-only layers.
    timings : int
        The user's timings of solvers.
    set_aside : tuple of str
        Names of useless files that were moved out of the way.
    problems : tuple of str
        What is wrong, with the cure, one line each; empty where all is well.
    layers : tuple of LayerStatus
        The read-only layers in the order of a lookup.
    """

    path: str
    exists: bool
    writable: bool
    layout: int
    current_layout: int
    journal: str
    plans: int
    shipped: int
    set_aside: tuple[str, ...]
    problems: tuple[str, ...]
    layers: tuple[LayerStatus, ...] = ()
    timings: int = 0

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types."""
        layers = [layer.to_json() for layer in self.layers]
        plain = {**asdict(self), "set_aside": list(self.set_aside), "problems": list(self.problems)}
        return {**plain, "layers": layers}


def database_status(database: PlanDatabase) -> DatabaseStatus:
    """The state of `database`. Never raises because of the database: faults are in ``problems``."""
    problems: list[str] = []
    exists, layout, journal, plans, timings = False, 0, "", 0, 0
    try:
        exists = database.exists()
        inspection, journal = database.describe()
        layout, plans = inspection.version, len(database.list())
        timings = sum(layer == USER for layer, _ in database.timings())
    except (DatabaseError, MissingDependencyError) as error:
        problems.append(str(error))
    writable = database.is_writable()
    if not writable and not problems:
        hint = "pass --db PATH or set AKX_DB to a file in a writable directory"
        problems.append(f"plan database cannot be written, so no plan will be kept: {database.path}; {hint}")
    layers = tuple(LayerStatus.of(layer) for layer in (*database.above, *database.layers))
    problems += [problem for layer in layers for problem in layer.problems]
    return DatabaseStatus(
        path=str(database.path),
        exists=exists,
        writable=writable,
        layout=layout,
        current_layout=SCHEMA_VERSION,
        journal=journal,
        plans=plans,
        shipped=sum(layer.plans for layer in layers),
        set_aside=_set_aside_files(database.path) if isinstance(database.path, Path) else (),
        problems=tuple(problems),
        layers=layers,
        timings=timings,
    )


def _set_aside_files(path: Path) -> tuple[str, ...]:
    prefix = f"{path.name}.corrupt-"
    try:
        names = [entry.name for entry in os.scandir(path.parent) if entry.name.startswith(prefix)]
    except OSError:
        return ()
    return tuple(sorted(name for name in names if not name.endswith(("-wal", "-shm", "-journal"))))
