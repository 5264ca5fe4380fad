"""Record a tuning run on real hardware, to be replayed where that hardware is not: ``tests/data/tuning_h100.jsonl``.

    python -m benchmarks.record_tuning                              the brick, k = 16, on the GPU
    python -m benchmarks.record_tuning --others 120 -o FILE         two minutes of further searches

The record is a recording as ``akx tune --record`` writes it (:mod:`akx.tuner.trace.recording`): one run of
:func:`akx.tuner.tune` with its default settings, and then searches with other seeds and without their end for want of
progress, so that more of the space is known than one search asks for. To the first line are added the machine, the
versions, the commit, the date, and a hash of what decides which plans a search asks for.

``tests/benchmarks/test_tuning_replay.py`` runs the whole tuner on it, on any machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner import Recording, Settings, read_recording, tune
from benchmarks import record, samplers
from benchmarks.gallery import CONSTANT, GALLERY, small

__all__ = ["RECORD", "load", "main", "recorded", "search_hash"]

RECORD = Path(__file__).resolve().parents[1] / "tests" / "data" / "tuning_h100.jsonl"
_ENDLESS = 10**6
#: Share of the seconds for others with which no more is begun: what a search so short asks for depends on how long its
#: baseline took.
_LEFT_OVER = 0.1
#: Packages of the backend that say which plans there are and what they should cost; others only run them.
_ROOMS = ("cost", "schedules", "value_compression", "variants")

Json = dict[str, Any]


def recorded(
    path: Path,
    name: str,
    matrix: Matrix,
    k: int,
    *,
    backend: str = "cuda",
    seconds: float | None = None,
    others: float = 0.0,
    provenance: Callable[[], Json] | None = None,
) -> Recording:
    """Tune and record.

    Parameters
    ----------
    path : Path
        The file; one that is there is replaced once all is recorded.
    name : str
        Of the matrix, in the gallery or of a real one.
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
    origin = _provenance(backend) if provenance is None else provenance()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    tune(matrix, k, backend=backend, db=False, settings=settings, name=name, record=partial)
    seed, left = 0, others
    while left > _LEFT_OVER * others:
        seed += 1
        wide = Settings(trials=_ENDLESS, patience=_ENDLESS, seconds=min(settings.seconds, left), seed=seed)
        found = tune(matrix, k, backend=backend, db=False, settings=wide, name=name, record=partial)
        left -= found.tuning_seconds
    header, *lines = partial.read_text().splitlines(keepends=True)
    partial.write_text(json.dumps({**json.loads(header), **origin, "search": search_hash()}) + "\n" + "".join(lines))
    partial.replace(path)
    return read_recording(path)


def search_hash() -> str:
    """SHA-256 of what decides which plans a search asks for: the tuner, and the spaces and models of the schedules."""
    import akx

    root, digest = Path(akx.__file__).parent, hashlib.sha256()
    schedules = [path for room in _ROOMS for path in (root / "backends" / "cuda" / room).rglob("*.py")]
    for path in sorted([*(root / "tuner").glob("*.py"), *schedules]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _provenance(backend: str) -> Json:
    if backend == "cuda":
        from benchmarks.gpu import provenance

        return provenance()
    return record.provenance(1)


def load(path: Path = RECORD) -> Recording:
    """The record of this repository, or another. Raises :class:`akx.AkxError` where it is of another form."""
    return read_recording(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, record, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record_tuning", description="Record a tuning run.")
    parser.add_argument("--matrix", default="brick", help="of the gallery, or a real one")
    parser.add_argument("--k", type=int, default=16)
    parser.add_argument("--backend", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--seconds", type=float, help="budget of each search instead of the tuner's default")
    parser.add_argument("--others", type=float, default=0.0, help="seconds for searches with other seeds in all")
    parser.add_argument("-o", "--output", type=Path, default=RECORD)
    parser.add_argument("--small", action="store_true", help="the reduced matrix, to try the harness; needs -o")
    options = parser.parse_args(arguments)
    if (options.small or options.backend == "cpu") and options.output == RECORD:
        parser.error("--small and --backend cpu are for trying: give it a file of its own with -o")
    if options.small and options.matrix not in GALLERY | CONSTANT:
        parser.error(f"--small is for the gallery: {', '.join(sorted(GALLERY | CONSTANT))}")
    matrix = Matrix.from_any(small(options.matrix)) if options.small else samplers.load(options.matrix)
    if matrix is None:
        parser.error(f"no matrix {options.matrix} in the gallery or in ../shared/matrices")
    found = recorded(
        options.output,
        options.matrix,
        matrix,
        options.k,
        backend=options.backend,
        seconds=options.seconds,
        others=options.others,
    )
    result = found.runs[0].result
    assert result is not None
    print(
        f"{options.output}: {len(found.trials)} plans; {result['seconds'] * 1e6:.1f} us with "
        f"{Plan.from_json(result['plan']).label()}, {result['baseline_seconds'] * 1e6:.1f} us with the baseline; "
        f"{result['stopped']} after {result['tuning_seconds']:.1f} s",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
