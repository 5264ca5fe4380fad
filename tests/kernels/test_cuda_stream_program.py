"""The program of `stream` without a GPU: what it queues, done at once, with the kernel in NumPy and real addresses.

The order in which work is queued is one of the orders in which streams may do it, so the result must be right.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_contract import make_coefficients, make_matrix, random_numbers
from test_cuda_stream import GPU, plan_of, product

from akx.device.cuda.memory import DeviceArray
from akx.kernels import reference
from akx.kernels.cuda import stream, stream_program
from akx.kernels.cuda.window import Window


def at(address: int, count: int, dtype: Any) -> Any:
    octets = (ctypes.c_byte * (count * np.dtype(dtype).itemsize)).from_address(address)
    return np.frombuffer(octets, dtype)


def host(shape: Any, dtype: Any) -> Any:
    found = np.zeros(shape, dtype)
    found.view(np.uint8)[...] = 255  # NaN in every float
    return found


class Held(DeviceArray):
    """An array of the host that takes itself for one of the device."""

    def __init__(self, shape: Any, dtype: Any) -> None:
        self.memory = host(shape, dtype)
        super().__init__(self.memory.ctypes.data, self.memory.shape, dtype, self.memory)

    def set(self, values: Any) -> None:
        self.memory[...] = values


def launch(dtype: Any, bits: int, vectors: int, grid: int, arguments: list[Any]) -> None:
    """One step, as the kernel does it."""
    numbers = [a.pointer if isinstance(a, DeviceArray) else int(a) for a in arguments]
    slots, slot_bytes, count, header, rows, lag, n, t, first, per, before, x, y, stride, ring, older = numbers[:16]
    host_x, host_before, back, back_power, back_vector, coefficients = numbers[16:]
    size = np.dtype(dtype).itemsize
    window = Window(n, rows, 0, lag, 0, count, slot_bytes, ring, vectors, size)
    assert window.header == header
    for power in range(first, first + grid // per):
        begin = t * rows - power * lag
        own = np.arange(max(0, begin), min(n, begin + rows))
        later = (power - 1) * stride * size
        if power == 0:
            at(x, vectors * ring, dtype).reshape(vectors, ring)[:, own % ring] = at(host_x, vectors * n, dtype).reshape(
                vectors, n
            )[:, own]
            if older:
                held = at(before, vectors * ring, dtype).reshape(vectors, ring)
                held[:, own % ring] = at(host_before, vectors * n, dtype).reshape(vectors, n)[:, own]
            continue
        vector, result = (at(p + later, vectors * ring, dtype).reshape(vectors, ring) for p in (x, y))
        low = int(own[0]) // rows
        parts = [
            product(window, at(slots + c % count * slot_bytes, slot_bytes, np.uint8), vector, bits, dtype)
            for c in range(low, int(own[-1]) // rows + 1)
        ]
        a, b, c = at(coefficients + 3 * (power - 1) * size, 3, dtype)
        value = a * np.concatenate(parts, axis=1)[:, own - low * rows] + b * vector[:, own % ring]
        if c != 0 and (power > 1 or older):
            value = value + c * at(before + later, vectors * ring, dtype).reshape(vectors, ring)[:, own % ring]
        result[:, own % ring] = value
        for v in range(vectors):
            to = back + (power * back_power + v * back_vector + int(own[0]) - begin) * size
            at(to, own.size, dtype)[:] = value[v]


def bring_rows(address: int, pitch: int, pointer: int, device_pitch: int, width: int, height: int, _: Any) -> None:
    assert height == 1 or (pitch >= width and device_pitch >= width)
    for row in range(height):
        ctypes.memmove(address + row * pitch, pointer + row * device_pitch, width)


@pytest.mark.parametrize("back", stream.BACK)
@pytest.mark.parametrize(("depth", "rows", "b"), [(5, 96, 2), (2, 64, 1), (3, 160, 2), (5, 3200, 1)])
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_the_program(monkeypatch: Any, dtype: str, depth: int, rows: int, b: int, back: str) -> None:
    @contextlib.contextmanager
    def capture(_: Any) -> Iterator[Any]:
        yield SimpleNamespace(launch=lambda _: None)

    def mark(_: Any) -> Any:
        return SimpleNamespace(holds=lambda _: None)

    def kernel(kind: Any, variant: str, vectors: int, _: Any) -> Any:
        bits = stream_program.kind_of(variant)[0]
        return SimpleNamespace(
            launch=lambda grid, block, arguments, stream: launch(kind, bits, vectors, grid, arguments)
        )

    fakes = {
        "empty": Held,
        "pinned": host,
        "capture": capture,
        "Mark": mark,
        "Stream": lambda blocking: None,
        "send": lambda pointer, address, nbytes, _: ctypes.memmove(pointer, address, nbytes),
        "bring_rows": bring_rows,
        "step_kernel": kernel,
        "default_stream": lambda: SimpleNamespace(synchronize=lambda: None),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(stream_program, name, fake)
    monkeypatch.setattr(stream, "cuda_device", lambda: GPU)
    matrix = make_matrix("band", 2011, dtype, 1)
    rng = np.random.default_rng(depth)
    coefficients = make_coefficients("chebyshev", 5, dtype, rng)
    x = random_numbers(rng, (b, matrix.n), dtype)
    options = {"budget": 2**24, "rows": rows, "vectors": b, "back": back}
    program = stream.SCHEDULE.prepare(matrix, plan_of(matrix, 5, "sell16-2", depth, **options))
    out = np.full((6, b, matrix.n), np.nan, dtype)
    program.run(x, out, coefficients)
    assert reference.error_ratio(matrix, out, x, coefficients) <= 1
