"""Arnoldi's process, s steps for each pass over the matrix: eigenvalues of a convection-diffusion matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

import akx


def ca_arnoldi(A: Any, v: Any, steps: int, s: int) -> tuple[Any, Any]:
    """Q (n, m + 1), orthonormal, and H (m + 1, m) with A Q[:, :m] = Q H, m >= steps."""
    Q, H = v[:, None] / np.linalg.norm(v), np.zeros((1, 0))
    basis = akx.krylov.monomial(1)  # ordinary steps, until eigenvalues are known about
    while H.shape[1] < steps:
        V = akx.matrix_powers(A, Q[:, -1], basis.k, basis=basis)  # (n, k + 1), in one pass over A
        new, C, R = akx.krylov.orthonormalize(V[:, 1:], Q)
        good = np.count_nonzero(akx.krylov.condition_estimates(R, C) < 1e7)
        if good == 0:  # an invariant space
            break
        H = akx.krylov.extend_hessenberg(H, C[:, :good], R[:good, :good], basis.matrix())
        Q = np.hstack([Q, new[:, :good]])
        if H.shape[1] == 2 * s:
            basis = akx.krylov.basis_from_ritz("newton", np.linalg.eigvals(H[:-1]), s)
    return Q, H


if __name__ == "__main__":
    T = sp.diags_array([-1.3, 2.0, -0.7], offsets=[-1, 0, 1], shape=(20, 20))
    A = sp.csr_array(sp.kron(T, sp.eye_array(20)) + 0.7 * sp.kron(sp.eye_array(20), T))
    Q, H = ca_arnoldi(A, np.random.default_rng(0).standard_normal(400), steps=100, s=6)
    print(f"{H.shape[1]} steps, A Q_m - Q H: {np.linalg.norm(A @ Q[:, :-1] - Q @ H):.1e}")
    print("largest eigenvalues:", np.sort(np.linalg.eigvals(H[:-1]).real)[-3:])
    print("     of the matrix: ", np.sort(np.linalg.eigvals(A.toarray()).real)[-3:])
