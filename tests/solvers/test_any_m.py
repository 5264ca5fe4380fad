"""Any preconditioner in communication-avoiding solvers: part of the matrix, between products, or the classic method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from solvers.systems import fitting, nonsymmetric, relative, rhs, spd

from akx.core.errors import ArgumentError, MatrixError
from akx.core.matrix import Matrix
from akx.krylov.bases import basis_from_ritz
from akx.krylov.hessenberg import HessenbergQR
from akx.solvers import SOLVERS, Solver, solve
from akx.solvers.flexible import FlexibleArnoldi
from akx.solvers.forms import form_for
from akx.solvers.preconditioners import SPAI, jacobi, spai
from akx.solvers.solver_pair import SolverPair
from akx.solvers.system import make_system

#: Nothing that NumPy has to say reaches the user.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

CA = ["ca_cg", "ca_gmres", "ca_bicgstab"]
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def grid(side: int = 24) -> sp.csr_array:
    """A 9-point operator of strong anisotropy, across the grid."""
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(side, side))
    mixed = sp.diags_array([-0.5, 0.5], offsets=[-1, 1], shape=(side, side))
    one = sp.eye_array(side)
    return sp.csr_array(sp.kron(line, one) + 0.05 * sp.kron(one, line) - 0.4 * sp.kron(mixed, mixed))


def weak(A: Any, drop: float = 0.2) -> Any:
    """An incomplete factorisation of A, in double precision."""
    wide = A.tocsc().astype(np.result_type(A.dtype, np.float64))
    factors = sla.spilu(wide, drop_tol=drop, fill_factor=2)
    return sla.LinearOperator(A.shape, lambda v: factors.solve(v.astype(wide.dtype)).astype(A.dtype), dtype=A.dtype)


def sweep(A: Any) -> Any:
    """Symmetric Gauss and Seidel, which is Hermitian positive definite where A is."""
    lower, diagonal = sp.csr_array(sp.tril(A)), A.diagonal()

    def apply(v: Any) -> Any:
        below = sla.spsolve_triangular(lower, v)
        return sla.spsolve_triangular(sp.csr_array(lower.conj().T), diagonal * below, lower=False)

    return sla.LinearOperator(A.shape, apply, dtype=A.dtype)


def amg(A: Any) -> Any:
    pyamg = pytest.importorskip("pyamg")
    return pyamg.smoothed_aggregation_solver(sp.csr_matrix(A))  # which has `aspreconditioner`


@pytest.mark.parametrize("kind", ["amg", "ilu", "sweep"])
@pytest.mark.parametrize("name", CA)
def test_a_general_m_takes_the_steps_of_the_classic_method(name: str, kind: str) -> None:
    A = grid()
    M, b = {"amg": amg, "ilu": weak, "sweep": sweep}[kind](A), rhs(A.shape[0])
    if (name, kind) == ("ca_cg", "ilu"):
        pytest.skip("is not Hermitian")
    x, info, stats = SOLVERS[name](A, b, M=M, rtol=1e-9, return_stats=True)
    _, said, classic = SOLVERS[name[3:]](A, b, M=M, rtol=1e-9, return_stats=True)
    assert (info, said) == (0, 0)
    assert relative(A, x, b) <= 1e-9
    assert abs(stats.iterations - classic.iterations) <= 1
    if name == "ca_gmres":
        assert stats.method == name
        assert kind == "amg" or (stats.s and max(stats.s) > 1)
        assert stats.products <= classic.products + 8 * len(stats.s)
    else:
        assert stats.method == name[3:]
        assert any(f"{name[3:]} in place of {name}" in note for note in stats.notes)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("basis", ["newton", "chebyshev", "monomial"])
def test_every_step_is_that_of_gmres_with_m(dtype: Any, basis: str) -> None:
    A, b = nonsymmetric(dtype=dtype), rhs(300, dtype)
    M = weak(A, 0.6)
    single = np.finfo(dtype).eps > 1e-10
    asked = {"M": M, "rtol": 1e-4 if single else 1e-10, "restart": 12, "return_stats": True}
    x, info, stats = SOLVERS["ca_gmres"](A, b, s=4, basis=basis, **asked)
    _, _, classic = SOLVERS["gmres"](A, b, **asked)
    assert info == 0
    assert x.dtype == dtype
    assert relative(A, x, b) <= 1.01 * asked["rtol"]  # type: ignore[operator]
    assert stats.s
    together = min(len(stats.residuals), len(classic.residuals)) - 1
    assert abs(len(stats.residuals) - len(classic.residuals)) <= 1
    tolerance = 2e-2 if single else 1e-4
    np.testing.assert_allclose(stats.residuals[:together], classic.residuals[:together], rtol=tolerance)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_the_relations_of_flexible_arnoldi(dtype: Any) -> None:
    """A Z^T = Q^T H, Z = M Q U, and the Ritz values of A M, by ordinary steps and blocks."""
    n = 60
    A, M = nonsymmetric(n, dtype), np.diag(np.linspace(0.5, 1.5, n)).astype(dtype)
    M[0, -1] = 0.3
    system = make_system("ca_gmres", A, rhs(n, dtype), M=M)
    W = system.rows(20)
    W[0] = system.b / system.norm_b
    arnoldi, qr = FlexibleArnoldi(system, W), HessenbergQR(1.0)
    for j in range(3):
        h, length = arnoldi.step(j, 16)
        qr.append(np.append(h, length))
    points = np.linalg.eigvals(A.toarray() @ M)[[0, 9, 25, 40, 50]]
    for basis in (basis_from_ritz(kind, points, 5, real=dtype == np.float64) for kind in ("newton", "chebyshev")):
        k = qr.size
        block = arnoldi.block(k, 5, basis, None, 16)
        qr.extend(arnoldi.columns(k, block, basis, 5), 0.0, 5)
    m, H = qr.size, qr.matrix()
    assert m == 13
    np.testing.assert_allclose(A @ arnoldi.Z[:m].T, W[: m + 1].T @ H, atol=1e-12)
    np.testing.assert_allclose(arnoldi.Z[:m].T, M @ W[:m].T @ arnoldi._U[:m, :m], atol=1e-12)
    projected = W[:m].conj() @ (A @ (M @ W[:m].T))
    np.testing.assert_allclose(
        np.sort_complex(arnoldi.ritz(qr)), np.sort_complex(np.linalg.eigvals(projected).astype(complex)), atol=1e-8
    )
    y = np.linspace(1, 2, m).astype(dtype)
    out = np.zeros(n, dtype=dtype)
    arnoldi.add(y, out)
    np.testing.assert_allclose(out, arnoldi.Z[:m].T @ y, atol=1e-13)


class Changing:
    """An inner iteration of a number of steps that changes from use to use, on a diagonal operator's residual."""

    def __init__(self, A: Any) -> None:
        self.A, self.uses = A, 0

    def __call__(self, v: Any) -> Any:
        self.uses += 1
        return sla.gmres(self.A, v, restart=2 + self.uses % 3, maxiter=1, rtol=1e-14)[0]


@pytest.mark.parametrize("blocks", [False, True], ids=["noticed", "in blocks"])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_an_m_that_changes_from_use_to_use(dtype: Any, blocks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    A = sp.csr_array(grid(14) + 0.3 * sp.diags_array([1.0, -1.0], offsets=[-1, 1], shape=(196, 196)))
    A = sp.csr_array(A.astype(dtype) * (1 + 0.2j if dtype == np.complex128 else 1))
    b = rhs(196, dtype)
    if blocks:  # x is exact whatever M does, also where nobody looks
        monkeypatch.setattr(FlexibleArnoldi, "is_linear", lambda *_: True)
    M = sla.LinearOperator(A.shape, Changing(A), dtype=dtype)
    x, info, stats = SOLVERS["ca_gmres"](A, b, M=M, rtol=1e-9, s=4, return_stats=True)
    assert info == 0
    assert relative(A, x, b) <= 1e-9
    assert bool(stats.s) == blocks
    assert any("not linear" in note for note in stats.notes) != blocks
    M = sla.LinearOperator(A.shape, Changing(A), dtype=dtype)
    flexible = SOLVERS["ca_gmres"](A, b, M=M, rtol=1e-9, s=1, return_stats=True)[2]
    assert stats.iterations <= (4 if blocks else 1.2) * flexible.iterations + 2


def test_the_estimate_of_a_cycle_is_the_true_residual_whatever_m_does(monkeypatch: pytest.MonkeyPatch) -> None:
    A, b = nonsymmetric(), rhs(300)
    monkeypatch.setattr(FlexibleArnoldi, "is_linear", lambda *_: True)
    random = np.random.default_rng(3)
    M = sla.LinearOperator(A.shape, lambda v: v * random.uniform(0.5, 1.5, 300), dtype=float)
    seen: list[Any] = []
    asked = {"M": M, "restart": 20, "s": 4, "maxiter": 1, "rtol": 1e-14, "callback_type": "x", "return_stats": True}
    x, info, stats = SOLVERS["ca_gmres"](A, b, callback=seen.append, **asked)
    assert info == stats.iterations == 20
    assert len(stats.s) > 0
    np.testing.assert_array_equal(seen[-1], x)
    assert np.linalg.norm(b - A @ x) == pytest.approx(stats.residuals[-2], rel=1e-6)
    assert stats.residuals[-2] < 0.1 * stats.residuals[0]


def _uses(name: str, A: Any, b: Any, make: Any, **options: Any) -> tuple[int, Any]:
    """How often a solver uses M, and its record."""
    uses = 0

    def apply(v: Any) -> Any:
        nonlocal uses
        uses += 1
        return make(v)

    M = sla.LinearOperator(A.shape, apply, dtype=A.dtype)
    x, info, stats = SOLVERS[name](A, b, M=M, rtol=1e-9, return_stats=True, **options)
    assert info == 0
    assert relative(A, x, b) <= 1e-9
    return uses, stats


@pytest.mark.parametrize("kind", ["amg", "ilu", "near", "exact but for few"])
def test_m_is_used_no_more_often_than_by_gmres(kind: str) -> None:
    """A block ends at the aim, and none is begun where A M is nearly the identity; one may be, where the space ends."""
    A, b = grid(), rhs(576)
    exact = sla.splu(A.tocsc())
    noise = np.random.default_rng(0).standard_normal((576, 576)) / 24
    few = np.linalg.qr(np.random.default_rng(0).standard_normal((576, 8)))[0]
    make: Any = {
        "amg": lambda: amg(A).aspreconditioner().matvec,
        "ilu": lambda: weak(A, 0.02).matvec,
        "near": lambda: lambda v: exact.solve(v + 1e-3 * (noise @ v)),
        "exact but for few": lambda: lambda v: exact.solve(v + few @ (np.linspace(0.1, 9.0, 8) * (few.T @ v))),
    }[kind]()
    most, classic = _uses("gmres", A, b, make)
    uses, stats = _uses("ca_gmres", A, b, make)
    more = 1 if kind != "exact but for few" else 6
    assert uses <= most + more  # M is used once more to see that it is linear
    assert abs(stats.iterations - classic.iterations) <= 1


@pytest.mark.parametrize("habit", ["its argument", "one buffer"])
@pytest.mark.parametrize("name", CA)
def test_what_m_hands_over_stays_its_own(name: str, habit: str) -> None:
    A, b, buffer = fitting(name), rhs(300), np.empty(300)
    scale = 1 / A.diagonal()

    def solved(make: Any) -> Any:
        x, info = SOLVERS[name](A, b, M=sla.LinearOperator(A.shape, make, dtype=float), rtol=1e-9)
        assert info == 0
        return x

    want = solved(lambda v: v * scale)
    out = None if habit == "its argument" else buffer
    x = solved(lambda v: np.multiply(v, scale, out=v if out is None else out))
    np.testing.assert_array_equal(x, want)
    assert not np.may_share_memory(x, buffer)


@pytest.mark.parametrize("form", ["dia", "csr", "coo"])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("name", CA)
def test_a_diagonal_of_scipy_is_folded_as_jacobi_is(name: str, dtype: Any, form: str) -> None:
    scale = sp.diags_array(np.logspace(0, 1, 300))
    A = sp.csr_array(scale @ fitting(name, dtype=dtype) @ scale)
    b = A @ rhs(300, dtype)
    given = sp.diags_array(1 / A.diagonal()).asformat(form)
    own = jacobi(A, side="symmetric" if name == "ca_cg" else "right")
    x, info, stats = SOLVERS[name](A, b, M=given, rtol=1e-9, return_stats=True)
    same, said, known = SOLVERS[name](A, b, M=own, rtol=1e-9, return_stats=True)
    assert (info, said) == (0, 0)
    assert relative(A, x, b) <= 1e-9
    assert any("part of the matrix" in note for note in stats.notes)
    assert abs(stats.iterations - known.iterations) <= (8 if name == "ca_cg" else 0)
    if name != "ca_cg":
        np.testing.assert_array_equal(x, same)
    classic = SOLVERS[name[3:]](A, b, M=given, rtol=1e-9, return_stats=True)[2]
    assert stats.iterations <= 1.2 * classic.iterations + 8


def test_a_change_of_m_in_place_is_seen() -> None:
    A = nonsymmetric()
    b, M = rhs(300), sp.csr_array(sp.diags_array(1 / A.diagonal()))
    SOLVERS["ca_gmres"](A, b, M=M, rtol=1e-8)
    M.data[::2] *= 3
    x, _, stats = SOLVERS["ca_gmres"](A, b, M=M, rtol=1e-8, return_stats=True)
    fresh, _, other = SOLVERS["ca_gmres"](A, b, M=M.copy(), rtol=1e-8, return_stats=True)
    np.testing.assert_array_equal(x, fresh)
    assert stats.residuals == other.residuals


@pytest.mark.parametrize("name", CA)
def test_a_sparse_m_is_folded_where_that_reads_no_more(name: str) -> None:
    A = fitting(name)
    b, thin = rhs(300), spai(A, 0.9, symmetric=name == "ca_cg", backend="cpu").M
    full = sp.csr_array(np.linalg.inv(A.toarray()))
    wide = sp.csr_array(spai(A, pattern=A @ A @ A, symmetric=name == "ca_cg", backend="cpu").M)
    for M in (thin, full, wide):
        AM = A @ M
        folds = name != "ca_cg" and AM.nnz <= A.nnz + M.nnz
        x, info, stats = SOLVERS[name](A, b, M=M, rtol=1e-9, return_stats=True)
        classic = SOLVERS[name[3:]](A, b, M=M, rtol=1e-9, return_stats=True)[2]
        assert info == 0
        assert relative(A, x, b) <= 1e-9
        assert any("part of the matrix" in note for note in stats.notes) == folds
        assert stats.iterations <= 1.2 * classic.iterations + 1
    assert (form_for(name, full, Matrix.from_any(A)) is None) == (name == "ca_cg")  # A M is the identity, about


def test_a_folded_matrix_is_what_short_products_are_with() -> None:
    """Where products are plain ones they were with A instead of A M, and ca_gmres did not converge."""
    scale = sp.diags_array(10.0 ** np.random.default_rng(0).uniform(-2, 2, 300))
    A = sp.csr_array(scale @ spd() @ scale)
    b, M = A @ rhs(300), jacobi(A, side="right")
    for _ in range(2):
        _, info, stats = SOLVERS["ca_gmres"](A, b, M=M, rtol=1e-8, maxiter=40, return_stats=True)
        classic = SOLVERS["gmres"](A, b, M=M, rtol=1e-8, return_stats=True)[2]
        assert info == 0
        assert abs(stats.iterations - classic.iterations) <= 1


def test_diagonals_that_are_no_preconditioners() -> None:
    """A zero, an infinite and a negative entry, one that single precision has not: as with the classic methods."""
    A, b = spd(60), rhs(60)
    entries = 1 / A.diagonal()
    for value in (0.0, -1.0, np.inf, 1e60):
        entries[7] = value
        M = sp.diags_array(entries.copy())
        for name in CA:
            for matrix in (A, A.astype(np.float32)) if value == 1e60 else (A,):
                given = b.astype(matrix.dtype)
                x, info, _ = SOLVERS[name](matrix, given, M=M, rtol=1e-4, maxiter=90, return_stats=True)
                assert (info == 0) == (relative(matrix, x, given) <= 1.01e-4)
    with pytest.raises(MatrixError, match="M does not fit A"):
        SOLVERS["ca_gmres"](A, b, M=sp.eye_array(59))


def test_solve_and_solver_take_any_m() -> None:
    A, b = nonsymmetric(), rhs(300)
    M = weak(A)
    for name in CA:
        A = fitting(name)
        calls: list[int] = []
        counted = sla.LinearOperator(A.shape, lambda v, calls=calls: calls.append(1) or 0.3 * v, dtype=float)
        solver = Solver(A, name, counted)
        assert not calls, "a foreign M is for calls alone"
        x, info = solver(b, rtol=1e-9)
        assert info == 0
        np.testing.assert_array_equal(x, SOLVERS[name](A, b, M=counted, rtol=1e-9)[0])
        assert solve(A, b, method=name, M=counted, rtol=1e-9)[1] == 0
        diagonal = Solver(A, name, sp.diags_array(1 / A.diagonal()))
        assert diagonal(b, rtol=1e-9)[1] == 0
    options = {"M": M, "threads": None, "db": None, "backend": "cpu"}
    special = {"s": "auto", "restart": None, "basis": "auto"}
    pair = SolverPair(Matrix.from_any(nonsymmetric(2500)), rhs(2500), None, options, special, {})
    assert [bool(pair._why_classic(family)) for family in ("cg", "gmres", "bicgstab")] == [True, False, True]


def test_an_spai_that_is_not_hermitian_is_no_m_of_ca_cg() -> None:
    A, b = spd(), rhs(300)
    M = spai(A, symmetric=True, backend="cpu")
    assert isinstance(M, SPAI)
    _, info, stats = SOLVERS["ca_cg"](A, b, M=M, rtol=1e-9, return_stats=True)
    assert (info, stats.method) == (0, "cg")
    assert "12 for each row and step" in stats.notes[0]


def test_a_matrix_in_double_is_an_m_of_a_system_in_single_precision() -> None:
    A, b = spd(300).astype(np.float32), rhs(300).astype(np.float32)
    x, info = SOLVERS["ca_gmres"](A, b, M=sp.csr_array(sp.diags_array(1 / A.diagonal().astype(float))), rtol=1e-4)
    assert info == 0
    assert x.dtype == np.float32


@pytest.mark.parametrize("name", ["ca_cg", "ca_minres"])
def test_no_solution_is_said_of_a_and_not_of_what_m_makes_of_it(name: str) -> None:
    """b is off the range of A by less than the tolerance; seen through M it is off by more."""
    n, rng = 60, np.random.default_rng(5)
    L = sp.diags_array([-1.0, np.r_[1.0, np.full(n - 2, 2.0), 1.0], -1.0], offsets=[-1, 0, 1], shape=(n, n))
    D = sp.diags_array(2.0 ** rng.integers(-12, 13, n))
    A, z = sp.csr_array(D @ L @ D), 1 / D.diagonal()
    b = A @ rng.standard_normal(n)
    b += 0.3 * 1e-3 * np.linalg.norm(b) * z / np.linalg.norm(z)
    assert SOLVERS[name](A, b, M=jacobi(A), rtol=1e-3)[1] != -2
    x, info = SOLVERS[name](A, 0 * b, x0=b, M=jacobi(A))
    assert info == 0
    assert not x.any()


@pytest.mark.parametrize("name", [*SOLVERS, "solve"])
@pytest.mark.parametrize("M", ["jacobi", "block_jacobi", "chebyshev", "spai"])
def test_preconditioners_by_name(name: str, M: str) -> None:
    """As what the function of that name makes; with spai in the symmetric form where that is needed."""
    call = solve if name == "solve" else SOLVERS[name]
    A, b = spd(300), rhs(300)
    for right in (b, np.stack([b, 2 * b + 1], axis=1)):
        x, info = call(A, right, M=M, rtol=1e-9)
        assert info == 0
        assert np.linalg.norm(right - A @ x) <= 1.01e-9 * np.linalg.norm(right)
    with pytest.raises(ArgumentError, match=r"unknown preconditioner.*found 'ilu'"):
        call(A, b, M="ilu")


@pytest.mark.parametrize("name", [*SOLVERS, "solve"])
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
@pytest.mark.parametrize("of", [np.float32, np.float64])
def test_factors_of_scipy_are_an_M(name: str, dtype: Any, of: Any) -> None:
    A, b = spd(300), rhs(300, dtype)
    M = sla.spilu(sp.csc_array(A.astype(of)))
    call = solve if name == "solve" else SOLVERS[name]
    x, info, stats = call(A.astype(dtype), b, M=M, rtol=1e-4, return_stats=True)
    assert (info, x.dtype) == (0, dtype)
    assert stats.iterations < 10
    assert relative(A, x, b) <= 1.1e-4
