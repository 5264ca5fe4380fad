"""Preconditioners: each against what defines it, as an operator in SciPy's solvers, and folded into the matrix."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, bicgstab, cg, gmres
from solvers.systems import relative, rhs, spd

import akx
from akx.backends.cuda.device.facts import cuda_missing
from akx.core.errors import (
    ArgumentError,
    ArgumentTypeError,
    BudgetError,
    DeviceError,
    MatrixError,
    MissingDependencyError,
)  # fmt: skip
from akx.solvers import SOLVERS
from akx.solvers.folding import corrected
from akx.solvers.monitor import ENDED
from akx.solvers.preconditioners import chebyshev, jacobi, product, solve_folded, spai
from akx.solvers.stats import SolveStats
from akx.solvers.system import make_system

DTYPES = (np.float32, np.float64, np.complex64, np.complex128)


def random_matrix(n: int, dtype: Any, *, density: float = 0.08, seed: int = 0) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    A = sp.random_array((n, n), density=density, rng=rng, data_sampler=rng.standard_normal) + 2 * sp.eye_array(n)
    if np.dtype(dtype).kind == "c":
        A = A + 0.5j * sp.random_array((n, n), density=density, rng=rng, data_sampler=rng.standard_normal)
    return sp.csr_array(A).astype(dtype)


def laplacian(side: int = 20, dtype: Any = float) -> sp.csr_array:
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(side, side))
    eye = sp.eye_array(side)
    return sp.csr_array(sp.kron(line, eye) + sp.kron(eye, line)).astype(dtype)


def graded(n: int = 120, dtype: Any = float) -> sp.csr_array:
    """A Laplacian scaled badly: D L D."""
    L = sp.diags_array([-1.0, 2.2, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    D = sp.diags_array(10.0 ** np.linspace(-2, 2, n))
    return sp.csr_array(D @ L @ D).astype(dtype)


def steps(solver: Any, A: Any, b: Any, **options: Any) -> tuple[int, int]:
    """info and the number of times that the callback was called."""
    count = [0]

    def callback(_: Any) -> None:
        count[0] += 1

    x, info = solver(A, b, callback=callback, **options)
    if info == 0:
        assert np.linalg.norm(b - A @ x) <= 2 * options["rtol"] * np.linalg.norm(b)
    return info, count[0]


def stats_of(solver: Any) -> Any:
    """A solver of SciPy with the arguments and the third value of ours."""

    def solve(A: Any, b: Any, *, return_stats: bool, **options: Any) -> Any:
        assert return_stats
        x, info = solver(A.to_scipy(), b, **options)
        return x, info, SolveStats(method=solver.__name__, iterations=5, reason="SciPy's")

    solve.__name__ = solver.__name__
    return solve


# ------------------------------------------------------------------------------------------------- approximate inverse


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tau", [0.0, 0.5, 0.9, 1.0])
def test_each_column_solves_its_least_squares_problem(dtype: Any, tau: float) -> None:
    A = random_matrix(50, dtype)
    dense = A.toarray().astype(np.result_type(dtype, np.float64))
    size = abs(dense)
    pattern = (size > (1 - tau) * size.max(axis=1, keepdims=True)) | np.eye(50, dtype=bool)
    found = spai(A, tau)
    assert found.dtype == found.M.dtype == dtype
    M = np.zeros_like(dense)
    for k in range(50):
        J = np.flatnonzero(pattern[:, k])
        M[J, k] = np.linalg.lstsq(dense[:, J], np.eye(50)[:, k], rcond=None)[0]
    np.testing.assert_allclose(found.M.toarray(), M, rtol=0, atol=100 * np.finfo(dtype).eps)
    assert found.nnz == pattern.sum()
    assert found.misfit == pytest.approx(np.linalg.norm(dense @ M - np.eye(50)) / np.sqrt(50), rel=1e-6)
    rows = [np.count_nonzero(size[:, pattern[:, k]].any(axis=1)) for k in range(50)]
    assert found.largest == (max(rows), pattern.sum(axis=0).max())


def test_full_pattern_is_the_inverse() -> None:
    A = random_matrix(30, float, seed=3)
    found = spai(A, pattern=sp.csr_array(np.ones((30, 30))))
    np.testing.assert_allclose(found.M.toarray(), np.linalg.inv(A.toarray()), atol=1e-12)
    assert found.misfit < 1e-12


def test_the_bits_do_not_depend_on_threads_or_memory() -> None:
    A = random_matrix(300, float, density=0.02)
    one = spai(A, 0.9, threads=1)
    for options in ({"threads": 3}, {"threads": 2, "memory": one.largest[0] * one.largest[1] * 8}):
        other = spai(A, 0.9, **options)
        assert np.array_equal(one.M.data, other.M.data)
        assert np.array_equal(one.M.indices, other.M.indices)
    with pytest.raises(BudgetError, match="local problem of column"):
        spai(A, 0.9, memory=64)


def test_the_bits_do_not_depend_on_whether_it_is_compiled_already(tmp_path: Path) -> None:
    """A process that compiles it, one that finds the code on the disk, and one that compiled other quotients before."""
    before = """
from akx.core.numba_jit import njit
@njit(cache=False, error_model="numpy")
def quotient(x, y): return x / y
quotient(1j, 2j)
"""
    script = """
import hashlib
import numpy as np, scipy.sparse as sp
from akx.solvers.preconditioners import spai
line = sp.diags_array([-1.0, 2.1, -1.0], offsets=[-1, 0, 1], shape=(30, 30))
A = sp.kron(line, sp.eye_array(30)) + sp.kron(sp.eye_array(30), line)
A = sp.csr_array(A + 1j * sp.diags_array([0.3, -0.3], offsets=[1, -1], shape=A.shape))
print(hashlib.sha256(spai(A, pattern=abs(A) @ abs(A), backend="cpu").M.data.tobytes()).hexdigest())
"""
    found = []
    for code, folder in ((script, tmp_path / "one"), (script, tmp_path / "one"), (before + script, tmp_path / "other")):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
        done = subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True, text=True)
        assert list(folder.rglob("columns.solve_columns-*.nbc"))
        found.append(done.stdout)
    assert len(set(found)) == 1, found


def test_it_does_not_depend_on_scale_and_survives_extremes() -> None:
    A = random_matrix(40, float)
    scaling = sp.diags_array(10.0 ** np.linspace(-150, 150, 40))
    extreme = spai(A @ scaling, pattern=A)
    plain = spai(A, pattern=A)
    np.testing.assert_allclose((scaling @ extreme.M).toarray(), plain.M.toarray(), rtol=1e-10, atol=1e-12)
    tiny = spai(sp.csr_array(np.array([[4e-320, 1.0], [0.0, 2.0]])))  # whose inverse has an entry beyond the numbers
    assert np.isfinite(tiny.M.data).all()
    assert tiny.M[1, 1] == pytest.approx(0.5)


def test_dependent_columns_and_singular_matrices() -> None:
    A = sp.csr_array(np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 0.0]]))
    found = spai(A, 1.0)
    dense = A.toarray()
    for k in range(2):  # as small a misfit as the dependent columns allow, with finite entries
        best = np.linalg.lstsq(dense[:, :2], np.eye(3)[:, k], rcond=None)[0]
        assert np.linalg.norm(dense @ found.M.toarray()[:, k] - np.eye(3)[:, k]) == pytest.approx(
            np.linalg.norm(dense[:, :2] @ best - np.eye(3)[:, k])
        )
    assert not found.M.toarray()[:, 2].any()
    assert any("columns of M are zero" in note for note in found.notes)
    assert found.misfit == pytest.approx(np.linalg.norm(dense @ found.M.toarray() - np.eye(3)) / np.sqrt(3))


def test_most_bounds_the_columns_and_keeps_the_largest() -> None:
    A = laplacian(6).tolil()
    A[:, 7] = 0.5  # a full column
    A[7, 7] = 0.1
    A = sp.csr_array(A)
    full, bounded = spai(A, 1.0), spai(A, 1.0, most=4)
    assert full.M.tocsc()[:, [7]].nnz == 36
    columns = bounded.M.tocsc()
    assert np.diff(columns.indptr).max() == 4
    for k in range(36):
        rows = set(columns.indices[columns.indptr[k] : columns.indptr[k + 1]])
        size = abs(A.tocsc()[:, [k]].toarray().ravel())
        assert k in rows
        left_out = [size[i] for i in range(36) if size[i] and i not in rows]
        assert not left_out or max(left_out) <= min(size[i] for i in rows if i != k)


def test_spai_in_scipys_solvers_and_symmetric() -> None:
    A, b = graded(), np.ones(120)
    M = spai(A, 1.0)
    info, count = steps(bicgstab, A, b, rtol=1e-8, maxiter=2000, M=M)
    plain_info, plain = steps(bicgstab, A, b, rtol=1e-8, maxiter=2000)
    assert info == 0
    assert plain_info != 0 or count < 0.5 * plain
    L = laplacian()
    symmetric = spai(L, 1.0, symmetric=True)
    assert symmetric.hermitian
    assert (abs(symmetric.M - symmetric.M.T)).max() == 0
    rhs = np.random.default_rng(1).standard_normal(400)
    assert steps(cg, L, rhs, rtol=1e-8, M=symmetric)[1] < steps(cg, L, rhs, rtol=1e-8)[1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_spai_as_an_operator_and_as_a_product(dtype: Any) -> None:
    A, rng = random_matrix(60, dtype), np.random.default_rng(2)
    M = spai(A, 0.8)
    x = rng.standard_normal((60, 2)).astype(dtype)
    one = M @ x[:, 0]
    np.testing.assert_allclose(one, M.M @ x[:, 0], rtol=1e-4 if np.finfo(dtype).eps > 1e-8 else 1e-12)
    kept = one.copy()
    _ = M @ x[:, 1]
    assert np.array_equal(one, kept)  # not a view of a workspace
    assert (M @ x).shape == (60, 2)
    np.testing.assert_allclose(M.H @ x[:, 0], M.M.conj().T @ x[:, 0], rtol=1e-5)
    product = M.apply_to(A)
    assert product.dtype == dtype
    np.testing.assert_allclose(product.to_scipy().toarray(), (A @ M.M).toarray(), atol=1e-5)
    assert M.fill(A) == pytest.approx(product.nnz / (A.nnz + M.nnz))


def test_g3_circuits_pattern_is_that_of_the_thesis(shared_matrices: Path) -> None:
    lower = sp.load_npz(shared_matrices / "G3_circuit_lower.npz").tocsr()
    A = sp.csr_array(lower + lower.T - sp.diags_array(lower.diagonal()))
    found = spai(A, 0.9)
    assert found.nnz == pytest.approx(6_562_707, rel=0.01)  # table 5.7
    assert 0 < found.misfit < 0.4


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (ArgumentError, {"tau": 1.5}),
        (ArgumentError, {"tau": float("nan")}),
        (ArgumentTypeError, {"tau": "all"}),
        (ArgumentError, {"most": 0}),
        (ArgumentError, {"memory": 0}),
        (ArgumentError, {"backend": "gpu"}),
        (ArgumentError, {"pattern": sp.eye_array(3)}),
        (MatrixError, {"A": sp.csr_array(np.ones((3, 4)))}),
    ],
)
def test_bad_arguments_of_spai(error: type[Exception], arguments: dict[str, Any]) -> None:
    with pytest.raises(error):
        spai(**{"A": laplacian(3), **arguments})


@pytest.mark.skipif(cuda_missing() is None, reason="there is a GPU")
def test_without_a_gpu_the_device_is_refused_and_auto_is_the_host() -> None:
    with pytest.raises((DeviceError, MissingDependencyError)):
        spai(laplacian(3), backend="cuda")
    A = laplacian(160)
    assert A.nnz > 100_000
    assert spai(A, 0.0).backend == "cpu"


def test_what_a_narrow_type_cannot_hold_is_lost_and_said() -> None:
    found = spai(sp.csr_array(np.diag(np.array([1e-42, 2.0], dtype=np.float32))))
    assert list(found.M.diagonal()) == [0.0, 0.5]
    assert "beyond the range" in found.notes[0]


# -------------------------------------------------------------------------------------------------------------- Jacobi


@pytest.mark.parametrize("dtype", DTYPES)
def test_jacobi_of_a_hermitian_matrix_keeps_it_hermitian(dtype: Any) -> None:
    A = graded(40, dtype)
    if np.dtype(dtype).kind == "c":
        turn = sp.diags_array(np.exp(1j * np.arange(40)))
        upper = sp.triu(turn @ A @ turn.conj(), 1)
        A = sp.csr_array(upper + upper.conj().T + sp.diags_array(A.diagonal().real)).astype(dtype)
    M = jacobi(A)
    assert (M.side, M.keeps_residual, M.hermitian) == ("symmetric", False, True)
    folded = M.apply_to(A)
    assert folded.dtype == dtype
    dense = folded.to_scipy().toarray()
    tolerance = 50 * np.finfo(dtype).eps
    np.testing.assert_allclose(np.diag(dense), 1, rtol=tolerance)
    np.testing.assert_allclose(dense, dense.conj().T, rtol=tolerance)
    x = np.random.default_rng(0).standard_normal(40).astype(dtype)
    y = x / M.solution(np.ones_like(x))
    np.testing.assert_allclose(M.solution(y), x, rtol=tolerance)
    np.testing.assert_allclose(folded.to_scipy() @ y, M.rhs(A @ x), rtol=1e4 * tolerance, atol=1e4 * tolerance)
    np.testing.assert_allclose(M @ x, x / A.diagonal(), rtol=tolerance)


def test_jacobi_from_the_right_and_of_a_diagonal_with_zeros() -> None:
    A = random_matrix(40, np.complex128).tolil()
    A[3, 3] = 0
    A = sp.csr_array(A)
    M = jacobi(A)
    assert M.side == "right"
    assert M.keeps_residual
    assert "1 of 40" in M.notes[0]
    diagonal = np.where(A.diagonal() == 0, 1, A.diagonal())
    np.testing.assert_allclose(M.apply_to(A).to_scipy().toarray(), A.toarray() / diagonal, rtol=1e-14)
    x = np.random.default_rng(0).standard_normal(40)
    np.testing.assert_allclose(M.H @ x, x / diagonal.conj(), rtol=1e-14)
    with pytest.raises(ArgumentError, match="not real and positive"):
        jacobi(A, side="symmetric")
    with pytest.raises(ArgumentError, match="unknown side"):
        jacobi(A, side="left")
    with pytest.raises(ArgumentError, match="too small"):
        jacobi(sp.csr_array(np.diag([1e-310, 1.0])))
    with pytest.raises(ArgumentError, match=r"does not fit A[\s\S]*expected \(9, 9\)[\s\S]*found \(40, 40\)"):
        M.apply_to(laplacian(3))


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_hermitian_up_to_rounding_is_scaled_symmetrically(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    scale = 10 ** rng.uniform(-1, 1, 400) * (np.exp(1j * rng.uniform(0, 6, 400)) if np.dtype(dtype).kind == "c" else 1)
    D = sp.diags_array(scale.astype(dtype))
    A = sp.csr_array(D @ (laplacian(20, dtype) * dtype(1.1)) @ D.conj())
    assert akx.Matrix.from_any(A).features.value_symmetry == "none"
    M = jacobi(A)
    assert (M.side, M.hermitian, chebyshev(A, 2, (0.01, 1e4)).hermitian) == ("symmetric", True, True)
    folded = M.apply_to(A).to_scipy()
    assert abs(folded - folded.conj().T).max() <= 16 * np.finfo(dtype).eps
    A.data[1] *= 1 + 100 * np.finfo(dtype).eps
    assert jacobi(A).side == "right"


def test_the_symmetric_form() -> None:
    A = graded(40)
    M = jacobi(A, side="right")
    form = M.for_hermitian()
    assert form is not None
    assert form.for_hermitian() is form
    np.testing.assert_array_equal(form.apply_to(A).data, jacobi(A).apply_to(A).data)
    assert jacobi(-A).for_hermitian() is None
    assert spai(A, symmetric=True).for_hermitian() is None
    assert chebyshev(A, 2).for_hermitian() is None


def test_the_scaled_matrix_has_the_pattern_and_so_the_plans_of_the_matrix() -> None:
    A = akx.Matrix.from_any(graded())
    folded = jacobi(A).apply_to(A)
    assert folded.fingerprint == A.fingerprint
    assert folded.indices is A.indices


# ------------------------------------------------------------------------------------------------ Chebyshev polynomial


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("degree", [1, 3, 8])
def test_the_polynomial_is_the_minimax_residual(dtype: Any, degree: int) -> None:
    A = laplacian(5, dtype)
    values, vectors = np.linalg.eigh(A.toarray().astype(np.complex128))
    low, high = values[0] * 0.9, values[-1] * 1.1
    M = chebyshev(A, degree, (low, high))
    t = np.linspace(low, high, 2001)
    residual = 1 - t * M.polynomial(t)
    least = 1 / np.cosh((degree + 1) * np.arccosh((high + low) / (high - low)))
    assert abs(residual).max() == pytest.approx(least, rel=1e-6)  # equioscillation's height
    x = np.random.default_rng(0).standard_normal(25).astype(dtype)
    exact = (vectors * M.polynomial(values)) @ (vectors.conj().T @ x)
    np.testing.assert_allclose(M @ x, exact, rtol=0, atol=200 * np.finfo(dtype).eps * abs(exact).max())


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_default_interval_keeps_m_definite(sign: float) -> None:
    A = sign * laplacian(30)
    M = chebyshev(A, 6)
    values = sign * np.linalg.eigvalsh(A.toarray())
    mapped = values * sign * M.polynomial(sign * values)
    assert mapped.min() > 0
    assert mapped.max() < 2
    improved = mapped.min() / mapped.max() / (values.min() / values.max())
    assert improved > 0.5 * 7**2  # as the module's docstring has it, up to a factor
    if sign > 0:
        b = np.random.default_rng(0).standard_normal(900)
        info, count = steps(cg, A, b, rtol=1e-8, M=M)
        assert info == 0
        assert count < 0.35 * steps(cg, A, b, rtol=1e-8)[1]


def test_chebyshev_of_a_nonsymmetric_matrix() -> None:
    n = 200
    A = sp.csr_array(sp.diags_array([-1.4, 3.0, -0.6], offsets=[-1, 0, 1], shape=(n, n)))
    b = np.ones(n)
    M = chebyshev(A, 5)
    assert not M.hermitian
    info, count = steps(gmres, A, b, rtol=1e-8, restart=60, callback_type="pr_norm", M=M)
    assert info == 0
    assert count < 0.4 * steps(gmres, A, b, rtol=1e-8, restart=60, callback_type="pr_norm")[1]
    z = M @ (b + 2j * b)
    np.testing.assert_allclose(z, (M @ b) * (1 + 2j), rtol=1e-13)
    rotated = chebyshev(A * np.exp(0.9j), 5)  # an ellipse about a complex centre
    np.testing.assert_allclose(rotated.polynomial(3 * np.exp(0.9j)), 1 / (3 * np.exp(0.9j)), rtol=0.2)


@pytest.mark.parametrize("arguments", [{"degree": 0}, {"degree": 1.5}, {"interval": (-1.0, 2.0)}, {"interval": (2, 1)}])
def test_bad_arguments_of_chebyshev(arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgumentTypeError if arguments == {"degree": 1.5} else ArgumentError):
        chebyshev(laplacian(4), **arguments)


@pytest.mark.parametrize("method", ["cg", "gmres", "bicgstab"])
def test_the_record_has_the_products_of_a_polynomial(method: str) -> None:
    A, b, uses = spd(), rhs(300), []
    M = chebyshev(A, degree=3)
    foreign = LinearOperator(A.shape, matvec=lambda r: uses.append(len(r)) or M @ r, dtype=float)
    foreign.products = len  # its own affair
    x, info, stats = SOLVERS[method](A, b, M=foreign, rtol=1e-8, return_stats=True)
    y, same, own = SOLVERS[method](A, b, M=M, rtol=1e-8, return_stats=True)
    assert info == same == 0
    np.testing.assert_array_equal(x, y)
    assert own.products == stats.products + 3 * len(uses)
    assert own.matrix_passes == stats.matrix_passes + len(uses)


def test_an_indefinite_matrix_is_refused_by_chebyshev() -> None:
    with pytest.raises(ArgumentError, match="both sides of 0"):
        chebyshev(sp.csr_array(laplacian(10) - 3.9 * sp.eye_array(100)))


# -------------------------------------------------------------------------------------------------------------- folded


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["symmetric", "right", "spai"])
def test_a_folded_solve_reaches_the_residual_of_the_original_system(dtype: Any, kind: str) -> None:
    A = graded(60, dtype)
    M = spai(A, 1.0) if kind == "spai" else jacobi(A, side=kind)
    rng = np.random.default_rng(0)
    b, x0 = rng.standard_normal(60).astype(dtype), rng.standard_normal(60).astype(dtype)
    rtol = 1e-3 if np.finfo(dtype).eps > 1e-8 else 1e-9
    solver = stats_of(cg if kind == "symmetric" else gmres)
    for guess in (None, x0):
        x, info, stats = solve_folded(  # type: ignore[misc]
            solver, A, b, guess, M=M, rtol=rtol, maxiter=1000, return_stats=True
        )
        assert info == 0
        assert stats.converged
        assert x.dtype == dtype
        assert np.linalg.norm(b - A @ x) <= 1.01 * rtol * np.linalg.norm(b)
        assert stats.residual <= stats.target


def test_one_call_is_enough_where_the_scaling_is_extreme(shared_matrices: Path) -> None:
    A = sp.csr_array(akx.read_matrix(shared_matrices / "bcsstk16.mtx.gz"))
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    calls: list[float] = []

    def counted(A: Any, b: Any, *, atol: float, **options: Any) -> Any:
        calls.append(atol)
        return stats_of(cg)(A, b, atol=atol, **options)

    x, info = solve_folded(counted, A, b, M=jacobi(A), rtol=1e-8, maxiter=2000)  # type: ignore[misc]
    assert info == 0
    assert len(calls) == 1
    assert np.linalg.norm(b - A @ x) > 1e-10 * np.linalg.norm(b)  # nor did it do much more than was asked for


def test_a_folded_solve_tells_the_truth() -> None:
    A, b = graded(60), np.ones(60)
    M = jacobi(A)
    x, info = solve_folded(stats_of(cg), A, b[:, None], M=M, rtol=1e-8, maxiter=3)  # type: ignore[misc]
    assert x.shape == (60, 1)
    assert info > 0

    def idle(A: Any, b: Any, **_: Any) -> Any:  # says that it has converged
        return np.zeros_like(b), 0, SolveStats(method="idle", reason="done")

    x, info, stats = solve_folded(idle, A, b, M=M, return_stats=True)  # type: ignore[misc]
    assert info > 0
    assert not stats.converged
    assert "no further" in stats.reason
    x, info = solve_folded(idle, A, A @ np.ones(60), np.ones(60), M=M)  # type: ignore[misc]
    assert info == 0
    x, info = solve_folded(idle, A, np.zeros(60), M=M)  # type: ignore[misc]
    assert info == 0
    assert not x.any()


def test_callbacks_of_a_folded_solve_are_of_the_original_system() -> None:
    A, b = graded(60), np.ones(60)
    seen: list[Any] = []
    x, info = solve_folded(stats_of(cg), A, b, M=jacobi(A), rtol=1e-9, maxiter=500, callback=lambda v: seen.append(v))  # type: ignore[misc]
    assert info == 0
    np.testing.assert_allclose(seen[-1], x, rtol=1e-5)
    norms: list[float] = []
    start = 0.9 * np.linalg.solve(A.toarray(), b)
    solve_folded(
        stats_of(gmres),
        A,
        b,
        start,
        M=jacobi(A, side="right"),
        rtol=1e-9,
        restart=60,
        callback_type="pr_norm",
        callback=norms.append,
    )
    assert norms[0] < 0.2  # the first guess leaves a tenth, of which the first step leaves less
    assert norms[-1] <= 1e-9


def test_what_cannot_be_folded_is_refused_with_a_hint() -> None:
    A = laplacian(6)
    for M in (chebyshev(A, 2), LinearOperator((36, 36), matvec=lambda x: x), sp.eye_array(36)):
        with pytest.raises(ArgumentError, match="pass it as M of a solver"):
            solve_folded(stats_of(cg), A, np.ones(36), M=M)


def test_a_complex_preconditioner_of_a_real_system() -> None:
    A = laplacian(6)
    M = spai(A * (1 + 0.1j), 1.0)
    x, info = solve_folded(stats_of(gmres), A, np.ones(36), M=M, rtol=1e-8)  # type: ignore[misc]
    assert info == 0
    assert x.dtype == np.complex128
    np.testing.assert_allclose(A @ x, np.ones(36), atol=1e-6)


@pytest.mark.parametrize("make", [jacobi, chebyshev, spai])
def test_two_threads_may_apply_one_at_once(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    A = laplacian(30)
    M = make(A)
    vectors = np.random.default_rng(0).standard_normal((2, A.shape[0]))
    alone = [M.matvec(v) for v in vectors]
    both = threading.Barrier(2)
    powers = akx.MatrixPowers.__call__

    def together(self: Any, *given: Any, **named: Any) -> Any:
        found = powers(self, *given, **named)
        both.wait(10)  # neither goes on before both have made their powers
        return found

    monkeypatch.setattr(akx.MatrixPowers, "__call__", together)

    def apply(v: Any) -> list[Any]:
        both.wait(10)
        return [M.matvec(v) for _ in range(20)]

    with ThreadPoolExecutor(2) as pool:
        for rounds, one in zip(pool.map(apply, vectors), alone, strict=True):
            for found in rounds:
                np.testing.assert_array_equal(found, one)


def test_two_threads_may_solve_with_one_at_once() -> None:
    A = laplacian(30)
    B = np.random.default_rng(0).standard_normal((2, A.shape[0]))
    for M in (chebyshev(A), spai(A, threads=2)):
        alone = [akx.solvers.gmres(A, b, M=M, rtol=1e-9)[0] for b in B]
        with ThreadPoolExecutor(2) as pool:
            for _ in range(5):
                answers = [pool.submit(akx.solvers.gmres, A, b, M=M, rtol=1e-9) for b in B]
                for (x, info), one in zip((answer.result() for answer in answers), alone, strict=True):
                    assert info == 0
                    np.testing.assert_array_equal(x, one)


def test_an_application_keeps_no_room_for_each_call() -> None:
    M = chebyshev(laplacian())
    for _ in range(3):
        M.matvec(np.ones(400))
    assert len(M._rooms) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_product(dtype: Any, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "SHARED_BYTES", 0)
    A = sp.csr_array(random_matrix(211, dtype, density=0.03))
    A.data[A.indptr[7] : A.indptr[12]] = 0
    A.eliminate_zeros()  # rows without entries
    times = product.Product(akx.Matrix.from_any(A), threads)
    assert times.threads == threads
    wide = np.random.default_rng(1).standard_normal((211, 2)).astype(dtype)
    tight = {"rtol": 20 * np.finfo(dtype).eps, "atol": 20 * np.finfo(dtype).eps}
    for x in (wide[:, 0], wide[:, 1].copy(), wide[:, 0].real.astype(np.float32)):
        np.testing.assert_allclose(times(x), A @ x.astype(dtype), **tight)
    frozen = wide[:, 0].copy()
    frozen.flags.writeable = False
    found = times(frozen)
    kept = found.copy()
    assert found.tobytes() == product.Product(akx.Matrix.from_any(A), 1)(frozen).tobytes()
    times(wide[:, 1])
    np.testing.assert_array_equal(found, kept)


def test_small_products_are_done_by_one_thread() -> None:
    small, large = (akx.Matrix.from_any(laplacian(side)) for side in (30, 300))
    assert (product.Product(small, 2).threads, product.Product(large, 2).threads) == (1, 2)
    x = np.random.default_rng(0).standard_normal(90000)
    np.testing.assert_allclose(product.Product(large, 2)(x), large.to_scipy() @ x, rtol=1e-12, atol=1e-12)


def test_a_limit_of_cycles_is_one_of_all_calls_of_a_folded_solve() -> None:
    A, left = graded(60), list[int]()

    def gmres(A: Any, b: Any, *, maxiter: int, restart: int, **_: Any) -> Any:
        left.append(maxiter)
        x = 0.9 * np.linalg.solve(A.to_scipy().toarray(), b)
        return x, 0, SolveStats(method="gmres", iterations=restart // 2)

    options = {"rtol": 1e-9, "maxiter": 3, "restart": 10, "return_stats": True}
    _, info, stats = solve_folded(gmres, A, np.ones(60), M=jacobi(A), **options)  # type: ignore[arg-type,misc]
    assert left == [3, 2, 1]
    assert (info, stats.reason) == (15, "iterations ran out")


@pytest.mark.parametrize(
    ("leaves", "said", "reason", "rounds"),
    [(0.2, 7, "stagnation", 3), (0.2, 0, "converged", 3), (0.6, 7, "stagnation", 1), (0.6, 0, "converged", 1),
     (0.2, -1, "breakdown", 1), (0.2, 7, ENDED, 1)],
)  # fmt: skip
def test_corrections_go_on_while_they_gain(leaves: float, said: int, reason: str, rounds: int) -> None:
    A, b = spd(50), rhs(50)
    exact, calls = np.linalg.solve(A.toarray(), b), []

    def correct(x: Any, r: Any, norm: float, left: int) -> Any:
        calls.append((norm, left))
        return exact + leaves * (x - exact), said, SolveStats(method="cg", iterations=10, reason=reason)

    system = make_system("cg", A, b, rtol=0.01)
    x, stats, info, why = corrected(system, correct, None)
    assert [left for _, left in calls] == [500, 490, 480][:rounds]
    assert stats is not None
    assert stats.iterations == 10 * rounds
    assert relative(A, x, b) == pytest.approx(leaves**rounds)
    if rounds > 1:
        assert (info, why) == (0, "converged")
    else:
        assert info == (said or 10)
        assert why == (reason if said else "the residual goes down no further")
    calls.clear()
    corrected(make_system("cg", A, b, rtol=1e-9), correct, 20)
    assert len(calls) == min(rounds, 2)  # of ten steps each
