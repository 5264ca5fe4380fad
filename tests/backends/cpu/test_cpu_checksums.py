"""Checksums by a team that listens: those of one thread, whatever the arrays and however many threads there are."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from akx.backends.cpu import checksums as sums
from akx.backends.cpu.thread_team import Job, Team
from akx.core.checksum import checksums
from akx.core.errors import DeviceError


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


def test_a_call_in_the_midst_of_another_has_a_job_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler's, say, of another matrix; the team is busy then, and one thread forms its sums."""
    run, outer, inner = Team.run, [np.ones(70_000)], [np.full(9, 2.0)]
    found = list[Any]()

    def busy(team: Team, job: Job, x: Any, out: Any) -> None:
        if found:
            raise DeviceError("this thread is in the middle of a call already")
        found.append(None)
        found.append(sums.sums_of(inner, 2))
        run(team, job, x, out)

    monkeypatch.setattr(Team, "run", busy)
    assert sums.sums_of(outer, 2) == checksums(outer)
    assert found[1] == checksums(inner)


def test_threads_of_the_caller_may_all_ask() -> None:
    rng, wrong = np.random.default_rng(1), list[int]()
    many = [[rng.random(20_000 + number)] for number in range(4)]

    def ask(number: int) -> None:
        wrong.extend(number for _ in range(20) if sums.sums_of(many[number], 2) != checksums(many[number]))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong
