"""The space of `sweep` on the GPU, and where a search of it begins."""

from __future__ import annotations

from typing import Any

from akx.backends import registry
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.device.runtime import STARTS_EARLY
from akx.backends.cuda.value_compression.encodings import FULL, STORED, stored_bytes, ways_of
from akx.backends.cuda.variants import hot_columns as hubs
from akx.backends.cuda.variants.hot_columns import HUBS
from akx.backends.cuda.variants.options import LANES, ROOMS
from akx.backends.schedule import Parameter
from akx.core.matrix import Matrix
from akx.core.options import CudaSweep
from akx.core.plan import Option, Plan

__all__ = [
    "AHEADS",
    "BLOCKS",
    "FAR_BEYOND",
    "KEEPS",
    "OPTIONS",
    "PADS",
    "VARIANTS",
    "WINDOWS",
    "begins_early",
    "keeps",
    "may_begin_early",
    "may_pass",
    "preferred",
    "space",
    "starts",
    "usual_keep",
]

#: SpMV variants, in the order in which ties are decided.
VARIANTS = (
    *(f"csr-{lanes}" for lanes in (1, 2, 4, 8, 16, 32)),
    *(f"sell-{lanes}" for lanes in LANES),
    *(f"sell16-{lanes}" for lanes in LANES),
    *(f"vbell-{lanes}" for lanes in LANES),
    "pcsr",
    "rows16",
    HUBS,
)
PADS, AHEADS, BLOCKS, WINDOWS = (1, 2, 4, 8), (1, 2, 3, 4), (128, 256, 512), (1, 1024)
#: MiB of the matrix that L2 is asked to keep.
KEEPS = (0, 8, 16, 24)
OPTIONS: dict[str, tuple[Option, ...]] = {
    "block": BLOCKS,
    "once": (False, True),
    "keep": KEEPS,
    "early": (False, True),
    "pad": PADS,
    "ahead": AHEADS,
    "sigma": WINDOWS,
    "hubs": ROOMS,
    "stored": STORED,
}
#: Threads that one multiprocessor holds.
_FULL = 2048
#: Variants in which a search is to try narrower values first: the likely best of each layout.
_MOST_STARTS = 4
#: Those in which it is to try that L2 keeps some of the matrix.
_MOST_PASSING = 2
#: Share of L2 that values may take and stay there; the largest that it can be asked to keep; and what it keeps best of
#: six matrices of 68 to 107 MB in five layouts, or nearly so.
_HELD, _MOST_KEPT, _KEPT = 0.6, 0.5, 0.33
_MEANING = "MiB of the matrix that L2 is asked to keep, the rest being marked"
_EARLY = "begin a step before the one before it has ended"
#: Sizes of the L2 cache from which on a matrix only passes through it, and up to which it is there whatever is told.
FAR_BEYOND, _WELL_WITHIN = 1.2, 0.5


def preferred(matrix: Matrix, device: CudaDevice) -> tuple[str, ...]:
    """The variants, the likely best number of lanes of each kind first, so that a model that sees no lanes takes it.

    Sliced ELL has whole runs whatever the lanes, and wants enough of them that the device is full of threads; CSR wants
    lanes that read runs. Neither wants more than a quarter of a row's entries. On an H100 that was within a tenth of
    the best number of lanes for seven matrices of 4 to 69 entries a row.
    """
    per_row = matrix.nnz / max(1, matrix.n)
    runs = next((lanes for lanes in (32, 16, 8, 4, 2) if per_row >= 4 * lanes), 1)
    full = 0.9 * device.sms * _FULL
    wide = next((lanes for lanes in (1, 2, 4, 8) if matrix.n * lanes >= full or 2 * lanes > runs), 8)
    kinds = (("sell16", (wide, 1, 2, 4, 8)), ("sell", (wide, 1, 2, 4, 8)), ("csr", (runs, 1, 2, 4, 8, 16, 32)))
    blocks = dict.fromkeys((f"vbell-{wide}", *(f"vbell-{n}" for n in LANES)))
    others = dict.fromkeys(f"{kind}-{n}" for kind, lanes in kinds for n in lanes)
    return (*blocks, *others, "pcsr", "rows16", HUBS)


def space(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Parameter, ...]:
    """The tuning parameters (:meth:`akx.backends.schedule.Schedule.space`)."""
    fitting = tuple(v for v in preferred(matrix, device) if schedule._fits(v, matrix, device))
    fitting += tuple(one.name for one in registry.variants("cuda") if one.reason_against(matrix) is None)
    size = float(matrix.nnz * (matrix.dtype.itemsize + 4))
    return (
        Parameter("variant", fitting, fitting[0], "SpMV variant and its lanes"),
        Parameter("partitioner", ("natural",), "natural", "order of the rows"),
        Parameter("block", BLOCKS, CudaSweep.block, "threads per block"),
        Parameter("once", (False, True), CudaSweep.once, "mark matrix data as not to be kept in cache"),
        Parameter("sigma", WINDOWS, CudaSweep.sigma, "rows per sorting window of sliced ELL, 1 for none"),
        Parameter("pad", PADS, CudaSweep.pad, "padding factor of pcsr"),
        Parameter(
            "ahead", AHEADS, CudaSweep.ahead, "partitions of pcsr that a block takes, each loaded ahead of its use"
        ),
        Parameter("stored", tuple(ways_of(matrix)), CudaSweep.stored, "what values are stored as"),
        *([_room(matrix, device)] if HUBS in fitting else []),
        *([Parameter("keep", keeps(device), CudaSweep.keep, _MEANING)] if may_pass(matrix, device) else []),
        *([Parameter("early", (False, True), begins_early(size, device), _EARLY)] if may_begin_early(device) else []),
    )


def keeps(device: CudaDevice) -> tuple[int, ...]:
    """MiB that the L2 of the device may be asked to keep."""
    return tuple(keep for keep in KEEPS if keep * 2**20 <= _MOST_KEPT * device.l2_bytes)


def usual_keep(device: CudaDevice) -> int:
    """MiB that it is best asked to keep, unseen."""
    return max(keep for keep in KEEPS if keep * 2**20 <= _KEPT * device.l2_bytes)


def may_begin_early(device: CudaDevice) -> bool:
    """Whether a step may begin before the one before it has ended."""
    return device.compute_capability >= STARTS_EARLY


def begins_early(size: float, device: CudaDevice) -> bool:
    """Whether steps are best begun early, unseen, with so many bytes of matrix.

    Where these just fit L2, each part of them is to come to the multiprocessors that had it in the step before.
    """
    apart = size > FAR_BEYOND * device.l2_bytes or size < _WELL_WITHIN * device.l2_bytes
    return may_begin_early(device) and apart


def may_pass(matrix: Matrix, device: CudaDevice) -> bool:
    """Whether L2 may be too small for the matrix, so that it matters what stays there."""
    return matrix.nnz * matrix.dtype.itemsize > _HELD * device.l2_bytes


def starts(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
    """In the variants that are likely the best of their layouts: values in fewer bytes, and a matrix that passes L2."""
    first: dict[str, str] = {}
    for variant in preferred(matrix, device):
        if schedule._fits(variant, matrix, device):
            first.setdefault(variant.split("-")[0], variant)
    likely = [variant for name, variant in first.items() if name != "rows16"]
    way = min(ways_of(matrix), key=lambda way: stored_bytes(way, matrix.dtype))
    found: list[tuple[str, dict[str, Option]]] = []
    if way != FULL:
        found += [(variant, {"stored": way}) for variant in likely[:_MOST_STARTS]]
    if may_pass(matrix, device):
        early = may_begin_early(device)
        keep = usual_keep(device)
        found += [(variant, {"once": True, "keep": keep, "early": early}) for variant in likely[:_MOST_PASSING]]
    plans = (Plan(schedule.backend, schedule.name, name, k=k, k_per_pass=1, options=options) for name, options in found)
    return tuple(plan for plan in plans if schedule.feasible(plan, matrix, device) is None)


def _room(matrix: Matrix, device: CudaDevice) -> Parameter:
    rooms = tuple(room for room in ROOMS if hubs.reason_against(matrix, room, device) is None)
    return Parameter("hubs", rooms, hubs.usual_room(device), "KiB of shared memory for the most read entries of x")
