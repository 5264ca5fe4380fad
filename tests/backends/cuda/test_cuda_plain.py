"""First calls and solves on a GPU that is not there: plain products, and what stays for the second one.

Kernels are those of the GPU, compiled by g++ (host_engine.py); marked ``cuda`` is what runs on a real one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import host_engine
import numpy as np
import program_on_host
import pytest
import scipy.sparse as sp
from test_tiers import steps

import akx
from akx import Basis, Matrix
from akx.backends.cuda import caller_arrays
from akx.backends.cuda.csr import plain
from akx.backends.cuda.device import interchange, memory
from akx.backends.cuda.device.facts import cuda_missing
from akx.backends.cuda.device.memory import DeviceArray
from akx.backends.cuda.device.pool import MemoryPool
from akx.backends.cuda.vectors import arnoldi, conjugate, queues
from akx.backends.cuda.vectors import operations as vectors
from akx.backends.selection import backend_of
from akx.operator import cache, lookup, powers, tiers
from akx.operator import device_products as plain_calls
from akx.operator.device_products import PlainOperator
from akx.operator.overflow import OverflowWatch
from akx.solvers import SOLVERS, Solver, products, solve, solver
from akx.solvers.system import make_system

on_host = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
on_gpu = pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
NEWTON = Basis("newton", np.ones(4), np.array([0.5, -1, 0.2, 3]), np.array([0, 1, 2, -1.0]))


@pytest.fixture(autouse=True)
def _from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("AKX_PREPARE")
    tiers.forget()
    akx.clear_cache()
    yield
    akx.clear_cache()


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("on_host")


@pytest.fixture
def done() -> Counter[str]:
    """What was asked of the driver, so far."""
    return Counter()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, libraries: Path, done: Counter[str]) -> Any:
    """A GPU of the host."""
    sources = "sweep", "long_rows", "vectors", "conjugate", "products", "mix", "advance", "blocks", "gram_schmidt"
    found = program_on_host.Device(SimpleNamespace(sms=2, arch="host"), libraries, *sources)
    modules = plain, vectors, conjugate, arnoldi, queues, memory, interchange

    def counted(name: str, made: Callable[..., Any]) -> Callable[..., Any]:
        def count(*given: Any, **named: Any) -> Any:
            done[name] += 1
            return made(*given, **named)

        return count

    taken, pool, own = dict[int, Any](), MemoryPool(), memory.empty

    def allocate(size: int) -> int:
        octets = np.full(size + 512, 0xFF, dtype=np.uint8)
        address = octets.ctypes.data + -octets.ctypes.data % 512
        taken[address] = octets
        done["allocate"] += 1
        return int(address)

    monkeypatch.setattr(pool, "_allocate", allocate)
    monkeypatch.setattr(memory, "memory_pool", lambda: pool)
    monkeypatch.setattr(host_engine, "empty", own)
    for name in ("empty", "to_device", "pinned", "send", "HostEvent"):
        monkeypatch.setattr(host_engine, name, counted(name, getattr(host_engine, name)))
    for name in ("load", "capture"):
        monkeypatch.setattr(found, name, counted(name, getattr(found, name)))
    found.install(monkeypatch, libraries, modules)
    monkeypatch.setattr(arnoldi, "_recorded", _recorded)
    monkeypatch.setattr(lookup, "operator_for", lambda *given, **named: pytest.fail("an operator was asked for"))
    return found


def _recorded(program: Any, calls: Any, before: Any) -> Any:
    """What a graph of these does: copies are not recorded by this device."""

    def replay(stream: Any) -> None:
        if before is not None:
            before(stream)
        for x, out, then in calls:
            program.enqueue(x, out, program.coefficients)
            then(stream)

    return SimpleNamespace(launch=replay)


def matrix(dtype: Any = float, n: int = 60, index: Any = np.int32) -> sp.csr_array:
    """Entries of a row in any order, one row without any, a long one, int32 or int64."""
    rng = np.random.default_rng(0)
    A = sp.random_array((n, n), density=0.1, rng=rng, format="lil") / 4
    A[5], A[7] = 0, rng.random(n) / 9
    A = sp.csr_array(A * (1 + 0.5j) if np.dtype(dtype).kind == "c" else A).astype(dtype)
    A.indices, A.indptr = A.indices.astype(index), A.indptr.astype(index)
    return A


def laplacian(n: int = 400, dtype: Any = float, near: float = 2.2) -> sp.csr_array:
    d = np.random.default_rng(0).random(n)
    A = sp.csr_array(sp.diags_array([-d[1:], near + d, -d[1:]], offsets=[-1, 0, 1]))
    return sp.csr_array(A.astype(dtype))


def start(dtype: Any, vectors: int | None) -> Any:
    shape = (60,) if vectors is None else (60, vectors)
    return np.random.default_rng(1).random(shape).astype(dtype)


def check_powers(given: Any, A: Any, x: Any, basis: Basis | None) -> Any:
    """V by the first calls: kernel by kernel, and as a graph; and where the caller says."""
    named: Any = "monomial" if basis is None else basis
    exact = steps(A, x, 4, basis)
    for _ in range(3):
        V = akx.matrix_powers(given, x, 4, basis=named, backend="cuda")
        scale = np.abs(exact).max()
        tolerance = 1e-5 if np.finfo(V.dtype).eps > 1e-10 else 1e-13
        np.testing.assert_allclose(V, exact, rtol=tolerance, atol=tolerance * scale)
        assert V.dtype == np.result_type(x.dtype, A.dtype if A.dtype.kind in "fc" else float)
    out = np.full(V.shape, np.nan, dtype=V.dtype, order="F")
    assert akx.matrix_powers(given, x, 4, basis=named, backend="cuda", out=out) is out
    np.testing.assert_array_equal(out, V)
    return V


@on_host
@pytest.mark.parametrize(
    ("dtype", "vectors"), [(np.float32, 3), (np.float64, None), (np.complex64, 1), (np.complex128, 13)]
)
def test_first_calls_are_right_in_every_type_and_for_any_number_of_start_vectors(
    device: Any, dtype: Any, vectors: int | None
) -> None:
    A = matrix(dtype)
    x = start(np.float32 if dtype in (np.float32, np.complex64) else float, vectors)
    for basis in (None, NEWTON):
        V = check_powers(A, A, x, basis)
        np.testing.assert_array_equal(V, check_powers(Matrix.from_any(A), A, x, basis))


@on_host
@pytest.mark.parametrize("kind", ["int64 indices", "integers", "coo", "wide x"])
def test_first_calls_take_what_prepared_ones_do(device: Any, kind: str) -> None:
    A: Any = matrix(index=np.int64) if kind == "int64 indices" else matrix(np.float32 if kind == "wide x" else float)
    if kind == "integers":
        A = sp.csr_array(np.round(9 * A.toarray()).astype(np.int16))
    check_powers(A.tocoo() if kind == "coo" else A, A, start(float, None), None)


@pytest.mark.parametrize(
    ("n", "nnz", "longest", "lanes"),
    [(100, 700, 7, 2), (100, 2700, 27, 8), (100, 30000, 300, 32), (100, 700, 2000, 32)],
)
def test_threads_of_a_row_are_by_its_length(n: int, nnz: int, longest: int, lanes: int) -> None:
    assert plain.lanes_of(n, nnz, longest) == lanes


@on_host
@pytest.mark.parametrize("order", [0, 1, 7])
@pytest.mark.parametrize(("dtype", "vectors"), [(np.float64, None), (np.complex64, 3)])
def test_long_rows_have_blocks_of_their_own(
    device: Any, monkeypatch: pytest.MonkeyPatch, dtype: Any, vectors: int | None, order: int
) -> None:
    """Right, and the same bits in every order of threads."""
    A, x = matrix(dtype), start(float, vectors)
    usual = plain.CudaPlainProducts(A.indptr, A.indices, A.data)
    assert usual.long_rows is None
    monkeypatch.setattr(plain, "_OWN_BLOCK", 9)
    monkeypatch.setattr(plain, "_OVER_MEAN", 1)
    found = plain.CudaPlainProducts(A.indptr, A.indices, A.data)
    lengths = np.diff(A.indptr)
    np.testing.assert_array_equal(found.long_rows.get(), np.flatnonzero(lengths > found.most))
    assert found.long_rows.size > 1
    assert found.lanes == plain.lanes_of(A.shape[0], lengths[lengths <= found.most].sum(), 0) <= usual.lanes
    device.threads.order = order
    V = check_powers(A, A, x, NEWTON)
    device.threads.order = 0
    np.testing.assert_array_equal(V, check_powers(Matrix.from_any(A), A, x, NEWTON))


@on_host
def test_changes_in_place_and_wrong_arguments_are_seen(device: Any) -> None:
    A, x = matrix(), start(float, None)
    check_powers(A, A, x, None)
    A.data *= 2
    check_powers(A, A, x, None)
    A.data[3] = np.nan
    with pytest.raises(akx.MatrixError, match="not finite"):
        akx.matrix_powers(A, x, 4, backend="cuda")
    for wrong in ({"value_error": 2.0}, {"threads": 0}, {"out": np.empty((60, 3))}):
        with pytest.raises(akx.AkxError):
            akx.matrix_powers(matrix(), x, 4, backend="cuda", **wrong)
    with pytest.raises(akx.ArgumentError, match="x does not fit"):
        akx.matrix_powers(matrix(), x[:-1], 4, backend="cuda")


@on_host
@pytest.mark.parametrize("vectors", [None, 3])
def test_start_vectors_on_the_device_have_their_answer_there(
    device: Any, monkeypatch: pytest.MonkeyPatch, vectors: int | None
) -> None:
    """Changes of A in place and places of V that x is in too; nothing but A is sent."""
    monkeypatch.setattr(interchange, "_check_device", lambda _: None)
    monkeypatch.setattr(OverflowWatch, "look_on_device", lambda *_: None)
    captured: list[bool] = []
    monkeypatch.setattr(caller_arrays, "is_captured", lambda _: bool(captured))
    A, x = matrix(), start(float, vectors)
    there = interchange.DeviceView(memory.to_device(np.ascontiguousarray(x.T)), x.shape, (8, 480)[: x.ndim])
    for _ in range(3):
        V = akx.matrix_powers(A, there, 4)
        assert isinstance(V, interchange.DeviceView)
        np.testing.assert_array_equal(V.get(), akx.matrix_powers(A, x, 4, backend="cuda"))
    A.data *= -1.5
    for first in (0, 2):
        held = memory.empty((5, *x.shape[::-1]), np.float64)
        held.fill_bytes(0)
        shape = (*x.shape, 5)
        out = interchange.DeviceView(held, shape, tuple(8 * int(np.prod(shape[:axis])) for axis in range(len(shape))))
        held[first] = np.ascontiguousarray(x.T)
        given = interchange.DeviceView(held[first], shape[:-1], out.strides[:-1])
        assert akx.matrix_powers(A, given, 4, out=out) is out
        np.testing.assert_allclose(out.get(), steps(A, x, 4), rtol=1e-12)
        A.data *= -1
    captured.append(True)  # events are no part of a caller's graph
    with pytest.raises(pytest.fail.Exception, match="an operator was asked for"):
        akx.matrix_powers(A, there, 4)


@on_host
def test_what_another_thread_may_have_changed_is_not_kept(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = iter(range(100))
    monkeypatch.setattr(plain_calls, "has_other_threads", lambda: True)
    monkeypatch.setattr(plain_calls, "content_of", lambda A, threads: (next(tokens),))
    A, x = matrix(), start(float, None)
    for _ in range(2):
        np.testing.assert_allclose(akx.matrix_powers(A, x, 4, backend="cuda"), steps(A, x, 4), rtol=1e-12)
        assert not cache.CACHE._plain


@on_host
def test_a_matrix_for_which_the_device_has_no_room_is_prepared(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plan may stream it."""

    def full(*_: Any) -> Any:
        raise akx.DeviceMemoryError("the device is out of memory")

    monkeypatch.setattr(plain, "to_device", full)
    monkeypatch.setattr(lookup, "operator_for", lambda *_, **__: _Prepared())
    for A in (matrix(), Matrix.from_any(matrix())):
        assert akx.matrix_powers(A, np.ones(60), 4, backend="cuda") == "prepared"
    given = Matrix.from_any(laplacian())
    made = make_system("cg", given, np.ones(400), backend="cuda")
    assert not made.is_plain


class _Prepared:
    looks_for_overflow = False

    def __call__(self, x: Any, out: Any = None) -> Any:
        return "prepared"


@on_host
def test_a_second_call_sends_nothing_but_x(device: Any, done: Counter[str]) -> None:
    A, x = Matrix.from_any(matrix()), start(float, None)
    for _ in range(2):
        akx.matrix_powers(A, x, 4, backend="cuda")
    done.clear()
    akx.matrix_powers(A, x, 4, backend="cuda")
    assert not done
    akx.clear_cache()
    akx.matrix_powers(A, x, 4, backend="cuda")
    assert done["to_device"] >= 3


@on_host
def test_calls_are_prepared_after_a_fixed_number(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "is_loaded", lambda: True)
    asked = list[Any]()

    def prepared(A: Any, *_: Any, **__: Any) -> Any:
        asked.append(A)
        return _Prepared()

    monkeypatch.setattr(lookup, "operator_for", prepared)
    monkeypatch.setattr(tiers, "_GPU_MATRIX", 1e-4)
    counts = []
    for seed in (0, 1):
        A, calls = Matrix.from_any(sp.csr_array(matrix() * (seed + 1))), 0
        while not isinstance(akx.matrix_powers(A, np.ones(60), 4, backend="cuda"), str):
            calls += 1
        assert akx.matrix_powers(A, np.ones(60), 4, backend="cuda") == "prepared"
        counts.append(calls)
    assert counts[0] == counts[1] > 10
    assert not cache.CACHE._plain


@on_host
@pytest.mark.parametrize("word", ["always", "fixed"])
def test_nothing_is_plain_where_all_is_prepared_at_once(
    device: Any, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setenv("AKX_PREPARE", word)
    monkeypatch.setattr(lookup, "operator_for", lambda *_, **__: SimpleNamespace(__call__=None))
    with pytest.raises(TypeError):
        akx.matrix_powers(matrix(), np.ones(60), 4, backend="cuda")


# ----------------------------------------------------------------------------------------------------------- solvers


@on_host
@pytest.mark.parametrize("name", [*SOLVERS, "solve"])
def test_first_solves_are_right_and_the_same_every_time(device: Any, name: str) -> None:
    """Not prepared, whatever the solver; a second and a third one give the same bits, by what is kept."""
    solver = {**SOLVERS, "solve": solve}[name]
    A, b = laplacian(120), np.random.default_rng(1).random(120)
    held, found = Matrix.from_any(A), []
    for given in (held, held, held, A, A):
        x, info = solver(given, b, rtol=1e-9, backend="cuda")
        assert info == 0
        assert np.linalg.norm(b - A @ x) <= 1.01e-9 * np.linalg.norm(b)
        found.append(x)
    for x in found:
        np.testing.assert_array_equal(x, found[0])
    y, info = solver(held, 2 * b, rtol=1e-9, backend="cuda")
    np.testing.assert_allclose(y, 2 * found[0], rtol=1e-6)


@on_host
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_what_a_first_solve_loads_was_begun(device: Any, monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    begun, loaded = list[Any](), list[Any]()

    def load(source: Path, macros: Any, **named: Any) -> Any:
        loaded.append((source.stem, macros))
        return device.load(source, macros, **named)

    def begin(wanted: Any, *, device: Any) -> None:
        begun.extend((source.stem, macros) for source, macros in wanted)

    monkeypatch.setattr(type(backend_of("cuda")), "missing", lambda self: None)
    monkeypatch.setattr(plain, "_expected", set())
    monkeypatch.setattr(plain, "begin", begin)
    for module in (plain, vectors):
        monkeypatch.setattr(module, "load", load)
    A, b = laplacian(100, dtype), np.random.default_rng(1).random(100).astype(dtype)
    first = SOLVERS["cg"](A, b, rtol=1e-5, backend="cuda")[0]
    assert [name for name, _ in begun] == ["content", "canonical", "sweep", "vectors", "conjugate"]
    assert all(one in begun for one in loaded)
    assert {name for name, _ in loaded} == {"sweep", "vectors", "conjugate"}
    np.testing.assert_array_equal(SOLVERS["cg"](A, b, rtol=1e-5, backend="cuda")[0], first)
    assert len(begun) == 5


def test_what_chooses_a_plan_on_the_device_says_so_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(type(backend_of("cuda")), "expect", lambda self, A, *, to_plan=False: asked.append(to_plan))
    A = laplacian(40)
    of_powers = partial(akx.MatrixPowers, A, 2)
    for made in (of_powers, partial(Solver, A)):
        made()
        assert not asked  # a matrix of the host
        for module in (powers, solver):
            monkeypatch.setattr(module, "is_matrix_there", lambda A: True)
        made()
        assert asked.pop(0)
        assert asked == [False] * (made is not of_powers)  # what a solver does with vectors
        asked.clear()
        for module in (powers, solver):
            monkeypatch.setattr(module, "is_matrix_there", lambda A: False)


def test_of_a_matrix_that_does_not_say_its_type_little_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(plain, "_expected", set())
    monkeypatch.setattr(plain, "cuda_device", lambda: None)
    monkeypatch.setattr(plain, "begin", lambda wanted, *, device: begun.append([source.stem for source, _ in wanted]))
    for A in ((np.ones(2), np.arange(2), np.arange(3)), sp.eye_array(3, dtype=np.int64), None):
        plain.expect(A)
    assert begun == [["content", "canonical"]] * 2  # of integers, and of what has no type
    plain.expect(sp.eye_array(3), to_plan=True)
    assert begun[2:] == [["canonical", "digest", "features", "lengths"]]
    plain.expect(Matrix.from_any(sp.eye_array(3)))
    assert begun[3:] == [["sweep", "vectors", "conjugate"]]


@on_host
@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_first_solves_in_other_types(device: Any, dtype: Any) -> None:
    A, b = laplacian(100, dtype), np.random.default_rng(1).random(100).astype(dtype)
    rtol = 1e-5 if np.finfo(dtype).eps > 1e-10 else 1e-10
    for _ in range(2):
        x, info = SOLVERS["cg"](A, b, rtol=rtol, backend="cuda")
        assert (info, x.dtype) == (0, dtype)
        assert np.linalg.norm(b - A @ x) <= 1.01 * rtol * np.linalg.norm(b)


@on_host
def test_a_second_solve_pays_for_its_steps(device: Any, done: Counter[str]) -> None:
    """No compiling, no page-locked memory, no event and no graph is made, and nothing is read of the matrix."""
    A, b = Matrix.from_any(laplacian(400, near=2.0)), np.random.default_rng(1).random(400)
    cg = SOLVERS["cg"]
    options: dict[str, Any] = {"rtol": 1e-9, "backend": "cuda", "return_stats": True}
    for most in (4, None):
        stats = cg(A, b, maxiter=most, **options)[2]
    done.clear()
    calls = Counter[str]()

    def count(frame: Any, event: str, _: Any) -> None:
        if event == "call" and os.sep + "akx" + os.sep in frame.f_code.co_filename:
            calls["python"] += 1

    sys.setprofile(count)
    try:
        again = cg(A, b, maxiter=4, **options)[2]
    finally:
        sys.setprofile(None)
    assert again.iterations == 4
    assert stats.iterations > 15
    made = {name: done[name] for name in ("allocate", "load", "capture", "pinned", "HostEvent", "send")}
    assert not any(made.values()), made
    assert done["to_device"] <= 1  # b
    assert calls["python"] < 900, calls  # some tenths of a millisecond


@on_host
def test_a_solve_is_prepared_in_its_middle_after_a_fixed_number_of_products(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "is_loaded", lambda: True)
    products, borrow = list[int](), cache.Cache.borrow

    def borrowed(self: Any, given: Any, k: int, **options: Any) -> Any:
        products.append(k)
        twin = plain.CudaPlainProducts(given.indptr, given.indices, given.data)
        return cache.Entry(None, lambda: None, (), (), PlainOperator(twin, given, k), 0, (), 0.0)  # type: ignore[arg-type]

    assert borrow is not borrowed
    monkeypatch.setattr(cache.Cache, "borrow", borrowed)
    A = laplacian(200)
    b = np.random.default_rng(1).random(200)
    one = tiers.Rent(lambda: None, A.nnz, 12 * A.nnz, 0.0, on_device=True)._product
    monkeypatch.setattr(tiers, "_GPU_ENTRY", 0.0)
    for name in SOLVERS:
        monkeypatch.setattr(tiers, "_GPU_MATRIX", 10.5 * one)
        tiers.forget()
        products.clear()
        x, info, stats = SOLVERS[name](A, b, rtol=1e-9, backend="cuda", return_stats=True)
        assert info == 0
        assert np.linalg.norm(b - A @ x) <= 1.01e-9 * np.linalg.norm(b)
        assert stats.products > 12
        assert products, name
        assert not cache.CACHE._plain, name


@on_host
def test_a_solver_object_is_prepared_at_once(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the host too: its calls are not rented."""
    made, rent = list[Any](), products.Products.rent
    monkeypatch.setattr(products.Products, "rent", lambda self: made.append(self) or rent(self))
    solver = akx.solvers.Solver(laplacian(), "cg", backend="cpu")
    solver(np.ones(400))
    assert made == []


_SCRIPT = """
import hashlib, sys
import numpy as np, scipy.sparse as sp, akx
from akx import solvers
d = np.random.default_rng(0).random(5000)
A = sp.csr_array(sp.diags_array([-d[1:], 2.2 + d, -d[1:]], offsets=[-1, 0, 1]))
for name in ("cg", "gmres"):
    x, info = getattr(solvers, name)(A, d, rtol=1e-9, backend="cuda")
    assert info == 0
    print(name, hashlib.sha256(x.tobytes()).hexdigest())
V = akx.matrix_powers(A, d, 8, backend="cuda")
print(hashlib.sha256(V.tobytes(order="F")).hexdigest())
print([name for name in ("numba", "optuna", "sqlalchemy", "akx.tuner", "akx.plandb") if name in sys.modules])
"""


def test_first_calls_on_a_gpu_import_no_planner() -> None:
    """What they need is there without a GPU too."""
    names = "solvers.cg", "operator.device_products", "backends.cuda.device.interchange", "backends.cpu.backend"
    of_cuda = (
        "backend",
        "matrix.canonical",
        "csr.plain",
        "vectors.solver_vectors",
        "vectors.conjugate",
        "vectors.arnoldi",
    )
    script = "import sys\n" + "".join(f"import akx.{name}\n" for name in names)
    script += "".join(f"import akx.backends.cuda.{name}\n" for name in of_cuda) + "print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    others = {"numba", "sqlalchemy", "optuna", "statistics", "akx.tuner", "akx.plandb", "akx.formats", "akx.partition"}
    of_plans = {
        "akx.core.features",
        "akx.core.spectrum",
        "akx.core.leja",
        "akx.core.plan",
        "akx.core.options",
        "akx.backends.schedule",
        "akx.backends.variant",
    }
    names = ("cuda.device.clocks", "device_model", "host", "device_similarity")
    of_devices = {f"akx.backends.{name}" for name in names}
    assert not (others | of_plans | of_devices) & set(done.stdout.split())


@pytest.mark.cuda
@on_gpu
def test_every_process_gives_the_same_bits_and_imports_no_planner(tmp_path: Path) -> None:
    environment = {**os.environ, "AKX_DB": str(tmp_path / "plans.sqlite"), "AKX_CUBIN_DIR": str(tmp_path / "code")}
    environment["AKX_PREPARE"] = tiers.AUTO
    run = [sys.executable, "-c", _SCRIPT]
    first, second = (
        subprocess.run(run, check=True, env=environment, capture_output=True, text=True).stdout for _ in range(2)
    )
    assert first == second
    assert first.splitlines()[-1] == "[]"
    assert list((tmp_path / "code").glob("*.kernel"))


@pytest.mark.cuda
@on_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vectors", [None, 1, 3, 13])
def test_first_calls_are_right_on_a_gpu(dtype: Any, vectors: int | None) -> None:
    A = matrix(dtype, index=np.int64)
    x = start(np.float32 if dtype in (np.float32, np.complex64) else float, vectors)
    for basis in (None, NEWTON):
        V = check_powers(A, A, x, basis)
        there = memory.to_device(np.ascontiguousarray(x, dtype=V.dtype))
        W = akx.matrix_powers(A, there, 4, basis="monomial" if basis is None else basis)
        assert not isinstance(W, np.ndarray)
        np.testing.assert_array_equal(W.get(), V)
        assert isinstance(there, DeviceArray)


@pytest.mark.cuda
@on_gpu
@pytest.mark.parametrize("name", [*SOLVERS, "solve"])
def test_first_solves_are_right_on_a_gpu(name: str) -> None:
    solver = {**SOLVERS, "solve": solve}[name]
    A, b = laplacian(5000), np.random.default_rng(1).random(5000)
    held = Matrix.from_any(A)
    found = [solver(given, b, rtol=1e-9, backend="cuda") for given in (held, held, A)]
    assert [info for _, info in found] == [0, 0, 0]
    assert np.linalg.norm(b - A @ found[0][0]) <= 1.01e-9 * np.linalg.norm(b)
    assert len({hashlib.sha256(x.tobytes()).hexdigest() for x, _ in found}) == 1
