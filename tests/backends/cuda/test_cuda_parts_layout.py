"""What the device finds of slots is what the host finds, to the bit; by the kernels' own text there."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from host_engine import to_device
from nightly import mostly_nightly
from program_on_host import Device
from test_cuda_block_local import RESIDENT, make, small_gpu

from akx.backends.cuda import row_lengths as lengths
from akx.backends.cuda.device import memory
from akx.backends.cuda.device.facts import CudaDevice, cuda_device, cuda_missing
from akx.backends.cuda.device.memory import DeviceArray
from akx.backends.cuda.matrix import device_matrix, features, transpose
from akx.backends.cuda.matrix.device_matrix import Arrays, DeviceMatrix
from akx.backends.cuda.matrix.features import OnDevice
from akx.backends.cuda.schedules.ghost import layout as ghost_layout
from akx.backends.cuda.schedules.resident import layout as resident_layout
from akx.backends.cuda.schedules.resident import schedule as resident
from akx.backends.cuda.value_compression.encodings import FULL, TABLE
from akx.backends.cuda.variants import slots
from akx.backends.cuda.variants.block_local import layout_on_device as parts_layout
from akx.backends.cuda.variants.block_local import program as parts
from akx.backends.cuda.variants.block_local.layout import LaidOut
from akx.backends.cuda.variants.block_local.shapes import column_shapes, shape_of
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from akx.formats.base import pattern_of, unsigned
from akx.partition.halo import halos
from benchmarks import gallery

on_the_host = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
on_a_gpu = pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))
#: Matrices of nodes of one size.
ALIKE = ("pentadiagonal", "mc2depi", "brick", "shell", "27-point", "rmat")
#: Matrix, variant, powers of a pass, options.
GHOSTS: list[tuple[str, str, int, dict[str, Option]]] = [
    ("pentadiagonal", "1x1-1", 3, {"held_slices": 1, "held_slots": 5}),
    ("mc2depi", "1x1-2", 2, {"cluster": 2}),
    ("shell", "2x6-1", 2, {"waves": 2}),
    ("mixed", "3x3-2", 1, {"cluster": 4}),
]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Device:
    sources = ("parts_layout", "features", "transpose", "lengths", "canonical")
    found = Device(small_gpu(), tmp_path_factory.mktemp("parts_layout"), *sources)
    modules = [parts_layout, slots, features, transpose, lengths, device_matrix, parts, resident]
    found.install(monkeypatch, found.threads.folder, modules)
    monkeypatch.setattr(memory, "to_device", to_device)
    monkeypatch.setattr(parts_layout, "_SORTING", 256)  # each thread takes its time here
    return found


def sent(matrix: Matrix) -> DeviceMatrix:
    """The matrix on the device."""
    arrays = Arrays(*(memory.to_device(one) for one in (*map(unsigned, (matrix.indptr, matrix.indices)), matrix.data)))
    return DeviceMatrix(arrays, pattern_cache={}, largest=matrix.largest)


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
            found = [resident_layout.lay_out_resident(matrix, plan, room, there=there)[0] for there in (False, True)]
            is_the_hosts(*found)


def compare_ghost(name: str, variant: str, depth: int, options: dict[str, Option], facts: CudaDevice) -> None:
    plan = Plan("cuda", "ghost", variant, "natural", 4, depth, options={"block": 256, **options})
    found = [ghost_layout.lay_out_ghost(make(name, "float64"), plan, facts, there=there)[0] for there in (False, True)]
    is_the_hosts(*found)


@on_the_host
@pytest.mark.parametrize(("name", "variant", "options"), RESIDENT)
def test_slots_of_resident(device: Device, name: str, variant: str, options: Any) -> None:
    device.threads.order = 7
    compare_resident(name, variant, options, device.facts)


@on_the_host
@pytest.mark.parametrize(("name", "variant", "depth", "options"), GHOSTS)
def test_slots_of_ghost(device: Device, name: str, variant: str, depth: int, options: Any) -> None:
    device.threads.order = 1
    compare_ghost(name, variant, depth, options, device.facts)


@on_the_host
@pytest.mark.parametrize(("name", "variant", "options"), [one for one in RESIDENT if one[0] in ALIKE])
def test_parts_of_a_matrix_on_the_device(device: Device, name: str, variant: str, options: Any) -> None:
    """As those of the host, where no column comes unless ghosts are computed along."""
    matrix, plan = make(name, "float64"), resident_plan(variant, "natural", options)
    there = sent(matrix)
    is_the_hosts(
        resident_layout.lay_out_resident(matrix, plan, device.facts)[0],
        resident_layout.lay_out_resident(there, plan, device.facts, there=True)[0],
    )
    if plan.typed.depth == 1:
        resident.SCHEDULE.prepare(there, plan)
        assert "indices" not in there.pattern.__dict__


@on_the_host
@pytest.mark.parametrize("count", mostly_nightly([1, 2, 7, 40, 200], [1, 2, 7, 40]))
def test_halos_are_the_hosts(device: Device, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Rows of up to 300 entries take two digits; bits of few parts at a time; parts may be empty."""
    monkeypatch.setattr(features, "_WORDS", 40)
    monkeypatch.setattr(features, "_PER_PART", 1)
    rng, n = np.random.default_rng(count), 400
    A = sp.random_array((n, n), density=0.01, rng=rng) + sp.diags_array([1.0], offsets=[-70], shape=(n, n))
    A += sp.csr_array((np.ones(300), (np.full(300, 5), np.arange(300))), shape=(n, n))
    for B in (A, sp.eye_array(3), sp.csr_array((5, 5))):
        matrix = Matrix.from_any(sp.csr_array(B))
        pattern, cuts = pattern_of(matrix), np.sort(rng.integers(0, matrix.n + 1, count + 1))
        cuts[0], cuts[-1] = 0, matrix.n
        there = OnDevice(*(memory.to_device(one.astype(np.uint32)) for one in (pattern.indptr, pattern.indices)))
        part = np.repeat(np.arange(count), np.diff(cuts))
        here = halos(pattern.indptr, pattern.indices, part, count)
        for device.threads.order in (0, 1, 7):
            for alone in (False, True):
                found = parts_layout.halos_there(there, cuts, int(np.diff(pattern.indptr).max()), alone=alone)
                rows = np.split(here.rows, here.ptr[1:-1])
                own = np.concatenate([one[:size] for one, size in zip(rows, here.own, strict=True)])
                np.testing.assert_array_equal(found.rows, own if alone else here.rows)
                np.testing.assert_array_equal(found.ptr, cuts if alone else here.ptr)
                for name in ("own", "border", "neighbours", "neighbour_ptr"):
                    np.testing.assert_array_equal(getattr(found, name), getattr(here, name))
                    assert getattr(found, name).dtype == getattr(here, name).dtype


@on_the_host
def test_columns_that_16_bits_do_not_hold(device: Device) -> None:
    """As on the host. A far column is that of a row in the middle of a slice."""
    A = gallery.pentadiagonal(70_000).tolil()
    A[40, 69_999] = 1.0
    matrix, plan = Matrix.from_any(A.tocsr()), resident_plan("1x1-1", "natural", {"x": "global"})
    for there in (False, True):
        with pytest.raises(InfeasibleError, match=r"more than 65,535 nodes apart"):
            resident_layout.lay_out_resident(matrix, plan, small_gpu(5, 227 * 1024), there=there)


@on_the_host
def test_there_are_more_parts_than_rows(device: Device) -> None:
    """Some parts have no node, no slice, no slot."""
    matrix = Matrix.from_any(gallery.pentadiagonal(3))
    for x in ("shared", "global"):
        plan = resident_plan("1x1-1", "natural", {"x": x})
        here = resident_layout.lay_out_resident(matrix, plan, device.facts)[0]
        for one in (matrix, sent(matrix)):
            is_the_hosts(here, resident_layout.lay_out_resident(one, plan, device.facts, there=True)[0])


@on_a_gpu
@pytest.mark.cuda
@pytest.mark.parametrize("name", ["pentadiagonal", "9-point", "27-point", "mc2depi", "brick", "shell"])
def test_slots_are_the_hosts_on_a_gpu(name: str) -> None:
    """Those of whole matrices, of the host and there, in the widest blocks that they are made of."""
    matrix, facts = Matrix.from_any(gallery.GALLERY[name]()), cuda_device()
    on_device = sent(matrix)
    variants = [f"{br}x{bc}-{lanes}" for br, bc in column_shapes(matrix) for lanes in (1, 4)]
    met = 0
    for variant in variants:
        for x in ("shared", "global"):
            plan = resident_plan(variant, "natural", {"x": x})
            if resident.SCHEDULE.feasible(plan, matrix, facts) is None:
                try:
                    here = resident_layout.lay_out_resident(matrix, plan, facts)[0]
                except InfeasibleError:
                    continue
                for one in (matrix, on_device):
                    is_the_hosts(here, resident_layout.lay_out_resident(one, plan, facts, there=True)[0])
                met += 1
    assert met
