"""The gallery: ten matrices by formula, each the same bits on every machine, scaled to a maximum row sum of at most 1.

With |A|_inf <= 1 no power grows, so k = 16 and more cannot overflow, and each family keeps its own spectrum.

Values are general: coefficients vary at random (a hash of the number of an edge, element or point, in [0.5, 1.5]), so
that nearly all values are different and none is a float32. They are made by + - * / and sqrt in a fixed order.

| name | family | rows | entries |
|---|---|---|---|
| pentadiagonal | biharmonic difference in one dimension | 100,000 | 499,994 |
| 9-point | nine-point Laplacian, 1000 x 1000 | 1,000,000 | 8,988,004 |
| mc2depi | Markov chain of an epidemic on {(s, i): s + i <= 1024} | 525,825 | 2,100,225 |
| brick | trilinear elasticity, 9 x 9 x 257 nodes, 3 unknowns each | 62,451 | 4,325,625 |
| shell | curved shell, 190 x 190 nodes, 6 unknowns each | 216,600 | 11,614,464 |
| 27-point | 27-point Laplacian, 64^3 | 262,144 | 6,859,000 |
| 7-point | 7-point Laplacian, 128^3 | 2,097,152 | 14,581,760 |
| delaunay | graph Laplacian of a triangulation of random points, in random order | 1,000,000 | about 7 million |
| tetrahedra | elasticity on a tetrahedralisation of random points, in random order | 180,000 | about 8 million |
| rmat | directed power-law graph in random order, rows normalised | 524,288 | about 8 million |

``NAME-constant`` (:data:`CONSTANT`) is the same pattern with constant coefficients, for the families whose values are
then few: 2 to 580 different ones, which fit a table. What gains by storing values in fewer bytes is measured on these.

Large ones (:data:`LARGE`), only taken where they are named; each is made within three times the memory of its CSR, in 5
to 100 seconds of a core.

| name | family | rows | entries | CSR, GB |
|---|---|---|---|---|
| 7-point-200-shuffled | 7-point Laplacian, 200^3, in random order | 8,000,000 | 55,760,000 | 0.70 |
| delaunay-8m | as delaunay | 8,000,000 | 55,999,896 | 0.70 |
| tetrahedra-1m | as tetrahedra | 1,000,002 | 49,446,432 | 0.60 |
| 7-point-256 | 7-point Laplacian, 256^3 | 16,777,216 | 117,047,296 | 1.47 |
| 7-point-520 | 7-point Laplacian, 520^3, with 32-bit indices | 140,608,000 | 982,633,600 | 12.4 |

Command line: ``python -m benchmarks.gallery NAME -o FILE`` writes one as ``.npz`` or ``.mtx``; without NAME it lists
them.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import io, sparse

from akx.core.parallel import in_pieces
from benchmarks import elements
from benchmarks.splitmix import coefficients, uniform, words
from benchmarks.triangulation import edges

__all__ = [
    "CONSTANT",
    "GALLERY",
    "IRREGULAR",
    "LARGE",
    "delaunay",
    "epidemic",
    "pentadiagonal",
    "rmat",
    "small",
    "stencil",
]


#: The streams of the coefficients.
_LINE, _GRID, _MESH, _GRAPH = 11, 12, 13, 14
#: Rows of a grid that are made at once, by one thread; and rows that a thread takes at least.
_ROWS, _PIECE = 1 << 14, 1 << 18


def pentadiagonal(rows: int = 100_000, *, constant: bool = False) -> sparse.csr_array:
    """The biharmonic difference D^T c D on a line of `rows` points, with D = (1, -2, 1) and c > 0 for each point.

    c is 1 where it is `constant`: rows are (1, -4, 6, -4, 1). Symmetric positive definite; beyond the ends are zeros.
    """

    def weigh(position: Sequence[NDArray[np.int64]]) -> Sequence[NDArray[np.float64] | float]:
        if constant:
            return 1.0, -4.0, 6.0, -4.0, 1.0
        before, here, after = (coefficients(_LINE, position[0] + shift) for shift in range(3))
        return before, -2.0 * (before + here), before + 4.0 * here + after, -2.0 * (here + after), after

    return _grid((rows,), [(-2,), (-1,), (0,), (1,), (2,)], weigh)


def stencil(
    shape: Sequence[int], points: int, *, constant: bool = False, shuffled: int | None = None
) -> sparse.csr_array:
    """The Laplacian on a grid with all neighbours of a point (9 or 27 points) or only the nearest ones (5 or 7).

    Each edge of the grid has a weight, edges over its border too: minus it is the entry off the diagonal, and the
    diagonal is the sum of the weights of the edges of a point (Dirichlet).

    Parameters
    ----------
    shape : sequence of int
        Points along each axis; the last is numbered fastest.
    points : int
        3**len(shape) or 2*len(shape) + 1: entries of an inner row.
    constant : bool
        Whether all weights are 1.
    shuffled : int, optional
        The seed of a random order of the points; in their own by default.

    Returns
    -------
    csr_array, float64, symmetric positive definite.
    """
    offsets = [o for o in product((-1, 0, 1), repeat=len(shape)) if points == 3 ** len(shape) or np.abs(o).sum() <= 1]
    if len(offsets) != points:
        raise ValueError(f"no stencil of {points} points in {len(shape)} dimensions")
    half = points // 2
    strides = np.cumprod([1, *(length + 2 for length in shape[:0:-1])])[::-1]  # of the grid with its neighbours outside
    shifts = [int(np.dot(offset, strides)) for offset in offsets]

    def weigh(position: Sequence[NDArray[np.int64]]) -> Sequence[NDArray[np.float64] | float]:
        if constant:
            return [-1.0] * half + [points - 1.0] + [-1.0] * half
        place = sum(((where + 1) * stride for where, stride in zip(position, strides, strict=True)), np.int64(0))
        # An edge is numbered by its lower end, and by its offset from there.
        ahead = [coefficients(_GRID, place * half + number) for number in range(half)]
        behind = [
            coefficients(_GRID, (place - shift) * half + number) for number, shift in enumerate(shifts[half + 1 :])
        ]
        weights = [*behind[::-1], *ahead]
        total = np.zeros(len(place))
        for weight in weights:
            total += weight
        return [*(-weight for weight in weights[:half]), total, *(-weight for weight in weights[half:])]

    order = None
    if shuffled is not None:
        order = np.argsort(words(shuffled, int(np.prod(shape))), kind="stable")
    return _grid(shape, offsets, weigh, order)


def epidemic(population: int = 1024) -> sparse.csr_array:
    """Markov chain of an epidemic: states (s, i) with s susceptible, i infected and population - s - i immune.

    Three moves leave a state: infection (s - 1, i + 1) at rate s (0.05 + 2 i / N), recovery (s, i - 1) at rate i, and
    loss of immunity (s + 1, i) at rate 0.5 (N - s - i). Each is impossible on one side of the triangle, which has N + 1
    states; with the diagonal, M states have 4 M - 3 (N + 1) entries: 2,100,225 for N = 1024. Uniformised at 1.01 times
    the largest rate, the chain is row-stochastic with a positive diagonal. States are ordered by s, then i.

    Parameters
    ----------
    population : int
        N, at least 1.

    Returns
    -------
    csr_array, shape (M, M) with M = (N + 1) (N + 2) / 2, float64; rows sum to 1.
    """
    n = population
    lengths = np.arange(n + 1, 0, -1)
    s = np.repeat(np.arange(n + 1), lengths)
    first = np.concatenate([[0], np.cumsum(lengths)])
    state = np.arange(len(s))
    i = state - first[s]
    rates = np.stack([s * (0.05 + 2.0 * i / n), 1.0 * i, np.zeros(len(s)), 0.5 * (n - s - i)], axis=1)
    total = rates[:, 0] + rates[:, 1] + rates[:, 3]
    probability = rates / (1.01 * total.max())
    probability[:, 2] = 1.0 - (probability[:, 0] + probability[:, 1] + probability[:, 3])
    columns = np.stack([state - (n + 1 - s), state - 1, state, state + (n + 1 - s)], axis=1)
    there = np.stack([s > 0, i > 0, np.ones(len(s), dtype=bool), s + i < n], axis=1)
    return _from_rows(columns, probability, there)


def delaunay(points: int = 1_000_000, seed: int = 1, *, constant: bool = False) -> sparse.csr_array:
    """Graph Laplacian D - W of the Delaunay triangulation of random points in the unit square, in random order.

    Edges have weights, which are 1 where they are `constant`; D has their sums. Symmetric positive semidefinite.
    """
    lower, upper = (
        part.astype(np.int32) for part in np.divmod(edges(uniform(seed, 2 * points).reshape(-1, 2)), points)
    )
    own = np.arange(points, dtype=np.int32)
    where = np.concatenate([lower, upper, own]), np.concatenate([upper, lower, own])
    del lower, upper
    pattern = sparse.csr_array(sparse.coo_array((np.ones(len(where[0]), dtype=bool), where), shape=(points, points)))
    del where
    indptr, indices = pattern.indptr, pattern.indices
    data = np.empty(len(indices))

    def fill(begin: int, end: int) -> float:
        largest = 0.0
        for first in range(begin, end, _ROWS):
            last = min(first + _ROWS, end)
            part = slice(indptr[first], indptr[last])
            row = np.repeat(np.arange(first, last), np.diff(indptr[first : last + 1]))
            column = indices[part].astype(np.int64)
            weights = -np.ones(len(row))
            if not constant:
                weights *= coefficients(_MESH, np.minimum(row, column) * points + np.maximum(row, column))
            weights[row == column] = 0.0
            weights[row == column] = -np.bincount(row - first, weights)
            data[part] = weights
            largest = max(largest, float(np.bincount(row - first, np.abs(weights)).max()))
        return largest

    data /= max(in_pieces(fill, points, _PIECE))
    return sparse.csr_array((data, indices, indptr), shape=pattern.shape)


def rmat(scale: int = 19, edges: int = 8_400_000, seed: int = 2, *, constant: bool = False) -> sparse.csr_array:
    """Directed R-MAT graph with parameters 0.57, 0.19, 0.19, 0.05, rows normalised (D^-1 W), vertices shuffled.

    Edges have weights; edges drawn twice are one entry; a vertex without an outgoing edge has an empty row.

    Parameters
    ----------
    scale : int
        2**scale vertices.
    edges : int
        Edges drawn.
    seed : int
        Seed of edges and shuffle.
    constant : bool
        Whether all weights are 1.

    Returns
    -------
    csr_array, shape (2**scale, 2**scale), float64; rows sum to 1 or are empty.
    """
    vertices = 1 << scale
    cuts = np.round(np.cumsum([0.57, 0.19, 0.19]) * 65536).astype(np.uint16)
    source = np.zeros(edges, dtype=np.int64)
    target = np.zeros(edges, dtype=np.int64)
    for level in range(scale):
        if level % 4 == 0:
            drawn = words(1000 * seed + level, edges)
        draw = (drawn >> np.uint64(16 * (level % 4))).astype(np.uint16)
        below = draw < cuts[1]
        source = 2 * source + ~below
        target = 2 * target + np.where(below, draw >= cuts[0], draw >= cuts[2])
    shuffle = np.argsort(words(1000 * seed + 999, vertices), kind="stable")
    keys = np.sort(shuffle[source] * vertices + shuffle[target])
    keys = keys[np.diff(keys, prepend=-1) > 0]
    rows, columns = np.divmod(keys, vertices)
    degree = np.bincount(rows, minlength=vertices)
    indptr = np.concatenate([[0], np.cumsum(degree)]).astype(np.int32)
    weights = np.ones(len(rows)) if constant else coefficients(_GRAPH, keys)
    data = weights / np.bincount(rows, weights)[rows]
    return sparse.csr_array((data, columns.astype(np.int32), indptr), shape=(vertices, vertices))


#: Name -> maker of the full matrix.
GALLERY: dict[str, Callable[[], sparse.csr_array]] = {
    "pentadiagonal": pentadiagonal,
    "9-point": lambda: stencil((1000, 1000), 9),
    "mc2depi": epidemic,
    "brick": lambda: _scaled(elements.brick()),
    "shell": lambda: _scaled(elements.shell()),
    "27-point": lambda: stencil((64, 64, 64), 27),
    "7-point": lambda: stencil((128, 128, 128), 7),
    "delaunay": delaunay,
    "tetrahedra": lambda: _scaled(elements.tetrahedra()),
    "rmat": rmat,
}

#: The same with constant coefficients, where values are then few.
CONSTANT: dict[str, Callable[[], sparse.csr_array]] = {
    "pentadiagonal-constant": lambda: pentadiagonal(constant=True),
    "9-point-constant": lambda: stencil((1000, 1000), 9, constant=True),
    "27-point-constant": lambda: stencil((64, 64, 64), 27, constant=True),
    "7-point-constant": lambda: stencil((128, 128, 128), 7, constant=True),
    "delaunay-constant": lambda: delaunay(constant=True),
    "rmat-constant": lambda: rmat(constant=True),
}

#: Larger than caches of any device, by name only; each is made within three times the memory of its CSR.
LARGE: dict[str, Callable[[], sparse.csr_array]] = {
    "7-point-200-shuffled": lambda: stencil((200, 200, 200), 7, shuffled=31),
    "delaunay-8m": lambda: delaunay(8_000_000),
    "tetrahedra-1m": lambda: _scaled(elements.tetrahedra(333_334)),
    "7-point-256": lambda: stencil((256, 256, 256), 7),
    "7-point-520": lambda: stencil((520, 520, 520), 7),
}

#: The matrices that come in no useful order.
IRREGULAR = frozenset({"delaunay", "tetrahedra", "rmat", "7-point-200-shuffled", "delaunay-8m", "tetrahedra-1m"})

_SMALL: dict[str, Callable[[], sparse.csr_array]] = {
    "pentadiagonal": lambda: pentadiagonal(300),
    "9-point": lambda: stencil((21, 17), 9),
    "mc2depi": lambda: epidemic(24),
    "brick": lambda: _scaled(elements.brick((3, 4, 6))),
    "shell": lambda: _scaled(elements.shell((7, 8))),
    "27-point": lambda: stencil((7, 6, 8), 27),
    "7-point": lambda: stencil((8, 7, 9), 7),
    "delaunay": lambda: delaunay(400),
    "tetrahedra": lambda: _scaled(elements.tetrahedra(100)),
    "rmat": lambda: rmat(9, 4000),
    "pentadiagonal-constant": lambda: pentadiagonal(300, constant=True),
    "9-point-constant": lambda: stencil((21, 17), 9, constant=True),
    "27-point-constant": lambda: stencil((7, 6, 8), 27, constant=True),
    "7-point-constant": lambda: stencil((8, 7, 9), 7, constant=True),
    "delaunay-constant": lambda: delaunay(400, constant=True),
    "rmat-constant": lambda: rmat(9, 4000, constant=True),
    "7-point-200-shuffled": lambda: stencil((8, 7, 9), 7, shuffled=31),
    "delaunay-8m": lambda: delaunay(800),
    "tetrahedra-1m": lambda: _scaled(elements.tetrahedra(200)),
    "7-point-256": lambda: stencil((9, 8, 10), 7),
    "7-point-520": lambda: stencil((10, 9, 11), 7),
}


def small(name: str) -> sparse.csr_array:
    """A reduced version, of a few hundred rows, of the matrix `name`. Raises KeyError on an unknown name."""
    return _SMALL[name]()


def _grid(
    shape: Sequence[int],
    offsets: Sequence[tuple[int, ...]],
    weigh: Callable[[Sequence[NDArray[np.int64]]], Sequence[NDArray[np.float64] | float]],
    order: NDArray[np.int64] | None = None,
) -> sparse.csr_array:
    """The matrix of a stencil on a grid, scaled; entries leaving the grid are dropped.

    `offsets`: ascending. `weigh`: positions of some points along each axis to the entry for each offset. `order`: the
    point of each row. Memory beyond the matrix and `order`: a few blocks of rows, and the row of each point.
    """
    n, width = int(np.prod(shape)), len(offsets)
    strides = np.cumprod([1, *shape[:0:-1]])[::-1]
    shifts = [int(np.dot(offset, strides)) for offset in offsets]
    row: NDArray[np.int32] | None = None
    if order is not None:
        row = np.empty(n, dtype=np.int32)
        row[order] = np.arange(n, dtype=np.int32)

    def entries(begin: int, end: int) -> tuple[NDArray[np.int64], list[NDArray[np.int64]], NDArray[np.bool_]]:
        """The points of rows, their positions, and which of their neighbours are there, (rows, width)."""
        point = np.arange(begin, end) if order is None else order[begin:end]
        position = [point // stride % length for stride, length in zip(strides, shape, strict=True)]
        there = np.ones((end - begin, width), dtype=bool)
        for axis, length in enumerate(shape):
            for step in sorted({offset[axis] for offset in offsets} - {0}):
                inside = position[axis] >= -step if step < 0 else position[axis] < length - step
                for column, offset in enumerate(offsets):
                    if offset[axis] == step:
                        there[:, column] &= inside
        return point, position, there

    def count(begin: int, end: int) -> None:
        for first in range(begin, end, _ROWS):
            last = min(first + _ROWS, end)
            lengths[first:last] = entries(first, last)[2].sum(axis=1)

    def fill(begin: int, end: int) -> float:
        largest = 0.0
        for first in range(begin, end, _ROWS):
            last = min(first + _ROWS, end)
            point, position, there = entries(first, last)
            values, columns = np.empty(there.shape), np.full(there.shape, n, dtype=np.int32)
            total = np.zeros(len(point))
            for column, weight in enumerate(weigh(position)):
                values[:, column] = weight
                inside = there[:, column]
                neighbour = point[inside] + shifts[column]
                columns[inside, column] = neighbour if row is None else row[neighbour]
                total += np.where(inside, np.abs(weight), 0.0)
            if row is not None:
                ascending = np.argsort(columns, axis=1)
                values, columns, there = (np.take_along_axis(a, ascending, axis=1) for a in (values, columns, there))
            data[indptr[first] : indptr[last]] = values[there]
            indices[indptr[first] : indptr[last]] = columns[there]
            largest = max(largest, float(total.max()))
        return largest

    indptr = np.zeros(n + 1, dtype=np.int32)
    lengths = indptr[1:]
    in_pieces(count, n, _PIECE)
    np.cumsum(lengths, out=lengths)
    data, indices = np.empty(indptr[-1]), np.empty(indptr[-1], dtype=np.int32)
    data /= max(in_pieces(fill, n, _PIECE))
    return sparse.csr_array((data, indices, indptr), shape=(n, n))


def _from_rows(columns: NDArray[np.integer], values: NDArray[np.float64], there: NDArray[np.bool_]) -> sparse.csr_array:
    """CSR from candidate entries per row, (n, width) in ascending columns, of which `there` says which exist."""
    n = len(columns)
    indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int32)
    return sparse.csr_array((values[there], columns[there].astype(np.int32), indptr), shape=(n, n))


def _scaled(matrix: sparse.csr_array) -> sparse.csr_array:
    """The matrix divided by its largest row sum of absolute values."""
    largest = 0.0
    for first in range(0, matrix.shape[0], _ROWS):
        rows = matrix.indptr[first : first + _ROWS + 1]
        row = np.repeat(np.arange(len(rows) - 1), np.diff(rows))
        largest = max(largest, float(np.bincount(row, np.abs(matrix.data[rows[0] : rows[-1]])).max()))
    matrix.data /= largest
    return matrix


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a gallery matrix to a file, or list the names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gallery", description="Make a matrix of the gallery.")
    parser.add_argument(
        "name", nargs="?", choices=sorted(GALLERY | CONSTANT | LARGE), help="which one; without it the names are listed"
    )
    parser.add_argument("-o", "--output", type=Path, help="FILE.npz or FILE.mtx")
    parser.add_argument("--small", action="store_true", help="the reduced version of a few hundred rows")
    options = parser.parse_args(arguments)
    if options.name is None:
        print("\n".join(GALLERY | CONSTANT | LARGE))
        return 0
    if options.output is None or options.output.suffix not in (".npz", ".mtx"):
        parser.error("-o needs a file that ends in .npz or .mtx")
    if not options.output.parent.is_dir():
        parser.error(f"there is no folder {options.output.parent}")
    before, begin = _peak(), time.process_time()
    matrix = small(options.name) if options.small else (GALLERY | CONSTANT | LARGE)[options.name]()
    took = f"{time.process_time() - begin:.1f} s of a core, {_peak() - before:.2f} GB at its peak"
    if options.output.suffix == ".npz":
        sparse.save_npz(options.output, matrix, compressed=False)
    else:
        io.mmwrite(options.output, matrix, comment=f"akx gallery: {options.name}", precision=17)
    print(f"{options.output}: {matrix.shape[0]:,} rows, {matrix.nnz:,} entries; {took}", file=sys.stderr)
    return 0


def _peak() -> float:
    """Gigabytes of memory that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    sys.exit(main())
