"""akx's own code, compiled ahead of a first search: what is gone through, by whom, and when it is done."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.backends import registry
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.cuda.schedules.ghost import schedule as ghost
from akx.backends.cuda.schedules.resident import schedule as resident
from akx.backends.cuda.schedules.sweep import schedule as sweep
from akx.backends.cuda.schedules.wavefront import strips as wavefront
from akx.backends.cuda.variants import diagonals, vbell
from akx.backends.cuda.variants import hot_columns as hubs
from akx.backends.host import host_device
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner import sandbox as processes
from akx.tuner import space as spaces
from akx.tuner.history.trial import Progress
from akx.tuner.measure import Precision
from akx.tuner.request import Settings
from akx.tuner.search import preparation
from akx.tuner.search import tune as tuning
from akx.tuner.space import build_space
from akx.tuner.trial.bench import Bench
from akx.tuner.trial.problem import Problem
from akx.tuner.warmup import gpu_code as precompile
from akx.tuner.warmup import host_code as warmup
from akx.tuner.warmup.gpu_code import compile_for, part_of
from akx.tuner.warmup.host_code import Warmup, precompiling
from benchmarks.gallery import small

H100 = CudaDevice("H100", 0, (9, 0), 132, 232448, 233472, 65536, 50 << 20, 80 << 30, 1980000000, 3.35e12)
#: For matrices of some hundred rows.
SMALL = replace(H100, sms=4)
HANGS = [sys.executable, "-c", "import time; time.sleep(600)"]
#: Says of each job that it is done.
ANSWERS = """
import pickle, sys
def number():
    return int.from_bytes(sys.stdin.buffer.read(8) or sys.exit(), "little")
def receive():
    return [sys.stdin.buffer.read(size) for size in [number() for _ in range(number())]]
receive()
while receive():
    text = pickle.dumps(True)
    sys.stdout.buffer.write((1).to_bytes(8, "little") + len(text).to_bytes(8, "little") + text)
    sys.stdout.buffer.flush()
"""

#: What several programs below begin with.
_BEGIN = """
from types import SimpleNamespace
import scipy.sparse as sp
from numba.core import event
from akx.backends.cuda.device.facts import CudaDevice
from akx.core.matrix import Matrix
from akx.tuner.warmup import gpu_code as precompile
from akx.tuner.warmup import host_code as warmup
from akx.tuner.warmup.gpu_code import compile_for
from akx.tuner.warmup.host_code import precompiling

device = CudaDevice("H100", 0, (9, 0), 132, 232448, 233472, 65536, 50 << 20, 80 << 30, 1980000000, 3.35e12)
line = sp.diags_array([1.0, 2.0, 1.0], offsets=[-1, 0, 1], shape=(1500, 1500), format="csr")
matrix = Matrix.from_any(line)
precompile.shares_of = lambda backend: [("sweep", 0)]
warmup.host_device = lambda: SimpleNamespace(cores=9)
warmup.sandbox.available_bytes = lambda: 2**36
"""
#: Has one share compiled, and again.
_AHEAD = """
with precompiling(matrix, 4, 1, device, wanted=True) as work:
    print(work.count, work.wait(300.0), flush=True)
with precompiling(matrix, 4, 1, device, wanted=True) as work:
    print(work)
"""
#: Tells how many functions it had to compile for that.
_HERE = """
class Count(event.Listener):
    found = 0
    def on_start(self, event): self.found += 1
    def on_end(self, event): pass

count = Count()
event.register("numba:compile", count)
print(compile_for("sweep", 0, matrix, 4, 1, device), count.found)
"""
FREE = 2**36


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set what there is of the host, and the program of processes."""

    def set_up(cores: int = 64, free: int = FREE, program: str = ANSWERS) -> None:
        monkeypatch.setattr(warmup, "host_device", lambda: SimpleNamespace(cores=cores))
        monkeypatch.setattr(warmup.sandbox, "available_bytes", lambda: free)
        monkeypatch.setattr(warmup.sandbox, "command", lambda _: [sys.executable, "-c", program])

    return set_up


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where notes are; none are, as on a machine on which nobody has searched."""
    for module in (precompile, warmup):
        monkeypatch.setattr(module, "note_of", lambda code, _: tmp_path / f"{'-'.join(code)}.compiled")
    return tmp_path


@pytest.fixture
def brick() -> Matrix:
    return Matrix.from_any(small("brick"))


@pytest.fixture
def line() -> Matrix:
    return Matrix.from_any(sp.diags_array([1.0, 2.0, 1.0], offsets=[-1, 0, 1], shape=(1500, 1500), format="csr"))


def test_the_part_of_a_matrix_is_its_first_rows_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sp.random_array((300, 300), density=0.05, format="csr", dtype=np.float32, rng=np.random.default_rng(5))
    whole = sp.csr_array(whole + sp.eye_array(300, dtype=np.float32))
    matrix = Matrix.from_any(whole, value_error=1e-3)
    monkeypatch.setattr(precompile, "_MOST_ROWS", 70)
    part = part_of(matrix)
    assert part.n == 70
    assert (sp.csr_array((part.data, part.indices, part.indptr), shape=(70, 70)) != whole[:70, :70]).nnz == 0
    assert part.value_error == matrix.value_error
    for name in ("indptr", "indices", "data"):
        of_part, of_whole = getattr(part, name), getattr(matrix, name)
        assert (of_part.dtype, of_part.flags.writeable) == (of_whole.dtype, of_whole.flags.writeable)
    monkeypatch.setattr(precompile, "_MOST_ENTRIES", 100)
    part = part_of(matrix)
    assert whole.indptr[part.n] <= 100 < whole.indptr[part.n + 1]
    monkeypatch.setattr(precompile, "_MOST_ENTRIES", 1)
    assert part_of(matrix).n == 1
    monkeypatch.undo()
    assert part_of(matrix).n == 300


@pytest.mark.parametrize("name", [s.name for s in registry.schedules("cuda") if s.name != "stream"])
def test_a_schedule_lays_out_in_each_order_and_most_variants(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not gone through is compiled when it is needed, as all of a schedule that is missing here would be."""
    done: list[Plan] = []
    schedule = registry.get("cuda", name)
    lay_out = schedule.lay_out

    def laid_out(plan: Plan, *where: Any) -> None:
        lay_out(plan, *where)
        done.append(plan)

    monkeypatch.setattr(schedule, "lay_out", laid_out)
    shares: list[list[Plan]] = []
    for share in range(schedule.layout_shares):
        done.clear()
        compile_for(name, share, Matrix.from_any(small("tetrahedra")), 4, 1, SMALL)
        assert len(done) == len(set(done))
        shares.append(list(done))
    assert all(set(plans) == set(done) for plans in shares)
    assert len({tuple(plans) for plans in shares}) == schedule.layout_shares  # each in an order of its own
    orders, variants = {plan.partitioner for plan in done}, {plan.variant for plan in done}
    assert len(orders) == (1 if name == "sweep" else 2)
    assert len(variants) >= (2 if name == "wavefront" else 4)


def test_each_layout_is_made(brick: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the function that `prepare` or `feasible` calls."""
    called: list[str] = []

    def calls(where: Any, name: str) -> None:
        found = getattr(where, name)
        monkeypatch.setattr(where, name, lambda *given: (called.append(f"{where.__name__}.{name}"), found(*given))[1])

    calls(diagonals, "lay_out")
    calls(sweep, "lay_out")
    calls(vbell, "reason_against")
    calls(hubs, "lay_out")
    calls(wavefront, "front_of")
    calls(resident.layout, "lay_out_resident")
    calls(ghost, "lay_out_ghost")
    grid = Matrix.from_any(small("9-point"))
    for name in ("sweep", "resident", "ghost", "wavefront"):
        compile_for(name, 0, brick, 4, 1, SMALL)
    compile_for("resident", 0, grid, 4, 1, H100)
    registry.get("cuda", "sweep").lay_out(Plan("cuda", "sweep", "hubs", k=2), brick, H100)
    streamed = Plan("cuda", "stream", "sell16-1", k=2, k_per_pass=1)
    registry.get("cuda", "stream").lay_out(streamed, brick, H100)  # nothing is laid out
    assert len(set(called)) == 7, set(called)


def test_what_cannot_be_gone_through_is_left_out(brick: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    """And told of: whoever asked does not take it for done."""
    assert compile_for("ghost", 0, brick, 4, 1, SMALL)
    assert not compile_for("no schedule", 0, brick, 4, 1, SMALL)
    assert not compile_for("wavefront", 0, brick, 4, 1, H100)  # its levels are too small for so many multiprocessors
    schedule = registry.get("cuda", "ghost")
    for name in ("starts", "heuristic_plans", "traffic", "work"):
        monkeypatch.setattr(schedule, name, lambda *_: 1 / 0)
    assert compile_for("ghost", 0, brick, 4, 1, SMALL)
    monkeypatch.setattr(schedule, "feasible", lambda *_: 1 / 0)
    assert not compile_for("ghost", 0, brick, 4, 1, SMALL)


@pytest.mark.parametrize(
    ("cores", "free", "count"), [(1, FREE, 0), (2, FREE, 0), (3, FREE, 1), (6, FREE, 4), (64, FREE, 7), (64, 2**32, 2)]
)
def test_as_many_processes_as_can_be_spared(
    cores: int, free: int, count: int, line: Matrix, notes: Path, host: Callable[..., None]
) -> None:
    host(cores, free)
    with precompiling(line, 4, 1, H100, wanted=True) as work:
        assert (0 if work is None else work.count) == count
        if work is not None:
            assert work.wait(20.0) <= len(list(notes.iterdir())) == 7  # some may have come before it waited


def test_what_is_done_is_not_done_again(line: Matrix, notes: Path, host: Callable[..., None]) -> None:
    host()
    for name in ("resident-0", "resident-1", "sweep-0"):
        (notes / f"{name}.compiled").touch()
    with precompiling(line, 4, 1, H100, wanted=True) as work:
        assert work is not None
        assert work.count == 4


def test_a_matrix_that_is_too_small_to_be_laid_out_starts_nothing(
    brick: Matrix, notes: Path, host: Callable[..., None]
) -> None:
    host(program=HANGS[-1])
    with precompiling(brick, 4, 1, H100, wanted=True) as work:
        assert work is None


def test_nothing_is_started_where_nothing_is_kept(
    line: Matrix, host: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    host(program=HANGS[-1])
    monkeypatch.setattr(warmup, "note_of", lambda *_: None)
    with precompiling(line, 4, 1, H100, wanted=True) as work:
        assert work is None


def test_a_note_is_of_types_and_sources(line: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whatever Numba's cache goes by: a file that was touched is compiled again."""
    note = precompile.note_of(("sweep", 0), line)
    single = Matrix.from_any(sp.csr_array((line.data, line.indices, line.indptr)).astype(np.float32))
    others = [precompile.note_of(("sweep", 1), line), precompile.note_of(("ghost", 0), line)]
    others += [precompile.note_of(("sweep", 0), matrix) for matrix in (single, line.with_value_error(1e-4))]
    source = tmp_path / "partition" / "halo.py"
    source.parent.mkdir()
    source.touch()
    monkeypatch.setattr(precompile, "_PACKAGE", tmp_path)
    for time_of in (1.0, 2.0):
        os.utime(source, (time_of, time_of))
        precompile._sources.cache_clear()
        others.append(precompile.note_of(("sweep", 0), line))
    precompile._sources.cache_clear()
    monkeypatch.undo()
    assert len({note, *others}) == 7
    assert precompile.note_of(("sweep", 0), line) == note


def test_processes_that_cannot_be_started_are_done_without(
    line: Matrix, notes: Path, host: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where some have come up before, they are ended."""
    host(cores=4)
    made: list[Any] = []
    popen = subprocess.Popen

    def second_fails(*given: Any, **options: Any) -> Any:
        if made:
            raise TypeError("there is no program")
        made.append(popen(HANGS, **options))
        return made[-1]

    monkeypatch.setattr(processes.subprocess, "Popen", second_fails)
    with precompiling(line, 4, 1, H100, wanted=True):
        pass
    assert [process.returncode for process in made] == [-9]


def test_processes_end_with_what_they_are_for(
    line: Matrix, notes: Path, host: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    popen = subprocess.Popen

    def kept(*given: Any, **options: Any) -> Any:
        made.append(popen(HANGS, **options))
        return made[-1]

    monkeypatch.setattr(processes.subprocess, "Popen", kept)
    host(cores=4)
    begin = time.monotonic()

    def interrupted() -> None:
        with precompiling(line, 4, 1, H100, wanted=True) as work:
            assert work is not None
            assert not work.wait(0.1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - begin < 5.0
    assert [process.returncode for process in made] == [-9, -9]
    with precompiling(line, 4, 1, H100, wanted=False) as work:
        assert work is None
    assert len(made) == 2


def test_a_search_ends_them_before_its_run_off(line: Matrix) -> None:
    ended: list[str] = []
    space = build_space(line, 2, host_device(), threads=1)
    bench = Bench(Problem(line, 2), space, precision=Precision(), race=1.5, keep=0)
    bench.end_when_settled(lambda: ended.append("compiling"))
    bench.settle()
    assert ended == ["compiling"]


def test_a_search_waits_for_them_in_a_phase_of_its_own(line: Matrix, tmp_path: Path, notes: Path) -> None:
    """Not where it is for few calls, and as long as it may take itself at most."""
    told: list[Progress] = []
    answers = [sys.executable, "-c", ANSWERS]
    cases = [(answers, 20.0, None, 1), (HANGS, 0.3, None, 0), (HANGS, 20.0, 5, None)]
    for place, (command, seconds, calls, last) in enumerate(cases):
        work = Warmup(line, count=1, command=command, everything=None)
        work.want([((str(place),), "akx", "none", None)])
        try:
            preparation.compile_first(
                Warmup(line, count=0), work, [], Settings(seconds=seconds, calls=calls), told.append
            )
        finally:
            work.close()
        assert {(state.phase, state.trials_budget) for state in told} == (set() if last is None else {("compile", 1)})
        assert last is None or told[-1].trials == last
        told.clear()


def told(program: str, cache: Path) -> list[str]:
    folder = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    environment = {**os.environ, "PYTHONPATH": folder, "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", _BEGIN + program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_what_is_compiled_is_kept_for_other_processes(tmp_path: Path) -> None:
    """The sweeps' part of it, which is the least: the others take a quarter of a minute each."""
    assert told(_AHEAD, tmp_path) == ["1", "1", "None"]
    assert len(list(tmp_path.rglob("akx-*.compiled"))) == 1
    kept = sorted(tmp_path.rglob("*.nbc"))
    assert len(kept) >= 5
    assert len({path.name for path in kept}) == len(kept)
    assert all(int(path.name.split(".")[-2]) > 2**32 for path in kept)  # no two processes take one name
    assert told(_HERE, tmp_path) == ["True", "0"]


def test_one_process_at_a_time_is_at_a_share(tmp_path: Path) -> None:
    """And leaves no note of what another one does."""
    note = tmp_path / "share.compiled"
    with precompile.alone(note) as first, precompile.alone(note) as second:
        assert (first, second) == (True, False)
    with precompile.alone(note) as again:
        assert again
    assert not note.exists()


@pytest.mark.parametrize(
    ("backend", "seconds", "wanted"), [("cuda", 60.0, True), ("cuda", 2.0, False), ("cpu", 30.0, False)]
)
def test_only_long_searches_on_a_gpu_compile_ahead(
    backend: str, seconds: float, wanted: bool, brick: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reached(Exception):
        pass

    def reached(*given: Any, wanted: bool) -> Any:
        asked.append(wanted)
        return nullcontext()

    def nothing(*given: Any, **options: Any) -> Any:
        raise Reached

    asked: list[bool] = []
    device: Callable[[str], Any] = lambda label: H100 if label == "cuda" else host_device()  # noqa: E731
    monkeypatch.setattr(spaces, "device_of", device)
    monkeypatch.setattr(tuning, "resolve_backend", lambda label: label)
    monkeypatch.setattr(spaces, "plan_threads", lambda label, threads=None: 1)
    monkeypatch.setattr(tuning, "precompiling", reached)
    monkeypatch.setattr(tuning, "build_space", nothing)
    with pytest.raises(Reached):
        tuning.tune(brick, 4, backend=backend, seconds=seconds, db=False)
    assert asked == [wanted]


def test_processes_begin_where_the_current_directory_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(sys, "path", ["", "/somewhere"])
    assert processes.environment()["PYTHONPATH"] == "/somewhere"
