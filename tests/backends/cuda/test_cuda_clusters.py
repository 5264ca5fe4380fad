"""Clusters of blocks on a GPU: what the contract tests reach only now and then, in all value types."""

from __future__ import annotations

import numpy as np
import pytest
from test_contract import DTYPES, fewer, make_coefficients, make_matrix, random_numbers
from test_cuda import run_twice
from test_cuda_block_local import make

from akx.backends import reference
from akx.backends.cuda.device.facts import cuda_device, cuda_missing
from akx.backends.cuda.schedules.ghost import schedule as ghost
from akx.backends.cuda.variants.block_local.clusters import WITH_CLUSTERS
from akx.core.errors import InfeasibleError
from akx.core.plan import Option, Plan

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing())),
]
#: Pattern, variant, partitioner, powers, powers per pass, start vectors, options. The band is far from symmetric.
CASES: list[tuple[str, str, str, int, int, int, dict[str, Option]]] = [
    ("band", "1x1-1", "natural", 5, 5, 1, {"held_slices": 1, "held_slots": 5}),
    ("band", "1x1-2", "metis", 7, 3, 2, {"waves": 3, "vectors": 2, "block": 256}),
    ("band", "1x1-1", "metis", 6, 2, 5, {"blocks_per_sm": 2, "vectors": 4, "block": 128}),
    ("disconnected", "1x1-1", "natural", 4, 4, 1, {"waves": 2}),
    ("holes", "1x1-1", "natural", 3, 2, 1, {"held_slices": 2, "held_slots": 3, "block": 256}),
    ("brick", "3x3-2", "metis", 4, 2, 2, {"vectors": 2, "block": 256}),
    ("brick", "1x3-1", "natural", 3, 3, 1, {"held_slices": 1, "held_slots": 2, "block": 256}),
    ("shell", "2x6-1", "metis", 2, 2, 3, {"block": 256}),
    ("mixed", "3x3-2", "metis", 4, 2, 2, {"vectors": 2, "block": 256}),
    ("mixed with holes", "2x6-1", "natural", 3, 3, 1, {"held_slices": 1, "held_slots": 1, "block": 256}),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{case[0]}-{case[1]}-{case[2]}" for case in CASES])
@pytest.mark.parametrize("cluster", [2, 4, 8])
@pytest.mark.parametrize("dtype", DTYPES)
def test_clusters_are_right(
    case: tuple[str, str, str, int, int, int, dict[str, Option]], cluster: int, dtype: str
) -> None:
    device = cuda_device()
    if device.compute_capability < WITH_CLUSTERS:
        pytest.skip("this GPU has no clusters")
    kind, variant, partitioner, k, depth, b, options = case
    blocks = kind in ("brick", "shell") or kind.startswith("mixed")
    matrix = make(kind, dtype) if blocks else make_matrix(kind, fewer(30_011), dtype, cluster)
    rng = np.random.default_rng(cluster)
    x, coefficients = random_numbers(rng, (b, matrix.n), dtype), make_coefficients("chebyshev", k, dtype, rng)
    plan = Plan("cuda", "ghost", variant, partitioner, k, depth, options={"cluster": cluster, **options})
    assert ghost.SCHEDULE.feasible(plan, matrix, device) is None
    try:
        out = run_twice(plan, matrix, x, coefficients)
    except InfeasibleError as error:
        pytest.skip(str(error))
    assert reference.reference(matrix, x, coefficients).error_ratio(out) <= 1
