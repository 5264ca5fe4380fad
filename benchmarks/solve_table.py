"""Is ``solve(A, b)`` near to the best choice in hindsight? On the matrices of the parity table and on new ones.

    python -m benchmarks.solve_table                     all systems, into benchmarks/results/solve_table.json (minutes)
    python -m benchmarks.solve_table --only circuit      one of them, into the same file
    python -m benchmarks.solve_table --again             only ``solve`` anew, beside what the file has of others
    python -m benchmarks.solve_table --gpu               b on a GPU, beside CuPy (needs it), into a file of its own
    python -m benchmarks.solve_table --table             the table of docs/solvers.md from the file

Figures are seconds of CPU (``time.process_time``) of one thread, all counted: scaling, orderings, preconditioners,
steps. The best in hindsight is the least of SuperLU and of cg, minres, gmres and bicgstab with no preconditioner,
Jacobi's, ``spai``, ILU (SciPy's ``spilu``) and PyAMG's multigrid, whichever reach the tolerance; beside it what users
would type, ``spsolve`` and ``pyamg.blackbox.solve``. Each has a process of its own, which is ended once it has taken
several times the best so far, and its code is compiled beforehand. ``solve`` is called twice: the first call knows
nothing of the matrix, the second what the first has found out. Right-hand side: random. A short figure is the mean of
several, each with a matrix that is new.

With ``--gpu`` figures are seconds of the user's clock, waited for: A is SciPy's, b is on the GPU, all counted. The best
in hindsight is the least of CuPy's cg, minres and gmres without and with Jacobi's preconditioner, and its ``spsolve``.
"""

from __future__ import annotations

import argparse
import os
import pickle
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

os.environ.setdefault("AKX_PREPARE", "auto")  # as users have it

import akx.solvers
from akx.backends.host import default_threads
from akx.core.matrix import Matrix
from akx.solvers import SOLVERS, direct, preconditioners
from benchmarks import markdown, parity, planned, record, solving
from benchmarks.gpu_receipt import device
from benchmarks.solve_systems import SYSTEMS

__all__ = ["RESULTS", "contenders", "main", "table"]

#: Those that no constant of ``solve`` was set with.
UNSEEN = ("bcsstk25", "nasa4704", *parity.INDEFINITE, "rail_20209", "tuma1", "sherman4", "pde900", "dwg961b")
#: All; G3_circuit is too large for most that would be tried.
NAMES = [name for name in (*parity.DEFINITE, *parity.OTHERS, *SYSTEMS) if name not in ("G3_circuit", *UNSEEN)]
NAMES += UNSEEN

_FOLDER = Path(__file__).resolve().parent / "results"
RESULTS = _FOLDER / "solve_table.json"
_PAGE = Path(__file__).resolve().parents[1] / "docs" / "solvers.md"
_RTOL = 1e-8
#: Seconds of CPU that one of them may take, and times the best so far.
_MOST, _TIMES, _LEAST = 40, 1.5, 1.0
#: Beyond so many rows times entries a row squared SuperLU is not tried: it would not come back.
_TOO_LARGE = 300_000
#: Seconds that are enough for a figure, as the clock of a process may tick in hundredths, and repetitions for it.
_ENOUGH, _REPEATS = 0.2, 30

#: On a GPU: seconds that one of CuPy's methods may take, and rows times entries beyond which ``spsolve`` is not tried.
_MOST_GPU, _TOO_LONG_GPU = 4.0, 5e9

Json = dict[str, Any]
Attempt = Callable[[Any, Any], tuple[Any, Json]]


def system(name: str) -> tuple[Any, Any]:
    """The matrix and its right-hand side."""
    A = sparse.csr_array(SYSTEMS[name]() if name in SYSTEMS else parity.load(name))
    A.sum_duplicates()
    rng = np.random.default_rng(0)
    b = rng.standard_normal(A.shape[0])
    return A, b + 1j * rng.standard_normal(A.shape[0]) if A.dtype.kind == "c" else b


def contenders(A: Any) -> Iterator[tuple[str, Attempt]]:
    """All that hindsight chooses from, by name."""
    if A.shape[0] < _TOO_LARGE:
        yield "SuperLU", lambda A, b: (linalg.splu(A.tocsc()).solve(b), {})
        yield (
            "SuperLU (A + A^T)",
            lambda A, b: (linalg.splu(A.tocsc(), permc_spec="MMD_AT_PLUS_A").solve(b), {}),
        )
    difference = abs(A - A.conj().T)
    is_hermitian = bool(difference.nnz == 0 or difference.max() <= 1e-13 * abs(A).max())
    is_positive = is_hermitian and bool(A.diagonal().real.min() > 0)
    for method in (*["cg"] * is_positive, *["minres"] * (is_hermitian and A.dtype.kind != "c"), "gmres", "bicgstab"):
        for kind in ("none", "jacobi", "spai", "ilu", "amg"):
            if (kind, method) != ("ilu", "minres"):
                yield f"{method}, {kind}", _iterative(method, kind, is_hermitian=is_hermitian)


def _iterative(method: str, kind: str, *, is_hermitian: bool) -> Attempt:
    def attempt(A: Any, b: Any) -> tuple[Any, Json]:
        M = _preconditioner(A, kind, symmetric=method in ("cg", "minres"), is_hermitian=is_hermitian)
        if method == "minres" and method not in SOLVERS:
            return linalg.minres(A, b, rtol=0.1 * _RTOL, M=M, maxiter=20_000)[0], {}
        x, _, stats = SOLVERS[method](A, b, rtol=_RTOL, M=M, threads=1, return_stats=True)
        return x, {"products": stats.products}

    return attempt


def _preconditioner(A: Any, kind: str, *, symmetric: bool, is_hermitian: bool) -> Any:
    if kind == "none":
        return None
    if kind == "jacobi":
        return preconditioners.jacobi(A)
    if kind == "spai":
        return preconditioners.spai(A, symmetric=symmetric, threads=1)
    if kind == "ilu":
        made = linalg.spilu(A.tocsc(), drop_tol=1e-3, fill_factor=10)
        return linalg.LinearOperator(A.shape, matvec=made.solve, dtype=made.U.dtype)
    import pyamg

    word = {"symmetry": "hermitian" if is_hermitian else "nonsymmetric"}
    return pyamg.smoothed_aggregation_solver(A.tocsr(), **word).aspreconditioner()


def _of_users() -> dict[str, Attempt]:
    def blackbox(A: Any, b: Any) -> tuple[Any, Json]:
        import pyamg

        return pyamg.blackbox.solve(A, b, tol=_RTOL, verb=False), {}

    return {"spsolve": lambda A, b: (linalg.spsolve(A.tocsc(), b), {}), "pyamg.blackbox": blackbox}


def _ours(A: Any, b: Any) -> tuple[Any, Json]:
    begin = time.process_time()
    x, info, stats = akx.solvers.solve(A, b, rtol=_RTOL, threads=1, return_stats=True)
    first = time.process_time() - begin
    begin = time.process_time()
    y, again, more = akx.solvers.solve(A, b, rtol=_RTOL, threads=1, return_stats=True)
    second = time.process_time() - begin
    norm = float(np.linalg.norm(b))
    said = {"method": stats.method, "info": info, "products": stats.products, "notes": stats.notes}
    said |= {"reason": stats.reason, "first": first, "second": second, "products_again": more.products}
    said["is_honest"] = all(
        (i == 0) == bool(np.linalg.norm(b - A @ z) <= _RTOL * norm * (1 + 1e-6)) for z, i in ((x, info), (y, again))
    )
    return x, said | {"method_again": more.method, "info_again": again}


def timed(attempt: Attempt, A: Any, b: Any, most: float) -> Json | None:
    """``seconds``, ``converged`` and what else there is of an attempt in a process of its own; None if it was ended."""
    with tempfile.NamedTemporaryFile() as file:
        child = os.fork()
        if child == 0:
            try:
                signal.setitimer(signal.ITIMER_REAL, 2 * most + 1)  # with a limit in CPU time its clock ticks in 4 ms
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                Path(file.name).write_bytes(pickle.dumps(_attempted(attempt, A, b)))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        written = Path(file.name).read_bytes()
    return pickle.loads(written) if written else None


def _attempted(attempt: Attempt, A: Any, b: Any) -> Json:
    found: list[Json] = []
    norm, total = float(np.linalg.norm(b)), 0.0
    while total < _ENOUGH and len(found) < _REPEATS:
        fresh = A.copy()
        begin = time.process_time()
        try:
            with np.errstate(all="ignore"):
                x, said = attempt(fresh, b)
        except Exception as error:
            return {"seconds": time.process_time() - begin, "converged": False, "error": repr(error)[:200]}
        seconds = time.process_time() - begin
        residual = float(np.linalg.norm(b - A @ x)) / norm
        found.append({"seconds": said.get("first", seconds), "residual": residual, **said})
        found[-1]["converged"] = bool(residual <= (_RTOL * (1 + 1e-6) if "first" in said else 10 * _RTOL))
        total += seconds
    means = {
        key: float(np.mean([one[key] for one in found])) for key in ("seconds", "first", "second") if key in found[0]
    }
    means["seconds"] = max(means["seconds"], 1e-6)
    return found[0] | means


def measure(name: str, known: Json | None = None) -> Json:
    """The entry of a system; of others than ``solve`` what is `known`."""
    A, b = system(name)
    entry = {"matrix": name, "rows": A.shape[0], "nnz": int(A.nnz)}
    if known is None:
        best, tried = float("inf"), dict[str, Json]()
        for label, attempt in contenders(A):
            found = timed(attempt, A, b, min(_MOST, max(_LEAST, _TIMES * best)))
            if found is not None:
                tried[label] = {key: found.get(key) for key in ("seconds", "converged", "products", "error")}
                best = min(best, found["seconds"]) if found["converged"] else best
        users = {
            label: timed(attempt, A, b, min(_MOST, max(_LEAST, 5 * best)))
            for label, attempt in _of_users().items()
            if label != "spsolve" or A.shape[0] < _TOO_LARGE
        }
        entry |= {"tried": tried, "users": users}
    else:
        entry |= {key: known[key] for key in ("tried", "users")}
    reached = {label: one["seconds"] for label, one in entry["tried"].items() if one["converged"]}
    best_label = min(reached, key=lambda label: float(reached[label]), default="")
    most = 10 * reached.get(best_label, 1.0)
    entry["best"] = {"by": best_label, "seconds": reached.get(best_label)}
    entry["solve"] = timed(_ours, A, b, min(_MOST, max(3.0, most)))
    return entry


def measure_gpu(name: str) -> Json:
    """The entry of a system with b on a GPU: ``solve`` twice, and what CuPy has."""
    cupy = import_module("cupy")
    A, b = system(name)
    there = cupy.asarray(b)
    tried = {label: _waited(attempt, A, there) for label, attempt in _cupys(A).items()}
    entry = {"matrix": name, "rows": A.shape[0], "nnz": int(A.nnz), "tried": tried}
    matrix, calls = A.copy(), list[Json]()
    for _ in range(3):
        said: Json = {}
        calls.append(_waited(partial(_on_gpu, said=said), matrix, there) | said)
    reached = {label: one["seconds"] for label, one in tried.items() if one["converged"]}
    best = min(reached, key=lambda label: float(reached[label]), default="")
    entry["best"] = {"by": best, "seconds": reached.get(best)}
    first, second = calls[0], min(calls[1:], key=lambda one: float(one["seconds"]))
    entry["solve"] = {"method": first.get("method"), "notes": first.get("notes"), "products": first.get("products")}
    entry["solve"] |= {"first": first["seconds"], "info": int(not first["converged"])}
    entry["solve"] |= {"second": second["seconds"], "info_again": int(not second["converged"])}
    return entry


def _on_gpu(A: Any, b: Any, said: Json) -> Any:
    x, _, stats = akx.solvers.solve(A, b, rtol=_RTOL, return_stats=True)
    said |= {"method": stats.method, "products": stats.products, "notes": stats.notes}
    return x


def _cupys(A: Any) -> dict[str, Callable[[Any, Any], Any]]:
    """CuPy's solvers for a matrix of the host and b on the GPU."""
    on_gpu, linalg = import_module("cupyx.scipy.sparse"), import_module("cupyx.scipy.sparse.linalg")
    difference = abs(A - A.conj().T)
    is_hermitian = bool(difference.nnz == 0 or difference.max() <= 1e-13 * abs(A).max())
    methods = ["cg"] * (is_hermitian and bool(A.diagonal().real.min() > 0)) + ["minres"] * is_hermitian + ["gmres"]

    def iterative(method: str, *, by_diagonal: bool) -> Callable[[Any, Any], Any]:
        def attempt(A: Any, b: Any) -> Any:
            begin = time.perf_counter()

            def look(_: Any) -> None:
                if time.perf_counter() - begin > _MOST_GPU:
                    raise TimeoutError

            M = on_gpu.csr_matrix(sparse.csr_matrix(sparse.diags(1 / A.diagonal()))) if by_diagonal else None
            solver = getattr(linalg, method)
            rtol = "rtol" if "rtol" in solver.__code__.co_varnames else "tol"
            options = {"restart": 30} if method == "gmres" else {}
            return solver(on_gpu.csr_matrix(A), b, M=M, maxiter=20_000, callback=look, **{rtol: _RTOL}, **options)[0]

        return attempt

    found = {f"{method}, none": iterative(method, by_diagonal=False) for method in methods}
    if A.diagonal().all():
        found |= {f"{method}, jacobi": iterative(method, by_diagonal=True) for method in methods}
    if A.shape[0] * A.nnz < _TOO_LONG_GPU:
        found["spsolve"] = lambda A, b: linalg.spsolve(on_gpu.csr_matrix(A), b)
    return found


def _waited(attempt: Callable[[Any, Any], Any], A: Any, b: Any) -> Json:
    """Seconds of the user's clock, and whether the tolerance was reached."""
    cupy = import_module("cupy")
    wait = cupy.cuda.Device().synchronize
    wait()
    begin = time.perf_counter()
    try:
        x = attempt(A, b)
        wait()
    except Exception as error:
        return {"seconds": time.perf_counter() - begin, "converged": False, "error": repr(error)[:200]}
    seconds = time.perf_counter() - begin
    b = cupy.asnumpy(b)
    residual = float(np.linalg.norm(b - A @ cupy.asnumpy(x)) / np.linalg.norm(b))
    return {"seconds": seconds, "residual": residual, "converged": residual <= _RTOL * (1 + 1e-6)}


def ratio(entry: Json, which: str = "first") -> float:
    """CPU seconds of ``solve`` over those of the best in hindsight; Inf where it did not get there."""
    ours, best = entry["solve"], entry["best"]["seconds"]
    if best is None:
        return float("nan")
    said = ours is not None and (ours["info"] if which == "first" else ours["info_again"]) == 0
    return float(ours[which]) / float(best) if said else float("inf")


def table(document: Json) -> str:
    """A line for each system, and medians."""
    entries = document["systems"]
    head = ["system", "rows", "best in hindsight", "s", "`solve`", "first, s", "ratio", "second, s", "ratio"]
    users = ("spsolve", "pyamg.blackbox") if any("users" in entry for entry in entries) else ()
    head += [f"{label}, s" for label in users]
    body = []
    for entry in entries:
        ours, best = entry["solve"], entry["best"]
        said = ours is not None and ours["info"] == 0
        body.append(
            [entry["matrix"], f"{entry['rows']:,}", best["by"] or "none", _seconds(best["seconds"])]
            + ([ours["method"], _seconds(ours["first"])] if said else ["no", ""])
            + [f"{ratio(entry):.2f}", _seconds(ours["second"]) if said else "", f"{ratio(entry, 'second'):.2f}"]
            + [
                _seconds(one["seconds"]) if (one := entry["users"].get(label)) and one["converged"] else "no"
                for label in users
            ]
        )
    lines = []
    unseen = [entry for entry in entries if entry["matrix"] in UNSEEN]
    for which, those, words in (("first", entries, ""), ("second", entries, ""), ("first", unseen, " of unseen ones")):
        found = np.array([ratio(entry, which) for entry in those])
        found = found[~np.isnan(found)]
        if found.size:
            lines.append(
                f"{which} calls{words}: median {np.median(found):.2f}, within 1.5 in {np.sum(found <= 1.5)} and "
                f"within 3 in {np.sum(found <= 3)} of {found.size}, no answer in {np.sum(np.isinf(found))}, at worst "
                f"{np.max(found):.2f}"
            )
    origin = solving.origin(document, entries)
    clock = "of CPU" if users else "of the user's clock"
    return f"{origin}. Seconds {clock}.\n\n{markdown.rows(head, body, left=(0, 2, 4))}\n\n" + "; ".join(lines) + "."


def warm_up() -> None:
    """Have all code compiled and imported that is measured."""
    import pyamg  # noqa: F401

    for dtype in (float, complex):
        A = sparse.csr_array(SYSTEMS["unit_cube"]().astype(dtype))
        b = np.ones(A.shape[0], dtype)
        for name in SOLVERS:
            for M in (None, preconditioners.jacobi(A)):
                SOLVERS[name](A, b, M=M, threads=1)
        akx.solvers.Solver(A, "gmres", "spai", threads=1)(b)
        akx.solvers.solve(A, b, threads=1)
        akx.solvers.solve(A, b, threads=1, callback=lambda x: None)  # which has it look at A
    for name in ("jumps", "memplus"):  # of which one has its fill counted
        direct.foreseen(Matrix.from_any(system(name)[0]), None)


def warm_up_gpu() -> None:
    """Have both start on the GPU, and their code compiled."""
    cupy = import_module("cupy")
    for name in ("gauge", "poisson_28^3", "surfer", "shifted_laplacian"):
        A, b = system(name)
        for attempt in (*_cupys(A).values(), partial(_on_gpu, said={})):
            _waited(attempt, A, cupy.asarray(b))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the file and the table; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.solve_table", description="solve and hindsight.")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--again", action="store_true", help="measure solve alone, beside what the file has")
    parser.add_argument("--gpu", action="store_true", help="with b on a GPU, beside CuPy")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args(arguments)
    usual = RESULTS.with_stem("solve_table_gpu") if options.gpu else RESULTS
    options.output = options.output or usual
    document = planned.known(options.output, "systems")
    if not options.table:
        origin = dict(record.provenance(default_threads() if options.gpu else 1))
        if options.gpu:
            origin["machine"] |= {"gpu": (device() or {}).get("name", "a GPU")}
            warm_up_gpu()
        else:
            warm_up()
        for name in options.only or NAMES:
            known = next((one for one in document["systems"] if one["matrix"] == name), None)
            entry = measure_gpu(name) if options.gpu else measure(name, known if options.again else None)
            document = solving.keep(options.output, document, "systems", entry, origin)
            ours = entry["solve"] or {}
            words = f"{name}: {entry['best']['by']} {_seconds(entry['best']['seconds'])}, solve {ours.get('method')} "
            words += f"{_seconds(ours.get('first'))}, {_seconds(ours.get('second'))}, ratio {ratio(entry):.2f}"
            print(words, file=sys.stderr, flush=True)
    page = markdown.page_for(options.output, options.docs, usual=usual, page=_PAGE)
    if document["systems"]:
        markdown.show(table(document), usual.stem, page)
    return 0


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value >= 0.1 else f"{value:.4f}"


if __name__ == "__main__":
    sys.exit(main())
