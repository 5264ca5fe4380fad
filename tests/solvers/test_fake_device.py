"""The solvers with vectors that are not NumPy's: see fake_device.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from solvers.fake_device import FakeArray, FakeBlockQueue, FakeOperator, FakeProgram, FakeRows, FakeScaling, FakeWork
from solvers.systems import FAR, fitting, relative, rhs, spd, steps_with_outliers
from solvers.test_watch import check_ends, check_looks

import akx.backends.cuda.preconditioners.scaling
import akx.solvers.corrections
import akx.solvers.mixed
import akx.solvers.shared_passes
import akx.solvers.solver_choice
import akx.solvers.system
from akx.core.basis import Basis
from akx.core.errors import PlanError
from akx.operator import MatrixPowers
from akx.solvers import SOLVERS
from akx.solvers.ca_cg_block import Shifts
from akx.solvers.ca_cg_queued import BlocksAhead
from akx.solvers.ca_cg_solve import Blocks
from akx.solvers.cg_steps import AheadSteps
from akx.solvers.gcro_dr import Recycled, gcro_dr
from akx.solvers.preconditioners import jacobi
from akx.solvers.system import System

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``backend="cuda"`` be the fake."""

    def operator(self: System, k: int, kind: str = "monomial", plan: Any = None) -> Any:
        if (k, kind) not in self._operators:
            basis: Any = kind if kind == "monomial" else akx.solvers.products._placeholder(k, kind)
            self._operators[k, kind] = FakeOperator(MatrixPowers(self.matrix, k, basis=basis, plan=plan))  # type: ignore[assignment]
        return self._operators[k, kind]

    monkeypatch.setattr(System, "operator", operator)
    monkeypatch.setattr(akx.solvers.solver_choice, "chosen_steps", lambda *_, **__: None)  # nothing is tuned for it
    monkeypatch.setattr(akx.solvers.arguments, "resolve_backend", lambda backend: backend)
    monkeypatch.setattr(akx.backends.cuda.preconditioners.scaling, "Scaling", FakeScaling)
    for module in (akx.solvers.system, akx.solvers.products, akx.solvers.vector_work, akx.solvers.corrections):
        monkeypatch.setattr(module, "make_work", lambda backend, dtype, n, threads, **_: FakeWork(dtype, n))
    # Plans are looked up by what the GPU is, and there is none.
    monkeypatch.setattr(akx.solvers.solver_choice, "chosen_steps", lambda *given, **named: None)


@pytest.fixture(params=list(SOLVERS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def solve(name: str, A: Any, b: Any, **options: Any) -> Any:
    return SOLVERS[name](A, b, backend="cuda", return_stats=True, **options)


def test_recycles_vectors_as_the_host_does() -> None:
    A, kept = fitting("gmres"), {"cuda": Recycled(4), "cpu": Recycled(4)}
    for version in (0, 0, 1):  # as if there were other values at last
        here, there = (
            gcro_dr(A, rhs(300), recycled=one, restart=8, rtol=1e-9, backend=backend, return_stats=True)
            for backend, one in kept.items()
        )
        assert here[1] == there[1] == 0
        assert here[2].iterations == there[2].iterations
        np.testing.assert_allclose(here[0], there[0], rtol=1e-10)
        for one in kept.values():
            one.version = version


def test_mixed_precision_as_on_the_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(akx.solvers.mixed, "_why_no_gain", lambda *_: "")
    A, b, found = fitting(name, 1200), rhs(1200), []
    for backend in ("cuda", "cpu"):
        given = {"method": name, "rtol": 1e-11, "precision": "mixed", "backend": backend}
        x, info, stats = akx.solvers.solve(A, b, return_stats=True, **given)
        assert info == 0
        assert any("steps in float32" in note for note in stats.notes), stats.notes
        assert relative(A, x, b) <= 1e-11
        found.append(stats.iterations)
    assert abs(found[0] - found[1]) <= 0.1 * found[1] + 8


def host(name: str, A: Any, b: Any, **options: Any) -> Any:
    return SOLVERS[name](A, b, backend="cpu", return_stats=True, **options)


@pytest.mark.parametrize("dtype", DTYPES)
def test_solves_in_every_type(name: str, dtype: Any) -> None:
    A, b = fitting(name, dtype=dtype), rhs(300, dtype)
    rtol = 1e-4 if np.finfo(dtype).eps > 1e-10 else 1e-10
    x, info, stats = solve(name, A, b, rtol=rtol)
    assert info == 0
    assert x.dtype == dtype
    assert relative(A, x, b) <= rtol * 1.01
    assert stats.converged


def test_takes_the_steps_of_the_host(name: str) -> None:
    A, b = fitting(name), rhs(300)
    x, info, stats = solve(name, A, b, rtol=1e-9)
    theirs, _, host = SOLVERS[name](A, b, rtol=1e-9, backend="cpu", return_stats=True)
    assert info == 0
    np.testing.assert_allclose(x, theirs, rtol=1e-6, atol=1e-7 * np.abs(theirs).max())
    assert abs(stats.iterations - host.iterations) <= max(1, host.iterations // 10)


def test_ends_where_asked(name: str) -> None:
    A, b = fitting(name), rhs(300)
    options = {"restart": 3} if name.endswith("gmres") else {}
    for most in (0, 1, 3, 18):
        x, info, stats = solve(name, A, b, rtol=1e-14, maxiter=most, **options)
        assert info > 0
        assert stats.iterations <= most * (3 if name.endswith("gmres") else 1)
        assert stats.residual == pytest.approx(np.linalg.norm(b - A @ x))


def test_guess_zero_and_callback(name: str) -> None:
    A, exact = fitting(name, 80), rhs(80)
    x, info, stats = solve(name, A, A @ exact, x0=exact)
    assert (info, stats.iterations) == (0, 0)
    np.testing.assert_array_equal(x, exact)
    x, info, stats = solve(name, A, np.zeros(80), x0=exact)
    assert info == 0
    assert not x.any()
    seen: list[Any] = []
    x, info, stats = solve(name, A, A @ exact, rtol=1e-8, callback=seen.append)
    assert info == 0
    assert len(seen) >= 1
    assert np.shape(seen[-1]) == (() if name.endswith("gmres") else (80,))


def test_a_foreign_preconditioner_with_one_buffer_and_a_guess_of_mb(name: str) -> None:
    A, b, buffer = fitting(name, 80), rhs(80), np.empty(80)
    M = LinearOperator(A.shape, lambda v: np.multiply(0.3, v, out=buffer), dtype=float)
    x, info, stats = solve(name, A, b, x0="Mb", M=M, rtol=1e-8)
    assert info == 0
    assert relative(A, x, b) <= 1.01e-8
    assert not np.may_share_memory(x, buffer)
    assert stats.residuals[0] == pytest.approx(np.linalg.norm(b - 0.3 * (A @ b)))


class Applied(LinearOperator):  # type: ignore[misc]
    """M = 0.3 I for vectors of the fake, which is never asked for those of the host."""

    def __init__(self, n: int) -> None:
        super().__init__(np.dtype(float), (n, n))
        self.uses = 0

    def apply(self, r: FakeArray, out: FakeArray) -> None:
        assert isinstance(r, FakeArray)
        np.multiply(0.3, r.held, out=out.held)
        self.uses += 1

    def _matvec(self, x: Any) -> Any:
        raise AssertionError("called with a vector of the host")


def test_what_applies_gets_vectors_of_the_device_between_products(name: str) -> None:
    A, b = fitting(name, 80), rhs(80)
    M = Applied(80)
    x, info, stats = solve(name, A, b, M=M, rtol=1e-8)
    assert info == 0
    assert relative(A, x, b) <= 1.01e-8
    assert M.uses >= stats.iterations
    plain = solve(name.removeprefix("ca_"), A, b, rtol=1e-8)[2]
    assert abs(stats.iterations - plain.iterations) <= 1


def rough(dtype: Any = np.float64) -> Any:
    """Rows of scales 1 to 1e4, which a diagonal preconditioner makes up for."""
    half = sp.diags_array(np.logspace(0, 2, 300).astype(dtype))
    return sp.csr_array(half @ spd(dtype=dtype) @ half)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["jacobi", "right", "sparse"])
def test_steps_with_a_diagonal_preconditioner_are_queued_too(
    kind: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is applied once for each beginning, whoever made it."""
    A, b = rough(dtype), rhs(300, dtype)
    M: Any = jacobi(A, side="right" if kind == "right" else "auto")
    if kind == "sparse":
        M = sp.csr_array(sp.diags_array(1 / A.diagonal().real))
    rtol = 1e-4 if np.finfo(dtype).eps > 1e-10 else 1e-10
    began, applied = [], []
    begin, precondition = AheadSteps.begin, System.precondition
    monkeypatch.setattr(AheadSteps, "begin", lambda steps, norm: began.append(norm) or begin(steps, norm))
    monkeypatch.setattr(System, "precondition", lambda system, r: applied.append(r) or precondition(system, r))
    x, info, stats = solve("cg", A, b, M=M, rtol=rtol)
    assert info == 0
    assert relative(A, x, b) <= rtol * 1.01
    assert len(began) == len(applied) >= 1
    assert solve("cg", A, b, x0=x, M=M, rtol=1.02 * rtol)[2].iterations == 0
    end, on_host = solve("cg", A, b, M=M, rtol=1e-30), host("cg", A, b, M=M, rtol=1e-30)
    assert (end[1], end[2].iterations, end[2].reason) == (on_host[1], on_host[2].iterations, on_host[2].reason)
    if rtol < 1e-5:
        assert len(began) == len(applied) > 3, "where nothing more can be gained directions begin anew"
    for most in (0, 1, 18):
        _, info, cut = solve("cg", A, b, M=M, rtol=1e-30, maxiter=most)
        assert (info > 0, cut.iterations) == (True, most)
    theirs, _, known = host("cg", A, b, M=M, rtol=rtol)
    assert abs(stats.iterations - known.iterations) <= 2
    np.testing.assert_allclose(stats.residuals[:8], known.residuals[:8], rtol=1e-2)
    np.testing.assert_allclose(x, theirs, rtol=0, atol=100 * rtol * np.abs(theirs).max())
    plain = solve("cg", A, b, rtol=rtol, maxiter=5000)[2]
    assert stats.iterations < 0.7 * plain.iterations
    seen: list[Any] = []
    x, info, stats = solve("cg", A, b, M=M, rtol=rtol, callback=seen.append)
    assert info == 0
    assert len(seen) == stats.iterations
    np.testing.assert_array_equal(seen[-1], x)


class Solving(LinearOperator):  # type: ignore[misc]
    """Solves with the matrix that it is known by: no product with it."""

    def __init__(self, A: Any) -> None:
        super().__init__(A.dtype, A.shape)
        self.A = A

    def _matvec(self, x: Any) -> Any:
        return x.reshape(-1) / self.A.diagonal()


@pytest.mark.parametrize("kind", ["complex", "wide", "twice"])
def test_diagonals_of_other_types_and_forms_are_queued(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    A = rough(np.float32 if kind == "wide" else np.float64)
    inverse = 1 / A.diagonal().astype(np.float64)
    M: Any = sp.diags_array(inverse)
    if kind == "complex":
        M = sp.csr_array(sp.diags_array(inverse.astype(np.complex128)))
    elif kind == "twice":
        rows = np.repeat(np.arange(300), 2)
        M = sp.coo_array((np.repeat(inverse / 2, 2), (rows, rows)), shape=(300, 300))
    queued: list[Any] = []
    queue = System.step_queue
    monkeypatch.setattr(System, "step_queue", lambda *given: queued.append(1) or queue(*given))
    x, info, _stats = solve("cg", A, rhs(300, A.dtype), M=M, rtol=1e-4)
    assert info == 0
    assert relative(A, x, rhs(300, A.dtype)) <= 1.01e-4
    assert bool(queued) == (kind != "twice"), "what has more entries than rows is not looked at"


def test_an_indefinite_matrix_is_named_with_a_diagonal_too() -> None:
    A = sp.csr_array(sp.diags_array(np.r_[-1.0, np.linspace(1, 2, 99)]))
    _x, info, stats = solve("cg", A, np.ones(100), M=sp.csr_array(sp.eye_array(100)), rtol=1e-10)
    assert info < 0
    assert "the matrix is not positive definite" in stats.reason


def test_a_plan_that_streams_is_used_step_by_step_with_a_diagonal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be queued could be used with M before there were queued steps with one."""
    A, b = rough(), rhs(300)
    monkeypatch.setattr(FakeProgram, "is_recordable", False)
    x, info, _stats = solve("cg", A, b, M=jacobi(A), rtol=1e-9)
    assert info == 0
    assert relative(A, x, b) <= 1.01e-9
    with pytest.raises(PlanError, match="streams"):
        solve("cg", A, b)


@pytest.mark.parametrize("kind", ["negative", "zero", "full", "operator", "solving", "large", "units"])
def test_other_preconditioners_are_applied_step_by_step(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are no positive diagonal, or not known to be one, and where the system has units of its own."""
    A = rough(np.float32 if kind == "large" else np.float64)
    b, inverse = rhs(300, A.dtype), 1 / A.diagonal().astype(np.float64)
    M: Any = {
        "negative": lambda: sp.csr_array(sp.diags_array(-inverse)),
        "zero": lambda: sp.csr_array(sp.diags_array(np.r_[0.0, inverse[1:]])),
        "full": lambda: sp.csr_array(sp.diags_array([1e-9, 1.0, 1e-9], offsets=[-1, 0, 1], shape=(300, 300))),
        "operator": lambda: aslinearoperator(np.diag(inverse)),
        "solving": lambda: Solving(sp.csr_array(sp.diags_array(A.diagonal()))),
        "large": lambda: sp.csr_array(sp.diags_array(1e39 * inverse)),
        "units": lambda: jacobi(A),
    }[kind]()
    scale = 1e-300 if kind == "units" else 1.0
    monkeypatch.setattr(System, "step_queue", lambda *_: pytest.fail("steps were queued"))
    x, info, stats = solve("cg", sp.csr_array(scale * A), scale * b, M=M, rtol=1e-8)
    if kind == "negative":
        assert info < 0
        assert "M is not positive definite" in stats.reason
    elif kind in ("zero", "large"):
        assert info != 0
    else:
        assert info == 0
        assert relative(A, x, b) <= 1.01e-8


@pytest.mark.parametrize("s", [1, 2, 5, 8])
@pytest.mark.parametrize("basis", ["monomial", "newton", "chebyshev"])
def test_every_s_and_basis_of_ca_cg(s: int, basis: str) -> None:
    for dtype in (np.float64, np.complex128):
        A = sp.csr_array(spd(400, dtype) - 0.099 * sp.eye_array(400))
        b = rhs(400, dtype)
        x, info, stats = solve("ca_cg", A, b, rtol=1e-9, s=s, basis=basis)
        assert info == 0
        assert relative(A, x, b) <= 1e-9
        classic = solve("cg", A, b, rtol=1e-9)[2]
        assert stats.iterations <= 1.3 * classic.iterations + 2 * s


def hard(n: int = 600) -> Any:
    """Condition number 1e3, about two hundred steps."""
    return sp.csr_array(sp.diags_array(np.logspace(-3, 0, n)))


@pytest.mark.parametrize("s", [2, 3, 8, 20])
def test_a_long_way_by_ca_cg(s: int) -> None:
    """Many blocks, several of them a launch, and the steps of the host."""
    A, b = hard(), rhs(600)
    x, info, stats = solve("ca_cg", A, b, rtol=1e-6, s=s)
    host = SOLVERS["ca_cg"](A, b, rtol=1e-6, s=s, return_stats=True)[2]
    classic = solve("cg", A, b, rtol=1e-6)[2]
    assert info == 0
    assert relative(A, x, b) <= 1e-6
    assert stats.iterations <= 1.05 * classic.iterations
    assert abs(stats.iterations - host.iterations) <= host.iterations // 20
    assert stats.matrix_passes < 0.9 * stats.iterations
    assert len(stats.residuals) == stats.iterations + 2  # the first one, and the true one


def test_an_unusable_basis_lowers_s_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shifts, "ritz", lambda self, **_: np.array([1e-3]))
    A, b = hard(), rhs(600)
    x, info, stats = solve("ca_cg", A, b, rtol=1e-6, s=8, basis="monomial")
    assert info == 0
    assert relative(A, x, b) <= 1e-6
    assert any("s lowered" in note for note in stats.notes)
    assert stats.iterations <= 1.1 * solve("cg", A, b, rtol=1e-6)[2].iterations


@pytest.mark.parametrize("basis", ["monomial", "newton", "chebyshev"])
@pytest.mark.parametrize(("small", "largest"), FAR)
def test_eigenvalues_far_from_all_others_on_the_device(small: float, largest: float, basis: str) -> None:
    ratios = steps_with_outliers(solve, small, largest, basis, seeds=6)
    assert np.median(ratios) <= 1.5
    assert (ratios > 2).sum() <= 1, ratios


@pytest.mark.parametrize("bad", [3, 4, 5])
def test_a_block_that_goes_on_behind_one_without_steps_is_counted(bad: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The basis of one launch is of no use, that of the next, which is queued already, is."""
    real, calls = Shifts.basis, [0]

    def basis(self: Shifts, s: int) -> Basis:
        calls[0] += 1
        found = real(self, s)
        return Basis(found.kind, found.a * 1e300, found.b, found.c) if calls[0] == bad else found

    monkeypatch.setattr(Shifts, "basis", basis)
    A, b = hard(), rhs(600)
    x, info, stats = solve("ca_cg", A, b, rtol=1e-6, s=4)
    assert info == 0
    assert relative(A, x, b) <= 1e-6
    assert stats.residuals[-2] == pytest.approx(stats.residual, rel=1e-3)
    assert stats.iterations <= 1.05 * solve("cg", A, b, rtol=1e-6)[2].iterations


def test_no_step_is_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an s that goes down to 1 and up again, steps and blocks of all kinds are at the end of some solve."""
    monkeypatch.setattr(Shifts, "ritz", lambda self, **_: np.array([1e-3]))
    A, b = hard(), rhs(600)
    for most in range(100, 190):
        _, _, stats = solve("ca_cg", A, b, rtol=1e-12, s=8, basis="monomial", maxiter=most)
        assert stats.iterations == most
        assert len(stats.residuals) == most + 2
        assert stats.residuals[-2] == pytest.approx(stats.residual, rel=1e-3)


def test_rows_of_few_values_of_s_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    solves: list[BlocksAhead] = []
    begin = BlocksAhead._begin
    monkeypatch.setattr(BlocksAhead, "_begin", lambda self: solves.append(self) or begin(self))
    assert solve("ca_cg", hard(), rhs(600), rtol=1e-6, s=16)[1] == 0
    found, rooms = solves[0], {}
    for s in (16, 8, 16, 4, 16, 2):
        room = found._make_room(s)
        assert room is rooms.setdefault(s, room)
        assert len(room) == 3 * s + 1
        assert len(found._rooms) <= 2
        assert set(found._queues) <= set(found._rooms)
    assert set(found._rooms) == {16, 2}


def test_wrong_images_are_seen_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    launch, spoilt = FakeBlockQueue.launch, []

    def spoiling(self: FakeBlockQueue, basis: Any, count: int = 1) -> None:
        if len(spoilt) == 3:
            self._W[2 * self.s - 1] += 1e-9 * np.abs(self._W[2 * self.s - 1]).max()
        spoilt.append(count)
        launch(self, basis, count)

    monkeypatch.setattr(FakeBlockQueue, "launch", spoiling)
    monkeypatch.setattr(FakeBlockQueue, "look", 1)
    A, b = hard(), rhs(600)
    x, info, stats = solve("ca_cg", A, b, rtol=1e-6, s=4)
    assert info == 0
    assert relative(A, x, b) <= 1e-6
    assert any("made anew" in note for note in stats.notes)
    assert stats.iterations <= 1.2 * solve("cg", A, b, rtol=1e-6)[2].iterations


def test_what_a_look_found_last_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come after the last record: blocks that begin anew ask for it."""
    monkeypatch.setattr(FakeBlockQueue, "wrong", lambda self: 1e-3)
    asked: list[int] = []
    products = Blocks._products
    monkeypatch.setattr(Blocks, "_products", lambda self: asked.append(self.since) or products(self))
    A, b = hard(), rhs(600)
    monkeypatch.setattr(Shifts, "ritz", lambda self, **_: np.array([1e-3]))  # s is lowered, blocks begin anew
    x, info, _ = solve("ca_cg", A, b, rtol=1e-6, s=8, basis="monomial")
    assert info == 0
    assert relative(A, x, b) <= 1e-6
    first, *later = asked
    assert first == 0, "behind ordinary steps"
    assert set(later) == {-1}


def test_a_residual_that_drifts_is_replaced_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The residual is spoilt a little, and the bound is told of it."""
    launch, spoilt = FakeBlockQueue.launch, []
    has_drifted = Blocks._has_drifted

    def spoiling(self: FakeBlockQueue, basis: Any, count: int = 1) -> None:
        if len(spoilt) == 3:
            self._W[2 * self.s] *= 1 + 1e-6
        spoilt.append(count)
        launch(self, basis, count)

    def told(self: Blocks, of_x: float, of_r: float) -> bool:
        exact = self.eps
        self.eps = 0.5 if self.replaced == 0 and len(spoilt) > 5 else exact
        found = has_drifted(self, of_x, of_r)
        self.eps = exact
        return found

    monkeypatch.setattr(FakeBlockQueue, "launch", spoiling)
    monkeypatch.setattr(Blocks, "_has_drifted", told)
    A, b = hard(), rhs(600)
    x, info, stats = solve("ca_cg", A, b, rtol=1e-6, s=4)
    assert info == 0
    assert relative(A, x, b) <= 1e-6
    assert any("replaced 1" in note for note in stats.notes)
    assert stats.iterations <= 1.2 * solve("cg", A, b, rtol=1e-6)[2].iterations


def test_what_is_not_definite_is_found_out() -> None:
    A = sp.csr_array(sp.diags_array(np.r_[np.linspace(1, 2, 100), -1e-3 * np.linspace(1, 2, 3)]))
    for name in ("cg", "ca_cg"):
        x, info, stats = solve(name, A, rhs(103), rtol=1e-12)
        assert (info == 0) == stats.converged
        assert info == 0 or "definite" in stats.reason
        assert np.isfinite(x).all()


def test_an_attainable_accuracy_is_not_called_convergence() -> None:
    A, b = spd(300), rhs(300)
    for name in ("cg", "ca_cg"):
        x, info, _ = solve(name, A, b, rtol=1e-30, maxiter=2000)
        assert info != 0
        assert relative(A, x, b) < 1e-11


@pytest.mark.parametrize("refuse", [1, 2, 3, 7])
def test_what_the_device_refuses_the_host_does(refuse: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeRows, "refuse", refuse)
    for name in ("gmres", "ca_gmres"):
        A, b = fitting(name), rhs(300)
        x, info, stats = solve(name, A, b, rtol=1e-9, restart=12)
        host = SOLVERS[name](A, b, rtol=1e-9, restart=12, return_stats=True)[2]
        assert info == 0
        assert relative(A, x, b) <= 1e-9
        assert abs(stats.iterations - host.iterations) <= max(2, host.iterations // 10)


def test_a_long_way_by_gmres() -> None:
    """Many cycles, a basis that is too ill-conditioned for all of a block, an s that goes down and up again."""
    A = sp.csr_array(sp.diags_array(np.logspace(-3, 0, 300)) + sp.diags_array(np.ones(299) * 1e-4, offsets=1))
    b = rhs(300)
    for options in ({}, {"basis": "monomial", "s": 12}):
        x, info, stats = solve("ca_gmres", A, b, rtol=1e-8, restart=30, **options)
        assert info == 0
        assert relative(A, x, b) <= 1e-8
        host = SOLVERS["ca_gmres"](A, b, rtol=1e-8, restart=30, return_stats=True, **options)[2]
        assert stats.iterations <= 1.2 * host.iterations + 30


@pytest.mark.parametrize(("of_A", "of_b"), [(-700, 0), (0, -600), (500, 500)])
def test_extreme_scales(name: str, of_A: int, of_b: int) -> None:
    A, b = fitting(name, 80), rhs(80)
    large = A.copy()
    large.data = np.ldexp(A.data, of_A)
    seen: list[Any] = []
    x, info, stats = solve(name, large, np.ldexp(b, of_b), rtol=1e-8, callback=seen.append)
    assert info == 0
    assert relative(A, np.ldexp(x, of_A - of_b), b) <= 1.01e-8
    assert stats.residual <= stats.target == pytest.approx(1e-8 * np.linalg.norm(b) * 2.0**of_b)
    if not name.endswith("gmres"):
        np.testing.assert_allclose(seen[-1], x, rtol=1e-3, atol=1e-3 * np.abs(x).max())
    M = sp.csr_array(sp.diags_array(1 / large.diagonal()))
    # Folded solves of the others are the host's, which is not told from the fake here.
    if name not in ("ca_cg", "ca_minres", "ca_bicgstab"):
        x, info, _ = solve(name, large, np.ldexp(b, of_b), rtol=1e-8, M=M)
        assert info == 0
        assert relative(A, np.ldexp(x, of_A - of_b), b) <= 1.01e-8


def test_a_watch_looks_at_what_is_queued_ahead(name: str) -> None:
    """What is ahead is taken first, and the solver goes on from there."""
    check_looks(name, "cuda")
    check_ends(name, "cuda")


def test_several_right_hand_sides(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(akx.solvers.shared_passes, "_QUEUED", 0)
    A, B = fitting(name), np.stack([rhs(300, seed=seed) for seed in range(4)], axis=1)
    B[:, 2] = B[:, 0] - B[:, 1]
    x, info, stats = solve(name, A, B, rtol=1e-9, x0=np.zeros_like(B))
    assert (x.shape, info, len(stats.columns)) == ((300, 4), 0, 4)
    assert max(relative(A, x[:, j], B[:, j]) for j in range(4)) <= 1.01e-9
    if name.endswith("cg"):
        assert stats.matrix_passes < stats.products / 2
    monkeypatch.setattr(akx.solvers.shared_passes, "_QUEUED", 1 << 60)
    y, info, stats = solve(name, A, B, rtol=1e-9)
    assert info == 0
    np.testing.assert_allclose(y, x, rtol=1e-6, atol=1e-7 * np.abs(x).max())


@pytest.mark.parametrize("maxiter", [60])
def test_an_x_that_has_blown_up_is_not_returned(name: str, maxiter: int) -> None:
    """On the matrix of a rotation, and a singular one in single precision."""
    S, one = sp.diags_array([-1.0, 0.0, 1.0], offsets=[-1, 0, 1], shape=(20, 20)), sp.eye_array(20)
    path = sp.diags_array([-np.ones(19), np.r_[1, np.full(18, 2.0), 1], -np.ones(19)], offsets=[-1, 0, 1])
    singular = sp.csr_array(sp.kron(path, one) + sp.kron(one, path)).astype(np.float32)
    b = np.random.default_rng(0).random(400)
    for A in (sp.csr_array(sp.kron(1e4 * S, one) + sp.eye_array(400)), singular):
        right = b.astype(A.dtype)
        options = {"restart": 5} if name.endswith("gmres") else {}
        x, _, stats = solve(name, A, right, rtol=1e-6, maxiter=maxiter, **options)
        if not (name.endswith("cg") and A is singular):
            assert relative(A, x, right) <= 1 + 1e-6
        assert stats.residual == pytest.approx(np.linalg.norm(right - A @ x), rel=1e-3)


@pytest.mark.parametrize("method", ["cg", "ca_cg"])
@pytest.mark.parametrize("maxiter", [20, 100])
def test_the_best_x_is_made_again_where_the_steps_run_out_at_a_worse_one(method: str, maxiter: int) -> None:
    random = np.random.default_rng(0)
    beside = sp.random_array((200, 200), density=0.03, rng=random) + sp.diags_array(np.ones(199), offsets=1)
    A, b = sp.csr_array(beside + 3 * sp.eye_array(200)), random.standard_normal(200)  # not symmetric
    x, info, stats = solve(method, A, b, rtol=1e-8, maxiter=maxiter)
    assert info > 0
    assert stats.iterations == maxiter
    assert min(stats.residuals[:-1]) < 0.6 * stats.residuals[0] < stats.residuals[-2]
    assert relative(A, x, b) == pytest.approx(min(stats.residuals[:-1]) / np.linalg.norm(b), rel=1e-6)
