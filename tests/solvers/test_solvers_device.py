"""Right-hand sides on a GPU: the answer is there too, in kind, and the same as for one of the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from solvers.systems import fitting, relative, rhs

import akx.solvers.mixed
from akx.backends.cuda.device.facts import cuda_missing
from akx.core.errors import ArgumentError, ArgumentTypeError
from akx.solvers import SOLVERS, solve

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing())),
]


@pytest.fixture(params=sorted(SOLVERS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("shape", [(300,), (300, 1)])
def test_the_answer_is_where_b_is(name: str, shape: tuple[int, ...]) -> None:
    from akx.backends.cuda.device.memory import to_device

    A, b = fitting(name), rhs(300)
    theirs, info = SOLVERS[name](A, b, rtol=1e-9, backend="cuda")
    assert isinstance(theirs, np.ndarray)
    assert info == 0
    x, info = SOLVERS[name](A, to_device(b.reshape(shape)), x0=to_device(np.zeros(300)), rtol=1e-9)
    assert info == 0
    assert not isinstance(x, np.ndarray)
    assert x.shape == shape
    np.testing.assert_array_equal(x.get().reshape(-1), theirs)  # the same bits
    assert relative(A, theirs, b) <= 1e-9


def test_mixed_precision(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from akx.backends.cuda.device.memory import to_device

    monkeypatch.setattr(akx.solvers.mixed, "_why_no_gain", lambda *_: "")
    A, b = fitting(name, 5000), rhs(5000)
    given: dict[str, Any] = {"method": name, "rtol": 1e-11, "precision": "mixed", "return_stats": True}
    theirs, info, stats = solve(A, b, backend="cuda", **given)
    assert info == 0
    assert any("steps in float32" in note for note in stats.notes), stats.notes
    assert relative(A, theirs, b) <= 1e-11
    x, info, stats = solve(A, to_device(b), **given)
    assert info == 0
    assert relative(A, x.get(), b) <= 1e-11
    np.testing.assert_array_equal(x.get(), theirs)
    cupy = pytest.importorskip("cupy")
    told: list[Any] = []
    x, info, stats = solve(A, cupy.asarray(b), callback=told.append, **given)
    assert (type(x), x.dtype, info) == (cupy.ndarray, np.float64, 0)
    assert relative(A, x.get(), b) <= 1e-11
    assert told


@pytest.mark.parametrize("order", ["C", "F"])
def test_several_right_hand_sides(name: str, order: Any) -> None:
    from akx.backends.cuda.device.memory import to_device

    A, B = fitting(name), np.stack([rhs(300, seed=seed) for seed in range(3)], axis=1)
    B[:, 2] = B[:, 0] - B[:, 1]
    theirs, info = SOLVERS[name](A, B, rtol=1e-9, backend="cuda")
    assert info == 0
    x, info, stats = SOLVERS[name](A, to_device(B), x0=to_device(np.zeros((300, 3))), rtol=1e-9, return_stats=True)
    assert (x.shape, info, len(stats.columns)) == ((300, 3), 0, 3)
    for found in (x.get(), theirs):
        assert max(relative(A, found[:, j], B[:, j]) for j in range(3)) <= 1.01e-9
    cupy = pytest.importorskip("cupy")
    x, info = solve(A, cupy.asarray(B, order=order), rtol=1e-9)
    assert isinstance(x, cupy.ndarray)
    assert max(relative(A, x.get()[:, j], B[:, j]) for j in range(3)) <= 1.01e-9


def test_arrays_of_cupy(name: str) -> None:
    cupy = pytest.importorskip("cupy")
    A, b = fitting(name), rhs(300)
    x, info, stats = SOLVERS[name](A, cupy.asarray(b, dtype="f4"), rtol=1e-9, return_stats=True)
    assert isinstance(x, cupy.ndarray)
    assert (x.shape, x.dtype, info) == ((300,), np.float64, 0)
    assert stats.residual <= stats.target
    seen: list[Any] = []
    SOLVERS[name](A, cupy.asarray(b), rtol=1e-9, callback=seen.append)
    assert seen
    assert all(isinstance(one, cupy.ndarray if np.ndim(one) else float) for one in seen)


def test_solve_chooses_on_the_gpu() -> None:
    A, b = fitting("cg", 3000), rhs(3000)
    x, info, stats = solve(A, b, rtol=1e-9, backend="cuda", return_stats=True)
    assert info == 0
    assert relative(A, x, b) <= 1e-9
    assert stats.method.endswith("cg")


def test_what_does_not_fit_is_refused(name: str) -> None:
    from akx.backends.cuda.device.memory import to_device

    A = fitting(name, 40)
    solver = SOLVERS[name]
    with pytest.raises(ArgumentTypeError, match="device"):
        solver(A, to_device(np.ones(40)), backend="cpu")
    with pytest.raises(ArgumentTypeError, match="device"):
        solver(A, np.ones(40), x0=to_device(np.ones(40)))
    for bad in (np.ones(39), np.ones((40, 2, 2)), np.full(40, np.inf), np.full(40, 1.5e308)):
        with pytest.raises(ArgumentError):
            solver(A, to_device(bad))
    with pytest.raises(ArgumentTypeError):
        solver(A, to_device(np.ones(40, dtype=np.int64)))


@pytest.mark.parametrize("exponent", [-600, 600])
def test_the_scale_of_b_does_not_matter(name: str, exponent: int) -> None:
    from akx.backends.cuda.device.memory import to_device

    A, b = fitting(name), rhs(300)
    x, info = SOLVERS[name](A, to_device(np.ldexp(b, exponent)), rtol=1e-8)
    assert info == 0
    assert relative(A, np.ldexp(x.get(), -exponent), b) <= 1.01e-8
