"""Run the kernels' GPU tests under NVIDIA's compute-sanitizer, and write down what it found.

    python benchmarks/sanitize.py                               memcheck and racecheck, the tests of kernels
    python benchmarks/sanitize.py --tools racecheck -k stream   one tool, some tests; needs -o
    python benchmarks/sanitize.py --workers 8                   side by side, each with a share of the tests
    python benchmarks/sanitize.py --seconds 300 --resume        what the last run has left, and what has changed since

memcheck finds accesses outside of what was allocated and misaligned ones, racecheck accesses to shared memory that
nothing orders. The tests' results are compared with the reference as always: a test that fails fails this too. The file
``benchmarks/results/sanitizer.json`` has, for each tool, device and versions, as the receipt of ``make gpu-test`` has
them, the hashes of the CUDA sources, those of solvers' vector work apart, the tests in which it found nothing, and what
it found in the last run. All of it takes ten times longer under memcheck, so that tests of large matrices are left out
(small ones run the same kernels), and those that draw plans at random draw fewer. Under racecheck a launch takes a
second, more than that where processes share the GPU: it watches tests of every kernel, in one value type or two, on
matrices of fewer rows.
"""

from __future__ import annotations

import argparse
import ast
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
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

if __package__:
    from benchmarks import gpu_receipt
else:
    import gpu_receipt  # run by its path, as gpu_receipt.py is

__all__ = ["TOOLS", "found_in", "main", "name_of", "run"]

TOOLS = ("memcheck", "racecheck")
_ROOT = Path(__file__).resolve().parents[1]
_RESULT = _ROOT / "benchmarks" / "results" / "sanitizer.json"
_SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error)|(?:RACECHECK SUMMARY: (\d+) hazard)")
_NO_DEVICE = 3
#: Which tests, for pytest's -k; none that is of times, which a tool changes.
_CHOSEN = {
    "memcheck": "not gallery and not partitions and not dense_blocks and not in_the_order_of_its_memories",
    "racecheck": "(test_start_vectors and (2- or 5-ghost)) or (every_plan_is_right and band and float64)"
    " or (test_named_plan and float64) or (test_values_from and float64)"
    " or (clusters_are_right and (float64-2 or complex64-8)) or (gpu- and (float64 or complex64))"
    " or (fronts_are_right and float64) or ((stored_parts_are_right or through_a_stage) and (float64 or complex64))"
    " or (test_cuda_swept and (pcsr or rows16 or hubs or vbell) and float64)"
    " or (hubs_are_right and (1009 or 9001) and (float64 or complex64)) or test_cuda_stored_values"
    " or arrows-float32 or (test_m_of_the_gpu and 0.6-complex128) or transposed_on_the_gpu or not_finite"
    " or (test_cuda_rates and not in_the_order_of_its_memories) or translated_on_a_gpu"
    " or (every_form_is_right and float64) or a_gpu_finds_the_same or the_hosts_on_a_gpu",
}
#: For a tool: memcheck sees the ends of arrays where each has memory of its own.
_SETTINGS = {
    "memcheck": {"AKX_TEST_PLANS": "5", "AKX_GPU_POOL": "off"},
    "racecheck": {"AKX_TEST_PLANS": "2", "AKX_TEST_ROWS": "1009"},
}
#: Options of a tool.
_OF_TOOL = {"memcheck": ["--report-api-errors", "no"], "racecheck": []}
#: Tests in one process: all of its results are lost where time runs out.
_SHARE = {"memcheck": 12, "racecheck": 3}
#: Sources that are run by tests of their own, and by no others; what launches them.
_OF_VECTORS = ("advance", "blocks", "conjugate", "gram_schmidt", "mix", "products", "taken", "vectors")
_DRIVERS_OF_VECTORS = ("arnoldi", "conjugate", "queues", "vectors")
_TESTS_OF_VECTORS = "tests.backends.cuda.test_cuda_vectors::"
#: Where sources are in the backend's folder: what their paths begin with.
_OF_FRONTS, _TESTS_OF_FRONTS = ("schedules/wavefront/",), "wavefront"
_OF_STREAMS, _TESTS_OF_STREAMS = ("schedules/stream/",), ("stream", "cuda_hybrid")
_OF_SWEEP = (
    *("schedules/sweep/", "include/swept.cuh", "include/block_sort", "matrix/features"),
    *("variants/hot_columns", "variants/hubs", "lengths", "row_lengths", "variants/outside"),
    *("variants/similar_rows", "variants/slots", "variants/swept", "variants/translate", "variants/vbell"),
)
#: Of these what others include, which are of both groups: `long_rows` is a step of `sweep` and more.
_SHARED, _SHARING = ("sweep.cuh", "swept.cuh"), ("long_rows",)
_TESTS_OF_SWEEP = ("hubs", "sweep", "swept", "translate")
_OF_RATES, _TESTS_OF_RATES = ("cost/rates",), "tests.backends.cuda.test_cuda_rates::"
#: What all have in common, what fronts have with others, and what products have.
_OF_ALL = ("include/common.cuh", "program.py", "schedules/base.py")
_OF_BOTH = tuple(f"value_compression/{name}" for name in ("encodings", "on_device", "program", "stored"))
_OF_PRODUCTS = (
    *("value_compression/", "matrix/device_matrix", "include/team", "matrix/transpose"),
    *("matrix/level_order", "matrix/permuted", "reordered"),
)
#: What decides on no launch: modules that say which plans are tried and what they cost, and methods that do.
_NO_DRIVERS = re.compile(r"backend\.py|timing\.py|cost/(?!rates)\w+\.py|(?:\w+/)+(?:options|cost|\w+_cost|search)\.py")
_REVISION = re.compile(r"\s+revision = \d+$")
_CHOOSING = ("heuristic_plans", "space", "starts", "traffic", "untuned", "untuned_for", "waste", "work")


def found_in(logs: Iterable[str]) -> dict[str, int]:
    """How many processes the tool has watched to their end, and what it has found in them."""
    counts = [int(one or other) for log in logs for one, other in _SUMMARY.findall(log)]
    return {"processes": len(counts), "errors": sum(counts)}


def _collected(tests: Sequence[str]) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-m", "cuda", "-q", "--collect-only", *tests]
    said = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [line for line in said.splitlines() if "::" in line]


def name_of(node: str) -> str:
    """The name that a test has in the receipt, of its name on pytest's command line."""
    file, *inside, name = node.split("::")
    return ".".join([file.removesuffix(".py").replace("/", "."), *inside]) + "::" + name


def sources(root: Path = _ROOT) -> dict[str, str]:
    """The hashes of the sources of vector work, fronts, streams, products, of what measures a device, and of others.

    With what all include, and with what launches them, since that decides on extents and shared memory.
    """
    folder = root / "akx" / "backends" / "cuda"
    every = gpu_receipt.cuda_sources(root)
    every += [path for path in folder.rglob("*.py") if is_driver(path.relative_to(folder).as_posix())]

    def beginning(names: tuple[str, ...]) -> list[Path]:
        return [path for path in every if path.relative_to(folder).as_posix().startswith(names)]

    own = [path for path in every if path.stem in (_DRIVERS_OF_VECTORS if path.suffix == ".py" else _OF_VECTORS)]
    both, fronts, stored = beginning(_OF_ALL), beginning(_OF_FRONTS), beginning(_OF_BOTH)
    rates, streams, swept = beginning(_OF_RATES), beginning(_OF_STREAMS), beginning(_OF_SWEEP)
    values = beginning(_OF_PRODUCTS)
    apart = {*own, *fronts, *rates, *streams, *swept}
    rest = [path for path in every if path not in apart or path.name in _SHARED]
    return {
        "vectors": _hash([*own, *both], root),
        "fronts": _hash([*fronts, *stored, *both], root),
        "streams": _hash([*streams, *both], root),
        "rates": _hash([*rates, *both], root),
        "sweep": _hash([*swept, *values, *both], root),
        "others": _hash(rest, root),
    }


def is_driver(name: str) -> bool:
    """Whether a module decides on launches, by its path in the backend's folder."""
    return not name.startswith("device/") and not name.endswith("__init__.py") and _NO_DRIVERS.fullmatch(name) is None


def _hash(paths: Sequence[Path], root: Path) -> str:
    return gpu_receipt.source_hash(sorted(paths), root, _held)


def _held(path: Path) -> bytes:
    return launching(path.read_text(encoding="utf-8")).encode() if path.suffix == ".py" else path.read_bytes()


def launching(text: str) -> str:
    """The source of a driver without what only chooses plans, or declares a revision, and without empty lines."""
    lines = text.splitlines(keepends=True)
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    for node in (node for one in classes for node in one.body if isinstance(node, ast.FunctionDef)):
        if node.name in _CHOOSING:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            lines[first - 1 : node.end_lineno] = [""] * ((node.end_lineno or first) - first + 1)
    return "".join(line for line in lines if line.strip() and not _REVISION.match(line))


def _group_of(test: str) -> str:
    if test.startswith(_TESTS_OF_VECTORS):
        return "vectors"
    if test.startswith(_TESTS_OF_RATES):
        return "rates"
    if any(name in test for name in _TESTS_OF_STREAMS):
        return "streams"
    if any(name in test for name in _TESTS_OF_SWEEP):
        return "sweep"
    return "fronts" if _TESTS_OF_FRONTS in test else "others"


def seen(tests: Mapping[str, str], then: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Of the outcomes of tests those whose sources are what they were."""
    same = {group for group in now if then.get(group) == now[group]}
    return {name: outcome for name, outcome in tests.items() if _group_of(name) in same}


def _share(tool: str, tests: Sequence[str], end: float) -> tuple[int, str, dict[str, str]]:
    """Exit code, log and outcomes of some tests in a process of their own; nothing of them where time runs out."""
    begun = time.perf_counter()
    if time.monotonic() >= end:
        return 0, "", {}
    with tempfile.TemporaryDirectory() as folder:
        log, report, said = Path(folder) / "log", Path(folder) / "report.xml", Path(folder) / "said"
        # Asking the driver about memory that is not its own is an error of the call, and what tells such memory.
        command = ["compute-sanitizer", "--tool", tool, *_OF_TOOL[tool], "--log-file", str(log)]
        command += [sys.executable, "-m", "pytest", "-v", "-m", "cuda", f"--junitxml={report}", *tests]
        with (
            said.open("w") as output,
            subprocess.Popen(
                command, cwd=_ROOT, env=os.environ | _SETTINGS[tool], start_new_session=True, stdout=output
            ) as process,
        ):
            try:
                code = process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
                last = said.read_text(errors="replace").splitlines()[-1:] or ["nothing"]
                print(f"{tool}: {len(tests)} tests broken off at {last[0]}", file=sys.stderr, flush=True)
                return 0, "", {}
        outcomes = gpu_receipt.outcomes_of(report)
        took, counts = time.perf_counter() - begun, dict(Counter(outcomes.values()))
        print(f"{tool}: {took:.0f} s for {counts}, the first {tests[0]}", file=sys.stderr, flush=True)
        if set(counts) - {"passed", "skipped"}:
            print(said.read_text(errors="replace")[-4000:], file=sys.stderr)
        if code == 0 and not log.is_file():
            raise OSError(f"{command[0]} has left no log")
        return code, log.read_text(errors="replace") if log.is_file() else "", outcomes


def run(tool: str, tests: Sequence[str], workers: int, seconds: float, known: Mapping[str, Any]) -> dict[str, Any]:
    """The tests under one tool, `workers` shares of them at a time, but for those that a run before found clean.

    A share in which anything was found is told of in this run's ``errors`` and ``exit_code``, and is left for the next.
    """
    begun, end = time.perf_counter(), time.monotonic() + seconds
    every = _collected(tests)
    names = set(map(name_of, every))
    outcomes = {name: outcome for name, outcome in known.get("tests", {}).items() if name in names}
    left = [node for node in every if name_of(node) not in outcomes]
    count = -(-len(left) // _SHARE[tool])
    shares = [left[first::count] for first in range(count)]
    with ThreadPoolExecutor(workers) as pool:
        done = list(pool.map(lambda share: _share(tool, share, end), shares))
    for code, log, some in done:
        if found_in([log])["errors"]:
            print(log[:8000], file=sys.stderr)
        elif code == 0:
            outcomes |= some
    found = found_in([log for _, log, _ in done])
    return {
        "tool": tool,
        "settings": _SETTINGS[tool],
        "exit_code": max((code for code, _, _ in done), key=abs, default=0),
        "errors": found["errors"],
        "processes": known.get("processes", 0) + found["processes"],
        "seconds": round(known.get("seconds", 0.0) + time.perf_counter() - begun, 1),
        "outcomes": dict(Counter(outcomes.values())),
        "left": len(every) - len(outcomes),
        "tests": outcomes,
    }


def _kept(file: Path) -> dict[str, dict[str, Any]]:
    """By tool, what a file says."""
    return {one["tool"]: one for one in json.loads(file.read_text())["tools"]} if file.is_file() else {}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, write the file, and return the exit code: 1 where anything was found, 3 where nothing could be run."""
    parser = argparse.ArgumentParser(prog="python benchmarks/sanitize.py", description="Kernels under the sanitizer.")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("-k", dest="expression", help="tests by name, as pytest's -k")
    parser.add_argument("--workers", type=int, default=1, help="tests side by side")
    parser.add_argument("--seconds", type=float, default=3600.0, help="most seconds for a tool")
    parser.add_argument("--resume", action="store_true", help="go on with the file of the last run")
    parser.add_argument("-o", "--output", type=Path, help="default: benchmarks/results/sanitizer.json")
    options = parser.parse_args(arguments)
    if options.expression and options.output is None:
        parser.error("some of the tests are not all: give -o")
    device = gpu_receipt.device()
    if device is None or shutil.which("compute-sanitizer") is None:
        print("sanitize: needs an NVIDIA GPU, and compute-sanitizer of the CUDA toolkit on the path", file=sys.stderr)
        return _NO_DEVICE
    output = options.output or _RESULT
    origin: dict[str, Any] = {"device": device, "versions": gpu_receipt.versions()}
    now = sources()
    clean = True
    for tool in options.tools:
        tests = ["tests/backends", "-k", options.expression or _CHOSEN[tool]]
        known = _kept(output).get(tool, {}) if options.resume else {}
        if {key: known.get(key) for key in ("settings", *origin)} != {"settings": _SETTINGS[tool], **origin}:
            known = {}  # seen in another way
        known = known | {"tests": seen(known.get("tests", {}), known.get("sources", {}), now)}
        try:
            found = run(tool, tests, options.workers, options.seconds, known)
        except (OSError, subprocess.SubprocessError, ParseError) as problem:
            print(f"sanitize: {tool}: {type(problem).__name__}: {problem}", file=sys.stderr)
            clean = False
            continue
        date = datetime.now(UTC).isoformat(timespec="seconds")
        found |= {"date": date, "commit": os.environ.get("AKX_COMMIT") or gpu_receipt.commit(), **origin}
        found["sources"] = now
        every = _kept(output) | {tool: found}
        output.write_text(json.dumps({"tools": list(every.values())}, indent=1) + "\n")
        print(f"{tool}: {found | {'tests': '...'}}", file=sys.stderr, flush=True)
        clean = clean and not (found["exit_code"] or found["errors"] or found["left"]) and found["processes"] >= 1
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
