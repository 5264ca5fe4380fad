"""Work in pieces: all of it once, in no more threads than there are cores, or than the user allows."""

from __future__ import annotations

import pytest

from akx.core import parallel
from akx.core.parallel import in_pieces


@pytest.mark.parametrize(
    ("cores", "named", "count", "expected"),
    [
        (4, None, 1000, 4),
        (4, "2", 1000, 2),
        (4, "1", 1000, 1),
        (4, "9", 1000, 4),
        (64, None, 1000, 16),
        (4, None, 25, 2),
        (4, None, 0, 1),
    ],
)
def test_pieces_are_no_more_than_cores_and_threads_that_are_named(
    cores: int, named: str | None, count: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "available_cores", lambda: cores)
    monkeypatch.setenv("NUMBA_NUM_THREADS", named or "")
    found = in_pieces(lambda begin, end: list(range(begin, end)), count, 10)
    assert len(found) == expected
    assert [one for piece in found for one in piece] == list(range(count))
