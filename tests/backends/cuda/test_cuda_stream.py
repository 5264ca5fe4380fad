"""`stream`: the window and its layout interpreted on the CPU against the reference, and the contract on a GPU."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as product_of
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from test_contract import DTYPES, KINDS, make_coefficients, make_matrix, random_numbers

import akx
from akx.backends import reference, registry
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.device.pool import _rounded
from akx.backends.cuda.device.runtime import cuda_missing
from akx.backends.cuda.schedules.stream import options as stream_space
from akx.backends.cuda.schedules.stream import rows as stream_rows
from akx.backends.cuda.schedules.stream import schedule as stream
from akx.backends.cuda.schedules.stream.layout import Chunks, Window, pack
from akx.backends.schedule import Coefficients
from akx.core.errors import ArgumentError, PlanError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from benchmarks import gallery

on_gpu = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing())),
]
GPU = CudaDevice("test", 0, (9, 0), 132, 232448, 233472, 65536, 2**25, 2**36, 10**9, 1e12)
POISON = np.nan


def plan_of(matrix: Matrix, k: int, variant: str = "sell16-2", depth: int = 0, **options: Any) -> Plan:
    partitioner = options.pop("partitioner", "natural")
    return Plan("cuda", "stream", variant, partitioner, k, depth or k, options=options)


def gallery_matrix(name: str, dtype: str = "float64") -> Matrix:
    rng = np.random.default_rng(5)
    A = sp.csr_array(gallery.small(name)).astype(dtype)
    A.data = random_numbers(rng, A.nnz, dtype) / 4
    return Matrix.from_any(A)


def product(window: Window, chunk: Any, ring: Any, bits: int, dtype: Any) -> Any:
    """The product of one chunk, from its bytes, with vectors (b, ring) in a ring; rows beyond the matrix too."""
    slices = window.rows // 32
    head = chunk[: window.header].view(np.uint32).astype(np.int64)
    start, base = head[: slices + 1], head[slices + 1 : 2 * slices + 1]
    after = window.header + int(start[-1]) * np.dtype(dtype).itemsize
    value = chunk[window.header : after].view(dtype)
    column = chunk[after : after + int(start[-1]) * bits // 8].view(f"u{bits // 8}").astype(np.int64)
    out = np.zeros((ring.shape[0], window.rows), dtype)
    for s in range(slices):
        at = base[s] + column[start[s] : start[s + 1]].reshape(-1, 32)
        at = np.where(at >= window.ring, at - window.ring, at)
        assert np.all(at < window.ring)
        terms = value[start[s] : start[s + 1]].reshape(-1, 32) * ring[:, at]
        out[:, 32 * s : 32 * s + 32] = terms.sum(axis=1)
    return out


def interpret_pass(
    of: tuple[Window, Chunks, int], slots: list[Any], sends: bool, out: Any, power: int, depth: int, by: Coefficients
) -> None:
    """A pass step by step. Chunks are sent as early as they may, over poison; what a step writes is poisoned first.

    `slots` are those of the call before where what stays is not sent.
    """
    window, chunks, bits = of
    b, n, rows, dtype = out.shape[1], window.n, window.rows, out.dtype
    rings = np.full((depth + 2, b, window.ring), POISON, dtype)
    sent = 0

    def values_of(p: int, own: Any) -> tuple[Any, Any]:
        if p == 0:
            return out[power][:, own], out[power - 1][:, own]
        first = int(own[0]) // rows
        products = []
        for chunk in range(first, int(own[-1]) // rows + 1):
            held, number = slots[window.slot(chunk)]
            assert number == chunk
            assert chunk < window.kept or sent > chunk >= sent - window.slots
            products.append(product(window, held, rings[p], bits, dtype))
        a, shift, older = (v[power + p - 1] for v in (by.a, by.b, by.c))
        value = a * np.concatenate(products, axis=1)[:, own - first * rows]
        value = value + shift * rings[p][:, own % window.ring]
        if power + p > 1:
            value = value + older * rings[p - 1][:, own % window.ring]
        return value, None

    for step in range(window.steps(depth)):
        while sent < window.chunks and (
            sent < window.kept + window.slots or window.frees(sent - window.slots, depth) <= step - 1
        ):
            if sends or sent >= window.kept:
                slots[window.slot(sent)] = chunks.data[chunks.begin[sent] : chunks.begin[sent + 1]], sent
            sent += 1
        low, high = window.powers(step, depth)
        made = []
        for p in range(low, high + 1):
            begin = step * rows - p * window.lag
            own = np.arange(max(0, begin), min(n, begin + rows))
            assert own.size, "a power without rows"
            rings[p + 1][:, own % window.ring] = POISON
            made.append((p, own))
        results = [(p, own, values_of(p, own)) for p, own in made]
        for p, own, (value, before) in results:
            rings[p + 1][:, own % window.ring] = value
            if p:
                out[power + p][:, own] = value
            elif power:
                rings[0][:, own % window.ring] = before


def interpret(plan: Plan, matrix: Matrix, window: Window, chunks: Chunks, x: Any, coefficients: Coefficients) -> Any:
    """Two calls, the second of which is not sent what stays on the device; the result of the second."""
    bits = 16 if plan.variant.startswith("sell16") else 32
    slots: list[Any] = [None] * (window.kept + window.slots)
    for sends in (True, False):
        out = np.full((plan.k + 1, x.shape[0], window.n), POISON, matrix.dtype)
        out[0] = x
        for power in range(0, plan.k, window.depth):
            depth = min(window.depth, plan.k - power)
            interpret_pass((window, chunks, bits), slots, sends and not power, out, power, depth, coefficients)
            slots[window.kept :] = [None] * window.slots
    return out


def interpreted_ratio(plan: Plan, matrix: Matrix, b: int = 2, seed: int = 0) -> float:
    rng = np.random.default_rng(seed)
    coefficients = make_coefficients("chebyshev", plan.k, matrix.dtype.name, rng)
    x = random_numbers(rng, (b, matrix.n), matrix.dtype.name)
    window = stream_rows.window_of(plan, matrix, GPU)
    assert window is not None
    assert window.nbytes <= stream_rows.budget_of(plan, matrix, GPU)
    chunks = pack(matrix, window, 16 if plan.variant.startswith("sell16") else 32)
    chunks.data.view(matrix.dtype)[chunks.slot] = matrix.data
    out = interpret(plan, matrix, window, chunks, x, coefficients)
    return reference.error_ratio(matrix, out, x, coefficients)


@pytest.mark.parametrize("name", ["brick", "shell", "mc2depi", "9-point", "pentadiagonal", "27-point"])
@pytest.mark.parametrize("variant", ["sell16-1", "sell-1"])
def test_windows_of_the_gallery(name: str, variant: str) -> None:
    matrix = gallery_matrix(name)
    for depth, rows in ((5, 0), (3, 64), (1, 0), (5, 320)):
        for stays in (False, True):
            plan = plan_of(
                matrix, 5, variant, depth, budget=2**30, rows=rows, vectors=2, ahead=1 + rows % 3, stays=stays
            )
            assert interpreted_ratio(plan, matrix) <= 1, plan.label()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_windows_of_awkward_matrices(kind: str, dtype: str) -> None:
    for n in (1, 31, 33, 1009):
        matrix = make_matrix(kind, n, dtype, n)
        for depth, rows in ((4, 0), (2, 32), (3, 96)):
            for stays in (False, True):
                plan = plan_of(matrix, 4, "sell-1", depth, budget=2**30, rows=rows, vectors=2, stays=stays)
                assert interpreted_ratio(plan, matrix) <= 1, plan.label()


def test_what_is_left_of_a_budget_is_filled_with_chunks_that_stay() -> None:
    matrix = make_matrix("band", 600_011, "float64", 1)
    kept, moved = [], []
    for fraction in (0.1, 0.4, 0.7, 1.0):
        for stays in (False, True):
            plan = plan_of(matrix, 6, fraction=fraction, stays=stays)
            window = stream_rows.window_of(plan, matrix, GPU)
            assert window is not None
            assert window.nbytes <= stream_rows.budget_of(plan, matrix, GPU)
            slots = (window.kept + window.slots) * window.slot_bytes  # one array, which the pool may round up
            assert window.nbytes - slots + _rounded(slots) <= stream_rows.budget_of(plan, matrix, GPU) or not stays
            kept.append(window.kept / window.chunks)
            moved.append(stream.SCHEDULE.traffic(plan, matrix, GPU).matrix_bytes)
    assert kept[::2] == [0, 0, 0, 0]
    assert kept[1] < 0.1 < kept[3] < 0.5 < kept[5] < 0.9 < kept[7] == 1
    assert moved == pytest.approx([moved[0] * (1 - share) for share in kept])


@pytest.mark.parametrize(("memory", "given", "full"), [(2**26, False, 2**25), (2**26, True, int(0.9 * 2**26))])
def test_half_of_the_device_is_filled_where_nobody_has_said_how_much(memory: int, given: bool, full: int) -> None:
    matrix, device = make_matrix("band", 1_600_011, "float64", 1), replace(GPU, memory_bytes=memory)
    plan = plan_of(matrix, 6, **({"budget": 2**26} if given else {}))
    assert stream.SCHEDULE.feasible(plan, matrix, device) is None  # it does not fit the device
    window = stream_rows.window_of(plan, matrix, device)
    assert window is not None
    assert 0.8 * full < window.nbytes <= full
    bare = stream_rows.window_of(plan.replace(options={**plan.options, "stays": False}), matrix, device)
    assert bare is not None
    assert bare.kept == 0 < window.kept


def test_a_small_budget_makes_many_chunks() -> None:
    matrix = make_matrix("band", 20_011, "float64", 1)
    plan = plan_of(matrix, 6, budget=60_000)
    window = stream_rows.window_of(plan, matrix, GPU)
    assert window is not None
    assert window.chunks > 64
    assert window.slots < window.chunks
    assert window.slots >= 5 * window.lag // window.rows + 2
    assert interpreted_ratio(plan, matrix, b=1) <= 1


def test_the_window_is_within_a_quarter_of_the_matrix() -> None:
    matrix = Matrix.from_any(gallery.GALLERY["brick"]())
    plan = plan_of(matrix, 14, fraction=0.25)
    assert stream.SCHEDULE.feasible(plan, matrix, GPU) is None
    window = stream_rows.window_of(plan, matrix, GPU)
    assert window is not None
    assert window.nbytes <= 0.25 * (12 * matrix.nnz + 4 * matrix.n + 4)
    traffic = stream.SCHEDULE.traffic(plan, matrix, GPU)
    assert traffic.redundancy == 1
    assert 10 < stream_rows.bound(plan, matrix) < 14
    assert stream_rows.bound(plan.replace(k=1, k_per_pass=1), matrix) < 1


def test_reasons() -> None:
    matrix, schedule = gallery_matrix("mc2depi"), stream.SCHEDULE

    def reason(**changes: Any) -> str:
        options = changes.pop("options", {"fraction": 0.5})
        return schedule.feasible(plan_of(matrix, 4).replace(options=options, **changes), matrix, GPU) or ""

    assert "fits the device" in reason(options={})
    assert "no window" in reason(options={"budget": 1000})
    assert "unknown variant" in reason(variant="csr-1")
    assert "no partitioner" in reason(partitioner="metis")
    assert "expected one of" in reason(options={"fraction": 0.5, "block": 100})
    assert "launch per step" in reason(options={"fraction": 0.5, "block": 512})
    assert reason(options={"budget": 2**24, "block": 512, "move": "copy"}) == ""
    assert "multiprocessors" in (schedule.feasible(plan_of(matrix, 4, budget=2**24), matrix, replace(GPU, sms=8)) or "")
    for wrong in ({"budget": -1}, {"fraction": 2.0}):
        with pytest.raises(PlanError, match="out of range"):
            reason(options=wrong)
    assert "cuda" in reason(backend="cpu")
    assert "fits the device" in (schedule.feasible(schedule_default(matrix), matrix, GPU) or "")


def schedule_default(matrix: Matrix) -> Plan:
    values = {parameter.name: parameter.default for parameter in stream.SCHEDULE.space(matrix, GPU, 4)}
    return Plan.from_parameters("cuda", "stream", 4, values)


# ------------------------------------------------------------------------------------------------------------ on a GPU


def check(plan: Plan, matrix: Matrix, b: int, basis: str, seed: int) -> Any:
    """Three runs from poisoned outputs, the second with new values and coefficients; returns the program."""
    rng = np.random.default_rng(seed)
    program = registry.get("cuda", "stream").prepare(matrix, plan)
    same = []
    for turn in range(3):
        values = matrix if turn != 1 else matrix.with_values(random_numbers(rng, matrix.nnz, matrix.dtype.name) / 3)
        program.update_values(values.data)
        draw = np.random.default_rng(seed + turn % 2)
        coefficients = make_coefficients(basis, plan.k, matrix.dtype.name, draw)
        x = random_numbers(draw, (b, matrix.n), matrix.dtype.name)
        out = np.full((plan.k + 1, b, matrix.n), np.nan, matrix.dtype)
        program._pinned[:] = np.nan  # type: ignore[attr-defined]
        for name in ("_slots", "_whole", "_rings", "_staged", "_staged_x", "_counters"):
            getattr(program, name).fill_bytes(255)
        program.run(x, out, coefficients)
        assert reference.error_ratio(values, out, x, coefficients) <= 1, (plan.label(), turn)
        same += [out.tobytes()] if turn != 1 else []
    assert same[0] == same[1], f"{plan.label()}: two runs differ"
    assert program.nbytes > 0
    return program


class TestOnTheGpu:
    pytestmark = on_gpu

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("kind", KINDS)
    def test_awkward_matrices(self, kind: str, dtype: str) -> None:
        for turn, n in enumerate((1, 33, 1009)):
            matrix = make_matrix(kind, n, dtype, n)
            basis = ("chebyshev", "newton", "monomial")[(turn + KINDS.index(kind)) % 3]
            for move, depth, rows in (("copy", 4, 0), ("direct", 2, 32), ("kernel", 3, 96), ("kernel", 4, 0)):
                ahead = depth - 1  # 1, 2 and 3
                options = {"budget": 2**30, "rows": rows, "move": move, "vectors": (1, 2, 4)[turn], "ahead": ahead}
                plan = plan_of(matrix, 4, f"sell-{(1, 2, 8)[turn]}", depth, **options)
                if stream.SCHEDULE.feasible(plan, matrix, GPU) is None:
                    check(plan, matrix, (1, 2, 3)[turn], basis, turn)

    @pytest.mark.parametrize("name", ["brick", "shell", "mc2depi", "9-point", "27-point"])
    @pytest.mark.parametrize("move", stream_space.MOVE)
    def test_gallery_in_every_variant(self, name: str, move: str) -> None:
        matrix = gallery_matrix(name)
        for order, variant in zip(("natural", "rcm") * 4, stream_space.VARIANTS, strict=True):
            plan = plan_of(matrix, 5, variant, 3, partitioner=order, move=move, rows=160, budget=2**30)
            check(plan, matrix, 1, "chebyshev", 3)

    @pytest.mark.parametrize("b", range(1, 9))
    def test_start_vectors(self, b: int) -> None:
        for dtype in ("float64", "complex64"):
            matrix = gallery_matrix("pentadiagonal", dtype)
            for vectors, move in ((1, "kernel"), (4, "copy"), (8, "kernel")):
                plan = plan_of(matrix, 5, budget=2**24, rows=224, vectors=vectors, move=move)
                check(plan, matrix, b, "newton", b)

    @pytest.mark.parametrize("move", stream_space.MOVE)
    def test_more_than_64_partitions(self, move: str) -> None:
        matrix = make_matrix("band", 100_003, "float64", 1)
        plan = plan_of(matrix, 16, budget=500_000, move=move)
        program = check(plan, matrix, 1, "chebyshev", 1)
        assert program.window.chunks > 64
        assert program.nbytes <= 500_000

    @pytest.mark.parametrize("move", stream_space.MOVE)
    @pytest.mark.parametrize("lanes", [1, 4])
    @pytest.mark.parametrize("dtype", ["float64", "complex64"])
    def test_more_than_64_partitions_to_the_last_digit(self, dtype: str, lanes: int, move: str) -> None:
        matrix = make_matrix("band", 30_011, dtype, 2)
        rng = np.random.default_rng(3)
        coefficients = make_coefficients("chebyshev", 12, dtype, rng)
        x = random_numbers(rng, (1, matrix.n), dtype)
        found = np.full((3, 13, 1, matrix.n), np.nan, matrix.dtype)
        plans = [plan_of(matrix, 12, f"sell16-{lanes}", depth, budget=200_000, move=move) for depth in (12, 5)]
        plans.append(Plan("cuda", "sweep", f"sell16-{lanes}", "natural", 12))
        for plan, out in zip(plans, found, strict=True):
            program: Any = registry.get("cuda", plan.schedule).prepare(matrix, plan)
            if plan.schedule == "stream":
                assert program.window.chunks > 64
                assert program.nbytes <= 200_000
            program.run(x, out, coefficients)
        assert reference.error_ratio(matrix, found[0], x, coefficients) <= 1
        assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()

    @pytest.mark.parametrize(("dtype", "lanes"), [*zip(DTYPES, (1, 4, 2, 8), strict=True)])
    def test_one_triangle_to_the_last_digit(self, dtype: str, lanes: int) -> None:
        rng, A = np.random.default_rng(lanes), make_matrix("band", 30_011, dtype, 2).to_scipy()
        for B in (A + A.T, A + A.conj().T) if dtype.startswith("c") else (A + A.T,):
            matrix, found = Matrix.from_any(sp.csr_array(B / 2).astype(dtype)), []
            x = random_numbers(rng, (2, matrix.n), dtype)
            coefficients = make_coefficients("chebyshev", 12, dtype, rng)
            for stored, depth, budget in product_of(("full", "triangle"), (12, 5), (500_000, 2**24)):
                options = {"budget": budget, "stored": stored, "vectors": 2, "ahead": 1 + depth % 4}
                plan = plan_of(matrix, 12, f"sell{('', '16')[depth % 2]}-{lanes}", depth, **options)
                program: Any = registry.get("cuda", "stream").prepare(matrix, plan)
                for _ in range(3):  # the last ones with what stays
                    found.append(np.full((13, 2, matrix.n), np.nan, matrix.dtype))
                    program.run(x, found[-1], coefficients)
                assert (program.window.half > 0) == (stored == "triangle")
                assert program.nbytes <= budget
            assert reference.error_ratio(matrix, found[0], x, coefficients) <= 1
            assert len({out.tobytes() for out in found}) == 1

    @pytest.mark.parametrize("move", stream_space.MOVE)
    def test_results_where_the_device_writes_to(self, move: str) -> None:
        matrix, rng = gallery_matrix("brick"), np.random.default_rng(5)
        coefficients = make_coefficients("newton", 6, "float64", rng)
        x = rng.standard_normal((1, matrix.n))
        program: Any = registry.get("cuda", "stream").prepare(matrix, plan_of(matrix, 6, budget=2**24, move=move))
        plain = np.full((7, 1, matrix.n), np.nan)
        program.run(x, plain, coefficients)
        for _ in range(3):
            results = [program.new_result(1) for _ in range(3)]
            for result in results:
                result[:] = np.nan
                program.run(x, result, coefficients)
            assert all(result.tobytes() == plain.tobytes() for result in results)
        operator = akx.MatrixPowers(matrix, 6, plan=program._plan)
        V = operator(x[0])
        W = operator(2 * x[0], out=V)
        assert W is V
        np.testing.assert_array_equal(V, 2 * operator(x[0]))
        with pytest.raises(ArgumentError, match="wrong layout"):
            operator(x[0], out=np.empty((matrix.n, 14))[:, ::2])

    def test_arrays_on_the_device(self) -> None:
        from akx.backends.cuda.device.memory import empty, to_device

        matrix = gallery_matrix("brick")
        rng = np.random.default_rng(0)
        coefficients = make_coefficients("chebyshev", 4, "float64", rng)
        x = rng.standard_normal((1, matrix.n))
        program = registry.get("cuda", "stream").prepare(matrix, plan_of(matrix, 4, budget=2**24))
        out = empty((5, 1, matrix.n), np.float64)
        out.fill_bytes(255)
        program.run(to_device(x), out, coefficients)
        assert reference.error_ratio(matrix, out.get(), x, coefficients) <= 1
