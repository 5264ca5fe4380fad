"""Files that are kept to spare work, and may go: within so many bytes, those used longest ago first.

A file counts as used when it was written, and when :func:`used` or the file system (its access time) says so. To go
through the files of a cache takes a millisecond for some hundred, so that is done where one is written, which takes
longer anyway. What cannot be looked at or removed is left.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HOST_CODE", "DiskCache", "used"]

_MIB = 1 << 20
#: Seconds within which a file that is used again is not said to be.
_RECENT = 3600.0
_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class DiskCache:
    """Files of some endings in some folders, not below these.

    `name`: what they are. `folders`: gives the folders. `endings`: of the names, without the dot. `most`: bytes.
    """

    name: str
    folders: Callable[[], Iterable[Path]]
    endings: tuple[str, ...]
    most: int

    def sizes(self) -> dict[str, int]:
        """Bytes of the files in each folder that has some, those of the largest first."""
        sizes = dict[str, int]()
        for _, size, path in self._files():
            folder = os.path.dirname(path)
            sizes[folder] = sizes.get(folder, 0) + size
        return dict(sorted(sizes.items(), key=lambda item: -item[1]))

    def make_room(self) -> None:
        """Remove what was used longest ago, where there is more than the most."""
        files = sorted(self._files())
        left = sum(size for _, size, _ in files) - self.most
        for _, size, path in files:
            if left <= 0:
                return
            with contextlib.suppress(OSError):
                os.unlink(path)
                left -= size

    def _files(self) -> Iterator[tuple[float, int, str]]:
        """When each was used last, its bytes and its path."""
        for folder in self.folders():
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.rpartition(".")[2] in self.endings:
                        with contextlib.suppress(OSError):
                            about = entry.stat()
                            yield max(about.st_mtime, about.st_atime), about.st_size, entry.path


def used(path: Path) -> None:
    """Say that a file is used, where that was not said lately."""
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > _RECENT:
            os.utime(path)


def _of_numba() -> Iterator[Path]:
    """Where Numba keeps machine code of akx: beside its sources, and by their folders' names where it is told to."""
    from akx.core.numba_jit import code_folder

    chosen = code_folder()
    with contextlib.suppress(RuntimeError):  # no home
        from platformdirs import user_cache_path

        chosen = chosen or user_cache_path("numba", appauthor=False)
    for source in (_PACKAGE, *(folder for folder in _PACKAGE.rglob("*") if (folder / "__init__.py").is_file())):
        yield source / "__pycache__"
        if chosen is not None:
            yield chosen / f"{source.name}_{hashlib.sha1(str(source).encode(), usedforsecurity=False).hexdigest()}"


#: What Numba has compiled; it compiles again what is gone.
HOST_CODE = DiskCache("machine code of the host", _of_numba, ("nbc", "nbi"), 512 * _MIB)
