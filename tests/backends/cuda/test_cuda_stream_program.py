"""The program of `stream` without a GPU: what it records, done in that order, with the kernel in NumPy, real addresses.

The order in which work is recorded is one of the orders in which streams may do it, so the result must be right. What
the processor has a share of it does itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from nightly import mostly_nightly
from test_contract import make_coefficients, make_matrix, random_numbers
from test_cuda_stream import GPU, plan_of, product

from akx.backends import reference
from akx.backends.cuda.device.memory import DeviceArray
from akx.backends.cuda.schedules.stream import layout as stream_program_layout
from akx.backends.cuda.schedules.stream import options as stream_space
from akx.backends.cuda.schedules.stream import program as stream_program
from akx.backends.cuda.schedules.stream import rows as stream_rows
from akx.backends.cuda.schedules.stream import schedule as stream
from akx.backends.cuda.schedules.stream import steps
from akx.backends.cuda.schedules.stream.layout import Window, pack
from akx.backends.schedule import held_bytes
from akx.core.errors import DeviceMemoryError


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

    def fill_bytes(self, value: int, stream: Any = None) -> None:
        self.memory.view(np.uint8)[...] = value


def to_device(values: Any) -> Held:
    made = Held(values.shape, values.dtype)
    made.set(values)
    return made


def powers_of(
    dtype: Any, bits: int, vectors: int, window: Window, ring: list[int], t: int, low: int, high: int, coefficients: int
) -> Iterator[tuple[int, Any, Any]]:
    """Powers low .. high of a step from what is on the device: each with its rows and their values."""
    slots, before, x, y, stride, older = ring
    size, rows = np.dtype(dtype).itemsize, window.rows
    for power in range(max(1, low), high + 1):
        begin = t * rows - power * window.lag
        own = np.arange(max(0, begin), min(window.n, begin + rows))
        later = (power - 1) * stride * size
        vector, result = (at(p + later, vectors * window.ring, dtype).reshape(vectors, window.ring) for p in (x, y))
        low = int(own[0]) // rows
        parts = [
            product(
                window,
                at(slots + window.slot(c) * window.slot_bytes, window.slot_bytes, np.uint8),
                vector,
                bits,
                dtype,
            )
            for c in range(low, int(own[-1]) // rows + 1)
        ]
        a, b, c = at(coefficients + 3 * (power - 1) * size, 3, dtype)
        value = a * np.concatenate(parts, axis=1)[:, own - low * rows] + b * vector[:, own % window.ring]
        if c != 0 and (power > 1 or older):
            value = (
                value
                + c
                * at(before + later, vectors * window.ring, dtype).reshape(vectors, window.ring)[:, own % window.ring]
            )
        yield power, own, value
        result[:, own % window.ring] = value


def numbers_of(arguments: list[Any]) -> list[int]:
    return [a.pointer if isinstance(a, DeviceArray) else int(a) for a in arguments]


def launch(dtype: Any, bits: int, vectors: int, grid: int, arguments: list[Any]) -> None:
    """One step, as the kernel does it."""
    numbers = numbers_of(arguments)
    slots, slot_bytes, count, kept, header, rows, lag, n, before, x, y, stride, ring, older, coefficients = numbers[:15]
    t, first, per, host_x, host_before, pitch, back, back_power, back_vector = numbers[15:]
    size = np.dtype(dtype).itemsize
    window = Window(n, rows, 0, lag, 0, count, slot_bytes, ring, vectors, size, kept=kept)
    assert window.header == header
    assert pitch == window.pitch
    last = first + grid // per - 1
    if first == 0:
        own = np.arange(t * rows, min(n, (t + 1) * rows))
        sources = [(x, host_x)] + [(before, host_before)] * older
        for ring_of, source in sources:
            held = at(source, vectors * pitch, dtype).reshape(vectors, pitch)
            at(ring_of, vectors * ring, dtype).reshape(vectors, ring)[:, own % ring] = held[:, own]
    done = list(
        powers_of(dtype, bits, vectors, window, [slots, before, x, y, stride, older], t, first, last, coefficients)
    )
    for power, own, value in done:
        for v in range(vectors):
            to = back + (power * back_power + v * back_vector + int(own[0]) - (t * rows - power * lag)) * size
            at(to, own.size, dtype)[:] = value[v]


def flow(dtype: Any, bits: int, vectors: int, early: bool, arguments: list[Any]) -> None:
    """One pass, as the kernel does it. Movers bring as early and take away as late as they may, or the other way."""
    numbers = numbers_of(arguments)
    slots, slot_bytes, count, kept, header, rows, lag, n, before, x, y, stride, ring, older, coefficients = numbers[:15]
    chunks, begin, chunk_count, staged, host_x, host_before, out, pitch, depth, steps = numbers[15:25]
    ahead, slack, sends, into, away, split, rise = numbers[25:32]
    assert numbers[34] == 0  # half chunks are for the kernel itself, in test_cuda_stream_triangle.py
    size = np.dtype(dtype).itemsize
    window = Window(n, rows, chunk_count, lag, depth, count, slot_bytes, ring, vectors, size, kept=kept)
    assert window.header == header
    assert pitch >= window.pitch
    assert (pitch == window.pitch and split == n) or split + depth * rise <= n
    assert steps == window.steps(depth)
    assert into % ahead == 0
    assert slack >= 1  # a step that waits for its own results waits for ever
    assert away % 2 == 0
    begins = at(begin, chunk_count + 1, np.int64)
    brought = taken = 0

    def bring(t: int) -> None:
        width = max(0, min(rows, window.pitch - t * rows))
        for number, source in enumerate([host_x] + [host_before] * older):
            for v in range(vectors):
                to = staged + ((t % (ahead + 1) * 2 * vectors) + number * vectors + v) * rows * size
                ctypes.memmove(to, source + (v * pitch + t * rows) * size, width * size) if width else None
        chunk = t - lag // rows
        if 0 <= chunk < chunk_count and (sends or chunk >= kept):
            length = int(begins[chunk + 1] - begins[chunk])
            ctypes.memmove(slots + window.slot(chunk) * slot_bytes, chunks + int(begins[chunk]), length)

    def take(t: int) -> None:
        low, high = window.powers(t, depth)
        for power in range(max(1, low), high + 1):
            end = min(n, split + power * rise, t * rows - power * lag + rows)
            own = np.arange(max(0, t * rows - power * lag), end)
            held = at(y + (power - 1) * stride * size, vectors * ring, dtype).reshape(vectors, ring)
            to = at(out + power * vectors * pitch * size, vectors * pitch, dtype).reshape(vectors, pitch)
            to[:, own] = held[:, own % ring]

    for t in range(steps):
        while brought < steps and brought <= (t + ahead if early else t):
            bring(brought)
            brought += 1
        while taken < t and (not early or taken <= t - slack):
            take(taken)
            taken += 1
        low, high = window.powers(t, depth)
        if low == 0:
            own = np.arange(t * rows, min(n, (t + 1) * rows))
            for number, ring_of in enumerate([x] + [before] * older):
                from_ = staged + ((t % (ahead + 1) * 2) + number) * vectors * rows * size
                held = at(from_, vectors * rows, dtype).reshape(vectors, rows)
                at(ring_of, vectors * ring, dtype).reshape(vectors, ring)[:, own % ring] = held[:, : own.size]
        list(powers_of(dtype, bits, vectors, window, [slots, before, x, y, stride, older], t, low, high, coefficients))
    while taken < steps:
        take(taken)
        taken += 1


def bring_rows(address: int, pitch: int, pointer: int, device_pitch: int, width: int, height: int, _: Any) -> None:
    assert height == 1 or (pitch >= width and device_pitch >= width)
    for row in range(height):
        ctypes.memmove(address + row * pitch, pointer + row * device_pitch, width)


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Graphs are what was recorded, done when they are launched; `early` is the parameter of the fixture."""
    recorded: list[list[Any]] = []

    @contextlib.contextmanager
    def capture(_: Any) -> Iterator[Any]:
        work: list[Any] = []
        recorded.append(work)
        yield SimpleNamespace(launch=lambda _: [one() for one in work])
        recorded.pop()

    def queued(do: Any) -> Any:
        def later(*arguments: Any, **_: Any) -> None:
            recorded[-1].append(lambda: do(*arguments))

        return later

    def kernel(name: str, _threads: int, kind: Any, variant: str, vectors: int, _device: Any) -> Any:
        bits = stream_program_layout.kind_of(variant)[0]

        def run(grid: int, _block: int, arguments: list[Any]) -> None:
            if name == "flow":
                flow(kind, bits, vectors, request.param, arguments)
            else:
                launch(kind, bits, vectors, grid, arguments)

        return SimpleNamespace(launch=queued(run))

    fakes = {
        "empty": Held,
        "pinned": host,
        "capture": capture,
        "Mark": lambda _: SimpleNamespace(holds=lambda _: None),
        "spare_stream": lambda: contextlib.nullcontext(None),
        "send": queued(lambda pointer, address, nbytes, _: ctypes.memmove(pointer, address, nbytes)),
        "bring_rows": queued(bring_rows),
        "to_device": to_device,
        "_kernel": kernel,
        "default_stream": lambda: SimpleNamespace(synchronize=lambda: None),
    }
    for name, fake in fakes.items():
        for module in (stream_program, steps):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, fake)
    monkeypatch.setattr(stream, "cuda_device", lambda: GPU)


@pytest.mark.parametrize("pretended", [True, False], ids=["early", "late"], indirect=True)
@pytest.mark.parametrize(
    ("move", "share"), mostly_nightly([*((move, 0.0) for move in stream_space.MOVE), ("kernel", 0.4)])
)
@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.usefixtures("pretended")
def test_calls_one_after_another(stays: bool, move: str, share: float) -> None:
    """With other vectors, other coefficients and other values; what stays is sent once for each of these."""
    matrix, rng = make_matrix("band", 3011, "float64", 2), np.random.default_rng(0)
    for depth, budget in ((6, 2**24), (4, 400_000), (1, 400_000), (2, 250_000)):
        options = {"budget": budget, "rows": 96, "move": move, "share": share, "stays": stays, "ahead": 1}
        plan = plan_of(matrix, 6, "sell16-2", depth, **options)
        assert stream.SCHEDULE.feasible(plan, matrix, GPU) is None
        program: Any = stream.SCHEDULE.prepare(matrix, plan)
        assert (program.window.kept > 0) == stays
        values = matrix
        for turn in range(5):
            if turn == 3:
                values = matrix.with_values(random_numbers(rng, matrix.nnz, "float64"))
                program.update_values(values.data)
            coefficients = make_coefficients(("chebyshev", "newton")[turn % 2], 6, "float64", rng)
            x = random_numbers(rng, (2, matrix.n), "float64")
            out = np.full((7, 2, matrix.n), np.nan)
            program._pinned[:] = np.nan
            program.run(x, out, coefficients)
            assert reference.error_ratio(values, out, x, coefficients) <= 1, (plan.label(), turn)
        if stays:  # nobody looks at what is on the device already
            begin = program._chunks.begin
            program._chunks.data[: int(begin[program.window.kept])] = 255
            again = np.full((7, 2, matrix.n), np.nan)
            program.run(x, again, coefficients)
            assert again.tobytes() == out.tobytes()


@pytest.mark.parametrize("pretended", [True], ids=["early"], indirect=True)
@pytest.mark.usefixtures("pretended")
def test_a_call_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, rng = make_matrix("band", 3011, "float64", 2), np.random.default_rng(0)
    program: Any = stream.SCHEDULE.prepare(matrix, plan_of(matrix, 4, budget=2**24, share=0.3))
    coefficients, x = make_coefficients("chebyshev", 4, "float64", rng), random_numbers(rng, (1, matrix.n), "float64")
    waited = []
    monkeypatch.setattr(stream_program, "default_stream", lambda: SimpleNamespace(synchronize=lambda: waited.append(1)))

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    out = np.empty((5, 1, matrix.n))
    with monkeypatch.context() as patch:
        patch.setattr(type(program._beside), "run", fail)
        with pytest.raises(KeyboardInterrupt):
            program.run(x, out, coefficients)
    assert waited == [1, 1]  # before the pass, and after it has failed
    program.run(x, out, coefficients)
    assert reference.error_ratio(matrix, out, x, coefficients) <= 1


@pytest.mark.parametrize("pretended", [True], ids=["early"], indirect=True)
@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("short", ["_slots", "_rings", "_counters"])
@pytest.mark.usefixtures("pretended")
def test_nothing_stays_where_others_have_the_memory(monkeypatch: pytest.MonkeyPatch, short: str, share: float) -> None:
    """Whichever array there is no room for: what was made before it is given back, and the matrix is packed once."""
    matrix = make_matrix("band", 12_011, "float64", 2)
    plan = plan_of(matrix, 4, budget=2**24, share=share, rows=96, ahead=1)
    planned: Any = stream.SCHEDULE.prepare(matrix, plan)
    names = ("_slots", "_rings", "_staged", "_coefficients", "_staged_x", "_counters")
    sizes = [getattr(planned, name).nbytes for name in names]
    room = sum(sizes[: names.index(short) + 1]) - 1
    held: weakref.WeakSet[Any] = weakref.WeakSet()
    packed = []

    def empty(shape: Any, dtype: Any) -> Any:
        made = Held(shape, dtype)
        if sum(one.nbytes for one in held) + made.nbytes > room:
            raise DeviceMemoryError("no room")
        held.add(made)
        return made

    monkeypatch.setattr(stream_program, "empty", empty)
    monkeypatch.setattr(stream_program, "pack", lambda *given: packed.append(1) or pack(*given))
    program: Any = stream.SCHEDULE.prepare(matrix, plan)
    assert planned.is_as_planned
    assert planned.window.kept > 0
    assert not program.is_as_planned
    assert program.window.kept == 0
    assert packed == [1]
    rng = np.random.default_rng(0)
    coefficients, x = make_coefficients("chebyshev", 4, "float64", rng), random_numbers(rng, (1, matrix.n), "float64")
    out = np.full((5, 1, matrix.n), np.nan)
    program.run(x, out, coefficients)
    assert reference.error_ratio(matrix, out, x, coefficients) <= 1


@pytest.mark.parametrize("pretended", [True], ids=["early"], indirect=True)
@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.usefixtures("pretended")
def test_values_that_are_narrower_or_too_few(share: float) -> None:
    matrix, rng = make_matrix("band", 3011, "float64", 2), np.random.default_rng(0)
    program: Any = stream.SCHEDULE.prepare(matrix, plan_of(matrix, 4, budget=2**24, share=share))
    coefficients, x = make_coefficients("chebyshev", 4, "float64", rng), random_numbers(rng, (1, matrix.n), "float64")
    out = np.full((5, 1, matrix.n), np.nan)
    program.run(x, out, coefficients)
    with pytest.raises(ValueError, match=f"{matrix.nnz} entries cannot take {matrix.nnz - 7} values"):
        program.update_values(matrix.data[:-7])
    narrow = random_numbers(rng, matrix.nnz, "float32")
    program.update_values(narrow)
    program.run(x, out, coefficients)
    assert reference.error_ratio(matrix.with_values(narrow.astype(np.float64)), out, x, coefficients) <= 1
    assert program._are_there
    with pytest.raises(ValueError, match="cannot take"):
        program.update_values(narrow[:-7])
    assert program._are_there  # what was there before is still right
    again = np.full((5, 1, matrix.n), np.nan)
    program.run(x, again, coefficients)
    assert again.tobytes() == out.tobytes()


@pytest.mark.parametrize(
    ("move", "pretended"),
    [*((move, True) for move in stream_space.MOVE), ("kernel", False)],
    ids=[*stream_space.MOVE, "kernel, late"],
    indirect=["pretended"],
)
@pytest.mark.parametrize(("depth", "rows", "b"), [(5, 96, 2), (2, 64, 1), (3, 160, 2), (5, 3200, 1), (3, 4032, 1)])
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.usefixtures("pretended")
def test_the_program(dtype: str, depth: int, rows: int, b: int, move: str) -> None:
    matrix = make_matrix("band", 2011, dtype, 1)
    rng = np.random.default_rng(depth)
    coefficients = make_coefficients("chebyshev", 5, dtype, rng)
    x = random_numbers(rng, (b, matrix.n), dtype)
    options = {"budget": 2**24, "rows": rows, "vectors": b, "move": move, "ahead": 1 + rows % 3}
    program = stream.SCHEDULE.prepare(matrix, plan_of(matrix, 5, "sell16-2", depth, **options))
    out = np.full((6, b, matrix.n), np.nan, dtype)
    program.run(x, out, coefficients)
    assert reference.error_ratio(matrix, out, x, coefficients) <= 1
    size = np.dtype(dtype).itemsize
    assert program.nbytes <= stream_rows.budget_of(plan_of(matrix, 5, **options), matrix, GPU) + 15 * size
    vectors = 6 * b * matrix.n * size
    assert program.host_nbytes >= matrix.nnz * (size + 2) + 8 * matrix.nnz + vectors
    assert held_bytes(program) == program.nbytes + program.host_nbytes

    result = program.new_result(b)  # the same without a copy, and again in the same memory
    assert result.shape == out.shape
    program.run(x, result, coefficients)
    assert result.tobytes() == out.tobytes()
    place = result.ctypes.data
    assert not program.is_own_result(result[:, :, 1:])
    view = result[1]
    other = program.new_result(b)
    assert other.ctypes.data != place
    del result
    assert program.new_result(b).ctypes.data != place
    del view
    assert place in [again.ctypes.data for again in (program.new_result(b), program.new_result(b))]
    assert program.new_result(b + 1) is None

    held = [program.new_result(b) for _ in range(5)]  # more than are kept: graphs go with the memory that they write to
    for result in held:
        program.run(x, result, coefficients)
    assert {result.ctypes.data for result in held} <= {at for _, at, _ in program._graphs}
    del held, result
    assert len(program._spare) == 2
    kept = {memory.ctypes.data for memory in program._spare} | {program._pinned.ctypes.data}
    assert {at for _, at, _ in program._graphs} <= kept
