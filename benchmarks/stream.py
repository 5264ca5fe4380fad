"""Measure `stream` beside k streamed plain products, into the list `stream` of a result file.

    python -m benchmarks.stream                               a quarter of the matrix, several k below 40
    python -m benchmarks.stream --only brick --k 15 -o file   one matrix, into another file
    python -m benchmarks.stream --large                       a budget of more than 64 partitions, to the last digit

An entry is {"matrix", "fraction", "k", "baseline_seconds", "seconds", "speedup", "bound", "redundancy", ...}: medians
of one call for all k powers, from the host's memory to the host's memory, by events. `call_seconds`, of the best k, is
what a caller of :class:`akx.MatrixPowers` waits, by the host's clock, x copied and a new result made. The baseline is
the best of :mod:`benchmarks.streamed` with two to four blocks on the device, moved by copies, and of one power per pass
moved by a kernel as the powers are. Nothing stays on the device from call to call, as in the thesis (what stays is for
:mod:`studies.hybrid`); `bound` is that of thesis eq. 6.2, `error` the largest componentwise error over its
bound. All results of one matrix must agree with the checked ones in every bit.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends import reference
from akx.backends.schedule import Coefficients, as_coefficients
from akx.core.errors import AkxError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.operator import MatrixPowers
from benchmarks import record
from benchmarks.gpu import RESULTS, provenance
from benchmarks.matrices import Case, select

__all__ = ["MATRICES", "POWERS", "call_seconds", "main", "measure"]

MATRICES = ("brick", "9-point", "mc2depi", "shell")
POWERS = (8, 15, 20, 24, 28, 34, 39)
#: Lanes per row, by entries per row.
_LANES = ((48, 8), (24, 4), (8, 2), (0, 1))
_REPEATS = 7
#: What is tried, one setting after another; sizes of chunks in terms of the one that the model chooses.
_TUNED: dict[str, tuple[Any, ...]] = {
    "ahead": (4, 2),
    "rows": (1, 0.8, 1.25),
    "move": ("kernel", "direct"),
}
#: Baselines within this factor of the best at the largest k are measured at the others too.
_CLOSE = 1.03
#: A budget for more than 64 partitions: matrix, powers and fraction.
_LARGE = ("9-point", 16, 0.04)


def timed(call: Callable[[], None]) -> float:
    """The median time of a call by the device's clock, after one that is not counted."""
    from akx.backends.cuda.device.launch import Event, default_stream

    times, begin, end = [], Event(), Event()
    for _ in range(_REPEATS + 1):
        begin.record(default_stream())
        call()
        end.record(default_stream())
        end.synchronize()
        times.append(end.seconds_since(begin))
    return median(times[1:])


def measure(case: Case, matrix: Matrix, powers: Sequence[int], fraction: float) -> list[dict[str, Any]]:
    """The entries of one matrix. Raises ValueError for a wrong result."""
    from akx.backends.cuda.device.facts import cuda_device
    from akx.backends.cuda.schedules.stream import rows as stream_rows
    from akx.backends.cuda.schedules.stream import schedule as stream
    from benchmarks.streamed import StreamedProducts

    device, found = cuda_device(), []
    plans: dict[str, Plan] = {}
    lanes = next(count for least, count in _LANES if matrix.nnz >= least * matrix.n)
    budget = int(fraction * matrix.csr_bytes)
    x = np.random.default_rng(7).standard_normal((1, matrix.n))
    truth: NDArray[Any] | None = None
    error = 0.0

    def check(out: NDArray[Any], what: str) -> None:
        if truth is not None and out.tobytes() != truth[: out.shape[0]].tobytes():
            raise ValueError(f"{case.name} k = {out.shape[0] - 1}: {what} differs")

    def program_of(plan: Plan) -> Any:
        program: Any = stream.SCHEDULE.prepare(matrix, plan)
        held = program.pinned_vectors(1)
        held[:] = np.nan
        held[0] = x
        return program

    def trial(plan: Plan, by: Coefficients, baseline: float) -> dict[str, Any]:
        program = program_of(plan)
        plans[plan.label()] = plan
        seconds = timed(lambda: program.queue(1, by))
        check(program.pinned_vectors(1), plan.label())
        limit = stream_rows.bound(plan, matrix)
        print(
            f"{case.name} {plan.label()} chunks {program.window.chunks}: streamed products {baseline * 1e3:.3f} ms  "
            f"stream {seconds * 1e3:.3f} ms  {baseline / seconds:.2f}x  bound {limit:.2f} "
            f"({baseline / seconds / limit:.0%})",
            file=sys.stderr,
            flush=True,
        )
        return {
            "matrix": case.name,
            "fraction": fraction,
            "k": plan.k,
            "baseline_seconds": baseline,
            "seconds": seconds,
            "speedup": baseline / seconds,
            "bound": limit,
            "redundancy": stream.SCHEDULE.traffic(plan, matrix, device).redundancy,
            "chunks": program.window.chunks,
            "device_bytes": program.nbytes,
            "budget_bytes": budget,
            "error": error,
            "plan": plan.label(),
        }

    rivals: tuple[int, ...] = (2, 3, 4, 0)  # blocks on the device; 0: moved by a kernel, one power per pass
    for k in sorted(powers, reverse=True):
        coefficients = as_coefficients(np.ones(k), np.zeros(k), np.zeros(k), matrix.dtype)
        options = {"fraction": fraction, "move": "kernel", "ahead": 4, "stays": False}
        base = Plan("cuda", "stream", f"sell16-{lanes}", "natural", k, k, options=options)
        baselines: list[float] = []
        for slots in rivals:
            if slots == 0:
                one = program_of(base.replace(k_per_pass=1))
                baselines.append(timed(lambda made=one, by=coefficients: made.queue(1, by)))  # type: ignore[misc]
                check(one.pinned_vectors(1), "streamed products by one kernel")
                del one
                continue
            plain = StreamedProducts(matrix, k, budget, slots, f"sell16-{lanes}")
            plain.vectors[:] = np.nan
            plain.vectors[0] = x
            baselines.append(timed(lambda made=plain, by=coefficients: made.queue(by)))  # type: ignore[misc]
            if truth is None:
                truth = plain.vectors.copy()
                error = reference.error_ratio(matrix, truth, x, coefficients)
                if not error <= 1:
                    raise ValueError(f"{case.name} k = {k}: error {error:g} times its bound")
            check(plain.vectors, f"baseline of {slots} blocks")
            del plain
        close = [slots for slots, time in zip(rivals, baselines, strict=True) if time <= _CLOSE * min(baselines)]
        rivals = tuple(close)
        while base.k_per_pass > 1 and stream.SCHEDULE.feasible(base, matrix, device) is not None:
            base = base.replace(k_per_pass=-(-base.k_per_pass // 2))
        window = stream_rows.window_of(base, matrix, device)
        chosen = base
        for name, choices in _TUNED.items():  # one setting after another, each from the best so far
            tried = []
            for choice in choices:
                value = choice
                if name == "rows":
                    value = 0 if window is None or choice == 1 else int(float(choice) * window.rows)
                plan = chosen.replace(options={**chosen.options, name: value})
                known = next((one for one in found if one["plan"] == plan.label()), None)
                if known is None and stream.SCHEDULE.feasible(plan, matrix, device) is None:
                    known = trial(plan, coefficients, min(baselines))
                    found.append(known)
                if known is not None:
                    tried.append((known["seconds"], plan))
            chosen = min(tried, key=lambda pair: pair[0])[1] if tried else chosen
    best: dict[int, dict[str, Any]] = {}
    for one in found:
        if one["k"] not in best or one["seconds"] < best[one["k"]]["seconds"]:
            best[one["k"]] = one
    first = max(best.values(), key=lambda one: one["speedup"])
    first["call_seconds"] = call_seconds(matrix, plans[first["plan"]], x[0])
    return [best[k] for k in sorted(best)]


def call_seconds(matrix: Matrix, plan: Plan, x: NDArray[Any]) -> float:
    """The median time of a call with an array of the host, after some that are not counted, by the host's clock."""
    operator, times = MatrixPowers(matrix, plan.k, plan=plan), []
    for _ in range(_REPEATS + 3):
        begin = time.perf_counter()
        result = operator(x)
        times.append(time.perf_counter() - begin)
        del result  # as a caller does who has done with it
    return median(times[3:])


def measure_large(case: Case, matrix: Matrix, k: int, fraction: float) -> dict[str, Any]:
    """One call within a budget of more than 64 partitions, beside the sweep that adds up in the same order.

    Raises ValueError where the two differ in a bit, or the error is beyond its bound.
    """
    from akx.backends import registry
    from akx.backends.cuda.device.facts import cuda_device
    from akx.backends.cuda.schedules.stream import schedule as stream
    from akx.backends.cuda.schedules.stream.rows import budget_of

    device, coefficients = cuda_device(), as_coefficients(np.ones(k), np.zeros(k), np.zeros(k), matrix.dtype)
    x = np.random.default_rng(11).standard_normal((1, matrix.n))
    found = np.full((2, k + 1, 1, matrix.n), np.nan, matrix.dtype)
    plan = Plan("cuda", "stream", "sell16-1", "natural", k, k, options={"fraction": fraction, "move": "kernel"})
    while plan.k_per_pass > 1 and stream.SCHEDULE.feasible(plan, matrix, device) is not None:
        plan = plan.replace(k_per_pass=-(-plan.k_per_pass // 2))
    program: Any = stream.SCHEDULE.prepare(matrix, plan)
    program.run(x, found[0], coefficients)
    sweep = Plan("cuda", "sweep", "sell16-1", "natural", k)
    registry.get("cuda", "sweep").prepare(matrix, sweep).run(x, found[1], coefficients)
    error = reference.error_ratio(matrix, found[0], x, coefficients)
    same = found[0].tobytes() == found[1].tobytes()
    if not same or not error <= 1 or program.window.chunks <= 64:
        raise ValueError(f"{case.name}: equal bits {same}, error {error:g}, {program.window.chunks} partitions")
    return {
        "matrix": case.name,
        "k": k,
        "partitions": program.window.chunks,
        "budget_bytes": budget_of(plan, matrix, device) + 3 * k * matrix.dtype.itemsize,
        "device_bytes": program.nbytes,
        "matrix_bytes": matrix.csr_bytes,
        "equal_bits": same,
        "against": sweep.label(),
        "error": error,
        "plan": plan.label(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, and return the exit code: 1 where a measurement failed, 3 without a GPU."""
    from akx.backends.cuda.device.runtime import cuda_missing

    parser = argparse.ArgumentParser(prog="python -m benchmarks.stream", description="Measure stream on a GPU.")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=list(MATRICES), help="matrices, or a group")
    parser.add_argument("--k", nargs="+", type=int, default=list(POWERS), metavar="K", help="numbers of powers")
    parser.add_argument("--fraction", type=float, default=0.25, help="of the bytes of the matrix, on the device")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, help="result file to merge into")
    parser.add_argument("--small", action="store_true", help="the gallery in its reduced form, to try the harness")
    parser.add_argument("--large", action="store_true", help="more than 64 partitions, into stream_large.json")
    options = parser.parse_args(arguments)
    if cuda_missing() is not None:
        print(f"stream: nothing measured: {cuda_missing()}", file=sys.stderr)
        return 3
    origin, failures = provenance(), 0
    if options.large:
        name, k, fraction = _LARGE
        (case,) = select([name])
        large = {**origin, "large": [measure_large(case, Matrix.from_any(case.load()), k, fraction)]}
        path = options.output.with_name("stream_large.json") if options.output == RESULTS else options.output
        path.write_text(json.dumps(large, indent=1) + "\n")
        print(path)
        return 0
    document = record.merge(record.load(options.output), origin, [])
    for case in select(options.only, reduced=options.small):
        try:
            entries = measure(case, Matrix.from_any(case.load()), options.k, options.fraction)
        except (AkxError, ValueError) as problem:
            failures += 1
            print(f"{case.name}  FAILED: {type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
            continue
        stamp = {"commit": origin["commit"], "date": origin["date"]}
        new = {(one["matrix"], one["fraction"], one["k"]): {**one, **stamp} for one in entries}
        whole = set(options.k) >= set(POWERS)  # then nothing older stays beside it
        kept = [one for one in document.get("stream", []) if not whole or one["matrix"] != case.name]
        old = {(one["matrix"], one["fraction"], one["k"]): one for one in kept}
        document["stream"] = list({**old, **new}.values())
        record.save(options.output, document)
    print(json.dumps(document.get("stream", []), indent=1) if options.small else options.output)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
