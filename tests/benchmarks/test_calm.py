"""What is timed in calm times, and what is timed again."""

from __future__ import annotations

import pytest

from akx.backends.cpu.cores import CoreState, CoreWatch
from akx.backends.schedule import TimedCall
from akx.tuner.measure import Precision
from benchmarks.calm import Calm

_OWN, _SHARED = CoreState(1.05, 1e-7), CoreState(1.9, 0.6e-7)


class Steady(TimedCall):
    """A call that takes a millisecond by a clock of its own."""

    def __call__(self) -> None:
        pass

    def timed(self, batch: int) -> float:
        return 1e-3


@pytest.mark.parametrize(
    ("looks", "calm", "again", "rounds"),
    [
        ([_OWN], True, 0, 4),
        ([_OWN, None], True, 0, 4),  # it was no time to look
        ([_OWN, _OWN, _SHARED, _OWN], True, 0, 4),  # that round was taken again
        ([_OWN, _OWN, *[_SHARED] * 9, _OWN], True, 1, 4),
        ([_OWN, _SHARED], False, 6, 7),  # as many as were to be taken again, which count in the end
    ],
)
def test_what_was_measured_on_shared_cores_is_measured_again(
    monkeypatch: pytest.MonkeyPatch, looks: list[CoreState | None], calm: bool, again: int, rounds: int
) -> None:
    left = list(looks)

    def look(watch: CoreWatch) -> CoreState | None:
        state = left.pop(0) if len(left) > 1 else left[0]
        if state is not None:
            watch._remember(state)
        return state

    monkeypatch.setattr(CoreWatch, "look", look)
    monkeypatch.setattr("benchmarks.calm._PATIENCE", 0.0)
    here = Calm(2)
    (found,), was_calm = here.timed([Steady()], Precision(1e-9, 60.0, 4, 4))
    assert (len(found.samples), was_calm, here.again) == (rounds, calm, again)
