"""All that ``akx info`` knows of a matrix before anything is measured: put together here, printed elsewhere.

Structure and advice, where the entries are, what every layout would store with the bound that the bandwidth of this
device sets to its product, ghost zones over the number of steps, packets of an FPGA, the plan that is known and the one
that an untuned call would use. Cost: some tens of passes over the entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.selection import device_of, plan_threads
from akx.core.errors import InfeasibleError
from akx.formats.base import Pattern, pattern_of
from akx.formats.natural_blocks import MOST, Nodes, natural_nodes
from akx.formats.supervariables import Supervariables, supervariables, twins
from akx.plandb import shared_database
from akx.report.matrix.device_bounds import FPGA_CLOCK, Device, DeviceBound, device_bound
from akx.report.matrix.format_storage import FormatStorage, format_storages
from akx.report.matrix.fpga_packets import SLOTS, PacketSchedule, schedule_rows
from akx.report.matrix.ghost_growth import GhostGrowth, ghost_growth
from akx.report.matrix.spy_plot import cell_counts
from akx.tuner import plan_key
from akx.tuner.history.kept import usable
from akx.tuner.model.figures import best_figures, derived_figures, figures_of
from akx.tuner.model.predict import predict
from akx.tuner.space import resolve_backend

if TYPE_CHECKING:
    from akx.core.matrix import Matrix
    from akx.core.plan import Plan
    from akx.cost.device_model import Figures
    from akx.plandb import PlanRecord

__all__ = ["SPY_CELLS", "MatrixReport", "report_matrix", "spy_counts"]

#: Cells in each direction of the counts in JSON, at most.
SPY_CELLS = 32
#: Nodes over rows from which on hardly any rows are of one node with the next; as many as are left must be like others.
_SINGLE = 2.0 / 3.0


@dataclass(frozen=True)
class MatrixReport:
    """What was found of one matrix.

    The class of the device of the predicted plan, to which the bounds belong, its bandwidths, and whether it was
    calibrated (else predictions go by guesses). Unknowns that belong together: `nodes`, side by side, or else
    `supervariables`. What layouts store, packets of an FPGA of this `clock` in Hz, and ghost zones. The plan that the
    database knows for a call with one start vector, and its layer; that of an untuned call, or the reason why there is
    none; bounds on the devices asked for.
    """

    device: str
    figures: Figures
    calibrated: bool
    nodes: Nodes
    supervariables: Supervariables | None
    layouts: tuple[FormatStorage, ...]
    packets: PacketSchedule
    clock: float
    ghosts: GhostGrowth
    tuned: PlanRecord | None
    layer: str
    plan: Plan | None
    reason: str
    device_bounds: tuple[DeviceBound, ...]

    def bounds(self, layout: FormatStorage) -> tuple[float, float]:
        """Gflop/s on this device, with x moved once and with x moved for every index."""
        rate = self.figures.bandwidth
        return layout.bound(rate(layout.moved)), layout.far_bound(rate(layout.moved))

    def to_json(self) -> dict[str, Any]:
        """The keys of ``akx info --json`` that this knows."""
        return {
            "bandwidth": {
                "device": self.device,
                "calibrated": self.calibrated,
                "memory": self.figures.slow_bandwidth,
                "last_level": self.figures.last_level_bandwidth,
                "last_level_bytes": self.figures.last_level_bytes,
            },
            "nodes": {
                "count": int(self.nodes.sizes.size),
                "by_size": self.sizes_of_nodes,
                "blocks": self.nodes.blocks,
                "values": self.nodes.slots,
            },
            "supervariables": None
            if self.supervariables is None
            else {
                "count": int(self.supervariables.sizes.size),
                "by_size": _by_size(self.supervariables.sizes),
                "blocks": int(self.supervariables.counts.sum(dtype=np.int64)),
            },
            "layouts": [self._layout(one) for one in self.layouts],
            "packets": {
                "slots": self.packets.slots,
                "least_set": self.packets.least,
                "packets": self.packets.packets,
                "utilisation": self.packets.utilisation,
                "clock": self.clock,
                "gflops": self.packets.gflops(self.clock),
            },
            "ghosts": self.ghosts.to_json(),
            "tuned": None
            if self.tuned is None
            else {
                "id": self.tuned.id,
                "layer": self.layer,
                "label": self.tuned.plan.label(),
                "seconds": self.tuned.seconds,
                "speedup": self.tuned.speedup,
            },
            "plan": None if self.plan is None else {"label": self.plan.label(), "plan": self.plan.to_json()},
            "devices": [one.to_json() for one in self.device_bounds],
        }

    @property
    def sizes_of_nodes(self) -> list[int]:
        """Nodes of 1, 2, ... 6 rows."""
        return _by_size(self.nodes.sizes)

    @property
    def sizes_of_supervariables(self) -> list[int]:
        """Supervariables of 1, 2, ... 6 rows; none where there are natural nodes."""
        return [] if self.supervariables is None else _by_size(self.supervariables.sizes)

    def _layout(self, one: FormatStorage) -> dict[str, Any]:
        bound, far_bound = self.bounds(one)
        return {
            "name": one.name,
            "values": one.values,
            "fill": one.fill,
            "bytes": one.nbytes,
            "bytes_per_entry": one.bytes_per_entry,
            "bound_gflops": bound,
            "far_bound_gflops": far_bound,
        }


def _by_size(sizes: NDArray[np.int64]) -> list[int]:
    found: list[int] = np.bincount(sizes, minlength=MOST + 1)[1:].tolist()
    return found


def _supervariables(pattern: Pattern, nodes: Nodes) -> Supervariables | None:
    """Those of a pattern of which few rows are of one node with the next, and many are like another one."""
    if nodes.sizes.size < _SINGLE * pattern.rows or twins(pattern) < 1.0 - _SINGLE:
        return None
    return supervariables(pattern)


def report_matrix(
    matrix: Matrix,
    k: int,
    devices: Sequence[Device] = (),
    *,
    blocks: int | None = None,
    slots: int = SLOTS,
    clock: float = FPGA_CLOCK,
) -> MatrixReport:
    """Find all of it for `k` powers on this machine, and what products would do on `devices`.

    `blocks` are those of the ghost zones (:func:`akx.report.matrix.ghost_growth.ghost_growth`), `slots` those of a
    packet, at least 1, and `clock` that of the FPGA that takes a packet a cycle, in Hz.
    """
    backend = resolve_backend("auto")
    plan, reason = None, ""
    try:
        plan = predict(matrix, k)
        backend = plan.backend
    except InfeasibleError as problem:
        reason = str(problem)
    device, threads = device_of(backend), plan_threads(backend)
    figures = figures_of(device, threads)
    calibrated = figures != derived_figures(device, threads)
    lookup = shared_database().find(plan_key(matrix, k, backend=backend))
    tuned = usable(lookup.record, matrix, device, threads)
    pattern = pattern_of(matrix)
    nodes = natural_nodes(pattern, matrix.dtype.itemsize)
    layouts = format_storages(matrix.indptr, matrix.indices, matrix.dtype.itemsize, nodes)
    packets = schedule_rows(matrix.indptr, slots=slots)
    published = packets if slots == SLOTS else schedule_rows(matrix.indptr)
    return MatrixReport(
        device=device.device_class,
        figures=figures if calibrated else best_figures(device, threads),
        calibrated=calibrated,
        nodes=nodes,
        supervariables=_supervariables(pattern, nodes),
        layouts=layouts,
        packets=packets,
        clock=clock,
        ghosts=ghost_growth(matrix, k, blocks),
        tuned=tuned,
        layer="" if tuned is None else lookup.layer,
        plan=plan,
        reason=reason,
        device_bounds=tuple(device_bound(one, layouts, published) for one in devices),
    )


def spy_counts(matrix: Matrix, most: int = SPY_CELLS) -> list[list[int]]:
    """Entries on a grid of at most `most` cells in each direction."""
    side = min(matrix.n, most)
    counts: list[list[int]] = cell_counts(matrix.indptr, matrix.indices, side, side).tolist()
    return counts
