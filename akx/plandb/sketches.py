"""What is known at a glance of many plans, for those who look for similar matrices: no record is read in whole.

The features of a matrix are kept with its plan, first in ``provenance``, as one flat object of numbers::

    {"features": {"rows": 1000, "nnz": 4920, ...}, "machine": ...}

so that they are found in the text of a row without parsing the rest of it. Some microseconds a plan.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from akx.plandb.record import PlanRecord

__all__ = ["FEATURES", "SKETCH_COLUMNS", "Sketch"]

#: Where features are in the provenance of a record.
FEATURES = "features"
#: Columns of a plan that a sketch is made of.
SKETCH_COLUMNS = ("id", "k", "start_vectors", "device_class", "provenance")

_BEGIN = re.compile(r'\{"features": (\{[^{}]*\})')


@dataclass(frozen=True)
class Sketch:
    """A plan at a glance.

    Attributes
    ----------
    id : str
        Of the plan.
    k, start_vectors : int
    device_class : str
    features : mapping of str to float
        Of its matrix.
    """

    id: str
    k: int
    start_vectors: int
    device_class: str
    features: Mapping[str, float]

    @staticmethod
    def of_row(row: tuple[Any, ...]) -> Sketch | None:
        """From the columns :data:`SKETCH_COLUMNS`; None where they have no features, or are no columns of ours."""
        identifier, k, start_vectors, device_class, provenance = row
        found = _BEGIN.match(provenance) if isinstance(provenance, str) else None
        if found is None or not isinstance(k, int) or not isinstance(start_vectors, int):
            return None
        try:
            features = _numbers(json.loads(found[1]))
        except ValueError:
            return None
        return None if features is None else Sketch(str(identifier), k, start_vectors, str(device_class), features)

    @staticmethod
    def of_record(record: PlanRecord) -> Sketch | None:
        """From a record in memory; None where it has no features."""
        features = _numbers(record.provenance.get(FEATURES))
        if features is None:
            return None
        return Sketch(record.id, record.key.k, record.key.start_vectors, record.key.device_class, features)


def _numbers(given: Any) -> dict[str, float] | None:
    """The features as finite numbers; None where they are something else."""
    if not isinstance(given, Mapping) or not given:
        return None
    plain = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in given.values())
    if not plain or not all(abs(value) < 2**63 and math.isfinite(value) for value in given.values()):
        return None
    return {str(name): float(value) for name, value in given.items()}
