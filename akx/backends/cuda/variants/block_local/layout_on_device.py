"""What is in the slots of `resident` and `ghost`, found on the device: columns, and which entry each place has.

The host says which nodes a part has and which slots a slice (:class:`akx.formats.block_local.Slots`), for which it
looks at row pointers and at who reads whom; the entries are moved here. The arrays are those that the host finds
(:func:`akx.formats.block_local.filled`), to the bit; the kernels are those of ``parts_layout.cuh``.

Bytes: the pattern read once, and that of blocks once more; 16 a part and 32 a slice sent; where columns are local, a
table of 6 bytes a place, two to four places a node of a part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.launch import Kernel
from akx.backends.cuda.device.memory import DeviceArray, empty, to_device, zeros
from akx.backends.cuda.matrix import features
from akx.backends.cuda.matrix.features import OnDevice
from akx.backends.cuda.value_compression.new_values import not_empty
from akx.backends.cuda.variants.block_local.shapes import nodes_there
from akx.backends.cuda.variants.slots import pattern_there
from akx.core.matrix import Matrix
from akx.formats.block_local import WARP, Blocked, Fill, Nodes, Slots
from akx.partition.halo import Halos

__all__ = ["filled_there", "halos_there"]

_SOURCE = Path(__file__).with_name("parts_layout.cu")
_BLOCK = 256
#: Threads that sort the rows of a part; bytes of shared memory for sums, and for digits besides.
_SORTING, _SUM_BYTES = 1024, 4 * WARP
_DIGIT_BYTES = 4 * 256 * (_SORTING // WARP + 1)
#: A part and a slice as the kernels read them.
_PART = np.dtype([(name, np.uint32) for name in ("list", "computed", "table", "shift")])
_SLICE = np.dtype(
    [(name, np.uint32) for name in ("part", "top", "held", "held_at", "nears", "near_at", "far_at", "slots")]
)
_NONE = np.uint64(0)


def filled_there(matrix: Matrix, *, in_words: bool) -> Fill:
    """What finds what is in slots on the device.

    `in_words`: columns are the upper halves of words that say where values are (``stored=table``).
    """

    def fill(blocked: Blocked, slots: Slots, local: bool) -> tuple[DeviceArray, DeviceArray, Any] | None:
        nodes, shape, node = slots.nodes, slots.shape, blocked.pattern
        rows_there = pattern_there(matrix)
        whole = shape.bc > 1
        known = nodes_there(matrix, shape.bc)
        sent = [_sent(node.indptr), _sent(node.indices)] if whole and known is None else rows_there
        pattern_of_nodes: list[Any] = list(known or sent)
        listed: Any = _NONE if blocked.listed is None else to_device(blocked.listed.reshape(-1))
        sizes = _table_sizes(nodes) if local else None
        parts, slices = to_device(_parts(nodes, sizes)), to_device(not_empty(_slices(slots).view(np.uint32)))
        rows = to_device(not_empty(nodes.rows))
        table: list[Any] = [_NONE, _NONE] if sizes is None else _table(nodes, sizes, parts, rows)
        columns = empty(slots.count * WARP, np.uint32 if in_words else np.uint16)
        entry = empty(slots.count * shape.slot, np.uint32)
        base, is_far = zeros(max(1, slots.slots.size), np.uint32), zeros(1, np.uint32)
        form = [np.uint32(one) for one in (slots.slots.size, shape.br, shape.bc, shape.lanes)]
        form.append(np.uint32(max(blocked.n - blocked.bc, 0)))
        of_nodes = [parts, slices, rows]
        of_slots = [base, is_far, columns, _NONE if whole else entry]
        name = "lay_beside" if in_words else "lay_alone"
        _launch(name, slots.slots.size, [*form, *of_nodes, *table, *pattern_of_nodes, listed, *of_slots])
        if whole:
            entry.fill_bytes(0)
            of: list[Any] = [_NONE, _NONE]
            if blocked.listed is not None:
                of = [to_device(blocked.of.view(np.uint32)), to_device(blocked.at)]
            given = [*of_nodes, *pattern_of_nodes, listed, *rows_there, *of, entry]
            _launch("lay_in_blocks", slots.slots.size, [*form, np.uint32(local), *given])
        if local:
            return columns, entry, None
        return None if is_far.get()[0] else (columns, entry, base.get()[: slots.slots.size])

    return fill


def halos_there(there: OnDevice, cuts: NDArray[np.int64], longest: int, *, alone: bool) -> Halos:
    """What :func:`akx.partition.halo.halos` finds of runs of rows, from a pattern on the device; of `longest` entries.

    `alone`: rows of a part are its own, without the halo.
    """
    own, border = np.diff(cuts), zeros(max(1, there.rows), np.uint8)
    halo: list[NDArray[Any]] = []
    counts: list[NDArray[Any]] = []

    def list_halo(bits: DeviceArray, numbers: DeviceArray) -> None:
        count = numbers.get()[:, 0].astype(np.int64)
        found = empty(max(1, int(count.sum())), np.uint32)
        begin = to_device((np.cumsum(count) - count).astype(np.uint32))
        _kernel("list_parts").launch(
            count.size, _SORTING, [np.uint32(bits.shape[1]), bits, begin, found], shared=_SUM_BYTES
        )
        halo.append(found.get()[: count.sum()])
        counts.append(count)

    _, met = features.mark_parts(there, cuts, border, None if alone else list_halo)
    key_bits, on_border = 1 + longest.bit_length(), empty(own.size, np.uint32)
    keys, nodes, next_keys, next_nodes = (empty(max(1, there.rows), np.uint32) for _ in range(4))
    given: list[Any] = [np.uint32(longest), np.uint32(key_bits), to_device(cuts.astype(np.uint32)), there.pointer]
    given += [border, keys, nodes, next_keys, next_nodes, on_border]
    _kernel("sort_parts").launch(own.size, _SORTING, given, shared=_SUM_BYTES + _DIGIT_BYTES)
    digits = -(-key_bits // 8)
    rows, ptr = (next_nodes if digits % 2 else nodes).get()[: there.rows], cuts
    if not alone:
        ptr = cuts + np.concatenate([[0], np.cumsum(np.concatenate(counts))])
        parts = zip(np.split(rows, cuts[1:-1]), np.split(np.concatenate(halo), (ptr - cuts)[1:-1]), strict=True)
        rows = np.concatenate([one for part in parts for one in part])
    seen = np.unpackbits(met.get().view(np.uint8), axis=1, bitorder="little")
    neighbours, readers = np.nonzero(seen)[1].astype(np.uint32), np.count_nonzero(seen, axis=1)
    neighbour_ptr = np.concatenate([[0], np.cumsum(readers)])
    return Halos(rows, ptr, own, on_border.get().astype(np.int64), neighbours, neighbour_ptr)


def _parts(nodes: Nodes, sizes: NDArray[np.int64] | None) -> NDArray[np.uint32]:
    """The parts as :data:`_PART`."""
    found = np.zeros(nodes.computed.size, dtype=_PART)
    found["list"], found["computed"] = nodes.ptr[:-1], nodes.computed
    if sizes is not None:
        found["table"], found["shift"] = np.cumsum(sizes) - sizes, 32 - np.log2(sizes).astype(np.int64)
    return found.view(np.uint32)


def _slices(slots: Slots) -> NDArray[Any]:
    """The slices as :data:`_SLICE`."""
    shape, parts = slots.shape, slots.parts
    found = np.zeros(slots.slots.size, dtype=_SLICE)
    part = np.repeat(np.arange(parts.size), np.diff(slots.first))
    number = np.arange(part.size) - slots.first[part]
    found["part"], found["top"] = part, number * (WARP // shape.lanes)
    found["held"], found["held_at"] = slots.held, parts["held"][part] + number * shape.held_slots
    found["nears"], found["near_at"] = slots.nears, parts["near"][part] + slots.slices["near"]
    found["far_at"], found["slots"] = slots.slices["far"], slots.slots
    return found


def _table_sizes(nodes: Nodes) -> NDArray[np.int64]:
    """Places for the nodes of each part, a power of two, at most half of which are taken."""
    count = np.maximum(np.diff(nodes.ptr), 1)
    return np.int64(2) << np.ceil(np.log2(count)).astype(np.int64)


def _table(nodes: Nodes, sizes: NDArray[np.int64], parts: DeviceArray, rows: DeviceArray) -> list[Any]:
    """Where each node of a part is in its list."""
    key, where = zeros(int(sizes.sum()), np.uint32), empty(int(sizes.sum()), np.uint16)
    lists = to_device(nodes.ptr.astype(np.uint32))
    count = nodes.rows.size
    if count:
        arguments = [np.uint32(sizes.size), np.uint32(count), lists, parts, rows, key, where]
        _launch("number_nodes", -(-count // WARP), arguments)
    return [key, where]


def _sent(array: NDArray[Any]) -> DeviceArray:
    return to_device(not_empty(array.astype(np.uint32, copy=False)))


def _launch(name: str, warps: int, arguments: list[Any]) -> None:
    """Queue a kernel with so many warps, of which there may be none."""
    if warps:
        _kernel(name).launch(-(-warps * WARP // _BLOCK), _BLOCK, arguments)


def _kernel(name: str) -> Kernel:
    return load(_SOURCE, {}, device=cuda_device()).kernel(name)
