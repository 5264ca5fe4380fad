"""Rows and columns in another order."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from benchmarks import gallery, orders


def test_rows_and_columns_change_places_alike() -> None:
    A = gallery.small("brick")
    B = orders.shuffled(A)
    order = np.random.default_rng(0).permutation(A.shape[0])
    assert B.has_sorted_indices
    assert (sp.csr_array(A.toarray()[np.ix_(order, order)]) != B).nnz == 0
    assert (orders.shuffled(A) != B).nnz == 0
    assert (B != A).nnz > 0


def test_the_unknowns_of_a_node_are_as_far_apart_as_there_are_nodes() -> None:
    A = gallery.small("shell")
    B = orders.by_fields(A, 6)
    nodes = A.shape[0] // 6
    assert B.has_sorted_indices
    for i, j in ((0, 1), (7, 20)):
        at = [f * nodes + node for node in (i // 6, j // 6) for f in (i % 6, j % 6)]
        assert B[at[0], at[3]] == A[i // 6 * 6 + i % 6, j // 6 * 6 + j % 6]
    assert B.nnz == A.nnz
