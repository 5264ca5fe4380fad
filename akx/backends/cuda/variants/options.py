"""What options of several schedules on the GPU may be; those of one alone are in its ``options`` module.

No program depends on what is in these modules: plans and trials stay valid where a search has more to choose from
(:mod:`akx.backends.revisions`). What an option means where a plan does not mention it is therefore not here.
"""

from __future__ import annotations

__all__ = [
    "BLOCKS",
    "CLUSTERS",
    "HELD_SLICES",
    "HELD_SLOTS",
    "LANES",
    "REVISIONS",
    "ROOMS",
    "SHAPES",
    "VARIANTS",
    "VECTORS",
    "WAVES",
]

#: Threads that share a row.
LANES = (1, 2, 4, 8)
#: Dense blocks that a lane takes where the matrix stays on the chip, rows x columns.
SHAPES = ((1, 1), (2, 2), (3, 3), (1, 3), (2, 6), (3, 6))
#: Variants there: the dense block and the lanes per block row.
VARIANTS = tuple(f"{br}x{bc}-{lanes}" for br, bc in SHAPES for lanes in LANES)
#: Revisions of variants, of all schedules, where not 1 (:mod:`akx.backends.revisions`): by name, or without the lanes.
REVISIONS: dict[str, int] = {}
#: Threads of a block there, slices of a warp in registers, slots of each of them, and start vectors at a time.
BLOCKS = (256, 384, 512, 640, 768, 1024)
HELD_SLICES, HELD_SLOTS = (0, 1, 2, 4, 6, 8), (1, 2, 3, 4, 5, 7, 9)
VECTORS = (1, 2, 4)
#: Blocks of a cluster, and times the blocks that are on the device at once.
CLUSTERS = (1, 2, 4, 8)
WAVES = (1, 2, 3, 4, 5, 6, 8, 12)
#: KiB of shared memory for the entries of x that are read most.
ROOMS = (32, 64, 96, 128, 160)
