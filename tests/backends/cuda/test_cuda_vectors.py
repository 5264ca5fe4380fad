"""Vector work of solvers on a GPU beside NumPy, and steps queued ahead beside the same steps by the host.

Every test runs on a GPU where there is one, and its kernels on the host in any case (host_engine.py), on short vectors.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from host_engine import HostProgram, install
from numpy.typing import NDArray
from solvers.fake_device import FakeBlockQueue, FakeProgram, FakeSteps, advance_block
from test_contract import fewer
from test_cpu_vectors import rows

import akx
from akx.backends.cpu.vectors.team_vectors import VectorWork
from akx.backends.cuda.device import memory
from akx.backends.cuda.device.facts import cuda_missing
from akx.backends.cuda.vectors.operations import Tiles
from akx.backends.cuda.vectors.solver_vectors import CudaVectorWork
from akx.core.basis import Basis, chebyshev
from akx.solvers.ca_cg_block import PIVOT, TRUST

DTYPES = (np.float32, np.float64, np.complex64, np.complex128)
on_a_gpu = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing())),
]
SHAPES = [(1, 1), (2, 17), (3, 31), (5, 1000), (6, 257), (9, 4099), (17, 5150), (19, 33), (41, 1300), (64, 2049)]


def near(found: Any, wanted: Any, dtype: Any, scale: float = 1.0) -> None:
    np.testing.assert_allclose(found, wanted, rtol=0, atol=40 * np.finfo(dtype).eps * scale)


def wide(W: Any) -> Any:
    return W.astype(np.result_type(W.dtype, np.float64))


class Place:
    """Where the kernels run."""

    def __init__(self, on_gpu: bool) -> None:
        self.on_gpu = on_gpu

    def length(self, n: int, most: int = 101) -> int:
        """n, or a length that the host is not too slow for, odd or a multiple of four as n is."""
        return fewer(n) if self.on_gpu else min(n, most if n % 2 else most - 1)

    def skip_unless(self, chosen: bool) -> None:
        """Leave what is not chosen to a GPU: on the host a few of many like ones will do."""
        if not (self.on_gpu or chosen):
            pytest.skip("left to a GPU")

    def engine(self, dtype: Any, n: int) -> Any:
        return CudaVectorWork(dtype, n)

    def program(self, A: Any, k: int, vectors: int, basis: Any = None) -> Any:
        """The program for k powers and its coefficients."""
        if self.on_gpu:
            return akx.MatrixPowers(A, k, basis=basis or "monomial", backend="cuda").program(vectors, basis)
        return HostProgram(akx.MatrixPowers(A, k, basis=basis or "monomial", backend="cpu")), basis


@pytest.fixture(
    params=[
        pytest.param("host", marks=pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")),
        pytest.param("gpu", marks=on_a_gpu),
    ]
)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, libraries: Path) -> Place:
    if request.param == "host":
        install(monkeypatch, libraries)
    return Place(request.param == "gpu")


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("on_host")


def held(work: Any, W: Any) -> Any:
    """On the device, between rows of NaN that nobody may touch or use."""
    around = np.full((len(W) + 2, *W.shape[1:]), np.nan, dtype=W.dtype)
    around[1:-1] = W
    return memory.to_device(around)[1:-1]


@pytest.mark.parametrize("triangular", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_tiles_are_as_the_kernels_count_them(dtype: Any, triangular: bool) -> None:
    """Every pair is in one tile of one round, blocks have columns, and what they hold fits the shared memory."""
    for n in (1, 70, 10**6):
        for m in range(1, 65):
            for s in (m,) if triangular else range(1, min(m, 20) + 1):
                tiles = Tiles(m, s, n, dtype, triangular=triangular, blocks=132)
                pairs = {(i // 8, j // 8) for i in range(m) for j in range(s) if i <= j or not triangular}
                assert sum(tiles.rounds) == len(pairs)
                assert max(tiles.rounds) <= (8 if np.dtype(dtype).kind == "c" else 16)
                assert tiles.macros == {"AKX_DOWN": (m + 7) // 8, "AKX_ACROSS": (s + 7) // 8}
                assert (tiles.blocks, tiles.threads) == ((132, 512) if n == 10**6 else (min(132, -(-n // 8)), 32)) or (
                    n == 70 and 1 <= tiles.blocks <= 18
                )
                wide = 16 if np.dtype(dtype).kind == "c" else 8
                assert 8 * 1024 * 8 >= tiles.shared() >= wide * tiles.pairs
                assert tiles.shared(10**5) == wide * (tiles.pairs + 10**5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_gram_and_combinations(place: Place, dtype: Any, m: int, n: int) -> None:
    n = place.length(n, 801 if m == 17 else 101)
    place.skip_unless(m in (5, 17, 19) or dtype == np.float64)
    work = place.engine(dtype, n)
    W, C, x = rows(m, n, dtype), rows(3, m, dtype, 1), rows(1, n, dtype, 2)[0]
    exact, on_device = wide(W), held(work, W)
    G = work.gram(on_device)
    near(G, exact.conj() @ exact.T, dtype, max(n, 1))
    np.testing.assert_array_equal(G, G.conj().T)
    np.testing.assert_array_equal(G, work.gram(on_device))  # the same bits
    near(work.gram(on_device, m // 2), G[m // 2 :], dtype, n)
    out = held(work, np.full((3, n), np.nan, dtype=dtype))
    near(work.combine(C, on_device, out).get(), C @ exact, dtype, m)
    near(work.combine(C, on_device, out, add=True).get(), 2 * (C @ exact), dtype, 2 * m)
    if m >= 2:
        moved = held(work, x[None, :])[0]
        work.advance(C, on_device, moved)
        near(moved.get(), x + C[0] @ exact, dtype, m)
        near(on_device[:2].get(), C[1:] @ exact, dtype, m)
        np.testing.assert_array_equal(on_device[2:].get(), W[2:])


@pytest.mark.parametrize("n", [4098, 4099])
def test_single_precision_at_odd_places(place: Place, n: int) -> None:
    """Two values at a time are read only where all rows begin at even places: no bit of a combination depends on it."""
    n = place.length(n)
    work, W, C, x = (
        place.engine(np.float32, n),
        rows(9, n, np.float32),
        rows(3, 9, np.float32, 1),
        rows(1, n, np.float32, 2),
    )

    def put(V: NDArray[Any], start: int) -> Any:
        around = np.full(V.size + 4, np.nan, dtype=V.dtype)
        around[start : start + V.size] = V.reshape(-1)
        return memory.to_device(around)[start : start + V.size].reshape(*V.shape)

    found = []
    for places in ((2, 2, 2), (1, 1, 1), (1, 2, 2), (2, 1, 2), (2, 2, 1)):
        on_device, out, moved = (
            put(V, start) for V, start in zip((W, np.full_like(W[:3], np.nan), x), places, strict=True)
        )
        near(work.gram(on_device), wide(W) @ wide(W).T, np.float32, n)
        work.combine(C, on_device, out)
        work.advance(C[:1], on_device, moved[0])
        found.append(out.get().tobytes() + moved.get().tobytes())
    assert found.count(found[0]) == len(found)
    near(out.get(), C @ wide(W), np.float32, 9)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("k", "s", "n"), [(0, 1, 1), (1, 1, 40), (7, 1, 3001), (30, 1, 999), (1, 6, 31), (12, 8, 4097), (30, 5, 700)]
)
def test_products_and_replacements(place: Place, dtype: Any, k: int, s: int, n: int) -> None:
    n = place.length(n)
    work = place.engine(dtype, n)
    W = rows(k + s, n, dtype)
    exact, on_device = wide(W), held(work, W)
    blocks = work.over(on_device)
    near(blocks.products(k, s), exact.conj() @ exact[k:].T, dtype, n)
    F = rows(k + s, s, np.result_type(dtype, np.float64), 3)
    both = blocks.replace(k, s, F, check=True)
    wanted = np.concatenate([exact[:k], F.T @ exact])
    near(on_device.get(), wanted, dtype, k + s)
    near(both, wanted.conj() @ wanted[k:].T, dtype, n * (k + s) ** 2)
    x, y = rows(1, n, dtype, 4)[0], rows(1, k + s, dtype, 5)[0]
    target = held(work, x[None, :])[0]
    blocks.add(wide(y), target)
    near(target.get(), x + y @ wanted, dtype, (k + s) ** 2)
    assert not blocks.is_zero(k)
    on_device[k] = 0
    assert blocks.is_zero(k)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 255, 3001, 600_001])
def test_single_vectors(place: Place, dtype: Any, n: int) -> None:
    n = place.length(n)
    work, V = place.engine(dtype, n), rows(5, n, dtype)
    p, w, r, x, u = wide(V)
    on_device = held(work, V)
    near(work.dot(on_device, 0, 1), np.vdot(p, w), dtype, n)

    def exact(vector: NDArray[Any]) -> float:  # a BLAS of one thread is off by more than the device
        wider = vector.astype(np.clongdouble)
        return float(np.vdot(wider, wider).real)

    near(work.norm(on_device[2]) ** 2, exact(r), dtype, n)
    alpha, beta = 0.7, -0.3
    near(work.descend(on_device, alpha), exact(r - alpha * w), dtype, n)
    work.turn(on_device, alpha, beta, 4)
    near(on_device.get(), [u + beta * p, w, r - alpha * w, x + alpha * p, u], dtype, 4)
    work.add(on_device[1], 0.5, on_device[4])
    near(on_device[1].get(), w + 0.5 * u, dtype, 4)
    assert work.remain(on_device[4], on_device[3]) == pytest.approx(np.linalg.norm(u - x - alpha * p), rel=1e-5)
    near(on_device[3].get(), u - x - alpha * p, dtype, 4)
    work.divide(on_device[4], 4.0)
    near(on_device[4].get(), u / 4, dtype, 4)


@pytest.mark.parametrize(("dtype", "other"), [(np.float32, np.float64), (np.complex128, np.complex64)])
def test_vectors_of_another_precision(place: Place, dtype: Any, other: Any) -> None:
    n = place.length(3001)
    v = rows(1, n, other)[0]
    found = place.engine(dtype, n).taken(memory.to_device(v), 0.375)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.get(), (0.375 * v.astype(np.result_type(other, np.float64))).astype(dtype))


def test_many_factors_on_their_way(place: Place) -> None:
    """More operations in a row than there is room for factors: none may be overwritten before it is used."""
    n = place.length(400_000)
    work, V = place.engine(np.float64, n), rows(2, n, np.float64)
    on_device = held(work, V)
    for i in range(100):
        work.add(on_device[0], float(i), on_device[1])
    near(on_device[0].get(), V[0] + sum(range(100)) * V[1], np.float64, 1e4)


@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "diagonal"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [5, 1000, 20_011])
def test_steps_queued_ahead(place: Place, dtype: Any, n: int, scaled: bool) -> None:
    """Without a preconditioner, and with one of entries 1 to 100, which is what makes up for rows of that scale."""
    _check_steps(place, dtype, place.length(n), scaled)


@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "diagonal"])
@pytest.mark.parametrize("blocks", [1, 2])
def test_steps_of_vectors_longer_than_a_launch(place: Place, blocks: int, scaled: bool) -> None:
    """Each thread has several entries, four at a time and some behind these; sums of several blocks."""
    _check_steps(place, np.float64, 1031 * blocks, scaled, blocks)


def _check_steps(place: Place, dtype: Any, n: int, scaled: bool, blocks: int | None = None) -> None:
    A = sp.csr_array(sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(n, n)).astype(dtype))
    V = rows(4, n, dtype)
    diagonal = None
    if scaled:
        half = sp.diags_array(np.random.default_rng(6).uniform(0.1, 1.0, n).astype(dtype))
        A = sp.csr_array(half @ A @ half)
        diagonal = (1 / half.diagonal() ** 2).astype(dtype)
    V[0] = V[2] if diagonal is None else diagonal * V[2]

    def inner() -> tuple[float, float]:
        return float(np.vdot(V[2], V[0]).real), float(np.vdot(V[2], V[2]).real)

    gamma, square = inner()
    work = place.engine(dtype, n)
    work.grid = blocks or work.grid
    on_device = held(work, V)
    of_device = None if diagonal is None else held(work, diagonal[None])[0]
    queue = work.step_queue(*place.program(A, 1, 1), on_device, of_device)
    fake = FakeSteps(VectorWork(dtype, 1), FakeProgram(akx.MatrixPowers(A, 1, backend="cpu")), V, diagonal)
    goal = 1e-8 * square if np.finfo(dtype).eps > 1e-10 else 1e-16 * square
    for left in (3, 100):
        queue.begin(gamma, square, goal, left)
        fake.begin(gamma, square, goal, left)
        while True:
            one, other = queue.next(), fake.next()
            assert one.done == other.done or abs(np.log10(square / goal)) < 1
            if not (one.done and other.done):
                break
            near([one.alpha, one.beta], [other.alpha, other.beta], dtype, 100)
            assert one.gamma == pytest.approx(other.gamma, rel=1e-2)
            assert one.square == pytest.approx(other.square, rel=1e-2)
            assert scaled or one.square == one.gamma
            square = one.square
        for record in queue.rest():
            assert not record.done
        for record in fake.rest():
            assert not record.done
        near(on_device.get()[[0, 2, 3]], V[[0, 2, 3]], dtype, 100)
        V[0] = V[2] if diagonal is None else diagonal * V[2]
        on_device[:] = V
        gamma, square = inner()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("s", "n"), [(2, 40), (3, 1000), (5, 5000), (8, 20_011), (20, 3000)])
def test_blocks_queued_ahead(place: Place, dtype: Any, s: int, n: int) -> None:
    """Blocks from nothing but r: directions fill up, are moved by blocks of fewer steps, and end as asked."""
    place.skip_unless(s < 9 or dtype == np.float64)
    n = place.length(n)

    A = sp.csr_array(sp.diags_array([-1.0, 2.05, -1.0], offsets=[-1, 0, 1], shape=(n, n)).astype(dtype))
    basis = chebyshev(s, (0.05, 4.05))
    W, x = np.full((3 * s + 1, n), np.nan, dtype=dtype), rows(1, n, dtype, 1)[0]
    W[: 2 * s], W[2 * s] = 0, rows(1, n, dtype)[0]
    work = place.engine(dtype, n)
    on_device, on_device_x = held(work, W), held(work, x[None, :])[0]
    program, coefficients = place.program(A, s, 1, basis)
    queue = work.block_queue(program, on_device, on_device_x, s)
    host = FakeProgram(akx.MatrixPowers(A, s, basis=basis, backend="cpu"))
    fake = FakeBlockQueue(VectorWork(dtype, 1), host, W, x, s)
    eps = float(np.finfo(dtype).eps)
    gamma = float(np.vdot(W[2 * s], W[2 * s]).real)
    goal, left = (1e-3 if eps > 1e-10 else 1e-6) ** 2 * gamma, 4 * s + 1
    queue.start(goal, left, PIVOT, TRUST)
    fake.start(goal, left, PIVOT, TRUST)
    made, loose = 0, 1e3 * eps * 10 ** max(0, s - 3)
    for count in (1, 2, 1, 2, 2, 1, 2):  # the directions are looked at behind the fifth launch
        while not queue.is_full and not queue.launches:
            queue.launch(coefficients, count)
            fake.launch(basis, count)
        for one, other in zip(queue.next(), fake.next(), strict=True):
            if one.made != other.made:  # a decision by a hair's breadth
                assert eps > 1e-10 or s > 8
                return
            made += one.made
            if one.made == 0:
                continue
            np.testing.assert_allclose(one.gammas, other.gammas, rtol=max(loose, 1e-9) if s < 9 else 0.5)
            np.testing.assert_allclose(one.lengths, other.lengths, rtol=0, atol=loose * np.abs(other.lengths).max())
            for mine, theirs in zip(one.coefficients(), other.coefficients(), strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=max(loose, 1e-9) if s < 9 else 0.5)
            np.testing.assert_allclose(one.moduli, other.moduli, rtol=max(loose, 1e-6) if s < 9 else 0.5)
            assert one.wrong <= 1e4 * eps
    assert 0 < made <= left
    scale = max(np.abs(x).max(), 1.0)
    np.testing.assert_allclose(on_device_x.get(), x, rtol=0, atol=scale * 1e4 * eps * 10 ** max(0, s - 3))
    found = wide(on_device.get()[: 2 * s])
    np.testing.assert_allclose(found, wide(W[: 2 * s]), rtol=0, atol=1e4 * eps * 10 ** max(0, s - 3))
    for p, image in zip(found[:s], found[s:], strict=True):
        np.testing.assert_allclose(image, A @ p, rtol=0, atol=1e3 * eps * 10 ** max(0, s - 3))


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize(("dtype", "s"), [(np.float64, 5), (np.complex64, 2), (np.complex128, 8)])
def test_the_order_of_threads_does_not_matter(
    monkeypatch: pytest.MonkeyPatch, libraries: Path, dtype: Any, s: int
) -> None:
    """Blocks of steps, their ends and looks at images, threads in ascending, descending and shuffled order: bits."""
    device = install(monkeypatch, libraries)
    n, place = 101, Place(on_gpu=False)
    A = sp.csr_array(sp.diags_array([-1.0, 2.05, -1.0], offsets=[-1, 0, 1], shape=(n, n)).astype(dtype))
    basis = chebyshev(s, (0.05, 4.05))
    W = np.zeros((3 * s + 1, n), dtype=dtype)
    W[2 * s] = rows(1, n, dtype)[0]
    found = set()
    for order in (0, 1, 12345):
        device.order = order
        work = place.engine(dtype, n)
        on_device, x = held(work, W), held(work, rows(1, n, dtype, 1))[0]
        program, coefficients = place.program(A, s, 1, basis)
        queue = work.block_queue(program, on_device, x, s)
        queue.start(0.0, 100 * s, PIVOT, TRUST)
        records = []
        for _ in range(5):
            queue.launch(coefficients, 2)
            records += queue.next()
        numbers = [[one.made, *one.moduli, one.wrong, *one.gammas, *one.lengths] for one in records]
        assert sum(one.made for one in records) >= s
        found.add((on_device.get()[: 2 * s + 1].tobytes(), x.get().tobytes(), str(numbers)))
    assert len(found) == 1


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_blocks_that_end_early(place: Place, dtype: Any) -> None:
    """Where little is left of a vector of the basis a block makes fewer steps; so does the next one, from there."""
    n, s = place.length(3000), 8
    A = sp.csr_array(sp.diags_array([-1.0, 2.05, -1.0], offsets=[-1, 0, 1], shape=(n, n)).astype(dtype))
    basis = Basis("monomial", np.ones(s), np.zeros(s), np.zeros(s))
    W, x = np.zeros((3 * s + 1, n), dtype=dtype), rows(1, n, dtype, 1)[0]
    W[2 * s] = rows(1, n, dtype)[0]
    work = place.engine(dtype, n)
    on_device, on_device_x = held(work, W), held(work, x[None, :])[0]
    program, coefficients = place.program(A, s, 1, basis)
    queue = work.block_queue(program, on_device, on_device_x, s)
    fake = FakeBlockQueue(
        VectorWork(dtype, 1), FakeProgram(akx.MatrixPowers(A, s, basis=basis, backend="cpu")), W, x, s
    )
    for one in (queue, fake):
        one.start(0.0, 1000, 0.3, 0.3 / PIVOT * TRUST)
    for one, given in ((queue, coefficients), (fake, basis)):
        one.launch(given, 2)
        one.launch(given, 1)
    found, wanted = queue.next() + queue.next(), fake.next() + fake.next()
    assert [one.made for one in found] == [one.made for one in wanted]
    assert 0 < max(one.made for one in found) < s
    scale = np.abs(x).max()
    np.testing.assert_allclose(on_device_x.get(), x, rtol=0, atol=scale * 1e6 * np.finfo(dtype).eps)
    np.testing.assert_allclose(
        wide(on_device.get()[: 2 * s + 1]), wide(W[: 2 * s + 1]), rtol=0, atol=1e6 * np.finfo(dtype).eps
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("s", [2, 7, 20])
def test_the_end_of_a_block(place: Place, dtype: Any, s: int) -> None:
    """Factors of the host's, and only full ones."""
    place.skip_unless(s < 20 or dtype in (np.float32, np.complex128))
    n = place.length(4099)
    W, x = rows(3 * s + 1, n, dtype), rows(1, n, dtype, 1)[0]
    work = place.engine(dtype, n)
    on_device, on_device_x = held(work, W), held(work, x[None, :])[0]
    C, moved = wide(rows(s, 3 * s + 1, dtype, 2)), wide(rows(1, s, dtype, 3)[0])
    work.advance_block(C, moved, on_device, on_device_x)
    rest = W[2 * s + 1 :].copy()
    advance_block(VectorWork(dtype, 1), C, moved, W, x)
    scale = 10.0 * s
    near(on_device.get()[: 2 * s + 1], W[: 2 * s + 1], dtype, scale**2)
    near(on_device_x.get(), x, dtype, scale**2)
    np.testing.assert_array_equal(on_device.get()[2 * s + 1 :], rest)


@pytest.mark.parametrize("dtype", DTYPES)
def test_wrong_images_are_seen(place: Place, dtype: Any) -> None:
    n, s = place.length(5000), 7
    A = sp.eye_array(n, format="csr", dtype=dtype)
    Q = np.linalg.qr(rows(s, n, dtype).T)[0].T
    W = np.zeros((3 * s + 1, n), dtype=dtype)
    W[2:s], W[s + 2 : 2 * s] = Q[2:], Q[2:]  # two directions are not there
    basis = Basis("monomial", np.ones(s), np.zeros(s), np.zeros(s))
    work = place.engine(dtype, n)
    for off in (0.0, 1e-3, np.nan):
        on_device, x = held(work, W), held(work, rows(1, n, dtype))[0]
        if off:
            spoilt = W[2 * s - 1].copy()
            spoilt += np.asarray(off, dtype) * Q[3]
            on_device[2 * s - 1] = held(work, spoilt[None, :])[0]
        program, coefficients = place.program(A, s, 1, basis)
        queue = work.block_queue(program, on_device, x, s)
        queue.start(0.0, 0, PIVOT, TRUST)  # no steps are left: directions stay as they are
        for _ in range(4):
            queue.launch(coefficients, 2)
            assert [record.wrong for record in queue.next()] == [0.0] * 2
        queue.launch(coefficients, 1)
        (record,) = queue.next()
        assert record.made == 0
        assert queue.wrong() == pytest.approx(record.wrong, nan_ok=True)
        assert record.wrong == pytest.approx(off, rel=1e-2, abs=100 * float(np.finfo(dtype).eps), nan_ok=True)


def test_directions_are_looked_at_less_often_while_they_are_right(place: Place) -> None:
    n, s = 40, 2
    work = place.engine(np.float64, n)
    program, coefficients = place.program(sp.eye_array(n, format="csr"), s, 1, chebyshev(s, (0.5, 1.5)))
    queue = work.block_queue(program, held(work, rows(3 * s + 1, n, float)), held(work, rows(1, n, float))[0], s)
    queued, looked = [0], []
    queue._go = lambda *_: queued.append(queued[-1] + 2)
    queue._look = lambda stream: looked.append(queued[-1])
    queue.start(0.0, 1000, PIVOT, TRUST)
    for _ in range(120):
        queue.launch(coefficients, 2)
    assert np.diff([0, *looked]).tolist() == [8] * 4 + [16] * 4 + [32] * 4
    queue.start(0.0, 1000, PIVOT, TRUST)
    for _ in range(4):
        queue.launch(coefficients, 2)
    assert looked[12:] == [242]  # as often as at first, counted from the last one


def test_a_block_that_overflows_changes_nothing(place: Place) -> None:

    n, s = place.length(3000), 8
    A = sp.csr_array(sp.diags_array([-1.0, 2.05, -1.0], offsets=[-1, 0, 1], shape=(n, n)) * 1e60)
    basis = Basis("monomial", np.ones(s), np.zeros(s), np.zeros(s))
    W, x = rows(3 * s + 1, n, np.float64), rows(1, n, np.float64, 1)[0]
    work = place.engine(np.float64, n)
    on_device, on_device_x = held(work, W), held(work, x[None, :])[0]
    program, coefficients = place.program(A, s, 1, basis)
    queue = work.block_queue(program, on_device, on_device_x, s)
    queue.start(1e-30, 100, PIVOT, TRUST)
    queue.launch(coefficients)
    queue.launch(coefficients)
    assert [record.made for _ in range(2) for record in queue.next()] == [0, 0]
    np.testing.assert_array_equal(on_device[: 2 * s + 1].get(), W[: 2 * s + 1])
    np.testing.assert_array_equal(on_device_x.get(), x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("s", [1, 2, 6, 9])
@pytest.mark.parametrize("n", [300, 7001])
def test_rows_queued_ahead(place: Place, dtype: Any, s: int, n: int) -> None:
    """Rows orthonormal to what is allowed, and the factors that make the powers of them again."""
    place.skip_unless(n == 300 and (s, dtype) in ((1, np.float64), (6, np.float64), (6, np.complex64)))
    n, most = place.length(n, 71), 30 if place.on_gpu else 8

    A = sp.csr_array(sp.diags_array([-1.3, 2.4, -0.7], offsets=[-1, 0, 1], shape=(n, n)).astype(dtype))
    basis = Basis("newton", np.full(s, 0.5), np.linspace(-2.0, -0.5, s), np.zeros(s))
    eps = float(np.finfo(dtype).eps)
    W = np.full((most + s + 2, n), np.nan, dtype=dtype)
    W[0] = rows(1, n, dtype)[0]
    W[0] /= np.linalg.norm(W[0])
    work = place.engine(dtype, n)
    program, coefficients = place.program(A, s, 1, basis)
    host = akx.MatrixPowers(A, s, basis=basis, backend="cpu")
    for allowed in (eps**0.5, 40 * eps):  # few second rounds, and many
        on_device = held(work, W)
        queue = work.rows_queue(on_device, allowed, s)
        again = []
        for _ in range(3):  # kernel by kernel, then graphs, then the same graphs
            queue.begin(0.0)
            on_device[1:] = W[1:]
            for last in range(0, most, s):
                queue.launch(program, coefficients, [(last, min(s, most - last))])
                record = queue.next()
                assert record.good
                assert record.loss <= allowed
                k, count = last + 1, min(s, most - last)
                Q = wide(on_device[: k + count].get())
                off = np.abs(Q.conj() @ Q.T - np.eye(k + count)).max()
                assert off <= 20 * allowed
                V = wide(host(Q[last].astype(dtype)).T)[1 : count + 1]
                np.testing.assert_allclose(record.norms, np.linalg.norm(V, axis=1), rtol=100 * eps)
                made = record.C.T @ Q[:k] + record.R.T @ Q[k:]
                np.testing.assert_allclose(made, V, rtol=0, atol=200 * eps * np.abs(V).max())
                np.testing.assert_array_equal(np.tril(record.R, -1), 0)
            again.append(on_device[: most + 1].get().tobytes())
        assert again[0] == again[1] == again[2]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("s", "first"), [(1, 0.0), (1, 1e-9), (3, 0.0)])
def test_what_rows_lose_is_measured_by_the_way(place: Place, dtype: Any, s: int, first: float) -> None:
    """A bound by what single rows have lost, in the Frobenius norm; that of blocks by bounds of it."""
    place.skip_unless((dtype, s, first) in ((np.float64, 1, 0.0), (np.complex64, 1, 1e-9), (np.float64, 3, 0.0)))
    n, most = place.length(3000, 71), 24 if place.on_gpu else 16
    A = sp.csr_array(sp.diags_array([-1.3, 2.4, -0.7], offsets=[-1, 0, 1], shape=(n, n)).astype(dtype))
    basis = Basis("newton", np.full(s, 0.5), np.linspace(-2.0, -0.5, s), np.zeros(s))
    eps, bound = float(np.finfo(dtype).eps), first
    W = np.full((most + s + 1, n), np.nan, dtype=dtype)
    W[0] = rows(1, n, dtype)[0]
    W[0] /= np.linalg.norm(W[0])
    work = place.engine(dtype, n)
    program, coefficients = place.program(A, s, 1, basis)
    on_device = held(work, W)
    queue = work.rows_queue(on_device, 1e30, s)  # no second round
    queue.begin(first)
    for last in range(0, most, s):
        queue.launch(program, coefficients, [(last, s)])
        record = queue.next()
        assert record.good
        k = last + 1
        kappa = float(np.linalg.norm(np.linalg.inv(record.R / record.norms)))
        Q = wide(on_device[: k + s].get())
        off = Q.conj() @ Q.T - np.eye(k + s)
        assert np.abs(off[:, k:]).max() <= 3 * record.loss
        if s == 1:
            off[0, 0] = 0  # the first row is nobody's block
            bound = np.hypot(first, np.linalg.norm(off[:k, :k]))
        assert record.loss == pytest.approx(kappa * bound + eps * kappa**2, rel=0.02, abs=10 * eps * kappa)
        if s > 1:
            bound = max(bound, record.loss)


def test_rows_that_depend_on_one_another_are_refused(place: Place) -> None:

    n, s = place.length(1000), 6
    A = sp.eye_array(n, format="csr")
    basis = Basis("monomial", np.ones(s), np.zeros(s), np.zeros(s))
    W = np.zeros((12, n))
    W[0, 3] = 1.0
    work = place.engine(np.float64, n)
    for k in (1, s):
        program, coefficients = place.program(A, k, 1, basis.head(k))
        queue = work.rows_queue(held(work, W), 1e-8, s)
        queue.begin(0.0)
        queue.launch(program, coefficients, [(0, k)])
        assert not queue.next().good


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("s", [1, 4])
def test_cycles_of_few_launches(place: Place, dtype: Any, s: int) -> None:
    """The same rows by one run a launch and by several, from the residual over its norm on; x and its residual."""
    place.skip_unless((s, dtype) in ((1, np.float64), (4, np.complex64)))
    n, most = place.length(5003, 71), 10
    A = sp.csr_array(sp.diags_array([-1.3, 2.4, -0.7], offsets=[-1, 0, 1], shape=(n, n)).astype(dtype))
    basis = Basis("newton", np.full(s, 0.5), np.linspace(-2.0, -0.5, s), np.zeros(s))
    b, x, y = rows(1, n, dtype)[0], rows(1, n, dtype, 1)[0], rows(1, most, dtype, 2)[0]
    work = place.engine(dtype, n)
    powers, one = place.program(A, s, 1, basis), place.program(A, 1, 1)
    W = held(work, np.full((most + s + 1, n), np.nan, dtype=dtype))
    queue = work.rows_queue(W, 1e-3, s)
    on_device_b, on_device_x = held(work, b[None, :])[0], held(work, x[None, :])[0]
    runs = [(last, min(s, most - last)) for last in range(0, most, s)]
    near_one, made = np.sqrt(n) * 10, W.get()
    for turn, parts in enumerate(([1] * len(runs), [1] * len(runs), [-(-len(runs) // 2), len(runs) // 2], [len(runs)])):
        x_before = on_device_x.get()
        on_device_x = queue.restart(*one, wide(y)[: 0 if turn == 0 else most], on_device_x, on_device_b)
        norm = queue.residual()
        if turn:
            x_before = x_before + y @ made[:most]
        near(on_device_x.get(), x_before, dtype, near_one)
        r = b - A @ on_device_x.get()
        near(W[1].get(), r, dtype, near_one)
        assert norm == pytest.approx(np.linalg.norm(wide(r)), rel=1e-5)
        queue.start(norm, 1)
        first = W[1].get()
        W[2:] = np.full((most + s - 1, n), np.nan, dtype=dtype)
        at, records = 0, []
        for part in parts:
            queue.launch(*powers, runs[at : at + part])
            at += part
            if len(parts) == 2:  # the next is under way while records are read
                continue
            records += [queue.next() for _ in range(part)]
        records += [queue.next() for _ in range(at - len(records))]
        assert queue.launches == 0
        assert all(record.good and record.loss <= 1e-3 for record in records)
        made = W.get()
        near(made[0], first * (1 / norm), dtype)
        Q = wide(made[: most + 1])
        assert np.abs(Q.conj() @ Q.T - np.eye(most + 1)).max() <= 20e-3
        for (last, wanted), record in zip(runs, records, strict=True):
            host = akx.MatrixPowers(A, s, basis=basis, backend="cpu")
            V = wide(host(made[last]).T)[1 : wanted + 1]
            again = record.C.T @ Q[: last + 1] + record.R.T @ Q[last + 1 : last + 1 + wanted]
            np.testing.assert_allclose(again, V, rtol=0, atol=200 * np.finfo(dtype).eps * np.abs(V).max())


def test_a_launch_of_several_runs_has_the_bits_of_single_ones(place: Place) -> None:
    n, most, s = place.length(4001, 71), 9, 3
    A = sp.csr_array(sp.diags_array([-1.3, 2.4, -0.7], offsets=[-1, 0, 1], shape=(n, n)))
    basis = Basis("newton", np.full(s, 0.5), np.linspace(-2.0, -0.5, s), np.zeros(s))
    work, start = place.engine(np.float64, n), rows(1, n, np.float64)[0]
    W = held(work, np.full((most + s + 1, n), np.nan))
    powers, queue, runs = place.program(A, s, 1, basis), None, [(last, s) for last in range(0, most, s)]
    queue = work.rows_queue(W, 1e-8, s)
    found = []
    for parts in ([1, 1, 1], [1, 1, 1], [2, 1], [3], [3]):
        W[0] = start
        W[1:] = np.full((most + s, n), np.nan)
        queue.start(float(np.linalg.norm(start)), 0)
        at, records = 0, []
        for part in parts:
            queue.launch(*powers, runs[at : at + part])
            at += part
        records = [queue.next() for _ in runs]
        found.append((W[: most + 1].get().tobytes(), [record.C.tobytes() + record.R.tobytes() for record in records]))
    assert found.count(found[0]) == len(found)
