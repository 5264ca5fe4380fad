"""``make demo``: tune a real matrix on the command line, then reuse the plan in a library call of three lines.

Everything is kept in a database of its own, made for this run and removed after it, so that the demo always shows the
tuning and never touches your plans.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

_MATRIX = Path(__file__).resolve().parent / "data" / "bcsstk25.mtx.gz"
_POWERS = 8
#: Seconds of tuning: on a fresh machine half of it is Numba's, which compiles akx's own code once.
_SECONDS = 45
_THREE_LINES = """\
A = akx.read_matrix(path)
P = akx.MatrixPowers(A, 8)       # finds the plan that was just tuned
V = P(np.ones(A.shape[0]))       # V[:, j] is A^j x, j = 0..8"""


def _seconds(*calls: Callable[[], object]) -> list[float]:
    """Median seconds of each call, timed in turns."""
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(30):
        for call, times in zip(calls, samples, strict=True):
            call()  # its data are in cache again
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return [median(times) for times in samples]


def main() -> int:
    """Run the demo; the exit code is that of the first part that fails."""
    path = os.path.relpath(_MATRIX)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["AKX_DB"] = str(Path(folder) / "plans.sqlite")
        command = ["akx", "tune", path, "--k", str(_POWERS), "--time", str(_SECONDS)]
        print("$", *command, flush=True)
        tuned = subprocess.run([sys.executable, "-m", *command], check=False)
        if tuned.returncode != 0:
            return tuned.returncode
        return _reuse(path)


def _reuse(path: str) -> int:
    import numpy as np

    import akx

    print("\nNow from Python:\n")
    print("\n".join(f"    {line}" for line in _THREE_LINES.splitlines()), "\n")
    names: dict[str, Any] = {"akx": akx, "np": np, "path": path}
    exec(_THREE_LINES, names)  # what was printed is what runs
    A, P, V = names["A"], names["P"], names["V"]
    x = V[:, 0].copy()

    def plain() -> list[Any]:
        vectors = [x]
        for _ in range(_POWERS):
            vectors.append(A @ vectors[-1])
        return vectors

    difference = max(abs(V[:, j] - v).max() / abs(v).max() for j, v in enumerate(plain()))
    ours, scipy = _seconds(lambda: P(x), plain)
    print(f"plan      {P.plan.label()}")
    print(f"akx       {1e3 * ours:.2f} ms for {_POWERS} powers")
    print(f"SciPy     {1e3 * scipy:.2f} ms, A @ v {_POWERS} times")
    print(f"speed-up  {scipy / ours:.2f}x over SciPy, results equal to {difference:.1e}")
    print("The baseline above, which tuning has to beat, is the best plain product of akx itself.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
