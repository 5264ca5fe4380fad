"""Mixed precision beside double: steps, products, and time to a residual of 1e-8 of b.

    python -m benchmarks.mixed                   five matrices, into benchmarks/results/mixed.json, then the table
    python -m benchmarks.mixed --only shell      one matrix, merged into the file
    python -m benchmarks.mixed --gpu             on a GPU, beside CuPy (needs it), into a file of its own
    python -m benchmarks.mixed --table           the table of docs/solvers.md from the file

Each solve is ``akx.solvers.Solver(A, method, precision=...)`` called with a random right-hand side, so that what is
made once for a matrix is there. On the host, by default the few matrices of `_HOST`, seconds are of CPU time, one
thread: the least of some rounds in which both take turns. On a GPU they are the medians of the user's clock with b on
the GPU, waited for, and CuPy's solver beside. The `small` matrices are ill-conditioned. All are made to begin in single
precision, also where solvers do not, as there is nothing to gain: to see what that costs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy import sparse as sp

from akx.solvers import Solver, mixed
from benchmarks import each, elements, gallery, markdown, solving
from benchmarks.answer import general
from benchmarks.matrices import Case

__all__ = ["RESULTS", "main", "measured", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "mixed.json"
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "solvers.md"
_RTOL, _ROUNDS, _ROUNDS_GPU = 1e-8, 3, 7
_PRECISIONS = ("double", "mixed")

Json = dict[str, Any]


def _definite(A: Any) -> sp.csr_array:
    """General values, and rows that sum to a thousandth."""
    W = abs(general(A))
    W = sp.csr_array(W - sp.diags_array(W.diagonal()))
    return sp.csr_array(sp.diags_array(W.sum(axis=1) + 1e-3) - W)


def _skewed(A: sp.csr_array) -> sp.csr_array:
    """The upper triangle times 1.2, the lower one times 0.8."""
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    A.data *= 1 + 0.2 * np.sign(A.indices - rows)
    return A


def _wind(m: int) -> sp.csr_array:
    """Convection and diffusion on a square of m^2 points, upwind."""
    diffusion = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(m, m)) * (m + 1) / 100
    wind = sp.diags_array([-1.0, 1.0], offsets=[-1, 0], shape=(m, m))
    return sp.csr_array(sp.kron(sp.eye_array(m), diffusion + wind) + sp.kron(diffusion + wind / 2, sp.eye_array(m)))


def _wind_in_space(m: int) -> sp.csr_array:
    """The same in a cube of m^3 points."""
    line, one = sp.diags_array([-1.4, 1.8, -0.4], offsets=[-1, 0, 1], shape=(m, m)), sp.eye_array(m)
    plane = sp.kron(line, one) + sp.kron(one, line) / 2
    return sp.csr_array(sp.kron(plane, one) + sp.kron(sp.eye_array(m * m), line) / 3)


def _uneven(n: int, jump: float) -> sp.csr_array:
    """Diffusion along a line whose second half conducts so many times better."""
    c = np.where(np.arange(n + 1) < n // 2, 1.0, jump)
    return sp.csr_array(sp.diags_array([-c[1:-1], c[:-1] + c[1:], -c[1:-1]], offsets=[-1, 0, 1]))


#: By name: methods, and what makes the matrix.
_LARGE: dict[str, tuple[tuple[str, ...], Callable[[], Any]]] = {
    "7-point 100^3": (("cg", "ca_cg"), lambda: _definite(gallery.stencil((100, 100, 100), 7))),
    "7-point 160^3": (("cg",), lambda: _definite(gallery.stencil((160, 160, 160), 7))),
    "7-point 160^3, skewed": (("bicgstab", "gmres"), lambda: _skewed(_definite(gallery.stencil((160,) * 3, 7)))),
    "wind 160^3": (("gmres",), lambda: _wind_in_space(160)),
    "27-point 60^3": (("cg",), lambda: _definite(gallery.stencil((60, 60, 60), 27))),
    "brick 27^3": (("cg",), lambda: elements.brick((27, 27, 27))),
    "wind 600^2": (("bicgstab", "gmres"), lambda: _wind(600)),
    "27-point 50^3": (("cg", "ca_cg"), lambda: _definite(gallery.stencil((50, 50, 50), 27))),
    "5-point 500^2": (("cg",), lambda: gallery.stencil((500, 500), 5)),
    "shell": (("cg",), lambda: _definite(gallery.GALLERY["shell"]())),
    "7-point 100^3, skewed": (("bicgstab", "gmres"), lambda: _skewed(_definite(gallery.stencil((100,) * 3, 7)))),
    "wind 300^2": (("bicgstab", "gmres", "ca_gmres"), lambda: _wind(300)),
    "27-point 100^3": (("cg", "ca_cg"), lambda: _definite(gallery.stencil((100, 100, 100), 27))),
}
_REAL = ("662_bus", "bcsstk16", "bodyy5", "cavity14", "dw8192", "sherman4", "sherman5", "wang4", "epb0", "cage10")
_SMALL: dict[str, tuple[tuple[str, ...], Callable[[], Any]]] = {
    **{name: (("cg",) if name in _REAL[:3] else ("bicgstab",), partial(solving.load, name)) for name in _REAL},
    "bodyy5": (("cg", "gmres"), partial(solving.load, "bodyy5")),
    **{f"line {n}, {j:g}": (("cg",), partial(_uneven, n, j)) for n in (400, 3000) for j in (1, 1e2, 1e4)},
    "5-point 60^2": (("cg", "gmres"), lambda: gallery.stencil((60, 60), 5)),
    "wind 60^2": (("bicgstab", "gmres"), lambda: _wind(60)),
}
_ALL = _LARGE | _SMALL
_HOST = ("7-point 100^3", "27-point 60^3", "brick 27^3", "wind 600^2", "bcsstk16")


def _select(names: Iterable[str] | None = None, *, reduced: bool = False) -> list[Case]:
    """The matrices by name; reduced, a small one."""
    chosen = ["wind 60^2"] if reduced else list(names or _ALL)
    return [Case(name, "small" if name in _SMALL else "large", _ALL[name][1]) for name in chosen]


def measured(case: Case, *, gpu: bool = False, rounds: int = _ROUNDS) -> Json:
    """``matrix``, ``rows``, ``nnz``, ``group``, and by method and precision steps, products, seconds and notes."""
    A = sp.csr_array(case.load()).astype(float)
    A.sort_indices()
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    found: Json = {"matrix": case.name, "rows": A.shape[0], "nnz": int(A.nnz), "group": case.group, "methods": {}}
    usual, mixed._why_no_gain = mixed._why_no_gain, lambda *_: ""  # measure where it is not done too
    try:
        for method in _ALL[case.name][0]:
            found["methods"][method] = _on_gpu(method, A, b) if gpu else _on_host(method, A, b, rounds)
    finally:
        mixed._why_no_gain = usual
    return found


def _solve(solver: Solver, A: Any, b: Any) -> Json:
    x, info, stats = solver(b, rtol=_RTOL, return_stats=True, maxiter=300 if "gmres" in solver.method else 20_000)
    x, b = (v.get() if hasattr(v, "get") else v for v in (x, b))
    false = info == 0 and np.linalg.norm(b - A @ x) > 1.001 * _RTOL * np.linalg.norm(b)
    return {
        "info": info,
        "steps": stats.iterations,
        "products": stats.products,
        "false": bool(false),
        "notes": stats.notes,
    }


def _on_host(method: str, A: Any, b: Any, rounds: int) -> Json:
    solvers = {one: Solver(A, method, precision=one, threads=1, backend="cpu") for one in _PRECISIONS}
    found = {one: _solve(solver, A, b) for one, solver in solvers.items()}
    seconds: dict[str, list[float]] = {one: [] for one in _PRECISIONS}
    for _ in range(rounds):
        for one, solver in solvers.items():
            begin = time.process_time()
            _solve(solver, A, b)
            seconds[one].append(time.process_time() - begin)
    for one, times in seconds.items():
        found[one]["seconds"] = min(times)
    return found


def _on_gpu(method: str, A: Any, b: Any) -> Json:
    cupy = import_module("cupy")
    there, wait = cupy.asarray(b), cupy.cuda.Device().synchronize
    solvers = {one: Solver(A, method, precision=one, backend="cuda") for one in _PRECISIONS}
    found = {one: _solve(solver, A, there) for one, solver in solvers.items()}
    most = 300 if "gmres" in method else 20_000
    runs: dict[str, Callable[[], Any]] = {
        one: partial(solver, there, rtol=_RTOL, maxiter=most) for one, solver in solvers.items()
    }
    if method in ("cg", "gmres"):
        linalg, on_gpu = import_module("cupyx.scipy.sparse.linalg"), import_module("cupyx.scipy.sparse")
        name = "rtol" if "rtol" in getattr(linalg, method).__code__.co_varnames else "tol"
        options = {"restart": solving.RESTART, "maxiter": 300 * solving.RESTART} if method == "gmres" else {}
        runs["CuPy"] = partial(getattr(linalg, method), on_gpu.csr_matrix(A), there, **{name: _RTOL}, **options)
        found["CuPy"] = {}
    seconds: dict[str, list[float]] = {one: [] for one in runs}
    for turn in range(_ROUNDS_GPU):
        for one, run in runs.items():
            wait()
            begin = time.perf_counter()
            run()
            wait()
            if turn:
                seconds[one].append(time.perf_counter() - begin)
    for one, times in seconds.items():
        found[one]["seconds"] = median(times)
    return found


def table(document: Json) -> str:
    """A line for each matrix and method."""
    entries = document["mixed"]
    with_cupy = any("CuPy" in taken for entry in entries for taken in entry["methods"].values())
    head = ["matrix", "method", "steps: double", "mixed", "ms: double", "mixed", "mixed / double"]
    body = []
    for entry in entries:
        for method, taken in entry["methods"].items():
            one, other = (taken[precision] for precision in _PRECISIONS)
            name = entry["matrix"] + " (small)" * (entry["group"] == "small")
            steps = [f"{way['steps']:,}" + " (failed)" * (way["info"] != 0) for way in (one, other)]
            times = [f"{way['seconds'] * 1e3:.3g}" for way in (one, other)]
            line = [name, method, *steps, *times, f"{other['seconds'] / one['seconds']:.2f}"]
            body.append([*line, f"{taken['CuPy']['seconds'] * 1e3:.3g}" if "CuPy" in taken else ""][: 7 + with_cupy])
    head += ["CuPy"] * with_cupy
    return f"{solving.origin(document, entries)}.\n\n{markdown.rows(head, body, left=2)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; the exit code is 0."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    given = list(sys.argv[1:] if arguments is None else arguments)
    gpu = "--gpu" in given
    return each.run(
        [word for word in given if word != "--gpu"], partial(measured, gpu=gpu), table, name="mixed",
        description="Mixed precision beside double.", entries="mixed",
        results=RESULTS.with_stem("mixed_gpu") if gpu else RESULTS, page=_PAGE, select=_select, gpu=gpu,
        usual=None if gpu else _HOST,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
