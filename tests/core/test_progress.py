"""Whatever takes more than a second says what it is doing; a second is a moment here."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from numba.core import event

import akx
from akx.core import progress
from akx.core.progress import COMPILING, shown_by, working


class Told:
    """A display that remembers."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.ended = 0

    def show(self, what: str, seconds: float) -> None:
        if self.words[-1:] != [what]:
            self.words.append(what)

    def end(self) -> None:
        self.ended += 1


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A second is 40 ms; the thread of another test, which sleeps longer, has ended."""
    monkeypatch.setattr(progress, "AFTER", 0.04)
    monkeypatch.setattr(progress, "_LOOK", 0.01)
    monkeypatch.setattr(progress, "_APART", 0.0)
    deadline = time.monotonic() + 10.0
    while progress._State.is_watched and time.monotonic() < deadline:
        time.sleep(0.01)
    yield
    akx.progress(True)


@pytest.fixture
def told() -> Iterator[Told]:
    display = Told()
    with shown_by(display):
        yield display


def test_what_is_done_says_how_long_it_took_where_debugging_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="akx"), working("in silence"):
        pass
    with caplog.at_level(logging.DEBUG, logger="akx"), working("outer"), working("inner"):
        time.sleep(0.02)
    said = [
        (record.getMessage().split(" took ")[0], float(record.getMessage().split()[-2])) for record in caplog.records
    ]
    assert [what for what, _ in said] == ["inner", "outer"]
    assert all(0.019 <= seconds < 5 for _, seconds in said)


def test_long_work_is_told_with_what_is_in_it_and_short_work_is_not(told: Told) -> None:
    with working("short"):
        pass
    with working("long"):
        time.sleep(0.15)
        with working("inner"):
            time.sleep(0.15)
    assert told.words == ["long", "inner"]
    assert told.ended == 1


def test_off_is_silence(told: Told) -> None:
    akx.progress(False)
    with working("long"):
        time.sleep(0.15)
    assert told.words == []


def test_the_log_has_it_where_nobody_looks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="akx")
    with working("long"):
        time.sleep(0.15)
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == ["long"]


def test_a_loop_that_was_left_is_not_told_for_ever(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that raised, whose traceback somebody keeps."""
    monkeypatch.setattr(progress, "_STEP", 0.1)
    loop = working("solving")
    for _ in range(15):
        loop.step()
        time.sleep(0.01)
    assert told.words == ["solving"]
    deadline = time.monotonic() + 10.0
    while not told.ended and time.monotonic() < deadline:
        time.sleep(0.01)
    assert told.ended == 1


def test_functions_that_are_compiled_one_after_another_are_told_as_one(told: Told) -> None:
    with working("first call"):
        time.sleep(0.1)  # Numba's compiler is listened to by now
        for _ in range(8):
            with event.trigger_event("numba:compile"):
                time.sleep(0.02)
    assert told.words == ["first call", COMPILING]


def test_its_thread_ends_and_costs_next_to_nothing(told: Told) -> None:
    def begin_and_end() -> None:
        for _ in range(1000):
            with working("short"):
                pass

    begin = time.perf_counter()
    begin_and_end()
    assert time.perf_counter() - begin < 0.1
    assert sum(thread.name == "akx-progress" for thread in threading.enumerate()) <= 1
    deadline = time.monotonic() + 10.0
    while any(thread.name == "akx-progress" for thread in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(thread.name == "akx-progress" for thread in threading.enumerate())


def test_reading_a_file_says_which(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from akx.core import io

    path = tmp_path / "slow.mtx"
    scipy.io.mmwrite(path, sp.eye_array(5).tocoo())
    akx.read_matrix(path)  # which may compile what reads it
    told.words.clear()
    whole = io._read_plain

    def slow(*given: Any) -> Any:
        time.sleep(0.15)
        return whole(*given)

    monkeypatch.setattr(io, "_read_plain", slow)
    assert akx.read_matrix(path).shape == (5, 5)
    assert told.words == ["reading slow.mtx"]


def test_solving_and_preparing_are_told(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    from akx.operator.prepared import Prepared
    from akx.solvers import cg

    A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(50, 50), format="csr")
    whole = Prepared._prepare

    def slow(*given: Any) -> Any:
        time.sleep(0.15)
        return whole(*given)

    monkeypatch.setattr(Prepared, "_prepare", slow)
    akx.MatrixPowers(A, 2)(np.ones(50))
    assert "laying the matrix out" in told.words
    cg(A, np.ones(50), callback=lambda _: time.sleep(0.05))
    assert "solving" in told.words


def test_a_tuning_without_a_callback_says_how_far_it_is() -> None:
    state = akx.tuner.Progress("compile", 3, 10, 1.0, 30.0)
    assert state.words == "tuning: compiling akx's own code, 3 of 10 pieces"
    assert state.fraction == 0.3
    state = akx.tuner.Progress("search", 3, 80, 1.0, 30.0, best_seconds=1e-3, baseline_seconds=2e-3)
    assert state.words == "tuning: search, 3 trials, best 1 ms, 2.00x"


def test_a_variable_switches_it_off() -> None:
    script = "from akx.core import progress; print(progress._State.on)"
    for value, on in (("0", "False"), ("1", "True")):
        done = subprocess.run(
            [sys.executable, "-c", script], env={"AKX_PROGRESS": value}, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == on
