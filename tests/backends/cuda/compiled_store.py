"""Where tests keep what they compile from CUDA sources, by all of the text: a folder of the user's, for all processes.

Sources that did not change are not compiled again, by the workers of one run or by the next run. ``AKX_TEST_STORE`` is
another folder than that of the user's caches.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import time
from pathlib import Path

import platformdirs

__all__ = ["KERNELS", "named", "store"]

KERNELS = Path(__file__).parents[3] / "akx" / "backends" / "cuda"
_TESTS = Path(__file__).parent
#: The CUDA sources of akx by name.
_SOURCES = {path.name: path for path in sorted(KERNELS.rglob("*.cu*"))}
#: What was compiled from other sources is kept for so many seconds: a week.
_KEPT_SECONDS = 7 * 24 * 3600


def named(name: str) -> Path:
    """The CUDA source of akx of this name, wherever it is."""
    return _SOURCES[name]


@functools.cache
def store() -> Path:
    """The folder for what is compiled from the sources as they are, by the compilers as they are."""
    root = Path(os.environ.get("AKX_TEST_STORE") or platformdirs.user_cache_path("akx-tests"))
    found = root / _digest()
    found.mkdir(parents=True, exist_ok=True)
    os.utime(found)
    for other in root.iterdir():
        if other.stat().st_mtime < time.time() - _KEPT_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
    return found


def _digest() -> str:
    """Of every source here and there, and of when each compiler was installed."""
    found = hashlib.sha256()
    folders = (_TESTS.glob("*.cu"), _TESTS.joinpath("on_host").glob("*.*"))
    for path in (*_SOURCES.values(), *(path for folder in folders for path in sorted(folder))):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    for name in ("g++", "nvcc"):
        compiler = shutil.which(name)
        if compiler is not None:
            state = Path(compiler).resolve().stat()
            found.update(f"{name} {state.st_size} {state.st_mtime_ns}".encode())
    return found.hexdigest()[:24]
