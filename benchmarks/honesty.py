"""Is ``info == 0`` ever said of a system that is not solved? Solves of new systems, each residual computed here.

    python -m benchmarks.honesty                     1,000 systems, into benchmarks/results/honesty.json, then the table
    python -m benchmarks.honesty --only 17 403       these alone, each told in full
    python -m benchmarks.honesty --table             the table of docs/solvers.md from the file

System i is made of the random numbers of seed i alone: 20 to 400 rows, of one of :data:`STRUCTURES`, real or complex,
in single or double precision, b in or out of the range of A, with a first guess, a preconditioner (some of which are
wrong), rtol from 1e-2 to 1e-13, and one of :data:`akx.solvers.SOLVERS`, `solve` or a `Solver`. Every second one is
solved by plans and compiled code, the others by what small systems have. Nothing of akx computes the residual: it is
SciPy's product in long double, of the A, b and x that the caller has.

A success is *false* where ||b - A x|| > t + e, t = max(rtol ||b||, atol). e is what rounding errors can make of the
residual that a solver computes in the precision u of x (Higham 2002, sec. 3.5): the norm of

    (p_i + 2) u (|A| |x| + |b|)_i,    p_i entries in row i,

and n u t for the norms; more than 2 t is false whatever e is. Where e is above t the residual that is computed in u can
tell nothing: those are counted apart, as *not told*. A refusal
("no solution", ``info == -2``) is false where the least-squares solution of a dense matrix meets half of t. Anything
raised but a typed error is a fault.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy import sparse as sp
from scipy.sparse import linalg as sla

import akx
from akx.solvers import SOLVERS, Solver, preconditioners, solve
from benchmarks import markdown, record, solving

__all__ = ["RESULTS", "STRUCTURES", "System", "Verdict", "judge", "made", "main", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "honesty.json"
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "solvers.md"
_SOLVES = 1000
#: Most steps of a solve, of gmres as cycles of some: enough for most systems, and an end for the others.
_MOST, _CYCLES = 3000, 150

Json = dict[str, Any]


# ------------------------------------------------------------------------------------------------------ structures


def _laplacian(n: int, rng: Any) -> Any:
    """The graph Laplacian of a connected random graph: a path, and some edges more."""
    extra = rng.integers(0, n, (2, n // 2))
    path = np.stack([np.arange(n - 1), np.arange(1, n)])
    i, j = np.concatenate([path, extra[:, extra[0] != extra[1]]], axis=1)
    W = sp.coo_array((rng.uniform(0.1, 1.0, i.size), (i, j)), shape=(n, n)).tocsr()
    W = W + W.T
    return sp.csr_array(sp.diags_array(W.sum(axis=1)) - W)


def _spd(n: int, rng: Any) -> Any:
    return _laplacian(n, rng) + 10.0 ** rng.uniform(-4, 1) * sp.eye_array(n)


def _indefinite(n: int, rng: Any) -> Any:
    return _laplacian(n, rng) - rng.uniform(0.05, 2.0) * sp.eye_array(n)


def _saddle(n: int, rng: Any) -> Any:
    m = n // 4
    B = sp.random_array((m, n - m), density=min(1.0, 4.0 / n), rng=rng) + sp.eye_array(m, n - m)
    return sp.block_array([[_spd(n - m, rng), B.T], [B, None]])


def _convection(n: int, rng: Any) -> Any:
    wind = 10.0 ** rng.uniform(-1, 2)
    return sp.diags_array([-1.0 - wind, 2.0 + wind, -1.0, 0.2], offsets=[-1, 0, 1, 9], shape=(n, n))


def _nonnormal(n: int, rng: Any) -> Any:
    if rng.random() < 0.5:  # Grcar's
        return sp.diags_array([-1.0, 1.0, 1.0, 1.0, 1.0], offsets=[-1, 0, 1, 2, 3], shape=(n, n))
    return sp.diags_array([rng.uniform(0.5, 1.5, n), rng.uniform(1.0, 20.0, n - 1)], offsets=[0, 1])


def _shift(n: int, rng: Any) -> Any:
    """A permutation in one cycle: gmres gains nothing in n - 1 steps."""
    order = rng.permutation(n)
    return sp.coo_array((np.ones(n), (order, np.roll(order, 1))), shape=(n, n)).tocsr()


def _skew(n: int, rng: Any) -> Any:
    S = sp.random_array((n, n), density=min(1.0, 3.0 / n), rng=rng)
    return S - S.T + (10.0 ** rng.uniform(-6, 0) if rng.random() < 0.5 else 0.0) * sp.eye_array(n)


def _random(n: int, rng: Any) -> Any:
    own = rng.uniform(0.0, 3.0) * sp.eye_array(n)
    return sp.random_array((n, n), density=min(1.0, rng.uniform(2, 12) / n), rng=rng, data_sampler=rng.normal) + own


def _nearly_singular(n: int, rng: Any) -> Any:
    return _laplacian(n, rng) + 10.0 ** rng.uniform(-17, -6) * sp.eye_array(n)


def _singular(n: int, rng: Any) -> Any:
    """Of rank n - 1: a Laplacian, symmetric or of a walk; or rows and columns that are zero."""
    L = sp.csr_array(_laplacian(n, rng))
    way = rng.integers(3)
    if way == 0:
        return L
    keep = np.ones(n)
    if way == 1:
        return sp.diags_array(1.0 / L.diagonal()) @ L
    keep[rng.integers(0, n, 2)] = 0
    return sp.diags_array(keep) @ (L + sp.eye_array(n)) @ sp.diags_array(keep)


def _badly_scaled(n: int, rng: Any) -> Any:
    A = sp.csr_array(_random(n, rng) + 4 * sp.eye_array(n) if rng.random() < 0.5 else _spd(n, rng))
    spread = rng.uniform(1, 5)
    left = sp.diags_array(10.0 ** rng.uniform(-spread, spread, n))
    return left @ A @ (left if rng.random() < 0.5 else sp.diags_array(10.0 ** rng.uniform(-spread, spread, n)))


def _extreme(n: int, rng: Any) -> Any:
    return 10.0 ** rng.uniform(-30, 30) * sp.csr_array(_spd(n, rng) if rng.random() < 0.5 else _convection(n, rng))


def _diagonal(n: int, rng: Any) -> Any:
    return sp.diags_array(10.0 ** rng.uniform(-3, 3, n) * rng.choice([-1.0, 1.0], n))


STRUCTURES: dict[str, Callable[[int, Any], Any]] = {
    "positive definite": _spd,
    "indefinite": _indefinite,
    "saddle point": _saddle,
    "convection": _convection,
    "non-normal": _nonnormal,
    "cyclic shift": _shift,
    "skew": _skew,
    "random": _random,
    "nearly singular": _nearly_singular,
    "singular": _singular,
    "badly scaled": _badly_scaled,
    "of extreme scale": _extreme,
    "diagonal": _diagonal,
}


# --------------------------------------------------------------------------------------------------------- systems


@dataclass
class System:
    """One solve: ``call(A, b)`` is x, info of the method `method`, with a tolerance of max(rtol ||b||, atol)."""

    number: int
    structure: str
    method: str
    A: Any
    b: Any
    rtol: float
    atol: float
    call: Callable[[], tuple[Any, int]]
    words: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        A = self.A
        said = f"{self.structure}, {A.shape[0]} rows, {A.dtype}, b {self.b.dtype}{self.b.shape}"
        return f"system {self.number}: {self.method}, {said}, rtol={self.rtol:.1e}, {', '.join(self.words)}"


def made(number: int, structure: str | None = None, method: str | None = None) -> System:
    """System `number`, of one structure and for one method where they are given."""
    rng = np.random.default_rng(number)
    drawn = str(rng.choice(list(STRUCTURES))), str(rng.choice([*SOLVERS, "solve", "Solver"]))
    structure, method = structure or drawn[0], method or drawn[1]
    n = int(20 * 20.0 ** rng.uniform())
    dtype = np.dtype(rng.choice(["f4", "f8", "f8", "f8", "c8", "c16"]))
    A = sp.csr_array(STRUCTURES[structure](n, rng))
    A.sort_indices()
    if dtype.kind == "c":
        phases = sp.diags_array(np.exp(2j * np.pi * rng.uniform(size=n)))
        A = sp.csr_array(phases.conj() @ A @ phases) if rng.random() < 0.5 else sp.csr_array(A + 0.3j * abs(A))
    A = sp.csr_array(A.astype(dtype))
    words: list[str] = []
    b = _right_hand_side(A, dtype, rng, words)
    rtol, atol = 10.0 ** rng.uniform(-13, -2), 0.0
    if rng.random() < 0.1:
        rtol, atol = 0.0, float(10.0 ** rng.uniform(-12, -2) * np.linalg.norm(b))
        words.append(f"atol={atol:.1e}")
    options: Json = {"rtol": rtol, "atol": atol, "maxiter": _CYCLES if method.endswith("gmres") else _MOST}
    options["x0"] = _guess(A, b, rng, words)
    M = _preconditioner(A, rng, words)
    return System(number, structure, method, A, b, rtol, atol, _call(method, A, b, M, options, rng, words), words)


def _right_hand_side(A: Any, dtype: Any, rng: Any, words: list[str]) -> Any:
    n = A.shape[0]
    v = rng.standard_normal(n) + (1j * rng.standard_normal(n) if dtype.kind == "c" else 0)
    way = rng.choice(["random", "in range", "in range", "unit", "scaled", "near range"])
    words.append(f"b {way}")
    with np.errstate(all="ignore"):
        if way == "in range":
            v = A @ v
        elif way == "unit":
            v = np.eye(n)[int(rng.integers(n))]
        elif way == "scaled":
            v = v * 10.0 ** rng.uniform(-20, 20)
        elif way == "near range":
            v = A @ v * (1 + 10.0 ** rng.uniform(-12, -2) * rng.standard_normal(n))
    b = v.astype(rng.choice([dtype, dtype, np.dtype("c16" if dtype.kind == "c" else "f8")]))
    columns = int(rng.choice([0] * 8 + [1, 2, 5, 12]))
    if columns == 0:
        return b
    return np.stack([b if j == 0 else rng.permutation(b) for j in range(columns)], axis=1)


def _guess(A: Any, b: Any, rng: Any, words: list[str]) -> Any:
    way = str(rng.choice(["none", "none", "random", "large", "near", "Mb"]))
    words.append(f"x0 {way}")
    if way in ("none", "Mb"):
        return None if way == "none" else "Mb"
    x0 = rng.standard_normal(b.shape)
    if way == "near":
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = np.asarray(sla.spsolve(sp.csc_array(A).astype(complex), b)).reshape(b.shape)
        found = found if np.iscomplexobj(b) else found.real
        x0 = found * (1 + 1e-6 * x0) if np.isfinite(found).all() and np.abs(found).max() < 1e30 else x0
    return x0 * 1e6 if way == "large" else x0


def _preconditioner(A: Any, rng: Any, words: list[str]) -> Any:
    n = A.shape[0]
    way = str(rng.choice(["none"] * 6 + ["jacobi", "spai", "chebyshev", "diagonal", "ilu", "wrong", "buffer", "zero"]))
    words.append(f"M {way}")
    diagonal = np.where(A.diagonal() == 0, 1, A.diagonal())
    scale = (1 / diagonal).astype(A.dtype)
    if way in ("jacobi", "spai", "chebyshev"):
        return way
    if way == "diagonal":
        return sp.csr_array(sp.diags_array(scale))
    if way == "ilu":
        try:
            factors = sla.spilu(sp.csc_array(A).astype(np.result_type(A.dtype, np.float64)), drop_tol=1e-3)
        except RuntimeError:
            return None
        return sla.LinearOperator(A.shape, matvec=factors.solve, dtype=A.dtype)
    if way == "wrong":
        return sp.csr_array(sp.random_array((n, n), density=0.1, rng=rng) + sp.eye_array(n))
    if way == "zero":
        return sla.LinearOperator(A.shape, matvec=lambda v: 0 * v, dtype=A.dtype)
    if way == "buffer":
        held = np.empty(n, dtype=np.result_type(A.dtype, complex if A.dtype.kind == "c" else float))
        return sla.LinearOperator(A.shape, matvec=lambda v: np.multiply(v, scale, out=held), dtype=A.dtype)
    return None


def _call(
    method: str, A: Any, b: Any, M: Any, options: Json, rng: Any, words: list[str]
) -> Callable[[], tuple[Any, int]]:
    """What is asked of akx; a preconditioner by name is made there, as it may be refused."""
    special: Json = {}
    if method.endswith("gmres") and rng.random() < 0.5:
        special["restart"] = int(rng.integers(1, 50))
    if method.startswith("ca_") and rng.random() < 0.7:
        special |= {"s": int(rng.integers(1, 13)), "basis": str(rng.choice(["newton", "chebyshev", "monomial"]))}
    words += [f"{name}={value}" for name, value in special.items()]
    name = str(rng.choice(["auto", "auto", *SOLVERS]))
    updates, recycle = rng.random() < 0.5, 0
    if name in ("auto", "gmres") and rng.random() < 0.5:
        recycle = int(rng.integers(1, 25))

    def call() -> tuple[Any, int]:
        if method == "Solver":
            words.append(f"of {name}, recycle={recycle}{', updated' * updates}")
            own = {**options, "maxiter": _CYCLES if name.endswith("gmres") else _MOST}
            solver = Solver(A if not updates else A.dtype.type(2) * A, name, M, recycle=recycle)
            if updates:
                solver(b, **own)
                solver.update_values(A)
            solver(b[::-1].copy(), **own)
            return solver(b, **own)
        given = getattr(preconditioners, M)(A) if isinstance(M, str) else M
        asked = solve if method == "solve" else SOLVERS[method]
        return asked(A, b, M=given, **options, **special)

    return call


# -------------------------------------------------------------------------------------------------------- verdicts


@dataclass(frozen=True)
class Verdict:
    """What came of a system: `said` one of ``"solved"``, ``"not"``, ``"no solution"``, ``"refused"``, ``"fault"``.

    `ratio`: the residual over the tolerance. `fault`: why it is one, or nothing. `told`: whether the residual that the
    solver computed can tell.
    """

    said: str
    info: int = 0
    ratio: float = 0.0
    fault: str = ""
    told: bool = True


def judge(system: System) -> Verdict:
    """Solve, and compute the residual."""
    A, b = system.A.copy(), system.b.copy()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"), patch.dict(os.environ, _prepared(system)):
            warnings.simplefilter("ignore")
            x, info = system.call()
    except akx.AkxError as error:
        return Verdict("refused", fault="" if str(error) else "an error without words")
    except Exception as error:
        return Verdict("fault", fault=f"{type(error).__name__}: {error}")
    if (A != system.A).nnz or not np.array_equal(b, system.b):
        return Verdict("fault", fault="A or b was changed")
    if x.shape != b.shape or not np.isfinite(x).all():
        return Verdict("fault", info, fault="x is not finite, or has another shape than b")
    columns = list(zip(x.reshape(len(x), -1).T, b.reshape(len(b), -1).T, strict=True))
    measured = [_residual(system, *column) for column in columns]
    ratio = max(residual / target if target else float(residual > 0) for residual, target, _ in measured)
    if info == 0:
        is_false = any(residual > target + min(rounding, target) for residual, target, rounding in measured)
        false = f"info = 0, and the residual is {ratio:.3g} times the tolerance" if is_false else ""
        return Verdict("solved", 0, ratio, false, all(rounding <= target for _, target, rounding in measured))
    if info == -2:
        least = [_least(system, column) / target for (_, column), (_, target, _) in zip(columns, measured, strict=True)]
        false = f"info = -2, and {max(least):.1e} of the tolerance can be had" if max(least) <= 0.5 else ""
        return Verdict("no solution", info, ratio, false)
    return Verdict("not", info, ratio)


def _residual(system: System, x: Any, b: Any) -> tuple[float, float, float]:
    """||b - A x|| of one column in long double, the tolerance, and what rounding errors can make of the former."""
    A = system.A
    wide = np.clongdouble if "c" in (x.dtype.kind, b.dtype.kind, A.dtype.kind) else np.longdouble
    right, exact, unit = b.astype(wide), x.astype(wide), float(np.finfo(x.dtype).eps) / 2
    target = max(system.rtol * float(np.linalg.norm(right)), system.atol)
    terms = abs(A).astype(np.longdouble) @ abs(exact) + abs(right)
    rounding = float(np.linalg.norm((np.diff(A.indptr) + 2) * unit * terms)) + A.shape[0] * unit * target
    residual = float(np.linalg.norm(right - A.astype(wide) @ exact))
    return residual, target, rounding + float(np.finfo(x.dtype).tiny)


def _least(system: System, b: Any) -> float:
    """The least residual that there is."""
    dense = system.A.toarray().astype(np.result_type(system.A.dtype, np.float64))
    return float(np.linalg.norm(b - dense @ np.linalg.lstsq(dense, b, rcond=None)[0]))


def _prepared(system: System) -> dict[str, str]:
    return {"AKX_PREPARE": "auto" if system.number % 2 else "always"}


def table(document: Json) -> str:
    """A line for each structure."""
    head = ["structure", "solves", "solved", "not", "no solution", "refused", "not told", "false"]
    body = [
        [entry["structure"], *(str(entry[name]) for name in ("solves", *_SAID, "untold")), str(len(entry["faults"]))]
        for entry in document["systems"]
    ]
    sums = [sum(int(line[column]) for line in body) for column in range(1, len(head))]
    body.append(["**all**", *map(str, sums)])
    return f"{solving.origin(document, document['systems'])}.\n\n{markdown.rows(head, body)}"


_SAID = ("solved", "not", "no solution", "refused")


def _entry(structure: str, found: Iterable[tuple[int, Verdict]]) -> Json:
    verdicts = list(found)
    said = [verdict.said for _, verdict in verdicts]
    return {
        "structure": structure,
        "solves": len(said),
        **{name: said.count(name) for name in _SAID},
        "untold": sum(not verdict.told for _, verdict in verdicts),
        "largest": max((verdict.ratio for _, verdict in verdicts if verdict.said == "solved"), default=0.0),
        "faults": [f"{number}: {verdict.fault}" for number, verdict in verdicts if verdict.fault],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Solve and count; the exit code is 1 where anything is false."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.honesty", description="Is success ever false?")
    parser.add_argument("--solves", type=int, default=_SOLVES)
    parser.add_argument("--first", type=int, default=0, help="the number of the first system")
    parser.add_argument("--only", nargs="+", type=int, metavar="NUMBER", help="systems to be told of, and not kept")
    parser.add_argument("--method", help="one for all, not kept")
    parser.add_argument("--table", action="store_true", help="print the table from the file")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, help="the page with the table; docs/solvers.md with the usual file")
    options = parser.parse_args(arguments)
    page = markdown.page_for(options.output, options.docs, usual=RESULTS, page=_PAGE)
    if options.table:
        markdown.show(table(json.loads(options.output.read_text())), options.output.stem, page)
        return 0
    found: dict[str, list[tuple[int, Verdict]]] = {name: [] for name in STRUCTURES}
    faults = 0
    for number in options.only or range(options.first, options.first + options.solves):
        system, begin = made(number, method=options.method), time.process_time()
        verdict = judge(system)
        found[system.structure].append((number, verdict))
        faults += bool(verdict.fault)
        if verdict.fault or options.only:
            print(f"{system}\n    {verdict}, {time.process_time() - begin:.1f} s", file=sys.stderr, flush=True)
    if options.only is None and options.method is None:
        origin = dict(record.provenance(1))
        entries = [{**_entry(name, found[name]), "commit": origin["commit"], "date": origin["date"]} for name in found]
        document = {**origin, "systems": entries}
        solving.save(options.output, document)
        markdown.show(table(document), options.output.stem, page)
    print(f"{faults} false", file=sys.stderr)
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
