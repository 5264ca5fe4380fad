"""Every solver by its name, on a database without plans."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from akx.backends.cuda.device.facts import cuda_missing
from akx.solvers import SOLVERS, few_rows
from akx.solvers.ladder import Ladder


@pytest.fixture(autouse=True)
def _no_plans_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKX_DB", str(tmp_path / "plans.sqlite"))


@pytest.fixture(params=sorted(SOLVERS))
def name(request: pytest.FixtureRequest) -> str:
    """The name of each solver."""
    return str(request.param)


@pytest.fixture(
    params=[
        "cpu",
        pytest.param(
            "cuda", marks=[pytest.mark.cuda, pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))]
        ),
    ]
)
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend that there is here."""
    return str(request.param)


@pytest.fixture
def solver(name: str, backend: str) -> Callable[..., Any]:
    """Each solver on each backend."""
    return SOLVERS[name] if backend == "cpu" else named(SOLVERS[name], backend)


def named(solver: Callable[..., Any], backend: str) -> Callable[..., Any]:
    """The solver with its backend given, and its own name and signature."""

    @functools.wraps(solver)
    def on_backend(*given: Any, **options: Any) -> Any:
        return solver(*given, backend=backend, **options)

    return on_backend


@pytest.fixture
def methods_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """No system is so small that ``solve`` factorises it before it tries a method."""
    monkeypatch.setattr(few_rows, "MOST_ROWS", 0)
    monkeypatch.setattr(Ladder, "is_done_in_a_blink", lambda self, method: False)
