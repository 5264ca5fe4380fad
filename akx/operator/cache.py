"""The cache of prepared operators between calls, and by what rule it is fresh.

An operator is kept for a matrix object of the caller's, its *owner*, while that lives, and is found again by what was
asked for. It is fresh where

- the owner has the content that it had, which a token of checksums says. Other values are laid out anew; where the
  pattern, or an estimated spectrum, is another one too, or where another thread changes the owner meanwhile, the
  operator is forgotten. Operators of one owner with one content have one matrix between them (each other's *sibling*);
- the plans are those that they were: changes by this process count at once, by their generation, those of others by the
  stamp of the database, which is looked at when the last look is a tenth of a second ago.

The operators of ``matrix_powers`` are used by all callers at once. A solver *borrows* its own until the solve is over.
What is kept is bounded by number and by bytes; what solvers gave back goes first. A :class:`akx.solvers.Solver` keeps
its operators in a cache of its own, as long as it lives, by the same rule.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from akx.backends import result_pool as results
from akx.core.basis import Basis
from akx.core.errors import MatrixError
from akx.core.matrix import Matrix
from akx.core.process import resolve_threads
from akx.operator import freshness
from akx.operator.freshness import Token, database_of, is_changing, place_of_plans
from akx.operator.matrix_values import same_pattern
from akx.operator.tiers import FIXED, setting
from akx.operator.workspaces import KEPT, KEPT_BYTES, Workspaces, hold_in_graph

if TYPE_CHECKING:
    from akx.core.plan import Plan
    from akx.operator.powers import MatrixPowers

__all__ = ["CACHE", "ORIGIN", "Cache", "Entry", "Origin", "clear_cache"]

#: So many times the bytes of its matrix an operator does not take: small ones need not be weighed.
_MOST_TIMES = 1000
#: In the cache of a matrix, whose it is.
ORIGIN = "akx.operator.origin"

_Key = tuple[Any, ...]


class Origin(NamedTuple):
    """Whose a canonical matrix is.

    `owner` is a weak reference to the caller's object, `token` its content, `types` the type in which its entries were
    summed and what was made of them, `cache` where operators for it are kept.
    """

    owner: Callable[[], Any]
    token: Token
    types: tuple[str, ...]
    cache: Cache


@dataclass(eq=False, repr=False)
class Entry:
    """A prepared operator, the matrix object it is for, and the content of both it and the plans when it was prepared.

    `generation`, `stamp` and `glanced` belong to the plans: changes by this process, those by others, and when they
    were last looked for. One without a `key`, or of another `epoch` than that of the cache, is not kept.
    """

    key: _Key | None
    owner: Callable[[], Any]
    token: Token
    types: tuple[str, ...]
    operator: MatrixPowers
    generation: int
    stamp: tuple[Any, ...]
    glanced: float
    epoch: int = 0
    is_lent: bool = False

    @property
    def is_captured(self) -> bool:
        """Whether callers have calls of the operator in graphs of theirs, which are launched without a word to us."""
        return bool(self.operator._prepared.captured)

    def hold_in_graph(self) -> None:
        """Where it is captured, stay until the owner goes."""
        owner = self.owner()
        if self.is_captured and owner is not None:
            hold_in_graph(owner, self)

    def is_for(self, owner: Any, basis: str | Basis) -> bool:
        """Whether it is for an object and a basis (ids, which keys are made of, may have been used again)."""
        is_same = isinstance(basis, str) or self.operator.basis == basis.head(self.operator.k)
        return self.owner() is owner and is_same

    def is_fresh(self) -> bool:
        """Whether plans are those that they were; the stamp of the database is looked at where that is due."""
        planner = self.operator._prepared.planner
        now = time.monotonic()
        if planner.given is not None:
            return True
        is_same = planner.database.generation == self.generation
        if is_same and now - self.glanced < freshness.GLANCE:
            return True
        if setting() == FIXED or (is_same and planner.database.file_stamp() == self.stamp):
            self.glanced = now
            return True
        return False

    def refresh(self) -> None:
        """Look for another plan where those in the database may have changed since the last one was looked up."""
        if self.is_fresh():
            return
        prepared = self.operator._prepared
        database = prepared.planner.database
        generation, stamp, now = database.generation, database.file_stamp(), time.monotonic()
        prepared.look_again()
        self.generation, self.stamp, self.glanced = generation, stamp, now


class Cache(Workspaces):
    """Prepared operators, the one used last at the end; `tune` is for those that solvers borrow."""

    def __init__(self, *, is_bounded: bool = True, tune: str | None = None) -> None:
        super().__init__(is_bounded=is_bounded)
        self.tune = tune
        self.entries: OrderedDict[_Key, Entry] = OrderedDict()
        self._matrices: OrderedDict[_Key, tuple[Callable[[], Any], Token, Matrix]] = OrderedDict()

    def clear(self) -> None:
        with self.lock:
            super().clear()
            for one in self.entries.values():
                one.hold_in_graph()
            self.entries.clear()
            self._matrices.clear()

    def find(
        self, key: _Key, given: Any, A: Any, basis: str | Basis, token: Token, is_captured: bool = False
    ) -> MatrixPowers | None:
        """The operator that is kept by a key for the object `given`, with the content of A, where there is one.

        In a capture that is one for which nothing has to be done.
        """
        with self.lock:
            found = self.entries.get(key)
            if found is None or not found.is_for(given, basis):
                return None
            if is_captured:
                return found.operator if found.token and token == found.token else None
            if found.token != token and not self._renew(found, A, token, basis):
                del self.entries[key]
                found.hold_in_graph()
                return None
            self.entries.move_to_end(key)
        found.refresh()  # may measure: calls for other matrices do not wait for it
        return found.operator

    def keep(self, entry: Entry) -> None:
        """Keep an operator that was just made, or given back."""
        if entry.key is None or entry.owner() is None:
            return
        with self.lock:
            if entry.epoch != self.epoch:  # it was cleared meanwhile
                return
            self.entries[entry.key] = entry
            self.entries.move_to_end(entry.key)
            if self.is_bounded:
                self._make_room(entry)

    def borrow(
        self,
        matrix: Matrix,
        k: int,
        *,
        basis: str | Basis,
        plan: Plan | None,
        threads: int | None,
        db: Any,
        backend: str,
    ) -> Entry:
        """An operator for the borrower alone, until it is kept again; made where there is none.

        `matrix` is as :func:`akx.operator.lookup.canonical` made it, else what is made is not kept.
        """
        origin: Origin | None = matrix.cache.get(ORIGIN)
        owner = None if origin is None else origin.owner()
        options: dict[str, Any] = {"basis": basis, "plan": plan, "threads": threads, "db": db, "backend": backend}
        from akx.operator.powers import MatrixPowers

        if origin is None or owner is None:
            return Entry(None, lambda: None, (), (), MatrixPowers(matrix, k, **options), 0, (), 0.0, is_lent=True)
        most = resolve_threads(threads)
        key = (id(owner), origin.types, k, basis, plan, threads is None, most, place_of_plans(db), backend, "lent")
        with self.lock:
            epoch, found = self.epoch, self.entries.pop(key, None)
            is_kept = found is not None and found.token == origin.token
            sibling = None if is_kept else self.sibling(owner, origin.types, origin.token)
        is_there = found is not None and found.is_for(owner, basis)
        if found is not None and is_there and (found.token == origin.token or _takes(found, matrix, origin.token)):
            found.refresh()
            return found
        database = database_of(db)
        generation, stamp = database.generation, database.file_stamp()
        source = sibling or (matrix.alias(0.0) if matrix is owner else matrix)
        tune = self.tune if plan is None else None
        operator = MatrixPowers(source, k, value_error=0.0, tune=tune, **options)
        held, now = self.reference(owner, key), time.monotonic()
        return Entry(key, held, origin.token, origin.types, operator, generation, stamp, now, epoch, is_lent=True)

    def sibling(self, owner: Any, types: tuple[str, ...], token: Token) -> Matrix | None:
        """The canonical matrix of the same content that another kept operator for `owner` has, or None."""
        for other in list(self.entries.values()):
            if other.owner() is owner and other.token == token and other.types == types:
                values = other.operator._prepared.values
                if values.waiting is None:  # else they are on a device, and its matrix has the old ones
                    return values.matrix
        return None

    def kept_matrix(self, owner: Any, types: tuple[str, ...]) -> tuple[Token, Matrix] | None:
        """The canonical matrix that is kept for an object, behind the content that it had then; None without one."""
        held, token, matrix = self._matrices.get((id(owner), types), (None, (), None))
        return None if matrix is None or held is None or held() is not owner else (token, matrix)

    def matrix_of(self, owner: Any, types: tuple[str, ...], token: Token) -> Matrix | None:
        """The canonical matrix of an object with this content: of a kept operator, or of a first solve; else None."""
        with self.lock:
            kept = self.kept_matrix(owner, types)
            return kept[1] if kept is not None and kept[0] == token else self.sibling(owner, types, token)

    def keep_matrix(self, owner: Any, types: tuple[str, ...], token: Token, matrix: Matrix) -> None:
        """Keep a canonical matrix for which there may be no operator yet."""
        key = id(owner), types
        with self.lock:
            self._matrices[key] = weakref.ref(owner, lambda _: self._matrices.pop(key, None)), token, matrix
            self._matrices.move_to_end(key)
            while (
                len(self._matrices) > KEPT
                or sum(one.nbytes for _, _, one in list(self._matrices.values())) > KEPT_BYTES // 4
            ):
                self._matrices.popitem(last=False)

    def like(self, owner: Any, matrix: Matrix) -> Matrix:
        """The same matrix; with what is known of its pattern where a kept operator for `owner` has that pattern."""
        for other in list(self.entries.values()):
            if other.owner() is owner and same_pattern(known := other.operator._prepared.values.matrix, matrix):
                return matrix.with_pattern_of(known)
        return matrix

    @property
    def nbytes(self) -> int:
        """Bytes of all kept operators; what they share counts once."""
        held: dict[Any, int] = {}
        for kept in list(self.entries.values()):
            held.update(kept.operator._prepared.held())
        return sum(held.values()) + self._plain_bytes

    def _renew(self, found: Entry, A: Any, token: Token, basis: str | Basis) -> bool:
        """Give the kept operator the new values of A; False where its pattern, or an estimated spectrum, is stale."""
        if isinstance(basis, str) and basis != "monomial":
            return False
        sibling = self.sibling(found.owner(), found.types, token)
        if not _takes(found, A if sibling is None else sibling, token):
            return False
        if sibling is None and is_changing(A, found.operator._prepared.planner.threads, token):
            found.token = ()
        return True

    def reference(self, owner: Any, key: _Key) -> Callable[[], Any]:
        """A weak reference to an owner, with whom goes what is kept by the key."""
        return weakref.ref(owner, lambda _: self.entries.pop(key, None))

    def _make_room(self, newest: Entry) -> None:
        """Forget what was used longest ago, as far as there is too much; what was lent goes first."""
        while True:
            entries = [one for one in list(self.entries.values()) if not one.is_captured]
            lent, own = ([one for one in entries if one.is_lent is is_lent] for is_lent in (True, False))
            mine = lent if newest.is_lent else own
            least = sum(one.operator._prepared.values.matrix.nbytes for one in entries)
            if len(mine) <= KEPT and (least * _MOST_TIMES <= KEPT_BYTES or self.nbytes <= KEPT_BYTES):
                return
            if not entries:
                return
            victim = mine[0] if len(mine) > KEPT else (lent or own)[0]
            if victim is newest and not newest.is_lent:
                return
            del self.entries[victim.key]  # type: ignore[arg-type]
            if victim is newest:
                return


#: What this process keeps.
CACHE = Cache()


def clear_cache() -> None:
    """Forget all that calls have prepared and left for later ones, and free its memory.

    That is what :func:`akx.matrix_powers` and the functions of :mod:`akx.solvers` keep for the last few matrices. What
    a call in another thread is using is forgotten when that is over, and what is in a CUDA graph of the caller's when
    the matrix goes. :class:`akx.MatrixPowers`, :class:`akx.solvers.Solver` and the plan database stay as they are.
    """
    CACHE.clear()
    live = sys.modules.get("akx.operator.mutable_csr")
    if live is not None:
        live.forget()
    results.forget()


def _takes(found: Entry, A: Any, token: Token) -> bool:
    """Whether a kept operator could be given the values of A, whose content the token is."""
    found.token = ()  # that of nothing: what follows may end anywhere
    try:
        found.operator.update_values(A)
    except MatrixError:
        return False
    found.token = token
    return True
