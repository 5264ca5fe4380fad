"""`resident` with diagonals: its layout, and its kernel on the host, by threads in several orders."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from program_on_host import Device, poisoned_powers
from test_contract import DTYPES, KINDS, make_coefficients, make_matrix, random_numbers
from test_cuda_block_local import make, small_gpu

from akx.backends import reference
from akx.backends.cuda.device.facts import CudaDevice
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

on_the_host = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Device:
    found = Device(small_gpu(), tmp_path, "diagonals")
    found.install(monkeypatch, tmp_path, [diagonals])
    return found


def check(device: Device, matrix: Matrix, plan: Plan, facts: CudaDevice, x: Any, coefficients: Coefficients) -> LaidOut:
    """The layout, by which the kernel is right in every order of threads, in as much shared memory as it says."""
    device.facts, laid_out = facts, diagonals.lay_out(matrix, plan, facts)
    assert laid_out.shared <= facts.shared_per_block
    entries = laid_out.deal.entry
    assert np.array_equal(np.sort(entries[entries > 0]), np.arange(1, matrix.nnz + 1))
    program = diagonals.DiagonalsProgram(matrix, laid_out, plan)
    out = poisoned_powers(device, program, x, coefficients)
    assert reference.error_ratio(matrix, out, x, coefficients) <= 1, plan.label()
    return laid_out


HELD = [{}, {"held_slices": 1, "held_slots": 4}, {"held_slices": 8, "held_slots": 3}, {"vectors": 2}]


@on_the_host
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 31, 33, 1009])
def test_awkward_matrices(device: Device, kind: str, n: int, dtype: str) -> None:
    """Whatever the pattern is: the layout itself asks for no diagonals, only the space does."""
    matrix, k = make_matrix(kind, n, dtype, n), 4
    rng = np.random.default_rng(n)
    x = random_numbers(rng, (2, n), dtype)
    coefficients = make_coefficients("chebyshev", k, dtype, rng)
    for held in HELD:
        plan = Plan("cuda", "resident", DIA, k=k, k_per_pass=k, options={"block": 256, **held})
        check(device, matrix, plan, small_gpu(6, 120_000), x, coefficients)


@on_the_host
@pytest.mark.parametrize("name", ["mc2depi", "pentadiagonal", "9-point", "27-point", "brick"])
@pytest.mark.parametrize("shared", [9_000, 12_000, 60_000])
def test_stencils_in_three_tiers(device: Device, name: str, shared: int) -> None:
    matrix, k = make(name, "float64"), 5
    rng = np.random.default_rng(1)
    x, coefficients = rng.standard_normal((1, matrix.n)), make_coefficients("newton", k, "float64", rng)
    far = False
    for held in HELD[:3]:
        plan = Plan("cuda", "resident", DIA, k=k, k_per_pass=k, options={"block": 256, **held})
        try:
            laid_out = check(device, matrix, plan, small_gpu(4, shared), x, coefficients)
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
