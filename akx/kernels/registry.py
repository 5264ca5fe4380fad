"""The registry of schedules: one line per schedule, imported only when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from akx.errors import ArgumentError
from akx.kernels.base import Schedule
from akx.kernels.traits import VariantTraits
from akx.matrix import Matrix
from akx.plan import Plan

__all__ = ["backends", "get", "modules", "schedules", "stored_error", "variant_traits", "variants_with"]

#: (backend, schedule) -> "module:object". A new schedule is one new module and one line here.
_SCHEDULES: dict[tuple[str, str], str] = {
    ("cpu", "sweep"): "akx.kernels.cpu.sweep:SCHEDULE",
    ("cpu", "ghost"): "akx.kernels.cpu.ghost:SCHEDULE",
    ("cpu", "wavefront"): "akx.kernels.cpu.wavefront:SCHEDULE",
    ("cuda", "sweep"): "akx.kernels.cuda.sweep:SCHEDULE",
    ("cuda", "ghost"): "akx.kernels.cuda.ghost:SCHEDULE",
    ("cuda", "resident"): "akx.kernels.cuda.resident:SCHEDULE",
    ("cuda", "wavefront"): "akx.kernels.cuda.wavefront:SCHEDULE",
    ("cuda", "stream"): "akx.kernels.cuda.stream:SCHEDULE",
}

#: backend -> the module with what it declares of its variants, as VARIANTS.
_VARIANTS = {"cpu": "akx.kernels.cpu.variants"}
_NOTHING = VariantTraits()


def backends() -> tuple[str, ...]:
    """The names of the backends that have at least one schedule."""
    return tuple(dict.fromkeys(backend for backend, _ in _SCHEDULES))


def get(backend: str, name: str) -> Schedule:
    """The schedule `name` of `backend`. Raises :class:`ArgumentError` where there is none."""
    target = _SCHEDULES.get((backend, name))
    if target is None:
        known = ", ".join(f"{b}/{s}" for b, s in _SCHEDULES)
        raise ArgumentError("unknown schedule", expected=f"one of {known}", found=f"{backend}/{name}")
    module, attribute = target.split(":")
    schedule: Schedule = getattr(import_module(module), attribute)
    return schedule


def modules(backend: str) -> dict[str, str]:
    """The module of every schedule of `backend`, by its name; none is imported."""
    return {name: target.partition(":")[0] for (b, name), target in _SCHEDULES.items() if b == backend}


def schedules(backend: str) -> tuple[Schedule, ...]:
    """Every schedule of `backend`, in the order of the registry."""
    return tuple(get(b, name) for b, name in _SCHEDULES if b == backend)


def variant_traits(backend: str, variant: str) -> VariantTraits:
    """What a backend declares of an SpMV variant; nothing is declared of most."""
    return _declared(backend).get(variant, _NOTHING)


def variants_with(backend: str, trait: str) -> tuple[str, ...]:
    """The variants of a backend that are declared with a trait, by name."""
    return tuple(name for name, one in _declared(backend).items() if getattr(one, trait))


def _declared(backend: str) -> Mapping[str, VariantTraits]:
    target = _VARIANTS.get(backend)
    if target is None:
        return {}
    found: Mapping[str, VariantTraits] = import_module(target).VARIANTS
    return found


def stored_error(schedule: Schedule, plan: Plan, matrix: Matrix, device: Any) -> float:
    """The largest relative error of a value of `matrix` as a feasible plan stores it, measured.

    0 for all that store values as they are, and wherever the matrix allows no error: nothing is looked at then.
    """
    return float(schedule.stored_error(plan, matrix, device)) if matrix.value_error else 0.0
