"""GMRES that recycles a subspace, GCRO-DR (Parks, de Sturler, Mackey, Johnson, Maiti 2006), for sequences of systems.

Restarted GMRES forgets at the end of each cycle what it had found, and a next solve with the same matrix begins with
nothing. Here k vectors U stay, from cycle to cycle and from solve to solve, with their images C: A M U = C, C^H C = I.
A cycle does Arnoldi's process with (I - C C^H) A M, from what C leaves of the residual, r = C z + beta v_1:

    A M V_j = C B + V_{j+1} H,    A M [U D, V_j] = [C, V_{j+1}] G,    G = [D, B; 0, H],

D making the columns of U D of length 1. The residual is least over x + M span[U, V_j] with y of the small problem
min ||beta e_1 - H y||, that of GMRES, and x + M (U (z - B y) + V_j y): what lies in C costs no step.

After each cycle U becomes the k vectors [U D, V_j] p whose harmonic Ritz values theta are smallest, which are what
slows GMRES down: with T = [C, V_{j+1}]^H [U D, V_j],

    G^H G p = theta G^H T p,  solved as  (G^+ T) p = (1 / theta) p,    G P = Q S W^H,
    C = [C, V_{j+1}] Q,    U = [U D, V_j] P W S^-1,

made orthonormal once more so that errors do not add up. In real arithmetic a conjugate pair is its real and its
imaginary part. Directions that A M takes almost nowhere are left out. For another matrix or another M, C = A M U is
made anew by k products.

Memory: the vectors of a cycle and U, C, restart + 1 + 2 k, and 2 k more while these change. As long as there is no U,
all of it is for longer cycles, of restart + 2 k steps. Memory movement of step j, in words: that of gmres with k + j
rows; of a cycle: (4 k + j) n for products with U, (k + j) n read and 2 k n written for the new U and C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.backends.vectors import MOST_ROWS
from akx.krylov.hessenberg import HessenbergQR
from akx.krylov.orthogonalize import Orthogonalizer, condition_of_columns, invert_upper
from akx.solvers.arnoldi import Arnoldi
from akx.solvers.gmres import Cycles
from akx.solvers.scaling import eps_of
from akx.solvers.system import Answer, Rows, System, make_system

__all__ = ["Recycled", "gcro_dr"]


@dataclass(eq=False)
class Recycled:
    """What one solve leaves to the next: at most so many vectors, of the matrix and M that the caller calls `version`.

    `kept` has U, C, rows of shape (k, n), and their version, -1 where C is of no use, by the type of vectors and
    whether they are on a device.
    """

    most: int
    version: int = 0
    kept: dict[tuple[np.dtype[Any], bool], tuple[Rows, Rows, int]] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return sum(int(U.nbytes) + int(C.nbytes) for U, C, _ in self.kept.values())


def gcro_dr(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    recycled: Recycled,
    rtol: float = 1e-5,
    atol: float = 0.0,
    restart: int | None = None,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    callback_type: str | None = "pr_norm",
    threads: int | None = None,
    db: Any = None,
    backend: str = "auto",
    return_stats: bool = False,
) -> Answer:
    """Solve A x = b for any square A by GMRES with a recycled subspace, which is read and renewed.

    Parameters
    ----------
    recycled : Recycled
        That of the solve before; a new one for the first.
    A, b, x0, rtol, atol, restart, maxiter, M, callback, callback_type, threads, db, backend, return_stats
        As for :func:`akx.solvers.gmres.gmres`; M is linear. `restart` counts the steps of a cycle, without what is
        recycled. The record has the name ``"gmres"``.

    Returns
    -------
    x, info
        As for :func:`akx.solvers.gmres.gmres`.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError
    """
    version = recycled.version
    system = make_system(
        "gmres", A, b, x0, rtol=rtol, atol=atol, M=M, callback=callback, threads=threads, db=db, backend=backend
    )
    cycles = Cycles(system, restart, maxiter, callback_type)
    space = _Space(system, recycled.most, cycles.restart)
    place = system.dtype, system.on_device
    if place in recycled.kept and system.norm_b > 0.0:
        U, C, of = recycled.kept[place]
        space.take(U, C if of == version and not system.units else None)  # M may be of another scale in those
    while cycles.goes_on(space.row):
        if space.size and (cycles.taken_back or cycles.idle):
            space.forget(cycles.done)
        space.fit(cycles.restart)
        qr = space.problem(cycles.norm)
        cycles.broken, cycles.plain = "", space.size == 0
        while qr.size < space.steps and cycles.step_allowed() and qr.residual > cycles.aim:
            if not cycles.step(space, qr):
                break
            cycles.count(qr.residual)
            cycles.tell(qr.residual)
        cycles.end(space, qr, None if system.M is None else system.precondition)
        space.renew(qr)
    if space.size:
        # in units of its own A, and M, may be of another scale than the caller's
        recycled.kept[place] = *space.kept(), -1 if system.units else version
    return cycles.finish(return_stats)


class _Space(Arnoldi):
    """Arnoldi's process behind `size` recycled vectors: W = [C, V, .., U], C in the first rows, U in the last."""

    def __init__(self, system: System, most: int, restart: int) -> None:
        self.most, self.size, self._restart = most, 0, restart
        super().__init__(system, system.rows(restart + 1 + 2 * most), preconditioned=True)
        self._limit = eps_of(system.dtype) ** 0.5
        self._z: NDArray[Any] = np.zeros(0)
        self._B: list[NDArray[Any]] = []

    @property
    def row(self) -> Rows:
        """Where the residual is to be."""
        return self.W[self.size]

    @property
    def steps(self) -> int:
        """Of a cycle, at most."""
        return min(self._restart + (0 if self.size else 2 * self.most), self.system.n)

    @property
    def _tail(self) -> Rows:
        """U."""
        return self.W[len(self.W) - self.size :]

    def take(self, U: Rows, C: Rows | None) -> None:
        """Begin with U, and its images or, None, those that are made now."""
        system = self.system
        size = self.size = min(len(U), system.n - 1)
        if size == 0:
            return
        self._tail[:] = U[:size]
        if C is not None:
            self.W[:size] = C[:size]
            return
        U = self._tail
        for i in range(size):
            system.product(system.precondition(U[i]), self.W[i], apart=True)
        with system.stats.phase("orthogonalize"):
            block = self.ortho.append_block(0, size)
            size = int(np.count_nonzero(condition_of_columns(block.R, block.norms) <= 1 / self._limit))
            self.size = size
            if size:
                made = system.rows(size)
                _combine(system, invert_upper(block.R[:size, :size]).T, U[:size], made)
                self._tail[:] = made
        system.stats.notes.append(f"images of {size} recycled vectors made anew, for other values or another M")

    def kept(self) -> tuple[Rows, Rows]:
        """U and C, copies."""
        U, C = self.system.rows(self.size), self.system.rows(self.size)
        U[:], C[:] = self._tail, self.W[: self.size]
        return U, C

    def forget(self, cycle: int) -> None:
        """Be without recycled vectors; the residual stays at hand."""
        notes, why = self.system.stats.notes, "made no progress: recycled vectors are given up"
        if not any(why in note for note in notes):  # as may be again and again
            notes.append(f"cycle {cycle} {why}")
        self.W[0] = self.row
        self.size = 0

    def fit(self, restart: int) -> None:
        """Cycles of so many steps from now on, with room for them."""
        self._restart, old, size = restart, self.W, self.size
        if len(old) >= restart + 1 + 2 * self.most:
            return
        U = self._tail
        self.W = self.system.rows(restart + 1 + 2 * self.most)
        self.W[: size + 1] = old[: size + 1]
        self._tail[:] = U
        self.ortho = Orthogonalizer(self.W, work=self.system.work)

    def problem(self, norm: float) -> HessenbergQR:
        """The residual, of that norm, becomes z and v_1; the least-squares problem for what is left of it."""
        size, beta, self.ortho.loss = self.size, norm, 0.0
        with self.system.stats.phase("orthogonalize"):
            self.system.work.divide(self.row, norm)
            self._B, self._z = [], np.zeros(0)
            if size:
                c, left = self.ortho.append(size)
                self._z, beta = norm * c, norm * left
        return HessenbergQR(beta, self.steps)

    def step(self, j: int, stop: int) -> tuple[NDArray[Any], float]:
        column, length = super().step(self.size + j, stop)
        self._B.append(column[: self.size])
        return column[self.size :], length

    def add(self, y: NDArray[Any], update: Rows) -> None:
        size, out = self.size, update.reshape(1, self.system.n)
        if y.size:
            _combine(self.system, y[None], self.W[size : size + y.size], out, add=True)
        if size:
            _combine(self.system, (self._z - self._columns(y.size) @ y)[None], self._tail, out, add=True)

    def _columns(self, count: int) -> NDArray[Any]:
        """B, (size, count)."""
        return np.array(self._B[:count]).reshape(count, self.size).T

    def renew(self, qr: HessenbergQR) -> None:
        """After a cycle: U and C of the smallest harmonic Ritz values."""
        system, size, j, most = self.system, self.size, qr.size, min(self.most, self.system.n - 1)
        if j == 0 or most < 1:
            return
        first = size + j + 1  # of the rows that are not in use
        with system.stats.phase("orthogonalize"), np.errstate(all="ignore"):
            if first + 2 * size <= len(self.W):
                self.W[first : first + size] = self._tail
            else:  # a few rows lie between V and U; what is found for these means nothing
                first = len(self.W) - size
            inner = self.ortho.work.products(first, size) if size else np.zeros((first, 0))
            lengths = np.sqrt(np.maximum(np.real(np.diagonal(inner[first:])), 0.0))
        if not (np.isfinite(lengths).all() and (lengths > 0).all()):
            return
        with system.stats.phase("small"):
            H = qr.matrix()
            kind = np.result_type(H, inner)
            G, T = np.zeros((size + j + 1, size + j), dtype=kind), np.zeros((size + j + 1, size + j), dtype=kind)
            G[:size, :size], G[:size, size:], G[size:, size:] = np.diag(1 / lengths), self._columns(j), H
            T[:, :size], T[size:, size:] = inner[: size + j + 1] / lengths, np.eye(j + 1, j)
            if not (np.isfinite(G).all() and np.isfinite(T).all()):
                return
            P = _smallest(G, T, most, is_real=system.dtype.kind != "c")
            Q, S, Wh = np.linalg.svd(G @ P, full_matrices=False)
            good = self._limit * float(np.linalg.norm(G)) < S
            Q, P = Q[:, good], P @ (Wh.conj().T[:, good] / S[good])
            P[:size] /= lengths[:, None]
        count = int(np.count_nonzero(good))
        if count == 0:
            return
        with system.stats.phase("vectors"):
            C, U = system.rows(count), system.rows(count)
            _combine(system, Q.T, self.W[: size + j + 1], C)
            R = Orthogonalizer(C, work=system.work).append_block(0, count).R
            F = (P @ invert_upper(R)).T
            _combine(system, F[:, size:], self.W[size : size + j], U)
            if size:
                _combine(system, F[:, :size], self._tail, U, add=True)
            self.size = count
            self.W[:count], self._tail[:] = C, U


def _smallest(G: NDArray[Any], T: NDArray[Any], most: int, *, is_real: bool) -> NDArray[Any]:
    """P (m, k), orthonormal, k <= most: it spans the vectors with the smallest harmonic Ritz values."""
    mu, vectors = np.linalg.eig(np.linalg.lstsq(G, T, rcond=None)[0])
    order = np.argsort(-np.abs(mu), kind="stable")
    if not is_real:
        return np.asarray(np.linalg.qr(vectors[:, order[:most]])[0])
    chosen: list[NDArray[Any]] = []
    for i in order:
        parts = [vectors[:, i].real] if mu[i].imag == 0 else [vectors[:, i].real, vectors[:, i].imag]
        if mu[i].imag >= 0 and len(chosen) + len(parts) <= most:
            chosen += parts
    return np.asarray(np.linalg.qr(np.array(chosen).T)[0]) if chosen else np.zeros((G.shape[1], 0))


def _combine(system: System, F: NDArray[Any], W: Rows, out: Rows, *, add: bool = False) -> None:
    """out (q, n) = F (q, m) W (m, n), or out += F W, for any m."""
    for first in range(0, len(W), MOST_ROWS):
        part = np.ascontiguousarray(F[:, first : first + MOST_ROWS])
        system.work.combine(part, W[first : first + MOST_ROWS], out, add=add or first > 0)
