"""Systems of public galleries that nothing of akx was made with: for :mod:`benchmarks.solve_table`.

Of PyAMG's gallery and the examples that it brings, of scikit-fem's elements, of networkx's graphs, and stencils as
SciPy writes them: definite, indefinite, non-normal, badly scaled, complex, and saddle points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

__all__ = ["SYSTEMS"]


def _line(n: int, low: float = -1.0, middle: float = 2.0, high: float = -1.0) -> Any:
    return sparse.diags_array([low, middle, high], offsets=[-1, 0, 1], shape=(n, n))


def _plane(n: int) -> Any:
    return sparse.kronsum(_line(n), _line(n))


def _example(name: str) -> Any:
    from pyamg.gallery import load_example

    return load_example(name)["A"]


def _poisson(*shape: int) -> Any:
    from pyamg.gallery import poisson

    return poisson(shape)


def _diffusion(n: int, epsilon: float, theta: float, kind: str) -> Any:
    from pyamg.gallery import stencil_grid
    from pyamg.gallery.diffusion import diffusion_stencil_2d

    return stencil_grid(diffusion_stencil_2d(epsilon=epsilon, theta=theta, type=kind), (n, n))


def _jumps(n: int) -> Any:
    """Finite volumes with a coefficient between 1e-3 and 1e3 in squares of eight by eight cells."""
    rng = np.random.default_rng(1)
    of_cell = np.kron(10.0 ** rng.uniform(-3, 3, (n // 8, n // 8)), np.ones((8, 8)))
    cells = np.arange(of_cell.size).reshape(of_cell.shape)
    A = sparse.coo_array((of_cell.size, of_cell.size))
    for one, other in ((np.s_[:, 1:], np.s_[:, :-1]), (np.s_[1:], np.s_[:-1])):
        k = 2 / (1 / of_cell[one] + 1 / of_cell[other]).ravel()
        i, j = cells[one].ravel(), cells[other].ravel()
        A = A + sparse.coo_array((np.r_[k, k, -k, -k], (np.r_[i, j, i, j], np.r_[i, j, j, i])), shape=A.shape)
    border = np.zeros(of_cell.shape)
    border[0], border[-1] = 2 * of_cell[0], 2 * of_cell[-1]
    return A + sparse.diags_array(border.ravel())


def _elasticity(n: int) -> Any:
    from pyamg.gallery import linear_elasticity

    return linear_elasticity((n, n))[0]


def _convection(n: int, velocity: float, *, upwind: bool, turning: bool) -> Any:
    """-Laplace u + v . grad u on n x n cells of a unit square; v turns about the middle or is (1, 1)."""
    h = 1 / (n + 1)
    place = np.arange(1, n + 1) * h - 0.5
    x, y = np.meshgrid(place, place, indexing="ij")
    flows = (-y.ravel(), x.ravel()) if turning else (np.ones(n * n), np.ones(n * n))
    forward = sparse.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(n, n)) / h
    backward = sparse.diags_array([-1.0, 1.0], offsets=[-1, 0], shape=(n, n)) / h
    unit = sparse.eye_array(n)
    A = _plane(n) / h**2
    for axis, flow in enumerate(flows):
        ahead, behind = (sparse.kron(one, unit) if axis == 0 else sparse.kron(unit, one) for one in (forward, backward))
        with_flow, against = (np.maximum(flow, 0), np.minimum(flow, 0)) if upwind else (flow / 2, flow / 2)
        A = A + velocity * (sparse.diags_array(with_flow) @ behind + sparse.diags_array(against) @ ahead)
    return A


def _helmholtz(n: int, waves: float) -> Any:
    """Waves in a square that absorbs a little, one border absorbing all."""
    h = 1 / (n + 1)
    border = np.zeros(n * n)
    border[:n] = waves * h
    return _plane(n) - (waves * h) ** 2 * (1 - 0.05j) * sparse.eye_array(n * n) - 1j * sparse.diags_array(border)


def _mesh(refined: int) -> Any:
    from skfem import MeshTri

    return MeshTri.init_lshaped().refined(refined)


def _fem_l_shape() -> Any:
    from skfem import Basis, ElementTriP2, condense
    from skfem.models.poisson import laplace

    basis = Basis(_mesh(5), ElementTriP2())
    return condense(laplace.assemble(basis), D=basis.get_dofs(), expand=False)


def _fem_elasticity() -> Any:
    from skfem import Basis, ElementTriP1, ElementVector, condense
    from skfem.models.elasticity import lame_parameters, linear_elasticity

    mesh = _mesh(5)
    basis = Basis(mesh, ElementVector(ElementTriP1()))
    held = basis.get_dofs(lambda x: x[0] == mesh.p[0].min())
    return condense(linear_elasticity(*lame_parameters(1e3, 0.45)).assemble(basis), D=held, expand=False)


def _fem_plate() -> Any:
    from skfem import Basis, BilinearForm, ElementTriMorley, condense
    from skfem.helpers import dd, ddot

    basis = Basis(_mesh(4), ElementTriMorley())
    form = BilinearForm(lambda u, v, w: ddot(dd(u), dd(v)))
    return condense(form.assemble(basis), D=basis.get_dofs(), expand=False)


def _fem_stokes() -> Any:
    from skfem import Basis, BilinearForm, ElementTriP1, ElementTriP2, ElementVector, MeshTri, condense
    from skfem.helpers import ddot, div, grad

    mesh = MeshTri.init_symmetric().refined(4)
    velocity = Basis(mesh, ElementVector(ElementTriP2()), intorder=4)
    pressure = velocity.with_element(ElementTriP1())
    stiff = BilinearForm(lambda u, v, w: ddot(grad(u), grad(v))).assemble(velocity)
    free = BilinearForm(lambda u, q, w: div(u) * q).assemble(velocity, pressure)
    A = sparse.block_array([[stiff, -free.T], [-free, None]], format="csr")
    held = np.append(velocity.get_dofs().all(), A.shape[0] - 1)
    return condense(A, D=held, expand=False)


def _fem_darcy() -> Any:
    from skfem import Basis, BilinearForm, ElementTriP0, ElementTriRT0
    from skfem.helpers import div, dot

    flow = Basis(_mesh(4), ElementTriRT0())
    pressure = flow.with_element(ElementTriP0())
    mass = BilinearForm(lambda u, v, w: dot(u, v)).assemble(flow)
    free = BilinearForm(lambda u, q, w: div(u) * q).assemble(flow, pressure)
    return sparse.block_array([[mass, -free.T], [-free, None]])


def _surfer() -> Any:
    """I - 0.95 P^T of a walk on a random graph with far links."""
    n, rng = 20_000, np.random.default_rng(2)
    links = sparse.coo_array((np.ones(8 * n), (rng.integers(0, n, 8 * n), (n * rng.random(8 * n) ** 3).astype(int))))
    links = sparse.csr_array(links + sparse.eye_array(n))
    return sparse.eye_array(n) - 0.95 * (sparse.diags_array(1 / links.sum(axis=1)) @ links).T


def _circuit() -> Any:
    """Conductances between 1e-6 and 1e2 among neighbours of a ring with far links, and controlled sources."""
    n, rng = 10_000, np.random.default_rng(3)
    i = np.r_[np.arange(n), rng.integers(0, n, n // 2)]
    j = np.r_[(np.arange(n) + 1) % n, rng.integers(0, n, n // 2)]
    g = 10.0 ** rng.uniform(-6, 2, i.size)
    A = sparse.coo_array((np.r_[g, g, -g, -g], (np.r_[i, j, i, j], np.r_[i, j, j, i])), shape=(n, n))
    sources = rng.integers(0, n, (2, n // 20))
    gain = sparse.coo_array((10.0 ** rng.uniform(-3, 1, n // 20), tuple(sources)), shape=(n, n))
    return A + gain + sparse.diags_array(np.where(rng.random(n) < 0.02, 1.0, 1e-9))


def _scaled(A: Any, decades: float, *, other: bool = False) -> Any:
    """D A D, or D A E, with entries of 10^U(-decades, decades)."""
    rng = np.random.default_rng(4)
    left = 10.0 ** rng.uniform(-decades, decades, A.shape[0])
    right = 10.0 ** rng.uniform(-decades, decades, A.shape[0]) if other else left
    return sparse.diags_array(left) @ A @ sparse.diags_array(right)


def _grcar(n: int) -> Any:
    return sparse.diags_array([-1.0, 1.0, 1.0, 1.0, 1.0], offsets=[-1, 0, 1, 2, 3], shape=(n, n))


def _whale(n: int) -> Any:
    """A banded Toeplitz matrix with a symbol that turns twice about zero's neighbourhood."""
    bands = {-3: 0.4, -2: -0.7, -1: 1.0, 0: 3.4, 1: -1.1, 2: 1.3, 4: -0.6}
    return sparse.diags_array(list(bands.values()), offsets=list(bands), shape=(n, n))


def _friends() -> Any:
    import networkx as nx

    graph = nx.barabasi_albert_graph(15_000, 4, seed=5)
    return sparse.csr_array(nx.laplacian_matrix(graph), dtype=float) + 1e-2 * sparse.eye_array(15_000)


def _gauge() -> Any:
    from pyamg.gallery import gauge_laplacian

    np.random.seed(6)  # noqa: NPY002  PyAMG draws from it
    return gauge_laplacian(80, beta=0.3)


def _scattered() -> Any:
    rng = np.random.default_rng(7)
    A = sparse.random_array((5000, 5000), density=1e-3, rng=rng, data_sampler=rng.standard_normal)
    return A + sparse.diags_array(3 + rng.random(5000))


#: Name to what makes the matrix.
SYSTEMS: dict[str, Callable[[], Any]] = {
    "poisson_200x200": lambda: _poisson(200, 200),
    "poisson_28^3": lambda: _poisson(28, 28, 28),
    "turned_anisotropy": lambda: _diffusion(120, 1e-3, np.pi / 4, "FE"),
    "grid_anisotropy": lambda: _diffusion(160, 1e-4, 0.0, "FD"),
    "jumps": lambda: _jumps(128),
    "elasticity_50": lambda: _elasticity(50),
    "airfoil": lambda: _example("airfoil"),
    "bar": lambda: _example("bar"),
    "unit_cube": lambda: _example("unit_cube"),
    "local_disc_galerkin": lambda: _example("local_disc_galerkin_diffusion"),
    "recirc_flow": lambda: _example("recirc_flow"),
    "gauge": _gauge,
    "D_A_D": lambda: _scaled(_poisson(90, 90), 2.5),
    "D_A_E": lambda: _scaled(_convection(70, 50.0, upwind=True, turning=False), 2.0, other=True),
    "convection_mild": lambda: _convection(150, 20.0, upwind=False, turning=False),
    "convection_turning": lambda: _convection(120, 1000.0, upwind=True, turning=True),
    "convection_central": lambda: _convection(80, 400.0, upwind=False, turning=True),
    "shifted_laplacian": lambda: _plane(60) - 0.5 * sparse.eye_array(3600),
    "helmholtz_square": lambda: _helmholtz(80, 30.0),
    "l_shape_p2": _fem_l_shape,
    "fem_elasticity": _fem_elasticity,
    "fem_plate": _fem_plate,
    "fem_stokes": _fem_stokes,
    "fem_darcy": _fem_darcy,
    "surfer": _surfer,
    "circuit": _circuit,
    "grcar": lambda: _grcar(2000),
    "toeplitz": lambda: _whale(4000),
    "friends": _friends,
    "scattered": _scattered,
}
