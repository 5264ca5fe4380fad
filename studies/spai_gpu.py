"""Time to make the sparse approximate inverse: a GPU beside all cores of its host, and beside the thesis' (table 5.5).

    python -m studies.spai --backend cuda                 every matrix and tau, into spai_h100.json, then the table
    python -m studies.spai --backend cuda --only wang4    one matrix, merged into the file
    python -m studies.spai --backend cuda --table         the table of docs/preconditioners.md from the file

The time is that of the call, from a matrix in host memory to M in host memory, the median of five (on the host of
three) after one that is not counted and compiles. The host's are of the same run, with as many threads as it has cores.
`parts` are those of one call on the GPU, each waited for. `difference` is the largest between entries of the two, over
the largest entry of M.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from akx.backends.host import default_threads
from akx.core.matrix import Matrix
from akx.solvers.preconditioners import spai
from benchmarks import markdown, solving

__all__ = ["RESULTS", "compare", "run", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "spai_h100.json"
_REPEATS = {"cuda": 5, "cpu": 3}
#: Seconds: a host that takes longer for one call is not asked again.
_LONG = 1.0
#: G3_circuit on a GTX 480, seconds to make M (tables 5.5 and 5.8).
_THESIS = {0.5: 0.65, 0.6: 0.78, 0.7: 0.9, 0.8: 1.51, 0.9: 1.84, 1.0: 2.13}


def compare(name: str, A: Any, tau: float, *, threads: int) -> dict[str, Any]:
    """One entry."""
    matrix = Matrix.from_any(A)
    found: dict[str, Any] = {}
    for backend in ("cuda", "cpu"):
        first = spai(matrix, tau, backend=backend, threads=threads)
        if backend == "cpu" and first.seconds > _LONG:
            made = [first]
        else:
            made = [spai(matrix, tau, backend=backend, threads=threads) for _ in range(_REPEATS[backend])]
        found[backend] = made[0], statistics.median(each.seconds for each in made)
    (M, gpu), (other, host) = found["cuda"], found["cpu"]
    same = M.matrix.fingerprint == other.matrix.fingerprint
    scale = float(np.abs(other.matrix.data).max())
    return {
        "matrix": name,
        "rows": matrix.n,
        "nnz": matrix.nnz,
        "tau": tau,
        "dtype": matrix.dtype.name,
        "precond_nnz": M.nnz,
        "largest": list(M.largest),
        "misfit": M.misfit,
        "gpu_seconds": gpu,
        "host_seconds": host,
        "threads": threads,
        "parts": _parts(matrix, tau),
        "same_pattern": same,
        "difference": float(np.abs(M.matrix.data - other.matrix.data).max()) / scale if same else None,
    }


def _parts(matrix: Matrix, tau: float) -> dict[str, float]:
    """Seconds of each part of a call on the GPU."""
    from akx.backends.cuda.device.launch import synchronize
    from akx.backends.cuda.preconditioners.spai import approximate_inverse

    times: dict[str, float] = {}
    last = time.perf_counter()

    def told(part: str) -> None:
        nonlocal last
        synchronize()
        now = time.perf_counter()
        times[part], last = now - last, now

    approximate_inverse(matrix, factor=1.0 - tau, told=told)
    return times


def table(document: dict[str, Any]) -> str:
    """The table of the page."""
    head = ["matrix", "tau", "nnz(M)", "largest problem", "host, ms", "GPU, ms", "ratio", "local problems, ms"]
    head.append("thesis, ms")
    body = []
    for entry in document["spai"]:
        theirs = _THESIS.get(entry["tau"]) if entry["matrix"] == "G3_circuit" else None
        body.append(
            [
                entry["matrix"],
                f"{entry['tau']:.1f}",
                f"{entry['precond_nnz']}",
                "{} x {}".format(*entry["largest"]),
                f"{1e3 * entry['host_seconds']:.1f}",
                f"{1e3 * entry['gpu_seconds']:.1f}",
                f"{entry['host_seconds'] / entry['gpu_seconds']:.1f}",
                f"{1e3 * entry['parts']['local problems']:.2f}",
                "" if theirs is None else f"{1e3 * theirs:.0f}",
            ]
        )
    commits = ", ".join(dict.fromkeys(str(entry["commit"])[:10] for entry in document["spai"]))
    threads = document["spai"][0]["threads"]
    origin = f"Measured on one {document['machine']['gpu']}, and on {threads} threads of its host; {commits}, "
    return f"{origin}{document['date'][:10]}.\n\n" + markdown.rows(head, body, left=1)


def run(options: Any, matrices: Any, taus: Any, page: Path) -> int:
    """What ``python -m studies.spai --backend cuda`` does."""
    target = options.output or RESULTS
    document = json.loads(target.read_text()) if target.exists() else {"spai": []}
    if not options.table:
        from benchmarks.gpu import provenance

        origin, threads = provenance(), options.threads or default_threads()
        for name in options.only or matrices:
            A = solving.load(name)
            for tau in [t for t in options.tau or taus if t is not None]:
                entry = compare(name, A, tau, threads=threads)
                entry |= {"commit": os.environ.get("AKX_COMMIT", origin["commit"]), "date": origin["date"]}
                print(_line(entry), file=sys.stderr)
                kept = [e for e in document["spai"] if (e["matrix"], e["tau"]) != (name, tau)]
                document = {**origin, "spai": sorted([*kept, entry], key=lambda e: _order(e, matrices))}
                solving.save(target, document)
    if page.exists():
        page.write_text(markdown.replace_block(page.read_text(), "spai-gpu", table(document)))
    return 0


def _line(entry: dict[str, Any]) -> str:
    parts = ", ".join(f"{part} {1e3 * t:.2f}" for part, t in entry["parts"].items())
    times = f"host {1e3 * entry['host_seconds']:.1f} ms, GPU {1e3 * entry['gpu_seconds']:.1f} ms ({parts})"
    return f"{entry['matrix']} tau={entry['tau']} {times}, difference {entry['difference']}"


def _order(entry: dict[str, Any], matrices: Any) -> tuple[int, str, float]:
    name = entry["matrix"]
    return list(matrices).index(name) if name in matrices else len(matrices), name, entry["tau"]
