"""The options of `wavefront` on the CPU: the size of blocks, powers per pass, and how threads share the work."""

from __future__ import annotations

from akx.backends.cpu.cost import has_front
from akx.backends.cpu.search_space import common_parameters, per_pass_choices, without_variants
from akx.backends.cpu.variants import VARIANTS
from akx.backends.host import HostDevice
from akx.backends.schedule import Parameter
from akx.core.matrix import Matrix
from akx.core.options import CpuWavefront

__all__ = ["BLOCK", "space"]

KIB = 1024
#: Bytes of a block to begin with; on the gallery the best are 256 KiB to 1 MiB, and near one another.
BLOCK = 512 * 1024
_BLOCKS = (64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, 1024 * KIB)


def space(matrix: Matrix, device: HostDevice, k: int) -> tuple[Parameter, ...]:
    """The tuning parameters (:meth:`akx.backends.schedule.Schedule.space`)."""
    entry = matrix.nnz * (matrix.dtype.itemsize + 2)
    blocks = tuple(size for size in _BLOCKS if size * 4 <= max(entry, 4 * _BLOCKS[0]))
    default = min(blocks, key=lambda size: abs(size - BLOCK))
    passes = per_pass_choices(k)
    orders = ("natural", "rcm") if has_front(matrix, "natural") else ("rcm", "levels")
    # a front has columns near: there is nothing to ask for ahead
    common = [without_variants(p, lambda v: VARIANTS[v].asks_ahead) for p in common_parameters(matrix, device, orders)]
    parameters = [
        *common,
        Parameter("k_per_pass", passes, passes[-1], "powers done per pass over the matrix"),
        Parameter("block_bytes", blocks, default, "bytes of matrix data per block"),
    ]
    if device.cores > 1 and next(p for p in common if p.name == "threads").choices != (1,):
        parameters.append(
            Parameter("split", ("contiguous", "interleaved"), CpuWavefront.split, "how threads share the blocks")
        )
    return tuple(parameters)
