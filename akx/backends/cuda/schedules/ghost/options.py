"""The options of plans of `ghost` on the GPU, and the values that a search tries."""

from __future__ import annotations

from akx.backends.cuda.variants.options import BLOCKS, CLUSTERS, HELD_SLICES, HELD_SLOTS, VECTORS, WAVES
from akx.core.plan import Option

__all__ = ["BLOCKS_PER_SM", "OPTIONS", "THREADS"]

BLOCKS_PER_SM = (1, 2, 3, 4, 6, 8)
THREADS = (128, *BLOCKS)
OPTIONS: dict[str, tuple[Option, ...]] = {
    "block": THREADS,
    "held_slices": HELD_SLICES,
    "held_slots": HELD_SLOTS,
    "blocks_per_sm": BLOCKS_PER_SM,
    "cluster": CLUSTERS,
    "waves": WAVES,
    "vectors": VECTORS,
}
