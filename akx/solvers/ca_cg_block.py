"""What communication-avoiding CG does in coordinates: s steps with small matrices, and Ritz values from coefficients.

Coordinates are those of U = [A p_1 .. A p_h, v_0 .. v_s]: images of the directions before, A-orthonormal, and the basis
of the s next steps, v_0 = r. Nothing here touches a vector of n entries. All of it is in double precision, whatever the
vectors are in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.basis import Basis
from akx.core.numba_jit import jit_later
from akx.krylov.bases import basis_of
from akx.solvers.stats import SolveStats

__all__ = ["PIVOT", "TRUST", "Block", "Pace", "Shifts", "block_steps", "local_recurrences", "ritz_of"]

#: What is left of a vector of the basis, in the norm of A squared, when the directions before are taken out of it: a
#: smaller share ends the block. Directions are then conjugate to 100 eps, nearly as those of CG.
PIVOT = 1e-2
#: The residual's norm counts where its square is at least this share of the sum of its terms' moduli.
TRUST = 1e-3
#: Blocks in a row without an early end, after which s is doubled.
_GOOD = 6
#: Of LAPACK's dstebz: eigenvalues by their places.
_BY_INDEX = 2
#: Coefficients that are kept: the largest Ritz values of so many steps have long settled.
_KEPT = 128


@dataclass(frozen=True)
class Block:
    """Steps done in coordinates.

    New directions have coordinates `old` (made, h) in those before, and `new` (made, s + 1) in v_0 .. v_s; their images
    have the same `old` ones in the images before, and `images` (made, s + 1). x moves `lengths` (made,) along them.
    `norms` (made,) are the residual's after each step, `alphas` and `betas` the coefficients that CG has.
    """

    made: int
    old: NDArray[Any]
    new: NDArray[Any]
    images: NDArray[Any]
    lengths: NDArray[Any]
    norms: NDArray[np.float64]
    alphas: NDArray[np.float64]
    betas: NDArray[np.float64]

    def rows(self) -> NDArray[Any]:
        """C (2 h + 2, 3 h + 1) for W = [p_1 .. p_h, A p_1 .. A p_h, v_0 .. v_h]: the change of x, new W up to r.

        The newest h directions stay, those before included where fewer are new.
        """
        h, made = self.old.shape[1], self.made
        C = np.zeros((2 * h + 2, 3 * h + 1), dtype=self.old.dtype)
        x, r = C[0], C[-1]
        P, images = C[1 : h + 1], C[h + 1 : 2 * h + 1]
        stay = np.arange(h - made)
        P[stay, stay + made] = images[stay, h + stay + made] = 1
        P[h - made :, :h], P[h - made :, 2 * h :] = self.old, self.new
        images[h - made :, h : 2 * h], images[h - made :, 2 * h :] = self.old, self.images
        x += self.lengths @ P[h - made :]
        r -= self.lengths @ images[h - made :]
        r[2 * h] += 1
        return C


def block_steps(
    G: NDArray[Any],
    B: NDArray[Any],
    most: int,
    target: float,
    care: float = 1.0,
    E: NDArray[Any] | None = None,
    e: NDArray[Any] | None = None,
) -> Block:
    """Up to `most` steps of CG, to a residual's norm of `target`, as far as their inner products can be trusted.

    Parameters
    ----------
    G : (h + s + 1, h + s + 1) array of float64 or complex128
        The Gram matrix of U.
    B : (s + 1, s) array
        A [v_0 .. v_{s-1}] = [v_0 .. v_s] B.
    care : float
        Times as strict as usual about what can be trusted.
    E, e : (h, h) and (h,) arrays, optional
        <p_i, A p_j> and <p_i, r> as they are; else they are taken for unit matrix and zero, as they should be.
    """
    h, s = G.shape[0] - B.shape[0], B.shape[1]
    kind = np.result_type(G, B)
    G, B = np.ascontiguousarray(G, dtype=kind), np.ascontiguousarray(B, dtype=kind)
    D = np.ascontiguousarray(G[:h, h:-1])  # <A p_i, v_j>
    part = D if E is None else np.ascontiguousarray(np.linalg.lstsq(E, D)[0].astype(kind, copy=False))
    side = np.zeros(h, dtype=kind) if e is None else e.astype(kind)
    old, new, images = (np.zeros((s, count), dtype=kind) for count in (h, s + 1, s + 1))
    lengths, history = np.zeros(s, dtype=kind), np.zeros((3, s))
    made = _steps(G, B, D, part, side, most, target**2, care, old, new, images, lengths, history)
    norms, alphas, betas = np.sqrt(history[0, :made]), history[1, :made], history[2, :made]
    return Block(made, old[:made], new[:made], images[:made], lengths[:made], norms, alphas, betas)


def local_recurrences(G: NDArray[Any], s: int) -> NDArray[Any]:
    """The Gram matrix of U with directions of ordinary steps, as their recurrences have it.

    In exact arithmetic <A p_i, v_j> is zero but for the newest j + 1 directions. Ordinary steps keep a direction
    conjugate to the one before alone, and go as in exact arithmetic for eigenvalues in tiny intervals around those of A
    (A. Greenbaum, Linear Algebra Appl. 113 (1989) 7-63). A block that took out the older ones too would break that.
    """
    h = G.shape[0] - s - 1
    found = np.array(G)
    for j in range(h - 1):
        found[: h - 1 - j, h + j] = found[h + j, : h - 1 - j] = 0
    return found


@jit_later
def _square(G: Any, a: Any) -> Any:
    """<a, a>_G, and the sum of its terms' moduli."""
    value, size = 0.0, 0.0
    for i in range(a.size):
        if a[i] != 0:
            for j in range(a.size):
                term = np.conj(a[i]) * G[i, j] * a[j]
                value += term.real
                size += abs(term)
    return value, size


@jit_later
def _steps(
    G: Any,
    B: Any,
    D: Any,
    part: Any,
    side: Any,
    most: int,
    goal: float,
    care: float,
    old: Any,
    new: Any,
    images: Any,
    lengths: Any,
    history: Any,
) -> int:
    """The steps; `part` (h, s) is what to take out of v_0 .. of the directions before; results zeros at first.

    history (3, s): square of the residual's norm, alpha, beta of each.
    """
    h, s = D.shape
    r = np.zeros(h + s + 1, G.dtype)
    trial = np.zeros_like(r)
    r[h] = 1
    gamma = G[h, h].real
    for j in range(most):
        # 1. v_j without the directions before, the last block's first
        whole = 0.0
        for i in range(s + 1):
            whole += (G[h + j, h + i] * B[i, j]).real
        left = whole
        new[j, j] = 1
        for i in range(h):
            old[j, i] = -part[i, j]
            left -= (np.conj(D[i, j]) * part[i, j]).real
        for k in range(j):
            c = G.dtype.type(0)  # <A p_k, v_j>
            for i in range(h):
                c += np.conj(old[k, i]) * G[i, h + j]
            for i in range(s + 1):
                c += np.conj(images[k, i]) * G[h + i, h + j]
            for i in range(h):
                old[j, i] -= c * old[k, i]
            for i in range(s):
                new[j, i] -= c * new[k, i]
            left -= abs(c) ** 2
        if not left > care * PIVOT * whole:
            return j
        # 2. a unit vector in the norm of A, its image, and the way along it
        scale = 1 / np.sqrt(left)
        length = G.dtype.type(0)
        for i in range(h):
            old[j, i] *= scale
            length += np.conj(old[j, i]) * side[i]
        for i in range(s):
            new[j, i] *= scale
            length += np.conj(new[j, i]) * G[h + i, h]
        for i in range(s + 1):
            for k in range(s):
                images[j, i] += B[i, k] * new[j, k]
        # 3. the residual after the step
        for i in range(h):
            trial[i] = r[i] - length * old[j, i]
        for i in range(s + 1):
            trial[h + i] = r[h + i] - length * images[j, i]
        after, size = _square(G, trial)
        if not after > care * TRUST * size:
            return j
        r[:] = trial
        lengths[j] = length
        history[0, j], history[1, j], history[2, j] = after, abs(length) ** 2 / gamma, after / gamma
        gamma = after
        if gamma <= goal:
            return j + 1
    return most


def ritz_of(a: NDArray[np.float64], b: NDArray[np.float64], *, ends: bool = False) -> NDArray[np.float64]:
    """The eigenvalues of the Lanczos matrix of CG's coefficients alpha and beta, ascending; `ends`: two of them."""
    diagonal, beside = 1 / a, np.sqrt(b[:-1]) / a[:-1]
    diagonal[1:] += b[:-1] / a[:-1]
    if ends and a.size > 1:  # a GPU waits: 0.1 ms in place of 0.3 for 128 steps
        from scipy.linalg.lapack import dstebz  # takes longer to import than all else of a first solve

        both = [dstebz(diagonal, beside, _BY_INDEX, 0.0, 0.0, i, i, 0.0, "E") for i in (1, a.size)]
        if all(info == 0 for *_, info in both):
            return np.array([values[0] for _, values, *_ in both])
    from scipy.linalg import eigvalsh_tridiagonal

    found: NDArray[np.float64] = eigvalsh_tridiagonal(diagonal, beside)
    return found


class Shifts:
    """Ritz values from the coefficients of CG's first steps, and the bases made of them.

    `largest` is the largest Ritz value that a basis was made of; `is_open` says whether more coefficients are of use.
    """

    def __init__(self, kind: str, *, real: bool) -> None:
        self.kind, self.largest, self.is_open = kind, 0.0, True
        self._real, self._used = real, 0
        self._alphas: list[float] = []
        self._betas: list[float] = []
        self._bases: dict[tuple[int, bool], Basis] = {}

    def add(self, alphas: Any, betas: Any) -> None:
        """Coefficients of steps that follow those before."""
        if self.is_open:
            self._alphas += [float(a) for a in alphas]
            self._betas += [float(b) for b in betas]
            self.is_open = len(self._alphas) < _KEPT

    def close(self) -> None:
        """The directions have begun anew: what follows is not of the same Lanczos matrix."""
        self.is_open = False

    def ritz(self, *, ends: bool = False) -> NDArray[np.float64]:
        """The eigenvalues of the Lanczos matrix, ascending; with `ends` the first and the last alone."""
        return ritz_of(np.array(self._alphas), np.array(self._betas), ends=ends)

    def basis(self, s: int, *, low: bool = False) -> Basis:
        """A basis of s steps, renewed when twice as many coefficients are known, or no more are to come.

        `low`: Newton's with shifts in Leja order from the smallest on, for any kind but the monomial, under its name.
        """
        count = len(self._alphas)
        if count >= 2 * self._used or not self._used:
            self._used, self._bases = count, {}
        if (s, low) not in self._bases:
            newton = low and self.kind != "monomial"
            values = self.ritz(ends=self.kind == "chebyshev" and not newton) if count else np.ones(1)
            self.largest = float(values[-1])
            if newton:
                far = self.largest + values[0]  # its mirror image begins with the largest, as Leja order does
                mirrored = basis_of("newton", far - values, s, real=self._real)
                self._bases[s, low] = Basis(self.kind, -mirrored.a, mirrored.b + far * mirrored.a, mirrored.c)
            else:
                self._bases[s, low] = basis_of(self.kind, values, s, real=self._real)
        return self._bases[s, low]


class Pace:
    """The s of the next block: lowered where blocks end early, raised again after good ones (Carson's adaptive s).

    It begins with `most`; below `least` steps a block is not worth its work, and s is 1.
    """

    def __init__(self, most: int, least: int, stats: SolveStats) -> None:
        self.s = self.most = most
        self._least, self._stats = least, stats
        self._good, self._patience = 0, _GOOD

    def count(self, made: int) -> None:
        """Halve s after a block of so few steps, double it after several that made all."""
        if made < self.s:
            self._good = 0
            if 2 * made <= self.s:
                self.s = self.s // 2 if self.s // 2 >= self._least else 1
                self._patience *= 2
                self._tell("lowered")
            return
        self._good += 1
        if self._good >= self._patience * (self.most if self.s == 1 else 1) and self.s < self.most:
            self.s, self._good = min(self.most, max(2 * self.s, self._least)), 0
            self._tell("raised")

    def _tell(self, how: str) -> None:
        text = f"step {self._stats.iterations}: s {how} to {self.s}"
        self._stats.note_often(text, "s changed", " s lowered", " s raised")
