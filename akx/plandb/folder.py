"""The plans in the bundles of a folder (:mod:`akx.plandb.bundle`), one file per matrix class or device.

A malformed file, or a malformed record in one, is reported once and skipped; it never stops a lookup. Files are looked
at again once a second at most, by their sizes and times, and those that have changed are read anew.
"""

from __future__ import annotations

import os
import stat
import time
import warnings
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import count
from pathlib import Path

from akx.core.errors import AkxError
from akx.core.fork_safety import ForkSafeLock
from akx.core.process import shipped_folder
from akx.plandb.bundle import Bundle, parse_bundle, unreadable
from akx.plandb.file import PlanDatabaseWarning
from akx.plandb.record import PlanRecord
from akx.plandb.timing import SolverTiming

__all__ = ["SHIPPED", "ShippedPlans"]

#: The name of the layer of the plans that come with akx.
SHIPPED = "shipped"
#: Seconds for which the files of a layer are taken to be unchanged: at least, at most, and over those of a look, so
#: that one to a slow file system is rare.
_GLANCE, _LONG_GLANCE, _SHARE = 1.0, 60.0, 20.0
#: Nanoseconds within which two changes may have the same time: clocks of file systems are coarse.
_COARSE = 2_000_000_000
#: Inode, size and time of a file.
_Stamp = tuple[int, ...]


#: The most records of one file that are said to be invalid one by one.
_MOST_PROBLEMS = 8


@dataclass(frozen=True)
class _File:
    """What one file held when it was read: its text, or why it cannot be read."""

    stamp: _Stamp
    path: Path
    text: bytes = b""
    fault: str = ""

    @cached_property
    def bundle(self) -> Bundle:
        """What the text says; with problems alone where it is no bundle."""
        if self.fault:
            return Bundle((), (self.fault,))
        try:
            found = parse_bundle(self.text, str(self.path))
        except AkxError as error:
            return Bundle((), (str(error),))
        problems = [f"{self.path.name}: {problem}" for problem in found.problems[:_MOST_PROBLEMS]]
        if (more := len(found.problems) - _MOST_PROBLEMS) > 0:
            problems.append(f"{self.path.name}: {more} more records are not valid")
        return replace(found, problems=tuple(problems))


@dataclass(frozen=True)
class _Contents:
    """What a directory held at one look; no two looks of this process that found something new have one `version`."""

    version: int = 0
    fault: str | None = None
    files: dict[str, _File] = field(default_factory=dict)
    _under: dict[str, tuple[PlanRecord, ...]] = field(default_factory=dict)

    @cached_property
    def records(self) -> dict[str, PlanRecord]:
        """The best plan of each key, by its id and in the order of these."""
        return _best(record for file in self.files.values() for record in file.bundle.records)

    def under(self, fingerprint: str) -> tuple[PlanRecord, ...] | None:
        """Those for one pattern, for which no others are parsed; None where something is wrong with them."""
        if fingerprint not in self._under:
            told = [file for file in self.files.values() if fingerprint.encode() in file.text]
            try:
                bundles = [parse_bundle(file.text, str(file.path), fingerprint=fingerprint) for file in told]
            except AkxError:
                return None
            if any(bundle.problems for bundle in bundles):
                return None
            records = (record for bundle in bundles for record in bundle.records)
            self._under[fingerprint] = tuple(_best(records).values())
        return self._under[fingerprint]

    @cached_property
    def timings(self) -> tuple[SolverTiming, ...]:
        """The newest first."""
        found = [timing for file in self.files.values() for timing in file.bundle.timings]
        return tuple(sorted(found, key=lambda timing: datetime.fromisoformat(timing.created), reverse=True))

    @cached_property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the directory and its files."""
        found = tuple(line for file in self.files.values() for line in file.bundle.problems)
        return found if self.fault is None else (self.fault, *found)


class ShippedPlans:
    """The plans in the ``*.json`` files of one directory, read when first asked for and again when they have changed.

    Those that come with akx, which its tests have gone through, are parsed when they are asked for: a lookup parses
    those of its pattern.

    Parameters
    ----------
    directory : Path, optional
        Where the files are: by default inside the package, or ``tuning_db`` beside it in a checkout. A directory that
        does not exist is an empty layer.
    name : str
        What the layer is called in lists.

    Attributes
    ----------
    directory : Path
    name : str
    """

    def __init__(self, directory: Path | None = None, name: str = SHIPPED) -> None:
        self.directory = directory if directory is not None else shipped_folder()
        self._is_ours = directory is None
        self.name = name
        self._contents = _Contents()
        self._next: float | None = None
        self._reported: set[str] = set()
        self._lock = ForkSafeLock()

    def __repr__(self) -> str:
        return f"ShippedPlans({str(self.directory)!r}, {self.name!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (ShippedPlans, (None if self._is_ours else self.directory, self.name))

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the files, one line each; empty where nothing is."""
        return self._load().problems

    def stamp(self) -> Hashable:
        """What differs after a file has changed: within a second of it, at the price of a look at a clock otherwise."""
        return str(self.directory), self._load().version

    def records(self) -> tuple[PlanRecord, ...]:
        """Every plan there is, one per key, in the order of their ids."""
        return tuple(self._load().records.values())

    def get(self, identifier: str) -> PlanRecord | None:
        """The plan with this full id."""
        return self._load().records.get(identifier)

    def with_fingerprint(self, fingerprint: str) -> tuple[PlanRecord, ...]:
        """The plans for one pattern."""
        contents = self._load()
        is_readable = contents.fault is None and not any(file.fault for file in contents.files.values())
        found = contents.under(fingerprint) if self._is_ours and is_readable else None
        if found is not None:
            return found
        self._report(contents.problems)
        return tuple(record for record in contents.records.values() if record.key.fingerprint == fingerprint)

    def timings(self) -> tuple[SolverTiming, ...]:
        """Every timing of solvers there is, the newest of each key first."""
        contents = self._load()
        if self._is_ours and not any(b'"timings"' in file.text for file in contents.files.values()):
            return ()
        return contents.timings

    def place_of(self, identifier: str) -> Path | None:
        """The file that has the plan, or the timing, with this full id."""
        contents = self._load()
        found = contents.records.get(identifier)
        for name, file in contents.files.items():
            if found in file.bundle.records or any(timing.id == identifier for timing in file.bundle.timings):
                return self.directory / name
        return None

    def _load(self) -> _Contents:
        if self._next is not None and time.monotonic() < self._next:
            return self._contents
        with self._lock:
            begin = time.monotonic()
            if self._next is not None and begin < self._next:  # another thread has looked meanwhile
                return self._contents
            before, is_first = self._contents, self._next is None
            stamps, fault = _look(self.directory)
            is_same = fault == before.fault and stamps == {name: file.stamp for name, file in before.files.items()}
            if is_first or not is_same or not all(map(_is_settled, stamps.values())):
                files = {name: self._file(name, stamp) for name, stamp in stamps.items()}
                if is_first or (files, fault) != (before.files, before.fault):
                    self._contents = _Contents(next(_VERSIONS), fault, files)
                    if not self._is_ours:
                        self._report(self._contents.problems)
            end = time.monotonic()
            self._next = end + min(max(_GLANCE, _SHARE * (end - begin)), _LONG_GLANCE)
        return self._contents

    def _file(self, name: str, stamp: _Stamp) -> _File:
        """A file as it is now, read anew where it may have changed."""
        known = self._contents.files.get(name)
        is_known = known is not None and known.stamp == stamp and _is_settled(stamp)
        return known if known is not None and is_known else _read_file(self.directory / name, stamp)

    def _report(self, problems: Iterable[str]) -> None:
        """Warn of each problem once."""
        for line in problems:
            if line not in self._reported:
                self._reported.add(line)
                warnings.warn(f"{self.name} plans skipped: {line}", PlanDatabaseWarning, stacklevel=6)


_VERSIONS = count(1)


def _look(directory: Path) -> tuple[dict[str, _Stamp], str | None]:
    """The stamp of each bundle in a directory by name, and why it cannot be read, if it cannot."""
    stamps: dict[str, _Stamp] = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if not entry.name.endswith(".json") or entry.name.startswith("."):
                    continue
                try:
                    status = os.stat(entry.path)
                except FileNotFoundError:  # gone meanwhile
                    continue
                except OSError:  # what is wrong with it is said when it is read
                    stamps[entry.name] = (0, 0, 0)
                    continue
                if not stat.S_ISDIR(status.st_mode):
                    stamps[entry.name] = status.st_ino, status.st_size, status.st_mtime_ns
    except FileNotFoundError:
        return {}, None
    except OSError as error:
        return {}, f"{directory}: {error.strerror or error}"
    return dict(sorted(stamps.items())), None


def _best(records: Iterable[PlanRecord]) -> dict[str, PlanRecord]:
    """The best of each key, by its id and in the order of these."""
    found: dict[str, PlanRecord] = {}
    for record in records:
        if record.id not in found or record.better_than(found[record.id]):
            found[record.id] = record
    return dict(sorted(found.items()))


def _is_settled(stamp: _Stamp) -> bool:
    """Whether the next change is sure to give another stamp; a time that lies ahead tells as much as one long ago."""
    return abs(time.time_ns() - stamp[2]) > _COARSE


def _read_file(path: Path, stamp: _Stamp) -> _File:
    try:
        return _File(stamp, path, path.read_bytes())
    except OSError as error:
        return _File(stamp, path, fault=str(unreadable(path, error)))
