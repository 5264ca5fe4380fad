"""One thing that was looked at, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["Check"]


@dataclass(frozen=True)
class Check:
    """One thing looked at: its name, what was found, and what to do about it.

    `state`: ``"ok"``, ``"missing"`` (optional and not there) or ``"problem"`` (akx cannot work, or works worse).
    """

    name: str
    state: str
    found: str
    hint: str = ""

    def to_json(self) -> dict[str, str]:
        """A dict of JSON types."""
        return asdict(self)
