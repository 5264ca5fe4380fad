"""The kernel of ``parts.cuh`` in plain NumPy, on the same arrays: what a layout means.

Values of the matrix are what they are stored as, and are widened where they are used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from akx.backends.cuda.value_compression.encodings import HALF, TABLE
from akx.backends.cuda.variants.block_local.layout import ALONE, CLUSTER, GLOBAL, SHARED, LaidOut
from akx.backends.schedule import Coefficients
from akx.formats.block_local import NOWHERE, SLICE
from akx.formats.halo_exchange import published

__all__ = ["check_clusters", "interpret", "shared_bytes"]


def interpret(
    laid_out: LaidOut,
    values: Any,
    x: Any,
    coefficients: Coefficients,
    steps: tuple[int, ...],
    active: Any = None,
    depth: int = 1,
    cluster: int = 1,
    table: Any = (),
) -> Any:
    """out (k+1, b, n); every part does its step before any does the next, and foreign data is NaN until fetched.

    With values in a table `values` are words: where a value is in `table`, in bytes, and above that its column.
    """
    parts, mode = laid_out.parts, laid_out.mode
    stored_as = np.dtype(np.uint32) if laid_out.way == TABLE else x.dtype
    if laid_out.way == HALF:
        stored_as = np.dtype(f"{x.dtype.kind}{x.dtype.itemsize // 2}")
    assert values.dtype == stored_as
    assert (len(table) > 0) == (laid_out.way == TABLE)
    shape = parts.shape
    br, bc, lanes, height = shape.br, shape.bc, shape.lanes, 32 // shape.lanes
    area, per = br * bc, bc // br
    k, n, rows = sum(steps), x.shape[1], parts.blocked.rows
    out = np.full((k + 1, *x.shape), np.nan, dtype=x.dtype)
    fill = np.zeros((x.shape[0], 1), dtype=x.dtype)
    vectors = range(x.shape[0])
    done = 0
    for count in steps:
        state = []
        for part in parts.parts:
            nodes = parts.rows[part["node"] :][: part["nodes"]].astype(np.int64)
            at = np.minimum(rows[nodes].astype(np.int64), n).ravel()  # n is what fills a node
            own = slice(int(part["before"]) * bc, int(part["before"] + part["own"]) * bc)
            assert part["nodes"] <= part["span"]
            if done == 0:
                mine = at[own][at[own] < n]
                out[0][:, mine] = x[:, mine]
            state.append([at, None, None])
        for entry in state:
            source = np.hstack([x if done == 0 else out[done], fill])
            entry[1] = source[:, entry[0]].copy()
            entry[2] = np.zeros_like(entry[1])
            if done and mode in (ALONE, CLUSTER):
                entry[2] = np.hstack([out[done - 1], fill])[:, entry[0]].copy()
        if mode == CLUSTER:
            check_clusters(laid_out, cluster)
        for j in range(count):
            a, b, c = (v[done + j] for v in (coefficients.a, coefficients.b, coefficients.c))
            for g, part in enumerate(parts.parts):
                at, now, before = state[g]
                computed = int(part["computed"])
                new = before.copy()
                first, last = 0, int(part["slices"])
                if mode in (ALONE, CLUSTER) or depth > 1:
                    turn = depth if depth > 1 else count
                    last = int(active[turn][g, j % turn])
                if mode == CLUSTER:
                    first, last = last >> 16, last & 0xFFFF
                    assert first <= part["border"] <= last <= part["slices"]
                assert part["border"] <= part["slices"]
                for s in range(first, last):
                    piece = parts.slices[part["slice"] + s]
                    total = np.zeros((len(vectors), 32, br), dtype=x.dtype)
                    for slot in _slots(laid_out, part, s):
                        stored = values[slot * 32 * area :][: 32 * area].reshape(br, bc, 32)
                        if laid_out.way == TABLE:
                            dense, column = _of_words(stored, table)
                        else:
                            dense = stored.astype(x.dtype)
                            column = parts.columns[slot * 32 :][:32].astype(np.int64)
                        if mode == GLOBAL:
                            place = _rows_read(laid_out, piece, column)
                            source = (x if done + j == 0 else out[done + j])[:, place]
                        else:
                            source = now[:, column[:, None] * bc + np.arange(bc)]
                        total += np.einsum("rcl,vlc->vlr", dense, source)
                    total = total.reshape(len(vectors), lanes, height, br).sum(axis=1)
                    for r in range(height):
                        row = s * height + r
                        if row >= computed * per:
                            continue
                        here = slice(row * br, row * br + br)
                        new[:, here] = a * total[:, r] + b * now[:, here] + (c * before[:, here] if c else 0)
                own = slice(int(part["before"]) * bc, int(part["before"] + part["own"]) * bc)
                assert first * height * br <= own.start or own.start == own.stop
                assert last * height * br >= own.stop or own.start == own.stop
                assert depth > 1 or mode in (ALONE, CLUSTER) or not new[:, at == n].any()  # foreign ones may be NaN
                new[:, at == n] = 0  # what fills a node stays so
                real = at[own] < n
                out[done + j + 1][:, at[own][real]] = new[:, own][:, real]
                state[g][1], state[g][2] = new, now
            if mode in (ALONE, CLUSTER) or (j + 1) % depth:
                for entry, part in zip(state, parts.parts, strict=True):  # what was only fetched is of no use any more
                    foreign = np.arange(entry[0].size) >= int(part["computed"]) * bc
                    entry[1][:, foreign & (entry[0] < n)] = np.nan if mode != GLOBAL else 0
                if mode == CLUSTER and j + 1 < count:
                    for giver, source, taker, target in _gifts(laid_out, cluster):
                        if target < parts.parts[taker]["nodes"]:
                            here, there = (i * bc + np.arange(bc) for i in (source, target))
                            state[taker][1][:, there] = state[giver][1][:, here]
                continue
            given = _published(laid_out, state, n) if mode == SHARED and not laid_out.chunk else None
            owner, position = _owner(laid_out), _place(laid_out)
            for g, part in enumerate(parts.parts):
                near = set(parts.neighbours[part["neighbour"] :][: part["neighbours"]].tolist())
                edge = int(part["own"]) * bc
                at = state[g][0]
                state[g][1][:, edge:] = np.hstack([out[done + j + 1], fill])[:, at[edge:]]
                state[g][2][:, edge:] = np.hstack([out[done + j], fill])[:, at[edge:]]
                if given is not None:
                    real = at[edge:] < n
                    assert np.array_equal(given[g][:, real], state[g][1][:, edge:][:, real])
                foreign = _read_of_others(laid_out, g, owner) if mode == GLOBAL else _nodes(laid_out, g)[edge // bc :]
                assert set(owner[foreign].tolist()) <= near
                for node in foreign:  # foreign nodes are published first
                    assert position[node] * per // height < parts.parts["border"][owner[node]]
        done += count
    return out


def _published(laid_out: LaidOut, state: Any, n: int) -> list[Any]:
    """What each part finds of others in the places where they publish what they have just computed."""
    ring = published(laid_out.parts)
    places = np.full((state[0][1].shape[0], ring.places), np.nan, dtype=state[0][1].dtype)
    for (at, new, _), part in zip(state, ring.parts, strict=True):
        own = np.arange(int(part["givens"]))
        own = own[at[own] < n]  # what fills a node up is not published
        assert np.isnan(places[:, int(part["given"]) + own]).all()
        places[:, int(part["given"]) + own] = new[:, own]
    found, reads = [], np.zeros((ring.parts.size, ring.parts.size), dtype=bool)
    owner = np.repeat(np.arange(ring.parts.size), ring.parts["givens"])
    for (at, _, _), part in zip(state, ring.parts, strict=True):
        wanted = ring.halo[part["halo"] :][: part["halos"]].astype(np.int64)
        foreign = at[int(part["own"]) * laid_out.parts.shape.bc :]
        assert np.array_equal(wanted[: foreign.size] == NOWHERE, foreign == n)
        assert not np.isnan(places[:, wanted[foreign.size :]]).any()  # what is only waited for comes too
        reads[len(found), owner[wanted[wanted != NOWHERE]]] = True
        found.append(places[:, np.where(wanted == NOWHERE, 0, wanted)[: foreign.size]])
    assert np.array_equal(reads, reads.T)  # everyone waits for who reads from him
    return found


def _slots(laid_out: LaidOut, part: Any, s: int) -> list[int]:
    """The slots of slice s of a part: in registers, in shared memory, and in global memory."""
    shape, piece = laid_out.parts.shape, laid_out.parts.slices[part["slice"] + s]
    held = shape.held_slots if s < shape.held_slices * shape.warps else 0
    assert piece["near"] + piece["nears"] <= part["nears"]
    return [
        *(int(part["held"]) + s * shape.held_slots + q for q in range(held)),
        *(int(part["near"]) + int(piece["near"]) + q for q in range(piece["nears"])),
        *(int(piece["far"]) + q for q in range(piece["fars"])),
    ]


def _rows_read(laid_out: LaidOut, piece: Any, column: Any) -> Any:
    """Rows of x that the blocks of a slice multiply where x is in global memory, shape (columns, bc)."""
    blocked = laid_out.parts.blocked
    named = column + int(piece["base"])
    first = named if blocked.listed is not None else named * blocked.bc
    return first[:, None] + np.arange(blocked.bc)


def _nodes(laid_out: LaidOut, g: int) -> Any:
    part = laid_out.parts.parts[g]
    return laid_out.parts.rows[part["node"] :][: part["nodes"]].astype(np.int64)


def _read_of_others(laid_out: LaidOut, g: int, owner: Any) -> Any:
    """Nodes of others whose rows slots of a part multiply, be it by zeros, where x is in global memory."""
    parts, found = laid_out.parts, []
    part = parts.parts[g]
    if laid_out.way != TABLE:  # single entries: what they read is what the layout is made from
        for s in range(part["slices"]):
            for slot in _slots(laid_out, part, s):
                column = parts.columns[slot * 32 :][:32].astype(np.int64)
                rows = _rows_read(laid_out, parts.slices[part["slice"] + s], column)
                found.append(parts.blocked.of[rows].ravel())
    nodes = np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)
    return nodes[owner[nodes] != g]


def _of_words(words: Any, table: Any) -> tuple[Any, Any]:
    """The values and the columns of a slot of single entries."""
    assert words.shape == (1, 1, 32)
    number, rest = np.divmod((words & 0xFFFF).astype(np.int64), table.itemsize)
    assert not rest.any()
    return table[number], (words.reshape(32) >> 16).astype(np.int64)


def shared_bytes(laid_out: LaidOut, values: Any, k: int, dtype: Any, table: Any = ()) -> int:
    """Bytes of shared memory that ``parts.cuh`` lays out, for the part that has most: vectors of `dtype`."""
    shape, size, most = laid_out.parts.shape, np.dtype(dtype).itemsize, 0
    one_word = values.dtype == np.uint32
    for part in laid_out.parts.parts:
        slices = -(-k * (3 * size + 4) // 16) * 16 + len(table) * size
        listed = laid_out.parts.blocked.listed is not None
        places = laid_out.chunk // (1 if listed else shape.bc)
        slices += laid_out.vectors * laid_out.chunk * size + -(-places // 8) * 8 * (4 if listed else 2)
        x = 0 if laid_out.mode == GLOBAL else 2 * int(part["span"]) * shape.bc * laid_out.vectors * size
        if laid_out.mode == CLUSTER:
            slices += x
        near_value = slices + int(part["slices"]) * SLICE.itemsize
        near_column = near_value + int(part["nears"]) * 32 * shape.br * shape.bc * values.itemsize
        after = near_column + (0 if one_word else int(part["nears"]) * 32 * 2)
        assert not any(place % 16 for place in (slices, near_value, near_column))  # they are copied by 16 bytes
        assert after % size == 0
        most = max(most, after if laid_out.mode == CLUSTER else after + x)
    return most


def _gifts(laid_out: LaidOut, cluster: int) -> Any:
    """(giver, its number of the node, taker, the taker's number) of all that is given after a step."""
    for g, part in enumerate(laid_out.parts.parts):
        words = laid_out.parts.neighbours[part["neighbour"] :][: part["neighbours"]].reshape(-1, 2).astype(np.int64)
        for source, where in words:
            yield g, source, g - g % cluster + (where >> 16), where & 0xFFFF


def check_clusters(laid_out: LaidOut, cluster: int) -> None:
    """What lets blocks of a cluster work while others write into them, one barrier per step between them."""
    parts, shape = laid_out.parts, laid_out.parts.shape
    height, per = 32 // shape.lanes, shape.bc // shape.br
    assert parts.parts.size % cluster == 0
    spans = parts.parts["span"].reshape(-1, cluster)
    assert (spans == spans[:, :1]).all()  # a place of x is the same in all of them
    assert (spans % 2 == 0).all()
    written: list[set[int]] = [set() for _ in range(parts.parts.size)]
    gifts = list(_gifts(laid_out, cluster))
    pairs = {(giver, taker) for giver, _, taker, _ in gifts}
    assert pairs == {(taker, giver) for giver, taker in pairs}  # nobody gets ahead of one that is still reading
    assert np.array_equal(np.bincount([g[2] for g in gifts], minlength=spans.size), parts.parts["taken"])
    for giver, source, taker, target in gifts:
        part, other = parts.parts[giver], parts.parts[taker]
        assert giver != taker
        assert source < part["computed"]
        assert target < other["span"]
        if target == other["nodes"]:
            continue
        assert parts.rows[part["node"] + source] == parts.rows[other["node"] + target]
        assert (source * per + per - 1) // height < part["border"]  # what is given is done first
        assert other["computed"] <= target < other["nodes"]  # and no place of what is computed here
        assert target not in written[taker]
        written[taker].add(int(target))
    for g, part in enumerate(parts.parts):  # slices done while others may write already read nothing of that
        for s in range(int(part["border"]), int(part["slices"])):
            for slot in _slots(laid_out, part, s):
                assert not written[g] & set(parts.columns[slot * 32 :][:32].tolist())


def _owner(laid_out: LaidOut) -> Any:
    parts = laid_out.parts
    owner = np.full(int(parts.rows.max(initial=0)) + 1, -1)
    for g, part in enumerate(parts.parts):
        owner[parts.rows[part["node"] :][: part["own"]]] = g
    return owner


def _place(laid_out: LaidOut) -> Any:
    parts = laid_out.parts
    place = np.full(int(parts.rows.max(initial=0)) + 1, -1)
    for part in parts.parts:
        place[parts.rows[part["node"] :][: part["own"]]] = np.arange(part["own"])
    return place
