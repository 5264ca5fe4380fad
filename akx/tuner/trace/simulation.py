"""A recording as the world of a search: its space, its model, its bench and its clock, with no device and no matrix.

A search asks four things of the world, and here each is answered from recorded trials:

space      which plans there are, and why one is infeasible; plans that were not recorded count as infeasible, and those
           whose layout turned out to be so are tried again
model      what was modelled then of the recorded plans, and the plan that was predicted
bench      the trial of a plan, and in the run-off its samples, one after another and over again
clock      what trials and samples took

A trial is dropped early where it would be now, beside the best of this search, whatever became of it then: an
exhaustive run drops nothing. What it takes then is guessed: what it took before it was timed, and a few calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import cycle
from types import SimpleNamespace
from typing import Any, cast

from akx.backends.schedule import Parameter, Schedule, TimedCall, Traffic
from akx.core.errors import AkxError, FileFormatError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.cost.device_model import Figures
from akx.tuner.history.result import Roofline
from akx.tuner.history.trial import COMPLETE, PRUNED, Trial
from akx.tuner.measure import DISTURBED_SECONDS, Watch
from akx.tuner.model.seconds import Model
from akx.tuner.space import Costs, Space
from akx.tuner.trace.recording import AGAIN, RecordedTrial, Recording
from akx.tuner.trial.bench import SHORT_SECONDS, is_hopeless, too_slow

__all__ = ["UNKNOWN", "RecordedBench", "RecordedClock", "RecordedModel", "RecordedSpace", "recorded_world"]

#: Why a plan that nobody recorded is not tried.
UNKNOWN = "not in the recording"
#: Calls of a plan and of the anchor before it is dropped: three to see how long one takes, and one round.
_LOOKS = 4


class RecordedClock:
    """A clock that goes on by what the recorded trials took, in seconds."""

    time = 0.0

    def now(self) -> float:
        return self.time

    def pause(self, seconds: float) -> None:
        self.time += seconds


@dataclass(frozen=True)
class RecordedSpace(Space):
    """The space of a recording: its `trials`, and `missing` plans, which were asked for and are not there, in order."""

    trials: Mapping[Plan, RecordedTrial]
    missing: dict[Plan, None] = field(default_factory=dict)

    def holds(self, plan: Plan) -> bool:
        """Whether a plan was recorded: nothing is known of others, so that a search cannot weigh them."""
        return plan in self.trials

    def feasible(self, plan: Plan, matrix: Matrix) -> str | None:
        """None where the plan was tried, else why not."""
        found = self.trials.get(plan)
        if found is None:
            self.missing[plan] = None
            return UNKNOWN
        one = found.trial
        refused = one.state == PRUNED and one.seconds is None and one.prepare_seconds is None
        return one.reason if refused else None

    def plans(self, schedule: str | None = None) -> Iterator[Plan]:
        """The recorded plans, of one schedule or of all, in the order of the space."""
        places = {name: place for place, name in enumerate(self.parameters)}
        known = [plan for plan in self.trials if schedule in (None, plan.schedule) and self.values(plan) is not None]
        return iter(sorted(known, key=lambda plan: (places[plan.schedule], self._place(plan))))

    def least(self, plan: Plan, costs: Costs, fixed: Iterable[str] = ()) -> Plan:
        """The recorded plan of least cost that is like `plan` in what is fixed; `plan` where none costs less.

        From plan to plan there is no way here, since most plans on it are not on record.
        """
        wanted = {name: value for name, value in (self.values(plan) or {}).items() if name in set(fixed)}
        others = (other for other in self.plans(plan.schedule) if wanted.items() <= (self.values(other) or {}).items())
        known = [plan, *others]
        taken = list(costs(known))
        return known[min(range(len(known)), key=taken.__getitem__)]

    def _place(self, plan: Plan) -> tuple[int, ...]:
        values = self.values(plan) or {}
        return tuple(one.choices.index(values[one.name]) for one in self.parameters[plan.schedule])


@dataclass(frozen=True)
class RecordedModel(Model):
    """What was modelled of the recorded plans; traffic and rooflines are not on record."""

    recording: Recording = field(kw_only=True)

    @property
    def least_seconds(self) -> float:
        return float(self.recording.header["model"]["least_seconds"])

    def traffic(self, plan: Plan) -> Traffic | None:
        return None

    def seconds(self, plan: Plan) -> float:
        """Modelled seconds of one call; infinite where the plan was not recorded, or had no model."""
        found = self.recording.trials.get(plan)
        return math.inf if found is None or found.model_seconds is None else found.model_seconds

    def roofline(self, plan: Plan, seconds: float) -> Roofline | None:
        return None


class RecordedBench:
    """What a search asks of :class:`akx.tuner.trial.bench.Bench`, answered from recorded trials.

    A plan stands for its program. Nothing has to be compiled, goes on beside the search, or has to be let go of. The
    clock goes on by what trials and calls took. With a matrix the space may be a real one.
    """

    watch: Watch | None = None
    slowed, places, patience = 1.0, 1, math.inf
    alone: Callable[[], AbstractContextManager[object]] = nullcontext

    def __init__(
        self,
        trials: Mapping[Plan, RecordedTrial],
        space: Space,
        clock: RecordedClock,
        *,
        race: float,
        matrix: Matrix | None = None,
    ) -> None:
        self.space, self.clock = space, clock
        self._trials, self._race, self._anchor = trials, race, 0.0
        self._matrix = cast("Matrix", matrix)

    def nbytes(self, plan: Plan) -> int:
        found = self._trials.get(plan)
        return 0 if found is None else found.nbytes

    def try_plan(self, plan: Plan, *, number: int, origin: str, best: float | None) -> Trial:
        """The recorded trial, dropped early where it would be now."""
        reason = self.space.feasible(plan, self._matrix)
        if reason is not None:
            return Trial(number, plan, origin, PRUNED, reason)
        if plan not in self._trials:
            return Trial(number, plan, origin, PRUNED, UNKNOWN)
        one = replace(self._trials[plan].trial, number=number, origin=origin)
        spent = one.elapsed if one.elapsed is not None else (one.prepare_seconds or 0.0) + sum(one.samples)
        if one.seconds is None or not one.samples or one.state not in (COMPLETE, PRUNED):
            self.clock.pause(spent)
            return one
        if best is None or not is_hopeless(one.samples, self._race, best):
            self.clock.pause(spent)
            return replace(one, state=COMPLETE, reason="")
        timing = one.timing_seconds if one.timing_seconds is not None else sum(one.samples)
        self.clock.pause(spent - timing + min(timing, self._seconds_to_drop(one.seconds)))
        return replace(one, state=PRUNED, reason=too_slow(self._race))

    def _seconds_to_drop(self, seconds: float) -> float:
        look = _LOOKS * (seconds + self._anchor)
        return 2 * look + DISTURBED_SECONDS if seconds < SHORT_SECONDS else look

    def anchor_on(self, plan: Plan, seconds: float) -> None:
        self._anchor = seconds

    def program(self, plan: Plan) -> Plan:
        return plan

    def elsewhere(self, plan: Plan) -> Plan:
        """The same: nobody knows what it would have taken there."""
        return plan

    def call(self, program: Plan) -> Callable[[], None]:
        return _RecordedCall(self.clock, self._trials[program].trial.samples)

    def run_verified(self, plan: Plan, program: Plan) -> float:
        return self._trials[plan].trial.error or 0.0

    def is_coming(self, plan: Plan) -> bool:
        return False

    def _nothing(self, *_: Any) -> None:
        pass

    get_ready = await_code = end_when_settled = settle = forget = close = _nothing


class _RecordedCall(TimedCall):
    """Takes as long as the recorded samples, one after another and over again."""

    def __init__(self, clock: RecordedClock, samples: tuple[float, ...]) -> None:
        self._clock, self._samples = clock, cycle(samples)

    def __call__(self) -> None:
        self._clock.pause(next(self._samples))

    def timed(self, batch: int) -> float:
        seconds = next(self._samples)
        self._clock.pause(batch * seconds)
        return seconds


def recorded_world(recording: Recording, race: float) -> tuple[RecordedBench, RecordedModel]:
    """Bench and model of a recording; its clock is the bench's.

    Raises FileFormatError where what the recording says of its space makes no sense.
    """
    header, key = recording.header, recording.key
    try:
        parameters = {name: tuple(_parameter(one) for one in held) for name, held in header["space"].items()}
        starts = {name: [Plan.from_json(plan) for plan in plans] for name, plans in header["starts"].items()}
        figures = Figures(**header["model"]["figures"])
        float(header["model"]["least_seconds"])
        predicted = Plan.from_json(header["predicted"])
    except (AkxError, KeyError, TypeError, ValueError) as error:
        found = f"{type(error).__name__}: {error}"
        raise FileFormatError(f"{recording.path} is damaged in line 1", found=found, hint=AGAIN) from error
    # Of a schedule nothing is asked but where it wants a search to begin.
    schedules = {
        name: cast("Schedule", SimpleNamespace(name=name, starts=lambda *_, name=name: tuple(starts.get(name, ()))))
        for name in parameters
    }
    device = SimpleNamespace(**{**header["device"], "cores": header["threads"]})
    space = RecordedSpace(
        header["backend"], key.k, header["threads"], device, schedules, parameters, trials=recording.trials
    )
    nowhere = cast("Matrix", None)  # nothing that is asked of this space or this model looks at it
    model = RecordedModel(nowhere, space, figures, key.start_vectors, prediction=predicted, recording=recording)
    return RecordedBench(recording.trials, space, RecordedClock(), race=race), model


def _parameter(given: Mapping[str, Any]) -> Parameter:
    choices = tuple(given["choices"])
    if not all(isinstance(choice, (bool, int, float, str)) for choice in choices):
        raise TypeError(f"choices of {given['name']} are {choices!r}")
    return Parameter(given["name"], choices, given["default"], str(given.get("description", "")))
