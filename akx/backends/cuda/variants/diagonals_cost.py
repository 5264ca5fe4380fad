"""Cost model of plans by diagonals on the GPU, and whether their parts fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.cost.model import in_cache
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.variants import diagonals
from akx.backends.cuda.variants.block_local.layout import shared_limit
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.cost.coefficients import coefficients
from akx.cost.counts import Work
from akx.formats.block_local import WARP

__all__ = ["is_compact", "work"]

_COST = coefficients("cuda", "diagonals")


def work(plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int) -> Work:
    """What the plan makes the device do, for so many start vectors."""
    per_sm, together = plan.typed.blocks_per_sm, plan.typed.vectors
    found, bands = (diagonals.extents(matrix), diagonals._bands(matrix, device.sms * plan.typed.blocks_per_sm))
    slots = _before(found.uniform + diagonals._EXTRA_WORK * found.scattered)[bands.cuts]
    slices = np.diff(bands.cuts)
    busiest = per_sm * float(
        (
            np.diff(slots) * _COST.values_cycles * together * matrix.dtype.itemsize / 8.0 + slices * _COST.slice_cycles
        ).max()
    )
    steps, vector = float(plan.k * -(-vectors // together)), float(matrix.n * matrix.dtype.itemsize * together)
    stored, rest = diagonals._stored(matrix), diagonals._rest(plan, matrix, device)
    cached = in_cache(stored + 2.0 * vector, device)
    return Work(
        loaded_bytes=(1.0 - cached) * (stored + 2.0 * vector),
        memory_bytes=steps * vector * (1.0 - cached),
        cache_bytes=steps * (rest + 2.0 * vector) + stored + vector,
        cycles=steps * busiest,
        chain=steps * _COST.step_wait_cycles,
        barriers=steps,
    )


def is_compact(plan: Plan, matrix: Matrix, device: CudaDevice) -> bool:
    """Whether every part fits with its window, which is at most twice its rows: else lists of nodes are shorter."""
    per_sm = plan.typed.blocks_per_sm
    bands = diagonals._bands(matrix, device.sms * per_sm)
    rows, window = np.diff(bands.cuts) * WARP, bands.high - bands.low
    limit = shared_limit(plan, device)
    offsets = 8 * (
        np.diff(_before(diagonals.extents(matrix).uniform)[bands.cuts]) + 3
    )  # of slots that are not in registers
    fits = int((diagonals.fixed_bytes(plan, bands, matrix.dtype.itemsize) + offsets).max()) <= limit
    return fits and bool((window <= 2 * rows).all()) and int(window.max()) < 2**16


def _before(counts: NDArray[Any]) -> NDArray[Any]:
    """Sums of what comes before each, and the sum of all."""
    return np.concatenate([[0], np.cumsum(counts)])
