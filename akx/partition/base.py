"""Partitions: a permutation of the rows and a cut of them into blocks.

A :class:`Partition` of an n-row matrix is a pair (permutation, cuts). Row `i` of the permuted matrix P A P^T is row
``permutation[i]`` of A, and block `b` is made of the permuted rows ``cuts[b] .. cuts[b+1] - 1``. Both arrays are int64;
a permutation of None stands for the natural order, so that nothing of size n is stored for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from akx.core.errors import ArgumentError, ArgumentTypeError

__all__ = ["ROW_FLOPS", "IndexArray", "Partition", "inverse_permutation", "order_by_part"]

#: Flops of one row of a step beside those of its entries: a_j (A v_j) + b_j v_j + c_j v_{j-1}.
ROW_FLOPS = 5

#: A CSR index array: int32 or int64.
IndexArray = NDArray[np.int32] | NDArray[np.int64]


@dataclass(frozen=True)
class Partition:
    """A permutation of the rows and a cut of them into blocks.

    Parameters
    ----------
    permutation : (n,) array of int64, or None
        ``permutation[new] = old``; None for the natural order.
    cuts : (blocks + 1,) array of int64
        Non-decreasing, from 0 to n: block `b` is rows ``cuts[b] .. cuts[b+1] - 1`` of the new order; it may be empty.

    Raises
    ------
    ArgumentError
        Where they are not.
    """

    permutation: NDArray[np.int64] | None
    cuts: NDArray[np.int64]

    def __post_init__(self) -> None:
        cuts = _int64(self.cuts, "cuts")
        if cuts.size < 2 or cuts[0] != 0 or np.any(cuts[1:] < cuts[:-1]):
            expected = "at least two non-decreasing row numbers from 0 to n"
            found = np.array2string(cuts, threshold=8)
            raise ArgumentError("cuts of a partition are malformed", expected=expected, found=found)
        object.__setattr__(self, "cuts", cuts)
        if self.permutation is None:
            return
        permutation = _int64(self.permutation, "permutation")
        if permutation.size != cuts[-1]:
            raise ArgumentError(
                "permutation does not fit the cuts", expected=f"{cuts[-1]} rows", found=f"{permutation.size}"
            )
        inverse_permutation(permutation)
        object.__setattr__(self, "permutation", permutation)

    @property
    def n(self) -> int:
        """Rows of the matrix."""
        return int(self.cuts[-1])

    @property
    def blocks(self) -> int:
        """Number of blocks, empty ones included."""
        return int(self.cuts.size - 1)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows of each block, shape (blocks,)."""
        return np.diff(self.cuts)

    def part_of_row(self) -> NDArray[np.int32]:
        """The block of each row of the *original* order, shape (n,)."""
        by_new = np.repeat(np.arange(self.blocks, dtype=np.int32), self.sizes)
        if self.permutation is None:
            return by_new
        part = np.empty_like(by_new)
        part[self.permutation] = by_new
        return part

    def rows_of(self, block: int) -> NDArray[np.int64]:
        """The original row numbers of one block, in the new order."""
        first, last = int(self.cuts[block]), int(self.cuts[block + 1])
        return np.arange(first, last) if self.permutation is None else self.permutation[first:last]


def order_by_part(part: ArrayLike, parts: int | None = None, order: ArrayLike | None = None) -> Partition:
    """The partition whose block `p` holds the rows with part number `p`.

    Parameters
    ----------
    part : (n,) array of integers
        The part of each row, 0 <= part < parts, as a graph partitioner returns it.
    parts : int, optional
        Number of parts; default: the largest number found, plus one. Parts without rows become empty blocks.
    order : (n,) array of integers, optional
        A permutation (``order[new] = old``) that says in which order the rows of one part follow each other, such as
        one of reduced bandwidth; default: the natural order.
    """
    numbers = _int64(part, "part numbers")
    least, most = int(numbers.min(initial=0)), int(numbers.max(initial=-1))
    count = most + 1 if parts is None else int(parts)
    if least < 0 or most >= count or count < 1:
        raise ArgumentError("part numbers are out of range", expected=f"0 .. {count - 1}", found=f"{least} .. {most}")
    cuts = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(numbers, minlength=count), out=cuts[1:])
    # A stable sort keeps the given order inside each part.
    narrow = numbers.astype(np.int16 if count <= 2**15 else np.int32)
    if order is None:
        return Partition(np.argsort(narrow, kind="stable").astype(np.int64, copy=False), cuts)
    first = _int64(order, "order")
    if first.size != numbers.size:
        raise ArgumentError("order does not fit the parts", expected=f"{numbers.size} rows", found=f"{first.size}")
    return Partition(first[np.argsort(narrow[first], kind="stable")], cuts)


def inverse_permutation(permutation: ArrayLike) -> NDArray[np.int64]:
    """The inverse: ``inverse[permutation[i]] = i``. Raises :class:`ArgumentError` where it is not a permutation."""
    forward = _int64(permutation, "permutation")
    n = forward.size
    if n and (int(forward.min()) < 0 or int(forward.max()) >= n):
        raise ArgumentError(
            "permutation is out of range", expected=f"0 .. {n - 1}", found=f"{forward.min()} .. {forward.max()}"
        )
    inverse = np.full(n, -1, dtype=np.int64)
    inverse[forward] = np.arange(n, dtype=np.int64)
    if n and int(inverse.min()) < 0:
        raise ArgumentError(
            "permutation names a row twice", expected=f"each of 0 .. {n - 1} once", found=f"{np.argmin(inverse)} never"
        )
    return inverse


def _int64(values: Any, what: str) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise ArgumentTypeError(
            f"{what} are not a list of integers", expected="a 1-D integer array", found=f"{array.ndim}-D {array.dtype}"
        )
    return np.ascontiguousarray(array, dtype=np.int64)
