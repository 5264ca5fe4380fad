"""Harwell-Boeing and Rutherford-Boeing files: compressed columns in Fortran fixed-width fields.

The header (I. S. Duff, R. G. Grimes, J. G. Lewis, "Users' Guide for the Harwell-Boeing Sparse Matrix Collection", 1992;
"The Rutherford-Boeing Sparse Matrix Collection", 1997) is four or five lines::

    title (72 columns), key (8)
    lines in all, of pointers, of row indices, of values [, of right-hand sides]         (5 x 14 columns)
    type (3 letters), rows, columns, entries, elements                                   (14 columns each)
    Fortran formats of pointers, indices, values [, right-hand sides]                    (16, 16, 20, 20)
    [only with right-hand sides: their type, number, indices]

SciPy reads the unsymmetric real and integer ones without right-hand sides. Here: real, complex, integer and pattern;
symmetric, Hermitian, skew, unsymmetric and rectangular; assembled. Right-hand sides are skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.errors import FileFormatError

__all__ = ["harwell_boeing_bytes", "is_harwell_boeing", "read_harwell_boeing"]

_TYPE = re.compile(r"[RCPI][SUHZR][AE]", re.IGNORECASE)
_FORMAT = re.compile(
    r"\((?:(?P<scale>\d+)P,?)?(?P<repeat>\d*)(?P<kind>[IEDFG])(?P<width>\d+)(?:\.(?P<digits>\d+))?(?:E\d+)?\)"
)
_AGAIN = "write or download the file again"
#: Bytes that the text of a line or a number has at most, and that some may have beyond it.
_LINE_BYTES, _SPARE_BYTES = 512, 16 * 1024**2


@dataclass(frozen=True)
class _Format:
    """A Fortran edit descriptor such as (1P,5E16.8): `repeat` fields of `width` columns per line."""

    repeat: int
    width: int
    digits: int
    scale: int
    integer: bool


@dataclass
class _Lines:
    """The lines of the file, with the number of the next one for messages."""

    lines: list[bytes]
    name: str
    next: int = 0

    def take(self) -> str:
        if self.next >= len(self.lines):
            raise FileFormatError(f"{self.name} ends in its header", hint=f"the file is truncated: {_AGAIN}")
        self.next += 1
        return self.lines[self.next - 1].decode("latin-1")

    def fields(self, count: int, layout: _Format, what: str) -> NDArray[np.bytes_]:
        """The next `count` fields, as byte strings of the field width."""
        full = layout.repeat * layout.width
        lines = -(-count // layout.repeat)
        first = self.next
        chunk = [line[:full].ljust(full) for line in self.lines[first : first + lines]]
        self.next += lines
        fields = np.frombuffer(b"".join(chunk), dtype=f"S{layout.width}")[:count]
        if fields.size < count:
            raise FileFormatError(
                f"{self.name} is truncated",
                expected=f"{count} {what} from line {first + 1} on",
                found=f"{fields.size}",
                hint=_AGAIN,
            )
        return fields


def is_harwell_boeing(raw: bytes) -> bool:
    """Whether the third line begins with a matrix type and four numbers."""
    lines = raw[:1024].split(b"\n")
    return len(lines) > 3 and re.match(rb"[RCPI][SUHZR][AE]\s+\d+\s+\d+\s+\d+", lines[2], re.IGNORECASE) is not None


def harwell_boeing_bytes(head: bytes) -> int:
    """Bytes that a file which begins with `head` can need, at most: by its lines, rows, columns and entries."""
    _, cards, sizes, *_ = [*head.split(b"\n", 3), b"", b""]
    numbers = re.findall(rb"\d{1,14}", cards[:14] + b" " + sizes[14:56])
    return _SPARE_BYTES + 2 * _LINE_BYTES * sum(map(int, numbers))


def read_harwell_boeing(raw: bytes, name: str) -> sp.csr_array:
    """The matrix in the text `raw` of the file `name`, symmetric ones expanded; float64, complex128 or int64.

    Raises
    ------
    FileFormatError
        Truncated, a malformed header, numbers that are none, indices out of range, unassembled elements.
    """
    lines = _Lines(raw.replace(b"\r\n", b"\n").split(b"\n"), name)
    while lines.lines and not lines.lines[-1].strip():
        lines.lines.pop()
    lines.take()  # title and key
    cards = _integers(lines.take(), 14, lines)
    kind, (rows, columns, entries) = _read_type(lines.take(), lines)
    formats = lines.take()
    pointer_format = _read_format(formats[:16], lines)
    index_format = _read_format(formats[16:32], lines)
    has_values = kind[0] != "P"
    value_format = _read_format(formats[32:52], lines) if has_values else None
    if len(cards) > 4 and cards[4] > 0:
        lines.take()  # right-hand sides: their header; their values come last and are not read

    indptr = _to_integers(lines.fields(columns + 1, pointer_format, "column pointers"), "column pointer", lines) - 1
    if indptr[0] != 0 or np.any(np.diff(indptr) < 0) or indptr[-1] != entries:
        raise FileFormatError(
            f"{name}: column pointers do not ascend from 1 to entries + 1 = {entries + 1}", hint=_AGAIN
        )
    indices = _to_integers(lines.fields(entries, index_format, "row indices"), "row index", lines) - 1
    if entries and not 0 <= indices.min() <= indices.max() < rows:
        place = int(np.argmax((indices < 0) | (indices >= rows)))
        raise FileFormatError(
            f"{name}: row index of entry {place + 1} is out of range",
            expected=f"1 to {rows}",
            found=str(int(indices[place]) + 1),
            hint=_AGAIN,
        )
    values: NDArray[Any] = np.ones(entries)
    if value_format is not None:
        count = 2 * entries if kind[0] == "C" else entries
        fields = lines.fields(count, value_format, "values")
        values = (
            _to_integers(fields, "value", lines) if value_format.integer else _to_reals(fields, value_format, lines)
        )
        if kind[0] == "C":
            values = np.ascontiguousarray(values, dtype=np.float64).view(np.complex128)
    column = np.repeat(np.arange(columns), np.diff(indptr))
    return _expand(indices, column, values, kind[1], (rows, columns)).tocsr()


def _expand(
    row: NDArray[Any], column: NDArray[Any], value: NDArray[Any], symmetry: str, shape: tuple[int, int]
) -> sp.coo_array:
    if symmetry in "UR":
        return sp.coo_array((value, (row, column)), shape=shape)
    off = row != column
    mirrored = {"S": value, "Z": -value, "H": value.conj()}[symmetry][off]
    return sp.coo_array(
        (
            np.concatenate((value, mirrored)),
            (np.concatenate((row, column[off])), np.concatenate((column, row[off]))),
        ),
        shape=shape,
    )


def _integers(text: str, width: int, lines: _Lines) -> list[int]:
    """Numbers in columns of `width`, or separated by blanks where the columns do not hold numbers."""
    text = text.rstrip()
    for words in ([text[i : i + width] for i in range(0, len(text), width)], text.split()):
        if words and all(re.fullmatch(r"\s*\d+\s*", word) for word in words if word.strip()):
            return [int(word.strip()) for word in words if word.strip()]  # int alone knows fewer blanks
    raise FileFormatError(
        f"{lines.name}, line {lines.next}: header is malformed",
        expected="whole numbers",
        found=repr(text[:60]),
        hint=_AGAIN,
    )


def _read_type(text: str, lines: _Lines) -> tuple[str, tuple[int, int, int]]:
    kind = text[:3].upper()
    if not _TYPE.fullmatch(kind):
        raise FileFormatError(
            f"{lines.name}, line {lines.next}: unknown matrix type",
            expected="three letters such as RUA, RSA, CUA or PSA",
            found=repr(text[:14].strip()),
            hint="check that this is a Harwell-Boeing or Rutherford-Boeing file",
        )
    if kind[2] == "E":
        raise FileFormatError(
            f"{lines.name} holds unassembled finite elements ({kind})",
            hint="assemble it first; akx reads assembled matrices (third letter A)",
        )
    sizes = _integers(text[14:], 14, lines)
    if len(sizes) < 3 or (kind[1] in "SHZ" and sizes[0] != sizes[1]):
        raise FileFormatError(
            f"{lines.name}, line {lines.next}: sizes are malformed",
            expected="rows, columns, entries" + (" of a square matrix" if kind[1] in "SHZ" else ""),
            found=repr(text[14:].strip()),
            hint=_AGAIN,
        )
    return kind, (sizes[0], sizes[1], sizes[2])


def _read_format(text: str, lines: _Lines) -> _Format:
    match = _FORMAT.fullmatch(re.sub(r"\s", "", text).upper())
    if match is None or int(match["width"]) == 0 or match["repeat"] == "0":
        raise FileFormatError(
            f"{lines.name}, line {lines.next}: Fortran format is not understood",
            expected="one such as (16I5) or (1P,4E20.12)",
            found=repr(text.strip()),
            hint="convert the file to Matrix Market",
        )
    return _Format(
        repeat=int(match["repeat"] or 1),
        width=int(match["width"]),
        digits=int(match["digits"] or 0),
        scale=int(match["scale"] or 0),
        integer=match["kind"] == "I",
    )


def _to_integers(fields: NDArray[np.bytes_], what: str, lines: _Lines) -> NDArray[np.int64]:
    try:
        return fields.astype(np.int64)
    except (ValueError, OverflowError) as error:
        raise FileFormatError(
            f"{lines.name}: a {what} is not a whole number", found=_first_bad(fields, int), hint=_AGAIN
        ) from error


def _to_reals(fields: NDArray[np.bytes_], layout: _Format, lines: _Lines) -> NDArray[np.float64]:
    """Fortran reals: D exponents, and the decimal point implied where a field has none."""
    text = fields.tobytes().translate(bytes.maketrans(b"Dd", b"EE"))
    fields = np.frombuffer(text, dtype=fields.dtype)
    try:
        values = fields.astype(np.float64)
    except ValueError as error:
        raise FileFormatError(
            f"{lines.name}: a value is not a number", found=_first_bad(fields, float), hint=_AGAIN
        ) from error
    octets = np.frombuffer(text, dtype=np.uint8).reshape(fields.size, -1)
    shift = np.zeros(fields.size, dtype=np.int64)
    if layout.digits:
        shift -= layout.digits * ~(octets == ord(".")).any(axis=1)
    if layout.scale:
        shift -= layout.scale * ~((octets == ord("E")) | (octets == ord("e"))).any(axis=1)
    return values * 10.0**shift if shift.any() else values


def _first_bad(fields: NDArray[np.bytes_], convert: type) -> str:
    for place, field in enumerate(fields.tolist()):
        try:
            convert(field)
        except ValueError:
            return f"{field.decode('latin-1')!r} as number {place + 1}"
    return "a number out of range"
