"""First calls on a device: plain products of the arrays of a matrix as they are, until preparing it has paid.

What :mod:`akx.operator.tiers` does with SciPy's products for vectors of the host. The arrays stay on the device for the
next call while the caller's matrix is what it was (:mod:`akx.operator.cache`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from akx._canonical import check_shape, check_value_error, target_dtype
from akx.basis import Basis, make_basis
from akx.device.choose import HOST, backend_of
from akx.kernels.base import Coefficients, PlainProducts, Program
from akx.matrix import Matrix
from akx.operator.cache import cache_of, canonical, derived, owner_of
from akx.operator.overflow import OverflowWatch
from akx.operator.recurrence import Recurrence
from akx.operator.tiers import AUTO, Rent, rent_of, setting
from akx.operator.vectors import check_out, is_on_device, is_same, overlap, start_block

__all__ = ["PlainOperator", "PlainPowers", "call_on_device", "device_rent", "plain_on"]


class PlainOperator:
    """Powers for k steps, as solvers ask a :class:`akx.MatrixPowers` for them."""

    def __init__(self, products: PlainProducts, matrix: Matrix, k: int) -> None:
        self._program = products.program(k)
        self._recurrence = Recurrence(make_basis("monomial", k, matrix), matrix.dtype)
        self.watch = OverflowWatch(matrix, k)

    def program(self, vectors: int, basis: Basis | None = None) -> tuple[Program, Coefficients]:
        """What does calls with so many start vectors, and the coefficients to give it."""
        self._program.ready(vectors)
        dtype = self._recurrence.result_dtype()
        found = self._recurrence
        return self._program, found.coefficients(dtype) if basis is None else found.coefficients_of(basis, dtype)


class PlainPowers:
    """The arrays of a matrix on a device, with an operator for each k; for one call or one solve at a time."""

    def __init__(self, products: PlainProducts, matrix: Matrix) -> None:
        self._products = products
        self._pattern = Matrix(matrix.indptr, matrix.indices, matrix.data, pattern_cache=matrix.pattern_cache)
        self._operators: dict[int, PlainOperator] = {}

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return self._products.nbytes

    def operator(self, k: int) -> PlainOperator:
        """The operator for k steps."""
        found = self._operators.get(k)
        if found is None:
            found = self._operators[k] = PlainOperator(self._products, self._pattern, k)
        return found


def device_rent(matrix: Matrix, what: Any, backend: str) -> Rent | None:
    """The rent for plain products of a canonical matrix on a device; None where it is over or there is none."""
    size = matrix.nnz, matrix.nbytes
    return rent_of(owner_of(matrix), (what, backend), *size, 0.0, on_device=True)


def plain_on(matrix: Matrix, backend: str) -> PlainPowers | None:
    """What does plain products of a canonical matrix on a device, for the caller alone; None where there is nothing."""
    found: PlainPowers | None = cache_of(matrix).take_plain(matrix, backend)
    if found is not None:
        return found
    products = backend_of(backend).plain_products(matrix.indptr, matrix.indices, matrix.data)
    return None if products is None else PlainPowers(products, matrix)


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
) -> Any:
    """The answer of :func:`akx.matrix_powers` by plain products on a device; None where it is for a prepared operator.

    `x` is of the host or of the device. Reads A once for a checksum where it is not an :class:`akx.Matrix`.
    """
    if backend == HOST or setting() != AUTO or not (isinstance(A, Matrix) or sp.issparse(A)):
        return None
    if not (basis == "monomial" if isinstance(basis, str) else isinstance(basis, Basis) and basis.k >= k):
        return None
    check_shape(A.shape)
    target = target_dtype(A.dtype, dtype)
    if A.dtype != target and not (A.dtype.kind in "iu" and dtype is None):
        return None
    if value_error is not None:
        check_value_error(value_error)
    nbytes = A.nnz * (target.itemsize + 4)
    rent = rent_of(A, (k, backend), A.nnz, nbytes, 0.0, on_device=True)
    if rent is None:
        return None
    start: Any
    of_device = not isinstance(x, np.ndarray) and is_on_device(x)
    matrix = canonical(A, threads=threads)
    coefficients = make_basis(basis, k, matrix)
    if of_device:
        from akx.device.cuda import interchange

        start, single = interchange.start_of(x, matrix.n)
    else:
        start, single = start_block(x, matrix.n)
    result = Recurrence(coefficients, matrix.dtype).result_dtype(start.dtype)
    if matrix.dtype != result:
        narrow = matrix
        matrix = derived(narrow, result.str, lambda: narrow.with_values(narrow.data.astype(result)))
    cache, vectors = cache_of(matrix), start.shape[0]
    epoch = cache.epoch
    powers_of = plain_on(matrix, backend) if rent.goes_on(k, vectors) else None
    if powers_of is None:
        cache.drop_plain(matrix, backend)
        return None
    operator = powers_of.operator(k)
    operator.watch.looks = True  # what is kept is not the caller's: how often they are warned, a filter says
    program, given = operator.program(vectors, coefficients)
    wanted = (matrix.n, k + 1) if single else (matrix.n, vectors, k + 1)
    if of_device:
        answer = _there(x, start, single, out, wanted, (k + 1, vectors, matrix.n), result, program, given, operator)
    else:
        answer = _here(start, single, out, wanted, (k + 1, vectors, matrix.n), result, program, given, operator)
    if answer is not None:
        cache.give_plain(matrix, backend, powers_of, epoch)
    return answer


def _here(
    start: Any,
    single: bool,
    out: Any,
    wanted: tuple[int, ...],
    shape: tuple[int, int, int],
    dtype: np.dtype[Any],
    program: Program,
    coefficients: Coefficients,
    operator: PlainOperator,
) -> Any:
    """V for start vectors of the host, which go to the device and back; None for an `out` that others look at."""
    block = np.ascontiguousarray(start, dtype=dtype)
    if out is None:
        powers = np.empty(shape, dtype=dtype)
    else:
        check_out(out, wanted, dtype)
        if not out.flags.f_contiguous:
            return None
        powers = np.asarray(out).T.reshape(shape)
        if np.may_share_memory(block, powers) and not is_same(block, powers[0]):
            block = block.copy()
    program.run(block, powers, coefficients)
    if operator.watch.is_due(shape[1]):
        operator.watch.look(powers)
    if out is not None:
        return out
    return powers[:, 0].T if single else powers.transpose(2, 1, 0)


def _there(
    x: Any,
    start: Any,
    single: bool,
    out: Any,
    wanted: tuple[int, ...],
    shape: tuple[int, int, int],
    dtype: np.dtype[Any],
    program: Program,
    coefficients: Coefficients,
    operator: PlainOperator,
) -> Any:
    """V for start vectors on the device, of their kind: nothing waits for it."""
    from akx.device.cuda import interchange

    block = interchange.block_of(x, start, dtype)
    if out is None:
        powers, answer = interchange.make_result(x, shape, dtype, single)
    else:
        powers, answer = interchange.result_in(out, wanted, dtype, shape), out
    if block.pointer != powers.pointer and overlap(block, powers):
        block = interchange.copy_of(block)
    program.run(block, powers, coefficients)  # type: ignore[arg-type]
    operator.watch.look_on_device(powers)
    interchange.hand_over(start)
    return answer
