"""Read-only layers around the user's database: bundles of plans in the folders of a project, a system, the package.

project     ``.akx/plans`` in the current directory or the nearest one above it that has such a folder; the search ends
            at the root of a Git repository and at that of the file system, and the user's home is no project. A folder
            that belongs neither to the user nor to the administrator is passed over.
            ``AKX_PROJECT_PLANS`` names another directory
system      ``akx/plans`` under each of ``XDG_DATA_DIRS`` on Linux, the directory for data of all users elsewhere.
            ``AKX_SYSTEM_PLANS`` names another directory

Either variable turns its layer off where it is set and empty. Both are looked at with every lookup, and so is the
current directory, whose change is seen at once; a folder that is made or removed later is seen within a second.
"""

from __future__ import annotations

import os
import sys
import time
from functools import lru_cache
from pathlib import Path

from akx.plandb.bundle import PROJECT_FOLDER
from akx.plandb.folder import SHIPPED, ShippedPlans

__all__ = [
    "PROJECT",
    "PROJECT_VARIABLE",
    "SHIPPED",
    "SYSTEM",
    "SYSTEM_VARIABLE",
    "USER",
    "origin",
    "project_directory",
    "project_plans",
    "shipped_plans",
    "system_directories",
    "system_plans",
]

#: The names of the layers: of the user's own plans, and of those around them.
USER, PROJECT, SYSTEM = "user", "project", "system"
PROJECT_VARIABLE, SYSTEM_VARIABLE = "AKX_PROJECT_PLANS", "AKX_SYSTEM_PLANS"
#: What data of all users is on Linux, where nothing else is said.
_DATA_DIRS = "/usr/local/share:/usr/share"
#: Seconds for which the folder that was found above a directory, or its absence, is believed.
_GLANCE = 1.0
_SHIPPED: ShippedPlans | None = None
_found: tuple[tuple[str | None, ...], float, Path | None] | None = None
#: Where plans of a layer come from, as a user would say it.
_ORIGINS = {
    PROJECT: "from the plans of this project",
    USER: "from your plans",
    SYSTEM: "from the plans of this system",
    SHIPPED: "shipped with akx",
}


def origin(layer: str) -> str:
    """Where a plan of that layer comes from, for the end of a sentence: ``"shipped with akx"``."""
    return _ORIGINS.get(layer, f"from the {layer} plans")


def project_directory() -> Path | None:
    """The folder of the project's plans; None where there is no project, or the layer is turned off.

    A folder that ``AKX_PROJECT_PLANS`` names need not exist. Costs some microseconds, and a look at the directories
    above once a second or where the current directory has changed.
    """
    global _found
    given = os.environ.get(PROJECT_VARIABLE)
    try:
        here = os.getcwd()
    except OSError:  # removed meanwhile
        return None if not given or not os.path.isabs(given) else Path(given)
    asked = given, here, os.environ.get("HOME")
    now = time.monotonic()
    if _found is None or _found[0] != asked or now - _found[1] >= _GLANCE:
        place = _search(Path(here)) if given is None else _named(given, here)
        _found = asked, time.monotonic(), place
    return _found[2]


def project_plans() -> tuple[ShippedPlans, ...]:
    """The layer of the project, if there is one."""
    directory = project_directory()
    return () if directory is None else (_layer(directory, PROJECT),)


def system_directories() -> tuple[Path, ...]:
    """The folders of the system's plans, first wins; empty where the layer is turned off. They need not exist."""
    given = os.environ.get(SYSTEM_VARIABLE)
    try:
        here = "" if given is None or os.path.isabs(os.path.expanduser(given.strip())) else os.getcwd()
    except OSError:  # removed meanwhile
        return ()
    return _system(given, os.environ.get("XDG_DATA_DIRS"), here)


def system_plans() -> tuple[ShippedPlans, ...]:
    """The layers of the system, first wins."""
    return tuple(_layer(directory, SYSTEM) for directory in system_directories())


def shipped_plans() -> ShippedPlans:
    """The one layer of plans that come with the package."""
    global _SHIPPED
    if _SHIPPED is None:
        _SHIPPED = ShippedPlans()
    return _SHIPPED


@lru_cache(maxsize=64)
def _layer(directory: Path, name: str) -> ShippedPlans:
    """One object for each directory, so that its files are read once."""
    return ShippedPlans(directory, name)


@lru_cache(maxsize=16)
def _system(given: str | None, data_dirs: str | None, here: str) -> tuple[Path, ...]:
    if given is not None:
        named = _named(given, here)
        return () if named is None else (named,)
    if sys.platform != "linux":
        from platformdirs import site_data_path

        return (site_data_path("akx", appauthor=False) / "plans",)
    parts = (data_dirs or _DATA_DIRS).split(os.pathsep)
    return tuple(dict.fromkeys(Path(part, "akx", "plans") for part in parts if os.path.isabs(part)))


def _named(given: str, here: str) -> Path | None:
    """The directory that a variable names, seen from `here`, or None where it is empty."""
    return Path(os.path.normpath(os.path.join(here, os.path.expanduser(given.strip())))) if given.strip() else None


def _search(here: Path) -> Path | None:
    """The nearest folder of plans in `here` or above it."""
    home = Path(os.path.realpath(os.path.expanduser("~")))
    for folder in (here, *here.parents):
        plans = folder / PROJECT_FOLDER
        if folder != home and os.path.isdir(plans) and _is_trusted(plans):
            return plans
        if os.path.lexists(folder / ".git"):
            return None
    return None


def _is_trusted(folder: Path) -> bool:
    """Whether a folder that was merely found belongs to this user, or to the administrator."""
    if not hasattr(os, "getuid"):
        return True
    try:
        return os.stat(folder).st_uid in (os.getuid(), 0)
    except OSError:
        return False
