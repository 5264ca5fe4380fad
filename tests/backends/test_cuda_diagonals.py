"""`resident` with diagonals: its layout read on the CPU as the kernel reads it, against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from test_contract import DTYPES, KINDS, make_coefficients, make_matrix, random_numbers
from test_cuda_block_local import make, small_gpu

from akx.backends import reference
from akx.backends.cuda.schedules.resident import schedule as resident
from akx.backends.cuda.variants import diagonals
from akx.backends.cuda.variants.block_local.program import KeptShare
from akx.backends.cuda.variants.diagonals import DIA, LaidOut
from akx.backends.schedule import Coefficients
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.banded import dealt_slices
from akx.formats.base import pattern_of
from akx.formats.slice_diagonals import WARP, diagonals_of
from benchmarks import gallery


def interpret(laid_out: LaidOut, n: int, values: Any, x: Any, coefficients: Coefficients) -> Any:
    """out (k+1, b, n) as ``diagonals.cuh`` computes it; what is not there yet is NaN."""
    dealt, k = laid_out.deal, coefficients.a.size
    rounded = -(-laid_out.held_slots // 4) * 4 if laid_out.held_slices else 0
    out = np.full((k + 1, *x.shape), np.nan, dtype=x.dtype)
    now, before = [], []
    for part in dealt.parts:
        row = int(part["low"]) + np.arange(int(part["span"]))
        inside = (row >= 0) & (row < n)
        window = np.zeros((x.shape[0], row.size), dtype=x.dtype)
        window[:, inside] = x[:, row[inside]]
        now.append(window)
        before.append(np.zeros_like(window))
        own = slice(int(part["row"]), int(part["row"]) + int(part["rows"]))
        out[0][:, own] = x[:, own]
    owner = np.repeat(np.arange(dealt.parts.size), dealt.parts["rows"])
    for j in range(k):
        a, b, c = coefficients.a[j], coefficients.b[j], coefficients.c[j]
        published = np.zeros(n, dtype=bool)
        for g, part in enumerate(dealt.parts):
            slices, border = int(part["slices"]), int(part["border"])
            window, new, start = now[g], before[g], int(part["row"]) - int(part["low"])
            assert border <= slices
            seen = []
            for s in range(slices):
                if s >= border and s % laid_out.warps == laid_out.warps - 1:
                    continue  # the warp waits for the neighbours
                piece = dealt.slices[int(part["slice"]) + s]
                place = int(piece["number"])
                seen.append(place)
                row = place * WARP + np.arange(WARP)
                offsets = dealt.offsets[int(part["offset"]) :][: int(part["offsets"])]
                total = np.zeros((x.shape[0], WARP), dtype=x.dtype)

                def slot(number: int) -> Any:
                    return values[number * WARP :][:WARP]

                if s < laid_out.held_slices * laid_out.warps:
                    for q in range(laid_out.held_slots):
                        held = slot(int(part["held"]) + s * laid_out.held_slots + q)
                        at = (2 * s + (np.arange(WARP) >= piece["cut"])) * rounded + q
                        total += held * window[:, start + row + offsets[at]]
                near, far = int(part["near"]) + int(piece["near"]), int(piece["far"])
                assert piece["near"] + piece["nears"] + piece["near_scattered"] <= part["nears"]
                numbers = [near + q for q in range(piece["nears"])] + [far + q for q in range(piece["fars"])]
                lists = int(piece["offset"]) + (np.arange(WARP) >= piece["cut"]) * len(numbers)
                for q, number in enumerate(numbers):
                    total += slot(number) * window[:, start + row + offsets[lists + q]]
                assert piece["column"] + piece["near_scattered"] <= part["columns"]
                first = int(part["column"]) + int(piece["column"])
                pairs = [(near + int(piece["nears"]) + q, first + q) for q in range(piece["near_scattered"])]
                first = int(piece["far_column"])
                pairs += [(far + int(piece["fars"]) + q, first + q) for q in range(piece["far_scattered"])]
                for number, column in pairs:
                    total += slot(number) * window[:, dealt.columns[column * WARP :][:WARP]]
                mine = row < part["rows"]
                here = (start + row)[mine]
                new[:, here] = a * total[:, mine] + b * window[:, here] + (c * new[:, here] if c else 0)
                out[j + 1][:, int(part["row"]) + row[mine]] = new[:, here]
                published[int(part["row"]) + row[mine]] = s < border
            assert sorted(seen) == list(range(-(-int(part["rows"]) // WARP)))
        for g, part in enumerate(dealt.parts):
            row = int(part["low"]) + np.arange(int(part["span"]))
            halo = (row >= 0) & (row < n) & ((row < part["row"]) | (row >= int(part["row"]) + int(part["rows"])))
            assert published[row[halo]].all()
            near = dealt.neighbours[int(part["neighbour"]) :][: int(part["neighbours"])]
            assert set(owner[row[halo]]) == set(near.tolist())
            before[g][:, halo] = out[j + 1][:, row[halo]]
            now[g], before[g] = before[g], now[g]
    return out


def check(matrix: Matrix, plan: Plan, device: Any, x: Any, coefficients: Coefficients) -> LaidOut:
    laid_out = diagonals.lay_out(matrix, plan, device)
    assert laid_out.shared <= device.shared_per_block
    entries = laid_out.deal.entry
    assert np.array_equal(np.sort(entries[entries > 0]), np.arange(1, matrix.nnz + 1))
    out = interpret(laid_out, matrix.n, laid_out.deal.values(matrix.data), x, coefficients)
    assert reference.error_ratio(matrix, out, x, coefficients) <= 1, plan.label()
    return laid_out


HELD = [{}, {"held_slices": 1, "held_slots": 4}, {"held_slices": 8, "held_slots": 3}, {"vectors": 2}]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 31, 33, 1009])
def test_awkward_matrices(kind: str, n: int, dtype: str) -> None:
    """Whatever the pattern is: the layout itself asks for no diagonals, only the space does."""
    matrix, k = make_matrix(kind, n, dtype, n), 4
    rng = np.random.default_rng(n)
    x = random_numbers(rng, (2, n), dtype)
    coefficients = make_coefficients("chebyshev", k, dtype, rng)
    for held in HELD:
        plan = Plan("cuda", "resident", DIA, k=k, k_per_pass=k, options={"block": 256, **held})
        check(matrix, plan, small_gpu(6, 120_000), x, coefficients)


@pytest.mark.parametrize("name", ["mc2depi", "pentadiagonal", "9-point", "27-point", "brick"])
@pytest.mark.parametrize("shared", [9_000, 12_000, 60_000])
def test_stencils_in_three_tiers(name: str, shared: int) -> None:
    matrix, k = make(name, "float64"), 5
    rng = np.random.default_rng(1)
    x, coefficients = rng.standard_normal((1, matrix.n)), make_coefficients("newton", k, "float64", rng)
    far = False
    for held in HELD[:3]:
        plan = Plan("cuda", "resident", DIA, k=k, k_per_pass=k, options={"block": 256, **held})
        try:
            laid_out = check(matrix, plan, small_gpu(4, shared), x, coefficients)
        except InfeasibleError:
            assert shared < 60_000
            continue
        far |= laid_out.deal.far_slots > 0
    assert not far or shared < 60_000 or name == "brick"


def test_lines_of_any_length_are_diagonals_and_leftovers_are_scattered() -> None:
    matrix = Matrix.from_any(sp.csr_array(gallery.epidemic(200)))
    found = diagonals_of(pattern_of(matrix))
    assert matrix.nnz / (WARP * found.extents.slots) > 0.7
    assert found.uniform[found.cut < WARP].max() <= 8
    assert np.median(found.uniform[found.cut < WARP]) == 4
    band = sp.diags_array([np.ones(320)] * 3, offsets=[-1, 0, 1], shape=(320, 320)).tolil()
    band[40, 200] = 1.0
    lone = diagonals_of(pattern_of(Matrix.from_any(sp.csr_array(band))))
    assert lone.uniform.tolist() == [3] + [4] + [3] * 8 or lone.scattered.sum() == 1


@pytest.mark.parametrize(("shared", "offered"), [(227 * 1024, True), (16_000, False)])
def test_the_space_offers_diagonals_where_all_stays_on_the_chip(shared: int, offered: bool) -> None:
    """And then the default has them, so that the tuner tries them first."""
    matrix, gpu = Matrix.from_any(sp.csr_array(gallery.epidemic(150))), small_gpu(2, shared)
    assert diagonals.suits(matrix) is None
    plan = resident.SCHEDULE.untuned_for(matrix, gpu, 4)
    assert (DIA in resident.SCHEDULE.space(matrix, gpu, 4)[0].choices) is offered
    assert (plan.variant == DIA) is offered
    if offered:
        assert resident.SCHEDULE.feasible(plan, matrix, gpu) is None
        assert diagonals.lay_out(matrix, plan, gpu).deal.far_slots == 0
        assert plan.options["held_slots"] == 4


def test_reasons() -> None:
    gpu, matrix = small_gpu(2, 227 * 1024), make("pentadiagonal", "float64")
    plan = Plan("cuda", "resident", DIA, k=4, k_per_pass=4, options={"block": 512})
    assert resident.SCHEDULE.feasible(plan, matrix, gpu) is None
    for bad in (
        plan.replace(partitioner="metis"),
        plan.replace(options={"block": 512, "x": "global"}),
        plan.replace(options={"block": 512, "depth": 2}),
        plan.replace(options={"block": 1024, "held_slices": 8, "held_slots": 9}),
        plan.replace(options={"block": 1024, "blocks_per_sm": 4}),
        plan.replace(options={"held_slots": 4}),
        plan.replace(options={"block": 100}),
    ):
        assert resident.SCHEDULE.feasible(bad, matrix, gpu)
    assert "shared" in (resident.SCHEDULE.feasible(plan, matrix, small_gpu(2, 500)) or "")
    random = make_matrix("random", 2000, "float64", 1)
    assert "full" in (resident.SCHEDULE.feasible(plan, random, gpu) or "")
    assert DIA not in resident.SCHEDULE.space(random, gpu, 4)[0].choices
    assert diagonals.suits(make_matrix("random", 20_000, "float64", 1)) is not None


@pytest.mark.parametrize("warps", [2, 3, 8, 16])
def test_the_last_warp_has_no_inner_slices(warps: int) -> None:
    slices = np.arange(200)
    for border in (slices * 0, slices // 2, slices):
        for n, first, places in zip(slices, border, dealt_slices(slices, border, warps), strict=True):
            dealt = [s for s in range(places) if s < first or s % warps != warps - 1]
            assert len(dealt) == n
            assert dealt[-1:] == [places - 1] * bool(dealt)


def test_a_matrix_that_does_not_stay_in_l2_is_not_asked_to() -> None:
    device = small_gpu(4, 60_000)
    plan = Plan("cuda", "resident", DIA, options={"keep": 8})
    half = device.l2_bytes // 2
    assert KeptShare(plan, 0, half, device).of(int(0.3 * device.l2_bytes)) == 16
    assert KeptShare(plan, 0, half, device).of(int(0.4 * device.l2_bytes)) == 0
    assert KeptShare(plan, 16 * 2**20, half, device).of(10 * half) == 8  # half of what is read in each step
