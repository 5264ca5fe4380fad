"""Numbers in columns, as Fortran's formats describe them: where they stand in a line, and what they are worth.

A format such as ``(1X,3(1P,E24.16))`` is followed as in a ``READ``: a pass through it names the fields of a line (or of
several, with ``/``), and while numbers are wanted, the next pass begins a line at the last group in parentheses, or at
the start where there is none. A field of digits without a decimal point has one before its last d digits (``Fw.d``). A
field without an exponent is divided by the power of ten of the scale factor (``1P``). Blanks count as nothing, and a
field of blanks is 0. The letter of an exponent is E, D or Q, or missing before a sign: ``0.25-119``.

Source: ISO/IEC 1539-1:2018 (Fortran 2018), clause 13. Descriptors of text and of other bases, and BZ, are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from akx.core.errors import FileFormatError, brief

__all__ = ["WIDEST_FIELD", "Fields", "Format", "parse_format", "read_integers", "read_reals"]

_TOKEN = re.compile(
    r"(?P<group>\d{0,4})\(|(?P<close>\))|(?P<slashes>\d{0,3})/|(?P<scale>[+-]?\d{1,3})P|(?P<skip>\d{0,3})X"
    r"|T(?P<tab>[LR]?)(?P<column>\d{1,4})|(?P<nothing>[,:]|BN|S[PS]?|R[UDZNCP]|DP)"
    r"|(?P<repeat>\d{0,4})(?P<kind>[IFDG]|E[NS]?)(?P<width>\d{1,3})(?:\.(?P<digits>\d{1,3}))?(?:E\d{1,3})?"
)
#: No number has more columns.
WIDEST_FIELD = 255
#: Formats stand in a line of a header, and no pass goes through more descriptors.
_LONGEST_FORMAT, _MOST_STEPS = 200, 10_000
_REAL = re.compile(rb"([+-]?)(?=\.?\d)(\d*)(\.?)(\d*)(?:E?([+-]\d+)|E(\d+))?")
_INTEGER = re.compile(rb"[+-]?\d+")
_SPECIAL = re.compile(rb"[+-]?(INF(INITY)?|NAN)", re.IGNORECASE)
_EXPONENTS = bytes.maketrans(b"DdQqe", b"EEEEE")
_AGAIN = "write or download the file again"

_Token = re.Match[str]
_Item = tuple[int, "_Token | list[_Item]"]


@dataclass(frozen=True)
class Format:
    """Where a format finds its numbers, for any number of them.

    `fields` has a row (line, first column, width, decimals, scale factor) for each field: `first` rows of the first
    pass, if it is unlike the others, and then those of the pass that is repeated. The two read `lines` lines.
    """

    fields: NDArray[np.int64]
    first: int
    lines: tuple[int, int]
    integer: bool

    def count_lines(self, count: int) -> int:
        """How many lines `count` fields take."""
        if count < self.first:
            passes, rest, row = 0, count, count
        else:
            passes, rest = divmod(count - self.first, len(self.fields) - self.first)
            row = self.first + rest
        more = int(self.fields[row, 0]) + 1 if rest else 0  # a READ ends where it meets the next descriptor
        return (self.lines[0] if count >= self.first else 0) + passes * self.lines[1] + more

    def place(self, count: int) -> NDArray[np.int64]:
        """Line, first column, width, decimals and scale factor of `count` fields, shape (5, count)."""
        first, again = self.fields[: min(count, self.first)], self.fields[self.first :]
        passes = -(-(count - len(first)) // len(again))
        placed = np.tile(again.T, passes)
        placed[0] += np.repeat(self.lines[0] + self.lines[1] * np.arange(passes), len(again))
        return (np.hstack((first.T, placed)) if len(first) else placed)[:, :count]


@dataclass(frozen=True)
class Fields:
    """The text of n numbers, (n, width) bytes padded with blanks, with decimals and scale factor of each."""

    octets: NDArray[np.uint8]
    digits: NDArray[np.int64]
    scale: NDArray[np.int64]

    @property
    def words(self) -> NDArray[np.bytes_]:
        return self.octets.view(f"S{self.octets.shape[1]}").reshape(-1)

    def word(self, place: int) -> bytes:
        """One field without its blanks."""
        return bytes(self.octets[place]).translate(None, b" \t")


def parse_format(text: str) -> Format:
    """The format in `text`, in parentheses. Raises ValueError, with the reason, where it describes no numbers."""
    text = re.sub(r"\s", "", text).upper()
    if len(text) > _LONGEST_FORMAT:
        raise ValueError("a shorter format")
    open_groups: list[tuple[int, list[_Item]]] = [(1, [])]
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError("descriptors I, F, E, D, G, X, T, P and groups, such as (16I5) or (1X,3(1P,E24.16))")
        position = token.end()
        if token["group"] is not None:
            open_groups.append((int(token["group"] or 1), []))
        elif token["close"] and len(open_groups) > 1:
            closed = open_groups.pop()
            open_groups[-1][1].append(closed)
        elif not token["nothing"]:
            open_groups[-1][1].append((int(token["repeat"] or token["slashes"] or 1), token))
    outer = open_groups[0][1]
    if len(open_groups) > 1 or len(outer) != 1 or not isinstance(outer[0][1], list):
        raise ValueError("parentheses that match")
    items = outer[0][1]
    first, lines, scale, kinds = _pass(items, 0)
    # Control reverts to the last group on the upper level, with its repeat count
    revert = max((i for i, (_, item) in enumerate(items) if isinstance(item, list)), default=0)
    again, lines_again, _, _ = _pass(items[revert:], scale)
    if not again:
        raise ValueError("a number in the last group")
    alike = (first, lines) == (again, lines_again)
    return Format(
        fields=np.array(again if alike else first + again, dtype=np.int64),
        first=0 if alike else len(first),
        lines=(0 if alike else lines, lines_again),
        integer=kinds == {"I"},
    )


def _descriptors(items: list[_Item]) -> Iterator[_Token | None]:
    """Each as often as it is repeated, and None for each time that a group begins."""
    for times, item in items:
        for _ in range(times):
            if isinstance(item, list):
                yield None
                yield from _descriptors(item)
            else:
                yield item


def _pass(items: list[_Item], scale: int) -> tuple[list[tuple[int, int, int, int, int]], int, int, set[str]]:
    """The fields of a pass through a format, the lines that it reads, its last scale factor and kinds of numbers."""
    fields: list[tuple[int, int, int, int, int]] = []
    kinds: set[str] = set()
    line = column = 0
    for steps, token in enumerate(_descriptors(items)):
        if steps >= _MOST_STEPS:
            raise ValueError(f"at most {_MOST_STEPS} descriptors")
        if token is None:
            continue
        if token["slashes"] is not None:
            line, column = line + 1, 0
        elif token["scale"] is not None:
            scale = int(token["scale"])
        elif token["skip"] is not None:
            column += int(token["skip"] or 1)
        elif token["column"] is not None:
            columns = int(token["column"])
            column = max(0, {"": columns - 1, "L": column - columns, "R": column + columns}[token["tab"]])
        elif token["width"] is not None:
            width = int(token["width"])
            if not 0 < width <= WIDEST_FIELD:
                raise ValueError(f"fields of 1 to {WIDEST_FIELD} columns")
            digits = int(token["digits"] or 0) if token["kind"] != "I" else 0  # those of Iw.m are for writing
            fields.append((line, column, width, digits, scale))
            kinds.add(token["kind"])
            column += width
        else:  # a parenthesis that closes nothing
            raise ValueError("parentheses that match")
    return fields, line + 1, scale, kinds


def read_integers(fields: Fields, what: str) -> NDArray[np.int64]:
    """Whole numbers. Raises FileFormatError with the first field that is none, OverflowError beyond 64 bits."""
    if _as_numpy_reads(fields.octets.tobytes()):
        try:
            return fields.words.astype(np.int64)
        except ValueError:
            pass  # blanks within a field or nothing else in it, or no number
    numbers = []
    for place in range(len(fields.octets)):
        word = fields.word(place)
        if word and not _INTEGER.fullmatch(word):
            raise _not_a_number(what, "a whole number", fields, place)
        numbers.append(int(word or b"0"))
    return np.array(numbers, dtype=np.int64)


def read_reals(fields: Fields, what: str) -> NDArray[np.float64]:
    """Real numbers, rounded once. Raises FileFormatError with the first field that is none."""
    text = fields.octets.tobytes().translate(_EXPONENTS)
    same = Fields(np.frombuffer(text, dtype=np.uint8).reshape(fields.octets.shape), fields.digits, fields.scale)
    odd = np.zeros(len(fields.octets), dtype=np.bool_)
    if fields.digits.any():
        odd |= (fields.digits > 0) & ~(same.octets == ord(".")).any(axis=1)
    if fields.scale.any():
        odd |= (fields.scale != 0) & ~(same.octets == ord("E")).any(axis=1)
    values = np.zeros(odd.size)
    try:
        if not _as_numpy_reads(text):
            raise ValueError
        if not odd.any():
            return same.words.astype(np.float64)
        values[~odd] = same.words[~odd].astype(np.float64)
    except ValueError:
        odd[:] = True
    for place in np.flatnonzero(odd).tolist():
        word = same.word(place)
        match = _REAL.fullmatch(word)
        if match:
            sign, whole, point, fraction, signed, plain = match.groups()
            power = int(signed or plain or b"0")
            power -= 0 if point else int(fields.digits[place])
            power -= 0 if signed or plain else int(fields.scale[place])
            values[place] = float(sign + whole + point + fraction + b"E%d" % power)
        elif _SPECIAL.fullmatch(word):
            values[place] = float(word)
        elif word:
            raise _not_a_number(what, "a number", fields, place)
    return values


def _as_numpy_reads(text: bytes) -> bool:
    """Whether NumPy takes nothing in `text` for a number that is none: 1_000, or a NUL at the end."""
    return b"_" not in text and b"\0" not in text


def _not_a_number(what: str, expected: str, fields: Fields, place: int) -> FileFormatError:
    found = brief(fields.octets[place].tobytes().decode("latin-1"))
    return FileFormatError(f"{what} is not {expected}", found=f"{found} as number {place + 1}", hint=_AGAIN)
