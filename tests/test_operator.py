"""MatrixPowers and matrix_powers as their users call them."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx import operator
from akx.errors import AkxError, ArgumentError, ArgumentTypeError, InfeasibleError, MatrixError, PlanError
from akx.plan import Plan


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKX_DB", str(tmp_path / "plans.sqlite"))


def grid(m: int = 30) -> sp.csr_array:
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(m, m))
    return sp.csr_array(sp.kron(line, sp.eye_array(m)) + sp.kron(sp.eye_array(m), line))


def powers(A: Any, x: Any, k: int) -> Any:
    V = [x]
    for _ in range(k):
        V.append(A @ V[-1])
    return np.stack(V, axis=-1)


@pytest.mark.parametrize("make", [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array, sp.lil_array, sp.dia_array])
def test_any_sparse_format(make: Any) -> None:
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    V = akx.matrix_powers(make(A), x, 5)
    assert V.shape == (900, 6)
    np.testing.assert_allclose(V, powers(A, x, 5), rtol=1e-13, atol=1e-10)


def test_layout_each_vector_contiguous() -> None:
    A, rng = grid(), np.random.default_rng(0)
    V = akx.matrix_powers(A, rng.standard_normal(900), 3)
    assert V.shape == (900, 4)
    assert V.flags.f_contiguous
    W = akx.matrix_powers(A, rng.standard_normal((900, 2)), 3)
    assert W.shape == (900, 2, 4)
    assert all(W[:, b, j].flags.c_contiguous for b in range(2) for j in range(4))


@pytest.mark.parametrize("b", range(1, 9))
def test_start_vectors(b: int) -> None:
    A, X = grid(), np.random.default_rng(b).standard_normal((900, b))
    V = akx.matrix_powers(A, X, 4)
    for j in range(b):
        np.testing.assert_allclose(V[:, j], powers(A, X[:, j], 4), rtol=1e-13, atol=1e-9)


def test_types_follow_scipy() -> None:
    A = grid()
    for matrix in ("float32", "float64", "complex64", "complex128", "int64"):
        for vector in ("float32", "float64", "complex64", "complex128", "int32", "bool"):
            B, x = A.astype(matrix), np.arange(900).astype(vector)
            V = akx.matrix_powers(B, x, 2)
            expected = (B.astype("float64") if matrix == "int64" else B) @ (
                x * 1.0 if vector in ("int32", "bool") else x
            )
            assert V.dtype == expected.dtype, (matrix, vector)
            np.testing.assert_allclose(V[:, 1], expected, rtol=1e-5)


def test_out_is_filled_and_returned() -> None:
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    out = np.full((900, 4), np.nan, order="F")
    V = akx.matrix_powers(A, x, 3, out=out)
    assert np.shares_memory(V, out)
    np.testing.assert_allclose(out, powers(A, x, 3), atol=1e-12)
    P = akx.MatrixPowers(A, 3)
    block = np.full((900, 2, 4), np.nan, order="F")
    P(np.stack([x, 2 * x], axis=1), out=block)
    np.testing.assert_allclose(block[:, 1], 2 * out, atol=1e-12)


def test_start_vector_may_be_a_part_of_out() -> None:
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    out = np.empty((900, 4), order="F")
    out[:, 3] = x
    akx.matrix_powers(A, out[:, 3], 3, out=out)
    np.testing.assert_allclose(out, powers(A, x, 3), atol=1e-12)


@pytest.mark.parametrize(
    "out",
    [np.empty((900, 4)), np.empty((900, 3), order="F"), np.empty((900, 4), "f4", order="F"), [0.0]],
    ids=["C order", "shape", "dtype", "list"],
)
def test_out_that_does_not_fit(out: Any) -> None:
    with pytest.raises(ArgumentError, match="out"):
        akx.matrix_powers(grid(), np.ones(900), 3, out=out)


@pytest.mark.parametrize(
    ("k", "kind"), [(0, ArgumentError), (-1, ArgumentError), (2.0, ArgumentTypeError), (True, ArgumentTypeError)]
)
def test_k_that_makes_no_sense(k: Any, kind: type[AkxError]) -> None:
    for call in (lambda: akx.MatrixPowers(grid(), k), lambda: akx.matrix_powers(grid(), np.ones(900), k)):
        with pytest.raises(kind, match="k"):
            call()


def test_arguments_that_make_no_sense() -> None:
    A = grid()
    for x in (np.ones(899), np.ones((900, 0)), np.ones((1, 900)), np.ones((900, 2, 2))):
        with pytest.raises(ArgumentError, match="x does not fit"):
            akx.matrix_powers(A, x, 2)
    with pytest.raises(ArgumentTypeError):
        akx.matrix_powers(A, np.array(["a"] * 900), 2)
    with pytest.raises(MatrixError):
        akx.matrix_powers(A.toarray(), np.ones(900), 2)
    with pytest.raises(ArgumentError):
        akx.matrix_powers(A, np.ones(900), 2, basis="legendre")
    with pytest.raises(ArgumentError):
        akx.matrix_powers(A, np.ones(900), 2, threads=0)
    with pytest.raises(AkxError):
        akx.matrix_powers(A, np.ones(900), 2, backend="abacus")
    with pytest.raises(PlanError, match="another k"):
        akx.MatrixPowers(A, 3, plan=Plan("cpu", "sweep", "csr", k=4))
    with pytest.raises(InfeasibleError):
        akx.MatrixPowers(A, 3, plan=Plan("cpu", "sweep", "bell", k=3))


# ------------------------------------------------------------------------------------------- prepared only once


def test_second_call_prepares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    A, x = grid(), np.ones(900)
    made: list[int] = []
    original = operator.MatrixPowers.__init__

    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        made.append(1)
        original(self, *args, **kwargs)

    monkeypatch.setattr(operator.MatrixPowers, "__init__", counted)
    for _ in range(3):
        akx.matrix_powers(A, x, 4)
    assert len(made) == 1
    akx.matrix_powers(A, x, 5)
    assert len(made) == 2
    akx.matrix_powers(A.copy(), x, 4)
    assert len(made) == 3


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_matrix, sp.coo_array, sp.dia_array])
def test_values_changed_in_place_are_seen(make: Any) -> None:
    A, x = make(grid()), np.random.default_rng(0).standard_normal(900)
    akx.matrix_powers(A, x, 4)
    rng = np.random.default_rng(1)
    for _ in range(5):
        flat = A.data.reshape(-1)
        flat[rng.integers(flat.size)] += 0.5
        np.testing.assert_allclose(akx.matrix_powers(A, x, 4), powers(sp.csr_array(A), x, 4), atol=1e-9)


def test_one_tiny_change_is_seen() -> None:
    A, x = sp.csr_array(sp.diags_array(np.full(900, 3.0))), np.ones(900)
    akx.matrix_powers(A, x, 1)
    A.data[17] = np.nextafter(3.0, 4.0)
    assert np.flatnonzero(akx.matrix_powers(A, x, 1)[:, 1] != 3.0).tolist() == [17]


def test_pattern_changed_in_place_is_seen() -> None:
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    akx.matrix_powers(A, x, 3)
    A.indices[0], A.indices[1] = 7, 11  # row 0 now couples to other columns
    A.has_sorted_indices = False
    np.testing.assert_allclose(akx.matrix_powers(A, x, 3), powers(A, x, 3), atol=1e-11)


def test_estimated_basis_follows_the_values() -> None:
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    akx.matrix_powers(A, x, 4, basis="chebyshev")
    A.data *= 100
    V = akx.matrix_powers(A, x, 4, basis="chebyshev")
    assert np.abs(V).max() < 100 * np.abs(x).max()  # |T_j| stays small on the interval of the new values


def test_kept_operators_die_with_their_matrix() -> None:
    A = grid()
    akx.matrix_powers(A, np.ones(900), 2)
    size = len(operator._kept)
    del A
    gc.collect()
    assert len(operator._kept) == size - 1


def test_only_a_few_are_kept() -> None:
    matrices = [grid(4 + i) for i in range(12)]
    for A in matrices:
        akx.matrix_powers(A, np.ones(A.shape[0]), 1)
    assert len(operator._kept) <= 8


# ------------------------------------------------------------------------------------------- the object


def test_operator_copies_and_update_values() -> None:
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    P = akx.MatrixPowers(A, 3)
    first = P(x).copy()
    A.data[:] *= 2
    np.testing.assert_array_equal(P(x), first)
    P.update_values(sp.csc_array(A))
    np.testing.assert_allclose(P(x), powers(A, x, 3), atol=1e-10)
    assert P(x.astype(complex) * 1j).dtype == np.complex128
    P.update_values(A / 2)
    np.testing.assert_allclose(P(1j * x)[:, 3].imag, first[:, 3], atol=1e-10)


def test_update_values_refuses_another_pattern() -> None:
    P = akx.MatrixPowers(grid(), 3)
    for other in (sp.eye_array(900, format="csr"), grid(29)):
        with pytest.raises(MatrixError, match="another pattern"):
            P.update_values(other)
    x = np.ones(900)
    np.testing.assert_allclose(P(x), powers(grid(), x, 3))


@pytest.mark.parametrize("kind", ["monomial", "newton", "chebyshev"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_basis_relation(kind: str, dtype: str) -> None:
    """A V_k = V_{k+1} B."""
    rng = np.random.default_rng(0)
    A = sp.csr_array(grid(12).astype(dtype))
    if dtype == "complex128":
        A = A + sp.csr_array(1j * sp.diags_array(rng.standard_normal(144)))
    else:
        A = A + sp.csr_array(sp.diags_array([1.0, -1.0], offsets=[-1, 1], shape=(144, 144)))
    P = akx.MatrixPowers(A, 6, basis=kind)
    V = P(rng.standard_normal(144))
    B = P.basis.matrix()
    assert B.shape == (7, 6)
    scale = np.abs(V).max(axis=0)[:6]
    np.testing.assert_allclose((A @ V[:, :6]) / scale, (V @ B) / scale, atol=1e-11)


def test_explicit_basis_is_cut_to_k() -> None:
    P = akx.MatrixPowers(grid(), 3, basis=akx.monomial(8))
    assert P.basis.k == 3


def test_linear_operator() -> None:
    A, x = grid(), np.random.default_rng(0).standard_normal(900)
    P = akx.MatrixPowers(A, 3)
    L = P.aslinearoperator()
    assert L.shape == (900, 900)
    np.testing.assert_allclose(L @ x, A @ (A @ (A @ x)), atol=1e-10)
    X = np.stack([x, -x, x + 1], axis=1)
    np.testing.assert_allclose(P.aslinearoperator(1) @ X, A @ X, atol=1e-12)
    with pytest.raises(ArgumentError):
        P.aslinearoperator(4)


def test_explain_names_plan_reason_and_traffic() -> None:
    P = akx.MatrixPowers(grid(), 3)
    text = P.explain()
    for word in (P.plan.label(), "predicted", "expected", "measured", "GB/s", "prepared"):
        assert word in text
    assert "measured" not in P.explain(measure=False)


def test_tuned_plan_is_picked_up(tmp_path: Path) -> None:
    db = akx.PlanDatabase(tmp_path / "other.sqlite")
    A, x = grid(60), np.random.default_rng(0).standard_normal(3600)
    result = akx.tune(akx.Matrix.from_any(A), 4, trials=6, seconds=10, db=db)
    P = akx.MatrixPowers(A, 4, db=db)
    assert P.plan == result.plan
    assert "tuned" in P.explain(measure=False)
    np.testing.assert_allclose(P(x), powers(A, x, 4), atol=1e-9)


def test_threads_and_small_matrices() -> None:
    for n in (1, 2, 3, 7):
        A = sp.csr_array(np.arange(1.0, n * n + 1).reshape(n, n))
        for threads in (1, 2, 5):
            V = akx.matrix_powers(A, np.ones(n), 3, threads=threads)
            np.testing.assert_allclose(V, powers(A, np.ones(n), 3), rtol=1e-13)


def test_several_callers_at_once() -> None:
    from concurrent.futures import ThreadPoolExecutor

    A = grid(60)
    P = akx.MatrixPowers(A, 4)
    rng = np.random.default_rng(0)
    xs = [rng.standard_normal(3600) for _ in range(16)]
    with ThreadPoolExecutor(4) as pool:
        for x, V in zip(xs, pool.map(P, xs), strict=True):
            np.testing.assert_allclose(V, powers(A, x, 4), atol=1e-9)
        for x, V in zip(xs, pool.map(lambda x: akx.matrix_powers(A, x, 3), xs), strict=True):
            np.testing.assert_allclose(V, powers(A, x, 3), atol=1e-9)
