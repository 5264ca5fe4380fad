"""``solve``: by a named method or by what suits, for one right-hand side or several, in one precision or in two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from akx.backends.selection import HOST
from akx.core.arguments import unknown_name
from akx.operator.start_vectors import is_matrix_there, is_on_device
from akx.solvers.arguments import check_count, named, place_of
from akx.solvers.auto import Auto
from akx.solvers.columns import columns_in
from akx.solvers.equilibration import equilibration
from akx.solvers.few_rows import solve_few_rows
from akx.solvers.host_fallback import TOO_MUCH, answer_in_kind, callback_in_kind, of_host
from akx.solvers.ladder import Call, Ladder
from akx.solvers.many import by_columns
from akx.solvers.registry import SOLVERS
from akx.solvers.solver_pair import Settled, call_solver, check_precision, check_special
from akx.solvers.stats import SolveStats
from akx.solvers.system import Answer

__all__ = ["answer_by", "solve"]


def solve(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    method: str = "auto",
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    restart: int | None = None,
    s: int | str = "auto",
    basis: str = "auto",
    threads: int | None = None,
    db: Any = None,
    backend: str = "auto",
    precision: str = "double",
    return_stats: bool = False,
) -> Answer:
    """Solve A x = b by a named method, or by the one that suits the matrix and is fastest here.

    Parameters
    ----------
    A : sparse matrix or array, shape (n, n)
    b : array_like, shape (n,), or (n, m) for several right-hand sides (:mod:`akx.solvers.many`)
    x0, rtol, atol, threads, db
        As for every solver. The database also remembers which of two solvers has the shorter step.
    backend : str
        ``"auto"`` or the name of a backend: where b is. With ``"auto"``, a system that is too much for the GPU is
        solved on the CPU, which a note says; x is of b's kind all the same.
    method : str
        ``"auto"``, or the name of a solver: ``"cg"``, ``"ca_cg"``, ``"minres"``, ``"ca_minres"``, ``"gmres"``,
        ``"ca_gmres"``, ``"bicgstab"``, ``"ca_bicgstab"``. With ``"auto"`` the name of what was taken, last where there
        were several, is in the record.
    maxiter : int, optional
        With a named method SciPy's meaning: most steps, for gmres and ca_gmres most restart cycles; 10 n by default.
        With ``"auto"``, where it is not known beforehand which method it will be, most steps of all methods together, a
        step of gmres being one product. By default each has its own limit, of 10 n steps where there are two, but
        bicgstab gives way to gmres after 10,000.
    M : sparse matrix, array, LinearOperator, preconditioner of :mod:`akx.solvers.preconditioners`, or str, optional
        By name, ``"jacobi"``, ``"block_jacobi"``, ``"chebyshev"`` or ``"spai"``: what the function of that name there
        makes of A, anew in each call; :class:`akx.solvers.Solver` makes it once. SciPy's factors, as of ``spilu``, too.
        With one that cannot be made part of the matrix ``"auto"`` takes classic solvers only, but for gmres.
    callback : callable, optional
        Called as the method does. With ``"auto"`` always with x: after each step, block or cycle.
    restart : int, optional
        Of gmres and ca_gmres.
    s, basis
        Of the communication-avoiding solvers; the basis of ``"auto"`` is each solver's own choice.
    precision : str
        ``"mixed"``: steps on A and vectors in single precision, residuals and x in double (:mod:`akx.solvers.mixed`),
        where these take 4 MiB and more, 256 MiB on a GPU; what it is no good for goes on in double. x and the tolerance
        are as with ``"double"``. With ``"auto"`` each correction is a solve by what suits.
    return_stats : bool
        Return a :class:`akx.solvers.SolveStats` too; its notes say what A is, what was tried, how it ended.

    Returns
    -------
    x, info, stats
        As for the solvers.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError
    PlanError, InfeasibleError, BudgetError, DeviceMemoryError
        Where the system is too much for a GPU that was asked for by name.
    """
    if method != "auto" and method not in SOLVERS:
        raise unknown_name("method", method, ("auto", *SOLVERS))
    M = named(M, A, method, threads=threads, db=db, backend=backend) if isinstance(M, str) else M
    options = {"rtol": rtol, "atol": atol, "maxiter": maxiter, "M": M, "threads": threads, "db": db, "backend": backend}
    special = {"restart": restart, "s": s, "basis": basis}
    check_special(special)
    check_precision(precision)
    x, info, stats = answer_by(method, A, b, x0, options, special, callback, precision=precision)
    return (x, info, stats) if return_stats else (x, info)


def answer_by(
    method: str,
    A: Any,
    b: Any,
    x0: Any,
    options: dict[str, Any],
    special: dict[str, Any],
    callback: Callable[[Any], object] | None,
    settled: Settled | None = None,
    *,
    precision: str = "double",
    call: Call | None = None,
) -> tuple[Any, int, SolveStats]:
    """What :func:`solve` answers, with the record.

    `options` are those of every solver, `special` are ``restart``, ``s``, ``basis``, and others that the method takes.
    What is found out about a family's two solvers is added to `settled`. `call`: of which this is one column.
    """
    if not (type(b) is np.ndarray and b.ndim < 2) and (columns := columns_in(b)) is not None:
        known: Settled = {} if settled is None else settled
        of_columns = Call(max(1, columns))

        def single(A: Any, b: Any, x0: Any, callback: Any, changed: dict[str, Any]) -> tuple[Any, int, SolveStats]:
            given = A, b, x0, {**options, **changed}, special, callback, known
            return answer_by(method, *given, precision=precision, call=of_columns)

        def scaling(A: Any, b: Any) -> Any:
            asked = {name: options[name] for name in ("rtol", "atol", "M", "threads", "backend")}
            matrix = place_of(A, b, callback=None, **asked)[0]
            found = equilibration(matrix, hermitian=True)
            return False if Ladder(matrix, definite=True).won else None if found is None else found[0]

        name = method if precision == "double" else "mixed"  # blocks and recycled vectors are of one precision
        return by_columns(name, single, A, b, x0, {**options, **special}, callback, scaling)
    if method == "auto" and options["maxiter"] is not None:
        options = {**options, "maxiter": check_count("maxiter", options["maxiter"], least=0)}

    def by(A: Any, b: Any, x0: Any, options: dict[str, Any], callback: Any) -> tuple[Any, int, SolveStats]:
        if method != "auto":
            return call_solver(method, A, b, x0, options, special, callback)
        is_new = x0 is None and callback is None and settled is None and call is None
        if is_new and (found := solve_few_rows(A, b, options, special)) is not None:
            return found
        return Auto(A, b, x0, options, special, callback, settled, call).solve()

    def mixed(A: Any, b: Any, x0: Any, options: dict[str, Any], callback: Any) -> tuple[Any, int, SolveStats]:
        from akx.solvers.mixed import solve_mixed

        of_cycles = {name: special[name] for name in ("restart", "callback_type") if name in special}
        return solve_mixed(method, by, A, b, x0, options, callback, **of_cycles)

    on = by if precision == "double" or check_precision(precision) == "double" else mixed
    try:
        return on(A, b, x0, options, callback)
    except TOO_MUCH as error:
        if options["backend"] != "auto" or not (is_on_device(b) or is_matrix_there(A)):
            raise
        why = str(error)
    like = b if is_on_device(b) else None
    here = of_host(b, "b"), of_host(x0, "x0"), {**options, "backend": HOST}, callback_in_kind(like, callback)
    x, info, stats = on(A, *here)
    stats.note_first(f"solved on the CPU, as it was too much for the GPU: {why}", joined=method == "auto")
    return answer_in_kind(like, x), info, stats
