"""NVIDIA's libraries beside the driver, opened by name."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from importlib import import_module

__all__ = ["open_library"]


@lru_cache(maxsize=8)
def open_library(name: str, sonames: tuple[str, ...]) -> ctypes.CDLL | None:
    """A shared library, from the wheels of the environment or from the system; None where it is not there.

    Parameters
    ----------
    name : str
        As cuda-pathfinder calls it, e.g. ``"cusparse"``.
    sonames : tuple of str
        File names to try where that does not know it.
    """
    try:
        found = import_module("cuda.pathfinder").load_nvidia_dynamic_lib(name)
        return ctypes.CDLL(found.abs_path)
    except Exception:
        pass
    for soname in sonames:
        try:
            return ctypes.CDLL(soname)
        except OSError:
            continue
    return None
