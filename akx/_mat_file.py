"""Sparse variables of MATLAB .mat files (versions 4 to 7), read by SciPy; those inside structures too.

The SuiteSparse collection ships its matrices as a structure ``Problem`` with the matrix in the field ``A``.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from akx.errors import ArgumentError, FileFormatError

__all__ = ["is_mat_file", "read_mat_file", "sparse_variables"]

_COLLECTION = "Problem.A"
_HDF5 = b"\x89HDF\r\n\x1a\n"


def is_mat_file(raw: bytes) -> bool:
    """Whether the bytes begin as a MATLAB file of version 5 or later does (version 4 has no mark)."""
    return raw.startswith((b"MATLAB ", _HDF5)) or raw[512:520] == _HDF5


def read_mat_file(raw: bytes, name: str, variable: str | None) -> Any:
    """The variable called `variable` (``"field"`` of a structure: ``"Problem.A"``), or the only sparse one.

    Returns
    -------
    scipy.sparse matrix or array
        A dense two-dimensional numeric variable is taken where it is asked for by name.
    """
    contents = _load(raw, name)
    found = {key: value for key, value in contents.items() if sp.issparse(value)}
    if variable is not None:
        return _named(contents, found, variable, name)
    if len(found) == 1:
        return next(iter(found.values()))
    if _COLLECTION in found:
        return found[_COLLECTION]
    if not found:
        others = ", ".join(f"{key} ({_describe(value)})" for key, value in contents.items()) or "nothing"
        raise FileFormatError(
            f"{name} holds no sparse variable",
            found=others,
            hint='save one with save(file, "A") where A is sparse, or name a dense one by variable=',
        )
    raise FileFormatError(
        f"{name} holds several sparse variables",
        found=", ".join(f"{key} ({_describe(value)})" for key, value in found.items()),
        hint=f'choose one, for example variable="{next(iter(found))}"',
    )


def sparse_variables(raw: bytes, name: str) -> dict[str, tuple[int, int]]:
    """Shapes of the sparse variables, by name."""
    return {key: value.shape for key, value in _load(raw, name).items() if sp.issparse(value)}


def _named(contents: dict[str, Any], found: dict[str, Any], variable: str, name: str) -> Any:
    value = contents.get(variable)
    if value is None:
        raise ArgumentError(
            f"{name} has no variable {variable!r}",
            expected=" or ".join(found or contents) or None,
            hint="choose one of these",
        )
    if sp.issparse(value):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind in "biufc":
        return sp.csr_array(value)
    raise ArgumentError(
        f"variable {variable!r} of {name} is not a matrix",
        found=_describe(value),
        hint=f"choose one of: {', '.join(found)}" if found else "the file holds no sparse variable",
    )


def _load(raw: bytes, name: str) -> dict[str, Any]:
    """All variables, and the fields of structures as ``structure.field``."""
    if raw.startswith((b"MATLAB 7.3", _HDF5)) or raw[512:520] == _HDF5:
        raise FileFormatError(
            f"{name} is a MATLAB 7.3 (HDF5) file",
            expected="version 7 or older",
            hint='save it again in MATLAB with save(file, "A", "-v7")',
        )
    try:
        loaded = scipy.io.loadmat(io.BytesIO(raw))
    except Exception as error:
        raise FileFormatError(
            f"{name} cannot be read as a MATLAB file",
            found=f"{type(error).__name__}: {error}",
            hint='the file is truncated or damaged: save it again with save(file, "A", "-v7")',
        ) from error
    contents: dict[str, Any] = {}
    for key, value in loaded.items():
        if key.startswith("__"):
            continue
        contents[key] = value
        if isinstance(value, np.ndarray) and value.dtype.names and value.size == 1:
            record = value.reshape(-1)[0]
            contents |= {f"{key}.{field}": record[field] for field in value.dtype.names}
    return contents


def _describe(value: Any) -> str:
    shape = " x ".join(str(s) for s in getattr(value, "shape", ()))
    if sp.issparse(value):
        return f"{shape}, {value.nnz} entries"
    if isinstance(value, np.ndarray):
        return f"{shape} {'structure' if value.dtype.names else value.dtype.name}"
    return type(value).__name__
