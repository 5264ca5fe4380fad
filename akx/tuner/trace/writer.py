"""Writing a recording (:mod:`akx.tuner.trace.recording`) while a tuning run goes on: one line a trial, flushed at once.

A file that is there must be a recording of the same problem: the run is appended to it. Anything else stays as it is,
and is an error before any time is spent on tuning. A disk that fills up later ends the recording and not the tuning.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from akx.backends.selection import BACKENDS, backend_of
from akx.core.errors import ArgumentError, FileFormatError
from akx.core.fork_safety import lock_file, unlock_file
from akx.plandb import PlanKey
from akx.plandb.record import now
from akx.tuner.candidates.warm_start import NO_WARM_START, WarmStart
from akx.tuner.history.result import TuneResult
from akx.tuner.history.trial import Trial
from akx.tuner.model.predict import predicted
from akx.tuner.model.seconds import Model
from akx.tuner.request import Settings
from akx.tuner.space import Space
from akx.tuner.trace.recording import KIND, RECORDING_SCHEMA, read_recording

__all__ = ["Recorder", "recording_to"]

#: Digits of a sample: more than any clock can tell apart.
_DIGITS = 6
#: Of the result, as they are.
_FIGURES = (
    *("seconds", "spread", "baseline_seconds", "baseline_spread", "tuning_seconds", "prepare_seconds"),
    *("stopped", "interrupted", "disturbed", "notes"),
)


class Recorder:
    """A run that is being recorded, behind its first line, the `header`; what the model says of plans is so as well.

    Raises ArgumentError where the file is something else, a recording of another problem, or one that is being written,
    and FileFormatError where it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], header: Mapping[str, Any], model: Model) -> None:
        self.path, self._model = os.fspath(path), model
        self._problem, self._rows = "", 0  # why no more is written; trials that were
        existing, broken = Path(path), False
        try:
            if existing.exists() and existing.stat().st_size:
                _check_same(self.path, PlanKey.from_json(header["key"]))
                broken = not existing.read_bytes().endswith(b"\n")
            self._file: IO[str] = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed at the end of the run
            self._lock()
            self._file.write("\n" if broken else "")
            self._write(header)
        except OSError as error:
            raise FileFormatError(
                f"{self.path} cannot be written",
                found=error.strerror or str(error),
                hint="check the folder and its permissions, or name another file with --record (record=)",
            ) from error

    def _lock(self) -> None:
        """Keep other runs from writing to the file until it is closed, where the system can."""
        try:
            lock_file(self._file.fileno())
        except BlockingIOError as error:
            self._file.close()
            what, hint = f"{self.path} is being written by another tuning run", "name another file, or wait for its end"
            raise ArgumentError(what, hint=hint) from error
        except OSError:  # a file system without locks
            return

    def trial(self, trial: Trial, nbytes: int) -> None:
        """Write one trial, whose program took so many bytes."""
        samples = [float(f"{sample:.{_DIGITS}g}") for sample in trial.samples]
        told = {"samples": samples, "nbytes": nbytes, "model_seconds": _finite(self._model.seconds(trial.plan))}
        self._line({**trial.to_json(), **told})
        self._rows += not self._problem

    def end(self, result: TuneResult) -> TuneResult:
        """Write what became of the run. Returns the same, with a note where not all of it could be written."""
        self._line({"result": _outcome(result)})
        self.close()
        if not self._problem:
            return result
        note = f"the recording {self.path} ends after {self._rows} trials: {self._problem}"
        return replace(result, notes=(*result.notes, note))

    def close(self) -> None:
        """Close the file; what is written stays, also of a run that has no end."""
        try:
            if not self._file.closed:
                unlock_file(self._file.fileno())
            self._file.close()
        except OSError as error:
            self._problem = self._problem or error.strerror or str(error)

    def _line(self, row: Mapping[str, Any]) -> None:
        if self._problem or self._file.closed:
            return
        try:
            self._write(row)
        except OSError as error:
            self._problem = error.strerror or str(error)
            self.close()

    def _write(self, row: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(row, allow_nan=False) + "\n")
        self._file.flush()


@contextmanager
def recording_to(
    path: str | os.PathLike[str] | None,
    kind: str,
    name: str,
    key: PlanKey,
    model: Model,
    settings: Settings,
    warm_start: WarmStart = NO_WARM_START,
) -> Iterator[Recorder | None]:
    """The recorder of one run, closed whatever happens; None where there is no path.

    `kind` is ``"search"``, ``"exhaustive"``, or ``"part"`` where all of a part of the space is measured; `name` that of
    the matrix.
    """
    if path is None:
        yield None
        return
    recorder = Recorder(path, _header(kind, name, key, model, settings, warm_start), model)
    try:
        yield recorder
    finally:
        recorder.close()


def _header(
    kind: str, name: str, key: PlanKey, model: Model, settings: Settings, warm_start: WarmStart
) -> dict[str, Any]:
    """The first line of a run: the problem, the device, the space, and what the model says before any measurement."""
    space, matrix = model.space, model.matrix
    return {
        "akx": KIND,
        "schema": RECORDING_SCHEMA,
        "kind": kind,
        "created": now(),
        "matrix": {"name": name, "rows": matrix.n, "nnz": matrix.nnz, "dtype": key.dtype},
        "key": key.to_json(),
        "backend": space.backend,
        "threads": space.threads,
        "device": asdict(space.device),
        "packages": _packages(),
        "settings": {**asdict(settings), "seconds": _finite(settings.seconds)},
        "model": {
            "working_set": model.working_set,
            "least_seconds": model.least_seconds,
            "figures": asdict(model.figures),
            "ceiling": None if model.ceiling is None else asdict(model.ceiling),
        },
        "predicted": space.inside(predicted(model)).to_json(),
        "starts": _starts(model),
        "seeds": warm_start.to_json(),
        "space": {
            schedule: [
                {name: getattr(one, name) for name in ("name", "choices", "default", "description")} for one in held
            ]
            for schedule, held in space.parameters.items()
        },
    }


def _starts(model: Model) -> dict[str, list[dict[str, Any]]]:
    """Where the schedules that know it want a search to begin."""
    space: Space = model.space
    starts = {name: one.starts(model.matrix, space.device, space.k) for name, one in space.schedules.items()}
    return {name: [space.inside(plan).to_json() for plan in plans] for name, plans in starts.items() if plans}


def _packages() -> dict[str, str]:
    found = {}
    of_backends = [package for backend in BACKENDS.own for package in backend_of(backend).packages]
    for package in ("akx", "numpy", "numba", "optuna", "pymetis", *of_backends):
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _outcome(result: TuneResult) -> dict[str, Any]:
    plain = result.baseline_plan
    return {
        **{name: getattr(result, name) for name in _FIGURES},
        "plan": result.plan.to_json(),
        "baseline_plan": None if plain is None else plain.to_json(),
        "finalists": [finalist.to_json() for finalist in result.finalists],
    }


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None


def _check_same(name: str, key: PlanKey) -> None:
    """Refuse to append to what is no recording, or one of another problem."""
    try:
        there = read_recording(name)
    except FileFormatError as error:
        what, hint = "trials are recorded in a file of their own", "name another file, or move this one"
        raise ArgumentError(what, found=str(error), hint=hint) from error
    if there.key != key:
        raise ArgumentError(
            f"{name} is a recording of another problem",
            expected="the same matrix, k, basis, dtype, device, threads and versions",
            found=f"other {', '.join(there.key.mismatch(key))}",
            hint="name another file",
        )
