"""The values of one matrix now, in every type that is asked for; they may be waiting on a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.fork_safety import ForkSafeLock
from akx.core.matrix import Matrix

__all__ = ["Values", "same_pattern"]

#: Types of most of what is remembered of a pattern, and has no arrays in it.
_PLAIN = frozenset((type(None), bool, int, float, str))


class Values:
    """A `matrix` whose values change: those that the host knows of, and newer ones that are `waiting` on a device."""

    def __init__(self, matrix: Matrix, lock: ForkSafeLock) -> None:
        self.matrix = matrix
        self.waiting: Any = None
        self._others: dict[np.dtype[Any], Matrix] = {}
        self._lock = lock

    def of(self, dtype: np.dtype[Any]) -> Matrix:
        """The matrix in a type, with the values that it has now."""
        with self._lock:
            if self.waiting is not None:
                self._take_waiting()
            if dtype == self.matrix.dtype:
                return self.matrix
            found = self._others.get(dtype)
            if found is None:
                found = self._others[dtype] = self.matrix.in_type(dtype)
            return found

    def take(self, data: NDArray[Any]) -> None:
        """Have new values, of the host."""
        old = self.matrix
        kept: dict[str, Any] = {"pattern_cache": old.pattern_cache, "value_error": old.value_error}
        self._others = {}
        self.matrix = Matrix(old.indptr, old.indices, data, **kept)
        self.waiting = None

    def take_matrix(self, fresh: Matrix) -> None:
        """Have the values of a matrix with the same pattern."""
        old, self._others = self.matrix, {}
        self.matrix = fresh.with_value_error(old.value_error).with_pattern_of(old)
        self.waiting = None

    def _take_waiting(self) -> None:
        """Have those that wait on the device: there, where the matrix is."""
        if self.matrix.on_device is None:
            self.take(self.waiting.get())
            return
        self.matrix, self._others, self.waiting = self.matrix.with_data(self.waiting), {}, None  # type: ignore[attr-defined]

    def held(self) -> dict[Any, int]:
        """Bytes of all that is held, by what tells one holding from another: arrays may be shared with others."""
        arrays: dict[Any, int] = {}
        for matrix in [self.matrix, *self._others.values()]:
            _add_arrays(arrays, matrix.held)
        _add_arrays(arrays, self.matrix.pattern_cache)
        if self.waiting is not None:
            arrays["new values", id(self)] = self.waiting.nbytes
        return arrays


def same_pattern(one: Any, other: Matrix) -> bool:
    """Whether a matrix in CSR has the very entries of another, in the same order."""
    if isinstance(one, Matrix) and (one.on_device is not None or other.on_device is not None):
        return one.nnz == other.nnz and one.fingerprint == other.fingerprint
    if one.indptr is other.indptr and one.indices is other.indices:
        return True
    # Not by array_equal, which swallows what a handler of a signal raises, and says no.
    pairs = ((one.indptr, other.indptr), (one.indices, other.indices))
    return all(mine.shape == theirs.shape and bool((mine == theirs).all()) for mine, theirs in pairs)


def _add_arrays(found: dict[Any, int], value: Any) -> None:
    """Add the bytes of all arrays in `value`, by address; views of one array count once."""
    if type(value) in _PLAIN:
        return
    if isinstance(value, np.ndarray):
        place = value.__array_interface__["data"][0]
        found[place] = max(found.get(place, 0), int(value.nbytes))
        return
    if hasattr(value, "pointer") and hasattr(value, "nbytes"):  # on a GPU
        found["device", value.pointer] = int(value.nbytes)
        return
    parts: Iterable[Any] = ()
    if isinstance(value, Mapping):
        parts = list(value.values())
    elif isinstance(value, (tuple, list)):
        parts = value
    elif is_dataclass(value) and not isinstance(value, type):
        parts = list(vars(value).values())  # what it has by now: some of it comes from a GPU when it is asked for
    for part in parts:
        _add_arrays(found, part)
