"""``info == 0`` is never said of a system that is not solved: new systems, their residuals computed in long double.

The systems are those of :mod:`benchmarks.honesty`, by number: a failure names it, and
``python -m benchmarks.honesty --only NUMBER`` tells it in full.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nightly import mostly_nightly

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks import honesty

#: Systems of a test, and the tests of which all are run nightly: 1,000 systems.
_EACH, _TESTS = 25, 40


@pytest.mark.parametrize("part", mostly_nightly(range(_TESTS), push=(0, 1)))
def test_no_success_is_false(part: int) -> None:
    said = []
    for number in range(part * _EACH, (part + 1) * _EACH):
        system = honesty.made(number)
        verdict = honesty.judge(system)
        assert not verdict.fault, f"{system}: {verdict.fault}"
        said.append(verdict.said)
    assert 5 <= said.count("solved") <= 24  # neither only easy systems, nor only such as are told nothing of


def _with(answer: Any, **changes: Any) -> honesty.Verdict:
    """The verdict on another answer for a system that is easily solved, of some columns."""
    number = next(number for number in range(100) if honesty.made(number, "convection").b.ndim == 2)
    system = honesty.made(number, "convection", "gmres")
    for name, value in changes.items():
        setattr(system, name, value)
    system.call = lambda: answer(system)
    return honesty.judge(system)


def _exact(system: Any) -> Any:
    return np.linalg.solve(system.A.toarray(), system.b).reshape(system.b.shape)


def test_what_is_false_is_seen() -> None:
    good = _with(lambda system: (_exact(system), 0), rtol=1e-6)
    assert (good.said, good.fault, good.told) == ("solved", "", True)
    off = _with(lambda system: (_exact(system) * (1 + 2e-6), 0), rtol=1e-6)
    assert off.said == "solved"
    assert off.fault.startswith("info = 0, and the residual is 2 times")
    assert not _with(lambda system: (_exact(system) * (1 + 2e-6), 1), rtol=1e-6).fault
    assert not _with(lambda system: (_exact(system), 0), rtol=0.0, atol=0.0).told
    assert _with(lambda system: (_exact(system), -2)).fault.startswith("info = -2, and")
    assert _with(lambda system: (_exact(system) * np.nan, 5)).fault.startswith("x is not finite")
    assert _with(lambda system: 1 / 0).fault.startswith("ZeroDivisionError")

    def changes_b(system: Any) -> Any:
        found = _exact(system)
        system.b[0] *= 2
        return found, 0

    assert _with(changes_b).fault == "A or b was changed"


def test_systems_are_counted_by_structure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, page = tmp_path / "honesty.json", tmp_path / "page.md"
    page.write_text("<!-- honesty:begin -->\n<!-- honesty:end -->\n")
    assert honesty.main(["--solves", "3", "-o", str(output), "--docs", str(page)]) == 0
    assert "| **all** | 3 |" in page.read_text()
    entries = json.loads(output.read_text())["systems"]
    assert [entry["structure"] for entry in entries] == list(honesty.STRUCTURES)
    assert sum(entry["solves"] for entry in entries) == 3
    assert honesty.main(["--only", "2"]) == 0
    assert "system 2: " in capsys.readouterr().err
