"""Measure `stream` with one triangle of symmetric matrices beside whole ones, into stream_symmetric.json.

    python -m benchmarks.stream_symmetric                         a quarter of the matrix on the device
    python -m benchmarks.stream_symmetric --only brick --k 8      one matrix, one number of powers

An entry is {"matrix", "k", "fraction", "stays", "seconds_full", "seconds", "speedup", "bytes_full", "bytes", ...}:
medians of one call for all k powers, by events, from the host's memory to the host's memory; `bytes` of the matrix
cross the bus in a call, with `stays` after the first. Values are random and symmetric. Each pair has the same bits, or
that is an error, and so is a result beyond its bound.
"""

from __future__ import annotations

import argparse
import json
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
from benchmarks.gpu import RESULTS, provenance
from benchmarks.matrices import select
from benchmarks.stream import _LANES, timed

__all__ = ["MATRICES", "POWERS", "main", "measure", "symmetric"]

MATRICES = ("brick", "shell", "27-point", "9-point")
POWERS = (1, 4, 8, 16)


def symmetric(A: Any) -> Matrix:
    """Random symmetric values in the pattern of A + A^T."""
    A = sp.csr_array(A)
    upper = sp.triu(A + A.T, format="csr")
    upper.data = np.random.default_rng(3).uniform(-1.0, 1.0, upper.nnz)
    return Matrix.from_any(sp.csr_array(upper + sp.triu(upper, 1).T))


def measure(name: str, matrix: Matrix, powers: Sequence[int], fraction: float) -> list[dict[str, Any]]:
    """The entries of one matrix. Raises ValueError for a wrong result."""
    from akx.backends.cuda.device.facts import cuda_device
    from akx.backends.cuda.schedules.stream import rows as stream_rows
    from akx.backends.cuda.schedules.stream import schedule as stream

    device, found = cuda_device(), []
    lanes = next(count for least, count in _LANES if matrix.nnz >= least * matrix.n)
    x = np.random.default_rng(7).standard_normal((1, matrix.n))
    for k in powers:
        coefficients = as_coefficients(np.ones(k), np.zeros(k), np.zeros(k), matrix.dtype)
        for stays in (False, True):
            entry: dict[str, Any] = {"matrix": name, "k": k, "fraction": fraction, "stays": stays}
            results = []
            for stored, suffix in (("full", "_full"), ("triangle", "")):
                options = {"fraction": fraction, "stays": stays, "stored": stored}
                plan = Plan("cuda", "stream", f"sell16-{lanes}", "natural", k, k, options=options)
                while plan.k_per_pass > 1 and stream.SCHEDULE.feasible(plan, matrix, device) is not None:
                    plan = plan.replace(k_per_pass=-(-plan.k_per_pass // 2))
                program: Any = stream.SCHEDULE.prepare(matrix, plan)
                held = program.pinned_vectors(1)
                held[:] = np.nan
                held[0] = x
                seconds = timed(lambda made=program, by=coefficients: made.queue(1, by))  # type: ignore[misc]
                results.append(held.copy())
                window = program.window
                entry |= {
                    f"seconds{suffix}": seconds,
                    f"bytes{suffix}": stream_rows.bus_bytes(plan, matrix, window.kept / window.chunks)[0],
                    f"stays{suffix}_share": window.kept / window.chunks,
                    f"device_bytes{suffix}": program.nbytes,
                    f"plan{suffix}": plan.label(),
                }
                del program, held
            if results[0].tobytes() != results[1].tobytes():
                raise ValueError(f"{name} k = {k}: results differ")
            if k == min(powers) and not stays:
                error = reference.error_ratio(matrix, results[0], x, coefficients)
                if not error <= 1:
                    raise ValueError(f"{name} k = {k}: error {error:g} times its bound")
            entry["speedup"] = entry["seconds_full"] / entry["seconds"]
            fewer = entry["bytes_full"] / max(1.0, entry["bytes"])
            print(
                f"{name} k {k} stays {stays}: {entry['seconds_full'] * 1e3:.3f} ms whole, "
                f"{entry['seconds'] * 1e3:.3f} ms one triangle, {entry['speedup']:.2f}x; bytes {fewer:.2f}",
                file=sys.stderr,
                flush=True,
            )
            found.append(entry)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, and return the exit code: 1 where a measurement failed, 3 without a GPU."""
    from akx.backends.cuda.device.runtime import cuda_missing

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stream_symmetric", description="Measure stream on a GPU."
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", default=list(MATRICES), help="matrices, or a group")
    parser.add_argument("--k", nargs="+", type=int, default=list(POWERS), metavar="K", help="numbers of powers")
    parser.add_argument("--fraction", type=float, default=0.25, help="of the bytes of the matrix, on the device")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS.with_name("stream_symmetric.json"))
    parser.add_argument("--small", action="store_true", help="the gallery in its reduced form, to try the harness")
    options = parser.parse_args(arguments)
    if cuda_missing() is not None:
        print(f"stream_symmetric: nothing measured: {cuda_missing()}", file=sys.stderr)
        return 3
    document: dict[str, Any] = {**provenance(), "stream_symmetric": []}
    for case in select(options.only, reduced=options.small):
        found = measure(case.name, symmetric(case.load()), options.k, options.fraction)
        document["stream_symmetric"] += found
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    print(options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
