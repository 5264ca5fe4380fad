"""``akx doctor``: what is there and what is missing."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from akx.device.cuda.memory import memory_pool
from akx.report import environment
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
