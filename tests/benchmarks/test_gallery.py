"""The gallery against what each family must be: counts by formula, symmetry, definiteness, physics."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from scipy import io, sparse

from akx.backends.cuda.value_compression.encodings import FULL, ways_of
from akx.core import parallel
from akx.core.matrix import Matrix
from benchmarks import elements, gallery
from benchmarks.gallery import (
    CONSTANT,
    GALLERY,
    IRREGULAR,
    LARGE,
    delaunay,
    epidemic,
    main,
    pentadiagonal,
    rmat,
    small,
    stencil,
)
from benchmarks.splitmix import coefficients, uniform, words

SYMMETRIC = sorted(name for name in GALLERY | CONSTANT if not name.startswith(("mc2depi", "rmat")))


@pytest.mark.parametrize("name", sorted(GALLERY | CONSTANT))
def test_small_matrices_are_canonical_scaled_and_the_same_every_time(name: str) -> None:
    matrix, again = small(name), small(name)
    assert matrix.dtype == np.float64
    assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
    for row in range(matrix.shape[0]):
        assert (np.diff(matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]) > 0).all()
    assert np.isfinite(matrix.data).all()
    assert np.abs(matrix.toarray()).sum(axis=1).max() == pytest.approx(1.0, abs=2e-15)
    assert matrix.data.tobytes() == again.data.tobytes()
    assert matrix.indices.tobytes() == again.indices.tobytes()


@pytest.mark.parametrize("name", SYMMETRIC)
def test_symmetric_families_are_symmetric_to_the_last_bit_and_definite(name: str) -> None:
    dense = small(name).toarray()
    assert np.array_equal(dense, dense.T)
    smallest = np.linalg.eigvalsh(dense)[0]
    if name.startswith("delaunay"):  # a graph Laplacian is singular: one zero for its one component
        assert abs(smallest) < 1e-14
        assert np.linalg.eigvalsh(dense)[1] > 1e-6
    else:
        assert smallest > 0


@pytest.mark.parametrize(
    ("name", "rows", "entries"),
    [
        ("pentadiagonal", 100_000, 5 * 100_000 - 6),
        ("9-point", 1_000_000, 2998**2),
        ("mc2depi", 525_825, 2_100_225),
        ("brick", 62_451, 25 * 25 * 769 * 9),
        ("27-point", 64**3, 190**3),
        ("7-point", 128**3, 7 * 128**3 - 6 * 128**2),
    ],
)
def test_full_matrices_have_exactly_the_rows_and_entries_of_their_formula(name: str, rows: int, entries: int) -> None:
    matrix = GALLERY[name]()
    assert matrix.shape == (rows, rows)
    assert matrix.nnz == entries == len(matrix.data)


def test_shell_counts() -> None:
    rows, columns = 11, 14
    matrix = elements.shell((rows, columns))
    assert matrix.shape == (6 * rows * columns,) * 2
    assert matrix.nnz == (3 * rows - 2) * (3 * columns - 2) * 36
    # the same formula at the size of the gallery is the shape of pwtk
    assert (3 * 190 - 2) ** 2 * 36 == 11_614_464


def test_irregular_matrices_have_the_size_the_theory_gives() -> None:
    points = 3000
    graph = delaunay(points)
    # Euler: a triangulation with h hull points has 3 n - 3 - h edges, and h grows like the logarithm of n
    hull = 3 * points - 3 - (graph.nnz - points) // 2
    assert 3 <= hull < 100
    solid = elements.tetrahedra(500)
    assert solid.shape == (1500, 1500)
    assert 12 < solid.nnz / 9 / 500 < 18  # about 16 nodes are coupled to one in a random tetrahedralisation
    assert set(IRREGULAR) < set(GALLERY | LARGE)


def test_stencils_against_kronecker_products() -> None:
    def line(n: int) -> np.ndarray:
        return sparse.diags_array([np.ones(n - 1), np.zeros(n), np.ones(n - 1)], offsets=[-1, 0, 1]).toarray()

    nx, ny, nz = 4, 5, 3
    full = np.kron(np.kron(np.eye(nx) + line(nx), np.eye(ny) + line(ny)), np.eye(nz) + line(nz))
    expected = 27.0 * np.eye(nx * ny * nz) - full
    assert stencil((nx, ny, nz), 27, constant=True).toarray() == pytest.approx(
        expected / np.abs(expected).sum(axis=1).max()
    )
    near = sum(np.kron(np.kron(a, b), c) for a, b, c in [
        (line(nx), np.eye(ny), np.eye(nz)), (np.eye(nx), line(ny), np.eye(nz)), (np.eye(nx), np.eye(ny), line(nz)),
    ])  # fmt: skip
    expected = 6.0 * np.eye(nx * ny * nz) - near
    assert stencil((nx, ny, nz), 7, constant=True).toarray() == pytest.approx(expected / 12.0)
    with pytest.raises(ValueError, match="no stencil of 8 points"):
        stencil((3, 3), 8)


def test_pentadiagonal_is_the_square_of_the_second_difference_inside() -> None:
    n = 12
    second = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    found = pentadiagonal(n, constant=True).toarray() * 16
    assert found[1:-1] == pytest.approx((second @ second)[1:-1])


def test_pentadiagonal_is_a_weighted_square_of_the_second_difference() -> None:
    n = 12
    beyond = (2 * np.eye(n + 4) - np.eye(n + 4, k=1) - np.eye(n + 4, k=-1))[1:-1, 2:-2]  # at points beyond the ends too
    expected = beyond.T @ np.diag(coefficients(11, np.arange(n + 2))) @ beyond
    assert pentadiagonal(n).toarray() == pytest.approx(expected / np.abs(expected).sum(axis=1).max(), rel=1e-14)


@pytest.mark.parametrize(("shape", "points"), [((6, 5), 9), ((6, 5), 5), ((4, 5, 3), 7), ((4, 5, 3), 27)])
def test_stencils_are_weighted_laplacians(shape: tuple[int, ...], points: int) -> None:
    """With the edges that leave the grid, which a larger grid has, rows sum to zero; in another order it is P A P^T."""
    A = stencil(shape, points)
    larger = stencil([n + 2 for n in shape], points)
    inner = np.arange(larger.shape[0]).reshape([n + 2 for n in shape])[(slice(1, -1),) * len(shape)].ravel()
    weights = -larger.toarray()
    np.fill_diagonal(weights, 0.0)
    assert larger.diagonal()[inner] == pytest.approx(weights.sum(axis=1)[inner], rel=1e-14)
    assert (weights[weights != 0].max() / weights[weights != 0].min()) < 3
    order = np.argsort(words(5, A.shape[0]), kind="stable")
    shuffled = stencil(shape, points, shuffled=5)
    assert np.array_equal(shuffled.toarray(), A.toarray()[order][:, order])
    assert (
        np.diff(shuffled.indices)[np.diff(np.repeat(np.arange(len(order)), np.diff(shuffled.indptr))) == 0] > 0
    ).all()


#: Digests of the bits of small matrices: of their patterns, and of their values.
PINNED = {
    "pentadiagonal": ("dfcf050e3bc8cbac", "b2e5fcbc3f4e7e76"),
    "9-point": ("24f3d6141ebdf7ee", "fe9d5f4c45592030"),
    "mc2depi": ("1fb54914631f2e54", "4e26b04c519e707b"),
    "brick": ("883cb892ca7b1e86", "870b5056022437b1"),
    "shell": ("9aa633e15e1a6c49", "aa38f513c27305de"),
    "27-point": ("e5b26046dc00bc11", "18b6d870b482f90e"),
    "7-point": ("7089c1c01330b33f", "32073e4bb8f8d9ea"),
    "delaunay": ("f4522d4b1eaf97e3", "cbe5ab4ec8381452"),
    "tetrahedra": ("46339969a25cc9be", "004d21ed05c71971"),
    "rmat": ("4aaecc5a1bd94977", "affd16aec76cc783"),
    "pentadiagonal-constant": ("dfcf050e3bc8cbac", "1e56c31a2df218f9"),
    "9-point-constant": ("24f3d6141ebdf7ee", "39ecd9e51be97b8e"),
    "27-point-constant": ("e5b26046dc00bc11", "29be2bc78490728d"),
    "7-point-constant": ("7089c1c01330b33f", "75132f683c5568b4"),
    "delaunay-constant": ("f4522d4b1eaf97e3", "95f04fb6cb7631d1"),
    "rmat-constant": ("4aaecc5a1bd94977", "19d74f5f78cc76d5"),
}


@pytest.mark.parametrize("name", PINNED)
def test_bits_are_the_same_on_every_machine(name: str) -> None:
    matrix = small(name)
    parts = (matrix.indptr.tobytes() + matrix.indices.tobytes(), matrix.data.tobytes())
    assert tuple(hashlib.sha256(part).hexdigest()[:16] for part in parts) == PINNED[name]


@pytest.mark.parametrize("name", [*GALLERY, "7-point-200-shuffled"])
def test_blocks_of_rows_and_threads_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = small(name)
    monkeypatch.setattr(gallery, "_ROWS", 31)
    monkeypatch.setattr(gallery, "_PIECE", 70)
    monkeypatch.setattr(elements, "_PART", 7)
    monkeypatch.setattr(elements, "_ELEMENTS", 5)
    monkeypatch.setattr(parallel, "available_cores", lambda: 3)
    parts = small(name)
    assert parts.data.tobytes() == whole.data.tobytes()
    assert parts.indices.tobytes() == whole.indices.tobytes()
    assert parts.indptr.tobytes() == whole.indptr.tobytes()


@pytest.mark.parametrize("name", sorted(GALLERY))
def test_values_are_general(name: str) -> None:
    """More are different than a table holds, and none is a float32, but for the 1 of a row of one and like chances."""
    matrix = MIDDLING[name]()
    values = matrix.data
    assert len(np.unique(values)) > max(10_000, (0.2 if name in FEWER else 0.5) * len(values))
    inexact = values.astype(np.float32) != values
    assert inexact[values != 1.0].mean() > 0.9999
    last_bits = values[inexact].view(np.uint64) & np.uint64(0xFF)
    assert np.bincount(last_bits.astype(np.int64)).max() < 0.05 * len(values)
    assert list(ways_of(Matrix.from_any(matrix))) == [FULL]


#: Families of which some entries are alike by what they are: rates of equal numbers of infected, and of like elements.
FEWER = ("mc2depi", "brick", "shell", "tetrahedra")
#: Of ten thousand rows or more, for what small ones are too small for.
MIDDLING: dict[str, Callable[[], sparse.csr_array]] = {
    "pentadiagonal": lambda: pentadiagonal(20_000),
    "9-point": lambda: stencil((100, 100), 9),
    "mc2depi": lambda: epidemic(200),
    "brick": lambda: elements.brick((5, 6, 40)),
    "shell": lambda: elements.shell((20, 21)),
    "27-point": lambda: stencil((20, 20, 20), 27),
    "7-point": lambda: stencil((20, 30, 20), 7),
    "delaunay": lambda: delaunay(10_000),
    "tetrahedra": lambda: elements.tetrahedra(1000),
    "rmat": lambda: rmat(12, 40_000),
}


@pytest.mark.parametrize("name", sorted(CONSTANT))
def test_constant_ones_have_the_pattern_and_few_values(name: str) -> None:
    constant, general = small(name), small(name.removesuffix("-constant"))
    assert np.array_equal(constant.indptr, general.indptr)
    assert np.array_equal(constant.indices, general.indices)
    assert len(np.unique(constant.data)) < 50
    assert name.removesuffix("-constant") in GALLERY


def test_epidemic_against_a_walk_over_its_states() -> None:
    n = 7
    states = [(s, i) for s in range(n + 1) for i in range(n + 1 - s)]
    index = {state: row for row, state in enumerate(states)}
    rate = np.zeros((len(states),) * 2)
    for (s, i), row in index.items():
        if s:
            rate[row, index[s - 1, i + 1]] = s * (0.05 + 2 * i / n)
        if i:
            rate[row, index[s, i - 1]] = i
        if s + i < n:
            rate[row, index[s + 1, i]] = 0.5 * (n - s - i)
    total = rate.sum(axis=1)
    chain = rate / (1.01 * total.max())
    chain += np.diag(1 - chain.sum(axis=1))
    found = epidemic(n)
    assert found.toarray() == pytest.approx(chain, abs=1e-15)
    assert found.nnz == np.count_nonzero(chain) == 4 * len(states) - 3 * (n + 1)


def test_epidemic_rows_are_probabilities() -> None:
    chain = epidemic(60)
    assert chain.data.min() > 0
    assert chain.sum(axis=1) == pytest.approx(1.0, abs=1e-14)


def test_rmat_rows_are_normalised_and_degrees_are_skewed() -> None:
    graph = rmat(12, 40_000)
    degree = np.diff(graph.indptr)
    sums = graph.sum(axis=1)
    assert sums[degree > 0] == pytest.approx(1.0)
    assert (sums[degree == 0] == 0).all()
    assert 0.7 * 40_000 < graph.nnz < 40_000
    assert degree.max() > 20 * degree.mean()
    assert (degree == 0).any()
    # shuffled: the heavy vertices are spread, not gathered at low numbers
    assert 0.35 < np.average(np.arange(4096), weights=degree) / 4096 < 0.65


def test_rmat_follows_its_parameters() -> None:
    """With one level there are four possible edges: their shares are the four parameters."""
    edges = 20_000
    drawn = words(2000, edges) & np.uint64(0xFFFF)
    shares = np.histogram(drawn, bins=np.array([0, 0.57, 0.76, 0.95, 1.0]) * 65536)[0] / edges
    assert shares == pytest.approx([0.57, 0.19, 0.19, 0.05], abs=0.015)
    assert rmat(1, 200).nnz == 4


def test_large_ones_are_of_the_same_families() -> None:
    assert LARGE.keys().isdisjoint(GALLERY | CONSTANT)
    for name in LARGE:
        matrix = small(name)
        assert (matrix.indices.dtype, matrix.indptr.dtype) == (np.int32, np.int32)
        assert np.array_equal(matrix.toarray(), matrix.toarray().T)
    natural, shuffled = stencil((8, 7, 9), 7), small("7-point-200-shuffled")
    assert np.array_equal(np.sort(natural.data), np.sort(shuffled.data))
    near = [np.abs(np.diff(A.indices)).mean() for A in (natural, shuffled)]
    assert near[1] > 2 * near[0]


def _rigid_motions(points: np.ndarray) -> np.ndarray:
    """The six rigid motions of `points` (n, 3) as displacements, (6, n, 3)."""
    motions = [np.broadcast_to(axis, points.shape) for axis in np.eye(3)]
    motions += [np.cross(axis, points) for axis in np.eye(3)]
    return np.array(motions)


def test_hexahedron_has_the_rigid_motions_and_nothing_else_in_its_kernel() -> None:
    sides = np.array([1.0, 1.2, 0.9])
    stiffness = elements._hexahedron(sides)
    corners = np.array([(i, j, k) for k, j, i in product((0, 1), repeat=3)]) * sides
    motions = _rigid_motions(corners).reshape(6, 24)
    assert np.abs(stiffness @ motions.T).max() < 1e-14
    assert np.linalg.matrix_rank(stiffness, tol=1e-10) == 18


def test_shell_element_has_the_rigid_motions_in_its_kernel() -> None:
    rotation = np.linalg.qr(np.arange(9.0).reshape(3, 3) ** 2 + np.eye(3))[0]
    flat = np.array([[0.0, 0.0, 0.0], [1.3, 0.1, 0.0], [1.2, 0.9, 0.0], [-0.1, 1.0, 0.0]]) @ rotation.T
    stiffness = elements._flat_shell(flat[None], thickness=0.1)[0]
    motions = np.zeros((6, 4, 6))
    motions[:, :, :3] = _rigid_motions(flat)
    motions[3:, :, 3:] = np.eye(3)[:, None]
    assert np.abs(stiffness @ motions.reshape(6, 24).T).max() < 1e-14
    eigenvalues = np.linalg.eigvalsh(stiffness)
    assert eigenvalues.min() > -1e-14
    assert (eigenvalues > 1e-9).sum() >= 14


def test_tetrahedra_give_the_energy_of_a_uniform_strain() -> None:
    """Undo the scaling: the stiffness must carry a uniform stretch at the exact energy, and translations at none."""
    stiffness, weight, nodes = _unscaled_tetrahedra(80)
    lame, shear = elements._lame(1.0)
    stretch = np.zeros((80, 3))
    stretch[:, 0] = nodes[:, 0]
    energy = stretch.ravel() @ stiffness @ stretch.ravel()
    assert energy == pytest.approx(weight * (lame + 2 * shear), rel=1e-9)
    assert np.abs(stiffness @ _rigid_motions(nodes).reshape(6, -1).T).max() < 1e-9 * np.abs(stiffness).max()


def _unscaled_tetrahedra(points: int) -> tuple[np.ndarray, float, np.ndarray]:
    """Stiffness and the sum of volume times modulus by an element loop, checked against the scaled matrix."""
    from scipy.spatial import Delaunay

    nodes = uniform(3, 3 * points).reshape(points, 3)
    lame, shear = elements._lame(1.0)
    stiffness = np.zeros((3 * points, 3 * points))
    masses, weight, number = np.zeros(points), 0.0, 0
    for simplex in sorted(map(sorted, Delaunay(nodes).simplices)):
        corner = np.hstack([np.ones((4, 1)), nodes[simplex]])
        volume = abs(np.linalg.det(corner)) / 6
        if volume <= 1e-6 / points:
            continue
        g = np.linalg.inv(corner)[1:].T
        masses[simplex] += volume / 4
        modulus = coefficients(23, np.array([number]))[0]
        weight, number = weight + volume * modulus, number + 1
        for a, b in product(range(4), repeat=2):
            block = lame * np.outer(g[a], g[b]) + shear * np.outer(g[b], g[a]) + shear * (g[a] @ g[b]) * np.eye(3)
            rows, columns = 3 * simplex[a], 3 * simplex[b]
            stiffness[rows : rows + 3, columns : columns + 3] += volume * modulus * block
    bedding = np.repeat(10.0 * masses, 3) * np.diag(stiffness).mean()
    whole = stiffness + np.diag(bedding)
    scale = 1 / np.sqrt(np.diag(whole))
    assert elements.tetrahedra(points).toarray() == pytest.approx(scale[:, None] * whole * scale, abs=1e-9)
    return stiffness, weight, nodes


def test_random_words_are_splitmix64() -> None:
    """Against the published generator, one word at a time in Python integers."""
    mask = (1 << 64) - 1
    state = (5 * 0xD1342543DE82EF95 + 0x9E3779B97F4A7C15) & mask
    for word in words(5, 4):
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        assert int(word) == z ^ (z >> 31)
        state = (state + 0x9E3779B97F4A7C15) & mask
    assert uniform(1, 100_000).mean() == pytest.approx(0.5, abs=0.005)


@pytest.mark.parametrize("suffix", [".npz", ".mtx"])
def test_command_line_writes_what_can_be_read_back(tmp_path, suffix: str) -> None:
    path = tmp_path / f"brick{suffix}"
    assert main(["brick", "--small", "-o", str(path)]) == 0
    read = sparse.load_npz(path) if suffix == ".npz" else io.mmread(path)
    assert np.array_equal(read.toarray(), small("brick").toarray())


def test_command_line_lists_names_and_refuses_other_files(tmp_path, capsys) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.split() == [*GALLERY, *CONSTANT, *LARGE]
    for there in (tmp_path / "brick.txt", tmp_path / "nowhere" / "brick.npz"):
        with pytest.raises(SystemExit) as refused:
            main(["brick", "--small", "-o", str(there)])
        assert refused.value.code == 2
    assert "there is no folder" in capsys.readouterr().err
