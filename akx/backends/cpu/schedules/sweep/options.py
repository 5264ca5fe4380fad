"""The options of `sweep` on the CPU: every variant, order of the rows and number of threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from akx.backends import registry
from akx.backends.cpu.search_space import common_parameters
from akx.backends.host import HostDevice
from akx.backends.schedule import Parameter
from akx.backends.variant import AnyVariant
from akx.core.matrix import Matrix

__all__ = ["space"]


def space(matrix: Matrix, device: HostDevice, k: int) -> tuple[Parameter, ...]:
    """The tuning parameters (:meth:`akx.backends.schedule.Schedule.space`)."""
    parameters = common_parameters(matrix, device)
    others = [one for one in registry.variants("cpu") if one.reason_against(matrix) is None]
    return tuple(_with(one, others) if others and one.name == "variant" else one for one in parameters)


def _with(parameter: Parameter, others: Sequence[AnyVariant]) -> Parameter:
    """With the variants of other packages."""
    told = "; ".join([parameter.description, *(f"{one.name}: {one.description}" for one in others)])
    return replace(parameter, choices=(*parameter.choices, *(one.name for one in others)), description=told)
