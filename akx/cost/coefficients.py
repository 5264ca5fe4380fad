"""Prices of counts, one data file a backend, which `python -m benchmarks.prices` writes.

``BACKEND.json`` has ``sections``, one for each part of the cost models. A section has its ``values``, whose keys end in
their unit, what they ``means``, when they were ``fitted``, for which ``device`` and on which ``matrices``, and the
``error`` of plans that it prices, over so many ``plans`` of recordings: of predicted over measured seconds the
``median_ratio`` and the ``worst_ratio``, and the ``median_factor``, in either direction. It is null, with the reason in
``error_unknown``, where nobody has measured it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

__all__ = ["coefficients", "coefficients_file", "read_sections"]


def coefficients_file(backend: str) -> Path:
    """Where the coefficients of a backend of akx are."""
    return Path(__file__).with_name(f"{backend}.json")


@cache
def read_sections(backend: str) -> dict[str, dict[str, Any]]:
    """The sections of a backend's file, by name."""
    found: dict[str, dict[str, Any]] = json.loads(coefficients_file(backend).read_bytes())["sections"]
    return found


@cache
def coefficients(backend: str, section: str) -> Any:
    """The values of a section as attributes, one object for all who ask: a fit changes them in place."""
    return SimpleNamespace(**read_sections(backend)[section]["values"])
