"""Progress lines for whatever takes over a second.

Whoever begins with something that may take long enters :class:`working` with a few words. That costs under a
microsecond, for one thread looks at all of it, four times a second, while there is something to look at. What is under
way for a second is shown: the innermost words and the seconds so far, on a line that goes when it is done, on a
terminal and in a notebook; elsewhere words go to the logger ``akx`` as INFO, each once, and not more often than every
few seconds. What is done says how long it took, at the level DEBUG. Compiling is heard of from Numba itself.
:func:`progress` switches all of it off, as does ``AKX_PROGRESS=0``.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any, Protocol

__all__ = ["COMPILING", "Display", "progress", "shown_by", "working"]

#: Seconds after which it is said what is under way.
AFTER = 1.0
#: Seconds between two looks, and looks without anything under way after which the thread ends.
_LOOK, _IDLE = 0.25, 20
#: Seconds between two lines in a log.
_APART = 5.0
#: Seconds without compiling after which it has ended: functions come one after another.
_GAP = 0.5
#: Seconds within which a loop has another step, or has been left.
_STEP = 5.0
COMPILING = "compiling akx's own code, which is kept"
_ANY = "numba:compile"
_log = logging.getLogger("akx")


class Display(Protocol):
    """Where words are shown, of what has been under way for so long, until nothing is any more."""

    def show(self, what: str, seconds: float) -> None: ...

    def end(self) -> None: ...


def progress(on: bool) -> None:
    """Whether akx says what it is doing where that takes more than a second: on a terminal, in a notebook, in a log.

    Parameters
    ----------
    on : bool
        False is silence, until it is True again. By default it says so, unless ``AKX_PROGRESS=0`` is set.
    """
    _State.on = bool(on)
    if not on:
        _end_display()


class working:
    """Within, these words are under way: ``with working("reading A.mtx"): ...``.

    Also without ``with``: from :meth:`begin` to :meth:`end`, or from one :meth:`step` to the next.

    Parameters
    ----------
    what : str
        In a few words; may be changed within.
    """

    __slots__ = ("__weakref__", "since", "until", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self.since, self.until = 0.0, math.inf

    def begin(self) -> working:
        """From now on."""
        if _State.on:
            self.since = time.monotonic()
            _works[id(self)] = weakref.ref(self)
            if not _State.is_watched:
                _watch()
        return self

    def step(self) -> None:
        """One more step of a loop, which may be left in any way: without another one for a while it has ended."""
        if _State.on:
            self.until = time.monotonic() + _STEP
            if id(self) not in _works:
                self.begin()

    def end(self, at: float | None = None) -> None:
        """It is done, now or at a time of the past."""
        if _works.pop(id(self), None) is not None and _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s took %.3f s", self.what, (at or time.monotonic()) - self.since)
        if _State.display is not None and not _works:
            _end_display()

    def __enter__(self) -> working:
        return self.begin()

    def __exit__(self, *_: object) -> None:
        self.end()


@contextlib.contextmanager
def shown_by(display: Display) -> Iterator[None]:
    """Within, words are shown there, whatever stderr is."""
    before, _State.chosen = _State.chosen, display
    try:
        yield
    finally:
        _end_display()
        _State.chosen = before


class _State:
    on = os.environ.get("AKX_PROGRESS", "").strip().lower() not in ("0", "off", "false", "no")
    is_watched = False
    is_heard = False
    display: Display | None = None
    chosen: Display | None = None


#: By identity, what is under way, in the order it was begun.
_works: dict[int, weakref.ref[working]] = {}
_showing = threading.RLock()


def _watch() -> None:
    _State.is_watched = True
    with contextlib.suppress(RuntimeError):  # there are too many threads, or the interpreter ends: then in silence
        threading.Thread(target=_look, name="akx-progress", daemon=True).start()


def _look() -> None:
    """Look at what is under way until there is nothing for a while."""
    idle = 0
    while idle < _IDLE:
        time.sleep(_LOOK)
        _listen()
        _Compiling.forget(time.monotonic())
        now = time.monotonic()
        under_way = []
        for key, ref in list(_works.items()):
            work = ref()
            if work is not None and work.until >= now:
                under_way.append(work)
            else:
                _works.pop(key, None)
        idle = 0 if under_way else idle + 1
        longest = max((now - work.since for work in under_way), default=0.0)
        if not under_way:
            _end_display()
        elif longest >= AFTER and _State.on:
            with _showing, contextlib.suppress(Exception):  # a terminal that is gone is nobody's error
                if _works:
                    _State.display = _State.display or _State.chosen or _default()
                    _State.display.show(under_way[-1].what, longest)
    _State.is_watched = False
    if _works:
        _watch()


def _end_display() -> None:
    with _showing, contextlib.suppress(Exception):
        display, _State.display = _State.display, None
        if display is not None:
            display.end()


# ------------------------------------------------------------------------------------------------------ compiling


class _Compiling:
    """What Numba says of its doings, heard as one piece of work from the first function to the last."""

    work: working | None = None
    depth, ended = 0, 0.0

    @classmethod
    def on_start(cls, event: Any) -> None:
        cls.depth += 1
        if cls.work is None and _is_own(event):
            cls.work = working(COMPILING).begin()

    @classmethod
    def on_end(cls, event: Any) -> None:
        cls.depth = max(0, cls.depth - 1)
        cls.ended = time.monotonic()

    @classmethod
    def forget(cls, now: float) -> None:
        """It has ended, where nothing was compiled for a while."""
        if cls.work is not None and cls.depth == 0 and now - cls.ended >= _GAP:
            cls.work.end(cls.ended)
            cls.work = None


def _is_own(event: Any) -> bool:
    """Whether it is a function of akx, or nobody knows whose."""
    data = getattr(event, "data", None) or {}
    function = getattr(data.get("dispatcher"), "py_func", None)
    return function is None or str(function.__module__).partition(".")[0] == "akx"


def _listen() -> None:
    """Hear of Numba's compiler from now on, where it is imported."""
    numba = sys.modules.get("numba")
    if _State.is_heard or numba is None or getattr(numba.__spec__, "_initializing", False):
        return
    _State.is_heard = True
    from numba.core import event

    class Ear(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            _Compiling.on_start(event)

        def on_end(self, event: Any) -> None:
            _Compiling.on_end(event)

    event.register(_ANY, Ear())


# ------------------------------------------------------------------------------------------------------- displays


def _default() -> Display:
    """A status line of rich on a terminal and in a notebook; elsewhere the log."""
    is_notebook = "ipykernel" in sys.modules and "ipywidgets" in sys.modules
    if is_notebook or (sys.stderr is not None and sys.stderr.isatty()):
        return _Line()
    return _Log()


class _Line:
    def __init__(self) -> None:
        from rich.console import Console

        self._status = Console(stderr=True).status("", spinner="line")
        self._status.start()

    def show(self, what: str, seconds: float) -> None:
        from rich.text import Text

        self._status.update(Text(f"akx: {what}, {seconds:.0f} s"))

    def end(self) -> None:
        self._status.stop()


class _Log:
    """Lines of the logger ``akx``."""

    _said, _when = "", float("-inf")

    def show(self, what: str, seconds: float) -> None:
        now = time.monotonic()
        if what != _Log._said and now - _Log._when >= _APART:
            _Log._said, _Log._when = what, now
            _log.info("%s (%.0f s so far)", what, seconds)

    def end(self) -> None:
        _Log._said = ""


def _in_child() -> None:
    """A forked child has none of the parent's threads."""
    global _showing
    _showing = threading.RLock()
    _State.is_watched, _State.display = False, None
    _works.clear()
    _Compiling.work, _Compiling.depth = None, 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
