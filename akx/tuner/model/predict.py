"""The plan for a call that nobody tuned, by the model of seconds (:mod:`akx.tuner.model.seconds`).

On a GPU the plan is the best of the plain products in every variant, values as they are, and of paddings of its rows
that promise the same the widest, unless one of the plans that schedules offer unseen (`heuristic_plans`) promises to be
1.15 times as fast: another schedule, or plain products with values in fewer bytes. A large matrix is looked at there
(`matrix.features` of its backend).

A call that was not tuned must never be slower than plain products because of a model. So on a CPU only what a schedule
offers unseen (``untuned``) is looked at, in each format that fits the pattern and whose price is known, in the order
the rows have: another format must promise to be 1.02 times as fast as plain CSR, 1.1 times where prices are guesses and
1.35 times where CSR does start vectors in groups, another schedule 1.2 times as fast as the best sweep; of those within
3 % of the best, the one that moves least is taken, and with indices of 16 bits where these fit and are not clearly
slower. Where the entries of a sweep would wait for x, which is read anywhere and lies beyond the own caches, it is that
which asks for x ahead of use. In doubt it is the plain sweep. What it costs is what `feasible` and `traffic` of these
plans cost, some passes over the column indices, which preparing the plan does not pay for again. A plan is predicted
once: it is kept with the pattern, and on disk (:mod:`akx.backends.pattern_cache`), under all that it depends on.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from akx.backends import registry
from akx.backends.pattern_cache import fact, keep
from akx.backends.schedule import Schedule
from akx.backends.selection import backend_of, device_of, plan_threads
from akx.core.errors import BudgetError, InfeasibleError
from akx.core.matrix import Matrix
from akx.core.options import Options, traits
from akx.core.plan import FULL, Option, Plan, in_full
from akx.cost.device_model import Figures
from akx.cost.rows import is_scattered
from akx.tuner.model.figures import figures_of
from akx.tuner.model.seconds import Model, traits_of
from akx.tuner.space import Space, build_space, is_baseline, resolve_backend

__all__ = ["Model", "budget_error", "predict", "predicted"]

#: So many times as fast as plain products another format must promise to be, to be chosen without a measurement, and
#: another schedule than the best sweep; where there are no prices of formats, the latter.
_FORMAT_GAIN, _CLEAR_GAIN, _BLIND_GAIN = 1.02, 1.2, 1.3
#: The former where prices are guesses, some or all; and so many times as long as the same with other indices a plan may
#: take that has narrow ones.
_GUESSED_GAIN, _NARROW_LOSS = 1.1, 1.05
#: The same where the plain format does start vectors in groups: in others they come one after another from caches that
#: are farther away than prices tell (grids of 26,000 and 100,000 rows: 1.3 promised, 1.0 and less found).
_GROUP_GAIN = 1.35
#: Plans whose prices lie within this factor promise the same.
_EVEN = 1.03
#: The same for another schedule than the best baseline, or a sweep with values in fewer bytes; their work is known.
_OFFERED_GAIN = 1.15
#: And values in fewer bytes than the same plan with values as they are: they have to be looked up, or widened.
_STORED_GAIN = 1.05
#: A sweep is predicted within a memory budget only where its layout would fit with so much padding.
_MOST_STORED = 2.0


def predict(
    matrix: Matrix,
    k: int,
    device: Any = None,
    *,
    basis: str = "monomial",
    start_vectors: int = 1,
    backend: str = "auto",
    threads: int | None = None,
    plain: bool = False,
) -> Plan:
    """The plan for a call that was not tuned: nothing is measured, nothing is prepared.

    Parameters
    ----------
    matrix : Matrix
        The matrix.
    k : int
        Powers, at least 1.
    device : HostDevice or CudaDevice, optional
        This machine's by default.
    basis : str
        Basis kind; every kind costs the same in the model.
    start_vectors : int
        Start vectors per call.
    backend : str
        ``"auto"`` or a backend's name.
    threads : int, optional
        Most threads to use.
    plain : bool
        Plain products and no other schedule; values may be stored in fewer bytes.

    Returns
    -------
    Plan
        Feasible; the same on every call with the same arguments, on a machine whose calibration is the same.

    Raises
    ------
    InfeasibleError
        Where not even a plain sweep is feasible.
    BudgetError
        Where nothing keeps within the device's memory budget.
    """
    del basis
    name = resolve_backend(backend)
    used = plan_threads(name, threads)
    here: Any = device_of(name) if device is None else device
    limited = replace(here, cores=used)
    figures = figures_of(limited, used)

    def may_be(declared: type[Options]) -> bool:
        return (declared.is_plain or not plain) and (bool(limited.budget) or not declared.streams)

    def found(seen: Matrix) -> Plan:
        schedules = {one: registry.get(name, one) for one in registry.names(name) if may_be(traits(name, one))}
        return predicted(Model(seen, Space(name, k, used, limited, schedules, {}), figures, start_vectors))

    if registry.has_others(name):  # nobody knows what their plans depend on
        return found(matrix)
    asked = (name, k, used, start_vectors, plain, matrix.dtype.name, limited, figures)
    backend_used = backend_of(name)
    seen = backend_used.looked_at(matrix, here)
    told = repr((asked, backend_used.told_by_values(seen, limited)))
    key = ("akx.tuner.model.predict", hashlib.sha256(told.encode()).hexdigest()[:32])
    plan = fact(seen, key, partial(found, seen), written=Plan.to_json, read=Plan.from_json)
    keep(seen)
    if seen is not matrix:
        backend_used.remember(matrix, seen)
    return plan


def predicted(model: Model) -> Plan:
    """The plan that `model` predicts; see :func:`predict`."""
    if model.prediction is not None:
        return model.prediction
    space, matrix = model.space, model.matrix
    budget = space.device.budget
    if budget and _MOST_STORED * model.working_set > budget:
        return _streamed(model)
    plain = None if space.plain is None else space.schedules[space.plain]
    offered = None if plain is None or budget else plain.heuristic_plans(matrix, space.device, space.k)
    if offered is not None:
        return _offered(model, offered)
    reasons: dict[str, None] = {}
    sweeps = []
    for plan in _sweeps(model):
        reason = space.feasible(plan, matrix)
        if reason is None:
            sweeps.append(plan)
        else:
            reasons[reason] = None
    if not sweeps:
        why = "; ".join(reasons) or "no schedule of that name"
        raise InfeasibleError(f"no plain sweep is feasible: {why}", hint="use another backend")
    best = model.rank(sweeps)[0]
    if model.figures.formats:
        return _priced(model, best)
    if space.k < 2 or model.working_set <= model.figures.last_level_bytes:
        return best
    bar = model.seconds(best) / _BLIND_GAIN
    for name, schedule in space.schedules.items():
        other = None if name == space.plain else schedule.untuned(space.k, space.threads)
        if other is not None and space.feasible(other, matrix) is None:
            seconds = model.seconds(other)
            if seconds < bar:
                best, bar = other, seconds
    return best


def _priced(model: Model, plain: Plan) -> Plan:
    """The plan that promises most in any format whose price is known: `plain`, unless another is clearly better."""
    blocked = model.space.k > 1 and model.working_set > model.figures.last_level_bytes
    sweeps: list[Plan] = []
    others: list[Plan] = []
    plain_name = model.space.plain
    for name, schedule in model.space.schedules.items():
        if name == plain_name or blocked:
            (sweeps if name == plain_name else others).extend(_formats(model, schedule))
    is_measured = model.figures.foreseen != Figures.foreseen  # not by an older akx either, which knew less
    gain = _FORMAT_GAIN if is_measured else _GUESSED_GAIN
    first = min((plain, _narrow(model, plain)), key=model.seconds)  # of one layout
    if model.groups(first):
        gain = max(gain, _GROUP_GAIN)
    best = _clearly_better(model, first, sweeps, gain, lightest=True)
    best = _narrow(model, _clearly_better(model, best, others, _CLEAR_GAIN, lightest=True))
    return _asking_ahead(model, best) if best.schedule == plain_name and not model.groups(best) else best


def _narrow(model: Model, best: Plan) -> Plan:
    """The same plan with indices of 16 bits, where these fit and promise to take no more than 5 % longer.

    They take half the bytes, and no longer on any processor that was measured: prices of the two differ by no more than
    what a calibration is off.
    """
    name = traits_of(best).narrow
    if not name or name not in model.figures.formats:
        return best
    narrow = best.replace(variant=name)
    if model.space.feasible(narrow, model.matrix) is not None:
        return best
    return narrow if model.seconds(narrow) <= _NARROW_LOSS * model.seconds(best) else best


def _asking_ahead(model: Model, best: Plan) -> Plan:
    """Plain products that ask for x ahead of use, where the entries wait for it in any other format; else `best`.

    No price says what that is worth, which depends on memory that answers late: on one processor they took 0.60 to
    0.84 of the time of the best other format wherever columns are anywhere and the own caches do not hold x, and more
    than it everywhere else.
    """
    space, matrix = model.space, model.matrix
    if not traits_of(best).has_columns or not is_scattered(matrix, best.threads * int(space.device.l2_bytes)):
        return best
    ahead = (best.replace(variant=name, options={}) for name in registry.variants_with(best.backend, "asks_ahead"))
    return next((plan for plan in ahead if space.feasible(plan, matrix) is None), best)


def _offered(model: Model, plans: Iterable[Plan]) -> Plan:
    """The plan that promises most of those offered: the best baseline, unless another is clearly better.

    That may be another schedule, or a sweep with values in fewer bytes.
    """
    space, matrix = model.space, model.matrix
    offered = [plan for plan in plans if space.feasible(plan, matrix) is None]
    sweeps = [plan for plan in offered if is_baseline(plan)]
    if not sweeps:
        raise InfeasibleError("no plain sweep is feasible", hint="use another backend")
    others = [plan for plan in offered if not is_baseline(plan)]
    for name, schedule in space.schedules.items():
        if name != space.plain:
            try:
                offered_too = schedule.heuristic_plans(matrix, space.device, space.k) or ()
            except Exception:  # what cannot say what there is has nothing to offer, and the call goes on
                continue
            others += [plan for plan in offered_too if space.feasible(plan, matrix) is None]
    plain_best = model.rank(sweeps)[0]
    best = _clearly_better(model, plain_best, [plan for plan in others if _pays(model, plan)], _OFFERED_GAIN)
    return _most_padded(model, best, sweeps) if best == plain_best else best


def _most_padded(model: Model, best: Plan, sweeps: list[Plan]) -> Plan:
    """Of plans that promise as much as `best` and pad rows to other multiples, the one that pads most.

    Its rows begin at wider words, which is in no price: on an H100 it was up to 3 % faster of two that should be equal.
    """
    padding, most = "pad", _EVEN * model.seconds(best)
    if padding not in best.options:
        return best
    padded = [plan for plan in sweeps if padding in plan.options]
    same = [plan for plan in padded if plan == best.replace(options={**best.options, padding: plan.options[padding]})]
    return max((plan for plan in same if model.seconds(plan) <= most), key=lambda plan: int(plan.options[padding]))


def _pays(model: Model, plan: Plan) -> bool:
    """Whether values in fewer bytes, where the plan has such, promise more than the same plan in full."""
    if plan.typed.stored == FULL:
        return True
    return model.seconds(plan) * _STORED_GAIN < model.seconds(in_full(plan))


def _clearly_better(model: Model, best: Plan, plans: list[Plan], gain: float, *, lightest: bool = False) -> Plan:
    """The fastest of `plans` where it promises to be so many times as fast as `best`, else `best`.

    With `lightest`, of the plans like it that do and promise as much, as far as prices can tell, that of the least
    bytes: what is in no price, such as entries of x that the matrix drives out of a cache, grows with them.
    """
    seconds = {plan: model.seconds(plan) for plan in (best, *plans)}
    fastest = min(seconds, key=lambda plan: seconds[plan])
    if not seconds[fastest] * gain < seconds[best]:
        return best
    if not lightest:
        return fastest
    most = min(_EVEN * seconds[fastest], seconds[best] / gain)
    alike = [plan for plan in plans if (plan.schedule, plan.threads) == (fastest.schedule, fastest.threads)]

    def moved(plan: Plan) -> float:
        traffic, b = model.traffic(plan), model.start_vectors
        return math.inf if traffic is None else traffic.matrix_bytes + b * traffic.vector_bytes + traffic.cache_bytes

    return min([fastest, *(plan for plan in alike if seconds[plan] <= most)], key=moved)


def _formats(model: Model, schedule: Schedule) -> Iterator[Plan]:
    """What a schedule offers unseen, in each format that fits and has a price: its sortings, depths, blocks."""
    space, matrix = model.space, model.matrix
    offered = schedule.untuned(space.k, space.threads)
    if offered is None or space.feasible(offered, matrix) is not None:
        return
    try:
        choices = {one.name: one.choices for one in schedule.space(matrix, space.device, space.k)}
    except Exception:  # what cannot say what there is has nothing to offer, and the call goes on
        return
    variants = [variant for variant in choices.get("variant", ()) if variant in model.figures.formats]
    counts = [count for count in choices.get("threads", (space.threads,)) if int(count) <= space.threads]
    depths = dict.fromkeys((offered.k_per_pass, *choices.get("k_per_pass", ())))  # among equals what is offered
    sizes = dict.fromkeys((offered.block_bytes, *choices.get("block_bytes", ())))
    for variant, threads in product(variants, counts or [space.threads]):
        sorts = registry.variant_traits(space.backend, str(variant)).sorts
        for sigma in choices.get("sigma", (1,)) if sorts else (1,):
            options = {"sigma": sigma} if "sigma" in choices else {}
            for depth, size in product(depths, sizes):
                fields = {"variant": variant, "threads": threads, "k_per_pass": depth, "block_bytes": size}
                plan = offered.replace(**fields, options=options)
                if space.feasible(plan, matrix) is None:
                    yield plan


def _streamed(model: Model) -> Plan:
    """Streamed within the memory budget: as few passes as fit, in the first order of rows that will do.

    A pass does some powers of some of the start vectors, so the matrix comes as often as there are groups of either; in
    fewer bytes, where its values allow it.

    Raises :class:`BudgetError`, with the least that would do, where nothing fits.
    """
    space, matrix = model.space, model.matrix
    if space.streamed is None or space.streamed not in space.parameters:
        space = build_space(
            matrix,
            space.k,
            space.device,
            backend=space.backend,
            threads=space.threads,
            start_vectors=model.start_vectors,
            keep=lambda name: _is_plain_or_streams(space.backend, name),
        )
    name = space.streamed
    if name is None:
        raise budget_error(space, matrix, "there is no schedule that streams")
    depths = {space.k, *(int(depth) for depth in space.choices(name, "k_per_pass"))}
    widths = {int(width) for width in space.choices(name, "vectors")} or {1}
    widths = {width for width in widths if width <= model.start_vectors} or {min(widths)}

    def passes(pair: tuple[int, int]) -> tuple[int, int]:
        """How often the matrix comes; among equals more powers at a time, for which fewer vectors are sent again."""
        depth, width = pair
        return -(-space.k // depth) * -(-model.start_vectors // width), -depth

    ways: list[dict[str, Option]] = [{"stored": way} for way in reversed(space.choices(name, "stored"))] or [{}]
    reasons: dict[str, None] = {}
    for depth, width in sorted(product(depths, widths), key=passes):
        for variant in space.choices(name, "variant"):
            for move in space.choices(name, "move"):
                for order, ahead, way in product(space.choices(name, "partitioner"), (2, 1), ways):
                    values: dict[str, Option] = {"k_per_pass": depth, "variant": variant, "move": move}
                    values["vectors"] = width
                    plan = space.plan(name, {**values, **way, "partitioner": order, "ahead": ahead})
                    reason = space.feasible(plan, matrix)
                    if reason is None:
                        reason = space.schedules[name].waste(plan, matrix, space.device)
                    if reason is None:
                        return plan
                    reasons[reason] = None
    raise budget_error(space, matrix, next(reversed(reasons), "there is no schedule that streams"))


def _is_plain_or_streams(backend: str, schedule: str) -> bool:
    found = traits(backend, schedule)
    return found.is_plain or found.streams


def budget_error(space: Space, matrix: Matrix, reason: str) -> BudgetError:
    """That nothing keeps within the memory budget, and the least that would do."""
    schedule = None if space.streamed is None else space.schedules[space.streamed]
    least = None if schedule is None else schedule.least_budget(matrix, space.k, space.device)
    enough = "" if least is None else f"at least {least} bytes"
    return BudgetError(
        "no plan keeps within the memory budget",
        expected=enough,
        found=f"{space.device.budget} bytes ({reason})",
        hint="give it more (--memory-budget, --fraction)",
    )


def _sweeps(model: Model) -> list[Plan]:
    """Plain products on all threads and on one: as the schedule offers them unseen, else in every variant."""
    space = model.space
    if space.plain is None:
        return []
    backend = space.backend
    offered = space.schedules[space.plain].untuned(space.k, space.threads)
    if offered is not None:
        plans = [offered]
    else:
        if space.plain not in space.parameters:
            space = build_space(
                model.matrix,
                space.k,
                space.device,
                backend=backend,
                threads=space.threads,
                keep=lambda name: _is_plain_or_streams(backend, name),
            )
        plans = list(space.baselines(model.matrix))
    return list(dict.fromkeys([*plans, *(plan.replace(threads=1) for plan in plans)]))
