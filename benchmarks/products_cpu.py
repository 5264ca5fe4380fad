"""Plain products of matrices in blocks on the CPU, beside MKL: ``python -m benchmarks.products_cpu``.

    python -m benchmarks.products_cpu                 brick, shell, tetrahedra and wind, into products_cpu.json
    python -m benchmarks.products_cpu --only wind     one matrix, merged into the file
    python -m benchmarks.products_cpu --table         print the table from the file

A call is k = 8 products, a product an eighth of it, on all threads. Every variant of `sweep` that fits, rows as they
are, is looked at in brief; the fastest of the three fastest formats then take turns with MKL's CSR, and with its block
CSR where the matrix is made of blocks of one size. MKL has its hints and its optimisation before the clock starts. All
leave the same last vector, and akx's are within their bound. A ratio is the median of those of the rounds, with its
95 % interval. `prepare_seconds`, `update_seconds` and `update_behind_seconds` are as in :mod:`benchmarks.laying_out`,
of the fastest variant, and counted in its products. Matrices as in :mod:`benchmarks.products`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx import MatrixPowers
from akx.backends import registry
from akx.backends.host import default_threads, host_device
from akx.backends.reference import reference
from akx.backends.schedule import as_coefficients
from akx.core.basis import monomial
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.report.comparison.mkl import mkl_powers
from akx.tuner.measure import Measurement, Precision, interleave, paired_ratio
from akx.tuner.space import build_space
from benchmarks import each, laying_out, markdown, solving
from benchmarks.calm import Calm
from benchmarks.contest import check_agreement, start_vector
from benchmarks.gallery import small
from benchmarks.matrices import Case
from benchmarks.products import MATRICES, wind

__all__ = ["PAGE", "RESULTS", "main", "measured", "select", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "products_cpu.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "kernels.md"
_K = 8
#: Contestants that are not akx's.
_CSR, _BSR = "mkl", "mkl_bsr"
#: Formats that take turns with MKL; the brief look, and the turns.
_FORMATS = 3
_BRIEF = Precision(relative=0.05, seconds=2.0, rounds_min=5, rounds_max=9)
_TURNS = Precision(relative=0.01, seconds=10.0, rounds_min=15, rounds_max=61)
#: New values, one after another and right behind a call.
_UPDATES = ("update", "update_behind")
#: Rows of the blocks that all of a matrix is made of, where these are of one size.
_SIZES = {"brick": 3, "shell": 6, "tetrahedra": 3}
#: Nodes of a small wind tunnel by their unknowns.
_BREEZE = {1: 6, 2: 3, 3: 3, 5: 1, 6: 36}

Json = dict[str, Any]


def measured(matrix: Matrix, size: int, calm: Calm, precision: Precision | None = None) -> Json:
    """All of a matrix in dense blocks of `size` rows, 0 where they are of no one size.

    Returns
    -------
    dict
        ``looked_at``, seconds of a product in every variant, in brief; ``times``, of each contestant ``seconds`` of a
        product and ``spread``; ``best`` and ``other``, the fastest of
        akx's and the fastest in another format, each with ``variant``, ``over_csr`` and, with blocks of one size,
        ``over_bsr``: MKL's time over its own, {``ratio``, ``low``, ``high``}; ``prepare_seconds``, ``update_seconds``,
        and both in products of ``best``; whether it was ``calm``.
    """
    threads = default_threads()
    x, out = start_vector(matrix.n, matrix.dtype), np.zeros((_K + 1, matrix.n), dtype=matrix.dtype)
    operators = {_name(plan): MatrixPowers(matrix, _K, plan=plan, backend="cpu") for plan in _plans(matrix, threads)}
    calls: dict[str, Callable[[], object]] = {
        name: partial(operator, x, out=out.T) for name, operator in operators.items()
    }
    looked_at = _brief(calls)
    fastest = {_format(name): name for name in sorted(looked_at, key=lambda name: looked_at[name], reverse=True)}
    chosen = sorted(fastest.values(), key=lambda name: looked_at[name])[:_FORMATS]
    calls = {name: calls[name] for name in chosen}
    calls[_CSR] = partial(mkl_powers(matrix, _K, threads), x, out)
    if size:
        calls[_BSR] = partial(mkl_powers(matrix, _K, threads, size), x, out)
    _check(matrix, calls, x, out)
    found, was_calm = calm.timed(list(calls.values()), precision or _TURNS)
    times = dict(zip(calls, found, strict=True))
    best, other, *_ = sorted(chosen, key=lambda name: times[name].seconds)
    costs = laying_out.costs(matrix, operators[best], calls[best])
    product = times[best].seconds / _K
    return {
        "rows": matrix.n,
        "nnz": matrix.nnz,
        "k": _K,
        "looked_at": looked_at,
        "times": {name: {"seconds": one.seconds / _K, "spread": one.spread} for name, one in times.items()},
        "best": _beside(best, times),
        "other": _beside(other, times),
        **costs,
        "prepare_products": costs["prepare_seconds"] / product,
        **{f"{name}_products": costs[f"{name}_seconds"] / product for name in _UPDATES},
        "calm": was_calm,
    }


def _plans(matrix: Matrix, threads: int) -> list[Plan]:
    """Plain products in every variant that fits, with every window that is sorted in."""
    device, sweep = host_device(), registry.get("cpu", "sweep")
    space = build_space(matrix, _K, device, backend="cpu", threads=threads)
    plans = []
    for variant in map(str, space.choices("sweep", "variant")):
        for sigma in space.choices("sweep", "sigma") if variant.startswith("sell") else (1,):
            plan = Plan("cpu", "sweep", variant, k=_K, threads=threads, options={"sigma": sigma})
            if sweep.feasible(plan, matrix, device) is None:
                plans.append(plan)
    return plans


def _name(plan: Plan) -> str:
    sigma = plan.typed.sigma
    return plan.variant if sigma == 1 else f"{plan.variant} sigma={sigma}"


def _format(name: str) -> str:
    """Of a variant, whatever the width of its indices and the order of its rows."""
    return name.split()[0].removesuffix("16").removesuffix("-ahead")


def _brief(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of a product."""
    for call in calls.values():
        call()
    found = interleave(list(calls.values()), _BRIEF)
    return {name: one.seconds / _K for name, one in zip(calls, found, strict=True)}


def _beside(name: str, times: dict[str, Measurement]) -> Json:
    """A contestant of akx's, and how many times as fast as MKL it is."""
    found: Json = {"variant": name}
    for key, rival in (("over_csr", _CSR), ("over_bsr", _BSR)):
        if rival in times:
            ratio = paired_ratio(times[rival], times[name])
            found[key] = {"ratio": ratio.seconds, "low": ratio.low, "high": ratio.high}
    return found


def _check(matrix: Matrix, calls: dict[str, Callable[[], object]], x: NDArray[Any], out: NDArray[Any]) -> None:
    """Raises ArithmeticError where akx is beyond its bound, or MKL leaves another last vector."""
    basis = monomial(_K)
    coefficients = as_coefficients(basis.a, basis.b, basis.c, matrix.dtype)
    truth = reference(matrix, x[None, :], coefficients)
    for name, call in calls.items():
        if name in (_CSR, _BSR):
            continue
        out[:] = np.nan
        call()
        error = float(truth.error_ratio(out[:, None, :]))
        if not error <= 1.0:
            raise ArithmeticError(f"{name} is wrong: {error}")
    check_agreement(calls, out[_K])


def table(document: Json) -> str:
    """A line for each matrix: microseconds of a product, and gains."""
    head = ["matrix", "fastest", "us", "in another format", "us", "MKL CSR, us", "MKL BSR, us", "over CSR", "over BSR"]
    head += ["laid out in, products", "new values in, products", "right behind a call"]
    body = []
    for entry in sorted(document["products"], key=lambda entry: list(MATRICES).index(entry["matrix"])):
        times = {name: f"{1e6 * one['seconds']:.0f}" for name, one in entry["times"].items()}
        best, other = entry["best"], entry["other"]["variant"]
        row = [entry["matrix"] + ("" if entry["calm"] else " (not calm)"), f"`{best['variant']}`"]
        row += [times[best["variant"]], f"`{other}`", times[other], times[_CSR], times.get(_BSR, "")]
        row += [_ratio(best.get(key)) for key in ("over_csr", "over_bsr")]
        body.append(
            [*row, f"{entry['prepare_products']:.0f}", *(f"{entry[f'{name}_products']:.1f}" for name in _UPDATES)]
        )
    where = f"{solving.origin(document, document['products'])}, MKL {document['versions'].get('mkl', 'of the system')}"
    return f"{where}.\n\n{markdown.rows(head, body, left=(0, 1, 3))}"


def _ratio(found: Json | None) -> str:
    return "" if found is None else f"{found['ratio']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def select(names: Sequence[str] | None, *, reduced: bool = False) -> list[Case]:
    """The matrices of these names, or all. Raises KeyError."""
    made: dict[str, Any] = dict(MATRICES)
    if reduced:
        made = {
            **{name: partial(small, name) for name in made if name != "wind"},
            "wind": partial(wind, counts=_BREEZE),
        }
    return [Case(name, "blocks", made[name]) for name in names or made]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; the exit code is 0. Raises MissingDependencyError where MKL is not installed."""
    calm = Calm(default_threads())

    def entry(case: Case) -> Json:
        return {"matrix": case.name, **measured(Matrix.from_any(case.load()), _SIZES.get(case.name, 0), calm)}

    return each.run(
        arguments, entry, table, name="products_cpu", description="Plain products of matrices in blocks, beside MKL.",
        entries="products", results=RESULTS, page=PAGE, select=select,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
