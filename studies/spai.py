"""The sparse approximate inverse against tau: time to make it, iterations, total time (thesis, tables 5.3 to 5.5).

    python -m studies.spai                  every matrix and tau, into studies/results/spai.json, then the table
    python -m studies.spai --only wang4     one matrix, merged into the file
    python -m studies.spai --table          the table of docs/preconditioners.md from the file
    python -m studies.spai --backend cuda   time to make M on a GPU beside its host: studies.spai_gpu

As in the thesis: BiCGStab to a relative residual of 1e-7, 10,000 iterations at most, a random right-hand side. Time to
make M is the median of three after one that is not counted; a solve, which may take minutes, is done once. BiCGStab is
akx's where there is one, else SciPy's; set OPENBLAS_NUM_THREADS=1 for the latter, whose short dot products are slower
with threads.
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
from akx.solvers.preconditioners import spai
from benchmarks import markdown, record, solving

__all__ = ["MATRICES", "TAUS", "main", "measure", "table"]

MATRICES = ("G3_circuit", "wang4", "memplus", "sherman5")
TAUS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_RTOL, _MOST = 1e-7, 10_000
_RESULTS = Path(__file__).resolve().parent / "results" / "spai.json"
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "preconditioners.md"
#: G3_circuit on a GTX 480: iterations (table 5.3), seconds to make M (5.5) and in all (5.4).
_THESIS = {
    0.5: (1856, 0.65, 136),
    0.6: (2307, 0.78, 170),
    0.7: (1863, 0.9, 138),
    0.8: (1347, 1.51, 101),
    0.9: (1145, 1.84, 87),
}


def measure(
    name: str, A: Any, tau: float | None, *, threads: int, most: int = _MOST, repeats: int = 3
) -> dict[str, Any]:
    """One entry; `tau` None for no preconditioner."""
    matrix = Matrix.from_any(A)
    b = np.random.default_rng(0).standard_normal(matrix.n)
    entry: dict[str, Any] = {"matrix": name, "rows": matrix.n, "nnz": matrix.nnz, "tau": tau}
    M = None
    if tau is not None:
        spai(matrix, tau, threads=threads, backend="cpu")
        made = [spai(matrix, tau, threads=threads, backend="cpu") for _ in range(repeats)]
        M = made[0]
        entry |= {
            "precond_nnz": M.nnz,
            "misfit": M.misfit,
            "largest": list(M.largest),
            "precond_seconds": float(np.median([each.seconds for each in made])),
            "fill": M.fill(matrix),
        }
    solved = solving.run("bicgstab", matrix.to_scipy(), b, rtol=_RTOL, most=most, M=M, threads=threads)
    assert solved is not None
    entry["solve"] = solved
    entry["total_seconds"] = entry.get("precond_seconds", 0.0) + solved["seconds"]
    return entry


def table(document: dict[str, Any]) -> str:
    """The table of the page, and beside G3_circuit the thesis' figures."""
    head = ["matrix", "tau", "nnz(M) / nnz(A)", "misfit", "make M, s", "iterations", "solve, s", "total, s"]
    head.append("nnz(A M) / (nnz(A) + nnz(M))")
    body = []
    for entry in document["spai"]:
        solve = entry["solve"]
        steps = str(solve["iterations"]) if solve["converged"] else f"not in {solve['iterations']}"
        plain = entry["tau"] is None
        body.append(
            [
                entry["matrix"],
                "no M" if plain else f"{entry['tau']:.1f}",
                "" if plain else f"{entry['precond_nnz'] / entry['nnz']:.2f}",
                "" if plain else f"{entry['misfit']:.3f}",
                "" if plain else f"{entry['precond_seconds']:.3g}",
                steps,
                f"{solve['seconds']:.3g}",
                f"{entry['total_seconds']:.3g}",
                "" if plain else f"{entry['fill']:.2f}",
            ]
        )
    by = sorted({entry["solve"]["by"] for entry in document["spai"]})
    parts = [
        f"{solving.origin(document, document['spai'])}; BiCGStab of {' and '.join(by)}.",
        markdown.rows(head, body, left=1),
    ]
    ours = {e["tau"]: e for e in document["spai"] if e["matrix"] == "G3_circuit" and e["tau"] in _THESIS}
    if ours:
        head = ["tau", "iterations: thesis", "here", "make M, s: thesis", "here", "total, s: thesis", "here"]
        body = []
        for tau, entry in ours.items():
            theirs = _THESIS[tau]
            here = (
                entry["solve"]["iterations"],
                f"{entry['precond_seconds']:.2f}",
                f"{entry['total_seconds']:.0f}",
            )
            pairs = [str(v) for pair in zip(theirs, here, strict=True) for v in pair]
            body.append([f"{tau:.1f}", *pairs])
        parts += ["G3_circuit beside the thesis (one GTX 480, 2012):", markdown.rows(head, body, left=0)]
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the file and the table; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m studies.spai", description="The approximate inverse by tau.")
    parser.add_argument("--only", action="append", metavar="MATRIX")
    parser.add_argument("--tau", action="append", type=_tau, help="a number, or 'none' for no preconditioner")
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, help="2 by default; beside a GPU, all")
    parser.add_argument("--most", type=int, default=_MOST, help="iterations at most")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--docs", type=Path, default=_PAGE)
    options = parser.parse_args(arguments)
    if options.backend == "cuda":
        from studies import spai_gpu

        return spai_gpu.run(options, MATRICES, TAUS, options.docs)
    options.output = options.output or _RESULTS
    options.threads = options.threads or 2
    document = json.loads(options.output.read_text()) if options.output.exists() else {"spai": []}
    if not options.table:
        origin = record.provenance(options.threads)
        for name in options.only or MATRICES:
            A = solving.load(name)
            for tau in options.tau or (None, *TAUS):
                entry = measure(name, A, tau, threads=options.threads, most=options.most)
                solve = entry["solve"]
                print(f"{name} tau={tau} {solve['iterations']} {entry['total_seconds']:.1f} s", file=sys.stderr)
                entry |= {"commit": origin["commit"], "date": origin["date"]}
                kept = [e for e in document["spai"] if (e["matrix"], e["tau"]) != (name, tau)]
                document = {**origin, "spai": sorted([*kept, entry], key=_order)}
                solving.save(options.output, document)
    if options.docs.exists():
        options.docs.write_text(markdown.replace_block(options.docs.read_text(), "spai", table(document)))
    return 0


def _tau(text: str) -> float | None:
    return None if text == "none" else float(text)


def _order(entry: dict[str, Any]) -> tuple[int, str, float]:
    name = entry["matrix"]
    return MATRICES.index(name) if name in MATRICES else len(MATRICES), name, entry["tau"] or 0.0


if __name__ == "__main__":
    sys.exit(main())
