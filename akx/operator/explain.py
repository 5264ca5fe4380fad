"""An operator in words: what was chosen, why, and the traffic that the model expects, beside what calls achieve."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from akx.backends import registry
from akx.backends.selection import backend_of
from akx.core.errors import shown
from akx.operator.online import reason_against_online
from akx.operator.prepared import Prepared
from akx.tuner.model.figures import best_figures

__all__ = ["explained", "time_on_device"]

#: The most characters of a line of an explanation.
_LINE = 1000


def explained(prepared: Prepared, dtype: np.dtype[Any], vectors: int, call: Callable[..., Any] | None) -> str:
    """The lines about calls with so many start vectors of a type; `call`, the operator as users call it, is timed."""
    planner, basis = prepared.planner, prepared.recurrence.basis
    with prepared.lock:
        choice = prepared.choice(dtype, vectors)
    plan, matrix, k = choice.plan, prepared.values.of(dtype), basis.k
    schedule, device = registry.get(plan.backend, plan.schedule), planner.device(plan.backend)
    program = prepared.programs.get((dtype, plan))
    instead = None if program is None else program.variant_instead
    traffic = schedule.traffic(plan if instead is None else plan.replace(variant=instead), matrix, device)
    moved = traffic.matrix_bytes + vectors * traffic.vector_bytes
    plain = 2.0 * matrix.nnz * k * vectors
    lines = [
        f"matrix      {matrix.n} x {matrix.n}, {matrix.nnz} entries, {dtype}",
        f"powers      k = {k}, {basis.kind} basis, {vectors} start vector{'s' if vectors > 1 else ''}",
        f"plan        {plan.label()}",
        f"schedule    {schedule.description}",
        f"chosen      {choice.source}",
        f"expected    {_mega(moved)} from and to memory per call "
        f"(matrix {_mega(traffic.matrix_bytes)}, vectors {_mega(vectors * traffic.vector_bytes)}), "
        f"{vectors * traffic.flops / 1e6:.1f} Mflop, redundancy {traffic.redundancy:.2f}",
    ]
    reason = schedule.waste(plan, matrix, device)
    if reason is not None and reason.startswith("stored="):  # a plan for the pattern, tuned for other values
        lines.append(f"values      {reason}")
    if instead is not None:  # a given plan stays
        why = schedule.feasible(plan, matrix, device) or f"they are not as {plan.variant} has them"
        lines.append(f"values      kept as {instead}, of more bytes and slower than the plan says: {why}")
    off = prepared.stored_error(plan, matrix, device)
    if off > 0:
        allowed = f"{matrix.value_error:g} is allowed"
        lines.append(f"values      stored in half the bytes, with a relative error of at most {off:.3g}; {allowed}")
    if call is not None:
        seconds = _seconds_of(call, prepared, dtype, vectors)
        figures = best_figures(device, plan.threads)
        working = matrix.nbytes + (k + 1) * vectors * matrix.n * dtype.itemsize
        bandwidth = figures.bandwidth(working)
        level = "memory" if bandwidth == figures.slow_bandwidth else "the last-level cache"
        reads = f"was measured to read {level} at"
        if planner.asked.budget is not None:
            reads = "is taken to move between host and GPU"
        lines += [
            f"measured    {seconds * 1e3:.3f} ms per call, {seconds / k * 1e3:.3f} ms per step, "
            f"{plain / seconds / 1e9:.2f} Gflop/s",
            f"achieved    {moved / seconds / 1e9:.1f} GB/s of the expected traffic; this machine "
            f"{reads} {bandwidth / 1e9:.1f} GB/s, threads: {plan.threads}",
        ]
    if planner.asked.tune is not None:
        call_of_kind = (dtype, vectors, planner.home)
        online = prepared.online.get(call_of_kind)
        reason = reason_against_online(planner, call_of_kind, prepared.programs.get((dtype, plan)))
        lines.append(f"online      {online.told() if online is not None else reason or 'no call so far'}")
    lines.append(f"prepared    in {prepared.seconds:.3f} s, {_mega(sum(prepared.held().values()))} held")
    return "\n".join(shown(line, _LINE) for line in lines)


def _seconds_of(call: Callable[..., Any], prepared: Prepared, dtype: np.dtype[Any], vectors: int) -> float:
    """Median seconds of a few calls into the same result, on fixed start vectors, where the plan has them."""
    n, k = prepared.values.matrix.n, prepared.recurrence.basis.k
    if backend_of(prepared.choice(dtype, vectors).plan.backend).has_own_memory:
        return time_on_device(prepared, dtype, vectors)
    x = np.asfortranarray(np.random.default_rng(0).standard_normal((n, vectors)).astype(dtype))
    out = np.empty((n, vectors, k + 1), dtype=dtype, order="F")
    call(x, out=out)
    samples: list[float] = []
    while len(samples) < 5 or (sum(samples) < 0.2 and len(samples) < 200):
        begin = time.perf_counter()
        call(x, out=out)
        samples.append(time.perf_counter() - begin)
    return float(np.median(samples))


def time_on_device(prepared: Prepared, dtype: np.dtype[Any], vectors: int) -> float:
    """Seconds of a call on a device with a memory of its own, by its clock; on the host's where the plan streams."""
    from akx.tuner.measure import interleave

    planner, k = prepared.planner, prepared.recurrence.basis.k
    x = np.random.default_rng(0).standard_normal((vectors, prepared.values.matrix.n)).astype(dtype)
    with prepared.lock:
        program, coefficients = prepared.for_solver(dtype, vectors, planner.home)
        plan, out = prepared.choice(dtype, vectors).plan, np.empty((k + 1, *x.shape), dtype)
        hosted = planner.asked.budget is not None or plan.traits.streams
        call = backend_of(plan.backend).call(program, x, out, coefficients, hosted=hosted)
        call()
        return interleave([call])[0].seconds


def _mega(count: float) -> str:
    return f"{count / 1e6:.1f} MB"
