"""Python, the packages that akx needs or may use, and what Numba has compiled."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path

from akx.core.errors import AkxError
from akx.core.numba_jit import check_numba, code_folder, is_writable
from akx.report.comparison.mkl import mkl_missing, mkl_version
from akx.report.doctor.check import Check
from akx.report.units import counted, size

__all__ = [
    "akx_version",
    "compiled_code",
    "disk_caches",
    "mkl",
    "optional_package",
    "python_version",
    "required_package",
]
_OLDEST_PYTHON = (3, 11)


def python_version() -> Check:
    text = f"{platform.python_version()} ({platform.python_implementation()}, {platform.platform()})"
    if sys.version_info[:2] < _OLDEST_PYTHON:
        return Check("python", "problem", text, "install Python 3.11 or newer")
    return Check("python", "ok", text)


def akx_version() -> Check:
    import akx

    return Check("akx", "ok", f"{akx.__version__} in {Path(akx.__file__).resolve().parent}")


def required_package(name: str) -> Iterator[Check]:
    if name == "numba":  # it may not be imported where it cannot work: "compiled code" says so
        try:
            check_numba()
        except AkxError:
            yield Check(name, "ok", _version(name))
            return
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            import_module(name)
        except Exception as error:
            text = f"cannot be imported: {' '.join(str(error).split())}"
            yield Check(name, "problem", text, f"pip install --upgrade {name}")
            return
    yield Check(name, "ok", _version(name))
    for told in {str(one.message).partition("\n")[0] for one in heard if "nvironment variable" in str(one.message)}:
        yield Check(name, "problem", told, "correct it, or unset it")


def optional_package(module: str, distribution: str, extra: str, purpose: str) -> Iterator[Check]:
    try:
        import_module(module)
    except ModuleNotFoundError:
        yield Check(distribution, "missing", f"for {purpose}", f"pip install 'akx[{extra}]'")
    except Exception as error:  # an extension module may fail in any way while it loads its libraries
        text = f"installed, but cannot be imported: {type(error).__name__}: {error}"
        yield Check(distribution, "missing", text, f"pip install --upgrade --force-reinstall {distribution}")
    else:
        yield Check(distribution, "ok", _version(distribution))


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "version unknown"


def mkl() -> Check:
    hint = mkl_missing()
    if hint is not None:
        return Check("mkl", "missing", "for `akx bench`, to compare with", hint)
    return Check("mkl", "ok", mkl_version() or "version unknown")


def compiled_code() -> Iterator[Check]:
    """Whether Numba can compile here, and where it keeps what it compiles."""
    import akx

    name, asked = "compiled code", os.environ.get("NUMBA_CACHE_DIR")
    with contextlib.suppress(AkxError):
        check_numba()  # may choose a folder
    chosen, sources = code_folder(), Path(akx.__file__).resolve().parent
    if asked and not is_writable(Path(asked)):
        hint = "point NUMBA_CACHE_DIR at a folder you can write to"
        yield Check(name, "problem", f"{asked} is not writable", hint)
    elif chosen is not None and not asked:
        found = f"kept in {chosen}, as neither {sources} nor the user's cache folder is writable"
        yield Check(name, "ok", found, "set NUMBA_CACHE_DIR to keep it elsewhere")
    elif chosen is not None:
        yield Check(name, "ok", f"kept in {chosen}")
    elif is_writable(sources):
        yield Check(name, "ok", f"kept in {sources} (__pycache__ folders)")
    else:
        yield Check(name, "ok", f"{sources} is not writable: Numba keeps it in the user's cache folder instead")
    check_numba()  # its failure is what is to be told


def disk_caches() -> Iterator[Check]:
    """What akx keeps on disk to spare work, how much that is, and how much it may become."""
    from akx.backends.pattern_cache import FACTS
    from akx.backends.selection import array_backend, backend_of
    from akx.core.disk_cache import HOST_CODE

    for cache in (HOST_CODE, backend_of(array_backend()).code_cache(), FACTS):
        if cache is not None:
            sizes = cache.sizes()
            others = f" and {counted(len(sizes) - 1, 'other folder')}" if len(sizes) > 1 else ""
            where = f"in {next(iter(sizes))}{others}" if sizes else "nothing yet"
            yield Check(cache.name, "ok", f"{size(sum(sizes.values()))} of at most {size(cache.most)}, {where}")
