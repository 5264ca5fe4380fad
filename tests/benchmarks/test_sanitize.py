"""What is read from compute-sanitizer's logs, and what the file of the last run says."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence

import pytest

from benchmarks import gpu_receipt, sanitize


def test_errors_of_all_processes_are_added_up() -> None:
    logs = (
        "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n",
        "========= Invalid __global__ read of size 8 bytes\n========= ERROR SUMMARY: 3 errors\n",
        "========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)\n",
        "========= COMPUTE-SANITIZER\n",  # lost before its end
    )
    assert sanitize.found_in(logs) == {"processes": 3, "errors": 5}
    assert sanitize.found_in([]) == {"processes": 0, "errors": 0}


def test_some_tests_are_not_written_down_as_all() -> None:
    with pytest.raises(SystemExit):
        sanitize.main(["-k", "stream"])


def test_a_run_goes_on_where_the_last_was_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fake for the tool: shares are taken until time is up, and the next run takes the others."""
    nodes = [f"tests/kernels/test_cuda.py::test_one[{i}]" for i in range(6)]
    calls: list[str] = []

    def share(tool: str, tests: Sequence[str], end: float) -> tuple[int, str, dict[str, str]]:
        calls.extend(tests)
        if len(calls) > 4 and end < 1e9:
            return 0, "", {}
        return 0, "RACECHECK SUMMARY: 0 hazards", {sanitize.name_of(node): "passed" for node in tests}

    monkeypatch.setattr(sanitize, "_collected", lambda tests: nodes)
    monkeypatch.setattr(sanitize, "_share", share)
    monkeypatch.setattr(sanitize, "_SHARE", 1)
    first = sanitize.run("racecheck", [], 1, 60, {})
    assert (first["left"], first["processes"], first["outcomes"]) == (2, 4, {"passed": 4})
    calls.clear()
    second = sanitize.run("racecheck", [], 1, 60, first)
    assert calls == nodes[4:]
    assert (second["left"], second["processes"], second["errors"], second["exit_code"]) == (0, 6, 0, 0)
    assert set(second["tests"]) == {sanitize.name_of(node) for node in nodes}
    failed = sanitize.run("racecheck", [], 1, 60, first | {"exit_code": 1, "errors": 3})
    assert (failed["exit_code"], failed["errors"]) == (1, 3)


def test_names_are_those_of_the_receipt() -> None:
    assert sanitize.name_of("tests/kernels/test_a.py::test_b[c-1]") == "tests.kernels.test_a::test_b[c-1]"
    assert sanitize.name_of("tests/kernels/test_a.py::TestX::test_b") == "tests.kernels.test_a.TestX::test_b"
    if gpu_receipt._RECEIPT.is_file():
        outcomes = json.loads(gpu_receipt._RECEIPT.read_text())["outcomes"]
        assert sanitize.name_of("tests/kernels/test_cuda.py::test_start_vectors[1-ghost]") in outcomes


def test_the_last_run_was_clean() -> None:
    if not sanitize._RESULT.is_file():
        pytest.skip("compute-sanitizer has not been run")
    found = json.loads(sanitize._RESULT.read_text())
    assert {one["tool"] for one in found["tools"]} == set(sanitize.TOOLS)
    for one in found["tools"]:
        assert (one["errors"], one["exit_code"]) == (0, 0)
        assert one["processes"] > 0
        assert set(one["outcomes"]) <= {"passed", "skipped"}
        assert one["outcomes"]["passed"] > 50
        if one["left"]:
            warnings.warn(f"{one['left']} tests have not been run under {one['tool']}", stacklevel=1)
    if found["cuda_sources"] != gpu_receipt.stamp():
        warnings.warn("the CUDA sources have changed since compute-sanitizer watched them", stacklevel=1)
