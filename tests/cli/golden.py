"""Golden files: what a command printed once, was looked at, and must print ever after.

``AKX_UPDATE_GOLDEN=1 pytest tests/cli`` writes them anew; look at the difference before committing it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).resolve().parents[1] / "golden"


def check_text(name: str, text: str) -> None:
    """`text`, trailing blanks aside, is what the golden file says."""
    stripped = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    path = _FOLDER / name
    if os.environ.get("AKX_UPDATE_GOLDEN"):
        path.write_text(stripped)
    assert stripped == path.read_text()


def check_shape(name: str, data: Any) -> None:
    """The keys of `data` and the types under them are what the golden file says."""
    found = json.dumps(shape(data), indent=2) + "\n"
    path = _FOLDER / name
    if os.environ.get("AKX_UPDATE_GOLDEN"):
        path.write_text(found)
    assert json.loads(found) == json.loads(path.read_text())


def shape(value: Any) -> Any:
    """The form of a JSON value: keys and type names, a list by its first item."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "null" if value is None else type(value).__name__
