"""``akx plans verify``: the plans that the database has for a matrix, run again.

Each plan that is for this machine, the revision of its schedule and the matrix's values in this type is prepared, its
result compared with the reference by the componentwise bound (:mod:`akx.tuner.trial.problem`), and timed in turns with
the baseline that it was tuned against. What is compared with the record is the speed-up over that baseline, not the
seconds: a machine that is busy today slows both down.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from akx.core.errors import AkxError, DeviceError, MissingDependencyError, PlanError
from akx.core.plan import Plan
from akx.plandb import aged, stale_fields
from akx.report.units import size

if TYPE_CHECKING:
    from akx.core.matrix import Matrix
    from akx.plandb import PlanRecord

__all__ = ["BAD", "FAILED", "HOLDS", "SKIPPED", "SLOWER", "WRONG", "Verification", "verifications"]

HOLDS, SLOWER, WRONG, FAILED, SKIPPED = "holds", "slower", "wrong", "failed", "skipped"
#: What somebody should do something about.
BAD = (SLOWER, WRONG, FAILED)
#: A speed-up may be so much smaller than the one in the record, or by twice the half-width of its interval.
_ALLOWED = 0.1
#: The most powers, and arrays as large as the result: the result, the right one, and what it may be off by.
_MOST_POWERS, _ARRAYS = 1000, 4
#: What a device class may have behind that of the device.
_SPECIAL = re.compile(
    r"(?:/budget (?P<budget>\d+) bytes)?(?:/(?P<threads>\d+) threads)?"
    r"(?:/value error (?P<off>\d(?:\.\d+)?(?:e-\d+)?))?$"
)


@dataclass(frozen=True)
class Verification:
    """What became of one plan of a layer.

    `state`: ``"holds"``, ``"slower"`` (than the record says, beside its baseline), ``"wrong"`` (a result beyond its
    bound), ``"failed"`` (it cannot be run), or ``"skipped"`` (it is not for here), and the reason in words. `seconds`
    and `baseline_seconds` are medians of calls in turns, now; `speedup` is their ratio, as the median of the rounds,
    and `spread` the relative half-width of its 95 % interval; `error` the largest componentwise error over its bound,
    at most 1 where the result is right.
    """

    record: PlanRecord
    layer: str
    state: str
    reason: str = ""
    seconds: float | None = None
    baseline_seconds: float | None = None
    speedup: float | None = None
    spread: float | None = None
    error: float | None = None

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types."""
        key = self.record.key
        return {
            "id": self.record.id,
            "layer": self.layer,
            "label": self.record.plan.label(),
            "k": key.k,
            "basis": key.basis,
            "dtype": key.dtype,
            "start_vectors": key.start_vectors,
            "device": key.device_class,
            "state": self.state,
            "reason": self.reason,
            "seconds": self.seconds,
            "recorded_seconds": self.record.seconds,
            "baseline_seconds": self.baseline_seconds,
            "recorded_baseline_seconds": self.record.baseline_seconds,
            "speedup": self.speedup,
            "recorded_speedup": self.record.speedup,
            "spread": self.spread,
            "error": self.error,
            "aged": aged(self.record),
        }


def verifications(
    matrix: Matrix, entries: Iterable[tuple[str, PlanRecord]], *, seconds: float = 3.0
) -> Iterator[Verification]:
    """Run plans again, one after another.

    `entries` are layers and records, as :meth:`akx.plandb.PlanDatabase.entries` has them for the pattern of the matrix;
    `seconds` is the most for the timing of one plan and its baseline. Nothing that a plan does is raised, but
    KeyboardInterrupt.
    """
    for layer, record in entries:
        try:
            yield _verification(matrix, layer, record, seconds)
        except (AkxError, MemoryError) as problem:
            yield Verification(record, layer, FAILED, f"cannot be run: {problem}")


def _verification(matrix: Matrix, layer: str, record: PlanRecord, seconds: float) -> Verification:
    from akx.backends.device_lock import device_lock
    from akx.tuner import measure
    from akx.tuner.history.trial import COMPLETE
    from akx.tuner.space import build_space
    from akx.tuner.trial.bench import Bench
    from akx.tuner.trial.problem import Problem

    device, threads, off, reason = _place(matrix, record)
    if reason:
        return Verification(record, layer, SKIPPED, reason)
    matrix = matrix.with_value_error(off)
    key, plan = record.key, record.plan
    if reason := _too_much(matrix, record, threads):
        return Verification(record, layer, SKIPPED, reason)
    space = build_space(matrix, key.k, device, backend=plan.backend, threads=threads, start_vectors=key.start_vectors)
    problem = Problem(matrix, key.k, basis=key.basis, start_vectors=key.start_vectors)
    precision = measure.Precision(relative=0.01, seconds=seconds, rounds_min=7)
    alone = device_lock(device).alone
    bench = Bench(problem, space, precision=measure.Precision(seconds=0.0), race=2.0, keep=2, alone=alone)
    try:
        trial = bench.try_plan(plan, number=0, origin="given", best=None)
        if trial.state != COMPLETE:
            state = WRONG if trial.reason.startswith("wrong result") else FAILED
            return Verification(record, layer, state, trial.reason)
        baseline = _baseline(record, plan, threads)
        other = None if baseline is None else bench.try_plan(baseline, number=1, origin="baseline", best=None)
        calls, known = [bench.call(bench.program(plan))], [min(trial.samples)]
        if baseline is not None and other is not None and other.state == COMPLETE:
            calls.append(bench.call(bench.program(baseline)))
            known.append(min(other.samples))
        with alone():
            found = measure.interleave(calls, precision, known=known, watch=bench.watch)
    finally:
        bench.close()
    if len(found) == 1:
        is_baseline = baseline is None and record.speedup == 1
        reason = "" if is_baseline else "its baseline cannot be run here, so that nothing is compared"
        longer = found[0].seconds / record.seconds if record.seconds > 0 else 1.0
        if is_baseline and longer > 1 + max(_ALLOWED, 2 * found[0].spread):
            reason = (
                f"takes {longer:.1f} times as long as when it was tuned; it is its own baseline, which takes as long"
            )
        speedup = 1.0 if is_baseline else None
        return Verification(record, layer, HOLDS, reason, found[0].seconds, None, speedup, None, trial.error)
    ratio = measure.paired_ratio(found[1], found[0])
    allowed = max(_ALLOWED, 2 * ratio.spread)
    state, reason = HOLDS, ""
    if ratio.seconds * (1 + allowed) < record.speedup:
        state = SLOWER
        reason = f"{ratio.seconds:.2f}x over its baseline, {record.speedup:.2f}x when it was tuned"
        if ratio.seconds < 1:
            reason += "; single products are faster now"
    return Verification(
        record, layer, state, reason, found[0].seconds, found[1].seconds, ratio.seconds, ratio.spread, trial.error
    )


def _place(matrix: Matrix, record: PlanRecord) -> tuple[Any, int, float, str]:
    """The device that a plan is for, its threads and the error that it may store values with; or why it is not ours."""
    from akx.backends.memory_budget import within
    from akx.backends.selection import device_of, plan_threads

    key, backend = record.key, record.plan.backend
    if stale := stale_fields(record):
        return None, 0, 0.0, f"stale, never used again: {', '.join(stale)} changed"
    if key.dtype != str(matrix.dtype) or key.index_type != str(matrix.indices.dtype):
        return None, 0, 0.0, f"for {key.dtype} values and {key.index_type} indices; give --dtype {key.dtype}"
    try:
        device = device_of(backend)
    except (DeviceError, MissingDependencyError) as problem:
        return None, 0, 0.0, f"for a GPU, {key.device_class}, and none can be used here: {problem}"
    special = _SPECIAL.fullmatch(key.device_class.removeprefix(device.device_class))
    if not key.device_class.startswith(device.device_class) or special is None:
        return None, 0, 0.0, f"for another device: {key.device_class}"
    budget, threads, off = special["budget"], special["threads"], special["off"]
    device = within(device, None if budget is None else int(budget))
    return device, plan_threads(backend, None if threads is None else int(threads)), float(off or 0.0), ""


def _too_much(matrix: Matrix, record: PlanRecord, threads: int) -> str:
    """Why a plan is not run, whatever its record says that it once took: others may have written it."""
    from akx.tuner.sandbox import SHARE, available_bytes

    key, plan = record.key, record.plan
    if plan.threads > threads:
        return f"for {plan.threads} threads, and a plan may use {threads} here; NUMBA_NUM_THREADS allows more"
    if key.k > _MOST_POWERS:
        return f"for k = {key.k}, and plans of more than {_MOST_POWERS} powers are not run again"
    nbytes = _ARRAYS * (key.k + 1) * key.start_vectors * matrix.n * matrix.dtype.itemsize
    free = int(SHARE * available_bytes())
    return f"its vectors take {size(nbytes)}, and {size(free)} may be used for them here" if nbytes > free else ""


def _baseline(record: PlanRecord, plan: Plan, threads: int) -> Plan | None:
    """The plan that the record was compared with; None where that is itself, is not known, or cannot be run."""
    given = record.provenance.get("baseline_plan")
    try:
        found = Plan.from_json(given) if isinstance(given, dict) else None
    except PlanError:
        return None
    if found is None or found == plan or found.threads > threads:
        return None
    return found if (found.backend, found.k) == (plan.backend, plan.k) else None
