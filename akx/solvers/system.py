"""The linear system A x = b as every solver sees it: checked once, one type, one place, products counted.

SciPy's meanings: a solve has converged when ||b - A x|| <= max(rtol ||b||, atol); ``info`` is 0 for a converged solve,
the number of iterations where they ran out, and negative for a breakdown. x has the shape of b, (n,) or (n, 1) (SciPy's
is (n,) in any case), and the common type of A, b, x0 and a complex M. A zero right-hand side has the solution zero.

Vectors of a solver are rows: an array W of shape (m, n), C-contiguous, holds m vectors, each contiguous. They are NumPy
arrays, or arrays of the GPU: solvers take rows of them, copy by assigning rows, and leave all arithmetic to
:attr:`System.work`, the vector work of the backend.

A system of extreme scale is solved in :attr:`System.units` of its own (:mod:`akx.solvers.scaling`): all that a solver
sees is in these, all that the caller gets in the caller's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.selection import HOST, array_backend, backend_of
from akx.core.errors import ArgumentError
from akx.core.matrix import Matrix
from akx.operator import tiers
from akx.operator.cache import CACHE
from akx.operator.lookup import cache_of, derived
from akx.solvers.arguments import (
    Arguments,
    GivenVector,
    by_foreign,
    diagonal_of,
    is_ours,
    makes_new_arrays,
    real_if_told,
)
from akx.solvers.empty_rows import EMPTY_ROWS, why_unsolvable
from akx.solvers.monitor import Watch, Watched
from akx.solvers.products import Products, Rows
from akx.solvers.rounding import confirmed
from akx.solvers.scaling import Units, eps_of, exponent_of, keeps_all, scaled, units_of
from akx.solvers.stats import NO_SOLUTION, Notice, SolveStats
from akx.solvers.vector_work import checked_norm, is_compiled, is_lower, make_work, scaled_in

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

__all__ = ["Answer", "Rows", "System", "make_system"]

#: Steps that are done without a word of progress: see :meth:`System.ended`.
_STEPS = 16
#: Entries of a matrix whose steps take less than a millisecond.
_SHORT = 100_000
#: Over the residual of the best x so far, what tells that the last one has blown up.
_FAR = 10
#: The caller's own units.
_PLAIN = Units()
#: What a solver returns: x and info, and the record of the solve where it was asked for.
Answer = tuple[Any, int] | tuple[Any, int, SolveStats]


@dataclass(eq=False, repr=False, kw_only=True)
class System(Products):
    """A x = b.

    Attributes
    ----------
    b, x : (n,) arrays of `dtype`
        Right-hand side, and the first guess, a copy that the solver may work on.
    M, diagonal, products_of_M
        The preconditioner, an approximation of A^-1; its entries, (n,), where it is known to be diagonal; products with
        A in an application, as far as it says so. `applies` is M where it has ``apply(r, out)``, for vectors anywhere.
    solvable : bool
        Whether it is known to have a solution, or of such a range that nothing tells that it has none.
    no_solution : str
        That it has none, where an empty row of A shows it: said where a method gets no further with the other rows.
    target : float
        The residual's norm to be reached: max(rtol ||b||, atol), in `units`.
    zero_guess : bool
        Whether x is zero, so that b is its residual.
    shape, like
        Of the x that the caller gets, and the caller's array on the GPU of whose kind it is to be.
    stats : SolveStats
        In `units` but for its notes, until :meth:`finish`.
    units : Units
        What is extreme is worked on in these; false where nothing is.
    begun : float
        When the system was made, on :func:`time.perf_counter`.
    kept, past : float, list of rows
        The least norm of a residual of an x that is kept, as `x` or in `past`, as far as a recurrence knows.
    """

    b: Rows
    x: Rows
    M: LinearOperator | None
    norm_b: float
    target: float
    zero_guess: bool
    shape: tuple[int, ...]
    callback: Callable[[Any], object] | None = None
    begun: float = field(default_factory=time.perf_counter)
    like: Any = None
    units: Units = _PLAIN
    watch: Watch | None = None
    diagonal: NDArray[Any] | None = None
    applies: Any = None
    products_of_M: int = 0
    solvable: bool = False
    no_solution: str = ""
    kept: float = math.inf
    past: list[Rows] = field(default_factory=list)
    _of_M: int | None = None
    _steps: int = 0

    def with_matrix(self, matrix: Matrix) -> System:
        """This system with another matrix for its products and powers; all else is shared."""
        other = replace(self, matrix=matrix, _operators={}, _rent=None if self.on_device else self._rent, _plain=None)
        if self._arrays:
            other.plain_where_short()
        return other

    def precondition(self, r: Rows) -> Rows:
        """M r, a new array; r itself without a preconditioner. An M that does not `apply` gets r in host memory."""
        if self.M is None:
            return r
        self.stats.products += self.products_of_M
        self.stats.matrix_passes += self.products_of_M > 0
        with self.stats.phase("precondition"):
            if self.applies is not None and self.on_device and not self.units:
                out = self.rows(1)[0]
                self.applies.apply(r, out)
                return out
            host = self.work.to_host(r)
            found = self._made_by(self.M, self.M.matvec, host)
            if self.units:
                found = self._in_scale(found, host)
        return self.work.from_host(found)

    def _made_by(self, M: Any, make: Callable[[Any], Any], v: NDArray[Any]) -> NDArray[Any]:
        """What M makes of a vector of the solver, in memory that is the solver's alone.

        Without copies where M makes new arrays; with a GPU `v` is one, and what is found will be copied.
        """
        if makes_new_arrays(M) or (self.on_device and not self.units):
            return np.ascontiguousarray(real_if_told(make(v), self.dtype), dtype=self.dtype)
        return by_foreign(make, v, self.dtype)

    def _in_scale(self, found: NDArray[Any], r: NDArray[Any]) -> NDArray[Any]:
        """M r, of the caller's scale, in one where the first M r is as large as r."""
        if self._of_M is None:
            sizes = exponent_of(found), exponent_of(r)
            self._of_M = 0 if None in sizes or not np.isfinite(found).all() else sizes[0] - sizes[1]  # type: ignore[operator]
        return scaled(found, -self._of_M)

    def solution(self, M: Any, y: Rows, exponent: int = 0) -> Rows:
        """R y of a preconditioner that is part of the matrix, times 2^exponent, a new array."""
        with self.stats.phase("precondition"):
            found = self._made_by(M, M.solution, self.work.to_host(y))
            found = scaled(found, exponent) if exponent else found
        return self.work.from_host(found)

    def residual(self, x: Rows, out: Rows) -> float:
        """out = b - A x, by a product that is counted; its norm, which is right for entries of any size."""
        self.product(x, out, apart=True)
        begin = time.perf_counter()
        found = confirmed(self, self.checked_norm(float(self.work.remain(self.b, out)), out), x, out)
        self.stats.add("vectors", begin)
        return found

    def checked_norm(self, norm: float, v: Rows) -> float:
        """The norm of v, found as the root of a sum of squares; another way where these are extreme."""
        return checked_norm(self.work, norm, v)

    def positive_diagonal(self) -> Rows | None:
        """The entries of M where it is a positive diagonal, beside the vectors; None where it is not known to be one.

        None too where the system has units of its own: M is of the caller's scale.
        """
        entries = None if self.units else self.diagonal
        if entries is None or np.any(entries.imag) or not np.all(entries.real > 0):
            return None
        with self.stats.phase("setup"), np.errstate(over="ignore"):
            found = entries.real.astype(self.dtype)
            usable = np.isfinite(found).all() and np.all(found.real > 0)
            return self.work.from_host(found) if usable else None

    def ended(self, settle: Callable[[], object] | None = None) -> bool:
        """Whether x is wanted as it is, by a watch that may also take its time; to be asked before each step.

        Where the watch is about to do something, `settle` is called first: it is to take what was queued ahead. It is
        not asked while products are plain ones, if it does not look at such.
        """
        self._steps -= 1
        if self._steps < 0:
            self._steps = self._untold
            self.under_way.step()
        watch = self.watch
        if watch is None or (self._rent is not None and not watch.looks_at_plain) or not watch.due(self.stats):
            return False
        if settle is not None:
            settle()
        return watch.ends(self.stats, self.target)

    @property
    def _untold(self) -> int:
        """Steps that are done without a word of progress: some short ones with no code of others among them."""
        return _STEPS if self.M is None and self.callback is None and self.matrix.nnz < _SHORT else 0

    def _best(self, *, of_all: bool) -> tuple[float, Rows, Rows]:
        """The least norm of a residual of :attr:`x`, or of all that are kept; that x, and the residual."""
        found = math.inf, self.x, self.b
        for x in map(self._representable, [self.x, *(self.past if of_all else ())]):
            r = self.rows(1)[0]
            found = min(found, (self.residual(x, r), x, r), key=lambda one: one[0])
        return found

    def say(self, value: Any) -> None:
        """Call the caller's callback, if there is one."""
        if self.callback is not None:
            self.callback(value)

    def tell(self, x: Rows) -> None:
        """Call the caller's callback, if there is one, with a copy of x, (n,) as in SciPy, of the kind of b."""
        if self.callback is not None:
            self.callback(self._answer(x if self.on_device else x.copy(), (self.n,)))

    def _representable(self, x: Rows) -> Rows:
        """x as the caller will have it, with digits cut off where it is tiny there; zero where it is too large."""
        exponent = self.units.solution
        if not exponent:
            return x
        host = scaled(scaled(self.work.to_host(x), exponent), -exponent)
        return self.work.from_host(host if np.isfinite(host).all() else np.zeros_like(host))

    def _answer(self, x: Rows, shape: tuple[int, ...]) -> Any:
        """x in a shape, and in the kind and the units of b."""
        if self.units.solution:
            x = self.work.from_host(scaled(self.work.to_host(x), self.units.solution))
        if not self.on_device:
            return (x if x.base is None else x.copy()).reshape(shape)  # not a row that keeps all others
        if self.like is None:
            return self.work.to_host(x).reshape(shape)
        return backend_of(array_backend()).interchange().answer_like(self.like, x, shape)

    def finish(
        self,
        x: Rows,
        *,
        info: int,
        reason: str,
        iterations: int,
        return_stats: bool,
        residual: float | None = None,
        descends: Callable[[], bool] | None = None,
    ) -> Answer:
        """The answer, after the true residual was computed: ``info == 0`` is never said for one above the target.

        After a breakdown, and where the residual is above that of the first guess or far above the least, the answer is
        :attr:`x` where its residual is smaller: the first guess, or the best that a method has put there since. That of
        conjugate gradients may grow on the way, by the root of the condition number of A: where the method, asked then,
        says that it `descends`, x is the one with the lower <x, A x> - 2 Re <b, x>. `info` and `reason` are what the
        solver thinks; `residual` is the norm of b - A x for this very x, where :meth:`residual` has just found it.
        """
        stats, units = self.stats, self.units
        known, x = x, self._representable(x)
        is_known = residual is not None and x is known
        r = x if is_known else self.rows(1)[0]
        stats.residual = residual if is_known else self.residual(x, r)  # type: ignore[assignment]
        first = max(stats.residuals[0] if stats.residuals else self.norm_b, self.target)
        no_number = info != 0 and not np.isfinite(self.work.norm(x))  # b - A x is one, with an empty column of A
        grown = no_number or not stats.residual <= min(first, max(_FAR * self.kept, self.target))
        if grown or (info < 0 and stats.residual > self.target):
            least, best, of_best = self._best(of_all=grown)
            may_descend = info > 0 and descends is not None and stats.residual <= first * eps_of(self.dtype) ** -0.5
            both = self.work, self.rows(2), x, r, best, of_best
            stays = may_descend and is_lower(*both) and descends()  # type: ignore[misc]
            if no_number or not (stays or stats.residual <= least):
                told = f"x had blown up to a residual of {units.norm(stats.residual):.1e}: the best one before is taken"
                stats.notes += [Notice(told)] * grown
                x, stats.residual = best, least
        stats.converged, stats.iterations = bool(stats.residual <= self.target), iterations
        if self.no_solution and not stats.converged:
            info, reason = NO_SOLUTION, self.no_solution
        if info == 0 and not stats.converged:
            if not units.solution:  # a defect of ours
                raise AssertionError(f"{stats.method} took an unconverged answer for a converged one")
            info, reason = max(1, iterations), f"x cannot be represented in {self.dtype} to the accuracy asked for"
        stats.residual = units.norm(stats.residual)
        stats.residuals = [*(map(units.norm, stats.residuals) if units else stats.residuals), stats.residual]
        if stats.converged and info:  # a method broke down, or came to its end, with the answer in its hands
            info, reason = 0, "converged: the residual is below the tolerance"
        stats.reason = reason
        stats.seconds["total"] = time.perf_counter() - self.begun
        answer = self._answer(x, self.shape)
        self.release()
        return (answer, info, stats) if return_stats else (answer, info)


def make_system(
    method: str,
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    threads: int | None = None,
    db: Any = None,
    backend: str = "auto",
    scale: bool = True,
) -> System:
    """Check the arguments that all solvers share; these are described with :func:`akx.solvers.cg.cg`.

    Parameters
    ----------
    method : str
        For the record.
    scale : bool
        Whether a system of extreme scale is to be worked on in other units than the caller's.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError
        Also where the norm of b is beyond the range of double precision.
    DeviceError, MissingDependencyError
        Where there is no GPU, and one is asked for.
    """
    asked = Arguments(A, b, x0, rtol=rtol, atol=atol, M=M, callback=callback, threads=threads, backend=backend)
    matrix, backend, dtype = asked.matrix, asked.backend, asked.matrix.dtype
    cache, watch = cache_of(matrix), callback.watch if isinstance(callback, Watched) else None
    # A Solver, which has a cache of its own, prepares at once.
    is_auto = tiers.setting() == tiers.AUTO
    rents = is_auto and cache is CACHE and not (watch is not None and watch.is_of_prepared)
    is_plain = backend == HOST and rents and not is_compiled(method, matrix)
    kind = (make_work, is_plain, backend, dtype, matrix.n, threads)
    work = cache.take_spare(kind) or make_work(backend, dtype, matrix.n, threads, plain=is_plain)
    system = _in_units(method, asked, work, x0, scale=scale)
    if db is not None:
        from akx.plandb import database_of

        database_of(db)  # a wrong one is told at once
    system.callback = callback.callback if isinstance(callback, Watched) else callback
    system.watch, system.threads, system.db = watch, threads, db
    system.cache, system.kind_of_work = cache, kind
    system.like = b if asked.right.on_device else None
    if M is not None:
        system.diagonal, system.products_of_M = diagonal_of(M), int(M.products) if is_ours(M) else 0
        system.applies = system.M if hasattr(system.M, "apply") else None
    system.no_solution = why_unsolvable(system) if matrix.cache.get(EMPTY_ROWS, ()) is not None else ""
    system._steps = system._untold
    if is_auto and backend == HOST and cache.tune is None:
        system.plain_where_short()
    if rents:
        system.rent()
        if system._rent is None and is_plain:
            system.prepare()
    return system


def _in_units(method: str, asked: Arguments, work: Any, x0: Any, *, scale: bool) -> System:
    """The system, its vectors where the work is done, in units of its own where the caller's are extreme."""
    given, inverse, guess = asked.matrix, asked.inverse, asked.guess
    dtype = given.dtype
    b, of_b, norm = asked.right.take(work)
    if isinstance(x0, str):
        begun_at = work.to_host(b)
        guess = GivenVector(begun_at if inverse is None else by_foreign(inverse.matvec, begun_at, dtype), "x0 = M b")
    x, of_x = (None, None) if guess is None else guess.take(work)[:2]
    units = units_of(exponent_of(given.largest), of_b, of_x, dtype) if scale else _PLAIN
    is_wide = units.matrix > 0 and not keeps_all(given.data, -units.matrix)
    units = units._replace(matrix=0) if is_wide and inverse is not None else units  # M may equilibrate it
    if not math.isfinite(norm):
        raise ArgumentError("the norm of b is too large for a number", found=f"{norm}", hint="scale b, and x with it")
    if x is None:
        x = work.rows(1, given.n)[0]
        x[:] = 0
    matrix, target = given, max(asked.rtol * norm, asked.atol)
    stats = SolveStats(method=method, target=target)
    if units:
        stats.notes.append(Notice(units.note()))
        b = scaled_in(work, b, -units.rhs)
        x = scaled_in(work, x, 0 if of_x is None else -units.solution)
    if units.matrix:
        matrix = derived(given, f"2^{units.matrix}", lambda: given.with_values(scaled(given.data, -units.matrix)))
    if units.rhs:
        norm = checked_norm(work, float(work.norm(b)), b)
        target = max(asked.rtol * norm, units.own(asked.atol))
    known: dict[str, Any] = {"matrix": matrix, "given": given, "work": work, "stats": stats, "units": units}
    known |= {"b": b, "x": x, "norm_b": norm, "target": target, "zero_guess": of_x is None, "shape": asked.right.shape}
    return System(M=inverse, solvable=is_wide, **known)
