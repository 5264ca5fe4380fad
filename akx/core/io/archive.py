"""The content of a matrix file, or of the matrix in an archive; nothing is extracted to disk.

A tar archive is scanned once, forwards, and its headers are bounded too. Which member is its matrix is known as names
come, so that no more than one is kept. What is read of a file or a member :mod:`akx.core.io.stream` says.
"""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any, cast

from akx.core.errors import AkxError, ArgumentError, FileFormatError, FileMissingError, brief, listed, shown
from akx.core.io import stream

__all__ = ["HARWELL_BOEING", "read_content"]

HARWELL_BOEING = {".hb", ".rb"} | {f".{a}{b}{c}" for a in "rcpi" for b in "suhzr" for c in "ae"}
_TEXT_MEMBERS = {".mtx", *HARWELL_BOEING}
#: Bytes of a name in a file system, at most.
_NAME_BYTES = 255
#: Letters of a foreign reader's reason, at most.
_REASON = 160


def read_content(
    path: stream.PathLike, needs: stream.Needs, *, archives: bool = False, member: str | None = None
) -> tuple[bytes, str, bool]:
    """The content of a file, its name, and whether it is a member of an archive.

    With `archives` that of a tar or zip archive is the matrix in it: of several the one that is called `member`.
    """
    name = stream.name_of(path)
    try:
        with Path(name).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            source, inner, is_compressed = stream.decompressed(file.read, name)
            head = source.peek(stream.HEAD)
            if not head:
                found = "0 bytes after decompression" if is_compressed else "0 bytes"
                raise FileFormatError(f"{name} is empty", found=found, hint=stream.AGAIN)
            untold = max(stream.UNTOLD_BYTES, stream.UNTOLD_TIMES * size)
            if archives and (head[257:262] == b"ustar" or stream.suffix_of(inner) in (".tar", ".tgz")):
                return *_tar_member(source, member, name, needs, untold), True
            content = stream.whole(source, inner, name, needs, None if is_compressed else size, untold)
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
        is_first = all(end.startswith(f"{stem}_") for end in self._ends)
        self._ends = (stem,) if is_first else (min(*self._ends, stem), max(*self._ends, stem))
        self.chosen = name if is_first else None
        return is_first

    def result(self, name: str) -> str:
        """The member chosen in the archive `name`; raises where there is none."""
        found = listed(self.names)
        if self._wanted is not None and self._matches != 1:
            what = f"{'several members' if self._matches else 'no member'} {brief(self._wanted)}"
            raise ArgumentError(f"{name} has {what}", expected=found or None)
        if self.chosen is not None:
            return self.chosen
        if not self.names:
            expected = "NAME/NAME.mtx or NAME/NAME.rb"
            raise FileFormatError(f"{name} holds no matrix", expected=expected, hint="check the archive")
        hint = f'choose one, for example variable="{shown(self.names[0])}"'
        raise FileFormatError(f"{name} holds several matrices", found=found, hint=hint)


class _Headers:
    """What tarfile reads of an archive: its headers, and no more of them than an archive can need."""

    def __init__(self, source: stream.Stream) -> None:
        self.tell, self.seek = source.tell, source.seek
        self.last = b""
        self.left_of_one = stream.PIECE  # of the member's that comes next
        self._source, self._left = source, stream.HEADER_BYTES

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= min(self._left, self.left_of_one):
            raise tarfile.ReadError(
                f"headers of more than {stream.in_words(stream.PIECE if size <= self._left else stream.HEADER_BYTES)}"
            )
        self._left -= size
        self.left_of_one -= size
        self.last = self._source.read(size)
        return self.last


def _tar_member(
    source: stream.Stream, wanted: str | None, name: str, needs: stream.Needs, untold: int
) -> tuple[bytes, str]:
    """The matrix in a tar archive, and its name there. The archive is read once, and at most one member is kept."""
    choice, headers = _Choice(wanted), _Headers(source)
    content, others = b"", 0
    try:
        with tarfile.open(fileobj=cast(Any, headers), mode="r:") as archive:
            for member in archive:
                headers.left_of_one = stream.PIECE
                is_chosen = member.isreg() and choice.add(member.name)
                if is_chosen or choice.chosen is None:
                    content = b""
                if is_chosen:
                    content = _tar_content(source, member, name, needs, untold)
                    continue
                others += max(0, member.size)
                if others > untold:
                    raise FileFormatError(
                        f"{name} holds more beside its matrix than an archive of its size should",
                        expected=f"at most {stream.in_words(untold)}",
                        found=f"{stream.in_words(others)} up to {shown(member.name)}",
                        hint="unpack it, and read the matrix in it",
                    )
        if headers.last.strip(b"\0"):  # no header, where tarfile takes it for the end
            raise tarfile.ReadError("a header is broken")
    except AkxError:
        raise
    except Exception as error:  # whatever headers that lie lead tarfile to
        raise FileFormatError(
            f"{name} is truncated or damaged", found=f"tar says: {shown(str(error), _REASON)}", hint=stream.AGAIN
        ) from error
    return content, choice.result(name)


def _tar_content(source: stream.Stream, member: tarfile.TarInfo, name: str, needs: stream.Needs, untold: int) -> bytes:
    if member.issparse():
        raise FileFormatError(
            f"{name} holds {shown(member.name)} as a sparse file",
            expected="files as they are",
            found=f"{stream.in_words(member.size)} of which holes are left out",
            hint="make the archive without --sparse",
        )
    begin, size = source.tell(), member.size
    part = stream.Stream(lambda most: source.read(min(most, begin + size - source.tell())))
    content = stream.whole(part, member.name, name, needs, size, untold)
    if len(content) < size:
        raise tarfile.ReadError("unexpected end of data")
    return content


def _zip_member(raw: bytes, wanted: str | None, name: str, needs: stream.Needs) -> tuple[bytes, str] | None:
    """The matrix in a zip archive, and its name there; None where it is one of arrays, as NumPy writes it."""
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            members = {member.filename: member for member in archive.infolist()}
            choice = _Choice(wanted)
            for key in members:
                choice.add(key)
            if not choice.names:
                if stream.suffix_of(name) == ".npz" or any(stream.suffix_of(key) == ".npy" for key in members):
                    return None
                raise FileFormatError(
                    f"{name} is a zip archive without a matrix",
                    expected="a .mtx, .rsa, .rua, .hb or .rb in it",
                    found=listed(members) or "nothing",
                    hint="unpack it, and read the matrix in it",
                )
            member = members[choice.result(name)]
            content = stream.whole(
                stream.zip_member(archive, member, name), member.filename, name, needs, member.file_size, 0
            )
            if len(content) != member.file_size or zlib.crc32(content) != member.CRC:
                raise zipfile.BadZipFile(f"{shown(member.filename)} is not what the table says")
            return content, member.filename
    except AkxError:
        raise
    except Exception as error:
        if stream.suffix_of(name) == ".npz":
            return None  # whose reader says what is wrong
        raise FileFormatError(
            f"{name} is truncated or damaged", found=f"zip says: {shown(str(error), _REASON)}", hint=stream.AGAIN
        ) from error
