"""Fixtures shared by all tests."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from postgres import PostgresServer, missing_for_postgres

from akx.backends import pattern_cache as facts
from akx.backends import revisions
from akx.backends.cpu import device_model as rates
from akx.cost import calibration
from akx.plandb import ShippedPlans, layers
from akx.tuner.model import figures as machine

_SHARED = Path(__file__).resolve().parents[2] / "shared" / "matrices"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="all of what is tested in part on every push (hours)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what is marked `nightly` to ``make nightly``."""
    if not config.getoption("--nightly"):
        left = [item for item in items if item.get_closest_marker("nightly") is not None]
        if left:
            config.hook.pytest_deselected(items=left)
            items[:] = [item for item in items if item.get_closest_marker("nightly") is None]


@pytest.fixture(scope="session")
def is_nightly(pytestconfig: pytest.Config) -> bool:
    """Whether all is tested that there is, as ``make nightly`` does."""
    return bool(pytestconfig.getoption("--nightly"))


def pytest_collection() -> None:
    """Ten thousand tests are a million objects: no collection of garbage need go through them again and again."""
    gc.disable()


def pytest_collection_finish() -> None:
    """See above. Compilers make much, and nearly all of it lives long: garbage is looked for less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _no_look_at_what_lives_long() -> None:
    """A test that collects garbage would go through all that was compiled before it, for most of a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _one_look_at_this_machine() -> Iterator[None]:
    """Searches measure the machine's memory, for a second each time; those of one process here share what it found."""
    measure, found = machine._measure, dict[Any, machine.Figures]()

    @functools.wraps(measure)
    def once(device: Any, threads: int) -> machine.Figures:
        key = (rates._read_rate, device, threads)  # tests replace what reads
        if key not in found:
            found[key] = measure(device, threads)
        return found[key]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(machine, "_measure", once)
        yield


@pytest.fixture(autouse=True)
def _graphs_from_the_second_call_on(request: pytest.FixtureRequest) -> Iterator[None]:
    """On a GPU tests call three times, to have all that a call may be: kernel by kernel, recorded, and by the graph."""
    with pytest.MonkeyPatch.context() as patched:
        if request.node.get_closest_marker("cuda") is not None:
            patched.setattr("akx.backends.cuda.program._PAYS", 1)
        yield


@pytest.fixture
def no_plans_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A database of the test's own."""
    monkeypatch.setenv("AKX_DB", str(tmp_path / "plans.sqlite"))


@pytest.fixture
def cupy() -> Any:
    """CuPy, where it is installed."""
    return pytest.importorskip("cupy")


@pytest.fixture(scope="session")
def shared_matrices() -> Path:
    """The folder of real matrices beside the repository; the test is skipped where it is not there."""
    if not _SHARED.is_dir():
        pytest.skip("real matrices not available: no ../shared/matrices beside the repository")
    return _SHARED


@pytest.fixture(autouse=True, scope="session")
def _prepared_at_once() -> Iterator[None]:
    """Tests call small matrices a few times, for which nothing would be prepared."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AKX_PREPARE", "always")
        yield


@pytest.fixture(autouse=True, scope="session")
def _own_locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests that run at the same time do not wait for one another's measurements, nor predict by what a user has."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AKX_LOCK_DIR", str(tmp_path_factory.mktemp("locks")))
        patched.setenv("AKX_MACHINES", str(tmp_path_factory.mktemp("machines")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_plans_of_this_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Plans of a project or a system around the tests are none of their business, nor are those that are shipped."""
    nothing = tmp_path_factory.mktemp("shipped")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(layers, "_SHIPPED", ShippedPlans(nothing))
        patched.setattr(calibration, "_shipped_folder", lambda: nothing / "machines")
        patched.setenv("AKX_PROJECT_PLANS", "")
        patched.setenv("AKX_SYSTEM_PLANS", "")
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_facts_on_disk() -> Iterator[None]:
    """What a test finds out of a pattern is not for others, whose cost models may be replaced."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(facts, "_LEAST_ENTRIES", 2**62)
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server, running; the test is skipped where there is none on this machine."""
    reason = missing_for_postgres()
    if reason is not None:
        pytest.skip(reason)
    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture
def server_url(postgres_server: PostgresServer) -> str:
    """The URL of a new database on the server."""
    return postgres_server.url(postgres_server.new_database())


@pytest.fixture
def revise(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Change what the lock says of a schedule, such as ``"cpu/sweep"``: its revision, tokens, or those as good.

    What is not given is as it really is; variants by name are those of the schedule's backend.
    """
    sources, known = revisions._lock()

    def change(name: str, *, variants: Mapping[str, int] | None = None, **changes: Any) -> None:
        changes |= {"equal": frozenset(changes.get("equal", ()))} if "tokens" in changes else {}
        backend = name.partition("/")[0]
        there = {**known, backend: known[backend] if variants is None else variants}
        lock = {**sources, name: replace(sources[name], **changes)}, there
        monkeypatch.setattr(revisions, "_lock", lambda: lock)

    return change
