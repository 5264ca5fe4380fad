"""The options of plans of `wavefront` on the GPU, and the values that a search tries."""

from __future__ import annotations

from akx.backends.cuda.value_compression.encodings import STORED
from akx.backends.cuda.variants.options import LANES
from akx.core.plan import Option

__all__ = ["BLOCKS", "DIA", "HELD_SLOTS", "HELPERS", "OPTIONS", "SLACKS", "SLICES", "VARIANTS"]

#: Diagonals, one lane a row.
DIA = "dia"
#: Sliced ELL with 16-bit columns and so many lanes a row, or diagonals.
VARIANTS = (*(f"sell16-{lanes}" for lanes in LANES), DIA)
BLOCKS = (128, 192, 256, 384, 512, 640, 768)
HELPERS = (128, 256)
SLICES = (1, 2, 3, 4, 6)
HELD_SLOTS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 16, 18, 20, 24, 28, 32, 36)
SLACKS = (0, 1, 2)
OPTIONS: dict[str, tuple[Option, ...]] = {
    "block": BLOCKS,
    "helpers": HELPERS,
    "slices": SLICES,
    "held_slots": HELD_SLOTS,
    "slack": SLACKS,
    "stored": STORED,
}
