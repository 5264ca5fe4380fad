"""Time until plain products are laid out on the CPU, and until they have new values, in products of their own.

    python -m benchmarks.laying_out                     the gallery and the real matrices (a few minutes)
    python -m benchmarks.laying_out --only brick        one, into the same file
    python -m benchmarks.laying_out --table             print the table from the file

The plan is a sweep in the format that an untuned call would take, k = 8, on all threads. `prepare_seconds` is the time
from a CSR matrix of which nothing is known to a program that is ready: feasibility, layout, tasks and values, its code
compiled before. `update_seconds` is that of :meth:`akx.MatrixPowers.update_values` with an :class:`akx.Matrix` that
shares its indices with the first one, checks included, one after another; `update_behind_seconds` each right behind a
call, when other threads have what they multiplied in their caches. All are medians of some; a *product* is an eighth of
a call.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from akx import MatrixPowers
from akx.backends import registry
from akx.backends.host import default_threads
from akx.core.errors import AkxError
from akx.core.matrix import Matrix
from akx.tuner.measure import Precision
from akx.tuner.model.predict import predict
from benchmarks import each, markdown, solving
from benchmarks.calm import Calm
from benchmarks.matrices import Case

__all__ = ["RESULTS", "costs", "main", "measured", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "laying_out.json"
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "kernels.md"
_K = 8
#: Calls at least, and at most where they take no longer than so many seconds in all.
_REPEATS, _MOST, _SECONDS = 7, 200, 0.1

Json = dict[str, Any]


def measured(matrix: Matrix, calm: Calm, precision: Precision | None = None) -> Json:
    """``variant``, ``rows``, ``nnz``; ``product_``, ``prepare_``, ``update_`` and ``update_behind_seconds``."""
    plan = predict(matrix, _K, backend="cpu", threads=default_threads(), plain=True)
    operator = MatrixPowers(matrix, _K, plan=plan, backend="cpu")
    x = np.random.default_rng(0).random(matrix.n).astype(matrix.dtype)
    out = np.zeros((_K + 1, matrix.n), dtype=matrix.dtype)
    call = partial(operator, x, out=out.T)
    call()
    (found,), _ = calm.timed([call], precision)
    return {
        "rows": matrix.n,
        "nnz": matrix.nnz,
        "variant": plan.variant,
        "product_seconds": found.seconds / _K,
        **costs(matrix, operator, call),
    }


def costs(matrix: Matrix, operator: MatrixPowers, call: Callable[[], object]) -> Json:
    """``prepare_``, ``update_`` and ``update_behind_seconds`` of the plan that an operator has; `call` calls it."""
    other, plan = matrix.with_values(0.5 * matrix.data), operator.plan

    def prepare() -> None:
        fresh = Matrix(matrix.indptr, matrix.indices, matrix.data, pattern_cache={})
        registry.get(plan.backend, plan.schedule).prepare(fresh, plan)

    update = partial(operator.update_values, other)
    return {
        "prepare_seconds": _median(prepare),
        "update_seconds": _median(update),
        "update_behind_seconds": _median(update, call),
    }


def _median(call: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    """Seconds of a call, each behind one of `before`; the first tenth is not counted.

    Short calls are repeated for longer: the interpreter is as fast as it gets only after some.
    """
    seconds: list[float] = []
    while len(seconds) < 1 + _REPEATS or (len(seconds) < _MOST and sum(seconds) < _SECONDS):
        before()
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[-(-len(seconds) // 10) :])


def table(document: Json) -> str:
    """A line for each matrix."""
    head = ["matrix", "entries", "format", "product, us", "laid out in, products", "new values in, products"]
    head.append("right behind a call")
    entries = document["matrices"]
    body = [
        [
            entry["matrix"],
            f"{entry['nnz']:,}",
            entry["variant"],
            f"{1e6 * entry['product_seconds']:.1f}",
            f"{entry['prepare_seconds'] / entry['product_seconds']:.0f}",
            f"{entry['update_seconds'] / entry['product_seconds']:.1f}",
            f"{entry['update_behind_seconds'] / entry['product_seconds']:.1f}",
        ]
        for entry in entries
    ]
    return f"{solving.origin(document, entries)}.\n\n{markdown.rows(head, body, left=(0, 2))}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; the exit code is 0."""
    calm = Calm(default_threads())

    def entry(case: Case) -> Json | None:
        try:
            matrix = Matrix.from_any(case.load())
        except (AkxError, ValueError):  # a sample for readers
            return None
        return {"matrix": case.name, **measured(matrix, calm)}

    return each.run(
        arguments, entry, table, name="laying_out", description="Layouts and new values.", entries="matrices",
        results=RESULTS, page=_PAGE,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
