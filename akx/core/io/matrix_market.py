"""Matrix Market files, coordinate and array: checked strictly here, read by SciPy.

The format is that of R. F. Boisvert, R. Pozo and K. A. Remington, "The Matrix Market Exchange Formats: Initial Design",
NISTIR 5935, 1996. Accepted beyond it, as such files are about: a banner with one ``%`` or more words, blank lines and
comments among the entries and behind them, Fortran's D exponents, a byte-order mark, lines that end in a carriage
return, entries above the diagonal of a symmetric file, signs in an unsigned file, and decimals in an integer file
(which is then read as real). Refused: whatever else contradicts the header, as silence there gives a wrong matrix, and
integers beyond 64 bits, which would be rounded.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import scipy.io
import scipy.sparse as sp
from numpy.typing import NDArray

from akx.core.errors import FileFormatError, shown
from akx.core.io.stream import AGAIN, check_rows

__all__ = ["expand", "matrix_market_bytes", "read_matrix_market"]

_BOM = b"\xef\xbb\xbf"
#: What the words of a banner behind the first can be.
_WORDS = {
    "object": ("matrix",),
    "format": ("coordinate", "array"),
    "field": ("real", "double", "integer", "unsigned-integer", "complex", "pattern"),
    "symmetry": ("general", "symmetric", "skew-symmetric", "hermitian"),
}
_EXAMPLE = '"%%MatrixMarket matrix coordinate real general"'
_COMMENTS = re.compile(rb"(?:[ \t\r]*(?:%[^\n]*)?\n)*+")
#: Bytes that the text of an entry has at most, with blanks and comments, and that some may have beyond it.
_ENTRY_BYTES, _SPARE_BYTES = 512, 16 * 1024**2


@dataclass(frozen=True)
class _Header:
    layout: str
    field: str
    symmetry: str
    rows: int
    columns: int
    entries: int  # lines of the body
    size_line: int  # line number of the size line, from 1
    body: int  # offset of the body in the file


def read_matrix_market(raw: bytes, name: str) -> sp.csr_array:
    """The matrix in the text `raw` of the file `name`; symmetric ones are expanded, duplicates summed.

    The dtype is float64, complex128 or (integer files) int64 or uint64. Array files become sparse by their non-zeros.

    Raises :class:`FileFormatError` with the line where the text goes wrong.
    """
    raw = raw.removeprefix(_BOM)
    if b"\n" not in raw:
        raw = raw.replace(b"\r", b"\n")
    header = _read_header(raw, name)
    check_rows(header.rows, name)
    field, body = _checked_body(raw[header.body :], header, name)
    if header.entries == 0:  # SciPy's reader divides by the length of an array's columns
        dtype = {"complex": np.complex128, "integer": np.int64, "unsigned-integer": np.uint64}.get(field, np.float64)
        return sp.csr_array((header.rows, header.columns), dtype=dtype)
    try:
        found = _read_body(body, header, field)
    except MemoryError as error:
        raise _too_large(name, (header.rows, header.columns), header.entries) from error
    except Exception as error:
        if "integer" not in field:
            _fail_as_scipy(error, header, name)
        found = _read_integers(body, header, name)
    if header.layout == "array":
        return sp.csr_array(np.asarray(found))
    return expand(sp.coo_array(found), header.symmetry, name)


def _read_body(body: bytes, header: _Header, field: str) -> Any:
    """What SciPy reads from a checked body; of coordinates the triangle that is listed."""
    symmetry = header.symmetry if header.layout == "array" else "general"
    sizes = [header.rows, header.columns] + ([header.entries] if header.layout == "coordinate" else [])
    banner = f"%%MatrixMarket matrix {header.layout} {field} {symmetry}\n{' '.join(map(str, sizes))}\n"
    return scipy.io.mmread(io.BytesIO(banner.encode() + body))


def _read_integers(body: bytes, header: _Header, name: str) -> Any:
    """Signed integers in a file that says they are unsigned; else the reason why they are no integers of 64 bits."""
    try:
        return _read_body(body, header, "integer")
    except Exception:
        try:
            _read_body(body, header, "real")
        except Exception as error:
            _fail_as_scipy(error, header, name)
    hint = "write 'real' for 'integer' in its first line to read them rounded to double precision"
    raise FileFormatError(f"{name} has integers beyond 64 bits", hint=hint)


def _too_large(name: str, shape: tuple[int, int], entries: int) -> FileFormatError:
    return FileFormatError(f"{name} does not fit the memory", found=f"{shape[0]} x {shape[1]}, {entries} entries")


def matrix_market_bytes(head: bytes, name: str) -> int | None:
    """Bytes that a file which begins with `head` can need, at most; None where its size line is not whole there."""
    head = head.removeprefix(_BOM)
    lines = head[: head.rfind(b"\n") + 1]
    if not re.search(rb"(?m)^[ \t\r]*[^% \t\r\n]", lines):  # comments alone, so far
        return None
    header = _read_header(lines, name)
    return header.body + _SPARE_BYTES + _ENTRY_BYTES * header.entries


def _read_header(raw: bytes, name: str) -> _Header:
    stop = raw.find(b"\n")
    stop = len(raw) if stop < 0 else stop
    banner = raw[:stop].decode("latin-1").strip()
    words = banner.lower().split()
    if not words or words[0] not in ("%%matrixmarket", "%matrixmarket"):
        raise FileFormatError(
            f"{name}, line 1: no Matrix Market banner",
            expected=f"a first line such as {_EXAMPLE}",
            found=_quote(banner),
            hint="put that line, with the right field and symmetry, before the first line",
        )
    if len(words) < 5:
        expected, found = f"five words as in {_EXAMPLE}", _quote(banner)
        raise FileFormatError(
            f"{name}, line 1: banner is not complete", expected=expected, found=found, hint="correct the first line"
        )
    for (what, known), word in zip(_WORDS.items(), words[1:], strict=False):
        if word not in known:
            wanted, advice = " or ".join(known), f"correct the first line; a usual one is {_EXAMPLE}"
            raise FileFormatError(
                f"{name}, line 1: unknown {what} in the banner", expected=wanted, found=_quote(word), hint=advice
            )
    layout, field, symmetry = words[2:5]
    problem = None
    if layout == "array" and field == "pattern":
        problem, hint = "an array cannot be a pattern", 'say "coordinate pattern" and list the entries, or give values'
    elif symmetry == "hermitian" and field != "complex":
        problem, hint = f"hermitian needs complex values, not {field}", 'say "symmetric" for a real matrix'
    elif symmetry == "skew-symmetric" and field in ("pattern", "unsigned-integer"):
        problem, hint = f"skew-symmetric needs signed values, not {field}", 'say "symmetric" or "general"'
    if problem:
        raise FileFormatError(
            f"{name}, line 1: {problem}", found=f'"{layout} {field} {symmetry}"', hint=f"correct the first line: {hint}"
        )
    return _read_sizes(raw, stop + 1, layout, field, symmetry, name)


def _read_sizes(raw: bytes, begin: int, layout: str, field: str, symmetry: str, name: str) -> _Header:
    """The header whose size line comes behind blank lines and comments from the byte `begin` on."""
    comments = _COMMENTS.match(raw, begin)
    begin = comments.end() if comments else len(raw)
    end = raw.find(b"\n", begin)
    end = len(raw) if end < 0 else end
    text, number = raw[begin:end].decode("latin-1").strip(), raw.count(b"\n", 0, begin) + 1
    names = "rows columns entries" if layout == "coordinate" else "rows columns"
    if not text or text.startswith("%"):
        hint = f"the file is truncated: {AGAIN}"
        raise FileFormatError(f"{name} ends before the size line", expected=f'"{names}" after the comments', hint=hint)
    words = text.partition("%")[0].split()
    correct = f"correct line {number}"
    if len(words) != len(names.split()) or not all(re.fullmatch(r"[0-9]+", word) for word in words):
        expected = f'"{names}" as whole numbers'
        raise FileFormatError(
            f"{name}, line {number}: no size line", expected=expected, found=_quote(text), hint=correct
        )
    if max(len(word.lstrip("0")) for word in words) > 18:
        raise FileFormatError(f"{name}, line {number}: sizes are too large", found=_quote(text), hint=correct)
    rows, columns = int(words[0]), int(words[1])
    if symmetry != "general" and rows != columns:
        found, hint = f"{rows} x {columns}", "correct the sizes, or say general in the first line"
        raise FileFormatError(f"{name}, line {number}: a {symmetry} matrix must be square", found=found, hint=hint)
    entries = {"general": rows * columns, "skew-symmetric": rows * (rows - 1) // 2}.get(
        symmetry, rows * (rows + 1) // 2
    )
    entries = int(words[2]) if layout == "coordinate" else entries
    return _Header(layout, field, symmetry, rows, columns, entries, number, end + 1)


def _checked_body(body: bytes, header: _Header, name: str) -> tuple[str, bytes]:
    """The field, and the body in a spelling that SciPy reads, once every line has been checked."""
    from akx.core.io.matrix_market_scan import BAD_TOKEN, INDEX, INTEGER, REAL, scan_body

    field = header.field
    whole = "integer" in field
    indices = (INDEX,) * (2 if header.layout == "coordinate" else 0)
    values = {"complex": 2, "pattern": 0}.get(field, 1)
    kinds = indices + (INTEGER if whole else REAL,) * values
    ended = body.endswith(b"\n")
    if not ended or body[-2:-1].isspace():
        body = body.rstrip() + b"\n"  # SciPy's reader runs past the end of a text that ends in a blank
    problem, line, entries = scan_body(body, kinds)
    if whole and problem == BAD_TOKEN:  # decimals or Inf among integers: nothing is lost by reading them as real
        field, kinds = "real", (*indices, REAL)
        problem, line, entries = scan_body(body, kinds)
    if problem:
        _fail_at_line(body, line, len(kinds), entries, header, name, ended)
    if entries != header.entries:
        what = "is truncated" if entries < header.entries else "has more entries than its size line says"
        expected = f"{header.entries} entries (line {header.size_line})"
        hint = AGAIN if entries < header.entries else "correct the size line"
        raise FileFormatError(f"{name} {what}", expected=expected, found=str(entries), hint=hint)
    return field, _plain_spelling(body)


def _plain_spelling(body: bytes) -> bytes:
    """Comments, D exponents and leading plus signs replaced, in a body that has been checked, keeping its lines."""
    if b"%" in body:
        body = re.sub(rb"(?m)^[ \t\r]*%[^\n]*", b"", body)
    if b"D" in body or b"d" in body:  # neither Inf nor NaN has one
        body = body.translate(bytes.maketrans(b"Dd", b"EE"))
    octets = np.frombuffer(body, dtype=np.uint8)
    plus = np.flatnonzero(octets == ord("+")) if b"+" in body else np.zeros(0, dtype=np.int64)
    if plus.size and (plus[0] == 0 or np.isin(octets[plus - 1], list(b" \t\n\r")).any()):  # not an exponent's
        body = re.sub(rb"(^|[ \t\r\n])\+", rb"\1 ", body)
    return body


def _fail_at_line(
    body: bytes, line: int, wanted: int, entries: int, header: _Header, name: str, ended: bool
) -> NoReturn:
    """Raise for a line without the `wanted` numbers that the header promises; `ended`: the last one has an end."""
    position = 0
    for _ in range(line):
        position = body.index(b"\n", position) + 1
    stop = body.index(b"\n", position)
    text = body[position:stop].decode("latin-1").strip()
    words = len(text.split())
    cut = (words < wanted and ended) or (words <= wanted and not ended)
    at_end = cut and not body[stop:].strip() and not re.search(r"[^\w\s.+-]", text)
    numbers = ["row", "column"] if header.layout == "coordinate" else []
    if header.field == "complex":
        numbers += ["real part", "imaginary part"]
    elif header.field != "pattern":
        numbers.append("whole number" if "integer" in header.field else "value")
    if at_end and entries < header.entries:
        hint = f"the file seems truncated after {entries} of {header.entries} entries: {AGAIN}"
    else:
        hint = f"correct the line, or the field ({header.field}) in the first line"
    raise FileFormatError(
        f"{name}, line {header.size_line + 1 + line}: not an entry of this {header.layout} {header.field} matrix",
        expected=f'"{" ".join(numbers)}"',
        found=_quote(text),
        hint=hint,
    )


def _fail_as_scipy(error: Exception, header: _Header, name: str) -> NoReturn:
    """Raise SciPy's complaint (an index out of range) with the line in the user's file."""
    match = re.match(r"Line (\d+): (.*)", str(error))
    if match:
        raise FileFormatError(
            f"{name}, line {int(match[1]) - 2 + header.size_line}: {match[2].rstrip('.').lower()}",
            expected=f"indices within 1..{header.rows} and 1..{header.columns}",
            hint=f"correct the line, or the sizes in line {header.size_line}",
        ) from error
    found = str(error) or type(error).__name__
    raise FileFormatError(f"{name} cannot be read as Matrix Market", found=found) from error


def expand(half: sp.coo_array, symmetry: str, name: str) -> sp.csr_array:
    """All entries of the matrix of which the file `name` lists one triangle (or all, if general), duplicates summed.

    Raises :class:`FileFormatError` for entries that contradict the symmetry, or a matrix that does not fit the memory.
    """
    row, column, value = half.row, half.col, half.data
    if symmetry != "general":
        off = row != column
        if symmetry != "symmetric":
            wrong = ~off & ((value if symmetry == "skew-symmetric" else value.imag) != 0)
            if wrong.any():
                place = int(np.argmax(wrong))
                raise FileFormatError(
                    f"{name}: the diagonal of a {symmetry} matrix must be "
                    f"{'zero' if symmetry == 'skew-symmetric' else 'real'}",
                    found=f"{value[place]} at row {int(row[place]) + 1}",
                    hint="correct the entry, or the symmetry in the header",
                )
        _check_one_triangle(row, column, half.shape[1], symmetry, name)
        if symmetry == "skew-symmetric" and value.dtype.kind == "i" and (value == np.iinfo(value.dtype).min).any():
            value = value.astype(np.float64)  # the one integer whose negative does not fit its type
        mirrored = {"skew-symmetric": np.negative, "hermitian": np.conj}.get(symmetry, np.positive)(value[off])
        row, column = np.concatenate((row, column[off])), np.concatenate((column, row[off]))
        value = np.concatenate((value, mirrored))
    whole = sp.coo_array((value, (row, column)), shape=half.shape)
    try:
        csr = whole.tocsr()
        if value.dtype.kind in "iu" and csr.nnz < whole.nnz:
            largest = max(-int(value.min()), int(value.max()))
            if largest * (whole.nnz - csr.nnz + 1) > np.iinfo(value.dtype).max:  # a sum may be beyond its type
                csr = whole.astype(np.float64).tocsr()
    except MemoryError as error:
        raise _too_large(name, half.shape, whole.nnz) from error
    return csr


def _check_one_triangle(row: NDArray[Any], column: NDArray[Any], columns: int, symmetry: str, name: str) -> None:
    """Refuse a symmetric file that lists both (i, j) and (j, i): expanded, every entry would count twice."""
    upper = row < column
    if not upper.any() or not (row > column).any():
        return
    key = np.maximum(row, column).astype(np.int64) * columns + np.minimum(row, column)
    twice = np.intersect1d(key[row > column], key[upper])
    if twice.size:
        i, j = divmod(int(twice[0]), columns)
        raise FileFormatError(
            f"{name} says {symmetry}, but lists entries on both sides of the diagonal",
            found=f"({i + 1}, {j + 1}) and ({j + 1}, {i + 1})",
            hint="keep only the lower triangle, or declare the matrix general (unsymmetric)",
        )


def _quote(text: str) -> str:
    return f'"{shown(text)}"' if text else "nothing"
