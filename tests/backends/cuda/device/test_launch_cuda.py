"""Launches that only a GPU can refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from akx.backends.cuda.device.facts import cuda_missing

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
    from akx.backends.cuda.device.compile import load
    from akx.backends.cuda.device.facts import cuda_device
    from akx.backends.cuda.device.memory import empty

    source = tmp_path / f"both_{count}.cu"
    source.write_text(_SOURCE)
    kernel = load(source, {}, device=cuda_device()).kernel("sum_both")
    out = empty(1, np.float64)
    kernel.launch(1, 64, [out, np.uint32(count)], shared=8 * count, cooperative=cooperative)
    assert out.get().tolist() == [count + 780.0]


_PAIR = """
typedef unsigned long long u64;
__device__ u64 now() { u64 t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }
extern "C" __global__ void slow(u64 *out, u64 value) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const u64 begin = now();
    while (now() - begin < 3000000) {}  // 3 ms
    out[0] = value;
    out[1] = now();
}
extern "C" __global__ void next(const u64 *before, u64 *out) {
    const u64 begin = now();
    asm volatile("griddepcontrol.wait;" ::: "memory");
    out[0] = before[0];
    out[1] = begin < before[1];
}
"""


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("early", [False, True])
def test_a_kernel_begins_early_and_waits(tmp_path: Path, early: bool, recorded: bool) -> None:
    """What the kernel before it writes is there, and it began before that had ended, where it was to."""
    from akx.backends.cuda.device.compile import load
    from akx.backends.cuda.device.facts import cuda_device
    from akx.backends.cuda.device.launch import capture, default_stream, spare_stream
    from akx.backends.cuda.device.memory import empty

    if cuda_device().compute_capability < (9, 0):
        pytest.skip("no kernel begins early on this device")
    source = tmp_path / "pair.cu"
    source.write_text(_PAIR)
    module = load(source, {}, device=cuda_device())
    slow, following = (module.kernel(name) for name in ("slow", "next"))
    before, found = empty(2, np.uint64), empty(2, np.uint64)

    def queue(stream: Any, value: int) -> None:
        slow.launch(1, 32, [before, np.uint64(value)], stream=stream)
        following.launch(1, 32, [before, found], early=early, stream=stream)

    for value in (7, 8):
        if recorded:
            with spare_stream() as stream, capture(stream) as graph:
                queue(stream, value)
            graph.launch(default_stream())
        else:
            queue(default_stream(), value)
        assert found.get().tolist() == [value, early]
