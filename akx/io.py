"""Reading matrices from files, and vectors from and to them.

What a file is follows from its content first and from its name second: compression (gzip, bzip2, xz) and archives (tar)
by their marks, then NumPy, MATLAB, Matrix Market, Harwell-Boeing. The file is read into memory whole, decompressed
there, checked, and handed to SciPy's readers; nothing is ever extracted to disk. Whatever goes wrong is an
:class:`~akx.errors.AkxError` that names the file, where possible the line, and the cure.

See ``docs/input.md`` for the formats.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from akx._canonical import check_indices
from akx._harwell_boeing import is_harwell_boeing, read_harwell_boeing
from akx._mat_file import is_mat_file, read_mat_file, sparse_variables
from akx._matrix_market import read_matrix_market
from akx.errors import ArgumentError, ArgumentTypeError, FileFormatError, FileMissingError, MatrixError

__all__ = ["list_variables", "read_matrix", "read_vector", "write_matrix", "write_vector", "write_whole"]

PathLike = str | os.PathLike[str]

_COMPRESSIONS: tuple[tuple[str, bytes, str, Callable[[bytes], bytes]], ...] = (
    ("gzip", b"\x1f\x8b", ".gz", gzip.decompress),
    ("bzip2", b"BZh", ".bz2", bz2.decompress),
    ("xz", b"\xfd7zXZ\x00", ".xz", lzma.decompress),
)
_DECOMPRESSION_ERRORS = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
_HARWELL_BOEING = {".hb", ".rb"} | {f".{a}{b}{c}" for a in "rcpi" for b in "suhzr" for c in "ae"}
_TEXT_MEMBERS = {".mtx", *_HARWELL_BOEING}
_AGAIN = "write or download it again"


def read_matrix(path: PathLike, *, variable: str | None = None) -> sp.csr_array:
    """The sparse matrix in a file.

    Parameters
    ----------
    path : str or os.PathLike
        Matrix Market (``.mtx``), Harwell-Boeing or Rutherford-Boeing (``.rsa``, ``.rua``, ``.hb``, ``.rb``, ...),
        ``scipy.sparse.save_npz`` (``.npz``), MATLAB up to version 7 (``.mat``); plain or compressed by gzip, bzip2 or
        xz; or a tar archive with one of them, as the SuiteSparse collection ships them (``NAME.tar.gz``, of which
        ``NAME/NAME.mtx`` is taken and companions such as ``NAME_b.mtx`` are not).
    variable : str, optional
        Which variable of a ``.mat`` file (``"A"``, ``"Problem.A"``), or which member of an archive. Needed only where
        there are several.

    Returns
    -------
    scipy.sparse.csr_array, shape (rows, columns)
        Duplicates summed, symmetric files expanded; rectangular matrices too. The dtype is that of the file:
        float64, complex128, or an integer type (:class:`akx.matrix.Matrix` then makes that float64).

    Raises
    ------
    FileMissingError
        No such file.
    FileFormatError
        Not readable, truncated, damaged, unknown, contradicting its own header, or with several candidates.
    ArgumentError
        No such variable, or a `variable` for a file that has none.
    """
    raw, inner = _decompressed(_read(path), _name(path))
    if raw[257:262] == b"ustar" or _suffix(inner) in (".tar", ".tgz"):
        raw, inner = _member(raw, variable, _name(path))
        variable = None
    return _read_plain(raw, inner, _name(path), variable)


def list_variables(path: PathLike) -> dict[str, tuple[int, int]]:
    """Shapes of the sparse variables of a MATLAB file, by the names that :func:`read_matrix` takes."""
    raw, _ = _decompressed(_read(path), _name(path))
    return sparse_variables(raw, _name(path))


def read_vector(path: PathLike) -> NDArray[Any]:
    """A vector, shape (n,), from a Matrix Market file with one column (or one row), array or coordinate.

    float64, complex128, or int64 where the file says integer.
    """
    name = _name(path)
    raw, _ = _decompressed(_read(path), name)
    matrix = read_matrix_market(raw, name)
    if 1 not in matrix.shape:
        raise FileFormatError(
            f"{name} is not a vector",
            expected="one column",
            found=f"{matrix.shape[0]} x {matrix.shape[1]}",
            hint="read it with read_matrix",
        )
    return np.asarray(matrix.toarray()).reshape(-1)


def write_vector(path: PathLike, x: ArrayLike) -> None:
    """Write a vector, shape (n,), as a Matrix Market array of one column; ``.gz`` in the name compresses it.

    Values are written with as many digits as it takes to read back the same bits. The file appears whole or not at all.
    """
    vector = np.asarray(x)
    if vector.ndim != 1 or vector.dtype.kind not in "iufc":
        raise ArgumentError(
            "x is not a numeric vector", expected="shape (n,)", found=f"shape {vector.shape}, dtype {vector.dtype}"
        )
    _write(path, np.ascontiguousarray(vector.reshape(-1, 1)))


def write_matrix(path: PathLike, A: Any) -> None:
    """Write a SciPy sparse matrix as a general Matrix Market coordinate file, or by ``save_npz`` where named .npz.

    ``.mtx.gz`` compresses it. The file appears whole or not at all.
    """
    if not sp.issparse(A):
        raise ArgumentTypeError("A is not sparse", expected="a scipy.sparse matrix or array", found=type(A).__name__)
    _write(path, A)


def _name(path: PathLike) -> str:
    if isinstance(path, str | os.PathLike):
        return os.fsdecode(path)
    raise ArgumentTypeError("path has the wrong type", expected="str or os.PathLike", found=type(path).__name__)


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _read(path: PathLike) -> bytes:
    name = _name(path)
    try:
        raw = Path(name).read_bytes()
    except FileNotFoundError as error:
        raise FileMissingError(f"{name} does not exist", hint="check the path") from error
    except IsADirectoryError as error:
        raise FileFormatError(f"{name} is a directory", expected="a matrix file", hint="name a file in it") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        hint = "check its permissions" if isinstance(error, PermissionError) else "check the path and the disk"
        raise FileFormatError(f"{name} cannot be read", found=reason, hint=hint) from error
    if not raw:
        raise FileFormatError(f"{name} is empty", found="0 bytes", hint=_AGAIN)
    return raw


def _decompressed(raw: bytes, name: str) -> tuple[bytes, str]:
    """The content, and the name without the compression's suffix."""
    for kind, mark, suffix, decompress in _COMPRESSIONS:
        if raw.startswith(mark):
            try:
                content = decompress(raw)
            except _DECOMPRESSION_ERRORS as error:
                raise FileFormatError(
                    f"{name} is truncated or damaged", found=f"{kind} says: {error}", hint=_AGAIN
                ) from error
            if not content:
                raise FileFormatError(f"{name} is empty", found="0 bytes after decompression", hint=_AGAIN)
            return content, name[: -len(suffix)] if name.lower().endswith(suffix) else name
        if name.lower().endswith((suffix, ".tgz") if kind == "gzip" else suffix):
            raise FileFormatError(
                f"{name} is named {suffix} but is not compressed by {kind}",
                hint=f"rename it without {suffix}, or {_AGAIN}",
            )
    return raw, name


def _member(raw: bytes, variable: str | None, name: str) -> tuple[bytes, str]:
    """The matrix in a tar archive, and its name there. Only regular files are looked at, and only in memory."""
    try:
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as archive:
            members = [m for m in archive.getmembers() if m.isreg() and _suffix(m.name) in _TEXT_MEMBERS]
            chosen = _choose(members, variable, name)
            stream = archive.extractfile(chosen)
            return (stream.read() if stream is not None else b""), chosen.name
    except (tarfile.TarError, OSError, EOFError) as error:
        raise FileFormatError(f"{name} is truncated or damaged", found=f"tar says: {error}", hint=_AGAIN) from error


def _choose(members: list[tarfile.TarInfo], variable: str | None, name: str) -> tarfile.TarInfo:
    paths = {m: PurePosixPath(m.name) for m in members}
    listing = ", ".join(m.name for m in members)
    if variable is not None:
        named = [m for m, p in paths.items() if variable in (m.name, p.name, p.stem)]
        if len(named) != 1:
            raise ArgumentError(f"{name} has no member {variable!r}", expected=listing.replace(", ", " or ") or None)
        return named[0]
    main = [m for m, p in paths.items() if p.stem == p.parent.name]
    stems = {p.stem for p in paths.values()}
    alone = [m for m, p in paths.items() if not any(p.stem.startswith(f"{s}_") for s in stems)]
    for candidates in (main, alone):
        if len(candidates) == 1:
            return candidates[0]
    if not members:
        raise FileFormatError(
            f"{name} holds no matrix", expected="NAME/NAME.mtx or NAME/NAME.rb", hint="check the archive"
        )
    raise FileFormatError(
        f"{name} holds several matrices", found=listing, hint=f'choose one, for example variable="{members[0].name}"'
    )


def _read_plain(raw: bytes, inner: str, name: str, variable: str | None) -> sp.csr_array:
    """Decide by content, then by name, what `raw` is, and read it."""
    suffix = _suffix(inner)
    if is_mat_file(raw) or suffix == ".mat":
        return _to_csr(read_mat_file(raw, name, variable), name)
    if variable is not None:
        raise ArgumentError(
            f"{name} has no variables", found=f"variable={variable!r}", hint="variable= is for .mat files and archives"
        )
    if raw.startswith(b"PK") or suffix == ".npz":
        return _to_csr(_read_npz(raw, name), name)
    if raw.startswith(b"\x93NUMPY"):
        raise FileFormatError(
            f"{name} is a dense NumPy array",
            expected="a sparse matrix",
            hint="save it with scipy.sparse.save_npz(file, scipy.sparse.csr_array(A))",
        )
    if raw[:64].lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(b"%") or suffix == ".mtx":
        return read_matrix_market(raw, name)
    if suffix in _HARWELL_BOEING or is_harwell_boeing(raw):
        return read_harwell_boeing(raw, name)
    raise FileFormatError(
        f"{name} is in no format that akx knows",
        expected=".mtx, .rsa, .rua, .hb, .rb, .npz of scipy.sparse, .mat or .tar.gz",
        found=f"content that begins with {raw[:16]!r}",
        hint="convert it with scipy.io.mmwrite",
    )


def _read_npz(raw: bytes, name: str) -> Any:
    try:
        return sp.load_npz(io.BytesIO(raw))
    except Exception as error:
        foreign = isinstance(error, (ValueError, KeyError)) and zipfile.is_zipfile(io.BytesIO(raw))
        raise FileFormatError(
            f"{name} was not written by scipy.sparse.save_npz" if foreign else f"{name} is truncated or damaged",
            found=_npz_names(raw) if foreign else f"{type(error).__name__}: {error}",
            hint="write it with scipy.sparse.save_npz(file, A)",
        ) from error


def _npz_names(raw: bytes) -> str:
    try:
        archive = zipfile.ZipFile(io.BytesIO(raw))
    except (zipfile.BadZipFile, ValueError, OSError) as error:  # its end looks well, its table of contents does not
        return f"{type(error).__name__}: {error}"
    with archive:
        return "arrays " + (", ".join(n.removesuffix(".npy") for n in archive.namelist()) or "none")


def _to_csr(A: Any, name: str) -> sp.csr_array:
    """CSR with duplicates summed, after the index arrays have been checked."""
    try:
        check_indices(A)
        csr = sp.csr_array(A.tocsr())
        csr.sum_duplicates()
    except (MatrixError, ValueError, TypeError, IndexError) as error:
        raise FileFormatError(f"{name} holds a broken matrix", found=str(error), hint=_AGAIN) from error
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
    name = _name(path)
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
