"""Longer blocks of ca_gmres, and two-stage block Gram-Schmidt, a prototype, beside blocks of six steps.

    python -m benchmarks.two_stage                   into benchmarks/results/two_stage.json, then the tables (minutes)
    python -m benchmarks.two_stage --only sherman5   one matrix, merged into the file
    python -m benchmarks.two_stage --table           the tables of docs/gmres.md from the file

In two stages each block of s is made orthonormal by one round of BCGS-PIP and, as soon as there are `panel` vectors of
such blocks, these again, all together (Yamazaki, Higgins, Boman, Szyld 2024). The first stage is against all rows, as
there (``two``), or against those of the panel alone (``local``), which moves fewer words. With T = [I, C; 0, R] of the
second stage, S its columns k .. k + panel - 1 and H_1 the columns of H by the rows of the first, the columns by the
last are (T H_1 - [H_k; 0] S_k) R_s^-1, as in :mod:`akx.solvers.ca_gmres`.

Rows of real matrices are divided by their largest entry; b is random. Times are the processor's of a solve to 1e-8 of b
in so many cycles at most, on one thread, the least of the rounds in which all ways take turns. ``lost`` is the largest
entry of V^H V - I, ``rounds`` those of a block, ``attained`` ||b - A x|| over ||b|| where 1e-15 was asked for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse as sp

from akx.krylov.hessenberg import HessenbergQR, new_columns
from akx.krylov.orthogonalize import Block, Orthogonalizer, condition_of_block
from akx.solvers import ca_gmres
from akx.solvers.ca_gmres import _Steps
from benchmarks import each, gallery, markdown, record, solving
from benchmarks.matrices import Case
from benchmarks.mixed import _definite, _skewed, _wind

__all__ = ["RESULTS", "main", "measured", "table", "words"]

RESULTS = Path(__file__).resolve().parent / "results" / "two_stage.json"
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "gmres.md"
_ROUNDS = 3
#: By restart: s, the kind of the first stage, "" for blocks without a second one, and the vectors of a panel. What is
#: longer than `_SHORT` is that of s="auto".
_SHORT = 6
#: Panels that are tried in the table by formula.
_PANELS = range(8, 21)
_WAYS: dict[int, tuple[tuple[int, str, int], ...]] = {
    30: ((6, "", 0), (10, "", 0), (6, "two", 30), (6, "two", 18), (6, "local", 18)),
    60: ((6, "", 0), (12, "", 0), (6, "two", 60), (6, "two", 18), (6, "local", 18)),
}

Json = dict[str, Any]


def _scaled(name: str) -> sp.csr_array:
    A = sp.csr_array(solving.load(name)).astype(float)
    return sp.csr_array(sp.diags_array(1 / abs(A).max(axis=1).toarray().ravel()) @ A)


#: By name: what makes the matrix, steps that are timed at most, and those of a solve that attains what it can.
_CASES: dict[str, tuple[Callable[[], Any], int, int]] = {
    "7-point 100^3, skewed": (lambda: _skewed(_definite(gallery.stencil((100,) * 3, 7))), 120, 480),
    "wind 300^2": (lambda: _wind(300), 1200, 2400),
    "27-point 50^3, skewed": (lambda: _skewed(_definite(gallery.stencil((50,) * 3, 27))), 600, 600),
    **{name: (partial(_scaled, name), 1200, 3000) for name in ("sherman5", "wang4", "memplus", "bcsstk16", "cage10")},
    **{name: (partial(_scaled, name), 1200, 3000) for name in ("epb0", "cavity14")},
}


def _select(names: Iterable[str] | None = None, *, reduced: bool = False) -> list[Case]:
    """The matrices by name; reduced, a small one."""
    if reduced:
        return [Case("wind", "", lambda: _wind(40))]
    return [Case(name, "", _CASES[name][0]) for name in names or _CASES]


def words(restart: int, s: int, kind: str, panel: int) -> tuple[float, float]:
    """Words and flops of orthogonalisation in one round, for each row and step of a cycle: two passes a block."""
    moved = flops = 0

    def passes(before: int, count: int) -> None:
        nonlocal moved, flops
        moved += 2 * (before + count) + count
        flops += 4 * (before + count) * count

    for k in range(1, restart + 1, panel or restart):
        stop = min(k + (panel or restart), restart + 1)
        for j in range(k, stop, s):
            passes(1 + j - k if kind == "local" else j, min(s, stop - j))
        if kind == "two" or (kind == "local" and k > 1):
            passes(k, stop - k)
    return moved / restart, flops / restart


def _several(kind: str, panel: int, self: _Steps, qr: HessenbergQR) -> bool:
    """A panel of steps: see the module's docstring."""
    W, ortho, system = self.W, self.arnoldi.ortho, self.system
    k, local = qr.size, kind == "local"
    p, first, j = min(panel, self.cycles.restart - k), k if local else 0, 0
    stage = Orthogonalizer(W[k:], work=system.work) if local else ortho
    usual, stage.loss = ortho.allowed, 0.0
    if not local:
        ortho.allowed = np.inf  # one round
    H = np.zeros((k - first + p + 1, k - first + p))
    H[: k + 1 - first, : k - first] = qr.stored[: k + 1 - first, : k - first]
    while j < p:
        basis, row = self._basis(self.s), k + j
        s = basis.k
        system.powers(W[row : row + 1], W[row : row + s + 1].reshape(s + 1, 1, system.n), basis, None)
        system.stats.s.append(s)
        with system.stats.phase("orthogonalize"):
            block = stage.append_block(row + 1 - first, min(s, p - j))
        usable = self._judge(block, row - first, block.norms.size)
        if not usable:
            break
        columns = new_columns(H, block.C, block.R, self._matrices[s], usable)
        H[: len(columns), row - first : row - first + usable] = columns
        j += usable
    self._in_blocks = True
    if j:
        H = H[: k - first + j + 1, k - first : k - first + j]
        if k or not local:
            with system.stats.phase("orthogonalize"):
                block = ortho.append_block(k + 1, j)
            j = int(np.count_nonzero(condition_of_block(block, k) <= self._limit))
            H = _second(qr, block, np.pad(H, ((first, 0), (0, 0))))[: k + 1 + j, :j]
        self.cycles.count(*qr.extend(H, self.cycles.aim, self.cycles.steps_left).tolist())
    ortho.allowed = usual
    return j > 0


def _second(qr: HessenbergQR, block: Block, H: Any) -> Any:
    """Columns of H, (k + 1 + j, j), by the rows of the second stage."""
    k, j = len(block.C) - 1, block.norms.size
    T = np.eye(k + 1 + j)
    T[: k + 1, k + 1 :], T[k + 1 :, k + 1 :] = block.C, block.R
    S = T[: k + j, k : k + j]
    H = T @ H
    H[: k + 1] -= qr.stored[: k + 1, :k] @ S[:k]
    return np.linalg.solve(S[k:].T, H.T).T


@contextmanager
def _in_stages(kind: str, panel: int) -> Iterator[None]:
    usual = _Steps._several
    if kind:
        _Steps._several = lambda self, qr: _several(kind, panel, self, qr)  # type: ignore[method-assign]
    try:
        yield
    finally:
        _Steps._several = usual  # type: ignore[method-assign]


@contextmanager
def _watched() -> Iterator[Json]:
    """How far rows are from orthonormal where a cycle ends, and rounds and blocks."""
    found: Json = {"lost": 0.0, "blocks": 0, "rounds": 0}
    end, append = _Steps.end, Orthogonalizer.append_block

    def ended(self: _Steps, qr: HessenbergQR) -> None:
        V = self.W[: qr.size + 1]
        found["lost"] = max(found["lost"], float(np.abs(V.conj() @ V.T - np.eye(len(V))).max()))
        end(self, qr)

    def appended(self: Orthogonalizer, k: int, s: int) -> Block:
        replace, project = self.work.replace, self._project
        rounds = 0

        def counted(of: Callable[..., Any], *given: Any, **named: Any) -> Any:
            nonlocal rounds
            rounds += 1
            return of(*given, **named)

        self.work.replace, self._project = partial(counted, replace), partial(counted, project)  # type: ignore[method-assign]
        try:
            return append(self, k, s)
        finally:
            self.work.replace, self._project = replace, project  # type: ignore[method-assign]
            if s > 1:
                found["blocks"] += 1
                found["rounds"] += rounds

    _Steps.end, Orthogonalizer.append_block = ended, appended  # type: ignore[method-assign]
    try:
        yield found
    finally:
        _Steps.end, Orthogonalizer.append_block = end, append  # type: ignore[method-assign]


def measured(case: Case) -> Json:
    """``matrix``, ``rows``, ``nnz``, and by restart a list of what was found of the ways of `_WAYS`."""
    A = sp.csr_array(case.load())
    A.sort_indices()
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    timed, most = _CASES[case.name][1:] if case.name in _CASES else (120, 600)
    found: Json = {"matrix": case.name, "rows": A.shape[0], "nnz": int(A.nnz)}

    def solved(result: Json, **options: Any) -> Any:
        with _in_stages(result["kind"], result["panel"]):
            return ca_gmres(A, b, s=result["s"] if result["s"] <= _SHORT else "auto", **options)

    for restart, ways in _WAYS.items():
        given: Json = {"restart": restart, "threads": 1, "backend": "cpu", "return_stats": True}
        results: list[Json] = []
        for s, kind, panel in ways:
            result: Json = {"s": s, "kind": kind, "panel": panel, "seconds": np.inf}
            with _watched() as seen:
                _, _, stats = solved(result, rtol=1e-15, maxiter=most // restart, **given)
            attained = stats.residual / float(np.linalg.norm(b))
            result |= {"lost": seen["lost"], "rounds": seen["rounds"] / max(1, seen["blocks"]), "attained": attained}
            results.append(result)
        for _ in range(_ROUNDS):
            for result in results:
                begin = time.process_time()
                _, info, stats = solved(result, rtol=1e-8, maxiter=timed // restart, **given)
                seconds = time.process_time() - begin
                result |= {"seconds": min(seconds, result["seconds"]), "steps": stats.iterations, "info": info}
        found[str(restart)] = results
    return found


def table(document: Json) -> str:
    """Words and flops of the ways; then a line for each matrix and restart."""
    entries, body = document["matrices"], []
    for restart, s in product((30, 60, 120), (1, 2, 4, 5, 8, 10, 12)):
        ways = [words(restart, s, *way) for way in (("", 0), ("two", restart), ("two", restart // 2))]
        ways.append(min(words(restart, s, "local", panel) for panel in _PANELS))
        body.append([str(restart), str(s), *(f"{moved:.1f} / {flops:.0f}" for moved, flops in ways)])
    panels = f"local, {_PANELS[0]} to {_PANELS[-1]}, the best"
    heads = ["restart", "s", "words / flops: one stage", "two, a cycle", "two, half a cycle", panels]
    parts = [f"{solving.origin(document, entries)}.", markdown.rows(heads, body, left=0)]
    for restart, ways in _WAYS.items():
        names = [_name(*way) for way in ways]
        body = []
        for entry in entries:
            first, *others = results = entry[str(restart)]
            steps = f"{first['steps']:,}" + " (no)" * (first["info"] != 0)
            steps += "".join(f", {one['steps']:,}" for one in others if one["steps"] != first["steps"])
            times = [f"{1e3 * first['seconds']:.3g}", *(f"{one['seconds'] / first['seconds']:.2f}" for one in others)]
            lost = [f"{one['lost']:.0e}" for one in results]
            body.append([entry["matrix"], steps, f"{first['rounds']:.2f}", *times, ", ".join(lost), _attained(results)])
        means = [
            record.geometric_mean(
                [entry[str(restart)][i]["seconds"] / entry[str(restart)][0]["seconds"] for entry in entries]
            )
            for i in range(1, len(ways))
        ]
        body.append(["mean", "", "", "", *(f"{mean:.2f}" for mean in means), "", ""])
        heads = [f"restart {restart}", "steps", "rounds", f"{names[0]}: ms", *names[1:], "lost", "attained"]
        parts.append(markdown.rows(heads, body, left=1))
    return "\n\n".join(parts)


def _attained(results: Sequence[Json]) -> str:
    least, most = (pick(one["attained"] for one in results) for pick in (min, max))
    return f"{least:.1e}" if most < 1.05 * least else f"{least:.1e} to {most:.1e}"


def _name(s: int, kind: str, panel: int) -> str:
    return f"s = {s}" + (f", {kind} {panel}" if kind else " (auto)" * (s > _SHORT))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; the exit code is 0."""
    return each.run(
        arguments, measured, table, name="two_stage", description="Longer blocks, and blocks in two stages.",
        entries="matrices", results=RESULTS, page=_PAGE, select=_select,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
