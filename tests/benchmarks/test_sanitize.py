"""What is read from compute-sanitizer's logs, and what the file of the last run says."""

from __future__ import annotations

import json
import warnings

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


def test_the_last_run_was_clean() -> None:
    if not sanitize._RESULT.is_file():
        pytest.skip("compute-sanitizer has not been run")
    found = json.loads(sanitize._RESULT.read_text())
    assert [one["tool"] for one in found["tools"]] == list(sanitize.TOOLS)
    for one in found["tools"]:
        assert (one["errors"], one["exit_code"]) == (0, 0)
        assert one["processes"] > 0
        assert set(one["outcomes"]) <= {"passed", "skipped"}
        assert one["outcomes"]["passed"] > 100
    if found["cuda_sources"] != gpu_receipt.stamp():
        warnings.warn("the CUDA sources have changed since compute-sanitizer watched them", stacklevel=1)
