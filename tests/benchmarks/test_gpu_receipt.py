"""The receipt of the last run on a GPU: what it says is well formed, and whether it is of these sources."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_receipt


@pytest.fixture
def receipt() -> dict[str, Any]:
    if not gpu_receipt._RECEIPT.is_file():
        pytest.skip("no receipt: `make gpu-test` has not been run on a GPU")
    found: dict[str, Any] = json.loads(gpu_receipt._RECEIPT.read_text())
    return found


def test_every_test_passed_on_a_device(receipt: dict[str, Any]) -> None:
    assert receipt["schema"] == gpu_receipt.SCHEMA
    assert receipt["exit_code"] == 0
    assert receipt["device"]["name"]
    assert receipt["outcomes"]
    assert set(receipt["outcomes"].values()) <= {"passed", "skipped"}


def test_the_sources_are_those_that_ran(receipt: dict[str, Any]) -> None:
    """A warning and no failure: whoever changes a kernel may have no GPU."""
    now = gpu_receipt.source_hash(gpu_receipt.cuda_sources())
    if receipt["cuda_sources"]["sha256"] != now:
        warnings.warn(
            f"the CUDA sources have changed since they ran on a {receipt['device']['name']} ({receipt['date']}): "
            "run `make gpu-test` on a machine with a GPU",
            stacklevel=1,
        )


def test_the_hash_sees_every_source() -> None:
    names = {path.name for path in gpu_receipt.cuda_sources()}
    assert {"common.cuh", "sweep.cuh", "sweep.cu"} <= names


def test_what_has_not_passed_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {f"tests.a.test_b::{name}": f"tests/a/test_b.py::{name}" for name in ("old[x]", "late", "new")}
    receipt, ran = tmp_path / "receipt.json", list[str]()
    monkeypatch.setattr(gpu_receipt, "_RECEIPT", receipt)
    monkeypatch.setattr(gpu_receipt, "all_tests", lambda: names)

    def run(which: Sequence[str]) -> tuple[int, dict[str, str]]:
        ran.extend(which)
        return 0, {gpu_receipt.name_of(test): "passed" for test in which}

    monkeypatch.setattr(gpu_receipt, "run_tests", run)
    outcomes = {
        "tests.a.test_b::old[x]": "passed",
        "tests.a.test_b::late": "failure",
        "tests.a.test_b::gone": "failure",
    }
    with pytest.raises(ValueError, match="no receipt of these"):
        gpu_receipt.again()
    receipt.write_text(json.dumps({"cuda_sources": gpu_receipt.stamp(), "outcomes": outcomes}))
    code, found = gpu_receipt.again()
    assert code == 0
    assert ran == [names["tests.a.test_b::late"], names["tests.a.test_b::new"]]
    assert found == dict.fromkeys(names, "passed")
    receipt.write_text(json.dumps({"cuda_sources": gpu_receipt.stamp(), "outcomes": found}))
    ran.clear()
    assert gpu_receipt.again() == (0, found)
    assert ran == []
    receipt.write_text(json.dumps({"cuda_sources": {"files": 1, "sha256": "0"}, "outcomes": outcomes}))
    with pytest.raises(ValueError, match="no receipt of these"):
        gpu_receipt.again()


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("tests/a/test_b.py::test_c", "tests.a.test_b::test_c"),
        ("tests/test_b.py::TestD::test_c[e::f/g.py-1]", "tests.test_b.TestD::test_c[e::f/g.py-1]"),
    ],
)
def test_names_are_those_of_outcomes(test: str, name: str) -> None:
    assert gpu_receipt.name_of(test) == name


def test_tests_are_found_whatever_options_pytest_has_to_run_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-q -n 2")
    found = gpu_receipt.all_tests("tests/benchmarks/test_gpu.py")
    assert found
    assert set(map(gpu_receipt.name_of, found.values())) == set(found)
