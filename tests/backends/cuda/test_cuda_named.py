"""Plans that random draws of the contract tests seldom or never meet, one by one: dense blocks, pads, depths, moves.

Each is small, so that compute-sanitizer can watch it. Blocks in registers do not fit there in all complex types.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from test_contract import make_coefficients, make_matrix, random_numbers
from test_cuda import run_twice
from test_cuda_hubs import graph
from test_cuda_stream import GPU

from akx.backends import reference, registry
from akx.backends.cuda.device.facts import cuda_device, cuda_missing
from akx.backends.cuda.schedules.resident.layout import lay_out_resident
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan

#: Matrix, schedule, variant, partitioner, powers per pass of 4, start vectors, options.
Case = tuple[str, str, str, str, int, int, dict[str, Option]]
_BLOCKS = ("1x3-8", "2x2-1", "2x6-2", "3x3-4", "3x6-1", "3x6-2")
_RESIDENT: list[Case] = [
    (
        "chain" if depth > 1 else "nodes",
        *("resident", variant, "metis" if i % 2 else "natural"),
        *(4, 1 + i, {"x": x, "depth": depth, **more}),
    )
    for i, variant in enumerate(_BLOCKS)
    for x, depth, more in (
        ("shared", 1, {"held_slices": 1, "held_slots": 1, "vectors": 1}),
        ("shared", 1, {"held_slices": 0, "vectors": (2, 4)[i % 2]}),
        ("global", 1, {"held_slices": 1, "held_slots": 1, "vectors": 1}),
        ("global", 1, {"held_slices": 0, "vectors": (4, 1, 2)[i % 3]}),
        ("shared", 3, {"held_slices": 0, "blocks_per_sm": 4, "block": 256}),
        ("shared", 2, {"held_slices": 0, "vectors": 1, "exchange": "flags"}),
        ("global", 1, {"held_slices": 0, "blocks_per_sm": 2, "block": 256}),
    )
]
_DIAGONALS: list[Case] = [
    ("diagonals", "resident", "dia", "natural", 4, b, {"vectors": vectors, **held})
    for b, vectors, held in (
        (1, 1, {"held_slices": 1, "held_slots": 4}),
        (3, 2, {"held_slices": 0}),
        (8, 4, {"held_slices": 1, "held_slots": 2}),
        (5, 1, {"held_slices": 0, "block": 256}),
    )
] + [
    (name, "resident", "dia", "natural", 4, b, {"vectors": vectors, **options})
    for name, b, vectors, options in (
        ("long diagonals", 1, 1, {"held_slices": 2, "held_slots": 4}),
        ("long diagonals", 2, 1, {"held_slices": 4, "held_slots": 3, "block": 256}),
        ("long diagonals", 3, 2, {"held_slices": 1, "held_slots": 2}),
        ("many diagonals", 1, 1, {"held_slices": 1, "held_slots": 4, "blocks_per_sm": 2, "block": 256, "keep": 16}),
        ("many diagonals", 2, 1, {"held_slices": 0, "blocks_per_sm": 2}),
    )
]
_GHOST: list[Case] = [
    ("nodes", "ghost", variant, "metis", depth, 1 + i, {"blocks_per_sm": many, "block": 128, "waves": 1 + i % 3})
    for i, (variant, depth, many) in enumerate(zip(_BLOCKS, (4, 2, 1, 2, 4, 2), (2, 3, 4, 6, 8, 1), strict=True))
] + [("nodes", "ghost", "1x3-1", "natural", 2, 2, {"blocks_per_sm": 8, "block": 128, "vectors": 2})]
_PADDED: list[Case] = [
    ("band", "sweep", "pcsr", "natural", 1, 1 + (pad + ahead) % 8, {"pad": pad, "ahead": ahead})
    for pad in (1, 2, 4, 8)
    for ahead in (1, 2, 3, 4)
]
_HUBS: list[Case] = [
    ("graph", "sweep", "hubs", "natural", 1, b, {"hubs": room, "once": once})
    for b, room, once in ((1, 32, True), (2, 64, False))
]
_BLOCKS: list[Case] = [
    ("nodes", "sweep", f"vbell-{lanes}", "natural", 1, b, {"once": once})
    for lanes, b, once in ((1, 1, True), (2, 3, False), (4, 8, True))
]
_MOVED: list[Case] = [
    ("band", "stream", "sell16-2", order, depth, b, {"budget": 2**22, "rows": 96, "move": move, "vectors": vectors})
    for order, depth, b, move, vectors in (
        ("natural", 4, 1, "copy", 1),
        ("rcm", 2, 3, "copy", 2),
        ("natural", 4, 2, "direct", 2),
        ("natural", 3, 1, "direct", 1),
        ("rcm", 4, 5, "kernel", 4),
        ("natural", 2, 1, "kernel", 1),
    )
]
CASES = [*_RESIDENT, *_DIAGONALS, *_GHOST, *_PADDED, *_HUBS, *_BLOCKS, *_MOVED]


def matrix_of(name: str, dtype: str) -> Matrix:
    rng = np.random.default_rng(7)
    if name == "band":
        return make_matrix("band", 1009, dtype, 1)
    if name == "graph":
        return graph(5003, dtype)
    if name == "chain":  # long enough for all blocks of a large GPU to have three steps' neighbours
        line = sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(1500, 1500))
        A = sp.csr_array(sp.kron(line, np.ones((6, 6))))
    elif name == "long diagonals":  # a part of a large GPU has 24 slices, and others read 18 of them
        A = sp.csr_array(sp.diags_array([1.0] * 5, offsets=[-280, -1, 0, 1, 280], shape=(101_393, 101_393)))
    elif name == "many diagonals":  # two parts of a multiprocessor do not fit its shared memory, in most types
        A = sp.csr_array(sp.diags_array([1.0] * 41, offsets=[*range(-20, 21)], shape=(101_393, 101_393)))
    elif name == "nodes":  # of six unknowns each
        line = sp.diags_array([1.0, 1.0, 1.0, 1.0], offsets=[-9, -1, 0, 1], shape=(160, 160))
        A = sp.csr_array(sp.kron(line, np.ones((6, 6))))
    else:
        A = sp.csr_array(sp.diags_array([1.0] * 5, offsets=[-31, -1, 0, 1, 31], shape=(997, 997)))
    A.data = random_numbers(rng, A.nnz, dtype) / 3
    return Matrix.from_any(A.astype(dtype))


def plan_of(case: Case) -> Plan:
    _, schedule, variant, partitioner, depth, _, options = case
    return Plan("cuda", schedule, variant, partitioner, 4, depth, options=options)


def name_of(case: Case) -> str:
    options = "-".join(f"{key}={value}" for key, value in case[-1].items())
    return f"{case[1]}-{case[2]}-{case[5]}-{options}"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_plan_is_one_that_can_be_run(case: Case) -> None:
    device = replace(GPU, budget=2**22) if case[1] == "stream" else GPU
    for dtype in ("float32", "float64"):
        matrix = matrix_of(case[0], dtype)
        assert registry.get("cuda", case[1]).feasible(plan_of(case), matrix, device) is None
        if case[1] == "resident" and case[2] != "dia":
            lay_out_resident(matrix, plan_of(case), device)


@pytest.mark.cuda
@pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_named_plan(case: Case, dtype: str) -> None:
    matrix, plan = matrix_of(case[0], dtype), plan_of(case)
    device: Any = cuda_device()
    if case[1] == "stream":
        device = replace(device, budget=2**22)
    reason = registry.get("cuda", case[1]).feasible(plan, matrix, device)
    if dtype.startswith("complex") and reason is not None and "registers" in reason:
        pytest.skip(reason)
    assert reason is None
    rng = np.random.default_rng(case[5])
    x, coefficients = random_numbers(rng, (case[5], matrix.n), dtype), make_coefficients("chebyshev", 4, dtype, rng)
    found = run_twice(plan, matrix, x, coefficients)
    assert reference.reference(matrix, x, coefficients).error_ratio(found) <= 1
