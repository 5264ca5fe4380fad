"""What stays prepared between calls, for :func:`akx.matrix_powers` and for solvers, and by what rule it is fresh.

An operator is kept for a matrix object of the caller's, its *owner*, while that lives, and is found again by what was
asked for. It is fresh where

- the owner has the content that it had: a token of checksums says so, for which every call reads the owner's arrays
  once. Other values are laid out anew; where the pattern, or an estimated spectrum, is another one too, or where
  another thread changes the owner meanwhile, the operator is forgotten. Operators of one owner with one content have
  one matrix between them (each other's *sibling*);
- the plans are those that they were: changes by this process count at once, by their generation, those of others by the
  stamp of the database, which is looked at when the last look is a tenth of a second ago. What has changed is looked up
  again.

The operators of ``matrix_powers`` are used by all callers at once. A solver *borrows* its own: nobody else has them, or
gives them other values, until the solve is over. What is kept is bounded by number and by bytes; where there is no room
for all, what solvers gave back goes first. A :class:`akx.solvers.Solver` keeps its operators in a cache of its own, as
long as it lives, by the same rule.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from akx._canonical import check_shape, check_value_error, target_dtype
from akx._given import scipy_matrix
from akx._numba import is_loaded
from akx._parts import Parts
from akx.basis import Basis
from akx.device.budget import parse_limits
from akx.device.forks import ForkSafeLock
from akx.device.host import resolve_threads
from akx.errors import DeviceError, MatrixError
from akx.matrix import Matrix, content_token, there
from akx.operator.tiers import FIXED, has_other_threads, setting
from akx.operator.values import same_pattern
from akx.plan import Plan, check_plan

if TYPE_CHECKING:
    from akx.operator.powers import MatrixPowers
    from akx.plandb import PlanDatabase

__all__ = [
    "CACHE",
    "Cache",
    "Entry",
    "Recent",
    "cache_of",
    "canonical",
    "clear_cache",
    "content_of",
    "derived",
    "kept_by",
    "operator_for",
    "origin_of",
    "owner_of",
    "recent",
    "state_of_plans",
]

#: Operators that are kept, for callers and for solvers each: so many, and of so many bytes in all; the newest of
#: callers in any case.
_KEPT = 8
_KEPT_BYTES = 1 << 30
#: Work on vectors that is kept for the next solve, of each kind.
_KEPT_SPARE = 2
#: So many times the bytes of its matrix an operator does not take: small ones need not be weighed.
_MOST_TIMES = 1000
#: Bytes of a matrix for which one more thread reads along, when its checksum is formed.
_BYTES_PER_READER = 4 << 20
#: Entries that are compared at once: what is in between stays in a near cache.
_COMPARED = 1 << 16
#: Seconds for which a file of plans is taken to be unchanged by other processes.
_GLANCE = 0.1
#: In the cache of a matrix, whose it is.
_ORIGIN = "akx.operator.origin"
#: Where a key of `matrix_powers` says which database is meant.
_PLACE = 7
#: The content of a matrix that cannot change.
_CONSTANT = ("akx",)

_Key = tuple[Any, ...]
_Token = tuple[Any, ...]


@dataclass(frozen=True)
class _Origin:
    """Whose a canonical matrix is.

    Attributes
    ----------
    owner : callable
        A weak reference to the caller's object.
    token : tuple
        Its content.
    types : tuple of str
        The type in which its entries were summed, and what was made of them: the type that they then got, say.
    cache : Cache
        Where operators for it are kept.
    """

    owner: Callable[[], Any]
    token: _Token
    types: tuple[str, ...]
    cache: Cache


@dataclass
class Entry:
    """A prepared operator, the matrix object it is for, and the content of both it and the plans when it was prepared.

    `generation`, `stamp` and `glanced` belong to the plans: changes by this process, those by others, and when they
    were last looked for. One without a `key`, or of another `epoch` than that of the cache, is not kept.
    """

    key: _Key | None
    owner: Callable[[], Any]
    token: _Token
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

    def is_for(self, owner: Any, basis: str | Basis) -> bool:
        """Whether it is for an object and a basis (ids, which keys are made of, may have been used again)."""
        is_same = isinstance(basis, str) or self.operator.basis == basis.head(self.operator.k)
        return self.owner() is owner and is_same

    def refresh(self) -> None:
        """Look for another plan where those in the database may have changed since the last one was looked up."""
        prepared = self.operator._prepared
        planner = prepared.planner
        now = time.monotonic()
        if planner.given is not None:
            self.glanced = now
            return
        generation = planner.database.generation
        if generation == self.generation and now - self.glanced < _GLANCE:
            return
        if setting() == FIXED:
            self.glanced = now
            return
        stamp = planner.database.file_stamp()
        if generation != self.generation or stamp != self.stamp:
            prepared.look_again()
        self.generation, self.stamp, self.glanced = generation, stamp, now


@dataclass
class _Plain:
    """What does plain products of a matrix on a device, and is not in use; whose it is, and of which content."""

    owner: Callable[[], Any]
    token: _Token
    ones: list[Any] = field(default_factory=list)


class Cache:
    """Prepared operators, the one used last at the end.

    Parameters
    ----------
    is_bounded : bool
        Whether there are limits to what is kept.
    tune : str, optional
        As for :class:`akx.MatrixPowers`, for operators that solvers borrow.
    """

    def __init__(self, *, is_bounded: bool = True, tune: str | None = None) -> None:
        self.tune = tune
        self.entries: OrderedDict[_Key, Entry] = OrderedDict()
        self.lock = ForkSafeLock()
        self.is_bounded = is_bounded
        self.epoch = 0  # how often it was cleared
        self._captured: list[Entry] = []  # forgotten, and in graphs of callers
        self._spare: dict[Any, list[Any]] = {}
        self._plain: OrderedDict[_Key, _Plain] = OrderedDict()
        self._matrices: OrderedDict[_Key, tuple[Callable[[], Any], _Token, Matrix]] = OrderedDict()

    def clear(self) -> None:
        """Forget everything, and what is lent too once it is given back."""
        with self.lock:
            self.epoch += 1
            self.entries.clear()
            self._captured = []
            self._matrices.clear()
            self._plain.clear()
            self._spare = {}

    def take_spare(self, kind: Any) -> Any:
        """Something of a kind that a solver has done with, for the taker alone; None where there is nothing."""
        try:
            return self._spare[kind].pop()
        except (KeyError, IndexError):
            return None

    def give_spare(self, kind: Any, one: Any) -> None:
        """Let something be there for the next solver that needs one of its kind."""
        spare = self._spare
        if kind not in spare and len(spare) >= _KEPT:
            spare.clear()
        ones = spare.setdefault(kind, [])
        if len(ones) < _KEPT_SPARE:
            ones.append(one)

    def take_plain(self, owner: Any, types: tuple[str, ...], backend: str) -> tuple[Any, _Token]:
        """What does plain products of an object's arrays on a device, for the taker alone, and the content it is of.

        None where nothing is kept.
        """
        with self.lock:
            found = self._plain.get((id(owner), types, backend))
            if owner is None or found is None or found.owner() is not owner or not found.ones:
                return None, ()
            return found.ones.pop(), found.token

    def give_plain(self, owner: Any, types: tuple[str, ...], backend: str, one: Any, token: _Token, epoch: int) -> None:
        """Keep it for the next call, where that can be; `epoch` is that of the cache before it was made or taken."""
        if owner is None:
            return
        key = id(owner), types, backend
        with self.lock:
            if epoch != self.epoch:
                return
            found = self._plain.get(key)
            if found is None or found.owner() is not owner or found.token != token:
                held = weakref.ref(owner, lambda _: self._plain.pop(key, None))
                found = self._plain[key] = _Plain(held, token)
            if len(found.ones) < _KEPT_SPARE:
                found.ones.append(one)
            self._plain.move_to_end(key)
            while self.is_bounded and (len(self._plain) > _KEPT or self._plain_bytes > _KEPT_BYTES):
                self._plain.popitem(last=False)

    def drop_plain(self, owner: Any, backend: str) -> None:
        """Forget what does plain products of an object on a device: it is prepared now."""
        with self.lock:
            for key in [key for key in list(self._plain) if key[0] == id(owner) and key[2] == backend]:
                del self._plain[key]

    @property
    def _plain_bytes(self) -> int:
        return sum(one.nbytes for kept in list(self._plain.values()) for one in kept.ones)

    def find(
        self, key: _Key, given: Any, A: Any, basis: str | Basis, token: _Token, is_captured: bool = False
    ) -> MatrixPowers | None:
        """The operator that is kept by a key for the object `given`, with the content of A, where there is one.

        In a capture that is one for which nothing has to be done.
        """
        with self.lock:
            found = self.entries.get(key)
            if found is None or not found.is_for(given, basis):
                return None
            if is_captured:
                return found.operator if found.token == token else None
            if found.token != token and not self._renew(found, A, token, basis):
                del self.entries[key]
                if found.is_captured:
                    self._captured.append(found)
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

        Parameters
        ----------
        matrix : Matrix
            As :func:`canonical` made it, else what is made is not kept.
        k, basis, plan, threads, db, backend
            As for :class:`akx.MatrixPowers`.
        """
        origin: _Origin | None = matrix.cache.get(_ORIGIN)
        owner = None if origin is None else origin.owner()
        options: dict[str, Any] = {"basis": basis, "plan": plan, "threads": threads, "db": db, "backend": backend}
        from akx.operator.powers import MatrixPowers

        if origin is None or owner is None:
            return Entry(None, lambda: None, (), (), MatrixPowers(matrix, k, **options), 0, (), 0.0, is_lent=True)
        most = resolve_threads(threads)
        key = (id(owner), origin.types, k, basis, plan, threads is None, most, _place(db), backend, "lent")
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

    def sibling(self, owner: Any, types: tuple[str, ...], token: _Token) -> Matrix | None:
        """The canonical matrix of the same content that another kept operator for `owner` has, or None."""
        for other in list(self.entries.values()):
            if other.owner() is owner and other.token == token and other.types == types:
                values = other.operator._prepared.values
                if values.waiting is None:  # else they are on a device, and its matrix has the old ones
                    return values.matrix
        return None

    def kept_matrix(self, owner: Any, types: tuple[str, ...]) -> tuple[_Token, Matrix] | None:
        """The canonical matrix that is kept for an object, behind the content that it had then; None without one."""
        held, token, matrix = self._matrices.get((id(owner), types), (None, (), None))
        return None if matrix is None or held is None or held() is not owner else (token, matrix)

    def matrix_of(self, owner: Any, types: tuple[str, ...], token: _Token) -> Matrix | None:
        """The canonical matrix of an object with this content: of a kept operator, or of a first solve; else None."""
        with self.lock:
            kept = self.kept_matrix(owner, types)
            return kept[1] if kept is not None and kept[0] == token else self.sibling(owner, types, token)

    def keep_matrix(self, owner: Any, types: tuple[str, ...], token: _Token, matrix: Matrix) -> None:
        """Keep a canonical matrix for which there may be no operator yet."""
        key = id(owner), types
        with self.lock:
            self._matrices[key] = weakref.ref(owner, lambda _: self._matrices.pop(key, None)), token, matrix
            self._matrices.move_to_end(key)
            while (
                len(self._matrices) > _KEPT
                or sum(one.nbytes for _, _, one in list(self._matrices.values())) > _KEPT_BYTES // 4
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

    def _renew(self, found: Entry, A: Any, token: _Token, basis: str | Basis) -> bool:
        """Give the kept operator the new values of A; False where its pattern, or an estimated spectrum, is stale."""
        if isinstance(basis, str) and basis != "monomial":
            return False
        sibling = self.sibling(found.owner(), found.types, token)
        if not _takes(found, A if sibling is None else sibling, token):
            return False
        if sibling is None and _is_changing(A, found.operator._prepared.planner.threads, token):
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
            if len(mine) <= _KEPT and (least * _MOST_TIMES <= _KEPT_BYTES or self.nbytes <= _KEPT_BYTES):
                return
            if not entries:
                return
            victim = mine[0] if len(mine) > _KEPT else (lent or own)[0]
            if victim is newest and not newest.is_lent:
                return
            del self.entries[victim.key]  # type: ignore[arg-type]
            if victim is newest:
                return


#: What this process keeps.
CACHE = Cache()


def database_of(db: Any) -> PlanDatabase:
    """The plan database that is named, by modules that first calls have no need of."""
    from akx.plandb import database_of as named

    return named(db)


def clear_cache() -> None:
    """Forget all that calls have prepared and left for later ones, and free its memory.

    That is what :func:`akx.matrix_powers` and the functions of :mod:`akx.solvers` keep for the last few matrices. The
    next call prepares anew, and gives the same. What a call in another thread is using is forgotten when that is over.
    :class:`akx.MatrixPowers` and :class:`akx.solvers.Solver` stay as they are, and so does the plan database.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, akx
    >>> A = sp.eye_array(3, format="csr")
    >>> V = akx.matrix_powers(A, np.ones(3), k=2)
    >>> akx.clear_cache()
    """
    CACHE.clear()


def operator_for(
    A: Any,
    k: int,
    basis: str | Basis,
    plan: Plan | None,
    dtype: Any,
    threads: int | None,
    db: Any,
    backend: str,
    limits: tuple[int | str | None, float | None] = (None, None),
    value_error: float | None = None,
    *,
    is_captured: bool = False,
) -> MatrixPowers:
    """The operator for a call of :func:`akx.matrix_powers`, kept from a call before or made, and then kept.

    Raises DeviceError where the call is captured into a graph and has to be made.
    """
    given, A = _read(A)
    target = target_dtype(A.dtype, dtype)
    most = resolve_threads(threads)
    named = basis if isinstance(basis, str) else id(basis)
    limits = parse_limits(*limits)  # before it is part of a key: equal ones are to be equal, and wrong ones named
    check_plan(plan)
    own = A.value_error if isinstance(A, Matrix) else 0.0
    allowed = own if value_error is None else check_value_error(value_error)
    types = (target.str,)
    key = (id(given), types, k, named, plan, threads is None, most, _place(db), str(backend), limits, allowed)
    token = _token(A, most)
    found = CACHE.find(key, given, A, basis, token, is_captured)
    if found is not None:
        return found
    if is_captured:
        raise DeviceError(
            "nothing is prepared for this matrix as it is, and nothing can be in a capture",
            hint="call it once before capture",
        )
    source = CACHE.sibling(given, types, token)
    database, epoch = database_of(db), CACHE.epoch
    generation, stamp = database.generation, database.file_stamp()  # before the lookup: a change since is then seen
    if source is None:  # a Matrix must not be kept alive by what is kept for it
        source = A.alias(0.0) if isinstance(A, Matrix) else A
    options: dict[str, Any] = {"memory_budget": limits[0], "fraction": limits[1], "value_error": allowed}
    from akx.operator.powers import MatrixPowers

    operator = MatrixPowers(
        source, k, basis=basis, plan=plan, dtype=target, threads=threads, db=db, backend=backend, **options
    )
    if source is A and _is_changing(A, most, token):  # nobody knows what this is for
        return operator
    try:
        owner = CACHE.reference(given, key)
    except TypeError:  # a sparse class without weak references is not kept
        return operator
    CACHE.keep(Entry(key, owner, token, types, operator, generation, stamp, time.monotonic(), epoch))
    return operator


class Recent:
    """A call of :func:`akx.matrix_powers` with arrays on a device, for the next one with the same matrix object.

    Parameters
    ----------
    entry : Entry
        For an :class:`akx.Matrix`, by the user's database, with defaults.
    is_there : callable
        Whether a start vector of this type is on the device.
    """

    def __init__(self, entry: Entry, is_there: Callable[[Any], bool]) -> None:
        self._entry, self._is_there = weakref.ref(entry), is_there
        assert entry.key is not None
        self._key, self._place = entry.key, entry.key[_PLACE]

    def operator(self, A: Matrix, x: Any) -> MatrixPowers | None:
        """The operator, where it is for these and a look at the plans is not due; as :meth:`Cache.find` has it."""
        entry = self._entry()
        if entry is None or entry.owner() is not A or not self._is_there(x) or _place(None) != self._place:
            return None
        planner = entry.operator._prepared.planner
        if planner.database.generation != entry.generation or time.monotonic() - entry.glanced >= _GLANCE:
            return None
        try:
            CACHE.entries.move_to_end(self._key)
        except KeyError:  # it is not kept any more
            return None
        return entry.operator


def recent(operator: MatrixPowers, x: Any) -> Recent | None:
    """What the next call needs that is like one that this operator was for; None where it is not kept."""
    from akx.device.cuda.callers import library_of

    entry = next((one for one in list(CACHE.entries.values()) if one.operator is operator), None)
    return None if entry is None else Recent(entry, library_of(type(x)).is_there)


def canonical(A: Any, *, threads: int | None = None) -> Matrix:
    """The canonical matrix of A, with values as they are, for which operators can be borrowed.

    It is that of a kept operator where A has not changed since. Raises as :meth:`Matrix.from_any` does.
    """
    if isinstance(A, Matrix):
        origin: _Origin | None = A.cache.get(_ORIGIN)
        if origin is None:
            origin = _Origin(weakref.ref(A), _CONSTANT, (A.dtype.str,), CACHE)
        return _of(A.with_value_error(0.0), origin)
    given, A = _read(A)
    check_shape(A.shape)
    types = (target_dtype(A.dtype, None).str,)
    kept = CACHE.kept_matrix(given, types)
    if kept is not None and _is_copied(A, kept[1]):
        origin = kept[1].cache.get(_ORIGIN)
        if origin is not None and origin.token == kept[0] and origin.owner() is given:
            return kept[1]
    most = resolve_threads(threads)
    try:
        owner: Callable[[], Any] = weakref.ref(given)
    except TypeError:
        return Matrix.from_any(A)
    token = _token(A, most)
    matrix = CACHE.matrix_of(given, types, token)
    if matrix is None:
        matrix = Matrix.from_any(A)
        if _is_changing(A, most, token):  # nobody knows what this is
            return matrix
        matrix = CACHE.like(given, matrix)
        CACHE.keep_matrix(given, types, token, matrix)
    return _of(matrix.with_value_error(0.0), _Origin(owner, token, types, CACHE))


def _read(A: Any) -> tuple[Any, Any]:
    """What is kept for A, and A as its content is read: its own arrays on a GPU, or a matrix of SciPy.

    Another library's matrix of the host is converted in every call, to see whether it changed. A tuple of arrays is
    another one in each call: what is kept is for its data.
    """
    if isinstance(A, Matrix):
        return A, A
    found = there(A)
    if found is not None:
        return found.owner, found
    return A, scipy_matrix(A)


def origin_of(matrix: Matrix) -> tuple[Any, tuple[str, ...], _Token]:
    """The caller's object that a canonical matrix is of, what was made of it, and its content; None of nobody's."""
    origin: _Origin | None = matrix.cache.get(_ORIGIN)
    return (None, (), ()) if origin is None else (origin.owner(), origin.types, origin.token)


def owner_of(matrix: Matrix) -> Any:
    """The caller's object that a canonical matrix is of, itself where nobody knows."""
    origin: _Origin | None = matrix.cache.get(_ORIGIN)
    owner = None if origin is None else origin.owner()
    return matrix if owner is None else owner


def derived(matrix: Matrix, how: str, make: Callable[[], Matrix]) -> Matrix:
    """What `make` makes of a canonical matrix, for which operators can be borrowed as well.

    It is made once while an operator for it is kept, and the matrix is the same. `how` tells it from others.
    """
    origin: _Origin | None = matrix.cache.get(_ORIGIN)
    if origin is None:
        return make()
    origin = replace(origin, types=(*origin.types, how))
    with origin.cache.lock:
        found = origin.cache.sibling(origin.owner(), origin.types, origin.token)
    made = (make() if found is None else found).with_value_error(0.0)
    return _of(made.alias(0.0) if made is matrix else made, origin)


def kept_by(owner: Any, matrix: Matrix, cache: Cache, version: int) -> Matrix:
    """The matrix, with operators for it kept in a cache of its own as long as `owner` lives.

    Those of another `version` get its values.
    """
    return _of(matrix.alias(0.0), _Origin(weakref.ref(owner), (*_CONSTANT, version), (matrix.dtype.str,), cache))


def cache_of(matrix: Matrix) -> Cache:
    """Where operators for a canonical matrix are kept."""
    origin: _Origin | None = matrix.cache.get(_ORIGIN)
    return CACHE if origin is None else origin.cache


def _of(matrix: Matrix, origin: _Origin) -> Matrix:
    matrix.cache[_ORIGIN] = origin
    return matrix


def _takes(found: Entry, A: Any, token: _Token) -> bool:
    """Whether a kept operator could be given the values of A, whose content the token is."""
    found.token = ()  # that of nothing: what follows may end anywhere
    try:
        found.operator.update_values(A)
    except MatrixError:
        return False
    found.token = token
    return True


def _token(A: Any, threads: int) -> _Token:
    """The content of A, read by as many threads as its size is worth; an akx.Matrix cannot change."""
    if isinstance(A, Matrix):
        return _CONSTANT
    octets = A.nnz * (A.dtype.itemsize + 4)
    return content_token(A, threads=max(1, min(threads, octets // _BYTES_PER_READER)))


def content_of(A: Any, threads: int | None) -> _Token:
    """What tells the content of a matrix from any other that it may have; reads it once."""
    return _token(A, resolve_threads(threads))


def _is_copied(A: Any, matrix: Matrix) -> bool:
    """Whether the arrays of A are those of its canonical matrix, bit for bit; also False where a token is as quick."""
    if isinstance(A, Parts) or A.format != "csr" or (is_loaded() and matrix.nbytes > _BYTES_PER_READER):
        return False
    is_like = A.shape == matrix.shape and _is_equal(A.indptr, matrix.indptr)
    return is_like and _is_equal(A.indices, matrix.indices) and _is_equal(A.data, matrix.data)


def _is_equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape or not one.flags.c_contiguous:
        return False
    kind = np.int32 if one.itemsize == 4 else np.int64  # bits: zeros have signs
    one, other = one.view(kind), other.view(kind)
    if one.size <= _COMPARED:
        return not np.count_nonzero(one != other)
    pieces = (slice(start, start + _COMPARED) for start in range(0, one.size, _COMPARED))
    return not any(np.count_nonzero(one[piece] != other[piece]) for piece in pieces)


def _is_changing(A: Any, threads: int, token: _Token) -> bool:
    """Whether another thread has changed A since its content was read; where there is no other, nothing is read."""
    return has_other_threads() and _token(A, threads) != token


#: By what names them: databases of plans, their stamps, and when they were looked at.
_GLANCED: dict[Any, tuple[PlanDatabase, tuple[Any, ...], float]] = {}


def state_of_plans(db: Any) -> tuple[Any, ...]:
    """The database that `db` names and what differs after plans changed: by this process, or 0.1 s ago by others."""
    place, now = _place(db), time.monotonic()
    found = _GLANCED.get(place)
    if found is None or now - found[2] >= _GLANCE:
        database = database_of(db)
        if len(_GLANCED) >= _KEPT:
            _GLANCED.clear()
        found = _GLANCED[place] = database, database.file_stamp(), now
    return found[0].path, found[0].generation, found[1]


def _place(db: Any) -> Any:
    """What decides which file or server `db` names, without a look at the file system."""
    if db is None:
        return tuple(map(os.environ.get, ("AKX_DB", "XDG_DATA_HOME", "HOME")))
    if isinstance(db, str) and "://" in db:
        return db
    return os.path.abspath(db) if isinstance(db, (str, os.PathLike)) else database_of(db)
