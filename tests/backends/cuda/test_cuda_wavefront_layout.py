"""`wavefront` on the GPU: its layout, and its kernel on the host, by threads in several orders."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import host_engine
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from nightly import mostly_nightly
from nvcc import named
from program_on_host import Device, poisoned_powers
from test_contract import make_coefficients, random_numbers

from akx.backends import reference
from akx.backends.cuda.schedules.wavefront import program as wavefront
from akx.backends.cuda.schedules.wavefront import runs
from akx.backends.cuda.schedules.wavefront.entries import lay_out
from akx.backends.cuda.schedules.wavefront.layout import FLIGHT, LINE, NONE, RING, STAGES, WARP, Front, Shape
from akx.backends.cuda.schedules.wavefront.program import WavefrontProgram, macros
from akx.backends.cuda.schedules.wavefront.runs import cut_runs, runs_of
from akx.backends.cuda.value_compression.encodings import FULL, HALF, TABLE, encoded
from akx.backends.schedule import Coefficients
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Option, Plan
from akx.formats.base import Pattern, pattern_of
from akx.partition.wavefront_blocks import strips
from benchmarks.gallery import delaunay, epidemic, stencil

DTYPES = ("float32", "float64", "complex64", "complex128")
#: Ways to store values, and their types.
NOT_FULL = [(HALF, "float64"), (HALF, "complex128"), *((TABLE, dtype) for dtype in DTYPES)]
WIDE = np.dtype(np.float64)
NARROW = {"float64": "float32", "complex128": "complex64"}


def band(n: int, width: int, seed: int) -> sp.csr_array:
    """Unsymmetric and banded: rows of 0 to 6 entries, and one that reads the whole width."""
    rng = np.random.default_rng(seed)
    length = rng.integers(0, 7, n)
    row = np.repeat(np.arange(n), length)
    column = row + rng.integers(-width, width + 1, row.size)
    long = np.full(2 * width + 1, n // 2)
    row, column = np.append(row, long), np.append(column, n // 2 + np.arange(-width, width + 1))
    inside = (column >= 0) & (column < n)
    found = sp.csr_array((np.ones(inside.sum()), (row[inside], column[inside])), shape=(n, n))
    found.sum_duplicates()
    return found


def one_way(lines: int, length: int) -> sp.csr_array:
    """A grid without the right ones of the neighbours: strips read their left neighbours only."""
    A = stencil((lines, length), 5).tocoo()
    row, column = A.coords
    keep = column != row + 1
    return sp.csr_array((A.data[keep], (row[keep], column[keep])), shape=A.shape)


MATRICES: dict[str, Any] = {
    "5-point": lambda: stencil((23, 19), 5),
    "9-point": lambda: stencil((30, 23), 9),
    "7-point": lambda: stencil((10, 8, 9), 7),
    "27-point": lambda: stencil((9, 8, 7), 27),
    "epidemic": lambda: epidemic(30),
    "delaunay": lambda: delaunay(600),
    "band": lambda: band(600, 40, 1),
    "one way": lambda: one_way(70, 12),
}


@cache
def make(name: str, dtype: str = "float64") -> Matrix:
    A = sp.csr_array(MATRICES[name]())
    return fill(A, dtype, 0)


def fill(A: sp.csr_array, dtype: str, seed: int) -> Matrix:
    data = random_numbers(np.random.default_rng(seed), A.nnz, dtype) / 3
    return Matrix.from_any(sp.csr_array((data, A.indices, A.indptr), shape=A.shape))


def storable(matrix: Matrix, way: str, seed: int) -> Matrix:
    """The matrix with values that can be stored that way and not in the other: in a table are few, both zeros too."""
    rng, dtype = np.random.default_rng(seed), matrix.dtype
    if way == HALF:
        return matrix.with_values(matrix.data.astype(NARROW[dtype.name]).astype(dtype))
    few = random_numbers(rng, 150, dtype.name) / 3
    few[:2] = 0.0, -0.0
    return matrix.with_values(rng.choice(few, matrix.nnz))


def front_of(
    matrix: Matrix, parts: int, slices: int, lanes: int, held: int, slack: int, order: str = "natural"
) -> Front:
    """By diagonals where lanes are 0."""
    pattern, runs = pattern_of(matrix), None if lanes else runs_of(matrix)
    dealt = strips(pattern.indptr, pattern.indices, order, parts, slices * (WARP // max(lanes, 1)))
    return lay_out(pattern, dealt, max(lanes, 1), held, slack, matrix.dtype.itemsize, runs)


on_the_host = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        libraries = tmp_path_factory.mktemp("wavefront")
        found = Device(SimpleNamespace(sms=3), libraries, "wavefront")
        found.install(monkeypatch, libraries, [wavefront])
        yield found


def program_of(matrix: Matrix, front: Front, passes: tuple[int, ...], way: str = FULL) -> WavefrontProgram:
    options: dict[str, Option] = {"block": 256, "helpers": 128, "stored": way}  # the rest is of the front
    variant = "dia" if front.runs else f"sell16-{front.lanes}"
    plan = Plan("cuda", "wavefront", variant, "natural", sum(passes), passes[0], options=options)
    found = WavefrontProgram(matrix, front, plan, by_host=True)
    assert found._passes == list(passes)
    return found


def check(device: Device, matrix: Matrix, front: Front, passes: tuple[int, ...], way: str = FULL) -> Any:
    """The result, which is right, of random x and coefficients, in every order of threads."""
    k = sum(passes)
    rng = np.random.default_rng(k)
    x = random_numbers(rng, (1, matrix.n), matrix.dtype.name)
    coefficients = make_coefficients("general", k, matrix.dtype.name, rng)
    out = poisoned_powers(device, program_of(matrix, front, passes, way), x, coefficients)
    assert reference.error_ratio(matrix, out, x, coefficients) <= 1
    return out


CASES = [
    # matrix, parts, slices, lanes, held slots, slack, passes
    ("5-point", 3, 1, 1, 5, 0, (4,)),
    ("5-point", 4, 2, 8, 0, 1, (3,)),
    ("9-point", 3, 1, 1, 9, 0, (4,)),
    ("9-point", 3, 1, 2, 4, 1, (6,)),
    ("9-point", 5, 2, 4, 1, 2, (4,)),
    ("9-point", 2, 2, 8, 0, 0, (4,)),
    ("9-point", 3, 2, 4, 12, 1, (2, 2, 1)),
    ("9-point", 2, 1, 1, 3, 3, (4,)),
    ("9-point", 1, 1, 1, 2, 0, (5,)),
    ("7-point", 4, 3, 2, 3, 0, (4,)),
    ("7-point", 3, 1, 1, 0, 1, (6,)),
    ("7-point", 6, 4, 4, 2, 2, (3,)),
    ("27-point", 3, 1, 1, 14, 1, (3,)),
    ("27-point", 2, 3, 2, 5, 0, (5,)),
    ("27-point", 4, 6, 8, 4, 0, (4,)),
    ("27-point", 4, 1, 4, 0, 2, (3,)),
    ("epidemic", 3, 1, 1, 4, 0, (6,)),
    ("epidemic", 2, 3, 8, 1, 1, (4,)),
    ("epidemic", 5, 1, 2, 0, 2, (4,)),
    ("epidemic", 3, 2, 4, 1, 0, (3, 2)),
    ("delaunay", 3, 1, 1, 6, 0, (4,)),
    ("delaunay", 4, 2, 4, 1, 1, (4,)),
    ("delaunay", 2, 5, 8, 0, 2, (6,)),
    ("delaunay", 3, 2, 2, 8, 1, (3, 2)),
    ("band", 3, 1, 1, 4, 0, (4,)),
    ("band", 4, 2, 8, 1, 1, (6,)),
    ("band", 2, 4, 4, 30, 0, (3,)),
    ("band", 3, 2, 2, 0, 2, (3, 1)),
    ("one way", 3, 1, 4, 1, 1, (4,)),
    ("one way", 2, 1, 1, 0, 0, (1, 1)),
]


def in_turn(cases: list[Any], *others: tuple[str, ...]) -> list[Any]:
    """Each case with one of the others."""
    return [(*case, *others[turn % len(others)]) for turn, case in enumerate(cases)]


#: Each is a kernel of its own, which is compiled once.
POWERS = in_turn(CASES, ("float64",), ("complex64",))
STORED_ALIKE = in_turn([CASES[i] for i in (0, 2, 6, 26, 4, 12, 10, 13, 19, 22)], *NOT_FULL)


@on_the_host
@pytest.mark.parametrize(
    ("name", "parts", "slices", "lanes", "held", "slack", "passes", "dtype"),
    mostly_nightly(POWERS, POWERS[::3] + POWERS[1::3]),
)
def test_the_kernel_gives_the_powers(
    device: Device, name: str, parts: int, slices: int, lanes: int, held: int, slack: int, passes: Any, dtype: str
) -> None:
    matrix = make(name, dtype)
    front = front_of(matrix, parts, slices, lanes, held, slack, "levels" if name == "delaunay" else "natural")
    check(device, matrix, front, passes)


BY_RUNS = [
    # matrix, parts, slices, held slots, slack, passes, way, type
    ("9-point", 3, 1, 9, 2, (4,), FULL, "float64"),
    ("9-point", 4, 2, 5, 0, (2, 2), HALF, "float64"),
    ("7-point", 4, 3, 0, 1, (3,), FULL, "complex128"),
    ("27-point", 3, 2, 7, 1, (3, 2), FULL, "float64"),
    ("5-point", 5, 1, 2, 2, (6,), TABLE, "float64"),
    ("one way", 3, 1, 3, 1, (3, 1), FULL, "float32"),
]


@on_the_host
@pytest.mark.parametrize(("name", "parts", "slices", "held", "slack", "passes", "way", "dtype"), BY_RUNS)
def test_diagonals(
    device: Device, name: str, parts: int, slices: int, held: int, slack: int, passes: Any, way: str, dtype: str
) -> None:
    matrix = make(name, dtype) if way == FULL else storable(make(name, dtype), way, 3)
    check(device, matrix, front_of(matrix, parts, slices, 0, held, slack), passes, way)


def test_by_diagonals_half_a_warp_reads_places_of_different_banks() -> None:
    """Lines of a grid of which strips have 8 rows each: 16 places of 8 bytes are all of a row of shared memory."""
    front = front_of(fill(stencil((40, 16), 9), "float64", 0), 2, 1, 0, 4, 1)
    at = 4 + -(-front.slices // 4) * 4 + front.room
    place = (front.meta[:, :, at:][:, :, : front.room] & 0xFFFF).reshape(-1, 16) // 8 % 16
    assert all(np.unique(half).size == 16 for half in place)
    assert front.stride == 48


def test_what_has_no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Diagonals that are too many or too empty, and a sample of rows that says less than all of them."""
    for A in (epidemic(30), delaunay(600), sp.diags_array([1.0, 1.0], offsets=[0, 400], shape=(500, 500))):
        with pytest.raises(InfeasibleError, match="the same few diagonals"):
            runs_of(Matrix.from_any(sp.csr_array(A)))
    odd = sp.lil_array(stencil((40, 16), 9))
    odd[3, 5] = 1.0
    with pytest.raises(InfeasibleError, match="the same few diagonals"):
        runs_of(Matrix.from_any(sp.csr_array(odd)))
    monkeypatch.setattr(runs, "in_pieces", lambda *_: ())  # as where the device has the rows
    with pytest.raises(InfeasibleError, match="in runs"):
        front_of(Matrix.from_any(sp.csr_array(odd)), 2, 1, 0, 4, 1)


def test_runs_that_lie_in_two_blocks() -> None:
    """Where a row reads on from the end of one line to the next, which is another block."""
    for A, cut in (
        (stencil((40, 16), 5), False),
        (sp.diags_array([1.0] * 5, offsets=[-16, -1, 0, 1, 16], shape=(640, 640)), True),
    ):
        matrix = Matrix.from_any(sp.csr_array(A))
        pattern = pattern_of(matrix)
        starts = strips(pattern.indptr, pattern.indices, "natural", 2, 32).starts[1:-1]
        assert cut_runs(matrix, runs_of(matrix), starts) == cut


@on_the_host
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_other_types(device: Device, dtype: str) -> None:
    matrix = make("9-point", dtype)
    check(device, matrix, front_of(matrix, 3, 2, 2, 3, 1), (4,))


@on_the_host
@pytest.mark.parametrize(("name", "slack"), [("9-point", 0), ("epidemic", 1), ("band", 2)])
def test_bulk_copies(device: Device, monkeypatch: pytest.MonkeyPatch, name: str, slack: int) -> None:
    """What comes by them, from compute capability 9.0 on, is waited for at barriers."""
    monkeypatch.setattr(wavefront, "macros", lambda *given: {**macros(*given), "__CUDA_ARCH__": 900})
    matrix = make(name)
    check(device, matrix, front_of(matrix, 3, 2, 4, 1, slack), (3, 2))


@on_the_host
@pytest.mark.parametrize(
    ("name", "parts", "slices", "lanes", "held", "slack", "passes", "way", "dtype"),
    mostly_nightly(STORED_ALIKE, STORED_ALIKE[: len(NOT_FULL)]),
)
def test_stored_values_give_the_same_bits(
    device: Device,
    name: str,
    parts: int,
    slices: int,
    lanes: int,
    held: int,
    slack: int,
    passes: Any,
    way: str,
    dtype: str,
) -> None:
    """Those of near slots are added up in another order where more of them are asked for together."""
    matrix = storable(make(name, dtype), way, 3)
    front = front_of(matrix, parts, slices, lanes, held, slack, "levels" if name == "delaunay" else "natural")
    found, in_full = (check(device, matrix, front, passes, one) for one in (way, FULL))
    if front.near_slots == 0 or matrix.dtype.itemsize < 8:
        assert found.tobytes() == in_full.tobytes()


def test_padding_is_the_first_of_the_table() -> None:
    """Which is zero, whatever values there are."""
    for matrix, front in all_fronts():
        values = encoded(storable(matrix, TABLE, 1).data, TABLE)
        assert values is not None
        assert not front.values(values.stored)[front.entry == 0].any()
        assert values.table[:1].tobytes() == bytes(8)


def rounded_up(*given: Any) -> dict[str, int | str]:
    """Macros of a kernel with more room than there need be, so that few are compiled."""
    found = macros(*given)
    return found | {"AKX_PER": 2, "AKX_ASKS": max(4, int(found["AKX_ASKS"])), "AKX_XS": max(8, int(found["AKX_XS"]))}


@on_the_host
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_band(device: Device, data: st.DataObject) -> None:
    n, width = data.draw(st.integers(30, 250)), data.draw(st.integers(5, 40))
    matrix = fill(band(n, width, data.draw(st.integers(0, 1000))), "float64", 1)
    order, parts = data.draw(st.sampled_from(["natural", "levels"])), data.draw(st.integers(1, 5))
    lanes, slices, held, slack, way = data.draw(
        st.sampled_from([(1, 1, 2, 0, TABLE), (2, 2, 0, 1, FULL), (4, 1, 5, 2, HALF), (8, 3, 1, 0, FULL)])
    )
    matrix = matrix if way == FULL else storable(matrix, way, 2)
    try:
        front = front_of(matrix, parts, slices, lanes, held, slack, order)
    except InfeasibleError:
        assume(False)
    assume(front.strips.ahead <= 4)  # others are other kernels
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(wavefront, "macros", rounded_up)
        check(device, matrix, front, (data.draw(st.integers(1, 5)),), way)


@on_the_host
@pytest.mark.parametrize(("name", "slack"), [("9-point", 0), ("epidemic", 2), ("delaunay", 0), ("one way", 2)])
def test_tags_and_beats_go_on_from_call_to_call(device: Device, name: str, slack: int) -> None:
    """They are all that orders strips, which drift apart where each goes on alone as far as it can (order 1)."""
    matrix, rng = make(name), np.random.default_rng(0)
    front = front_of(matrix, 3, 2, 4, 1, slack, "levels" if name == "delaunay" else "natural")
    program = program_of(matrix, front, (3, 2))
    for _ in range(3):
        x, coefficients = rng.standard_normal((1, matrix.n)), make_coefficients("general", 5, "float64", rng)
        out = poisoned_powers(device, program, x, coefficients)
        assert reference.error_ratio(matrix, out, x, coefficients) <= 1


@on_the_host
def test_words_are_lost_without_readers(device: Device) -> None:
    """Where nobody is read by who reads it, only beats keep a strip from overwriting what is not read yet."""
    matrix = make("one way")
    front = front_of(matrix, 3, 1, 8, 1, 0)
    np.testing.assert_array_equal(front.readers, [[1], [2], [NONE]])
    assert front.strips.blocks > RING + 8
    check(device, matrix, front, (2,))
    front.readers[:] = NONE
    with pytest.raises(AssertionError, match="wait for others that never come"):
        check(device, matrix, front, (2,))


@on_the_host
@pytest.mark.parametrize(("name", "slack"), [("9-point", 0), ("7-point", 1), ("epidemic", 2), ("one way", 0)])
@pytest.mark.parametrize("ring", ["nears", "lists", "halos"])
def test_rings_are_as_short_as_they_can_be(
    device: Device, monkeypatch: pytest.MonkeyPatch, name: str, slack: int, ring: str
) -> None:
    """With one slot less something is overwritten that is still needed; lists of halos have one to spare with slack."""
    matrix, powers, less = make(name), 3, 2 if ring == "halos" and slack else 1
    front = front_of(matrix, 2, 1, 4, 0, slack)
    slots = front.lists if ring == "lists" else getattr(front, ring)(powers)
    assert front.near_slots > 0
    assert front.strips.blocks > slots
    check(device, matrix, front, (powers,))
    monkeypatch.setattr(Shape, ring, property(lambda _: slots - less) if ring == "lists" else lambda *_: slots - less)
    with pytest.raises(AssertionError):
        check(device, matrix, front, (powers,))


@on_the_host
def test_a_lag_that_is_too_short(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fetched a step later comes too late."""
    matrix = make("9-point")
    front = front_of(matrix, 3, 1, 2, 2, 0)
    check(device, matrix, front, (3,))
    monkeypatch.setattr(wavefront, "macros", lambda *given: {**macros(*given), "AKX_SLACK": 1})
    with pytest.raises(AssertionError):
        check(device, matrix, front, (3,))


def all_fronts() -> list[tuple[Matrix, Front]]:
    found = []
    for name, parts, slices, lanes, held, slack, _ in CASES[::3]:
        matrix = make(name)
        order = "levels" if name == "delaunay" else "natural"
        found.append((matrix, front_of(matrix, parts, slices, lanes, held, slack, order)))
    return found


def test_every_entry_has_one_place() -> None:
    for matrix, front in all_fronts():
        assert np.array_equal(np.sort(front.entry[front.entry > 0]), np.arange(1, matrix.nnz + 1))


@on_the_host
def test_values_are_laid_out_again(device: Device) -> None:
    """New values under the same layout; those of padding stay zero."""
    matrix = make("band")
    first = front_of(matrix, 3, 2, 2, 2, 1)
    for dtype in ("float32", "complex128"):
        again = Matrix.from_any(
            sp.csr_array((random_numbers(np.random.default_rng(7), matrix.nnz, dtype), matrix.indices, matrix.indptr))
        )
        front = front_of(again, 3, 2, 2, 2, 1)
        values = front.values(again.data)
        assert values.dtype == again.dtype
        assert values.shape == front.entry.shape
        assert not values[front.entry == 0].any()
        np.testing.assert_array_equal(values[front.entry > 0], again.data[front.entry[front.entry > 0] - 1])
        np.testing.assert_array_equal(front.entry, first.entry)
        check(device, again, front, (3,))


def test_readers_are_those_who_read() -> None:
    for matrix, front in all_fronts():
        row, column = matrix.to_scipy().tocoo().coords
        part = front.strips.part.astype(int)
        pairs = {(int(i), int(j)) for i, j in zip(part[column], part[row], strict=True) if i != j}
        found = [(s, int(r)) for s, line in enumerate(front.readers) for r in line if r != NONE]
        assert len(found) == len(set(found))
        assert set(found) == pairs
        assert front.readers.shape == (front.strips.parts, max([sum(s == i for i, _ in pairs) for s, _ in pairs] + [1]))


def test_all_that_others_read_is_published_once() -> None:
    for matrix, front in all_fronts():
        row, column = matrix.to_scipy().tocoo().coords
        part, block = front.strips.part.astype(int), front.strips.block.astype(int)
        foreign = part[row] != part[column]
        room = front.slices * WARP // front.lanes
        at = 4 + -(-front.slices // 4) * 4
        node, place = front.meta[:, :, at:][:, :, :room], front.meta[:, :, at + room :][:, :, :room] >> 16
        public = (node != NONE) & (place != 0xFFFF)
        assert np.array_equal(np.sort(node[public]), np.unique(column[foreign]))
        assert np.array_equal(np.sort(node[node != NONE]), np.arange(matrix.n))
        word = (front.bases[None, :, None] + place).astype(int)
        assert front.bases[0] == 0
        assert np.all(np.diff(front.bases.astype(int)) >= 0)
        assert np.all(word[public] < front.published)
        # Strips publish in lines of their own, and a list is of one block's words in ascending order.
        assert np.all(front.bases % 16 == 0)
        for b in range(front.strips.blocks):
            words, of = word[b][public[b]], node[b][public[b]]
            assert np.unique(words).size == words.size
            home = dict(zip(words.tolist(), of.tolist(), strict=True))
            for s in range(front.strips.parts):
                wanted = np.unique(column[foreign & (part[row] == s) & (block[column] == b)])
                asked = front.halo[b, s][front.halo[b, s] != NONE]
                assert np.all(np.diff(asked.astype(int)) > 0)
                assert sorted(home[w] for w in asked.tolist()) == wanted.tolist()
                fetched = front.nodes[b, s, 4 + room :][: asked.size]
                assert [home[w] for w in asked.tolist()] == fetched.tolist()
                assert np.all(front.nodes[b, s, 4 + room + asked.size :] == NONE)


def test_heads_say_the_same_twice() -> None:
    for _, front in all_fronts():
        np.testing.assert_array_equal(front.meta[:, :, :2], front.nodes[:, :, :2])
        assert front.meta[:, :, 1].sum() == front.near_columns.shape[0]
        assert front.meta[:, :, 1].max() == front.near_slots
        shares = np.zeros((front.strips.blocks, front.strips.parts), dtype=int)
        np.add.at(shares, (front.strips.block, front.strips.part), 1)
        np.testing.assert_array_equal(front.meta[:, :, 3], shares)
        room = front.slices * WARP // front.lanes
        begins = np.arange(front.strips.blocks)[:, None] % front.ring * room
        np.testing.assert_array_equal(front.meta[:, :, 2], np.broadcast_to(begins, shares.shape))


def test_sizes_are_those_of_the_arrays() -> None:
    for _, front in all_fronts():
        blocks, strips = front.strips.blocks, front.strips.parts
        assert front.meta.shape == (blocks, strips, front.words)
        assert front.nodes.shape == (blocks, strips, 4 + front.stride)
        assert front.halo.shape == (blocks, strips, front.fetched)
        assert front.stride == front.room + front.fetched == front.slices * WARP // front.lanes + front.fetched


def test_copies_of_16_bytes_are_aligned() -> None:
    for _, front in all_fronts():
        assert front.meta.shape[2] % 4 == front.nodes.shape[2] % 4 == front.halo.shape[2] % 4 == 0
        assert front.nodes.shape[2] == 4 + front.stride


@pytest.mark.parametrize("held", [0, 1, 4, 9, 14])
def test_slots_that_are_held_are_not_near(held: int) -> None:
    """Held slots are those that a slice has first; with as many as the longest row nothing is near."""
    matrix = make("9-point")
    front = front_of(matrix, 3, 2, 2, held, 0)
    assert front.held_slots == held
    assert (front.near_slots == 0) == (held >= 5)  # 9 entries by 2 lanes
    assert front.near_columns.shape == (int(front.meta[:, :, 1].sum()), WARP)


@on_the_host
@pytest.mark.parametrize(("way", "dtype"), [(FULL, "float64"), (FULL, "complex64"), *NOT_FULL[1:]])
def test_shared_memory_is_what_the_strips_have(
    device: Device, monkeypatch: pytest.MonkeyPatch, way: str, dtype: str
) -> None:
    """With a table and without: with 16 bytes less the last list has no room."""
    matrix = make("9-point", dtype)
    matrix = matrix if way == FULL else storable(matrix, way, 0)
    front = front_of(matrix, 3, 1, 2, 2, 0)
    assert front.strips.blocks >= front.halos(2)
    check(device, matrix, front, (2,), way)
    monkeypatch.setattr(device, "less", 16)
    with pytest.raises(AssertionError, match="or touch what is beyond shared memory"):
        check(device, matrix, front, (2,), way)


@on_the_host
@pytest.mark.parametrize("powers", [1, 2, 5])
def test_steps_are_those_of_the_kernel(device: Device, powers: int) -> None:
    """As the beats of its strips say, which go on from call to call."""
    for name, parts, slices, lanes, held, slack, _ in (CASES[1], CASES[7], CASES[17]):
        front = front_of(matrix := make(name), parts, slices, lanes, held, slack)
        program, rng = program_of(matrix, front, (powers,)), np.random.default_rng(0)
        x, out = (host_engine.zeros((rows, 1, matrix.n), "f8") for rows in (1, powers + 1))
        coefficients = make_coefficients("general", powers, "float64", rng)
        for call in range(1, 3):
            program.run(x.view(0, (1, matrix.n)), out, coefficients)
            beats = host_engine.seen(program._beats)[::LINE]
            assert (beats == (call + 1) * front.steps(powers) + call).all()
        assert front.in_flight(powers) == front.lag * (powers - 1) + 1


@pytest.mark.parametrize("warps", [1, 3, 8, 16, 32])
def test_warps_have_room_for_all_slices_of_a_step(warps: int) -> None:
    front = front_of(make("9-point"), 3, 3, 2, 1, 0)
    for powers in (1, 4, 7):
        per = front.slices_per_step(powers, warps)
        pairs = [divmod(w + j * warps, front.slices) for w in range(warps) for j in range(per)]
        assert len(set(pairs)) == len(pairs)
        assert {(turn, s) for turn in range(powers) for s in range(front.slices)} <= set(pairs)
        assert (per - 1) * warps < powers * front.slices


@pytest.mark.parametrize("helpers", [128, 256])
def test_helpers_have_room_for_all_they_bring(helpers: int) -> None:
    """One warp carries the matrix, one gathers x, the others ask for what is published; none has more than it needs."""
    for _, front in all_fronts():
        for powers in (1, 2, 5, 16):
            given = macros(front, WIDE, WIDE, powers, 8, helpers)
            asks, xs = int(given["AKX_ASKS"]), int(given["AKX_XS"])
            asked, askers = (powers - 1) * front.halo.shape[2], helpers - 2 * WARP
            assert (asks - 1) * askers < max(1, asked) <= asks * askers
            assert (xs - 1) * WARP < front.stride <= xs * WARP


def test_the_kernel_is_given_what_it_asks_for() -> None:
    source = named("wavefront.cu").read_text()
    for _, front in all_fronts():
        given = macros(front, WIDE, WIDE, 4, 8, 128)
        assert set(given) == set(re.findall(r"AKX_[A-Z_]+", source))
        assert (given["AKX_LAG"], given["AKX_SLACK"]) == (front.strips.ahead + 2 + front.slack, front.slack)
        assert bool(given["AKX_NEAR"]) == bool(front.near_columns.size)
    _, front = all_fronts()[0]
    for dtype, stored, names in (
        ("float32", "float32", ("float", "float")),
        ("float64", "float32", ("double", "float")),
        ("complex128", "complex64", ("cdouble", "cfloat")),
        ("complex64", "uint16", ("cfloat", "u16")),
    ):
        given = macros(front, np.dtype(dtype), np.dtype(stored), 4, 8, 128)
        assert (given["AKX_VALUE"], given["AKX_STORED"]) == names


def test_constants_are_those_of_the_kernel() -> None:
    source = named("wavefront.cuh").read_text()
    for name, value in {"RING": RING, "STAGES": STAGES, "LINE": LINE}.items():
        assert re.findall(rf"\bconstexpr (?:u32|int) {name} = (\d+)[;,]", source) == [str(value)]
    assert "FLIGHT = STAGES - 1;" in source
    assert FLIGHT == STAGES - 1
    assert "AHEAD = LAG + int(FLIGHT), LISTED = AHEAD + int(FLIGHT);" in source


@on_the_host
@pytest.mark.parametrize(
    ("dtype", "length", "lines", "more", "found"),  # lines of a block that fits, and of one that does not
    [
        ("float32", 50, 46, 47, 16604),
        ("float64", 25, 46, 47, 8316),
        ("complex64", 25, 46, 47, 8316),
        ("complex128", 13, 44, 45, 4284),
    ],
)
def test_columns_have_16_bits(device: Device, dtype: str, length: int, lines: int, more: int, found: int) -> None:
    """Places of x up to nearly 2**16 bytes are right; of more there is an error."""
    matrix = fill(stencil((300, length), 5), dtype, 0)
    pattern, size = pattern_of(matrix), matrix.dtype.itemsize

    def laid_out(room: int) -> Front:
        return lay_out(pattern, strips(pattern.indptr, pattern.indices, "natural", 1, room), 1, 3, 1, size)

    front = laid_out(lines * length)
    assert front.strips.blocks == front.ring == 7
    assert 60_000 < front.near_columns.max() < front.ring * front.stride * size <= 2**16
    check(device, matrix, front, (2,))
    most = rf"do not fit 16 bits, expected at most {2**16 // size} places .* found {found}"
    with pytest.raises(InfeasibleError, match=most):
        laid_out(more * length)


@on_the_host
def test_the_last_place_has_16_bits(device: Device) -> None:
    """All of 2**16 bytes are taken, by own rows and, behind them, by those of others."""
    matrix = fill(stencil((300, 20), 5), "float64", 0)
    pattern = pattern_of(matrix)

    def laid_out(parts: int, room: int) -> Front:
        return lay_out(pattern, strips(pattern.indptr, pattern.indices, "natural", parts, room), 8, 0, 3, 8)

    front = laid_out(1, 1020)  # 51 lines
    assert front.ring * front.stride * 8 == 2**16
    check(device, matrix, front, (2,))
    with pytest.raises(InfeasibleError, match="do not fit 16 bits"):
        laid_out(1, 1024 + 20)
    front = laid_out(2, 940)
    own = front.ring * (front.stride - front.halo.shape[2]) * 8
    assert 59_000 < own < front.near_columns.max() < front.ring * front.stride * 8 <= 2**16
    check(device, matrix, front, (2,))
    with pytest.raises(InfeasibleError, match="found 8320"):  # own rows alone would fit: 960 places a block
        laid_out(2, 960)


def test_indices_of_64_bits_make_no_difference() -> None:
    matrix = make("band")
    pattern = pattern_of(matrix)
    wide = Pattern(pattern.indptr.astype(np.uint64), pattern.indices.astype(np.uint64), pattern.columns)
    dealt = strips(pattern.indptr, pattern.indices, "natural", 3, 16)
    one, two, again = (lay_out(of, dealt, 2, 1, 1, 8) for of in (pattern, wide, pattern))
    for name in ("meta", "nodes", "halo", "readers", "bases", "near_columns", "entry"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
        np.testing.assert_array_equal(getattr(one, name), getattr(again, name))


@on_the_host
def test_coefficients_may_be_zero(device: Device) -> None:
    """A monomial basis: no terms but the product."""
    matrix, k = make("epidemic"), 4
    front = front_of(matrix, 3, 1, 2, 1, 1)
    zero = np.zeros(k)
    coefficients = Coefficients(np.ones(k), zero, zero)
    x = np.random.default_rng(5).standard_normal((1, matrix.n))
    out = poisoned_powers(device, program_of(matrix, front, (k,)), x, coefficients)
    assert reference.error_ratio(matrix, out, x, coefficients) <= 1
