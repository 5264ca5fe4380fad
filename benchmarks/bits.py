"""Does another checkout of akx compute the same bits? Every schedule, variant, order, type and thread of the CPU.

    python -m benchmarks.bits ../old-akx                  all of them: a minute, and five more where nothing is compiled
    python -m benchmarks.bits ../old-akx --matrix nodes   of one matrix

The plans are those of this checkout: for each schedule what its space has in one parameter beside the defaults, and
each variant in each order on each number of threads. Both checkouts run all of them, each in a process of its own with
the same packages: a call in the monomial basis, and one in another with two start vectors. A line says what differs, be
it bits, or that only one of the two can run a plan, and the exit code is 1; else it is 0. The last line is how many
plans were compared.

The other checkout need not have this module. What is asked of it are the public names of akx.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

__all__ = ["MATRICES", "compare", "digests", "jobs", "main"]

_ROOT = Path(__file__).resolve().parents[1]
_DTYPES = ("float64", "float32", "complex128", "complex64")
_K = 5
_THREADS = (1, 2, 3)
#: Orders that the space of a matrix may leave out, and plans may have all the same.
_ORDERS = ("natural", "rcm", "levels", "metis")

#: A plan as its fields, and what it is for; JSON types alone.
Job = dict[str, Any]


def _grid(side: int = 95) -> Any:
    """A 9-point grid: diagonals, a front, and enough entries for parts of METIS."""
    line = sparse.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(side, side))
    return sparse.kron(line, line)


def _nodes(nodes: int = 2000) -> Any:
    """Nodes of three unknowns, each coupled to some that are near: dense blocks."""
    at = np.repeat(np.arange(nodes), 4)
    near = np.clip(at + np.random.default_rng(1).integers(-9, 10, at.size), 0, nodes - 1)
    coupled = sparse.coo_array((np.ones(at.size), (at, near)), shape=(nodes, nodes)) + sparse.eye_array(nodes)
    return sparse.kron(coupled, np.ones((3, 3)))


def _uneven(rows: int = 2000) -> Any:
    """Rows of 0 to 30 entries anywhere, and one of a thousand."""
    rng = np.random.default_rng(2)
    lengths = rng.integers(0, 31, rows)
    lengths[rows // 2] = 1000
    row = np.repeat(np.arange(rows), lengths)
    return sparse.coo_array((np.ones(row.size), (row, rng.integers(0, rows, row.size))), shape=(rows, rows))


#: Name -> maker of the pattern.
MATRICES: dict[str, Callable[[], Any]] = {"grid": _grid, "nodes": _nodes, "uneven": _uneven}


def _numbers(rng: np.random.Generator, shape: Any, dtype: str) -> Any:
    values = rng.uniform(-1.0, 1.0, shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.uniform(-1.0, 1.0, shape)
    return values.astype(dtype)


def _matrix(name: str, dtype: str) -> Any:
    """The matrix with values of which no two are the same, no row longer than 1."""
    made = sparse.csr_array(MATRICES[name]())
    made.sum_duplicates()
    made.data = _numbers(np.random.default_rng(3), made.nnz, dtype)
    most = np.dtype(dtype).type(abs(made).sum(axis=1).max())
    return sparse.csr_array((made.data / most, made.indices, made.indptr), shape=made.shape)


def jobs(names: Sequence[str] = tuple(MATRICES), dtypes: Sequence[str] = _DTYPES) -> Iterator[Job]:
    """What is to be computed: ``matrix``, ``dtype``, ``label`` and ``plan``, whether it is feasible or not."""
    from akx import Matrix
    from akx.backends.host import host_device
    from akx.tuner.space import build_space

    device = replace(host_device(), cores=max(_THREADS))
    for name, dtype in product(names, dtypes):
        space = build_space(Matrix.from_any(_matrix(name, dtype)), _K, device, backend="cpu", threads=device.cores)

        def every(parameter: str, space: Any = space) -> list[Any]:
            found = (space.choices(schedule, parameter) for schedule in space.schedules)
            return list(dict.fromkeys(choice for choices in found for choice in choices))

        orders = dict.fromkeys([*_ORDERS, *every("partitioner")])
        for schedule in space.schedules:
            default = space.default(schedule)
            chosen = product(every("variant"), orders, _THREADS)
            plans = [default.replace(variant=v, partitioner=order, threads=t) for v, order, t in chosen]
            for plan in dict.fromkeys([*space.along(default), *plans]):
                fields = {key: value for key, value in plan.to_json().items() if key != "schema"}
                yield {"matrix": name, "dtype": dtype, "label": plan.label(), "plan": fields}


def digests(asked: Sequence[Job]) -> list[str]:
    """The digest of all results of each plan, or why there are none; by the akx that is imported here."""
    import akx

    matrices: dict[tuple[str, str], Any] = {}
    found = []
    for job in asked:
        key = job["matrix"], job["dtype"]
        if key not in matrices:
            matrices = {key: akx.Matrix.from_any(_matrix(*key))}
        matrix, rng = matrices[key], np.random.default_rng(4)
        x, block = (_numbers(rng, shape, job["dtype"]) for shape in ((matrix.n,), (matrix.n, 2)))
        try:
            powers = akx.MatrixPowers(matrix, job["plan"]["k"], plan=akx.Plan(**job["plan"]))
            results = powers(x), powers(block, basis=akx.chebyshev(job["plan"]["k"], (-0.9, 0.8)))
        except (akx.InfeasibleError, akx.PlanError) as error:
            found.append(f"refused: {type(error).__name__}")
            continue
        found.append(hashlib.blake2b(b"".join(V.tobytes("F") for V in results), digest_size=16).hexdigest())
    return found


def compare(other: Path, asked: Sequence[Job]) -> tuple[list[str], int]:
    """What differs in another checkout, a line each, and how many plans were compared."""
    one, two = (_digests_of(checkout, asked) for checkout in (_ROOT, other))
    differences, compared = [], 0
    for job, ours, theirs in zip(asked, one, two, strict=True):
        if ours == theirs and ours.startswith("refused"):
            continue
        compared += 1
        if ours != theirs:
            differences.append(f"{job['matrix']} {job['dtype']} {job['label']}: {ours} here, {theirs} there")
    return differences, compared


def _digests_of(checkout: Path, asked: Sequence[Job]) -> list[str]:
    """By the akx of a checkout, in a process that finds nothing else of it."""
    told = subprocess.run(
        [sys.executable, "-P", __file__, "--digests", str(checkout)],
        input=json.dumps(asked),
        env=os.environ | {"PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: list[str] = json.loads(told.stdout)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; the exit code is 1 where anything differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bits", description="The same bits as another checkout?")
    parser.add_argument("other", type=Path, help="another checkout of akx")
    parser.add_argument("--matrix", choices=sorted(MATRICES), help="one alone; all by default")
    parser.add_argument("--digests", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    other = options.other.resolve()
    if not (other / "akx" / "__init__.py").is_file():
        parser.error(f"{other} is no checkout of akx")
    if options.digests:
        import akx

        if not Path(str(akx.__file__)).is_relative_to(other):
            parser.error(f"akx comes from {akx.__file__} and not from {other}")
        print(json.dumps(digests(json.load(sys.stdin))))
        return 0
    asked = list(jobs(tuple(MATRICES) if options.matrix is None else (options.matrix,)))
    differences, compared = compare(other, asked)
    print("\n".join([*differences, f"{compared} plans compared, {len(differences)} differ"]))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
