"""Arrays and sparse matrices in the memory of a GPU, known by what they offer; nothing is read, no library imported.

A matrix is taken apart into the arrays of one format: CSR, CSC and COO of CuPy and PyTorch, and ``(data, indices,
indptr)`` of anything that has ``__cuda_array_interface__`` or speaks DLPack, with a shape as a fourth or without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from akx.core.arguments import is_array, is_sparse_tensor, shape_in
from akx.core.errors import ArgumentTypeError

__all__ = ["Parts", "is_on_device", "parts_of", "unreadable"]

#: DLPack's type of a device, and the compressed formats by the name of PyTorch's layout.
_CUDA = 2
_TENSORS = {
    "sparse_csr": ("csr", "col_indices", "crow_indices"),
    "sparse_csc": ("csc", "row_indices", "ccol_indices"),
}


@dataclass(eq=False)
class Parts:
    """A sparse matrix as arrays on a GPU, in the library's own order.

    `format` ({"csr", "csc", "coo"}). `shape` (tuple of int). `arrays`: data, indices and indptr; of COO data, rows and
    columns. `owner`: what lives as long as the matrix: itself, or its data where it is a tuple. `is_tuple`: whether it
    is no object of a library, which could take it to the host.
    """

    format: str
    shape: tuple[int, ...]
    arrays: tuple[Any, Any, Any]
    owner: Any
    is_tuple: bool = False


def is_on_device(x: Any) -> bool:
    """Whether `x` is an array in the memory of an NVIDIA GPU."""
    if isinstance(x, (np.ndarray, np.generic, list, tuple, int, float)) or is_sparse_tensor(x):
        return False
    try:
        if hasattr(x, "__cuda_array_interface__"):
            return True
        where = getattr(x, "__dlpack_device__", None)
        return where is not None and int(where()[0]) == _CUDA
    except (RuntimeError, BufferError, ValueError) as refusal:  # the library will not have it read as it is
        raise unreadable("x", refusal) from refusal


def unreadable(name: str, refusal: Exception) -> ArgumentTypeError:
    """The error for an array that its library will not have read."""
    return ArgumentTypeError(
        f"{name} cannot be read as it is", found=str(refusal), hint="a tensor that requires its gradient: detach() it"
    )


def parts_of(A: Any) -> Parts | None:
    """The arrays of a sparse matrix on a GPU; None of anything else, which may be a matrix of the host.

    Raises :class:`ArgumentTypeError` where some arrays of a tuple are on a GPU and others are not, or its shape is
    none.
    """
    if isinstance(A, Parts):
        return A
    if sp.issparse(A) or isinstance(A, (np.ndarray, list, str, bytes, type)):
        return None
    if isinstance(A, tuple):
        return _of_tuple(A)
    if is_sparse_tensor(A):
        return _of_tensor(A)
    return _of_object(A)


def _of_tuple(A: tuple[Any, ...]) -> Parts | None:
    if len(A) not in (3, 4) or not all(is_array(one) for one in A[:3]):
        return None
    places = [is_on_device(one) for one in A[:3]]
    if not any(places):
        return None
    if not all(places):
        names = ("data", "indices", "indptr")
        expected = "data, indices and indptr on the GPU, or all of them in host memory"
        found = ", ".join(f"{name} on the {'GPU' if it else 'host'}" for name, it in zip(names, places, strict=True))
        raise ArgumentTypeError("arrays of the matrix are in two places", expected=expected, found=found)
    pointers = getattr(A[2], "shape", None) or (1,)
    return Parts(
        "csr", shape_in(A, int(pointers[0]) if len(pointers) == 1 else 1), (A[0], A[1], A[2]), A[0], is_tuple=True
    )


def _of_tensor(A: Any) -> Parts | None:
    """CSR, CSC and COO of PyTorch; None of those on the host, and in blocks."""
    if not getattr(A, "is_cuda", False):
        return None
    layout, A, owner = str(A.layout).rpartition(".")[2], A.detach(), A
    if layout == "sparse_coo":
        A = A.coalesce()
        values, places = A.values(), A.indices()
        if len(A.shape) != 2 or values.ndim != 1:
            return None  # which the host refuses
        return Parts("coo", _sizes(A), (values, places[0], places[1]), owner)
    if layout not in _TENSORS or A.values().ndim != 1:
        return None
    kind, across, along = _TENSORS[layout]
    return Parts(kind, _sizes(A), (A.values(), getattr(A, across)(), getattr(A, along)()), owner)


def _of_object(A: Any) -> Parts | None:
    """CSR, CSC and COO of CuPy, and what becomes CSR by a call of its own."""
    kind, owner = getattr(A, "format", None), A
    if not isinstance(kind, str) or not hasattr(A, "get") or not is_on_device(getattr(A, "data", None)):
        return None
    if kind not in ("csr", "csc", "coo"):
        A, kind = A.tocsr(), "csr"
    others = (A.row, A.col) if kind == "coo" else (A.indices, A.indptr)
    return Parts(kind, _sizes(A), (A.data, *others), owner)


def _sizes(A: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in A.shape)
