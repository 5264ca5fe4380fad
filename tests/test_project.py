"""The project itself: cheap imports, public names, version, and what the wheel holds."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import json
import re
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

import akx
import akx.core.errors

_ROOT = Path(__file__).resolve().parents[1]


def _modules_after(statement: str) -> set[str]:
    script = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=_ROOT)
    return set(json.loads(done.stdout))


def test_import_akx_is_cheap() -> None:
    loaded = _modules_after("import akx; akx.AkxError; akx.Plan")
    assert not {"numba", "llvmlite", "optuna", "sqlalchemy", "scipy", "numpy", "pycuda", "pymetis", "rich"} & loaded


def test_reading_a_matrix_needs_neither_compiler_nor_tuner() -> None:
    loaded = _modules_after("import akx; akx.read_matrix; akx.Matrix; akx.monomial")
    assert not {"numba", "llvmlite", "optuna", "sqlalchemy", "pycuda", "pymetis", "rich", "typer"} & loaded


@pytest.mark.parametrize("name", ["akx.matrix_powers", "akx.solvers.cg", "akx.solvers.solve", "akx.solvers.Solver"])
def test_first_calls_import_what_they_need(name: str) -> None:
    """SciPy's linear algebra takes longer to import than a first solve of a small system with all else."""
    loaded = _modules_after(f"import numpy, scipy.sparse, akx.solvers; {name}")
    heavy = {"numba", "optuna", "sqlalchemy", "scipy.linalg", "akx.backends.cuda.device.interchange"}
    if not name.endswith("Solver"):
        heavy |= {"akx.tuner"}
    if name in ("akx.matrix_powers", "akx.solvers.cg"):
        heavy |= {
            "akx.core.plan",
            "akx.core.spectrum",
            "akx.core.leja",
            "akx.core.features",
            "akx.cost.device_model",
        }
        heavy |= {"akx.cost.device_model", "akx.backends.host"}
    assert not heavy & loaded


def test_every_public_name_is_there() -> None:
    for name in akx.__all__:
        assert getattr(akx, name) is not None
        assert name in dir(akx)
    assert set(akx.core.errors.__all__) <= set(akx.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        akx.nonsense  # noqa: B018


def test_version_is_one_and_has_a_changelog_entry() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", akx.__version__)
    assert f"## {akx.__version__}" in (_ROOT / "CHANGELOG.md").read_text()


def test_readme_opens_with_the_two_commands() -> None:
    readme = (_ROOT / "README.md").read_text()
    first = re.search(r"```[a-z]*\n(.*?)```", readme, re.DOTALL)
    assert first is not None
    commands = [line.split("#")[0].strip() for line in first.group(1).splitlines() if line.strip()]
    assert commands == ["make demo", "make test"]
    assert readme.count("<!-- answer:begin -->") == readme.count("<!-- answer:end -->") == 1


def test_modules_and_functions_are_short_and_few_files_know_the_gpu() -> None:
    """At most 400 lines in a module of akx, 80 in a function, and `cuda` in five files outside its backend."""
    too_long, naming = [], []
    paths = [path for path in (_ROOT / "akx").rglob("*") if path.suffix in (".py", ".json", ".cu", ".cuh")]
    assert len(paths) > 300
    for path in sorted(paths):
        where, text = path.relative_to(_ROOT).as_posix(), path.read_text(encoding="utf-8")
        if re.search(r"\bcuda\b", text) and not where.startswith("akx/backends/cuda/"):
            naming.append(where)
        if path.suffix == ".py":
            functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
            lengths = [(f"{where}: {f.name}", (f.end_lineno or f.lineno) - f.lineno + 1, 80) for f in functions]
            lengths.append((where, len(text.splitlines()), 400))
            too_long += [f"{name} has {lines} lines of at most {most}" for name, lines, most in lengths if lines > most]
    assert not too_long, "\n".join(too_long)
    assert len(naming) <= 5, f"`cuda` is named in {len(naming)} files of at most 5: {', '.join(naming)}"


def test_no_two_test_modules_have_one_name() -> None:
    """pytest imports each by its own name and those of the packages that it is in."""
    names = []
    for path in (_ROOT / "tests").rglob("*.py"):
        folders = itertools.takewhile(lambda folder: (folder / "__init__.py").is_file(), path.parents)
        names.append((*(folder.name for folder in folders), path.stem))
    modules = [name for name in names if name[-1].startswith("test_")]
    assert len(modules) > 100
    assert [name for name, count in Counter(modules).items() if count > 1] == []


def test_studies_can_be_imported() -> None:
    """What they measure is not tested; pages say how to run them."""
    names = sorted(path.stem for path in (_ROOT / "studies").glob("*.py") if path.stem != "__init__")
    assert names
    assert {f"studies.{name}" for name in names} <= _modules_after(
        "\n".join(f"import studies.{name}" for name in names)
    )


@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed")
def test_wheel_holds_the_typing_marker_the_shipped_plans_and_no_tests(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=_ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("akx-*.whl")
    assert wheel.name.startswith(f"akx-{akx.__version__}-")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"akx/__init__.py", "akx/py.typed", "akx/cli/app.py", "akx/backends/registry.py"} <= names
    data = {path for path in (_ROOT / "akx").rglob("*") if path.suffix in (".json", ".cu", ".cuh", ".typed")}
    assert {path.relative_to(_ROOT).as_posix() for path in data} <= names
    assert {"akx/backends/cuda/schedules/sweep/sweep.cu", "akx/backends/cuda/include/common.cuh"} <= names
    folder = _ROOT / "tuning_db"
    shipped = {f"akx/tuning_db/{path.relative_to(folder).as_posix()}" for path in folder.rglob("*") if path.is_file()}
    assert shipped, "tuning_db must not be empty: it says in words what it is for"
    assert shipped <= names
    assert not [
        name for name in names if name.startswith(("tests/", "benchmarks/", "studies/")) or "__pycache__" in name
    ]
