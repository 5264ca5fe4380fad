"""k products by ``cusparseSpMVOp``, the newer product of cuSPARSE: z = alpha A x + beta y by a plan made ahead.

Its signatures are those of cusparse.h: releases 12.8 and 12.9 (CUDA 13.x) take the number of an algorithm, 12.7 had one
algorithm and took none. Later ones may take something else again: they are told by their version, are not called, and
whoever compares says so.

A contestant that fails, or gives a wrong result, is left out with a warning: NVIDIA calls this part experimental. It
takes no complex values.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from akx.backends.cuda.baselines.cusparse import CusparsePowers, cusparse_library, cusparse_version
from akx.backends.cuda.device.memory import empty

__all__ = [
    "ABSENT",
    "FOREIGN",
    "KNOWN",
    "OP_ALGORITHMS",
    "CusparseOpPowers",
    "op_algorithms",
    "spmvop",
    "spmvop_note",
]

#: cusparseSpMVOpAlg_t of cusparse.h, and 0 for the one of releases that take no number.
OP_ALGORITHMS = {"cusparse_op1": 1, "cusparse_op2": 2, "cusparse_op": 0}
#: What there can be: no such function; one in another form; the one that is known here.
ABSENT, FOREIGN, KNOWN = "absent", "in another form", "known"
#: The releases whose form is known, and the first of them that takes the number of an algorithm.
_FIRST, _NUMBERED, _LAST = (12, 7), (12, 8), (12, 9)
#: Every function that is called.
_NAMES = tuple(
    f"cusparseSpMVOp{part}"
    for part in ("", "_bufferSize", "_createDescr", "_createPlan", "_destroyPlan", "_destroyDescr")
)
_PLAIN = 0


def spmvop() -> str:
    """Whether the library that is loaded has ``cusparseSpMVOp``: :data:`ABSENT`, :data:`FOREIGN` or :data:`KNOWN`."""
    library = cusparse_library()
    if library is None or not hasattr(library, "cusparseSpMVOp"):
        return ABSENT
    known = _FIRST <= _release() <= _LAST and all(hasattr(library, name) for name in _NAMES)
    return KNOWN if known else FOREIGN


def op_algorithms() -> tuple[str, ...]:
    """Names of the algorithms that the library which is loaded has; none where it cannot be called."""
    if spmvop() != KNOWN:
        return ()
    return tuple(name for name, number in OP_ALGORITHMS.items() if (number > 0) == (_release() >= _NUMBERED))


def _release() -> tuple[int, ...]:
    return tuple(int(part) for part in (cusparse_version() or "0.0").split("."))[:2]


def spmvop_note() -> str | None:
    """What a comparison has to say where the library has an algorithm that akx cannot call."""
    if spmvop() != FOREIGN:
        return None
    return (
        f"cuSPARSE {cusparse_version()} has cusparseSpMVOp in a form that akx does not know: an algorithm of its own "
        f"that was not measured; install cuSPARSE {'.'.join(map(str, _LAST))} to compare it too"
    )


class CusparseOpPowers(CusparsePowers):
    """As :class:`CusparsePowers`, with one of :data:`OP_ALGORITHMS`.

    Raises
    ------
    DeviceError
        With the function and its status, e.g. for a type that it does not take.
    """

    numbers = OP_ALGORITHMS

    def _prepare(self) -> None:
        size = ctypes.c_size_t()
        common: list[Any] = [_PLAIN, self._matrix, self._vectors[0], self._vectors[1], self._vectors[1], self._kind]
        common += [self._algorithm] if self._algorithm else []
        self._call("cusparseSpMVOp_bufferSize", self._handle, *common, ctypes.byref(size))
        self._buffer = empty(max(1, int(size.value)), np.uint8)
        buffer, handle = ctypes.c_void_p(self._buffer.pointer), (self._handle,)
        describe, make = "cusparseSpMVOp_createDescr", "cusparseSpMVOp_createPlan"
        self._description = self._create(describe, "cusparseSpMVOp_destroyDescr", *common, buffer, before=handle)
        code = ctypes.c_void_p(), ctypes.c_size_t(0)  # no epilogue of the caller's
        self._plan = self._create(make, "cusparseSpMVOp_destroyPlan", *code, before=(self._handle, self._description))

    def _multiply(self, j: int) -> None:
        one, zero = (ctypes.c_void_p(array.ctypes.data) for array in (self._one, self._zero))
        x, y = self._vectors[j], self._vectors[j + 1]
        self._call("cusparseSpMVOp", self._handle, self._plan, one, zero, x, y, y)
