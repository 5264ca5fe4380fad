"""Measure matrix powers on a GPU beside cuSPARSE, into a result file: ``make gpu-bench``.

    python -m benchmarks.gpu                          the seven matrices, k = 1, 4, 16; then benchmarks.stream
    python -m benchmarks.gpu --only brick --k 16      one matrix, merged into the file

The file has the form of :mod:`benchmarks.record`. `baselines` are cuSPARSE's algorithms for CSR, preprocessed, the k
products in one CUDA graph, vectors on the device, and those of SpMVOp where the library has it; `sweep` beside them is
akx's own fastest plain product, which is not what a speed-up is over. All are timed by events, in turns; `spread` is
the half-width of the median's 95 % interval.
The file is written anew after every (matrix, k), so a run that is stopped loses nothing.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from akx.backends import registry
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.report.comparison.bench import BenchPower, bench_power
from akx.tuner import TuneResult, tune
from akx.tuner.trial.problem import Problem
from benchmarks import record
from benchmarks.matrices import Case, select

if TYPE_CHECKING:
    from akx.backends.cuda.timing import DeviceCall

__all__ = ["MATRICES", "RESULTS", "calls_of", "entry", "main", "origin_of_table", "provenance"]

RESULTS = Path(__file__).resolve().parent / "results" / "h100.json"
MATRICES = ("pentadiagonal", "mc2depi", "brick", "9-point", "27-point", "7-point", "shell")
POWERS = (1, 4, 16)
_SWEEP = "sweep"


def calls_of(matrix: Matrix, k: int, plans: Sequence[Plan]) -> list[DeviceCall]:
    """What the tuner's clock times: calls of plans on the same vectors on the device, each done once already."""
    from akx.backends.cuda.timing import DeviceProblem

    device = DeviceProblem(Problem(matrix, k, basis="monomial", start_vectors=1, seed=0))
    calls = [device.call(registry.get("cuda", plan.schedule).prepare(matrix, plan)) for plan in plans]
    for call in calls:
        call()
    return calls


def origin_of_table(threads: int) -> dict[str, Any]:
    """:func:`provenance` with what tables of both backends name: the processor, and threads of the host."""
    found: dict[str, Any] = {**provenance()}
    found["machine"] |= {"threads": threads, "processor": found["machine"]["gpu"]}
    return found


def provenance() -> record.Provenance:
    """GPU, versions, commit and date of a run that starts now."""
    from akx.backends.cuda.baselines.cusparse import cusparse_version
    from akx.backends.cuda.baselines.spmvop import ABSENT, spmvop
    from akx.backends.cuda.device.compile import compiler_name
    from akx.backends.cuda.device.facts import cuda_device

    origin, device = record.provenance(1), cuda_device()
    machine = {
        "gpu": device.name,
        "compute_capability": "{}.{}".format(*device.compute_capability),
        "sms": device.sms,
        "l2_bytes": device.l2_bytes,
        "memory_bytes": device.memory_bytes,
        "system": f"{platform.system()} {platform.machine()}",
    }
    versions = {**origin["versions"], "compiler": compiler_name() or "", "cusparse": cusparse_version() or ""}
    versions["spmvop"] = spmvop() != ABSENT  # whether the library has the newer product at all
    for name in ("pycuda", "cuda-bindings"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        **origin,
        "machine": machine,
        "versions": versions,
        "commit": os.environ.get("AKX_COMMIT", origin["commit"]),
    }


def entry(case: Case, matrix: Matrix, power: BenchPower, tuned: TuneResult) -> dict[str, Any]:
    """The entry of one matrix and k, as :mod:`benchmarks.record` has it."""
    baselines = {row.name: row.seconds for row in power.rows[1:] if row.name != _SWEEP}
    best = power.tuned
    sweep = next((row.seconds for row in power.rows if row.name == _SWEEP), best.seconds)
    return {
        "matrix": case.name,
        "group": case.group,
        "rows": matrix.n,
        "nnz": matrix.nnz,
        "k": power.k,
        "dtype": matrix.dtype.name,
        "baselines": baselines,
        "best": {
            "schedule": power.plan.schedule,
            "variant": power.plan.variant,
            "seconds": best.seconds,
            "spread": best.spread,
        },
        "speedup": min(baselines.values()) / best.seconds,
        "prepare_seconds": power.prepare_seconds,
        "error": power.error,
        "plan": power.plan.label(),
        "tuning_seconds": tuned.tuning_seconds,
        "sweep": sweep,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, and return the exit code: 1 where a measurement failed, 2 for a bad argument."""
    from akx.backends.cuda.baselines.cusparse import cusparse_missing
    from akx.backends.cuda.baselines.spmvop import spmvop_note
    from akx.backends.cuda.device.runtime import cuda_missing

    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="Measure matrix powers on a GPU.")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=list(MATRICES), help="matrices, or a group")
    parser.add_argument("--k", nargs="+", type=int, default=list(POWERS), metavar="K", help="numbers of powers")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, help="result file to merge into")
    parser.add_argument("--tune-seconds", type=float, default=30.0, help="time budget of tuning for each k")
    parser.add_argument("--db", metavar="FILE", default=False, help="keep the plans there; nowhere by default")
    parser.add_argument("--small", action="store_true", help="the gallery in its reduced form, to try the harness")
    parser.add_argument(
        "--no-stream", action="store_true", help="leave out the list `stream`: matrices beyond a budget"
    )
    options = parser.parse_args(arguments)
    if options.small and options.output == RESULTS:
        parser.error("--small is for trying: give it a file of its own with -o")
    beyond = spmvop_note()
    if beyond is not None:
        print(f"gpu-bench: {beyond}", file=sys.stderr)
    for reason in (cuda_missing(), cusparse_missing()):
        if reason is not None:
            print(f"gpu-bench: nothing measured: {reason}", file=sys.stderr)
            return 3
    try:
        cases = select(options.only, reduced=options.small)
        origin = provenance()
        document = record.merge(record.load(options.output), origin, [])
    except (KeyError, ValueError) as problem:
        parser.error(str(problem))
    failures = 0
    for case in cases:
        matrix = Matrix.from_any(case.load())
        for k in options.k:
            try:
                tuned = tune(
                    matrix, k, backend="cuda", seconds=options.tune_seconds, db=options.db, fresh=True, name=case.name
                )
                found = entry(case, matrix, bench_power(matrix, tuned, 1), tuned)
                document = record.merge(document, origin, [found])
                record.save(options.output, document)
            except Exception as error:  # one failure must not cost the other matrices their time
                failures += 1
                print(f"{case.name} k = {k}  FAILED: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                continue
            times = "  ".join(f"{name} {seconds / k * 1e6:.2f}" for name, seconds in found["baselines"].items())
            mine = f"sweep {found['sweep'] / k * 1e6:.2f}  akx {found['best']['seconds'] / k * 1e6:.2f} us/step"
            label = f"{found['speedup']:.2f}x  tuned in {tuned.tuning_seconds:.0f} s  {found['plan']}"
            print(f"{case.name} k = {k}  {times}  {mine}  {label}", file=sys.stderr, flush=True)
    if document["powers"]:
        for k in options.k:
            gains = [one["speedup"] for one in document["powers"] if one["k"] == k]
            if gains:
                print(f"k = {k}: geometric mean {record.geometric_mean(gains):.2f}, least {min(gains):.2f}")
    from benchmarks import stream

    streamed = [case.name for case in cases if case.name in stream.MATRICES]
    if streamed and not options.no_stream:
        reduced = ["--small"] if options.small else []
        failures += stream.main(["--only", *streamed, "-o", str(options.output), *reduced])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
