"""One value for two entries on the CPU, beside the plans that store all: ``python -m benchmarks.symmetric_cpu``.

    python -m benchmarks.symmetric_cpu                  all matrices, into symmetric_cpu.json
    python -m benchmarks.symmetric_cpu --only shell     one matrix, merged into the file
    python -m benchmarks.symmetric_cpu --table          print the table from the file

Matrices beyond the cache with general values, symmetric; what is in random order in RCM order, made beforehand. For
k = 1, 2 and 8 all variants of `sweep` that fit are looked at in brief, rows as they are, on all threads; then the
fastest that stores all entries, the fastest that does not, and MKL's CSR with its hints take turns, for k = 8 with the
fastest `wavefront` in each of these two variants. A call is one of ``P(x, out=V)``. Ratios are medians of those of the
rounds, with 95 % intervals. All are within their bound.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from akx import MatrixPowers
from akx.backends import reference, registry
from akx.backends.cpu.variants import layout_of
from akx.backends.host import default_threads, host_device
from akx.backends.schedule import as_coefficients
from akx.core.basis import monomial
from akx.core.errors import MissingDependencyError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.partition.levels import rcm
from akx.report.comparison.mkl import mkl_powers
from akx.tuner.measure import Precision, interleave, paired_ratio
from akx.tuner.space import build_space
from benchmarks import each, markdown, solving
from benchmarks.answer import general
from benchmarks.calm import Calm
from benchmarks.contest import start_vector
from benchmarks.matrices import Case

__all__ = ["main", "measured", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "symmetric_cpu.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "kernels.md"
#: Those that are measured by default.
MATRICES = ("9-point", "7-point", "27-point", "shell", "tetrahedra", "G3_circuit")
_POWERS = (1, 2, 8)
#: Blocks of wavefronts that are tried, in bytes.
_BLOCKS = (128 << 10, 512 << 10, 2 << 20)
_BRIEF = Precision(relative=0.05, seconds=2.0, rounds_min=5, rounds_max=9)
_TURNS = Precision(relative=0.01, seconds=8.0, rounds_min=15, rounds_max=61)

Json = dict[str, Any]
Calls = dict[str, Callable[[], object]]


def measured(matrix: Matrix, calm: Calm) -> list[Json]:
    """For each k: ``seconds`` of a product in each of those that took turns, and the ``ratio`` of the fastest that
    stores all entries over the fastest that does not, {``ratio``, ``low``, ``high``}, of MKL over it too; ``calm``.
    """
    threads, found = default_threads(), []
    for k in _POWERS:
        x, out = start_vector(matrix.n, matrix.dtype), np.zeros((k + 1, matrix.n), dtype=matrix.dtype)
        best: dict[tuple[bool, str], Plan] = {}
        made: dict[Plan, MatrixPowers] = {}
        for plans in (_sweeps, _wavefronts):
            made |= _fastest(matrix, k, plans(matrix, k, threads, tuple(best.values())), best, x, out)
        chosen = {_name(*key): made[plan] for key, plan in best.items()}
        calls: Calls = {name: partial(one, x, out=out.T) for name, one in chosen.items()}
        _check(matrix, k, calls, x, out)
        try:
            calls["mkl"] = partial(mkl_powers(matrix, k, threads), x, out)
        except MissingDependencyError:
            print("MKL is not installed", file=sys.stderr)
        times, was_calm = calm.timed(list(calls.values()), _TURNS)
        by_name = dict(zip(calls, times, strict=True))
        ours = min((name for name in by_name if name != "mkl"), key=lambda name: by_name[name].seconds)
        entry: Json = {
            "k": k,
            "plans": {_name(*key): plan.label() for key, plan in best.items()},
            "seconds": {name: one.seconds / k for name, one in by_name.items()},
            "best": ours,
            "calm": was_calm,
            "over": {},
        }
        for rival, one in by_name.items():
            mine = "symmetric sweep" if rival == "sweep" else ours
            if rival != mine and mine in by_name:
                ratio = paired_ratio(one, by_name[mine])
                entry["over"][rival] = {"ratio": ratio.seconds, "low": ratio.low, "high": ratio.high}
        found.append(entry)
    return found


def _sweeps(matrix: Matrix, k: int, threads: int, _: Sequence[Plan]) -> list[Plan]:
    space = build_space(matrix, k, host_device(), backend="cpu", threads=threads)
    variants = [str(one) for one in space.choices("sweep", "variant") if not str(one).endswith("-ahead")]
    return [Plan("cpu", "sweep", one, k=k, threads=threads) for one in variants]


def _wavefronts(matrix: Matrix, k: int, threads: int, best: Sequence[Plan]) -> list[Plan]:
    """In the variants of the best sweeps; none for few powers."""
    made = [
        Plan("cpu", "wavefront", one.variant, k=k, k_per_pass=k, block_bytes=size, threads=threads, options=options)
        for one in best
        for size in _BLOCKS
        for options in ({}, *([{"split": "interleaved"}] if threads > 1 else []))
    ]
    return made if k > 2 else []


def _fastest(
    matrix: Matrix, k: int, plans: list[Plan], best: dict[tuple[bool, str], Plan], x: NDArray[Any], out: NDArray[Any]
) -> dict[Plan, MatrixPowers]:
    """The fastest plan of each schedule that stores all entries, and that does not, into `best`; what they made."""
    plans = [plan for plan in plans if registry.get("cpu", plan.schedule).feasible(plan, matrix, host_device()) is None]
    made = {plan: MatrixPowers(matrix, k, plan=plan, backend="cpu") for plan in plans}
    calls: Calls = {plan.label(): partial(one, x, out=out.T) for plan, one in made.items()}
    for call in calls.values():
        call()
    times = dict(zip(calls, interleave(list(calls.values()), _BRIEF), strict=True)) if calls else {}
    for plan in sorted(made, key=lambda plan: times[plan.label()].seconds, reverse=True):
        best[layout_of(plan.variant).is_symmetric, plan.schedule] = plan
    return {plan: one for plan, one in made.items() if plan in best.values()}


def _name(is_symmetric: bool, schedule: str) -> str:
    return f"symmetric {schedule}" if is_symmetric else schedule


def _check(matrix: Matrix, k: int, calls: Calls, x: NDArray[Any], out: NDArray[Any]) -> None:
    """Raises ArithmeticError where a result is beyond its bound."""
    basis = monomial(k)
    coefficients = as_coefficients(basis.a, basis.b, basis.c, matrix.dtype)
    for name, call in calls.items():
        out[:] = np.nan
        call()
        error = reference.error_ratio(matrix, out[:, None, :], x[None, :], coefficients)
        if not error <= 1.0:
            raise ArithmeticError(f"{name} is wrong: {error}")


def table(document: Json) -> str:
    """A line for each matrix and k: microseconds a product, and ratios."""
    head = [
        "matrix",
        "k",
        "all entries, us",
        "one of two, us",
        "over all entries",
        "fastest",
        "us",
        "MKL, us",
        "over MKL",
    ]
    body = []
    for entry in document["matrices"]:
        for one in entry["powers"]:
            times = {name: f"{1e6 * seconds:.0f}" for name, seconds in one["seconds"].items()}
            row = [entry["matrix"] + ("" if one["calm"] else " (not calm)"), str(one["k"]), times["sweep"]]
            row += [
                times.get("symmetric sweep", ""),
                _ratio(one["over"].get("sweep")),
                f"`{one['plans'][one['best']]}`",
            ]
            body.append([*row, times[one["best"]], times.get("mkl", ""), _ratio(one["over"].get("mkl"))])
    return f"{solving.origin(document, document['matrices'])}.\n\n{markdown.rows(head, body, left=(0, 5))}"


def _ratio(found: Json | None) -> str:
    return "" if found is None else f"{found['ratio']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def _in_order(case: Case) -> Matrix:
    A = general(case.load())
    if case.reordered:
        order = rcm(A.indptr, A.indices)
        A = sparse.csr_array(A[order][:, order])
    return Matrix.from_any(A)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; the exit code is 0."""
    calm = Calm(default_threads())

    def entry(case: Case) -> Json:
        return {"matrix": case.name, "powers": measured(_in_order(case), calm)}

    return each.run(
        arguments, entry, table, name="symmetric_cpu", description="One value for two entries on the CPU.",
        entries="matrices", results=RESULTS, page=PAGE, usual=MATRICES,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
