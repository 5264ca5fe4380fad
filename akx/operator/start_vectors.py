"""Start vectors and results, as callers give them and as programs want them: checked, and turned without a copy.

Callers have V[..., j] of shape (n,) or (n, b); programs have x of shape (b, n) and V of shape (k+1, b, n), contiguous.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core import device_arrays
from akx.core.arguments import numbers_of
from akx.core.errors import ArgumentError
from akx.core.matrix import Matrix, there

__all__ = ["check_out", "is_matrix_there", "is_on_device", "is_same", "overlap", "start_block", "wrong_layout"]


def is_on_device(x: Any) -> bool:
    """Whether x is an array on a GPU."""
    if type(x) is np.ndarray or isinstance(x, Matrix):  # which have nothing that could be looked for
        return False
    return device_arrays.is_on_device(x)


def is_matrix_there(A: Any) -> bool:
    """Whether A is a matrix on a GPU that akx can work with."""
    return A.on_device is not None if isinstance(A, Matrix) else there(A) is not None


def start_block(x: Any, n: int) -> tuple[NDArray[Any], bool]:
    """The start vectors as an array (b, n), and whether x was a single vector."""
    array = x if type(x) is np.ndarray and x.dtype.kind in "fc" else numbers_of(x, "x")
    if array.dtype.kind in "biu":
        array = array.astype(np.float64)
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    if array.ndim not in (1, 2) or array.shape[0] != n or 0 in array.shape:
        raise ArgumentError(
            "x does not fit the matrix",
            expected=f"shape ({n},) or ({n}, b)",
            found=f"shape {array.shape}",
            hint="pass x.T" if array.ndim == 2 and array.shape[1] == n else None,
        )
    return (array[None, :], True) if array.ndim == 1 else (array.T, False)


def check_out(out: NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise where `out` cannot be a result of a shape and type, whatever the plan."""
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != dtype:
        found = f"{out.shape} of {out.dtype}" if isinstance(out, np.ndarray) else type(out).__name__
        raise ArgumentError("out does not fit", expected=f"an array {shape} of {dtype}", found=found)
    contiguous = out.flags.f_contiguous or out.strides[0] == dtype.itemsize  # rows apart: as programs may have them
    if not contiguous or not out.flags.writeable:
        raise wrong_layout(shape, dtype)
    if not out.flags.aligned:
        raise ArgumentError(
            "out is not aligned in memory",
            expected=f"an address that is a multiple of {dtype.alignment}",
            hint=f"make it with np.empty({shape}, dtype='{dtype}', order='F')",
        )


def wrong_layout(shape: tuple[int, ...], dtype: np.dtype[Any]) -> ArgumentError:
    """The error for an `out` that is laid out in another way than results are."""
    return ArgumentError(
        "out has the wrong layout",
        expected="a writeable array in Fortran order, so that every vector is contiguous",
        hint=f"make it with np.empty({shape}, dtype='{dtype}', order='F')",
    )


def is_same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays of one shape and type are the same memory, both contiguous."""
    are_so = one.flags.c_contiguous and other.flags.c_contiguous
    return bool(are_so and one.__array_interface__["data"][0] == other.__array_interface__["data"][0])


def overlap(one: Any, other: Any) -> bool:
    """Whether two device arrays share memory."""
    return bool(one.pointer < other.pointer + other.nbytes and other.pointer < one.pointer + one.nbytes)
