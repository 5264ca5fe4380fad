"""Flexible s-step Arnoldi: M between the products of :mod:`akx.solvers.ca_gmres`, whatever M does from use to use.

Let Q_{k+1} be the orthonormal rows so far. One step of s, with the coefficients a, b, c of a basis:

1. For j = 0 .. s-1, v_0 = q_k: z_{k+j} = a_j M v_j,  v_{j+1} = A z_{k+j} + b_j v_j + c_j v_{j-1}. So
   A Z_s^T = V_{s+1}^T B with B the matrix whose column j has 1 in row j + 1, -b_j in row j and -c_j in row j - 1.
2. Block Gram-Schmidt makes [v_1 .. v_s] orthonormal, V_{s+1}^T = Q_k^T C + T^T R, as without M.
3. A Z_s^T = Q_{k+s+1}^T H_new with H_new = [C; R] B: s more columns of an upper Hessenberg matrix, with no R^-1, as the
   search directions are the z themselves.
4. The least-squares problem is that of GMRES, and x += Z^T y has the residual it says, for any M: none is used twice.

Any M may be used, but blocks are good ones for an M that is linear: of an M that is not, or changes, the z of a block
are nearly dependent, and up to three times the steps were taken. So before the first block M is used once more, for the
sum of two rows, and where it is not linear all steps are ordinary ones.

A use of M may cost more than all else, so that none is to be in vain. A block has no more vectors than there are steps
to the aim at the rate of the last ones; one of s has a condition of about (|| h || / h_{k+1,k})^s by the columns h of
H, and where that leaves no two vectors, as A M is near to a multiple of the identity on most of the space, all steps
are ordinary ones. (With multigrid as M blocks of 6 took 13 uses of it for 7 steps, and 68 for 60; allowed a condition
up to eps^(-3/4) they took 144 steps in place of 118.)

With s = 1 this is flexible GMRES (Saad 1993). The rows Z are kept: twice as many vectors as without M. M v_j is M times
the rows Q by the columns U of [C; R], a_j included, so that for an M that stays as it is the Ritz values of A M are the
eigenvalues of H y = theta U y.

Memory movement of s steps from row k, in words beside A, M and what M takes: 2 s n to keep z, 3 s n for the shifts (by
Chebyshev 4 s n); by orthogonalisation, as in ca_gmres, (k + s) n twice read and s n written, where GMRES reads
(k + s/2) n twice s times. Of a cycle: m n for x.

Source: Y. Saad, A flexible inner-outer preconditioned GMRES algorithm, SIAM J. Sci. Comput. 14 (1993) 461-469;
M. Hoemmen, Communication-avoiding Krylov subspace methods, thesis, Berkeley 2010, sec. 3.5 and 3.6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.basis import Basis
from akx.core.plan import Plan
from akx.krylov.hessenberg import HessenbergQR
from akx.krylov.orthogonalize import Block
from akx.solvers.arnoldi import Arnoldi
from akx.solvers.system import Rows, System

__all__ = ["FlexibleArnoldi"]

#: An M that is linear up to this is as good as one that is: inner iterations to a tolerance, parts in single precision.
_LINEAR = 1e-3


class FlexibleArnoldi(Arnoldi):
    """The process in the rows of W with the M of the system between products, and its directions in rows Z."""

    def __init__(self, system: System, W: Rows) -> None:
        super().__init__(system, W, preconditioned=True)
        self.Z = system.rows(len(W))
        self._directions = system.work.over(self.Z)
        self._U = np.zeros((len(W), len(W)))

    def step(self, j: int, stop: int) -> tuple[NDArray[Any], float]:
        self._direction(j, 1.0)
        self._applied(j, np.eye(1, j + 1, j)[0])
        self.system.product(self.Z[j], self.W[j + 1], apart=True)
        with self.system.stats.phase("orthogonalize"):
            return self.ortho.append(j + 1)

    def block(self, k: int, wanted: int, basis: Basis, plan: Plan | None, stop: int) -> Block:
        """Rows k + 1 .. k + wanted by as many products, each with M before it; `plan` is of no use."""
        system, W = self.system, self.W
        for j in range(wanted):
            self._direction(k + j, basis.a[j])
            system.product(self.Z[k + j], W[k + j + 1], apart=True)
            shifts = np.array([[basis.c[j], basis.b[j]]])[:, 0 if j and basis.c[j] else 1 :]
            if shifts.any():
                with system.stats.phase("vectors"):
                    behind, out = W[k + j + 1 - shifts.size : k + j + 1], W[k + j + 1 : k + j + 2]
                    system.work.combine(shifts.astype(system.dtype), behind, out, add=True)
        with system.stats.phase("orthogonalize"):
            return self.ortho.append_block(k + 1, wanted)

    def columns(self, k: int, block: Block, basis: Basis, count: int) -> NDArray[Any]:
        """`count` more columns of H, of which k are there: [C; R] B, (k + 1 + count, count)."""
        a, b, c = basis.a, basis.b, basis.c
        V = np.zeros((k + 1 + count, count + 1), dtype=np.result_type(block.R, a, b, c))
        V[k, 0] = 1
        V[: k + 1, 1:], V[k + 1 :, 1:] = block.C[:, :count], block.R[:count, :count]
        new: NDArray[Any] = V[:, 1:] - b[:count] * V[:, :-1]
        new[:, 1:] -= c[1:count] * V[:, : count - 1]
        for j in range(count):
            self._applied(k + j, a[j] * V[: k + j + 1, j])
        return new

    def add(self, y: NDArray[Any], update: Rows) -> None:
        """update (n,) += sum_j y[j] Z[j]."""
        self._directions.add(y, update)

    def ritz(self, qr: HessenbergQR) -> NDArray[np.complex128]:
        """Those of A M: of H U^-1, as far as M was the same for all directions."""
        m, H = qr.size, qr.matrix()[:-1]
        try:
            return np.linalg.eigvals(np.linalg.solve(self._U[:m, :m].T, H.T).T).astype(complex)
        except np.linalg.LinAlgError:
            return qr.ritz()

    def is_linear(self, m: int) -> bool:
        """Whether M of the sum of two of m rows is the sum of what it made of them, by another use of it.

        Row m, and those up to it, are of ordinary steps; row m + 1 is overwritten. True where m is too small to say.
        """
        if m < 2:
            return True
        system, work, W, Z = self.system, self.system.work, self.W, self.Z
        W[m + 1] = W[0]
        work.add(W[m + 1], 1.0, W[m - 1])
        found = system.precondition(W[m + 1])
        with system.stats.phase("vectors"):
            for row in (0, m - 1):
                work.add(found, -1.0, Z[row])
            return bool(work.norm(found) <= _LINEAR * (work.norm(Z[0]) + work.norm(Z[m - 1])))

    def _direction(self, j: int, scale: complex) -> None:
        """Row j of Z becomes scale M w_j."""
        system = self.system
        found = system.precondition(self.W[j])
        with system.stats.phase("vectors"):
            if scale == 1:
                self.Z[j] = found
                return
            factor = np.full((1, 1), scale).astype(system.dtype)
            system.work.combine(factor, found.reshape(1, system.n), self.Z[j : j + 1])

    def _applied(self, j: int, u: NDArray[Any]) -> None:
        """Direction j is M times the rows by u."""
        if u.dtype.kind == "c" and self._U.dtype.kind != "c":
            self._U = self._U.astype(complex)
        self._U[:, j] = 0
        self._U[: u.size, j] = u
