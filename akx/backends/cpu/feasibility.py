"""Reasons why a plan of the CPU cannot be prepared: its order of the rows, its variant, its options."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from akx.backends.cpu.layout import block_of, block_size, known_of, ordered
from akx.backends.cpu.variants import VARIANTS, Given, Known, index_bits, layout_of
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.base import Pattern
from akx.formats.symmetry import has_symmetric_values

__all__ = ["basic_reason", "block_plan_reason", "outside_reason", "unknown_variant", "variant_reason", "variants_for"]

#: In the cache of a matrix, whether its values are symmetric.
_SYMMETRIC = "akx.backends.cpu.symmetric"


def basic_reason(plan: Plan, matrix: Matrix, orders: tuple[str, ...]) -> str | None:
    """Why this plan's order or variant cannot be laid out, or None."""
    if plan.backend != "cpu":
        return f"this schedule runs on the cpu, not on {plan.backend}"
    if plan.partitioner not in orders:
        return f"no partitioner {plan.partitioner!r} here, expected one of {', '.join(orders)}"
    if plan.variant not in VARIANTS:
        return unknown_variant(plan.variant)
    layout = layout_of(plan.variant)
    if layout.has_blocks and plan.partitioner != "natural":
        return "a new order of the rows breaks the dense blocks up"
    sigma = plan.typed.sigma
    if sigma > 1 and not layout.sorts:
        return f"sigma is for sliced ELL, not for {plan.variant}"
    reason = variant_reason(
        plan.variant,
        ordered(matrix, plan.partitioner).pattern,
        matrix.dtype,
        sigma=sigma,
        block=block_of(plan, matrix),
        known=known_of(matrix, plan.partitioner, plan.threads),
    )
    return reason or _reason_of_values(plan.variant, matrix)


def block_plan_reason(plan: Plan) -> str | None:
    """Why this plan's block size makes no sense for a schedule with blocks, or None."""
    return None if plan.block_bytes >= 1024 else f"block_bytes is {plan.block_bytes}, expected at least 1024"


def outside_reason(plan: Plan) -> str | None:
    """Why a plan with a variant of another package makes no sense, whatever the matrix, or None."""
    if plan.partitioner != "natural":
        return f"{plan.variant} takes rows in their own order, not in that of {plan.partitioner}"
    if plan.typed.sigma != 1:
        return f"sigma is for sliced ELL, not for {plan.variant}"
    return None


def variant_reason(
    variant: str, pattern: Pattern, dtype: np.dtype[Any], *, sigma: int, block: int, known: Known
) -> str | None:
    """None where `pattern` can be laid out as `variant`, else why not."""
    if variant not in VARIANTS:
        return unknown_variant(variant)
    given = Given(pattern, dtype, index_bits(variant, pattern.columns), sigma, block, known)
    make = partial(layout_of(variant).reason_against, given)
    reason: str | None = known.of("variant", variant, dtype.str, sigma, block, make=make)
    return reason


def _reason_of_values(variant: str, matrix: Matrix) -> str | None:
    """Why the values cannot be stored as a variant that can have their pattern, or None; they are looked at once."""
    if not layout_of(variant).is_symmetric:
        return None
    if _SYMMETRIC not in matrix.cache:
        matrix.cache[_SYMMETRIC] = has_symmetric_values(matrix.indptr, matrix.indices, matrix.data)
    return None if matrix.cache[_SYMMETRIC] else "its values are not symmetric"


def unknown_variant(variant: str) -> str:
    """Why a plan with it cannot be laid out."""
    return f"unknown variant {variant!r}, known are {', '.join(VARIANTS)}"


def variants_for(matrix: Matrix, partitioner: str, *, sigma: int = 1, threads: int = 1) -> tuple[str, ...]:
    """The variants that `matrix` can be laid out as in the order of `partitioner`; so many threads may find out."""
    pattern, known = ordered(matrix, partitioner).pattern, known_of(matrix, partitioner, threads)
    block = block_size(matrix) if partitioner == "natural" else 1

    def reason(variant: str) -> str | None:
        window = sigma if layout_of(variant).sorts else 1
        found = variant_reason(variant, pattern, matrix.dtype, sigma=window, block=block, known=known)
        return found or _reason_of_values(variant, matrix)

    return tuple(variant for variant in VARIANTS if reason(variant) is None)
