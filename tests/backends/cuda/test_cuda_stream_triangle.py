"""`stream` with one triangle of a symmetric matrix: the kernel, by fibers, gives the bits of whole chunks."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace
from typing import Any

import host_engine
import numpy as np
import pytest
import scipy.sparse as sp
from program_on_host import Device
from test_contract import make_coefficients, random_numbers
from test_cuda_stream import GPU, plan_of

from akx.backends import reference
from akx.backends.cuda.device.memory import DeviceArray
from akx.backends.cuda.schedules.stream import program as stream_program
from akx.backends.cuda.schedules.stream import rows as stream_rows
from akx.backends.cuda.schedules.stream import schedule as stream
from akx.backends.cuda.schedules.stream import triangle
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner.model.predict import predict
from akx.tuner.space import build_space
from benchmarks.gallery import stencil

on_the_host = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


def symmetric(n: int, dtype: str, seed: int, *, width: int = 40, conjugate: bool = False) -> Matrix:
    """Banded, with rows of none to many entries, long ones, and some without one on the diagonal."""
    rng = np.random.default_rng(seed)
    row = np.repeat(np.arange(n), rng.integers(0, 6, n))
    column = row + rng.integers(-width, width + 1, row.size)
    row, column = np.append(row, np.full(width, n // 2)), np.append(column, n // 2 - np.arange(width))
    inside = (column >= 0) & (column < n)
    lower = sp.coo_array((np.ones(inside.sum()), (row[inside], column[inside])), shape=(n, n)).tocsr()
    lower = sp.csr_array(sp.tril(lower + lower.T))
    lower.data = random_numbers(rng, lower.nnz, dtype) / 3
    upper = sp.tril(lower, -1).T
    return Matrix.from_any(sp.csr_array(lower + (upper.conj() if conjugate else upper)))


def of_grid(dtype: str, seed: int) -> Matrix:
    A = sp.csr_array(stencil((9, 8, 7), 27))
    A.data = random_numbers(np.random.default_rng(seed), A.nnz, dtype)
    return Matrix.from_any(sp.csr_array(A + A.T))


def unlike(matrix: Matrix, seed: int = 3) -> Matrix:
    """The same pattern with values that are not symmetric."""
    return matrix.with_values(random_numbers(np.random.default_rng(seed), matrix.nnz, matrix.dtype.name))


@pytest.fixture
def device(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Device:
    """Few blocks of few threads: two that bring, two that take away, three that compute."""
    found = Device(replace(GPU, sms=7), tmp_path_factory.mktemp("stream"), "stream")
    found.install(monkeypatch, found.threads.folder, [stream_program, stream])
    fill = DeviceArray.fill_bytes

    def filled(array: DeviceArray, value: int, stream: Any = None) -> None:
        if stream is None:
            fill(array, value)
        else:
            found.recorded.append(lambda: fill(array, value))

    monkeypatch.setattr(DeviceArray, "fill_bytes", filled)
    monkeypatch.setattr(stream_program, "spare_stream", lambda: contextlib.nullcontext(host_engine.HostStream()))
    for name, value in {"_IN": 2, "_OUT": 2, "_FEW": 96, "_MANY": 96}.items():
        monkeypatch.setattr(stream_program, name, value)
    return found


def calls(device: Device, matrix: Matrix, plan: Plan, b: int, program: Any = None) -> list[Any]:
    """Two calls in each order of threads, of poisoned memory but for what stays; the program."""
    program = program or stream.SCHEDULE.prepare(matrix, plan)
    rng, found = np.random.default_rng(1), []
    coefficients = make_coefficients("general", plan.k, matrix.dtype.name, rng)
    x = random_numbers(rng, (b, matrix.n), matrix.dtype.name)
    for device.threads.order in (0, 1, 7):
        program._are_there = False
        for name in ("_slots", "_whole", "_rings", "_staged_x"):
            getattr(program, name).fill_bytes(255)
        for _ in range(2):
            out = np.full((plan.k + 1, b, matrix.n), np.nan, matrix.dtype)
            program.run(x, out, coefficients)
            found.append(out)
            for name in ("_whole", "_rings", "_staged_x"):
                getattr(program, name).fill_bytes(255)
    assert len({out.tobytes() for out in found}) == 1
    assert reference.error_ratio(matrix, found[0], x, coefficients) <= 1
    return [found[0], program]


CASES: list[tuple[Any, ...]] = [
    # matrix, dtype, variant, bits of a mark, powers per pass, options; a kernel of each kind is compiled once
    (symmetric(411, "float64", 2), "sell16-8", 8, 4, {"rows": 64}),
    (symmetric(511, "float32", 2, width=140), "sell-1", 16, 1, {"rows": 64}),
    (symmetric(611, "float32", 2, width=140), "sell-1", 16, 3, {"rows": 96, "stays": False}),
    (of_grid("complex64", 2), "sell16-4", 8, 4, {"rows": 96, "vectors": 2}),
]


@on_the_host
@pytest.mark.parametrize(("matrix", "variant", "mark", "depth", "options"), CASES)
def test_the_same_bits(
    device: Device, matrix: Matrix, variant: str, mark: int, depth: int, options: dict[str, Any]
) -> None:
    """As of whole chunks, whatever part of the matrix stays on the device: none, some, all."""
    options = {"rows": 32, "ahead": 2, **options}
    b, kept = options.get("vectors", 1), []
    whole = calls(device, matrix, plan_of(matrix, 4, variant, depth, budget=2**24, **options), b)[0]
    bare = plan_of(matrix, 4, variant, depth, budget=2**24, **options | {"stored": "triangle", "stays": False})
    window = stream_rows.window_of(bare, matrix, GPU)
    assert window is not None
    coefficients = 12 * matrix.dtype.itemsize
    for room in (window.nbytes, window.nbytes + 4 * window.slot_bytes, 2**24):
        more = {"stays": options.get("stays", True), "budget": room + coefficients}
        plan = bare.replace(options={**bare.options, **more})
        assert stream.SCHEDULE.feasible(plan, matrix, device.facts) is None
        found, program = calls(device, matrix, plan, b)
        assert found.tobytes() == whole.tobytes(), plan.label()
        assert program.nbytes <= room + coefficients
        kept.append(program.window.kept)
        assert program.window.half == mark
        assert program.is_as_planned
    assert kept[0] == 0
    assert options.get("stays", True) == (kept[2] == window.chunks >= kept[1] > 0)


@on_the_host
def test_hermitian_and_complex_symmetric(device: Device) -> None:
    for conjugate in (True, False):
        matrix = symmetric(300, "complex64", 3, conjugate=conjugate)
        assert triangle.symmetry_of(matrix) == (triangle.CONJUGATE if conjugate else triangle.PLAIN)
        plan = plan_of(matrix, 3, "sell16-4", budget=2**24, rows=64, vectors=2, stored="triangle", ahead=1)
        found = calls(device, matrix, plan, 2)[0]
        whole = calls(device, matrix, triangle.in_full(plan), 2)[0]
        assert found.tobytes() == whole.tobytes()
    assert {one.get("AKX_CONJUGATE") for one in device.loaded} == {0, 1, None}


@on_the_host
@pytest.mark.parametrize("partitioner", ["natural", "rcm"])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_new_values(device: Device, share: float, partitioner: str) -> None:
    """Symmetric ones as before; from the first others on all are in full, in the memory that was lent too."""
    matrix = symmetric(611, "float64", 4, width=9)
    options = {"budget": 2**24, "rows": 64, "ahead": 1, "share": share, "partitioner": partitioner}
    plan = plan_of(matrix, 4, "sell16-8", 2, stored="triangle", **options)
    program: Any = stream.SCHEDULE.prepare(matrix, plan)
    assert program.window.half
    lent = program.new_result(1)
    for values in (matrix, matrix.with_values(matrix.data * 3.0 - 1.0)):
        program.update_values(values.data)
        found = calls(device, values, plan, 1, program)[0]
        assert found.tobytes() == calls(device, values, triangle.in_full(plan), 1)[0].tobytes()
        assert program.is_as_planned
    other = unlike(matrix)
    for values in (other, matrix):
        program.update_values(values.data)
        assert not program.window.half
        assert not program.is_as_planned
        found = calls(device, values, plan, 1, program)[0]
        assert found.tobytes() == calls(device, values, triangle.in_full(plan), 1)[0].tobytes()
        if lent is not None:
            program.run(found[0], lent, make_coefficients("general", 4, "float64", np.random.default_rng(1)))
            assert lent.tobytes() == found.tobytes()
    first: Any = stream.SCHEDULE.prepare(other, plan)  # a plan for the pattern, tuned for other values
    assert not first.window.half
    assert not first.is_as_planned
    assert "stored=triangle is the same" in (stream.SCHEDULE.waste(plan, other, device.facts) or "")


@on_the_host
def test_values_for_which_there_is_no_room_in_full_change_nothing(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = symmetric(611, "float64", 4, width=9)
    plan = plan_of(matrix, 4, "sell16-8", 2, budget=2**24, rows=64, ahead=1, stored="triangle")
    program: Any = stream.SCHEDULE.prepare(matrix, plan)
    before = calls(device, matrix, plan, 1, program)[0]

    def refuse(*_: Any) -> Any:
        raise InfeasibleError("no room")

    monkeypatch.setattr(stream, "check_feasible", refuse)
    with pytest.raises(InfeasibleError, match="no room"):
        program.update_values(unlike(matrix).data)
    assert calls(device, matrix, plan, 1, program)[0].tobytes() == before.tobytes()


def test_symmetry() -> None:
    matrix = symmetric(200, "float64", 1)
    assert triangle.symmetry_of(matrix) == triangle.PLAIN
    assert triangle.symmetry_of(unlike(matrix)) == ""
    one = matrix.data.copy()
    one[matrix.nnz // 2 + 1] += 1e-15
    A = matrix.to_scipy()
    changed = matrix.with_values(one)
    assert (abs(changed.to_scipy() - changed.to_scipy().T).max() > 0) == (triangle.symmetry_of(changed) == "")
    for wrong in (sp.triu(A), sp.tril(A)):
        assert triangle.symmetry_of(Matrix.from_any(sp.csr_array(wrong))) == ""
    skew = Matrix.from_any(sp.csr_array(sp.tril(A, -1) - sp.triu(A, 1)))
    assert triangle.symmetry_of(skew) == ""
    both = symmetric(90, "float32", 1)
    assert triangle.symmetry_of(both.with_values(both.data.astype("c8"))) == triangle.PLAIN


def test_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, schedule = symmetric(400, "float64", 1), stream.SCHEDULE
    for move in ("copy", "direct"):
        reason = schedule.feasible(plan_of(matrix, 2, budget=2**24, stored="triangle", move=move), matrix, GPU)
        assert "move=kernel" in str(reason)
    dense = Matrix.from_any(sp.csr_array(np.ones((40, 40))))
    monkeypatch.setattr(stream, "mark_bits", lambda plan, matrix: 0)
    assert "too long" in str(schedule.feasible(plan_of(dense, 2, budget=2**24, stored="triangle"), dense, GPU))
    monkeypatch.undo()
    for n, bits in ((64, 8), (65, 16), (130, 16)):
        wide = Matrix.from_any(sp.csr_array(np.ones((n, n))))
        assert stream_rows.mark_bits(plan_of(wide, 2, budget=2**24, stored="triangle"), wide) == bits


def test_it_is_left_where_its_window_has_no_room_for_long_chunks() -> None:
    small, large = (Matrix.from_any(stencil((m, m, m), 27)) for m in (20, 40))
    for matrix, k, wasted in ((small, 8, True), (large, 4, False)):
        plan = plan_of(matrix, k, fraction=0.6, stored="triangle")
        assert stream.SCHEDULE.feasible(plan, matrix, GPU) is None
        assert ("short chunks" in str(stream.SCHEDULE.waste(plan, matrix, GPU))) == wasted
        assert stream.SCHEDULE.waste(triangle.in_full(plan), matrix, GPU) is None


def test_fewer_bytes_cross_the_bus() -> None:
    """By the numbers of triangle.py, and the window is no larger."""
    matrix = Matrix.from_any(stencil((40, 40, 40), 27))
    whole, half = (plan_of(matrix, 4, budget=2**23, stored=way, stays=False) for way in ("full", "triangle"))
    sent = [stream_rows.bus_bytes(plan, matrix)[0] for plan in (whole, half)]
    assert 1.77 < sent[0] / sent[1] < 1.82
    assert stream.SCHEDULE.traffic(half, matrix, GPU).matrix_bytes == sent[1]
    windows = []
    for plan in (whole, half):
        windows.append(stream_rows.window_of(plan.replace(options={**plan.options, "rows": 1824}), matrix, GPU))
        assert windows[-1] is not None
    assert windows[1].nbytes < 1.1 * windows[0].nbytes


def test_it_is_the_default_of_symmetric_matrices() -> None:
    """Where it is fewer bytes; plain products, the baseline, send all."""
    device = replace(GPU, budget=2**20)

    def offered(matrix: Matrix) -> tuple[Any, Any]:
        found = next(one for one in stream.SCHEDULE.space(matrix, device, 4) if one.name == "stored")
        return found.choices, found.default

    matrix = of_grid("float64", 1)
    assert offered(matrix) == (("full", "triangle"), "triangle")
    assert offered(unlike(matrix)) == (("full",), "full")
    diagonal = Matrix.from_any(sp.csr_array(sp.diags_array(np.ones(400))))
    assert offered(diagonal) == (("full",), "full")
    space = build_space(matrix, 4, device, backend="cuda", threads=1)
    plans = space.baselines(matrix)
    assert any(plan.schedule == "stream" for plan in plans)
    assert {plan.typed.stored for plan in plans} == {"full"}
    large = Matrix.from_any(stencil((40, 40, 40), 27))
    for values, way in ((large, "triangle"), (unlike(large), "full")):
        plan = predict(values, 4, replace(GPU, budget=large.csr_bytes // 2), backend="cuda")
        assert plan.schedule == "stream"
        assert plan.typed.stored == way
