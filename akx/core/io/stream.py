"""What a file holds, read forwards: decompressed, and no more of it than its matrix can need.

A few bytes may claim, or unpack to, more than any memory. So content is read piece by piece, and no further than two
bounds allow. One is what a matrix of the sizes in the header can need. The other is the memory that is free: reading
takes several times what is read. Where no header says anything (the other members of a tar archive, a binary file that
is compressed once more), there may be 512 MiB, or 64 times the bytes of the file.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from copy import copy
from pathlib import PurePosixPath
from typing import Any

from akx.core.errors import ArgumentTypeError, FileFormatError, shown
from akx.core.process import available_bytes

__all__ = [
    "AGAIN",
    "BINARY_TIMES",
    "INFLATION",
    "PIECE",
    "Needs",
    "PathLike",
    "Stream",
    "check_rows",
    "decompressed",
    "in_words",
    "name_of",
    "suffix_of",
    "whole",
    "zip_member",
]

PathLike = str | os.PathLike[str]
#: What content needs that begins with these bytes, by the name of the file or member: bytes at most (None where its
#: header is not complete yet, sys.maxsize where it says nothing of that), and how many times that reading it takes.
Needs = Callable[[bytes, str], tuple[int | None, int]]

AGAIN = "write or download it again"
#: How many times its bytes reading a file takes that is no text.
BINARY_TIMES = 2
#: What deflate makes of a byte, at most.
INFLATION = 1032
#: Bytes that what stands before the sizes of a matrix may have, and the headers of an archive.
HEADER_BYTES = 16 * 1024**2
#: Bytes that content without a header may have, and times the bytes of the file.
UNTOLD_BYTES, UNTOLD_TIMES = 512 * 1024**2, 64
PIECE, HEAD, _MARK = 1024**2, 65536, 6
#: Kind, how content begins, suffix, and what unpacks it.
_COMPRESSIONS: tuple[tuple[str, bytes, str, Callable[[Any], Any]], ...] = (
    ("gzip", b"\x1f\x8b", ".gz", lambda packed: gzip.GzipFile(fileobj=packed)),
    ("bzip2", b"BZh", ".bz2", bz2.BZ2File),
    ("xz", b"\xfd7zXZ\x00", ".xz", lzma.LZMAFile),
)
#: Flag of a zip's member.
_HAS_END_MARK = 2


def name_of(path: PathLike) -> str:
    """The path as text."""
    if isinstance(path, str | os.PathLike):
        return os.fsdecode(path)
    raise ArgumentTypeError("path has the wrong type", expected="str or os.PathLike", found=type(path).__name__)


def suffix_of(name: str) -> str:
    """The suffix of a name in lower case, with its point."""
    return PurePosixPath(name).suffix.lower()


def in_words(count: int) -> str:
    """Bytes, for a message."""
    return f"{count / 1e9:.3g} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB"


def check_rows(rows: int, name: str) -> None:
    """Refuse a matrix whose rows alone, with nothing in them, do not fit half of the memory that is free."""
    need = (4 if rows < 2**31 else 8) * (rows + 1)
    room = available_bytes() // 2
    if room and need > room:
        expected = f"at most {in_words(room)} for its rows, half of what is free"
        found = f"{rows} rows, which take {in_words(need)}"
        hint = "correct the sizes, or read it on a machine with more"
        raise FileFormatError(f"{name} does not fit the memory", expected=expected, found=found, hint=hint)


class Stream:
    """Content that is read forwards; `ahead` comes before what `read` gives."""

    def __init__(self, read: Callable[[int], bytes], ahead: bytes = b"") -> None:
        self._read, self._ahead, self._position = read, ahead, 0

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, which are read again; fewer at the end."""
        while len(self._ahead) < size and (part := self._read(size - len(self._ahead))):
            self._ahead += part
        return self._ahead[:size]

    def read(self, size: int = -1) -> bytes:
        """The next `size` bytes; fewer at the end."""
        part = self.peek(size) if size > 0 else b""
        self._ahead = self._ahead[len(part) :]
        self._position += len(part)
        return part

    def tell(self) -> int:
        """Bytes read so far."""
        return self._position

    def seek(self, place: int) -> int:
        """Read on up to `place`, or to the end."""
        if place < self._position:
            raise tarfile.ReadError("a member lies before another")
        while self._position < place and self.read(min(PIECE, place - self._position)):
            pass
        return self._position


def decompressed(read: Callable[[int], bytes], name: str) -> tuple[Stream, str, bool]:
    """The content, its name without the compression's suffix, and whether it was compressed."""
    stream = Stream(read)
    mark = stream.peek(_MARK)
    for kind, begin, suffix, unpack in _COMPRESSIONS:
        if mark.startswith(begin):
            inner = name[: -len(suffix)] if name.lower().endswith(suffix) else name
            return _unpacked(unpack(stream), kind, name), inner, True
        if mark and name.lower().endswith((suffix, ".tgz") if kind == "gzip" else suffix):
            hint = f"rename it without {suffix}, or {AGAIN}"
            raise FileFormatError(f"{name} is named {suffix} but is not compressed by {kind}", hint=hint)
    return stream, name, False


def _unpacked(content: Any, kind: str, name: str) -> Stream:
    """What a reader of Python unpacks; whatever it complains of is a FileFormatError."""

    def read(size: int) -> bytes:
        try:
            return bytes(content.read(size))
        except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
            raise FileFormatError(
                f"{name} is truncated or damaged", found=f"{kind} says: {error}", hint=AGAIN
            ) from error

    return Stream(read)


def zip_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> Stream:
    """The content of a member of a zip archive, unpacked piece by piece; zipfile does so with what is deflated alone.

    Raises :class:`zipfile.BadZipFile` where it cannot be as long as the table says, :class:`FileFormatError` where it
    needs a password, or another reader.
    """
    method = member.compress_type
    most = {zipfile.ZIP_STORED: member.compress_size, zipfile.ZIP_DEFLATED: INFLATION * (member.compress_size + 1)}
    if member.file_size > most.get(method, sys.maxsize):
        raise zipfile.BadZipFile(f"{in_words(member.file_size)} in {member.compress_size} bytes")
    packed = copy(member)
    if method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):  # as it lies there
        packed.compress_type, packed.file_size = zipfile.ZIP_STORED, member.compress_size
        del packed.CRC  # which is that of its content
    try:
        if method not in (*most, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
            raise NotImplementedError(f"compression method {method}")
        stream = Stream(archive.open(packed).read)
    except RuntimeError as error:
        raise FileFormatError(
            f"{name} is packed in a way that akx does not read",
            expected="a zip archive without a password, compressed by deflate, bzip2 or LZMA",
            found="a password" if member.flag_bits & 1 else shown(str(error)),
            hint="unpack it, and read the matrix in it",
        ) from error
    if method in most:
        return stream
    if method == zipfile.ZIP_BZIP2:
        return _unpacked(bz2.BZ2File(stream), "bzip2", name)  # type: ignore[call-overload]
    told = stream.read(4)  # the version, and the length of the properties
    size = 2**64 - 1 if member.flag_bits & _HAS_END_MARK else member.file_size
    head = stream.read(int.from_bytes(told[2:], "little")) + size.to_bytes(8, "little")
    alone: Any = Stream(stream.read, head)
    return _unpacked(lzma.LZMAFile(alone, format=lzma.FORMAT_ALONE), "lzma", name)


def whole(stream: Stream, inner: str, name: str, needs: Needs, size: int | None, untold: int) -> bytes:
    """All that a stream holds, unless its header or the memory forbids; `size` is None where it is not known before."""
    head = stream.peek(HEAD + 1)
    if len(head) <= HEAD:
        return stream.read(len(head))
    pieces: list[bytes] = []
    have, most = 0, 0
    while piece := stream.read(max(PIECE, size - have + 1) if size and most >= size else PIECE):
        pieces.append(piece)
        have += len(piece)
        if have > most:
            first = b"".join(pieces[: HEADER_BYTES // PIECE + 1])[: HEADER_BYTES + 1]
            most = _allowed(have, name, *needs(first, inner), size, untold)
    return b"".join(pieces)


def _allowed(have: int, name: str, most: int | None, times: int, size: int | None, untold: int) -> int:
    """Bytes up to which content is read on, of which there are `have`; raises where it may not have so many."""
    found = in_words(size) if size else "more"
    room = available_bytes() // times or sys.maxsize
    if max(have, size or 0) > room:
        expected = f"at most {in_words(room)}, as reading takes {times} times that"
        advice = "free some, or read it on a machine with more"
        raise FileFormatError(f"{name} does not fit the memory", expected=expected, found=found, hint=advice)
    if most is None:
        if have > HEADER_BYTES:
            expected = f"the sizes of the matrix within {in_words(HEADER_BYTES)}"
            advice = f"shorten its comments, or {AGAIN}"
            raise FileFormatError(f"{name} has no end of its header", expected=expected, hint=advice)
        return min(HEADER_BYTES, room)
    reason, hint = "a matrix of the sizes in its header can need", f"correct the sizes, or {AGAIN}"
    if most == sys.maxsize and size is None:
        most, reason, hint = untold, "a file of its size should unpack to", "unpack it, and read what is in it"
    if max(have, size or 0) > most:
        raise FileFormatError(
            f"{name} holds more than {reason}", expected=f"at most {in_words(most)}", found=found, hint=hint
        )
    return min(most, room)
