"""The small part of CA-BiCGStab: s steps on coordinates in a basis, and Ritz values from the steps.

See :mod:`akx.solvers.ca_bicgstab` for the algorithm and the meaning of the symbols.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.basis import Basis

__all__ = ["Coordinates", "ritz_values"]


class Coordinates:
    """The s steps on coordinates: step 3 of the algorithm."""

    def __init__(
        self, basis: Basis, G: NDArray[Any], g: NDArray[Any], limit: float, target: float, noise: float, tiny: float
    ) -> None:
        m = G.shape[0]
        dtype = np.result_type(G.dtype, basis.a.dtype)
        self.B = np.zeros((m, m), dtype=dtype)
        self.B[:, : m - 2] = np.kron(basis.matrix(), np.eye(2))
        self.G, self.g = G.astype(dtype), g.astype(dtype)
        self.sizes = np.sqrt(np.abs(np.diagonal(G).real))
        self.limit, self.target, self.noise = limit, target, noise
        self.tiny = tiny
        self.p, self.r, self.x = np.zeros((3, m), dtype=dtype)
        self.p[0] = self.r[1] = 1
        self.alphas: list[complex] = []
        self.betas: list[complex] = []
        self.norm = float(self.sizes[1])
        self.worst = 0.0
        self.stopped = False

    def steps(self, most: int) -> tuple[int, str]:
        """Up to so many steps: how many were done, and the name of a breakdown; ended early where it converged."""
        B, G, g = self.B, self.G, self.g
        rho = g @ self.r
        for j in range(most):
            if abs(rho) <= self.noise * self.norm:
                return j, "rho"
            Bp = B @ self.p
            rv = g @ Bp
            alpha = rho / rv if rv != 0 else np.inf
            if not np.isfinite(alpha):
                return j, "alpha"
            q = self.r - alpha * Bp
            Gq = G @ q
            x = self.x + alpha * self.p
            norm_q = self._norm(q, Gq)
            if norm_q is None:
                return self._stop(j)
            if norm_q <= self.target:
                self._take(self.p, q, x, norm_q)
                return j + 1, ""
            t = B @ q
            tt, ts = np.vdot(t, G @ t).real, np.vdot(t, Gq)
            if not tt > 0:
                return self._stop(j)
            if abs(ts) <= self.tiny * norm_q * np.sqrt(tt):
                self._take(self.p, q, x, norm_q)
                return j + 1, "omega"
            omega = ts / tt
            r = q - omega * t
            norm_r = self._norm(r, G @ r)
            if norm_r is None:
                return self._stop(j)
            following = g @ r
            beta = following / rho * alpha / omega
            p = r + beta * (self.p - omega * Bp)
            self._take(p, r, x + omega * q, norm_r)
            self.alphas.append(alpha)
            self.betas.append(beta)
            rho = following
            if norm_r <= self.target:
                return j + 1, ""
        return most, ""

    def _norm(self, c: NDArray[Any], Gc: NDArray[Any]) -> float | None:
        """||Y c||, or None where the amplification says that it cannot be known."""
        square, upper = np.vdot(c, Gc).real, float(np.abs(c) @ self.sizes)
        self.worst = upper / float(np.sqrt(square)) if square > 0 else float("inf")
        return float(np.sqrt(square)) if self.worst <= self.limit else None

    def _stop(self, done: int) -> tuple[int, str]:
        self.stopped = True
        return done, ""

    def _take(self, p: NDArray[Any], r: NDArray[Any], x: NDArray[Any], norm: float) -> None:
        self.p, self.r, self.x, self.norm = p, r, x, norm


def ritz_values(alphas: list[complex], betas: list[complex], largest: float) -> NDArray[Any]:
    """The eigenvalues of BiCG's tridiagonal matrix that can be eigenvalues of A: not beyond its norm."""
    m = len(alphas)
    if m == 0:
        return np.zeros(0)
    a, beta = 1 / np.array(alphas), np.array(betas)
    # A r_j = (1/alpha_j + beta_{j-1}/alpha_{j-1}) r_j - r_{j+1}/alpha_j - (beta_{j-1}/alpha_{j-1}) r_{j-1}
    back = beta[:-1] * a[:-1]
    T = np.diag(a) - np.diag(a[:-1], -1) - np.diag(back, 1)
    T[np.arange(1, m), np.arange(1, m)] += back
    if not np.isfinite(T).all():
        return np.zeros(0)
    found = np.linalg.eigvals(T)
    kept: NDArray[Any] = found[np.abs(found) <= largest]
    return kept
