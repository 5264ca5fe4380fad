"""The options of plans of `resident` on the GPU, and the values that a search tries."""

from __future__ import annotations

from akx.backends.cuda.value_compression.encodings import STORED
from akx.backends.cuda.variants.block_local.shapes import EXCHANGES, RESULTS
from akx.backends.cuda.variants.options import BLOCKS, HELD_SLICES, HELD_SLOTS, VECTORS
from akx.core.options import CudaResident
from akx.core.plan import Option

__all__ = ["BLOCKS_PER_SM", "DEPTHS", "KEEP", "KEEPS", "OPTIONS", "PARTITIONERS", "PLACES"]

PARTITIONERS = ("natural", "metis")
PLACES = ("shared", "global")
#: MiB of the matrix that L2 is asked to keep, where a plan does not say.
KEEP = CudaResident.keep
#: And those that are tried; steps from one exchange to the next.
KEEPS = (0, 16, 24, 32, 40)
DEPTHS = (1, 2, 3, 4, 6, 8)
#: With two blocks on a multiprocessor one can work while the other waits.
BLOCKS_PER_SM = (1, 2, 4)
OPTIONS: dict[str, tuple[Option, ...]] = {
    "block": BLOCKS,
    "held_slices": HELD_SLICES,
    "held_slots": HELD_SLOTS,
    "x": PLACES,
    "keep": KEEPS,
    "vectors": VECTORS,
    "depth": DEPTHS,
    "blocks_per_sm": BLOCKS_PER_SM,
    "stored": STORED,
    "results": RESULTS,
    "exchange": EXCHANGES,
}
