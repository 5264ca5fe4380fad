"""Record a tuning run on real hardware, to be replayed where that hardware is not: ``tests/data/tuning_h100.json``.

    python -m benchmarks.record_tuning                              the brick, k = 16, on the GPU
    python -m benchmarks.record_tuning --others 120 -o FILE         two minutes of further searches

The record is one run of :func:`akx.tuner.tune` with its default settings, trial by trial, and then the trials of
searches with other seeds and without their end for want of progress, so that more of the space is known than one search
asks for. With them are the facts of the device, the figures measured of it, and the space, so that the whole tuner can
be run on any machine: a trial is answered from the record, and the clock goes on by what it took
(``tests/benchmarks/test_tuning_replay.py``).

A trial is one line: the plan's choices by name, who asked for it, what became of it and why, seconds and spread, every
sample, and the seconds that it took in all.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from akx.device.choose import device_of
from akx.matrix import Matrix
from akx.plan import Plan
from akx.tuner import Settings, TuneResult, tune
from akx.tuner.machine import measured_figures
from akx.tuner.result import Progress
from akx.tuner.space import build_space
from benchmarks import record
from benchmarks.gallery import GALLERY, small

__all__ = ["RECORD", "choices", "load", "main", "plan_of", "recorded", "save", "search_hash", "space_of"]

RECORD = Path(__file__).resolve().parents[1] / "tests" / "data" / "tuning_h100.json"
_SCHEMA = 1
_ENDLESS = 10**6
#: Modules of kernels that say which plans there are and what they should cost; others only run them.
_SCHEDULES = ("clusters", "diagonals", "ghost", "parts", "resident", "stream", "sweep", "window")
_LISTS = ("finalists", "trials", "others")

Json = dict[str, Any]


def choices(plan: Plan) -> Json:
    """A plan by the names of its parameters; backend and k are those of the record."""
    plain = {"schedule": plan.schedule, "variant": plan.variant, "partitioner": plan.partitioner}
    sizes = {"block_bytes": plan.block_bytes} if plan.block_bytes else {}
    return {**plain, "k_per_pass": plan.k_per_pass, "threads": plan.threads, **sizes, **plan.options}


def plan_of(document: Json, found: Json) -> Plan:
    """The plan of some :func:`choices`."""
    rest = {name: value for name, value in found.items() if name != "schedule"}
    return Plan.from_parameters(document["backend"], found["schedule"], document["k"], rest)


class _Trials:
    """What the tuner reports of its trials, and how long each took."""

    def __init__(self) -> None:
        self.found: list[Json] = []
        self._elapsed = 0.0

    def __call__(self, progress: Progress) -> None:
        spent, self._elapsed = progress.elapsed - self._elapsed, progress.elapsed
        trial = progress.trial
        if trial is None:
            return
        entry = trial.to_json()
        for name in ("plan", "number"):
            del entry[name]
        entry |= {"elapsed": round(spent, 6), "samples": [float(f"{sample:.5g}") for sample in trial.samples]}
        self.found.append({"plan": choices(trial.plan), **entry})


def recorded(
    name: str,
    matrix: Matrix,
    k: int,
    *,
    backend: str = "cuda",
    seconds: float | None = None,
    others: float = 0.0,
    provenance: Callable[[], Json] | None = None,
) -> Json:
    """Tune and record.

    Parameters
    ----------
    name : str
        Of the matrix, in the gallery.
    matrix : Matrix
    k : int
        Powers.
    backend : str
        ``"cuda"``, or ``"cpu"`` to try the recording.
    seconds : float, optional
        Budget of each search; the tuner's default by default.
    others : float
        Seconds for searches with other seeds in all; none by default.
    provenance : callable, optional
        Machine, versions, commit and date.
    """
    settings = Settings() if seconds is None else Settings(seconds=seconds)
    device, own = device_of(backend), _Trials()
    origin = _provenance(backend) if provenance is None else provenance()
    result = tune(matrix, k, backend=backend, db=False, settings=settings, callback=own, name=name)
    known, further, seed, left = {json.dumps(one["plan"]) for one in own.found}, [], 0, others
    while left > 1.0:
        seed += 1
        more = _Trials()
        wide = Settings(trials=_ENDLESS, patience=_ENDLESS, seconds=min(settings.seconds, left), seed=seed)
        left -= tune(matrix, k, backend=backend, db=False, settings=wide, callback=more, name=name).tuning_seconds
        for one in more.found:
            if json.dumps(one["plan"]) not in known:
                known.add(json.dumps(one["plan"]))
                further.append({**one, "seed": seed})
    return {
        "schema": _SCHEMA,
        **origin,
        "search": search_hash(),
        "matrix": name,
        "rows": matrix.n,
        "nnz": matrix.nnz,
        "dtype": matrix.dtype.name,
        "fingerprint": matrix.fingerprint,
        "k": k,
        "backend": backend,
        "threads": result.threads,
        "device": asdict(device),
        "figures": asdict(measured_figures(device, result.threads)),
        "space": space_of(matrix, k, backend, device, result.threads),
        "settings": {"trials": settings.trials, "seconds": settings.seconds, "seed": settings.seed},
        "result": _outcome(result),
        "finalists": [
            {"plan": choices(one.plan), "seconds": one.seconds, "spread": one.spread, "rounds": one.rounds}
            for one in result.finalists
        ],
        "trials": own.found,
        "others": further,
    }


def search_hash() -> str:
    """SHA-256 of what decides which plans a search asks for: the tuner, and the spaces and models of the schedules."""
    import akx

    root, digest = Path(akx.__file__).parent, hashlib.sha256()
    schedules = [root / "kernels" / "cuda" / f"{name}.py" for name in _SCHEDULES]
    for path in sorted([*(root / "tuner").glob("*.py"), *schedules]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def space_of(matrix: Matrix, k: int, backend: str, device: Any, threads: int) -> Json:
    """Every parameter of every schedule: its choices and its default. What is added later is not of the record."""
    space = build_space(matrix, k, device, backend=backend, threads=threads, start_vectors=1)
    return {
        name: {one.name: {"choices": list(one.choices), "default": one.default} for one in parameters}
        for name, parameters in space.parameters.items()
    }


def _outcome(result: TuneResult) -> Json:
    assert result.baseline_plan is not None
    return {
        "plan": choices(result.plan),
        "seconds": result.seconds,
        "spread": result.spread,
        "baseline": choices(result.baseline_plan),
        "baseline_seconds": result.baseline_seconds,
        "tuning_seconds": result.tuning_seconds,
        "stopped": result.stopped,
        "device_class": result.device,
        "notes": list(result.notes),
    }


def _provenance(backend: str) -> Json:
    if backend == "cuda":
        from benchmarks.gpu import provenance

        return provenance()
    return record.provenance(1)


def save(path: Path, document: Json) -> None:
    """Write a record, one trial on a line."""
    lines = []
    for name, value in document.items():
        if name in _LISTS:
            rows = ",\n".join("  " + json.dumps(row) for row in value)
            lines.append(f' "{name}": [\n{rows}\n ]' if value else f' "{name}": []')
        else:
            lines.append(f' "{name}": {json.dumps(value)}')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def load(path: Path = RECORD) -> Json:
    """Read a record. Raises ValueError where it is of another form."""
    document: Json = json.loads(path.read_text())
    if document.get("schema") != _SCHEMA:
        raise ValueError(f"{path}: not a record of form {_SCHEMA}; record it again")
    return document


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, record, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record_tuning", description="Record a tuning run.")
    parser.add_argument("--matrix", default="brick", choices=sorted(GALLERY))
    parser.add_argument("--k", type=int, default=16)
    parser.add_argument("--backend", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--seconds", type=float, help="budget of each search instead of the tuner's default")
    parser.add_argument("--others", type=float, default=0.0, help="seconds for searches with other seeds in all")
    parser.add_argument("-o", "--output", type=Path, default=RECORD)
    parser.add_argument("--small", action="store_true", help="the reduced matrix, to try the harness; needs -o")
    options = parser.parse_args(arguments)
    if (options.small or options.backend == "cpu") and options.output == RECORD:
        parser.error("--small and --backend cpu are for trying: give it a file of its own with -o")
    matrix = Matrix.from_any(small(options.matrix) if options.small else GALLERY[options.matrix]())
    document = recorded(
        options.matrix,
        matrix,
        options.k,
        backend=options.backend,
        seconds=options.seconds,
        others=options.others,
    )
    save(options.output, document)
    plans = len(document["trials"]) + len(document["others"])
    found = document["result"]
    print(
        f"{options.output}: {plans} plans; {found['seconds'] * 1e6:.1f} us with {found['plan']}, "
        f"{found['baseline_seconds'] * 1e6:.1f} us with the baseline; {found['stopped']} "
        f"after {found['tuning_seconds']:.1f} s",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
