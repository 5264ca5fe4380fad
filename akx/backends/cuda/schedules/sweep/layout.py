"""What the layouts of `sweep` on the GPU are: kinds of variants, their slots and bytes, and the host's layout."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from akx.backends import registry
from akx.backends.cuda.matrix.level_order import by_levels
from akx.backends.cuda.program import C_TYPES
from akx.backends.cuda.row_lengths import measured_rows
from akx.backends.cuda.value_compression.encodings import in_full, is_storable, stored_bytes, way_of
from akx.backends.cuda.variants import hot_columns as hubs
from akx.backends.cuda.variants import vbell
from akx.backends.cuda.variants.hot_columns import HUBS
from akx.backends.cuda.variants.outside import CudaVariant
from akx.backends.cuda.variants.slots import SLICE
from akx.backends.cuda.variants.swept import how_data_comes, stored_name
from akx.backends.pattern_cache import fact
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats import pcsr, sell
from akx.formats.base import Format, lengths_of, pattern_of

__all__ = [
    "BY_LEVELS",
    "CSR",
    "NATURAL",
    "PCSR",
    "ROWS16",
    "SELL",
    "VBELL",
    "WITH_HUBS",
    "bytes_of",
    "in_order",
    "kind_of",
    "lay_out",
    "macros",
    "other_of",
    "slots_in",
    "storable",
    "stored_slots",
]

#: Orders of the rows: as they are given, and by breadth-first levels.
NATURAL, BY_LEVELS = "natural", "levels"
CSR, ROWS16, PCSR, SELL, WITH_HUBS, VBELL = 1, 2, 3, 4, 5, 6


@lru_cache(maxsize=256)
def kind_of(variant: str) -> tuple[int, int, int]:
    """The layout, threads per row and bits of a column."""
    if variant == "rows16":
        return ROWS16, 16, 32
    if variant == "pcsr":
        return PCSR, 1, 32
    if variant == HUBS:
        return WITH_HUBS, 1, 32
    name, lanes = variant.split("-")
    if name == "vbell":
        return VBELL, int(lanes), 32
    return (CSR, int(lanes), 32) if name == "csr" else (SELL, int(lanes), 16 if name == "sell16" else 32)


def in_order(plan: Plan, matrix: Matrix) -> tuple[Plan, Matrix]:
    """A plan for rows as they come, and the matrix with its rows in the order of the plan that was given.

    Raises :class:`InfeasibleError` where there is none.
    """
    if plan.partitioner != BY_LEVELS:
        return plan, matrix
    return plan.replace(partitioner=NATURAL), by_levels(matrix)


def slots_in(matrix: Matrix, kind: int, pad: int, sigma: int) -> int:
    """Slots stored; a fact of the pattern."""

    def found() -> int:
        rows = measured_rows(matrix)
        if kind == SELL:
            known = None if rows is None else rows.slots.get(sigma)
            return sell.sell_slots(lengths_of(matrix), matrix.dtype, sigma, chunk=SLICE) if known is None else known
        multiple = 16 if kind == ROWS16 else pad
        if rows is None:
            return pcsr.pcsr_slots(lengths_of(matrix), multiple)
        return -(-rows.padded[multiple] // pcsr.PARTITION) * pcsr.PARTITION

    return int(fact(matrix, ("akx.backends.cuda.variants.slots", kind, pad, sigma), found))


def lay_out(matrix: Matrix, plan: Plan) -> Format:
    """The matrix's pattern in the plan's variant; values are zero. The caller has asked ``feasible``.

    `hubs` and `vbell` have layouts of their own (:func:`akx.backends.cuda.variants.hot_columns.lay_out`,
    :mod:`akx.formats.vbell`).
    """
    kind, _, bits = kind_of(plan.variant)
    assert kind not in (WITH_HUBS, VBELL)
    pattern = pattern_of(matrix)
    if kind == SELL:
        sigma = plan.typed.sigma
        return sell.from_csr(pattern, matrix.dtype, sigma=sigma, bits=bits, chunk=SLICE)
    pad = 1 if kind == CSR else 16 if kind == ROWS16 else plan.typed.pad
    return pcsr.from_csr(pattern, matrix.dtype, pad=pad)


def macros(plan: Plan, dtype: np.dtype[Any], vectors: int, stored: np.dtype[Any] | None = None) -> dict[str, int | str]:
    """The macros of the plan's kernels for so many start vectors; `hubs` and `vbell` have their own.

    `stored` is the type that values are stored as, their own by default.
    """
    kind, lanes, bits = kind_of(plan.variant)
    assert kind not in (WITH_HUBS, VBELL)
    found: dict[str, int | str] = {
        "AKX_VALUE": C_TYPES[dtype.name],
        "AKX_STORED": stored_name(dtype if stored is None else stored),
        "AKX_VECTORS": vectors,
        "AKX_VARIANT": kind,
        "AKX_ONCE": how_data_comes(plan),
    }
    if kind in (CSR, SELL):
        found["AKX_LANES"] = lanes
    if kind == SELL:
        found["AKX_INDEX"] = f"u{bits}"
    if kind == PCSR:
        found |= {"AKX_PAD": plan.typed.pad, "AKX_AHEAD": plan.typed.ahead}
    return found


def bytes_of(plan: Plan, matrix: Matrix) -> float:
    """Bytes of the matrix as a plan has it."""
    other = other_of(plan)
    if other is not None:
        return other.stored_bytes(matrix)
    kind, lanes, bits = kind_of(plan.variant)
    slots, indices = float(matrix.nnz), bits / 8
    if kind == WITH_HUBS:
        slots = float(hubs.slots_of(matrix))
    elif kind == VBELL:
        slots = float(vbell.slots(matrix, lanes))
        indices *= vbell.nodes_of(matrix).blocks / max(vbell.nodes_of(matrix).slots, 1)
    elif kind != CSR:
        slots = float(slots_in(matrix, kind, plan.typed.pad, plan.typed.sigma))
    rows = matrix.n / (SLICE / 2) if kind == SELL else slots / 16 if kind == WITH_HUBS else float(matrix.n)
    return slots * (stored_bytes(way_of(storable(plan, matrix)), matrix.dtype) + indices) + 4.0 * rows


def other_of(plan: Plan) -> CudaVariant | None:
    """The variant of another package that a plan has; None of akx's own."""
    found = registry.variant("cuda", plan.variant)
    assert found is None or isinstance(found, CudaVariant)
    return found


def storable(plan: Plan, matrix: Matrix) -> Plan:
    """The plan, with values in full where those of the matrix cannot be stored as it says."""
    return plan if is_storable(plan, matrix) else in_full(plan)


def stored_slots(matrix: Matrix, variant: str, sigma: int, pad: int = 4) -> int:
    """Slots of the layout."""
    kind, lanes, _ = kind_of(variant)
    if kind == VBELL:
        return vbell.slots(matrix, lanes)
    if kind == WITH_HUBS:
        return hubs.slots_of(matrix)
    return matrix.nnz if kind == CSR else slots_in(matrix, kind, pad, sigma)
