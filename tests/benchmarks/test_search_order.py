"""The order in which searches try plans, frozen: replays of every recording that is kept, of both backends.

``tests/golden/searches.json`` has a line for each: who proposed a plan, and the plan's place in the recording.
``AKX_UPDATE_GOLDEN=1 pytest tests/benchmarks/test_search_order.py`` writes it anew.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable
from dataclasses import replace
from importlib import metadata
from itertools import zip_longest
from pathlib import Path

import pytest
from cli import golden
from replay import Replay

import akx
from akx.core.matrix import Matrix
from akx.tuner import Recording, Settings, read_recording, replay
from akx.tuner.history.trial import Trial
from benchmarks import record_tuning, samplers
from benchmarks.gallery import GALLERY

#: Trials of a search, and of one that goes on to what comes last.
_TRIALS, _MORE = 16, 40
_LONGER = frozenset({"cpu/dw8192-8", "h100/bcsstk16-8"})
_KEPT = tuple(
    f"{folder}/{name}-{k}"
    for folder, spaces in (("cpu", samplers._SPACES_OF_CPU), ("h100", samplers._SPACES_OF_GPU))
    for name, k in spaces
)
#: Another Optuna may suggest other plans, and from then on all is another.
_OPTUNA, _SUGGESTED = ".".join(metadata.version("optuna").split(".")[:2]), "sampler"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All recordings that are kept."""
    made = tmp_path_factory.mktemp("recordings")
    for name in ("cpu", "h100"):
        with tarfile.open(Path(samplers.__file__).parent / "recordings" / f"{name}.tar.xz") as kept:
            kept.extractall(made, filter="data")
    return made


def check(name: str, recording: Recording, trials: Iterable[Trial]) -> None:
    """The same plans in the same order as the golden file has them."""
    plans = list(recording.trials)
    places = {plan: str(place) for place, plan in enumerate(plans)}
    found = " ".join(f"{trial.origin}:{places.get(trial.plan, '-')}" for trial in trials)
    known = golden.frozen("searches.json", name, found) or ""
    is_same_optuna = golden.frozen("searches.json", "optuna", _OPTUNA) == _OPTUNA

    def shown(one: str | None) -> str:
        origin, _, place = (one or "nothing").partition(":")
        return f"{origin} {plans[int(place)].label()}" if place.isdigit() and int(place) < len(plans) else origin

    for number, (was, now) in enumerate(zip_longest(known.split(), found.split()), 1):
        assert was == now, f"{name}, trial {number}:\n  was {shown(was)}\n  is  {shown(now)}"
        if not is_same_optuna and (was or "").startswith(_SUGGESTED):
            break


@pytest.mark.parametrize("name", _KEPT)
def test_searches_over_recordings_try_the_same_plans_in_the_same_order(name: str, folder: Path) -> None:
    recording = read_recording(folder / f"{name}.jsonl")
    check(name, recording, replay(recording, trials=_MORE if name in _LONGER else _TRIALS).trials)


def test_a_tuning_tries_the_same_plans_in_the_same_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of :func:`akx.tune` on the recorded processor, with the spaces and models of today."""
    recording = read_recording(folder / "cpu" / "pentadiagonal-8.jsonl")
    world = Replay(recording)
    world.install(monkeypatch)
    matrix = Matrix.from_any(GALLERY["pentadiagonal"]())
    result = akx.tune(matrix, 8, backend="cpu", db=False, settings=Settings(trials=_TRIALS))
    check("tune cpu/pentadiagonal-8", recording, result.trials)
    assert [trial.plan for trial in result.trials] == world.asked


def test_an_order_that_changes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = read_recording(record_tuning.RECORD)
    one, other, *_ = (found.trial for found in recording.trials.values())
    monkeypatch.delenv("AKX_UPDATE_GOLDEN", raising=False)
    monkeypatch.setattr(golden, "FOLDER", tmp_path)

    def known(order: str, optuna: str = _OPTUNA) -> None:
        (tmp_path / "searches.json").write_text(json.dumps({"optuna": optuna, "brick": order}))

    known(f"{one.origin}:0 {other.origin}:1")
    check("brick", recording, [one, other])
    names = rf"trial 1:\n\s+was .*{one.plan.variant} .*\n\s+is .*{other.plan.variant} "
    with pytest.raises(AssertionError, match=names):
        check("brick", recording, [other, one])
    with pytest.raises(AssertionError, match=r"trial 2:\n\s+was .*\n\s+is  nothing"):
        check("brick", recording, [one])
    suggested = [replace(trial, origin=_SUGGESTED) for trial in (one, other)]
    known(f"{_SUGGESTED}:0 {_SUGGESTED}:2")
    with pytest.raises(AssertionError, match="trial 2"):
        check("brick", recording, suggested)
    known(f"{_SUGGESTED}:0 {_SUGGESTED}:2", optuna="0.1")
    check("brick", recording, suggested)
