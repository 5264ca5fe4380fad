"""The solvers by name, each imported when it is asked for: all are functions with the name of their module."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

__all__ = ["NAMES", "PRECONDITIONERS", "SOLVERS", "recycling"]

#: The classic one of each family before the communication-avoiding one.
NAMES = ("cg", "ca_cg", "minres", "ca_minres", "gmres", "ca_gmres", "bicgstab", "ca_bicgstab")
#: Preconditioners that are made of A by name: functions of :mod:`akx.solvers.preconditioners`.
PRECONDITIONERS = ("jacobi", "block_jacobi", "chebyshev", "spai")


def recycling(most: int) -> Callable[..., Any]:
    """gmres for systems with the same A and M; up to `most` vectors are kept from each for the next."""
    home = import_module(f"{__package__}.gcro_dr")
    return partial(home.gcro_dr, recycled=home.Recycled(most))


class _Solvers(Mapping[str, Callable[..., Any]]):
    """Solvers by name."""

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name not in NAMES:
            raise KeyError(name)
        home = f"{__package__}.{name}"
        found: Callable[..., Any] | None = getattr(sys.modules.get(home), name, None)  # None while it is imported, too
        return getattr(import_module(home), name) if found is None else found

    def __contains__(self, name: object) -> bool:
        return name in NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


SOLVERS: Mapping[str, Callable[..., Any]] = _Solvers()
