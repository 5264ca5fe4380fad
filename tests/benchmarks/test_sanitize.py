"""What is read from compute-sanitizer's logs, and what the file of the last run says."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_receipt, revisions, sanitize

NODES = [f"tests/backends/test_cuda.py::test_one[{i}]" for i in range(6)]


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


def fake(
    monkeypatch: pytest.MonkeyPatch, share: Callable[[Sequence[str]], tuple[int, str, dict[str, str]]]
) -> list[str]:
    """Six tests and a share of them for a process; the names of those that were to be run."""
    calls: list[str] = []

    def run(tool: str, tests: Sequence[str], end: float) -> tuple[int, str, dict[str, str]]:
        calls.extend(tests)
        return share(tests)

    monkeypatch.setattr(sanitize, "_collected", lambda tests: NODES)
    monkeypatch.setattr(sanitize, "_share", run)
    monkeypatch.setattr(sanitize, "_SHARE", dict.fromkeys(sanitize.TOOLS, 1))
    return calls


def clean(tests: Sequence[str]) -> tuple[int, str, dict[str, str]]:
    return 0, "RACECHECK SUMMARY: 0 hazards", {sanitize.name_of(node): "passed" for node in tests}


def test_a_run_goes_on_where_the_last_was_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake(monkeypatch, lambda tests: clean(tests) if tests[0] in NODES[:4] else (0, "", {}))
    first = sanitize.run("racecheck", [], 1, 60, {})
    assert (first["left"], first["processes"], first["outcomes"]) == (2, 4, {"passed": 4})
    calls.clear()
    monkeypatch.setattr(sanitize, "_share", lambda tool, tests, end: calls.extend(tests) or clean(tests))
    second = sanitize.run("racecheck", [], 1, 60, first)
    assert calls == NODES[4:]
    assert (second["left"], second["processes"], second["errors"], second["exit_code"]) == (0, 6, 0, 0)
    assert set(second["tests"]) == {sanitize.name_of(node) for node in NODES}


def test_what_was_found_is_told_and_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def hazard(tests: Sequence[str]) -> tuple[int, str, dict[str, str]]:
        code, log, outcomes = clean(tests)
        if tests[0] == NODES[1]:
            return code, log.replace("0 hazards", "2 hazards"), outcomes
        return (1, log, dict.fromkeys(outcomes, "failure")) if tests[0] == NODES[3] else (code, log, outcomes)

    calls = fake(monkeypatch, hazard)
    found = sanitize.run("racecheck", [], 1, 60, {})
    assert (found["errors"], found["exit_code"], found["left"]) == (2, 1, 2)
    calls.clear()
    monkeypatch.setattr(sanitize, "_share", lambda tool, tests, end: calls.extend(tests) or clean(tests))
    again = sanitize.run("racecheck", [], 1, 60, found)
    assert calls == [NODES[1], NODES[3]]
    assert (again["errors"], again["exit_code"], again["left"]) == (0, 0, 0)


def test_the_file_has_what_each_tool_saw_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = fake(monkeypatch, clean)
    monkeypatch.setattr(gpu_receipt, "device", lambda: {"name": "GPU"})
    monkeypatch.setattr(sanitize.shutil, "which", lambda name: name)
    output = tmp_path / "found.json"

    def tools() -> dict[str, dict[str, Any]]:
        return {one["tool"]: one for one in json.loads(output.read_text())["tools"]}

    assert sanitize.main(["-o", str(output)]) == 0
    assert list(tools()) == ["memcheck", "racecheck"]
    assert sanitize.main(["--tools", "racecheck", "-o", str(output)]) == 0
    assert len(calls) == 3 * len(NODES)
    assert (tools()["memcheck"]["left"], tools()["racecheck"]["processes"]) == (0, 6)
    assert sanitize.main(["--resume", "-o", str(output)]) == 0
    assert len(calls) == 3 * len(NODES)
    monkeypatch.setitem(sanitize._SETTINGS, "memcheck", {"AKX_TEST_PLANS": "9"})
    assert sanitize.main(["--resume", "-o", str(output)]) == 0
    assert len(calls) == 4 * len(NODES)  # seen in another way before


def test_what_was_seen_of_other_sources_is_seen_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = sanitize.sources()
    of = {
        "vectors": "tests.backends.test_cuda_vectors::test_a[x]",
        "fronts": "tests.backends.test_cuda::test_a[band-float64-wavefront]",
        "streams": "tests.backends.test_cuda::test_a[band-float64-stream]",
        "rates": "tests.backends.test_cuda_rates::test_a[x]",
        "sweep": "tests.backends.test_cuda::test_a[band-float64-sweep]",
        "others": "tests.backends.test_cuda::test_a[band-float64-resident]",
    }
    assert set(now) == set(of)
    tests = dict.fromkeys(of.values(), "passed")
    assert sanitize.seen(tests, now, now) == tests
    for group, test in of.items():
        assert set(sanitize.seen(tests, now | {group: "0"}, now)) == set(tests) - {test}
    assert sanitize.seen(tests, {}, now) == {}
    calls = fake(monkeypatch, clean)
    monkeypatch.setattr(gpu_receipt, "device", lambda: {"name": "GPU"})
    monkeypatch.setattr(sanitize.shutil, "which", lambda name: name)
    output = tmp_path / "found.json"
    for changed, runs in ((now, 1), (now, 1), (now | {"vectors": "1", "fronts": "1"}, 1), (now | {"others": "1"}, 2)):
        monkeypatch.setattr(sanitize, "sources", lambda changed=changed: changed)
        assert sanitize.main(["--tools", "racecheck", "--resume", "-o", str(output)]) == 0
        assert len(calls) == runs * len(NODES)


def test_the_sources_of_vectors_are_included_by_no_others() -> None:
    folder = next(path.parent for path in gpu_receipt.cuda_sources() if path.name == "vectors.cuh")
    for path in gpu_receipt.cuda_sources():
        for other in sanitize._OF_VECTORS:
            assert path.stem in sanitize._OF_VECTORS or f'#include "{other}.cuh"' not in path.read_text()
        if path.stem in sanitize._OF_VECTORS:
            included = {line.split('"')[1] for line in path.read_text().splitlines() if line.startswith("#include")}
            assert {Path(name).stem for name in included} <= {*sanitize._OF_VECTORS, "common"}
    assert (folder / "common.cuh").is_file()


def test_the_sources_of_streams_are_used_by_no_others() -> None:
    folder = next(path.parent for path in gpu_receipt.cuda_sources() if path.name == "stream.cuh")
    for path in (*gpu_receipt.cuda_sources(), *folder.glob("*.py")):
        text = path.read_text()
        for other in sanitize._OF_STREAMS:
            used = f'#include "{other}.cuh"' in text or f"akx.backends.cuda.{other} import" in text
            assert path.stem in {*sanitize._OF_STREAMS, "stream_space"} or not used, (path.name, other)
    for name in ("test_cuda_stream.TestOnTheGpu::test_a[x]", "test_cuda_hybrid.TestOnTheGpu::test_b[y]"):
        assert sanitize._group_of(f"tests.backends.{name}") == "streams"


def test_the_sources_of_products_are_used_by_no_others() -> None:
    """But by what only chooses plans; some ask how far apart columns are, or what prices go by."""
    folder = next(path.parent for path in gpu_receipt.cuda_sources() if path.name == "sweep.cuh")
    asking = {"stream", "parts", "parts_layout", "diagonals", "wavefront"}
    others = {*sanitize._OF_SWEEP, *sanitize._NO_DRIVERS}
    known = {*others, *sanitize._OF_PRODUCTS, "common", "program", "stream"}
    for path in (*gpu_receipt.cuda_sources(), *folder.glob("*.py")):
        text = path.read_text()
        for other in sanitize._OF_SWEEP:
            used = f'#include "{other}.cuh"' in text or f"akx.backends.cuda.{other} import" in text
            used = used or re.search(rf"from akx.backends.cuda import [\w, ]*\b{other}\b", text) is not None
            shares = path.stem in sanitize._SHARING and f"{other}.cuh" in sanitize._SHARED
            assert path.stem in {*others, *asking} or shares or not used, (path.name, other)
        if path.stem in sanitize._OF_SWEEP:
            included = re.findall(r'^#include "(\w+)\.cuh"', text, re.M)
            imported = re.findall(r"from akx.backends.cuda\.(\w+) import", text)
            assert {*included, *imported} <= known, path.name
    for name in ("test_cuda_hubs::test_a[x]", "test_cuda_named::test_b[sweep-csr-1]", "test_cuda_translate::test_c"):
        assert sanitize._group_of(f"tests.backends.{name}") == "sweep"
    assert sanitize._group_of("tests.backends.test_cuda_named::test_b[resident-3x3-1]") == "others"


def test_names_are_those_of_the_receipt() -> None:
    assert sanitize.name_of("tests/backends/test_a.py::test_b[c-1]") == "tests.backends.test_a::test_b[c-1]"
    assert sanitize.name_of("tests/backends/test_a.py::TestX::test_b") == "tests.backends.test_a.TestX::test_b"
    if gpu_receipt._RECEIPT.is_file():
        outcomes = json.loads(gpu_receipt._RECEIPT.read_text())["outcomes"]
        assert sanitize.name_of("tests/backends/test_cuda.py::test_start_vectors[1-ghost]") in outcomes


def test_the_last_run_was_clean() -> None:
    if not sanitize._RESULT.is_file():
        pytest.skip("compute-sanitizer has not been run")
    found = json.loads(sanitize._RESULT.read_text())["tools"]
    assert {one["tool"] for one in found} == set(sanitize.TOOLS)
    for one in found:
        assert (one["errors"], one["exit_code"]) == (0, 0)
        assert one["processes"] > 0
        assert set(one["outcomes"]) <= {"passed", "skipped"}
        assert one["outcomes"]["passed"] > 50
        stale = [
            reason
            for reason, holds in (
                (f"{one['left']} of its tests were not run", one["left"]),
                ("its CUDA sources have changed since", one["sources"] != sanitize.sources()),
                ("it is run in another way now", one["settings"] != sanitize._SETTINGS[one["tool"]]),
            )
            if holds
        ]
        if stale:
            warnings.warn(f"{one['tool']} is to be run again: {', and '.join(stale)}", stacklevel=1)


def test_what_only_chooses_plans_is_no_reason_to_run_again() -> None:
    text = "class Sweep:\n    def space(self):\n        return 1\n\n"
    text += "    @property\n    def waste(self):\n        return 2\n\n"
    text += "    def enqueue(self):\n        return 3\n\n\ndef space():\n    return 4\n"
    held = sanitize.launching(text)
    assert [number for number in "1234" if f"return {number}" in held] == ["3", "4"]
    assert held == sanitize.launching(text.replace("return 1", "# more\n        return 10").replace("return 2", "pass"))
    assert held != sanitize.launching(text.replace("return 3", "return 30"))
    assert "@property" not in held


def test_modules_that_only_price_plans_are_those_that_plan_keys_leave_out() -> None:
    """They are named twice, since this script runs without the package."""
    assert {*sanitize._NO_DRIVERS, sanitize._OF_RATES} == revisions.of_searches("cuda")  # the latter launches kernels
