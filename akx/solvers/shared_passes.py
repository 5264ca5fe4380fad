"""Columns that share passes over the matrix: those of block conjugate gradients, and solves in lockstep.

When which is done is told with :mod:`akx.solvers.many`, whose state this works on.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse

from akx.backends.selection import array_backend, backend_of
from akx.core.matrix import Matrix
from akx.core.process import resolve_threads
from akx.solvers.arguments import check_count, check_hermitian, is_ours
from akx.solvers.columns import Columns, Solved
from akx.solvers.host_fallback import TOO_MUCH
from akx.solvers.registry import SOLVERS
from akx.solvers.scaling import exponent_of, is_extreme
from akx.solvers.system import Rows, System, make_system

if TYPE_CHECKING:
    from akx.solvers.many import Many, Single
    from akx.solvers.stats import SolveStats

__all__ = ["LOCKSTEP", "in_blocks", "in_lockstep"]

#: Most columns of a block.
_MOST = 16
#: On the host: the fewest columns, and entries of a row, for which a block is worth its vector work.
_LEAST, _LONG = 8, 40
#: On a device: vectors that a step of cg moves beside the matrix, and bytes that a step of all columns has to move
#: for a block to be worth it, whose steps wait for the host twice where those of single solves are queued.
_MOVED, _QUEUED = 12, 1 << 31
#: Solves in lockstep, on the host: how many at a time, and the fewest that are worth it; bytes of a matrix that comes
#: from memory for each product, and the fewest entries of a row; the most threads, as products with several vectors
#: have one thread and those with one have all (8 columns on a processor of 16: 1.8 with 2, 1.9 with 4, 1.4 with 8, 1.0
#: with 16).
_AT_A_TIME, _FEWEST, _FROM_MEMORY, _ENTRIES, _THREADS = 8, 4, 40 << 20, 16, 8
#: Steps that columns may have beside twice those of the first, where `solve` has the choice.
_MORE = 20
#: Methods that are done so; those with s steps for a pass by the classic ones, whose passes all columns share.
LOCKSTEP = ("cg", "ca_cg", "minres", "ca_minres", "bicgstab", "ca_bicgstab")


def in_lockstep(many: Many, columns: list[int], first: SolveStats | None = None) -> list[int]:
    """Solve for columns in lockstep, where that pays; those that are left.

    `first`: how `solve` has solved one by itself. The others may have twice its steps; who needs more is left, for all
    that it may try.
    """
    most = _most_in_lockstep(many, len(columns))
    if most < _FEWEST:
        return columns
    classic = many.name.removeprefix("ca_")
    single = many.single if classic == many.name and first is None else _by(classic, many, first)
    system = _system(many, classic)
    if system.units:
        system.release()
        return columns
    from akx.solvers.lockstep import Lockstep, NoThread

    lockstep, begun = Lockstep(system, most), Solved(many.right.v)
    left: list[int] = []
    taken: set[int] = set()

    def solves() -> Iterator[tuple[int, Any]]:
        for j in columns:
            if begun.is_near(j):
                left.append(j)  # it waits for those that it is a combination of
                continue
            begun.add(j, None)
            _, b, x0, say, changed = many.given(j)
            tell = None if say is None else partial(lockstep.call, say)
            yield j, partial(single, system.matrix, b, x0, tell, changed)

    def take(j: int, answer: Any, shared: int) -> None:
        many.take(j, *answer)
        many.of_shared[j] += shared
        taken.add(j)

    try:
        lockstep.run(solves(), take)
    except NoThread:
        left = [j for j in columns if j not in taken]
    finally:
        system.release()
    stats = system.stats
    stats.seconds.pop("matrix", None)  # each column has its share
    done = f"{stats.products:,} products in {stats.matrix_passes:,} passes over the matrix"
    instead = "" if classic == many.name else f" by {classic} in place of {many.name}, whose passes all columns share"
    stats.notes.append(f"{len(columns) - len(left)} columns in lockstep{instead}: {done}")
    many.shared = stats.after(many.shared)
    return left if first is None else [j for j in columns if j in left or many.infos[j] != 0]


def _by(classic: str, many: Many, first: SolveStats | None) -> Single:
    """The classic solver in place of its communication-avoiding sister, or of `solve`."""
    solver = SOLVERS[classic]
    options = {name: many.asked[name] for name in signature(solver).parameters if name in many.asked}
    if first is not None:
        most, limit = 2 * first.iterations + _MORE, options["maxiter"]
        options["maxiter"] = most if limit is None else min(most, int(limit))

    def single(A: Any, b: Any, x0: Any, callback: Any, changed: dict[str, Any]) -> tuple[Any, int, SolveStats]:
        return solver(A, b, x0, **{**options, **changed, "callback": callback, "return_stats": True})  # type: ignore[no-any-return]

    return single


def _most_in_lockstep(many: Many, count: int) -> int:
    """How many columns go together, by counts, which no clock changes; 0 where a solve for each takes less."""
    A, asked, M = many.A, many.asked, many.asked.get("M")
    if many.name not in LOCKSTEP or not many.is_on_host or not isinstance(A, Matrix):
        return 0
    if A.nbytes < _FROM_MEMORY or A.nnz < _ENTRIES * A.n or not (M is None or is_ours(M) or issparse(M)):
        return 0
    if asked.get("plan") is not None or asked.get("s", "auto") != "auto" or asked.get("basis", "auto") != "auto":
        return 0
    if resolve_threads(asked.get("threads")) > _THREADS:
        return 0
    return -(-count // -(-count // _AT_A_TIME)) if count else 0  # groups of one size


def in_blocks(many: Many, columns: list[int]) -> list[int]:
    """Solve for columns by block conjugate gradients, as far as that goes; those that are left."""
    check_hermitian(many.asked.get("M"), many.name)
    _check_options(many)
    try:
        system = _system(many, many.name)
    except TOO_MUCH:
        return columns  # told with the first of them
    width = -(-len(columns) // -(-len(columns) // _MOST))  # blocks of one size
    if not _pays(system, width) or system.units:
        system.release()
        return columns
    left: list[int] = []
    try:
        for first in range(0, len(columns), width):
            left += _block(many, system, columns[first : first + width])
    except TOO_MUCH:
        left = sorted({*left, *(j for j in columns if many.records[j] is None)})
    finally:
        system.release()
    many.shared = system.stats
    return left


def _pays(system: System, width: int) -> bool:
    """Whether a block of so many columns takes less than a solve for each: by counts, which no clock changes."""
    if not system.on_device:
        return width >= _LEAST and system.matrix.nnz >= _LONG * system.n
    step = system.matrix.nbytes + _MOVED * system.n * system.dtype.itemsize
    return width > 1 and width * step >= _QUEUED


def _check_options(many: Many) -> None:
    """Have the solver refuse what it would: with a right-hand side of zeros it does nothing else."""
    place = {"backend": array_backend()} if many.right.on_device else {}
    many.single(many.A, np.zeros(many.right.shape[0], many.right.dtype), None, None, place)


def _system(many: Many, name: str) -> System:
    """The system of the first column, whose matrix, work and M are those of all."""
    names = "rtol", "atol", "M", "threads", "db", "backend"
    x0 = many.guess.column(0) if isinstance(many.guess, Columns) else None
    given = {name: many.asked[name] for name in names if name in many.asked}
    return make_system(name, many.A, many.right.column(0), x0, **given)


def _block(many: Many, system: System, columns: list[int]) -> list[int]:
    """The same for columns that make one block."""
    from akx.solvers.block_cg import BlockCG

    B, X, count = system.rows(len(columns)), system.rows(len(columns)), 0
    begun, left, targets = [], [], []
    for j in columns:
        _into(system, many.right, j, B[count])
        size = system.checked_norm(float(system.work.norm(B[count])), B[count])
        if size == 0 or is_extreme(exponent_of(size) or 0, system.dtype):
            left.append(j)
            continue
        if isinstance(many.guess, Columns):
            _into(system, many.guess, j, X[count])
        begun.append(j)
        targets.append(max(float(many.asked["rtol"]) * size, float(many.asked["atol"])))
        count += 1
    if count < 2:
        return columns
    B, X = B[:count], X[:count]
    most = check_count("maxiter", many.asked["maxiter"], 10 * system.n, least=0)
    block = BlockCG(system, B, X, np.array(targets), most)
    if not isinstance(many.guess, Columns):
        X[:] = 0
        if many.guess is not None:
            block.precondition(B, X)
    callback = many.callback

    def tell(X: Rows) -> None:
        assert callback is not None
        callback(many.answer({j: _found(many, system, X[i]) for i, j in enumerate(begun)}))

    block.solve(None if callback is None else tell, zero_guess=many.guess is None)
    for i, j in enumerate(begun):
        record = block.record(i, many.name)
        if not (record.converged or record.residual <= record.residuals[0]):
            left.append(j)  # from the first guess
            record.residuals = record.residuals[:1]
        else:
            many.x[j] = _found(many, system, X[i])
        many.records[j], many.of_shared[j] = record, record.products
        ran_out = record.iterations >= most
        if not record.converged:
            many.infos[j] = max(1, record.iterations)
            left += [] if ran_out else [j]
    span = f"columns {begun[0]} to {begun[-1]}" if len(begun) < len(many.x) else "all columns"
    ended = f", which ended: {block.trouble}" if block.trouble else ""
    system.stats.notes.append(f"{span}: {block.steps} steps of block conjugate gradients{ended}")
    return sorted(set(left))


def _into(system: System, given: Columns, j: int, out: Rows) -> None:
    """Column j into a row of the system's."""
    v = given.column(j)
    if given.on_device:
        v = backend_of(array_backend()).interchange().vector_of(v, system.n, system.dtype, given.name)
    out[:] = v if given.on_device else system.work.from_host(v.astype(system.dtype))


def _found(many: Many, system: System, x: Rows) -> Any:
    """A copy of a row of the system's, where the right-hand side is."""
    if not many.right.on_device:
        return np.array(system.work.to_host(x))
    copy = system.rows(1)[0]
    copy[:] = x
    return copy
