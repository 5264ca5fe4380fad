"""Rows that the processor does while the GPU does the others: the border, both sides on the host, and on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from test_contract import DTYPES, make_coefficients, make_matrix, random_numbers
from test_cuda_stream import GPU, POISON, gallery_matrix, interpret_pass, on_gpu, plan_of

import akx
from akx.backends import reference, registry
from akx.backends.cuda.schedules.stream import options as hybrid_options
from akx.backends.cuda.schedules.stream import rows as stream_rows
from akx.backends.cuda.schedules.stream import schedule as stream
from akx.backends.cuda.schedules.stream.host_share import HostShare, device_part, passes, split_of
from akx.backends.cuda.schedules.stream.layout import pack
from akx.backends.schedule import Coefficients
from akx.core.errors import PlanError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner.space import build_space
from benchmarks import elements, gallery

NAMES = ("brick", "shell", "mc2depi", "9-point", "pentadiagonal", "27-point")


def banded(n: int, below: int, above: int, dtype: str = "float64", seed: int = 0) -> Matrix:
    """Rows that read farther on one side than on the other, some of them empty."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.arange(n), 5)
    columns = np.clip(rows + rng.integers(-below, above + 1, rows.size), 0, n - 1)
    kept = rng.random(n)[rows] > 0.1
    A = sp.csr_array((random_numbers(rng, int(kept.sum()), dtype), (rows[kept], columns[kept])), shape=(n, n))
    A.sum_duplicates()
    return Matrix.from_any(A)


def together(plan: Plan, matrix: Matrix, b: int, threads: int, seed: int = 0, kind: str = "chebyshev") -> float:
    """Error of a call whose GPU's side is interpreted, over its bound; each row of a power is written by one side."""
    rng = np.random.default_rng(seed)
    coefficients = make_coefficients(kind, plan.k, matrix.dtype.name, rng)
    x = random_numbers(rng, (b, matrix.n), matrix.dtype.name)
    assert stream.SCHEDULE.feasible(plan, matrix, GPU) is None, stream.SCHEDULE.feasible(plan, matrix, GPU)
    split, window = stream_rows.border(plan, matrix), stream_rows.window_of(plan, matrix, GPU)
    assert split is not None
    assert window is not None
    part, first, others = device_part(matrix, split)
    entries = np.concatenate([np.arange(first), others])
    inside = matrix.to_scipy()[: split.device_rows, : split.device_rows]
    assert (inside.data == matrix.data[entries]).all()
    assert (inside.indices == part.indices).all()
    assert (inside.indptr == part.indptr).all()
    bits = 16 if plan.variant.startswith("sell16") else 32
    chunks = pack(part, window, bits)
    chunks.data.view(matrix.dtype)[chunks.slot] = matrix.data[entries]
    front = plan.typed.front
    host = HostShare(matrix, split, plan.typed.host, front, plan.k, threads)
    host.update_values(matrix.data)
    slots: list[Any] = [None] * (window.kept + window.slots)
    pitch = -(-matrix.n // 32) * 32
    memory = np.full((plan.k + 1, b, pitch), POISON, matrix.dtype)
    memory[0, :, : matrix.n] = x
    for number, (power, depth) in enumerate(passes(plan.k, plan.k_per_pass)):
        before = memory.copy()
        host.run(number, memory, coefficients)  # with nothing of the other side's there
        assert not any(v.flags.writeable for one in host._of_passes for v in (one.a, one.b, one.c)), "compiled anew"
        its = ~np.isnan(memory) & np.isnan(before)
        out = np.full((plan.k + 1, b, part.n), POISON, matrix.dtype)
        out[: power + 1] = before[: power + 1, :, : part.n]
        interpret_pass((window, chunks, bits), slots, not power, out, power, depth, coefficients)
        for p in range(1, depth + 1):
            border = split.first + p * split.rise
            assert border < matrix.n
            assert not its[power + p][:, :border].any()
            assert its[power + p][:, border : matrix.n].all()
            memory[power + p][:, :border] = out[power + p][:, :border]
        assert np.array_equal(
            its.any(axis=(1, 2)), (np.arange(plan.k + 1) > power) & (np.arange(plan.k + 1) <= power + depth)
        )
    return reference.error_ratio(matrix, memory[:, :, : matrix.n], x, coefficients)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("host", hybrid_options.HOST_VARIANTS)
def test_both_sides_make_the_gallery(name: str, host: str) -> None:
    matrix = gallery_matrix(name)
    tried = 0
    for depth, share, threads, front in (
        (5, 0.4, 2, "shared"),
        (5, 0.4, 4, "own"),
        (2, 0.5, 3, "none"),
        (1, 0.3, 1, "own"),
    ):
        plan = plan_of(matrix, 5, "sell16-1", depth, budget=2**30, share=share, host=host, front=front)
        if stream.SCHEDULE.feasible(plan, matrix, GPU) is None:
            assert together(plan, matrix, 2, threads) <= 1, plan.label()
            tried += 1
    assert tried or (host, name) in {(h, n) for h in ("bell", "bell16") for n in NAMES} or name in ("27-point", "shell")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("below", "above"), [(3, 40), (40, 3), (0, 5), (5, 0), (0, 0), (70, 70)])
def test_both_sides_make_bands_that_are_wider_on_one_side(below: int, above: int, dtype: str) -> None:
    matrix = banded(4_003, below, above, dtype)
    for depth, budget, kind in ((6, 2**30, "newton"), (4, 60_000, "chebyshev"), (1, 40_000, "monomial")):
        for stays in (True, False):
            plan = plan_of(
                matrix,
                6,
                "sell-1",
                depth,
                budget=budget * matrix.dtype.itemsize // 8 + 20_000,
                share=0.4,
                stays=stays,
                host="sell",
                ahead=1,
            )
            assert together(plan, matrix, 1, 2, kind=kind) <= 1, plan.label()


def test_the_border() -> None:
    matrix = banded(10_000, 30, 90)
    split = split_of(matrix, 0.25, 4)
    assert split is not None
    assert (split.first % 32, split.rise) == (0, 32)
    share = 1 - matrix.indptr[split.first + 80] / matrix.nnz  # in the mean of powers 1 to 4
    assert share == pytest.approx(0.25, abs=0.01)
    assert split.device_rows == split.first + 4 * (32 + 90)
    assert split_of(matrix, 0.999, 4) is None
    assert split_of(matrix, 0.001, 4) is None
    assert split_of(matrix, 0.25, 4, block=3).rise == 96  # type: ignore[union-attr]
    assert split_of(banded(1000, 600, 600), 0.5, 4) is None


def test_traffic_of_a_share() -> None:
    matrix = banded(20_000, 30, 30)
    alone = plan_of(matrix, 8, budget=100_000, stays=False)
    shared = alone.replace(options={**alone.options, "share": 0.3})
    one, two = (stream.SCHEDULE.traffic(plan, matrix, GPU) for plan in (alone, shared))
    assert one.redundancy == 1
    assert 1 < two.redundancy < 1.05
    once, rows = 0.3 * matrix.nnz * (8 + 4), 0.3 * matrix.n * 8  # the processor's, from its own memory
    assert two.matrix_bytes == pytest.approx(0.7 * one.matrix_bytes + once, rel=0.05)
    assert two.vector_bytes == pytest.approx(0.7 * one.vector_bytes + 2 * 8 * rows, rel=0.05)
    plain = shared.replace(options={**shared.options, "front": "none", "host": "csr16"})
    three = stream.SCHEDULE.traffic(plain, matrix, GPU)
    assert three.matrix_bytes == pytest.approx(0.7 * one.matrix_bytes + 8 * once * 10 / 12, rel=0.05)
    assert stream_rows.bound(shared, matrix) == stream_rows.bound(alone, matrix)


def test_reasons() -> None:
    matrix = gallery_matrix("mc2depi")

    def reason(**options: Any) -> str:
        plan = plan_of(matrix, 4, budget=2**24, **options)
        return stream.SCHEDULE.feasible(plan, matrix, GPU) or ""

    assert reason(share=0.3) == ""
    assert "0 .. 1" in reason(share=1.0)
    for out_of_range in (-0.1, True):
        with pytest.raises(PlanError, match=r"expected a number from 0\.0 to 1\.0"):
            reason(share=out_of_range)
    for strange in ({"host": "dia"}, {"front": "both"}):
        with pytest.raises(PlanError, match="expected one of"):
            reason(share=0.3, **strange)
    assert "move=kernel" in reason(share=0.3, move="copy")
    assert "no room among" in reason(share=0.001)
    assert "no dense blocks" in reason(share=0.3, host="bell")
    assert reason(host="sell", front="own") == ""
    wide = banded(1000, 900, 900)
    plan = plan_of(wide, 4, budget=2**24, share=0.3)
    assert "no room among" in (stream.SCHEDULE.feasible(plan, wide, GPU) or "")


def test_the_space_has_shares_in_the_best_variant() -> None:
    device = replace(GPU, budget=2**22)
    for A, best in ((elements.brick((5, 5, 65)), "bell16"), (gallery.stencil((16, 16, 16), 27), "sell16")):
        matrix = Matrix.from_any(A)
        space = build_space(matrix, 4, device, backend="cuda", threads=1)
        assert space.choices("stream", "host") == (best,)
        assert space.choices("stream", "share")[0] == 0.0
        draws = np.random.default_rng(0)
        plans = [
            space.plan("stream", {one.name: one.choices[draws.integers(len(one.choices))] for one in parameters})
            for parameters in [space.parameters["stream"]] * 400
        ]
        feasible = [plan for plan in plans if space.feasible(plan, matrix) is None]
        assert len(feasible) > 0.15 * len(plans)
        assert any(plan.typed.share for plan in feasible)
    uneven = sp.lil_array(sp.eye_array(3000))
    uneven[::8, :100] = 1.0
    space = build_space(Matrix.from_any(sp.csr_array(uneven)), 4, device, backend="cuda", threads=1)
    assert space.choices("stream", "host") == ("csr16",)


def test_shares_are_no_baseline() -> None:
    from akx.tuner.space import is_baseline

    matrix = gallery_matrix("mc2depi")
    assert is_baseline(plan_of(matrix, 4, depth=1, budget=2**20))
    assert not is_baseline(plan_of(matrix, 4, depth=1, budget=2**20, share=0.2))


# ------------------------------------------------------------------------------------------------------------ on a GPU


def check(plan: Plan, matrix: Matrix, b: int, kind: str = "chebyshev", seed: int = 0) -> Any:
    """Calls from poisoned memory, with values of their own every other time; returns the program."""
    rng = np.random.default_rng(seed)
    program: Any = registry.get("cuda", "stream").prepare(matrix, plan)
    for name in ("_slots", "_rings", "_staged_x", "_counters"):
        getattr(program, name).fill_bytes(255)
    first = None
    for turn in range(4):
        values = matrix if turn < 2 else matrix.with_values(random_numbers(rng, matrix.nnz, matrix.dtype.name) / 3)
        if turn >= 2:
            program.update_values(values.data)
        draw = np.random.default_rng(seed)
        coefficients = make_coefficients(kind, plan.k, matrix.dtype.name, draw)
        x = random_numbers(draw, (b, matrix.n), matrix.dtype.name)
        out = np.full((plan.k + 1, b, matrix.n), np.nan, matrix.dtype)
        program._pinned[:] = np.nan
        program._rings.fill_bytes(255)
        program.run(x, out, coefficients)
        assert reference.error_ratio(values, out, x, coefficients) <= 1, (plan.label(), turn)
        if turn < 2:
            assert first is None or first == out.tobytes(), f"{plan.label()}: two runs differ"
            first = out.tobytes()
    return program


class TestOnTheGpu:
    pytestmark = on_gpu

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize(("below", "above"), [(3, 40), (40, 3), (0, 0), (70, 70)])
    def test_bands(self, below: int, above: int, dtype: str) -> None:
        matrix = banded(10_007, below, above, dtype)
        for depth, budget, kind in ((6, 2**30, "newton"), (4, 150_000, "chebyshev"), (1, 120_000, "monomial")):
            for share in (0.0, 0.4):
                for stays in (True, False):
                    plan = plan_of(matrix, 6, "sell-2", depth, budget=budget, share=share, stays=stays, ahead=2)
                    check(plan, matrix, 1, kind)

    @pytest.mark.parametrize("name", NAMES)
    def test_gallery(self, name: str) -> None:
        matrix = gallery_matrix(name)
        for host, order in zip(hybrid_options.HOST_VARIANTS, ("natural", "rcm") * 3, strict=True):
            for depth, front in ((4, "own"), (4, "shared"), (4, "none"), (2, "own"), (2, "shared"), (1, "none")):
                plan = plan_of(matrix, 4, "sell16-2", depth, budget=2**28, share=0.4, host=host, front=front)
                plan = plan.replace(partitioner=order)
                if stream.SCHEDULE.feasible(plan, matrix, GPU) is None:
                    check(plan, matrix, 1)

    @pytest.mark.parametrize("b", [1, 2, 3, 5])
    def test_start_vectors(self, b: int) -> None:
        for dtype in ("float64", "complex64"):
            matrix = gallery_matrix("pentadiagonal", dtype)
            for vectors in (1, 4):
                check(plan_of(matrix, 5, budget=2**24, rows=224, vectors=vectors, share=0.3), matrix, b, "newton")

    @pytest.mark.parametrize("move", ["kernel", "copy", "direct"])
    def test_what_stays_is_sent_once(self, move: str) -> None:
        matrix = make_matrix("band", 100_003, "float64", 1)
        plan = plan_of(matrix, 8, budget=3_000_000, move=move, rows=1024)
        program = check(plan, matrix, 1)
        assert 0 < program.window.kept < program.window.chunks
        x = np.random.default_rng(0).standard_normal((1, matrix.n))
        ones = Coefficients(*(np.full(8, value) for value in (1.0, 0.0, 0.0)))
        program.update_values(matrix.data)
        first, second = (np.empty((9, 1, matrix.n)) for _ in range(2))
        program.run(x, first, ones)
        stays = int(program._chunks.begin[program.window.kept])
        program._chunks.data[:stays] = 255  # nobody looks there again
        program.run(x, second, ones)
        assert first.tobytes() == second.tobytes()
        program.update_values(matrix.data)
        program._chunks.data[:stays] = 0
        program.run(x, second, ones)
        assert first.tobytes() != second.tobytes()

    def test_nothing_stays_where_others_have_the_memory(self) -> None:
        from akx.backends.cuda.device.pool import memory_pool

        matrix = make_matrix("band", 200_003, "float64", 1)
        plan = plan_of(matrix, 6, budget=2**26)
        window = stream_rows.window_of(plan, matrix, GPU)
        assert window is not None
        assert window.kept == window.chunks
        pool = memory_pool()
        before = pool.budget
        pool.trim()
        try:
            pool.budget = pool.used + window.nbytes // 2
            program = check(plan, matrix, 1)
            assert program.window.kept == 0
            assert program.nbytes < window.nbytes // 2
        finally:
            pool.budget = before

    def test_in_place_of_the_caller(self) -> None:
        matrix, rng = make_matrix("band", 50_001, "float64", 1), np.random.default_rng(5)
        operator = akx.MatrixPowers(matrix, 6, plan=plan_of(matrix, 6, budget=2**20, share=0.3))
        plain = akx.MatrixPowers(matrix, 6, plan=plan_of(matrix, 6, budget=2**20))
        x = rng.standard_normal(matrix.n)
        V = operator(x)
        np.testing.assert_allclose(V, plain(x), rtol=1e-12, atol=1e-12 * float(np.abs(V).max()))
        W = operator(2 * x, out=V)
        assert W is V
        np.testing.assert_array_equal(V, 2 * operator(x))
        held = [operator(x) for _ in range(4)]
        assert all(one.tobytes() == held[0].tobytes() for one in held)
