"""Sparse matrices that ``scipy.sparse.save_npz`` wrote: checked here, read by SciPy.

An archive may claim more than it holds, and NumPy makes room for what is claimed. So the header of each array is
compared with the bytes that the archive has of it before anything is read.
"""

from __future__ import annotations

import io
import math
import zipfile
from typing import Any

import numpy as np
import scipy.sparse as sp

from akx.core.errors import AkxError, FileFormatError, listed, shown
from akx.core.io.stream import BINARY_TIMES, in_words, zip_member
from akx.core.process import available_bytes

__all__ = ["read_npz"]

_NPZ_ARRAYS = {"data", "indices", "indptr", "row", "col", "coords", "offsets", "shape", "format"}


def read_npz(raw: bytes, name: str) -> Any:
    """The SciPy matrix in the content `raw` of the file `name`. Raises FileFormatError."""
    try:
        return sp.load_npz(_checked_npz(raw, name))
    except (AkxError, MemoryError):
        raise
    except Exception as error:
        foreign = isinstance(error, (ValueError, KeyError)) and zipfile.is_zipfile(io.BytesIO(raw))
        raise FileFormatError(
            f"{name} was not written by scipy.sparse.save_npz" if foreign else f"{name} is truncated or damaged",
            found=_npz_names(raw) if foreign else shown(f"{type(error).__name__}: {error}", 160),
            hint="write it with scipy.sparse.save_npz(file, A)",
        ) from error


def _checked_npz(raw: bytes, name: str) -> io.BytesIO:
    """The archive for SciPy; arrays that are not there as their headers say, or do not go together, are refused."""
    lengths: dict[str, int] = {}
    total, wrong = 0, ""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        for member in archive.infolist():
            key = member.filename.removesuffix(".npy")
            if key not in _NPZ_ARRAYS:
                continue
            if member.compress_type not in (
                zipfile.ZIP_STORED,
                zipfile.ZIP_DEFLATED,
            ):  # zipfile bounds the size of these
                found, hint = f"compression method {member.compress_type}", "unpack it, and read the matrix in it"
                raise FileFormatError(f"{name} is packed in a way that akx does not read", found=found, hint=hint)
            stream: Any = zip_member(archive, member, name)
            version, _ = np.lib.format.read_magic(stream)
            shape, _, dtype = (
                np.lib.format.read_array_header_1_0(stream)
                if version == 1
                else np.lib.format.read_array_header_2_0(stream)
            )
            claimed, held = math.prod(shape) * dtype.itemsize, member.file_size - stream.tell()
            if not dtype.hasobject and claimed != held:
                wrong = f"{key} of {claimed} bytes, where the archive has {min(held, member.compress_size)}"
            total += claimed
            lengths[key] = (shape[-1] if key == "coords" else shape[0]) if shape else 1
    entries = {lengths[key] for key in ("data", "indices", "row", "col", "coords") if key in lengths}
    if not wrong and len(entries) > 1 and "offsets" not in lengths:
        wrong = f"arrays of {' and '.join(map(str, sorted(entries)))} entries"
    if wrong:
        raise FileFormatError(
            f"{name} is truncated or damaged", found=wrong, hint="write it with scipy.sparse.save_npz(file, A)"
        )
    room = available_bytes() // BINARY_TIMES
    if room and total > room:
        expected = f"at most {in_words(room)} of arrays, half of what is free"
        advice = "free some, or read it on a machine with more"
        raise FileFormatError(f"{name} does not fit the memory", expected=expected, found=in_words(total), hint=advice)
    return io.BytesIO(raw)


def _npz_names(raw: bytes) -> str:
    try:
        archive = zipfile.ZipFile(io.BytesIO(raw))
    except (zipfile.BadZipFile, ValueError, OSError) as error:  # its end looks well, its table of contents does not
        return shown(f"{type(error).__name__}: {error}", 160)
    with archive:
        return "arrays " + (listed(n.removesuffix(".npy") for n in archive.namelist()) or "none")
