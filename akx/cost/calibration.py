"""Figures of a class of devices, measured once and kept in a file: ``akx doctor --calibrate``.

A calibration is a JSON file in ``machines`` in the user's data directory (``AKX_MACHINES`` names another), written in
one step; below these are those shipped with akx. The class has the number of cores in it: a process that may run on
fewer is on another machine, as far as this goes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from akx.core.atomic_files import write_in_one_step
from akx.core.errors import AkxError, ArgumentError, DatabaseError, brief
from akx.core.process import shipped_folder, user_folder
from akx.cost.device_model import FORMATS, Figures, FormatCost

__all__ = [
    "CALIBRATION_SCHEMA",
    "Calibration",
    "calibration_folder",
    "check_writable",
    "find_calibration",
]

#: Version of the form of a file.
CALIBRATION_SCHEMA = 1

_KIND, _MACHINES = "machine", "machines"


@dataclass(frozen=True)
class Calibration:
    """What was measured of one class of devices.

    Attributes
    ----------
    device_class : str
        ``HostDevice.device_class`` or ``CudaDevice.device_class``.
    threads : int
        Threads of `all_threads`.
    one_thread, all_threads : Figures
        On one thread of the host, and on all; the same for a GPU.
    kernel_hash : str
        Of the kernels whose formats were timed.
    created : str
        When, in UTC.
    """

    device_class: str
    threads: int
    one_thread: Figures
    all_threads: Figures
    kernel_hash: str
    created: str

    def figures(self, threads: int) -> Figures:
        """For so many threads, at most those calibrated."""
        if threads <= 1:
            return self.one_thread
        one, most = self.one_thread, self.all_threads
        if threads >= self.threads:
            return most
        return replace(
            most,
            slow_bandwidth=min(most.slow_bandwidth, threads * one.slow_bandwidth),
            last_level_bandwidth=min(most.last_level_bandwidth, threads * one.last_level_bandwidth),
            cache_bandwidth=min(most.cache_bandwidth, threads * one.cache_bandwidth),
            flops=min(most.flops, threads * one.flops),
        )

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types; :meth:`from_json` inverts it."""
        return {"akx": _KIND, "schema": CALIBRATION_SCHEMA, **asdict(self)}

    @staticmethod
    def from_json(data: Any) -> Calibration:
        """Make one from :meth:`to_json`'s dict. Raises :class:`ArgumentError` where it is none, or of a newer akx."""
        if not isinstance(data, Mapping) or data.get("akx") != _KIND:
            raise ArgumentError("this is no calibration", expected=f'a JSON object with "akx": "{_KIND}"')
        if data.get("schema") != CALIBRATION_SCHEMA:
            raise ArgumentError(
                "calibration of another schema", expected=str(CALIBRATION_SCHEMA), found=brief(data.get("schema"))
            )
        try:
            threads = int(data["threads"])
            if threads < 1:
                raise ValueError(f"threads are {threads}")
            return Calibration(
                device_class=str(data["device_class"]),
                threads=threads,
                one_thread=_figures(data["one_thread"]),
                all_threads=_figures(data["all_threads"]),
                kernel_hash=str(data["kernel_hash"]),
                created=str(data["created"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ArgumentError(
                "calibration is not valid", found=f"{type(error).__name__}: {error}", hint="akx doctor --calibrate"
            ) from error

    def save(self, folder: Path | None = None) -> Path:
        """Write it in one step to `folder`, the user's by default. Raises :class:`DatabaseError` where that fails."""
        path = (calibration_folder() if folder is None else folder) / _file_name(self.device_class)
        _write(path, json.dumps(self.to_json(), indent=1) + "\n")
        return path


def check_writable(folder: Path | None = None) -> None:
    """Make `folder`, the user's by default. Raises :class:`DatabaseError` where :meth:`Calibration.save` would."""
    path = (calibration_folder() if folder is None else folder) / ".akx"
    _write(path, "")
    path.unlink(missing_ok=True)


def calibration_folder() -> Path:
    """Where calibrations are kept: ``AKX_MACHINES``, else ``machines`` in the user's data directory."""
    given = os.environ.get("AKX_MACHINES", "").strip()
    if given:
        return Path(os.path.expanduser(given))  # a home that is not known stays as it is written
    return user_folder("data") / _MACHINES


def find_calibration(device_class: str) -> tuple[Calibration, Path] | None:
    """The user's calibration of a class of devices, else the one shipped with akx, and its file; None without one.

    A file that cannot be read, or is none, counts as not there. It is read again once it has changed.
    """
    for folder in (calibration_folder(), _shipped_folder()):
        path = folder / _file_name(device_class)
        try:
            stamp = path.stat()
        except OSError:
            continue
        known = _READ.get(path)
        if known is None or known[0] != (stamp.st_mtime_ns, stamp.st_size):
            known = _READ[path] = (stamp.st_mtime_ns, stamp.st_size), _read(path)
        if known[1] is not None and known[1].device_class == device_class:
            return known[1], path
    return None


_READ: dict[Path, tuple[tuple[int, int], Calibration | None]] = {}


def _file_name(device_class: str) -> str:
    kept = "".join(c if c.isalnum() else "-" for c in device_class)
    words = "-".join(word for word in kept.split("-") if word)[:60].lower()
    return f"{words}-{hashlib.sha256(device_class.encode()).hexdigest()[:8]}.json"


def _shipped_folder() -> Path:
    return shipped_folder() / _MACHINES


def _write(path: Path, text: str) -> None:
    """Keep the text of a calibration."""
    try:
        write_in_one_step(path, text.encode(), mode=0o644)
    except OSError as error:
        raise DatabaseError(
            "the calibration cannot be kept",
            found=f"{path}: {error.strerror or error}",
            hint="set AKX_MACHINES to a folder you can write to",
        ) from error


def _read(path: Path) -> Calibration | None:
    try:
        return Calibration.from_json(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError, AkxError):
        return None


def _figures(data: Any) -> Figures:
    formats = {
        str(name): _format_cost(FORMATS.get(str(name), FORMATS["csr"]), cost) for name, cost in data["formats"].items()
    }
    known = {field.name for field in fields(Figures)} - {"formats", "last_level_bytes"}  # a newer akx may have more
    rest = {name: _price(value) for name, value in data.items() if name in known}
    found = Figures(**rest, last_level_bytes=int(data["last_level_bytes"]), formats=formats)
    rates = (found.slow_bandwidth, found.last_level_bandwidth, found.cache_bandwidth, found.flops)
    if min(*rates, found.foreseen, found.last_level_bytes, *(cost.slot for cost in formats.values())) <= 0:
        raise ValueError("a rate, a size or a price is 0 or less")
    if formats and "csr" not in formats:
        raise ValueError("there are prices of formats, and none of csr")
    return found


def _format_cost(guess: FormatCost, cost: Any) -> FormatCost:
    """Of a file; one of an older akx has nothing of rows that differ, for which guesses take its place."""
    differing = (_price(cost.get(name, getattr(guess, name))) for name in ("uneven", "sorted", "scattered"))
    return FormatCost(_price(cost["slot"]), _price(cost["row"]), *differing)


def _price(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{value!r} is no figure")
    return number
