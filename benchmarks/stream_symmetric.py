"""Measure `stream` with one triangle of symmetric matrices beside all of it, for docs/cuda.md.

    python -m benchmarks.stream_symmetric                         a quarter of the matrix on the device
    python -m benchmarks.stream_symmetric --only brick --k 8      one matrix, one number of powers
    python -m benchmarks.stream_symmetric --table                 the table of docs/cuda.md from the file

An entry is {"matrix", "k", "fraction", "stays", "full", "triangle", "speedup", ...}, with {"seconds", "bytes", "kept",
"device_bytes", "plan"} of each way to store values: medians of one call for all k powers, by events, from the host's
memory to the host's memory; `bytes` of the matrix cross the bus in a call, with `stays` after the first; `kept` of its
chunks are on the device then. Values are random and symmetric. Each pair has the same bits, or that is an error, and so
is a result beyond its bound. Powers per pass are those that the model of the time expects most of, for either way.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from akx.backends import reference
from akx.backends.schedule import as_coefficients
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from benchmarks import markdown, planned, solving
from benchmarks.gpu import RESULTS, provenance
from benchmarks.matrices import select
from benchmarks.stream import _LANES, timed

__all__ = ["MATRICES", "POWERS", "main", "measure", "symmetric", "table"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cuda.md"
MATRICES = ("brick", "shell", "27-point", "9-point")
POWERS = (1, 4, 8, 16)
_NAME = "stream_symmetric"
_WAYS = ("full", "triangle")


def symmetric(A: Any) -> Matrix:
    """Random symmetric values in the pattern of A + A^T."""
    upper = sp.csr_array(sp.triu(sp.csr_array(A) + sp.csr_array(A).T))
    upper.data = np.random.default_rng(3).uniform(-1.0, 1.0, upper.nnz)
    return Matrix.from_any(sp.csr_array(upper + sp.triu(upper, 1).T))


def measure(name: str, matrix: Matrix, k: int, fraction: float, stays: bool) -> dict[str, Any]:
    """One entry. Raises ValueError for a wrong result."""
    from akx.backends.cuda.device.facts import cuda_device
    from akx.backends.cuda.schedules.stream import rows as stream_rows
    from akx.backends.cuda.schedules.stream import schedule as stream

    device, results = cuda_device(), []
    lanes = next(count for least, count in _LANES if matrix.nnz >= least * matrix.n)
    x = np.random.default_rng(7).standard_normal((1, matrix.n))
    coefficients = as_coefficients(np.ones(k), np.zeros(k), np.zeros(k), matrix.dtype)
    entry: dict[str, Any] = {"matrix": name, "k": k, "fraction": fraction, "stays": stays}
    for stored in _WAYS:
        options = {"fraction": fraction, "stays": stays, "stored": stored}
        base = Plan("cuda", "stream", f"sell16-{lanes}", "natural", k, k, options=options)
        plans = [base.replace(k_per_pass=-(-k // passes)) for passes in (1, 2, 4, 8, 16)]
        plan = min(plans, key=lambda one: stream_rows.expected_seconds(one, matrix, device))
        program: Any = stream.SCHEDULE.prepare(matrix, plan)
        held = program.pinned_vectors(1)
        held[:] = np.nan
        held[0] = x
        seconds = timed(lambda made=program: made.queue(1, coefficients))  # type: ignore[misc]
        results.append(held.copy())
        kept = program.window.kept / program.window.chunks
        entry[stored] = {
            "seconds": seconds,
            "bytes": stream_rows.bus_bytes(plan, matrix, kept)[0],
            "kept": kept,
            "device_bytes": program.nbytes,
            "plan": plan.label(),
        }
        del program, held
    if results[0].tobytes() != results[1].tobytes():
        raise ValueError(f"{name} k = {k}: results differ")
    error = reference.error_ratio(matrix, results[0][:5], x, coefficients) if k <= 4 else 0.0
    if not error <= 1:
        raise ValueError(f"{name} k = {k}: error {error:g} times its bound")
    return {**entry, "speedup": entry["full"]["seconds"] / entry["triangle"]["seconds"]}


def table(document: dict[str, Any]) -> str:
    """Milliseconds and millions of bytes of a call."""
    head = ["matrix", "k", "all: MB", "ms", "one triangle: MB", "ms", "**gain**", "all, stays: MB", "ms"]
    head += ["one triangle, stays: MB", "ms", "**gain**"]
    found = {(one["matrix"], one["k"], one["stays"]): one for one in document[_NAME]}
    body = []
    for name, k in dict.fromkeys((one["matrix"], one["k"]) for one in document[_NAME]):
        line = [name, str(k)]
        for stays in (False, True):
            entry = found[name, k, stays]
            for way in _WAYS:
                line += [f"{entry[way]['bytes'] / 1e6:.1f}", f"{entry[way]['seconds'] * 1e3:.2f}"]
            line.append(f"**{entry['speedup']:.2f}**")
        body.append(line)
    fraction = document[_NAME][0]["fraction"]
    said = f"{planned.measured_on(document, _NAME)}: medians of a call, {fraction:.0%} of the matrix on the device."
    return f"{said}\n\n" + markdown.rows(head, body)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, and return the exit code: 3 without a GPU."""
    output = RESULTS.with_name(f"{_NAME}.json")
    parser = planned.command_line(f"benchmarks.{_NAME}", "Measure one triangle of streamed matrices.", output, PAGE)
    parser.add_argument("--k", nargs="+", type=int, default=list(POWERS), metavar="K", help="numbers of powers")
    parser.add_argument("--fraction", type=float, default=0.25, help="of the bytes of the matrix, on the device")
    parser.add_argument("--small", action="store_true", help="the gallery in its reduced form, to try the harness")
    parser.set_defaults(only=list(MATRICES))
    options = parser.parse_args(arguments)
    document = planned.known(options.output, _NAME)
    if not options.table:
        if not planned.has_gpu(_NAME):
            return planned.NO_DEVICE
        origin = provenance()
        for case in select(options.only, reduced=options.small):
            matrix = symmetric(case.load())
            for k in options.k:
                for stays in (False, True):
                    entry = measure(case.name, matrix, k, options.fraction, stays)
                    document = solving.keep(
                        options.output, document, _NAME, entry, origin, ("matrix", "k", "fraction", "stays")
                    )
                    full, half = entry["full"], entry["triangle"]
                    said = f"{full['seconds'] * 1e3:.3f} ms all, {half['seconds'] * 1e3:.3f} ms one triangle"
                    fewer = f"{entry['speedup']:.2f}x, bytes {full['bytes'] / max(1.0, half['bytes']):.2f}"
                    print(case.name, k, "stays" if stays else "sent", said, fewer, file=sys.stderr, flush=True)
    planned.write_table(options.docs, document, _NAME, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
