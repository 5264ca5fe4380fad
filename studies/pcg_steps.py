"""Preconditioned conjugate gradients on a GPU, one optimisation after another: the thesis' figure 4.5, here.

    python -m studies.pcg_steps                    the matrices of NAMES, on an H100 (two minutes; needs CuPy)
    python -m studies.pcg_steps --only brick       one, into the same file
    python -m studies.pcg_steps --table            print the table from the file

M. Mehri Dehnavi (McGill, 2012), section 4.4, begins with the conjugate gradients of Shewchuk and of Chronopoulos and
Gear, with a row for each warp, and changes one thing at a time. So do the `STAGES` here, with a Jacobi preconditioner:

* ``shewchuk``: products with a row for each warp (akx's ``csr-32``), and a kernel for each operation on vectors (CuPy);
  three inner products a step, each fetched by the host.
* ``chronopoulos``: the same with both inner products at one place, fetched at once.
* ``pcsr``: products by padded CSR in partitions (akx's ``pcsr``).
* ``fused``: one kernel for all updates of vectors and the preconditioner.
* ``best product``: the variant of plain products that akx predicts.
* ``akx cg``: :func:`akx.solvers.cg` with the same preconditioner: steps are queued ahead, and the host fetches nothing
  meanwhile.
* ``scaled``: the same on D^-1/2 A D^-1/2, which takes the same steps and has no preconditioner to apply.
* ``akx ca_cg``: :func:`akx.solvers.ca_cg`, which scales by itself, and does several steps with one reading of the
  matrix.

Texture memory, one of the thesis' steps, is the way of all loads on today's GPUs. A step counts as 2 nnz + 14 n flops,
as in the thesis, whatever it does. Seconds of a step are those of a long run less those of a short one, over the steps
between, in the median of some pairs; the stages take turns. All are checked to come to the residual of the first.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp

import akx
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner.measure import now
from akx.tuner.model.predict import predict
from benchmarks import markdown, matrices, planned, solving

__all__ = ["NAMES", "RESULTS", "STAGES", "main", "measure", "rates", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "h100_pcg_steps.json"
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "literature.md"
#: Symmetric positive definite ones; G3_circuit is one of the thesis'.
NAMES = ("G3_circuit", "7-point", "brick", "shell", "bodyy5", "bcsstk18")
STAGES = ("shewchuk", "chronopoulos", "pcsr", "fused", "best product", "akx cg", "scaled", "akx ca_cg")
_SHORT, _LONG, _PAIRS = 24, 120, 7

Json = dict[str, Any]
#: So many steps from a zero guess; gives seconds, and x.
Run = Callable[[int], tuple[float, Any]]


class _Product:
    """y = A x on the device by a plan for one power."""

    def __init__(self, matrix: Matrix, plan: Plan) -> None:
        self._operator = akx.MatrixPowers(matrix, 1, plan=plan, backend="cuda")
        self._out: Any = None

    def __call__(self, x: Any) -> Any:
        self._out = self._operator(x) if self._out is None else self._operator(x, out=self._out)
        return self._out[:, 1]


def _on_clock(solve: Callable[[int], Any]) -> Run:
    """Seconds of a solve that makes its steps on the device, which is waited for."""
    cupy = import_module("cupy")

    def run(steps: int) -> tuple[float, Any]:
        cupy.cuda.get_current_stream().synchronize()
        begin = now()
        x = solve(steps)
        cupy.cuda.get_current_stream().synchronize()
        return now() - begin, x

    return run


def _shewchuk(product: _Product, d: Any, b: Any) -> Run:
    cupy = import_module("cupy")

    def solve(steps: int) -> Any:
        x, r = cupy.zeros_like(b), b.copy()
        p = d * r
        delta = float(cupy.dot(r, p))
        for _ in range(steps):
            q = product(p)
            alpha = delta / float(cupy.dot(p, q))
            x += alpha * p
            r -= alpha * q
            u = d * r
            before, delta = delta, float(cupy.dot(r, u))
            float(cupy.dot(r, r))  # whoever solves looks at the residual
            p = u + (delta / before) * p
        return x

    return _on_clock(solve)


def _chronopoulos(product: _Product, d: Any, b: Any, *, fused: bool) -> Run:
    cupy = import_module("cupy")
    update = cupy.ElementwiseKernel(
        "float64 alpha, float64 beta, float64 w, float64 d",
        "float64 p, float64 s, float64 x, float64 r, float64 u",
        "p = u + beta * p; s = w + beta * s; x += alpha * p; r -= alpha * s; u = d * r",
        "pcg_update",
    )

    def products(r: Any, u: Any, w: Any) -> tuple[float, float]:
        one, other = cupy.stack([cupy.dot(r, u), cupy.dot(w, u)]).get()
        return float(one), float(other)

    def solve(steps: int) -> Any:
        x, r = cupy.zeros_like(b), b.copy()
        u = d * r
        p, s = cupy.zeros_like(b), cupy.zeros_like(b)
        w = product(u)
        gamma, delta = products(r, u, w)
        alpha, beta = gamma / delta, 0.0
        for _ in range(steps):
            if fused:
                update(alpha, beta, w, d, p, s, x, r, u)
            else:
                p = u + beta * p
                s = w + beta * s
                x += alpha * p
                r -= alpha * s
                u = d * r
            w = product(u)
            before = gamma
            gamma, delta = products(r, u, w)
            beta = gamma / before
            alpha = gamma / (delta - beta * gamma / alpha)
        return x

    return _on_clock(solve)


def _akx(method: str, matrix: Matrix, b: Any, M: Any = None, scale: Any = None) -> Run:
    from akx.solvers import SOLVERS

    def run(steps: int) -> tuple[float, Any]:
        right = b if scale is None else scale * b
        answer: Any = SOLVERS[method](matrix, right, M=M, rtol=0.0, maxiter=steps, return_stats=True, backend="cuda")
        x, _, stats = answer
        if stats.iterations != steps:
            raise ArithmeticError(f"{method} ended after {stats.iterations} of {steps} steps: {stats.reason}")
        return stats.seconds["total"] - stats.seconds.get("setup", 0.0), x if scale is None else scale * x

    return run


def _stages(matrix: Matrix, b: Any, d: Any) -> dict[str, Run]:
    from akx.solvers.preconditioners import jacobi

    cupy = import_module("cupy")
    D = sp.diags_array(np.sqrt(d.get()))

    def plain(variant: str) -> _Product:
        return _Product(matrix, Plan("cuda", "sweep", variant, k=1))

    warp, pcsr = plain("csr-32"), plain("pcsr")
    best = _Product(matrix, predict(matrix, 1, backend="cuda", plain=True))
    runs = (
        _shewchuk(warp, d, b),
        _chronopoulos(warp, d, b, fused=False),
        _chronopoulos(pcsr, d, b, fused=False),
        _chronopoulos(pcsr, d, b, fused=True),
        _chronopoulos(best, d, b, fused=True),
        _akx("cg", matrix, b, jacobi(matrix)),
        _akx("cg", Matrix.from_any(D @ matrix.to_scipy() @ D), b, None, cupy.sqrt(d)),
        _akx("ca_cg", matrix, b, jacobi(matrix)),
    )
    return dict(zip(STAGES, runs, strict=True))


def measure(name: str, A: Any) -> Json:
    """One entry: seconds of a step by stage, and the residual that each came to in the short run.

    Raises
    ------
    ArithmeticError
        Where a stage comes to another residual than the first.
    """
    cupy = import_module("cupy")
    matrix = Matrix.from_any(A)
    b = cupy.asarray(np.random.default_rng(0).random(matrix.n))
    d = cupy.asarray(1.0 / matrix.to_scipy().diagonal())
    runs = _stages(matrix, b, d)
    A_host = matrix.to_scipy()
    residuals = {}
    for stage, run in runs.items():
        x = run(_SHORT)[1]
        residuals[stage] = float(np.linalg.norm(b.get() - A_host @ x.get()))
    first = residuals[STAGES[0]]
    for stage in STAGES:
        if not np.isclose(residuals[stage], first, rtol=1e-3):
            raise ArithmeticError(f"{stage} of {name}: a residual of {residuals[stage]:.3g}, and {first:.3g} before")

    slopes: dict[str, list[float]] = {stage: [] for stage in runs}
    for _ in range(_PAIRS):
        for stage, run in runs.items():
            slopes[stage].append((run(_LONG)[0] - run(_SHORT)[0]) / (_LONG - _SHORT))
    return {
        "matrix": name,
        "rows": matrix.n,
        "nnz": matrix.nnz,
        "stages": {
            stage: {"seconds": median(found), "all": found, "residual": residuals[stage]}
            for stage, found in slopes.items()
        },
    }


def rates(document: Json) -> dict[str, dict[str, float]]:
    """Gflop/s by matrix and stage."""
    return {
        entry["matrix"]: {
            stage: (2 * entry["nnz"] + 14 * entry["rows"]) / entry["stages"][stage]["seconds"] / 1e9 for stage in STAGES
        }
        for entry in document["pcg_steps"]
    }


def table(document: Json) -> str:
    """Gflop/s by stage, and the best over the first."""
    head = ["matrix", *STAGES, "best over first"]
    body = []
    for name, found in rates(document).items():
        each = [found[stage] for stage in STAGES]
        body.append([name, *(f"{rate:.1f}" for rate in each), f"{max(each) / each[0]:.1f}"])
    return f"{planned.measured_on(document, 'pcg_steps')}.\n\n{markdown.rows(head, body)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write, print the table; the exit code is 3 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m studies.pcg_steps", description="PCG by optimisation step.")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of the gallery, or real ones")
    parser.add_argument("--table", action="store_true", help="print the table from the file")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, help="the page with the table; docs/literature.md with the usual file")
    options = parser.parse_args(arguments)
    document = planned.known(options.output, "pcg_steps")
    if not options.table:
        if not planned.has_gpu("pcg_steps"):
            return planned.NO_DEVICE
        from benchmarks import gpu

        origin = gpu.provenance()
        for case in matrices.select(options.only or NAMES):
            entry = measure(case.name, case.load())
            print(case.name, entry["stages"], file=sys.stderr, flush=True)
            document = solving.keep(options.output, document, "pcg_steps", entry, origin)
    markdown.show(table(json.loads(options.output.read_text())), "pcg_steps", options.docs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
