"""How much Python a call runs: what does not grow unnoticed, whatever else the machine is doing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def calls_of(function: Callable[[], object]) -> int:
    """Calls of functions in Python and of those in C that one call makes: what a second call of a user costs."""
    function()
    made = [0]

    def count(frame: Any, event: str, argument: Any) -> None:
        made[0] += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return made[0]
