"""The demo's matrix and its sentence; that it runs is seen by `make demo`."""

from __future__ import annotations

import importlib.util
from itertools import product
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

_PATH = Path(__file__).resolve().parent.parent / "examples" / "demo.py"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    found = importlib.util.spec_from_file_location("demo", _PATH)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_heat_in_a_cube_has_the_energy_of_linear_fields(demo: ModuleType) -> None:
    """x^T A x is the integral of c |grad x|^2: of x = a . p over each element of side 1, its c times |a|^2."""
    elements = 3
    A = demo.heat(elements)
    points = np.array(list(product(range(elements + 1), repeat=3)), dtype=float)
    conductivity = np.exp(np.random.default_rng(1).normal(size=elements**3))
    for slope in np.eye(3), np.array([[1.0, -2.0, 0.5]]):
        for a in slope:
            x = points @ a
            assert x @ (A @ x) == pytest.approx(conductivity.sum() * (a @ a))
    assert abs(A - A.T).max() == 0
    assert abs(A @ np.ones(len(points))).max() < 1e-13
    assert (np.diff(A.indptr).max(), A.indices.dtype) == (27, np.int32)


def test_what_the_demo_says_of_a_gain(demo: ModuleType) -> None:
    tuned = demo._sentence({"akx": 1.0, "SciPy": 4.1, "plain products": 1.9, "MKL": 1.7})
    assert tuned.startswith(
        "8 powers: 4.1 times as fast as SciPy, 1.9 times as fast as plain products, 1.7 times as fast as MKL; "
    )
    assert "which nothing beats for this matrix" in demo._sentence({"akx": 1.0, "SciPy": 2.0})
