"""Lanczos' process, s steps for each pass over the matrix, with vectors of two blocks: eigenvalues of a grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import eigsh

import akx


def ca_lanczos(A: Any, v: Any, steps: int, s: int, interval: tuple[float, float]) -> Any:
    """T (m, m), tridiagonal, m >= steps, for a symmetric A with its eigenvalues in an interval."""
    Q, T = v[:, None] / np.linalg.norm(v), np.zeros((1, 0))
    basis = akx.krylov.chebyshev(s, interval)
    while T.shape[1] < steps:
        V = akx.matrix_powers(A, Q[:, -1], s, basis=basis)  # (n, s + 1), in one pass over A
        new, near, R = akx.krylov.orthonormalize(V[:, 1:], Q)
        C = np.zeros((len(T), s))
        C[-len(near) :] = near  # nothing of the vectors before, which need not be kept
        T = akx.krylov.extend_hessenberg(T, C, R, basis.matrix())
        Q = np.hstack([Q, new])[:, -s - 1 :]
    T = T[:-1]
    return np.diag(np.diag(T)) + np.diag(np.diag(T, -1), -1) + np.diag(np.diag(T, -1), 1)


if __name__ == "__main__":
    L = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(30, 30))
    A = sp.csr_array(sp.kron(L, sp.eye_array(30)) + 2 * sp.kron(sp.eye_array(30), L))
    T = ca_lanczos(A, np.random.default_rng(0).standard_normal(900), steps=120, s=6, interval=(0.0, 12.0))
    print(f"{len(T)} steps, largest eigenvalues:", np.linalg.eigvalsh(T)[-3:])
    print("                      of SciPy's eigsh:", np.sort(eigsh(A, 3, which="LA", return_eigenvectors=False)))
