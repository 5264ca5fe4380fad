"""``akx solve``: a live line with the residual on stderr, then what was done on stdout, and x in a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from akx.cli.inputs import check_amount, load_matrix, matrix_name, open_database
from akx.cli.output import data_console, emit_json, note, status_console
from akx.cli.output_files import cannot_be_written, check_picture, check_target
from akx.cli.run import EXIT_UNMET, AnsweredError
from akx.core.errors import AkxError, ArgumentError, MatrixError
from akx.report.units import count, counted, duration

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from akx.core.matrix import Matrix
    from akx.plandb import PlanDatabase
    from akx.solvers import SolveStats

__all__ = ["SOLVE_SCHEMA", "SolveRequest", "run_solve"]

#: Version of the JSON object of ``akx solve --json``.
SOLVE_SCHEMA = 1
#: Seconds between two looks at the residual: each costs a product where the solver tells x.
_PAUSE = 0.25


@dataclass(frozen=True)
class SolveRequest:
    """The options of ``akx solve`` as they were given."""

    file: str
    rhs: str = "ones"
    method: str = "auto"
    backend: str = "auto"
    precond: str | None = None
    tau: float = 0.9
    degree: int = 4
    rtol: float = 1e-8
    atol: float = 0.0
    maxiter: int | None = None
    restart: int | None = None
    s: int | None = None
    basis: str = "auto"
    dtype: str | None = None
    threads: int | None = None
    db: str | None = None
    variable: str | None = None
    output: Path | None = None
    plot: Path | None = None


def run_solve(request: SolveRequest, *, as_json: bool) -> int:
    """Solve, print, write; the exit code is 0, or 3 where the answer is not as good as was asked for."""
    for option, value, example in (
        ("--threads", request.threads, 2),
        ("--s", request.s, 4),
        ("--degree", request.degree, 4),
    ):
        check_amount(option, value, example)
    _check_files(request)
    from akx.backends.selection import HOST, device_of
    from akx.solvers.host_fallback import TOO_MUCH

    if request.backend != "auto":
        device_of(request.backend)  # that it is missing is said before anything is read
    database = open_database(request.db)
    matrix = load_matrix(request.file, dtype=request.dtype, variable=request.variable)
    b = _right_hand_side(request.rhs, matrix)
    backend, why = _backend(request, matrix), ""
    try:
        x, info, stats, M, prepared = _solve(request, matrix, b, backend, database, as_json=as_json)
    except TOO_MUCH as error:
        if request.backend != "auto" or backend == HOST:
            raise
        why = str(error)
    if why:
        backend = HOST
        x, info, stats, M, prepared = _solve(request, matrix, b, backend, database, as_json=as_json)
        stats.notes.insert(0, f"solved on the CPU, as it was too much for the GPU: {why}")
    files = _Files(request, x, stats)
    if as_json:
        try:
            files.write()
        except BaseException as failure:
            raise AnsweredError(_as_json(files, matrix, backend, M, prepared, info), failure) from failure
        emit_json(_as_json(files, matrix, backend, M, prepared, info))
    else:
        try:
            _print(request, matrix, backend, M, prepared, stats)
        finally:  # whoever reads stdout may be gone: x is not lost with it
            files.write(say=note)
    if info != 0:
        note(f"not solved: {stats.reason}; try {_next(request, matrix, stats, info)}")
        return EXIT_UNMET
    return 0


def _solve(
    request: SolveRequest, matrix: Matrix, b: Any, backend: str, database: PlanDatabase, *, as_json: bool
) -> tuple[Any, int, SolveStats, Any, float]:
    """On one backend: x, info, the record, the preconditioner and the seconds that it took to make."""
    from akx.solvers import solve

    begin = time.perf_counter()
    M = _preconditioner(request, matrix, backend)
    prepared = time.perf_counter() - begin
    with watched(matrix, b, backend, as_json=as_json) as callback:
        x, info, stats = solve(  # type: ignore[misc]
            matrix,
            b,
            method=request.method,
            rtol=request.rtol,
            atol=request.atol,
            maxiter=request.maxiter,
            M=M,
            callback=callback,
            restart=request.restart,
            s="auto" if request.s is None else request.s,
            basis=request.basis,
            threads=request.threads,
            db=database,
            backend=backend,
            return_stats=True,
        )
    return x, info, stats, M, prepared


def _right_hand_side(rhs: str, matrix: Matrix) -> NDArray[Any]:
    """b: all ones, random (the same each time), or from a file."""
    import numpy as np

    if rhs == "ones":
        return np.ones(matrix.n, dtype=matrix.dtype)
    if rhs == "random":
        rng = np.random.default_rng(0)
        b = rng.standard_normal(matrix.n)
        return (b + 1j * rng.standard_normal(matrix.n) if matrix.dtype.kind == "c" else b).astype(matrix.dtype)
    from akx.core.io import read_vector

    found = read_vector(rhs)
    if found.size != matrix.n:
        raise MatrixError(
            "the right-hand side does not fit the matrix",
            expected=f"{matrix.n} entries",
            found=f"{found.size} in {rhs}",
        )
    wide = np.result_type(found.dtype, matrix.dtype) if found.dtype.kind == "c" else matrix.dtype
    return found.astype(wide)  # a file has no precision of its own: that of the matrix, or of --dtype


def _backend(request: SolveRequest, matrix: Matrix) -> str:
    """Where to solve: what was asked for, or what suits the matrix."""
    from akx.backends.selection import suited

    return suited(lambda one: one.solving_entries, matrix.nnz) if request.backend == "auto" else request.backend


def _preconditioner(request: SolveRequest, matrix: Matrix, backend: str) -> Any:
    """What ``--precond`` asks for, or None."""
    if request.precond is None:
        return None
    made = import_module("akx.solvers.preconditioners")
    if request.precond == "jacobi":
        return made.jacobi(matrix)
    if request.precond == "chebyshev":
        return made.chebyshev(matrix, request.degree, threads=request.threads, db=request.db)
    from akx.solvers.symmetry import is_hermitian

    symmetric = request.method.endswith("cg") or (request.method == "auto" and is_hermitian(matrix))
    return made.spai(matrix, request.tau, symmetric=symmetric, threads=request.threads, backend=backend)


@contextmanager
def watched(matrix: Matrix, b: Any, backend: str, *, as_json: bool) -> Iterator[Callable[[Any], None] | None]:
    """What to call with each x (or relative residual): a line that changes on a terminal, one a digit elsewhere.

    Nothing where steps are queued ahead, as on a GPU: it would wait for the host after each.
    """
    from akx.backends.selection import backend_of

    console = status_console()
    if backend_of(backend).queues:
        with console.status("solving on the GPU") if console.is_terminal else nullcontext():
            yield None
    elif console.is_terminal:
        with console.status("solving") as line:
            yield _Residual(matrix, b, line.update)
    elif as_json:
        yield None
    else:
        yield _Residual(matrix, b, note, each_digit=True)


class _Residual:
    """A callback that computes the relative residual now and then, and says it."""

    def __init__(self, matrix: Matrix, b: Any, say: Callable[[str], object], *, each_digit: bool = False) -> None:
        import numpy as np

        self._norm = np.linalg.norm
        self._A, self._b, self._size = matrix.to_scipy(), b, float(np.linalg.norm(b)) or 1.0
        self._say, self._each_digit = say, each_digit
        self._begin = self._last = time.perf_counter()
        self._calls, self._said = 0, float("inf")

    def __call__(self, value: Any) -> None:
        self._calls += 1
        now = time.perf_counter()
        if now - self._last < _PAUSE:
            return
        residual = (
            float(self._norm(self._b - self._A @ value)) / self._size if getattr(value, "ndim", 0) else float(value)
        )
        self._last = time.perf_counter()
        if self._each_digit and not residual <= 0.1 * self._said:
            return
        self._said = residual
        self._say(f"{now - self._begin:6.1f} s  iteration {self._calls}: relative residual {residual:.2e}")


def _check_files(request: SolveRequest) -> None:
    """Refuse what could not be written when all is done, before anything is computed."""
    inputs = [request.file, *([] if request.rhs in ("ones", "random") else [request.rhs])]
    check_target("--output", request.output, inputs)
    if request.output is not None and request.output.suffix.lower() == ".npz":
        raise ArgumentError("--output is not written as .npz", found=str(request.output), hint="name the file .mtx")
    if request.plot is None:
        return
    from akx.report.solver.convergence_plot import require_plotting

    require_plotting()
    check_picture("--plot", request.plot, inputs)
    if request.output is not None and request.plot.resolve() == request.output.resolve():
        raise ArgumentError("--plot and --output are one file", found=str(request.plot), hint="give another --plot")
    from matplotlib.backend_bases import FigureCanvasBase

    if request.plot.suffix[1:].lower() not in (formats := FigureCanvasBase.get_supported_filetypes()):
        raise ArgumentError(
            "--plot cannot write that format",
            expected=", ".join(sorted(formats)),
            found=request.plot.suffix,
            hint="end the name in .png",
        )


class _Files:
    """What is written once all is done: x, then the picture."""

    def __init__(self, request: SolveRequest, x: Any, stats: SolveStats) -> None:
        self.request, self.x, self.stats = request, x, stats
        self.output: Path | None = None  # where x is, once it is there

    def write(self, say: Callable[[str], object] = lambda _: None) -> None:
        """Write what was asked for, and say what is there."""
        output, plot = self.request.output, self.request.plot
        if output is not None:
            from akx.core.io import write_vector

            write_vector(output, self.x)
            self.output = output
            say(f"wrote x to {output}")
        if plot is not None:
            from akx.report.solver.convergence_plot import plot_convergence

            try:
                plot_convergence(self.stats, plot, matrix_name(self.request.file))
            except OSError as error:
                raise cannot_be_written(plot, "--plot", error) from error
            say(f"plotted the residuals in {plot}")


def _as_json(files: _Files, matrix: Matrix, backend: str, M: Any, prepared: float, info: int) -> dict[str, Any]:
    request = files.request
    return {
        "schema": SOLVE_SCHEMA,
        "matrix": {
            "name": matrix_name(request.file),
            "rows": matrix.n,
            "nnz": matrix.nnz,
            "dtype": matrix.dtype.name,
            "fingerprint": matrix.fingerprint,
        },
        "rhs": request.rhs,
        "backend": backend,
        "asked": {"method": request.method, "rtol": request.rtol, "atol": request.atol, "maxiter": request.maxiter},
        "preconditioner": None
        if M is None
        else {"name": request.precond, "seconds": prepared, "nnz": getattr(M, "nnz", None)},
        "info": info,
        "output": None if files.output is None else str(files.output),
        **files.stats.to_json(),
    }


def _print(request: SolveRequest, matrix: Matrix, backend: str, M: Any, prepared: float, stats: SolveStats) -> None:
    from akx.report.tables import print_pairs

    first = stats.residuals[0] if stats.residuals else float("nan")
    ca = stats.method.startswith("ca_") and stats.s
    method = f"{stats.method}, s = {_spread(stats.s)}, {stats.basis} basis" if ca else stats.method
    spent = ", ".join(f"{phase} {duration(t)}" for phase, t in sorted(stats.seconds.items()) if phase != "total")
    pairs = [
        ("matrix", f"{request.file}: {counted(matrix.n, 'row')}, {counted(matrix.nnz, 'entry')}, {matrix.dtype.name}"),
        ("method", method),
        ("answer", _answer(stats)),
        ("residual", f"{stats.residual:.3e} (at the start {first:.3e}, asked for {stats.target:.3e})"),
        (
            "steps",
            f"{count(stats.iterations)}: {counted(stats.products, 'product')} in "
            f"{counted(stats.matrix_passes, 'pass')} over the matrix",
        ),
        ("time", f"{duration(stats.seconds.get('total', float('nan')))} ({spent})"),
    ]
    if M is not None:
        pairs.insert(2, ("preconditioner", f"{request.precond}, made in {duration(prepared)}"))
    from akx.backends.selection import HOST, device_of

    if backend != HOST:
        pairs.insert(1, ("device", device_of(backend).name))
    print_pairs(pairs, data_console())
    notes = [
        line for line in stats.notes if not line.endswith(f"did not converge: {stats.reason}")
    ]  # it is told anyway
    for line in notes[:12]:
        note(line)
    if len(notes) > 12:
        note(f"and {counted(len(notes) - 12, 'note')} more: see --json")


def _next(request: SolveRequest, matrix: Matrix, stats: SolveStats, info: int) -> str:
    """What to try next, by what was tried and what became of it: the most promising first."""
    from akx.solvers.stopping import NO_SOLUTION

    if info == NO_SOLUTION:
        return "b less what no A x can be: b - mean(b), where A is symmetric and sends constants to zero"
    begun = stats.residuals[0] if stats.residuals else float("nan")
    progress = stats.residual < 0.1 * begun
    ran_out = any(words in stats.reason for words in ("ran out", "not converged after"))
    found: list[str] = []
    if ran_out and request.maxiter is not None:
        found.append(f"--maxiter {10 * max(1, request.maxiter)}")
    if not ran_out and matrix.dtype.name in ("float32", "complex64"):
        found.append(f"--dtype {'float64' if matrix.dtype.kind == 'f' else 'complex128'}")
    if request.method != "auto":
        found.append("--method auto")
    if request.precond is None and _has_jacobi(matrix):
        found.append("--precond jacobi")
    if request.precond != "spai":
        found.append("--precond spai")
    elif request.tau < 1:
        found.append("--tau 1")
    if "gmres" in stats.method and request.restart is not None:
        found.append(f"--restart {2 * request.restart}")
    if not ran_out and progress and request.rtol > 0 and stats.target > request.atol:
        found.append(f"--rtol {2 * request.rtol * stats.residual / stats.target:.0e}, above what it reached")
    return ", or ".join(found[:3]) or "--method gmres --restart 100"


def _has_jacobi(matrix: Matrix) -> bool:
    """Whether the diagonal makes a preconditioner."""
    try:
        import_module("akx.solvers.preconditioners").jacobi(matrix)
    except AkxError:
        return False
    return True


def _answer(stats: SolveStats) -> str:
    """Whether it converged, and why it ended."""
    if not stats.converged:
        return f"NOT CONVERGED: {stats.reason}".replace(": not converged", "")
    return stats.reason if stats.reason.startswith("converged") else f"converged: {stats.reason}"


def _spread(s: list[int]) -> str:
    return f"{s[0]}" if min(s) == max(s) else f"{min(s)} to {max(s)}"
