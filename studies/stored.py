"""What values in fewer bytes gain on a GPU, where that is exact: ``python -m studies.stored``.

    python -m studies.stored                brick, shell, tetrahedra and 27-point-constant, into h100_stored.json
    python -m studies.stored --only shell   one matrix, merged into the file
    python -m studies.stored --table        the table of docs/cuda.md from the file

Values are rounded to float32 and kept as float64, so that `stored=half` is exact; those of a grid with constant
coefficients can be stored in a table as well. Plans are the same for each way, but for what they store values as and
for what has no room in one of them: the plans of ``h100.json`` and ``h100_irregular.json`` for the matrix as it is,
plans like them with x elsewhere and with more or fewer slots in registers, and those that a search would begin with.
All are checked against the reference and timed in turns by events; the fastest of each way counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from akx.backends import registry
from akx.backends.cuda.value_compression.encodings import ways_of
from akx.backends.cuda.variants.block_local.layout import holding
from akx.core.errors import AkxError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner.trial.problem import Problem
from benchmarks import markdown, planned, solving
from benchmarks.gpu import HISTORY as POWERS
from benchmarks.matrices import select

__all__ = ["MATRICES", "PLANS", "RESULTS", "bases_of", "candidates", "main", "measure", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "h100_stored.json"
#: Where plans are.
PLANS = (POWERS, POWERS.with_name("h100_irregular.json"))
PAGE = Path(__file__).resolve().parents[1] / "docs" / "cuda.md"
MATRICES = ("brick", "shell", "tetrahedra", "27-point-constant")

Json = dict[str, Any]


def bases_of(documents: Sequence[Json]) -> dict[str, Plan]:
    """The plans of `resident` for most powers of each matrix in files of :mod:`benchmarks.gpu`."""
    plans = (item for document in documents for item in planned.plans_of(document).items())
    return {name: plan for name, plan in plans if plan.schedule == "resident"}


def candidates(matrix: Matrix, base: Plan, way: str, device: Any) -> Iterator[Plan]:
    """Plans with values stored that way, the same for each: like `base`, and those that searches would begin with."""
    schedule: Any = registry.get(base.backend, base.schedule)

    def reason(plan: Plan) -> str | None:
        found: str | None = schedule.feasible(plan, matrix, device) or schedule.waste(plan, matrix, device)
        return found

    def varied() -> Iterator[Plan | None]:
        yield base
        for x in ("shared", "global"):
            bare = base.replace(options={**base.options, "x": x, "held_slices": 0, "held_slots": 1})
            yield bare
            for other in ways_of(matrix):
                yield holding(bare.replace(options={**bare.options, "stored": other}), reason)
        yield from schedule.starts(matrix, device, base.k)

    stored = (plan.replace(options={**plan.options, "stored": way}) for plan in varied() if plan is not None)
    yield from dict.fromkeys(plan for plan in stored if reason(plan) is None)


def measure(name: str, A: Any, base: Plan) -> Json:
    """One entry."""
    from akx.backends.cuda.device.facts import cuda_device
    from akx.backends.cuda.timing import DeviceProblem
    from akx.tuner.measure import Precision, interleave

    A = A.copy()
    A.data = A.data.astype(np.float32).astype(np.float64)
    matrix = Matrix.from_any(A)
    problem = Problem(matrix, base.k, basis="monomial", start_vectors=1, seed=0)
    device, schedule = DeviceProblem(problem), registry.get(base.backend, base.schedule)
    calls: list[Any] = []
    tried: list[tuple[str, Plan]] = []
    for way in ways_of(matrix):
        for plan in candidates(matrix, base, way, cuda_device()):
            try:
                program = schedule.prepare(matrix, plan)
                if not program.is_as_planned:
                    continue
                call = device.call(program)
                device.poison()
                call()
            except AkxError as refusal:
                print(f"{name}  {plan.label()}: {refusal}", file=sys.stderr)
                continue
            device.fetch()
            if not problem.error() <= 1.0:
                raise ArithmeticError(f"{plan.label()} is wrong for {name}: {problem.error()}")
            calls.append(call)
            tried.append((way, plan))
    found = interleave(calls, Precision(relative=0.01, seconds=0.1 * len(calls), rounds_min=7))
    best: Json = {}
    for (way, plan), one in sorted(zip(tried, found, strict=True), key=lambda pair: -pair[1].seconds):
        best[way] = {"seconds": one.seconds, "spread": one.spread, "plan": plan.label()}
    plans = {way: sum(way == other for other, _ in tried) for way in best}
    return {"matrix": name, "nnz": matrix.nnz, "k": base.k, "plans": plans, "best": best}


def table(document: Json) -> str:
    """The table of the page."""
    head = ["matrix", "k", "full, us a step", "half", "table", "gain of the best"]
    body = []
    for entry in document["stored"]:
        best, k = entry["best"], entry["k"]
        times = [f"{best[way]['seconds'] / k * 1e6:.1f}" if way in best else "" for way in ("full", "half", "table")]
        gain = best["full"]["seconds"] / min(one["seconds"] for one in best.values())
        body.append([entry["matrix"], str(k), *times, f"{gain:.2f}"])
    return f"{planned.measured_on(document, 'stored')}: medians.\n\n" + markdown.rows(head, body, left=(0,))


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, and return the exit code: 3 without a GPU."""
    parser = planned.command_line("studies.stored", "Time values in fewer bytes.", RESULTS, PAGE, PLANS)
    parser.set_defaults(only=list(MATRICES))
    options = parser.parse_args(arguments)
    document = planned.known(options.output, "stored")
    if not options.table:
        if not planned.has_gpu("stored"):
            return planned.NO_DEVICE
        from benchmarks import gpu

        origin, plans = gpu.provenance(), bases_of([json.loads(path.read_text()) for path in options.plans])
        plans |= {f"{name}-constant": plan for name, plan in plans.items() if f"{name}-constant" not in plans}
        if unknown := [name for name in options.only if name not in plans]:
            parser.error(f"no plan of {', '.join(unknown)}")
        for case in select(options.only):
            entry = measure(case.name, case.load(), plans[case.name])
            for way, one in entry["best"].items():
                step = one["seconds"] / entry["k"] * 1e6
                print(f"{case.name}  {way} {step:.2f} us a step  {one['plan']}", file=sys.stderr, flush=True)
            document = solving.keep(options.output, document, "stored", entry, origin)
    planned.write_table(options.docs, document, "stored", table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
