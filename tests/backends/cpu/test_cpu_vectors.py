"""Dense work on rows of vectors: Gram matrices, combinations and the updates of CG, beside NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from akx.backends.cpu.vectors import numpy_vectors
from akx.backends.cpu.vectors import team_vectors as vectors
from akx.backends.cpu.vectors.numpy_vectors import NumpyVectors
from akx.backends.cpu.vectors.team_vectors import VectorWork
from akx.backends.vectors import Vectors

DTYPES = (np.float32, np.float64, np.complex64, np.complex128)


@pytest.fixture(params=["alone", "shared", "numpy", "gave way"])
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Vectors]:
    """Vector work of one thread, or two of them however short the pass is, of NumPy, or that which has given way."""
    monkeypatch.setattr(vectors, "SHARED_BYTES", 0)

    def made(dtype: Any) -> Vectors:
        if request.param in ("alone", "shared"):
            return VectorWork(dtype, 1 if request.param == "alone" else 2)
        work = NumpyVectors(dtype)
        if request.param == "gave way":
            work.give_way(VectorWork(dtype, 2))
        return work

    return made


def rows(m: int, n: int, dtype: Any, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((m, n))
    return (values + 1j * rng.standard_normal((m, n)) if np.dtype(dtype).kind == "c" else values).astype(dtype)


def near(found: Any, wanted: Any, dtype: Any, scale: float = 1.0) -> None:
    np.testing.assert_allclose(found, wanted, rtol=0, atol=40 * np.finfo(dtype).eps * scale)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (2, 17), (3, 0), (5, 1000), (9, 4099), (17, 515), (41, 130)])
def test_gram_and_combinations(dtype: Any, m: int, n: int, make: Callable[[Any], Vectors]) -> None:
    work = make(dtype)
    W, C, x = rows(m, n, dtype), rows(3, m, dtype, 1), rows(1, n, dtype, 2)[0]
    exact = W.astype(np.result_type(dtype, np.float64))
    G = work.gram(W)
    near(G, exact.conj() @ exact.T, dtype, max(n, 1))
    assert G.dtype == exact.dtype
    np.testing.assert_array_equal(G, G.conj().T)
    np.testing.assert_array_equal(G, work.gram(W))  # the same bits
    near(work.gram(W, m // 2), G[m // 2 :], dtype, max(n, 1))
    out = np.full((3, n), np.nan, dtype=dtype)
    near(work.combine(C, W, out), C @ exact, dtype, m)
    near(work.combine(C, W, out, add=True), 2 * (C @ exact), dtype, 2 * m)
    if m >= 2:
        Z, wanted = W.copy(), x + C[0] @ exact
        work.advance(C, Z, x)
        near(x, wanted, dtype, m)
        near(Z[:2], C[1:] @ exact, dtype, m)
        np.testing.assert_array_equal(Z[2:], W[2:])


@pytest.mark.parametrize("n", [3001, 40_001])  # whole, and in pieces
@pytest.mark.parametrize("dtype", DTYPES)
def test_updates_of_cg(dtype: Any, n: int, make: Callable[[Any], Vectors]) -> None:
    work, V = make(dtype), rows(5, n, dtype)
    p, w, r, x, u = V.astype(np.result_type(dtype, np.float64))
    near(work.dot(V, 0, 1), np.vdot(p, w), dtype, n)
    near(work.dot(V, 4, 2), np.vdot(u, r), dtype, n)
    alpha, beta = 0.25, -0.75
    r, x = r - alpha * w, x + alpha * p
    near(work.descend(V, alpha), np.vdot(r, r).real, dtype, n)
    near(V, [p, w, r, x - alpha * p, u], dtype, 4)
    for row, other in ((4, u), (2, r)):
        Z = V.copy()
        work.turn(Z, alpha, beta, row)
        near(Z, [other + beta * p, w, r, x, u], dtype, 4)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n", [100, 10_001, 40_001])
@pytest.mark.parametrize("dtype", DTYPES)
def test_squares_that_overflow_are_no_warning(dtype: Any, n: int, make: Callable[[Any], Vectors]) -> None:
    work, large = make(dtype), np.finfo(dtype).max / 4
    V = np.full((4, n), large, dtype=dtype)
    assert [work.norm(V[0]), work.dot(V, 0, 1).real, work.descend(V, 0.5)] == [np.inf] * 3


def test_what_gave_way_has_no_part_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    work, V = NumpyVectors(float), rows(5, 30, float)
    work.give_way(VectorWork(float, 1))
    monkeypatch.setattr(numpy_vectors, "_pieces", lambda n, size: pytest.fail("NumPy's"))
    monkeypatch.setattr(numpy_vectors, "NumpyBlocks", lambda W: pytest.fail("NumPy's"))
    work.dot(V, 0, 1)
    work.turn(V, 1.0, 1.0, 2)
    work.over(V)
    assert work.following(V[0], V[1]) is not None


def test_long_passes_are_shared_and_short_ones_are_not() -> None:
    work = VectorWork(np.float64, 2)
    for n, shared in ((1000, False), (400_000, True)):
        W = rows(2, n, np.float64)
        for number, (_, sums) in work._jobs.items():
            sums[:] = np.nan if number == (1 if shared else 2) else 0
        np.testing.assert_allclose(work.gram(W), W @ W.T, rtol=1e-12, atol=1e-9)
        assert np.isnan(work._jobs[1 if shared else 2][1]).all()
