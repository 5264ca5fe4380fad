"""The variant `hubs` of the GPU's `sweep`: its layout read as the kernel reads it, and its kernels on host and GPU.

On the host they are the CUDA text itself, compiled by g++, on two multiprocessors (host_engine.py).
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import host_engine
import numpy as np
import pytest
import scipy.sparse as sp
from program_on_host import Device, poisoned_powers
from test_contract import DTYPES, KINDS, make_coefficients, make_matrix, random_numbers
from test_cuda import run_twice
from test_cuda_layouts import H100

from akx.backends import reference, registry
from akx.backends.cuda import row_lengths as lengths
from akx.backends.cuda.device.facts import cuda_missing
from akx.backends.cuda.matrix import transpose
from akx.backends.cuda.schedules.sweep import schedule as sweeps
from akx.backends.cuda.value_compression.encodings import FULL
from akx.backends.cuda.value_compression.new_values import GIVEN
from akx.backends.cuda.variants import hot_columns as hubs
from akx.backends.cuda.variants import swept
from akx.backends.cuda.variants.hot_columns import CHUNK, HUBS, HubsProgram, LaidOut, lay_out
from akx.backends.schedule import Coefficients
from akx.core.errors import DeviceMemoryError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from benchmarks import gallery

_LANES, _OWN = 32, 8
_HUB, _NOWHERE = 2**31, 2**32 - 1


def graph(n: int, dtype: str, seed: int = 1) -> Matrix:
    """A few rows and columns with most of the entries, one of them with all, and rows without any."""
    rng = np.random.default_rng(seed)
    rows, columns = ((n * rng.random(6 * n) ** power).astype(np.int64) for power in (4, 6))
    full = np.full(n, n // 3), np.arange(n)
    A = sp.csr_array((np.ones(7 * n), (np.append(rows, full[0]), np.append(columns, full[1]))), shape=(n, n))
    A.sum_duplicates()
    A.data = random_numbers(rng, A.nnz, dtype) / 8
    return Matrix.from_any(A.astype(dtype))


def product(found: LaidOut, runs: int, matrix: Matrix, x: Any) -> Any:
    """A x from the arrays of the layout, lane by lane as the kernel has it."""
    chunks = found.row_before.size
    y = np.full(matrix.n, np.nan, dtype=matrix.dtype)
    head, tail = (np.full(runs, np.nan, dtype=matrix.dtype) for _ in range(2))
    data = np.append(np.zeros(1, matrix.dtype), matrix.data)
    near = x[found.hubs]
    for me in range(runs):
        begin, end = chunks * me // runs, chunks * (me + 1) // runs
        carry, begun = matrix.dtype.type(0), False
        for chunk in range(begin, end):
            at = chunk * CHUNK + np.arange(_OWN)[None, :] * _LANES + np.arange(_LANES)[:, None]
            column = found.column[at].astype(np.int64)
            is_near = column >= _HUB
            entries = np.where(is_near, near[np.where(is_near, column - _HUB, 0)], x[np.where(is_near, 0, column)])
            products = data[found.entry[at]] * entries
            marks = found.mark[chunk * _LANES :][:_LANES]
            row = int(found.row_before[chunk])
            for lane in range(_LANES):
                before = int(found.row_before[chunk]) + (int(marks[lane]) >> 8)
                assert (before - row) % 2**32 == 0 or lane == 0  # rows that began in lanes before
                for u in range(_OWN):
                    if int(marks[lane]) >> u & 1:
                        if begun:
                            assert np.isnan(y[row])
                            y[row] = carry
                        elif chunk > begin or lane > 0 or u > 0:
                            head[me] = carry
                        carry, begun, row = matrix.dtype.type(0), True, (row + 1) % 2**32
                    carry = carry + products[lane, u]
        (tail if begun else head)[me] = carry
    for row, first, last in zip(found.split, found.begin.astype(int), found.end.astype(int), strict=True):
        assert np.isnan(y[row])  # by a run or by the runs together, never both
        y[row] = tail[first] + head[first + 1 : last + 1].sum()
    return y


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("kind", KINDS)
def test_layouts_give_the_product(kind: str, dtype: str) -> None:
    for n in (1, 37, 700):
        matrix = make_matrix(kind, n, dtype, 1)
        x = random_numbers(np.random.default_rng(n), (n,), dtype)
        wanted = matrix.to_scipy() @ x
        size = np.abs(matrix.to_scipy()) @ np.abs(x)
        for runs in (1, 2, 7, 40):
            found = product(lay_out(matrix, 32, runs), runs, matrix, x)
            assert (np.abs(found - wanted) <= 64 * np.finfo(dtype).eps * size).all()


@pytest.mark.parametrize("runs", [1, 3, 16, 500])
def test_rows_that_span_runs_and_hubs_that_are_not_all(runs: int) -> None:
    matrix = graph(5003, "complex128")
    x = random_numbers(np.random.default_rng(2), (matrix.n,), "complex128")
    found = lay_out(matrix, 32, runs)
    assert found.hubs.size == 2048 < matrix.n
    assert (np.diff(found.hubs.astype(np.int64)) > 0).all()
    assert (found.end > found.begin).any() or runs == 1
    assert np.array_equal(np.sort(found.entry[found.entry > 0]), np.arange(1, matrix.nnz + 1))
    size = np.abs(matrix.to_scipy()) @ np.abs(x)
    wrong = np.abs(product(found, runs, matrix, x) - matrix.to_scipy() @ x)
    assert (wrong <= 200 * np.finfo(np.float64).eps * size).all()


def test_hubs_are_what_most_entries_read() -> None:
    matrix = graph(9001, "float64")
    found = lay_out(matrix, 32, 8)
    counts = np.bincount(matrix.indices, minlength=matrix.n)
    others = np.delete(np.arange(matrix.n), found.hubs)
    assert found.hubs.size == 4096
    np.testing.assert_array_equal(found.hubs, np.sort(np.argsort(-counts, kind="stable")[:4096]))
    assert counts[found.hubs].min() >= counts[others].max()
    assert hubs.share(matrix, 32) == counts[found.hubs].sum() / matrix.nnz
    read = (found.column >= _HUB) & (found.entry > 0)
    assert read.sum() == counts[found.hubs].sum()


def test_it_is_offered_where_some_columns_have_most_entries() -> None:
    sweep = registry.get("cuda", "sweep")
    random = Matrix.from_any(gallery.rmat(17, 1_500_000))
    parameters = {one.name: one for one in sweep.space(random, H100, 8)}
    assert HUBS in parameters["variant"].choices
    assert parameters["hubs"].choices == (32, 64, 96, 128, 160)
    assert any(plan.variant == HUBS for plan in sweep.heuristic_plans(random, H100, 8))
    n = 40_000
    even = sp.random_array((n, n), density=8 / n, format="csr", rng=np.random.default_rng(3))
    for matrix in (Matrix.from_any(even), graph(9001, "float64")):  # no column stands out; x is short
        parameters = {one.name: one for one in sweep.space(matrix, H100, 8)}
        assert HUBS not in parameters["variant"].choices
        assert "hubs" not in parameters
        assert not any(plan.variant == HUBS for plan in sweep.heuristic_plans(matrix, H100, 8))
        assert sweep.feasible(Plan("cuda", "sweep", HUBS, k=8, k_per_pass=1), matrix, H100) is None


def test_on_a_device_with_less_shared_memory_there_are_fewer_hubs() -> None:
    sweep, matrix = registry.get("cuda", "sweep"), Matrix.from_any(gallery.rmat(17, 1_500_000, constant=True))
    small = replace(H100, shared_per_block=99 * 1024)
    parameters = {one.name: one for one in sweep.space(matrix, small, 8)}
    assert (parameters["hubs"].choices, parameters["hubs"].default) == ((32, 64, 96), 96)
    offered = [plan for plan in sweep.heuristic_plans(matrix, small, 8) if plan.variant == HUBS]
    assert [(plan.options["hubs"], plan.typed.stored) for plan in offered] == [(96, "full"), (96, "table")]
    for plan in (*offered, Plan("cuda", "sweep", "csr-4", k=8, k_per_pass=1, options={"hubs": 96})):
        assert sweep.feasible(plan, matrix, small) is None
    assert HUBS not in next(iter(sweep.space(matrix, replace(H100, shared_per_block=16 * 1024), 8))).choices


def test_more_in_shared_memory_is_thought_to_be_faster_as_far_as_it_is() -> None:
    matrix = Matrix.from_any(gallery.rmat(17, 1_500_000))
    sweep = registry.get("cuda", "sweep")

    def cycles(room: int) -> float:
        plan = Plan("cuda", "sweep", HUBS, k=8, k_per_pass=1, options={"hubs": room})
        return float(sweep.work(plan, matrix, H100, 1).cycles)

    assert cycles(64) < cycles(32)
    assert cycles(160) > cycles(128)  # all that is read often is there, and more of x takes longer to come


def test_what_is_asked_for_in_vain() -> None:
    sweep, matrix = registry.get("cuda", "sweep"), graph(701, "float64")
    plan = Plan("cuda", "sweep", HUBS, k=2, k_per_pass=1)
    small = replace(H100, shared_per_block=48 * 1024)
    assert "48 of shared memory" in sweep.feasible(plan, matrix, small)
    assert "block" in sweep.feasible(plan.replace(options={"block": 512}), matrix, H100)
    other = Plan("cuda", "sweep", "csr-4", k=2, k_per_pass=1, options={"hubs": 32})
    assert "variant of this name" in sweep.feasible(other, matrix, H100)


# ------------------------------------------------------------------------------------------------------- on the host

on_the_host = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
_SMS, _THREADS = 2, 96
_RUNS = _SMS * _THREADS // _LANES


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hubs")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, libraries: Path) -> Device:
    found = Device(SimpleNamespace(sms=_SMS), libraries, "hubs", "hubs_layout", "lengths", "transpose")
    found.install(monkeypatch, libraries, [hubs, swept, lengths, transpose])
    monkeypatch.setattr(hubs, "THREADS", _THREADS)
    return found


def program_of(device: Device, matrix: Matrix, k: int, room: int) -> HubsProgram:
    once = matrix.dtype.name in ("float32", "complex128")
    plan = Plan("cuda", "sweep", HUBS, k=k, k_per_pass=1, options={"hubs": room, "once": once})
    return HubsProgram(matrix, plan, device.facts, FULL)


def powers(device: Device, program: HubsProgram, x: Any, coefficients: Coefficients, aliased: bool) -> Any:
    """What a call finds in memory that was poisoned, the program's own included."""
    held = program._hub, *program._shares
    return poisoned_powers(device, program, x, coefficients, aliased=aliased, held=held)


def is_the_hosts(matrix: Matrix, room: int, runs: int) -> None:
    """All arrays of the device."""
    here, there = lay_out(matrix, room, runs), hubs.lay_out_there(matrix, room, runs)
    for name in ("column", "entry", "mark", "row_before"):
        array = getattr(there, name).get()
        assert array.dtype == getattr(here, name).dtype
        np.testing.assert_array_equal(array, getattr(here, name))
    for name in ("hubs", "split", "begin", "end"):
        np.testing.assert_array_equal(getattr(there, name), getattr(here, name))


def check(device: Device, matrix: Matrix, turn: int, room: int = 1) -> None:
    """One or two start vectors, in both ways; 1 KiB holds 64 to 256 hubs."""
    rng, k = np.random.default_rng(turn), (3, 1, 4, 2)[turn % 4]
    basis = ("chebyshev", "newton", "monomial")[turn % 3]
    coefficients = make_coefficients(basis, k, matrix.dtype.name, rng)
    x = random_numbers(rng, (1 + turn // 2 % 2, matrix.n), matrix.dtype.name)
    is_the_hosts(matrix, room, _RUNS)
    program = program_of(device, matrix, k, room)
    assert not np.isin(program._later.get(), program._split[0].get()).any()  # one thread has each hub
    found = [powers(device, program, x, coefficients, aliased) for aliased in (False, True)]
    assert found[0].tobytes() == found[1].tobytes()
    assert reference.error_ratio(matrix, found[0], x, coefficients) <= 1


@on_the_host
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_are_right_on_the_host(device: Device, kind: str, dtype: str) -> None:
    first = KINDS.index(kind) + DTYPES.index(dtype)
    for turn, n in enumerate((1, 3, 37, 700), first):
        check(device, make_matrix(kind, n, dtype, turn), turn, room=(1, 32)[turn // 4 % 2])


@on_the_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_graphs_are_right_on_the_host(device: Device, dtype: str) -> None:
    """Also where chunks are fewer than runs, some of which have none, and rows go on from one to the next."""
    for turn, n in enumerate((40, 60, 80, 120, 1009)):
        check(device, graph(n, dtype), turn)


@on_the_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_random_patterns_are_right_on_the_host(device: Device, dtype: str) -> None:
    rng = np.random.default_rng(DTYPES.index(dtype))
    for turn, density in enumerate((0.0, 0.002, 0.01, 0.05, 0.15, 0.3)):
        n = int(rng.integers(20, 400))
        A = sp.random_array((n, n), density=density, format="csr", rng=rng)
        A = sp.diags_array((rng.random(n) < 0.8).astype("f8")) @ A  # rows without any
        A = sp.csr_array(A)
        A.eliminate_zeros()
        A.data = random_numbers(rng, A.nnz, dtype) / 4
        check(device, Matrix.from_any(A.astype(dtype)), turn, room=(1, 32)[turn % 2])


@on_the_host
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [64, 128, 256, 512])
def test_runs_that_end_with_rows_on_the_host(device: Device, size: int, dtype: str) -> None:
    """Every run of 1024 slots does, or is an entry too short or too long for it; one is of empty rows."""
    rng = np.random.default_rng(size)
    for more in (0, 1, -1):
        sizes = np.repeat([size, 0, size], [2 * 1024 // size, 1024, 3 * 1024 // size])
        sizes[0] += more
        sizes[-1] -= max(more, 0)
        n = sizes.size
        columns = [rng.choice(n, count, replace=False) for count in sizes]
        A = sp.csr_array((np.ones(sizes.sum()), np.concatenate(columns), np.append(0, np.cumsum(sizes))), shape=(n, n))
        A.data = random_numbers(rng, A.nnz, dtype) / size
        matrix = Matrix.from_any(A.astype(dtype))
        found = lay_out(matrix, 1, _RUNS)
        assert found.row_before.size == 4 * _RUNS
        assert (found.split.size, (found.begin < found.end).sum()) == (_RUNS, (_RUNS - 2) * (more != 0))
        check(device, matrix, 1 + more)


@on_the_host
@pytest.mark.parametrize("dtype", DTYPES)
def test_new_values_on_the_host(device: Device, dtype: str) -> None:
    matrix, rng = graph(300, dtype), np.random.default_rng(5)
    program = program_of(device, matrix, 3, 1)
    x, coefficients = random_numbers(rng, (2, matrix.n), dtype), make_coefficients("chebyshev", 3, dtype, rng)
    for send in (np.asarray, host_engine.to_device):
        for given in GIVEN[dtype]:
            data = random_numbers(rng, matrix.nnz, given) / 8
            program.update_values(send(data))
            other = matrix.with_values(data.astype(dtype))
            found = powers(device, program, x, coefficients, aliased=False)
            assert reference.error_ratio(other, found, x, coefficients) <= 1


@on_the_host
def test_the_host_lays_out_what_the_device_has_no_memory_for(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def spent(*given: Any) -> Any:
        raise DeviceMemoryError("there is none")

    matrix, plan = graph(300, "float64"), Plan("cuda", "sweep", HUBS, k=2, k_per_pass=1, options={"hubs": 32})
    monkeypatch.setattr(sweeps, "cuda_device", lambda: replace(H100, sms=_SMS))
    programs: list[Any] = [sweeps.SCHEDULE.prepare(matrix, plan)]
    monkeypatch.setattr(hubs, "zeros", spent)
    programs.append(sweeps.SCHEDULE.prepare(matrix, plan))
    for name in ("_column", "_mark", "_row_before", "_values"):
        there, here = (getattr(one, name).get() for one in programs)
        np.testing.assert_array_equal(there, here)


# --------------------------------------------------------------------------------------------------------- on a GPU

on_a_gpu = pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))
CASES = [(1009, 1, 32, False), (9001, 3, 32, True), (30_011, 2, 64, False), (30_011, 1, 128, True)]


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "vectors", "room", "once"), CASES)
def test_hubs_are_right(n: int, vectors: int, room: int, once: bool, dtype: str) -> None:
    matrix = graph(n, dtype)
    plan = Plan("cuda", "sweep", HUBS, k=5, k_per_pass=1, options={"hubs": room, "once": once})
    rng = np.random.default_rng(n + room)
    for basis in ("monomial", "chebyshev"):
        x, coefficients = random_numbers(rng, (vectors, n), dtype), make_coefficients(basis, 5, dtype, rng)
        assert reference.reference(matrix, x, coefficients).error_ratio(run_twice(plan, matrix, x, coefficients)) <= 1


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("room", [32, 128])
def test_layouts_are_the_hosts_on_a_gpu(room: int) -> None:
    for matrix in (graph(30_011, "float32"), Matrix.from_any(gallery.rmat(17, 3_000_000))):
        is_the_hosts(matrix, room, 1000)


@pytest.mark.cuda
@on_a_gpu
def test_many_chunks_a_run_of_the_gallery_graph() -> None:
    matrix = Matrix.from_any(gallery.rmat(17, 3_000_000))
    plan = Plan("cuda", "sweep", HUBS, k=3, k_per_pass=1)
    rng = np.random.default_rng(4)
    x, coefficients = random_numbers(rng, (1, matrix.n), "float64"), make_coefficients("newton", 3, "float64", rng)
    assert reference.reference(matrix, x, coefficients).error_ratio(run_twice(plan, matrix, x, coefficients)) <= 1


@pytest.mark.cuda
@on_a_gpu
def test_new_values_of_hubs() -> None:
    from akx.backends.cuda.device.memory import to_device

    matrix = graph(9001, "float64")
    program = registry.get("cuda", "sweep").prepare(matrix, Plan("cuda", "sweep", HUBS, k=2, k_per_pass=1))
    rng = np.random.default_rng(5)
    x, coefficients = random_numbers(rng, (1, matrix.n), "float64"), make_coefficients("monomial", 2, "float64", rng)
    for place in (np.asarray, to_device):
        other = matrix.with_values(rng.standard_normal(matrix.nnz))
        program.update_values(place(other.data))
        found = np.full((3, *x.shape), np.nan)
        program.run(x, found, coefficients)
        assert reference.reference(other, x, coefficients).error_ratio(found) <= 1
