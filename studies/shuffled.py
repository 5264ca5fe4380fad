"""What a random order of the rows costs a tuned plan on a GPU: ``python -m studies.shuffled``.

    python -m studies.shuffled                 seven of the gallery and `wind`, k = 8, into h100_shuffled.json
    python -m studies.shuffled --only brick    one matrix, merged into the file
    python -m studies.shuffled --table         the table of docs/cuda.md from the file

A is tuned as it comes, and so is P A P^T with a random P, and for blocks of one size with the P that takes the first
unknowns of all nodes, then the second ones, and so on (`by fields`); each in the time that ``--seconds`` says, without
a database. All plans are checked against the reference, and timed by events in turns with the algorithms of cuSPARSE on
A and on P A P^T for the random one: medians, and the half-width of their 95 % interval. `ratio` is the time on that
over the one on A. `wind` has nodes of 1 to 6 unknowns (:mod:`benchmarks.products`). `prepare_seconds` are those of
:mod:`benchmarks.preparing`: from a CSR matrix in the host's memory, of which nothing is known, to a program, any
ordering included. The file is written anew after each matrix, so a run that is stopped loses nothing.

delaunay and tetrahedra come in a random order already.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from akx.backends import registry
from akx.backends.cuda.baselines.calls import calls as cusparse_calls
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner import TuneResult, tune
from akx.tuner.trial.problem import Problem
from benchmarks import markdown, planned, preparing, solving
from benchmarks.matrices import Case, select
from benchmarks.orders import by_fields, shuffled
from benchmarks.products import wind

__all__ = [
    "FIELDS",
    "MATRICES",
    "ORDERS",
    "RESULTS",
    "K",
    "main",
    "measure",
    "table",
]

RESULTS = Path(__file__).resolve().parent / "results" / "h100_shuffled.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "cuda.md"
MATRICES = ("brick", "shell", "wind", "27-point", "9-point", "mc2depi", "tetrahedra", "delaunay")
K = 8
ORDERS = ("natural", "shuffled")
FIELDS = "by fields"
#: Unknowns of a node.
_UNKNOWNS = {"brick": 3, "shell": 6}
#: What is not of the gallery.
_WIND = Case("wind", "blocks", wind)
#: Preparations that are timed: METIS takes seconds.
_REPEATS = 3
_SECONDS_PER_CALL = 1.5

Json = dict[str, Any]


def measure(name: str, A: Any, seconds: float) -> Json:
    """One entry; `seconds` are those of each tuning."""
    matrices = {order: Matrix.from_any(B) for order, B in zip(ORDERS, (A, shuffled(A)), strict=True)}
    if name in _UNKNOWNS:
        matrices[FIELDS] = Matrix.from_any(by_fields(A, _UNKNOWNS[name]))
    tuned = {
        order: tune(matrix, K, backend="cuda", seconds=seconds, db=False, name=f"{name}, {order}")
        for order, matrix in matrices.items()
    }
    calls = {order: _checked_call(matrix, tuned[order].plan) for order, matrix in matrices.items()}
    other, beside = matrices[ORDERS[1]], {}
    for order in ORDERS:
        x = Problem(matrices[order], 1).x[0]
        beside[order] = {key: call for key, (call, _) in cusparse_calls(matrices[order], x, K).items()}
        calls |= {f"{key}, {order}": call for key, call in beside[order].items()}
    times = _timed(calls)
    found: Json = {"matrix": name, "rows": other.n, "nnz": other.nnz, "k": K, "dtype": other.dtype.name}
    for order, matrix in matrices.items():
        prepared = preparing.seconds_to_prepare(matrix, tuned[order].plan, _REPEATS)
        found[order] = times[order] | _of_plan(tuned[order]) | {"prepare_seconds": prepared}
    for order, key in zip(ORDERS, ("cusparse_natural", "cusparse"), strict=True):
        found[key] = {one: times[f"{one}, {order}"] for one in beside[order]}
    found["ratio"] = found[ORDERS[1]]["seconds"] / found[ORDERS[0]]["seconds"]
    return found


def _of_plan(tuned: TuneResult) -> Json:
    return {"plan": tuned.plan.label(), "tuning_seconds": tuned.tuning_seconds}


def _checked_call(matrix: Matrix, plan: Plan) -> Any:
    """A call of the plan on the device, which was right once. Raises ArithmeticError where it was not."""
    from akx.backends.cuda.timing import DeviceProblem

    problem = Problem(matrix, K)
    device = DeviceProblem(problem)
    program = registry.get(plan.backend, plan.schedule).prepare(matrix, plan)
    return planned.checked_call(device, problem, program, plan.label())


def _timed(calls: Mapping[str, Any]) -> dict[str, Json]:
    """Seconds of each call, microseconds of each of its steps, and their spread; in turns."""
    from akx.backends.device_lock import device_lock
    from akx.backends.selection import device_of
    from akx.tuner.measure import Precision, interleave

    for call in calls.values():
        call()
    precision = Precision(relative=0.01, seconds=_SECONDS_PER_CALL * len(calls), rounds_min=7)
    with device_lock(device_of("cuda")).alone():
        measured = interleave(list(calls.values()), precision)
    return {
        name: {"seconds": one.seconds, "spread": one.spread, "step_microseconds": 1e6 * one.seconds / K}
        for name, one in zip(calls, measured, strict=True)
    }


def table(document: Json) -> str:
    """The table of the page."""
    head = ["matrix", "natural, us a step", "by fields", "shuffled", "ratio", "cuSPARSE, natural", "shuffled"]
    head += ["ready in, ms", "shuffled", "plan, natural", "shuffled"]
    body = []
    for entry in document["shuffled"]:
        both = [entry[order] for order in ORDERS]
        steps = [f"{one['step_microseconds']:.1f}" for one in both]
        ready = [f"{1e3 * statistics.median(one['prepare_seconds']):.0f}" for one in both]
        plans = [f"`{' '.join(one['plan'].split(' ')[:2])}`" for one in both]
        fields = f"{entry[FIELDS]['step_microseconds']:.1f}" if FIELDS in entry else ""
        beside = [
            f"{min(one['step_microseconds'] for one in times.values()):.1f}" if times else ""
            for times in (entry.get("cusparse_natural"), entry["cusparse"])
        ]
        body.append([entry["matrix"], steps[0], fields, steps[1], f"{entry['ratio']:.2f}", *beside, *ready, *plans])
    return f"{planned.measured_on(document, 'shuffled')}: medians.\n\n" + markdown.rows(head, body, left=(0, 9, 10))


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, and return the exit code: 1 where one failed, 3 without a GPU."""
    parser = planned.command_line("studies.shuffled", "Time tuned plans on matrices in random order.", RESULTS, PAGE)
    parser.add_argument("--seconds", type=float, default=40.0, help="time budget of each tuning")
    parser.set_defaults(only=list(MATRICES))
    options = parser.parse_args(arguments)
    document, failures = planned.known(options.output, "shuffled"), 0
    if not options.table:
        if not planned.has_gpu("shuffled"):
            return planned.NO_DEVICE
        from benchmarks import gpu

        origin = gpu.provenance()
        try:
            of_gallery = [name for name in options.only if name != _WIND.name]
            cases = select(of_gallery) if of_gallery else []
        except KeyError as problem:
            parser.error(f"no matrix {problem}")
        if _WIND.name in options.only:
            cases.append(_WIND)
        for case in cases:
            try:
                entry = measure(case.name, case.load(), options.seconds)
            except Exception as error:  # one failure must not cost the other matrices their time
                failures += 1
                print(f"{case.name}  FAILED: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                continue
            for order in (order for order in (*ORDERS, FIELDS) if order in entry):
                one = entry[order]
                ready = statistics.median(one["prepare_seconds"])
                said = f"{one['step_microseconds']:.2f} us a step, ready in {ready:.2f} s  {one['plan']}"
                print(f"{case.name}  {order} {said}", file=sys.stderr, flush=True)
            print(f"{case.name}  ratio {entry['ratio']:.3f}", file=sys.stderr, flush=True)
            document = solving.keep(options.output, document, "shuffled", entry, origin)
    planned.write_table(options.docs, document, "shuffled", table)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
