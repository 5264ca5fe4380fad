"""The harness of the GPU's figures, without a GPU: entries have the form of a result file; a dry run on the host."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from pretended import gpu_entry

from akx.backends.cuda.device.runtime import cuda_missing
from akx.core.errors import DeviceError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner import tune
from benchmarks import clock, gpu, record, users_clock
from benchmarks.clock import Timing
from benchmarks.users_clock import Figures

ORIGIN = {"machine": {"gpu": "a GPU"}, "versions": {"cusparse": "12.9.4"}, "commit": "c0ffee", "date": "2026-01-01"}


def figures(**seconds: float) -> Figures:
    timings = {name: Timing(one, 0.01, 9) for name, one in seconds.items()}
    plans = {name: Plan("cuda", "sweep", "csr-1", k=16) for name in ("akx", "longer", "untuned") if name in seconds}
    return Figures(timings, timings, plans, 0.5, ("complex128 is not compared",))


def test_speed_ups_are_over_csr_and_over_the_best() -> None:
    matrix = Matrix.from_any(sp.eye_array(5, format="csr"))
    case: Any = SimpleNamespace(name="brick", group="gallery")
    tuned: Any = SimpleNamespace(
        tuning_seconds=3.0, prepare_seconds=0.1, seconds=9e-4, stopped="time budget", trials=(), baseline_seconds=2e-3
    )
    times = {"cusparse_alg1": 5e-3, "cusparse_alg2": 6e-3, "cusparse_op1": 4e-3, "cupy": 2e-2}
    found = gpu.entry(case, matrix, 16, figures(akx=1e-3, untuned=2e-3, **times), {"akx": tuned}, 20.0)
    assert found["speedup"] == pytest.approx(5.0)
    assert found["speedup_best"] == pytest.approx(4.0)
    assert set(found["baselines"]) == {"cusparse_alg1", "cusparse_alg2", "cusparse_op1"}
    assert (found["loop"], found["untuned"]["seconds"], found["tuner_seconds"]) == (2e-2, 2e-3, 9e-4)
    assert found["refused"] == ["complex128 is not compared"]
    assert record.check(record.merge(None, ORIGIN, [found])) == []
    alone = gpu.entry(case, matrix, 16, figures(untuned=2e-3, cusparse_alg1=5e-3), {}, 0.0)
    assert alone["speedup"] == pytest.approx(2.5)
    assert alone["best"]["seconds"] == alone["untuned"]["seconds"]
    assert alone["loop"] is None
    assert "tuner_seconds" not in alone
    assert record.check(record.merge(None, ORIGIN, [alone])) == []


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"speedup": 4.0}, "fastest product in CSR"),
        ({"speedup_best": 5.0}, "speedup_best is not the fastest"),
        ({"baselines": {"cusparse_op1": 4e-3}}, "fastest product in CSR"),
        ({"latency": 1.0}, "latency is not dict"),
        ({"untuned": {}}, "untuned.schedule"),
    ],
)
def test_a_wrong_entry_is_no_result(change: dict[str, Any], what: str) -> None:
    document = record.merge(None, ORIGIN, [{**gpu_entry(), **change}])
    assert what in " ".join(record.check(document))


def test_waiting_is_part_of_a_row() -> None:
    """What is only queued has been done when a batch ends, and nothing of the calls before is in its time."""
    queued, ends = list[str](), list[list[str]]()

    def wait() -> None:
        ends.append(queued.copy())
        queued.clear()

    calls = {name: partial(queued.append, name) for name in ("a", "b")}
    settings = clock.Settings(
        seconds=0.0, rounds_min=3, rounds_max=3, sample_seconds=1e-6, warm_seconds=0.0, pause_seconds=0.0, samples=1
    )
    clock.interleave(calls, settings, wait=wait)
    assert not queued
    assert all(len(set(batch)) == 1 for batch in ends)


def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU: akx on the processor beside loops of SciPy's products that go by the names of cuSPARSE's."""

    @contextlib.contextmanager
    def device() -> Iterator[tuple[Callable[[Any], Any], Callable[[], None]]]:
        yield np.copy, lambda: None

    def others(matrix: Matrix, x: Any, wanted: Any, ends: Any) -> Any:
        loop = partial(users_clock._loop, matrix.to_scipy(), x, len(wanted.powers) - 1)
        return {"cusparse_alg1": loop, "cusparse_op1": loop, "cupy": loop}, ("cusparse_op2 is not compared",)

    monkeypatch.setattr(gpu, "BACKEND", "cpu")
    monkeypatch.setattr(gpu, "_missing", lambda: None)
    monkeypatch.setattr(gpu, "provenance", lambda: ORIGIN)
    monkeypatch.setattr(users_clock, "_device", device)
    monkeypatch.setattr(users_clock, "_others", others)
    brief = clock.Settings(seconds=0.0, rounds_min=3, rounds_max=3, sample_seconds=1e-4, pause_seconds=0.0, samples=1)
    monkeypatch.setattr(users_clock, "_IN_A_ROW", brief)
    monkeypatch.setattr(users_clock, "_LATENCY", brief)


def test_a_dry_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    on_the_host(monkeypatch)
    monkeypatch.setattr(gpu, "tune", partial(tune, trials=1))
    file = tmp_path / "x.json"
    command = ["--small", "--no-stream", "-o", str(file), "--only", "mc2depi"]
    assert gpu.main([*command, "--k", "4", "--tune-seconds", "0.4", "--longer", "0.5"]) == 0
    assert gpu.main([*command, "--k", "3", "--tune-seconds", "0"]) == 0
    said = capsys.readouterr()
    assert "mc2depi k = 4" in said.err
    assert "k = 4: geometric mean" in said.out
    untuned, tuned = json.loads(file.read_text())["powers"]
    assert (tuned["k"], untuned["k"]) == (4, 3)
    assert tuned["tuned_within"] == 0.4
    assert set(tuned["latency"]) == {"akx", "longer", "untuned", "cusparse_alg1", "cusparse_op1", "cupy"}
    assert set(tuned["baselines"]) == {"cusparse_alg1", "cusparse_op1"}
    assert tuned["longer"].keys() == {*tuned["untuned"], "tuning_seconds"}
    assert tuned["refused"] == ["cusparse_op2 is not compared"]
    assert set(untuned["latency"]) == set(tuned["latency"]) - {"akx", "longer"}


def test_a_record_loses_nothing_and_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Most important first; what fails is said, and what comes after is measured; nothing begins too late."""
    on_the_host(monkeypatch)
    asked: list[tuple[str, int, float | None]] = []
    now = iter(range(0, 10_000, 40))

    def measured(case: Any, matrix: Any, k: int, within: float | None, *_: object) -> dict[str, Any]:
        asked.append((case.name, k, within))
        if case.name == "brick":
            raise DeviceError("out of luck")
        return {**gpu_entry(case.name, k), "group": case.group}

    compiled: list[int] = []
    monkeypatch.setattr(gpu, "_measured", measured)
    monkeypatch.setattr(gpu, "_compile_layouts", lambda matrix, k: compiled.append(matrix.n))
    monkeypatch.setattr(gpu, "time", SimpleNamespace(monotonic=lambda: next(now)))
    file = tmp_path / "x.json"
    assert gpu.main(["--small", "--record", "-o", str(file)]) == 1
    assert [name for name, *_ in asked[:7]] == list(gpu.MATRICES)[: len(asked[:7])]
    assert {within for _, _, within in asked[:7]} == {12.0}
    assert len(compiled) == 1
    assert {one["matrix"] for one in json.loads(file.read_text())["powers"]} == {name for name, *_ in asked} - {"brick"}
    said = capsys.readouterr().err
    assert "brick k = 16  FAILED: DeviceError: out of luck" in said
    assert "no time for" in said


@pytest.mark.skipif(cuda_missing() is None, reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--small", "-o", str(tmp_path / "x.json")]) == 3
    assert "nothing measured" in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()
    assert "pycuda" not in sys.modules
    with pytest.raises(SystemExit):
        gpu.main(["--small"])


@pytest.mark.cuda
@pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))
def test_all_contestants_are_timed(tmp_path: Path) -> None:
    from akx.backends.cuda.baselines.cusparse import ALGORITHMS, cusparse_missing

    if cusparse_missing() is not None:
        pytest.skip(str(cusparse_missing()))
    path = tmp_path / "x.json"
    command = ["--small", "--only", "brick", "--k", "3", "--tune-seconds", "0", "--no-stream", "-o", str(path)]
    assert gpu.main(command) == 0
    (found,) = json.loads(path.read_text())["powers"]
    assert set(found["baselines"]) >= {*ALGORITHMS, "cusparse_bsr"}
    assert all(0 < seconds < 1e-2 for seconds in found["latency"].values())
