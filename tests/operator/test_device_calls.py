"""Calls with arrays on the GPU, without one: what they cost the host, in which order they work, and captures."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import threading
import time
import warnings
import weakref
import zlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from device.fake_driver import FakeDriver, seen

import akx
from akx.backends.cuda import program
from akx.backends.cuda.csr import plain as plain_products
from akx.backends.cuda.csr import powers as csr_powers
from akx.backends.cuda.device import memory
from akx.backends.cuda.device.launch import CallerStream, Graph, Module, default_stream
from akx.backends.cuda.device.runtime import give_back
from akx.backends.cuda.matrix import canonical, content
from akx.backends.cuda.program import CudaProgram
from akx.backends.cuda.value_compression import new_values as values
from akx.core.errors import AkxWarning, ArgumentError, DeviceError, DeviceMemoryError, MatrixError
from akx.operator import cache, lookup, overflow, tiers, workspaces
from akx.operator.prepared import Prepared
from akx.plandb.reader import count_change

N, K = 40, 3
DTYPE = np.dtype(float)


class Array:
    """An array of CuPy, as far as it is read."""

    def __init__(self, host: Any) -> None:
        self.host = host
        self.shape, self.strides, self.dtype = host.shape, host.strides, host.dtype
        self.data = SimpleNamespace(ptr=host.ctypes.data, device_id=0)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        current = sys.modules["cupy"].cuda.get_current_stream()
        data = (self.data.ptr, False)
        face = {"shape": self.shape, "strides": self.strides, "typestr": self.dtype.str, "data": data}
        return {**face, "stream": current.ptr or 1, "version": 3}


Array.__module__ = "cupy"


class Other:
    """An array of a library that has nothing but the interface."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.stream: int | None = None

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.array.__cuda_array_interface__, "stream": self.stream}


class Stream:
    def __init__(self, ptr: int) -> None:
        self.ptr = ptr


class Steps(CudaProgram):
    """A kernel for each power."""

    def __init__(self, A: Any) -> None:
        super().__init__(N, K, DTYPE)
        self.A = self.hold(A.toarray())
        self.kernel: Any = None

    def ready(self, vectors: int) -> None:
        if self.kernel is None:
            self.kernel = Module(b"", "steps").kernel("step")

    def enqueue(self, x: Any, out: Any, coefficients: Any) -> None:
        for j in range(self.k):
            own = out.view(j * x.size, x.shape) if j else x
            after = out.view((j + 1) * x.size, x.shape)
            first: Any = out if j == 0 and x.pointer != out.pointer else np.uint64(0)
            count = np.uint32(x.size)
            place = coefficients.view(3 * j, (3,))
            self.kernel.launch(1, 32, [count, self.A, place, own, after, first], stream=self.stream)

    def update_values(self, data: Any) -> None:
        """In place, as a kernel of akx's own stream; complex ones stand for those that need another layout."""
        if np.iscomplexobj(data):
            self.forget_graphs()
            self._arrays = [array for array in self._arrays if array is not self.A]
            self.A, data = self.hold(np.zeros((N, N))), data.real
        self.A.set(sp.csr_array((data, self.indices, self.indptr), shape=(N, N)).toarray())


def step(count: int, matrix: int, coefficients: int, x: int, after: int, first: int) -> None:
    a, b, c = seen(coefficients, 3)
    assert (a, b, c) == (1, 0, 0)
    own = seen(x, count).copy()
    seen(after, count)[:] = seen(matrix, N * N).reshape(N, N) @ own
    if first:
        seen(first, count)[:] = own


def examine(count: int, data: int, found: int) -> None:
    if not np.isfinite(seen(data, count)).all():
        seen(found, 1, np.uint32)[0] = 1


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    gc.collect()
    made = FakeDriver()
    made.install(monkeypatch)
    u32, u64 = ctypes.c_uint32, ctypes.c_uint64
    made.kernels = {"step": (step, [u32, *5 * [u64]]), "examine": (examine, 3 * [u64])}
    look = Module(b"", "values")
    monkeypatch.setattr(values, "_kernel", lambda *_: look.kernel("examine"))
    monkeypatch.setattr(plain_products, "expect", lambda *_, **__: None)  # asks a GPU, once in a process
    return made


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """CuPy, with a current stream that tests set; results are arrays of the host."""
    found = SimpleNamespace(current=Stream(0))
    found.cuda = SimpleNamespace(get_current_stream=lambda: found.current)
    found.empty = lambda *_, **__: (_ for _ in ()).throw(AssertionError("memory is made"))
    monkeypatch.setitem(sys.modules, "cupy", found)
    return found


@pytest.fixture
def A() -> Any:
    rng = np.random.default_rng(0)
    found = sp.diags_array([1.0, -2.0, 1.5], offsets=[-1, 0, 7], shape=(N, N), format="csr")
    found.data = rng.uniform(-1, 1, found.nnz)
    found.sort_indices()
    return found


class Case:
    """An operator with a program of the GPU, and arrays for it."""

    def __init__(self, driver: FakeDriver, A: Any) -> None:
        self.driver, self.A = driver, A
        self.P = akx.MatrixPowers(A, K)
        self.program = Steps(A)
        self.program.indices, self.program.indptr = A.indices, A.indptr  # type: ignore[attr-defined]
        self.prepare()

    def prepare(self) -> None:
        prepared = self.P._prepared
        prepared.ready[DTYPE, 1, "cuda"] = self.program, prepared.recurrence.coefficients(DTYPE)
        prepared.programs[DTYPE, akx.Plan("cuda", "sweep", "csr-1", k=K)] = self.program

    def arrays(self, seed: int = 0) -> tuple[Array, Array]:
        x = np.random.default_rng(seed).standard_normal(N)
        return Array(x), Array(np.full((N, K + 1), np.nan, order="F"))

    def is_right(self, x: Any, out: Any, A: Any = None) -> None:
        self.driver.finish()
        wanted = [x.host if isinstance(x, Array) else x]
        for _ in range(K):
            wanted.append((self.A if A is None else A) @ wanted[-1])
        np.testing.assert_allclose(out.host, np.stack(wanted, axis=-1), rtol=1e-12, atol=1e-12)
        out.host[:] = np.nan


@pytest.fixture
def case(driver: FakeDriver, cupy: Any, A: Any) -> Iterator[Case]:
    yield Case(driver, A)
    gc.collect()


def warm(case: Case, *arrays: Any) -> None:
    for _ in range(3):
        case.P(arrays[0], out=arrays[1])
    case.driver.finish()
    case.driver.log.clear()


LAUNCH = ["cuCtxGetCurrent", "cuStreamIsCapturing", "cuGraphLaunch"]


def called(work: Callable[[], object]) -> list[str]:
    """Functions of akx that are called."""
    found: list[str] = []

    def count(frame: Any, event: str, _: Any) -> None:
        if event == "call" and "/akx/" in frame.f_code.co_filename.replace("\\", "/"):
            found.append(frame.f_code.co_name)

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def test_a_call_is_a_launch(case: Case) -> None:
    """What the host does: so many functions of Python, and three of the driver. Who adds one says why here."""
    x, out = case.arrays()
    warm(case, x, out)
    names = called(lambda: case.P(x, out=out))
    assert case.driver.log == LAUNCH
    case.is_right(x, out)
    assert len(names) <= 15, names


def test_a_graph_is_recorded_when_it_would_have_paid(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second call does not wait for one; what is done for graphs is done once, whichever pair comes."""
    monkeypatch.setattr(program, "_PAYS", 5)
    (x, out), other = case.arrays(), case.arrays(1)
    log, found = case.driver.log, []
    for turn in range(30):
        pair = other if turn % 3 == 2 else (x, out)
        log.clear()
        case.P(pair[0], out=pair[1])
        found.append((log.count("cuStreamBeginCapture"), log.count("cuGraphInstantiate")))
        case.is_right(*pair)
    assert found[:5] == [(0, 0)] * 5
    assert found[5] == (1, 1)
    assert sum(recorded for recorded, _ in found) == 1
    assert sum(made for _, made in found) == 3
    assert found[-10:] == [(0, 0)] * 10


def test_a_call_that_makes_v_is_a_launch_too(case: Case, cupy: Any) -> None:
    cupy.empty = lambda shape, dtype, order: Made(np.full(shape, np.nan, dtype, order))
    x, _ = case.arrays()
    held = [case.P(x) for _ in range(4)]
    case.driver.finish()
    case.driver.log.clear()
    V = case.P(x)
    assert set(case.driver.log) == {*LAUNCH, "cuGraphExecKernelNodeSetParams"}
    assert case.driver.log.count("cuGraphLaunch") == 1
    case.is_right(x, V)
    assert len({one.data.ptr for one in (*held, V)}) == 5


def test_other_arrays_move_the_graph(case: Case) -> None:
    """One update for each kernel; a pair that comes again has its own graph, and no address is left behind."""
    first = case.arrays()
    warm(case, *first)
    pairs = [case.arrays(seed) for seed in range(1, 5)]
    for turn in range(4):
        for x, out in pairs:
            case.driver.log.clear()
            case.P(x, out=out)
            log = list(case.driver.log)
            if turn == 0 and x is not pairs[0][0]:
                assert log == [*LAUNCH[:2], LAUNCH[0], *K * ["cuGraphExecKernelNodeSetParams"], LAUNCH[2]]
            if turn > 1:
                assert log == LAUNCH
            case.is_right(x, out)
    assert len(case.program._graphs) == 5


def test_pairs_that_are_many_do_not_push_each_other_out(case: Case) -> None:
    """Sixteen have graphs of their own; the others are moved to, and take the place of one seldom."""
    pairs = [case.arrays(seed) for seed in range(24)]
    case.P.looks_for_overflow = False
    for turn in range(24):
        if turn == 2:
            case.driver.log.clear()
        for x, out in pairs:
            case.P(x, out=out)
            case.is_right(x, out)
    assert len(case.program._graphs) == 16
    assert case.driver.log.count("cuGraphInstantiate") < 22 * 24 / 6


def test_x_in_its_place(case: Case) -> None:
    for seed in range(3):
        x, out = case.arrays(seed)
        first = Array(out.host[:, 0])
        for _ in range(4):
            out.host[:, 0] = x.host
            case.P(first, out=out)
            case.is_right(x, out)
    overlapping = Array(out.host[:, 1])
    out.host[:, 1] = x.host
    case.P(overlapping, out=out)
    case.is_right(x, out)


def test_what_looks_another_way_is_looked_at(case: Case) -> None:
    x, out = case.arrays()
    warm(case, x, out)
    with pytest.raises(ArgumentError, match="out"):
        case.P(x, out=Array(np.empty((N, K + 1))))
    with pytest.raises(ArgumentError, match="fit"):
        case.P(Array(np.zeros(N + 1)), out=out)
    case.P(x, out=out)
    case.is_right(x, out)


@pytest.mark.parametrize("first", [0, 11])
def test_streams_wait_for_one_another_where_they_must(case: Case, cupy: Any, first: int) -> None:
    """The program has memory of its own, so calls are one after another on whatever streams; on one without events."""
    x, out = case.arrays()
    cupy.current = Stream(first)
    warm(case, x, out)
    case.P(x, out=out)
    assert "cuEventRecord" not in case.driver.log
    y, other = case.arrays(5)
    for stream in (12, first, 0, 12, 11, 0):
        cupy.current = Stream(stream)
        case.P(y, out=other)
        case.P(x, out=out)
        case.P.update_values(2 * case.A)  # on akx's own stream, which waits for that of the caller, and the other way
        case.P(y, out=other)
        case.driver.finish()
        np.testing.assert_allclose(out.host[:, 1], case.A @ x.host, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(other.host[:, 1], 2 * case.A @ y.host, rtol=1e-12, atol=1e-12)
        case.P.update_values(case.A)


def test_a_stream_that_may_be_gone_is_never_used_later(case: Case) -> None:
    """Of a library that names a handle, which another stream may have by then: an event is left behind the work."""
    x, out = case.arrays()
    given = Other(x)
    given.stream = 11
    out_there = Other(out)
    out_there.stream = 11
    warm(case, given, out_there)
    case.P(given, out=out_there)
    del case.driver.last[11]  # and what comes later finds it done
    log = [name for name in case.driver.log if name not in LAUNCH[:2]]
    record, wait = "cuEventRecord", "cuStreamWaitEvent"
    assert log == [record, wait, "cuGraphLaunch", record, wait]
    case.driver.log.clear()
    case.P.update_values(case.A)
    assert record not in case.driver.log
    case.is_right(x, out)


def test_memory_given_out_again_waits_for_callers(case: Case, cupy: Any) -> None:
    from akx.backends.cuda.device.memory import empty

    x, out = case.arrays()
    cupy.current = Stream(11)
    warm(case, x, out)
    held = empty(1000, DTYPE)
    del held
    case.P(x, out=out)
    assert default_stream().away is not None
    empty(1000, DTYPE)
    assert default_stream().away is None


def test_graphs_are_moved_in_the_context_wherever_the_caller_is(case: Case) -> None:
    case.driver.context = 0
    pairs = [case.arrays(seed) for seed in range(5)]
    for x, out in pairs:
        case.P(x, out=out)
    assert "cuGraphExecKernelNodeSetParams" in case.driver.log
    for x, out in pairs:
        case.is_right(x, out)


def test_nothing_is_given_back_while_python_ends(case: Case) -> None:
    mode = "cuThreadExchangeStreamCaptureMode"
    for is_ending, log in ((True, []), (False, ["cuCtxGetCurrent", mode, "cuEventDestroy", mode])):
        case.driver.log.clear()
        give_back("cuEventDestroy", 1, lambda is_ending=is_ending: is_ending)
        assert case.driver.log == log


def test_another_context_is_put_back(case: Case) -> None:
    x, out = case.arrays()
    warm(case, x, out)
    case.driver.context = 99
    case.P(x, out=out)
    case.is_right(x, out)
    assert case.driver.context == 99
    assert "cuGraphLaunch" in case.driver.log


def test_an_overflow_is_told_by_a_later_call(case: Case) -> None:
    x, out = case.arrays()
    big, other = Array(1e150 * x.host), case.arrays()[1]
    case.A = case.A * 1e80
    case.P.update_values(case.A)
    for _ in range(66):
        case.P(x, out=out)
        case.driver.finish()
    for _ in range(64):
        case.P(big, out=other)
    with np.errstate(all="ignore"):
        case.driver.finish()
    with pytest.warns(AkxWarning, match="overflows in float64: power 2"):
        case.P(x, out=out)


def test_vectors_of_the_host_come_and_go_by_one_copy_each(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """x through page-locked memory; one wait, for V. Without such memory x is waited for too."""
    steps, coefficients = case.program, case.P._prepared.recurrence.coefficients(DTYPE)
    for seed, is_locked in ((0, True), (1, True), (2, False), (3, False)):
        if not is_locked and seed == 2:
            steps._staging = None
            refused = DeviceMemoryError("no room")
            monkeypatch.setattr(program, "pinned", lambda *_, refused=refused: (_ for _ in ()).throw(refused))
        x, out = np.random.default_rng(seed).standard_normal((1, N)), np.full((K + 1, 1, N), np.nan)
        case.driver.log.clear()
        steps.run(x, out, coefficients)
        case.is_right(x[0], SimpleNamespace(host=out[:, 0].T.copy()))
        if seed not in (0, 2):  # which make what they need
            log = [one for one in case.driver.log if "Memcpy" in one or "Synchronize" in one or "Mem" in one]
            there = ["cuMemcpyHtoDAsync"] if is_locked else ["cuMemcpyHtoDAsync", "cuStreamSynchronize"]
            assert log == [*there, "cuMemcpyDtoHAsync", "cuStreamSynchronize"]


def test_two_threads(case: Case) -> None:
    """One at a time: what is queued of one call is not in the midst of what is queued of another."""
    given = [case.arrays(seed) for seed in range(2)]

    def work(x: Array, out: Array) -> None:
        for _ in range(50):
            case.P(x, out=out)

    threads = [threading.Thread(target=work, args=arrays) for arrays in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    case.driver.finish()
    for x, out in given:
        np.testing.assert_allclose(out.host[:, 1], case.A @ x.host, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------------------------------------------------- captures


def replay(graph: list[Any]) -> None:
    for node in graph:
        node.work()


def test_a_call_is_captured(case: Case, cupy: Any) -> None:
    """Kernels and nothing else; new values are in it, other coefficients are not."""
    driver, (x, out) = case.driver, case.arrays()
    cupy.current = Stream(11)
    warm(case, x, out)
    y, other = case.arrays(9)
    driver.cuStreamBeginCapture(11, None)
    driver.log.clear()
    case.P(x, out=out)
    assert case.P(y, out=other) is other
    assert set(driver.log) <= {
        *("cuCtxGetCurrent", "cuStreamIsCapturing", "cuPointerGetAttribute", "cuLaunchKernelEx"),
    }
    _, graph = driver.cuStreamEndCapture(11)
    assert len(graph) == 2 * K
    replay(graph)
    case.is_right(x, out)
    replay(graph)
    case.is_right(y, other)
    case.P.update_values(3 * case.A)
    replay(graph)
    case.is_right(x, out, 3 * case.A)
    before = case.program.coefficients
    case.program.take(SimpleNamespace(a=np.full(K, 2.0), b=np.zeros(K), c=np.zeros(K)))  # type: ignore[arg-type]
    assert case.program.coefficients is not before
    replay(graph)
    case.is_right(x, out, 3 * case.A)


def test_values_that_go_elsewhere_are_told(case: Case, cupy: Any) -> None:
    driver, (x, out) = case.driver, case.arrays()
    cupy.current = Stream(11)
    warm(case, x, out)
    driver.cuStreamBeginCapture(11, None)
    case.P(x, out=out)
    _, graph = driver.cuStreamEndCapture(11)
    case.program.update_values(2j + 2 * case.A.data)
    with pytest.warns(AkxWarning, match="capture it again"):
        case.P.update_values(2 * case.A)
    replay(graph)
    case.is_right(x, out)
    case.P(x, out=out)
    case.is_right(x, out, 2 * case.A)


def test_what_cannot_be_captured_says_so_and_spoils_nothing(case: Case, cupy: Any) -> None:
    driver, (x, out) = case.driver, case.arrays()
    cupy.current = Stream(11)
    driver.cuStreamBeginCapture(11, None)
    with pytest.raises(DeviceError, match="call it once before capture"):
        case.P(x, out=out)
    case.P._prepared.ready = {}
    with pytest.raises(DeviceError, match="call it once before capture"):
        case.P(x, out=out)
    driver.cuStreamEndCapture(11)
    case.prepare()
    warm(case, x, out)
    driver.cuStreamBeginCapture(11, None)
    strided = Array(np.repeat(x.host, 2)[::2])
    with pytest.raises(ArgumentError, match="x would be copied"):
        case.P(strided, out=out)
    with pytest.raises(ArgumentError, match="overlap"):
        case.P(Array(out.host[:, 1]), out=out)
    given = Other(x)
    given.stream = 11
    with pytest.raises(ArgumentError, match="pass out="):
        case.P(given)
    with pytest.raises(DeviceError, match="being captured"):
        default_stream().synchronize()
    case.P(x, out=out)
    assert len(driver.cuStreamEndCapture(11)[1]) == K


# ----------------------------------------------------------------------------------------------------- matrix_powers


class Asked:
    """Calls of matrix_powers for an akx.Matrix, whose operator has a program of the GPU."""

    def __init__(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        from akx.operator import powers

        self.made: list[Any] = []
        self.A, begin = akx.Matrix.from_any(case.A), akx.MatrixPowers.__init__

        def make(P: Any, *arguments: Any, backend: str, **options: Any) -> None:
            begin(P, *arguments, **options)
            case.P = P
            case.prepare()
            self.made.append(P)

        monkeypatch.setattr(powers.MatrixPowers, "__init__", make)


@pytest.fixture
def asked(case: Case, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    akx.clear_cache()
    monkeypatch.setattr(cache.time, "monotonic", lambda: 100.0)
    monkeypatch.setattr(Prepared, "look_again", lambda prepared: None)  # there is no device to plan for
    yield Asked(case, monkeypatch)
    akx.clear_cache()


def test_a_second_matrix_powers_goes_straight_to_the_program(
    case: Case, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, out = case.arrays()
    for _ in range(3):
        akx.matrix_powers(asked.A, x, K, out=out)
    case.driver.finish()
    case.driver.log.clear()
    names = called(lambda: akx.matrix_powers(asked.A, x, K, out=out))
    assert case.driver.log == LAUNCH
    case.is_right(x, out)
    assert len(names) <= 23, names
    assert len(asked.made) == 1


def test_what_may_have_changed_is_looked_at(case: Case, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = case.arrays()

    def is_direct() -> bool:
        names = called(lambda: akx.matrix_powers(asked.A, x, K, out=out))
        case.is_right(x, out)
        return "operator_for" not in names

    assert [is_direct() for _ in range(3)] == [False, True, True]
    monkeypatch.setattr(cache.time, "monotonic", lambda: 101.0)
    assert is_direct()
    monkeypatch.setattr(cache.time, "monotonic", lambda: 102.0)  # plans that others have tuned meanwhile
    next(iter(cache.CACHE.entries.values())).stamp = ("another",)
    assert [is_direct(), is_direct()] == [False, True]
    count_change(asked.made[0]._prepared.planner.database.path)
    assert [is_direct(), is_direct()] == [False, True]
    monkeypatch.setenv("AKX_DB", "elsewhere.db")
    assert [is_direct(), is_direct()] == [False, True]
    akx.clear_cache()
    assert [is_direct(), is_direct()] == [False, True]
    other = akx.Matrix.from_any(2 * case.A)
    akx.matrix_powers(other, x, K, out=out)
    with pytest.raises(ArgumentError, match="k"):
        akx.matrix_powers(asked.A, x, 0, out=out)


def test_matrix_powers_in_a_capture(case: Case, asked: Asked, cupy: Any) -> None:
    """What it was captured with stays, whatever else is prepared meanwhile."""
    driver, (x, out) = case.driver, case.arrays()
    cupy.current = Stream(11)
    driver.cuStreamBeginCapture(11, None)
    with pytest.raises(DeviceError, match="call it once before capture, with the same arguments"):
        akx.matrix_powers(asked.A, x, K, out=out)
    driver.cuStreamEndCapture(11)
    akx.matrix_powers(asked.A, x, K, out=out)
    driver.cuStreamBeginCapture(11, None)
    akx.matrix_powers(asked.A, x, K, out=out)
    _, graph = driver.cuStreamEndCapture(11)
    others = [akx.Matrix.from_any(case.A) for _ in range(20)]
    for other in others:
        akx.matrix_powers(other, x, K, out=out)
    assert asked.made[0] in [entry.operator for entry in cache.CACHE.entries.values()]
    replay(graph)
    case.is_right(x, out)


def plain_step(n: int, start: int, column: int, value: int, _: int, *vectors: int) -> None:
    own, before, made, filled, coefficients, _ = vectors
    starts = seen(start, n + 1, np.int32)
    nnz = int(starts[-1])
    A = sp.csr_array((seen(value, nnz), seen(column, nnz, np.int32), starts), shape=(n, n), copy=True)
    a, b, c = seen(coefficients, 3)
    v = seen(own, n).copy()
    seen(made, n)[:] = a * (A @ v) + b * v + (c * seen(before, n) if before else 0)
    if filled:
        seen(filled, n)[:] = v


@pytest.fixture
def plain(case: Case, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    """First calls on the device: plain products."""
    tiers.forget()
    monkeypatch.delenv("AKX_PREPARE", raising=False)
    case.driver.kernels["plain_step"] = plain_step, [ctypes.c_uint32, *9 * [ctypes.c_uint64], ctypes.c_uint32]
    step = SimpleNamespace(kernel=lambda name: Module(b"", "plain").kernel("plain_step"))
    monkeypatch.setattr(plain_products, "cuda_device", lambda: None)
    monkeypatch.setattr(plain_products, "load", lambda *_, **__: step)
    yield asked
    tiers.forget()


@pytest.mark.parametrize("kind", ["akx.Matrix", "SciPy's CSR", "SciPy's CSC"])
def test_a_first_call_is_captured(case: Case, plain: Asked, cupy: Any, kind: str) -> None:
    """Products of what does not change go into the graph, and stay: whatever is called, prepared or forgotten later."""
    driver, (x, out), (y, other) = case.driver, case.arrays(), case.arrays(1)
    A = {"akx.Matrix": plain.A, "SciPy's CSR": case.A.copy(), "SciPy's CSC": case.A.tocsc()}[kind]
    options: dict[str, Any] = {"backend": "cuda"}
    cupy.current = Stream(11)
    driver.cuStreamBeginCapture(11, None)
    with pytest.raises(DeviceError, match="call it once before capture, with the same arguments"):
        akx.matrix_powers(A, x, K, out=out, **options)
    driver.cuStreamEndCapture(11)
    for _ in range(2):
        akx.matrix_powers(A, x, K, out=out, **options)
        case.is_right(x, out)
    (rent,) = (one for (_, what), one in tiers._RENTS.items() if what == (K, "cuda"))
    calls = rent.calls
    driver.cuStreamBeginCapture(11, None)
    driver.log.clear()
    assert akx.matrix_powers(A, y, K, out=other, **options) is other
    assert set(driver.log) <= {
        *("cuCtxGetCurrent", "cuStreamIsCapturing", "cuPointerGetAttribute", "cuLaunchKernelEx"),
    }
    _, graph = driver.cuStreamEndCapture(11)
    assert len(graph) == K
    assert rent.calls == calls
    assert not plain.made
    replay(graph)
    case.is_right(y, other)
    for one in (akx.Matrix.from_any(case.A) for _ in range(12)):  # those that are kept give way to others
        akx.matrix_powers(one, x, K, out=out)
    rent.is_over = True
    akx.matrix_powers(A, x, K, out=out, **options)
    assert plain.made
    replay(graph)
    case.is_right(y, other)
    held = weakref.ref(workspaces.IN_GRAPHS[id(A)][0])
    gc.collect()
    assert held() is not None
    plain.A = A = None
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("what", ["k", "vectors", "type", "content"])
def test_a_first_call_of_another_kind_is_not_captured(case: Case, plain: Asked, cupy: Any, what: str) -> None:
    driver, (x, out), k = case.driver, case.arrays(), K
    for _ in range(2):
        akx.matrix_powers(case.A, x, K, out=out, backend="cuda")
    driver.finish()
    if what == "k":
        k, out = K - 1, Array(np.zeros((N, K), order="F"))
    elif what == "vectors":
        x, out = Array(np.zeros((N, 3), order="F")), Array(np.zeros((N, 3, K + 1), order="F"))
    elif what == "type":
        x, out = Array(np.zeros(N, dtype=complex)), Array(np.zeros((N, K + 1), dtype=complex, order="F"))
    else:
        case.A.data[0] += 1
    cupy.current = Stream(11)
    driver.cuStreamBeginCapture(11, None)
    with pytest.raises(DeviceError, match="call it once before capture, with the same arguments"):
        akx.matrix_powers(case.A, x, k, out=out, backend="cuda")
    assert not driver.cuStreamEndCapture(11)[1]


# ----------------------------------------------------------------------------------- matrices that callers may change


class Made(Array):
    """What CuPy makes, with views of it."""

    @property
    def T(self) -> Made:
        return Made(self.host.T)

    def __getitem__(self, place: Any) -> Made:
        return Made(self.host[place])


class Sparse:
    """CSR of CuPy."""

    format = "csr"

    def __init__(self, A: Any) -> None:
        self.host, self.shape = A, A.shape
        self.data, self.indices, self.indptr = (Made(one) for one in (A.data, A.indices, A.indptr))

    def get(self) -> Any:
        return self.host


Made.__module__, Sparse.__module__ = "cupy", "cupyx.scipy.sparse"


def arrays_at(n: int, entries: int, start: int, column: int, value: int) -> Any:
    where = seen(value, entries), seen(column, entries, np.int32), seen(start, n + 1, np.int32)
    return sp.csr_array(where, shape=(n, n), copy=True)


def look_at_csr(kind: int, index: int, n: int, entries: int, start: int, column: int, value: int, found: int) -> None:
    A = arrays_at(n, entries, start, column, value)
    longest = np.diff(A.indptr).max()
    seen(found, 4, np.uint64)[:] = [0, A.indices.max() >= n, not np.isfinite(A.data).all(), longest]


def as_they_are(
    n: int, entries: int, start: int, column: int, value: int, k: int, pitch: int, x: int, out: int, *more: int
) -> None:
    coefficients, _, only, told = more
    assert not seen(coefficients, 3 * k).reshape(k, 3)[:, 1:].any()
    if only and not seen(only, 1, np.uint32)[0]:
        return
    A, powers = arrays_at(n, entries, start, column, value), seen(out, (k + 1) * pitch).reshape(k + 1, n)
    powers[0] = seen(x, n)
    seen(told, 1, np.uint32)[0] |= not np.isfinite(A.data).all()
    for j in range(k):
        powers[j + 1] = A @ powers[j]


def sum_arrays(*given: int) -> None:
    *extents, _, known, found, differs, told = given
    sums = [zlib.crc32(ctypes.string_at(at, size)) for size, at in zip(extents[::2], extents[1::2], strict=True)]
    if found:
        seen(found, 3, np.uint64)[:] = sums
    if known:
        seen(differs, 1, np.uint32)[0] = is_other = list(seen(known, 3, np.uint64)) != sums
        seen(told, 1, np.uint32)[0] |= is_other


class Live(Asked):
    """A matrix of CuPy that its owner changes, where the program that is made for it is that of the case."""

    def __init__(self, case: Case, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(case, monkeypatch)
        self.case, self.host, self.held = case, case.A.copy(), list[Any]()
        self.A: Any = Sparse(self.host)
        cupy.empty = lambda shape, dtype, order: Made(np.full(shape, np.nan, dtype, order))
        u32, u64 = ctypes.c_uint32, ctypes.c_uint64
        case.driver.kernels |= {
            "look_at_callers_csr": (look_at_csr, [*3 * [u32], *5 * [u64]]),
            "powers": (as_they_are, [u32, *4 * [u64], u32, *7 * [u64]]),
            "sum_all_arrays": (sum_arrays, 11 * [u64]),
        }
        monkeypatch.setattr(canonical, "cuda_missing", lambda: None)
        monkeypatch.setattr(canonical, "canonical", lambda given, **_: akx.Matrix.from_any(given.owner.host))
        for module in (content, csr_powers):
            monkeypatch.setattr(module, "cuda_device", lambda: SimpleNamespace(sms=2))
            monkeypatch.setattr(module, "load", lambda *_, **__: Module(b"", "of callers"))

    def call(self, x: Any, out: Any = None) -> tuple[Any, bool]:
        """V, and whether nothing was waited for and the matrix not looked at."""
        self.case.driver.log.clear()
        V = akx.matrix_powers(self.A, x, K, out=out)
        self.held.append(V)  # CuPy keeps memory until the stream has come there
        return V, not {"cuStreamSynchronize", "cuMemcpyDtoHAsync", "cuMemAlloc"} & set(self.case.driver.log)

    def is_right(self, x: Any, V: Any) -> None:
        self.case.is_right(x, V, self.host)


@pytest.fixture(params=["auto", "always"])
def live(request: Any, case: Case, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    akx.clear_cache()
    tiers.forget()
    monkeypatch.setenv("AKX_PREPARE", request.param)
    monkeypatch.setattr(cache.time, "monotonic", lambda: 100.0)
    monkeypatch.setattr(Prepared, "look_again", lambda prepared: None)  # there is no device to plan for
    yield Live(case, cupy, monkeypatch)
    akx.clear_cache()


def test_a_matrix_of_the_callers_is_waited_for_once(live: Live, cupy: Any) -> None:
    """Every later call is two kernels and a graph at most, on whatever stream, with V made or given."""
    x, out = live.case.arrays()
    first = [live.call(x) for _ in range(3)]
    assert [quick for _, quick in first] == [False, True, True]
    for V, _ in first:
        live.is_right(x, V)
    for handle in (0, 11, 0):
        cupy.current = Stream(handle)
        for where in (None, out):
            live.call(x, where)
            V, quick = live.call(x, where)
            assert quick
            assert (V is out) == (where is out)
            assert live.case.driver.log.count("cuLaunchKernelEx") <= 2 + 4 * bool(live.made)
            live.is_right(x, V)


def test_a_change_is_in_v_and_told_to_the_next_call(live: Live) -> None:
    """By the time that the stream comes there, whenever that is; and what was changed back counts as it is."""
    x, _ = live.case.arrays()
    for _ in range(3):
        live.call(x)
    live.case.driver.finish()
    was = live.host.data.copy()
    for factor in (2.0, 3.0, 1.0, 1.0, 5.0, 1.0):
        live.host.data[:] = factor * was
        V, quick = live.call(x)
        live.is_right(x, V)
        live.host.data[:] = 7 * was
        live.host.data[:] = factor * was
        live.is_right(x, live.call(x)[0])
    again = [live.call(x)[1] for _ in range(3)]
    assert again[-1]
    live.A.data = Made(np.array(2 * live.host.data))  # other memory
    live.host.data[:] *= 2
    V, quick = live.call(x)
    assert not quick
    live.is_right(x, V)


def test_what_is_wrong_is_told_by_the_next_call(live: Live) -> None:
    x, _ = live.case.arrays()
    for _ in range(3):
        live.call(x)
    live.host.data[3] = np.nan
    live.call(x)
    live.case.driver.finish()
    with pytest.raises(MatrixError, match="not finite"):
        live.call(x)


def test_a_capture_has_the_matrix_as_it_is_then(live: Live, cupy: Any) -> None:
    """Nothing is read or waited for while it goes on; what the graph does looks at the matrix each time."""
    driver, (x, out) = live.case.driver, live.case.arrays()
    cupy.current = Stream(11)
    for _ in range(4):
        live.call(x, out)
    driver.finish()
    driver.cuStreamBeginCapture(11, None)
    assert live.call(x, out)[1]
    assert set(driver.log) <= {"cuCtxGetCurrent", "cuStreamIsCapturing", "cuPointerGetAttribute", "cuLaunchKernelEx"}
    _, graph = driver.cuStreamEndCapture(11)
    for factor in (1.0, 2.0, 3.0):
        live.host.data[:] *= factor
        replay(graph)
        live.is_right(x, out)
        for _ in range(
            2
        ):  # what is known of the matrix is another now: words that the graph writes to are nobody else's
            live.call(x, out)
            driver.finish()
        others = [memory.empty(one, np.uint8) for one in (4, 8, 24, 32, 96)]
        for one in others:
            seen(one.pointer, one.nbytes, np.uint8)[:] = 77
        replay(graph)
        live.is_right(x, out)
        assert all((seen(one.pointer, one.nbytes, np.uint8) == 77).all() for one in others)


def test_a_matrix_that_nobody_has_looked_at_is_not_read_in_a_capture(live: Live, cupy: Any) -> None:
    """It is told, and the capture goes on; where an operator is kept, that is what the graph has."""
    driver, (x, out) = live.case.driver, live.case.arrays()
    cupy.current = Stream(11)
    driver.cuStreamBeginCapture(11, None)
    with pytest.raises(DeviceError, match="call it once before capture"):
        live.call(x, out)
    assert set(driver.log) <= {"cuCtxGetCurrent", "cuStreamIsCapturing", "cuPointerGetAttribute"}
    _, graph = driver.cuStreamEndCapture(11)
    assert not graph
    live.call(x, out)
    live.is_right(x, out)


def test_other_forms_say_why_they_are_not_captured(live: Live, cupy: Any) -> None:
    """Prepared or not: the graph could not see a change."""
    driver, (x, out), live.A.format = live.case.driver, live.case.arrays(), "csc"
    cupy.current = Stream(11)
    if tiers.setting() == tiers.ALWAYS:
        for _ in range(2):
            live.call(x, out)
        assert live.made
        driver.finish()
    driver.cuStreamBeginCapture(11, None)
    with pytest.raises(DeviceError, match=r"CSC and COO cannot be put in order in a capture: .*pass it as CSR"):
        live.call(x, out)
    assert not driver.cuStreamEndCapture(11)[1]


def test_a_capture_looks_at_the_matrix_whenever_it_comes(
    live: Live, cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long after the last call that is, and whatever has become of plans: V is never that of an older one."""
    driver, (x, out) = live.case.driver, live.case.arrays()
    cupy.current = Stream(11)
    for _ in range(4):
        live.call(x, out)
    driver.finish()
    for seconds, factor in ((100.2, 1.0), (101.0, 3.0)):
        monkeypatch.setattr(cache.time, "monotonic", lambda seconds=seconds: seconds)
        for entry in cache.CACHE.entries.values():
            entry.stamp = ("another",)
        live.host.data *= factor
        driver.cuStreamBeginCapture(11, None)
        assert live.call(x, out)[1]
        _, graph = driver.cuStreamEndCapture(11)
        for _ in range(2):
            replay(graph)
            live.is_right(x, out)
            live.host.data *= 2


def test_every_captured_call_has_words_of_its_own(live: Live, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """To count blocks in, and to compare A: two graphs may be launched at once, on two streams. More come between."""
    monkeypatch.setattr(content, "_CAPTURES", 4)
    driver, (x, out), used = live.case.driver, live.case.arrays(), set[int]()
    cupy.current = Stream(11)
    for name, places in (("powers", (10,)), ("sum_all_arrays", (6, 9))):
        work, kinds = driver.kernels[name]

        def note(*given: int, work: Any = work, places: Any = places) -> None:
            used.update(given[place] for place in places)
            work(*given)

        driver.kernels[name] = note, kinds

    def words(is_captured: bool) -> set[int]:
        used.clear()
        if is_captured:
            driver.cuStreamBeginCapture(11, None)
        live.call(x, out)
        if is_captured:
            replay(driver.cuStreamEndCapture(11)[1])
        live.is_right(x, out)
        return set(used)

    for _ in range(3):
        live.call(x, out)
    driver.finish()
    found = [words(captured) for captured in (False, True, True, True, False, True, True, True, True)]
    assert found.pop(4) == found[0]
    assert len(set().union(*found)) == sum(map(len, found)) == 8 * (3 if live.made else 1)
    with pytest.raises(DeviceError, match="too many calls are captured one after another"):
        words(True)
    driver.cuStreamEndCapture(11)


@pytest.mark.parametrize("is_moved", [False, True])
@pytest.mark.parametrize("live", ["always"], indirect=True)
def test_a_graph_is_right_where_a_is_changed_back(live: Live, cupy: Any, is_moved: bool) -> None:
    """What it compares with is what the values of now are of, which calls between lay out; there or elsewhere."""
    driver, (x, out), was = live.case.driver, live.case.arrays(), live.host.data.copy()
    cupy.current = Stream(11)
    for _ in range(4):
        live.call(x, out)
    driver.finish()
    driver.cuStreamBeginCapture(11, None)
    live.call(x, out)
    _, graph = driver.cuStreamEndCapture(11)
    for factor in (2.0, 1.0, 1.0, 3.0):
        live.host.data[:] = factor * was
        replay(graph)
        live.is_right(x, out)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AkxWarning)
            if is_moved and factor == 2:
                live.case.program.update_values(2j + was)
            for _ in range(3):
                live.call(x, out)
                live.is_right(x, out)
        replay(graph)
        live.is_right(x, out)
        live.host.data[:] = was
        replay(graph)
        live.is_right(x, out)


@pytest.mark.parametrize("live", ["always"], indirect=True)
def test_new_values_of_another_thread_are_seen_by_the_device(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come when a call has found the old ones kept, and before its work is queued."""
    from akx.operator.mutable_csr import MutableCsr

    (x, out), around = live.case.arrays(), MutableCsr._around

    def later(one: MutableCsr, *given: Any) -> Any:
        live.made[0].update_values(2 * live.host)
        return around(one, *given)

    for _ in range(4):
        live.call(x, out)
    monkeypatch.setattr(MutableCsr, "_around", later)
    live.call(x, out)
    live.is_right(x, out)


@pytest.mark.parametrize("what", ["other memory", "another form of x"])
def test_a_capture_that_could_not_look_at_the_matrix_is_refused(live: Live, cupy: Any, what: str) -> None:
    driver, (x, out) = live.case.driver, live.case.arrays()
    cupy.current = Stream(11)
    for _ in range(4):
        live.call(x, out)
    if what == "other memory":
        live.A.data = Made(2 * live.host.data)
    else:
        x = Made(np.array(x.host[:, None]))
    driver.finish()
    driver.cuStreamBeginCapture(11, None)
    with pytest.raises(DeviceError, match="call it once before capture, with the same arguments"):
        live.call(x, out)
    assert not driver.cuStreamEndCapture(11)[1]


@pytest.mark.parametrize("live", ["auto"], indirect=True)
def test_a_call_in_a_capture_pays_no_rent(live: Live, cupy: Any) -> None:
    """It can be captured however many calls came before."""
    driver, (x, out) = live.case.driver, live.case.arrays()
    cupy.current = Stream(11)
    for _ in range(3):
        live.call(x, out)
    (rent,) = tiers._RENTS.values()
    rent._overhead, rent._price, tiers._lost = 0.0, rent._lost, 10.0
    paid = rent.calls, rent._lost
    driver.cuStreamBeginCapture(11, None)
    assert live.call(x, out)[1]
    replay(driver.cuStreamEndCapture(11)[1])
    live.is_right(x, out)
    assert (rent.calls, rent._lost, rent.is_over) == (*paid, False)


@pytest.mark.parametrize("live", ["always"], indirect=True)
def test_a_look_at_plans_does_not_look_at_the_matrix(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is due every tenth of a second, and the device is not waited for."""
    x, _ = live.case.arrays()
    for _ in range(3):
        live.call(x)
    for seconds in (100.2, 100.4):
        monkeypatch.setattr(cache.time, "monotonic", lambda seconds=seconds: seconds)
        assert live.call(x)[1]
    count_change(live.made[0]._prepared.planner.database.path)
    assert [live.call(x)[1] for _ in range(2)] == [False, True]


@pytest.mark.parametrize("live", ["auto"], indirect=True)
def test_a_matrix_that_changes_all_the_time_is_not_prepared(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two renewals, each for a call or two, and products of the arrays as they are come back."""
    prices = {"_GPU_PROCESS": 0.0, "_GPU_MATRIX": 0.0, "_GPU_ENTRY": 0.0, "_GPU_CALL": 0.0, "_GPU_CHECKED": 0.0}
    for name, value in prices.items():
        monkeypatch.setattr(tiers, name, value)
    (x, out), begun = live.case.arrays(), list[int]()
    for _ in range(3):
        live.call(x, out)
    assert len(live.made) == 1
    monkeypatch.setattr(tiers, "_GPU_MATRIX", 1.0)
    renew = live.made[0].update_values
    live.made[0].update_values = lambda A: begun.append(1) or renew(A)
    for _ in range(16):
        live.host.data *= 1.01
        _, quick = live.call(x, out)
        live.is_right(x, out)
    assert (len(begun), quick) == (3, True)  # the first came after some calls without a change
    assert "cuGraphLaunch" not in live.case.driver.log


@pytest.mark.parametrize("live", ["auto"], indirect=True)
def test_two_threads_with_one_matrix_look_one_at_a_time(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look is moved to V and queued; another thread does not move it in between."""
    monkeypatch.setattr(overflow, "_EVERY", 1)
    live.call(live.case.arrays()[0])
    going, wrong, move = list[int](), list[Any](), Graph.move

    def moved(graph: Graph, *given: Any) -> Any:
        going.append(threading.get_ident())
        time.sleep(1e-3)
        if set(going) != {threading.get_ident()}:
            wrong.append(graph)
        return move(graph, *given)

    def submit(stream: CallerStream, work: Any, queue: Any = CallerStream.submit) -> None:
        queue(stream, work)
        with contextlib.suppress(ValueError):
            going.remove(threading.get_ident())

    monkeypatch.setattr(Graph, "move", moved)
    monkeypatch.setattr(CallerStream, "submit", submit)

    def work(x: Array) -> None:
        for _ in range(20):
            live.held.append(akx.matrix_powers(live.A, x, K))

    threads = [threading.Thread(target=work, args=live.case.arrays(seed)[:1]) for seed in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


@pytest.mark.parametrize("live", ["always"], indirect=True)
def test_what_is_forgotten_in_a_graph_goes_with_its_owner(live: Live, cupy: Any) -> None:
    driver, (x, out) = live.case.driver, live.case.arrays()
    cupy.current = Stream(11)
    for _ in range(4):
        live.call(x, out)
    driver.cuStreamBeginCapture(11, None)
    live.call(x, out)
    driver.cuStreamEndCapture(11)
    (entry,) = cache.CACHE.entries.values()
    entry.operator.update_values = lambda _: (_ for _ in ()).throw(MatrixError("another pattern"))  # type: ignore[method-assign]
    live.host.data *= 2
    for _ in range(2):
        live.call(x, out)
        driver.finish()
    owner = id(live.A)

    def held() -> list[Any]:
        return [one for one in workspaces.IN_GRAPHS[owner] if isinstance(one, cache.Entry)]

    assert held() == [entry]
    akx.clear_cache()
    assert held() == [entry]
    live.A = None
    gc.collect()
    assert owner not in workspaces.IN_GRAPHS


@pytest.mark.parametrize("live", ["auto", "always"], indirect=True)
def test_words_in_a_graph_stay_with_the_owner(live: Live, cupy: Any) -> None:
    """Whatever is forgotten meanwhile, and no longer than that."""
    from akx.operator import mutable_csr

    driver, (x, out) = live.case.driver, live.case.arrays()
    cupy.current = Stream(11)
    for _ in range(4):
        live.call(x, out)
    driver.cuStreamBeginCapture(11, None)
    live.call(x, out)
    driver.cuStreamEndCapture(11)
    ((_, known),) = mutable_csr._LIVE.items()
    in_graph = weakref.ref(known)
    del known
    akx.clear_cache()
    live.call(x, out)
    gc.collect()
    assert in_graph() is not None
    live.A = None
    gc.collect()
    assert in_graph() is None


def test_a_matrix_may_go_while_room_is_made(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    from akx.operator import mutable_csr

    class Going(dict[Any, Any]):
        """All matrices go as soon as their keys have been read."""

        def __iter__(self) -> Iterator[Any]:
            keys = list(self.keys())
            self.clear()
            return iter(keys)

    x, _ = live.case.arrays()
    monkeypatch.setattr(mutable_csr, "_MOST", 1)
    monkeypatch.setattr(mutable_csr, "_LIVE", Going())
    held = live.A, Sparse(live.host)
    for one in held:
        live.A = one
        live.is_right(x, live.call(x)[0])
    assert len(mutable_csr._LIVE) == 1


def test_what_is_kept_goes_with_its_owner(live: Live) -> None:
    from akx.operator import mutable_csr

    x, _ = live.case.arrays()
    for _ in range(3):
        live.call(x)
    assert len(mutable_csr._LIVE) == 1
    live.A = None
    gc.collect()
    assert not mutable_csr._LIVE


@pytest.mark.parametrize("live", ["always"], indirect=True)
def test_another_form_is_read_while_the_device_works(live: Live) -> None:
    """It is waited for, behind what is kept, which is done again where that was of another content."""
    live.A.format = "csc"
    x, out = live.case.arrays()
    for factor in (1.0, 1.0, 1.0, 1.0, 2.0, 1.0):
        live.host.data *= factor
        live.call(x, out)
        live.is_right(x, out)
    log = live.case.driver.log
    assert log.index("cuGraphLaunch") < log.index("cuStreamSynchronize")
    assert log.count("cuGraphLaunch") == 1


def test_a_matrix_of_the_host_is_read_while_the_device_works(
    case: Case, asked: Asked, monkeypatch: pytest.MonkeyPatch, cupy: Any
) -> None:
    """What is kept is launched first, and another time where the matrix was changed."""
    monkeypatch.setenv("AKX_PREPARE", "always")
    x, out = case.arrays()
    for _ in range(4):
        akx.matrix_powers(case.A, x, K, out=out, backend="cuda")
    case.is_right(x, out)
    content_of, log = lookup.content_of, case.driver.log
    monkeypatch.setattr(lookup, "content_of", lambda *given: log.append("read") or content_of(*given))  # type: ignore[func-returns-value]
    log.clear()
    akx.matrix_powers(case.A, x, K, out=out, backend="cuda")
    assert "cuGraphLaunch" in log[: log.index("read")]
    assert "cuStreamSynchronize" not in log
    case.is_right(x, out)
    case.A.data *= 2
    akx.matrix_powers(case.A, x, K, out=out, backend="cuda")
    case.is_right(x, out)
    assert len(asked.made) == 1


@pytest.mark.parametrize("is_ours", [False, True])
def test_a_matrix_of_the_host_is_read_between_both_copies(
    case: Case, asked: Asked, monkeypatch: pytest.MonkeyPatch, is_ours: bool
) -> None:
    """Vectors of the host: x is on its way, and V is not waited for yet. An akx.Matrix is not read."""
    monkeypatch.setenv("AKX_PREPARE", "always")
    make = akx.MatrixPowers.__init__

    def make_there(P: Any, *given: Any, **options: Any) -> None:
        make(P, *given, **options)
        P._home = "cuda"

    monkeypatch.setattr(akx.MatrixPowers, "__init__", make_there)
    A = asked.A if is_ours else case.A
    x = np.random.default_rng(5).standard_normal(N)
    content_of, log = lookup.content_of, case.driver.log
    monkeypatch.setattr(lookup, "content_of", lambda *given: log.append("read") or content_of(*given))  # type: ignore[func-returns-value]

    def is_right(times: int, out: Any = None) -> None:
        log.clear()
        V = akx.matrix_powers(A, x, K, out=out, backend="cuda")
        assert out is None or V is out
        case.is_right(x, SimpleNamespace(host=V.copy()))
        assert log.count("cuMemcpyDtoHAsync") == times

    for _ in range(3):
        is_right(1)
    for out in (None, np.full((N, K + 1), np.nan, order="F")):
        is_right(1, out)
        copies = [one for one in log if "Memcpy" in one or one in ("read", "cuStreamSynchronize")]
        beside = [] if is_ours else ["read"]
        assert copies == ["cuMemcpyHtoDAsync", *beside, "cuMemcpyDtoHAsync", "cuStreamSynchronize"]
    if not is_ours:
        case.A.data *= 2
        is_right(2)
        is_right(1)
    assert len(asked.made) == 1
