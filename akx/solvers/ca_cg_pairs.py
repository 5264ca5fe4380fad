"""Blocks of conjugate gradients from two start vectors, for systems that end those of :mod:`akx.solvers.ca_cg` early.

A block that begins with r and the directions before takes their images from the block before, and errors go on from
block to block: it has to end where a residual is a small part of the terms it is made of, at about 1/30. A block that
begins with p and r has nothing of the block before but these two, as a step of CG has, and CG does with more: relative
errors of 1e-12 in each r cost bodyy5, bcsstk16 and 662_bus 0 to 5% more steps. The price is a second product for each
step, in the same pass over the matrix:

    1.  Y = [p_0(A) p, p_0(A) r, .., p_s(A) p, p_s(A) r] by matrix powers of two vectors, A Y c = Y B c
    2.  G = Y^H Y                                                                  one reduction
    3.  on coordinates, p = Y p', r = Y r', x = x_m + Y x', as often as they can be trusted, s times at most:
            alpha = r'^H G r' / p'^H G B p',   x' += alpha p',   r'_next = r' - alpha B p'
            beta = r'_next^H G r'_next / r'^H G r',   p'_next = r'_next + beta p'
    4.  p, r, x from their coordinates in one pass over Y

Rounding errors of r are eps (|r'|, |y|), |y| being the norms of the rows of Y, and those of alpha and beta eps times
the square of (|r'|, |y|) / ||r||. CG with alpha and beta wrong by 1e-10 takes up to 12% more steps (662_bus), so the
block ends before a step for which the ratio is above eps^(-1/4) / 8, 1e3 in double precision. Where few steps are
left s is halved, and doubled again after some full blocks.

The basis is Newton's with shifts in Leja order from the smallest Ritz value on. Late in a solve p and r consist of
the eigenvectors of small eigenvalues, which Chebyshev polynomials of all of the interval, or a first shift at its
other end, only turn round: v_1 is -v_0 but for a small part, and that part is what A p is made of. Steps a pass at s
= 8 with it and with Chebyshev's: nasa4704 with Jacobi 7.1 and 2.2, bcsstk18 with Jacobi 6.1 and 4.0, bodyy5 4.7 and
3.5, bcsstk16 4.3 and 1.1, 662_bus 2.5 and 1.0.

Words moved for s steps, in n: 2 s + 2 written by the powers, 2 s + 2 read for G, 2 s + 2 read and 3 written in step 4,
which reads x too: 6 s + 10, where s steps of CG move 12 s and the matrix s times.

Source: M. Hoemmen, Communication-avoiding Krylov subspace methods, thesis, Berkeley 2010, sec. 5.4; E. Carson, The
adaptive s-step conjugate gradient method, SIAM J. Matrix Anal. Appl. 39 (2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PairPace", "PairSteps", "pair_steps", "trusted"]

#: Full blocks after which s is doubled, and ordinary steps where not even two could be done, twice as many each time.
_GOOD, _ORDINARY = 4, 64


@dataclass(frozen=True)
class PairSteps:
    """What a block did: coordinates (2 s + 2,) of x, p and r, and the norm of r and CG's coefficients of each step."""

    x: NDArray[Any]
    p: NDArray[Any]
    r: NDArray[Any]
    norms: list[float]
    alphas: list[float]
    betas: list[float]


def trusted(eps: float) -> float:
    """How many times the norm of r its terms may be, in norm."""
    return float(eps**-0.25) / 8


def pair_steps(G: NDArray[Any], B: NDArray[Any], most: int, target: float, limit: float) -> PairSteps:
    """Up to `most` steps of CG, to a residual's norm of `target`.

    Parameters
    ----------
    G : (2 s + 2, 2 s + 2) array of float64 or complex128
        The Gram matrix of Y, its rows p_0(A) p, p_0(A) r, p_1(A) p, ...
    B : (s + 1, s) array
        Of the basis.
    limit : float
        The terms of r, in norm, may be so many times as large as r.
    """
    s = B.shape[1]
    sizes = np.sqrt(np.abs(G.diagonal().real))
    x, p, r = np.zeros((3, s + 1, 2), dtype=np.result_type(G, B))
    p[0, 0] = r[0, 1] = 1
    gamma = G[1, 1].real
    norms: list[float] = []
    alphas: list[float] = []
    betas: list[float] = []
    for _ in range(most):
        w = B @ p[:s]
        curvature = np.vdot(p, G @ w.reshape(-1)).real
        if not curvature > 0:
            break
        alpha = gamma / curvature
        after = r - alpha * w
        square = np.vdot(after, G @ after.reshape(-1)).real
        if not (np.abs(after.reshape(-1)) @ sizes) ** 2 <= limit**2 * square:
            break
        beta = square / gamma
        x, r, p = x + alpha * p, after, after + beta * p
        gamma = square
        norms.append(float(np.sqrt(square)))
        alphas.append(float(alpha))
        betas.append(float(beta))
        if norms[-1] <= target:
            break
    return PairSteps(x.reshape(-1), p.reshape(-1), r.reshape(-1), norms, alphas, betas)


class PairPace:
    """The s of the next block, `most` or a half, a quarter, .. of it; 1 for ordinary steps."""

    def __init__(self, most: int) -> None:
        self.s = self._most = most
        self._good, self._patience = 0, _ORDINARY

    def count(self, made: int) -> None:
        """A block of so many steps, or an ordinary step, was done."""
        if self.s > 1 and 2 * made <= self.s:
            self.s //= 2
            self._good = 0
            return
        self._good = self._good + 1 if made == self.s else 0
        enough = _GOOD if self.s > 1 else self._patience
        if self.s < self._most and self._good >= enough:
            self._patience *= 1 if self.s > 1 else 2
            self.s, self._good = min(self._most, 2 * self.s), 0
