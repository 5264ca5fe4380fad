from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from akx.core.errors import ArgumentError
from akx.partition.base import Partition, order_by_part
from akx.partition.quality import BlockBytes, edge_cut, quality
from partition.patterns import as_bool, patterns


@settings(max_examples=80, deadline=None)
@given(patterns(), st.integers(1, 45), st.integers(1, 4), st.integers(0, 2**31))
def test_quality_by_brute_force(A: sp.csr_array, parts: int, k: int, seed: int) -> None:
    n = A.shape[0]
    rng = np.random.default_rng(seed)
    part = rng.integers(0, parts, n)
    partition = order_by_part(part, parts, order=rng.permutation(n))
    found = quality(A.indptr, A.indices, partition, k, model=BlockBytes(10, 3, 16, 100))
    dense, lengths = as_bool(A), np.diff(A.indptr)
    step = dense | np.eye(n, dtype=bool)
    flops, done, fetched, sizes = np.zeros(parts), 0, 0, np.zeros(parts)
    for b in range(parts):
        within = [part == b]  # rows at distance <= 0, 1, .., k
        for _ in range(k):
            within.append((within[-1].astype(int) @ step.astype(int)) > 0)
        for j in range(1, k + 1):
            active = within[k - j]
            done += lengths[active].sum()
            flops[b] += 2 * lengths[active].sum() + 5 * active.sum()
        fetched += within[k].sum() - within[0].sum()
        sizes[b] = 10 * lengths[within[k - 1]].sum() + 3 * within[k - 1].sum() + 16 * within[k].sum() + 100
    rows, columns = np.nonzero(dense)
    assert found.edge_cut == np.sum(part[rows] != part[columns])
    assert found.redundancy == (pytest.approx(done / (k * A.nnz)) if A.nnz else 1)
    assert found.surface_to_volume == pytest.approx(fetched / n)
    assert found.bytes == pytest.approx(sizes.sum())
    assert found.block_bytes_max == pytest.approx(sizes.max())
    assert found.imbalance == pytest.approx(flops.max() / flops.mean())
    assert (found.k, found.blocks) == (k, parts)


def test_one_block_is_perfect() -> None:
    A = sp.csr_array(sp.diags_array([1.0, 1.0], offsets=[0, 1], shape=(9, 9)))
    found = quality(A.indptr, A.indices, Partition(None, np.array([0, 9])), 5)
    assert (found.redundancy, found.surface_to_volume, found.edge_cut, found.imbalance) == (1, 0, 0, 1)


def test_mismatches_are_refused() -> None:
    A = sp.csr_array(sp.eye_array(6))
    halves = Partition(None, np.array([0, 3, 6]))
    assert quality(A.indptr, A.indices, halves, 2).redundancy == 1
    with pytest.raises(ArgumentError, match="another matrix"):
        edge_cut(A.indptr, A.indices, Partition(None, np.array([0, 3])))
    with pytest.raises(ArgumentError, match="byte model"):
        BlockBytes(-1.0)
