"""Products of sequences of ten systems: with recycled vectors, without, and of SciPy's GCROT(m, k) with its own.

    python -m benchmarks.recycling                   into benchmarks/results/recycling.json, then the table (minutes)
    python -m benchmarks.recycling --only sherman5   one matrix, merged into the file
    python -m benchmarks.recycling --table           the table of docs/solvers.md from the file

A sequence is ten random right-hand sides, or one of them with ten matrices, each of which has up to 1 % more or less
in each entry of the diagonal than the one before; there every solve begins from the x of the one before. rtol is 1e-8,
cycles have 30 steps, the preconditioner is Jacobi's of the first matrix. ``gmres`` is there with the cycles of as much
memory too, 30 + 2 k steps for k vectors. SciPy's ``gcrotmk(m=30, k=k, CU=...)`` recycles as well; for another matrix it
is given U alone. A solve that has not converged counts with what it took, and is marked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse as sp
from scipy.sparse import linalg as sla

from akx.solvers import Solver
from benchmarks import each, markdown, solving
from benchmarks.matrices import Case

__all__ = ["RESULTS", "main", "measured", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "recycling.json"
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "solvers.md"
_RTOL, _RESTART, _MOST, _SYSTEMS = 1e-8, 30, 300, 10
_KEPT = (10, 20)

Json = dict[str, Any]


def _convection(wind: float, n: int = 100) -> sp.csr_array:
    """Convection and diffusion on the unit square, n by n points, central differences."""
    h = wind / (2 * (n + 1))
    T = sp.diags_array([-1 - h, 2.0, -1 + h], offsets=[-1, 0, 1], shape=(n, n))
    return sp.csr_array(sp.kron(T, sp.eye_array(n)) + sp.kron(sp.eye_array(n), T))


_OWN: dict[str, Callable[[], Any]] = {
    "convection 20": lambda: _convection(20.0),
    "convection 200": lambda: _convection(200.0),
    "sherman5": lambda: solving.load("sherman5"),
    "epb0": lambda: solving.load("epb0"),
}


def _select(names: Iterable[str] | None = None, *, reduced: bool = False) -> list[Case]:
    """The matrices by name; reduced, a small grid."""
    if reduced:
        return [Case("grid", "sequences", lambda: _convection(20.0, 16))]
    return [Case(name, "sequences", _OWN[name]) for name in names or _OWN]


def measured(name: str, A: Any) -> Json:
    """``matrix``, ``rows``, and by sequence and method ``products`` of each solve and how many ``failed``."""
    A, rng = sp.csr_array(A), np.random.default_rng(0)
    n = A.shape[0]
    sides = [rng.standard_normal(n) for _ in range(_SYSTEMS)]
    matrices = [A]
    for _ in range(_SYSTEMS - 1):
        change = 0.01 * rng.uniform(-1, 1, n) * np.abs(A.diagonal())
        matrices.append(sp.csr_array(matrices[-1] + sp.diags_array(change)))
    sequences = {"right-hand sides": ([A] * _SYSTEMS, sides), "matrices": (matrices, sides[:1] * _SYSTEMS)}
    found: Json = {"matrix": name, "rows": n, "nnz": int(A.nnz)}
    for sequence, systems in sequences.items():
        ways = {f"gmres({_RESTART})": _ours(*systems)}
        for kept in _KEPT:
            ways[f"gmres({_RESTART + 2 * kept})"] = _ours(*systems, restart=_RESTART + 2 * kept)
            ways[f"recycle={kept}"] = _ours(*systems, recycle=kept)
            ways[f"gcrotmk(k={kept})"] = _scipys(*systems, kept)
        found[sequence] = ways
    return found


def _ours(matrices: Sequence[Any], sides: Sequence[Any], *, restart: int = _RESTART, recycle: int = 0) -> Json:
    solver = Solver(matrices[0], "gmres", _jacobi(matrices[0]), restart=restart, recycle=recycle)
    products, failed, x = [], 0, None
    for before, A, b in zip([matrices[0], *matrices], matrices, sides, strict=False):
        if A is not before:
            solver.update_values(A)
        x, info, stats = solver(b, x if A is not before else None, rtol=_RTOL, maxiter=_MOST, return_stats=True)
        products.append(stats.products)
        failed += _has_failed(A, x, b, info)
    return {"products": products, "failed": failed}


def _scipys(matrices: Sequence[Any], sides: Sequence[Any], kept: int) -> Json:
    products, failed, x, space, M = [], 0, None, list[Any](), _jacobi(matrices[0])
    for before, A, b in zip([matrices[0], *matrices], matrices, sides, strict=False):
        count = 0

        def product(v: Any, A: Any = A) -> Any:
            nonlocal count
            count += 1
            return A @ v

        if A is not before:
            space[:] = [(None, u) for _, u in space]
        operator = sla.LinearOperator(A.shape, matvec=product, dtype=float)
        options = {"rtol": _RTOL, "maxiter": _MOST, "m": _RESTART, "k": kept, "M": M, "CU": space}
        x, info = sla.gcrotmk(operator, b, x if A is not before else None, **options)
        products.append(count)
        failed += _has_failed(A, x, b, info)
    return {"products": products, "failed": failed}


def _jacobi(A: Any) -> Any:
    return sp.csr_array(sp.diags_array(1 / A.diagonal()))


def _has_failed(A: Any, x: Any, b: Any, info: int) -> bool:
    return bool(info != 0 or not np.linalg.norm(b - A @ x) <= 10 * _RTOL * np.linalg.norm(b))


def table(document: Json) -> str:
    """A line for each matrix and sequence: products of all its solves."""
    entries = document["recycling"]
    ways = list(entries[0]["matrices"])
    body = []
    for entry in entries:
        for sequence in ("right-hand sides", "matrices"):
            found = [entry[sequence][way] for way in ways]
            sums = [f"{sum(one['products']):,}" + f" ({one['failed']} failed)" * (one["failed"] > 0) for one in found]
            body.append([entry["matrix"], f"{_SYSTEMS} {sequence}", *sums])
    return f"{solving.origin(document, entries)}.\n\n{markdown.rows(['matrix', 'sequence', *ways], body, left=2)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Count and write; the exit code is 0."""
    return each.run(
        arguments, lambda case: measured(case.name, case.load()), table, name="recycling",
        description="Products of sequences of systems.", entries="recycling", results=RESULTS, page=_PAGE,
        select=_select,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
