"""What is registered under a name: by akx itself, by a call, or by entry points of other packages.

Nothing is imported before it is asked for. Entry points are read once in a process, when a name is asked for that akx
does not have, or when all are. One that cannot be used is a warning that names its package, and counts as not there.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

from akx.core.errors import AkxWarning, ArgumentError, ArgumentTypeError, brief
from akx.core.fork_safety import ForkSafeLock

__all__ = ["Registered", "named"]

T = TypeVar("T")


def named(kind: str, thing: Any) -> str:
    """``"cpu/mine"`` of an object of a class ``"module:class"``. Raises where it is none, or is not named so."""
    module, name = kind.split(":")
    if not isinstance(thing, getattr(import_module(module), name)):
        raise ArgumentTypeError(f"it is no {name}", found=brief(thing))
    try:
        names = thing.backend, thing.name
    except AttributeError as missing:
        raise ArgumentError(f"{name} without a name", expected="backend and name", found=str(missing)) from None
    if not all(isinstance(name, str) and name and "/" not in name for name in names):
        raise ArgumentError(f"wrong name of a {name}", expected="words without a slash", found=brief(names))
    return "/".join(names)


class Registered(Generic[T]):
    """Objects of one kind by their names.

    Parameters
    ----------
    name_of : callable
        The name of an object; raises where it is none of the kind.
    own : mapping of str to str
        Those of akx: by name, ``"module:object"``.
    group : str
        The group of entry points. The name of an entry point is that of its object.
    """

    def __init__(self, name_of: Callable[[T], str], own: Mapping[str, str], *, group: str) -> None:
        self._name_of, self._group = name_of, group
        self._own = dict(own)
        self._found: dict[str, T] = {}
        self._points: dict[str, Any] | None = None
        self._loading: set[tuple[int, str]] = set()
        self._lock = ForkSafeLock()

    def get(self, name: str) -> T | None:
        """The object of a name; None where there is none."""
        if name in self._found:
            return self._found[name]
        if name not in self._own:
            return self._from_outside(name)
        module, attribute = self._own[name].split(":")
        found: T = getattr(import_module(module), attribute)
        self._found[name] = found
        return found

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """All names that begin so: those of akx first, in their order. What has others is imported."""
        every = dict.fromkeys((*self._own, *self._found, *self._entry_points()))
        begun = [name for name in every if name.startswith(prefix)]
        return tuple(name for name in begun if name in self._own or self.get(name) is not None)

    def __iter__(self) -> Iterator[T]:
        """All objects, those of akx first; entry points are read when these are through."""
        yield from filter(None, map(self.get, self._own))
        yield from filter(None, (self.get(name) for name in self.names() if name not in self._own))

    @property
    def own(self) -> Mapping[str, str]:
        """Those of akx: by name, ``"module:object"``."""
        return self._own

    def register(self, thing: T) -> None:
        """Add an object, in the place of another package's of that name.

        Raises
        ------
        ArgumentError
            Where akx has one of that name.
        """
        name = self._name_of(thing)
        if name in self._own:
            raise ArgumentError(f"akx has a {name!r} of its own", expected="another name", found=name)
        self._found[name] = thing

    def unregister(self, thing: T) -> None:
        """Take :meth:`register` back."""
        name = self._name_of(thing)
        if self._found.get(name) is thing:
            del self._found[name]

    def _entry_points(self) -> dict[str, Any]:
        with self._lock:
            if self._points is None:
                from importlib.metadata import entry_points

                found: dict[str, Any] = {}
                for point in entry_points(group=self._group):
                    if point.name in self._own or point.name in found:
                        _warn(point, "there is one of that name already")
                    else:
                        found[point.name] = point
                self._points = found
            return self._points

    def _from_outside(self, name: str) -> T | None:
        points = self._entry_points()
        point, this = points.get(name), (threading.get_ident(), name)
        if point is None or this in self._loading:  # its own module asks, while it is imported
            return None
        self._loading.add(this)
        try:
            thing: T = point.load()
            if self._name_of(thing) != name:
                raise ValueError(f"it names itself {self._name_of(thing)!r}")
        except Exception as failure:  # whatever another package does, akx works on
            if points.pop(name, None) is not None:
                _warn(point, f"{type(failure).__name__}: {failure}")
            return None
        finally:
            self._loading.discard(this)
        self._found[name] = thing
        return thing


def _warn(point: Any, why: str) -> None:
    package = point.value if point.dist is None else point.dist.name
    what = f"the entry point {point.name!r} ({point.group}) of the package {package} is not used"
    warnings.warn(f"{what}: {' '.join(why.split())[:300]}", AkxWarning, stacklevel=5)
