"""The first calls with a matrix: plain products of its arrays as they are, until preparing it has paid.

To prepare costs seconds and to go without costs some of every call; how many calls come nobody knows. So it is done as
in ski rental (Karlin, Manasse, Rudolph and Sleator, Competitive snoopy caching, Algorithmica 3 (1988) 79-119): when the
calls so far have cost as much more than prepared ones as preparing costs. Whatever comes, all of it takes at most twice
as long as the better of the two would have.

No clock is asked: costs come from the size of the matrix and constants measured on one machine, on a GPU from figures
of one H100, so that the same calls in the same order have the same bits in every process. The first matrix that is
prepared pays for the import of Numba too. Calls so short that the checks of a prepared one are dearer than its gain
stay as they are. Where the code that preparing needs is not compiled yet, calls go on as they are until it is
(:mod:`akx.operator.background_compile`): this one switch is not at a fixed number.

``AKX_PREPARE=always`` prepares at once. ``AKX_PREPARE=fixed`` does too, and a matrix keeps the plan that it has got:
the same bits with every call.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from akx.backends.cpu.spmm import LANES
from akx.backends.result_pool import new_result
from akx.core.basis import Basis
from akx.core.canonical import LARGE_PIECE, check_shape, check_value_error, copy_of, target_dtype
from akx.core.errors import ArgumentError, brief
from akx.core.matrix import Matrix
from akx.core.numba_jit import is_loaded
from akx.core.parallel import in_pieces
from akx.core.process import resolve_threads
from akx.operator.freshness import SMALL, Copies, has_other_threads
from akx.operator.host_products import APART, is_finite, is_for_groups, powers_into
from akx.operator.overflow import OverflowWatch, is_looked_at
from akx.operator.start_vectors import check_out, is_same, start_block

__all__ = [
    "ALWAYS",
    "AUTO",
    "CSR",
    "FIXED",
    "Rent",
    "begin_again",
    "ended",
    "forget",
    "gain",
    "look_of",
    "plain_powers",
    "rent_of",
    "setting",
    "spared",
]

AUTO, ALWAYS, FIXED = "auto", "always", "fixed"
#: What most callers have.
CSR = sp.csr_array, sp.csr_matrix
_TYPES = tuple(np.dtype(t) for t in (np.float32, np.float64, np.complex64, np.complex128))

#: Seconds: Numba and its code in a new process; a matrix, and each of its entries; the checks of a prepared call, and
#: each entry that they read.
_PROCESS, _MATRIX, _ENTRY, _CALL, _CHECKED = 0.7, 5e-3, 1e-7, 5e-5, 2e-10
#: Seconds for each entry of a plain product from a cache and from memory, bytes where the one begins and the other, and
#: the share of it that a prepared one is spared.
_NEAR, _FAR, _CACHE, _MEMORY, _SPARED = 0.65e-9, 2.8e-9, 8 << 20, 40 << 20, 0.55
#: The same on a GPU, seconds for each byte of a product: one H100. A product is a kernel in a graph, and what a process
#: pays once is the planner with all that it asks, and the kernels of a first plan from the disk. An entry has the price
#: of a layout in parts, by the host; the device lays a plain product out in a hundredth of that.
_GPU_PROCESS, _GPU_MATRIX, _GPU_ENTRY, _GPU_LAUNCH = 0.5, 2e-2, 3e-8, 1.5e-6
#: Seconds of a prepared call for its look at a matrix that it does not wait for, and for each byte of it.
_GPU_CALL, _GPU_CHECKED = 1.5e-5, 3.3e-13
_GPU_NEAR, _GPU_FAR, _GPU_CACHE, _GPU_MEMORY, _GPU_SPARED = 2.2e-13, 5e-13, 30 << 20, 48 << 20, 0.6

#: Entries of a result up to which new memory is zero sooner than old memory is made so.
_FRESH = 1 << 17
_UNSIGNED = {np.dtype(np.int32): np.uint32, np.dtype(np.int64): np.uint64}
#: Calls after which a small pattern is copied.
_CALLS = 2


def setting() -> str:
    """``AKX_PREPARE``. Raises :class:`ArgumentError` where it is none of its words."""
    if "AKX_PREPARE" not in os.environ:  # a default of get() is twice as slow: it catches an error
        return AUTO
    word = os.environ.get("AKX_PREPARE") or AUTO
    if word not in (AUTO, ALWAYS, FIXED):
        expected = " or ".join((AUTO, ALWAYS, FIXED))
        raise ArgumentError("AKX_PREPARE is unknown", expected=expected, found=brief(word), hint="correct or unset it")
    return word


class Rent:
    """What products with one matrix have cost more than prepared ones would have, in seconds.

    `owner` is a weak reference to what the matrix is kept for; `overhead` seconds that a prepared call takes beside its
    products, more than a plain one does. `is_over` says that preparing has paid, after so many `calls` of plain
    products; ``coming()``, where it is set, that the code it needs is still being compiled.
    """

    def __init__(
        self, owner: Callable[[], Any], entries: int, nbytes: int, overhead: float, *, on_device: bool = False
    ) -> None:
        self.owner = owner
        self.is_over, self.calls = False, 0
        self.coming: Callable[[], bool] | None = None
        self.pattern = CheckedPattern()
        self._lost, self._overhead = 0.0, overhead
        if on_device:
            self._process, self._price = _GPU_PROCESS, _GPU_MATRIX + _GPU_ENTRY * entries
            far = _share(nbytes, _GPU_CACHE, _GPU_MEMORY)
            self._product = (_GPU_LAUNCH + nbytes * (_GPU_NEAR + far * (_GPU_FAR - _GPU_NEAR))) * _GPU_SPARED
        else:
            self._process, self._price = _PROCESS, _MATRIX + _ENTRY * entries
            self._far = _from_memory(entries, nbytes)
            self._product = spared(entries, nbytes)

    def is_coming(self) -> bool:
        """Whether it is over, but for code that is being compiled."""
        return self.coming is not None and self.coming()

    def goes_on(self, k: int, vectors: int = 1, *, in_groups: bool = False) -> bool:
        """Whether a call of k products is better done without preparing; it counts as one that was.

        Of vectors in groups (:mod:`akx.backends.cpu.spmm`) what counts is how often the matrix comes from memory:
        where it is in a cache no plan is quicker.
        """
        global _lost
        self.calls += 1
        if self.is_over:
            return self.is_coming()
        if in_groups:
            saved = self._far * k * math.ceil(vectors / LANES) - self._overhead
        else:
            saved = gain(self._product, k, vectors, self._overhead)
        if saved > 0:
            self._lost += saved
            _lost += saved
            self.is_over = self._lost >= self._price and (is_loaded() or _lost >= self._process)
        return not self.is_over

    def left(self) -> int:
        """Products of one vector after which the rent is over, at least 1."""
        missing = max(self._price - self._lost, 0.0 if is_loaded() else self._process - _lost)
        return max(1, math.ceil(missing / self._product))


def spared(entries: int, nbytes: int) -> float:
    """Seconds that a prepared product on the host takes less than a plain one, but for its overhead."""
    return entries * _NEAR * _SPARED + _from_memory(entries, nbytes)


def gain(product: float, k: int, vectors: int, overhead: float) -> float:
    """Seconds that a prepared call of k products takes less than a plain one, which :func:`spared` has for each."""
    times = vectors if vectors > APART else (1 + vectors) / 2  # groups are put in order, too
    return product * k * times - overhead


def _from_memory(entries: int, nbytes: int) -> float:
    """The part of :func:`spared` that is due to memory."""
    return entries * _share(nbytes, _CACHE, _MEMORY) * (_FAR - _NEAR) * _SPARED


def _share(nbytes: int, begin: int, end: int) -> float:
    """How far a size is on the way from one to another."""
    return min(max((nbytes - begin) / (end - begin), 0.0), 1.0)


class CheckedPattern:
    """What is known of the row pointers and indices of a matrix, from call to call.

    Those of a small matrix are copied, and the copies used: that the matrix has them still is one comparison of bytes.
    Where another thread may change the others at any moment, each call copies them, looks at the copies and uses these.
    `is_full`: it is known that every column has an entry; of small matrices.
    """

    def __init__(self) -> None:
        self.is_full = False
        self._calls, self._n, self._nnz = 0, -1, 0
        self._copies: Copies | None = None

    def arrays_of(self, A: Any, n: int) -> tuple[NDArray[Any], ...] | None:
        """The arrays of a CSR matrix of n rows, with indices that can be followed; None where they cannot be."""
        indptr, indices, data = A.indptr, A.indices, A.data
        copies = self._copies
        if copies is not None:
            if n == self._n and data.ndim == 1 and data.size >= self._nnz and copies.are_of(indptr, indices):
                return *copies.arrays, data
            self._copies, self.is_full = None, False
        self._calls += 1
        given = indptr, indices
        for array in (indptr, indices, data):
            if not isinstance(array, np.ndarray) or array.ndim != 1:
                return None
        unsigned = _UNSIGNED.get(indices.dtype)
        if unsigned is None or indptr.dtype != indices.dtype or indptr.size != n + 1:
            return None
        if has_other_threads():
            indptr, indices = copy_of(indptr), copy_of(indices)
        nnz = indptr.item(-1)
        if indptr.item(0) != 0 or not 0 <= nnz <= min(indices.size, data.size):
            return None
        if np.count_nonzero(indptr[1:] < indptr[:-1]):
            return None
        followed = indices[:nnz].view(unsigned)
        # A negative one is very large here.
        if nnz and not max(in_pieces(lambda i, j: np.maximum.reduce(followed[i:j]), nnz, LARGE_PIECE)) < n:
            return None
        is_small = indptr.nbytes + indices.nbytes <= SMALL
        if is_small and self._calls > _CALLS and all(array.flags.c_contiguous for array in given):
            self._copies, self._n, self._nnz = Copies(given, (indptr, indices)), n, nnz
            self.see_full(self._copies.arrays[1][:nnz], n)
        return indptr, indices, data

    def see_full(self, indices: NDArray[Any], n: int) -> None:
        """Look whether every column has an entry, where that takes little."""
        self.is_full = indices.nbytes <= SMALL and bool(np.bincount(indices, minlength=n).all())


_RENTS: dict[tuple[int, Any], Rent] = {}
_lost = 0.0  # by all matrices of this process


def rent_of(
    owner: Any, what: Any, entries: int, nbytes: int, overhead: float, *, on_device: bool = False
) -> Rent | None:
    """The rent for a use of what an object stands for; None where it is over, or nothing can be kept for the object."""
    key = id(owner), what
    found = _RENTS.get(key)
    if found is None or found.owner() is not owner:
        try:
            reference = weakref.ref(owner, lambda _: _RENTS.pop(key, None))
        except TypeError:  # a class without weak references
            return None
        found = _RENTS[key] = Rent(reference, entries, nbytes, overhead, on_device=on_device)
    return None if found.is_over and not found.is_coming() else found


def look_of(nbytes: int) -> float:
    """Seconds of the look at a matrix on a GPU that a prepared call has, and products of it as it is do not."""
    return _GPU_CALL + _GPU_CHECKED * nbytes


def ended(owner: Any, what: Any) -> Rent | None:
    """The rent for such a use where it is over, and products could still be plain ones; else None."""
    found = _RENTS.get((id(owner), what))
    is_over = found is not None and found.is_over and found.owner() is owner
    return found if is_over and setting() == AUTO else None


def begin_again(owner: Any, what: Any) -> None:
    """Begin the rent for a use anew."""
    _RENTS.pop((id(owner), what), None)


def forget() -> None:
    """Begin all rents anew."""
    global _lost
    _RENTS.clear()
    _lost = 0.0


def plain_powers(
    A: Any,
    x: Any,
    k: int,
    basis: Any,
    out: NDArray[Any] | None,
    dtype: DTypeLike | None,
    threads: int | None,
    value_error: float | None,
) -> NDArray[Any] | None:
    """The answer of :func:`akx.matrix_powers` by plain products; None where it is a matter for a prepared operator.

    That is so where preparing has paid, where A has to be converted first, and where something is wrong that is told
    better with a matrix at hand.
    """
    is_ours = isinstance(A, Matrix)
    if not (type(A) in CSR or is_ours or (sp.issparse(A) and A.format == "csr")) or setting() != AUTO:
        return None
    rent = _RENTS.get((id(A), k))
    if rent is None or rent.owner() is not A:
        nbytes = A.nnz * (A.dtype.itemsize + 4)
        rent = rent_of(A, k, A.nnz, nbytes, _CALL if is_ours else _CALL + _CHECKED * nbytes)
    if rent is None or (rent.is_over and not rent.is_coming()):
        return None
    indptr, indices, data, shape = A.indptr, A.indices, A.data, A.shape
    n, own = shape[0], data.dtype
    if len(shape) != 2 or shape[1] != n or n == 0:
        check_shape(shape)
    target = own
    if dtype is not None or own not in _TYPES:
        target = target_dtype(own, dtype)
        if not (own == target or (own.kind in "iu" and dtype is None)) or not own.isnative:
            return None
    if threads is not None:
        resolve_threads(threads)
    if value_error is not None:
        check_value_error(value_error)
    start, single = start_block(x, n)
    coefficients = None
    if basis != "monomial" or start.dtype != target:
        if isinstance(basis, Basis) and basis.k >= k:
            coefficients = basis.head(k)
        elif not isinstance(basis, str) or basis != "monomial":
            return None
        is_real = coefficients is None or coefficients.is_real
        target = np.result_type(target, start.dtype, *(() if is_real else (np.complex64,)))
        if target not in _TYPES:
            return None
    vectors, arrays = len(start), (indptr, indices, data) if is_ours else rent.pattern.arrays_of(A, n)
    if is_ours and rent.calls == 2:  # a third one comes, and perhaps more
        rent.pattern.see_full(indices, n)
    if arrays is None:
        return None
    in_groups = vectors > 1 and is_for_groups(arrays, target, vectors)
    if not rent.goes_on(k, vectors, in_groups=in_groups):
        return None
    is_zero = False
    if out is not None:
        check_out(out, (n, k + 1) if single else (n, vectors, k + 1), target)
        if not out.flags.f_contiguous:
            return None
        powers = np.asarray(out).T.reshape(k + 1, vectors, n)
        if np.may_share_memory(start, powers) and not is_same(start, powers[0]):
            start = start.copy()
    else:
        is_zero = vectors <= APART and not in_groups and vectors * n * k < _FRESH
        powers = (np.zeros if is_zero else new_result)((k + 1, vectors, n), target)
    if single:
        powers[0] = start
    powers_into(arrays, powers, coefficients, threads, is_zero=is_zero, start=None if single else start)
    # v_1 tells of the entries of A; v_k tells of all before it, but for columns of A without entries.
    is_each = not rent.pattern.is_full and is_looked_at(vectors * n, rent.calls)
    looked_at = powers[1:] if is_each else powers[-1]
    if not is_finite(looked_at if is_each or rent.pattern.is_full else powers[1], looked_at):
        if not np.isfinite(data).all():  # else by x, or an overflow
            return None
        OverflowWatch(Matrix.from_any(A), k).look(powers)
    if out is not None:
        return out
    return powers[:, 0].T if single else powers.transpose(2, 1, 0)
