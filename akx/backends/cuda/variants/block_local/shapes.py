"""Dense blocks that a matrix is made of, and the shapes that plans in blocks may have: lanes, slices, slots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import ceil, inf

import numpy as np

from akx.backends.cuda.matrix import features
from akx.backends.cuda.matrix.features import OnDevice
from akx.backends.cuda.row_lengths import Measured, measured, measured_rows
from akx.backends.cuda.variants.options import LANES, SHAPES
from akx.backends.cuda.variants.similar_rows import alike_share, natural_nodes_of, twin_share
from akx.backends.pattern_cache import per_pattern
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.base import LatePattern, Pattern, pattern_of
from akx.formats.block_local import WARP, Blocked, Shape, blocks_of, cut_blocks, full_blocks
from akx.formats.supervariables import Supervariables, of_nodes, supervariables

__all__ = [
    "DIRECT",
    "EXCHANGES",
    "FLAGS",
    "RESULTS",
    "STAGED",
    "VALUES",
    "best_shape",
    "blocked_of",
    "column_shapes",
    "fill_of",
    "filled_rows",
    "fitting_block",
    "fitting_variants",
    "is_listed",
    "is_staged",
    "may_wait_for_values",
    "measured_nodes",
    "nodes_of",
    "nodes_there",
    "padding",
    "results_apart",
    "rows_follow",
    "shape_of",
    "slices_per_part",
    "values_in",
    "waits_for_values",
    "widest",
]

#: How results come in the order of rows: each row where it belongs at once, or through a stage.
RESULTS = DIRECT, STAGED = ("direct", "staged")
#: What a part waits for: values of others themselves, or flags that say that they are there.
EXCHANGES = VALUES, FLAGS = ("values", "flags")
#: Share of the rows that must be like the row before, or like any, for nodes of mixed sizes, or anywhere, to be looked
#: for.
_LEAST_ALIKE = 1.0 / 3.0
#: Entries over values in blocks, at least, where nodes are not all of one size; and bytes over the fewest, at most, of
#: the blocks that are tried for them.
_LEAST_FILL, _NEAR_BEST = 0.8, 1.05
#: Places over entries up to which rows are worth so many lanes.
_MOST_PADDING = 2.0


def shape_of(plan: Plan) -> Shape:
    """The form of the plan's slots."""
    options = plan.typed
    return _shape(plan.variant, options.block // WARP, options.held_slices, options.held_slots)


@lru_cache(maxsize=1024)
def _shape(variant: str, warps: int, held_slices: int, held_slots: int) -> Shape:
    block, lanes = variant.split("-")
    br, bc = block.split("x")
    return Shape(int(br), int(bc), int(lanes), warps, held_slices, held_slots)


def is_staged(plan: Plan) -> bool:
    """Whether results come in the order of rows through a stage."""
    return bool(plan.typed.results == STAGED)


def may_wait_for_values(plan: Plan) -> bool:
    """Whether parts exchange x between steps in such a way that they may wait for values or for flags."""
    exchanges = plan.typed.x == "shared" and plan.typed.depth < plan.k
    return exchanges and not is_staged(plan)


def waits_for_values(plan: Plan) -> bool:
    """Whether parts look for what others publish until it is there, and not for a flag that says so."""
    return plan.typed.exchange == VALUES and may_wait_for_values(plan)


@per_pattern
def blocked_of(matrix: Matrix, bc: int) -> Blocked | None:
    """The matrix in dense blocks of nodes of (up to) bc rows, None where it is not made of them."""
    found = _full(matrix, bc)
    if found is None and (sets := _sets(matrix)) is not None:
        found = cut_blocks(pattern_of(matrix), sets, bc)
    return found


def nodes_of(matrix: Matrix, bc: int) -> Pattern | None:
    """The pattern of nodes of (up to) bc rows, None where the matrix is not made of dense blocks of them."""
    blocked = blocked_of(matrix, bc)
    return None if blocked is None else blocked.pattern


def filled_rows(matrix: Matrix, bc: int) -> int:
    """Rows of the matrix and those that fill its nodes up to bc."""
    node = nodes_of(matrix, bc)
    assert node is not None
    return node.rows * bc


def is_listed(matrix: Matrix, bc: int) -> bool:
    """Whether the rows of nodes of up to bc rows, of which there are some, are listed."""
    blocked = blocked_of(matrix, bc)
    return blocked is not None and blocked.listed is not None


def rows_follow(matrix: Matrix, bc: int) -> bool:
    """Whether rows of nodes of up to bc rows, of which there are some, follow one another."""
    blocked = blocked_of(matrix, bc)
    return blocked is not None and blocked.contiguous


def results_apart(plan: Plan, matrix: Matrix) -> bool:
    """Whether rows of a part lie anywhere in the results."""
    return plan.partitioner != "natural" or not rows_follow(matrix, shape_of(plan).bc)


@per_pattern
def _full(matrix: Matrix, bc: int) -> Blocked | None:
    """The matrix in blocks of bc x bc that have no padding; on the device their columns stay there until asked for."""
    if features.of(matrix) is None:
        return full_blocks(pattern_of(matrix), bc)
    if bc == 1:
        return Blocked(pattern_of(matrix), 1, matrix.n)
    there = nodes_there(matrix, bc)
    if there is None:
        return None
    return Blocked(LatePattern(there.rows, there.column.size, there.pointer.get, there.column.get), bc, matrix.n)


def nodes_there(matrix: Matrix, bc: int) -> OnDevice | None:
    """The pattern of nodes of bc rows on the device; None where they are not all of one size, or of the host."""
    there = features.of(matrix)
    return there if there is None or bc == 1 else _all_nodes_there(matrix).get(bc)


@per_pattern
def _all_nodes_there(matrix: Matrix) -> dict[int, OnDevice]:
    there = features.of(matrix)
    assert there is not None
    return {size: features.blocks_of_nodes(there, size) for size in features.full_blocks(there)}


def measured_nodes(matrix: Matrix, bc: int) -> Measured | None:
    """What :func:`measured_rows` tells, of nodes of bc rows; None where :func:`nodes_there` is."""
    if bc == 1 or nodes_there(matrix, bc) is None:
        return measured_rows(matrix) if bc == 1 else None
    return _measured_nodes(matrix, bc)


@per_pattern
def _measured_nodes(matrix: Matrix, bc: int) -> Measured:
    there = nodes_there(matrix, bc)
    assert there is not None
    return measured(*there)


@per_pattern
def _sets(matrix: Matrix) -> Supervariables | None:
    """What nodes are cut from; None where they are of one size, or a look says that hardly any row is like another."""
    wide = {bc for _, bc in SHAPES if bc > 1}
    if matrix.n >= max(wide) and not any(_full(matrix, bc) for bc in wide):
        rows = measured_rows(matrix)
        none = int(np.count_nonzero(np.diff(matrix.indptr) == 0)) if rows is None else rows.empty  # they are alike
        if alike_share(matrix) - none / matrix.n >= _LEAST_ALIKE:
            return of_nodes(natural_nodes_of(matrix))
        if twin_share(matrix) >= _LEAST_ALIKE:
            return supervariables(pattern_of(matrix))
    return None


@per_pattern
def fill_of(matrix: Matrix, bc: int) -> float:
    """Entries over values in blocks of nodes of up to bc rows, the padding of rows not counted; 0 without such."""
    if _full(matrix, bc) is not None:
        return 1.0
    sets = _sets(matrix)
    return 0.0 if sets is None else matrix.nnz / max(blocks_of(sets, bc) * bc * bc, 1)


def _bytes_in(matrix: Matrix, shape: tuple[int, int]) -> float:
    """Bytes that an entry takes in blocks of that shape, its share of the padding and of a column included."""
    br, bc = shape
    fill = fill_of(matrix, bc)
    return (matrix.dtype.itemsize + 2.0 / (br * bc)) / fill if fill >= _LEAST_FILL else inf


def column_shapes(matrix: Matrix) -> tuple[tuple[int, int], ...]:
    """The dense blocks that the matrix is made of, or that take fewer bytes than its entries one by one."""
    return _column_shapes(matrix, matrix.dtype.itemsize)


@per_pattern
def _column_shapes(matrix: Matrix, size: int) -> tuple[tuple[int, int], ...]:
    single = size + 2.0
    return tuple(shape for shape in SHAPES if shape == (1, 1) or _bytes_in(matrix, shape) < single)


def best_shape(matrix: Matrix) -> tuple[int, int]:
    """The dense blocks that take the fewest bytes."""
    return min(column_shapes(matrix), key=lambda shape: (_bytes_in(matrix, shape), shape))


@per_pattern
def padding(matrix: Matrix, lanes: int, bc: int) -> float:
    """Places over blocks where rows are dealt to `lanes` lanes, the padding of slices not counted."""
    node, known = nodes_of(matrix, bc), measured_nodes(matrix, bc)
    assert node is not None
    if known is not None and lanes in known.dealt:
        return float(known.dealt[lanes]) / max(node.nnz, 1)
    lengths = np.diff(node.indptr.astype(np.int64))
    return float((-(-lengths // lanes) * lanes).sum()) / max(node.nnz, 1)


def values_in(matrix: Matrix, shape: Shape) -> float:
    """Values in slots, the padding of slices not counted."""
    node = nodes_of(matrix, shape.bc)
    assert node is not None
    return node.nnz * shape.bc**2 * padding(matrix, shape.lanes, shape.bc)


def fitting_variants(matrix: Matrix) -> tuple[str, ...]:
    """The variants of the widest dense blocks that the matrix is made of, with lanes that its rows are long enough for.

    Narrower blocks hold the same entries with more columns; they are possible, and never the better plan. Of other
    nodes wider blocks have more padding: there those that take hardly more bytes than the best ones are variants, these
    first, and single entries.
    """
    fitting = []
    shapes: Iterable[tuple[int, int]] = column_shapes(matrix)
    if _sets(matrix) is not None:
        taken = {shape: _bytes_in(matrix, shape) for shape in shapes}
        near = (shape for shape in taken if shape == (1, 1) or taken[shape] <= _NEAR_BEST * min(taken.values()))
        shapes = sorted(near, key=lambda shape: (taken[shape], shape))
    else:
        widest = max(wide for _, wide in shapes)
        shapes = (shape for shape in shapes if shape[1] == widest)
    for br, bc in shapes:
        lanes = (n for n in LANES if padding(matrix, n, bc) <= _MOST_PADDING)
        fitting += [f"{br}x{bc}-{n}" for n in lanes]
    return tuple(fitting)


@per_pattern
def widest(matrix: Matrix, bc: int) -> int:
    """Dense blocks of the longest block row."""
    node, known = nodes_of(matrix, bc), measured_nodes(matrix, bc)
    assert node is not None
    return int(np.diff(node.indptr.astype(np.int64)).max(initial=0)) if known is None else known.longest


def slices_per_part(matrix: Matrix, shape: Shape, parts: int, growth: float) -> int:
    """Slices of a part that computes `growth` times the rows of an equal share."""
    rows = filled_rows(matrix, shape.bc) / shape.br * growth / max(parts, 1)
    return max(1, ceil(rows * shape.lanes / WARP))


def fitting_block(slices: int, blocks: Sequence[int]) -> int:
    """The fewest threads that give each slice a warp, or the most there are."""
    return next((threads for threads in blocks if threads // WARP >= slices), blocks[-1])
