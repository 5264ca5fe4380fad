"""The program of `wavefront`: one cooperative launch for each pass and start vector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.launch import Kernel
from akx.backends.cuda.device.memory import DeviceArray, to_device
from akx.backends.cuda.program import C_TYPES
from akx.backends.cuda.schedules.wavefront.layout import LINE, RING, WARP, Front, asks_of
from akx.backends.cuda.schedules.wavefront.strips import helpers_of, warps_of
from akx.backends.cuda.value_compression.encodings import FULL, values_of, way_of
from akx.backends.cuda.value_compression.new_values import not_empty
from akx.backends.cuda.value_compression.program import StoredProgram
from akx.core.matrix import Matrix
from akx.core.plan import Plan

__all__ = ["WavefrontProgram", "macros"]

_SOURCE = Path(__file__).with_name("wavefront.cu")


def macros(
    front: Front, dtype: np.dtype[Any], stored: np.dtype[Any], powers: int, warps: int, helpers: int
) -> dict[str, int | str]:
    """The macros of the kernel."""
    return {
        "AKX_VALUE": C_TYPES[dtype.name],
        "AKX_STORED": "u16" if stored == np.uint16 else C_TYPES[stored.name],
        "AKX_LANES": front.lanes,
        "AKX_LAG": front.lag,
        "AKX_PER": front.slices_per_step(powers, warps),
        "AKX_HELD_SLOTS": front.held_slots,
        "AKX_SLICES": front.slices,
        "AKX_WARPS": warps,
        "AKX_HELPERS": helpers,
        "AKX_ASKS": max(1, asks_of(powers, front.fetched, helpers)),
        "AKX_XS": -(-front.stride // WARP),
        "AKX_NEAR": int(front.near_slots > 0),
        "AKX_SLACK": front.slack,
    }


class WavefrontProgram(StoredProgram):
    """A matrix laid out for a front, on the GPU.

    Values are placed there; `by_host`: by the host, which takes less memory of the device.
    """

    def __init__(self, matrix: Matrix, front: Front, plan: Plan, *, by_host: bool = False) -> None:
        super().__init__(matrix.n, plan.k, matrix.dtype)
        self._front = front
        self._warps, self._helpers = warps_of(plan), helpers_of(plan)
        self._passes = [min(plan.k_per_pass, plan.k - done) for done in range(0, plan.k, plan.k_per_pass)]
        self._meta, self._nodes, self._halo, self._readers, self._bases = (
            self.hold(array) for array in (front.meta, front.nodes, front.halo, front.readers, front.bases)
        )
        self._near_columns = self.hold(not_empty(front.near_columns))
        words = self.dtype.itemsize // 4
        most = max(self._passes)
        self._published = self.hold(np.zeros(max(most - 1, 1) * RING * front.published * words, dtype=np.uint64))
        self._beats = self.hold(np.zeros(LINE * front.strips.parts, dtype=np.uint32))
        self._epochs = self.hold(np.ones(front.strips.parts, dtype=np.uint32))
        self.entry = None if by_host else to_device(front.entry)
        values = values_of(matrix)
        self.store_values(way_of(plan), values, front.values, front.entry, value_error=matrix.value_error)
        self._total = front.steps(most) + 1
        self._kernels: dict[int, Kernel] = {}

    def ready(self, vectors: int) -> None:
        for powers in dict.fromkeys(self._passes):
            if powers not in self._kernels:
                self._kernels[powers] = self._kernel(powers, self._stored)

    def _kernel(self, powers: int, stored: np.dtype[Any]) -> Kernel:
        given = macros(self._front, self.dtype, stored, powers, self._warps, self._helpers)
        return load(_SOURCE, given, device=cuda_device()).kernel("steps")

    def store_in_full(self, data: NDArray[Any]) -> None:
        """Store these and all later values in full: the layout has room for that, registers may be too few."""
        values = to_device(not_empty(self._front.values(data)))
        kernels = {powers: self._kernel(powers, self.dtype) for powers in dict.fromkeys(self._passes)}
        self.forget_graphs()  # they have the kernels, and where the old values are
        self._arrays = [held for held in self._arrays if held is not self._values]
        self._values, self._kernels = self.held(values), kernels
        self._way, self._stored, self._tabled = FULL, self.dtype, 0

    @property
    def kernels(self) -> dict[int, Kernel]:
        """The kernels made so far, by the powers of a pass."""
        return self._kernels

    def enqueue(self, x: DeviceArray, out: DeviceArray, coefficients: DeviceArray) -> None:
        vectors, front = x.shape[0], self._front
        for v in range(vectors):
            done = 0
            for powers in self._passes:
                sizes = [
                    front.strips.blocks,
                    front.strips.parts,
                    front.strips.ahead,
                    front.slack,
                    front.ring,
                    front.stride,
                    front.fetched,
                    front.published,
                    front.words,
                    front.near_slots,
                    front.nears(powers),
                    front.lists,
                    front.halos(powers),
                    front.readers.shape[1],
                    powers,
                ]
                self._kernels[powers].launch(
                    front.strips.parts,
                    32 * self._warps + self._helpers,
                    [
                        *(np.uint32(size) for size in sizes),
                        self._meta,
                        self._values,
                        self._near_columns,
                        self._nodes,
                        self._halo,
                        self._readers,
                        self._bases,
                        coefficients,
                        self._table,
                        np.uint32(self._tabled),
                        self._published,
                        self._beats,
                        self._epochs,
                        x.view(v * self.n, (self.n,)),
                        out.view(v * self.n, (out.size - v * self.n,)),
                        np.int64(vectors * self.n),
                        np.uint32(done),
                        np.uint32(self._total),
                    ],
                    shared=front.shared(
                        powers, self.dtype.itemsize, self._stored.itemsize, self._tabled * self.dtype.itemsize
                    ),
                    cooperative=True,
                    stream=self.stream,
                )
                done += powers
