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
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.device.cuda.facts import CudaDevice
from akx.device.host import host_device
from akx.kernels import registry
from akx.kernels.cuda import layouts
from akx.matrix import Matrix
from akx.plan import Plan
from akx.tuner import precompile, tuning
from akx.tuner.precompile import Precompilation, compile_for, part_of, precompiling
from benchmarks.gallery import small

H100 = CudaDevice("H100", 0, (9, 0), 132, 232448, 233472, 65536, 50 << 20, 80 << 30, 1980000000, 3.35e12)
#: For matrices of some hundred rows.
SMALL = replace(H100, sms=4)
HANGS = [sys.executable, "-c", "import time; time.sleep(600)"]
ENDS = [sys.executable, "-c", "import sys; sys.stdin.buffer.read()"]

#: Compiles what the plans of a schedule need, tells how many functions that were, and how many a second time.
_TELLS = """
import sys
from numba.core import event
from akx.device.cuda.facts import CudaDevice
from akx.matrix import Matrix
from akx.tuner.precompile import Precompilation, compile_for, part_of
from benchmarks.gallery import small

class Count(event.Listener):
    found = 0
    def on_start(self, event): self.found += 1
    def on_end(self, event): pass

device = CudaDevice("H100", 0, (9, 0), 132, 232448, 233472, 65536, 50 << 20, 80 << 30, 1980000000, 3.35e12)
matrix = Matrix.from_any(small("brick"))
if sys.argv[1] == "ahead":
    work = Precompilation(matrix, 4, 1, device, cores=9)
    print(work.count, work.wait(300.0), flush=True)
    work.close()
    print(Precompilation(matrix, 4, 1, device, cores=9).count)
else:
    count = Count()
    event.register("numba:compile", count)
    compile_for("sweep", 0, matrix, 4, 1, device)
    print(count.found)
"""


@pytest.fixture(autouse=True)
def nothing_is_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on a machine on which nobody has searched."""
    monkeypatch.setattr(precompile, "_note_of", lambda name, share, *_: tmp_path / f"{name}-{share}")


@pytest.fixture
def brick() -> Matrix:
    return Matrix.from_any(small("brick"))


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
    lay_out = layouts.lay_out

    def laid_out(plan: Plan, *where: Any) -> None:
        lay_out(plan, *where)
        done.append(plan)

    monkeypatch.setattr(layouts, "lay_out", laid_out)
    shares: list[list[Plan]] = []
    for share in range(precompile._SHARES[name]):
        done.clear()
        compile_for(name, share, Matrix.from_any(small("tetrahedra")), 4, 1, SMALL)
        assert len(done) == len(set(done))
        shares.append(list(done))
    assert all(set(plans) == set(done) for plans in shares)
    assert len({tuple(plans) for plans in shares}) == precompile._SHARES[name]  # each in an order of its own
    orders, variants = {plan.partitioner for plan in done}, {plan.variant for plan in done}
    assert len(orders) == (1 if name == "sweep" else 2)
    assert len(variants) >= (2 if name == "wavefront" else 4)


def test_each_layout_is_made(brick: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the function that `prepare` calls."""
    called: list[str] = []

    def calls(where: Any, name: str) -> None:
        found = getattr(where, name)
        monkeypatch.setattr(where, name, lambda *given: (called.append(f"{where.__name__}.{name}"), found(*given))[1])

    calls(layouts.diagonals, "lay_out")
    calls(layouts.sweep, "lay_out")
    calls(layouts.vbell, "laid_out")
    calls(layouts.hubs, "lay_out")
    calls(layouts.wavefront, "front_of")
    calls(layouts, "lay_out_resident")
    calls(layouts, "lay_out_ghost")
    grid = Matrix.from_any(small("9-point"))
    for name in ("sweep", "resident", "ghost", "wavefront"):
        compile_for(name, 0, brick, 4, 1, SMALL)
    compile_for("resident", 0, grid, 4, 1, H100)
    layouts.lay_out(Plan("cuda", "sweep", "hubs", k=2), brick, H100)
    layouts.lay_out(Plan("cuda", "stream", "sell16-1", k=2, k_per_pass=1), brick, H100)  # nothing is laid out
    assert len(set(called)) == 7, set(called)


def test_what_cannot_be_gone_through_is_left_out(brick: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = registry.get("cuda", "ghost")
    for name in ("starts", "offers", "traffic", "feasible"):
        monkeypatch.setattr(schedule, name, lambda *_: 1 / 0)
    compile_for("ghost", 0, brick, 4, 1, H100)
    compile_for("no schedule", 0, brick, 4, 1, H100)


@pytest.mark.parametrize(("cores", "count"), [(1, 0), (2, 0), (3, 1), (6, 4), (64, 7)])
def test_as_many_processes_as_cores_can_be_spared(cores: int, count: int, brick: Matrix) -> None:
    work = Precompilation(brick, 4, 1, H100, cores=cores, command=ENDS)
    try:
        assert work.count == count
        assert work.wait(20.0)
    finally:
        work.close()


def test_what_is_done_is_not_done_again(brick: Matrix, tmp_path: Path) -> None:
    for name in ("resident-0", "resident-1", "sweep-0"):
        (tmp_path / name).touch()
    work = Precompilation(brick, 4, 1, H100, cores=64, command=ENDS)
    assert work.count == 4
    work.close()


def test_nothing_is_started_where_nothing_is_kept(brick: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompile, "_note_of", lambda *_: None)
    assert Precompilation(brick, 4, 1, H100, cores=64, command=HANGS).count == 0


def test_processes_that_cannot_be_started_are_done_without(brick: Matrix) -> None:
    work = Precompilation(brick, 4, 1, H100, cores=64, command=[os.devnull])
    assert work.count == 0
    work.close()


def test_processes_end_with_what_they_are_for(brick: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    popen = subprocess.Popen

    def kept(*given: Any, **options: Any) -> Any:
        made.append(popen(HANGS, **options))
        return made[-1]

    monkeypatch.setattr(precompile.subprocess, "Popen", kept)
    monkeypatch.setattr(precompile, "host_device", lambda: type("Host", (), {"cores": 4}))
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), precompiling(brick, 4, 1, H100, wanted=True):
        raise KeyboardInterrupt
    assert time.monotonic() - begin < 5.0
    assert [process.returncode for process in made] == [-9, -9]
    with precompiling(brick, 4, 1, H100, wanted=False):
        assert len(made) == 2


def test_what_is_compiled_is_kept_for_other_processes(tmp_path: Path) -> None:
    """The sweeps' part of it, which is the least: the others take a quarter of a minute each."""
    ahead = _TELLS.replace(
        "import sys", "import sys; from akx.tuner import precompile; precompile._SHARES = {'sweep': 1}", 1
    )
    folder = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    environment = {**os.environ, "PYTHONPATH": folder, "NUMBA_CACHE_DIR": str(tmp_path)}

    def told(program: str, what: str) -> list[str]:
        command = [sys.executable, "-c", program, what]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    assert told(ahead, "ahead") == ["1", "True", "0"]
    assert len(list(tmp_path.rglob("akx-*.compiled"))) == 1
    assert told(_TELLS, "here") == ["0"]


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
    monkeypatch.setattr(tuning, "device_of", device)
    monkeypatch.setattr(tuning, "resolve_backend", lambda label: label)
    monkeypatch.setattr(tuning, "plan_threads", lambda label, threads=None: 1)
    monkeypatch.setattr(tuning, "precompiling", reached)
    monkeypatch.setattr(tuning, "build_space", nothing)
    with pytest.raises(Reached):
        tuning.tune(brick, 4, backend=backend, seconds=seconds, db=False)
    assert asked == [wanted]
