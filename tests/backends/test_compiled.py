"""Compiled code: kept on disk between processes, and compiled anew when a kernel source changes; threads as asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numba import typeof
from numpy.typing import NDArray

import akx
from akx import MatrixPowers
from akx.backends import registry
from akx.backends.cpu import program
from akx.backends.cpu.jit import jit, jit_inner, source_hash
from akx.backends.cpu.schedules.ghost import options as ghost_options
from akx.backends.cpu.schedules.ghost import schedule as ghost
from akx.backends.cpu.thread_team import Job, Team
from akx.backends.host import host_device
from akx.core.errors import ArgumentError
from akx.core.plan import Plan

_PROGRAM = """
import numpy as np, scipy.sparse as sp, akx
from akx.backends.cpu.task_loop import run_tasks
from akx.core.plan import Plan
A = sp.diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(500, 500), format="csr")
V = akx.MatrixPowers(A, 3, plan=Plan("cpu", "sweep", "csr16", k=3))(np.ones(500))
assert abs(V[250, 1]) < 1e-15
print(sum(run_tasks.stats.cache_hits.values()), sum(run_tasks.stats.cache_misses.values()))
"""


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    """The cache is that of all tests: with an empty one, what else the first compiles would take a quarter of a minute.

    What it keeps may be lost once, where another process writes to the cache at that moment.
    """
    root = Path(akx.__file__).resolve().parents[1]
    environment = os.environ | {"AKX_DB": str(tmp_path / "plans.sqlite"), "PYTHONPATH": str(root)}

    def hits_and_misses() -> list[str]:
        command = [sys.executable, "-c", _PROGRAM]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    assert hits_and_misses() in (["0", "1"], ["1", "0"])
    assert hits_and_misses() == ["1", "0"] or hits_and_misses() == ["1", "0"]


def test_stamp_covers_all_kernel_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    before = source_hash()
    original = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: original(self) + (b"#" if self.name == "sell.py" else b""))
    assert source_hash.__wrapped__() != before


@jit_inner
def _twice(x: Any) -> Any:
    return 2 * x


@jit
def _thrice(x: Any) -> Any:
    return _twice(x) + x


def test_what_only_compiled_code_calls_is_refused_to_python() -> None:
    """Before it is compiled and after; Numba itself would jump to where no code is."""
    with pytest.raises(TypeError, match="only compiled code can call it"):
        _twice(1)
    assert _thrice(1) == 3
    with pytest.raises(TypeError, match="only compiled code can call it"):
        _twice(1)


def test_every_registered_schedule_is_there() -> None:
    assert registry.backends() == ("cpu", "cuda")
    assert [s.name for s in registry.schedules("cpu")] == ["sweep", "ghost", "wavefront"]
    assert all(s.backend == "cpu" and s.description for s in registry.schedules("cpu"))
    with pytest.raises(ArgumentError, match="unknown schedule"):
        registry.get("cpu", "magic")


def test_threads_of_a_plan_are_the_threads_used(monkeypatch: pytest.MonkeyPatch) -> None:
    A = sp.diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(5000, 5000), format="csr")
    sizes: list[int] = []
    original = Team.run

    def run(self: Team, job: Job, x: NDArray[Any], out: NDArray[Any]) -> None:
        sizes.append(self.size)
        original(self, job, x, out)

    monkeypatch.setattr(Team, "run", run)
    for count in (2, 3):
        P = akx.MatrixPowers(A, 2, plan=Plan("cpu", "sweep", "csr", k=2, threads=count))
        P(np.ones(5000))
        assert sizes.pop() == count
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    assert akx.MatrixPowers(A, 2).plan.threads == 1


@pytest.mark.parametrize(("rows", "offered"), [(40_000, True), (60_000, False)])
def test_partitions_that_take_minutes_are_not_offered(
    rows: int, offered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ghost_options, "find_spec", lambda name: True)
    A = akx.Matrix.from_any(sp.diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(rows, rows), format="csr"))
    parameters = {p.name: p.choices for p in registry.get("cpu", "ghost").space(A, host_device(), 4)}
    assert ("hypergraph" in parameters["partitioner"]) is offered
    assert "metis" in parameters["partitioner"]


@pytest.mark.parametrize("basis", ["monomial", "chebyshev"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize(
    ("schedule", "variant", "partitioner", "k_per_pass"),
    [
        ("sweep", "dia", "natural", 1),
        ("sweep", "csr", "rcm", 1),
        ("wavefront", "csr", "rcm", 3),
        ("ghost", "csr", "natural", 3),
    ],
)
def test_what_a_first_call_runs_is_compiled_with_the_program(
    schedule: str,
    variant: str,
    partitioner: str,
    k_per_pass: int,
    dtype: Any,
    basis: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The types that were compiled for are those of the call: else it would compile once more."""
    asked = list[Any]()

    class Function:
        def compile(self, types: tuple[Any, ...]) -> None:
            asked.append(types)

        def __call__(self, *arguments: Any) -> bool:
            asked.append(tuple(map(typeof, arguments)))
            return True

    for module, name in ((program, "run_tasks"), (ghost, "run_ghost")):
        monkeypatch.setattr(module, name, Function())
    A = sp.csr_array(sp.diags_array([np.full(300 - abs(o), 1.0 + abs(o)) for o in (-1, 0, 1)], offsets=[-1, 0, 1]))
    plan = Plan("cpu", schedule, variant, partitioner, 3, k_per_pass=k_per_pass, block_bytes=4096, threads=1)
    P = MatrixPowers(A.astype(dtype), 3, basis=basis, plan=plan)
    assert len(asked) == 1
    P(np.ones(300, dtype=dtype), out=np.zeros((300, 4), dtype=dtype, order="F"))
    assert len(asked) == 2
    assert asked[0] == asked[1]
