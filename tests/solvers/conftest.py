"""Every solver by its name, on a database without plans."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from akx.solvers import SOLVERS


@pytest.fixture(autouse=True)
def _no_plans_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKX_DB", str(tmp_path / "plans.sqlite"))


@pytest.fixture(params=sorted(SOLVERS))
def name(request: pytest.FixtureRequest) -> str:
    """The name of each solver."""
    return str(request.param)


@pytest.fixture
def solver(name: str) -> Callable[..., Any]:
    """Each solver."""
    return SOLVERS[name]
