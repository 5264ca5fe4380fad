"""What a command left behind, with the looks at it that every test needs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout as the one JSON object that it must be."""
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """stderr as the one error line that it must be."""
        assert self.err.startswith("akx: error: ")
        assert self.err.endswith("\n")
        assert self.err.count("\n") == 1
        assert "Traceback" not in self.err
        return self.err[len("akx: error: ") : -1]
