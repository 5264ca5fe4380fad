"""What is read from compute-sanitizer's logs, and what the file of the last run says."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import akx.backends.cuda
from benchmarks import gpu_receipt, revisions, sanitize

NODES = [f"tests/backends/cuda/test_cuda.py::test_one[{i}]" for i in range(6)]


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
        "vectors": "tests.backends.cuda.test_cuda_vectors::test_a[x]",
        "fronts": "tests.backends.cuda.test_cuda::test_a[band-float64-wavefront]",
        "streams": "tests.backends.cuda.test_cuda::test_a[band-float64-stream]",
        "rates": "tests.backends.cuda.test_cuda_rates::test_a[x]",
        "sweep": "tests.backends.cuda.test_cuda::test_a[band-float64-sweep]",
        "others": "tests.backends.cuda.test_cuda::test_a[band-float64-resident]",
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


_FOLDER = Path(akx.backends.cuda.__file__).parent


def used_by(path: Path) -> set[str]:
    """The sources that one includes or imports, by their paths in the backend's folder."""
    text = path.read_text()
    found = set(re.findall(r'^#include "([\w./]+)"', text, re.M))
    for module, names in re.findall(r"from akx\.backends\.cuda([\w.]*) import (\([^)]*\)|[^\n]*)", text):
        for one in (module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))):
            found.add(one.lstrip(".").replace(".", "/") + ".py")
    return {name for name in found if (_FOLDER / name).is_file()}


def launching() -> list[tuple[str, set[str]]]:
    """The CUDA sources and their drivers, each with what it uses of others that launch something."""
    paths = [*gpu_receipt.cuda_sources(), *_FOLDER.rglob("*.py")]
    every = {path.relative_to(_FOLDER).as_posix(): path for path in paths}
    kept = {name for name in every if name.endswith((".cu", ".cuh")) or sanitize.is_driver(name)}
    return [(name, used_by(every[name]) & kept) for name in sorted(kept)]


def test_the_sources_of_vectors_are_included_by_no_others() -> None:
    for name, used in launching():
        if not name.endswith(".py"):
            of_vectors = {one for one in used if Path(one).stem in sanitize._OF_VECTORS}
            if Path(name).stem in sanitize._OF_VECTORS:
                assert used - of_vectors <= {"include/common.cuh"}
            else:
                assert not of_vectors, name


def test_the_sources_of_streams_are_used_by_no_others() -> None:
    for name, used in launching():
        assert name.startswith(sanitize._OF_STREAMS) or not any(one.startswith(sanitize._OF_STREAMS) for one in used)
    for name in ("test_cuda_stream.TestOnTheGpu::test_a[x]", "test_cuda_hybrid.TestOnTheGpu::test_b[y]"):
        assert sanitize._group_of(f"tests.backends.{name}") == "streams"


def test_the_sources_of_products_are_used_by_no_others() -> None:
    """But by what asks how far apart columns are, or what prices go by."""
    asking = (
        "schedules/stream/",
        "schedules/wavefront/",
        "variants/block_local/",
        "variants/diagonals.py",
    )
    known = (*sanitize._OF_SWEEP, *sanitize._OF_PRODUCTS, *sanitize._OF_ALL)
    for name, used in launching():
        of_sweep = {one for one in used if one.startswith(sanitize._OF_SWEEP)}
        if Path(name).stem in sanitize._SHARING:
            of_sweep = {one for one in of_sweep if Path(one).name not in sanitize._SHARED}
        if name.startswith(sanitize._OF_SWEEP):
            assert all(one.startswith(known) or one.startswith("device/") for one in used), (name, used)
        else:
            assert name.startswith(asking) or not of_sweep, (name, of_sweep)
    for name in ("test_cuda_hubs::test_a[x]", "test_cuda_named::test_b[sweep-csr-1]", "test_cuda_translate::test_c"):
        assert sanitize._group_of(f"tests.backends.{name}") == "sweep"
    assert sanitize._group_of("tests.backends.cuda.test_cuda_named::test_b[resident-3x3-1]") == "others"


def test_names_are_those_of_the_receipt() -> None:
    assert sanitize.name_of("tests/backends/test_a.py::test_b[c-1]") == "tests.backends.test_a::test_b[c-1]"
    assert sanitize.name_of("tests/backends/test_a.py::TestX::test_b") == "tests.backends.test_a.TestX::test_b"
    if gpu_receipt._RECEIPT.is_file():
        outcomes = json.loads(gpu_receipt._RECEIPT.read_text())["outcomes"]
        assert sanitize.name_of("tests/backends/cuda/test_cuda.py::test_start_vectors[1-ghost]") in outcomes


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
    paths = [path.relative_to(_FOLDER).as_posix() for path in _FOLDER.rglob("*.py") if path.stem != "__init__"]
    left_out = {name for name in paths if not name.startswith("device/") and not sanitize.is_driver(name)}
    assert left_out | {"cost/rates.py"} == revisions.of_searches("cuda")  # which launches kernels
