"""The contract of backends: what every one of the registry must do, the fake one included; without a GPU not CUDA's."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_backend
import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx.backends import registry
from akx.backends.base import Backend
from akx.backends.device import Device
from akx.backends.schedule import as_coefficients
from akx.backends.selection import backend_of, device_of, is_usable, plan_threads
from akx.backends.vectors import Vectors
from akx.core.errors import ArgumentError, ArgumentTypeError
from akx.core.matrix import Matrix
from akx.plandb import make_key
from akx.solvers import cg, gmres, tune_for
from akx.solvers.preconditioners import spai
from akx.tuner import predict, tune
from akx.tuner.space import resolve_backend

with fake_backend.registered():
    BACKENDS = registry.backends()


@pytest.fixture(autouse=True)
def _fake_backend() -> Iterator[None]:
    with fake_backend.registered():
        yield


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    found = backend_of(request.param)
    if found.missing() is not None:
        pytest.skip(str(found.missing()))
    return found


def laplacian(n: int = 400) -> Any:
    return sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(n, n), format="csr")


def test_all_backends_are_here() -> None:
    assert BACKENDS == ("cpu", "cuda", "fake")


@pytest.mark.parametrize("name", BACKENDS)
def test_traits_are_told_without_a_device(name: str) -> None:
    backend = backend_of(name)
    assert isinstance(backend, Backend)
    assert backend.name == name
    assert backend.places >= 1
    assert backend.tuning_seconds > 0
    assert any(one.options.is_plain for one in registry.schedules(name))
    assert all(one.backend == name for one in registry.schedules(name))
    assert plan_threads(name, 3) == (3 if backend.uses_threads else 1)
    assert backend.device_similarity("one", "another") is None
    assert set(backend.variant_names()) == set(backend.variants())


def test_the_facts_of_a_device(backend: Backend) -> None:
    device = backend.device()
    assert isinstance(device, Device)
    assert device == device_of(backend.name)
    assert device.backend == backend.name
    assert device.device_class.startswith(f"{backend.name}/")
    assert device.name in device.device_class
    assert device.cores >= 1
    assert device.budget == 0
    assert device.identity
    assert device.whole() == device
    assert pickle.loads(pickle.dumps(device)) == device
    hertz = backend.clock_hz()
    assert hertz is None or hertz > 0


def test_memory_is_one_of_copies_or_the_hosts(backend: Backend) -> None:
    given = np.arange(12.0).reshape(3, 4)
    held = backend.to_device(given)
    assert (held is given) is not backend.has_own_memory
    assert np.array_equal(backend.to_host(held), given)
    assert backend.free_bytes() >= 0


def test_figures_are_rates(backend: Backend) -> None:
    device = backend.device()
    found = backend.derived_figures(device, 1)
    rates = (found.slow_bandwidth, found.last_level_bandwidth, found.cache_bandwidth, found.flops)
    assert min(rates) > 0
    assert found.last_level_bytes > 0
    assert (found.link_bandwidth > 0) is backend.has_own_memory


def test_a_program_is_timed_where_its_vectors_are(backend: Backend) -> None:
    matrix = Matrix.from_any(laplacian())
    schedule: Any = registry.get(backend.name, "sweep")
    program = schedule.prepare(matrix, predict(matrix, 2, backend=backend.name, plain=True))
    coefficients = as_coefficients(np.ones(2), np.zeros(2), np.zeros(2), matrix.dtype)
    x, out = np.ones((1, matrix.n)), np.full((3, 1, matrix.n), np.nan)

    class Problem:
        pass

    problem: Any = Problem()
    problem.x, problem.out, problem.coefficients = x, out, coefficients
    vectors = backend.trial_vectors(problem)
    vectors.poison()
    vectors.call(program)()
    vectors.fetch()
    A = matrix.to_scipy()
    assert np.allclose(out[2, 0], A @ (A @ x[0]))
    backend.call(program, x, out, coefficients)()


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_vectors_are_what_numpy_says(backend: Backend, dtype: str) -> None:
    rng, n = np.random.default_rng(0), 300
    W = (rng.standard_normal((5, n)) + (1j * rng.standard_normal((5, n)) if dtype[0] == "c" else 0)).astype(dtype)
    work = backend.vectors(np.dtype(dtype), n, 1)
    assert isinstance(work, Vectors)
    assert (work.backend, work.dtype) == (backend.name, np.dtype(dtype))
    close: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4}
    V = work.from_host(W.copy())
    assert work.rows(2, n).shape == (2, n)
    assert work.norm(V[1]) == pytest.approx(np.linalg.norm(W[1]), rel=1e-5)
    assert np.allclose(work.gram(V), W.conj() @ W.T, **close)
    assert work.dot(V, 0, 3) == pytest.approx(complex(np.vdot(W[0], W[3])), rel=1e-3, abs=1e-3)
    C = rng.standard_normal((2, 5)).astype(dtype)
    assert np.allclose(work.to_host(work.combine(C, V, work.rows(2, n))), C @ W, **close)
    work.add(V[0], 2.0, V[1])
    assert np.allclose(work.to_host(V[0]), W[0] + 2 * W[1], **close)
    work.divide(V[2], 4.0)
    assert np.allclose(work.to_host(V[2]), W[2] / 4, **close)
    assert work.remain(V[3], V[4]) == pytest.approx(np.linalg.norm(W[3] - W[4]), rel=1e-4)
    assert np.allclose(work.to_host(V[4]), W[3] - W[4], **close)
    if not work.on_device:
        with pytest.raises(NotImplementedError, match=backend.name):
            work.rows_queue(V, 1.0, 3)


def test_all_of_akx_works_on_a_backend_of_150_lines(tmp_path: Path) -> None:
    """Powers, a search whose plan is kept and found again, and solvers."""
    assert len(Path(fake_backend.__file__).read_text().splitlines()) <= 150
    A, x, db = laplacian(), np.linspace(0, 1, 400), tmp_path / "plans.sqlite"
    options: dict[str, Any] = {"backend": "fake", "db": db}
    V = akx.matrix_powers(A, x, 3, **options)
    assert np.allclose(V[:, 3], A @ (A @ (A @ x)))
    result = tune(A, 3, seconds=2, trials=4, **options)
    assert result.plan.backend == "fake"
    assert result.device.startswith("fake/")
    P = akx.MatrixPowers(A, 3, **options)
    assert np.array_equal(P(x), akx.MatrixPowers(A, 3, plan=result.plan)(x))
    assert P.plan == result.plan
    assert tune(A, 3, seconds=2, trials=4, **options).reused
    for solver in (cg, gmres):
        found, info = solver(A, x, rtol=1e-10, **options)
        assert info == 0
        assert np.linalg.norm(A @ found - x) <= 1e-9 * np.linalg.norm(x)
    with pytest.raises(ArgumentError, match="a memory budget is for the GPU"):
        akx.MatrixPowers(A, 3, memory_budget="1M", **options)


# ------------------------------------------------------------------------------------- a backend that there is not


@pytest.mark.parametrize(
    "ask",
    [
        device_of,
        is_usable,
        plan_threads,
        resolve_backend,
        lambda name: akx.MatrixPowers(laplacian(), 2, backend=name),
        lambda name: akx.MatrixPowers(laplacian(), 2, backend=name, memory_budget="1M"),
        lambda name: akx.MatrixPowers(laplacian(), 2, plan=akx.Plan(name, "sweep", "csr", k=2))(np.ones(400)),
        lambda name: akx.matrix_powers(laplacian(), np.ones(400), 2, backend=name),
        lambda name: tune(laplacian(), 2, backend=name, db=False),
        lambda name: tune_for(laplacian(), "ca_cg", backend=name, db=False),
        lambda name: predict(Matrix.from_any(laplacian()), 2, backend=name),
        lambda name: make_key(Matrix.from_any(laplacian()), 2, device=fake_backend.FakeDevice(), backend=name),
        lambda name: cg(laplacian(), np.ones(400), backend=name),
        lambda name: akx.solvers.solve(laplacian(), np.ones(400), backend=name),
        lambda name: spai(laplacian(), backend=name),
        lambda name: registry.get(name, "sweep"),
    ],
)
def test_an_unknown_backend_is_an_error(ask: Any) -> None:
    with pytest.raises(ArgumentError, match=r"unknown backend.*hip"):
        ask("hip")


def test_what_is_no_name_is_another_error() -> None:
    with pytest.raises(ArgumentTypeError, match="unknown backend"):
        device_of(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="unknown backend"):
        akx.matrix_powers(laplacian(), np.ones(400), 2, backend=["cpu"])  # type: ignore[arg-type]
