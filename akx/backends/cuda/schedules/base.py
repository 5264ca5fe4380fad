"""What schedules of the GPU share: their `search` and `cost` are modules of their packages, imported when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.schedule import Parameter, Schedule, Work
from akx.core.matrix import Matrix
from akx.core.plan import Plan

__all__ = ["CudaSchedule", "misnamed"]


class CudaSchedule(Schedule):
    """A schedule in a package of its name, with a module `search` and, unless it says so itself, a module `cost`."""

    backend = "cuda"

    def _module(self, name: str) -> Any:
        return import_module(f"{__package__}.{self.name}.{name}")

    def against(self, plan: Plan, matrix: Matrix, device: CudaDevice) -> str | None:
        """Why a plan is not possible, or what it has no use for; None of one that may be tried."""
        return self.feasible(plan, matrix, device) or self.waste(plan, matrix, device)

    def space(self, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Parameter, ...]:
        found: tuple[Parameter, ...] = self._module("search").space(self, matrix, device, k)
        return found

    def starts(self, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...]:
        found: tuple[Plan, ...] = self._module("search").starts(self, matrix, device, k)
        return found

    def heuristic_plans(self, matrix: Matrix, device: CudaDevice, k: int) -> tuple[Plan, ...] | None:
        found: tuple[Plan, ...] | None = self._module("search").heuristic_plans(self, matrix, device, k)
        return found

    def work(self, plan: Plan, matrix: Matrix, device: CudaDevice, vectors: int) -> Work | None:
        found: Work | None = self._module("cost").work(plan, matrix, device, vectors)
        return found


def misnamed(plan: Plan, orders: Sequence[str], variants: Sequence[str] | None = None) -> str | None:
    """Why the plan's backend, order of the rows or variant is none of these, or None."""
    if plan.backend != "cuda":
        return f"this schedule runs on cuda, not on {plan.backend}"
    if plan.partitioner not in orders:
        expected = orders[0] if len(orders) == 1 else f"one of {', '.join(orders)}"
        return f"no partitioner {plan.partitioner!r} here, expected {expected}"
    if variants is not None and plan.variant not in variants:
        return f"unknown variant {plan.variant!r}, known are {', '.join(variants)}"
    return None
