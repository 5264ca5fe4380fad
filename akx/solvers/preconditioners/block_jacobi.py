"""Block Jacobi: M = K^-1, K the blocks of A on its diagonal, with the rows near other blocks left to their diagonal.

K has a_ij where i and j are rows of one block and both are inside, and a_ii. A row is inside that is more than
`underlap` steps, along entries of A or of A^H, from any row of another block (Yamazaki et al. 2014). So M of a row of
another block that is up to `underlap` steps away needs no other row: s <= underlap steps of A M need of others the
ghost zone of s steps of A, and no more.

small blocks    each inverted, dense: M is a sparse matrix that folds (:mod:`akx.solvers.preconditioners.sparse`), and
                where A is Hermitian and the blocks are definite symmetrically too: with K_i^-1 = C_i C_i^H, C_i lower
                triangular, A' = C^H A C, b' = C^H b, x = C y.
large blocks    K factorised (:mod:`akx.solvers.preconditioners.block_lu`): M is used between products.

Words moved by an application: of small blocks the sum of their squared sizes, with an index each, and 2 n; of large
ones the factors. Folded, A' has all entries of a pair of blocks where A has one.

Source: I. Yamazaki, S. Rajamanickam, E. Boman, M. Hoemmen, M. Heroux, S. Tomov, Domain decomposition preconditioners
for communication-avoiding Krylov methods on a hybrid CPU/GPU cluster, SC 2014.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.core.arguments import ANY_COUNT, check_count
from akx.core.errors import ArgumentError
from akx.core.matrix import Matrix
from akx.core.process import resolve_threads
from akx.solvers.preconditioners.base import Preconditioner
from akx.solvers.preconditioners.block_lu import BlockLU, large_blocks, notes_of
from akx.solvers.preconditioners.sparse import SparseM
from akx.solvers.symmetry import is_hermitian

__all__ = ["BlockJacobi", "BlockLU", "block_jacobi"]

#: Rows of a block that is inverted; larger ones are factorised.
_DENSE = 32
#: A block whose condition is beyond this part of 1 / eps, in the 1-norm, scaled to a unit diagonal, counts as singular.
_SINGULAR = 0.1

#: Rows of blocks of one size, (blocks, rows of a block).
_Groups = list[NDArray[np.int64]]


class BlockJacobi(SparseM):
    """M of small blocks, as a sparse matrix; made by :func:`block_jacobi`."""

    name = "block_jacobi"
    _symmetric: list[Preconditioner | None]

    def __init__(self, matrix: Matrix, groups: _Groups, trace: float, **options: Any) -> None:
        super().__init__(matrix, **options)
        self._groups, self._trace = groups, trace

    def _unprepared(self) -> dict[str, Any]:
        return super()._unprepared() | {"_symmetric": []}

    def for_hermitian(self) -> Preconditioner | None:
        """C^H A C, made once; None where M is not Hermitian or not definite."""
        if not self._symmetric:
            self._symmetric.append(self._made_symmetric() if self.hermitian else None)
        return self._symmetric[0]

    def _made_symmetric(self) -> Preconditioner | None:
        try:
            lower = [np.linalg.cholesky(blocks) for blocks in _taken(self.matrix, self._groups)]
        except np.linalg.LinAlgError:
            return None
        return _Symmetric(_placed(self._groups, lower, self.matrix), self._trace, self.notes)


class _Symmetric(Preconditioner):
    """M = C C^H in the form that keeps a Hermitian matrix Hermitian; `trace` is that of K."""

    name = "block_jacobi"
    folds, keeps_residual, hermitian = True, False, True

    def __init__(self, C: Matrix, trace: float, notes: tuple[str, ...]) -> None:
        super().__init__(C.n, C.dtype, notes)
        self._C = C
        self.residual_scale = float(np.sqrt(C.n / trace))  # r = C^-H u, and the norm of C^-1 squared is the trace of K

    def for_hermitian(self) -> Preconditioner:
        return self

    def apply_to(self, A: Any) -> Matrix:
        """C^H A C, in the dtype of `A` and M together."""
        C = self._C.to_scipy()
        return Matrix.from_any(sp.csr_array(C.conj().T @ (self._checked(A).to_scipy() @ C)))

    def rhs(self, b: NDArray[Any]) -> NDArray[Any]:
        """C^H b; (n,)."""
        return np.asarray(self._C.to_scipy().conj().T @ b)

    def solution(self, y: NDArray[Any]) -> NDArray[Any]:
        """C y; (n,), a new array."""
        return np.asarray(self._C.to_scipy() @ y)

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        return self.solution(self.rhs(x.reshape(-1)))


def block_jacobi(A: Any, blocks: Any = 8, *, underlap: int = 0, threads: int | None = None) -> BlockJacobi | BlockLU:
    """The blocks of A on its diagonal as a preconditioner.

    Parameters
    ----------
    A : sparse matrix or array, shape (n, n), or Matrix
    blocks : int, or (n,) array of integers
        Rows of a block, one after another; or for each row the number of its block: of its domain, say.
    underlap : int
        Rows that are so many steps or fewer from a row of another block are left to their diagonal. With
        `underlap` >= s M commutes with ghost zones of s steps.
    threads : int, optional
        Of an application, by default all: M is the same for any number.

    Returns
    -------
    BlockJacobi or BlockLU
        Computed in float64 or complex128. Blocks of up to 32 rows are inverted, and M, a sparse matrix in the dtype of
        A, becomes part of the matrix in a communication-avoiding solver: for ``ca_cg`` symmetrically, by Cholesky
        factors. Where one has more, all are factorised. A singular block is left to its diagonal, where 1 stands for
        zeros; a note says so.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        Arguments out of range.
    MatrixError
        Where A is no square sparse matrix.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, akx.solvers
    >>> from akx.solvers.preconditioners import block_jacobi
    >>> A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(50, 50), format="csr")
    >>> x, info = akx.solvers.ca_cg(A, np.ones(50), M=block_jacobi(A, 5), rtol=1e-10)
    >>> info, bool(np.linalg.norm(A @ x - 1) < 1e-9)
    (0, True)
    """
    matrix = Matrix.from_any(A, value_error=0.0)
    labels = _labels(blocks, matrix.n)
    check_count("underlap", underlap, least=0, most=ANY_COUNT)
    resolve_threads(threads)  # checks them
    rows = np.repeat(np.arange(matrix.n), np.diff(matrix.indptr))
    if underlap:
        near = _near(rows, matrix.indices, labels, int(underlap))
        labels[near] = labels.max() + 1 + np.arange(np.count_nonzero(near))
        labels = np.unique(labels, return_inverse=True)[1].reshape(-1)
    own = (labels[rows] == labels[matrix.indices]) | (rows == matrix.indices)
    kind = np.result_type(matrix.dtype, np.float64)
    K = sp.csr_array((matrix.data[own].astype(kind), (rows[own], matrix.indices[own])), shape=matrix.shape)
    hermitian = is_hermitian(matrix)
    sizes = np.bincount(labels)
    if sizes.max(initial=0) > _DENSE:
        return large_blocks(K, labels, matrix.dtype, threads=threads, hermitian=hermitian)
    order = np.argsort(labels, kind="stable")
    first = np.cumsum(sizes) - sizes
    groups = [order[first[sizes == size][:, None] + np.arange(size)] for size in np.unique(sizes)]
    found, bad = [], 0
    for group in _taken(Matrix.from_any(K), groups):
        inverse, singular = _inverted(group)
        found.append(0.5 * (inverse + inverse.conj().transpose(0, 2, 1)) if hermitian else inverse)
        bad += singular
    made = _placed(groups, found, matrix)
    trace = float(np.abs(K.diagonal()).sum()) or 1.0
    about = {"hermitian": hermitian, "notes": notes_of(bad, sizes.size)}
    return BlockJacobi(made, groups, trace, threads=threads, **about)


def _labels(blocks: Any, n: int) -> NDArray[np.int64]:
    """The block of each row, 0, 1, ..., none of them empty."""
    if np.ndim(blocks) == 0:
        return np.arange(n) // check_count("blocks", blocks, most=ANY_COUNT)
    given = np.asarray(blocks)
    if given.shape != (n,) or given.dtype.kind not in "iu":
        raise ArgumentError(
            "blocks do not fit A",
            expected=f"an integer, or ({n},) integers, the block of each row",
            found=f"{given.dtype} {given.shape}",
        )
    return np.unique(given, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _near(rows: Any, columns: Any, labels: NDArray[np.int64], steps: int) -> NDArray[np.bool_]:
    """The rows from which a row of another block is so many steps away, or fewer."""
    near = np.zeros(labels.size, dtype=bool)
    across = labels[rows] != labels[columns]
    near[rows[across]] = near[columns[across]] = True
    for _ in range(steps - 1):
        before = near.copy()
        near[rows[before[columns]]] = True
        near[columns[before[rows]]] = True
        if np.array_equal(near, before):
            break
    return near


def _taken(matrix: Matrix, groups: _Groups) -> list[NDArray[Any]]:
    """The blocks of a matrix, (blocks, rows, rows) of each group; it has no entries between blocks."""
    n = matrix.n
    rows = np.repeat(np.arange(n), np.diff(matrix.indptr))
    group_of, block_of, place = (np.zeros(n, dtype=np.int64) for _ in range(3))
    for number, group in enumerate(groups):
        group_of[group], block_of[group] = number, np.arange(len(group))[:, None]
        place[group] = np.arange(group.shape[1])
    found = []
    for number, group in enumerate(groups):
        count, size = group.shape
        blocks = np.zeros((count, size, size), dtype=np.result_type(matrix.dtype, np.float64))
        own = group_of[rows] == number
        i, j = rows[own], matrix.indices[own]
        blocks[block_of[i], place[i], place[j]] = matrix.data[own]
        found.append(blocks)
    return found


def _placed(groups: _Groups, blocks: list[NDArray[Any]], like: Matrix) -> Matrix:
    """The sparse matrix of these blocks, in the dtype of another; zeros of triangles are not stored."""
    values, rows, columns = [], [], []
    for group, one in zip(groups, blocks, strict=True):
        values.append(one.reshape(-1))
        rows.append(np.repeat(group, group.shape[1], axis=1).reshape(-1))
        columns.append(np.tile(group, group.shape[1]).reshape(-1))
    data = np.concatenate(values)
    kept = data != 0
    places = np.concatenate(rows)[kept], np.concatenate(columns)[kept]
    return Matrix.from_any(sp.csr_array((data[kept], places), shape=like.shape), dtype=like.dtype)


def _inverted(blocks: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """The inverses of blocks (m, s, s), of singular ones those of their diagonals; how many are singular."""
    diagonal = np.einsum("kii->ki", blocks).copy()
    diagonal[diagonal == 0] = 1
    roots = 1 / np.sqrt(np.abs(diagonal))
    scaled = blocks * roots[:, :, None] * roots[:, None, :]
    singular = np.linalg.slogdet(scaled)[0] == 0
    scaled[singular] = np.eye(blocks.shape[1])
    inverse = np.linalg.inv(scaled)
    condition = np.abs(scaled).sum(axis=1).max(axis=1) * np.abs(inverse).sum(axis=1).max(axis=1)
    singular |= ~(condition * np.finfo(blocks.dtype).eps <= _SINGULAR)
    with np.errstate(over="ignore", invalid="ignore"):
        inverse *= roots[:, :, None] * roots[:, None, :]
        inverse[singular] = np.eye(blocks.shape[1]) / diagonal[singular][:, None, :]
    if not np.isfinite(inverse).all():
        raise ArgumentError(
            "a block of the diagonal is too small to invert",
            found=f"{np.abs(blocks[~np.isfinite(inverse).all(axis=(1, 2))][0]).max()} as its largest entry",
            hint="scale the matrix, or use another preconditioner",
        )
    return inverse, int(np.count_nonzero(singular))
