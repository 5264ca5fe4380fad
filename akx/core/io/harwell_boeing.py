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

The formats say where the sections are, as for every program in Fortran, and a slip in the counts of lines does no harm
to them. But a line too many or too few moves all values after it, and nothing in the values shows that. So the end of
the file must be where the formats and the count of right-hand sides put it.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.core.errors import FileFormatError, brief
from akx.core.io.fortran_format import WIDEST_FIELD, Fields, Format, parse_format, read_integers, read_reals
from akx.core.io.matrix_market import expand
from akx.core.io.stream import check_rows

__all__ = ["harwell_boeing_bytes", "is_harwell_boeing", "read_harwell_boeing"]

_TYPE = re.compile(r"[RCPI][SUHZR][AE]", re.IGNORECASE)
_SYMMETRY = {"S": "symmetric", "Z": "skew-symmetric", "H": "hermitian"}
#: Blanks, and what DOS and tapes left behind the last line.
_ENDING = b" \t\r\n\0\x1a"
_HEADER_LINES = 5  # with right-hand sides
_AGAIN = "write or download the file again"
#: Bytes that the text of a line or a number has at most, and that some may have beyond it.
_LINE_BYTES, _SPARE_BYTES = 512, 16 * 1024**2


class _Lines:
    """The lines of the file, with the number of the next one. Lines of blanks at the end are none."""

    def __init__(self, raw: bytes, name: str) -> None:
        if b"\r" in raw:  # from DOS, or with nothing else from the first Macintoshes
            raw = raw.replace(b"\r\n", b"\n") if b"\n" in raw else raw.replace(b"\r", b"\n")
        size = len(raw) - 1 if raw[-1:] == b"\n" else len(raw)
        if raw[size - 1 : size].strip(_ENDING) == b"":
            size = max(raw.find(b"\n", len(raw.rstrip(_ENDING))), 0) or len(raw)
        self.name, self.next = name, 0
        self.complete = size < len(raw)
        self.octets = np.frombuffer(raw + b" " * WIDEST_FIELD, dtype=np.uint8)
        newlines = np.flatnonzero(self.octets[:size] == ord("\n"))
        self.starts = np.concatenate(([0], newlines + 1))
        self.lengths = np.append(newlines, size) - self.starts

    def fault(self, what: str, expected: str, found: str, hint: str = _AGAIN) -> FileFormatError:
        """What is wrong with the line taken last."""
        return FileFormatError(f"{self.name}, line {self.next}: {what}", expected=expected, found=found, hint=hint)

    @property
    def left(self) -> int:
        return self.starts.size - self.next

    def take(self) -> str:
        if not self.left:
            raise FileFormatError(f"{self.name} ends in its header", hint=f"the file is truncated: {_AGAIN}")
        start, length = int(self.starts[self.next]), int(self.lengths[self.next])
        self.next += 1
        return self.octets[start : start + length].tobytes().decode("latin-1")

    def fields(self, count: int, layout: Format, what: str) -> Fields:
        """The next `count` fields."""
        first = self.next
        # There are no more fields than characters, whatever a header claims
        lines = layout.count_lines(count) if count <= self.octets.size else self.left + 1
        if lines > self.left:
            expected, found = f"{count} {what} from line {first + 1} on", f"{self.left} lines"
            raise FileFormatError(f"{self.name} is truncated", expected=expected, found=found, hint=_AGAIN)
        self.next += lines
        line, start, width, digits, scale = layout.place(count)
        line += first
        # How many columns of each field its line has; the last line of a file may be cut within its last field
        present = self.lengths[line] - start
        needed = np.ones(count, dtype=np.int64)
        if not self.left and not self.complete and count:
            needed[-1] = width[-1]
        if (present < needed).any():
            place = int(np.argmax(present < needed))
            raise FileFormatError(
                f"{self.name}, line {line[place] + 1} ends before its last number",
                expected=f"columns {start[place] + 1} to {start[place] + width[place]}",
                found=f"{max(0, int(present[place] + start[place]))} columns",
                hint=_AGAIN,
            )
        widest = int(width.max(initial=1))
        windows = np.lib.stride_tricks.sliding_window_view(self.octets, widest)
        octets = np.ascontiguousarray(windows[self.starts[line] + start])
        inside = np.minimum(present, width)
        if (inside < widest).any():
            octets[np.arange(widest) >= inside[:, None]] = ord(" ")
        return Fields(octets, digits, scale)


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

    Raises :class:`FileFormatError`: truncated, a line too many, a malformed header, numbers that are none, indices out
    of range, unassembled elements.
    """
    lines = _Lines(raw, name)
    lines.take()  # title and key
    total, _, _, value_lines, side_lines = (*_integers(lines.take()[:70], lines), 0, 0, 0, 0, 0)[:5]
    kind, (rows, columns, entries) = _read_type(lines.take(), lines)
    check_rows(rows, name)
    has_values = kind[0] != "P"
    formats = _read_formats(lines.take(), lines, 3 if has_values else 2)
    sides = lines.take() if side_lines > 0 else ""  # right-hand sides: their values come last and are not read

    pointers = lines.fields(columns + 1, formats[0], "column pointers")
    indptr = _read_indices(pointers, f"{name}: a column pointer")
    if indptr[0] != 0 or indptr.min() < 0 or np.any(np.diff(indptr) < 0) or indptr[-1] != entries:
        raise FileFormatError(
            f"{name}: column pointers do not ascend from 1 to entries + 1 = {entries + 1}", hint=_AGAIN
        )
    indices = _read_indices(lines.fields(entries, formats[1], "row indices"), f"{name}: a row index")
    if entries and not 0 <= indices.min() <= indices.max() < rows:
        place = int(np.argmax((indices < 0) | (indices >= rows)))
        found = str(int(indices[place]) + 1)
        raise FileFormatError(
            f"{name}: row index of entry {place + 1} is out of range", expected=f"1 to {rows}", found=found, hint=_AGAIN
        )
    values: NDArray[Any] = np.ones(entries)
    if has_values:
        if entries and not value_lines:
            expected = f"lines of values in line 2, for type {kind}"
            hint = "for a matrix of ones, make P the first letter of the type in line 3"
            raise FileFormatError(f"{name} holds no values", expected=expected, found="0", hint=hint)
        fields = lines.fields(2 * entries if kind[0] == "C" else entries, formats[2], "values")
        try:
            values = (read_integers if formats[2].integer else read_reals)(fields, f"{name}: a value")
        except OverflowError:  # integers beyond 64 bits
            values = read_reals(fields, f"{name}: a value")
        if kind[0] == "C":
            values = values.astype(np.float64).view(np.complex128)
    _check_end(lines, total, side_lines, sides, formats[3:], rows * (2 if kind[0] == "C" else 1))
    column = np.repeat(np.arange(columns), np.diff(indptr))
    half = sp.coo_array((values, (indices, column)), shape=(rows, columns))
    return expand(half, _SYMMETRY.get(kind[1], "general"), name)


def _read_indices(fields: Fields, what: str) -> NDArray[np.int64]:
    """Counted from 0."""
    try:
        return read_integers(fields, what) - 1
    except OverflowError as error:
        raise FileFormatError(f"{what} is out of range", found="a number beyond 64 bits", hint=_AGAIN) from error


def _check_end(lines: _Lines, total: int, announced: int, sides: str, formats: list[Format], rows: int) -> None:
    """Refuse a file that does not end with its values, or after as many lines of right-hand sides as it announces.

    Where that count and the header of the right-hand sides disagree, the count holds only if the total agrees with it
    (or leaves right-hand sides out).
    """
    needed: set[int] = set()
    full = re.fullmatch(r"F([G ])([X ])\s*(\d{1,9})(\s.*)?", sides.upper())
    if full and formats:
        sets, each = 1 + (full[1] == "G") + (full[2] == "X"), int(full[3])
        needed = {sets * formats[0].count_lines(rows * each), sets * each * formats[0].count_lines(rows)}
    used = lines.next - _HEADER_LINES
    if announced in needed or not needed or total in (used, used + announced):
        needed = {announced} if announced in needed else needed | {announced}
    if lines.left not in needed:
        sides_hint = f", or the number of lines of right-hand sides ({announced}) in line 2" if announced else ""
        raise FileFormatError(
            f"{lines.name} has lines too many or too few, so that its values may belong to other entries",
            expected=f"{' or '.join(map(str, sorted(needed)))} lines of right-hand sides after line {lines.next}"
            if announced
            else f"its end after the last value in line {lines.next}",
            found=f"{lines.left} more lines",
            hint=f"{_AGAIN}, or correct the types and sizes in its header{sides_hint}",
        )


def _integers(text: str, lines: _Lines) -> list[int]:
    """Numbers in columns of 14, or separated by blanks where the columns do not hold numbers."""
    columns = [text[i : i + 14].strip() for i in range(0, len(text.rstrip()), 14)]
    for words in (columns, text.split()):
        if words and all(re.fullmatch(r"\d{0,18}", word, re.ASCII) for word in words):
            return [int(word or 0) for word in words]
    raise lines.fault("header is malformed", "whole numbers", brief(text))


def _read_formats(text: str, lines: _Lines, least: int) -> list[Format]:
    """The formats in a line, each of them in parentheses of its own."""
    texts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character == "(":
            start = start if depth else position
            depth += 1
        elif character == ")" and depth:
            depth -= 1
            texts += [] if depth else [text[start : position + 1]]
    formats = []
    for found in texts[:4]:
        try:
            formats.append(parse_format(found))
        except ValueError as error:
            what, hint = "Fortran format is not understood", "convert the file to Matrix Market"
            raise lines.fault(what, str(error), brief(found), hint) from error
    if len(formats) < least:
        raise lines.fault("Fortran formats are missing", f"{least} formats in parentheses", brief(text.strip()))
    return formats


def _read_type(text: str, lines: _Lines) -> tuple[str, tuple[int, int, int]]:
    kind = text[:3].upper()
    if not _TYPE.fullmatch(kind):
        hint = "check that this is a Harwell-Boeing or Rutherford-Boeing file"
        expected = "three letters such as RUA, RSA, CUA or PSA"
        raise lines.fault("unknown matrix type", expected, brief(text[:14].strip()), hint)
    if kind[2] == "E":
        hint = "assemble it first; akx reads assembled matrices (third letter A)"
        raise FileFormatError(f"{lines.name} holds unassembled finite elements ({kind})", hint=hint)
    sizes = _integers(text[14:70], lines)
    if len(sizes) < 3 or (kind[1] in "SHZ" and sizes[0] != sizes[1]):
        expected = "rows, columns, entries" + (" of a square matrix" if kind[1] in "SHZ" else "")
        raise lines.fault("sizes are malformed", expected, brief(text[14:].strip()))
    return kind, (sizes[0], sizes[1], sizes[2])
