"""The program of `wavefront`: one cooperative launch for each pass and start vector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.launch import Kernel
from akx.backends.cuda.device.memory import DeviceArray, to_device
from akx.backends.cuda.program import C_TYPES
from akx.backends.cuda.schedules.wavefront.layout import LINE, RING, WARP, Front, asks_of
from akx.backends.cuda.value_compression.encodings import way_of
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
        "AKX_NEAR": front.near_slots // front.slices if front.runs else int(front.near_slots > 0),
        "AKX_SLACK": front.slack,
        "AKX_RUNS": front.runs.code if front.runs else 0,
        "AKX_OWN": front.runs.own if front.runs else -1,
    }


class WavefrontProgram(StoredProgram):
    """A matrix laid out for a front, on the GPU.

    Values are placed there; `by_host`: by the host, which takes less memory of the device.
    """

    def __init__(self, matrix: Matrix, front: Front, plan: Plan, *, by_host: bool = False) -> None:
        super().__init__(matrix.n, plan.k, matrix.dtype)
        self._front = front
        self._warps, self._helpers = plan.typed.block // WARP, plan.typed.helpers
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
        self.store_values(matrix, way_of(plan), None, front.values, front.entry)
        self._total = front.steps(most) + 1
        self.kernels: dict[int, Kernel] = {}

    def ready(self, vectors: int) -> None:
        for powers in dict.fromkeys(self._passes):
            if powers not in self.kernels:
                self.kernels[powers] = self._kernel(powers, self._stored)

    def _kernel(self, powers: int, stored: np.dtype[Any]) -> Kernel:
        given = macros(self._front, self.dtype, stored, powers, self._warps, self._helpers)
        return load(_SOURCE, given, device=cuda_device()).kernel("steps")

    def kernels_in_full(self) -> dict[int, Kernel]:
        """The layout has room for full values, registers may be too few."""
        return {powers: self._kernel(powers, self.dtype) for powers in dict.fromkeys(self._passes)}

    def enqueue(self, x: DeviceArray, out: DeviceArray, coefficients: DeviceArray) -> None:
        vectors, front, strips, size = x.shape[0], self._front, self._front.strips, self.dtype.itemsize
        of_layout = [strips.blocks, strips.parts, strips.ahead, front.slack, front.ring, front.stride, front.fetched]
        of_layout += [front.published, front.words, front.near_slots]
        arrays: list[Any] = [
            self._meta,
            self._values,
            self._near_columns,
            self._nodes,
            self._halo,
            self._readers,
            self._bases,
        ]
        arrays += [coefficients, self._table, np.uint32(self._tabled), self._published, self._beats, self._epochs]
        for v in range(vectors):
            own, made = x.view(v * self.n, (self.n,)), out.view(v * self.n, (out.size - v * self.n,))
            done = 0
            for powers in self._passes:
                sizes = [*of_layout, front.nears(powers), front.lists, front.halos(powers)]
                sizes += [front.readers.shape[1], powers]
                ends: list[Any] = [np.int64(vectors * self.n), np.uint32(done), np.uint32(self._total)]
                self.kernels[powers].launch(
                    strips.parts,
                    WARP * self._warps + self._helpers,
                    [*map(np.uint32, sizes), *arrays, own, made, *ends],
                    shared=front.shared(powers, size, self._stored.itemsize, self._tabled * size),
                    cooperative=True,
                    stream=self.stream,
                )
                done += powers
