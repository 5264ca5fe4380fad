"""A variant of the GPU from another package: in the search, run by the host in place of a GPU, compiled by nvcc."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_backend
import numpy as np
import pytest
from nvcc import named, needs_nvcc
from program_on_host import Device, poisoned_powers
from test_contract import DTYPES, FROZEN, make_coefficients, make_matrix, random_numbers

from akx.backends import reference, registry, revisions
from akx.backends.cuda.device import compile as compiling
from akx.backends.cuda.schedules.sweep import schedule as sweep
from akx.backends.cuda.variants import outside, swept
from akx.backends.cuda.variants.outside import INCLUDE, CudaVariant, Packed
from akx.backends.variant import AnyVariant, Variant
from akx.core.errors import ArgumentError, ArgumentTypeError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner.space import build_space

GPU = FROZEN["cuda"]


class Ell(CudaVariant):
    """Rows of one width."""

    name, revision, description = "ell", 4, "rows of one width"
    source = Path(__file__).with_name("outside_ell.cu")
    waits = True

    def reason_against(self, matrix: Matrix) -> str | None:
        return None if self._width(matrix) * matrix.n <= 4 * matrix.nnz else "rows of other widths"

    def stored_bytes(self, matrix: Matrix) -> float:
        return float(self._width(matrix) * matrix.n * (matrix.dtype.itemsize + 4))

    def pack(self, matrix: Matrix) -> Packed:
        width, lengths = self._width(matrix), np.diff(matrix.indptr)
        row = np.repeat(np.arange(matrix.n), lengths)
        slot = ((np.arange(matrix.nnz) - matrix.indptr[row]) * matrix.n + row).astype(np.uint32)
        column = np.zeros(max(1, width * matrix.n), dtype=np.uint32)
        column[slot] = matrix.indices
        return Packed((column,), -(-matrix.n // 128), 128, width * matrix.n, slot, {"AKX_WIDTH": width})

    def _width(self, matrix: Matrix) -> int:
        return int(np.diff(matrix.indptr).max(initial=0))


@pytest.fixture
def ell() -> Iterator[Ell]:
    found = Ell()
    registry.register(found)
    yield found
    registry.unregister(found)


def test_it_is_in_the_space_and_a_baseline(ell: Ell) -> None:
    matrix, schedule = make_matrix("band", 402, "float64", 0), registry.get("cuda", "sweep")
    space = build_space(matrix, 4, GPU, backend="cuda", threads=1)
    plan = Plan("cuda", "sweep", "ell", k=4)
    assert "ell" in space.choices("sweep", "variant")
    assert "ell" in {one.variant for one in space.baselines(matrix)}
    assert space.feasible(plan, matrix) is None
    assert schedule.traffic(plan, matrix, GPU).matrix_bytes >= 12 * matrix.nnz
    work = schedule.work(plan, matrix, GPU, 1)
    assert work is not None
    assert work.launches == 4
    schedule.lay_out(plan, matrix, GPU)
    reason = schedule.feasible(plan.replace(options={"stored": "half"}), matrix, GPU)
    assert reason == "stored is for variants of akx, not for ell"
    full = make_matrix("dense row", 402, "float64", 0)
    assert schedule.feasible(plan, full, GPU) == "rows of other widths"
    assert "ell" not in build_space(full, 4, GPU, backend="cuda", threads=1).choices("sweep", "variant")
    assert revisions.variant_revision("cuda", "ell") == 4


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_its_program_is_right_on_the_host(
    ell: Ell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dtype: str
) -> None:
    device = Device(GPU, tmp_path, "outside_ell")
    device.install(monkeypatch, tmp_path, [outside, sweep, swept])
    matrix, plan = make_matrix("band", 137, dtype, 1), Plan("cuda", "sweep", "ell", k=3, options={"early": True})
    program: Any = registry.get("cuda", "sweep").prepare(matrix, plan)
    rng = np.random.default_rng(0)
    x, coefficients = random_numbers(rng, (2, 137), dtype), make_coefficients("chebyshev", 3, dtype, rng)
    found = poisoned_powers(device, program, x, coefficients)
    assert reference.error_ratio(matrix, found, x, coefficients) <= 1
    assert device.loaded[-1]["AKX_WIDTH"] == 5
    assert program.is_early
    other = matrix.with_values(random_numbers(rng, matrix.nnz, dtype) / 3)
    program.update_values(other.data)
    assert reference.error_ratio(other, poisoned_powers(device, program, x, coefficients), x, coefficients) <= 1


@needs_nvcc
@pytest.mark.parametrize("dtype", DTYPES)
def test_its_source_compiles_with_what_akx_includes(ell: Ell, dtype: str) -> None:
    macros = {"AKX_VALUE": outside.C_TYPES[dtype], "AKX_VECTORS": 2, "AKX_WIDTH": 5}
    arguments = compiling.options_for(macros, [INCLUDE])
    assert compiling.compile_cubin(ell.source, arguments, "sm_90")
    assert named("swept.cuh") in set(compiling._texts(ell.source, arguments))


def test_a_backend_takes_variants_of_its_own_kind_and_no_other() -> None:
    class OfTheWrongKind(Variant):
        name, backend = "mine", "cuda"
        stored_bytes = prepare = None  # type: ignore[assignment]

    class Taken(Ell):
        name = "csr-1"

    class OfNobody(AnyVariant):
        name, backend = "mine", "fake"
        stored_bytes = None  # type: ignore[assignment]

    with pytest.raises(ArgumentTypeError, match=r"no variant of the backend 'cuda'.*outside\.CudaVariant"):
        registry.register(OfTheWrongKind())
    with pytest.raises(ArgumentError, match="akx has a 'cuda/csr-1' of its own"):
        registry.register(Taken())
    with fake_backend.registered(), pytest.raises(ArgumentError, match="'fake' takes no variants of other packages"):
        registry.register(OfNobody())
