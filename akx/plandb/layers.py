"""Read-only layers below the user's database: plans measured on real hardware, shipped as reviewable text.

A layer is a directory of bundles (:mod:`akx.plandb.transfer`), one file per matrix class or device. A malformed file,
or a malformed record in one, is reported once and skipped; it never stops a lookup.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Protocol

from akx.errors import AkxError
from akx.plandb.files import PlanDatabaseWarning
from akx.plandb.records import PlanRecord
from akx.plandb.transfer import read_bundle

__all__ = ["PlanLayer", "ShippedPlans", "shipped_plans"]

_PACKAGE = Path(__file__).resolve().parents[1]


class PlanLayer(Protocol):
    """A read-only source of plans."""

    @property
    def name(self) -> str:
        """What the layer is called in lists."""
        ...

    def records(self) -> tuple[PlanRecord, ...]:
        """Every plan there is, one per key, in the order of their ids."""
        ...

    def get(self, identifier: str) -> PlanRecord | None:
        """The plan with this full id."""
        ...

    def with_fingerprint(self, fingerprint: str) -> tuple[PlanRecord, ...]:
        """The plans for one pattern."""
        ...


class ShippedPlans:
    """The plans in the ``*.json`` files of one directory, read when first asked for.

    Parameters
    ----------
    directory : Path, optional
        Where the files are: by default inside the package, or ``tuning_db`` beside it in a checkout. A directory that
        does not exist is an empty layer.
    name : str
        What the layer is called in lists.
    """

    def __init__(self, directory: Path | None = None, name: str = "shipped") -> None:
        self.directory = directory if directory is not None else _default_directory()
        self.name = name
        self._records: dict[str, PlanRecord] | None = None
        self._by_fingerprint: dict[str, list[PlanRecord]] = {}
        self._problems: list[str] = []

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the files, one line each; empty where nothing is."""
        self._load()
        return tuple(self._problems)

    def records(self) -> tuple[PlanRecord, ...]:
        """Every plan there is, one per key, in the order of their ids."""
        return tuple(self._load().values())

    def get(self, identifier: str) -> PlanRecord | None:
        """The plan with this full id."""
        return self._load().get(identifier)

    def with_fingerprint(self, fingerprint: str) -> tuple[PlanRecord, ...]:
        """The plans for one pattern."""
        self._load()
        return tuple(self._by_fingerprint.get(fingerprint, ()))

    def _load(self) -> dict[str, PlanRecord]:
        if self._records is not None:
            return self._records
        found: dict[str, PlanRecord] = {}
        try:
            paths = sorted(path for path in self.directory.glob("*.json") if path.is_file())
        except OSError as error:
            paths = []
            self._problems.append(f"{self.directory}: {error}")
        for path in paths:
            try:
                bundle = read_bundle(path)
            except AkxError as error:
                self._problems.append(str(error))
                continue
            self._problems += [f"{path.name}: {problem}" for problem in bundle.problems]
            for record in bundle.records:
                if record.id not in found or record.better_than(found[record.id]):
                    found[record.id] = record
        self._records = dict(sorted(found.items()))
        for record in self._records.values():
            self._by_fingerprint.setdefault(record.key.fingerprint, []).append(record)
        for problem in self._problems:
            warnings.warn(f"shipped plans skipped: {problem}", PlanDatabaseWarning, stacklevel=4)
        return self._records


_SHIPPED: ShippedPlans | None = None


def shipped_plans() -> ShippedPlans:
    """The one layer of plans that come with the package, read once per process."""
    global _SHIPPED
    if _SHIPPED is None:
        _SHIPPED = ShippedPlans()
    return _SHIPPED


def _default_directory() -> Path:
    inside, beside = _PACKAGE / "tuning_db", _PACKAGE.parent / "tuning_db"
    is_checkout = (_PACKAGE.parent / "pyproject.toml").is_file()
    return beside if is_checkout and beside.is_dir() and not inside.is_dir() else inside
