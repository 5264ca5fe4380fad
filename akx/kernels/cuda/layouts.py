"""What preparing a plan for a GPU does on the host, without a GPU: the matrix in the plan's layout, then thrown away.

Numba compiles the functions that lay matrices out when they are first called. This calls them: what is compiled here is
in Numba's cache for every other process (:mod:`akx.tuner.precompile`).
"""

from __future__ import annotations

from akx.device.cuda.facts import CudaDevice
from akx.kernels.cuda import diagonals, hubs, sweep, vbell, wavefront
from akx.kernels.cuda.ghost import lay_out_ghost
from akx.kernels.cuda.parts import active_slices, shape_of
from akx.kernels.cuda.resident import lay_out_resident
from akx.matrix import Matrix
from akx.plan import Plan

__all__ = ["lay_out"]


def lay_out(plan: Plan, matrix: Matrix, device: CudaDevice) -> None:
    """Lay a matrix out for a feasible plan. Raises what `prepare` would; nothing for a schedule without a layout."""
    if plan.schedule == "sweep":
        _lay_out_sweep(plan, matrix, device)
    elif plan.schedule == "resident" and plan.variant == diagonals.DIA:
        diagonals.lay_out(matrix, plan, device)
    elif plan.schedule == "resident":
        _, zones = lay_out_resident(matrix, plan, device)
        if zones is not None:
            active_slices(zones, shape_of(plan), int(plan.option("depth", 1)))
    elif plan.schedule == "ghost":
        lay_out_ghost(matrix, plan, device)
    elif plan.schedule == "wavefront":
        wavefront.front_of(matrix, plan, device)


def _lay_out_sweep(plan: Plan, matrix: Matrix, device: CudaDevice) -> None:
    kind, lanes, _ = sweep._kind(plan.variant)
    if kind == sweep._VBELL:
        vbell.reason_against(matrix, lanes)  # the device lays it out
    elif kind == sweep._HUBS:
        hubs.lay_out(matrix, int(plan.option("hubs", hubs.ROOM)), device.sms)
    elif kind != sweep._CSR:
        sweep.lay_out(matrix, plan)
