"""The folders of akx for its user, who may have no home, and threads that help."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from akx.backends.cuda.device.compile import store_folder
from akx.core import process
from akx.core.process import beside, user_folder
from akx.cost.calibration import calibration_folder, find_calibration
from akx.plandb import database_path


@pytest.fixture(params=["an error", "a tilde"])
def homeless(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No home, as platformdirs has it; returns the folder for temporary files."""

    def no_home(*_: Any, **__: Any) -> Path:
        if request.param == "an error":
            raise RuntimeError("could not determine the home directory for '~'")
        return Path("~/.local/share/akx")

    for kind in ("user_data_path", "user_cache_path"):
        monkeypatch.setattr(platformdirs, kind, no_home)
    for name in ("AKX_DB", "AKX_MACHINES", "AKX_CUBIN_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_without_a_home_there_is_a_folder_of_the_users_own(homeless: Path) -> None:
    folder = user_folder("data")
    assert folder == user_folder("cache")
    assert folder.parent == homeless
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [place.parent for place in (database_path(), calibration_folder(), store_folder())] == [folder] * 3
    assert find_calibration("no such class") is None


def test_a_folder_that_others_may_write_to_is_not_used(homeless: Path) -> None:
    user_folder("data").chmod(0o777)
    assert user_folder("data") == process._NOWHERE
    assert not database_path().exists()


def test_with_a_home_it_is_there() -> None:
    assert user_folder("data") == platformdirs.user_data_path("akx", appauthor=False)


def test_work_beside_others_begins_at_once_and_is_over_when_it_is_left() -> None:
    """A thread that comes late finds nothing; what goes wrong in one is raised when all are done."""
    left, done, come = deque(range(6)), list[tuple[int, str]](), threading.Event()

    def work() -> None:
        name = threading.current_thread().name
        while left:
            try:
                piece = left.popleft()
            except IndexError:
                return
            if name.startswith("akx-tests"):
                come.set()
                time.sleep(0.02)
                done.append((piece, name))
                raise ValueError("out of order")
            assert come.wait(10)
            done.append((piece, name))

    with pytest.raises(ValueError, match="out of order"):
        beside("tests", work, 1, left.clear)
    assert sorted(piece for piece, _ in done) == list(range(6))
    assert len({name for _, name in done}) == 2
    known = threading.active_count()
    for _ in range(20):  # those that are there are used again
        beside("tests", lambda: None, 1, lambda: None)
    assert threading.active_count() <= known + 1
