"""Reading matrices from files, and vectors from and to them.

What a file is follows from its content first and from its name second: compression (gzip, bzip2, xz) and archives (tar,
zip) by their marks, then NumPy, MATLAB, Matrix Market, Harwell-Boeing. As much of the content as the matrix can need is
read into memory (:mod:`akx.core.io.stream`), checked, and handed to SciPy's readers. Whatever goes wrong is an
:class:`~akx.core.errors.AkxError` that names the file, where possible the line, and the cure.

See ``docs/input.md`` for the formats.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from akx.core.canonical import check_indices
from akx.core.errors import ArgumentError, ArgumentTypeError, FileFormatError, MatrixError, brief, shown
from akx.core.io.archive import HARWELL_BOEING, read_content
from akx.core.io.harwell_boeing import harwell_boeing_bytes, is_harwell_boeing, read_harwell_boeing
from akx.core.io.mat_file import is_mat_file, read_mat_file, sparse_variables
from akx.core.io.matrix_market import matrix_market_bytes, read_matrix_market
from akx.core.io.npz import read_npz
from akx.core.io.stream import AGAIN, BINARY_TIMES, PathLike, check_rows, name_of, suffix_of
from akx.core.progress import working

__all__ = ["list_variables", "read_matrix", "read_vector", "write_matrix", "write_vector", "write_whole"]

#: How many times its bytes reading a text takes, with the matrix of it.
_TEXT_TIMES = 5


def read_matrix(path: PathLike, *, variable: str | None = None) -> sp.csr_array:
    """The sparse matrix in a file: a csr_array of shape (rows, columns), which need not be square.

    Parameters
    ----------
    path : str or os.PathLike
        Matrix Market (``.mtx``), Harwell-Boeing or Rutherford-Boeing (``.rsa``, ``.rua``, ``.hb``, ``.rb``, ...),
        ``scipy.sparse.save_npz`` (``.npz``), MATLAB up to version 7 (``.mat``); plain or compressed by gzip, bzip2 or
        xz; or a tar or zip archive with one of the texts, as the SuiteSparse collection ships them (``NAME.tar.gz``, of
        which ``NAME/NAME.mtx`` is taken and companions such as ``NAME_b.mtx`` are not).
    variable : str, optional
        Which variable of a ``.mat`` file (``"A"``, ``"Problem.A"``), or which member of an archive. Needed only where
        there are several.

    Notes
    -----
    Duplicates are summed, symmetric files expanded. The dtype is that of the file, but float16 becomes float32, and
    short integers become int64 (`Matrix` then makes that float64).

    Raises
    ------
    FileMissingError
        No such file.
    FileFormatError
        Not readable, truncated, damaged, unknown, contradicting its own header, or with several candidates.
    ArgumentError
        No such variable, or a `variable` for a file that has none.
    """
    name = name_of(path)
    try:
        with working(f"reading {os.path.basename(name)}"):
            raw, inner, is_member = read_content(path, partial(_needs, name), archives=True, member=variable)
            return _read_plain(raw, inner, name, None if is_member else variable)
    except MemoryError as error:
        found = shown(str(error)) or "no more of it"
        hint = "free some, or read it on a machine with more"
        raise FileFormatError(f"{name} does not fit the memory", found=found, hint=hint) from error


def list_variables(path: PathLike) -> dict[str, tuple[int, int]]:
    """Shapes of the sparse variables of a MATLAB file, by the names that :func:`read_matrix` takes."""
    raw, _, _ = read_content(path, lambda head, inner: (sys.maxsize, BINARY_TIMES))
    return sparse_variables(raw, name_of(path))


def read_vector(path: PathLike, *, several: bool = False) -> NDArray[Any]:
    """A vector, shape (n,), from a Matrix Market file with one column (or one row), array or coordinate.

    float64, complex128, or int64 where the file says integer. `several`: of a file with more columns all, shape (n, m).
    """
    name = name_of(path)
    raw, _, _ = read_content(path, lambda head, inner: (matrix_market_bytes(head, name), _TEXT_TIMES))
    matrix = read_matrix_market(raw, name)
    if several and 1 not in matrix.shape:
        return np.asarray(matrix.toarray())
    if 1 not in matrix.shape:
        found = f"{matrix.shape[0]} x {matrix.shape[1]}"
        hint = "read it with read_matrix"
        raise FileFormatError(f"{name} is not a vector", expected="one column", found=found, hint=hint)
    return np.asarray(matrix.toarray()).reshape(-1)


def write_vector(path: PathLike, x: ArrayLike, *, several: bool = False) -> None:
    """Write a vector, shape (n,), as a Matrix Market array of one column; ``.gz`` in the name compresses it.

    With `several` it may be vectors, (n, m), as its columns.
    Values are written with as many digits as it takes to read back the same bits. The file appears whole or not at all.
    """
    vector = np.asarray(x)
    if vector.ndim not in ((1, 2) if several else (1,)) or vector.dtype.kind not in "iufc":
        raise ArgumentError(
            "x is not a numeric vector", expected="shape (n,)", found=f"shape {vector.shape}, dtype {vector.dtype}"
        )
    _write(path, np.ascontiguousarray(vector.reshape(len(vector), -1) if vector.size else vector.reshape(-1, 1)))


def write_matrix(path: PathLike, A: Any) -> None:
    """Write a SciPy sparse matrix as a general Matrix Market coordinate file, or by ``save_npz`` where named .npz.

    ``.mtx.gz`` compresses it. The file appears whole or not at all.
    """
    if not sp.issparse(A):
        raise ArgumentTypeError("A is not sparse", expected="a scipy.sparse matrix or array", found=type(A).__name__)
    _write(path, A)


def _format(head: bytes, inner: str, name: str) -> str:
    """What begins with these bytes, by its content, then by its name."""
    suffix = suffix_of(inner)
    if is_mat_file(head) or suffix == ".mat":
        return "mat"
    if head.startswith(b"PK") or suffix == ".npz":
        return "npz"
    if head.startswith(b"\x93NUMPY"):
        hint = "save it with scipy.sparse.save_npz(file, scipy.sparse.csr_array(A))"
        raise FileFormatError(f"{name} is a dense NumPy array", expected="a sparse matrix", hint=hint)
    if head[:64].lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(b"%") or suffix == ".mtx":
        return "mtx"
    if suffix in HARWELL_BOEING or is_harwell_boeing(head):
        return "hb"
    expected = ".mtx, .rsa, .rua, .hb, .rb, .npz of scipy.sparse, .mat, .tar.gz or .zip"
    found = f"content that begins with {head[:16]!r}"
    hint = "convert it with scipy.io.mmwrite"
    raise FileFormatError(f"{name} is in no format that akx knows", expected=expected, found=found, hint=hint)


def _needs(name: str, head: bytes, inner: str) -> tuple[int | None, int]:
    """What a file can need that begins with these bytes."""
    kind = _format(head, inner, name)
    if kind in ("mtx", "hb"):
        return matrix_market_bytes(head, name) if kind == "mtx" else harwell_boeing_bytes(head), _TEXT_TIMES
    return sys.maxsize, BINARY_TIMES


def _read_plain(raw: bytes, inner: str, name: str, variable: str | None) -> sp.csr_array:
    kind = _format(raw, inner, name)
    if kind == "mat":
        return _to_csr(read_mat_file(raw, name, variable), name)
    if variable is not None:
        hint = "variable= is for .mat files and archives"
        raise ArgumentError(f"{name} has no variables", found=f"variable={brief(variable)}", hint=hint)
    if kind == "npz":
        return _to_csr(read_npz(raw, name), name)
    return read_matrix_market(raw, name) if kind == "mtx" else read_harwell_boeing(raw, name)


def _to_csr(A: Any, name: str) -> sp.csr_array:
    """CSR with duplicates summed, after the index arrays have been checked.

    Half precision becomes single, as SciPy's compiled code knows no half. Short integers become int64, as sums need it.
    """
    if A.dtype.kind not in "biufc":
        raise FileFormatError(f"{name} holds no matrix of numbers", found=shown(f"values of type {A.dtype}"))
    dtype = A.dtype.newbyteorder("=")
    dtype = np.dtype(np.float32) if dtype == np.float16 else dtype
    dtype = np.dtype(np.int64) if dtype.kind in "iu" and dtype.itemsize < 8 else dtype
    check_rows(A.shape[0], name)
    try:
        check_indices(A)
        csr = sp.csr_array(A.astype(dtype, copy=False).tocsr())
        csr.sum_duplicates()
    except (MatrixError, ValueError, TypeError, IndexError) as error:
        raise FileFormatError(f"{name} holds a broken matrix", found=str(error), hint=AGAIN) from error
    return csr


def write_whole(path: PathLike, content: bytes) -> None:
    """Write a file as a whole or not at all: what is there stays until all of the new one is. Raises OSError."""
    partial = Path(f"{os.fspath(path)}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def _write(path: PathLike, content: Any) -> None:
    name = name_of(path)
    lower = name.lower()
    if lower.endswith(".npz") and not sp.issparse(content):
        raise ArgumentError("a vector is not written as .npz", hint="name the file .mtx, or use numpy.savez")
    buffer = io.BytesIO()
    if lower.endswith(".npz"):
        sp.save_npz(buffer, content)
    else:
        scipy.io.mmwrite(buffer, content, symmetry="general")
    written = buffer.getvalue()
    if lower.endswith(".gz"):
        written = gzip.compress(written, mtime=0)
    try:
        write_whole(name, written)
    except OSError as error:
        raise FileFormatError(
            f"{name} cannot be written", found=error.strerror or str(error), hint="check the folder and its permissions"
        ) from error
