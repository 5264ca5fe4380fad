"""Programs that may store values in other ways than in full (:mod:`akx.backends.cuda.value_compression.encodings`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.memory import DeviceArray, empty, to_device
from akx.backends.cuda.program import CudaProgram
from akx.backends.cuda.value_compression.encodings import FULL, HALF, TABLE, encoded, placed, values_of
from akx.backends.cuda.value_compression.new_values import GIVEN, Places, not_empty
from akx.backends.cuda.value_compression.on_device import halved, place_offsets, tabled
from akx.core.errors import DeviceMemoryError, MatrixError
from akx.core.matrix import Matrix

__all__ = ["StoredProgram", "there_or_by_host"]

_P = TypeVar("_P")


def there_or_by_host(make: Callable[..., _P]) -> _P:
    """What ``make()`` lays out on the device; ``make(by_host=True)``, which takes less memory, where that has none."""
    try:
        return make()
    except DeviceMemoryError:
        pass  # what has been allocated so far is free again behind this
    return make(by_host=True)


class StoredProgram(CudaProgram):
    """A program with values stored in a way; new ones that cannot be stored so are stored in full from then on.

    Subclasses call :meth:`store_values` when they are made, and say in :meth:`store_in_full` how they go on in full.

    `entry`: which entry each place has, one plus its number or 0 for padding: on the device where that was found there
    and there is room; set before the first values are stored. `words`: what becomes the values where they are in a
    table: words whose upper halves are there.
    """

    entry: Any = None
    words: DeviceArray | None = None
    kernels: dict[int, Any]

    def entry_of_host(self) -> NDArray[np.uint32]:
        """The map in host memory."""
        return self.entry.get() if isinstance(self.entry, DeviceArray) else self.entry

    def make_room(self) -> None:
        """Keep on the host what only new values need; it comes to the device with those that are there."""
        if self.entry is not None:
            self.entry = self.entry_of_host()
            self._places = Places(self.entry_of_host)

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._places.nbytes

    def _place_values(
        self,
        on_host: Callable[[NDArray[Any]], NDArray[Any]],
        entry: NDArray[np.uint32] | Callable[[], NDArray[np.uint32] | None],
        data: Any,
    ) -> None:
        """Place the first values: on the device where they or the map are there, else `on_host` does."""
        self._on_host, where = on_host, self.entry
        if isinstance(where, DeviceArray):
            self._places, words, self.words = Places(entry=where), self.words, None
            if where.size == 0:
                self._values = self.hold(np.zeros(1, data.dtype if words is None else words.dtype))
                return
            self._values = self.held(empty(where.size, data.dtype) if words is None else words)
            data = data if isinstance(data, DeviceArray) else to_device(data)
        else:
            self._places = Places(entry if callable(entry) else lambda: entry)
            if not isinstance(data, DeviceArray):
                self._values = self.hold(not_empty(on_host(data)))
                return
            where = self._places.entry
            self._values = self.held(empty(max(1, data.size if where is None else where.size), data.dtype))
            self._values.fill_bytes(0)
        if data.dtype == np.uint16:  # numbers of values in a table, of which each has a place
            place_offsets(data, where, self._values)
        else:
            self._places.fill(self._values, data)

    def store_values(
        self,
        matrix: Matrix,
        way: str,
        planned: str | None = None,
        on_host: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
        entry: NDArray[np.uint32] | Callable[[], NDArray[np.uint32] | None] | None = None,
    ) -> None:
        """Store the values of the matrix, which can be stored so.

        `on_host` places those of the host, by default by the map; `entry` is the map, or what makes it when it is first
        needed, None where the first places are the entries; by default that in :attr:`entry`. Values on the device stay
        there; those of the host are looked at there, too, where the map is there and they are not stored as they are.
        `planned` is how they were to be stored, `way` by default.
        """
        data, value_error = values_of(matrix), matrix.value_error
        if way != FULL and isinstance(self.entry, DeviceArray) and not isinstance(data, DeviceArray):
            data = to_device(data)
        first = encoded(data, way, value_error=value_error)
        assert first is not None
        self._value_error, self._error = value_error, first.error
        self._entries = data.size
        self._way, self._planned = way, planned or way
        self._stored = first.stored.dtype
        self._table, self._tabled = self.hold(not_empty(first.table)), first.table.size
        on_host = on_host or (lambda data: placed(data, self.entry_of_host()))
        self._place_values(on_host, self.entry_of_host if entry is None else entry, first.stored)

    def store_in_full(self, data: NDArray[Any]) -> None:
        """Store these values of the host, and all later ones, in full; what fails, for want of memory, changes nothing.

        Here in the same places, by what :meth:`kernels_in_full` makes.
        """
        values, kernels = to_device(not_empty(self._on_host(data))), self.kernels_in_full()
        self.forget_graphs()  # they have the kernels, and where the old values are
        self._arrays = [held for held in self._arrays if held is not self._values]
        self._values, self.kernels = self.held(values), kernels
        self._way, self._stored, self._tabled = FULL, self.dtype, 0

    def kernels_in_full(self) -> dict[int, Any]:
        """Of a program that may store values in other ways: the kernels made so far, for values in full."""
        raise NotImplementedError

    def update_values(self, data: NDArray[Any] | DeviceArray) -> None:
        """Take new values; where they cannot be stored as the old ones were, they are stored in full from now on.

        Those of the host are sent as they are. Where values are not stored in full, this waits for the device, which
        says whether they can be (`stored_values`); only those that cannot come to the host. So do
        all where there is no memory for them, for what they are stored as, or for the map of where they go.
        """
        if data.size != self._entries:
            raise MatrixError("the values do not fit the pattern", expected=str(self._entries), found=str(data.size))
        if self._way == FULL:
            self._update_in_full(data)
            return
        try:
            found = self._update_on_device(data)
        except DeviceMemoryError:
            found = self._update_on_host(data)
        if not found:
            self.store_in_full(self._on_the_host(data))

    def _update_in_full(self, data: NDArray[Any] | DeviceArray) -> None:
        """Those of the host are placed on the device where the map is, and memory for them."""
        if isinstance(self.entry, DeviceArray) and not isinstance(data, DeviceArray):
            given = data if data.dtype.name in GIVEN[self.dtype.name] else data.astype(self.dtype)
            try:
                self._places.fill(self._values, to_device(given))
                return
            except DeviceMemoryError:
                pass  # placed by the host, and sent to where the old ones are
        self._place_again(data)

    def _place_again(self, data: NDArray[Any] | DeviceArray) -> None:
        if isinstance(data, DeviceArray):
            self._places.fill(self._values, data)
        else:
            self._values.set(not_empty(self._on_host(data)))

    def _update_on_device(self, data: NDArray[Any] | DeviceArray) -> bool:
        """Whether the values are stored now; all that may fail for want of memory comes before the first change."""
        if not isinstance(data, DeviceArray):
            data = to_device(data if data.dtype.name in GIVEN[self.dtype.name] else data.astype(self.dtype))
        if self._way == HALF:
            half, error = halved(data, self.dtype)
            if not error <= self._value_error:
                return False
            self._places.fill(self._values, half)
            self._error = error
            return True
        found = tabled(data, self.dtype, self._tabled)
        if found is None:
            return False
        (stored, table), entry = found, self._places.entry
        assert entry is not None
        place_offsets(stored, entry, self._values)
        self._table.set(table)
        return True

    def _update_on_host(self, data: NDArray[Any] | DeviceArray) -> bool:
        """The same by the host's memory, but for the map where it is there."""
        room = self._tabled if self._way == TABLE else None
        fresh = encoded(self._on_the_host(data), self._way, room, self._value_error)
        if fresh is None:
            return False
        self._place_again(fresh.stored)
        self._error = fresh.error
        if self._tabled:
            self._table.set(fresh.table)
        return True

    def _on_the_host(self, data: NDArray[Any] | DeviceArray) -> NDArray[Any]:
        """The values in the type of the program."""
        return (data.get() if isinstance(data, DeviceArray) else data).astype(self.dtype, copy=False)

    @property
    def is_as_planned(self) -> bool:
        """Whether values are stored as they were first: in full they may take more room than there is."""
        return self._way == self._planned

    @property
    def stored_error(self) -> float:
        return 0.0 if self._way == FULL else self._error
