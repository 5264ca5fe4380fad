"""What callers hand over: matrices of other libraries (small fakes of them), vectors of all kinds, counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator

import akx
from akx import solvers
from akx.core.arguments import check_count, check_number, converted, numbers_of, scipy_matrix
from akx.core.errors import ArgumentError, ArgumentTypeError, MatrixError
from akx.core.matrix import Matrix

_A = sp.csr_array(np.array([[4.0, 1.0, 0.0], [0.0, 5.0, 2.0], [1.0, 0.0, 6.0]]))
_X = np.array([1.0, 2.0, 3.0])


class ToSciPySparse:
    """As pydata/sparse: sparse, with two ways to SciPy."""

    shape, ndim = (3, 3), 2

    def to_scipy_sparse(self) -> Any:
        return sp.coo_array(_A)

    def todense(self) -> Any:
        return _A.toarray()

    def __array__(self) -> Any:
        raise RuntimeError("too dense")


class ToCoo:
    """As its dictionary of keys, which becomes another kind of its own first."""

    shape = (3, 3)

    def to_coo(self) -> Any:
        return ToSciPySparse()


class OnDevice:
    """As CuPy's: ``tocsr`` stays on the GPU, ``get`` leaves it."""

    shape = (3, 3)

    def tocsr(self) -> OnDevice:
        return self

    def get(self) -> Any:
        return _A.tocsc()


class Petsc:
    """As PETSc's Mat; `rows` are those of this process."""

    def __init__(self, rows: tuple[int, int] = (0, 3)) -> None:
        self.rows = rows

    def getSize(self) -> tuple[int, int]:
        return (3, 3)

    def getOwnershipRange(self) -> tuple[int, int]:
        return self.rows

    def getValuesCSR(self) -> tuple[Any, ...]:
        return _A.indptr, _A.indices, _A.data


class Tensor:
    """As a sparse tensor of PyTorch; entries are there twice, as halves, until it is coalesced."""

    def __init__(self, layout: str, times: int = 2) -> None:
        self.layout, self.shape, self.times = f"torch.sparse_{layout}", (3, 3), times

    def detach(self) -> Tensor:
        return self

    cpu = detach

    def coalesce(self) -> Tensor:
        return Tensor("coo", times=1)

    def indices(self) -> Any:
        assert self.times == 1, "PyTorch refuses"
        coo = _A.tocoo()
        return np.array([coo.row, coo.col])

    def values(self) -> Any:
        return {"coo": _A, "csr": _A, "csc": _A.tocsc()}[self.layout[-3:]].data

    def crow_indices(self) -> Any:
        return _A.indptr

    def col_indices(self) -> Any:
        return _A.indices

    def ccol_indices(self) -> Any:
        return _A.tocsc().indptr

    def row_indices(self) -> Any:
        return _A.tocsc().indices

    def to_dense(self) -> Any:
        return _A.toarray()

    def __dlpack_device__(self) -> Any:
        raise NotImplementedError("Unimplemented backend SparseCsrCPU")


def _bcoo() -> Any:
    """As JAX's, with an entry of padding."""
    coo = _A.tocoo()
    indices = np.vstack([np.array([coo.row, coo.col]).T, [[3, 3]]])
    return SimpleNamespace(n_batch=0, n_dense=0, shape=(3, 3), indices=indices, data=np.append(coo.data, 0.0))


def _bcsr() -> Any:
    arrays = {"indices": _A.indices, "indptr": _A.indptr, "data": _A.data}
    return SimpleNamespace(n_batch=0, n_dense=0, shape=(3, 3), **arrays)


_FOREIGN: dict[str, Callable[[], Any]] = {
    "to_scipy_sparse": ToSciPySparse,
    "to_coo": ToCoo,
    "get": OnDevice,
    "getValuesCSR": Petsc,
    "torch coo": lambda: Tensor("coo"),
    "torch csr": lambda: Tensor("csr"),
    "torch csc": lambda: Tensor("csc"),
    "bcoo": _bcoo,
    "bcsr": _bcsr,
    "np.asarray": lambda: np.asarray(_A),
}
foreign = pytest.mark.parametrize("make", _FOREIGN.values(), ids=_FOREIGN.keys())


@foreign
def test_sparse_matrices_of_other_libraries_are_taken_everywhere(make: Callable[[], Any]) -> None:
    V = akx.matrix_powers(_A, _X, 2)
    A = make()
    assert np.array_equal(akx.matrix_powers(A, _X, 2), V)
    assert np.array_equal(akx.matrix_powers(A, _X, 2), V)  # which is kept
    powers = akx.MatrixPowers(2 * _A, 2)
    powers.update_values(A)
    assert np.array_equal(powers(_X), V)
    assert Matrix.from_any(A).nnz == _A.nnz
    x, info = solvers.gmres(A, _X, M=A)
    assert info == 0
    assert np.allclose(_A @ x, _X)


@foreign
def test_as_a_vector_it_is_called_sparse(make: Callable[[], Any]) -> None:
    for name, call in (("x", lambda v: akx.matrix_powers(_A, v, 1)), ("b", lambda v: solvers.cg(_A, v))):
        with pytest.raises(ArgumentTypeError, match=f"{name} is sparse"):
            call(make())


def test_a_change_of_another_librarys_matrix_is_seen() -> None:
    A = _bcsr()
    before = akx.matrix_powers(A, _X, 1)
    A.data = 2 * A.data
    assert np.array_equal(akx.matrix_powers(A, _X, 1)[:, 1], 2 * before[:, 1])


class Dense:
    shape = (3, 3)

    def __array__(self) -> Any:
        return np.eye(3)


def _kind(**attributes: Any) -> Any:
    return type("Kind", (), attributes)()


@pytest.mark.parametrize(
    ("A", "error", "says"),
    [
        (Petsc((0, 2)), MatrixError, "distributed, expected all rows in this process, found rows 0 to 1 of 3"),
        (Tensor("bsc"), MatrixError, "to_sparse_coo"),
        (_kind(number_of_nodes=len, adj={}), ArgumentTypeError, "to_scipy_sparse_array"),
        (_kind(get_adjacency_sparse=len), ArgumentTypeError, "get_adjacency_sparse"),
        (_kind(levels=[], aspreconditioner=len), ArgumentTypeError, r"levels\[0\].A"),
        (_kind(dask={}, compute=len, shape=(3, 3), __array__=len), ArgumentTypeError, r"A.compute\(\)"),
        (_kind(dtypes=["Sparse[float64, 0]"], sparse=0, __array__=len), ArgumentTypeError, r"A.sparse.to_coo\(\)"),
        (_kind(dense_shape=0, indices=0, values=0), ArgumentTypeError, "A.indices.T"),
        (type("SparseThing", (), {"__array__": len})(), ArgumentTypeError, "convert it to scipy.sparse"),
        (LinearOperator((3, 3), matvec=lambda x: x), ArgumentTypeError, "the entries, not only products"),
        (_kind(shape=(2, 3, 3), tocsr=len), MatrixError, "not two-dimensional"),
        (Dense(), MatrixError, "matrix is dense"),
        (sp.csr_array, ArgumentTypeError, "wrong type"),
    ],
)
def test_what_is_no_matrix_is_told_the_call_that_makes_one(A: Any, error: type[Exception], says: str) -> None:
    for call in (scipy_matrix, Matrix.from_any, lambda A: akx.matrix_powers(A, _X, 1), lambda A: akx.tune(A, 1)):
        with pytest.raises(error, match=says) as caught:
            call(A)
        assert ("is dense" in str(caught.value)) == isinstance(A, Dense)


def test_a_conversion_that_fails_says_why() -> None:
    class Filled(ToSciPySparse):
        def to_scipy_sparse(self) -> Any:
            raise ValueError("fill_value is 1.0")

    with pytest.raises(MatrixError, match=r"sparse matrix cannot be converted.*fill_value is 1\.0"):
        scipy_matrix(Filled())


def test_a_multilevel_solver_is_a_preconditioner() -> None:
    levels = _kind(levels=[], aspreconditioner=lambda self: LinearOperator((3, 3), matvec=lambda x: x / 5, dtype=float))
    assert solvers.gmres(_A, _X, M=levels)[1] == 0


@pytest.mark.parametrize(
    ("v", "dtype"),
    [
        (np.array([1, 2.5, np.float32(3)], dtype=object), "float64"),
        (np.array([1, 2.5, 3j], dtype=object), "complex128"),
        ([Decimal("1.5"), Fraction(1, 3), 2**70], "float64"),
        (np.array([True, False, np.True_], dtype=object), "float64"),
        (np.ma.array(_X), "float64"),
        (range(3), "int64"),
        (memoryview(_X), "float64"),
        (np.matrix(_X).T, "float64"),
    ],
)
def test_numbers_of_any_kind_are_taken(v: Any, dtype: str) -> None:
    assert numbers_of(v, "x").dtype == dtype
    n = akx.matrix_powers(_A, v, 1)
    assert n.dtype == np.result_type(dtype, float)
    assert solvers.gmres(_A, v)[1] == solvers.gmres(_A, _X, x0=v)[1] == 0


@pytest.mark.parametrize(
    ("v", "says"),
    [
        ([[1], [2, 3], [4]], "is ragged"),
        (np.array([1.0, "2", 3.0], dtype=object), "found str at 1"),
        ([1.0, None, 3.0], "found NoneType at 1"),
        (["1", "2", "3"], r"\.astype\(float\)"),
        (np.arange(3).astype("M8[s]"), "datetime64"),
        (np.ma.array(_X, mask=[0, 1, 0]), r"masked, .*1 masked entries; pass .*\.filled\(0\)"),
        ([10**400, 1, 2], "too large"),
        ({1.0, 2.0, 3.0}, "found set"),
        (None, "found NoneType"),
        (np.zeros(3, dtype="f8,i4"), "not an array of numbers"),
        (_kind(number_of_nodes=len, __len__=lambda self: 3, __getitem__=lambda self, i: float(i)), "is a graph"),
        (_kind(__array__=lambda self, *a, **k: 1 / 0 if a else (_ for _ in ()).throw(RuntimeError("grad"))), "grad"),
    ],
)
def test_what_is_no_vector_of_numbers_is_refused(v: Any, says: str) -> None:
    for name, call in (
        ("x", lambda v: akx.matrix_powers(_A, v, 1)),
        ("b", lambda v: solvers.ca_gmres(_A, v)),
        ("x0", lambda v: solvers.cg(_A, _X, x0=v)),
    ):
        if v is None and name == "x0":
            continue
        with pytest.raises(ArgumentTypeError, match=says) as caught:
            call(v)
        assert str(caught.value).startswith(name)


def test_a_row_is_told_to_turn() -> None:
    for call in (lambda v: akx.matrix_powers(_A, v, 1), lambda v: solvers.cg(_A, v)):
        with pytest.raises(ArgumentError, match=r"\(1, 3\); pass [xb].T"):
            call(_X[None])


@pytest.mark.parametrize("k", [2, np.int8(2), np.uint64(2), np.array(2)])
def test_counts(k: Any) -> None:
    assert check_count("k", k) == 2
    assert akx.matrix_powers(_A, _X, k).shape == (3, 3)
    assert akx.monomial(k).k == 2
    assert solvers.gmres(_A, _X, restart=k)[1] == 0


@pytest.mark.parametrize(("power", "found"), [(31, "2147483648"), (20_000, "a number of 20001 bits")])
def test_a_count_that_no_memory_holds(power: int, found: str) -> None:
    for call in (lambda k: akx.matrix_powers(_A, _X, k), akx.monomial, lambda k: akx.tune(_A, k)):
        with pytest.raises(
            ArgumentError, match=f"k is out of range, expected an integer, 1 .. 2147483647, found {found}"
        ):
            call(2**power)


@pytest.mark.parametrize("k", [2.5, 2.0, True, np.True_, np.array(True), "2", None, [2], np.array([2]), 1j])
def test_what_is_no_count(k: Any) -> None:
    for call in (lambda k: akx.matrix_powers(_A, _X, k), akx.monomial, lambda k: akx.tune(_A, k)):
        with pytest.raises(ArgumentTypeError, match="k is not an integer, expected an integer >= 1"):
            call(k)


@pytest.mark.parametrize("A", [_A, [[1.0]], "a.mtx", None, 3, np.eye(2), lambda x: x])
def test_what_is_not_foreign_is_left_alone(A: Any) -> None:
    assert converted(A) is (A if A is _A else None)


@pytest.mark.parametrize("wrong", [2.5, "3", True, [1]])
def test_a_wrong_type_is_one_kind_of_error_everywhere(wrong: Any) -> None:
    A, b = sp.csr_array(sp.eye_array(5)), np.ones(5)
    calls: dict[str, Callable[[], object]] = {
        "k": lambda: akx.MatrixPowers(A, wrong),
        "monomial": lambda: akx.monomial(wrong),
        "trials": lambda: akx.tune(A, 2, db=False, trials=wrong),
        "seed": lambda: akx.tune(A, 2, db=False, seed=wrong),
        "calls": lambda: akx.tune(A, 2, db=False, calls=wrong),
        "threads": lambda: akx.MatrixPowers(A, 2, threads=wrong),
        "power": lambda: akx.MatrixPowers(A, 2).aslinearoperator(wrong),
        "degree": lambda: akx.solvers.preconditioners.chebyshev(A, wrong),
        "steps": lambda: akx.estimate_spectrum(A, steps=wrong),
        "head": lambda: akx.monomial(9).head(wrong),
    }
    for name in ("cg", "minres", "gmres", "bicgstab", "ca_cg", "ca_minres", "ca_gmres", "ca_bicgstab", "solve"):
        solve = getattr(akx.solvers, name)
        calls |= {f"{name} maxiter": partial(solve, A, b, maxiter=wrong)}
        calls |= {f"{name} restart": partial(solve, A, b, restart=wrong)} if "gmres" in name else {}
        calls |= {f"{name} s": partial(solve, A, b, s=wrong)} if "ca_" in name else {}
        if wrong not in (2.5, "3"):  # a number, and as in SciPy a name that there once was
            calls |= {
                f"{name} rtol": partial(solve, A, b, rtol=wrong),
                f"{name} atol": partial(solve, A, b, atol=wrong),
            }
    for name, call in calls.items():
        with pytest.raises(ArgumentTypeError) as refused:
            call()
        assert "expected a" in str(refused.value), name


def test_a_number_out_of_range_is_the_other_kind() -> None:
    for wrong in (-1, float("nan"), np.float32(-0.5)):
        with pytest.raises(ArgumentError, match="rtol is out of range, expected a number >= 0"):
            akx.solvers.cg(sp.csr_array(sp.eye_array(5)), np.ones(5), rtol=wrong)
    assert check_number("rtol", np.array(1e-3), "", lambda number: number > 0) == 1e-3
    with pytest.raises(ArgumentError):
        check_number("rtol", 10**400, "a finite number", math.isfinite)


@pytest.mark.parametrize("value", [None, 1j, "abc"])
def test_an_object_that_is_no_number(value: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="rtol is not a number"):
        check_number("rtol", np.array(value, dtype=object), "a number", lambda number: True)


def test_what_else_a_count_may_be_is_told_of_one_too_large() -> None:
    with pytest.raises(ArgumentError, match=r"an integer, 1 \.\. 20, or 'auto', found 21"):
        check_count("s", 21, most=20, other="'auto'")


def test_a_tolerance_that_no_float_holds_is_none() -> None:
    x, info = solvers.cg(sp.eye_array(3, format="csr"), np.ones(3), rtol=10**400)
    assert info == 0
    assert x.shape == (3,)
