"""From the schedules' traffic models to seconds.

The model of one call with b start vectors on a machine with the figures of :mod:`akx.tuner.model.figures`::

    seconds = sqrt(far^2 + work^2) + synchronisations x price of one + waking the threads
    far     = share x max(slow bytes / slow bandwidth, near bytes / last-level bandwidth)
    work    = b (size (slots x price of a slot + rows x price of a row) + surprises x price of one
                 + entries x share missed x price of a miss) / threads

where slow bytes = matrix bytes + b x vector bytes, and the slow bandwidth is that of the last-level cache where the
matrix and all vectors fit it. Within a memory budget of a GPU it is that of the link to the host, in both directions;
powers go back and all else comes, so that the longer of the two, by itself, is a bound as well. Near bytes are what the
cores read from the last-level cache: what a pass reads, once for all its powers and start vectors. The share is that of
the matrix and all vectors which the own caches of the plan's cores do not hold, the size a factor that depends on the
bytes of a value. Formats without column indices ask for nothing that has not been fetched ahead: the larger of both
takes the place of the root. Slots are the values that the format stores, padding included, over all powers, redundant
ones too; what a slot and a row take a core is known for each format (:class:`akx.cost.device_model.FormatCost`),
and what a row takes more whose end the processor does not foresee (:mod:`akx.cost.rows`), or where rows are
sorted, and an entry whose entry of x is not in the nearest cache. Where start vectors are done in groups
(`Schedule.at_once`), the matrix comes once for a group, which has a price of its own; threads share the groups, and
vectors are moved once more, since they are side by side meanwhile. Where a price is not known, seconds are the largest
of slow bytes / slow bandwidth, b x cache bytes / cache bandwidth and b x flops / flop rate, and what waits. It is a
roofline with a price list, so it is optimistic; it ranks plans.

On a GPU, formats and schedules differ in more than that, and each schedule says what a plan makes the device do
(`Work`; `work`): bytes by tier, cycles of the busiest multiprocessor,
loads that wait for one another, kernels and exchanges::

    seconds = loaded / slow bandwidth + sqrt(max(memory / slow, cache / last-level bandwidth)^2 + (cycles / clock)^2)
              + chain / clock + kernels x price of one + exchanges x price of one

at shares of the bandwidths that the backend says (`Backend.bandwidth_shares`): gathers reach less of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from akx.backends import registry
from akx.backends.selection import backend_of
from akx.backends.variant import VariantTraits
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.cost.counts import Traffic, Work
from akx.cost.device_model import Figures, FormatCost
from akx.cost.rows import missed, surprises
from akx.tuner.history.result import Roofline
from akx.tuner.space import Space

__all__ = ["Model", "traits_of"]

#: Cycles a second of a GPU that does not tell.
_CLOCK = 1.5e9
#: How much more of vectors is moved where they are done in groups.
_MOVED_TOGETHER = 5 / 3


@dataclass(frozen=True)
class Model:
    """Seconds of plans of one problem, as the traffic models have it.

    Attributes
    ----------
    matrix : Matrix
        The matrix.
    space : Space
        Where the schedules are.
    figures : Figures
        Of the machine, for the order of plans: calibrated or derived ones, so that the order is always the same.
    start_vectors : int
        Start vectors per call.
    ceiling : Figures or None
        Measured ones, for the roofline; `figures` where there are none.
    prediction : Plan or None
        The predicted plan where it is known already, as of a recording.
    """

    matrix: Matrix
    space: Space
    figures: Figures
    start_vectors: int = 1
    ceiling: Figures | None = None
    prediction: Plan | None = None

    @property
    def working_set(self) -> int:
        """Bytes that one call touches in the plainest layout: CSR and all vectors."""
        vectors = (self.space.k + 1) * self.matrix.n * self.matrix.dtype.itemsize * self.start_vectors
        return self.matrix.nbytes + vectors

    def traffic(self, plan: Plan) -> Traffic | None:
        """The schedule's model of a plan, or None where it has none; the matrix comes once for a group of vectors."""
        try:
            found = self.space.schedules[plan.schedule].traffic(plan, self.matrix, self.space.device)
            groups = self.groups(plan)
        except Exception:  # a model only ranks: what it cannot rank comes last, and is judged by its trial
            return None
        if not groups:
            return found
        matrix, vectors, cache = found.matrix_bytes, found.vector_bytes, found.cache_bytes
        matrix, vectors, cache = groups * matrix, _MOVED_TOGETHER * vectors, groups * cache
        return replace(found, matrix_bytes=matrix, vector_bytes=vectors, cache_bytes=cache, synchronisations=0.0)

    def parts(self, traffic: Traffic, figures: Figures) -> dict[str, float]:
        """Seconds by what takes them: ``"memory"``, ``"cache"``, ``"arithmetic"``, ``"synchronisation"``."""
        b = self.start_vectors
        slow = traffic.matrix_bytes + b * traffic.vector_bytes
        memory = slow / figures.bandwidth(self.working_set)
        if self.space.device.budget and figures.link_one_way:  # powers go back while the rest comes
            back = min(slow, float(b * self.space.k * self.matrix.n * self.matrix.dtype.itemsize))
            memory = max(memory, back / figures.link_one_way, (slow - back) / figures.link_one_way)
        return {
            "memory": memory,
            "cache": b * traffic.cache_bytes / figures.cache_bandwidth,
            "arithmetic": b * traffic.flops / figures.flops,
            "synchronisation": traffic.synchronisations * figures.synchronisation,
        }

    def seconds(self, plan: Plan) -> float:
        """Modelled seconds of one call; infinite where the schedule has no model of the plan."""
        schedule = self.space.schedules.get(plan.schedule)
        if schedule is not None and not self.space.device.budget:
            try:
                done = schedule.work(plan, self.matrix, self.space.device, self.start_vectors)
            except Exception:  # as in :meth:`traffic`
                return math.inf
            if done is not None:
                return self._done(done)
        traffic = self.traffic(plan)
        if traffic is None:
            return math.inf
        parts = self.parts(traffic, self.figures)
        waiting, taken = parts.pop("synchronisation"), max(parts.values())
        if plan.variant in self.figures.formats:
            try:
                work = self._work(plan, traffic)
            except Exception:  # as in :meth:`traffic`
                return math.inf
            far = self._beyond(plan) * max(parts["memory"], self._near(plan, traffic))
            taken = max(far, work) if not traits_of(plan).has_columns else math.hypot(far, work)
        waking = self.figures.waking if plan.threads > 1 else 0.0
        return taken * self._share(plan) + waiting + waking

    def rank(self, plans: Iterable[Plan]) -> list[Plan]:
        """Plans by modelled seconds, fastest first; the order given where they are equal."""
        return sorted(plans, key=self.seconds)

    @property
    def least_seconds(self) -> float:
        """Seconds that no plan is thought to do with less than: values and vectors moved once, and nothing else.

        They come from the fastest memory that holds them. Within a memory budget the values may stay where they are.
        """
        figures = self.figures if self.ceiling is None else self.ceiling
        values = 0 if self.space.device.budget else self.matrix.nnz
        vectors = (self.space.k + 2) * self.start_vectors * self.matrix.n
        size = self.matrix.dtype.itemsize * (values + vectors)
        cached = max(figures.cache_bandwidth, figures.last_level_bandwidth, figures.slow_bandwidth)
        return size / (cached if size <= figures.last_level_bytes else figures.slow_bandwidth)

    def roofline(self, plan: Plan, seconds: float) -> Roofline | None:
        """The bound that slow memory and caches set to a plan, beside what it took."""
        traffic = self.traffic(plan)
        if traffic is None or seconds <= 0:
            return None
        parts = self.parts(traffic, self.figures if self.ceiling is None else self.ceiling)
        parts.pop("arithmetic")  # the flop rate is a guess, no bound
        parts.pop("synchronisation")
        limit = max(parts, key=lambda name: parts[name])
        return Roofline(
            bound_seconds=parts[limit],
            share=parts[limit] / seconds,
            limit=limit,
            bytes=traffic.matrix_bytes + self.start_vectors * traffic.vector_bytes,
            flops=self.start_vectors * traffic.flops,
            redundancy=traffic.redundancy,
        )

    def _done(self, work: Work) -> float:
        """Seconds of what a device does, at its figures."""
        reached, reached_near = backend_of(self.space.backend).bandwidth_shares()
        slow, near = reached * self.figures.slow_bandwidth, reached_near * self.figures.last_level_bandwidth
        clock = self.space.device.clock_hz or _CLOCK
        moved = max(work.memory_bytes / slow, work.cache_bytes / near)
        waits = work.launches * self.figures.synchronisation + work.barriers * self.figures.barrier
        return work.loaded_bytes / slow + math.hypot(moved, work.cycles / clock) + work.chain / clock + waits

    def _beyond(self, plan: Plan) -> float:
        """The share of what a call touches that its threads' own caches do not hold: prices are of data in them."""
        held = min(plan.threads, self.space.threads) * int(self.space.device.l2_bytes)
        return max(0.0, 1.0 - held / self.working_set)

    def _near(self, plan: Plan, traffic: Traffic) -> float:
        """Seconds of all threads for what they read from the last-level cache: what a pass reads, once.

        Each part of the matrix comes once for all start vectors, which have it in turns
        (:mod:`akx.backends.cpu.task_loop`).
        """
        more = 2.0 * (self.start_vectors - 1) * self.matrix.n * self.matrix.dtype.itemsize * plan.k * traffic.redundancy
        return (traffic.cache_bytes + more) / plan.k_per_pass / self.figures.last_level_bandwidth

    def _work(self, plan: Plan, traffic: Traffic) -> float:
        """Seconds of all threads for what a plan computes, its format having a price."""
        cost, groups, together = self.figures.formats[plan.variant], self.groups(plan), 1
        schedule = self.space.schedules[plan.schedule]
        if groups:
            together = schedule.at_once(plan, self.matrix, self.start_vectors)
            cost = self._together(plan, together)
        padding, largest = schedule.padding(plan, self.matrix), schedule.largest_share(plan, self.matrix)
        slots = traffic.flops / 2.0 * padding
        times = plan.k * traffic.redundancy  # that a row is computed
        is_sorted = bool(plan.typed.sigma > 1)
        rows = times * self.matrix.n * (cost.row + cost.sorted * is_sorted)
        work = _size_factor(plan, self.matrix.dtype.itemsize) * (slots * cost.slot + rows)
        if cost.uneven:  # as long for numbers of any size, as it is below
            work += times * surprises(self.matrix, plan.threads, self.figures.foreseen) * cost.uneven
        if cost.scattered:
            work += times * self.matrix.nnz * missed(self.matrix, self.space.device.l1_bytes, together) * cost.scattered
        if groups:  # each by one thread
            return math.ceil(groups / plan.threads) * work * plan.threads / self.space.threads
        return self.start_vectors * work * largest / self.space.threads

    def groups(self, plan: Plan) -> int:
        """Groups of start vectors that have each entry at once; 0 where each vector has it by itself."""
        together = self.space.schedules[plan.schedule].at_once(plan, self.matrix, self.start_vectors)
        return math.ceil(self.start_vectors / together) if together > 1 else 0

    def _together(self, plan: Plan, vectors: int) -> FormatCost:
        """The price of a group, on a machine that takes as many times as long for it as for one vector."""
        declared, measured = traits_of(plan), self.figures.formats[plan.variant]
        cost = declared.together.get(vectors)
        if cost is None or declared.cost is None:
            return measured
        factor = measured.slot / declared.cost.slot
        return FormatCost(*(factor * getattr(cost, one.name) for one in fields(cost)))

    def _share(self, plan: Plan) -> float:
        """How much longer the work takes on the plan's threads than on all of them."""
        return self.space.threads / max(1, min(plan.threads, self.space.threads))


def traits_of(plan: Plan) -> VariantTraits:
    return registry.variant_traits(plan.backend, plan.variant)


def _size_factor(plan: Plan, itemsize: int) -> float:
    """How much longer a format takes for numbers of so many bytes than for those of 8, of which its price is."""
    return traits_of(plan).sizes.get(itemsize, itemsize / 8.0)
