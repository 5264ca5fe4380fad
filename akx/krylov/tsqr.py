"""The QR factorisation of a tall matrix, by blocks of rows (TSQR; Demmel, Grigori, Hoemmen, Langou 2012, sec. 3).

V (n, s) is cut into blocks of rows, V_i = Q_i R_i by Householder reflections in each. The triangles, one above the
other, are as tall a matrix with fewer rows, which is factorised likewise, until there is one R; the factors of a
triangle multiply Q_i. So Q is orthonormal to rounding whatever the columns of V are, as with reflections over all rows,
where Gram matrices lose the square of the condition number.

Memory movement, in words: 2 n s read and written for the blocks, and once more for Q; reflections of all rows read them
s times. Flops: 4 n s^2 for the blocks and 2 n s^2 for Q.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from akx.core.arguments import check_count
from akx.core.errors import ArgumentError
from akx.krylov.blocks import matrix_of

__all__ = ["tsqr"]

#: Bytes of a block, which stays in a second-level cache with its factor.
_BLOCK_BYTES = 256 * 1024


def tsqr(V: ArrayLike, *, rows: int | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Q (n, s) with orthonormal columns and R (s, s), upper triangular with a real diagonal >= 0: V = Q R.

    Parameters
    ----------
    V : array_like, shape (n, s), n >= s
        float32, float64, complex64 or complex128, in which all is computed; others count as double precision. Columns
        may depend on each other, and may be zero.
    rows : int, optional
        Of a block, at least 2 s; as many as are 256 KiB by default.

    Returns
    -------
    Q : ndarray, shape (n, s)
    R : ndarray, shape (s, s)

    Raises
    ------
    ArgumentError, ArgumentTypeError

    Examples
    --------
    >>> import numpy as np
    >>> from akx.krylov import tsqr
    >>> V = np.vander(np.linspace(0, 1, 10_000), 12)  # of condition 1e8
    >>> Q, R = tsqr(V)
    >>> bool(np.abs(Q.T @ Q - np.eye(12)).max() < 1e-14), bool(np.allclose(Q @ R, V))
    (True, True)
    """
    matrix = matrix_of(V, "V")
    n, s = matrix.shape
    if n < s or s == 0:
        raise ArgumentError("V is not tall", expected="(n, s) with n >= s >= 1", found=str(matrix.shape))
    if rows is None:
        rows = max(2 * s, _BLOCK_BYTES // (s * matrix.itemsize))
    Q, R = _factors(matrix, check_count("rows", rows, least=2 * s))
    diagonal = np.diagonal(R)
    phase = np.where(diagonal == 0, 1, diagonal / np.where(diagonal == 0, 1, np.abs(diagonal)))
    return Q * phase, phase.conj()[:, None] * R


def _factors(V: NDArray[Any], rows: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Q and R, by blocks of so many rows."""
    n, s = V.shape
    count = n // rows
    if count < 2:
        Q, R = np.linalg.qr(V)
        return Q, R
    whole = count * rows
    parts, triangles = np.linalg.qr(V[:whole].reshape(count, rows, s))
    # the rows that are left go with the triangles
    above, R = _factors(np.concatenate([triangles.reshape(count * s, s), V[whole:]]), rows)
    Q = np.empty((n, s), dtype=V.dtype)
    np.matmul(parts, above[: count * s].reshape(count, s, s), out=Q[:whole].reshape(count, rows, s))
    Q[whole:] = above[count * s :]
    return Q, R
