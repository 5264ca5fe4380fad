"""Plain products of CSR arrays on the host, by SciPy's compiled code: what first calls are made of.

Nothing is planned or copied here; the arrays are the caller's as they are.
"""

from __future__ import annotations

from cmath import isfinite
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.backends.cpu.spmm import (
    LANES,
    LEAST,
    Code,
    coefficient_rows,
    fits_groups,
    group_code,
    group_powers,
    lanes_for,
    work_size,
)
from akx.backends.result_pool import new_result, turn
from akx.core.basis import Basis
from akx.core.canonical import LARGE_PIECE
from akx.core.parallel import in_pieces
from akx.core.process import resolve_threads, share_out

__all__ = ["APART", "csr_product", "is_finite", "is_for_groups", "powers_into", "product_into"]

#: Start vectors up to which each is done by itself, and how many are side by side else; entries times vectors and
#: powers from which threads are worth their start.
APART, _TOGETHER, _SHARED = 4, 64, 16_000_000
#: Entries times vectors and powers that SciPy does before machine code for groups is made, and has done.
_COMPILED, _done = 300_000_000, 0
#: Entries times powers of two vectors from which a group of them is quicker.
_OF_TWO = 20_000
#: Entries of vectors whose inner products BLAS forms without threads.
_SHORT = 10_000
#: Entries of large vectors that a thread looks at twice while its cache has them.
_AT_ONCE = 1 << 17


@cache
def csr_product(name: str = "csr_matvec") -> Callable[..., None]:
    """SciPy's compiled y += A x, which ``A @ x`` calls; that itself where this SciPy keeps it elsewhere."""
    try:
        from scipy.sparse import _sparsetools
    except ImportError:
        return _added
    found: Callable[..., None] = getattr(_sparsetools, name, _added)
    return found


def _added(rows: int, columns: int, *rest: Any) -> None:
    """What :func:`csr_product` does: rest = (vectors, where they are several, indptr, indices, data, x, y)."""
    *vectors, indptr, indices, data, x, y = rest
    A = sp.csr_array((data, indices, indptr), shape=(rows, columns))
    y += (A @ x.reshape(columns, *vectors)).reshape(-1)


def powers_into(
    A: tuple[NDArray[Any], ...],
    powers: NDArray[Any],
    basis: Basis | None = None,
    threads: int | None = None,
    *,
    is_zero: bool = False,
    start: NDArray[Any] | None = None,
) -> None:
    """powers[1:] from powers[0], (k+1, b, n), by products of A = (indptr, indices, data); no basis is the monomial one.

    `powers` is C-contiguous but for `b` = 1; `is_zero` says that powers[1:] is zero. Where `start` (b, n) is given, in
    any order in memory, powers[0] becomes that first. Few vectors are done one after another. Of more, some at a time
    are side by side, as SciPy has them, so that entries of A are read once for all of these. When blocks have taken as
    long as it takes to make machine code for groups of them (:mod:`akx.backends.cpu.spmm`), that does them, with the
    same bits.
    """
    k, vectors = len(powers) - 1, powers.shape[1]
    is_long = A[1].size * k * vectors >= _SHARED
    workers = min(vectors, resolve_threads(threads)) if is_long else 1
    code = None if vectors == 1 else _code_for(A, powers, basis, workers)
    if start is not None and code is None:
        turn(start.T, powers[0])
    if vectors == 1:
        _apart(A, powers[:, 0], basis, is_zero)
        return
    if code is not None:
        factors = None if basis is None else coefficient_rows(basis, k, powers.dtype)
        begun = powers[0] if start is None else start
        step = code.lanes if workers > 1 else vectors - vectors % code.lanes or vectors
        groups = [slice(first, first + step) for first in range(0, vectors, step)]
        share_out("products", groups, partial(_in_groups, code, A, powers, factors, begun), workers)
        return
    do: Callable[[NDArray[Any]], None]
    if vectors <= APART:
        parts = [powers[:, i] for i in range(vectors)]
        do = partial(_apart, A, basis=basis, is_zero=is_zero)
    else:
        count = max(-(-vectors // _TOGETHER), min(workers, vectors // APART))
        parts = [powers[:, vectors * i // count : vectors * (i + 1) // count] for i in range(count)]
        do = partial(_together, A, basis=basis)
    share_out("products", parts, do, workers)


def is_for_groups(A: tuple[NDArray[Any], ...], dtype: np.dtype[Any], vectors: int) -> bool:
    """Whether so many vectors of a type are done in groups, by machine code sooner or later."""
    return vectors >= LEAST and fits_groups(A, dtype)


def _code_for(A: tuple[NDArray[Any], ...], powers: NDArray[Any], basis: Basis | None, workers: int) -> Code | None:
    """Machine code for groups, once what was done without has taken as long as to make it; else None."""
    global _done
    vectors = powers.shape[1]
    if not fits_groups(A, powers.dtype) or (vectors == 2 and A[1].size * (len(powers) - 1) < _OF_TWO):
        return None
    if _done < _COMPILED:
        _done += A[1].size * (len(powers) - 1) * vectors
        if _done <= _COMPILED:
            return None
    lanes = lanes_for(A[1].size, powers.shape[2], vectors, workers)
    code = group_code(A, recurs=basis is not None, lanes=lanes)
    return code if code is not None and code.is_exact else None


def _in_groups(
    code: Code,
    A: tuple[NDArray[Any], ...],
    powers: NDArray[Any],
    factors: NDArray[Any] | None,
    start: NDArray[Any],
    some: slice,
) -> None:
    """:func:`powers_into` for some of the vectors, whole groups or the last ones."""
    powers, start, lanes = powers[:, some], start[some], code.lanes
    while powers.shape[1] <= lanes // 2 >= LANES // 2:
        lanes //= 2
    if lanes < code.lanes:  # the last group is a small one
        narrow = group_code(A, recurs=factors is not None, lanes=lanes)
        code = narrow if narrow is not None and narrow.is_exact else code
    work = new_result((work_size(powers.shape[2], powers.dtype, code.lanes),), powers.dtype)
    group_powers(code, A, powers, work, factors, start)


def _apart(A: tuple[NDArray[Any], ...], powers: NDArray[Any], basis: Basis | None, is_zero: bool) -> None:
    """:func:`powers_into` for one vector, (k+1, n), rows contiguous."""
    product, (indptr, indices, data), n = csr_product(), A, powers.shape[1]
    rows = list(powers)
    v = rows[0]
    for j, w in enumerate(rows[1:]):
        if not is_zero:
            w.fill(0)
        product(n, n, indptr, indices, data, v, w)
        if basis is not None:
            _recur(basis, j, rows[j - 1], v, w)
        v = w


def _together(A: tuple[NDArray[Any], ...], powers: NDArray[Any], basis: Basis | None) -> None:
    """:func:`powers_into` for some vectors, (k+1, b, n), whose entries are side by side meanwhile."""
    product, (indptr, indices, data) = csr_product("csr_matvecs"), A
    vectors, n = powers.shape[1:]
    before, v, w = new_result((3, n, vectors), powers.dtype)
    turn(powers[0], v)
    for j, target in enumerate(powers[1:]):
        w.fill(0)
        product(n, n, vectors, indptr, indices, data, v.reshape(-1), w.reshape(-1))
        if basis is not None:
            _recur(basis, j, before, v, w)
        turn(w, target)
        before, v, w = (before, w, v) if basis is None else (v, w, before)


def _recur(basis: Basis, j: int, before: NDArray[Any], v: NDArray[Any], w: NDArray[Any]) -> None:
    """w = a w + b v + c before, with the coefficients of step j."""
    a, b, c = (numbers[j].item() for numbers in (basis.a, basis.b, basis.c))
    with np.errstate(over="ignore", invalid="ignore"):
        w *= a
        w += b * v
        if j > 0:
            w += c * before


def product_into(A: tuple[NDArray[Any], ...], v: NDArray[Any], w: NDArray[Any]) -> None:
    """w = A v, (n,) both, A = (indptr, indices, data)."""
    n = v.size
    w.fill(0)
    csr_product()(n, n, *A, v, w)


def is_finite(v: NDArray[Any], w: NDArray[Any]) -> bool:
    """Whether all entries of both are finite; contiguous ones.

    An inner product is not finite where one of them is not, and the quickest to form: in pieces for which BLAS starts
    no threads. One that overflows is looked at again.
    """
    if v.size <= _SHORT and isfinite(np.vdot(v, w)):  # which warns of nothing
        return True
    v, w = (v.reshape(-1),) * 2 if v is w else (v.reshape(-1), w.reshape(-1))
    if v.size < 2 * LARGE_PIECE:
        for first in range(0, v.size, _SHORT):
            product = np.vdot(v[first : first + _SHORT], w[first : first + _SHORT])
            if not isfinite(product):
                return bool(np.isfinite(v).all() and np.isfinite(w).all())
        return True
    parts = [one.view(one.real.dtype) for one in ((v,) if v is w else (v, w))]

    def of_part(begin: int, end: int) -> bool:
        """By the largest and the least: a NaN among them is both."""
        for first in range(begin, end, _AT_ONCE):
            pieces = (part[first : min(first + _AT_ONCE, end)] for part in parts)
            if not all(isfinite(piece.max()) and isfinite(piece.min()) for piece in pieces):
                return False
        return True

    return all(in_pieces(of_part, parts[0].size, LARGE_PIECE))
