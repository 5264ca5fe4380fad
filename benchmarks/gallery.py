"""The gallery: ten matrices by formula, each the same bits on every machine, scaled to a maximum row sum of at most 1.

With |A|_inf <= 1 no power grows, so k = 16 and more cannot overflow, and each family keeps its own spectrum.

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

Command line: ``python -m benchmarks.gallery NAME -o FILE`` writes one as ``.npz`` or ``.mtx``; without NAME it lists
them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import io, sparse
from scipy.spatial import Delaunay

from benchmarks import elements
from benchmarks.splitmix import uniform, words

__all__ = ["GALLERY", "IRREGULAR", "delaunay", "epidemic", "pentadiagonal", "rmat", "small", "stencil"]


def pentadiagonal(rows: int = 100_000) -> sparse.csr_array:
    """The biharmonic difference (1, -4, 6, -4, 1) on a line of `rows` points; symmetric positive definite."""
    return _scaled(sparse.csr_array(_grid((rows,), {(-2,): 1.0, (-1,): -4.0, (0,): 6.0, (1,): -4.0, (2,): 1.0})))


def stencil(shape: Sequence[int], points: int) -> sparse.csr_array:
    """The Laplacian on a grid with all neighbours of a point (9 or 27 points) or only the nearest ones (5 or 7).

    Parameters
    ----------
    shape : sequence of int
        Points along each axis; the last is numbered fastest.
    points : int
        3**len(shape) or 2*len(shape) + 1: entries of an inner row.

    Returns
    -------
    csr_array, float64, symmetric positive definite; boundary rows keep the diagonal of inner ones (Dirichlet).
    """
    offsets = [o for o in product((-1, 0, 1), repeat=len(shape)) if points == 3 ** len(shape) or np.abs(o).sum() <= 1]
    if len(offsets) != points:
        raise ValueError(f"no stencil of {points} points in {len(shape)} dimensions")
    return _scaled(_grid(shape, {o: -1.0 if any(o) else points - 1.0 for o in offsets}))


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
    total = rates.sum(axis=1)
    probability = rates / (1.01 * total.max())
    probability[:, 2] = 1.0 - probability.sum(axis=1)
    columns = np.stack([state - (n + 1 - s), state - 1, state, state + (n + 1 - s)], axis=1)
    there = np.stack([s > 0, i > 0, np.ones(len(s), dtype=bool), s + i < n], axis=1)
    return _from_rows(columns, probability, there)


def delaunay(points: int = 1_000_000, seed: int = 1) -> sparse.csr_array:
    """Graph Laplacian D - A of the Delaunay triangulation of random points in the unit square, in random order."""
    places = uniform(seed, 2 * points).reshape(points, 2)
    strip = (places[:, 0] * np.sqrt(points) / 2).astype(np.int64)  # a triangulator is faster on points in spatial order
    order = np.lexsort((np.where(strip % 2, places[:, 1], -places[:, 1]), strip))
    indptr, neighbours = Delaunay(places[order]).vertex_neighbor_vertices
    degree = np.diff(indptr)
    rows, columns = np.concatenate([np.repeat(order, degree), order]), np.concatenate([order[neighbours], order])
    values = np.concatenate([np.full(len(neighbours), -1.0), degree])
    where = (rows.astype(np.int32), columns.astype(np.int32))
    return _scaled(sparse.csr_array(sparse.coo_array((values, where), shape=(points, points))))


def rmat(scale: int = 19, edges: int = 8_400_000, seed: int = 2) -> sparse.csr_array:
    """Directed R-MAT graph with parameters 0.57, 0.19, 0.19, 0.05, rows normalised (D^-1 A), vertices shuffled.

    Edges drawn twice are one entry; a vertex without an outgoing edge has an empty row.

    Parameters
    ----------
    scale : int
        2**scale vertices.
    edges : int
        Edges drawn.
    seed : int
        Seed of edges and shuffle.

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
    rows, columns = np.divmod(keys[np.diff(keys, prepend=-1) > 0], vertices)
    degree = np.bincount(rows, minlength=vertices)
    indptr = np.concatenate([[0], np.cumsum(degree)]).astype(np.int32)
    data = np.repeat(1.0 / np.maximum(degree, 1), degree)
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

#: The matrices that come in no useful order.
IRREGULAR = frozenset({"delaunay", "tetrahedra", "rmat"})

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
}


def small(name: str) -> sparse.csr_array:
    """A reduced version, of a few hundred rows, of the gallery matrix `name`. Raises KeyError on an unknown name."""
    return _SMALL[name]()


def _grid(shape: Sequence[int], weights: dict[tuple[int, ...], float]) -> sparse.csr_array:
    """The matrix of a constant stencil, given as offset -> weight, on a grid; entries leaving the grid are dropped."""
    offsets = sorted(weights)
    n = int(np.prod(shape))
    strides = np.cumprod([1, *shape[:0:-1]])[::-1]
    position = np.indices(shape, dtype=np.int32).reshape(len(shape), n)
    there = np.ones((n, len(offsets)), dtype=bool)
    for column, offset in enumerate(offsets):
        for axis, step in enumerate(offset):
            if step:
                moved = position[axis] + step
                there[:, column] &= (moved >= 0) & (moved < shape[axis])
    shifts = np.array([int(np.dot(offset, strides)) for offset in offsets])
    columns = np.arange(n, dtype=np.int32)[:, None] + shifts.astype(np.int32)
    return _from_rows(columns, np.broadcast_to([weights[o] for o in offsets], columns.shape), there)


def _from_rows(columns: NDArray[np.integer], values: NDArray[np.float64], there: NDArray[np.bool_]) -> sparse.csr_array:
    """CSR from candidate entries per row, (n, width) in ascending columns, of which `there` says which exist."""
    n = len(columns)
    indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int32)
    return sparse.csr_array((values[there], columns[there].astype(np.int32), indptr), shape=(n, n))


def _scaled(matrix: sparse.csr_array) -> sparse.csr_array:
    """The matrix divided by its largest row sum of absolute values."""
    matrix.data /= abs(matrix).sum(axis=1).max()
    return matrix


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a gallery matrix to a file, or list the names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gallery", description="Make a matrix of the gallery.")
    parser.add_argument("name", nargs="?", choices=sorted(GALLERY), help="which one; without it the names are listed")
    parser.add_argument("-o", "--output", type=Path, help="FILE.npz or FILE.mtx")
    parser.add_argument("--small", action="store_true", help="the reduced version of a few hundred rows")
    options = parser.parse_args(arguments)
    if options.name is None:
        print("\n".join(GALLERY))
        return 0
    if options.output is None or options.output.suffix not in (".npz", ".mtx"):
        parser.error("-o needs a file that ends in .npz or .mtx")
    matrix = small(options.name) if options.small else GALLERY[options.name]()
    if options.output.suffix == ".npz":
        sparse.save_npz(options.output, matrix, compressed=False)
    else:
        io.mmwrite(options.output, matrix, comment=f"akx gallery: {options.name}", precision=17)
    print(f"{options.output}: {matrix.shape[0]:,} rows, {matrix.nnz:,} entries", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
