"""What this process has from its surroundings: variables, folders, limits."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator

from akx.report.doctor.check import Check
from akx.report.units import size

__all__ = ["folders", "limits", "thread_variables"]
#: What numerical libraries take their number of threads from.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
#: Below these, searches and solves may fail.
_LEAST_FILES, _LEAST_MEMORY = 64, 4 << 30


def thread_variables() -> Iterator[Check]:
    """Variables that say something odd, besides those that other looks are for."""
    for name in _THREAD_VARIABLES:
        text = os.environ.get(name, "").strip()
        if text and not all(part.strip().isdecimal() and int(part) > 0 for part in text.split(",")):
            hint = f"set {name} to 1 or more, or unset it"
            yield Check(name, "problem", f"{text[:60]!r} is no number of threads, and libraries pass over it", hint)
    if any(option.startswith("e") for option in sys.warnoptions):
        yield Check("warnings", "ok", "are errors in Python, as PYTHONWARNINGS or -W says; in commands they are not")
    for stream in (sys.stdout, sys.stderr):
        encoding = str(getattr(stream, "encoding", None) or "utf-8")
        if not encoding.lower().startswith("utf"):
            found = f"{encoding} of the terminal, or of PYTHONIOENCODING: characters that it lacks are escaped"
            yield Check("encoding", "ok", found, "set PYTHONIOENCODING=utf-8 to see them")
            return


def folders() -> Iterator[Check]:
    """The current directory and that of temporary files."""
    try:
        os.getcwd()
    except OSError:
        yield Check("current directory", "problem", "is not there any more", "change to one that is there")
    asked = os.environ.get("TMPDIR", "").strip()
    try:
        used = tempfile.gettempdir()
    except OSError as error:
        yield Check("temporary files", "problem", str(error), "point TMPDIR at a folder you can write to")
        return
    if asked and os.path.realpath(asked) != os.path.realpath(used):
        hint = "point TMPDIR at a folder you can write to, or unset it"
        yield Check("temporary files", "problem", f"TMPDIR={asked} cannot be used, and {used} is", hint)
    else:
        yield Check("temporary files", "ok", f"in {used}")


def limits() -> Iterator[Check]:
    """Limits of this process that are so low that work may fail."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if 0 <= files < _LEAST_FILES:
        yield Check("open files", "problem", f"at most {files}", f"ulimit -n {_LEAST_FILES}, or more")
    memory = resource.getrlimit(resource.RLIMIT_AS)[0]
    if memory != resource.RLIM_INFINITY:
        state, hint = ("problem", "ulimit -v unlimited") if memory < _LEAST_MEMORY else ("ok", "")
        yield Check("address space", state, f"at most {size(memory)}", hint)
