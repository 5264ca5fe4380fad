"""A recording: every trial of one or more tuning runs of one problem, as lines of JSON, to be looked at and replayed.

The form, one object a line::

    {"akx": "recording", "schema": 1, "kind": "search", "matrix": {...}, "key": {...}, "device": {...}, ...}   a run
    {"number": 0, "origin": "baseline", "state": "complete", "seconds": ..., "samples": [...], "plan": {...}, ...}
    ...                                                                                                  its trials
    {"result": {...}}                                                                    what became of it, at its end

A run that was killed has lost the line that was being written and its result, and no more. Further runs of the same
problem (the same key of the plan database) are appended. A trial that is there again with the same number was found
out later: the last line holds. docs/tuner.md has the fields.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from akx.core.errors import AkxError, FileFormatError, FileMissingError, PlanError, brief
from akx.core.plan import Plan
from akx.plandb.key import PlanKey
from akx.tuner.candidates.warm_start import WarmStart
from akx.tuner.history.result import EXHAUSTED
from akx.tuner.history.trial import COMPLETE, Trial
from akx.tuner.space import is_baseline

__all__ = ["AGAIN", "KIND", "RECORDING_SCHEMA", "RecordedTrial", "Recording", "Run", "read_recording"]

#: Version of the form of a recording.
RECORDING_SCHEMA = 1

KIND = "recording"
_BEGINS = b'{"akx": "recording"'
AGAIN = "record it again: akx tune MATRIX --retune --record FILE"


@dataclass(frozen=True)
class RecordedTrial:
    """One trial, with what was known beside it.

    Attributes
    ----------
    trial : Trial
        As the search had it; samples to six digits.
    nbytes : int
        Bytes of the program; 0 where none was prepared.
    model_seconds : float or None
        What the traffic model says of the plan, in seconds of one call; None where it says nothing.
    """

    trial: Trial
    nbytes: int = 0
    model_seconds: float | None = None


@dataclass(frozen=True)
class Run:
    """One tuning run.

    Attributes
    ----------
    header : mapping
        Its first line; older recordings have no ``seeds``.
    trials : tuple of RecordedTrial
        In order.
    result : mapping or None
        ``plan``, ``seconds``, ``baseline_plan``, ``stopped``, ...; None where the run did not come to its end.
    """

    header: Mapping[str, Any]
    trials: tuple[RecordedTrial, ...]
    result: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Recording:
    """What :func:`read_recording` found.

    Attributes
    ----------
    path : str
        Of the file.
    key : PlanKey
        Of the problem, the same for all runs.
    runs : tuple of Run
        At least one.
    lost : int
        Lines that were cut off where a run was killed.
    """

    path: str
    key: PlanKey
    runs: tuple[Run, ...]
    lost: int = 0

    @property
    def header(self) -> Mapping[str, Any]:
        """That of the first run."""
        return self.runs[0].header

    @cached_property
    def warm_start(self) -> WarmStart:
        """Plans of the database with which the first search of the file began; there are none in older recordings.

        Raises FileFormatError where they are no plans.
        """
        given = next((run.header.get("seeds") for run in self.runs if run.header["kind"] == "search"), None)
        try:
            return WarmStart.from_json(given or {})
        except (PlanError, AttributeError, TypeError) as error:
            raise _damaged(self.path, 1, f"seeds: {error}") from error

    @property
    def matrix_name(self) -> str:
        """Name of the matrix, may be empty."""
        return str(self.header["matrix"].get("name", ""))

    @property
    def exhaustive(self) -> bool:
        """Whether a run of the whole space came to its end, so that what is not here is infeasible."""
        ends = (run.result for run in self.runs if run.header["kind"] == "exhaustive")
        return any(end is not None and end.get("stopped") == EXHAUSTED for end in ends)

    @cached_property
    def trials(self) -> Mapping[Plan, RecordedTrial]:
        """Every plan once: of one that was tried in several runs the first complete trial, else the first."""
        found: dict[Plan, RecordedTrial] = {}
        for one in (one for run in self.runs for one in run.trials):
            held = found.setdefault(one.trial.plan, one)
            if held.trial.state != COMPLETE and one.trial.state == COMPLETE:
                found[one.trial.plan] = one
        return found

    @property
    def best(self) -> Trial | None:
        """The fastest complete trial."""
        return self._fastest(lambda plan: True)

    @property
    def baseline(self) -> Trial | None:
        """The fastest complete trial of a baseline."""
        return self._fastest(is_baseline)

    def _fastest(self, among: Callable[[Plan], bool]) -> Trial | None:
        known = (one.trial for plan, one in self.trials.items() if one.trial.state == COMPLETE and among(plan))
        return min(known, key=lambda trial: trial.seconds or 0.0, default=None)


def read_recording(path: str | os.PathLike[str]) -> Recording:
    """Read a file that ``akx tune --record`` or ``akx.tune(record=...)`` wrote.

    A last line that was cut off is left out, and so is one before another run was appended.

    Raises
    ------
    FileMissingError
        No such file.
    FileFormatError
        It is no recording, of another schema, damaged elsewhere than at the end of a run, or of several problems.
    """
    name = os.fspath(path)
    try:
        lines = Path(path).read_bytes().splitlines()
    except FileNotFoundError as error:
        raise FileMissingError(f"{name} does not exist", hint="check the path") from error
    except OSError as error:
        raise FileFormatError(f"{name} cannot be read", found=error.strerror or str(error)) from error
    return _parse(name, lines)


def _parse(name: str, lines: list[bytes]) -> Recording:
    runs: list[tuple[dict[str, Any], dict[int, RecordedTrial], list[Mapping[str, Any]]]] = []
    cut: int | None = None  # number of a line that is no JSON; only a new run or the end of the file may follow
    lost = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = _object(line)
        begins = row is not None and row.get("akx") == KIND
        if not (runs or begins):
            raise _no_recording(name, line, is_cut=row is None and line.startswith(_BEGINS))
        if row is not None and begins:
            _check_header(name, number, row)
            runs.append((row, {}, []))
            lost, cut = lost + (cut is not None), None
        elif cut is not None:
            raise _damaged(name, cut, "a line that is cut off, with others behind it")
        elif row is None:
            cut = number
        elif isinstance(row.get("result"), dict):
            runs[-1][2].append(row["result"])
        else:
            try:
                one = _trial(row)
            except AkxError as error:
                raise _damaged(name, number, str(error)) from error
            runs[-1][1][one.trial.number] = one
    if not runs:
        raise FileFormatError(f"{name} is empty", expected="a recording of a tuning run", hint=AGAIN)
    key, *others = (PlanKey.from_json(header["key"]) for header, *_ in runs)
    for other in others:
        if other != key:
            fields = ", ".join(key.mismatch(other))
            raise FileFormatError(f"{name} has runs of several problems", found=f"other {fields}", hint=AGAIN)
    found = (Run(header, tuple(trials.values()), ends[-1] if ends else None) for header, trials, ends in runs)
    return Recording(name, key, tuple(found), lost + (cut is not None))


def _no_recording(name: str, line: bytes, *, is_cut: bool) -> FileFormatError:
    if is_cut:
        return FileFormatError(f"{name} is cut off in its first line", hint="nothing is in it: remove it")
    return FileFormatError(
        f"{name} is no recording of a tuning run",
        expected=f'a first line {{"akx": "{KIND}", "schema": {RECORDING_SCHEMA}, ...}}',
        found=brief(line[:40].decode(errors="replace")),
        hint="akx tune MATRIX --record FILE writes one",
    )


def _object(line: bytes) -> dict[str, Any] | None:
    """The JSON object on a line; None where it is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _trial(row: Mapping[str, Any]) -> RecordedTrial:
    for name in ("nbytes", "model_seconds"):
        value = row.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise PlanError(f"trial field '{name}' is no number", found=brief(value))
    return RecordedTrial(Trial.from_json(row), int(row.get("nbytes") or 0), row.get("model_seconds"))


_PARTS: Mapping[str, type] = {
    **dict.fromkeys(("matrix", "key", "device", "settings", "space", "model", "predicted", "starts"), dict),
    "kind": str,
    "backend": str,
    "threads": int,
}


def _check_header(name: str, number: int, header: Mapping[str, Any]) -> None:
    if header.get("schema") != RECORDING_SCHEMA:
        raise FileFormatError(
            f"{name} is a recording of another schema",
            expected=str(RECORDING_SCHEMA),
            found=brief(header.get("schema")),
            hint="read it with the akx that wrote it, or " + AGAIN,
        )
    wrong = [part for part, kind in _PARTS.items() if not isinstance(header.get(part), kind)]
    if wrong:
        raise _damaged(name, number, f"a run without {', '.join(wrong)}")
    try:
        PlanKey.from_json(header["key"])
    except PlanError as error:
        raise _damaged(name, number, str(error)) from error


def _damaged(name: str, number: int, found: str) -> FileFormatError:
    return FileFormatError(f"{name} is damaged in line {number}", found=found, hint=AGAIN)
