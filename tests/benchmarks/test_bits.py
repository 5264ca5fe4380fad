"""Bits before and after: what is compared, and that a difference is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import bits

#: As much of akx as is asked for, in which results are so many times x.
_AKX = """
class InfeasibleError(Exception): ...
class PlanError(Exception): ...
class Matrix:
    n = 3
    from_any = staticmethod(lambda A: Matrix())
class Plan:
    def __init__(self, **fields): vars(self).update(fields)
def chebyshev(k, interval): return 1
class MatrixPowers:
    def __init__(self, matrix, k, plan):
        self.plan = plan
        if plan.variant in REFUSED: raise InfeasibleError
    def __call__(self, x, basis=0):
        return x * (1.0 + (TINY if self.plan.variant == "sell" and basis else 0.0))
"""


def _checkout(folder: Path, *, tiny: float = 0.0, refused: tuple[str, ...] = ("bell",)) -> Path:
    (folder / "akx").mkdir(parents=True)
    (folder / "akx" / "__init__.py").write_text(f"TINY, REFUSED = {tiny!r}, {refused!r}\n{_AKX}")
    return folder


def _jobs(*_: Any) -> list[bits.Job]:
    plans = [{"k": 2, "variant": variant} for variant in ("csr", "sell", "bell", "dia")]
    return [{"matrix": "uneven", "dtype": "float64", "label": plan["variant"], "plan": plan} for plan in plans]


def test_what_differs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bits, "jobs", _jobs)
    monkeypatch.setattr(bits, "_ROOT", _checkout(tmp_path / "here"))
    other = _checkout(tmp_path / "other", tiny=2.0**-52, refused=("bell", "dia"))
    assert bits.main([str(other)]) == 1
    bit, only_here, last = capsys.readouterr().out.splitlines()
    assert bit.startswith("uneven float64 sell: ")
    assert only_here.startswith("uneven float64 dia: ")
    assert only_here.endswith(" here, refused: InfeasibleError there")
    assert last == "3 plans compared, 2 differ"  # nobody has bell


def test_nothing_differs_from_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bits, "jobs", _jobs)
    monkeypatch.setattr(bits, "_digests_of", lambda checkout, asked: ["1", "2", "refused: InfeasibleError", "4"])
    assert bits.main([str(_checkout(tmp_path / "here"))]) == 0
    assert capsys.readouterr().out == "3 plans compared, 0 differ\n"
    with pytest.raises(SystemExit):
        bits.main([str(tmp_path)])
    assert "is no checkout of akx" in capsys.readouterr().err


def test_every_schedule_variant_and_order_is_there_and_repeats_its_bits() -> None:
    asked = list(bits.jobs(["uneven"], ["float64"]))
    plans = [job["plan"] for job in asked]
    assert {plan["schedule"] for plan in plans} == {"sweep", "ghost", "wavefront"}
    assert {plan["partitioner"] for plan in plans} >= {"natural", "rcm", "levels", "metis"}
    assert {plan["threads"] for plan in plans} == {1, 2, 3}
    few = [job for job in asked if (job["plan"]["variant"], job["plan"]["threads"]) == ("csr", 2)]
    found = bits.digests(few)
    assert found == bits.digests(few)
    assert sum(not one.startswith("refused") for one in found) > 5
