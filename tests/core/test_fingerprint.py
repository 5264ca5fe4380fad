"""The digest of a pattern: a tree whose leaves may be formed in pieces, by threads, devices and ranks."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest
import scipy.sparse as sp

import akx.core.fingerprint
from akx.core.fingerprint import Pattern, known_pattern

_TREE = {"person": b"akx pattern 2", "fanout": 0, "depth": 2, "leaf_size": 16384, "inner_size": 32}


def random_pattern(n: int, entries: int, seed: int = 0) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    return sp.csr_array((np.ones(entries), rng.integers(0, n, (2, entries))), shape=(n, n))


def by_the_formula(A: sp.csr_array) -> str:
    """Word by word, from the text of the module."""
    leaves: list[bytes] = []
    for numbers in (np.diff(A.indptr), A.indices):
        octets = b"".join(struct.pack("<i", number) for number in numbers)
        leaves += [octets[start : start + 16384] for start in range(0, len(octets), 16384)]
    digests = [
        hashlib.blake2b(leaf, digest_size=32, node_offset=i, last_node=i == len(leaves) - 1, **_TREE).digest()
        for i, leaf in enumerate(leaves)
    ]
    top = struct.pack("<qq", A.shape[0], A.nnz) + b"".join(digests)
    return hashlib.blake2b(top, digest_size=24, node_depth=1, last_node=True, **_TREE).hexdigest()


@pytest.mark.parametrize(("n", "entries"), [(1, 0), (3, 5), (4096, 4096), (4097, 12_289), (300_000, 700_000)])
def test_it_is_that_of_the_formula(n: int, entries: int) -> None:
    A = random_pattern(n, entries)
    assert Pattern(A.indptr, A.indices).digest == by_the_formula(A)


@pytest.mark.parametrize("cores", [1, 2, 7])
def test_neither_threads_nor_the_type_of_indices_matter(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    A = random_pattern(300_000, 700_000)
    digest = Pattern(A.indptr, A.indices).digest
    monkeypatch.setattr(akx.core.fingerprint.os, "cpu_count", lambda: cores)
    assert Pattern(A.indptr.astype(np.int64), A.indices.astype(np.int64)).digest == digest


def test_each_place_matters() -> None:
    A = random_pattern(5000, 30_000)
    digest = Pattern(A.indptr, A.indices).digest
    for place in (0, 4095, 4096, A.nnz - 1):
        moved = A.indices.copy()
        moved[place] += 1
        assert Pattern(A.indptr, moved).digest != digest
    rows = A.indptr.copy()
    rows[2500] += 1
    assert Pattern(rows, A.indices).digest != digest


def test_it_is_known_while_somebody_has_it() -> None:
    A = random_pattern(10, 20)
    pattern = Pattern(A.indptr, A.indices)
    digest = pattern.digest
    assert known_pattern(digest) is pattern
    del pattern
    assert known_pattern(digest) is None
