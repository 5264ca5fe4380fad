"""Numba's compiler, but that machine code is closed: a function calls what was compiled into it, and nothing else.

Numba links the functions that one calls into it, optimises all of it together, and leaves what is not inlined as weak
symbols. The machine code of the same inner function is then another in each caller, and another than that made of it
alone, as it was optimised in other company: with sums that may be reordered, or products of complex numbers that may be
fused, so are its bits. And of weak symbols of one name the process takes those that it meets first: those made of the
inner function alone where all is compiled, those of the caller where its code comes from the disk, those of another
caller where that was loaded before. Local symbols leave nothing to choose; the machine code is the same.

Numba's own functions, such as the quotient of complex numbers, it compiles once in a process, with the flags of what
needs them first. Here each set of flags has its own: machine code does not depend on what was compiled before it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import akx.core.numba_import  # noqa: F401 - before what is of Numba

__all__ = ["ClosedCompiler"]

_codegen: Any = import_module("numba.core.codegen")
_compiler: Any = import_module("numba.core.compiler")
_linkage: Any = import_module("llvmlite.binding").Linkage
#: What Numba compiles to divide complex numbers and the like, by the flags it was compiled with.
_HELPERS: dict[frozenset[str], dict[Any, Any]] = {}


class _ClosedLibrary(_codegen.JITCodeLibrary):  # type: ignore[misc]
    """A function with all that it calls."""

    def _finalize_final_module(self) -> None:
        module = self._final_module
        self._shared_module = module.clone()  # what callers link and inline is as ever
        _turn(self._shared_module, _linkage.external, _linkage.linkonce_odr)
        _turn(module, _linkage.linkonce_odr, _linkage.internal)
        super()._finalize_final_module()


class ClosedCompiler(_compiler.Compiler):  # type: ignore[misc]
    """For :func:`numba.njit`, as its `pipeline_class`."""

    def compile_extra(self, func: Any) -> Any:
        fastmath = frozenset(getattr(self.state.flags.fastmath, "flags", ()))
        self.state.targetctx.cached_internal_func = _HELPERS.setdefault(fastmath, {})
        if self.state.library is None:  # as Numba's own pass makes it, which takes one that is there
            self.state.library = _ClosedLibrary(self.state.targetctx.codegen(), func.__qualname__)
            self.state.library.enable_object_caching()
        return super().compile_extra(func)


def _turn(module: Any, before: Any, after: Any) -> None:
    for function in module.functions:
        if not function.is_declaration and function.linkage == before:
            function.linkage = after
