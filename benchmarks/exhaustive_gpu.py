"""How good is the tuner on a GPU? Measure the whole feasible space of the brick at k = 16; compare with the tuned plan.

    python -m benchmarks.exhaustive_gpu                        into benchmarks/results/exhaustive_brick_gpu.json
    python -m benchmarks.exhaustive_gpu --seconds 500 --log F  stop after that; the same log goes on where it stopped

`akx tune` runs first, with its default settings, no database, and an empty store of compiled code. Then every feasible
plan of the tuner's space is prepared, checked and timed, in a random order, by several processes: laying out and
compiling is done side by side, and what runs on the GPU (check and timing) one at a time, under a lock. A plan is not
run where it cannot win: where the bytes that must come from L2, at more than any L2 delivers, take longer than 1.05
times the tuned plan already. At last the tuned plan and the best of the search are timed in turns; `ratio` is the tuned
plan's median over the fastest one's.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from akx.errors import InfeasibleError
from akx.kernels import registry
from akx.matrix import Matrix
from akx.plan import Plan
from akx.tuner import measure
from akx.tuner.space import Space, build_space
from akx.tuner.verify import Problem
from benchmarks.gallery import GALLERY, small

__all__ = ["compare", "least_seconds", "main", "work"]

_RESULTS = Path(__file__).resolve().parent / "results"
#: Bytes per second that no L2 delivers (5.7e12 were measured on an H100), for the bound below which a plan is run.
_L2 = 8e12
#: A plan is timed to the end where its first sample is within this factor of the tuned plan.
_NEAR, _MARGIN = 1.3, 1.05
_FINALISTS, _LISTED = 8, 25


def least_seconds(plan: Plan, matrix: Matrix, space: Space) -> float:
    """A time that the plan cannot beat: what its traffic model reads from L2, at :data:`_L2`; 0 without a model."""
    try:
        return space.schedules[plan.schedule].traffic(plan, matrix, space.device).cache_bytes / _L2
    except Exception:  # what cannot be modelled is tried
        return 0.0


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def _order(space: Space) -> list[Plan]:
    """All feasible plans, in a random order that is always the same."""
    plans = list(space.plans())
    random.Random(16).shuffle(plans)
    return plans


def _space(matrix: Matrix, k: int) -> Space:
    from akx.device.cuda.facts import cuda_device

    return build_space(matrix, k, cuda_device(), threads=1, backend="cuda", start_vectors=1)


def work(matrix: Matrix, k: int, share: tuple[int, int], bar: float, log: Path, lock: Path, end: float) -> None:
    """Try the plans of one share (number, of how many) and write a line for each: before it is tried, and after."""
    from akx.tuner.gpu import DeviceProblem

    space = _space(matrix, k)
    done = {json.loads(line)["plan"] for line in log.read_text().splitlines()} if log.exists() else set()
    problem = Problem(matrix, k, basis="monomial", start_vectors=1, seed=0)
    with _alone(lock):
        device = DeviceProblem(problem)
    with log.open("a") as file:
        for plan in _order(space)[share[0] :: share[1]]:
            if time.time() > end:
                return
            if plan.label() in done or space.feasible(plan, matrix) is not None:
                continue

            def say(state: str, plan: Plan = plan, **more: Any) -> None:
                file.write(json.dumps({"plan": plan.label(), "state": state, **more}) + "\n")
                file.flush()

            least = least_seconds(plan, matrix, space)
            if least > _MARGIN * bar:
                say("beyond", seconds=least)
                continue
            say("begun")  # where the process is lost, this is the last line
            try:
                program = registry.get("cuda", plan.schedule).prepare(matrix, plan)
                with _alone(lock):
                    problem.poison()
                    device.poison()
                    call = device.call(program)
                    call()
                    device.fetch()
                    samples = [call.timed(8)]
                    if samples[0] <= _NEAR * bar:
                        samples += [call.timed(32) for _ in range(5)]
                error = problem.error()
                say("complete" if error <= 1 else "wrong", seconds=measure.median(samples), json=plan.to_json())
            except InfeasibleError as refusal:
                say("refused", reason=refusal.what[:100])
            except Exception as failure:
                say("failed", reason=f"{type(failure).__name__}: {failure}"[:200])


def compare(name: str, matrix: Matrix, k: int, options: argparse.Namespace) -> dict[str, Any]:
    """Tune, search everything, and time the best plans in turns; see the module."""
    log, lock = Path(options.log), Path(tempfile.mkdtemp()) / "gpu"
    with tempfile.TemporaryDirectory() as cubins:
        begin = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", __spec__.name, *_same(options), "--tune"],
            env={**os.environ, "AKX_CUBIN_DIR": cubins},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        process_seconds = time.perf_counter() - begin
    tuned = json.loads(done.stdout)
    plan = Plan.from_json(tuned["plan"])
    print(
        f"tuned in {tuned['seconds']:.1f} s: {plan.label()} {tuned['best'] * 1e6:.1f} us", file=sys.stderr, flush=True
    )
    begin, end = time.perf_counter(), time.time() + options.seconds
    own = [log.with_name(f"{log.name}.{number}") for number in range(options.processes)]
    _search(options, tuned["best"], own, lock, end)
    searched = time.perf_counter() - begin
    lines: dict[str, dict[str, Any]] = {}
    for file in own:
        for line in file.read_text().splitlines() if file.exists() else ():
            lines[json.loads(line)["plan"]] = json.loads(line)
    found = sorted((one for one in lines.values() if one["state"] == "complete"), key=lambda one: one["seconds"])
    space = _space(matrix, k)
    feasible = sum(space.feasible(one, matrix) is None for one in space.plans())
    best = [Plan.from_json(one["json"]) for one in found[:_FINALISTS]]
    finals = _in_turns(matrix, k, list(dict.fromkeys([plan, *best])))
    fastest = min(finals, key=lambda one: one["seconds"])
    states = {state: sum(one["state"] == state for one in lines.values()) for state in sorted(_STATES)}
    return {
        "matrix": name,
        "rows": matrix.n,
        "nnz": matrix.nnz,
        "k": k,
        "dtype": str(matrix.dtype),
        "feasible": feasible,
        "looked_at": len(lines),
        "complete": len(lines) >= feasible,
        "states": states,
        "tuning_seconds": tuned["seconds"],
        "tuning_process_seconds": process_seconds,
        "tuning_trials": tuned["trials"],
        "search_seconds": searched,
        "tuned": finals[0],
        "best": fastest,
        "ratio": finals[0]["seconds"] / fastest["seconds"],
        "finalists": finals,
        "rank": next((i for i, one in enumerate(found, start=1) if one["plan"] == plan.label()), None),
        "plans": [{"plan": one["plan"], "seconds": one["seconds"]} for one in found[:_LISTED]],
    }


_STATES = ("complete", "refused", "beyond", "failed", "wrong", "begun")


def _same(options: argparse.Namespace) -> list[str]:
    given = ["--matrix", options.matrix, "--k", str(options.k)]
    return [*given, "--small"] if options.small else given


def _search(options: argparse.Namespace, bar: float, logs: list[Path], lock: Path, end: float) -> None:
    """Run the workers until all have ended; one that is lost is started again behind the plan that it was lost with."""

    def start(number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", __spec__.name, *_same(options), "--log", str(logs[number])]
        command += ["--work", f"{number}/{len(logs)}", "--bar", repr(bar), "--lock", str(lock), "--end", repr(end)]
        environment = {**os.environ, "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, env=environment)

    running = dict(enumerate(start(number) for number in range(len(logs))))
    lost = 0
    while running:
        time.sleep(0.2)
        for number, process in list(running.items()):
            code = process.poll()
            if code is None and time.time() > end + 60:
                process.kill()
            elif code == 0 or (code is not None and (time.time() > end or lost > 50)):
                del running[number]
            elif code is not None:
                lost += 1
                running[number] = start(number)


def _in_turns(matrix: Matrix, k: int, plans: list[Plan]) -> list[dict[str, Any]]:
    from akx.tuner.gpu import DeviceProblem

    device = DeviceProblem(Problem(matrix, k, basis="monomial", start_vectors=1, seed=0))
    calls = [device.call(registry.get("cuda", plan.schedule).prepare(matrix, plan)) for plan in plans]
    for call in calls:
        call()
    wanted = measure.Precision(relative=0.002, seconds=10.0, rounds_min=15, rounds_max=101)
    found = measure.interleave(calls, wanted)
    return [
        {"plan": plan.label(), "seconds": one.seconds, "spread": one.spread}
        for plan, one in zip(plans, found, strict=True)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison, write its file, and return the exit code: 1 where the tuner missed by more than 5 %."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exhaustive_gpu", description="The tuner on a GPU.")
    parser.add_argument("--matrix", default="brick", choices=sorted(GALLERY))
    parser.add_argument("--k", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=1e6, help="most seconds for the whole space")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument(
        "--log", default="exhaustive.log", help="lines of what was tried; a later run goes on from there"
    )
    parser.add_argument("-o", "--output", type=Path, help="default: benchmarks/results/exhaustive_MATRIX_gpu.json")
    parser.add_argument("--small", action="store_true", help="the reduced matrix, to try the harness; needs -o")
    parser.add_argument("--tune", action="store_true", help=argparse.SUPPRESS)
    for name, kind in (("--work", str), ("--bar", float), ("--lock", Path), ("--end", float)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    from akx.device.cuda.runtime import cuda_missing

    if cuda_missing() is not None:
        print(f"exhaustive_gpu: nothing measured: {cuda_missing()}", file=sys.stderr)
        return 3
    matrix = Matrix.from_any(small(options.matrix) if options.small else GALLERY[options.matrix]())
    if options.tune:
        from akx.tuner import tune

        found = tune(matrix, options.k, backend="cuda", db=False, name=options.matrix)
        said = {"plan": found.plan.to_json(), "best": found.seconds, "seconds": found.tuning_seconds}
        print(json.dumps({**said, "trials": len(found.trials)}))
        return 0
    if options.work:
        number, count = (int(part) for part in options.work.split("/"))
        work(matrix, options.k, (number, count), options.bar, Path(options.log), options.lock, options.end)
        return 0
    if options.small and options.output is None:
        parser.error("--small is for trying: give it a file of its own with -o")
    from benchmarks.gpu import provenance

    origin = provenance()
    result = compare(options.matrix, matrix, options.k, options)
    output = options.output or _RESULTS / f"exhaustive_{options.matrix}_gpu.json"
    output.write_text(json.dumps({**origin, **result}, indent=1) + "\n")
    print(f"{output}: {result['states']} of {result['feasible']}; ratio {result['ratio']:.3f}", file=sys.stderr)
    return 0 if result["ratio"] <= 1.05 else 1


if __name__ == "__main__":
    sys.exit(main())
