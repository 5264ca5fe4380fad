"""The linear system A x = b as every solver sees it: checked once, one type, one place, products counted.

SciPy's meanings: a solve has converged when ||b - A x|| <= max(rtol ||b||, atol); ``info`` is 0 for a converged solve,
the number of iterations where they ran out, and negative for a breakdown. x has the shape of b, (n,) or (n, 1) (SciPy's
is (n,) in any case), and the common type of A, b, x0 and a complex M. A zero right-hand side has the solution zero.

Vectors of a solver are rows: an array W of shape (m, n), C-contiguous, holds m vectors, each contiguous; so does what
:class:`akx.MatrixPowers` fills. They are NumPy arrays, or arrays of the GPU: solvers take rows of them, copy by
assigning rows, and leave all arithmetic to :attr:`System.work`, the vector work of the backend.

A system of extreme scale is solved in :attr:`System.units` of its own (:mod:`akx.solvers.scaling`): all that a solver
sees is in these, all that the caller gets in the caller's.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from akx.backends.cpu.vectors.numpy_vectors import NumpyVectors
from akx.backends.selection import HOST, array_backend, backend_of, is_usable, resolve_backend
from akx.backends.vectors import Vectors
from akx.core.arguments import check_number, converted, numbers_of
from akx.core.basis import Basis
from akx.core.errors import AkxError, ArgumentError, ArgumentTypeError, MatrixError, PlanError, brief
from akx.core.matrix import Matrix
from akx.core.numba_jit import is_loaded
from akx.core.process import resolve_threads
from akx.core.progress import working
from akx.operator import host_products, tiers
from akx.operator.background_compile import Coming, compiled_in_background, is_noted, look, notes_of
from akx.operator.cache import CACHE, Cache, Entry
from akx.operator.lookup import cache_of, canonical, derived, owner_of
from akx.operator.start_vectors import is_on_device
from akx.solvers.monitor import Watch, Watched
from akx.solvers.scaling import Units, eps_of, exponent_of, is_extreme, norm_of, scaled, units_of
from akx.solvers.stats import SolveStats

if TYPE_CHECKING:
    from pathlib import Path

    from scipy.sparse.linalg import LinearOperator

    from akx.core.plan import Plan
    from akx.operator.device_products import PlainOperator, PlainPowers
    from akx.operator.powers import MatrixPowers

__all__ = [
    "Answer",
    "AppliesAnywhere",
    "Rows",
    "System",
    "check_device_backend",
    "compiling_job",
    "is_queued",
    "is_rented",
    "make_system",
    "make_work",
    "place_of",
    "solve_once",
]

#: Vectors as rows: a NumPy array, or a DeviceArray.
Rows = Any

#: Seconds that a call by a plan takes beside its products, more than a plain one does.
_OVERHEAD = 6e-6

#: Steps after which a solver has done all that it does.
_STEPS = 16
#: By solver and types, the notes that its vector work is compiled; none where that is known.
_NOTES: dict[tuple[Any, ...], tuple[Path | None, ...]] = {}

#: Entries of a matrix whose steps take less than a millisecond.
_SHORT = 100_000

#: The caller's own units.
_PLAIN = Units()

#: What a solver returns: x and info, and the record of the solve where it was asked for.
Answer = tuple[Any, int] | tuple[Any, int, SolveStats]


@runtime_checkable
class AppliesAnywhere(Protocol):
    """What a preconditioner has that is given vectors where they are, on the GPU too."""

    def apply(self, r: Any, out: Any) -> None:
        """out = M r; see :meth:`akx.solvers.preconditioners.Preconditioner.apply`."""


@dataclass(eq=False, repr=False)
class System:
    """A x = b.

    Attributes
    ----------
    matrix : Matrix
        A, in `dtype` and `units`.
    given : Matrix
        A, in `dtype`.
    work : Vectors
        What is done with vectors, where they are.
    b, x : (n,) arrays of `dtype`
        Right-hand side, and the first guess, a copy that the solver may work on.
    M : LinearOperator or None
        The preconditioner, an approximation of A^-1.
    diagonal : (n,) array or None
        Its entries, where M is known to be a diagonal matrix.
    applies : AppliesAnywhere or None
        M, where it is given vectors wherever they are.
    products_of_M : int
        Products with A in an application of M, as far as it says so.
    solvable : bool
        Whether it is known to have a solution.
    target : float
        The residual's norm to be reached: max(rtol ||b||, atol), in `units`.
    zero_guess : bool
        Whether x is zero, so that b is its residual.
    shape : tuple of int
        Of the x that the caller gets.
    like : array, optional
        The caller's array on the GPU, of whose kind x is to be.
    stats : SolveStats
        In `units` but for its notes, until :meth:`finish`.
    units : Units
        What is extreme is worked on in these; false where nothing is.
    watch : Watch, optional
        Of the caller's, see :meth:`ended`.
    cache : Cache
        Where what is prepared comes from, and goes back to.
    kind_of_work : tuple, optional
        What others must ask for to have `work` next; None where it is not for others.
    under_way : working
        Says that it solves, where that takes long.
    begun : float
        When the system was made, on :func:`time.perf_counter`.
    """

    matrix: Matrix
    work: Vectors
    b: Rows
    x: Rows
    M: LinearOperator | None
    norm_b: float
    target: float
    zero_guess: bool
    shape: tuple[int, ...]
    stats: SolveStats
    callback: Callable[[Any], object] | None = None
    threads: int | None = None
    db: Any = None
    cache: Cache = CACHE
    kind_of_work: Any = None
    _operators: dict[tuple[int, str], MatrixPowers] = field(default_factory=dict)
    _borrowed: list[Entry] = field(default_factory=list)
    begun: float = field(default_factory=time.perf_counter)
    like: Any = None
    given: Any = None
    units: Units = _PLAIN
    watch: Watch | None = None
    under_way: working = field(default_factory=lambda: working("solving"))
    diagonal: NDArray[Any] | None = None
    applies: AppliesAnywhere | None = None
    products_of_M: int = 0
    solvable: bool = False
    _rent: tiers.Rent | None = None
    _plain: PlainPowers | None = None
    _counted: int = 0
    _epoch: int = 0
    _pair: Rows | None = None
    _of_M: int | None = None
    _arrays: tuple[NDArray[Any], ...] = ()
    _spared: float = math.inf  # by a plan, of a plain product on the host; always plans without an end
    _is_short: bool = False  # a single product is quicker without one
    _steps: int = 0

    @property
    def n(self) -> int:
        """Rows."""
        return self.matrix.n

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of all vectors."""
        return self.matrix.dtype

    @property
    def on_device(self) -> bool:
        """Whether vectors are on a device, and work on them is queued."""
        return self.work.on_device

    def rows(self, count: int) -> Rows:
        """Room for so many vectors, shape (count, n), not filled."""
        return self.work.rows(count, self.n)

    def operator(self, k: int, kind: str = "monomial", plan: Plan | None = None) -> MatrixPowers | PlainOperator:
        """The operator for k steps of bases of a kind, with the tuned plan where there is one.

        It is borrowed from what is kept for the caller's A, or made, and this solve's alone until :meth:`release`. On a
        device it does plain products until preparing has paid, unless a plan is given.
        """
        if plan is None and self.is_plain:
            assert self._plain is not None
            return self._plain.operator(k)
        found = self._operators.get((k, kind))
        if found is None:
            with self.stats.phase("setup"):
                basis: Any = kind if kind == "monomial" else _placeholder(k, kind)
                options: dict[str, Any] = {"threads": self.threads, "db": self.db, "backend": self.work.backend}
                entry = self.cache.borrow(self.matrix, k, basis=basis, plan=plan, **options)
                self._borrowed.append(entry)
                found = entry.operator
                found.looks_for_overflow = False  # solvers do themselves
            self._operators[k, kind] = found
        return found

    def release(self) -> None:
        """Give the operators and the work on vectors back, for the next solve: nothing is done with them after that."""
        self.under_way.end()
        if self._plain is not None:
            if self.is_plain:
                from akx.operator.device_products import give_back

                give_back(self.matrix, self.work.backend, self._plain, self._epoch)
            self._plain = None
        self._operators.clear()
        while self._borrowed:
            self.cache.keep(self._borrowed.pop())
        if self.kind_of_work is not None:
            self.cache.give_spare(self.kind_of_work, self.work)
            self.kind_of_work = None

    def product(self, v: Rows, out: Rows, *, apart: bool = False) -> Rows:
        """out = A v, counted and timed; both (n,), contiguous, not the same.

        Where `out` is the row behind `v` in one array nothing is copied; `apart`: it is not.
        """
        if self._is_short or self._is_plain(1, 1):
            return self._plain_product(v, out)
        operator = self.operator(1)
        begin = time.perf_counter()
        both = None if apart else self.work.following(v, out)
        pair = both
        if pair is None:
            if self._pair is None:
                self._pair = self.rows(2)
            pair = self._pair
        _apply(operator, v.reshape(1, self.n), pair.reshape(2, 1, self.n), None)
        if both is None:
            out[:] = pair[1]
        self.stats.add("matrix", begin)
        self.stats.products += 1
        self.stats.matrix_passes += 1
        return out

    def product_in(self, V: Rows, j: int) -> None:
        """Row j + 1 of V becomes A times row j, counted and timed; :meth:`product` has to see where vectors are."""
        if self._is_short or (self._rent is not None and self._is_plain(1, 1)):
            self._plain_product(V[j], V[j + 1])
            return
        operator = self.operator(1)
        begin = time.perf_counter()
        _apply(operator, V[j : j + 1], V[j : j + 2].reshape(2, 1, self.n), None)
        self.stats.add("matrix", begin)
        self.stats.products += 1
        self.stats.matrix_passes += 1

    def powers(self, block: Rows, out: Rows, basis: Basis, plan: Plan | None = None) -> Rows:
        """The bases of all start vectors of a step in one pass over the matrix, counted and timed.

        Parameters
        ----------
        block : (b, n) array
            Start vectors.
        out : (s+1, b, n) array, C-contiguous
            ``out[j, i]`` becomes p_j(A) block[i].
        basis : Basis
            Of s steps.
        """
        if plan is None and self._is_plain(basis.k, len(block), basis.kind):
            with self.stats.phase("matrix"):
                out[0] = block
                host_products.powers_into(self._arrays, out, basis)
        else:
            operator = self.operator(basis.k, basis.kind, plan)
            with self.stats.phase("matrix"):
                _apply(operator, block, out, basis)
        self.stats.products += basis.k * len(block)
        self.stats.matrix_passes += 1
        return out

    def _is_plain(self, k: int, vectors: int, kind: str = "monomial") -> bool:
        """Whether k products are SciPy's: where a plan is no quicker, and until preparing has paid and all is compiled.

        See :mod:`akx.operator.tiers`.
        """
        if tiers.gain(self._spared, k, vectors, _OVERHEAD) <= 0:
            return True
        if self._rent is None or self.on_device:
            return False
        if self._rent.goes_on(k, vectors):
            return True
        try:
            with compiled_in_background():
                look(compiling_job(self.stats.method), self.matrix)
                self.operator(k, kind)
        except Coming as coming:
            self._rent.coming = coming.is_coming
            return True
        self.prepare()
        return False

    def _plain_product(self, v: Rows, out: Rows) -> Rows:
        stats, begin = self.stats, time.perf_counter()
        host_products.product_into(self._arrays, v, out)
        stats.add("matrix", begin)
        stats.products += 1
        stats.matrix_passes += 1
        return out

    def plain_where_short(self) -> None:
        """Have plain products on the host where prepared ones would take longer."""
        matrix = self.matrix
        self._arrays = matrix.indptr, matrix.indices, matrix.data
        self._spared = tiers.spared(matrix.nnz, matrix.nbytes)
        self._is_short = tiers.gain(self._spared, 1, 1, _OVERHEAD) <= 0

    def rent(self) -> None:
        """Have plain products as long as preparing has not paid for this matrix."""
        if self.on_device:
            from akx.operator.device_products import device_rent, plain_on

            self._rent = device_rent(self.given, "solve", self.work.backend)
            if self._rent is not None:
                self._epoch = self.cache.epoch
                self._plain = plain_on(self.matrix, self.work.backend)
                self._rent = None if self._plain is None else self._rent
            return
        size = self.matrix.nnz, self.matrix.nbytes
        self._rent = tiers.rent_of(owner_of(self.given), "solve", *size, _OVERHEAD)

    @property
    def is_plain(self) -> bool:
        """Whether products on the device are plain ones yet; those that the record has are counted."""
        if self._rent is None or not self.on_device:
            return False
        done, self._counted = self.stats.products - self._counted, self.stats.products
        if done and not self._rent.goes_on(done):
            self.prepare()
        return self._rent is not None

    @property
    def plain_left(self) -> int | None:
        """Products after which :attr:`is_plain` has to be asked again; None where they are plain no more."""
        return self._rent.left() if self.is_plain and self._rent is not None else None

    def prepare(self) -> None:
        """Have products by the plan, and compiled vector work, from now on."""
        self._rent = None
        if self.on_device:
            self.cache.drop_plain(owner_of(self.matrix), self.work.backend)
        if isinstance(self.work, NumpyVectors):
            other = make_work(self.work.backend, self.dtype, self.n, self.threads)
            if not isinstance(other, NumpyVectors):
                self.work.give_way(other)

    def precondition(self, r: Rows) -> Rows:
        """M r, a new array; r itself without a preconditioner.

        One that :class:`AppliesAnywhere` is given arrays of the GPU. Any other has its matvec called, with r in host
        memory.
        """
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
        if _makes_new_arrays(M) or (self.on_device and not self.units):
            return np.ascontiguousarray(_real_if_told(make(v), self.dtype), dtype=self.dtype)
        return _of_foreign(make, v, self.dtype)

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
        with np.errstate(over="ignore"):
            found = _checked_norm(self.work, float(self.work.remain(self.b, out)), out)
        self.stats.add("vectors", begin)
        return found

    def checked_norm(self, norm: float, v: Rows) -> float:
        """The norm of v, found as the root of a sum of squares; another way where these are extreme."""
        with np.errstate(over="ignore"):
            return _checked_norm(self.work, norm, v)

    def step_queue(self, V: Rows, diagonal: Rows | None = None) -> Any:
        """Steps of conjugate gradients on V = [p, w, r, x, ...], queued ahead of the host.

        `diagonal`: the preconditioner, as :meth:`positive_diagonal` has it.
        """
        return self.work.step_queue(*self.queued(self.operator(1), 1), V, diagonal)

    @property
    def tier(self) -> int:
        """1 once what is queued is to be by the plan; 0 while products are plain ones."""
        return 0 if self.is_plain else 1

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

    def block_queue(self, W: Rows, x: Rows, s: int, operator: MatrixPowers | PlainOperator) -> Any:
        """The same for blocks of s steps on W = [P, A P, v_0 .. v_s], by the operator's s powers."""
        return self.work.block_queue(self.queued(operator, 1)[0], W, x, s)

    def queued(
        self, operator: MatrixPowers | PlainOperator, vectors: int, basis: Basis | None = None
    ) -> tuple[Any, Any]:
        """The program for powers of so many vectors and its coefficients, to be part of what is queued.

        Raises
        ------
        PlanError
            Where the plan brings the matrix from the host while it is used: such work cannot be recorded.
        """
        with self.stats.phase("setup"):
            program, coefficients = operator.program(vectors, basis)
        if not program.is_recordable:
            from akx.operator.device_products import PlainOperator

            assert not isinstance(operator, PlainOperator)
            raise PlanError(
                "a solver on the GPU cannot use a plan that streams the matrix",
                found=operator.plan.label(),
                hint="use backend='cpu', or a plan with the matrix in the device's memory",
            )
        return program, coefficients

    def ended(self, settle: Callable[[], object] | None = None) -> bool:
        """Whether x is wanted as it is, by a watch that may also take its time; to be asked before each step.

        Where the watch is about to do something, `settle` is called first: it is to take what was queued ahead. It is
        not asked while products are plain ones.
        """
        self._steps -= 1
        if self._steps < 0:
            self._steps = self._untold
            self.under_way.step()
        if self.watch is None or self._rent is not None or not self.watch.due(self.stats):
            return False
        if settle is not None:
            settle()
        return self.watch.ends(self.stats, self.target)

    @property
    def _untold(self) -> int:
        """Steps that are done without a word of progress: some short ones with no code of others among them."""
        return _STEPS if self.M is None and self.callback is None and self.matrix.nnz < _SHORT else 0

    def say(self, value: Any) -> None:
        """Call the caller's callback, if there is one."""
        if self.callback is not None:
            self.callback(value)

    def tell(self, x: Rows) -> None:
        """Call the caller's callback, if there is one, with a copy of x, (n,) as in SciPy, of the kind of b."""
        if self.callback is not None:
            self.callback(self._answer(x if self.on_device else x.copy(), (self.n,)))

    def answer(self, x: Rows) -> Any:
        """x in the shape, the kind and the units of b."""
        return self._answer(x, self.shape)

    def _representable(self, x: Rows) -> Rows:
        """x as the caller will have it, with digits cut off where it is tiny there; zero where it is too large."""
        exponent = self.units.solution
        if not exponent:
            return x
        host = scaled(scaled(self.work.to_host(x), exponent), -exponent)
        return self.work.from_host(host if np.isfinite(host).all() else np.zeros_like(host))

    def _answer(self, x: Rows, shape: tuple[int, ...]) -> Any:
        if self.units.solution:
            x = self.work.from_host(scaled(self.work.to_host(x), self.units.solution))
        if not self.on_device:
            return (x if x.base is None else x.copy()).reshape(shape)  # not a row that keeps all others
        if self.like is None:
            return self.work.to_host(x).reshape(shape)
        from akx.backends.cuda.device.interchange import answer_like

        return answer_like(self.like, x, shape)

    def finish(
        self,
        x: Rows,
        *,
        info: int,
        reason: str,
        iterations: int,
        return_stats: bool,
        residual: float | None = None,
    ) -> Answer:
        """The answer, after the true residual was computed: ``info == 0`` is never said for one above the target.

        After a breakdown the answer is :attr:`x` where its residual is smaller: the first guess, or the best that a
        method has put there since. So it is in any case where a method has blown up. A residual may grow on the way, by
        the root of the condition number of A; beyond that it says nothing.

        Parameters
        ----------
        info : int
            What the solver thinks: 0 converged, > 0 iterations ran out, < 0 breakdown.
        reason : str
            In words.
        residual : float, optional
            The norm of b - A x for this very x, where :meth:`residual` has just found it.
        """
        stats, units = self.stats, self.units
        known, x = x, self._representable(x)
        is_known = residual is not None and x is known
        stats.residual = residual if is_known else self.residual(x, self.rows(1)[0])  # type: ignore[assignment]
        first = stats.residuals[0] if stats.residuals else self.norm_b
        blown = not stats.residual <= max(first, self.target) * eps_of(self.dtype) ** -0.5
        if blown or (info < 0 and stats.residual > self.target):
            best = self._representable(self.x)
            least = self.residual(best, self.rows(1)[0])
            if not stats.residual <= least:
                if blown:
                    last = units.norm(stats.residual)
                    stats.notes.append(f"x had blown up to a residual of {last:.1e}, and was not taken")
                x, stats.residual = best, least
        stats.converged, stats.iterations = bool(stats.residual <= self.target), iterations
        if info == 0 and not stats.converged:
            if not units.solution:  # a defect of ours
                raise AssertionError(f"{stats.method} took an unconverged answer for a converged one")
            info, reason = max(1, iterations), f"x cannot be represented in {self.dtype} to the accuracy asked for"
        stats.residual = units.norm(stats.residual)
        if units:
            stats.residuals = [*map(units.norm, stats.residuals)]
        stats.residuals.append(stats.residual)
        if stats.converged:
            info = 0
        stats.reason = reason
        stats.seconds["total"] = time.perf_counter() - self.begun
        answer = self.answer(x)
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
    """Check the arguments that all solvers share.

    Parameters
    ----------
    method : str
        For the record.
    A : sparse matrix or array, shape (n, n), or Matrix
        LinearOperators have no entries to block, and are refused.
    b : array_like, shape (n,) or (n, 1)
        Of the host, or on the GPU (``__cuda_array_interface__`` or DLPack).
    x0 : array_like of the same shape, or ``"Mb"``, optional
        Zero by default; ``"Mb"`` is M b, and b without an M.
    rtol, atol : float
        Not negative.
    M : sparse matrix, array or LinearOperator, shape (n, n), optional
    callback : callable, optional
    threads, db
        As for :class:`akx.MatrixPowers`.
    backend : str
        ``"cpu"``, ``"cuda"``, or ``"auto"``: where b is.
    scale : bool
        Whether a system of extreme scale is to be worked on in other units than the caller's.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError
        Also where the norm of b is beyond the range of double precision.
    DeviceError, MissingDependencyError
        Where there is no GPU, and one is asked for.
    """
    asked = _Asked(A, b, x0, rtol=rtol, atol=atol, M=M, callback=callback, threads=threads, backend=backend)
    matrix, backend, right, guess, inverse = asked.matrix, asked.backend, asked.right, asked.guess, asked.inverse
    rtol, atol, dtype = asked.rtol, asked.atol, asked.matrix.dtype
    cache = cache_of(matrix)
    watch = callback.watch if isinstance(callback, Watched) else None
    # A Solver, which has a cache of its own, prepares at once.
    is_auto = tiers.setting() == tiers.AUTO
    rents = is_auto and cache is CACHE and not (watch is not None and watch.is_of_prepared)
    is_plain = backend == HOST and rents and not _is_compiled(method, matrix)
    kind = (make_work, is_plain, backend, dtype, matrix.n, threads)
    work = cache.take_spare(kind) or make_work(backend, dtype, matrix.n, threads, plain=is_plain)
    held_b, of_b, norm = right.take(work)
    if isinstance(x0, str):
        begun_at = work.to_host(held_b)
        begun_at = begun_at if inverse is None else _of_foreign(inverse.matvec, begun_at, dtype)
        guess = _Given(begun_at, "x0 = M b")
    held_x, of_x = (None, None) if guess is None else guess.take(work)[:2]
    units = units_of(exponent_of(matrix.largest), of_b, of_x, dtype) if scale else _PLAIN
    given = matrix
    if units.matrix:
        matrix = derived(given, f"2^{units.matrix}", lambda: given.with_values(scaled(given.data, -units.matrix)))
    if not math.isfinite(norm):
        raise ArgumentError("the norm of b is too large for a number", found=f"{norm}", hint="scale b, and x with it")
    target = max(rtol * norm, atol)
    held_b = _scaled_in(work, held_b, -units.rhs)
    if held_x is None:
        held_x = work.rows(1, matrix.n)[0]
        held_x[:] = 0
    held_x = _scaled_in(work, held_x, 0 if of_x is None else -units.solution)
    own = norm if not units.rhs else _checked_norm(work, float(work.norm(held_b)), held_b)
    stats = SolveStats(method=method, target=target)
    like = b if right.on_device else None
    if db is not None:
        from akx.plandb import database_of

        database_of(db)  # a wrong one is told at once
    aim = target if not units.rhs else max(rtol * own, units.own(atol))
    if isinstance(callback, Watched):
        callback = callback.callback
    system = System(matrix, work, held_b, held_x, inverse, own, aim, of_x is None, right.shape, stats)
    system.callback, system.threads, system.db, system.like = callback, threads, db, like
    system.given, system.units = given, units
    system.cache, system.kind_of_work = cache, kind
    if M is not None:
        system.diagonal, system.products_of_M = _diagonal_of(M), _products_of(M)
        system.applies = inverse if isinstance(inverse, AppliesAnywhere) else None
    if units:
        stats.notes.append(units.note())
    system.watch = watch
    system._steps = system._untold
    if is_auto and backend == HOST and cache.tune is None:
        system.plain_where_short()
    if rents:
        system.rent()
        if system._rent is None and is_plain:
            system.prepare()
    return system


def check_device_backend(asked: str) -> None:
    """Refuse a backend other than that of b, which is on a device."""
    if asked not in ("auto", array_backend()):
        raise ArgumentTypeError("b is on the device", expected=f"an array of the host for backend={asked!r}")


def _widened(matrix: Matrix, dtype: np.dtype[Any]) -> Matrix:
    """A matrix in a wider type."""
    return derived(matrix, dtype.str, lambda: matrix.in_type(dtype))


def _apply(operator: MatrixPowers | PlainOperator, block: Rows, out: Rows, basis: Basis | None) -> None:
    """out (s+1, b, n) from block (b, n), where the vectors are: a solver's own arrays, of which nothing is checked."""
    program, coefficients = operator.program(len(block), basis)
    program.run(block, out, coefficients)


def place_of(A: Any, b: Any, x0: Any = None, *, threads: int | None = None, **asked: Any) -> tuple[Matrix, str]:
    """The matrix in the type of a solve, and the backend; for what arguments mean and raise see :func:`make_system`."""
    found = _Asked(A, b, x0, threads=threads, **asked)
    return found.matrix, found.backend


class _Asked:
    """The arguments of :func:`make_system`, checked; the matrix in the type of the vectors."""

    def __init__(
        self,
        A: Any,
        b: Any,
        x0: Any,
        *,
        rtol: float,
        atol: float,
        M: Any,
        callback: Callable[[Any], object] | None,
        threads: int | None,
        backend: str,
    ) -> None:
        if _is_operator(A):
            raise ArgumentTypeError(
                "A is a LinearOperator, which has no entries to block",
                expected="a sparse matrix",
                hint="use scipy.sparse.linalg for operators without a matrix",
            )
        right, guess = _Given(b, "b"), None if x0 is None or isinstance(x0, str) else _Given(x0, "x0")
        is_asked = right.on_device or backend == array_backend()
        if is_asked:
            backend_of(array_backend()).expect(A)
        matrix = canonical(A, threads=threads, on_device=is_asked)
        if right.on_device:
            check_device_backend(backend)
        is_there = right.on_device or (backend == "auto" and matrix.on_device is not None)
        self.backend = array_backend() if is_there else resolve_backend(backend)
        if isinstance(x0, str) and x0 != "Mb":
            raise ArgumentError("x0 is unknown", expected="a vector, or 'Mb' to begin from M b", found=brief(x0))
        if right.shape not in ((matrix.n,), (matrix.n, 1)):
            raise _misfit("b", matrix.n, right.shape)
        if guess is not None and guess.shape not in ((matrix.n,), (matrix.n, 1)):
            raise _misfit("x0", matrix.n, guess.shape)
        if callback is not None and not callable(callback):
            raise ArgumentTypeError("callback cannot be called", found=type(callback).__name__)
        self.rtol, self.atol = _tolerance("rtol", rtol), _tolerance("atol", atol)
        self.inverse = None if M is None else _operator_of(M)
        if self.inverse is not None and self.inverse.shape != (matrix.n, matrix.n):
            raise MatrixError("M does not fit A", expected=f"({matrix.n}, {matrix.n})", found=str(self.inverse.shape))
        dtype = _common(matrix.dtype, right, guess, self.inverse)
        self.matrix = matrix if dtype == matrix.dtype else _widened(matrix, dtype)
        self.right, self.guess = right, guess


def _tolerance(name: str, value: Any) -> float:
    if type(value) is float and value >= 0:
        return value
    if value is None or isinstance(value, str):  # as SciPy, where None and "legacy" once were values
        raise ArgumentError(f"{name} is out of range", expected="a number >= 0", found=brief(value))
    return check_number(name, value, "a number >= 0", lambda number: number >= 0)


def _misfit(name: str, n: int, shape: tuple[int, ...]) -> ArgumentError:
    hint = f"pass {name}.T" if shape == (1, n) else None
    return ArgumentError(f"{name} does not fit A", expected=f"({n},) or ({n}, 1)", found=str(shape), hint=hint)


def _diagonal_of(M: Any) -> NDArray[Any] | None:
    """The entries of M as it was given, (n,), where it is a diagonal matrix; None where it is not known to be one.

    A preconditioner of akx says so itself; a sparse matrix of SciPy shows it. Any other operator may do as it likes.
    """
    if _is_ours(M):
        entries: NDArray[Any] | None = M.entries
        return entries
    if not issparse(M) or M.nnz > M.shape[0]:
        return None
    found = M.tocoo()
    return np.asarray(M.diagonal()) if np.array_equal(found.row, found.col) else None


def _products_of(M: Any) -> int:
    """Products with A in an application of M; 0 where it is not of akx, and may do what it likes."""
    return int(M.products) if _is_ours(M) else 0


def _is_ours(M: Any) -> bool:
    """Whether M is a preconditioner of akx; those are imported by who makes one."""
    base = sys.modules.get("akx.solvers.preconditioners.base")
    return base is not None and isinstance(M, base.Preconditioner)


def _is_operator(A: Any) -> bool:
    """Whether it is an operator of SciPy, whose module nobody else has to import: it takes longer than a solve."""
    linalg = sys.modules.get("scipy.sparse.linalg")
    return linalg is not None and isinstance(A, linalg.LinearOperator)


@lru_cache(maxsize=1)
def _operator_of_matrix() -> type:
    """SciPy's operator of a matrix, as it makes one of sparse and dense ones."""
    from scipy.sparse.linalg import aslinearoperator

    return type(aslinearoperator(np.eye(1)))


def _operator_of(M: Any) -> LinearOperator:
    from scipy.sparse.linalg import aslinearoperator

    try:
        if not _is_operator(M):
            found = M.aspreconditioner() if hasattr(M, "aspreconditioner") else converted(M)  # PyAMG's
            M = M if found is None else found
        return aslinearoperator(M)
    except AkxError:
        raise
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            "M is no matrix and no operator",
            expected="a sparse matrix, an array, a LinearOperator or what akx.solvers.preconditioners makes",
            found=type(M).__name__,
            hint="pass scipy.sparse.linalg.LinearOperator(A.shape, matvec=M)" if callable(M) else None,
        ) from error


def _makes_new_arrays(M: Any) -> bool:
    """Whether M is known to return new arrays and to leave its argument alone: a matrix, or code of akx itself.

    A subclass of akx's may do as it likes.
    """
    return type(M) is _operator_of_matrix() or type(M).__module__.partition(".")[0] == __name__.partition(".")[0]


def _of_foreign(make: Callable[[Any], Any], v: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """What code of others makes of v, a copy: it may return its argument, or one buffer of its own each time.

    It gets a copy too, which it may write to, return and keep.
    """
    return np.array(_real_if_told(make(v.copy()), dtype), dtype=dtype, order="C")


def _real_if_told(found: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """What M has made, (n,); an error where it is complex and M was said to be real, as `dtype` shows."""
    made = np.asarray(found).reshape(-1)
    if made.dtype.kind == "c" and dtype.kind != "c":
        raise ArgumentTypeError(
            "M has made a complex vector of a real one",
            expected=str(dtype),
            found=str(made.dtype),
            hint="give the LinearOperator its type, as dtype=complex",
        )
    return made


def _scaled_in(work: Any, v: Rows, exponent: int) -> Rows:
    """2^exponent v, where v is."""
    return v if exponent == 0 else work.from_host(scaled(work.to_host(v), exponent))


def _checked_norm(work: Any, norm: float, v: Rows) -> float:
    """The norm of v: the one found as the root of a sum of squares, or a scaled one where these are extreme."""
    low, high = _sound(work.dtype)
    return norm if low <= norm <= high else norm_of(work.to_host(v))


@lru_cache(maxsize=8)
def _sound(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Norms whose squares have all their digits."""
    facts = np.finfo(dtype)
    return float(np.sqrt(float(facts.tiny)) / float(facts.eps)), float(np.sqrt(float(facts.max)))


def make_work(backend: str, dtype: np.dtype[Any], n: int, threads: int | None, *, plain: bool = False) -> Vectors:
    """The vector work of a backend, for vectors of n entries; NumPy's where that is asked for."""
    if plain:
        resolve_threads(threads)
        return NumpyVectors(dtype)
    return backend_of(backend).vectors(dtype, n, threads)


def _is_compiled(method: str, matrix: Matrix) -> bool:
    """Whether the vector work of a solver is compiled for these types: else it would wait for the compiler."""
    if not is_loaded():
        return False
    key = method, matrix.dtype, matrix.index_dtype, matrix.value_error > 0
    notes = _NOTES.get(key)
    if notes is None:
        notes = _NOTES[key] = notes_of(compiling_job(method)[0], matrix)
    if notes and not is_noted(notes):
        return False
    _NOTES[key] = ()
    return True


def is_rented(matrix: Matrix, backend: str) -> bool:
    """Whether the next solve with a canonical matrix begins with plain products on a device."""
    if backend == HOST or tiers.setting() != tiers.AUTO or cache_of(matrix) is not CACHE:
        return False
    from akx.operator.device_products import device_rent

    return is_usable(backend) and device_rent(matrix, "solve", backend) is not None


def compiling_job(method: str) -> tuple[tuple[str, ...], str, str, str]:
    """What compiles all that a solver of that name needs for vectors (:data:`akx.tuner.warmup.host_code.Job`)."""
    return (f"{method} solver",), __name__, "solve_once", method


def solve_once(method: str, matrix: Matrix, vectors: int) -> None:
    """A few steps of a solver."""
    from akx import solvers

    getattr(solvers, method)(matrix, np.ones(matrix.n, dtype=matrix.dtype), maxiter=_STEPS)


def is_queued(matrix: Matrix, backend: str) -> bool:
    """Whether a solver for that matrix queues its work on a device."""
    return make_work(backend, matrix.dtype, matrix.n, None, plain=backend == HOST).on_device


class _Given:
    """A vector of the caller's, of the host or on the device."""

    def __init__(self, v: Any, name: str) -> None:
        self.name = name
        self.on_device = type(v) is not np.ndarray and is_on_device(v)
        if self.on_device:
            from akx.backends.cuda.device import interchange

            self.v, self.shape, self.dtype = v, interchange.shape_of(v), interchange.dtype_of(v)
        else:
            self.v = _numbers(v, name)
            self.shape, self.dtype = self.v.shape, self.v.dtype

    def take(self, work: Any) -> tuple[Rows, int | None, float]:
        """A copy (n,) where the vectors are, the exponent of its largest entry, about, None where it is zero; its norm.

        The norm tells of what is not finite, and of what is extreme: entries are looked at where it does.

        Raises
        ------
        ArgumentError
            Where an entry is not finite.
        """
        if not self.on_device:
            if self.dtype == work.dtype:
                held = work.from_host(self.v.reshape(-1).copy())
            else:
                with np.errstate(over="ignore"):
                    held = work.from_host(self.v.reshape(-1).astype(work.dtype))
            norm = float(work.norm(held))
        else:
            from akx.backends.cuda.device import interchange

            if not work.on_device:
                raise ArgumentTypeError(f"{self.name} is on the device and b is not", hint="use backend='cuda'")
            held = interchange.vector_of(self.v, prod(self.shape), work.dtype, self.name)
            norm = float(work.norm(held))
        exponent = exponent_of(norm) if math.isfinite(norm) else None
        if exponent is None or is_extreme(exponent, work.dtype):  # rarely: zero, or beyond what squares can say
            host = work.to_host(held)
            if not np.isfinite(host).all():
                raise ArgumentError(f"{self.name} is not finite", expected="no NaN or Inf", found=f"in {work.dtype}")
            exponent, norm = exponent_of(host), _checked_norm(work, norm, held)
        return held, exponent, norm


def _numbers(v: Any, name: str) -> NDArray[Any]:
    """The caller's vector as an array of numbers; wider ones than double precision in that."""
    found = numbers_of(v, name)
    if found.dtype in (np.longdouble, np.clongdouble):
        with np.errstate(over="ignore"):
            found = found.astype(complex if found.dtype.kind == "c" else float)
    return found


def _common(of_matrix: np.dtype[Any], b: _Given, x0: _Given | None, M: LinearOperator | None) -> np.dtype[Any]:
    """SciPy's rule: single precision only where all are, integers and float16 count as double; complex where M is."""
    if M is None and b.dtype == of_matrix and x0 is None:
        return of_matrix
    types = [of_matrix, *(a.dtype if a.dtype.char in "fdFD" else np.dtype(float) for a in (b, x0) if a is not None)]
    types += [np.dtype(np.complex64)] if np.iscomplexobj(np.empty(0, getattr(M, "dtype", None))) else []
    found = np.result_type(*types)
    return found if found in (np.float32, np.float64, np.complex64, np.complex128) else np.dtype(complex)


def _placeholder(k: int, kind: str) -> Basis:
    """A basis of a kind whose coefficients do not matter: each call brings its own."""
    zeros = np.zeros(k)
    return Basis(kind, np.ones(k), zeros, zeros)
