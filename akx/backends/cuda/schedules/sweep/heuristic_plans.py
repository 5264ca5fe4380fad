"""Which plain products a call may take unseen on a GPU, and what they make it do
(:mod:`akx.backends.cuda.cost.model`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from akx.backends.cuda.cost.model import Work
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.schedules.sweep import layout
from akx.backends.cuda.schedules.sweep import options as sweep_space
from akx.backends.cuda.schedules.sweep.cost import (
    csr_work,
    hubs_work,
    looked_up,
    outside_work,
    pcsr_work,
    rows16_work,
    sell_work,
    vbell_work,
)
from akx.backends.cuda.value_compression.encodings import FULL, TABLE, stored_bytes, way_of, ways_of
from akx.backends.cuda.variants import hot_columns as hubs
from akx.backends.cuda.variants import vbell
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from akx.formats import pcsr

__all__ = ["offers", "work"]

#: Most of it that is kept, and share of the price of a launch where kernels begin early: of a matrix that is in L2, and
#: of one that is not.
_KEPT, _EARLY, _EARLY_FAR = 0.5, 0.6, 0.3
#: Layouts of which no lane comes back to a sector.
_PASSING = (layout.SELL, layout.PCSR, layout.WITH_HUBS, layout.VBELL)
#: Threads that vbell numbers, about.
_MOST_LANES = 2**31
#: Slots over those of rows as they come, from which on it is not worth it to sort rows unseen.
_SORTED = 0.9


def work(plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int) -> Work:
    """What the plan makes the device do, for so many start vectors."""
    way = way_of(layout.storable(plan, matrix))
    found = _passing(
        plan, matrix, device, vectors, _work(plan, matrix, device, vectors, stored_bytes(way, matrix.dtype))
    )
    kind = None if way != TABLE else layout.kind_of(plan.variant)[0]
    if kind not in (layout.CSR, layout.SELL, layout.PCSR):  # of others it is hidden by what they do
        return found
    slots = _stored(matrix, plan.variant, plan.typed.sigma, plan.typed.pad)
    return looked_up(found, device, slots, float(plan.k * vectors), in_csr=kind == layout.CSR)


def _passing(plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int, found: Work) -> Work:
    """The work where some of the matrix stays in L2, and where steps begin early."""
    keep, is_early = int(plan.typed.keep), plan.typed.early
    if not keep and not is_early:
        return found
    size = layout.bytes_of(plan, matrix)
    vector = float(matrix.n * matrix.dtype.itemsize * vectors)
    # Of what comes from memory, the matrix has its share; of that, what stays does not come.
    kept = min(2.0**20 * keep, _KEPT * device.l2_bytes, size) / max(size + 2.0 * vector, 1.0)
    early = (_EARLY_FAR if size > device.l2_bytes else _EARLY) if is_early else 1.0
    return replace(found, memory_bytes=found.memory_bytes * (1.0 - kept), launches=found.launches * early)


def _work(plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int, value: int) -> Work:
    """The same for values of so many bytes that are where they are read."""
    if layout.other_of(plan) is not None:
        return outside_work(matrix, device, plan.k, vectors, layout.bytes_of(plan, matrix))
    kind, lanes, bits = layout.kind_of(plan.variant)
    if kind == layout.CSR:
        return csr_work(matrix, device, plan.k, vectors, lanes, value)
    if kind == layout.VBELL:
        return vbell_work(matrix, device, plan.k, vectors, lanes, value)
    if kind == layout.WITH_HUBS:
        room = plan.typed.hubs
        share, slots = hubs.share(matrix, room), hubs.slots_of(matrix)
        return hubs_work(matrix, device, plan.k, vectors, slots, room * 1024, share, value)
    pad, sigma = plan.typed.pad, plan.typed.sigma
    slots = layout.slots_in(matrix, kind, pad, sigma)
    if kind == layout.SELL:
        return sell_work(matrix, device, plan.k, vectors, lanes, slots=slots, bits=bits, order=sigma > 1, value=value)
    if kind == layout.ROWS16:
        return rows16_work(matrix, device, plan.k, vectors, slots, value)
    return pcsr_work(matrix, device, plan.k, vectors, slots, pad, plan.typed.ahead, value)


def offers(schedule: Any, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
    """Plans that a call may take unseen: every variant, with the options that its size asks for.

    First with values as they are, then in each other way in which these can be stored, with the same options. Of matrix
    data that L2 cannot hold, values in full, some are asked to stay and the others marked as not to be kept, where no
    lane comes back to a sector (so they are with fewer bytes: results pass through L2 as well), and steps begin early,
    as they do where all is small; a block takes as many partitions of pcsr as leave one for each place for a block.
    """
    plans = []
    for variant in sweep_space.preferred(matrix, device):
        kind, lanes, bits = layout.kind_of(variant)
        if kind in (layout.WITH_HUBS, layout.VBELL) and not schedule._fits(variant, matrix, device):
            continue
        if kind == layout.VBELL and (matrix.nnz == 0 or matrix.n * lanes >= _MOST_LANES):
            continue
        padded = kind == layout.SELL and _SORTED * layout.slots_in(matrix, kind, 4, 1) > matrix.nnz
        for sigma in sweep_space.WINDOWS if padded else (1,):
            if kind != layout.WITH_HUBS and schedule._variant_reason(variant, matrix, 4, sigma) is not None:
                continue
            stored = _stored(matrix, variant, sigma)
            if sigma > 1 and stored > _SORTED * layout.slots_in(matrix, kind, 4, 1):
                continue
            size = stored * (matrix.dtype.itemsize + bits / 8)
            beyond = size > sweep_space.FAR_BEYOND * device.l2_bytes
            passes = beyond and kind in _PASSING
            options: dict[str, Option] = {"once": passes, "sigma": sigma}
            if passes:
                options["keep"] = sweep_space.usual_keep(device)
            if sweep_space.begins_early(size, device):
                options["early"] = True
            if kind == layout.WITH_HUBS:
                options["hubs"] = hubs.usual_room(device)
            if kind == layout.PCSR:
                places = max(1, device.sms * 2048 // 256)
                partitions = stored // pcsr.PARTITION
                options["ahead"] = max(
                    ahead for ahead in sweep_space.AHEADS if ahead == 1 or partitions >= ahead * places
                )
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


def _stored(matrix: Matrix, variant: str, sigma: int, pad: int = 4) -> int:
    """Slots of the layout."""
    kind, lanes, _ = layout.kind_of(variant)
    if kind == layout.VBELL:
        return vbell.slots(matrix, lanes)
    if kind == layout.WITH_HUBS:
        return hubs.slots_of(matrix)
    return matrix.nnz if kind == layout.CSR else layout.slots_in(matrix, kind, pad, sigma)
