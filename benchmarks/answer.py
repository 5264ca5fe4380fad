"""What a user waits for: the first call of a fresh machine and of a fresh process, the second, and the hundredth.

    python -m benchmarks.answer                       the gallery and the real matrices, on the host (an hour)
    python -m benchmarks.answer --only brick tuma1    some, into the same file
    python -m benchmarks.answer --gpu                 on a GPU, beside CuPy (needs it), into a file of its own
    python -m benchmarks.answer --table               print the table from the file

Each figure is what the user's clock shows around the public call, everything counted: a process of its own imports
NumPy and SciPy (or CuPy) and reads the matrix, and from then on each call is timed by itself, the first with the import
of akx in it. Akx and what a user would have written without it take turns, each in several processes; medians count.
*Fresh machine* is a process without any compiled code of akx; others find it on the disk. On a GPU matrix and vectors
are CuPy's for both, each call is waited for, and a row of calls that is waited for once stands beside that.

Values are general: those of the matrix times random numbers between 1/2 and 3/2, the same for an entry and its mirror.
Systems have the same pattern, and a diagonal that makes them positive definite. Nothing is tuned.

=============  ===============================================  ==================================================
call           akx                                              beside
=============  ===============================================  ==================================================
powers         ``akx.matrix_powers(A, x, 8)``                   a loop of ``A @ v`` that keeps all vectors
prepared       ``akx.MatrixPowers(A, 8)``, then ``P(x, out=V)``  the same loop
cg             ``akx.solvers.cg(A, b, rtol=1e-8)``              SciPy's or CuPy's ``cg``
solver         ``akx.solvers.Solver(A)``, then ``solver(b)``    SciPy's or CuPy's ``cg``
solve          ``akx.solvers.solve(A, b, rtol=1e-8)``           SciPy's or CuPy's ``cg``
cg from host   as ``cg``, on a GPU                              CuPy's ``cg``, A and b copied there in each call
command        ``akx solve A.npz --method cg``                  a script that reads the file and calls SciPy's ``cg``
=============  ===============================================  ==================================================

*Best* stands beside ``powers`` and ``prepared``: MKL's inspector-executor products on the host where it is installed,
the faster algorithm of cuSPARSE in a CUDA graph on a GPU, both prepared ahead of the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from statistics import geometric_mean, median
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    from benchmarks.matrices import Case

__all__ = ["CALLS", "RESULTS", "general", "main", "measured", "system", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "answer.json"
_GPU_RESULTS = RESULTS.with_name("answer_gpu.json")
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
CALLS = ("powers", "prepared", "cg", "solver", "solve")
_HOST_CALLS, _GPU_CALLS = (*CALLS, "command"), (*CALLS, "cg from host")
_OF_POWERS = ("powers", "prepared")
_POWERS, _RTOL = 8, 1e-8
#: Processes of each, and the most calls and seconds of one.
_PROCESSES, _TIMES, _SECONDS = 3, 100, 20.0

Json = dict[str, Any]


def general(A: Any) -> sp.csr_array:
    """The matrix with general values, symmetric where it was."""
    A = sp.coo_array(A)
    low, high = np.minimum(A.row, A.col).astype(np.uint64), np.maximum(A.row, A.col).astype(np.uint64)
    word = (low * np.uint64(0x9E3779B97F4A7C15)) ^ (high * np.uint64(0xD6E8FEB86659FD93))
    word = (word ^ (word >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    factors = 0.5 + (word >> np.uint64(11)).astype(float) / 2.0**53
    return sp.csr_array(sp.coo_array((A.data * factors, (A.row, A.col)), shape=A.shape))


def system(A: Any) -> sp.csr_array:
    """A symmetric positive definite matrix with the pattern of A and its transpose: some hundred steps, or fewer."""
    absolute = abs(sp.csr_array(A).real.astype(float))
    off = sp.csr_array(absolute + absolute.T)
    off = sp.csr_array(off - sp.diags_array(off.diagonal()))
    sums = np.asarray(off.sum(axis=1)).reshape(-1)
    return sp.csr_array(sp.diags_array(1.01 * sums + 1e-3 * (sums.max() or 1.0)) - off)


def _of_akx(call: str, A: Any, x: Any) -> Callable[[], Any]:
    """The call, timed with the import of akx."""
    if call == "powers":
        import akx

        return lambda: akx.matrix_powers(A, x, _POWERS)
    if call == "prepared":
        import akx

        made: list[Any] = []

        def apply() -> Any:
            if not made:
                made.append(akx.MatrixPowers(A, _POWERS))
                made.append(made[0](x))
            return made[0](x, out=made[1])

        return apply
    from akx import solvers

    if call == "solver":
        kept: list[Any] = []

        def solve() -> Any:
            if not kept:
                kept.append(solvers.Solver(A))
            return kept[0](x, rtol=_RTOL)[0]

        return solve
    if call == "cg from host":
        return lambda: solvers.cg(A, x, rtol=_RTOL, backend="cuda")[0]
    return lambda: getattr(solvers, call)(A, x, rtol=_RTOL)[0]


def _tolerance(linalg: Any) -> dict[str, float]:
    """As a solver of SciPy or CuPy takes it: older ones of CuPy have another name for it."""
    return {"rtol" if "rtol" in signature(linalg.cg).parameters else "tol": _RTOL}


def _of_others(call: str, A: Any, x: Any, linalg: Any) -> Callable[[], Any]:
    if call == "cg from host":
        cupy, on_gpu = import_module("cupy"), import_module("cupyx.scipy.sparse")
        return lambda: linalg.cg(on_gpu.csr_matrix(A), cupy.asarray(x), **_tolerance(linalg))[0].get()
    if call not in _OF_POWERS:
        return lambda: linalg.cg(A, x, **_tolerance(linalg))[0]

    def loop() -> list[Any]:
        vectors = [x]
        for _ in range(_POWERS):
            vectors.append(A @ vectors[-1])
        return vectors

    return loop


def _of_best(A: Any, x: Any, gpu: bool) -> Callable[[], Any] | None:
    """The k products of the best library, prepared; None where there is none."""
    import akx
    from akx.report.cusparse import ALGORITHMS, CusparsePowers, cusparse_missing
    from akx.report.mkl import mkl_missing, mkl_powers

    if not gpu:
        if mkl_missing() is not None:
            return None
        out = np.empty((_POWERS + 1, x.size))
        return partial(mkl_powers(akx.Matrix.from_any(A), _POWERS, os.cpu_count() or 1), x, out)
    if cusparse_missing() is not None:
        return None
    from akx.device.cuda.memory import to_device

    start = np.zeros((_POWERS + 1, 1, A.shape[0]))
    start[0] = x.get()
    runs = [CusparsePowers(akx.Matrix.from_any(A.get()), to_device(start), name).run for name in ALGORITHMS]

    def seconds(run: Callable[[], Any]) -> float:
        wait = import_module("cupy").cuda.Device().synchronize
        run()
        wait()
        begin = time.perf_counter()
        for _ in range(20):
            run()
        wait()
        return time.perf_counter() - begin

    return min(runs, key=seconds)


def _child(file: str, call: str, who: str, times: int, gpu: bool) -> int:
    """Time the calls of one process, and print their seconds."""
    import scipy.sparse.linalg as linalg

    A: Any = sp.csr_array(sp.load_npz(file))
    x: Any = np.random.default_rng(0).random(A.shape[0])
    wait: Callable[[], object] = int
    if gpu:
        cupy, on_gpu = import_module("cupy"), import_module("cupyx.scipy.sparse")
        linalg, wait = import_module("cupyx.scipy.sparse.linalg"), cupy.cuda.Device().synchronize
        if call != "cg from host":
            A, x = on_gpu.csr_matrix(A), cupy.asarray(x)
        (cupy.ones(3) + 1).sum()  # its own start is everybody's
        wait()
    run: Callable[[], Any] | None = None
    if who == "best":
        run = _of_best(A, x, gpu)
        if run is None:
            print("null")
            return 0
    seconds, begin = list[float](), time.perf_counter()
    last = begin
    while len(seconds) < times and (len(seconds) < 2 or last - begin < _SECONDS):
        if run is None:
            run = _of_akx(call, A, x) if who == "akx" else _of_others(call, A, x, linalg)
        run()
        wait()
        now = time.perf_counter()
        seconds.append(now - last)
        last = now
    assert run is not None
    count = max(1, len(seconds) // 2)
    begin = time.perf_counter()
    for _ in range(count if gpu else 0):
        run()
    wait()
    print(json.dumps({"each": seconds, "row": (time.perf_counter() - begin) / count if gpu else None}))
    return 0


def _process(file: Path, call: str, who: str, times: int, gpu: bool, cache: Path | None = None) -> Json | None:
    """Seconds of ``each`` call of a process, and of one of a ``row``; `cache`: a folder without compiled code."""
    environment = {**os.environ, "AKX_DB": str(file.with_name("plans.sqlite")), "AKX_PREPARE": "auto"}
    if cache is not None:
        environment |= {"NUMBA_CACHE_DIR": str(cache), "CUDA_CACHE_PATH": str(cache), "XDG_CACHE_HOME": str(cache)}
    if call == "command":
        return _command(file, who, environment)
    what = [str(file), call, who, str(times), *(["--gpu"] if gpu else [])]
    command = [sys.executable, "-m", "benchmarks.answer", "--child", *what]
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    found: Json | None = json.loads(done.stdout.splitlines()[-1])
    return found


def _command(file: Path, who: str, environment: dict[str, str]) -> Json:
    """Seconds of a process from its start to its end, which reads the file and solves."""
    script = (
        "import sys, numpy as np, scipy.sparse as sp, scipy.sparse.linalg as linalg;"
        "A = sp.csr_array(sp.load_npz(sys.argv[1]));"
        f"print(linalg.cg(A, np.ones(A.shape[0]), rtol={_RTOL})[1])"
    )
    akx = ["-m", "akx", "solve", str(file), "--method", "cg", "--rhs", "ones", "--rtol", str(_RTOL)]
    begin = time.perf_counter()
    command = [sys.executable, *(akx if who == "akx" else ["-c", script, str(file)])]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return {"each": [time.perf_counter() - begin], "row": None}


def measured(case: Case, *, gpu: bool = False, processes: int = _PROCESSES) -> Json | None:
    """``matrix``, ``rows``, ``nnz``, and ``calls``: by name ``akx``, ``others`` and perhaps ``best`` {``first``,
    ``second``, ``hundredth``, ``row``, ``all``: seconds of so many ``calls`` of a process}, and ``fresh_machine``,
    seconds of akx's.
    """
    try:
        A = general(case.load())
    except ValueError as refused:
        print(f"{case.name}: {refused}", file=sys.stderr)
        return None
    entry: Json = {"matrix": case.name, "rows": A.shape[0], "nnz": int(A.nnz), "calls": {}}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "matrix.npz"
        for call in _GPU_CALLS if gpu else _HOST_CALLS:
            sp.save_npz(file, A if call in _OF_POWERS else system(A), compressed=False)
            fresh = _process(file, call, "akx", 1, gpu, Path(folder) / f"code-{call}")
            _process(file, call, "akx", _TIMES, gpu)  # what is compiled is on the disk from now on
            runs: dict[str, list[Json | None]] = {"akx": [], "others": []}
            if call in _OF_POWERS:
                runs["best"] = []
            for _ in range(processes):
                for who, found in runs.items():
                    found.append(_process(file, call, who, _TIMES, gpu))
            there = {who: [run for run in found if run is not None] for who, found in runs.items()}
            calls = min(len(run["each"]) for found in there.values() for run in found)
            figures: Json = {who: _summary(found, calls) for who, found in there.items() if found}
            entry["calls"][call] = {**figures, "fresh_machine": fresh["each"][0] if fresh else None}
    return entry


def _summary(runs: list[Json], calls: int) -> Json:
    each, rows = [run["each"] for run in runs], [run["row"] for run in runs if run["row"] is not None]
    return {
        "first": median(one[0] for one in each),
        "second": median(one[1] for one in each) if calls > 1 else None,
        "hundredth": median(median(one[calls // 2 : calls]) for one in each) if calls > 1 else None,
        "row": median(rows) if rows else None,
        "all": median(sum(one[:calls]) for one in each),
        "calls": calls,
    }


def table(document: Json) -> str:
    """How many times as fast akx is, by call: geometric mean and least of all matrices; and seconds of first calls."""
    columns = {
        "first": "first call",
        "second": "second",
        "hundredth": "hundredth",
        "row": "in a row",
        "all": "all calls",
    }
    entries = document["answer"]
    body = []
    for call in dict.fromkeys((*_HOST_CALLS, *_GPU_CALLS)):
        found = [entry["calls"][call] for entry in entries if call in entry["calls"]]
        if not found:
            continue

        def ratio(what: str, beside: str = "others", found: list[Json] = found) -> str:
            both = [(one[beside].get(what), one["akx"].get(what)) for one in found if beside in one]
            ratios = [of_others / akx for of_others, akx in both if of_others and akx]
            return f"{geometric_mean(ratios):.2f} (least {min(ratios):.2f})" if ratios else ""

        first, fresh = [one["akx"]["first"] for one in found], [one["fresh_machine"] for one in found]
        waits = [f"{median(one):.2f} (most {max(one):.2f})" for one in (first, fresh)]
        best = ratio("row", "best") or ratio("hundredth", "best")
        body.append([call, *map(ratio, columns), best, *waits])
    from benchmarks import markdown, solving

    head = ["call", *columns.values(), "over the best library", "first, s", "first on a fresh machine, s"]
    kept = [at for at in range(len(head)) if any(row[at] for row in body)]
    rows = markdown.rows([head[at] for at in kept], [[row[at] for at in kept] for row in body])
    return f"{solving.origin(document, entries)}; {len(entries)} matrices.\n\n{rows}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; the exit code is 0."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    gpu = "--gpu" in given
    given = [word for word in given if word != "--gpu"]  # what is timed must not find akx imported by the harness
    if given[:1] == ["--child"]:
        parser = argparse.ArgumentParser()
        for name in ("file", "call", "who", "times"):
            parser.add_argument(name, type=int if name == "times" else str)
        return _child(**vars(parser.parse_args(given[1:])), gpu=gpu)
    from benchmarks import each

    return each.run(
        given, partial(measured, gpu=gpu), table, name="answer", description="What a user waits for.", entries="answer",
        results=_GPU_RESULTS if gpu else RESULTS, page=_PAGE,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
