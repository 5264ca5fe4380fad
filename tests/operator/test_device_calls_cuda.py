"""Calls on a GPU as one launch: arrays in many places, streams of callers, threads, and captures by all who can."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx.backends.cuda.device.runtime import cuda_missing
from akx.core.errors import ArgumentError, DeviceError, MatrixError
from akx.core.plan import Plan

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing())),
    pytest.mark.usefixtures("no_plans_of_the_user"),
]

N, K = 5003, 4
#: Two launches, a cooperative one, one for each power, those that begin before the last has ended, and what is chosen.
PLANS = {
    "ghost": Plan("cuda", "ghost", "1x1-1", k=K, k_per_pass=2, options={"block": 256}),
    "resident": Plan("cuda", "resident", "1x1-1", k=K, k_per_pass=K, options={"block": 256}),
    "sweep": Plan("cuda", "sweep", "csr-2", k=K),
    "early": Plan("cuda", "sweep", "sell16-2", k=K, options={"early": True}),
    "any": None,
}


def matrix(seed: int = 0) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    A = sp.diags_array([1.0, -2.0, 1.5, 0.5], offsets=[-1, 0, 1, 40], shape=(N, N), format="csr")
    A.data = rng.uniform(-0.5, 0.5, A.nnz)
    return A


def powers(A: Any, x: Any) -> Any:
    V = [x]
    for _ in range(K):
        V.append(A @ V[-1])
    return np.stack(V, axis=-1)


def vector(cupy: Any, seed: int) -> tuple[Any, Any]:
    x = cupy.asarray(np.random.default_rng(seed).standard_normal(N))
    return x, cupy.full((N, K + 1), cupy.nan, order="F")


def is_right(A: Any, x: Any, V: Any) -> None:
    host = (x.get, V.get) if hasattr(V, "get") else (x.cpu().numpy, V.cpu().numpy)
    np.testing.assert_allclose(host[1](), powers(A, host[0]()), rtol=1e-12, atol=1e-12)
    V[...] = float("nan")


@pytest.mark.parametrize("plan", PLANS)
def test_arrays_in_many_places(cupy: Any, plan: str) -> None:
    """The graph is moved to them; those that come again have their own. The bits are always the same."""
    A = matrix()
    P, pairs = akx.MatrixPowers(A, K, plan=PLANS[plan], backend="cuda"), [vector(cupy, seed) for seed in range(24)]
    wanted: dict[int, bytes] = {}
    for _ in range(4):
        for number, (x, out) in enumerate(pairs):
            assert P(x, out=out) is out
            assert wanted.setdefault(number, out.get().tobytes()) == out.get().tobytes()
            is_right(A, x, out)
    program = P.program(1)[0]
    assert all(graph.is_movable for graph in program._graphs.values())  # type: ignore[attr-defined]
    for seed in range(20):
        x, out = vector(cupy, seed)
        out[:, 0] = x
        P(out[:, 0], out=out)
        is_right(A, x, out)


@contextmanager
def stream_of_kind(cupy: Any, kind: str) -> Iterator[None]:
    if kind == "external":
        held = cupy.cuda.Stream(non_blocking=True)
        with cupy.cuda.ExternalStream(held.ptr):
            yield
    else:
        made = {
            "null": lambda: cupy.cuda.Stream.null,
            "blocking": cupy.cuda.Stream,
            "own": lambda: cupy.cuda.Stream(non_blocking=True),
            "per thread": lambda: cupy.cuda.Stream.ptds,
        }
        with made[kind]():
            yield


@pytest.mark.parametrize("kind", ["null", "blocking", "own", "per thread", "external"])
def test_every_kind_of_stream(cupy: Any, kind: str) -> None:
    """Streams that come and go, with work before and behind each call, and new values between."""
    A, factor = matrix(), 1.0
    P = akx.MatrixPowers(A, K, backend="cuda")
    x = np.random.default_rng(3).standard_normal(N)
    held, given, out = cupy.asarray(x), cupy.empty(N), cupy.empty((N, K + 1), order="F")
    cupy.cuda.Device().synchronize()
    for turn in range(30):
        with stream_of_kind(cupy, kind):
            given[:] = cupy.nan
            given[:] = held
            P(given, out=out)
            W = 2 * out
            given[:] = cupy.nan
            W = W.get()
        np.testing.assert_allclose(W, 2 * powers(factor * A, x), rtol=1e-12, atol=1e-12)
        if turn % 5 == 0:
            factor = 1.0 + turn / 30
            P.update_values(factor * A)


def test_streams_one_after_another(cupy: Any) -> None:
    """One operator on many streams at once: its own memory is used by one call at a time."""
    A = matrix()
    P, given = akx.MatrixPowers(A, K, backend="cuda"), [vector(cupy, seed) for seed in range(4)]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)] + [cupy.cuda.Stream.null]
    cupy.cuda.Device().synchronize()
    for _ in range(50):
        for stream, (x, out) in zip(streams, given, strict=True):
            with stream:
                P(x, out=out)
    cupy.cuda.Device().synchronize()
    for x, out in given:
        is_right(A, x, out)


@pytest.mark.parametrize("kind", ["null", "own", "per thread"])
def test_two_threads_and_one_operator(cupy: Any, kind: str) -> None:
    A, wrong = matrix(), list[Any]()
    P = akx.MatrixPowers(A, K, backend="cuda")

    def work(seed: int) -> None:
        try:
            with cupy.cuda.Device(), stream_of_kind(cupy, kind):
                x, out = vector(cupy, seed)
                for _ in range(100):
                    P(x, out=out)
                is_right(A, x, out)
        except BaseException as problem:
            wrong.append(problem)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---------------------------------------------------------------------------------------------------------- captures


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("way", ["MatrixPowers", "matrix_powers"])
def test_a_capture_by_cupy(cupy: Any, plan: str, way: str) -> None:
    A, stream = matrix(), cupy.cuda.Stream(non_blocking=True)
    P, held = akx.MatrixPowers(A, K, plan=PLANS[plan], backend="cuda"), akx.Matrix.from_any(A)

    def call(x: Any, out: Any) -> None:
        P(x, out=out) if way == "MatrixPowers" else akx.matrix_powers(held, x, K, plan=PLANS[plan], out=out)

    (x, out), (y, other) = vector(cupy, 1), vector(cupy, 2)
    cupy.cuda.Device().synchronize()
    with stream:
        call(x, out)
        stream.begin_capture()
        call(x, out)
        call(y, other)
        graph = stream.end_capture()
        for seed in range(3):
            x[:] = cupy.asarray(np.random.default_rng(seed).standard_normal(N))
            out[...] = cupy.nan
            graph.launch(stream=stream)
            call(y, other)  # and calls that are not captured, between
            stream.synchronize()
            is_right(A, x, out)
            is_right(A, y, other)
        if way == "MatrixPowers":
            P.update_values(3 * A)
            graph.launch(stream=stream)
            stream.synchronize()
            is_right(3 * A, x, out)


def test_a_capture_by_the_driver(cupy: Any) -> None:
    """With nothing but handles, in the strictest mode."""
    from akx.backends.cuda.device.runtime import runtime

    live, A = runtime(), matrix()
    P, (x, out) = akx.MatrixPowers(A, K, backend="cuda"), vector(cupy, 1)
    with live.active():
        handle = live.call("cuStreamCreate", 1)
        with cupy.cuda.ExternalStream(int(handle)):
            cupy.cuda.Device().synchronize()
            P(x, out=out)
            out[...] = cupy.nan
            mode = live.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
            live.call("cuStreamBeginCapture", handle, mode)
            P(x, out=out)
            graph = live.call("cuGraphInstantiate", live.call("cuStreamEndCapture", handle), 0)
            live.call("cuGraphLaunch", graph, handle)
            live.call("cuStreamSynchronize", handle)
            is_right(A, x, out)
            live.driver.cuGraphExecDestroy(graph)
        live.call("cuStreamDestroy", handle)


def test_a_capture_by_torch() -> None:
    torch = pytest.importorskip("torch")
    A, rng = matrix(), np.random.default_rng(1)
    P = akx.MatrixPowers(A, K, backend="cuda")
    x = torch.as_tensor(rng.standard_normal(N), device="cuda")
    out = torch.full((K + 1, N), float("nan"), dtype=torch.float64, device="cuda").T
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            P(x, out=out)
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        P(x, out=out)
        W = P(x)  # in memory of the graph's own
        total = W.sum()
    for _ in range(3):
        x.copy_(torch.as_tensor(rng.standard_normal(N), device="cuda"))
        graph.replay()
        torch.cuda.synchronize()
        np.testing.assert_allclose(float(total), powers(A, x.cpu().numpy()).sum(), rtol=1e-9)
        is_right(A, x, W)
        is_right(A, x, out)


@pytest.mark.parametrize("kind", ["akx.Matrix", "akx.Matrix of the device", "SciPy's CSR", "SciPy's CSC"])
def test_a_first_call_is_captured(cupy: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is prepared; and the graph stays right when it is."""
    monkeypatch.setenv("AKX_PREPARE", "auto")
    akx.clear_cache()
    host, stream = matrix(), cupy.cuda.Stream(non_blocking=True)
    on_device = callers_matrix(cupy, "cupy", host)[0]
    kinds = {"akx.Matrix": host, "akx.Matrix of the device": on_device}
    A = akx.Matrix.from_any(kinds[kind]) if kind in kinds else host if kind == "SciPy's CSR" else host.tocsc()
    x, out = vector(cupy, 1)
    cupy.cuda.Device().synchronize()
    with stream:
        for _ in range(2):
            akx.matrix_powers(A, x, K, out=out, backend="cuda")
        stream.begin_capture()
        akx.matrix_powers(A, x, K, out=out, backend="cuda")
        graph = stream.end_capture()
        for prepare in ("auto", "always"):
            monkeypatch.setenv("AKX_PREPARE", prepare)
            x[:] = cupy.asarray(np.random.default_rng(2).standard_normal(N))
            akx.matrix_powers(A, x, K, out=out, backend="cuda")
            out[...] = cupy.nan
            graph.launch(stream=stream)
            stream.synchronize()
            is_right(host, x, out)


@pytest.mark.parametrize("prepare", ["auto", "always"])
@pytest.mark.parametrize("form", ["csc", "coo"])
def test_other_forms_say_why_they_are_not_captured(
    cupy: Any, form: str, prepare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AKX_PREPARE", prepare)
    akx.clear_cache()
    A, (x, out) = getattr(callers_matrix(cupy, "cupy", matrix())[0], f"to{form}")(), vector(cupy, 1)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        akx.matrix_powers(A, x, K, out=out)
        stream.begin_capture()
        with pytest.raises(DeviceError, match="CSC and COO cannot be put in order in a capture"):
            akx.matrix_powers(A, x, K, out=out)
        stream.end_capture()


def test_what_a_capture_has_no_room_for(cupy: Any) -> None:
    """It is told, and the capture goes on."""
    A, stream = matrix(), cupy.cuda.Stream(non_blocking=True)
    P, (x, out) = akx.MatrixPowers(A, K, backend="cuda"), vector(cupy, 1)
    held, single = akx.Matrix.from_any(A), x.astype(np.float32)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        with pytest.raises(DeviceError, match="call it once before capture"):
            P(x, out=out)
        with pytest.raises(DeviceError, match="call it once before capture"):
            akx.matrix_powers(held, x, K, out=out)
        out.fill(0)
        stream.end_capture()
        P(x, out=out)
        stream.begin_capture()
        with pytest.raises(ArgumentError, match="x would be copied"):
            P(single, out=out)
        with pytest.raises(ArgumentError, match="overlap"):
            P(out[:, 1], out=out)
        P(x, out=out)
        graph = stream.end_capture()
        out[...] = cupy.nan
        graph.launch(stream=stream)
        stream.synchronize()
    is_right(A, x, out)


# ------------------------------------------------------------------------------------------------------ matrix_powers


def test_matrix_powers_by_identity(cupy: Any) -> None:
    A, (x, out) = akx.Matrix.from_any(matrix()), vector(cupy, 1)
    for _ in range(5):
        assert akx.matrix_powers(A, x, K, out=out) is out
        is_right(matrix(), x, out)
    B = akx.Matrix.from_any(2 * matrix())
    for _ in range(3):
        akx.matrix_powers(B, x, K, out=out)
        is_right(2 * matrix(), x, out)
        akx.matrix_powers(A, x, K, out=out)
        is_right(matrix(), x, out)


# ----------------------------------------------------------------------------------- matrices that callers may change


def callers_matrix(cupy: Any, library: str, A: Any) -> tuple[Any, Any]:
    """A matrix of a library, or a tuple of its arrays, and its values."""
    if library == "torch":
        torch = pytest.importorskip("torch")
        arrays = (torch.as_tensor(array.astype("i8")).cuda() for array in (A.indptr, A.indices))
        found = torch.sparse_csr_tensor(*arrays, torch.as_tensor(A.data).cuda(), size=A.shape)
        return found, found.values()
    arrays = tuple(map(cupy.asarray, (A.data, A.indices, A.indptr)))
    if library == "tuple":
        return arrays, arrays[0]
    return pytest.importorskip("cupyx.scipy.sparse").csr_matrix(arrays, shape=A.shape), arrays[0]


def captured(stream: Any, A: Any, x: Any, out: Any, *, calls: int = 4, pause: float = 0.0) -> Any:
    """The graph of a call on the current stream, after some that are not captured, and seconds later."""
    for _ in range(calls):
        akx.matrix_powers(A, x, K, out=out)
    stream.synchronize()
    time.sleep(pause)
    stream.begin_capture()
    akx.matrix_powers(A, x, K, out=out)
    return stream.end_capture()


@pytest.mark.parametrize("prepare", ["auto", "always"])
@pytest.mark.parametrize("library", ["cupy", "torch", "tuple"])
def test_a_change_is_in_v_though_nothing_is_waited_for(
    cupy: Any, library: str, prepare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls and changes in a row; what they were, all V say at the end. Back and forth, and other values in all."""
    monkeypatch.setenv("AKX_PREPARE", prepare)
    akx.clear_cache()
    host = matrix()
    A, values = callers_matrix(cupy, library, host)
    x, _ = vector(cupy, 1)
    if library == "torch":
        x = pytest.importorskip("torch").as_tensor(x.get()).cuda()
    for _ in range(4):
        akx.matrix_powers(A, x, K)
    found, expected = [], []
    for factor in (1.0, 2.0, 0.5, 0.5, 2.0, 1.0, 1.5):
        values *= factor
        host.data *= factor
        found += [akx.matrix_powers(A, x, K) for _ in range(2)]
        expected += [powers(host, (x.get if hasattr(x, "get") else x.cpu().numpy)())] * 2
    for V, wanted in zip(found, expected, strict=True):
        here = V.get() if hasattr(V, "get") else V.cpu().numpy()
        np.testing.assert_allclose(here, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("prepare", ["auto", "always"])
def test_a_captured_call_has_the_matrix_as_it_is(cupy: Any, prepare: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKX_PREPARE", prepare)
    akx.clear_cache()
    host = matrix()
    A, values = callers_matrix(cupy, "cupy", host)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        x, out = vector(cupy, 1)
        graph = captured(stream, A, x, out)
        for factor in (1.0, 2.0, 0.5, 0.5):
            values *= factor
            host.data *= factor
            graph.launch(stream)
            stream.synchronize()
            is_right(host, x, out)
            akx.matrix_powers(A, x, K, out=out)
            stream.synchronize()
            is_right(host, x, out)


@pytest.mark.parametrize("prepare", ["auto", "always"])
@pytest.mark.parametrize("library", ["cupy", "tuple"])
def test_a_capture_some_time_after_the_last_call_looks_at_the_matrix(
    cupy: Any, library: str, prepare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at plans is due by then."""
    monkeypatch.setenv("AKX_PREPARE", prepare)
    akx.clear_cache()
    host = matrix()
    A, values = callers_matrix(cupy, library, host)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        x, out = vector(cupy, 1)
        graph = captured(stream, A, x, out, pause=0.2)
        for factor in (1.0, 2.0, 3.0):
            values *= factor
            host.data *= factor
            graph.launch(stream)
            stream.synchronize()
            is_right(host, x, out)


def test_two_graphs_of_one_matrix_on_two_streams(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of products of the arrays as they are, whose blocks meet; many rows, so that there are many blocks."""
    monkeypatch.setenv("AKX_PREPARE", "auto")
    akx.clear_cache()
    n = 200_000
    host = sp.diags_array([0.5, -0.5, 0.25], offsets=[-1, 0, 40], shape=(n, n), format="csr")
    A, _ = callers_matrix(cupy, "cupy", host)
    made = []
    for seed in range(2):
        stream, x = cupy.cuda.Stream(non_blocking=True), cupy.asarray(np.random.default_rng(seed).standard_normal(n))
        out = cupy.full((n, K + 1), cupy.nan, order="F")
        cupy.cuda.Device().synchronize()
        with stream:
            made.append((stream, captured(stream, A, x, out, calls=1), x, out))
    for _ in range(200):
        for stream, graph, _, _ in made:
            graph.launch(stream)
    cupy.cuda.Device().synchronize()
    for _, _, x, out in made:
        is_right(host, x, out)


@pytest.mark.parametrize("prepare", ["auto", "always"])
def test_two_threads_and_one_matrix(cupy: Any, prepare: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each on a stream of its own, one of them with start vectors that are looked at in every call."""
    monkeypatch.setenv("AKX_PREPARE", prepare)
    akx.clear_cache()
    A, _ = callers_matrix(cupy, "cupy", matrix())
    wrong: list[Any] = []

    def work(seed: int) -> None:
        try:
            with cupy.cuda.Stream(non_blocking=True) as stream:
                wide = cupy.zeros((N, 2))
                wide[:, 0], _ = vector(cupy, seed)
                x = wide[:, 0] if seed else wide[:, 0].copy()
                found = [akx.matrix_powers(A, x, K) for _ in range(40)]
                stream.synchronize()
                expected = powers(matrix(), x.get())
                for V in found:
                    np.testing.assert_allclose(V.get(), expected, rtol=1e-12, atol=1e-12)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong, wrong[0]


@pytest.mark.parametrize("what", ["data", "indices", "indptr"])
def test_what_is_wrong_is_not_followed_and_the_next_call_says_so(cupy: Any, what: str) -> None:
    """Or this one, where it looks at the matrix anyway: it is the first prepared one, or plans have changed."""
    akx.clear_cache()
    A, _ = callers_matrix(cupy, "cupy", matrix())
    x, _ = vector(cupy, 1)
    for _ in range(3):
        akx.matrix_powers(A, x, K)
    getattr(A, what)[17] = np.nan if what == "data" else 2**30

    def twice() -> None:
        for _ in range(2):
            akx.matrix_powers(A, x, K)
            cupy.cuda.Device().synchronize()

    with pytest.raises(MatrixError):
        twice()


def test_a_process_ends_without_a_word() -> None:
    """What is still kept then is given back while names of modules are gone."""
    script = (
        "import numpy as np, scipy.sparse as sp, akx\n"
        "A = sp.eye_array(3000, format='csr')\n"
        "kept = [akx.MatrixPowers(A, 2, backend='cuda') for _ in range(2)]\n"
        "akx.graphs_of_a_test = kept\n"
        "[P(np.ones(3000)) for P in kept for _ in range(4)]\n"
        "akx.solvers.cg(A, np.ones(3000), backend='cuda')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_capture_stands_what_is_given_back_meanwhile(cupy: Any) -> None:
    """The strictest kind of capture; whatever a collection of garbage finds may go in the midst of it."""
    from akx.backends.cuda.device.graphs import Graph, capture
    from akx.backends.cuda.device.memory import empty
    from akx.backends.cuda.device.pool import pinned
    from akx.backends.cuda.device.streams import Event, Mark, default_stream

    made = [pinned(1000, np.float64), Event(), Mark(default_stream())]
    words = empty(1000, np.uint64)
    with capture(default_stream()) as graph:
        words.fill_bytes(0)
    assert isinstance(graph, Graph)
    made.append(graph)
    del graph
    out, stream = cupy.zeros(10), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        out += 1  # compiled before
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
        made.clear()
        out += 1
        recorded = stream.end_capture()
        recorded.launch(stream)
    stream.synchronize()
    assert (out == 2).all()
