"""What a clock times: calls of plans on the same vectors, of the host or of the device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from akx import Matrix, MatrixPowers
from akx.plan import Plan
from benchmarks import gpu
from benchmarks.contest import start_vector

__all__ = ["calls_of"]


def calls_of(backend: str, matrix: Matrix, k: int, plans: Sequence[Plan]) -> list[Any]:
    """What the tuner's clock times: calls of plans on the same vectors, of the host or of the device."""
    if backend != "cpu":
        return list(gpu.calls_of(matrix, k, plans))
    x = start_vector(matrix.n, matrix.dtype)
    powers = np.zeros((k + 1, matrix.n), dtype=matrix.dtype)
    return [partial(MatrixPowers(matrix, k, plan=plan, backend="cpu"), x, out=powers.T) for plan in plans]
