"""New values into a layout, by all threads of a plan.

Each entry of the matrix, in CSR order, goes to its slot. Memory movement per entry: the value read, the slot read, and
the entry that it comes from where rows are in another order, and the value written, somewhere in the chunk or slice of
its row, a line of which is first read. NumPy's own assignment with an index array takes five to seven times as long on
one thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.formats.base import Format
from akx.kernels.cpu.jit import jit
from akx.kernels.cpu.simd import prefetch
from akx.kernels.cpu.sync import LINE, begin, finish
from akx.kernels.cpu.team import Job

__all__ = ["fill"]

_NONE = np.zeros(0, dtype=np.uint32)
#: Entries below which waking other threads takes longer than the work.
_ALONE = 400_000


#: Bytes of values above which lines are asked for before they are written to, so many entries ahead: blocks of brick,
#: shell and tetrahedra take 0.79 to 0.85 of the time then, and those that are in a near cache up to 1.2 times as long.
_FAR, _AHEAD = 8 * 1024 * 1024, 128


@jit
def _fill(
    entries: Any, slot: Any, data: Any, values: Any, x: Any, out: Any, calls: Any, thread: int, sent: bool
) -> Any:
    """values[slot[i]] = data[entries[i]] for this thread's share of i; where a map is empty, i itself.

    A job of a team (:mod:`akx.kernels.cpu.sync`); x and out are not used.
    """
    threads = (calls.size // LINE - 2) // 3
    number = begin(calls, thread, threads, sent, x, out)
    if number <= 0:
        return False
    count = entries.size if entries.size else data.size
    first, last = np.uintp(count * thread // threads), np.uintp(count * (thread + 1) // threads)
    while number > 0:
        if slot.size == 0 and entries.size == 0:
            for i in range(first, last):
                values[i] = data[i]
        elif slot.size == 0:
            for i in range(first, last):
                values[i] = data[np.uintp(entries[i])]
        elif entries.size:
            for i in range(first, last):
                values[np.uintp(slot[i])] = data[np.uintp(entries[i])]
        elif values.nbytes > _FAR:
            most = max(last, np.uintp(1)) - np.uintp(1)
            for i in range(first, last):
                prefetch(values, np.uintp(slot[min(i + np.uintp(_AHEAD), most)]))
                values[np.uintp(slot[i])] = data[i]
        else:
            for i in range(first, last):
                values[np.uintp(slot[i])] = data[i]
        number = finish(calls, thread, threads, number)
    return number == 0


def fill(layout: Format, data: NDArray[Any], entries: NDArray[Any] | None, threads: int) -> None:
    """Lay values out on so many threads; padding stays as it is.

    Parameters
    ----------
    layout : Format
        As made by a ``from_csr``, of the dtype of `data`.
    data : (nnz,) array
        Values in CSR order.
    entries : (nnz',) array of integers or None
        Where the layout's entries are in `data`, if they are not in order.

    Raises
    ------
    ValueError
        Where the layout is for another number of values, or another dtype.
    """
    known = layout.slot if layout.slot is not None else layout.arrays.values
    taken = data if entries is None else entries
    if taken.size != known.size or data.dtype != layout.arrays.values.dtype:
        wanted = f"{known.size} of {layout.arrays.values.dtype}"
        raise ValueError(f"a layout of {wanted} cannot take {taken.size} values of {data.dtype}")
    maps = (_NONE if one is None else one for one in (entries, layout.slot))
    values = layout.arrays.values
    used = threads if data.size > _ALONE else 1
    # All that is read comes as arrays that are not written to: one kind of each, and one compilation.
    job = Job(_fill, (*map(_constant, maps), _constant(data), values), used, values.dtype)
    job.run(*job.empty)


def _constant(array: NDArray[Any]) -> NDArray[Any]:
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
