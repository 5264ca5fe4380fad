"""Several right-hand sides: b of shape (n, m) for every solver, and x of that shape.

By blocks. cg and ca_cg begin with block conjugate gradients (:mod:`akx.solvers.block_cg`) for up to 16 columns, which
share every pass over the matrix and one Krylov space: on the host for 8 columns and more where rows have 40 entries and
more, on a GPU where a step of all columns moves 2 GiB (which is reckoned, not measured). On the host 16 columns of
bcsstk16, 60 entries in a row, take 123 passes and 0.4 of the time of cg for each, 7,852 passes; for a 27-point
operator, 44 passes in place of 1,061, twice the time: p columns cost 7 p multiplications for each row, step and column
beside those of the matrix. What a block leaves is solved column by column from the best x.

In lockstep. On the host, where a matrix comes from memory for each product (40 MiB) and rows have 16 entries and more,
4 columns and more have products in common, up to 8 of them at a time, each with steps of its own
(:mod:`akx.solvers.lockstep`), with up to 8 threads, beyond which single solves are as quick: of bicgstab and minres, of
their communication-avoiding sisters by the classic method, and of cg where there are no blocks. With 8 vectors a
product takes 0.4 of what 8 products take for 59 entries in a row of 140,000, or 20 of an unstructured 80^3, 0.65 by
diagonals (27-point 80^3); in a cache no less than all of it where rows are short or diagonals. Powers of 8 vectors cost
a tenth less than products, so that blocks of steps have nothing to save. gmres is left out, whose orthogonalisation
takes most of the time: with 57 to 76 entries in a row shared passes took 0.9 to 1.1 of the CPU time of single solves.
So is an M of others, which takes most of it too. Where `solve` has solved the first column by one of these methods, the
others may have twice its steps; who needs more goes on alone, by all that `solve` may try.

By columns. Everything else goes one column after another, with the matrix, the plans, layouts, compiled code and M of
the first. A column whose right-hand side is near to a combination of those before begins at that of their x
(:mod:`akx.solvers.columns`). Where the first one has taken gmres more than a cycle, the next keep 10 vectors that slow
it down (:mod:`akx.solvers.gcro_dr`), on the host, as long as that halves the products: each step has 40 n
multiplications more. 8 columns of sherman5 with Jacobi's M took 1,215 products in place of 4,508, and 0.4 of the CPU
time. On a GPU steps in lockstep would wait for the host, where the steps of single solves are queued.

Why no block GMRES. That (Vital 1990; Saad 2003, sec. 6.12) of m columns makes m times as many vectors orthogonal for
each of them, and restarted it saves no steps: 4 columns of two convection-diffusion problems took 290 and 486 block
steps, where one takes 287 and 391.
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
from akx.solvers.arguments import RESTART, named
from akx.solvers.columns import Columns, Solved, columns_in, read_once, worst
from akx.solvers.registry import recycling
from akx.solvers.shared_passes import LOCKSTEP, in_blocks, in_lockstep
from akx.solvers.stats import SolveStats
from akx.solvers.system import Answer

__all__ = ["by_columns", "takes_columns"]

P = ParamSpec("P")

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
    many = Many(name, single, read_once(A, right, asked), right, guess, asked, callback, scaling)
    many.solve()
    found = many.record()
    found.seconds["total"] = time.perf_counter() - begun
    return many.answer(), worst(many.infos), found


@dataclass
class Many:
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
    shared: SolveStats = field(default_factory=SolveStats)  # of blocks and of solves in lockstep
    of_shared: list[int] = field(default_factory=list)  # products of a column that are in `shared`
    _newest: dict[int, Any] = field(default_factory=dict)  # x of columns that are under way

    def solve(self) -> None:
        """Blocks, where these pay; then what is left, one column after another."""
        m = self.right.shape[1]
        self.x, self.infos, self.records, self.of_shared = [None] * m, [0] * m, [None] * m, [0] * m
        self._told, self._solved = np.ones(m), Solved(self.right.v) if m and not self.right.on_device else None
        if m == 0:
            self._none = self.single(self.A, np.zeros(self.right.shape[0], self.right.dtype), None, None, {})[0]
        left = list(range(m))
        may_recycle = self.name == "gmres" and self.asked.get("recycled") is None and self.is_on_host
        is_auto = self.name == "auto"
        if is_auto and left:
            self._column(left.pop(0))
            self._follow(self.records[0])
        if self.name in ("cg", "ca_cg") and len(left) > 1:
            left = in_blocks(self, left)
        if not is_auto or (left and self.infos[0] == 0):
            left = in_lockstep(self, left, self.records[0] if is_auto else None)
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
    def is_on_host(self) -> bool:
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
        if first.method in LOCKSTEP and self.asked["M"] is None and self.scaling is not None:
            M = self.scaling(self.A, self.right.column(0))
            if M is False or (M is None and "precondition" in first.seconds):
                return
            self.asked = {**self.asked, "M": M}
        self.name = first.method

    # ------------------------------------------------------------------------------------------------ by columns

    def _column(self, j: int) -> None:
        """Solve for column j."""
        self.take(j, *self.single(*self.given(j)))

    def given(self, j: int) -> tuple[Any, Any, Any, Callable[[Any], object] | None, dict[str, Any]]:
        """What a single solver is given for column j, from what is known of it."""
        before, changed = self.records[j], {}
        if before is not None and self.asked.get("maxiter") is not None:
            changed["maxiter"] = max(0, int(self.asked["maxiter"]) - before.iterations)
        x0 = self.x[j]
        if x0 is None:
            x0 = self.guess.column(j) if isinstance(self.guess, Columns) else self.guess
        if x0 is None and self._solved is not None:
            x0 = self._solved.guess_for(j)
        return self.A, self.right.column(j), x0, self._callback_of(j), changed

    def take(self, j: int, x: Any, info: int, record: SolveStats) -> None:
        """Column j has this answer."""
        before = self.records[j]
        if info > 0 and before is not None:
            info += before.iterations
        self.x[j], self.infos[j], self.records[j] = x, info, record.after(before)
        self._newest.pop(j, None)
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
            self._newest[j] = value
            return callback(self.answer(self._newest))

        return say

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
            found.products += record.products - self.of_shared[j]
            found.matrix_passes += record.matrix_passes - self.of_shared[j]
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
        else:
            found.reason = max(columns, key=lambda record: record.iterations).reason
        return found
