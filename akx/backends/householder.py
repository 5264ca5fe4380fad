"""Orthonormal rows by Householder reflections, in host memory: for the few blocks that are no matter for Cholesky."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["orthonormal_rows"]


def orthonormal_rows(V: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Q (s, n) with orthonormal rows and R (s, s), upper triangular with a real diagonal >= 0: V^T = Q^T R."""
    columns, upper = np.linalg.qr(V.T)
    diagonal = np.diagonal(upper)
    phase = np.where(diagonal == 0, 1, diagonal / np.where(diagonal == 0, 1, np.abs(diagonal)))
    return np.ascontiguousarray((columns * phase).T), np.asarray(upper * phase.conj()[:, None])
