"""`MatrixPowers`: matrix powers prepared once and applied often.

The way of a call: user's matrix -> `Matrix` -> plan (:mod:`akx.operator.planner`) -> program -> V, with
V[..., j] = p_j(A) x, v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from akx.backends.memory_budget import budgeted_backend, resolve_budget
from akx.backends.result_pool import rows_of
from akx.backends.schedule import Coefficients, Program
from akx.backends.selection import HOST, array_backend, backend_of
from akx.core.arguments import check_count
from akx.core.basis import Basis, make_basis
from akx.core.canonical import target_dtype
from akx.core.errors import PlanError
from akx.core.matrix import Matrix
from akx.core.plan import Plan, check_plan
from akx.operator.explain import explained
from akx.operator.online import check_tune
from akx.operator.overflow import OverflowWatch
from akx.operator.planner import Asked, Call, Choice, Planner
from akx.operator.prepared import Prepared, result_for
from akx.operator.recurrence import Recurrence
from akx.operator.start_vectors import check_out, is_matrix_there, is_on_device, is_same, start_block
from akx.plandb import PlanDatabase

if TYPE_CHECKING:
    from akx.operator.device_calls import DeviceCalls

__all__ = ["MatrixPowers"]


class MatrixPowers:
    """The map x -> [p_0(A) x, ..., p_k(A) x], planned and prepared once for one matrix.

    Parameters
    ----------
    A : sparse matrix or array, shape (n, n)
        Any SciPy sparse format or a :class:`akx.Matrix`; of CuPy or PyTorch, which stay on the GPU, or a tuple (data,
        indices, indptr) of arrays (see :meth:`akx.Matrix.from_any`). Its content is copied: later changes of `A` have
        no effect until :meth:`update_values`.
    k : int
        Number of powers, at least 1.
    basis : str or Basis, optional
        ``"monomial"`` (default), ``"newton"``, ``"chebyshev"`` or a :class:`akx.Basis` of at least k steps. By name,
        Newton and Chebyshev estimate the spectrum of A by a few Arnoldi or Lanczos steps, once.
    plan : Plan, optional
        The plan to use. By default the tuned one from the plan database; else that of a like device, where the database
        has one that a measurement of some calls, made now, finds faster than the predicted plan; else the latter.
    dtype : dtype, optional
        float32, float64, complex64 or complex128: the least precision to compute in. By default that of A (float64 for
        integers). A start vector of a wider type widens the result, as in SciPy.
    threads : int, optional
        Most threads to use, those of a given `plan` included; ``NUMBA_NUM_THREADS`` or all cores by default. Plans are
        tuned for a number of threads.
    db : path or PlanDatabase, optional
        Where to look for tuned plans; ``AKX_DB`` or the user's database by default.
    backend : str, optional
        ``"auto"`` or the name of a backend: where the start vectors are, and the GPU where `A` is there. Vectors of
        the host can be computed on the GPU where its backend is named, and are copied there and back.
    memory_budget : int or str, optional
        Bytes of the GPU's memory to keep within, vectors included, e.g. ``"512M"`` or ``"80GiB"``: plans tuned for
        exactly this budget are used, else one that streams the matrix from the host's memory, as far as it does not
        fit. It means the backend of a GPU.
    fraction : float, optional
        The same as a fraction of the bytes of the matrix in CSR; the smaller of the two counts.
    value_error : float, optional
        Largest relative error of a stored value, at least 0 and less than 1: a plan for the GPU may then store every
        entry a in half the bytes, as s, where |s - a| <= value_error |a| for all (of complex ones, moduli). 6e-8 is
        enough for float64 in float32 and complex128 in complex64. By default that of `A` where it is an
        :class:`akx.Matrix`, else 0: exact. A plan tuned for this allowance is used, else one tuned for exact values. No
        effect on the CPU, nor on float32 and complex64.
    tune : str, optional
        ``"online"``: calls are the trials of a search for a better plan, which is kept in the database. It costs 1.6 s
        of the first minute of calls and one step at most, and 1 % in the long run. Each candidate is checked before it
        computes what a caller gets. Bits of results change where the plan does. ``AKX_PREPARE=fixed`` holds it. See
        :meth:`explain`.

    Attributes
    ----------
    shape : (int, int)
    dtype : numpy.dtype
        Of the matrix as held; results have the common type of this and of x.
    k : int
    basis : Basis
        V_k satisfies A V_k = V_{k+1} B with B = ``basis.matrix()``.
    plan : Plan
        The plan for one start vector of the matrix's type. Calls with several vectors, or with a wider type, may use
        another (see :meth:`explain`).
    looks_for_overflow : bool
        Whether calls look for an overflow on the way to V, and warn of the first; set it to False to be spared, or to
        True to be warned again.

    Raises
    ------
    MatrixError, ArgumentError, ArgumentTypeError, PlanError, InfeasibleError
        All :class:`akx.AkxError`; the message names what to change.

    Notes
    -----
    One object does one call at a time: concurrent calls wait for each other. A forked child may call it too, on the
    CPU alone. A copy is independent: new values for one are none for the other. A pickle has the matrix with its
    values, the basis and what was asked for, and nothing that is prepared: the first call prepares it. The plan goes
    with it to a device of the same class with as many threads, and is chosen anew elsewhere.

    A plan is looked up once for each number of start vectors and type, and then stays (:func:`matrix_powers` does look
    again). The same plan gives the same bits, run after run. Whether the plan of a like device is used depends on a
    measurement, once in a process: ``AKX_LIKE_DEVICES=off`` does without such plans.

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
        memory_budget: int | str | None = None,
        fraction: float | None = None,
        value_error: float | None = None,
        tune: str | None = None,
    ) -> None:
        self.k = check_count("k", k)
        check_plan(plan)
        if plan is not None and plan.k != self.k:
            raise PlanError("plan is for another k", expected=f"k = {self.k}", found=f"k = {plan.k}", hint="tune again")
        if plan is None and backend != HOST and is_matrix_there(A):
            backend_of(array_backend()).expect(A, to_plan=True)
        matrix = Matrix.from_any(A, dtype=dtype, value_error=value_error)
        self.basis = make_basis(basis, self.k, matrix)
        budget = resolve_budget(matrix, memory_budget, fraction)
        backend = budgeted_backend(backend, budget)
        if backend == "auto" and plan is None and matrix.on_device is not None:
            backend = array_backend()  # vectors of the host go where the matrix is
        if plan is not None:
            budgeted_backend(plan.backend, budget)
        check_tune(tune, plan=plan, budget=budget)
        self._begin(matrix, Asked(self.k, self.basis.kind, plan, threads, db, backend, budget, tune))
        self._prepared.program(self._recurrence.result_dtype(), 1)
        if tune is not None:  # what tunes calls is there with the first of them
            self._prepared.for_call(self._recurrence.result_dtype(), 1, self._home)

    def _begin(self, matrix: Matrix, asked: Asked, brought: Mapping[Call, tuple[Choice, str]] | None = None) -> None:
        """What the process decides in which the operator is, with nothing prepared yet."""
        planner, self._recurrence = Planner(asked), Recurrence(self.basis, matrix.dtype)
        self._n, self._home = matrix.n, planner.home
        self._prepared = Prepared(matrix, planner, self._recurrence, brought)
        self._lock = self._prepared.lock
        self._overflow = OverflowWatch(matrix, self.k)
        self._on_device: DeviceCalls | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The matrix with the values that it has now, and what was asked for: nothing that is prepared."""
        with self._lock:
            choices = self._prepared.choices
            asked, database = choices.planner.asked, choices.planner.database
            place = asked.db if asked.db is None or isinstance(asked.db, PlanDatabase) else database.path
            return {
                "k": self.k,
                "basis": self.basis,
                "matrix": self._prepared.values.of(self.dtype),
                "asked": replace(asked, db=place),
                "brought": choices.to_take_along(),
            }

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.k, self.basis = state["k"], state["basis"]
        self._begin(state["matrix"], state["asked"], state["brought"])

    # ---------------------------------------------------------------------------------------------- properties

    @property
    def shape(self) -> tuple[int, int]:
        return (self._n, self._n)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._prepared.values.matrix.dtype

    @property
    def plan(self) -> Plan:
        with self._lock:
            return self._prepared.choice(self._recurrence.result_dtype(), 1).plan

    @property
    def nbytes(self) -> int:
        """Bytes held: the matrix in every type used, what was derived from its pattern, and the programs so far."""
        return sum(self._prepared.held().values())

    @property
    def prepare_seconds(self) -> float:
        """Seconds spent on preparing so far."""
        return self._prepared.seconds

    @property
    def looks_for_overflow(self) -> bool:
        return self._overflow.looks

    @looks_for_overflow.setter
    def looks_for_overflow(self, looks: bool) -> None:
        self._overflow.looks = looks

    def __repr__(self) -> str:
        matrix = self._prepared.values.matrix
        what = f"{matrix.n}x{matrix.n}, nnz={matrix.nnz}, {self.dtype}, k={self.k}, {self.basis.kind}"
        return f"<MatrixPowers {what}: {self.plan.label()}>"

    # ---------------------------------------------------------------------------------------------- the call

    def __call__(self, x: Any, out: NDArray[Any] | None = None, *, basis: Basis | None = None) -> NDArray[Any]:
        """V with V[..., j] = p_j(A) x.

        Parameters
        ----------
        x : array_like, shape (n,) or (n, b)
            One start vector, or b of them done in one pass over the matrix. Should be finite (see below). An array on a
            GPU (with ``__cuda_array_interface__`` or DLPack) is computed there, and V is an array of the same library.
        out : ndarray, or array on the GPU, optional
            Where V goes, in a shape and layout as returned: aligned, writeable, in Fortran order. Then it is what is
            returned. Where x is ``out[..., 0]`` itself nothing is copied.
        basis : Basis, optional
            Another basis of k steps for this call: new coefficients for the plan at hand. Real for real vectors.

        Returns
        -------
        V : ndarray, shape (n, k+1) or (n, b, k+1)
            In the common type of A and x. Each vector ``V[..., j]`` of a start vector is contiguous (V is in Fortran
            order; where the plan streams, in memory that the GPU writes to, with some entries between the vectors), and
            ``V[..., 0]`` is x.

        Notes
        -----
        An overflow on the way is an :class:`akx.AkxWarning`, once for each object, that says at which power; a scaled
        basis is the cure (``"newton"``, ``"chebyshev"``). All calls look for it where vectors have 2,000 entries or
        fewer, else the first and one of 64 after it; on the GPU a later call warns. NaN and Inf in x are not looked
        for. Compressed sparse rows (variant ``"csr"``) treat them as SciPy does; the padded variants multiply by zeros
        that are not in the matrix, and may give NaN in other rows too.

        Arrays on the GPU are worked on in their library's current stream. While that is captured, the kernels go into
        the caller's graph (that of PyTorch, or CuPy's ``begin_capture``): call it once before capture, and keep the
        object as long as the graph.
        """
        if type(x) is not np.ndarray:
            calls = self._on_device
            if calls is not None and basis is None:
                known: NDArray[Any] | None = calls.in_new(x) if out is None else out if calls.again(x, out) else None
                if known is not None:
                    return known
            if not isinstance(x, np.ndarray) and is_on_device(x):
                answer: NDArray[Any] = self._device_calls()(x, out, basis)  # in kind, as the types of Python cannot say
                return answer
        V: NDArray[Any] = self._of_host(x, out, basis)
        return V

    def _of_host(
        self, x: Any, out: NDArray[Any] | None, basis: Basis | None = None, meanwhile: Callable[[], bool] | None = None
    ) -> Any:
        """V of a call with vectors of the host; None where `meanwhile`, done while a device works, says it is stale."""
        start, single = start_block(x, self._n)
        dtype = self._recurrence.result_dtype(start.dtype)
        vectors = start.shape[0]
        if out is not None:
            check_out(out, (self._n, self.k + 1) if single else (self._n, vectors, self.k + 1), dtype)
        with self._lock:
            program, coefficients = self._prepared.for_call(dtype, vectors, self._home)
            block = start if program.takes_any_order and start.dtype == dtype else rows_of(start, dtype)
            if not block.flags.behaved:  # compiled code is for aligned, writeable arrays: another kind compiles again
                block = block.copy()
            powers = result_for(program, out, (self.k + 1, vectors, self._n), dtype)
            if out is not None and np.may_share_memory(block, powers) and not is_same(block, powers[0]):
                block = block.copy()
            if basis is not None:
                coefficients = self._recurrence.coefficients_of(basis, dtype)
            if meanwhile is None:
                program.run(block, powers, coefficients)
            elif not program.run_beside(block, powers, coefficients, meanwhile):
                return None
            look = self._overflow.is_due(vectors)
        if look:
            self._overflow.look(powers)
        return out if out is not None else powers[:, 0].T if single else powers.transpose(2, 1, 0)

    def _device_calls(self) -> DeviceCalls:
        if self._on_device is None:
            from akx.operator.device_calls import DeviceCalls

            self._on_device = DeviceCalls(self._prepared, self._overflow, self._n, self.k)
        return self._on_device

    def program(self, vectors: int, basis: Basis | None = None) -> tuple[Program, Coefficients]:
        """What does calls with so many start vectors of the matrix's type, and the coefficients to give it.

        For solvers, which keep their vectors in arrays of the backend's own: (b, n) and (k+1, b, n), C-contiguous.
        """
        dtype = self._recurrence.result_dtype()
        with self._lock:
            program, coefficients = self._prepared.for_solver(dtype, vectors, self._home)
            return program, coefficients if basis is None else self._recurrence.coefficients_of(basis, dtype)

    def update_values(self, A: Any, *, check_finite: bool = True) -> None:
        """Take the values of another matrix of the same pattern, without a new plan.

        Parameters
        ----------
        A : sparse matrix or array, shape (n, n), or array on the GPU, shape (nnz,)
            Has exactly the entries (in any format and order) of the matrix given first, with other values. Or those
            values alone, in GPU memory (``__cuda_array_interface__`` or DLPack) and in the matrix's own type: one for
            each entry, row by row, columns ascending, duplicates summed, as in SciPy's canonical CSR. They are copied
            there, on the stream that they come on, and laid out there.
        check_finite : bool
            Refuse NaN and Inf in values on the GPU, which waits for the device; without it nothing waits, but for plans
            that store values in another way than in full. Matrices of the host are always checked.

        Raises
        ------
        MatrixError
            Where the pattern differs, or a value is not finite; nothing is changed then.
        ArgumentTypeError
            Where values on the GPU are of another type than the matrix.

        Notes
        -----
        Values from GPU memory come to the host only where they are needed: by plans of the host, by ``stream``, by
        plans with ``stored=half`` or ``table`` where these values cannot be stored so, and by the first call with
        another type or number of start vectors. Those of a CSR matrix of the host with the same entries in the same
        order are sent to the GPU as they are, where all plans so far allow it, which takes a map of 4 bytes for each
        place of a layout. A predicted plan that cannot store new values as it was meant to is predicted anew by the
        next call, and a tuned one that does not fit them gives way to another.
        """
        if is_on_device(A):
            self._prepared.update_on_device(A, check_finite=check_finite)
        else:
            self._prepared.update(A)

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

        j = check_count("power", self.k if power is None else power, least=0, most=self.k)
        apply = partial(_power, self, j)
        return LinearOperator(self.shape, matvec=apply, matmat=apply, dtype=self._recurrence.result_dtype())

    def explain(self, *, measure: bool = True, start_vectors: int = 1, dtype: DTypeLike | None = None) -> str:
        """What was chosen, why, and the traffic that the model expects, beside what a few calls achieve.

        Parameters
        ----------
        measure : bool
            Time a few calls and this machine's memory, in about half a second. False does not run.
        start_vectors : int
            For calls with so many start vectors: each number has a plan of its own.
        dtype : dtype, optional
            For start vectors of that type; the matrix's by default.
        """
        vectors = check_count("start_vectors", start_vectors)
        given = None if dtype is None else target_dtype(np.dtype(np.float32), dtype)
        result = self._recurrence.result_dtype(given)
        return explained(self._prepared, result, vectors, self if measure else None)


def _power(operator: MatrixPowers, j: int, X: NDArray[Any]) -> NDArray[Any]:
    """p_j(A) X, of one vector or a block."""
    return np.array(operator(X)[..., j])
