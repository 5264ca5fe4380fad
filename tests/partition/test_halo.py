"""Halos against sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.partition import halo
from akx.partition.halo import halos


def by_sets(A: Any, part: Any, parts: int, lengths: Any) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """Of each part its rows and then its halo, its neighbours, and how many of its rows are on the border."""
    n = A.shape[0]
    columns = [{int(j) for j in A.indices[A.indptr[i] : A.indptr[i + 1]]} for i in range(n)]
    border = [any(part[j] != part[i] for j in columns[i]) for i in range(n)]
    for i in range(n):
        for j in columns[i]:
            border[j] |= part[j] != part[i]
    rows, neighbours, on_border = [], [], []
    for g in range(parts):
        own = sorted(np.flatnonzero(part == g).tolist(), key=lambda i: (not border[i], -lengths[i], i))
        foreign = sorted({j for i in own for j in columns[i] if part[j] != g})
        rows.append(own + foreign)
        neighbours.append(sorted({int(part[j]) for j in foreign}))
        on_border.append(sum(border[i] for i in own))
    return rows, neighbours, on_border


@pytest.mark.parametrize("parts", [1, 7, 200])
@pytest.mark.parametrize("order", ["runs", "anywhere", "one is empty"])
def test_halos_are_those_of_sets(monkeypatch: pytest.MonkeyPatch, order: str, parts: int) -> None:
    monkeypatch.setattr(halo, "_ROWS", 100)  # threads
    rng, n = np.random.default_rng(parts), 700
    A = sp.csr_array(
        sp.random_array((n, n), density=0.006, rng=rng) + sp.diags_array([1.0, 1.0], offsets=[-64, 1], shape=(n, n))
    )
    A = sp.csr_array(A + sp.csr_array((np.ones(500), (np.full(500, 5), np.arange(500))), shape=(n, n)))  # a long row
    part = np.sort(rng.integers(0, parts, n)) if order == "runs" else rng.integers(0, parts, n)
    if order == "one is empty":
        part[part == parts // 2] = 0
    lengths = np.diff(A.indptr)
    for given in (None, rng.integers(0, 3, n)):
        rows, neighbours, border = by_sets(A, part, parts, lengths if given is None else given)
        found = halos(A.indptr.astype(np.uint32), A.indices.astype(np.uint32), part, parts, given)
        assert [one.tolist() for one in np.split(found.rows, found.ptr[1:-1])] == rows
        assert [one.tolist() for one in np.split(found.neighbours, found.neighbour_ptr[1:-1])] == neighbours
        np.testing.assert_array_equal(found.own, np.bincount(part, minlength=parts))
        assert found.border.tolist() == border
        assert found.rows.dtype == found.neighbours.dtype == np.uint32
