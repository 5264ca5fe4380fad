"""Samplers compared on the recorded run that the repository has."""

from __future__ import annotations

import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nightly import mostly_nightly

from akx.backends.host import host_device
from akx.core.errors import ArgumentError
from akx.core.plan import Plan
from akx.tuner import Settings, read_recording, replay
from akx.tuner.candidates.proposals import SEARCHING, Proposals
from akx.tuner.measure import Measurement
from benchmarks import record_tuning, samplers
from benchmarks.gallery import small


def test_shares_by_sampler_and_their_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(record_tuning.RECORD, tmp_path / "brick-16.jsonl")
    near, out = Proposals._near_best, tmp_path / "found.json"
    given = [str(tmp_path), "--seeds", "1", "--sampler", "local", "--sampler", "random alone", "-o", str(out)]
    assert samplers.main(given) == 0
    assert Proposals._near_best is near
    (entry,) = samplers.json.loads(out.read_text())["recordings"]
    assert (entry["matrix"], entry["k"]) == ("brick", 16)
    assert set(entry["shares"]) == {"local", "random alone"}
    for found in entry["shares"].values():
        assert set(found) == {"30", "60"}
        assert all(0 < share <= 1 for shares in found.values() for share in shares)
    assert set(entry["shares_in_time"]) == {"local", "random alone"}
    for found in entry["shares_in_time"].values():
        assert set(found) == {"20", "60"}, "the recording is of a GPU"
        assert all(0 < share <= 1 for shares in found.values() for share in shares)
    best = read_recording(record_tuning.RECORD).best
    assert best is not None
    assert entry["best"]["plan"] == best.plan.label()
    said = capsys.readouterr().out
    assert "| brick | 16 |" in said
    assert "reach 95% and 97%" in said
    assert samplers.main([str(tmp_path), "--table", "-o", str(out)]) == 0
    assert capsys.readouterr().out == said


@pytest.mark.parametrize("name", mostly_nightly(sorted(samplers.SAMPLERS), ["local", "local alone", "random", "tpe"]))
def test_what_is_alone_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    origins: set[str] = set()

    def watched(*given: Any, **more: Any) -> Any:
        found = replay(*given, **more)
        origins.update(trial.origin for trial in found.trials)
        return found

    monkeypatch.setattr(samplers, "replay", watched)
    making, others = samplers.SAMPLERS[name]
    trials = {"tpe": 70, "random": 70, "tpe alone": 30}.get(name, 50)  # estimates come before the sampler
    samplers.shares_of(read_recording(record_tuning.RECORD), making, others=others, seeds=1, trials=trials)
    searching = {
        "tpe": {"estimate", "neighbour", "sampler"},
        "random": {"estimate", "neighbour", "sampler"},
        "local": {"estimate", "neighbour"},
        "tpe, no estimates": {"neighbour", "sampler"},
        "tpe alone": {"sampler"},
        "random alone": {"sampler"},
        "local alone": {"neighbour"},
    }
    assert origins & SEARCHING - {"rival", "spare"} == searching[name]
    assert "rival" not in origins or "alone" not in name


def test_samplers_are_given_the_same_trials_and_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, float]] = []
    tried: list[int] = []

    def watched(recording: Any, *, settings: Any, seed: int, sampler: Any) -> Any:
        asked.append((settings.trials, settings.seconds))
        found = replay(recording, settings=settings, seed=seed, sampler=sampler)
        tried.append(len(found.trials))
        assert len(found.trials) <= settings.trials
        assert settings.seconds > 100 or found.search_seconds < 1.3 * settings.seconds
        return found

    monkeypatch.setattr(samplers, "replay", watched)
    shutil.copy(record_tuning.RECORD, tmp_path / "brick-16.jsonl")
    out = tmp_path / "found.json"
    given = ["--seeds", "1", "--sampler", "local", "--trials", "4", "9", "--time", "20", "40", "-o", str(out)]
    assert samplers.main([str(tmp_path), *given]) == 0
    endless, most = samplers._ENDLESS, samplers._MOST_IN_TIME
    assert asked == [(4, endless), (9, endless), (most, 20.0), (most, 40.0)]
    assert most == 2 * Settings().trials
    document = samplers.json.loads(out.read_text())
    assert (document["trials"], document["times"]) == ([4, 9], [20.0, 40.0])
    (entry,) = document["recordings"]
    assert (set(entry["shares"]["local"]), set(entry["shares_in_time"]["local"])) == ({"4", "9"}, {"20", "40"})
    # More time is more trials. What is chosen may yet be another of those that cannot be told apart.
    assert 9 < tried[2] < tried[3] < most
    assert all(share > 0.97 for found in entry["shares_in_time"]["local"].values() for share in found)


def _entry(**shares: dict[str, list[float]]) -> dict[str, Any]:
    plain = {"matrix": "a", "k": 8, "plans": 9, "whole": True, "baseline_share": 0.5, "predicted": {"share": None}}
    return {**plain, **{name: {"tpe": found} for name, found in shares.items()}}


_ORIGIN = {
    "recorded_on": "a processor, 2 threads",
    "recorded": ["2026-01-02", "2026-01-03"],
    "commit": "abcdef0123456789",
    "date": "2026-01-04T00:00:00+00:00",
    "seeds": 1,
}


def test_the_table_has_trials_and_seconds() -> None:
    shares = {"30": [0.1, 0.96, 0.97], "60": [0.96]}
    in_time = {"10": [0.94], "30": [0.2, 0.98, 1.0]}
    part = _entry(shares=shares, shares_in_time=in_time) | {"whole": False}
    document = {**_ORIGIN, "trials": [30, 60], "times": [10.0, 30.0], "recordings": [part]}
    said, _, head, _, row, reached = samplers.table(document).splitlines()
    assert said.startswith(
        "Recorded on a processor, 2 threads, 2026-01-02 and 2026-01-03; replayed by commit abcdef0123, "
    )
    assert said.endswith("2026-01-04; one seed.")
    assert "| 9 of a part |" in row
    assert [cell.strip() for cell in head.split("|")[6:-1]] == ["tpe, 30", "tpe, 60", "tpe, 10 s", "tpe, 30 s"]
    assert [cell.strip() for cell in row.split("|")[6:-1]] == ["0.96", "0.96", "0.94", "0.98"]
    assert [cell.strip() for cell in reached.split("|")[6:-1]] == ["1 of 1", "0 of 1", "0 of 1", "1 of 1"]
    old = {**_ORIGIN, "seeds": 3, "trials": [30, 60], "recordings": [_entry(shares=shares)]}
    assert "medians of 3 seeds." in samplers.table(old)
    head, _, row, _ = samplers.table(old).splitlines()[2:]
    assert (head.count("tpe"), row.count("|"), "part" in row) == (2, 8, False)


def test_processes_find_what_one_finds(tmp_path: Path) -> None:
    for name in ("brick-16", "again-16"):
        shutil.copy(record_tuning.RECORD, tmp_path / f"{name}.jsonl")
    paths = sorted(tmp_path.glob("*.jsonl"))
    given: Any = {"seeds": 1, "names": ("local",), "trials": (4,), "times": (5.0,)}
    one, two = (samplers.compare(paths, processes=count, **given) for count in (1, 2))
    assert one == two
    assert len(one["recordings"]) == 2


class _Timed:
    """In the place of Calm: every plan as long as it took on record, but for lucky ones, and at another pace."""

    def __init__(self, lucky: set[Plan], pace: float) -> None:
        self.lucky, self.pace = lucky, pace
        self.batches: list[list[Plan]] = []

    def calls(self, backend: str, matrix: Any, k: int, plans: Any) -> list[Any]:
        self.batches.append(list(plans))
        return list(plans)

    def timed(self, calls: Any, precision: Any) -> tuple[list[Measurement], bool]:
        known = read_recording(record_tuning.RECORD).trials
        pace = self.pace * (1 + 0.2 * len(self.batches))
        seconds = [(known[plan].trial.seconds or 0.0) * (1.5 if plan in self.lucky else 1.0) for plan in calls]
        return [Measurement.of([pace * one] * 3) for one in seconds], len(self.batches) == 1


@pytest.mark.parametrize("pace", [1.0, 1.7])
def test_what_was_lucky_on_record_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pace: float
) -> None:
    """All that are close to the best took half as much again: then those are measured that seem to be the best now.

    That the machine was slower, by more each time, says nothing of them: the baseline tells by how much.
    """
    path = tmp_path / "brick-16.jsonl"
    shutil.copy(record_tuning.RECORD, path)
    before = read_recording(path)
    assert before.best is not None
    assert before.baseline is not None
    assert samplers.read(path).trials == before.trials
    least = before.best.seconds or 0.0
    lucky = {plan for plan, one in before.trials.items() if (one.trial.seconds or 1.0) <= 1.25 * least}
    lucky -= {before.baseline.plan}
    timed = _Timed(lucky, pace)
    monkeypatch.setattr(samplers, "calls_of", timed.calls)
    monkeypatch.setattr(samplers, "device_of", lambda backend: host_device())
    monkeypatch.setattr(samplers, "calm_on", lambda backend, most: timed)
    assert samplers.main([str(tmp_path), "--again"]) == 0
    assert len(timed.batches) > 1
    assert all(before.baseline.plan in batch for batch in timed.batches)
    measured = {plan for batch in timed.batches for plan in batch}
    assert Plan.from_json(before.header["predicted"]) in measured
    again = path.with_suffix(".again.json")
    document = samplers.json.loads(again.read_text())
    assert document["calm"] is False
    after = samplers.read(path)
    assert after.best is not None
    assert after.best.plan in measured
    assert {
        p for p, one in before.trials.items() if (one.trial.seconds or 9.0) <= (after.best.seconds or 0.0)
    } <= measured
    for plan, one in before.trials.items():
        found = after.trials[plan].trial
        assert found.state == one.trial.state
        if plan in measured:
            seconds = (one.trial.seconds or 0.0) * (1.5 if plan in lucky else 1.0)
            assert found.seconds == pytest.approx(seconds)
            assert found.samples == pytest.approx([seconds] * 3, rel=1e-5)
        else:
            assert found == one.trial
    assert samplers.main([str(tmp_path), "--again"]) == 0
    assert samplers.json.loads(again.read_text()) == document, "what is there is left alone"
    again.write_text(samplers.json.dumps({**document, "of": "another time"}))
    with pytest.raises(ArgumentError, match="of another recording"):
        samplers.read(path)


def test_recordings_of_several_backends_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = read_recording(record_tuning.RECORD)
    header = {**recording.header, "backend": "cpu"}
    other = replace(recording, runs=(replace(recording.runs[0], header=header),))
    monkeypatch.setattr(samplers, "read_recording", {Path("a"): recording, Path("b"): other}.__getitem__)
    with pytest.raises(ArgumentError, match="several backends"):
        samplers.compare([Path("a"), Path("b")])


def _kept(name: str, into: Path) -> dict[tuple[str, int], Any]:
    """Recordings of an archive, with what was measured again."""
    with tarfile.open(Path(samplers.__file__).parent / "recordings" / f"{name}.tar.xz") as kept:
        kept.extractall(into, filter="data")
    found = [samplers.read(path) for path in sorted(into.rglob("*.jsonl"))]
    for one in found:
        (run,) = one.runs
        assert run.result is not None
        assert (one.best, one.baseline) != (None, None)
    return {(one.matrix_name, one.key.k): one for one in found}


def test_the_recordings_of_a_gpu_that_are_kept_have_whole_parts(tmp_path: Path) -> None:
    found = _kept("h100", tmp_path)
    assert set(found) == set(samplers._SPACES_OF_GPU)
    assert {one.runs[0].header["kind"] for one in found.values()} == {"part"}
    whole = {name for (name, _), one in found.items() if one.runs[0].result["stopped"] == "space exhausted"}
    assert {name for name, _ in found} - whole == {"7-point", "rmat"}


def test_recordings_of_constant_coefficients_are_loaded_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where plans store values in a table: of general values there is none."""
    monkeypatch.setattr(samplers, "load", lambda name: name)
    names = {samplers.matrix_of(one) for one in _kept("h100", tmp_path).values()}
    assert {"9-point-constant", "7-point-constant", "27-point-constant", "brick", "mc2depi"} <= names
    assert not {"9-point", "7-point", "27-point"} & names


def test_the_recordings_of_a_processor_that_are_kept_are_of_whole_spaces(tmp_path: Path) -> None:
    found = _kept("cpu", tmp_path)
    assert set(found) == set(samplers._SPACES_OF_CPU)
    assert all(one.exhaustive for one in found.values())
    for path in tmp_path.rglob("*.jsonl"):
        again = samplers.json.loads(path.with_suffix(".again.json").read_text())
        assert len(again["plans"]) >= 4, path
    predicted = [samplers.predicted_share(one) for one in found.values()]
    assert None not in predicted


def test_without_recordings_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        samplers.main([str(tmp_path)])
    assert "no recordings in" in capsys.readouterr().err


def test_spaces_are_recorded_while_there_is_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def exhaustive(A: Any, k: int, **given: Any) -> Any:
        asked.append((k, given["name"], given["seconds"] <= 7.0))
        raise samplers.AkxError("no such thing") if given["name"] == "brick" else KeyboardInterrupt

    monkeypatch.setattr(samplers, "exhaustive", exhaustive)
    monkeypatch.setattr(samplers, "_SPACES", {"cpu": (("brick", 8), ("shell", 4))})
    monkeypatch.setattr(samplers, "GALLERY", {"brick": lambda: small("brick"), "shell": lambda: small("shell")})
    with pytest.raises(KeyboardInterrupt):
        samplers.main([str(tmp_path), "--record", "--seconds", "7"])
    assert asked == [(8, "brick", True), (4, "shell", True)]
    (tmp_path / "brick-8.jsonl").write_text("")
    assert samplers.record_spaces(tmp_path, 0.0, 1.0) == 0
