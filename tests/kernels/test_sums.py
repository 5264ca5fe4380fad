"""Checksums by a team that listens: those of one thread, whatever the arrays and however many threads there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from akx._checksum import checksums
from akx.errors import DeviceError
from akx.kernels.cpu import sums
from akx.kernels.cpu.team import Job


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
def test_a_team_forms_the_sums_of_one_thread(threads: int, dtype: str) -> None:
    rng = np.random.default_rng(0)
    for size in (0, 1, 3, 1001, 70_001):
        data = rng.standard_normal(size).astype(dtype)
        arrays = [data, rng.integers(0, 9, size).astype(np.int32), np.arange(5)]
        for some in (arrays, arrays[:2], [np.repeat(data, 2)[::2], *arrays[1:]]):
            for _ in range(2):
                assert sums.sums_of(some, threads) == checksums(some)
        if size:
            data[-1] += 1
            assert sums.sums_of(arrays, threads) == checksums(arrays)


def test_in_the_midst_of_a_call_one_thread_forms_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler's call, say."""

    def refuse(job: Job, *_: Any) -> None:
        raise DeviceError("this thread is in the middle of a call already")

    monkeypatch.setattr(Job, "run", refuse)
    assert sums.sums_of([np.ones(9)], 2) == checksums([np.ones(9)])
