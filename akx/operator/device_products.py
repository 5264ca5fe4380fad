"""First calls on a device: plain products of the arrays of a matrix as they are, until preparing it has paid.

What :mod:`akx.operator.tiers` does with SciPy's products for vectors of the host. The arrays stay on the device for the
next call while the caller's matrix is what it was (:mod:`akx.operator.cache`).
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from akx.backends.program import Coefficients, PlainProducts, Program
from akx.backends.selection import HOST, array_backend, backend_of
from akx.core.basis import Basis, make_basis
from akx.core.canonical import check_shape, check_value_error, target_dtype
from akx.core.errors import DeviceMemoryError
from akx.core.matrix import Matrix, there
from akx.core.process import resolve_threads
from akx.operator.cache import CACHE
from akx.operator.freshness import has_other_threads
from akx.operator.host_products import is_finite
from akx.operator.lookup import cache_of, canonical, content_of, derived, origin_of, owner_of
from akx.operator.overflow import OverflowWatch
from akx.operator.recurrence import Recurrence
from akx.operator.start_vectors import check_out, is_on_device, is_same, overlap, start_block
from akx.operator.tiers import AUTO, Rent, look_of, rent_of, setting
from akx.operator.workspaces import hold_in_graph

__all__ = ["PlainOperator", "PlainPowers", "call_on_device", "device_rent", "give_back", "plain_on"]


class _Like(NamedTuple):
    """What is asked of a matrix whose arrays are on a device; of its pattern, the indices."""

    n: int
    pattern: Any
    dtype: np.dtype[Any]


class PlainOperator:
    """Powers for k steps, as solvers ask a :class:`akx.MatrixPowers` for them."""

    def __init__(self, products: PlainProducts, matrix: Any, k: int) -> None:
        self._program = products.program(k)
        self._recurrence = Recurrence(make_basis("monomial", k), matrix.dtype)
        self.watch = OverflowWatch(matrix, k)
        self.done: set[int] = set()  # numbers of start vectors of calls so far

    def program(self, vectors: int, basis: Basis | None = None) -> tuple[Program, Coefficients]:
        """What does calls with so many start vectors, and the coefficients to give it."""
        self._program.ready(vectors)
        self.done.add(vectors)
        found, dtype = self._recurrence, self._recurrence.result_dtype()
        return self._program, found.coefficients(dtype) if basis is None else found.coefficients_of(basis, dtype)


class PlainPowers:
    """The arrays of a matrix on a device, with an operator for each k; for one call or one solve at a time."""

    def __init__(self, products: PlainProducts, like: _Like) -> None:
        self._products, self._like = products, like
        self._operators: dict[int, PlainOperator] = {}
        self.n, self.nbytes = like.n, products.nbytes  # rows, and bytes on the device

    def like_before(self, k: int, vectors: int) -> PlainOperator | None:
        """The operator for k steps, where it has done a call with so many start vectors."""
        found = self._operators.get(k)
        return None if found is None or vectors not in found.done else found

    def operator(self, k: int) -> PlainOperator:
        """The operator for k steps."""
        if k not in self._operators:
            self._operators[k] = PlainOperator(self._products, self._like, k)
        return self._operators[k]


def device_rent(matrix: Matrix, what: Any, backend: str) -> Rent | None:
    """The rent for plain products of a canonical matrix on a device; None where it is over or there is none."""
    size = matrix.nnz, matrix.nbytes
    return rent_of(owner_of(matrix), (what, backend), *size, 0.0, on_device=True)


def plain_on(matrix: Matrix, backend: str) -> PlainPowers | None:
    """What does plain products of a canonical matrix on a device, for the caller alone; None where there is nothing."""
    owner, types, token = origin_of(matrix)
    found: PlainPowers | None
    found, of = cache_of(matrix).take_plain(owner, types, backend)
    if found is not None and of == token:
        return found
    there = matrix.on_device
    arrays = (matrix.indptr, *((matrix.indices, matrix.data) if there is None else (there.column, there.data)))
    return _made(arrays, _Like(matrix.n, matrix.pattern, matrix.dtype), backend)


def give_back(matrix: Matrix, backend: str, one: PlainPowers, epoch: int) -> None:
    """Keep what :func:`plain_on` gave for the next call."""
    owner, types, token = origin_of(matrix)
    cache_of(matrix).give_plain(owner, types, backend, one, token, epoch)


def _made(arrays: tuple[Any, ...], like: _Like, backend: str) -> PlainPowers | None:
    """By CSR arrays, which are sent to the device where they are not there."""
    try:
        products = backend_of(backend).plain_products(*arrays)
    except DeviceMemoryError:  # a plan may stream it
        return None
    return None if products is None else PlainPowers(products, like)


def call_on_device(
    A: Any,
    x: Any,
    k: int,
    *,
    basis: Any,
    out: Any,
    dtype: DTypeLike | None,
    threads: int | None,
    backend: str,
    value_error: float | None,
    is_captured: bool = False,
) -> Any:
    """The answer of :func:`akx.matrix_powers` by plain products on a device; None where it is for a prepared operator.

    `x` and A are of the host or of the device. In a capture the kernels go into the caller's graph, where a call like
    it has left all that they need, and it is no call that the rent counts; CSR of the caller's on the device
    :mod:`akx.operator.mutable_csr` captures.
    """
    if backend == HOST or setting() != AUTO:
        return None
    given = A if isinstance(A, Matrix) or sp.issparse(A) else there(A)
    if given is None or (is_captured and given is not A):
        return None
    if not (basis == "monomial" if isinstance(basis, str) else isinstance(basis, Basis) and basis.k >= k):
        return None
    check_shape(given.shape)
    target, own = target_dtype(given.dtype, dtype), given.dtype
    if not own.isnative or (own != target and not (own.kind in "iu" and dtype is None)):
        return None
    if value_error is not None:
        check_value_error(value_error)
    resolve_threads(threads)
    owner = A if given is A else given.owner
    nbytes = given.nnz * (target.itemsize + 4)
    overhead = look_of(nbytes) if given is not A and given.format == "csr" else 0.0
    rent = rent_of(owner, (k, backend), given.nnz, nbytes, overhead, on_device=True)
    if rent is None:
        return None
    call = _Call(given.shape[0], x, k, make_basis(basis, k), out, target)
    if isinstance(basis, str):
        call.basis = None
    if is_captured:
        return _captured(A, call, threads, backend)
    if not rent.goes_on(k, call.start.shape[0]):
        CACHE.drop_plain(owner, backend)
        return None
    if given is not A and call.of_device and isinstance(basis, str):
        from akx.operator import mutable_csr

        own = mutable_csr.of_products(given, call.dtype, k, rent)
        if own is not None:
            answer = _canonical_call(given, call, threads, backend) if own.is_slow else call.by(own)
            if call.is_own:
                own.know(x, answer, call.start.shape[0], call.single)
            return answer if own.is_slow else call.looked_at(answer, own)
    if given is not A or isinstance(A, Matrix) or A.format != "csr":
        return _canonical_call(given, call, threads, backend)
    return _as_it_is(A, call, rent, threads, backend)


def _as_it_is(A: Any, call: _Call, rent: Rent, threads: int | None, backend: str) -> Any:
    """V by CSR arrays of SciPy, which go to the device as they are.

    A is read once for a checksum, after the work was queued with what is there, and done again where that has changed.
    """
    epoch, types = CACHE.epoch, ("as it is", call.dtype.str)
    before = content_of(A, threads) if has_other_threads() else None
    found, of = CACHE.take_plain(A, types, backend)
    if found is not None and found.n == A.shape[0]:
        answer = call.by(found)
        token = content_of(A, threads)
        if token == of:
            CACHE.give_plain(A, types, backend, found, of, epoch)
            return call.looked_at(answer, found)
        before = token if has_other_threads() else None
    arrays = rent.pattern.arrays_of(A, A.shape[0])
    if arrays is None or not is_finite(arrays[2], arrays[2]):
        return _canonical_call(A, call, threads, backend)  # which says what is wrong
    indptr, indices, data = arrays
    like = _Like(A.shape[0], SimpleNamespace(indices=indices), call.dtype)
    found = _made((indptr, indices, data.astype(call.dtype, copy=False)), like, backend)
    answer = None if found is None else call.by(found)
    token = content_of(A, threads)
    if answer is not None and before in (None, token):  # else another thread changes it: nobody knows what this is of
        CACHE.give_plain(A, types, backend, found, token, epoch)
    return call.looked_at(answer, found)


def _captured(A: Any, call: _Call, threads: int | None, backend: str) -> Any:
    """V of a call in a capture, by what is kept for A as it is now; None where nothing is."""
    cache, owner = CACHE, A
    types: tuple[str, ...] = "as it is", call.dtype.str
    if isinstance(A, Matrix) or A.format != "csr":
        matrix = canonical(A, threads=threads)
        cache, (owner, types, token) = cache_of(matrix), origin_of(matrix)
        types = types if matrix.dtype == call.dtype else (*types, call.dtype.str)
    else:
        token = content_of(A, threads)
    epoch = cache.epoch
    found, of = cache.take_plain(owner, types, backend)
    operator = None if found is None else found.like_before(call.k, call.start.shape[0])
    try:
        answer = None if operator is None or of != token else call.captured(operator)
        if answer is not None:
            hold_in_graph(owner, found)
        return answer
    finally:
        if found is not None:
            cache.give_plain(owner, types, backend, found, of, epoch)


def _canonical_call(A: Any, call: _Call, threads: int | None, backend: str) -> Any:
    """The same with the canonical form of A, and the errors of that."""
    matrix = given = canonical(A, threads=threads)
    if given.dtype != call.dtype:
        matrix = derived(given, call.dtype.str, lambda: given.in_type(call.dtype))
    epoch = cache_of(matrix).epoch
    found = plain_on(matrix, backend)
    answer = None if found is None else call.by(found)
    if found is not None and answer is not None:
        give_back(matrix, backend, found, epoch)
    return call.looked_at(answer, found)


class _Call:
    """The arguments of one call, checked; start vectors of the host or of the device."""

    def __init__(self, n: int, x: Any, k: int, basis: Basis, out: Any, dtype: np.dtype[Any]) -> None:
        self.x, self.k, self.out = x, k, out
        self.basis: Basis | None = basis  # None for that of an operator
        self.of_device = not isinstance(x, np.ndarray) and is_on_device(x)
        self.start: Any
        self._answer: Any = None
        if self.of_device:
            self.start, self.single = _interchange().start_of(x, n)
        else:
            self.start, self.single = start_block(x, n)
        self.dtype = Recurrence(basis, dtype).result_dtype(self.start.dtype)
        vectors = self.start.shape[0]
        self.shape = (k + 1, vectors, n)
        self.wanted = (n, k + 1) if self.single else (n, vectors, k + 1)
        self._block: Any = None
        self._powers: Any = None

    def by(self, found: Any) -> Any:
        """V, by a call that may be made again with another matrix; None for an `out` that others look at."""
        program, coefficients = found.operator(self.k).program(self.shape[1], self.basis)
        if self._powers is None:
            self._answer = self._take_there() if self.of_device else self._take_here()
        if self._powers is not None:
            program.run(self._block, self._powers, coefficients)
        return self._answer

    def captured(self, operator: PlainOperator) -> Any:
        """V, whose kernels go into the graph that the caller records on the stream of x."""
        from akx.operator.device_calls import in_place, stream_for

        block, powers, answer = in_place(self.x, self.out, self.start, self.single, self.dtype, self.k + 1)
        program: Any
        program, coefficients = operator.program(self.shape[1], self.basis)
        with _interchange().runtime().active():
            program.capture_for(stream_for(self.x, self.start), block, powers, coefficients)
        return answer

    @property
    def is_own(self) -> bool:
        """Whether start vectors on the device are used where the caller has them."""
        return self.of_device and self._block is not None and self._block.pointer == self.start.pointer

    def looked_at(self, answer: Any, found: Any) -> Any:
        """The answer, after a look for an overflow in it."""
        if answer is not None and found is not None:
            watch = found.operator(self.k).watch
            watch.looks = True  # what is kept is not the caller's: how often they are warned, a filter says
            if self.of_device:
                powers = self._powers
                watch.look_on_device(lambda: powers, _interchange().default_stream())
                _interchange().hand_over(self.start)
            elif watch.is_due(self.shape[1]):
                watch.look(self._powers)
        return answer

    def _take_here(self) -> Any:
        """Start vectors of the host, and V there."""
        out, block = self.out, np.ascontiguousarray(self.start, dtype=self.dtype)
        if out is not None:
            check_out(out, self.wanted, self.dtype)
            if not out.flags.f_contiguous:
                return None
            powers = np.asarray(out).T.reshape(self.shape)
            if np.may_share_memory(block, powers) and not is_same(block, powers[0]):
                block = block.copy()
        else:
            powers = np.empty(self.shape, dtype=self.dtype)
            out = powers[:, 0].T if self.single else powers.transpose(2, 1, 0)
        self._block, self._powers = block, powers
        return out

    def _take_there(self) -> Any:
        """Start vectors on the device, and V there, of their kind."""
        x, arrays = self.x, _interchange()
        arrays.default_stream().wait_for(self.start.stream)
        block, answer = arrays.block_of(x, self.start, self.dtype), self.out
        if answer is None:
            powers, answer = arrays.make_result(x, self.shape, self.dtype, self.single)
        else:
            powers, stream = arrays.result_in(answer, self.wanted, self.dtype, self.shape)
            arrays.default_stream().wait_for(stream)
        if block.pointer != powers.pointer and overlap(block, powers):
            block = arrays.copy_of(block, self.start.stream)
        self._block, self._powers = block, powers
        return answer


@cache
def _interchange() -> Any:
    """What reads arrays of the device, where there is one."""
    return backend_of(array_backend()).interchange()
