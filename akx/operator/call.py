"""`matrix_powers`: one call, for which what was prepared is kept."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from akx.backends.selection import HOST, array_backend, backend_of
from akx.core.arguments import check_count
from akx.core.basis import Basis
from akx.core.matrix import Matrix, content_token
from akx.core.matrix import there as matrix_there
from akx.operator.freshness import read
from akx.operator.start_vectors import is_matrix_there, is_on_device
from akx.operator.tiers import CSR, ended, plain_powers

if TYPE_CHECKING:
    from akx.core.plan import Plan
    from akx.operator.lookup import Recent
    from akx.operator.powers import MatrixPowers

__all__ = ["matrix_powers"]

#: Calls on a device, by what tells one from another but for their content.
_RECENT: dict[tuple[Any, ...], Recent] = {}
_MOST_RECENT = 32
_DEFAULTS = (None,) * 7


def matrix_powers(
    A: Any,
    x: Any,
    k: int,
    *,
    basis: str | Basis = "monomial",
    plan: Plan | None = None,
    out: NDArray[Any] | None = None,
    dtype: DTypeLike | None = None,
    threads: int | None = None,
    db: Any = None,
    backend: str = "auto",
    memory_budget: int | str | None = None,
    fraction: float | None = None,
    value_error: float | None = None,
) -> NDArray[Any]:
    """The Krylov basis V with V[..., j] = p_j(A) x for j = 0 .. k.

    Parameters
    ----------
    A : sparse matrix or array, shape (n, n)
        Any SciPy sparse format or a :class:`akx.Matrix`; of CuPy or PyTorch, which stay on the GPU, or a tuple (data,
        indices, indptr) of arrays (see :meth:`akx.Matrix.from_any`).
    x : array_like, shape (n,) or (n, b)
        One start vector, or b of them done in one pass over the matrix. Should be finite: where a NaN or Inf spreads to
        depends on the plan, see :meth:`MatrixPowers.__call__`.
    k : int
        Number of powers, at least 1.
    basis, plan, dtype, threads, db, backend, memory_budget, fraction, value_error
        As for :class:`MatrixPowers`.
    out : ndarray, optional
        Where V goes: of shape (n, k+1) or (n, b, k+1), Fortran order, the result's dtype. It is returned itself.

    Returns
    -------
    V : ndarray, shape (n, k+1) or (n, b, k+1)
        Every vector is contiguous.

    Notes
    -----
    The last few matrices, of a gigabyte in all, stay prepared while the caller keeps them alive. Every call reads the
    arrays of `A` once, for a checksum: a change in place is seen, and only values are laid out anew where the pattern
    is the same. An :class:`akx.Matrix` cannot change, and is not read; a :class:`MatrixPowers` keeps its values until
    ``update_values``. Where A is in CSR on a GPU, and x there too, the device reads A beside the work, and computes V
    from the arrays as they are where they have changed. What is wrong in them the next call says.

    First calls prepare nothing: they are products of the arrays of `A` as they are, until what they have cost more than
    prepared ones is what preparing costs (:mod:`akx.operator.tiers`): after a number of calls that the size of the
    matrix says. Code that is not compiled by then is compiled in a process beside the calls. ``AKX_PREPARE`` changes
    that. A plan that is tuned, imported or removed later is seen within about 0.1 s.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, akx
    >>> A = sp.diags_array([1.0, 2.0, 3.0], format="csr")
    >>> akx.matrix_powers(A, np.ones(3), k=2)
    array([[1., 1., 1.],
           [1., 2., 4.],
           [1., 3., 9.]])
    """
    like: tuple[Any, ...] | None = None
    answer: NDArray[Any] | None
    may_be_there = type(x) is not np.ndarray or (type(backend) is str and backend not in ("auto", HOST))
    if may_be_there and (plan, dtype, threads, db, memory_budget, fraction, value_error) == _DEFAULTS:
        like, answer = _again(A, x, k, basis, out, backend)
        if answer is not None:
            return answer
    is_elsewhere = not isinstance(x, np.ndarray) and is_on_device(x)
    if backend == "auto" and (is_elsewhere or (plan is None and type(A) not in CSR and is_matrix_there(A))):
        backend = array_backend()
    if type(k) is not int or not 0 < k < 100:
        k = check_count("k", k)
    is_plannable = plan is None and memory_budget is None and fraction is None
    is_plannable = is_plannable and (db is None or isinstance(db, (str, os.PathLike)))
    first = A, x, k, basis, out, dtype, threads, value_error
    if is_plannable and not is_elsewhere and (backend == "auto" or backend == HOST):
        answer = plain_powers(*first)
        return _prepared_here(first, (plan, db, backend)) if answer is None else answer
    return _prepared(first, (plan, db, backend), (memory_budget, fraction), like, is_plannable)


def _again(A: Any, x: Any, k: Any, basis: Any, out: Any, backend: Any) -> tuple[tuple[Any, ...] | None, Any]:
    """What tells calls on a device like this one from others, and V where there was one; None where there is not."""
    if (type(k), type(basis), type(backend)) != (int, str, str):
        return None, None
    is_ours, is_here = isinstance(A, Matrix), type(x) is np.ndarray
    if not is_here and not is_ours and "akx.operator.mutable_csr" in sys.modules and _is_live(A, basis, backend):
        from akx.operator import mutable_csr

        queued = mutable_csr.again(A, x, k, out)
        if queued is not None:
            return None, queued
    like = id(A), k, basis, backend, type(x)
    known = _RECENT.get(like)
    kept = None if known is None else known.operator(A, x)
    if known is None or kept is None:
        return like, None
    kept.looks_for_overflow = True
    return like, kept(x, out=out) if is_ours else _read_beside(known, kept, A, x, out)


def _is_live(A: Any, basis: Any, backend: Any) -> bool:
    """Whether a call with x on a device may be one of :mod:`akx.operator.mutable_csr`."""
    return type(A) not in CSR and basis == "monomial" and (backend == "auto" or backend == array_backend())


def _prepared_here(first: tuple[Any, ...], rest: tuple[Any, ...]) -> Any:
    """V by a prepared operator, for a call of the host whose products were plain ones until now."""
    from akx.operator.background_compile import Coming, compiled_in_background

    A, _, k, *_ = first
    rent = ended(A, k)
    if rent is None:
        return _by_operator(first, rest)[0]
    try:
        with compiled_in_background():
            return _by_operator(first, rest)[0]
    except Coming as coming:
        rent.coming = coming.is_coming
    answer = plain_powers(*first)
    return _by_operator(first, rest)[0] if answer is None else answer


def _prepared(
    first: tuple[Any, ...],
    rest: tuple[Any, ...],
    limits: tuple[Any, ...],
    like: tuple[Any, ...] | None,
    is_plannable: bool,
) -> NDArray[Any]:
    """V by plain products on a device until preparing has paid, else by a prepared operator."""
    A, x, k, basis, out, dtype, threads, value_error = first
    backend = rest[2]
    is_elsewhere, is_captured = not isinstance(x, np.ndarray) and is_on_device(x), False
    if is_elsewhere:
        is_captured = backend_of(array_backend()).caller_arrays().is_captured(x)
    if is_plannable and isinstance(backend, str) and backend not in ("auto", HOST):
        from akx.operator.device_products import call_on_device

        asked: dict[str, Any] = {"basis": basis, "out": out, "dtype": dtype, "threads": threads, "backend": backend}
        asked |= {"value_error": value_error, "is_captured": is_captured}
        there: NDArray[Any] | None = call_on_device(A, x, k, **asked)
        if there is not None:  # in kind, as the types of Python cannot say
            return there
    remembers = like if is_elsewhere or type(x) is np.ndarray else None
    answer, operator = _by_operator(first, rest, limits, remembers, is_captured)
    is_new = like is not None and is_elsewhere and not is_captured and not isinstance(A, Matrix)
    if is_new and _is_live(A, basis, backend) and (given := matrix_there(A)) is not None:
        from akx.operator import mutable_csr

        mutable_csr.remember(given, k, operator, x, answer, backend)
    return answer


def _by_operator(
    first: tuple[Any, ...],
    rest: tuple[Any, ...],
    limits: tuple[Any, ...] = (None, None),
    like: tuple[Any, ...] | None = None,
    is_captured: bool = False,
) -> tuple[NDArray[Any], MatrixPowers]:
    """V by the operator for a call, and that; the next call `like` it finds the operator at once."""
    from akx.operator.lookup import operator_for, recent  # with the planner and all that it asks

    A, x, k, basis, out, dtype, threads, value_error = first
    plan, db, backend = rest
    asked = A, k, basis, plan, dtype, threads, db, backend, limits, value_error
    operator = operator_for(*asked, is_captured=is_captured)
    operator.looks_for_overflow = True  # what is kept is not the caller's: how often they are warned, a filter says
    if like is not None and (found := recent(operator, x)) is not None:
        if len(_RECENT) >= _MOST_RECENT:
            _RECENT.clear()
        _RECENT[like] = found
    return operator(x, out=out), operator


def call_once(k: int, matrix: Matrix, vectors: int) -> None:
    """What the first prepared call does, so that all of its code is compiled; its plan has a note then too."""
    from akx.operator.powers import MatrixPowers
    from akx.tuner.warmup.gpu_code import note_of
    from akx.tuner.warmup.host_code import code_of

    content_token(matrix.to_scipy())
    operator = MatrixPowers(matrix, k, backend=HOST)
    operator(np.zeros((matrix.n, vectors), dtype=matrix.dtype))
    for choice in operator._prepared.choices.made.values():
        note = note_of(code_of(choice.plan), matrix)
        if note is not None:
            note.touch()


def _read_beside(known: Recent, operator: MatrixPowers, A: Any, x: Any, out: Any) -> Any:
    """V by what is kept for A, which is read while the device works; None where it turns out to be another matrix."""

    from akx.operator.lookup import content_of

    token = known.token  # of what is launched: another thread may renew it meanwhile

    def is_same() -> bool:
        return content_of(read(A)[1], None) == token

    if isinstance(x, np.ndarray):
        if out is not None and np.may_share_memory(x, out):  # x has to be there still where it is done again
            return None
        return operator._of_host(x, out, meanwhile=is_same)
    if backend_of(array_backend()).caller_arrays().is_captured(x):
        return None
    if out is None:
        out = operator(x)
    elif operator._on_device is None or not operator._on_device.again(x, out):
        return None
    return out if is_same() else None
