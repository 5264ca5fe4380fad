"""The predicted plan beside plain products: what is compared with what, and the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from pretended import TunerSeconds

from akx.core.errors import InfeasibleError
from akx.core.plan import Plan
from akx.tuner import measure
from benchmarks import calls as calls_module
from benchmarks import matrices, predicted, unseen
from benchmarks.gallery import small
from benchmarks.matrices import Case


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[list[Plan]]:
    """A brick, of which plain CSR takes 3 ms on two threads, the predicted plan 2 ms and all others 4 ms."""
    time, asked = TunerSeconds(), list[list[Plan]]()
    chosen = Plan("cpu", "sweep", "sell16", k=4, threads=2, options={"sigma": 256})

    def predict(matrix: Any, k: int, **given: Any) -> Plan:
        return chosen.replace(k=k)

    def calls(backend: str, matrix: Any, k: int, plans: list[Plan]) -> list[Callable[[], None]]:
        asked.append(list(plans))
        seconds = {("sell16", 2, 256): 2e-3, ("csr", 2, 1): 3e-3, ("csr", 1, 1): 3.5e-3}
        each = [seconds.get((plan.variant, plan.threads, plan.typed.sigma), 4e-3) for plan in plans]
        return [lambda one=one: time.sleep(one) for one in each]

    monkeypatch.setattr(measure, "_CLOCK", ContextVar("pretended", default=time))
    monkeypatch.setattr(unseen, "calls_of", calls)
    monkeypatch.setattr(calls_module, "calls_of", calls)
    monkeypatch.setattr(unseen, "predict", predict)
    monkeypatch.setattr(unseen, "default_threads", lambda: 2)
    case = Case("brick", "gallery", lambda: small("brick"))
    monkeypatch.setattr(matrices, "available", lambda folder, reduced=False: iter([case]))
    return asked


def test_the_fastest_plain_products_are_timed_beside_the_prediction(
    timed: list[list[Plan]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In every variant first, then with other options and threads; the best two of all these with it, anew."""
    out = tmp_path / "unseen.json"
    for k in ("4", "8", "4"):
        assert unseen.main(["--only", "brick", "--k", k, "-o", str(out)]) == 0
    assert len(timed) == 3 * 3 * 4
    (used,), variants, around, last = timed[:4]
    assert used == last[0]
    assert {"csr", "csr-ahead", "bell", "sell16"} <= {plan.variant for plan in variants}
    assert {plan.threads for plan in variants} == {2}
    assert {plan.threads for plan in around if plan.variant == "csr"} == {1}
    assert {256} <= {plan.typed.sigma for plan in around if plan.variant == "sell16"}
    assert not set(variants) & set(around)
    assert {plan.partitioner for plan in (*variants, *around)} == {"natural"}
    assert [(plan.variant, plan.threads) for plan in last[1:3]] == [("sell16", 2), ("csr", 2)]  # a twin first
    assert (last[-1].variant, last[-1].threads) == ("csr", 1)
    assert len(last) == 5
    entries = json.loads(out.read_text())["matrices"]
    assert [entry["k"] for entry in entries] == [8, 4]
    assert entries[0]["baseline"]["ratio"] == entries[0]["baseline"]["high"] == pytest.approx(1.5)
    assert entries[0]["tuned"]["ratio"] == pytest.approx(1.75)
    assert entries[0]["ratios"] == pytest.approx([1.5] * 3)
    assert entries[0]["twins"] == pytest.approx([1.0] * 3)
    assert "cpu/sweep/csr " in entries[0]["baseline"]["plan"]
    assert entries[1]["looked_at"][last[2].label()] == pytest.approx(3e-3)
    said = capsys.readouterr().out
    assert said.count("| sweep/csr threads=2 | 1.500 | 1.500 | 1.500 | sweep/csr threads=1 | 1.750 |") == 1 + 2 + 2
    assert unseen.main(["--table", "-o", str(out)]) == 0
    assert said.endswith(capsys.readouterr().out)


def test_files_of_several_processes_become_one(timed: list[list[Plan]], tmp_path: Path) -> None:
    parts = [tmp_path / f"{name}.json" for name in ("a", "b")]
    for path, k in zip(parts, ("4", "8"), strict=True):
        assert unseen.main(["--only", "brick", "--k", k, "--times", "1", "-o", str(path)]) == 0
    out = tmp_path / "unseen.json"
    for _ in range(2):
        assert unseen.main(["--merge", *map(str, parts), "-o", str(out)]) == 0
        document = json.loads(out.read_text())
        assert [entry["k"] for entry in document["matrices"]] == [4, 8]
        assert document["machine"] == json.loads(parts[0].read_text())["machine"]


def test_where_a_prediction_cannot_be_prepared_the_plain_products_are_timed_that_a_call_uses(
    timed: list[list[Plan]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, pretended = unseen.predict, unseen.calls_of

    def predict(matrix: Any, k: int, *, plain: bool = False, **given: Any) -> Plan:
        return usual(matrix, k) if plain else Plan("cpu", "ghost", "csr", k=k, k_per_pass=k, threads=2)

    def calls(backend: str, matrix: Any, k: int, plans: list[Plan]) -> list[Callable[[], None]]:
        if any(plan.schedule == "ghost" for plan in plans):
            raise InfeasibleError("zones are too large")
        return pretended(backend, matrix, k, plans)

    monkeypatch.setattr(unseen, "predict", predict)
    monkeypatch.setattr(unseen, "calls_of", calls)
    assert unseen.main(["--only", "brick", "--k", "4", "--times", "1", "-o", str(tmp_path / "unseen.json")]) == 0
    assert timed[-1][0].variant == "sell16"


@pytest.mark.parametrize("name", ["predicted", "predicted_h100", "unseen", "unseen_h100"])
def test_the_page_has_what_was_measured(name: str) -> None:
    table = (predicted if name.startswith("predicted") else unseen).table
    folder = unseen.RESULTS["cpu"].parent
    block = table(json.loads((folder / f"{name}.json").read_text()))
    page = (folder.parents[1] / "docs" / "tuner.md").read_text()
    assert f"<!-- {name}:begin -->\n{block}\n<!-- {name}:end -->" in page
