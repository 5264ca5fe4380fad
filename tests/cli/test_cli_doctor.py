"""``akx doctor``: what is there and what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import pytest

from akx import solvers
from akx.backends.cpu.variants import VARIANTS
from akx.backends.cuda.device.pool import memory_pool
from akx.backends.host import host_device
from akx.backends.revisions import ALL, sources
from akx.cli import doctor
from akx.core import numba_jit
from akx.core.matrix import Matrix
from akx.cost import calibration
from akx.report.doctor import checks as environment
from akx.solvers.vector_work import compiling_job
from akx.tuner.model.figures import derived_figures
from akx.tuner.warmup import host_code as warmup
from akx.tuner.warmup.host_code import Job
from cli.golden import check_shape
from cli.running import Ran


def _checks(data: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {check["name"]: check for checks in data["checks"].values() for check in checks}


def test_json(akx: Callable[..., Ran], tmp_path: Path) -> None:
    ran = akx("doctor", "--json")
    checks = _checks(ran.json)
    assert ran.code == 0
    assert ran.json["healthy"] is True
    assert checks["numba"]["found"] == metadata.version("numba")
    assert set(checks) >= {"python", "numpy", "scipy", "pymetis", "optuna", "mtkahypar", "mkl", "pycuda", "threads"}
    assert checks["plans"]["found"].startswith(str(tmp_path / "plans.sqlite"))
    assert all(check["hint"] for check in checks.values() if check["state"] == "problem")
    check_shape("doctor.json", ran.json)


def test_what_is_missing_says_how_to_get_it(akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(environment._OPTIONAL, "mtkahypar_absent", ("mtkahypar-absent", "hypergraph", "partitions"))
    check = _checks(akx("doctor", "--json").json)["mtkahypar-absent"]
    assert check == {
        "name": "mtkahypar-absent",
        "state": "missing",
        "found": "for partitions",
        "hint": "pip install 'akx[hypergraph]'",
    }


def test_a_broken_requirement_is_a_problem(akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_REQUIRED", (*environment._REQUIRED, "no_such_package"))
    ran = akx("doctor")
    assert ran.code == 2
    assert "pip install --upgrade no_such_package" in ran.out


def test_bad_threads_and_bad_database_are_problems(
    akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", "many")
    ran = akx("doctor", "--json", "--db", tmp_path)
    checks = _checks(ran.json)
    assert (ran.code, ran.json["problems"]) == (2, 2)
    assert checks["threads"]["state"] == checks["plans"]["state"] == "problem"


@pytest.mark.parametrize(("name", "value"), [("NUMBA_NUM_THREADS", "many"), ("NUMBA_DISABLE_JIT", "1")])
def test_the_machine_is_looked_at_in_a_process_in_which_numba_cannot_be(name: str, value: str) -> None:
    code = "from akx.report.doctor.machine import machine; print([one.name for one in machine()])"
    options: dict[str, Any] = {"env": os.environ | {name: value}, "text": True, "capture_output": True, "check": True}
    ran = subprocess.run([sys.executable, "-c", code], **options)
    assert "processor" in ran.stdout
    assert "threads" in ran.stdout


def test_what_variables_say_about_the_memory_of_the_gpu(
    akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_pool, "_made", [])
    assert "gpu memory" not in _checks(akx("doctor", "--json").json)
    monkeypatch.setenv("AKX_GPU_MEMORY", "8G")
    monkeypatch.setenv("AKX_GPU_POOL", "off")
    check = _checks(akx("doctor", "--json").json)["gpu memory"]
    assert check["found"] == "at most 8 GiB, nothing kept for later (from AKX_GPU_MEMORY, AKX_GPU_POOL)"
    monkeypatch.setattr(memory_pool, "_made", [])
    monkeypatch.setenv("AKX_GPU_MEMORY", "nonsense")
    ran = akx("doctor", "--json")
    check = _checks(ran.json)["gpu memory"]
    assert (ran.code, check["state"]) == (2, "problem")
    assert "'nonsense'" in check["found"]
    assert "unset it" in check["hint"]


def test_calibrate_measures_keeps_and_shows(
    akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AKX_MACHINES", str(tmp_path / "machines"))
    monkeypatch.setattr("akx.cost.calibration._shipped_folder", lambda: tmp_path / "shipped")
    monkeypatch.setattr("akx.backends.selection.is_usable", lambda backend: backend == "cpu")
    before = _checks(akx("doctor", "--json").json)["cpu calibration"]
    assert (before["state"], before["hint"]) == ("missing", "akx doctor --calibrate")
    device = host_device()
    known = derived_figures(replace(device, cores=2), 2)
    found = calibration.Calibration(
        device.device_class, 2, known, known, sources("cpu", ALL).tokens, "2026-02-03T00:00:00"
    )
    monkeypatch.setattr("akx.tuner.model.calibrate.calibrate", lambda backend: found)
    ran = akx("doctor", "--calibrate", "--json")
    (file,) = (tmp_path / "machines").iterdir()
    assert ran.code == 0
    assert f"kept in {file}" in ran.err
    after = _checks(ran.json)["cpu calibration"]
    assert after["state"] == "ok"
    assert after["found"].startswith("20/80/160 GB/s")
    assert "2026-02-03" in after["found"]
    assert after["hint"] == ""
    replace(found, kernel_hash="0" * 16).save()
    assert "--calibrate" in _checks(akx("doctor", "--json").json)["cpu calibration"]["hint"]


def test_a_calibration_that_cannot_be_kept_is_an_error(
    akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AKX_MACHINES", str(tmp_path / "file"))
    monkeypatch.setattr("akx.backends.selection.is_usable", lambda backend: backend == "cpu")
    known = derived_figures(host_device(), 1)
    made = calibration.Calibration(host_device().device_class, 1, known, known, "", "2026-02-03T00:00:00")
    monkeypatch.setattr("akx.tuner.model.calibrate.calibrate", lambda backend: made)
    ran = akx("doctor", "--calibrate")
    assert ran.code != 0
    assert "AKX_MACHINES" in ran.err


def test_layers_of_plans(akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checks = _checks(akx("doctor", "--json").json)
    assert checks["project plans"]["found"] == "turned off: AKX_PROJECT_PLANS is empty"
    assert checks["system plans"]["state"] == "ok"
    folder = tmp_path / "project" / ".akx" / "plans"
    folder.mkdir(parents=True)
    (folder / "bad.json").write_text("{")
    monkeypatch.delenv("AKX_PROJECT_PLANS")
    monkeypatch.setenv("AKX_SYSTEM_PLANS", str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path / "project")
    ran = akx("doctor", "--json")
    checks = _checks(ran.json)
    assert (ran.code, ran.json["problems"]) == (2, 2)
    assert (checks["project plans"]["state"], checks["system plans"]["state"]) == ("problem", "problem")
    assert str(folder) in checks["project plans"]["found"]
    assert "bad.json" in checks["project plans"]["found"]
    assert checks["system plans"]["hint"] == "make it, or unset AKX_SYSTEM_PLANS"
    (folder / "bad.json").unlink()
    monkeypatch.delenv("AKX_SYSTEM_PLANS")
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "share"))
    monkeypatch.chdir(tmp_path)
    checks = _checks(akx("doctor", "--json").json)
    assert checks["project plans"] == {
        "name": "project plans", "state": "ok", "found": "none: no .akx/plans here or above", "hint": "",
    }  # fmt: skip
    assert checks["system plans"]["state"] == "ok"


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("NUMBA_DISABLE_JIT", "1", "unset NUMBA_DISABLE_JIT"),
        ("NUMBA_NUM_THREADS", "0", "expected an integer from 1"),
        ("NUMBA_CACHE_DIR", "/dev/null/x", "point NUMBA_CACHE_DIR at a folder"),
        ("OMP_NUM_THREADS", "none", "set OMP_NUM_THREADS to 1 or more"),
        ("TMPDIR", "/dev/null", "point TMPDIR at a folder"),
    ],
)
def test_an_odd_environment_is_told_with_its_cure(
    akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str
) -> None:
    monkeypatch.setattr(numba_jit, "_checked", False)
    monkeypatch.setenv(variable, value)
    ran = akx("doctor", "--json")
    assert ran.code == 2
    told = [f"{check['found']}; {check['hint']}" for check in _checks(ran.json).values() if check["state"] == "problem"]
    assert any(says in text for text in told)


def test_what_fails_while_it_is_looked_at_is_told_once(
    akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(environment, "nvidia_driver", fails)
    monkeypatch.setattr(environment, "machine", fails)
    checks = _checks(akx("doctor", "--json").json)
    assert checks["nvidia driver"]["found"] == "RuntimeError: no such thing"
    assert "machine" not in checks


def test_a_current_directory_that_is_gone(
    akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert _checks(akx("doctor", "--json").json)["current directory"]["state"] == "problem"


class _Workers:
    """Compiles nothing, and remembers what was wanted."""

    wanted: ClassVar[list[str]] = []
    there: ClassVar[set[str]] = set()

    def __init__(self, matrix: Matrix) -> None:
        self.dtype = matrix.dtype.name
        self.has_all = self.dtype in self.there
        self.count = 0

    def want_team(self) -> None:
        self.want([(("team",), "", "", None)])

    def want(self, jobs: Iterable[Job]) -> None:
        for code, *_ in jobs:
            self.count += 1
            self.wanted.append(" ".join((self.dtype, *code)))

    def wait(self, seconds: float, report: Callable[[int, int], object]) -> int:
        report(0, self.count)
        if self.dtype == "complex64":
            raise KeyboardInterrupt
        return self.count

    def leave_note_of_all(self) -> None:
        self.there.add(self.dtype)

    def close(self) -> None:
        self.wanted.append(f"{self.dtype} closed")


def test_warm_compiles_everything_once(akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "Warmup", _Workers)
    ran = akx("doctor", "--warm")
    assert ran.code == 130, "Ctrl-C, in the last type"
    assert "for float64, on all cores" in ran.err
    wanted = set(_Workers.wanted)
    assert wanted >= {"float64 sweep csr natural", "float32 wavefront inode16 natural", "complex128 ghost sell natural"}
    assert wanted >= {"float64 team", "complex64 closed", *(f"float64 {name} solver" for name in solvers.SOLVERS)}
    names = {code.split()[2] for code in wanted if code.startswith("float64 sweep")}
    assert names == set(VARIANTS), "each variant has a plan that is feasible"
    assert _Workers.there == {"float64", "float32", "complex128"}
    _Workers.there.add("complex64")
    ran = akx("doctor", "--warm", "--json")
    assert (ran.code, ran.json["compiled"]) == (0, 0)
    assert akx("doctor", "--warm").out == "all of akx's own code is compiled\n"


def test_a_solver_is_compiled_by_a_few_of_its_steps() -> None:
    code, *job = compiling_job("cg")
    assert code == ("cg solver",)
    assert warmup.run_job(*job, doctor._grid("float64"), 1)
