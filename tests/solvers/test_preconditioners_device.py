"""Preconditioners where the vectors are: on a device that is not there (fake_device.py), and on a GPU."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from solvers.fake_device import FakeArray, FakeOperator, FakeScaling, FakeWork
from solvers.systems import nonsymmetric, relative, rhs, spd

import akx.backends.cuda.preconditioners.scaling
import akx.backends.cuda.vectors.solver_vectors
from akx.backends.cuda.device.facts import cuda_missing
from akx.core.errors import ArgumentTypeError
from akx.operator import MatrixPowers
from akx.solvers import SOLVERS
from akx.solvers.preconditioners import block_jacobi, chebyshev, jacobi, solve_folded, spai

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
KINDS = {
    "jacobi": jacobi,
    "block_jacobi": lambda A: block_jacobi(A, 4),
    "chebyshev": lambda A: chebyshev(A, 3),
    "spai": lambda A: spai(A, 0.9, backend="cpu"),
}
on_a_gpu = pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))


class Held(FakeArray):
    """A device array that can be read and written by those who say so."""

    def get(self) -> Any:
        return self.held.copy()

    def set(self, values: Any) -> None:
        assert values.shape == self.shape
        assert values.dtype == self.dtype
        self.held[...] = values


@pytest.fixture
def made_for_gpu(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Let the device be the fake; the options of operators that are made for it."""
    seen: list[dict[str, Any]] = []

    def operator(matrix: Any, k: int, **options: Any) -> Any:
        if options.get("backend") != "cuda":
            return MatrixPowers(matrix, k, **options)
        seen.append(options)
        return FakeOperator(MatrixPowers(matrix, k, **{**options, "backend": "cpu"}))

    for name in ("sparse", "polynomial"):
        module = sys.modules[f"akx.solvers.preconditioners.{name}"]
        monkeypatch.setattr(module, "MatrixPowers", operator)
        monkeypatch.setattr(module, "device_rows", lambda shape, dtype: FakeArray(np.full(shape, np.nan, dtype=dtype)))
    monkeypatch.setattr(akx.backends.cuda.vectors.solver_vectors, "CudaVectorWork", FakeWork)
    monkeypatch.setattr(akx.backends.cuda.preconditioners.scaling, "Scaling", FakeScaling)
    return seen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_m_of_device_vectors_is_that_of_the_hosts(made_for_gpu: list[Any], kind: str, dtype: Any) -> None:
    M = KINDS[kind](spd(90, dtype))
    wider = np.result_type(dtype, np.float64)
    for given in (dtype, wider, np.complex128):
        r = rhs(90, given)
        expected = M.matvec(r)
        tolerance = 30 * np.finfo(dtype).eps * np.abs(expected).max()
        for _ in range(2):
            held, out = Held(r.copy()), Held(np.full(90, np.nan, dtype=given))
            M.apply(held, out)
            np.testing.assert_allclose(out.held, expected, rtol=0, atol=tolerance)
            np.testing.assert_array_equal(held.held, r)
        found = np.full(90, np.nan, dtype=given)
        M.apply(r, found)
        np.testing.assert_array_equal(found, expected.astype(given))
    assert len(made_for_gpu) == (0 if kind == "jacobi" else len({np.dtype(d) for d in (dtype, wider, np.complex128)}))


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_device_cannot_do_is_done_by_the_host(made_for_gpu: list[Any], kind: str) -> None:
    M = KINDS[kind](spd(90, np.complex64))
    r = rhs(90, np.complex64)
    wide = Held(r.astype(np.complex128))
    out = Held(np.full(90, np.nan, dtype=np.complex128))
    M.apply(wide, out)
    np.testing.assert_allclose(out.held, M.matvec(wide.held), rtol=1e-5)
    made_for_gpu.clear()
    A = spd(90)
    long = chebyshev(A, 70, (2.0, 4.5))
    out = Held(np.full(90, np.nan))
    long.apply(Held(rhs(90)), out)
    np.testing.assert_allclose(out.held, long.matvec(rhs(90)), rtol=1e-12)
    assert not made_for_gpu
    real, narrow = KINDS[kind](A), Held(np.full(90, np.nan, dtype=np.float32))
    real.apply(Held(rhs(90, np.float32)), narrow)
    np.testing.assert_allclose(narrow.held, real.matvec(rhs(90, np.float32)), rtol=1e-6)
    assert not made_for_gpu


@pytest.mark.parametrize("name", ["ca_cg", "ca_gmres"])
def test_a_right_hand_side_on_the_device_is_answered_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a folded solve: it works on the host, its solver on the device, and what it says is in kind."""
    module = sys.modules["akx.solvers.folding"]
    monkeypatch.setattr(module, "is_on_device", lambda v: isinstance(v, Held))
    monkeypatch.setattr(module, "of_host", lambda v, _: v.get() if isinstance(v, Held) else v)
    monkeypatch.setattr(module, "answer_in_kind", lambda given, x: Held(x) if isinstance(given, Held) else x)
    asked: list[str] = []

    def solver(A: Any, b: Any, *, backend: str, **options: Any) -> Any:
        asked.append(backend)
        return SOLVERS[name](A, b, **options)

    A, b, seen = spd(), rhs(300), []
    guess = Held(np.linspace(0, 1, 300))
    x, info = solve_folded(  # type: ignore[misc]
        solver, A, Held(b[:, None]), guess, M=jacobi(A), rtol=1e-9, callback=seen.append
    )
    assert info == 0
    assert set(asked) == {"cuda"}
    assert x.shape == (300, 1)
    assert relative(A, x.held[:, 0], b) <= 1e-9
    assert len(seen) > 0
    assert all(isinstance(one, Held) for one in seen) == (name == "ca_cg")
    with pytest.raises(ArgumentTypeError, match="b is on the device"):
        solve_folded(solver, A, Held(b), M=jacobi(A), backend="cpu")
    x, info = solve_folded(SOLVERS[name], A, b, M=jacobi(A), rtol=1e-9)  # type: ignore[misc]
    assert isinstance(x, np.ndarray)


# --------------------------------------------------------------------------------------------------------- on a GPU


@pytest.mark.cuda
@on_a_gpu
def test_a_right_hand_side_on_the_gpu_is_answered_there() -> None:
    from akx.backends.cuda.device.memory import to_device

    A, b = spd(), rhs(300)
    for name in ("cg", "ca_cg", "ca_gmres"):
        x, info = SOLVERS[name](A, to_device(b), M=jacobi(A), rtol=1e-9)
        assert info == 0
        assert x.shape == (300,)
        assert relative(A, x.get(), b) <= 1e-9


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_m_of_vectors_on_the_gpu(kind: str, dtype: Any) -> None:
    from akx.backends.cuda.device.memory import empty, to_device

    n = 1501
    M = KINDS[kind](spd(n, dtype))
    for given in (dtype, np.result_type(dtype, np.float64)):
        r = rhs(n, given)
        expected, found = M.matvec(r), []
        for _ in range(3):
            held, out = to_device(r), empty(n, given)
            out.fill_bytes(255)
            M.apply(held, out)
            found.append(out.get())
            np.testing.assert_array_equal(held.get(), r)
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=50 * np.finfo(dtype).eps * np.abs(expected).max())
        assert len({one.tobytes() for one in found}) == 1


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_every_solver_on_the_gpu_with_a_preconditioner(name: str, kind: str) -> None:
    scaling, is_hermitian = sp.diags_array(10.0 ** np.linspace(-1, 1, 900)), name.endswith(("cg", "minres"))
    A = sp.csr_array(scaling @ (spd(900) if is_hermitian else nonsymmetric(900)) @ scaling)
    M = spai(A, 0.9, symmetric=is_hermitian) if kind == "spai" else KINDS[kind](A)
    b = rhs(900)
    x, info, stats = SOLVERS[name](A, b, M=M, rtol=1e-8, backend="cuda", return_stats=True)
    _, said, host = SOLVERS[name](A, b, M=M, rtol=1e-8, backend="cpu", return_stats=True)
    assert (info, said) == (0, 0)
    assert relative(A, x, b) <= 1e-8
    assert abs(stats.iterations - host.iterations) <= max(8, host.iterations // 5)
