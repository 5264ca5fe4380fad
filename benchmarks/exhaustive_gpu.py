"""How good is the tuner on a GPU? Measure the whole feasible space of the brick at k = 16; compare with the tuned plan.

    python -m benchmarks.exhaustive_gpu --list FILE            the plans to be tried, on any machine (a minute)
    python -m benchmarks.exhaustive_gpu --plans FILE           into benchmarks/results/exhaustive_brick_gpu.json
    python -m benchmarks.exhaustive_gpu --plans FILE --seconds 300 --log F   stop; the same log goes on from there

The list has every feasible plan of the tuner's space, of the schedules named, for the device of the recorded tuning
(tests/data/tuning_h100.jsonl), but for those that cannot be laid out (ghost zones too large) and those that cannot win:
the bytes that must come from L2, at more than any L2 delivers, take longer than `--bar` already. Of the other
schedules, whose spaces are too large (`ghost` has some 10^5 plans for the brick), it has a sample drawn at random.
Plans with the widest dense blocks come first, otherwise the order is random. `akx tune` runs first, with its default
settings, no database, and an empty store of compiled code. Then the plans are prepared, checked and timed by several
processes: laying out and compiling is done side by side, and what runs on the GPU (check and timing) one at a time,
under a lock. At last the tuned plan and the best of the search are timed in turns; `ratio` is the tuned plan's median
over the fastest one's.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from akx.backends import registry
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.schedules.resident import layout as resident_layout
from akx.backends.cuda.variants.block_local.shapes import shape_of
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner import measure
from akx.tuner.space import Space, build_space
from akx.tuner.trial.problem import Problem
from benchmarks import record_tuning, samplers
from benchmarks.gallery import CONSTANT, GALLERY, small

__all__ = ["compare", "least_seconds", "list_plans", "main", "work"]

_RESULTS = Path(__file__).resolve().parent / "results"
#: Bytes per second that no L2 delivers (5.7e12 were measured on an H100), for the bound below which a plan is run.
_L2 = 8e12
#: A plan is timed to the end where its first sample is within this factor of the tuned plan.
_NEAR = 1.3
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


def list_plans(matrix: Matrix, space: Space, schedules: Sequence[str], bar: float, sample: int = 0) -> dict[str, Any]:
    """The plans to be tried, and how many are left out and why; of other schedules a sample, drawn at random."""
    plans: list[Plan] = []
    left: Counter[str] = Counter()
    for plan in (plan for name in schedules for plan in space.plans(name)):
        if space.feasible(plan, matrix) is not None:
            continue
        if least_seconds(plan, matrix, space) > bar:
            left["cannot win"] += 1
        elif not _can_be_laid_out(plan, matrix, space):
            left["ghost zones too large"] += 1
        else:
            plans.append(plan)
    random.Random(16).shuffle(plans)
    plans.sort(
        key=lambda plan: -math.prod(int(size) for size in plan.variant.split("-")[0].split("x") if size.isdigit())
    )
    others = [name for name in space.schedules if name not in schedules]
    drawn = {name: draw(matrix, space, name, bar, sample) for name in others}
    plans += [plan for found in drawn.values() for plan in found]
    return {
        "schedules": list(schedules),
        "sampled": {name: len(found) for name, found in drawn.items() if found},
        "left_out": dict(left),
        "plans": [plan.to_json() for plan in plans],
    }


def draw(matrix: Matrix, space: Space, schedule: str, bar: float, count: int) -> list[Plan]:
    """So many feasible plans of a schedule that could win, each parameter drawn by itself; fewer where rare."""
    rng, found = random.Random(7), dict[Plan, None]()
    for _ in range(200 * count):
        values = {parameter.name: rng.choice(parameter.choices) for parameter in space.parameters[schedule]}
        plan = space.plan(schedule, values)
        if space.feasible(plan, matrix) is None and least_seconds(plan, matrix, space) <= bar:
            found[plan] = None
        if len(found) == count:
            break
    return list(found)


def _lines(logs: Iterable[Path]) -> list[dict[str, Any]]:
    """What the logs say, a line cut off in the middle left out."""
    found = []
    for log in sorted(logs):
        for line in log.read_text().splitlines() if log.exists() else ():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def dealt(plans: Sequence[Plan], number: int, count: int) -> list[Plan]:
    """The plans of one of several processes: what is compiled or laid out alike stays together."""
    groups: dict[tuple[Any, ...], list[Plan]] = {}
    for plan in plans:
        kernel = [getattr(plan.typed, name, 0) for name in ("block", "held_slices", "held_slots", "x", "blocks_per_sm")]
        groups.setdefault((plan.schedule, plan.variant, *kernel), []).append(plan)
    mine = [group for turn, group in enumerate(groups.values()) if turn % count == number]
    return [plan for group in mine for plan in sorted(group, key=_laid_out)]


def _laid_out(plan: Plan) -> str:
    """Equal for plans that are laid out alike: what L2 is asked to keep is said at the launch."""
    return plan.replace(options={name: value for name, value in plan.options.items() if name != "keep"}).label()


def _once(lay_out: Callable[..., Any]) -> Callable[..., Any]:
    """`lay_out`, with the last layout kept for the next plan."""
    last: list[tuple[Any, Any]] = [(None, None)]

    def kept(matrix: Matrix, plan: Plan, device: CudaDevice, **how: Any) -> Any:
        if last[0][0] != (_laid_out(plan), how):
            last[0] = (_laid_out(plan), how), lay_out(matrix, plan, device, **how)
        return last[0][1]

    return kept


def _can_be_laid_out(plan: Plan, matrix: Matrix, space: Space) -> bool:
    """Whether the ghost zones of an exchange every so many steps are small enough; worked out once for each cut."""
    if plan.schedule != "resident" or plan.typed.depth == 1:
        return True
    parts = space.device.sms * plan.typed.blocks_per_sm
    try:
        resident_layout.part_nodes(matrix, plan.partitioner, shape_of(plan), parts, plan.typed.depth)
    except InfeasibleError:
        return False
    return True


def work(matrix: Matrix, k: int, plans: Sequence[Plan], bar: float, log: Path, lock: Path, end: float) -> None:
    """Try plans and write a line for each: before it is tried, and after."""
    from akx.backends.cuda.timing import DeviceProblem

    done = {one["plan"] for one in _lines(log.parent.glob(f"{log.stem}.*"))}
    resident_layout.lay_out_resident = _once(resident_layout.lay_out_resident)  # of plans that follow one another here
    problem = Problem(matrix, k, basis="monomial", start_vectors=1, seed=0)
    with _alone(lock):
        device = DeviceProblem(problem)
    with log.open("a") as file:
        for plan in plans:
            if time.time() > end:
                return
            if plan.label() in done:
                continue

            def say(state: str, plan: Plan = plan, **more: Any) -> None:
                file.write(json.dumps({"plan": plan.label(), "state": state, **more}) + "\n")
                file.flush()

            say("begun")  # where the process is lost, this is the last line
            try:
                program = registry.get("cuda", plan.schedule).prepare(matrix, plan)
                problem.poison()
                with _alone(lock):
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
    for one in _lines(log.parent.glob(f"{log.name}.*")):
        lines[one["plan"]] = one
    found = sorted((one for one in lines.values() if one["state"] == "complete"), key=lambda one: one["seconds"])
    listed = json.loads(options.plans.read_text())
    wanted = len(listed["plans"])
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
        "schedules": listed["schedules"],
        "sampled": listed["sampled"],
        "left_out": listed["left_out"],
        "listed": wanted,
        "tried": len(lines),
        "tried_by": tried_by(lines),
        "complete": len(lines) >= wanted,
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


def tried_by(plans: Iterable[str]) -> dict[str, int]:
    """How many plans of each schedule there are among some labels."""
    return dict(sorted(Counter(plan.split("/")[1] for plan in plans).items()))


_STATES = ("complete", "refused", "failed", "wrong", "begun")


def _same(options: argparse.Namespace) -> list[str]:
    given = ["--matrix", options.matrix, "--k", str(options.k), "--plans", str(options.plans)]
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
    from benchmarks.gpu import calls_of

    calls = calls_of(matrix, k, plans)
    wanted = measure.Precision(relative=0.002, seconds=10.0, rounds_min=15, rounds_max=101)
    found = measure.interleave(calls, wanted)
    return [
        {"plan": plan.label(), "seconds": one.seconds, "spread": one.spread}
        for plan, one in zip(plans, found, strict=True)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison, write its file, and return the exit code: 1 where the tuner missed by more than 5 %."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exhaustive_gpu", description="The tuner on a GPU.")
    parser.add_argument("--matrix", default="brick", choices=sorted(GALLERY | CONSTANT))
    parser.add_argument("--k", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=1e6, help="most seconds for the whole space")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument(
        "--log", default="exhaustive.log", help="lines of what was tried; a later run goes on from there"
    )
    parser.add_argument("-o", "--output", type=Path, help="default: benchmarks/results/exhaustive_MATRIX_gpu.json")
    parser.add_argument("--small", action="store_true", help="the reduced matrix, to try the harness; needs -o")
    parser.add_argument("--tune", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--plans", type=Path, help="what --list wrote")
    parser.add_argument("--list", type=Path, metavar="FILE", help="write the plans to be tried, and stop")
    parser.add_argument("--schedules", nargs="+", default=["sweep", "resident"], help="of which plans are listed")
    parser.add_argument("--sample", type=int, default=250, help="plans to be drawn of each other schedule")
    parser.add_argument("--bar", type=float, default=80e-6, help="seconds that a listed plan may take")
    for name, kind in (("--work", str), ("--lock", Path), ("--end", float)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.list is not None:
        matrix = Matrix.from_any(small(options.matrix) if options.small else (GALLERY | CONSTANT)[options.matrix]())
        device = samplers.recorded_device(record_tuning.load())
        space = build_space(matrix, options.k, device, threads=1, backend="cuda", start_vectors=1)
        listed = list_plans(matrix, space, options.schedules, options.bar, options.sample)
        options.list.write_text(json.dumps(listed))
        return 0
    from akx.backends.cuda.device.runtime import cuda_missing

    if cuda_missing() is not None:
        print(f"exhaustive_gpu: nothing measured: {cuda_missing()}", file=sys.stderr)
        return 3
    matrix = Matrix.from_any(small(options.matrix) if options.small else (GALLERY | CONSTANT)[options.matrix]())
    if options.tune:
        from akx.tuner import tune

        found = tune(matrix, options.k, backend="cuda", db=False, name=options.matrix)
        said = {"plan": found.plan.to_json(), "best": found.seconds, "seconds": found.tuning_seconds}
        print(json.dumps({**said, "trials": len(found.trials)}))
        return 0
    if options.work:
        number, count = (int(part) for part in options.work.split("/"))
        plans = [Plan.from_json(one) for one in json.loads(options.plans.read_text())["plans"]]
        work(matrix, options.k, dealt(plans, number, count), options.bar, Path(options.log), options.lock, options.end)
        return 0
    if options.small and options.output is None:
        parser.error("--small is for trying: give it a file of its own with -o")
    if options.plans is None:
        parser.error("give the plans to be tried: --plans FILE, made by --list FILE")
    from benchmarks.gpu import provenance

    origin = provenance()
    result = compare(options.matrix, matrix, options.k, options)
    output = options.output or _RESULTS / f"exhaustive_{options.matrix}_gpu.json"
    output.write_text(json.dumps({**origin, **result}, indent=1) + "\n")
    print(f"{output}: {result['states']} of {result['listed']}; ratio {result['ratio']:.3f}", file=sys.stderr)
    return 0 if result["ratio"] <= 1.05 else 1


if __name__ == "__main__":
    sys.exit(main())
