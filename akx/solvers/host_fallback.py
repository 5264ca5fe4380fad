"""Vectors of the GPU taken to the host and answered in kind, for what a GPU has no room for."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.selection import array_backend, backend_of
from akx.core.errors import BudgetError, DeviceMemoryError, InfeasibleError, PlanError
from akx.operator.start_vectors import is_on_device

__all__ = ["TOO_MUCH", "answer_in_kind", "callback_in_kind", "of_host"]

#: What is raised where a matrix and its vectors are too much for a GPU.
TOO_MUCH = (PlanError, InfeasibleError, BudgetError, DeviceMemoryError)


def of_host(v: Any, name: str) -> Any:
    """A vector of the GPU copied to the host; anything else as it is."""
    if not is_on_device(v):
        return v
    interchange = backend_of(array_backend()).interchange()
    shape = interchange.shape_of(v)
    return interchange.vector_of(v, prod(shape), interchange.dtype_of(v), name).get().reshape(shape)


def answer_in_kind(given: Any, x: NDArray[Any]) -> Any:
    """x where the caller's right-hand side was, and in kind; x itself where `given` is None."""
    if given is None:
        return x
    gpu = backend_of(array_backend())
    return gpu.interchange().answer_like(given, gpu.to_device(x.reshape(-1)), x.shape)


def callback_in_kind(given: Any, callback: Callable[[Any], object] | None) -> Callable[[Any], object] | None:
    """The callback of a caller whose right-hand side is on the GPU, for a solver of the host."""
    if callback is None:
        return None
    return lambda value: callback(answer_in_kind(given, value) if np.ndim(value) else value)
