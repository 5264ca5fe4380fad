"""Where output goes: data on stdout, status on stderr; plain text where nobody looks at a terminal."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from akx.errors import legible

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["data_console", "emit_json", "keep_stdout", "note", "status_console"]

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
                    text = "\n".join(map(legible, segment.text.split("\n")))
                    yield Segment(text, segment.style)

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS", "").isdigit() else _PLAIN_WIDTH
    return Legible(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def note(text: str) -> None:
    """One line of status on stderr."""
    print(f"akx: {legible(text, _LONGEST)}", file=sys.stderr, flush=True)


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
