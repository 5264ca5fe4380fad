"""Code that is missing is compiled beside the calls, which go on with plain products meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx import Matrix
from akx.operator import background_compile, tiers
from akx.solvers import cg, products
from akx.tuner.warmup import gpu_code as precompile
from akx.tuner.warmup import host_code as warmup
from akx.tuner.warmup.host_code import ALL, Warmup

#: Says that it has compiled what it was asked for as soon as there is a file of that name.
_COMPILER = """
import pathlib, pickle, sys, time
def number():
    return int.from_bytes(sys.stdin.buffer.read(8) or sys.exit(), "little")
def receive():
    return [sys.stdin.buffer.read(size) for size in [number() for _ in range(number())]]
receive()
while True:
    module, name, (code, *call) = pickle.loads(*receive())
    print(*code, file=open(sys.argv[1] + "/asked", "a"))
    while not pathlib.Path(sys.argv[1], "go").exists():
        time.sleep(0.01)
    text = pickle.dumps(not pathlib.Path(sys.argv[1], "fails").exists())
    sys.stdout.buffer.write((1).to_bytes(8, "little") + len(text).to_bytes(8, "little") + text)
    sys.stdout.buffer.flush()
"""
_A = sp.csr_array(sp.diags_array([[-1.0] * 399, [2.5] * 400, [-1.0] * 399], offsets=[-1, 0, 1]))


@pytest.fixture(autouse=True)
def _paid_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AKX_PREPARE")
    tiers.forget()
    for name, value in {"_PROCESS": 0.0, "_MATRIX": 1e-9, "_ENTRY": 0.0, "_CALL": 0.0, "_CHECKED": 0.0}.items():
        monkeypatch.setattr(tiers, name, value)
    monkeypatch.setattr(products, "_OVERHEAD", 0.0)
    monkeypatch.setattr(background_compile, "_at_work", {})
    akx.clear_cache()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where notes are, what was asked for, and what lets the compiler come to an end."""

    def note_of(code: Any, _: Any) -> Path:
        return tmp_path / f"{'-'.join(code)}.compiled"

    for module in (precompile, warmup):
        monkeypatch.setattr(module, "note_of", note_of)
    monkeypatch.setattr(warmup.sandbox, "command", lambda _: [sys.executable, "-c", _COMPILER, str(tmp_path)])
    return tmp_path


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_prepared(A: Any) -> bool:
    return any(entry.owner() is A for entry in akx.operator.cache.CACHE.entries.values())


def works() -> list[Warmup]:
    return list(background_compile._at_work.values())


@pytest.mark.parametrize("end", ["compiled", "fails"])
def test_calls_go_on_until_the_code_is_there(folder: Path, end: str) -> None:
    A, x = _A.copy(), np.ones(400)
    exact = akx.matrix_powers(A, x, 3)
    for _ in range(5):
        np.testing.assert_array_equal(akx.matrix_powers(A, x, 3), exact)
    assert not is_prepared(A)
    assert [work.count for work in works()] == [1]
    other = _A.copy()  # which asks for the same code
    akx.matrix_powers(other, x, 3)
    akx.matrix_powers(other, x, 3)
    assert [work.count for work in works()] == [1]
    (folder / end).touch()
    (folder / "go").touch()
    (work,) = works()
    wait_for(lambda: work._is_closed and work._processes[0].poll() is not None)  # nothing is left that waits for more
    wait_for(lambda: akx.matrix_powers(A, x, 3) is not None and is_prepared(A))
    np.testing.assert_allclose(akx.matrix_powers(A, x, 3), exact, rtol=1e-13)
    asked = (folder / "asked").read_text().splitlines()
    assert asked[0] == "first calls"
    assert len(asked) == len(set(asked))


def test_a_solve_goes_on_until_the_code_is_there(folder: Path) -> None:
    A, b = _A.copy(), np.ones(400)
    for _ in range(3):
        x, info = cg(A, b, rtol=1e-10)
        assert info == 0
        np.testing.assert_allclose(A @ x, b, rtol=1e-8)
    assert not is_prepared(A)
    assert not folder.joinpath("cg solver.compiled").exists()
    (folder / "go").touch()
    wait_for(lambda: cg(A, b)[1] == 0 and is_prepared(A))
    assert folder.joinpath("cg solver.compiled").exists()
    np.testing.assert_allclose(A @ cg(A, b, rtol=1e-10)[0], b, rtol=1e-8)


def test_where_the_code_is_there_the_switch_comes_at_its_number(folder: Path) -> None:
    folder.joinpath("-".join(ALL) + ".compiled").touch()
    A, x = _A.copy(), np.ones(400)
    akx.matrix_powers(A, x, 3)
    assert is_prepared(A)
    assert works() == []


@pytest.mark.parametrize("word", ["always", "fixed"])
def test_who_asks_for_preparing_waits(folder: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.setenv("AKX_PREPARE", word)
    A = _A.copy()
    akx.matrix_powers(A, np.ones(400), 3)
    assert is_prepared(A)
    akx.MatrixPowers(A, 3)
    assert works() == []


def test_one_process_of_several_compiles(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[str]()
    monkeypatch.setattr(warmup, "run_job", lambda *job: done.append(job[1]) or True)
    monkeypatch.setattr(os, "nice", lambda by: None)
    for _ in range(2):
        background_compile.aside([["one"], "akx", "name", None], Matrix.from_any(_A), 1)
    assert done == ["name"]
    monkeypatch.setattr(warmup, "run_job", lambda *job: False)
    with pytest.raises(RuntimeError, match="cannot be compiled"):
        background_compile.aside([["other"], "akx", "name", None], Matrix.from_any(_A), 1)
    assert not folder.joinpath("other.compiled").exists()


def test_a_first_call_leaves_notes_of_its_plan(folder: Path) -> None:
    from akx.operator import call

    call.call_once(3, Matrix.from_any(_A), 1)
    assert len(list(folder.glob("*.compiled"))) == 1


@pytest.mark.parametrize("end", ["exit", "SIGINT"])  # after others the process ends itself, as all of Warmup's do
@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_nothing_is_left_running(tmp_path: Path, end: str) -> None:
    script = f"""
import sys, time
import numpy as np
sys.path[:0] = {sys.path!r}
from akx import Matrix
from akx.operator import background_compile
from akx.tuner.warmup import gpu_code as precompile
from akx.tuner.warmup import host_code as warmup
import scipy.sparse as sp, pathlib
precompile.note_of = warmup.note_of = lambda code, _: pathlib.Path({str(tmp_path)!r}, "-".join(code) + ".compiled")
warmup.sandbox.command = lambda _: [sys.executable, "-c", {_COMPILER!r}, {str(tmp_path)!r}]
try:
    background_compile.look((("one",), "akx", "none", None), Matrix.from_any(sp.eye_array(5, format="csr")))
except background_compile.Coming as coming:
    assert coming.is_coming()
(work,) = background_compile._at_work.values()
print(work._processes[0].pid, flush=True)
if {end!r} != "exit":
    time.sleep(60)
"""
    run = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert run.stdout is not None
    child = int(run.stdout.readline())
    if end != "exit":
        run.send_signal(getattr(signal, end))
    run.wait(20)

    def is_gone() -> bool:
        try:
            return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    wait_for(is_gone)


def test_a_team_reads_a_matrix_beside_a_device_once_its_code_is_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is compiled beside calls which have read a good deal; few bytes are not worth one."""
    state = {"_read": 0, "_has_team": False, "_sums_of": None, "is_loaded": lambda: False}
    for name, value in {**state, "_PAYS": 3 << 20}.items():
        monkeypatch.setattr(background_compile, name, value)
    assert [background_compile.summing_by(4, 1 << 20) for _ in range(2)] == [None, None]
    assert not background_compile._at_work
    assert background_compile.summing_by(4, 1 << 20) is None
    wait_for((folder / "asked").exists)
    assert (folder / "asked").read_text().startswith("team")
    assert background_compile.summing_by(4, 1 << 20) is None
    (folder / "go").touch()
    wait_for(lambda: background_compile.summing_by(4, 1 << 20))
    for threads, nbytes, count in ((4, 1 << 20, 4), (7, 1 << 30, 4), (99, 1 << 30, 16), (16, 2 << 20, 8)):
        summing: Any = background_compile.summing_by(threads, nbytes)
        assert summing.keywords == {"threads": count}
    assert background_compile.summing_by(1, 1 << 30) is background_compile.summing_by(16, 1 << 19) is None
    for name, value in {**state, "notes_of": lambda *_: (None, None)}.items():
        monkeypatch.setattr(background_compile, name, value)
    assert [background_compile.summing_by(4, 1 << 22) for _ in range(3)] == [
        None
    ] * 3  # nobody keeps code: none is made
    (work,) = background_compile._at_work.values()
    work.close()
