"""The sparsity pattern of a matrix and its digest: a tree of BLAKE2b, whose leaves are formed anywhere, in any order.

The leaves are pieces of 16 KiB, first of the numbers of entries in the rows, then of the columns, each of these a list
of little-endian integers of 4 bytes (8 from 2**31 rows on) that begins a new leaf. The root is over n and nnz, 8 bytes
each, and the digests of the leaves (Aumasson et al., BLAKE2: simpler, smaller, fast as MD5, 2013, section 2.10). So
threads and devices digest a matrix in pieces, and so do ranks that have some rows each and know how many entries come
before theirs.

Bytes: the row pointers and the indices are read once.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FORMER_DIGITS", "LEAF", "LEAF_DIGEST", "PERSON", "Pattern", "known_pattern"]

#: Bytes of a leaf, and of its digest and the root's; what makes all of them of this kind.
LEAF = 16 << 10
LEAF_DIGEST, _DIGEST = 32, 24
PERSON = b"akx pattern 2"
#: Hexadecimal digits of a digest as it was formed before, which a tree's has not.
FORMER_DIGITS = 40
#: Leaves for which one more thread is worth its start, and the most threads.
_LEAVES_PER_THREAD, _MOST_THREADS = 64, 8

_tree = partial(hashlib.blake2b, person=PERSON, fanout=0, depth=2, leaf_size=LEAF, inner_size=LEAF_DIGEST)


class Pattern:
    """The row pointers and column indices of a canonical CSR matrix.

    `indptr`, `indices` (n+1,) and (nnz,) integer arrays: read-only. Columns ascend within a row and are unique.
    """

    def __init__(self, indptr: NDArray[Any], indices: NDArray[Any]) -> None:
        self.indptr, self.indices = indptr, indices
        self.n, self.nnz = indptr.size - 1, indices.size

    @cached_property
    def digest(self) -> str:
        """48 hexadecimal digits, the same whatever the type of the arrays is."""
        root = _tree(np.array([self.n, self.nnz], "<i8").data, digest_size=_DIGEST, node_depth=1, last_node=True)
        root.update(self._of_leaves())
        digest = root.hexdigest()
        _KNOWN[digest] = self
        return digest

    def _of_leaves(self) -> bytes:
        """The digests of all leaves, in order."""
        integer = np.dtype("<i4" if self.n < 2**31 else "<i8")
        parts = [a.astype(integer, copy=False).view(np.uint8).data for a in (np.diff(self.indptr), self.indices)]
        leaves = [part[start : start + LEAF] for part in parts for start in range(0, len(part), LEAF)]
        return b"".join(_digests(leaves))

    @cached_property
    def former_digest(self) -> str:
        """The digest of this pattern in plans that were kept before it was that of a tree: 40 hexadecimal digits."""
        digest = hashlib.blake2b(digest_size=FORMER_DIGITS // 2, person=b"akx pattern 1")
        digest.update(np.array([self.n, self.nnz], dtype="<i8").data)
        for array in (self.indptr, self.indices):
            digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).data)
        return digest.hexdigest()


#: Patterns of which a digest was formed, while a matrix with it is there.
_KNOWN: weakref.WeakValueDictionary[str, Pattern] = weakref.WeakValueDictionary()


def known_pattern(digest: str) -> Pattern | None:
    """The pattern with this digest, where this process has a matrix with it and has asked for the digest."""
    return _KNOWN.get(digest)


def _digests(leaves: list[Any]) -> list[bytes]:
    """Those of the leaves of a tree, in order."""
    last = len(leaves) - 1

    def of(number: int) -> bytes:
        leaf = _tree(leaves[number], digest_size=LEAF_DIGEST, node_offset=number, last_node=number == last)
        return leaf.digest()

    threads = min(_MOST_THREADS, os.cpu_count() or 1, len(leaves) // _LEAVES_PER_THREAD)
    if threads < 2:
        return list(map(of, range(len(leaves))))
    cuts = [len(leaves) * t // threads for t in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        parts = pool.map(lambda first, end: list(map(of, range(first, end))), cuts[:-1], cuts[1:])
        return [digest for part in parts for digest in part]
