"""The backend ``cpu``: the processor of the host, kernels by Numba."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from akx.backends.base import Backend
from akx.backends.cpu.vectors.numpy_vectors import NumpyVectors
from akx.backends.vectors import Vectors

if TYPE_CHECKING:
    from akx.backends.host import HostDevice
    from akx.backends.variant import AnyVariant, VariantTraits
    from akx.cost.device_model import Figures

__all__ = ["BACKEND", "CpuBackend"]

#: Bytes of a vector up to which NumPy's operations take less than the call of a compiled job does.
_SHORT = 16 << 10
#: The names in :data:`akx.backends.cpu.variants.VARIANTS`, where Numba is not imported for them.
_VARIANTS = (
    "csr",
    "csr-ahead",
    "csr16",
    "sell",
    "sell16",
    "dia",
    "bell",
    "bell16",
    "inode",
    "inode16",
    "dia-sym",
    "inode-sym",
)


class CpuBackend(Backend):
    """See the module."""

    name = "cpu"
    is_automatic = True
    uses_threads = True
    compiles_first = True
    compilers = ("numba",)
    priced_by_format = True

    def device(self) -> HostDevice:
        from akx.backends.host import host_device

        return host_device()

    def clock_hz(self) -> float | None:
        from akx.backends.cpu.clock import host_clock_hz

        return host_clock_hz()

    def device_similarity(self, one: str, other: str) -> float | None:
        from akx.backends import device_similarity

        return device_similarity.of_hosts(one, other)

    def variants(self) -> Mapping[str, VariantTraits]:
        from akx.backends.cpu.variants import VARIANTS

        return VARIANTS

    def variant_names(self) -> tuple[str, ...]:
        return _VARIANTS

    def variant_type(self) -> type[AnyVariant]:
        from akx.backends.variant import Variant

        return Variant

    def derived_figures(self, device: HostDevice, threads: int) -> Figures:
        from akx.backends.cpu import device_model as rates

        return rates.derived_figures(device, threads)

    def measured_figures(self, device: HostDevice, threads: int) -> Figures:
        from akx.backends.cpu import device_model as rates

        return rates.measured_figures(device, threads)

    def vectors(self, dtype: np.dtype[Any], n: int, threads: int | None) -> Vectors:
        if n * dtype.itemsize <= _SHORT:
            return NumpyVectors(dtype)
        from akx.backends.cpu.vectors.team_vectors import VectorWork

        return VectorWork(dtype, threads)


BACKEND = CpuBackend()
