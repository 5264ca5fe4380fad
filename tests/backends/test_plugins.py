"""Schedules and variants of other packages: registered by a call, and found by entry points."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import akx
from akx.backends import registry, revisions
from akx.backends.selection import device_of
from akx.backends.variant import Product, Variant
from akx.core.errors import AkxWarning, ArgumentError, ArgumentTypeError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.core.plugins import Registered
from akx.plandb import make_key
from akx.plandb.key import key_of_plan
from akx.tuner import tune
from akx.tuner.space import build_space

_ROOT = Path(__file__).resolve().parents[2]
#: A package of somebody else's: a schedule that halves the powers, and products by coordinates.
_PACKAGE = """
import numpy as np
from akx.backends import schedule as base
from akx.backends.schedule import Parameter, Traffic
from akx.backends.variant import Product, Variant


class Program(base.Program):
    def __init__(self, matrix):
        self.A = matrix.to_scipy().copy()

    @property
    def nbytes(self):
        return self.A.data.nbytes

    def run(self, x, out, coefficients):
        out[0] = x
        for j, (a, b, c) in enumerate(zip(coefficients.a, coefficients.b, coefficients.c)):
            out[j + 1] = a * (self.A @ out[j].T).T + b * out[j]
            if c:
                out[j + 1] += c * out[j - 1]

    def update_values(self, data):
        self.A.data[:] = data


class Schedule(base.Schedule):
    name, backend, revision, description = "toy", "cpu", 7, "products by SciPy"

    def space(self, matrix, device, k):
        return (Parameter("variant", ("csr",), "csr", "rows"), Parameter("pace", (1, 2), 1, "nothing at all"))

    def feasible(self, plan, matrix, device):
        return None if plan.variant == "csr" else "rows, and nothing else"

    def traffic(self, plan, matrix, device):
        return Traffic(12.0 * plan.k * matrix.nnz, 16.0 * plan.k * matrix.n, 2.0 * plan.k * matrix.nnz)

    def prepare(self, matrix, plan):
        return Program(matrix)


class Coordinates(Product):
    def __init__(self, matrix):
        self.rows = np.repeat(np.arange(matrix.n), np.diff(matrix.indptr))
        self.columns, self.values = matrix.indices, matrix.data.copy()

    @property
    def nbytes(self):
        return self.values.nbytes

    def multiply(self, v, out):
        out[:] = 0
        np.add.at(out, self.rows, self.values * v[self.columns])

    def update_values(self, data):
        self.values[:] = data


class Coo(Variant):
    name, description, revision = "coo", "coordinates", 3

    def reason_against(self, matrix):
        return None if matrix.n < 10_000 else "too many rows for coordinates"

    def stored_bytes(self, matrix):
        return 16.0 * matrix.nnz

    def prepare(self, matrix, threads):
        return Coordinates(matrix)


SCHEDULE, VARIANT = Schedule(), Coo()
"""

#: Another, which declares itself, and has a plan of its own before it does.
_WIDE = """
import toy
from dataclasses import dataclass
from akx.core.options import Options, Range, of_option
from akx.core.plan import Plan

BEFORE = Plan("cpu", "wide", "csr", options={"width": 65})


@dataclass(frozen=True)
class WideOptions(Options):
    runs_by_levels = True
    width: int = of_option(3, Range(1, 64))


class Wide(toy.Schedule):
    name, options = "wide", WideOptions


SCHEDULE = Wide()
"""


def laplacian(n: int = 300) -> Any:
    return sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(n, n), format="csr")


@pytest.fixture
def toy() -> Iterator[Any]:
    found: dict[str, Any] = {}
    exec(_PACKAGE, found)
    registry.register(found["SCHEDULE"])
    registry.register(found["VARIANT"])
    yield found
    registry.unregister(found["SCHEDULE"])
    registry.unregister(found["VARIANT"])


@pytest.mark.parametrize("named", [("toy", "csr"), ("sweep", "coo")])
@pytest.mark.parametrize("basis", ["monomial", "chebyshev"])
def test_plans_of_it_compute_what_others_do(toy: Any, named: tuple[str, str], basis: str) -> None:
    A, x = laplacian(), np.linspace(-1, 1, 300)
    kind: Any = basis if basis == "monomial" else akx.chebyshev(4, (0.0, 5.0))
    found = akx.MatrixPowers(A, 4, basis=kind, plan=Plan("cpu", *named, k=4))(x)
    assert np.allclose(found, akx.MatrixPowers(A, 4, basis=kind)(x), rtol=1e-12)
    again = akx.MatrixPowers(A, 4, plan=Plan("cpu", *named, k=4))
    again.update_values(2 * A)
    assert np.allclose(again(x)[:, 4], 16 * akx.MatrixPowers(A, 4)(x)[:, 4], rtol=1e-12)


def test_it_is_in_the_space_and_its_plans_are_kept(toy: Any, tmp_path: Path) -> None:
    A, x = laplacian(), np.linspace(-1, 1, 300)
    matrix = Matrix.from_any(A)
    space = build_space(matrix, 4, device_of("cpu"), backend="cpu", threads=1)
    assert "toy" in space.schedules
    assert space.choices("toy", "pace") == (1, 2)
    assert "coo" in space.choices("sweep", "variant")
    assert "coo" in {plan.variant for plan in space.baselines(matrix)}
    assert space.feasible(Plan("cpu", "sweep", "coo", "rcm", k=4), matrix) == (
        "coo takes rows in their own order, not in that of rcm"
    )
    wide = Matrix.from_any(sp.eye_array(10_000, format="csr"))
    assert "coo" not in build_space(wide, 4, device_of("cpu"), backend="cpu", threads=1).choices("sweep", "variant")
    db = tmp_path / "plans.sqlite"
    only = tune(A, 4, db=False, trials=3, seconds=60, threads=1, space_filter=lambda plan: plan.schedule == "toy")
    assert "toy" in {trial.plan.schedule for trial in only.trials}
    tune(A, 4, db=db, trials=3, seconds=1, threads=1)
    plan, store = Plan("cpu", "toy", "csr", k=4, options={"pace": 2}), akx.PlanDatabase(db)
    (record,) = store.list()
    asked = make_key(matrix, 4, device=device_of("cpu"), threads=1)
    store.remove(record.id)
    store.put(replace(record, key=key_of_plan(asked, plan), plan=plan))
    operator = akx.MatrixPowers(A, 4, db=db, threads=1)
    assert operator.plan == plan
    assert np.allclose(operator(x), akx.MatrixPowers(A, 4, plan=plan)(x), rtol=1e-12)


def test_its_revision_is_part_of_keys(toy: Any) -> None:
    plan = Plan("cpu", "toy", "csr", k=4)
    assert revisions.revision("cpu", "toy") == 7
    assert revisions.variant_revision("cpu", "coo") == 3
    key = key_of_plan(make_key(Matrix.from_any(laplacian()), 4, device=device_of("cpu")), plan)
    assert key.revisions.endswith("toy 7, csr 1")


def test_akx_keeps_its_own_names_and_takes_nothing_else(toy: Any) -> None:
    class Sweep(type(toy["SCHEDULE"])):  # type: ignore[misc]
        name = "sweep"

    with pytest.raises(ArgumentError, match="akx has a 'cpu/sweep' of its own"):
        registry.register(Sweep())
    with pytest.raises(ArgumentTypeError, match="this cannot be registered"):
        registry.register(3)  # type: ignore[arg-type]
    registry.unregister(toy["SCHEDULE"])
    with pytest.raises(ArgumentError, match="unknown schedule"):
        registry.get("cpu", "toy")


def test_nothing_takes_the_place_of_a_variant_of_akx(toy: Any) -> None:
    class Csr(type(toy["VARIANT"])):  # type: ignore[misc]
        name = "csr"

    with pytest.raises(ArgumentError, match="akx has a 'cpu/csr' of its own"):
        registry.register(Csr())
    assert registry.variant("cpu", "csr") is None


@pytest.mark.parametrize("kind", ["SCHEDULE", "VARIANT"])
@pytest.mark.parametrize("name", ["", "a/b", 3, None])
def test_a_name_is_a_word_without_a_slash(toy: Any, kind: str, name: Any) -> None:
    class Named(type(toy[kind])):  # type: ignore[misc]
        pass

    Named.name = name
    with pytest.raises(ArgumentError, match="wrong name of a"):
        registry.register(Named())


def test_who_forgot_a_name_is_told() -> None:
    class Nameless(Variant):
        def stored_bytes(self, matrix: Matrix) -> float:
            return 0.0

        def prepare(self, matrix: Matrix, threads: int) -> Product:
            raise NotImplementedError

    with pytest.raises(ArgumentError, match="Variant without a name, expected backend and name"):
        registry.register(Nameless())


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with the package and what pip leaves of it; some of its entry points are broken."""
    (tmp_path / "toy.py").write_text(_PACKAGE)
    (tmp_path / "wide.py").write_text(_WIDE)
    (tmp_path / "mine.py").write_text((Path(__file__).parent / "fake_backend.py").read_text())
    of = tmp_path / "toy_powers-1.0.dist-info"
    of.mkdir()
    (of / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-powers\nVersion: 1.0\n")
    points = """
        [akx.backends]
        fake = mine:BACKEND
        gone = not_there:BACKEND
        none = toy:SCHEDULE

        [akx.schedules]
        cpu/toy = toy:SCHEDULE
        cpu/sweep = toy:SCHEDULE
        cpu/other = toy:SCHEDULE
        cpu/wide = wide:SCHEDULE
        fake/sweep = mine:SWEEP

        [akx.variants]
        cpu/coo = toy:VARIANT
    """
    (of / "entry_points.txt").write_text(dedent(points))
    return tmp_path


def test_entry_points_are_found_and_broken_ones_are_told_of(package: Path) -> None:
    script = """
        import json, sys, warnings
        import numpy as np, scipy.sparse as sp
        warnings.simplefilter("always")
        with warnings.catch_warnings(record=True) as told:
            import akx
            from akx.backends.selection import device_of
            from akx.backends import registry
            from akx.core.plan import Plan
            A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(50, 50), format="csr")
            x = np.linspace(0, 1, 50)
            wanted = [x]
            for _ in range(3):
                wanted.append(A @ wanted[-1])
            right = [
                bool(np.allclose(akx.MatrixPowers(A, 3, plan=Plan(*named, k=3))(x), np.array(wanted).T))
                for named in (("cpu", "toy", "csr"), ("cpu", "sweep", "coo"), ("fake", "sweep", "csc"))
            ]
            again = registry.backends(), registry.schedules("cpu")
            found = {
                "right": right, "backends": registry.backends(),
                "schedules": [one.name for one in registry.schedules("cpu")], "class": device_of("fake").device_class,
                "told": sorted(str(one.message) for one in told if issubclass(one.category, akx.AkxWarning)),
            }
        print(json.dumps(found))
    """
    path = os.pathsep.join([str(package), str(_ROOT), os.environ.get("PYTHONPATH", "")])
    run = [sys.executable, "-c", dedent(script)]
    done = subprocess.run(run, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, cwd=package)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["right"] == [True, True, True]
    assert found["backends"] == ["cpu", "cuda", "fake"]
    assert found["schedules"] == ["sweep", "ghost", "wavefront", "toy", "wide"]
    assert found["class"] == "fake/NumPy"
    begin = "the entry point {!r} (akx.{}) of the package toy-powers is not used: {}"
    assert found["told"] == sorted(
        [
            begin.format("gone", "backends", "ModuleNotFoundError: No module named 'not_there'"),
            begin.format("none", "backends", "TypeError: it is no Backend but of type Schedule"),
            begin.format("cpu/sweep", "schedules", "there is one of that name already"),
            begin.format("cpu/other", "schedules", "ValueError: it names itself 'cpu/toy'"),
        ]
    )


def test_traits_of_a_schedule_are_known_before_anybody_imports_it(package: Path) -> None:
    script = """
        import json, sys
        from akx.core.errors import PlanError
        from akx.core.options import schedule_with
        from akx.core.plan import Plan
        plain = Plan("cpu", "sweep", "csr", options={"sigma": 1}).traits.is_plain, schedule_with("cpu", "is_plain")
        early = [name for name in ("wide", "akx.backends.registry", "numba") if name in sys.modules]
        plan = Plan("cpu", "wide", "csr")
        found = [plan.traits.runs_by_levels, plan.typed.width, sorted(plan.traits.allowed)]
        try:
            Plan("cpu", "wide", "csr", options={"width": 65})
        except PlanError as error:
            found.append(str(error))
        print(json.dumps([plain, early, found, schedule_with("cpu", "streams")]))
    """
    path = os.pathsep.join([str(package), str(_ROOT), os.environ.get("PYTHONPATH", "")])
    run = [sys.executable, "-W", "ignore", "-c", dedent(script)]
    done = subprocess.run(run, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, cwd=package)
    assert done.returncode == 0, done.stderr
    plain, early, found, streams = json.loads(done.stdout)
    assert (plain, early, streams) == ([True, "sweep"], [], None)
    assert found[:3] == [True, 3, ["width"]]
    assert "'width' is out of range" in found[3]


def test_entry_points_are_read_once_and_only_for_what_akx_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def entry_points(*, group: str) -> list[Any]:
        read.append(group)
        return []

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    known: Registered[Any] = Registered(str, {"own": "json:dumps"}, group="somebody.s")
    assert known.get("own") is json.dumps
    assert read == []
    assert known.get("other") is known.get("another") is None
    assert known.names() == ("own",)
    assert read == ["somebody.s"]


def test_a_broken_entry_point_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name, group, value, dist = "mine", "somebody.s", "nowhere:AT_ALL", None

        def load(self) -> Any:
            raise SyntaxError("what is\n that")

    monkeypatch.setattr("importlib.metadata.entry_points", lambda *, group: [Point()])
    known: Registered[Any] = Registered(str, {}, group="somebody.s")
    with pytest.warns(AkxWarning, match="of the package nowhere:AT_ALL is not used: SyntaxError: what is that") as told:
        found = known.get("mine"), known.names()
    assert found == (None, ())
    assert len(told) == 1


def test_a_variant_of_another_package_is_registered_and_found_without_numba() -> None:
    program = """
import sys
from akx.backends import registry
from akx.backends.variant import Variant

class Mine(Variant):
    name = "mine"
    def prepare(self, matrix, threads):
        raise NotImplementedError
    def stored_bytes(self, matrix):
        return 0.0

mine = Mine()
registry.register(mine)
assert registry.variant("cpu", "mine") is mine
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
