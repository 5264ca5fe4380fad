"""Matrix powers as users call them: `MatrixPowers`, prepared once and applied often, and `matrix_powers` on top of it.

The way of a call: user's matrix -> :class:`akx.matrix.Matrix` -> plan (given, else from the plan database, else that of
a like device where it is faster than the predicted one, else predicted; never tuned unasked) -> program -> V.
V[..., j] = p_j(A) x, v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property, partial
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from akx._canonical import check_value_error, target_dtype
from akx._given import check_count, numbers_of, scipy_matrix
from akx.basis import Basis, make_basis
from akx.device.budget import budgeted_backend, parse_limits, resolve_budget, within
from akx.device.choose import device_of, plan_threads
from akx.device.forks import ForkSafeLock
from akx.device.host import resolve_threads
from akx.errors import (
    AkxError,
    AkxWarning,
    ArgumentError,
    ArgumentTypeError,
    BudgetError,
    DeviceError,
    DeviceMemoryError,
    InfeasibleError,
    MatrixError,
    MissingDependencyError,
    PlanError,
    shown,
)
from akx.kernels import registry
from akx.kernels.base import Coefficients, Program, as_coefficients, check_feasible, held_bytes
from akx.matrix import Matrix, content_token
from akx.options import unknown_option
from akx.plan import Plan, check_plan
from akx.plandb import FIELD_MEANINGS, Lookup, PlanDatabase, PlanKey, aged, shared_database
from akx.plandb.layers import origin
from akx.tuner import plan_key, predict
from akx.tuner.calibration import best_figures
from akx.tuner.ladder import Answer, believed, limited, renewed
from akx.tuner.space import PLAIN_SCHEDULES, STREAMED_SCHEDULE, resolve_backend

__all__ = ["MatrixPowers", "matrix_powers"]

_DTYPES = tuple(np.dtype(t) for t in (np.float32, np.float64, np.complex64, np.complex128))
#: Prepared operators that :func:`matrix_powers` keeps: so many, and of so many bytes in all; the newest in any case.
_KEPT = 8
_KEPT_BYTES = 1 << 30
#: Bytes of a matrix for which one more thread reads along, when its checksum is formed.
_BYTES_PER_READER = 4 << 20
#: Threads for each core beyond which a given plan is refused: they would wait for one another, and need memory.
_THREADS_PER_CORE = 16
#: The most characters of a line of an explanation.
_LINE = 1000
#: Entries of a vector that are looked at in every call, and one of how many calls looks at more: what another core has
#: just written takes a tenth of a short call to read.
_NOTHING, _EVERY = 2_000, 64
#: Seconds for which a file of plans is taken to be unchanged by other processes.
_GLANCE = 0.1


@dataclass(frozen=True)
class _Choice:
    """A plan and where it came from, in words."""

    plan: Plan
    source: str
    seconds: float | None = None
    is_predicted: bool = False


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
        ``"cpu"``, ``"cuda"``, or ``"auto"``: where the start vectors are. Vectors of the host can be computed on the
        GPU with ``"cuda"``, and are copied there and back.
    memory_budget : int or str, optional
        Bytes of the GPU's memory to keep within, vectors included, e.g. ``"512M"`` or ``"80GiB"``: plans tuned for
        exactly this budget are used, else one that streams the matrix from the host's memory, as far as it does not
        fit. For the backend ``"cuda"``, which it also means.
    fraction : float, optional
        The same as a fraction of the bytes of the matrix in CSR; the smaller of the two counts.
    value_error : float, optional
        Largest relative error of a stored value, at least 0 and less than 1: a plan for the GPU may then store every
        entry a in half the bytes, as s, where |s - a| <= value_error |a| for all (of complex ones, moduli). 6e-8 is
        enough for float64 in float32 and complex128 in complex64, but for numbers too large or too small for these. By
        default that of `A` where it is an :class:`akx.Matrix`, else 0: exact. A plan tuned for this allowance is used,
        else one tuned for exact values. No effect on the CPU, nor on float32 and complex64: values are in full there.

    Attributes
    ----------
    shape : (int, int)
    dtype : numpy.dtype
        Of the matrix as held; results have the common type of this and of x.
    k : int
    basis : Basis
        V_k satisfies A V_k = V_{k+1} B with B = ``basis.matrix()``.
    plan : Plan
        The plan for one start vector of the matrix's type. Plans are tuned, kept and looked up for a number of start
        vectors and a type: calls with several vectors, or with a wider type, may use another (see :meth:`explain`).
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
    CPU alone.

    A copy (``copy``, ``deepcopy``) is independent: new values for one are none for the other. A pickle has the matrix
    with its values, the basis and what was asked for, and nothing that is prepared: the first call prepares it, in
    whatever process that is. The plan goes with it to a device of the same class with as many threads, and is chosen
    anew elsewhere.

    A plan is looked up once for each number of start vectors and type, and then stays: a plan that is tuned later is
    for objects made later (:func:`matrix_powers` does look again).

    The same plan gives the same bits, run after run. Whether the plan of a like device is used depends on a
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
    ) -> None:
        self.k = check_count("k", k)
        check_plan(plan)
        if plan is not None and plan.k != self.k:
            raise PlanError("plan is for another k", expected=f"k = {self.k}", found=f"k = {plan.k}", hint="tune again")
        self._matrix = Matrix.from_any(A, dtype=dtype, value_error=value_error)
        self.basis = make_basis(basis, self.k, self._matrix)
        self._options = plan, threads, db
        self._budget = resolve_budget(self._matrix, memory_budget, fraction)
        self._backend = budgeted_backend(backend, self._budget)
        if plan is not None:
            budgeted_backend(plan.backend, self._budget)
        self._brought: dict[tuple[np.dtype[Any], int, str], tuple[_Choice, str]] = {}
        self._begin()
        self._program(self._result_dtype(None), 1)

    def _begin(self) -> None:
        """What the process decides in which the operator is, with nothing prepared yet."""
        plan, threads, db = self._options
        self._threads = resolve_threads(threads)
        self._home = resolve_backend(self._backend) if plan is None else plan.backend
        self._db = _database(db)
        self._is_own_db = isinstance(db, PlanDatabase)
        self._given = plan if plan is None or threads is None else limited(plan, self._threads)
        if self._given is not None:
            _check_given(self._given)
        self._matrices: dict[np.dtype[Any], Matrix] = {}  # in other types
        self._choices: dict[tuple[np.dtype[Any], int, str], _Choice] = {}
        self._programs: dict[tuple[np.dtype[Any], Plan], Program] = {}
        self._coefficients: dict[np.dtype[Any], Coefficients] = {}
        self._types: dict[np.dtype[Any], np.dtype[Any]] = {}
        self._ready: dict[tuple[np.dtype[Any], int, str], tuple[Program, Coefficients]] = {}
        self._new_values: Any = None  # on the device, not yet in `_matrix`
        self._stale: set[tuple[np.dtype[Any], Plan]] = set()
        self._last: tuple[Basis, np.dtype[Any], Coefficients] | None = None
        self._lock = ForkSafeLock()
        self.looks_for_overflow, self._calls = True, 0
        self._watch: Any = None  # for results on the device
        self.prepare_seconds = 0.0

    def __getstate__(self) -> dict[str, Any]:
        """The matrix with the values that it has now, and what was asked for: nothing that is prepared."""
        with self._lock:
            plan, threads, db = self._options
            place = db if db is None or isinstance(db, PlanDatabase) else self._db.path
            here = {key: (choice, self._place_of(key[2])) for key, choice in self._choices.items()}
            return {
                "k": self.k,
                "basis": self.basis,
                "_matrix": self._matrix_in(self.dtype),
                "_options": (plan, threads, place),
                "_budget": self._budget,
                "_backend": self._backend,
                "_brought": {**self._brought, **here},
            }

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    # ---------------------------------------------------------------------------------------------- properties

    @property
    def shape(self) -> tuple[int, int]:
        return (self._matrix.n, self._matrix.n)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._matrix.dtype

    @property
    def plan(self) -> Plan:
        with self._lock:
            return self._choice(self._result_dtype(None), 1).plan

    @property
    def nbytes(self) -> int:
        """Bytes held: the matrix in every type used, what was derived from its pattern, and the programs so far."""
        return sum(self._held().values())

    def __repr__(self) -> str:
        n, nnz = self._matrix.n, self._matrix.nnz
        return f"<MatrixPowers {n}x{n}, nnz={nnz}, {self.dtype}, k={self.k}, {self.basis.kind}: {self.plan.label()}>"

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
        fewer, else the first and one of 64 after it. On the GPU nothing waits for that, so that it is a later call
        which warns. NaN and Inf in x are not looked for. Compressed sparse rows (variant ``"csr"``) treat them as SciPy
        does: row i of v_j is non-finite where an entry of the row meets one. The padded variants multiply by zeros
        that are not in the matrix, and may give NaN in other rows too. Which rows depends on the plan.
        """
        if not isinstance(x, np.ndarray) and _is_on_device(x):
            answer: NDArray[Any] = self._call_on_device(x, out, basis)  # in kind, as the types of Python cannot say
            return answer
        start, single = _start_block(x, self._matrix.n)
        dtype = self._type_for(start.dtype)
        block = np.ascontiguousarray(start, dtype=dtype)
        if not block.flags.behaved:  # compiled code is for aligned, writeable arrays: another kind compiles again
            block = block.copy()
        vectors = block.shape[0]
        if out is not None:
            self._check_out(out, vectors, single, dtype)
        with self._lock:
            program, coefficients = self._ready_for(dtype, vectors, self._home)
            powers = self._result(program, out, vectors, dtype)
            if out is not None and np.may_share_memory(block, powers) and not _is_same(block, powers[0]):
                block = block.copy()
            if basis is not None:
                coefficients = self._coefficients_of(basis, dtype)
            program.run(block, powers, coefficients)
            look = self._is_to_look(vectors)
        if look:
            self._look_for_overflow(powers)
        if out is not None:
            return out
        return powers[:, 0].T if single else powers.transpose(2, 1, 0)

    def _call_on_device(self, x: Any, out: Any, basis: Basis | None) -> Any:
        """:meth:`__call__` for an array on the GPU: nothing is copied to the host, and nothing waited for."""
        from akx.device.cuda import interchange

        if self._given is not None and self._given.backend != "cuda":
            raise ArgumentTypeError(
                "the plan is for arrays of the host", found=f"{self._given.label()} and x on the device"
            )
        if self._backend == "cpu":
            raise ArgumentTypeError("x is on the device", expected="an array of the host for backend='cpu'")
        start, single = interchange.start_of(x, self._matrix.n)
        dtype, shape = self._type_for(start.dtype), (self.k + 1, *start.shape)
        block = interchange.block_of(x, start, dtype)
        if out is None:
            powers, answer = interchange.make_result(x, shape, dtype, single)
        else:
            n, b = self._matrix.n, start.shape[0]
            wanted = (n, self.k + 1) if single else (n, b, self.k + 1)
            powers, answer = interchange.result_in(out, wanted, dtype, shape), out
        if block.pointer != powers.pointer and _overlap(block, powers):
            block = interchange.copy_of(block)
        with self._lock:
            program, coefficients = self._ready_for(dtype, start.shape[0], "cuda")
            if basis is not None:
                coefficients = self._coefficients_of(basis, dtype)
            program.run(block, powers, coefficients)  # type: ignore[arg-type]
            if self.looks_for_overflow:
                self._look_on_device(powers)
            interchange.hand_over(start)
        return answer

    def program(self, vectors: int, basis: Basis | None = None) -> tuple[Program, Coefficients]:
        """What does calls with so many start vectors of the matrix's type, and the coefficients to give it.

        For solvers, which keep their vectors in arrays of the backend's own: (b, n) and (k+1, b, n), C-contiguous.
        """
        dtype = self._result_dtype(None)
        with self._lock:
            program, coefficients = self._ready_for(dtype, vectors, self._home)
            return program, coefficients if basis is None else self._coefficients_of(basis, dtype)

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
        Values from GPU memory come to the host only where they are needed: by plans of the host, by ``stream``, which
        keeps its matrix there, by plans with ``stored=half`` or ``table`` where these values cannot be stored so, and
        by the first call with another type or number of start vectors.

        Values of a CSR matrix of the host with the same entries in the same order take this way too, where all plans so
        far allow it: they are sent as they are. GPU memory has them, then, and a map of 4 bytes for each place of a
        layout, besides what the plans take. A predicted plan that cannot store new values as it was meant to is
        predicted anew by the next call.
        """
        if _is_on_device(A):
            self._update_on_device(A, check_finite)
            return
        sent = self._sent(A)
        if sent is not None:
            # Where there is no room for what says where values go, programs are made anew, from here.
            with contextlib.suppress(DeviceMemoryError):
                self._take_device_values(sent)
                return
        fresh = Matrix.from_any(A, dtype=self._matrix.dtype)
        if not _same_pattern(fresh, self._matrix):
            raise MatrixError(
                "the matrix has another pattern",
                expected=f"the {self._matrix.nnz} entries given first",
                found=f"{fresh.nnz} entries" + (" elsewhere" if fresh.nnz == self._matrix.nnz else ""),
                hint="make a new MatrixPowers",
            )
        with self._lock, self._renewing() as programs:
            self._take_host_values(fresh.data)
            self._stale = set()
            for (dtype, _), program in programs.items():
                program.update_values(self._matrix_in(dtype).data)

    def _update_on_device(self, values: Any, check_finite: bool) -> None:
        from akx.device.cuda import interchange
        from akx.kernels.cuda.values import all_finite

        data = interchange.values_of(values, self._matrix.nnz, self._matrix.dtype)
        if check_finite and not all_finite(data):
            raise MatrixError(
                "the matrix is not finite", found="NaN or Inf among its new values", hint="replace or remove them"
            )
        self._take_device_values(data)

    def _sent(self, A: Any) -> Any:
        """The values of a matrix of the host in GPU memory, where they are laid out there sooner; else None.

        That is where it has our entries in our order already, and all plans so far lay values from there out in place.
        """
        plans = [plan for _, plan in list(self._programs)]
        if not plans or any(plan.backend != "cuda" or plan.schedule == STREAMED_SCHEDULE for plan in plans):
            return None
        nnz, values = self._matrix.nnz, getattr(A, "data", None)
        of_ours = isinstance(A, Matrix) or (sparse.issparse(A) and A.format == "csr")
        if not of_ours or values is None or values.dtype != self._matrix.dtype or A.shape != self.shape:
            return None
        if values.ndim != 1 or values.size < nnz:  # SciPy lets arrays be set that do not belong together
            return None
        if self._budget is not None or not _same_pattern(A, self._matrix):
            return None
        from akx.device.cuda.memory import to_device
        from akx.kernels.cuda.values import all_finite

        try:
            data = to_device(np.ascontiguousarray(values[:nnz]))
        except DeviceMemoryError:
            return None
        return data if all_finite(data) else None  # what is wrong is said by those who look at it here

    def _take_device_values(self, data: Any) -> None:
        with self._lock, self._renewing(only="cuda") as programs:
            self._new_values = data
            self._stale = {key for key in programs if key[1].backend != "cuda"}
            for key, program in programs.items():
                if key not in self._stale:
                    program.update_values(data)

    def _predict_again(self) -> None:
        """Forget predicted plans whose programs have to keep these values otherwise: the next call predicts anew."""
        gone = {key for key, program in self._programs.items() if not getattr(program, "is_as_planned", True)}
        if gone:
            self._choices = {
                key: choice
                for key, choice in self._choices.items()
                if not (choice.is_predicted and (key[0], choice.plan) in gone)
            }
            self._forget_unused()

    def _take_host_values(self, data: NDArray[Any]) -> None:
        old = self._matrix
        kept: dict[str, Any] = {"pattern_cache": old.pattern_cache, "value_error": old.value_error}
        self._matrices = {}
        self._matrix = Matrix(old.indptr, old.indices, data, **kept)
        self._new_values = None

    @contextlib.contextmanager
    def _renewing(self, only: str | None = None) -> Iterator[dict[tuple[np.dtype[Any], Plan], Program]]:
        """All programs, which come back with new values once they all have them; those ready come back too.

        So none goes on with values that are half old, whatever comes between: a failure, Ctrl-C, a fork beside.
        """
        ready, self._ready = self._ready, {}
        programs, self._programs = self._programs, {}
        yield programs
        self._programs = programs
        self._ready = ready if only is None else {key: one for key, one in ready.items() if key[2] == only}
        self._predict_again()

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
        j = check_count("power", j, least=0, most=self.k)

        matvec, matmat = partial(_power_of_vector, self, j), partial(_power_of_block, self, j)
        return LinearOperator(self.shape, matvec=matvec, matmat=matmat, dtype=self._result_dtype(None))

    def explain(self, *, measure: bool = True, start_vectors: int = 1, dtype: DTypeLike | None = None) -> str:
        """What was chosen, why, and the traffic that the model expects, beside what a few calls achieve.

        Parameters
        ----------
        measure : bool
            Time a few calls and this machine's memory (about half a second in all): the time per call and per step,
            the expected bytes per second that were achieved, and the bandwidth measured. False does not run.
        start_vectors : int
            For calls with so many start vectors: each number has a plan of its own.
        dtype : dtype, optional
            For start vectors of that type; the matrix's by default.
        """
        vectors = check_count("start_vectors", start_vectors)
        dtype = self._result_dtype(None if dtype is None else target_dtype(np.dtype(np.float32), dtype))
        with self._lock:
            choice = self._choice(dtype, vectors)
        plan, matrix = choice.plan, self._matrix_in(dtype)
        schedule, device = registry.get(plan.backend, plan.schedule), self._device(plan.backend)
        traffic = schedule.traffic(plan, matrix, device)
        moved = traffic.matrix_bytes + vectors * traffic.vector_bytes
        plain = 2.0 * matrix.nnz * self.k * vectors
        lines = [
            f"matrix      {matrix.n} x {matrix.n}, {matrix.nnz} entries, {dtype}",
            f"powers      k = {self.k}, {self.basis.kind} basis, {vectors} start vector{'s' if vectors > 1 else ''}",
            f"plan        {plan.label()}",
            f"schedule    {schedule.description}",
            f"chosen      {choice.source}",
            f"expected    {_mega(moved)} from and to memory per call "
            f"(matrix {_mega(traffic.matrix_bytes)}, vectors {_mega(vectors * traffic.vector_bytes)}), "
            f"{vectors * traffic.flops / 1e6:.1f} Mflop, redundancy {traffic.redundancy:.2f}",
        ]
        waste = getattr(schedule, "waste", None)
        reason = None if waste is None else waste(plan, matrix, device)
        if reason is not None and reason.startswith("stored="):  # a plan for the pattern, tuned for other values
            lines.append(f"values      {reason}")
        off = self._stored_error(plan, matrix, device)
        if off > 0:
            allowed = f"{matrix.value_error:g} is allowed"
            lines.append(f"values      stored in half the bytes, with a relative error of at most {off:.3g}; {allowed}")
        if measure:
            seconds = self._time_calls(dtype, vectors)
            figures = best_figures(device, plan.threads)
            working = matrix.nbytes + (self.k + 1) * vectors * matrix.n * dtype.itemsize
            bandwidth = figures.bandwidth(working)
            level = "memory" if bandwidth == figures.slow_bandwidth else "the last-level cache"
            reads = f"was measured to read {level} at"
            if self._budget is not None:
                reads = "is taken to move between host and GPU"
            lines += [
                f"measured    {seconds * 1e3:.3f} ms per call, {seconds / self.k * 1e3:.3f} ms per step, "
                f"{plain / seconds / 1e9:.2f} Gflop/s",
                f"achieved    {moved / seconds / 1e9:.1f} GB/s of the expected traffic; this machine "
                f"{reads} {bandwidth / 1e9:.1f} GB/s, threads: {plan.threads}",
            ]
        lines.append(f"prepared    in {self.prepare_seconds:.3f} s, {_mega(self.nbytes)} held")
        return "\n".join(shown(line, _LINE) for line in lines)

    # ---------------------------------------------------------------------------------------------- inside

    def _stored_error(self, plan: Plan, matrix: Matrix, device: Any) -> float:
        """The largest relative error of a value as its program has it, or would have it where there is none yet."""
        program = self._programs.get((matrix.dtype, plan))
        if program is not None:
            return float(getattr(program, "stored_error", 0.0))
        return registry.stored_error(registry.get(plan.backend, plan.schedule), plan, matrix, device)

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

    def _is_to_look(self, vectors: int) -> bool:
        """Whether this call is to look for an overflow: all where vectors are short, else the first and one of 64."""
        if not self.looks_for_overflow:
            return False
        self._calls += 1
        return self._matrix.n * vectors <= _NOTHING or self._calls % _EVERY == 1

    def _look_for_overflow(self, powers: NDArray[Any]) -> None:
        """Warn, once, where an entry of V is not finite and those of x are.

        An entry i of v_j that is not finite makes one of v_{j+1} so in each row with an entry in column i: 0 * Inf is
        NaN. So the last vector tells of all, but for columns without entries; its sum is not finite where it is not.
        """
        last, empty = powers[-1], self._empty_columns
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.add.reduce(last, axis=None)
        if isfinite(total.real + total.imag) and not (empty.size and not np.isfinite(powers[..., empty]).all()):
            return
        finite = [bool(np.isfinite(v).all()) for v in powers]
        if finite[0] and not all(finite):
            self._warn_of_overflow(finite.index(False), powers.dtype)

    def _look_on_device(self, powers: Any) -> None:
        """Warn, once, of an overflow in an earlier call, and see to it that some of the calls are looked at."""
        if self._watch is None:
            from akx.kernels.cuda.values import FiniteWatch

            self._watch = FiniteWatch(self.k + 1)
        first = self._watch.first
        if first:  # else there is none, or x itself was not finite
            self._watch = None
            self._warn_of_overflow(first, powers.dtype)
        elif self._calls % _EVERY == 0:
            self._watch.look(powers)
        self._calls += 1

    def _warn_of_overflow(self, power: int, dtype: np.dtype[Any]) -> None:
        self.looks_for_overflow = False
        warnings.warn(
            f"V overflows in {dtype}: power {power} of {self.k} is the first that is not finite; "
            "use a basis scaled to the matrix (basis='newton' or 'chebyshev'), or scale the matrix",
            AkxWarning,
            stacklevel=_levels_to_caller(),
        )

    @cached_property
    def _empty_columns(self) -> NDArray[Any]:
        """Columns without entries; the pattern is always the same."""
        return np.flatnonzero(np.bincount(self._matrix.indices, minlength=self._matrix.n) == 0)

    def _check_out(self, out: NDArray[Any], vectors: int, single: bool, dtype: np.dtype[Any]) -> None:
        """Raise where `out` cannot be a result, whatever the plan."""
        n = self._matrix.n
        shape = (n, self.k + 1) if single else (n, vectors, self.k + 1)
        if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != dtype:
            found = f"{out.shape} of {out.dtype}" if isinstance(out, np.ndarray) else type(out).__name__
            raise ArgumentError("out does not fit", expected=f"an array {shape} of {dtype}", found=found)
        contiguous = out.flags.f_contiguous or out.strides[0] == dtype.itemsize  # rows apart: see _result
        if not contiguous or not out.flags.writeable:
            raise _wrong_layout(shape, dtype)
        if not out.flags.aligned:
            raise ArgumentError(
                "out is not aligned in memory",
                expected=f"an address that is a multiple of {dtype.alignment}",
                hint=f"make it with np.empty({shape}, dtype='{dtype}', order='F')",
            )

    def _result(self, program: Program, out: NDArray[Any] | None, vectors: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The array (k+1, b, n) that V is a view of: new, or the one behind `out`.

        A program may have memory of its own for results, which the GPU can write to: rows are some entries apart there.
        """
        shape = (self.k + 1, vectors, self._matrix.n)
        if out is None:
            make = getattr(program, "new_result", None)
            found = None if make is None else make(vectors)
            return np.empty(shape, dtype=dtype) if found is None else found
        given: NDArray[Any] = np.asarray(out).T
        if out.flags.f_contiguous:
            return given.reshape(shape)
        powers = given[:, None] if given.ndim == 2 else given
        is_own = getattr(program, "is_own_result", None)
        if is_own is None or not is_own(powers):
            raise _wrong_layout(out.shape, dtype)
        return powers

    def _type_for(self, given: np.dtype[Any]) -> np.dtype[Any]:
        """The result's type for start vectors of a type; remembered."""
        dtype = self._types.get(given)
        if dtype is None:
            dtype = self._types[given] = self._result_dtype(given)
        return dtype

    def _ready_for(self, dtype: np.dtype[Any], vectors: int, backend: str) -> tuple[Program, Coefficients]:
        key = (dtype, vectors, backend)
        ready = self._ready.get(key)
        if ready is None:
            ready = self._ready[key] = self._program(dtype, vectors, backend), self._coefficients_in(dtype)
        return ready

    def _matrix_in(self, dtype: np.dtype[Any]) -> Matrix:
        """The matrix in a type, with the values that it has now."""
        with self._lock:
            if self._new_values is not None:
                self._take_host_values(self._new_values.get())
            if dtype == self._matrix.dtype:
                return self._matrix
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

    def _coefficients_of(self, basis: Basis, dtype: np.dtype[Any]) -> Coefficients:
        """Those of a basis given with a call; the last ones are remembered, since a solver asks for them again."""
        if self._last is None or self._last[0] is not basis or self._last[1] != dtype:
            if not isinstance(basis, Basis):
                raise ArgumentTypeError("basis is not a Basis", found=type(basis).__name__)
            if basis.k != self.k:
                raise ArgumentError("basis is for another k", expected=f"{self.k} steps", found=f"{basis.k}")
            if not basis.is_real and dtype.kind != "c":
                raise ArgumentTypeError("basis is complex and the vectors are real", expected="a real basis")
            self._last = basis, dtype, as_coefficients(basis.a, basis.b, basis.c, dtype)
        return self._last[2]

    def _choice(self, dtype: np.dtype[Any], vectors: int, backend: str | None = None) -> _Choice:
        key = (dtype, vectors, backend or self._home)
        found = self._choices.get(key)
        if found is None:
            brought, place = self._brought.pop(key, (None, ""))
            if brought is None or place != self._place_of(key[2]):
                brought = self._choose(self._matrix_in(dtype), vectors, key[2])
            found = self._choices[key] = brought
        return found

    def _place_of(self, backend: str) -> str:
        """What a plan is chosen for besides the matrix: a copy elsewhere keeps it where this is the same."""
        return f"{self._device(backend).device_class}, {plan_threads(backend, self._threads)} threads"

    def _choose(self, matrix: Matrix, vectors: int, backend: str) -> _Choice:
        if self._given is not None:
            return _Choice(self._given, "given by the caller")
        arguments = self._asked(vectors, backend)
        key, exact = (plan_key(one, self.k, **arguments) for one in (matrix, matrix.with_value_error(0.0)))
        if exact == key:  # nothing here stores values with an error, so results have none
            matrix = matrix.with_value_error(0.0)
        lookup, told = self._db.find(key), ""
        chosen, reason = self._tuned(lookup, matrix, backend)
        if chosen is None and exact != key:  # what was tuned for values as they are is right with an allowance too
            told = _unused_for_allowance(lookup, reason)
            key, lookup = exact, self._db.find(exact)
            chosen, reason = self._tuned(lookup, matrix, backend)
            told = told if chosen is None else f", with values as they are{told}"
        if chosen is not None:
            chosen = self._renewed(lookup, chosen, matrix, key, arguments)
        if not self._is_own_db:
            self._db.close()  # lookups are rare, open files are few
        if chosen is None:
            source = f"predicted, not tuned ({lookup.explain()}); tune it with `akx tune` or akx.tune"
            if reason is not None:
                source = f"predicted, not tuned: the plan in the database does not work here ({reason})"
            plan = predict(matrix, self.k, **arguments)
            chosen = self._of_like_device(lookup, plan, matrix, key) or _Choice(plan, source, is_predicted=True)
        return replace(chosen, source=chosen.source + told)

    def _tuned(self, lookup: Lookup, matrix: Matrix, backend: str) -> tuple[_Choice | None, str | None]:
        """The plan that was found; None where there is none, or where it does not work here, with the reason."""
        record = lookup.record
        if record is None:
            return None, None
        # a record may come from a folder of others: whatever it says, no more threads than there are for this call
        tuned = limited(record.plan, plan_threads(backend, self._threads))
        reason = _reason_against(tuned, matrix, self._device(backend))
        if reason is not None:
            return None, reason
        gain = record.baseline_seconds / record.seconds
        source = f"tuned on {record.created[:10]}, {origin(lookup.layer)}: {gain:.2f}x over {record.baseline_name}"
        return _Choice(tuned, source, record.seconds), None

    def _renewed(
        self, lookup: Lookup, chosen: _Choice, matrix: Matrix, key: PlanKey, arguments: Mapping[str, Any]
    ) -> _Choice:
        """The plan that was found; or, where it is aged and does not hold out here, the predicted one."""
        record = lookup.record
        why = [] if record is None else aged(record)
        if record is None or not why:
            return chosen
        backend = chosen.plan.backend
        if self._budget is not None:  # no room for two
            return replace(chosen, source=f"{chosen.source}; aged ({'; '.join(why)})")
        answer = self._kept_program(
            matrix.dtype,
            lambda prepared: renewed(
                record,
                chosen.plan,
                lambda: predict(matrix, self.k, **arguments),
                matrix,
                key,
                device=self._device(backend),
                threads=plan_threads(backend, self._threads),
                prepared=prepared,
            ),
        )
        if answer.is_like:
            return replace(chosen, source=f"{chosen.source}; aged ({'; '.join(why)}), {answer.why}")
        return _Choice(
            answer.plan, f"predicted, not tuned ({answer.why}); tune it with `akx tune` or akx.tune", None, True
        )

    def _kept_program(self, dtype: np.dtype[Any], ask: Callable[[Callable[[Plan], Program | None]], Answer]) -> Answer:
        """What the ladder answers, which is told of programs that are here, and whose own is kept."""
        begin = time.perf_counter()
        answer = ask(lambda plan: self._programs.get((dtype, plan)))
        if answer.program is not None and answer.program is not self._programs.get((dtype, answer.plan)):
            self._programs[dtype, answer.plan] = answer.program
            self._stale.discard((dtype, answer.plan))
        self.prepare_seconds += time.perf_counter() - begin
        return answer

    def _asked(self, vectors: int, backend: str) -> dict[str, Any]:
        """What a plan is looked up by, and predicted for, beside the matrix and k."""
        return {
            "basis": self.basis.kind,
            "start_vectors": vectors,
            "backend": backend,
            "threads": self._threads,
            "device": None if self._budget is None else self._device(backend),
        }

    def _of_like_device(self, lookup: Lookup, predicted: Plan, matrix: Matrix, key: PlanKey) -> _Choice | None:
        """The plan for another basis or k or of a like device, or the predicted one that beat it; None without any."""
        backend = predicted.backend
        if self._budget is not None or not lookup.mismatches:
            return None
        answer = self._kept_program(
            matrix.dtype,
            lambda prepared: believed(
                [record for record, _ in lookup.mismatches],
                predicted,
                matrix,
                key,
                device=self._device(backend),
                threads=plan_threads(backend, self._threads),
                prepared=prepared,
            ),
        )
        if not answer.why:
            return None
        told = f"predicted, not tuned ({answer.why}); tune it with `akx tune` or akx.tune"
        return _Choice(answer.plan, answer.why if answer.is_like else told, is_predicted=not answer.is_like)

    def _device(self, backend: str) -> Any:
        return within(device_of(backend), self._budget)

    def _program(self, dtype: np.dtype[Any], vectors: int, backend: str | None = None) -> Program:
        choice = self._choice(dtype, vectors, backend)
        plan = choice.plan
        found = self._programs.get((dtype, plan))
        if found is not None and (dtype, plan) in self._stale:
            found.update_values(self._matrix_in(dtype).data)
            self._stale.discard((dtype, plan))
        if found is None:
            begin = time.perf_counter()
            try:
                found = self._prepared(plan, dtype, vectors)
            except (InfeasibleError, DeviceError, MissingDependencyError) as problem:
                key, is_device = (dtype, vectors, backend or self._home), isinstance(problem, DeviceError)
                if not choice.is_predicted and self._given is None and not is_device:
                    again = self._choose(self._matrix_in(dtype), vectors, key[2])  # it was chosen for other values
                    if again.plan == plan:  # what costs little to ask has not told
                        again = self._predicted_instead(problem, *key)
                    if again.plan != plan:
                        self._choices[key] = again
                        return self._program(*key)
                if not choice.is_predicted or plan.schedule in PLAIN_SCHEDULES:
                    raise
                self._choices[key] = self._plain_instead(choice, problem, *key)
                return self._program(*key)
            self.prepare_seconds += time.perf_counter() - begin
        else:
            self._check_budget(plan, found, dtype, vectors)
        return found

    def _prepared(self, plan: Plan, dtype: np.dtype[Any], vectors: int) -> Program:
        matrix = self._matrix_in(dtype)
        schedule = registry.get(plan.backend, plan.schedule)
        if self._budget is not None:  # without one a schedule asks itself
            check_feasible(schedule, plan, matrix, self._device(plan.backend))
        program = schedule.prepare(matrix, plan)
        self._check_budget(plan, program, dtype, vectors)
        if plan.backend == "cuda" and plan.schedule != STREAMED_SCHEDULE and hasattr(program, "ready"):
            program.ready(vectors)  # compiled now: a prediction that cannot be gives way
        self._programs[(dtype, plan)] = program
        return program

    def _predicted_instead(self, problem: AkxError, dtype: np.dtype[Any], vectors: int, backend: str) -> _Choice:
        """The predicted plan in place of one of the database that cannot be prepared."""
        plan = predict(self._matrix_in(dtype), self.k, **self._asked(vectors, backend))
        told = f"predicted, not tuned: the plan in the database does not work here ({problem.what})"
        return _Choice(plan, told, is_predicted=True)

    def _plain_instead(
        self, choice: _Choice, problem: AkxError, dtype: np.dtype[Any], vectors: int, backend: str
    ) -> _Choice:
        """Plain products in place of a prediction that cannot be prepared."""
        plan = predict(self._matrix_in(dtype), self.k, **self._asked(vectors, backend), plain=True)
        told = (
            f"{choice.source}; {choice.plan.label()} cannot be prepared ({problem.what}), so these are plain products"
        )
        return _Choice(plan, told, is_predicted=True)

    def _check_budget(self, plan: Plan, program: Program, dtype: np.dtype[Any], vectors: int) -> None:
        """Refuse a plan that takes too much with so many vectors on the device; one that streams counts its own."""
        if self._budget is None or plan.schedule == STREAMED_SCHEDULE:
            return
        of_vectors = (self.k + 2) * vectors * self._matrix.n * dtype.itemsize

        def bytes_taken() -> int:
            staged = getattr(program, "staged_nbytes", 0)  # of an earlier call, perhaps with fewer vectors
            return program.nbytes - staged + of_vectors

        if bytes_taken() > self._budget and hasattr(program, "make_room"):
            program.make_room()
        if (taken := bytes_taken()) > self._budget:
            raise BudgetError(
                f"plan {plan.label()} does not keep within the memory budget",
                expected=f"at most {self._budget} bytes",
                found=f"{taken} bytes with its vectors",
                hint="tune within the budget, or give it more",
            )

    def _look_again(self) -> None:
        """Look every plan up again, and forget the programs of those that were replaced."""
        with self._lock:
            wanted = list(self._choices)
            self._choices.clear()
            self._brought.clear()
            for dtype, vectors, backend in wanted:
                self._choice(dtype, vectors, backend)
            self._forget_unused()

    def _forget_unused(self) -> None:
        """Forget programs that no chosen plan has any more, and which are ready."""
        used = {(dtype, choice.plan) for (dtype, _, _), choice in self._choices.items()}
        self._programs = {key: program for key, program in self._programs.items() if key in used}
        self._ready.clear()

    def _held(self) -> dict[Any, int]:
        """Bytes of all that is held, by what tells one holding from another: arrays may be shared with others."""
        arrays: dict[Any, int] = {}
        for matrix in [self._matrix, *self._matrices.values()]:
            _add_arrays(arrays, (matrix.indptr, matrix.indices, matrix.data))
        _add_arrays(arrays, self._matrix.pattern_cache)
        if self._new_values is not None:
            arrays["new values", id(self)] = self._new_values.nbytes
        programs = {("program", id(program)): held_bytes(program) for program in list(self._programs.values())}
        return {**arrays, **programs}

    def _time_calls(self, dtype: np.dtype[Any], vectors: int) -> float:
        """Median seconds of a few calls into the same result, on fixed start vectors, where the plan has them."""
        n = self._matrix.n
        if self._choice(dtype, vectors).plan.backend == "cuda":
            return self._time_on_device(dtype, vectors)
        x = np.asfortranarray(np.random.default_rng(0).standard_normal((n, vectors)).astype(dtype))
        out = np.empty((n, vectors, self.k + 1), dtype=dtype, order="F")
        self(x, out=out)
        samples: list[float] = []
        while len(samples) < 5 or (sum(samples) < 0.2 and len(samples) < 200):
            begin = time.perf_counter()
            self(x, out=out)
            samples.append(time.perf_counter() - begin)
        return float(np.median(samples))

    def _time_on_device(self, dtype: np.dtype[Any], vectors: int) -> float:
        from akx.device.cuda.memory import empty, to_device
        from akx.tuner.gpu import DeviceCall, HostCall
        from akx.tuner.measure import interleave

        x = np.random.default_rng(0).standard_normal((vectors, self._matrix.n)).astype(dtype)
        with self._lock:
            program, coefficients = self._ready_for(dtype, vectors, self._home)
            call: DeviceCall | HostCall
            if self._budget is not None or self._choice(dtype, vectors).plan.schedule == STREAMED_SCHEDULE:
                call = HostCall(program, x, np.empty((self.k + 1, *x.shape), dtype), coefficients)
            else:
                out = empty((self.k + 1, *x.shape), dtype)
                call = DeviceCall.of(program, to_device(x), out, coefficients)
            call()
            return interleave([call])[0].seconds


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
        Any SciPy sparse format or a :class:`akx.Matrix`.
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
    if backend == "auto" and not isinstance(x, np.ndarray) and _is_on_device(x):
        backend = "cuda"
    budget = memory_budget, fraction
    operator = _prepared(A, check_count("k", k), basis, plan, dtype, threads, db, backend, budget, value_error)
    operator.looks_for_overflow = True  # what is kept is not the caller's: how often they are warned, a filter says
    return operator(x, out=out)


# -------------------------------------------------------------------------------- operators kept for matrix_powers


@dataclass
class _Kept:
    """A prepared operator, the matrix object it is for, and the content of both it and the plans when it was prepared.

    `generation`, `stamp` and `glanced` belong to the plans: changes by this process, those by others, and when they
    were last looked for.
    """

    owner: Callable[[], Any]
    token: tuple[Any, ...]
    operator: MatrixPowers
    generation: int
    stamp: tuple[Any, ...]
    glanced: float


_kept: OrderedDict[tuple[Any, ...], _Kept] = OrderedDict()
_kept_lock = ForkSafeLock()


def _prepared(
    A: Any,
    k: int,
    basis: str | Basis,
    plan: Plan | None,
    dtype: Any,
    threads: int | None,
    db: Any,
    backend: str,
    budget: tuple[int | str | None, float | None] = (None, None),
    value_error: float | None = None,
) -> MatrixPowers:
    given = A  # which is kept for: another library's matrix is converted in every call, to see whether it changed
    if not isinstance(A, Matrix):
        A = scipy_matrix(A)
    target = target_dtype(A.dtype, dtype)
    most = resolve_threads(threads)
    named = basis if isinstance(basis, str) else id(basis)
    budget = parse_limits(*budget)  # before it is part of a key: equal ones are to be equal, and wrong ones named
    check_plan(plan)
    own = A.value_error if isinstance(A, Matrix) else 0.0
    allowed = own if value_error is None else check_value_error(value_error)
    key = (id(given), target.str, k, named, plan, threads is None, most, _place(db), backend, budget, allowed)
    token = _token(A, most)
    with _kept_lock:
        found = _kept.get(key)
        if found is None or found.owner() is not given or not _same_basis(found.operator, basis):
            found = None
        elif found.token == token or _renew(found, given, A, target, token, basis):
            _kept.move_to_end(key)
        else:
            del _kept[key]
            found = None
        source = _sibling(given, target, token)
    if found is not None:
        _refresh(found)  # may measure: calls for other matrices do not wait for it
        return found.operator
    database = _database(db)
    generation, stamp = database.generation, database.file_stamp()  # before the lookup: a change since is then seen
    if source is None:  # a Matrix must not be kept alive by what is kept for it
        source = Matrix(A.indptr, A.indices, A.data, pattern_cache=A.pattern_cache) if isinstance(A, Matrix) else A
    limits: dict[str, Any] = {"memory_budget": budget[0], "fraction": budget[1], "value_error": allowed}
    operator = MatrixPowers(
        source, k, basis=basis, plan=plan, dtype=target, threads=threads, db=db, backend=backend, **limits
    )
    if source is A and _token(A, most) != token:  # another thread changes it: nobody knows what this is for
        return operator
    try:
        owner: Callable[[], Any] = weakref.ref(given, lambda _: _kept.pop(key, None))
    except TypeError:  # a sparse class without weak references is not kept
        return operator
    with _kept_lock:
        _kept[key] = _Kept(owner, token, operator, generation, stamp, time.monotonic())
        _kept.move_to_end(key)
        while len(_kept) > 1 and (len(_kept) > _KEPT or _kept_bytes() > _KEPT_BYTES):
            _kept.popitem(last=False)
    return operator


def _token(A: Any, threads: int) -> tuple[Any, ...]:
    """The content of `A`, read by as many threads as its size is worth; an akx.Matrix cannot change."""
    if isinstance(A, Matrix):
        return ("akx",)
    octets = A.nnz * (A.dtype.itemsize + 4)
    return content_token(A, threads=max(1, min(threads, octets // _BYTES_PER_READER)))


def _sibling(owner: Any, target: np.dtype[Any], token: tuple[Any, ...]) -> Matrix | None:
    """The canonical matrix of the same content that another kept operator for `owner` has, or None."""
    for other in list(_kept.values()):
        operator = other.operator
        if operator._new_values is not None:  # they are on a device, and its matrix has the old ones
            continue
        if other.owner() is owner and other.token == token and operator.dtype == target:
            return operator._matrix
    return None


def _renew(found: _Kept, owner: Any, A: Any, target: np.dtype[Any], token: tuple[Any, ...], basis: str | Basis) -> bool:
    """Give the kept operator the new values of `A`; False where its pattern, or an estimated spectrum, is stale."""
    if isinstance(basis, str) and basis != "monomial":
        return False
    sibling = _sibling(owner, target, token)
    found.token = ()  # that of nothing: what follows may end anywhere
    try:
        found.operator.update_values(A if sibling is None else sibling)
    except MatrixError:
        return False
    if sibling is None and _token(A, found.operator._threads) != token:  # another thread changes it
        return True
    found.token = token
    return True


def _refresh(found: _Kept) -> None:
    """Look for another plan where those in the database may have changed since the last one was looked up."""
    operator = found.operator
    if operator._given is not None:
        return
    generation, now = operator._db.generation, time.monotonic()
    if generation == found.generation and now - found.glanced < _GLANCE:
        return
    stamp = operator._db.file_stamp()
    if generation != found.generation or stamp != found.stamp:
        operator._look_again()
    found.generation, found.stamp, found.glanced = generation, stamp, now


def _kept_bytes() -> int:
    """Bytes of all kept operators; what they share counts once."""
    held: dict[Any, int] = {}
    for kept in list(_kept.values()):
        held.update(kept.operator._held())
    return sum(held.values())


def _same_basis(operator: MatrixPowers, basis: str | Basis) -> bool:
    """Whether a basis given as an object is that of the operator (its id may have been used again)."""
    return isinstance(basis, str) or operator.basis == basis.head(operator.k)


# ------------------------------------------------------------------------------------------------------- checks


def _database(db: Any) -> PlanDatabase:
    """The database that `db` names, one object per file: each may hold a file open."""
    if isinstance(db, PlanDatabase):
        return db
    if db is not None and not isinstance(db, (str, os.PathLike)):
        raise ArgumentTypeError("db is no database", expected="a path or a PlanDatabase", found=type(db).__name__)
    return shared_database(db)


def _place(db: Any) -> Any:
    """What decides which file or server `db` names, without a look at the file system."""
    if db is None:
        return tuple(os.environ.get(name) for name in ("AKX_DB", "XDG_DATA_HOME", "HOME"))
    if isinstance(db, str) and "://" in db:
        return db
    return os.path.abspath(db) if isinstance(db, (str, os.PathLike)) else _database(db)


def _same_pattern(one: Any, other: Matrix) -> bool:
    if one.indptr is other.indptr and one.indices is other.indices:
        return True
    # Not by array_equal, which swallows what a handler of a signal raises, and says no.
    pairs = ((one.indptr, other.indptr), (one.indices, other.indices))
    return all(mine.shape == theirs.shape and bool((mine == theirs).all()) for mine, theirs in pairs)


def _add_arrays(found: dict[Any, int], value: Any) -> None:
    """Add the bytes of all arrays in `value`, by address; views of one array count once."""
    if isinstance(value, np.ndarray):
        place = value.__array_interface__["data"][0]
        found[place] = max(found.get(place, 0), int(value.nbytes))
        return
    parts: Iterable[Any] = ()
    if isinstance(value, Mapping):
        parts = list(value.values())
    elif isinstance(value, (tuple, list)):
        parts = value
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, item.name) for item in fields(value)]
    for part in parts:
        _add_arrays(found, part)


def _power_of_vector(operator: MatrixPowers, j: int, x: NDArray[Any]) -> NDArray[Any]:
    return np.array(operator(np.asarray(x).reshape(-1))[:, j])


def _power_of_block(operator: MatrixPowers, j: int, X: NDArray[Any]) -> NDArray[Any]:
    return np.array(operator(X)[:, :, j])


def _start_block(x: Any, n: int) -> tuple[NDArray[Any], bool]:
    """The start vectors as an array (b, n), and whether x was a single vector."""
    array = x if type(x) is np.ndarray and x.dtype.kind in "fc" else numbers_of(x, "x")
    if array.dtype.kind in "biu":
        array = array.astype(np.float64)
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    if array.ndim not in (1, 2) or array.shape[0] != n or 0 in array.shape:
        raise ArgumentError(
            "x does not fit the matrix",
            expected=f"shape ({n},) or ({n}, b)",
            found=f"shape {array.shape}",
            hint="pass x.T" if array.ndim == 2 and array.shape[1] == n else None,
        )
    return (array[None, :], True) if array.ndim == 1 else (array.T, False)


def _is_on_device(x: Any) -> bool:
    if isinstance(x, Matrix):  # which has nothing that could be looked for
        return False
    from akx.device.cuda.interchange import is_on_device

    return is_on_device(x)


def _levels_to_caller() -> int:
    """For a warning, from the function that calls this: how far up the caller of akx is."""
    frame, levels = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "akx":
        frame, levels = frame.f_back, levels + 1
    return levels


def _overlap(one: Any, other: Any) -> bool:
    """Whether two device arrays share memory."""
    return bool(one.pointer < other.pointer + other.nbytes and other.pointer < one.pointer + one.nbytes)


def _wrong_layout(shape: tuple[int, ...], dtype: np.dtype[Any]) -> ArgumentError:
    return ArgumentError(
        "out has the wrong layout",
        expected="a writeable array in Fortran order, so that every vector is contiguous",
        hint=f"make it with np.empty({shape}, dtype='{dtype}', order='F')",
    )


def _is_same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two contiguous arrays of one shape and type are the same memory."""
    return bool(one.__array_interface__["data"][0] == other.__array_interface__["data"][0])


def _check_given(plan: Plan) -> None:
    """Raise InfeasibleError for a plan with options that nobody knows, or threads that would only wait for cores."""
    reason = unknown_option(plan.backend, plan.schedule, plan.options)
    hint, cores = "tune the matrix, or pass plan=None", os.cpu_count() or 1
    if plan.threads > _THREADS_PER_CORE * cores:
        reason, hint = f"{plan.threads} threads are too many for {cores} cores", f"pass threads={cores}"
    if reason is not None:
        raise InfeasibleError(f"plan {plan.label()} is not feasible: {reason}", hint=hint)


def _reason_against(plan: Plan, matrix: Matrix, device: Any) -> str | None:
    """Why a plan of this matrix does not work here, by what costs little; the rest is found when it is prepared."""
    try:
        schedule = registry.get(plan.backend, plan.schedule)
        unknown = unknown_option(plan.backend, plan.schedule, plan.options)
        reason: str | None = unknown or getattr(schedule, "reason_at_once", schedule.feasible)(plan, matrix, device)
        return reason
    except AkxError as error:
        return str(error)


def _unused_for_allowance(lookup: Lookup, reason: str | None) -> str:
    """What became of the plan for exactly the error that is allowed, where there is one: why it is not used."""
    if reason is not None:
        return f"; the plan for the error that is allowed does not work here ({reason})"
    if all(names != ["revisions"] for _, names in lookup.mismatches):
        return ""
    return f"; the plan for the error that is allowed is not used: it is for {FIELD_MEANINGS['revisions']}"


def _mega(count: float) -> str:
    return f"{count / 1e6:.1f} MB"
