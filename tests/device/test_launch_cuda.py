"""Launches that only a GPU can refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from akx.device.cuda.facts import cuda_missing

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing())),
]

_SOURCE = """
extern "C" __global__ void sum_both(double *out, unsigned count) {
    extern __shared__ double given[];
    __shared__ double own[40];
    if (threadIdx.x < 40) own[threadIdx.x] = threadIdx.x;
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x) given[i] = 1.0;
    __syncthreads();
    if (threadIdx.x != 0) return;
    double sum = 0.0;
    for (unsigned i = 0; i < count; ++i) sum += given[i];
    for (unsigned i = 0; i < 40; ++i) sum += own[i];
    *out = sum;
}
"""


@pytest.mark.parametrize("cooperative", [False, True])
@pytest.mark.parametrize("count", [6000, 6104, 6105, 6143, 6144, 6145, 7000])
def test_shared_memory_of_both_kinds(tmp_path: Path, count: int, cooperative: bool) -> None:
    """Static and dynamic shared memory together may pass 48 KiB where the dynamic one alone does not."""
    from akx.device.cuda.compile import load
    from akx.device.cuda.facts import cuda_device
    from akx.device.cuda.memory import empty

    source = tmp_path / f"both_{count}.cu"
    source.write_text(_SOURCE)
    kernel = load(source, {}, device=cuda_device()).kernel("sum_both")
    out = empty(1, np.float64)
    kernel.launch(1, 64, [out, np.uint32(count)], shared=8 * count, cooperative=cooperative)
    assert out.get().tolist() == [count + 780.0]
