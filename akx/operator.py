"""Matrix powers as users call them: `MatrixPowers`, prepared once and applied often, and `matrix_powers` on top of it.

The way of a call: user's matrix -> :class:`akx.matrix.Matrix` -> plan (given, else from the plan database, else
predicted; never tuned unasked) -> program -> V. V[..., j] = p_j(A) x, v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from akx.basis import Basis, make_basis
from akx.device.host import host_device, resolve_threads
from akx.errors import AkxError, ArgumentError, ArgumentTypeError, MatrixError, PlanError
from akx.kernels import registry
from akx.kernels.base import Coefficients, Program, as_coefficients, check_feasible
from akx.matrix import Matrix, content_token
from akx.plan import Plan
from akx.plandb import PlanDatabase
from akx.tuner import plan_key, predict

__all__ = ["MatrixPowers", "matrix_powers"]

_DTYPES = tuple(np.dtype(t) for t in (np.float32, np.float64, np.complex64, np.complex128))
#: Prepared operators that :func:`matrix_powers` keeps.
_KEPT = 8


@dataclass(frozen=True)
class _Choice:
    """A plan and where it came from, in words."""

    plan: Plan
    source: str
    seconds: float | None = None


class MatrixPowers:
    """The map x -> [p_0(A) x, ..., p_k(A) x], planned and prepared once for one matrix.

    Parameters
    ----------
    A : sparse matrix or array, shape (n, n)
        Any SciPy sparse format or a :class:`akx.Matrix`. Its content is copied: later changes of `A` have no effect
        until :meth:`update_values`.
    k : int
        Number of powers, at least 1.
    basis : str or Basis, optional
        ``"monomial"`` (default), ``"newton"``, ``"chebyshev"`` or a :class:`akx.Basis` of at least k steps. By name,
        Newton and Chebyshev estimate the spectrum of A by a few Arnoldi or Lanczos steps, once.
    plan : Plan, optional
        The plan to use. By default the tuned one from the plan database, else a predicted one; never tunes.
    dtype : dtype, optional
        float32, float64, complex64 or complex128: the least precision to compute in. By default that of A (float64 for
        integers). A start vector of a wider type widens the result, as in SciPy.
    threads : int, optional
        Most threads to use; ``NUMBA_NUM_THREADS`` or all cores by default. Plans are tuned for a number of threads.
    db : path or PlanDatabase, optional
        Where to look for tuned plans; ``AKX_DB`` or the user's database by default.
    backend : str, optional
        ``"auto"`` or ``"cpu"``.

    Attributes
    ----------
    shape : (int, int)
    dtype : numpy.dtype
        Of the matrix as held; results have the common type of this and of x.
    k : int
    basis : Basis
        V_k satisfies A V_k = V_{k+1} B with B = ``basis.matrix()``.
    plan : Plan
        The plan for one start vector.

    Raises
    ------
    MatrixError, ArgumentError, ArgumentTypeError, PlanError, InfeasibleError
        All :class:`akx.AkxError`; the message names what to change.

    Notes
    -----
    One object does one call at a time: concurrent calls wait for each other.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, akx
    >>> A = sp.diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(5, 5), format="csr")
    >>> P = akx.MatrixPowers(A, k=2)
    >>> P(np.array([0.0, 0.0, 1.0, 0.0, 0.0])).T
    array([[ 0.,  0.,  1.,  0.,  0.],
           [ 0.,  1., -2.,  1.,  0.],
           [ 1., -4.,  6., -4.,  1.]])
    """

    def __init__(
        self,
        A: Any,
        k: int,
        *,
        basis: str | Basis = "monomial",
        plan: Plan | None = None,
        dtype: DTypeLike | None = None,
        threads: int | None = None,
        db: Any = None,
        backend: str = "auto",
    ) -> None:
        self.k = _check_k(k)
        if plan is not None and not isinstance(plan, Plan):
            raise ArgumentTypeError("plan is not a Plan", found=type(plan).__name__, hint="use Plan.from_json")
        if plan is not None and plan.k != self.k:
            raise PlanError("plan is for another k", expected=f"k = {self.k}", found=f"k = {plan.k}", hint="tune again")
        self._matrix = Matrix.from_any(A, dtype=dtype)
        self.basis = make_basis(basis, self.k, self._matrix)
        self._threads = resolve_threads(threads)
        self._backend = backend
        self._db = db if isinstance(db, PlanDatabase) else PlanDatabase(db)
        self._given = plan
        self._matrices: dict[np.dtype[Any], Matrix] = {self._matrix.dtype: self._matrix}
        self._choices: dict[tuple[np.dtype[Any], int], _Choice] = {}
        self._programs: dict[tuple[np.dtype[Any], Plan], Program] = {}
        self._coefficients: dict[np.dtype[Any], Coefficients] = {}
        self._lock = threading.RLock()
        self.prepare_seconds = 0.0
        self._program(self._result_dtype(None), 1)

    # ---------------------------------------------------------------------------------------------- properties

    @property
    def shape(self) -> tuple[int, int]:
        return (self._matrix.n, self._matrix.n)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._matrix.dtype

    @property
    def plan(self) -> Plan:
        return self._choice(self._result_dtype(None), 1).plan

    @property
    def nbytes(self) -> int:
        """Bytes held by the matrix and all programs prepared so far."""
        return self._matrix.nbytes + sum(program.nbytes for program in self._programs.values())

    def __repr__(self) -> str:
        n, nnz = self._matrix.n, self._matrix.nnz
        return f"<MatrixPowers {n}x{n}, nnz={nnz}, {self.dtype}, k={self.k}, {self.basis.kind}: {self.plan.label()}>"

    # ---------------------------------------------------------------------------------------------- the call

    def __call__(self, x: Any, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """V with V[..., j] = p_j(A) x.

        Parameters
        ----------
        x : array_like, shape (n,) or (n, b)
            One start vector, or b of them done in one pass over the matrix.
        out : ndarray, optional
            Where V goes, in a shape and layout as returned.

        Returns
        -------
        V : ndarray, shape (n, k+1) or (n, b, k+1)
            In the common type of A and x. Each vector ``V[..., j]`` of a start vector is contiguous (V is in Fortran
            order), and ``V[..., 0]`` is x.
        """
        start, single = _start_block(x, self._matrix.n)
        dtype = self._result_dtype(start.dtype)
        block = np.ascontiguousarray(start, dtype=dtype)
        vectors = block.shape[0]
        powers = self._result(out, vectors, single, dtype)
        with self._lock:
            program = self._program(dtype, vectors)
            if out is not None and np.may_share_memory(block, powers):
                block = block.copy()
            program.run(block, powers, self._coefficients_in(dtype))
        return powers[:, 0].T if single else powers.transpose(2, 1, 0)

    def update_values(self, A: Any) -> None:
        """Take the values of another matrix of the same pattern, without a new plan.

        Parameters
        ----------
        A : sparse matrix or array, shape (n, n)
            Has exactly the entries (in any format and order) of the matrix given first, with other values.

        Raises
        ------
        MatrixError
            Where the pattern differs; nothing is changed then.
        """
        fresh = Matrix.from_any(A, dtype=self._matrix.dtype)
        same = fresh.n == self._matrix.n and np.array_equal(fresh.indptr, self._matrix.indptr)
        if not (same and np.array_equal(fresh.indices, self._matrix.indices)):
            raise MatrixError(
                "the matrix has another pattern",
                expected=f"the {self._matrix.nnz} entries given first",
                found=f"{fresh.nnz} entries" + (" elsewhere" if fresh.nnz == self._matrix.nnz else ""),
                hint="make a new MatrixPowers",
            )
        with self._lock:
            self._matrix = self._matrix.with_values(fresh.data)
            self._matrices = {self._matrix.dtype: self._matrix}
            for (dtype, _), program in self._programs.items():
                program.update_values(self._matrix_in(dtype).data)

    def aslinearoperator(self, power: int | None = None) -> Any:
        """p_j(A) as a :class:`scipy.sparse.linalg.LinearOperator` of shape (n, n), for SciPy's solvers.

        Parameters
        ----------
        power : int, optional
            j, 0 <= j <= k; k by default. With a Chebyshev basis this is a polynomial filter for ``eigsh``.

        Returns
        -------
        LinearOperator
            Its matvec is ``P(x)[:, j]``, its matmat does all columns in one pass.
        """
        from scipy.sparse.linalg import LinearOperator

        j = self.k if power is None else power
        if isinstance(j, bool) or not isinstance(j, (int, np.integer)) or not 0 <= j <= self.k:
            raise ArgumentError("power is out of range", expected=f"0 .. {self.k}", found=repr(power))

        def matvec(x: NDArray[Any]) -> NDArray[Any]:
            return np.array(self(np.asarray(x).reshape(-1))[:, j])

        def matmat(X: NDArray[Any]) -> NDArray[Any]:
            return np.array(self(X)[:, :, j])

        dtype = np.result_type(self._matrix.dtype, self.basis.a, self.basis.b, self.basis.c)
        return LinearOperator(self.shape, matvec=matvec, matmat=matmat, dtype=dtype)

    def explain(self, *, measure: bool = True) -> str:
        """What was chosen, why, and the traffic that the model expects, beside what a few calls achieve.

        Parameters
        ----------
        measure : bool
            Time a few calls (about 0.2 s) and give bytes per second and the time per step; False does not run.
        """
        dtype = self._result_dtype(None)
        choice = self._choice(dtype, 1)
        plan, matrix = choice.plan, self._matrix_in(dtype)
        schedule = registry.get(plan.backend, plan.schedule)
        traffic = schedule.traffic(plan, matrix, host_device())
        plain = 2.0 * matrix.nnz * self.k
        lines = [
            f"matrix      {matrix.n} x {matrix.n}, {matrix.nnz} entries, {dtype}",
            f"powers      k = {self.k}, {self.basis.kind} basis",
            f"plan        {plan.label()}",
            f"schedule    {schedule.description}",
            f"chosen      {choice.source}",
            f"expected    {_mega(traffic.bytes)} from and to memory per call "
            f"(matrix {_mega(traffic.matrix_bytes)}, vectors {_mega(traffic.vector_bytes)}), "
            f"{traffic.flops / 1e6:.1f} Mflop, redundancy {traffic.redundancy:.2f}",
        ]
        if measure:
            seconds = self._time_calls()
            lines.append(
                f"measured    {seconds * 1e3:.3f} ms per call, {seconds / self.k * 1e3:.3f} ms per step: "
                f"{traffic.bytes / seconds / 1e9:.1f} GB/s of the expected traffic, "
                f"{plain / seconds / 1e9:.2f} Gflop/s"
            )
        lines.append(f"prepared    in {self.prepare_seconds:.3f} s, {_mega(self.nbytes)} held")
        return "\n".join(lines)

    # ---------------------------------------------------------------------------------------------- inside

    def _result_dtype(self, x: np.dtype[Any] | None) -> np.dtype[Any]:
        types: list[Any] = [self._matrix.dtype] + ([] if x is None else [x])
        if any(np.iscomplexobj(v) for v in (self.basis.a, self.basis.b, self.basis.c)):
            types.append(np.complex64)
        dtype = np.result_type(*types)
        if dtype not in _DTYPES:
            raise ArgumentTypeError(
                "start vector has an unsupported type",
                expected="a real or complex number of at most double precision",
                found=str(x),
                hint="convert it with x.astype(float)",
            )
        return dtype

    def _result(self, out: NDArray[Any] | None, vectors: int, single: bool, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The array (k+1, b, n) that V is a view of: new, or the one behind `out`."""
        n = self._matrix.n
        if out is None:
            return np.empty((self.k + 1, vectors, n), dtype=dtype)
        shape = (n, self.k + 1) if single else (n, vectors, self.k + 1)
        if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != dtype:
            found = f"{out.shape} of {out.dtype}" if isinstance(out, np.ndarray) else type(out).__name__
            raise ArgumentError("out does not fit", expected=f"an array {shape} of {dtype}", found=found)
        if not out.flags.f_contiguous or not out.flags.writeable:
            raise ArgumentError(
                "out has the wrong layout",
                expected="a writeable array in Fortran order, so that every vector is contiguous",
                hint=f"make it with np.empty({shape}, dtype='{dtype}', order='F')",
            )
        return out.T.reshape(self.k + 1, vectors, n)

    def _matrix_in(self, dtype: np.dtype[Any]) -> Matrix:
        found = self._matrices.get(dtype)
        if found is None:
            found = self._matrices[dtype] = self._matrix.with_values(self._matrix.data.astype(dtype))
        return found

    def _coefficients_in(self, dtype: np.dtype[Any]) -> Coefficients:
        found = self._coefficients.get(dtype)
        if found is None:
            found = as_coefficients(self.basis.a, self.basis.b, self.basis.c, dtype)
            self._coefficients[dtype] = found
        return found

    def _choice(self, dtype: np.dtype[Any], vectors: int) -> _Choice:
        key = (dtype, vectors)
        found = self._choices.get(key)
        if found is None:
            found = self._choices[key] = self._choose(self._matrix_in(dtype), vectors)
        return found

    def _choose(self, matrix: Matrix, vectors: int) -> _Choice:
        if self._given is not None:
            return _Choice(self._given, "given by the caller")
        arguments: dict[str, Any] = {
            "basis": self.basis.kind,
            "start_vectors": vectors,
            "backend": self._backend,
            "threads": self._threads,
        }
        lookup = self._db.find(plan_key(matrix, self.k, **arguments))
        if lookup.record is not None:
            record = lookup.record
            reason = _reason_against(record.plan, matrix)
            if reason is None:
                gain = record.baseline_seconds / record.seconds
                source = f"tuned on {record.created[:10]}: {gain:.2f}x over {record.baseline_name}"
                return _Choice(record.plan, source, record.seconds)
            source = f"predicted, not tuned: the plan in the database does not work here ({reason})"
        else:
            source = f"predicted, not tuned ({lookup.explain()}); tune it with `akx tune` or akx.tune"
        return _Choice(predict(matrix, self.k, **arguments), source)

    def _program(self, dtype: np.dtype[Any], vectors: int) -> Program:
        plan = self._choice(dtype, vectors).plan
        found = self._programs.get((dtype, plan))
        if found is None:
            begin = time.perf_counter()
            matrix = self._matrix_in(dtype)
            schedule = registry.get(plan.backend, plan.schedule)
            check_feasible(schedule, plan, matrix, host_device())
            found = self._programs[(dtype, plan)] = schedule.prepare(matrix, plan)
            self.prepare_seconds += time.perf_counter() - begin
        return found

    def _time_calls(self) -> float:
        """Median seconds of a few calls into the same result, on a fixed start vector."""
        dtype = self._result_dtype(None)
        x = np.random.default_rng(0).standard_normal(self._matrix.n).astype(dtype)
        out = np.empty((self._matrix.n, self.k + 1), dtype=dtype, order="F")
        self(x, out=out)
        samples: list[float] = []
        while len(samples) < 5 or (sum(samples) < 0.2 and len(samples) < 200):
            begin = time.perf_counter()
            self(x, out=out)
            samples.append(time.perf_counter() - begin)
        return float(np.median(samples))


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
) -> NDArray[Any]:
    """The Krylov basis V with V[..., j] = p_j(A) x for j = 0 .. k.

    Parameters
    ----------
    A : sparse matrix or array, shape (n, n)
        Any SciPy sparse format or a :class:`akx.Matrix`.
    x : array_like, shape (n,) or (n, b)
        One start vector, or b of them done in one pass over the matrix.
    k : int
        Number of powers, at least 1.
    basis, plan, dtype, threads, db, backend
        As for :class:`MatrixPowers`.
    out : ndarray, optional
        Where V goes: of shape (n, k+1) or (n, b, k+1), Fortran order, the result's dtype.

    Returns
    -------
    V : ndarray, shape (n, k+1) or (n, b, k+1)
        Every vector is contiguous.

    Notes
    -----
    The last few matrices stay prepared (while the caller keeps them alive), so a second call for the same `A` object
    pays for no preparation. To make sure that `A` is still what was prepared, *every call reads all of its arrays
    once* and compares a 64-bit checksum of the values and of the indices: a change of ``A.data`` in place is seen, and
    only the values are laid out anew; a change of the pattern makes a new preparation. That reading costs about as
    much as one product or less. An :class:`akx.Matrix`, which cannot change, is not checked; neither does a
    :class:`MatrixPowers` check: it keeps the values it was given until ``update_values``.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, akx
    >>> A = sp.diags_array([1.0, 2.0, 3.0], format="csr")
    >>> akx.matrix_powers(A, np.ones(3), k=2)
    array([[1., 1., 1.],
           [1., 2., 4.],
           [1., 3., 9.]])
    """
    operator = _prepared(A, _check_k(k), basis, plan, dtype, threads, db, backend)
    return operator(x, out=out)


# -------------------------------------------------------------------------------- operators kept for matrix_powers


@dataclass(frozen=True)
class _Kept:
    """A prepared operator, the matrix object it is for and that object's content when it was prepared."""

    owner: Callable[[], Any]
    token: tuple[Any, ...]
    operator: MatrixPowers


_kept: OrderedDict[tuple[Any, ...], _Kept] = OrderedDict()
_kept_lock = threading.RLock()


def _prepared(
    A: Any, k: int, basis: str | Basis, plan: Plan | None, dtype: Any, threads: int | None, db: Any, backend: str
) -> MatrixPowers:
    named = basis if isinstance(basis, str) else id(basis)
    wanted = None if dtype is None else np.dtype(dtype).str
    database = db if isinstance(db, PlanDatabase) else None if db is None else str(db)
    key = (id(A), k, named, plan, wanted, resolve_threads(threads), database, backend)
    token = content_token(A, threads=min(2, resolve_threads(threads)))
    with _kept_lock:
        found = _kept.get(key)
        if found is not None and found.owner() is A and _same_basis(found.operator, basis):
            if found.token != token:
                found = _renewed(found, A, token)
            if found is not None:
                _kept[key] = found
                _kept.move_to_end(key)
                return found.operator
    operator = MatrixPowers(A, k, basis=basis, plan=plan, dtype=dtype, threads=threads, db=db, backend=backend)
    try:
        owner: Callable[[], Any] = weakref.ref(A, lambda _: _kept.pop(key, None))
    except TypeError:  # a sparse class without weak references is not kept
        return operator
    with _kept_lock:
        _kept[key] = _Kept(owner, token, operator)
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return operator


def _renewed(found: _Kept, A: Any, token: tuple[Any, ...]) -> _Kept | None:
    """The kept operator with the new values of `A`; None where its pattern, or an estimated spectrum, is stale."""
    if found.operator.basis.kind != "monomial":
        return None
    try:
        found.operator.update_values(A)
    except MatrixError:
        return None
    return replace(found, token=token)


def _same_basis(operator: MatrixPowers, basis: str | Basis) -> bool:
    """Whether a basis given as an object is that of the operator (its id may have been used again)."""
    return isinstance(basis, str) or operator.basis == basis.head(operator.k)


# ------------------------------------------------------------------------------------------------------- checks


def _check_k(k: Any) -> int:
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)):
        raise ArgumentTypeError("k is not a number", expected="an integer >= 1", found=repr(k))
    if k < 1:
        raise ArgumentError("k is out of range", expected="an integer >= 1", found=str(k), hint="pass k = 1 or more")
    return int(k)


def _start_block(x: Any, n: int) -> tuple[NDArray[Any], bool]:
    """The start vectors as an array (b, n), and whether x was a single vector."""
    array = np.asarray(x)
    if array.dtype.kind in "biu":
        array = array.astype(np.float64)
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    if array.dtype.kind not in "fc":
        raise ArgumentTypeError(
            "x is not an array of numbers", expected="real or complex numbers", found=str(array.dtype)
        )
    if array.ndim not in (1, 2) or array.shape[0] != n or 0 in array.shape:
        raise ArgumentError(
            "x does not fit the matrix", expected=f"shape ({n},) or ({n}, b)", found=f"shape {array.shape}"
        )
    return (array[None, :], True) if array.ndim == 1 else (array.T, False)


def _reason_against(plan: Plan, matrix: Matrix) -> str | None:
    try:
        return registry.get(plan.backend, plan.schedule).feasible(plan, matrix, host_device())
    except AkxError as error:
        return str(error)


def _mega(count: float) -> str:
    return f"{count / 1e6:.1f} MB"
