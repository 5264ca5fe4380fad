from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from akx.core.errors import ArgumentError
from akx.partition.permutation import block_dependencies, block_reach, permute
from partition.patterns import as_bool, patterns, random_pattern


@settings(max_examples=80, deadline=None)
@given(patterns(most=120), st.integers(0, 2**31))
def test_permute_is_p_a_pt(A: sp.csr_array, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = A.shape[0]
    A.data = rng.standard_normal(A.nnz)
    p = rng.permutation(n)
    indptr, indices, entries = permute(A.indptr, A.indices, p)
    assert indptr.dtype == A.indptr.dtype
    assert indices.dtype == entries.dtype == A.indices.dtype
    expected = A.toarray()[np.ix_(p, p)]
    np.testing.assert_array_equal(sp.csr_array((A.data[entries], indices, indptr), shape=(n, n)).toarray(), expected)
    for i in range(n):
        assert np.all(np.diff(indices[indptr[i] : indptr[i + 1]]) > 0)


def test_permute_sorts_unsorted_rows() -> None:
    indptr, indices, entries = permute(np.array([0, 3, 3, 4]), np.array([2, 0, 1, 1]), np.arange(3))
    np.testing.assert_array_equal(indptr, [0, 3, 3, 4])
    np.testing.assert_array_equal(indices, [0, 1, 2, 1])
    np.testing.assert_array_equal(entries, [1, 2, 0, 3])


@pytest.mark.parametrize("bad", [[0, 0, 1], [0, 1, 3], [0, 1, -1], [0, 1]])
def test_permute_refuses_what_is_no_permutation(bad: list[int]) -> None:
    with pytest.raises(ArgumentError):
        permute(np.array([0, 1, 1, 1]), np.array([2]), np.array(bad))


@settings(max_examples=80, deadline=None)
@given(patterns(), st.lists(st.integers(0, 40), max_size=8))
def test_reach_and_dependencies(A: sp.csr_array, inner: list[int]) -> None:
    n = A.shape[0]
    cuts = np.array([0, *sorted(min(c, n) for c in inner), n])
    lo, hi = block_reach(A.indptr, A.indices, cuts)
    first, last = block_dependencies(A.indptr, A.indices, cuts)
    dense = as_bool(A) | np.eye(n, dtype=bool)
    for b in range(cuts.size - 1):
        touched = np.flatnonzero(dense[cuts[b] : cuts[b + 1]].any(axis=0))
        if touched.size == 0:
            assert (lo[b], hi[b], first[b], last[b]) == (cuts[b], cuts[b] - 1, b, b)
            continue
        assert (lo[b], hi[b]) == (touched[0], touched[-1])
        owner = [next(c for c in range(cuts.size - 1) if cuts[c] <= t < cuts[c + 1]) for t in touched]
        assert (first[b], last[b]) == (min(owner), max(owner))


def test_reach_refuses_cuts_of_another_matrix() -> None:
    A = random_pattern(10, 0.3, 0)
    with pytest.raises(ArgumentError, match="cuts do not fit"):
        block_reach(A.indptr, A.indices, np.array([0, 5, 11]))
