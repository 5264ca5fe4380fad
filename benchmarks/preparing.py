"""Time until a plan is ready on a GPU, and until it has new values: ``python -m benchmarks.preparing``.

    python -m benchmarks.preparing                 the plans of h100.json, most powers, into h100_preparing.json
    python -m benchmarks.preparing --only 9-point  one matrix, merged into the file
    python -m benchmarks.preparing --table         the table of docs/cuda.md from the file

`prepare_seconds` is the time from a CSR matrix in the host's memory, of which nothing is known yet, to a program with
all it needs on the device, copies waited for: ordering, layout and transfer. Code is compiled before, by a first
preparation that is not counted. `host_seconds` is that of :meth:`akx.MatrixPowers.update_values` with an
:class:`akx.Matrix` that shares its indices with the first one, checks included, `device_seconds` with values in GPU
memory; each waited for. Medians, and the slowest.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import akx
from akx.backends import registry
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from benchmarks import markdown, planned, solving
from benchmarks.gpu import HISTORY as POWERS
from benchmarks.matrices import select

__all__ = ["RESULTS", "main", "measure", "seconds_to_prepare", "table", "timed"]

RESULTS = POWERS.with_name("h100_preparing.json")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "cuda.md"
_REPEATS = 5

Json = dict[str, Any]


def measure(name: str, A: Any, plan: Plan) -> Json:
    """One entry."""
    held = Matrix.from_any(A)
    operator = akx.MatrixPowers(held, plan.k, plan=plan)
    operator(_on_device(np.zeros(held.n, dtype=held.dtype)))
    other = held.with_values(held.data * 0.5)
    values = _on_device(other.data)
    return {
        "matrix": name,
        "rows": held.n,
        "nnz": held.nnz,
        "k": plan.k,
        "plan": plan.label(),
        "prepare_seconds": seconds_to_prepare(held, plan),
        "host_seconds": timed(lambda: operator.update_values(other)),
        "device_seconds": timed(lambda: operator.update_values(values)),
    }


def seconds_to_prepare(held: Matrix, plan: Plan, repeats: int = _REPEATS) -> list[float]:
    """Seconds of each preparation of the plan for a matrix of which nothing is known."""

    def prepare() -> None:
        fresh = Matrix(held.indptr, held.indices, held.data, pattern_cache={})
        program = registry.get(plan.backend, plan.schedule).prepare(fresh, plan)
        program.ready(1)

    return timed(prepare, repeats)


def timed(call: Callable[[], object], repeats: int = _REPEATS) -> list[float]:
    """Seconds of each of some calls, after one that is not counted."""
    seconds = []
    for _ in range(repeats + 1):
        _synchronize()
        begin = time.perf_counter()
        call()
        _synchronize()
        seconds.append(time.perf_counter() - begin)
    return seconds[1:]


def _synchronize() -> None:
    from akx.backends.cuda.device.launch import synchronize

    synchronize()


def _on_device(array: Any) -> Any:
    from akx.backends.cuda.device.memory import to_device

    return to_device(array)


def table(document: Json) -> str:
    """The table of the page."""
    head = ["matrix", "entries", "schedule", "ready in, ms", "new values of the host, ms", "of the device, ms"]
    body = []
    for entry in document["preparing"]:
        times = [_milliseconds(entry[name]) for name in ("prepare_seconds", "host_seconds", "device_seconds")]
        body.append([entry["matrix"], f"{entry['nnz']:,}", f"`{entry['plan'].split(' ')[0]}`", *times])
    origin = f"{planned.measured_on(document, 'preparing')}: medians of {_REPEATS}, the slowest behind."
    return f"{origin}\n\n" + markdown.rows(head, body, left=(0, 2))


def _milliseconds(seconds: Sequence[float]) -> str:
    return f"{1e3 * statistics.median(seconds):.1f} ({1e3 * max(seconds):.1f})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, and return the exit code: 3 without a GPU."""
    parser = planned.command_line("benchmarks.preparing", "Time preparations on a GPU.", RESULTS, PAGE, POWERS)
    options = parser.parse_args(arguments)
    document = planned.known(options.output, "preparing")
    if not options.table:
        if not planned.has_gpu("preparing"):
            return planned.NO_DEVICE
        from benchmarks import gpu

        origin, plans = gpu.provenance(), planned.plans_of(json.loads(options.plans.read_text()))
        if unknown := [name for name in options.only or () if name not in plans]:
            parser.error(f"{options.plans} has no plan of {', '.join(unknown)}")
        for case in select(options.only or list(plans)):
            entry = measure(case.name, case.load(), plans[case.name])
            times = "  ".join(f"{name} {_milliseconds(entry[name])}" for name in entry if name.endswith("_seconds"))
            print(f"{case.name}  {times}  {entry['plan']}", file=sys.stderr, flush=True)
            document = solving.keep(options.output, document, "preparing", entry, origin)
    planned.write_table(options.docs, document, "preparing", table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
