"""Powers of a caller's CSR arrays on the device, read where they are: nothing is copied, and nothing can be stale.

One cooperative launch for up to 8 start vectors does all steps (``csr_powers.cuh``), so that a second call costs what
the hundredth does: there is no graph to be made. What the kernel finds that cannot be followed, or is not finite, it
leaves out, or takes as it is, and sets a word of the host, which the next call looks at.

Where some rows are much longer than the mean, these have a block each: in a graph with hubs all others would wait for
them.

Traffic per call: k times the matrix for each launch, unless it fits the L2 cache. Flops: 2 nnz k.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.csr.plain import groups_of, lanes_of
from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.launch import Bound, Stream, default_stream
from akx.backends.cuda.device.memory import DeviceArray, zeros
from akx.backends.cuda.device.runtime import runtime
from akx.backends.cuda.matrix.content import address_of
from akx.backends.cuda.program import C_TYPES, CudaProgram
from akx.backends.program import Coefficients
from akx.core.errors import PlanError
from akx.core.fork_safety import ForkSafeLock

__all__ = ["CsrPowers"]

_SOURCE = Path(__file__).with_name("csr_powers.cu")
_BLOCK, _WARP = 512, 32
#: A row that has a whole block has more entries than so many for each of the usual threads, and than so many means.
_FOR_A_THREAD, _OVER_MEAN = 64, 16
#: Places of arguments.
_PITCH, _X, _OUT, _COEFFICIENTS, _ARRIVED, _ONLY = 6, 7, 8, 9, 10, 11


class CsrPowers(CudaProgram):
    """k steps with CSR arrays of a caller, for whoever holds these.

    `arrays`: data, indices and row pointers; both of indices of 32 bits, or both of 64. Not held. `n`, `longest`: rows,
    and the most entries of one. `told`: a word of the host that becomes 1 where something is wrong in the arrays.
    `lock`: held while a launch is laid out.
    """

    def __init__(self, arrays: Sequence[DeviceArray], n: int, longest: int, k: int, told: NDArray[np.uint32]) -> None:
        data, index, pointer = arrays
        super().__init__(n, k, data.dtype)
        entries = min(data.size, index.size)
        self._lanes, self._long = _lanes_and_long(n, entries, longest)
        self._index = "u32" if index.dtype.itemsize == 4 else "u64"
        #: Blocks that have come to a meeting.
        self._arrived = zeros(1, np.uint32)
        places = [np.uint64(array.pointer) for array in (pointer, index, data)]
        self._matrix: list[Any] = [np.uint32(n), np.uint64(entries), *places, np.uint32(k)]
        self._told = address_of(told)
        self.lock = ForkSafeLock()
        #: By vectors, and whether they are done only where a word says so.
        self._launches: dict[tuple[int, bool], Bound] = {}
        self._others: dict[tuple[int, bool], tuple[int, ...]] = {}

    @property
    def has_long_rows(self) -> bool:
        """Whether some rows are so much longer than the mean that each has a block."""
        return self._long > 0

    def ready(self, vectors: int) -> None:
        for together in groups_of(vectors):
            if (together, True) not in self._launches:
                self._launches[together, False], self._launches[together, True] = self._bound(together)

    def run(self, x: Any, out: Any, coefficients: Coefficients) -> None:
        """As all programs do, of arrays on the device."""
        self.ready(x.shape[0])
        self.take(coefficients)
        default_stream().submit(lambda stream: self._queue(stream, x, out))

    def enqueue(self, x: DeviceArray, out: DeviceArray, coefficients: DeviceArray) -> None:
        with runtime().active():
            self.queue(self.stream, x.pointer, out.pointer, x.shape[0])

    def update_values(self, data: NDArray[Any] | DeviceArray) -> None:
        """There are none but the caller's."""
        raise PlanError("these are powers of arrays as they are", hint="change the arrays")

    def queue(self, stream: Stream, x: int, out: int, vectors: int, *, only: int = 0, arrived: int = 0) -> None:
        """Queue a call by its addresses, with the coefficients of the last :meth:`take`; :meth:`ready` comes before.

        The context is current. Who queues on a stream of a caller, or on akx's, has the lock of that.

        `only`: address of a word of the device: nothing is done where that is 0 by then. 0 for in any case. `arrived`:
        address of a word of the device, 0, in which blocks that meet are counted; 0 for that of calls. What goes into a
        graph of a caller's, which may be launched at any time, has one of its own.
        """
        size = self.n * self.dtype.itemsize
        others = vectors * self.n, self._on_device.pointer, arrived or self._arrived.pointer, only
        with self.lock:
            for together in groups_of(vectors):
                which = together, only != 0
                one = self._launches[which]
                one.put(_X, x)
                one.put(_OUT, out)
                if self._others.get(which) != others:
                    self._others[which] = others
                    for place, value in zip((_PITCH, _COEFFICIENTS, _ARRIVED, _ONLY), others, strict=True):
                        one.put(place, value)
                one.launch_here(stream)
                x, out = x + together * size, out + together * size

    def _bound(self, together: int) -> tuple[Bound, Bound]:
        """The launch for so many vectors, and that where a word may say that nothing is to do.

        Blocks of a cooperative launch wait until all fit. So the second has one for each multiprocessor: it ends sooner
        next to what else is on the device. Bits are the same.
        """
        macros: dict[str, int | str] = {
            "AKX_VALUE": C_TYPES[self.dtype.name],
            "AKX_INDEX": self._index,
            "AKX_VECTORS": together,
            "AKX_LANES": self._lanes,
            "AKX_LONG": self._long,
        }
        kernel = load(_SOURCE, macros, device=cuda_device()).kernel("powers")
        # With long rows there are as many blocks as warps with others, if they all fit.
        of_block = _WARP if self._long else _BLOCK
        grid = max(1, min(-(-self.n * self._lanes // of_block), kernel.most_blocks(_BLOCK)))
        none = np.uint64(0)
        arguments = [*self._matrix, none, none, none, none, none, none, self._told]
        few = min(grid, cuda_device().sms)
        return (
            kernel.bound(grid, _BLOCK, arguments, cooperative=True),
            kernel.bound(few, _BLOCK, arguments, cooperative=True),
        )


def _lanes_and_long(n: int, entries: int, longest: int) -> tuple[int, int]:
    """Threads of a row, and the entries above which a row has a block; 0 where none is so long.

    That is a power of two, so that few kernels are compiled.
    """
    lanes = lanes_of(n, entries, 0)
    most = 1 << (max(_FOR_A_THREAD * lanes, _OVER_MEAN * entries // n) - 1).bit_length()
    return (lanes, most) if longest > most else (lanes_of(n, entries, longest), 0)
