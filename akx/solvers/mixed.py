"""Mixed precision: steps on A, r and d in single precision, refined to double (Wilkinson 1963).

With A' and r' rounded to single precision, in half the bytes,

    r = b - A x  (double),    A' d = r'  (single, to some digits),    x += d  (double)

until the true residual r meets the tolerance. The recurrences of cg and bicgstab are not begun anew for the next
correction, but get the true residual in the place of their own and go on with their directions ("reliable updates",
Clark et al. 2010; Sleijpen, van der Vorst 1996; van der Vorst, Ye 2000), so that the steps are as many as in double
precision. gmres begins anew after each cycle anyway; it and the communication-avoiding solvers are called for each
correction (Carson, Higham 2018, with another solver inside).

What single precision is no good for goes on in double from the x at hand, as if that had been the first guess: where a
correction leaves more than half of the residual, where Ritz values of cg tell of a condition beyond 1 / (32 eps) of
single precision, and after n / 8 steps, as then rounding errors count in double precision too.

Words of 8 bytes moved for each step: half of those of the solver in double precision but for the indices of A; and for
each correction a product and six vectors in double precision.

Source: E. Carson, N. J. Higham, Accelerating the solution of linear systems by iterative refinement in three
precisions, SIAM J. Sci. Comput. 40 (2018) A817-A847; M. A. Clark et al., Solving lattice QCD systems of equations using
mixed precision solvers on GPUs, Comput. Phys. Commun. 181 (2010) 1517-1528, section 5; H. A. van der Vorst, Q. Ye,
Residual replacement strategies for Krylov subspace iterative methods, SIAM J. Sci. Comput. 22 (2000) 835-852.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from akx.backends.selection import backend_of
from akx.core.errors import MatrixError
from akx.core.matrix import Matrix
from akx.operator.lookup import derived
from akx.solvers.arguments import RESTART, check_count, cycle_of, place_of
from akx.solvers.corrections import CalledSolver, OfBiCGStab, OfCG, Solve
from akx.solvers.equilibration import equilibration
from akx.solvers.folding import corrected
from akx.solvers.host_fallback import answer_in_kind
from akx.solvers.scaling import exponent_of, is_extreme
from akx.solvers.stats import SolveStats
from akx.solvers.symmetry import is_hermitian
from akx.solvers.system import System, make_system

__all__ = ["solve_mixed"]

_SINGLE = {"f": np.dtype(np.float32), "c": np.dtype(np.complex64)}
#: Vectors of a solver, where they are not those of a cycle.
_VECTORS = {"cg": 4, "minres": 10, "bicgstab": 6}
#: Exponents of the largest entry of A, at most.
_RANGE = 60
#: Corrections at most.
_ROUNDS = 20


def solve_mixed(
    name: str,
    solve: Solve,
    A: Any,
    b: Any,
    x0: Any,
    options: dict[str, Any],
    callback: Callable[[Any], object] | None,
    *,
    restart: int | None = None,
    callback_type: str | None = "pr_norm",
) -> tuple[Any, int, SolveStats]:
    """x, info and record of a solve that may do its steps in single precision.

    Parameters
    ----------
    name : str
        The solver, or ``"auto"``.
    solve : callable
        Solves with it in the precision of what it is given.
    A, b, x0, options, callback
        As for :func:`akx.solvers.solve`.
    restart, callback_type
        Of gmres and ca_gmres.
    """
    asked = {one: options[one] for one in ("rtol", "atol", "M", "threads", "backend")}
    matrix, place = place_of(A, b, x0, callback=callback, **asked)
    options = {**options, "backend": place}
    system, why = None, _why_not(matrix) or _why_no_gain(name, matrix, place, restart)
    if not why and name == "auto" and options["M"] is None and equilibration(matrix, hermitian=is_hermitian(matrix)):
        why = "rows that differ in size are too much for single precision"
    if not why:
        system, single, why = _systems(name, matrix, b, x0, {**options, "callback": callback})
    if system is None:
        x, info, stats = solve(matrix, b, x0, options, callback)
        stats.note_first(f"solved in {matrix.dtype}, as {why}", joined=name == "auto")
        return x, info, stats
    maker = {"cg": OfCG, "bicgstab": OfBiCGStab}.get(name, CalledSolver)
    cycle = cycle_of(name, matrix.n, restart, callback_type, callback)

    corrections = maker(system, single, _telling(name, solve), options, callback, cycle)
    limit = None if options["maxiter"] is None else check_count("maxiter", options["maxiter"], least=0)
    x, total, _, reason = corrected(
        system, corrections.correct, limit, rounds=0 if limit == 0 else _ROUNDS, cycle=cycle
    )
    corrections.end()
    total, norm = total or SolveStats(method=name), system.stats.residual
    if norm <= system.target:
        cycles = f", {corrections.cycles} cycles in all" * (cycle > 1)
        said = f"steps in {single.dtype}, residuals and x in {matrix.dtype}{cycles}"
        total.note_first(said, joined=name == "auto")
        answer = system.finish(x, info=0, reason=reason, iterations=0, return_stats=True, residual=norm)
        x, info, stats = answer  # type: ignore[misc]
        seconds = stats.seconds["total"]  # which has all in it
        stats.after(total, first=0).method = total.method
        stats.seconds["total"] = seconds
        return x, info, stats
    if not norm <= corrections.norm:
        x, norm = corrections.x, corrections.norm
    guess = answer_in_kind(system.like, system.work.to_host(x))
    system.release()
    if limit is not None:
        options["maxiter"] = max(0, limit - corrections.cycles)
    x, info, stats = solve(matrix, b, guess, options, callback)
    total.notes = [] if name == "auto" else total.notes
    at = f"{norm / system.norm_b:.1e} ||b||"
    said = f"went on in {matrix.dtype} at a residual of {at}; in {single.dtype}: {reason}"
    stats.note_first(said, joined=name == "auto")
    ran_out = f"not converged after {stats.iterations} steps"
    stats.after(total)
    stats.reason = stats.reason.replace(ran_out, f"not converged after {stats.iterations} steps")
    stats.products += system.stats.products
    stats.matrix_passes += system.stats.matrix_passes
    return x, max(1, stats.iterations) if info > 0 else info, stats


def _telling(name: str, solve: Solve) -> Solve:
    """`solve`, with notes that say of which correction they are; of ``"auto"`` those of the first alone."""
    count = 0

    def by(*given: Any) -> tuple[Any, int, SolveStats]:
        nonlocal count
        d, info, stats = solve(*given)
        count += 1
        if name != "auto":
            stats.notes = [f"correction {count}: {note}" for note in stats.notes if "cycles of at most" not in note]
        elif count > 1:
            stats.notes = []
        return d, info, stats

    return by


def _why_not(matrix: Matrix) -> str:
    """Why single precision is no use for a matrix, or nothing."""
    if matrix.dtype.char not in "dD":
        return "all is given in single precision"
    exponent = exponent_of(matrix.largest)
    is_extreme = exponent is None or abs(exponent) > _RANGE
    return "entries of A are beyond the range of single precision" if is_extreme else ""


def _why_no_gain(name: str, matrix: Matrix, place: str, restart: int | None) -> str:
    """Why single precision would save a solver nothing on a backend, or nothing."""
    backend, vectors = backend_of(place), _VECTORS.get(name, restart or RESTART)
    if backend.single_solvers and name not in backend.single_solvers:
        return f"{name} gains nothing by single precision on {place}"
    held = matrix.csr_bytes + vectors * matrix.n * matrix.dtype.itemsize
    return "caches hold all that a step reads" if held < backend.single_bytes else ""


def _systems(name: str, matrix: Matrix, b: Any, x0: Any, options: dict[str, Any]) -> tuple[System | None, Matrix, str]:
    """The system in double precision, and A in single; or why there is none."""
    try:
        single = derived(matrix, "single", lambda: matrix.in_type(_SINGLE[matrix.dtype.kind]))
    except MatrixError as error:
        return None, matrix, str(error)
    given = {name: value for name, value in options.items() if name != "maxiter"}
    system = make_system("cg" if name == "auto" else name, matrix, b, x0, scale=False, **given)
    exponent = exponent_of(system.norm_b)
    if exponent is not None and not is_extreme(exponent, matrix.dtype):
        return system, single, ""
    system.release()
    return None, matrix, "b is zero or extreme in scale"
