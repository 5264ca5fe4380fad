"""Systems without a solution: singular, and b not in the range of A. They are named, promptly; hard ones are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from solvers.systems import is_of_hermitian, relative, rhs

import akx.solvers
from akx.core.io import read_matrix
from akx.solvers import SOLVERS
from akx.solvers.preconditioners import jacobi, spai
from akx.solvers.stopping import NO_SOLUTION

METHODS = {**SOLVERS, "solve": akx.solvers.solve}
ANY = [name for name in METHODS if not is_of_hermitian(name)]


def laplacian(weights: Any) -> sp.csr_array:
    """Of a directed graph: rows sum to zero."""
    return sp.csr_array(sp.diags_array(np.asarray(weights.sum(axis=1)).ravel()) - weights)


def path(n: int, seed: int | None = None) -> sp.csr_array:
    """Adjacency of n points in a row, with random weights for each direction where there is a seed."""
    return weighted(sp.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1]), seed)


def grid(m: int, seed: int | None = None) -> sp.csr_array:
    """The same of a grid of m x m points."""
    line, one = path(m), sp.eye_array(m)
    return weighted(sp.kron(line, one) + sp.kron(one, line), seed)


def weighted(pattern: Any, seed: int | None) -> sp.csr_array:
    found = sp.csr_array(pattern)
    if seed is not None:
        found.data = np.random.default_rng(seed).uniform(0.2, 1.8, found.nnz)
    return found


def least(A: Any, b: Any) -> float:
    """The least ||b - A x|| / ||b||, by dense algebra."""
    x = np.linalg.lstsq(A.toarray(), b, rcond=1e-10)[0]
    return relative(A, x, b)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_a_neumann_problem_without_solution_is_named(name: str, dtype: Any) -> None:
    A, b = laplacian(grid(12)).astype(dtype), rhs(144, dtype) + dtype(0.3)
    if np.dtype(dtype).kind == "c":  # Hermitian, with a null vector of complex entries
        turn = sp.diags_array(np.exp(1j * np.arange(144)))
        A, b = sp.csr_array(turn @ A @ turn.conj()), turn @ b
    x, info, stats = METHODS[name](A, b, rtol=1e-4 if dtype == np.float32 else 1e-8, return_stats=True)
    assert info == NO_SOLUTION
    assert "singular and inconsistent" in stats.reason
    assert any("no x has a residual below" in note for note in stats.notes)
    assert relative(A, x, b) < 2.5 * least(A, b)
    assert np.linalg.norm(x) < 1e5 * np.linalg.norm(b)
    assert stats.products < 20 * 144


@pytest.mark.parametrize("name", METHODS)
def test_so_it_is_with_a_preconditioner(name: str) -> None:
    A, b = laplacian(grid(12)), rhs(144) + 0.3
    x, info, stats = METHODS[name](A, b, rtol=1e-8, M=jacobi(A), return_stats=True)
    assert info == NO_SOLUTION
    assert "singular and inconsistent" in stats.reason
    assert relative(A, x, b) < 2.5 * least(A, b)


@pytest.mark.parametrize("name", ANY)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_nonsymmetric_one(name: str, transposed: bool) -> None:
    A, b = laplacian(grid(12, seed=1)), rhs(144) + 0.3
    A = sp.csr_array(A.T) if transposed else A
    x, info, stats = METHODS[name](A, b, rtol=1e-8, return_stats=True)
    assert info == NO_SOLUTION, stats.reason
    assert relative(A, x, b) < 3 * least(A, b)
    assert np.linalg.norm(x) < 1e6 * np.linalg.norm(b)


def links(n: int) -> sp.csr_array:
    """Of a graph of pages that link to others at random, each link in one direction."""
    pairs = np.random.default_rng(1).random((n, n)) < 0.03
    return sp.csr_array(pairs & ~np.eye(n, dtype=bool)).astype(float)


@pytest.mark.parametrize("name", ANY)
@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.float64])
def test_an_x_that_has_grown_along_a_null_vector_hides_nothing(name: str, dtype: Any) -> None:
    A, b = laplacian(links(300)).astype(dtype), (np.random.default_rng(4).standard_normal(300) + 0.3).astype(dtype)
    x, info, stats = METHODS[name](A, b, return_stats=True)
    assert info == NO_SOLUTION, stats.reason
    assert relative(A, x, b) < 2 * least(A, b)
    assert np.linalg.norm(x) < 1e8


@pytest.mark.parametrize("name", ["gmres", "ca_gmres", "bicgstab"])
def test_a_large_x_of_a_system_with_a_solution_is_no_sign(name: str) -> None:
    """Condition 1e6 in single precision: x reaches some 1e5, and rounding b - A x comes to as much as b."""
    random = np.random.default_rng(5)
    left, right = (np.linalg.qr(random.standard_normal((80, 80)))[0] for _ in range(2))
    A = sp.csr_array((left @ np.diag([*np.ones(79), 1e-6]) @ right).astype(np.float32))
    info = METHODS[name](A, rhs(80, np.float32), rtol=1e-6, maxiter=400)[1]
    assert info != NO_SOLUTION


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("n", [50, 200, 1000])
def test_a_long_path(name: str, n: int) -> None:
    """Krylov methods need n steps and more for it, and as many to find what shows that it has no solution."""
    A, b = laplacian(path(n)), np.random.default_rng(0).standard_normal(n)
    x, info, stats = METHODS[name](A, b, return_stats=True)
    assert info == NO_SOLUTION, stats.reason
    assert relative(A, x, b) <= 1
    assert stats.products < (1100 if is_of_hermitian(name) else 2100)


@pytest.mark.parametrize("name", ANY)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_long_path_with_weights(name: str, transposed: bool) -> None:
    A, b = laplacian(path(200, seed=3)), np.random.default_rng(1).standard_normal(200)
    x, info, stats = METHODS[name](sp.csr_array(A.T) if transposed else A, b, return_stats=True)
    assert info == NO_SOLUTION, stats.reason
    assert relative(A.T if transposed else A, x, b) <= 1


@pytest.mark.parametrize("name", METHODS)
def test_small_graphs(name: str) -> None:
    for weights in (np.ones((6, 6)) - np.eye(6), np.roll(np.eye(12), 1, 0) + np.roll(np.eye(12), -1, 0)):
        A, b = laplacian(sp.csr_array(weights)), np.eye(len(weights))[0]
        x, info, stats = METHODS[name](A, b, rtol=1e-8, return_stats=True)
        assert info == NO_SOLUTION, stats.reason
        assert relative(A, x, b) <= 1
        assert np.linalg.norm(x) < 100


@pytest.mark.parametrize("name", METHODS)
def test_b_in_the_null_space_alone(name: str) -> None:
    x, info, _ = METHODS[name](laplacian(grid(12)), np.ones(144), rtol=1e-8, return_stats=True)
    assert info == NO_SOLUTION
    assert np.linalg.norm(x) < 1e3


@pytest.mark.parametrize("name", METHODS)
def test_a_solution_that_exists_is_found_all_the_same(name: str) -> None:
    A, b = laplacian(grid(12)), rhs(144)
    x, info = METHODS[name](A, b - b.mean(), rtol=1e-8)
    assert info == 0
    assert np.linalg.norm(x) < 1e3


@pytest.mark.parametrize("name", METHODS)
def test_what_cannot_be_attained_is_not_called_inconsistent(name: str) -> None:
    A, b = laplacian(grid(12)), rhs(144)
    _, info, stats = METHODS[name](A, b - b.mean(), rtol=1e-18, return_stats=True)
    assert info != NO_SOLUTION, stats.reason


@pytest.mark.parametrize("name", ["cg", "ca_cg", "minres", "gmres", "bicgstab"])
@pytest.mark.parametrize("file", ["662_bus.mtx.gz", "west0067.mtx"])
def test_a_hard_system_is_not_called_inconsistent(shared_matrices: Path, name: str, file: str) -> None:
    A = read_matrix(shared_matrices / file).astype(float)
    info = METHODS[name](A, rhs(A.shape[0]), rtol=1e-12, maxiter=20 if name == "gmres" else 600)[1]
    assert info != NO_SOLUTION


@pytest.mark.parametrize("name", ANY)
def test_nor_is_one_that_is_nearly_singular(name: str) -> None:
    random = np.random.default_rng(5)
    left, right = (np.linalg.qr(random.standard_normal((120, 120)))[0] for _ in range(2))
    A = sp.csr_array(left @ np.diag(10.0 ** -np.linspace(0, 14, 120)) @ right)
    info = METHODS[name](A, rhs(120), rtol=1e-8, maxiter=30 if "gmres" in name else 400)[1]
    assert info not in (0, NO_SOLUTION)


@pytest.mark.parametrize("name", ANY)
def test_a_singular_preconditioner_says_nothing_of_the_matrix(name: str) -> None:
    """The sparse inverse of a permutation in one cycle, on its pattern, is zero."""
    A = sp.csr_array((np.ones(30), (np.arange(30), (np.arange(30) + 1) % 30)), shape=(30, 30))
    _, info, stats = METHODS[name](A, rhs(30), M=spai(A), rtol=1e-8, return_stats=True)
    assert info not in (0, NO_SOLUTION)
    assert not any("no x has" in note for note in stats.notes)
    L = laplacian(path(60, seed=1))
    assert METHODS[name](L, rhs(60) + 5, M=spai(L), return_stats=True)[1] == NO_SOLUTION


def test_graded_systems_have_solutions() -> None:
    A = sp.csr_array(sp.diags_array(10.0 ** -np.arange(0, 24)))
    x, info = akx.solvers.cg(A, np.eye(24)[23], rtol=1e-8)
    assert info == 0
    np.testing.assert_allclose(x[23], 1e23)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_residual_that_is_small_by_rounding_errors_is_no_success(name: str, dtype: Any) -> None:
    """For a condition of 1 / eps x is so large that what is computed for b - A x may be anything, zero too."""
    for seed in range(30):
        random, n = np.random.default_rng(seed), 2 + seed % 3
        Q, d = np.linalg.qr(random.standard_normal((n, n)))[0], np.ones(n)
        d[-1] = np.finfo(dtype).eps * 10 ** random.uniform(0, 3)
        A, b = sp.csr_array(((Q * d) @ Q.T).astype(dtype)), random.standard_normal(n).astype(dtype)
        A = sp.csr_array((A + A.T) / 2)
        x, info = METHODS[name](A, b, rtol=1e-4, maxiter=100)
        wide = [sp.csr_array(A.astype(np.longdouble)), *(v.astype(np.longdouble) for v in (x, b))]
        assert info != 0 or relative(*wide) < 1.01e-4, seed


@pytest.mark.parametrize("name", ["cg", "gmres", "bicgstab"])
def test_an_accuracy_just_above_rounding_errors_is_attained(name: str) -> None:
    """Where these leave a doubt wider arithmetic confirms what is right: for rtol = 20 eps."""
    A, b = laplacian(grid(12)) + sp.eye_array(144), rhs(144)
    _, info, stats = METHODS[name](A, b, rtol=20 * np.finfo(float).eps, return_stats=True)
    assert info == 0, stats.reason


@pytest.mark.parametrize("name", ["cg", "solve"])
def test_what_is_singular_in_single_precision_alone_is_said_to_be(name: str) -> None:
    """A path held at one end by 4e-6: in double precision there is an x, of size 5e5."""
    random = np.random.default_rng(0)
    A = sp.csr_array(laplacian(path(30)) + sp.diags_array(np.r_[4e-6, np.zeros(29)]), dtype=np.float32)
    for _ in range(20):
        b = random.standard_normal(30).astype(np.float32)
        assert METHODS[name](A.astype(float), b.astype(float), rtol=1e-4)[1] == 0
        _, info, stats = METHODS[name](A, b, rtol=1e-4, return_stats=True)
        assert info != NO_SOLUTION or "inconsistent in single precision" in stats.reason
        if info == NO_SOLUTION:
            return
    raise AssertionError("no such b")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_an_empty_row_tells_that_there_is_no_solution(name: str, dtype: Any) -> None:
    """Without entries, or with zeros alone; and says nothing where b is zero there, up to the tolerance."""
    line, n = laplacian(path(300)) + sp.eye_array(300), 302
    A = sp.block_diag([line, sp.csr_array((1, 1))], format="csr")
    A = sp.block_diag([A, sp.csr_array(([0.0], [0], [0, 1]), shape=(1, 1))], format="csr").astype(dtype)
    assert A.nnz == line.nnz + 1
    b = rhs(n, dtype)
    for at in (n - 2, n - 1):
        wrong, right = b.copy(), b.copy()
        right[-2:] = wrong[-2:] = 0
        wrong[at], right[at] = 1e-3, 1e-6
        x, info, stats = METHODS[name](A, wrong, rtol=1e-5, return_stats=True)
        assert info == NO_SOLUTION
        assert stats.products < 1000
        assert stats.residual < 3e-3  # x is the solution of the other rows
        assert "A has empty rows" in stats.reason
        assert any("no x has a residual below 1.000e-03" in note for note in stats.notes)
        x, info = METHODS[name](A, right, rtol=1e-5)
        assert info == 0
        assert relative(A, x, right) <= 1e-5


def test_an_upper_shift_has_no_solution_for_a_last_entry() -> None:
    A, b = sp.csr_array(sp.eye_array(300, k=1)), np.ones(300)
    for name in ANY:
        assert METHODS[name](A, b)[1] == NO_SOLUTION
        _, info, stats = METHODS[name](A, np.stack([b, A @ b], axis=1), return_stats=True)
        assert info < 0
        assert "A has empty rows" in stats.columns[0].reason
    x, info = akx.solvers.gmres(A, b, x0=b)
    assert info == NO_SOLUTION
    np.testing.assert_array_equal(x, b)
