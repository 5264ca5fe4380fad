"""`Solver`: a method for one matrix, prepared once and called often.

The canonical matrix, what M is, which method it is to be, the plans and the layouts of its powers are there beforehand;
a call pays for what belongs to its right-hand side. Operators are kept in a cache of the solver's own
(:mod:`akx.operator.cache`), which nothing else makes room in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import numpy as np
from scipy.sparse import issparse

from akx.backends.selection import HOST, array_backend, backend_of
from akx.backends.vectors import MOST_ROWS
from akx.core.arguments import unknown_name
from akx.core.errors import ArgumentError, MatrixError
from akx.core.fork_safety import ForkSafeLock
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.core.process import resolve_threads
from akx.operator.cache import Cache
from akx.operator.lookup import kept_by
from akx.operator.matrix_values import same_pattern
from akx.operator.start_vectors import is_matrix_there
from akx.solvers.arguments import check_count, named, place_of
from akx.solvers.auto import Auto
from akx.solvers.forms import form_for
from akx.solvers.gcro_dr import Recycled
from akx.solvers.ladder import kept_bytes
from akx.solvers.monitor import Watch, Watched
from akx.solvers.registry import SOLVERS
from akx.solvers.solver_pair import Settled, call_solver, check_precision, check_special
from akx.solvers.solving import answer_by, solve
from akx.solvers.stats import SolveStats
from akx.solvers.system import Answer

__all__ = ["Solver"]

#: Steps after which a solve has all that it needs: of a classic method, and of others where no block comes before.
_STEPS, _MOST_STEPS = 3, 60
#: Options of some methods, as they are where they are not given.
_USUAL = {"restart": None, "s": "auto", "basis": "auto", "plan": None, "callback_type": "pr_norm"}


class Solver:
    """The map b -> x with A x = b, for one matrix and one method.

    Parameters
    ----------
    A : sparse matrix or array, shape (n, n), or Matrix
        Its content is copied: later changes of `A` have no effect until :meth:`update_values`.
    method : str
        ``"auto"``, or the name of a solver, as for :func:`akx.solvers.solve`. With ``"auto"`` the choice is made once
        for the matrix. Where no step of the communication-avoiding solver has been timed on this matrix yet, the first
        call that is long enough does so, and later ones go by that.
    M : sparse matrix, array, LinearOperator, preconditioner, or str, optional
        As for the method. By name, ``"jacobi"``, ``"block_jacobi"``, ``"chebyshev"`` or ``"spai"``: what the function
        of that name in :mod:`akx.solvers.preconditioners` makes of A, here and anew in :meth:`update_values`.
    restart, s, basis, plan, callback_type
        Of the methods that have them; ``"auto"`` has the first three. By default as for the method.
    recycle : int
        Of gmres: that many vectors, up to 64, which a solve has found to slow it down are kept, with their images, for
        the next solves and taken out of these (GCRO-DR, :mod:`akx.solvers.gcro_dr`); with :meth:`update_values` too,
        for as many products. 10 to 20 suit most sequences. With ``"auto"`` the method is gmres then. M has to be
        linear. 0, the default: each solve is by itself.
    threads, db, backend
        As for every solver.
    precision : str
        ``"double"`` or ``"mixed"``, as for :func:`akx.solvers.solve`.
    tune : str, optional
        ``"online"``: the products of solves are the trials of a search for better plans, as for
        :class:`akx.MatrixPowers`. Bits of results, and with them numbers of steps, may change where a plan does.

    Attributes
    ----------
    shape : (int, int)
    dtype : numpy.dtype
        Of the matrix; x has the common type of this and of b.
    method, precision : str
        As they were given.
    M
        The preconditioner in use, or None.

    Raises
    ------
    MatrixError, ArgumentError, ArgumentTypeError, PlanError, InfeasibleError
        All :class:`akx.AkxError`; the message names what to change.

    Notes
    -----
    Making it does the first steps of a solve with a right-hand side of its own, for which a foreign `M` is not called.
    Several threads may call one object. Their calls are done one after another, each with the values that it began
    with; a callback may call it too. What is prepared stays as long as the object, whatever :func:`akx.clear_cache`
    forgets. A copy and a pickle have the matrix and what was asked for, and prepare with their first call.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, akx.solvers
    >>> A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(50, 50), format="csr")
    >>> solver = akx.solvers.Solver(A, M="jacobi")
    >>> x, info = solver(np.ones(50), rtol=1e-10)
    >>> info, bool(np.linalg.norm(A @ x - 1) < 1e-9)
    (0, True)
    >>> solver.update_values(2 * A)
    >>> y, info = solver(np.ones(50), rtol=1e-10)
    >>> bool(np.allclose(2 * y, x))
    True
    """

    def __init__(
        self,
        A: Any,
        method: str = "auto",
        M: Any = None,
        *,
        restart: int | None = None,
        s: int | str = "auto",
        basis: str = "auto",
        plan: Plan | None = None,
        callback_type: str | None = "pr_norm",
        recycle: int = 0,
        threads: int | None = None,
        db: Any = None,
        backend: str = "auto",
        precision: str = "double",
        tune: str | None = None,
    ) -> None:
        if tune is not None:
            from akx.operator.online import check_tune  # with the planner, which the functions do without at first

            check_tune(tune, plan=plan)
            if backend != "auto" and backend_of(backend).queues:
                raise ArgumentError(
                    "products of a solver on a GPU cannot be tuned online: they are recorded with its own work",
                    expected="backend='auto' or 'cpu'",
                    found=f"backend={backend!r}",
                    hint="tune them beforehand: akx.tune, or `akx tune`",
                )
        special = {"restart": restart, "s": s, "basis": basis, "plan": plan, "callback_type": callback_type}
        recycle = check_count("recycle", recycle, least=0, most=MOST_ROWS)
        given = {name: value for name, value in special.items() if value != _USUAL[name]}
        _check_options(method, given)
        check_special(special)
        resolve_threads(threads)
        if recycle:
            if method not in ("auto", "gmres"):
                raise ArgumentError(
                    f"{method} recycles no vectors",
                    expected="recycle=0, or the method 'gmres'",
                    found=f"recycle={recycle}",
                    hint=f"Solver(A, 'gmres', recycle={recycle})",
                )
            _check_options("gmres", given)
        if check_precision(precision) == "mixed" and recycle:
            raise ArgumentError(
                "vectors are recycled in double precision", expected="precision='double'", found="precision='mixed'"
            )
        places = {"threads": threads, "db": db, "backend": backend}
        is_there = backend != HOST and is_matrix_there(A)
        if is_there:
            backend_of(array_backend()).expect(A, to_plan=True)
        matrix = Matrix.from_any(A, value_error=0.0)
        if is_there:
            backend_of(array_backend()).expect(matrix)
        self._begin(matrix, method, M, special, places, tune, recycle, precision)
        with self._lock:
            self._prepare()

    def _begin(
        self,
        matrix: Matrix,
        method: str,
        M: Any,
        special: dict[str, Any],
        places: dict[str, Any],
        tune: str | None,
        recycle: int = 0,
        precision: str = "double",
    ) -> None:
        self.method, self._special, self._places = method, special, places
        self._recycled = Recycled(recycle)
        self._lock, self._cache = ForkSafeLock(), Cache(is_bounded=False, tune=tune)
        self._version, self.precision = 0, precision
        self._settled: Settled = {}
        self._name = M if isinstance(M, str) else ""
        self._take(matrix, self._made(self._name, matrix) if self._name else M)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            asked = {"special": self._special, "places": self._places, "tune": self._cache.tune}
            given = {"matrix": self._matrix, "method": self.method, "M": self._name or self.M}
            return {**given, **asked, "recycle": self._recycled.most, "precision": self.precision}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self._begin(**state)

    @property
    def shape(self) -> tuple[int, int]:
        return self._matrix.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._matrix.dtype

    @property
    def nbytes(self) -> int:
        """Bytes held: the matrix in every type used, what its pattern told, all that was prepared or is recycled."""
        return max(self._cache.nbytes, self._matrix.nbytes) + self._recycled.nbytes + kept_bytes(self._matrix)

    def __repr__(self) -> str:
        matrix = self._matrix
        taken = sorted({name for name, *_ in list(self._settled.values())})
        method = self.method + (f" ({', '.join(taken)})" if taken else "")
        M = "" if self.M is None else f", M={self._name or type(self.M).__name__}"
        return f"<Solver {matrix.n}x{matrix.n}, nnz={matrix.nnz}, {matrix.dtype}: {method}{M}>"

    def __call__(
        self,
        b: Any,
        x0: Any = None,
        *,
        rtol: float = 1e-5,
        atol: float = 0.0,
        maxiter: int | None = None,
        callback: Callable[[Any], object] | None = None,
        return_stats: bool = False,
    ) -> Answer:
        """Solve A x = b.

        Parameters
        ----------
        b : array_like, shape (n,), or (n, m) for several right-hand sides (:mod:`akx.solvers.many`)
            Of the host or, for ``backend="auto"`` and that of a GPU, there.
        x0 : array_like or ``"Mb"``, optional
            First guess; zero by default. ``"Mb"``: M b.
        rtol, atol : float
            Converged where ||b - A x|| <= max(rtol ||b||, atol), by the true residual.
        maxiter, callback
            As for the method.
        return_stats : bool
            Return a :class:`akx.solvers.SolveStats` too.

        Returns
        -------
        x : ndarray of b's shape, or array of b's kind on the GPU
        info : int
            As for the method; 0 where the true residual meets the tolerance.
        stats : SolveStats
            With `return_stats`.

        Raises
        ------
        ArgumentError, ArgumentTypeError
        """
        with self._lock:
            x, info, stats = self._answer(b, x0, {"rtol": rtol, "atol": atol, "maxiter": maxiter}, callback)
        return (x, info, stats) if return_stats else (x, info)

    def update_values(self, A: Any, M: Any = None) -> None:
        """Take the values of another matrix of the same pattern; plans and layouts stay.

        Parameters
        ----------
        A : sparse matrix or array, shape (n, n), or Matrix
            Has exactly the entries (in any format and order) of the matrix given first, with other values.
        M : as for :class:`Solver`, optional
            Another preconditioner. By default one that was given by name is made anew of A, and any other stays as it
            is: an approximation of the inverse of the matrix before, right for any values and good for near ones.

        Raises
        ------
        MatrixError
            Where the pattern differs, or a value is not finite; nothing is changed then.

        Notes
        -----
        Calls that have begun go on with the values that they began with. A method of ``"auto"`` is chosen anew where
        the symmetry of the values asks for it; what was timed stays.
        """
        fresh, matrix = Matrix.from_any(A, dtype=self.dtype, value_error=0.0), self._matrix
        if fresh.shape != matrix.shape or not same_pattern(fresh, matrix):
            raise MatrixError(
                "the matrix has another pattern",
                expected=f"the {matrix.nnz} entries given first",
                found=f"{fresh.nnz} entries" + (" elsewhere" if fresh.nnz == matrix.nnz else ""),
                hint="make a new Solver",
            )
        renewed = fresh.with_pattern_of(matrix)
        name = M if isinstance(M, str) else "" if M is not None else self._name
        M = self._made(name, renewed) if name else self.M if M is None else M
        with self._lock:
            self._name = name
            self._take(renewed, M)

    def _take(self, matrix: Matrix, M: Any) -> None:
        """Have new values, and another M."""
        self._version += 1
        self._recycled.version = self._version
        self._matrix, self.M = kept_by(self, matrix, self._cache, self._version), M

    def _made(self, name: str, matrix: Matrix) -> Any:
        """The preconditioner of that name."""
        return named(name, matrix, self._named, **self._places)

    def _answer(
        self, b: Any, x0: Any, options: dict[str, Any], callback: Callable[[Any], object] | None
    ) -> tuple[Any, int, SolveStats]:
        options, special = {**options, **self._places, "M": self.M}, self._special
        if self._recycled.most:
            special = {**special, "recycled": self._recycled}
        given = self._matrix, b, x0, options, special, callback, self._settled
        method = "gmres" if self._recycled.most else self.method  # each call of Python counts here
        return answer_by(method, *given, precision=self.precision)

    @property
    def _named(self) -> str:
        """The method, which is gmres where vectors are recycled."""
        return "gmres" if self._recycled.most else self.method

    def _prepare(self) -> None:
        """Do the first steps of a solve, by the solver that a call begins with."""
        b = np.random.default_rng(0).standard_normal(self.shape[0]).astype(self.dtype)
        M = self.M if getattr(self.M, "serial", None) is not None or issparse(self.M) else None
        options = {"rtol": 1e-14, "atol": 0.0, "maxiter": None, "M": M, **self._places}
        asked = {name: options[name] for name in ("rtol", "atol", "threads", "backend")}
        place_of(self._matrix, b, M=self.M, callback=None, **asked)  # which refuses what cannot be M
        name, special = self._named, self._special
        if self._recycled.most:
            special = {**special, "recycled": Recycled(self._recycled.most)}
        if name == "auto":
            auto = Auto(self._matrix, b, None, {**options, "M": self.M}, self._special, None, self._settled)
            name = auto.solver_of(auto.families()[0][0])[0]
            options["M"] = M if self.M is not None else auto.options["M"]
        steps = _STEPS
        if name.startswith("ca_"):
            steps = _MOST_STEPS
            if self.M is not None and form_for(name, self.M, self._matrix) is None:
                name = name.removeprefix("ca_")  # no powers of A; the products are those of the classic sister
            elif self.M is not None:
                options["M"] = self.M
        if self.precision == "mixed":
            few = {**options, "rtol": 1e-8, "maxiter": 2 if name.endswith("gmres") else 2 * steps}
            answer_by(name, self._matrix, b, None, few, special, None, self._settled, precision="mixed")
            return
        call_solver(name, self._matrix, b, None, options, special, Watched(None, _Begun(steps)))


class _Begun(Watch):
    """Ends a solve when it has begun: after the first block, or so many steps."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def due(self, stats: SolveStats) -> bool:
        return bool(stats.s) or stats.iterations >= self._steps


def _check_options(method: Any, given: Mapping[str, Any]) -> None:
    """Raise for a method that there is not, and for options that it has not."""
    if method != "auto" and (not isinstance(method, str) or method not in SOLVERS):
        raise unknown_name("method", method, ("auto", *SOLVERS))
    has = signature(solve if method == "auto" else SOLVERS[method]).parameters
    for name in given:
        if name not in has:
            others = [other for other in SOLVERS if name in signature(SOLVERS[other]).parameters]
            raise ArgumentError(
                f"{method} has no {name}", found=f"{name}={given[name]!r}", hint=f"it is for {', '.join(others)}"
            )
