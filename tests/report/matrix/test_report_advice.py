"""The suggestions follow the structure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from akx.backends.host import HostDevice
from akx.core.matrix import Features, Matrix
from akx.report.matrix.advice import advise, matrix_bytes

_DEVICE = HostDevice("test", 2, 32 * 1024, 1024 * 1024, 32 * 1024 * 1024)
_LARGE = Features(
    rows=1_000_000,
    nnz=9_000_000,
    dtype="float64",
    row_min=4,
    row_max=9,
    row_mean=9.0,
    row_std=0.1,
    empty_rows=0,
    bandwidth=1001,
    profile=1_000_000_000,
    components=1,
    level_count=1000,
    level_width_max=1000,
    pattern_symmetric=True,
    value_symmetry="symmetric",
    block_size=1,
    block_fill=1.0,
    diagonal_count=9,
    diagonal_fill=0.99,
)


def _topics(features: Features, k: int = 8) -> dict[str, str]:
    return {item.topic: item.text for item in advise(features, _DEVICE, k)}


def test_bytes_are_those_of_csr() -> None:
    A = Matrix.from_any(sp.csr_array(sp.eye_array(10)))
    assert matrix_bytes(A.features) == A.nbytes


def test_a_large_regular_matrix_suggests_blocking() -> None:
    topics = _topics(_LARGE)
    assert "exceed every cache" in topics["memory"]
    assert "which fits L2" in topics["wavefront"]
    assert "order" not in topics
    assert "16 bits" in topics["indices"]
    assert "9 diagonals" in topics["diagonals"]
    assert "interval" in topics["symmetry"]


def test_each_rule_speaks_up_only_when_it_applies() -> None:
    assert "fit the L2" in _topics(replace(_LARGE, rows=1000, nnz=9000))["memory"]
    assert "fit the L3" in _topics(replace(_LARGE, rows=100_000, nnz=900_000))["memory"]
    assert _topics(replace(_LARGE, level_width_max=100_000))["wavefront"].endswith("more than L2 (2 MiB)")
    assert "powers per pass they would fit" in _topics(replace(_LARGE, level_width_max=3000))["wavefront"]
    assert "ordering rows by levels" in _topics(replace(_LARGE, bandwidth=900_000))["order"]
    assert "indices" not in _topics(replace(_LARGE, bandwidth=900_000))
    assert "uneven" in _topics(replace(_LARGE, row_max=5000))["rows"]
    assert "rows" not in _topics(_LARGE)
    assert "3 x 3" in _topics(replace(_LARGE, block_size=3))["blocks"]
    assert "7 empty rows" in _topics(replace(_LARGE, empty_rows=7, components=8))["components"]
    assert "ellipse" in _topics(replace(_LARGE, value_symmetry="none"))["symmetry"]
    assert "symmetry" not in _topics(replace(_LARGE, value_symmetry="none", pattern_symmetric=False))


def test_a_matrix_without_entries_gets_no_nonsense() -> None:
    empty = Matrix.from_any(sp.csr_array((5, 5), dtype=np.float64))
    topics = {item.topic for item in advise(empty.features, _DEVICE, 8)}
    assert topics <= {"memory", "components", "symmetry"}


def test_the_structure_says_nothing_of_what_is_fastest() -> None:
    for change in ({}, {"level_width_max": 100_000}, {"rows": 1000, "nnz": 9000}):
        assert not any(
            word in text for text in _topics(replace(_LARGE, **change)).values() for word in ("expect ", "should win")
        )
