"""Where output goes: data on stdout, status on stderr; plain text where nobody looks at a terminal.

What is lost differs: data that cannot be written is an error, status that cannot be written is dropped.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from akx.core.errors import AkxError, shown, shown_lines
from akx.core.progress import shown_by, working

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "data_console",
    "emit_json",
    "keep_stdout",
    "note",
    "standard_streams",
    "status_console",
    "words_of_a_command",
]

#: Columns of a table that goes to a file or a pipe, unless COLUMNS says otherwise.
_PLAIN_WIDTH = 120
#: The most characters of a line of status.
_LONGEST = 2000


def keep_stdout() -> None:
    """Keep this process's stdout for what akx writes; what libraries in C print there goes to stderr from now on."""
    stream = sys.stdout
    try:
        stream.flush()
        own = os.dup(stream.fileno())
    except (AttributeError, OSError, ValueError):  # closed, or no file
        return
    try:
        os.dup2(2, stream.fileno())
    except OSError:
        os.close(own)
        return
    buffering = 1 if stream.line_buffering else -1
    sys.stdout = open(own, "w", buffering, stream.encoding, stream.errors)  # noqa: SIM115


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """Within, stdout and stderr are there and take every character, whatever they are outside.

    A closed one is the null device. Characters that its encoding lacks are escaped. Data that stdout does not take
    raises :class:`AkxError`, and BrokenPipeError where its reader is gone. What stderr does not take is dropped.
    """
    outside = sys.stdout, sys.stderr
    _fill_descriptors()
    with contextlib.ExitStack() as stack:
        sys.stdout = _open(outside[0], stack, is_data=True)
        sys.stderr = _open(outside[1], stack, is_data=False)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = outside


def _fill_descriptors() -> None:
    """Open the null device where a standard descriptor is closed: the next file opened would get its number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _open(stream: Any, stack: contextlib.ExitStack, *, is_data: bool) -> Any:
    if stream is None or stream.closed:
        return stack.enter_context(open(os.devnull, "w", encoding="utf-8", errors="backslashreplace"))
    errors = getattr(stream, "errors", None)
    if errors and hasattr(stream, "reconfigure"):
        with contextlib.suppress(AkxError, OSError):  # it flushes
            stream.reconfigure(errors="backslashreplace")
            stack.callback(_restore, stream, errors)
    return _Stream(stream, is_data)


def _restore(stream: Any, errors: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        stream.reconfigure(errors=errors)


class _Stream:
    """A standard stream that may be full, or without a reader: from then on it goes to the null device."""

    def __init__(self, stream: Any, is_data: bool) -> None:
        self._stream, self._is_data = stream, is_data
        self.is_fresh = True
        self._refusal: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self.is_fresh = False
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, action: Callable[[], Any]) -> None:
        if self._refusal is None:
            try:
                action()
            except OSError as error:
                self._leave()
                self._refusal = error
        if self._refusal is None or not self._is_data:
            return
        if isinstance(self._refusal, BrokenPipeError):
            raise self._refusal
        raise AkxError(
            "stdout cannot be written",
            found=self._refusal.strerror or str(self._refusal),
            hint="free some space, or send it elsewhere",
        ) from self._refusal

    def _leave(self) -> None:
        """Send what is still buffered, and all that follows, to nowhere: the interpreter flushes again at its end."""
        with contextlib.suppress(OSError, ValueError):
            descriptor = os.open(os.devnull, os.O_WRONLY)
            os.dup2(descriptor, self._stream.fileno())
            os.close(descriptor)


@contextlib.contextmanager
def words_of_a_command() -> Iterator[None]:
    """Say on stderr what akx does, after a second without a word; nothing more once something was written."""
    with shown_by(_Notes()), working("working"):
        yield


class _Notes:
    """A line for each thing that is under way, once, while the command is silent."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def show(self, what: str, seconds: float) -> None:
        if what not in self._said and _is_silent():
            self._said.add(what)
            note(what)
            stderr: Any = sys.stderr
            stderr.is_fresh = True  # that word is not what is waited for

    def end(self) -> None:
        pass


def _is_silent() -> bool:
    return all(getattr(stream, "is_fresh", False) for stream in (sys.stdout, sys.stderr))


def data_console() -> Console:
    """A console on stdout. Honours NO_COLOR; no escape codes and no narrow wrapping when it is not a terminal."""
    return _console(stderr=False)


def status_console() -> Console:
    """A console on stderr, for progress and notes."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Legible(Console):
        """Whatever is printed, no text of others reaches the terminal as a command."""

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                if segment.control or segment.text.isprintable():
                    yield segment
                else:
                    yield Segment(shown_lines(segment.text), segment.style)

        def on_broken_pipe(self) -> None:
            raise

    stream = sys.stderr if stderr else sys.stdout
    told = os.environ.get("COLUMNS", "")
    width: int | None = None
    if not (told.isdecimal() and int(told) > 0):  # in 0 columns rich shows nothing
        width = shutil.get_terminal_size().columns if stream.isatty() else _PLAIN_WIDTH
    return Legible(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def note(text: str) -> None:
    """One line of status on stderr."""
    print(f"akx: {shown(text, _LONGEST)}", file=sys.stderr, flush=True)


def emit_json(data: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout: keys in the order given, NaN and infinities as null."""
    print(json.dumps(_plain(data), indent=2, allow_nan=False), flush=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):  # a NumPy scalar
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
