"""What a user waits for: the harness on a small matrix, and what its values and figures have to be."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import answer
from benchmarks.gallery import small
from benchmarks.matrices import select


def test_each_call_of_a_process_is_timed_and_akx_takes_turns_with_what_is_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "_HOST_CALLS", ("powers", "cg", "command"))
    monkeypatch.setattr(answer, "_TIMES", 3)
    output, page = tmp_path / "answer.json", tmp_path / "page.md"
    page.write_text("a\n<!-- answer:begin -->\n<!-- answer:end -->\nb\n")
    arguments = ["--only", "pentadiagonal", "--reduced", "-o", str(output), "--docs", str(page)]
    monkeypatch.setattr(answer, "measured", partial(answer.measured, processes=1))
    assert answer.main(arguments) == 0
    (entry,) = json.loads(output.read_text())["answer"]
    assert set(entry["calls"]) == {"powers", "cg", "command"}
    for name, call in entry["calls"].items():
        assert call["fresh_machine"] > 0
        times = 1 if name == "command" else 3
        assert call["akx"]["calls"] == call["others"]["calls"] == times
        for who in ("akx", "others"):
            assert times == 1 or 0 < call[who]["hundredth"] <= call[who]["all"]
            assert call[who]["first"] <= call[who]["all"]
    assert "| powers | " in page.read_text()
    assert "| cg | " in capsys.readouterr().out


def test_what_is_tuned_before_is_timed_with_its_plans_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned: list[Path] = []
    monkeypatch.setattr(answer, "_tune", lambda file, gpu: tuned.append(file))
    run = {"each": [3.0, 2.0, 1.0, 1.0], "row": None, "parts": {"import": 0.5}}
    asked: list[tuple[Path, str, str]] = []

    def process(file: Path, call: str, who: str, *rest: object) -> dict[str, Any] | None:
        asked.append((file, call, who))
        return None if who == "best" else run

    monkeypatch.setattr(answer, "_process", process)
    (case,) = select(["mc2depi"], reduced=True)
    entry = answer.measured(case, tune=True, processes=2)
    assert entry is not None
    assert set(entry["calls"]) == {"powers", "prepared"}
    assert {file for file, _, _ in asked} == set(tuned)
    assert entry["calls"]["prepared"]["akx"]["hundredth"] == 1.0
    assert entry["calls"]["prepared"]["akx"]["processes"] == 2
    assert "best" not in entry["calls"]["powers"]
    # two of akx and what is beside both, twice; one that compiles for both
    assert [who for _, _, who in asked].count("akx") == 1 + 2 * 2
    assert [who for _, _, who in asked].count("others") == 2


def test_values_are_general_and_a_symmetric_matrix_stays_so() -> None:
    A = small("9-point")
    found = answer.general(A)
    assert np.unique(found.data).size > 0.4 * found.nnz
    assert abs(found - found.T).max() == 0
    ratio = (found - 0 * A).tocsr().data / A.tocsr().data
    assert 0.5 <= ratio.min() < 0.6
    assert 1.4 < ratio.max() < 1.5


@pytest.mark.parametrize("name", ["rmat", "shell"])
def test_systems_are_positive_definite(name: str) -> None:
    A: Any = answer.system(answer.general(small(name)))
    assert abs(A - A.T).max() == 0
    values = np.linalg.eigvalsh(A.toarray())
    assert values[0] > 5e-5
    assert values[-1] <= 2.5001


def test_the_readme_has_mean_and_least_of_second_and_hundredth_calls() -> None:
    origin = {"commit": "0123456789", "date": "2026-01-02"}

    def document(*seconds: float) -> dict[str, Any]:
        others = {"second": 2.0, "hundredth": 2.0}
        calls = [{"cg": {"akx": {"second": 1.0, "hundredth": one}, "others": others}} for one in seconds]
        return {
            "machine": {"processor": "Some CPU", "threads": 2},
            "answer": [{**origin, "calls": one} for one in calls],
        }

    text = answer.summary(document(0.5, 2.0), document(1.0))
    (line,) = [line for line in text.splitlines() if "solvers.cg" in line]
    assert [cell.strip() for cell in line.strip("|").split("|")][1:] == [
        "2.00 (least 2.00)", "2.00 (least 1.00)", "2.00 (least 2.00)", "2.00 (least 2.00)",
    ]  # fmt: skip
