"""What to try next where a solve did not converge, in options of ``akx solve``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from akx.core.errors import AkxError

if TYPE_CHECKING:
    from akx.core.matrix import Matrix
    from akx.solvers import SolveStats

__all__ = ["as_options", "in_options", "next_options"]

#: What solvers say to callers in Python, and what that is in options.
_OPTIONS = (
    ("pass maxiter= to go on, or an M", "give --maxiter to go on, or a --precond"),
    ("pass interval=(lo, hi) if this is not so, or use another preconditioner", "try --precond jacobi or spai"),
    ("spai(A, symmetric=True), or another method: gmres, bicgstab", "--precond spai, or --method gmres or bicgstab"),
)


def as_options(text: str) -> str:
    """What a solver says, with options of ``akx solve`` where it names arguments."""
    for python, option in _OPTIONS:
        text = text.replace(python, option)
    return text


@contextmanager
def in_options() -> Iterator[None]:
    """Have errors name options."""
    try:
        yield
    except AkxError as error:
        if error.hint:
            error.hint = as_options(error.hint)
        raise


def next_options(
    matrix: Matrix,
    stats: SolveStats,
    info: int,
    *,
    method: str,
    precond: str | None,
    tau: float,
    rtol: float,
    atol: float,
    maxiter: int | None,
    restart: int | None,
) -> str:
    """What to try next, by what was tried and what became of it: the most promising first."""
    from akx.solvers.stopping import NO_SOLUTION
    from akx.solvers.symmetry import skew_shift

    if info == NO_SOLUTION:
        return "b less what no A x can be: b - mean(b), where A is symmetric and sends constants to zero"
    begun = stats.residuals[0] if stats.residuals else float("nan")
    progress = stats.residual < 0.1 * begun
    ran_out = any(words in stats.reason for words in ("ran out", "not converged after"))
    found: list[str] = []
    if ran_out and maxiter is not None:
        found.append(f"--maxiter {10 * max(1, maxiter)}")
    if not ran_out and matrix.dtype.name in ("float32", "complex64"):
        found.append(f"--dtype {'float64' if matrix.dtype.kind == 'f' else 'complex128'}")
    if method != "auto":
        found.append("--method auto")
    takes_M = not (method.endswith("minres") and skew_shift(matrix))
    was_scaled = any("; scaled " in line for line in stats.notes)
    if precond is None and takes_M and not was_scaled and _has_jacobi(matrix):
        found.append("--precond jacobi")
    if precond != "spai" and takes_M:
        found.append("--precond spai")
    elif precond == "spai" and tau < 1:
        found.append("--tau 1")
    if "gmres" in stats.method and restart is not None:
        found.append(f"--restart {2 * restart}")
    if not ran_out and progress and rtol > 0 and stats.target > atol:
        found.append(f"--rtol {2 * rtol * stats.residual / stats.target:.0e}, above what it reached")
    return ", or ".join(found[:3]) or "--method gmres --restart 100"


def _has_jacobi(matrix: Matrix) -> bool:
    """Whether the diagonal makes a preconditioner."""
    try:
        import_module("akx.solvers.preconditioners").jacobi(matrix)
    except AkxError:
        return False
    return True
