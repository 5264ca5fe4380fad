"""Checks of what a record holds: times, dates, names and JSON objects from wherever they come."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from akx.core.errors import PlanError, brief

__all__ = ["LONGEST_NAME", "check_time", "checked_object", "checked_seconds", "checked_text"]

#: The most characters of a name, as of a file's; what is longer is cut.
LONGEST_NAME = 255
#: The most lists and objects one in another.
_DEEPEST = 32


def checked_seconds(what: str, value: Any, *, zero: bool) -> float:
    """A time in seconds, finite and positive, or `zero` where that will do. Raises PlanError."""
    least = "a finite number >= 0" if zero else "a finite number > 0"
    try:
        number = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise PlanError(f"{what} is not a time", expected=least, found=brief(value))
    return number


def checked_text(what: str, value: Any, most: int) -> str:
    """A text of `most` characters at most, which UTF-8 can hold: what is longer is cut. Raises PlanError."""
    if not isinstance(value, str):
        raise PlanError(f"{what} is not a string", found=brief(value))
    text = value[: most + 1].encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else f"{text[: most - 3]}..."


def check_time(what: str, value: Any) -> None:
    """Raise PlanError where a moment is none of ISO 8601 with an offset from UTC."""
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise PlanError(f"{what} is not a time", expected="ISO 8601 with an offset from UTC", found=brief(value))


def checked_object(what: str, value: Any) -> dict[str, Any]:
    """A copy of a JSON object. Raises PlanError."""
    try:
        if not isinstance(value, Mapping):
            raise TypeError(type(value).__name__)
        copy: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
        if set(copy) != set(value):
            raise TypeError("a name that is not a string")
        if _depth(copy) > _DEEPEST:
            raise TypeError(f"more than {_DEEPEST} lists or objects one in another")
    except (TypeError, ValueError, RecursionError) as error:
        raise PlanError(f"record field '{what}' is not a JSON object", found=str(error)) from error
    return copy


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)
