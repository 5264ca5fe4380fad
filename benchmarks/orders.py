"""A matrix with its rows and columns in another order: at random, or field by field."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

__all__ = ["by_fields", "permuted", "shuffled"]


def permuted(A: Any, order: Any) -> sparse.csr_array:
    """P A P^T with rows and columns in this order, columns of a row ascending."""
    found = sparse.csr_array(sparse.csr_array(A)[order][:, order])
    found.sort_indices()
    return found


def shuffled(A: Any, seed: int = 0) -> sparse.csr_array:
    """P A P^T with a random P."""
    return permuted(A, np.random.default_rng(seed).permutation(A.shape[0]))


def by_fields(A: Any, unknowns: int) -> sparse.csr_array:
    """P A P^T with the first unknowns of all nodes, then the second ones, and so on."""
    return permuted(A, np.arange(A.shape[0]).reshape(-1, unknowns).T.ravel())
