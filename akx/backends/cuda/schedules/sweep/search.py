"""The space of `sweep` on the GPU, where a search of it begins, and heuristic plans: what a call may take unseen."""

from __future__ import annotations

from typing import Any

import numpy as np

from akx.backends import registry
from akx.backends.cuda.cost.model import gathered_share
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.device.runtime import STARTS_EARLY
from akx.backends.cuda.matrix.level_order import by_levels
from akx.backends.cuda.row_lengths import measured_rows
from akx.backends.cuda.schedules.sweep import layout
from akx.backends.cuda.schedules.sweep.layout import BY_LEVELS, stored_slots
from akx.backends.cuda.schedules.sweep.options import AHEADS, BLOCKS, KEEPS, PADS, WINDOWS, keeps
from akx.backends.cuda.value_compression.encodings import FULL, stored_bytes, ways_of
from akx.backends.cuda.variants import hot_columns as hubs
from akx.backends.cuda.variants.hot_columns import HUBS
from akx.backends.cuda.variants.options import LANES, ROOMS
from akx.backends.pattern_cache import per_pattern
from akx.backends.schedule import Parameter
from akx.core.errors import DeviceMemoryError, InfeasibleError
from akx.core.matrix import Matrix
from akx.core.options import CudaSweep
from akx.core.plan import Option, Plan
from akx.formats import pcsr

__all__ = [
    "FAR_BEYOND",
    "begins_early",
    "heuristic_plans",
    "may_begin_early",
    "may_pass",
    "preferred",
    "space",
    "starts",
    "usual_keep",
]

#: Layouts of which no lane comes back to a sector.
_PASSING = (layout.SELL, layout.PCSR, layout.WITH_HUBS, layout.VBELL)
#: Threads that vbell numbers, about.
_MOST_LANES = 2**31
#: Slots over those of rows as they come, from which on it is not worth it to sort rows unseen.
_SORTED = 0.9


#: Share of L2 that values may take and stay there; and what it keeps best of six matrices of 68 to 107 MB in five
#: layouts, or nearly so.
_HELD, _KEPT = 0.6, 0.33
#: Threads that one multiprocessor holds.
_FULL = 2048
#: Variants in which a search is to try narrower values first: the likely best of each layout.
_MOST_STARTS = 4
#: Those in which it is to try that L2 keeps some of the matrix.
_MOST_PASSING = 2
_MEANING = "MiB of the matrix that L2 is asked to keep, the rest being marked"
_ROOM_MEANING = "KiB of shared memory for the most read entries of x"
_EARLY_MEANING = "begin a step before the one before it has ended"
#: Rows, as a part of all, between a row and the first that it reads, in the mean, from which on rows come in no order
#: (large grids have 0.01 and less, a random order 0.3); what levels have to leave of the sectors of x that are
#: gathered; and the size of x over that of L2 from which on an order is looked for.
_FAR, _NEARER, _LARGE = 0.05, 0.7, 0.125
#: Sizes of the L2 cache from which on a matrix only passes through it, and up to which it is there whatever is told.
FAR_BEYOND, _WELL_WITHIN = 1.2, 0.5


def heuristic_plans(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
    """Plans that a call may take unseen, of rows as they come, and by levels where these come in no order."""
    plans = _plans_unseen(schedule, matrix, device, k)
    near = _near(matrix, device)
    if near is None:
        return plans
    others = _plans_unseen(schedule, near, device, k)
    return (*plans, *(plan.replace(partitioner=BY_LEVELS) for plan in others if _is_likely(plan)))


def _near(matrix: Matrix, device: CudaDevice) -> Matrix | None:
    """The matrix by levels, where its rows come in no order, x is large, and levels bring near what is read together.

    Where x stays in L1, or nearly so, there is nothing to be won for what it costs to bring vectors into another order.
    """
    if matrix.n * matrix.dtype.itemsize < _LARGE * device.l2_bytes or _profile(matrix) < _FAR * float(matrix.n) ** 2:
        return None
    try:
        found = by_levels(matrix)
    except (InfeasibleError, DeviceMemoryError):
        return None
    return found if gathered_share(found) < _NEARER * gathered_share(matrix) else None


@per_pattern
def _profile(matrix: Matrix) -> float:
    """The sum of how far the first column of each row lies before the row."""
    known = measured_rows(matrix)
    if known is not None:
        return float(known.profile)
    rows = np.flatnonzero(np.diff(matrix.indptr))
    return float(np.maximum(rows - matrix.indices[matrix.indptr[rows]], 0).sum(dtype=np.float64))


def _is_likely(plan: Plan) -> bool:
    """Of plans by levels those in layouts that are for rows which read what is near."""
    return layout.kind_of(plan.variant)[0] not in (layout.WITH_HUBS, layout.ROWS16)


def _plans_unseen(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
    """Every variant, with the options that its size asks for.

    First with values as they are, then in each other way in which these can be stored, with the same options. Of matrix
    data that L2 cannot hold, values in full, some are asked to stay and the others marked as not to be kept, where no
    lane comes back to a sector (so they are with fewer bytes: results pass through L2 as well), and steps begin early,
    as they do where all is small; a block takes as many partitions of pcsr as leave one for each place for a block.
    """
    plans = []
    for variant in preferred(matrix, device):
        kind, lanes, bits = layout.kind_of(variant)
        if kind in (layout.WITH_HUBS, layout.VBELL) and not schedule._fits(variant, matrix, device):
            continue
        if kind == layout.VBELL and (matrix.nnz == 0 or matrix.n * lanes >= _MOST_LANES):
            continue
        padded = kind == layout.SELL and _SORTED * layout.slots_in(matrix, kind, 4, 1) > matrix.nnz
        for sigma in WINDOWS if padded else (1,):
            if kind != layout.WITH_HUBS and schedule._variant_reason(variant, matrix, 4, sigma) is not None:
                continue
            stored = stored_slots(matrix, variant, sigma)
            if sigma > 1 and stored > _SORTED * layout.slots_in(matrix, kind, 4, 1):
                continue
            size = stored * (matrix.dtype.itemsize + bits / 8)
            beyond = size > FAR_BEYOND * device.l2_bytes
            passes = beyond and kind in _PASSING
            options: dict[str, Option] = {"once": passes, "sigma": sigma}
            if passes:
                options["keep"] = usual_keep(device)
            if begins_early(size, device):
                options["early"] = True
            if kind == layout.WITH_HUBS:
                options["hubs"] = hubs.usual_room(device)
            if kind == layout.PCSR:
                places = max(1, device.sms * 2048 // 256)
                partitions = stored // pcsr.PARTITION
                options["ahead"] = max(ahead for ahead in AHEADS if ahead == 1 or partitions >= ahead * places)
                pads = (8, 4, 2, 1) if _SORTED * stored > matrix.nnz else (8, 4)
                plans += [
                    Plan(schedule.backend, schedule.name, variant, k=k, k_per_pass=1, options={**options, "pad": pad})
                    for pad in pads
                    if schedule._variant_reason(variant, matrix, pad, sigma) is None
                ]
                continue
            plans.append(Plan(schedule.backend, schedule.name, variant, k=k, k_per_pass=1, options=options))
    ways = [way for way in ways_of(matrix) if way != FULL]
    return (*plans, *(plan.replace(options={**plan.options, "stored": way}) for way in ways for plan in plans))


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
    more = []
    if HUBS in fitting:
        rooms = tuple(room for room in ROOMS if hubs.reason_against(matrix, room, device) is None)
        more.append(Parameter("hubs", rooms, hubs.usual_room(device), _ROOM_MEANING))
    if may_pass(matrix, device):
        more.append(Parameter("keep", keeps(device), CudaSweep.keep, _MEANING))
    if may_begin_early(device):
        more.append(Parameter("early", (False, True), begins_early(size, device), _EARLY_MEANING))
    orders = (layout.NATURAL,) if _near(matrix, device) is None else (layout.NATURAL, layout.BY_LEVELS)
    return (
        Parameter("variant", fitting, fitting[0], "SpMV variant and its lanes"),
        Parameter("partitioner", orders, layout.NATURAL, "order of the rows"),
        Parameter("block", BLOCKS, CudaSweep.block, "threads per block"),
        Parameter("once", (False, True), CudaSweep.once, "mark matrix data as not to be kept in cache"),
        Parameter("sigma", WINDOWS, CudaSweep.sigma, "rows per sorting window of sliced ELL, 1 for none"),
        Parameter("pad", PADS, CudaSweep.pad, "padding factor of pcsr"),
        Parameter(
            "ahead", AHEADS, CudaSweep.ahead, "partitions of pcsr that a block takes, each loaded ahead of its use"
        ),
        Parameter("stored", tuple(ways_of(matrix)), CudaSweep.stored, "what values are stored as"),
        *more,
    )


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
    plans = [Plan(schedule.backend, schedule.name, name, k=k, k_per_pass=1, options=options) for name, options in found]
    near = _near(matrix, device)
    if near is not None:
        plans += [plan.replace(partitioner=BY_LEVELS) for plan in starts(schedule, near, device, k)]
    return tuple(plan for plan in plans if schedule.feasible(plan, matrix, device) is None)
