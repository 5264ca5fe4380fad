"""What every solver promises, written once: SciPy's meanings, no false success, a full record, the same bits again."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from scipy.sparse.linalg import aslinearoperator
from solvers.systems import fitting, is_of_hermitian, nonsymmetric, relative, rhs, spd

import akx
from akx.core.errors import ArgumentError, ArgumentTypeError, MatrixError
from akx.solvers import SOLVERS, preconditioners, solve

Solver = Callable[..., Any]
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def is_ca(name: str) -> bool:
    return name.startswith("ca_")


@pytest.mark.parametrize("dtype", DTYPES)
def test_solves_in_every_type(name: str, solver: Solver, dtype: Any) -> None:
    A, b = fitting(name, dtype=dtype), rhs(300, dtype)
    rtol = 1e-4 if np.finfo(dtype).eps > 1e-10 else 1e-10
    x, info, stats = solver(A, b, rtol=rtol, return_stats=True)
    assert info == 0
    assert x.dtype == dtype
    assert relative(A, x, b) <= rtol * 1.01
    assert stats.converged
    assert stats.residual <= stats.target


def test_agrees_with_scipy(name: str, solver: Solver) -> None:
    A, b = fitting(name), rhs(300)
    method = name.removeprefix("ca_")
    options = {"restart": 30} if method == "gmres" else {}
    theirs, info = getattr(sla, method)(A, b, rtol=1e-11, **options)
    assert info == 0
    x, info = solver(A, b, rtol=1e-11, **options)
    assert info == 0
    np.testing.assert_allclose(x, theirs, rtol=1e-7, atol=1e-8 * np.abs(theirs).max())
    np.testing.assert_allclose(x, sla.spsolve(sp.csc_array(A), b), rtol=1e-7, atol=1e-8 * np.abs(theirs).max())


def test_the_answer_is_bit_for_bit_the_same(name: str, solver: Solver) -> None:
    A, b = fitting(name), rhs(300)
    first, second = (solver(A, b, rtol=1e-9)[0] for _ in range(2))
    assert first.tobytes() == second.tobytes()


def test_nothing_given_is_changed(name: str, solver: Solver) -> None:
    A, b, x0 = fitting(name), rhs(300), rhs(300, seed=3)
    before = A.copy(), b.copy(), x0.copy()
    x, info = solver(A, b, x0=x0)
    assert info == 0
    assert not np.may_share_memory(x, x0)
    assert not np.may_share_memory(x, b)
    for now, then in zip((A.data, b, x0), (before[0].data, *before[1:]), strict=True):
        assert np.array_equal(now, then)


def test_column_and_integers(name: str, solver: Solver) -> None:
    A = fitting(name, 60)
    x, info = solver(A, np.ones((60, 1), dtype=np.int64), rtol=1e-8)
    assert (x.shape, x.dtype, info) == ((60, 1), np.float64, 0)
    assert relative(A, x[:, 0], np.ones(60)) <= 1e-8
    wide, info = solver(fitting(name, 60, np.float32), rhs(60, np.float64), rtol=1e-10)
    assert (wide.dtype, info) == (np.float64, 0)
    half = solver(fitting(name, 60, np.float32), np.ones(60, dtype=np.float16))[0]
    assert half.dtype == np.float64


#: What a right-hand side or a guess may come as; SciPy says what it means.
FORMS: dict[str, Callable[[Any], Any]] = {
    "list": list,
    "tuple": tuple,
    "list of Python integers": lambda v: [int(10 * a) for a in v],
    "matrix": lambda v: np.asmatrix(v).T,
    "column": lambda v: v[:, None],
    "column of a C matrix": lambda v: np.stack([v, v], axis=1)[:, :1],
    "column of an F matrix": lambda v: np.asfortranarray(np.stack([v, v], axis=1))[:, 0],
    "every second entry": lambda v: np.repeat(v, 2)[::2],
    "backwards": lambda v: v[::-1],
    "int8": lambda v: (10 * v).astype(np.int8),
    "uint16": lambda v: (10 * abs(v)).astype(np.uint16),
    "bool": lambda v: v > 0,
    "big endian": lambda v: v.astype(">f8"),
    "float16": lambda v: v.astype(np.float16),
    "long double": lambda v: v.astype(np.longdouble),
    "objects": lambda v: v.astype(object),
    "not aligned": lambda v: np.frombuffer(b"-" + v.tobytes(), dtype=np.uint8)[1:].view(float),
    "masked": np.ma.array,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("argument", ["b", "x0"])
def test_vectors_come_in_every_form_that_scipy_takes(name: str, argument: str, form: str) -> None:
    A, v = fitting(name, 40), rhs(40)
    given = FORMS[form](v)
    vectors = (given, None) if argument == "b" else (v, given)
    theirs, info = getattr(sla, name.removeprefix("ca_"))(A, *vectors, rtol=1e-11)
    assert info == 0
    x, info = SOLVERS[name](A, *vectors, rtol=1e-11)
    assert info == 0
    assert (type(x), x.dtype) == (np.ndarray, theirs.dtype)
    assert x.shape == (np.shape(given) if argument == "b" else (40,))
    np.testing.assert_allclose(x.reshape(-1), theirs, rtol=1e-7, atol=1e-8 * np.abs(theirs).max())


def test_a_zero_right_hand_side_has_the_answer_zero(name: str, solver: Solver) -> None:
    for x0 in (None, np.ones(40)):
        x, info, stats = solver(fitting(name, 40), np.zeros(40), x0=x0, return_stats=True)
        assert (info, stats.converged, stats.iterations) == (0, True, 0)
        assert not x.any()


def test_an_exact_guess_takes_no_step(name: str, solver: Solver) -> None:
    A, exact = fitting(name, 80), rhs(80)
    x, info, stats = solver(A, A @ exact, x0=exact, return_stats=True)
    assert (info, stats.iterations) == (0, 0)
    np.testing.assert_array_equal(x, exact)


def test_a_good_guess_saves_steps(name: str, solver: Solver) -> None:
    A, exact = fitting(name), rhs(300)
    b = A @ exact
    _, _, cold = solver(A, b, rtol=1e-9, return_stats=True)
    x, info, warm = solver(A, b, x0=exact * (1 + 1e-7), rtol=1e-9, return_stats=True)
    assert info == 0
    assert warm.iterations < cold.iterations
    assert relative(A, x, b) <= 1e-9


@pytest.mark.parametrize("n", [1, 2, 3])
def test_tiny_systems(name: str, solver: Solver, n: int) -> None:
    A = sp.csr_array(np.diag(np.arange(2.0, 2.0 + n)) + (0.5 * np.eye(n, k=1) + 0.5 * np.eye(n, k=-1)))
    b = np.arange(1.0, n + 1)
    x, info = solver(A, b, rtol=1e-12)
    assert info == 0
    np.testing.assert_allclose(x, np.linalg.solve(A.toarray(), b), rtol=1e-10)


def test_the_identity_and_a_diagonal(name: str, solver: Solver) -> None:
    b = rhs(50)
    x, info = solver(sp.eye_array(50, format="csr"), b)
    assert info == 0
    np.testing.assert_allclose(x, b, rtol=1e-12)
    diagonal = np.linspace(1.0, 4.0, 50)
    x, info = solver(sp.csr_array(sp.diags_array(diagonal)), b, rtol=1e-10)
    assert info == 0
    np.testing.assert_allclose(x, b / diagonal, rtol=1e-8)


@pytest.mark.parametrize("most", [0, 1, 3])
def test_iterations_that_run_out_are_info(name: str, solver: Solver, most: int) -> None:
    A, b = fitting(name), rhs(300)
    options = {"restart": 3} if name.endswith("gmres") else {}
    x, info, stats = solver(A, b, rtol=1e-12, maxiter=most, return_stats=True, **options)
    assert info > 0
    assert not stats.converged
    assert stats.iterations <= most * (3 if name.endswith("gmres") else 1)
    assert stats.reason
    assert stats.residual == pytest.approx(np.linalg.norm(b - A @ x))


def test_atol_and_rtol_are_scipys(name: str, solver: Solver) -> None:
    A, b = fitting(name), 1e3 * rhs(300)
    size = float(np.linalg.norm(b))
    for rtol, atol in ((1e-6, 0.0), (0.0, 1e-2), (1e-9, 1e-1 * size), (np.array(1e-6), np.int8(1)), (0, np.inf)):
        x, info, stats = solver(A, b, rtol=rtol, atol=atol, return_stats=True)
        assert info == 0
        assert stats.target == pytest.approx(max(rtol * size, atol))
        assert np.linalg.norm(b - A @ x) <= stats.target * (1 + 1e-9)


def test_what_cannot_be_attained_is_never_called_converged(name: str, solver: Solver) -> None:
    A, b = fitting(name), rhs(300)
    x, info, stats = solver(A, b, rtol=1e-30, maxiter=2000, return_stats=True)
    assert info != 0
    assert not stats.converged
    assert relative(A, x, b) < 1e-11  # as good as it gets all the same
    assert stats.reason


def test_the_record(name: str, solver: Solver) -> None:
    A, b = fitting(name), rhs(300)
    x, info, stats = solver(A, b, rtol=1e-8, return_stats=True)
    assert info == 0
    assert stats.method == name
    assert stats.residuals[0] == pytest.approx(np.linalg.norm(b))
    assert stats.residuals[-1] == stats.residual == pytest.approx(np.linalg.norm(b - A @ x), rel=1e-6)
    assert stats.iterations > 0
    assert stats.products >= stats.iterations
    assert stats.matrix_passes <= stats.products
    assert stats.seconds.get("matrix", 0.0) + stats.seconds.get("device", 0.0) > 0
    assert stats.reason
    if is_ca(name):
        assert all(s >= 1 for s in stats.s)
    else:
        assert (stats.s, stats.basis) == ([], "")
    assert json.loads(json.dumps(stats.to_json()))["method"] == name


def test_communication_is_avoided(name: str, solver: Solver) -> None:
    if not is_ca(name):
        pytest.skip("a classic solver")
    A, b = fitting(name, 2000), rhs(2000)
    A = sp.csr_array(A - (0.099 if is_of_hermitian(name) else 0.6) * sp.eye_array(2000))  # more steps
    _, info, stats = solver(A, b, rtol=1e-9, s=4, return_stats=True)
    assert info == 0
    assert max(stats.s) == 4
    assert stats.basis in ("newton", "chebyshev")
    classic = SOLVERS[name.removeprefix("ca_")](A, b, rtol=1e-9, return_stats=True)[2]
    assert stats.matrix_passes < 0.75 * classic.matrix_passes


@pytest.mark.parametrize("basis", ["newton", "chebyshev", "monomial"])
@pytest.mark.parametrize("s", [1, 2, 3, 5])
def test_every_s_and_basis(name: str, solver: Solver, s: int, basis: str) -> None:
    if not is_ca(name):
        pytest.skip("a classic solver")
    for dtype in (np.float64, np.complex128):
        A, b = fitting(name, 150, dtype), rhs(150, dtype)
        x, info = solver(A, b, rtol=1e-9, s=s, basis=basis)
        assert info == 0
        assert relative(A, x, b) <= 1e-9


def test_a_callback_is_called(name: str, solver: Solver) -> None:
    seen: list[Any] = []
    A, b = fitting(name), rhs(300)
    options = {} if name.endswith("gmres") else {"callback": lambda x: seen.append(x.copy())}
    x, info, stats = solver(A, b, rtol=1e-8, return_stats=True, **(options or {"callback": seen.append}))
    assert info == 0
    assert 1 <= len(seen) <= stats.iterations + 1
    if name.endswith("gmres"):
        values = np.array(seen, dtype=float)
        assert (values[1:] <= values[:-1] * (1 + 1e-6)).all()
        assert values[-1] <= 1.1e-8
    else:
        np.testing.assert_allclose(relative(A, seen[-1], b), relative(A, x, b), atol=1e-4)
        assert seen[-1].shape == b.shape


def test_what_a_callback_is_given_is_its_own(name: str, solver: Solver) -> None:
    A, b, given = fitting(name), rhs(300), rhs(300, seed=3)
    options = {"callback_type": "x"} if name.endswith("gmres") else {}
    want, _ = solver(A, b, x0=given, rtol=1e-8, callback=lambda _: None, **options)
    seen: list[Any] = []
    right, guess = b.copy(), given.copy()

    def spoil(x: Any) -> None:
        seen.append(x)
        right[:] = guess[:] = x[...] = np.nan

    x, info = solver(A, right, x0=guess, rtol=1e-8, callback=spoil, **options)
    assert info == 0
    assert seen
    np.testing.assert_array_equal(x, want)
    assert not any(np.may_share_memory(x, one) for one in (*seen, right, guess))


def test_a_callback_may_stop_it(name: str, solver: Solver) -> None:
    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solver(fitting(name), rhs(300), callback=stop, rtol=1e-10)


@pytest.mark.parametrize("form", ["sparse", "operator"])
def test_preconditioners(name: str, solver: Solver, form: str) -> None:
    scale = np.logspace(0, 4, 300)
    half = sp.diags_array(np.sqrt(scale))
    A = sp.csr_array(half @ fitting(name) @ half)
    b = A @ rhs(300)
    jacobi = sp.csr_array(sp.diags_array(1 / A.diagonal()))
    M = jacobi if form == "sparse" else aslinearoperator(jacobi)
    x, info, stats = solver(A, b, M=M, rtol=1e-9, return_stats=True)
    assert info == 0
    assert relative(A, x, b) <= 1e-9
    is_folded = is_ca(name) and form == "sparse"
    assert any("part of the matrix" in note for note in stats.notes) == is_folded
    assert is_folded or stats.seconds["precondition"] > 0
    _, _, plain = solver(A, b, rtol=1e-9, maxiter=2000, return_stats=True)
    assert stats.iterations < plain.iterations
    if not is_of_hermitian(name):
        C = sp.csr_array(A + 0.1j * sp.diags_array(A.diagonal()))
        M = sp.csr_array(sp.diags_array(1 / C.diagonal()))
        x, info = solver(C, b, M=M, rtol=1e-9)
        assert info == 0
        assert relative(C, x, b) <= 1e-9


class Foreign:
    """M = D^-1 of others, in the ways in which it may treat the vector it is given and what it returns."""

    def __init__(self, diagonal: Any, habit: str) -> None:
        self.scale, self.buffer, self.kept = 1 / diagonal, np.empty_like(diagonal), np.zeros(1)
        self.made = getattr(self, habit)

    def new_array(self, v: Any) -> Any:
        return self.scale * v

    def its_argument(self, v: Any) -> Any:
        v *= self.scale
        return v

    def one_buffer(self, v: Any) -> Any:
        np.multiply(self.scale, v, out=self.buffer)
        return self.buffer

    def buffer_to_read(self, v: Any) -> Any:
        found = self.one_buffer(v)[:]
        found.flags.writeable = False
        return found

    def keeps_argument(self, v: Any) -> Any:
        self.kept[:] = np.nan
        self.kept = v
        return self.scale * v


class ForeignJacobi(preconditioners.Jacobi):
    """The same for solvers that make M part of the matrix."""

    def __init__(self, diagonal: Any, habit: str) -> None:
        super().__init__(diagonal, "right", ())
        self.foreign = Foreign(diagonal, habit)

    def for_hermitian(self) -> Any:
        return None

    def solution(self, y: Any) -> Any:
        return self.foreign.made(y)

    def _matvec(self, x: Any) -> Any:
        return self.foreign.made(x)


HABITS = ["its_argument", "one_buffer", "buffer_to_read", "keeps_argument"]


@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize("guess", [None, "Mb"])
def test_what_a_foreign_preconditioner_hands_over_stays_its_own(
    name: str, solver: Solver, habit: str, guess: str | None
) -> None:
    if name in ("ca_cg", "ca_minres"):
        pytest.skip("scales by a form of Jacobi that akx makes")
    A = sp.csr_array(fitting(name, 60) + sp.diags_array(np.linspace(0.0, 5.0, 60)))
    b, diagonal = rhs(60), A.diagonal()

    def solved(habit: str) -> tuple[Any, Foreign]:
        M = ForeignJacobi(diagonal, habit)
        given = M if is_ca(name) else sla.LinearOperator(A.shape, M.foreign.made, dtype=float)
        x, info = solver(A, b, x0=guess, M=given, rtol=1e-9)
        assert info == 0
        return x, M.foreign

    (want, _), (x, foreign) = solved("new_array"), solved(habit)
    np.testing.assert_array_equal(x, want)
    assert not np.may_share_memory(x, foreign.buffer)
    assert not np.may_share_memory(x, foreign.kept)


def test_a_guess_of_mb_is_m_times_b(name: str, solver: Solver) -> None:
    A, b = fitting(name), rhs(300)
    M = preconditioners.jacobi(A)
    for options, guess in (({"M": M}, M @ b), ({}, b)):
        want, info, stats = solver(A, b, x0=guess, rtol=1e-8, return_stats=True, **options)
        x, _, others = solver(A, b, x0="Mb", rtol=1e-8, return_stats=True, **options)
        assert info == 0
        np.testing.assert_array_equal(x, want)
        assert others.residuals == stats.residuals
    with pytest.raises(ArgumentError, match="M b is not finite"):
        solver(A, b, x0="Mb", M=sp.diags_array(np.full(300, np.inf)))


def test_a_preconditioner_that_is_complex_and_does_not_say_so_is_refused() -> None:
    A, b = fitting("gmres", 40), np.ones(40)
    M = sla.LinearOperator(A.shape, lambda v: 1j * v, dtype=float)
    for name in SOLVERS:
        for guess in (None, "Mb"):
            with pytest.raises(ArgumentTypeError, match="dtype=complex"):
                SOLVERS[name](A, b, x0=guess, M=M)


def test_a_singular_consistent_system(name: str, solver: Solver) -> None:
    n = 60
    A = sp.lil_array(sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)))
    A[0, 0] = A[-1, -1] = 1.0  # Neumann: constants are the null space
    A = sp.csr_array(A)
    b = A @ rhs(n)
    x, info = solver(A, b, rtol=1e-7, maxiter=400)
    assert info == 0 or relative(A, x, b) > 1e-7
    if is_of_hermitian(name):
        assert info == 0


def test_a_singular_system_without_solution_is_not_solved(name: str, solver: Solver) -> None:
    A = sp.csr_array(sp.diags_array(np.r_[np.ones(20), 0.0]))
    b = np.ones(21)
    x, info, stats = solver(A, b, rtol=1e-6, maxiter=200, return_stats=True)
    assert info != 0
    assert not stats.converged
    assert np.isfinite(x).all()
    assert stats.reason


def test_an_indefinite_system_is_solved_or_not_but_never_falsely(name: str, solver: Solver) -> None:
    A = sp.csr_array(spd(120) - 2.0 * sp.eye_array(120))
    b = rhs(120)
    x, info, stats = solver(A, b, rtol=1e-8, maxiter=2000, return_stats=True)
    assert (info == 0) == (relative(A, x, b) <= 1e-8) == stats.converged
    assert np.isfinite(x).all()
    B = sp.csr_array(sp.diags_array(np.r_[-np.ones(5), np.ones(5)]))
    x, info, stats = solver(B, np.ones(10), rtol=1e-8, return_stats=True)  # p.Ap = 0 at once
    assert (info == 0) == (relative(B, x, np.ones(10)) <= 1e-8)
    if name.endswith("cg") and info != 0:
        assert "positive definite" in stats.reason
    if name.endswith("minres"):
        assert info == 0


def test_a_skew_symmetric_system_is_never_falsely_solved(name: str, solver: Solver) -> None:
    A = sp.csr_array(sp.diags_array([-1.0, 1.0], offsets=[-1, 1], shape=(40, 40)))
    b = rhs(40)
    x, info, stats = solver(A, b, rtol=1e-8, maxiter=500, return_stats=True)
    assert (info == 0) == (relative(A, x, b) <= 1e-8)
    assert np.isfinite(x).all()
    assert info == 0 or stats.reason


def test_a_nonsymmetric_system(name: str, solver: Solver) -> None:
    A, b = nonsymmetric(), rhs(300)
    x, info = solver(A, b, rtol=1e-8, maxiter=1000)
    assert (info == 0) == (relative(A, x, b) <= 1e-8)
    if not is_of_hermitian(name):
        assert info == 0


@pytest.mark.parametrize("factor", [1e-120, 1e-30, 1e30, 1e120])
def test_scale_does_not_matter(name: str, solver: Solver, factor: float) -> None:
    A, b = fitting(name), rhs(300)
    x, info = solver(sp.csr_array(A * factor), b, rtol=1e-8)
    assert info == 0
    assert relative(A, x * factor, b) <= 1.01e-8
    x, info = solver(A, b * factor, rtol=1e-8)
    assert info == 0
    assert relative(A, x / factor, b) <= 1.01e-8


@pytest.mark.parametrize(
    ("error", "change"),
    [
        (ArgumentTypeError, {"A": aslinearoperator(sp.eye_array(40))}),
        (MatrixError, {"A": sp.csr_array(np.ones((3, 4)))}),
        (ArgumentError, {"b": np.ones(39)}),
        (ArgumentError, {"b": np.ones((40, 2, 2))}),
        (ArgumentError, {"b": np.full(40, np.inf)}),
        (ArgumentError, {"b": np.full(40, 1.5e308)}),
        (ArgumentError, {"x0": np.ones(3)}),
        (ArgumentError, {"x0": "mb"}),
        (ArgumentError, {"rtol": -1.0}),
        (ArgumentError, {"rtol": np.nan}),
        (ArgumentTypeError, {"rtol": [1e-5]}),
        (ArgumentTypeError, {"rtol": 1e-5 + 0j}),
        (ArgumentTypeError, {"atol": True}),
        (ArgumentError, {"atol": "legacy"}),
        (ArgumentError, {"maxiter": -1}),
        (ArgumentTypeError, {"maxiter": 2.5}),
        (ArgumentTypeError, {"callback": 3}),
        ((ArgumentError, MatrixError), {"M": sp.eye_array(3)}),
    ],
)
def test_bad_arguments(name: str, solver: Solver, error: Any, change: dict[str, Any]) -> None:
    given: dict[str, Any] = {"A": fitting(name, 40), "b": np.ones(40), **change}
    with pytest.raises(error) as caught:
        solver(given.pop("A"), given.pop("b"), **given)
    assert isinstance(caught.value, akx.AkxError)


@pytest.mark.parametrize(
    "change", [{"s": 0}, {"s": 2.5}, {"s": "many"}, {"s": True}, {"basis": "fourier"}, {"plan": 3}]
)
def test_bad_arguments_of_ca_solvers(name: str, solver: Solver, change: dict[str, Any]) -> None:
    if not is_ca(name):
        pytest.skip("a classic solver")
    with pytest.raises((ArgumentError, ArgumentTypeError)):
        solver(fitting(name, 40), np.ones(40), **change)


def test_the_signature_is_scipys(name: str, solver: Solver) -> None:
    theirs = inspect.signature(getattr(sla, name.removeprefix("ca_"))).parameters
    ours = inspect.signature(solver).parameters
    theirs = {name: one for name, one in theirs.items() if name not in ("shift", "show", "check")}  # of minres
    for parameter, wanted in theirs.items():
        assert parameter in ours
        assert ours[parameter].kind == wanted.kind
        if parameter not in ("restart", "callback_type"):
            assert ours[parameter].default == wanted.default
    assert {"threads", "db", "return_stats"} <= set(ours)
    assert is_ca(name) == ({"s", "basis", "plan"} <= set(ours))
    assert solver.__doc__


@pytest.mark.parametrize("threads", [1, 2])
def test_threads(name: str, solver: Solver, threads: int) -> None:
    A, b = fitting(name), rhs(300)
    x, info = solver(A, b, rtol=1e-9, threads=threads)
    assert info == 0
    assert relative(A, x, b) <= 1e-9


@pytest.mark.parametrize("name", ["cg", "ca_cg", "minres", "ca_minres", "bicgstab", "ca_bicgstab"])
def test_without_a_solution_x_does_not_blow_up(name: str) -> None:
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(400, 400)).tolil()
    line[0, 0] = line[-1, -1] = 1.0  # constants are in the kernel, and b is not orthogonal to them
    b = np.random.default_rng(0).standard_normal(400) + 1.0
    x, info, stats = SOLVERS[name](sp.csr_array(line), b, maxiter=3000, rtol=1e-10, return_stats=True)
    assert info != 0
    assert np.linalg.norm(b - line @ x) == pytest.approx(stats.residual, rel=1e-6)
    assert stats.residual <= 1e8 * np.linalg.norm(b)


def test_a_complex_preconditioner_makes_the_system_complex(name: str) -> None:
    A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(60, 60), format="csr")
    M = sp.eye_array(60, dtype=complex) * (0.4 + (0 if is_of_hermitian(name) else 0.1j))
    x, info = SOLVERS[name](A, np.ones(60), M=M, rtol=1e-9)
    assert (x.dtype, info) == (np.dtype(complex), 0)
    assert np.linalg.norm(A @ x - 1) < 1e-8


@pytest.mark.parametrize("side", ["auto", "right"])
def test_ca_cg_scales_symmetrically_whatever_the_matrix_is(side: str) -> None:
    """One entry off by more than rounding: D^-1/2 A D^-1/2 is as far from symmetric, A D^-1 is much further."""
    scale = sp.diags_array(10.0 ** np.random.default_rng(0).uniform(-2, 2, 300))
    A, b = sp.csr_array(scale @ spd() @ scale), rhs(300)
    A.data[1] *= 1 + 1e-12
    M = preconditioners.jacobi(A, side=side)
    assert M.side == "right"
    _, info, stats = SOLVERS["ca_cg"](A, b, M=M, rtol=1e-8, return_stats=True)
    _, said, classic = SOLVERS["cg"](A, b, M=M, rtol=1e-8, return_stats=True)
    assert (info, said) == (0, 0)
    assert stats.iterations <= classic.iterations + 8


@pytest.mark.parametrize("M", [lambda r: r, 3 * [[1.0]]], ids=["function", "list"])
def test_what_is_no_preconditioner_is_refused(name: str, M: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=f"found {type(M).__name__}"):
        SOLVERS[name](fitting(name), rhs(300), M=M)


@pytest.mark.parametrize("name", ["ca_cg", "ca_minres", "ca_gmres", "ca_bicgstab"])
def test_a_basis_of_none_is_refused(name: str) -> None:
    with pytest.raises(ArgumentTypeError, match="unknown basis"):
        SOLVERS[name](fitting(name), rhs(300), basis=None)


@pytest.mark.parametrize("name", ["cg", "ca_cg", "minres", "ca_minres"])
def test_a_preconditioner_that_is_not_hermitian_is_refused(name: str) -> None:
    A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(60, 60), format="csr")
    with pytest.raises(ArgumentError, match=r"not Hermitian[\s\S]*symmetric=True"):
        SOLVERS[name](A, np.ones(60), M=preconditioners.spai(A))
    x, info = solve(A, np.ones(60), M=preconditioners.spai(A), rtol=1e-9)
    assert info == 0
    assert np.linalg.norm(A @ x - 1) < 1e-8
