"""Run the kernels' GPU tests under NVIDIA's compute-sanitizer, and write down what it found.

    python benchmarks/sanitize.py                               memcheck and racecheck, the tests of kernels
    python benchmarks/sanitize.py --tools racecheck -k stream   one tool, some tests; needs -o
    python benchmarks/sanitize.py --workers 8                   side by side, each with a share of the tests

memcheck finds accesses outside of what was allocated and misaligned ones, racecheck accesses to shared memory that
nothing orders. The tests' results are compared with the reference as always: a test that fails fails this too. The file
``benchmarks/results/sanitizer.json`` has device, versions and the hash of all CUDA sources, as the receipt of
``make gpu-test`` has them, and for each tool the tests' outcomes, processes watched and errors found. Everything takes
ten times longer here, so that tests of large matrices are left out (small ones run the same kernels), and those that
draw plans at random draw fewer.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

if __package__:
    from benchmarks import gpu_receipt
else:
    import gpu_receipt  # run by its path, as gpu_receipt.py is

__all__ = ["TOOLS", "found_in", "main", "run"]

TOOLS = ("memcheck", "racecheck")
_ROOT = Path(__file__).resolve().parents[1]
_RESULT = _ROOT / "benchmarks" / "results" / "sanitizer.json"
_SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error)|(?:RACECHECK SUMMARY: (\d+) hazard)")
_NO_DEVICE = 3
_SMALL = "not gallery and not partitions and not dense_blocks"
_PLANS = "5"
_SHARES = 42


def found_in(logs: Iterable[str]) -> dict[str, int]:
    """How many processes the tool has watched to their end, and what it has found in them."""
    counts = [int(one or other) for log in logs for one, other in _SUMMARY.findall(log)]
    return {"processes": len(counts), "errors": sum(counts)}


def _collected(tests: Sequence[str]) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-m", "cuda", "-q", "--collect-only", *tests]
    said = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [line for line in said.splitlines() if "::" in line]


def _share(tool: str, tests: Sequence[str], end: float) -> tuple[int, str, Counter[str]]:
    """Exit code, log and outcomes of some tests in a process of their own; nothing of them where time runs out."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        log, report, said = Path(folder) / "log", Path(folder) / "report.xml", Path(folder) / "said"
        command = ["compute-sanitizer", "--tool", tool, "--log-file", str(log), sys.executable, "-m", "pytest", "-v"]
        command += ["-m", "cuda", f"--junitxml={report}", *tests]
        with (
            said.open("w") as output,
            subprocess.Popen(command, cwd=_ROOT, start_new_session=True, stdout=output) as process,
        ):
            try:
                code = process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
                last = said.read_text(errors="replace").splitlines()[-1:] or ["nothing"]
                print(f"{tool}: {len(tests)} tests broken off at {last[0]}", file=sys.stderr, flush=True)
                return 1, "", Counter({"not run": len(tests)})
        outcomes = Counter(gpu_receipt.outcomes_of(report).values())
        took = time.perf_counter() - begun
        print(f"{tool}: {len(tests)} tests in {took:.0f} s: {dict(outcomes)}", file=sys.stderr, flush=True)
        if outcomes["failure"] or outcomes["error"]:
            print(said.read_text(errors="replace")[-4000:], file=sys.stderr)
        if code == 0 and not log.is_file():
            raise OSError(f"{command[0]} has left no log")
        return code, log.read_text(errors="replace") if log.is_file() else "", outcomes


def run(tool: str, tests: Sequence[str], workers: int, seconds: float) -> dict[str, Any]:
    """The tests under one tool, `workers` shares of them at a time."""
    begun, end = time.perf_counter(), time.monotonic() + seconds
    every = _collected(tests)
    shares = [every[first::_SHARES] for first in range(min(_SHARES, len(every)))]
    with ThreadPoolExecutor(workers) as pool:
        done = list(pool.map(lambda share: _share(tool, share, end), shares))
    logs = [log for _, log, _ in done]
    for log in logs:
        if found_in([log])["errors"]:
            print(log[:8000], file=sys.stderr)
    return {
        "tool": tool,
        "exit_code": max((code for code, _, _ in done), key=abs, default=1),
        **found_in(logs),
        "seconds": round(time.perf_counter() - begun, 1),
        "outcomes": dict(sum((outcomes for _, _, outcomes in done), Counter())),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, write the file, and return the exit code: 1 where anything was found, 3 where nothing could be run."""
    parser = argparse.ArgumentParser(prog="python benchmarks/sanitize.py", description="Kernels under the sanitizer.")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("-k", dest="expression", help="tests by name, as pytest's -k")
    parser.add_argument("--workers", type=int, default=1, help="tests side by side")
    parser.add_argument("--seconds", type=float, default=3600.0, help="most seconds for a tool")
    parser.add_argument("-o", "--output", type=Path, help="default: benchmarks/results/sanitizer.json")
    options = parser.parse_args(arguments)
    if options.expression and options.output is None:
        parser.error("some of the tests are not all: give -o")
    device = gpu_receipt.device()
    if device is None or shutil.which("compute-sanitizer") is None:
        print("sanitize: needs an NVIDIA GPU, and compute-sanitizer of the CUDA toolkit on the path", file=sys.stderr)
        return _NO_DEVICE
    tests = ["tests/kernels", "-k", options.expression or _SMALL]
    os.environ.setdefault("AKX_TEST_PLANS", _PLANS)
    document = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": os.environ.get("AKX_COMMIT") or gpu_receipt.commit(),
        "device": device,
        "versions": gpu_receipt.versions(),
        "cuda_sources": gpu_receipt.stamp(),
        "tools": [],
    }
    clean = True
    for tool in options.tools:
        try:
            found = run(tool, tests, options.workers, options.seconds)
        except (OSError, subprocess.SubprocessError, ParseError) as problem:
            print(f"sanitize: {tool}: {type(problem).__name__}: {problem}", file=sys.stderr)
            clean = False
            continue
        print(f"{tool}: {found}", file=sys.stderr, flush=True)
        clean = clean and found["exit_code"] == 0 and found["errors"] == 0 and found["processes"] >= 1
        document["tools"].append(found)
        (options.output or _RESULT).write_text(json.dumps(document, indent=1) + "\n")
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
