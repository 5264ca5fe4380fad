"""What is known of a pattern in few numbers: made once, kept with the matrix, and on disk by the fingerprint.

Cost models go by such *facts*: slots of a layout, halos of parts, how far rows read. Each is named by a key of words
and numbers, and is a number, a word, None, or a list of these; of what is not, the caller says how it is written. A
plan that was predicted is a fact as well, so that none is predicted twice for the same pattern.

A pattern has one file in the user's cache folder, ``features/FINGERPRINT.json``: a digest of what follows, and a JSON
object. It counts where it was written by these very sources of akx, by their sizes and times. All else is made anew,
and so is what is not as it was written. Files are written in one step; the oldest go where there are more than 512, or
32 MiB. Where nothing can be written, nothing is kept.

Small patterns are left out: facts of them are made in less time than a file takes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from copy import copy
from functools import lru_cache, update_wrapper
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from akx.core.atomic_files import read_sealed, write_sealed
from akx.core.disk_cache import DiskCache
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix

__all__ = ["FACTS", "fact", "features_folder", "keep", "per_pattern"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
#: Entries of a pattern whose facts are kept on disk; most files.
_LEAST_ENTRIES, _MOST_FILES = 20_000, 512
#: Where a pattern has what is on disk, and what is new.
_FILED = "akx.backends.pattern_cache"
_PACKAGE = Path(__file__).resolve().parents[1]
#: Of the package, what facts come from, with the folders in them.
_FOLDERS = ("core", "formats", "backends", "partition", "tuner")


class per_pattern(Generic[_P, _T]):
    """What a function finds of a pattern and of hashable arguments, or why it finds nothing; kept with the pattern."""

    def __init__(self, make: Callable[Concatenate[Matrix, _P], _T]) -> None:
        self._make, self._name = make, f"{make.__module__}.{make.__qualname__}"
        update_wrapper(self, make)

    def __call__(self, matrix: Matrix, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        key, known = (self._name, *args, *kwargs.items()), matrix.pattern_cache
        if key not in known:
            try:
                known[key] = self._make(matrix, *args, **kwargs)
            except InfeasibleError as refusal:
                known[key] = copy(refusal)  # without its traceback, which would hold all that is above
        found: _T | InfeasibleError = known[key]
        if isinstance(found, InfeasibleError):
            raise copy(found)
        return found

    def known(self, matrix: Matrix, *args: _P.args, **kwargs: _P.kwargs) -> _T | InfeasibleError | None:
        """That, or why there is nothing, if it was looked for already."""
        found: _T | InfeasibleError | None = matrix.pattern_cache.get((self._name, *args, *kwargs.items()))
        return found


class _File:
    """The facts of one pattern on disk, and those that are not there yet; as they are written."""

    def __init__(self, fingerprint: str) -> None:
        folder = features_folder()
        self.path = None if folder is None else folder / f"{fingerprint}.json"
        self.there = {} if self.path is None else _read(self.path)
        self.fresh: dict[str, Any] = {}


def fact(
    matrix: Matrix,
    key: tuple[Any, ...],
    make: Callable[[], _T],
    *,
    written: Callable[[_T], Any] | None = None,
    read: Callable[[Any], _T] | None = None,
) -> _T:
    """What is known of a pattern under a key: kept with it, or on disk, or made now.

    Parameters
    ----------
    matrix : Matrix
    key : tuple of str, int, float or bool
    make : callable
    written, read : callable, optional
        From the fact to what JSON can hold, and back; without them it is that itself.
    """
    known = matrix.pattern_cache
    if key in known:
        found: _T = known[key]
        return found
    file, name = _file_of(matrix), " ".join(map(str, key))
    if file is not None and name in file.there:
        kept = file.there[name]
        found = known[key] = kept if read is None else read(kept)
        return found
    found = known[key] = make()
    if file is not None:
        file.fresh[name] = found if written is None else written(found)
    return found


def keep(matrix: Matrix) -> None:
    """Write what is new to disk."""
    file: _File | None = matrix.pattern_cache.get(_FILED)
    if file is not None and file.fresh:
        file.there.update(file.fresh)
        file.fresh.clear()
        if file.path is not None:
            with contextlib.suppress(OSError, TypeError):  # TypeError: of a fact that JSON has not
                _write(file.path, dict(file.there))


def features_folder() -> Path | None:
    """Where facts are kept; None without a home."""
    from platformdirs import user_cache_path

    try:
        folder = user_cache_path("akx", appauthor=False) / "features"
    except RuntimeError:
        return None
    return folder if folder.is_absolute() else None  # some releases leave the "~" as it is


def _file_of(matrix: Matrix) -> _File | None:
    """The file of a pattern; None of a small one, and of one whose fingerprint nobody has asked for."""
    if matrix.nnz < _LEAST_ENTRIES:
        return None
    found: _File | None = matrix.pattern_cache.get(_FILED)
    if found is None and "digest" in vars(matrix.pattern):
        found = matrix.pattern_cache[_FILED] = _File(matrix.fingerprint)
    return found


@lru_cache(maxsize=1)
def _sources() -> str:
    """What the sources of this akx are known by."""
    digest = hashlib.sha256()
    left = list(_FOLDERS)
    while left:
        folder = left.pop()
        with os.scandir(_PACKAGE / folder) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                if entry.name.endswith(".py"):
                    about = entry.stat()
                    digest.update(f"{folder}/{entry.name} {about.st_size} {about.st_mtime_ns}\n".encode())
                elif "." not in entry.name and entry.name != "__pycache__":
                    left.append(f"{folder}/{entry.name}")
    return digest.hexdigest()[:32]


def _read(path: Path) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        text = read_sealed(path)
        if text is not None:
            found: Any = json.loads(text)
            if found["sources"] == _sources():
                return dict(found["facts"])
    return {}


def _write(path: Path, facts: dict[str, Any]) -> None:
    text = json.dumps({"sources": _sources(), "facts": facts}).encode()
    if not path.exists() and path.parent.is_dir():
        _make_room(path.parent)
    write_sealed(path, text)
    FACTS.make_room()


def _make_room(folder: Path) -> None:
    """Let the files go that were written longest ago, where there are too many."""
    with os.scandir(folder) as entries:
        files = sorted((entry.stat().st_mtime_ns, entry.path) for entry in entries)
    for _, path in files[: max(0, len(files) + 1 - _MOST_FILES)]:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _folders() -> list[Path]:
    folder = features_folder()
    return [] if folder is None else [folder]


#: All such files.
FACTS = DiskCache("facts of patterns", _folders, ("json",), 32 << 20)
