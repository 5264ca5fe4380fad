from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import mmread

from akx.core.errors import ArgumentError, BudgetError
from akx.partition.budget import METHODS, split_to_budget
from akx.partition.ghost import ghost_zones
from akx.partition.quality import BlockBytes
from partition.patterns import as_bool, grid_9pt, patterns

MODEL = BlockBytes(12, 4, 16, 64)


def bytes_needed(A: sp.csr_array, rows: np.ndarray, k: int) -> float:
    """Brute force: the bytes of a block of these rows under MODEL."""
    n = A.shape[0]
    step = as_bool(A) | np.eye(n, dtype=bool)
    within = np.isin(np.arange(n), rows)
    for _ in range(k - 1):
        within = (within.astype(int) @ step.astype(int)) > 0
    computed = within
    needed = (within.astype(int) @ step.astype(int)) > 0
    return 12 * np.diff(A.indptr)[computed].sum() + 4 * computed.sum() + 16 * needed.sum() + 64


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=25, deadline=None)
@given(A=patterns(), k=st.integers(1, 4), budget=st.integers(100, 6000))
def test_blocks_fit_or_a_row_does_not(method: str, A: sp.csr_array, k: int, budget: int) -> None:
    if method == "hypergraph":
        pytest.importorskip("mtkahypar")
    n = A.shape[0]
    alone = np.array([bytes_needed(A, np.array([row]), k) for row in range(n)])
    if alone.max() > budget:
        with pytest.raises(BudgetError) as caught:
            split_to_budget(A.indptr, A.indices, k, budget, method=method, model=MODEL)
        row = int(str(caught.value.found).split("row ")[1].split()[0])
        assert alone[row] > budget
        assert f"{alone[row]:g} bytes" in str(caught.value)
        return
    found = split_to_budget(A.indptr, A.indices, k, budget, method=method, model=MODEL)
    assert found.n == n
    assert np.all(found.sizes > 0)
    sizes = [bytes_needed(A, found.rows_of(b), k) for b in range(found.blocks)]
    assert max(sizes) <= budget
    np.testing.assert_allclose(MODEL.of(ghost_zones(A.indptr, A.indices, found, k)), sizes)
    if bytes_needed(A, np.arange(n), k) <= budget:
        assert found.blocks == 1


@pytest.mark.parametrize("method", METHODS)
def test_grid_in_few_blocks(method: str) -> None:
    if method == "hypergraph":
        pytest.importorskip("mtkahypar")
    A = sp.csr_array(grid_9pt(80))
    A.sort_indices()
    budget = 200_000
    found = split_to_budget(A.indptr, A.indices, 2, budget, method=method)
    model = BlockBytes()
    least = (12 * A.nnz + 20 * A.shape[0]) / budget
    assert least <= found.blocks <= 2.5 * least
    assert model.of(ghost_zones(A.indptr, A.indices, found, 2)).max() <= budget
    again = split_to_budget(A.indptr, A.indices, 2, budget, method=method)
    np.testing.assert_array_equal(again.cuts, found.cuts)
    if found.permutation is None:
        assert method == "natural"
    else:
        np.testing.assert_array_equal(again.permutation, found.permutation)


def test_clear_failures() -> None:
    A = sp.csr_array(grid_9pt(20))
    A.sort_indices()
    with pytest.raises(BudgetError, match=r"no partition .* k = 3, expected at most 500 bytes .* row \d+ alone; raise"):
        split_to_budget(A.indptr, A.indices, 3, 500)
    with pytest.raises(ArgumentError, match="method"):
        split_to_budget(A.indptr, A.indices, 1, 5000, method="magic")
    with pytest.raises(ArgumentError, match="budget"):
        split_to_budget(A.indptr, A.indices, 1, 0)
    with pytest.raises(ArgumentError, match="k is out of range"):
        split_to_budget(A.indptr, A.indices, 0, 100)


def test_dense_row_of_a_real_matrix_is_named(shared_matrices: Path) -> None:
    A = sp.csr_array(mmread(shared_matrices / "memplus.mtx.gz"))
    A.sort_indices()
    with pytest.raises(BudgetError, match=r"row \d+ alone"):
        split_to_budget(A.indptr, A.indices, 4, 500_000, method="metis")
    assert split_to_budget(A.indptr, A.indices, 1, 500_000, method="metis").blocks < 20
