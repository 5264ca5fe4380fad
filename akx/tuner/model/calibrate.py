"""Measure a device once, for predictions: ``akx doctor --calibrate``.

Host: bandwidths as in :mod:`akx.tuner.model.figures`, on all threads and on one; what every format costs a core
(below); what it takes to set threads to work, and to have them meet, from sweeps over a matrix of 512 rows. GPU:
bandwidths, of its link to the host too, and what a kernel in a graph and an exchange between multiprocessors take, from
`sweep` and `resident` over such a matrix: 33 powers beside one, less what loads wait for one another there.

A product in one format is taken to cost a core ``slots x slot + rows x row`` seconds. Both prices come from two
matrices that fit its second cache, of dense 3 x 3 blocks around the diagonal, so that every format fits them: one with
6 entries in a row and one with 48. What CSR costs more for rows whose ends cannot be foreseen, and sliced ELL where it
sorts rows, is what a matrix with rows of 1 to 8 entries takes longer than one with the same rows in the order of their
lengths; of how many branches a core remembers the outcome is where, of matrices with more and more such rows, half of
that is to be seen. What an entry costs more whose entry of x is not in the nearest cache is what rows of 8 entries
anywhere take longer than as many side by side.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from akx.backends import registry
from akx.backends.device_lock import device_lock
from akx.backends.revisions import ALL, sources
from akx.backends.schedule import Schedule, as_coefficients
from akx.backends.selection import HOST, backend_of
from akx.core.errors import DeviceError, DeviceMemoryError, InfeasibleError
from akx.core.matrix import Matrix
from akx.core.options import schedule_with
from akx.core.plan import Plan
from akx.cost.calibration import Calibration
from akx.cost.device_model import FORMATS, Figures, FormatCost
from akx.cost.rows import branches, missed, surprises, uneven_rows
from akx.plandb.record import now
from akx.tuner import measure
from akx.tuner.measure import Precision
from akx.tuner.model.figures import measured_figures

__all__ = ["calibrate"]

#: Rows and blocks in a row of the two matrices, in blocks of so many unknowns, and powers of a call.
_SHAPES, _BLOCK, _POWERS = ((2000, 2), (250, 16)), 3, 8
#: Rows of the matrix whose rows are of changing length, the longest of them, and the window in which they are sorted.
_UNEVEN_ROWS, _LONGEST, _WINDOW = 80_000, 8, 256
#: Rows of changing length, for some of which a core of any processor has learnt where they end, and for others not.
_LEARNT = (7_000, 10_000, 14_000, 20_000, 28_000, 40_000)
#: Seconds that a branch takes at least which the processor has not foreseen: three cycles or so.
_LEAST_SURPRISE = 1e-9
#: Rows of the matrix whose columns are anywhere, and entries in each: no nearest cache holds its x, and every next one
#: does, beside the matrix that goes through.
_SCATTERED_ROWS, _SCATTERED_ENTRIES = 24_000, 8
#: Rows of the matrix on which threads do next to nothing, and powers of the longer call.
_TINY, _MEETINGS = 512, 32
_PRECISION = Precision(relative=0.01, seconds=0.1)
#: Seconds that no step takes.
_DEAR = 1e-4
#: Times that each is measured; the least of all samples counts, since what disturbs only adds.
_ROUNDS = 4
#: A value of the dearest format takes at most so many times as long as one of the cheapest.
_LIKELY = 25.0
#: Times that prices are measured until they are likely.
_ATTEMPTS = 3


def calibrate(backend: str = HOST) -> Calibration:
    """Measure this machine's device of a backend; 10 to 20 seconds, and more where kernels have to be compiled first.

    Parameters
    ----------
    backend : str
        Of its plans.

    Raises
    ------
    AkxError
        Where there is no such device, or other work disturbs it.
    """
    from akx.backends.selection import device_of, plan_threads

    device, asked = device_of(backend), backend_of(backend)
    most = plan_threads(backend, device.cores)  # whatever the environment says: it is a figure of the machine
    with device_lock(device).alone() as is_alone:
        if not is_alone:
            raise DeviceError("another process measures on this device", hint="calibrate again when it has ended")
        one, every = (_bandwidths(device, threads) for threads in (1, most))
        if asked.priced_by_format:
            foreseen = _foreseen(backend)
            formats = _formats(backend, foreseen)
            waking, meeting = _meetings(backend, most) if most > 1 else (0.0, 0.0)
            one, every = (_bandwidths(device, threads) for threads in (1, most))  # seconds later: the best of both
            one = replace(one, formats=formats, foreseen=foreseen, synchronisation=0.0, waking=0.0)
            every = replace(every, formats=formats, foreseen=foreseen, synchronisation=meeting, waking=waking)
        prices: dict[str, Any] = {
            schedule.step_price: _price_of_step(device, schedule, getattr(every, schedule.step_price))
            for schedule in registry.schedules(backend)
            if schedule.step_price
        }
        with contextlib.suppress(DeviceMemoryError):  # of the host, page-locked, or beyond what akx may take: the guess
            rates = asked.link_rates()
            if rates is not None:
                prices |= {"link_one_way": rates[0], "link_bandwidth": rates[1]}
        one, every = (replace(figures, **prices) for figures in (one, every))
    known = sources(backend, ALL)
    return Calibration(device.whole().device_class, most, one, every, "" if known is None else known.tokens, now())


def _bandwidths(device: Any, threads: int) -> Figures:
    """The best of a few measurements (:func:`akx.tuner.model.figures.measured_figures` keeps the best of all)."""
    for _ in range(_ROUNDS - 1):
        measured_figures(device, threads)
    return measured_figures(device, threads)


def _formats(backend: str, foreseen: float) -> dict[str, FormatCost]:
    """What every format costs one core, but those that are for far columns; measured anew where it cannot be.

    `foreseen`: branches that the core remembers.
    """
    for _ in range(_ATTEMPTS):
        found = _priced(backend, foreseen)
        dear = max(cost.slot for cost in found.values())
        if min(cost.slot for cost in found.values()) >= dear / _LIKELY:
            return found
    said = ", ".join(f"{1e9 * cost.slot:.3g} ns for {variant}" for variant, cost in found.items())
    raise DeviceError("the calibration was disturbed", found=f"{said} a value", hint="calibrate when nothing else runs")


def _foreseen(backend: str) -> float:
    """Branches of which a core has forgotten half by the next product.

    Rows of changing length take longer than the same in order once there are too many to remember. How many of their
    ends are forgotten goes from none to all within a factor of two or so; where it is half, branches are counted.
    """
    plan = _plain(backend, _POWERS, 1)
    pairs = [[_of_changing_rows(rows, ascending) for ascending in (False, True)] for rows in (*_LEARNT, _UNEVEN_ROWS)]
    times = _times([_call(matrix, plan) for pair in pairs for matrix in pair])
    more = [(times[2 * i] - times[2 * i + 1]) / uneven_rows(pair[0]) for i, pair in enumerate(pairs)]
    if not more[-1] > _LEAST_SURPRISE:
        return Figures.foreseen  # something has disturbed it, or there is nothing to be seen
    shares = np.minimum.accumulate(np.array(more)[::-1] / more[-1])[::-1]  # what disturbs one size only adds to it
    sizes = np.log([branches(pair[0]) for pair in pairs])
    at = int(np.argmax(shares >= 0.5))
    if at == 0:
        return float(np.exp(sizes[0]))
    part = (0.5 - shares[at - 1]) / (shares[at] - shares[at - 1])
    return float(np.exp(sizes[at - 1] + part * (sizes[at] - sizes[at - 1])))


def _priced(backend: str, foreseen: float) -> dict[str, FormatCost]:
    matrices = [_blocks(nodes, wide) for nodes, wide in _SHAPES]
    uneven, even = _of_changing_rows(_UNEVEN_ROWS), _of_changing_rows(_UNEVEN_ROWS, ascending=True)
    scattered, near = _anywhere(), _anywhere(near=True)
    first, device = _plain(backend, _POWERS, 1), cast(Any, backend_of(backend).device())
    sweep = registry.get(backend, first.schedule)
    variants = next(p.choices for p in sweep.space(matrices[0], device, _POWERS) if p.name == "variant")
    timed: dict[str, list[tuple[Matrix, Plan]]] = {}
    for variant in map(str, variants):
        if registry.variant_traits(backend, variant).asks_ahead:
            continue
        plain, guess = first.replace(variant=variant), _guess(backend, variant)
        timed[variant] = [(matrix, plain) for matrix in matrices]
        changing = plain.replace(options={"sigma": _WINDOW}) if guess.sorted else plain
        for wanted, pairs in (
            (guess.uneven or guess.sorted, [(uneven, changing), (even, plain)]),
            (guess.scattered, [(scattered, plain), (near, plain)]),
        ):
            if wanted and all(sweep.feasible(plan, matrix, device) is None for matrix, plan in pairs):
                timed[variant] += pairs
    calls = [_call(matrix, plan) for pairs in timed.values() for matrix, plan in pairs]
    seconds = iter(_times(calls))
    found: dict[str, FormatCost] = {}
    for variant, pairs in timed.items():
        times = [next(seconds) / _POWERS for _ in pairs]
        slots = [sweep.padding(plan, matrix) * matrix.nnz for matrix, plan in pairs]
        sizes = np.array([(slots[i], float(matrices[i].n)) for i in range(2)])
        slot, row = (float(price) for price in np.linalg.solve(sizes, np.array(times[:2])))
        guess, ran = _guess(backend, variant), [matrix for matrix, _ in pairs]
        cost = replace(guess, slot=slot, row=max(row, 0.0))  # a row may cost nothing that a clock would show
        if uneven in ran:
            more = times[2] - times[3] - (slots[2] - slots[3]) * slot
            if guess.sorted and more > 0:  # else something has disturbed it: the guess stays
                cost = replace(cost, sorted=more / uneven.n)
            elif guess.uneven and (more > 0 or variant not in FORMATS):  # a new one may have no branch at their ends
                cost = replace(cost, uneven=max(more, 0.0) / surprises(uneven, 1, foreseen))
        if scattered in ran:
            far = scattered.nnz * (missed(scattered, device.l1_bytes) - missed(near, device.l1_bytes))
            more = times[-2] - times[-1] - (slots[-2] - slots[-1]) * slot
            if far > 0 and more > 0:
                cost = replace(cost, scattered=more / far)
        found[variant] = cost
    return found


def _guess(backend: str, variant: str) -> FormatCost:
    """What rows that differ may cost: of a variant that ``akx/cost`` does not know, what CSR or sliced ELL asks."""
    if variant in FORMATS:
        return FORMATS[variant]
    traits, csr = registry.variant_traits(backend, variant), FORMATS["csr"]
    differing = (0.0, FORMATS["sell"].sorted) if traits.sorts else (csr.uneven, 0.0)
    return FormatCost(0.0, 0.0, *differing, csr.scattered if traits.has_columns else 0.0)


def _plain(backend: str, k: int, threads: int) -> Plan:
    """Plain products in the plainest variant."""
    schedule = schedule_with(backend, "is_plain")
    plan = None if schedule is None else registry.get(backend, schedule).untuned(k, threads)
    assert plan is not None
    return plan


def _meetings(backend: str, threads: int) -> tuple[float, float]:
    """Seconds to set the threads to work, and for them to meet once."""
    matrix, long = _tiny(), 1 + _MEETINGS

    def seconds(k: int, used: int) -> float:
        return _times([_call(matrix, _plain(backend, k, used))])[0]

    alone, together = (seconds(1, used) for used in (1, threads))
    alone_long, together_long = (seconds(long, used) for used in (1, threads))
    work = (alone_long - alone) / _MEETINGS  # of one product on one thread
    waking = together - alone + work * (1 - 1 / threads)
    meeting = ((together_long - together) / _MEETINGS - work / threads) / (threads - 1)
    return max(waking, 0.0), max(meeting, 0.0)


def _price_of_step(device: Any, schedule: Schedule, guess: float) -> float:
    """Seconds that a step of a schedule takes on a GPU where there is next to nothing to do.

    The guess, where that cannot be had: the schedule cannot be prepared there, or what is known of its loads does not
    fit that GPU.
    """
    matrix = _tiny()
    seconds, waits = [], []
    for k in (1, 1 + _MEETINGS):
        plan = schedule.plainest(k)
        try:
            seconds += _times([_call(matrix, plan)])
        except InfeasibleError:
            return guess
        work = schedule.work(plan, matrix, device, 1)
        waits.append(0.0 if work is None else work.chain / (device.clock_hz or 1.5e9))
    found = float(seconds[1] - seconds[0] - (waits[1] - waits[0])) / _MEETINGS
    return found if 0.0 < found < _DEAR else guess


def _tiny() -> Matrix:
    made = sp.diags_array([0.3, 0.4, 0.3], offsets=[-1, 0, 1], shape=(_TINY, _TINY), format="csr")
    return Matrix.from_any(made)


def _blocks(nodes: int, wide: int) -> Matrix:
    """Dense blocks of 3 x 3 around the diagonal, `wide` in a row; rows sum up to 1 at most."""
    offsets = range(-(wide // 2), wide - wide // 2)
    couplings = sp.diags_array([np.ones(nodes)] * wide, offsets=list(offsets), shape=(nodes, nodes))
    full = sp.csr_array(sp.kron(couplings, np.full((_BLOCK, _BLOCK), 1.0 / (wide * _BLOCK))))
    return Matrix.from_any(full)


def _anywhere(near: bool = False) -> Matrix:
    """Rows of 8 entries whose columns are anywhere, the same each time, or as many side by side."""
    shape = (_SCATTERED_ROWS, _SCATTERED_ENTRIES)
    if near:
        first = np.clip(np.arange(_SCATTERED_ROWS) - _SCATTERED_ENTRIES // 2, 0, _SCATTERED_ROWS - _SCATTERED_ENTRIES)
        indices = first[:, None] + np.arange(_SCATTERED_ENTRIES)
    else:
        anywhere = np.random.default_rng(0).integers(0, _SCATTERED_ROWS // _SCATTERED_ENTRIES, shape)
        indices = np.sort(anywhere * _SCATTERED_ENTRIES + np.arange(_SCATTERED_ENTRIES), axis=1)
    indptr = np.arange(0, indices.size + 1, _SCATTERED_ENTRIES)
    values = np.full(indices.size, 1.0 / _SCATTERED_ENTRIES)
    return Matrix.from_any(sp.csr_array((values, indices.ravel(), indptr), shape=(_SCATTERED_ROWS, _SCATTERED_ROWS)))


def _of_changing_rows(rows: int, ascending: bool = False) -> Matrix:
    """Rows of 1 to 8 entries around the diagonal, their lengths at random, the same each time, or in their order."""
    lengths = np.random.default_rng(0).integers(1, _LONGEST + 1, rows)
    if ascending:
        lengths = np.sort(lengths)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    first = np.minimum(np.arange(rows), rows - lengths)
    indices = np.arange(indptr[-1]) + np.repeat(first - indptr[:-1], lengths)
    values = np.full(indices.size, 1.0 / _LONGEST)  # rows sum up to 1 at most
    return Matrix.from_any(sp.csr_array((values, indices, indptr), shape=(rows, rows)))


def _call(matrix: Matrix, plan: Plan) -> Callable[[], object]:
    program = registry.get(plan.backend, plan.schedule).prepare(matrix, plan)
    coefficients = as_coefficients(np.ones(plan.k), np.zeros(plan.k), np.zeros(plan.k), matrix.dtype)
    x = np.ones((1, matrix.n))
    out = np.empty((plan.k + 1, 1, matrix.n))
    call = backend_of(plan.backend).call(program, x, out, coefficients)
    call()
    return call


def _times(calls: Sequence[Callable[[], object]]) -> list[float]:
    """The least that each call took, all of them in turns: what disturbs for a second spoils one turn of few."""
    found = [math.inf] * len(calls)
    for _ in range(_ROUNDS):
        found = [min(least, _seconds(call)) for least, call in zip(found, calls, strict=True)]
    return found


def _seconds(call: Callable[[], object]) -> float:
    return min(measure.interleave([call], _PRECISION)[0].samples)
