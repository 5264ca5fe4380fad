"""What a clock times: calls of plans on the same vectors, of the host or of the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from akx import Matrix, MatrixPowers
from akx.core.plan import Plan
from akx.tuner.measure import Measurement, Precision
from benchmarks import gpu
from benchmarks.calm import Calm
from benchmarks.contest import start_vector

__all__ = ["PLACES", "calls_of", "in_places"]

#: Places of memory in which plans are timed.
PLACES = {"cpu": 1, "cuda": 3}


def calls_of(backend: str, matrix: Matrix, k: int, plans: Sequence[Plan]) -> list[Any]:
    """What the tuner's clock times: calls of plans on the same vectors, of the host or of the device."""
    if backend != "cpu":
        return list(gpu.calls_of(matrix, k, plans))
    x = start_vector(matrix.n, matrix.dtype)
    powers = np.zeros((k + 1, matrix.n), dtype=matrix.dtype)
    return [partial(MatrixPowers(matrix, k, plan=plan, backend="cpu"), x, out=powers.T) for plan in plans]


def in_places(
    backend: str, matrix: Matrix, k: int, plans: Sequence[Plan], calm: Calm, precision: Precision
) -> tuple[list[Measurement], bool]:
    """Plans timed in turns, on a GPU as many rounds in each place of memory, and whether the times were calm."""
    held, samples = [], [list[float]() for _ in plans]
    was_calm = True
    for _ in range(PLACES[backend]):
        held.append(calls_of(backend, matrix, k, plans))  # those before stay alive, so that these lie elsewhere
        found, was_calm = calm.timed(held[-1], precision)
        for one, several in zip(found, samples, strict=True):
            several += one.samples
        rounds = len(found[0].samples)
        precision = replace(precision, rounds_min=rounds, rounds_max=rounds)
    return [Measurement.of(several) for several in samples], was_calm
