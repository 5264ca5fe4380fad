"""Matrices on a GPU, of CuPy and PyTorch and as tuples of arrays: taken there, computed there, never stale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx import solvers
from akx.backends.cuda.device.memory import to_device
from akx.backends.cuda.device.runtime import cuda_missing
from akx.core.errors import ArgumentTypeError, MatrixError
from akx.core.matrix import Matrix, content_token
from akx.core.plan import Plan
from akx.operator import mutable_csr

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing())),
]


@pytest.fixture(autouse=True)
def _nothing_is_kept(no_plans_of_the_user: None) -> None:
    akx.clear_cache()


def entries(dtype: str = "float64", index: str = "int32", n: int = 4000) -> Any:
    """COO in any order, with duplicates, empty rows and a dense one; diagonally dominant enough to be solved with."""
    rng = np.random.default_rng(0)
    row = np.concatenate([rng.integers(0, n - 3, 5 * n), np.full(n, 7), np.arange(n - 3)])
    col = np.concatenate([rng.integers(0, n, 5 * n), np.arange(n), np.arange(n - 3)])
    data = rng.uniform(-0.1, 0.1, row.size) + (row == col)
    if dtype.startswith("c"):
        data = data + 0.1j * rng.standard_normal(row.size)
    order = rng.permutation(np.append(np.arange(row.size), np.arange(200)))  # some twice
    places = row[order].astype(index), col[order].astype(index)
    return sp.coo_array((data[order].astype(dtype), places), shape=(n, n))


class Speaker:
    """Nothing but DLPack."""

    def __init__(self, held: Any) -> None:
        self.held, self.shape = held, held.shape

    def __dlpack__(self, **options: Any) -> Any:
        return self.held.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.held.__dlpack_device__()


def cupyx(kind: str) -> Any:
    sparse = pytest.importorskip("cupyx.scipy.sparse")
    cupy = pytest.importorskip("cupy")

    def make(A: Any) -> Any:
        if kind == "coo":
            arrays = (cupy.asarray(A.data), (cupy.asarray(A.row), cupy.asarray(A.col)))
            return sparse.coo_matrix(arrays, shape=A.shape)
        A = A.asformat(kind)
        arrays = tuple(cupy.asarray(array) for array in (A.data, A.indices, A.indptr))
        return getattr(sparse, f"{kind}_matrix")(arrays, shape=A.shape)

    return make


def torch_sparse(kind: str) -> Any:
    torch = pytest.importorskip("torch")

    def make(A: Any) -> Any:
        if kind == "coo":
            places = torch.as_tensor(np.array([A.row, A.col]))
            return torch.sparse_coo_tensor(places, torch.as_tensor(A.data), A.shape).cuda()
        A = A.asformat(kind)
        arrays = (torch.as_tensor(array).cuda() for array in (A.indptr, A.indices, A.data))
        return getattr(torch, f"sparse_{kind}_tensor")(*arrays, size=A.shape)

    return make


def arrays_of(take: Any) -> Any:
    def make(A: Any) -> Any:
        A = sp.csr_array(A)
        return tuple(take(to_device(array)) for array in (A.data, A.indices, A.indptr))

    return make


FORMS: dict[str, Any] = {
    **{f"cupyx {kind}": lambda kind=kind: cupyx(kind) for kind in ("csr", "csc", "coo")},
    **{f"torch {kind}": lambda kind=kind: torch_sparse(kind) for kind in ("csr", "csc", "coo")},
    "arrays": lambda: arrays_of(lambda array: array),
    "dlpack": lambda: arrays_of(Speaker),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("dtype", "index"),
    [("float32", "int32"), ("float64", "int64"), ("complex64", "int32"), ("complex128", "int64")],
)
def test_each_form(form: str, dtype: str, index: str) -> None:
    A = entries(dtype, index)
    theirs = FORMS[form]()(A)
    ours, found = Matrix.from_any(A), Matrix.from_any(theirs)
    assert found.on_device is not None
    assert (found.n, found.nnz, found.dtype) == (ours.n, ours.nnz, ours.dtype)
    assert found.fingerprint == ours.fingerprint
    assert not {"indptr", "indices", "data"} & set(vars(found))
    np.testing.assert_array_equal(found.indptr, ours.indptr)
    np.testing.assert_array_equal(found.indices, ours.indices)
    tolerance = 1e-5 if dtype in ("float32", "complex64") else 1e-13
    np.testing.assert_allclose(found.data, ours.data, rtol=tolerance, atol=tolerance)
    x = np.random.default_rng(1).standard_normal(ours.n).astype(dtype)
    expected = ours.to_scipy() @ (ours.to_scipy() @ x)
    for operand, back in ((to_device(x), lambda V: V.get()), (x, np.asarray)):
        V = back(akx.matrix_powers(theirs, operand, 2))
        np.testing.assert_allclose(V[:, 2], expected, rtol=20 * tolerance, atol=20 * tolerance)


@pytest.mark.parametrize("form", ["cupyx csr", "arrays"])
def test_a_change_in_place_is_seen(form: str) -> None:
    A = sp.csr_array(entries())
    A.sum_duplicates()
    theirs = FORMS[form]()(A)
    arrays = theirs if form == "arrays" else (theirs.data, theirs.indices, theirs.indptr)
    x = to_device(np.random.default_rng(1).standard_normal(A.shape[0]))
    token = content_token(theirs)

    def is_right(B: Any) -> None:
        for given in (theirs, tuple(arrays)):
            V = akx.matrix_powers(given, x, 2).get()
            np.testing.assert_allclose(V[:, 2], B @ (B @ x.get()), rtol=1e-11, atol=1e-11)

    def put(array: Any, values: Any) -> None:
        array.set(values)

    is_right(A)
    B = A.copy()
    B.data[[5, 9]] += 1
    put(arrays[0], B.data)
    assert content_token(theirs) != token
    is_right(B)
    B.indices[B.indptr[8]] += 0 if B.indices[B.indptr[8]] + 1 in B.indices[B.indptr[8] : B.indptr[9]] else 1
    put(arrays[1], B.indices)
    is_right(B)


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize(("dtype", "index", "vectors"), [("float64", "int32", 1), ("complex64", "int64", 3)])
def test_very_long_rows_beside_cupy(
    monkeypatch: pytest.MonkeyPatch, dtype: str, index: str, vectors: int, is_large: bool
) -> None:
    """Of few rows of many, in arrays as they are: neighbours among them, and rows that a block comes to late.

    Calls with a large matrix take a copy, and captured ones the arrays.
    """
    akx.clear_cache()
    cupy, sparse = pytest.importorskip("cupy"), pytest.importorskip("cupyx.scipy.sparse")
    monkeypatch.setenv("AKX_PREPARE", "auto")
    rng, n = np.random.default_rng(0), 700_000
    lengths = rng.integers(0, 4, n)
    lengths[[0, 1, 2, n // 2, n - 2]] = [129, 700, 40_000, 2048, 600]
    indptr = np.append(0, np.cumsum(lengths))
    data = (rng.uniform(-1, 1, indptr[-1]) / np.repeat(lengths, lengths)).astype(dtype)
    arrays = data, rng.integers(0, n, indptr[-1]).astype(index), indptr.astype(index)
    theirs = tuple(map(cupy.asarray, arrays))
    x = cupy.asfortranarray(cupy.asarray(rng.standard_normal((n, vectors)).astype(dtype)))
    monkeypatch.setattr(mutable_csr, "_MOST_UNEVEN", 0 if is_large else data.size)
    out = cupy.empty((n, vectors, 4), dtype, order="F")
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        V, again = (akx.matrix_powers(theirs, x, 3, out=out).get() for _ in range(2))
        [found] = mutable_csr._LIVE.values()
        assert (found.powers._long, found.is_slow) == (128, is_large)
        assert V.tobytes() == again.tobytes()
        stream.begin_capture()
        akx.matrix_powers(theirs, x, 3, out=out)
        graph = stream.end_capture()
        theirs[0][:] *= 2
        for factor in (2, 1):  # seen by calls and by the graph
            out[...] = cupy.nan
            graph.launch(stream)
            np.testing.assert_allclose(out.get()[..., 1], factor * V[..., 1], rtol=1e-5, atol=1e-6)
            again = akx.matrix_powers(theirs, x, 3, out=out).get()
            np.testing.assert_allclose(again[..., 1], factor * V[..., 1], rtol=1e-5, atol=1e-6)
            theirs[0][:] /= 2
        theirs[0][:] *= 2
        stream.synchronize()
    A, expected = sparse.csr_matrix(theirs, shape=(n, n)), x
    tolerance = 1e-5 if dtype == "complex64" else 1e-13
    for j in range(4):
        np.testing.assert_allclose(V[..., j], expected.get(), rtol=tolerance, atol=tolerance)
        expected = A @ expected


@pytest.mark.parametrize("variant", ["csr-8", "sell16-2", "sell-1", "pcsr", "rows16", "vbell-2"])
def test_sweeps_leave_entries_where_they_are(variant: str) -> None:
    A = sp.kron(sp.csr_array(sp.random_array((900, 900), density=0.006, rng=np.random.default_rng(3))), np.ones((3, 3)))
    A = sp.csr_array(A + sp.eye_array(2700))
    A.data = np.random.default_rng(2).uniform(-0.1, 0.1, A.nnz)
    plan = Plan("cuda", "sweep", variant, k=4, k_per_pass=1)
    theirs, ours = Matrix.from_any(arrays_of(lambda array: array)(A)), Matrix.from_any(A)
    x = to_device(np.random.default_rng(1).standard_normal(2700))
    found = [akx.MatrixPowers(one, 4, plan=plan)(x).get() for one in (theirs, ours)]
    assert found[0].tobytes() == found[1].tobytes()
    np.testing.assert_allclose(found[0][:, 2], A @ (A @ x.get()), rtol=1e-11, atol=1e-12)
    assert "data" not in vars(theirs)
    assert "indices" not in vars(theirs.pattern)


@pytest.mark.parametrize("method", ["cg", "gmres", "solve"])
def test_solvers_take_it(method: str) -> None:
    n = 3000
    A = sp.diags_array([-1.0, 4.0, -1.0, -0.5, -0.5], offsets=[-1, 0, 1, -50, 50], shape=(n, n), format="csr")
    theirs, b = arrays_of(lambda array: array)(A), np.random.default_rng(0).standard_normal(n)
    for right, back in ((to_device(b), lambda x: x.get()), (b, np.asarray)):
        for _ in range(2):
            x, info = getattr(solvers, method)(theirs, right, rtol=1e-10)
            assert info == 0
            assert np.linalg.norm(A @ back(x) - b) <= 1e-9 * np.linalg.norm(b)
    solver = solvers.Solver(theirs, "cg" if method == "solve" else method)
    theirs[0].set(2 * A.data)
    solver.update_values(theirs)
    x, info = solver(to_device(b), rtol=1e-10)
    assert np.linalg.norm(2 * (A @ x.get()) - b) <= 1e-9 * np.linalg.norm(b)


def test_new_values_from_another_matrix() -> None:
    A = sp.csr_array(entries())
    A.sum_duplicates()
    make = arrays_of(lambda array: array)
    P = akx.MatrixPowers(make(A), 3)
    assert P.plan.backend == "cuda"
    B = A.copy()
    B.data = np.random.default_rng(7).uniform(-0.1, 0.1, A.nnz)
    x = np.random.default_rng(1).standard_normal(A.shape[0])
    for given in (make(B), make(sp.coo_array(B)), B):
        P.update_values(make(A))
        P.update_values(given)
        np.testing.assert_allclose(P(x)[:, 1], B @ x, rtol=1e-12, atol=1e-12)
    B.indices[0] = (B.indices[0] + 1) % B.shape[0]
    with pytest.raises(MatrixError, match="another pattern"):
        P.update_values(make(B))


def test_what_is_wrong() -> None:
    A = sp.csr_array(entries())
    data, indices, indptr = arrays_of(lambda array: array)(A)
    with pytest.raises(ArgumentTypeError, match="two places"):
        akx.matrix_powers((data, indices, A.indptr), np.ones(A.shape[0]), 2)
    A.data[17] = np.nan
    with pytest.raises(MatrixError, match="not finite"):
        Matrix.from_any((to_device(A.data), indices, indptr))
    A.indices[3] = A.shape[0]
    with pytest.raises(MatrixError, match="out of range"):
        Matrix.from_any((data, to_device(A.indices), indptr))
    A.indptr[2] = A.indptr[-1] + 1
    with pytest.raises(MatrixError, match="not ascending"):
        Matrix.from_any((data, indices, to_device(A.indptr)))
