"""Programs that a team of threads runs; those of `sweep` and `wavefront`, which run lists of tasks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu.layout import Ordered, lay_out
from akx.backends.cpu.task_loop import Tasks, run_tasks
from akx.backends.cpu.thread_team import Job
from akx.backends.cpu.value_update import NewValues
from akx.backends.cpu.variants import made_by
from akx.backends.schedule import Coefficients, Program, as_coefficients
from akx.formats.base import Format
from akx.formats.symmetry import has_symmetric_values, is_as_laid_out

__all__ = ["TaskProgram", "TeamProgram"]

#: Matrix bytes of a sub-block: all start vectors pass over it, and the recurrence is applied, before the next. Small
#: enough that its vector entries stay in the first cache, large enough that the 0.1 us a sub-block costs do not matter.
_SUB_BLOCK = 64 * 1024
#: Bytes of a map from entries to slots that is not kept for new values, which may not come.
_LARGE_MAP = 16 << 20


class TeamProgram(Program):
    """What programs that a team runs share: the job, kept from call to call, and its workspace, which only grows."""

    def __init__(self, threads: int, dtype: np.dtype[Any]) -> None:
        self._threads = threads
        self._work = np.empty(0, dtype=dtype)
        self._coefficients: Coefficients | None = None
        self._job: Job | None = None

    @abstractmethod
    def _work_size(self, x: NDArray[Any], out: NDArray[Any]) -> int:
        """Entries of workspace that a call needs."""

    @abstractmethod
    def _make_job(self, coefficients: Coefficients, dtype: np.dtype[Any]) -> Job:
        """The job with the workspace at hand."""

    def ready(self, vectors: int) -> None:
        if self._job is None:
            dtype, one = self._work.dtype, np.zeros(1)
            self._make_job(as_coefficients(one, one, one, dtype), dtype).compile()

    def run(self, x: NDArray[Any], out: NDArray[Any], coefficients: Coefficients) -> None:
        size, job = self._work_size(x, out), self._job
        if job is None or self._coefficients is not coefficients or self._work.size < size:
            self._work = np.empty(size, dtype=out.dtype)
            self._coefficients = coefficients
            job = self._job = self._make_job(coefficients, out.dtype)
        job.run(x, out.reshape(-1))


class TaskProgram(TeamProgram):
    """A laid-out matrix with each thread's tasks; see :class:`akx.backends.program.Program`.

    Where one of two equal entries is stored and values come that differ, all are stored, as ``csr``, whose rows can be
    shared out in any way: the tasks stay, and serve the layout again where values come that are equal again.
    """

    def __init__(self, layout: Format, tasks: Tasks, where: Ordered) -> None:
        super().__init__(int(tasks.thread_ptr.size - 1), layout.arrays.values.dtype)
        self._tasks = tasks
        self._where = where
        self._in_halves: str | None = None
        self._again: Callable[[], Format] | None = None
        self._take_layout(layout)

    def _take_layout(self, layout: Format) -> None:
        self._layout, self._job = layout, None
        self._new: NewValues | None = self._map_of(layout)
        self._unit = layout.unit
        rows = max(self._where.pattern.rows, 1)
        group = max(1, int(_SUB_BLOCK * rows / max(layout.matrix_bytes, 1)))
        self._group = max(1, group // layout.align) * layout.align

    @property
    def is_as_planned(self) -> bool:
        """False where values have come that are not symmetric, for a plan that stores one of two."""
        return self._in_halves is None

    @property
    def variant_instead(self) -> str | None:
        return None if self._in_halves is None else "csr"

    @property
    def nbytes(self) -> int:
        tasks = sum(int(a.nbytes) for a in self._tasks)
        moved = int(self._where.order.nbytes + self._where.place.nbytes)
        new = 0 if self._new is None else self._new.nbytes
        return self._layout.nbytes + new + tasks + moved + int(self._work.nbytes)

    def fill(self, data: NDArray[Any], again: Callable[[], Format]) -> None:
        """Lay the first values out.

        A large map from entries to slots goes then, which only other values need: `again` makes the layout for these.
        """
        self.update_values(data)
        slot = self._layout.slot
        if slot is not None and slot.nbytes >= _LARGE_MAP:
            self._layout, self._new, self._again = replace(self._layout, slot=None), None, again

    def update_values(self, data: NDArray[Any]) -> None:
        if self._in_halves is not None and self._is_symmetric(data):
            self._store_as(self._in_halves, data.dtype)
            self._in_halves = None
        if self._new is None:
            assert self._again is not None
            self._layout = replace(self._layout, slot=self._again().slot)
            self._new = self._map_of(self._layout)
        self._new.take(data)
        layout, entries = self._layout, self._where.entries
        if not made_by(layout).is_symmetric or layout.slot is None:
            return
        if not is_as_laid_out(layout.arrays.values, layout.slot, entries, data, self._threads):
            self._in_halves = made_by(layout).name
            self._store_as("csr", data.dtype)
            self._new.take(data)

    def _store_as(self, variant: str, dtype: np.dtype[Any]) -> None:
        self._take_layout(lay_out(self._where.pattern, dtype, variant, sigma=1, block=1))

    def _is_symmetric(self, data: NDArray[Any]) -> bool:
        pattern, entries = self._where.pattern, self._where.entries
        return has_symmetric_values(pattern.indptr, pattern.indices, data if entries is None else data[entries])

    def _map_of(self, layout: Format) -> NewValues:
        return NewValues(layout, self._where.pattern, self._where.entries, self._threads)

    def _work_size(self, x: NDArray[Any], out: NDArray[Any]) -> int:
        return out.size if self._where.order.size else 0

    def _make_job(self, coefficients: Coefficients, dtype: np.dtype[Any]) -> Job:
        fixed = (self._layout.arrays, self._tasks, self._unit, self._group)
        moved = (self._work, self._where.order, self._where.place)
        basis = (coefficients.a, coefficients.b, coefficients.c)
        return Job(run_tasks, (*fixed, *moved, *basis), self._threads, dtype)
