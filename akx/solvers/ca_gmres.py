"""Communication-avoiding GMRES (Hoemmen 2010, ch. 3): the iterates of restarted GMRES, s of them per pass over A.

Let Q_{k+1} be the rows that Arnoldi's process has made, A Q_k^T = Q_{k+1}^T H_k. One step of s:

1. Matrix powers on the last of them: V = [v_0 = q_k, v_1, .., v_s], A V_s^T = V_{s+1}^T B with the basis' matrix B.
2. Block Gram-Schmidt and CholQR make [v_1, .., v_s] orthonormal: V_{s+1}^T = Q_k^T C + T_{s+1}^T R, where
   T = [q_k, new q] and R, upper triangular, has R[0, 0] = 1 (:mod:`akx.krylov.orthogonalize`).
3. s columns of H, since A T_s^T R_s = A V_s^T - A Q_k^T C_s:

       H_new = ([C; R] B - [H_k; 0] C_s) R_s^-1,    s more columns of an upper Hessenberg matrix.
4. The Givens rotations of GMRES on each column give each step's residual norm.

The basis is Newton's with shifts from Ritz values, of s ordinary steps at first, then of the first whole cycle.

What keeps it safe: the columns of [C; R] divided by the norms of v_j have a condition number that says how many digits
the new columns of H lose. Only the leading columns for which it is below eps^(-1/2) are used; where these are few s is
halved, and doubled again after some good steps. Each cycle ends with the true residual; one that fell short of its
estimate is followed by one of ordinary steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.basis import Basis
from akx.core.plan import Plan, check_plan
from akx.krylov.bases import basis_of, check_basis
from akx.krylov.hessenberg import HessenbergQR, new_columns
from akx.krylov.orthogonalize import Block, condition_of_block
from akx.operator.lookup import derived
from akx.solvers.arguments import check_count
from akx.solvers.arnoldi import Arnoldi, arnoldi_of
from akx.solvers.flexible import FlexibleArnoldi
from akx.solvers.folding import part_of
from akx.solvers.forms import form_for
from akx.solvers.gmres import Cycles
from akx.solvers.many import takes_columns
from akx.solvers.scaling import eps_of, exponent_of, scaled
from akx.solvers.solver_choice import tuned_or
from akx.solvers.system import Answer, Rows, System, make_system

__all__ = ["ca_gmres"]

#: The most steps per pass that "auto" takes: usually, and on a host in double precision, where orthogonalisation moves
#: fewer words the longer blocks are, and Newton's basis stays well-conditioned.
_MOST, _LONGEST = 8, 12
#: A block of which a smaller part than this can be used has s lowered.
_ENOUGH = 0.75
#: Good steps in a row after which a lowered s is doubled.
_PATIENCE = 4
#: A cycle has fallen short where the true residual is so many times what it should be; where there was no progress,
#: already by so much: a system may well be one whose cycles get nowhere, as their estimates then say.
_SHORT, _SHORT_OF_ANY = 2.0, 1.01
#: Ordinary steps before the first block: the fewest with M between products, which say whether blocks are of use, and
#: those before long ones, which are of the best shifts soon enough.
_WARM = 6


@takes_columns
def ca_gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    restart: int | None = None,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    callback_type: str | None = "pr_norm",
    s: int | str = "auto",
    basis: str = "auto",
    plan: Plan | None = None,
    threads: int | None = None,
    db: Any = None,
    backend: str = "auto",
    return_stats: bool = False,
) -> Answer:
    """Solve A x = b for any square A by restarted GMRES, with s products per pass over the matrix.

    Parameters
    ----------
    A, b, x0, rtol, atol, restart, maxiter, threads, db, backend, return_stats
        As for :func:`akx.solvers.gmres.gmres`. The solver holds restart + s + 1 vectors.
    M : sparse matrix, array, LinearOperator or preconditioner of :mod:`akx.solvers.preconditioners`, optional
        An approximation of A^-1, from the right. A diagonal, a sparse matrix with which A M has no more entries than A
        and M, and what akx makes and folds (``jacobi``, ``spai``) become part of the matrix. Any other is used between
        products and may change from use to use, as an inner iteration does (flexible GMRES): A is read for each step
        then, blocks of s are made orthonormal together, and the solver holds 2 (restart + s + 1) vectors.
    callback : callable, optional
    callback_type : str
        ``"pr_norm"`` (default) and ``"legacy"``: called after each pass over the matrix with the residual's norm over
        that of b; ``"x"``: called after each cycle with x. None is ``"legacy"``, as in SciPy.
    s : int or ``"auto"``
        The most steps per pass, fewer where the basis is too ill-conditioned, and no more than a cycle has, which is
        `restart` or n; a note says so. ``"auto"``: as tuned for the matrix (:func:`akx.solvers.tune_for`), else from 8
        to 12, so that a cycle is a whole number of passes where possible; from 5 to 8 on a GPU, in single precision,
        with M between products and in other bases than Newton's.
    basis : str
        ``"auto"`` (Newton), ``"newton"``, ``"chebyshev"`` or ``"monomial"``.
    plan : Plan, optional
        For s products; the tuned one where there is one, else a predicted one, by default.

    Returns
    -------
    x, info
        As for :func:`akx.solvers.gmres.gmres`.

    Raises
    ------
    ArgumentError, ArgumentTypeError, MatrixError, PlanError
    """
    check_basis(basis)
    system = make_system(
        "ca_gmres", A, b, x0, rtol=rtol, atol=atol, M=M, callback=callback, threads=threads, db=db, backend=backend
    )
    cycles = Cycles(system, restart, maxiter, callback_type)
    inner, to_solution, between = _with(system, M)
    is_long = s == "auto" and not between and _suits_long_blocks(inner, basis)
    most = _most_steps(s, plan, cycles.restart, _LONGEST if is_long else _MOST)
    if s == "auto" and plan is None and not between:
        most = tuned_or(most, "ca_gmres", inner, basis)
    if plan is None and most > cycles.restart:
        system.stats.notes.append(f"s lowered from {most} to {cycles.restart}, the steps of a cycle")
        most = cycles.restart
    warm = max(most, _WARM) if between else min(most, _WARM) if is_long else most
    steps = _Steps(inner, cycles, most, basis, plan, between, warm)
    # Memory movement of s steps from row k, in words: A once or less than s times (the plan says), s n of V written;
    # by orthogonalisation (k + s) n twice read and s n written, half of that again where a second round is needed. Of a
    # cycle: as in GMRES.
    while cycles.goes_on(steps.W[0]):
        steps.adapt()
        qr = cycles.begin(steps.arnoldi)
        while qr.size < cycles.restart and cycles.step_allowed() and qr.residual > cycles.aim and steps.go(qr):
            cycles.tell(qr.residual)
        steps.end(qr)
        cycles.end(steps.arnoldi, qr, to_solution)
    return cycles.finish(return_stats)


class _Steps:
    """The steps of a cycle: ordinary ones, or s at a time; `system` has the matrix that powers are made of."""

    def __init__(
        self, system: System, cycles: Cycles, most: int, basis: str, plan: Plan | None, between: bool, warm: int
    ) -> None:
        self.system, self.cycles, self.plan = system, cycles, plan
        self.most = self.s = most
        self._between = between
        self.W = system.rows(cycles.restart + 1 + most)
        self.arnoldi = self._arnoldi()
        self._kind = basis
        self._limit = eps_of(system.dtype) ** -0.5
        self._warm = min(warm, cycles.restart)
        self._bases: dict[int, Basis] = {}
        self._matrices: dict[int, NDArray[Any]] = {}  # of the bases
        self._ritz: NDArray[Any] | None = None
        self._of_whole_cycle = False
        self._good, self._patience = 0, _PATIENCE
        self._ordinary = self._in_blocks = False  # of the cycle at hand
        self._estimate = 0.0  # at the end of the last one
        system.stats.basis = "newton" if basis == "auto" else basis

    def _arnoldi(self) -> Arnoldi:
        if self._between:
            return FlexibleArnoldi(self.system, self.W)
        return arnoldi_of(self.system, self.W, self.most, preconditioned=False)

    def _find_ritz(self, qr: HessenbergQR) -> None:
        """Ritz values of the steps so far; where M is not linear, ordinary steps from now on."""
        arnoldi, is_first = self.arnoldi, self._ritz is None
        if not isinstance(arnoldi, FlexibleArnoldi):
            self._ritz = qr.ritz()
            return
        self._ritz = arnoldi.ritz(qr)
        if not is_first or self.most == 1:
            return
        # A block of s has a condition of about (|| h || / h_{k+1,k})^s: by the later columns h of H.
        H = qr.matrix()[:, qr.size // 2 :]
        with np.errstate(all="ignore"):
            growth = np.log(np.linalg.norm(H, axis=0) / np.abs(np.diagonal(H, -1 - qr.size // 2))).mean()
        safe, why = int(np.log(self._limit) / max(0.01, growth)), ""
        if safe < 2:
            why = "blocks would be too ill-conditioned"
        elif not arnoldi.is_linear(qr.size):
            why = "M is not linear, or changes"
        self.s = min(self.most, safe)
        if why:
            self.most = self.s = 1
            self.system.stats.notes.append(f"step {self.cycles.iterations}: {why}: ordinary steps of flexible GMRES")

    def adapt(self) -> None:
        """Before a cycle: an ordinary one where the last one, of blocks, fell short of its estimate."""
        cycles = self.cycles
        if len(self.W) <= cycles.restart + self.most:
            self.W = cycles.room(self.W, cycles.restart + 1 + self.most)
            self.arnoldi = self._arnoldi()
        aim = max(self._estimate, self.cycles.aim)
        short = cycles.taken_back or cycles.norm > (_SHORT_OF_ANY if cycles.idle else _SHORT) * aim
        self._ordinary = self._in_blocks and short
        self._in_blocks = False
        if self._ordinary:
            self._limit = max(0.01 * self._limit, 10.0)
            self._lower(max(1, self.s // 2), f"cycle {cycles.done} fell short of its estimate, the next is ordinary")

    def go(self, qr: HessenbergQR) -> bool:
        """One step of s, or an ordinary one; False where the cycle must end."""
        if self._ordinary or self.most == 1 or (self._ritz is None and qr.size < self._warm):
            return self._one(qr)
        if self._expected(qr) == 1:
            return self._one(qr)
        if self._ritz is None:
            self._find_ritz(qr)
        if self.most == 1:
            return self._one(qr)
        if self.s == 1:
            self._raise_later(True)
            return self._one(qr)
        return self._several(qr) or self._one(qr)

    def end(self, qr: HessenbergQR) -> None:
        """After a cycle: better Ritz values, from the first one that is whole."""
        self._estimate = qr.residual
        self.cycles.plain = not self._in_blocks
        if not self._of_whole_cycle and qr.size == self.cycles.restart:
            self._of_whole_cycle = True
            self._find_ritz(qr)
            self._bases.clear()

    def _one(self, qr: HessenbergQR) -> bool:
        """A step of Arnoldi's process."""
        if not self.cycles.step(self.arnoldi, qr):
            return False
        self.cycles.count(qr.residual)
        return True

    def _several(self, qr: HessenbergQR) -> bool:
        """Up to s steps by one pass over the matrix; False where not even one of them is of use."""
        k, s, stats = qr.size, self.s, self.system.stats
        basis = self._basis(s)
        # 1. V = [q_k, p_1(A) q_k, .., p_s(A) q_k], in the rows where the orthonormal ones will be;
        # 2. [v_1, .., v_s] against all rows and each other
        stop = self.cycles.restart
        wanted = min(s, stop - k, self._expected(qr))
        block = self.arnoldi.block(k, wanted, basis, self.plan if s == self.most else None, stop)
        stats.s.append(wanted if self._between else s)
        self._in_blocks = True
        # 3. columns of H, as many as are safe; 4. their residuals
        with stats.phase("small"):
            usable = self._judge(block, k, wanted)
            if usable:
                if isinstance(self.arnoldi, FlexibleArnoldi):
                    columns = self.arnoldi.columns(k, block, basis, usable)
                else:
                    columns = new_columns(qr.stored, block.C, block.R, self._matrices[s], usable)
                self.cycles.count(*qr.extend(columns, self.cycles.aim, self.cycles.steps_left).tolist())
        return usable > 0

    def _expected(self, qr: HessenbergQR) -> int:
        """Steps to the aim at the rate of the last ones; with M between products each one more costs as much."""
        few = min(self.most, qr.size)
        now, before = qr.residual, self.system.stats.residuals[-1 - few]
        if not (self._between and 0 < self.cycles.aim < now < before):
            return self.most
        return max(1, int(min(self.most, np.ceil(few * np.log(now / self.cycles.aim) / np.log(before / now)))))

    def _basis(self, s: int) -> Basis:
        if s not in self._bases:
            assert self._ritz is not None
            with self.system.stats.phase("small"):
                real = self.system.dtype.kind != "c"
                self._bases[s] = basis_of(self._kind, self._ritz, s, real=real)
                self._matrices[s] = self._bases[s].matrix()
        return self._bases[s]

    def _judge(self, block: Block, k: int, wanted: int) -> int:
        """How many of the new columns are safe to use; s is lowered or raised by it."""
        condition = condition_of_block(block, k)
        usable = int(np.count_nonzero(condition <= self._limit))
        if usable < _ENOUGH * wanted:
            why = f"the basis of {wanted} steps is too ill-conditioned"
            self._lower(max(1, min(self.s // 2, usable)), why)
        else:
            self._raise_later(bool(condition[-1] ** 2 <= self._limit))
        return usable

    def _lower(self, s: int, why: str) -> None:
        if s < self.s or why.startswith("cycle"):
            change = f", s lowered from {self.s} to {s}" if s < self.s else ""
            self._tell(f"{why}{change}")
        self.s = s
        self._good = 0
        self._patience *= 2

    def _tell(self, what: str) -> None:
        """Note a change of s."""
        text = f"step {self.cycles.iterations}: {what}"
        self.system.stats.note_often(text, "s changed", ", s lowered", " s raised", "fell short of its estimate")

    def _raise_later(self, good: bool) -> None:
        """Double s after enough good steps in a row; each time that s had to be lowered makes it twice as many."""
        self._good = self._good + 1 if good else 0
        if self.s < self.most and self._good >= self._patience:
            s = min(2 * self.s, self.most)
            self._tell(f"s raised from {self.s} to {s}")
            self.s, self._good = s, 0


def _suits_long_blocks(system: System, basis: str) -> bool:
    """Whether blocks of up to `_LONGEST` are quick and well-conditioned."""
    return basis in ("auto", "newton") and system.dtype.char in "dD" and not system.on_device


def _most_steps(s: int | str, plan: Plan | None, restart: int, longest: int) -> int:
    """What is asked for; for ``"auto"`` that of the plan, or at most `longest`, so that few steps are in vain."""
    check_plan(plan)
    if s == "auto":
        if plan is not None:
            return plan.k
        passes = -(-restart // longest)
        return next(
            (few for few in range(longest, 2 * longest // 3 - 1, -1) if restart % few == 0), -(-restart // passes)
        )
    return check_count("s", s, auto=True)


def _with(system: System, M: Any) -> tuple[System, Callable[[Rows], Rows] | None, bool]:
    """The system that steps are made of, what makes x of its solution, and whether M is used between its products."""
    right = None if M is None else form_for("ca_gmres", M, system.given)
    if right is not None:
        inner, exponent = _inner(system, right)
        system.stats.notes.append("M made part of the matrix")
        return inner, partial(system.solution, right, exponent=exponent), False
    if M is not None:
        system.stats.notes.append("M between products: A is read for each step, s steps are made orthonormal together")
    return system, None, M is not None


def _inner(system: System, right: Any) -> tuple[System, int]:
    """The system with A M for its matrix, and the exponent of two by which R y is to be multiplied to be of its x."""
    matrix = part_of(right, system.given)
    if matrix.dtype != system.dtype:
        whole = matrix
        matrix = derived(whole, system.dtype.str, lambda: whole.in_type(system.dtype))
    exponent = exponent_of(matrix.largest) if system.units else None
    if exponent is None:
        return system.with_matrix(matrix), 0
    plain = matrix
    matrix = derived(plain, f"2^{exponent}", lambda: plain.with_values(scaled(plain.data, -exponent)))
    return system.with_matrix(matrix), system.units.matrix - exponent
