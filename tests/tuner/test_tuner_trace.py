"""Every trial on a line of its own: written as it ends, read again, and nothing lost but the line that was cut off."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from akx.core.errors import AkxError, ArgumentError, FileFormatError, FileMissingError, InfeasibleError
from akx.core.plan import Plan
from akx.plandb import PlanDatabase
from akx.tuner import TuneResult, exhaustive, plan_key, read_recording
from akx.tuner import tune as tune_and_keep
from akx.tuner.history.trial import Trial
from akx.tuner.search import tune as tuning
from akx.tuner.trace import writer as recorder

tune = partial(tune_and_keep, db=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trials.jsonl"


def rounded(trial: Trial) -> dict[str, Any]:
    return {**trial.to_json(), "samples": [float(f"{sample:.6g}") for sample in trial.samples]}


def rewrite(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


def test_every_trial_is_read_again_as_it_was(make_world: Any, matrix: Any, path: Path) -> None:
    make_world(
        fails_to_prepare=lambda plan: (
            InfeasibleError("too large") if (plan.schedule, plan.variant) == ("front", "csr") else None
        ),
        fails_to_run=lambda plan: (
            ZeroDivisionError("by nought") if getattr(plan.typed, "split", "") == "contiguous" else None
        ),
    )
    result = tune(matrix, 8, name="small", record=path)
    found = read_recording(path)
    (run,) = found.runs
    assert [rounded(one.trial) for one in run.trials] == [rounded(trial) for trial in result.trials]
    assert {one.trial.state for one in run.trials} == {"complete", "pruned", "failed"}
    assert {one.trial.reason for one in run.trials} >= {"too large", "ZeroDivisionError: by nought"}
    assert (found.matrix_name, found.key, found.lost) == ("small", plan_key(matrix, 8, threads=2), 0)
    assert not found.exhaustive
    timed = [one for one in run.trials if one.trial.state == "complete"]
    assert all(one.nbytes == 1000 and one.model_seconds and one.trial.samples for one in timed)
    for one in run.trials:
        assert one.trial.elapsed is not None
        if one.trial.timing_seconds is not None:
            assert 0 < one.trial.timing_seconds < one.trial.elapsed
    assert run.result is not None
    assert Plan.from_json(run.result["plan"]) == result.plan
    assert (run.result["stopped"], run.result["seconds"]) == (result.stopped, result.seconds)
    assert found.best is not None
    assert found.best.seconds == min(t.seconds for t in result.trials if t.state == "complete")
    assert found.baseline is not None
    assert found.baseline.plan == result.baseline_plan
    header = json.loads(path.read_text().splitlines()[0])
    assert (header["akx"], header["schema"], header["kind"]) == ("recording", 1, "search")
    assert header["matrix"] == {"name": "small", "rows": matrix.n, "nnz": matrix.nnz, "dtype": "float64"}
    assert [one["name"] for one in header["space"]["sweep"]] == ["variant", "partitioner", "threads"]


def test_a_recording_changes_nothing(make_world: Any, matrix: Any, path: Path) -> None:
    make_world()
    free = tune(matrix, 8)
    make_world()
    assert tune(matrix, 8, record=path) == free


def test_the_whole_space_may_be_recorded(make_world: Any, matrix: Any, path: Path) -> None:
    make_world(infeasible=lambda plan: "no" if plan.schedule == "front" and plan.threads == 1 else None)
    result = exhaustive(matrix, 8, record=path)
    found = read_recording(path)
    assert found.header["kind"] == "exhaustive"
    assert found.exhaustive
    assert found.trials.keys() == {trial.plan for trial in result.trials}
    assert len(found.trials) == 8 + 4 * 3 * 7 * 2, "what is feasible"
    for less in ({"seconds": 0.1}, {"space_filter": lambda plan: plan.schedule == "sweep"}):
        path.unlink()
        exhaustive(matrix, 8, record=path, **less)
        assert not read_recording(path).exhaustive


def test_a_trial_that_was_found_out_later_is_as_it_was_found_out(make_world: Any, matrix: Any, path: Path) -> None:
    make_world(wrong=lambda plan, call: plan.schedule == "front" and call > 1)
    result = tune(matrix, 8, record=path)
    (run,) = read_recording(path).runs
    assert [one.trial.state for one in run.trials] == [trial.state for trial in result.trials]
    assert any("wrong result" in one.trial.reason for one in run.trials)


def test_runs_of_one_problem_are_collected(make_world: Any, matrix: Any, path: Path) -> None:
    make_world()
    first = tune(matrix, 8, record=path, trials=10)
    before = path.read_bytes()
    make_world()
    second = tune(matrix, 8, record=path, trials=30, seed=3)
    assert path.read_bytes().startswith(before)
    found = read_recording(path)
    assert [len(run.trials) for run in found.runs] == [10, len(second.trials)]
    assert [run.header["settings"]["seed"] for run in found.runs] == [0, 3]
    assert set(found.trials) == {trial.plan for trial in (*first.trials, *second.trials)}


def test_of_a_plan_that_was_tried_twice_the_complete_trial_counts(make_world: Any, matrix: Any, path: Path) -> None:
    make_world(cost=lambda plan: 1e-3 if plan.schedule == "sweep" else 50e-3)
    tune(matrix, 8, record=path, trials=12)
    pruned = {plan for plan, one in read_recording(path).trials.items() if one.trial.state == "pruned"}
    assert pruned
    make_world(cost=lambda plan: 1e-3 if plan.schedule == "sweep" else 50e-3)
    exhaustive(matrix, 8, record=path, seconds=1000.0)
    trials = read_recording(path).trials
    assert {trials[plan].trial.state for plan in pruned} == {"complete"}


@pytest.mark.parametrize("left", [0, 1, 20, -2])
def test_a_cut_off_last_line_costs_that_line_only(world: Any, matrix: Any, path: Path, left: int) -> None:
    result = tune(matrix, 8, record=path, trials=6)
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 8
    path.write_bytes(b"".join(lines[:6]) + lines[6][:left])
    found = read_recording(path)
    (run,) = found.runs
    assert [one.trial.number for one in run.trials] == [trial.number for trial in result.trials][:5]
    assert run.result is None
    assert found.lost == (left != 0)
    tune(matrix, 8, record=path, trials=3)  # goes on behind it
    again = read_recording(path)
    assert ([len(run.trials) for run in again.runs], again.lost) == ([5, 3], int(left != 0))


def test_a_recording_cut_off_in_its_first_line_says_so(world: Any, matrix: Any, path: Path) -> None:
    """As it is left by a full disk or a worker killed at once: not something that it is no recording."""
    tune(matrix, 8, record=path, trials=3)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(FileFormatError, match=r"cut off in its first line.*remove it"):
        read_recording(path)
    with pytest.raises(ArgumentError, match=r"cut off in its first line.*remove it"):
        tune(matrix, 8, record=path, trials=3)
    assert path.stat().st_size == 500


def test_two_runs_do_not_write_at_the_same_time(make_world: Any, matrix: Any, path: Path) -> None:
    make_world()
    refused = []

    def another(progress: Any) -> None:
        if progress.phase == "search" and not refused:
            with pytest.raises(ArgumentError, match="being written") as error:
                tune(matrix, 8, record=path)
            refused.append(error)

    result = tune(matrix, 8, record=path, trials=6, callback=another)
    assert refused
    assert [len(run.trials) for run in read_recording(path).runs] == [len(result.trials)]


def test_a_killed_run_has_what_it_had(make_world: Any, matrix: Any, path: Path) -> None:
    make_world()
    seen = []

    def look(progress: Any) -> None:
        if progress.trial is not None:
            seen.append(read_recording(path).runs[0].trials[-1].trial.number)
        if len(seen) == 4:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        tune(matrix, 8, record=path, callback=look)
    assert seen == [0, 1, 2, 3]
    assert read_recording(path).runs[0].result is None


def test_an_interrupted_run_has_its_end(make_world: Any, matrix: Any, path: Path) -> None:
    total = make_world()
    tune(matrix, 8)
    make_world(interrupt_at=total.calls // 2)
    assert tune(matrix, 8, record=path).interrupted
    (run,) = read_recording(path).runs
    assert run.result is not None
    assert run.result["interrupted"] is True


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[1:], "no recording"),
        (lambda lines: [], "is empty"),
        (lambda lines: ["%%MatrixMarket matrix coordinate real general\n"], "no recording"),
        (lambda lines: ["\x00\xff\n"], "no recording"),
        (lambda lines: [lines[0].replace('"schema": 1', '"schema": 99', 1), *lines[1:]], "another schema"),
        (lambda lines: [lines[0].replace('"space"', '"place"'), *lines[1:]], "line 1, found a run without space"),
        (lambda lines: [lines[0].replace('"k": 8', '"k": 0'), *lines[1:]], "damaged in line 1"),
        (lambda lines: [*lines[:2], lines[2][:30] + "\n", *lines[3:]], "damaged in line 3"),
        (lambda lines: [*lines[:2], "[1, 2]\n", *lines[3:]], "damaged in line 3"),
        (lambda lines: [*lines[:2], '{"something": "else"}\n', *lines[3:]], "damaged in line 3"),
        (lambda lines: [lines[0], lines[1].replace('"complete"', '"won"')], "damaged in line 2"),
        (lambda lines: [lines[0], lines[1].replace('"samples": [', '"samples": ["x", ')], "damaged in line 2"),
        (lambda lines: [lines[0], lines[1].replace('"number": 0', '"number": null')], "damaged in line 2"),
        (lambda lines: [lines[0], lines[1].replace('"k": 8', '"k": -8')], "damaged in line 2"),
        (lambda lines: [lines[0], lines[1].replace('"nbytes": 1000', '"nbytes": "many"')], "damaged in line 2"),
        (lambda lines: [*lines, lines[0].replace('"k": 8', '"k": 4')], "several problems, found other k"),
    ],
)
def test_what_is_no_recording_says_so(world: Any, matrix: Any, path: Path, change: Any, message: str) -> None:
    tune(matrix, 8, record=path, trials=3)
    rewrite(path, change)
    with pytest.raises(FileFormatError, match=message):
        read_recording(path)


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileMissingError):
        read_recording(tmp_path / "nothing.jsonl")
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_recording(tmp_path)


def test_another_file_is_not_written_over(world: Any, matrix: Any, tmp_path: Path, path: Path) -> None:
    other = tmp_path / "matrix.mtx"
    other.write_text("%%MatrixMarket\n1 1 1\n")
    with pytest.raises(ArgumentError, match="file of their own"):
        tune(matrix, 8, record=other)
    assert other.read_text() == "%%MatrixMarket\n1 1 1\n"
    tune(matrix, 8, record=path, trials=2)
    before, prepared = path.read_bytes(), len(world.prepared)
    with pytest.raises(ArgumentError, match=r"another problem.*other k;"):
        tune(matrix, 4, record=path)
    with pytest.raises(ArgumentError, match="other fingerprint, dtype"):
        tune(type(matrix).from_any(matrix.to_scipy().astype("float32")[:-1, :-1]), 8, record=path)
    assert path.read_bytes() == before
    assert len(world.prepared) == prepared


def test_what_cannot_be_written_is_an_error_before_any_work(world: Any, matrix: Any, tmp_path: Path) -> None:
    for place in (tmp_path / "no" / "folder" / "x.jsonl", tmp_path):
        with pytest.raises(AkxError):
            tune(matrix, 8, record=place)
    assert world.prepared == []


def test_a_disk_that_fills_up_ends_the_recording_and_not_the_tuning(
    world: Any, matrix: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = recorder.Recorder._write

    def full(self: Any, row: Any) -> None:
        if row.get("number") == 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, row)

    monkeypatch.setattr(recorder.Recorder, "_write", full)
    result = tune(matrix, 8, record=path)
    assert len(result.trials) > 6
    assert any("ends after 5 trials: No space left" in note for note in result.notes)
    assert len(read_recording(path).trials) == 5


def test_a_plan_from_the_database_leaves_no_recording(world: Any, matrix: Any, path: Path, tmp_path: Path) -> None:
    db = PlanDatabase(tmp_path / "plans.sqlite", layers=())
    tune(matrix, 8, db=db, trials=3)
    result = tune(matrix, 8, db=db, record=path)
    assert result.reused
    assert any("nothing was recorded" in note for note in result.notes)
    assert not path.exists()


def test_a_recording_is_of_one_backend(world: Any, matrix: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning.registry, "backends", lambda: ("cpu", "cuda"))
    monkeypatch.setattr(tuning, "is_usable", lambda backend: True)
    with pytest.raises(ArgumentError, match="one backend"):
        tune(matrix, 8, record=path)
    assert isinstance(tune(matrix, 8, backend="cpu", record=path, trials=2), TuneResult)
