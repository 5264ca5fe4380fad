"""Programs that may store values in other ways than in full (:mod:`akx.kernels.cuda.stored`)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.device.cuda.memory import DeviceArray
from akx.errors import MatrixError
from akx.kernels.cuda.stored import FULL, TABLE, encoded
from akx.kernels.cuda.values import PlacedProgram, not_empty

__all__ = ["StoredProgram"]


class StoredProgram(PlacedProgram):
    """A program with values stored in a way; new ones that cannot be stored so are stored in full from then on.

    Subclasses call :meth:`store_values` when they are made, and say in :meth:`store_in_full` how they go on in full.
    """

    def store_values(
        self,
        way: str,
        data: NDArray[Any],
        on_host: Callable[[NDArray[Any]], NDArray[Any]],
        entry: NDArray[np.uint32],
        planned: str | None = None,
    ) -> None:
        """Store the first values: `data` in the order of CSR, which can be stored so; else as :meth:`place_values`.

        `planned` is how they were to be stored, `way` by default.
        """
        first = encoded(data, way)
        assert first is not None
        self._entries = data.size
        self._way, self._planned = way, planned or way
        self._stored = first.stored.dtype
        self._table, self._tabled = self.hold(not_empty(first.table)), first.table.size
        self.place_values(on_host, entry, first.stored)

    @abstractmethod
    def store_in_full(self, data: NDArray[Any]) -> None:
        """Store these values of the host, and all later ones, in full.

        Nothing may have changed when that fails: for want of memory, say.
        """

    def update_values(self, data: NDArray[Any] | DeviceArray) -> None:
        """Take new values; where they cannot be stored as the old ones were, they are stored in full from now on.

        Where they are not stored in full, values on the device come to the host first, which waits for it.
        """
        if data.size != self._entries:
            raise MatrixError("the values do not fit the pattern", expected=str(self._entries), found=str(data.size))
        if self._way == FULL:
            super().update_values(data)
            return
        host = (data.get() if isinstance(data, DeviceArray) else data).astype(self.dtype, copy=False)
        fresh = encoded(host, self._way, self._tabled if self._way == TABLE else None)
        if fresh is None:
            self.store_in_full(host)
            return
        super().update_values(fresh.stored)
        if self._tabled:
            self._table.set(fresh.table)

    @property
    def is_as_planned(self) -> bool:
        """Whether values are stored as they were first: in full they may take more room than there is."""
        return self._way == self._planned
