"""Names of a package that are imported when they are first asked for: what they bring along takes long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package whose names have their homes in these modules.

    Where a name is that of its home too, importing the home gives the package what the name says, not the module.
    """
    if any(home == f"{package}.{name}" for name, home in homes.items()):
        sys.modules[package].__class__ = _Package

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)  # from now on it is there
        return value

    return find


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and name in self.__all__:
            value = getattr(value, name, value)
        super().__setattr__(name, value)
