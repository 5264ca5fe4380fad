"""Layouts of `resident` and `ghost` on the GPU, and their kernel on the host, by threads in several orders."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from nightly import mostly_nightly
from program_on_host import Device, poisoned_powers
from test_contract import make_matrix, random_numbers
from test_cuda_wavefront_layout import NOT_FULL, in_turn, storable

from akx.backends import reference
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.schedules.ghost import layout as ghost_layout
from akx.backends.cuda.schedules.ghost import schedule as ghost
from akx.backends.cuda.schedules.resident import layout as resident_layout
from akx.backends.cuda.schedules.resident import schedule as resident
from akx.backends.cuda.schedules.resident import search as resident_offers_search
from akx.backends.cuda.value_compression.encodings import FULL, HALF, STORED, TABLE, table_bytes, way_of
from akx.backends.cuda.variants.block_local import clusters
from akx.backends.cuda.variants.block_local import cost as block_local_cost
from akx.backends.cuda.variants.block_local import program as parts
from akx.backends.cuda.variants.block_local.layout import (
    ALONE,
    CLUSTER,
    STATIC,
    LaidOut,
    active_slices,
    entry_bytes,
    held_registers,
    slot_bytes,
)
from akx.backends.cuda.variants.block_local.program import PartsProgram
from akx.backends.cuda.variants.block_local.shapes import FLAGS, STAGED, column_shapes, padding, shape_of
from akx.backends.schedule import as_coefficients
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.block_local import Shape
from akx.tuner.space import build_space
from benchmarks import gallery, matrices
from benchmarks.orders import by_fields, shuffled
from benchmarks.products import wind

DTYPES = ["float32", "float64", "complex64", "complex128"]


def small_gpu(sms: int = 5, shared: int = 40_000) -> CudaDevice:
    return CudaDevice("test", 0, (9, 0), sms, shared, shared + 1024, 65536, 2**20, 2**30, 10**9, 1e12)


#: Nodes of a small matrix by their unknowns.
NODES = {1: 2, 2: 2, 3: 2, 4: 1, 5: 2, 6: 100}


def nodes_with_holes() -> sp.csr_array:
    """Nodes of mixed sizes of whose blocks one entry in fifty is missing."""
    A = sp.csr_array(wind(counts=NODES))
    A.data = np.where(np.random.default_rng(1).random(A.nnz) < 0.02, 0.0, 1.0)
    A.eliminate_zeros()
    return A


def make(name: str, dtype: str, seed: int = 0) -> Matrix:
    """A small matrix of the gallery, or of nodes of mixed sizes: with holes, or with rows in another order."""
    rng = np.random.default_rng(seed)
    own: dict[str, Callable[[], Any]] = {
        "mixed": lambda: wind(counts=NODES),
        "mixed with holes": nodes_with_holes,
        "shuffled": lambda: shuffled(wind(counts=NODES)),
        "fields": lambda: by_fields(gallery.small("brick"), 3),
    }
    A = sp.csr_array(own[name]() if name in own else gallery.small(name))
    A.data = rng.standard_normal(A.nnz) / 3
    if np.dtype(dtype).kind == "c":
        A = A.astype(dtype)
        A.data = A.data + 1j * rng.standard_normal(A.nnz) / 3
    return Matrix.from_any(A.astype(dtype))


def start(matrix: Matrix, b: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((b, matrix.n))
    return (x + 1j * x[:, ::-1] if matrix.dtype.kind == "c" else x).astype(matrix.dtype)


def basis(k: int, dtype: np.dtype[Any]) -> Any:
    rng = np.random.default_rng(k)
    c = rng.uniform(-1, 1, k)
    c[0] = 0
    return as_coefficients(rng.uniform(0.5, 1.5, k), rng.uniform(-1, 1, k), c, dtype)


RESIDENT = [
    ("pentadiagonal", "1x1-1", {"held_slices": 1, "held_slots": 4}),
    ("mc2depi", "1x1-1", {"held_slices": 2, "held_slots": 3}),
    ("mc2depi", "1x1-2", {"x": "global"}),
    ("brick", "3x3-4", {"held_slices": 1, "held_slots": 2}),
    ("brick", "3x3-1", {"x": "global"}),
    ("brick", "1x3-2", {}),
    ("shell", "3x6-2", {}),
    ("shell", "2x6-1", {"held_slices": 1, "held_slots": 1}),
    ("27-point", "1x1-4", {"held_slices": 1, "held_slots": 9}),
    ("rmat", "1x1-8", {}),
    ("mc2depi", "1x1-1", {"depth": 3}),
    ("pentadiagonal", "1x1-2", {"depth": 2, "held_slices": 1, "held_slots": 1}),
    ("shell", "3x6-1", {"depth": 2}),
    ("mixed", "3x3-2", {"held_slices": 1, "held_slots": 2}),
    ("mixed", "2x2-1", {"x": "global"}),
    ("mixed", "1x3-1", {"depth": 2}),
    ("mixed", "2x6-4", {}),
    ("mixed with holes", "3x6-1", {"x": "global", "held_slices": 1, "held_slots": 1}),
    ("mixed with holes", "3x3-4", {"depth": 2}),
    ("shuffled", "3x3-2", {"held_slices": 1, "held_slots": 2}),
    ("shuffled", "2x6-1", {}),
    ("fields", "3x3-2", {"held_slices": 1, "held_slots": 2}),
    ("fields", "1x3-1", {"vectors": 1}),
]


on_the_host = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Device:
    return block_local_device(monkeypatch, tmp_path)


def block_local_device(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Device:
    found = Device(small_gpu(), folder, "parts")
    found.install(monkeypatch, folder, [parts])
    return found


def resident_program(device: Device, matrix: Matrix, plan: Plan, facts: CudaDevice) -> tuple[LaidOut, PartsProgram]:
    """A matrix in parts, and its program, with values stored as the plan says."""
    device.facts, depth = facts, plan.typed.depth
    assert resident.SCHEDULE.feasible(plan, matrix, facts) is None
    laid_out, zones = resident_layout.lay_out_resident(matrix, plan, facts)
    assert laid_out.way == way_of(plan)
    active = {} if zones is None else {depth: active_slices(zones, shape_of(plan), depth)}
    per_sm = plan.typed.blocks_per_sm
    assert laid_out.shared + STATIC <= min(facts.shared_per_block, facts.shared_per_sm // per_sm - 1024)
    return laid_out, PartsProgram(matrix, laid_out, plan, (plan.k,), active, per_sm, way_of(plan))


def ghost_program(device: Device, matrix: Matrix, plan: Plan, facts: CudaDevice) -> PartsProgram:
    device.facts = facts
    assert ghost.SCHEDULE.feasible(plan, matrix, facts) is None
    laid_out, active, steps = ghost_layout.lay_out_ghost(matrix, plan, facts)
    assert laid_out.mode == (ALONE if plan.typed.cluster == 1 else CLUSTER)
    return PartsProgram(matrix, laid_out, plan, steps, active, plan.typed.blocks_per_sm)


def check(device: Device, matrix: Matrix, program: PartsProgram, vectors: int = 2) -> Any:
    """The powers, which are right."""
    x, coefficients = start(matrix, vectors, 1), basis(program.k, matrix.dtype)
    out = poisoned_powers(device, program, x, coefficients)
    assert reference.error_ratio(matrix, out, x, coefficients) <= 1
    return out


def needs_all_its_shared_memory(device: Device, matrix: Matrix, program: PartsProgram, vectors: int = 2) -> None:
    """With 16 bytes less the last of what a block has there is beyond."""
    device.less = 16
    with pytest.raises(AssertionError, match="or touch what is beyond shared memory"):
        check(device, matrix, program, vectors)
    device.less = 0


#: Each is a kernel of its own, which is compiled once.
RUNS: list[Any] = [
    (*case, *how)
    for case in RESIDENT
    for how in (("natural", "float64", {}), ("metis", "complex64", {"exchange": FLAGS}))
]


@on_the_host
@pytest.mark.parametrize(
    ("name", "variant", "options", "partitioner", "dtype", "more"), mostly_nightly(RUNS, RUNS[::2] + RUNS[1::6])
)
def test_resident_layouts(
    device: Device, name: str, variant: str, options: Any, partitioner: str, dtype: str, more: Any
) -> None:
    matrix, k = make(name, dtype), 4
    plan = Plan("cuda", "resident", variant, partitioner, k, k, options={"block": 256, "vectors": 2, **options, **more})
    laid_out, program = resident_program(device, matrix, plan, small_gpu())
    check(device, matrix, program)
    needs_all_its_shared_memory(device, matrix, program)
    entries = laid_out.parts.entry
    found = np.unique(entries[entries > 0])
    assert np.array_equal(found, np.arange(1, matrix.nnz + 1))
    assert plan.typed.depth > 1 or np.array_equal(np.sort(entries[entries > 0]), np.arange(1, matrix.nnz + 1))


@on_the_host
@pytest.mark.parametrize(
    ("name", "variant", "more", "dtype"),
    in_turn(
        [
            ("delaunay", "1x1-1", {}),
            ("delaunay", "1x1-2", {"vectors": 4, "held_slices": 1, "held_slots": 2}),
            ("brick", "3x3-2", {"vectors": 2}),
            ("mixed", "3x3-2", {"vectors": 2, "blocks_per_sm": 2}),
            ("shuffled", "2x6-1", {"vectors": 2}),
        ],
        ("float64",),
        ("complex64",),
    ),
)
def test_results_that_come_through_a_stage(device: Device, name: str, variant: str, more: Any, dtype: str) -> None:
    """Of more steps than there are in the stage at a time, and of one and two."""
    matrix = make(name, dtype)
    for k in (1, 2, 6):
        options = {"block": 256, "results": STAGED, **more}
        plan = Plan("cuda", "resident", variant, "metis", k, k, options=options)
        _, program = resident_program(device, matrix, plan, small_gpu(3, 200_000))
        check(device, matrix, program, 5)
    needs_all_its_shared_memory(device, matrix, program, 5)


def is_right_in_every_way(device: Device, matrix: Matrix, plan: Plan, facts: CudaDevice) -> LaidOut:
    """Right, and the same bits as with values in full: products are, and slots of a row are added up in order."""
    laid_out, program = resident_program(device, matrix, plan, facts)
    slots = laid_out.parts.entry.size // laid_out.parts.shape.slot
    columns = 0 if laid_out.way == TABLE else laid_out.parts.columns.nbytes
    stored = program._values.nbytes + columns
    assert stored == slots * slot_bytes(laid_out.parts.shape, matrix.dtype, laid_out.way)
    out = check(device, matrix, program)
    needs_all_its_shared_memory(device, matrix, program)
    plan = plan.replace(options={**plan.options, "stored": FULL})
    full, program = resident_program(device, matrix, plan, facts)
    assert out.tobytes() == check(device, matrix, program).tobytes()
    assert laid_out.parts.far_slots <= full.parts.far_slots
    return laid_out


#: Matrix, variant, options; of single entries, which a table may have, and of dense blocks.
STORED_LAYOUTS = [
    ("pentadiagonal", "1x1-1", {"held_slices": 1, "held_slots": 4}),
    ("mc2depi", "1x1-1", {"held_slices": 2, "held_slots": 3}),
    ("mc2depi", "1x1-2", {"x": "global"}),
    ("27-point", "1x1-4", {"held_slices": 1, "held_slots": 7}),
    ("9-point", "1x1-1", {"x": "global", "held_slices": 1, "held_slots": 5}),
    ("rmat", "1x1-8", {}),
    ("pentadiagonal", "1x1-2", {"depth": 2, "held_slices": 1, "held_slots": 1}),
    ("9-point", "1x1-1", {"depth": 3, "blocks_per_sm": 2}),
]
BLOCK_LAYOUTS = [
    ("brick", "3x3-4", {"held_slices": 1, "held_slots": 1}),
    ("brick", "1x3-2", {"x": "global", "held_slices": 1, "held_slots": 2}),
    ("shell", "3x6-2", {}),
    ("shell", "2x6-1", {"held_slices": 1, "held_slots": 1}),
    ("shell", "3x6-1", {"depth": 2}),
    ("mixed", "3x3-2", {"held_slices": 1, "held_slots": 1}),
    ("mixed with holes", "1x3-4", {"x": "global"}),
    ("shuffled", "3x3-1", {}),
]


STORED_IN_TURN = in_turn(STORED_LAYOUTS, *NOT_FULL) + in_turn(BLOCK_LAYOUTS, *NOT_FULL[:2])
TIERS = in_turn([(4_500,), (8_000,), (227 * 1024,)] * 2, *NOT_FULL)


@on_the_host
@pytest.mark.parametrize(
    ("name", "variant", "options", "way", "dtype"),
    mostly_nightly(STORED_IN_TURN, STORED_IN_TURN[:6] + STORED_IN_TURN[8::2]),
)
@pytest.mark.parametrize("partitioner", ["natural", "metis"])
def test_stored_layouts(
    device: Device, name: str, variant: str, options: Any, partitioner: str, way: str, dtype: str
) -> None:
    matrix, k = storable(make(name, dtype), way, 3), 4
    options = {"block": 256, "vectors": 2, "stored": way, **options}
    plan = Plan("cuda", "resident", variant, partitioner, k, k, options=options)
    is_right_in_every_way(device, matrix, plan, small_gpu(shared=60_000))


@on_the_host
@pytest.mark.parametrize(("shared", "way", "dtype"), mostly_nightly(TIERS, TIERS[1::2]))
def test_tiers_of_stored_values(device: Device, way: str, dtype: str, shared: int) -> None:
    """Slots in registers, shared and global memory: words are the same in all of them."""
    matrix, facts = storable(make("27-point", dtype), way, 3), small_gpu(4, shared)
    tiers = set()
    for held in (0, 1):
        options = {"block": 256, "held_slices": held, "held_slots": 3 if held else 1, "stored": way, "x": "global"}
        plan = Plan("cuda", "resident", "1x1-1", k=3, k_per_pass=3, options=options)
        found = is_right_in_every_way(device, matrix, plan, facts).parts
        tiers |= {"near"} if found.slices["nears"].any() else set()
        tiers |= {"far"} if found.slices["fars"].any() else set()
    assert tiers == ({"near"} if shared > 200_000 else {"near", "far"})


@pytest.mark.parametrize("x", ["shared", "global"])
def test_more_slots_are_near_where_values_take_less(x: str) -> None:
    """In the same room; that of the table is not much where few values are different."""
    matrix, device = make("27-point", "float64"), small_gpu(4, 9_500)
    matrix = matrix.with_values(np.random.default_rng(0).choice([0.5, -0.25, 1.0], matrix.nnz))
    nears, fars, rooms = [], [], []
    for way in STORED:
        plan = Plan("cuda", "resident", "1x1-1", k=3, k_per_pass=3, options={"block": 256, "x": x, "stored": way})
        laid_out, _ = resident_layout.lay_out_resident(matrix, plan, device)
        nears.append(int(laid_out.parts.parts["nears"].sum()))
        fars.append(laid_out.parts.far_slots)
        rooms.append(device.shared_per_block - laid_out.shared - STATIC)
        assert 0 <= rooms[-1] < slot_bytes(Shape(1, 1, 1, 8, 0, 1), matrix.dtype, way)  # no room for another slot
    assert nears[0] * 1.5 < nears[1]
    assert nears[1] * 1.3 < nears[2]
    assert fars[0] > fars[1] > fars[2] > 0
    assert len({near + far for near, far in zip(nears, fars, strict=True)}) == 1


@pytest.mark.parametrize(
    ("shape", "dtype", "way", "of_slot", "registers"),
    [
        (Shape(1, 1, 1, 8, 2, 3), "float32", FULL, 192, 10),
        (Shape(1, 1, 1, 8, 2, 3), "float32", TABLE, 128, 6),
        (Shape(1, 1, 1, 8, 2, 3), "float64", FULL, 320, 16),
        (Shape(1, 1, 1, 8, 2, 3), "float64", HALF, 192, 10),
        (Shape(1, 1, 1, 8, 2, 3), "float64", TABLE, 128, 6),
        (Shape(1, 1, 4, 8, 1, 4), "complex64", FULL, 320, 10),
        (Shape(1, 1, 4, 8, 1, 4), "complex64", TABLE, 128, 4),
        (Shape(1, 1, 1, 8, 4, 5), "complex128", FULL, 576, 92),
        (Shape(1, 1, 1, 8, 4, 5), "complex128", HALF, 320, 52),
        (Shape(1, 1, 1, 8, 4, 5), "complex128", TABLE, 128, 20),
        (Shape(3, 3, 2, 8, 1, 2), "float64", FULL, 2368, 37),
        (Shape(3, 3, 2, 8, 1, 2), "float64", HALF, 1216, 19),
        (Shape(2, 6, 1, 8, 2, 1), "complex128", HALF, 3136, 50),
        (Shape(3, 6, 1, 8, 0, 1), "float64", HALF, 2368, 0),
    ],
)
def test_bytes_and_registers_of_slots(shape: Shape, dtype: str, way: str, of_slot: int, registers: int) -> None:
    """Values, and a column of 16 bits for each dense block, two of them in a register; or a word for both."""
    assert slot_bytes(shape, np.dtype(dtype), way) == of_slot
    assert entry_bytes(shape, np.dtype(dtype), way) == of_slot / (32 * shape.br * shape.bc)
    assert held_registers(shape, np.dtype(dtype), way) == registers
    if way == FULL:
        assert slot_bytes(shape, np.dtype(dtype)) == of_slot
        assert held_registers(shape, np.dtype(dtype)) == registers


@pytest.mark.parametrize("name", ["shell", "brick"])
def test_a_table_is_for_single_entries(name: str) -> None:
    """Dense blocks may have values of half the bytes."""
    matrix, device = storable(make(name, "float64"), TABLE, 0), small_gpu()
    shapes = column_shapes(matrix)
    assert len(shapes) > 2
    for br, bc in shapes:
        for way in STORED:
            plan = Plan("cuda", "resident", f"{br}x{bc}-1", k=2, k_per_pass=2, options={"block": 256, "stored": way})
            refused = way == TABLE and (br, bc) != (1, 1)
            reason = "a table of values is for blocks of one entry" if refused else None
            assert resident.SCHEDULE.feasible(plan, matrix, device) == reason


def large(dtype: str) -> Matrix:
    """A matrix of more different values than a table has, which have all bits of their type."""
    matrix = Matrix.from_any(sp.csr_array(gallery.stencil((61, 60), 5)).astype(dtype))
    return matrix.with_values(random_numbers(np.random.default_rng(0), matrix.nnz, dtype))


def test_ways_that_a_search_has() -> None:
    """Those that the values allow; a plan with another one is possible, and the same as one in full."""
    device, small = small_gpu(shared=100_000), make("9-point", "float64")
    why = {HALF: "values are not the same in half the bytes", TABLE: "too many values are different"}
    for matrix, ways in (
        (small, (FULL, TABLE)),
        (large("float64"), (FULL,)),
        (storable(large("complex128"), HALF, 0), (FULL, HALF)),
        (storable(small, HALF, 0), STORED),
    ):
        space = build_space(matrix, 4, device, threads=1, backend="cuda", start_vectors=1)
        assert space.choices("resident", "stored") == ways
        for way in STORED:
            plan = Plan("cuda", "resident", "1x1-1", k=4, k_per_pass=4, options={"block": 256, "stored": way})
            assert resident.SCHEDULE.feasible(plan, matrix, device) is None
            wasted = None if way in ways else f"stored={way} is the same as full here: {why[way]}"
            assert resident.SCHEDULE.waste(plan, matrix, device) == wasted


def test_diagonals_are_stored_in_full() -> None:
    matrix, device = storable(make("pentadiagonal", "float64"), TABLE, 0), small_gpu()
    plan = resident.SCHEDULE.untuned_for(matrix, device, 4)
    assert plan.variant == "dia"
    for way in STORED:
        stored = plan.replace(options={**plan.options, "stored": way})
        assert resident.SCHEDULE.feasible(stored, matrix, device) is None
        wasted = None if way == FULL else "diagonals are stored in full"
        assert resident.SCHEDULE.waste(stored, matrix, device) == wasted


@pytest.mark.parametrize(("vectors", "per_sm"), [(1, 1), (2, 1), (1, 2)])
def test_a_table_has_to_fit_beside_x(vectors: int, per_sm: int) -> None:
    """Where it surely does not, which is known before anything is laid out, the plan is the same as in full."""
    matrix = make("9-point", "float64")
    table = table_bytes(matrix, TABLE)
    assert table > 2000 * 8
    parts = 5 * per_sm
    slices = -(-matrix.n // (32 * parts))
    x = -(-2 * matrix.n * 8 * vectors // parts)
    needed = per_sm * (1024 + STATIC + 4 * 28 + table + 16 * slices + x)
    options = {"block": 256, "vectors": vectors, "blocks_per_sm": per_sm, "stored": TABLE}
    plan = Plan("cuda", "resident", "1x1-1", k=4, k_per_pass=4, options=options)
    in_full = plan.replace(options={**options, "stored": FULL})
    for bytes_of_sm, wasted in ((needed, False), (needed - 2 * per_sm, True)):
        device = dataclasses.replace(small_gpu(), shared_per_sm=bytes_of_sm)
        assert resident.SCHEDULE.feasible(plan, matrix, device) is None
        reason = "stored=table is the same as full here: its table does not fit beside x" if wasted else None
        assert resident.SCHEDULE.waste(plan, matrix, device) == reason
        assert resident.SCHEDULE.waste(in_full, matrix, device) is None
    with pytest.raises(InfeasibleError, match="x does not fit the shared memory"):
        resident_layout.lay_out_resident(matrix, plan, device)
    resident_layout.lay_out_resident(matrix, in_full, device)


@on_the_host
@pytest.mark.parametrize("shared", [6_000, 12_000, 227 * 1024])
def test_tiers(device: Device, shared: int) -> None:
    """With little shared memory the rest is far, with much of it nothing is; each place is right."""
    matrix, facts = make("27-point", "float64"), small_gpu(4, shared)
    for held in (0, 1):
        options = {"block": 256, "held_slices": held, "held_slots": 3 if held else 1}
        plan = Plan("cuda", "resident", "1x1-1", k=3, k_per_pass=3, options=options)
        laid_out, program = resident_program(device, matrix, plan, facts)
        assert (laid_out.parts.far_slots == 0) == (shared > 200_000)
        check(device, matrix, program, 1)


GHOST = [
    ("pentadiagonal", "1x1-1", 5, 5, {"held_slices": 1, "held_slots": 5}),
    ("pentadiagonal", "1x1-1", 7, 3, {"blocks_per_sm": 2}),
    ("mc2depi", "1x1-2", 4, 2, {}),
    ("brick", "3x3-2", 3, 2, {"held_slices": 1, "held_slots": 1}),
    ("shell", "3x6-1", 2, 1, {}),
    ("pentadiagonal", "1x1-1", 5, 5, {"waves": 3}),
    ("pentadiagonal", "1x1-2", 7, 3, {"cluster": 2, "held_slices": 1, "held_slots": 5}),
    ("mc2depi", "1x1-1", 4, 4, {"cluster": 4, "waves": 2}),
    ("mc2depi", "1x1-4", 5, 2, {"cluster": 8, "vectors": 2, "blocks_per_sm": 3}),
    ("brick", "3x3-2", 3, 2, {"cluster": 2, "held_slices": 1, "held_slots": 1}),
    ("brick", "1x3-1", 1, 1, {"cluster": 2}),
    ("shell", "2x6-1", 3, 3, {"cluster": 4, "blocks_per_sm": 4}),
    ("9-point", "1x1-1", 4, 4, {"cluster": 8, "blocks_per_sm": 6}),
    ("mixed", "3x3-2", 3, 2, {"held_slices": 1, "held_slots": 1}),
    ("mixed", "3x6-1", 2, 2, {"cluster": 2, "vectors": 2}),
    ("mixed with holes", "2x2-2", 3, 3, {"cluster": 4, "held_slices": 1, "held_slots": 2}),
    ("fields", "3x3-2", 3, 2, {"held_slices": 1, "held_slots": 1}),
    ("shuffled", "1x3-2", 2, 2, {"cluster": 2, "vectors": 2}),
]


@on_the_host
@pytest.mark.parametrize(
    ("name", "variant", "k", "depth", "options", "dtype"), in_turn(GHOST, ("float64",), ("complex128",))
)
@pytest.mark.parametrize("partitioner", ["natural", "metis"])
def test_ghost_layouts(
    device: Device, name: str, variant: str, k: int, depth: int, options: Any, partitioner: str, dtype: str
) -> None:
    matrix = make(name, dtype)
    options = {"block": 256, "vectors": 1, **options}
    plan = Plan("cuda", "ghost", variant, partitioner, k, depth, options=options)
    check(device, matrix, ghost_program(device, matrix, plan, small_gpu(3, 227 * 1024)))


def test_blocks_that_do_not_fit_are_made_smaller() -> None:
    matrix = make("pentadiagonal", "float64")
    plan = Plan("cuda", "ghost", "1x1-1", k=2, k_per_pass=2, options={"block": 128})
    whole = ghost_layout.lay_out_ghost(matrix, plan, small_gpu(1, 227 * 1024))[0]
    cut = ghost_layout.lay_out_ghost(matrix, plan, small_gpu(1, 3000))[0]
    assert whole.parts.parts.size == 1
    assert cut.parts.parts.size == 2
    assert cut.shared <= 3000
    with pytest.raises(InfeasibleError):
        ghost_layout.lay_out_ghost(matrix, plan, small_gpu(1, 400))


def test_dense_blocks_are_found() -> None:
    assert {bc for _, bc in column_shapes(make("shell", "float64"))} == {1, 2, 3, 6}
    assert {bc for _, bc in column_shapes(make("brick", "float64"))} >= {1, 3}
    assert {bc for _, bc in column_shapes(make("9-point", "float64"))} == {1}


@on_the_host
@pytest.mark.parametrize("kind", ["band", "empty", "dense row", "disconnected", "holes", "blocks", "random"])
@pytest.mark.parametrize("n", [1, 2, 33, 402])
def test_awkward_matrices(device: Device, kind: str, n: int) -> None:
    """Rows without entries, one row with all of them, parts without rows: by every schedule that takes them."""
    matrix, facts, k = make_matrix(kind, n, "float64", n), small_gpu(6, 100_000), 4
    for options in ({}, {"depth": 2}, {"x": "global"}, {"held_slices": 1, "held_slots": 2}):
        for variant in ("1x1-1", "1x1-4", "3x3-2"):
            plan = Plan("cuda", "resident", variant, k=k, k_per_pass=k, options={"block": 256, **options})
            if resident.SCHEDULE.feasible(plan, matrix, facts) is not None:
                continue
            try:
                _, program = resident_program(device, matrix, plan, facts)
            except InfeasibleError:
                assert plan.typed.depth > 1
                continue
            check(device, matrix, program, 1)
    for cluster, partitioner in ((1, "natural"), (2, "natural"), (4, "natural"), (2, "metis")):
        options = {"block": 128, "cluster": cluster}
        plan = Plan("cuda", "ghost", "1x1-1", partitioner, k, 3, options=options)
        check(device, matrix, ghost_program(device, matrix, plan, facts), 1)


def test_clusters_need_hopper() -> None:
    matrix = make("pentadiagonal", "float64")
    old = dataclasses.replace(small_gpu(), compute_capability=(8, 0))
    plan = Plan("cuda", "ghost", "1x1-1", k=2, k_per_pass=2, options={"cluster": 2})
    assert "compute capability 9.0" in str(ghost.SCHEDULE.feasible(plan, matrix, old))
    for gpu, choices in ((old, (1,)), (small_gpu(), (1, 2, 4, 8))):
        found = next(p for p in ghost.SCHEDULE.space(matrix, gpu, 2) if p.name == "cluster")
        assert found.choices == choices


@pytest.mark.parametrize(("k", "depth", "possible"), [(3, 3, True), (3, 4, False), (1, 2, False)])
def test_an_exchange_every_so_many_steps_needs_as_many_steps(k: int, depth: int, possible: bool) -> None:
    """The kernel has room for k numbers of active slices: with a larger depth it would write past them."""
    matrix, gpu = make("9-point", "float64"), small_gpu()
    plan = Plan("cuda", "resident", "1x1-1", k=k, k_per_pass=k, options={"depth": depth})
    assert (resident.SCHEDULE.feasible(plan, matrix, gpu) is None) is possible
    depths = next(p.choices for p in resident.SCHEDULE.space(matrix, gpu, k) if p.name == "depth")
    assert (depth in depths) is possible


@pytest.mark.parametrize("name", ["brick", "shell", "mc2depi", "9-point"])
def test_searches_begin_with_plans_that_fit_and_waste_nothing(name: str) -> None:
    matrix, device = make(name, "float64"), small_gpu()
    space = build_space(matrix, 4, device, threads=1, backend="cuda", start_vectors=1)
    for schedule in (resident.SCHEDULE, ghost.SCHEDULE):
        plans = schedule.starts(matrix, device, 4)
        assert plans
        for plan in plans:
            assert space.values(plan) is not None, plan.label()
            assert space.feasible(space.inside(plan), matrix) is None, plan.label()


def test_wasteful_plans_are_possible_and_not_searched() -> None:
    matrix, device = make("brick", "float64"), small_gpu()
    space = build_space(matrix, 4, device, threads=1, backend="cuda", start_vectors=1)
    plan = space.plan("resident", {"variant": "3x3-1", "block": 1024})
    assert resident.SCHEDULE.feasible(plan, matrix, device) is None
    assert "1024 threads for" in str(space.feasible(plan, matrix))
    assert space.choices("resident", "vectors") == (1,)
    assert build_space(matrix, 4, device, threads=1, backend="cuda").choices("resident", "vectors") == (1, 2, 4)
    tight = space.plan("resident", {"variant": "3x3-1", "block": 256, "keep": 40})
    assert "the same as 24" in str(space.feasible(tight, matrix))


@pytest.mark.parametrize(
    ("way", "dtype", "name"),
    [*((way, dtype, "5-point") for way, dtype in NOT_FULL), (HALF, "float64", "shell"), (FULL, "float32", "5-point")],
)
def test_searches_begin_with_values_in_few_bytes(way: str, dtype: str, name: str) -> None:
    """Where they can be stored so: rows as they come and by METIS, slots in registers and none."""
    matrix, device = large(dtype) if name == "5-point" else make(name, dtype), small_gpu(shared=100_000)
    matrix = matrix if way == FULL else storable(matrix, way, 0)
    space = build_space(matrix, 4, device, threads=1, backend="cuda", start_vectors=1)
    starts = resident.SCHEDULE.starts(matrix, device, 4)
    assert len(set(starts)) == len(starts)
    plans = [plan for plan in starts if plan.variant != "dia" and way_of(plan) != FULL]
    assert {way_of(plan) for plan in plans} == {way} - {FULL}
    for plan in plans:
        assert resident.SCHEDULE.feasible(plan, matrix, device) is None, plan.label()
        assert resident.SCHEDULE.waste(plan, matrix, device) is None, plan.label()
        assert resident_offers_search.too_many_slots(matrix, plan) is None, plan.label()
        assert space.feasible(space.inside(plan), matrix) is None, plan.label()
    if plans:
        assert {(plan.partitioner, plan.typed.held_slices) for plan in plans} >= {
            (order, slices) for order in ("natural", "metis") for slices in (0, 1)
        }
        assert all(plan.typed.x == "shared" for plan in plans if plan.partitioner == "metis")


#: What is the same for all ways in a model of bytes, and what is not.
MODELS = [
    ("1x1-1", "natural", {"x": "shared"}),
    ("1x1-2", "natural", {"x": "global", "held_slices": 1, "held_slots": 2}),
    ("1x1-1", "metis", {"x": "shared", "depth": 2}),
    ("1x1-1", "natural", {"x": "shared", "vectors": 2, "blocks_per_sm": 2}),
]


def models_of(plan: Plan, matrix: Matrix, beside: int) -> Any:
    """The traffic of a plan, and its work, with so many bytes of shared memory beside x."""
    x = 2 * matrix.n * matrix.dtype.itemsize * plan.typed.vectors // 5
    room = beside + (x if plan.typed.x == "shared" else 0)
    device = dataclasses.replace(small_gpu(5, room), l2_bytes=2**12)
    assert resident.SCHEDULE.feasible(plan, matrix, device) is None
    return resident.SCHEDULE.traffic(plan, matrix, device), resident.SCHEDULE.work(plan, matrix, device, 1)


@pytest.mark.parametrize("beside", [8_000, 200_000])
@pytest.mark.parametrize(("variant", "partitioner", "options"), MODELS)
@pytest.mark.parametrize(("way", "dtype"), NOT_FULL)
def test_fewer_bytes_stored_are_fewer_bytes_read(
    way: str, dtype: str, variant: str, partitioner: str, options: Any, beside: int
) -> None:
    """In the model of the roofline, and in that of the prediction; what is done is the same."""
    matrix = storable(large(dtype), way, 0)
    plan, in_full = (
        Plan("cuda", "resident", variant, partitioner, 4, 4, options={"block": 256, "stored": one, **options})
        for one in (way, FULL)
    )
    (model, work), (full, full_work) = (models_of(one, matrix, beside) for one in (plan, in_full))
    each, each_full = (entry_bytes(shape_of(plan), matrix.dtype, one) for one in (way, FULL))
    if beside > 100_000:  # all of it stays on the chip
        assert model.matrix_bytes == pytest.approx(each / each_full * full.matrix_bytes)
        assert full.cache_bytes - model.cache_bytes == pytest.approx(full.matrix_bytes - model.matrix_bytes)
    else:  # and is read again where it does not
        assert model.matrix_bytes > 2 * each * matrix.nnz
        assert full.matrix_bytes - model.matrix_bytes > 2.5 * (each_full - each) * matrix.nnz
        assert full.cache_bytes - model.cache_bytes > 2.5 * (each_full - each) * matrix.nnz
    for name in ("vector_bytes", "flops", "synchronisations", "redundancy"):
        assert getattr(model, name) == getattr(full, name)
    assert work.cache_bytes < full_work.cache_bytes
    assert work.loaded_bytes <= full_work.loaded_bytes
    assert work.memory_bytes <= full_work.memory_bytes
    if beside < 100_000:
        assert full_work.cache_bytes - work.cache_bytes > 2.5 * (each_full - each) * matrix.nnz
        assert full_work.loaded_bytes >= work.loaded_bytes > 0  # all that there is room for
        assert full_work.memory_bytes > work.memory_bytes > 0
    assert (work.cycles, work.launches, work.barriers) == (full_work.cycles, full_work.launches, full_work.barriers)


def test_what_is_read_in_each_step_is_not_loaded_besides() -> None:
    """With half of the registers for slots more of the matrix is loaded once, and as much less is read in each step."""
    matrix = large("float64")
    held, read = (
        models_of(Plan("cuda", "resident", "1x1-1", "natural", 4, 4, options=options), matrix, 12_000)[1]
        for options in (
            {"block": 256, "held_slices": 8, "held_slots": 4, "keep": 0},
            {"block": 256, "held_slices": 0, "held_slots": 1, "keep": 0},
        )
    )
    assert held.loaded_bytes > read.loaded_bytes > 0
    more = held.loaded_bytes - read.loaded_bytes
    assert read.memory_bytes - held.memory_bytes == pytest.approx(4 * more, rel=0.01)


@pytest.mark.parametrize(("variant", "partitioner", "options"), MODELS)
def test_a_table_leaves_less_room_for_slots(variant: str, partitioner: str, options: Any) -> None:
    """More is read in each step where more values are different, by both models."""
    options = {"block": 256, "stored": TABLE, **options}
    plan = Plan("cuda", "resident", variant, partitioner, 4, 4, options=options)
    matrix, rng, found, bytes_of_table = large("float64"), np.random.default_rng(0), [], []
    for kinds in (63, 1000):
        few = matrix.with_values(rng.choice(rng.standard_normal(kinds), matrix.nnz))
        found.append(models_of(plan, few, 12_000))
        bytes_of_table.append(table_bytes(few, TABLE))
    assert bytes_of_table == [512, 8192]
    more = 4 * 5 * (8192 - 512)  # in all steps, of all parts, where there is so much room
    (model, work), (other, other_work) = found
    assert other.cache_bytes - model.cache_bytes >= 0.25 * more
    assert other.matrix_bytes - model.matrix_bytes >= 0.25 * more
    assert other_work.cache_bytes - work.cache_bytes >= 0.25 * more


@pytest.mark.parametrize(
    ("way", "dtype", "slots", "spilled"),
    [
        (FULL, "float64", 9, 23 + 20 + 2 + 2 - 30),
        (HALF, "float64", 9, 14 + 12 + 2 + 2 - 30),
        (TABLE, "float64", 9, 0),
        (FULL, "complex128", 3, 14 + 36 + 4 + 4 - 30),  # all of its slots
        (HALF, "complex128", 3, 8 + 20 + 4 + 4 - 30),
        (TABLE, "complex128", 9, 0),
        (TABLE, "complex128", 15, 15 + 8 + 4 + 4 - 30),
    ],
)
def test_slots_in_registers_for_which_there_are_too_few(way: str, dtype: str, slots: int, spilled: int) -> None:
    """Of 64 of a thread 34 are for other things: the rest are for slots held, those on their way, and a row."""
    matrix, device, shape = make("9-point", dtype), small_gpu(), Shape(1, 1, 1, 32, 1, slots)
    held = held_registers(shape, matrix.dtype, way)
    assert block_local_cost._spilled(device, matrix, shape, 1, 1, way) == 8 * 1024 * min(spilled, held)


def h100(**changes: Any) -> CudaDevice:
    """The figures of an H100."""
    gpu = CudaDevice("H100", 0, (9, 0), 132, 232_448, 233_472, 65_536, 50 * 2**20, 80 * 2**30, 1_980_000_000, 3.35e12)
    return dataclasses.replace(gpu, **changes)


@pytest.mark.parametrize(
    ("name", "gpu", "wanted"),
    [
        ("pentadiagonal", h100(), {"cluster": 1, "waves": 1, "k_per_pass": 16, "partitioner": "natural"}),
        ("9-point", h100(), {"cluster": 8, "waves": 5, "k_per_pass": 8, "partitioner": "metis"}),
        ("9-point", h100(compute_capability=(8, 0)), {"cluster": 1, "partitioner": "metis"}),
        ("random", h100(), {"cluster": 1, "waves": 1, "partitioner": "natural"}),
    ],
)
def test_tuning_ghost_begins_at_a_likely_cut(name: str, gpu: CudaDevice, wanted: dict[str, Any]) -> None:
    """What fits and has few ghosts: on an H100 the 9-point grid of 10^6 rows takes 21.6 us per step so, 27.1 alone."""
    if name == "random":
        matrix = make_matrix("random", 200_000, "float64", 0)
    else:
        matrix = Matrix.from_any(matrices.select([name], reduced=False)[0].load())
    found = {parameter.name: parameter for parameter in ghost.SCHEDULE.space(matrix, gpu, 16)}
    assert {name: found[name].default for name in wanted} == wanted
    assert all(parameter.default in parameter.choices for parameter in found.values())
    default = {name: parameter.default for name, parameter in found.items()}
    fixed = {one: default.pop(one) for one in ("variant", "partitioner", "k_per_pass")}
    plan = Plan("cuda", "ghost", fixed["variant"], fixed["partitioner"], 16, fixed["k_per_pass"], options=default)
    assert ghost.SCHEDULE.feasible(plan, matrix, gpu) is None
    assert ghost.SCHEDULE.traffic(plan, matrix, gpu).redundancy >= 1


def test_a_device_that_takes_no_such_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason comes before the launch, and is not a launch failure."""

    class Crowded:
        def most_clusters(self, cluster: int, block: int, shared: int) -> int:
            assert (cluster, block) == (8, 256)
            assert 30_000 < shared <= 40_000
            return 0

    matrix, plan = make("mc2depi", "float64"), Plan("cuda", "ghost", "1x1-1", k=2, k_per_pass=2)
    monkeypatch.setattr(clusters, "load_kernel", lambda given: Crowded())
    assert clusters.on_device(matrix, plan, small_gpu()) == 5
    crowded = dataclasses.replace(plan, options={"cluster": 8, "block": 256})
    with pytest.raises(InfeasibleError, match="no cluster fits the device"):
        clusters.on_device(matrix, crowded, small_gpu())


def test_a_refusal_that_is_remembered_holds_nothing() -> None:
    """A traceback would: frames, programs in them, and their memory, until a garbage collection at a bad time."""
    matrix, device = make("9-point", "float64"), small_gpu(sms=100)
    options = {"block": 256, "depth": 4}
    plan = Plan("cuda", "resident", "1x1-1", k=4, k_per_pass=4, options=options)
    alone = Plan("cuda", "ghost", "1x1-1", k=4, k_per_pass=4, options={"block": 128})
    for _ in range(2):
        with pytest.raises(InfeasibleError):
            resident_layout.lay_out_resident(matrix, plan, device)
        with pytest.raises(InfeasibleError):
            ghost_layout.zones_of(matrix, "natural", shape_of(alone).bc, 300, 4)
        kept = [value for value in matrix.pattern_cache.values() if isinstance(value, InfeasibleError)]
        assert len(kept) == 2
        assert all(one.__traceback__ is None for one in kept)
        assert all(one.__context__ is None for one in kept)


def few_and_many(seed: int = 0) -> tuple[Matrix, Matrix]:
    """A matrix of 8000 different values, which a table takes, and one of more of them, which none does."""
    many, rng = large("float64"), np.random.default_rng(seed)
    return many.with_values(rng.choice(rng.standard_normal(8000), many.nnz)), many


def test_each_block_has_a_table_of_its_own() -> None:
    """So that of more blocks on a multiprocessor each has less room for slots, and at last none for its table."""
    few, _ = few_and_many()
    gpu, size = h100(), table_bytes(few, TABLE)
    assert 56_000 < size <= 65_536
    for blocks in (1, 2, 4):
        plan = Plan("cuda", "resident", "1x1-1", k=4, k_per_pass=4, options={"block": 256, "x": "global"})
        plan = plan.replace(options={**plan.options, "blocks_per_sm": blocks})
        table = plan.replace(options={**plan.options, "stored": TABLE})
        entries = few.nnz * padding(few, 1, 1) * (10.0 - 4.0)
        assert (
            resident_layout.bytes_read_again(plan, few, gpu) - resident_layout.bytes_read_again(table, few, gpu)
            == entries - 132 * blocks * size
        )
        why = resident.SCHEDULE.waste(table, few, gpu)
        if blocks == 4:
            assert why == "stored=table is the same as full here: its table does not fit beside x"
            with pytest.raises(InfeasibleError):
                resident_layout.lay_out_resident(few, table, gpu)
        else:
            assert why is None
            resident_layout.lay_out_resident(few, table, gpu)


def test_values_that_cannot_be_stored_so_cost_what_they_do_in_full() -> None:
    few, many = few_and_many()
    full, table = (
        Plan("cuda", "resident", "1x1-1", k=4, k_per_pass=4, options={"block": 256, "stored": way})
        for way in (FULL, TABLE)
    )
    for figure in (resident.SCHEDULE.traffic, lambda *given: resident.SCHEDULE.work(*given, 1)):
        assert figure(table, many, h100()) == figure(full, many, h100())
        assert figure(table, few, h100()) != figure(full, few, h100())


def test_searches_of_dense_blocks_begin_with_halves_where_tables_are_for_single_entries() -> None:
    matrix = make("brick", "float64")
    matrix = matrix.with_values(np.random.default_rng(0).choice([0.5, 0.25, 1.0], matrix.nnz))
    ways = {plan.typed.stored for plan in resident.SCHEDULE.starts(matrix, small_gpu(), 4)}
    assert ways == {FULL, HALF}


def test_ghost_zones_have_values_in_full() -> None:
    """Whatever a plan says beside its options: registers are those of full values."""
    matrix = make("9-point", "float64")
    plan = Plan("cuda", "ghost", "1x1-1", k=2, k_per_pass=2)
    options = {"held_slices": 2, "held_slots": 9, "block": 1024}
    reasons = [
        ghost.SCHEDULE.feasible(plan.replace(options={**options, **more}), matrix, h100())
        for more in ({}, {"stored": TABLE}, {"stored": "anything"})
    ]
    assert reasons == ["46 registers for slots do not fit 26"] * 3


def test_rows_that_read_too_far_have_x_in_shared_memory() -> None:
    """16 bits number columns of a slice where x is in global memory: seen before anything is laid out."""
    n = 70_000
    near = sp.diags_array([np.ones(n), np.ones(n - 65_535)], offsets=[0, 65_535], format="csr")
    far = sp.diags_array([np.ones(n), np.ones(n - 65_536)], offsets=[0, 65_536], format="csr")
    plan = Plan("cuda", "resident", "1x1-1", k=2, k_per_pass=2, options={"block": 256, "x": "global"})
    for A, possible in ((near, True), (far, False), (sp.csr_array(far.T), False)):
        matrix = Matrix.from_any(A)
        why = resident.SCHEDULE.feasible(plan, matrix, h100())
        assert (why is None) == possible, why
        default = resident.SCHEDULE._plain(matrix, h100(), 2)
        assert (default.partitioner == "natural") == possible
        assert possible or default.typed.x == "shared"
        assert resident.SCHEDULE.feasible(default, matrix, h100()) is None
    nothing = Matrix.from_any(sp.csr_array((5, 5)))
    assert resident.SCHEDULE.feasible(plan, nothing, h100()) is None


def test_ghost_zones_that_are_surely_too_large_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in random order: what one step reads of other blocks says enough, and takes one pass."""
    made: list[int] = []
    zones = ghost_layout.ghost_zones

    def made_of(indptr: Any, indices: Any, partition: Any, *given: Any, **more: Any) -> Any:
        made.append(partition.blocks)
        return zones(indptr, indices, partition, *given, **more)

    monkeypatch.setattr(ghost_layout, "ghost_zones", made_of)
    near, far = make("pentadiagonal", "float64"), make_matrix("random", 5000, "float64", 0)
    shape = Shape(1, 1, 1, 8, 0, 1)
    assert ghost_layout.redundancy_of(near, "natural", shape.bc, 4, 3) < 2.0
    assert made == [4]
    assert (
        ghost_layout.redundancy_of(far, "natural", shape.bc, 100, 1)
        == ghost_layout.redundancy_of(far, "natural", shape.bc, 100, 8)
        == 8.0
    )
    assert made == [4]
    with pytest.raises(InfeasibleError, match="ghost zones are too large"):
        ghost_layout.zones_of(far, "natural", shape.bc, 100, 1)
