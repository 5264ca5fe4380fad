"""Block Jacobi: blocks inverted or factorised, symmetric forms, rows left to their diagonal, singular blocks."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import splu
from solvers.systems import fitting, nonsymmetric, relative, rhs, spd

from akx.core.errors import AkxError
from akx.core.matrix import Matrix
from akx.solvers import SOLVERS, Solver
from akx.solvers.preconditioners import BlockJacobi, BlockLU, block_jacobi, jacobi

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def plate(side: int = 12, dtype: Any = float) -> sp.csr_array:
    """Two unknowns a point of a grid, coupled strongly within a point; Hermitian positive definite, badly scaled."""
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(side, side))
    grid = sp.kron(line, sp.eye_array(side)) + sp.kron(sp.eye_array(side), line)
    inside = np.array([[1.0, 0.9], [0.9, 1.0]]) * (1 if np.dtype(dtype).kind != "c" else np.array([[1, 1j], [-1j, 1]]))
    scale = sp.diags_array(10.0 ** np.random.default_rng(0).uniform(-1, 1, 2 * side * side))
    return sp.csr_array((scale @ sp.kron(grid, inside) @ scale).astype(dtype))


def dense(A: Any, labels: Any) -> Any:
    """The inverse of the part of A within blocks."""
    full = A.toarray().astype(np.result_type(A.dtype, np.float64))
    return np.linalg.inv(np.where(np.equal.outer(labels, labels), full, 0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_m_is_the_inverse_of_the_blocks(dtype: Any, size: int) -> None:
    A = nonsymmetric(93, dtype)
    M = block_jacobi(A, size)
    assert type(M) is (BlockLU if size > 32 else BlockJacobi)
    assert (M.folds, M.hermitian, M.notes, M.dtype) == (size <= 32, False, (), dtype)
    want, r = dense(A, np.arange(93) // size), rhs(93, dtype)
    tolerance = 30 * np.finfo(dtype).eps
    np.testing.assert_allclose(M @ r, want @ r, atol=tolerance * np.abs(want @ r).max())
    np.testing.assert_allclose(M.rmatvec(r), want.conj().T @ r, atol=tolerance * np.abs(want.conj().T @ r).max())
    kept = pickle.loads(pickle.dumps(M))
    np.testing.assert_array_equal(kept @ r, M @ r)
    assert M.nnz > 0
    if size == 1:
        np.testing.assert_allclose(M @ r, jacobi(A) @ r, rtol=10 * np.finfo(dtype).eps)


def test_blocks_that_are_given() -> None:
    A, labels = nonsymmetric(80), np.random.default_rng(0).integers(-3, 9, 80)
    r = rhs(80)
    np.testing.assert_allclose(block_jacobi(A, labels) @ r, dense(A, labels) @ r, atol=1e-13)
    np.testing.assert_allclose(block_jacobi(A, labels.tolist()) @ r, dense(A, labels) @ r, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.float32])
def test_the_symmetric_form(dtype: Any) -> None:
    A = plate(dtype=dtype)
    M = block_jacobi(A, 2)
    assert M.hermitian
    form = M.for_hermitian()
    assert form is M.for_hermitian()
    assert form.for_hermitian() is form
    folded, r = form.apply_to(A).to_scipy(), rhs(A.shape[0], dtype)
    eps = float(np.finfo(dtype).eps)
    assert abs(folded - folded.conj().T).max() <= 20 * eps * abs(folded).max()
    np.testing.assert_allclose(folded.diagonal(), 1, rtol=100 * eps)
    np.testing.assert_allclose(form @ r, M @ r, atol=100 * eps * np.abs(M @ r).max())
    b = A @ r
    rtol = 1e-3 if eps > 1e-10 else 1e-9
    x, info, stats = SOLVERS["ca_cg"](A, b, M=M, rtol=rtol, return_stats=True)
    classic = SOLVERS["cg"](A, b, M=M, rtol=rtol, return_stats=True)[2]
    assert info == 0
    assert stats.method == "ca_cg"
    assert "block_jacobi made part of the matrix" in stats.notes
    assert relative(A, x, b) <= 1.01 * rtol
    assert stats.iterations <= 1.1 * classic.iterations + 8
    other = SOLVERS["ca_cg"](A, b, M=jacobi(A), rtol=rtol, return_stats=True)[2]
    assert stats.iterations < other.iterations


@pytest.mark.parametrize("size", [4, 50])
def test_every_solver_takes_it(name: str, size: int) -> None:
    A = fitting(name)
    b, M = rhs(300), block_jacobi(A, size)
    x, info, stats = SOLVERS[name](A, b, M=M, rtol=1e-9, return_stats=True)
    plain = SOLVERS[name](A, b, rtol=1e-9, return_stats=True)[2]
    assert info == 0
    assert relative(A, x, b) <= 1e-9
    assert stats.iterations < plain.iterations


@pytest.mark.parametrize("size", [3, 40])
def test_singular_blocks_are_left_to_their_diagonals(size: int) -> None:
    A = sp.lil_array(nonsymmetric(120))
    A[:size, :size] = 2.0  # of rank 1
    A[size : 2 * size, size : 2 * size] = 0.0
    A = sp.csr_array(A)
    M = block_jacobi(A, size)
    assert M.notes == (f"2 of {-(-120 // size)} blocks are singular; their diagonals stand for them",)
    r = rhs(120)
    found = M @ r
    np.testing.assert_allclose(found[:size], 0.5 * r[:size])
    np.testing.assert_allclose(found[size : 2 * size], r[size : 2 * size])
    rest = slice(2 * size, 3 * size)
    np.testing.assert_allclose(found[rest], np.linalg.solve(A[rest, rest].toarray(), r[rest]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_large_blocks_are_factorised_once_in_the_order_of_minimum_degree(
    dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []
    monkeypatch.setattr("scipy.sparse.linalg.splu", lambda *args, **options: done.append(1) or splu(*args, **options))
    line = sp.diags_array([-1.0, 2.5, -1.2], offsets=[-1, 0, 1], shape=(60, 60))
    A = sp.csr_array((sp.kron(line, sp.eye_array(60)) + sp.kron(sp.eye_array(60), line)).astype(dtype))
    side = np.arange(60) // 30
    labels = (side[:, None] * 2 + side).reshape(-1)
    M, r = block_jacobi(A, labels), rhs(3600, dtype)
    found = M @ r
    assert len(done) == 1
    K = sp.csc_array(A.multiply(np.equal.outer(labels, labels)))
    wide = K.astype(np.result_type(dtype, np.float64))
    own = splu(wide)
    assert M.nnz < 0.75 * own.nnz
    want = own.solve(r.astype(wide.dtype))
    assert np.linalg.norm(found - want) <= 100 * np.finfo(dtype).eps * np.linalg.norm(want)


def test_a_diagonal_of_zeros_does_not_matter_to_large_blocks() -> None:
    """Rows change places, as no diagonal is safe."""
    A = sp.lil_array(nonsymmetric(120))
    A.setdiag(0)
    A = sp.csr_array(A)
    A.eliminate_zeros()
    M, r = block_jacobi(A, 40), rhs(120)
    assert M.notes == ()
    want = dense(A, np.arange(120) // 40) @ r
    np.testing.assert_allclose(M @ r, want, atol=1e-10 * np.abs(want).max())
    np.testing.assert_allclose((M @ (1j * r)).imag, want, atol=1e-10 * np.abs(want).max())


@pytest.mark.parametrize("scattered", [False, True])
def test_threads_share_out_parts_of_large_blocks(scattered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """M is the same to the last bit for any number, and after a pickle."""
    monkeypatch.setattr("akx.solvers.preconditioners.block_lu.PART", 100)
    A = sp.lil_array(nonsymmetric(470, complex))
    A[90:135, 90:135] = 0  # block 2, singular, as are its diagonal's zeros
    A, labels = sp.csr_array(A), np.arange(470) // 45
    if scattered:
        order = np.random.default_rng(0).permutation(470)
        A, labels = sp.csr_array(A[order][:, order]), labels[order]
    M, r = block_jacobi(A, labels, threads=3), rhs(470, complex)
    assert len(M._parts) == 4
    assert M.notes == ("1 of 11 blocks are singular; their diagonals stand for them",)
    full = np.where(np.equal.outer(labels, labels), A.toarray(), 0) + np.diag(1.0 * (labels == 2))
    for of, found in ((full, M @ r), (full.conj().T, M.rmatvec(r))):
        want = np.linalg.solve(of, r)
        np.testing.assert_allclose(found, want, atol=1e-12 * np.abs(want).max())
    for other in (block_jacobi(A, labels, threads=1), pickle.loads(pickle.dumps(M))):
        np.testing.assert_array_equal(other @ r, M @ r)
    assert M.nnz == other.nnz


@pytest.mark.parametrize("seed", range(8))
def test_a_pivot_of_rounding_errors_is_seen(seed: int) -> None:
    """Of a large block whose rank is one too small, among others; an ill-conditioned one is kept."""
    rng = np.random.default_rng(seed)
    part = rng.standard_normal((50, 49)) @ rng.standard_normal((49, 50))
    left, right = (np.linalg.qr(rng.standard_normal((50, 50)))[0] for _ in range(2))
    ill = left * np.logspace(0, -11, 50) @ right
    A = sp.csr_array(sp.block_diag([np.eye(50) + 0.1 * rng.standard_normal((50, 50)), part, ill]))
    M, r = block_jacobi(A, 50), rng.standard_normal(150)
    assert M.notes == ("1 of 3 blocks are singular; their diagonals stand for them",)
    found = M @ r
    np.testing.assert_allclose(found[50:100], r[50:100] / np.diagonal(part))
    np.testing.assert_allclose(ill @ found[100:], r[100:], atol=1e-4)


def test_blocks_of_extreme_scale_are_not_singular() -> None:
    scale = sp.diags_array(np.logspace(-60, 60, 90))
    A = sp.csr_array(scale @ spd(90) @ scale)
    for size in (9, 45):
        M = block_jacobi(A, size)
        assert M.notes == ()
        r = scale @ rhs(90)
        inner = dense(spd(90), np.arange(90) // size)
        want = (inner @ rhs(90)) / scale.diagonal()
        np.testing.assert_allclose((M @ r) / want, 1, rtol=1e-8)


def test_a_hermitian_matrix_that_is_not_definite_has_no_symmetric_form() -> None:
    A = sp.csr_array(spd(60) - 2.5 * sp.eye_array(60))
    M = block_jacobi(A, 4)
    assert M.hermitian
    assert M.for_hermitian() is None
    _, info, stats = SOLVERS["ca_cg"](A, rhs(60), M=M, return_stats=True)
    assert stats.method == "cg"
    assert info <= 0 or not stats.converged


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("symmetric", [True, False])
def test_with_underlap_a_domain_needs_its_ghost_zone_alone(depth: int, symmetric: bool) -> None:
    """Rows that (A M)^s of a domain's rows reaches are those that A^s reaches, for s up to the underlap."""
    side, domains = 16, 4
    line = sp.diags_array([-1.0, 2.5, -1.0 if symmetric else 0.0], offsets=[-1, 0, 1], shape=(side, side))
    A = sp.csr_array(sp.kron(line, sp.eye_array(side)) + sp.kron(sp.eye_array(side), line))
    labels = (np.arange(side * side) // side * domains) // side * domains
    labels = labels + (np.arange(side * side) % side * domains) // side
    pattern, M = (A != 0).astype(int), block_jacobi(A, labels, underlap=depth)
    through = (abs(M.M) > 0).astype(int)
    reached = sp.csr_array(sp.eye_array(side * side, dtype=int))
    zone = reached
    for _ in range(depth):
        reached, zone = reached @ pattern @ through, zone @ pattern
        for domain in range(domains * domains):
            own = np.flatnonzero(labels == domain)
            of_m = set(reached[own].nonzero()[1].tolist()) - set(own.tolist())
            ghosts = set(zone[own].nonzero()[1].tolist()) - set(own.tolist())
            assert of_m <= ghosts
    if depth < side // domains // 2:
        assert M.nnz > A.shape[0], "some rows are inside"
    no_underlap = (abs(block_jacobi(A, labels).M) > 0).astype(int)
    own = np.flatnonzero(labels == 5)
    of_m = set((pattern @ no_underlap)[own].nonzero()[1].tolist()) - set(own.tolist())
    assert not of_m <= set(pattern[own].nonzero()[1].tolist()) | set(own.tolist()), "without it they need more"


@pytest.mark.parametrize("method", ["ca_cg", "gmres"])
def test_by_name_it_is_made_anew_of_new_values(method: str) -> None:
    A, b = plate(), rhs(288)
    solver = Solver(A, method, "block_jacobi")
    x, info = solver(b, rtol=1e-8)
    assert info == 0
    assert relative(A, x, b) <= 1e-8
    before = solver.M
    solver.update_values(3 * A)
    assert solver.M is not before
    np.testing.assert_allclose(3 * (solver.M @ b), before @ b, rtol=1e-12)
    assert solver(b, rtol=1e-8)[1] == 0


@pytest.mark.parametrize(
    "bad", [{"blocks": 0}, {"blocks": np.zeros(3, int)}, {"blocks": np.zeros(60)}, {"underlap": -1}, {"threads": 0}]
)
def test_bad_arguments(bad: dict[str, Any]) -> None:
    with pytest.raises(AkxError):
        block_jacobi(spd(60), **bad)
    assert block_jacobi(Matrix.from_any(spd(60))).shape == (60, 60)
