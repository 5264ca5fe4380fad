"""Steps with any M of communication-avoiding solvers beside the classic ones, and CPU time of steps of ca_gmres.

    python -m benchmarks.general_m                   into benchmarks/results/general_m.json, then the table (minutes)
    python -m benchmarks.general_m --only sherman5   one matrix, merged into the file
    python -m benchmarks.general_m --table           the table of docs/gmres.md from the file

M is the diagonal of SciPy's (folded), its product as a LinearOperator (between products), incomplete factors of
SciPy's, a cycle of PyAMG's multigrid, and an inner iteration that changes from use to use. rtol is 1e-8, b is random,
cycles have 30 steps. A time is the processor's of a solve on one thread, the least of three, for each of its steps,
with A and M in it. OMP_NUM_THREADS=1 keeps the waiting of BLAS's own threads out of it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse as sp
from scipy.sparse import linalg as sla

from akx.solvers import SOLVERS
from benchmarks import each, markdown, solving
from benchmarks.matrices import Case

__all__ = ["RESULTS", "main", "measured", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "general_m.json"
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "gmres.md"
_RTOL, _RESTART, _CYCLES, _ROUNDS = 1e-8, 30, 40, 3

Json = dict[str, Any]


def _grid(n: int, wind: float, across: float = 1.0) -> sp.csr_array:
    """Diffusion on n by n points, weaker in one direction, with wind along the other."""
    h = wind / (2 * (n + 1))
    along = sp.diags_array([-1 - h, 2.0, -1 + h], offsets=[-1, 0, 1], shape=(n, n))
    other = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    return sp.csr_array(sp.kron(along, sp.eye_array(n)) + across * sp.kron(sp.eye_array(n), other))


_OWN: dict[str, Callable[[], Any]] = {
    "diffusion": lambda: _grid(200, 0.0),
    "anisotropic": lambda: _grid(200, 0.0, 1e-2),
    "convection": lambda: _grid(200, 200.0),
    "sherman5": lambda: solving.load("sherman5"),
    "epb0": lambda: solving.load("epb0"),
    "bcsstk16": lambda: solving.load("bcsstk16"),
}


def _select(names: Iterable[str] | None = None, *, reduced: bool = False) -> list[Case]:
    """The matrices by name; reduced, a small grid."""
    if reduced:
        return [Case("grid", "M", lambda: _grid(20, 10.0))]
    return [Case(name, "M", _OWN[name]) for name in names or _OWN]


def _inner(A: Any) -> Any:
    """Some steps of SciPy's gmres, three to six, more each time and then three again."""
    uses = 0

    def apply(v: Any) -> Any:
        nonlocal uses
        uses += 1
        return sla.gmres(A, v, restart=3 + uses % 4, maxiter=1, rtol=1e-14)[0]

    return sla.LinearOperator(A.shape, apply, dtype=float)


def _operator(A: Any) -> Any:
    inverse = 1 / A.diagonal()
    return sla.LinearOperator(A.shape, lambda v: inverse * v, dtype=float)


def _amg(A: Any) -> Any:
    import pyamg

    return pyamg.smoothed_aggregation_solver(sp.csr_matrix(A)).aspreconditioner()


_M: dict[str, Callable[[Any], Any]] = {
    "diagonal": lambda A: sp.diags_array(1 / A.diagonal()),
    "operator": _operator,
    "ILU": lambda A: sla.LinearOperator(A.shape, sla.spilu(A.tocsc(), 0.1, 2).solve, dtype=float),
    "AMG": _amg,
    "changing": _inner,
}


def measured(name: str, A: Any) -> Json:
    """``matrix``, ``rows``, ``nnz``, and by M and solver ``steps``, ``info`` and ``seconds`` of a step."""
    A = sp.csr_array(A)
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    is_symmetric = abs(A - A.T).max() <= 1e-14 * abs(A).max()
    families = ("cg", "gmres", "bicgstab") if is_symmetric else ("gmres", "bicgstab")
    found: Json = {"matrix": name, "rows": A.shape[0], "nnz": int(A.nnz)}
    for kind, make in _M.items():
        solvers = [pre + family for family in families for pre in ("", "ca_")]
        skipped = {"ILU": ("cg", "ca_cg"), "changing": ("cg", "ca_cg", "bicgstab", "ca_bicgstab")}.get(kind, ())
        kept = None if kind == "changing" else make(A)  # PyAMG's are not the same each time
        found[kind] = {
            solver: _solved(solver, A, b, kept, 1 if kept is None else _ROUNDS)
            for solver in solvers
            if solver not in skipped
        }
    return found


def _solved(solver: str, A: Any, b: Any, kept: Any, rounds: int) -> Json:
    options: Json = {"rtol": _RTOL, "threads": 1, "return_stats": True}
    if solver.endswith("gmres"):
        options |= {"restart": _RESTART, "maxiter": _CYCLES if kept is not None else _CYCLES // 4}
    seconds = []
    for _ in range(rounds):
        M = _inner(A) if kept is None else kept
        begin = time.process_time()
        x, info, stats = SOLVERS[solver](A, b, M=M, **options)
        seconds.append((time.process_time() - begin) / max(1, stats.iterations))
    good = bool(np.linalg.norm(b - A @ x) <= 1.01 * _RTOL * np.linalg.norm(b))
    assert good or info != 0
    return {"steps": stats.iterations, "info": info, "method": stats.method, "seconds": min(seconds)}


def table(document: Json) -> str:
    """A line for each matrix and M: steps of each pair, and how much shorter a step of ca_gmres is."""
    entries, body = document["general_m"], []
    for entry in entries:
        for kind in _M:
            ways = entry[kind]
            steps = [_pair(ways, family) for family in ("cg", "gmres", "bicgstab")]
            ratio = ways["gmres"]["seconds"] / ways["ca_gmres"]["seconds"]
            body.append([entry["matrix"], kind, *steps, f"{1e3 * ways['gmres']['seconds']:.3g}", f"{ratio:.2f}"])
    heads = ["matrix", "M", "cg / ca", "gmres / ca", "bicgstab / ca", "gmres, ms a step", "over ca_gmres"]
    return f"{solving.origin(document, entries)}.\n\n{markdown.rows(heads, body, left=2)}"


def _pair(ways: Json, family: str) -> str:
    if family not in ways:
        return ""
    shown = [f"{ways[name]['steps']}{'' if ways[name]['info'] == 0 else ' (no)'}" for name in (family, f"ca_{family}")]
    return " / ".join(shown) + ("" if ways[f"ca_{family}"]["method"].startswith("ca_") else " (classic)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, time and write; the exit code is 0."""
    return each.run(
        arguments, lambda case: measured(case.name, case.load()), table, name="general_m",
        description="Steps with any M of communication-avoiding solvers.", entries="general_m", results=RESULTS,
        page=_PAGE, select=_select,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
