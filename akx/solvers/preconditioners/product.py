"""y = M x for M in CSR on the host: nothing but M, x and y is moved, and nothing is kept between calls.

:class:`akx.MatrixPowers` with k = 1 gives V = [x, M x], and copies x before the product. For a sparse approximate
inverse, with its few entries a row, that is a third of what is moved. Bytes here: M once, x read and y written.

Rows are cut into runs of equal numbers of entries for the threads of the team, where there is enough to do. Each row is
summed by one thread in one order: the bits do not depend on threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu.jit import jit, jit_inner
from akx.backends.cpu.thread_sync import arrays_of, begin, first_part, then_undone, undone
from akx.backends.cpu.thread_team import Job
from akx.backends.cpu.vectors.row_kernels import SHARED_BYTES
from akx.backends.host import resolve_threads
from akx.core.matrix import Matrix

__all__ = ["Product"]

_1, _2, _3, _4 = np.uintp(1), np.uintp(2), np.uintp(3), np.uintp(4)


class Product:
    """The product with a matrix, for vectors of its type, by one thread where less than 3 MiB are moved.

    Several threads may call it at once.
    """

    def __init__(self, matrix: Matrix, threads: int | None = None) -> None:
        self._n, self._dtype = matrix.n, matrix.dtype
        moved = matrix.nbytes + 2 * matrix.n * matrix.dtype.itemsize
        self.threads = resolve_threads(threads) if moved >= SHARED_BYTES else 1
        equal = np.linspace(0, matrix.nnz, self.threads + 1)[1:-1]
        cuts = np.array([0, *np.searchsorted(matrix.indptr, equal), matrix.n], dtype=np.int64)
        arguments = (matrix.indptr, matrix.indices, matrix.data, cuts)
        self._job = Job(run_product, arguments, self.threads, matrix.dtype)

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        """M x, (n,), a new array; x (n,) of a type that the matrix's holds."""
        vector = np.ascontiguousarray(x, dtype=self._dtype)
        if not vector.flags.behaved:  # compiled code is for aligned, writeable arrays: another kind compiles again
            vector = vector.copy()
        out = np.empty(self._n, dtype=self._dtype)
        self._job.run(vector.reshape(1, self._n), out)
        return out


@jit_inner
def _rows(indptr: Any, indices: Any, values: Any, v: Any, out: Any, first: Any, last: Any) -> None:
    """Entries first <= i < last of the product; the loop of CSR in :mod:`akx.backends.cpu.products`."""
    p = np.uintp(indptr[first])
    for i in range(first, last):
        end = np.uintp(indptr[i + _1])
        s0 = s1 = s2 = s3 = values.dtype.type(0)
        while p + _3 < end:  # four sums, so that additions do not wait for one another
            s0 += values[p] * v[np.uintp(indices[p])]
            s1 += values[p + _1] * v[np.uintp(indices[p + _1])]
            s2 += values[p + _2] * v[np.uintp(indices[p + _2])]
            s3 += values[p + _3] * v[np.uintp(indices[p + _3])]
            p += _4
        if p + _1 < end:
            s0 += values[p] * v[np.uintp(indices[p])]
            s1 += values[p + _1] * v[np.uintp(indices[p + _1])]
            p += _2
        if p < end:
            s2 += values[p] * v[np.uintp(indices[p])]
            p += _1
        out[i] = (s0 + s1) + (s2 + s3)


@jit
def run_product(
    indptr: Any, indices: Any, values: Any, cuts: Any, x: Any, out: Any, calls: Any, thread: int, sent: bool
) -> Any:
    """The rows of the parts of one thread; a member of a team for call after call, see
    :mod:`akx.backends.cpu.thread_sync`.

    cuts : (parts + 1,) int64, first rows. x (1, n), out (n,).
    """
    number = begin(calls, thread, sent, x, out)
    if number <= 0:
        return False
    number, part = undone(calls, thread, number, first_part(calls, thread))
    while number > 0:
        if thread > 0:
            x, out = arrays_of(calls, 1, x, out)
        _rows(indptr, indices, values, x[0], out, np.uintp(cuts[part]), np.uintp(cuts[part + 1]))
        number, part = then_undone(calls, thread, number, part)
    return number == 0
