"""``akx info``: features and suggestions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from akx.io import read_matrix
from akx.matrix import Matrix
from cli.golden import check_shape, check_text
from cli.running import Ran


def test_json_has_features_and_suggestions(akx: Callable[..., Ran], poisson: Path) -> None:
    data = akx("info", poisson, "--json").json
    matrix = Matrix.from_any(read_matrix(poisson))
    assert data["matrix"]["fingerprint"] == matrix.fingerprint
    assert (data["matrix"]["rows"], data["matrix"]["nnz"]) == (400, 1920)
    assert data["features"] == matrix.features.to_json()
    assert {item["topic"] for item in data["suggestions"]} >= {"memory", "diagonals", "symmetry"}
    check_shape("info.json", data)


def test_text(akx: Callable[..., Ran], poisson: Path) -> None:
    features, _, suggestions = akx("info", poisson).out.partition("\n\n")
    check_text("info.txt", features.replace(str(poisson), "poisson.mtx"))
    assert "symmetry" in suggestions
