"""The arguments that solvers share, checked: matrix, vectors, preconditioner, tolerances and counts."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from akx.backends.selection import array_backend, backend_of, resolve_backend
from akx.core.arguments import ANY_COUNT, check_number, converted, numbers_of, unknown_name
from akx.core.arguments import check_count as check_integer
from akx.core.errors import AkxError, ArgumentError, ArgumentTypeError, MatrixError, brief
from akx.core.matrix import Matrix
from akx.operator.lookup import canonical, derived
from akx.operator.start_vectors import is_on_device
from akx.solvers.products import Rows
from akx.solvers.registry import PRECONDITIONERS
from akx.solvers.scaling import exponent_of, is_extreme
from akx.solvers.symmetry import is_hermitian, skew_shift
from akx.solvers.vector_work import checked_norm

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

__all__ = [
    "BY_STEPS",
    "RESTART",
    "Arguments",
    "GivenVector",
    "by_foreign",
    "check_count",
    "check_device_backend",
    "check_hermitian",
    "cycle_of",
    "diagonal_of",
    "given_matrix",
    "is_known_hermitian",
    "is_ours",
    "makes_new_arrays",
    "misfit",
    "named",
    "not_finite",
    "place_of",
    "real_if_told",
]

#: Steps of a cycle of gmres, where the caller does not say.
RESTART = 30
#: The type of a callback of gmres where several methods are tried: x after each cycle, and `maxiter` counts steps.
BY_STEPS = "x, by steps"
#: In the cache of a matrix in a wider type, the one that it was made of.
_GIVEN = "akx.solvers.arguments.given"


class Arguments:
    """The arguments of :func:`akx.solvers.system.make_system`, checked; the matrix in the type of the vectors."""

    def __init__(
        self,
        A: Any,
        b: Any,
        x0: Any,
        *,
        rtol: float,
        atol: float,
        M: Any,
        callback: Callable[[Any], object] | None,
        threads: int | None,
        backend: str,
    ) -> None:
        if _is_operator(A):
            raise ArgumentTypeError(
                "A is a LinearOperator, which has no entries to block",
                expected="a sparse matrix",
                hint="use scipy.sparse.linalg for operators without a matrix",
            )
        right, guess = GivenVector(b, "b"), None if x0 is None or isinstance(x0, str) else GivenVector(x0, "x0")
        is_asked = right.on_device or backend == array_backend()
        if is_asked:
            backend_of(array_backend()).expect(A)
        matrix = canonical(A, threads=threads, on_device=is_asked)
        if right.on_device:
            check_device_backend(backend)
        is_there = right.on_device or (backend == "auto" and matrix.on_device is not None)
        self.backend = array_backend() if is_there else resolve_backend(backend)
        if isinstance(x0, str) and x0 != "Mb":
            raise ArgumentError("x0 is unknown", expected="a vector, or 'Mb' to begin from M b", found=brief(x0))
        fitting = (matrix.n,), (matrix.n, 1)
        if right.shape not in fitting:
            raise misfit("b", matrix.n, right.shape)
        if guess is not None and guess.shape not in fitting:
            raise misfit("x0", matrix.n, guess.shape)
        if callback is not None and not callable(callback):
            raise ArgumentTypeError("callback cannot be called", found=type(callback).__name__)
        self.rtol, self.atol = _tolerance("rtol", rtol), _tolerance("atol", atol)
        self.inverse = None if M is None else _operator_of(M)
        if self.inverse is not None and self.inverse.shape != (matrix.n, matrix.n):
            raise MatrixError("M does not fit A", expected=f"({matrix.n}, {matrix.n})", found=str(self.inverse.shape))
        dtype = _common(matrix.dtype, right, guess, self.inverse)
        is_wide = dtype != matrix.dtype
        self.matrix = derived(matrix, dtype.str, lambda: matrix.in_type(dtype)) if is_wide else matrix
        if is_wide:
            self.matrix.cache[_GIVEN] = matrix
        self.right, self.guess = right, guess


def given_matrix(matrix: Matrix) -> Matrix:
    """The matrix of the caller that one in a wider type was made of; itself where it is that."""
    found: Matrix = matrix.cache.get(_GIVEN, matrix)
    return found


def place_of(A: Any, b: Any, x0: Any = None, *, threads: int | None = None, **asked: Any) -> tuple[Matrix, str]:
    """The matrix in the type of a solve, and the backend; for what arguments mean and raise see :func:`make_system`."""
    found = Arguments(A, b, x0, threads=threads, **asked)
    return found.matrix, found.backend


class GivenVector:
    """A vector of the caller's, of the host or on the device."""

    def __init__(self, v: Any, name: str) -> None:
        self.name = name
        self.on_device = type(v) is not np.ndarray and is_on_device(v)
        if self.on_device:
            interchange = backend_of(array_backend()).interchange()
            self.v, self.shape, self.dtype = v, interchange.shape_of(v), interchange.dtype_of(v)
            return
        self.v = numbers_of(v, name)
        if self.v.dtype in (np.longdouble, np.clongdouble):
            with np.errstate(over="ignore"):
                self.v = self.v.astype(complex if self.v.dtype.kind == "c" else float)
        self.shape, self.dtype = self.v.shape, self.v.dtype

    def take(self, work: Any) -> tuple[Rows, int | None, float]:
        """A copy (n,) where the vectors are, the exponent of its largest entry, about, None where it is zero; its norm.

        The norm tells of what is not finite, and of what is extreme: entries are looked at where it does. Raises
        ArgumentError where one is not finite.
        """
        if self.on_device:
            gpu = array_backend()
            if not work.on_device:
                raise ArgumentTypeError(f"{self.name} is on the device and b is not", hint=f"use backend={gpu!r}")
            held = backend_of(gpu).interchange().vector_of(self.v, math.prod(self.shape), work.dtype, self.name)
        elif self.dtype == work.dtype:
            held = work.from_host(self.v.reshape(-1).copy())
        else:
            with np.errstate(over="ignore"):
                held = work.from_host(self.v.reshape(-1).astype(work.dtype))
        norm = float(work.norm(held))
        exponent = exponent_of(norm) if math.isfinite(norm) else None
        if exponent is None or is_extreme(exponent, work.dtype):  # rarely: zero, or beyond what squares can say
            host = work.to_host(held)
            if not np.isfinite(host).all():
                raise not_finite(self.name, host)
            exponent, norm = exponent_of(host), checked_norm(work, norm, held)
        return held, exponent, norm


def not_finite(name: str, v: NDArray[Any]) -> ArgumentError:
    """The error for a vector, or several, that are not finite: which entry is not, the first one."""
    at = np.unravel_index(int(np.argmin(np.isfinite(v))), v.shape)
    place = ", ".join(str(int(i)) for i in at)
    return ArgumentError(
        f"{name} is not finite", expected="no NaN or Inf", found=f"{name}[{place}] = {v[at]} in {v.dtype}"
    )


def _tolerance(name: str, value: Any) -> float:
    if type(value) is float and value >= 0:
        return value
    if value is None or isinstance(value, str):  # as SciPy, where None and "legacy" once were values
        raise ArgumentError(f"{name} is out of range", expected="a number >= 0", found=brief(value))
    return check_number(name, value, "a number >= 0", lambda number: number >= 0)


def misfit(name: str, n: int, shape: tuple[int, ...]) -> ArgumentError:
    """The error for a vector, or several, of a shape that does not fit a matrix of n rows."""
    hint = f"pass {name}.T" if len(shape) == 2 and shape[1] == n else None
    return ArgumentError(f"{name} does not fit A", expected=f"({n},) or ({n}, m)", found=str(shape), hint=hint)


def _common(
    of_matrix: np.dtype[Any], b: GivenVector, x0: GivenVector | None, M: LinearOperator | None
) -> np.dtype[Any]:
    """SciPy's rule: single precision only where all are, integers and float16 count as double; complex where M is."""
    if M is None and b.dtype == of_matrix and x0 is None:
        return of_matrix
    types = [of_matrix, *(a.dtype if a.dtype.char in "fdFD" else np.dtype(float) for a in (b, x0) if a is not None)]
    types += [np.dtype(np.complex64)] if np.iscomplexobj(np.empty(0, getattr(M, "dtype", None))) else []
    found = np.result_type(*types)
    return found if found in (np.float32, np.float64, np.complex64, np.complex128) else np.dtype(complex)


def check_device_backend(asked: str) -> None:
    """Refuse a backend other than that of b, which is on a device."""
    if asked not in ("auto", array_backend()):
        raise ArgumentTypeError("b is on the device", expected=f"an array of the host for backend={asked!r}")


def check_count(
    name: str, value: Any, default: int = 0, *, least: int = 1, most: int | None = None, auto: bool = False
) -> int:
    """An integer argument between `least` and `most`; the default, at least 1, where it is None.

    `auto`: the message names ``"auto"`` too, which the caller has dealt with. Raises ArgumentError, ArgumentTypeError.
    """
    if value is None and not auto:
        return max(default, 1)
    most = ANY_COUNT if most is None else most
    return check_integer(name, value, least=least, most=most, other="'auto'" if auto else "")


def check_hermitian(M: Any, method: str) -> None:
    """Raise ArgumentError for a preconditioner of akx that is known not to be Hermitian."""
    if getattr(M, "hermitian", True) is False:
        classic = f"{method[3:]} with " if method.startswith("ca_") else ""
        raise ArgumentError(
            f"M is not Hermitian, which {method} needs",
            found=type(M).__name__,
            hint=f"{classic}spai(A, symmetric=True), or another method: gmres, bicgstab",
        )


def cycle_of(method: str, n: int, restart: int | None, callback_type: str | None, callback: Any) -> int:
    """Steps that `maxiter` counts as one: those of a cycle of gmres, but for a type of callback that counts steps."""
    in_steps = callback_type == BY_STEPS or (callback_type in (None, "legacy") and callback is not None)
    return min(restart or RESTART, n) if method.endswith("gmres") and not in_steps else 1


# ------------------------------------------------------------------------------------------------- preconditioners


def named(
    name: Any, A: Any, method: str, *, threads: int | None = None, db: Any = None, backend: str = "auto", **own: Any
) -> Any:
    """The preconditioner of that name for A and a method, as :mod:`akx.solvers.preconditioners` makes it, with `own`.

    That of ``"spai"`` is symmetric where the method needs it. Raises ArgumentError where the name is unknown.
    """
    if name not in PRECONDITIONERS:
        raise unknown_name("preconditioner", name, PRECONDITIONERS)
    make = getattr(import_module("akx.solvers.preconditioners"), name)
    if name == "chebyshev":
        return make(A, threads=threads, db=db, **own)
    if name == "block_jacobi":
        return make(A, threads=threads, **own)
    if name != "spai":
        return make(A, **own)
    matrix = canonical(A, threads=threads)
    if method == "auto":
        symmetric = is_hermitian(matrix)
    else:
        symmetric = method.endswith(("cg", "minres")) and skew_shift(matrix) is None
    return make(matrix, symmetric=symmetric, threads=threads, backend=backend, **own)


def is_ours(M: Any) -> bool:
    """Whether M is a preconditioner of akx; those are imported by who makes one."""
    base = sys.modules.get("akx.solvers.preconditioners.base")
    return base is not None and isinstance(M, base.Preconditioner)


def diagonal_of(M: Any) -> NDArray[Any] | None:
    """The entries of M as it was given, (n,), where it is a diagonal matrix; None where it is not known to be one.

    A preconditioner of akx says so itself; a sparse matrix of SciPy shows it. Any other operator may do as it likes.
    """
    if is_ours(M):
        entries: NDArray[Any] | None = M.entries
        return entries
    if not issparse(M) or M.nnz > M.shape[0]:
        return None
    found = M.tocoo()
    return np.asarray(M.diagonal()) if np.array_equal(found.row, found.col) else None


def is_known_hermitian(M: Any) -> bool:
    """Whether a preconditioner of akx says that it is Hermitian, or M shows a positive diagonal and nothing else."""
    if is_ours(M):
        return bool(M.hermitian)
    diagonal = diagonal_of(M)
    return diagonal is not None and bool(np.isreal(diagonal).all() and (diagonal.real > 0).all())


def _is_operator(A: Any) -> bool:
    """Whether it is an operator of SciPy, whose module nobody else has to import: it takes longer than a solve."""
    linalg = sys.modules.get("scipy.sparse.linalg")
    return linalg is not None and isinstance(A, linalg.LinearOperator)


def _operator_of(M: Any) -> LinearOperator:
    from scipy.sparse.linalg import SuperLU, aslinearoperator

    if isinstance(M, SuperLU):
        return _by_factors(M)
    try:
        if not _is_operator(M):
            found = M.aspreconditioner() if hasattr(M, "aspreconditioner") else converted(M)  # PyAMG's
            M = M if found is None else found
        return aslinearoperator(M)
    except AkxError:
        raise
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            "M is no matrix and no operator",
            expected="a sparse matrix, an array, a LinearOperator, what akx.solvers.preconditioners makes or its name",
            found=type(M).__name__,
            hint="pass scipy.sparse.linalg.LinearOperator(A.shape, matvec=M)" if callable(M) else None,
        ) from error


def _by_factors(M: Any) -> LinearOperator:
    """The operator of SciPy's factors, which solve for their own type."""
    from scipy.sparse.linalg import LinearOperator

    kind = M.solve(np.zeros(M.shape[0], np.float32)).dtype

    def solve(r: NDArray[Any]) -> Any:
        if r.dtype.kind == "c" and kind.kind != "c":
            return M.solve(r.real.astype(kind)) + 1j * M.solve(r.imag.astype(kind))
        return M.solve(r.astype(kind))

    return LinearOperator(M.shape, matvec=solve, dtype=kind)


@lru_cache(maxsize=1)
def _operator_of_matrix() -> type:
    """SciPy's operator of a matrix, as it makes one of sparse and dense ones."""
    from scipy.sparse.linalg import aslinearoperator

    return type(aslinearoperator(np.eye(1)))


def makes_new_arrays(M: Any) -> bool:
    """Whether M is known to return new arrays and to leave its argument alone: a matrix, or code of akx itself.

    A subclass of akx's may do as it likes.
    """
    return type(M) is _operator_of_matrix() or type(M).__module__.partition(".")[0] == __name__.partition(".")[0]


def by_foreign(make: Callable[[Any], Any], v: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """What code of others makes of v, a copy: it may return its argument, or one buffer of its own each time.

    It gets a copy too, which it may write to, return and keep.
    """
    return np.array(real_if_told(make(v.copy()), dtype), dtype=dtype, order="C")


def real_if_told(found: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """What M has made, (n,), of that type; an error where it is complex and M was said to be real."""
    made = np.asarray(found).reshape(-1)
    if made.dtype.kind == "c" and dtype.kind != "c":
        raise ArgumentTypeError(
            "M has made a complex vector of a real one",
            expected=str(dtype),
            found=str(made.dtype),
            hint="give the LinearOperator its type, as dtype=complex",
        )
    if made.dtype != dtype:
        with np.errstate(over="ignore"):
            made = made.astype(dtype)
    return made
