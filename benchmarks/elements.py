"""Finite-element matrices of the gallery: a brick, a shell, an unstructured solid; no loop over elements.

Every matrix is the stiffness of a linear elastic body, K = sum_e int B^T D B, plus springs or inertia on its diagonal,
so that it is symmetric positive definite. Node blocks are full: a zero inside a coupled block is stored.

Assembly. Element e couples its m nodes pairwise; each of the d x d components of a block is a sum over equal pairs (row
node, column node), taken in the order of the elements. The transposed pair meets the same terms in the same order, so a
symmetric sum is symmetric to the last bit.

Each element has a modulus of its own, at random in [0.5, 1.5]. Values are made by + - * / and sqrt in a fixed order, so
without BLAS, LAPACK and einsum, which every machine does in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import Delaunay

from benchmarks.splitmix import coefficients, uniform

__all__ = ["brick", "shell", "tetrahedra"]

Array = NDArray[np.float64]
_POISSON = 0.3
_GAUSS = 1.0 / np.sqrt(3.0)
#: The streams of the moduli.
_BRICK, _SHELL, _SOLID = 21, 22, 23
#: Elements that are made at once: so that the arrays of a shell stay in a cache; and that are summed up at once.
_ELEMENTS, _PART = 512, 1 << 15


def brick(nodes: tuple[int, int, int] = (9, 9, 257)) -> sparse.csr_array:
    """A brick of trilinear hexahedra with three displacements per node, on springs at one end.

    Young's modulus varies from element to element, so that no coupling cancels. Nodes are numbered along the first axis
    fastest and the last, the longest, slowest.

    Parameters
    ----------
    nodes : tuple of int
        Nodes along each axis, each at least 2.

    Returns
    -------
    csr_array, shape (3 * prod(nodes), 3 * prod(nodes)), float64, symmetric positive definite.
    """
    corners = np.array([(i, j, k) for k, j, i in product((0, 1), repeat=3)])
    cells = np.stack(np.meshgrid(*(np.arange(c - 1) for c in nodes[::-1]), indexing="ij"), -1).reshape(-1, 3)[:, ::-1]
    strides = np.array([1, nodes[0], nodes[0] * nodes[1]])
    connectivity = (cells @ strides)[:, None] + corners @ strides
    stiffness = _hexahedron(np.array([1.0, 1.2, 0.9]))
    modulus = coefficients(_BRICK, np.arange(len(cells)))
    support = np.zeros(np.prod(nodes))
    support[: nodes[0] * nodes[1]] = 1.0
    blocks = stiffness.reshape(8, 3, 8, 3)
    return _assemble(
        connectivity, lambda part, a, b: modulus[part, None, None] * blocks[:, a, :, b], np.repeat(support, 3), 3
    )


def shell(nodes: tuple[int, int] = (190, 190)) -> sparse.csr_array:
    """A doubly curved shell of flat four-node elements with six unknowns per node, on springs along its edge.

    Each element joins plane stress, Mindlin bending with the shear integrated at the centre, and a drilling rotation
    tied to the rotation of the mid-surface, all turned from its own frame into the global one, which fills the 6 x 6
    blocks.

    Parameters
    ----------
    nodes : tuple of int
        Nodes along each side, each at least 2; the second side is numbered fastest.

    Returns
    -------
    csr_array, shape (6 * prod(nodes), 6 * prod(nodes)), float64, symmetric positive definite.
    """
    rows, columns = nodes
    u, v = np.meshgrid(np.linspace(-1.0, 1.0, rows), np.linspace(-1.0, 1.0, columns), indexing="ij")
    height = 0.45 * u * u + 0.25 * v * v + 0.1 * u * v
    points = np.stack([u + 0.05 * v * v, v - 0.03 * u * v, height], -1).reshape(-1, 3)
    first = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).ravel()
    connectivity = first[:, None] + np.array([0, columns, columns + 1, 1])
    stiffness = np.empty((len(connectivity), 24, 24))
    for begin in range(0, len(connectivity), _ELEMENTS):
        part = slice(begin, begin + _ELEMENTS)
        stiffness[part] = _flat_shell(points[connectivity[part]], thickness=0.5 / rows)
    stiffness *= coefficients(_SHELL, np.arange(len(connectivity)))[:, None, None]
    stiffness = stiffness.reshape(-1, 4, 6, 4, 6)
    edge = np.ones((rows, columns))
    edge[1:-1, 1:-1] = 0.0
    return _assemble(connectivity, lambda part, a, b: stiffness[part, :, a, :, b], np.repeat(edge.ravel(), 6), 6)


def tetrahedra(points: int = 60_000, seed: int = 3) -> sparse.csr_array:
    """Linear elasticity on the Delaunay tetrahedralisation of random points in the unit cube, in their random order.

    P1 elements; with the gradients g_a of the shape functions, the block of nodes a and b is
    V (lambda g_a g_b^T + mu g_b g_a^T + mu (g_a . g_b) I); the inertia of an implicit time step is added. A random
    triangulation has slivers, whose entries are huge, so the matrix is scaled to a unit diagonal, as a solver would.
    Hull elements without volume are left out.

    Parameters
    ----------
    points : int
        Number of points, at least 5.
    seed : int
        Seed of the points.

    Returns
    -------
    csr_array, shape (3 * points, 3 * points), float64, symmetric positive definite.
    """
    nodes = uniform(seed, 3 * points).reshape(points, 3)
    cells = (nodes * np.cbrt(points) / 4).astype(np.int16)  # a triangulator is faster on points in spatial order
    order = np.lexsort(cells.T)
    connectivity = np.sort(order[Delaunay(nodes[order]).simplices], axis=1)
    connectivity = connectivity[np.lexsort(connectivity.T[::-1])]
    edges = nodes[connectivity[:, 1:]] - nodes[connectivity[:, :1]]
    gradients = np.empty((len(connectivity), 4, 3))
    for a in range(3):
        gradients[:, a + 1] = _cross(edges[:, (a + 1) % 3], edges[:, (a + 2) % 3])
    determinant = _dot(edges[:, 0], gradients[:, 1])
    volume = np.abs(determinant) / 6.0
    kept = volume > 1e-6 / points
    del edges
    connectivity, gradients, volume = connectivity[kept], gradients[kept], volume[kept]
    gradients[:, 1:] /= determinant[kept, None, None]
    gradients[:, 0] = -(gradients[:, 1] + gradients[:, 2] + gradients[:, 3])
    lame, shear = _lame(1.0)
    stiff = volume * coefficients(_SOLID, np.arange(len(volume)))

    def component(part: slice, a: int, b: int) -> Array:
        left, right = gradients[part, :, a], gradients[part, :, b]
        block: Array = lame * (left[:, :, None] * right[:, None, :]) + shear * (right[:, :, None] * left[:, None, :])
        if a == b:
            block += shear * _dot(gradients[part, :, None], gradients[part, None, :])
        block *= stiff[part, None, None]
        return block

    inertia = np.bincount(connectivity.ravel(), weights=np.repeat(volume / 4.0, 4), minlength=points)
    matrix = _assemble(connectivity, component, np.repeat(inertia * 10.0, 3), 3)
    scale = 1.0 / np.sqrt(matrix.diagonal())
    for begin in range(0, matrix.shape[0], _PART):
        rows = matrix.indptr[begin : begin + _PART + 1]
        part = slice(rows[0], rows[-1])
        matrix.data[part] *= np.repeat(scale[begin : begin + _PART], np.diff(rows)) * scale[matrix.indices[part]]
    return matrix


def _lame(modulus: float) -> tuple[float, float]:
    """Lame's two constants of an isotropic material."""
    return modulus * _POISSON / ((1 + _POISSON) * (1 - 2 * _POISSON)), modulus / (2 * (1 + _POISSON))


def _dot(a: Array, b: Array) -> Array:
    """Scalar products of vectors (..., 3)."""
    found: Array = a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1] + a[..., 2] * b[..., 2]
    return found


def _cross(a: Array, b: Array) -> Array:
    """Vector products of vectors (..., 3)."""
    parts = [a[..., i] * b[..., j] - a[..., j] * b[..., i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return np.stack(parts, axis=-1)


def _sum_of_four(a: Array) -> Array:
    """Sums over the last axis, of four."""
    found: Array = a[..., 0] + a[..., 1] + a[..., 2] + a[..., 3]
    return found


def _energy(strain: Sequence[Array], law: Array) -> Array:
    """B^T D B: `strain` has the rows of B, each (..., unknowns); `law` is D."""
    shape = (*strain[0].shape, strain[0].shape[-1])
    found = np.zeros(shape)
    for a, row in enumerate(strain):
        stress = np.zeros(row.shape)
        for b in np.flatnonzero(law[a]):
            stress += law[a, b] * strain[b]
        found += row[..., :, None] * stress[..., None, :]
    return found


def _assemble(
    connectivity: NDArray[np.int64], component: Callable[[slice, int, int], Array], springs: Array, dofs: int
) -> sparse.csr_array:
    """Sum element matrices; `component(part, a, b)`: entry (a, b) of the block of every node pair, (elements, m, m).

    `springs`, one per unknown, are added to the diagonal in units of its mean entry; every node has a diagonal block.
    """
    nodes = len(springs) // dofs
    count, m = connectivity.shape
    ones = np.ones(connectivity.size, dtype=bool)
    member = sparse.csr_array((ones, connectivity.ravel(), np.arange(count + 1) * m), shape=(count, nodes))
    pattern = sparse.csr_array(member.T @ member + sparse.eye_array(nodes, dtype=bool))
    pattern.sort_indices()
    indices, indptr = pattern.indices.astype(np.int32), pattern.indptr.astype(np.int32)
    keys = np.repeat(np.arange(nodes), np.diff(indptr)) * nodes + indices
    del ones, member, pattern
    blocks = np.zeros((len(keys), dofs, dofs))
    for begin in range(0, count, _PART):
        part = slice(begin, begin + _PART)
        of = connectivity[part]
        pairs = np.searchsorted(keys, (of[:, :, None] * nodes + of[:, None, :]).ravel())
        for a, b in product(range(dofs), repeat=2):
            weights = np.broadcast_to(component(part, a, b), (len(of), m, m))
            np.add.at(blocks[:, a, b], pairs, weights.ravel())
    own = np.searchsorted(keys, np.arange(nodes) * (nodes + 1))
    del keys
    diagonal = blocks[own]
    units = np.cumsum(diagonal[:, range(dofs), range(dofs)])[-1] / (nodes * dofs)
    diagonal[:, range(dofs), range(dofs)] += units * springs.reshape(nodes, dofs)
    blocks[own] = diagonal
    shape = (nodes * dofs, nodes * dofs)
    return sparse.csr_array(sparse.bsr_array((blocks, indices, indptr), shape=shape).tocsr())


def _hexahedron(sides: Array) -> Array:
    """Stiffness (24, 24) of a box of unit modulus with 2 x 2 x 2 Gauss points; corners with the first axis fastest."""
    signs = np.array([(i, j, k) for k, j, i in product((-1.0, 1.0), repeat=3)])
    lame, shear = _lame(1.0)
    elasticity = np.diag([2 * shear] * 3 + [shear] * 3)
    elasticity[:3, :3] += lame
    stiffness = np.zeros((24, 24))
    for point in product((-_GAUSS, _GAUSS), repeat=3):
        factors = 1.0 + signs * np.array(point)
        gradient = np.empty((3, 8))
        for axis in range(3):
            others = factors[:, (axis + 1) % 3] * factors[:, (axis + 2) % 3]
            gradient[axis] = signs[:, axis] * others / 8.0 * (2.0 / sides[axis])
        strain = np.zeros((6, 8, 3))
        for axis in range(3):
            strain[axis, :, axis] = gradient[axis]
        for row, (a, b) in enumerate(((0, 1), (1, 2), (2, 0)), start=3):
            strain[row, :, a], strain[row, :, b] = gradient[b], gradient[a]
        stiffness += _energy(list(strain.reshape(6, 24)), elasticity) * (sides[0] * sides[1] * sides[2] / 8.0)
    return 0.5 * (stiffness + stiffness.T)


def _flat_shell(corners: Array, thickness: float) -> Array:
    """Stiffness (elements, 24, 24) of flat four-node shell elements in global axes; `corners` is (elements, 4, 3)."""
    count = len(corners)
    along, across = corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1]
    normal = _cross(along, across)
    first = along - across
    frame = np.stack([first, _cross(normal, first), normal], axis=1)
    frame /= np.sqrt(_dot(frame, frame))[:, :, None]
    centre = (corners[:, 0] + corners[:, 1] + corners[:, 2] + corners[:, 3]) / 4.0
    plane = _dot(frame[:, None, :2], (corners - centre[:, None])[:, :, None])  # (elements, 4, 2)
    membrane = np.array([[1.0, _POISSON, 0.0], [_POISSON, 1.0, 0.0], [0.0, 0.0, (1 - _POISSON) / 2]])
    membrane *= thickness / (1 - _POISSON**2)
    shear = thickness / (2 * (1 + _POISSON))
    stiffness = np.zeros((count, 24, 24))
    signs = np.array([(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)])

    def add(strain: Array, law: Array, weight: Array) -> None:
        local = strain.reshape(count, -1, 8, 3)
        turned = np.zeros(local.shape)
        for axis in range(3):
            turned += local[:, :, :, axis, None] * frame[:, None, None, axis]
        energy = _energy(list(turned.reshape(count, -1, 24).transpose(1, 0, 2)), law)
        energy *= weight[:, None, None]
        np.add(stiffness, energy, out=stiffness)

    def shape_functions(xi: float, eta: float) -> tuple[Array, Array, Array, Array]:
        a, b = 1 + signs[:, 0] * xi, 1 + signs[:, 1] * eta
        local = np.stack([signs[:, 0] * b, signs[:, 1] * a]) / 4.0
        (xx, xy), (yx, yy) = ([_sum_of_four(row * plane[:, :, axis]) for axis in range(2)] for row in local)
        determinant = xx * yy - xy * yx
        dx = (yy[:, None] * local[0] - xy[:, None] * local[1]) / determinant[:, None]
        dy = (xx[:, None] * local[1] - yx[:, None] * local[0]) / determinant[:, None]
        return a * b / 4.0, dx, dy, np.abs(determinant)

    for xi, eta in product((-_GAUSS, _GAUSS), repeat=2):
        values, dx, dy, weight = shape_functions(xi, eta)
        strain = np.zeros((count, 7, 4, 6))  # unknowns of a node: u, v, w, and the rotations about x, y, z
        strain[:, 0, :, 0], strain[:, 1, :, 1], strain[:, 2, :, 0], strain[:, 2, :, 1] = dx, dy, dy, dx
        strain[:, 3, :, 4], strain[:, 4, :, 3], strain[:, 5, :, 4], strain[:, 5, :, 3] = dx, -dy, dy, -dx
        strain[:, 6, :, 0], strain[:, 6, :, 1], strain[:, 6, :, 5] = -0.5 * dy, 0.5 * dx, -values
        law = np.zeros((7, 7))
        law[:3, :3], law[3:6, 3:6], law[6, 6] = membrane, membrane * thickness**2 / 12, shear
        add(strain, law, weight)
    values, dx, dy, weight = shape_functions(0.0, 0.0)
    strain = np.zeros((count, 2, 4, 6))
    strain[:, 0, :, 2], strain[:, 0, :, 4], strain[:, 1, :, 2], strain[:, 1, :, 3] = dx, values, dy, -values
    add(strain, np.eye(2) * (shear * 5 / 6), 4.0 * weight)
    return 0.5 * (stiffness + stiffness.transpose(0, 2, 1))
