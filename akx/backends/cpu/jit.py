"""One way to compile kernels: nogil, cached on disk, and recompiled when any kernel source changes.

Numba keeps a cached function as long as the file that defines it is unchanged; a change in a function it calls from
another file goes unnoticed. The stamp of each cached function here is therefore a hash of all CPU kernel sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from akx.core.numba_jit import closed, load_numba

__all__ = ["FLAGS", "compile_for", "jit", "jit_inner", "jit_into", "jit_sums", "source_hash"]

_F = TypeVar("_F", bound=Callable[..., Any])
_numba = load_numba()
_CLOSED = closed()

#: Products and sums may be contracted to fused multiply-adds. Sums keep the order the kernels give them: left to itself
#: the compiler turns the rows of CSR into gathers, which made them 1.3 times slower than four plain sums (Zen 4).
FLAGS = frozenset({"contract"})


@lru_cache(maxsize=1)
def source_hash() -> str:
    """A hash over the sources that compiled CPU code depends on: this package, the formats and the checksums."""
    here = Path(__file__).resolve().parent
    digest = hashlib.blake2b(digest_size=16)
    akx = here.parents[1]
    for path in sorted([*here.rglob("*.py"), *(akx / "formats").glob("*.py"), akx / "core" / "checksum.py"]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def jit(function: _F) -> _F:
    """Compile `function` lazily without the GIL, cached on disk under :func:`source_hash`."""
    return _compile(function, FLAGS)


def jit_inner(function: _F) -> _F:
    """As :func:`jit`, for compiled code alone, which compiles sooner: Python cannot call it."""
    return _compile(function, FLAGS, no_cpython_wrapper=True)


def jit_into(function: _F) -> _F:
    """As :func:`jit_inner`, as part of each function that calls it; LLVM need not make code of it alone first."""
    return _compile(function, FLAGS, no_cpython_wrapper=True, inline="always")


def jit_sums(function: _F) -> _F:
    """As :func:`jit_inner`, for inner products over contiguous entries: sums in the order vectors want, always that."""
    return _compile(function, FLAGS | {"reassoc"}, no_cpython_wrapper=True)


def compile_for(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Have a function of :func:`jit` compiled for arguments like these; cheap when it is done."""
    function.compile(tuple(map(_numba.typeof, arguments)))  # type: ignore[attr-defined]


def _compile(function: _F, flags: frozenset[str], **options: Any) -> _F:
    options |= {"nogil": True, "cache": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    compiled = _numba.njit(fastmath=set(flags), **options, **_CLOSED)(function)
    index = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if index is not None and hasattr(index, "_source_stamp"):
        index._source_stamp = (index._source_stamp, source_hash())
    if "no_cpython_wrapper" in options:
        compiled._insert = _keep_from_python
        compiled._compile_for_args = _refuse
    result: _F = compiled
    return result


def _keep_from_python(*_: Any) -> None:
    """Leave Numba's dispatcher without an entry for Python: it would call it without a look whether there is one."""


def _refuse(*_: Any, **__: Any) -> None:
    raise TypeError("compiled with jit_inner: only compiled code can call it; take jit for what Python calls")
