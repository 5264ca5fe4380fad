"""Layouts of `resident` and `ghost` on the GPU, interpreted on the CPU against the reference."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from parts_interpreter import interpret
from test_contract import make_matrix

from akx.device.cuda.facts import CudaDevice
from akx.errors import InfeasibleError
from akx.kernels import reference
from akx.kernels.base import as_coefficients
from akx.kernels.cuda import clusters, ghost, resident
from akx.kernels.cuda.parts import ALONE, CLUSTER, active_slices, column_shapes, shape_of
from akx.matrix import Matrix
from akx.plan import Plan
from akx.tuner.space import build_space
from benchmarks import gallery, matrices

DTYPES = ["float32", "float64", "complex64", "complex128"]


def small_gpu(sms: int = 5, shared: int = 40_000) -> CudaDevice:
    return CudaDevice("test", 0, (9, 0), sms, shared, shared + 1024, 65536, 2**20, 2**30, 10**9, 1e12)


def make(name: str, dtype: str, seed: int = 0) -> Matrix:
    rng = np.random.default_rng(seed)
    A = sp.csr_array(gallery.small(name))
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
]


@pytest.mark.parametrize(("name", "variant", "options"), RESIDENT)
@pytest.mark.parametrize("partitioner", ["natural", "metis"])
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_resident_layouts(name: str, variant: str, options: Any, partitioner: str, dtype: str) -> None:
    matrix, device, k = make(name, dtype), small_gpu(), 4
    options = {"block": 256, "vectors": 2, **options}
    plan = Plan("cuda", "resident", variant, partitioner, k, k, options=options)
    assert resident.SCHEDULE.feasible(plan, matrix, device) is None
    laid_out, zones = resident.lay_out_resident(matrix, plan, device)
    assert laid_out.shared <= device.shared_per_block
    x, coefficients = start(matrix, 2, 1), basis(k, matrix.dtype)
    depth = int(options.get("depth", 1))
    active = {} if zones is None else {depth: active_slices(zones, shape_of(plan), depth)}
    out = interpret(laid_out, laid_out.parts.values(matrix.data), x, coefficients, (k,), active, depth)
    assert reference.error_ratio(matrix, out, x, coefficients) <= 1
    entries = laid_out.parts.entry
    found = np.unique(entries[entries > 0])
    assert np.array_equal(found, np.arange(1, matrix.nnz + 1))
    assert depth > 1 or np.array_equal(np.sort(entries[entries > 0]), np.arange(1, matrix.nnz + 1))


@pytest.mark.parametrize("shared", [6_000, 12_000, 227 * 1024])
def test_tiers(shared: int) -> None:
    """With little shared memory the rest is far, with much of it nothing is; each place is right."""
    matrix, device = make("27-point", "float64"), small_gpu(4, shared)
    for held in (0, 1):
        options = {"block": 256, "held_slices": held, "held_slots": 3 if held else 1}
        plan = Plan("cuda", "resident", "1x1-1", k=3, k_per_pass=3, options=options)
        laid_out, _ = resident.lay_out_resident(matrix, plan, device)
        assert (laid_out.parts.far_slots == 0) == (shared > 200_000)
        x, coefficients = start(matrix, 1, 1), basis(3, matrix.dtype)
        out = interpret(laid_out, laid_out.parts.values(matrix.data), x, coefficients, (3,))
        assert reference.error_ratio(matrix, out, x, coefficients) <= 1


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
]


@pytest.mark.parametrize(("name", "variant", "k", "depth", "options"), GHOST)
@pytest.mark.parametrize("partitioner", ["natural", "metis"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_ghost_layouts(name: str, variant: str, k: int, depth: int, options: Any, partitioner: str, dtype: str) -> None:
    matrix, device = make(name, dtype), small_gpu(3, 227 * 1024)
    options = {"block": 256, "vectors": 1, **options}
    plan = Plan("cuda", "ghost", variant, partitioner, k, depth, options=options)
    assert ghost.SCHEDULE.feasible(plan, matrix, device) is None
    laid_out, active, steps = ghost.lay_out_ghost(matrix, plan, device)
    cluster = int(options.get("cluster", 1))
    assert laid_out.mode == (ALONE if cluster == 1 else CLUSTER)
    x, coefficients = start(matrix, 2, 1), basis(k, matrix.dtype)
    out = interpret(laid_out, laid_out.parts.values(matrix.data), x, coefficients, steps, active, cluster=cluster)
    assert reference.error_ratio(matrix, out, x, coefficients) <= 1


def test_blocks_that_do_not_fit_are_made_smaller() -> None:
    matrix = make("pentadiagonal", "float64")
    plan = Plan("cuda", "ghost", "1x1-1", k=2, k_per_pass=2, options={"block": 128})
    whole = ghost.lay_out_ghost(matrix, plan, small_gpu(1, 227 * 1024))[0]
    cut = ghost.lay_out_ghost(matrix, plan, small_gpu(1, 3000))[0]
    assert whole.parts.parts.size == 1
    assert cut.parts.parts.size == 2
    assert cut.shared <= 3000
    with pytest.raises(InfeasibleError):
        ghost.lay_out_ghost(matrix, plan, small_gpu(1, 400))


def test_dense_blocks_are_found() -> None:
    assert {bc for _, bc in column_shapes(make("shell", "float64"))} == {1, 2, 3, 6}
    assert {bc for _, bc in column_shapes(make("brick", "float64"))} >= {1, 3}
    assert {bc for _, bc in column_shapes(make("9-point", "float64"))} == {1}


@pytest.mark.parametrize("kind", ["band", "empty", "dense row", "disconnected", "holes", "blocks", "random"])
@pytest.mark.parametrize("n", [1, 2, 33, 402])
def test_awkward_matrices(kind: str, n: int) -> None:
    """Rows without entries, one row with all of them, parts without rows: by every schedule that takes them."""
    matrix, device, k = make_matrix(kind, n, "float64", n), small_gpu(6, 100_000), 4
    x, coefficients = start(matrix, 1, 1), basis(k, matrix.dtype)
    truth = reference.reference(matrix, x, coefficients)
    for options in ({}, {"depth": 2}, {"x": "global"}, {"held_slices": 1, "held_slots": 2}):
        for variant in ("1x1-1", "1x1-4", "3x3-2"):
            plan = Plan("cuda", "resident", variant, k=k, k_per_pass=k, options={"block": 256, **options})
            if resident.SCHEDULE.feasible(plan, matrix, device) is not None:
                continue
            depth = int(options.get("depth", 1))
            try:
                laid_out, zones = resident.lay_out_resident(matrix, plan, device)
            except InfeasibleError:
                assert depth > 1
                continue
            active = {} if zones is None else {depth: active_slices(zones, shape_of(plan), depth)}
            out = interpret(laid_out, laid_out.parts.values(matrix.data), x, coefficients, (k,), active, depth)
            assert truth.error_ratio(out) <= 1, plan.label()
    for cluster, partitioner in ((1, "natural"), (2, "natural"), (4, "natural"), (2, "metis")):
        options = {"block": 128, "cluster": cluster}
        plan = Plan("cuda", "ghost", "1x1-1", partitioner, k, 3, options=options)
        assert ghost.SCHEDULE.feasible(plan, matrix, device) is None
        laid_out, active, steps = ghost.lay_out_ghost(matrix, plan, device)
        values = laid_out.parts.values(matrix.data)
        out = interpret(laid_out, values, x, coefficients, steps, active, cluster=cluster)
        assert truth.error_ratio(out) <= 1, plan.label()


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
            resident.lay_out_resident(matrix, plan, device)
        with pytest.raises(InfeasibleError):
            ghost._zones(matrix, "natural", shape_of(alone), 300, 4)
        kept = [value for value in matrix.pattern_cache.values() if isinstance(value, InfeasibleError)]
        assert len(kept) == 2
        assert all(one.__traceback__ is None for one in kept)
        assert all(one.__context__ is None for one in kept)
