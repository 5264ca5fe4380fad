"""What communication-avoiding MINRES does in coordinates: s steps of Lanczos' process, with small matrices.

Coordinates are those of Z = [q_{k-h+1} .. q_k, v_1 .. v_s]: the last h Lanczos vectors, and the basis of the next s
steps, v_0 = q_k. Nothing here touches a vector of n entries, and all of it is in double precision.

Errors. Let F_i = A q_i - beta_i q_{i-1} - alpha_i q_i - beta_{i+1} q_{i+1}. A q_i of the vectors before is by T, so
that a new vector with coordinates c in those has, beside its own rounding errors, F = sum_i c_i F_i. They are handed
on from block to block, and grow: by some percent each, or many times where a basis is bad. Coordinates are known, so
their sizes are too: with K = E[F^H F], of columns that are there, and errors of rounding that are independent,

    K' = c K c^H + ||rounding||^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["TRUST", "Block", "lanczos_block"]

#: The square of the length of a new vector counts where it is at least this share of the sum of its terms' moduli.
TRUST = 1e-4


@dataclass(frozen=True)
class Block:
    """Steps done in coordinates: q_k .. q_{k+made} in `vectors` (made + 1, h + s), and columns of T.

    `alphas` (made,) are the entries of its diagonal from the k-th on, `betas` (made,) those below them, `errors`
    (h - 1 + made, h - 1 + made) is K with those of the new columns behind; `is_worn` that these
    ended the block.
    """

    vectors: NDArray[Any]
    alphas: list[float]
    betas: list[float]
    errors: NDArray[Any]
    is_worn: bool


def lanczos_block(
    G: NDArray[Any],
    B: NDArray[Any],
    alphas: NDArray[np.float64],
    betas: NDArray[np.float64],
    errors: NDArray[Any],
    eps: float,
    most: float,
) -> Block:
    """Up to s steps, as far as their inner products can be trusted and errors are no more than `most`.

    Parameters
    ----------
    G : (h + s, h + s) array of float64 or complex128
        The Gram matrix of Z; h is s + 1, or the number of all vectors so far where these are fewer.
    B : (s + 1, s) array
        A [v_0 .. v_{s-1}] = [v_0 .. v_s] B.
    alphas, betas : (h - 1,) arrays
        Of T, for q_{k-h+1} .. q_{k-1}: on its diagonal, and below that.
    errors : (h - 1, h - 1) array
        K, for these.
    eps : float
        Of the vectors.
    """
    s = B.shape[1]
    h = len(G) - s
    # A of the first h + s - 1 columns of Z, by T and by B
    image = np.zeros((h + s, h + s - 1), dtype=G.dtype)
    before = np.arange(h - 1)
    image[before, before], image[before + 1, before] = alphas, betas
    image[before[:-1], before[1:]] = betas[:-1]
    image[h - 1 :, h - 1 :] = B
    moduli = np.abs(G)
    q = np.zeros((s + 1, h + s), dtype=G.dtype)
    q[0, h - 1] = 1
    diagonal, below, rounding = list[float](), list[float](), list[float]()
    is_worn = False
    for j in range(s):
        u = image @ q[j, :-1]
        alpha = float(np.vdot(q[j], G @ u).real)
        u -= alpha * q[j]
        if j:
            u -= below[-1] * q[j - 1]
        elif h > 1:
            u[h - 2] -= betas[-1]
        square, size = float(np.vdot(u, G @ u).real), np.abs(u)
        terms = float(size @ moduli @ size)
        if not square > TRUST * terms:
            break
        c, beta = q[j, : h - 1], square**0.5
        rounding.append(eps**2 * terms)
        is_worn = not float((c @ errors @ c.conj()).real) + rounding[-1] <= most**2
        if is_worn:
            break
        q[j + 1] = u / beta
        diagonal.append(alpha)
        below.append(beta)
    made = len(below)
    C = np.concatenate([np.eye(h - 1), q[:made, : h - 1]])
    errors = C @ errors @ C.conj().T
    new = np.arange(h - 1, h - 1 + made)
    errors[new, new] += rounding[:made]
    return Block(q[: made + 1], diagonal, below, errors, is_worn)
