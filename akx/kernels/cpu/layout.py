"""From a matrix and a plan to arrays: the order of the rows, and the variant's format.

Orders are memoised with the pattern (a permutation does not depend on values), so that the tuner pays for each once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx._features import dense_block_size
from akx.errors import InfeasibleError
from akx.formats import bell, csr, dia, inode, sell
from akx.formats.base import Format, Pattern, lanes_of, pattern_of, unsigned
from akx.kernels.cpu.variants import VARIANTS
from akx.matrix import Matrix
from akx.partition.base import inverse_permutation
from akx.partition.levels import levels, rcm
from akx.partition.reach import permute
from akx.plan import Plan

__all__ = [
    "VARIANTS",
    "Known",
    "Ordered",
    "bytes_per_entry",
    "columns_per_entry",
    "dia_counts",
    "known_of",
    "lay_out",
    "ordered",
    "slots_per_entry",
    "variant_reason",
    "variants_for",
]

#: Revisions of variants, where not 1 (:mod:`akx.kernels.revisions`).
REVISIONS: dict[str, int] = {}

#: A padded format may store at most this many slots per entry.
MOST_PADDING = 2.0
#: Nodes may have at most this many columns, together, per entry of the matrix: else hardly any two rows share theirs.
_MOST_COLUMNS = 0.6


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


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def ordered(matrix: Matrix, partitioner: str) -> Ordered:
    """The pattern of `matrix` in the order of `partitioner` ("natural", "rcm" or "levels"); memoised."""
    key = ("akx.kernels.cpu.ordered", partitioner)
    found = matrix.pattern_cache.get(key)
    if found is None:
        found = matrix.pattern_cache[key] = _order(matrix, partitioner)
    result: Ordered = found
    return result


def _order(matrix: Matrix, partitioner: str) -> Ordered:
    nothing = _frozen(np.zeros(0, dtype=np.uint32))
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
        Pattern(_frozen(unsigned(indptr)), _frozen(unsigned(indices)), matrix.n),
        _frozen(np.ascontiguousarray(permutation, dtype=np.uint32)),
        _frozen(np.ascontiguousarray(inverse_permutation(permutation), dtype=np.uint32)),
        entries,
    )


def _wide_bits(columns: int) -> int:
    return 32 if columns <= 2**32 else 64


def _split(variant: str, columns: int) -> tuple[str, int]:
    """("sell16", n) -> ("sell", 16); without a width the narrowest of 32 and 64 bits that holds any column."""
    return (variant[:-2], 16) if variant.endswith("16") else (variant, _wide_bits(columns))


def block_size(matrix: Matrix) -> int:
    """The unknowns per node found in the pattern, 1 where there is no natural block; memoised with the pattern.

    The matrix's other features are not needed to make a program and cost far more, so they are not asked for.
    """
    key = "akx.kernels.cpu.block_size"
    if key not in matrix.pattern_cache:
        matrix.pattern_cache[key] = dense_block_size(matrix.indptr, matrix.indices)[0]
    return int(matrix.pattern_cache[key])


@dataclass(frozen=True)
class Known:
    """What was found out about a pattern in one order of its rows, once: counts and shapes of its layouts.

    Attributes
    ----------
    memo : dict
        Where it is kept.
    name : str
        Of the order.
    threads : int
        That may count.
    """

    memo: dict[Any, Any]
    name: str
    threads: int = 1

    def of(self, what: str, *parameters: Any, make: Callable[[], Any]) -> Any:
        """What :meth:`make` gave the first time."""
        key = (f"akx.kernels.cpu.{what}", self.name, *parameters)
        if key not in self.memo:
            self.memo[key] = make()
        return self.memo[key]


def known_of(matrix: Matrix, partitioner: str, threads: int = 1) -> Known:
    """What is known of a matrix in an order; kept with its pattern."""
    return Known(matrix.pattern_cache, partitioner, threads)


def variant_reason(
    variant: str, pattern: Pattern, dtype: np.dtype[Any], *, sigma: int, block: int, known: Known
) -> str | None:
    """None where `pattern` can be laid out as `variant`, else why not."""
    reason: str | None = known.of(
        "variant",
        variant,
        dtype.str,
        sigma,
        block,
        make=lambda: _variant_reason(variant, pattern, dtype, sigma, block, known),
    )
    return reason


def _variant_reason(
    variant: str, pattern: Pattern, dtype: np.dtype[Any], sigma: int, block: int, known: Known
) -> str | None:
    if variant not in VARIANTS:
        return f"unknown variant {variant!r}, known are {', '.join(VARIANTS)}"
    kind, bits = _split(variant, pattern.columns)
    too_far = "columns of one chunk lie more than 65,535 apart"
    if kind == "csr-ahead":
        return None
    if kind == "csr":
        return None if bits > 16 or csr.csr_fits(pattern, bits) else too_far
    if kind == "sell" and sigma != 1 and sigma % lanes_of(dtype):
        return f"sigma = {sigma} is not a multiple of the chunk height {lanes_of(dtype)}"
    if kind == "inode":
        if _inodes(pattern, dtype, known).columns > _MOST_COLUMNS * pattern.nnz:
            return "too few rows have the same columns as the row before"
        return None if bits > 16 or inode.inode_fits(pattern, bits) else too_far
    if kind == "bell" and block < 2:
        return "the pattern has no dense blocks"
    if kind == "bell" and pattern.rows % block:
        return f"{pattern.rows} rows are not a multiple of the block size {block}"
    if _slots(kind, pattern, dtype, sigma, block, known) > _room(kind, pattern, dtype, block):
        return f"padding would make it more than {MOST_PADDING:g} times as large"
    if kind == "dia" or bits > 16:
        return None
    if kind == "sell":
        fits = sell.sell_fits(pattern, dtype, sigma, bits)
    else:
        fits = bell.bell_fits(pattern, dtype, block, bits, shape=_bell_shape(pattern, dtype, block, known))
    return None if fits else too_far


def _room(kind: str, pattern: Pattern, dtype: np.dtype[Any], block: int) -> int:
    """Slots that a padded format may store: so many times the entries, and something for the last rows."""
    tail = (
        64 * dia.slice_rows(dtype) if kind == "dia" else 8 * lanes_of(dtype) * (block * block if kind == "bell" else 1)
    )
    return int(MOST_PADDING * pattern.nnz) + tail


def _slots(kind: str, pattern: Pattern, dtype: np.dtype[Any], sigma: int, block: int, known: Known) -> int:
    """Values that a format would store, padding included; more than :func:`_room` allows where it is too many."""

    def count() -> int:
        if kind == "sell":
            return sell.sell_slots(pattern, dtype, sigma)
        if kind == "dia":
            return _dia_counts(pattern, dtype, known)[0]
        if kind == "bell":
            return bell.bell_slots(pattern, dtype, block, shape=_bell_shape(pattern, dtype, block, known))
        return pattern.nnz

    slots: int = known.of("slots", kind, dtype.str, sigma, block, make=count)
    return slots


def _inodes(pattern: Pattern, dtype: np.dtype[Any], known: Known) -> inode.Inodes:
    found: inode.Inodes = known.of("inodes", dtype.str, make=lambda: inode.inodes(pattern, dtype))
    return found


def _bell_shape(pattern: Pattern, dtype: np.dtype[Any], block: int, known: Known) -> bell.BellShape:
    found: bell.BellShape = known.of(
        "bell", dtype.str, block, make=lambda: bell.bell_shape(pattern, dtype, block, threads=known.threads)
    )
    return found


def _dia_counts(pattern: Pattern, dtype: np.dtype[Any], known: Known) -> tuple[int, NDArray[np.uint64]]:
    """Slots, and the diagonals of each slice, where there is room for so many."""

    def count() -> tuple[int, NDArray[np.uint64]]:
        counts = np.zeros(-(-pattern.rows // dia.slice_rows(dtype)), dtype=np.uint64)
        room = _room("dia", pattern, dtype, 1)
        return dia.dia_slots(pattern, dtype, room, counts=counts, threads=known.threads), counts

    found: tuple[int, NDArray[np.uint64]] = known.of("dia", dtype.str, make=count)
    return found


def _inodes_of(plan: Plan, matrix: Matrix) -> inode.Inodes:
    where, known = ordered(matrix, plan.partitioner), known_of(matrix, plan.partitioner, plan.threads)
    return _inodes(where.pattern, matrix.dtype, known)


def columns_per_entry(plan: Plan, matrix: Matrix) -> float:
    """Columns of all nodes of an `inode` plan for each entry of the matrix; memoised with the pattern."""
    return _inodes_of(plan, matrix).columns / max(matrix.nnz, 1)


def slots_per_entry(plan: Plan, matrix: Matrix, *, sigma: int, block: int) -> float:
    """Values stored for each entry of the matrix, padding included, at least 1; memoised with the pattern.

    For a plan that can be laid out with all of its rows in one order.
    """
    kind, _ = _split(plan.variant, matrix.n)
    where = ordered(matrix, plan.partitioner)
    known = known_of(matrix, plan.partitioner, plan.threads)
    slots = _slots(kind, where.pattern, matrix.dtype, sigma, block, known)
    return max(1.0, slots / max(matrix.nnz, 1))


def variants_for(matrix: Matrix, partitioner: str, *, sigma: int = 1, threads: int = 1) -> tuple[str, ...]:
    """The variants that `matrix` can be laid out as in the order of `partitioner`; so many threads may find out."""
    natural = ordered(matrix, partitioner)
    block = block_size(matrix) if partitioner == "natural" else 1
    return tuple(
        variant
        for variant in VARIANTS
        if variant_reason(
            variant,
            natural.pattern,
            matrix.dtype,
            sigma=1 if not variant.startswith("sell") else sigma,
            block=block,
            known=known_of(matrix, partitioner, threads),
        )
        is None
    )


def dia_counts(pattern: Pattern, dtype: np.dtype[Any], known: Known) -> NDArray[np.uint64] | None:
    """The diagonals of each slice; None where they would be padded too much, and were not counted to the end."""
    slots, counts = _dia_counts(pattern, dtype, known)
    return counts if slots <= _room("dia", pattern, dtype, 1) else None


def lay_out(
    pattern: Pattern, dtype: np.dtype[Any], variant: str, *, sigma: int, block: int, known: Known | None = None
) -> Format:
    """Lay `pattern` out as `variant`; the caller has asked :func:`variant_reason`. Values are not filled in."""
    kind, bits = _split(variant, pattern.columns)
    known = known or Known({}, "")
    if kind in ("csr", "csr-ahead"):
        return csr.from_csr(pattern, dtype, bits=bits, ahead=kind == "csr-ahead")
    if kind == "sell":
        return sell.from_csr(pattern, dtype, sigma=sigma, bits=bits)
    if kind == "dia":
        return dia.from_csr(pattern, dtype, counts=dia_counts(pattern, dtype, known), threads=known.threads)
    if kind == "inode":
        return inode.from_csr(pattern, dtype, bits=bits, nodes=_inodes(pattern, dtype, known))
    shape = _bell_shape(pattern, dtype, block, known)
    return bell.from_csr(pattern, dtype, block=block, bits=bits, shape=shape, threads=known.threads)


def bytes_per_entry(plan: Plan, matrix: Matrix) -> float:
    """Modelled bytes of matrix data per entry, padding left out (:func:`slots_per_entry`): exact for CSR."""
    kind, bits = _split(plan.variant, matrix.n)
    per_row = matrix.n / max(matrix.nnz, 1)
    itemsize = matrix.dtype.itemsize
    if kind in ("csr", "csr-ahead"):
        return itemsize + bits / 8 + 4 * per_row
    if kind == "sell":
        return itemsize + bits / 8 + per_row
    if kind == "dia":
        return itemsize + 8 / dia.slice_rows(matrix.dtype)
    if kind == "inode":
        found = _inodes_of(plan, matrix)
        return itemsize + (found.columns * bits / 8 + 5.0 * found.height.size) / max(matrix.nnz, 1)
    return itemsize + bits / 8 / block_size(matrix) ** 2
