"""What schedules and programs declare, with the defaults of those that declare no more; nobody asks by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numba import typeof

import akx
from akx.backends import registry
from akx.backends.cpu.feasibility import variants_for
from akx.backends.cpu.variants import VARIANTS
from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.host import host_device
from akx.backends.schedule import Coefficients, Parameter, Program, Schedule, Traffic, as_coefficients, held_bytes
from akx.backends.selection import BACKENDS
from akx.core.basis import monomial
from akx.core.errors import PlanError
from akx.core.matrix import Matrix
from akx.core.options import (
    CudaStream,
    CudaSweep,
    Options,
    Range,
    declared,
    of_option,
    schedule_with,
    traits,
    unknown_option,
)
from akx.core.plan import Plan

ALL = [schedule for backend in ("cpu", "cuda") for schedule in registry.schedules(backend)]
NAMES = {schedule.name for schedule in ALL}
GPU = CudaDevice("test", 0, (9, 0), 132, 232448, 233472, 65536, 2**25, 2**36, 10**9, 1e12)
#: Where a name of a schedule stands outside the kernels: where they are declared, a name of a contestant, the list of
#: the operator, and a plan that stands for a solver.
_MAY_NAME = {"core/options.py", "report/comparison/bench.py"}
#: Where a name of a backend stands outside the kernels and devices: where schedules are declared, a line of help, and
#: what to install.
_MAY_NAME_BACKENDS = {"core/options.py", "cli/options.py"}


@dataclass(frozen=True)
class PlainOptions(Options):
    is_plain = True
    width: int = of_option(3, Range(1, 9), shared=True)


class Plainest(Schedule):
    """A schedule that says as little as it may."""

    name, backend, options = "plainest", "nowhere", PlainOptions

    def space(self, matrix: Matrix, device: Any, k: int) -> tuple[Parameter, ...]:
        return ()

    def feasible(self, plan: Plan, matrix: Matrix, device: Any) -> str | None:
        return "too wide" if plan.typed.width == 9 else None

    def traffic(self, plan: Plan, matrix: Matrix, device: Any) -> Traffic:
        return Traffic(1.0, 1.0, 1.0)

    def prepare(self, matrix: Matrix, plan: Plan) -> Program:
        return Copies()


class Copies(Program):
    """A program that says as little as it may."""

    nbytes = 8

    def run(self, x: Any, out: Any, coefficients: Coefficients) -> None:
        out[...] = x

    def update_values(self, data: Any) -> None:
        """Nothing: it has none."""


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return Matrix.from_any(sp.diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(9000, 9000)))


def test_a_schedule_that_says_little_has_defaults_for_the_rest(matrix: Matrix) -> None:
    schedule, plan = Plainest(), Plan("nowhere", "plainest", "any")
    assert schedule.reason_at_once(plan.replace(options={"width": 9}), matrix, None) == "too wide"
    assert (
        schedule.waste(plan, matrix, None)
        is schedule.untuned(2, 1)
        is schedule.heuristic_plans(matrix, None, 2)
        is None
    )
    assert schedule.work(plan, matrix, None, 1) is schedule.least_budget(matrix, 2, None) is None
    assert (schedule.starts(matrix, None, 2), schedule.stored_error(plan, matrix, None)) == ((), 0.0)
    assert (schedule.padding(plan, matrix), schedule.largest_share(plan, matrix), schedule.may_crash) == (
        1.0,
        1.0,
        True,
    )
    schedule.lay_out(plan, matrix, None)
    with pytest.raises(TypeError, match="abstract"):
        Schedule()  # type: ignore[abstract]


def test_a_program_that_says_little_has_defaults_for_the_rest() -> None:
    program, x = Copies(), np.zeros((1, 3))
    assert held_bytes(program) == 8
    assert (program.host_nbytes, program.staged_nbytes, program.stored_error) == (0, 0, 0.0)
    assert (program.is_as_planned, program.is_recordable) == (True, False)
    assert program.new_result(1) is program.queue_of(x, None) is None  # type: ignore[arg-type]
    assert not program.is_own_result(x)
    program.ready(3)
    program.make_room()
    for ask in (lambda: program.staged(1), lambda: program.repeated(x, x, None, 1)):  # type: ignore[arg-type]
        with pytest.raises(NotImplementedError):
            ask()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_compiled_code_is_for_coefficients_of_one_kind(dtype: str) -> None:
    """Those of a search and those of a call, or what a search has compiled is compiled again for the first call."""
    given, basis = np.ones(3), monomial(3)
    searched = as_coefficients(given, given, given, np.dtype(dtype))
    called = as_coefficients(basis.a, basis.b, basis.c, np.dtype(dtype))
    assert {typeof(array) for one in (searched, called) for array in (one.a, one.b, one.c)} == {typeof(called.a)}
    assert not called.a.flags.writeable
    assert given.flags.writeable


def test_what_a_schedule_declares_is_known_by_its_name() -> None:
    assert traits("nowhere", "plainest") is PlainOptions
    assert schedule_with("nowhere", "is_plain") == "plainest"
    plan = Plan("nowhere", "plainest", "any")
    assert (plan.typed.width, plan.traits.is_plain, plan.traits.streams) == (3, True, False)
    assert plan.traits.shared == {"width"}
    assert plan.to_json()["options"] == {}  # a default is not spelt out
    with pytest.raises(PlanError, match="width"):
        plan.replace(options={"width": 10})
    assert (plan.typed.sigma, plan.typed.stored) == (1, "full")  # of others; every plan is asked
    assert plan.replace(options={"width": 5}).typed == PlainOptions(5)
    assert unknown_option("nowhere", "plainest", ["depth"]) is not None
    assert declared("nowhere", "nobody's") is None
    assert traits("nowhere", "nobody's") is Options


def test_a_record_of_options_is_checked_and_frozen() -> None:
    record = CudaSweep(pad=8)
    assert (record.pad, record.block, record.stored) == (8, 256, "full")
    with pytest.raises(FrozenInstanceError):
        record.pad = 4  # type: ignore[misc]
    with pytest.raises(PlanError, match="option share is out of range"):
        CudaStream(share=1.5)


@pytest.mark.parametrize("schedule", ALL, ids=lambda one: f"{one.backend}/{one.name}")
def test_every_schedule_declares_its_options(schedule: Schedule, matrix: Matrix) -> None:
    assert schedule.options is declared(schedule.backend, schedule.name)
    assert schedule.options.meaning
    device = host_device() if schedule.backend == "cpu" else GPU
    names = {one.name for one in schedule.space(matrix, device, 4)}
    of_plans = {"variant", "partitioner", "k_per_pass", "block_bytes", "threads"}
    assert names - of_plans <= set(schedule.options.allowed)


def test_each_backend_has_one_schedule_of_plain_products() -> None:
    for backend in ("cpu", "cuda"):
        assert [one.name for one in registry.schedules(backend) if one.options.is_plain] == ["sweep"]
    assert [one.name for one in ALL if one.options.streams] == ["stream"]


def test_a_variant_and_its_narrow_twin_are_both_there(matrix: Matrix) -> None:
    for name, one in VARIANTS.items():
        assert one.description
        assert not one.narrow or one.narrow in VARIANTS
        assert registry.variant_traits("cpu", name) is one
    assert registry.variants_with("cpu", "asks_ahead") == ("csr-ahead",)
    assert registry.variant_traits("nowhere", "csr").description == ""
    assert {name for name in variants_for(matrix, "natural") if not VARIANTS[name].has_columns} == {"dia"}


def _constants(tree: ast.AST) -> Iterator[str]:
    """Strings of a module that are no docstring and no keyword's name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize(
    ("names", "at_home", "may_name"),
    [
        (NAMES - {"stream"}, {"backends"}, _MAY_NAME),  # which is also a queue of a GPU
        (set(BACKENDS.own), {"backends", "cost"}, _MAY_NAME_BACKENDS),  # a data file each
    ],
    ids=["schedules", "backends"],
)
def test_none_is_asked_for_by_name(names: set[str], at_home: set[str], may_name: set[str]) -> None:
    """What others must know of a schedule or a backend it declares."""
    package = Path(akx.__file__).parent
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[0] not in at_home
        if names.intersection(_constants(ast.parse(path.read_text("utf-8"))))
    }
    assert found == may_name
