"""What is used for a call where the database has no plan for exactly its key: the rungs below, and who may stand there.

1. exact key          a plan for this pattern under any values, used as it is; and one for this very key but for the
                      basis, which changes a few operations a row. One that is aged, made with other kernel sources or
                      versions than those of today, has to prove itself once in a process (:func:`renewed`)
2. a like device,     a plan for this very key but for the device class, of a like device (`device_similarity`), or for
   another k          k within a factor of two, or for several of these and the basis: believed after one measurement
                      against rung 4, in this process, on this matrix (:func:`believed`)
3. similar matrices   never used unmeasured: where a search begins (:mod:`akx.tuner.candidates.warm_start`)
4. prediction         the model's plan (:mod:`akx.tuner.model.predict`)

Rung 2: the result of the *like* plan is compared with that of the predicted one by the componentwise bound
(:class:`akx.tuner.trial.problem.Comparison`), and both are timed in turns. The like plan is used where it was faster in
every round, else the predicted one. In all that is some fifteen calls and two preparations. So it is done once for a
key in a process (what failed for want of memory, or of a worker, is tried again in a minute), where that is worth it
(:func:`_reason_not_to_try`), and when nobody else measures on the device.

An aged plan was tuned for this very call: it gives way where it is wrong or fails, or where the predicted plan was
faster in every round. Where it cannot be measured it is used all the same: what runs it is compiled from the sources of
today, so that age can cost time and nothing else.

Nothing that goes wrong with the like plan is an error: the predicted plan is then the plan. Nothing is written to the
database. As the choice depends on a measurement, it may differ between two runs, and with it the last bits of results:
``AKX_LIKE_DEVICES=off`` leaves the rung out, and uses aged plans unmeasured.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from akx.backends import registry
from akx.backends.device_lock import device_lock
from akx.backends.pattern_cache import fact, keep
from akx.backends.schedule import Program
from akx.backends.selection import backend_of
from akx.core.errors import AkxError, VerificationError
from akx.core.fork_safety import ForkSafeLock
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.plandb import PlanKey, PlanRecord, aged
from akx.tuner import measure
from akx.tuner.fallback.nearest import changes, nearest
from akx.tuner.fallback.similar_keys import Like, fitted, like_plans, limited
from akx.tuner.history.result import EXHAUSTED, FEW_CALLS, NO_IMPROVEMENT
from akx.tuner.measure import Measurement, Precision
from akx.tuner.space import Space
from akx.tuner.trial.problem import BASIS_KINDS, Comparison

__all__ = ["SWITCH", "Answer", "Like", "believed", "fitted", "is_measured", "like_plans", "limited", "renewed"]

#: The environment's switch of rung 2.
SWITCH = "AKX_LIKE_DEVICES"
_OFF = frozenset({"off", "0", "no", "false"})

#: Bytes that may be held while two programs are compared.
_MOST_BYTES = 1 << 30
#: Seconds of preparing, and the speed-up, that a plan had where it was tuned: at most, and at least.
_MOST_PREPARING, _LEAST_SPEEDUP = 2.0, 1.1
_PRECISION = Precision(relative=0.05, seconds=0.1, rounds_min=3, rounds_max=8, sample_seconds=5e-4)
#: A plan whose fastest sample takes so many times as long as the predicted one is not timed to the end.
_RACE = 1.25
#: Seconds for which others who measure on the device are waited for: a timing of the tuner takes less.
_PATIENCE = 1.0
#: Verdicts that are remembered, and seconds for which a failure is.
_REMEMBERED, _RETRIED = 256, 60.0
_BUSY = "another process, or thread, is measuring on the device"
#: Like plans that are looked at until one is worth a measurement.
_CANDIDATES = 4
#: What ends a search that has tried what there is.
_THROUGH = (NO_IMPROVEMENT, EXHAUSTED)


@dataclass(frozen=True)
class Answer:
    """The plan to use, whether it is another than the predicted one, and its program where it was prepared on the way.

    `why` is what was found out, as a part of a sentence; "" where there was nothing to find out.
    """

    plan: Plan
    is_like: bool = False
    why: str = ""
    program: Program | None = None


@dataclass(frozen=True, eq=False)
class _Call:
    """A call without a plan of its own, as :func:`believed` has it."""

    matrix: Matrix
    key: PlanKey
    device: Any
    threads: int
    prepared: Callable[[Plan], Program | None]

    def program(self, plan: Plan) -> Program:
        """The caller's program of a plan, where there is one, else a new one."""
        return self.prepared(plan) or registry.get(plan.backend, plan.schedule).prepare(self.matrix, plan)

    def as_it_fits(self, like: Like) -> Like:
        """The like plan, or the nearest that fits where it does not; the same again where none does."""
        if self.against(like.plan) is None:
            return like
        try:
            near = nearest(like.plan, self.matrix, self.device, self.threads, self.key.start_vectors)
        except Exception:  # as in :meth:`against`
            return like
        return like if near is None else replace(like, plan=near, instead=changes(like.plan, near))

    def against(self, plan: Plan) -> str | None:
        """Why a plan is not feasible, or cannot be looked at."""
        try:
            return _against(plan, self.matrix, self.device, self.threads)
        except Exception as failure:
            return str(failure)


def believed(
    records: Sequence[PlanRecord],
    predicted: Plan,
    matrix: Matrix,
    key: PlanKey,
    *,
    device: Any,
    threads: int,
    prepared: Callable[[Plan], Program | None] = lambda plan: None,
) -> Answer:
    """The plan for another basis; that of a like device or for another k where that is faster here; or the predicted.

    Parameters
    ----------
    records : sequence of PlanRecord
        Those that a lookup of `key` found for the pattern.
    predicted : Plan
        The plan of an untuned call.
    matrix, key, device, threads
        Of the call; `threads` of the host at most that a plan may use.
    prepared : callable
        The program of a plan where the caller has one, else None.

    Never raises for anything that the like plan does.
    """
    call = _Call(matrix, key, device, threads, prepared)
    likes = like_plans(records, key, backend=predicted.backend, threads=threads, others=True)
    for like in likes:
        if like.differ != ("basis",) or not _is_settled(like.record) or aged(like.record):
            continue
        try:
            if _against(like.plan, matrix, device, threads) is not None:
                continue
            program = call.program(like.plan)
        except Exception:  # the predicted plan may work
            continue
        gain = f"{like.record.speedup:.2f}x over {like.record.baseline_name}"
        return Answer(like.plan, True, f"{like.where}, tuned on {like.record.created[:10]}: {gain}", program)
    if not likes or not is_measured():
        return Answer(predicted)
    likes = [call.as_it_fits(like) for like in likes[:_CANDIDATES]]
    if likes[0].plan == predicted:
        return Answer(predicted, False, f"that {likes[0].where} is the same")
    reasons = [_reason_not_to_try(like, predicted, call) for like in likes]
    if all(reason is not None for reason in reasons):
        return _unused(predicted, likes[0], reasons[0] or "")
    return _raced(likes[reasons.index(None)], predicted, call)


def renewed(
    record: PlanRecord,
    plan: Plan,
    predict: Callable[[], Plan],
    matrix: Matrix,
    key: PlanKey,
    *,
    device: Any,
    threads: int,
    prepared: Callable[[Plan], Program | None] = lambda plan: None,
) -> Answer:
    """The aged plan of a record, or the predicted one where that is faster here, or the other does not work.

    A lookup of `key` found the record, whose plan is `plan` as it may run here. `predict` makes the plan of an untuned
    call. Other arguments are those of :func:`believed`.
    """
    call, like = _Call(matrix, key, device, threads, prepared), Like(plan, record, 0.0, ())
    if (reason := call.against(plan)) is not None:
        return _unused(predict(), like, reason)
    if not is_measured():
        return Answer(plan, True, "not measured again: that is off")
    predicted = predict()
    reason = "it is the predicted one" if plan == predicted else _reason_not_to_try(like, predicted, call)
    if reason is not None:
        return Answer(plan, True, f"not measured again: {reason}")
    return _raced(like, predicted, call)


def is_measured() -> bool:
    """Whether a call may measure plans, which the environment may forbid."""
    is_fixed = os.environ.get("AKX_PREPARE", "") == "fixed"  # then nothing may depend on a clock
    return not is_fixed and os.environ.get(SWITCH, "").strip().lower() not in _OFF


def _is_settled(record: PlanRecord) -> bool:
    """Whether the search behind a plan had an end, and more to compare than plain products."""
    ended = record.provenance.get("stopped")
    if record.is_crude or ended == FEW_CALLS:
        return False
    return record.speedup > 1.0 or ended in _THROUGH or bool(record.provenance.get("untuned"))


def _reason_not_to_try(like: Like, predicted: Plan, call: _Call) -> str | None:
    """Why a like plan is not worth, or not fit for, a measurement in passing.

    What is held meanwhile, three sets of vectors and three layouts of the matrix, has to be 1 GiB at most: calls are
    then short enough for the whole to take a second or two. Within a memory budget there is no room for two plans.
    """
    record, key, matrix = like.record, call.key, call.matrix
    if "device_class" in like.differ and 1.0 < record.speedup < _LEAST_SPEEDUP:
        return f"it gained {record.speedup:.2f}x there"
    if record.prepare_seconds > _MOST_PREPARING:
        return f"preparing it took {record.prepare_seconds:.3g} s there"
    if key.basis not in BASIS_KINDS:
        return f"of the basis {key.basis!r} nothing is known to compare with"
    if like.plan.traits.streams or predicted.traits.streams or call.device.budget > 0:
        return "memory is short"
    backend = backend_of(like.plan.backend)
    if backend.is_memory_limited():
        return "the memory of the GPU is limited"
    if backend.may_crash and (not sys.executable or getattr(sys, "frozen", False)):
        return "there is no Python of its own in which to try it first"
    vectors = (key.k + 2) * key.start_vectors * matrix.n * matrix.dtype.itemsize
    if 3 * vectors + 3 * matrix.nbytes > _MOST_BYTES:
        return "the matrix is too large for a measurement in passing"
    return call.against(like.plan)


def _against(plan: Plan, matrix: Matrix, device: Any, threads: int) -> str | None:
    """Why a plan is not feasible; a fact of the pattern, since to find out may take as long as laying it out."""

    def found() -> str | None:
        return _space(plan, device, threads).feasible(plan, matrix)

    if registry.has_others(plan.backend):  # nobody knows what their plans depend on
        return found()
    by_values = backend_of(plan.backend).told_by_values(matrix, device)
    told = repr((plan.to_json(), device, threads, matrix.dtype.name, by_values))
    reason = fact(matrix, ("akx.tuner.fallback.answer", hashlib.sha256(told.encode()).hexdigest()[:32]), found)
    keep(matrix)
    return reason


def _space(plan: Plan, device: Any, threads: int) -> Space:
    """The schedules of the plan's backend on the device; of no plan is it asked what choices there are."""
    schedules = {schedule.name: schedule for schedule in registry.schedules(plan.backend)}
    return Space(plan.backend, plan.k, threads, replace(device, cores=threads), schedules, {})


# ---------------------------------------------------------------------------------------------- the race


#: What was found out, and until when it holds.
_VERDICTS: dict[tuple[PlanKey, Plan, Plan, float], tuple[Answer, float]] = {}
_lock = ForkSafeLock()


def _raced(like: Like, predicted: Plan, call: _Call) -> Answer:
    """Which of the two it is to be, by a measurement or by the memory of one."""
    name = call.key, like.plan, predicted, call.matrix.value_error
    verdict = _remembered(name)
    if verdict is None:
        with _lock:  # another measurement would disturb this one, and its verdict may be for the same key
            verdict = _remembered(name)
            if verdict is None:
                answer, lasts = _answer(like, predicted, call)
                if len(_VERDICTS) >= _REMEMBERED:
                    _VERDICTS.clear()
                _VERDICTS[name] = replace(answer, program=None), time.monotonic() + lasts
                return answer
    if not verdict.is_like:
        return verdict
    try:
        return replace(verdict, program=call.program(verdict.plan))
    except Exception as failure:  # the predicted plan may work
        return _unused(predicted, like, failure)


def _remembered(name: tuple[PlanKey, Plan, Plan, float]) -> Answer | None:
    answer, until = _VERDICTS.get(name, (None, 0.0))
    return answer if time.monotonic() < until else None


def _answer(like: Like, predicted: Plan, call: _Call) -> tuple[Answer, float]:
    """Both plans measured, and the one to use with its program; and for how many seconds that holds."""
    try:
        space = _space(like.plan, call.device, call.threads)
        ratio, programs = _measured(like, predicted, call.matrix, call.key, space)
    except VerificationError as failure:
        return _unused(predicted, like, failure), math.inf
    except Exception as failure:  # of whatever kind: the predicted plan may work
        return _unused(predicted, like, failure), _RETRIED
    if ratio is None:
        if not like.differ:
            return Answer(like.plan, True, f"not measured again: {_BUSY}", programs[like.plan]), _RETRIED
        return replace(_unused(predicted, like, _BUSY), program=programs[predicted]), _RETRIED
    gain = 1 / ratio.seconds
    is_aged = not like.differ
    if ratio.high < 1.0 or (is_aged and ratio.low <= 1.0):
        why = f"measured here: {gain:.2f}x over the predicted plan"
        return Answer(like.plan, True, why if is_aged else f"{like.where}, {why}", programs[like.plan]), math.inf
    told = f"{gain:.2f}x" if gain >= 0.01 else "less than 0.01x"
    why = f"the plan {like.where} was not faster here: {told}"
    return Answer(predicted, False, why, programs[predicted]), math.inf


def _unused(predicted: Plan, like: Like, reason: str | Exception) -> Answer:
    text = reason.what if isinstance(reason, AkxError) else " ".join(str(reason).split()) or type(reason).__name__
    return Answer(predicted, False, f"the plan {like.where} is not used: {text}")


def _measured(
    like: Like, predicted: Plan, matrix: Matrix, key: PlanKey, space: Space
) -> tuple[Measurement | None, dict[Plan, Program]]:
    """Seconds of the like plan over those of the predicted one, round by round; raises where it is wrong, or fails.

    None where others go on measuring on the device.
    """
    from akx.tuner.trial.bench import Bench, is_hopeless  # with Numba, which no call needs that measures nothing

    problem = Comparison(matrix, key.k, basis=key.basis, start_vectors=key.start_vectors)
    wary = like.distance > 0 or like.plan != like.record.plan
    bench = Bench(problem, space, precision=_PRECISION, race=_RACE, keep=1, wary=wary)
    try:
        trusted = bench.program(predicted)
        problem.trust(bench.stored_error(predicted))
        problem.bound_by(_magnitudes(predicted, trusted, problem, space))
        if not trusted.is_as_planned:  # moduli of complex values may not fit where the values do
            trusted = bench.program(predicted)
        lost = bench.reason_to_fear(like.plan)
        if lost is not None:
            raise AkxError(lost)
        tried = bench.program(like.plan)

        def hopeless(found: Sequence[Measurement]) -> bool:
            return is_hopeless(found[1].samples, _RACE, min(found[0].samples))

        ratio, calls = None, [bench.call(trusted), bench.call(tried)]
        with device_lock(space.device).in_passing(_PATIENCE) as may_measure:
            if may_measure:
                times = measure.interleave(calls, _PRECISION, hopeless=hopeless, watch=bench.watch)
                ratio = measure.paired_ratio(times[1], times[0])
    finally:
        bench.close()
    return ratio, {predicted: trusted, like.plan: tried}


def _magnitudes(predicted: Plan, trusted: Program, problem: Comparison, space: Space) -> NDArray[Any]:
    """The absolute powers, by the trusted program of a plan, which has its own values again behind it."""
    from akx.tuner.trial.bench import Bench

    bench = Bench(problem.magnitudes(), space, precision=_PRECISION, race=_RACE, keep=0, wary=False)
    trusted.update_values(problem.absolute_values())
    bench.run_verified(predicted, trusted)
    trusted.update_values(problem.matrix.data)
    return bench.problem.out
