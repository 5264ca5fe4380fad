"""The options of plans of `sweep` on the GPU, and the values that a search tries."""

from __future__ import annotations

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.value_compression.encodings import STORED
from akx.backends.cuda.variants.hot_columns import HUBS
from akx.backends.cuda.variants.options import LANES, ROOMS
from akx.core.plan import Option

__all__ = ["AHEADS", "BLOCKS", "KEEPS", "OPTIONS", "PADS", "VARIANTS", "WINDOWS", "keeps"]

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
#: Share of L2 that it can be asked to keep at most.
_MOST_KEPT = 0.5


def keeps(device: CudaDevice) -> tuple[int, ...]:
    """MiB that the L2 of the device may be asked to keep."""
    return tuple(keep for keep in KEEPS if keep * 2**20 <= _MOST_KEPT * device.l2_bytes)
