"""One thing that was looked at, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Check"]


@dataclass(frozen=True)
class Check:
    """One thing looked at.

    Attributes
    ----------
    name : str
        What.
    state : str
        ``"ok"``, ``"missing"`` (optional and not there) or ``"problem"`` (akx cannot work, or works worse).
    found : str
        What was found.
    hint : str
        What to do about it; empty where nothing.
    """

    name: str
    state: str
    found: str
    hint: str = ""

    def to_json(self) -> dict[str, str]:
        """A dict of JSON types."""
        return {"name": self.name, "state": self.state, "found": self.found, "hint": self.hint}
