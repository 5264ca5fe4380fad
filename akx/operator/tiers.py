"""The first calls with a matrix: plain products of its arrays as they are, until preparing it has paid.

To prepare costs seconds and to go without costs some of every call; how many calls come nobody knows. So it is done as
in ski rental (Karlin, Manasse, Rudolph and Sleator, Competitive snoopy caching, Algorithmica 3 (1988) 79-119): when the
calls so far have cost as much more than prepared ones as preparing costs. Whatever comes, all of it takes at most twice
as long as the better of the two would have.

No clock is asked. What calls and preparing cost comes from the size of the matrix and constants measured on one
machine, so that the same calls in the same order are done the same way, with the same bits, in every process. The first
matrix that is prepared pays for Numba too. Calls so short that the checks of a prepared one are dearer than its gain
stay as they are.

``AKX_PREPARE=always`` prepares at once. ``AKX_PREPARE=fixed`` does too, and a matrix keeps the plan that it has got:
the same bits with every call.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from akx._canonical import check_shape, check_value_error, target_dtype
from akx._numba import is_loaded
from akx.basis import Basis
from akx.device.host import resolve_threads
from akx.errors import ArgumentError, brief
from akx.matrix import Matrix
from akx.operator.overflow import OverflowWatch, is_looked_at
from akx.operator.vectors import check_out, is_same, start_block

__all__ = [
    "ALWAYS",
    "AUTO",
    "FIXED",
    "Rent",
    "csr_product",
    "forget",
    "plain_powers",
    "powers_into",
    "product_into",
    "rent_of",
    "setting",
]

AUTO, ALWAYS, FIXED = "auto", "always", "fixed"
_TYPES = tuple(np.dtype(t) for t in (np.float32, np.float64, np.complex64, np.complex128))

#: Seconds: Numba and its code in a new process; a matrix, and each of its entries; the checks of a prepared call, and
#: each entry that they read.
_PROCESS, _MATRIX, _ENTRY, _CALL, _CHECKED = 0.7, 5e-3, 1e-7, 5e-5, 2e-10
#: Seconds for each entry of a plain product from a cache and from memory, bytes where the one begins and the other, and
#: the share of it that a prepared one is spared.
_NEAR, _FAR, _CACHE, _MEMORY, _SPARED = 0.65e-9, 2.8e-9, 8 << 20, 40 << 20, 0.55


def setting() -> str:
    """``AKX_PREPARE``. Raises :class:`ArgumentError` where it is none of its words."""
    word = os.environ.get("AKX_PREPARE", AUTO) or AUTO
    if word not in (AUTO, ALWAYS, FIXED):
        expected = " or ".join((AUTO, ALWAYS, FIXED))
        raise ArgumentError("AKX_PREPARE is unknown", expected=expected, found=brief(word), hint="correct or unset it")
    return word


class Rent:
    """What products with one matrix have cost more than prepared ones would have, in seconds.

    Parameters
    ----------
    owner : callable
        A weak reference to what the matrix is kept for.
    entries, nbytes : int
        Of the matrix.
    overhead : float
        Seconds that a prepared call takes beside its products.

    Attributes
    ----------
    is_over : bool
        Whether preparing has paid.
    calls : int
        Of plain products, so far.
    """

    def __init__(self, owner: Callable[[], Any], entries: int, nbytes: int, overhead: float) -> None:
        self.owner = owner
        self.is_over, self.calls = False, 0
        self._lost, self._price = 0.0, _MATRIX + _ENTRY * entries
        far = min(max((nbytes - _CACHE) / (_MEMORY - _CACHE), 0.0), 1.0)
        self._product = entries * (_NEAR + far * (_FAR - _NEAR)) * _SPARED
        self._overhead = overhead

    def goes_on(self, k: int, vectors: int = 1) -> bool:
        """Whether a call of k products is better done without preparing; it counts as one that was."""
        global _lost
        self.calls += 1
        saved = self._product * k * (1 + vectors) / 2 - self._overhead
        if saved > 0 and not self.is_over:
            self._lost += saved
            _lost += saved
            self.is_over = self._lost >= self._price and (is_loaded() or _lost >= _PROCESS)
        return not self.is_over


_RENTS: dict[tuple[int, Any], Rent] = {}
_lost = 0.0  # by all matrices of this process


def rent_of(owner: Any, what: Any, entries: int, nbytes: int, overhead: float) -> Rent | None:
    """The rent for a use of what an object stands for; None where it is over, or nothing can be kept for the object."""
    key = id(owner), what
    found = _RENTS.get(key)
    if found is None or found.owner() is not owner:
        try:
            reference = weakref.ref(owner, lambda _: _RENTS.pop(key, None))
        except TypeError:  # a class without weak references
            return None
        found = _RENTS[key] = Rent(reference, entries, nbytes, overhead)
    return None if found.is_over else found


def forget() -> None:
    """Begin all rents anew."""
    global _lost
    _RENTS.clear()
    _lost = 0.0


def plain_powers(
    A: Any,
    x: Any,
    k: int,
    *,
    basis: Any,
    out: NDArray[Any] | None,
    dtype: DTypeLike | None,
    threads: int | None,
    value_error: float | None,
) -> NDArray[Any] | None:
    """The answer of :func:`akx.matrix_powers` by plain products; None where it is a matter for a prepared operator.

    That is so where preparing has paid, where A has to be converted first, and where something is wrong that is told
    better with a matrix at hand. Reads the arrays of A once for checks, and once for each power (each start vector of a
    block shares them).
    """
    is_ours = isinstance(A, Matrix)
    if not (is_ours or (sp.issparse(A) and A.format == "csr")):
        return None
    if setting() != AUTO or not (basis == "monomial" if isinstance(basis, str) else isinstance(basis, Basis)):
        return None
    nbytes = A.nnz * (A.dtype.itemsize + 4)
    rent = rent_of(A, k, A.nnz, nbytes, _CALL + _CHECKED * nbytes)
    if rent is None:
        return None
    check_shape(A.shape)
    target, n = target_dtype(A.dtype, dtype), A.shape[0]
    is_exact = A.dtype == target or (A.dtype.kind in "iu" and dtype is None)
    if not is_exact or not A.dtype.isnative or (isinstance(basis, Basis) and basis.k < k):
        return None
    if threads is not None:
        resolve_threads(threads)
    if value_error is not None:
        check_value_error(value_error)
    start, single = start_block(x, n)
    coefficients = None if isinstance(basis, str) else basis.head(k)
    is_real = coefficients is None or coefficients.is_real
    result = np.result_type(target, start.dtype, *(() if is_real else (np.complex64,)))
    vectors = len(start)
    if result not in _TYPES:
        return None
    arrays = (A.indptr, A.indices, A.data) if is_ours else _sound_arrays(A)
    if arrays is None or not rent.goes_on(k, vectors):
        return None
    if out is not None:
        check_out(out, (n, k + 1) if single else (n, vectors, k + 1), result)
        powers = np.asarray(out).T.reshape(k + 1, vectors, n) if out.flags.f_contiguous else None
        if powers is None:
            return None
        if np.may_share_memory(start, powers) and not is_same(start, powers[0]):
            start = start.copy()
    else:
        powers = np.empty((k + 1, vectors, n), dtype=result)
    with np.errstate(over="ignore", invalid="ignore"):
        powers[0] = start
        powers_into(arrays, powers, coefficients)
        # v_1 tells of the entries of A; v_k tells of all before it, but for columns of A without entries.
        telling = powers[1:] if is_looked_at(vectors * n, rent.calls) else powers[1 :: max(k - 1, 1)]
        total = np.add.reduce(telling, axis=None)
    if not (math.isfinite(total.real) and math.isfinite(total.imag)):  # by x, an overflow, or an entry of A
        if not np.isfinite(arrays[2]).all():
            return None
        OverflowWatch(Matrix.from_any(A), k).look(powers)
    if out is not None:
        return out
    return powers[:, 0].T if single else powers.transpose(2, 1, 0)


def _sound_arrays(A: Any) -> tuple[NDArray[Any], ...] | None:
    """The arrays of a CSR matrix, with indices that compiled code can follow; None where it is told elsewhere why not.

    Another thread may change A at any moment: indices are copied, and the copies are checked and used.
    """
    arrays, n = (A.indptr, A.indices, A.data), A.shape[0]
    if not all(isinstance(array, np.ndarray) and array.ndim == 1 for array in arrays):
        return None
    indptr, indices, data = np.array(arrays[0]), arrays[1], arrays[2]
    kind = indices.dtype
    if indptr.size != n + 1 or indptr.dtype != kind or kind.kind != "i" or not kind.isnative or indptr[0] != 0:
        return None
    nnz = indptr[-1]
    if nnz > min(indices.size, data.size) or not np.greater_equal(indptr[1:], indptr[:-1]).all():
        return None
    indices = np.array(indices[:nnz])
    columns = indices.view(f"u{indices.itemsize}")  # a negative one is very large then
    return (indptr, indices, data) if nnz == 0 or columns.max() < n else None


@cache
def csr_product(name: str = "csr_matvec") -> Any:
    """SciPy's compiled y += A x, which ``A @ x`` calls; None where this SciPy keeps it elsewhere."""
    try:
        from scipy.sparse import _sparsetools
    except ImportError:
        return None
    return getattr(_sparsetools, name, None)


def powers_into(A: tuple[NDArray[Any], ...], powers: NDArray[Any], basis: Basis | None = None) -> None:
    """powers[1:] from powers[0], (k+1, b, n), by products of A = (indptr, indices, data); no basis is the monomial one.

    `powers` is C-contiguous but for `b` = 1.
    """
    vectors, n = powers.shape[1:]
    sizes: tuple[int, ...] = (n, n)
    if vectors == 1:
        powers[1:] = 0
        rows, product = list(powers[:, 0]), csr_product()
    else:  # as SciPy has them, entries of all vectors side by side
        rows = [np.ascontiguousarray(powers[0].T), *np.zeros((len(powers) - 1, n, vectors), dtype=powers.dtype)]
        sizes, product = (n, n, vectors), csr_product("csr_matvecs")
    before = None
    for j, (v, w) in enumerate(pairwise(rows)):
        if product is None:
            w[:] = sp.csr_array((A[2], A[1], A[0]), shape=(n, n)) @ v
        else:
            product(*sizes, *A, v.reshape(-1), w.reshape(-1))
        if basis is not None:
            a, b, c = (numbers[j].item() for numbers in (basis.a, basis.b, basis.c))
            w *= a
            w += b * v
            if before is not None:
                w += c * before
            before = v
    if vectors > 1:
        for j, w in enumerate(rows[1:], 1):
            powers[j] = w.T


def product_into(A: tuple[NDArray[Any], ...], v: NDArray[Any], w: NDArray[Any]) -> None:
    """w = A v, (n,) both, A = (indptr, indices, data)."""
    product, n = csr_product(), v.size
    if product is None:
        w[:] = sp.csr_array((A[2], A[1], A[0]), shape=(n, n)) @ v
    else:
        w[:] = 0
        product(n, n, *A, v, w)
