"""`ghost` on the CPU: what is told of a plan before a partitioner is asked."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from akx.backends.cpu.schedules.ghost import layout
from akx.backends.cpu.schedules.ghost import schedule as ghost
from akx.backends.host import host_device
from akx.core.matrix import Matrix
from akx.core.plan import Plan


def test_blocks_that_would_need_most_of_the_matrix_are_not_even_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partitioner takes a minute for millions of entries without locality, for nothing."""

    def never(*_: object) -> None:
        raise AssertionError("a partitioner was asked")

    monkeypatch.setattr(layout, "_partition", never)
    n, rng = 150_000, np.random.default_rng(5)
    rows = np.repeat(np.arange(n), 8)
    anywhere = sp.csr_array((np.ones(rows.size), (rows, rng.integers(0, n, rows.size))), shape=(n, n))
    near = sp.csr_array(sp.diags_array([1.0] * 9, offsets=[-301, -300, -299, -1, 0, 1, 299, 300, 301], shape=(n, n)))
    plan = Plan("cpu", "ghost", "csr", "metis", k=8, k_per_pass=2, block_bytes=1 << 20, threads=2)
    reason = ghost.SCHEDULE.feasible(plan, Matrix.from_any(anywhere), host_device())
    assert reason is not None
    assert "times their rows" in reason
    assert ghost.SCHEDULE.feasible(plan, Matrix.from_any(near), host_device()) is None
