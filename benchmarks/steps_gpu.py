"""Who takes part in ``python -m benchmarks.steps --backend cuda``: akx's solvers on the GPU, and CuPy's.

CuPy's solvers do products with cuSPARSE, as its CSR matrices do by default, and everything else with kernels of their
own; they are given no callback, which would cost them time, so that their steps are those that were allowed.

Plans are tuned with ``--seconds`` for each, or, with ``--seconds 0``, taken from what ``make gpu-bench`` has recorded
in ``benchmarks/results/h100.json``: the plans that the tuner found there for k = 1, 4 and 16, of which the fastest for
the k and the start vectors at hand, timed here, is used; predicted ones where none was recorded.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import akx
import akx.solvers
from akx.core.errors import AkxError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.operator.explain import time_on_device
from akx.plandb import PlanDatabase, PlanRecord
from akx.solvers.solver_choice import powers_of
from akx.tuner import plan_key, tune
from akx.tuner.measure import now
from benchmarks import solving
from benchmarks.steps import Runner, slope

__all__ = ["STEPS", "parsed", "plan_for", "runners"]

#: Steps per pass of communication-avoiding solvers, to choose from: the fastest is used, as after ``akx tune --for``.
STEPS = {"cg": (4, 6, 8), "gmres": (6,), "bicgstab": (4,)}
#: Pairs of solves by which one is chosen, and seconds until more are made.
_PAIRS = 3, 0.3
_RECORDED = Path(__file__).resolve().parent / "results" / "h100.json"

Json = dict[str, Any]


def runners(
    name: str, method: str, A: Any, b: Any, *, db: Path, seconds: float, lengths: tuple[int, int]
) -> Iterator[tuple[str, str, Runner]]:
    """Name, whose it is and how it runs, of each who takes part on a matrix of the gallery.

    `lengths`: steps of the short and of the long solves by which s is chosen.
    """
    matrix = Matrix.from_any(A)
    powers = powers_of(f"ca_{method}", "cuda")
    wanted = [(1, 1, "monomial"), *((s * powers.per_step, powers.start_vectors, powers.basis) for s in STEPS[method])]
    for k, count, kind in wanted:
        if seconds > 0:
            tune(matrix, k, basis=kind, start_vectors=count, seconds=seconds, db=db, backend="cuda")
        else:
            plan_for(name, matrix, k, start_vectors=count, basis=kind, db=db)
    yield method, "akx", _ours(method, matrix, b, db)
    each = {s: _ours(f"ca_{method}", matrix, b, db, s=s) for s in STEPS[method]}
    chosen = min(each, key=lambda s: _time_of(each[s], *lengths)) if len(each) > 1 else STEPS[method][0]
    yield f"ca_{method}", "akx", each[chosen]
    if method != "bicgstab":  # CuPy has none
        yield method, "CuPy", _cupys(method, A, b)


def _time_of(run: Runner, short: int, long: int) -> float:
    """Seconds of a step, once all is made that has to be."""
    run(long)
    return slope(run, short, long, *_PAIRS)


def plan_for(name: str, matrix: Matrix, k: int, *, start_vectors: int, basis: str, db: Path) -> Plan | None:
    """The plan that the database has, or the fastest of the recorded ones for another k, timed, which it then has."""
    key = plan_key(matrix, k, basis=basis, start_vectors=start_vectors, backend="cuda")
    known = PlanDatabase(db).find(key).record
    if known is not None:
        return known.plan
    found: list[tuple[float, Plan]] = []
    for plan in dict.fromkeys(_candidates(name, k, start_vectors)):
        try:
            operator = akx.MatrixPowers(matrix, k, plan=plan)
            found.append((time_on_device(operator._prepared, matrix.dtype, start_vectors), plan))
        except AkxError as error:
            print(f"{name}: {error}", file=sys.stderr)
    if not found:
        return None
    best, plan = min(found, key=lambda one: one[0])
    slowest = max(seconds for seconds, _ in found)
    PlanDatabase(db).put(PlanRecord(key, plan, best, "recorded", slowest))
    return plan


def _candidates(name: str, k: int, start_vectors: int) -> Iterator[Plan]:
    for recorded, label in _labels().get(name, ()):
        if k == 1 and recorded != 1:
            continue
        plan = parsed(label, k)
        variants = [plan]
        if plan.schedule == "resident" or (plan.schedule == "ghost" and recorded > k):
            variants = [plan.replace(k_per_pass=k)]
        if start_vectors > 1 and "vectors" in plan.options:
            both = [one.replace(options={**one.options, "vectors": 2}) for one in variants]
            variants += [
                *both,
                *(one.replace(options={**one.options, "x": "global"}) for one in both if "x" in one.options),
            ]
        yield from variants


@lru_cache(maxsize=1)
def _labels() -> dict[str, list[tuple[int, str]]]:
    found: dict[str, list[tuple[int, str]]] = {}
    for entry in json.loads(_RECORDED.read_text())["powers"]:
        found.setdefault(entry["matrix"], []).append((entry["k"], entry["plan"]))
    return found


def parsed(label: str, k: int) -> Plan:
    """The plan that a label says, for k powers; as many in a pass as it says, but no more than k."""
    where, partitioner, powers, *pairs = label.split()
    backend, schedule, variant = where.split("/")
    options: dict[str, Any] = {}
    for name, _, text in (pair.partition("=") for pair in pairs):
        options[name] = text == "True" if text in ("True", "False") else _number(text)
    threads, size = options.pop("threads"), 0
    if str(options.get("block")).endswith("KiB"):
        size = int(1024 * float(options.pop("block").removesuffix("KiB")))
    depth = int(powers.removeprefix("k=").split("x")[0])
    return Plan(
        backend, schedule, variant, partitioner=partitioner, k=k, k_per_pass=min(depth, k), threads=threads,
        block_bytes=size, options=options,
    )  # fmt: skip


def _number(text: str) -> Any:
    """The number that a text is, or the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _ours(name: str, A: Matrix, b: Any, db: Path, **options: Any) -> Runner:
    def run(limit: int) -> tuple[float, int, Json]:
        given = {**options, "restart": solving.RESTART} if name.endswith("gmres") else options
        solver = akx.solvers.SOLVERS[name]
        _, _, stats = solver(A, b, rtol=0.0, maxiter=limit, return_stats=True, backend="cuda", db=db, **given)
        noted = {"s": max(stats.s[1:], default=0), "notes": stats.notes[:5], "reason": stats.reason}
        noted["phases"] = {phase: spent for phase, spent in stats.seconds.items() if phase != "total"}
        return stats.seconds["total"] - stats.seconds.get("setup", 0.0), stats.iterations, noted

    return run


def _cupys(method: str, A: Any, b: Any) -> Runner:
    cupy, sparse = import_module("cupy"), import_module("cupyx.scipy.sparse")
    solver = getattr(import_module("cupyx.scipy.sparse.linalg"), method)
    matrix, right = sparse.csr_matrix(A), cupy.asarray(b)
    tolerance = "rtol" if "rtol" in inspect.signature(solver).parameters else "tol"

    def run(limit: int) -> tuple[float, int, Json]:
        steps = limit * solving.RESTART if method == "gmres" else limit
        options: Json = {"restart": solving.RESTART} if method == "gmres" else {}
        cupy.cuda.get_current_stream().synchronize()
        begin = now()
        solver(matrix, right, maxiter=steps, **{tolerance: 0.0}, **options)
        cupy.cuda.get_current_stream().synchronize()
        return now() - begin, steps, {}

    return run
