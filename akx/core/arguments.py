"""What callers hand over, taken or refused with the cure: matrices and vectors of other libraries, and counts.

Other libraries are known by what their objects offer, and none is imported. A sparse matrix is taken where a call of
its own converts it (``tocsr()``, ``to_scipy_sparse()``, ``getValuesCSR()``, ``get()``), or where it has the arrays of
a SciPy format. A graph or an operator is refused: which matrix is meant is for the caller to say.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.core.errors import ArgumentError, ArgumentTypeError, MatrixError, brief

__all__ = [
    "ANY_COUNT",
    "check_count",
    "check_number",
    "converted",
    "is_array",
    "is_sparse_tensor",
    "numbers_of",
    "scipy_matrix",
    "shape_in",
    "unknown_name",
]

_EXPECTED = "a SciPy sparse matrix or array"
#: Most of what there is an array for, and of what is only counted.
_MOST_COUNT, ANY_COUNT = 2**31 - 1, 2**63 - 1
#: Conversions that are methods, those to SciPy's own kinds first.
_METHODS = ("to_scipy_sparse", "tocsr", "to_scipy", "to_coo", "get")
#: Kinds of integers that indices and row pointers can be, in turn.
_INDEXED = ("ii", "iu", "ui", "uu")
#: What to call, by what an object has that is no matrix, or may be several.
_ADVICE = {
    ("number_of_nodes", "adj"): "a graph has several matrices: pass {kind}.to_scipy_sparse_array(G), or its Laplacian",
    ("get_adjacency_sparse",): "a graph has several matrices: pass G.get_adjacency_sparse()",
    ("aspreconditioner", "levels"): "pass levels[0].A of it as the matrix, and its aspreconditioner() as M",
    ("matvec",): "akx needs the entries, not only products: pass the sparse matrix behind the operator",
    ("compute", "dask"): "pass A.compute() where its blocks are sparse, else scipy.sparse.csr_array(A.compute())",
    ("sparse", "dtypes"): "pass A.sparse.to_coo()",
    ("dense_shape", "indices", "values"): "pass scipy.sparse.coo_array((A.values, A.indices.T), shape=A.dense_shape)",
}
#: What conversions of other libraries raise.
_FAILURES = (TypeError, ValueError, RuntimeError, NotImplementedError, AttributeError, OverflowError, ImportError)


def scipy_matrix(A: Any) -> Any:
    """`A` as a SciPy sparse matrix or array; itself where it is one. May share memory with `A`.

    Raises :class:`MatrixError` where it is dense, or cannot be converted, and :class:`ArgumentTypeError` where it is no
    matrix; the message names the call that makes one, where there is one.
    """
    found = _of_arrays(A) if isinstance(A, tuple) else converted(A)
    if found is not None:
        return found
    hint, of_shape = _advice(A), _of_shape(A)
    if hint is None and (hasattr(A, "__array__") or (isinstance(A, (list, tuple)) and len(A) > 0)):
        advice = "pass scipy.sparse.csr_array(A) if most entries are zero; for a dense matrix akx gains nothing"
        raise MatrixError("matrix is dense", expected=_EXPECTED, found=type(A).__name__ + of_shape, hint=advice)
    hint = hint or "pass a scipy.sparse matrix or array"
    raise ArgumentTypeError("matrix has the wrong type", expected=_EXPECTED, found=_name(A), hint=hint)


def converted(A: Any) -> Any:
    """`A` as a SciPy sparse matrix or array where it is a sparse matrix of any library; None where it is none.

    Raises :class:`MatrixError` where it is one that cannot be converted.
    """
    if isinstance(A, np.ndarray) and A.ndim == 0 and A.dtype == object:  # np.asarray of a sparse matrix
        A = A.item()
    if sp.issparse(A):
        return A
    if isinstance(A, (np.ndarray, list, tuple, str, bytes, type)):
        return None
    try:
        tried = (convert(A) for convert in (_by_method, _of_petsc, _of_torch, _of_jax))
        return next((found for found in tried if found is not None), None)
    except MatrixError:
        raise
    except _FAILURES as error:
        raise MatrixError(
            "sparse matrix cannot be converted",
            expected=_EXPECTED,
            found=f"{_name(A)}{_of_shape(A)}: {error}",
            hint="convert it yourself",
        ) from error


def _by_method(A: Any) -> Any:
    """By a call of its own, or two: what the first one makes may be sparse in the memory of a GPU."""
    if not hasattr(A, "shape") or hasattr(A, "matvec"):
        return None
    failure = None
    for name in _METHODS:
        method = getattr(A, name, None)
        if not callable(method) or (name == "get" and not hasattr(A, "tocsr")):
            continue
        if len(A.shape) != 2:
            raise MatrixError("matrix is not two-dimensional", expected="shape (n, n)", found=f"shape {A.shape}")
        try:
            found = method()
        except _FAILURES as error:
            failure = failure or error
            continue
        if sp.issparse(found):
            return found
        if name != "get" and type(found) is not type(A) and (again := _by_method(found)) is not None:
            return again
    if failure is not None:
        raise failure
    return None


def _of_petsc(A: Any) -> Any:
    if not callable(getattr(A, "getValuesCSR", None)):
        return None
    size = tuple(A.getSize())
    rows = A.getOwnershipRange() if hasattr(A, "getOwnershipRange") else (0, size[0])
    if tuple(rows) != (0, size[0]):
        found = f"rows {rows[0]} to {rows[1] - 1} of {size[0]}"
        hint = "gather it with A.createSubMatrices, or make it on COMM_SELF"
        raise MatrixError("matrix is distributed", expected="all rows in this process", found=found, hint=hint)
    indptr, indices, data = A.getValuesCSR()
    return sp.csr_array((data, indices, indptr), shape=size)


def is_sparse_tensor(A: Any) -> bool:
    """Whether `A` is a sparse tensor of PyTorch, which can be asked for little else that arrays have."""
    return str(getattr(A, "layout", "")).startswith("torch.sparse_")


def _of_torch(A: Any) -> Any:
    if not is_sparse_tensor(A):
        return None
    layout = str(A.layout).rpartition(".")[2]
    A = A.detach().cpu()
    if layout == "sparse_coo":
        A = A.coalesce()
        indices, values = np.asarray(A.indices()), np.asarray(A.values())
        if len(A.shape) != 2 or values.ndim != 1:
            found = f"shape {tuple(A.shape)}, {values.ndim - 1} of it dense"
            raise MatrixError("matrix is not two-dimensional", expected="shape (n, n)", found=found)
        return sp.coo_array((values, tuple(indices)), shape=tuple(A.shape))
    kinds: dict[str, Callable[..., Any]] = {"csr": sp.csr_array, "bsr": sp.bsr_array, "csc": sp.csc_array}
    make = kinds.get(layout.removeprefix("sparse_"))
    if make is None:
        raise MatrixError("sparse layout cannot be used", found=layout, hint="pass A.to_sparse_coo()")
    along, across = (A.ccol_indices, A.row_indices) if layout == "sparse_csc" else (A.crow_indices, A.col_indices)
    return make((np.asarray(A.values()), np.asarray(across()), np.asarray(along())), shape=tuple(A.shape))


def _of_jax(A: Any) -> Any:
    """BCOO and BCSR; the former is padded with entries outside of the matrix."""
    if not (hasattr(A, "n_batch") and hasattr(A, "n_dense") and hasattr(A, "indices")):
        return None
    if A.n_batch or A.n_dense or len(A.shape) != 2:
        found = f"shape {tuple(A.shape)}, {A.n_batch} batch and {A.n_dense} dense dimensions"
        raise MatrixError("matrix is not two-dimensional", expected="shape (n, n)", found=found)
    data, indices = np.asarray(A.data), np.asarray(A.indices)
    if hasattr(A, "indptr"):
        return sp.csr_array((data, indices, np.asarray(A.indptr)), shape=tuple(A.shape))
    inside = np.all(indices < np.asarray(A.shape), axis=1)
    return sp.coo_array((data[inside], tuple(indices[inside].T)), shape=tuple(A.shape))


def is_array(one: Any) -> bool:
    """Whether it says itself that it is an array: of the host, or of a GPU."""
    return hasattr(one, "__cuda_array_interface__") or hasattr(one, "__dlpack__")


def shape_in(A: tuple[Any, ...], pointers: int) -> tuple[int, ...]:
    """The shape of a matrix given as (data, indices, indptr): the fourth of them, else square by the third's size."""
    if len(A) == 3:
        return (pointers - 1, pointers - 1)
    try:
        return tuple(int(size) for size in A[3])
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError("shape is not one", expected="(n, n)", found=brief(A[3])) from error


def _of_arrays(A: tuple[Any, ...]) -> Any:
    """CSR of (data, indices, indptr) in host memory, with a shape or without; None where it is no such tuple."""
    if len(A) not in (3, 4) or not all(map(is_array, A[:3])):
        return None
    try:
        data, indices, indptr = (one if isinstance(one, np.ndarray) else np.from_dlpack(one) for one in A[:3])
    except (*_FAILURES, BufferError) as error:
        raise MatrixError(
            "arrays of the matrix cannot be read as they are", found=str(error), hint="convert them yourself"
        ) from error
    if any(one.ndim != 1 for one in (data, indices, indptr)) or indices.dtype.kind + indptr.dtype.kind not in _INDEXED:
        return None
    try:
        return sp.csr_array((data, indices, indptr), shape=shape_in(A, indptr.size))
    except ValueError as error:
        raise MatrixError(
            "matrix is broken", expected="(data, indices, indptr) of CSR", found=str(error), hint="build it again"
        ) from error


def _advice(A: Any) -> str | None:
    """The call that makes a matrix of something that is none, or may be several."""
    if isinstance(A, (str, bytes)) or hasattr(A, "__fspath__"):
        return "read the file first with akx.read_matrix(path)"
    if isinstance(A, (np.ndarray, list, tuple)):
        return None
    for names, advice in _ADVICE.items():
        has_all = all(hasattr(A, name) for name in names)
        if has_all and ("dtypes" not in names or all(str(dtype).startswith("Sparse") for dtype in A.dtypes)):
            return advice.format(kind=_name(A).partition(".")[0])
    return "convert it to scipy.sparse first" if "sparse" in _name(A).lower() else None


def _name(A: Any) -> str:
    """The type of an object, with its module unless that is Python's."""
    kind = type(A)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _of_shape(A: Any) -> str:
    try:
        return f" of shape {tuple(int(size) for size in A.shape)}"
    except (TypeError, ValueError, AttributeError, RuntimeError):  # it has none, or none yet
        return ""


def numbers_of(v: Any, name: str) -> NDArray[Any]:
    """Vectors as an array of numbers, bool among them; of objects as float or complex, where all of them are numbers.

    Raises :class:`ArgumentTypeError`, with `name`, where they are anything else.
    """
    if type(v) is np.ndarray and v.dtype.kind in "biufc":
        return v
    expected = "an array of numbers"
    if _is_sparse(v):
        dense = next((call for call in ("toarray", "todense", "to_dense") if hasattr(v, call)), None)
        advice = "pass its entries" if dense is None else f"pass {name}.{dense}()"
        raise ArgumentTypeError(f"{name} is sparse", expected=expected, found=_name(v), hint=advice)
    if hasattr(v, "number_of_nodes"):  # NumPy takes it for the sequence of its nodes
        raise ArgumentTypeError(f"{name} is a graph", expected=expected, found=_name(v))
    if isinstance(v, np.ma.MaskedArray) and np.ma.is_masked(v):
        found = f"{np.count_nonzero(np.ma.getmaskarray(v))} masked entries"
        advice = f"pass {name}.filled(0), or another value"
        raise ArgumentTypeError(f"{name} is masked", expected=expected, found=found, hint=advice)
    try:
        array = np.asarray(v)
        if array.dtype == object and array.ndim == 0 and array is not v and hasattr(v, "__dlpack__"):
            array = np.from_dlpack(v)  # of a library that NumPy knows nothing else of
    except (*_FAILURES, BufferError) as error:
        text = " ".join(str(error).split())
        ragged = "inhomogeneous" in text
        raise ArgumentTypeError(
            f"{name} is ragged" if ragged else f"{name} is not an array of numbers",
            expected="numbers, as many in each row",
            found="rows of several lengths" if ragged else text[:200],
            hint=f"pass {name} as a NumPy array of floats",
        ) from error
    what = f"{name} is not an array of numbers"
    if array.dtype == object:
        array = _numbers_in(array, v, name, what)
    if array.dtype.kind not in "biufc":
        hint = f"convert it with {name}.astype(float)" if array.dtype.kind in "USTmM" else None
        raise ArgumentTypeError(what, expected="real or complex numbers", found=f"dtype {array.dtype}", hint=hint)
    return array


def _is_sparse(v: Any) -> bool:
    try:
        return converted(v) is not None
    except MatrixError:  # one that is no matrix of SciPy
        return True


def _numbers_in(array: NDArray[Any], given: Any, name: str, what: str) -> NDArray[Any]:
    entries = array.reshape(-1)
    for place, entry in enumerate(entries):
        if not isinstance(entry, (numbers.Number, np.number, np.bool_)):
            found = _name(given) if array.ndim == 0 else f"{_name(entry)} at {place}"
            hint = f"pass {name} as an array of floats"
            raise ArgumentTypeError(what, expected="real or complex numbers", found=found, hint=hint)
    is_complex = any(isinstance(entry, numbers.Complex) and not isinstance(entry, numbers.Real) for entry in entries)
    try:
        return array.astype(complex if is_complex else float)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentTypeError(what, expected="numbers that double precision holds", found=str(error)) from error


def check_count(name: str, value: Any, *, least: int = 1, most: int = _MOST_COUNT, other: str = "") -> int:
    """An integer, of Python or of NumPy, from `least` to `most`.

    For what is counted and has no array, `most` is :data:`ANY_COUNT`. `other` is, for the message, what else the
    argument called `name` may be, which the caller has dealt with. Raises :class:`ArgumentTypeError` where it is no
    integer, :class:`ArgumentError` where it is out of range.
    """
    try:
        number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = None
    is_open = most in (_MOST_COUNT, ANY_COUNT) and (number is None or number <= most)
    expected = f"an integer >= {least}" if is_open else f"an integer, {least} .. {most}"
    expected += f", or {other}" if other else ""
    if number is None or (isinstance(value, np.ndarray) and value.dtype == bool):
        raise ArgumentTypeError(f"{name} is not an integer", expected=expected, found=brief(value))
    if not least <= number <= most:
        hint = f"pass {name} = {least} or more" if is_open else None
        raise ArgumentError(f"{name} is out of range", expected=expected, found=brief(number), hint=hint)
    return number


def check_number(name: str, value: Any, expected: str, holds: Callable[[float], bool]) -> float:
    """A real number, of Python or of NumPy, that is as `expected`, which is what `holds` says.

    Raises :class:`ArgumentTypeError` where it is no real number, :class:`ArgumentError` where it is out of range.
    """
    is_number = isinstance(value, (numbers.Real, np.ndarray, np.generic)) and not isinstance(value, (bool, np.bool_))
    is_number = is_number and np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iufO"
    try:
        found = float(value) if is_number else math.nan
    except OverflowError:  # an integer that no float holds
        found = math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):  # an object that is none
        is_number = False
    if not is_number:
        raise ArgumentTypeError(f"{name} is not a number", expected=expected, found=brief(value))
    if not holds(found):
        raise ArgumentError(f"{name} is out of range", expected=expected, found=brief(value))
    return found


def unknown_name(what: str, value: Any, names: Iterable[str]) -> ArgumentError | ArgumentTypeError:
    """The error for a `value` that is none of `names`; `what` it was to be, such as ``"backend"``."""
    kind = ArgumentError if isinstance(value, str) else ArgumentTypeError
    return kind(f"unknown {what}", expected=" or ".join(map(repr, names)), found=brief(value))
