"""Vectors recycled over a sequence of solves: fewer products, the same promises."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from solvers.systems import nonsymmetric, relative, rhs, spd

from akx.core.errors import ArgumentError, ArgumentTypeError
from akx.solvers import Solver, gmres
from akx.solvers.gcro_dr import Recycled, _Space, gcro_dr
from akx.solvers.system import make_system


def convection(n: int = 30, wind: float = 20.0) -> sp.csr_array:
    """Convection and diffusion on a square of n by n points, by central differences: some hundred products."""
    h = wind / (2 * (n + 1))
    T = sp.diags_array([-1 - h, 2.0, -1 + h], offsets=[-1, 0, 1], shape=(n, n))
    return sp.csr_array(sp.kron(T, sp.eye_array(n)) + sp.kron(sp.eye_array(n), T))


def products_of_scipy(matrices: list[Any], sides: list[Any], **options: Any) -> int:
    """Products of gcrotmk with its own recycling; of the matrix that differs, with U alone."""
    count, kept = 0, list[Any]()
    for i, (A, b) in enumerate(zip(matrices, sides, strict=True)):

        def product(v: Any, A: Any = A) -> Any:
            nonlocal count
            count += 1
            return A @ v

        if i and A is not matrices[i - 1]:
            kept[:] = [(None, u) for _, u in kept]
        _, info = sla.gcrotmk(sla.LinearOperator(A.shape, matvec=product, dtype=float), b, CU=kept, **options)
        assert info == 0
    return count


def test_a_sequence_takes_fewer_products_than_without_and_than_scipys() -> None:
    A, sides = convection(), [rhs(900, seed=seed) for seed in range(6)]
    plain, recycling = Solver(A, "gmres"), Solver(A, "gmres", recycle=10)
    without, done = 0, []
    for b in sides:
        x, info, stats = recycling(b, rtol=1e-8, return_stats=True)
        assert (info, stats.method) == (0, "gmres")
        assert relative(A, x, b) <= 1e-8
        done.append(stats.products)
        without += plain(b, rtol=1e-8, return_stats=True)[2].products
    assert sum(done) < 0.75 * without
    assert sum(done) < products_of_scipy([A] * 6, sides, rtol=1e-8, m=30, k=10)
    as_much_memory = sum(gmres(A, b, restart=50, rtol=1e-8, return_stats=True)[2].products for b in sides)
    assert sum(done) <= as_much_memory


def test_columns_of_one_call_are_a_sequence() -> None:
    A, B = convection(20), np.stack([rhs(400, seed=seed) for seed in range(5)], axis=1)
    X, info, stats = Solver(A, "gmres", recycle=10, restart=15)(B, rtol=1e-8, return_stats=True)
    assert info == 0
    assert max(relative(A, X[:, j], B[:, j]) for j in range(5)) <= 1e-8
    alone = [gmres(A, B[:, j], restart=15, rtol=1e-8, return_stats=True)[2].products for j in range(5)]
    assert stats.products < 0.75 * sum(alone)


def test_matrices_that_change_slowly() -> None:
    A, b = convection(), rhs(900)
    matrices = [A + 0.01 * step * sp.diags_array(np.abs(A.diagonal()) * rhs(900, seed=9)) for step in range(5)]
    plain, recycling = Solver(A, "gmres"), Solver(A, "gmres", recycle=10)
    done, without = 0, 0
    for changed in map(sp.csr_array, matrices):
        for solver in (plain, recycling):
            solver.update_values(changed)
        x, info, stats = recycling(b, rtol=1e-8, return_stats=True)
        assert info == 0
        assert relative(changed, x, b) <= 1e-8
        done, without = done + stats.products, without + plain(b, rtol=1e-8, return_stats=True)[2].products
    assert "images of 10 recycled vectors made anew" in " ".join(stats.notes)
    assert done < 0.8 * without
    assert done < products_of_scipy(matrices, [b] * 5, rtol=1e-8, m=30, k=10)


@pytest.mark.parametrize("which", ["convection", "positive definite", "easy"])
def test_the_first_solve_takes_no_more_products_than_gmres_of_the_same_memory(which: str) -> None:
    A = {"convection": convection(), "positive definite": convection(wind=0.0), "easy": nonsymmetric()}[which]
    b = rhs(A.shape[0])
    *_, stats = gcro_dr(A, b, recycled=Recycled(5), restart=20, rtol=1e-8, return_stats=True)
    *_, theirs = gmres(A, b, restart=20 + 2 * 5, rtol=1e-8, return_stats=True)
    assert stats.converged
    assert stats.products <= theirs.products


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("with_M", [False, True])
def test_what_is_kept_is_orthonormal_and_the_image(dtype: Any, with_M: bool) -> None:
    A = (convection(20) * (1 + 0.3j if np.dtype(dtype).kind == "c" else 1)).astype(dtype)
    M = sp.csr_array(sp.diags_array((1 / (A.diagonal() + np.linspace(0, 1, 400))).astype(dtype))) if with_M else None
    eps, recycled = float(np.finfo(dtype).eps), Recycled(8)
    for seed in range(3):
        b = rhs(400, dtype, seed=seed)
        x, info = gcro_dr(A, b, recycled=recycled, M=M, restart=15, rtol=eps**0.5)
        assert info == 0
        assert x.dtype == dtype
        assert relative(A, x, b) <= 1.01 * eps**0.5
    ((U, C, _),) = recycled.kept.values()
    assert 6 <= len(U) <= 8  # a pair that does not fit is left out
    images = (U if M is None else U @ M) @ A.T
    scale = np.linalg.norm(U, axis=1, keepdims=True) * sla.norm(A)
    assert np.abs((images - C) / scale).max() < 100 * eps
    np.testing.assert_allclose(C.conj() @ C.T, np.eye(len(C)), atol=100 * eps)


def test_what_is_kept_holds_the_smallest_eigenvectors() -> None:
    values = np.concatenate([[1e-3, 2e-3, 3e-3], np.linspace(1, 2, 197)])
    A, recycled = sp.csr_array(sp.diags_array(values)), Recycled(3)
    _, info, first = gcro_dr(A, np.ones(200), recycled=recycled, restart=10, rtol=1e-8, return_stats=True)
    assert info == 0
    ((U, _, _),) = recycled.kept.values()
    basis = np.linalg.qr(U.T)[0]
    assert np.linalg.svd(basis[:3], compute_uv=False).min() > 0.999
    _, info, second = gcro_dr(A, rhs(200), recycled=recycled, restart=10, rtol=1e-8, return_stats=True)
    assert info == 0
    assert second.iterations < 0.75 * first.iterations


def test_the_same_history_gives_the_same_bits() -> None:
    A = convection(20)
    found = []
    for _ in range(2):
        solver = Solver(A, recycle=6)
        found.append(b"".join(solver(rhs(400, seed=seed), rtol=1e-7)[0].tobytes() for seed in range(3)))
    assert found[0] == found[1]


def test_copies_and_pickles_begin_with_nothing_recycled() -> None:
    A, b = convection(20), rhs(400)
    solver = Solver(A, "gmres", recycle=6)
    first, again = (solver(b, rtol=1e-8, return_stats=True)[2].products for _ in range(2))
    assert again < first
    assert solver.nbytes > Solver(A, "gmres").nbytes
    for other in (copy.copy(solver), pickle.loads(pickle.dumps(solver))):
        assert [other(b, rtol=1e-8, return_stats=True)[2].products for _ in range(2)] == [first, again]


def test_right_hand_sides_of_several_types_and_another_preconditioner() -> None:
    A = convection(20).astype(np.float32).astype(float)
    solver = Solver(A.astype(np.float32), "gmres", "jacobi", recycle=6, restart=15)
    for dtype, rtol in ((np.float32, 1e-4), (np.complex128, 1e-9), (np.float64, 1e-9), (np.complex64, 1e-4)):
        for seed in range(2):
            x, info = solver(rhs(400, dtype, seed=seed), rtol=rtol)
            assert (info, x.dtype) == (0, dtype)
            assert relative(A, x, rhs(400, dtype, seed=seed)) <= 1.01 * rtol
    factors = sla.spilu(sp.csc_array(A), drop_tol=0.1)
    solver.update_values(A, sla.LinearOperator(A.shape, matvec=factors.solve, dtype=float))
    for seed in range(3):
        x, info = solver(rhs(400, seed=seed), rtol=1e-9)
        assert info == 0
        assert relative(A, x, rhs(400, seed=seed)) <= 1e-9


def test_a_callback_may_call_it_and_give_it_other_values() -> None:
    A, b = convection(20), rhs(400)
    solver, inner = Solver(A, "gmres", recycle=6), []

    def meddle(_: Any) -> None:
        if not inner:
            inner.append(solver(b, rtol=1e-9))
            solver.update_values(3 * A)

    x, info = solver(b, rtol=1e-9, callback=meddle)
    assert (info, inner[0][1]) == (0, 0)
    assert max(relative(A, x, b), relative(A, inner[0][0], b)) <= 1e-9
    for seed in range(2):
        x, info, stats = solver(rhs(400, seed=seed), rtol=1e-9, return_stats=True)
        assert info == 0
        assert relative(3 * A, x, rhs(400, seed=seed)) <= 1e-9
        assert ("made anew" in " ".join(stats.notes)) == (seed == 0)


def cycle(n: int) -> sp.csr_array:
    """A permutation in one cycle."""
    return sp.csr_array((np.ones(n), (np.arange(n), (np.arange(n) + 1) % n)), shape=(n, n))


@pytest.mark.parametrize("n", [1, 2, 3, 8, 40])
def test_spaces_that_are_soon_exhausted(n: int) -> None:
    for A in (sp.eye_array(n, format="csr"), cycle(n), sp.csr_array(sp.diags_array(np.arange(1.0, n + 1)))):
        recycled = Recycled(10)
        for b in (np.eye(n)[0], np.ones(n), np.zeros(n), rhs(n), np.ones(n)):
            x, info = gcro_dr(A, b, recycled=recycled, rtol=1e-10, restart=45)
            assert info == 0
            assert np.linalg.norm(b - A @ x) <= 1e-10 * np.linalg.norm(b)


def test_singular_systems() -> None:
    L = sp.csr_array(spd(100) - sp.diags_array(spd(100).sum(axis=1)))
    recycled = Recycled(6)
    for seed in range(3):
        b = L @ rhs(100, seed=seed)
        x, info = gcro_dr(L, b, recycled=recycled, rtol=1e-8, restart=20)
        assert info == 0
        assert relative(L, x, b) <= 1e-8
        x, info = gcro_dr(L, b + 1, recycled=recycled, rtol=1e-8, restart=20)
        assert info == -2
        assert np.isfinite(x).all()


def test_a_first_guess_and_steps_that_run_out_and_more_than_can_be_had() -> None:
    A, exact, solver = convection(20), rhs(400), Solver(convection(20), "gmres", recycle=6, restart=15)
    b = A @ exact
    for _ in range(2):
        x, info, stats = solver(b, x0=exact, return_stats=True)
        assert (info, stats.iterations) == (0, 0)
        x, info, stats = solver(b, rtol=1e-12, maxiter=1, return_stats=True)
        assert info > 0
        assert stats.residual == pytest.approx(np.linalg.norm(b - A @ x))
        seen: list[Any] = []
        x, info, stats = solver(b, rtol=1e-30, callback=seen.append, return_stats=True)
        assert info > 0
        assert relative(A, x, b) < 1e-12
        assert len(seen) == stats.iterations
        assert solver(b, x0="Mb", rtol=1e-9)[1] == 0


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_systems_of_extreme_scale(scale: float) -> None:
    A, b = convection(20), rhs(400)
    solver = Solver(scale * A, "gmres", "jacobi", recycle=6)
    for _ in range(2):
        x, info = solver(scale * b, rtol=1e-9)
        assert info == 0
        assert relative(A, x, b) <= 1e-9


def test_what_it_refuses() -> None:
    A = spd()
    for method in ("cg", "ca_gmres", "bicgstab"):
        with pytest.raises(ArgumentError, match=rf"{method} recycles no vectors.*gmres"):
            Solver(A, method, recycle=10)
    with pytest.raises(ArgumentError, match="gmres has no s"):
        Solver(A, recycle=10, s=4)
    for wrong in (-1, 65):
        with pytest.raises(ArgumentError, match="recycle is out of range"):
            Solver(A, "gmres", recycle=wrong)
    with pytest.raises(ArgumentTypeError, match="recycle"):
        Solver(A, "gmres", recycle=2.5)  # type: ignore[arg-type]


def test_images_in_units_of_their_own_are_not_taken_for_the_callers() -> None:
    A = sp.csr_array(1000 * convection(20))
    solver, usual = (
        Solver(A, "gmres", "jacobi", recycle=8, restart=15),
        Solver(A, "gmres", "jacobi", recycle=8, restart=15),
    )
    for one, scale in ((solver, 1e200), (usual, 1.0)):
        x, info = one(scale * rhs(400), rtol=1e-8)
        assert info == 0
    x, info, stats = solver(rhs(400, seed=1), rtol=1e-8, return_stats=True)
    assert info == 0
    assert relative(A, x, rhs(400, seed=1)) <= 1.01e-8
    assert stats.products <= 1.1 * usual(rhs(400, seed=1), rtol=1e-8, return_stats=True)[2].products + 8
    ((U, C, _),) = solver._recycled.kept.values()
    images = (U / A.diagonal()) @ A.T
    assert np.linalg.norm(images - C) < 1e-9 * np.linalg.norm(C)


@pytest.mark.parametrize(("steps", "most"), [(3, 4 + 3 + 1), (24, 4 + 24 + 1), (28, 30 + 1 + 4), (30, 30 + 1 + 4)])
def test_no_inner_products_with_rows_that_are_not_in_use(
    steps: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cycle of so many steps, of 30, with 4 vectors; but for fewer than these between V and U."""
    A, seen = convection(), list[int]()
    space = _Space(make_system("gmres", A, rhs(900)), 4, 30)
    space.W[:] = np.nan
    space.take(np.eye(4, 900), None)
    space.row[:] = rhs(900)
    qr = space.problem(1.0)
    for j in range(steps):
        h, length = space.step(j, 30)
        qr.append(np.append(h, length))
    products = space.ortho.work.products
    monkeypatch.setattr(space.ortho.work, "products", lambda k, s: (seen.append(k), products(k, s))[1])
    space.renew(qr)
    assert seen[:1] == [most]
    U, C = space.kept()
    np.testing.assert_allclose(A @ U.T, C.T, atol=1e-10)
    np.testing.assert_allclose(C @ C.T, np.eye(4), atol=1e-12)


def test_what_is_given_up_cycle_after_cycle_is_noted_once() -> None:
    """A permutation in one cycle: no step but the last gains anything."""
    A = sp.csr_array((np.ones(150), (np.arange(150), (np.arange(150) + 1) % 150)), shape=(150, 150))
    _, info, stats = gcro_dr(A, rhs(150), recycled=Recycled(10), restart=5, maxiter=100, return_stats=True)
    assert info > 0
    assert sum("recycled vectors are given up" in note for note in stats.notes) == 1
