"""Long ranges of parameters: some of them are tested on every push, all of them by ``make nightly``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

__all__ = ["mostly_nightly"]


def mostly_nightly(values: Iterable[Any], push: Collection[Any] | None = None) -> list[Any]:
    """Parameters of which those in `push`, by default the first and the last, are tested on every push."""
    found = list(values)
    kept = [found[0], found[-1]] if push is None else list(push)
    missing = [one for one in kept if one not in found]
    if missing:
        raise ValueError(f"not among the parameters: {missing}")
    return [one if one in kept else _marked(one) for one in found]


def _marked(value: Any) -> Any:
    several = value if isinstance(value, tuple) else (value,)
    return pytest.param(*several, marks=pytest.mark.nightly)
