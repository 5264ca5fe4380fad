"""The content of a matrix file: decompressed, out of an archive, and no more of it than its matrix can need.

A few bytes may claim, or unpack to, more than any memory. So a file is read forwards, piece by piece, and no further
than two bounds allow. One is what a matrix of the sizes in the header can need. The other is the memory that is free:
reading takes several times what is read. Where no header says anything (the other members of a tar archive, a binary
file that is compressed once more), there may be 512 MiB, or 64 times the bytes of the file.
"""

from __future__ import annotations

import bz2
import io
import lzma
import os
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

from akx._process import available_bytes
from akx.errors import AkxError, ArgumentError, ArgumentTypeError, FileFormatError, FileMissingError, listed, shown

__all__ = [
    "AGAIN",
    "HARWELL_BOEING",
    "INFLATION",
    "Need",
    "PathLike",
    "in_words",
    "name_of",
    "read_content",
    "suffix_of",
]

PathLike = str | os.PathLike[str]

HARWELL_BOEING = {".hb", ".rb"} | {f".{a}{b}{c}" for a in "rcpi" for b in "suhzr" for c in "ae"}
AGAIN = "write or download it again"
#: What deflate makes of a byte, at most.
INFLATION = 1032
_TEXT_MEMBERS = {".mtx", *HARWELL_BOEING}
#: Bytes that what stands before the sizes of a matrix may have, and the headers of an archive.
_HEADER_BYTES = 16 * 1024**2
#: Bytes that content without a header may have, and times the bytes of the file.
_UNTOLD_BYTES, _UNTOLD_TIMES = 512 * 1024**2, 64
#: The dictionary of xz, at most; its preset -9 has 64 MiB.
_XZ_BYTES = 1024**3
#: Bytes of a name in a file system, at most.
_NAME_BYTES = 255
#: Letters of a foreign reader's reason, at most.
_REASON = 160
_PIECE, _HEAD, _MARK = 1024**2, 65536, 6


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


def read_content(
    path: PathLike, needs: Needs, *, archives: bool = False, member: str | None = None
) -> tuple[bytes, str, bool]:
    """The content of a file, its name, and whether it is a member of an archive.

    Parameters
    ----------
    path : str or os.PathLike
    needs : callable
        What content can need, by its first bytes and its name.
    archives : bool
        Whether the content of a tar or zip archive is the matrix in it.
    member : str, optional
        Which one.
    """
    name = name_of(path)
    try:
        with Path(name).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            stream, inner, is_compressed = _decompressed(file.read, name)
            head = stream.peek(_HEAD)
            if not head:
                found = "0 bytes after decompression" if is_compressed else "0 bytes"
                raise FileFormatError(f"{name} is empty", found=found, hint=AGAIN)
            untold = max(_UNTOLD_BYTES, _UNTOLD_TIMES * size)
            if archives and (head[257:262] == b"ustar" or suffix_of(inner) in (".tar", ".tgz")):
                return *_tar_member(stream, member, name, needs, untold), True
            content = _whole(stream, inner, name, needs, None if is_compressed else size, untold)
    except AkxError:
        raise
    except FileNotFoundError as error:
        raise FileMissingError(f"{name} does not exist", hint="check the path") from error
    except IsADirectoryError as error:
        raise FileFormatError(f"{name} is a directory", expected="a matrix file", hint="name a file in it") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        hint = "check its permissions" if isinstance(error, PermissionError) else "check the path and the disk"
        raise FileFormatError(f"{name} cannot be read", found=reason, hint=hint) from error
    in_zip = _zip_member(content, member, name, needs) if archives and content.startswith(b"PK") else None
    return (content, inner, False) if in_zip is None else (*in_zip, True)


class _Stream:
    """Content that is read forwards."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read, self._ahead, self._position = read, b"", 0

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, which are read again; fewer at the end."""
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
        while self._position < place and self.read(min(_PIECE, place - self._position)):
            pass
        return self._position


def _decompressed(read: Callable[[int], bytes], name: str) -> tuple[_Stream, str, bool]:
    """The content, its name without the compression's suffix, and whether it was compressed."""
    stream = _Stream(read)
    mark = stream.peek(_MARK)
    for compression in _COMPRESSIONS:
        kind, suffix = compression.kind, compression.suffix
        if mark.startswith(compression.mark):
            inner = name[: -len(suffix)] if name.lower().endswith(suffix) else name
            return _Stream(_Inflated(stream, compression, name).read), inner, True
        if mark and name.lower().endswith((suffix, ".tgz") if kind == "gzip" else suffix):
            raise FileFormatError(
                f"{name} is named {suffix} but is not compressed by {kind}",
                hint=f"rename it without {suffix}, or {AGAIN}",
            )
    return stream, name, False


class _Inflated:
    """What compressed streams, one behind another, unpack to."""

    def __init__(self, stream: _Stream, compression: _Compression, name: str) -> None:
        self._stream, self._compression, self._name = stream, compression, name
        self._decoder, self._pending, self._ended = compression.make(), b"", False

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end."""
        try:
            while not self._ended:
                if self._decoder.eof:
                    self._begin_next()
                    continue
                wants = getattr(self._decoder, "needs_input", True)
                data = self._pending or (self._stream.read(_PIECE) if wants else b"")
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
        while len(rest) < _MARK and (more := self._stream.read(_PIECE)):
            rest = (rest + more).lstrip(b"\0")
        if rest.startswith(self._compression.mark):
            self._decoder, self._pending = self._compression.make(), rest
        elif rest and self._compression.kind == "gzip":
            raise ValueError(f"what follows its end is no gzip: {rest[:8]!r}")
        else:  # bzip2 and xz leave alone what follows
            self._ended = True


def _whole(stream: _Stream, inner: str, name: str, needs: Needs, size: int | None, untold: int) -> bytes:
    """All that a stream holds, unless its header or the memory forbids; `size` is None where it is not known before."""
    head = stream.peek(_HEAD + 1)
    if len(head) <= _HEAD:
        return stream.read(len(head))
    pieces: list[bytes] = []
    have, most = 0, 0
    while piece := stream.read(max(_PIECE, size - have + 1) if size and most >= size else _PIECE):
        pieces.append(piece)
        have += len(piece)
        if have > most:
            first = b"".join(pieces[: _HEADER_BYTES // _PIECE + 1])[: _HEADER_BYTES + 1]
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
        if have > _HEADER_BYTES:
            raise FileFormatError(
                f"{name} has no end of its header",
                expected=f"the sizes of the matrix within {in_words(_HEADER_BYTES)}",
                hint=f"shorten its comments, or {AGAIN}",
            )
        return min(_HEADER_BYTES, room)
    most, reason, hint = need.most, "a matrix of the sizes in its header can need", f"correct the sizes, or {AGAIN}"
    if most == sys.maxsize and size is None:
        most, reason, hint = untold, "a file of its size should unpack to", "unpack it, and read what is in it"
    if max(have, size or 0) > most:
        raise FileFormatError(
            f"{name} holds more than {reason}", expected=f"at most {in_words(most)}", found=found, hint=hint
        )
    return min(most, room)


class _Choice:
    """Which member of an archive is its matrix, as names come.

    ``NAME/NAME.mtx`` comes before others, and companions (``NAME_b.mtx`` beside ``NAME.mtx``) never count, unless one
    is wanted by its name. One that is chosen, and then no more, is not chosen again.
    """

    def __init__(self, wanted: str | None) -> None:
        self.names: list[str] = []
        self.chosen: str | None = None
        self._wanted, self._matches = wanted, 0
        self._main = False  # whether one is NAME/NAME.mtx, so that only such ones count
        self._stems: set[str] = set()
        self._ends: tuple[str, ...] = ()  # least and greatest stem of no companion: what both begin with all do

    def add(self, name: str) -> bool:
        """Whether the one just seen is chosen now."""
        path = PurePosixPath(name)
        stem = path.stem
        if path.suffix.lower() not in _TEXT_MEMBERS or path.name.startswith("._") or len(path.name) > _NAME_BYTES:
            return False  # macOS keeps notes on a.mtx in ._a.mtx
        self.names.append(name)
        if self._wanted is not None:
            is_match = self._wanted in (name, path.name, stem)
            self._matches += is_match
            self.chosen = name if is_match else self.chosen
            return is_match
        is_main = stem == path.parent.name
        if self._main and not is_main:
            return False
        if is_main and not self._main:
            self._main, self._stems, self._ends = True, set(), ()
        is_companion = any(letter == "_" and stem[:place] in self._stems for place, letter in enumerate(stem))
        self._stems.add(stem)
        if is_companion:
            return False
        if all(end.startswith(f"{stem}_") for end in self._ends):
            self._ends, self.chosen = (stem,), name
            return True
        self._ends, self.chosen = (min(*self._ends, stem), max(*self._ends, stem)), None
        return False

    def result(self, name: str) -> str:
        """The member chosen in the archive `name`; raises where there is none."""
        if self._wanted is not None and self._matches != 1:
            raise ArgumentError(
                f"{name} has {'several members' if self._matches else 'no member'} {self._wanted!r}",
                expected=listed(self.names) or None,
            )
        if self.chosen is not None:
            return self.chosen
        if not self.names:
            raise FileFormatError(
                f"{name} holds no matrix", expected="NAME/NAME.mtx or NAME/NAME.rb", hint="check the archive"
            )
        raise FileFormatError(
            f"{name} holds several matrices",
            found=listed(self.names),
            hint=f'choose one, for example variable="{shown(self.names[0])}"',
        )


class _Headers:
    """What tarfile reads of an archive: its headers, and no more of them than an archive can need."""

    def __init__(self, stream: _Stream) -> None:
        self.tell, self.seek = stream.tell, stream.seek
        self.last = b""
        self.left_of_one = _PIECE  # of the member's that comes next
        self._stream, self._left = stream, _HEADER_BYTES

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= min(self._left, self.left_of_one):
            raise tarfile.ReadError(f"headers of more than {in_words(_PIECE if size <= self._left else _HEADER_BYTES)}")
        self._left -= size
        self.left_of_one -= size
        self.last = self._stream.read(size)
        return self.last


class _Part:
    """The next bytes of a stream."""

    def __init__(self, stream: _Stream, size: int) -> None:
        self._stream, self._left = stream, size

    def read(self, size: int) -> bytes:
        part = self._stream.read(max(0, min(size, self._left)))
        self._left -= len(part)
        return part


def _tar_member(stream: _Stream, wanted: str | None, name: str, needs: Needs, untold: int) -> tuple[bytes, str]:
    """The matrix in a tar archive, and its name there. The archive is read once, and at most one member is kept."""
    choice, headers = _Choice(wanted), _Headers(stream)
    content, others = b"", 0
    try:
        with tarfile.open(fileobj=cast(Any, headers), mode="r:") as archive:
            for member in archive:
                headers.left_of_one = _PIECE
                is_chosen = member.isreg() and choice.add(member.name)
                if is_chosen or choice.chosen is None:
                    content = b""
                if is_chosen:
                    content = _tar_content(stream, member, name, needs, untold)
                    continue
                others += max(0, member.size)
                if others > untold:
                    raise FileFormatError(
                        f"{name} holds more beside its matrix than an archive of its size should",
                        expected=f"at most {in_words(untold)}",
                        found=f"{in_words(others)} up to {shown(member.name)}",
                        hint="unpack it, and read the matrix in it",
                    )
        if headers.last.strip(b"\0"):  # no header, where tarfile takes it for the end
            raise tarfile.ReadError("a header is broken")
    except AkxError:
        raise
    except Exception as error:  # whatever headers that lie lead tarfile to
        raise FileFormatError(
            f"{name} is truncated or damaged", found=f"tar says: {shown(str(error), _REASON)}", hint=AGAIN
        ) from error
    return content, choice.result(name)


def _tar_content(stream: _Stream, member: tarfile.TarInfo, name: str, needs: Needs, untold: int) -> bytes:
    if member.issparse():
        raise FileFormatError(
            f"{name} holds {shown(member.name)} as a sparse file",
            expected="files as they are",
            found=f"{in_words(member.size)} of which holes are left out",
            hint="make the archive without --sparse",
        )
    content = _whole(_Stream(_Part(stream, member.size).read), member.name, name, needs, member.size, untold)
    if len(content) < member.size:
        raise tarfile.ReadError("unexpected end of data")
    return content


def _zip_member(raw: bytes, wanted: str | None, name: str, needs: Needs) -> tuple[bytes, str] | None:
    """The matrix in a zip archive, and its name there; None where it is one of arrays, as NumPy writes it."""
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            members = {member.filename: member for member in archive.infolist()}
            choice = _Choice(wanted)
            for key in members:
                choice.add(key)
            if not choice.names:
                if suffix_of(name) == ".npz" or any(suffix_of(key) == ".npy" for key in members):
                    return None
                raise FileFormatError(
                    f"{name} is a zip archive without a matrix",
                    expected="a .mtx, .rsa, .rua, .hb or .rb in it",
                    found=listed(members) or "nothing",
                    hint="unpack it, and read the matrix in it",
                )
            member = members[choice.result(name)]
            if member.file_size > INFLATION * (member.compress_size + 1):
                raise zipfile.BadZipFile(f"{in_words(member.file_size)} in {member.compress_size} bytes")
            with archive.open(member) as file:
                content = _whole(_Stream(file.read), member.filename, name, needs, member.file_size, 0)
            if len(content) < member.file_size:
                raise zipfile.BadZipFile("unexpected end of data")
            return content, member.filename
    except AkxError:
        raise
    except Exception as error:  # RuntimeError asks for a password
        if suffix_of(name) == ".npz":
            return None  # whose reader says what is wrong
        raise FileFormatError(
            f"{name} is truncated or damaged", found=f"zip says: {shown(str(error), _REASON)}", hint=AGAIN
        ) from error
