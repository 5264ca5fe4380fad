"""Work of solvers queued ahead: graphs on the device, and the records that they leave for the host.

A solver that waits for the device after each step, and lets the device wait for it, takes longer for that than for the
step of most matrices. So the coefficients of a step are found on the device, further steps are queued before it is
done, and the host follows: each launch leaves records in a ring in page-locked memory, read when the launch is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.launch import Event, Stream
from akx.backends.cuda.device.pool import pinned
from akx.backends.program import Program

__all__ = ["Ring", "record_once"]

#: Graphs of a program that are kept, beside those of its own calls: a few of each solver.
_GRAPHS = 64


class Ring:
    """Launches and their records, in the order in which they were queued.

    `launches`: most that may be on their way. `records`: most of each launch. `size`: numbers of a record. `slots`:
    records that there is room for; the device writes record i to place i modulo `slots`. `address`: of the first.
    """

    def __init__(self, launches: int, records: int, size: int) -> None:
        self.slots = launches * records
        self._room: NDArray[np.float64] = pinned((self.slots, size), np.float64)
        self.address = np.uint64(self._room.ctypes.data)
        self._events = [Event() for _ in range(launches)]
        self._under_way: deque[tuple[Event, int]] = deque()
        self._read = self._left = 0

    @property
    def launches(self) -> int:
        """On their way, with records that were not read."""
        return len(self._under_way)

    @property
    def is_full(self) -> bool:
        """Whether no further launch may be queued."""
        return len(self._under_way) == len(self._events)

    def launch(self, queue: Callable[[], object], records: int, stream: Stream) -> None:
        """Call what queues work on `stream` that leaves so many records."""
        assert not self.is_full
        queue()
        event = self._events[0]
        self._events.append(self._events.pop(0))
        event.record(stream)
        self._under_way.append((event, records))

    def next(self) -> NDArray[np.float64]:
        """The next record, once it is there; good until as many launches more are queued as there may be."""
        event, records = self._under_way[0]
        if self._left == 0:
            event.synchronize()
            self._left = records
        found: NDArray[np.float64] = self._room[self._read % self.slots]
        self._read += 1
        self._left -= 1
        if self._left == 0:
            self._under_way.popleft()
        return found

    def take(self) -> NDArray[np.float64]:
        """All records of the next launch, a copy, once they are there; for launches that :meth:`next` has not begun."""
        assert self._left == 0
        event, records = self._under_way.popleft()
        event.synchronize()
        found = self._room[(self._read + np.arange(records)) % self.slots]
        self._read += records
        return found

    def clear(self) -> None:
        """Forget what is on its way: the caller has waited for it, and the device counts from 0 again."""
        self._under_way.clear()
        self._read = self._left = 0


def record_once(
    program: Program,
    key: Hashable,
    kernels: frozenset[Hashable],
    at_once: Callable[[], None],
    record: Callable[[], Any],
    most: int = _GRAPHS,
) -> Any:
    """The graph of work with calls of a program, which the next queue finds too; None where it is to be queued at once.

    That is so where some of its kernels have not run with this program yet: nothing must be loaded while a graph is
    recorded, and work that is done once is not worth a graph.

    `key`: all that the graph depends on: addresses, and what is done with them. `kernels`: names of what it runs.
    `at_once`: queues the work. `record`: makes the graph. `most`: graphs that are kept.
    """
    kept = program.recordings
    found = kept.get(key)
    if found is not None:
        return found
    ran = {("ran", name) for name in kernels}
    if not ran <= kept.keys():
        at_once()
        kept.update(dict.fromkeys(ran, True))
        return None
    graphs = [one for one, graph in kept.items() if graph is not True]
    for one in graphs[: max(0, len(graphs) - most + 1)]:
        del kept[one]
    found = kept[key] = record()
    return found
