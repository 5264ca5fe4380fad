"""Strips and blocks: dealt once each, in reach as said, and from the levels that a matrix has."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from akx.core.errors import InfeasibleError
from akx.partition.level_order import ORDERS, _closure, is_shallow, level_order, natural_levels
from akx.partition.wavefront_blocks import (
    _MOST_REACH,
    _TOGETHER,
    Strips,
    _blocks,
    _patches,
    fullest,
    strips,
)
from benchmarks.gallery import delaunay, epidemic, small, stencil
from partition.patterns import as_bool, from_dense, grid_9pt, patterns, random_pattern


def check(A: sp.csr_array, found: Strips, parts: int, room: int) -> None:
    """What every front relies on, by brute force."""
    n = A.shape[0]
    assert found.part.shape == found.block.shape == (n,)
    assert found.part.dtype == found.block.dtype == np.uint32
    assert found.parts == parts
    assert found.part.max() < parts
    np.testing.assert_array_equal(np.unique(found.block), np.arange(found.blocks))
    shares = np.zeros((found.blocks, parts), dtype=int)
    np.add.at(shares, (found.block, found.part), 1)
    assert shares.max() <= room
    row, column = A.tocoo().coords
    distance = found.block[column].astype(int) - found.block[row].astype(int)
    assert found.ahead == max(distance.max(initial=0), 0)
    assert found.behind == max(-distance.min(initial=0), 0)
    assert max(found.ahead, found.behind) <= _MOST_REACH


def levels_of(A: sp.csr_array) -> tuple[Any, int]:
    return natural_levels(A.indptr.astype(np.int64), A.indices)


def band(n: int, width: int, seed: int, density: float) -> sp.csr_array:
    """Unsymmetric, within `width` of the diagonal; a tenth of the rows are empty."""
    dense = as_bool(random_pattern(n, density, seed))
    i = np.arange(n)
    return from_dense(dense & (np.abs(i[:, None] - i) <= width))


def triangle(lines: int) -> sp.csr_array:
    """Five points on a grid whose lines get shorter: lines, lines - 1, ... 3 points."""
    number = {at: i for i, at in enumerate((u, v) for u in range(lines - 2) for v in range(lines - u))}
    dense = np.zeros((len(number),) * 2, dtype=bool)
    for (u, v), i in number.items():
        for other in ((u, v), (u - 1, v), (u + 1, v), (u, v - 1), (u, v + 1)):
            if other in number:
                dense[i, number[other]] = True
    return from_dense(dense)


@st.composite
def matrices(draw: st.DrawFn) -> sp.csr_array:
    """Grids with lines of any length, bands with empty rows, and anything."""
    kind = draw(st.sampled_from(["plane", "space", "band", "triangle", "any"]))
    size = st.integers(4, 12)
    if kind == "plane":
        return stencil((draw(size), draw(size)), draw(st.sampled_from([5, 9])))
    if kind == "space":
        return stencil((draw(size), draw(size), draw(size)), draw(st.sampled_from([7, 27])))
    if kind == "band":
        density = draw(st.sampled_from([0.02, 0.2, 0.7]))
        return band(draw(st.integers(20, 300)), draw(st.integers(4, 30)), draw(st.integers(0, 1000)), density)
    if kind == "triangle":
        return triangle(draw(st.integers(5, 14)))
    return draw(patterns())


@settings(max_examples=120, deadline=None)
@given(matrices(), st.sampled_from(ORDERS), st.integers(1, 5), st.sampled_from([4, 8, 12, 32]))
def test_rows_are_dealt_and_reach_is_the_furthest_block(A: sp.csr_array, order: str, parts: int, room: int) -> None:
    try:
        found = strips(A.indptr, A.indices, order, parts, room)
    except InfeasibleError:
        assume(False)
    check(A, found, parts, room)


GALLERY = ["9-point", "mc2depi", "brick", "shell", "27-point", "7-point"]


@pytest.mark.parametrize("name", GALLERY)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("parts", "room"), [(1, 32), (3, 8), (4, 16), (2, 64)])
def test_the_gallery_is_dealt(name: str, order: str, parts: int, room: int) -> None:
    A = small(name)
    found = strips(A.indptr, A.indices, order, parts, room)
    check(A, found, parts, room)
    assert found.blocks <= 2.5 * -(-A.shape[0] // (parts * room)) + 1
    if (name, order) != ("27-point", "natural"):  # of so few lines a plane that its period is not found
        shares = np.bincount(found.part, minlength=parts)
        assert shares.max() <= 1.35 * shares.mean()


@pytest.mark.parametrize("points", [5, 9])
@pytest.mark.parametrize("shape", [(40, 31), (21, 17), (12, 50), (30, 7)])
def test_levels_of_a_plane_are_its_lines(shape: tuple[int, int], points: int) -> None:
    level_ptr, line = levels_of(stencil(shape, points))
    np.testing.assert_array_equal(level_ptr, np.arange(shape[0] + 1) * shape[1])
    assert line == 0


@pytest.mark.parametrize(("shape", "points"), [((12, 9, 10), 7), ((8, 7, 9), 7), ((9, 9, 7), 27), ((12, 10, 9), 27)])
def test_levels_of_a_space_are_its_planes_with_the_line_inside(shape: tuple[int, int, int], points: int) -> None:
    level_ptr, line = levels_of(stencil(shape, points))
    np.testing.assert_array_equal(level_ptr, np.arange(shape[0] + 1) * shape[1] * shape[2])
    assert line == shape[2]


def test_a_last_line_that_is_not_whole() -> None:
    level_ptr, _ = levels_of(stencil((9, 10), 9)[:85][:, :85].tocsr())
    np.testing.assert_array_equal(level_ptr, [*range(0, 90, 10)[:9], 85])


def test_lines_of_changing_length() -> None:
    A = triangle(20)
    level_ptr, line = levels_of(A)
    np.testing.assert_array_equal(np.diff(level_ptr), np.arange(20, 2, -1))
    assert line == 0


@pytest.mark.parametrize("entry", [(0, 45), (45, 0), (0, 39), (39, 0)])
def test_lines_are_levels_only_where_all_rows_read_lines_next_to_theirs(entry: tuple[int, int]) -> None:
    """Row 39 begins the third line, which is two from the first."""
    dense = as_bool(triangle(20))
    dense[entry] = True
    A = from_dense(dense)
    level_ptr, _ = levels_of(A)
    np.testing.assert_array_equal(level_ptr, _closure(A.indptr.astype(np.int64), A.indices))


def test_an_epidemic_has_its_lines_as_levels_but_for_one_row() -> None:
    """No row reads the one behind it: levels are those of what is read, the first row and then lines behind theirs."""
    N = 40
    level_ptr, line = levels_of(epidemic(N))
    np.testing.assert_array_equal(np.diff(level_ptr)[:6], [1, N + 1, N, N - 1, N - 2, N - 3])
    assert line == 0
    check(epidemic(N), strips(epidemic(N).indptr, epidemic(N).indices, "natural", 4, 16), 4, 16)


def test_closure_by_hand() -> None:
    """Rows 0 | 1 2 | 3 | 4 5 ...: an entry above the diagonal and one below reach as far."""
    dense = np.eye(9, dtype=bool)
    for i, j in ((0, 2), (3, 1), (3, 5), (8, 4)):
        dense[i, j] = True
    A = from_dense(dense)
    np.testing.assert_array_equal(_closure(A.indptr.astype(np.int64), A.indices), [0, 1, 3, 4, 6, 9])


@settings(max_examples=80, deadline=None)
@given(patterns())
def test_rows_of_a_closure_are_next_to_what_they_read(A: sp.csr_array) -> None:
    n = A.shape[0]
    level_ptr = _closure(A.indptr.astype(np.int64), A.indices)
    assert level_ptr[0] == 0
    assert level_ptr[-1] == n
    assert np.all(np.diff(level_ptr) > 0)
    level = np.repeat(np.arange(level_ptr.size - 1), np.diff(level_ptr))
    row, column = A.tocoo().coords
    assert np.abs(level[row] - level[column]).max(initial=0) <= 1


@pytest.mark.parametrize("A", [stencil((40, 31), 9), stencil((17, 64), 5), triangle(30), epidemic(30)])
@pytest.mark.parametrize(("parts", "room"), [(3, 16), (5, 8)])
def test_rows_stay_together_by_four(A: sp.csr_array, parts: int, room: int) -> None:
    """In a level of lines, what a strip writes is whole sectors: four rows that begin at a multiple of four."""
    found = strips(A.indptr, A.indices, "natural", parts, room)
    level_ptr, line = levels_of(A)
    assert line == 0
    level = np.repeat(np.arange(level_ptr.size - 1), np.diff(level_ptr))
    row = np.arange(A.shape[0])
    parted = (np.diff(found.part.astype(int)) != 0) & (np.diff(level) == 0) & (np.diff(found.block.astype(int)) == 0)
    assert np.all(row[1:][parted] % _TOGETHER == 0)
    assert parted.any()


@pytest.mark.parametrize("lengths", [(8, 128), (8, 30), (9, 31)])
def test_strips_are_stretches_of_lines(lengths: tuple[int, int]) -> None:
    """Of lines that are all alike, of whole sectors, a strip has the same places; its neighbours are next to it."""
    lines, length = lengths
    A = stencil((lines, length), 9)
    found = strips(A.indptr, A.indices, "natural", 4, 32)
    part = found.part.reshape(lines, length).astype(int)
    assert np.all(np.diff(part, axis=1) >= 0)
    assert np.all(np.diff(part, axis=1) <= 1)
    if length % _TOGETHER == 0:
        np.testing.assert_array_equal(part, np.broadcast_to(part[0], part.shape))
        np.testing.assert_array_equal(np.bincount(part[0]), [length // 4] * 4)
        np.testing.assert_array_equal(found.block, np.repeat(np.arange(found.blocks), 4 * 32)[: lines * length])


def test_strips_are_patches_of_planes() -> None:
    A = stencil((6, 16, 16), 7)
    found = strips(A.indptr, A.indices, "natural", 4, 64)
    part = found.part.reshape(6, 16, 16)
    np.testing.assert_array_equal(part, np.broadcast_to(part[0], part.shape))
    for s in range(4):  # a quarter of the plane each
        u, v = np.nonzero(part[0] == s)
        assert u.size == 64
        assert np.ptp(u) == np.ptp(v) == 7
    np.testing.assert_array_equal(found.block.reshape(6, 256), np.repeat(np.arange(6), 256).reshape(6, 256))
    assert (found.ahead, found.behind) == (1, 1)


def test_patches_are_about_equal() -> None:
    place = np.arange(128 * 128)
    u, v = place // 128, place % 128 // _TOGETHER
    part = _patches(u, v, 132)
    count = np.bincount(part, minlength=132)
    assert count.size == 132
    assert count.min() > 0
    assert count.max() <= 1.15 * count.mean()
    cells = np.unique(np.stack([u, v, part]), axis=1)
    assert cells.shape[1] == np.unique(cells[:2], axis=1).shape[1]  # four points stay together
    for s in range(132):  # patches, not scattered points
        assert np.ptp(u[part == s]) + 1 <= 24
        assert (np.ptp(v[part == s]) + 1) * _TOGETHER <= 32


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(1, 40), st.integers(1, 50))
def test_patches_of_any_plane(points: int, line: int, parts: int) -> None:
    place = np.arange(points)
    u, v = place // line, place % line // _TOGETHER
    part = _patches(u, v, parts)
    assert part.shape == (points,)
    assert part.max() < parts
    cells = np.unique(np.stack([u, v, part]), axis=1)
    assert cells.shape[1] == np.unique(cells[:2], axis=1).shape[1]
    # A cut is off by less than a cell; there are log2(parts) of them, the last of two parts.
    assert np.bincount(part).max() <= points / parts + 2 * _TOGETHER


def test_levels_of_a_matrix_in_random_order() -> None:
    A = delaunay(900)
    with pytest.raises(InfeasibleError, match="read too far"):
        strips(A.indptr, A.indices, "natural", 4, 8)
    found = strips(A.indptr, A.indices, "levels", 4, 16)
    check(A, found, 4, 16)
    assert found.blocks <= 2 * -(-900 // 64)
    assert max(found.ahead, found.behind) <= 3


def test_levels_of_a_shuffled_grid_are_as_good_as_its_own() -> None:
    A, shuffled = grid_9pt(30), np.random.default_rng(2).permutation(900)
    B = sp.csr_array(A[shuffled][:, shuffled])
    B.sort_indices()
    found = strips(B.indptr, B.indices, "levels", 3, 16)
    check(B, found, 3, 16)
    assert max(found.ahead, found.behind) <= 2


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("order", ORDERS)
def test_unsymmetric_patterns_reach_one_way(upper: bool, order: str) -> None:
    A = grid_9pt(30)
    A = from_dense(np.triu(as_bool(A)) if upper else np.tril(as_bool(A)))
    found = strips(A.indptr, A.indices, order, 3, 16)
    check(A, found, 3, 16)
    if order == "natural":
        assert (found.ahead == 0) is not upper
        assert (found.behind == 0) is upper


@pytest.mark.parametrize("order", ORDERS)
def test_empty_rows(order: str) -> None:
    """Rows of which some are empty, and some are read by nobody either: dealt like all."""
    dense = as_bool(grid_9pt(24))
    dense[::7] = False
    dense[:, ::14] = False
    A = from_dense(dense)
    check(A, strips(A.indptr, A.indices, order, 3, 16), 3, 16)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", [np.int64, np.uint32])
def test_the_width_of_indices_makes_no_difference(order: str, kind: type[np.integer[Any]]) -> None:
    for A in (stencil((20, 17), 9), stencil((6, 8, 8), 7), epidemic(24)):
        mine = strips(A.indptr, A.indices, order, 3, 16)
        other = strips(A.indptr.astype(kind), A.indices.astype(kind), order, 3, 16)
        np.testing.assert_array_equal(mine.part, other.part)
        np.testing.assert_array_equal(mine.block, other.block)
        assert (mine.blocks, mine.ahead, mine.behind) == (other.blocks, other.ahead, other.behind)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", [1, 7])
def test_few_rows_leave_strips_without_any(order: str, n: int) -> None:
    A = sp.csr_array(np.ones((n, n)))
    check(A, strips(A.indptr, A.indices, order, 4, 8), 4, 8)


@pytest.mark.parametrize("order", ORDERS)
def test_levels_narrower_than_strips_leave_some_without_rows(order: str) -> None:
    A = small("pentadiagonal")  # levels of two rows
    check(A, strips(A.indptr, A.indices, order, 3, 8), 3, 8)
    check(A, strips(A.indptr, A.indices, order, 1, 8), 1, 8)
    found = level_order(A.indptr, A.indices, order)
    assert found.mean_width == pytest.approx(2.0, rel=0.1)


def test_a_level_order_is_taken_for_its_name() -> None:
    A = stencil((20, 17), 9)
    for order in ORDERS:
        mine = strips(A.indptr, A.indices, level_order(A.indptr, A.indices, order), 3, 16)
        named = strips(A.indptr, A.indices, order, 3, 16)
        np.testing.assert_array_equal(mine.part, named.part)
        np.testing.assert_array_equal(mine.block, named.block)


def test_rows_of_a_diagonal_have_no_neighbours() -> None:
    A = sp.csr_array(sp.eye_array(100))
    found = strips(A.indptr, A.indices, "natural", 2, 8)
    check(A, found, 2, 8)
    assert (found.ahead, found.behind) == (0, 0)


def test_a_search_that_finds_all_soon_is_shallow() -> None:
    star = sp.csr_array(sp.vstack([np.ones((1, 50)), np.eye(50)[1:]]))
    assert is_shallow(star.indptr, star.indices, 1)
    line = small("pentadiagonal")
    assert not is_shallow(line.indptr, line.indices, 20)  # two rows a level, of 300
    assert is_shallow(line.indptr, line.indices, 75)
    apart = sp.csr_array(sp.eye_array(100))
    assert not is_shallow(apart.indptr, apart.indices, 20)


@pytest.mark.parametrize("order", ORDERS)
def test_rows_that_read_too_far(order: str) -> None:
    A = random_pattern(1200, 0.02, 3)
    with pytest.raises(InfeasibleError, match=f"expected at most {_MOST_REACH} blocks of 16 rows, found"):
        strips(A.indptr, A.indices, order, 2, 8)


def test_reach_is_judged_by_blocks() -> None:
    """A row that reads as far as is possible, and one block further."""
    n, width = 800, 8
    for far, possible in ((_MOST_REACH, True), (_MOST_REACH + 1, False)):
        dense = as_bool(stencil((n // width, width), 9))
        dense[width * 30, width * (30 + far)] = True
        A = from_dense(dense)
        if possible:
            found = strips(A.indptr, A.indices, "natural", 2, 4)
            check(A, found, 2, 4)
            assert (found.ahead, found.behind) == (far, 1)
        else:
            with pytest.raises(InfeasibleError, match=f"found {far} blocks"):
                strips(A.indptr, A.indices, "natural", 2, 4)


@pytest.mark.parametrize("A", [stencil((20, 17), 9), stencil((6, 8, 8), 7)])
def test_rows_that_cannot_be_dealt_evenly(A: sp.csr_array) -> None:
    """Four rows stay together, and only three have room."""
    with pytest.raises(InfeasibleError, match="cannot be dealt evenly, expected at most 3 rows"):
        strips(A.indptr, A.indices, "natural", 4, 3)
    check(A, strips(A.indptr, A.indices, "natural", 4, 4), 4, 4)


@pytest.mark.parametrize("order", ORDERS)
def test_strips_are_the_same_again(order: str) -> None:
    for A in (stencil((20, 17), 9), stencil((6, 8, 8), 27), epidemic(24), band(300, 40, 1, 0.4)):
        one, two = (strips(A.indptr, A.indices, order, 2, 16) for _ in range(2))
        np.testing.assert_array_equal(one.part, two.part)
        np.testing.assert_array_equal(one.block, two.block)


def test_blocks_are_as_full_as_they_can_be() -> None:
    rng = np.random.default_rng(0)
    refused = joined = 0
    for _ in range(60):
        kinds, parts, room = int(rng.integers(1, 9)), int(rng.integers(1, 9)), int(rng.integers(6, 60))
        own, kind = rng.integers(0, 12, (kinds, parts)), np.repeat(rng.integers(0, kinds, 12), rng.integers(1, 9, 12))
        begin = _blocks(kind, own, room)
        if begin is None:
            refused += 1
            assert own.max() > room
            continue
        joined += begin.size < kind.size
        held = [own[kind[first:last]].sum(axis=0) for first, last in pairwise(begin)]
        assert np.max(held) <= room
        for block, last in zip(held, begin[1:-1], strict=False):  # no room for one more
            assert (block + own[kind[last]]).max() > room
    assert refused
    assert joined


def test_rows_and_entries_of_the_fullest_block() -> None:
    rng = np.random.default_rng(1)
    for A in (stencil((20, 17), 9), stencil((6, 8, 8), 7), epidemic(24)):
        found = strips(A.indptr, A.indices, "natural", 3, 32)
        lengths = rng.integers(0, 9, A.shape[0])
        rows = np.zeros((2, found.blocks, 3), int)
        np.add.at(rows, (slice(None), found.block, found.part), np.stack([np.ones_like(lengths), lengths]))
        np.testing.assert_array_equal(found.rows, rows[0])
        indptr = np.append(0, np.cumsum(lengths)).astype(np.uint32)
        assert fullest(indptr, found) == tuple(rows.reshape(2, -1).max(axis=1))
