"""Ten tunings of one matrix: what is compared with what, and the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pretended import TunerSeconds

from akx.core.plan import Plan
from akx.tuner import measure
from benchmarks import calls as timed_calls
from benchmarks import record, repeat, samplers
from benchmarks.gallery import small

ONE = Plan("cpu", "sweep", "dia", k=4, threads=2)
OTHER = ONE.replace(variant="csr")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Three tunings of four choose a plan that takes 2 ms, the other one that takes 2.1 ms."""
    time, given = TunerSeconds(), []

    def tune(A: Any, k: int, **options: Any) -> Any:
        given.append({"k": k, **options})
        plan = OTHER if options["seed"] == 1 else ONE
        return SimpleNamespace(plan=plan, tuning_seconds=20.0 + options["seed"], trials=[None] * 30)

    def powers(A: Any, k: int, *, plan: Plan, backend: str) -> Callable[..., None]:
        return lambda x, out: time.sleep(2e-3 if plan == ONE else 2.1e-3)

    monkeypatch.setattr(measure, "_CLOCK", ContextVar("pretended", default=time))
    monkeypatch.setattr(repeat, "compile_kernels", lambda dtype, threads: 0)
    monkeypatch.setattr(repeat, "tune", tune)
    monkeypatch.setattr(timed_calls, "MatrixPowers", powers)
    monkeypatch.setattr(samplers, "GALLERY", {"brick": lambda: small("brick")})
    return given


def test_all_plans_that_were_chosen_are_timed_in_turns(
    asked: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "repeat.json"
    given = ["--matrix", "brick", "--k", "4", "--times", "4", "-o", str(out)]
    assert repeat.main(given) == 0
    assert [one["seed"] for one in asked] == [0, 1, 2, 3]
    assert all(one["db"] is False and one["k"] == 4 and one["record"] is None for one in asked)
    (entry,) = json.loads(out.read_text())["tunings"]
    assert [(plan["plan"], plan["times"]) for plan in entry["plans"]] == [(ONE.label(), 3), (OTHER.label(), 1)]
    assert entry["difference"] == pytest.approx(0.05)
    assert entry["tuning_seconds"] == [20.0, 21.0, 22.0, 23.0]
    said = capsys.readouterr().out
    assert "| +5.0% |" in said
    assert "20.0 to 23.0" in said
    assert repeat.main([*given, "--table"]) == 0
    assert capsys.readouterr().out == said
    asked.clear()
    assert repeat.main([*given, "--record", str(tmp_path)]) == 0
    assert [one["record"] for one in asked] == [tmp_path / f"brick-4-{seed}.jsonl" for seed in range(4)]


def test_a_place_in_memory_is_no_difference(
    asked: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that takes 6 % longer in one place of five, and is otherwise like the other one."""
    time, made = TunerSeconds(), list[int]()
    monkeypatch.setattr(measure, "_CLOCK", ContextVar("pretended", default=time))

    def calls(backend: str, matrix: Any, k: int, plans: list[Plan]) -> list[Callable[[], None]]:
        made.append(len(made))
        unlucky = 1.06 if len(made) == 2 else 1.0
        return [lambda: time.sleep(1e-3), lambda: time.sleep(1e-3 * unlucky)]

    monkeypatch.setattr(repeat, "calls_of", calls)
    out = tmp_path / "repeat.json"
    assert repeat.main(["--matrix", "brick", "--k", "4", "--times", "4", "-o", str(out)]) == 0
    (entry,) = json.loads(out.read_text())["tunings"]
    assert entry["difference"] == pytest.approx(0.0)
    assert entry["plans"][1]["in_places"] == pytest.approx([1e-3, 1.06e-3, 1e-3, 1e-3, 1e-3])


def test_another_matrix_is_added_and_the_same_replaced(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    out = tmp_path / "repeat.json"
    for k in ("4", "5", "4"):
        assert repeat.main(["--matrix", "brick", "--k", k, "--times", "2", "-o", str(out)]) == 0
    assert [one["k"] for one in json.loads(out.read_text())["tunings"]] == [5, 4]


def test_on_a_gpu_plans_are_timed_there_and_have_a_file_of_their_own(
    asked: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    time = TunerSeconds()
    monkeypatch.setattr(measure, "_CLOCK", ContextVar("pretended", default=time))
    timed: list[list[Plan]] = []

    def calls(backend: str, matrix: Any, k: int, plans: list[Plan]) -> list[Callable[[], None]]:
        timed.append(plans)
        return [lambda: time.sleep(1e-3)] * len(plans)

    monkeypatch.setattr(repeat, "calls_of", calls)
    monkeypatch.setattr(repeat, "origin_of", lambda backend: dict(record.provenance(1)))
    monkeypatch.setattr(repeat, "_RESULTS", {"cpu": tmp_path / "no.json", "cuda": tmp_path / "repeat_gpu.json"})
    monkeypatch.setattr(repeat, "_MATRICES", {"cpu": (), "cuda": (("brick", 16),)})
    monkeypatch.setattr(repeat, "_PAGE", None)
    assert repeat.main(["--backend", "cuda", "--times", "3"]) == 0
    assert [(one["backend"], one["k"]) for one in asked] == [("cuda", 16)] * 3
    assert timed == [[ONE, OTHER]] * repeat.PLACES
    (entry,) = json.loads((tmp_path / "repeat_gpu.json").read_text())["tunings"]
    assert (entry["processes"], entry["difference"]) == (1, pytest.approx(0.0))
    with pytest.raises(SystemExit):
        repeat.main(["--processes", "2"])
    assert "take one another's cores" in capsys.readouterr().err
