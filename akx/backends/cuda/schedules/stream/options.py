"""The options of plans of `stream` on the GPU, and the values that a search tries."""

from __future__ import annotations

from akx.backends.cuda.variants.options import LANES
from akx.core.plan import FULL, Option

__all__ = [
    "AHEADS",
    "BLOCKS",
    "FRONTS",
    "HOST_VARIANTS",
    "MOVE",
    "OPTIONS",
    "PARTITIONERS",
    "SHARES",
    "STORED",
    "TRIANGLE",
    "VARIANTS",
    "VECTORS",
]

PARTITIONERS = ("natural", "rcm")
VARIANTS = tuple(f"{name}-{lanes}" for name in ("sell16", "sell") for lanes in LANES)
BLOCKS, VECTORS, MOVE, AHEADS = (128, 256, 512), (1, 2, 4, 8), ("kernel", "copy", "direct"), (1, 2, 3, 4)
SHARES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
#: SpMV variants of the processor's rows; those by diagonals read what is not theirs.
HOST_VARIANTS = ("csr", "csr16", "sell", "sell16", "bell", "bell16")
#: What of the matrix travels: all, or one triangle of a symmetric one.
TRIANGLE = "triangle"
STORED = (FULL, TRIANGLE)
#: How its threads do the powers of a pass: all of them in one front, each in one of its own, or one after another.
FRONTS = ("shared", "own", "none")
OPTIONS: dict[str, tuple[Option, ...]] = {
    "block": BLOCKS,
    "vectors": VECTORS,
    "move": MOVE,
    "ahead": AHEADS,
    "stays": (True, False),
    "host": HOST_VARIANTS,
    "front": FRONTS,
    "stored": STORED,
}
