"""Blocks of columns: orthonormal ones, how independent they were, and the columns of H that they are worth.

V (n, s) becomes orthonormal to Q (n, k) and within itself, V = Q C + Q_new R, by block classical Gram-Schmidt with
Cholesky's factorisation of a Gram matrix (:mod:`akx.krylov.orthogonalize`, where the sources are). Where V are powers
of the last column of Q in a basis with the matrix B, A V_s = V_{s+1} B, they are also s more columns of the upper
Hessenberg matrix of Arnoldi's process (Hoemmen 2010, sec. 3.3; :func:`akx.krylov.hessenberg.new_columns`).

Memory movement, in words: V and Q are copied as rows, 2 (k + s) n; then two passes of (k + s) n read and s n written,
or one more where the first lost too much.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from akx.core.arguments import check_number, numbers_of
from akx.core.errors import ArgumentError

__all__ = ["condition_estimates", "extend_hessenberg", "matrix_of", "orthonormalize"]


def matrix_of(V: Any, name: str) -> NDArray[Any]:
    """V as an array (n, s) of float32, float64, complex64 or complex128, (n,) being (n, 1); ArgumentError otherwise."""
    found = numbers_of(V, name)
    if found.dtype.char not in "fdFD":
        found = found.astype(np.complex128 if found.dtype.kind == "c" else np.float64)
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim != 2:
        raise ArgumentError(f"{name} has no columns", expected="an array (n, s)", found=str(found.shape))
    if not np.isfinite(found).all():
        raise ArgumentError(f"{name} is not finite", expected="no NaN or Inf", found=f"in {found.dtype}")
    return found


def orthonormalize(
    V: ArrayLike, Q: ArrayLike | None = None, *, loss: float = 0.0
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Columns orthonormal to others and to each other: V = Q C + Q_new R.

    Parameters
    ----------
    V : array_like, shape (n, s) or (n,)
        Neither V nor Q is changed. Computed in their common type, float32, float64, complex64 or complex128; others
        count as double precision. Inner products are summed up in double precision.
    Q : array_like, shape (n, k), optional
        Orthonormal columns, k + s <= n. None: there are none.
    loss : float
        What the new ones may be from orthonormal, entry by entry of [Q, Q_new]^H [Q, Q_new] - I: by default some units
        of rounding. ``sqrt(eps)`` is enough for the residuals of GMRES, and may spare passes.

    Returns
    -------
    Q_new : ndarray, shape (n, s)
        Fewer columns where one of V is zero: the block ends before it. A column that depends on those before it becomes
        some column orthogonal to them, with an entry of R that is tiny: see :func:`condition_estimates`.
    C : ndarray, shape (k, s)
    R : ndarray, shape (s, s)
        Upper triangular with a real diagonal >= 0; both in double precision.

    Raises
    ------
    ArgumentError, ArgumentTypeError

    Notes
    -----
    BCGS-PIP (Carson, Lund, Rozloznik, Thomas 2021), done again as long as the loss is too large; Householder
    reflections where Cholesky's factorisation is not safe.

    Examples
    --------
    >>> import numpy as np
    >>> from akx.krylov import orthonormalize
    >>> rng = np.random.default_rng(0)
    >>> Q, _, _ = orthonormalize(rng.standard_normal((100, 3)))
    >>> V = rng.standard_normal((100, 4))
    >>> new, C, R = orthonormalize(V, Q)
    >>> bool(np.allclose(Q @ C + new @ R, V)), bool(np.allclose(Q.T @ new, 0))
    (True, True)
    """
    from akx.backends.cpu.vectors.numpy_vectors import NumpyVectors
    from akx.krylov.orthogonalize import Orthogonalizer

    block = matrix_of(V, "V")
    held = np.empty((len(block), 0), dtype=block.dtype) if Q is None else matrix_of(Q, "Q")
    loss = check_number("loss", loss, "a number, 0 <= loss < 1", lambda number: 0 <= number < 1)
    if len(held) != len(block):
        expected, found = f"({len(block)}, k)", str(held.shape)
        raise ArgumentError("Q does not fit V", expected=expected, found=found)
    n, k, s = len(block), held.shape[1], block.shape[1]
    if k + s > n:
        raise ArgumentError("there are too many columns", expected=f"at most {n}, their length", found=f"{k} + {s}")
    W = np.empty((k + s, n), dtype=np.result_type(held, block))
    sizes = _powers_of_two(block)
    W[:k], W[k:] = held.T, (block / sizes).T
    ortho = Orthogonalizer(W, loss, NumpyVectors(W.dtype))
    ortho.loss = ortho.allowed if k else 0.0  # Q is of such a block, perhaps
    made = ortho.append_block(k, s)
    sizes = sizes[: made.norms.size]
    return W[k : k + sizes.size].T, made.C * sizes, made.R * sizes


def _powers_of_two(V: NDArray[Any]) -> NDArray[Any]:
    """About the largest entry of each column, of its precision; 1 for a column that is zero."""
    largest = np.abs(V).max(axis=0, initial=0)
    exponents = np.frexp(np.where(largest > 0, largest, 1))[1]
    return np.ldexp(np.ones((), dtype=largest.dtype), np.minimum(exponents, np.finfo(V.dtype).maxexp - 1))


def condition_estimates(R: ArrayLike, C: ArrayLike | None = None) -> NDArray[np.float64]:
    """How independent the columns of a block were: condition numbers of the first, the first two, and so on.

    Parameters
    ----------
    R : array_like, shape (s, s)
        Of :func:`orthonormalize`: V = Q C + Q_new R.
    C : array_like, shape (k, s), optional
        Of it too, k >= 1: then those of [q_k, v_1, .., v_j] are found, q_k being the last column of Q, as of a basis
        that begins with it. Without C those of R alone, of what V has beside Q.

    Returns
    -------
    (s,) ndarray
        In the Frobenius norm, within a factor of s of the usual one, of columns divided by their lengths; Inf from the
        first one on that is zero or not finite. A block of powers is of use up to about 1 / sqrt(eps).

    Raises
    ------
    ArgumentError, ArgumentTypeError
    """
    from akx.krylov.orthogonalize import Block, condition_of_block, condition_of_columns

    upper = _triangle(R)
    if C is None:
        return condition_of_columns(upper, np.linalg.norm(upper, axis=0))
    over = _over(C, upper)
    if not len(over):
        raise ArgumentError("C has no rows", expected="(k, s) with k >= 1", found=str(over.shape))
    norms = np.hypot(np.linalg.norm(over, axis=0), np.linalg.norm(upper, axis=0))
    return condition_of_block(Block(over, upper.astype(np.result_type(over, upper)), norms), len(over) - 1)


def extend_hessenberg(H: ArrayLike, C: ArrayLike, R: ArrayLike, B: ArrayLike) -> NDArray[Any]:
    """The upper Hessenberg matrix of Arnoldi's process, with s more columns from a block of powers.

    With A Q[:, :k] = Q H and V = [q_{k+1}, v_1, .., v_s], A V[:, :s] = V B, [v_1, .., v_s] = Q C + Q_new R:

        H_new = ([C; R] B - [H; 0] C_s) R_s^-1,    A [Q, Q_new][:, :k + s] = [Q, Q_new] [H, H_new].

    Parameters
    ----------
    H : array_like, shape (k + 1, k)
        ``np.zeros((1, 0))`` where there is one vector yet.
    C, R : array_like, shapes (k + 1, s) and (s, s)
        Of ``orthonormalize(V[:, 1:], Q)``.
    B : array_like, shape (s + 1, s) or more
        ``basis.matrix()`` of the basis of V; of a block that ended early its first columns count.

    Returns
    -------
    ndarray, shape (k + 1 + s, k + s)
        H with its new columns, float64 or complex128. They lose as many digits as :func:`condition_estimates` says.

    Raises
    ------
    ArgumentError, ArgumentTypeError
    """
    from akx.krylov.hessenberg import new_columns

    upper = _triangle(R)
    over, old, change = _over(C, upper), matrix_of(H, "H"), matrix_of(B, "B")
    k, s = len(over) - 1, len(upper)
    if old.shape != (k + 1, k):
        raise ArgumentError("H does not fit C", expected=f"({k + 1}, {k}), as C has {k + 1} rows", found=str(old.shape))
    if change.shape[1] < s or change.shape[0] != change.shape[1] + 1:
        raise ArgumentError("B does not fit R", expected=f"({s + 1}, {s}), or more steps", found=str(change.shape))
    if not np.diagonal(upper).all():
        raise ArgumentError(
            "R is singular: columns of the block depend on those before",
            expected="no zero on its diagonal",
            found=f"one at {int(np.argmin(np.abs(np.diagonal(upper))))}",
            hint="take the leading columns that condition_estimates allows",
        )
    kind = np.result_type(np.float64, old, over, upper, change)
    found = np.zeros((k + 1 + s, k + s), dtype=kind)
    found[: k + 1, :k] = old
    found[:, k:] = new_columns(found[:, :k], over, upper.astype(kind), change[: s + 1, :s], s)
    return found


def _triangle(R: ArrayLike) -> NDArray[Any]:
    upper = matrix_of(R, "R")
    if upper.shape[0] != upper.shape[1] or np.tril(upper, -1).any():
        raise ArgumentError("R is no upper triangle", expected="(s, s), zero below", found=str(upper.shape))
    return upper.astype(np.result_type(np.float64, upper), copy=False)


def _over(C: ArrayLike, upper: NDArray[Any]) -> NDArray[Any]:
    over = matrix_of(C, "C")
    if over.shape[1] != len(upper):
        raise ArgumentError("C does not fit R", expected=f"(k, {len(upper)})", found=str(over.shape))
    return over.astype(np.result_type(np.float64, over), copy=False)
