"""What communication-avoiding Krylov methods are built of: bases, orthonormal blocks, columns of H from blocks.

With V_{s+1} = [v_0, .., v_s] of :func:`akx.matrix_powers`, in a :class:`Basis` with the matrix B of A V_s = V_{s+1} B,
and v_0 the last of the orthonormal columns Q (n, k + 1) so far, A Q_k = Q H:

1. ``basis = basis_from_ritz("newton", ritz, s)`` from approximate eigenvalues;
2. ``new, C, R = orthonormalize(V[:, 1:], Q)``: the others are Q C + new R;
3. ``condition_estimates(R, C)`` says how many of them are of use;
4. ``H = extend_hessenberg(H, C, R, basis.matrix())``: A [Q_k, new_s] = [Q, new] H.

Vectors are columns here; the solvers have them as rows, and use what these functions are made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from akx.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from akx.core.basis import Basis, chebyshev, monomial, newton
    from akx.krylov.bases import basis_from_ritz
    from akx.krylov.blocks import condition_estimates, extend_hessenberg, orthonormalize
    from akx.krylov.tsqr import tsqr

__all__ = [
    "Basis",
    "basis_from_ritz",
    "chebyshev",
    "condition_estimates",
    "extend_hessenberg",
    "monomial",
    "newton",
    "orthonormalize",
    "tsqr",
]

_HOMES = {
    **dict.fromkeys(("Basis", "chebyshev", "monomial", "newton"), "akx.core.basis"),
    **dict.fromkeys(("condition_estimates", "extend_hessenberg", "orthonormalize"), "akx.krylov.blocks"),
    "basis_from_ritz": "akx.krylov.bases",
    "tsqr": "akx.krylov.tsqr",
}

__getattr__ = lazy_names(__name__, _HOMES)
