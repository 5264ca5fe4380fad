"""What a communication-avoiding solver makes of the preconditioner that it is given.

part of the matrix   What akx makes and says that it folds; a diagonal matrix of SciPy's, symmetrically for ca_cg and
                     ca_minres; any other sparse one, for ca_gmres and ca_bicgstab, where A M has no more entries than A
                     and M: then no plan, however bad, reads more for a step than two products would.
between products     Any other, in ca_gmres (:mod:`akx.solvers.flexible`).
the classic method   Any other, for ca_cg, ca_minres and ca_bicgstab, with a note.

Why no blocks with M between products where a step has few vectors. Words of vectors in units of n, for s steps, beside
the products and M. CG moves 12 s. With Z_s = M V_s and W = [P, A P, V_{s+1}, Z_s], conjugate gradients in blocks read
3 s + 1 for the inner products, read 4 s + 2 and write 2 s + 2 to make P, A P, x and r, and move 3 s or, by Chebyshev,
4 s for the shifts of v_{j+1} = a A z_j + b v_j + c v_{j-1}, which no kernel does beside a product with another vector:
12 s + 5 at the least. Without A P, whose products with Z come from those of P with V, it is 10 s + 6, and one more
product a block for r: 46 instead of 48 for s = 4, and a quarter of a product more for each step. BiCGStab moves 21 s
with 2 s products and 2 s uses of M; its blocks 12 s + 22 and the shifts of 4 s vectors, with 4 s of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse

from akx.core.errors import AkxError
from akx.core.matrix import Matrix
from akx.operator.lookup import canonical
from akx.solvers.arguments import diagonal_of, place_of
from akx.solvers.folding import solve_folded
from akx.solvers.registry import SOLVERS
from akx.solvers.symmetry import skew_shift
from akx.solvers.system import Answer

if TYPE_CHECKING:
    from akx.solvers.preconditioners.sparse import SparseM

__all__ = ["form_for", "solve_with"]

#: Solvers whose matrix has to stay Hermitian.
_HERMITIAN = ("ca_cg", "ca_minres")
#: Why the classic method takes the place of one of these, for the record.
_WHY = {
    "ca_cg": "with M between products blocks of steps move no fewer words, 12 for each row and step",
    "ca_minres": "with M between products there are no powers that one pass over the matrix would make",
    "ca_bicgstab": "with M between products s steps in a block take 4 s products and uses of M instead of 2 s",
}
#: In the cache of a matrix of the caller's, the preconditioner that it is; and whether its product with a pattern pays.
_FORM, _PAYS = "akx.solvers.form", "akx.solvers.form_pays"
#: Terms of A M for each entry, beyond which it is not made to be counted: grids have up to about 4.
_TERMS = 8


def form_for(name: str, M: Any, A: Matrix | None) -> Any:
    """The form of M that is made part of A for the solver of that name; None where there is none.

    What M is of akx says so by itself; for a sparse matrix of SciPy's A is needed.
    """
    if not getattr(M, "folds", False):
        M = _of_scipy(M, A, name) if issparse(M) and A is not None else None
    if M is None:
        return None
    if name in _HERMITIAN:
        find = getattr(M, "for_hermitian", None)
        return None if find is None else find()
    if name == "ca_gmres" and not M.keeps_residual:
        turn = getattr(M, "on_side", None)
        return None if turn is None else turn("right")
    return M


def solve_with(
    solver: Callable[..., Any],
    A: Any,
    b: Any,
    x0: Any,
    M: Any,
    *,
    s: Any,
    basis: Any,
    plan: Any,
    return_stats: bool,
    **options: Any,
) -> Answer:
    """Solve A x = b by `solver` on the matrix that M makes of A, or by its classic sister with M."""
    name = solver.__name__
    matrix, is_refused = None, False
    if issparse(M) or name == "ca_minres":
        asked = {key: options[key] for key in ("rtol", "atol", "callback", "threads", "backend")}
        matrix, _ = place_of(A, b, x0, M=M, **asked)
        A = matrix if matrix.on_device is None else A
        is_refused = name == "ca_minres" and _is_uneven(M) and bool(skew_shift(matrix))
    form = form_for(name, M, matrix)
    if form is not None and not is_refused:  # else minres says why
        own = {"s": s, "basis": basis, "plan": plan, "return_stats": return_stats}
        return solve_folded(solver, A, b, x0, M=form, **own, **options)
    classic = name.removeprefix("ca_")
    x, info, stats = SOLVERS[classic](A, b, x0, M=M, return_stats=True, **options)
    stats.notes.insert(0, f"{classic} in place of {name}: {_WHY[name]}")
    return (x, info, stats) if return_stats else (x, info)


def _is_uneven(M: Any) -> bool:
    """Whether M is none of c I."""
    entries = diagonal_of(M)
    return entries is None or bool((entries != entries[0]).any())


def _of_scipy(M: Any, A: Matrix, name: str) -> Any:
    """A sparse matrix of SciPy's as a preconditioner of akx, kept with what is kept of it; None for any other."""
    if M.shape != A.shape:
        return None
    try:
        given = canonical(M)
    except AkxError:  # the classic way says what is wrong with M r
        return None
    if given.largest > float(np.finfo(A.dtype).max):
        return None
    form = given.cache.get(_FORM)
    if form is None:
        from akx.solvers.preconditioners.jacobi import of_entries
        from akx.solvers.preconditioners.sparse import SparseM

        entries = diagonal_of(given.to_scipy())
        form = given.cache[_FORM] = SparseM(given) if entries is None else of_entries(entries)
    return form if form.entries is not None or (name not in _HERMITIAN and _pays(form, A)) else None


def _pays(M: SparseM, A: Matrix) -> bool:
    """Whether A M has no more entries than A and M together; it is made where that is not seen before."""
    both = A.nnz + M.nnz
    terms = int(np.diff(M.matrix.indptr)[A.indices].sum())
    if terms <= both or terms > _TERMS * both:
        return terms <= both
    known = M.matrix.cache.setdefault(_PAYS, {})
    if A.fingerprint not in known:
        known.clear()
        known[A.fingerprint] = M.product(A).nnz <= both
    return bool(known[A.fingerprint])
