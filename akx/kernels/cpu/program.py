"""Programs of the schedules that run lists of tasks: `sweep` and `wavefront`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.formats.base import Format
from akx.kernels.base import Coefficients
from akx.kernels.cpu.layout import Ordered
from akx.kernels.cpu.run import Tasks, run_tasks
from akx.kernels.cpu.team import Job

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
        self._unit = layout.unit
        rows = max(where.pattern.rows, 1)
        group = max(1, int(_SUB_BLOCK * rows / max(layout.matrix_bytes, 1)))
        self._group = max(1, group // layout.align) * layout.align
        self._work = np.empty(0, dtype=layout.arrays.values.dtype)
        self._coefficients: Coefficients | None = None
        self._job: Job | None = None

    @property
    def nbytes(self) -> int:
        tasks = sum(int(a.nbytes) for a in self._tasks)
        moved = int(self._where.order.nbytes + self._where.place.nbytes)
        return self._layout.nbytes + tasks + moved + int(self._work.nbytes)

    def update_values(self, data: NDArray[Any]) -> None:
        entries = self._where.entries
        self._layout.fill(data if entries is None else data[entries])

    def run(self, x: NDArray[Any], out: NDArray[Any], coefficients: Coefficients) -> None:
        work = out.size if self._where.order.size else 0
        job = self._job
        if job is None or self._coefficients is not coefficients or self._work.size < work:
            job = self._job = self._make_job(work, out.dtype, coefficients)
        job.run(x, out.reshape(-1))

    def _make_job(self, work: int, dtype: np.dtype[Any], coefficients: Coefficients) -> Job:
        self._work = np.empty(work, dtype=dtype)
        self._coefficients = coefficients
        fixed = (self._layout.arrays, self._tasks, self._unit, self._group)
        moved = (self._work, self._where.order, self._where.place)
        basis = (coefficients.a, coefficients.b, coefficients.c)
        return Job(run_tasks, (*fixed, *moved, *basis), self._threads, dtype)
