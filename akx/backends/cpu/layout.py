"""From a matrix and a plan to arrays: the order of the rows, and the variant's layout.

Orders are memoised with the pattern (a permutation does not depend on values), so that the tuner pays for each once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cpu.variant_table import VARIANTS
from akx.backends.cpu.variants import Given, Known, index_bits, layout_of
from akx.core.canonical import read_only
from akx.core.errors import InfeasibleError
from akx.core.features import dense_block_size
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.base import Format, Pattern, pattern_of, unsigned
from akx.partition.base import inverse_permutation
from akx.partition.levels import levels, rcm
from akx.partition.permutation import permute

__all__ = [
    "VARIANTS",
    "Known",
    "Ordered",
    "bytes_per_entry",
    "given_of",
    "known_of",
    "lay_out",
    "ordered",
    "unknown_variant",
    "variant_reason",
    "variants_for",
]

#: Revisions of variants, where not 1 (:mod:`akx.backends.revisions`).
REVISIONS: dict[str, int] = {}


@dataclass(frozen=True)
class Ordered:
    """A matrix pattern in the order of a partitioner.

    Attributes
    ----------
    pattern : Pattern
        P A P^T, or A itself in natural order.
    order, place : (n,) arrays, or (0,) in natural order
        order[new] = old and place[old] = new.
    entries : (nnz,) array or None
        ``data_new = data[entries]``.
    """

    pattern: Pattern
    order: NDArray[Any]
    place: NDArray[Any]
    entries: NDArray[Any] | None


def ordered(matrix: Matrix, partitioner: str) -> Ordered:
    """The pattern of `matrix` in the order of `partitioner` ("natural", "rcm" or "levels"); memoised."""
    key = ("akx.backends.cpu.ordered", partitioner)
    found = matrix.pattern_cache.get(key)
    if found is None:
        found = matrix.pattern_cache[key] = _order(matrix, partitioner)
    result: Ordered = found
    return result


def _order(matrix: Matrix, partitioner: str) -> Ordered:
    nothing = read_only(np.zeros(0, dtype=np.uint32))
    if partitioner == "natural":
        return Ordered(pattern_of(matrix), nothing, nothing, None)
    if partitioner == "rcm":
        permutation = rcm(matrix.indptr, matrix.indices)
    elif partitioner == "levels":
        permutation = levels(matrix.indptr, matrix.indices).permutation
    else:
        raise InfeasibleError(f"partitioner {partitioner!r} gives no row order", expected="natural, rcm or levels")
    indptr, indices, entries = permute(matrix.indptr, matrix.indices, permutation)
    return Ordered(
        Pattern(unsigned(indptr), unsigned(indices), matrix.n),
        read_only(np.ascontiguousarray(permutation, dtype=np.uint32)),
        read_only(np.ascontiguousarray(inverse_permutation(permutation), dtype=np.uint32)),
        entries,
    )


def block_size(matrix: Matrix) -> int:
    """The unknowns per node found in the pattern, 1 where there is no natural block; memoised with the pattern.

    The matrix's other features are not needed to make a program and cost far more, so they are not asked for.
    """
    key = "akx.backends.cpu.block_size"
    if key not in matrix.pattern_cache:
        matrix.pattern_cache[key] = dense_block_size(matrix.indptr, matrix.indices)[0]
    return int(matrix.pattern_cache[key])


def known_of(matrix: Matrix, partitioner: str, threads: int = 1) -> Known:
    """What is known of a matrix in an order; kept with its pattern."""
    return Known(matrix.pattern_cache, partitioner, threads)


def given_of(plan: Plan, matrix: Matrix) -> Given:
    """What a plan with a known variant lays out, and how; its options are those that the variant has."""
    layout, natural = layout_of(plan.variant), plan.partitioner == "natural"
    return Given(
        ordered(matrix, plan.partitioner).pattern,
        matrix.dtype,
        index_bits(plan.variant, matrix.n),
        plan.typed.sigma if layout.sorts else 1,
        block_size(matrix) if layout.has_blocks and natural else 1,
        known_of(matrix, plan.partitioner, plan.threads),
    )


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


def unknown_variant(variant: str) -> str:
    """Why a plan with it cannot be laid out."""
    return f"unknown variant {variant!r}, known are {', '.join(VARIANTS)}"


def variants_for(matrix: Matrix, partitioner: str, *, sigma: int = 1, threads: int = 1) -> tuple[str, ...]:
    """The variants that `matrix` can be laid out as in the order of `partitioner`; so many threads may find out."""
    pattern, known = ordered(matrix, partitioner).pattern, known_of(matrix, partitioner, threads)
    block = block_size(matrix) if partitioner == "natural" else 1

    def reason(variant: str) -> str | None:
        window = sigma if layout_of(variant).sorts else 1
        return variant_reason(variant, pattern, matrix.dtype, sigma=window, block=block, known=known)

    return tuple(variant for variant in VARIANTS if reason(variant) is None)


def lay_out(
    pattern: Pattern, dtype: np.dtype[Any], variant: str, *, sigma: int, block: int, known: Known | None = None
) -> Format:
    """Lay `pattern` out as `variant`; the caller has asked :func:`variant_reason`. Values are not filled in."""
    bits = index_bits(variant, pattern.columns)
    return layout_of(variant).lay_out(Given(pattern, dtype, bits, sigma, block, known or Known({}, "")))


def bytes_per_entry(plan: Plan, matrix: Matrix) -> float:
    """Modelled bytes of matrix data per entry, padding left out: exact for CSR."""
    return layout_of(plan.variant).bytes_per_entry(given_of(plan, matrix))
