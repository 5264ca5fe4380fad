"""`resident` with diagonals: parts of contiguous rows, one offset for 32 entries where they lie on one diagonal.

For matrices whose rows come line by line from a grid. The part's rows are in the order given, x lies in shared memory
in one contiguous window, so there are no lists of nodes and no columns to read; results and halos are contiguous. See
``diagonals.cuh`` for the kernel and :mod:`akx.formats.banded` for the layout.

Shared memory of a thread block, in bytes, for NB start vectors at a time (w: bytes of a value):

    3 k w  +  36 places  +  4 offsets  +  2 window NB w  +  slots 32 w  +  scattered slots 64

Slots and offsets are those that are not in registers; places are those of slices, empty ones included
(:func:`akx.formats.banded.dealt_slices`).

Traffic per call and start vector: the matrix once (w / fill bytes an entry), k times what does not stay on chip or in
L2, x and k results. Flops: 2 nnz k.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import CudaDevice, cuda_device
from akx.backends.cuda.device.launch import Kernel
from akx.backends.cuda.device.memory import DeviceArray
from akx.backends.cuda.matrix import features
from akx.backends.cuda.program import C_TYPES
from akx.backends.cuda.value_compression.encodings import FULL, placed
from akx.backends.cuda.value_compression.new_values import not_empty
from akx.backends.cuda.value_compression.program import StoredProgram
from akx.backends.cuda.variants.block_local.layout import as_words, shared_limit
from akx.backends.cuda.variants.block_local.program import KeptShare, vector_groups
from akx.backends.cuda.variants.options import HELD_SLICES, HELD_SLOTS
from akx.backends.pattern_cache import per_pattern
from akx.backends.schedule import Traffic
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from akx.formats.banded import BAND_SLICE, Bands, Deal, deal, dealt_slices, windows
from akx.formats.base import pattern_of
from akx.formats.slice_diagonals import WARP, Diagonals, Extents, diagonals_of
from akx.partition.cuts import even_cuts

__all__ = [
    "DIA",
    "DiagonalsProgram",
    "default_options",
    "extents",
    "fixed_bytes",
    "lay_out",
    "macros",
    "offered",
    "reason_against",
    "resident_traffic",
    "suits",
    "traffic",
]

DIA = "dia"
_SOURCE = Path(__file__).with_name("diagonals.cu")
#: Entries over places, and scattered slots over all, for the variant to be offered.
_LEAST_FILL, _MOST_SCATTERED = 0.7, 0.25
#: Slices of 32 rows that are looked at before all of them are.
_SAMPLE = 64
#: What a slice costs beside its slots, in slots; and what those beyond the usual ones cost, each and at all: they are
#: read one after another from shared memory.
_SLICE_WORK, _EXTRA_WORK, _EXTRAS_WORK = 4.0, 1.5, 3.0
#: Bytes of shared memory that the kernel has besides.
_STATIC = 128
#: 32-bit registers of a thread that its slots may not take, and those that the default leaves.
_WORKING_REGISTERS, _SPARED_REGISTERS = 24, 48
#: Words from one flag to the next.
_FLAG = 32


@dataclass(frozen=True)
class LaidOut:
    """A matrix dealt to thread blocks.

    `shared`: bytes of dynamic shared memory. `vectors`: start vectors at a time.
    """

    deal: Deal
    warps: int
    held_slices: int
    held_slots: int
    shared: int
    vectors: int


def offered(matrix: Matrix, device: CudaDevice) -> bool:
    """Whether the space has the variant: where it suits the pattern and nothing has to be read again in each step.

    Where something has, the other variants were faster (one H100, 9-point and 27-point stencils), since the window of x
    takes more of the shared memory than the columns do.
    """
    if suits(matrix) is not None:
        return False
    return _is_kept(default_options(matrix, device), matrix, device)


def _is_kept(options: dict[str, Option], matrix: Matrix, device: CudaDevice) -> bool:
    """Whether the plan is possible and all of the matrix stays on the chip."""
    plan = Plan("cuda", "resident", DIA, options=options)
    return reason_against(plan, matrix, device) is None and _rest(plan, matrix, device) == 0.0


def default_options(matrix: Matrix, device: CudaDevice) -> dict[str, Option]:
    """Options that hold as much in registers as there is room for; so much that some are spilled where that helps."""
    usual = _options(matrix, device, _SPARED_REGISTERS)
    if suits(matrix) is not None or _is_kept(usual, matrix, device):
        return usual
    more = _options(matrix, device, _WORKING_REGISTERS)
    return more if _is_kept(more, matrix, device) else usual


def _options(matrix: Matrix, device: CudaDevice, spared: int) -> dict[str, Option]:
    uniform = extents(matrix).uniform
    width = int(np.median(uniform)) if uniform.size else 1
    per_warp = -(-uniform.size // max(device.sms, 1) // 16)
    slots = max((n for n in HELD_SLOTS if n <= max(width, 1)), default=1)
    room, each = 128 - spared, _registers(slots, matrix.dtype.itemsize)
    slices = max((n for n in HELD_SLICES if n * each <= room and (n == 0 or n < 2 * per_warp)), default=0)
    return {
        "block": 512,
        "held_slices": slices,
        "held_slots": slots if slices else 1,
        "x": "shared",
        "keep": 24,
        "vectors": 1,
    }


def reason_against(plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
    """Why the plan, whose options are known to be among the choices, is not possible with diagonals."""
    reason = suits(matrix)
    if reason is not None:
        return reason
    if plan.partitioner != "natural" or plan.typed.x != "shared" or plan.typed.depth != 1:
        return "with diagonals rows are in the order given, x is in shared memory, and exchanged in every step"
    threads, slices, slots = _form(plan)
    per_sm = plan.typed.blocks_per_sm
    if slices == 0 and slots != 1:
        return "slots in registers of no slices"
    if threads * per_sm > 2048:
        return f"{threads * per_sm} threads do not fit a multiprocessor"
    room = min(255, device.registers_per_sm // (threads * per_sm) // 8 * 8) - _WORKING_REGISTERS
    room -= 2 * (plan.typed.vectors - 1) * matrix.dtype.itemsize // 4
    held = slices * _registers(slots, matrix.dtype.itemsize)
    if held > max(room, 0):
        return f"{held} registers for slots do not fit {room}"
    window = 2.0 * _window(matrix, device.sms * per_sm) * matrix.dtype.itemsize * plan.typed.vectors
    limit = shared_limit(plan, device)
    if window > limit:
        return f"x takes {window:.0f} bytes of a part, of {limit} shared ones"
    return None


def traffic(plan: Plan, matrix: Matrix, device: CudaDevice) -> Traffic:
    """The byte and flop model."""
    return resident_traffic(plan, matrix, device, _stored(matrix), _rest(plan, matrix, device))


def resident_traffic(
    plan: Plan, matrix: Matrix, device: CudaDevice, once: float, rest: float, moves: float = 1.0
) -> Traffic:
    """Of a matrix of `once` bytes, `rest` of which are read again in each step; results move so often through L2."""
    vector = float(matrix.n * matrix.dtype.itemsize)
    l2 = min(float(int(plan.typed.keep)) * 2**20, 0.8 * device.l2_bytes)
    return Traffic(
        matrix_bytes=once + plan.k * max(0.0, rest - l2),
        vector_bytes=vector * (plan.k + 1.0),
        flops=2.0 * matrix.nnz * plan.k,
        cache_bytes=once + plan.k * (rest + moves * vector),
        synchronisations=float(plan.k),
    )


def lay_out(matrix: Matrix, plan: Plan, device: CudaDevice) -> LaidOut:
    """Deal the matrix to one part for each thread block. Raises :class:`InfeasibleError`."""
    per_sm, vectors, size = plan.typed.blocks_per_sm, plan.typed.vectors, matrix.dtype.itemsize
    threads, slices, slots = _form(plan)
    warps = threads // WARP
    bands, found = _bands(matrix, device.sms * per_sm), diagonals(matrix)
    if slices and int((bands.high - bands.low).max()) > 2**16:
        raise InfeasibleError("a window has more rows than 16 bits number")
    rounded = -(-slots // 4) * 4 if slices else 0
    fixed, limit = fixed_bytes(plan, bands, size), shared_limit(plan, device)
    room = limit - fixed
    dealt = deal(pattern_of(matrix), found, bands, warps, slices, slots, room, size)
    parts = dealt.parts
    shared = fixed + parts["nears"].astype(np.int64) * (WARP * size) + parts["columns"].astype(np.int64) * (2 * WARP)
    shared += 4 * (parts["offsets"].astype(np.int64) - 2 * slices * warps * rounded)
    most = int(shared.max(initial=0))
    if most > limit:
        raise InfeasibleError(
            "x does not fit the shared memory",
            expected=f"at most {limit} bytes per part",
            found=f"{most} bytes",
            hint="take fewer start vectors at a time, or another variant",
        )
    return LaidOut(dealt, warps, slices, slots, most - _STATIC, vectors)


def fixed_bytes(plan: Plan, bands: Bands, size: int) -> NDArray[np.int64]:
    """Bytes of shared memory of each part before any slot."""
    count = dealt_slices(np.diff(bands.cuts), bands.above + bands.below, _form(plan)[0] // WARP)
    span = -(-(bands.high - bands.low) * plan.typed.vectors * size // 16) * 16
    fixed = _STATIC + -(-3 * plan.k * size // 16) * 16 + count * BAND_SLICE.itemsize + 2 * span
    found: NDArray[np.int64] = fixed + -(-count // 4) * 16
    return found


@per_pattern
def diagonals(matrix: Matrix) -> Diagonals:
    """The diagonals of each slice."""
    return diagonals_of(pattern_of(matrix))


@per_pattern
def extents(matrix: Matrix) -> Extents:
    """What prices ask of the diagonals of slices, on the device where the pattern is."""
    there = features.of(matrix)
    return diagonals(matrix).extents if there is None else features.extents(there)


def macros(
    dtype: np.dtype[Any], threads: int, slices: int, slots: int, vectors: int, *, stream: bool, blocks: int
) -> dict[str, int | str]:
    """The macros of the kernel."""
    return {
        "AKX_VALUE": C_TYPES[dtype.name],
        "AKX_HELD_SLICES": slices,
        "AKX_HELD_SLOTS": slots if slices else 0,
        "AKX_VECTORS": vectors,
        "AKX_THREADS": threads,
        "AKX_STREAM": int(stream),
        "AKX_BLOCKS": blocks,
    }


class DiagonalsProgram(StoredProgram):
    """A matrix dealt to thread blocks, on the GPU."""

    def __init__(self, matrix: Matrix, laid_out: LaidOut, plan: Plan) -> None:
        super().__init__(matrix.n, plan.k, matrix.dtype)
        dealt = laid_out.deal
        self._host, self._laid_out = dealt, laid_out
        self._blocks = plan.typed.blocks_per_sm
        self._count = int(dealt.parts.size)
        tables = [dealt.parts, dealt.slices, dealt.offsets, dealt.neighbours]
        self._tables = [self.hold(not_empty(as_words(a))) for a in tables]
        self.store_values(matrix, FULL, None, lambda data: placed(data, dealt.entry), dealt.entry)
        self._columns = self.hold(not_empty(dealt.columns))
        self._flags = self.hold(np.zeros(_FLAG * self._count, dtype=np.uint32))
        far = dealt.far_slots * WARP * matrix.dtype.itemsize
        self._share = KeptShare(plan, far, self.nbytes, cuda_device())
        self.kernels: dict[int, Kernel] = {}

    def ready(self, vectors: int) -> None:
        found = self._laid_out
        form, stream = (WARP * found.warps, found.held_slices, found.held_slots), found.deal.far_slots > 0
        for _, _, size in vector_groups(vectors, found.vectors):
            if size not in self.kernels:
                given = macros(self.dtype, *form, size, stream=stream, blocks=self._blocks)
                self.kernels[size] = load(_SOURCE, given, device=cuda_device()).kernel("steps")

    def enqueue(self, x: DeviceArray, out: DeviceArray, coefficients: DeviceArray) -> None:
        vectors = x.shape[0]
        for first, last, size in vector_groups(vectors, self._laid_out.vectors):
            given: list[Any] = [*self._tables, self._values, self._columns, coefficients, self._flags, x, out]
            given += [np.uint32(size) for size in (self.k, vectors, first, last)]
            kept = self._share.of((self.k + 2) * (last - first) * self.n * self.dtype.itemsize)
            self.kernels[size].launch(
                self._count,
                WARP * self._laid_out.warps,
                [*given, np.int64(self.n), kept],
                shared=self._laid_out.shared,
                cooperative=True,
                stream=self.stream,
            )


def _stored(matrix: Matrix) -> float:
    """Bytes of the slots, those held for nothing not counted."""
    found, size = extents(matrix), matrix.dtype.itemsize
    return max(found.slots * WARP * size + float(found.scattered.sum()) * 2.0 * WARP, float(matrix.nnz * size))


def _rest(plan: Plan, matrix: Matrix, device: CudaDevice) -> float:
    """Bytes that neither registers nor shared memory hold."""
    size, (threads, slices, slots) = matrix.dtype.itemsize, _form(plan)
    per_sm, vectors = int(plan.typed.blocks_per_sm), int(plan.typed.vectors)
    window = 2.0 * _window(matrix, device.sms * per_sm) * size * vectors
    shared = shared_limit(plan, device) - window
    return max(0.0, _stored(matrix) - device.sms * per_sm * (shared + float((threads - WARP) * slices * slots * size)))


def _registers(slots: int, size: int) -> int:
    """32-bit registers of a slice that is held: a value for each slot, and what it multiplies in 16 bits."""
    return slots * size // 4 + -(-slots // 2)


def _form(plan: Plan) -> tuple[int, int, int]:
    """Threads of a block, slices of a warp in registers, slots of each."""
    return plan.typed.block, plan.typed.held_slices, plan.typed.held_slots


@per_pattern
def _bands(matrix: Matrix, parts: int) -> Bands:
    """Parts of equal work and their windows."""
    found = extents(matrix)
    usual = np.median(found.uniform)
    extra = np.maximum(found.uniform - usual, 0) + 2.0 * found.scattered
    each = usual + _SLICE_WORK + _EXTRA_WORK * extra + _EXTRAS_WORK * (extra > 0)
    return windows(found, even_cuts(np.concatenate([[0.0], np.cumsum(each)]), parts))


def _window(matrix: Matrix, parts: int) -> int:
    """Rows of the longest window."""
    bands = _bands(matrix, parts)
    return int((bands.high - bands.low).max())


@per_pattern
def suits(matrix: Matrix) -> str | None:
    """None where the rows lie on few enough diagonals, else the reason; a look at some slices, then at all."""
    pattern, there = pattern_of(matrix), features.of(matrix)
    slices = -(-matrix.n // WARP)
    if slices > 4 * _SAMPLE:
        entries, places, some = 0, 0, np.linspace(0, slices - 2, _SAMPLE).astype(np.int64)
        if there is not None:
            lie_on, entries = features.different_keys(there, some)
            places = WARP * lie_on
        for s in some if there is None else ():
            row = np.arange(s * WARP, (s + 1) * WARP)
            begin, end = int(pattern.indptr[row[0]]), int(pattern.indptr[row[-1] + 1])
            pointer = pattern.indptr[row[0] : row[-1] + 2].astype(np.int64)
            lengths = pointer[1:] - pointer[:-1]
            offsets = pattern.indices[begin:end].astype(np.int64) - np.repeat(row, lengths)
            entries, places = entries + end - begin, places + WARP * np.unique(offsets).size
        if entries < 0.5 * places:
            return f"rows lie on too many diagonals: {entries} entries on {places} places of some slices"
    found = extents(matrix)
    fill = matrix.nnz / max(WARP * found.slots, 1)
    if fill < _LEAST_FILL:
        return f"diagonals of 32 rows are {fill:.0%} full, less than {_LEAST_FILL:.0%}"
    scattered = int(found.scattered.sum())
    if scattered > _MOST_SCATTERED * found.slots:
        return f"{scattered} of {found.slots} slots are on no diagonal"
    return None
