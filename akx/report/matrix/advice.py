"""What the structure of a matrix suggests for matrix powers on a host, in sentences. Rules of thumb, said as such.

What is fastest is for the plan to say: the tuned one where it is known, else the predicted one.

The arithmetic behind them, with v bytes a value and the pattern of `Features`:

* matrix bytes    nnz (v + 4) + 4 n, what k plain products read k times;
* wavefront       k + 1 neighbouring levels of the widest kind must stay in the L2 cache for every entry to be read from
                  memory once, with two vectors' worth of traffic a power: (k + 1) * width * (bytes per row + 2 v);
* padding         sliced ELL pads every row to the longest of its slice, so uneven rows ask for sorting.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from akx.core.options import schedule_with
from akx.report.units import count, counted, share, size

if TYPE_CHECKING:
    from akx.backends.host import HostDevice
    from akx.core.matrix import Features

__all__ = ["Advice", "advise", "matrix_bytes"]

_INDEX_BYTES = 4
_SHORT_INDEX_REACH = 2**15


@dataclass(frozen=True)
class Advice:
    """One suggestion: what it is about, and the sentence."""

    topic: str
    text: str

    def to_json(self) -> dict[str, str]:
        """``{"topic": ..., "text": ...}``."""
        return asdict(self)


def matrix_bytes(features: Features) -> int:
    """Bytes that one plain CSR product reads of the matrix."""
    value = np.dtype(features.dtype).itemsize
    return features.nnz * (value + _INDEX_BYTES) + (features.rows + 1) * _INDEX_BYTES


def advise(features: Features, device: HostDevice, k: int) -> tuple[Advice, ...]:
    """What `features` suggest for k >= 1 powers on `device`, the most telling first."""
    rules = (_memory, _wavefront, _order, _blocks, _diagonals, _indices, _rows, _components, _symmetry)
    found = (rule(features, device, k) for rule in rules)
    return tuple(advice for advice in found if advice is not None)


def _memory(f: Features, device: HostDevice, k: int) -> Advice:
    total, caches = matrix_bytes(f), device.cores * device.l2_bytes
    if total <= caches:
        text = (
            f"{size(total)} fit the L2 caches ({size(caches)}): plain products do not wait for memory, and blocking "
            "gains little; another format or order of the rows may gain more"
        )
    elif total <= device.l3_bytes:
        text = (
            f"{size(total)} exceed the L2 caches ({size(caches)}) but fit the L3 cache ({size(device.l3_bytes)}): "
            "blocking gains what L2 is faster than L3, less where the L3 cache is shared with others"
        )
    else:
        text = (
            f"{size(total)} exceed every cache: {count(k)} plain products read {size(k * total)} from memory, "
            f"{k} times what blocking needs at best"
        )
    return Advice("memory", text)


def _wavefront(f: Features, device: HostDevice, k: int) -> Advice | None:
    name = schedule_with(device.backend, "runs_by_levels")
    if name is None or f.nnz == 0 or f.level_count <= 1 or matrix_bytes(f) <= device.cores * device.l2_bytes:
        return None  # what is in L2 as a whole needs no wavefront to stay there
    value = np.dtype(f.dtype).itemsize
    per_row = f.row_mean * (value + _INDEX_BYTES) + _INDEX_BYTES + 2 * value
    window, caches = (k + 1) * f.level_width_max * per_row, device.cores * device.l2_bytes
    levels = f"{counted(f.level_count, 'level')} of at most {counted(f.level_width_max, 'row')}"
    if window <= caches:
        return Advice(name, f"{levels}: the {k + 1} in use at a time take {size(window)}, which fits L2")
    reach = max(1, int(caches / (f.level_width_max * per_row)) - 1)
    text = f"{levels}: the {k + 1} in use at a time take {size(window)}, more than L2 ({size(caches)})"
    if reach >= 2:
        text += f"; with {reach} powers per pass they would fit"
    return Advice(name, text)


def _order(f: Features, device: HostDevice, k: int) -> Advice | None:
    if f.level_count <= 1 or f.bandwidth <= 4 * f.level_width_max:
        return None
    return Advice(
        "order",
        f"the bandwidth is {count(f.bandwidth)}, levels have at most {counted(f.level_width_max, 'row')}: "
        "ordering rows by levels makes it much narrower (the tuner does that; results keep your order)",
    )


def _blocks(f: Features, device: HostDevice, k: int) -> Advice | None:
    if f.block_size == 1:
        return None
    b = f.block_size
    return Advice(
        "blocks", f"dense {b} x {b} blocks ({share(f.block_fill)} full): one index is enough for {b * b} entries"
    )


def _diagonals(f: Features, device: HostDevice, k: int) -> Advice | None:
    if f.diagonal_count == 0 or f.diagonal_fill < 0.6:
        return None
    return Advice(
        "diagonals",
        f"{counted(f.diagonal_count, 'diagonal')}, {share(f.diagonal_fill)} full: stored so, entries need no indices",
    )


def _indices(f: Features, device: HostDevice, k: int) -> Advice | None:
    if f.nnz == 0 or f.bandwidth >= _SHORT_INDEX_REACH:
        return None
    return Advice(
        "indices",
        f"the bandwidth, {count(f.bandwidth)}, is small enough for column offsets of 16 bits: fewer bytes per entry",
    )


def _rows(f: Features, device: HostDevice, k: int) -> Advice | None:
    if f.row_mean == 0 or (f.row_std <= f.row_mean and f.row_max <= 16 * f.row_mean):
        return None
    return Advice(
        "rows",
        f"uneven rows (longest {count(f.row_max)}, mean {f.row_mean:.1f}): threads share the entries, not the rows, "
        "and formats that pad rows have to sort them",
    )


def _components(f: Features, device: HostDevice, k: int) -> Advice | None:
    if f.components <= 1 and f.empty_rows == 0:
        return None
    parts = [f"{count(f.components)} components that share no entry"] if f.components > 1 else []
    if f.empty_rows:
        parts.append(counted(f.empty_rows, "empty row"))
    return Advice("components", " and ".join(parts) + "; this costs nothing, but check that you expect it")


def _symmetry(f: Features, device: HostDevice, k: int) -> Advice | None:
    if f.value_symmetry in ("symmetric", "hermitian"):
        text = f"{f.value_symmetry} values: the spectrum is real, so a Chebyshev basis needs only an interval"
    elif f.pattern_symmetric:
        text = (
            "the pattern is symmetric, the values are not: a Chebyshev basis needs an ellipse; a Newton basis does not"
        )
    else:
        return None
    return Advice("symmetry", text)
