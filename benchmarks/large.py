"""Memory and seconds of large matrices, step by step: ``python -m benchmarks.large``.

    python -m benchmarks.large                          7-point, 128 x 128 x 128, on the host
    python -m benchmarks.large --side 256 --backend cuda --into FILE
    python -m benchmarks.large --step tuned             one step, in this process

Each step has a process of its own, which has done the same with a small matrix before, so that code and libraries are
there. `peak` is the most memory of the process in the step, over what it had before the matrix was made, `held` what it
has after it, each without vectors and in bytes of the matrix in CSR: 1 is that of the caller. Vectors are x and V, and
of a search the V that should come out and its bound. On a GPU x and V of calls are in its memory, and `device_peak` and
`device_held` are the bytes that the step took of it, as the driver says.

`checked` is for a GPU: a prepared operator's call beside CuPy's products, and how far all rows of V are from these,
over the bound of rounding errors.

The matrix is a 7-point grid with values of its own in every entry, all rows summing to less than 1.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from akx.core.parallel import in_pieces

__all__ = ["STEPS", "grid", "main", "measured"]

_K = 8
_SMALL, _CALLS = 12, 5
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")

Json = dict[str, Any]


def grid(side: int) -> sparse.csr_array:
    """7-point grid of side^3 points, (n, n), float64; values in (0.01, 0.14), full mantissas, all different.

    Made in place, on all threads: nothing but the matrix is in memory.
    """
    n = side**3
    nnz = 7 * n - 6 * side**2
    kind = np.int32 if max(n, nnz) < 2**31 else np.int64
    indptr, indices, data = np.zeros(n + 1, dtype=kind), np.empty(nnz, dtype=kind), np.empty(nnz)
    fill = _fill()
    in_pieces(lambda first, last: fill(side, first, last, indptr, indices, data), side, 1)
    return sparse.csr_array((data, indices, indptr), shape=(n, n))


@lru_cache(maxsize=1)
def _fill() -> Any:
    """What writes the arrays of the grid, plane by plane."""
    from numba import njit

    @njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
    def fill(side: int, begin: int, end: int, indptr: Any, indices: Any, data: Any) -> None:
        plane = side * side
        of_plane = 7 * plane - 4 * side
        for z in range(begin, end):
            at = np.int64(z) * of_plane - (plane if z > 0 else 0)
            row = np.int64(z) * plane
            for y in range(side):
                for x in range(side):
                    for d in range(7):
                        step = plane if d == 0 or d == 6 else side if d == 1 or d == 5 else 1
                        column = row - step if d < 3 else row if d == 3 else row + step
                        inside = (
                            (d != 0 or z > 0)
                            and (d != 1 or y > 0)
                            and (d != 2 or x > 0)
                            and (d != 4 or x < side - 1)
                            and (d != 5 or y < side - 1)
                            and (d != 6 or z < side - 1)
                        )
                        if inside:
                            word = np.uint64(at + 1) * np.uint64(0x9E3779B97F4A7C15)
                            word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                            word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                            word ^= word >> np.uint64(31)
                            indices[at] = column
                            data[at] = 0.01 + 0.13 * (np.float64(word >> np.uint64(11)) * 2.0**-53)
                            at += 1
                    row += 1
                    indptr[row] = at

    return fill


class _Peak:
    """Most resident memory while something runs: the kernel's own figure where it can be set back, else by looking."""

    def __enter__(self) -> _Peak:
        self._seen, self._ends = _resident("VmRSS"), threading.Event()
        try:
            _CLEAR.write_text("5")
            self._exact = _resident("VmHWM") < self._seen + (64 << 20)
        except OSError:
            self._exact = False
        self._looks = threading.Thread(target=self._look, daemon=True)
        if not self._exact:
            self._looks.start()
        return self

    def _look(self) -> None:
        while not self._ends.wait(2e-3):
            self._seen = max(self._seen, _resident("VmRSS"))

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self.nbytes = _resident("VmHWM") if self._exact else max(self._seen, _resident("VmRSS"))


def _resident(name: str) -> int:
    """A line of the status of this process, in bytes."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _trim() -> None:
    """Give free memory back to the system, so that it does not count."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _canonical(A: Any, backend: str, seconds: float) -> Callable[[], Any]:
    from akx.core.matrix import Matrix

    return lambda: Matrix.from_any(A)


def _features(A: Any, backend: str, seconds: float) -> Callable[[], Any]:
    from akx.core.matrix import Matrix

    matrix = Matrix.from_any(A)
    return lambda: (matrix.features, matrix.fingerprint, matrix)


def _first(A: Any, backend: str, seconds: float) -> Callable[[], Any]:
    import akx

    x, out = _vectors(A, backend)
    return lambda: akx.matrix_powers(A, x, _K, backend=backend, out=out)


def _again(A: Any, backend: str, seconds: float) -> Callable[[], Any]:
    call = _first(A, backend, seconds)
    call()
    return call


def _predicted(A: Any, backend: str, seconds: float) -> Callable[[], Any]:
    import akx

    x, out = _vectors(A, backend)

    def predict() -> Any:
        operator = akx.MatrixPowers(A, _K, backend=backend, db=_no_database())
        operator(x, out=out)
        return operator

    return predict


def _tuned(A: Any, backend: str, seconds: float) -> Callable[[], Any]:
    import akx

    return lambda: akx.tune(A, _K, backend=backend, seconds=seconds, db=False)


def _checked(A: Any, backend: str, seconds: float) -> Callable[[], Any]:
    import cupy
    from cupyx.scipy.sparse import csr_matrix

    import akx

    x, out = _vectors(A, backend)

    def timed(call: Callable[[], object]) -> float:
        call()
        took = list[float]()
        for _ in range(_CALLS):
            cupy.cuda.Device().synchronize()
            begin = time.perf_counter()
            call()
            cupy.cuda.Device().synchronize()
            took.append(time.perf_counter() - begin)
        return min(took)

    def check() -> Json:
        operator = akx.MatrixPowers(A, _K, backend=backend, db=_no_database())
        own = timed(lambda: operator(x, out=out))
        M, powers = csr_matrix(A), [x]

        def products() -> None:
            del powers[1:]
            for _ in range(_K):
                powers.append(M @ powers[-1])

        theirs, worst = timed(products), 0.0
        for j, right in enumerate(powers[1:], 1):
            bound = 2 * j * (7 + 4) * 2.0**-53 * right  # A and x are not negative: |A|^j |x| is v_j
            worst = max(worst, float(cupy.abs((out[:, j] - right) / bound).max()))
        return {"call_seconds": own, "cupy_seconds": theirs, "error_over_bound": worst, "plan": operator.plan.label()}

    return check


#: By name: what makes ready, and returns what is measured. `predicted` is a prepared operator with its first call.
STEPS: dict[str, Callable[[Any, str, float], Callable[[], Any]]] = {
    "canonical": _canonical,
    "features": _features,
    "first": _first,
    "again": _again,
    "predicted": _predicted,
    "tuned": _tuned,
    "checked": _checked,
}
#: What runs without a GPU, too.
_USUAL = [name for name in STEPS if name != "checked"]


def _vectors(A: Any, backend: str) -> tuple[Any, Any]:
    """x, and memory for V that has been written to; where the work is done."""
    n = A.shape[0]
    x = np.random.default_rng(1).random(n)
    if backend == "cpu":
        return x, np.zeros((_K + 1, n)).T
    import cupy

    V = cupy.empty((_K + 1, n))
    V.data.memset(0, V.nbytes)
    return cupy.asarray(x), V.T


def _vectors_in(step: str, backend: str) -> int:
    """Vectors of the host in a step: x and V, and of a search what V should be and how far from that it may be."""
    if step == "tuned":
        return 1 + 3 * (_K + 1)
    return _K + 2 if backend == "cpu" and step in ("first", "again", "predicted") else 0


def _no_database() -> str:
    return os.environ.get("AKX_DB") or os.devnull


def measured(step: str, side: int, backend: str, seconds: float) -> Json:
    """One step in this process: ``seconds``, ``peak``, ``held`` and, on a GPU, ``device_peak`` and ``device_held``."""
    small = grid(_SMALL)
    STEPS[step](small, backend, 1.0)()
    _trim()
    base = _resident("VmRSS")
    A = grid(side)
    call = STEPS[step](A, backend, seconds)
    _trim()
    of_vectors = 8 * A.shape[0] * _vectors_in(step, backend)
    csr = 12 * A.nnz + 4 * (A.shape[0] + 1)
    with _Peak() as peak, _on_device(backend) as device:
        begin = time.perf_counter()
        found = call()
        took = time.perf_counter() - begin
    _trim()
    after = _resident("VmRSS")
    entry = {"step": step, "backend": backend, "rows": A.shape[0], "nnz": A.nnz, "csr_bytes": csr, "seconds": took}
    kept = 0 if step == "tuned" else of_vectors
    entry |= {"peak": (peak.nbytes - base - of_vectors) / csr, "held": (after - base - kept) / csr}
    entry |= {f"device_{name}": nbytes / csr for name, nbytes in device.items()}
    if isinstance(found, dict):
        return entry | found
    plan = getattr(found, "plan", None)
    return entry if plan is None else entry | {"plan": plan.label()}


@contextlib.contextmanager
def _on_device(backend: str) -> Iterator[Json]:
    """What it takes of the device at most and at the end; nothing of the host."""
    found: Json = {}
    if backend == "cpu":
        yield found
        return
    free = _free_on_device
    begin, least, ends = free(), [free()], threading.Event()

    def look() -> None:
        while not ends.wait(1e-3):
            least[0] = min(least[0], free())

    looks = threading.Thread(target=look, daemon=True)
    looks.start()
    try:
        yield found
    finally:
        ends.set()
        looks.join()
        found |= {"peak": begin - least[0], "held": begin - free()}


def _free_on_device() -> int:
    """Free bytes of the current device."""
    import cupy

    return int(cupy.cuda.runtime.memGetInfo()[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a line for each step, and write them where asked; the exit code is that of the worst step."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--side", type=int, default=128, help="points along each axis of the grid")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--seconds", type=float, default=10.0, help="of the search")
    parser.add_argument("--steps", default=",".join(_USUAL), help="names with commas between")
    parser.add_argument("--step", choices=STEPS, help="one, in this process, as JSON")
    parser.add_argument("--into", type=Path, help="a file for the entries")
    options = parser.parse_args(arguments)
    if options.step is not None:
        print(json.dumps(measured(options.step, options.side, options.backend, options.seconds)), flush=True)
        return 0
    entries, worst = list[Json](), 0
    for step in options.steps.split(","):
        asked = ["--step", step, "--side", options.side, "--backend", options.backend, "--seconds", options.seconds]
        command = [sys.executable, "-m", "benchmarks.large", *map(str, asked)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        worst = max(worst, abs(done.returncode))
        if done.returncode == 0:
            entries.append(json.loads(done.stdout.splitlines()[-1]))
            shown = {name: round(v, 3) if isinstance(v, float) else v for name, v in entries[-1].items()}
            print(shown, flush=True)
    if options.into is not None:
        from akx.backends.selection import device_of

        document = {"device": device_of(options.backend).name, "seconds": options.seconds, "steps": entries}
        options.into.write_text(json.dumps(document, indent=1) + "\n")
    return worst


if __name__ == "__main__":
    sys.exit(main())
