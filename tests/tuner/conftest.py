"""A small world to tune in: two schedules whose cost is a formula, on a clock that only they move."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from akx.backends import registry
from akx.backends.schedule import Parameter, Program, Schedule, Traffic
from akx.core.errors import InfeasibleError
from akx.core.matrix import Matrix
from akx.core.options import Options, Range, Words, declare, of_option
from akx.core.plan import Plan
from akx.tuner import measure, space
from akx.tuner.model import figures as machine
from akx.tuner.search import preparation

KIB = 1024


@dataclass
class World:
    """What programs cost and do; every number is in seconds of the fake clock."""

    cost: Callable[[Plan], float]
    wrong: Callable[[Plan, int], bool] = lambda plan, call: False
    unwritten: Callable[[Plan], bool] = lambda plan: False
    fails_to_prepare: Callable[[Plan], Exception | None] = lambda plan: None
    fails_to_run: Callable[[Plan], Exception | None] = lambda plan: None
    infeasible: Callable[[Plan], str | None] = lambda plan: None
    prepare_cost: Callable[[Plan], float] = lambda plan: 1e-3
    luck: Callable[[Plan, int], float] = lambda plan, copy: 1.0
    spoilt: Callable[[Plan, int], bool] = lambda plan, copy: False
    compile_cost: float = 0.0
    thinking_cost: Callable[[Plan], float] = lambda plan: 0.0
    noise: Callable[[], float] = lambda: 0.0
    drift: float = 0.0
    slowness: Callable[[float, float], float] = lambda now, seconds: 1.0
    interrupt_at: int | None = None
    time: float = 100.0
    calls: int = 0
    looked: int = 0
    prepared: list[Plan] = field(default_factory=list)
    alive: Any = field(default_factory=weakref.WeakSet)

    def now(self) -> float:
        return self.time

    def pause(self, seconds: float) -> None:
        self.time += seconds

    def spend(self, seconds: float) -> None:
        slower = self.slowness(self.time - 100.0, seconds)
        self.time += seconds * (1 + self.noise()) * (1 + self.drift * (self.time - 100.0)) * slower


def _without_prices(device: Any, threads: int) -> machine.Figures:
    """Figures of a machine whose formats all cost the same: what is predicted is a front."""
    return replace(machine.derived_figures(device, threads), formats={})


class FakeProgram(Program):
    nbytes, is_as_planned = 1000, True

    def __init__(self, world: World, matrix: Matrix, plan: Plan) -> None:
        self.world, self.matrix, self.plan, self.calls = world, matrix, plan, 0
        self.copy = world.prepared.count(plan)
        self.A = matrix.to_scipy()
        world.alive.add(self)

    def update_values(self, data: Any) -> None:
        self.A = self.matrix.with_values(data).to_scipy()

    def run(self, x: Any, out: Any, coefficients: Any) -> None:
        world = self.world
        world.calls += 1
        if world.interrupt_at is not None and world.calls == world.interrupt_at:
            raise KeyboardInterrupt
        failure = world.fails_to_run(self.plan)
        if failure is not None:
            raise failure
        cost = world.cost(self.plan) * world.luck(self.plan, self.copy)
        world.spend(cost + (world.compile_cost if self.calls == 0 else 0.0))
        if not np.isnan(out[-1]).any() and self.calls > 0:
            self.calls += 1
            return  # timed calls need not compute; checked calls come with a poisoned output
        self.calls += 1
        a, b, c = coefficients.a, coefficients.b, coefficients.c
        out[0] = x
        for j in range(a.size):
            out[j + 1] = a[j] * (self.A @ out[j].T).T + b[j] * out[j] + (c[j] * out[j - 1] if j else 0.0)
        if world.wrong(self.plan, self.calls):
            out[-1, 0, 0] *= 1.001
        if world.unwritten(self.plan) or world.spoilt(self.plan, self.copy):
            out[-1, 0, -1] = np.nan


@dataclass(frozen=True)
class FrontOptions(Options):
    """Those of `wavefront`, for a schedule that is not there."""

    sigma: int = of_option(1, Range(1, 1024))
    split: str = of_option("contiguous", Words(("contiguous", "interleaved")), shared=True)
    lag: int = of_option(0, Range(0, 8), shared=True)


declare("cpu", "front", FrontOptions)


class FakeSchedule(Schedule):
    backend = "cpu"
    description = "a formula"

    def __init__(self, world: World, name: str, parameters: tuple[Parameter, ...]) -> None:
        self.world, self.name, self.parameters = world, name, parameters

    def space(self, matrix: Matrix, device: Any, k: int) -> tuple[Parameter, ...]:
        self.world.looked += 1
        return self.parameters

    def untuned(self, k: int, threads: int) -> Plan:
        passes = {"k_per_pass": k, "block_bytes": 128 * KIB} if self.name == "front" else {}
        return Plan("cpu", self.name, "csr", k=k, threads=threads, **passes)

    def feasible(self, plan: Plan, matrix: Matrix, device: Any) -> str | None:
        return self.world.infeasible(plan)

    def traffic(self, plan: Plan, matrix: Matrix, device: Any) -> Traffic:
        self.world.time += self.world.thinking_cost(plan)
        passes = plan.k if plan.schedule == "sweep" else -(-plan.k // plan.k_per_pass)
        return Traffic(12.0 * matrix.nnz * passes, 8.0 * matrix.n * plan.k, 2.0 * matrix.nnz * plan.k)

    def prepare(self, matrix: Matrix, plan: Plan) -> FakeProgram:
        if self.world.infeasible(plan):
            raise InfeasibleError("asked to prepare an infeasible plan")
        self.world.prepared.append(plan)
        self.world.time += self.world.prepare_cost(plan)
        failure = self.world.fails_to_prepare(plan)
        if failure is not None:
            raise failure
        return FakeProgram(self.world, matrix, plan)


SWEEP = (
    Parameter("variant", ("csr", "sell"), "csr", "variant"),
    Parameter("partitioner", ("natural", "rcm"), "natural", "order"),
    Parameter("threads", (2, 1), 2, "threads"),
)
FRONT = (
    Parameter("variant", ("csr", "sell"), "csr", "variant"),
    Parameter("partitioner", ("natural", "rcm"), "natural", "order"),
    Parameter("threads", (2, 1), 2, "threads"),
    Parameter("k_per_pass", (2, 4, 8), 8, "powers per pass"),
    Parameter("block_bytes", tuple(2**i * KIB for i in range(4, 11)), 128 * KIB, "block"),
    Parameter("split", ("contiguous", "interleaved"), "contiguous", "split"),
)


def default_cost(plan: Plan) -> float:
    """Sweeps take 4 ms; the optimum of the front, 2 ms, is `OPTIMUM`."""
    seconds = 4e-3 if plan.schedule == "sweep" else 2e-3
    seconds *= 1.0 if plan.variant == "sell" else 1.1
    seconds *= 1.0 if plan.partitioner == "natural" else 1.15
    seconds *= 2.0 / plan.threads
    if plan.schedule == "front":
        seconds *= 1 + 0.1 * abs(plan.k_per_pass.bit_length() - 3)
        seconds *= 1 + 0.1 * abs(plan.block_bytes.bit_length() - (256 * KIB).bit_length())
        seconds *= 1.0 if plan.typed.split == "interleaved" else 1.08
    return seconds


OPTIMUM = Plan("cpu", "front", "sell", "natural", 8, 4, 256 * KIB, 2, {"split": "interleaved"})


@pytest.fixture(autouse=True)
def _no_plans_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The user's database is a new file in every test."""
    monkeypatch.setenv("AKX_DB", str(tmp_path / "user" / "plans.sqlite"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "user" / "data"))


@pytest.fixture
def make_world(monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    """Install a world: its schedules are all that the registry knows, its clock all that the tuner sees."""

    def make(**changes: Any) -> World:
        world = World(**{"cost": default_cost, **changes})
        schedules = {s.name: s for s in (FakeSchedule(world, "sweep", SWEEP), FakeSchedule(world, "front", FRONT))}
        monkeypatch.setattr(registry, "backends", lambda: ("cpu",))
        monkeypatch.setattr(registry, "names", lambda backend: tuple(schedules))
        monkeypatch.setattr(registry, "has_others", lambda backend: True)
        monkeypatch.setattr(registry, "schedules", lambda backend: tuple(schedules.values()))
        monkeypatch.setattr(registry, "get", lambda backend, name: schedules[name])
        monkeypatch.setattr(measure, "_CLOCK", ContextVar("world", default=world))
        monkeypatch.setattr(preparation, "measured_figures", machine.derived_figures)
        monkeypatch.setattr(preparation, "figures_of", _without_prices)
        monkeypatch.setattr(space, "plan_threads", lambda backend, threads=None: threads or 2)
        return world

    return make


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """The default world."""
    return make_world()


def make_matrix(n: int = 40, seed: int = 0, dtype: Any = np.float64) -> Matrix:
    """A small random matrix with a full diagonal."""
    random = np.random.default_rng(seed)
    A = sp.random_array((n, n), density=0.1, rng=random, data_sampler=lambda size: random.uniform(-1, 1, size))
    return Matrix.from_any((A + sp.eye_array(n)).astype(dtype))


@pytest.fixture
def matrix() -> Matrix:
    """A small matrix."""
    return make_matrix()


@pytest.fixture(scope="session", name="make_matrix")
def _make_matrix() -> Callable[..., Matrix]:
    """Make a small matrix of some size, seed and dtype."""
    return make_matrix


@pytest.fixture
def optimum() -> Plan:
    """The plan that :func:`default_cost` likes best."""
    return OPTIMUM
