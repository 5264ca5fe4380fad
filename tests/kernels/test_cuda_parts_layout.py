"""What the device finds of slots is what the host finds, to the bit; by the kernels' own text there."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from program_on_host import CompiledDevice
from test_cuda_parts import RESIDENT, make, small_gpu

from akx.device.cuda.facts import CudaDevice, cuda_device, cuda_missing
from akx.device.cuda.memory import DeviceArray
from akx.errors import InfeasibleError
from akx.kernels.cuda import ghost, parts_layout, resident, slots
from akx.kernels.cuda.parts import LaidOut, column_shapes, shape_of
from akx.kernels.cuda.stored import FULL, TABLE
from akx.matrix import Matrix
from akx.plan import Option, Plan
from benchmarks import gallery

on_the_host = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
on_a_gpu = pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))
#: Matrix, variant, powers of a pass, options.
GHOSTS: list[tuple[str, str, int, dict[str, Option]]] = [
    ("pentadiagonal", "1x1-1", 3, {"held_slices": 1, "held_slots": 5}),
    ("mc2depi", "1x1-2", 2, {"cluster": 2}),
    ("shell", "2x6-1", 2, {"waves": 2}),
    ("mixed", "3x3-2", 1, {"cluster": 4}),
]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> CompiledDevice:
    found = CompiledDevice(small_gpu(), tmp_path_factory.mktemp("parts_layout"), "parts_layout")
    found.install(monkeypatch, found.threads.folder, [parts_layout, slots])
    return found


def resident_plan(variant: str, partitioner: str, options: dict[str, Option]) -> Plan:
    return Plan("cuda", "resident", variant, partitioner, 4, 4, options={"block": 256, **options})


def is_the_hosts(here: LaidOut, there: LaidOut) -> None:
    """All arrays; columns beside what says the value are the upper halves of words."""
    assert isinstance(there.parts.entry, DeviceArray)
    for name in ("parts", "slices", "rows", "neighbours"):
        np.testing.assert_array_equal(getattr(there.parts, name), getattr(here.parts, name))
    np.testing.assert_array_equal(there.parts.entry.get(), here.parts.entry)
    columns = there.parts.columns.get()
    if there.way == TABLE:
        assert columns.dtype == np.uint32
        assert not (columns & 0xFFFF).any()
        columns >>= 16
    np.testing.assert_array_equal(columns, here.parts.columns)
    assert (here.shared, here.parts.far_slots) == (there.shared, there.parts.far_slots)


def compare_resident(name: str, variant: str, options: dict[str, Option], facts: CudaDevice) -> None:
    matrix = make(name, "float64")
    single = shape_of(resident_plan(variant, "natural", options)).slot == 32
    for partitioner in ("natural", "metis"):
        for way in (FULL, TABLE) if single else (FULL,):
            plan = resident_plan(variant, partitioner, {**options, "stored": way})
            room = facts if way == FULL else small_gpu(shared=120_000)
            found = [resident.lay_out_resident(matrix, plan, room, there=there)[0] for there in (False, True)]
            is_the_hosts(*found)


def compare_ghost(name: str, variant: str, depth: int, options: dict[str, Option], facts: CudaDevice) -> None:
    plan = Plan("cuda", "ghost", variant, "natural", 4, depth, options={"block": 256, **options})
    found = [ghost.lay_out_ghost(make(name, "float64"), plan, facts, there=there)[0] for there in (False, True)]
    is_the_hosts(*found)


@on_the_host
@pytest.mark.parametrize(("name", "variant", "options"), RESIDENT)
def test_slots_of_resident(device: CompiledDevice, name: str, variant: str, options: Any) -> None:
    device.threads.order = 7
    compare_resident(name, variant, options, device.facts)


@on_the_host
@pytest.mark.parametrize(("name", "variant", "depth", "options"), GHOSTS)
def test_slots_of_ghost(device: CompiledDevice, name: str, variant: str, depth: int, options: Any) -> None:
    device.threads.order = 1
    compare_ghost(name, variant, depth, options, device.facts)


@on_the_host
def test_columns_that_16_bits_do_not_hold(device: CompiledDevice) -> None:
    """As on the host. A far column is that of a row in the middle of a slice."""
    A = gallery.pentadiagonal(70_000).tolil()
    A[40, 69_999] = 1.0
    matrix, plan = Matrix.from_any(A.tocsr()), resident_plan("1x1-1", "natural", {"x": "global"})
    for there in (False, True):
        with pytest.raises(InfeasibleError, match=r"more than 65,535 nodes apart"):
            resident.lay_out_resident(matrix, plan, small_gpu(5, 227 * 1024), there=there)


@on_the_host
def test_there_are_more_parts_than_rows(device: CompiledDevice) -> None:
    """Some parts have no node, no slice, no slot."""
    matrix = Matrix.from_any(gallery.pentadiagonal(3))
    for x in ("shared", "global"):
        plan = resident_plan("1x1-1", "natural", {"x": x})
        is_the_hosts(*(resident.lay_out_resident(matrix, plan, device.facts, there=t)[0] for t in (False, True)))


@on_a_gpu
@pytest.mark.cuda
@pytest.mark.parametrize("name", ["pentadiagonal", "9-point", "27-point", "mc2depi", "brick", "shell"])
def test_slots_are_the_hosts_on_a_gpu(name: str) -> None:
    """Those of whole matrices, in the widest blocks that they are made of."""
    matrix, facts = Matrix.from_any(gallery.GALLERY[name]()), cuda_device()
    variants = [f"{br}x{bc}-{lanes}" for br, bc in column_shapes(matrix) for lanes in (1, 4)]
    met = 0
    for variant in variants:
        for x in ("shared", "global"):
            plan = resident_plan(variant, "natural", {"x": x})
            if resident.SCHEDULE.feasible(plan, matrix, facts) is None:
                try:
                    found = [resident.lay_out_resident(matrix, plan, facts, there=there)[0] for there in (False, True)]
                except InfeasibleError:
                    continue
                is_the_hosts(*found)
                met += 1
    assert met
