"""Where the time of tuned plans goes on a GPU, by Nsight Compute: ``python -m studies.profiling``.

    python -m studies.profiling                       the plans of h100.json (k = 16) and h100_irregular.json
    python -m studies.profiling --only brick --k 8    one matrix, its plan for 8 powers, merged into the file
    python -m studies.profiling --table               the table of docs/profile.md from the file

Each plan has two processes of its own, which make the same three calls kernel by kernel, checked against the reference.
The first then times the plan by events as it is used: in a graph, with what earlier calls have left in L2. ``ncu``
watches the second and reads the counters of its third call: it runs each kernel several times for that, with clocks
and caches left alone, and the time is never taken from there. Bytes, cycles and instructions of all launches of the
call are added up; shares and ratios are means, weighted with the launches' durations.

The floor of a step is the larger of two times in seconds (w: bytes of a value; s: bytes of a stored entry with its
share of a column; B: bytes a second from memory, as ``akx doctor --calibrate`` keeps them):

    memory           (s nnz + w n (1 + k)) / (k B)                      the matrix and x once, k results
    shared memory    (s + w) nnz / (128 multiprocessors clock)          each entry and its x, once a step

s is the stored value and 2 / (br bc) for blocks of br x bc entries, w for diagonals, and 2 or 4 more than the value for
slices and CSR; padding counts for nothing. No x is taken to be used by two entries. Neither is a law: a small matrix
stays in L2 from call to call, and entries that are held in registers do not come through shared memory.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from akx.backends import registry
from akx.backends.cuda.value_compression.encodings import FULL, is_storable, stored_bytes, way_of
from akx.backends.cuda.variants.block_local.layout import entry_bytes
from akx.backends.cuda.variants.block_local.shapes import shape_of
from akx.backends.cuda.variants.diagonals import DIA
from akx.core.errors import DeviceError, MissingDependencyError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from benchmarks import markdown, planned, solving
from benchmarks.gpu import HISTORY as POWERS
from benchmarks.matrices import select

__all__ = [
    "METRICS",
    "PLANS",
    "RESULTS",
    "STALLS",
    "added",
    "bytes_of_entry",
    "call",
    "chosen",
    "command",
    "floor_of",
    "kernels_of",
    "main",
    "measure",
    "table",
    "watching",
]

RESULTS = Path(__file__).resolve().parent / "results" / "h100_profile.json"
#: Where plans are.
PLANS = (POWERS, POWERS.with_name("h100_irregular.json"))
PAGE = Path(__file__).resolve().parents[1] / "docs" / "profile.md"
#: What a warp waits for; that it was chosen, or could have been, is no waiting.
STALLS = (
    *("barrier", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "lg_throttle", "long_scoreboard"),
    *("math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "short_scoreboard", "sleeping"),
    *("tex_throttle", "wait"),
)
_DURATION, _READ, _WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
_SECTORS, _HITS = "lts__t_sectors_srcunit_tex.sum", "lts__t_sector_hit_rate.pct"
_SHARED, _INSTRUCTIONS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "smsp__inst_executed.sum"
_ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
_WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
_STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_NEEDED = (_DURATION, _READ, _WRITTEN, _SECTORS, _HITS, _SHARED, _INSTRUCTIONS, _ISSUE, _WARPS)
METRICS = (*_NEEDED, *(_STALLED.format(reason) for reason in (*STALLS, "not_selected", "selected")))
#: Bytes of a sector of L2, and of shared memory in a cycle of a multiprocessor.
_SECTOR, _WIDTH = 32, 128
#: What units are in seconds; all others are as they should be.
_UNITS = {"ns": 1e-9, "nsecond": 1e-9}
#: What floors are called in the table.
_TIERS = {"memory": "memory", "shared": "shared memory"}
_REFUSED = "ERR_NVGPUCTRPERM"
#: Seconds after which a process is broken off.
_MOST_SECONDS = 600.0
_ROOT = Path(__file__).resolve().parents[1]

Json = dict[str, Any]


def chosen(paths: Sequence[Path], k: int | None = None) -> dict[str, tuple[Plan, Path]]:
    """The plan of each matrix in files of :mod:`benchmarks.gpu`, for k or for most powers, and the file it is in."""
    found: dict[str, tuple[Plan, Path]] = {}
    for path in paths:
        powers = [entry for entry in json.loads(path.read_text())["powers"] if k in (None, entry["k"])]
        found |= {name: (plan, path) for name, plan in planned.plans_of({"powers": powers}).items()}
    return found


# ----------------------------------------------------------------------------------------------------------- floors


def bytes_of_entry(plan: Plan, matrix: Matrix) -> float:
    """Bytes of an entry as the plan stores it, its share of a column included. Raises ValueError for `stream`."""
    size = matrix.dtype.itemsize
    way = way_of(plan) if is_storable(plan, matrix) else FULL
    if plan.variant == DIA:
        return float(size)
    if plan.schedule in ("resident", "ghost"):
        return entry_bytes(shape_of(plan), matrix.dtype, way)
    if plan.schedule == "wavefront":
        return stored_bytes(way, matrix.dtype) + 2.0
    if plan.schedule == "sweep":
        return size + (2.0 if plan.variant.startswith("sell16") else 4.0)
    raise ValueError(f"there is no floor for plans of {plan.schedule}")


def floor_of(plan: Plan, matrix: Matrix, device: Any, bandwidth: float) -> dict[str, float]:
    """The least seconds of a step, by what it would be bound by; `bandwidth` is in bytes a second from memory."""
    size, each = matrix.dtype.itemsize, bytes_of_entry(plan, matrix)
    moved = each * matrix.nnz + size * matrix.n * (1.0 + plan.k)
    return {
        "memory": moved / (plan.k * bandwidth),
        "shared": (each + size) * matrix.nnz / (_WIDTH * device.sms * device.clock_hz),
    }


# ------------------------------------------------------------------------------------------- in the two processes


def call(name: str, A: Any, plan: Plan, *, timed: bool = True) -> Json:
    """Check a plan by three calls and time it: what an entry says beside counters, and which launches are the third."""
    from akx.backends.cuda.device.facts import cuda_device
    from akx.backends.cuda.device.launch import Kernel, synchronize
    from akx.backends.cuda.device.memory import empty, to_device
    from akx.backends.cuda.timing import DeviceCall
    from akx.tuner.measure import Precision, interleave
    from akx.tuner.model.figures import figures_of
    from akx.tuner.trial.problem import Problem

    device, matrix = cuda_device(), Matrix.from_any(A)
    bandwidth = figures_of(device, 1).slow_bandwidth
    floor = floor_of(plan, matrix, device, bandwidth)
    problem = Problem(matrix, plan.k, basis="monomial", start_vectors=1, seed=0)
    launched, launch = 0, Kernel.launch

    def count(kernel: Kernel, *given: Any, **more: Any) -> None:
        nonlocal launched
        launched += 1
        launch(kernel, *given, **more)

    Kernel.launch = count  # type: ignore[method-assign, assignment]
    program: Any = registry.get(plan.backend, plan.schedule).prepare(matrix, plan)
    if not program.is_as_planned:
        raise ValueError(f"{plan.label()} is not run as it says for {name}")
    x, out = to_device(problem.x), empty(problem.out.shape, problem.out.dtype)

    program.ready(1)
    program.take(problem.coefficients)
    before = 0
    for _ in range(3):
        before = launched
        out.fill_bytes(255)
        program.enqueue(x, out, program.coefficients)
        synchronize()
        out.get(problem.out)
        if not problem.error() <= 1.0:
            raise ArithmeticError(f"{plan.label()} is wrong for {name}: {problem.error()}")
    said: Json = {"before": before, "launches": launched - before}
    if not timed:
        return said
    again = DeviceCall.of(program, x, out, problem.coefficients)
    for _ in range(2):
        again()
    found = interleave([again], Precision(relative=0.01, seconds=0.5, rounds_min=7))[0]
    return {
        **said,
        "matrix": name,
        "rows": matrix.n,
        "nnz": matrix.nnz,
        "k": plan.k,
        "plan": plan.label(),
        "stored_bytes": bytes_of_entry(plan, matrix) * matrix.nnz,
        "seconds": found.seconds,
        "spread": found.spread,
        "floor": floor,
        "bandwidth": bandwidth,
        "sms": device.sms,
        "clock_hz": device.clock_hz,
    }


# ---------------------------------------------------------------------------------------------------- around ncu


def command(name: str, k: int, plans: Path, said: Path) -> list[str]:
    """The command line of a process that runs a plan, and writes what it says into a file."""
    watched = [sys.executable, "-m", "studies.profiling", "--call", name, str(k), str(plans.resolve())]
    return [*watched, "-o", str(said)]


def watching(before: int, launches: int) -> list[str]:
    """What comes before the command line of a process whose launches, but for the first, are to be profiled.

    Raises MissingDependencyError without Nsight Compute.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        raise MissingDependencyError(
            "a profile needs Nsight Compute",
            found="no ncu on the path",
            hint="install Nsight Compute, which comes with the CUDA toolkit, and add its folder to PATH",
        )
    options = ["--launch-skip", str(before), "--launch-count", str(launches)]
    options += ["--clock-control", "none", "--cache-control", "none"]
    return [ncu, *options, "--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(METRICS)]


def kernels_of(text: str) -> list[dict[str, float]]:
    """The metrics of each launch, in seconds and bytes, of what ``ncu --csv --page raw`` prints.

    Lines before the head are of others; the line after it has the units. What was not counted is left out.

    Raises
    ------
    DeviceError
        Where the driver has refused its counters.
    ValueError
        Where nothing was profiled.
    """
    if _REFUSED in text:
        raise DeviceError(
            "the driver lets nobody but its administrator read the GPU's counters",
            found=_REFUSED,
            hint="run as root, or load the NVIDIA driver with NVreg_RestrictProfilingToAdminUsers=0",
        )
    lines = text.splitlines()
    first = next((at for at, line in enumerate(lines) if line.startswith('"ID",') and _DURATION in line), None)
    found = []
    if first is not None:
        head, units, *rows = csv.reader(lines[first:])
        scales = [_UNITS.get(unit, 1.0) for unit in units]
        for row in rows:
            if len(row) != len(head) or not row[0].isdigit():
                continue
            counted = zip(head, row, scales, strict=True)
            numbers = {name: (_number(cell), scale) for name, cell, scale in counted if name in METRICS}
            found.append({name: number * scale for name, (number, scale) in numbers.items() if number is not None})
    if not found:
        errors = [line for line in lines if line.startswith("==ERROR==")] or [line for line in lines if line.strip()]
        raise ValueError(f"ncu has profiled no kernel: {errors[-1] if errors else 'it has said nothing'}")
    return found


def _number(cell: str) -> float | None:
    """The number of a cell, which may have commas between thousands; None where there is none."""
    try:
        return float(cell.replace(",", ""))
    except ValueError:
        return None


def added(kernels: Sequence[Mapping[str, float]]) -> Json:
    """What the launches of a call have counted together. Raises ValueError where a counter is missing."""
    for name in _NEEDED:
        if any(name not in kernel for kernel in kernels):
            raise ValueError(f"ncu has not counted {name}")
    seconds = sum(kernel[_DURATION] for kernel in kernels)

    def total(name: str) -> float:
        return sum(kernel[name] for kernel in kernels)

    def mean(name: str) -> float:
        return sum(kernel[_DURATION] * kernel.get(name, 0.0) for kernel in kernels) / seconds

    waiting = {reason: mean(_STALLED.format(reason)) for reason in STALLS}
    every = sum(waiting.values())
    largest = sorted(waiting, key=lambda reason: -waiting[reason])
    return {
        "profiled_seconds": seconds,
        "dram_bytes": total(_READ) + total(_WRITTEN),
        "l2_bytes": _SECTOR * total(_SECTORS),
        "l2_hit": mean(_HITS) / 100.0,
        "shared_cycles": total(_SHARED),
        "instructions": total(_INSTRUCTIONS),
        "issue": mean(_ISSUE) / 100.0,
        "warps": mean(_WARPS) / 100.0,
        "stalls": {reason: waiting[reason] / every for reason in largest if waiting[reason] > 0.0},
    }


def measure(name: str, plan: Plan, plans: Path) -> Json:
    """One entry: the plan as it is in the file `plans`, run and profiled in processes of its own.

    Raises
    ------
    MissingDependencyError, DeviceError
        Where nothing can be profiled here: no ``ncu``, or counters are refused.
    ValueError
        Where a process failed, or something was not counted.
    """
    watching(0, 1)  # before anything is run in vain
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "said.json"
        own = command(name, plan.k, plans, said)
        entry: Json = json.loads(_told(own, said)[1])
        text, _ = _told([*watching(entry.pop("before"), entry["launches"]), *own, "--untimed"], said)
        kernels = kernels_of(text)
        if len(kernels) != entry["launches"]:
            raise ValueError(f"ncu has profiled {len(kernels)} kernels of {entry['launches']}")
        return {**entry, **added(kernels)}


def _told(arguments: Sequence[str], said: Path) -> tuple[str, str]:
    """What a process prints, and what it has written into the file. Raises ValueError where it has not."""
    said.unlink(missing_ok=True)
    text = "\n".join(_run(arguments))
    if _REFUSED in text:
        return text, "{}"
    if not said.exists():
        lines = [line for line in text.splitlines() if line.strip()] or ["nothing was said"]
        own = [line for line in lines if not line.startswith("==")] or lines  # ncu's own lines begin so
        raise ValueError(f"the call was not made: {own[-1]}")
    return text, said.read_text()


def _run(arguments: Sequence[str]) -> tuple[str, str]:
    """What a process says; broken off with all that it has started where it takes too long."""
    with subprocess.Popen(
        arguments, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            return process.communicate(timeout=_MOST_SECONDS)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            raise ValueError(f"broken off after {_MOST_SECONDS:.0f} s") from error


# ------------------------------------------------------------------------------------------------------- the page


def table(document: Json) -> str:
    """The table of the page."""
    head = ["matrix", "k", "schedule and variant", "us a step", "floor, us", "share of it", "memory, MB a step"]
    head += ["L2, MB a step", "shared memory busy", "issue slots used", "the largest stalls"]
    body = []
    for entry in document["profile"]:
        k, seconds, floor = entry["k"], entry["seconds"], entry["floor"]
        bound = max(floor, key=lambda tier: floor[tier])
        busy = entry["shared_cycles"] / (entry["sms"] * entry["clock_hz"] * seconds)
        stalls = sorted(entry["stalls"].items(), key=lambda stall: -stall[1])[:3]
        body.append(
            [
                entry["matrix"],
                str(k),
                f"`{entry['plan'].split(' ')[0]}`",
                f"{seconds / k * 1e6:.2f}",
                f"{floor[bound] * 1e6:.2f} ({_TIERS[bound]})",
                f"{floor[bound] * k / seconds:.0%}",
                f"{entry['dram_bytes'] / k / 1e6:.2f}",
                f"{entry['l2_bytes'] / k / 1e6:.2f}",
                f"{busy:.0%}",
                f"{entry['issue']:.0%}",
                ", ".join(f"{reason} {share:.0%}" for reason, share in stalls),
            ]
        )
    origin = f"{planned.measured_on(document, 'profile')}: times are medians."
    return f"{origin}\n\n" + markdown.rows(head, body, left=(0, 2, 10))


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, profile, and return the exit code: 1 where one failed, 3 where nothing can be."""
    parser = planned.command_line("studies.profiling", "Profile tuned plans on a GPU.", RESULTS, PAGE, PLANS)
    parser.add_argument("--k", type=int, metavar="K", help="number of powers; the most there is a plan for by default")
    parser.add_argument("--call", nargs=3, metavar=("NAME", "K", "FILE"), help=argparse.SUPPRESS)
    parser.add_argument("--untimed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.call:
        name, k, path = options.call
        plan, _ = chosen([Path(path)], int(k))[name]
        A = select([name])[0].load()
        options.output.write_text(json.dumps(call(name, A, plan, timed=not options.untimed)))
        return 0
    document, failures = planned.known(options.output, "profile"), 0
    if not options.table:
        if not planned.has_gpu("profile"):
            return planned.NO_DEVICE
        from benchmarks import gpu

        origin, plans = gpu.provenance(), chosen(options.plans, options.k)
        if unknown := [name for name in options.only or () if name not in plans]:
            parser.error(f"no plan of {', '.join(unknown)}")
        if document["profile"] and document["machine"] != origin["machine"]:
            parser.error(f"{options.output} has figures of another machine: choose another file with -o")
        for name in options.only or plans:
            try:
                entry = measure(name, *plans[name])
            except (MissingDependencyError, DeviceError) as error:
                print(f"profile: {error}", file=sys.stderr)
                return planned.NO_DEVICE
            except ValueError as error:  # one failure must not cost the other matrices their time
                failures += 1
                print(f"{name}  FAILED: {error}", file=sys.stderr, flush=True)
                continue
            step, least = entry["seconds"] / entry["k"] * 1e6, max(entry["floor"].values()) * 1e6
            print(f"{name}  {step:.2f} us a step, floor {least:.2f}  {entry['plan']}", file=sys.stderr, flush=True)
            document = solving.keep(options.output, document, "profile", entry, origin, of=("matrix", "k"))
    planned.write_table(options.docs, document, "profile", table)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
