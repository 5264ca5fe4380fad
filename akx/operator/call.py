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
    The last few matrices, of a gigabyte in all, stay prepared (while the caller keeps them alive), so a second call
    for the same `A` object pays for no preparation. To make sure that `A` is still what was prepared, *every call reads
    all of its arrays once* and compares a 64-bit checksum of the values and of the indices: a change of ``A.data`` in
    place is seen, and only the values are laid out anew; a change of the pattern or of the type makes a new
    preparation. That reading costs about as much as one product or less. An :class:`akx.Matrix`, which cannot change,
    is not checked; neither does a :class:`MatrixPowers` check: it keeps the values it was given until
    ``update_values``.

    Where A is in CSR on a GPU, and x there too, nothing is waited for: the device reads A beside the work, and computes
    V from the arrays as they are where they have changed. What is wrong in them the next call says.

    First calls prepare nothing: they are products of the arrays of `A` as they are, by SciPy's compiled code (on a GPU
    by one kernel of akx, with the arrays kept there from call to call), until what they have cost more than prepared
    ones is what preparing costs (:mod:`akx.operator.tiers`). That is after so many calls as the size of the matrix
    says, by no clock, so that the same calls give the same bits in every process. Code that is not compiled by then is
    compiled in a process beside the calls, which go on meanwhile. A matrix so small that its calls are over before the
    checks of a prepared one would be stays so. ``AKX_PREPARE``
    changes that, and a :class:`MatrixPowers` is prepared from the beginning.

    A plan that is tuned, imported or removed later is seen too: at once where this process did it, within about 0.1 s
    where another did.

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
    of_host = type(x) is np.ndarray
    is_like = (
        (not of_host or (type(backend) is str and backend not in ("auto", HOST)))
        and (type(k), type(basis), type(backend)) == (int, str, str)
        and (plan, dtype, threads, db, memory_budget, fraction, value_error) == _DEFAULTS
    )
    is_ours = is_like and isinstance(A, Matrix)
    is_live = is_like and not of_host and not is_ours and type(A) not in CSR and basis == "monomial"
    is_live = is_live and (backend == "auto" or backend == array_backend())
    if is_live and "akx.operator.mutable_csr" in sys.modules:
        from akx.operator import mutable_csr

        queued: NDArray[Any] | None = mutable_csr.again(A, x, k, out)
        if queued is not None:
            return queued
    if is_like:
        like = id(A), k, basis, backend, type(x)
        known = _RECENT.get(like)
        kept = None if known is None else known.operator(A, x)
        if known is not None and kept is not None:
            kept.looks_for_overflow = True
            if is_ours:
                return kept(x, out=out)
            found: NDArray[Any] | None = _read_beside(known, kept, A, x, out)
            if found is not None:
                return found
    is_elsewhere = not isinstance(x, np.ndarray) and is_on_device(x)
    if backend == "auto" and (is_elsewhere or (plan is None and type(A) not in CSR and is_matrix_there(A))):
        backend = array_backend()
    if type(k) is not int or not 0 < k < 100:
        k = check_count("k", k)
    is_usual = plan is None and memory_budget is None and fraction is None
    is_usual = is_usual and (db is None or isinstance(db, (str, os.PathLike)))
    is_here = is_usual and not is_elsewhere and (backend == "auto" or backend == HOST)
    if is_here:
        answer = plain_powers(A, x, k, basis, out, dtype, threads, value_error)
        if answer is not None:
            return answer
    is_captured = False
    if is_elsewhere:
        is_captured = backend_of(array_backend()).caller_arrays().is_captured(x)
    if is_usual and isinstance(backend, str) and backend not in ("auto", HOST):
        from akx.operator.device_products import call_on_device

        asked: dict[str, Any] = {"basis": basis, "out": out, "dtype": dtype, "threads": threads, "backend": backend}
        asked |= {"value_error": value_error, "is_captured": is_captured}
        there: NDArray[Any] | None = call_on_device(A, x, k, **asked)
        if there is not None:  # in kind, as the types of Python cannot say
            return there
    from akx.operator.background_compile import Coming, compiled_in_background
    from akx.operator.lookup import operator_for  # with the planner and all that it asks

    def prepared() -> NDArray[Any]:
        limits = memory_budget, fraction
        operator = operator_for(
            A, k, basis, plan, dtype, threads, db, backend, limits, value_error, is_captured=is_captured
        )
        operator.looks_for_overflow = True  # what is kept is not the caller's: how often they are warned, a filter says
        if like is not None and (is_elsewhere or of_host):
            _remember(like, operator, x)
        answer = operator(x, out=out)
        if is_live and is_elsewhere and not is_captured and (given := matrix_there(A)) is not None:
            from akx.operator import mutable_csr

            mutable_csr.remember(given, k, operator, x, answer, backend)
        return answer

    rent = ended(A, k) if is_here else None
    if rent is None:
        return prepared()
    try:
        with compiled_in_background():
            return prepared()
    except Coming as coming:
        rent.coming = coming.is_coming
    answer = plain_powers(A, x, k, basis, out, dtype, threads, value_error)
    return prepared() if answer is None else answer


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


def _remember(like: tuple[Any, ...], operator: MatrixPowers, x: Any) -> None:
    """Let the next such call find the operator at once."""
    from akx.operator.lookup import recent

    found = recent(operator, x)
    if found is not None:
        if len(_RECENT) >= _MOST_RECENT:
            _RECENT.clear()
        _RECENT[like] = found
