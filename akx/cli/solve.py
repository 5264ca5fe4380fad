"""``akx solve``: a live line with the residual on stderr, then what was done on stdout, and x in a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from akx.cli.exit_codes import EXIT_UNMET, AnsweredError
from akx.cli.inputs import check_amount, load_matrix, matrix_name, open_database
from akx.cli.options import (
    BACKEND_METAVAR,
    Database,
    Dtype,
    File,
    Json,
    Threads,
    Variable,
    either_spelling,
    known_backend,
)
from akx.cli.output import data_console, emit_json, note
from akx.cli.output_files import check_picture, check_target
from akx.cli.progress import watched
from akx.cli.solve_hints import as_options, in_options, next_options
from akx.core.errors import ArgumentError, MatrixError
from akx.report.units import counted
from akx.solvers.registry import NAMES, PRECONDITIONERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from akx.core.matrix import Matrix
    from akx.solvers import SolveStats

__all__ = ["SOLVE_SCHEMA", "solve"]

#: Version of the JSON object of ``akx solve --json``.
SOLVE_SCHEMA = 1
#: Notes of a solve that people are told.
_MOST_NOTES = 12
_METHODS = ("auto", *NAMES)


class SolverBasisName(StrEnum):
    AUTO = "auto"
    MONOMIAL = "monomial"
    NEWTON = "newton"
    CHEBYSHEV = "chebyshev"


RightHandSide = Annotated[
    str,
    typer.Option(
        "--rhs",
        metavar="FILE|ones|random",
        help="Right-hand side: a Matrix Market file of one column, or of several; or by name.",
    ),
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        metavar=f"<{'|'.join(_METHODS)}>",
        callback=either_spelling(_METHODS),
        help="Solver; auto goes by the matrix, and by what is known to be faster.",
    ),
]
SolverBackend = Annotated[
    str,
    typer.Option(
        "--backend",
        metavar=BACKEND_METAVAR,
        callback=known_backend,
        help="Where to solve; auto takes a GPU, if there is one with room, from a million entries on.",
    ),
]
Precond = Annotated[
    str | None,
    typer.Option(
        "--precond",
        metavar=f"<{'|'.join(PRECONDITIONERS)}>",
        callback=either_spelling(PRECONDITIONERS),
        help="Preconditioner.",
    ),
]
Tau = Annotated[float, typer.Option("--tau", help="Of spai: 0 keeps the diagonal, 1 the pattern of the matrix.")]
Degree = Annotated[int, typer.Option("--degree", help="Of chebyshev: products for each use of it.")]
RelativeTolerance = Annotated[float, typer.Option("--rtol", help="Residual to reach, relative to that of x = 0.")]
AbsoluteTolerance = Annotated[float, typer.Option("--atol", help="Residual to reach, absolute.")]
MostSteps = Annotated[
    int | None,
    typer.Option(
        "--maxiter", help="Most steps of all methods together; with --method gmres or ca_gmres most restart cycles."
    ),
]
Restart = Annotated[int | None, typer.Option("--restart", help="Steps of gmres between restarts.")]
StepsPerPass = Annotated[
    int | None, typer.Option("--s", help="Most steps for each pass over the matrix; by default the solver decides.")
]
Basis = Annotated[SolverBasisName, typer.Option("--basis", help="Kind of polynomial basis.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="PATH", help="Where x goes, in Matrix Market form.")
]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="PATH", help="Where a picture of the residuals goes (plot extra).")
]


@dataclass(frozen=True)
class _Solution:
    """What a solver gave, and with which preconditioner, made in how many seconds, on which backend."""

    x: Any
    info: int
    stats: SolveStats
    M: Any
    preparing: float
    backend: str


def solve(
    file: File,
    rhs: RightHandSide = "ones",
    method: Method = "auto",
    backend: SolverBackend = "auto",
    precond: Precond = None,
    tau: Tau = 0.9,
    degree: Degree = 4,
    rtol: RelativeTolerance = 1e-8,
    atol: AbsoluteTolerance = 0.0,
    maxiter: MostSteps = None,
    restart: Restart = None,
    s: StepsPerPass = None,
    basis: Basis = SolverBasisName.AUTO,
    output: Output = None,
    plot: Plot = None,
    dtype: Dtype = None,
    threads: Threads = None,
    db: Database = None,
    variable: Variable = None,
    as_json: Json = False,
) -> int:
    """Solve A x = b, and say how good the answer is. Exit code 3 where it is not as good as asked for."""
    for option, value, example in (("--s", s, 4), ("--degree", degree, 4)):
        check_amount(option, value, example)
    if not 0 <= tau <= 1:
        raise ArgumentError("--tau is out of range", expected="a number from 0 to 1", found=f"{tau:g}")
    _check_method(method, {"restart": restart, "s": s, "basis": None if basis.value == "auto" else basis.value})
    _check_files(output, plot, [file, *([] if rhs in ("ones", "random") else [rhs])])
    from akx.backends.selection import device_of

    if backend != "auto":
        device_of(backend)  # that it is missing is said before anything is read
    database = open_database(db)
    matrix = load_matrix(file, dtype=dtype, variable=variable)
    b = _right_hand_side(rhs, matrix)
    asked: dict[str, Any] = {"method": method, "rtol": rtol, "atol": atol, "maxiter": maxiter}
    options = {**asked, "restart": restart, "s": s or "auto", "basis": basis.value, "threads": threads, "db": database}

    def solve_on(backend: str) -> _Solution:
        from akx.solvers import solve

        begin = time.perf_counter()
        with in_options():
            M = _preconditioner(precond, matrix, backend, method, tau=tau, degree=degree, threads=threads, db=db)
            preparing = time.perf_counter() - begin
            with watched(matrix, b, backend, as_json=as_json) as callback:
                how: dict[str, Any] = {**options, "backend": backend, "callback": callback, "return_stats": True}
                x, info, stats = solve(matrix, b, M=M, **how)  # type: ignore[misc]
        stats.reason, stats.notes = as_options(stats.reason), [*map(as_options, stats.notes)]
        return _Solution(x, info, stats, M, preparing, backend)

    found = _solve_where(backend, matrix, solve_on)
    files = _Files(output, plot, matrix_name(file), found)
    if as_json:
        _emit(found, matrix, files, rhs=rhs, asked=asked, precond=precond)
    else:
        try:
            _print(found, matrix, file, precond)
        finally:  # whoever reads stdout may be gone: x is not lost with it
            files.write(say=note)
    if found.info == 0:
        return 0
    tried = next_options(matrix, found.stats, found.info, **asked, precond=precond, tau=tau, restart=restart)
    note(f"not solved: {found.stats.reason}; try {tried}")
    return EXIT_UNMET


def _solve_where(asked: str, matrix: Matrix, solve_on: Callable[[str], _Solution]) -> _Solution:
    """Solve on the backend asked for, or on what suits the matrix: on the host where it is too much for another."""
    from akx.backends.selection import HOST, suited
    from akx.solvers.host_fallback import TOO_MUCH

    backend = suited(lambda one: one.solving_entries, matrix.nnz) if asked == "auto" else asked
    try:
        return solve_on(backend)
    except TOO_MUCH as error:
        if asked != "auto" or backend == HOST:
            raise
        why = str(error)
    found = solve_on(HOST)
    found.stats.notes.insert(0, f"solved on the CPU, as it was too much for the GPU: {why}")
    return found


def _right_hand_side(rhs: str, matrix: Matrix) -> NDArray[Any]:
    """b: all ones, random (the same each time), or from a file, whose columns may be several."""
    import numpy as np

    if rhs == "ones":
        return np.ones(matrix.n, dtype=matrix.dtype)
    if rhs == "random":
        rng = np.random.default_rng(0)
        b = rng.standard_normal(matrix.n)
        return (b + 1j * rng.standard_normal(matrix.n) if matrix.dtype.kind == "c" else b).astype(matrix.dtype)
    from akx.core.io import read_vector

    found = read_vector(rhs, several=True)
    if len(found) != matrix.n:
        raise MatrixError(
            "the right-hand side does not fit the matrix",
            expected=f"{matrix.n} entries",
            found=f"{len(found)} in {rhs}",
        )
    wide = np.result_type(found.dtype, matrix.dtype) if found.dtype.kind == "c" else matrix.dtype
    return found.astype(wide)  # a file has no precision of its own: that of the matrix, or of --dtype


def _preconditioner(
    name: str | None,
    matrix: Matrix,
    backend: str,
    method: str,
    *,
    tau: float,
    degree: int,
    threads: int | None,
    db: str | None,
) -> Any:
    """What ``--precond`` asks for, or None."""
    if name is None:
        return None
    from akx.solvers.arguments import named

    every: dict[str, dict[str, Any]] = {"spai": {"tau": tau}, "chebyshev": {"degree": degree}}
    return named(name, matrix, method, threads=threads, db=db, backend=backend, **every.get(name, {}))


def _check_method(method: str, given: dict[str, Any]) -> None:
    """Refuse what the method has not."""
    for name, value in given.items():
        of = ["gmres", "ca_gmres"] if name == "restart" else [one for one in NAMES if one.startswith("ca_")]
        if value is not None and method not in ("auto", *of):
            raise ArgumentError(
                f"{method} has no --{name}", found=f"--{name} {value}", hint=f"it is for {', '.join(of)}, or auto"
            )


def _check_files(output: Path | None, plot: Path | None, inputs: Sequence[str]) -> None:
    """Refuse what could not be written when all is done, before anything is computed."""
    check_target("--output", output, inputs)
    if output is not None and output.suffix.lower() == ".npz":
        raise ArgumentError("--output is not written as .npz", found=str(output), hint="name the file .mtx")
    if plot is None:
        return
    from akx.report.pictures import require_plotting

    require_plotting("--plot")
    check_picture("--plot", plot, inputs)
    if output is not None and plot.resolve() == output.resolve():
        raise ArgumentError("--plot and --output are one file", found=str(plot), hint="give another --plot")
    from matplotlib.backend_bases import FigureCanvasBase

    if plot.suffix[1:].lower() not in (formats := FigureCanvasBase.get_supported_filetypes()):
        raise ArgumentError(
            "--plot cannot write that format",
            expected=", ".join(sorted(formats)),
            found=plot.suffix,
            hint="end the name in .png",
        )


class _Files:
    """What is written once all is done: x, then the picture."""

    def __init__(self, output: Path | None, plot: Path | None, name: str, found: _Solution) -> None:
        self.name, self._output, self._plot, self._found = name, output, plot, found
        self.written: Path | None = None  # where x is, once it is there

    def write(self, say: Callable[[str], object] = lambda _: None) -> None:
        """Write what was asked for, and say what is there."""
        if self._output is not None:
            from akx.core.io import write_vector

            write_vector(self._output, self._found.x, several=True)
            self.written = self._output
            say(f"wrote x to {self._output}")
        if self._plot is not None:
            from akx.report.pictures import plot_convergence

            plot_convergence(self._found.stats, self._plot, self.name)
            say(f"plotted the residuals in {self._plot}")


def _emit(
    found: _Solution, matrix: Matrix, files: _Files, *, rhs: str, asked: dict[str, Any], precond: str | None
) -> None:
    """Write the files, then print the JSON object; where a file cannot be written it goes with the error."""

    def answer() -> dict[str, Any]:
        made = {"name": precond, "seconds": found.preparing, "nnz": getattr(found.M, "nnz", None)}
        return {
            "schema": SOLVE_SCHEMA,
            "matrix": {
                "name": files.name,
                "rows": matrix.n,
                "nnz": matrix.nnz,
                "dtype": matrix.dtype.name,
                "fingerprint": matrix.fingerprint,
            },
            "rhs": rhs,
            "backend": found.backend,
            "asked": asked,
            "preconditioner": None if found.M is None else made,
            "info": found.info,
            "output": None if files.written is None else str(files.written),
            **found.stats.to_json(),
        }

    try:
        files.write()
    except BaseException as failure:
        raise AnsweredError(answer(), failure) from failure
    emit_json(answer())


def _print(found: _Solution, matrix: Matrix, file: str, precond: str | None) -> None:
    from akx.backends.selection import HOST, device_of
    from akx.report.command_tables import print_solution

    shape = f"{counted(matrix.n, 'row')}, {counted(matrix.nnz, 'entry')}, {matrix.dtype.name}"
    device = None if found.backend == HOST else device_of(found.backend).name
    made = None if found.M is None else (str(precond), found.preparing)
    print_solution(found.stats, f"{file}: {shape}", data_console(), device=device, preconditioner=made)
    stats = found.stats
    # why it did not converge is told anyway
    known = stats.reason, stats.reason.partition(": ")[2]  # of one of several columns
    told = [line.replace("not solved: ", "", 1) for line in stats.notes]
    notes = [line for line, one in zip(stats.notes, told, strict=True) if line == one or one not in known]
    for line in notes[:_MOST_NOTES]:
        note(line)
    if len(notes) > _MOST_NOTES:
        note(f"and {counted(len(notes) - _MOST_NOTES, 'note')} more: see --json")
