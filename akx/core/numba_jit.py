"""Numba as akx uses it: asked for only where it can compile, and imported when the first function is.

Numba reads its variables when it is imported, and looks for a folder to keep machine code in when a function is
decorated; it fails there with errors that name no cure. So both are looked at before: :func:`check_numba`. Modules take
:func:`njit` from here. The kernels of the CPU take Numba's own; :mod:`akx.backends.cpu` makes the check for them.
"""

from __future__ import annotations

import functools
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

from akx.core.errors import ArgumentError, CompileError, brief

__all__ = [
    "check_numba",
    "closed",
    "code_folder",
    "is_loaded",
    "is_writable",
    "jit_later",
    "load_numba",
    "most_threads",
    "named_threads",
    "njit",
    "own_temporary_folder",
]

_PACKAGE = Path(__file__).resolve().parents[1]
_PLACE = "NUMBA_CACHE_DIR"
_THREADS, _DIGITS = 1024, 9

_checked = False
_F = TypeVar("_F", bound=Callable[..., Any])
#: What is imported where something needs Numba in any case.
_KERNELS = "akx.backends.cpu.jit"


class _Later:
    """A function that is Python until Numba is there, and compiled from then on."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._compiled: Any = None

    def __call__(self, *arguments: Any) -> Any:
        if self._compiled is None and not is_loaded():
            return self._function(*arguments)
        return self.compiled(*arguments)

    @property
    def compiled(self) -> Any:
        """What Numba makes of it, and of those that it calls."""
        if self._compiled is None:
            names = self._function.__globals__
            for name in self._function.__code__.co_names:
                if isinstance(names.get(name), _Later):
                    names[name] = names[name].compiled
            self._compiled = sys.modules[_KERNELS].jit(self._function)
        return self._compiled


def is_loaded() -> bool:
    """Whether something has needed Numba in this process, so that more of it costs little."""
    return _KERNELS in sys.modules


def jit_later(function: _F) -> _F:
    """Compile a function of a few numbers as :mod:`akx.backends.cpu.jit` does, once that is there for other reasons.

    Until then it is Python, which takes microseconds where to import Numba takes most of a second.
    """
    return cast(_F, _Later(function))


class _WhenCalled:
    """A function that Numba compiles when it is first called; so are those that it calls."""

    def __init__(self, function: Callable[..., Any], signature: tuple[Any, ...], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._asked = function, (signature, options)
        self._compiled: Any = None

    def __call__(self, *arguments: Any) -> Any:
        return self.compiled(*arguments)

    @property
    def compiled(self) -> Any:
        """What Numba makes of it, which takes its place in its module."""
        if self._compiled is None:  # two threads may both do it, one after the other: Numba has a lock
            self._compile()
        return self._compiled

    def _compile(self) -> None:
        check_numba()
        numba = load_numba()

        names, own = self._function.__globals__, self._function.__name__
        for name in self._function.__code__.co_names:
            other = names.get(name)
            if isinstance(other, _WhenCalled) and other is not self:
                names[name] = other.compiled
        signature, options = self._asked
        # At once, where there is a signature.
        found = numba.njit(*signature, **options, **closed(), no_cfunc_wrapper=True)(self._function)
        if names.get(own) is self:
            names[own] = found
        self._compiled = found


def njit(*signature: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """:func:`numba.njit` with these arguments; Numba is looked at (:func:`check_numba`), and imported, in a first call.

    Nothing in C calls these functions, so no code is made for that.
    A GPU lays most matrices out itself: then nothing of it is needed, and most of a second saved.
    """
    return lambda function: _WhenCalled(function, signature, options)


def load_numba() -> Any:
    """Numba, imported with all that its first function needs, and no more (:mod:`akx.core.numba_import`)."""
    import_module("akx.core.numba_import")
    return sys.modules["numba"]


def closed() -> dict[str, Any]:
    """Options of :func:`numba.njit` for machine code that is the same to run however it came (``numba_compiler``)."""
    return {"pipeline_class": import_module("akx.core.numba_compiler").ClosedCompiler}


def check_numba() -> None:
    """Raise where Numba cannot work here; give it a folder of the system's temporary ones where it has no other.

    Raises :class:`ArgumentError` where ``NUMBA_NUM_THREADS`` is no number of threads, :class:`CompileError` where
    ``NUMBA_DISABLE_JIT`` is set, or there is no folder for machine code.
    """
    global _checked
    if _checked:
        return
    named_threads()
    _check_compiler()
    _choose_folder()
    _checked = True


def most_threads() -> int:
    """The largest number of threads that may be asked for: beyond all processors they would only fill the memory."""
    return max(_THREADS, os.cpu_count() or 1)


def named_threads() -> int | None:
    """The number of threads that ``NUMBA_NUM_THREADS`` names; None where it names none."""
    text = os.environ.get("NUMBA_NUM_THREADS", "").strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > _DIGITS or not 1 <= int(text) <= most_threads():
        expected, hint = f"an integer from 1 to {most_threads()}", "correct it, or unset it for all cores"
        raise ArgumentError(
            "NUMBA_NUM_THREADS is not a number of threads", expected=expected, found=brief(text), hint=hint
        )
    return int(text)


def code_folder() -> Path | None:
    """The folder in which all machine code is kept; None where Numba keeps it beside the sources, or in a home."""
    config = sys.modules.get("numba.core.config")
    chosen = os.environ.get(_PLACE) or getattr(config, "CACHE_DIR", "")
    return Path(chosen) if chosen else None


def is_writable(folder: Path) -> bool:
    """Whether files can be made in a folder, or in the nearest one above it that is there."""
    try:
        there = next(place for place in (folder, *folder.parents) if place.exists())
        with tempfile.TemporaryFile(dir=there):
            return True
    except (OSError, StopIteration):
        return False


def _check_compiler() -> None:
    text = os.environ.get("NUMBA_DISABLE_JIT", "").strip()
    try:
        is_off = bool(int(text or "0"))
    except ValueError:  # Numba warns of it, and compiles
        is_off = False
    if is_off or getattr(sys.modules.get("numba.core.config"), "DISABLE_JIT", False):
        found, hint = f"NUMBA_DISABLE_JIT={text or 1}", "unset NUMBA_DISABLE_JIT"
        raise CompileError("Numba is told not to compile, and akx's kernels are compiled code", found=found, hint=hint)


def _choose_folder() -> None:
    """Leave Numba what it would find; where it would find nothing, one of this user's temporary folders."""
    chosen = code_folder()
    if (chosen is not None and is_writable(chosen)) or _has_home() or _has_sources():
        return
    folder = own_temporary_folder("akx-numba")
    if folder is None:
        raise CompileError(
            "there is no folder to keep compiled code in: neither akx's own, nor the user's cache, nor a temporary one",
            found=f"{_PLACE}={chosen}" if chosen is not None else None,
            hint=f"set {_PLACE} to a folder that you can write to",
        )
    os.environ[_PLACE] = str(folder)  # for other processes, and for Numba where it is yet to be imported
    if (config := sys.modules.get("numba.core.config")) is not None:
        config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]


def _has_home() -> bool:
    """Whether the user's cache folder, where Numba goes last, can be written to."""
    from platformdirs import user_cache_path

    try:
        folder = user_cache_path("numba", appauthor=False)
    except RuntimeError:  # without a home
        return False
    return folder.is_absolute() and is_writable(folder)  # some leave a "~" as it is


def _has_sources() -> bool:
    """Whether there is room for machine code beside all sources."""
    folders = (folder for folder in (_PACKAGE, *_PACKAGE.rglob("*")) if (folder / "__init__.py").is_file())
    return all(is_writable(folder / "__pycache__") for folder in folders)


def own_temporary_folder(name: str) -> Path | None:
    """A folder that nobody else can write to, as code is loaded from it; None where there can be none."""
    if not hasattr(os, "getuid"):
        return None  # on Windows, temporary folders are below the home
    try:
        folder = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return folder if is_own and is_writable(folder) else None
