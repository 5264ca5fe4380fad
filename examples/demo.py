"""``make demo``: tune two matrices on the command line, then use the plans from Python.

The first is assembled here, as finite elements are, and is larger than the caches near a core: what akx is for. The
second is real and small. Everything is kept in a database of its own, made for this run and removed after it, so that
the demo always shows the tuning and never touches your plans.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_REAL = Path(__file__).resolve().parent / "data" / "bcsstk25.mtx.gz"
_POWERS = 8
#: Elements along an edge of the cube, and seconds of tuning; the first search of a machine is preceded by compiling.
_ELEMENTS, _SECONDS = 110, 40
_LINES = f"""\
A = akx.read_matrix(path)
P = akx.MatrixPowers(A, {_POWERS})   # finds the plan that was just tuned
V = P(x)                     # V[:, j] is A^j x, j = 0..{_POWERS}"""


def heat(elements: int) -> csr_array:
    """The stiffness matrix of heat conduction in a cube: trilinear elements, each with a conductivity of its own.

    Parameters
    ----------
    elements : int
        Along each edge.

    Returns
    -------
    csr_array, shape ((elements + 1)**3, (elements + 1)**3), float64, symmetric; up to 27 entries in a row.
    """
    import numpy as np
    from scipy.sparse import csr_array

    slope, mass = np.array([[1.0, -1.0], [-1.0, 1.0]]), np.array([[2.0, 1.0], [1.0, 2.0]]) / 6
    directions = ((slope, mass, mass), (mass, slope, mass), (mass, mass, slope))
    element = sum(np.kron(np.kron(a, b), c) for a, b, c in directions)
    conductivity = np.exp(np.random.default_rng(1).normal(size=3 * (elements,)))
    side = elements + 1
    entries, there = np.zeros((*3 * (side,), 3, 3, 3)), np.zeros((*3 * (side,), 3, 3, 3), dtype=bool)
    for (a, row), (b, column) in product(enumerate(np.ndindex(2, 2, 2)), repeat=2):
        where = (*(slice(i, i + elements) for i in row), *(1 + np.subtract(column, row)))
        entries[where] += element[a, b] * conductivity
        there[where] = True
    strides = np.array([side * side, side, 1])
    shifts = (np.indices((3, 3, 3)).reshape(3, 27) - 1).T @ strides
    n = side**3
    there = there.reshape(n, 27)
    indices = np.add.outer(np.arange(n, dtype=np.int32), shifts.astype(np.int32))[there]
    indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return csr_array((entries.reshape(n, 27)[there], indices, indptr.astype(np.int32)), shape=(n, n))


def main() -> int:
    """Run the demo; the exit code is that of the first part that fails."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["AKX_DB"] = str(Path(folder) / "plans.sqlite")
        made = str(Path(folder) / "heat.npz")
        print(f"Assembling heat conduction in a cube of {_ELEMENTS}^3 elements ...", flush=True)
        _save(made)
        for number, path in enumerate((made, os.path.relpath(_REAL))):
            command = ["akx", "tune", path, "--k", str(_POWERS), "--time", str(_SECONDS)]
            print("$", *command, flush=True)
            tuned = subprocess.run([sys.executable, "-m", *command], check=False)
            if tuned.returncode != 0:
                return tuned.returncode
            if number == 0:
                print("\nNow from Python:\n")
                print("\n".join(f"    {line}" for line in _LINES.splitlines()), "\n")
            _use(path)
    print("The plans of the demo are gone with it; those of `akx tune FILE` stay, for every later call.")
    return 0


def _save(path: str) -> None:
    from scipy.sparse import save_npz

    save_npz(path, heat(_ELEMENTS), compressed=False)


def _use(path: str) -> None:
    """Call what was tuned, and time it beside SciPy, akx's own plain products and MKL."""
    import numpy as np

    import akx
    from akx.plandb import PlanDatabase

    x = np.random.default_rng(2).normal(size=akx.read_matrix(path).shape[0])
    names: dict[str, Any] = {"akx": akx, "path": path, "x": x}
    exec(_LINES, names)  # what was printed is what runs
    A, P, V = names["A"], names["P"], names["V"]

    def scipy() -> list[Any]:
        vectors = [x]
        for _ in range(_POWERS):
            vectors.append(A @ vectors[-1])
        return vectors

    with PlanDatabase(os.environ["AKX_DB"]) as plans:
        record = plans.of_pattern(akx.Matrix.from_any(A).fingerprint)[0]
    plain = akx.Plan.from_json(record.provenance["baseline_plan"])
    calls: dict[str, Callable[[], object]] = {"akx": lambda: P(x), "SciPy": scipy}
    if plain != P.plan:
        calls["plain products"] = _call(akx.MatrixPowers(A, _POWERS, plan=plain), x)
    calls |= _mkl(A, x)
    difference = max(abs(V[:, j] - v).max() / abs(v).max() for j, v in enumerate(scipy()))
    seconds = _seconds(calls)
    print(f"plan     {P.plan.label()}")
    for name, each in seconds.items():
        print(f"{name:<16}{1e3 * each:9.3f} ms for {_POWERS} powers")
    print(f"Results are equal to {difference:.1e}.")
    print(_sentence(seconds), flush=True)


def _call(P: Any, x: Any) -> Callable[[], object]:
    return lambda: P(x)


def _mkl(A: Any, x: Any) -> dict[str, Callable[[], object]]:
    """MKL's products, prepared as well as they can be, where it is installed."""
    import numpy as np

    import akx
    from akx.report.comparison.baselines import baselines

    matrix, out = akx.Matrix.from_any(A), np.empty((_POWERS + 1, x.size))
    found = baselines(matrix, _POWERS, os.cpu_count() or 1)
    return {"MKL": lambda: found["mkl"](x, out)} if "mkl" in found else {}


def _seconds(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds of each call, timed in turns."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(20):
        for name, call in calls.items():
            call()  # its data are in cache again
            start = time.perf_counter()
            call()
            samples[name].append(time.perf_counter() - start)
    return {name: median(times) for name, times in samples.items()}


def _sentence(seconds: dict[str, float]) -> str:
    """What the tuned plan gains."""
    gains = [f"{of / seconds['akx']:.1f} times as fast as {name}" for name, of in seconds.items() if name != "akx"]
    if "plain products" not in seconds:
        gains.append("by plain products, which nothing beats for this matrix")
    return f"{_POWERS} powers: {', '.join(gains)}; from now on matrix_powers(A, x, {_POWERS}) does this.\n"


if __name__ == "__main__":
    sys.exit(main())
