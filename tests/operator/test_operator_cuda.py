"""The operator on a GPU: arrays of the host and of CuPy in all layouts, answers in kind, and what is refused."""

from __future__ import annotations

import gc
import signal
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx.backends.cuda.device.runtime import cuda_missing
from akx.core.errors import AkxWarning, ArgumentError, ArgumentTypeError, MatrixError
from akx.core.plan import Plan
from akx.tuner.online import candidates
from akx.tuner.online import threads as beside
from benchmarks.gallery import stencil

NUMPY_TAKES_DEVICES = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing())),
    pytest.mark.usefixtures("no_plans_of_the_user"),
]


class Speaker:
    """Nothing but DLPack."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __dlpack__(self, **options: Any) -> Any:
        return self.held.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.held.__dlpack_device__()


class Copied(Speaker):
    """Hands out copies."""

    def __dlpack__(self, **options: Any) -> Any:
        return self.held.__dlpack__(**{**options, "copy": True})


def matrix(n: int = 5003) -> sp.csr_array:
    rng = np.random.default_rng(0)
    A = sp.diags_array([1.0, -2.0, 1.5, 0.5], offsets=[-1, 0, 1, 40], shape=(n, n), format="csr")
    A.data = rng.uniform(-0.5, 0.5, A.nnz)
    return A


def powers(A: Any, x: Any, k: int) -> Any:
    V = [x]
    for _ in range(k):
        V.append(A @ V[-1])
    return np.stack(V, axis=-1)


def test_host_arrays_on_the_gpu() -> None:
    A, rng = matrix(), np.random.default_rng(1)
    P = akx.MatrixPowers(A, 5, backend="cuda")
    assert P.plan.backend == "cuda"
    for x in (rng.standard_normal(5003), rng.standard_normal((5003, 3)), rng.standard_normal((3, 5003)).T):
        V = P(x)
        assert isinstance(V, np.ndarray)
        np.testing.assert_allclose(V, powers(A, x, 5), rtol=1e-12, atol=1e-13)
        out = np.empty_like(V, order="F")
        assert P(x, out=out) is out
        np.testing.assert_array_equal(out, V)
    assert P.nbytes > 12 * A.nnz
    assert "GB/s" in P.explain()


def test_new_values() -> None:
    A, x = matrix(), np.random.default_rng(1).standard_normal(5003)
    P = akx.MatrixPowers(A, 3, backend="cuda")
    P(x)
    P.update_values(3 * A)
    np.testing.assert_allclose(P(x), powers(3 * A, x, 3), rtol=1e-12, atol=1e-12)


def test_new_values_of_the_same_entries_are_laid_out_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    A, x = matrix(), np.random.default_rng(1).standard_normal(5003)
    A.sort_indices()
    P = akx.MatrixPowers(A, 3, backend="cuda", plan=Plan("cuda", "sweep", "sell16-2", k=3))
    P(x)
    monkeypatch.setattr(akx.Matrix, "from_any", None)  # nothing is looked at on the host
    for factor in (3.0, -0.25):
        P.update_values(factor * A)
        np.testing.assert_allclose(P(x), powers(factor * A, x, 3), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_new_values_in_a_table_stay_on_the_device(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same ones at other entries, and others; more of them than there is room for come to the host."""
    from akx.backends.cuda.device.memory import DeviceArray, to_device
    from akx.backends.cuda.value_compression import program as stored_program

    A = sp.csr_array(stencil((71, 73), 9, constant=True)).astype(dtype)
    A.sort_indices()
    rng, x = np.random.default_rng(1), np.random.default_rng(2).standard_normal(A.shape[0]).astype(dtype)
    plan = Plan("cuda", "resident", "1x1-1", k=3, k_per_pass=3, options={"block": 256, "stored": "table"})
    P = akx.MatrixPowers(A, 3, plan=plan)
    tolerance = 1e-4 if np.finfo(dtype).eps > 1e-10 else 1e-12
    P(x)
    few, come = rng.standard_normal(50).astype(dtype) / 9, []
    get = DeviceArray.get
    with monkeypatch.context() as watched:
        watched.setattr(stored_program, "encoded", None)
        watched.setattr(DeviceArray, "get", lambda self, out=None: come.append(self.size) or get(self, out))
        for data in (A.data[::-1].copy(), A.data * few[0], rng.choice(few, A.nnz), -0.0 * A.data):
            B = sp.csr_array((data.astype(dtype), A.indices, A.indptr), shape=A.shape)
            for given in (B, to_device(B.data)):
                P.update_values(A)
                P.update_values(given)
                assert A.nnz not in come
                np.testing.assert_allclose(P(x), powers(B, x, 3), rtol=tolerance, atol=tolerance)
                come.clear()
    B.data = rng.standard_normal(A.nnz).astype(dtype) / 9
    P.update_values(to_device(B.data))
    np.testing.assert_allclose(P(x), powers(B, x, 3), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_new_values_from_the_device(cupy: Any, dtype: str) -> None:
    A, rng = matrix().astype(dtype), np.random.default_rng(1)
    A.sort_indices()
    P = akx.MatrixPowers(A, 3, backend="cuda")
    x = rng.standard_normal(5003).astype(dtype)
    given, wide = cupy.asarray(x), cupy.asarray(x.astype(complex))
    tolerance = 1e-4 if np.finfo(dtype).eps > 1e-10 else 1e-12
    P(given), P(wide)
    held, stream = P.nbytes, cupy.cuda.Stream(non_blocking=True)
    for turn in range(3):
        B = A.copy()
        B.data = (rng.standard_normal(A.nnz) / 3).astype(dtype)
        with stream:
            values = cupy.zeros(A.nnz, dtype=dtype)
            values += cupy.asarray(B.data)
            P.update_values(values, check_finite=turn > 0)
            values[:] = cupy.nan  # copied by then, as far as the stream is concerned
        V, W = P(given), P(wide)
        np.testing.assert_allclose(cupy.asnumpy(V), powers(B, x, 3), rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(cupy.asnumpy(W), powers(B, x, 3), rtol=tolerance, atol=tolerance)
        Q = akx.MatrixPowers(B, 3, backend="cuda", plan=P.plan)
        assert cupy.asnumpy(Q(given)).tobytes() == cupy.asnumpy(V).tobytes()
    assert P.nbytes > held
    V = P(np.stack([x, 2 * x], axis=1))  # a program that has to be made: from the values of now
    np.testing.assert_allclose(V[:, 1], powers(B, 2 * x, 3), rtol=tolerance, atol=2 * tolerance)
    strided = cupy.asarray(np.repeat(A.data, 3))[1::3]
    P.update_values(strided)
    np.testing.assert_allclose(P(x), powers(A, x, 3), rtol=tolerance, atol=tolerance)


def test_new_values_from_the_device_that_are_refused(cupy: Any) -> None:
    A, x = matrix(), cupy.asarray(np.random.default_rng(1).standard_normal(5003))
    P = akx.MatrixPowers(A, 3, backend="cuda")
    V = P(x)
    wrong = cupy.asarray(A.data)
    wrong[A.nnz // 2] = cupy.nan
    for values, error in (
        (wrong, MatrixError),
        (cupy.zeros(A.nnz + 1), MatrixError),
        (cupy.zeros((A.nnz, 1)), MatrixError),
        (cupy.zeros(A.nnz, dtype=np.float32), ArgumentTypeError),
    ):
        with pytest.raises(error):
            P.update_values(values)
        assert cupy.array_equal(P(x), V)


def test_results_by_dlpack(cupy: Any) -> None:
    """A giver that speaks DLPack alone gets what speaks it; the memory lives as long as who took it."""
    torch = pytest.importorskip("torch")
    A, x = matrix(), np.random.default_rng(3).standard_normal((5003, 2))
    P, expected = akx.MatrixPowers(A, 3, backend="cuda"), powers(matrix(), x, 3)
    speaker = Speaker(cupy.asarray(x))
    for take, back in (
        (cupy.from_dlpack, cupy.asnumpy),
        (torch.from_dlpack, lambda V: V.cpu().numpy()),
        (torch.utils.dlpack.from_dlpack, lambda V: V.cpu().numpy()),
        (torch.as_tensor, lambda V: V.cpu().numpy()),
    ):
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            taken = [take(P(speaker)) for _ in range(8)]
            assert taken[0].shape == (5003, 2, 4)
        for V in taken:  # results of their own, none given away while it is held
            np.testing.assert_allclose(back(V), expected, rtol=1e-12, atol=1e-13)
        taken[0][...] = 7
        np.testing.assert_allclose(back(taken[1]), expected, rtol=1e-12, atol=1e-13)
    V = P(speaker)
    on_host = np.from_dlpack(V, device="cpu") if NUMPY_TAKES_DEVICES else V.get()
    np.testing.assert_array_equal(on_host, V.get())
    copy = cupy.from_dlpack(Copied(V))
    copy[...] = 0
    np.testing.assert_allclose(V.get(), expected, rtol=1e-12, atol=1e-13)
    out = P(Speaker(cupy.asarray(x[:, 0].copy())))
    again = torch.from_dlpack(out)
    assert P(Speaker(cupy.asarray(x[:, 0].copy())), out=out) is out
    np.testing.assert_allclose(again.cpu().numpy(), expected[:, 0], rtol=1e-12, atol=1e-13)


def test_memory_taken_by_dlpack_goes_back_to_the_pool(cupy: Any) -> None:
    from akx.backends.cuda.device.memory import empty
    from akx.backends.cuda.device.pool import memory_pool

    gc.collect()
    before = memory_pool().used
    array = empty((1000, 1000), np.float64)
    taken = cupy.from_dlpack(array)
    unused = array.__dlpack__()
    del array
    gc.collect()
    assert memory_pool().used >= before + 8_000_000
    del unused
    gc.collect()
    assert memory_pool().used >= before + 8_000_000
    del taken
    gc.collect()
    assert memory_pool().used == before


def test_cupy_in_cupy_out(cupy: Any) -> None:
    A, rng = matrix(), np.random.default_rng(2)
    P = akx.MatrixPowers(A, 4, backend="cuda")
    x = rng.standard_normal((5003, 2))
    vectors = {
        "one": (cupy.asarray(x[:, 0].copy()), x[:, 0]),
        "a column": (cupy.asarray(x)[:, 1], x[:, 1]),
        "in C order": (cupy.asarray(x), x),
        "in Fortran order": (cupy.asfortranarray(cupy.asarray(x)), x),
        "every second": (cupy.asarray(np.repeat(x, 2, axis=0))[::2], x),
    }
    for name, (given, host) in vectors.items():
        V = P(given)
        assert isinstance(V, cupy.ndarray), name
        np.testing.assert_allclose(cupy.asnumpy(V), powers(A, host, 4), rtol=1e-12, atol=1e-13, err_msg=name)
        out = cupy.full_like(V, np.nan)
        assert P(given, out=out) is out, name
        np.testing.assert_array_equal(cupy.asnumpy(out), cupy.asnumpy(V), err_msg=name)
        V_in_place = cupy.full_like(V, np.nan)
        V_in_place[..., 0] = given
        P(V_in_place[..., 0], out=V_in_place)
        np.testing.assert_array_equal(cupy.asnumpy(V_in_place), cupy.asnumpy(V), err_msg=name)


def test_types_widen_as_in_scipy(cupy: Any) -> None:
    A = matrix().astype(np.float32)
    x = np.random.default_rng(2).standard_normal(5003)
    for kind in (np.float32, np.float64, np.complex64, np.complex128):
        V = akx.matrix_powers(A, cupy.asarray(x.astype(kind)), 3)
        assert V.dtype == np.result_type(np.float32, kind)
        assert not np.isnan(cupy.asnumpy(V)).any()
        np.testing.assert_allclose(cupy.asnumpy(V), powers(A, x.astype(V.dtype), 3), rtol=1e-3, atol=1e-5)
    V = akx.matrix_powers(matrix(), cupy.asarray(x.astype(np.float32)), 3)
    assert V.dtype == np.float64


def test_on_a_stream_of_the_caller(cupy: Any) -> None:
    A, x = matrix(), np.random.default_rng(3).standard_normal(5003)
    P = akx.MatrixPowers(A, 4, backend="cuda")
    expected = powers(A, x, 4)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        for _ in range(20):
            given = cupy.zeros(5003)
            given += cupy.asarray(x)
            V = 2 * P(given)
            np.testing.assert_allclose(cupy.asnumpy(V), 2 * expected, rtol=1e-12, atol=1e-12)


def test_two_threads_with_an_operator_each(cupy: Any) -> None:
    A, wrong = matrix(), []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal(5003)
        P, given, expected = akx.MatrixPowers(A, 4, backend="cuda"), cupy.asarray(x), powers(A, x, 4)
        for turn in range(40):  # new results: graphs are recorded and replayed all the time
            kept = [P(given) for _ in range(3)]
            if not all(np.allclose(cupy.asnumpy(V), expected, rtol=1e-12, atol=1e-12) for V in kept):
                wrong.append((seed, turn))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_torch_and_dlpack(cupy: Any) -> None:
    torch = pytest.importorskip("torch")
    A, x = matrix(), np.random.default_rng(3).standard_normal((5003, 2))
    V = akx.matrix_powers(A, torch.as_tensor(x, device="cuda"), 3)
    assert isinstance(V, torch.Tensor)
    np.testing.assert_allclose(V.cpu().numpy(), powers(A, x, 3), rtol=1e-12, atol=1e-13)

    V = akx.matrix_powers(A, Speaker(cupy.asarray(x)), 3)
    np.testing.assert_allclose(V.get(), powers(A, x, 3), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(cupy.asnumpy(cupy.asarray(V)), powers(A, x, 3), rtol=1e-12, atol=1e-13)


def test_tensors_that_are_more_than_their_memory() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    A, x = matrix(), rng.standard_normal(5003) + 1j * rng.standard_normal(5003)
    P, given = akx.MatrixPowers(A, 3, backend="cuda"), torch.as_tensor(x, device="cuda")
    for tensor, meant in ((given.conj(), x.conj()), (given.conj().imag, x.conj().imag)):
        np.testing.assert_allclose(P(tensor).cpu().numpy(), powers(A, meant, 3), rtol=1e-12, atol=1e-13)
    with pytest.raises(ArgumentTypeError, match="detach"):
        P(torch.ones(5003, device="cuda", dtype=torch.float64, requires_grad=True))


def test_what_is_refused(cupy: Any) -> None:
    P = akx.MatrixPowers(matrix(), 2, backend="cuda")
    with pytest.raises(ArgumentError, match="does not fit"):
        P(cupy.zeros(7))
    with pytest.raises(ArgumentTypeError, match="type"):
        P(cupy.zeros(5003, dtype=np.int32))
    with pytest.raises(ArgumentError, match="strides"):
        P(cupy.zeros(5003)[::-1])
    with pytest.raises(ArgumentError, match="on the device"):
        P(cupy.zeros(5003), out=np.zeros((5003, 3), order="F"))
    with pytest.raises(ArgumentError, match="layout"):
        P(cupy.zeros(5003), out=cupy.zeros((5003, 3)))
    with pytest.raises(ArgumentTypeError, match="on the device"):
        akx.MatrixPowers(matrix(), 2, backend="cpu")(cupy.zeros(5003))


def test_tuning_for_the_gpu(tmp_path: Path, cupy: Any) -> None:
    A = matrix(40_000)
    db = tmp_path / "own.sqlite"
    result = akx.tune(A, 4, backend="cuda", seconds=8, trials=25, db=db)
    assert result.backend == "cuda"
    assert result.speedup >= 1
    assert result.device.startswith("cuda/")
    (kept,) = akx.PlanDatabase(db).list()
    if not kept.provisional:  # as it is where other tests disturb it
        again = akx.tune(A, 4, backend="cuda", db=db)
        assert again.reused
        assert again.plan == result.plan
    P = akx.MatrixPowers(A, 4, backend="auto", db=db)
    assert P.plan.backend == "cpu"
    x = np.random.default_rng(0).standard_normal(40_000)
    np.testing.assert_allclose(cupy.asnumpy(P(cupy.asarray(x))), powers(A, x, 4), rtol=1e-12, atol=1e-13)
    assert akx.MatrixPowers(A, 4, backend="cuda", db=db).plan == result.plan


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_an_overflow_on_the_device_is_a_warning_of_a_later_call(dtype: Any, cupy: Any) -> None:
    A = sp.diags_array([-1.0, 4.0, -1.0], offsets=[-1, 0, 1], shape=(5003, 5003), format="csr")
    A = (A * (1e12 if np.finfo(dtype).maxexp < 200 else 1e100)).astype(dtype)
    P = akx.MatrixPowers(A, 7, backend="cuda")
    x = cupy.ones((5003, 2), dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        V = P(x)
        cupy.cuda.Device().synchronize()
        assert not bool(cupy.isfinite(V).all())
    with pytest.warns(AkxWarning, match="power 4 of 7 is the first"):
        P(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        P(x)  # once for each object


def test_results_on_the_device_that_are_finite_are_no_warning(cupy: Any) -> None:
    P = akx.MatrixPowers(matrix(), 4, backend="cuda")
    x = cupy.ones(5003)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(70):
            P(x)
        x[17] = np.nan
        for _ in range(70):
            P(x)
        cupy.cuda.Device().synchronize()
        P(x)


def test_calls_and_new_values_are_right_after_a_handler_raised_in_them() -> None:
    class Alarm(Exception):
        pass

    def ring(number: int, frame: Any) -> None:
        raise Alarm

    A, x = matrix(), np.ones(5003)
    P = akx.MatrixPowers(A, 4, backend="cuda")
    expected = {scale: akx.matrix_powers(scale * A, x, 4, backend="cuda") for scale in (1.0, 2.0)}
    random = np.random.default_rng(1)
    before = signal.signal(signal.SIGALRM, ring)
    rung = 0
    try:
        for number in range(400):
            scale = 1.0 + number % 2
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, 3e-3))
                P.update_values(scale * A)
                P(x)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                rung += 1
            if number % 20 < 2:
                P.update_values(scale * A)
                assert np.array_equal(P(x), expected[scale])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rung > 10


def test_calls_on_the_device_are_tuned_online(cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs, the result is right; takes what thinking and some candidates take to be compiled.

    What it may cost is tested without a device: here calls count for more than they take, each step is waited for, and
    so is code, which is compiled as fast as a machine that is busy with other tests has it.
    """
    monkeypatch.setattr(candidates, "_NICE", 0)
    A, k = matrix(), 4
    x = np.random.default_rng(1).standard_normal(A.shape[0])
    P = akx.MatrixPowers(A, k, tune="online", db=tmp_path / "plans.db")
    expected = akx.MatrixPowers(A, k, backend="cuda")(x)
    close = {"rtol": 1e-12, "atol": 1e-12 * np.abs(expected).max()}
    there, out = cupy.asarray(x), cupy.empty((A.shape[0], k + 1), order="F")
    deadline = time.monotonic() + 120.0
    search = None
    while search is None or (sum(search.tried.values()) < 2 and not search.is_over):
        assert time.monotonic() < deadline, "no search" if search is None else search.told()
        out[...] = cupy.nan
        for _ in range(64):
            P(there, out=out)
        np.testing.assert_allclose(out.get(), expected, **close)
        np.testing.assert_allclose(P(x), expected, **close)
        search = P._prepared.online[np.dtype(float), 1, "cuda"]
        search.budget.total += 0.1
        for thread in threading.enumerate():
            if thread.name == beside.NAME:
                thread.join(max(0.0, deadline - time.monotonic()))
        if search._candidates.waits:
            search._candidates.warmup.wait_for_one(10.0)
    assert sum(search.tried.values()) >= 2, search.told()
    assert not search.tried["wrong"] + search.tried["failed"]
    assert {call[2] for call in P._prepared.online} == {"cpu", "cuda"}
    with pytest.raises(ArgumentError, match="within a memory budget"):
        akx.MatrixPowers(A, k, tune="online", memory_budget="1G")
