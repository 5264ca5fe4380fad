"""Objects of which a process has one, made at their first use by whichever thread comes first."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Generic, TypeVar

from akx.core.fork_safety import ForkSafeLock

__all__ = ["Once"]

T = TypeVar("T")


class Once(Generic[T]):
    """A decorator: a function without arguments is called once; ``lru_cache`` may call it once in every thread."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: list[T] = []
        self._lock = ForkSafeLock()
        functools.update_wrapper(self, make)
        self._name: str = make.__qualname__

    def __call__(self) -> T:
        if not self._made:
            with self._lock:
                if not self._made:
                    self._made.append(self._make())
        return self._made[0]

    @property
    def is_made(self) -> bool:
        """Whether it has been called."""
        return bool(self._made)

    def __reduce__(self) -> str:
        return self._name  # by its name, as any function

    def forget(self) -> None:
        """Make another at the next call."""
        with self._lock:
            self._made = []
