"""Orders made on the device are those of the host, to the bit, and so is P A P^T; by the kernels' own text there."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import host_engine
import numpy as np
import pytest
import scipy.sparse as sp
from program_on_host import Call, Device, drops_all_graphs, poisoned_powers
from test_contract import make_coefficients, random_numbers
from test_cuda import run_twice
from test_cuda_layouts import H100
from test_cuda_lengths import rows_of_lengths

from akx.backends import reference
from akx.backends.cuda import reordered
from akx.backends.cuda import row_lengths as lengths
from akx.backends.cuda.device.facts import cuda_device, cuda_missing
from akx.backends.cuda.device.memory import to_device
from akx.backends.cuda.matrix import device_matrix, level_order, transpose
from akx.backends.cuda.matrix.device_matrix import Arrays, DeviceMatrix
from akx.backends.cuda.schedules.sweep import schedule as sweep
from akx.backends.cuda.value_compression.encodings import FULL, HALF
from akx.backends.cuda.variants import slots, swept
from akx.core.errors import MatrixError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.partition.levels import levels
from akx.partition.permutation import permute

on_the_host = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
on_a_gpu = pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Device:
    found = Device(H100, tmp_path, "level_order")
    modules = [level_order, transpose, device_matrix, reordered, sweep, slots, lengths, swept]
    found.install(monkeypatch, tmp_path, modules)
    monkeypatch.setattr(level_order, "_THREADS", 32)  # so that levels take several blocks, and tiles
    monkeypatch.setattr(level_order, "_ALONE", 8)
    return found


def shuffled(A: Any, seed: int = 0) -> sp.csr_array:
    A = sp.csr_array(A)
    order = np.random.default_rng(seed).permutation(A.shape[0])
    return sp.csr_array(A[order][:, order])


def grid(*extents: int) -> Any:
    found = sp.eye_array(1)
    for n in extents:
        line = sp.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(n, n))
        found = sp.kron(found, sp.eye_array(n)) + sp.kron(sp.eye_array(found.shape[0]), line)
    return found


def graphs() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    parts = [grid(9, 8), np.ones((1, 1)), grid(40), sp.csr_array((3, 3)), grid(5, 5, 4), np.eye(2)]
    return {
        "one": np.ones((1, 1)),
        "nothing": sp.csr_array((40, 40)),
        "path": grid(70),
        "plane": grid(17, 21),
        "room": grid(7, 8, 9),
        "parts": sp.block_diag(parts),
        "one way": sp.triu(grid(13, 14)),
        "some one way": sp.random_array((150, 150), density=0.01, rng=rng),
        "a full row": rows_of_lengths([2] * 30 + [90] + [0] * 60),
    }


def sent(A: sp.csr_array, send: Any) -> tuple[Matrix, DeviceMatrix]:
    A.sort_indices()
    A.data = np.random.default_rng(1).standard_normal(A.nnz)
    matrix = Matrix.from_any(A)
    arrays = (send(np.ascontiguousarray(one, np.uint32)) for one in (matrix.indptr, matrix.indices))
    return matrix, DeviceMatrix(Arrays(*arrays, send(matrix.data)), pattern_cache={}, largest=matrix.largest)


def is_the_hosts(A: Any, send: Any) -> None:
    matrix, there = sent(shuffled(A), send)
    wanted = levels(matrix.indptr, matrix.indices)
    found = level_order.ordered_there(*there.on_device[:2], 0)
    assert found is not None
    order = found.order.get()
    np.testing.assert_array_equal(order, wanted.permutation)
    np.testing.assert_array_equal(found.level_ptr, wanted.level_ptr)
    made = level_order.permuted(there, found.order)
    indptr, indices, entries = permute(matrix.indptr, matrix.indices, wanted.permutation)
    pointer, column, data = (one.get() for one in made.matrix.on_device)
    np.testing.assert_array_equal(pointer, indptr)
    np.testing.assert_array_equal(column, indices)
    np.testing.assert_array_equal(made.source.get(), entries)
    np.testing.assert_array_equal(data, matrix.data[entries])
    np.testing.assert_array_equal(made.place.get()[order], np.arange(matrix.n))


@on_the_host
@pytest.mark.parametrize("name", graphs())
def test_orders_are_those_of_the_host(device: Device, name: str) -> None:
    for device.threads.order in (0, 7):
        is_the_hosts(graphs()[name], host_engine.to_device)


@on_the_host
def test_what_is_shallow_or_in_many_parts_has_no_order(device: Device) -> None:
    def found(A: Any, *limits: int) -> Any:
        return level_order.ordered_there(*sent(shuffled(A), host_engine.to_device)[1].on_device[:2], *limits)

    assert found(grid(6, 6), 24) is None
    assert found(grid(60), 24) is not None
    assert found(sp.block_diag([grid(3)] * 5), 0, 4) is None
    assert found(sp.block_diag([grid(3)] * 5), 0, 5) is not None
    assert found(grid(60), 24, 1, 60) is None
    assert found(grid(60), 24, 1, 61) is not None
    ends = sp.block_diag([grid(2)] * 9)  # begun at ends: without a search for a better start
    assert found(ends, 0, 9, 18) is None
    assert found(ends, 0, 9, 19) is not None


@on_the_host
@pytest.mark.parametrize(
    ("dtype", "k", "vectors"), [("float64", 3, 1), ("float64", 8, 1), ("float64", 5, 3), ("complex128", 4, 1)]
)
def test_powers_in_another_order_come_in_the_users(device: Device, dtype: str, k: int, vectors: int) -> None:
    matrix = Matrix.from_any((sent(shuffled(grid(45, 7)), host_engine.to_device)[0].to_scipy() / 8).astype(dtype))
    rng = np.random.default_rng(k)
    coefficients, x = make_coefficients("newton", k, dtype, rng), random_numbers(rng, (vectors, matrix.n), dtype)
    for aliased in (False, True):
        program = reordered.prepared(matrix, lambda own: _made(device, own, k))
        found = poisoned_powers(device, program, x, coefficients, aliased=aliased)
        assert reference.error_ratio(matrix, found, x, coefficients) <= 1
    with pytest.raises(MatrixError, match="do not fit"):
        program.update_values(matrix.data[1:])
    other, before = matrix.with_values(random_numbers(rng, matrix.nnz, dtype) / 8), program.nbytes
    program.make_room()
    assert program.nbytes < before
    program.update_values(other.data)
    assert program.nbytes > program.made.nbytes
    found = poisoned_powers(device, program, x, coefficients)
    assert reference.error_ratio(other, found, x, coefficients) <= 1


@on_the_host
def test_new_values_that_are_stored_in_full_are_in_no_old_graph(device: Device) -> None:
    matrix = Matrix.from_any(sent(shuffled(grid(45, 7)), host_engine.to_device)[0].to_scipy().astype("f4"), dtype="f8")
    program = reordered.prepared(matrix, lambda own: _made(device, own, 3, HALF))
    drops_all_graphs(
        Call(program, matrix), matrix, matrix.with_values(np.random.default_rng(1).standard_normal(matrix.nnz))
    )


def _made(device: Device, own: Matrix, k: int, way: str = FULL) -> Any:
    plan = Plan("cuda", "sweep", "sell16-1", k=k, k_per_pass=1, options={"stored": way})
    return sweep._SweepProgram(own, plan, device.facts, way)


def test_an_order_is_looked_for_where_rows_come_in_none() -> None:
    small = replace(H100, l2_bytes=1 << 14)  # x is large beside it

    def orders(A: Any, facts: Any = small) -> set[str]:
        matrix = Matrix.from_any(sp.csr_array(A))
        plans = sweep.SCHEDULE.heuristic_plans(matrix, facts, 4)
        assert all(
            sweep.SCHEDULE.feasible(plan, matrix, facts) is None for plan in plans if plan.partitioner == "levels"
        )
        (order,) = (one for one in sweep.SCHEDULE.space(matrix, facts, 4) if one.name == "partitioner")
        assert {plan.partitioner for plan in plans} == set(order.choices)
        return set(order.choices)

    mesh = grid(60, 40)
    assert orders(shuffled(mesh)) == {"natural", "levels"}
    assert orders(shuffled(mesh), H100) == orders(mesh) == {"natural"}
    far = sp.random_array((2400, 2400), density=0.003, rng=np.random.default_rng(0))  # few levels, as of power laws
    assert orders(far) == {"natural"}


@on_a_gpu
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_a_plan_by_levels_is_right_on_a_gpu(dtype: str) -> None:
    matrix = Matrix.from_any(shuffled(grid(50, 60, 40)).astype(dtype) / 8)
    plan = Plan("cuda", "sweep", "sell16-1", "levels", k=9, k_per_pass=1)
    assert sweep.SCHEDULE.feasible(plan, matrix, cuda_device()) is None
    rng = np.random.default_rng(0)
    coefficients, x = make_coefficients("chebyshev", 9, dtype, rng), random_numbers(rng, (2, matrix.n), dtype)
    found = run_twice(plan, matrix, x, coefficients)
    assert reference.error_ratio(matrix, found, x, coefficients) <= 1


@on_a_gpu
@pytest.mark.parametrize("name", [*graphs(), "large", "wide"])
def test_orders_are_those_of_the_host_on_a_gpu(name: str) -> None:
    large = {"large": lambda: grid(60, 70, 50), "wide": lambda: grid(700, 400)}
    is_the_hosts(large[name]() if name in large else graphs()[name], to_device)
