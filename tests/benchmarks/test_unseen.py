"""The predicted plan beside plain products: what is compared with what, and the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from pretended import TunerSeconds

from akx.plan import Plan
from akx.tuner import measure
from benchmarks import matrices, unseen
from benchmarks.gallery import small
from benchmarks.matrices import Case


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[list[Plan]]:
    """A brick, of which plain CSR takes 3 ms, the predicted plan 2 ms and all others 4 ms."""
    time, asked = TunerSeconds(), list[list[Plan]]()

    def calls(backend: str, matrix: Any, k: int, plans: list[Plan]) -> list[Callable[[], None]]:
        asked.append(plans)
        seconds = [2e-3, *(3e-3 if plan.variant == "csr" else 4e-3 for plan in plans[1:])]
        return [lambda one=one: time.sleep(one) for one in seconds]

    monkeypatch.setattr(measure, "_CLOCK", ContextVar("pretended", default=time))
    monkeypatch.setattr(unseen, "calls_of", calls)
    case = Case("brick", "gallery", lambda: small("brick"))
    monkeypatch.setattr(matrices, "available", lambda folder, reduced=False: iter([case]))
    return asked


def test_plain_products_in_every_variant_are_timed_beside_the_prediction(
    timed: list[list[Plan]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "unseen.json"
    for k in ("4", "8", "4"):
        assert unseen.main(["--only", "brick", "--k", k, "-o", str(out)]) == 0
    chosen, *plain = timed[0]
    assert chosen not in plain
    assert {"csr", "csr-ahead", "bell"} - {chosen.variant} <= {plan.variant for plan in plain}
    entries = json.loads(out.read_text())["matrices"]
    assert [entry["k"] for entry in entries] == [8, 4]
    assert entries[0]["ratio"] == pytest.approx(1.5)
    assert entries[0]["ratios"] == pytest.approx([1.5] * 3)
    assert len(timed) == 3 * 3
    assert "cpu/sweep/csr " in entries[0]["plain"]["plan"]
    said = capsys.readouterr().out
    assert said.count("| 1.50 | 1.50 | 1.50 |") == 1 + 2 + 2
    assert unseen.main(["--table", "-o", str(out)]) == 0
    assert said.endswith(capsys.readouterr().out)
