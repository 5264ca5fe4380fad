"""Is one pass over domains, s steps of A M at once, worth anything on a CPU? CPU time of steps, and steps of solves.

    python -m benchmarks.underlap                        into results/underlap.json, then the table (10 minutes)
    python -m benchmarks.underlap --only "7-point 10^3"  one kind, merged into the file
    python -m benchmarks.underlap --table                the table of docs/preconditioners.md from the file

M is ``block_jacobi(A, domains, underlap=s)``, so that s steps of a domain need no more than its ghost zone of s levels.
Measured are v_{j+1} = a A M v_j + b v_j, j < s, with v and M v stored, on one thread, in nanoseconds of the processor
for each row and step, the least of three:

between    as ca_gmres does: M by its factors, a planned product, the shift;
pass       domain by domain, all s steps, the entries of A for a domain and its ghosts and its factors in local numbers;
passes     the same code, s times one step: what reading A and the factors s times costs by itself;
whole      M between products without underlap.

Steps are those of gmres, 30 of a cycle, to 1e-6 for a random b on a smaller grid with domains of the same size: with
Jacobi, whole blocks and underlap. OMP_NUM_THREADS=1 keeps the waiting of BLAS's own threads out of it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp
from scipy.sparse import linalg as sla

from akx.backends.cpu.jit import jit, jit_into
from akx.core.basis import Basis
from akx.partition.base import Partition
from akx.partition.ghost import ghost_zones
from akx.partition.metis import metis_partition
from akx.solvers import gmres
from akx.solvers.flexible import FlexibleArnoldi
from akx.solvers.preconditioners import block_jacobi, jacobi
from akx.solvers.system import make_system
from benchmarks import each, markdown, solving
from benchmarks.many_rhs import _grid
from benchmarks.matrices import Case

__all__ = ["RESULTS", "OnePass", "main", "measured", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "underlap.json"
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "preconditioners.md"
_RTOL, _RESTART, _CYCLES, _ROUNDS = 1e-6, 30, 40, 3

Json = dict[str, Any]


def _line(n: int, wind: float = 0.0) -> Any:
    return sp.diags_array([-1 - wind / n, 2.0, -1 + wind / n], offsets=[-1, 0, 1], shape=(n, n))


def _five(n: int) -> sp.csr_array:
    """Diffusion with wind along one axis, n by n points."""
    return _grid(_line(n, 100.0), _line(n))


def _seven(n: int) -> sp.csr_array:
    return _grid(_line(n), _line(n), _line(n))


def _all(n: int) -> sp.csr_array:
    """27 points."""
    near = sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(n, n))
    return sp.csr_array(27 * sp.eye_array(n**3) - sp.kron(sp.kron(near, near), near))


def _elements(refined: int) -> sp.csr_array:
    """Diffusion by quadratic triangles with a random coefficient."""
    from skfem import Basis as Space
    from skfem import BilinearForm, ElementTriP2, MeshTri, condense
    from skfem.helpers import dot, grad

    space = Space(MeshTri().refined(refined), ElementTriP2())
    each_element = np.exp(np.random.default_rng(0).standard_normal(space.mesh.nelements))
    form = BilinearForm(lambda u, v, w: w.k * dot(grad(u), grad(v)))
    K = form.assemble(space, k=np.repeat(each_element[:, None], space.X.shape[-1], axis=1))
    return sp.csr_array(condense(K, D=space.get_dofs(), expand=False))


def _boxes(n: int, side: int, dimension: int) -> NDArray[np.int64]:
    """The number of the box of each point."""
    box, found = np.arange(n) // side, np.zeros(1, dtype=np.int64)
    for _ in range(dimension):
        found = (found[:, None] * (box[-1] + 1) + box).reshape(-1)
    return found


def _parts(A: Any, rows: int) -> NDArray[np.int64]:
    """Domains of about so many rows, by METIS."""
    return metis_partition(A.indptr, A.indices, max(2, A.shape[0] // rows)).astype(np.int64)


#: The matrix by a size, its domains, the size for steps that are timed and that for solves, and s.
_Kind = tuple[Callable[[int], Any], Callable[[Any, int], Any], int, int, tuple[int, ...]]
_KINDS: dict[str, _Kind] = {
    "5-point 25^2": (_five, lambda A, n: _boxes(n, 25, 2), 500, 200, (2, 4)),
    "5-point 50^2": (_five, lambda A, n: _boxes(n, 50, 2), 500, 200, (2, 4)),
    "7-point 10^3": (_seven, lambda A, n: _boxes(n, 10, 3), 100, 40, (1, 2, 4)),
    "7-point 20^3": (_seven, lambda A, n: _boxes(n, 20, 3), 60, 40, (2, 4)),
    "27-point 12^3": (_all, lambda A, n: _boxes(n, 12, 3), 60, 36, (1, 2, 3)),
    "P2 elements 1000": (_elements, lambda A, n: _parts(A, 1000), 8, 6, (1, 2, 4)),
    "P2 elements 3000": (_elements, lambda A, n: _parts(A, 3000), 8, 6, (2, 4)),
}
_SMALL: _Kind = (_five, lambda A, n: _boxes(n, 12, 2), 36, 36, (2,))


def _select(names: Iterable[str] | None = None, *, reduced: bool = False) -> list[Case]:
    """The kinds by name; reduced, a small grid."""
    return [Case(name, "M", lambda: None) for name in (["small"] if reduced else names or _KINDS)]


class OnePass:
    """s steps of A M, domain by domain; labels (n,) are domains, M as :func:`block_jacobi` has it with an underlap."""

    def __init__(self, A: Any, labels: Any, s: int, underlap: int) -> None:
        K = sp.csr_array(block_jacobi(A, labels, underlap=underlap).matrix.to_scipy())
        is_inside = np.diff(K.indptr) > 1
        order = np.argsort(2 * labels + ~is_inside, kind="stable")  # the inside of a domain first
        cuts = np.concatenate(([0], np.cumsum(np.bincount(labels))))
        zones = ghost_zones(A.indptr, A.indices, Partition(order, cuts), s)
        self.redundancy, self.inside = zones.redundancy, float(is_inside.mean())
        place = np.full(A.shape[0], -1)
        parts: list[list[Any]] = [[], [], []]  # A, L, U
        places: list[Any] = []
        domains = np.zeros((zones.blocks, 3), dtype=np.uint64)
        for block in range(zones.blocks):
            rows = zones.closure(block)
            own = zones.own(block)
            count = int(np.count_nonzero(is_inside[own]))
            domains[block] = zones.ptr[block, 0], count, own.size
            place[rows] = np.arange(rows.size)
            of_A = A[zones.active(block, 1)]
            parts[0].append((of_A.indptr, place[of_A.indices], of_A.data))
            if count:
                inner = sp.csc_array(K[own[:count]][:, own[:count]])
                mode = {"diag_pivot_thresh": 0.05, "options": {"SymmetricMode": True}}
                lu = sla.splu(inner, permc_spec="MMD_AT_PLUS_A", **mode)
                for part, factor in zip(parts[1:], (sp.tril(lu.L, -1), lu.U), strict=True):
                    factor = sp.csr_array(factor)
                    factor.sort_indices()
                    part.append((factor.indptr, factor.indices, factor.data))
                places.append((np.argsort(lu.perm_r), np.argsort(lu.perm_c)))
        self._arrays = (
            domains,
            np.ascontiguousarray((zones.ptr[:, :0:-1] - zones.ptr[:, :1]).astype(np.uint64)),
            zones.rows.astype(np.uint32),
            *(_joined(part) for part in parts),
            tuple(np.concatenate(one).astype(np.uint32) for one in zip(*places, strict=True)),
            1 / A.diagonal()[zones.rows],
        )
        self._work = np.zeros((4, int(np.diff(zones.ptr[:, [0, -1]]).max())))

    def run(self, V: NDArray[Any], Z: NDArray[Any], basis: Basis) -> None:
        """V[1:] (s, n) and Z (s, n) from V[0], as blocks of :mod:`akx.solvers.flexible` have them."""
        _run(*self._arrays, V, Z, basis.a, basis.b, self._work)


def _joined(parts: list[Any]) -> tuple[Any, Any, Any]:
    """Sparse matrices one after another: pointers of all rows, each domain's after those before, columns, values."""
    offsets = np.cumsum([0, *(part[0][-1] for part in parts[:-1])])
    pointers = [part[0][:-1] + offset for part, offset in zip(parts, offsets, strict=True)]
    last = [np.array([offsets[-1] + parts[-1][0][-1]])]
    return (
        np.concatenate(pointers + last).astype(np.uint64),
        np.concatenate([part[1] for part in parts]).astype(np.uint32),
        np.concatenate([part[2] for part in parts]),
    )


@jit_into
def _row(matrix: Any, start: Any, stop: Any, v: Any) -> Any:
    """Entries from start to stop times those of v."""
    one, two = np.uint64(1), np.uint64(2)
    _, columns, values = matrix
    even, odd, e = 0.0, 0.0, start
    while e + one < stop:
        even += values[e] * v[columns[e]]
        odd += values[e + one] * v[columns[e + one]]
        e += two
    if e < stop:
        even += values[e] * v[columns[e]]
    return even + odd


@jit
def _run(
    domains: Any, counts: Any, rows: Any, A: Any, L: Any, U: Any, places: Any, inverse: Any, V: Any, Z: Any,
    a: Any, b: Any, work: Any,
) -> None:  # fmt: skip
    one = np.uint64(1)
    x, v, z, t = work
    of_A = of_inside = np.uint64(0)
    for domain in range(len(domains)):
        first, inside, own = domains[domain, 0], domains[domain, 1], domains[domain, 2]
        for i in range(counts[domain, 0]):
            v[i] = V[0, rows[first + i]]
        for j in range(len(a)):
            # z = a M v on rows at distance <= s - j
            for i in range(inside):
                row = of_inside + i
                t[i] = v[places[0][row]] - _row(L, L[0][row], L[0][row + one], t)
            for k in range(inside):
                i = inside - one - k
                row = of_inside + i
                pivot = U[0][row]
                t[i] = (t[i] - _row(U, pivot + one, U[0][row + one], t)) / U[2][pivot]
                z[places[1][row]] = a[j] * t[i]
            for i in range(inside, counts[domain, j]):
                z[i] = a[j] * inverse[first + i] * v[i]
            # v = A z + b v on rows at distance <= s - j - 1
            for i in range(counts[domain, j + 1]):
                x[i] = _row(A, A[0][of_A + i], A[0][of_A + i + one], z) + b[j] * v[i]
            x, v = v, x
            for i in range(own):
                Z[j, rows[first + i]] = z[i]
                V[j + 1, rows[first + i]] = v[i]
        of_A += counts[domain, 1]
        of_inside += inside


def _between(arnoldi: FlexibleArnoldi, basis: Basis) -> None:
    """A block as ca_gmres has it, without its orthogonalisation."""
    system, W = arnoldi.system, arnoldi.W
    for j in range(basis.k):
        arnoldi._direction(j, basis.a[j])
        system.product(arnoldi.Z[j], W[j + 1], apart=True)
        system.work.combine(basis.b[j : j + 1].reshape(1, 1), W[j : j + 1], W[j + 1 : j + 2], add=True)


def _timed(work: Callable[[], Any], steps: int) -> float:
    """Nanoseconds of the processor over so many, the least of some rounds after a first one."""
    seconds = []
    for _ in range(_ROUNDS + 1):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    return 1e9 * min(seconds[1:]) / steps


def _basis(s: int) -> Basis:
    return Basis("newton", np.full(s, 0.5), np.full(s, -0.7), np.zeros(s))


def _arnoldi(A: Any, M: Any, s: int) -> FlexibleArnoldi:
    """Room for s steps from a random vector."""
    system = make_system("ca_gmres", A, np.ones(A.shape[0]), M=M, threads=1)
    system.prepare()
    arnoldi = FlexibleArnoldi(system, system.rows(s + 1))
    arnoldi.W[0] = np.random.default_rng(0).standard_normal(A.shape[0])
    return arnoldi


def _steps_of(A: Any, labels: Any, s: int) -> Json:
    """How long steps take, and what of the rows is inside; all ways are seen to do the same."""
    n, basis, one = A.shape[0], _basis(s), _basis(1)
    M = block_jacobi(A, labels, underlap=s, threads=1)
    arnoldi = _arnoldi(A, M, s)
    V, Z = np.zeros((s + 1, n)), np.zeros((s, n))
    V[0] = arnoldi.W[0]
    at_once, single = OnePass(A, labels, s, s), OnePass(A, labels, 1, s)
    found: Json = {"s": s, "inside": at_once.inside, "redundancy": at_once.redundancy}
    found["M"] = _timed(lambda: M.matvec(V[0]), n)
    found["between"] = _timed(lambda: _between(arnoldi, basis), s * n)
    ways: dict[str, Callable[[], Any]] = {
        "pass": lambda: at_once.run(V, Z, basis),
        "passes": lambda: [single.run(V[j : j + 2], Z[j : j + 1], one) for j in range(s)],
    }
    for name, way in ways.items():
        V[1:] = Z[:] = 0
        found[name] = _timed(way, s * n)
        assert np.abs(V[-1] - arnoldi.W[s]).max() <= 1e-10 * np.abs(V[-1]).max()
        assert np.abs(Z[-1] - arnoldi.Z[s - 1]).max() <= 1e-10 * np.abs(Z[-1]).max()
    arnoldi.system.release()
    return found


def _whole(A: Any, labels: Any) -> float:
    """How long a step takes with M between products and no underlap."""
    arnoldi = _arnoldi(A, block_jacobi(A, labels, threads=1), 1)
    found = _timed(lambda: _between(arnoldi, _basis(1)), A.shape[0])
    arnoldi.system.release()
    return found


def _solved(A: Any, M: Any) -> Json:
    b = np.random.default_rng(1).standard_normal(A.shape[0])
    options = {"rtol": _RTOL, "restart": _RESTART, "maxiter": _CYCLES, "threads": 1}
    _, info, stats = gmres(A, b, M=M, return_stats=True, **options)  # type: ignore[misc]
    return {"steps": stats.iterations, "info": info}


def measured(name: str) -> Json:
    """``matrix``, ``rows``, ``domains``, ``whole``, a list ``ways`` by s, ``solves`` by ``"jacobi"`` and underlap."""
    make, domains, size, small, steps = _KINDS.get(name, _SMALL)
    A = make(size)
    labels = domains(A, size)
    found: Json = {"matrix": name, "rows": A.shape[0], "domains": int(labels.max()) + 1}
    found |= {"whole": _whole(A, labels), "ways": [_steps_of(A, labels, s) for s in steps]}
    A = make(small)
    labels = domains(A, small)
    found["solves"] = {str(s): _solved(A, block_jacobi(A, labels, underlap=s)) for s in (0, *steps)}
    found["solves"]["jacobi"] = _solved(A, jacobi(A))
    return found


def table(document: Json) -> str:
    """A line for each matrix and s."""
    body = []
    for entry in document["underlap"]:
        for way in entry["ways"]:
            times = [f"{way[name]:.0f}" for name in ("M", "between", "pass", "passes")]
            solves = (entry["solves"][key] for key in ("jacobi", "0", str(way["s"])))
            counts = [str(one["steps"]) if one["info"] == 0 else f"over {one['steps']}" for one in solves]
            rows = f"{entry['rows'] / entry['domains']:,.0f}"
            shares = [f"{way['inside']:.2f}", f"{way['redundancy']:.2f}"]
            body.append([entry["matrix"], rows, str(way["s"]), *shares, *times, f"{entry['whole']:.0f}", *counts])
    heads = ["domains", "rows of one", "s", "inside", "redundancy", "M", "between", "one pass", "s passes"]
    heads += ["underlap 0, between", "steps: Jacobi", "underlap 0", "underlap s"]
    return f"{solving.origin(document, document['underlap'])}.\n\n{markdown.rows(heads, body)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Time, count and write; the exit code is 0."""
    return each.run(
        arguments, lambda case: measured(case.name), table, name="underlap",
        description="s steps of A M in one pass, domain by domain.", entries="underlap", results=RESULTS,
        page=_PAGE, select=_select,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
