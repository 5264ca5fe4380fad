"""Random and awkward patterns for the partition tests, and brute-force oracles in dense booleans."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st


def random_pattern(n: int, density: float, seed: int, *, symmetric: bool = False, wide: bool = False) -> sp.csr_array:
    """A random pattern with some empty rows; values are 1."""
    rng = np.random.default_rng(seed)
    dense = rng.random((n, n)) < density
    dense[rng.random(n) < 0.1] = False
    if symmetric:
        dense |= dense.T
    return from_dense(dense, wide=wide)


def from_dense(dense: np.ndarray, *, wide: bool = False) -> sp.csr_array:
    A = sp.csr_array(dense.astype(np.float64))
    A.sort_indices()
    kind = np.int64 if wide else np.int32
    A.indptr, A.indices = A.indptr.astype(kind), A.indices.astype(kind)
    return A


def as_bool(A: sp.csr_array) -> np.ndarray:
    return A.toarray() != 0


def grid_9pt(m: int) -> sp.csr_array:
    line = sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(m, m))
    return sp.csr_array(sp.kron(line, line))


@st.composite
def patterns(draw: st.DrawFn, *, most: int = 40) -> sp.csr_array:
    """Any pattern: one row, empty rows, disconnected, nonsymmetric, dense rows; either index width."""
    n = draw(st.integers(1, most))
    density = draw(st.sampled_from([0.0, 0.02, 0.08, 0.3]))
    seed = draw(st.integers(0, 2**31))
    A = random_pattern(n, density, seed, symmetric=draw(st.booleans()), wide=draw(st.booleans()))
    if draw(st.booleans()):  # one dense row and one dense column
        dense = as_bool(A)
        dense[seed % n] = True
        if draw(st.booleans()):
            dense[:, (seed // 7) % n] = True
        A = from_dense(dense, wide=A.indices.dtype == np.int64)
    return A
