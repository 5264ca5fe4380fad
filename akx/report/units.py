"""Numbers as people read them: seconds, bytes, counts, each with a unit that fits."""

from __future__ import annotations

import math

__all__ = [
    "BEYOND_BOUND", "ID_DIGITS", "count", "counted", "duration", "half_width", "over_untuned", "ratio", "share", "size",
]  # fmt: skip

#: Digits of an id of a plan that are shown; any unambiguous beginning is understood.
ID_DIGITS = 12
#: What a share of the roofline above 1 means.
BEYOND_BOUND = (
    "faster than the model's bound: the measured bandwidth was too low, or data came from a nearer cache than the "
    "model has it"
)
_SECONDS = ((1e-6, 1e9, "ns"), (1e-3, 1e6, "us"), (1.0, 1e3, "ms"), (120.0, 1.0, "s"))


def duration(seconds: float | None) -> str:
    """``0.00123`` as ``1.23 ms``; three significant digits, minutes from two minutes on."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    for below, factor, unit in _SECONDS:
        if seconds < below:
            return f"{_three_digits(seconds * factor)} {unit}"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def half_width(spread: float | None) -> str:
    """``0.012`` as `` +-1.2%``, to go behind a figure; nothing where there is none."""
    return f" +-{100 * spread:.1f}%" if spread else ""


def size(nbytes: float) -> str:
    """``1536`` as ``1.5 KiB``."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if value == int(value) else f"{_three_digits(value)} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def count(number: int) -> str:
    """``1234567`` as ``1,234,567``."""
    return f"{number:,}"


def counted(number: int, name: str) -> str:
    """``1`` and ``"plan"`` as ``1 plan``, ``1200`` as ``1,200 plans``."""
    return f"{count(number)} {name if number == 1 else _plural(name)}"


def _plural(name: str) -> str:
    if name.endswith("s"):
        return f"{name}es"
    return f"{name[:-1]}ies" if name.endswith(("ry", "ty")) else f"{name}s"


def ratio(value: float) -> str:
    """A speed-up: ``1.7512`` as ``1.75x``."""
    return f"{value:.2f}x"


def over_untuned(speedup: float, calls: int | None, *, is_same: bool) -> str:
    """What tuning has gained over an untuned call, and after how many calls that has paid; None where it never will."""
    if is_same:
        return "over an untuned call: nothing gained, it would take the same plan"
    if calls is None:
        return "over an untuned call: nothing gained, it would take a plan that is as fast"
    return f"over an untuned call: {ratio(speedup)}, paid back after {counted(calls, 'call')}"


def share(value: float | None) -> str:
    """A fraction: ``0.613`` as ``61%``."""
    return "-" if value is None or not math.isfinite(value) else f"{100 * value:.0f}%"


def _three_digits(value: float) -> str:
    """At least three significant digits, without an exponent."""
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{decimals}f}"
