"""``solve``: which method for which matrix, and classic or communication-avoiding by measuring both.

The family:

    Hermitian (real: symmetric), no diagonal entry <= 0     cg, then minres where it is not positive definite after all
    Hermitian otherwise                                     minres, then gmres, as above
    real and skew-symmetric but for a multiple of I         minres, then gmres
    complex and skew-symmetric                              gmres
    any other                                               bicgstab, then gmres

Hermitian is meant up to rounding errors (:mod:`akx.solvers.symmetry`). A method that does not get there hands its x on
to the next one: cg after its own 10 n steps, bicgstab after 10,000, or 24 where its residual does not fall, as for many
non-normal matrices. A system without a solution is tried by no other. Which of a family's solvers has the shorter step
is kept in the plan database; where it is not known it is found out on the way (:mod:`akx.solvers.pilot`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from akx.backends.selection import HOST
from akx.core.arguments import unknown_name
from akx.core.matrix import Matrix
from akx.operator.start_vectors import is_matrix_there, is_on_device
from akx.solvers.arguments import check_count, is_known_hermitian, named, place_of
from akx.solvers.ca_cg import MOST
from akx.solvers.climb import Climb
from akx.solvers.columns import columns_in
from akx.solvers.equilibration import equilibration
from akx.solvers.few_rows import solve_few_rows
from akx.solvers.host_fallback import TOO_MUCH, answer_in_kind, callback_in_kind, of_host
from akx.solvers.ladder import MOST_PRODUCTS, Both, Call, Ladder, Progress
from akx.solvers.many import by_columns
from akx.solvers.monitor import Watch, Watched
from akx.solvers.pilot import Pilot
from akx.solvers.registry import SOLVERS
from akx.solvers.rungs import solve_by_factors
from akx.solvers.solver_pair import Settled, call_solver, check_precision, check_special, shorter
from akx.solvers.stats import SolveStats
from akx.solvers.stopping import NO_SOLUTION
from akx.solvers.symmetry import is_hermitian, skew_shift
from akx.solvers.system import Answer

__all__ = ["Auto", "answer_by", "check_precision", "families_for", "solve"]

#: In the cache of a matrix, what :func:`families_for` has found.
_FAMILIES = "akx.solvers.families"
#: Steps without an answer after which bicgstab gives way to gmres, where there is no `maxiter`.
_PATIENCE = 10_000


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
        Return a :class:`akx.solvers.SolveStats` too; its notes say why the method was taken.

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
    stats.notes.insert(0, f"solved on the CPU, as it was too much for the GPU: {why}")
    return answer_in_kind(like, x), info, stats


class Auto(Climb):
    """One solve by what suits the matrix: methods one after another, their work in one record, the best x so far."""

    def __init__(
        self,
        A: Any,
        b: Any,
        x0: Any,
        options: dict[str, Any],
        special: dict[str, Any],
        callback: Callable[[Any], object] | None,
        settled: Settled | None = None,
        call: Call | None = None,
    ) -> None:
        self.begun = time.perf_counter()
        asked = {name: options[name] for name in ("rtol", "atol", "M", "threads", "backend")}
        matrix, backend = place_of(A, b, x0, callback=callback, **asked)
        settled = {} if settled is None else settled
        super().__init__(matrix, b, x0, {**options, "backend": backend}, special, settled)
        self.callback, self.maxiter = callback, options["maxiter"]
        self.x: Any = None
        self.info, self.least, self.choosing = 1, float("inf"), 0.0
        self.notes: list[str] = []
        self.total: SolveStats | None = None
        self.in_steps = self.maxiter is not None  # a limit is one of steps, of gmres too
        self.has_no_solution = self.is_spent = False
        self.rung, self.scale = "", None  # what a method was left for, and the diagonal that scales both sides
        self.ladder = self._ladder(call) if self._equilibrate() else None
        self.first_guess = self.guess

    def _equilibrate(self) -> bool:
        """Where rows differ in size, scale by a diagonal; whether that is left to us, as the caller has no M."""
        if self.options["M"] is not None:
            return False
        found = equilibration(self.matrix, hermitian=is_hermitian(self.matrix))
        if found is not None:
            self.options["M"], why = found
            self.scale = found[0].diagonal.real ** -0.5 if found[0].side == "symmetric" else None
            self.guess = self.b if isinstance(self.guess, str) else self.guess  # his M b is b
            self.notes.append(f"auto: scaled by the diagonal first, as {why}")
        return True

    def _ladder(self, call: Call | None) -> Ladder:
        """The rungs for this matrix."""
        return Ladder(self.matrix, definite=families_for(self.matrix)[0][0] == "cg", scale=self.scale, call=call)

    def solve(self) -> tuple[Any, int, SolveStats]:
        """x, info, and the record of all methods."""
        families, why = self.families()
        self._check(families)
        self.notes.append(f"auto: {why}")
        self.choosing = time.perf_counter() - self.begun
        is_done = self._climb_as_before() or self._climb_at_once(families[0])
        self.others = {"bicgstab": "gmres", "gmres": "bicgstab"} if families == ["bicgstab", "gmres"] else {}
        for family in (in_turn := [*families]):
            self.rung = ""
            if is_done or (self.total is not None and self._is_over()):
                break
            if self.total is not None:
                self.in_steps = True
                self.notes.append(f"auto: {family} goes on after {self.total.iterations} steps")
            limit = min(10 * self.matrix.n, _PATIENCE if family == "bicgstab" else 10 * self.matrix.n)
            is_done = self._family(family, limit)
            if self.rung == "bicgstab":  # gmres does no better
                in_turn += families
            while self.rung and self.rung not in families and not (is_done or self._is_over()):
                is_done = self._climb(self.rung)
                if not (is_done or self.rung or self._is_over()):
                    is_done = self._family(family, limit)
        if not is_done and not self._is_over():
            self._climb_at_last()
        total = self.total
        assert total is not None
        if self.has_no_solution:
            self.info = NO_SOLUTION
        elif self.info > 0:
            self.info = max(1, total.iterations)
        total.residual = self.least
        if len(self.runs) > 1 or self.options["M"] is not None:
            self._edit_notes()
        total.notes = self.notes
        total.seconds |= {"choose": self.choosing, "total": time.perf_counter() - self.begun}
        return self.x, self.info, total

    def families(self) -> tuple[list[str], str]:
        """The families to try, best first, and why."""
        families, why = families_for(self.matrix)
        M = self.options["M"]
        if M is not None and not is_hermitian(self.matrix) and (shift := skew_shift(self.matrix)) is not None:
            if shift or not is_known_hermitian(M):
                why = "the matrix with this M is not known to be skew-symmetric"
                return ["bicgstab", "gmres"] if shift else ["gmres"], why
        elif "minres" in families and getattr(M, "hermitian", True) is False:
            return ["bicgstab", "gmres"], "the preconditioner is not Hermitian"
        return families, why

    def _check(self, families: list[str]) -> None:
        """Refuse now what only some of the solvers would, when it is their turn."""
        check_special(self.special, most=MOST if "minres" in families else None)

    def _family(self, family: str, limit: int) -> bool:
        """The solver of a family with the shorter step, or both in turn; whether x is good enough."""
        begun = time.perf_counter()
        counterpart = f"ca_{family}"
        name, word, key = self.solver_of(family)
        self.choosing += time.perf_counter() - begun
        self.notes.append(f"auto: {name}, {word}")
        if key is None:
            return self._run(name, limit) == 0
        before = 0 if self.total is None else self.total.iterations
        pilot = self._pilot(family, limit if self.maxiter is None else self._left(), self.begun)
        said = self._run(family, limit, pilot)
        self.choosing += pilot.spent
        if pilot.counterpart is None:
            return said == 0
        assert pilot.classic is not None
        found = pilot.classic, pilot.counterpart
        if self.refused:
            why = f"as there was no room for {counterpart}"
            self.notes.append(f"auto: {family} stays, {why}")
            self.settled[self._use_of(family)] = family, why, None
            self.refused = False
            return said == 0
        self._keep(family, found)
        name, word = shorter(family, found)
        self.settled[self._use_of(family)] = name, word, None
        at_work = "goes on" if pilot.handed_over else "is for the next solve" if name == counterpart else "stays"
        self.notes.append(f"auto: {name} {at_work}, {word}")
        if said == 0 or not pilot.handed_over or self._is_over():
            return said == 0
        assert self.total is not None
        done = 0 if family == "gmres" and not self.in_steps else self.total.iterations - before
        return self._run(counterpart, max(1, limit - done)) == 0

    def _run(self, name: str, limit: int, pilot: Pilot | None = None, rung: tuple[str, Any] | None = None) -> int:
        """A solver from the best x there is, its work added to that of the ones before; its info.

        By a rung of the ladder that is a preconditioner, or the factors.
        """
        options = {**self.options, "maxiter": limit if self.maxiter is None else self._left()}
        watch: Watch | None = pilot
        progress = None
        if self.ladder is not None:
            most = (
                MOST_PRODUCTS - (0 if self.total is None else self.total.products) if self.maxiter is None else np.inf
            )
            other = "" if rung else self.others.pop(name.removeprefix("ca_"), "")
            progress = Progress(self.ladder, name, most, M=rung[0] if rung else "", other=other)
            watch = progress if pilot is None else Both(progress, pilot)
        say = self.callback if watch is None else Watched(self.callback, watch)
        if rung is not None and rung[0] == "direct":
            x, said, stats = solve_by_factors(rung[1], self.matrix, self.b, self.guess, options, self.callback)
        else:
            options |= {"M": rung[1]} if rung else {}
            given = name, self.matrix, self.b, self.guess
            x, said, stats = call_solver(*given, options, self.special, say, in_steps=self.in_steps)
            self.note_use(name)
        self.runs += ((rung[0] if rung else name, len(self.notes), len(stats.notes)),)
        self.notes += stats.notes
        stats.notes = []
        total = self.total = stats.after(self.total)
        self.has_no_solution = said == NO_SOLUTION
        if said == 0 or stats.residual < self.least or self.x is None:
            self.x, self.info, self.least = x, said, stats.residual
            self.guess = x if stats.residual <= (total.residuals or [0.0])[0] else self.guess
        if said != 0 and progress is not None and (progress.rung or progress.is_spent):
            self.rung, self.is_spent = progress.rung, progress.is_spent
            stats.reason = f"ended {progress.why}" if self.is_spent else stats.reason
            self.notes.append(f"auto: {name} left after {stats.iterations} steps, {progress.why}")
        elif said != 0 and not (pilot is not None and pilot.handed_over):
            self.notes.append(f"auto: {rung[0] if rung else name} did not converge: {stats.reason}")
        return said

    def _left(self) -> int:
        """Steps of `maxiter` that are left."""
        return max(0, int(self.maxiter) - (0 if self.total is None else self.total.iterations))

    def _is_over(self) -> bool:
        return self.has_no_solution or self.is_spent or (self.maxiter is not None and self._left() == 0)


def families_for(matrix: Matrix) -> tuple[list[str], str]:
    """The families to try, best first, and why: by the symmetry and the diagonal of the matrix."""
    if _FAMILIES not in matrix.cache:
        matrix.cache[_FAMILIES] = _families_for(matrix)
    found: tuple[list[str], str] = matrix.cache[_FAMILIES]
    return found


def _families_for(matrix: Matrix) -> tuple[list[str], str]:
    diagonal = matrix.diagonal()
    if is_hermitian(matrix):
        if diagonal.real.min() > 0:
            return ["cg", "minres", "gmres"], "the matrix is Hermitian with a positive diagonal"
        return ["minres", "gmres"], "the matrix is Hermitian, but not positive definite"
    if (shift := skew_shift(matrix)) is not None:
        return ["minres", "gmres"], "the matrix is skew-symmetric" + " but for a multiple of I" * bool(shift)
    if not diagonal.any() and matrix.features.value_symmetry == "skew":  # features are dear
        return ["gmres"], "the matrix is complex and skew-symmetric"
    return ["bicgstab", "gmres"], "the matrix is not Hermitian"
