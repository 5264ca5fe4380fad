"""Golden files: what a command printed once, was looked at, and must print ever after.

``AKX_UPDATE_GOLDEN=1 pytest tests/cli tests/tuner/test_tuner_golden.py tests/benchmarks/test_search_order.py`` writes
them anew, in one process; look at the difference before committing it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "golden"


def check_text(name: str, text: str) -> None:
    """`text`, trailing blanks aside, is what the golden file says."""
    stripped = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    path = FOLDER / name
    if os.environ.get("AKX_UPDATE_GOLDEN"):
        path.write_text(stripped)
    assert stripped == path.read_text()


def check_shape(name: str, data: Any) -> None:
    """The keys of `data` and the types under them are what the golden file says."""
    found = json.dumps(shape(data), indent=2) + "\n"
    path = FOLDER / name
    if os.environ.get("AKX_UPDATE_GOLDEN"):
        path.write_text(found)
    assert json.loads(found) == json.loads(path.read_text())


def frozen(name: str, part: str, found: Any) -> Any:
    """What the golden file says of `part`, None where it says nothing; `found`, where it is written anew."""
    path = FOLDER / name
    parts = json.loads(path.read_text()) if path.exists() else {}
    if os.environ.get("AKX_UPDATE_GOLDEN"):
        parts = dict(sorted({**parts, part: found}.items()))
        path.write_text(json.dumps(parts, indent=1) + "\n")
    return parts.get(part)


def check_lines(name: str, part: str, found: Mapping[str, str]) -> None:
    """The lines of `part` are what the golden file says; each that differs is told, as it was and as it is."""
    known = frozen(name, part, found) or {}
    differences = [
        f"{part}, {line}:\n  was {known.get(line, 'not there')}\n  is  {found.get(line, 'not there')}"
        for line in dict.fromkeys([*known, *found])
        if known.get(line) != found.get(line)
    ]
    assert not differences, "\n".join(differences)


def shape(value: Any) -> Any:
    """The form of a JSON value: keys and type names, a list by its first item."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "null" if value is None else type(value).__name__
