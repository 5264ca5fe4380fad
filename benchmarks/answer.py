"""What a user waits for: the first call of a fresh machine and of a fresh process, the second, and the hundredth.

    python -m benchmarks.answer                       the gallery and the real matrices, on the host (an hour)
    python -m benchmarks.answer --only brick tuma1    some, into the same file
    python -m benchmarks.answer --only 7-point-256    one with 117 million entries, which others are without
    python -m benchmarks.answer --tune --only real    powers after 20 s of `akx tune`, into a file of its own
    python -m benchmarks.answer --gpu                 on a GPU, beside CuPy (needs it), into a file of its own
    python -m benchmarks.answer --table               print the tables from the files

Each figure is what the user's clock shows around the public call, everything counted: a process of its own imports
NumPy and SciPy (or CuPy) and reads the matrix, and from then on each call is timed by itself, the first with the import
of akx in it. *Later calls* are the median of the second half of up to a hundred. Akx and what a user would have written
without it take turns, each in several processes; medians count. *Fresh machine* is a process without any compiled code
of akx; others find it on the disk. On a GPU matrix and vectors are CuPy's for both, each call is waited for, and a row
of calls that is waited for once stands beside that. The file has the parts of the first call beside its seconds: the
import of akx, and what akx says it was doing.

Values are general: those of the matrix times random numbers between 1/2 and 3/2, the same for an entry and its mirror.
Systems have the same pattern, and a condition of at most 5, 201 or 20,001, so that they take from twenty to a thousand
steps. Nothing is tuned, but with ``--tune``.

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

import json
import logging
import os
import re
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

__all__ = ["CALLS", "RESULTS", "general", "main", "measured", "summary", "system", "table"]

RESULTS = Path(__file__).resolve().parent / "results" / "answer.json"
_GPU_RESULTS = RESULTS.with_name("answer_gpu.json")
_TUNING_SECONDS = 20
_README = Path(__file__).resolve().parents[1] / "README.md"
_PAGE = _README.with_name("docs") / "benchmarks.md"
CALLS = ("powers", "prepared", "cg", "solver", "solve")
_HOST_CALLS, _GPU_CALLS = (*CALLS, "command"), (*CALLS, "cg from host")
_OF_POWERS = ("powers", "prepared")
_POWERS, _RTOL = 8, 1e-8
#: The most processes of each, begun within these seconds of the first; and the most calls and seconds of one.
_PROCESSES, _WITHIN, _TIMES, _SECONDS, _GPU_SECONDS, _ROW_SECONDS = 3, 60.0, 100, 5.0, 2.0, 0.5
#: What is compiled hardly depends on the matrix: these are measured on a fresh machine.
_FRESH = ("pentadiagonal", "brick")
#: By the rows of a matrix modulo 3, the diagonal of its system: the condition is at most 20,001, 201 and 5.
_DIAGONAL = (1.0001, 1.01, 1.5)
#: Who is measured for a call, akx apart: calls that are beside the same share it.
_BESIDE = {"powers": "powers", "prepared": "powers", "cg": "cg", "solver": "cg", "solve": "cg"}

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
    """A symmetric positive definite matrix with the pattern of A and its transpose: W off the diagonal, scaled so that
    its eigenvalues are in [-1, 1], is taken from so many times the identity.
    """
    absolute = abs(sp.csr_array(A).real.astype(float))
    W = sp.csr_array(absolute + absolute.T)
    W = sp.csr_array(W - sp.diags_array(W.diagonal()))
    sums = np.asarray(W.sum(axis=1)).reshape(-1)
    scale = sp.diags_array(1 / np.sqrt(np.where(sums > 0, sums, 1.0)))
    found = sp.diags_array(np.full(sums.size, _DIAGONAL[sums.size % 3])) - scale @ W @ scale
    return sp.csr_array((found + found.T) / 2)


def _of_akx(call: str, A: Any, x: Any) -> Callable[[], Any]:
    """The call, timed with the import of akx."""
    if call == "powers":
        from akx import matrix_powers

        return lambda: matrix_powers(A, x, _POWERS)
    if call == "prepared":
        from akx import MatrixPowers

        made: list[Any] = []

        def apply() -> Any:
            if not made:
                made.append(MatrixPowers(A, _POWERS))
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
    from akx.backends.cuda.baselines.cusparse import ALGORITHMS, CusparsePowers, cusparse_missing
    from akx.report.comparison.mkl import mkl_missing, mkl_powers

    if not gpu:
        if mkl_missing() is not None:
            return None
        out = np.empty((_POWERS + 1, x.size))
        return partial(mkl_powers(akx.Matrix.from_any(A), _POWERS, os.cpu_count() or 1), x, out)
    if cusparse_missing() is not None:
        return None
    from akx.backends.cuda.device.memory import to_device

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
    last, parts, most = begin, dict[str, float](), _GPU_SECONDS if gpu else _SECONDS
    while len(seconds) < times and (len(seconds) < 2 or last - begin < most):
        if run is None:
            run = _of_akx(call, A, x) if who == "akx" else _of_others(call, A, x, linalg)
            parts["import"] = time.perf_counter() - begin
            _listen(parts)
        run()
        wait()
        now = time.perf_counter()
        seconds.append(now - last)
        last = now
        logging.getLogger("akx").setLevel(logging.INFO)
    assert run is not None
    count = max(1, min(len(seconds) // 2, int(_ROW_SECONDS / median(seconds))))
    begin = time.perf_counter()
    for _ in range(count if gpu else 0):
        run()
    wait()
    row = (time.perf_counter() - begin) / count if gpu else None
    print(json.dumps({"each": seconds, "row": row, "parts": parts if who == "akx" else {}}))
    return 0


def _listen(parts: dict[str, float]) -> None:
    """Add what akx says it was doing, and the seconds, to `parts`."""

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said = re.fullmatch(r"(.*) took (.*) s", record.getMessage())
            if said:
                parts[said[1]] = parts.get(said[1], 0.0) + float(said[2])

    logger = logging.getLogger("akx")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(Ear())


def _process(file: Path, call: str, who: str, times: int, gpu: bool, cache: Path | None = None) -> Json | None:
    """Seconds of ``each`` call of a process, and of one of a ``row``; `cache`: a folder without compiled code."""
    environment = {**os.environ, "AKX_DB": str(_plans(file)), "AKX_PREPARE": "auto"}
    if cache is not None:
        environment |= {"NUMBA_CACHE_DIR": str(cache), "CUDA_CACHE_PATH": str(cache), "XDG_CACHE_HOME": str(cache)}
    if call == "command":
        return _command(file, who, environment)
    what = [str(file), call, who, str(times), *(["--gpu"] if gpu else [])]  # one call, or several to compile for
    command = [sys.executable, "-m", "benchmarks.answer", "--child", *what]
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    found: Json | None = json.loads(done.stdout.splitlines()[-1])
    return found


def _tune(file: Path, gpu: bool) -> None:
    words = ["tune", str(file), "--k", str(_POWERS), "--time", str(_TUNING_SECONDS), "--db", str(_plans(file))]
    command = [sys.executable, "-m", "akx", *words, *(["--backend", "cuda"] if gpu else [])]
    subprocess.run(command, check=True, stdout=sys.stderr)


def _plans(file: Path) -> Path:
    return file.with_name("plans.sqlite")


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
    return {"each": [time.perf_counter() - begin], "row": None, "parts": {}}


def measured(case: Case, *, gpu: bool = False, tune: bool = False, processes: int = _PROCESSES) -> Json | None:
    """``matrix``, ``rows``, ``nnz``, and ``calls``: by name ``akx``, ``others`` and perhaps ``best`` {``first``,
    ``second``, ``hundredth``, ``row``, ``all``: seconds of so many ``calls`` of a process; ``parts`` of the first}, and
    ``fresh_machine``, seconds of akx's, or None.
    """
    try:
        A = general(case.load())
    except ValueError as refused:
        print(f"{case.name}: {refused}", file=sys.stderr)
        return None
    entry: Json = {"matrix": case.name, "rows": A.shape[0], "nnz": int(A.nnz), "calls": {}}
    calls = _OF_POWERS if tune else _GPU_CALLS if gpu else _HOST_CALLS
    with tempfile.TemporaryDirectory() as folder:
        files = {kind: Path(folder) / f"{kind}.npz" for kind in ("powers", "system")}
        sp.save_npz(files["powers"], A, compressed=False)
        sp.save_npz(files["system"], system(A), compressed=False)
        del A
        if tune:
            _tune(files["powers"], gpu)

        def process(call: str, who: str, times: int = _TIMES, cache: Path | None = None) -> Json | None:
            file = files["powers" if call in _OF_POWERS else "system"]
            return _process(file, call, who, times, gpu, cache)

        fresh: dict[str, float] = {}
        for call in calls:
            found = process(call, "akx", 1, Path(folder) / f"code-{call}") if case.name in _FRESH else None
            if found is not None:
                fresh[call] = found["each"][0]
        for kind, file in files.items():  # what is compiled is on the disk from now on
            some = [call for call in calls if (call in _OF_POWERS) == (kind == "powers") and call != "command"]
            if some:
                _process(file, ",".join(some), "akx", _TIMES, gpu)
                if gpu:  # CuPy compiles too
                    _process(file, ",".join(dict.fromkeys(_BESIDE.get(call, call) for call in some)), "others", 1, gpu)
        beside = {call: _BESIDE.get(call, call) for call in calls}
        jobs = [*((call, "akx") for call in calls), *((call, "others") for call in dict.fromkeys(beside.values()))]
        if "powers" in calls:
            jobs.append(("powers", "best"))
        runs: dict[tuple[str, str], list[Json]] = {job: [] for job in jobs}
        begin = time.perf_counter()
        for number in range(processes):
            for job in jobs if number == 0 or time.perf_counter() - begin < _WITHIN else ():
                one = process(*job)
                runs[job] += [] if one is None else [one]
    for call in calls:
        of = {"akx": (call, "akx"), "others": (beside[call], "others"), "best": (beside[call], "best")}
        there = {who: runs[job] for who, job in of.items() if runs.get(job)}
        fewest = min(len(run["each"]) for found in there.values() for run in found)
        figures: Json = {who: _summary(found, fewest) for who, found in there.items()}
        entry["calls"][call] = {**figures, "fresh_machine": fresh.get(call)}
    return entry


def _summary(runs: list[Json], calls: int) -> Json:
    each, rows = [run["each"] for run in runs], [run["row"] for run in runs if run["row"] is not None]
    parts = dict.fromkeys(name for run in runs for name in run["parts"])
    return {
        "first": median(one[0] for one in each),
        "second": median(one[1] for one in each) if calls > 1 else None,
        "hundredth": median(median(one[calls // 2 : calls]) for one in each) if calls > 1 else None,
        "row": median(rows) if rows else None,
        "all": median(sum(one[:calls]) for one in each),
        "calls": calls,
        "processes": len(runs),
        "spread": [min(sum(one[:calls]) for one in each), max(sum(one[:calls]) for one in each)],
        "parts": {name: median(run["parts"].get(name, 0.0) for run in runs) for name in parts},
    }


_COLUMNS = {
    "first": "first call",
    "second": "second call",
    "hundredth": "later calls",
    "row": "in a row",
    "all": "all calls",
}


def _gain(found: Sequence[Json], what: str, beside: str = "others") -> str:
    """How many times as fast akx is: the geometric mean of entries of a call, and the least."""
    both = [(one[beside].get(what), one["akx"].get(what)) for one in found if beside in one]
    ratios = [of_others / akx for of_others, akx in both if of_others and akx]
    return f"{geometric_mean(ratios):.2f} (least {min(ratios):.2f})" if ratios else ""


def _of_call(document: Json, call: str) -> list[Json]:
    return [entry["calls"][call] for entry in document["answer"] if call in entry["calls"]]


def table(document: Json) -> str:
    """How many times as fast akx is, by call: geometric mean and least of all matrices; and seconds of first calls."""
    body = []
    for call in dict.fromkeys((*_HOST_CALLS, *_GPU_CALLS)):
        found = _of_call(document, call)
        if not found:
            continue
        fresh = [one["fresh_machine"] for one in found if one["fresh_machine"] is not None]
        first = [one["akx"]["first"] for one in found]
        waits = [f"{median(one):.2f} (most {max(one):.2f})" if one else "" for one in (first, fresh)]
        best = _gain(found, "row", "best") or _gain(found, "hundredth", "best")
        body.append([call, *(_gain(found, what) for what in _COLUMNS), best, *waits])
    from benchmarks import markdown, solving

    head = ["call", *_COLUMNS.values(), "over the best library", "first, s", "first on a fresh machine, s"]
    kept = [at for at in range(len(head)) if any(row[at] for row in body)]
    rows = markdown.rows([head[at] for at in kept], [[row[at] for at in kept] for row in body])
    entries = document["answer"]
    return f"{solving.origin(document, entries)}; {len(entries)} matrices.\n\n{rows}"


#: What a user types, by call.
_TYPED = {
    "powers": "`akx.matrix_powers(A, x, 8)`",
    "prepared": "`P(x, out=V)`, P a `MatrixPowers`",
    "cg": "`akx.solvers.cg(A, b)`",
    "solver": "`solver(b)`, a `Solver`",
    "solve": "`akx.solvers.solve(A, b)`",
}


def summary(host: Json, gpu: Json) -> str:
    """The README's table: second and hundredth call, beside SciPy on the host and beside CuPy on a GPU."""
    from benchmarks import markdown, solving

    head, body = ["what you type"], [[typed] for typed in _TYPED.values()]
    for whom, document in (("SciPy", host), ("CuPy", gpu)):
        head += [f"{whom}: {_COLUMNS[what]}" for what in ("second", "hundredth")]
        for call, row in zip(_TYPED, body, strict=True):
            row += [_gain(_of_call(document, call), what) for what in ("second", "hundredth")]
    said = [f"{solving.origin(one, one['answer'])}, {len(one['answer'])} matrices" for one in (host, gpu)]
    said = [one.removeprefix("Measured ") for one in said]
    return f"{markdown.rows(head, body)}\n\nBeside SciPy {said[0]}. Beside CuPy, A and x on the GPU, {said[1]}."


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; the exit code is 0."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    gpu, tune = "--gpu" in given, "--tune" in given
    given = [word for word in given if word not in ("--gpu", "--tune")]  # a child's clock runs before akx is imported
    if given[:1] == ["--child"]:
        file, names, who, times = given[1:]
        return max(_child(file, call, who, int(times), gpu) for call in names.split(","))
    from benchmarks import each, markdown

    usual = _GPU_RESULTS if gpu else RESULTS
    code = each.run(
        given, partial(measured, gpu=gpu, tune=tune), table, name="answer", description="What a user waits for.",
        entries="answer", results=usual.with_stem(f"{usual.stem}_tuned") if tune else usual, page=_PAGE,
        gpu=gpu,
    )  # fmt: skip
    if not {"-o", "--output", "--docs"} & set(given):
        documents = [json.loads(path.read_text()) for path in (RESULTS, _GPU_RESULTS)]
        markdown.show(summary(*documents), "answer", _README)
    return code


if __name__ == "__main__":
    sys.exit(main())
