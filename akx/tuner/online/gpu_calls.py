"""Calls that are queued on a GPU as trials: what one takes is told by events on the caller's stream, read later on.

No call waits for the device. One of many is put between two events, and the first call after the device has passed them
reads what it took. While candidates meet the incumbent each call is, but no more of them than :data:`_AHEAD` at a time:
a candidate that is slow is not queued often before that is known.

A candidate of a schedule that may crash the GPU runs in another process first (:mod:`akx.tuner.sandbox`). The
thread that has prepared it runs it on akx's own stream, on vectors of akx's own, waits for it there and compares. So in
calls there is nothing but the duel. Its first calls are not counted, but charged: in these the graph of a call is made.

While a stream on which akx has worked is being captured, its other work cannot be done: a step that comes upon that is
taken again. A call that is captured holds the plan: the caller's graph has the kernels of its program, and the search
ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from akx.backends.schedule import Coefficients
from akx.backends.selection import array_backend, backend_of
from akx.core.errors import CapturingError
from akx.tuner.measure import median
from akx.tuner.online.calls import Online
from akx.tuner.online.exploration import DUEL, FIRST, HOPELESS, IDLE, OVER
from akx.tuner.online.first_runs import Candidate

__all__ = ["Queued"]

#: What the backend of arrays on a GPU has for calls with them.
_GPU: Any = backend_of(array_backend()).caller_arrays()
Event, default_stream, beside_captures = _GPU.Event, _GPU.default_stream, _GPU.beside_captures
#: Calls between events at a time.
_AHEAD = 8
#: Of how many calls one is timed while nothing else is at work: of so many seconds, and so many of them at most. It
#: takes the host some times as long as one that is not.
_UNTIMED_SECONDS, _UNTIMED = 20e-3, 1024
#: Runs of a candidate before it meets the incumbent.
_RUNS = 3
#: Calls of a duel that do not count, A B B A A B B A: in one of these the graph of the candidate is recorded, behind as
#: many runs and calls as a program queues kernel by kernel (`program` of the backend).
_WARM = 8
#: The last intervals between calls by which it is known whether calls come later; beyond so many times, a caller rests.
_PACES, _IDLE_PACES = 15, 20.0
#: A step costs this share of its processor time at least.
_LEAST_COST = 0.1


class Queued(Online):
    """The same for a program of the GPU; with vectors of the host calls are over when they return."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        #: Calls between two events, and what is done with their seconds.
        self._pending: deque[tuple[Any, Any, Callable[[float], None]]] = deque()
        self._events: list[tuple[Any, Any]] = []
        self._queued, self._is_hosted = 0, False
        self._coefficients: Coefficients | None = None
        self._is_beside, self._behindhand = False, 0.0
        self._paces: deque[float] = deque(maxlen=_PACES)

    # ------------------------------------------------------------------------------------------------ as a program

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of values and vectors."""
        found: np.dtype[Any] = self._own.dtype
        return found

    @property
    def is_recordable(self) -> bool:
        return self.program.is_recordable

    @property
    def _own(self) -> Any:
        return self.program

    def run(self, x: NDArray[Any], out: NDArray[Any], coefficients: Coefficients) -> None:
        """Do a call with vectors of the host."""
        self._are_at(hosted=True)
        super().run(x, out, coefficients)

    def work_of(self, x: Any, out: Any, coefficients: Coefficients) -> Callable[[Any], None]:
        """What queues a call on a stream; what is due behind those that are over by now is done."""
        self._are_at(hosted=False)
        self._coefficients = coefficients
        self._read()
        own: Callable[[Any], None] = self._own.work_of(x, out, coefficients)
        if self._phase == OVER:
            self._holder.settled()
            return own
        self.untimed += 1
        is_full = len(self._pending) >= _AHEAD
        if self._phase == DUEL and not is_full and (work := self._duel_work(own, x, out, coefficients)) is not None:
            return work
        if is_full or self.untimed < self.every:
            return own
        now, calls = self._now(), max(1, self._counted())
        since, self._last = now - self._last, now
        self._pace_is(since / calls, calls)
        return partial(self._time, own, partial(self._took, calls=calls, most=since))

    def _pace_is(self, seconds: float, calls: int) -> None:
        """So many calls came, one after so many seconds: how much later than before a step, if one is under way."""
        if not self._is_beside:
            self._paces.append(seconds)
        elif self._paces and seconds < _IDLE_PACES * (usual := median(self._paces)):
            self._behindhand += (seconds - usual) * calls

    def _cost(self, processor: float) -> float:
        """Calls that wait for the device anyway lose nothing while the thread has a core of its own."""
        if self._is_hosted:
            return super()._cost(processor)
        return min(processor, max(self._behindhand, _LEAST_COST * processor))

    def _are_at(self, *, hosted: bool) -> None:
        """Calls are with vectors of the host, or of the device, from now on: what the others took says nothing."""
        if hosted is not self._is_hosted:
            self._is_hosted, self.every, self.untimed = hosted, 0, 0
            self._last = self._now()
            self._recent.clear()
            self._paces.clear()
            self._pending.clear()
            if self._phase == DUEL:
                self._drop()

    def _most_untimed(self, seconds: float) -> int:
        if self._is_hosted:
            return super()._most_untimed(seconds)
        return int(min(_UNTIMED, _UNTIMED_SECONDS / max(seconds, 1e-9)))

    # ------------------------------------------------------------------------------------------------ beside calls

    def _begin(self, work: Callable[[], int]) -> None:
        def step() -> int:
            self._is_beside, self._behindhand = True, 0.0
            try:
                with beside_captures():
                    return work()
            finally:
                self._is_beside = False

        super()._begin(step)

    def _prepare(self) -> int:
        """Prepare a candidate, run it and compare what comes out, all in the thread."""
        phase = super()._prepare()
        if phase != FIRST:
            return phase
        candidate, usual = self._candidate, self._usual
        assert candidate is not None
        try:
            candidate.expected = self._first_run(candidate)
        except CapturingError:  # it comes again
            self._candidates.put_back(candidate)
            self._candidate = None
            raise
        except Exception as failure:
            self._failed(candidate, failure)
            return IDLE
        if candidate.expected > HOPELESS * usual and not self._is_hosted:
            self._is_slower(candidate, candidate.expected, usual)
            return IDLE
        self._queued = 0
        phase = self._check()
        if phase == DUEL and not self._is_held(candidate):
            return IDLE
        return phase

    def _first_run(self, candidate: Candidate) -> float:
        """Seconds of a run on vectors of akx's own, the least but for the first, whose result is on the host then."""
        vectors, own = self._candidates.vectors, default_stream()
        begin, end = Event(), Event()
        vectors.poison()
        took = float("inf")

        def run(stream: Any) -> None:
            begin.record(stream)
            vectors.queue(candidate.program)
            end.record(stream)

        run(own)  # in which more may be made than is queued
        for _ in range(_RUNS - 1):
            own.submit(run)  # no call of the user's comes between the two
            end.synchronize()
            seconds = end.seconds_since(begin)
            self.budget.spent += seconds
            took = min(took, seconds)
        self.budget.spent += took
        vectors.fetch()
        if self._coefficients is not None:  # which a call would wait for
            cast(Any, candidate.program).take(self._coefficients)
        return took

    # ------------------------------------------------------------------------------------------------ within calls

    def _time(self, work: Callable[[Any], None], then: Callable[[float], None], stream: Any) -> None:
        """Queue a call between two events."""
        if not self._events:
            with beside_captures():
                self._events.append((Event(), Event()))
        begin, end = self._events.pop()
        begin.record(stream)
        work(stream)
        end.record(stream)
        self._pending.append((begin, end, then))

    def _read(self) -> None:
        """Take note of what calls have taken that are over by now."""
        pending = self._pending
        if not pending:
            return
        over: list[Callable[[], None]] = []
        with beside_captures():  # another thread may record a graph of its own
            while pending and pending[0][1].has_passed:
                begin, end, then = pending.popleft()
                self._events.append((begin, end))
                over.append(partial(then, end.seconds_since(begin)))
        for then_do in over:
            then_do()

    def _duel_work(
        self, own: Callable[[Any], None], x: Any, out: Any, coefficients: Coefficients
    ) -> Callable[[Any], None] | None:
        """What queues the next call of the duel; None where the call is one like all others."""
        candidate = self._candidate
        if candidate is None or candidate.is_lost:  # new values did not come to all programs
            self._drop()
            return None
        turn, begin = self._queued % 4 in (1, 2), self._now()
        if turn and not self._covers_turn(candidate):
            return None
        then = partial(self._has_come, candidate=candidate, turn=turn, counts=self._queued >= _WARM)
        self._queued += 1
        self.untimed, self._last = 0, begin
        if not turn:
            return partial(self._time, own, then)
        try:
            work = cast(Any, candidate.program).work_of(x, out, coefficients)
        except CapturingError:  # the next one is this turn
            self._queued -= 1
            return None
        except Exception as failure:
            self._failed(candidate, failure)
            return None
        finally:
            if self._queued <= _WARM:  # its graph is made meanwhile
                self.budget.spent += self._now() - begin

        def instead(stream: Any) -> None:
            try:
                self._time(work, then, stream)
            except Exception as failure:
                self._failed(candidate, failure)
                own(stream)

        return instead
