"""Solve A x = b with a preconditioner that is part of the matrix: what M means to a communication-avoiding solver.

With A' = L A R of :mod:`akx.solvers.preconditioners.base` and a first guess x0, the solver is given

    A' y = L (b - A x0),    x = x0 + R y,

to the residual that is asked for of the original system. Where L is not the identity, the norms of the two residuals
differ: the solver is first given the goal that belongs to a folded residual with entries of one size, and called again
for a correction, with the ratio of the residual at hand, as long as the true residual is above the target.

Besides what the solver does: A' once, and for each call a product with A and a few vectors, on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from akx.backends.selection import array_backend
from akx.core.device_arrays import is_on_device
from akx.core.errors import ArgumentError
from akx.core.matrix import Matrix
from akx.operator.lookup import derived
from akx.solvers.arguments import check_device_backend, cycle_of, is_ours
from akx.solvers.host_fallback import answer_in_kind, of_host
from akx.solvers.monitor import ENDED, Watched
from akx.solvers.scaling import norm_of
from akx.solvers.singular import BOUND, why_no_solution
from akx.solvers.stats import SolveStats
from akx.solvers.stopping import NO_SOLUTION
from akx.solvers.system import Answer, Rows, System, make_system

__all__ = ["corrected", "part_of", "solve_folded", "translated"]

#: Corrections at most.
_ROUNDS = 6
#: Where the norms differ, the goal is this part of what their ratio makes it.
_SAFETY = 0.7
#: A correction that leaves more than this part of the residual is the last.
_GAIN = 0.5


def part_of(M: Any, matrix: Matrix) -> Matrix:
    """L A R for a preconditioner that folds, made once while what is prepared for it is kept."""
    if getattr(M, "serial", None) is None:
        return M.apply_to(matrix)  # type: ignore[no-any-return]
    return derived(matrix, f"with preconditioner {M.serial}", lambda: M.apply_to(matrix))


def solve_folded(
    solver: Callable[..., Any],
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    M: Any,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    callback: Callable[[Any], object] | None = None,
    return_stats: bool = False,
    **options: Any,
) -> Answer:
    """Solve by a solver that knows no M.

    Parameters
    ----------
    solver : callable
        ``solver(A, b, rtol=, atol=, maxiter=, callback=, return_stats=True, **options)``, as all of :mod:`akx.solvers`.
    A, b, x0, rtol, atol, maxiter, callback, return_stats
        As for that solver; what is returned is on the GPU where b is. The callback is given x of the original system,
        or the norm of the residual it preconditions over that of b.
    M : Preconditioner
        One that :mod:`akx.solvers.preconditioners` made; ArgumentError where it cannot be made part of the matrix.
    """
    if not is_ours(M):
        raise ArgumentError(
            "M is not one that can be made part of the matrix",
            expected="what akx.solvers.preconditioners.jacobi, block_jacobi or spai made",
            found=type(M).__name__,
            hint="pass it as M of a solver, which takes any LinearOperator",
        )
    like, x0 = (b if is_on_device(b) else None), of_host(x0, "x0")
    if like is not None:
        check_device_backend(options.get("backend", "auto"))
        options["backend"], b = array_backend(), of_host(b, "b")
    if M.dtype.kind == "c" and np.asarray(b).dtype.kind in "biuf":
        b = np.asarray(b).astype(np.result_type(np.asarray(b).dtype, np.complex64))
    system = make_system("folded", A, b, x0, rtol=rtol, atol=atol, M=M, scale=False)
    if system.norm_b == 0:
        system.x[:] = 0
    by_folded = _by_folded(solver, system, M, callback, like, options)
    name, told = getattr(solver, "__name__", ""), callback.callback if isinstance(callback, Watched) else callback
    cycle = cycle_of(name, system.n, options.get("restart"), options.get("callback_type", "pr_norm"), told)
    may_grow = name.endswith("cg")  # which looks at the error's norm in A
    said = {"cycle": cycle, "of": "of the unscaled system ", "may_grow": may_grow}
    x, total, info, reason = corrected(system, by_folded, maxiter, **said)  # type: ignore[arg-type]
    norm = system.stats.residual
    if info == NO_SOLUTION and not why_no_solution(system, x):  # of A, not of L A R to a goal of its own
        info, reason = -1, "breakdown: the system with M made part of the matrix has no solution, A x = b may have one"
        if total is not None:
            total.notes = [note for note in total.notes if not note.startswith(BOUND)]
    system.release()
    total = total or SolveStats(method=getattr(solver, "__name__", ""))
    total.converged = bool(norm <= system.target)
    info = 0 if total.converged else info or max(1, total.iterations)
    total.reason = reason if total.converged or info else "the residual of the unscaled system is above the target"
    total.residual, total.target = norm, system.target
    total.residuals.append(norm)
    total.products += system.stats.products
    total.matrix_passes += system.stats.matrix_passes
    total.notes = [*M.notes, f"{M.name} made part of the matrix", *total.notes]
    answer = answer_in_kind(like, x.reshape(system.shape))
    return (answer, info, total) if return_stats else (answer, info)


def corrected(
    system: System,
    correct: Callable[[Rows, Rows, float, int], tuple[Rows, int, SolveStats]],
    maxiter: int | None,
    *,
    rounds: int = _ROUNDS,
    cycle: int = 1,
    of: str = "",
    may_grow: bool = False,
) -> tuple[Rows, SolveStats | None, int, str]:
    """x by corrections, with the record, info and reason; the record of the system has the norm of its residual.

    ``correct(x, r, norm, left)`` gives a new x, with info and record: from x, whose residual r has that norm, by `left`
    steps at most, or cycles of `cycle` steps. It ends where the target is met, a correction breaks down, is ended by a
    watch or leaves more than half of the residual, where the steps have run out, and after so many `rounds`. One that
    says that it could do no more, but takes off half of the residual, is followed by another. `of` says whose residual
    it is. x is the first guess where none has a smaller residual, unless that `may_grow`.
    """
    x, target, r = system.x, system.target, system.rows(1)[0]
    first = norm = system.residual(x, r)
    total: SolveStats | None = None
    info, reason = 0, "the first guess is good enough"
    left = 10 * system.n if maxiter is None else maxiter
    for _ in range(rounds):
        if norm <= target:
            break
        kept, before = x, norm
        x, info, stats = correct(x, r, norm, left)
        norm = system.residual(x, r)
        if info < 0 and not norm <= before:
            x, norm = kept, before
        reason, left = stats.reason, left - -(-stats.iterations // cycle)
        total = stats.after(total, first=0)
        if norm <= target:
            info, reason = 0, "converged" if info else reason
        elif info < 0 or reason == ENDED:
            break
        elif not norm <= _GAIN * before:
            reason = reason if info else f"the residual {of}goes down no further"
            info = info or max(1, total.iterations)
            break
        elif left < 1:
            info, reason = total.iterations, "iterations ran out"
            break
    if not may_grow and not norm <= first:
        x, norm = system.x, first
    system.stats.residual = norm
    return x, total, info, reason


def _by_folded(
    solver: Callable[..., Any],
    system: System,
    M: Any,
    callback: Callable[[Any], object] | None,
    like: Any,
    options: dict[str, Any],
) -> Callable[[Rows, Rows, float, int], tuple[Rows, int, SolveStats]]:
    """Corrections by a solver of the folded system, for :func:`corrected`."""
    folded = None

    def correct(x: Rows, r: Rows, norm: float, left: int) -> tuple[Rows, int, SolveStats]:
        nonlocal folded
        is_first, folded = folded is None, part_of(M, system.matrix) if folded is None else folded
        right = np.ascontiguousarray(M.rhs(r))
        size = norm_of(right)
        ratio = M.residual_scale if is_first else size / norm
        goal = system.target if M.keeps_residual else _SAFETY * system.target * ratio
        say = translated(callback, M.solution, x.copy(), size / (system.norm_b or 1.0), like)
        given = {"rtol": 0.0, "atol": goal, "maxiter": left, "callback": say}
        y, info, stats = solver(folded, right, return_stats=True, **given, **options)
        if not is_first:
            stats.notes.append("called again, as the residual of the unscaled system was above the target")
        return np.ascontiguousarray(x + M.solution(y), dtype=system.dtype), info, stats

    return correct


def translated(
    callback: Callable[[Any], object] | None, solution: Callable[[Any], Any], x: Any, scale: float, like: Any
) -> Callable[[Any], object] | None:
    """The caller's callback, of the original system; a watch beside it stays.

    It gets x + `solution` of what the solver says, or the norm that it says times `scale`.
    """
    if callback is None:
        return None
    if isinstance(callback, Watched):
        return Watched(translated(callback.callback, solution, x, scale, like), callback.watch)

    def say(value: Any) -> object:
        if np.ndim(value):
            return callback(answer_in_kind(like, x + solution(of_host(value, "x").reshape(-1))))
        return callback(np.float64(value * scale))

    return say
