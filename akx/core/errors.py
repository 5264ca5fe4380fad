"""The typed errors of akx, each with what went wrong, what was expected, what was found and what to do next.

Every error raised on purpose by akx derives from :class:`AkxError` and from the built-in exception a SciPy user would
expect for that mistake (``ValueError`` for a bad matrix, ``ImportError`` for a missing package, and so on), so that
existing ``except`` clauses keep working.
"""

from __future__ import annotations

import reprlib
import unicodedata
from collections.abc import Iterable

__all__ = [
    "AkxError",
    "AkxWarning",
    "ArgumentError",
    "ArgumentTypeError",
    "BudgetError",
    "CapturingError",
    "CompileError",
    "DatabaseError",
    "DeviceError",
    "DeviceMemoryError",
    "ExportError",
    "FileFormatError",
    "FileMissingError",
    "IllegalAddressError",
    "InfeasibleError",
    "LaunchError",
    "MatrixError",
    "MissingDependencyError",
    "PlanError",
    "VerificationError",
]

#: The most characters of each part of a message, of what went wrong, and the most names in a list.
_LONGEST, _MOST_WHAT, _MOST_NAMES = 300, 600, 8


def shown(text: str, most: int | None = 60) -> str:
    """Text that others may have written, as one line that a terminal shows and does not obey.

    Control characters, line ends, marks of the direction of writing and all else that is not printed become escapes
    (``\\x1b``). Of what is longer than `most` characters, beginning and end are left with ``...`` between them.
    """
    if most is None:
        return _printable(text)
    whole = _printable(text) if len(text) <= most else None
    if whole is not None and len(whole) <= most:
        return whole
    end = (most - 3) // 2
    return f"{_printable(text[:most])[: most - 3 - end]}...{_printable(text[-most:])[-end:]}"


def brief(value: object, most: int = 60) -> str:
    """A value of any type as Python writes it, as :func:`shown` has it; of what is large a few items are looked at."""
    if isinstance(value, int) and abs(value) >= 10**40:
        return f"a number of {value.bit_length()} bits"
    form = _Form()
    form.maxstring = form.maxother = most
    return shown(" ".join(form.repr(value).split()), most)


def shown_lines(text: str, most: int | None = None) -> str:
    """Text of several lines, each as :func:`shown` has it."""
    return "\n".join(shown(line, most) for line in text.expandtabs().split("\n"))


def listed(names: Iterable[str]) -> str:
    """Names that others gave, for a message: the first few, as :func:`shown` has them."""
    names = list(names)
    more = len(names) - _MOST_NAMES
    return ", ".join(map(shown, names[:_MOST_NAMES])) + (f" and {more} more" if more > 0 else "")


class _Form(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        return brief(x) if abs(x) >= 10**40 else repr(x)


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or unicodedata.category(c) == "Zs" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


class AkxError(Exception):
    """Root of every error that akx raises on purpose.

    Parameters
    ----------
    what : str
        What went wrong, in one clause (``"matrix is not square"``).
    expected, found : str, optional
        What was expected and what was found instead.
    hint : str, optional
        The next thing to do, as an imperative (``"pass A[:n, :n]"``).

    Each of them is one line without control characters, and cut where it is long.
    """

    exit_code = 2

    def __init__(
        self, what: str, *, expected: str | None = None, found: str | None = None, hint: str | None = None
    ) -> None:
        self.what = self._legible(what, _MOST_WHAT)
        self.expected = None if expected is None else self._legible(expected)
        self.found = None if found is None else self._legible(found)
        self.hint = None if hint is None else self._legible(hint)
        super().__init__(self.what)

    def __str__(self) -> str:
        parts = [self.what]
        if self.expected is not None:
            parts.append(f"expected {self.expected}")
        if self.found is not None:
            parts.append(f"found {self.found}")
        text = ", ".join(parts)
        return f"{text}; {self.hint}" if self.hint else text

    @staticmethod
    def _legible(part: str, most: int = _LONGEST) -> str:
        return shown(" ".join(line.strip() for line in part.split("\n")), most)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.expected, self.found, self.hint), self.__dict__)


def _rebuild(kind: type[AkxError], what: str, expected: str | None, found: str | None, hint: str | None) -> AkxError:
    return kind(what, expected=expected, found=found, hint=hint)


class AkxWarning(UserWarning):
    """Root of what akx warns of: something is not as it should be, and a result is there all the same."""


class MatrixError(AkxError, ValueError):
    """The matrix cannot be used: not square, not finite, dense, empty, of an unsupported dtype."""


class FileFormatError(AkxError, ValueError):
    """A file is not what its name says: truncated, wrong header, unknown format."""


class FileMissingError(AkxError, FileNotFoundError):
    """A file does not exist."""

    def __str__(self) -> str:
        return AkxError.__str__(self)


class ArgumentError(AkxError, ValueError):
    """An argument has a value that makes no sense (k < 1, a wrong shape, an unknown name)."""


class ArgumentTypeError(AkxError, TypeError):
    """An argument has the wrong type."""


class PlanError(AkxError, ValueError):
    """A plan is malformed, from another schema, or does not belong to this matrix."""


class InfeasibleError(AkxError, ValueError):
    """A well-formed plan cannot be prepared for this matrix on this device; the message gives the reason."""


class BudgetError(AkxError, ValueError):
    """No partition fits the memory budget."""


class DatabaseError(AkxError, OSError):
    """The plan database cannot be opened, read or written."""

    def __str__(self) -> str:
        return AkxError.__str__(self)


class DeviceError(AkxError, RuntimeError):
    """The device failed or is not there."""


class CapturingError(DeviceError):
    """A stream that akx has worked on is being captured, and other work has to wait for it."""


class DeviceMemoryError(DeviceError, MemoryError):
    """The device has too little memory left, or a budget for it is spent."""


class LaunchError(DeviceError):
    """The device refused to start a kernel, or a kernel stopped."""


class IllegalAddressError(DeviceError):
    """A kernel read or wrote where it must not; the GPU is lost to this process."""


class CompileError(DeviceError):
    """A kernel does not compile; the compiler's log is in the message."""

    @staticmethod
    def _legible(part: str, most: int = 0) -> str:
        return shown_lines(part)


class ExportError(AkxError, BufferError):
    """An array cannot be handed to another library in the way that it asks for."""


class MissingDependencyError(AkxError, ImportError):
    """An optional package is not installed; the hint says which extra brings it."""

    def __str__(self) -> str:
        return AkxError.__str__(self)


class VerificationError(AkxError, ArithmeticError):
    """A program's result differs from the reference by more than the componentwise bound."""
