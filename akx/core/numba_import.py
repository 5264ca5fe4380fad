"""The import of Numba, with all that its first function needs, and no more: a third less than it does by itself.

Numba imports SciPy's linear algebra to see that it is there, which it is; and the garbage collector goes through all
that imports make, which stays. Both are done without. It is a module since threads wait until another has imported it:
what Numba has until then is half made.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from importlib import import_module
from typing import Any

from akx.core.garbage_collection import nothing_collected

__all__: list[str] = []

_was_on = gc.isenabled()
with nothing_collected():
    import_module("numba")
    with suppress(ImportError, AttributeError):  # of another version: it does all that itself
        linalg: Any = import_module("numba.np.linalg")
        looks, linalg.ensure_blas = linalg.ensure_blas, lambda: None
        try:
            arrays: Any = import_module("numba.np.arraymath")
        finally:
            linalg.ensure_blas = looks
        arrays.ensure_blas = looks
        with import_module("numba.core.compiler_lock").global_compiler_lock:
            import_module("numba.core.registry").cpu_target.target_context.refresh()
    if _was_on and not gc.get_freeze_count():  # else what is frozen is the caller's, who wants it to stay so
        gc.freeze()  # made old by that: collections of young objects do not go through it either
        gc.unfreeze()
