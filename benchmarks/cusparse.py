"""All algorithms of a cuSPARSE beside one another: ``benchmarks/results/h100_cusparse.json``.

    AKX_CUSPARSE=/path/to/libcusparse.so.12 python -m benchmarks.cusparse -o FILE

k products in a CUDA graph, as `akx.backends.cuda.baselines` makes them, timed by events in turns; seconds of
all k.
``AKX_CUSPARSE`` chooses the library, so that a newer one than the system's can be looked at.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from akx.core.matrix import Matrix
from benchmarks.gallery import GALLERY, small

__all__ = ["RESULTS", "main"]

RESULTS = Path(__file__).resolve().parent / "results" / "h100_cusparse.json"
_MATRICES = ("pentadiagonal", "mc2depi", "brick", "9-point", "27-point", "7-point", "shell")
_SECONDS = 0.4


def _times(matrix: Matrix, k: int) -> dict[str, dict[str, float]]:
    """Seconds and spread of each algorithm."""
    from akx.backends.cuda.baselines.calls import calls as cusparse_calls
    from akx.tuner.measure import Precision, interleave

    signs = np.random.default_rng(0).integers(0, 2, matrix.n) * 2 - 1
    calls = cusparse_calls(matrix, (signs / np.sqrt(matrix.n)).astype(matrix.dtype), k)
    for call, _ in calls.values():
        call()
    precision = Precision(relative=0.01, seconds=_SECONDS * len(calls), rounds_min=7)
    found = interleave([call for call, _ in calls.values()], precision)
    return {name: {"seconds": one.seconds, "spread": one.spread} for name, one in zip(calls, found, strict=True)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, write, and return the exit code."""
    from akx.backends.cuda.baselines.cusparse import cusparse_missing
    from akx.backends.cuda.device.runtime import cuda_missing

    parser = argparse.ArgumentParser(prog="python -m benchmarks.cusparse", description="Measure cuSPARSE's products.")
    parser.add_argument("--only", nargs="+", choices=sorted(GALLERY), default=list(_MATRICES), metavar="NAME")
    parser.add_argument("--k", type=int, default=16)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    parser.add_argument("--small", action="store_true", help="the reduced matrices, to try the harness; needs -o")
    options = parser.parse_args(arguments)
    if options.small and options.output == RESULTS:
        parser.error("--small is for trying: give it a file of its own with -o")
    for reason in (cuda_missing(), cusparse_missing()):
        if reason is not None:
            print(f"nothing measured: {reason}", file=sys.stderr)
            return 3
    from benchmarks.gpu import provenance

    products: list[dict[str, Any]] = []
    origin = provenance()
    for name in options.only:
        matrix = Matrix.from_any(small(name) if options.small else GALLERY[name]())
        times = _times(matrix, options.k)
        head = {"matrix": name, "rows": matrix.n, "nnz": matrix.nnz, "k": options.k, "dtype": matrix.dtype.name}
        products.append({**head, "algorithms": times})
        steps = {label: f"{one['seconds'] / options.k * 1e6:.2f}" for label, one in times.items()}
        print(f"{name} k = {options.k}, microseconds per step: {steps}", file=sys.stderr, flush=True)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps({**origin, "products": products}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
