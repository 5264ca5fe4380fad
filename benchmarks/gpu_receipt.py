"""``make gpu-test``: run the tests that need a GPU, and write down what ran on what.

The receipt, ``benchmarks/results/gpu_receipt.json``, says: device, driver and versions, a hash of every CUDA source,
and the outcome of every test. It is written only where tests have run on a device, so a receipt is never a claim
without a run behind it. Without CUDA sources, or without a GPU, this says why it does nothing and exits with 3.

    python benchmarks/gpu_receipt.py            all tests
    python benchmarks/gpu_receipt.py --again    those that have not passed in a receipt of the same CUDA sources
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

_ROOT = Path(__file__).resolve().parents[1]
_RECEIPT = _ROOT / "benchmarks" / "results" / "gpu_receipt.json"
_SOURCES = (".cu", ".cuh")
_PACKAGES = ("akx", "numpy", "scipy", "pycuda", "cuda-bindings", "cupy-cuda12x", "cupy-cuda13x", "torch")
_SKIPPED, _DONE = 3, ("passed", "skipped")
SCHEMA = 1


def cuda_sources(root: Path = _ROOT) -> list[Path]:
    """Every CUDA source of the package, in a fixed order."""
    return sorted(path for path in (root / "akx").rglob("*") if path.suffix in _SOURCES)


def source_hash(sources: list[Path], root: Path = _ROOT, content: Callable[[Path], bytes] = Path.read_bytes) -> str:
    """SHA-256 over names and contents of `sources`, or what `content` takes of them."""
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + content(path) + b"\0")
    return digest.hexdigest()


def stamp() -> dict[str, Any]:
    """How many CUDA sources there are, and their hash."""
    sources = cuda_sources()
    return {"files": len(sources), "sha256": source_hash(sources)}


def device() -> dict[str, Any] | None:
    """Name, compute capability and driver of GPU 0, from the driver's own library; None without a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    handle, version, major, minor = (ctypes.c_int() for _ in range(4))
    name = ctypes.create_string_buffer(256)
    if driver.cuInit(0) != 0 or driver.cuDeviceGet(ctypes.byref(handle), 0) != 0:
        return None
    driver.cuDeviceGetName(name, len(name), handle)
    driver.cuDriverGetVersion(ctypes.byref(version))
    for value, attribute in ((major, 75), (minor, 76)):  # compute capability
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle)
    return {
        "name": name.value.decode(),
        "compute_capability": f"{major.value}.{minor.value}",
        "cuda_driver": f"{version.value // 1000}.{version.value % 1000 // 10}",
    }


def run_tests(which: Sequence[str] = ()) -> tuple[int, dict[str, str]]:
    """Run ``pytest -m cuda`` of all tests, or of these; its exit code, and the outcome of each test."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "--nightly", "-m", "cuda", f"--junitxml={report}", *which]
        code = subprocess.run(command, cwd=_ROOT, check=False).returncode
        return code, outcomes_of(report)


def all_tests(*where: str) -> dict[str, str]:
    """Of each test marked ``cuda``, or of those somewhere, by its name in an outcome, what pytest calls it."""
    command = [sys.executable, "-m", "pytest", "--nightly", "-m", "cuda", "--collect-only", "-q", "-n0", *where]
    plain = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # which says how to run
    done = subprocess.run(command, cwd=_ROOT, env=plain, capture_output=True, text=True, check=True)
    return {name_of(line): line for line in done.stdout.splitlines() if line.startswith("tests/") and "::" in line}


def name_of(test: str) -> str:
    """The name in an outcome of what pytest calls ``tests/a/test_b.py::Class::test_c[d]``."""
    path, bracket, parameters = test.partition("[")
    place, *classes, function = path.split("::")
    return ".".join([place.removesuffix(".py").replace("/", "."), *classes]) + f"::{function}{bracket}{parameters}"


def again() -> tuple[int, dict[str, str]]:
    """Run what has not passed; the exit code, and the outcome of every test. Raises ValueError without a receipt."""
    before = json.loads(_RECEIPT.read_text()) if _RECEIPT.is_file() else {}
    if before.get("cuda_sources") != stamp():
        raise ValueError("there is no receipt of these CUDA sources")
    tests, known = all_tests(), before["outcomes"]
    left = [test for name, test in tests.items() if known.get(name) not in _DONE]
    code, outcomes = run_tests(left) if left else (0, {})
    found = {name: outcomes.get(name, known.get(name, "error")) for name in tests}
    return code or int(not set(found.values()) <= set(_DONE)), found


def outcomes_of(report: Path) -> dict[str, str]:
    """What pytest's JUnit file says of each test: passed, failure, error or skipped; nothing without the file."""
    outcomes = {}
    if report.is_file():
        for case in ElementTree.parse(report).iter("testcase"):
            kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
            outcomes[f"{case.get('classname')}::{case.get('name')}"] = next(iter(sorted(kinds)), "passed")
    return outcomes


def versions() -> dict[str, str]:
    """Of Python and of the packages that matter here, where they are installed."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """Of the checkout, or from the variable AKX_COMMIT where the sources came without their history."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=_ROOT, capture_output=True, text=True, check=False)
    return os.environ.get("AKX_COMMIT", "").strip() or done.stdout.strip() or "unknown"


def main() -> int:
    """Run, write the receipt, and return the exit code."""
    if not cuda_sources():
        print("gpu-test: nothing to test: this version of akx has no CUDA sources (.cu, .cuh)", file=sys.stderr)
        return _SKIPPED
    found = device()
    if found is None:
        print("gpu-test: no NVIDIA GPU on this machine: run it where nvidia-smi lists one", file=sys.stderr)
        return _SKIPPED
    try:
        code, outcomes = again() if "--again" in sys.argv[1:] else run_tests()
    except ValueError as problem:
        print(f"gpu-test: {problem}: run all tests first", file=sys.stderr)
        return _SKIPPED
    if not any(outcome == "passed" for outcome in outcomes.values()):
        print("gpu-test: no test marked 'cuda' has passed; no receipt written", file=sys.stderr)
        return code or _SKIPPED
    receipt = {
        "schema": SCHEMA,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "device": found,
        "versions": versions(),
        "cuda_sources": stamp(),
        "exit_code": code,
        "outcomes": outcomes,
    }
    _RECEIPT.parent.mkdir(parents=True, exist_ok=True)
    _RECEIPT.write_text(json.dumps(receipt, indent=1) + "\n")
    print(f"gpu-test: wrote {_RECEIPT.relative_to(_ROOT)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
