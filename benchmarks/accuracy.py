"""How small can communication-avoiding CG make a residual? By s, basis and right-hand side, residuals replaced or not.

    python -m benchmarks.accuracy                   every system, into benchmarks/results/accuracy.json, then the tables
    python -m benchmarks.accuracy --only bcsstk16   one matrix, merged into the file
    python -m benchmarks.accuracy --table           the tables of docs/parity.md from the file

A solver's r is that of a recurrence, and leaves b - A x by rounding errors. Each solve goes on until the norm of r is
eps times that of b, twice the steps of CG at most, and notes after each block of steps

    gap    ||b - A x - r|| / ||b||, the largest of all
    true   ||b - A x|| / ||b|| in the end

s = 1 is CG itself. "Replaced": r becomes b - A x where a bound says that it has drifted, as `ca_cg` always does; "not
replaced": never, for comparison. Counts and figures are of one thread, and have the same bits in each run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from akx.solvers import ca_cg, ca_cg_solve
from benchmarks import markdown, record, solving

__all__ = ["BASES", "RIGHT", "STEPS", "SYSTEMS", "main", "measure", "right", "table"]

#: Matrices, and whether both sides are divided by the roots of the diagonal.
SYSTEMS = {"bcsstk16": False, "bodyy5": False, "662_bus": False, "bcsstk18": True}
RIGHT = ("1", "A 1", "random")
STEPS = (1, 2, 4, 8, 12, 16)
BASES = ("monomial", "newton", "chebyshev")
_EPS = float(np.finfo(float).eps)
_MOST = 20_000
_ROOT = Path(__file__).resolve().parents[1]
_RESULTS = _ROOT / "benchmarks" / "results" / "accuracy.json"
_PAGE = _ROOT / "docs" / "parity.md"

Json = dict[str, Any]


class _Done(Exception):
    """r is as small as it is to be."""


def load(name: str) -> sparse.csr_array:
    """A matrix of :data:`SYSTEMS`."""
    A = solving.load(name)
    if not SYSTEMS.get(name, False):
        return A
    root = sparse.diags_array(1 / np.sqrt(A.diagonal()))
    return sparse.csr_array(root @ A @ root)


def right(A: Any, kind: str) -> Any:
    """A right-hand side of :data:`RIGHT`."""
    if kind == "random":
        return np.random.default_rng(0).standard_normal(A.shape[0])
    ones = np.ones(A.shape[0])
    return ones if kind == "1" else A @ ones


@contextmanager
def _watched(*, replaced: bool) -> Iterator[list[Any]]:
    """Solves within leave what they work on in the list, and replace no residual unless they may."""
    Blocks = ca_cg_solve.Blocks
    before, replace, found = Blocks.__init__, Blocks._replace, []

    def begin(self: Any, *arguments: Any, **options: Any) -> None:
        before(self, *arguments, **options)
        found.append(self)

    Blocks.__init__ = begin  # type: ignore[method-assign]
    if not replaced:
        Blocks._replace = lambda *_: None  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Blocks.__init__, Blocks._replace = before, replace  # type: ignore[method-assign]


def measure(A: Any, b: Any, s: int, basis: str, *, replaced: bool = True, most: int = _MOST) -> Json:
    """``steps``, ``passes``, ``gap`` and ``true`` of a solve; ``steps`` is how many it took to the end."""
    norm = float(np.linalg.norm(b))
    gap, true = 0.0, 1.0
    steps = passes = 0

    def look(x: Any) -> None:
        nonlocal gap, true, steps, passes
        blocks = watched[-1]
        remainder = b - A @ x
        r = blocks.residual
        gap = max(gap, float(np.linalg.norm(remainder - r)) / norm)
        true = float(np.linalg.norm(remainder)) / norm
        steps, passes = blocks.stats.iterations, blocks.stats.matrix_passes
        if np.linalg.norm(r) <= _EPS * norm:
            raise _Done

    with _watched(replaced=replaced) as watched, suppress(_Done):
        ca_cg(A, b, rtol=_EPS / 2, maxiter=most, s=s, basis=basis, callback=look, threads=1)
    return {"s": s, "basis": basis, "replaced": replaced, "steps": steps, "passes": passes, "gap": gap, "true": true}


def entry_of(name: str) -> Json:
    """All solves with a matrix."""
    A = load(name)
    entry: Json = {"matrix": name, "scaled": SYSTEMS[name], "rows": A.shape[0], "solves": []}
    for kind in RIGHT:
        b = right(A, kind)
        classic = measure(A, b, 1, "monomial", replaced=False)
        entry["solves"].append({"b": kind} | classic)
        for replaced in (True, False):
            for basis in BASES:
                for s in STEPS[1:]:
                    found = measure(A, b, s, basis, replaced=replaced, most=2 * classic["steps"])
                    entry["solves"].append({"b": kind} | found)
        print(f"{name} {kind}: {classic}", file=sys.stderr)
    return entry


def table(document: Json) -> str:
    """Two tables, with and without replacement: gap and true residual by matrix, right-hand side, basis and s."""
    parts = [f"{solving.origin(document, document['accuracy'])}."]
    for replaced in (True, False):
        body = []
        for entry in document["accuracy"]:
            name = entry["matrix"] + (", scaled" if entry["scaled"] else "")
            for kind in RIGHT:
                of_b = [one for one in entry["solves"] if one["b"] == kind]
                classic = next(one for one in of_b if one["s"] == 1)
                for basis in BASES:
                    mine = {one["s"]: one for one in of_b if one["basis"] == basis and one["replaced"] == replaced}
                    cells = [_cell(mine.get(s, classic if s == 1 else None)) for s in STEPS]
                    body.append([name, kind, basis, *cells])
        head = ["matrix", "b", "basis", *(f"s = {s}" for s in STEPS)]
        title = "### Attainable accuracy, residuals " + ("replaced" if replaced else "not replaced")
        parts += [title, markdown.rows(head, body, left=3)]
    return "\n\n".join(parts)


def _cell(one: Json | None) -> str:
    return "" if one is None else f"{one['gap']:.0e} / {one['true']:.0e}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the file and the tables; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description="Attainable accuracy of ca_cg.")
    parser.add_argument("--only", action="append", choices=sorted(SYSTEMS), metavar="MATRIX")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    parser.add_argument("-o", "--output", type=Path, default=_RESULTS)
    parser.add_argument("--docs", type=Path, default=_PAGE)
    options = parser.parse_args(arguments)
    document = json.loads(options.output.read_text()) if options.output.exists() else {"accuracy": []}
    origin = record.provenance(1)
    for name in () if options.table else options.only or SYSTEMS:
        document = solving.keep(options.output, document, "accuracy", entry_of(name), origin)
    document["accuracy"].sort(key=lambda entry: list(SYSTEMS).index(entry["matrix"]))
    if options.docs.exists() and document["accuracy"]:
        options.docs.write_text(markdown.replace_block(options.docs.read_text(), "accuracy", table(document)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
