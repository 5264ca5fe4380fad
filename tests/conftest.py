"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres import PostgresServer, missing_for_postgres

from akx.plandb import ShippedPlans, layers
from akx.tuner import calibration

_SHARED = Path(__file__).resolve().parents[2] / "shared" / "matrices"


@pytest.fixture(scope="session")
def shared_matrices() -> Path:
    """The folder of real matrices beside the repository; the test is skipped where it is not there."""
    if not _SHARED.is_dir():
        pytest.skip("real matrices not available: no ../shared/matrices beside the repository")
    return _SHARED


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
