"""Code of the host's plans is compiled by processes before and beside a search, and they leave notes of it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import scipy.sparse as sp

from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner.sandbox import available_bytes
from akx.tuner.warmup import host_code as warmup
from akx.tuner.warmup.host_code import Job, Warmup, code_of, run_job

#: Answers each piece of code after a moment; what is called "never" never.
SERVE = """
import pickle, sys, time
def number():
    return int.from_bytes(sys.stdin.buffer.read(8) or sys.exit(), "little")
def receive():
    return [sys.stdin.buffer.read(size) for size in [number() for _ in range(number())]]
receive()
while True:
    module, name, argument = pickle.loads(*receive())
    if argument == "lost":
        sys.exit(1)
    time.sleep(3600 if argument == "never" else 0.02)
    text = pickle.dumps(argument != "fails")
    sys.stdout.buffer.write((1).to_bytes(8, "little") + len(text).to_bytes(8, "little") + text)
    sys.stdout.buffer.flush()
"""


@pytest.fixture
def line() -> Matrix:
    return Matrix.from_any(sp.diags_array([[-1.0] * 99, [2.0] * 100, [-1.0] * 99], offsets=[-1, 0, 1]).tocsr())


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(warmup, "note_of", lambda code, _: tmp_path / f"{'-'.join(code)}.compiled")
    return tmp_path


@pytest.fixture
def work(line: Matrix, notes: Path) -> Iterator[Warmup]:
    made = Warmup(line, count=2, command=[sys.executable, "-c", SERVE])
    yield made
    made.close()


def job(name: str, argument: str = "") -> Job:
    return (name,), "akx", "none", argument


def test_what_is_wanted_is_compiled_once(work: Warmup, line: Matrix, notes: Path) -> None:
    seen: list[tuple[int, int]] = []
    work.want([job("a"), job("b"), job("a")])
    assert work.count == 2
    assert work.wait(30.0, lambda done, total: seen.append((done, total))) == 2
    assert seen[-1] == (2, 2)
    assert {path.stem for path in notes.iterdir()} == {"a", "b"}
    again = Warmup(line, count=2, command=[sys.executable, "-c", SERVE])
    again.want([job("a"), job("b")])
    assert again.count == 0, "all is there"
    again.close()


def test_a_process_outlives_the_thread_that_started_it(line: Matrix, notes: Path) -> None:
    """A real process, as the system would end it with that thread: takes what akx takes to be imported."""
    work = Warmup(line, count=1)

    def step() -> None:
        work.want([job("a")])
        work.wait(60.0)

    thread = threading.Thread(target=step)
    thread.start()
    thread.join()
    work.want([job("b")])
    assert work.wait(60.0) == 1
    assert not work.has_all, "the process was lost"
    work.close()


def test_what_cannot_be_compiled_leaves_no_note_and_is_waited_for_by_nobody(work: Warmup, notes: Path) -> None:
    work.want([job("a", "fails"), job("b", "lost"), job("c", "lost"), job("d")])
    work.wait(30.0)
    assert not list(notes.glob("[abc].compiled"))
    work.wait_for_one(0.0)
    assert work.is_there(("a",))


def test_waiting_and_closing_are_bounded(work: Warmup) -> None:
    begin = time.monotonic()
    work.want([job("a", "never")])
    assert work.wait(0.2) == 0
    with work.aside():
        pass
    work.close()
    assert time.monotonic() - begin < 10.0
    assert all(process.poll() is not None for process in work._processes)


def test_nothing_runs_while_something_is_timed(work: Warmup) -> None:
    if sys.platform != "linux":
        pytest.skip("processes are stopped on Linux alone")

    def states() -> set[str]:
        return {Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()[0] for one in work._processes}

    work.want([job("a", "never"), job("b", "never")])
    with work.aside():
        deadline = time.monotonic() + 10.0
        while states() != {"T"} and time.monotonic() < deadline:
            time.sleep(0.01)
        assert states() == {"T"}
    assert "T" not in states()


def test_a_plan_is_put_off_while_its_code_is_coming(work: Warmup) -> None:
    plan = Plan(backend="cpu", schedule="sweep", variant="csr", partitioner="natural", k=2, k_per_pass=1)
    assert work.is_coming(plan)
    work.wait(30.0)
    assert not work.is_coming(plan)


def test_code_that_was_compiled_here_is_there(work: Warmup, notes: Path) -> None:
    plan = Plan(backend="cpu", schedule="sweep", variant="csr", partitioner="natural", k=2, k_per_pass=1)
    work.has_come(plan)
    assert work.is_there(code_of(plan))
    assert len(list(notes.iterdir())) == 1
    assert work.count == 0


def test_a_plan_runs_as_a_search_would_have_it(line: Matrix) -> None:
    """What is done in a process is done here: a job that fails at once would compile nothing, and nobody would see."""
    plan = Plan(backend="cpu", schedule="sweep", variant="csr", partitioner="natural", k=2, k_per_pass=1)
    _, module, name, argument = warmup.job_of(plan)
    assert run_job(module, name, argument, line, 1)
    assert not run_job(module, "no_such_name", None, line, 1)


def test_processes_are_few_where_memory_is(line: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    assert available_bytes() > 0
    monkeypatch.setattr(warmup.sandbox, "available_bytes", lambda: 2**20)
    none: Any = Warmup(line)
    none.want([job("a")])
    assert none.count == 0
    assert none.is_there(("a",))
