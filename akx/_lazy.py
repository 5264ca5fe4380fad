"""Names of a package that are imported when they are first asked for: what they bring along takes long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package whose names have their homes in these modules."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(homes[name])
        names = [one for one, of in homes.items() if of == homes[name]]
        for one in names:  # from now on they are there; one may have the name of its home, which the import has set
            if hasattr(home, one):  # not yet where imports go in a circle
                setattr(sys.modules[package], one, getattr(home, one))
        return getattr(home, name)

    return find
