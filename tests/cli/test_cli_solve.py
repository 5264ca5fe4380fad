"""``akx solve``: what it prints, writes and returns, with the solver's own clock taken out of the golden text."""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from rich.console import Console

import akx as library
from akx.backends import selection as choose
from akx.backends.cuda.backend import CudaBackend
from akx.backends.cuda.device.facts import cuda_missing
from akx.cli import exit_codes, progress
from akx.cli import solve as solve_command
from akx.cli.solve_hints import next_options
from akx.core.errors import BudgetError, DeviceMemoryError, InfeasibleError, PlanError
from akx.core.io import read_vector, write_vector
from akx.solvers import SolveStats, preconditioners
from akx.solvers.stopping import NO_SOLUTION
from cli.golden import check_shape, check_text
from cli.running import Ran


@pytest.fixture(scope="module")
def convection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A nonsymmetric matrix of 300 rows."""
    path = tmp_path_factory.mktemp("solve") / "convection.mtx"
    A = sp.diags_array([-1.6, 3.0, -0.6, 0.3], offsets=[-1, 0, 1, 7], shape=(300, 300))
    library.core.io.write_matrix(path, sp.csr_array(A))
    return path


def residual(path: Path, x: Any, b: Any) -> float:
    return float(np.linalg.norm(b - library.read_matrix(path) @ x) / np.linalg.norm(b))


def test_json_and_the_answer_in_a_file(akx: Callable[..., Ran], convection: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.mtx"
    ran = akx("solve", convection, "--method", "ca_bicgstab", "--json", "-o", out, "--rtol", 1e-10)
    assert (ran.code, ran.err) == (0, "")
    data = ran.json
    assert (data["schema"], data["info"], data["converged"], data["output"]) == (1, 0, True, str(out))
    assert data["residual"] <= data["target"]
    assert data["matrix_passes"] < data["products"]
    assert residual(convection, read_vector(out), np.ones(300)) <= 1e-10
    check_shape("solve.json", data)


def test_text(akx: Callable[..., Ran], convection: Path) -> None:
    ran = akx("solve", convection, "--method", "bicgstab")
    assert ran.code == 0
    text = re.sub(r"(time +).*", r"\1TIME", ran.out.replace(str(convection), "convection.mtx"))
    check_text("solve.txt", re.sub(r"residual  \S+", "residual  RESIDUAL", text))


def test_an_answer_that_is_not_good_enough_is_exit_code_3(
    akx: Callable[..., Ran], convection: Path, tmp_path: Path
) -> None:
    out = tmp_path / "x.mtx"
    ran = akx("solve", convection, "--method", "bicgstab", "--maxiter", 2, "-o", out)
    assert ran.code == 3
    assert "NOT CONVERGED" in ran.out
    assert "not solved: not converged after 2 steps; try --maxiter 20, or --method auto, or --precond jacobi" in ran.err
    assert "NOT CONVERGED after 2 steps" in ran.out
    assert out.exists()
    ran = akx("solve", convection, "--method", "bicgstab", "--maxiter", 2, "--json")
    assert (ran.code, ran.json["converged"]) == (3, False)
    assert ran.json["info"] > 0


@pytest.mark.parametrize(
    ("asked", "reason", "found"),
    [
        ({}, "breakdown", "--precond jacobi, or --precond spai"),
        ({"method": "cg", "precond": "jacobi"}, "breakdown", "--method auto, or --precond spai"),
        ({"precond": "spai", "maxiter": 9}, "the steps ran out", "--maxiter 90, or --tau 1"),
        ({"precond": "spai", "tau": 1.0}, "breakdown", "--method gmres --restart 100"),
        ({"precond": "spai", "tau": 1.0, "rtol": 1e-9}, "stagnation", "--rtol 2e-07, above what it reached"),
        ({"precond": "spai", "tau": 1.0, "rtol": 0.0, "atol": 1e-9}, "stagnation", "--method gmres --restart 100"),
        ({}, "singular and inconsistent", "b less what no A x can be: b - mean(b), where A is symmetric and sends"),
    ],
)
def test_what_to_try_next_goes_by_what_was_tried(asked: dict[str, Any], reason: str, found: str) -> None:
    matrix = library.Matrix.from_any(sp.eye_array(3))
    residuals = [1.0, 1e-7 if reason == "stagnation" else 1.0]
    info = NO_SOLUTION if reason.startswith("singular") else -1
    stats = SolveStats("bicgstab", reason=reason, residuals=residuals, residual=residuals[-1], target=1e-9)
    defaults: dict[str, Any] = {"method": "auto", "precond": None, "tau": 0.9, "rtol": 1e-8, "atol": 0.0}
    tried = {**defaults, "maxiter": None, "restart": None, **asked}
    assert next_options(matrix, stats, info, **tried).startswith(found)


def test_right_hand_sides(akx: Callable[..., Ran], convection: Path, tmp_path: Path) -> None:
    out, given = tmp_path / "x.mtx", tmp_path / "b.mtx"
    b = library.read_matrix(convection) @ np.arange(300.0)
    write_vector(given, b)
    assert akx("solve", convection, "--rhs", given, "-o", out, "--rtol", 1e-12).code == 0
    np.testing.assert_allclose(read_vector(out), np.arange(300.0), atol=1e-6)
    first = akx("solve", convection, "--rhs", "random", "--json").json
    assert first["residuals"] == akx("solve", convection, "--rhs", "random", "--json").json["residuals"]
    assert first["converged"]


def test_several_right_hand_sides(akx: Callable[..., Ran], convection: Path, tmp_path: Path) -> None:
    out, given = tmp_path / "x.mtx", tmp_path / "b.mtx"
    X = np.stack([np.arange(300.0), np.ones(300)], axis=1)
    write_vector(given, library.read_matrix(convection) @ X, several=True)
    ran = akx("solve", convection, "--rhs", given, "-o", out, "--rtol", 1e-12)
    assert ran.code == 0
    assert "2 of 2 converged" in ran.out
    np.testing.assert_allclose(read_vector(out, several=True), X, atol=1e-6)
    ran = akx("solve", convection, "--rhs", given, "--method", "gmres", "--maxiter", 1, "--json")
    assert ran.code == 3
    assert [record["converged"] for record in ran.json["columns"]] == [False, False]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rhs", "absent.mtx"], "absent.mtx"),
        (["-o", "/no/such/folder/x.mtx"], "no folder"),
        (["--rtol", -1], "rtol"),
        (["--s", 0], "--s"),
        (["--threads", 0], "--threads"),
        (["--maxiter", -2], "maxiter"),
        (["--method", "jacobi"], "jacobi"),
        (["--backend", "gpu"], "gpu"),
    ],
)
def test_bad_input_is_one_line(akx: Callable[..., Ran], convection: Path, arguments: list[Any], says: str) -> None:
    ran = akx("solve", convection, *arguments)
    assert ran.code == 2
    assert says in ran.error


def test_a_right_hand_side_of_another_size(akx: Callable[..., Ran], convection: Path, tmp_path: Path) -> None:
    write_vector(tmp_path / "b.mtx", np.ones(7))
    assert "300 entries" in akx("solve", convection, "--rhs", tmp_path / "b.mtx").error


def test_the_residual_is_said_while_it_falls(
    akx: Callable[..., Ran], convection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    lines = [line for line in akx("solve", convection, "--method", "bicgstab").err.splitlines() if "residual" in line]
    values = [float(re.search(r"residual (\S+)", line).group(1)) for line in lines]  # type: ignore[union-attr]
    assert len(values) >= 3
    assert all(b <= 0.11 * a for a, b in pairwise(values))
    assert akx("solve", convection, "--method", "ca-bicgstab", "--s", 4, "--json").err == ""
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=140, color_system=None)
    monkeypatch.setattr(progress, "status_console", lambda: terminal)
    assert akx("solve", convection, "--method", "ca-bicgstab", "--s", 4, "--json").code == 0
    assert "residual" in screen.getvalue()


def test_both_spellings_of_a_method(akx: Callable[..., Ran], convection: Path) -> None:
    for spelling in ("ca-bicgstab", "ca_bicgstab"):
        data = akx("solve", convection, "--method", spelling, "--json").json
        assert (data["asked"]["method"], data["method"]) == ("ca_bicgstab", "ca_bicgstab")


@pytest.fixture
def never_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("solved all the same")

    monkeypatch.setattr(library.solvers, "solve", never)


@pytest.mark.usefixtures("never_solved")
@pytest.mark.parametrize("option", ["--output", "--plot"])
def test_a_file_that_cannot_be_written_is_refused_before_the_solve(
    akx: Callable[..., Ran], convection: Path, tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if option == "--plot":
        pytest.importorskip("matplotlib")
    there = tmp_path / "there.png"
    there.write_text("as it was")
    cases: list[tuple[Path, str]] = [
        (tmp_path, f"{option} is a folder"),
        (tmp_path / "no" / "x.png", "no folder"),
        (there / "x.png", "no folder"),
        (convection, "would overwrite its input"),
        (tmp_path / f"{'x' * 250}.png", "cannot be written, found File name too long"),
    ]
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.png")
        cases.append((tmp_path / "pipe.png", f"{option} is no plain file"))
    if Path("/proc/self").is_dir():
        cases.append((Path("/proc/x.png"), "cannot be written"))
    for path, says in cases:
        ran = akx("solve", convection, option, path)
        assert (ran.code, ran.out) == (2, "")
        assert says in ran.error
        assert akx("solve", convection, option, path, "--json").json["error"]["exit_code"] == 2
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **more: mode != os.W_OK and access(path, mode, **more))
    ran = akx("solve", convection, option, there)  # root may write any file: say that it may not
    assert (ran.code, ran.out, there.read_text()) == (2, "", "as it was")
    assert "may not be written" in ran.error
    assert sorted(one.name for one in tmp_path.iterdir() if one.name.endswith(".new")) == []


@pytest.mark.usefixtures("never_solved")
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_permissions_are_looked_at_before_the_solve(akx: Callable[..., Ran], convection: Path, tmp_path: Path) -> None:
    locked, there = tmp_path / "locked", tmp_path / "there.mtx"
    locked.mkdir(mode=0o500)
    there.touch(mode=0o400)
    assert "cannot be written, found Permission denied" in akx("solve", convection, "-o", locked / "x.mtx").error
    assert "may not be written" in akx("solve", convection, "-o", there).error


@pytest.mark.usefixtures("never_solved")
def test_names_for_neither_a_vector_nor_a_picture(akx: Callable[..., Ran], convection: Path, tmp_path: Path) -> None:
    b = tmp_path / "b.mtx"
    write_vector(b, np.ones(300))
    assert "overwrite" in akx("solve", convection, "--rhs", b, "-o", b).error
    assert ".npz" in akx("solve", convection, "-o", tmp_path / "x.npz").error
    pytest.importorskip("matplotlib")
    assert "format" in akx("solve", convection, "--plot", tmp_path / "residuals.nonsense").error
    assert "without an ending" in akx("solve", convection, "--plot", tmp_path / "residuals").error
    both = tmp_path / "both.png"
    assert "one file" in akx("solve", convection, "-o", both, "--plot", both).error


@pytest.mark.parametrize("fails", ["--output", "--plot"])
def test_the_result_is_not_lost_where_the_disk_is_full(
    akx: Callable[..., Ran], convection: Path, tmp_path: Path, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    where = "akx.core.io.write_whole" if fails == "--output" else "matplotlib.figure.Figure.savefig"
    monkeypatch.setattr(where, full)
    x, picture = tmp_path / "x.mtx", tmp_path / "p.png"
    ran = akx("solve", convection, "-o", x, "--plot", picture)
    assert ran.code == 2
    assert "converged" in ran.out
    assert f"{x if fails == '--output' else picture} cannot be written, found No space left" in ran.err
    assert (x.exists(), f"wrote x to {x}" in ran.err) == (fails == "--plot",) * 2
    x.unlink(missing_ok=True)
    ran = akx("solve", convection, "-o", x, "--plot", picture, "--json")
    assert (ran.code, ran.json["converged"], ran.json["error"]["exit_code"]) == (2, True, 2)
    assert "cannot be written" in ran.error
    assert ran.json["output"] == (str(x) if fails == "--plot" else None)
    assert x.exists() == (fails == "--plot")


def test_x_is_written_where_nobody_reads_what_is_printed(
    akx: Callable[..., Ran], convection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any) -> None:
        assert not out.exists(), "printed first"
        raise BrokenPipeError

    out = tmp_path / "x.mtx"
    monkeypatch.setattr(solve_command, "_print", gone)
    assert akx("solve", convection, "-o", out).code == exit_codes.EXIT_BROKEN_PIPE
    assert residual(convection, read_vector(out), np.ones(300)) <= 1e-8


def test_a_plot(akx: Callable[..., Ran], convection: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "residuals.svg"
    assert akx("solve", convection, "--plot", picture).code == 0
    assert "<svg" in picture.read_text()
    assert "format" in akx("solve", convection, "--plot", tmp_path / "residuals.nonsense").error


def test_a_plot_without_matplotlib(
    akx: Callable[..., Ran], convection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from akx.report import pictures

    monkeypatch.setattr(pictures, "find_spec", lambda _: None)
    assert "akx[plot]" in akx("solve", convection, "--plot", tmp_path / "p.png").error


@pytest.mark.parametrize(
    "options", [["jacobi"], ["block_jacobi"], ["spai", "--tau", 0.5], ["chebyshev", "--degree", 3]]
)
def test_preconditioners(akx: Callable[..., Ran], convection: Path, options: list[Any], tmp_path: Path) -> None:
    pytest.importorskip("akx.solvers.preconditioners")
    out = tmp_path / "x.mtx"
    ran = akx("solve", convection, "--method", "bicgstab", "--json", "-o", out, "--precond", *options)
    assert ran.code == 0
    assert ran.json["preconditioner"]["name"] == options[0]
    assert ran.json["preconditioner"]["seconds"] > 0
    assert {name: type(value) for name, value in ran.json["preconditioner"].items()} == {
        "name": str, "seconds": float, "nnz": int if options[0] in ("spai", "block_jacobi") else type(None),
    }  # fmt: skip
    assert residual(convection, read_vector(out), np.ones(300)) <= 1e-8


@pytest.mark.parametrize(("wrong", "symmetric"), [(0.0, True), (4e-16, True), (1e-4, False)])
def test_spai_is_symmetric_where_the_matrix_is_up_to_rounding_errors(
    akx: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: float, symmetric: bool
) -> None:
    asked: list[bool] = []

    def spai(*given: Any, symmetric: bool, **options: Any) -> Any:
        asked.append(symmetric)
        return made(*given, symmetric=symmetric, **options)

    made = preconditioners.spai
    monkeypatch.setattr(preconditioners, "spai", spai)
    A = sp.diags_array([-1.0, 4.0, -1.0], offsets=[-1, 0, 1], shape=(300, 300)).tocsr()
    A[3, 2] *= 1 + wrong
    library.core.io.write_matrix(tmp_path / "A.mtx", A)
    assert akx("solve", tmp_path / "A.mtx", "--precond", "spai").code == 0
    assert asked == [symmetric]


@pytest.mark.skipif(cuda_missing() is None, reason="there is a GPU")
def test_a_gpu_that_is_missing_is_said_before_anything_is_read(akx: Callable[..., Ran]) -> None:
    ran = akx("solve", "no-such-file.mtx", "--backend", "cuda")
    assert ran.code == 2
    assert "no-such-file" not in ran.error
    assert "cuda" in ran.error or "driver" in ran.error
    assert akx("solve", "no-such-file.mtx", "--backend", "cuda", "--json").json["error"]


@pytest.mark.parametrize(
    ("arguments", "entries", "there", "taken"),
    [
        ([], 1000, True, "cuda"),
        ([], 1000, False, "cpu"),
        ([], 2000, True, "cpu"),
        (["--backend", "cpu"], 1000, True, "cpu"),
        (["--backend", "cuda"], 2000, True, "cuda"),
    ],
)
def test_where_a_system_is_solved(
    akx: Callable[..., Ran],
    convection: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    entries: int,
    there: bool,
    taken: str,
) -> None:
    """By the option, or by the size of the matrix; the GPU's part is done by the host here."""
    seen: list[Any] = []

    def stand_in(*given: Any, backend: str, callback: Any, **options: Any) -> Any:
        seen.append((backend, callback is None))
        return solve(*given, callback=callback, backend="cpu", **options)

    def spai(*given: Any, backend: str, **options: Any) -> Any:
        seen.append(backend)
        return made(*given, backend="cpu", **options)

    solve, made = library.solvers.solve, preconditioners.spai
    monkeypatch.setattr(library.solvers, "solve", stand_in)
    monkeypatch.setattr(preconditioners, "spai", spai)
    monkeypatch.setattr(choose, "is_usable", lambda backend: there)
    monkeypatch.setattr(choose, "device_of", lambda backend: SimpleNamespace(name="a GPU"))
    monkeypatch.setattr(CudaBackend, "solving_entries", entries)
    ran = akx("solve", convection, "--method", "bicgstab", "--precond", "spai", *arguments)
    assert ran.code == 0
    assert seen == [taken, (taken, taken == "cuda")]
    assert ("a GPU" in ran.out) == (taken == "cuda")
    data = akx("solve", convection, "--method", "bicgstab", "--json", *arguments).json
    assert data["backend"] == taken


@pytest.mark.parametrize("where", ["solve", "spai"])
@pytest.mark.parametrize("kind", [PlanError, InfeasibleError, BudgetError, DeviceMemoryError])
def test_what_is_too_much_for_the_gpu_is_solved_by_the_host(
    akx: Callable[..., Ran], convection: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception], where: str
) -> None:
    """With ``--backend auto``; where a GPU was asked for its error is the user's."""

    def refusing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, backend: str, **options: Any) -> Any:
            if backend == "cuda" and name == where:
                raise kind("it is too large")
            return real(*given, backend="cpu", **options)

        return run

    monkeypatch.setattr(preconditioners, "spai", refusing("spai", preconditioners.spai))
    monkeypatch.setattr(library.solvers, "solve", refusing("solve", library.solvers.solve))
    monkeypatch.setattr(choose, "is_usable", lambda backend: True)
    monkeypatch.setattr(choose, "device_of", lambda backend: SimpleNamespace(name="a GPU"))
    monkeypatch.setattr(CudaBackend, "solving_entries", 1000)
    asked = ["solve", convection, "--precond", "spai"]
    ran = akx(*asked)
    assert ran.code == 0
    assert "solved on the CPU, as it was too much for the GPU: it is too large" in ran.err
    assert "a GPU" not in ran.out
    ran = akx(*asked, "--json")
    assert (ran.code, ran.json["backend"], ran.json["converged"]) == (0, "cpu", True)
    assert "it is too large" in ran.json["notes"][0]
    ran = akx(*asked, "--backend", "cuda")
    assert (ran.code, ran.error) == (2, "it is too large")


@pytest.mark.parametrize(
    ("arguments", "steps"), [(["--method", "gmres", "--restart", 3], 21), (["--method", "bicgstab"], 7)]
)
def test_maxiter_is_steps_but_cycles_of_gmres_by_name(
    akx: Callable[..., Ran], convection: Path, arguments: list[Any], steps: int
) -> None:
    ran = akx("solve", convection, "--json", "--rtol", 1e-14, "--maxiter", 7, *arguments)
    assert (ran.code, ran.json["iterations"]) == (3, steps)


@pytest.mark.cuda
@pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))
@pytest.mark.parametrize("method", ["auto", "bicgstab", "ca_bicgstab", "ca_gmres"])
def test_a_system_is_solved_on_the_gpu(akx: Callable[..., Ran], convection: Path, tmp_path: Path, method: str) -> None:
    out = tmp_path / "x.mtx"
    ran = akx("solve", convection, "--backend", "cuda", "--method", method, "--precond", "spai", "--json", "-o", out)
    assert ran.code == 0
    assert (ran.json["backend"], ran.json["converged"]) == ("cuda", True)
    assert residual(convection, read_vector(out), np.ones(300)) <= 1e-8


def test_a_plan_server_that_does_not_answer_stops_no_solve(
    akx: Callable[..., Ran], convection: Path, tmp_path: Path
) -> None:
    pytest.importorskip("psycopg")
    nowhere = f"postgresql://ann:xyzzy@/plans?host={tmp_path}"
    ran = akx("solve", convection, "--db", nowhere, "--method", "ca_bicgstab", "--json")
    assert (ran.code, ran.json["converged"]) == (0, True)
    assert "cannot be reached" in ran.err
    assert "xyzzy" not in ran.err + ran.out
    ran = akx("tune", convection, "--db", nowhere)
    assert (ran.code, "cannot be reached" in ran.error) == (2, True)


def test_errors_and_advice_are_in_options(akx: Callable[..., Ran], tmp_path: Path) -> None:
    line = sp.diags_array([-1.0, 0.5, -1.0], offsets=[-1, 0, 1], shape=(300, 300))
    library.core.io.write_matrix(tmp_path / "A.mtx", sp.csr_array(line))
    ran = akx("solve", tmp_path / "A.mtx", "--method", "cg", "--precond", "chebyshev")
    assert ran.code == 2
    assert "interval=" not in ran.err + ran.error
    assert "try --precond jacobi or spai" in ran.err + ran.error
    ran = akx("solve", tmp_path / "A.mtx", "--method", "minres", "--precond", "block-jacobi")
    assert ran.code in (0, 3)
    assert "symmetric=True" not in ran.err
    shifted = sp.csr_array(line + 3 * sp.eye_array(300))
    library.core.io.write_matrix(tmp_path / "B.mtx", shifted)
    for method in ("minres", "ca_minres", "cg", "ca_cg"):
        assert akx("solve", tmp_path / "B.mtx", "--method", method, "--precond", "spai").code == 0
    for wrong in (["--restart", 0], ["--tau", 2], ["--method", "cg", "--s", -1]):
        assert akx("solve", tmp_path / "B.mtx", *wrong).code == 2


def test_options_that_a_method_has_not_are_refused(akx: Callable[..., Ran], convection: Path) -> None:
    for method, option, value, of in (
        ("cg", "--s", 4, "ca_cg, ca_minres, ca_gmres, ca_bicgstab, or auto"),
        ("gmres", "--basis", "newton", "ca_cg, ca_minres, ca_gmres, ca_bicgstab, or auto"),
        ("ca-bicgstab", "--restart", 9, "gmres, ca_gmres, or auto"),
    ):
        ran = akx("solve", convection, "--method", method, option, value)
        assert ran.code == 2
        assert f"{method.replace('-', '_')} has no {option}" in ran.err
        assert of in " ".join(ran.err.split())
    for given in (["--s", 4], ["--restart", 9], ["--method", "ca-gmres", "--s", 4, "--restart", 9]):
        assert akx("solve", convection, *given).code == 0


def test_why_a_column_is_not_solved_is_told_once(akx: Callable[..., Ran], tmp_path: Path) -> None:
    shifts = sp.csr_array(np.roll(np.eye(300), 1, axis=1) + 1e-3 * np.eye(300))
    library.core.io.write_matrix(tmp_path / "A.mtx", shifts)
    library.core.io.write_vector(tmp_path / "B.mtx", np.eye(300)[:, :2] + 1.0, several=True)
    ran = akx("solve", tmp_path / "A.mtx", "--rhs", tmp_path / "B.mtx", "--maxiter", 0)
    assert ran.code == 3
    assert ran.err.count("not solved: ") == 1
    assert re.search(r"not solved: column \d: \S", ran.err)


def test_what_was_done_is_not_advised() -> None:
    matrix = library.Matrix.from_any(sp.eye_array(3))
    scaled = ["A is not Hermitian; scaled by the diagonal, as rows differ 1e+08-fold"]
    stats = SolveStats("bicgstab", reason="breakdown", residuals=[1.0], residual=1.0, target=1e-9, notes=scaled)
    asked: dict[str, Any] = {"method": "auto", "precond": None, "tau": 0.9, "rtol": 1e-8, "atol": 0.0}
    assert "jacobi" not in next_options(matrix, stats, -1, **asked, maxiter=None, restart=None)


@pytest.mark.parametrize("precond", [None, "jacobi"])
def test_no_preconditioner_is_advised_where_minres_takes_none(precond: str | None) -> None:
    skew = library.Matrix.from_any(sp.diags_array([-1.0, 0.5, 1.0], offsets=[-1, 0, 1], shape=(9, 9)))
    stats = SolveStats("minres", reason="the steps ran out", residuals=[1.0], residual=1.0, target=1e-9)
    asked: dict[str, Any] = {"method": "minres", "precond": precond, "tau": 0.9, "rtol": 1e-8, "atol": 0.0}
    assert next_options(skew, stats, 9, **asked, maxiter=9, restart=None) == "--maxiter 90, or --method auto"
