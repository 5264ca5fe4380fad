"""Conjugate gradients, classic and communication-avoiding: what both promise, and what only the second one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import cg as scipys_cg
from solvers.systems import FAR, rhs, spd, steps_with_outliers

import akx
from akx.core.basis import chebyshev, make_basis
from akx.core.errors import ArgumentError, ArgumentTypeError, PlanError
from akx.core.io import read_matrix
from akx.solvers import ca_cg_solve
from akx.solvers.ca_cg import ca_cg
from akx.solvers.ca_cg_block import Shifts, block_steps
from akx.solvers.ca_cg_pairs import PairPace, pair_steps
from akx.solvers.cg import cg

DTYPES = (np.float32, np.float64, np.complex64, np.complex128)
BOTH = pytest.mark.parametrize("solver", [cg, ca_cg])


def grid(side: int = 24, dtype: Any = float, phase: float = 0.0) -> sp.csr_array:
    """A five-point Laplacian plus a little, Hermitian positive definite; complex by a phase on the couplings."""
    turn = np.exp(1j * phase) if phase else 1.0
    line = sp.diags_array([-np.conj(turn), 2.01, -turn], offsets=[-1, 0, 1], shape=(side, side))
    unit = sp.eye_array(side)
    return sp.csr_array(sp.kron(line, unit) + sp.kron(unit, line)).astype(dtype)


def right(A: Any, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(A.shape[0])
    x = x + 1j * rng.standard_normal(x.size) if A.dtype.kind == "c" else x
    return A @ x.astype(A.dtype)


def error(A: Any, x: Any, b: Any) -> float:
    return float(np.linalg.norm(b - A @ x) / np.linalg.norm(b))


@BOTH
@pytest.mark.parametrize("dtype", DTYPES)
def test_converges_in_every_type(solver: Any, dtype: Any) -> None:
    A = grid(20, dtype, 0.3 if np.dtype(dtype).kind == "c" else 0.0)
    b = right(A)
    rtol = 1e-4 if np.finfo(dtype).eps > 1e-10 else 1e-10
    x, info, stats = solver(A, b, rtol=rtol, return_stats=True)
    assert (info, x.dtype, x.shape) == (0, dtype, b.shape)
    assert stats.converged
    wide = A.astype(np.result_type(dtype, np.float64))
    assert error(wide, x, b) <= 1.01 * rtol
    steps = []
    scipys_cg(wide, b.astype(wide.dtype), rtol=rtol, callback=steps.append)
    assert stats.iterations <= 1.1 * len(steps) + 2


@BOTH
def test_agrees_with_scipy(solver: Any) -> None:
    A = grid()
    b = right(A)
    wanted, _ = scipys_cg(A, b, rtol=1e-12)
    x, info = solver(A, b, rtol=1e-12)
    assert info == 0
    np.testing.assert_allclose(x, wanted, atol=1e-9 * np.abs(wanted).max())
    x, info = solver(A, b[:, None], x0=wanted[:, None], rtol=1e-9)
    assert (info, x.shape) == (0, (A.shape[0], 1))
    np.testing.assert_array_equal(x[:, 0], wanted)  # good enough as it came


@BOTH
def test_first_guess_and_zero(solver: Any) -> None:
    A = grid(10)
    b, start = right(A), np.random.default_rng(1).standard_normal(100)
    kept = start.copy()
    x, info = solver(A, b, start, rtol=1e-9)
    assert info == 0
    assert error(A, x, b) <= 1e-9
    np.testing.assert_array_equal(start, kept)
    x, info, stats = solver(A, np.zeros(100), start, return_stats=True)
    assert (info, stats.iterations) == (0, 0)
    np.testing.assert_array_equal(x, 0)
    x, info = solver(sp.csr_array([[4.0]]), [2.0])
    assert info == 0
    np.testing.assert_allclose(x, [0.5])


@BOTH
def test_running_out_of_steps_is_said(solver: Any) -> None:
    A = grid()
    b = right(A)
    for limit in (1, 5, 21):
        seen: list[Any] = []
        x, info, stats = solver(A, b, rtol=1e-12, maxiter=limit, callback=seen.append, return_stats=True)
        assert (info, stats.iterations, stats.converged) == (limit, limit, False)
        assert "ran out" in stats.reason
        np.testing.assert_array_equal(seen[-1], x)
        assert stats.residual == pytest.approx(np.linalg.norm(b - A @ x))
        assert len(stats.residuals) == limit + 2  # that of x0, of each step, and the true one
    for wrong in (-1, 2.5, True):
        with pytest.raises(ArgumentError if wrong == -1 else ArgumentTypeError, match="maxiter"):
            solver(A, b, maxiter=wrong)


@BOTH
def test_indefinite_matrices_are_named_and_never_solved_by_mistake(solver: Any) -> None:
    rng = np.random.default_rng(3)
    A = sp.diags_array(np.concatenate([-np.linspace(1, 2, 50), np.linspace(1, 3, 50)])).tocsr()
    b = rng.standard_normal(100)
    _, info, stats = solver(A, b, rtol=1e-10, return_stats=True)
    assert info < 0
    assert "not positive definite" in stats.reason
    assert not stats.converged
    _, info = solver(-grid(8), np.ones(64))
    assert info < 0


@BOTH
def test_singular_systems_with_a_solution(solver: Any) -> None:
    n = 300
    A = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)).tolil()
    A[0, 0] = A[n - 1, n - 1] = 1.0
    A = sp.csr_array(A)
    b = right(A)
    x, info = solver(A, b, rtol=1e-8)
    assert info == 0
    assert error(A, x, b) <= 1e-8


@BOTH
def test_what_cannot_be_attained_is_not_claimed(solver: Any) -> None:
    A = sp.csr_array(sp.diags_array(np.logspace(-9, 0, 200)))
    b = np.random.default_rng(0).standard_normal(200)
    x, info, stats = solver(A, b, rtol=1e-15, return_stats=True, maxiter=20_000)
    assert info > 0
    assert error(A, x, b) > 1e-15
    assert "stagnation" in stats.reason or "ran out" in stats.reason


def test_preconditioned_steps_are_scipys() -> None:
    A = sp.csr_array(sp.diags_array(np.logspace(0, 5, 400)) + grid(20))
    b, M = right(A), sp.diags_array(1 / A.diagonal())
    steps: list[Any] = []
    scipys_cg(A, b, rtol=1e-10, M=M, callback=steps.append)
    _, info, stats = cg(A, b, rtol=1e-10, M=M, return_stats=True)
    assert info == 0
    assert abs(stats.iterations - len(steps)) <= 2
    assert stats.seconds["precondition"] > 0
    for solve in (cg, ca_cg):
        assert solve(A, b, M=-sp.eye_array(400))[1] < 0


# -------------------------------------------------------------------------------------- communication-avoiding


@pytest.mark.parametrize("kind", ["newton", "chebyshev", "monomial"])
@pytest.mark.parametrize("s", [1, 3, 8])
def test_every_basis_needs_the_classic_steps(kind: str, s: int) -> None:
    A = grid(30)
    b = right(A)
    _, _, classic = cg(A, b, rtol=1e-8, return_stats=True)
    x, info, stats = ca_cg(A, b, rtol=1e-8, s=s, basis=kind, return_stats=True)
    assert info == 0
    assert error(A, x, b) <= 1e-8
    assert stats.iterations <= 1.1 * classic.iterations
    assert stats.basis == kind
    assert all(made <= s for made in stats.s)
    if s > 1:
        assert stats.matrix_passes < 0.75 * classic.matrix_passes
    else:
        assert stats.s == []


def test_the_same_bits_twice() -> None:
    A = grid(30)
    b = right(A)
    np.testing.assert_array_equal(ca_cg(A, b, s=4)[0], ca_cg(A, b, s=4)[0])
    np.testing.assert_array_equal(cg(A, b)[0], cg(A, b)[0])


def test_an_unusable_basis_lowers_s_and_not_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    # Far from the spectrum: powers grow as 8000^j.
    monkeypatch.setattr(Shifts, "ritz", lambda self, **_: np.array([1e-3]))
    A = grid(30)
    b = right(A)
    x, info, stats = ca_cg(A, b, rtol=1e-10, s=8, basis="monomial", return_stats=True)
    assert info == 0
    assert any("s lowered" in note for note in stats.notes)
    assert error(A, x, b) <= 1e-10
    _, _, classic = cg(A, b, rtol=1e-10, return_stats=True)
    assert stats.iterations <= 1.1 * classic.iterations


def test_s_comes_back_after_good_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = ca_cg_solve.block_steps, [0]

    def few(G: Any, B: Any, most: int, *rest: Any) -> Any:
        calls[0] += 1
        return real(G, B, min(most, 1) if calls[0] == 2 else most, *rest)

    monkeypatch.setattr(ca_cg_solve, "block_steps", few)
    A = grid(64)
    b = right(A)
    _, info, stats = ca_cg(A, b, rtol=1e-12, s=6, return_stats=True)
    assert info == 0
    assert [note.rpartition(": ")[2] for note in stats.notes][:2] == ["s lowered to 3", "s raised to 6"]
    assert max(stats.s[-5:]) > 3


@pytest.mark.parametrize("basis", ["monomial", "newton", "chebyshev"])
@pytest.mark.parametrize(("small", "largest"), FAR)
def test_eigenvalues_far_from_all_others(small: float, largest: float, basis: str) -> None:
    """Directions lose their conjugacy along them, and neither blocks nor steps behind them make that worse."""

    def solve(method: str, A: Any, b: Any, **options: Any) -> Any:
        return {"cg": cg, "ca_cg": ca_cg}[method](A, b, **options, return_stats=True)

    ratios = steps_with_outliers(solve, small, largest, basis)
    assert np.median(ratios) <= 1.5
    assert (ratios > 2).sum() <= 1, ratios


def test_directions_that_begin_anew_are_of_ordinary_steps_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The block behind them keeps to their recurrences, as the first one did, and no other does."""
    asked: list[bool] = []
    block = ca_cg_solve.Blocks._block

    def spoilt(self: Any) -> str:
        asked.append(self.plain)
        if len(asked) == 4:
            self._leave_blocks()
            self._forget(whole=True)
            self.shifts.close()
            return str(self.steps.begin(self.steps.norm))
        return str(block(self))

    monkeypatch.setattr(ca_cg_solve.Blocks, "_block", spoilt)
    A = grid(64)
    b = right(A)
    x, info, _ = ca_cg(A, b, rtol=1e-10, s=6, return_stats=True)
    assert info == 0
    assert error(A, x, b) <= 1e-10
    assert asked[:6] == [True, False, False, False, True, False]


def test_a_residual_that_drifts_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The residual is spoilt a little, as rounding errors would, and the bound is told of it."""
    solve = ca_cg_solve.Blocks
    has_drifted, replace, spoilt = solve._has_drifted, solve._replace, []

    def spoil(self: Any, of_x: float, of_r: float) -> bool:
        if spoilt or self.stats.iterations <= 20:
            return has_drifted(self, of_x, of_r)
        r = self.W[2 * self.s]
        spoilt.append(np.linalg.norm(r))
        r *= 1 + 1e-6
        exact, self.eps = self.eps, 0.5
        found = has_drifted(self, of_x, of_r)
        self.eps = exact
        assert found
        return found

    def check(self: Any) -> None:
        replace(self)
        self.drift = 0.0
        r, b, x = self.W[2 * self.s], self.system.b, self.V[3]
        np.testing.assert_allclose(r, b - A @ x, rtol=0, atol=1e-11 * np.linalg.norm(b))
        assert self.replaced == 1
        assert self.steps.norm == pytest.approx(np.linalg.norm(r), rel=1e-12)

    monkeypatch.setattr(solve, "_has_drifted", spoil)
    monkeypatch.setattr(solve, "_replace", check)
    A = sp.csr_array(sp.diags_array(np.linspace(1, 100, 400)))
    b = right(A)
    x, info, stats = ca_cg(A, b, rtol=1e-8, s=4, return_stats=True)
    assert info == 0
    assert spoilt
    assert error(A, x, b) <= 1e-8
    assert any("replaced 1" in note for note in stats.notes)
    _, _, classic = cg(A, b, rtol=1e-8, return_stats=True)
    assert stats.iterations <= 1.1 * classic.iterations


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("kind", ["newton", "chebyshev", "monomial"])
def test_steps_in_coordinates_are_those_of_vectors(kind: str, dtype: Any) -> None:
    """Two blocks, of three and of four steps, beside seven steps of CG on vectors."""
    A = grid(12, dtype, 0.3 if dtype is complex else 0.0)
    s, n = 4, A.shape[0]
    b = right(A)
    basis = make_basis(kind, s, A)
    W, x = np.zeros((3 * s + 1, n), dtype=dtype), np.zeros(n, dtype=dtype)
    W[2 * s] = b
    direction, rest, wanted, directions = b.copy(), b.copy(), np.zeros_like(b), []
    for most in (3, 4):
        W[2 * s :] = akx.matrix_powers(A, W[2 * s], s, basis=basis).T
        U = W[s:]
        found = block_steps(U.conj() @ U.T, basis.matrix(), most, 0.0, 1e-4)
        assert found.made == most
        C = found.rows()
        x += C[0] @ W
        W[: 2 * s + 1] = C[1:] @ W
        for j in range(most):
            w = A @ direction
            gamma = np.vdot(rest, rest).real
            curvature = np.vdot(direction, w).real
            alpha = gamma / curvature
            directions.append(direction / np.sqrt(curvature))
            wanted, rest = wanted + alpha * direction, rest - alpha * w
            beta = np.vdot(rest, rest).real / gamma
            direction = rest + beta * direction
            np.testing.assert_allclose([found.alphas[j], found.betas[j]], [alpha, beta], rtol=1e-8)
            np.testing.assert_allclose(found.norms[j], np.linalg.norm(rest), rtol=1e-8)
        near = {"rtol": 1e-7, "atol": 1e-8 * np.abs(b).max()}
        np.testing.assert_allclose(x, wanted, **near)
        np.testing.assert_allclose(W[2 * s], rest, **near)
        np.testing.assert_allclose(W[s : 2 * s], (A @ W[:s].T).T, **near)
    P = W[:s]
    turned = np.array([np.vdot(p, A @ q) for p, q in zip(P, directions[-s:], strict=True)])
    np.testing.assert_allclose(np.abs(turned), 1, rtol=1e-7)  # the same directions, up to a factor of modulus one
    np.testing.assert_allclose(P.conj() @ (A @ P.T), np.eye(s), atol=1e-8)


def test_a_vector_with_too_little_new_in_it_ends_the_block() -> None:
    """Of v_0 = r, v_1 = A r, v_2 = A^2 r in a space of two dimensions the last one is nothing new."""
    A = np.diag([1.0, 1.0, 3.0, 3.0])
    r = np.array([1.0, 2.0, -1.0, 0.5])
    V = np.stack([np.linalg.matrix_power(A, j) @ r for j in range(4)])
    found = block_steps(V @ V.T, np.eye(4, 3, -1), 3, 0.0)
    assert found.made <= 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_wrong_images_of_directions_are_seen_and_made_anew(monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    solve = ca_cg_solve.Blocks
    original, spoilt = solve._products, []

    def products(self: Any) -> Any:
        if not spoilt and self.stats.iterations > 16:
            spoilt.append(True)
            self.W[self.s] += 1e-2 * np.abs(self.W[self.s]).max()  # the oldest direction's image
            self.since = -1
        return original(self)

    monkeypatch.setattr(solve, "_products", products)
    A = grid(20, dtype, 0.3 if np.dtype(dtype).kind == "c" else 0.0)
    b = right(A)
    rtol = 1e-8 if np.finfo(dtype).eps < 1e-10 else 1e-4
    _, info, stats = ca_cg(A, b, rtol=rtol, s=4, return_stats=True)
    assert (info, spoilt) == (0, [True])
    assert any("made anew 1 times" in note for note in stats.notes)
    _, _, classic = cg(A, b, rtol=rtol, return_stats=True)
    assert stats.iterations <= 1.1 * classic.iterations + 1


def test_ritz_values_of_the_coefficients_are_eigenvalues() -> None:
    A = sp.csr_array(sp.diags_array([1.0, 3.0, 4.0, 10.0]))
    shifts = Shifts("newton", real=True)
    b = np.ones(4)
    r, p = b.copy(), b.copy()
    for _ in range(4):
        w = A @ p
        alpha = (r @ r) / (p @ w)
        after = r - alpha * w
        beta = (after @ after) / (r @ r)
        shifts.add([alpha], [beta])
        r, p = after, after + beta * p
    np.testing.assert_allclose(shifts.ritz(), [1, 3, 4, 10], rtol=1e-8)
    np.testing.assert_allclose(shifts.ritz(ends=True), [1, 10], rtol=1e-8)


def test_arguments_of_the_blocks_are_checked() -> None:
    A, b = grid(5), np.ones(25)
    for wrong in (0, 31, "many", True, 2.5):
        with pytest.raises(ArgumentError if wrong in (0, 31) else ArgumentTypeError, match="s is "):
            ca_cg(A, b, s=wrong)
    with pytest.raises(ArgumentError, match="basis"):
        ca_cg(A, b, basis="fourier")
    plan = akx.MatrixPowers(A, 3).plan
    with pytest.raises(PlanError, match="number of steps"):
        ca_cg(A, b, s=4, plan=plan)
    _, info, stats = ca_cg(grid(20), np.ones(400), plan=plan, return_stats=True)
    assert info == 0
    assert max(stats.s) <= 3


@pytest.mark.parametrize("dtype", [float, complex])
def test_steps_from_two_vectors_are_those_of_cg(dtype: Any) -> None:
    A = spd(60, dtype).toarray()
    p, r, s = rhs(60, dtype), rhs(60, dtype, 1), 4
    basis = chebyshev(s, (0.1, 5.0))
    Y = [p, r]
    for j in range(s):
        for v in (0, 1):
            before = basis.c[j] * Y[2 * j - 2 + v] if j else 0.0
            Y.append(basis.a[j] * A @ Y[2 * j + v] + basis.b[j] * Y[2 * j + v] + before)
    Y = np.array(Y)
    found = pair_steps(Y.conj() @ Y.T, basis.matrix(), 3, 0.0, 1e6)
    x = np.zeros_like(p)
    for norm, alpha, beta in zip(found.norms, found.alphas, found.betas, strict=True):
        gamma = np.vdot(r, r).real
        assert alpha == pytest.approx(gamma / np.vdot(p, A @ p).real, rel=1e-9)
        x, r = x + alpha * p, r - alpha * A @ p
        assert norm == pytest.approx(np.linalg.norm(r), rel=1e-9)
        assert beta == pytest.approx(norm**2 / gamma, rel=1e-9)
        p = r + beta * p
    assert len(found.norms) == 3
    for coordinates, vector in ((found.x, x), (found.p, p), (found.r, r)):
        np.testing.assert_allclose(coordinates @ Y, vector, rtol=1e-9, atol=1e-9)
    assert not pair_steps(Y.conj() @ Y.T, basis.matrix(), 3, 0.0, 1.0).norms  # nothing is trusted


@pytest.mark.parametrize("kind", ["newton", "chebyshev"])
def test_shifts_of_two_vectors_begin_with_the_smallest(kind: str) -> None:
    shifts = Shifts(kind, real=True)
    A, r = grid(12), rhs(144)
    p, alphas, betas = r, [], []
    for _ in range(10):
        alphas.append(r @ r / (p @ (A @ p)))
        after = r - alphas[-1] * (A @ p)
        betas.append(after @ after / (r @ r))
        r, p = after, after + betas[-1] * p
    shifts.add(alphas, betas)
    basis, ritz = shifts.basis(4, low=True), shifts.ritz()
    assert basis.kind == kind
    used = np.linalg.eigvals(basis.matrix()[:4])  # the zeros of the polynomial of degree 4
    np.testing.assert_allclose([min(abs(ritz - t)) for t in used], 0, atol=1e-12 * ritz[-1])
    assert -basis.b[0] / basis.a[0] == pytest.approx(ritz[0], rel=1e-12)
    assert -basis.b[1] / basis.a[1] == pytest.approx(ritz[-1], rel=1e-12)


def test_s_of_two_vectors_falls_and_comes_back() -> None:
    pace = PairPace(8)
    pace.count(3)
    assert pace.s == 4
    for _ in range(4):
        pace.count(4)
    assert pace.s == 8
    for made in (2, 1, 0):
        pace.count(made)
    assert pace.s == 1
    ordinary = 0
    while pace.s == 1:
        pace.count(1)
        ordinary += 1
    assert ordinary >= 16


@pytest.mark.parametrize("name", ["662_bus", "bodyy5", "bcsstk16"])
@pytest.mark.parametrize("s", [4, 8])
def test_real_matrices_need_no_more_steps(shared_matrices: Path, name: str, s: int) -> None:
    A = read_matrix(shared_matrices / f"{name}.mtx.gz")
    b = right(A)
    x, info, classic = cg(A, b, rtol=1e-8, return_stats=True)
    assert info == 0
    steps: list[int] = []
    scipys_cg(A, b, rtol=1e-8, callback=lambda _: steps.append(1))
    assert classic.iterations <= 1.03 * len(steps) + 2
    x, info, stats = ca_cg(A, b, rtol=1e-8, s=s, return_stats=True)
    assert info == 0
    assert error(A, x, b) <= 1e-8
    assert stats.iterations <= 1.1 * classic.iterations
    if name != "662_bus":  # blocks from one vector end after two steps, those from two go on
        assert stats.iterations >= 2.5 * stats.matrix_passes
        assert any("two vectors" in note for note in stats.notes)


@pytest.mark.parametrize(("s", "kind"), [("auto", "1"), (8, "1"), (2, "random")])
def test_a_residual_that_rose_is_replaced_on_its_way_down(
    shared_matrices: Path, monkeypatch: pytest.MonkeyPatch, s: Any, kind: str
) -> None:
    """bcsstk16: r grows to 800 times b first; at s = 2 images of directions go wrong by 4,096 eps there."""
    A = read_matrix(shared_matrices / "bcsstk16.mtx.gz")
    b = np.ones(A.shape[0]) if kind == "1" else np.random.default_rng(0).standard_normal(A.shape[0])
    x, info, stats = ca_cg(A, b, rtol=1e-11, s=s, threads=1, return_stats=True)
    assert info == 0
    assert error(A, x, b) <= 1e-11
    assert any("residual replaced" in note and "drift away" in note for note in stats.notes)
    monkeypatch.setattr(ca_cg_solve.Blocks, "_replace", lambda _: None)
    *_, kept = ca_cg(A, b, rtol=1e-11, s=s, threads=1, return_stats=True)
    assert stats.iterations < 0.9 * kept.iterations
    assert stats.products < 0.95 * kept.products


def test_a_residual_as_good_as_the_true_one_is_not_replaced(
    shared_matrices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked at, though; where b - A x itself is known no better it would only take more steps."""
    A = read_matrix(shared_matrices / "bodyy5.mtx.gz")
    b = np.ones(A.shape[0])
    looked: list[float] = []
    residual = ca_cg_solve.System.residual
    monkeypatch.setattr(
        ca_cg_solve.System, "residual", lambda self, x, r: looked.append(residual(self, x, r)) or looked[-1]
    )
    x, info, stats = ca_cg(A, b, rtol=1e-10, s=8, threads=1, return_stats=True)
    assert info == 0
    assert error(A, x, b) <= 1e-10
    assert looked
    assert len(looked) <= 2
    assert looked[0] > 1e5 * stats.target
    assert not any("drift away" in note for note in stats.notes)


def test_a_residual_whose_square_is_beyond_the_range_is_no_error() -> None:
    A = sp.csr_array(sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(20, 20)))
    for given, b, x0 in ((1e300 * A, 1j * np.ones(20), np.ones(20)), (A, np.ones(20), np.full(20, 1e308))):
        with np.errstate(all="ignore"):
            x, info = cg(given, b, x0)
            assert info != 0 or np.linalg.norm(b - given @ x) <= 1e-5 * np.linalg.norm(b)
