"""Recorded plans by what the model promises, beside what they took."""

from __future__ import annotations

import json
import tarfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from akx.core.matrix import Matrix
from akx.core.plan import Plan
from benchmarks import ranks, samplers

ROOT = Path(ranks.__file__).resolve().parents[1]


def recording(*seconds: float | None) -> Any:
    """A plan of so many powers for each of the seconds."""
    plans = [Plan("cuda", "sweep", "csr-1", k=k) for k in range(1, 1 + len(seconds))]
    trials = {
        plan: SimpleNamespace(trial=SimpleNamespace(plan=plan, seconds=one))
        for plan, one in zip(plans, seconds, strict=True)
    }
    return SimpleNamespace(trials=trials)


def model(*seconds: float) -> Any:
    return SimpleNamespace(seconds=lambda plan: seconds[plan.k - 1])


def test_what_is_promised_in_the_order_of_what_it_takes() -> None:
    priced = ranks.prices(recording(1.0, 2.0, 3.0), model(10.0, 20.0, 30.0))
    assert priced == [("sweep", 10.0, 1.0), ("sweep", 20.0, 2.0), ("sweep", 30.0, 3.0)]
    assert ranks.ranked(priced) == {"plans": 3, "correlation": 1.0, "shares": {"1": 1.0, "5": 1.0, "20": 1.0}}


def test_the_best_promises_least() -> None:
    found = ranks.ranked(ranks.prices(recording(*range(1, 8)), model(*range(7, 0, -1))))
    assert found["correlation"] == -1.0
    assert found["shares"] == pytest.approx({"1": 1 / 7, "5": 1 / 3, "20": 1.0})


def test_plans_that_were_not_timed_or_have_no_price_are_left_out() -> None:
    priced = ranks.prices(recording(1.0, None, 3.0, 4.0), model(1.0, 1.0, float("inf"), 2.0))
    assert [measured for _, _, measured in priced] == [1.0, 4.0]


def test_how_far_prices_of_a_schedule_are_off() -> None:
    found = ranks._by_schedule([("ghost", 2.0, 1.0), ("ghost", 1.0, 2.0), ("sweep", 3.0, 3.0)])
    assert found == [
        {"schedule": "ghost", "plans": 2, "median": pytest.approx(1.0), "off": pytest.approx(2.0)},
        {"schedule": "sweep", "plans": 1, "median": 1.0, "off": 1.0},
    ]


def test_without_recordings_there_is_nothing_to_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], [str(tmp_path)]):
        with pytest.raises(SystemExit):
            ranks.main([*arguments, "-o", str(tmp_path / "none.json")])
    assert "nothing to order" in capsys.readouterr().err
    assert not (tmp_path / "none.json").exists()


@cache
def _recordings() -> dict[str, bytes]:
    with tarfile.open(ROOT / "benchmarks" / "recordings" / "h100.tar.xz") as archive:
        files = ((member, archive.extractfile(member)) for member in archive if member.isfile())
        return {Path(member.name).name: file.read() for member, file in files if file is not None}


@pytest.mark.parametrize(
    ("name", "first", "five"), [("pentadiagonal-16", 0.8, 0.85), ("dw8192-8", 0.85, 0.95), ("wang4-8", 0.85, 0.95)]
)
def test_what_promises_most_is_near_the_best_on_record(name: str, first: float, five: float, tmp_path: Path) -> None:
    """With ghosts priced as if all blocks asked for were laid out, it was at 0.47 to 0.73."""
    path = tmp_path / f"{name}.jsonl"
    path.write_bytes(_recordings()[path.name])
    found = samplers.read(path)
    made = samplers.load(found.matrix_name)
    if made is None:
        pytest.skip(f"{found.matrix_name} is not at hand")
    order = ranks.ranked(ranks.prices(found, samplers.model_of(found, Matrix.from_any(made))))
    assert order["correlation"] >= 0.65
    assert order["shares"]["1"] >= first
    assert order["shares"]["5"] >= five


def test_a_folder_becomes_a_file_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out, page = tmp_path / "recordings", tmp_path / "ranks.json", tmp_path / "page.md"
    folder.mkdir()
    (folder / "pentadiagonal-16.jsonl").write_bytes(_recordings()["pentadiagonal-16.jsonl"])
    page.write_text("before\n<!-- ranks:begin -->\n<!-- ranks:end -->\nafter\n")
    assert ranks.main([str(folder), "-o", str(out), "--docs", str(page)]) == 0
    document = json.loads(out.read_text())
    (entry,) = document["recordings"]
    assert (entry["matrix"], entry["k"], entry["plans"]) == ("pentadiagonal", 16, 186)
    assert sum(one["plans"] for one in document["schedules"]) == 186
    said = capsys.readouterr().out
    assert said.strip() in page.read_text()
    assert ranks.main(["--table", "-o", str(out)]) == 0
    assert capsys.readouterr().out == said


def test_the_page_has_what_was_found() -> None:
    block = ranks.table(json.loads((ROOT / "benchmarks" / "results" / "ranks_h100.json").read_text()))
    assert f"<!-- ranks_h100:begin -->\n{block}\n<!-- ranks_h100:end -->" in (ROOT / "docs" / "tuner.md").read_text()
