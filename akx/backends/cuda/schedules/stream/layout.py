"""The window of `stream`: how much of a matrix and its vectors is on the device at a time, and the matrix in chunks.

The matrix comes in chunks of C rows. Row i reads columns from i - d to i + u. Let l = C + u, up to a multiple of 32.
Then at step t, power p can be done on rows t C - p l .. t C - p l + C - 1 for all p = 1..m at once: what it reads of
power p - 1 was made in earlier steps. On the device are

    ceil(m l / C) - floor(l / C) + 1 + ahead  chunks of the matrix, `ahead` of them on their way,
    as many chunks more as there is room for  which stay there from call to call, if they may,
    C + l + max(d, l)                         rows of each of m + 2 vectors (the recurrence reads v_{p-2} as well),
    BACKS m C                                 rows of results on their way back, where those are copied,
    2 (ahead + 1) C                           rows of x, where one kernel does all: it brings them early.

Every row comes once per pass and is computed once per power: the ghost zones of thesis sec. 6.3.1 are on the device
already, those behind a block of rows because they are kept, those before it because the powers lag. C is chosen by a
model of the time, among the sizes whose window fits the budget. Of a symmetric matrix half chunks may travel and stay,
which are made whole here: :mod:`akx.backends.cuda.schedules.stream.triangle`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.pattern_cache import per_pattern
from akx.core.matrix import Matrix
from akx.core.numba_jit import njit
from akx.formats import sell
from akx.formats.base import pattern_of

__all__ = [
    "ALIGN",
    "BACKS",
    "COUNTERS",
    "SLICE",
    "Chunks",
    "Ordered",
    "Window",
    "below_diagonal",
    "choose_window",
    "first_from",
    "kind_of",
    "pack",
    "pass_seconds",
    "reach",
    "slices_of",
    "smallest_window",
    "stored_bytes",
    "whole_slices",
]

SLICE = 32
#: Steps whose results are on their way back.
BACKS = 3
#: Bytes of counters, where one kernel does all: a line for the steps, and one for each group of movers.
COUNTERS = 128 * 16
#: Bytes that a chunk is a multiple of, and its values begin at.
ALIGN = 256
#: Bytes a second over the bus and in the device, and seconds that a step takes at least, in a graph, in one kernel, and
#: in one where it makes a chunk whole: only to compare sizes with.
_BUS, _DEVICE, _STEP, _FLOW_STEP, _HALF_STEP = 5e10, 2.5e12, 8e-6, 3e-6, 6e-6


#: A matrix in the order of its rows that a plan wants, the permutation, and that of the entries (None: as it was).
Ordered = tuple[Matrix, NDArray[Any] | None, NDArray[Any] | None]


@dataclass(frozen=True)
class Window:
    """The sizes of a window.

    `n`, `rows`, `chunks`: rows of the matrix and of a chunk (a multiple of 32), and chunks. `lag`: rows from one power
    to the next, a multiple of 32. `depth`: powers per pass. `slots`, `slot_bytes`: chunks of the matrix on the device
    at a time, and bytes for each. `ring`: rows of each vector on the device, a multiple of 32: row i is at i mod ring.
    `vectors`: start vectors at a time. `backs`: steps whose results are on their way back. `staged`: steps whose rows
    of x are on the device before they are needed; 0 where a launch per step fetches them. `kept`: chunks, the first
    ones, that stay on the device in slots of their own, beside those that take turns in `slots`. `half`: bits of a
    mark, where these are half chunks; then `whole` slots of `whole_bytes` are for whole ones that are made of them.
    """

    n: int
    rows: int
    chunks: int
    lag: int
    depth: int
    slots: int
    slot_bytes: int
    ring: int
    vectors: int
    itemsize: int
    backs: int = 0
    staged: int = 0
    kept: int = 0
    half: int = 0
    whole: int = 0
    whole_bytes: int = 0

    @property
    def header(self) -> int:
        """Bytes of a chunk before its values, as it travels."""
        return _header_bytes(self.rows // SLICE + 1) if self.half else self.whole_header

    @property
    def head(self) -> int:
        """What is told of the slices of a whole chunk: so many numbers."""
        return 2 * (self.rows // SLICE) + 1

    @property
    def whole_header(self) -> int:
        """The bytes of these, as they lie before values."""
        return _header_bytes(self.head)

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        rows = (self.depth + 2) * self.ring + (self.depth * self.backs + 2 * self.staged) * self.rows
        ordered = 8 * (self.chunks + 1) + COUNTERS if self.staged else 0
        slots = (self.kept + self.slots) * self.slot_bytes + self.whole * self.whole_bytes
        slots += 4 * self.chunks * self.head if self.half else 0
        return slots + rows * self.vectors * self.itemsize + ordered

    @property
    def pitch(self) -> int:
        """Rows from one vector to the next in host memory: whole slices, so that all transfers begin at a line."""
        return whole_slices(self.n)

    def steps(self, depth: int) -> int:
        """Steps of a pass of `depth` powers."""
        return (self.n - 1 + depth * self.lag) // self.rows + 1

    def powers(self, step: int, depth: int) -> tuple[int, int]:
        """The first and last power done in a step; power 0 is the fetching of x. None where last < first."""
        at = step * self.rows
        return max(0, (at - self.n) // self.lag + 1), min(depth, (at + self.rows - 1) // self.lag)

    def arrives(self, step: int) -> int:
        """The chunk that is first used in a step."""
        return step if self.half else step - self.lag // self.rows

    def slot(self, chunk: int) -> int:
        """Where a chunk is on the device, in slots."""
        return chunk if chunk < self.kept else self.kept + (chunk - self.kept) % self.slots

    def frees(self, chunk: int, depth: int) -> int:
        """The last step that uses a chunk, in a pass of `depth` powers; of a half one, that which is made of it."""
        return chunk - (-depth * self.lag // self.rows)


def _header_bytes(words: int) -> int:
    return -(-4 * words // ALIGN) * ALIGN


def reach(matrix: Matrix) -> tuple[int, int]:
    """How far columns lie below and above their rows."""
    below, above, _ = _all_slices(matrix)
    return below, above


def _slices(matrix: Matrix, first: int | None = None) -> tuple[int, int, NDArray[Any]]:
    """What :func:`_all_slices` tells; with `first` of so many rows alone, whose slices then hold at most that."""
    below, above, start = _all_slices(matrix)
    return below, above, start if first is None else start[: -(-first // SLICE) + 1]


@per_pattern
def _all_slices(matrix: Matrix) -> tuple[int, int, NDArray[Any]]:
    """How far columns lie below and above their rows, and where the slots of each slice begin."""
    length = np.diff(matrix.indptr).astype(np.int64)
    full = np.flatnonzero(length)
    low, high = (matrix.indices[end] for end in (matrix.indptr[full], matrix.indptr[full + 1] - 1))
    below, above = int((full - low).max(initial=0)), int((high - full).max(initial=0))
    slots = np.maximum.reduceat(length, np.arange(0, matrix.n, SLICE)) * SLICE
    return below, above, np.concatenate([[0], np.cumsum(slots)])


def slices_of(matrix: Matrix) -> NDArray[Any]:
    """Where the slots of each slice of 32 rows begin, in whole chunks."""
    start: NDArray[Any] = _all_slices(matrix)[2]
    return start


@per_pattern
def below_diagonal(matrix: Matrix) -> tuple[int, NDArray[Any]]:
    """Bits of a mark of a half chunk, 0 where rows are too long, and where entries of each slice begin there."""
    below = first_from(matrix.indptr, matrix.indices, 0) - matrix.indptr[:-1]
    longest, most = int(np.diff(matrix.indptr).max(initial=0)), int(below.max(initial=0))
    mark = next((bits for bits in (8, 16) if longest <= 2 ** (bits - 1) and most < 2 ** (bits - 2)), 0)
    entries = np.add.reduceat(below, np.arange(0, matrix.n, SLICE))
    return mark, np.concatenate([[0], np.cumsum(entries)])


@njit(nogil=True, cache=True)
def first_from(indptr: Any, indices: Any, offset: Any) -> Any:
    """The first entry of each row whose column is row + `offset` or more, or where the next row begins."""
    found = np.empty(indptr.size - 1, np.int64)
    for i in range(found.size):
        low, high = np.int64(indptr[i]), np.int64(indptr[i + 1])
        while low < high:
            middle = (low + high) // 2
            if indices[middle] < i + offset:
                low = middle + 1
            else:
                high = middle
        found[i] = low
    return found


def stored_bytes(matrix: Matrix, bits: int, first: int | None = None, half: int = 0) -> int:
    """Bytes that come over the bus for one pass over the matrix, or its first rows, but for alignment.

    `half`: bits of a mark where half chunks do.
    """
    start, size = _slices(matrix, first)[2], matrix.dtype.itemsize
    slices = start.size - 1
    if not half:
        return int(start[-1]) * (size + bits // 8) + 8 * slices
    of_entries = int(below_diagonal(matrix)[1][slices]) * (size + bits // 8 + half // 8)
    return of_entries + slices * (SLICE * (size + half // 8) + 4)


def _window(
    matrix: Matrix,
    rows: int,
    depth: int,
    vectors: int,
    bits: int,
    backs: int,
    ahead: int,
    one: bool,
    first: int | None = None,
    half: int = 0,
) -> Window:
    below, above, start = _slices(matrix, first)
    n = matrix.n if first is None else first
    at = np.arange(0, start.size - 1, rows // SLICE)
    lag, down = rows + whole_slices(above), whole_slices(below)
    size = matrix.dtype.itemsize
    most = int(np.diff(np.append(start[at], start[-1])).max())
    per = rows // SLICE
    slot = -(-(_header_bytes(2 * per + 1) + most * (size + bits // 8)) // ALIGN) * ALIGN
    slots = min(at.size, -(-depth * lag // rows) - lag // rows + 1 + ahead)
    ring = min(whole_slices(n), rows + lag + max(down, lag))
    staged = ahead + 1 if one else 0
    of_whole: tuple[int, ...] = ()
    if half:
        of_whole = half, min(at.size, -(-depth * lag // rows) + 1), slot
        begin = below_diagonal(matrix)[1][: start.size]
        most = int(np.diff(np.append(begin[at], begin[-1])).max()) * (size + bits // 8 + half // 8)
        slot = -(-(_header_bytes(per + 1) + rows * (size + half // 8) + most) // ALIGN) * ALIGN
        slots = min(at.size, ahead + 1)
    return Window(n, rows, at.size, lag, depth, slots, slot, ring, vectors, size, backs, staged, 0, *of_whole)


def _filled(window: Window, budget: int) -> Window:
    """The window with as many chunks that stay on the device as the budget has room for.

    All slots are one array, for which the pool of memory takes a size of four bits (`memory`).
    """
    room = max(0, budget - window.nbytes + window.slots * window.slot_bytes)
    step = 1 << max(0, room.bit_length() - 4)
    slots = max(window.slots, room // step * step // window.slot_bytes)
    if slots >= window.chunks:
        return replace(window, slots=0, kept=window.chunks)
    return replace(window, kept=slots - window.slots)


def whole_slices(rows: int) -> int:
    """Rows up to whole slices."""
    return -(-rows // SLICE) * SLICE


def pass_seconds(window: Window, bus: float, whole: float) -> float:
    """A rough time of one pass, to compare windows by; of bytes of a chunk on the bus, and of a whole one.

    To make one whole is to write it, and to read what it is made of.
    """
    results = window.depth * window.rows * window.vectors * window.itemsize
    made = 1.5 if window.half else 0.0
    least = _HALF_STEP if window.half else _FLOW_STEP if window.staged else _STEP
    work = max(least, (window.depth + made) * whole / _DEVICE)
    step, staying = max(work, bus / _BUS, results / _BUS), max(work, results / _BUS)
    sent = window.chunks - window.kept
    after = (window.steps(window.depth) - window.chunks) * work
    return sent * step + window.kept * staying + after + (bus / _BUS if sent else 0.0)


def choose_window(
    matrix: Matrix,
    depth: int,
    budget: int,
    vectors: int,
    bits: int,
    backs: int,
    ahead: int,
    rows: int = 0,
    one: bool = False,
    full: int = 0,
    first: int | None = None,
    half: int = 0,
) -> Window | None:
    """The window with the least expected time that fits the budget, or None.

    With chunks of `rows` rows where given; `one` is for one kernel per pass instead of a launch per step. Up to `full`
    bytes of the budget are filled with chunks that stay on the device from call to call. `first`: of so many rows
    alone, and of as many columns. `half`: bits of a mark where half chunks travel.
    """
    given = budget, rows, full, depth, vectors, bits, backs, ahead, one, first, half
    return _choose_window(matrix, matrix.dtype.itemsize, *given)


@per_pattern
def _choose_window(
    matrix: Matrix, itemsize: int, budget: int, rows: int, full: int, depth: int, vectors: int, bits: int, *given: Any
) -> Window | None:
    first, half, best, least = *given[-2:], None, 0.0
    sizes: list[int] = [whole_slices(rows)] if rows else []
    size = whole_slices(matrix.n if first is None else first)
    while not rows and (not sizes or sizes[-1] > SLICE):
        sizes.append(size)
        size = max(SLICE, int(0.9 * size) // SLICE * SLICE)
    total, whole = stored_bytes(matrix, bits, first, half), stored_bytes(matrix, bits, first)
    for size in sizes:
        found = _window(matrix, size, depth, vectors, bits, *given)
        if full:
            found = _filled(found, min(budget, full))
        seconds = pass_seconds(found, total / found.chunks, whole / found.chunks)
        if found.nbytes <= budget and (best is None or seconds < least):
            best, least = found, seconds
    return best


def smallest_window(matrix: Matrix, bits: int) -> Window:
    """The window that takes the fewest bytes: one power and one vector, results written by the launches."""
    whole = whole_slices(matrix.n)
    sizes = {min(whole, SLICE * 2**power) for power in range(whole.bit_length())}
    return min((_window(matrix, size, 1, 1, bits, 0, 1, False) for size in sorted(sizes)), key=lambda one: one.nbytes)


@dataclass(frozen=True)
class Chunks:
    """The matrix in chunks as they travel.

    `data`: all chunks; values are zero until ``data.view(dtype)[slot] = values``. `begin` (chunks + 1,): where each
    chunk begins in `data`. `slot` (nnz,): the place of each entry of CSR data, in values from the beginning of `data`.
    """

    data: NDArray[np.uint8]
    begin: NDArray[np.int64]
    slot: NDArray[Any]
    entry: NDArray[Any] | None = None


def pack(matrix: Matrix, window: Window, bits: int, memory: Any = np.zeros) -> Chunks:
    """Lay the matrix out in chunks; ``memory(nbytes, dtype)`` gives the bytes to put them in."""
    size, rows = matrix.dtype.itemsize, window.rows
    laid = sell.from_csr(pattern_of(matrix), matrix.dtype, sigma=1, bits=bits, chunk=SLICE)
    start, base, column = laid.arrays.start.astype(np.int64), laid.arrays.base.astype(np.int64), laid.arrays.column
    if bits == 16:
        base %= window.ring
    else:
        column = (column % np.uint32(window.ring)).astype(np.uint32)
    per = rows // SLICE
    first = np.minimum(np.arange(window.chunks + 1) * per, base.size)
    slots = np.diff(start[first])
    octets = -(-(window.header + slots * (size + bits // 8)) // ALIGN) * ALIGN
    begin = np.concatenate([[0], np.cumsum(octets)]).astype(np.int64)
    data = memory(int(begin[-1]), np.uint8)
    data[:] = 0
    for c in range(window.chunks):
        a, b = first[c], first[c + 1]
        chunk = data[begin[c] : begin[c + 1]]
        head = chunk[: window.header].view(np.uint32)
        head[: per + 1] = start[b] - start[a]  # also of the slices that a last chunk does not have
        head[: b - a + 1] = start[a : b + 1] - start[a]
        head[per + 1 : per + 1 + b - a] = base[a:b]
        after = window.header + int(slots[c]) * size
        chunk[after : after + int(slots[c]) * (bits // 8)].view(column.dtype)[:] = column[start[a] : start[b]]
    moved = (begin[:-1] + window.header) // size - start[first[:-1]]  # from slots of the whole to places in `data`
    slot = laid.slot.astype(np.int64) if laid.slot is not None else np.arange(matrix.nnz)
    row_chunk = np.repeat(np.arange(window.chunks), np.diff(matrix.indptr[np.minimum(first * SLICE, matrix.n)]))
    slot += moved[row_chunk]
    return Chunks(data, begin, slot)


def kind_of(variant: str) -> tuple[int, int]:
    """Bits of a column and lanes per row."""
    name, lanes = variant.split("-")
    return (16 if name == "sell16" else 32), int(lanes)
