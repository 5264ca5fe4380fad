"""What a file holds, read forwards: decompressed, and no more of it than its matrix can need.

A few bytes may claim, or unpack to, more than any memory. So content is read piece by piece, and no further than two
bounds allow. One is what a matrix of the sizes in the header can need. The other is the memory that is free: reading
takes several times what is read. Where no header says anything (the other members of a tar archive, a binary file that
is compressed once more), there may be 512 MiB, or 64 times the bytes of the file.
"""

from __future__ import annotations

import bz2
import lzma
import os
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from akx.core.errors import ArgumentTypeError, FileFormatError, shown
from akx.core.process import available_bytes

__all__ = [
    "AGAIN",
    "BINARY_TIMES",
    "INFLATION",
    "PIECE",
    "Need",
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

AGAIN = "write or download it again"
#: How many times its bytes reading a file takes that is no text.
BINARY_TIMES = 2
#: What deflate makes of a byte, at most.
INFLATION = 1032
#: Bytes that what stands before the sizes of a matrix may have, and the headers of an archive.
HEADER_BYTES = 16 * 1024**2
#: Bytes that content without a header may have, and times the bytes of the file.
UNTOLD_BYTES, UNTOLD_TIMES = 512 * 1024**2, 64
#: The dictionary of xz, at most; its preset -9 has 64 MiB.
_XZ_BYTES = 1024**3
PIECE, HEAD, _MARK = 1024**2, 65536, 6


@dataclass(frozen=True)
class Need:
    """What content can need.

    Attributes
    ----------
    most : int or None
        Bytes at most; None where its header is not complete yet, sys.maxsize where it says nothing of that.
    times : int
        How many times its bytes reading it takes.
    """

    most: int | None
    times: int


#: What content needs that begins with these bytes, by the name of the file or member; raises where it has no format.
Needs = Callable[[bytes, str], Need]


@dataclass(frozen=True)
class _Compression:
    kind: str
    mark: bytes
    suffix: str
    make: Callable[[], Any]


_COMPRESSIONS = (
    _Compression("gzip", b"\x1f\x8b", ".gz", lambda: zlib.decompressobj(wbits=31)),
    _Compression("bzip2", b"BZh", ".bz2", bz2.BZ2Decompressor),
    _Compression("xz", b"\xfd7zXZ\x00", ".xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_BYTES)),
)
_ZIP_BZIP2 = _Compression("bzip2", b"", "", bz2.BZ2Decompressor)
_ZIP_LZMA = _Compression("lzma", b"", "", lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=_XZ_BYTES))
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
        raise FileFormatError(
            f"{name} does not fit the memory",
            expected=f"at most {in_words(room)} for its rows, half of what is free",
            found=f"{rows} rows, which take {in_words(need)}",
            hint="correct the sizes, or read it on a machine with more",
        )


class Stream:
    """Content that is read forwards."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read, self._ahead, self._position = read, b"", 0

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, which are read again; fewer at the end."""
        if size <= 0:  # decompressors take 0 for no limit, or for ever
            return b""
        if not self._ahead:
            self._ahead = self._read(size)
        while len(self._ahead) < size and (part := self._read(size - len(self._ahead))):
            self._ahead += part
        return self._ahead[:size]

    def read(self, size: int) -> bytes:
        """The next `size` bytes; fewer at the end."""
        part = self.peek(size)
        self._ahead = self._ahead[size:]
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
    for compression in _COMPRESSIONS:
        kind, suffix = compression.kind, compression.suffix
        if mark.startswith(compression.mark):
            inner = name[: -len(suffix)] if name.lower().endswith(suffix) else name
            return Stream(_Inflated(stream, compression, name).read), inner, True
        if mark and name.lower().endswith((suffix, ".tgz") if kind == "gzip" else suffix):
            raise FileFormatError(
                f"{name} is named {suffix} but is not compressed by {kind}",
                hint=f"rename it without {suffix}, or {AGAIN}",
            )
    return stream, name, False


def zip_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> Stream:
    """The content of a member of a zip archive, unpacked piece by piece; zipfile does so with what is deflated alone.

    Raises
    ------
    zipfile.BadZipFile
        It cannot be as long as the table says.
    FileFormatError
        It needs a password, or another reader.
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
        return Stream(_Inflated(stream, _ZIP_BZIP2, name).read)
    told = stream.read(4)  # the version, and the length of the properties
    size = 2**64 - 1 if member.flag_bits & _HAS_END_MARK else member.file_size
    head = stream.read(int.from_bytes(told[2:], "little")) + size.to_bytes(8, "little")
    return Stream(_Inflated(stream, _ZIP_LZMA, name, head).read)


class _Inflated:
    """What compressed streams, one behind another, unpack to."""

    def __init__(self, stream: Stream, compression: _Compression, name: str, head: bytes = b"") -> None:
        self._stream, self._compression, self._name = stream, compression, name
        self._decoder, self._pending, self._ended = compression.make(), head, False

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end."""
        try:
            while not self._ended:
                if self._decoder.eof:
                    self._begin_next()
                    continue
                wants = getattr(self._decoder, "needs_input", True)
                data = self._pending or (self._stream.read(PIECE) if wants else b"")
                out: bytes = self._decoder.decompress(data, size)
                self._pending = getattr(self._decoder, "unconsumed_tail", b"")
                if out:
                    return out
                if wants and not data and not self._decoder.eof:
                    raise EOFError("the compressed data ends before its end mark")
        except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
            raise FileFormatError(
                f"{self._name} is truncated or damaged", found=f"{self._compression.kind} says: {error}", hint=AGAIN
            ) from error
        return b""

    def _begin_next(self) -> None:
        """Go on with the stream behind one that has ended, where there is one."""
        rest = self._decoder.unused_data.lstrip(b"\0")  # zeros may fill up a block
        while len(rest) < _MARK and (more := self._stream.read(PIECE)):
            rest = (rest + more).lstrip(b"\0")
        if self._compression.mark and rest.startswith(self._compression.mark):
            self._decoder, self._pending = self._compression.make(), rest
        elif rest and self._compression.kind == "gzip":
            raise ValueError(f"what follows its end is no gzip: {rest[:8]!r}")
        else:  # bzip2 and xz leave alone what follows
            self._ended = True


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
            most = _allowed(have, name, needs(first, inner), size, untold)
    return b"".join(pieces)


def _allowed(have: int, name: str, need: Need, size: int | None, untold: int) -> int:
    """Bytes up to which content is read on, of which there are `have`; raises where it may not have so many."""
    found = in_words(size) if size else "more"
    room = available_bytes() // need.times or sys.maxsize
    if max(have, size or 0) > room:
        raise FileFormatError(
            f"{name} does not fit the memory",
            expected=f"at most {in_words(room)}, as reading takes {need.times} times that",
            found=found,
            hint="free some, or read it on a machine with more",
        )
    if need.most is None:
        if have > HEADER_BYTES:
            raise FileFormatError(
                f"{name} has no end of its header",
                expected=f"the sizes of the matrix within {in_words(HEADER_BYTES)}",
                hint=f"shorten its comments, or {AGAIN}",
            )
        return min(HEADER_BYTES, room)
    most, reason, hint = need.most, "a matrix of the sizes in its header can need", f"correct the sizes, or {AGAIN}"
    if most == sys.maxsize and size is None:
        most, reason, hint = untold, "a file of its size should unpack to", "unpack it, and read what is in it"
    if max(have, size or 0) > most:
        raise FileFormatError(
            f"{name} holds more than {reason}", expected=f"at most {in_words(most)}", found=found, hint=hint
        )
    return min(most, room)
