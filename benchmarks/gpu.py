"""Measure matrix powers on a GPU beside cuSPARSE, into a result file: ``make gpu-bench``.

    python -m benchmarks.gpu                          the seven matrices, k = 16 and 8; then benchmarks.stream
    python -m benchmarks.gpu --only brick --k 16      one matrix, merged into the file
    python -m benchmarks.gpu --record -o FILE         all that docs/cuda.md shows, in nine minutes, most important first
    python -m benchmarks.gpu --tune-seconds 0         untuned calls alone
    python -m benchmarks.gpu --longer 120             beside each search one of 120 s, in the same turns

Times are those of :mod:`benchmarks.users_clock`: the wall clock around public calls that come in a row, and around such
as are waited for one by one (`latency`). An entry has the form of :mod:`benchmarks.record`: `baselines` are cuSPARSE's
products for CSR, for blocks and SpMVOp, each k of them in one CUDA graph; `best` is ``P(x, out=V)`` with the plan that
`akx tune` has just put into a database; `untuned` the same call with no plan there; `loop` CuPy's. `speedup` is over
the best of CSR, `speedup_best` over the best of all baselines. `tuner_seconds` are those of the plan by the tuner's own
clock, events on the device; `sweep` those of akx's fastest plain products in the same run-off. Plans shipped with akx
are not looked at, so that each matrix is one that was never seen. Without ``--tune-seconds`` the search ends when it
wants to, as that of `akx tune` does.

Matrices have general values; those of ``NAME-constant`` have few, which plans may keep in tables. The file is written
anew after every (matrix, k), so a run that is stopped loses nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from akx.backends import registry
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.plandb import PlanDatabase
from akx.tuner import TuneResult, tune
from akx.tuner.trial.problem import Problem
from benchmarks import record, users_clock
from benchmarks.clock import Timing
from benchmarks.gallery import CONSTANT
from benchmarks.matrices import Case, select
from benchmarks.users_clock import AKX, LONGER, LOOP, UNTUNED, Figures

if TYPE_CHECKING:
    from akx.backends.cuda.timing import DeviceCall

__all__ = ["HISTORY", "MATRICES", "RESULTS", "calls_of", "entry", "main", "origin_of_table", "provenance"]

RESULTS = Path(__file__).resolve().parent / "results" / "h200.json"
#: Figures of an H100 by events in graphs, of matrices with few values: plans and streams that other pages go by.
HISTORY = RESULTS.with_name("h100.json")
MATRICES = ("pentadiagonal", "mc2depi", "brick", "9-point", "27-point", "7-point", "shell")
POWERS = (16, 8)
#: What is measured for the record, most important first: matrices, k, and seconds of a search.
_RECORD = (
    (MATRICES, 16, 12.0),
    (("real",), 8, 2.0),
    (MATRICES, 8, 7.0),
    (tuple(name for name in CONSTANT if name.removesuffix("-constant") in MATRICES), 16, 7.0),
    (("rmat", "tetrahedra", "delaunay", "7-point-200-shuffled"), 8, 7.0),
)
#: Seconds after which a record begins nothing new, and that it waits at most for layouts to be compiled before.
_RECORD_SECONDS, _COMPILING = 510.0, 50.0
#: The backend that is measured.
BACKEND = "cuda"


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
    for name in ("pycuda", "cuda-bindings", "cupy-cuda12x", "cupy-cuda13x"):
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


def entry(
    case: Case, matrix: Matrix, k: int, figures: Figures, searches: Mapping[str, TuneResult], within: float | None
) -> dict[str, Any]:
    """The entry of one matrix and k, as :mod:`benchmarks.record` has it; of the untuned call where none was tuned."""
    tuned = searches.get(AKX)
    baselines = {name: one.seconds for name, one in figures.row.items() if name not in (*figures.plans, LOOP)}
    csr = [seconds for name, seconds in baselines.items() if record.is_csr(name)]
    best = AKX if tuned is not None else UNTUNED
    ours, plan = figures.row[best], figures.plans[best]
    found = {
        "matrix": case.name,
        "group": case.group,
        "rows": matrix.n,
        "nnz": matrix.nnz,
        "k": k,
        "dtype": matrix.dtype.name,
        "baselines": baselines,
        "best": _row(plan, ours),
        "speedup": min(csr) / ours.seconds,
        "speedup_best": min(baselines.values()) / ours.seconds,
        "spreads": {name: one.spread for name, one in figures.row.items()},
        "latency": {name: one.seconds for name, one in figures.latency.items()},
        "untuned": _row(figures.plans[UNTUNED], figures.row[UNTUNED]),
        "loop": figures.row[LOOP].seconds if LOOP in figures.row else None,
        "refused": list(figures.refused),
        "prepare_seconds": 0.0 if tuned is None else tuned.prepare_seconds,
        "error": figures.error,
        "plan": plan.label(),
    }
    if tuned is not None:
        found |= {
            "tuner_seconds": tuned.seconds,
            "tuning_seconds": tuned.tuning_seconds,
            "tuned_within": within,
            "stopped": tuned.stopped,
            "trials": len(tuned.trials),
            "sweep": tuned.baseline_seconds,
        }
    if LONGER in searches:
        longer = _row(figures.plans[LONGER], figures.row[LONGER])
        found["longer"] = {**longer, "tuning_seconds": searches[LONGER].tuning_seconds}
    return found


def _row(plan: Plan, timing: Timing) -> dict[str, Any]:
    return {
        "schedule": plan.schedule,
        "variant": plan.variant,
        "seconds": timing.seconds,
        "spread": timing.spread,
        "plan": plan.label(),
        "stored": plan.options.get("stored", "full"),
    }


def _measured(
    case: Case, matrix: Matrix, k: int, within: float | None, db: Path, longer: float | None
) -> dict[str, Any]:
    """The entry of one matrix and k, tuned for `within` seconds, or as long as it takes; not where that is 0."""
    databases, searches = {UNTUNED: PlanDatabase(db.with_name("empty.sqlite"), layers=())}, dict[str, TuneResult]()
    for name, file, seconds in ((LONGER, db.with_name("longer.sqlite"), longer or 0), (AKX, db, within)):
        if seconds != 0:
            databases = {name: PlanDatabase(file, layers=()), **databases}
            searches[name] = tune(
                matrix, k, backend=BACKEND, seconds=seconds, db=databases[name], fresh=True, name=case.name
            )
    return entry(case, matrix, k, users_clock.measure(matrix, k, databases, BACKEND), searches, within)


def _compile_layouts(matrix: Matrix, k: int) -> None:
    """Compile what lays matrices out, on all cores: on a fresh machine a short search would do nothing else."""
    from akx.backends.selection import device_of
    from akx.tuner.warmup.gpu_code import layout_jobs
    from akx.tuner.warmup.host_code import Warmup

    part, jobs = layout_jobs(matrix, k, device_of(BACKEND))
    with contextlib.closing(Warmup(part, everything=None)) as warmup:
        warmup.want(jobs)
        warmup.wait(_COMPILING, lambda done, count: None)


def _said(found: dict[str, Any]) -> str:
    """One line about an entry: microseconds of a step."""
    k = found["k"]
    times = {**found["baselines"], LOOP: found["loop"], UNTUNED: found["untuned"]["seconds"]}
    times |= {AKX: found["best"]["seconds"], "events": found.get("tuner_seconds")}
    shown = "  ".join(f"{name} {seconds / k * 1e6:.2f}" for name, seconds in times.items() if seconds)
    waited = f"one call {found['latency'][AKX if 'tuner_seconds' in found else UNTUNED] * 1e6:.1f} us"
    search = f"tuned in {found.get('tuning_seconds', 0):.0f} s"
    gains = f"{found['speedup']:.2f}x  best {found['speedup_best']:.2f}x"
    return f"{found['matrix']} k = {k}  {shown} us/step  {waited}  {gains}  {search}  {found['plan']}"


def _work(options: argparse.Namespace) -> list[tuple[Case, int, float | None]]:
    """Cases, k and seconds of a search, in the order in which they are measured. Raises KeyError for unknown names."""
    if not options.record:
        cases = select(options.only, reduced=options.small)
        return [(case, k, options.tune_seconds) for case in cases for k in options.k]
    found: list[tuple[Case, int, float | None]] = []
    for names, k, seconds in _RECORD:
        within = seconds if options.tune_seconds is None else options.tune_seconds
        for name in names:  # in the order of their importance
            with contextlib.suppress(KeyError):  # real matrices may not be there
                found += [(case, k, within) for case in select([name], reduced=options.small)]
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="Measure matrix powers on a GPU.")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=list(MATRICES), help="matrices, or a group")
    parser.add_argument("--k", nargs="+", type=int, default=list(POWERS), metavar="K", help="numbers of powers")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, help="result file to merge into")
    parser.add_argument("--tune-seconds", type=float, help="time budget of tuning for each k; 0: untuned calls alone")
    parser.add_argument("--longer", type=float, metavar="SECONDS", help="search once more, for so long, and compare")
    parser.add_argument("--db", type=Path, metavar="FILE", help="keep the plans there; nowhere by default")
    parser.add_argument("--small", action="store_true", help="the gallery in its reduced form, to try the harness")
    parser.add_argument("--record", action="store_true", help="all that docs/cuda.md shows, most important first")
    parser.add_argument(
        "--no-stream", action="store_true", help="leave out the list `stream`: matrices beyond a budget"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, and return the exit code: 1 where a measurement failed, 2 for a bad argument."""
    from akx.backends.cuda.baselines.spmvop import spmvop_note

    began, parser = time.monotonic(), _parser()
    options = parser.parse_args(arguments)
    if options.small and options.output == RESULTS:
        parser.error("--small is for trying: give it a file of its own with -o")
    reason = _missing()
    if reason is not None:
        print(f"gpu-bench: nothing measured: {reason}", file=sys.stderr)
        return 3
    beyond = spmvop_note()
    if beyond is not None:
        print(f"gpu-bench: {beyond}", file=sys.stderr)
    try:
        work = _work(options)
        origin = provenance()
        document = record.merge(record.load(options.output), origin, [])
    except (KeyError, ValueError) as problem:
        parser.error(str(problem))
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        db, held = options.db or Path(folder) / "plans.sqlite", ("", Any)
        for case, k, within in work:
            if options.record and time.monotonic() - began > _RECORD_SECONDS:
                print(f"gpu-bench: no time for {case.name} k = {k}", file=sys.stderr)
                continue
            try:
                matrix = held[1] if held[0] == case.name else Matrix.from_any(case.load())
                if options.record and not held[0]:
                    _compile_layouts(matrix, k)
                held = case.name, matrix
                found = _measured(case, matrix, k, within, db, options.longer)
                document = record.merge(document, origin, [found])
                record.save(options.output, document)
            except Exception as error:  # one failure must not cost the other matrices their time
                is_none = case.group == "real" and isinstance(error, ValueError)  # no matrix to measure
                failures += not is_none
                what = "left out" if is_none else f"FAILED: {type(error).__name__}"
                print(f"{case.name} k = {k}  {what}: {error}", file=sys.stderr, flush=True)
                continue
            print(f"{time.monotonic() - began:4.0f} s  {_said(found)}", file=sys.stderr, flush=True)
    for k in sorted({one["k"] for one in document["powers"]}, reverse=True):
        gains = [one["speedup"] for one in document["powers"] if one["k"] == k]
        print(f"k = {k}: geometric mean {record.geometric_mean(gains):.2f}, least {min(gains):.2f}")
    return _streamed(options, [case.name for case, _, _ in work]) or int(failures > 0)


def _missing() -> str | None:
    from akx.backends.cuda.baselines.cusparse import cusparse_missing
    from akx.backends.cuda.device.runtime import cuda_missing

    return cuda_missing() or cusparse_missing()


def _streamed(options: argparse.Namespace, names: Sequence[str]) -> int:
    """The exit code of :mod:`benchmarks.stream` for its matrices among these; 0 where it is left out."""
    from benchmarks import stream

    streamed = [name for name in dict.fromkeys(names) if name in stream.MATRICES]
    if not streamed or options.no_stream or options.record:
        return 0
    reduced = ["--small"] if options.small else []
    return stream.main(["--only", *streamed, "-o", str(options.output), *reduced])


if __name__ == "__main__":
    sys.exit(main())
