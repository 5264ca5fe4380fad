"""Programs of the schedules that run lists of tasks: `sweep` and `wavefront`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.formats.base import Format
from akx.kernels.base import Coefficients
from akx.kernels.cpu.layout import Ordered
from akx.kernels.cpu.run import Tasks, run_tasks
from akx.kernels.cpu.sync import LINE
from akx.kernels.cpu.team import team

__all__ = ["TaskProgram"]

#: Matrix bytes of a sub-block: all start vectors pass over it, and the recurrence is applied, before the next. Small
#: enough that its vector entries stay in the first cache, large enough that the 0.1 us a sub-block costs do not matter.
_SUB_BLOCK = 64 * 1024


class TaskProgram:
    """A laid-out matrix with each thread's tasks; see :class:`akx.kernels.base.Program`."""

    def __init__(self, layout: Format, tasks: Tasks, where: Ordered) -> None:
        self._layout = layout
        self._tasks = tasks
        self._where = where
        self._threads = int(tasks.thread_ptr.size - 1)
        self._counters = np.zeros(2 * LINE * self._threads, dtype=np.int64)
        self._unit = layout.unit
        rows = max(where.pattern.rows, 1)
        group = max(1, int(_SUB_BLOCK * rows / max(layout.matrix_bytes, 1)))
        self._group = max(1, group // layout.align) * layout.align
        self._work: NDArray[Any] | None = None

    @property
    def nbytes(self) -> int:
        tasks = sum(int(a.nbytes) for a in self._tasks)
        moved = int(self._where.order.nbytes + self._where.place.nbytes)
        return self._layout.nbytes + tasks + moved + (0 if self._work is None else int(self._work.nbytes))

    def update_values(self, data: NDArray[Any]) -> None:
        entries = self._where.entries
        self._layout.fill(data if entries is None else data[entries])

    def run(self, x: NDArray[Any], out: NDArray[Any], coefficients: Coefficients) -> None:
        a, b, c = coefficients.a, coefficients.b, coefficients.c
        powers = work = out.reshape(-1)
        if self._where.order.size:
            if self._work is None or self._work.size != out.size:
                self._work = np.empty(out.size, dtype=out.dtype)
            work = self._work
        self._counters[:] = 0
        order, place = self._where.order, self._where.place

        def job(thread: int) -> None:
            run_tasks(
                self._layout.arrays,
                self._tasks,
                self._unit,
                self._group,
                x,
                powers,
                work,
                order,
                place,
                a,
                b,
                c,
                self._counters,
                thread,
            )

        team(self._threads).run(job)
