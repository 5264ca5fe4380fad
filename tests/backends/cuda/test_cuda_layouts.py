"""The layouts of the GPU's `sweep`, interpreted step by step on the CPU as the kernels read them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_contract import KINDS, make_coefficients, make_matrix, random_numbers

from akx.backends import reference, registry
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.schedules.sweep.layout import lay_out, macros
from akx.backends.cuda.schedules.sweep.options import VARIANTS
from akx.backends.cuda.schedules.sweep.schedule import Sweep
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.formats.pcsr import PARTITION

H100 = CudaDevice("H100", 0, (9, 0), 132, 232448, 233472, 65536, 50 << 20, 80 << 30, 1980000000, 3.35e12)


def product(plan: Plan, matrix: Matrix, x: Any) -> Any:
    """A x from the arrays of the plan's layout, thread by thread as the kernels have it."""
    layout = lay_out(matrix, plan)
    layout.fill(matrix.data)
    m, y = layout.arrays, np.full(matrix.n, np.nan, dtype=matrix.dtype)
    if plan.variant.startswith("sell"):
        lanes = int(plan.variant.split("-")[1])
        for place in range(matrix.n):
            piece, total = place // 32, 0
            for lane in range(lanes):
                at = np.arange(int(m.start[piece]) + lane * 32 + place % 32, int(m.start[piece + 1]), 32 * lanes)
                total = total + (m.values[at] * x[int(m.base[piece]) + m.column[at].astype(np.int64)]).sum()
            y[m.row[place] if m.row.size else place] = total
        return y
    if plan.variant == "rows16":
        assert not np.any(m.start % 16)
        for i in range(matrix.n):
            at = slice(m.start[i], m.start[i + 1])
            y[i] = (m.values[at] * x[m.column[at]]).sum()
        return y
    return pcsr_product(m, plan.typed.pad, matrix, x, y)


def pcsr_product(m: Any, pad: int, matrix: Matrix, x: Any, y: Any) -> Any:
    partitions = m.row.size - 1
    head, tail = (np.full(partitions, np.nan, dtype=matrix.dtype) for _ in range(2))
    for part in range(partitions):
        base = part * PARTITION
        at = slice(base, base + PARTITION)
        sums = (m.values[at] * x[m.column[at]]).reshape(-1, pad).sum(axis=1)
        for thread in range(PARTITION):
            own = int(m.row[part]) + thread
            if own >= matrix.n or m.start[own] >= base + PARTITION:
                continue
            begins, ends = int(m.start[own]), int(m.start[own + 1])
            left, right = max(begins - base, 0) // pad, min(ends - base, PARTITION) // pad
            total = sums[left:right].sum()
            if begins < base:
                head[part] = total
            elif ends > base + PARTITION:
                tail[part] = total
            else:
                y[own] = total
    for row, begin, end in zip(m.split, m.begin, m.end, strict=True):
        y[row] = tail[begin] + head[begin + 1 : end + 1].sum()
    return y


def plans(matrix: Matrix) -> list[Plan]:
    apart = ("csr", "vbell", "pcsr", "hubs")  # pcsr is below, vbell is in test_nodes.py, hubs in test_cuda_hubs.py
    made = [Plan("cuda", "sweep", v) for v in VARIANTS if not v.startswith(apart)]
    made += [Plan("cuda", "sweep", v, options={"sigma": 1024}) for v in VARIANTS if v.startswith("sell")]
    made += [Plan("cuda", "sweep", "pcsr", options={"pad": pad}) for pad in (1, 2, 4, 8)]
    return [plan for plan in made if Sweep().feasible(plan, matrix, H100) is None]


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("kind", KINDS)
def test_layouts_give_the_product(kind: str, dtype: str) -> None:
    for n in (1, 37, 700):
        matrix = make_matrix(kind, n, dtype, 1)
        rng = np.random.default_rng(2)
        x = random_numbers(rng, (1, n), dtype)
        truth = reference.reference(matrix, x, make_coefficients("monomial", 1, dtype, rng))
        for plan in plans(matrix):
            y = product(plan, matrix, x[0])
            assert truth.error_ratio(np.stack([x[0], y])[:, None]) <= 1, plan.label()


def test_a_row_longer_than_partitions_is_put_together() -> None:
    matrix = make_matrix("dense row", 1500, "float64", 0)
    x = np.random.default_rng(1).standard_normal(1500)
    for pad in (1, 8):
        plan = Plan("cuda", "sweep", "pcsr", options={"pad": pad})
        arrays = lay_out(matrix, plan).arrays
        assert np.any(arrays.end - arrays.begin >= 2)
        np.testing.assert_allclose(product(plan, matrix, x), matrix.to_scipy() @ x, rtol=1e-12, atol=1e-12)


def test_space_and_reasons() -> None:
    sweep, matrix = registry.get("cuda", "sweep"), make_matrix("band", 5000, "float64", 0)
    parameters = {p.name: p for p in sweep.space(matrix, H100, 4)}
    default = Plan.from_parameters("cuda", "sweep", 4, {name: p.default for name, p in parameters.items()})
    assert sweep.feasible(default, matrix, H100) is None
    traffic = sweep.traffic(default, matrix, H100)
    assert traffic.matrix_bytes >= matrix.nnz * 10
    assert traffic.flops == 8 * matrix.nnz
    for bad in (
        default.replace(backend="cpu"),
        default.replace(variant="csr-3"),
        default.replace(partitioner="rcm"),
        default.replace(options={"block": 100}),
        default.replace(variant="csr-2", options={"sigma": 1024}),
        default.replace(options={"pad": 8}),
        default.replace(variant="pcsr", options={"block": 128}),
    ):
        assert sweep.feasible(bad, matrix, H100)
    far = make_matrix("random", 90_000, "float64", 0)
    assert "65,535" in (sweep.feasible(Plan("cuda", "sweep", "sell16-1", options={"sigma": 1024}), far, H100) or "")
    assert macros(default.replace(variant="sell16-2"), matrix.dtype, 3)["AKX_INDEX"] == "u16"
