"""Constants of a model, fitted on what it should say."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.cost.coefficients import coefficients_file, read_sections
from akx.cost.device_model import FormatCost
from akx.tuner import exhaustive
from akx.tuner.model.predict import Model
from benchmarks import prices, record_tuning, samplers

MADE = sp.csr_array(sp.diags_array([0.2, 0.5, 0.3], offsets=[-1, 0, 1], shape=(500, 500)))


@pytest.fixture
def constants(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two of them, that make up the seconds of a plan with so many powers, and of so many threads."""
    made = SimpleNamespace(per_power=1.0, per_thread=1.0)
    monkeypatch.setattr(prices, "CONSTANTS", ((made, "per_power"), (made, "per_thread")))
    return made


def problem(constants: Any, per_power: float, per_thread: float) -> prices.Problem:
    model: Any = SimpleNamespace(
        seconds=lambda plan: constants.per_power * plan.k + constants.per_thread * plan.threads
    )
    plans = [Plan("cuda", "sweep", "csr-1", k=k, threads=threads) for k in (1, 4, 9) for threads in (1, 5)]
    measured = tuple((plan, per_power * plan.k + per_thread * plan.threads, 1.0) for plan in plans)
    recording: Any = None
    return prices.Problem(recording, model, measured)


def test_what_was_put_in_is_found(constants: Any) -> None:
    found = prices.fit([problem(constants, 2.0, 0.5)])
    assert found == pytest.approx([2.0, 0.5], rel=0.02)
    assert (constants.per_power, constants.per_thread) == (1.0, 1.0)  # as before


def test_what_shows_in_no_plan_stays_as_it_is(constants: Any) -> None:
    one = problem(constants, 2.0, 0.0)
    still: Any = SimpleNamespace(seconds=lambda plan: constants.per_power * plan.k)
    found = prices.fit([prices.Problem(one.recording, still, one.plans)])
    assert found == pytest.approx([2.0, 1.0], rel=0.02)


def test_every_fitted_price_is_in_the_file() -> None:
    for section, name in prices.CONSTANTS:
        assert np.isfinite(getattr(section, name)), name


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_every_section_says_when_and_on_what_it_was_fitted_and_how_far_off_it_is(backend: str) -> None:
    for name, section in read_sections(backend).items():
        assert date.fromisoformat(section["fitted"]) <= datetime.now(UTC).date(), name
        assert section["device"], name
        assert section["matrices"], name
        assert (section["error"] is None) == bool(section["error_unknown"]), name
        for error in (section["error"] or {}).values():
            assert error["plans"] > 0, name
            assert 1.0 <= error["median_factor"] <= max(error["worst_ratio"], 1 / error["worst_ratio"]), name
        if name != "variants":
            units = r".*_(cycles|seconds|count|ratio|share|exponent|bytes|per_(second|cycle))"
            assert all(re.fullmatch(units, key) for key in section["values"]), name
            assert set(section["means"]) == set(section["values"]), name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of plain products of a small matrix on this machine, and one of an H100."""
    made = tmp_path_factory.mktemp("recordings")
    exhaustive(
        MADE, 4, backend="cpu", threads=1, name="lines", record=made / "lines-4.jsonl",
        space_filter=lambda plan: (plan.schedule, plan.partitioner) == ("sweep", "natural")
        and plan.variant in {"csr", "dia"}, seconds=20.0,
    )  # fmt: skip
    shutil.copy(record_tuning.RECORD, made / "brick-16.jsonl")
    return made


def test_errors_are_of_predicted_over_measured_seconds(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(samplers, "GALLERY", {"lines": lambda: MADE})
    monkeypatch.setattr(samplers.solving, "load", _no_matrix)
    assert prices.main(["cpu", str(folder)]) == 0
    assert '"sweep"' in capsys.readouterr().out
    out = tmp_path / "cpu.json"
    assert prices.main(["cpu", str(folder), "--write", "-o", str(out)]) == 0
    made, before = json.loads(out.read_text()), json.loads(coefficients_file("cpu").read_text())
    recording = samplers.read_recording(folder / "lines-4.jsonl")
    model = samplers.model_of(recording, Matrix.from_any(MADE))
    ratios = [model.seconds(plan) / (one.trial.seconds or 0.0) for plan, one in recording.trials.items()]
    error = made["sections"]["variants"]["error"]["sweep"]
    assert error["plans"] == len(ratios)
    assert error["median_ratio"] == pytest.approx(np.median(ratios), abs=1e-3)
    assert error["worst_ratio"] in [round(one, 3) for one in ratios]
    assert made["errors_over"]["matrices"] == ["lines"]
    for name, section in made["sections"].items():
        assert section["values"] == before["sections"][name]["values"], "without a fit prices stay"


def test_formats_that_were_measured_are_written_with_the_day(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samplers, "GALLERY", {"lines": lambda: MADE})
    monkeypatch.setattr(samplers.solving, "load", _no_matrix)
    figures = SimpleNamespace(formats={"csr": FormatCost(1.2345e-3, 0.0), "other": FormatCost(1.0, 1.0)})
    monkeypatch.setattr(prices, "calibrate", lambda backend: SimpleNamespace(one_thread=figures))
    out = tmp_path / "cpu.json"
    assert prices.main(["cpu", str(folder), "--fit", "--write", "-o", str(out)]) == 0
    section = json.loads(out.read_text())["sections"]["variants"]
    assert section["values"]["csr"]["cost"]["slot_seconds"] == 1.23e-3
    assert section["values"]["dia"] == read_sections("cpu")["variants"]["values"]["dia"]
    assert "other" not in section["values"]
    assert section["fitted"] == datetime.now(UTC).date().isoformat()
    assert section["error"]["sweep"]["worst_ratio"] > 1e3, "errors are those of what was fitted"


def test_a_fit_is_written_and_prices_in_use_stay(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [getattr(section, name) for section, name in prices.CONSTANTS]
    monkeypatch.setattr(prices, "fit", lambda problems: np.array(before) * 2.0)
    monkeypatch.setattr(prices, "timed", lambda recording, model: prices.Problem(recording, model, ()))
    monkeypatch.setattr(Model, "seconds", lambda self, plan: before[0] * 1e-6)
    out = tmp_path / "gpu.json"
    assert prices.main(["cuda", str(folder), "--fit", "--write", "-o", str(out)]) == 0
    made = json.loads(out.read_text())["sections"]
    assert (
        made["ghost"]["values"]["pass_begin_cycles"]
        == 2 * read_sections("cuda")["ghost"]["values"]["pass_begin_cycles"]
    )
    assert made["sweep"]["matrices"] == ["brick"]
    assert "H100" in made["sweep"]["device"]
    assert made["wavefront"]["error"] is None
    assert [getattr(section, name) for section, name in prices.CONSTANTS] == before


def _no_matrix(name: str) -> None:
    raise FileNotFoundError(name)


def test_without_recordings_there_is_nothing_to_fit(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        prices.main(["cuda", str(tmp_path)])


def test_a_family_is_left_out_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted_on: list[list[str]] = []

    def fit(problems: Sequence[str]) -> Any:
        fitted_on.append(list(problems))
        return prices._now()

    one = SimpleNamespace(recording=None, model=SimpleNamespace(matrix=None))
    names = ("9-point-constant", "7-point", "brick", "shell", "wang4", "memplus")
    monkeypatch.setattr(prices, "fit", lambda problems: fit([name for name, has in there.items() if has in problems]))
    there: dict[str, Any] = {name: SimpleNamespace(**vars(one), name=name) for name in names}
    monkeypatch.setattr(prices, "look_up", lambda *_: {"predicted": {"plan": "a plan"}, "share": 0.9})
    for name in ("7-point", "shell", "wang4"):
        assert prices._left_out(there, name) == {"plan": "a plan", "share": 0.9}
    rest = [name for name in names if name != "wang4"]
    assert fitted_on == [["brick", "shell", "wang4", "memplus"], [*names[:2], *names[4:]], rest]
    assert sum(map(len, prices.FAMILIES)) == len(set().union(*prices.FAMILIES))
