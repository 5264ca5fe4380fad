"""The options of `ghost` on the CPU: how rows are dealt to blocks, their size, and how many steps they do alone."""

from __future__ import annotations

from importlib.util import find_spec

from akx.backends.cpu.search_space import common_parameters, per_pass_choices, without_variants
from akx.backends.cpu.variants import layout_of
from akx.backends.host import HostDevice
from akx.backends.schedule import Parameter
from akx.core.matrix import Matrix

__all__ = ["space"]

KIB = 1024
_BLOCKS = (64 * KIB, 256 * KIB, 1024 * KIB)
#: Up to so many entries the tuner tries hypergraph partitions: at 20 us an entry for 50 parts (METIS takes 0.1 us) they
#: take seconds there, and minutes on millions. A plan that is given may have one on any matrix.
_HYPERGRAPH_MOST = 150_000


def space(matrix: Matrix, device: HostDevice, k: int) -> tuple[Parameter, ...]:
    """The tuning parameters (:meth:`akx.backends.schedule.Schedule.space`)."""
    once = matrix.nnz * (matrix.dtype.itemsize + 2)
    blocks = tuple(size for size in _BLOCKS if size <= max(once, _BLOCKS[0]))
    passes = per_pass_choices(k)
    orders: tuple[str, ...] = ("natural",)
    if matrix.nnz > _BLOCKS[0]:
        small = matrix.nnz <= _HYPERGRAPH_MOST
        orders = ("natural", "metis", "hypergraph") if small and find_spec("mtkahypar") else ("natural", "metis")
    common = [p for p in common_parameters(matrix, device, orders) if p.name != "sigma"]
    parameters = [without_variants(p, lambda v: layout_of(v).reason_against_zones) for p in common]
    return (
        *parameters,
        Parameter("k_per_pass", passes, passes[0], "powers done per pass over the matrix"),
        Parameter("block_bytes", blocks, blocks[-1], "bytes of matrix data per block, ghosts not counted"),
    )
