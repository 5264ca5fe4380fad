"""Fixtures shared by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

_SHARED = Path(__file__).resolve().parents[2] / "shared" / "matrices"


@pytest.fixture(scope="session")
def shared_matrices() -> Path:
    """The folder of real matrices beside the repository; the test is skipped where it is not there."""
    if not _SHARED.is_dir():
        pytest.skip("real matrices not available: no ../shared/matrices beside the repository")
    return _SHARED
