"""Look-ups in the cache: the operator that a call has, and the canonical matrix of what a caller gives."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse

from akx.backends.memory_budget import parse_limits
from akx.core.basis import Basis
from akx.core.canonical import check_shape, check_value_error, target_dtype
from akx.core.errors import DeviceError
from akx.core.matrix import Matrix, sent
from akx.core.process import resolve_threads
from akx.operator import freshness
from akx.operator.background_compile import summing_by
from akx.operator.cache import CACHE, ORIGIN, Cache, Entry, Origin
from akx.operator.freshness import CONSTANT, Token, database_of, is_changing, is_copied, place_of_plans, read, token_of
from akx.operator.tiers import CSR

if TYPE_CHECKING:
    from akx.core.plan import Plan
    from akx.operator.powers import MatrixPowers

__all__ = [
    "Recent",
    "cache_of",
    "canonical",
    "content_of",
    "derived",
    "kept_by",
    "operator_for",
    "origin_of",
    "owner_of",
    "recent",
]

#: Formats whose entries are an array.
_ARRAYS = ("csr", "csc", "coo", "bsr", "dia")
#: Where a key of `matrix_powers` says which database is meant.
_PLACE = 7
#: What helps where a capture finds nothing: in any case, and for a matrix on a GPU, as CSR and in other forms.
_BEFORE = "call it once before capture, with the same arguments"
_LIKE_THIS = f"{_BEFORE}; other bases and options need an akx.MatrixPowers"
_AS_CSR = "pass it as CSR, which the graph reads each time, or as an akx.Matrix, which cannot change"


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

    Raises DeviceError where the call is captured into a graph and has to be made, or could not look at A there.
    """
    given, A = read(A)
    target = target_dtype(A.dtype, dtype)
    most = resolve_threads(threads)
    named = basis if isinstance(basis, str) else id(basis)
    limits = parse_limits(*limits)  # before it is part of a key: equal ones are to be equal, and wrong ones named
    if plan is not None:
        from akx.core.plan import check_plan

        check_plan(plan)
    own = A.value_error if isinstance(A, Matrix) else 0.0
    allowed = own if value_error is None else check_value_error(value_error)
    types = (target.str,)
    key = (id(given), types, k, named, plan, threads is None, most, place_of_plans(db), str(backend), limits, allowed)
    is_unread = is_captured and not isinstance(A, Matrix) and not issparse(A)  # on a GPU that cannot be asked now
    if is_unread and A.format != "csr":
        raise DeviceError(
            "CSC and COO cannot be put in order in a capture: the host looks at their indices on the way", hint=_AS_CSR
        )
    token = () if is_unread else token_of(A, most)
    found = None if is_unread else CACHE.find(key, given, A, basis, token, is_captured)
    if found is not None:
        return found
    if is_captured:
        raise DeviceError(
            "nothing is prepared for this matrix as it is, and nothing can be in a capture",
            hint=_LIKE_THIS if is_unread else _BEFORE,
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
    if source is A and is_changing(A, most, token):  # nobody knows what this is for
        return operator
    try:
        owner = CACHE.reference(given, key)
    except TypeError:  # a sparse class without weak references is not kept
        return operator
    CACHE.keep(Entry(key, owner, token, types, operator, generation, stamp, time.monotonic(), epoch))
    return operator


def content_of(A: Any, threads: int | None) -> Token:
    """What tells the content of A from any other that it may have; reads it once, while a device works."""
    most = resolve_threads(threads)
    summing = summing_by(most, A.data.nbytes) if issparse(A) and A.format in _ARRAYS else None
    return token_of(A, most, summing)


class Recent:
    """A call of :func:`akx.matrix_powers` on a device, for the next one with the same matrix object.

    `entry` is by the user's database, with defaults; ``is_there(x)``: whether a start vector is where that one was.
    """

    def __init__(self, entry: Entry, is_there: Callable[[Any], bool]) -> None:
        self._entry, self._is_there = weakref.ref(entry), is_there
        assert entry.key is not None
        self._key, self._place = entry.key, entry.key[_PLACE]

    @property
    def token(self) -> Token:
        """The content of the matrix that the operator is for; that of nothing where it is not kept any more."""
        entry = self._entry()
        return () if entry is None else entry.token

    def operator(self, A: Any, x: Any, *, is_captured: bool = False) -> MatrixPowers | None:
        """The operator, where it is for these and a look at the plans is not due; as :meth:`Cache.find` has it.

        In a capture there is no such look.
        """
        entry = self._entry()
        if entry is None or entry.owner() is not A or not self._is_there(x) or place_of_plans(None) != self._place:
            return None
        if not is_captured:
            database = entry.operator._prepared.planner.database
            is_due = time.monotonic() - entry.glanced >= freshness.GLANCE
            if (is_due or database.generation != entry.generation) and not entry.is_fresh():
                return None
        try:
            CACHE.entries.move_to_end(self._key)
        except KeyError:  # it is not kept any more
            return None
        return entry.operator


def recent(operator: MatrixPowers, x: Any) -> Recent | None:
    """What the next call needs that is like one that this operator was for; None where it is not kept."""
    entry = next((one for one in list(CACHE.entries.values()) if one.operator is operator), None)
    if entry is None:
        return None
    if isinstance(x, np.ndarray):
        return Recent(entry, lambda x: True)
    from akx.backends.selection import array_backend, backend_of

    return Recent(entry, backend_of(array_backend()).caller_arrays().library_of(type(x)).is_there)


def canonical(A: Any, *, threads: int | None = None, on_device: bool = False) -> Matrix:
    """The canonical matrix of A, with values as they are, for which operators can be borrowed.

    It is that of a kept operator where A has not changed since. With `on_device` a large one of SciPy's is made, and
    looked at, in the memory of the GPU. Raises as :meth:`Matrix.from_any` does.
    """
    if isinstance(A, Matrix):
        origin: Origin | None = A.cache.get(ORIGIN)
        if origin is None:
            origin = Origin(weakref.ref(A), CONSTANT, (A.dtype.str,), CACHE)
        return _of(A.with_value_error(0.0), origin)
    on_gpu = sent(A) if on_device else None
    found = _copied(A, A, (A.data.dtype.str,)) if on_gpu is None and type(A) in CSR else None  # what most callers have
    if found is not None:
        return found
    given, A = read(A) if on_gpu is None else (A, on_gpu)
    check_shape(A.shape)
    types = (target_dtype(A.dtype, None).str, *(() if on_gpu is None else ("sent",)))
    found = _copied(given, A, types)
    if found is not None:
        return found
    most = resolve_threads(threads)
    try:
        owner: Callable[[], Any] = weakref.ref(given)
    except TypeError:
        return Matrix.from_any(A)
    token = token_of(A, most)
    matrix = CACHE.matrix_of(given, types, token)
    if matrix is None:
        matrix = Matrix.from_any(A)
        if is_changing(A, most, token):  # nobody knows what this is
            return matrix
        matrix = CACHE.like(given, matrix)
        CACHE.keep_matrix(given, types, token, matrix)
    return _of(matrix.with_value_error(0.0), Origin(owner, token, types, CACHE))


def _copied(given: Any, A: Any, types: tuple[str, ...]) -> Matrix | None:
    """The canonical matrix that is kept for an object whose arrays, those of A, it still is a copy of."""
    kept = CACHE.kept_matrix(given, types)
    if kept is None or not is_copied(A, kept[1]):
        return None
    origin: Origin | None = kept[1].cache.get(ORIGIN)
    return kept[1] if origin is not None and origin.token == kept[0] and origin.owner() is given else None


def origin_of(matrix: Matrix) -> tuple[Any, tuple[str, ...], Token]:
    """The caller's object that a canonical matrix is of, what was made of it, and its content; None of nobody's."""
    origin: Origin | None = matrix.cache.get(ORIGIN)
    return (None, (), ()) if origin is None else (origin.owner(), origin.types, origin.token)


def owner_of(matrix: Matrix) -> Any:
    """The caller's object that a canonical matrix is of, itself where nobody knows."""
    origin: Origin | None = matrix.cache.get(ORIGIN)
    owner = None if origin is None else origin.owner()
    return matrix if owner is None else owner


def derived(matrix: Matrix, how: str, make: Callable[[], Matrix]) -> Matrix:
    """What `make` makes of a canonical matrix, for which operators can be borrowed as well.

    It is made once while an operator for it is kept, and the matrix is the same. `how` tells it from others.
    """
    origin: Origin | None = matrix.cache.get(ORIGIN)
    if origin is None:
        return make()
    origin = origin._replace(types=(*origin.types, how))
    with origin.cache.lock:
        found = origin.cache.sibling(origin.owner(), origin.types, origin.token)
    made = (make() if found is None else found).with_value_error(0.0)
    return _of(made.alias(0.0) if made is matrix else made, origin)


def kept_by(owner: Any, matrix: Matrix, cache: Cache, version: int) -> Matrix:
    """The matrix, with operators for it kept in a cache of its own as long as `owner` lives.

    Those of another `version` get its values.
    """
    return _of(matrix.alias(0.0), Origin(weakref.ref(owner), (*CONSTANT, version), (matrix.dtype.str,), cache))


def cache_of(matrix: Matrix) -> Cache:
    """Where operators for a canonical matrix are kept."""
    origin: Origin | None = matrix.cache.get(ORIGIN)
    return CACHE if origin is None else origin.cache


def _of(matrix: Matrix, origin: Origin) -> Matrix:
    matrix.cache[ORIGIN] = origin
    return matrix
