"""Several right-hand sides: b of shape (n, m) for every solver, and x of that shape.

By blocks. cg and ca_cg begin with block conjugate gradients (:mod:`akx.solvers.block_cg`) for up to 16 columns, which
share every pass over the matrix and one Krylov space: on the host for 8 columns and more where rows have 40 entries and
more, on a GPU where a step of all columns moves 2 GiB (which is reckoned, not measured). On the host 16 columns of
bcsstk16, 60 entries in a row, take 123 passes and 0.4 of the time of cg for each, 7,852 passes; for a 27-point
operator, 44 passes in place of 1,061, twice the time: p columns cost 7 p multiplications for each row, step and column
beside those of the matrix. What a block leaves is solved column by column from the best x.

By columns. All other solvers, and cg for short rows, solve for one column after another, with the matrix, the plans,
layouts, compiled code and M of the first. A column whose right-hand side is near to a combination of those before
begins at that of their x (:mod:`akx.solvers.columns`). Where the first one has taken gmres more than a cycle, the next
keep 10 vectors that slow it down (:mod:`akx.solvers.gcro_dr`), on the host, as long as that halves the products: each
step has 40 n multiplications more. 8 columns of sherman5 with Jacobi's M took 1,215 products in place of 4,508, and 0.4
of the CPU time.

Why no more is done by blocks. Block GMRES (Vital 1990; Saad 2003, sec. 6.12) of m columns makes m times as many vectors
orthogonal for each of them, and restarted it saves no steps: 4 columns of two convection-diffusion problems took 290
and 486 block steps, where one takes 287 and 391. Methods in lockstep, each column with coefficients of its own, save
nothing but reads of the matrix: on the host a product with 16 vectors takes 0.75 (7-point 110^3) to 2 times (7-point
40^3) what 16 products take, and half of it only where rows have 60 entries; on a GPU each step would wait for the host,
where the steps of single solves are queued.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from inspect import signature
from types import MappingProxyType
from typing import Any, ParamSpec

import numpy as np

from akx.backends.selection import HOST, array_backend, backend_of
from akx.core.errors import ArgumentError
from akx.operator.start_vectors import is_matrix_there
from akx.solvers.arguments import RESTART, check_count, check_hermitian, named
from akx.solvers.columns import Columns, Solved, columns_in, read_once, worst
from akx.solvers.host_fallback import TOO_MUCH
from akx.solvers.registry import recycling
from akx.solvers.scaling import exponent_of, is_extreme
from akx.solvers.stats import SolveStats
from akx.solvers.system import Answer, Rows, System, make_system

__all__ = ["by_columns", "takes_columns"]

P = ParamSpec("P")

#: Most columns of a block.
_MOST = 16
#: On the host: the fewest columns, and entries of a row, for which a block is worth its vector work.
_LEAST, _LONG = 8, 40
#: On a device: vectors that a step of cg moves beside the matrix, and bytes that a step of all columns has to move
#: for a block to be worth it, whose steps wait for the host twice where those of single solves are queued.
_MOVED, _QUEUED = 12, 1 << 31
#: Vectors that gmres keeps from column to column, no more than a third of a cycle. A column may take this part of the
#: products of one without them: that in which they are found, and the others.
_KEPT, _BUILDING, _SAVES = 10, 0.75, 0.5


def takes_columns(solver: Callable[P, Answer]) -> Callable[P, Answer]:
    """Let a solver of one right-hand side take several, b of shape (n, m), and x0 with it.

    x has b's shape. ``info`` is the worst of all: the least, where one is negative (a breakdown), else the largest: the
    steps of one that has not converged, or 0. The record has that of each column in ``columns``.
    """

    @wraps(solver)
    def solve(*given: P.args, **options: P.kwargs) -> Answer:
        M = options.get("M")
        if type(M) is str:
            places = {name: options[name] for name in ("threads", "db", "backend") if name in options}
            A = given[0] if given else options.get("A")
            options["M"] = named(M, A, solver.__name__, **places)  # type: ignore[arg-type]
        b = given[1] if len(given) > 1 else options.get("b")
        if (type(b) is np.ndarray and b.ndim < 2) or columns_in(b) is None:
            return solver(*given, **options)
        bound = signature(solver).bind(*given, **options)
        bound.apply_defaults()
        asked = bound.arguments
        A, b, x0 = (asked.pop(name, None) for name in ("A", "b", "x0"))
        callback, with_stats = asked.pop("callback", None), asked.pop("return_stats", False)

        def single(A: Any, b: Any, x0: Any, callback: Any, changed: dict[str, Any]) -> tuple[Any, int, SolveStats]:
            options = {**asked, **changed}
            return solver(A, b, x0, callback=callback, return_stats=True, **options)  # type: ignore[arg-type,return-value]

        x, info, stats = by_columns(solver.__name__, single, A, b, x0, asked, callback)
        return (x, info, stats) if with_stats else (x, info)

    return solve


#: A solver of one right-hand side: A, b, x0, the callback, options other than were given; x, info and the record.
Single = Callable[[Any, Any, Any, Any, dict[str, Any]], tuple[Any, int, SolveStats]]


def by_columns(
    name: str,
    single: Single,
    A: Any,
    b: Any,
    x0: Any,
    asked: dict[str, Any],
    callback: Callable[[Any], object] | None,
    scaling: Callable[[Any, Any], Any] | None = None,
) -> tuple[Any, int, SolveStats]:
    """x, info and the record for b of shape (n, m).

    `name` is that of the solver, or ``"auto"``: what the first column is solved by, with the diagonal that
    ``scaling(A, b)`` gives as M where the caller has none, False where it was something else. `asked`: the options. A
    is read once, so that all columns are solved for the values that it had.
    """
    begun = time.perf_counter()
    shape = tuple(getattr(A, "shape", ()))  # of anything else it is told with the first column
    right, guess = Columns(b, "b", shape), x0 if x0 is None or isinstance(x0, str) else Columns(x0, "x0", shape)
    if isinstance(guess, Columns) and guess.shape != right.shape:
        raise ArgumentError("x0 does not fit b", expected=str(right.shape), found=str(guess.shape))
    many = _Many(name, single, read_once(A, right, asked), right, guess, asked, callback, scaling)
    many.solve()
    found = many.record()
    found.seconds["total"] = time.perf_counter() - begun
    return many.answer(), worst(many.infos), found


@dataclass
class _Many:
    """One solve for all columns: what is known of each so far."""

    name: str
    single: Single
    A: Any
    right: Columns
    guess: Any
    asked: dict[str, Any]
    callback: Callable[[Any], object] | None
    scaling: Callable[[Any, Any], Any] | None
    x: list[Any] = field(default_factory=list)  # (n,), None where nothing is known
    infos: list[int] = field(default_factory=list)
    records: list[SolveStats | None] = field(default_factory=list)
    shared: SolveStats = field(default_factory=SolveStats)  # of blocks
    _of_blocks: list[int] = field(default_factory=list)  # products of a column that are in `shared`

    def solve(self) -> None:
        """Blocks, where these pay; then what is left, one column after another."""
        m = self.right.shape[1]
        self.x, self.infos, self.records, self._of_blocks = [None] * m, [0] * m, [None] * m, [0] * m
        self._told, self._solved = np.ones(m), Solved(self.right.v) if m and not self.right.on_device else None
        if m == 0:
            self._none = self.single(self.A, np.zeros(self.right.shape[0], self.right.dtype), None, None, {})[0]
        left = list(range(m))
        may_recycle = self.name == "gmres" and self.asked.get("recycled") is None and self._is_on_host
        if self.name == "auto" and left:
            self._column(left.pop(0))
            self._follow(self.records[0])
        if self.name in ("cg", "ca_cg") and len(left) > 1:
            left = self._blocks(left)
        plain, first, limit = self.single, 0, _BUILDING  # `first`: products of a column without what is recycled
        for j in left:
            self._column(j)
            record = self.records[j]
            if not may_recycle or record is None:
                continue
            if first == 0:
                if record.iterations > (self.asked["restart"] or RESTART):
                    first, self.single = record.products, self._recycling()
                continue
            if record.products > limit * first:
                self.single, may_recycle = plain, False
            limit = _SAVES

    @property
    def _is_on_host(self) -> bool:
        """Whether the work is certainly done on the host."""
        return not self.right.on_device and self.asked["backend"] in ("auto", HOST) and not is_matrix_there(self.A)

    def _recycling(self) -> Single:
        """gmres that goes on from column to column."""
        restart = self.asked["restart"]
        solver = recycling(min(_KEPT, max(1, restart // 3)) if isinstance(restart, int) else _KEPT)
        options = {name: self.asked[name] for name in signature(solver).parameters if name in self.asked}

        def single(A: Any, b: Any, x0: Any, callback: Any, changed: dict[str, Any]) -> tuple[Any, int, SolveStats]:
            given = {**options, **changed, "callback": callback, "return_stats": True}
            return solver(A, b, x0, **given)  # type: ignore[no-any-return]

        return single

    def _follow(self, first: SolveStats | None) -> None:
        """Take the method of the column that was solved first, and its M where that is the matrix's own diagonal."""
        assert first is not None
        if first.method in ("cg", "ca_cg") and self.asked["M"] is None and self.scaling is not None:
            M = self.scaling(self.A, self.right.column(0))
            if M is False or (M is None and "precondition" in first.seconds):
                return
            self.asked = {**self.asked, "M": M}
        self.name = first.method

    # ------------------------------------------------------------------------------------------------ by columns

    def _column(self, j: int) -> None:
        """Solve for column j, from what is known of it."""
        before, changed = self.records[j], {}
        if before is not None and self.asked.get("maxiter") is not None:
            changed["maxiter"] = max(0, int(self.asked["maxiter"]) - before.iterations)
        x0 = self.x[j]
        if x0 is None:
            x0 = self.guess.column(j) if isinstance(self.guess, Columns) else self.guess
        b = self.right.column(j)
        if x0 is None and self._solved is not None:
            x0 = self._solved.guess_for(j)
        x, info, record = self.single(self.A, b, x0, self._callback_of(j), changed)
        if info > 0 and before is not None:
            info += before.iterations
        self.x[j], self.infos[j], self.records[j] = x, info, record.after(before)
        self._told[j] = 0.0 if self._told[j] == 1.0 else self._told[j]
        if info == 0 and self._solved is not None:
            self._solved.add(j, x)

    def _callback_of(self, j: int) -> Callable[[Any], object] | None:
        """The caller's callback, given x of all columns, or the largest of their residuals."""
        callback = self.callback
        if callback is None:
            return None

        def say(value: Any) -> object:
            if np.ndim(value) == 0:
                self._told[j] = float(value)
                return callback(np.float64(self._told.max()))
            return callback(self.answer({j: value}))

        return say

    # ------------------------------------------------------------------------------------------------- by blocks

    def _blocks(self, columns: list[int]) -> list[int]:
        """Solve for columns by block conjugate gradients, as far as that goes; those that are left."""
        check_hermitian(self.asked.get("M"), self.name)
        self._check_options()
        try:
            system = self._system()
        except TOO_MUCH:
            return columns  # told with the first of them
        width = -(-len(columns) // -(-len(columns) // _MOST))  # blocks of one size
        if not self._pays(system, width) or system.units:
            system.release()
            return columns
        left: list[int] = []
        try:
            for first in range(0, len(columns), width):
                left += self._block(system, columns[first : first + width])
        except TOO_MUCH:
            left = [j for j in columns if self.records[j] is None]
        finally:
            system.release()
        self.shared = system.stats
        return left

    @staticmethod
    def _pays(system: System, width: int) -> bool:
        """Whether a block of so many columns takes less than a solve for each: by counts, which no clock changes."""
        if not system.on_device:
            return width >= _LEAST and system.matrix.nnz >= _LONG * system.n
        step = system.matrix.nbytes + _MOVED * system.n * system.dtype.itemsize
        return width > 1 and width * step >= _QUEUED

    def _check_options(self) -> None:
        """Have the solver refuse what it would: with a right-hand side of zeros it does nothing else."""
        place = {"backend": array_backend()} if self.right.on_device else {}
        self.single(self.A, np.zeros(self.right.shape[0], self.right.dtype), None, None, place)

    def _system(self) -> System:
        """The system of the first column, whose matrix, work and M are those of all."""
        names = "rtol", "atol", "M", "threads", "db", "backend"
        x0 = self.guess.column(0) if isinstance(self.guess, Columns) else None
        given = {name: self.asked[name] for name in names if name in self.asked}
        return make_system(self.name, self.A, self.right.column(0), x0, **given)

    def _block(self, system: System, columns: list[int]) -> list[int]:
        """The same for columns that make one block."""
        from akx.solvers.block_cg import BlockCG

        B, X, count = system.rows(len(columns)), system.rows(len(columns)), 0
        begun, left, targets = [], [], []
        for j in columns:
            self._take(system, self.right, j, B[count])
            size = system.checked_norm(float(system.work.norm(B[count])), B[count])
            if size == 0 or is_extreme(exponent_of(size) or 0, system.dtype):
                left.append(j)
                continue
            if isinstance(self.guess, Columns):
                self._take(system, self.guess, j, X[count])
            begun.append(j)
            targets.append(max(float(self.asked["rtol"]) * size, float(self.asked["atol"])))
            count += 1
        if count < 2:
            return columns
        B, X = B[:count], X[:count]
        most = check_count("maxiter", self.asked["maxiter"], 10 * system.n, least=0)
        block = BlockCG(system, B, X, np.array(targets), most)
        if not isinstance(self.guess, Columns):
            X[:] = 0
            if self.guess is not None:
                block.precondition(B, X)
        callback = self.callback

        def tell(X: Rows) -> None:
            assert callback is not None
            callback(self.answer({j: self._found(system, X[i]) for i, j in enumerate(begun)}))

        block.solve(None if callback is None else tell, zero_guess=self.guess is None)
        for i, j in enumerate(begun):
            record = block.record(i, self.name)
            if not (record.converged or record.residual <= record.residuals[0]):
                left.append(j)  # from the first guess
                record.residuals = record.residuals[:1]
            else:
                self.x[j] = self._found(system, X[i])
            self.records[j], self._of_blocks[j] = record, record.products
            ran_out = record.iterations >= most
            if not record.converged:
                self.infos[j] = max(1, record.iterations)
                left += [] if ran_out else [j]
        span = f"columns {begun[0]} to {begun[-1]}" if len(begun) < len(self.x) else "all columns"
        ended = f", which ended: {block.trouble}" if block.trouble else ""
        system.stats.notes.append(f"{span}: {block.steps} steps of block conjugate gradients{ended}")
        return sorted(set(left))

    def _take(self, system: System, given: Columns, j: int, out: Rows) -> None:
        """Column j into a row of the system's."""
        v = given.column(j)
        if given.on_device:
            v = backend_of(array_backend()).interchange().vector_of(v, system.n, system.dtype, given.name)
        out[:] = v if given.on_device else system.work.from_host(v.astype(system.dtype))

    def _found(self, system: System, x: Rows) -> Any:
        """A copy of a row of the system's, where the right-hand side is."""
        if not self.right.on_device:
            return np.array(system.work.to_host(x))
        copy = system.rows(1)[0]
        copy[:] = x
        return copy

    # -------------------------------------------------------------------------------------------------- the answer

    def answer(self, newer: Mapping[int, Any] = MappingProxyType({})) -> Any:
        """x of all columns, in kind; `newer`: of some of them, in place of what is known."""
        n, m = self.right.shape
        known = [newer.get(j, x) for j, x in enumerate(self.x)]
        if isinstance(self.guess, Columns):
            known = [self.guess.column(j) if x is None else x for j, x in enumerate(known)]
        if not self.right.on_device:
            dtype = np.result_type(*(x for x in known if x is not None)) if m else self._none.dtype
            found = np.zeros((n, m), dtype=dtype)
            for j, x in enumerate(known):
                if x is not None:
                    found[:, j] = x
            return found
        if m == 0:
            return self.right.given
        gpu = backend_of(array_backend())
        interchange, like = gpu.interchange(), next(x for x in known if x is not None)
        rows = gpu.vectors(interchange.dtype_of(like), n, None).rows(m, n)
        rows[:] = 0
        for j, x in enumerate(known):
            if x is not None:
                rows[j] = interchange.vector_of(x, n, rows.dtype, "x")
        return interchange.answer_like(self.right.given, rows.reshape(m * n), (n, m))

    def record(self) -> SolveStats:
        """The record of all: sums of work, and what became of the worst column."""
        columns = [record for record in self.records if record is not None]
        if not columns:
            return SolveStats(method=self.name, converged=True, reason="there is no right-hand side")
        of = self.infos.index(worst(self.infos))
        if self.infos[of] == 0:
            of = int(np.argmax([record.residual / (record.target or 1.0) for record in columns]))
        worse, shared = columns[of], self.shared
        found = replace(worse, columns=columns, notes=list(shared.notes), s=[], seconds=dict(shared.seconds))
        found.converged = all(record.converged for record in columns)
        found.iterations = max(record.iterations for record in columns)
        found.products, found.matrix_passes = shared.products, shared.matrix_passes
        for j, record in enumerate(columns):
            found.products += record.products - self._of_blocks[j]
            found.matrix_passes += record.matrix_passes - self._of_blocks[j]
            found.s += record.s
            for phase, seconds in record.seconds.items():
                found.seconds[phase] = found.seconds.get(phase, 0.0) + seconds
        is_first = self.scaling is not None and self.infos[of] == 0  # which says why the method was taken
        told = 0 if is_first else of
        for note in columns[told].notes:
            is_common = all(note in record.notes for record in columns)
            found.notes.append(note if is_common else f"column {told}: {note}")
        if self.infos[of] != 0:
            found.reason = f"column {of}: {found.reason}"
        return found
