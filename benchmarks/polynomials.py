"""Does a Chebyshev polynomial as preconditioner pay on a CPU? Products and time of `cg` with and without, by degree.

    python -m benchmarks.polynomials                   every system, into results/polynomials.json, then the table
    python -m benchmarks.polynomials --only bodyy5     one system, merged into the file
    python -m benchmarks.polynomials --table           the table of docs/preconditioners.md from the file

Each system is solved to rtol 1e-8 by one thread, random right-hand side, both sides divided by the roots of the
diagonal. Times are of the processor, medians of solves with a prepared matrix, over those of `cg` without M; the time
of making M is told apart. Steps and products are exact.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from akx.solvers import cg
from akx.solvers.preconditioners import chebyshev
from benchmarks import markdown, record, solving

__all__ = ["DEGREES", "SYSTEMS", "compare", "load", "main", "table"]

#: Grids of the 7-point Laplacian, and real matrices.
SYSTEMS = {"7-point 30^3": 30, "7-point 80^3": 80, "bodyy5": None, "bcsstk16": None, "bcsstk18": None}
DEGREES = (2, 4, 8, 16)
_RTOL, _TIMES = 1e-8, 5
_ROOT = Path(__file__).resolve().parents[1]
_RESULTS = _ROOT / "benchmarks" / "results" / "polynomials.json"
_PAGE = _ROOT / "docs" / "preconditioners.md"

Json = dict[str, Any]


def load(name: str) -> sparse.csr_array:
    """A matrix of :data:`SYSTEMS` with a diagonal of ones."""
    m = SYSTEMS[name]
    if m is None:
        A = solving.load(name)
    else:
        line = sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(m, m))
        unit = sparse.eye_array(m)
        plane = sparse.kron(line, unit) + sparse.kron(unit, line)
        A = sparse.kron(plane, unit) + sparse.kron(sparse.eye_array(m * m), line)
    root = sparse.diags_array(1 / np.sqrt(A.diagonal()))
    return sparse.csr_array(root @ A @ root)


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What came of it, and the median of the processor's seconds, but for a first time."""
    found, seconds = work(), []
    for _ in range(_TIMES):
        begin = time.process_time()
        found = work()
        seconds.append(time.process_time() - begin)
    return found, statistics.median(seconds)


def compare(name: str, A: Any) -> Json:
    """The entry of a system: ``steps`` and ``seconds`` of `cg`, and ``by`` degree the same, ``products``, ``made``."""
    b = np.random.default_rng(0).standard_normal(A.shape[0])

    def solve(M: Any) -> Any:
        _, info, stats = cg(A, b, rtol=_RTOL, M=M, threads=1, return_stats=True)  # type: ignore[misc]
        assert info == 0
        return stats

    plain, base = _timed(lambda: solve(None))
    by = {}
    for degree in DEGREES:
        M, made = _timed(lambda degree=degree: chebyshev(A, degree, threads=1))  # type: ignore[misc]
        stats, seconds = _timed(lambda M=M: solve(M))  # type: ignore[misc]
        by[str(degree)] = {
            "steps": stats.iterations,
            "products": stats.products,
            "passes": stats.matrix_passes,
            "seconds": seconds,
            "made": made,
        }
    return {"matrix": name, "rows": A.shape[0], "nnz": int(A.nnz), "steps": plain.iterations, "seconds": base, "by": by}


def table(document: Json) -> str:
    """Products, passes and times over those of `cg` without M."""
    head = ["system", "rows", "cg, steps"]
    head += [f"degree {d}: {what}" for d in DEGREES for what in ("steps", "products", "passes", "time", "making")]
    body = []
    for entry in document["polynomials"]:
        line = [entry["matrix"], f"{entry['rows']:,}", f"{entry['steps']:,}"]
        for degree in DEGREES:
            one = entry["by"][str(degree)]
            line.append(f"{one['steps']:,}")
            line += [f"{one[what] / entry['steps']:.2f}" for what in ("products", "passes")]
            line += [f"{one[what] / entry['seconds']:.2f}" for what in ("seconds", "made")]
        body.append(line)
    return f"{solving.origin(document, document['polynomials'])}.\n\n{markdown.rows(head, body)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the file and the table; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.polynomials", description="cg with a polynomial as M.")
    parser.add_argument("--only", action="append", choices=sorted(SYSTEMS), metavar="SYSTEM")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    parser.add_argument("-o", "--output", type=Path, default=_RESULTS)
    parser.add_argument("--docs", type=Path, default=_PAGE)
    options = parser.parse_args(arguments)
    document = json.loads(options.output.read_text()) if options.output.exists() else {"polynomials": []}
    origin = record.provenance(1)
    for name in () if options.table else options.only or SYSTEMS:
        entry = compare(name, load(name))
        print(f"{name}: {entry}", file=sys.stderr)
        document = solving.keep(options.output, document, "polynomials", entry, origin)
    document["polynomials"].sort(key=lambda entry: list(SYSTEMS).index(entry["matrix"]))
    if options.docs.exists() and document["polynomials"]:
        options.docs.write_text(markdown.replace_block(options.docs.read_text(), "polynomials", table(document)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
