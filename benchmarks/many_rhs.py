"""Several right-hand sides in one call, beside a call for each: steps, products, passes over the matrix, time.

    python -m benchmarks.many_rhs                   into benchmarks/results/many_rhs.json, then the table (minutes)
    python -m benchmarks.many_rhs --only bcsstk16   one matrix, merged into the file
    python -m benchmarks.many_rhs --table           the table of docs/solvers.md from the file

4 and 16 random right-hand sides, to rtol = 1e-8, by the method that the table says, gmres with cycles of 30 steps.
Three ways: one call of akx, a call of akx for each, a call of SciPy for each. Seconds are of CPU time, one thread, the
least of some rounds in which all ways take turns, after a solve of each that is not timed.
"""

from __future__ import annotations

import os
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

RESULTS = Path(__file__).resolve().parent / "results" / "many_rhs.json"
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "solvers.md"
_RTOL, _RESTART, _ROUNDS = 1e-8, 30, 5
_COLUMNS = (4, 16)

Json = dict[str, Any]


def _line(n: int, wind: float = 0.0) -> sp.dia_array:
    """Diffusion along a line of n points, and wind along it by central differences."""
    h = wind / (2 * (n + 1))
    return sp.diags_array([-1 - h, 2.0, -1 + h], offsets=[-1, 0, 1], shape=(n, n))


def _grid(*lines: Any) -> sp.csr_array:
    """The sum of operators along the axes of a grid."""
    found = lines[0]
    for line in lines[1:]:
        found = sp.kron(found, sp.eye_array(line.shape[0])) + sp.kron(sp.eye_array(found.shape[0]), line)
    return sp.csr_array(found)


def _bricks(n: int, wind: float = 0.0) -> sp.csr_array:
    """A 27-point operator on a cube of n^3 points: mass and stiffness of linear elements, the latter once each axis."""
    stiff, mass = _line(n, wind), sp.diags_array([1 / 6, 2 / 3, 1 / 6], offsets=[-1, 0, 1], shape=(n, n))
    parts = (stiff, mass, mass), (mass, stiff, mass), (mass, mass, stiff)
    return sp.csr_array(sum(sp.kron(sp.kron(a, b), c) for a, b, c in parts))


def _three(A: sp.csr_array) -> sp.csr_array:
    """Three unknowns in place of each, which act upon one another."""
    return sp.csr_array(sp.kron(A, [[4.0, 1.0, 1.0], [1.0, 4.0, 1.0], [1.0, 1.0, 4.0]]))


def _tetrahedra(n: int) -> sp.csr_array:
    """The Laplacian of the mesh of n random points in a cube, numbered cell by cell."""
    from scipy.spatial import Delaunay

    points = np.random.default_rng(0).random((n, 3))
    points = points[np.lexsort(np.floor(32 * points).T)]
    corners = Delaunay(points).simplices
    rows, columns = (corners[:, axis].reshape(-1) for axis in ([0, 0, 0, 1, 1, 2], [1, 2, 3, 2, 3, 3]))
    found = sp.csr_array((np.ones(2 * rows.size), (np.append(rows, columns), np.append(columns, rows))), shape=(n, n))
    return sp.csr_array(sp.diags_array(found.sum(axis=1) + 0.1) - found)


_OWN: dict[str, Callable[[], Any]] = {
    "7-point 40^3": lambda: _grid(_line(40), _line(40), _line(40)),
    "27-point 30^3": lambda: _bricks(30),
    "bcsstk16": lambda: solving.load("bcsstk16"),
    "convection 100^2": lambda: _grid(_line(100, 20.0), _line(100, 20.0)),
    "3 unknowns, 27-point 32^3": lambda: _three(_bricks(32)),
    "the same with wind": lambda: _three(_bricks(32, 20.0)),
    "tetrahedra, 250,000 points": lambda: _tetrahedra(250_000),
}
#: Methods other than cg and gmres.
_METHODS = {
    "3 unknowns, 27-point 32^3": "minres",
    "the same with wind": "bicgstab",
    "tetrahedra, 250,000 points": "minres",
}


def _select(names: Iterable[str] | None = None, *, reduced: bool = False) -> list[Case]:
    """The matrices by name; reduced, a small one with long rows."""
    if reduced:
        return [Case("small", "several", lambda: sp.csr_array(_bricks(8) @ _bricks(8)))]
    return [Case(name, "several", _OWN[name]) for name in names or _OWN]


def measured(name: str, A: Any, *, rounds: int = _ROUNDS) -> Json:
    """``matrix``, ``rows``, ``nnz``, ``method``, and by number of columns and way what it took."""
    A = sp.csr_array(A)
    is_symmetric = abs(A - A.T).max() <= 1e-12 * abs(A).max()
    method = _METHODS.get(name, "cg" if is_symmetric else "gmres")
    found: Json = {"matrix": name, "rows": A.shape[0], "nnz": int(A.nnz), "method": method}
    for columns in _COLUMNS:
        B = np.random.default_rng(0).standard_normal((A.shape[0], columns))
        ways = {
            "one call": lambda B=B: _ours(method, A, [B]),
            "akx, each": lambda B=B: _ours(method, A, list(B.T.copy())),
            "SciPy, each": lambda B=B: _scipys(method, A, B),
        }
        found[str(columns)] = taken = {way: run() for way, run in ways.items()}
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, run in ways.items():
                begin = time.process_time()
                run()
                seconds[way].append(time.process_time() - begin)
        for way, times in seconds.items():
            taken[way]["seconds"] = min(times)
    return found


def _ours(method: str, A: Any, sides: Sequence[Any]) -> Json:
    options = {"restart": _RESTART, "maxiter": 100} if method == "gmres" else {}
    taken = {"steps": 0, "products": 0, "passes": 0, "failed": 0}
    for b in sides:
        x, info, stats = SOLVERS[method](A, b, rtol=_RTOL, threads=1, backend="cpu", return_stats=True, **options)
        taken["steps"] = max(taken["steps"], stats.iterations)
        taken["products"] += stats.products
        taken["passes"] += stats.matrix_passes
        taken["failed"] += info != 0 or bool(_is_off(A, x, b))
    return taken


def _scipys(method: str, A: Any, B: Any) -> Json:
    count = failed = 0

    def product(v: Any) -> Any:
        nonlocal count
        count += 1
        return A @ v

    operator = sla.LinearOperator(A.shape, matvec=product, dtype=float)
    options = {"restart": _RESTART, "maxiter": 100} if method == "gmres" else {}
    for b in B.T.copy():
        x, info = getattr(sla, method)(operator, b, rtol=_RTOL, **options)
        failed += info != 0 or bool(_is_off(A, x, b))
    return {"products": count, "passes": count, "failed": failed}


def _is_off(A: Any, x: Any, b: Any) -> bool:
    return bool((np.linalg.norm(b - A @ x, axis=0) > 10 * _RTOL * np.linalg.norm(b, axis=0)).any())


def table(document: Json) -> str:
    """A line for each matrix and number of columns."""
    ways = "one call", "akx, each", "SciPy, each"
    head = ["matrix", "method", "columns", *(f"passes: {way}" for way in ways), "steps", "steps, each"]
    head += ["CPU time: akx, each / one call", "SciPy, each / one call"]
    body = []
    for entry in document["several"]:
        for columns in map(str, _COLUMNS):
            taken = entry[columns]
            passes = [f"{taken[way]['passes']:,}" + " (failed)" * (taken[way]["failed"] > 0) for way in ways]
            steps = [f"{taken[way]['steps']:,}" for way in ways[:2]]
            ratios = [f"{taken[way]['seconds'] / taken[ways[0]]['seconds']:.2f}" for way in ways[1:]]
            body.append([entry["matrix"], entry["method"], columns, *passes, *steps, *ratios])
    return f"{solving.origin(document, document['several'])}.\n\n{markdown.rows(head, body, left=2)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; the exit code is 0."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return each.run(
        arguments, lambda case: measured(case.name, case.load()), table, name="many_rhs",
        description="Several right-hand sides in one call, beside a call for each.", entries="several",
        results=RESULTS, page=_PAGE, select=_select,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
