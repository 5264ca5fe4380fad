"""Compiled loops of :mod:`akx.formats.block_local`, each for parts from one to another: threads take some each."""

from __future__ import annotations

from typing import Any

import numpy as np

from akx.core.numba_jit import njit
from akx.formats.blocked import NOWHERE

__all__ = ["fill_slots", "find_widths"]


@njit(cache=True, nogil=True)
def find_widths(of_nodes: Any, height: int, per: int, lanes: int, width: Any, begin_part: int, end_part: int) -> None:
    """Slots of each slice of parts from one to another."""
    indptr, rows, ptr, computed, first = of_nodes
    for g in range(begin_part, end_part):
        for i in range(computed[g]):
            node = rows[ptr[g] + i]
            length = np.int64(indptr[node + np.uint64(1)]) - np.int64(indptr[node])
            slots = (length + lanes - 1) // lanes
            for s in range((i * per) // height, ((i + 1) * per - 1) // height + 1):
                width[first[g] + s] = max(width[first[g] + s], slots)


@njit(cache=True, nogil=True)
def _range_of_columns(node_ptr: Any, node_columns: Any, named: Any, nodes: Any) -> tuple[Any, Any]:
    """The least and the greatest name of some nodes and of their columns."""
    low, high = np.int64(2**62), np.int64(-1)
    for node in nodes:
        low, high = min(low, np.int64(named[node])), max(high, np.int64(named[node]))
        for p in range(np.int64(node_ptr[node]), np.int64(node_ptr[node + np.uint64(1)])):
            low = min(low, np.int64(named[np.int64(node_columns[p])]))
            high = max(high, np.int64(named[np.int64(node_columns[p])]))
    return low, high


@njit(cache=True, nogil=True)
def _number_slots(slots: Any, held: int, nears: int, held_at: int, near_at: int, far_at: int) -> None:
    """Where the slots of a slice are: those in registers, in shared memory, and beyond."""
    for q in range(slots.size):
        if q < held:
            slots[q] = held_at + q
        elif q - held < nears:
            slots[q] = near_at + q - held
        else:
            slots[q] = far_at + q - held - nears


@njit(cache=True, nogil=True)
def fill_slots(
    patterns: Any, blocked: Any, of_nodes: Any, places: Any, shape: Any, found: Any, begin_part: int, end_part: int
) -> bool:
    """Columns and entries of parts from one to another.

    A column is `named` so where it is not local, with `shifted` columns of zeros first.
    """
    indptr, indices, node_ptr, node_columns = patterns
    listed, of, within, named, shifted = blocked
    rows, ptr, computed, first = of_nodes
    part_held, part_near, slice_near, slice_far, nears, held, many_of = places
    br, bc, lanes, held_slots, local = shape
    base, columns, entry = found
    height, per, area = 32 // lanes, bc // br, br * bc
    where, place_of = np.zeros(node_ptr.size, np.int64), np.zeros(node_ptr.size, np.int64)
    slots = np.zeros(many_of.max() if many_of.size else 0, np.int64)
    for g in range(begin_part, end_part):
        if local:
            for i in range(ptr[g + 1] - ptr[g]):
                where[rows[ptr[g] + i]] = i
        for s in range(first[g], first[g + 1]):
            top = (s - first[g]) * height
            low = np.int64(0)
            if not local:
                nodes = rows[ptr[g] + top // per : ptr[g] + min((top + height - 1) // per + 1, computed[g])]
                low, high = _range_of_columns(node_ptr, node_columns, named, nodes)
                if high - low > 65535:
                    return False
                base[s] = low
            many = many_of[s]
            held_at = part_held[g] + (s - first[g]) * held_slots
            _number_slots(slots[:many], held[s], nears[s], held_at, part_near[g] + slice_near[s], slice_far[s])
            for r in range(height):
                block_row = top + r
                i = block_row // per
                if i >= computed[g]:
                    break
                node = np.int64(rows[ptr[g] + i])
                start, end = np.int64(node_ptr[node]), np.int64(node_ptr[node + 1])
                at = start
                for q in range(many):
                    for lane in range(r, 32, height):
                        column = node
                        if at < end:
                            column = np.int64(node_columns[at])
                            place_of[column] = (slots[q] * area + shifted[column]) * 32 + lane
                            at += 1
                        columns[slots[q] * 32 + lane] = where[column] if local else named[column] - low
                upper = block_row % per * br
                for r_of in range(br):
                    if listed[node, upper + r_of] == NOWHERE:
                        break
                    row = np.int64(listed[node, upper + r_of])
                    for p in range(np.int64(indptr[row]), np.int64(indptr[row + 1])):
                        j = np.int64(indices[p])
                        entry[place_of[of[j]] + (r_of * bc + np.int64(within[j])) * 32] = p + 1
    return True
