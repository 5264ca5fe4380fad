"""Steps of gmres whose basis is rounded to single precision where it is stored, as in CB-GMRES, beside both precisions.

    python -m benchmarks.stored_basis                  into benchmarks/results/stored_basis.json, then the table
    python -m benchmarks.stored_basis --only sherman5  one matrix, merged into the file
    python -m benchmarks.stored_basis --table          the table of docs/solvers.md from the file

Products, sums, x and residuals of CB-GMRES (Aliaga, Anzt, Grützmacher, Quintana-Ortí, Tomás 2022) are in double
precision here, and each new row is rounded to float32 before it is used. What it saves is memory, so that steps are all
that can be learned on a host. Rows of a matrix are divided by their largest entry; b is random, rtol 1e-8. With
``precision="mixed"`` all is made to begin in single precision, and to stay there for any number of steps.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse as sp

from akx.solvers import corrections, mixed, solve
from akx.solvers.arnoldi import Arnoldi
from benchmarks import each, gallery, markdown, solving
from benchmarks.matrices import Case

__all__ = ["RESULTS", "main", "measured", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "stored_basis.json"
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "solvers.md"
_RTOL, _MOST = 1e-8, 200
_WAYS = ("double", "stored", "mixed")
_REAL = ("bodyy5", "cage10", "memplus", "pde900", "sherman4", "sherman5", "wang4")

Json = dict[str, Any]


def _select(names: Iterable[str] | None = None, *, reduced: bool = False) -> list[Case]:
    """The matrices by name; reduced, a small grid."""
    if reduced:
        return [Case("grid", "cycles", lambda: gallery.stencil((16, 16), 5))]
    return [Case(name, "cycles", partial(solving.load, name)) for name in names or _REAL]


@contextmanager
def _stored() -> Iterator[None]:
    """Rows are rounded where they become part of a basis, and may be as far from orthonormal as that makes them."""
    make, begin, step, single = Arnoldi.__init__, Arnoldi.begin, Arnoldi.step, np.float32

    def made(self: Arnoldi, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        self.ortho.eps = float(np.finfo(single).eps)
        self.ortho.allowed = self.ortho.eps**0.5

    def begun(self: Arnoldi, norm: float, row: int = 0) -> None:
        begin(self, norm, row)
        self.W[0] = self.W[0].astype(single)

    def done(self: Arnoldi, j: int, stop: int) -> Any:
        found = step(self, j, stop)
        self.W[j + 1] = self.W[j + 1].astype(single)
        return found

    Arnoldi.__init__, Arnoldi.begin, Arnoldi.step = made, begun, done  # type: ignore[method-assign]
    try:
        yield
    finally:
        Arnoldi.__init__, Arnoldi.begin, Arnoldi.step = make, begin, step  # type: ignore[method-assign]


@contextmanager
def _all_single() -> Iterator[None]:
    usual, share = mixed._why_no_gain, corrections._SHARE
    mixed._why_no_gain, corrections._SHARE = lambda *_: "", 1e-3  # type: ignore[assignment]
    try:
        yield
    finally:
        mixed._why_no_gain, corrections._SHARE = usual, share


def measured(case: Case) -> Json:
    """``matrix``, ``rows``, ``nnz``, and by way ``steps``, ``info``, whether that is ``false``, and ``notes``."""
    A = sp.csr_array(case.load()).astype(float)
    A = sp.csr_array(sp.diags_array(1 / abs(A).max(axis=1).toarray().ravel()) @ A)
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    found: Json = {"matrix": case.name, "rows": A.shape[0], "nnz": int(A.nnz)}
    given: dict[str, Any] = {"rtol": _RTOL, "maxiter": _MOST, "backend": "cpu", "return_stats": True}
    for way in _WAYS:
        with _stored() if way == "stored" else _all_single():
            x, info, stats = solve(A, b, method="gmres", precision="mixed" if way == "mixed" else "double", **given)
        false = bool(info == 0 and not np.linalg.norm(b - A @ x) <= 1.001 * _RTOL * np.linalg.norm(b))
        found[way] = {"steps": stats.iterations, "info": info, "false": false, "notes": stats.notes}
    return found


def table(document: Json) -> str:
    """A line for each matrix."""
    entries, body = document["matrices"], []
    for entry in entries:
        steps = [f"{entry[way]['steps']:,}" + " (failed)" * (entry[way]["info"] != 0) for way in _WAYS]
        body.append([entry["matrix"], f"{entry['rows']:,}", *steps])
    head = ["matrix", "rows", "steps: double", "basis in float32", "mixed"]
    return f"{solving.origin(document, entries)}.\n\n{markdown.rows(head, body, left=1)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; the exit code is 0."""
    return each.run(
        arguments, measured, table, name="stored_basis", description="A basis stored in single precision.",
        entries="matrices", results=RESULTS, page=_PAGE, select=_select,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
