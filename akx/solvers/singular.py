"""Whether a system has a solution at all, by Fredholm's alternative.

A x = b has no solution where some z has A^H z = 0 and <z, b> != 0: then

    <z, b - A x> = <z, b>,    so    ||b - A x|| >= |<z, b>| / ||z||    for every x.

Such a z is looked for where a solve gets nowhere, and never said of a system that is merely hard: z is an answer only
where A^H z vanishes up to rounding errors of its own terms, ||A^H z|| <= 16 eps || |A|^H |z| ||, and the bound is above
the target and what rounding b - A x may come to. From a vector v, z = v - d with A^H d = A^H v, a system that has a
solution whatever A is: d = v where A is regular, and z is of no use then.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.core.matrix import Matrix
from akx.solvers import direct
from akx.solvers.products import product_seconds
from akx.solvers.rounding import size_of_terms
from akx.solvers.stats import BOUND, Notice
from akx.solvers.system import Rows, System, make_system

__all__ = ["BOUND", "why_no_solution"]

#: A look takes at most one product for so many of the solve, and so many at least: on the way,
_SHARE, _LEAST = 4, 50
#: and where the solve has ended without an answer, or there is a start for z.
_OF_END, _LEAST_OF_END = 1, 200
#: Units of rounding: of the terms of A^H z, and of those of b - A x.
_VANISHED, _ATTAINED = 16, 10
#: What x may hide of b: where rounding b - A x comes to more, x has grown along a null vector, or A is nearly singular.
_HIDDEN = 0.1
#: The most rows times the square of the bandwidth for an elimination: some ten milliseconds.
_ELIMINATED = 3e7
#: Rounds by each method, each to this accuracy. Entries of z below this part of the largest may be no part of it.
_ROUNDS, _ACCURACY, _DUST = 4, 1e-6, 1e-8


def why_no_solution(system: System, x: Rows, start: Rows | None = None, *, on_the_way: bool = False) -> str:
    """In words that the system seems to have no solution; empty where that cannot be said.

    `x` is the best one so far, `start` a vector that may be near to a z, by default the residual of `x`. `on_the_way`
    the solve would go on, so that looking is to take little.
    """
    if system.solvable or system.no_solution:
        return system.no_solution
    share, least = (_SHARE, _LEAST) if on_the_way else (_OF_END, _LEAST_OF_END)
    A, b, best = system.matrix.to_scipy(), system.work.to_host(system.b), system.work.to_host(x)
    with np.errstate(all="ignore"):
        v = b - A @ best
        eps = float(np.finfo(system.dtype).eps)
        rounding = _ATTAINED * eps * size_of_terms(A, best, b)
        hidden = _HIDDEN * float(np.linalg.norm(b))
        is_hidden, attained = rounding > hidden, max(system.target, min(rounding, hidden))
        if np.linalg.norm(v) <= attained:  # which is no less than the bound
            return ""
        v = v if start is None else system.work.to_host(start)
        most = max(least, system.stats.products // share)
        vanished = _VANISHED * (float(np.finfo(float).eps) if is_hidden else eps)
        z = _left_null_vector(system, v, most, vanished, to_the_end=not on_the_way)
        if z is None:
            return ""
        bound, left = float(abs(np.vdot(z, b))), float(np.linalg.norm(A.conj().T @ z))
        if is_hidden:  # <z, A x> may be part of it
            bound -= left * float(np.linalg.norm(best))
        bound /= float(np.linalg.norm(z))
        is_exact = left <= _VANISHED * np.finfo(float).eps * np.linalg.norm(abs(A).T @ np.abs(z))
    if not bound > attained:
        return ""
    kind = "" if is_exact else " in single precision"  # a larger one may have, where A is regular in double
    system.stats.notes.append(Notice(f"{BOUND} {system.units.norm(bound):.3e}{kind}"))
    return f"the system seems singular and inconsistent{kind}: it has no solution"


def _left_null_vector(
    system: System, v: NDArray[Any], most: int, limit: float, *, to_the_end: bool
) -> NDArray[Any] | None:
    """z with A^H z = 0 up to `limit`, not orthogonal to v; None where there is none, or not by `most` products.

    Where A has a narrow band, or factors that take no longer than `most` products or are known to be of no use, by
    inverse iteration: (A^H + D) z' = D z, with D no more than rounding errors of A^H.
    Otherwise BiCGStab finds d in as many steps as it takes for systems with A, where those are done. LSMR takes more,
    and cannot break down: `to_the_end` it has a try, on the host.
    """
    from akx.solvers.bicgstab_steps import Recurrence, iterate

    A = system.matrix.to_scipy()
    A = A.astype(np.result_type(A.dtype, np.float64))
    adjoint, moduli = A.conj().T.tocsr(), abs(A).T.tocsr()
    options: dict[str, Any] = {"threads": system.threads, "db": system.db, "backend": system.work.backend}
    diagonal = adjoint.diagonal()
    with np.errstate(divide="ignore", over="ignore"):
        entries = 1 / np.where(diagonal == 0, 1, diagonal)
    options |= {"rtol": _ACCURACY, "M": sp.diags_array(entries) if np.isfinite(entries).all() else None}

    def by_bicgstab(z: NDArray[Any], left: int) -> tuple[NDArray[Any], int]:
        inner = make_system("bicgstab", adjoint, adjoint @ z, **options)
        inner.solvable = True
        d, *_ = iterate(Recurrence(inner), left // 2, lambda state, _: state.step(), return_stats=False)
        return z - d, inner.stats.products

    def by_lsmr(z: NDArray[Any], left: int) -> tuple[NDArray[Any], int]:
        from scipy.sparse.linalg import lsmr  # with all of SciPy's linear algebra, which few solves need

        y, _, steps, *_ = lsmr(A, z, atol=_ACCURACY, btol=0, conlim=0, maxiter=left // 2)
        return z - A @ y, 2 * steps

    sums = moduli.sum(axis=1)
    shift = np.finfo(A.dtype).eps * np.where(sums > 0, sums, 1)
    eliminate = _elimination(adjoint + sp.diags_array(shift)) or _factorised(system.matrix, A, shift, most)
    ways: list[tuple[Callable[[NDArray[Any], int], tuple[NDArray[Any], int]], int]]
    ways = [(by_bicgstab, most), (by_lsmr, min(most, _LEAST_OF_END) // 2 if to_the_end else 0)]
    if eliminate is not None:
        # First v itself: that of D v in the null space may be zero, as of ones where A has no negative entry.
        weights = [*[shift] * (_ROUNDS - 1), shift.max(initial=0)]
        ways = [(lambda z, _: (eliminate(weights.pop() * z), 2), 2 * _ROUNDS)]
    v = v.astype(A.dtype)
    largest = np.abs(v).max(initial=0)
    if not 0 < largest < np.inf:
        return None
    v = v / largest  # squares of a tiny one would vanish
    for refine, left in ways:
        z = v
        for _ in range(_ROUNDS):
            if not (np.isfinite(z).all() and np.linalg.norm(z) > limit * np.linalg.norm(v)):
                break  # A is regular
            for found in (z, np.where(np.abs(z) > _DUST * np.abs(z).max(), z, 0)):
                if np.linalg.norm(adjoint @ found) <= limit * np.linalg.norm(moduli @ np.abs(found)):
                    return found
            if left < 2:
                break
            z, taken = refine(z, left)
            left -= taken
    return None


def _factorised(
    matrix: Matrix, A: Any, shift: NDArray[Any], most: int
) -> Callable[[NDArray[Any]], NDArray[Any]] | None:
    """The same for (A^H + D) x = b, by SuperLU; None where that takes longer than `most` products."""
    limit = float("inf") if direct.is_doubtful(matrix) else most * product_seconds(matrix)
    known = direct.forecast(matrix)
    while known.next and known.next + known.seconds <= limit:
        known = direct.look_closer(matrix, None)
    if known.next or not known.seconds < min(limit, float("inf")):
        return None
    factors = direct.factors_of(sp.csr_array(A + sp.diags_array(shift)), known)
    return None if isinstance(factors, str) else lambda b: factors.solve(b, adjoint=True)


def _elimination(A: Any) -> Callable[[NDArray[Any]], NDArray[Any]] | None:
    """x for b with A x = b, in the order of reverse Cuthill-McKee; None where its band is too wide for a mere look."""
    if A.shape[0] * int(np.diff(A.indptr).max(initial=0)) ** 2 > _ELIMINATED:  # the band holds the longest row
        return None
    from scipy.linalg import solve_banded
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    order = reverse_cuthill_mckee(abs(A), symmetric_mode=False)
    entries = A[order][:, order].tocoo()
    width = int(np.abs(entries.row - entries.col).max(initial=0))
    rows = 2 * width + 1
    if A.shape[0] * rows**2 > _ELIMINATED:
        return None
    band = np.zeros((rows, A.shape[0]), dtype=A.dtype)
    band[width + entries.row - entries.col, entries.col] = entries.data

    def solve(b: NDArray[Any]) -> NDArray[Any]:
        x = np.full_like(b, np.nan)
        with suppress(np.linalg.LinAlgError):  # singular
            x[order] = solve_banded((width, width), band, b[order], check_finite=False)
        return x

    return solve
